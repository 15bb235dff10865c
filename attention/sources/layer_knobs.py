"""The knobs of several sources, and those of a layer, read as a config or as an override of a source's formula."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from attention.base.knobs import Choice, Integer, Knob, Switch, Text
from attention.formula import config, override
from attention.formula.config import AttentionConfig
from attention.formula.override import Override
from attention.patching.intervention import InterventionCodes
from attention.sources.reader import Divisors, Reader, SourceKind

# fmt: off
INTERVENTIONS = Knob("interventions", "", InterventionCodes(4000), help="The interventions on heads inside the model, such as 17.3.zero;5.*.t0.2.",
    sources=("model",), inline=True)
FROZEN = Knob(
    "frozen", False, Switch(), help="Frozen attention: later layers use the weights A of the unchanged model and the values V of the changed one.",
    sources=("model",), inline=True)
OTHER = Knob(
    "other", "", Text(limit="characters"),
    help="Activation patching: the text of the other run, with the same number of tokens. Interventions patch activations from that run.",
    sources=("model",), inline=True)
PREFIX_LEN = Knob(
    "prefix_len", None, Integer(0, optional=True), help="How many of the generated tokens the model reads, or which of its predictions is shown.",
    sources=("model",), inline=True)
SEQUENCE = Knob(
    "sequence", 0, Integer(0), "Sequence", "Each line, each row of a batch, or each sentence of a file is one sequence.",
    ("typed text", "file"))
TEXT = Knob(
    "text", "the owl asked the moon and the moon blinked", Text(limit="characters", lines=3), "Text",
    "Each word and each punctuation mark becomes a token, and each line is a separate sequence; a model uses its own tokenizer. "
    "It is applied while you type; Ctrl+Enter applies it at once.", ("typed text", "model"))
TEXT2 = Knob(
    "text2", "", Text(limit="characters", lines=2), "Second text",
    "Cross-attention: queries come from the first text, keys and values from this one. Empty: the first text attends to itself. "
    "An encoder such as BERT reads both as a pair, A and B. "
    "For an encoder-decoder model, the input of the decoder; empty: the tokens that the decoder generates.",
    ("typed text", "model"), section="A second text")
# fmt: on


def read_sequence(reader: Reader, names: Sequence[str]) -> int:
    """The index of the chosen one of these sequences; 0 where there is only one."""
    if len(names) < 2:
        return int(reader.knob(SEQUENCE, Integer(0, 0)))
    labels = tuple(f"{i}: {name}" if name else str(i) for i, name in enumerate(names))
    return int(reader.knob(SEQUENCE, Choice(tuple(range(len(names))), labels)))


@cache
def layer_knobs(kind: SourceKind) -> tuple[Knob, ...]:
    """The layer knobs of a source. Those of a source with its own formula are the overrides, whose defaults change nothing."""
    return tuple(knob for knob in (override.KNOBS if kind.has_formula else config.KNOBS) if kind.has(knob))


@cache
def inline_knobs(kind: SourceKind) -> tuple[Knob, ...]:
    """The knobs on the page above the maps: those of the source's layer, and the other layer knobs that it has."""
    layer = layer_knobs(kind)
    known = {knob.key for knob in layer}
    others = (knob for knob in config.KNOBS if kind.has(knob) and knob.key not in known)
    return tuple(knob for knob in (*layer, *others) if knob.inline and knob.label)


def read_config(reader: Reader, kind: SourceKind) -> AttentionConfig:
    """The config of the layer knobs of a source. Knobs on the page come before those in the sidebar, since heads must divide d_model."""
    values: dict[str, Any] = {}
    declared = {knob.name: knob for knob in layer_knobs(kind)}
    identity = "init" in declared and reader.texts.get(declared["init"].key) == "identity"
    fixed_values = {"n_heads": "1", "n_kv_heads": "1", "d_k": "d_model", "d_v": "d_model"} if identity else {}
    for knob in sorted(declared.values(), key=lambda knob: (not knob.inline, knob.order)):
        fixed_value = fixed_values.get(knob.name, "")
        if knob.name == "n_heads":
            values[knob.name] = reader.divisor(
                knob, Divisors.heads(values["d_model"], reader.limits.heads), fixed_value
            )
        elif knob.name == "n_kv_heads":
            values[knob.name] = reader.divisor(knob, Divisors.shared(values["n_heads"]), fixed_value)
        else:
            values[knob.name] = reader.knob(knob, fixed=fixed_value)
    return AttentionConfig(**{**values, **({"d_k": None, "d_v": None} if identity else {})})


def read_override(reader: Reader, kind: SourceKind) -> Override:
    """The override of the formula that comes with the source."""
    return Override(**{knob.name: reader.knob(knob) for knob in layer_knobs(kind)})
