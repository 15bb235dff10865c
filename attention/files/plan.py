"""The plan of a file, decided from names and shapes before an array is loaded: what each array is, how its axes are read, where each tensor of a layer is stored."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from attention.base.errors import AttentionError, AxesError, FileError
from attention.base.printed import plural
from attention.base.spans import Span
from attention.files import saved_pictures
from attention.files.archives import Archive, format_shape, quote
from attention.files.saved_pictures import PATCHES
from attention.files.stored_names import (
    BATCH,
    GENERATED,
    HEAD,
    LAYER,
    PAIRS,
    REQUIRED,
    RESIDUES,
    UNKNOWN,
    WORD_IDS,
    AxisTokens,
    Lists,
    Sentence,
    StoredName,
    read_name,
)  # fmt: skip
from attention.files.user_tensors import join_steps
from attention.formula import formula
from attention.formula.dropout import Dropout
from attention.formula.formula import Formula
from attention.formula.inline import expression
from attention.formula.names import KEY, MASKED_SCORES, QUERY, SCORES, WEIGHTS
from attention.formula.steps import DECLARED, MAP_AXES, declared

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


def _parse_axes(axes: str) -> tuple[_NamedAxes, ...]:
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
_LISTED = 6  # arrays in a sentence
_NAME_THEM = "name them in Axes (axes= in Python), such as “layer batch head query key”"
_METADATA = ("tokens", "key_tokens", *Formula().settings, "scaling", "name", "layers", "random", "notes")
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
        has_formula: whether the file says which formula it has, or that it has none.
        formula: that one.
        problem: a sentence on one that cannot be read, or "".
    """

    number: int
    head: int | None
    places: Mapping[str, Place]
    mixer: str = ""
    name: str = ""
    axis_tokens: AxisTokens | None = None
    has_formula: bool = False
    formula: Formula | None = None
    problem: str = ""

    @property
    def lengths(self) -> dict[str, int]:
        """The lengths of the axes."""
        each = (zip(declared(step).axes, place.shape, strict=False) for step, place in self.places.items())
        return dict(itertools.chain.from_iterable(each))


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
        listed = ", ".join(unused[:_LISTED]) + (", …" if len(unused) > _LISTED else "")
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
        listed = ", ".join(read[:_LISTED]) + (", …" if len(read) > _LISTED else "")
        otherwise = f"by axes “{self.named}”" if self.named else f"if they are others, {_NAME_THEM}"
        return f"The axes were read as {listed}; {otherwise}."


def _unused_rows(archive: Archive, names: Sequence[str], reasons: Mapping[str, str]) -> list[PlannedArray]:
    """The rows of arrays that are not used, with the reasons that are known."""
    return [
        PlannedArray(
            (key,), format_shape(archive.arrays[key].shape), unused=reasons.get(key, "not used: its name is of no step")
        )
        if key in archive.arrays
        else PlannedArray((key,), "", unused=f"not used: {archive.refused[key]}")
        for key in names
    ]


def _axes_error(name: str, key: str, shape: tuple[int, ...], axes: tuple[str, ...]) -> AxesError:
    """The error for an array whose axes have to be named, or are too many."""
    label = f"{quote(key)} in {quote(name)}" if key else quote(name)
    advice = _NAME_THEM
    if len(shape) > len(axes) + 2:
        advice = "save the parts of the others as arrays of their own, numbered as part_0, part_1"
    return AxesError(
        f"{label} needs the axes [{' '.join(axes)}], optionally with axes of layers and of sentences first; got {format_shape(shape) or 'a number'}: {advice}."
    )


_MAX_SEQUENCES = 1024
SHARED_BY_LAYERS = ("bias", "bias_table")
"""The parameters of which all layers may share one."""
_BLOCKS = ("encoder", "decoder", "cross")  # the order of their layers
_SETTINGS = {*_METADATA} - {"layers"}  # an array of this name is no description
_SUM_TOLERANCE = 0.01  # of a row of weights in half precision
_Stem = tuple[str, ...]
"""The words of a name that tell sequences apart."""
_Steps = Mapping[tuple[str, str], Mapping[str, StoredName]]
"""The names of arrays by their block and step."""
_Shapes = Mapping[tuple[int, ...], tuple[int, ...]]
"""The shapes of arrays by their numbers."""
_T = TypeVar("_T")


def read_plan(name: str, archive: Archive, axes: str = "", sequence: int = 0, max_bytes: int = 2**33) -> Plan:
    """How a file is read. Nothing of the archive is loaded but token ids, and an array that its name calls scores and may be weights.

    Args:
        name: of the file.
        archive: its contents.
        axes: the names of the axes by the user, empty for those that are likely.
        sequence: the index of the sequence, where there are several.
        max_bytes: of an array that is loaded.

    Raises:
        FileError: it has no attention, two of its arrays do not fit together, or there is no such sequence.
        AxesError: its axes have to be named.
    """
    exported = {
        key: match for key in archive.arrays if (match := _EXPORTED_KEY.fullmatch(key)) and match[3] in DECLARED
    }
    plan = (
        _export_plan(name, archive, exported) if exported else _Reading(name, archive, axes, max_bytes).plan(sequence)
    )
    if len(plan.layers) > MAX_LAYERS:
        raise FileError(
            f"{quote(name)} has {len(plan.layers):,} layers; at most {MAX_LAYERS:,} are shown: save some of them."
        )
    if not all(layer.mixer or any(step in layer.places for step in REQUIRED) for layer in plan.layers):
        raise _nothing_error(name, archive)
    return plan


def _nothing_error(name: str, archive: Archive) -> FileError:
    why = [reason for key, reason in archive.refused.items() if read_name(key).step or not archive.arrays]
    if why:
        return FileError(why[0])
    shapes = {key: format_shape(entry.shape) for key, entry in archive.arrays.items() if len(entry.shape) > 1}
    names = [f"{quote(key)} {shapes.get(key, '')}".strip() for key in [*archive.arrays, *archive.refused][:_LISTED]]
    present = ", ".join(names) or "no array"
    return FileError(
        f"{quote(name)} needs weights, or query, key and value, or scores; it has {present}: save one of these under this name."
    )


# Exports of the Lab, whose names say everything.

_EXPORTED_KEY = re.compile(r"L(\d{1,4})\.(?:H(\d{1,4})\.)?(\w{1,40})", re.ASCII)
"""The name of an array in an export."""
_MAX_NUMBER = 10**4  # of a layer, by the pattern above
_NAME, _MIXER = re.compile(r"[\w ,.:()-]{1,60}"), re.compile(r"[a-z0-9 ]{1,30}")
_TOKEN_KEYS = (*PATCHES, *PATCHES.values(), *WORD_IDS.values(), *PAIRS.values(), *RESIDUES.values())
_SLICED_BY_HEAD = ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "w_s", "bias", "dropout_mask")  # one head has a slice of these  # fmt: skip


def _export_plan(name: str, archive: Archive, matches: Mapping[str, re.Match[str]]) -> Plan:
    """How an export of the Lab is read, by the matches of `_EXPORTED_KEY`.

    Raises:
        AxesError: an array has other axes than its step.
    """
    layers: dict[int, dict[str, Place]] = {}
    heads = {int(match[1]): int(match[2]) for match in matches.values() if match[2]}
    for key, match in matches.items():
        number, step, entry = int(match[1]), match[3], archive.arrays[key]
        axes, single_head = declared(step).axes, heads.get(number)
        n_axes = len(axes) - bool(match[2])
        if len(entry.shape) != n_axes:
            raise _axes_error(name, key, entry.shape, axes[-n_axes:])
        view = View((None,) * n_axes, tuple(range(n_axes)))
        if single_head is not None and {"head", "kv_head"} & {*axes}:
            if match[2] and int(match[2]) == single_head:
                view = view._replace(adds_head=True)
            else:
                # The array has all heads: slice the one of this file. Query heads may share a key head.
                keys = (f"L{number}.{other}" for other in ("w_q", "bias", "dropout_mask"))
                n_heads = next((archive.arrays[other].shape[0] for other in keys if other in matches), 0)
                if step not in _SLICED_BY_HEAD or single_head >= n_heads:
                    continue
                head = single_head * entry.shape[0] // n_heads
                view = view._replace(taken=(slice(head, head + 1), *view.taken[1:]))
        place = Place(((key, view),), view.shape(entry.shape), low_precision=entry.kind.low_precision)
        layers.setdefault(number, {})[step] = place
    described = metadata_by_number(archive)
    mixers = {number: entry.get("mixer") for number, entry in described.items() if number not in layers}
    stored = [
        StoredLayer(number, None, {}, mixer)
        for number, mixer in mixers.items()
        if 0 <= number < _MAX_NUMBER and isinstance(mixer, str) and _MIXER.fullmatch(mixer)
    ]
    stored += [StoredLayer(number, heads.get(number), places) for number, places in layers.items()]
    stored.sort(key=lambda layer: layer.number)
    stored = [_as_described(layer, position, described.get(layer.number, {})) for position, layer in enumerate(stored)]
    read = matches.keys() | saved_pictures.entries(archive).keys()
    names = (key for key in (*archive.arrays, *archive.refused) if key not in read)
    unused = [key for key in names if key.rpartition(".")[2] not in _METADATA]  # "L0.divisor" is a setting
    rows = [PlannedArray((key,), format_shape(archive.arrays[key].shape), match[3], in_words(declared(match[3]).axes)) for key, match in matches.items()]  # fmt: skip
    rows += _unused_rows(archive, unused, {})
    return Plan(name, tuple(stored), True, rows=tuple(rows))


def _as_described(layer: StoredLayer, position: int, described: Mapping[str, Any]) -> StoredLayer:
    """A layer of an export with the name and the formula that it describes: a name without markup, or the number of a layer that is not the one at `position`."""
    if layer.mixer:
        return layer
    saved_name = described.get("name")
    name = saved_name if isinstance(saved_name, str) and _NAME.fullmatch(saved_name) else ""
    if not name and (layer.number != position or layer.head is not None):
        name = f"layer {layer.number}"
    layer = layer._replace(
        name=name if layer.head is None else f"{name}, head {layer.head}", has_formula="formula" in described
    )
    if described.get("formula") is None:
        return layer
    try:
        saved_formula = formula.from_json(described["formula"])
    except AttentionError as error:
        return layer._replace(problem=f"Its formula is unknown, so the numbers are shown as recorded: {error}")
    if layer.head is not None:
        # A file of one head records its part of tensors that are drawn or computed for all heads at once.
        dropping = saved_formula.dropping if saved_formula.dropping.is_provided else Dropout()
        bias = "given" if saved_formula.bias and "bias" in layer.places else saved_formula.bias
        saved_formula = replace(saved_formula, dropping=dropping, bias=bias)
    return layer._replace(formula=saved_formula)


def metadata_by_number(archive: Archive) -> dict[int, Mapping[str, Any]]:
    """The metadata of each layer in an export, by its number, with the tokens of the layer whose tokens it shares."""
    saved, entries = archive.metadata.get("layers"), dict[int, Mapping[str, Any]]()
    for entry in saved if isinstance(saved, list) else ():
        if isinstance(entry, dict) and type(entry.get("number")) is int:
            entries.setdefault(entry["number"], entry)
    shared = {number: entry["tokens_of"] for number, entry in entries.items() if type(entry.get("tokens_of")) is int}
    texts = {
        number: {key: entries[first][key] for key in _TOKEN_KEYS if key in entries[first]}
        for number, first in shared.items()
        if first in entries
    }
    return {number: {**entry, **texts.get(number, {})} for number, entry in entries.items()}


# Other files.


@dataclass(frozen=True)
class _Group:
    """The arrays of one step, which differ in their numbers."""

    step: str
    outer: tuple[str, ...]  # what each number counts
    keys: Mapping[tuple[int, ...], str]  # the names of the arrays by their numbers
    inner: tuple[str, ...]  # the axes of each array in words
    taken: Mapping[str, int]  # the index on an axis that the user chose, and 0 on axes of length 1 that count nothing
    shapes: _Shapes  # by their numbers

    def numbers(self, axis: str) -> list[int]:
        column = self.outer.index(axis)
        return sorted({numbers[column] for numbers in self.keys})

    @cached_property
    def lengths(self) -> dict[str, dict[str, int]]:
        """The lengths of the axes that are not taken, by the names of the arrays."""
        return {
            key: {axis: n for axis, n in zip(self.inner, self.shapes[numbers], strict=True) if axis not in self.taken}
            for numbers, key in self.keys.items()
        }

    @cached_property
    def layers(self) -> Sequence[int] | None:
        """The numbers of the layers, or of the longest of the arrays; None if there is no such axis."""
        if LAYER in self.outer:
            return self.numbers(LAYER)
        lengths = [each[LAYER] for each in self.lengths.values() if LAYER in each]
        return range(max(lengths)) if lengths else None

    @cached_property
    def parts(self) -> dict[tuple[int, int], list[str]]:
        """The names of the arrays of each layer and sentence, in the order of their other number."""
        parts: dict[tuple[int, int], list[str]] = {}
        for numbers, key in self.keys.items():
            place = dict(zip(self.outer, numbers, strict=True))
            parts.setdefault((place.get(LAYER, 0), place.get(BATCH, 0)), []).append(key)
        return parts

    @cached_property
    def first(self) -> dict[int, str]:
        """The first array of each number of sentences."""
        first: dict[int, str] = {}
        for (_, number), keys in self.parts.items():
            first.setdefault(number, keys[0])
        return dict(sorted(first.items()))

    @cached_property
    def counts(self) -> dict[int, int]:
        """How many sentences there are of each number."""
        return {number: self.lengths[key].get(BATCH, 1) for number, key in self.first.items()}

    @property
    def n_sequences(self) -> int:
        return sum(self.counts.values())

    def at(self, index: int) -> tuple[int, int]:
        """The number of a sentence, and its index in the arrays of that number; all sequences share a single one."""
        return _chosen(self.counts, index if self.n_sequences > 1 else 0)


_Blocks = Mapping[str, Mapping[str, _Group]]
"""The arrays of each part of a model, by step."""


class _Reading:
    """A file that is no export of the Lab, while it is planned."""

    def __init__(self, name: str, archive: Archive, axes: str, max_bytes: int) -> None:
        self.name, self.archive, self.axes = name, archive, axes
        self.named = _parse_axes(axes)
        self.matched = set[str]()
        self.lists = Lists.of(archive)
        self.notes: list[str] = []
        self.reasons = dict[str, str]()
        self.max_bytes = max_bytes
        self.are_weights: bool | None = None  # what scores by an ambiguous name are

    def plan(self, sequence: int) -> Plan:
        archive, variants = self.archive, self._variants()
        blocks = self._readable(variants)
        if missed := [named for named in self.named if named.text not in self.matched]:
            listed = ", ".join(f"{quote(key)} {format_shape(entry.shape)}" for key, entry in [*self.archive.arrays.items()][:_LISTED])  # fmt: skip
            raise FileError(
                f"axes “{missed[0].text}” names {len(missed[0].names)} axes; {quote(self.name)} has {listed or 'no array'}: name every axis of one of these, in its order."
            )
        counts = {stem: max(map(_n_sequences, each.values())) for stem, each in blocks.items()}
        n_sequences = sum(counts.values())
        if not counts:
            raise _nothing_error(self.name, self.archive)
        if not 0 <= sequence < n_sequences:
            raise FileError(
                f"{quote(self.name)} has {plural(n_sequences, 'sequence')}, counted from 0; got {sequence}: choose one of them."
            )
        stem, index = _chosen(counts, sequence)
        stems = frozenset(word for words in counts for word in words)
        sentence = _sentence(blocks[stem], stems, stem, index, counts[stem])
        layers = self._layers(blocks[stem], index, sentence)
        masks = self._masks(variants[stem], sentence)
        rows = [*self._rows(blocks[stem]), *(PlannedArray((each.entry,), format_shape(archive.arrays[each.entry].shape), "mask", (BATCH,) * each.is_copied) for each in masks)]  # fmt: skip
        labels = self._labels(blocks, counts) if n_sequences > 1 else ()
        read = {key for each in blocks.values() for groups in each.values() for group in groups.values() for key in group.keys.values()}  # fmt: skip
        read |= {each.entry for each in masks} | self.lists.used
        left = [key for key in (*archive.arrays, *archive.refused) if key not in read and key not in _SETTINGS]
        if labels:
            self.notes.append(
                f"{quote(self.name)} has {n_sequences:,} sequences; this is {sequence}{f' ({labels[sequence]})' if sequence < len(labels) and labels[sequence] else ''}: choose another in Sequence (sequence= in Python)."
            )
        return Plan(
            self.name,
            tuple(layers),
            False,
            tuple(masks),
            (*rows, *_unused_rows(self.archive, left, self.reasons)),
            labels,
            sequence,
            tuple(dict.fromkeys([*self.notes, *self.lists.notes])),
            self.axes,
            self.lists.has_key_tokens,
            any(group.layers is not None for groups in blocks[stem].values() for group in groups.values()),
        )

    def _readable(self, variants: Mapping[_Stem, _Steps]) -> dict[_Stem, _Blocks]:
        """The blocks of each sequence whose axes can be read."""
        blocks, problems = dict[_Stem, _Blocks](), list[AxesError]()
        for stem, steps in variants.items():
            try:
                blocks[stem] = self._blocks(steps)
            except AxesError as error:
                problems.append(error)
                self.reasons |= {key: f"not used: {error}" for keys in steps.values() for key in keys}
        if problems and not blocks:
            raise problems[0]
        return blocks

    def _labels(self, blocks: Mapping[_Stem, _Blocks], counts: Mapping[_Stem, int]) -> tuple[str, ...]:
        """What each sequence is called: the words of its name, and its first tokens."""
        labels, stems = list[str](), frozenset(word for words in counts for word in words)
        for stem, count in counts.items():
            for index in range(min(count, _MAX_SEQUENCES - len(labels))):
                names = [" ".join(stem)] if len(counts) > 1 else []
                sentence = _sentence(blocks[stem], stems, stem, index, count)
                names += filter(None, (self.lists.names.get(sentence.number), self.lists.label(sentence)))
                labels.append(": ".join(names) or sentence.key)
        return tuple(labels)

    def _variants(self) -> Mapping[_Stem, _Steps]:
        """The names of the arrays that are read, by the words that tell sequences apart, then by block and step."""
        arrays = self.archive.arrays
        names = {key: self._name(key) for key in arrays}
        for key, why in self.archive.refused.items():
            if key in DECLARED or key in _METADATA:
                raise FileError(why)
        # numpy.save writes no name, and numpy.savez names a single array arr_0.
        rest = [key for key in arrays if not names[key].step and key not in _SETTINGS and key not in self.lists.ids]
        if not any(each.step in REQUIRED for each in names.values()):
            maps = rest if len(rest) == 1 and len(arrays) == 1 else [key for key in rest if self._is_map(key)]
            names |= {key: names[key]._replace(step=WEIGHTS) for key in maps}
            if maps:
                self.notes.append(
                    f"The one array of {quote(self.name)} is read as weights." if len(maps) == 1 else f"The {len(maps):,} arrays of {quote(self.name)} that are maps are read as weights."
                )  # fmt: skip
        variants: dict[_Stem, dict[tuple[str, str], dict[str, StoredName]]] = {}
        for key, each in names.items():
            if each.step:
                variants.setdefault(each.stem, {}).setdefault((each.block, each.step), {})[key] = each
        gives_map = {WEIGHTS, SCORES, MASKED_SCORES}
        of = {stem: {step for _, step in steps} for stem, steps in variants.items()}
        complete = [stem for stem, steps in of.items() if gives_map & steps or {QUERY, KEY} <= steps]
        complete = complete or [stem for stem, steps in of.items() if steps & {*REQUIRED}]
        others = variants.items() if len(complete) == 1 else ()
        shared = {place: keys for stem, steps in others if stem not in complete for place, keys in steps.items() if place[1] in ("mask", *SHARED_BY_LAYERS)}  # fmt: skip
        return {stem: {**shared, **variants[stem]} for stem in complete}

    def _name(self, key: str) -> StoredName:
        """What the name of an array says; "attention_scores" are weights where every row sums to 1, as Keras returns them."""
        name, entry = read_name(key), self.archive.arrays[key]
        is_doubtful = name.step in (SCORES, MASKED_SCORES) and key != name.step and len(entry.shape) > 1
        if not is_doubtful or entry.nbytes > self.max_bytes:
            return name
        if self.are_weights is None:  # one array decides for all: loading each could take hours
            array = entry.load()
            self.are_weights = bool((array >= 0).all() and ((array.sum(-1) - 1).abs() <= _SUM_TOLERANCE).all())
            if self.are_weights:
                self.notes.append(f"The rows of {quote(key)} sum to 1: they are read as weights, not as scores.")
        return name._replace(step=WEIGHTS) if self.are_weights else name

    def _is_map(self, key: str) -> bool:
        """Whether the shape may be that of a map: square, or with at least three axes and a name that is only a number."""
        shape, name = self.archive.arrays[key].shape, read_name(key)
        return (
            len(shape) > 1
            and not name.is_other
            and (shape[-1] == shape[-2] or (len(shape) > 2 and not name.stem and bool(name.numbers)))
        )

    def _blocks(self, steps: _Steps) -> _Blocks:
        parts = dict.fromkeys(block for block, step in steps if step in REQUIRED)
        order = sorted(parts, key=lambda block: _BLOCKS.index(block) if block in _BLOCKS else -1)
        return {block: self._groups(steps, block) for block in order}

    def _groups(self, steps: _Steps, title: str) -> dict[str, _Group]:
        groups, sizes = dict[str, _Group](), dict[str, int]()
        of_block = {step: keys for (part, step), keys in steps.items() if part in (title, "")}
        for step, keys in sorted(of_block.items(), key=lambda item: declared(item[0]).axes != MAP_AXES):
            if step == "mask":  # its axes depend on those of the others, see `given_mask`
                continue
            groups[step] = group = self._group(step, keys, sizes, title == "cross")
            if declared(step).axes == MAP_AXES:
                sizes |= dict(zip(group.inner, next(iter(group.shapes.values())), strict=True))
        self._check_counts(
            "layers", {step: None if group.layers is None else len(group.layers) for step, group in groups.items()}
        )
        counts = {step: group.n_sequences for step, group in groups.items()}
        if any(count > 1 for count in counts.values()):
            self._check_counts("sentences", {step: count if count > 1 else None for step, count in counts.items()})
        return groups

    def _check_counts(self, what: str, counts: Mapping[str, int | None]) -> None:
        sizes = {step: count for step, count in counts.items() if count is not None}
        single = [step for step in counts if step not in sizes and step not in SHARED_BY_LAYERS]
        if len(set(sizes.values())) > 1 or (sizes and single):
            listed = ", ".join(f"{step} {counts[step] or 'none'}" for step in (*sizes, *single))
            raise FileError(
                f"{quote(self.name)} needs the same number of {what} in each array; got {listed}: save all {what} of each."
            )

    def _group(self, step: str, names: Mapping[str, StoredName], sizes: Mapping[str, int], is_cross: bool) -> _Group:
        patterns: dict[tuple[str, ...], dict[tuple[int, ...], str]] = {}
        for key, each in names.items():
            self.reasons[key] = "not used: it is numbered in another way than the others"
            pattern = tuple(counted for counted, _ in each.numbers)
            patterns.setdefault(pattern, {}).setdefault(tuple(number for _, number in each.numbers), key)
        pattern, keys = max(patterns.items(), key=lambda item: len(item[1]))
        columns = [i for i, counted in enumerate(pattern) if counted == LAYER or len({each[i] for each in keys}) > 1]
        keys = {tuple(numbers[i] for i in columns): key for numbers, key in sorted(keys.items())}
        outer = [pattern[i] for i in columns]
        if self.archive.has_records and columns[:1] == [0]:
            outer[0] = outer[0] or BATCH
        shapes: _Shapes = {numbers: self.archive.arrays[key].shape for numbers, key in keys.items()}
        ours = in_words(declared(step).axes)
        first, shape = next(iter(shapes.items()))
        error = _axes_error(self.name, keys[first], shape, declared(step).axes)
        if any(len(other) != len(shape) for other in shapes.values()):
            raise error
        for named in self.named:
            whole = named.of(ours, len(outer) + len(shape))
            inner = whole[len(outer) :] if whole else named.of(ours, len(shape))
            if inner is None or (whole and not {*whole[: len(outer)]} <= {LAYER, BATCH, HEAD}):
                continue
            self.matched.add(named.text)
            outer = [*whole[: len(outer)]] if whole else self._counted(outer, shapes, len(ours), is_cross)
            shapes = self._without_numbers(outer, shapes, named.taken)
            return _Group(step, tuple(outer), {each: keys[each] for each in shapes}, inner, named.taken, shapes)
        rows_first = any(each.rows_first for each in names.values())
        outer = self._counted(outer, shapes, len(ours), is_cross)
        inner = self._inner(step, shape, outer, rows_first, sizes)
        if inner is None or len({*outer}) < len(outer):
            raise error
        return _Group(step, tuple(outer), keys, inner, {axis: 0 for axis in inner if axis.startswith("single")}, shapes)

    def _without_numbers(self, outer: Sequence[str], shapes: _Shapes, taken: Mapping[str, int]) -> _Shapes:
        """The arrays of the numbers that the user chose, such as batch=1 where the arrays are sentences."""
        for axis in taken.keys() & {*outer}:
            column, index = outer.index(axis), taken[axis]
            numbers = sorted({each[column] for each in shapes})
            if index >= len(numbers):
                raise FileError(
                    f"{quote(self.name)} has {len(numbers):,} arrays on its axis {axis}, counted from 0; got {axis}={index}: choose one of them."
                )
            shapes = {each: shape for each, shape in shapes.items() if each[column] == numbers[index]}
        return shapes

    def _counted(self, outer: list[str], shapes: _Shapes, n_own: int, is_cross: bool) -> list[str]:
        """What each number of the names counts, by the lengths of the arrays where the names do not say it."""
        counted_axes = list(outer)
        lacks_head = len(next(iter(shapes.values()))) < n_own
        for column, counted in enumerate(outer):
            if counted in (UNKNOWN, GENERATED) and GENERATED not in counted_axes[:column]:
                may_be_cross = is_cross and (counted == GENERATED or outer[column + 1 :] == [UNKNOWN])
                if _is_generation(shapes, column, may_be_cross):
                    counted_axes[column] = GENERATED
                elif counted == GENERATED:
                    counted_axes[column] = BATCH
            numbers = {each[column] for each in shapes}
            differs = any(len({shape[-2:] for shape in run}) > 1 for run in _runs(shapes, column))  # as sentences do
            is_batch = differs or (len(numbers) > 1 and numbers == self.lists.numbers)
            if counted_axes[column] == UNKNOWN and BATCH not in counted_axes and is_batch:
                counted_axes[column] = BATCH
        for column, counted in enumerate(counted_axes):
            if counted == UNKNOWN:
                free = [axis for axis in (LAYER, *[HEAD] * lacks_head, BATCH) if axis not in counted_axes]
                counted_axes[column] = free[0] if free else BATCH
        return counted_axes

    def _inner(
        self, step: str, shape: tuple[int, ...], outer: Sequence[str], rows_first: bool, sizes: Mapping[str, int]
    ) -> tuple[str, ...] | None:
        """The likely axes of an array in words; None if they have to be named."""
        ours = in_words(declared(step).axes)
        has_head = ours[0] == "head"
        n_batch = 0 if BATCH in outer else self.lists.n_sentences
        extra = len(shape) - len(ours)
        # Three axes are heads, unless the file has so many sentences.
        is_batch = extra == 0 and {*ours[1:]} & {QUERY, KEY} and shape[0] == n_batch > 1 and shape[1] != n_batch
        if has_head and (HEAD in outer or extra == -1 or is_batch):
            ours, extra = ours[1:], extra + 1
        if len(ours) == 3 and has_head and (rows_first or _has_rows_first(ours, shape[-3:], sizes)):
            ours = (ours[1], ours[0], ours[2])
        if extra < 0:
            return None
        # Arrays of batches are numbered, and have an axis of sentences.
        free = [axis for axis in (LAYER, BATCH) if axis not in outer or (axis == BATCH and LAYER not in outer)]
        if extra == len(free) + 1 and ours[-2:] == (QUERY, KEY) and shape[-2] == 1:
            # The first axis is that of the steps of a generation, each of which has one query.
            names = _leading(shape[1:extra], free, n_batch)
            if names is not None and shape[0] != 1:
                return (QUERY, *names, *ours[:-2], f"single{len(shape) - 2}", KEY)
        names = _leading(shape[:extra], free, n_batch)
        return None if names is None else (*names, *ours)

    def _layers(self, blocks: _Blocks, index: int, sentence: Sentence) -> list[StoredLayer]:
        layers = list[StoredLayer]()
        for title, groups in blocks.items():
            if (n_sequences := _n_sequences(groups)) not in (1, sentence.n_sequences):
                raise FileError(
                    f"{quote(self.name)} needs the same number of sentences in each array; got {n_sequences:,} and {sentence.n_sequences:,}: save all sentences of each."
                )
            of_layers = [group for group in groups.values() if group.layers is not None]
            numbers = of_layers[0].layers or () if of_layers else (0,)
            n_layers = min((len(numbers) if LAYER in group.outer else group.lengths[group.first[group.at(index)[0]]][LAYER] for group in of_layers), default=1)  # fmt: skip
            for position in range(min(n_layers, MAX_LAYERS + 1)):
                places = {step: self._place(group, title, position, index) for step, group in groups.items()}
                number = numbers[position]
                name = f"{title or LAYER} {number}" if len(blocks) > 1 or number != position else ""
                layer = StoredLayer(number, None, places, name=name)
                n_keys = layer.lengths.get("key_pos", 1)
                n_queries = layer.lengths.get("query_pos", n_keys)
                tokens = self.lists.tokens(self.name, title, sentence, n_queries, n_keys)
                layers.append(layer._replace(axis_tokens=tokens))
        return layers

    def _place(self, group: _Group, title: str, position: int, index: int) -> Place:
        step, (sentence, within) = group.step, group.at(index)
        taken = {axis: i for axis, i in ((LAYER, position), (BATCH, within)) if axis in group.inner} | {**group.taken}
        number = group.layers[position] if group.layers is not None and LAYER in group.outer else 0
        keys = group.parts.get((number, sentence))
        if keys is None:
            raise FileError(
                f"{quote(self.name)} has no array of {step} for layer {number} of sentence {sentence}: save all layers of each sentence."
            )
        ours, arrays = in_words(declared(step).axes), self.archive.arrays
        parts = tuple((key, View.of(group.inner, arrays[key].shape, taken, ours, quote(key) if key else quote(self.name))) for key in keys)  # fmt: skip
        shapes = [view.shape(arrays[key].shape) for key, view in parts]
        shape, joined = shapes[0], next((axis for axis in (HEAD, GENERATED) if axis in group.outer), "")
        if joined == HEAD:
            shape = (len(parts), *shape[1:])
        elif joined:
            n_rows, n_keys = sum(each[-2] for each in shapes), max(each[-1] for each in shapes)
            # A cache of fixed length, whose end is empty.
            is_static = title != "cross" and shapes[0][-2] > 1 and shapes[0][-1] == n_keys
            shape = (*shape[:-2], n_rows, min(n_keys, n_rows) if is_static else n_keys)
        return Place(parts, shape, joined, any(arrays[key].kind.low_precision for key in keys))

    def _rows(self, blocks: _Blocks) -> list[PlannedArray]:
        rows = list[PlannedArray]()
        for title, groups in blocks.items():
            for group in groups.values():
                counts = [str(len(group.numbers(axis))) for axis in group.outer]
                lengths = [{*sizes} for sizes in zip(*group.shapes.values(), strict=True)]
                sizes = [f"{min(each):,}" if len(each) == 1 else f"({min(each):,} to {max(each):,})" for each in lengths]  # fmt: skip
                axes = tuple("1" if axis.startswith("single") else axis for axis in (*group.outer, *group.inner))
                rows.append(PlannedArray(tuple(group.keys.values()), " × ".join([*counts, *sizes]), group.step, axes, block=title if len(blocks) > 1 else ""))  # fmt: skip
        return rows

    def _masks(self, steps: _Steps, sentence: Sentence) -> list[Place]:
        """The masks of a file: that of the scores, and that of padding; of a batch, those of its sentence."""
        several = sentence.n_sequences
        every = {key: {*dict(name.numbers).values()} for (_, step), keys in steps.items() if step == "mask" for key, name in keys.items()}  # fmt: skip
        names = [key for key, numbers in every.items() if not numbers or len(every) == 1 or (several > 1 and sentence.number in numbers)]  # fmt: skip
        places = list[Place]()
        for key in sorted(names, key=lambda key: "padding" in key)[:2]:
            shape = self.archive.arrays[key].shape
            of_batch = len(shape) > 1 and shape[0] == several > 1 and (len(shape) != 2 or "attention" in key or "padding" in key)  # fmt: skip
            taken = (sentence.place if of_batch else None, *(None,) * (len(shape) - 1))
            view = View(taken, tuple(range(len(shape) - of_batch)))
            places.append(Place(((key, view),), view.shape(shape)))
        return places


def _chosen(counts: Mapping[_T, int], index: int) -> tuple[_T, int]:
    """The key in whose share of all things an index is, and the index there."""
    for key, count in counts.items():
        if index < count:
            return key, index
        index -= count
    raise AssertionError


def _n_sequences(groups: Mapping[str, _Group]) -> int:
    return max(group.n_sequences for group in groups.values())


def _sentence(blocks: _Blocks, stems: frozenset[str], stem: _Stem, index: int, count: int) -> Sentence:
    """What tells a sequence apart from the others; `stems` are the words of all, `count` is the number of those with this stem."""
    number, at, key = index, index, ""
    for groups in blocks.values():
        for group in groups.values():
            if len(group.counts) > 1:
                number, within = group.at(index)
                key = group.first[number] + f"[{within}]" * (group.counts[number] > 1)
                at = within if group.counts[number] > 1 else index
    return Sentence(frozenset(stem), stems, number, at, count, key)


def _leading(sizes: tuple[int, ...], free: Sequence[str], n_batch: int) -> tuple[str, ...] | None:
    """The names of the axes before those of a step: of layers or sentences, if they are `free`, or of length 1; None if there are too many."""
    singles = [axis for axis, size in enumerate(sizes) if size == 1][: max(0, len(sizes) - len(free))]
    rest = [size for axis, size in enumerate(sizes) if axis not in singles]
    if len(rest) > len(free) or (singles and len(rest) == 2 and min(rest) > 1):
        return None
    names = list(free[: len(rest)])
    if len(free) == 2 and rest:
        is_batch = rest[0] == n_batch > 1
        if len(rest) == 1 and is_batch:
            names = [BATCH]
        elif len(rest) == 2 and rest[1] > 1 and (rest[0] == 1 or (is_batch and rest[1] != n_batch)):
            names = [BATCH, LAYER]
    return tuple(f"single{axis}" if axis in singles else names.pop(0) for axis in range(len(sizes)))


def _runs(shapes: _Shapes, column: int) -> list[list[tuple[int, ...]]]:
    """The shapes along one number, for each combination of the others."""
    runs: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for numbers in sorted(shapes):
        runs.setdefault((*numbers[:column], *numbers[column + 1 :]), []).append(shapes[numbers])
    return list(runs.values())


def _is_generation(shapes: _Shapes, column: int, may_be_cross: bool) -> bool:
    """Whether each array after the first has one query, and a key more than the one before it, or those of a cache of fixed length, or of another text."""
    return all(
        len(run) > 1
        and all(len(shape) > 1 and shape[-2] == 1 for shape in run[1:])
        and (
            all(after[-1] == before[-1] + 1 for before, after in itertools.pairwise(run))
            or ((may_be_cross or run[0][-2] > 1) and len({shape[-1] for shape in run}) == 1)
        )
        for run in _runs(shapes, column)
    )


def _has_rows_first(ours: tuple[str, ...], shape: tuple[int, ...], sizes: Mapping[str, int]) -> bool:
    """Whether rows such as those of Q are stored as [pos head width], by the lengths that the maps of the file have."""
    n_heads, n_rows = sizes.get("head"), sizes.get(ours[1])
    return ours[-1] != KEY and n_heads != n_rows and shape[:2] == (n_rows, n_heads)


def saved_spans(name: str, saved: Any) -> list[Span]:
    """The named stretches of tokens in an export; none if it has none.

    Raises:
        FileError: they are none.
    """
    entries = saved if isinstance(saved, list) else [] if saved is None else [saved]
    spans = [Span(str(entry[0]), *entry[1:]) for entry in entries if isinstance(entry, list) and len(entry) == 3 and type(entry[1]) is type(entry[2]) is int]  # fmt: skip
    if len(spans) < len(entries):
        raise FileError(
            f"spans in {quote(name)} are [name, first token, last token] each; got {quote(str(saved))}: save the trace again."
        )
    return spans
