"""What code does to scores between their product and the softmax: the formula, if that is what it does; otherwise why not, and the maps as they were."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from attention.formula.formula import Formula
from attention.formula.mask import Mask, detect_mask
from attention.formula.names import BIASED_SCORES, CAPPED_SCORES, MASKED_SCORES, SCALED_SCORES, SCORES
from attention.recording.axes import Axes, operand_of
from attention.recording.products import positions
from attention.recording.trails import (
    ADD,
    DROPOUT,
    EXP,
    GATE,
    KEEP,
    MASK,
    MIXED,
    SCALE,
    TANH,
    VIEW,
    Event,
    Product,
    arrange,
    run,
)

UNDERSTOOD = "the code"
"""How a reason begins that needs no note, since all that happens is shown."""

_FAR = -5000.0  # what is written or added this far below 0 hides a key: its weight is exactly 0
_ROOT = 1e-6  # how far a divisor may be from √d_k, as float32 rounds
_TOLERANCE = 1e-3
_STAGES = {SCALE: "scales", TANH: "caps", ADD: "adds to", MASK: "masks"}  # in the order of the formula
_MAPS = {SCALE: SCALED_SCORES, TANH: CAPPED_SCORES, ADD: BIASED_SCORES, MASK: MASKED_SCORES}


class ScoreCalls:
    """What the calls from a product to a softmax do.

    Args:
        product: of queries and keys.
        events: the calls.
        axes: of the map.
        maps: the numbers of the maps that are recorded.
        scale: by which the code multiplied queries and keys before.

    Attributes:
        reason: why they are not the formula, in words; empty if they are.
        tensors: `mask` and `bias` of the formula, once it was made.
    """

    def __init__(self, product: Product, events: Sequence[Event], axes: Axes, maps: Tensor, scale: float) -> None:
        self.reason = ""
        self.tensors: dict[str, Tensor] = {}
        self._product, self._events, self._axes, self._maps = product, events, axes, maps
        self._scale, self._cap = scale, 1.0
        self._is_capped, self._after_exp = False, False
        self._stage = SCALE
        self._bias: Tensor | None = None
        self._hidden: Tensor | None = None
        self._gated: list[Tensor] = []
        sizes = product.spec.sizes(product.left.tensor, product.right.tensor)
        self._probe = positions(product.spec.out, "", sizes, product.left.tensor.device)  # has the shape of the scores
        for index, event in enumerate(events):
            if not self.reason:
                self._read(event, events[index + 1 :])
        if not self.reason:
            self._check()

    def formula(self, normalizer: str, d_k: int) -> Formula:
        """The formula of these calls, whose queries are d_k wide."""
        divisor = None if self._scale == 1 else 1 / (self._scale * self._cap)
        is_root = divisor is not None and math.isclose(divisor, math.sqrt(d_k), rel_tol=_ROOT)
        mask: Mask | Tensor = Mask()
        if self._hidden is not None and bool((self._hidden == self._hidden[:1]).all()):
            mask = detect_mask(~self._hidden[0])
        elif self._hidden is not None:  # heads have different masks: a bias of −∞
            bias = torch.zeros(self._hidden.shape) if self._bias is None else self._bias
            self._bias = bias.masked_fill(self._hidden, -math.inf)
        if self._bias is not None:
            self.tensors["bias"] = self._bias
        if isinstance(mask, Tensor):
            self.tensors["mask"] = mask
        return Formula(
            divisor=math.sqrt(d_k) if is_root else divisor,
            own_divisor=None if is_root else divisor,
            cap=self._cap if self._is_capped else None,
            bias="given" if self._bias is not None else "",
            normalizer=normalizer,
            mask=mask if isinstance(mask, Mask) else None,
        )

    def maps(self, scores: Tensor | None) -> dict[str, Tensor]:
        """The map after each kind of call, [head query_pos key_pos], as far as the calls give the input of the softmax when they run again.

        Args:
            scores: the input of the softmax; None: it is not known.
        """
        last = {} if scores is None else {MASKED_SCORES: self._axes.picked(scores, self._maps)}
        if {event.kind for event in self._events} & {DROPOUT, MIXED, EXP}:
            return last
        tensor, found, done = self._product.compute(), dict[str, Tensor](), -1
        found[SCORES] = self._picked(tensor, self._events)
        for index, event in enumerate(self._events):
            tensor = run((event,), tensor)
            rank = [*_MAPS].index(event.kind) if event.kind in _MAPS else -1
            if rank >= done and rank >= 0 and done < len(_MAPS):
                done = rank
                found[_MAPS[event.kind]] = self._picked(tensor, self._events[index + 1 :])
            elif event.kind not in (VIEW, KEEP):
                done = len(_MAPS)  # what follows has no name of ours
        if not last:
            return found
        again = self._axes.picked(tensor, self._maps).float()
        is_same = torch.allclose(again, last[MASKED_SCORES].float(), rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
        return found | last if is_same else last

    def _picked(self, tensor: Tensor, events: Sequence[Event]) -> Tensor:
        """Numbers with the shape of the scores before these events, [head query_pos key_pos]."""
        return self._axes.picked(arrange(events, tensor), self._maps).cpu()

    def _cells(self, tensor: Tensor, after: Sequence[Event]) -> Tensor:
        """What a call combines with the scores, [head query_pos key_pos]."""
        picked = self._picked(tensor.to(self._probe.device).expand(self._probe.shape), after)
        return picked if picked.dtype in (torch.bool, torch.float64) else picked.float()

    def _read(self, event: Event, after: Sequence[Event]) -> None:
        """Reads one call, and what follows it."""
        if event.kind == VIEW:
            self._probe = event.apply(self._probe)
        elif event.kind == EXP:
            self._after_exp = True
        elif event.kind == SCALE and self._stage == TANH:
            self._cap *= event.factor
        elif event.kind == SCALE:
            if event.factor != 1 and self._may(SCALE, event):
                self._scale *= event.factor
        elif event.kind == TANH and not self._is_capped:
            self._is_capped = self._may(TANH, event)
        elif event.kind == ADD and not self._after_exp:
            self._add(event, after)
        elif event.kind == MASK:
            cells, value = event.operand
            hidden = self._cells(cells.tensor.bool(), after)
            if value <= _FAR or (self._after_exp and value == 0):
                self._hide(hidden)
            elif bool(hidden.any()):
                self.reason = f"it writes {value:g} into scores ({event.where}), which hides no key"
        elif event.kind == GATE:
            zero = self._cells(event.operand.tensor == 0, after)
            if self._after_exp:
                self._hide(zero)
            else:
                self._gated.append(zero)
        elif event.kind != KEEP:
            self.reason = f"{event.name} changes its scores ({event.where})"

    def _may(self, kind: str, event: Event) -> bool:
        """Whether the formula has this kind of call after those that were read; otherwise that is the reason."""
        order = [*_STAGES]
        if order.index(kind) >= order.index(self._stage):
            self._stage = kind
            return True
        self.reason = (
            f"{UNDERSTOOD} {_STAGES[kind]} the scores after it {_STAGES[self._stage]} them ({event.where}), "
            "which is another order than the formula's"
        )
        return False

    def _add(self, event: Event, after: Sequence[Event]) -> None:
        """Reads what is added: numbers far below 0 hide keys, the others are a bias."""
        operand = operand_of(event, self._probe.device)
        added = self._cells(event.factor * (operand if operand.is_floating_point() else operand.float()), after)
        hidden = added <= _FAR
        hidden &= ~hidden.all(-1, keepdim=True)  # added to all keys, it hides none
        added = added.masked_fill(hidden, 0)
        if bool(added.any()) and self._may(ADD, event):
            self._bias = added if self._bias is None else self._bias + added
        if bool(hidden.any()):
            self._hide(hidden)

    def _hide(self, hidden: Tensor) -> None:
        self._stage = MASK
        self._hidden = hidden if self._hidden is None else self._hidden | hidden

    def _check(self) -> None:
        """Finds what only the end shows."""
        hidden = torch.zeros((), dtype=torch.bool) if self._hidden is None else self._hidden
        if any(bool((zero & ~hidden).any()) for zero in self._gated):
            self.reason = "it multiplies scores by 0"
        elif self._scale <= 0 or self._cap <= 0:
            self.reason = "it multiplies its scores by a number that is not positive"
