"""The residual stream of a model, runs in which what writes to it is replaced, all logits, and the weights between vectors and vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, count, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from attention.base.errors import ConfigError, MissingError, SizeError
from attention.formula.names import KEY, QUERY, VALUE
from attention.models import forward_pass, lm_head, recorder, running
from attention.models.attention_call import ModelCall
from attention.models.attention_sites import output_module, parents
from attention.models.forward_pass import patched_head_output
from attention.models.layer_sites import find_writers, is_norm, layer_list, no_stream
from attention.models.loaded import LoadedModel
from attention.models.text_inputs import TextInputs
from attention.patching.forward import PatchedForward
from attention.trace.cost import ALLOW_MORE
from attention.trace.model_run import FinalNorm, VocabularyWeights
from attention.trace.parts import Compute, Handlers, Place

_BYTES_PER_NUMBER = 4
_EPS_NAMES = ("eps", "variance_epsilon")


@dataclass(frozen=True, eq=False)
class _Streams:
    """The stream that enters each layer, [query_pos d_model], and the one after the last layer: float32, on the CPU."""

    tensors: tuple[Tensor, ...]

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


def residual_stream(
    loaded: LoadedModel, inputs: Mapping[str, Tensor], forward: PatchedForward, max_bytes: int
) -> _Streams:
    """The residual stream of one pass with these patches.

    Raises:
        MissingError: the layers do not follow each other in one list.
        SizeError: the streams would take more than `max_bytes`.
    """
    loaded.check_text_only("The residual stream")
    blocks = [*layer_list(loaded)[1].children()]
    n_layers = loaded.n_layers or len(blocks)
    n_tokens, d_model = next(iter(inputs.values())).shape[-1], _d_model(loaded)
    check_size("The residual stream", (n_layers + 1) * n_tokens * d_model, max_bytes)
    states: list[Tensor] = []
    last: list[Tensor] = []

    def enter(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states.append(_copied(args[0] if args else kwargs["hidden_states"]))

    def leave(_: Module, __: Any, output: Any) -> None:
        last[:] = [output[0] if isinstance(output, tuple) else output]

    # The hooks are part of the model, so no other thread may run it now.
    with loaded.lock.hold(), ExitStack() as hooks:
        for block in {id(block): block for block in blocks}.values():
            hooks.callback(block.register_forward_pre_hook(enter, with_kwargs=True).remove)
            hooks.callback(block.register_forward_hook(leave).remove)
        forward_pass.run_patched(loaded, inputs, forward, ())
    states += [_copied(output) for output in last]
    if len(states) != n_layers + 1 or any(state.shape != (n_tokens, d_model) for state in states):
        raise MissingError(no_stream(loaded))
    return _Streams(tuple(states))


def all_logits(loaded: LoadedModel, inputs: Mapping[str, Tensor], forward: PatchedForward, max_bytes: int) -> Tensor:
    """The logits at all positions of one pass with these patches, [query_pos vocabulary]: float32, on the CPU.

    Raises:
        MissingError: the model predicts no tokens.
        SizeError: they would take more than `max_bytes`.
    """
    size = lm_head.vocabulary_size(loaded)
    if not size:
        raise MissingError(lm_head.no_prediction_reason(loaded, ()))
    positions = tuple(range(len(lm_head.predicted_text_ids(inputs))))
    check_size("The logits at all positions", len(positions) * size, max_bytes)
    logits = lm_head.logits_of(forward_pass.run_patched(loaded, inputs, forward, positions))
    if logits is None:
        raise MissingError(f"{loaded.name} returns no logits: choose a model with a language-model head.")
    return logits.to("cpu", torch.float32)


def vocabulary_weights(loaded: LoadedModel) -> VocabularyWeights:
    """The weights between vectors and vocabulary.

    Raises:
        MissingError: they are not stored as plain matrices, as in a quantized model, or the model reads pictures.
    """
    loaded.check_text_only("What vectors mean in the vocabulary")
    head = loaded.model.get_output_embeddings()
    w_u = None if head is None else _matrix(loaded, head).T
    return VocabularyWeights(_matrix(loaded, loaded.model.get_input_embeddings()), w_u, _final_norm(loaded))


def _final_norm(loaded: LoadedModel) -> FinalNorm | None:
    """The norm after the list of layers, in the same module; None if there is none, or no such list."""
    try:
        path, layers = layer_list(loaded)
    except MissingError:
        return None
    siblings = [*loaded.model.get_submodule(path.rpartition(".")[0]).named_children()]
    at = next(i for i, (_, module) in enumerate(siblings) if module is layers)
    norms = [
        module
        for i, (name, module) in enumerate(siblings)
        if is_norm(module) and (i > at or "final" in name)  # OPT declares it before its layers
    ]
    if not norms:
        return None
    norm = norms[-1]

    def apply(x: Tensor) -> Tensor:
        with torch.no_grad(), loaded.session():
            weight = next(norm.parameters(), x)
            y: Tensor = norm(x.to(weight.device, loaded.model.dtype))
            return y.to("cpu", torch.float32)

    eps = next(
        (float(getattr(norm, name)) for name in _EPS_NAMES if isinstance(getattr(norm, name, None), float)), None
    )
    weight, bias = (getattr(norm, name, None) for name in ("weight", "bias"))
    return FinalNorm(
        type(norm).__name__,
        weight.detach() if isinstance(weight, Tensor) else None,
        bias.detach() if isinstance(bias, Tensor) else None,
        eps,
        apply,
    )


def _matrix(loaded: LoadedModel, module: Any) -> Tensor:
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        raise MissingError(
            f"W_E and W_U are matrices of numbers; {loaded.name} stores them in another way, such as quantized: what needs them is not shown."
        )
    return weight.detach()


def _d_model(loaded: LoadedModel) -> int:
    return int(getattr(loaded.model.config.get_text_config(), "hidden_size", 0) or 0)


def _copied(state: Tensor) -> Tensor:
    return state[0].detach().to("cpu", torch.float32, copy=True)


def check_size(what: str, numbers: int, max_bytes: int) -> None:
    """Checks numbers in float32, before they are computed.

    Raises:
        SizeError: they would take more than `max_bytes`.
    """
    nbytes = numbers * _BYTES_PER_NUMBER
    if nbytes > max_bytes:
        raise SizeError(
            f"{what} may take at most {max_bytes / 2**20:,.0f} MB here, and would take {nbytes / 2**20:,.0f} MB: "
            f"choose a shorter text, a smaller model, {ALLOW_MORE}."
        )


@dataclass(frozen=True, eq=False)
class _Writers:
    modules: tuple[Module, ...]  # MLPs, experts and mixers: all of the layers that are neither attention nor a norm
    block_of_module: tuple[int, ...]  # the index of the layer of the model
    block_of_call: tuple[int, ...]  # the same for each attention call
    projections: tuple[Module, ...]  # W_O, where it is a module
    first_block: Module | None  # whose input is the embedding; None if the model has several stacks of layers


class TransformerParts:
    """Repeats one run of a transformers model; a `PartRunner`.

    Attributes:
        layers: the index in the trace of each attention call.
        batch_size: the number of texts that run at once.
    """

    def __init__(
        self, loaded: LoadedModel, model_inputs: TextInputs, forward: PatchedForward, positions: tuple[int, ...]
    ) -> None:
        """Finds the parts of the model, whose logits are read at these positions.

        Raises:
            ConfigError: the layers of the model are not in a list, so it is unknown what belongs to a layer.
        """
        self._loaded, self._inputs, self._forward, self._positions = loaded, model_inputs, forward, positions
        loaded.check_text_only("Path patching")
        self._writers = _find_writers(loaded)
        self.layers = loaded.layer_indices
        self.batch_size = forward_pass.texts_at_once(loaded, model_inputs)

    def run(self, n_rows: int, handlers: Handlers) -> Tensor:
        """The logits [batch position token] in float64 of a batch of equal texts."""
        batch = self._inputs.repeated(n_rows)
        n_calls = 0

        def attend(call: ModelCall) -> tuple[Tensor, Tensor | None]:
            nonlocal n_calls
            index, n_calls = n_calls, n_calls + 1
            patched = handlers.inputs(index, {QUERY: call.query, KEY: call.key, VALUE: call.value})
            call = replace(call, query=patched[QUERY], key=patched[KEY], value=patched[VALUE])
            output, weights = call.run()
            z = handlers.head_outputs(index, output, lambda: self._intervened(index, call, output, weights))
            return z.to(output), weights

        def project(place: Place, compute: Compute) -> Any:
            return handlers.projected(place, n_calls - 1, compute)

        with ExitStack() as stack:
            # No other thread may run the model while modules are replaced.
            stack.enter_context(self._loaded.lock.hold())
            for modules, handle in ((self._writers.modules, handlers.written), (self._writers.projections, project)):
                for place, module in enumerate(modules):
                    stack.enter_context(_handled(module, place, handle))
            if self._writers.first_block is not None:
                embed = partial(with_hidden_states, handlers.embedding)
                hook = self._writers.first_block.register_forward_pre_hook(embed, with_kwargs=True)
                stack.callback(hook.remove)
            stack.enter_context(recorder.wrapping_attention(attend))
            stack.enter_context(lm_head.logits_at(self._positions))
            return lm_head.logits_at_positions(running.run(self._loaded, batch), self._positions)

    def mlp_layer(self, place: Place, n_calls: int) -> int:
        """The layer of a module that writes, which is called this number of times."""
        block = self._writers.block_of_module[place[0]]
        if self._writers.first_block is not None and n_calls == 1:
            return block
        attention = [call for call, index in enumerate(self._writers.block_of_call) if index == block]
        return self.layers[attention[place[1] * len(attention) // n_calls]]

    def _intervened(self, index: int, call: ModelCall, z: Tensor, weights: Tensor | None) -> Tensor:
        layer, site = self.layers[index], self._loaded.sites[index]
        if not self._forward.affects(layer):
            return z.clone()
        texts = (call.detached_text(row, z, weights) for row in range(len(z)))
        patched = (patched_head_output(self._forward, layer, text, site) for text in texts)
        return torch.stack([output.transpose(0, 1) for output in patched if output is not None]).to(z)


def estimate_seconds(loaded: LoadedModel, model_inputs: Mapping[str, Tensor]) -> float:
    """The estimated seconds of one text of a batch."""
    n_tokens = sum(ids.shape[-1] for ids in model_inputs.values())
    return forward_pass.count_parameters(loaded) * n_tokens / forward_pass.PARAMETER_TOKENS_PER_SECOND


def _find_writers(loaded: LoadedModel) -> _Writers:
    modules, parent_of = dict(loaded.model.named_modules()), parents(loaded.model)
    called = [modules[site.path] for site in loaded.sites]
    projections = [output_module(module, parent_of.get(id(module))) for module in called]
    stacks: dict[int, Module] = {}
    blocks_called: list[Module] = []
    for site in loaded.sites:
        around = [modules[path] for path in accumulate(site.path.split("."), "{}.{}".format)]
        found = next((pair for pair in pairwise(around) if isinstance(pair[0], ModuleList)), None)  # the outermost
        if found is None:
            raise ConfigError(
                f"Path patching needs a model whose layers are in a list, unlike those of {loaded.name}: choose another model."
            )
        stacks[id(found[0])] = found[0]
        blocks_called.append(found[1])
    blocks = [block for stack in stacks.values() for block in stack.children()]
    attention = {id(module) for module in (*called, *projections) if module is not None}
    block_of: dict[Module, int] = {}
    for index, block in enumerate(blocks):
        for module in find_writers(block, attention):
            block_of.setdefault(module, index)
    return _Writers(
        tuple(block_of),
        tuple(block_of.values()),
        tuple(blocks.index(block) for block in blocks_called),
        tuple(dict.fromkeys(module for module in projections if module is not None)),
        blocks[0] if len(stacks) == 1 else None,
    )


@contextmanager
def _handled(module: Module, index: int, handle: Callable[[Place, Compute], Any]) -> Iterator[None]:
    """A context in which `handle` replaces the output of a module, and need not compute it, which a hook always does."""
    own, compute, calls = vars(module).get("forward"), module.forward, count()

    def forward(*args: Any, **kwargs: Any) -> Any:
        return handle((index, next(calls)), lambda: compute(*args, **kwargs))

    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


def with_hidden_states(
    change: Callable[[Any], Any], _: Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a hook before a layer gives that changes the residual stream which enters it."""
    if args:
        return (change(args[0]), *args[1:]), kwargs
    return args, {**kwargs, "hidden_states": change(kwargs["hidden_states"])}
