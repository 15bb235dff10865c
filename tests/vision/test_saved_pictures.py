"""Traces of pictures in files: the same tokens, places, pixels and digits come back; wrong places and hostile pictures are refused."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from PIL import Image
from test_file import same
from test_file_on_pages import uploaded
from test_pages import drawn, opened
from tiny_pictures import WITH_TEXT, TinyPictureModels, noise, two_pictures

from attention import Cell, File, FileError, Model, Trace
from attention.base.tokens import Patch
from attention.files import array_writer, saved_pictures
from attention.pictures.over_picture import MapLine, over_picture_json
from attention.pictures.steps_view import maps_over_picture
from benchmarks.hostile_files import pictured as pictured_files

TEXT = "the owl asked the moon"
BOX = (0, 0, 4, 4)


def trace_of(picture_models: TinyPictureModels, family: str) -> Trace:
    return Model(picture_models(family), TEXT if family in WITH_TEXT else "", image=Image.fromarray(noise())).trace()


def places(trace: Trace) -> list[Any]:
    return [
        [(at, token.picture, token.row, token.column, token.box) for at, token in enumerate(tokens) if isinstance(token, Patch)]
        for layer in trace.layers
        for tokens in (layer.tokens, layer.key_tokens)
    ]  # fmt: skip


def same_pictures(actual: Trace, expected: Trace) -> None:
    assert places(actual) == places(expected)
    assert len(actual.pictures) == len(expected.pictures) > 0
    for picture, expected_picture in zip(actual.pictures, expected.pictures, strict=True):
        np.testing.assert_array_equal(picture.rgb, expected_picture.rgb)
        assert picture.rgb.dtype == np.uint8
        for field in ("rows", "columns", "patch_size", "words", "digest"):
            assert getattr(picture, field) == getattr(expected_picture, field), field


@pytest.mark.parametrize("name", ["trace.npz", "trace.safetensors"])
@pytest.mark.parametrize("family", ["ViT", "DINOv2 with registers", "CLIP", "SigLIP", "LLaVA"])
def test_saved_trace_of_a_picture_opens_the_same(
    picture_models: TinyPictureModels, family: str, name: str, tmp_path: Path
) -> None:
    trace = trace_of(picture_models, family)
    trace.save(tmp_path / name)
    opened = File.open(tmp_path / name).trace()
    same(opened, trace)
    same_pictures(opened, trace)
    assert opened.notes == trace.notes
    query = len(trace.layers[0].tokens) - 1
    drawn, expected = (
        over_picture_json(MapLine.of(source, "weights", 1, 2, query=query)) for source in (opened, trace)
    )
    np.testing.assert_array_equal(drawn["data"][0]["z"], expected["data"][0]["z"])
    assert drawn["layout"]["images"] == expected["layout"]["images"]


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_equal_names_of_two_pictures_stay_apart(kind: str) -> None:
    trace = two_pictures()
    content = getattr(array_writer, kind)(trace)
    opened = File.of(f"two.{kind}", content).trace()
    same(opened, trace)
    same_pictures(opened, trace)
    assert content == getattr(array_writer, kind)(trace)
    part = File.of(f"part.{kind}", getattr(array_writer, kind)(trace, 1, [1, 2])).trace()
    assert places(part) == places(trace)[2:]
    assert part.layers[0].weights.shape[0] == 1


@pytest.mark.quick
def test_size_and_memory_count_the_pictures() -> None:
    trace = two_pictures()
    n_bytes = sum(picture.rgb.nbytes for picture in trace.pictures)
    assert n_bytes == 2 * 13 * 9 * 3
    bare = Trace(trace.tokens, trace.layers)
    assert array_writer.size(trace) == array_writer.size(bare) + n_bytes
    sizes = [File.of("t.npz", array_writer.npz(source)) for source in (trace, bare)]
    with_pictures, without = (file.memory_bytes() - len(file.content) for file in sizes)
    assert with_pictures >= without + n_bytes


def test_layers_of_equal_tokens_name_them_once(picture_models: TinyPictureModels) -> None:
    # A real model of 32 layers with 576 patches would otherwise have a description that is too long to be read.
    trace = trace_of(picture_models, "LLaVA")
    layers = tuple(layer for layer in trace.layers for _ in range(40))
    many = Trace(trace.tokens, layers, trace.key_tokens, pictures=trace.pictures)
    about = json.loads(np.load(io.BytesIO(array_writer.npz(many)))["about"].item())
    assert sum("tokens" in entry for entry in about["layers"]) == 1
    same_pictures(File.of("many.npz", array_writer.npz(many)).trace(), many)


def test_opened_layers_share_the_tokens_of_one_list(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "LLaVA")
    opened = File.of("x.npz", array_writer.npz(trace)).trace()
    same_pictures(opened, trace)
    distinct = {id(tokens) for layer in opened.layers for tokens in (layer.tokens, layer.key_tokens)}
    assert len({layer.tokens for layer in trace.layers}) == 2  # of the picture, and of the text
    assert len(distinct) <= 4 < 2 * len(opened.layers)


def changed(change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> File:
    """A file of a saved trace, with a change to its arrays and its description."""
    arrays = dict(np.load(io.BytesIO(array_writer.npz(two_pictures()))))
    about = json.loads(arrays["about"].item())
    change(arrays, about)
    arrays["about"] = np.array(json.dumps(about).encode())
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return File.of("x.npz", file.getvalue())


def _planes(arrays: dict[str, Any], about: dict[str, Any], grids: Sequence[tuple[int, int]]) -> None:
    """Pictures of these rows and columns of patches."""
    for index, (rows, columns) in enumerate(grids):
        arrays[f"picture{index}"] = np.zeros((rows, columns, 3), np.uint8)
        about["pictures"][index].update(rows=rows, columns=columns, patch_size=[1, 1])


WRONG: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], Any], str]] = {
    "a place that is a word": (lambda a, b: b["patches"].__setitem__(0, "here"), "needs .position, picture, row"),
    "places that are no list": (lambda a, b: b.update(patches={"0": 1}), "patches in “x.npz” needs"),
    "a fraction": (lambda a, b: b["patches"].__setitem__(0, [0, 0, 0, 0.5, *BOX]), "for each patch"),
    "a negative row": (lambda a, b: b["patches"].__setitem__(0, [0, 0, -1, 0, *BOX]), "for each patch"),
    "a token that is missing": (lambda a, b: b["patches"].__setitem__(0, [6, 0, 0, 0, *BOX]), "there are 6 tokens and 2 pictures"),
    "a picture that is missing": (lambda a, b: b["patches"].__setitem__(0, [0, 2, 0, 0, *BOX]), "there are 6 tokens and 2 pictures"),
    "a row outside": (lambda a, b: b["patches"].__setitem__(0, [0, 0, 10**9, 0, *BOX]), "the picture has 2 rows and 3 columns"),
    "a box outside": (lambda a, b: b["patches"].__setitem__(0, [0, 0, 0, 0, 0, 0, 99, 4]), "the picture has 13 × 9 pixels"),
    "a place that is taken twice": (lambda a, b: b["patches"].__setitem__(0, [0, 0, 0, 1, *BOX]), "taken twice"),
    "a token that is taken twice": (lambda a, b: b["patches"].__setitem__(0, [1, 0, 0, 0, *BOX]), "taken twice"),
    "more places than tokens": (lambda a, b: b["key_patches"].extend([[0, 0, 0, 0, *BOX]] * 9), "key_patches in"),
    "a picture without pixels": (lambda a, b: a.pop("picture1"), "describes 2 pictures, and has “picture0”"),
    "pixels without a picture": (lambda a, b: b["pictures"].pop(), "describes 1 picture, and has “picture0”, “picture1”"),
    "too many pictures": (lambda a, b: b.update(pictures=b["pictures"] * 40), "at most 64 are read"),
    "a picture of two axes": (lambda a, b: a.update(picture0=np.zeros((9, 13))), r"axes \[row column 3\]; picture0"),
    "four colours": (lambda a, b: a.update(picture0=np.zeros((9, 13, 4))), r"is 9 × 13 × 4"),
    "colours that are fractions": (lambda a, b: a.update(picture0=np.full((9, 13, 3), 0.5)), "whole numbers from 0 to 255"),
    "colours that are too bright": (lambda a, b: a.update(picture0=np.full((9, 13, 3), 300)), "whole numbers from 0 to 255"),
    "colours that are no numbers": (lambda a, b: a.update(picture0=np.full((9, 13, 3), np.nan)), "whole numbers from 0 to 255"),
    "a grid larger than the picture": (lambda a, b: b["pictures"][0].update(rows=10**9), "should fit into it"),
    "no grid": (lambda a, b: b["pictures"][0].pop("rows"), "should fit into it"),
    "patches of no size": (lambda a, b: b["pictures"][0].update(patch_size=[0, 4]), "should fit into it"),
    "a patch size that is no list": (lambda a, b: b["pictures"][0].update(patch_size="4"), "should fit into it"),
    "a plane that is too large": (lambda a, b: _planes(a, b, [(1024, 1), (1, 1024)]), "at most 131,072 patches"),
    "a plane of too many rows": (lambda a, b: _planes(a, b, [(5000, 1)]), "4,096 rows or columns are drawn"),
    "a picture that claims to be huge": (lambda a, b: a.update(picture0=np.zeros((4096, 4096, 3), np.uint8)), "have 16,777,333 pixels by their headers"),
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("what", WRONG)
def test_wrong_pictures_and_places_are_refused(what: str) -> None:
    change, sentence = WRONG[what]
    with pytest.raises(FileError, match=sentence) as refused:
        changed(change).trace()
    assert len(str(refused.value)) < 500


@pytest.mark.quick
def test_huge_picture_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    from attention.files import archives

    file = changed(lambda a, b: a.update(picture0=np.zeros((4096, 4096, 3), np.uint8)))
    assert len(file.content) < 2**17  # compressed
    monkeypatch.setattr(archives, "_load_npy", lambda *args: pytest.fail("unpacked"))
    with pytest.raises(FileError, match="by their headers"):
        saved_pictures.read_pictures(file.name, archives.open_archive(file.name, file.content))
    with pytest.raises(FileError, match="would take"):
        File.of("x.npz", file.content, max_bytes=2**20).trace()


@pytest.mark.quick
def test_words_and_digest_of_hostile_files_are_left_out() -> None:
    def change(arrays: dict[str, Any], about: dict[str, Any]) -> None:
        about["pictures"][0].update(words="<script>", digest="x" * 99)

    seen = changed(change).trace().pictures[0]
    assert (seen.words, seen.digest) == ("", "")


@pytest.mark.quick
def test_pictures_of_other_programs_are_unused_arrays() -> None:
    weights, file = torch.softmax(torch.zeros(1, 3, 3), -1).numpy(), io.BytesIO()
    np.savez(file, weights=weights, picture0=np.zeros((2, 2, 3), np.uint8), patches=np.array(["a", "b", "c"]))
    trace = File.of("x.npz", file.getvalue()).trace()
    assert trace.pictures == ()
    assert "picture0" in trace.notes[0]


@pytest.mark.long  # a hundred random pictures
@settings(max_examples=300)
@given(pictured_files)
def test_any_places_and_pixels_end_in_picture_or_sentence(content: bytes) -> None:
    trace = two_pictures()
    with suppress(FileError):
        trace = File.of("x.npz", content, max_bytes=2**24).trace()
    for tokens in (trace.tokens, trace.key_tokens):
        assert all(token.picture < len(trace.pictures) for token in tokens if isinstance(token, Patch))
    if any(isinstance(token, Patch) for token in trace.key_tokens):
        over_picture_json(MapLine.of(trace, "weights", query=0))


@pytest.mark.parametrize("name", ["trace.npz", "trace.safetensors"])
def test_page_shows_the_picture_of_a_saved_trace(picture_models: TinyPictureModels, name: str, tmp_path: Path) -> None:
    trace = trace_of(picture_models, "ViT")
    trace.save(tmp_path / name)
    app = uploaded(opened("app.py", source="file"), name, (tmp_path / name).read_bytes())
    (figure,) = [figure for figure in drawn(app) if "grid" in figure["layout"]["meta"]]
    (expected,) = maps_over_picture(trace, Cell(0, "weights", 0, 0, 0), "fixed")
    np.testing.assert_array_equal(figure["data"][0]["z"], expected["data"][0]["z"])
    images, expected_images = (
        [{key: value for key, value in image.items() if key != "source"} for image in spec["layout"]["images"]]
        for spec in (figure, expected)
    )  # a message has the pixels once, beside the figures
    assert images == expected_images != []
