"""How a prediction changes under an intervention: ranks and probabilities before and after, and the distance between the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from attention.base.printed import format_near_one, format_number
from attention.trace.trace import Prediction, Trace

if TYPE_CHECKING:
    import pandas as pd

_TOLERANCE = 1e-6
"""The single-precision noise of a log-probability: smaller changes count as none."""


@dataclass(frozen=True)
class TokenPrediction:
    """One token of a prediction.

    Attributes:
        token: as it is displayed, with its `id`.
        probability: of the token; `log_probability` is its natural logarithm.
        logit: before the softmax over the vocabulary.
        rank: among all tokens, from 1; equal logits share a rank.
        before: the same token for the unchanged model; None without a comparison.
    """

    token: str
    id: int
    probability: float
    log_probability: float
    logit: float
    rank: int
    before: TokenPrediction | None = None

    @property
    def rank_change(self) -> str:
        """The change of its rank: ↑ 3, ↓ 1, or empty."""
        by = 0 if self.before is None else self.before.rank - self.rank
        return f"{'↑' if by > 0 else '↓'} {abs(by):,}" if by else ""


def _token_prediction(
    prediction: Prediction, token: int, name: str, before: Prediction | None = None
) -> TokenPrediction:
    """The prediction's numbers for one token, beside those of the unchanged model's prediction `before`."""
    logit = prediction.all_logits[token]
    log_probability = float(prediction.all_log_probabilities[token])
    rank = 1 + int((prediction.all_logits > logit).sum())
    reference = None if before is None else _token_prediction(before, token, name)
    probability = float(prediction.all_log_probabilities[token].exp())
    return TokenPrediction(name, token, probability, log_probability, float(logit), rank, reference)


def top_tokens(
    prediction: Prediction, before: Prediction | None = None, named: Sequence[tuple[int, str]] = ()
) -> tuple[TokenPrediction, ...]:
    """The likeliest tokens by rank, together with the likeliest token of `before` and the tokens `named` as (id, token)."""
    wanted = dict(zip(prediction.ids, prediction.tokens, strict=True))
    if before is not None:
        wanted |= {before.ids[0]: before.tokens[0]}
    wanted |= dict(named)
    entries = [_token_prediction(prediction, token, name, before) for token, name in wanted.items()]
    return tuple(sorted(entries, key=lambda entry: entry.rank))


def _divergence(before: Prediction, after: Prediction) -> float:
    """KL(before ‖ after), in nats: the information lost if the changed model stands in for the unchanged one.

    Source: Kullback & Leibler 1951, "On Information and Sufficiency".
    """
    terms = before.all_log_probabilities.exp() * (before.all_log_probabilities - after.all_log_probabilities)
    return max(0.0, float(terms[before.all_log_probabilities > -float("inf")].sum()))


def _logit_difference(prediction: Prediction, target: int, distractor: int) -> float:
    """The logit of the target minus the logit of the distractor (logit difference).

    Source: Wang et al. 2022, "Interpretability in the Wild", section 2.
    """
    return float(prediction.all_logits[target].double() - prediction.all_logits[distractor].double())


def matching_prediction(prediction: Prediction, now: Trace, unchanged: Trace) -> Prediction | None:
    """The unchanged model's prediction at the same position; None if it has none there, or its input differs up to there."""
    end = prediction.position + 1
    if now.input_tokens[:end] != unchanged.input_tokens[:end] or (
        prediction.fills_mask and now.input_tokens != unchanged.input_tokens
    ):
        return None
    return next((candidate for candidate in unchanged.predictions if candidate.position == prediction.position), None)


def summarize(
    prediction: Prediction,
    before: Prediction | None,
    target: tuple[int, str] | None = None,
    distractor: tuple[int, str] | None = None,
) -> tuple[str, ...]:
    """The effect of an intervention on a prediction, in sentences, the most important first."""
    lines: list[str] = []
    first = prediction if before is None else before
    watched = target or (first.ids[0], first.tokens[0])
    if before is not None:
        now = _token_prediction(prediction, *watched, before)
        was = now.before
        assert was is not None
        if (
            abs(now.log_probability - was.log_probability) <= _TOLERANCE
            and _divergence(before, prediction) <= _TOLERANCE
        ):
            lines.append("The prediction is the same to rounding.")
        else:
            new_first = prediction.tokens[0] if prediction.ids[0] != before.ids[0] else ""
            suffix = f"; “{new_first}” is now the likeliest" if new_first else ""
            lines.append(f"“{watched[1]}” {format_number(was.probability)} → {format_number(now.probability)}{suffix}.")
    if target and distractor:
        current = _logit_difference(prediction, target[0], distractor[0])
        earlier = "" if before is None else f"{format_number(_logit_difference(before, target[0], distractor[0]))} → "
        lines.append(
            f"Logit of “{target[1]}” minus logit of “{distractor[1]}”: {earlier}{format_number(current)} (logit difference)."
        )
    if before is not None:
        lines.append(f"KL from the unchanged model: {format_number(_divergence(before, prediction))} nats.")
    return tuple(lines)


def frame(rows: Sequence[TokenPrediction]) -> pd.DataFrame:
    """The tokens of a prediction as a table, with the unchanged model's numbers if there is a comparison."""
    import pandas as pd

    compared = any(entry.before is not None for entry in rows)
    names = ("rank", "probability", "log_probability", "logit")
    return pd.DataFrame(
        [
            {"token": entry.token}
            | {name: getattr(entry, name) for name in names}
            | ({f"{name}_before": getattr(entry.before, name, None) for name in names} if compared else {})
            for entry in rows
        ]
    )


class VectorShift(NamedTuple):
    """How far the vector of one token has moved: its cosine with the unchanged vector."""

    position: int
    token: str
    cosine: float


def vector_shifts(before: Trace, after: Trace) -> tuple[VectorShift, ...]:
    """How far the vector of each token has moved; empty if there are no vectors to compare."""
    if before.vectors is None or after.vectors is None or before.vectors.shape != after.vectors.shape:
        return ()
    old, new = before.vectors.double(), after.vectors.double()
    cosines = (old * new).sum(-1) / (old.norm(dim=-1) * new.norm(dim=-1)).clamp_min(1e-300)
    shifts = zip(range(len(cosines)), after.input_tokens, cosines.tolist(), strict=True)
    return tuple(VectorShift(*shift) for shift in shifts)


def describe_shifts(moves: Sequence[VectorShift]) -> str:
    """The token that moved the most, in a sentence."""
    most = min(moves, key=lambda item: item.cosine)
    if 1 - most.cosine <= _TOLERANCE:
        return "The vectors of all tokens are the same to rounding."
    return (
        f"{most.token} (token {most.position}) moved the most: its last vector has a cosine of {format_near_one(most.cosine)} with the unchanged one; "
        f"the mean over all tokens is {format_near_one(sum(item.cosine for item in moves) / len(moves))}."
    )


def summarize_shifts(moves: Sequence[VectorShift]) -> str:
    """How far the vectors have moved on average, in a few words."""
    mean = sum(item.cosine for item in moves) / len(moves)
    if 1 - mean <= _TOLERANCE:
        return "Vectors the same to rounding."
    return f"Vectors moved: cosine {format_near_one(mean)} on average."


def shifts_frame(moves: Sequence[VectorShift]) -> pd.DataFrame:
    """The moved vectors as a table."""
    import pandas as pd

    return pd.DataFrame(moves, columns=["position", "token", "cosine"])
