"""The states of the demo: each is a link of the Lab, with a sentence on what to look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from attention.base.knobs import Limits
from attention.formula.names import HEAD_OUTPUT, OUTPUT, SCORES, WEIGHTS

LIMITS = Limits(tokens=64, characters=2000, d_model=128, heads=16, trace_mb=256)
_OWL = "the owl asked the moon and the moon blinked"
_TIRED = "The animal did not cross the street because it was tired"


@dataclass(frozen=True)
class State:
    """One state of the demo.

    Attributes:
        name: in the address and in the file name; it never changes, so that old addresses stay valid.
        title: in the list.
        sentence: what to look at.
        link: as in a link of the Lab, without the chosen cell and view.
        knobs: the controls above the maps apart from the head. The page must be able to compute their effects.
        heads: the packed heads; empty for all.
        layer: the layer on display.
        view: "overview", "factors" or "heads", which shows the weights of the packed heads side by side.
        step: the chosen step; q and k are its row and column, head its head.
        skip: the steps that are left out.
        film: whether the state is the training of this model, frame by frame.
    """

    name: str
    title: str
    sentence: str
    link: Mapping[str, str] = field(default_factory=dict)
    knobs: tuple[str, ...] = ("temperature", "mask", "window", "prefix")
    heads: tuple[int, ...] = ()
    layer: int = 0
    view: str = "overview"
    step: str = WEIGHTS
    head: int = 0
    q: int = 0
    k: int = 0
    skip: tuple[str, ...] = ()
    film: bool = False


_MODEL = {"source": "model", "model": "all-MiniLM-L6-v2", "text": _TIRED}
_INDUCTION = {"source": "trained", "task": "induction", "input": "an owl asked the moon why"}
# The page does not add b_O, so it cannot make the output of a model under another temperature.
_NOT_IN_MODEL = (HEAD_OUTPUT, OUTPUT)

# fmt: off
STATES = (
    State(
        "plain", "A sentence, random weights",
        "Each query shares a total of 1 among all keys. Both “the moon” get the same rows: nothing encodes the position of a word yet.",
        {"text": _OWL}, q=1, k=4),
    State(
        "causal", "Causal mask",
        "A query sees itself and earlier tokens, as in GPT. Hidden keys get exactly 0, and each row still sums to 1.",
        {"text": _OWL, "mask": "causal"}, q=4, k=1),
    State(
        "cold", "A cold softmax",
        "At temperature 0.1 the largest score takes nearly everything. Raise it, and the rows level out.",
        {"text": _OWL, "temperature": "0.1"}, q=1, k=4),
    State(
        "unscaled", "Without ÷ √d_k",
        "Larger weights and no division by √d_k: scores run into the hundreds, and the softmax becomes one-hot noise.",
        {"text": _OWL, "init": "normal", "scaled": "false"}, q=0, k=8),
    State(
        "heads", "Two heads side by side",
        "The same text, two heads: each has its own W_Q and W_K and so looks elsewhere. Both follow the temperature.",
        {"text": _OWL, "heads": "2", "mask": "causal"}, view="heads", q=4, k=1),
    State(
        "cross", "Cross-attention",
        "Queries come from the first text, keys and values from the second: a row for each English word, a column for each German one.",
        {"text": "the cat sat on the mat", "text2": "die Katze saß auf der Matte", "heads": "2"}, knobs=("temperature",), q=1, k=1),
    State(
        "rope", "Rotary positions",
        "Queries and keys are rotated by their position, so the two “the moon” differ. Pick Q′ to see by how much.",
        {"text": _OWL, "positions": "rope", "heads": "2"}, q=4, k=1),
    State(
        "sparsemax", "Sparsemax",
        "Instead of the softmax: a key whose score is below a threshold gets exactly 0, not a small weight.",
        {"text": _OWL, "normalizer": "sparsemax", "heads": "2"}, q=1, k=1),
    State(
        "notebook", "A notebook, to the digit",
        "The integers of “The Attention Mechanism from Scratch”: every step can be checked by hand.",
        {"source": "notebook", "notebook": "numpy"}, knobs=("temperature",), view="factors", step=SCORES, q=0, k=2),
    State(
        "previous", "A real model: the token before",
        "Layer 0, head 2 of MiniLM looks at the preceding token, whatever it is: nearly all the weight lies next to the diagonal.",
        _MODEL, knobs=("temperature",), heads=(2, 5), head=2, q=4, k=3, skip=_NOT_IN_MODEL),
    State(
        "next", "A real model: the token after",
        "Layer 1, head 8 of the same model looks at the following token. It learned this from text.",
        _MODEL, knobs=("temperature",), layer=1, heads=(8,), head=8, q=3, k=4, skip=_NOT_IN_MODEL),
    State(
        "induction", "A trained induction head",
        "A tiny model trained to copy: the second “owl” looks at “asked”, the token after the first “owl”.",
        _INDUCTION, knobs=(), layer=1, view="factors", q=7, k=2),
    State(
        "picture", "A picture",
        "A tiny vision transformer, trained to say the colour of each shape: the word “circle” looks at the patch where the circle is. Click another word, or a patch.",
        {"source": "trained", "task": "shapes"}, knobs=(), q=0, k=7),
    State(
        "film", "How the induction head forms",
        "The same head during training: noise, then a stripe. The loss falls when the stripe appears.",
        _INDUCTION, film=True, q=7, k=2),
)
# fmt: on
"""In the order of the list; the first is the default."""
