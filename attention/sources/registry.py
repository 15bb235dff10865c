"""All sources, one line of the table for each; all their knobs, in the order of their keys in links; and a link as a source.

Each source declares its own knobs. Features add sources, with their knobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from attention.base.knobs import ChoiceAmong, Knob, Limits
from attention.features import features
from attention.formula import config
from attention.media import media
from attention.sources import Source, file, matrices, model, typed_text
from attention.sources.file import AXES, FILE, TABLE_MEANS
from attention.sources.layer_knobs import FROZEN, INTERVENTIONS, OTHER, PREFIX_LEN, SEQUENCE, TEXT, TEXT2
from attention.sources.matrices import DIVISOR, LABELS, MASK_MEANS, MATRICES, MATRIX_HEADS, MATRIX_KIND, VALID_KEYS
from attention.sources.model import (
    GENERATE,
    GENERATE_SEED,
    GENERATE_TEMPERATURE,
    MODEL,
    PREDICT,
    READS,
    SPANS,
    SPECIAL,
    WORDS,
)
from attention.sources.reader import Reader, SourceKind
from attention.sources.typed_text import LOWERCASE, PAD

_KINDS = (typed_text.KIND, model.KIND, matrices.KIND, file.KIND)


@cache
def source_kinds() -> dict[str, SourceKind]:
    """All sources by their names in links, in the order of the menu."""
    return {kind.name: kind for kind in (*_KINDS, *(kind for feature in features() for kind in feature.sources))}


def has_formula(source: str) -> bool:
    """Whether a source, by its name in a link, has a formula of its own; the name may be one that does not exist."""
    return source in source_kinds() and source_kinds()[source].has_formula


def has_knob(source: str, knob: Knob) -> bool:
    """Whether a source, by its name in a link, has this knob; the name may be one that does not exist."""
    return source_kinds()[source].has(knob) if source in source_kinds() else not knob.sources


def opening_source() -> str:
    """The source on which the bare address opens, by its name in links: the first one that has an opening, or the default."""
    return next((kind.name for kind in source_kinds().values() if kind.opening), SOURCE.default)


SOURCE = Knob(
    "source",
    "typed text",
    ChoiceAmong(lambda: tuple(source_kinds())),
    "Source",
    "Where the numbers come from.",
    order=0,
)

# fmt: off
_KNOBS = (
    SOURCE, MODEL, WORDS, SPECIAL, INTERVENTIONS, FROZEN, OTHER, SEQUENCE, TEXT, TEXT2, GENERATE, GENERATE_TEMPERATURE, GENERATE_SEED, PREFIX_LEN,
    PREDICT, LOWERCASE, PAD, *config.KNOBS, MATRIX_KIND, *MATRICES[:-1], LABELS, MATRIX_HEADS, DIVISOR, VALID_KEYS, FILE,
)
_LATER_KNOBS = (MATRICES[-1], MASK_MEANS, AXES, TABLE_MEANS, SPANS, READS)
# fmt: on


@cache
def all_knobs() -> tuple[Knob, ...]:
    """Every knob that selects or changes the source, in the order of their keys in a link: new ones go to the end of their table."""
    of_media = (medium.knob for medium in media())
    return (*_KNOBS, *of_media, *_LATER_KNOBS, *(knob for kind in source_kinds().values() for knob in kind.knobs))


def read_source(reader: Reader) -> Source:
    """The source that the knobs describe. Only the knobs of that source are read.

    Raises:
        AttentionError: the knobs contradict each other, a matrix cannot be read, or an upload is missing.
    """
    return source_kinds()[reader.knob(SOURCE)].read(reader)


def source_of(texts: Mapping[str, str], limits: Limits) -> tuple[Source, tuple[str, ...]]:
    """The source that a link describes, and a sentence for each value that was replaced.

    Args:
        texts: the values of a link or a state file, by key.
        limits: the operator's limits.

    Raises:
        AttentionError: the knobs contradict each other, or a matrix cannot be read.
    """
    reader = Reader(texts, limits)
    return read_source(reader), tuple(reader.notes.values())
