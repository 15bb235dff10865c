"""Whisper: its encoder over a sound, its decoder over words, and the time of each word, against what transformers computes."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from test_pages import opened
from tiny_models import SENTENCES, byte_level
from tiny_sounds import encoded
from torch import Tensor

from attention import Cell
from attention.base.errors import ConfigError, MissingError, ModelError
from attention.export.program import python
from attention.models.library import LIBRARY
from attention.patching.intervention import Intervention
from attention.sound import SoundPlace, alignment_heads, tiny_models, word_times
from attention.sound.alignment import first_frames, smoothed
from attention.sound.examples import example_sound
from attention.sound.tiny_models import ALIGNMENT_HEADS, SECONDS
from attention.sources.file import File
from attention.sources.model import Model
from attention.trace.trace import Trace

RISING, ODD = example_sound("rising-tones"), example_sound("odd-tone")  # 3.2 and 3 seconds
tiny_whisper = cache(tiny_models.tiny_whisper)
START = "<|startoftranscript|>"
WORDS = ("·the", "·owl", "·asked", "·the", "·moon")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "tiny-whisper"
    for part in tiny_whisper():
        part.save_pretrained(path)
    return str(path)


def _changed(**config: Any) -> tuple[Any, Any]:
    """The tiny Whisper with another generation config."""
    model, processor = deepcopy(tiny_whisper())
    for name, value in config.items():
        setattr(model.generation_config, name, value)
    return model, processor


def _features(sound: Any, processor: Any) -> Any:
    return processor(sound.samples(), sampling_rate=sound.rate, return_tensors="pt", return_attention_mask=True)


def _ids(trace: Trace) -> list[int]:
    assert trace.model_run is not None
    return [*trace.model_run.token_ids]


# -- what is read and recorded -------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "the owl asked the moon"])
def test_weights_and_logits_are_those_of_the_model(text: str, folder: str) -> None:
    model, processor = _changed()
    model.set_attn_implementation("eager")
    for source in (Model(folder, text2=text, sound=RISING), Model.of(model, processor, text2=text, sound=RISING)):
        trace = source.trace()
        ids = torch.tensor([_ids(trace)])
        features = _features(RISING, processor).input_features
        with torch.no_grad():
            own = model(input_features=features, decoder_input_ids=ids, output_attentions=True)
        expected = {
            f"{kind} {number}": weights[0]
            for kind in ("encoder", "decoder", "cross")
            for number, weights in enumerate(own[f"{kind}_attentions"])
        }
        assert [layer.name for layer in trace] == [*expected]
        for layer in trace:
            assert layer.formula is not None
            assert layer["weights"] == approx(expected[layer.name])
        logits = trace.predictions[-1].all_logits
        # A model of a folder computes logits where they are asked for, and a product of fewer rows may round otherwise.
        assert logits == approx(own.logits[0, -1])
        assert source.handle is None or torch.equal(logits, own.logits[0, -1])
        assert trace.layers[-1].tokens == trace.input_tokens
        if text:
            assert trace.input_tokens[4:] == WORDS


def test_places_are_frames_and_padding_is_said() -> None:
    model, processor = tiny_whisper()
    trace = Model.of(model, processor, text2="the owl", sound=RISING).trace()
    encoder, cross = trace.layers[0], trace.layers[-1]
    assert cross.key_tokens == encoder.tokens == trace.tokens
    assert len(trace.tokens) == model.config.max_source_positions == 50 * SECONDS
    places = [token.place for token in trace.tokens]
    assert places == [SoundPlace(round(0.02 * i, 6), round(0.02 * i + 0.02, 6)) for i in range(200)]
    # As many as the attention mask of transformers has zeros, which Whisper does not read.
    features = _features(RISING, processor)
    n_heard = int(features.attention_mask[0, ::2].sum())
    assert [token.endswith(", padding") for token in trace.tokens] == [i >= n_heard for i in range(200)]
    assert trace.tokens[n_heard - 1 : n_heard + 1] == ("3.18–3.20 s", "3.20–3.22 s, padding")
    assert any("200 tokens: 40 of them are silence after the sound" in note for note in trace.notes)
    assert "40 of 200 tokens" in trace.pictures[0].sentence
    assert float(cross["weights"][..., n_heard:].sum(-1).min()) > 0
    with torch.no_grad():
        with_mask, without = (
            model(features.input_features, attention_mask=mask, decoder_input_ids=torch.tensor([_ids(trace)])).logits
            for mask in (features.attention_mask, None)
        )
    assert torch.equal(with_mask, without)


def test_drawn_spectrogram_is_what_the_model_reads() -> None:
    model, processor = tiny_whisper()
    (seen,) = Model.of(model, processor, text2="the", sound=RISING).trace().pictures
    features = _features(RISING, processor).input_features[0].numpy()
    assert (seen.noun, seen.x, seen.rows, seen.columns) == ("sound", ("s", 0.0, 4.0, ()), 1, 200)
    assert seen.rgb.shape == (40, 400, 3)
    # Whisper cuts at 80 decibels below the loudest: white there, black at the loudest, the highest frequency at the top.
    darkness = (features - features.max() + 2) / 2
    assert 255 * (1 - darkness[::-1, :, None]).repeat(3, axis=-1) == approx(seen.rgb, step=1)


def test_sound_is_cut_at_the_length_of_the_model_and_short_ones_are_read() -> None:
    model, processor = tiny_whisper()
    long, cut = (np.sin(np.arange(n) / 9).astype(np.float32) for n in (16_000 * 6, 16_000 * SECONDS))
    traces = [Model.of(model, processor, text2="the", sound=(samples, 16_000)).trace() for samples in (long, cut)]
    assert torch.equal(traces[0].predictions[0].all_logits, traces[1].predictions[0].all_logits)
    assert any("lasts 6.00 s, and the model reads its first 4.00 s" in note for note in traces[0].notes)
    assert not any(token.endswith("padding") for trace in traces for token in trace.tokens)
    short = Model.of(model, processor, text2="the", sound=(long[:1], 16_000)).trace()
    assert [token.endswith("padding") for token in short.tokens] == [False, *[True] * 199]


# -- what the decoder begins with ----------------------------------------------------------------------

BEGUN: dict[str, tuple[dict[str, Any], str | None]] = {
    "as it hears": ({}, None),
    "an older config": ({"forced_decoder_ids": [[1, "<|de|>"], [2, "<|translate|>"], [3, "<|notimestamps|>"]]}, "de translate notimestamps"),
    "English by name": ({"language": "English", "task": "translate"}, "en translate notimestamps"),
    "a language by its token": ({"language": "<|de|>"}, "de transcribe notimestamps"),
    "timestamps": ({"language": "de", "return_timestamps": True}, "de transcribe"),
    "one language": ({"is_multilingual": False, "forced_decoder_ids": None, "lang_to_id": None}, "notimestamps"),
}  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("case", BEGUN)
def test_decoder_begins_as_the_generation_config_says(case: str) -> None:
    config, expected = BEGUN[case]
    model, processor = _changed()
    to_ids = processor.tokenizer.convert_tokens_to_ids
    for name, value in config.items():
        forced = [[place, to_ids(token)] for place, token in value or ()] if name == "forced_decoder_ids" else []
        setattr(model.generation_config, name, forced or value)
    if config.get("lang_to_id", True) is None:
        del model.generation_config.lang_to_id
    if case == "timestamps":  # these models are not trained to write them: only what comes before is compared
        trace = Model.of(model, processor, text2="the owl", sound=ODD).trace()
    else:
        trace = Model.of(model, processor, sound=ODD, generate=6).trace()
        own = model.generate(
            _features(ODD, processor).input_features, max_new_tokens=6, return_dict_in_generate=True,
            force_unique_generate_call=True,
        ).sequences[0]  # fmt: skip
        assert _ids(trace) == own.tolist()
    begun = [token for token in trace.input_tokens if token.startswith("<|") and token != "<|endoftext|>"]
    if expected is None:
        language = int(model.detect_language(_features(ODD, processor).input_features)[0])
        expected = f"{processor.tokenizer.convert_ids_to_tokens(language)[2:-2]} transcribe notimestamps"
    assert begun == [START, *(f"<|{name}|>" for name in expected.split())]


def test_text_that_begins_itself_is_read_as_it_is() -> None:
    model, processor = tiny_whisper()
    text = f"{START}<|de|><|translate|><|notimestamps|> the owl"
    trace = Model.of(model, processor, text2=text, sound=ODD).trace()
    assert _ids(trace) == processor.tokenizer(text, add_special_tokens=False)["input_ids"]
    more = Model.of(model, processor, text2=text, sound=ODD, generate=3).trace()
    assert _ids(more)[:-3] == _ids(trace)
    assert more.generated == 3
    # Words have the blank before them, as Whisper writes them, however they are typed.
    assert Model.of(model, processor, text2="the owl", sound=ODD).trace().input_tokens[4:] == ("·the", "·owl")


def test_broken_generation_config_is_named() -> None:
    model, processor = _changed(language="Klingon")
    with pytest.raises(ModelError, match=r"as its generation_config\.json says, and fails with “Unsupported language"):
        Model.of(model, processor, sound=ODD).trace()


def test_text_is_cut_at_the_limit_of_the_decoder() -> None:
    model, processor = tiny_whisper()
    with pytest.warns(UserWarning, match=r"The second text has 84 tokens; the first 64 are read, the model's limit"):
        trace = Model.of(model, processor, text2="the owl " * 40, sound=ODD).trace()
    assert len(trace.input_tokens) == model.config.max_target_positions == 64
    with pytest.raises(ConfigError, match=r"At most 100 tokens are read here; .* makes 200"):
        Model.of(model, processor, text2="the", sound=ODD, max_tokens=100).trace()
    with pytest.raises(ConfigError, match=r"All steps may take at most 0 MB"):
        Model.of(model, processor, text2="the", sound=ODD, max_bytes=1000).trace()


def test_wrong_inputs_are_refused_by_a_sentence() -> None:
    model, processor = tiny_whisper()
    with pytest.raises(ConfigError, match=r"got text=, which an encoder reads: give the text of the decoder as text2="):
        Model.of(model, processor, "the owl", sound=ODD).trace()
    with pytest.raises(ConfigError, match=r"reads a sound: give it as sound= \(a WAV"):
        Model.of(model, processor, "the owl").trace()
    with pytest.raises(ConfigError, match=r"give the sound as sound=, and the text as text2="):
        Model.of(model, processor, inputs={"decoder_input_ids": [[1]], "input_features": torch.zeros(1, 40, 400)})
    with pytest.raises(ModelError, match=r"needs the feature extractor"):
        Model.of(model, processor.tokenizer, sound=ODD)


def test_patched_decoder_writes_no_token_that_it_never_writes() -> None:
    model, processor = tiny_whisper()
    source = Model.of(model, processor, sound=ODD, generate=8)
    unchanged = source.trace()
    same = Intervention(0, 0, ablate="zero", strength=1e-9)
    assert _ids(Model.of(model, processor, sound=ODD, generate=8, interventions=(same,)).trace()) == _ids(unchanged)
    off = [Intervention(layer, head, ablate="zero") for layer in (4, 5) for head in range(4)]
    changed = Model.of(model, processor, sound=ODD, generate=8, interventions=tuple(off)).trace()
    assert not {*_ids(changed)[4:]} & {*model.generation_config.suppress_tokens}
    # Without cross-attention the sound has no effect, but on the language.
    other = Model.of(model, processor, text2="the owl", sound=RISING, interventions=tuple(off)).trace()
    alike = Model.of(model, processor, text2=f"{''.join(other.input_tokens[:4])} the owl", sound=ODD, interventions=tuple(off)).trace()  # fmt: skip
    assert torch.equal(other.predictions[-1].all_logits, alike.predictions[-1].all_logits)


def test_classifier_has_an_encoder_alone(tmp_path: Path) -> None:
    from transformers import WhisperForAudioClassification

    model, processor = tiny_whisper()
    config = deepcopy(model.config)
    config.num_labels = 3
    torch.manual_seed(0)
    WhisperForAudioClassification(config).eval().save_pretrained(tmp_path)
    processor.feature_extractor.save_pretrained(tmp_path)
    declared = LIBRARY.inputs(str(tmp_path))
    source = Model(str(tmp_path), sound=ODD)
    trace = source.trace()
    assert LIBRARY.inputs(str(tmp_path)) == declared
    assert (declared.text, declared.continues, declared.second_text) == (False, False, False)
    assert [layer.name for layer in trace] == ["layer 0", "layer 1"]
    with torch.no_grad():
        own = source.load().model(_features(ODD, processor).input_features).logits[0]
    assert torch.equal(trace.predictions[0].all_logits, own)


class _Processor:
    """A feature extractor and a tokenizer, as a processor has them."""

    def __init__(self, feature_extractor: Any, tokenizer: Any) -> None:
        self.feature_extractor, self.tokenizer = feature_extractor, tokenizer


def test_moonshine_is_read_like_whisper() -> None:
    import transformers

    tokenizer = byte_level(SENTENCES)
    config = transformers.MoonshineConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, encoder_num_hidden_layers=2, decoder_num_hidden_layers=2,
        encoder_num_attention_heads=4, decoder_num_attention_heads=4, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, pad_token_id=0, attn_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MoonshineForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.2)
    processor = _Processor(transformers.Wav2Vec2FeatureExtractor(do_normalize=False), tokenizer)
    values = torch.tensor(ODD.samples())[None]
    for options in ({"text2": "the owl asked"}, {"generate": 9}):
        trace = Model.of(model, processor, sound=ODD, **options).trace()
        ids = torch.tensor([_ids(trace)])
        with torch.no_grad():
            own = model(input_values=values, decoder_input_ids=ids, output_attentions=True)
        assert torch.equal(trace.predictions[-1].all_logits, own.logits[0, -1])
        for layer in trace:
            kind, number = layer.name.split()
            assert layer["weights"] == approx(own[f"{kind}_attentions"][int(number)][0])
        assert len(trace.tokens) == own.encoder_last_hidden_state.shape[1]
        assert len([place for place in word_times(trace) if place]) == len(trace.input_tokens) - 1
    assert torch.equal(ids, model.generate(values, max_new_tokens=9, do_sample=False))


def test_page_asks_for_a_sound_and_a_second_text(folder: str) -> None:
    declared = LIBRARY.inputs(folder)
    _ = Model(folder, sound=ODD).load()
    assert LIBRARY.inputs(folder) == declared
    assert (declared.text, declared.continues, declared.second_text, declared.several) == (False, True, True, False)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("n_fft", 2**40, "has a n_fft of at most 16,384; that of .* has 1099511627776"),
        ("feature_size", 2**40, "has a feature_size of at most 1,024"), ("feature_size", 80, "80 × 400 numbers, .* needs 40 × 400"),
        ("chunk_length", 30, "40 × 3,000 numbers, .* needs 40 × 400"), ("hop_length", 0, "no feature extractor that can be read"),
        ("n_fft", "many", "no feature extractor that can be read"), ("sampling_rate", 10**9, "asks for 1000000000"),
    ],
)  # fmt: skip
def test_hostile_feature_extractor_is_refused(name: str, value: Any, words: str, folder: str, tmp_path: Path) -> None:
    for file in Path(folder).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    processor = json.loads((tmp_path / "processor_config.json").read_text())
    processor["feature_extractor"][name] = value
    (tmp_path / "processor_config.json").write_text(json.dumps(processor))
    with pytest.raises(ModelError, match=words):
        Model(str(tmp_path), sound=ODD).load()


def test_word_is_heard_on_explore_when_it_was_said() -> None:
    trace = Model("tiny-whisper", sound=ODD).trace()
    names = [layer.name for layer in trace]
    link = {"source": "model", "model": "tiny-whisper", "sound": "example:odd-tone", "q": "6", "k": "5"}
    for layer, words in (("cross 1", ("query", "key")), ("decoder 0", ("query",)), ("encoder 0", ())):
        app = opened("app.py", **link, layer=str(names.index(layer)))
        captions = [caption.value for caption in app.caption]
        heard = [caption for caption in captions if caption.startswith("Hear ")]
        if layer == "encoder 0":
            assert heard == ["Hear the query, 0.02–0.24 s", "Hear the key, 0.00–0.22 s"]
            continue
        place = word_times(trace)[6]
        assert place is not None
        start, stop = max(0.0, place.start - 0.1), min(place.stop + 0.1, ODD.seconds)
        assert f"Hear “{trace.input_tokens[6].strip('·')}”, {start:.2f}–{stop:.2f} s" in heard
        assert any("in heads 0.1, 1.0, 1.3 (layer.head)" in caption for caption in captions)
        assert len(heard) == len(words) or layer == "decoder 0"


@pytest.mark.parametrize("changed", [False, True])
def test_copied_program_reads_the_sound_and_the_words(
    changed: bool, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(folder).parent)
    path = tmp_path / "odd.wav"
    path.write_bytes(encoded(ODD.samples(), ODD.rate, subtype="FLOAT"))
    changes = (Intervention(0, 1, ablate="zero"),) if changed else ()
    source = Model(folder, text2="the owl asked", sound=path, interventions=changes)
    trace = source.trace()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny-whisper").symlink_to(folder)
    for index in (0, 2, 5):
        program = python(source, trace, Cell(index, "weights", 1, 2, 1))
        assert "import attention" not in program
        found: dict[str, Any] = {}
        exec(compile(program.replace(str(path), path.name), "<program>", "exec"), found)
        for step in ("query", "key", "value", "weights", "head_output"):
            assert found[step] == approx(trace[index][step], terms=1024)


# -- the time of each word -----------------------------------------------------------------------------


class _Outputs(dict[str, Any]):
    """What transformers reads of a generation."""

    __getattr__ = dict.__getitem__


def _own_times(trace: Trace, heads: Any, n_frames: int | None, n_before: int) -> Tensor:
    """The times of transformers for the cross-attention of a trace: of each token, when it ends."""
    model, _ = tiny_whisper()
    n_rows = len(trace.input_tokens) - (trace.input_tokens[-1] == "<|endoftext|>")  # it has none of the last token
    cross = [layer["weights"][None, :, :n_rows] for layer in trace if layer.name.startswith("cross")]
    outputs = _Outputs(cross_attentions=[cross], sequences=torch.tensor([_ids(trace)]))
    times: Tensor = model._extract_token_timestamps(outputs, heads, num_frames=n_frames, num_input_ids=n_before)[0]
    return times


@pytest.mark.sample(3)
@pytest.mark.parametrize("heads", [None, [(0, 2)], [(layer, head) for layer in (0, 1) for head in range(4)]])
@pytest.mark.parametrize("sound", [RISING, ODD])
@pytest.mark.parametrize("text", ["", "the owl asked the moon and a quiet harbor"])
def test_word_times_are_those_of_transformers(text: str, sound: Any, heads: Any) -> None:
    model, processor = tiny_whisper()
    trace = Model.of(model, processor, text2=text, sound=sound).trace()
    assert alignment_heads(trace) == tuple(map(tuple, ALIGNMENT_HEADS))
    times = word_times(trace, heads)
    n_frames = int(_features(sound, processor).attention_mask.sum())
    # The row before the first word predicts it; transformers gives each row one number, and the last once more.
    ends = _own_times(trace, heads or ALIGNMENT_HEADS, n_frames, 3)[4:-1]
    assert times[:4] == (None,) * 4
    places = [place for place in times if place]
    assert [place is None for place in times[4:]] == [token == "<|endoftext|>" for token in trace.input_tokens[4:]]
    assert len(places) == len(ends)
    assert [place.stop for place in places] == approx(ends.tolist())
    assert [place.start for place in places] == [0.0, *(place.stop for place in places[:-1])]


def test_generated_words_have_the_times_of_the_generation_of_transformers() -> None:
    model, processor = _changed()
    model.set_attn_implementation("eager")  # which it needs to return its weights
    features = _features(RISING, processor)
    own = model.generate(
        features.input_features, attention_mask=features.attention_mask, max_new_tokens=31, return_dict_in_generate=True,
        return_token_timestamps=True, force_unique_generate_call=True,
    )  # fmt: skip
    trace = Model.of(model, processor, sound=RISING).trace()
    assert _ids(trace) == own["sequences"][0].tolist()
    # It leaves out the row of the last token, and that which predicts the first: without these, every number is equal.
    gains = sum(
        smoothed(layer.matrix("weights", head)[4:-1, :160]) for layer, head in ((trace[4 + layer], head) for layer, head in ALIGNMENT_HEADS)
    ) / len(ALIGNMENT_HEADS)  # fmt: skip
    assert isinstance(gains, Tensor)
    frames = first_frames(gains.double().numpy())
    assert [round(0.02 * frame, 2) for frame in frames] == approx(own["token_timestamps"][0, 4:-1].tolist())


def test_no_word_is_said_after_the_sound() -> None:
    # As in reports where all words of a short sound were at 29.98 s: the path ended in the padding (transformers #25605).
    model, processor = tiny_whisper()
    trace = Model.of(model, processor, text2="the owl asked the moon", sound=(RISING.samples()[:8000], 16_000)).trace()
    places = [place for place in word_times(trace) if place]
    assert max(place.stop for place in places) <= 0.5
    assert float(_own_times(trace, ALIGNMENT_HEADS, None, 3).max()) > 0.5


def test_special_tokens_around_the_words_have_no_time() -> None:
    model, processor = tiny_whisper()
    texts = ("the owl", "the owl<|endoftext|><|endoftext|>")
    plain, ended = (word_times(Model.of(model, processor, text2=text, sound=ODD).trace()) for text in texts)
    assert ended[:4] == ended[-2:-1] * 4 == (None,) * 4
    assert [place is None for place in plain] == [True] * 4 + [False] * 2
    assert ended[:6] == plain  # the rows after the words have no part in it


def test_times_of_a_saved_trace_are_of_the_later_half_of_the_layers(tmp_path: Path) -> None:
    model, processor = tiny_whisper()
    trace = Model.of(model, processor, text2="the owl asked", sound=ODD).trace()
    trace.save(tmp_path / "trace.npz")
    saved = File.open(tmp_path / "trace.npz").trace()
    assert alignment_heads(saved) == tuple((1, head) for head in range(4))  # as in openai/whisper
    assert word_times(saved, alignment_heads(trace)) == word_times(trace)
    assert word_times(saved) == word_times(trace, [(1, head) for head in range(4)])


def test_words_without_a_sound_have_no_times() -> None:
    with pytest.raises(MissingError, match="choose a model with an encoder of sound"):
        word_times(Trace.of(weights=torch.ones(1, 2, 2) / 2, tokens=["a", "b"]))
    model, processor = tiny_whisper()
    trace = Model.of(model, processor, text2="the", sound=ODD).trace()
    for heads, words in (([(2, 0)], r"of 2 layers with 4 heads; got \(2, 0\)"), ([(0, 4)], r"\(0, 4\)"), ([], "none")):
        with pytest.raises(ConfigError, match=words):
            word_times(trace, heads)
    for named, words in (
        ("heads", "got 'heads'"),
        ([[0]], r"got '\[\[0\]\]'"),
        ([[9, 9]], r"of 2 layers with 4 heads; got \(9, 9\)"),
    ):
        wrong = _changed(alignment_heads=named)
        trace = Model.of(*wrong, text2="the", sound=ODD).trace()
        with pytest.raises(ConfigError, match=words):
            word_times(trace)
    alone = Model.of(model, processor, text2=START, sound=ODD).trace()
    assert word_times(alone) == (None,)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (5, 3), (7, 40), (60, 50), (30, 300)])
def test_path_is_that_of_transformers(shape: tuple[int, int]) -> None:
    from transformers.models.whisper.generation_whisper import _dynamic_time_warping

    for seed in range(5):
        gains = np.random.default_rng(seed).normal(size=shape)
        rows, columns = _dynamic_time_warping(-gains)
        assert first_frames(gains) == [int(columns[rows == row][0]) for row in range(shape[0])]


def test_path_is_the_best_also_where_steps_are_equally_good() -> None:
    # Where the two steps into a row tie, transformers and openai/whisper stay in their row, at any price.
    from transformers.models.whisper.generation_whisper import _dynamic_time_warping

    n_better = 0
    for seed in range(40):
        gains = np.random.default_rng(seed).integers(-2, 3, (4, 6)).astype(float)
        best = np.full((5, 7), -np.inf)
        best[0, 0] = 0
        for row, column in np.ndindex(4, 6):
            best[row + 1, column + 1] = gains[row, column] + max(
                best[row, column], best[row, column + 1], best[row + 1, column]
            )
        rows, columns = _dynamic_time_warping(-gains)
        n_better += gains[rows, columns].sum() < best[4, 6]
        first = first_frames(gains)
        # A row ends in the first column of the next, or in the one before it.
        parts = [
            max(gains[row, own : last + 1].sum() for last in {max(own, after - 1), after})
            for row, (own, after) in enumerate(zip(first, [*first[1:], 5], strict=True))
        ]
        parts[-1] = gains[3, first[3] :].sum()
        assert sum(parts) == best[4, 6]
    assert n_better > 0


@pytest.mark.parametrize(("n_rows", "n_columns"), [(10, 20), (32, 16), (123, 1500), (234, 189)])
def test_path_is_found_again(n_rows: int, n_columns: int) -> None:
    # The cases of openai/whisper's own test: a random walk through noise, whose cells are cheaper by 1.
    rng = np.random.default_rng(42)
    cost, (row, column) = rng.random((n_rows, n_columns)), (0, 0)
    first = [0] * n_rows
    while True:
        cost[row, column] -= 1
        moves = [(row < n_rows - 1, 0), (0, column < n_columns - 1), (row < n_rows - 1, column < n_columns - 1)]
        moves = [(down, right) for down, right in moves if down or right]
        if not moves:
            break
        down, right = moves[rng.integers(len(moves))]
        row, column = row + int(down), column + int(right)
        first[row] = column if down else first[row]
    assert first_frames(-cost) == first


def test_smoothing_is_that_of_transformers() -> None:
    from transformers.models.whisper.generation_whisper import _median_filter

    for n_keys in (2, 4, 50):
        weights = torch.randn(3, 9, n_keys, generator=torch.Generator().manual_seed(0)).softmax(-1)
        normal = (weights - weights.mean(-2, keepdim=True)) / weights.std(-2, keepdim=True, unbiased=False)
        assert torch.equal(torch.stack([smoothed(head) for head in weights]), _median_filter(normal[None], 7)[0])
    assert torch.equal(smoothed(torch.full((3, 9), 1 / 9)), torch.zeros(3, 9))  # and not 0 / 0
