"""Tiny models of ours that read sounds, with random weights: a wav2vec2 and an AST."""

from __future__ import annotations

from typing import Any

_WIDE: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip


def tiny_wav2vec2() -> tuple[Any, Any]:
    """A model of tokens that follow each other in time, every 20 ms as in wav2vec2, and its feature extractor."""
    from transformers import Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2Model

    from attention.models.ours import with_random_weights

    config = Wav2Vec2Config(
        **_WIDE,
        conv_dim=(32,) * 7,
        feat_extract_norm="layer",
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2,
    )
    return with_random_weights(Wav2Vec2Model(config)), Wav2Vec2FeatureExtractor()


def tiny_ast() -> tuple[Any, Any]:
    """A model of the patches of a spectrogram of three seconds, and its feature extractor."""
    from transformers import ASTConfig, ASTFeatureExtractor, ASTModel

    from attention.models.ours import with_random_weights

    sizes: dict[str, Any] = {"max_length": 324, "num_mel_bins": 64}
    return with_random_weights(ASTModel(ASTConfig(**_WIDE, **sizes))), ASTFeatureExtractor(**sizes)
