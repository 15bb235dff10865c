"""Functions of yours in a run of a model: they read and replace the steps of its attention, its MLPs and its residual stream by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.base.errors import ConfigError
from attention.formula.edit_kinds import SITES
from attention.formula.names import HEAD_OUTPUT, KEY, QUERY, VALUE, WEIGHTS
from attention.models import lm_head, recorder, running
from attention.models.forward_pass import patched_head_output
from attention.models.layer_sites import WritePlace, changed_site, handled_sites
from attention.models.residual_stream import check_size

if TYPE_CHECKING:
    from attention.models.attention_call import ModelCall
    from attention.models.loaded import LoadedModel
    from attention.models.text_inputs import TextInputs
    from attention.patching.forward import PatchedForward

Hook = Callable[[Tensor], Tensor | None]
"""Receives a copy of a step, and returns what replaces it; None: the copy does if it was edited, and otherwise the step stays."""

_NAMES = (QUERY, KEY, VALUE, WEIGHTS, HEAD_OUTPUT, *SITES)
_ELSEWHERE = {
    "pattern": WEIGHTS, "attn_weights": WEIGHTS, "z": HEAD_OUTPUT, "q": QUERY, "k": KEY, "rot_q": QUERY, "rot_k": KEY, "v": VALUE, "mlp_out": "mlp_output",
}  # fmt: skip
_FORM = re.compile(r"(?:layers|blocks)\.(\d{1,6})\.(?:attn\.)?(?:hook_)?(\w+)")


def run_with_hooks(
    loaded: LoadedModel, inputs: TextInputs, forward: PatchedForward, hooks: Mapping[str, Hook], max_bytes: int
) -> Tensor:
    """The logits [query_pos vocabulary] of a run with these hooks, after its interventions; see `Model.run_with_hooks`."""
    by_place = {_place_of(loaded, name): hook for name, hook in hooks.items()}
    n_calls = 0

    def hooked(layer: int, name: str, tensor: Tensor) -> Tensor:
        """A step of one text, [batch …], after the hook."""
        if (hook := by_place.get((layer, name))) is None:
            return tensor
        # A copy: what a function keeps stays as it was, and what it edits in place is seen in every step alike.
        given = tensor[0].clone()
        result = hook(given)
        if result is None:
            if torch.equal(given, tensor[0]):
                return tensor
            result = given
        if not isinstance(result, Tensor) or result.shape != tensor.shape[1:]:
            got = f"a tensor {[*result.shape]}" if isinstance(result, Tensor) else repr(result)[:40]
            raise ConfigError(
                f"The hook of layers.{layer}.{name} returns a tensor {[*tensor.shape[1:]]}, or None to leave it; got {got}: return one of that shape."
            )
        return result.to(tensor)[None]

    def attend(call: ModelCall) -> tuple[Tensor, Tensor | None]:
        nonlocal n_calls
        layer, site = loaded.layer_indices[n_calls], loaded.sites[n_calls]
        n_calls += 1
        query, key, value = (
            hooked(layer, name, tensor) for name, tensor in ((QUERY, call.query), (KEY, call.key), (VALUE, call.value))
        )
        call = replace(call, query=query, key=key, value=value)
        if (layer, WEIGHTS) in by_place:
            output, weights = call.run_eager()
            assert weights is not None
            replaced = hooked(layer, WEIGHTS, weights)
            if replaced is not weights:
                each = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
                output, weights = (replaced @ each).transpose(1, 2).contiguous(), replaced
        else:
            output, weights = call.run()
        if forward.affects(layer):
            if output.requires_grad:
                raise ConfigError(
                    f"Gradients do not pass the interventions on heads of layer {layer}, which come after a step of yours: "
                    "make this change in a hook, too, or run with torch.no_grad()."
                )
            z = patched_head_output(forward, layer, call.detached_text(0, output, weights), site)
            assert z is not None
            output = z.transpose(0, 1)[None].to(output)
        z = hooked(layer, HEAD_OUTPUT, output.transpose(1, 2))
        return z.transpose(1, 2).contiguous(), weights

    def write(place: WritePlace, x: Tensor) -> Tensor:
        return hooked(place.layer, place.site, changed_site(place, x, forward.sites, forward))

    positions = tuple(range(len(lm_head.predicted_text_ids(inputs))))
    check_size("The logits at all positions", len(positions) * lm_head.vocabulary_size(loaded), max_bytes)
    with ExitStack() as stack:
        stack.enter_context(loaded.lock.hold())
        stack.enter_context(recorder.wrapping_attention(attend))
        stack.enter_context(lm_head.logits_at(positions))
        if forward.sites or any(name in SITES for _, name in by_place):
            stack.enter_context(handled_sites(loaded, write))
        output = running.run(loaded, inputs, gradients=torch.is_grad_enabled())
    logits: Any = output.get("logits", output.get("last_hidden_state"))
    result: Tensor = logits[0]
    return result


def _place_of(loaded: LoadedModel, name: str) -> tuple[int, str]:
    """The layer and the step that a name stands for."""
    match = _FORM.fullmatch(str(name))
    step = _ELSEWHERE.get(match[2], match[2]) if match else ""
    if match is None or step not in _NAMES:
        raise ConfigError(
            f"A hook is of layers.3.weights, with one of {', '.join(_NAMES)}, or the names of TransformerLens, such as blocks.3.attn.hook_pattern; "
            f"got {str(name)[:60]!r}: choose one of these."
        )
    layer = int(match[1])
    present = range(loaded.n_layers) if step in SITES else loaded.layer_indices
    if layer not in present:
        raise ConfigError(
            f"The layers of {loaded.name} that have {step} count from {min(present)} to {max(present)}; got {layer}: choose one of these."
        )
    return layer, step
