"""Why scores are divided by √d_k: one text under every kind of random weights and every divisor of the scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from attention.formula.config import INITS
from attention.formula.formula import Formula
from attention.formula.names import SCORES, WEIGHTS
from attention.lessons.softmax import entropy

if TYPE_CHECKING:  # torch takes more than a second to import; a page must open before that
    from numpy.typing import NDArray

    from attention.sources.typed_text import TypedText

MOST_TOKENS = 32  # in a small map
DIVISORS = ("√d_k", "√d_model", "nothing")

WHY_SCALE = r"""
A score is a sum of $d_k$ products. If the numbers in $q$ and $k$ are independent, with mean 0 and variance 1, then
$\text{Var}(q \cdot k) = d_k$: its typical size is $\sqrt{d_k}$, and a wide head would turn the softmax into "one takes all",
where almost no gradient is left. Divided by $\sqrt{d_k}$ it is 1 again. The divisor belongs to the head: $\sqrt{d_{model}}$ is a common mistake.
"""
# What each init shows with the knobs at their defaults.
LOOKS = {
    "scaled normal": "the spread of the scores grows like √d_k. Divided by √d_k it is near 1, whatever d_k is: some "
    "keys get more than others, none takes all. √d_model is too much: nearly flat. Nothing is too little.",
    "uniform": "all of W is positive, so a query or a key is little more than the sum of its token's row: every query picks "
    "the key with the largest sum or the one with the smallest. Stripes.",
    "normal": "the spread grows like d_model · √d_k. No divisor here is large enough: each query picks one key at random.",
    "linear": "the default of nn.Linear is small. Its scores, divided, hardly differ, and every key gets nearly the same.",
    "identity": "X Xᵀ, no projections: a token matches itself best, and a repeated word its other self. One head as wide "
    "as the model, so here √d_k is √d_model.",
}


@dataclass(frozen=True, eq=False)
class Scaling:
    """Head 0's weights of one text for every init and every divisor of the scores.

    Attributes:
        tokens: the queries; `key_tokens` the keys.
        inits: what the rows of `weights` are.
        weights: [init divisor query_pos key_pos], float32; rows sum to 1.
        entropy: mean over the rows that see a key, in nats, [init divisor].
        spread: standard deviation of the scores after each division, [init divisor].
        visible: boolean [query_pos key_pos], True = may attend.
    """

    tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    inits: tuple[str, ...]
    weights: NDArray[np.float32]
    entropy: NDArray[np.float64]
    spread: NDArray[np.float64]
    visible: NDArray[np.bool_]
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """The memory of its numbers, in bytes."""
        return self.weights.nbytes + self.entropy.nbytes + self.spread.nbytes + self.visible.nbytes

    def frame(self) -> pd.DataFrame:
        """The mean entropy of a row and the spread of the scores, one line per init."""
        table = pd.DataFrame({"random weights": self.inits})
        for name, numbers in (("entropy", self.entropy), ("spread", self.spread)):
            for i, divisor in enumerate(DIVISORS):
                table[f"{name}, ÷ {divisor}"] = numbers[:, i]
        return table


def measured(source: TypedText) -> Scaling:
    """The same text under all five inits × three divisors; √d_model stands here because it is the mistake.

    All other knobs are the source's. A long text is cut to `MOST_TOKENS`, so that every cell is seen.

    Raises:
        AttentionError: the source gives no trace.
    """
    weights, entropies, spreads = [], [], []
    short = replace(source, max_tokens=min(source.max_tokens, MOST_TOKENS))
    for init in INITS:
        sizes: dict[str, Any] = {"d_k": None, "d_v": None} if init == "identity" else {}
        one = replace(short, config=replace(source.config, init=init, **sizes))
        trace = one.trace()
        layer = trace.layers[0]
        scores, d_k, d_model = layer.matrix(SCORES), layer.sizes["d_k"], source.config.d_model
        divisors = (math.sqrt(d_k), math.sqrt(d_model), 1.0)
        formula = layer.formula or Formula()
        ways = [replace(layer, formula=replace(formula, divisor=divisor)) for divisor in divisors]
        maps = [way.matrix(WEIGHTS).numpy() for way in ways]
        weights.append(maps)
        entropies.append([_mean_entropy(one) for one in maps])
        spreads.append([float(scores.double().std(correction=0)) / divisor for divisor in divisors])
    visible = layer["mask"].numpy()
    return Scaling(
        trace.tokens,
        trace.key_tokens,
        INITS,
        np.array(weights),
        np.array(entropies),
        np.array(spreads),
        visible,
        trace.notes,
    )


def _mean_entropy(weights: NDArray[Any]) -> float:
    """The mean over the rows that see a key; 0 where none does."""
    seeing = weights.sum(axis=-1) > 0
    return float(entropy(weights[seeing]).mean()) if seeing.any() else 0.0
