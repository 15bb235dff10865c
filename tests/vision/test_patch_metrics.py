"""Metrics over a picture: distances between patches, weights by the kind of token, and what order means beside patches."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from margins import approx
from PIL import Image
from tiny_pictures import TinyPictureModels, noise
from torch import Tensor

from attention import Layer, Model, Trace, TypedText, metrics
from attention.base.tokens import NEWLINE, Patch
from attention.metrics.patterns import CLS, PATCH, REGISTER, SPECIAL, WORD, kind_of
from attention.metrics.table import describe_head, frame

pytestmark = pytest.mark.quick

ROWS, COLUMNS = 3, 5
PATCHES = tuple(Patch(0, row, column, (0, 0, 1, 1)) for row in range(ROWS) for column in range(COLUMNS))
VIT = ("[CLS]", "[register 0]", *PATCHES)
LLAVA = ("<s>", "a", *PATCHES, "dog", "runs", "</s>")


def trace_of(tokens: tuple[str, ...], weights: Tensor) -> Trace:
    """A trace of one head with these weights [query_pos key_pos]."""
    return Trace(tokens, (Layer(tokens=tokens, recorded={"weights": weights[None]}),))


def measured(tokens: tuple[str, ...], weights: Tensor) -> tuple[dict[str, float], dict[str, int], dict[str, float]]:
    """The value of each metric, the number of queries behind it, and its value under uniform attention."""
    table = metrics.of(trace_of(tokens, weights))
    names = metrics.all_metrics()
    return (
        dict(zip(names, table.values[0, 0].tolist(), strict=True)),
        dict(zip(names, table.counts[0, 0].tolist(), strict=True)),
        dict(zip(names, table.uniform[0].tolist(), strict=True)),
    )


def by_definition(tokens: tuple[str, ...], weights: Tensor) -> float:
    """The mean distance, from its formula, one query at a time."""
    means = []
    for query, row in zip(tokens, weights.double().tolist(), strict=True):
        if isinstance(query, Patch):
            pairs = [
                (weight, math.hypot(key.row - query.row, key.column - query.column))
                for key, weight in zip(tokens, row, strict=True)
                if isinstance(key, Patch) and key.picture == query.picture
            ]
            means.append(sum(weight * far for weight, far in pairs) / sum(weight for weight, _ in pairs))
    return sum(means) / len(means)


@pytest.mark.parametrize("tokens", [VIT, LLAVA], ids=["ViT", "LLaVA"])
def test_patch_distance_is_the_distance_between_centres(tokens: tuple[str, ...]) -> None:
    weights = torch.rand(len(tokens), len(tokens), generator=torch.Generator().manual_seed(0)).softmax(-1)
    values, counts, uniform = measured(tokens, weights)
    assert values["patch distance"] == approx(by_definition(tokens, weights))
    assert counts["patch distance"] == len(PATCHES)
    assert uniform["patch distance"] == approx(by_definition(tokens, torch.full_like(weights, 1 / len(tokens))))


def shifted(tokens: tuple[str, ...], down: int, right: int) -> Tensor:
    """Each patch looks at the patch so many rows below and columns to the right, or at itself at the edge; others at themselves."""
    places = {(token.row, token.column): at for at, token in enumerate(tokens) if isinstance(token, Patch)}
    weights = torch.eye(len(tokens))
    for (row, column), at in places.items():
        if (row + down, column + right) in places:
            weights[at] = 0
            weights[at, places[row + down, column + right]] = 1
    return weights


@pytest.mark.parametrize(("down", "right"), [(0, 1), (1, 0), (1, 1), (2, 0), (0, 3), (2, 4)])
def test_head_that_looks_at_an_offset_has_its_distance(down: int, right: int) -> None:
    values, _, _ = measured(VIT, shifted(VIT, down, right))
    moved = (ROWS - down) * (COLUMNS - right)
    assert values["patch distance"] == approx(math.hypot(down, right) * moved / len(PATCHES))
    near = 1 if max(down, right) <= 1 else 1 - moved / len(PATCHES)
    assert values["near patches"] == approx(near)


def test_last_and_first_patch_of_lines_are_far_apart() -> None:
    # One position apart, but at both sides of the picture.
    last, first = (2 + row * COLUMNS + column for row, column in ((0, COLUMNS - 1), (1, 0)))
    weights = torch.eye(len(VIT))
    weights[last] = 0
    weights[last, first] = 1
    values, counts, _ = measured(VIT, weights)
    assert values["patch distance"] == approx(math.hypot(1, COLUMNS - 1) / len(PATCHES))
    assert values["near patches"] == approx(1 - 1 / len(PATCHES))
    for name in ("distance", "previous", "next", "local"):
        assert math.isnan(values[name])
        assert counts[name] == 0


def test_patches_of_two_pictures_are_apart_and_no_duplicates() -> None:
    tokens = tuple(Patch(picture, 0, column, (0, 0, 1, 1)) for picture in range(2) for column in range(2))
    weights = torch.tensor([[0.2, 0.2, 0.3, 0.3]] * 4)
    values, counts, _ = measured(tokens, weights)
    # Each looks equally at itself and at the neighbour within its own picture.
    assert values["patch distance"] == approx(0.5)
    assert values["near patches"] == approx((0.4 + 0.4 + 0.6 + 0.6) / 4)
    assert values["on the picture"] == approx(1)
    assert counts["duplicate token"] == counts["induction"] == 0


def test_weights_are_shared_among_the_kinds_of_tokens() -> None:
    for tokens in (VIT, LLAVA):
        weights = torch.rand(len(tokens), len(tokens), generator=torch.Generator().manual_seed(1)).softmax(-1)
        values, counts, uniform = measured(tokens, weights)
        kinds = {"on the picture": PATCH, "on [CLS]": CLS, "on registers": REGISTER, "on words": WORD}
        for name, kind in kinds.items():
            keys = [at for at, token in enumerate(tokens) if kind_of(token) == kind]
            if keys:
                assert values[name] == approx(float(weights[:, keys].sum(-1).mean()))
                assert uniform[name] == approx(len(keys) / len(tokens))
                assert counts[name] == len(tokens)
            else:
                assert math.isnan(values[name])
        special = [at for at, token in enumerate(tokens) if kind_of(token) == SPECIAL]
        rest = float(weights[:, special].sum(-1).mean()) if special else 0.0
        assert np.nansum([values[name] for name in kinds]) + rest == approx(1, dtype="float32")


def test_words_beside_patches_follow_each_other() -> None:
    weights = torch.eye(len(LLAVA)).roll(1, 0)  # each token looks at the one before it
    values, counts, _ = measured(LLAVA, weights)
    # "runs" follows "dog"; "a" follows a special token, "dog" a patch, and patches nothing.
    assert (values["previous"], counts["previous"]) == (1, 1)
    assert (values["next"], counts["next"]) == (0, 1)


def test_patch_that_all_queries_look_at_is_found() -> None:
    weights = torch.full((len(VIT), len(VIT)), 0.2 / (len(VIT) - 1))
    weights[:, 7] = 0.8
    assert measured(VIT, weights)[0]["sink patch"] == approx(0.8)
    on_cls = torch.full_like(weights, 0.2 / (len(VIT) - 1))
    on_cls[:, 0] = 0.8
    values = measured(VIT, on_cls)[0]
    assert values["sink patch"] == approx(0.2 / (len(VIT) - 1))
    assert values["on [CLS]"] == values["first token"] or values["on [CLS]"] == approx(0.8)


def test_metrics_of_pictures_stay_away_from_texts() -> None:
    text = TypedText("[CLS] a b a b").trace()
    of_pictures = [metric.name for metric in metrics.all_metrics().values() if metric.of_pictures]
    assert of_pictures
    assert not set(of_pictures) & set(metrics.names_of(text))
    table = metrics.of(text)
    assert all(np.isnan(table.column(name)).all() for name in of_pictures)
    assert not [column for column in frame(text, table, table.heads) if "picture" in column or "patch" in column]
    assert "patch" not in describe_head(table, 0, 0)
    assert set(of_pictures) <= set(metrics.names_of(trace_of(VIT, torch.eye(len(VIT)))))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["ViT", "DINOv2 with registers", "DeiT", "LLaVA"])
def test_metrics_of_a_picture_model_are_in_their_ranges(picture_models: TinyPictureModels, family: str) -> None:
    trace = Model(
        picture_models(family), "the owl asked" if family == "LLaVA" else "", image=Image.fromarray(noise())
    ).trace()
    table = metrics.of(trace)
    far = max(math.hypot(picture.rows - 1, picture.columns - 1) for picture in trace.pictures)
    for name in ("patch distance", "near patches", "on the picture", "sink patch"):
        column = table.column(name)
        assert np.isfinite(column).all()
        assert (column >= 0).all()
        assert column.clip(max=far if name == "patch distance" else 1) == approx(column, scale=1)
    assert np.isfinite(table.column("on registers")).all() == (family == "DINOv2 with registers")
    assert np.isfinite(table.column("on words")).any() == (family == "LLaVA")
    rows = frame(trace, table, table.heads)
    assert "patch distance, on this text" in rows


def test_kinds_of_tokens_are_told_apart() -> None:
    assert [kind_of(token) for token in ("[CLS]", "[distillation]", "[register 12]", "[SEP]", "</s>", "·dog")] == [
        CLS, CLS, REGISTER, SPECIAL, SPECIAL, WORD,
    ]  # fmt: skip
    assert kind_of("[SEP]", special=("</s>",)) == WORD
    assert kind_of(NEWLINE) == kind_of(NEWLINE, special=("</s>",)) == SPECIAL
    assert kind_of(PATCHES[0]) == PATCH
