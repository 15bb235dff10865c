"""Tiny models of ours: each is loaded by its name, reads the example of its medium, and says that its weights are random."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
import torch
from margins import approx
from safetensors import SafetensorError
from transformers import BertConfig, BertModel

from attention import Model, ModelError
from attention.base.knobs import Limits
from attention.formula.names import WEIGHTS
from attention.models.library import LIBRARY, Library, Settings
from attention.models.ours import our_folder, our_models, our_root, with_random_weights
from attention.sources.registry import source_of

LIMITS = Limits(tokens=2048, characters=2000, d_model=64, heads=8, trace_mb=2048)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", our_models())
def test_link_that_names_a_model_of_ours_alone_shows_its_attention(name: str) -> None:
    """Where users may name no folder."""
    source, notes = source_of({"source": "model", "model": name}, LIMITS)
    trace = source.trace()
    assert not notes
    assert "random weights" in LIBRARY.get(name).about
    layer = next(layer for layer in trace.layers if layer.has(WEIGHTS))
    rows = layer.matrix(WEIGHTS, 0).double().sum(-1)
    assert rows == approx(torch.ones_like(rows), dtype="float32")
    assert layer.matrix(WEIGHTS, 0).amax(-1).max() > 1.2 / layer.sizes["key_pos"], "one key stands out"


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", our_models())
def test_weights_of_a_model_of_ours_are_the_same_each_time(name: str) -> None:
    (first, *_), (second, *_) = our_models()[name].make(), our_models()[name].make()
    torch.manual_seed(3)
    (third, *_) = our_models()[name].make()
    for other in (second, third):
        for key, tensor in first.state_dict().items():
            assert torch.equal(tensor, other.state_dict()[key]), key


def test_models_of_ours_are_offered_where_no_folder_may_be_named() -> None:
    library = Library(Settings(paths=False))
    for name in our_models():
        library.allow(name)
        assert library.folder(name) == our_folder(name), "made once"
        assert LIBRARY.inputs(name) == library.inputs(name)


def test_random_weights_are_whole_numbers_over_a_power_of_two_and_keep_sizes() -> None:
    config = BertConfig(
        hidden_size=64, num_hidden_layers=1, num_attention_heads=4, intermediate_size=128, vocab_size=99
    )
    model = with_random_weights(BertModel(config))
    weight = model.encoder.layer[0].attention.self.query.weight
    steps = weight.double() * 2**15 / math.sqrt(3 / 64)
    assert steps == approx(steps.round(), dtype="float32")
    assert torch.equal(model.encoder.layer[0].attention.output.LayerNorm.weight, torch.ones(64))
    assert 0.8 < float(weight.detach().norm(dim=-1).mean()) < 1.2
    assert torch.equal(weight, with_random_weights(BertModel(config)).encoder.layer[0].attention.self.query.weight)


def test_python_opens_them_by_name() -> None:
    if "tiny-vit" in our_models():
        from attention.media import medium_of

        picture = medium_of("image").example("two-cats")
        assert len(Model("tiny-vit", image=picture).trace().tokens) == 65


def test_jobs_write_into_the_folder_of_the_process_that_they_work_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end without cleaning up, so that each would leave a folder behind."""
    assert Settings().for_jobs().ours == our_root() == Settings().for_jobs().ours
    monkeypatch.setattr("attention.models.ours._ROOT", [])
    Library(Settings(ours=tmp_path / "of another machine"))
    Library(Settings(ours=tmp_path))
    for name in [*our_models()][:1]:
        written = our_folder(name)
        assert written == our_folder(name) == tmp_path / name
        assert [path.name for path in tmp_path.iterdir()] == [name], "nothing unfinished stays"


@pytest.mark.skipif(not our_models(), reason="no feature with a model of ours is here")
def test_model_of_ours_that_was_cleaned_away_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Systems clean their temporary folders, all of it or old files alone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("attention.models.ours._ROOT", [])
    name = next(iter(our_models()))
    folder = our_folder(name)
    assert folder is not None
    files = sorted(file.name for file in folder.iterdir())
    (folder / "config.json").unlink()
    assert our_folder(name) == folder
    assert sorted(file.name for file in folder.iterdir()) == files
    shutil.rmtree(our_root())
    Library(Settings(paths=False)).get(name)
    assert sorted(file.name for file in (our_root() / name).iterdir()) == files


@pytest.mark.skipif(not our_models(), reason="no feature with a model of ours is here")
def test_full_folder_for_temporary_files_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attention.models.ours._ROOT", [tmp_path])
    name = next(iter(our_models()))

    class Full:
        def save_pretrained(self, folder: Path) -> None:
            (folder / "part").write_bytes(b"x")
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setitem(our_models(), name, our_models()[name]._replace(make=lambda: [Full()]))
    with pytest.raises(
        ModelError, match=f"{name} is made here and kept .* “Error while .* No space left .*: make room"
    ):
        Library(Settings(paths=False)).get(name)
    assert not list(tmp_path.iterdir()), "half a model would take the room that is left"
