"""Tiny models whose weights come from a formula, so that other libraries' numbers for them can be kept: no random numbers, no files.

The weights are the same with every version of torch and transformers. The scripts in `data/` write the numbers, with this folder in
PYTHONPATH.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tiny_models import SENTENCES, byte_level
from tiny_models import TOKENS as N_BYTE_LEVEL

TOKENS = 40
BASE_IDS, OTHER_IDS = [3, 14, 15, 9, 2, 6, 5], [3, 14, 21, 9, 7, 6, 5]
TARGET, DISTRACTOR = 11, 27
_LLAMA = {
    "vocab_size": TOKENS, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "GPT-2": ("GPT2Config", "GPT2LMHeadModel", {"vocab_size": TOKENS, "n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 32, "bos_token_id": 1, "eos_token_id": 2}),
    "Llama": ("LlamaConfig", "LlamaForCausalLM", _LLAMA),
    "Llama with shared keys": ("LlamaConfig", "LlamaForCausalLM", _LLAMA | {"num_key_value_heads": 2}),
}  # fmt: skip
"""The class of the config, the class of the model, and the values of the config; the tokens of these models are words, see `word`."""
CONFIGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "GPT-2": ("GPT2Config", "GPT2LMHeadModel", {
        "vocab_size": N_BYTE_LEVEL, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "bos_token_id": 1, "eos_token_id": 2,
    }),
    "Llama": ("LlamaConfig", "LlamaForCausalLM", {
        "vocab_size": N_BYTE_LEVEL, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 48, "max_position_embeddings": 32, "tie_word_embeddings": False,
    }),
}  # fmt: skip
"""The same for models with a byte-level tokenizer."""


def model(name: str) -> Any:
    """One of `MODELS`."""
    return _build(*MODELS[name])


def save_formula_model(family: str, folder: Path) -> None:
    """Saves one of `CONFIGS`, with a tokenizer."""
    _build(*CONFIGS[family]).save_pretrained(folder)
    byte_level(SENTENCES).save_pretrained(folder)


def _build(config: str, network: str, values: dict[str, Any]) -> Any:
    """A model whose weights are pseudo-random numbers of a formula."""
    import transformers

    result = getattr(transformers, network)(getattr(transformers, config)(**values)).eval()
    with torch.no_grad():
        for i, (path, parameter) in enumerate(sorted(result.named_parameters())):
            x = torch.arange(parameter.numel(), dtype=torch.float64) + 1000 * i
            uniform = (torch.sin(x * 12.9898) * 43758.5453).remainder(1) * 2 - 1
            is_norm = "norm" in path or ".ln_" in path
            scale = 0.2 if is_norm or parameter.ndim == 1 else 0.5
            numbers = uniform.view_as(parameter) * scale + float(is_norm and path.endswith("weight"))
            parameter.copy_(numbers.to(parameter.dtype))
    return result


def word(token: int) -> str:
    """The text of a token."""
    return f"t{token:02}"


def text(ids: list[int]) -> str:
    """The text of these tokens."""
    return " ".join(map(word, ids))


def tokenizer() -> Any:
    """A tokenizer whose tokens are these words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({word(i): i for i in range(TOKENS)}, unk_token=word(0)))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token=word(0), bos_token=word(1), eos_token=word(2), pad_token=word(0)
    )
