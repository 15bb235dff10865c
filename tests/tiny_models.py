"""Tiny models of every family with random weights, created offline: a folder each, in the format of `save_pretrained`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

SENTENCES = (
    "the owl asked the moon and the moon blinked",
    "a quiet harbor watched the copper moon",
    "attention is a weighted sum",
    "keys and queries meet",
    "she sells sea shells",
    "the cat sat on the mat",
)
TOKENS = 400  # of the vocabulary
MOST = 64  # tokens that they read

_WIDE = {"vocab_size": TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_BERT = _WIDE | {"intermediate_size": 48, "max_position_embeddings": MOST}
_LLAMA = _BERT | {"num_key_value_heads": 2}
_GEMMA = _LLAMA | {"head_dim": 8, "sliding_window": 4}
_BOTH = {
    "vocab_size": TOKENS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": MOST,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
_ONE_OF_EACH = {"layer_types": ["sliding_attention", "full_attention"]}

FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "GPT-2": ("GPT2Config", "GPT2LMHeadModel", {"vocab_size": TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": MOST}),
    "BERT": ("BertConfig", "BertForMaskedLM", _BERT),
    "RoBERTa": ("RobertaConfig", "RobertaModel", _BERT | {"max_position_embeddings": MOST + 1, "pad_token_id": 0}),
    "DistilBERT": ("DistilBertConfig", "DistilBertModel", {"vocab_size": TOKENS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": MOST}),
    "Llama": ("LlamaConfig", "LlamaForCausalLM", _LLAMA),
    "Qwen 3": ("Qwen3Config", "Qwen3ForCausalLM", _LLAMA | {"head_dim": 8}),
    "Mistral": ("MistralConfig", "MistralForCausalLM", _LLAMA | {"sliding_window": 4}),
    "Gemma 2": ("Gemma2Config", "Gemma2ForCausalLM", _GEMMA | {"attn_logit_softcapping": 0.5, "query_pre_attn_scalar": 5}),
    "Gemma 3": ("Gemma3TextConfig", "Gemma3ForCausalLM", _GEMMA | _ONE_OF_EACH),
    "GPT-NeoX": ("GPTNeoXConfig", "GPTNeoXForCausalLM", _BERT),
    "OPT": ("OPTConfig", "OPTForCausalLM", _WIDE | {"ffn_dim": 48, "max_position_embeddings": MOST, "word_embed_proj_dim": 32}),
    "Phi-3": ("Phi3Config", "Phi3ForCausalLM", _LLAMA | {"pad_token_id": 0}),
    "gpt-oss": ("GptOssConfig", "GptOssForCausalLM", _GEMMA | _ONE_OF_EACH | {"num_local_experts": 2, "num_experts_per_tok": 1}),
    "ModernBERT": ("ModernBertConfig", "ModernBertForMaskedLM", _BERT | {"local_attention": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}),
    "BART": ("BartConfig", "BartForConditionalGeneration", _BOTH),
    "Marian": ("MarianConfig", "MarianMTModel", _BOTH | {"decoder_start_token_id": 0}),
    "T5": ("T5Config", "T5ForConditionalGeneration", {"vocab_size": TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}),
    "Granite": ("GraniteConfig", "GraniteForCausalLM", _LLAMA | {"attention_multiplier": 0.3, "residual_multiplier": 0.6, "logits_scaling": 4.0, "embedding_multiplier": 2.0}),
    # These bypass the recorder.
    "Falcon": ("FalconConfig", "FalconForCausalLM", _WIDE),
    "Bloom": ("BloomConfig", "BloomForCausalLM", {"vocab_size": TOKENS, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "GPT-Neo": ("GPTNeoConfig", "GPTNeoForCausalLM", {"vocab_size": TOKENS, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "max_position_embeddings": MOST, "intermediate_size": 48}),
    "GPT-J": ("GPTJConfig", "GPTJForCausalLM", {"vocab_size": TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": MOST}),
    "MPNet": ("MPNetConfig", "MPNetModel", _BERT),
    "Mamba": ("MambaConfig", "MambaForCausalLM", {"vocab_size": TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}),
    # A decoder without a head.
    "BART alone": ("BartConfig", "BartModel", _BOTH),
}  # fmt: skip
"""The class of the config, the class of the model, and the values of the config."""

HYBRID: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Jamba": ("JambaConfig", "JambaForCausalLM", _LLAMA | {"num_hidden_layers": 4, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "expert_layer_period": 2, "mamba_d_state": 4, "mamba_d_conv": 2, "mamba_dt_rank": 4, "pad_token_id": 0}),
    "Qwen3-Next": ("Qwen3NextConfig", "Qwen3NextForCausalLM", _LLAMA | {"num_hidden_layers": 4, "head_dim": 8, "linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}),
    "Granite hybrid": ("GraniteMoeHybridConfig", "GraniteMoeHybridForCausalLM", _LLAMA | {"num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 2, "num_experts_per_tok": 1, "shared_intermediate_size": 16, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 4, "mamba_n_groups": 1}),
    "LFM2": ("Lfm2Config", "Lfm2ForCausalLM", _LLAMA | {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]}),
    "Zamba 2": ("Zamba2Config", "Zamba2ForCausalLM", _LLAMA | {"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"], "mamba_d_state": 4, "n_mamba_heads": 4, "mamba_headdim": 16, "mamba_ngroups": 1, "use_mem_rope": True, "num_mem_blocks": 2, "adapter_rank": 4, "num_key_value_heads": 4}),
}  # fmt: skip
"""The same for models in which some layers have no attention."""

NO_TEXT: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ViT": ("ViTConfig", "ViTModel", {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": 8, "patch_size": 4}),
    "Speech2Text": ("Speech2TextConfig", "Speech2TextForConditionalGeneration", _BOTH | {"input_feat_per_channel": 8, "max_source_positions": 16, "max_target_positions": MOST, "decoder_start_token_id": 1}),
}  # fmt: skip
"""The same for models that read no text."""


class TinyModels:
    """A folder of tiny models, each created on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, family: str) -> Path:
        """The folder of a family's model."""
        path = self.folder / family
        if not path.exists():
            self.save(path, *(FAMILIES | HYBRID | NO_TEXT)[family])
        return path

    def save(self, path: Path, config: str, model: str, knobs: dict[str, Any], seed: int = 0) -> None:
        """A model in a folder, with a tokenizer beside it."""
        import transformers

        with torch.random.fork_rng():
            torch.manual_seed(seed)
            network = getattr(transformers, model)(getattr(transformers, config)(**knobs))
            with (
                torch.no_grad()
            ):  # by default biases are 0, scores are small and weights almost equal: a test would see little
                for parameter in network.parameters():
                    parameter.add_(torch.randn(parameter.shape) * 0.2)
        network.save_pretrained(path)
        byte_level(SENTENCES).save_pretrained(path)


def byte_level(sentences: tuple[str, ...]) -> Any:
    """A tokenizer like GPT-2's."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<pad>", "<s>", "</s>", "<mask>"]
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(sentences, trainer)
    return fast(tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", mask_token="<mask>")


def sentence_piece(sentences: tuple[str, ...]) -> Any:
    """A tokenizer like Llama's and T5's: pieces with a leading blank, and bytes for unknown characters."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=100, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(sentences, trainer)
    known = [(piece, -5.0) for piece in sorted(tokenizer.get_vocab(), key=tokenizer.token_to_id)]
    known += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    tokenizer.model = models.Unigram(known, unk_id=3, byte_fallback=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return fast(tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def word_piece(sentences: tuple[str, ...]) -> Any:
    """A tokenizer like BERT's."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(vocab_size=60, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(sentences, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return fast(tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]")


def fast(tokenizer: Any, **special: Any) -> Any:
    """A tokenizer of transformers from one of tokenizers."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


TOKENIZERS: dict[str, Callable[[tuple[str, ...]], Any]] = {
    "byte-level": byte_level,
    "sentence-piece": sentence_piece,
    "word-piece": word_piece,
}
