"""One attention as the follower found it, by our names: its steps, and the formula if the code has its steps in our order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from attention.files.read_layers import is_projection
from attention.formula.dropout import ProvidedDropout
from attention.formula.formula import Formula
from attention.formula.mask import Mask, detect_mask
from attention.formula.names import (
    BIASED_SCORES,
    CAPPED_SCORES,
    DROPPED_WEIGHTS,
    HEAD_OUTPUT,
    INPUT,
    KEY,
    MASKED_SCORES,
    MEMORY,
    OUTPUT,
    QUERY,
    SCALED_SCORES,
    SCORES,
    VALUE,
    WEIGHTS,
)
from attention.recording.axes import (
    Axes,
    Factor,
    Maps,
    Mixing,
    Projected,
    UnclearError,
    batches,
    operand_of,
    read_maps,
    read_mixing,
    read_projection,
    varying,
)
from attention.recording.layers import Call, checked, plain
from attention.recording.trails import (
    HERE,
    Event,
    Heads,
    Kind,
    Multiplication,
    Normalized,
    Product,
    Spec,
    Trail,
    arrange,
    factor,
    positions,
    run,
)

_UNDERSTOOD = "the code"  # how a reason begins that needs no note, since all that happens is shown
_FAR = -5000.0  # what is written or added this far below 0 hides a key: its weight is exactly 0
_ROOT = 1e-6  # how far a divisor may be from √d_k, as float32 rounds
# In the order of the formula.
_STAGES = {Kind.SCALE: "scales", Kind.TANH: "caps", Kind.ADD: "adds to", Kind.MASK: "masks"}
_MAPS = {Kind.SCALE: SCALED_SCORES, Kind.TANH: CAPPED_SCORES, Kind.ADD: BIASED_SCORES, Kind.MASK: MASKED_SCORES}
_TOLERANCE = 1e-3  # relative to the largest number
_HALF = (torch.bfloat16, torch.float16)
_PROVENANCE = {
    INPUT: "The input of the projection, as the module received it.",
    MEMORY: "The input of the projection of keys and values, as the module received it.",
}
_PROVENANCE |= {
    step: f"The {step} as it enters the product: what the code does to it before is not recorded."
    for step in (QUERY, KEY, VALUE)
}
_LEARNED = "A learned query: a parameter of the module, the same for every input."


class Found(NamedTuple):
    """What the follower found of one attention."""

    normalized: Normalized  # what the softmax gave; without numbers where torch does all in one call
    after: tuple[Event, ...]  # the calls from the weights to the product with the values
    mixing: Multiplication  # that product
    side: int  # which of its factors the weights are, 0 or 1
    value: Trail | None  # the trail of the values
    result: Tensor  # what the product gave
    has_weights: bool = True  # whether the weights of `normalized` are numbers, not a shape alone

    @property
    def values(self) -> Tensor:
        """The factor of the values."""
        return self.mixing.right if self.side == 0 else self.mixing.left

    @property
    def used(self) -> Tensor:
        """The factor of the weights, as it multiplies the values."""
        return self.mixing.left if self.side == 0 else self.mixing.right


def read(found: Found, name: str, batch: int, sizes: Sequence[int], notes: Sequence[str] = ()) -> tuple[Call, Tensor]:
    """The call that was found, with the steps of one element of its batch, and where its head outputs stand in the result, [head query_pos d_v].

    The element is the last one where there are fewer; `sizes` are how many there may be, the likeliest first. `notes` are said too.

    Raises:
        UnclearError: the axes are not those of an attention; the message says why.
    """
    index = torch.arange(found.result.numel(), device=found.result.device).view(found.result.shape)
    found, index, n_values = _of_one_value(found, index, batch)
    normalized = found.normalized
    product, events = normalized.before.origin, normalized.before.events
    shape, maps = tuple(normalized.weights.tensor.shape), None
    if isinstance(product, Product):
        if _runs_over_features(product, events, normalized.axis):
            raise UnclearError("its softmax runs over the features of a projection, not over keys")
        if product.bias is not None:
            events = (Event(Kind.ADD, torch.add, (HERE, product.bias), operand=product.bias), *events)
        maps = read_maps(product, events, shape, normalized.axis)
    axes = _axes_of_weights(found) if maps is None else maps.axes
    mixing = read_mixing(axes, found.after, found.mixing, found.side)
    sides = _sides(maps, product, mixing, found)
    order = batches(axes.lead, [side.beginnings for side in sides.values() if side.projected is not None], sizes)
    chosen = order[min(batch, len(order) - 1)]
    steps = {step: side.pick(side.factor.tensor, chosen) for step, side in sides.items()}
    steps |= _projections(sides, steps, chosen)
    steps[HEAD_OUTPUT] = mixing.output(found.result, chosen)
    calls, formula, reason = None, None, normalized.unknown or "what its softmax was made of is not followed"
    if isinstance(product, Product) and maps is not None:
        scale = sides[QUERY].factor.scale * sides[KEY].factor.scale
        calls = _ScoreCalls(product, events, axes, chosen, scale)
        reason = normalized.unknown or calls.reason
        if not reason:
            formula = calls.formula(normalized.normalizer, steps[QUERY].shape[-1])
            steps |= calls.tensors
    if found.has_weights:
        steps[WEIGHTS] = axes.picked(normalized.weights.tensor, chosen)
        change = _after_softmax(found, mixing, chosen, steps)
        if formula is not None and "dropout_mask" in steps:
            formula = replace(formula, dropping=ProvidedDropout())
        if formula is not None and change:
            formula, reason = None, change
    if any(bool(steps[each].isnan().any()) for each in (WEIGHTS, HEAD_OUTPUT) if each in steps):
        notes = [*notes, "a query that sees no key has NaN in the code, and 0 here"]
        steps |= {each: steps[each].nan_to_num(0) for each in (WEIGHTS, DROPPED_WEIGHTS, HEAD_OUTPUT) if each in steps}
    exact = None
    if formula is not None and found.has_weights and isinstance(product, Product) and product.dtype in _HALF:
        exact = _exact(product, events, sides, axes, chosen)
    steps = _with_shared_heads(steps, sides, chosen)
    call = Call(
        name,
        normalized.where,
        _copies(steps),
        formula,
        tuple(notes),
        _provenance(steps, sides),
        max(len(order), n_values),
    )
    call = checked(call, exact)
    if call.formula is None:
        scores = None if normalized.scores is None else normalized.scores.tensor
        maps_of_calls = calls.maps(scores) if calls is not None else {}
        if scores is not None:
            maps_of_calls.setdefault(MASKED_SCORES, axes.picked(scores, chosen))
        call = _as_recorded(call, steps | maps_of_calls, reason if formula is None else "")
    return call, mixing.output(index, chosen).cpu()


def _as_recorded(call: Call, steps: dict[str, Tensor], reason: str) -> Call:
    """The call with its maps, and why it has no formula: beside them if all that happens is shown, as a note if not."""
    call = replace(call, steps=_copies(steps))
    if reason.startswith(_UNDERSTOOD):
        more = {step: f"As recorded: {reason}." for step in (MASKED_SCORES, DROPPED_WEIGHTS) if step in steps}
        return replace(call, provenance=dict(call.provenance) | more)
    return replace(call, notes=(*call.notes, f"{reason}: its steps are shown as recorded")) if reason else call


def with_output(call: Call, heads: Heads, trail: Trail, product: Multiplication, result: Tensor) -> Call:
    """The call with W_O and the output, if the product is that of the concatenated heads with a matrix."""
    spec, shape = product.spec, heads.shape
    if spec.shared or {event.kind for event in trail.events} - {Kind.VIEW, Kind.KEEP}:
        return call
    sizes = spec.sizes(product.left, product.right)
    index = arrange(trail.events, torch.arange(math.prod(shape)).view(shape))
    if index.shape != product.left.shape:
        return call
    index = factor(index, spec.left, (spec.only(0), spec.summed), sizes)
    place = torch.full((math.prod(shape),), -1)
    place[index.flatten()] = torch.arange(index.numel())
    found = place[heads.places]
    row, column = found // index.shape[1], found % index.shape[1]
    w = factor(product.right, spec.right, (spec.only(1), spec.summed), sizes).detach().cpu()
    is_one_row_each = bool((row == row[:1, :, :1]).all()) and bool((column == column[:, :1]).all())
    # The output is that of these heads alone.
    if bool((found < 0).any()) or not is_one_row_each or column[:, 0].numel() != w.shape[1]:
        return call
    output = factor(result, spec.out, (spec.only(0), spec.only(1)), sizes)[row[0, :, 0].to(result.device)]
    steps = {**call.steps, "w_o": w.T[column[:, 0]], OUTPUT: output.detach().cpu().clone()}
    if product.added is not None:
        steps["b_o"] = product.added.detach().cpu().flatten().clone()
    return replace(call, steps=steps)


def _copies(steps: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in steps.items()}


def _provenance(steps: dict[str, Tensor], sides: dict[str, _Side]) -> dict[str, str]:
    texts = {step: text for step, text in _PROVENANCE.items() if step in (INPUT, MEMORY) or f"w_{step[0]}" not in steps}
    if QUERY in sides and sides[QUERY].is_learned:
        texts[QUERY] = _LEARNED
    return {step: text for step, text in texts.items() if step in steps}


def _of_one_value(found: Found, index: Tensor, batch: int) -> tuple[Found, Tensor, int]:
    """One element of values of a batch that all have the same weights, of the result and of an index of it; and how many there are."""
    spec, side = found.mixing.spec, found.side
    value, trail, result, size = found.values, found.value, found.result, 1
    first = min((spec.out.index(letter) for letter in spec.only(side)), default=len(spec.out))
    for letter in spec.only(1 - side)[:-1]:
        if spec.out.index(letter) > first:
            continue  # of heads or features, which stand after the queries
        axis = spec[1 - side].index(letter)
        element = min(batch, value.shape[axis] - 1)
        size *= value.shape[axis]
        picks = Event(Kind.VIEW, torch.select, (HERE, axis, element))
        value, trail = picks.apply(value), trail and trail.then(picks)
        result, index = (each.select(spec.out.index(letter), element) for each in (result, index))
        spec = Spec(*(each.replace(letter, "") for each in spec))
    left, right = (found.used, value) if side == 0 else (value, found.used)
    mixing = found.mixing._replace(spec=spec, left=left, right=right)
    return found._replace(mixing=mixing, value=trail, result=result), index, size


# -- Q, K and V ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Side:
    """Q, K or V."""

    factor: Factor  # as it enters its product
    shared: Tensor  # the index along the axes that both factors have, [map pos]
    row: Tensor  # the index of the row, [map pos]
    projected: Projected | None
    is_learned: bool = False  # a parameter

    def pick(self, tensor: Tensor, maps: Tensor) -> Tensor:
        """Numbers with the axes of the factor, as [map pos d]."""
        return self.factor.arranged(tensor)[self.shared[maps], self.row[maps]]

    @property
    def beginnings(self) -> tuple[Tensor, Tensor]:
        """The row of the input and the feature with which each map begins."""
        assert self.projected is not None
        first = (self.shared[:, 0], self.row[:, 0], 0)
        row, feature = (
            self.factor.arranged(each)[first].cpu().long() for each in (self.projected.row, self.projected.feature)
        )
        return row, feature


def _sides(maps: Maps | None, product: object, mixing: Mixing, found: Found) -> dict[str, _Side]:
    """Q and K, if they are known, and V."""
    sides: dict[str, _Side] = {}
    if maps is not None and isinstance(product, Product):
        spec, tensors = product.spec, (product.left.tensor, product.right.tensor)
        sizes, trails = spec.sizes(*tensors), (product.left_trail, product.right_trail)
        rows = {
            QUERY: (maps.side, maps.shared, maps.query),
            KEY: (1 - maps.side, maps.shared[:, :1].expand(maps.key.shape), maps.key),
        }
        for name, (side, shared, row) in rows.items():
            of = Factor.of(tensors[side], trails[side], spec, side, sizes)
            is_learned = product.is_projection and product.matrix == side
            sides[name] = _Side(of, shared, row, read_projection(of), is_learned)
    spec, side, n_keys = mixing.spec, 1 - found.side, mixing.sizes[mixing.spec.summed]
    value = Factor(
        found.values, found.value, 1.0, spec[side], (spec.shared, spec.summed, spec.only(side)), mixing.sizes
    )
    keys = torch.arange(n_keys).expand(len(mixing.shared), -1)
    sides[VALUE] = _Side(value, mixing.shared[:, :1].expand(-1, n_keys), keys, read_projection(value))
    return sides


def _projections(sides: dict[str, _Side], steps: dict[str, Tensor], maps: Tensor) -> dict[str, Tensor]:
    """X, X₂, and W and b of Q, K and V where these are their projection."""
    found: dict[str, Tensor] = {}
    for name, side in sides.items():
        linear = _linear(side, steps[name], maps)
        if linear is None:
            continue
        x, w, b = linear
        place = INPUT if name == QUERY else _place(name, x, found, sides, steps)
        if place and (place not in found or _is_same(x, found[place])):
            found |= {place: x, f"w_{name[0]}": w} | ({} if b is None else {f"b_{name[0]}": b})
    return found


def _place(name: str, x: Tensor, found: dict[str, Tensor], sides: dict[str, _Side], steps: dict[str, Tensor]) -> str:
    """Which step the input of keys or values is; empty: none, since keys and values of one layer have one input."""
    if INPUT in found:
        place = INPUT if _is_same(x, found[INPUT]) else MEMORY
    else:  # the query is rotated, or learned
        is_self = steps.get(QUERY, steps[VALUE]).shape[1] == len(x) and not (QUERY in sides and sides[QUERY].is_learned)
        place = INPUT if is_self else MEMORY
    has_one_input = "w_k" not in found or (place == MEMORY) == (MEMORY in found)
    return place if name == KEY or has_one_input else ""


def _linear(side: _Side, recorded: Tensor, maps: Tensor) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """X [pos d_model], W [head d_model d_k] and b [head d_k] that give a recorded step; None if it is no projection, head by head."""
    made = side.projected
    if made is None:
        return None
    rows, features = (side.pick(each, maps).cpu().long() for each in (made.row, made.feature))
    bias = None if made.bias is None else side.pick(made.bias, maps)
    one_input = bool((rows == rows[:1, :, :1]).all()) and bool((features == features[:, :1]).all())
    if not one_input or (bias is not None and bool((bias != bias[:, :1]).any())):
        return None
    x = made.inputs[rows[0, :, 0].to(made.inputs.device)]
    w = made.weights[features[:, 0].to(made.weights.device)].transpose(1, 2)
    b = None if bias is None else bias[:, 0]
    tolerance = max(_TOLERANCE, 8 * torch.finfo(recorded.dtype).eps)
    is_exact = is_projection(plain(x), plain(w), None if b is None else plain(b), plain(recorded), tolerance)
    return (x, w, b) if is_exact else None


def _is_same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _with_shared_heads(steps: dict[str, Tensor], sides: dict[str, _Side], maps: Tensor) -> dict[str, Tensor]:
    """The steps with one key and value for each group of query heads that share them."""
    if KEY not in steps:
        return steps
    compared = [steps[KEY], steps[VALUE]]
    compared += [
        side.pick(side.projected.feature, maps) for name, side in sides.items() if name != QUERY and side.projected
    ]
    for size in range(len(maps), 1, -1):
        if len(maps) % size:
            continue
        groups = [tensor.view(-1, size, *tensor.shape[1:]) for tensor in compared]
        if all(torch.equal(group, group[:, :1].expand_as(group)) for group in groups):
            names = [each for each in (KEY, VALUE, "w_k", "w_v", "b_k", "b_v") if each in steps]
            return steps | {each: steps[each][::size] for each in names}
    return steps


# -- scores and weights ---------------------------------------------------------------------------------


class _ScoreCalls:
    """What the calls from a product to a softmax do; `scale` is by what the code multiplied queries and keys before.

    It is the formula, or there is a reason why not, in words, and the maps as they were.
    """

    def __init__(self, product: Product, events: Sequence[Event], axes: Axes, maps: Tensor, scale: float) -> None:
        self.reason = ""
        self.tensors: dict[str, Tensor] = {}  # mask and bias of the formula, once it was made
        self._product, self._events, self._axes, self._maps = product, events, axes, maps
        self._scale, self._cap = scale, 1.0
        self._is_capped, self._after_exp = False, False
        self._stage = Kind.SCALE
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
        """The map after each kind of call, [head query_pos key_pos], as far as the calls give `scores`, the input of the softmax, when they run again."""
        last = {} if scores is None else {MASKED_SCORES: self._axes.picked(scores, self._maps)}
        if {event.kind for event in self._events} & {Kind.DROPOUT, Kind.MIXED, Kind.EXP}:
            return last
        tensor, found, done = self._product.compute(), dict[str, Tensor](), -1
        found[SCORES] = self._picked(tensor, self._events)
        for index, event in enumerate(self._events):
            tensor = run((event,), tensor)
            rank = [*_MAPS].index(event.kind) if event.kind in _MAPS else -1
            if rank >= done and rank >= 0 and done < len(_MAPS):
                done = rank
                found[_MAPS[event.kind]] = self._picked(tensor, self._events[index + 1 :])
            elif event.kind not in (Kind.VIEW, Kind.KEEP):
                done = len(_MAPS)  # what follows has no name of ours
        if not last:
            return found
        again = self._axes.picked(tensor, self._maps).float()
        is_same = torch.allclose(again, last[MASKED_SCORES].float(), rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
        return found | last if is_same else last

    def _picked(self, tensor: Tensor, events: Sequence[Event]) -> Tensor:
        return self._axes.picked(arrange(events, tensor), self._maps).cpu()

    def _cells(self, tensor: Tensor, after: Sequence[Event]) -> Tensor:
        """What a call combines with the scores, [head query_pos key_pos]."""
        picked = self._picked(tensor.to(self._probe.device).expand(self._probe.shape), after)
        return picked if picked.dtype in (torch.bool, torch.float64) else picked.float()

    def _read(self, event: Event, after: Sequence[Event]) -> None:
        if event.kind == Kind.VIEW:
            self._probe = event.apply(self._probe)
        elif event.kind == Kind.EXP:
            self._after_exp = True
        elif event.kind == Kind.SCALE and self._stage == Kind.TANH:
            self._cap *= event.factor
        elif event.kind == Kind.SCALE:
            if event.factor != 1 and self._may(Kind.SCALE, event):
                self._scale *= event.factor
        elif event.kind == Kind.TANH and not self._is_capped:
            self._is_capped = self._may(Kind.TANH, event)
        elif event.kind == Kind.ADD and not self._after_exp:
            self._add(event, after)
        elif event.kind == Kind.MASK:
            cells, value = event.operand
            hidden = self._cells(cells.tensor.bool(), after)
            if value <= _FAR or (self._after_exp and value == 0):
                self._hide(hidden)
            elif bool(hidden.any()):
                self.reason = f"it writes {value:g} into scores ({event.where}), which hides no key"
        elif event.kind == Kind.GATE:
            zero = self._cells(event.operand.tensor == 0, after)
            if self._after_exp:
                self._hide(zero)
            else:
                self._gated.append(zero)
        elif event.kind != Kind.KEEP:
            self.reason = f"{event.name} changes its scores ({event.where})"

    def _may(self, kind: Kind, event: Event) -> bool:
        """Whether the formula has this kind of call after those that were read; otherwise that is the reason."""
        order = [*_STAGES]
        if order.index(kind) >= order.index(self._stage):
            self._stage = kind
            return True
        self.reason = (
            f"{_UNDERSTOOD} {_STAGES[kind]} the scores after it {_STAGES[self._stage]} them ({event.where}), "
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
        if bool(added.any()) and self._may(Kind.ADD, event):
            self._bias = added if self._bias is None else self._bias + added
        if bool(hidden.any()):
            self._hide(hidden)

    def _hide(self, hidden: Tensor) -> None:
        self._stage = Kind.MASK
        self._hidden = hidden if self._hidden is None else self._hidden | hidden

    def _check(self) -> None:
        hidden = torch.zeros((), dtype=torch.bool) if self._hidden is None else self._hidden
        if any(bool((zero & ~hidden).any()) for zero in self._gated):
            self.reason = "it multiplies scores by 0"
        elif self._scale <= 0 or self._cap <= 0:
            self.reason = "it multiplies its scores by a number that is not positive"


def _runs_over_features(product: Product, events: Sequence[Event], axis: int) -> bool:
    """Whether the axis of a softmax is that of the features of a projection, as in a router or in linear attention."""
    if not product.is_projection:
        return False
    spec, sizes = product.spec, product.spec.sizes(product.left.tensor, product.right.tensor)
    index = positions(spec.out, spec.only(product.matrix), sizes, product.left.tensor.device)
    return axis in varying(arrange(events, index))


def _axes_of_weights(found: Found) -> Axes:
    """The axes of a map whose product of queries and keys is not known: its queries are where its product with the values has them."""
    shape, key = tuple(found.normalized.weights.tensor.shape), found.normalized.axis
    spec, side = found.mixing.spec, found.side
    rows = {spec[side].index(letter) for letter in spec.only(side)}
    letters = "".join(chr(ord("a") + axis) for axis in range(len(shape)))
    sizes = dict(zip(letters, shape, strict=True))
    for axis in reversed(range(len(shape))):
        if axis != key and rows & {
            *varying(arrange(found.after, positions(letters, letters[axis], sizes, found.result.device)))
        }:
            return Axes(shape, axis, key)
    ones = [axis for axis, size in enumerate(shape) if size == 1 and axis != key]
    return Axes(shape, ones[-1] if ones else None, key)


def _after_softmax(found: Found, mixing: Mixing, maps: Tensor, steps: dict[str, Tensor]) -> str:
    """Adds what the code does to the weights before they multiply the values to the steps: `dropout_mask`, or the changed weights and why; or nothing."""
    used, weights = mixing.weights(found.used, maps), steps[WEIGHTS]
    if torch.equal(used.nan_to_num(), weights.nan_to_num().to(used.dtype)):
        return ""
    changes = [event for event in found.after if event.kind not in (Kind.VIEW, Kind.KEEP)]
    if changes and {event.kind for event in changes} == {Kind.DROPOUT}:
        remaining = math.prod(1 - event.factor for event in changes)
        is_left = (used != 0) | (weights == 0)
        steps["dropout_mask"] = is_left.float() / remaining if remaining else torch.zeros(used.shape)
        return ""
    steps[DROPPED_WEIGHTS] = used
    calls = ", ".join(dict.fromkeys(f"{event.name} ({event.where})" for event in changes)) or "what is not followed"
    return f"{_UNDERSTOOD} changes the weights before they multiply the values, by {calls}"


def _exact(
    product: Product, events: Sequence[Event], sides: dict[str, _Side], axes: Axes, maps: Tensor
) -> Tensor | None:
    """The weights of the code's own calls in float32, which tell one formula from another where half precision is too coarse."""
    if any(event.kind == Kind.EXP for event in events):
        return None
    query, key = (sides[name].factor for name in (QUERY, KEY))
    factors = [each.tensor.float() * each.scale for each in (query, key)]
    scores = product.spec.multiply(*(factors if query.side == 0 else factors[::-1]))
    return axes.picked(run(events, scores, torch.float32), maps).softmax(-1).cpu()
