"""A tiny model of proteins, made by code: the vocabulary and the architecture of ESM-2, with random weights."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attention.models.ours import OurModel, with_random_weights

NAME = "tiny-esm"
VOCABULARY = ("<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>")
"""The 33 tokens of ESM-1b and ESM-2, in their order."""
_MOST = 1026  # tokens, as in ESM-2


def tiny_esm() -> tuple[Any, Any]:
    """The model and its tokenizer, as `Model.of` reads them."""
    import torch
    from transformers import EsmConfig, EsmForMaskedLM, EsmTokenizer

    with TemporaryDirectory() as folder:
        vocabulary = Path(folder, "vocab.txt")  # which the tokenizer reads once
        vocabulary.write_text("\n".join(VOCABULARY), encoding="utf-8")
        tokenizer = EsmTokenizer(str(vocabulary), model_max_length=_MOST - 2)
    ids: dict[str, Any] = {f"{name}_token_id": VOCABULARY.index(f"<{name}>") for name in ("mask", "pad", "eos")}
    config = EsmConfig(
        vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=_MOST, position_embedding_type="rotary", token_dropout=True, emb_layer_norm_before=False, **ids,
    )  # fmt: skip
    model = with_random_weights(EsmForMaskedLM(config))
    with torch.no_grad():
        for layer in model.esm.encoder.layer:
            layer.attention.self.query.weight.mul_(4)  # some residues stand out
        regression = model.esm.contact_head.regression
        regression.weight.mul_(16)
        regression.bias.fill_(-3)  # as in ESM-2, most residues do not touch
    return model, tokenizer


TINY_ESM = OurModel(
    "A tiny ESM-2 with random weights: it has learned nothing, and its contacts say nothing about proteins.", tiny_esm
)
