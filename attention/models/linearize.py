"""A forward pass of a transformers model as a `LinearRun`: hooks freeze its norms, and cut the graph at its heads and MLPs.

So `direct_effects` (direct logit attribution) sums what each head adds to a logit through W_O, the frozen norms, and
the unembedding.
Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; Elhage et al. 2021, "A Mathematical Framework for
Transformer Circuits".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from attention.base.errors import MissingError
from attention.formula.names import KEY, QUERY, VALUE
from attention.models import lm_head, recorder, running
from attention.models.attention_call import ModelCall, as_model_output
from attention.models.attention_sites import output_candidates, output_module, parents
from attention.models.forward_pass import patched_head_output
from attention.models.layer_sites import LAYER, find_writers, is_norm, writing_children
from attention.models.lm_head import Measurement
from attention.models.loaded import LoadedModel
from attention.models.residual_stream import with_hidden_states
from attention.patching.forward import PatchedForward
from attention.trace.linear_run import LinearRun
from attention.trace.readout import Readout
from attention.trace.residual_parts import EMBEDDING_PART, HEAD, LOGITS, mlp_part

_TOO_COARSE = "the sum is checked against the whole, and this model computes in half precision, which is too coarse: load it in float32."
_UNRECORDED = "the attention of this model cannot be recorded: choose a model of another family."
_SECOND_MATRIX = (
    "its heads write into a block of their own, whose sum passes another matrix: choose a model of another family."
)
_NO_OUTPUT_MATRIX = "its output matrix W_O is not known here: choose a model of another family."


def run_linear(
    loaded: LoadedModel, model_inputs: Mapping[str, Tensor], forward: PatchedForward | None = None
) -> LinearRun:
    """The pass with frozen norms, heads and MLPs, and with the interventions of `forward`.

    It records the queries, keys and values of each layer, such as "query 3", and under `LOGITS` the input of the unembedding, or
    the last hidden states of a model without one.

    Raises:
        MissingError: what the heads of this model write is not known.
    """
    refusal = f"The sum over the parts of {loaded.name} is not available: "
    if loaded.model.dtype not in (torch.float32, torch.float64):
        raise MissingError(refusal + _TOO_COARSE)
    if not loaded.sites:
        raise MissingError(refusal + _UNRECORDED)
    loaded.check_text_only("The sum over the parts of a model")
    hooks = _Hooks(loaded, forward or PatchedForward())
    # The hooks are part of the model, so no other thread may run it now.
    with loaded.session(), hooks.attached(), lm_head.logits_at(()):
        output = running.run(loaded, model_inputs, gradients=True)
    run = hooks.run
    run.model_uid = loaded.uid
    if hooks.n_writing_layers < len(loaded.sites):
        raise MissingError(refusal + _NO_OUTPUT_MATRIX)
    last = output.get("last_hidden_state")
    if not run.has(LOGITS) and last is not None:
        run.read(LOGITS, last)
    if loaded.without_attention and run.has(LOGITS) and run.unread_layers:  # Zamba
        raise MissingError(refusal + _SECOND_MATRIX)
    head = loaded.model.get_output_embeddings()
    if head is not None and not lm_head.is_masked_lm(loaded):
        run.w_u, run.b_u = head.weight.detach(), getattr(head, "bias", None)
        run.logit_factor = lm_head.logit_factor(loaded.model.config)
    return run


class _Hooks:
    def __init__(self, loaded: LoadedModel, forward: PatchedForward) -> None:
        self.run = LinearRun()
        self.n_writing_layers = 0  # attention layers whose output was recorded
        self._loaded, self._forward = loaded, forward
        self._modules: dict[str, Module] = dict(loaded.model.named_modules())
        self._attention = {id(self._modules[site.path]) for site in loaded.sites}
        self._n_calls = 0  # of attention
        self._mixed: set[int] = set()  # the layers in which a part has written
        self._entered: set[int] = set()  # the stacks of layers that have begun
        parent_of = parents(loaded.model)
        self._w_o: set[int] = set()
        for site in loaded.sites:
            module = self._modules[site.path]
            places = module, parent_of.get(id(module))
            w_o = output_module(*places) or next(iter(output_candidates(*places)), None)
            if w_o is not None:
                self._w_o.add(id(w_o))

    @property
    def _layer(self) -> int:
        # That of the last call of attention.
        return self._loaded.layer_indices[self._n_calls - 1]

    @contextmanager
    def attached(self) -> Iterator[None]:
        inside: set[int] = set()  # modules in which no gradient flows
        attention = self._attention | self._w_o
        with ExitStack() as stack:
            for blocks, layer_of_block in self._stacks():
                stack.callback(blocks[0].register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                for block, layer in zip(blocks, layer_of_block, strict=True):
                    mixer = "" if layer is None else self._loaded.without_attention.get(layer, "")
                    for part in writing_children(block) if mixer else find_writers(block, attention):
                        inside |= {id(module) for module in part.modules()}
                        stack.callback(part.register_forward_pre_hook(_without_gradient).remove)
                        stack.callback(part.register_forward_hook(self._writer(layer, mixer)).remove)
            head = self._loaded.model.get_output_embeddings()
            if head is not None:
                stack.callback(head.register_forward_pre_hook(self._read_logits, prepend=True).remove)
            for module in self._modules.values():
                if id(module) in inside or module is head:
                    continue
                if id(module) in self._w_o:
                    stack.callback(module.register_forward_hook(self._write_heads).remove)
                elif is_norm(module):
                    stack.callback(module.register_forward_hook(self._freeze, with_kwargs=True).remove)
                elif type(module).__name__ in ("Linear", "Conv1D") and getattr(module, "bias", None) is not None:
                    stack.callback(module.register_forward_hook(self._separate_bias).remove)
            stack.enter_context(recorder.wrapping_attention(self._attend))
            yield

    def _stacks(self) -> list[tuple[list[Module], list[int | None]]]:
        """The layers of each stack, such as those of a decoder, with the index of each layer; None where it is not known."""
        stacks: dict[str, dict[int, int]] = {}
        for site, index in zip(self._loaded.sites, self._loaded.layer_indices, strict=True):
            if (match := LAYER.match(site.path)) is None:
                raise MissingError(
                    f"the layers of {self._loaded.name} are not in a list: what each adds is not known here."
                )
            stacks.setdefault(match[1], {}).setdefault(int(match[2]), index)
        others = {index: index for index in self._loaded.without_attention}
        found = []
        for path, layers in stacks.items():
            blocks, known = list(self._modules[path].children()), others | layers
            found.append((blocks, [known.get(i) for i in range(len(blocks))]))
        return found

    def _enter(self, block: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # The input of a stack of layers becomes a leaf: the embedding.
        if id(block) in self._entered:  # some families run one layer again and again
            return None
        self._entered.add(id(block))
        return with_hidden_states(partial(self.run.source, EMBEDDING_PART), block, args, kwargs)

    def _writer(self, layer: int | None, mixer: str = "") -> Any:
        """A hook that makes the output of an MLP a leaf, or of the `mixer` that a layer has instead of attention, which runs first."""

        def write(_: Module, __: Any, output: Any) -> Any:
            torch.set_grad_enabled(True)
            index = self._layer if layer is None or self._n_calls > len(self._loaded.sites) else layer
            part = mlp_part(index, mixer if mixer and index not in self._mixed else "MLP")
            self._mixed.add(index)
            if isinstance(output, tuple):
                return (self.run.source(part, output[0]), *output[1:])
            return self.run.source(part, output)

        return write

    def _attend(self, call: ModelCall) -> tuple[Tensor, Tensor | None]:
        with torch.no_grad():
            output, weights = call.run(keep_weights=True)
            detached = call.detached(output, weights)
        site = self._loaded.sites[self._n_calls]
        self._n_calls += 1
        for name, tensor in ((QUERY, call.query), (KEY, call.key), (VALUE, call.value)):
            self.run.read(f"{name} {self._layer}", tensor)
        patched = patched_head_output(self._forward, self._layer, detached, site)
        return output if patched is None else as_model_output(patched, output), weights

    def _write_heads(self, module: Module, args: tuple[Any, ...], _: Any) -> Tensor:
        self.n_writing_layers += 1
        site = self._loaded.sites[self._n_calls - 1]
        return self.run.heads(self._layer, site.n_heads, args[0], module.forward)

    def _freeze(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], y: Any) -> Any:
        x = args[0] if args else kwargs.get("hidden_states")
        if not isinstance(x, Tensor) or not isinstance(y, Tensor) or not x.requires_grad or x.shape != y.shape:
            return y
        bias = getattr(module, "bias", None)
        with torch.no_grad():
            shifted = module.forward(x + 1)
        centered = bool((shifted - y).abs().max() <= _CENTERED * y.abs().max().clamp_min(1e-6))
        return self.run.norm(x, y, bias if isinstance(bias, Tensor) else None, centered)

    def _separate_bias(self, module: Module, _: Any, output: Tensor) -> Tensor:
        if not output.requires_grad:
            return output
        bias: Tensor = module.bias.detach()  # type: ignore[operator]  # a parameter
        return output + (self.run.constant(bias.expand_as(output)) - bias)

    def _read_logits(self, _: Module, args: tuple[Any, ...]) -> None:
        self.run.read(LOGITS, args[0])


_CENTERED = 1e-3  # how little a norm that subtracts the mean changes when every number grows by 1


def _without_gradient(_: Module, __: Any) -> None:
    torch.set_grad_enabled(False)


_NO_LOGITS = "a direct effect is what a head adds to a logit, and this model predicts no tokens."
_FILLS_MASKS = "a model that fills masks has a non-linear layer between the last vectors and the logits, so no part of a logit belongs to one head."


def direct_effects(
    loaded: LoadedModel,
    model_inputs: Mapping[str, Tensor],
    measurement: Measurement,
    forward: PatchedForward | None = None,
) -> tuple[dict[int, Tensor], float] | str:
    """What each head adds to the logit, or to the logit difference: [head] for each layer, and the remainder.

    Every norm on the way, and a softcap of the logits, is frozen at its factor in this run. The remainder comes from the embedding,
    the MLPs and all biases; everything together is the logit. If the model is not additive in this way, the reason in a sentence.
    """
    if measurement.target is None or measurement.position is None or not lm_head.vocabulary_size(loaded):
        return _NO_LOGITS
    if lm_head.is_masked_lm(loaded):
        return _FILLS_MASKS
    position = measurement.position
    tokens = (measurement.target, 1), (measurement.distractor, -1)
    readout = Readout("the logit", tuple((token, sign) for token, sign in tokens if token is not None))
    try:
        run = run_linear(loaded, model_inputs, forward)
        parts, values = readout.direct_effects(run).at(position)
    except MissingError as error:
        return str(error)
    effects = {layer: torch.zeros(site.n_heads, dtype=torch.float64) for layer, site in loaded.sites_by_layer.items()}
    remainder = 0.0
    for part, value in zip(parts, values.tolist(), strict=True):
        if part.kind == HEAD and part.layer is not None and part.head is not None:
            effects[part.layer][part.head] = value
        else:
            remainder += value
    return effects, remainder
