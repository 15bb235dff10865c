"""The numbers that the page computes while a knob is dragged equal torch's to 1e-6."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import script_address
from contract import variants
from margins import approx
from playwright.sync_api import Page

from attention import AttentionConfig, TypedText
from attention.formula import mask_tensor
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.pictures.live_inputs import _is_computable_in_page as known_to_the_page
from attention.pictures.live_inputs import _mask_rule
from attention.pictures.live_inputs import live_inputs as sent_live
from attention.pictures.message import Surroundings, pack
from attention.trace.attend import attend

pytestmark = pytest.mark.browser
MASKS = {
    "none": {}, "causal": {}, "window": {"window": 3}, "causal window": {"window": 2}, "prefix": {"prefix": 5}, "padding": {}, "custom": {},
}  # fmt: skip
TEMPERATURES = (0.0, 0.05, 0.35, 1.0, 10.0, float("inf"))


@pytest.fixture(scope="module")
def kernel(browser: Any, server: str) -> Any:
    page = browser.new_page()
    page.goto(f"{server}/_stcore/health")
    page.evaluate(
        "async (paths) => { window.lab = Object.assign({}, ...await Promise.all(paths.map((path) => import(path)))); }",
        [script_address(server, name) for name in ("kernel", "pooling", "live_layer", "message")],
    )
    page.evaluate(
        """() => { window.floats = (text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
            window.text = (array) => { const bytes = new Uint8Array(array.buffer); let out = '';
              for (let i = 0; i < bytes.length; i += 32768) out += String.fromCharCode(...bytes.subarray(i, i + 32768)); return btoa(out); }; }"""
    )
    yield page
    page.close()


def encoded(tensor: torch.Tensor) -> str:
    return b64encode(tensor.contiguous().numpy().tobytes()).decode()


def decoded(text: str, *shape: int) -> np.ndarray:
    return np.frombuffer(b64decode(text), np.float32).reshape(shape)


def sample_layer(n_tokens: int, mask: str = "none", temperature: float = 1.0, seed: int = 0, **knobs: Any) -> Any:
    """A layer of one head, with repeated tokens and large scores, and with hidden rows and keys for "padding" and "custom"."""
    generator = torch.Generator().manual_seed(seed)
    query, key = (2 * torch.randn(1, n_tokens, 16, generator=generator) for _ in range(2))
    key[0, -1] = key[0, 0]  # a repeated word: a tie
    if mask == "padding":
        rule = Mask("padding", real=tuple(i < n_tokens - 3 for i in range(n_tokens)))
        return attend(query, key, query, formula=Formula(divisor=4.0, temperature=temperature, mask=rule))
    if mask == "custom":
        visible = torch.rand(n_tokens, n_tokens, generator=generator) < 0.5
        visible[1] = False
    else:
        visible = AttentionConfig(mask=mask, **knobs).mask_rule.build(n_tokens, n_tokens)
    return attend(query, key, query, visible, temperature=temperature)


def in_page(page: Page, layer: Any, *turns: dict[str, Any], steps: tuple[str, ...] = ("weights",)) -> list[Any]:
    """The steps of a layer that the page computes from its packed message: at rest, and after each change of knobs."""
    encoded_steps = page.evaluate(
        """([message, turns, steps]) => {
            const bytes = Uint8Array.from(atob(message), (c) => c.charCodeAt(0)), layer = new lab.LiveLayer(lab.unpack(bytes).live);
            return [null, ...turns].map((turn) => {
              if (turn) layer.update({ ...turn, ...(turn.temperature === 'inf' && { temperature: Infinity }) });
              return steps.map((name) => { const { flat, index } = layer.step(name), wide = layer.columnsOf(name);
                return text(index ? new Float32Array(Array.from(index, (row) => [...flat.subarray(row * wide, (row + 1) * wide)]).flat()) : flat); }); }); }""",
        [b64encode(pack([], Surroundings(sent_live(layer, 0)))).decode(), list(turns), list(steps)],
    )
    return [
        [decoded(text, *layer.matrix(name).shape) for text, name in zip(texts, steps, strict=True)]
        for texts in encoded_steps
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize("mask", MASKS)
def test_kernel_softmax_equals_torch(kernel: Page, mask: str) -> None:
    for n_tokens in (2, 22, 256) if mask != "padding" else (22, 256):
        turns = [{"temperature": "inf" if np.isinf(temperature) else temperature} for temperature in TEMPERATURES]
        at_rest, *changed = in_page(kernel, sample_layer(n_tokens, mask, **MASKS[mask]), *turns)
        for (weights,), temperature in zip([at_rest, *changed], (1.0, *TEMPERATURES), strict=True):
            expected = sample_layer(n_tokens, mask, temperature, **MASKS[mask]).weights[0].numpy()
            assert weights == approx(expected, nan=True)


def test_kernel_softmax_equals_torch_at_1024_tokens(kernel: Page) -> None:
    temperatures = [0.05, 10.0]
    all_weights = in_page(
        kernel, sample_layer(1024, "causal"), *({"temperature": temperature} for temperature in temperatures)
    )
    for (weights,), temperature in zip(all_weights, (1.0, *temperatures), strict=True):
        assert weights == approx(sample_layer(1024, "causal", temperature).weights[0].numpy(), nan=True)


OWL, LINES = "the owl asked the moon", "the owl asked\nthe owl and the moon asked the owl"
CUSTOM = mask_tensor.encode(torch.rand(9, 9, generator=torch.Generator().manual_seed(3)) < 0.6)
SENT = {
    "none": TypedText(OWL),
    "causal": TypedText(OWL, AttentionConfig(mask="causal")),
    "window": TypedText(OWL, AttentionConfig(mask="window", window=1)),
    "causal window": TypedText(OWL, AttentionConfig(mask="causal window", window=2)),
    "prefix": TypedText(OWL, AttentionConfig(mask="prefix", prefix=3)),
    "padding": TypedText(LINES, AttentionConfig(mask="padding")),
    "custom": TypedText(f"{OWL} and the moon blinked", AttentionConfig(mask="custom", cells=CUSTOM)),
    "custom, made for another size": TypedText(OWL, AttentionConfig(mask="custom", cells=CUSTOM), "a b c"),
    "custom and padding": TypedText(LINES, AttentionConfig(mask="custom", cells=CUSTOM), pad=True),
    "two sides, earlier keys": TypedText(
        OWL, AttentionConfig(mask="window", window=1, window_right=2, query_offset=3), "a b c d e f g h"
    ),
    "queries before the keys": TypedText(OWL, AttentionConfig(mask="causal", query_offset=-2)),
    **{
        f"{mask}, {len(keys.split())} keys": TypedText(OWL, AttentionConfig(mask=mask, **MASKS[mask]), keys)
        for mask in ("causal", "window", "causal window", "prefix")
        for keys in ("a b c", "a b c d e f g h i j k")
    },
    **{
        f"{mask} and padding": TypedText(LINES, AttentionConfig(mask=mask, **MASKS[mask]), pad=True)
        for mask in ("causal", "window", "causal window", "prefix")
    },
}
CHANGES = [
    {"temperature": 0.05}, {"temperature": 3.7}, {"mask": "window", "window": 1}, {"mask": "none", "temperature": 1.0}, {"mask": "causal"},
    {"mask": "causal window", "window": 2}, {"temperature": 0.35}, {"mask": "prefix", "prefix": 2}, {"mask": "padding"},
]  # fmt: skip


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", SENT)
def test_kernel_masks_look_the_same_at_rest_and_while_dragging(kernel: Page, name: str) -> None:
    """The numbers are packed in Python, unpacked and computed in the page, at rest and after each change."""
    config, layer = SENT[name].config, SENT[name].trace().layers[0]
    steps = ("scaled_scores", "masked_scores", "weights", "head_output", "output")
    turns = [
        {**turn, "mask": {"kind": turn["mask"], **{size: turn.get(size, 0) for size in ("window", "prefix")}}}
        if "mask" in turn
        else turn
        for turn in CHANGES
    ]
    expected = [layer]
    for turn in CHANGES:
        config = replace(config, **turn)
        # Another mask does not change the text: padding stays, and stays hidden.
        expected.append(replace(SENT[name], config=config, pad=layer.formula.mask.real is not None).trace().layers[0])
    for matrices, expected_layer in zip(in_page(kernel, layer, *turns, steps=steps), expected, strict=True):
        for step, actual in zip(steps, matrices, strict=True):
            matrix = expected_layer.matrix(step).numpy()
            assert actual == approx(np.where(np.isneginf(matrix), np.nan, matrix), nan=True), step


VARIANTS = {
    name: knobs
    for name, knobs in variants().items()
    if known_to_the_page(TypedText("a b", AttentionConfig(**knobs)).trace().layers[0])
}
"""The variants that the page declares to know."""


@pytest.mark.parametrize("mask", [{}, {"mask": "causal"}, {"mask": "custom", "cells": CUSTOM}])
@pytest.mark.parametrize("name", VARIANTS)
def test_kernel_variants_equal_the_backend(kernel: Page, name: str, mask: dict[str, str]) -> None:
    source = TypedText(f"{OWL} and the moon blinked", AttentionConfig(**VARIANTS[name], **mask))
    layer = source.trace().layers[0]
    message = sent_live(layer, 0)
    assert message is not None
    steps = tuple(message["computable"])
    assert {"masked_scores", "weights", "output"} <= {*steps}
    expected = [layer, replace(source, config=replace(source.config, temperature=0.35)).trace().layers[0]]
    for matrices, expected_layer in zip(
        in_page(kernel, layer, {"temperature": 0.35}, steps=steps), expected, strict=True
    ):
        for step, actual in zip(steps, matrices, strict=True):
            matrix = expected_layer.matrix(step).numpy()
            assert actual == approx(np.where(np.isneginf(matrix), np.nan, matrix), nan=True), step


@pytest.mark.parametrize("positions", ["alibi", "relative"])
def test_bias_is_computed_by_the_server_and_the_page_knows(positions: str) -> None:
    assert sent_live(TypedText("a b c", AttentionConfig(positions=positions)).trace().layers[0], 0) is None


def test_custom_mask_chosen_on_the_page_waits_for_its_cells(kernel: Page) -> None:
    layer = SENT["custom"].trace().layers[0]
    at_rest, none, returned = in_page(kernel, layer, {"mask": {"kind": "none"}}, {"mask": {"kind": "custom"}})
    np.testing.assert_array_equal(at_rest, returned)
    assert not np.array_equal(at_rest, none)
    causal = SENT["causal"].trace().layers[0]
    at_rest, custom = in_page(kernel, causal, {"mask": {"kind": "custom"}})
    np.testing.assert_array_equal(at_rest, custom)


def test_kernel_scores_equal_the_backend_to_the_bit(kernel: Page) -> None:
    layer = TypedText("the owl asked the moon and the moon blinked").trace().layers[0]
    for head in range(layer.n_heads):
        text = kernel.evaluate(
            "([query, key]) => text(lab.SCORES.dot(floats(query), floats(key), 16))",
            [encoded(layer.query[head]), encoded(layer.key[head])],
        )
        np.testing.assert_array_equal(decoded(text, 9, 9), layer.scores[head].numpy())


@pytest.mark.parametrize("block", [1, 2, 3, 8])
def test_kernel_blocks_pool_the_largest_magnitude_like_the_backend(kernel: Page, block: int) -> None:
    from attention.trace.large_map import pool_blocks

    matrix = torch.randn(20, 20, generator=torch.Generator().manual_seed(1))
    rows = kernel.evaluate(
        "([matrix, block]) => lab.poolBlocks(floats(matrix), 20, block, [0, 20], [0, 20]).map((row) => Array.from(row))",
        [encoded(matrix), block],
    )
    np.testing.assert_array_equal(np.array(rows, np.float32), pool_blocks(matrix.numpy(), block, block))
    index = [
        (7 * i) % 20 for i in range(33)
    ]  # repeated rows are sent once; the window has rows 3 to 30 and columns 2 to 19
    rows = kernel.evaluate(
        "([matrix, block, index]) => lab.poolBlocks(floats(matrix), 20, block, [3, 31], [2, 20], index).map((row) => Array.from(row))",
        [encoded(matrix), block, index],
    )
    expected = pool_blocks(matrix.numpy()[index][3:31, 2:20], block, block)
    np.testing.assert_array_equal(np.array(rows, np.float32), expected)


@pytest.mark.parametrize("name", SENT)
def test_mask_is_sent_as_its_rule(name: str) -> None:
    rule = _mask_rule(SENT[name].trace().layers[0])
    assert (rule["bits"] is not None) == ("custom" in name)
    assert (rule["real"] is not None) == ("padding" in name)
