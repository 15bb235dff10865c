"""Source "file": attention that was saved by another library or exported from the Lab; its knobs, and how it is read.

Recorded values are shown unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from math import prod
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

from attention.base.cache import CACHE
from attention.base.errors import AttentionError, AwaitedError, AxesError, FileError
from attention.base.knobs import Choice, Knob, Text
from attention.base.pieces import joins_of_ids
from attention.base.tokens import Letter, PairToken, Piece, Placed
from attention.files import labelled, saved_pictures
from attention.files.archives import Archive, in_memory, is_torch_file, quote
from attention.files.given_mask import MEANINGS, GivenMask, MaskSizes
from attention.files.plan import MAX_CHARACTERS, MAX_LAYERS, Plan, metadata_by_number, read_plan, saved_spans
from attention.files.reading_cost import ReadingCost, of_text
from attention.files.saved_pictures import PATCHES
from attention.files.stored_names import PAIRS, RESIDUES, WORD_IDS, AxisTokens, are_tokens, clean, length_error
from attention.formula.formula import Formula
from attention.formula.names import WEIGHTS
from attention.formula.override import Override
from attention.formula.steps import declared
from attention.sources import Source
from attention.sources.layer_knobs import read_override, read_sequence
from attention.sources.matrices import MASK_MEANS
from attention.sources.reader import Reader, SourceKind
from attention.trace.layer import Layer
from attention.trace.trace import SeenPicture, Trace

if TYPE_CHECKING:
    from torch import Tensor

    from attention.files.read_layers import GivenLayer
    from attention.program.literals import Snippet

T = TypeVar("T")
_MAX_HEADS = 1024
_MAX_NOTES = 20  # of an export
_TEXT_SECONDS = 6e-7  # for a number of a table or of JSON, which is read twice: for its size, and for its trace
_SIDES = ("query_pos", "key_pos")


@dataclass(frozen=True)
class File(Source):
    """A file with the attention of some layers: weights; queries, keys and values; scores; or an export of the Lab.

    An array has the axes of its step, such as weights [head query_pos key_pos], optionally with a first axis of layers; an array of
    one head may lack the head axis. `mask`, `divisor` or `scaling`, `tokens` and `key_tokens` are optional. The notes of the trace say how
    the axes and the mask were read. Two files are equal if their bytes are, and these readings.

    Attributes:
        name: file name; its extension selects the reader.
        digest: hash of the bytes.
        max_bytes: memory of all arrays; a larger file is refused before an array is unpacked.
        max_tokens: limit of queries, and of keys.
        content: the bytes, of a file of torch.save as .safetensors; without them there is no trace.
        config: overrides of the formula of the layers.
        axes: the names of the axes in their order, if they are others, such as "layer batch head query key" or "head query key"; batch=1 takes
            one sentence, and "pos head width" is for query, key and value (`attention.files.plan._parse_axes`).
        parsed: what was read from a text that takes long to read; then there is no `content`.
        table_means: what the numbers of a table (.csv, .tsv, .txt) are, one of `attention.files.labelled.MEANINGS`: "numbers" (what they say),
            "weights" or "scores".
        mask_means: what 1 means in the mask, one of `attention.files.given_mask.MEANINGS`: "numbers" (what they say), "keep", "hide", or "add".
        sequence: which one is shown, where the file has several, counted from 0.
    """

    name: str
    digest: str
    max_bytes: int = 2**33
    max_tokens: int = 4096
    content: bytes = field(default=b"", compare=False, repr=False)
    config: Override = field(default_factory=Override)
    axes: str = ""
    mask_means: str = MEANINGS[0]
    sequence: int = 0
    table_means: str = labelled.MEANINGS[0]
    parsed: Archive | None = field(default=None, compare=False, repr=False)

    @classmethod
    def open(
        cls,
        path: str | Path,
        max_bytes: int = 2**33,
        max_tokens: int = 4096,
        axes: str = "",
        mask_means: str = MEANINGS[0],
        sequence: int = 0,
        table_means: str = labelled.MEANINGS[0],
    ) -> File:
        """The file at a path. One of torch.save (.pt) is a pickle: it is read in a process of its own, and none of its code runs.

        Raises:
            FileError: the file does not exist, is larger than `max_bytes`, or is one of torch.save that cannot be read.
        """
        file_path = Path(path)
        try:
            if file_path.stat().st_size > max_bytes:
                raise FileError(
                    f"{quote(file_path.name)} has {file_path.stat().st_size:,} bytes; at most {max_bytes:,} are read: save a part of it."
                )
            if is_torch_file(file_path.name):  # it may have gigabytes beside its attention
                from attention.files.torch_file import as_safetensors  # imports torch

                content = as_safetensors(file_path, file_path.name, max_bytes)
            else:
                content = file_path.read_bytes()
            file = cls.of(file_path.name, content, max_bytes, max_tokens)
            return replace(file, axes=axes, mask_means=mask_means, sequence=sequence, table_means=table_means)
        except OSError as error:
            raise FileError(
                f"{quote(file_path.name)} cannot be opened ({error.strerror}): give the path of a file."
            ) from None

    @classmethod
    def of(
        cls, name: str, content: bytes, max_bytes: int = 2**33, max_tokens: int = 4096, opens_torch: bool = False
    ) -> File:
        """A file from its name and its bytes.

        Args:
            opens_torch: whether a file of torch.save may be read, as by `open`; otherwise its trace is an error that says how to convert it.

        Raises:
            FileError: the file is one of torch.save that cannot be read.
        """
        if opens_torch and is_torch_file(name):
            from attention.files.torch_file import as_safetensors  # imports torch

            content = as_safetensors(content, name, max_bytes)
        return cls(name, blake2b(content, digest_size=16).hexdigest(), max_bytes, max_tokens, content)

    @property
    def nbytes(self) -> int:
        """The bytes that the file takes, without its trace."""
        arrays = self.parsed.arrays.values() if self.parsed else ()
        return len(self.content) + sum(entry.nbytes for entry in arrays)

    def memory_bytes(self) -> int:
        """The bytes that the trace takes while it is computed, counted in advance."""

        def count() -> int:
            return self.nbytes + self._array_bytes(*self._read())

        return self._cached("bytes", count)  # every run of a page asks for it

    def plan(self) -> Plan:
        """How the file is read: what each array is, its axes, what is not used; `print(file.plan().text())` shows it.

        Raises:
            FileError: as for `trace`, for problems with names and sizes.
        """
        return self._plan(None)

    @property
    def sequences(self) -> tuple[str, ...]:
        """A label for each sequence that the file has; empty where it has one.

        Raises:
            FileError: as for `plan`.
        """
        return replace(self, sequence=0).plan().sequences

    def trace(self) -> Trace:
        """Every layer of the file. Integers and doubles are read as float64, all other numbers as float32, without loss.

        An export of the Lab has its formula and reproduces the same digits. From queries and keys, or scores, the formula computes the
        steps that the file lacks. Weights alone are shown as recorded; nothing is renormalized.

        Raises:
            FileError: the file has no attention, exceeds a limit, or holds numbers that cannot be drawn.
            ShapeError: its arrays and tokens do not fit together.
        """
        from attention.files.read_layers import looks_otherwise, read_layers  # imports torch

        archive, plan = self._read()
        self._array_bytes(archive, plan)
        pictures = saved_pictures.read_pictures(self.name, archive) if plan.exported else ()
        masks = self._masks(archive, plan)
        given = self._given_layers(archive, plan, masks, pictures)
        layers, problems, row_sums = read_layers(given, quote(self.name), len(plan.layers) > 1, self.max_bytes)
        notes = [*_saved_notes(archive, plan), *archive.notes, plan.unused_note, *problems]
        notes += [*plan.notes, plan.axes_note([mask.axes for mask in masks]), *(mask.note for mask in masks)]
        notes += ["" if plan.exported else looks_otherwise(plan, layers), row_sums]
        random = archive.metadata.get("random") is True and plan.exported
        first = next(layer for layer in layers if layer.has_attention)
        trace = Trace(first.tokens, layers, first.key_tokens, random, tuple(filter(None, notes)), pictures=pictures)
        if plan.exported:
            trace = trace.with_spans(saved_spans(self.name, archive.metadata.get("spans")))
        return trace.with_config(self.config)

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """The beginning of a Python program that computes a layer of the trace: it loads the file."""
        from attention.program import saved_file

        archive, plan = self._read()
        masks = zip(plan.masks, self._masks(archive, plan), strict=True)
        pythons = [(place, mask.of_layer(layer).python) for place, mask in masks]
        return saved_file.file(self.name, archive, plan.layers[layer], trace.layers[layer], pythons)

    def _read(self) -> tuple[Archive, Plan]:
        archive = self._archive()
        return archive, self._plan(archive)

    def _archive(self) -> Archive:
        if self.parsed:
            return labelled.as_meant(self.parsed, self.table_means, self.axes)
        if not self.content and self.digest == blake2b(digest_size=16).hexdigest():
            raise FileError(f"{quote(self.name)} is empty: save it again, and use the complete file.")
        if not self.content:
            raise FileError(
                f"{quote(self.name)} has no content, only its digest {self.digest[:8]}…: open it with File.open(path)."
            )
        return labelled.as_meant(labelled.open_file(self.name, self.content), self.table_means, self.axes)

    def _plan(self, archive: Archive | None) -> Plan:
        """How the file is read, cached, since every run of a page asks for its sequences."""

        def read() -> Plan:
            return read_plan(self.name, archive or self._archive(), self.axes, self.sequence, self.max_bytes)

        return self._cached("plan", read)

    def _cached(self, what: str, compute: Callable[[], T]) -> T:
        readings = self.axes, self.sequence, self.table_means, self.max_bytes, self.max_tokens
        key = what, self.name, self.digest, *readings
        return CACHE.get_or_compute(key, compute) if self.digest else compute()

    def _masks(self, archive: Archive, plan: Plan) -> list[GivenMask]:
        """The masks of a file that is no export of the Lab, for all its layers."""
        if not plan.masks:
            return []
        n_layers = len(plan.layers) if plan.has_layer_axis else None
        sizes = MaskSizes.of(n_layers, plan.layers[0].lengths)
        return [
            GivenMask.of(
                place.select({place.entry: archive.arrays[place.entry].load()}), sizes, self.mask_means, place.entry
            )
            for place in plan.masks
        ]

    def _array_bytes(self, archive: Archive, plan: Plan) -> int:
        """The bytes of the arrays that are used."""
        places = [(step, place) for stored in plan.layers for step, place in stored.places.items()]
        # A part of an array is copied from it.
        copied = {entry: place.is_copied for _, place in places for entry, _ in place.parts}
        total_bytes = sum(archive.arrays[key].nbytes * (1 + is_copied) for key, is_copied in copied.items())
        total_bytes += sum(prod(place.shape) * 8 for _, place in places if place.is_padded)
        # Masks are read as doubles, for all layers.
        total_bytes += sum(16 * prod(archive.arrays[place.entry].shape) for place in plan.masks)
        total_bytes += sum(saved_pictures.entries(archive).values()) if plan.exported else 0
        if total_bytes > self.max_bytes:
            raise FileError(
                f"{quote(self.name)} would take {total_bytes / 2**20:,.0f} MB in memory; at most {self.max_bytes / 2**20:,.0f} MB are read: "
                "save fewer layers, heads or tokens."
            )
        for step, shape in {(step, place.shape) for step, place in places}:
            sizes = dict(zip(declared(step).axes, shape, strict=True))
            longest = max((sizes.get(axis, 0) for axis in _SIDES), default=0)
            if longest > self.max_tokens or sizes.get("head", 0) > _MAX_HEADS:
                raise FileError(
                    f"{step} in {quote(self.name)} has {longest:,} positions and {sizes.get('head', 1):,} heads; at most {self.max_tokens:,} and "
                    f"{_MAX_HEADS:,} are shown: save a part of it."
                )
        return total_bytes

    def _given_layers(
        self, archive: Archive, plan: Plan, masks: Sequence[GivenMask], pictures: Sequence[SeenPicture]
    ) -> Iterator[GivenLayer]:
        """The tensors of each layer, with its name, its tokens and the formula that may have computed them."""
        from attention.files.read_layers import GivenLayer

        entries = {entry for stored in plan.layers for place in stored.places.values() for entry, _ in place.parts}
        tensors = {key: archive.arrays[key].load() for key in entries}
        described = metadata_by_number(archive) if plan.exported else {}
        known: dict[tuple[object, ...], AxisTokens] = {}
        for position, stored in enumerate(plan.layers):
            if stored.mixer:
                yield GivenLayer(stored.number, mixer=stored.mixer)
                continue
            recorded = {step: place.select(tensors) for step, place in stored.places.items()}
            for mask in masks:
                recorded = mask.put_into(recorded, position)
            for step, tensor in recorded.items():
                is_mask = step == "mask"
                recorded[step] = tensor != 0 if is_mask else tensor.double() if tensor.dtype.itemsize == 1 else tensor
            tokens = stored.axis_tokens or _exported_tokens(
                self.name, archive, described.get(stored.number, {}), Layer(recorded=recorded).sizes, pictures, known
            )
            yield GivenLayer(
                stored.number,
                stored.name,
                recorded,
                *tokens,
                *_formula(archive, plan, position, recorded),
                has_formula=stored.has_formula,
                low_precision=WEIGHTS in stored.places and stored.places[WEIGHTS].low_precision,
            )


def reading_cost(name: str, content: bytes) -> ReadingCost:
    """What `parsed_file` takes: arrays in binary form are read where they lie, and each only when it is needed."""
    is_text = PurePath(name).suffix.lower() in labelled.TEXT_EXTENSIONS
    return of_text(content, _TEXT_SECONDS) if is_text else ReadingCost(0, 0)


def parsed_file(
    content: bytes, name: str, max_bytes: int, max_tokens: int, opens_torch: bool, keeps_text: bool
) -> File:
    """The file of these bytes, if the names and sizes of its arrays show that it can be used.

    Args:
        content, name, max_bytes, max_tokens, opens_torch: as in `File.of`.
        keeps_text: whether a text stays one, to be read anew for each trace; otherwise the file has its numbers instead.

    Raises:
        FileError: it cannot be used.
    """
    file = File.of(name, content, max_bytes, max_tokens, opens_torch)
    if not keeps_text:
        file = replace(file, content=b"", parsed=in_memory(file._archive()))
    with suppress(AxesError):  # the page asks for the names of the axes
        file.memory_bytes()
    return file


def _formula(archive: Archive, plan: Plan, position: int, recorded: Mapping[str, Tensor]) -> tuple[Formula | None, str]:
    """The formula that may have computed a layer, and a sentence on one that cannot be read: that of an export; otherwise the usual one, with numbers such as a divisor."""
    from attention.files.read_layers import usual_formula

    stored = plan.layers[position]
    if stored.has_formula:
        return stored.formula, stored.problem
    prefix, index = (f"L{stored.number}.", stored.number) if plan.exported else ("", position)
    return usual_formula(recorded, lambda name: _number(archive, f"{prefix}{name}", index)), ""


def _number(archive: Archive, key: str, layer: int) -> float | None:
    """A positive number for all layers, or one from a list for each layer; None if it is absent."""
    entry = archive.arrays.get(key)
    value: Any = archive.metadata.get(key)
    if entry is not None and prod(entry.shape) <= MAX_LAYERS:
        numbers = entry.load().flatten().tolist()
        value = numbers[layer] if layer < len(numbers) else numbers[0] if len(numbers) == 1 else numbers
    if value is None:
        return None
    if value == "inf" or (value == math.inf and key.endswith("temperature")):
        return math.inf
    if type(value) not in (int, float) or not 0 < value < math.inf:
        raise FileError(
            f"{key} needs a positive number, or one for each layer; got {quote(str(value))}: save such a number, or leave it out."
        )
    return float(value)


def _exported_tokens(
    name: str,
    archive: Archive,
    layer: Mapping[str, Any],
    sizes: Mapping[str, int],
    pictures: Sequence[SeenPicture],
    known: dict[tuple[object, ...], AxisTokens],
) -> AxisTokens:
    """The tokens of the queries and of the keys of a layer of an export: texts, with their places in pictures, their words, and their texts of a pair; or numbered labels.

    Raises:
        FileError: they are not texts, their number differs from that of the positions, or the file says something else about them.
    """
    described = layer if "tokens" in layer else archive.metadata
    texts = {**archive.metadata, **{key: layer[key] for key in layer.keys() & PATCHES}}
    # Layers share the tokens that they have from the same lists: a thousand copies of thousands of patches would take gigabytes.
    lists = (
        *map(texts.get, PATCHES),
        *map(described.get, (*PATCHES.values(), *WORD_IDS.values(), *PAIRS.values(), *RESIDUES.values())),
    )
    same = *map(id, lists), *map(sizes.get, _SIDES)
    if same in known:
        return known[same]
    labels, sides = list[list[str]](), list[tuple[str, ...]]()
    for key, axis, letter in zip(PATCHES, _SIDES, "xk", strict=True):
        size = sizes.get(axis, sizes.get("key_pos", 1))
        saved = texts.get(key)
        if saved is None:
            saved = labels[0] if labels and size == len(labels[0]) else [f"{letter}{i}" for i in range(size)]
        if not are_tokens(saved) or len(saved) != size:
            raise length_error(name, key, size, saved)
        labels.append(saved)
        places = PATCHES[key]
        tokens = saved_pictures.with_places(name, clean(saved), described.get(places), pictures, places)
        sides.append(_with_marks(name, tokens, described, key))
    known[same] = sides[0], sides[1]
    return known[same]


def _with_marks(name: str, tokens: tuple[str, ...], described: Mapping[str, Any], side: str) -> tuple[str, ...]:
    """The tokens of an axis as pieces of words, as those of a pair of texts, and as residues, where the export says so.

    Raises:
        FileError: it says something else, or not of each token.
    """

    def marks(key: str, what: str, is_valid: Callable[[Any], bool]) -> list[Any]:
        saved = described.get(key)
        if saved is None or (isinstance(saved, list) and len(saved) == len(tokens) and all(map(is_valid, saved))):
            return saved or []
        raise FileError(
            f"{key} in {quote(name)} needs {what} for each of {len(tokens):,} tokens; got {quote(str(saved))}: save the trace again."
        )

    if word_ids := marks(WORD_IDS[side], "the number of a word", lambda number: number is None or type(number) is int):
        joined = zip(tokens, joins_of_ids(word_ids), strict=True)
        tokens = tuple(each if isinstance(each, Placed) else Piece(each, joins, "the word_ids of the file") for each, joins in joined)  # fmt: skip
    if texts := marks(PAIRS[side], "A, B or an empty text", lambda text: text in ("", "A", "B")):
        tokens = tuple(PairToken(each, text) if text else each for each, text in zip(tokens, texts, strict=True))
    if numbers := marks(RESIDUES[side], "a number from 0", lambda number: type(number) is int and number >= 0):
        tokens = tuple(Letter(each, number) if number else each for each, number in zip(tokens, numbers, strict=True))
    return tokens


def _saved_notes(archive: Archive, plan: Plan) -> list[str]:
    saved = archive.metadata.get("notes") if plan.exported else None
    return [note[:1000] for note in saved[:_MAX_NOTES] if isinstance(note, str)] if isinstance(saved, list) else []


NAME = "file"
AXES = Knob(
    "axes", "", Text(MAX_CHARACTERS), "Axes",
    "Only if they were read wrongly: the names of the axes in their order, such as head key query. A batch is left out by its name (layer batch head query key), "
    "and one of its sentences is taken with batch=1. Axes of query, key and value follow after a comma: batch pos head width.",
    (NAME,), section="More knobs", order=10, placeholder="layer head query key")  # fmt: skip
TABLE_MEANS = Knob(
    "table_means", labelled.MEANINGS[0], Choice(labelled.MEANINGS, ("what its numbers say", *labelled.MEANINGS[1:])), "The table means",
    "Of a text file (.csv, .tsv, .txt): a table without negative numbers, whose rows sum to 1, has weights; another one has scores, of which the softmax makes weights.",
    (NAME,), section="More knobs", order=50)  # fmt: skip
FILE = Knob("file", "", Text(300), help="The displayed file, as name:digest.", sources=(NAME,), inline=True)


def read(reader: Reader) -> File:
    """The uploaded file, with overrides of its formula.

    Raises:
        AwaitedError: the file has not been uploaded.
    """
    axes, mask_means, table_means = map(reader.knob, (AXES, MASK_MEANS, TABLE_MEANS))
    asked = reader.knob(FILE)
    file: File | None = reader.uploads.file
    if file is None or asked != link_name(file):
        name, _, digest = asked.rpartition(":")
        if not name:
            raise AwaitedError(
                f"A file with saved attention ({', '.join(labelled.EXTENSIONS)}): upload it, and every page shows it."
            )
        raise AwaitedError(
            f"The link shows the file {quote(name)} (digest {digest[:8]}…), which is not on this server: upload it to open the link."
        )
    file = replace(file, axes=axes, mask_means=mask_means, table_means=table_means)
    names: tuple[str, ...] = ()
    with suppress(AttentionError):  # the trace says what is wrong
        names = file.sequences
    return replace(file, sequence=read_sequence(reader, names), config=read_override(reader, KIND))


KIND = SourceKind(NAME, read, has_formula=True)


def link_name(file: File) -> str:
    """The name and the digest of a file, as in a link."""
    return f"{file.name}:{file.digest}"
