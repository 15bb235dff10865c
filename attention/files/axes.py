"""The axes of the arrays in a file: the names that the user gives, and how an array is brought into our order."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from attention.base.errors import FileError
from attention.formula.inline import expression
from attention.formula.names import KEY, QUERY

if TYPE_CHECKING:
    from torch import Tensor

MAX_CHARACTERS = 200  # of the names that the user gives
_MAP, _BAND, _ROWS = (QUERY, KEY), (QUERY, "window"), ("pos", "width")
_BEFORE = ("layer", "batch", "head")
_AXIS = re.compile(r"([a-z]+)(?:=(\d{1,6}))?", re.ASCII)
_EXAMPLE = "“layer batch head query key”, “head key query”, “batch=0 pos head width”"
_WORDS = {"query_pos": QUERY, "key_pos": KEY, "kv_head": "head"}


class _NamedAxes(NamedTuple):
    """The names that the user gives to the axes of some arrays, and the index that is taken of an axis, if it is not kept."""

    names: tuple[str, ...]
    taken: Mapping[str, int]
    text: str

    def of(self, ours: tuple[str, ...], n_axes: int) -> tuple[str, ...] | None:
        """The names for an array of a step with these axes, in words; None if another array is meant."""
        last = next(pair for pair in (_MAP, _BAND, _ROWS) if set(pair) <= set(self.names))
        is_rows = len(ours) == 3 and ours[-1] != KEY and ours[1] in (QUERY, KEY)
        if len(self.names) != n_axes or not (is_rows if last == _ROWS else ours[-2:] == _MAP):
            return None
        return tuple(dict(zip(_ROWS, ours[-2:], strict=True)).get(name, name) for name in self.names)


def parse_axes(axes: str) -> tuple[_NamedAxes, ...]:
    """The names that the user gives, such as "layer batch head query key"; those of other arrays come after a comma.

    Maps have query and key; query, key and value have pos and width. batch=1 takes one sentence; window instead of key is a window around
    each query, as Longformer returns it.

    Raises:
        FileError: the names are no axes.
    """
    return tuple(map(_parse, axes.split(","))) if axes else ()


def _parse(part: str) -> _NamedAxes:
    matches = [_AXIS.fullmatch(word) for word in part.split()]
    names = tuple(match[1] for match in matches if match)
    taken = {match[1]: int(match[2]) for match in matches if match and match[2]}
    pairs = [pair for pair in (_MAP, _BAND, _ROWS) if set(names) - set(_BEFORE) == set(pair)]
    if len(names) != len(matches) or len(set(names)) != len(names) or not pairs or set(pairs[0]) & taken.keys():
        raise FileError(
            f"axes needs the names of the axes in their order, of layer, batch, head and query key (or query window, or pos width); got “{part.strip()[:60]}”: "
            f"write it as {_EXAMPLE}."
        )
    return _NamedAxes(names, taken, part.strip())


def in_words(axes: tuple[str, ...]) -> tuple[str, ...]:
    """Our axes as people type them: query, key, head."""
    return tuple(_WORDS.get(axis, axis) for axis in axes)


class View(NamedTuple):
    """How one layer of an array is brought into our order.

    Attributes:
        taken: what is taken of each axis: one of it, a range, or all (None).
        order: of the axes that remain.
        adds_head: whether an axis for the only head is added.
        n: the number of queries, where the last axis is a window.
        window: its width, or 0.
    """

    taken: tuple[int | slice | None, ...]
    order: tuple[int, ...]
    adds_head: bool = False
    n: int = 0
    window: int = 0

    @classmethod
    def of(
        cls,
        names: tuple[str, ...],
        shape: tuple[int, ...],
        taken: Mapping[str, int | slice],
        ours: tuple[str, ...],
        label: str,
    ) -> View:
        """The view of an array whose axes have these names, as the axes `own`, both in words.

        Raises:
            FileError: an index is not in the array, or a window has no middle.
        """
        sizes = dict(zip(names, shape, strict=True))
        for axis, at in taken.items():
            if isinstance(at, int) and at >= sizes.get(axis, at + 1):
                raise FileError(
                    f"{label} has {sizes[axis]:,} on its axis {axis}, counted from 0; got {axis}={at}: choose one of them."
                )
        remaining = [axis for axis in names if not isinstance(taken.get(axis), int)]
        width = sizes.get("window", 0)
        if width and width % 2 == 0:
            raise FileError(
                f"{label} has {width:,} columns on its axis window; a window has as many keys before a query as after it, and its own: "
                "save these columns alone, or name the axis key."
            )
        order = [axis for axis in (*ours[:-1], "window" if width else ours[-1]) if axis in remaining]
        index = tuple(taken.get(axis) for axis in names)
        return cls(
            index, tuple(map(remaining.index, order)), ours[0] == "head" not in remaining, sizes.get(QUERY, 0), width
        )

    def shape(self, stored: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the layer, of the shape as stored."""
        remaining = [
            len(range(*index.indices(size))) if isinstance(index, slice) else size
            for index, size in zip(self.taken, stored, strict=True)
            if not isinstance(index, int)
        ]
        shape = tuple(remaining[axis] for axis in self.order)
        return (1,) * self.adds_head + ((*shape[:-1], self.n) if self.window else shape)

    def apply(self, array: Tensor) -> Tensor:
        """The layer in our order; a copy, since a view would keep all layers in memory."""
        array = array[tuple(slice(None) if index is None else index for index in self.taken)].permute(self.order)
        array = array[None] if self.adds_head else array
        if self.window:
            return _unrolled(array, self.n, self.window)
        return array.clone() if any(index is not None for index in self.taken) else array.contiguous()

    def python(self, array: str) -> str:
        """The same as Python."""
        taken = list(self.taken)
        while taken and taken[-1] is None:
            taken.pop()
        if taken:
            array += f"[{', '.join(_python_index(index) for index in taken)}]"
        if self.order != tuple(range(len(self.order))):
            array += f".permute({', '.join(map(str, self.order))})"
        array += "[None]" * self.adds_head
        return expression(_unrolled, bands=array, n=str(self.n), width=str(self.window)) if self.window else array


def _python_index(index: int | slice | None) -> str:
    return ":" if index is None else str(index) if isinstance(index, int) else f"{index.start} : {index.stop}"


def _unrolled(bands: Tensor, n: int, width: int) -> Tensor:
    """The weights of a window around each of n queries, [… query window], at their keys, [… query key]; the middle column is the query's own key.

    Source: Beltagy et al. 2020, "Longformer", section 3.1.
    """
    import torch

    # Rows that are one cell shorter than n + width move each query's window one cell to the right.
    # fmt: off
    return torch.unflatten(torch.nn.functional.pad(bands, (0, n)).flatten(-2)[..., : n * (n + width - 1)], -1, (n, n + width - 1))[..., width // 2 : width // 2 + n]
