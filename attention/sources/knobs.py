"""The knobs of every source, as they appear in links; the knobs of the layer come from `attention.core.config`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from attention.analysis.subwords import SPECIAL_TOKEN_MODES as SPECIALS
from attention.core import config, override
from attention.core.names import KEY, MEMORY, QUERY, SCORES, VALUE
from attention.core.prediction import MAX_NEW_TOKENS
from attention.params.knob import Knob
from attention.params.ranges import Choice, Integer, NameOrText, PositionList, Range, Real, Switch, Text
from attention.patching.intervention import InterventionCodes
from attention.sources.notebooks import NOTEBOOKS, Notebook
from attention.sources.split_heads import SYMBOLS
from attention.training.plan import MOST_STEPS
from attention.training.tasks import CONTROLS, MAX_TEXT_LENGTH, TASKS
from attention.training.tasks.task import Task

SOURCES = ("typed text", "model", "notebook", "matrices", "file", "trained")
SOURCE_LABELS = {"trained": "trained model"}
"""The display name of a source whose key is not a noun."""
MATRIX_FIELDS = {
    "X and weights": ("x", "w_q", "w_k", "w_v", "w_o"),
    "Q, K and V": (QUERY, KEY, VALUE, "w_o"),
    "X alone": ("x", "w_o"),
    "scores and V": (SCORES, VALUE, "w_o"),
}
"""The kinds of matrices that users can enter, and the fields of each kind. W_O may be empty."""
OPTIONAL_MATRIX_FIELDS = {
    "X and weights": (MEMORY, "b_q", "b_k", "b_v", "b_o", "bias", "dropout_mask"),
    "Q, K and V": ("b_o", "bias", "dropout_mask"),
    "X alone": (MEMORY, "b_o", "bias", "dropout_mask"),
    "scores and V": ("b_o", "bias", "dropout_mask"),
}
"""The optional fields of each kind; all of them may be empty."""
UPLOADED = "uploaded"
"""Link key: the matrices that are too long for a link, with their sizes, such as x:512x64,w_q:64x64."""

# The integer matrices of the numpy notebook: small enough to compute by hand.
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
MAX_MATRIX_CHARACTERS = 20_000  # characters; a longer text makes the text field slow

_PASTE = (
    "In any published form: CSV, spreadsheet cells, a list such as [[1, 0], [0, 1]], the output of NumPy, torch, TensorFlow, "
    "pandas or R, LaTeX, a Markdown table, or a complete notebook cell."
)
_TYPED, _MODEL, _NOTEBOOK, _OWN_MATRICES, _FILE = (("typed text",), ("model",), ("notebook",), ("matrices",), ("file",))
_TRAINED = ("trained",)

# fmt: off
SOURCE = Knob("source", "typed text", Choice(SOURCES), "Source", "Where the numbers come from.", order=0)
NOTEBOOK = Knob(
    "notebook", "self-attention-class", Choice(NOTEBOOKS, tuple(Notebook(name).title for name in NOTEBOOKS)),
    "Notebook", "One of five “attention from scratch” notebooks, reproduced to the last digit.", _NOTEBOOK)
MODEL = Knob(
    "model", "all-MiniLM-L6-v2", NameOrText(300), "Model",
    "A model on this server; or, if its operator allows it, a folder with config.json and *.safetensors.", _MODEL)
WORDS = Knob(
    "words", False, Switch(), "Pieces as words",
    "Merge the subword tokens of a word into one row and one column: weights are summed over keys and averaged over queries, so rows still sum to 1.",
    _MODEL)
SPECIAL = Knob(
    "special", "show", Choice(SPECIALS), "Special tokens",
    "Such as [CLS]. Hide: rows no longer sum to 1, and their sums are shown beside the map. Renormalise: each row is divided by its remaining sum.",
    _MODEL)
INTERVENTIONS = Knob("interventions", "", InterventionCodes(4000), help="The interventions on heads inside the model, such as 17.3.zero;5.*.t0.2.",
    sources=(*_MODEL, *_TRAINED), inline=True)
FROZEN = Knob(
    "frozen", False, Switch(), help="Frozen attention: later layers use the weights A of the unchanged model and the values V of the changed one.",
    sources=(*_MODEL, *_TRAINED), inline=True)
OTHER = Knob(
    "other", "", Text(limit="characters"),
    help="Activation patching: the text of the other run, with the same number of tokens. Interventions patch activations from that run.",
    sources=(*_MODEL, *_TRAINED), inline=True)
SEQUENCE = Knob(
    "sequence", 0, Integer(0), "Sequence", "Each line, or each row of a batch, is one sequence.", (*_TYPED, *_NOTEBOOK))
TEXT = Knob(
    "text", "the owl asked the moon and the moon blinked", Text(limit="characters", lines=3), "Text",
    "Each word and each punctuation mark becomes a token, and each line is a separate sequence; a model uses its own tokenizer. "
    "Press Ctrl+Enter, or click elsewhere, to apply it.", (*_TYPED, *_MODEL))
TEXT2 = Knob(
    "text2", "", Text(limit="characters", lines=2), "Second text",
    "Cross-attention: queries come from the first text, keys and values from this one. Empty: the first text attends to itself. "
    "For an encoder-decoder model, the input of the decoder; empty: the tokens that the decoder generates.",
    (*_TYPED, *_MODEL), section="A second text")
GENERATE = Knob(
    "generate", 0, Integer(0, MAX_NEW_TOKENS), "Tokens to generate",
    "The model continues the text, token by token; ▸ marks generated tokens. 0: no generation.", _MODEL, section="Let it write")
GENERATE_TEMPERATURE = Knob(
    "generate_temperature", 0.0, Real(0, 5, end_meanings=("always the most likely token", "nearly at random")), "Temperature of the draw",
    "0: always the most likely token (greedy). Otherwise tokens are sampled from the softmax of the logits divided by the temperature.", _MODEL, section="Let it write")
GENERATE_SEED = Knob(
    "generate_seed", 0, Integer(0, 2**31 - 1), "Seed of the draw", "The same seed generates the same text.", _MODEL, section="Let it write")
PREFIX_LEN = Knob(
    "prefix_len", None, Integer(0, optional=True), help="How many of the generated tokens the model reads, or which of its predictions is shown.",
    sources=(*_MODEL, *_TRAINED), inline=True)
PREDICT = Knob(
    "predict", "", PositionList(200), help="The positions at which the model predicts a token.", sources=_MODEL, inline=True)
LOWERCASE = Knob(
    "lowercase", True, Switch(), "Ignore upper case", "On: “The” and “the” are one word, with one embedding.",
    _TYPED, section="More knobs", order=110)
PAD = Knob(
    "pad", False, Switch(), "Pad to the same length", "Pad shorter lines with empty tokens ∅, which are hidden from every query.",
    _TYPED, section="More knobs", order=120)
MATRIX_KIND = Knob(
    "matrix_kind", "X and weights", Choice(tuple(MATRIX_FIELDS)), "You have",
    "The input and its projections; queries, keys and values; one matrix for all three; or the scores.",
    _OWN_MATRICES)
MATRIX_HEADS = Knob(
    "given_heads", 1, Integer(1, limit="heads"), "Heads",
    "The columns of your matrices, and the rows of W_O, are split into this many heads, as nn.MultiheadAttention does.",
    _OWN_MATRICES, section="More knobs", order=10)
DIVISOR = Knob(
    "divisor", None, Real(1e-6, 1e6, optional=True), "Divisor", "Divides the scores instead of √d_k.",
    _OWN_MATRICES, section="More knobs", order=20, placeholder="√d_k")
VALID_KEYS = Knob(
    "valid_keys", None, Integer(1, limit="tokens", optional=True), "Valid keys",
    "The number of real keys; the keys after them are padding, hidden from every query.",
    _OWN_MATRICES, section="More knobs", order=30, placeholder="all")
LABELS = Knob("labels", "", Text(2000), "Names of the tokens", "Separated by spaces. Empty: x0, x1, …", _OWN_MATRICES)
MATRICES = tuple(
    Knob(name, text, Text(MAX_MATRIX_CHARACTERS, lines=4), f"Paste {SYMBOLS[name]}", _PASTE, _OWN_MATRICES) for name, text in _MATRICES.items())
TASK = Knob(
    "task", "reverse", Choice(tuple(TASKS), tuple(task.title for task in TASKS.values())), "Task",
    "The task that a tiny model learns, in a few seconds. The page Training shows the model while it learns.", _TRAINED)
TASK_INPUT = Knob(
    "input", "", Text(MAX_TEXT_LENGTH), "Your input", "The input of the trained model, in the form of its task. Empty: an example.", _TRAINED)
CONTROL = Knob("control", "", Choice(("", *CONTROLS)), "Control", "The same model with one difference.", _TRAINED, section="More knobs")
TRAINING_STEPS = Knob(
    "steps", None, Integer(1, MOST_STEPS, optional=True), "Steps", "The number of training batches.", _TRAINED,
    placeholder="as many as it needs")
SLIDERS = {
    "length": Knob("length", None, Integer(1, 64, optional=True), "Length", sources=_TRAINED, section="More knobs"),
    "offset": Knob("offset", None, Integer(1, 64, optional=True), "k", sources=_TRAINED, section="More knobs"),
}
AT_STEP = Knob(
    "at", None, Integer(0, MOST_STEPS, optional=True), "At step", "The model after this many training steps. Empty: the last step.",
    _TRAINED, placeholder="the last")
SEED = next(knob for knob in config.KNOBS if knob.key == "seed")
FILE = Knob("file", "", Text(300), help="The displayed file, as name:digest.", sources=_FILE, inline=True)

KNOBS = (
    SOURCE, MODEL, WORDS, SPECIAL, INTERVENTIONS, FROZEN, OTHER, NOTEBOOK, SEQUENCE, TEXT, TEXT2, GENERATE, GENERATE_TEMPERATURE, GENERATE_SEED, PREFIX_LEN,
    PREDICT, LOWERCASE, PAD, *config.KNOBS, MATRIX_KIND, *MATRICES, LABELS, MATRIX_HEADS, DIVISOR, VALID_KEYS, FILE, TASK, TASK_INPUT, AT_STEP, CONTROL,
    TRAINING_STEPS, *SLIDERS.values(),
)
# fmt: on
"""Every knob that selects or changes the source."""


@cache
def inline_knobs(source: str) -> tuple[Knob, ...]:
    """The knobs on the page above the maps: those of the source's layer, and the other layer knobs that name the source."""
    layer = layer_knobs(source)
    known = {knob.key for knob in layer}
    others = (knob for knob in config.KNOBS if source in knob.sources and knob.key not in known)
    return tuple(knob for knob in (*layer, *others) if knob.inline and knob.label)


@cache
def layer_knobs(source: str) -> tuple[Knob, ...]:
    """The layer knobs of a source. Those of a source with its own formula are the overrides, whose defaults change nothing."""
    declared = override.KNOBS if source in config.SOURCES_WITH_FORMULA else config.KNOBS
    return tuple(knob for knob in declared if source in knob.sources)


def model_range() -> NameOrText:
    """The range of model names, with the models that this server has."""
    from attention.models.library import LIBRARY

    assert isinstance(MODEL.range, NameOrText)
    return replace(MODEL.range, options=LIBRARY.names())


def control_range(task: Task) -> Choice:
    """The controls of a task."""
    return Choice(("", *task.controls), ("none", *task.controls))


def slider_for_task(task: Task, key: str) -> tuple[Knob, Range, str]:
    """The slider of a task: the knob, its range, and the fixed value that is displayed where the task does not have the slider."""
    slider = next((knob for knob in task.sliders if knob.key == key), None)
    if slider is None:
        return SLIDERS[key], SLIDERS[key].range, "not in this task"
    assert isinstance(slider.range, Integer)
    return (
        replace(SLIDERS[key], label=slider.label, help=slider.help, placeholder=str(slider.default)),
        replace(slider.range, optional=True),
        "",
    )
