"""The knobs of every source: what a link says of where numbers come from, beside the layer's own."""

from __future__ import annotations

from attention.formula import config
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice, Switch, Text, Whole
from attention.sources.cutting import SYMBOLS
from attention.sources.notebooks import NOTEBOOKS, Notebook

SOURCES = ("typed text", "notebook", "matrices")
GIVEN = {"X and weights": ("x", "w_q", "w_k", "w_v", "w_o"), "Q, K and V": ("query", "key", "value", "w_o")}
"""What a person's own matrices may be; the last may be left empty."""
UPLOADED = "uploaded"
"""In a link: which matrices are too long for it, and their sizes, such as x:512x64,w_q:64x64."""

# The integer matrices of the numpy notebook: small enough to work out by hand.
_MATRICES = {
    "x": "1,0,0;0,1,0;1,1,0;0,0,1",
    "w_q": "2,0,2;2,0,0;2,1,2",
    "w_k": "2,2,2;0,2,1;0,1,1",
    "w_v": "1,1,0;0,1,1;0,0,0",
    "w_o": "",
    "query": "2,0,2;2,0,0;4,0,2;2,1,2",
    "key": "2,2,2;0,2,1;2,4,3;0,1,1",
    "value": "1,1,0;0,1,1;1,2,1;0,0,0",
}
LONGEST_MATRIX = 20_000  # characters; more would make a field slow

_PASTE = (
    "As it was published: CSV, cells of a spreadsheet, a list such as [[1, 0], [0, 1]], what NumPy, torch, TensorFlow, "
    "pandas or R print, LaTeX, a Markdown table, or a whole cell of a notebook."
)
_TYPED, _PUBLISHED, _GIVEN = (("typed text",), ("notebook",), ("matrices",))

# fmt: off
SOURCE = Knob("source", "typed text", Choice(SOURCES), "Source", "Where the numbers come from.", place=0)
NOTEBOOK = Knob(
    "notebook", "self-attention-class", Choice(NOTEBOOKS, tuple(Notebook(name).title for name in NOTEBOOKS)),
    "Notebook", "One of the five “attention from scratch” notebooks, to the digit.", _PUBLISHED)
SEQUENCE = Knob(
    "sequence", 0, Whole(0), "Sequence", "Each line, or each row of a batch, is one sequence.", (*_TYPED, *_PUBLISHED))
TEXT = Knob(
    "text", "the owl asked the moon and the moon blinked", Text(limit="characters", lines=3), "Text",
    "Each word and each punctuation mark becomes a token; each line is a sequence of its own. "
    "Ctrl+Enter, or a click elsewhere, shows it.", _TYPED)
TEXT2 = Knob(
    "text2", "", Text(limit="characters", lines=2), "Second text",
    "Cross-attention: queries come from the first text, keys and values from this one. Empty: the first text attends to itself.",
    _TYPED, fold="A second text")
LOWERCASE = Knob(
    "lowercase", True, Switch(), "Ignore upper case", "On: “The” and “the” are one word, with one embedding.",
    _TYPED, fold="More knobs", place=110)
PAD = Knob(
    "pad", False, Switch(), "Pad to the same length", "Shorter lines are filled with empty tokens ∅ that no query sees.",
    _TYPED, fold="More knobs", place=120)
GIVES = Knob(
    "given", "X and weights", Choice(tuple(GIVEN)), "You have",
    "The input and its projections, or queries, keys and values as they are.", _GIVEN)
LABELS = Knob("labels", "", Text(2000), "Names of the tokens", "Separated by blanks. Empty: x0, x1, …", _GIVEN)
MATRICES = tuple(
    Knob(name, text, Text(LONGEST_MATRIX, lines=4), f"Paste {SYMBOLS[name]}", _PASTE, _GIVEN) for name, text in _MATRICES.items())
# fmt: on

KNOBS = (SOURCE, NOTEBOOK, SEQUENCE, TEXT, TEXT2, LOWERCASE, PAD, *config.KNOBS, GIVES, *MATRICES, LABELS)
"""Every knob that makes a source another one."""
