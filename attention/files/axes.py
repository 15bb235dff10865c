"""The axes of the arrays in a file: as they were read, in words; brought into our order by names that the user gives; and what looks otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from attention.base.errors import FileError
from attention.files.archives import Archive, Entry, format_shape, quote
from attention.formula.inline import expression
from attention.formula.names import KEY, QUERY, WEIGHTS
from attention.formula.steps import DECLARED, MAP_AXES, declared

if TYPE_CHECKING:
    from torch import Tensor

    from attention.files.given_mask import GivenMask
    from attention.files.stored_layers import Layout
    from attention.trace.layer import Layer

MAX_CHARACTERS = 200  # of the names that the user gives
_MAP, _BAND, _ROWS = (QUERY, KEY), (QUERY, "window"), ("pos", "width")
_BEFORE = ("layer", "batch", "head")
_AXIS = re.compile(r"([a-z]+)(?:=(\d{1,6}))?", re.ASCII)
_EXAMPLE = "“layer batch head query key”, “head key query”, “batch=0 pos head width”"
_WORDS = {"query_pos": QUERY, "key_pos": KEY, "kv_head": "head"}
_LISTED = 6  # arrays in the line about axes


class _Names(NamedTuple):
    """The names of the axes of some arrays, and the index that is taken of an axis, if it is not kept."""

    names: tuple[str, ...]
    taken: Mapping[str, int]

    @property
    def last(self) -> tuple[str, str]:
        """The two axes that decide which arrays are meant."""
        return next(pair for pair in (_MAP, _BAND, _ROWS) if set(pair) <= set(self.names))


def with_axes(archive: Archive, axes: str, name: str) -> Archive:
    """The archive with its arrays in the order [layer head query key], or [layer head pos width], by the names of their axes as they are stored.

    Args:
        archive: the contents of a file that is no export of the Lab.
        axes: the names in the order of the file, such as "layer batch head query key". Maps have query and key; query, key and value have pos
            and width, after a comma. batch=1 takes one sentence; window instead of key is a window around each query, as Longformer returns it.
        name: of the file.

    Raises:
        FileError: the names are no axes, or no array has them.
    """
    arrays = dict(archive.arrays)
    for part in axes.split(","):
        named = _parse(part)
        chosen = [key for key, entry in arrays.items() if _is_meant(key, entry, named, len(arrays) == 1)]
        if not chosen:
            listed = ", ".join(
                f"{quote(key)} {format_shape(entry.shape)}" for key, entry in [*arrays.items()][:_LISTED]
            )
            raise FileError(
                f"axes “{part.strip()}” names {len(named.names)} axes; {quote(name)} has {listed or 'no array'}: name every axis of one of these, in its order."
            )
        arrays |= {key: _in_order(arrays[key], named, quote(key) if key else quote(name)) for key in chosen}
    return replace(archive, arrays=arrays)


def _parse(part: str) -> _Names:
    matches = [_AXIS.fullmatch(word) for word in part.split()]
    names = tuple(match[1] for match in matches if match)
    taken = {match[1]: int(match[2]) for match in matches if match and match[2]}
    pairs = [pair for pair in (_MAP, _BAND, _ROWS) if set(names) - set(_BEFORE) == set(pair)]
    if len(names) != len(matches) or len(set(names)) != len(names) or not pairs or set(pairs[0]) & taken.keys():
        raise FileError(
            f"axes needs the names of the axes in their order, of layer, batch, head and query key (or query window, or pos width); got “{part.strip()[:60]}”: "
            f"write it as {_EXAMPLE}."
        )
    return _Names(names, taken)


def _is_meant(key: str, entry: Entry, named: _Names, alone: bool) -> bool:
    """Whether these are the axes of an array: of a map, or of rows such as those of Q."""
    if len(entry.shape) != len(named.names):
        return False
    if key not in DECLARED:
        return alone and named.last != _ROWS  # a single array without a known name is read as weights
    own = DECLARED[key].axes
    if named.last == _ROWS:
        return len(own) == 3 and own != MAP_AXES and own[1] in ("query_pos", "key_pos")
    return own[-2:] == MAP_AXES[-2:]


def _in_order(entry: Entry, named: _Names, label: str) -> Entry:
    """The array in our order; no number is loaded yet."""
    taken = dict(named.taken)
    for axis, length in zip(named.names, entry.shape, strict=True):
        if axis == "batch" and axis not in taken:
            if length > 1:
                raise FileError(f"{label} has {length:,} sentences on its axis batch: choose one, such as batch=0.")
            taken[axis] = 0
        if taken.get(axis, 0) >= length:
            raise FileError(
                f"{label} has {length:,} on its axis {axis}, counted from 0; got {axis}={taken[axis]}: choose one of them."
            )
    sizes = dict(zip(named.names, entry.shape, strict=True))
    kept = [axis for axis in named.names if axis not in taken]
    order = [axis for axis in ("layer", "head", *named.last) if axis in kept]
    view = _View(
        tuple(map(taken.get, named.names)),
        tuple(map(kept.index, order)),
        "layer" in order and "head" not in order,
        sizes.get(QUERY, 0),
        sizes.get("window", 0),
    )
    shape = tuple(sizes[axis] for axis in order)
    shape = (shape[0], 1, *shape[1:]) if view.adds_head else shape
    loaded = entry.shape
    if view.window:
        n, width = sizes[QUERY], view.window
        if width % 2 == 0:
            raise FileError(
                f"{label} has {width:,} columns on its axis window; a window has as many keys before a query as after it, and its own: "
                "save these columns alone, or name the axis key."
            )
        shape, loaded = (*shape[:-1], n), (*shape[:-1], n + width)
    return Entry(shape, entry.kind, lambda: view.apply(entry.load()), loaded, view.python("{}"))


class _View(NamedTuple):
    """How an array is brought into our order: indices that are taken, the order of the other axes, an axis for one head, the queries and the width of a window."""

    taken: tuple[int | None, ...]
    order: tuple[int, ...]
    adds_head: bool
    n: int
    window: int

    def apply(self, array: Tensor) -> Tensor:
        """The array in our order."""
        array = array[tuple(slice(None) if index is None else index for index in self.taken)].permute(self.order)
        array = array[:, None] if self.adds_head else array
        return unrolled(array, self.n, self.window) if self.window else array.contiguous()

    def python(self, array: str) -> str:
        """The same as Python."""
        if any(index is not None for index in self.taken):
            array += f"[{', '.join(':' if index is None else str(index) for index in self.taken)}]"
        if self.order != tuple(range(len(self.order))):
            array += f".permute({', '.join(map(str, self.order))})"
        array += "[:, None]" * self.adds_head
        return expression(unrolled, bands=array, n=str(self.n), width=str(self.window)) if self.window else array


def unrolled(bands: Tensor, n: int, width: int) -> Tensor:
    """The weights of a window around each of n queries, [… query window], at their keys, [… query key]; the middle column is the query's own key.

    Source: Beltagy et al. 2020, "Longformer", section 3.1.
    """
    import torch

    # Rows that are one cell shorter than n + width move each query's window one cell to the right.
    # fmt: off
    return torch.unflatten(torch.nn.functional.pad(bands, (0, n)).flatten(-2)[..., : n * (n + width - 1)], -1, (n, n + width - 1))[..., width // 2 : width // 2 + n]


# fmt: on
def axes_note(archive: Archive, layout: Layout, mask: GivenMask | None, named: str) -> str:
    """One line that says how the axes of the first arrays of a file were read, and how to read them otherwise."""
    read = []
    for step, place in layout.layers[0].places.items():
        axes: tuple[str, ...] = declared(step).axes
        if step == "mask" and mask is not None:
            axes = (mask.axes,)
        else:
            axes = ("layer",) * (place.layer is not None) + axes[place.lacks_head_axis :]
        shape = archive.arrays[place.entry].shape
        if len(shape) > 1 or step == "mask":
            read.append(f"{step} [{' '.join(_WORDS.get(axis, axis) for axis in axes)}] = {format_shape(shape)}")
    if not read:
        return ""
    listed = ", ".join(read[:_LISTED]) + (", …" if len(read) > _LISTED else "")
    otherwise = (
        f"by axes “{named}”"
        if named
        else "if they are others, name them in Axes (axes= in Python), such as “layer batch head query key”"
    )
    return f"The axes were read as {listed}; {otherwise}."


def looks_otherwise(archive: Archive, layout: Layout, layers: Sequence[Layer]) -> list[str]:
    """Sentences on recorded weights whose numbers say that their axes are others than those that were read.

    Weights of a key that sum to 1 over another axis; and the zeros of a window at both ends of a sequence.
    """
    pairs = [
        (stored.places[WEIGHTS], layer[WEIGHTS])
        for stored, layer in zip(layout.layers, layers, strict=True)
        if WEIGHTS in stored.places and layer.formula is None
    ]
    if not pairs:
        return []
    place, weights = pairs[0]
    names = ["layer"] * (place.layer is not None) + ["head", QUERY, KEY][place.lacks_head_axis :]
    tolerance = 0.01 if archive.arrays[place.entry].kind.low_precision else 1e-3

    def sums_to_1(axis: int) -> bool:
        return all(bool(((each.sum(axis) - 1).abs() <= tolerance).all()) for _, each in pairs)

    if not sums_to_1(-1):
        if sums_to_1(-2):
            return [
                f"In weights, every column sums to 1: the axes may be [{' '.join([*names[:-2], KEY, QUERY])}]; if so, write that in Axes."
            ]
        if not place.lacks_head_axis and sums_to_1(-3):
            sizes = weights.shape
            rest = [QUERY, "head"] if sizes[-2] == sizes[-3] != sizes[-1] else ["head", QUERY]
            return [
                f"In weights, every sum along the axis read as head is 1: the axes may be [{' '.join([*names[:-3], KEY, *rest])}]; if so, write that in Axes."
            ]
    n, width = weights.shape[-2:]
    if width % 2 and 1 < width <= n and all(_has_window(each) for _, each in pairs):
        return [
            f"The {width} columns have the zeros of a window around each query, as Longformer returns it: they may be no keys. "
            f"If so, write “{' '.join([*names[:-1], 'window'])}” in Axes."
        ]
    if width < n and "key_tokens" not in archive.metadata:
        advice = (
            f"write “{' '.join([*names[:-1], 'window'])}” in Axes"
            if width % 2
            else "save the columns of the window alone"
        )
        return [
            f"There are {width:,} keys for {n:,} queries; if the columns are those of a window, they are no keys: {advice}."
        ]
    return []


def _has_window(weights: Tensor) -> bool:
    """Whether exactly the cells of a window that are before the first key or after the last one are 0, in some head."""
    import torch

    n, width = weights.shape[-2:]
    keys = torch.arange(n)[:, None] + torch.arange(width)[None] - width // 2
    outside = (keys < 0) | (keys >= n)
    return not bool(weights[:, outside].any()) and bool((weights[:, ~outside] > 0).any(0).all())
