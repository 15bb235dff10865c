"""The masked scores: −∞ where the mask hides a key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.core import names
from attention.core.axes import MAP_AXES
from attention.core.explainer import E_co
from attention.core.functions import hide_scores, mask_scores
from attention.core.inline import inlined
from attention.core.mask import Mask
from attention.core.step import LayerView, ProgramWriter, Step, StepContext, called, cells_of, recorded
from attention.core.steps.maps import MapStep, require_previous

if TYPE_CHECKING:
    from attention.core.tensor_types import Scores


@dataclass(frozen=True, repr=False)
class MaskedScores(MapStep):
    """Step M: the scores as they enter the normalizer."""

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """The scores, −∞ where the mask hides a key."""
        return mask_scores(require_previous(previous), layer["mask"][rows] if layer.hides_keys else None)

    def explain(self, work: StepContext[E_co]) -> E_co:
        """A score that stays as it is, or becomes −∞."""
        row, column = work.cell.row, work.cell.column
        factors = (name for _, name in work.layer.factors(self))
        previous = next((name for name in factors if isinstance(work.find_declared(name), Step)), "")
        if not previous:
            return work.as_recorded("The masked score as the source recorded it; what made it is not known.")
        hider = hider_of(work, column)
        if hider == "mask":
            words = (
                f"The mask hides key {column} from query {row}: its score becomes −∞, so its weight will be exactly 0."
            )
            came_from = (work.cell_of(previous, row, column),)
            return work.from_claim(
                -math.inf, words, "hidden by the mask", came_from, (r"-\infty \quad \text{(hidden)}",)
            )
        words = f"Nothing hides key {column} from query {row}: its score stays as it is."
        if work.value == -math.inf:
            words = f"The score is −∞ already, and stays −∞: key {column} is hidden from query {row}."
            if hider:
                words = f"The bias hides key {column} from query {row} already: its score stays −∞."
        elif work.layer.has("mask"):
            words = f"The mask lets query {row} see key {column}: its score stays as it is."
        reason = "stays as it is, the key is visible" if work.value > -math.inf else "stays as it is"
        return work.from_copy(previous, row, column, words, reason)

    def python(self, writer: ProgramWriter) -> list[str]:
        """Lines that compute the mask and apply it."""
        if not writer.layer.hides_keys:
            return [f"{self.name} = {writer.previous}  # nothing is hidden"]
        return [*_mask(writer), *inlined(hide_scores, self.name, scores=writer.previous, mask="mask")]


def _mask(writer: ProgramWriter) -> list[str]:
    """Lines that compute the mask: by its rule, or cell by cell."""
    mask = writer.formula.mask
    rule = mask.python() if mask is not None else ""
    if mask is None or not rule:
        return writer.mask_lines()
    lines = [f"mask = {rule}  # True = may attend"]
    return [*writer.padding_lines(mask.real), *lines] if mask.real is not None else lines


def hider_of(work: StepContext[E_co], key: int) -> str:
    """What hides a key from the query: "mask", or "bias" for a bias of −∞; empty if neither does."""
    if hides(work, key):
        return "mask"
    return "bias" if work.layer.has("bias") and work.number_at("bias", work.cell.row, key) == -math.inf else ""


def hides(work: StepContext[E_co], key: int) -> bool:
    """Whether the mask hides a key from the query."""
    return work.layer.has("mask") and not bool(work.layer["mask"][work.cell.row, key])


MASKED_SCORES = MaskedScores(
    names.MASKED_SCORES, "M", "M", MAP_AXES, "B, and −∞ where the mask hides a key", "signed",
    equation=r"M_{ij} = \begin{cases} B_{ij} & \text{visible} \\ -\infty & \text{hidden} \end{cases}",
    unknown=recorded(names.MASKED_SCORES), when="normalizer", knobs=("mask",), example=(("mask", Mask("causal")),), masked=True, in_page="head",
    of=(cells_of(names.BIASED_SCORES, names.CAPPED_SCORES, names.SCALED_SCORES, names.SCORES), cells_of("mask")),
    elsewhere=called(lens="hook_attn_scores", transformers="attn_weights", jax="padded_logits", n2="weights", n4="scaled_dot_prod"),
)  # fmt: skip
