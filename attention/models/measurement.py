"""What a run of a model measures: a log-probability, a logit difference, or the cosine with other vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attention.errors import ConfigError


@dataclass(frozen=True)
class Measurement:
    """What a run measures.

    Attributes:
        position: of the prediction. Without a language-model head, of the vector that is compared; None: all vectors.
        target: the token, or the class, whose log-probability is measured; None without a language-model head and classes.
        distractor: if set, the logit of the target minus the logit of this token is measured instead.
    """

    position: int | None = None
    target: int | None = None
    distractor: int | None = None

    @property
    def logit_positions(self) -> tuple[int, ...]:
        """The positions at which logits are computed."""
        return () if self.target is None or self.position is None else (self.position,)

    def read(self, model_output: Any) -> Tensor:
        """For every text of a batch the measured value, [text] in float64: for vectors, the cosine with those of the first text."""
        if self.target is None:
            if "last_hidden_state" not in model_output:
                raise ConfigError(
                    "A change is measured at a logit of a token or at the last vectors, and this model gives neither: "
                    "choose a model with one tower and without a classifier, such as a ViTModel."
                )
            last = model_output["last_hidden_state"].cpu().double()
            cosine = torch.cosine_similarity(last, last[:1], dim=-1)
            # Clamped, since rounding can give more than 1 for equal vectors.
            selected: Tensor = (cosine.mean(-1) if self.position is None else cosine[:, self.position]).clamp_max(1)
            return selected
        logits = model_output.get("logits", model_output.get("prediction_logits"))
        row = (logits if logits.ndim == 2 else logits[:, 0 if logits.shape[1] == 1 else self.position]).cpu().double()
        if self.distractor is not None:
            difference: Tensor = row[:, self.target] - row[:, self.distractor]
            return difference
        log_probabilities: Tensor = row.log_softmax(-1)[:, self.target]
        return log_probabilities
