"""Why scores are divided by √d_k: one text with every random initialization and every divisor of the scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from attention.core.config import INITS
from attention.core.formula import Formula
from attention.core.names import SCORES, WEIGHTS
from attention.lessons.softmax_examples import entropy

if TYPE_CHECKING:  # torch takes more than a second to import; a page must open before that
    from numpy.typing import NDArray

    from attention.sources.typed_text import TypedText

MAX_TOKENS = 32  # in a small map, so that every cell is visible
DIVISORS = ("√d_k", "√d_model", "nothing")

WHY_SCALE = r"""
A score is a sum of $d_k$ products. If the numbers in $q$ and $k$ are independent with mean 0 and variance 1, then
$\text{Var}(q \cdot k) = d_k$: a typical score has the size $\sqrt{d_k}$. In a wide head the softmax then gives nearly everything to one key,
and almost no gradient remains. Dividing by $\sqrt{d_k}$ restores a variance of 1. The divisor belongs to the head: $\sqrt{d_{model}}$ is a common mistake.
"""
# The effect of each initialization with all settings at their defaults.
EFFECT_OF_INIT = {
    "scaled normal": "the spread of the scores grows like √d_k. Divided by √d_k it is near 1 for every d_k: some "
    "keys get more than others, and none takes all. √d_model divides too much: the weights are nearly flat. No division leaves too large a spread.",
    "uniform": "all entries of W are positive, so a query or key is little more than the sum of its token's row: every query picks "
    "the key with the largest or the smallest sum, which gives stripes.",
    "normal": "the spread grows like d_model · √d_k. No divisor here is large enough: each query picks one key at random.",
    "linear": "the default of nn.Linear is small. The divided scores hardly differ, and every key gets nearly the same weight.",
    "identity": "X Xᵀ without projections: a token matches itself best, and a repeated word matches its other occurrence. There is one head as wide "
    "as the model, so here √d_k equals √d_model.",
}


@dataclass(frozen=True, eq=False)
class Scaling:
    """The weights of head 0 for one text, for every initialization and every divisor of the scores.

    Attributes:
        tokens: the queries; `key_tokens` the keys.
        inits: the initialization of each row of `weights`.
        weights: [init divisor query_pos key_pos], float32; rows sum to 1.
        entropy: the mean over the rows with a visible key, in nats, [init divisor].
        spread: the standard deviation of the divided scores, [init divisor].
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
        """The memory of the arrays, in bytes."""
        return self.weights.nbytes + self.entropy.nbytes + self.spread.nbytes + self.visible.nbytes

    def frame(self) -> pd.DataFrame:
        """The mean entropy of a row and the spread of the scores, one row per initialization."""
        table = pd.DataFrame({"random weights": self.inits})
        for name, numbers in (("entropy", self.entropy), ("spread", self.spread)):
            for i, divisor in enumerate(DIVISORS):
                table[f"{name}, ÷ {divisor}"] = numbers[:, i]
        return table


def measure(source: TypedText) -> Scaling:
    """The same text with all five initializations and three divisors; √d_model is included because it is a common mistake.

    All other settings are those of the source. A long text is cut to `MAX_TOKENS`.

    Raises:
        AttentionError: the source cannot make a trace.
    """
    weights, entropies, spreads = [], [], []
    short = replace(source, max_tokens=min(source.max_tokens, MAX_TOKENS))
    for init in INITS:
        sizes: dict[str, Any] = {"d_k": None, "d_v": None} if init == "identity" else {}
        variant = replace(short, config=replace(source.config, init=init, **sizes))
        trace = variant.trace()
        layer = trace.layers[0]
        scores, d_k, d_model = layer.matrix(SCORES), layer.sizes["d_k"], source.config.d_model
        divisors = (math.sqrt(d_k), math.sqrt(d_model), 1.0)
        formula = layer.formula or Formula()
        divided = [replace(layer, formula=replace(formula, divisor=divisor)) for divisor in divisors]
        maps = [variant_layer.matrix(WEIGHTS).numpy() for variant_layer in divided]
        weights.append(maps)
        entropies.append([_mean_entropy(matrix) for matrix in maps])
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
    """The mean entropy of the rows with a visible key; 0 if there are none."""
    nonzero = weights.sum(axis=-1) > 0
    return float(entropy(weights[nonzero]).mean()) if nonzero.any() else 0.0
