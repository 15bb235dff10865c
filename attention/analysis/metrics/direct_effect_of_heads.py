"""The direct effect of every head on the likeliest token of the last prediction."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attention.core.names import WEIGHTS
from attention.core.readout import Readout
from attention.core.residual_parts import HEAD, LOGITS
from attention.errors import AttentionError

if TYPE_CHECKING:
    from torch import Tensor

    from attention.core.trace import Trace


def direct_effects(trace: Trace) -> Tensor | None:
    """What each head adds to the logit of the likeliest token, through frozen norms, [layer head]; None if it has no such parts.

    Source: Wang et al. 2022, "Interpretability in the Wild", section 3.1.
    """
    import torch

    if not _predicts(trace) or trace.model_run is None:
        return None
    prediction = trace.predictions[-1]
    readout = Readout("the logit", ((prediction.ids[0], 1),))
    try:
        run = trace.model_run.linear_run()
        direction = readout.directions(run)[prediction.position]
        parts, values = run.contributions(LOGITS, prediction.position, direction)
    except AttentionError:
        return None
    n_heads = [layer.n_heads if layer.has(WEIGHTS) else 0 for layer in trace.layers]
    result = torch.full((len(n_heads), max(n_heads, default=0)), math.nan)
    for index, count in enumerate(n_heads):
        result[index, :count] = 0.0  # the heads of an encoder reach the logits through the decoder only
    for part, value in zip(parts, values.tolist(), strict=True):
        if part.kind == HEAD and part.layer is not None and part.head is not None:
            result[part.layer, part.head] = value
    return result


def estimated_seconds(trace: Trace) -> float:
    """The estimated seconds of `direct_effects`."""
    if not _predicts(trace) or trace.model_run is None:
        return 0.0
    try:
        return trace.model_run.estimate_seconds()
    except AttentionError:
        return 0.0


def _predicts(trace: Trace) -> bool:
    return bool(trace.predictions) and not trace.predictions[-1].fills_mask
