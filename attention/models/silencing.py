"""Many runs of one text at once, each with other heads silenced: what becomes of a prediction, or of the tokens' vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from attention.errors import ConfigError
from attention.formula.intervening import Pass
from attention.models import predicting, recording, running, work
from attention.models.passing import goes_on

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attention.models.loaded import Loaded
    from attention.models.recording import Call

Heads = tuple[tuple[int, int], ...]
"""Heads that are silenced together, each as (layer, head)."""

TOKENS = 512  # of all texts of a batch: a fraction of a second, so that others are not kept waiting
BYTES = 2**26  # of its weights of attention in one layer
MOST_SECONDS = 110.0  # that all runs take together
_NUMBER = 4  # bytes


@dataclass(frozen=True)
class Asked:
    """What of a prediction is looked at.

    Attributes:
        position: of the token whose vector it is read from; without a language-model head that of the vector, None: of all tokens.
        target: the token whose log-probability it is; None in a model without a language-model head.
        distractor: where there is one, the logit of the target less that of this token.
    """

    position: int | None = None
    target: int | None = None
    distractor: int | None = None

    @property
    def at(self) -> tuple[int, ...]:
        """The positions at which the model is asked."""
        return () if self.target is None or self.position is None else (self.position,)


def seconds(loaded: Loaded, given: Mapping[str, Tensor], many: int, touched: int = 0) -> float:
    """How many seconds so many runs take, about, of a model of which so many layers are changed anyway.

    Raises:
        ConfigError: they are too many.
    """
    tokens = sum(one.shape[-1] for one in given.values())
    needed = (work.numbers(loaded) * tokens / work.A_SECOND + work.A_LAYER * touched) * many
    if needed > MOST_SECONDS:
        raise ConfigError(
            f"Silencing {many:,} heads in turn takes some {needed:,.0f} s here, and at most {MOST_SECONDS:,.0f} s are "
            "spent: choose a shorter text, or a smaller model."
        )
    return needed


def runs(
    loaded: Loaded,
    given: Mapping[str, Tensor],
    those: Sequence[Heads],
    asked: Asked,
    silence: str = "zero",
    changing: Pass | None = None,
) -> Iterator[list[tuple[float, float]]]:
    """For each group of heads that are silenced together what is asked without it and with it, in batches.

    In every batch the text runs along with none of them silenced, so that nothing but the heads makes a difference.

    Args:
        loaded: the model.
        given: the ids of its texts.
        those: the groups, by layers of the trace.
        asked: what of the prediction is looked at.
        silence: "zero", or "mean": its mean over positions.
        changing: what is changed in all runs, before heads are silenced on top of it.
    """
    changing = changing or Pass()
    length = max(one.shape[-1] for one in given.values())
    maps = max(site.n_heads for site in loaded.sites) * length * length * _NUMBER
    size = max(1, min(TOKENS // length, BYTES // maps) - 1)
    for first in range(0, len(those), size):
        batch = ((), *those[first : first + size])
        calls = 0

        def change(output: Tensor, of: Callable[[int], Call], batch: tuple[Heads, ...] = batch) -> Tensor:
            nonlocal calls
            layer, site = loaded.order[calls], loaded.sites[calls]
            calls += 1
            if changing.touches(layer):
                each = (goes_on(changing, layer, of(row), site) for row in range(len(output)))
                output = torch.stack([one.transpose(0, 1) for one in each if one is not None])
            there = [(row, head) for row, heads in enumerate(batch) for at, head in heads if at == layer]
            if not there:
                return output
            rows, heads = (list(one) for one in zip(*there, strict=True))
            output = output.clone()
            kept = output.mean(dim=1, keepdim=True).expand_as(output) if silence == "mean" else torch.zeros_like(output)
            output[rows, :, heads] = kept[rows, :, heads]
            return output

        many = {name: ids.expand(len(batch), -1) for name, ids in given.items()}
        with recording.replacing(change), predicting.asked(asked.at):
            found = _measured(running.run(loaded, many), asked)
        before, *after = found.tolist()
        yield [(before, one) for one in after]


def _measured(found: Any, asked: Asked) -> Tensor:
    """What is asked of every text of a batch: a log-probability, a logit difference, or the cosine with the first text's vectors."""
    if asked.target is None:
        last = found["last_hidden_state"].double()
        cosine = torch.cosine_similarity(last, last[:1], dim=-1)
        # Not more than 1, whatever rounding says of a vector and itself.
        chosen: Tensor = (cosine.mean(-1) if asked.position is None else cosine[:, asked.position]).clamp_max(1)
        return chosen
    logits = found.get("logits", found.get("prediction_logits"))
    row = logits[:, 0 if logits.shape[1] == 1 else asked.position].double()
    if asked.distractor is not None:
        difference: Tensor = row[:, asked.target] - row[:, asked.distractor]
        return difference
    logs: Tensor = row.log_softmax(-1)[:, asked.target]
    return logs
