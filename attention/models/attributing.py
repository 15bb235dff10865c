"""What each head writes straight into a logit: its output through W_O, the final norm as it was, and the row of the token.

Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from threading import get_ident
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.models import predicting, recording, running
from attention.models.intervening import order
from attention.models.silencing import Asked
from attention.models.sites import parents

if TYPE_CHECKING:
    from attention.models.loaded import Loaded

_NEAR = 1e-3  # of the largest number


def direct(loaded: Loaded, given: Mapping[str, Tensor], asked: Asked) -> tuple[dict[int, Tensor], float] | None:
    """For each layer what its heads add to the logit, or to the difference of two, [head]; and the remainder.

    The remainder is what the embedding, the layers between and all biases add; the sum of all is the logit. None where a family does more between than a sum and
    one norm: then a head's part is not known.
    """
    head = loaded.model.get_output_embeddings()
    if asked.target is None or asked.position is None or predicting.fills(loaded) or head is None:
        return None
    at = asked.position
    calls, watched = list[recording.Call](), _Watched(loaded, at)
    with watched.watching(), recording.recording(calls.append), predicting.asked((at,)):
        found = running.run(loaded, dict(given))
    norm, y = watched.norm, watched.given
    if norm is None or y is None or not watched.adds(calls):
        return None
    weight, bias = head.weight.detach(), getattr(head, "bias", None)
    row = weight[asked.target] - (weight[asked.distractor] if asked.distractor is not None else 0)
    logits = predicting.logits_of(found)
    assert logits is not None  # it has a head
    there = logits[0 if len(logits) == 1 else at].double()
    logit = float(there[asked.target] - (there[asked.distractor] if asked.distractor is not None else 0))
    plus = (
        0.0
        if bias is None
        else float(bias[asked.target] - (bias[asked.distractor] if asked.distractor is not None else 0))
    )
    y = y[0, 0 if y.shape[1] == 1 else at].double()
    if abs(float(y @ row.double()) + plus - logit) > _NEAR * max(1.0, abs(logit)):
        return None
    through = _frozen(norm[0], norm[1][0, at].double(), y)
    if through is None:
        return None
    parts: dict[int, Tensor] = {}
    for call, site, layer in zip(calls, loaded.sites, order(loaded), strict=True):
        if site.name.startswith("encoder"):
            parts[layer] = torch.zeros(
                len(call.query), dtype=torch.float64
            )  # only through what the decoder makes of it
        elif "w_o" not in site.parameters:
            return None
        else:
            wrote = torch.stack(
                [z[at].double() @ w.double() for z, w in zip(call.head_output, site.parameters["w_o"], strict=True)]
            )
            parts[layer] = through(wrote) @ row.double()
    return parts, logit - sum(float(one.sum()) for one in parts.values())


def _frozen(norm: Any, x: Tensor, y: Tensor) -> Any:
    """The final norm with its mean and its length as they were: a linear map of what goes into it, [… d_model]."""
    if isinstance(norm, torch.nn.LayerNorm):
        spread = (x.var(unbiased=False) + norm.eps).sqrt()
        scale = norm.weight.detach().double() / spread
        made, shift = (x - x.mean()) * scale, norm.bias.detach().double() if norm.bias is not None else 0
        if not torch.allclose(made + shift, y, rtol=_NEAR, atol=_NEAR * float(y.abs().max())):
            return None
        return lambda wrote: (wrote - wrote.mean(-1, keepdim=True)) * scale
    scale = torch.where(x == 0, 0, y / torch.where(x == 0, 1, x))
    return lambda wrote: wrote * scale


class _Watched:
    """What goes into and out of the modules that matter here at one position, while the model runs in this thread."""

    def __init__(self, loaded: Loaded, at: int) -> None:
        self.model = loaded.model
        self.at, self.thread = at, get_ident()
        self.parents = parents(loaded.model)
        self.norm: tuple[Any, Tensor] | None = None
        self.given: Tensor | None = None
        self.inside: dict[int, tuple[Tensor, Tensor]] = {}

    def watching(self) -> ExitStack:
        """A context in which everything is noted; other threads that run the model meanwhile are not."""
        stack, head = ExitStack(), self.model.get_output_embeddings()
        for module in self.model.modules():
            if "norm" in type(module).__name__.lower():
                hook = module.register_forward_hook(self._note_norm)
            elif module is head:
                hook = module.register_forward_pre_hook(self._note_head)
            else:
                hook = module.register_forward_hook(self._note, with_kwargs=True)
            stack.callback(hook.remove)
        return stack

    def _note_norm(self, module: Any, args: tuple[Any, ...], _: Any) -> None:
        if get_ident() == self.thread:
            self.norm = module, args[0].detach()  # the last one stays

    def _note_head(self, _: Any, args: tuple[Any, ...]) -> None:
        if get_ident() == self.thread:
            self.given = args[0].detach()

    def _note(self, module: Any, args: tuple[Any, ...], more: dict[str, Any], out: Any) -> None:
        x = args[0] if args else more.get("hidden_states")
        y = out[0] if isinstance(out, tuple) else out
        if get_ident() != self.thread or not isinstance(x, Tensor) or not isinstance(y, Tensor):
            return
        # Some families have rows without a batch. Of a module that is called twice the first counts.
        if x.ndim == y.ndim and x.ndim in (2, 3) and min(x.shape[-2], y.shape[-2]) > self.at:
            rows = (one.detach().reshape(-1, one.shape[-1])[self.at].clone() for one in (x, y))
            self.inside.setdefault(id(module), (next(rows), next(rows)))

    def adds(self, calls: list[recording.Call]) -> bool:
        """Whether every layer adds what its attention gives to what it was given, and at most one thing more."""
        for call in calls:
            parent = self.parents.get(id(call.module))
            if parent is None or id(parent) not in self.inside or id(call.module) not in self.inside:
                return False
            made = self.inside[id(call.module)][1]
            x, y = self.inside[id(parent)]
            others = [self.inside[id(one)][1] for one in parent.children() if id(one) in self.inside]
            more = [torch.zeros_like(x), *(one for one in others if one is not made and one.shape == x.shape)]
            if made.shape != x.shape or not any(_near(x + made + one, y) for one in more):
                return False
        return True


def _near(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= _NEAR * other.abs().max().clamp_min(1e-6))
