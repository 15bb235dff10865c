"""Faulty models, and the one sentence that each is refused with."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError
from huggingface_hub.hf_api import RepoSibling
from tiny_models import MOST, NO_TEXT, SENTENCES, TinyModels, byte_level

from attention import ConfigError, Model, ModelError, TextError
from attention.base.knobs import Limits
from attention.models import library
from attention.models.folder import TEXT_ALONE, declared_inputs
from attention.models.library import LIBRARY, Settings
from attention.sources.registry import source_of

LIMITS = Limits(tokens=2048, characters=20_000, d_model=1024, heads=32, trace_mb=128)

OWL = "the owl asked the moon"


@pytest.fixture(autouse=True)
def default_library() -> Iterator[None]:
    yield
    LIBRARY.hold(Settings())


@pytest.fixture
def broken(tiny: TinyModels, tmp_path: Path) -> Callable[..., str]:
    """Returns the folder of a modified copy of a tiny model."""

    def modified_copy(family: str = "GPT-2", without: str = "", **config: Any) -> str:
        path = tmp_path / family
        shutil.copytree(tiny(family), path)
        for file in path.glob(without) if without else ():
            file.unlink()
        config_file = path / "config.json"
        if config:
            config_file.write_text(json.dumps(json.loads(config_file.read_text()) | config))
        return str(path)

    return modified_copy


def refused(name: str, text: str = OWL, text2: str = "") -> str:
    """The error's sentence, after checking that it is short and shows no traceback."""
    with pytest.raises((ModelError, TextError)) as caught:
        Model(name, text, text2).trace()
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "Traceback" not in sentence
    assert len(sentence) < 600
    return sentence


def test_missing_folder_error_lists_existing_folders(tiny: TinyModels) -> None:
    tiny("GPT-2")
    LIBRARY.hold(Settings(tiny.folder))
    sentence = refused("no such model")
    assert "GPT-2" in sentence
    assert "there is no no such model: choose another, or put it there" in sentence
    missing = refused("SmolLM2-135M-Instruct")
    assert missing.endswith("there is no SmolLM2-135M-Instruct: choose another, or fetch it with `make models ALL=1`.")
    LIBRARY.hold(Settings(tiny.folder / "empty"))
    assert "“make models” fetches one" in refused("no such model")


@pytest.mark.parametrize(
    "name", ["../x", "..", ".", "/etc", "~", "a\0b", "x" * 999, "é" * 200, "  ", "..\\x", "GPT-2/../GPT-2", "C:\\"]
)
def test_unlisted_name_opens_nothing_where_paths_are_forbidden(tiny: TinyModels, name: str) -> None:
    tiny("GPT-2")
    LIBRARY.hold(Settings(tiny.folder, paths=False))
    for settings in (Settings(tiny.folder, paths=False), Settings(tiny.folder, paths=False, hub=True)):
        LIBRARY.hold(settings)
        with pytest.raises(ModelError, match=r"^A model is one of those installed here"):
            source_of({"source": "model", "model": name}, LIMITS)
    source, _ = source_of({"source": "model", "model": "GPT-2", "text": OWL}, LIMITS)
    assert source.trace().layers


@pytest.mark.parametrize("name", ["é" * 200, "~nobody-of-that-name", "\ud800"])
def test_impossible_folder_name_is_refused(name: str) -> None:
    assert refused(name).startswith("A model is a")


def test_folder_without_a_model_is_refused(tmp_path: Path, broken: Callable[..., str]) -> None:
    assert "has no config.json: check the folder" in refused(str(tmp_path))
    os.mkfifo(tmp_path / "config.json")
    assert declared_inputs(tmp_path) == TEXT_ALONE  # and nobody waits for the pipe
    assert "has no config.json: check the folder" in refused(str(tmp_path))
    pipe = broken(without="tokenizer.json")
    os.mkfifo(Path(pipe, "tokenizer.json"))
    assert "tokenizer.json of" in refused(pipe)
    assert "is a pipe or a device, which may never end: delete it" in refused(pipe)


def test_files_without_an_end_are_refused(
    tmp_path: Path, broken: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(broken())
    (folder / "vocab.json").symlink_to("/dev/zero")
    assert "vocab.json of" in (sentence := refused(str(folder)))
    assert "is a pipe or a device" in sentence
    (folder / "vocab.json").unlink()
    with (folder / "chat_template.jinja").open("wb") as sparse:
        sparse.truncate(10 * 2**30)
    assert "may take at most 64 MB; chat_template.jinja of" in refused(str(folder))
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).endswith(".safetensors"))
    assert "model.safetensors of" in (sentence := refused(str(folder)))
    assert sentence.endswith("may not be read by this server's user: change its permissions.")


@pytest.mark.parametrize("config", ["", "{", "[]", "{}", '{"model_type": 7}', "[" * 100_000, "\ud800", " " * 2**21])
def test_broken_model_config_is_refused(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_bytes(config.encode("utf-8", "surrogatepass"))
    assert "should have a model_type, such as bert; it cannot be read" in refused(str(tmp_path))


def test_pickle_is_never_opened(broken: Callable[..., str]) -> None:
    name = broken(without="*.safetensors")
    assert "no *.safetensors: download the weights too" in refused(name)
    (Path(name) / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    assert "pytorch_model.bin, a pickle, which can run any code" in refused(name)


def test_custom_model_code_is_never_run(broken: Callable[..., str]) -> None:
    name = broken(model_type="mine", auto_map={"AutoModel": "modeling_mine.Mine"})
    (Path(name) / "modeling_mine.py").write_text("raise SystemExit")
    assert "brings code of its own, which is never run here" in refused(name)
    assert "is not known to transformers" in refused(broken("BERT", model_type="mine"))


def test_oversized_model_is_recognized_by_its_header(tiny: TinyModels) -> None:
    name = str(tiny("GPT-2"))
    LIBRARY.hold(Settings(most_mb=0))
    assert "A model may take at most 0 MB of memory here" in refused(name)


def test_truncated_weights_are_refused(broken: Callable[..., str]) -> None:
    name = broken()
    file = Path(name) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    assert "model.safetensors of" in refused(name)
    file.write_bytes((2**40).to_bytes(8, "little") + b"{}")  # a header of a terabyte
    assert "is truncated or not a safetensors file: download it again" in refused(name)


HUGE = 10**9


@pytest.mark.parametrize(
    ("family", "claims"),
    [
        ("GPT-2", {"n_layer": HUGE}),
        ("Llama", {"num_hidden_layers": HUGE}),
        ("gpt-oss", {"num_local_experts": 10**7}),
        ("BART", {"decoder_layers": HUGE}),
        ("GPT-Neo", {"attention_types": [[["global"], HUGE]]}),
        ("GPT-2", {"n_embd": 4 * 10**6}),
        ("BERT", {"max_position_embeddings": HUGE}),
        ("Llama", {"vocab_size": HUGE}),
        ("Llama", {"hidden_size": HUGE}),
        ("BERT", {"hidden_size": -1}),
        ("Llama", {"num_attention_heads": 0}),
        ("BERT", {"architectures": 7, "num_hidden_layers": "many"}),
    ],
)
def test_config_larger_than_the_weights_allocates_nothing(broken: Callable[..., str], family: str, claims: Any) -> None:
    sentence = refused(broken(family, **claims))
    assert "config.json" in sentence or "should load with transformers" in sentence


def test_model_without_a_tokenizer_is_refused(broken: Callable[..., str]) -> None:
    name = broken(without="*token*")
    assert "has no tokenizer that can be read" in refused(name)


def test_tokenizer_with_ids_unknown_to_the_model_is_refused(broken: Callable[..., str]) -> None:
    name = broken()
    LIBRARY.get(name).tokenizer.add_tokens(["owl-owl"] * 1 + [f"x{i}" for i in range(200)])
    assert "are from 0 to 399; got 543: give the tokenizer that belongs to the model" in refused(name, "x199")


def test_model_without_attention_is_refused(tiny: TinyModels) -> None:
    assert (
        "gives no attention weights from token to token: none of its layers multiplies values by a softmax"
        in refused(str(tiny("Mamba")))
    )


def test_picture_model_in_memory_or_without_processor_is_refused(broken: Callable[..., str]) -> None:
    import transformers

    pytest.importorskip("attention.vision", reason="no feature reads pictures")
    name = broken("ViT")
    assert "has no processor of pictures that can be read" in refused(name)
    model = transformers.ViTModel.from_pretrained(name)
    with pytest.raises(
        ModelError, match=r"^Model.of needs the processor of a model that reads pictures, such as ViTModel"
    ):
        Model.of(model, byte_level(SENTENCES), OWL)


def test_model_of_sound_is_refused(broken: Callable[..., str]) -> None:
    import transformers

    name = broken("Speech2Text")
    with_feature = r"The Lab reads sounds with models of the families .*; {} is a speech_to_text: choose .*"
    expected = rf"({with_feature}|The Lab reads models of texts, and {{}} reads sounds: choose) a language model, such as GPT-2, Llama or BERT."
    assert re.fullmatch(expected.format(*[re.escape(name)] * 2), refused(name))
    model = getattr(transformers, NO_TEXT["Speech2Text"][1]).from_pretrained(name)
    with pytest.raises(ModelError, match=f"^{expected.format(*[type(model).__name__] * 2)}$"):
        Model.of(model, byte_level(SENTENCES), OWL).trace()
    for file in Path(name).glob("*token*"):
        file.unlink()
    assert re.fullmatch(expected.format(*[re.escape(name)] * 2), refused(name))


def test_decoder_without_generation_needs_a_second_text(tiny: TinyModels) -> None:
    name = str(tiny("BART alone"))
    assert "generates no words: type a second text" in refused(name)
    assert Model(name, OWL, "the moon").trace().layers


@pytest.mark.parametrize(("text", "got"), [("", "nothing"), (" \n\t ", "only blanks")])
def test_empty_text_is_reported_before_a_model_is_loaded(text: str, got: str) -> None:
    assert f"got {got}: type a sentence" in refused("no such model", text)


@pytest.mark.parametrize("family", ["BERT", "RoBERTa", "T5"])
def test_text_over_the_limit_is_cut_with_a_note(tiny: TinyModels, family: str) -> None:
    limit = {"BERT": MOST, "RoBERTa": MOST}.get(family, 100)  # RoBERTa's positions begin behind its padding
    trace = Model(
        str(tiny(family)),
        "the moon " * 79 + "the moon",
        "the owl " * 79 + "the owl" if family == "T5" else "",
        max_tokens=100,
    ).trace()
    assert len(trace.tokens) == limit
    assert f"The text has 160 tokens; the first {limit} are read" in trace.notes[0]
    if family == "T5":
        assert len(trace.layers[-1].tokens) == 100
        assert (
            "The second text has 161 tokens; the first 100 are read, the largest number allowed here: shorten"
            in trace.notes[1]
        )
    else:
        assert "the model's limit" in trace.notes[0]


def test_unused_second_text_is_noted(tiny: TinyModels) -> None:
    assert Model(str(tiny("BERT")), OWL, "a cat").trace().notes == (
        "This model reads one text: the second text has no effect.",
    )


def test_hub_is_contacted_only_when_allowed(monkeypatch: pytest.MonkeyPatch, tiny: TinyModels) -> None:
    downloads: list[tuple[str, str | None]] = []

    def download(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        downloads.append((name, revision))
        assert not [pattern for pattern in allow_patterns if pattern.endswith((".bin", ".py", "*"))]
        if name == "some/gated":
            raise GatedRepoError("no", response=_Answer())
        if name == "some/offline":
            raise LocalEntryNotFoundError("no")
        return str(tiny("GPT-2"))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    large = RepoSibling("model.safetensors", size=2**34)

    def weigh(name: str, revision: str | None, files_metadata: bool) -> SimpleNamespace:
        return SimpleNamespace(siblings=[large] if name == "some/large" else None)

    monkeypatch.setattr(huggingface_hub, "model_info", weigh)
    monkeypatch.setattr(library, "_cached", dict)
    LIBRARY.hold(Settings(paths=False))
    assert "there is no some/model" in refused("some/model")
    LIBRARY.hold(Settings(paths=False, hub={"some/model": "abc"}))
    assert "there is no some/other" in refused("some/other")
    assert not downloads
    assert Model("some/model", OWL).trace().layers
    LIBRARY.hold(Settings(paths=False, hub=True))
    LIBRARY.allow("some/gated")
    assert "some/gated is gated, so its terms must be accepted" in refused("some/gated")
    assert "some/offline could not be fetched from the Hugging Face hub" in refused("some/offline")
    assert "some/large takes 16,384 MB: choose a smaller one" in refused("some/large")
    assert downloads == [("some/model", "abc"), ("some/gated", None), ("some/offline", None)]


class _Answer:
    headers: Mapping[str, str] = MappingProxyType({})
    request = None
    status_code = 403


def test_oversized_steps_are_refused_before_they_are_computed(tiny: TinyModels) -> None:
    with pytest.raises(
        ConfigError, match=r"choose a shorter text, a smaller model, or allow more \(.*LAB_MAX_TRACE_MB.*\)\.$"
    ):
        Model(str(tiny("GPT-2")), OWL, max_bytes=1000).trace()
