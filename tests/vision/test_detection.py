"""Detectors: attention and boxes as transformers computes them, the recipe of DETR's own notebook, and what is said of what is not there."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from PIL import Image
from tiny_detectors import CLASSES, DEFORMABLE, DETECTORS, detector, save
from tiny_pictures import noise

from attention import File, Model
from attention.base.errors import FileError, ModelError
from attention.base.tokens import BoxToken, Patch, label
from attention.files.picture import Picture
from attention.pictures.over_picture import MapLine, default_query, over_picture_json
from attention.trace.trace import Trace

PHOTO = Picture.of(Image.fromarray(noise(160, 120)))
RECORDED = [name for name in DETECTORS if name != "Deformable DETR"]
WITH_BOXES = [name for name in DETECTORS if name != "DETR without a head"]


def own_output(model: Any, processor: Any) -> Any:
    """What transformers alone computes with eager attention."""
    inputs = dict(processor(images=Image.fromarray(PHOTO.pixels()), return_tensors="pt"))
    if "Yolos" in type(model).__name__:
        inputs.pop("pixel_mask", None)  # which this family does not read
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return model(**inputs, output_attentions=True)


def of_kind(trace: Trace, kind: str) -> list[Any]:
    return [layer for layer in trace.layers if layer.name.startswith(kind) and layer.has_attention]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", DETECTORS)
def test_weights_and_outputs_are_those_of_transformers(name: str) -> None:
    from attention.models import running
    from attention.models.recorder import recording

    model, processor = detector(name)
    expected = own_output(model, processor)
    source = Model.of(model, processor, image=PHOTO)
    trace = source.trace()
    kinds = ["layer"] if name == "YOLOS" else ["encoder", "decoder", "cross"]
    fields = ["attentions"] if name == "YOLOS" else ["encoder_attentions", "decoder_attentions", "cross_attentions"]
    n_layers = {kind: len(of_kind(trace, kind)) for kind in kinds}
    assert n_layers["layer" if name == "YOLOS" else "decoder"] == 2
    assert n_layers.get("cross", 0) == (2 if name not in (*DEFORMABLE, "YOLOS") else 0)
    for kind, field in zip(kinds, fields, strict=True):
        for layer, weights in zip(
            of_kind(trace, kind), expected[field] if n_layers[kind] else (), strict=n_layers[kind] > 0
        ):
            assert layer.weights == approx(weights[0], scale=1)
    # The pass that is recorded computes what the model computes, bit for bit.
    loaded, inputs = source.load_inputs()
    recorded: list[Any] = []
    with recording(lambda call: recorded.append(call.weights)):
        actual = running.run(loaded, inputs)
    for field, value in expected.items():
        if isinstance(value, torch.Tensor) and field in actual:
            assert torch.equal(actual[field], value), field
    every = [weights[0] for field in fields for weights in expected[field] or ()]
    assert all(any(torch.equal(own, each) for each in every) for own in recorded)
    assert len(recorded) == (0 if name in ("DAB-DETR", "Table Transformer") else sum(n_layers.values()))


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", WITH_BOXES)
def test_boxes_are_those_of_the_post_processing_of_transformers(name: str) -> None:
    model, processor = detector(name)
    trace = Model.of(model, processor, image=PHOTO).trace()
    queries = [token for token in trace.layers[-1].tokens if isinstance(token, BoxToken)]
    assert len(queries) == 7
    output = own_output(model, processor)
    size = trace.pictures[0].words.rpartition("resized to ")[2].split(",")[0]
    width, height = map(int, size.split(" × "))
    found = processor.post_process_object_detection(output, threshold=0.0, target_sizes=[(height, width)])[0]
    n_objects = n_found = 0
    for index, token in enumerate(queries):
        middle_x, middle_y, across, down = output.pred_boxes[0, index].tolist()
        box = torch.tensor(token.place.box)
        ends = [
            (middle_x - across / 2) * width,
            (middle_y - down / 2) * height,
            (middle_x + across / 2) * width,
            (middle_y + down / 2) * height,
        ]
        assert box == approx(torch.tensor(ends), terms=1024)
        # The families with a focal loss list a box once for each class.
        same = torch.tensor([each == approx(box, scale=1000) for each in found["boxes"]])
        n_found += bool(same.any())
        prefix = f"[DET] {index}" if name == "YOLOS" else f"query {index}"
        assert label(token) == str(token)  # with its blanks
        n_objects += token.is_object
        if bool(same.any()):  # RT-DETR lists as many pairs of box and class as there are queries
            best = found["scores"][same].argmax()
            score, own = float(found["scores"][same][best]), CLASSES[int(found["labels"][same][best])]
            assert token.place.score == approx(score, terms=1024, scale=1)
            assert str(token) == (f"{prefix}: {own} {score:.2f}" if score > 0.5 else prefix)
    assert n_found == 7 or (name in DEFORMABLE and n_found > 1)
    kept = processor.post_process_object_detection(output, target_sizes=[(height, width)])[0]
    assert (n_objects > 0) == (len(kept["scores"]) > 0)


def test_chosen_pixel_of_the_encoder_is_drawn_as_in_the_notebook_of_detr() -> None:
    model, processor = detector("DETR")
    # Source: facebookresearch/detr, the Colab notebook "detr_attention": sattn = enc_attn_weights[0].reshape(shape + shape), where shape
    # is that of the feature map and weights are the mean of all heads; of the pixel idx_o it shows sattn[..., idx[0], idx[1]], idx = idx_o // 32.
    # Of the object idx it shows dec_attn_weights[0, idx].view(h, w).
    output = own_output(model, processor)
    trace = Model.of(model, processor, image=PHOTO).trace()
    seen = trace.pictures[0]
    shape = seen.rows, seen.columns
    assert seen.patch_size == (32, 32)
    assert shape == (3, 3)  # of 70 × 93 pixels
    sattn = output.encoder_attentions[-1][0].mean(0).reshape(shape + shape)
    layer = of_kind(trace, "encoder")[-1]
    grid = {
        (token.row, token.column): position for position, token in enumerate(layer.tokens) if isinstance(token, Patch)
    }
    assert [*grid] == [divmod(position, 3) for position in range(9)]  # row by row
    for pixel in ((10, 10), (40, 80), (69, 50)):
        row, column = (place // 32 for place in pixel)
        own = layer.weights.mean(0)[:, grid[row, column]].reshape(shape)
        assert own == approx(sattn[..., row, column])
        left, top, right, bottom = layer.tokens[grid[row, column]].box
        assert left <= pixel[1] < right
        assert top <= pixel[0] < bottom
    cross = of_kind(trace, "cross")[-1]
    for query in range(7):
        own = cross.weights.mean(0)[query].view(shape)
        assert own == approx(output.cross_attentions[-1][0].mean(0)[query].view(shape))


def test_padding_is_hidden_as_a_key_and_still_asks_as_a_query() -> None:
    # Source: facebookresearch/detr, pull request 223: pixels of the padding are masked as keys, and not as queries.
    model, processor = detector("DETR", pad_size={"height": 128, "width": 192})
    trace = Model.of(model, processor, image=PHOTO).trace()
    seen, layer = trace.pictures[0], of_kind(trace, "encoder")[0]
    assert (seen.rows, seen.columns) == (4, 6)
    assert seen.words == "resized to 93 × 70, padded to 192 × 128"
    # transformers samples the mask of pixels at the upper left pixel of each cell.
    padded = torch.tensor([token.row * 32 >= 70 or token.column * 32 >= 93 for token in layer.tokens])
    assert padded.sum() == 24 - 9
    assert bool((layer.weights[..., padded] == 0).all())
    assert layer.weights.sum(-1) == approx(torch.ones(4, 24))
    assert bool((of_kind(trace, "cross")[0].weights[..., padded] == 0).all())
    box = next(token for token in trace.layers[-1].tokens if isinstance(token, BoxToken)).place.box
    whole = detector("DETR")
    alone = next(
        token for token in Model.of(*whole, image=PHOTO).trace().layers[-1].tokens if isinstance(token, BoxToken)
    ).place.box
    assert box != alone  # other cells were padding
    assert max(box) < 140  # shares of the picture, and not of its padding


def test_shapes_are_those_of_the_tests_of_transformers() -> None:
    # Source: transformers, its test of DETR models, encoder_seq_length = ceil(min_size / 32) × ceil(max_size / 32),
    # and that of YOLOS: num_patches + 1 + num_detection_tokens.
    for width, height in ((200, 200), (193, 65), (64, 33)):
        picture = Picture.of(Image.fromarray(noise(width, height)))
        model, processor = detector("DETR", do_resize=True, size={"height": height, "width": width})
        trace = Model.of(model, processor, image=picture).trace()
        seen = trace.pictures[0]
        assert (seen.rows, seen.columns) == (-(-height // 32), -(-width // 32))
        assert seen.rgb.shape == (seen.rows * 32, seen.columns * 32, 3)  # every cell lies on pixels
        assert np.array_equal(seen.rgb[:height, :width], picture.pixels())
        model, processor = detector("YOLOS", size={"height": height, "width": width})
        layer = Model.of(model, processor, image=picture).trace().layers[0]
        assert len(layer.tokens) == (height // 16) * (width // 16) + 1 + 7


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", DEFORMABLE)
def test_deformable_attention_is_named_as_not_recorded(name: str) -> None:
    trace = Model.of(*detector(name), image=PHOTO).trace()
    assert any("cross-attention of this model is deformable" in note for note in trace.notes)
    assert not of_kind(trace, "cross")
    assert all(layer.name.startswith(("encoder", "decoder")) for layer in trace.layers)
    if name == "Deformable DETR":
        assert not of_kind(trace, "encoder")
        assert any("encoder 0, 1 (DeformableDetrMultiscaleDeformableAttention)" in note for note in trace.notes)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["DETR", "YOLOS", "RT-DETR"])
def test_folder_gives_the_same_as_the_model_in_memory(name: str, tmp_path: Path) -> None:
    trace = Model(str(save(name, tmp_path / "detector")), image=PHOTO).trace()
    expected = Model.of(*detector(name), image=PHOTO).trace()
    assert [layer.name for layer in trace.layers] == [layer.name for layer in expected.layers]
    for layer, other in zip(trace.layers, expected.layers, strict=True):
        assert layer.tokens == other.tokens
        assert layer.weights == approx(other.weights, scale=1)
    assert "a box and a class at each of its queries" in trace.no_prediction_reason


def test_folder_that_needs_timm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    folder = save("DETR", tmp_path / "detector")
    config = json.loads((folder / "config.json").read_text())
    config["backbone_config"] = {
        "model_type": "timm_backbone",
        "backbone": "resnet18",
        "features_only": True,
        "out_indices": [4],
    }
    (folder / "config.json").write_text(json.dumps(config))
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setattr("transformers.utils.import_utils.is_timm_available", lambda: False)
    with pytest.raises(
        ModelError, match=r"needs a library that is not installed here .*timm.*install it, and open the model again"
    ):
        Model(str(folder), image=PHOTO).trace()


def test_boxes_are_drawn_over_the_picture(tmp_path: Path) -> None:
    trace = Model.of(*detector("Conditional DETR"), image=PHOTO).trace()
    index = next(index for index, layer in enumerate(trace.layers) if layer.name == "cross 1")
    layer = trace.layers[index]
    query = default_query(layer.tokens)
    scores = [token.place.score for token in layer.tokens if isinstance(token, BoxToken)]
    assert scores[query] == max(scores)
    for query in (0, 3):
        spec = over_picture_json(MapLine.of(trace, "weights", index, 1, query=query))
        boxes = [shape for shape in spec["layout"]["shapes"] if shape.get("name") == "predicted box"]
        objects = [token for token in layer.tokens if isinstance(token, BoxToken) and token.is_object]
        assert len(boxes) == len({*objects, layer.tokens[query]})
        assert [shape["line"]["width"] for shape in boxes] == [*[1.5] * (len(boxes) - 1), 4]
        own = layer.tokens[query]
        assert isinstance(own, BoxToken)
        left, top, right, bottom = own.place.box
        ends = [boxes[-1][each] for each in ("x0", "y0", "x1", "y1")]
        assert ends == approx([left / 32 - 0.5, top / 32 - 0.5, right / 32 - 0.5, bottom / 32 - 0.5], step=1e-3)
        numbers = np.asarray(spec["data"][0]["z"])[-3:, :3]
        assert numbers.ravel() == approx(layer["weights"][1, query].numpy())
    encoder = over_picture_json(MapLine.of(trace, "weights", 0, 0, query=4))
    assert not [shape for shape in encoder["layout"]["shapes"] if shape.get("name") == "predicted box"]


@pytest.mark.parametrize("extension", [".npz", ".safetensors"])
def test_boxes_are_saved_with_a_trace(extension: str, tmp_path: Path) -> None:
    trace = Model.of(*detector("D-FINE"), image=PHOTO).trace()
    trace.save(path := tmp_path / f"trace{extension}")
    opened = File.open(path).trace()
    for layer, other in zip(opened.layers, trace.layers, strict=True):
        assert layer.tokens == other.tokens
        assert [getattr(token, "place", None) for token in layer.tokens] == [
            getattr(token, "place", None) for token in other.tokens
        ]
        assert [*map(type, layer.tokens)] == [*map(type, other.tokens)]


@pytest.mark.parametrize(
    "place",
    [
        [0, 1, 0.0, 0.0, 1.0, 1.0, 0.5],  # a picture that is not there
        [99, 0, 0.0, 0.0, 1.0, 1.0, 0.5],
        [0, 0, 5.0, 0.0, 1.0, 1.0, 0.5],  # right before left
        [0, 0, 0.0, 0.0, 1.0, 1.0, 1.5],
        [0, 0, 0.0, 0.0, 1e30, 1.0, 0.5],
        [0, 0, "a", 0.0, 1.0, 1.0, 0.5],
        [True, 0, 0.0, 0.0, 1.0, 1.0, 0.5],
    ],
)
def test_hostile_boxes_of_a_file_are_refused(place: list[Any], tmp_path: Path) -> None:
    from attention.files.saved_pictures import with_places

    pictures = Model.of(*detector("YOLOS"), image=PHOTO).trace().pictures
    with pytest.raises(FileError, match="score] for each predicted box"):
        with_places("a.npz", ("query 0",), [place], pictures, "patches")
    fine = [0, 0, -3.5, 0, 20, 40.5, 0.75]
    (token,) = with_places("a.npz", ("query 0",), [fine], pictures, "patches")
    assert isinstance(token, BoxToken)
    assert token.place == (0, (-3.5, 0.0, 20.0, 40.5), 0.75)
    with pytest.raises(FileError, match="score] for each predicted box"):
        with_places("a.npz", ("query 0",), [fine, fine], pictures, "patches")


@pytest.mark.parametrize("name", ["DETR", "YOLOS", "RT-DETR"])
def test_copied_program_records_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from attention import Cell
    from attention.export.program import python

    folder = save(name, tmp_path / "detector")
    monkeypatch.chdir(tmp_path)
    Image.fromarray(PHOTO.pixels()).save("photo.png")
    model = Model(str(folder), image="photo.png")
    trace = model.trace()
    index = len(trace.layers) - 1
    found: dict[str, Any] = {}
    exec(compile(python(model, trace, Cell(index, "weights", 1, 2, 1)), "<program>", "exec"), found)
    layer = trace.layers[index]
    assert len(found["tokens"]) == len(layer.tokens)
    for step in ("query", "weights", "head_output"):
        assert found[step] == approx(layer[step])
