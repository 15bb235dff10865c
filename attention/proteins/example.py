"""A tiny model of proteins, made by code: the vocabulary and the architecture of ESM-2, with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAME = "tiny-esm"
ABOUT = "A tiny ESM-2 with random weights (seed 0), made by the Lab: it shows the mechanism, and its contacts say nothing about proteins."
VOCABULARY = ("<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>")
"""The 33 tokens of ESM-1b and ESM-2, in their order."""
_MOST = 1026  # tokens, as in ESM-2


def save(folder: Path) -> None:
    """Writes the model and its tokenizer into a folder, which `Model` then reads."""
    import torch
    from transformers import EsmConfig, EsmForMaskedLM, EsmTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(VOCABULARY), encoding="utf-8")
    tokenizer = EsmTokenizer(str(vocabulary), model_max_length=_MOST - 2)
    ids: dict[str, Any] = {f"{name}_token_id": VOCABULARY.index(f"<{name}>") for name in ("mask", "pad", "eos")}
    config = EsmConfig(
        vocab_size=len(VOCABULARY), hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=_MOST, position_embedding_type="rotary", token_dropout=True, emb_layer_norm_before=False, **ids,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng([]), torch.no_grad():
        model = EsmForMaskedLM(config)
        for name, parameter in model.named_parameters():  # as they are made, all weights of attention are almost equal
            is_norm = name.lower().endswith(("layernorm.weight", "layer_norm.weight"))
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3 + is_norm)
        regression = model.esm.contact_head.regression
        regression.weight.mul_(20)
        regression.bias.fill_(-3)  # as in ESM-2, most residues do not touch
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "lab.json").write_text(json.dumps({"about": ABOUT}), encoding="utf-8")
