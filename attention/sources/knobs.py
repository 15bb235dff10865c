"""The knobs of every source: what a link says of where numbers come from, beside the layer's own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from attention.formula import config, what_if
from attention.formula.intervention import Changes
from attention.formula.knobs import Knob
from attention.formula.merging import SPECIAL as SPECIALS
from attention.formula.names import KEY, MEMORY, QUERY, SCORES, VALUE
from attention.formula.prediction import MOST_GENERATED
from attention.formula.ranges import Choice, Named, Places, Range, Real, Switch, Text, Whole
from attention.sources.cutting import SYMBOLS
from attention.sources.notebooks import NOTEBOOKS, Notebook
from attention.training.plan import MOST_STEPS
from attention.training.tasks import CONTROLS, LONGEST_OWN, TASKS
from attention.training.tasks.task import Task

SOURCES = ("typed text", "model", "notebook", "matrices", "file", "trained")
CALLED = {"trained": "trained model"}
"""What a source is called where its name is no noun."""
GIVEN = {
    "X and weights": ("x", "w_q", "w_k", "w_v", "w_o"),
    "Q, K and V": (QUERY, KEY, VALUE, "w_o"),
    "X alone": ("x", "w_o"),
    "scores and V": (SCORES, VALUE, "w_o"),
}
"""What a person's own matrices may be; W_O may be left empty."""
MORE = {
    "X and weights": (MEMORY, "b_q", "b_k", "b_v", "b_o", "bias", "dropout_mask"),
    "Q, K and V": ("b_o", "bias", "dropout_mask"),
    "X alone": (MEMORY, "b_o", "bias", "dropout_mask"),
    "scores and V": ("b_o", "bias", "dropout_mask"),
}
"""What may stand beside them; all of it may be left empty."""
UPLOADED = "uploaded"
"""In a link: which matrices are too long for it, and their sizes, such as x:512x64,w_q:64x64."""

# The integer matrices of the numpy notebook: small enough to work out by hand.
_MATRICES = {
    "x": "1,0,0;0,1,0;1,1,0;0,0,1",
    "w_q": "2,0,2;2,0,0;2,1,2",
    "w_k": "2,2,2;0,2,1;0,1,1",
    "w_v": "1,1,0;0,1,1;0,0,0",
    "w_o": "",
    QUERY: "2,0,2;2,0,0;4,0,2;2,1,2",
    KEY: "2,2,2;0,2,1;2,4,3;0,1,1",
    VALUE: "1,1,0;0,1,1;1,2,1;0,0,0",
    SCORES: "8,2,10,2;4,0,4,0;12,2,14,2;10,4,14,3",
    **dict.fromkeys((MEMORY, "b_q", "b_k", "b_v", "b_o", "bias", "dropout_mask"), ""),
}
LONGEST_MATRIX = 20_000  # characters; more would make a field slow

_PASTE = (
    "As it was published: CSV, cells of a spreadsheet, a list such as [[1, 0], [0, 1]], what NumPy, torch, TensorFlow, "
    "pandas or R print, LaTeX, a Markdown table, or a whole cell of a notebook."
)
_TYPED, _MODEL, _PUBLISHED, _GIVEN, _SAVED = (("typed text",), ("model",), ("notebook",), ("matrices",), ("file",))
_LEARNED = ("trained",)

# fmt: off
SOURCE = Knob("source", "typed text", Choice(SOURCES), "Source", "Where the numbers come from.", place=0)
NOTEBOOK = Knob(
    "notebook", "self-attention-class", Choice(NOTEBOOKS, tuple(Notebook(name).title for name in NOTEBOOKS)),
    "Notebook", "One of the five “attention from scratch” notebooks, to the digit.", _PUBLISHED)
MODEL = Knob(
    "model", "all-MiniLM-L6-v2", Named(300), "Model",
    "One that this server has; or, where its operator allows it, a folder with config.json and *.safetensors.", _MODEL)
WORDS = Knob(
    "words", False, Switch(), "Pieces as words",
    "The pieces of a word are one row and one column: weights are summed over keys and averaged over queries, so that rows still sum to 1.",
    _MODEL)
SPECIAL = Knob(
    "special", "show", Choice(SPECIALS), "Special tokens",
    "Such as [CLS]. Hide: rows no longer sum to 1, and their sums stand beside the map. Renormalise: rows are divided by what is left.",
    _MODEL)
DO = Knob("interventions", "", Changes(4000), help="What is changed of heads inside the model, such as 17.3.zero;5.*.t0.2.",
    sources=(*_MODEL, *_LEARNED), held=True)
FROZEN = Knob(
    "frozen", False, Switch(), help="Later layers attend as in the unchanged model: A as there, V of now (frozen attention).",
    sources=(*_MODEL, *_LEARNED), held=True)
OTHER = Knob(
    "other", "", Text(limit="characters"),
    help="The text of the other state, of as many tokens: what an intervention takes comes from the same model reading it (activation patching).",
    sources=(*_MODEL, *_LEARNED), held=True)
SEQUENCE = Knob(
    "sequence", 0, Whole(0), "Sequence", "Each line, or each row of a batch, is one sequence.", (*_TYPED, *_PUBLISHED))
TEXT = Knob(
    "text", "the owl asked the moon and the moon blinked", Text(limit="characters", lines=3), "Text",
    "Each word and each punctuation mark becomes a token, and each line is a sequence of its own; a model cuts it by itself. "
    "Ctrl+Enter, or a click elsewhere, shows it.", (*_TYPED, *_MODEL))
TEXT2 = Knob(
    "text2", "", Text(limit="characters", lines=2), "Second text",
    "Cross-attention: queries come from the first text, keys and values from this one. Empty: the first text attends to itself. "
    "Of a model with an encoder and a decoder, what the decoder reads; empty: what it says by itself.",
    (*_TYPED, *_MODEL), fold="A second text")
GENERATE = Knob(
    "generate", 0, Whole(0, MOST_GENERATED), "Tokens to generate",
    "The model goes on by itself after the text, token by token; ▸ marks what it has said. 0: it only reads.", _MODEL, fold="Let it write")
GENERATE_TEMPERATURE = Knob(
    "generate_temperature", 0.0, Real(0, 5, means=("always the likeliest token", "nearly at random")), "Temperature of the draw",
    "0: the likeliest token each time (greedy). Otherwise tokens are drawn, from the softmax of the logits divided by it.", _MODEL, fold="Let it write")
GENERATE_SEED = Knob(
    "generate_seed", 0, Whole(0, 2**31 - 1), "Seed of the draw", "Another seed, another text; the same seed, the same text.", _MODEL, fold="Let it write")
SAID = Knob(
    "prefix_len", None, Whole(0, optional=True), help="Of what a model says itself, so many tokens are read: the text as it was then; or which of its predictions is looked at.",
    sources=(*_MODEL, *_LEARNED), held=True)
PREDICT = Knob(
    "predict", "", Places(200), help="The positions at which a model is asked what it says.", sources=_MODEL, held=True)
LOWERCASE = Knob(
    "lowercase", True, Switch(), "Ignore upper case", "On: “The” and “the” are one word, with one embedding.",
    _TYPED, fold="More knobs", place=110)
PAD = Knob(
    "pad", False, Switch(), "Pad to the same length", "Shorter lines are filled with empty tokens ∅ that no query sees.",
    _TYPED, fold="More knobs", place=120)
GIVES = Knob(
    "matrix_kind", "X and weights", Choice(tuple(GIVEN)), "You have",
    "The input and its projections; queries, keys and values as they are; one matrix that is all three; or the scores themselves.",
    _GIVEN)
GIVEN_HEADS = Knob(
    "given_heads", 1, Whole(1, limit="heads"), "Heads",
    "Your matrices are cut into so many heads by their columns, W_O by its rows, as nn.MultiheadAttention does.",
    _GIVEN, fold="More knobs", place=10)
DIVISOR = Knob(
    "divisor", None, Real(1e-6, 1e6, optional=True), "Divisor", "What the scores are divided by instead of √d_k.",
    _GIVEN, fold="More knobs", place=20, empty="√d_k")
VALID = Knob(
    "valid_keys", None, Whole(1, limit="tokens", optional=True), "Valid keys",
    "How many first keys are real; what comes after them is padding, which no query sees.",
    _GIVEN, fold="More knobs", place=30, empty="all")
LABELS = Knob("labels", "", Text(2000), "Names of the tokens", "Separated by blanks. Empty: x0, x1, …", _GIVEN)
MATRICES = tuple(
    Knob(name, text, Text(LONGEST_MATRIX, lines=4), f"Paste {SYMBOLS[name]}", _PASTE, _GIVEN) for name, text in _MATRICES.items())
TASK = Knob(
    "task", "reverse", Choice(tuple(TASKS), tuple(one.title for one in TASKS.values())), "Task",
    "What a tiny model learns, in a second or a few. The page Training shows it while it learns.", _LEARNED)
OWN_TEXT = Knob(
    "input", "", Text(LONGEST_OWN), "Your own", "What the trained model reads, as its task takes it. Empty: an example.", _LEARNED)
CONTROL = Knob("control", "", Choice(("", *CONTROLS)), "Control", "The same model but for one thing.", _LEARNED, fold="More knobs")
LEARNING_STEPS = Knob(
    "steps", None, Whole(1, MOST_STEPS, optional=True), "Steps", "How many batches it learns from.", _LEARNED,
    empty="as many as it needs")
SLIDERS = {
    "length": Knob("length", None, Whole(1, 64, optional=True), "Length", sources=_LEARNED, fold="More knobs"),
    "offset": Knob("offset", None, Whole(1, 64, optional=True), "k", sources=_LEARNED, fold="More knobs"),
}
AT = Knob(
    "at", None, Whole(0, MOST_STEPS, optional=True), "At step", "The model as it was after so many steps. Empty: the last.",
    _LEARNED, empty="the last")
SEED = next(one for one in config.KNOBS if one.key == "seed")
FILE = Knob("file", "", Text(300), help="The file that is shown, as name:digest.", sources=_SAVED, held=True)

KNOBS = (
    SOURCE, MODEL, WORDS, SPECIAL, DO, FROZEN, OTHER, NOTEBOOK, SEQUENCE, TEXT, TEXT2, GENERATE, GENERATE_TEMPERATURE, GENERATE_SEED, SAID,
    PREDICT, LOWERCASE, PAD, *config.KNOBS, GIVES, *MATRICES, LABELS, GIVEN_HEADS, DIVISOR, VALID, FILE, TASK, OWN_TEXT, AT, CONTROL,
    LEARNING_STEPS, *SLIDERS.values(),
)
# fmt: on
"""Every knob that makes a source another one."""


@cache
def above(source: str) -> tuple[Knob, ...]:
    """The knobs that stand above the maps: those of the layer that a source has, and what else of it a layer of other sources has."""
    layer = layer_of(source)
    known = {one.key for one in layer}
    others = (one for one in config.KNOBS if source in one.sources and one.key not in known)
    return tuple(one for one in (*layer, *others) if one.held and one.label)


@cache
def layer_of(source: str) -> tuple[Knob, ...]:
    """The knobs of the layer that a source has, as it has them: one that brings its own formula begins with its own mask."""
    declared = what_if.KNOBS if source in config.BRING_THEIR_OWN else config.KNOBS
    return tuple(one for one in declared if source in one.sources)


def models() -> Named:
    """The names of the models that are here."""
    from attention.models.library import LIBRARY

    assert isinstance(MODEL.range, Named)
    return replace(MODEL.range, there=LIBRARY.names())


def controls_of(task: Task) -> Choice:
    """The controls of a task."""
    return Choice(("", *task.controls), ("none", *task.controls))


def slider_of(task: Task, key: str) -> tuple[Knob, Range, str]:
    """A slider as a task has it: the knob, what it may be, and what it stands at where the task has none of that name."""
    own = next((one for one in task.sliders if one.key == key), None)
    if own is None:
        return SLIDERS[key], SLIDERS[key].range, "not in this task"
    assert isinstance(own.range, Whole)
    return (
        replace(SLIDERS[key], label=own.label, help=own.help, empty=str(own.default)),
        replace(own.range, optional=True),
        "",
    )
