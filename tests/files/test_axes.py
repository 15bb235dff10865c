"""The axes of the arrays in a file: said as they are read, named by the user, and doubted where the numbers say otherwise."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from test_code import run
from transformers import LongformerConfig, LongformerModel

from attention import AttentionError, File
from attention.base.errors import AxesError
from attention.export.program import python

RANDOM = np.random.default_rng(2)


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    weights = RANDOM.random(shape) + 0.01
    return weights / weights.sum(-1, keepdims=True)


WEIGHTS = drawn(3, 2, 4, 4)  # [layer head query key]


def opened(axes: str = "", **arrays: Any) -> File:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return File("w.npz", "", content=content.getvalue(), axes=axes)


def notes(file: File) -> str:
    return " ".join(file.trace().notes)


READ = {
    "weights [query key] = 4 × 4": {"weights": WEIGHTS[0, 0]},
    "weights [head query key] = 2 × 4 × 4": {"weights": WEIGHTS[0]},
    "weights [layer head query key] = 3 × 2 × 4 × 4": {"weights": WEIGHTS},
    "weights [layer head query key] = 6 × 12 × 9 × 9": {"attentions": drawn(6, 12, 9, 9)},
    "query [layer head query d_k] = 3 × 2 × 4 × 5, key [layer head key d_k] = 3 × 1 × 6 × 5, value [layer head key d_v] = 3 × 1 × 6 × 7": {
        "query": np.ones((3, 2, 4, 5)), "key": np.ones((3, 1, 6, 5)), "value": np.ones((3, 1, 6, 7)),
    },
    "scores [head query key] = 2 × 4 × 4, mask [query key] = 4 × 4": {"scores": WEIGHTS[0], "mask": np.eye(4)},
}  # fmt: skip


@pytest.mark.parametrize(("sentence", "arrays"), READ.items(), ids=READ)
def test_file_says_how_its_axes_were_read(sentence: str, arrays: dict[str, Any]) -> None:
    assert f"The axes were read as {sentence}; if they are others, name them in Axes" in notes(opened(**arrays))


SENTENCES = np.stack([WEIGHTS, drawn(3, 2, 4, 4)])
NAMED = {
    "layer head key query": (WEIGHTS.swapaxes(2, 3), WEIGHTS),
    "head query key layer": (WEIGHTS.transpose(1, 2, 3, 0), WEIGHTS),
    "layer query key": (WEIGHTS[:, 0], WEIGHTS[:, :1]),
    "layer batch head query key": (WEIGHTS[:, None], WEIGHTS),
    "batch=1 layer head query key": (SENTENCES, SENTENCES[1]),
    "layer=2 head query key": (WEIGHTS, WEIGHTS[2:]),
    "key head query": (WEIGHTS[0].transpose(2, 0, 1), WEIGHTS[:1]),
    "batch query key": (WEIGHTS[:1, 0], WEIGHTS[:1, :1]),
}


@pytest.mark.parametrize(("axes", "stored", "expected"), [(a, *w) for a, w in NAMED.items()], ids=NAMED)
def test_named_axes_are_brought_into_our_order(
    axes: str, stored: Any, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = opened(axes, attentions=stored)
    trace = source.trace()
    np.testing.assert_array_equal([layer["weights"] for layer in trace.layers], expected)
    assert f"by axes “{axes}”" in trace.notes[-1]
    monkeypatch.chdir(tmp_path)
    Path(source.name).write_bytes(source.content)
    np.testing.assert_array_equal(run(python(source, trace))["weights"], expected[0])
    assert File.open(source.name, axes=axes).trace().layers[0]["weights"].equal(trace.layers[0]["weights"])


def test_rows_of_queries_and_keys_have_names_too() -> None:
    q, k = RANDOM.normal(size=(2, 1, 4, 3, 5))  # [batch pos head width], as flash-attn has them
    layer = opened("batch pos head width", query=q, key=k, value=k).trace().layers[0]
    expected = torch.softmax(torch.einsum("qhd,khd->hqk", *map(torch.from_numpy, (q[0], k[0]))) / 5**0.5, -1)
    assert layer["weights"] == approx(expected)
    both = opened("head key query, pos head width", query=q[0], weights=expected.mT.numpy()).trace().layers[0]
    np.testing.assert_array_equal(both["weights"], expected)


DOUBTED = {
    "transposed": (WEIGHTS[0].swapaxes(1, 2), "every column sums to 1: the axes may be [head key query]"),
    "transposed layers": (WEIGHTS.swapaxes(2, 3), "every column sums to 1: the axes may be [layer head key query]"),
    "transposed matrix": (WEIGHTS[0, 0].T, "every column sums to 1: the axes may be [key query]"),
    "keys first": (WEIGHTS[0].transpose(2, 0, 1), "every sum along the axis read as head is 1: the axes may be [key head query]"),
    "a window": (drawn(2, 9, 3), "There are 3 keys for 9 queries; if the columns are those of a window"),
}  # fmt: skip


@pytest.mark.parametrize(("weights", "sentence"), DOUBTED.values(), ids=DOUBTED)
def test_numbers_that_say_other_axes_are_noted(weights: Any, sentence: str) -> None:
    assert sentence in notes(opened(weights=weights))


def test_ordinary_weights_are_not_doubted() -> None:
    causal = np.tril(WEIGHTS) / np.tril(WEIGHTS).sum(-1, keepdims=True)
    for weights in (WEIGHTS, causal, np.full((2, 3, 3), 1 / 3), np.eye(4), drawn(2, 3, 5)):
        assert len(opened(weights=weights).trace().notes) == 1


def test_window_of_longformer_is_put_at_its_keys() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = LongformerConfig(vocab_size=60, max_position_embeddings=80, attention_window=[4, 4], **sizes)
    model = LongformerModel(config).eval()
    with torch.no_grad():
        weights = torch.stack(
            model(torch.arange(10, 18)[None], output_attentions=True).attentions
        )  # [layer 1 head 8 5]
    assert "zeros of a window around each query" in notes(opened(weights=weights[:, 0].numpy()))
    trace = opened("layer batch head query window", weights=weights.numpy()).trace()
    near = (torch.arange(8)[:, None] - torch.arange(8)).abs() <= 2
    for layer, bands in zip(trace.layers, weights[:, 0], strict=True):
        assert torch.equal(layer["weights"] > 0, near.expand(4, -1, -1))
        assert layer["weights"].sum(-1) == approx(torch.ones(4, 8))
        assert torch.equal(layer["weights"][:, 3, 1:6], bands[:, 3])


WRONG = {
    "no names": ("foo", "axes needs the names of the axes"),
    "a name twice": ("layer layer head query key", "axes needs the names"),
    "no key": ("layer head query", "axes needs the names"),
    "one key": ("layer head query key=1", "axes needs the names"),
    "another number": ("head query key", "names 3 axes; “w.npz” has “attentions” 3 × 2 × 4 × 4"),
    "a sentence too far": ("batch=3 head query key", "has 3 on its axis batch, counted from 0; got batch=3"),
    "an even window": ("layer head query window", "has 4 columns on its axis window"),
    "rows": ("layer head pos width", "names 4 axes"),
}


@pytest.mark.parametrize(("axes", "sentence"), WRONG.values(), ids=WRONG)
def test_wrong_names_get_one_sentence(axes: str, sentence: str) -> None:
    with pytest.raises(AttentionError) as caught:
        opened(axes, attentions=WEIGHTS).memory_bytes()
    assert sentence in str(caught.value)
    assert str(caught.value).count(". ") == 0


def test_other_axes_ask_for_their_names() -> None:
    with pytest.raises(AxesError, match=r"name them in Axes \(axes= in Python\), such as “layer batch head query key”"):
        opened(layer_0=drawn(2, 2, 2, 4, 4), layer_1=drawn(2, 2, 2, 4, 4)).trace()
    with pytest.raises(
        AxesError, match="got 2 × 2 × 2 × 2 × 4 × 4: save the parts of the others as arrays of their own"
    ):
        opened(attentions=drawn(2, 2, 2, 2, 4, 4)).trace()
