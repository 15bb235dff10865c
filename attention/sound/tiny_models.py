"""Tiny models of ours that read sounds, with random weights: a wav2vec2, an AST and a Whisper.

What the Whisper writes says nothing, and how it reads a sound is that of every Whisper.
"""

from __future__ import annotations

from typing import Any

_WIDE: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip
WORDS = "the owl asked moon and blinked a quiet harbor copper low high tone silence"
"""The words that it writes."""
SECONDS = 4  # that it reads; a trained one reads 30
_SPECIAL = (
    "startoftranscript", "en", "de", "translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps",
)  # fmt: skip
_BANDS, _WIDTH, _HEADS, _LAYERS, _MOST_TOKENS = 40, 32, 4, 2, 64
_FRAMES_PER_SECOND = 100
_SEED = 1  # of which it ends its texts
ALIGNMENT_HEADS = [[0, 1], [1, 0], [1, 3]]


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


def tiny_whisper() -> tuple[Any, Any]:
    """The model and its processor, as `Model.of` reads them."""
    from transformers import (
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperProcessor,
    )

    from attention.models.ours import with_random_weights

    tokenizer = _tokenizer()
    ids = dict(zip(_SPECIAL, tokenizer.convert_tokens_to_ids([f"<|{name}|>" for name in _SPECIAL]), strict=True))
    end, start = tokenizer.eos_token_id, ids["startoftranscript"]
    config = WhisperConfig(
        vocab_size=len(tokenizer), num_mel_bins=_BANDS, d_model=_WIDTH, encoder_layers=_LAYERS, decoder_layers=_LAYERS,
        encoder_attention_heads=_HEADS, decoder_attention_heads=_HEADS, encoder_ffn_dim=2 * _WIDTH, decoder_ffn_dim=2 * _WIDTH,
        max_source_positions=SECONDS * _FRAMES_PER_SECOND // 2, max_target_positions=_MOST_TOKENS, decoder_start_token_id=start,
        pad_token_id=end, bos_token_id=end, eos_token_id=end, suppress_tokens=None, begin_suppress_tokens=None,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = with_random_weights(WhisperForConditionalGeneration(config), _SEED)
    words = {*tokenizer(f" {WORDS}", add_special_tokens=False)["input_ids"], end}
    vars(model.generation_config).update(
        lang_to_id={f"<|{name}|>": ids[name] for name in ("en", "de")},
        task_to_id={name: ids[name] for name in ("transcribe", "translate")},
        forced_decoder_ids=[[1, None], [2, ids["transcribe"]]],
        no_timestamps_token_id=ids["notimestamps"], is_multilingual=True, return_timestamps=False,
        suppress_tokens=[number for number in range(len(tokenizer)) if number not in words],
        begin_suppress_tokens=[end], alignment_heads=ALIGNMENT_HEADS, _from_model_config=False,
    )  # fmt: skip
    extractor = WhisperFeatureExtractor(feature_size=_BANDS, chunk_length=SECONDS)
    return model, WhisperProcessor(extractor, tokenizer)


def _tokenizer() -> Any:
    """Bytes, and the words with a blank before them, each put together letter by letter."""
    from transformers import WhisperTokenizer
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    vocabulary = {letter: number for number, letter in enumerate(sorted(bytes_to_unicode().values()))}
    merges = list[tuple[str, str]]()
    for word in WORDS.split():
        piece = "Ġ"
        for letter in word:
            if piece + letter not in vocabulary:
                merges.append((piece, letter))
                vocabulary[piece + letter] = len(vocabulary)
            piece += letter
    vocabulary["<|endoftext|>"] = len(vocabulary)
    tokenizer = WhisperTokenizer(vocab=vocabulary, merges=merges)
    tokenizer.add_special_tokens({"extra_special_tokens": [f"<|{name}|>" for name in _SPECIAL]})
    return tokenizer
