"""Two texts that an encoder reads as a pair: the weights of `model(**tokenizer(a, b))`, which token is of which text, and A → B."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from conftest import component_message, state_of_address
from margins import approx
from test_pages import drawn, opened
from tiny_models import SENTENCES, TinyModels, byte_level, fast, word_piece
from tokenizers import processors
from torch import nn

import attention
from attention import AttentionError, Cell, File, Model, ModelError
from attention.base.tokens import PairToken, Piece, label
from attention.explanation.subwords import TokenGroups
from attention.export.program import python
from attention.metrics.find_rule import FindRule, find_heads
from attention.models import running
from attention.models.library import LIBRARY
from attention.pictures.steps_view import lab_maps
from attention.sources.registry import source_of
from pages.ui.server.limits import LIMITS

A, B = "the owl", "a moon blinked"
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
_XLNET = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "BertModel": ("types", _SIZES),
    "BertForSequenceClassification": ("types", _SIZES),
    "BertForQuestionAnswering": ("types", _SIZES),
    "BertModel without types": ("separators", _SIZES),
    "AlbertModel": ("types", {**_SIZES, "embedding_size": 16}),
    "ElectraForSequenceClassification": ("types", {**_SIZES, "embedding_size": 16}),
    "BigBirdModel": ("types", {**_SIZES, "attention_type": "original_full"}),
    "RobertaForSequenceClassification": ("two separators", {**_SIZES, "pad_token_id": 0}),
    "XLMRobertaModel": ("two separators", {**_SIZES, "pad_token_id": 0}),
    "DistilBertModel": ("types", _DISTIL),
    "ModernBertModel": ("separators", {**_SIZES, "pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}),
}  # fmt: skip
"""How the tokenizer of a model marks the texts of a pair, and the numbers of its config, by its class."""


def tokenizer(marks: str) -> Any:
    result = word_piece(SENTENCES)
    if marks == "types":
        names = {key: getattr(result, key) for key in ("pad_token", "unk_token", "cls_token", "sep_token")}
        result = fast(
            result.backend_tokenizer, model_input_names=["input_ids", "token_type_ids", "attention_mask"], **names
        )
    if marks == "two separators":
        result.backend_tokenizer.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
    return result


def model(name: str, knobs: dict[str, Any], seed: int = 0) -> Any:
    cls = getattr(transformers, name.partition(" ")[0])
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = cls(cls.config_class(vocab_size=400, attn_implementation="eager", **knobs)).eval()
        for parameter in network.parameters():
            parameter.data.add_(torch.randn(parameter.shape) * 0.2)
    return network


@pytest.fixture(autouse=True)
def any_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages allow only the models on offer."""
    monkeypatch.setattr(LIBRARY, "settings", replace(LIBRARY.settings, paths=True))


def texts_of(tokens: tuple[str, ...]) -> str:
    return "".join(getattr(token, "of", "") or "-" for token in tokens)


@pytest.fixture(scope="module")
def bert() -> tuple[Any, Any]:
    return model("BertModel", _SIZES), tokenizer("types")


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_pair_has_the_weights_of_its_model(name: str) -> None:
    marks, knobs = FAMILIES[name]
    network, tok = model(name, knobs), tokenizer(marks)
    encoded = tok(A, B, return_tensors="pt")
    read = {key: value for key, value in encoded.items() if key != "token_type_ids" or "Distil" not in name}
    expected = [weights[0] for weights in network(**read, output_attentions=True).attentions]
    first, second = (len(tok(text, add_special_tokens=False)["input_ids"]) for text in (A, B))
    between = "--" if marks == "two separators" else "-"
    for source in (
        Model.of(network, tok, A, B),
        Model.of(network, tok, A, text2=B),
        Model.of(network, tok, inputs=encoded),
    ):
        trace = source.trace()
        assert texts_of(trace.tokens) == f"-{'A' * first}{between}{'B' * second}-"
        assert "has no effect" not in str(trace.notes)
        for layer, weights in zip(trace.layers, expected, strict=True):
            assert layer.weights == approx(weights)


def test_numbers_beside_tokens_go_through(bert: tuple[Any, Any]) -> None:
    network, tok = bert
    ids = tok(A, B, return_tensors="pt")["input_ids"]
    n_tokens = ids.shape[1]
    halves = torch.arange(n_tokens)[None] // -(-n_tokens // 2)
    hole = torch.ones_like(ids)
    hole[0, 2] = 0
    cases = (
        {"token_type_ids": halves},
        {"token_type_ids": 1 - halves, "position_ids": torch.arange(n_tokens)[None] + 5},
        {"attention_mask": hole},
    )
    for beside in cases:
        inputs = {"input_ids": ids, **beside}
        expected = network(**inputs, output_attentions=True).attentions[-1][0]
        trace = Model.of(network, tok, inputs=inputs).trace()
        assert trace.layers[-1].weights == approx(expected)
    padded = tok(A, B, padding="max_length", max_length=n_tokens + 3, return_tensors="pt")
    trace = Model.of(network, tok, inputs=padded).trace()
    assert trace.layers[-1].weights == approx(Model.of(network, tok, A, B).trace().layers[-1].weights)
    assert trace.notes == ("3 padding tokens are left out: attention_mask hides them.",)
    with pytest.raises(ModelError, match=r"^The token_type_ids of BertModel are from 0 to 1; got 2: give those"):
        Model.of(network, tok, inputs={"input_ids": ids, "token_type_ids": 2 * halves}).trace()


def test_types_continue_over_generated_tokens(tiny: TinyModels) -> None:
    gpt2, tok = transformers.GPT2LMHeadModel.from_pretrained(tiny("GPT-2")), byte_level(SENTENCES)
    ids = tok(A, return_tensors="pt")["input_ids"]
    inputs = {
        "input_ids": ids,
        "token_type_ids": torch.full_like(ids, 7),
        "position_ids": torch.arange(ids.shape[1])[None] + 2,
    }
    trace = Model.of(gpt2, tok, inputs=inputs, generate=3).trace()
    _, read = Model.of(gpt2, tok, inputs=inputs, generate=3).load_inputs()
    assert read.arguments["token_type_ids"].unique().tolist() == [7]
    assert read.arguments["position_ids"][0].tolist() == [*range(2, 2 + len(trace.tokens))]
    gpt2.set_attn_implementation("eager")
    expected = gpt2(**read.arguments, output_attentions=True)
    assert trace.layers[1].weights == approx(expected.attentions[1][0])
    n_read = ids.shape[1]
    assert read["input_ids"][0, n_read:].tolist() == expected.logits[0, n_read - 1 : -1].argmax(-1).tolist()


def test_a_mask_with_a_hole_stays_beside_its_own_text(tiny: TinyModels) -> None:
    bart, tok = transformers.BartForConditionalGeneration.from_pretrained(tiny("BART")), byte_level(SENTENCES)
    ids = tok(f"{A} asked", return_tensors="pt")["input_ids"]
    hole = torch.ones_like(ids)
    hole[0, 1] = 0
    source = Model.of(bart, tok, inputs={"input_ids": ids, "attention_mask": hole}, generate=5)
    trace, (_, read) = source.trace(), source.load_inputs()
    bart.set_attn_implementation("eager")
    expected = bart(**read.arguments, output_attentions=True)
    for name, weights in (("encoder", expected.encoder_attentions), ("cross", expected.cross_attentions)):
        layer = next(layer for layer in trace.layers if layer.name == f"{name} 0")
        assert layer.weights == approx(weights[0][0])


def test_models_that_continue_a_text_read_no_pair(tiny: TinyModels) -> None:
    for tok in (byte_level(SENTENCES), word_piece(SENTENCES)):
        trace = Model.of(transformers.GPT2Model.from_pretrained(tiny("GPT-2")), tok, A, B).trace()
        assert trace.notes == ("This model reads one text: the second text has no effect.",)
        assert set(texts_of(trace.tokens)) == {"-"}


def test_long_texts_are_cut_with_a_warning(bert: tuple[Any, Any]) -> None:
    network, tok = bert
    long = f"{A} " * 8
    n = len(tok(long, B).input_ids)  # how a tokenizer trained here cuts a word differs from run to run
    with pytest.warns(
        UserWarning, match=rf"The pair of texts has {n} tokens; 12 are read, .*, or give max_tokens={n}\.$"
    ):
        trace = Model.of(network, tok, long, B, max_tokens=12).trace()
    assert len(trace.tokens) == 12
    assert "this server" not in trace.notes[0]
    with pytest.warns(UserWarning, match=f"pair of texts has {len(tok(A, B).input_ids)} tokens; 2 are read"):
        assert len(Model.of(network, tok, A, B, max_tokens=2).trace().tokens) == 2
    with pytest.warns(
        UserWarning, match=r"The text has \d+ tokens; the first 5 are read, .*, or give max_tokens=\d+\."
    ):
        (short,) = Model.of(network, tok, texts=["the owl the owl"], max_tokens=5).traces()
    assert len(short.tokens) == 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, bert: tuple[Any, Any]) -> Path:
    path: Path = tmp_path_factory.mktemp("models") / "pairs"
    bert[0].save_pretrained(path)
    bert[1].save_pretrained(path)
    return path


def test_program_and_file_keep_the_pair(
    folder: Path, bert: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    source, _ = source_of({"source": "model", "model": "pairs", "text": A, "text2": B}, LIMITS)
    trace = source.trace()
    assert trace.layers[1].weights == approx(Model.of(*bert, A, B).trace().layers[1].weights)
    running.silence_warnings()
    names: dict[str, Any] = {}
    exec(compile(python(source, trace, Cell(1, "weights", 0, 1, 1)), "<program>", "exec"), names)
    assert names["weights"] == approx(trace.layers[1].weights)
    for name in ("trace.npz", "trace.safetensors"):
        trace.save(tmp_path / name)
        opened = File.open(tmp_path / name).trace()
        assert texts_of(opened.tokens) == texts_of(trace.tokens) == texts_of(opened.layers[1].key_tokens)
    content = json.loads(np.load(tmp_path / "trace.npz")["about"].item())
    arrays = {**np.load(tmp_path / "trace.npz"), "about": np.array(json.dumps(content | {"pair": ["C"]}).encode())}
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(
        AttentionError, match=r"^pair in .wrong\.npz. needs A, B or an empty text for each of .* tokens; got"
    ):
        File.open(tmp_path / "wrong.npz").trace()


def test_words_and_rules_know_the_texts(bert: tuple[Any, Any]) -> None:
    words = Model.of(*bert, A, B, words=True).trace()
    assert words.tokens == ("[CLS]", "the", "owl", "[SEP]", "a", "moon", "blinked", "[SEP]")
    assert texts_of(words.tokens) == "-AA-BBB-"
    assert [label(token) for token in words.tokens][:3] == ["[CLS]", "A: the", "A: owl"]
    trace = Model.of(*bert, A, B).trace()
    a, b = ([i for i, text in enumerate(texts_of(trace.tokens)) if text == name] for name in "AB")
    for rule, rows, columns in (("from text A to text B", a, b), ("from text B to text A", b, a)):
        best = find_heads(trace, FindRule.parse(rule))[0]
        weights = trace.layers[best.layer].weights[best.head]
        assert best.value == approx(float(weights[rows][:, columns].sum(-1).mean()))
        assert best.queries == len(rows)


def test_maps_of_the_lab_begin_with_a_part(bert: tuple[Any, Any]) -> None:
    trace = Model.of(*bert, A, B).trace()
    texts = texts_of(trace.tokens)
    for pair, rows, columns in (("a-b", "A", "B"), ("b-a", "B", "A")):
        for figure in lab_maps(trace, Cell(0, "weights", 0, 0, 0), "overview", "fixed", pair=pair)[:2]:
            assert figure["layout"]["yaxis"]["range"] == [texts.rindex(rows) + 0.5, texts.index(rows) - 0.5]
            assert figure["layout"]["xaxis"]["range"] == [texts.index(columns) - 0.5, texts.rindex(columns) + 0.5]
        sums = {note["y"]: note["text"] for note in figure["layout"]["annotations"] if note.get("yref") != "paper"}
        row, part = texts.index(rows), slice(texts.index(columns), texts.rindex(columns) + 1)
        assert sums[row] == f"{float(trace.layers[0].weights[0, row, part].sum()):.2f}"


def test_no_word_reaches_from_one_text_into_the_other() -> None:
    pieces = (PairToken(Piece("ow", False), "A"), PairToken(Piece("l", True), "A"), PairToken(Piece("moon", True), "B"))
    assert TokenGroups.of(pieces, (False,) * 3, words=True, hide=False).names == ("owl", "moon")


def test_copied_tokens_stay_tokens_of_their_text() -> None:
    import copy
    import pickle

    token = PairToken(Piece("owl", True, "by marks"), "B")
    for twin in (copy.deepcopy(token), pickle.loads(pickle.dumps(token))):
        assert (twin, twin.of, twin.joins, twin.rule) == ("owl", "B", True, "by marks")


class Own(nn.Module):
    """A module of one's own around a model of transformers."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.encoder = inner


class Bridge(nn.Module):
    """Stands for a module with which another library replaces attention."""

    __module__ = "another_library.bridge"

    def forward(self, hidden_states: Any, *_: Any, **__: Any) -> Any:
        return hidden_states, None


def test_module_of_ones_own_is_told_its_way(bert: tuple[Any, Any]) -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2).eval()
    x = torch.randn(1, 5, 16)
    with pytest.raises(ModelError, match=r"got a TransformerEncoder: attention\.record\(net, x, tokens=words\) shows"):
        Model.of(encoder, None, inputs={"src": x})
    # What the sentence says works.
    _, weights = encoder.layers[0].self_attn(x, x, x, need_weights=True, average_attn_weights=False)
    recorded = attention.record(encoder, x, tokens=list("abcde"))
    assert recorded.layers[0].weights == approx(weights[0].detach())
    assert recorded.tokens == ("a", "b", "c", "d", "e")
    own = Own(bert[0])
    with pytest.raises(
        ModelError, match=r"got an Own: give the BertModel inside of it, model\.get_submodule\('encoder'\)\.$"
    ):
        Model.of(own, bert[1], A)
    assert Model.of(own.get_submodule("encoder"), bert[1], A).trace().layers


def test_what_is_no_model_is_named_with_a_way(bert: tuple[Any, Any]) -> None:
    network, tok = bert
    for given, sentence in (
        (transformers.BertModel, r"got the class BertModel: load one with BertModel\.from_pretrained"),
        (tok, "give the model first, then its tokenizer"),
        (
            Path("models") / "bert",
            r"load it with AutoModel\.from_pretrained\(…\), or write Model\('models/bert', text\)",
        ),
        (network.state_dict(), "got an OrderedDict: load it with"),
    ):
        with pytest.raises(ModelError, match=sentence):
            Model.of(given, tok, A)
    pipe = transformers.pipeline("feature-extraction", model=network, tokenizer=tok)
    assert Model.of(pipe, tok, A).trace().layers
    with pytest.raises(
        ModelError, match=r"got a Tokenizer: wrap it as PreTrainedTokenizerFast\(tokenizer_object=…\)\.$"
    ):
        Model.of(network, tok.backend_tokenizer, A)


_PICTURE = {**_SIZES, "image_size": 32, "patch_size": 8}
OF_PICTURES: dict[str, dict[str, Any]] = {
    "ResNetModel": {"embedding_size": 8, "hidden_sizes": [8], "depths": [1]},
    "OwlViTModel": {"text_config": {"vocab_size": 400, "bos_token_id": 1, "eos_token_id": 2, **_SIZES}, "vision_config": _PICTURE},
}  # fmt: skip
OF_SOUND: dict[str, tuple[str, dict[str, Any]]] = {
    "Wav2Vec2BertModel": ("input_features", {**_SIZES, "feature_projection_input_dim": 160}),
    "SEWDModel": ("input_values", {**_SIZES, "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}),
}


@pytest.mark.parametrize("name", OF_PICTURES)
def test_picture_models_that_are_not_read_name_the_families(name: str, bert: tuple[Any, Any]) -> None:
    pytest.importorskip("attention.vision", reason="no feature reads pictures")
    cls = getattr(transformers, name)
    network = cls(cls.config_class(**OF_PICTURES[name]))
    for processor in (transformers.ViTImageProcessor(size={"height": 32, "width": 32}), bert[1]):
        with pytest.raises(ModelError, match=rf"families .*; {name} is a {cls.config_class.model_type}: choose"):
            Model.of(network, processor, image="any.png")


@pytest.mark.parametrize("name", OF_SOUND)
def test_models_of_sound_say_what_they_read(name: str, bert: tuple[Any, Any]) -> None:
    argument, knobs = OF_SOUND[name]
    cls = getattr(transformers, name)
    for given in (bert[1], transformers.Wav2Vec2FeatureExtractor()):
        with pytest.raises(
            ModelError, match=rf"({name} reads sounds:|reads sounds with models of .*; {name} is a .*:) choose a "
        ):
            Model.of(cls(cls.config_class(**knobs)), given, inputs={argument: torch.randn(1, 4000)})


def test_replaced_attention_is_named_with_its_library(bert: tuple[Any, Any]) -> None:
    network = model("BertModel", _SIZES)
    for layer in network.encoder.layer:
        layer.attention.self = Bridge()
    with pytest.raises(
        ModelError,
        match=r"its module encoder\.layer\.0\.attention\.self is a Bridge of another_library, which replaced",
    ):
        Model.of(network, bert[1], A).trace()


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("m.gguf", "has its weights as m.gguf, and"),
        ("adapter_config.json", "is an adapter of a model: load it with peft"),
    ],
)
def test_folders_of_other_libraries_are_told_a_way(tmp_path: Path, file: str, sentence: str) -> None:
    (tmp_path / file).write_text("{}")
    if "adapter" not in file:
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError, match=sentence):
        Model(str(tmp_path), A).trace()
    with pytest.raises(ModelError, match="is a file: give the folder that it is in"):
        Model(str(tmp_path / file), A).trace()


def test_second_text_on_the_page_is_a_pair(folder: Path) -> None:
    app = opened("app.py", source="model", model=str(folder), text=A, text2=B, pair="b-a")
    assert not app.exception
    assert not app.error
    assert state_of_address(app)["pair"] == "b-a"
    weights = next(figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == "weights")
    labels = component_message(app)["names"][weights["layout"]["xaxis"]["labelalias"]]
    assert "A: the" in labels["words"]
    assert "texts B → A" in weights["layout"]["title"]["subtitle"]["text"]
    assert component_message(app)["controls"]["pair"]["buttons"] == ["both", "a-b", "b-a"]
    alone = opened("app.py", source="model", model=str(folder), text=A, pair="b-a")
    assert "pair" not in component_message(alone)["controls"]
