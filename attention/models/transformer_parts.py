"""A run of a model in which everything that its parts write to the residual stream can be read and replaced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import ModuleList

from attention.base.errors import ConfigError
from attention.formula.names import KEY, QUERY, VALUE
from attention.models import forward_pass, lm_head, recorder, residual_stream, running
from attention.models.attention_sites import parents
from attention.models.forward_pass import patched_head_output
from attention.models.recorded_layer import output_module
from attention.trace.parts import Compute, Handlers, Place
from attention.vision.families import check_text_only

if TYPE_CHECKING:
    from torch.nn import Module

    from attention.models.attention_call import ModelCall
    from attention.models.loaded import LoadedModel
    from attention.models.text_inputs import TextInputs
    from attention.patching.forward import PatchedForward


@dataclass(frozen=True, eq=False)
class ResidualWriters:
    """The modules around attention that write to the residual stream.

    Attributes:
        modules: all MLPs, experts and mixers: the modules of the layers that are neither attention nor a norm.
        block_of_module: the index of the layer of the model of each of these.
        block_of_call: the same for each attention call.
        projections: W_O of the attention modules, where it is a module.
        first_block: the layer whose input is the embedding; None if the model has several stacks of layers.
    """

    modules: tuple[Module, ...]
    block_of_module: tuple[int, ...]
    block_of_call: tuple[int, ...]
    projections: tuple[Module, ...]
    first_block: Module | None


class TransformerParts:
    """Repeats one run of a transformers model; a `PartRunner`.

    Attributes:
        layers: the index in the trace of each attention call.
        batch_size: the number of texts that run at once.
    """

    def __init__(self, loaded: LoadedModel, model_inputs: TextInputs, forward: PatchedForward, position: int) -> None:
        """Finds the parts of the model.

        Args:
            loaded: the model.
            model_inputs: its token ids, [1 pos].
            forward: the interventions of the run.
            position: where logits are read.

        Raises:
            ConfigError: the layers of the model are not in a list, so it is unknown what belongs to a layer.
        """
        self._loaded, self._inputs, self._forward, self._position = loaded, model_inputs, forward, position
        check_text_only(loaded, "Path patching")
        self._writers = _find_writers(loaded, model_inputs)
        self.layers = loaded.layer_indices
        self.batch_size = forward_pass.texts_at_once(loaded, model_inputs)

    def run(self, n_rows: int, handlers: Handlers) -> Tensor:
        """The logits at the position, [batch token] in float64, of a batch of equal texts."""
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
            stack.enter_context(
                self._loaded.lock.hold()
            )  # no other thread may run the model while modules are replaced
            for modules, handle in ((self._writers.modules, handlers.written), (self._writers.projections, project)):
                for place, module in enumerate(modules):
                    stack.enter_context(_handled(module, place, handle))
            if self._writers.first_block is not None:
                hook = self._writers.first_block.register_forward_pre_hook(_embedding_hook(handlers), with_kwargs=True)
                stack.callback(hook.remove)
            stack.enter_context(recorder.wrapping_attention(attend))
            stack.enter_context(lm_head.logits_at((self._position,)))
            model_output = running.run(self._loaded, batch)
        logits = model_output.get("logits", model_output.get("prediction_logits"))
        rows: Tensor = logits[:, 0 if logits.shape[1] == 1 else self._position].cpu().double()
        return rows

    def mlp_layer(self, place: Place, n_calls: int) -> int:
        """The layer of a module that writes, which is called this number of times."""
        block = self._writers.block_of_module[place[0]]
        if self._writers.first_block is not None and n_calls == 1:
            return block
        attention = [call for call, index in enumerate(self._writers.block_of_call) if index == block]
        return self.layers[attention[place[1] * len(attention) // n_calls]]

    def _intervened(self, index: int, call: ModelCall, z: Tensor, weights: Tensor | None) -> Tensor:
        """A copy of the head outputs of a batch, with the interventions of the run."""
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


def _find_writers(loaded: LoadedModel, model_inputs: Mapping[str, Tensor]) -> ResidualWriters:
    """The residual writers of a model, found by running it once.

    Raises:
        ConfigError: the layers of the model are not in a list, so it is unknown what belongs to a layer.
    """
    called: list[Module] = []

    def attend(call: ModelCall) -> tuple[Tensor, Tensor | None]:
        called.append(call.module)
        return call.run()

    with recorder.wrapping_attention(attend), lm_head.logits_at((0,)):
        running.run(loaded, model_inputs)
    parent_of = parents(loaded.model)
    projections = [output_module(module, parent_of.get(id(module))) for module in called]
    stacks: dict[int, Module] = {}
    blocks_called: list[Module] = []
    for module in called:
        stack, block = _stack(module, parent_of)
        if stack is None:
            raise ConfigError(
                f"Path patching needs a model whose layers are in a list, unlike those of {loaded.name}: choose another model."
            )
        stacks[id(stack)] = stack
        blocks_called.append(block)
    blocks = [block for stack in stacks.values() for block in stack.children()]
    attention = {id(module) for module in (*called, *projections) if module is not None}
    block_of: dict[Module, int] = {}
    for index, block in enumerate(blocks):
        for module in residual_stream.find_writers(block, attention):
            block_of.setdefault(module, index)
    return ResidualWriters(
        tuple(block_of),
        tuple(block_of.values()),
        tuple(blocks.index(block) for block in blocks_called),
        tuple(dict.fromkeys(module for module in projections if module is not None)),
        blocks[0] if len(stacks) == 1 else None,
    )


def _stack(module: Module, parent_of: Mapping[int, Module]) -> tuple[Module | None, Module]:
    """The outermost list of layers around a module, and the layer."""
    stack, block, child = None, module, module
    while (parent := parent_of.get(id(child))) is not None:
        if isinstance(parent, ModuleList):
            stack, block = parent, child
        child = parent
    return stack, block


@contextmanager
def _handled(module: Module, index: int, handle: Callable[[Place, Compute], Any]) -> Iterator[None]:
    """A context in which `handle` replaces the output of a module, and need not compute it, which a hook always does."""
    own, compute, n_calls = vars(module).get("forward"), module.forward, Counter[int]()

    def forward(*args: Any, **kwargs: Any) -> Any:
        n_calls[index] += 1
        return handle((index, n_calls[index] - 1), lambda: compute(*args, **kwargs))

    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


def _embedding_hook(handlers: Handlers) -> Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]:
    def hook(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if args:
            return (handlers.embedding(args[0]), *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": handlers.embedding(kwargs["hidden_states"])}

    return hook
