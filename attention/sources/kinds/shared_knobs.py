"""The knobs that several sources have."""

from __future__ import annotations

from attention.params.knob import Knob
from attention.params.ranges import Integer, Switch, Text
from attention.patching.intervention import InterventionCodes

# fmt: off
INTERVENTIONS = Knob("interventions", "", InterventionCodes(4000), help="The interventions on heads inside the model, such as 17.3.zero;5.*.t0.2.",
    sources=("model", "trained"), inline=True)
FROZEN = Knob(
    "frozen", False, Switch(), help="Frozen attention: later layers use the weights A of the unchanged model and the values V of the changed one.",
    sources=("model", "trained"), inline=True)
OTHER = Knob(
    "other", "", Text(limit="characters"),
    help="Activation patching: the text of the other run, with the same number of tokens. Interventions patch activations from that run.",
    sources=("model", "trained"), inline=True)
PREFIX_LEN = Knob(
    "prefix_len", None, Integer(0, optional=True), help="How many of the generated tokens the model reads, or which of its predictions is shown.",
    sources=("model", "trained"), inline=True)
SEQUENCE = Knob(
    "sequence", 0, Integer(0), "Sequence", "Each line, or each row of a batch, is one sequence.", ("typed text", "notebook"))
TEXT = Knob(
    "text", "the owl asked the moon and the moon blinked", Text(limit="characters", lines=3), "Text",
    "Each word and each punctuation mark becomes a token, and each line is a separate sequence; a model uses its own tokenizer. "
    "Press Ctrl+Enter, or click elsewhere, to apply it.", ("typed text", "model"))
TEXT2 = Knob(
    "text2", "", Text(limit="characters", lines=2), "Second text",
    "Cross-attention: queries come from the first text, keys and values from this one. Empty: the first text attends to itself. "
    "For an encoder-decoder model, the input of the decoder; empty: the tokens that the decoder generates.",
    ("typed text", "model"), section="A second text")
# fmt: on


def single_sequence_notes(index: str | None) -> tuple[str, ...]:
    """The note for a link that names another sequence where there is only one."""
    if index in (None, "0"):
        return ()
    return (f"The link asks for sequence “{index}”; there is only sequence 0, which is shown.",)
