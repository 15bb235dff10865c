"""What each head writes straight into a logit: its output through W_O, all norms on the way as they were, and the row of the token.

Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from attention.formula.intervening import Pass
from attention.models import predicting, recording, running
from attention.models.passing import goes_on
from attention.models.silencing import Asked
from attention.models.sites import parents

if TYPE_CHECKING:
    from attention.models.loaded import Loaded

Linear: TypeAlias = Callable[[Tensor], Tensor]
"""A linear map of rows, [… d_model]."""

_NEAR = 1e-3  # of the largest number
_NO_LOGIT = "a direct effect is what a head adds to a logit, and this model says no tokens."
_FILLS = "between the last vectors and the logits of a model that fills masks stands a layer that is not linear, so no part of a logit is one head's."
_MORE = "a layer of this model does more than add what its heads make, such as normalise the sum (post-LN), so no part of a logit is one head's."
_END = "what this model does between its last layer and its logits is not known here."


def direct(
    loaded: Loaded, given: Mapping[str, Tensor], asked: Asked, changing: Pass | None = None
) -> tuple[dict[int, Tensor], float] | str:
    """For each layer what its heads add to the logit, or to the difference of two, [head]; and the remainder.

    Every norm on the way, and a cap of the logits, multiplies as it did in this run. The remainder is what the embedding, the
    layers between and all biases add; the sum of all is the logit. Where a family does more than that: why a head's part is
    not known, in a sentence.
    """
    head, changing = loaded.model.get_output_embeddings(), changing or Pass()
    if asked.target is None or asked.position is None or head is None:
        return _NO_LOGIT
    if predicting.fills(loaded):
        return _FILLS
    at = asked.position
    calls, watched = list[recording.Call](), _Watched(loaded, at)

    def take(call: recording.Call) -> Tensor | None:
        kept = goes_on(changing, loaded.order[len(calls)], call, loaded.sites[len(calls)])
        calls.append(call if kept is None else replace(call, head_output=kept))
        return kept

    recorded = recording.recording(take, weights=changing.with_weights)
    # The hooks are part of the model, which no other thread may run meanwhile.
    with loaded.lock.hold(), watched.watching(), recorded, predicting.asked((at,)):
        found = running.run(loaded, dict(given))
    logits = predicting.logits_of(found)
    if watched.norm is None or watched.given is None or logits is None:
        return _END
    y = watched.given[0, 0 if watched.given.shape[1] == 1 else at].double()
    there = logits[0 if len(logits) == 1 else at].double()
    row, logit = torch.zeros_like(y), 0.0
    for token, sign in ((asked.target, 1), (asked.distractor, -1)):
        if token is not None:
            mine = head.weight[token].detach().double()
            plus = float(head.bias[token]) if getattr(head, "bias", None) is not None else 0.0
            scale = _scale(loaded.model.config, float(y @ mine) + plus)
            if abs((float(y @ mine) + plus) * scale - float(there[token])) > _NEAR * max(1.0, abs(float(there[token]))):
                return _END
            row, logit = row + sign * scale * mine, logit + sign * float(there[token])
    norm, x = watched.norm
    last = _frozen(norm, x[0, at].double(), y)
    if last is None:
        return _END
    parts: dict[int, Tensor] = {}
    for call, site, layer in zip(calls, loaded.sites, loaded.order, strict=True):
        adds = watched.adds(call)
        if adds is None or "w_o" not in site.parameters:
            return _MORE
        z_w_o = zip(call.head_output, site.parameters["w_o"], strict=True)
        if site.name.startswith("encoder"):  # only through what the decoder makes of it
            parts[layer] = torch.zeros(len(call.query), dtype=torch.float64)
        else:
            parts[layer] = last(adds(torch.stack([z[at].double() @ w.double() for z, w in z_w_o]))) @ row
    return parts, logit - sum(float(one.sum()) for one in parts.values())


def _scale(config: Any, z: float) -> float:
    """What the product of a vector and a token's row is multiplied by to be its logit, in this run."""
    cap, times, over = (
        getattr(config, name, None) for name in ("final_logit_softcapping", "logit_scale", "logits_scaling")
    )
    z = z * (times or 1.0) / (over or 1.0)
    return (times or 1.0) / (over or 1.0) * (cap * math.tanh(z / cap) / z if cap and z else 1.0)


def _frozen(norm: Any, x: Tensor, y: Tensor) -> Linear | None:
    """A norm with its mean and its length as they were, when it made y of x: a linear map of what goes into it, [… d_model]."""
    if isinstance(norm, torch.nn.LayerNorm):
        spread = (x.var(unbiased=False) + norm.eps).sqrt()
        weight = torch.ones_like(x) if norm.weight is None else norm.weight.detach().double()
        scale, shift = weight / spread, 0 if norm.bias is None else norm.bias.detach().double()
        if not torch.allclose((x - x.mean()) * scale + shift, y, rtol=_NEAR, atol=_NEAR * float(y.abs().max())):
            return None
        return lambda wrote: (wrote - wrote.mean(-1, keepdim=True)) * scale
    ratio = torch.where(x == 0, 0, y / torch.where(x == 0, 1, x))
    return lambda wrote: wrote * ratio


class _Watched:
    """What goes into and out of the modules that matter here at one position, while the model runs."""

    def __init__(self, loaded: Loaded, at: int) -> None:
        self.model = loaded.model
        self.at = at
        self.parents = parents(loaded.model)
        self.norm: tuple[Any, Tensor] | None = None
        self.given: Tensor | None = None
        self.inside: dict[int, tuple[Tensor, Tensor]] = {}

    def watching(self) -> ExitStack:
        """A context in which everything is noted; no other thread may run the model meanwhile."""
        stack, head = ExitStack(), self.model.get_output_embeddings()
        for module in self.model.modules():
            if module is head:
                hook = module.register_forward_pre_hook(self._note_head)
            else:
                hook = module.register_forward_hook(self._note, with_kwargs=True)
            stack.callback(hook.remove)
        return stack

    def _note_head(self, _: Any, args: tuple[Any, ...]) -> None:
        self.given = args[0].detach()

    def _note(self, module: Any, args: tuple[Any, ...], more: dict[str, Any], out: Any) -> None:
        x = args[0] if args else more.get("hidden_states")
        y = out[0] if isinstance(out, tuple) else out
        if not isinstance(x, Tensor) or not isinstance(y, Tensor):
            return
        if _is_norm(module):
            self.norm = module, x.detach()  # the last one stays
        # Some families have rows without a batch. Of a module that is called twice the first counts.
        if x.ndim == y.ndim and x.ndim in (2, 3) and min(x.shape[-2], y.shape[-2]) > self.at:
            rows = (one.detach().reshape(-1, one.shape[-1])[self.at].double() for one in (x, y))
            self.inside.setdefault(id(module), (next(rows), next(rows)))

    def adds(self, call: recording.Call) -> Linear | None:
        """How a layer adds what its attention wrote to what it was given: as it is or through a norm of its own, with at most one thing more.

        None where the layer does something else.
        """
        parent = self.parents.get(id(call.module))
        if parent is None or id(parent) not in self.inside or id(call.module) not in self.inside:
            return None
        x, y = self.inside[id(parent)]
        made, times = self.inside[id(call.module)][1], float(getattr(parent, "residual_multiplier", 1.0))
        there = [
            (one, *self.inside[id(one)])
            for one in parent.children()
            if id(one) in self.inside and one is not call.module
        ]
        if made.shape != x.shape:
            return None
        ways: list[tuple[Linear | None, Tensor]] = [(lambda wrote: wrote, made)]
        ways += [(_frozen(one, made, out), out) for one, given, out in there if _is_norm(one) and _near(given, made)]
        more = [torch.zeros_like(x), *(out for _, _, out in there if out.shape == x.shape)]
        best, way = min(
            ((float((x + times * (out + one) - y).abs().max()), linear) for linear, out in ways for one in more),
            key=_first,
        )
        if way is None or best > _NEAR * float(y.abs().max().clamp_min(1e-6)):
            return None
        return lambda wrote: times * way(wrote)


def _first(one: tuple[float, Any]) -> float:
    return one[0]


def _is_norm(module: Any) -> bool:
    return "norm" in type(module).__name__.lower()


def _near(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() <= _NEAR * other.abs().max().clamp_min(1e-6))
