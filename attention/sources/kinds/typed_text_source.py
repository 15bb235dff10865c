"""How the source "typed text" is read: its knobs, and the source that they describe."""

from __future__ import annotations

from attention.params.knob import Knob
from attention.params.ranges import Switch
from attention.sources.kinds.shared_knobs import TEXT, TEXT2
from attention.sources.kinds.source_kind import SourceKind
from attention.sources.layer_knobs import read_config
from attention.sources.reader import ParameterReader
from attention.sources.typed_text import TypedText

NAME = "typed text"
# fmt: off
LOWERCASE = Knob(
    "lowercase", True, Switch(), "Ignore upper case", "On: “The” and “the” are one word, with one embedding.",
    (NAME,), section="More knobs", order=110)
PAD = Knob(
    "pad", False, Switch(), "Pad to the same length", "Pad shorter lines with empty tokens ∅, which are hidden from every query.",
    (NAME,), section="More knobs", order=120)
# fmt: on


def read(reader: ParameterReader) -> TypedText:
    """The text with its config."""
    text = reader.knob(TEXT)
    sequence = reader.sequence(TypedText(text).sequences)
    config = read_config(reader, NAME)
    text2, lowercase, pad = (reader.knob(knob) for knob in (TEXT2, LOWERCASE, PAD))
    return TypedText(text, config, text2, lowercase, reader.limits.tokens, sequence, pad, reader.limits.trace_bytes)


KIND = SourceKind(NAME, read)
