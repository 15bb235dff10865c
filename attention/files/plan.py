"""The plan of a file: where each tensor of a layer is stored, what each array is and how its axes are read, what is not used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from attention.base.errors import AxesError, FileError
from attention.files.archives import Archive, format_shape, quote
from attention.files.stored_names import HEAD, AxisTokens
from attention.files.user_tensors import join_steps
from attention.formula.formula import Formula
from attention.formula.inline import expression
from attention.formula.names import KEY, QUERY
from attention.formula.steps import declared

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


MAX_LAYERS = 1024
LISTED = 6  # arrays in a sentence
_NAME_THEM = "name them in Axes (axes= in Python), such as “layer batch head query key”"
METADATA = ("tokens", "key_tokens", *Formula().settings, "scaling", "name", "layers", "random", "notes")
"""Names of what is no array of a step, in an export and in other files."""


class Place(NamedTuple):
    """Where a tensor of one layer is stored: its parts, each an array and how it is read.

    Attributes:
        parts: one, or one for each head or step of generation.
        shape: of the tensor, in the order of its axes.
        joined: "head" where the parts are heads, "step" where each has the queries of one step of generation; otherwise empty.
        low_precision: whether the stored numbers have 16 bits or fewer.
    """

    parts: tuple[tuple[str, View], ...]
    shape: tuple[int, ...]
    joined: str = ""
    low_precision: bool = False

    @property
    def entry(self) -> str:
        """The name of the first array."""
        return self.parts[0][0]

    @property
    def is_padded(self) -> bool:
        """Whether the tensor is larger than its parts."""
        return len(self.parts) > 1

    @property
    def is_copied(self) -> bool:
        """Whether the tensor is a part of an array, or made of several."""
        return len(self.parts) > 1 or any(index is not None for index in self.parts[0][1].taken)

    def select(self, arrays: Mapping[str, Tensor]) -> Tensor:
        """The tensor of the layer."""
        import torch

        tensors = [view.apply(arrays[entry]) for entry, view in self.parts]
        if len(tensors) == 1:
            return tensors[0]
        if self.joined == HEAD:
            return torch.cat(tensors)
        # Keys of another text, which are all there from the first step, do not grow.
        return join_steps(tensors, {tensor.shape[-1] for tensor in tensors} != {self.shape[-1]})

    def python(self, arrays: Mapping[str, str]) -> str:
        """The same as Python, of expressions of the arrays."""
        parts = [view.python(arrays[entry]) for entry, view in self.parts]
        if len(parts) == 1:
            return parts[0]
        if self.joined == HEAD:
            return f"torch.cat([{', '.join(parts)}])"
        n = self.shape[-1]
        return f"torch.cat([torch.nn.functional.pad(step, (0, {n} - step.shape[-1])) for step in ({', '.join(parts)})], dim=-2)"


class StoredLayer(NamedTuple):
    """One layer of a file.

    Attributes:
        number: by its name in the file, otherwise its index.
        head: its only head; None: all heads.
        places: of its steps and parameters.
        mixer: in an export of a hybrid model, what a layer without attention has instead; otherwise empty.
        name: empty where the index says everything.
        axis_tokens: the tokens of its queries and keys; None in an export, which describes them layer by layer.
    """

    number: int
    head: int | None
    places: Mapping[str, Place]
    mixer: str = ""
    name: str = ""
    axis_tokens: AxisTokens | None = None

    @property
    def lengths(self) -> dict[str, int]:
        """The lengths of the axes."""
        each = (zip(declared(step).axes, place.shape, strict=False) for step, place in self.places.items())
        return dict(chain.from_iterable(each))


class PlannedArray(NamedTuple):
    """One array of a file, or several that are numbered: its names, its size, the step that it is, its axes in words; or why it is not used; and its block, where there are several."""

    names: tuple[str, ...]
    size: str
    step: str = ""
    axes: tuple[str, ...] = ()
    unused: str = ""
    block: str = ""

    @property
    def label(self) -> str:
        """Its name, or the first and the last."""
        first, last = quote(self.names[0]), quote(self.names[-1])
        return first if len(self.names) == 1 else f"{first} … {last} ({len(self.names):,} arrays)"

    @property
    def reading(self) -> str:
        """Its axes and shape, such as "weights [head query key] = 2 × 4 × 4"."""
        return f"{self.block} {self.step}{' [' * bool(self.axes)}{' '.join(self.axes)}{']' * bool(self.axes)} = {self.size}".lstrip()


@dataclass(frozen=True)
class Plan:
    """How a file is read.

    Attributes:
        name: of the file.
        layers: of the shown sequence.
        exported: whether the file is an export of the Lab.
        masks: where the masks are stored that others made.
        rows: its arrays.
        sequences: a label for each sequence that can be chosen; empty where there is one.
        sequence: the shown one.
        notes: sentences on what was decided beyond the axes.
        named: the axes as the user named them.
        has_key_tokens: whether the file has the tokens of the keys.
        has_layer_axis: whether its arrays have an axis of layers, or are numbered by layer.
    """

    name: str
    layers: tuple[StoredLayer, ...]
    exported: bool
    masks: tuple[Place, ...] = ()
    rows: tuple[PlannedArray, ...] = ()
    sequences: tuple[str, ...] = ()
    sequence: int = 0
    notes: tuple[str, ...] = ()
    named: str = ""
    has_key_tokens: bool = False
    has_layer_axis: bool = False

    @property
    def nbytes(self) -> int:
        """About the bytes that it takes in memory."""
        parts = sum(len(place.parts) for layer in self.layers for place in layer.places.values())
        return 800 * (parts + sum(len(row.names) for row in self.rows)) + 200 * len(self.sequences)

    def text(self) -> str:
        """The plan as lines: each array with what it is, then the notes."""
        lines = [f"{row.label}: {row.reading}" if row.step else f"{row.label}: {f'{row.size}, ' if row.size else ''}{row.unused}" for row in self.rows]  # fmt: skip
        return "\n".join([*lines, *self.notes])

    @property
    def unused_note(self) -> str:
        """A sentence that names the arrays that are not used."""
        unused = [row.label for row in self.rows if not row.step]
        listed = ", ".join(unused[:LISTED]) + (", …" if len(unused) > LISTED else "")
        return f"These arrays of {quote(self.name)} are not used: {listed}." if unused else ""

    def axes_note(self, mask_axes: Sequence[str]) -> str:
        """A sentence that says how the axes were read, and how to read them otherwise; `mask_axes` are those of each mask."""
        if self.exported:
            return ""
        axes = iter(mask_axes)
        rows = [row._replace(axes=(*row.axes, *next(axes).split())) if row.step == "mask" else row for row in self.rows]
        read = [row.reading for row in rows if row.step and ("×" in row.size or row.step == "mask")]
        if not read:
            return ""
        listed = ", ".join(read[:LISTED]) + (", …" if len(read) > LISTED else "")
        otherwise = f"by axes “{self.named}”" if self.named else f"if they are others, {_NAME_THEM}"
        return f"The axes were read as {listed}; {otherwise}."


def unused_rows(archive: Archive, names: Sequence[str], reasons: Mapping[str, str]) -> list[PlannedArray]:
    """The rows of arrays that are not used, with the reasons that are known."""
    return [
        PlannedArray(
            (key,), format_shape(archive.arrays[key].shape), unused=reasons.get(key, "not used: its name is of no step")
        )
        if key in archive.arrays
        else PlannedArray((key,), "", unused=f"not used: {archive.refused[key]}")
        for key in names
    ]


def axes_error(name: str, key: str, shape: tuple[int, ...], axes: tuple[str, ...]) -> AxesError:
    """The error for an array whose axes have to be named, or are too many."""
    label = f"{quote(key)} in {quote(name)}" if key else quote(name)
    advice = _NAME_THEM
    if len(shape) > len(axes) + 2:
        advice = "save the parts of the others as arrays of their own, numbered as part_0, part_1"
    return AxesError(
        f"{label} needs the axes [{' '.join(axes)}], optionally with axes of layers and of sentences first; got {format_shape(shape) or 'a number'}: {advice}."
    )
