"""The copied Python of a model that reads a picture: it reads the same picture and records the same numbers, with transformers alone."""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from PIL import Image
from test_code import run
from tiny_pictures import FAMILIES, IN_TEXT, OWN_LAYERS, WITH_TEXT, TinyPictureModels, bright_patch, noise

from attention import Cell, ConfigError, File, MissingError, Model, Trace
from attention.base.tokens import Patch
from attention.export.program import ipynb, python
from attention.files.picture import Picture
from attention.models import running
from attention.patching.intervention import Intervention
from attention.vision.picture_lines import _MAX_EMBEDDED, _UNNAMED

TEXT = "the owl asked the moon"
STEPS = ("query", "key", "value", "scores", "weights", "head_output")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyPictureModels:
    return TinyPictureModels(tmp_path_factory.mktemp("picture models"))


@pytest.fixture
def beside(models: TinyPictureModels, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the programs run: that of the models."""
    monkeypatch.chdir(models.folder)
    running.silence_warnings()
    return models.folder


def source(models: TinyPictureModels, family: str, image: Any, **options: Any) -> Model:
    return Model(models(family), TEXT if family in WITH_TEXT else "", image=image, **options)


def variables(program: str) -> dict[str, Any]:
    assert program.isascii()
    namespace: dict[str, Any] = {}
    exec(compile(program, "<snippet>", "exec"), namespace)
    return namespace


def check_same(found: dict[str, Any], trace: Trace, index: int) -> None:
    layer = trace.layers[index]
    assert list(found["tokens"]) == list(layer.tokens)
    for step in STEPS if layer.has("query") else ("weights",):
        assert found[step] == approx(layer[step]), f"layer {index}, {step}"


@pytest.mark.sample(4)
@pytest.mark.parametrize("family", [*FAMILIES, *OWN_LAYERS])
def test_program_records_the_same_for_every_family(models: TinyPictureModels, family: str, beside: Path) -> None:
    model = source(models, family, Image.fromarray(noise()))
    trace = model.trace()
    if family == "SwinV2":
        with pytest.raises(MissingError, match="does not return the weights"):
            python(model, trace, Cell(0, "weights", 1, 2, 1))
        return
    for index in {0, len(trace.layers) - 2, len(trace.layers) - 1}:
        program = python(model, trace, Cell(index, "weights", 1, 2, 1))
        check_same(variables(program), trace, index)
        assert "import attention" not in program


def files() -> dict[str, bytes]:
    """Pictures whose pixels are not simply those of the file, by name."""
    rng = np.random.default_rng(1)
    turned, made = Image.fromarray(noise(23, 17)), dict[str, bytes]()
    exif = turned.getexif()
    exif[0x0112] = 6
    transparent = Image.fromarray(np.dstack([noise(23, 17), rng.integers(0, 256, (17, 23), dtype=np.uint8)]), "RGBA")
    deep = Image.fromarray(rng.integers(0, 2**16, (17, 23), dtype=np.uint16))
    palette = Image.fromarray(noise(23, 17)).quantize(8)
    kinds: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "photo.png": (Image.fromarray(noise(23, 17)), {}),
        "turned.jpg": (turned, {"exif": exif, "quality": 95}),
        "cmyk.jpg": (Image.fromarray(noise(23, 17)).convert("CMYK"), {}),
        "transparent.webp": (transparent, {"lossless": True}),
        "deep.png": (deep, {}),
        "palette.png": (palette, {"transparency": 0}),
    }
    for name, (image, options) in kinds.items():
        file = BytesIO()
        image.save(file, {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}[name.partition(".")[2]], **options)
        made[name] = file.getvalue()
    return made


@pytest.mark.parametrize("name", files())
@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated:DeprecationWarning")
def test_program_reads_a_file_as_the_lab_does(models: TinyPictureModels, name: str, beside: Path) -> None:
    (beside / name).write_bytes(files()[name])
    model = source(models, "ViT", beside / name)
    trace = model.trace()
    program = python(model, trace, Cell(1, "weights", 1, 2, 1))
    assert f'file = "{name}"  # the picture' in program
    found = variables(program)
    np.testing.assert_array_equal(np.asarray(found["image"]), model.image.pixels() if model.image else None)
    check_same(found, trace, 1)
    assert ("ImageOps" in program) == (name == "turned.jpg")


def test_program_without_its_picture_ends_with_a_sentence(models: TinyPictureModels, beside: Path) -> None:
    path = beside / 'my "photo" é.png'
    Image.fromarray(noise()).save(path)
    model = source(models, "ViT", path)
    program = python(model, model.trace(), Cell(0, "weights", 0, 0, 0))
    path.unlink()
    with pytest.raises(SystemExit, match=r"reads a picture from 'my .photo. é[.]png', and there is none: save the"):
        variables(program)


@pytest.mark.parametrize("name", ["../../photo.png", "C:\\photos\\photo.png", "/etc/photo.png"])
def test_program_reads_no_other_folder(models: TinyPictureModels, name: str, beside: Path) -> None:
    file = BytesIO()
    Image.fromarray(noise()).save(file, "PNG")
    model = source(models, "ViT", Picture.of(file.getvalue(), name))
    assert 'file = "photo.png"  # the picture in the folder of this program' in python(model)


def test_large_picture_without_a_file_is_read_from_one(models: TinyPictureModels, beside: Path) -> None:
    large = Image.fromarray(noise(80, 60))
    model = source(models, "ViT", large)
    trace = model.trace()
    program = python(model, trace, Cell(1, "weights", 1, 2, 1))
    assert f'file = "{_UNNAMED}"  # save the picture under this name' in program
    large.save(beside / _UNNAMED)
    check_same(variables(program), trace, 1)
    small = python(source(models, "ViT", bright_patch(0, 1)))
    assert _UNNAMED not in small
    assert len(small) < 2 * _MAX_EMBEDDED


def test_head_is_patched_from_the_run_of_another_picture(models: TinyPictureModels, beside: Path) -> None:
    pictures = [Picture.of(Image.fromarray(noise(seed=seed))) for seed in range(2)]
    other = source(models, "ViT", pictures[1])
    patch = Intervention(0, 1, patch="head_output")
    model = source(models, "ViT", pictures[0], interventions=(patch,), other=other)
    trace = model.trace()
    assert not torch.equal(trace.layers[1].weights, source(models, "ViT", pictures[0]).trace().layers[1].weights)
    found = variables(python(model, trace, Cell(1, "weights", 1, 2, 1)))
    check_same(found, trace, 1)
    assert found["image"] != found["other_image"]


@pytest.mark.sample(3)
@pytest.mark.parametrize("family", IN_TEXT)
def test_program_joins_several_pictures_and_tiles(models: TinyPictureModels, family: str, beside: Path) -> None:
    images = [Image.fromarray(noise()), Image.fromarray(noise(15, 22, seed=1))]
    for given in (images[:1], images):
        model = source(models, family, given)
        trace = model.trace()
        for index in (0, len(trace.layers) - 1):
            check_same(variables(python(model, trace, Cell(index, "weights", 1, 2, 1))), trace, index)
    changed = source(models, family, images, interventions=(Intervention(0, 1, ablate="zero"),))
    with pytest.raises(ConfigError, match="remove the interventions"):
        python(changed, None, Cell(1, "weights", 1, 2, 1))


def test_program_reads_the_generated_tokens(models: TinyPictureModels, beside: Path) -> None:
    model = source(models, "LLaVA", Image.fromarray(noise()), generate=2)
    trace = model.trace()
    assert trace.generated
    found = variables(python(model, trace, Cell(len(trace.layers) - 1, "weights", 1, 2, 1)))
    check_same(found, trace, len(trace.layers) - 1)


def test_notebook_of_a_picture_has_its_program(models: TinyPictureModels, beside: Path) -> None:
    model = source(models, "DINOv2", bright_patch(0, 1))
    trace = model.trace()
    cells = ["".join(cell["source"]) for cell in json.loads(ipynb(model))["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 3
    found: dict[str, Any] = {}
    for cell in cells:
        exec(compile(cell, "<cell>", "exec"), found)
    row = trace.layers[0].weights[0, 0]
    for position, token in enumerate(trace.tokens):
        if isinstance(token, Patch):
            assert float(found["picture"][token.row, token.column]) == approx(float(row[position]))
    assert found["picture"].shape == (2, 3)
    assert np.asarray(found["figure"].data[0].z).shape == (2, 3)


def test_program_of_a_saved_trace_reads_its_file(models: TinyPictureModels, beside: Path) -> None:
    trace = source(models, "LLaVA", Image.fromarray(noise())).trace()
    trace.save(beside / "saved.npz")
    file = File.open(beside / "saved.npz")
    opened = file.trace()
    found = run(python(file, opened, Cell(len(trace.layers) - 1, "weights", 1, 2, 1)))
    found["file"].close()
    assert list(found["tokens"]) == list(trace.layers[-1].tokens)
    assert found["weights"] == approx(trace.layers[-1].weights)
    assert re.search(r"patch row 2, column 2", " ".join(found["tokens"]))
