"""What a change inside a model does to what it says: each token's rank and probability before and after, and how far apart the two are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from attention.formula.prediction import Prediction
from attention.formula.trace import Trace
from attention.printed import beside_one, shown

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

SAME = 1e-6
"""What single precision may make of the same numbers: a smaller change of a logarithm is none."""


@dataclass(frozen=True)
class Said:
    """One token in what a model says.

    Attributes:
        token: as it is read, and its `id`.
        probability: of the token; `log_probability` its natural logarithm.
        logit: before the softmax over the vocabulary.
        rank: its place among all tokens, from 1; those with equal logits share the first.
        before: the same of the unchanged model; None where nothing is compared.
    """

    token: str
    id: int
    probability: float
    log_probability: float
    logit: float
    rank: int
    before: Said | None = None

    @property
    def moved(self) -> str:
        """How its rank has changed: ↑ 3, ↓ 1, or nothing."""
        by = 0 if self.before is None else self.before.rank - self.rank
        return f"{'↑' if by > 0 else '↓'} {abs(by):,}" if by else ""


def said(prediction: Prediction, token: int, name: str, before: Prediction | None = None) -> Said:
    """What a prediction says of one token, and what the unchanged model said `before`."""
    logit = prediction.row[token]
    log = float(prediction.log_row[token])
    rank = 1 + int((prediction.row > logit).sum())
    earlier = None if before is None else said(before, token, name)
    return Said(name, token, float(prediction.log_row[token].exp()), log, float(logit), rank, earlier)


def likeliest(
    prediction: Prediction, before: Prediction | None = None, named: Sequence[tuple[int, str]] = ()
) -> tuple[Said, ...]:
    """The likeliest tokens; below them what was the likeliest `before`, and those that were `named`, as (id, token)."""
    wanted = dict(zip(prediction.ids, prediction.tokens, strict=True))
    if before is not None:
        wanted |= {before.ids[0]: before.tokens[0]}
    wanted |= dict(named)
    found = [said(prediction, token, name, before) for token, name in wanted.items()]
    return tuple(sorted(found, key=lambda one: one.rank))


def divergence(before: Prediction, after: Prediction) -> float:
    """KL(before ‖ after), in nats: how much is lost where the changed model speaks for the unchanged one.

    Source: Kullback & Leibler 1951, "On Information and Sufficiency".
    """
    terms = before.log_row.exp() * (before.log_row - after.log_row)
    return max(0.0, float(terms[before.log_row > -float("inf")].sum()))


def difference(prediction: Prediction, target: int, distractor: int) -> float:
    """How much larger the logit of the target is than that of the distractor (logit difference).

    Source: Wang et al. 2022, "Interpretability in the Wild", section 2.
    """
    return float(prediction.row[target].double() - prediction.row[distractor].double())


def before_of(prediction: Prediction, now: Trace, unchanged: Trace) -> Prediction | None:
    """What the unchanged model says at the same place; None where it says nothing there, or has read something else up to there."""
    upto = prediction.position + 1
    if now.read[:upto] != unchanged.read[:upto] or (prediction.fills and now.read != unchanged.read):
        return None
    return next((one for one in unchanged.predictions if one.position == prediction.position), None)


def cosines(before: Trace, after: Trace) -> Tensor | None:
    """The cosine between the vectors of each token before and after, [query_pos]; None where there are none to compare."""
    if before.vectors is None or after.vectors is None or before.vectors.shape != after.vectors.shape:
        return None
    one, other = before.vectors.double(), after.vectors.double()
    found: Tensor = (one * other).sum(-1) / (one.norm(dim=-1) * other.norm(dim=-1)).clamp_min(1e-300)
    return found


def summed_up(
    prediction: Prediction,
    before: Prediction | None,
    target: tuple[int, str] | None = None,
    distractor: tuple[int, str] | None = None,
) -> tuple[str, ...]:
    """What a change does to a prediction, in sentences, the most important first."""
    lines: list[str] = []
    watched = target or (
        (prediction if before is None else before).ids[0],
        (prediction if before is None else before).tokens[0],
    )
    if before is not None:
        now = said(prediction, *watched, before)
        was = now.before
        assert was is not None
        if abs(now.log_probability - was.log_probability) <= SAME and divergence(before, prediction) <= SAME:
            lines.append("The prediction is the same to rounding.")
        else:
            leads = prediction.tokens[0] if prediction.ids[0] != before.ids[0] else ""
            led = f"; now “{leads}” leads" if leads else ""
            lines.append(f"“{watched[1]}” {shown(was.probability)} → {shown(now.probability)}{led}.")
    if target and distractor:
        now_by = difference(prediction, target[0], distractor[0])
        was_by = "" if before is None else f"{shown(difference(before, target[0], distractor[0]))} → "
        lines.append(
            f"Logit of “{target[1]}” less that of “{distractor[1]}”: {was_by}{shown(now_by)} (logit difference)."
        )
    if before is not None:
        lines.append(f"KL from the unchanged model: {shown(divergence(before, prediction))} nats.")
    return tuple(lines)


def frame(rows: Sequence[Said]) -> pd.DataFrame:
    """The tokens of a prediction as a table, with what they were before where that is known."""
    import pandas as pd

    compared = any(one.before is not None for one in rows)
    names = ("rank", "probability", "log_probability", "logit")
    return pd.DataFrame(
        [
            {"token": one.token}
            | {name: getattr(one, name) for name in names}
            | ({f"{name}_before": getattr(one.before, name, None) for name in names} if compared else {})
            for one in rows
        ]
    )


class Moved(NamedTuple):
    """How far the vector of one token has moved: the `cosine` with what it was."""

    position: int
    token: str
    cosine: float


def moved(before: Trace, after: Trace) -> tuple[Moved, ...]:
    """How far the vector of each token has moved; nothing where there are none to compare."""
    found = cosines(before, after)
    if found is None:
        return ()
    return tuple(Moved(at, token, one) for at, (token, one) in enumerate(zip(after.read, found.tolist(), strict=True)))


def moved_in_words(those: Sequence[Moved]) -> str:
    """Which token moved the most, in a sentence."""
    most = min(those, key=lambda one: one.cosine)
    if 1 - most.cosine <= SAME:
        return "The vectors of all tokens are the same to rounding."
    return (
        f"{most.token} (token {most.position}) has moved the most: its last vector has a cosine of {beside_one(most.cosine)} with what it was, "
        f"all of them {beside_one(sum(one.cosine for one in those) / len(those))} on average."
    )


def moved_briefly(those: Sequence[Moved]) -> str:
    """How far all vectors have moved, in a few words."""
    mean = sum(one.cosine for one in those) / len(those)
    return (
        "Vectors the same to rounding." if 1 - mean <= SAME else f"Vectors moved: cosine {beside_one(mean)} on average."
    )


def moved_frame(those: Sequence[Moved]) -> pd.DataFrame:
    """The same as a table."""
    import pandas as pd

    return pd.DataFrame(those, columns=["position", "token", "cosine"])
