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
from attention.formula.names import (
    DROPPED_WEIGHTS,
    HEAD_OUTPUT,
    INPUT,
    KEY,
    MASKED_SCORES,
    MEMORY,
    OUTPUT,
    QUERY,
    VALUE,
    WEIGHTS,
)
from attention.formula.steps import is_step
from attention.recording.axes import (
    Axes,
    Factor,
    Maps,
    Mixing,
    Projected,
    UnclearError,
    batches,
    read_maps,
    read_mixing,
    read_projection,
    varying,
)
from attention.recording.calls import Call
from attention.recording.layers import checked, plain
from attention.recording.products import Multiplication, Spec, factor, positions
from attention.recording.score_calls import UNDERSTOOD, ScoreCalls
from attention.recording.trails import (
    ADD,
    DROPOUT,
    EXP,
    HERE,
    KEEP,
    VIEW,
    Event,
    Heads,
    Normalized,
    Product,
    Trail,
    arrange,
    run,
)

_TOLERANCE = 1e-3  # relative to the largest number
_HALF = (torch.bfloat16, torch.float16)
_PROVENANCE = {
    INPUT: "The input of the projection, as the module received it.",
    MEMORY: "The input of the projection of keys and values, as the module received it.",
    QUERY: "The query as it enters the product: what the code does to it before is not recorded.",
    KEY: "The key as it enters the product: what the code does to it before is not recorded.",
    VALUE: "The value as it enters the product: what the code does to it before is not recorded.",
}
_LEARNED = "A learned query: a parameter of the module, the same for every input."


class Found(NamedTuple):
    """What the follower found of one attention.

    Attributes:
        normalized: what the softmax gave; without numbers where torch does all in one call.
        after: the calls from the weights to the product with the values.
        mixing: that product.
        side: which of its factors the weights are, 0 or 1.
        value: the trail of the values.
        result: what the product gave.
        has_weights: whether the weights of `normalized` are numbers, not a shape alone.
    """

    normalized: Normalized
    after: tuple[Event, ...]
    mixing: Multiplication
    side: int
    value: Trail | None
    result: Tensor
    has_weights: bool = True

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

    Args:
        found: what was found.
        name: of the call.
        batch: the element; the last one where there are fewer.
        sizes: how many elements the batch may have, the likeliest first.
        notes: what else is to be said of it.

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
            events = (Event(ADD, torch.add, (HERE, product.bias), operand=product.bias), *events)
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
        calls = ScoreCalls(product, events, axes, chosen, scale)
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
    if reason.startswith(UNDERSTOOD):
        more = {step: f"As recorded: {reason}." for step in (MASKED_SCORES, DROPPED_WEIGHTS) if step in steps}
        return replace(call, provenance=dict(call.provenance) | more)
    return replace(call, notes=(*call.notes, f"{reason}: its steps are shown as recorded")) if reason else call


def with_output(call: Call, heads: Heads, trail: Trail, product: Multiplication, result: Tensor) -> Call:
    """The call with W_O and the output, if the product is that of the concatenated heads with a matrix."""
    spec, shape = product.spec, heads.shape
    if spec.shared or {event.kind for event in trail.events} - {VIEW, KEEP}:
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
    steps = {**call.steps, "w_o": w.T[column[:, 0]], OUTPUT: output[None].detach().cpu().clone()}
    if product.added is not None:
        steps["b_o"] = product.added.detach().cpu().flatten().clone()
    return replace(call, steps=steps)


def _copies(steps: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors on the CPU; those of steps with an axis for the batch."""
    copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in steps.items()}
    return {name: copy[None] if is_step(name) else copy for name, copy in copies.items()}


def _provenance(steps: dict[str, Tensor], sides: dict[str, _Side]) -> dict[str, str]:
    """Where Q, K and V come from, if not from a projection that is recorded."""
    texts = {step: text for step, text in _PROVENANCE.items() if step in (INPUT, MEMORY) or f"w_{step[0]}" not in steps}
    if QUERY in sides and sides[QUERY].is_learned:
        texts[QUERY] = _LEARNED
    return {step: text for step, text in texts.items() if step in steps}


def _of_one_value(found: Found, index: Tensor, batch: int) -> tuple[Found, Tensor, int]:
    """Values of a batch that all have the same weights: one element of them, of the result and of an index of it; and how many there are."""
    spec, side = found.mixing.spec, found.side
    value, trail, result, size = found.values, found.value, found.result, 1
    first = min((spec.out.index(letter) for letter in spec.only(side)), default=len(spec.out))
    for letter in spec.only(1 - side)[:-1]:
        if spec.out.index(letter) > first:
            continue  # of heads or features, which stand after the queries
        axis = spec[1 - side].index(letter)
        element = min(batch, value.shape[axis] - 1)
        size *= value.shape[axis]
        picks = Event(VIEW, torch.select, (HERE, axis, element))
        value, trail = picks.apply(value), trail and trail.then(picks)
        result, index = (each.select(spec.out.index(letter), element) for each in (result, index))
        spec = Spec(*(each.replace(letter, "") for each in spec))
    left, right = (found.used, value) if side == 0 else (value, found.used)
    mixing = found.mixing._replace(spec=spec, left=left, right=right)
    return found._replace(mixing=mixing, value=trail, result=result), index, size


# -- Q, K and V ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Side:
    """Q, K or V.

    Attributes:
        factor: as it enters its product.
        shared: the index along the axes that both factors have, [map pos]; `row` that of the row.
        projected: the projection that made it.
        is_learned: whether it is a parameter.
    """

    factor: Factor
    shared: Tensor
    row: Tensor
    projected: Projected | None
    is_learned: bool = False

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
    changes = [event for event in found.after if event.kind not in (VIEW, KEEP)]
    if changes and {event.kind for event in changes} == {DROPOUT}:
        remaining = math.prod(1 - event.factor for event in changes)
        is_left = (used != 0) | (weights == 0)
        steps["dropout_mask"] = is_left.float() / remaining if remaining else torch.zeros(used.shape)
        return ""
    steps[DROPPED_WEIGHTS] = used
    calls = ", ".join(dict.fromkeys(f"{event.name} ({event.where})" for event in changes)) or "what is not followed"
    return f"{UNDERSTOOD} changes the weights before they multiply the values, by {calls}"


def _exact(
    product: Product, events: Sequence[Event], sides: dict[str, _Side], axes: Axes, maps: Tensor
) -> Tensor | None:
    """The weights of the code's own calls in float32, which tell one formula from another where half precision is too coarse."""
    if any(event.kind == EXP for event in events):
        return None
    query, key = (sides[name].factor for name in (QUERY, KEY))
    factors = [each.tensor.float() * each.scale for each in (query, key)]
    scores = product.spec.multiply(*(factors if query.side == 0 else factors[::-1]))
    return axes.picked(run(events, scores, torch.float32), maps).softmax(-1).cpu()
