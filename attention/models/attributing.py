"""What each head writes straight into a logit: its output through W_O, the final norm as it was, and the row of the token.

Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from __future__ import annotations

from collections.abc import Mapping
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
    at, calls, watched = asked.position, list[recording.Call](), _Watched(loaded)
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
    """What goes into and out of the modules that matter here, while the model runs."""

    def __init__(self, loaded: Loaded) -> None:
        self.model = loaded.model
        self.parents = parents(loaded.model)
        self.norm: tuple[Any, Tensor] | None = None
        self.given: Tensor | None = None
        self.inside: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def watching(self) -> Any:
        """A context in which everything is noted."""
        from contextlib import ExitStack

        stack = ExitStack()
        head = self.model.get_output_embeddings()
        for module in self.model.modules():
            name = type(module).__name__.lower()
            if "norm" in name:
                hook = module.register_forward_hook(lambda one, args, _: setattr(self, "norm", (one, args[0].detach())))
            elif module is head:
                hook = module.register_forward_pre_hook(lambda _, args: setattr(self, "given", args[0].detach()))
            else:
                hook = module.register_forward_hook(self._note, with_kwargs=True)
            stack.callback(hook.remove)
        return stack

    def _note(self, module: Any, args: tuple[Any, ...], more: dict[str, Any], out: Any) -> None:
        x = args[0] if args else more.get("hidden_states")
        y = out[0] if isinstance(out, tuple) else out
        if isinstance(x, Tensor) and isinstance(y, Tensor) and x.ndim == y.ndim and x.ndim in (2, 3):
            pair = (
                (x.detach(), y.detach()) if x.ndim == 3 else (x.detach()[None], y.detach()[None])
            )  # OPT has rows alone
            self.inside.setdefault(id(module), []).append(pair)

    def adds(self, calls: list[recording.Call]) -> bool:
        """Whether every layer adds what its attention gives to what it was given, and at most one thing more."""
        for call in calls:
            parent = self.parents.get(id(call.module))
            if parent is None or id(parent) not in self.inside or id(call.module) not in self.inside:
                return False
            made = self.inside[id(call.module)][0][1]
            x, y = self.inside[id(parent)][0]
            more = [
                self.inside[id(one)][0][1]
                for one in parent.children()
                if id(one) in self.inside and one is not call.module
            ]
            if made.shape != x.shape or not any(
                _near(x + made + one, y) for one in (torch.zeros_like(x), *(m for m in more if m.shape == x.shape))
            ):
                return False
        return True


def _near(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= _NEAR * other.abs().max().clamp_min(1e-6))
