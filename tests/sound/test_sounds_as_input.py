"""Sounds as the input of a model: bit for bit as its family computes, with every token at its seconds."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from margins import approx
from tiny_sounds import FAMILIES, TinySoundModels, extractor, network, noise

from attention import File, Model, metrics
from attention.base.errors import ConfigError, ModelError
from attention.models.medium_inputs import MediumInputs
from attention.patching.intervention import Intervention
from attention.sound.families import CONVOLVED, DECODED, PATCHED, Frames
from attention.sound.places import SoundPlace
from attention.sound.sound_file import Sound

SOUND = Sound.of((noise(0.6), 16_000))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinySoundModels:
    return TinySoundModels(tmp_path_factory.mktemp("models"))


def eager(models: TinySoundModels, family: str, sound: Sound = SOUND) -> Any:
    """The output of the family's own attention, from transformers alone."""
    path = models(family)
    model = getattr(transformers, FAMILIES[family][0]).from_pretrained(path, attn_implementation="eager").eval()
    inputs = extractor(family)(sound.samples(), sampling_rate=16_000, return_tensors="pt")
    with torch.no_grad():
        return model(**inputs, output_attentions=True)


@pytest.mark.sample(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_output_is_equal_to_eager_bit_for_bit(models: TinySoundModels, family: str) -> None:
    from attention.models import running
    from attention.models.recorder import recording

    expected = eager(models, family)
    model, own = Model(models(family), sound=SOUND), list[torch.Tensor]()
    loaded, inputs = model.load_inputs()
    with recording(lambda call: own.append(call.weights), weights=True):
        actual = running.run(loaded, inputs)
    names = [name for name, value in expected.items() if isinstance(value, torch.Tensor) and name in actual]
    assert names
    for name in names:
        assert torch.equal(actual[name], expected[name]), name
    trace = model.trace()
    assert len(own) == len(trace.layers) == len(expected.attentions)
    for layer, recorded, weights in zip(trace.layers, own, expected.attentions, strict=True):
        assert torch.equal(recorded, weights[0])
        # Those of the trace are computed from queries and keys, which are recorded.
        assert layer.weights == approx(weights[0])
        assert all(layer.has(step) for step in ("input", "query", "key", "value", "head_output", "w_q", "w_o"))
        assert layer.formula is not None
        assert len(layer.tokens) == weights.shape[-1]


def test_heads_of_wavlm_are_apart_and_their_mean_is_what_transformers_returns() -> None:
    model = network("WavLM")
    trace = Model.of(model, extractor("WavLM"), sound=SOUND).trace()
    inputs = extractor("WavLM")(SOUND.samples(), sampling_rate=16_000, return_tensors="pt")
    with torch.no_grad():
        attentions = model(**inputs, output_attentions=True).attentions
    for layer, mean in zip(trace.layers, attentions, strict=True):
        assert torch.equal(layer.weights.mean(0), mean[0, 0])
        assert not torch.equal(layer.weights[0], layer.weights[1])
        assert not layer.has("query")


@pytest.mark.parametrize("family", [name for name in FAMILIES if "AST" not in name])
def test_tokens_are_as_many_as_the_model_says_and_change_where_the_sound_does(
    models: TinySoundModels, family: str
) -> None:
    config = network(family).config
    frames = CONVOLVED[config.model_type](config)
    for n_samples in (*range(frames.field, frames.field + 3 * frames.hop, 37), 9_600, 16_001, 48_123):
        own = int(network(family)._get_feat_extract_output_lengths(n_samples)) if n_samples in (9_600, 48_123) else None
        conv = n_samples
        for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
            conv = (conv - kernel) // stride + 1
        assert own is None or own == conv
        assert frames.count(n_samples) == conv // getattr(config, "squeeze_factor", 1)
    # A gradient of a token's features is nowhere but in the samples of its place.
    model = network(family)
    sound = torch.from_numpy(noise(0.2))[None].requires_grad_()
    features = model.get_submodule(
        model.base_model_prefix if hasattr(model, model.base_model_prefix) else ""
    ).feature_extractor
    if getattr(config, "feat_extract_norm", "layer") == "layer":  # a group norm reads all of the sound
        features(sound)[0, :, 4].sum().backward()
        read = sound.grad[0].nonzero()[:, 0]
        assert (int(read[0]), int(read[-1]) + 1) == (4 * frames.hop, 4 * frames.hop + frames.field)


def test_frames_of_wav2vec2_are_those_of_its_paper() -> None:
    # Source: Baevski et al. 2020, wav2vec 2.0, section 4.2: a stride of about 20 ms, a receptive field of 400 samples or 25 ms.
    assert CONVOLVED["wav2vec2"](transformers.Wav2Vec2Config()) == Frames(320, 400)
    assert CONVOLVED["sew"](transformers.SEWConfig()) == Frames(640, 720)


def test_places_are_seconds(models: TinySoundModels) -> None:
    trace = Model(models("wav2vec2"), sound=SOUND).trace()
    assert len(trace.tokens) == 29
    for index, token in enumerate(trace.tokens):
        assert token.place == approx(SoundPlace(index * 0.02, index * 0.02 + 0.025), scale=1)
    assert trace.tokens[3] == "0.06–0.08 s"
    (seen,) = trace.pictures
    assert (seen.noun, seen.rows, seen.columns, seen.x.unit, seen.y) == ("sound", 1, 29, "s", None)
    assert seen.rgb.shape == (80, 29 * 4, 3)
    assert (seen.x.start, seen.x.stop) == approx((0.0025, 0.5825))
    token = trace.tokens[5]
    assert token.box == (20, 0, 24, 80)
    for other in (copy.deepcopy(token), pickle.loads(pickle.dumps(token))):
        assert (other, other.place, other.box) == (token, token.place, token.box)


def test_patches_of_ast_are_bands_of_time(models: TinySoundModels) -> None:
    """A tone of 2 kHz is in the band and the time that its token names, as the model's own patch embedding says."""
    samples = np.zeros(9_600, np.float32)
    samples[4_000:7_200] = np.sin(2 * np.pi * 2_000 * np.arange(3_200) / 16_000) / 2
    model = Model(models("AST"), sound=(samples, 16_000))
    trace = model.trace()
    assert trace.tokens[:2] == ("[CLS]", "[distillation]")
    (seen,) = trace.pictures
    assert (seen.rows, seen.columns, seen.patch_size) == (2, 5, (16, 16))
    # From the lowest band on, by time in each band; the picture has the lowest band at the bottom.
    places = [(token.row, token.column) for token in trace.tokens[2:]]
    assert places == [(row, column) for row in (1, 0) for column in range(5)]
    assert [token.place[:2] for token in trace.tokens[2:7]] == [approx((0.1 * i, 0.1 * i + 0.16)) for i in range(5)]
    loaded, inputs = model.load_inputs()
    assert isinstance(inputs, MediumInputs)
    values = inputs.read.arguments["input_values"][0]
    # What the convolution of the model reads for each token, from its own weights: all of the patch, and nothing else.
    grid = values.T.unfold(0, 16, 10).unfold(1, 16, 10).reshape(-1, 256)
    weight = loaded.model.embeddings.patch_embeddings.projection
    assert grid @ weight.weight.flatten(1).T + weight.bias == approx(loaded.model.get_input_embeddings()(values[None])[0])  # fmt: skip
    loudest = grid.amax(1).argmax()
    place = trace.tokens[2 + int(loudest)].place
    assert place.start < 7_200 / 16_000
    assert place.stop > 4_000 / 16_000
    assert place.low < 2_000 < place.high
    # The darkest pixel of what is drawn is that of the largest value, less what no cell is centred on.
    drawn, band = seen.rgb[..., 0], values.T.flip(0)[32 - 3 - 20 : 32 - 3, 3 : 3 + 50]
    assert np.unravel_index(drawn.argmin(), drawn.shape) == np.unravel_index(int(band.argmax()), band.shape)


def test_bands_of_ast_are_at_the_frequencies_of_its_filters(models: TinySoundModels) -> None:
    filters = extractor("AST").mel_filters  # [frequency mel], of transformers
    hertz = np.linspace(0, 8_000, 257)
    trace = Model(models("AST"), sound=SOUND).trace()
    for token, first in zip(trace.tokens[2::5], (0, 10), strict=True):
        peaks = [hertz[filters[:, band].argmax()] for band in (first, first + 15)]
        assert token.place.low < peaks[0] < peaks[1] < token.place.high
        assert token.place.high < hertz[filters[:, first + 17].argmax()] + 1 if first + 17 < 32 else True


def test_rest_of_a_short_sound_is_zeros_which_the_model_reads(models: TinySoundModels) -> None:
    trace = Model(models("AST"), sound=(noise(0.3), 16_000)).trace()
    assert "from 0.28 to 0.64 s there are zeros, which the model reads as well" in trace.pictures[0].sentence
    long = Model(models("AST"), sound=(noise(2), 16_000)).trace()
    assert long.notes == ("The sound lasts 2.00 s, and the model reads its first 0.66 s.",)
    cut = Model(models("AST"), sound=(noise(2)[:10_480], 16_000)).trace()
    assert all(torch.equal(a.query, b.query) for a, b in zip(long, cut, strict=True))


def test_long_sound_is_cut_as_a_text_is(models: TinySoundModels) -> None:
    trace = Model(models("wav2vec2"), sound=(noise(2), 16_000), max_tokens=20).trace()
    assert len(trace.tokens) == 20
    assert trace.notes == ("The sound has 99 tokens; the first 20 are read, the largest number allowed here: shorten it to see all of it.",)  # fmt: skip
    with pytest.raises(ConfigError, match=r"lasts at least 0\.025 seconds, which one token reads; got 0\.024"):
        Model(models("wav2vec2"), sound=(noise(2)[:390], 16_000)).trace()
    with pytest.raises(ConfigError, match=r"At most 8 tokens are read here; .* makes 12 of every sound"):
        Model(models("AST"), sound=SOUND, max_tokens=8).trace()
    with pytest.raises(ConfigError, match="All steps may take at most"):
        Model(models("wav2vec2"), sound=SOUND, max_bytes=1000).trace()


def test_sound_that_fits_with_some_samples_left_is_not_cut(models: TinySoundModels) -> None:
    trace = Model(models("wav2vec2"), sound=(noise(1)[: 400 + 19 * 320 + 100], 16_000), max_tokens=20).trace()
    assert len(trace.tokens) == 20
    assert trace.notes == ()


def test_letters_are_not_shown_and_this_is_said(models: TinySoundModels) -> None:
    trace = Model(models("wav2vec2 letters"), sound=SOUND).trace()
    assert not trace.predictions
    assert "a letter for every stretch of time (CTC), which is not shown" in trace.no_prediction_reason


def test_other_rate_is_resampled_with_a_note(models: TinySoundModels) -> None:
    time = np.arange(44_100) / 44_100
    trace = Model(models("wav2vec2"), sound=(np.sin(2 * np.pi * 440 * time), 44_100)).trace()
    assert trace.notes == ("The sound is resampled from 44,100 to 16,000 samples in a second, which the model reads.",)
    own = Model(models("wav2vec2"), sound=(np.sin(2 * np.pi * 440 * np.arange(16_000) / 16_000), 16_000)).trace()
    assert len(trace.tokens) == len(own.tokens) == 49
    assert trace[0].query[:, 5:-5] == approx(own[0].query[:, 5:-5], within=0.02, why="the filter of the resampling")
    # Samples that no token reads change nothing.
    short = Model(models("wav2vec2"), sound=(noise(1, 44_100), 44_100), max_tokens=10).trace()
    long = Model(
        models("wav2vec2"), sound=(np.concatenate([noise(1, 44_100), noise(1, 44_100, 1)]), 44_100), max_tokens=10
    )
    assert torch.equal(short[0].query, long.trace()[0].query)


def test_classes_are_predicted(models: TinySoundModels) -> None:
    for family in ("AST classes", "wav2vec2 classes"):
        logits = eager(models, family).logits[0]
        (prediction,) = Model(models(family), sound=SOUND).trace().predictions
        assert torch.equal(prediction.all_logits, logits)
        names = ("owl", "rain", "bell")
        assert prediction.tokens == tuple(names[i] for i in logits.argsort(descending=True))


def test_model_in_memory_gives_what_its_folder_gives(models: TinySoundModels, tmp_path: Path) -> None:
    for family in ("HuBERT", "AST"):
        loaded = network(family)
        loaded.set_attn_implementation("eager")
        trace = Model.of(loaded, extractor(family), sound=SOUND).trace()
        from_folder = Model(models(family), sound=SOUND).trace()
        assert trace.tokens == from_folder.tokens
        assert all(torch.equal(a.query, b.query) for a, b in zip(trace, from_folder, strict=True))
        with pytest.raises(
            ModelError, match=r"needs the feature extractor of a model that reads sounds, such as .*; got None"
        ):
            Model.of(network(family), None, sound=SOUND)


def test_trace_of_a_file_has_the_same_places(models: TinySoundModels, tmp_path: Path) -> None:
    for family in ("wav2vec2", "SEW", "AST"):
        trace = Model(models(family), sound=SOUND).trace()
        trace.save(tmp_path / "trace.safetensors")
        again = File.open(tmp_path / "trace.safetensors").trace()
        assert again.tokens == trace.tokens
        assert [getattr(each, "place", None) for each in again.tokens] == [getattr(each, "place", None) for each in trace.tokens]  # fmt: skip
        assert np.array_equal(again.pictures[0].rgb, trace.pictures[0].rgb)
        assert (again.pictures[0].words, again.pictures[0].noun) == (trace.pictures[0].words, "sound")


def test_heads_are_ablated_and_measured(models: TinySoundModels) -> None:
    plain = Model(models("HuBERT"), sound=SOUND).trace()
    ablated = Model(models("HuBERT"), sound=SOUND, interventions=(Intervention(0, 1, ablate="zero"),)).trace()
    assert torch.equal(ablated[0].query, plain[0].query)
    assert not torch.equal(ablated[1].query, plain[1].query)
    table = metrics.of(plain)
    entropy = table.values[..., [*metrics.all_metrics()].index("entropy")]
    assert np.isfinite(entropy).all()


def test_model_gets_what_it_reads_or_says_what_is_missing(models: TinySoundModels) -> None:
    for model, message in (
        (Model(models("wav2vec2"), "a text"), "reads a sound: give it as sound="),
        (Model(models("AST"), "a text", sound=SOUND), "reads a sound and no text"),
    ):
        with pytest.raises(ConfigError, match=message):
            model.trace()


def test_feature_extractor_that_does_not_fit_is_refused(models: TinySoundModels) -> None:
    other = transformers.ASTFeatureExtractor(max_length=2**20, num_mel_bins=32)
    with pytest.raises(ModelError, match=r"makes a spectrogram of max_length 1048576, and its config\.json needs 64"):
        Model.of(network("AST"), other, sound=SOUND)
    for rate in (0, 10**9, "fast"):
        fast = transformers.Wav2Vec2FeatureExtractor()
        fast.sampling_rate = rate
        with pytest.raises(ModelError, match=f"that of Wav2Vec2Model asks for {rate}"):
            Model.of(network("wav2vec2"), fast, sound=SOUND)


def test_every_family_is_tried() -> None:
    tried = {getattr(transformers, name).config_class.model_type for name, _ in FAMILIES.values()} | {"wavlm"}
    assert tried == {*CONVOLVED, *PATCHED} - DECODED  # of which tests/sound/test_whisper.py has models
