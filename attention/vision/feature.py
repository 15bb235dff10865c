"""What this feature adds to the library."""

from __future__ import annotations

from attention.export.states import State
from attention.features import Feature
from attention.formula.names import HEAD_OUTPUT, OUTPUT
from attention.metrics.find_rule import NEAR
from attention.metrics.metric import CellWeights, Metric
from attention.metrics.patterns import CLS, PATCH, REGISTER, WORD
from attention.models.ours import OurModel
from attention.vision import places
from attention.vision.examples import tiny_detr, tiny_mae, tiny_swin, tiny_vit
from attention.vision.medium import Pictures

_VIT = "Dosovitskiy et al. 2021, An Image is Worth 16x16 Words"
_DARCET = "Darcet et al. 2024, Vision Transformers Need Registers"
# fmt: off
_METRICS = (
    Metric("patch distance", "How far away a patch looks on average, in patches: the distance between the centres of two patches, one row or one column being 1. Weights on other tokens do not count.",
        "Σ_j a_ij √((r_i − r_j)² + (c_i − c_j)²) / Σ_j a_ij, over patches j of the same picture, at row r and column c", "queries that are patches",
        "Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, figure 7 (attention distance)", places.patch_distance, "diagonal", of_pictures=True),
    Metric("near patches", "The total weight of the patch of the query itself and of its neighbours, at most one row and one column away.",
        f"Σ a_ij over patches j of the same picture with |r_i − r_j| ≤ {NEAR} and |c_i − c_j| ≤ {NEAR}", "queries that are patches",
        "Cordonnier et al. 2020, On the Relationship between Self-Attention and Convolutional Layers", CellWeights(places.near_patches), of_pictures=True),
    Metric("on the picture", "The total weight of patches.", "Σ a_ij over j with x_j a patch", "queries that see a patch, in a layer that reads a picture",
        _VIT, CellWeights(places.keys_of_kind(PATCH)), of_pictures=True),
    Metric("on [CLS]", "The total weight of [CLS], and of the distillation token where there is one. As no patch of the picture, it also serves heads that look at nothing (a sink).",
        "Σ a_ij over j with x_j [CLS] or the distillation token", "queries that see one of them, in a layer that reads a picture",
        _VIT, CellWeights(places.keys_of_kind(CLS)), of_pictures=True),
    Metric("on registers", "The total weight of registers, which a model was given as a place for sinks.",
        "Σ a_ij over j with x_j a register", "queries that see a register, in a layer that reads a picture",
        _DARCET, CellWeights(places.keys_of_kind(REGISTER)), of_pictures=True),
    Metric("on words", "The total weight of words, which are neither patches nor special tokens.",
        "Σ a_ij over j with x_j a word", "queries that see a word, in a layer that reads a picture",
        "Chen et al. 2024, An Image is Worth 1/2 Tokens After Layer 2 (how little of the attention of a language model lies on a picture)",
        CellWeights(places.keys_of_kind(WORD)), of_pictures=True),
    Metric("sink patch", "The largest mean weight of a single patch: near 1 if all queries look at the same patch, often one of an even background in which the model keeps something else. Under a causal mask, early patches have fewer rivals.",
        "max_j mean_i a_ij over patches j, the mean over the queries that see j", "the queries that see it, in a layer that reads a picture",
        _DARCET, None, of_heads=places.sink_patches, estimate=places.sink_seconds, of_pictures=True),
)
# fmt: on

_MODELS = {
    "tiny-vit": OurModel("A tiny vision transformer with random weights: it has learned nothing.", tiny_vit),
    "tiny-swin": OurModel(
        "A tiny Swin with random weights, whose patches attend in windows: it has learned nothing.", tiny_swin
    ),
    "tiny-mae": OurModel(
        "A tiny ViT-MAE with random weights, whose encoder reads a quarter of the patches: it has learned nothing.",
        tiny_mae,
    ),
    "tiny-detr": OurModel(
        "A tiny DETR with random weights: it has learned nothing, so that no box means an object.", tiny_detr
    ),
}

# fmt: off
_STATES = (
    State(
        "detector", "What an object query looks at",
        "A tiny DETR with random weights. Each query predicts a box, drawn over the picture, and the weights are where it looks: choose another query.",
        {"source": "model", "model": "tiny-detr", "image": "example:circle-and-square"},
        knobs=("temperature",), layer=5, heads=(0, 1), q=7, k=20, skip=(HEAD_OUTPUT, OUTPUT)),  # the page does not add b_O
)
# fmt: on

FEATURE = Feature(name="vision", metrics=_METRICS, states=_STATES, media=(Pictures(),), models=_MODELS)
