"""Masks that somebody else made, in files and typed matrices: what their numbers mean, and which axes they have."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from safetensors.torch import save
from test_code import run
from torch.nn.functional import scaled_dot_product_attention

from attention import AttentionConfig, AttentionError, File, Matrices
from attention.base.knobs import Limits
from attention.export.program import python
from attention.files.given_mask import GivenMask, MaskSizes
from attention.files.matrix_text import parse_matrix
from attention.formula.override import Override
from attention.sources.registry import source_of

pytestmark = pytest.mark.quick

RANDOM = np.random.default_rng(1)
Q, K, V = (RANDOM.normal(size=(2, 3, 4)) for _ in "qkv")  # [head pos width]
SCORES = Q @ K.transpose(0, 2, 1) / 2
CAUSAL = np.tril(np.ones((3, 3), dtype=bool))
INF = math.inf


def opened(mask: Any, **more: Any) -> File:
    content = io.BytesIO()
    np.savez(content, query=Q, key=K, value=V, mask=mask)
    return File("m.npz", "", content=content.getvalue(), **more)


def typed(mask: Any, **more: Any) -> Matrices:
    return Matrices(*[()] * 5, *map(tuples, (Q, K, V)), mask=tuples(np.asarray(mask)), **more)


def tuples(array: np.ndarray[Any, Any]) -> Any:
    return tuple(map(tuples, array)) if array.ndim else array.item()


def softmax(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return torch.softmax(torch.from_numpy(scores), -1).numpy()


def additive(hidden: float, dtype: type[Any] = np.float64) -> np.ndarray[Any, Any]:
    return np.where(CAUSAL, 0, hidden).astype(dtype)


LOWEST = [np.finfo(np.float32).min, np.finfo(np.float64).min, -65504, -1e4, -1e9, -10000.0]
ADDED = {
    **{f"hidden by {number:g}": additive(number) for number in [-INF, *LOWEST, -100.0]},
    "halves": additive(-65504, np.float16),
    "ALiBi": -0.5 * np.abs(np.subtract.outer(np.arange(3), np.arange(3))),
    "ALiBi, causal": additive(-INF) - 0.25 * np.subtract.outer(np.arange(3), np.arange(3)),
    "positive numbers": np.arange(9.0).reshape(3, 3),
    "a bias of each head": RANDOM.normal(size=(2, 3, 3)),
    "logarithms": np.log(RANDOM.random((3, 3))),
    "rows that everything hides": np.where(CAUSAL, 0, -1e9) + np.array([[0], [0], [-1e9]]),
    "zeros": np.zeros((3, 3)),
    "a row of keys": np.array([0, -1e4, 0]),
    "a sentence": additive(-1e9)[None, None],
    "heads": np.stack([additive(-INF), np.zeros((3, 3))]),
}
KEPT = {
    "truth": CAUSAL,
    "numbers": CAUSAL.astype(np.float32),
    "integers": CAUSAL.astype(np.int64),
    "each head": np.stack([CAUSAL, CAUSAL.T]),
    "padding": np.array([True, True, False]),
    "a sentence's padding": np.array([[1, 0, 1]]),
    "an extended mask": np.array([1.0, 0.0, 1.0])[None, None, None],
}


@pytest.mark.parametrize("source", [opened, typed])
@pytest.mark.parametrize("mask", ADDED.values(), ids=ADDED)
def test_numbers_of_a_mask_are_added_to_the_scores(mask: np.ndarray[Any, Any], source: Any) -> None:
    if source is typed and mask.ndim == 4:
        mask = mask[0, 0]
    trace, mask = source(mask).trace(), mask.astype(np.float64)
    expected = softmax(SCORES + mask.reshape(mask.shape[-3:]))
    assert trace.layers[0]["weights"] == approx(expected, dtype="float32" if mask.min() == -2e9 else "float64")
    assert "added to the scores" in " ".join(trace.notes)


@pytest.mark.parametrize("source", [opened, typed])
@pytest.mark.parametrize("mask", KEPT.values(), ids=KEPT)
def test_one_keeps_a_key_as_in_torch(mask: np.ndarray[Any, Any], source: Any) -> None:
    if source is typed and mask.ndim == 4:
        mask = mask[0, 0]
    trace = source(mask).trace()
    whole = (
        torch.from_numpy(mask != 0).expand(2, 3, 3) if mask.ndim < 4 else torch.from_numpy(mask != 0)[0].expand(2, 3, 3)
    )
    expected = scaled_dot_product_attention(*map(torch.from_numpy, (Q, K, V)), attn_mask=whole)
    assert trace.layers[0]["head_output"] == approx(expected)
    has_note = any("keeps a key, as in a tokenizer's" in note for note in trace.notes)
    assert has_note == (mask.dtype != bool)


@pytest.mark.parametrize("source", [opened, typed])
def test_unseeing_query_gets_a_note_about_the_opposite(source: Any) -> None:
    module = torch.nn.MultiheadAttention(4, 1, batch_first=True).eval()
    notes = " ".join(source(~CAUSAL).trace().notes)
    assert "True keeps a key, and 1 query sees no key at all. nn.MultiheadAttention means the opposite" in notes
    layer = source(~CAUSAL, mask_means="hide").trace().layers[0]
    _, weights = module(*[torch.randn(1, 3, 4)] * 3, attn_mask=torch.from_numpy(~CAUSAL))
    assert torch.equal(layer["weights"][0] > 0, weights[0] > 0)
    assert layer["weights"] == approx(softmax(SCORES + additive(-INF)))
    kept = source(CAUSAL.astype(float), mask_means="add").trace().layers[0]
    assert kept["weights"] == approx(softmax(SCORES + CAUSAL))


def test_masks_are_the_same_in_every_format() -> None:
    tensors = {"query": torch.from_numpy(Q), "key": torch.from_numpy(K), "mask": torch.from_numpy(additive(-INF))}
    text = json.dumps({name: tensor.tolist() for name, tensor in tensors.items()})
    expected = softmax(SCORES + additive(-INF))
    for name, content in (("m.safetensors", save(tensors)), ("m.json", text.encode())):
        assert File.of(name, content).trace().layers[0]["weights"] == approx(expected)
    rows = "0,1;1,0;1,1"
    link = {"source": "matrices", "matrix_kind": "Q, K and V", "query": rows, "key": rows, "value": "1;2;3"}
    link["attn_mask"] = "0,-inf,-inf;0,0,-inf;0,0,0"
    source, notes = source_of(link, Limits(tokens=10, characters=99, d_model=10, heads=4, trace_mb=10))
    assert source.trace().layers[0]["weights"][0, 0].tolist() == [1, 0, 0]
    assert not notes
    assert parse_matrix("tensor([[ True, False],\n        [True, True]])", "mask") == ((1, 0), (1, 1))


def test_layers_and_sentences_have_their_own_masks() -> None:
    content = io.BytesIO()
    masks = np.stack([CAUSAL, CAUSAL.T])[:, None]  # [layer 1 query key]
    np.savez(content, query=Q[:, None], key=K[:, None], mask=masks)
    trace = File.of("m.npz", content.getvalue()).trace()
    assert [layer["mask"].tolist() for layer in trace.layers] == masks[:, 0].tolist()
    assert "mask [layer head query key] = 2 × 1 × 3 × 3" in trace.notes[0]
    sizes = MaskSizes(None, 2, 3, 3)
    repeated = GivenMask.of(
        torch.from_numpy(np.tile(CAUSAL, (4, 1, 1))), sizes
    )  # two sentences of nn.MultiheadAttention
    assert repeated.axes == "batch · head query key"
    np.testing.assert_array_equal(repeated.of_layer(0).visible, CAUSAL)


WRONG = {
    "NaN": (np.where(CAUSAL, 0, math.nan), "got nan at [0, 1]"),
    "infinity": (np.where(CAUSAL, 0, INF), "got inf at [0, 1]"),
    "two sentences": (np.stack([CAUSAL, CAUSAL.T])[:, None], "that of 2 sentences; the scores are of one"),
    "heads of two sentences": (np.stack([CAUSAL, CAUSAL, CAUSAL.T, CAUSAL]), "such as mask[:2]"),
    "another length": (np.ones((4, 4)), "the scores are [head query key] = 2 × 3 × 3"),
    "one number too few": (np.ones((2,)), "the scores are [head query key] = 2 × 3 × 3"),
}


@pytest.mark.parametrize(("mask", "sentence"), WRONG.values(), ids=WRONG)
def test_mask_that_does_not_fit_gets_one_sentence(mask: Any, sentence: str) -> None:
    with pytest.raises(AttentionError) as caught:
        opened(mask).trace()
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")


def test_row_that_everything_hides_is_only_shifted() -> None:
    trace = opened(ADDED["rows that everything hides"]).trace()
    assert "hides nothing, since all are shifted" in trace.notes[-1]
    assert trace.layers[0]["weights"][:, 2] == approx(softmax(SCORES)[:, 2], dtype="float32")


def test_unknown_meaning_is_refused_with_the_known_ones() -> None:
    with pytest.raises(AttentionError, match="one of numbers, keep, hide, add; got 'x'"):
        opened(CAUSAL, mask_means="x").trace()


@pytest.mark.parametrize(
    "mask", [CAUSAL, KEPT["each head"], ADDED["ALiBi"], ADDED["heads"], additive(-1e9)[None] * [[[1]], [[2]]]]
)
def test_copied_programs_have_the_mask(mask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for source in (opened(mask), typed(mask)):
        if isinstance(source, File):
            Path(source.name).write_bytes(source.content)
        trace = source.trace()
        weights = run(python(source, trace))["weights"]
        assert weights == approx(trace.layers[0]["weights"])


def test_knob_of_the_mask_hides_beside_typed_matrix() -> None:
    layer = typed(CAUSAL, config=AttentionConfig(mask="window", window=1)).trace().layers[0]
    expected = softmax(SCORES + additive(-INF) + np.where(np.eye(3, k=-2), -INF, 0))
    assert layer["weights"] == approx(expected)
    replaced = opened(CAUSAL, config=Override(mask="none")).trace().layers[0]
    assert replaced["weights"] == approx(softmax(SCORES))
