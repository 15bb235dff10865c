"""The states that the demo shows: each a link of the Lab, with what there is to see in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from attention.formula.names import HEAD_OUTPUT, OUTPUT, SCORES, WEIGHTS
from attention.sources.link import Limits

LIMITS = Limits(tokens=64, characters=2000, d_model=128, heads=16, trace_mb=256)
_OWL = "the owl asked the moon and the moon blinked"
_TIRED = "The animal did not cross the street because it was tired"


@dataclass(frozen=True)
class State:
    """One state of the demo.

    Attributes:
        name: in the address and of its file; an old address must lead to it, so it never changes.
        title: in the list.
        sentence: what to look at.
        link: as in a link of the Lab, without what follows.
        knobs: the controls above the maps beside the head. The page has to know what each of them changes.
        heads: those that are packed; empty: all.
        layer: the one that is shown.
        view: "overview", "factors" or "heads", which shows the weights of the packed heads side by side.
        step: the chosen step; q and k its row and column, head its head.
        skip: steps that are left out.
        film: whether it is the training of this model, picture by picture.
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
        "Each query shares 1 among all keys. The two “the moon” get the same rows: nothing says yet where a word stands.",
        {"text": _OWL}, q=1, k=4),
    State(
        "causal", "Causal mask",
        "A query sees itself and what came before, as in GPT. What it may not see gets exactly 0, and each row still sums to 1.",
        {"text": _OWL, "mask": "causal"}, q=4, k=1),
    State(
        "cold", "A cold softmax",
        "At temperature 0.1 the largest score takes nearly everything. Turn it up, and the rows level out.",
        {"text": _OWL, "temperature": "0.1"}, q=1, k=4),
    State(
        "unscaled", "Without ÷ √d_k",
        "Larger weights and no division by √d_k: scores run into the hundreds, and the softmax becomes one-hot noise.",
        {"text": _OWL, "init": "normal", "scaled": "false"}, q=0, k=8),
    State(
        "heads", "Two heads side by side",
        "The same text, two heads: each has its own W_Q and W_K, and so looks elsewhere. Both follow the temperature.",
        {"text": _OWL, "heads": "2", "mask": "causal"}, view="heads", q=4, k=1),
    State(
        "cross", "Cross-attention",
        "Queries come from the first text, keys and values from the second: one row for each English word, one column for each German one.",
        {"text": "the cat sat on the mat", "text2": "die Katze saß auf der Matte", "heads": "2"}, knobs=("temperature",), q=1, k=1),
    State(
        "rope", "Rotary positions",
        "Queries and keys are turned by their position: the two “the moon” are no longer alike. Pick Q′ to see by how much.",
        {"text": _OWL, "positions": "rope", "heads": "2"}, q=4, k=1),
    State(
        "sparsemax", "Sparsemax",
        "Instead of the softmax: a key whose score is below a threshold gets exactly 0, not a little.",
        {"text": _OWL, "normalizer": "sparsemax", "heads": "2"}, q=1, k=1),
    State(
        "notebook", "A notebook, to the digit",
        "The whole numbers of “The Attention Mechanism from Scratch”: every step can be checked by hand.",
        {"source": "notebook", "notebook": "numpy"}, knobs=("temperature",), view="factors", step=SCORES, q=0, k=2),
    State(
        "previous", "A real model: the token before",
        "Layer 0, head 2 of MiniLM looks at the token before, whatever it is: nearly all weight lies one beside the diagonal.",
        _MODEL, knobs=("temperature",), heads=(2, 5), head=2, q=4, k=3, skip=_NOT_IN_MODEL),
    State(
        "next", "A real model: the token after",
        "Layer 1, head 8 of the same model looks at the token after. Nobody told it to: it was learned from text.",
        _MODEL, knobs=("temperature",), layer=1, heads=(8,), head=8, q=3, k=4, skip=_NOT_IN_MODEL),
    State(
        "induction", "A trained induction head",
        "A tiny model trained to copy: the second “owl” looks at “asked”, which came after the first.",
        _INDUCTION, knobs=(), layer=1, view="factors", q=7, k=2),
    State(
        "film", "How it learned that",
        "The same head while it learns: noise, then a stripe. Its loss falls when the stripe is there.",
        _INDUCTION, film=True, q=7, k=2),
)
# fmt: on
"""In the order of the list; the first opens where the address names none."""
