"""Which layers a file holds: where each step of each of them lies in it, before anything of it is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from attention.errors import FileError, MissingError
from attention.formula.formula import Formula
from attention.formula.names import MASKED_SCORES, QUERY, SCORES, WEIGHTS
from attention.formula.steps import HEAD_AXES, Parameter, Step, declared
from attention.sources.archive import Archive, Entry, quoted, sized

if TYPE_CHECKING:
    from torch import Tensor

MOST_LAYERS = 1024
_EXPORTED = re.compile(r"L(\d{1,4})\.(?:H(\d{1,4})\.)?(\w{1,40})", re.ASCII)
_FOR_ALL = ("mask", "bias", "bias_table")  # that all layers may have in common
_OF_ONE = ("w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "w_s", "bias", "dropout_mask")  # that one head has a part of
_SETTINGS = (*Formula().settings, "scaling", "name")
_BESIDE = ("tokens", "key_tokens", *_SETTINGS, "layers", "random", "notes")
_BEGINS = (WEIGHTS, SCORES, MASKED_SCORES, QUERY)  # one of which there must be


class Place(NamedTuple):
    """Where a tensor of one layer lies.

    Attributes:
        entry: under which name in the file.
        layer: which of its matrices along the first axis, where that is the layer.
        lifted: whether it has no axis of heads, and is one head.
        head: which of its heads is meant, where the file is of one head and the tensor of all.
    """

    entry: str
    layer: int | None = None
    lifted: bool = False
    head: int | None = None

    def of(self, whole: Tensor) -> Tensor:
        """The tensor of the layer."""
        found = whole if self.layer is None else whole[self.layer].clone()  # or each layer would keep the others
        if self.head is not None:
            found = found[self.head : self.head + 1]
        return found[None] if self.lifted else found


class Stored(NamedTuple):
    """One layer of a file: its number in it, which head of it alone there is, and where its steps and parameters lie."""

    number: int
    head: int | None
    places: Mapping[str, Place]


class Layout(NamedTuple):
    """The layers of a file, whether they were exported here, and what of the file is not used."""

    layers: tuple[Stored, ...]
    exported: bool
    unused: tuple[str, ...]


def layout(name: str, archive: Archive) -> Layout:
    """The layers of a file.

    Raises:
        FileError: it has none, or two of its arrays do not fit together.
    """
    exported = {key: match for key in archive.arrays if (match := _EXPORTED.fullmatch(key)) and _known(match[3])}
    found = _exported(name, archive, exported) if exported else _plain(name, archive)
    if len(found.layers) > MOST_LAYERS:
        raise FileError(
            f"{quoted(name)} has {len(found.layers):,} layers; at most {MOST_LAYERS:,} are shown: save some of them."
        )
    if not all(any(step in layer.places for step in _BEGINS) for layer in found.layers):
        if archive.refused and not archive.arrays:
            raise FileError(next(iter(archive.refused.values())))
        there = ", ".join(map(quoted, [*archive.arrays, *archive.refused][:6])) or "no array"
        raise FileError(
            f"{quoted(name)} needs weights, or query, key and value, or scores; it has {there}: save one of these under its name."
        )
    return found


def _known(key: str) -> Step | Parameter | None:
    try:
        return declared(key)
    except MissingError:
        return None


def _exported(name: str, archive: Archive, found: Mapping[str, re.Match[str]]) -> Layout:
    layers: dict[int, dict[str, Place]] = {}
    heads = {int(match[1]): int(match[2]) for match in found.values() if match[2]}
    for key, match in found.items():
        number, step = int(match[1]), match[3]
        axes, one = declared(step).axes, heads.get(number)
        of_heads = "head" in axes or "kv_head" in axes
        wanted = len(axes) - bool(match[2])
        entry = archive.arrays[key]
        if len(entry.shape) != wanted:
            raise _unfit(name, key, entry, axes[-wanted:])
        if one is None or not of_heads:
            layers.setdefault(number, {})[step] = Place(key)
        elif match[2] and int(match[2]) == one:
            layers.setdefault(number, {})[step] = Place(key, lifted=True)
        elif step in _OF_ONE:
            # What all heads have together, of which a file of one head takes its part; several may share one.
            whole = [of_all for name in ("w_q", "bias", "dropout_mask") if (of_all := f"L{number}.{name}") in found]
            n_heads = archive.arrays[whole[0]].shape[0] if whole else 0
            if one < n_heads:
                layers.setdefault(number, {})[step] = Place(key, head=one * entry.shape[0] // n_heads)
    stored = tuple(Stored(number, heads.get(number), places) for number, places in sorted(layers.items()))
    return Layout(stored, True, ())


def _plain(name: str, archive: Archive) -> Layout:
    there = dict(archive.arrays)
    if len(there) == 1 and not _known(next(iter(there))):  # numpy.save knows no names, and numpy.savez calls it arr_0
        return Layout(_stacked(name, {WEIGHTS: next(iter(there.items()))}), False, ())
    known = {key: (key, entry) for key, entry in there.items() if _known(key)}
    for key in known.keys() | {key for key in archive.refused if _known(key) or key in _BESIDE}:
        if key in archive.refused:
            raise FileError(archive.refused[key])
    unused = [key for key in (*there, *archive.refused) if key not in known and key not in _BESIDE]
    return Layout(_stacked(name, known), False, tuple(unused))


def _stacked(name: str, known: Mapping[str, tuple[str, Entry]]) -> tuple[Stored, ...]:
    """The layers of arrays that have all layers one after the other, or none that are of one."""
    counts: dict[str, int | None] = {}
    lifted: dict[str, bool] = {}
    for step, (key, entry) in known.items():
        axes = declared(step).axes
        more = len(entry.shape) - len(axes)
        one_head = more == -1 and axes[0] in HEAD_AXES
        if not (one_head or more in (0, 1)):
            raise _unfit(name, key, entry, axes)
        counts[step], lifted[step] = (entry.shape[0] if more == 1 else None), one_head
    sizes = {step: count for step, count in counts.items() if count is not None}
    single = [step for step in counts if step not in sizes and step not in _FOR_ALL]
    if len(set(sizes.values())) > 1 or (sizes and single):
        said = ", ".join(f"{step} {counts[step] or 'none'}" for step in (*sizes, *single))
        raise FileError(f"{quoted(name)} needs as many layers in each of its arrays; got {said}: save them alike.")
    many = next(iter(sizes.values()), None)

    def places(number: int) -> dict[str, Place]:
        return {step: Place(key, number if step in sizes else None, lifted[step]) for step, (key, _) in known.items()}

    return tuple(Stored(number, None, places(number)) for number in range(min(many or 1, MOST_LAYERS + 1)))


def _unfit(name: str, key: str, entry: Entry, axes: tuple[str, ...]) -> FileError:
    called = f"{quoted(key)} in {quoted(name)}" if key else quoted(name)
    return FileError(
        f"{called} needs the axes [{' '.join(axes)}], and may have one of layers before them; got {sized(entry.shape) or 'a number'}: "
        "save one sequence of a batch, such as weights[0]."
    )
