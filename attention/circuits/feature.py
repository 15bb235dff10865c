"""What this feature adds to the library."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from attention.base.errors import MissingError
from attention.circuits import copying, direct_effects
from attention.explanation.derived import DerivedView
from attention.features import Feature
from attention.metrics.metric import OF_THE_PARAMETERS, ON_THIS_TEXT, Metric

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.trace import Trace


def _copying(trace: Trace) -> Tensor | None:
    with suppress(
        MissingError
    ):  # no linear path through the model, or one that is not recorded; a busy server is another matter
        return copying.copying_score(trace) if trace.model_run else None
    return None


def _copying_seconds(trace: Trace) -> float:
    with suppress(MissingError):
        return copying.copying_seconds(trace) if trace.model_run else 0.0
    return 0.0


# fmt: off
_METRICS = (
    Metric("copying score", "Whether a head raises the token that it reads, through W_V, W_O and the vocabulary alone: 1 means that it copies every token, −1 that it suppresses it. It says nothing about where the head looks.",
        "Σλ / Σ|λ|, λ the eigenvalues of W_E W_V W_O W_U", "the whole vocabulary, for models whose heads have a linear path to the logits",
        "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits", None, "1", "−1", OF_THE_PARAMETERS, _copying, _copying_seconds),
    Metric("direct effect", "What a head adds to the logit of the likeliest next token through W_O, the frozen norms and the unembedding, and nothing else. The head that writes the word need not be the one without which the model fails.",
        "z W_O N w_U at the position of the last prediction", "the position of the last prediction, for models that predict the next token",
        "Wang et al. 2022, Interpretability in the Wild; nostalgebraist 2020, the logit lens", None, "∞", "−∞", ON_THIS_TEXT,
        direct_effects.direct_effects, direct_effects.direct_effects_seconds),
)
# fmt: on

_VIEW = DerivedView(
    "writes", direct_effects.SYMBOL, "effect",
    "what each cell adds to the logit of the likeliest token; “Inside this head” on Heads has other tokens",
    (direct_effects.NAME, direct_effects.OF_VECTOR), direct_effects.CAVEAT, direct_effects.has_view, direct_effects.view_map,
)  # fmt: skip

FEATURE = Feature(name="circuits", metrics=_METRICS, views=(_VIEW,), answers=(direct_effects.largest_writer,))
