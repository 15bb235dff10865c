"""Direct effects (direct logit attribution): what each head adds to a logit through W_O, the frozen norms, and the unembedding.

Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention.core.readout import Readout
from attention.core.residual_parts import LOGITS
from attention.core.residual_parts import HEAD
from attention.errors import MissingError
from attention.models import linearize, lm_head
from attention.models.measurement import Measurement
from attention.patching.forward import PatchedForward

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel

_NO_LOGITS = "a direct effect is what a head adds to a logit, and this model predicts no tokens."
_FILLS_MASKS = "a model that fills masks has a non-linear layer between the last vectors and the logits, so no part of a logit belongs to one head."


def direct_effects(
    loaded: LoadedModel,
    model_inputs: Mapping[str, Tensor],
    measurement: Measurement,
    forward: PatchedForward | None = None,
) -> tuple[dict[int, Tensor], float] | str:
    """What each head adds to the logit, or to the logit difference: [head] for each layer, and the remainder.

    Every norm on the way, and a softcap of the logits, is frozen at its factor in this run. The remainder comes from the embedding,
    the MLPs and all biases; everything together is the logit. If the model is not additive in this way, the reason in a sentence.
    """
    if measurement.target is None or measurement.position is None or not lm_head.vocabulary_size(loaded):
        return _NO_LOGITS
    if lm_head.is_masked_lm(loaded):
        return _FILLS_MASKS
    position = measurement.position
    tokens = (measurement.target, 1), (measurement.distractor, -1)
    readout = Readout("the logit", tuple((token, sign) for token, sign in tokens if token is not None))
    try:
        run = linearize.run_linear(loaded, model_inputs, forward)
        parts, values = run.contributions(LOGITS, position, readout.directions(run)[position])
    except MissingError as error:
        return str(error)
    effects = {layer: torch.zeros(site.n_heads, dtype=torch.float64) for layer, site in loaded.sites_by_layer.items()}
    remainder = readout.constant(run, position)
    for part, value in zip(parts, values.tolist(), strict=True):
        if part.kind == HEAD and part.layer is not None and part.head is not None:
            effects[part.layer][part.head] = value
        else:
            remainder += value
    return effects, remainder
