"""Source "file": attention that somebody saved, with another library or from here; what it records is shown as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention.errors import FileError
from attention.formula.layer import Layer
from attention.formula.names import WEIGHTS
from attention.formula.steps import MAP_AXES, declared
from attention.formula.trace import Trace
from attention.formula.what_if import WhatIf
from attention.sources.archive import Archive, beside, opened, quoted
from attention.sources.archive.layers import Layout, Stored, layout

if TYPE_CHECKING:
    from torch import Tensor

    from attention.sources import Snippet

MOST_HEADS = 1024
_NOTES = 20  # that an export brings along
_SIDES = ("query_pos", "key_pos")


@dataclass(frozen=True)
class File:
    """A file with the attention of some layers: weights; or queries, keys and values; or scores; or what was exported here.

    An array has the axes of its step, such as weights [head query_pos key_pos], or one of layers before them; one head may
    have none of heads. `mask` (True = may attend), `divisor` or `scaling`, `tokens` and `key_tokens` may stand beside them.
    Two files are the same where their bytes are.

    Attributes:
        name: of the file; its ending says how it is read.
        digest: of its bytes.
        max_bytes: of all its arrays in memory; more is refused before one is unpacked.
        max_tokens: of queries, and of keys.
        content: its bytes; without them there is no trace.
        config: what is turned of the formula that its layers have.
    """

    name: str
    digest: str
    max_bytes: int = 2**33
    max_tokens: int = 4096
    content: bytes = field(default=b"", compare=False, repr=False)
    config: WhatIf = field(default_factory=WhatIf)

    @classmethod
    def open(cls, path: str | Path, max_bytes: int = 2**33, max_tokens: int = 4096) -> File:
        """The file at a path.

        Raises:
            FileError: there is none, or it is larger than `max_bytes`.
        """
        place = Path(path)
        try:
            if place.stat().st_size > max_bytes:
                raise FileError(
                    f"{quoted(place.name)} has {place.stat().st_size:,} bytes; at most {max_bytes:,} are read: save a part of it."
                )
            return cls.of(place.name, place.read_bytes(), max_bytes, max_tokens)
        except OSError as error:
            raise FileError(
                f"{quoted(place.name)} cannot be opened ({error.strerror}): give the path of a file."
            ) from None

    @classmethod
    def of(cls, name: str, content: bytes, max_bytes: int = 2**33, max_tokens: int = 4096) -> File:
        """A file by its name and its bytes."""
        return cls(name, blake2b(content, digest_size=16).hexdigest(), max_bytes, max_tokens, content)

    @property
    def base(self) -> File:
        """The file as it was saved: its trace, turned, is this one's."""
        return replace(self, config=WhatIf())

    @property
    def needs(self) -> int:
        """The bytes that its trace takes while it is made, counted before.

        Raises:
            FileError: as for `trace`, where the names and sizes in the file say so.
        """
        archive = self._archive()
        return len(self.content) + self._needs(archive, layout(self.name, archive))

    def trace(self) -> Trace:
        """Every layer of the file; whole numbers and doubles in float64, the others in float32, which holds them all.

        What was exported here has its formula, and gives the same digits. Where there are queries and keys, or scores, the
        formula makes what the file does not have. Weights alone are shown as recorded; nothing is renormalised.

        Raises:
            FileError: it is no such file, or holds more than is read, or numbers that no picture can show as what they are.
            ShapeError: its arrays and tokens do not fit together.
        """
        archive = self._archive()
        found = layout(self.name, archive)
        self._needs(archive, found)
        used = {place.entry for one in found.layers for place in one.places.values()}
        whole = {key: archive.arrays[key].load() for key in used}
        said = archive.said.get("layers")
        about = said if isinstance(said, list) and found.exported else []
        layers, notes = [], list(_notes(self.name, archive, found))
        wrong: dict[str, list[int]] = {}
        for stored in found.layers:
            own = next((one for one in about if isinstance(one, dict) and one.get("number") == stored.number), {})
            recorded = {step: place.of(whole[place.entry]) for step, place in stored.places.items()}
            layer, note = self._layer(archive, found, stored, own, recorded)
            layers.append(layer)
            if note:
                wrong.setdefault(note, []).append(stored.number)
        notes += [
            f"In layer{'s' * (len(where) > 1)} {', '.join(map(str, where[:8]))}{', …' * (len(where) > 8)}: {note}"
            if len(layers) > 1
            else note
            for note, where in wrong.items()
        ]
        notes += _sums(found, layers, archive)
        random = archive.said.get("random") is True and found.exported
        return Trace(layers[0].tokens, tuple(layers), layers[0].key_tokens, random, tuple(notes)).turned(self.config)

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """How the Python begins that makes a layer of the trace again: it loads the file."""
        from attention.sources.archive import snippets

        archive = self._archive()
        stored = layout(self.name, archive).layers[layer]
        return snippets.file(self.name, archive, stored, trace.layers[layer])

    def _archive(self) -> Archive:
        if not self.content:
            raise FileError(
                f"{quoted(self.name)} is not here, only its digest {self.digest[:8]}…: open it with File.open(path)."
            )
        return opened(self.name, self.content)

    def _needs(self, archive: Archive, found: Layout) -> int:
        """The bytes of the arrays that are used.

        Raises:
            FileError: they are too many, or too many of an axis.
        """
        places = {place.entry: place for one in found.layers for place in one.places.values()}
        # What has all layers is there as a whole, and then taken apart.
        needs = sum(archive.arrays[key].nbytes * (1 + (place.layer is not None)) for key, place in places.items())
        if needs > self.max_bytes:
            raise FileError(
                f"{quoted(self.name)} would take {needs / 2**20:,.0f} MB in memory; at most {self.max_bytes / 2**20:,.0f} MB are read: "
                "save fewer layers, heads or tokens."
            )
        for key, step in {place.entry: step for one in found.layers for step, place in one.places.items()}.items():
            axes, shape = declared(step).axes, archive.arrays[key].shape
            sides = dict(zip(reversed(axes), reversed(shape), strict=False))
            longest = max((sides.get(axis, 0) for axis in _SIDES), default=0)
            if longest > self.max_tokens or sides.get("head", 0) > MOST_HEADS:
                raise FileError(
                    f"{step} in {quoted(self.name)} has {longest:,} positions and {sides.get('head', 1):,} heads; at most {self.max_tokens:,} and "
                    f"{MOST_HEADS:,} are shown: save a part of it."
                )
        return needs

    def _layer(
        self, archive: Archive, found: Layout, stored: Stored, own: Mapping[str, Any], recorded: dict[str, Tensor]
    ) -> tuple[Layer, str]:
        """One layer, and a sentence on it where there is one to be said."""
        from attention.sources.archive.recording import check, layer_of

        for step, one in recorded.items():
            recorded[step] = one != 0 if step == "mask" else one.double() if one.dtype.itemsize == 1 else one
        sizes = Layer(recorded=recorded).sizes
        tokens, key_tokens = beside.tokens(
            self.name, {**archive.said, **{key: own[key] for key in ("tokens", "key_tokens") if key in own}}, sizes
        )
        name = beside.name_of(found.exported, found.layers.index(stored), stored, own)
        where = f" of layer {stored.number}" if len(found.layers) > 1 else ""
        for step, tensor in recorded.items():
            check(step, where, tensor, tokens, key_tokens)
        formula, problem = beside.formula(archive, found.exported, stored, own, recorded)
        texts = {"name": name, "tokens": tokens, "key_tokens": key_tokens}
        layer, note = layer_of(recorded, formula, self.max_bytes, bool(own.get("formula")), **texts)
        if not any(step.axes == MAP_AXES for step in layer.steps):
            why = problem or note or "save key beside query, or weights"
            raise FileError(f"{quoted(self.name)} gives no weights and no scores{where}: {why}")
        return layer, problem or note


def _notes(name: str, archive: Archive, found: Layout) -> list[str]:
    """What is said of the file as a whole."""
    said = archive.said.get("notes") if found.exported else None
    notes = [one[:1000] for one in said[:_NOTES] if isinstance(one, str)] if isinstance(said, list) else []
    if found.unused:
        listed = ", ".join(map(quoted, found.unused[:6])) + (", …" if len(found.unused) > 6 else "")
        notes.append(f"Of {quoted(name)} this is not used: {listed}.")
    places = found.layers[0].places
    if not found.exported and places.keys() == {WEIGHTS} and places[WEIGHTS].entry != WEIGHTS:
        notes.append(f"The one array of {quoted(name)} is read as weights.")
    return notes


def _sums(found: Layout, layers: list[Layer], archive: Archive) -> list[str]:
    """A sentence where rows of recorded weights do not sum to 1."""
    apart: list[float] = []
    for stored, layer in zip(found.layers, layers, strict=True):
        if WEIGHTS not in layer.recorded or layer.formula is not None:
            continue
        short = archive.arrays[stored.places[WEIGHTS].entry].kind.short
        sums = layer[WEIGHTS].sum(dim=-1).flatten()
        apart += sums[(sums - 1).abs() > (0.01 if short else 1e-3)].tolist()
    if not apart:
        return []
    rows = f"{len(apart):,} rows of weights sum" if len(apart) > 1 else "1 row of weights sums"
    return [
        f"{rows} to something else than 1, from {min(apart):.3g} to {max(apart):.3g}: they are shown as they are, and nothing is renormalised."
    ]
