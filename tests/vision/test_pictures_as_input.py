"""Pictures as the input of a model: bit for bit as its family computes, with every patch at its place; hostile files refused."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from PIL import Image
from tiny_models import TinyModels
from tiny_pictures import (
    FAMILIES,
    IN_TEXT,
    MERGED,
    PLACES,
    WITH_TEXT,
    TinyPictureModels,
    bright_patch,
    encoded,
    noise,
    png_header,
    processor_of,
)

from attention import Model, metrics
from attention.base.errors import AttentionError, ConfigError, FileError, MissingError, ModelError, TextError
from attention.base.tokens import Patch
from attention.circuits.sweep import sweep_heads
from attention.files.picture import _MAX_PIXELS, Picture
from attention.formula.names import Cell
from attention.models.library import LIBRARY
from attention.models.medium_inputs import MediumInputs
from attention.patching.intervention import Intervention
from attention.pictures.steps_view import cell_line
from attention.trace.trace import Trace

TEXT = "the owl asked the moon"
PHOTO = Picture.of(Image.fromarray(noise()))


def source(picture_models: TinyPictureModels, family: str, image: Any = PHOTO, **options: Any) -> Model:
    return Model(picture_models(family), TEXT if family in WITH_TEXT else "", image=image, **options)


def eager(picture_models: TinyPictureModels, family: str) -> Any:
    """The output of the family's own attention, from transformers alone."""
    import transformers

    path = picture_models(family)
    model = getattr(transformers, FAMILIES[family][0]).from_pretrained(path, attn_implementation="eager").eval()
    processor = transformers.AutoImageProcessor.from_pretrained(path, backend="pil")
    image = Image.fromarray(PHOTO.pixels())
    inputs = processor(images=image, return_tensors="pt")
    if family in IN_TEXT:
        inputs = processor_of(path, family)(images=[image], text=[f"{PLACES[family]}\n{TEXT}"], return_tensors="pt")
    elif family in WITH_TEXT:
        padding = "max_length" if family == "SigLIP" else False
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        ids = tokenizer(TEXT, return_tensors="pt", padding=padding, max_length=48)["input_ids"]
        inputs = {"pixel_values": inputs["pixel_values"], "input_ids": ids}
    with torch.no_grad():
        return model(**inputs, output_attentions=True)


def maps_of(output: Any) -> list[torch.Tensor]:
    """The weights of all layers in the output of transformers, in the order of a trace."""
    towers = [output.get(name) for name in ("vision_model_output", "text_model_output")]
    return [weights[0] for part in (towers if towers[0] is not None else [output]) for weights in part["attentions"]]


def patches(trace: Trace) -> list[Patch]:
    return [token for token in trace.layers[0].tokens if isinstance(token, Patch)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_output_is_equal_to_eager_bit_for_bit(picture_models: TinyPictureModels, family: str) -> None:
    from attention.models import running
    from attention.models.recorder import recording

    expected = eager(picture_models, family)
    model = source(picture_models, family)
    loaded, inputs = model.load_inputs()
    with recording(lambda call: None):
        actual = running.run(loaded, inputs)
    names = [name for name, value in expected.items() if isinstance(value, torch.Tensor) and name in actual]
    assert names
    for name in names:
        assert torch.equal(actual[name], expected[name]), name

    trace = model.trace()
    weights = maps_of(expected)
    layers = [layer for layer in trace.layers if family not in IN_TEXT or layer.name.startswith("text")]
    assert len(layers) == len(weights)
    for layer, own in zip(layers, weights, strict=True):
        assert layer.weights == approx(own, terms=1024)
        assert all(
            layer.has(step) for step in ("input", "query", "key", "value", "scores", "head_output", "w_q", "w_o")
        )
        assert layer.formula is not None
        assert len(layer.tokens) == own.shape[-1]


@pytest.mark.sample(5)
@pytest.mark.parametrize("family", FAMILIES)
def test_metrics_and_refusals_work_for_every_family(picture_models: TinyPictureModels, family: str) -> None:
    trace = source(picture_models, family).trace()
    table = metrics.of(trace)
    column = {name: table.values[..., [*metrics.all_metrics()].index(name)] for name in metrics.all_metrics()}
    first = trace.layers[0]
    n_heads = first.n_heads
    for name in ("distance", "previous", "next", "local"):  # of one dimension
        assert np.isnan(column[name][0, :n_heads]).all(), name
    for name in ("entropy", "self", "largest weight", "first token"):
        assert np.isfinite(column[name][0, :n_heads]).all(), name
    if family in ("CLIP", "SigLIP"):
        assert np.isfinite(column["previous"][2]).all()  # of its text
    if family not in (*IN_TEXT, "ViT"):  # the last has classes
        assert "predicts no tokens" in trace.no_prediction_reason
    with pytest.raises(AttentionError):
        trace.residual[0]


@pytest.mark.parametrize(("family", "n_registers"), [("DINOv2", 0), ("DINOv2 with registers", 3)])
def test_cls_row_is_that_of_visualize_attention(
    picture_models: TinyPictureModels, family: str, n_registers: int
) -> None:
    attentions = eager(picture_models, family).attentions[-1]
    trace = source(picture_models, family).trace()
    seen, layer = trace.pictures[0], trace.layers[-1]
    n_heads = layer.n_heads
    # Source: Caron et al. 2021, DINO, its script that visualizes attention; registers as in Darcet et al. 2024.
    expected = attentions[0, :, 0, 1 + n_registers :].reshape(n_heads, seen.rows, seen.columns)
    actual = torch.zeros(n_heads, seen.rows, seen.columns)
    for position, token in enumerate(layer.tokens):
        if isinstance(token, Patch):
            actual[:, token.row, token.column] = layer.weights[:, 0, position]
    assert actual == approx(expected)
    assert layer.tokens[: 1 + n_registers] == ("[CLS]", *(f"[register {i}]" for i in range(n_registers)))


@pytest.mark.parametrize("place", [(0, 0), (0, 2), (1, 0), (1, 1)])
@pytest.mark.parametrize("turn", ["", "FLIP_LEFT_RIGHT", "FLIP_TOP_BOTTOM", "ROTATE_180"])
def test_bright_patch_is_at_its_row_and_column(
    picture_models: TinyPictureModels, place: tuple[int, int], turn: str
) -> None:
    image, (row, column) = bright_patch(*place), place
    if turn:
        image = image.transpose(Image.Transpose[turn])
        row = 1 - row if turn != "FLIP_LEFT_RIGHT" else row
        column = 2 - column if turn != "FLIP_TOP_BOTTOM" else column
    model = source(picture_models, "ViT", image)
    trace = model.trace()
    seen = trace.pictures[0]
    assert (seen.rows, seen.columns, seen.rgb.shape, seen.words) == (2, 3, (8, 12, 3), "not resized")
    assert np.array_equal(seen.rgb, np.asarray(image))
    assert [(patch.row, patch.column) for patch in patches(trace)] == [(r, c) for r in range(2) for c in range(3)]
    bright = [
        patch for patch in patches(trace) if seen.rgb[patch.box[1] : patch.box[3], patch.box[0] : patch.box[2]].min() == 255
    ]  # fmt: skip
    assert bright == [f"patch row {row}, column {column}"]
    # The patch embedding of the model says the same: only this token has another vector.
    loaded, inputs = model.load_inputs()
    assert isinstance(inputs, MediumInputs)
    rows = loaded.model.get_input_embeddings()(inputs.read.arguments["pixel_values"])[0]
    differs = [int(i) for i in range(6) if rows[i] != approx(rows[(i + 1) % 6]) and rows[i] != approx(rows[(i + 2) % 6])]  # fmt: skip
    assert differs == [row * 3 + column]


def test_rotated_picture_swaps_rows_and_columns(picture_models: TinyPictureModels) -> None:
    image = bright_patch(0, 2).transpose(Image.Transpose.ROTATE_270)  # clockwise: 3 rows, 2 columns
    trace = source(picture_models, "DINOv2", image).trace()
    seen = trace.pictures[0]
    assert (seen.rows, seen.columns) == (3, 2)
    box = patches(trace)[2 * 2 + 1].box
    assert box == (4, 8, 8, 12)
    assert seen.rgb[box[1] : box[3], box[0] : box[2]].min() == 255


def test_seen_picture_is_what_the_processor_made(picture_models: TinyPictureModels) -> None:
    for family in (family for family in FAMILIES if family not in ("LLaVA-NeXT", "InternVL", *MERGED)):
        loaded, inputs = source(picture_models, family).load_inputs()
        assert isinstance(inputs, MediumInputs)
        assert loaded.reader is not None
        raw = loaded.reader.image_processor(
            images=Image.fromarray(PHOTO.pixels()), return_tensors="np", do_rescale=False, do_normalize=False
        )["pixel_values"][0]
        assert np.array_equal(inputs.read.seen[0].rgb, raw.transpose(1, 2, 0)), family
    assert (
        source(picture_models, "CLIP").trace().pictures[0].words
        == "resized to 24 × 16, cropped to 12 × 12 at the centre"
    )


def test_text_of_language_model_has_patches_of_its_picture(picture_models: TinyPictureModels) -> None:
    trace = Model(picture_models("LLaVA"), "the <image> owl", image=PHOTO).trace()
    text = trace.layers[-1].tokens
    of_picture = [token for token in text if isinstance(token, Patch)]
    assert of_picture == patches(trace)
    assert len(of_picture) == trace.pictures[0].rows * trace.pictures[0].columns == 9
    assert text[0] == "the"
    assert text[-1] == "·owl"
    assert not trace.notes
    assert len(trace.predictions) == 1
    assert "stands before the text" in source(picture_models, "LLaVA").trace().notes[0]
    with pytest.raises(TextError, match="has 2 places for a picture"):
        Model(picture_models("LLaVA"), "<image> and <image>", image=PHOTO).trace()


def test_words_never_join_patches_and_special_tokens_hide(picture_models: TinyPictureModels) -> None:
    trace = source(picture_models, "DINOv2 with registers", words=True, special="hide").trace()
    assert trace.tokens == tuple(f"patch row {row}, column {column}" for row in range(3) for column in range(3))
    assert all(isinstance(token, Patch) for token in trace.tokens)
    assert (Patch(0, 1, 2, (8, 4, 12, 8)).row, trace.tokens[5].box) == (1, (8, 4, 12, 8))


def test_patch_keeps_its_place_in_copies() -> None:
    patch = Patch(0, 3, 7, (28, 12, 32, 16))
    for other in (copy.copy(patch), copy.deepcopy(patch), pickle.loads(pickle.dumps(patch))):
        assert other == patch == "patch row 3, column 7"
        assert (other.row, other.column, other.box) == (3, 7, (28, 12, 32, 16))


def test_explanation_names_a_cell_by_its_patch(picture_models: TinyPictureModels) -> None:
    trace = source(picture_models, "ViT").trace()
    line = cell_line(trace, Cell(0, "weights", 0, 0, 6))
    assert [side["token"] for side in line["sides"]] == ["[CLS]", "patch row 1, column 2"]
    assert line["sign"] in ("=", "≈")


def test_heads_are_ablated_and_patched_from_another_picture(picture_models: TinyPictureModels) -> None:
    other = source(picture_models, "ViT", Image.fromarray(noise(seed=1)))
    plain = source(picture_models, "ViT").trace()
    ablated = source(picture_models, "ViT", interventions=(Intervention(0, 1, ablate="zero"),)).trace()
    assert torch.equal(ablated.layers[0].query, plain.layers[0].query)
    assert not torch.equal(ablated.layers[1].query, plain.layers[1].query)
    every = tuple(Intervention(0, head, patch="head_output") for head in range(4))
    patched = source(picture_models, "ViT", interventions=every, other=other).trace()
    assert torch.equal(patched.layers[0].query, plain.layers[0].query)
    assert not torch.equal(patched.layers[1].query, plain.layers[1].query)
    assert patched.changes
    result = list(sweep_heads(source(picture_models, "DINOv2")))[-1].result
    assert result is not None
    assert result.change.shape == (2, 4)
    assert np.abs(result.change).min() > 1e-4
    with pytest.raises(ConfigError, match="at a logit of a token or at the last vectors"):
        list(sweep_heads(source(picture_models, "CLIP")))


def test_model_gets_what_it_reads_or_says_what_is_missing(picture_models: TinyPictureModels, tiny: TinyModels) -> None:
    for model, message in (
        (Model(str(tiny("GPT-2")), TEXT, image=PHOTO), "reads no pictures"),
        (Model(picture_models("ViT"), TEXT), "reads a picture: give it as image="),
        (Model(picture_models("ViT"), TEXT, image=PHOTO), "reads a picture and no text"),
        (Model(picture_models("CLIP"), TEXT), "reads a picture and a text: give both"),
        (Model(picture_models("CLIP"), image=PHOTO), "got no text"),
        (Model(picture_models("ViT"), image=PHOTO, max_tokens=6), "a picture cannot be cut"),
        (Model(picture_models("ViT"), image=PHOTO, max_bytes=1000), "All steps may take at most"),
    ):  # fmt: skip
        with pytest.raises(AttentionError, match=message):
            model.trace()
    with pytest.raises(MissingError, match="is computed for models of texts"):
        Model(picture_models("LLaVA"), TEXT, image=PHOTO).trace().residual[0]
    assert "digest of its file, and this one is in memory" in Model(picture_models("ViT"), image=PHOTO).no_link_reason


def test_processor_of_too_large_pictures_is_refused(picture_models: TinyPictureModels, tmp_path: Path) -> None:
    import json
    import shutil

    path = tmp_path / "large"
    shutil.copytree(picture_models("ViT"), path)
    file = path / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"size": {"height": 10**6, "width": 10**6}}))
    with pytest.raises(ModelError, match="resizes each picture to at most 1344 pixels"):
        LIBRARY.get(str(path))


# Files


def test_same_picture_is_equal_and_hashable(tmp_path: Path) -> None:
    content = encoded(Image.fromarray(noise()), "PNG")
    file = tmp_path / "photo.png"
    file.write_bytes(content)
    a, b = Model("x", image=str(file)), Model("x", image=content)
    assert a == b
    assert hash(a) == hash(b)
    assert a != Model("x", image=encoded(Image.fromarray(noise(seed=1)), "PNG"))
    assert a.image is not None
    assert np.array_equal(a.image.pixels(), noise())
    assert (a.image.width, a.image.height) == (20, 13)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "an SVG"),
        (b"<?xml version='1.0'?><svg/>", "an SVG"),
        (b"GIF89a" + bytes(20), "a GIF"),
        (b"BM" + bytes(20), "a BMP"),
        (b"RIFF\0\0\0\0WAVE" + bytes(20), "a file of another kind"),
        (png_header(60_000, 60_000), f"at most {_MAX_PIXELS:,} pixels; got 60,000 × 60,000"),
        (png_header(5_000, 100), "at most 16 times as long"),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\xff\xff\xff" * 2, "pixels; got 16,777,216 × 16,777,216"),
        (png_header(20, 13), "broken or cut off"),
        (b"\x89PNG\r\n\x1a\n", "broken or cut off"),
        (b"\xff\xd8\xff\xe0", "broken or cut off"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "pixels; got 0 × 0"),
        (encoded(Image.fromarray(noise(200, 200)), "PNG")[:5000], "broken or cut off"),
        (encoded(Image.fromarray(noise(200, 200)), "JPEG")[:3000], "broken or cut off"),
        (encoded(Image.fromarray(noise(200, 200)), "WEBP")[:3000], "broken or cut off"),
        (3, "got a int"),
    ],
)  # fmt: skip
def test_hostile_files_are_refused_in_a_sentence(content: Any, message: str) -> None:
    with pytest.raises(FileError) as caught:
        Picture.of(content)
    assert message in str(caught.value)


def test_other_numbers_and_colours_become_red_green_and_blue() -> None:
    gray = (np.arange(256, dtype=np.uint16).reshape(16, 16) * 257) ^ 3
    picture = Picture.of(encoded(Image.fromarray(gray), "PNG"))
    assert np.array_equal(picture.pixels(), np.repeat((gray >> 8).astype(np.uint8)[..., None], 3, axis=-1))
    assert "16 bit" in picture.notes[0]
    cmyk = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    assert np.abs(Picture.of(encoded(cmyk, "JPEG", quality=100)).pixels()[4, 4].astype(int) - (255, 0, 0)).max() < 8
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    clear.putpixel((1, 2), (0, 0, 255, 255))
    picture = Picture.of(encoded(clear, "PNG"))
    assert picture.pixels()[2, 1].tolist() == [0, 0, 255]
    assert picture.pixels()[0, 0].tolist() == [255, 255, 255]
    assert "on white" in picture.notes[0]
    palette = Image.fromarray(noise(8, 8)).quantize(4)
    assert np.array_equal(Picture.of(encoded(palette, "PNG")).pixels(), np.asarray(palette.convert("RGB")))


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_first_frame_of_an_animation_is_read(kind: str) -> None:
    frames = [Image.new("RGB", (8, 8), color) for color in ("red", "blue", "lime")]
    content = encoded(
        frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
    )
    picture = Picture.of(content)
    assert picture.pixels()[3, 3].tolist() == [255, 0, 0]
    assert picture.notes == ("The picture is an animation of 3 frames: the first is read.",)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_picture_is_turned_as_its_exif_says(kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    exif[0x010F] = "a camera"
    image = Image.new("RGB", (16, 8), "black")
    image.paste("white", (0, 0, 8, 8))  # the left half, which is then the top
    picture = Picture.of(encoded(image, kind, exif=exif))
    assert (picture.width, picture.height) == (8, 16)
    assert picture.pixels()[2, 4].min() > 240
    assert picture.pixels()[13, 4].max() < 15
    assert "EXIF" in picture.notes[0]


@pytest.mark.sample(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_model_in_memory_reads_pictures_as_its_folder(picture_models: TinyPictureModels, family: str) -> None:
    import transformers

    path, text = picture_models(family), TEXT if family in WITH_TEXT else None
    network = getattr(transformers, FAMILIES[family][0]).from_pretrained(path, attn_implementation="eager").eval()
    processor: Any = transformers.AutoImageProcessor.from_pretrained(path, backend="pil")
    if family in IN_TEXT:
        processor = processor_of(path, family)
    elif family in WITH_TEXT:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
        name = FAMILIES[family][0].replace("Model", "Processor")
        processor = getattr(transformers, name)(image_processor=processor, tokenizer=tokenizer)
    trace = Model.of(network, processor, text, image=PHOTO).trace()
    expected = source(picture_models, family).trace()
    assert len(trace.layers) == len(expected.layers)
    for layer, other in zip(trace.layers, expected.layers, strict=True):
        assert layer.tokens == other.tokens
        assert layer.weights == approx(other.weights)
    assert patches(trace) == patches(expected)
    np.testing.assert_array_equal(trace.pictures[0].rgb, expected.pictures[0].rgb)
    assert network.config._attn_implementation == "eager"


def test_model_in_memory_needs_its_processor(picture_models: TinyPictureModels) -> None:
    import transformers

    network = transformers.ViTForImageClassification.from_pretrained(picture_models("ViT"))
    processor = transformers.AutoImageProcessor.from_pretrained(picture_models("ViT"), backend="pil")
    tokenizer = transformers.AutoTokenizer.from_pretrained(picture_models("CLIP"))
    with pytest.raises(ModelError, match=r"AutoImageProcessor\.from_pretrained"):
        Model.of(network, tokenizer, image=PHOTO)
    with pytest.raises(ModelError, match=r"AutoProcessor\.from_pretrained"):
        Model.of(transformers.CLIPModel.from_pretrained(picture_models("CLIP")), tokenizer, TEXT, image=PHOTO)
    with pytest.raises(ConfigError, match="a picture: give it as image="):
        Model.of(network, processor, "a").trace()
    processor.size = {"height": 10_000, "width": 10_000}
    with pytest.raises(ModelError, match="resizes each picture"):
        Model.of(network, processor, image=PHOTO)
