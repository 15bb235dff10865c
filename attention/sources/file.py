"""Source "file": attention that was saved by another library or exported from the Lab. Recorded values are shown unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError
from attention.files import stored_layers
from attention.files.archives import Archive, open_archive, quote
from attention.files.axes import axes_note, looks_otherwise, with_axes
from attention.files.given_mask import MEANINGS, GivenMask, MaskSizes
from attention.files.stored_layers import WORD_IDS, Layout, StoredLayer, read_layout
from attention.formula.names import WEIGHTS
from attention.formula.override import Override
from attention.formula.steps import MAP_AXES, declared
from attention.trace.layer import Layer
from attention.trace.trace import Trace
from attention.vision import saved_pictures

if TYPE_CHECKING:
    from torch import Tensor

    from attention.program.literals import Snippet
    from attention.trace.trace import SeenPicture

MAX_HEADS = 1024
_MAX_NOTES = 20  # of an export
_SIDES = ("query_pos", "key_pos")
AxisTokens = tuple[tuple[str, ...], tuple[str, ...]]
"""The tokens of the queries, and those of the keys."""


@dataclass(frozen=True)
class File:
    """A file with the attention of some layers: weights; queries, keys and values; scores; or an export of the Lab.

    An array has the axes of its step, such as weights [head query_pos key_pos], optionally with a first axis of layers; an array of
    one head may lack the head axis. `mask`, `divisor` or `scaling`, `tokens` and `key_tokens` are optional. The notes of the trace say how
    the axes and the mask were read. Two files are equal if their bytes are, and these readings.

    Attributes:
        name: file name; its extension selects the reader.
        digest: hash of the bytes.
        max_bytes: memory of all arrays; a larger file is refused before an array is unpacked.
        max_tokens: limit of queries, and of keys.
        content: the bytes; without them there is no trace.
        config: overrides of the formula of the layers.
        axes: the names of the axes in their order, if they are others, such as "layer batch head query key" or "head query key"; batch=1 takes
            one sentence, and "pos head width" is for query, key and value (`attention.files.axes.with_axes`).
        mask_means: what 1 means in the mask, one of `attention.files.given_mask.MEANINGS`: "numbers" (what they say), "keep", "hide", or "add".
    """

    name: str
    digest: str
    max_bytes: int = 2**33
    max_tokens: int = 4096
    content: bytes = field(default=b"", compare=False, repr=False)
    config: Override = field(default_factory=Override)
    axes: str = ""
    mask_means: str = MEANINGS[0]

    @classmethod
    def open(
        cls,
        path: str | Path,
        max_bytes: int = 2**33,
        max_tokens: int = 4096,
        axes: str = "",
        mask_means: str = MEANINGS[0],
    ) -> File:
        """The file at a path.

        Raises:
            FileError: the file does not exist, or is larger than `max_bytes`.
        """
        file_path = Path(path)
        try:
            if file_path.stat().st_size > max_bytes:
                raise FileError(
                    f"{quote(file_path.name)} has {file_path.stat().st_size:,} bytes; at most {max_bytes:,} are read: save a part of it."
                )
            file = cls.of(file_path.name, file_path.read_bytes(), max_bytes, max_tokens)
            return replace(file, axes=axes, mask_means=mask_means)
        except OSError as error:
            raise FileError(
                f"{quote(file_path.name)} cannot be opened ({error.strerror}): give the path of a file."
            ) from None

    @classmethod
    def of(cls, name: str, content: bytes, max_bytes: int = 2**33, max_tokens: int = 4096) -> File:
        """A file from its name and its bytes."""
        return cls(name, blake2b(content, digest_size=16).hexdigest(), max_bytes, max_tokens, content)

    @property
    def base(self) -> File:
        """The file without overrides: this trace is the trace of the base, with `config` applied."""
        return replace(self, config=Override())

    def memory_bytes(self) -> int:
        """The bytes that the trace takes while it is computed, counted in advance.

        Raises:
            FileError: as for `trace`, for problems with names and sizes.
        """
        return len(self.content) + self._array_bytes(*self._layout())

    def trace(self) -> Trace:
        """Every layer of the file. Integers and doubles are read as float64, all other numbers as float32, without loss.

        An export of the Lab has its formula and reproduces the same digits. From queries and keys, or scores, the formula computes the
        steps that the file lacks. Weights alone are shown as recorded; nothing is renormalized.

        Raises:
            FileError: the file has no attention, exceeds a limit, or holds numbers that cannot be drawn.
            ShapeError: its arrays and tokens do not fit together.
        """
        archive, file_layout = self._layout()
        self._array_bytes(archive, file_layout)
        used_entries = {place.entry for stored in file_layout.layers for place in stored.places.values()}
        tensors = {key: archive.arrays[key].load() for key in used_entries}
        layer_metadata = (
            stored_layers.metadata_by_number(archive.metadata.get("layers")) if file_layout.exported else {}
        )
        pictures = saved_pictures.read_pictures(self.name, archive) if file_layout.exported else ()
        layers, notes = [], list(_file_notes(self.name, archive, file_layout))
        problems: dict[str, list[int]] = {}
        known_tokens: dict[tuple[object, ...], AxisTokens] = {}
        mask = self._mask(archive, file_layout)
        for stored in file_layout.layers:
            if stored.mixer:
                layers.append(Layer(f"layer {stored.number}", mixer=stored.mixer))
                continue
            own_metadata = layer_metadata.get(stored.number, {})
            recorded = {step: place.select(tensors[place.entry]) for step, place in stored.places.items()}
            if mask is not None:
                recorded = _with_mask(recorded, mask, stored.number)
            layer, note = self._layer(archive, file_layout, stored, own_metadata, recorded, pictures, known_tokens)
            layers.append(layer)
            if note:
                problems.setdefault(note, []).append(stored.number)
        notes += [
            f"In layer{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:8]))}{', …' * (len(numbers) > 8)}: {note}"
            if len(layers) > 1
            else note
            for note, numbers in problems.items()
        ]
        if not file_layout.exported:
            notes.append(axes_note(archive, file_layout, mask, self.axes))
            notes += [mask.note] if mask is not None and mask.note else []
            notes += looks_otherwise(archive, file_layout, layers)
        notes += _row_sum_notes(file_layout, layers, archive)
        random = archive.metadata.get("random") is True and file_layout.exported
        first = next(layer for layer in layers if layer.has_attention)
        trace = Trace(first.tokens, tuple(layers), first.key_tokens, random, tuple(notes), pictures=pictures)
        return trace.with_config(self.config)

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """The beginning of a Python program that computes a layer of the trace: it loads the file."""
        from attention.program import saved_file

        archive, file_layout = self._layout()
        stored, mask = file_layout.layers[layer], self._mask(archive, file_layout)
        mask_python = "" if mask is None else mask.of_layer(stored.number).python
        return saved_file.file(self.name, archive, stored, trace.layers[layer], mask_python)

    def _layout(self) -> tuple[Archive, Layout]:
        """The contents of the file in our order of axes, and its layers."""
        if not self.content:
            raise FileError(
                f"{quote(self.name)} has no content, only its digest {self.digest[:8]}…: open it with File.open(path)."
            )
        archive = open_archive(self.name, self.content)
        if self.axes:
            archive = with_axes(archive, self.axes, self.name)
        return archive, read_layout(self.name, archive)

    def _mask(self, archive: Archive, file_layout: Layout) -> GivenMask | None:
        """The mask of a file that is no export of the Lab, for all its layers; None if it has none."""
        places = file_layout.layers[0].places
        if file_layout.exported or "mask" not in places:
            return None
        lengths = dict[str, int]()
        for step, place in places.items():
            shape = archive.arrays[place.entry].shape[place.layer is not None :]
            lengths |= dict(zip(reversed(declared(step).axes), reversed(shape), strict=False)) if step != "mask" else {}
        n_layers = len(file_layout.layers) if any(place.layer is not None for place in places.values()) else None
        n_heads = lengths.get("head", lengths.get("kv_head", 1))
        sizes = MaskSizes(n_layers, n_heads, lengths.get("query_pos", 1), lengths.get("key_pos", 1))
        return GivenMask.of(archive.arrays[places["mask"].entry].load(), sizes, self.mask_means)

    def _array_bytes(self, archive: Archive, file_layout: Layout) -> int:
        """The bytes of the arrays that are used.

        Raises:
            FileError: the bytes, or the length of an axis, exceed a limit.
        """
        places = {step: place for stored in file_layout.layers for step, place in stored.places.items()}
        entries = {place.entry: place for stored in file_layout.layers for place in stored.places.values()}
        # An array of all layers is loaded completely and then copied layer by layer.
        total_bytes = sum(
            archive.arrays[key].nbytes * (1 + (place.layer is not None)) for key, place in entries.items()
        )
        if not file_layout.exported and (mask := places.get("mask")):  # read as doubles, for all layers
            total_bytes += 16 * prod(archive.arrays[mask.entry].shape)
        total_bytes += sum(saved_pictures.entries(archive).values()) if file_layout.exported else 0
        if total_bytes > self.max_bytes:
            raise FileError(
                f"{quote(self.name)} would take {total_bytes / 2**20:,.0f} MB in memory; at most {self.max_bytes / 2**20:,.0f} MB are read: "
                "save fewer layers, heads or tokens."
            )
        for key, step in {
            place.entry: step for stored in file_layout.layers for step, place in stored.places.items()
        }.items():
            axes, shape = declared(step).axes, archive.arrays[key].shape
            axis_sizes = dict(zip(reversed(axes), reversed(shape), strict=False))
            longest = max((axis_sizes.get(axis, 0) for axis in _SIDES), default=0)
            if longest > self.max_tokens or axis_sizes.get("head", 0) > MAX_HEADS:
                raise FileError(
                    f"{step} in {quote(self.name)} has {longest:,} positions and {axis_sizes.get('head', 1):,} heads; at most {self.max_tokens:,} and "
                    f"{MAX_HEADS:,} are shown: save a part of it."
                )
        return total_bytes

    def _layer(
        self,
        archive: Archive,
        file_layout: Layout,
        stored: StoredLayer,
        own_metadata: Mapping[str, Any],
        recorded: dict[str, Tensor],
        pictures: Sequence[SeenPicture],
        known_tokens: dict[tuple[object, ...], AxisTokens],
    ) -> tuple[Layer, str]:
        """One layer, and a note on it; the note is empty if there is no problem. Adds its tokens to those known."""
        from attention.files.read_layers import build_layer, check_numbers

        for step, tensor in recorded.items():
            is_mask = step == "mask"
            recorded[step] = tensor != 0 if is_mask else tensor.double() if tensor.dtype.itemsize == 1 else tensor
        sizes = Layer(recorded=recorded).sizes
        described = own_metadata if "tokens" in own_metadata else archive.metadata
        texts = {
            **archive.metadata,
            **{key: own_metadata[key] for key in saved_pictures.PATCHES if key in own_metadata},
        }
        places = {key: described.get(key) for key in saved_pictures.PATCHES.values() if file_layout.exported}
        word_ids = {key: described.get(key) for key in WORD_IDS.values() if file_layout.exported}
        # Layers share the tokens that they have from the same lists: a thousand copies of thousands of patches would take gigabytes.
        pairs = {key: described.get(key) for key in stored_layers.PAIRS.values() if file_layout.exported}
        lists = (
            *(texts.get(key) for key in saved_pictures.PATCHES),
            *places.values(),
            *word_ids.values(),
            *pairs.values(),
        )
        same = *map(id, lists), *map(sizes.get, _SIDES)
        if same not in known_tokens:
            tokens, key_tokens = stored_layers.layer_tokens(self.name, texts, sizes)
            if file_layout.exported:
                tokens, key_tokens = (
                    saved_pictures.with_places(self.name, axis_tokens, places[key], pictures, key)
                    for axis_tokens, key in zip((tokens, key_tokens), places, strict=True)
                )
                tokens, key_tokens = (
                    stored_layers.with_words(self.name, axis_tokens, word_ids[key], key)
                    for axis_tokens, key in zip((tokens, key_tokens), word_ids, strict=True)
                )
                tokens, key_tokens = (
                    stored_layers.with_pair(self.name, axis_tokens, pairs[key], key)
                    for axis_tokens, key in zip((tokens, key_tokens), pairs, strict=True)
                )
            known_tokens[same] = tokens, key_tokens
        tokens, key_tokens = known_tokens[same]
        name = stored_layers.layer_name(file_layout.exported, file_layout.layers.index(stored), stored, own_metadata)
        where = f" of layer {stored.number}" if len(file_layout.layers) > 1 else ""
        for step, tensor in recorded.items():
            check_numbers(step, where, tensor, tokens, key_tokens)
        formula, problem = stored_layers.layer_formula(archive, file_layout.exported, stored, own_metadata, recorded)
        named = {"name": name, "tokens": tokens, "key_tokens": key_tokens}
        layer, note = build_layer(recorded, formula, self.max_bytes, bool(own_metadata.get("formula")), **named)
        if not any(step.axes == MAP_AXES for step in layer.steps):
            why = problem or note or "save key beside query, or weights"
            raise FileError(f"{quote(self.name)} has no weights and no scores{where}: {why}")
        return layer, problem or note


def _with_mask(recorded: dict[str, Tensor], mask: GivenMask, layer: int) -> dict[str, Tensor]:
    """The tensors of a layer with the mask as it is read: its cells, or a bias beside the one of the file."""
    visible, bias, _ = mask.of_layer(layer)
    others = {step: tensor for step, tensor in recorded.items() if step != "mask"}
    if visible is not None:
        return others | {"mask": visible}
    assert bias is not None
    return others | {"bias": bias + others["bias"] if "bias" in others else bias}


def _file_notes(name: str, archive: Archive, file_layout: Layout) -> list[str]:
    """The notes on the file as a whole."""
    saved_notes = archive.metadata.get("notes") if file_layout.exported else None
    notes = (
        [note[:1000] for note in saved_notes[:_MAX_NOTES] if isinstance(note, str)]
        if isinstance(saved_notes, list)
        else []
    )
    if file_layout.unused:
        listed = ", ".join(map(quote, file_layout.unused[:6])) + (", …" if len(file_layout.unused) > 6 else "")
        notes.append(f"These arrays of {quote(name)} are not used: {listed}.")
    places = file_layout.layers[0].places
    if not file_layout.exported and places.keys() == {WEIGHTS} and places[WEIGHTS].entry != WEIGHTS:
        notes.append(f"The one array of {quote(name)} is read as weights.")
    return notes


def _row_sum_notes(file_layout: Layout, layers: list[Layer], archive: Archive) -> list[str]:
    """A note if rows of recorded weights do not sum to 1."""
    odd_sums: list[float] = []
    for stored, layer in zip(file_layout.layers, layers, strict=True):
        if WEIGHTS not in layer.recorded or layer.formula is not None:
            continue
        low_precision = archive.arrays[stored.places[WEIGHTS].entry].kind.low_precision
        sums = layer[WEIGHTS].sum(dim=-1).flatten()
        odd_sums += sums[(sums - 1).abs() > (0.01 if low_precision else 1e-3)].tolist()
    if not odd_sums:
        return []
    rows = f"{len(odd_sums):,} rows of weights sum" if len(odd_sums) > 1 else "1 row of weights sums"
    return [
        f"{rows} to a value other than 1, from {min(odd_sums):.3g} to {max(odd_sums):.3g}: they are shown unchanged, not renormalised."
    ]
