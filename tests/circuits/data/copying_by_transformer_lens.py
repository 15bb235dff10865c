"""Writes copying_by_transformer_lens.json: eigenvalues and copying scores of two tiny models, computed by TransformerLens.

Run once in an environment of its own that has TransformerLens 4.3.0, which is no dependency of this project, with the folder `tests` in
PYTHONPATH:

    PYTHONPATH=tests/circuits python tests/circuits/data/copying_by_transformer_lens.py

The models are those of `tests/models/formula_models.py`. "default" is TransformerLens' own processing of weights (fold_ln, center_writing_weights,
center_unembed, fold_value_biases); "uncentered" is the same with center_unembed=False.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from formula_models import CONFIGS, save_formula_model
from transformer_lens import FactoredMatrix
from transformer_lens.model_bridge import TransformerBridge


def rows(values: torch.Tensor) -> list:
    """Numbers with nine digits, as nested lists."""
    return json.loads(json.dumps(values.tolist()), parse_float=lambda text: float(f"{float(text):.9g}"))


def numbers(family: str, center_unembed: bool) -> dict[str, list]:
    with TemporaryDirectory() as folder:
        save_formula_model(family, Path(folder))
        bridge = TransformerBridge.boot_transformers(folder, device="cpu")
    bridge.enable_compatibility_mode(disable_warnings=True, center_unembed=center_unembed)
    w_v, w_o, w_q, w_k = (getattr(bridge, name).detach().double() for name in ("W_V", "W_O", "W_Q", "W_K"))
    if len(w_v[0]) != len(w_o[0]):  # grouped queries
        w_v, w_k = (w.repeat_interleave(w_o.shape[1] // w.shape[1], dim=1) for w in (w_v, w_k))
    w_e, w_u = bridge.W_E.detach().double(), bridge.W_U.detach().double()
    ov = FactoredMatrix(w_v, w_o)
    full = FactoredMatrix(w_e @ w_v, w_o @ w_u)
    values = full.eigenvalues
    return {
        "copying score": rows(values.sum(-1).real / values.abs().sum(-1)),
        "OV singular values": rows(ov.svd()[1]),
        "QK singular values": rows(FactoredMatrix(w_q, w_k.mT).svd()[1]),
    }


if __name__ == "__main__":
    result = {
        "TransformerLens": "4.3.0",
        "families": {
            family: {name: numbers(family, centered) for name, centered in (("default", True), ("uncentered", False))}
            for family in CONFIGS
        },
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result) + "\n", encoding="utf-8")
