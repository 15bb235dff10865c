"""The states of the demo: each is a link of the Lab, with a sentence on what to look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache

from attention.base.knobs import Limits
from attention.features import features
from attention.formula.names import HEAD_OUTPUT, OUTPUT, WEIGHTS

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
        pack: makes the bytes of a state that is packed in another way, such as a film; None: `packing.pack_state`.
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
    pack: Callable[[State], bytes] | None = None


_MODEL = {"source": "model", "model": "all-MiniLM-L6-v2", "text": _TIRED}
# The page does not add b_O, so it cannot make the output of a model under another temperature.
_NOT_IN_MODEL = (HEAD_OUTPUT, OUTPUT)

# fmt: off
_STATES = (
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
        "previous", "A real model: the token before",
        "Layer 0, head 2 of MiniLM looks at the preceding token, whatever it is: nearly all the weight lies next to the diagonal.",
        _MODEL, knobs=("temperature",), heads=(2, 5), head=2, q=4, k=3, skip=_NOT_IN_MODEL),
    State(
        "next", "A real model: the token after",
        "Layer 1, head 8 of the same model looks at the following token. It learned this from text.",
        _MODEL, knobs=("temperature",), layer=1, heads=(8,), head=8, q=3, k=4, skip=_NOT_IN_MODEL),
)
# fmt: on


@cache
def all_states() -> tuple[State, ...]:
    """The states of the demo, in the order of its list: these, and those of features; the first is the default."""
    return (*_STATES, *(state for feature in features() for state in feature.states))
