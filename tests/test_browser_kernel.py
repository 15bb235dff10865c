"""What the page computes while a hand turns a knob is what torch computes, to 1e-6."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page

from attention import AttentionConfig, TypedText, masks
from attention.attend import attend
from attention.live import rule_of
from pages.ui import served

pytestmark = pytest.mark.browser
MASKS = {
    "none": {}, "causal": {}, "window": {"window": 3}, "causal window": {"window": 2}, "prefix": {"prefix": 5}, "padding": {}, "custom": {},
}  # fmt: skip
TEMPERATURES = (0.0, 0.05, 0.35, 1.0, 10.0, float("inf"))


@pytest.fixture(scope="module")
def kernel(browser: Any, server: str) -> Any:
    page = browser.new_page()
    page.goto(f"{server}/_stcore/health")
    page.evaluate("async (path) => { window.kernel = await import(path); }", served.script("kernel"))
    page.evaluate(
        """() => { window.floats = (text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
            window.text = (array) => { const bytes = new Uint8Array(array.buffer); let out = '';
              for (let i = 0; i < bytes.length; i += 32768) out += String.fromCharCode(...bytes.subarray(i, i + 32768)); return btoa(out); }; }"""
    )
    yield page
    page.close()


def sent(tensor: torch.Tensor) -> str:
    return b64encode(tensor.contiguous().numpy().tobytes()).decode()


def received(text: str, *shape: int) -> np.ndarray:
    return np.frombuffer(b64decode(text), np.float32).reshape(shape)


def made(n_tokens: int, mask: str = "none", temperature: float = 1.0, seed: int = 0, **knobs: Any) -> Any:
    """A layer of one head, with repeated tokens, large scores, and under "padding" and "custom" rows and keys that hide."""
    own = torch.Generator().manual_seed(seed)
    query, key = (2 * torch.randn(1, n_tokens, 16, generator=own) for _ in range(2))
    key[0, -1] = key[0, 0]  # the same word twice: a tie
    if mask == "padding":
        visible = masks.padding(n_tokens, torch.arange(n_tokens) < n_tokens - 3)
    elif mask == "custom":
        visible = torch.rand(n_tokens, n_tokens, generator=own) < 0.5
        visible[1] = False
    else:
        visible = masks.build(AttentionConfig(mask=mask, **knobs), n_tokens, n_tokens)
    return attend(query, key, query, visible, temperature=temperature)


def in_page(page: Page, layer: Any, temperature: float) -> np.ndarray:
    rule = rule_of(layer.mask, *layer.scores.shape[1:])
    mask = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in rule.items()}
    mask["bits"] = mask["bits"] and [cell for row in mask["bits"] for cell in row]
    text = page.evaluate(
        """([query, key, width, columns, mask, divisor, temperature]) => {
            const scores = kernel.dotScores(floats(query), floats(key), width);
            return text(kernel.softmax(scores, columns, mask, temperature === 'inf' ? Infinity : divisor * temperature)); }""",
        [sent(layer.query[0]), sent(layer.key[0]), 16, layer.scores.shape[2], mask, layer.divisor, "inf" if np.isinf(temperature) else temperature],
    )  # fmt: skip
    return received(text, *layer.scores.shape[1:])


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_softmax_in_the_page_is_torchs(kernel: Page, mask: str, temperature: float) -> None:
    for n_tokens in (1, 22, 256) if mask != "padding" else (22, 256):
        layer = (
            made(n_tokens, mask, temperature, **MASKS[mask])
            if n_tokens > 1 or mask != "custom"
            else made(2, mask, temperature)
        )
        np.testing.assert_allclose(in_page(kernel, layer, temperature), layer.weights[0].numpy(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.05, 1.0, 10.0])
def test_the_softmax_in_the_page_is_torchs_at_1024_tokens(kernel: Page, temperature: float) -> None:
    layer = made(1024, "causal", temperature)
    np.testing.assert_allclose(in_page(kernel, layer, temperature), layer.weights[0].numpy(), rtol=0, atol=1e-6)


def test_the_scores_in_the_page_are_the_backends_to_the_bit(kernel: Page) -> None:
    layer = TypedText("the owl asked the moon and the moon blinked").trace().layers[0]
    for head in range(layer.n_heads):
        text = kernel.evaluate(
            "([query, key]) => text(kernel.dotScores(floats(query), floats(key), 16))",
            [sent(layer.query[head]), sent(layer.key[head])],
        )
        np.testing.assert_array_equal(received(text, 9, 9), layer.scores[head].numpy())


@pytest.mark.parametrize("block", [1, 2, 3, 8])
def test_a_block_is_the_number_of_largest_size_as_the_backend_pools(kernel: Page, block: int) -> None:
    from attention.pooling import pooled

    matrix = torch.randn(20, 20, generator=torch.Generator().manual_seed(1))
    rows = kernel.evaluate(
        "([matrix, block]) => kernel.pooled(floats(matrix), 20, block, [0, 20], [0, 20]).map((row) => Array.from(row))",
        [sent(matrix), block],
    )
    np.testing.assert_array_equal(np.array(rows, np.float32), pooled(matrix.numpy(), block, block))
    index = [
        (7 * i) % 20 for i in range(33)
    ]  # rows that repeat are sent once; cut out of them, rows 3 to 30, columns 2 to 19
    rows = kernel.evaluate(
        "([matrix, block, index]) => kernel.pooled(floats(matrix), 20, block, [3, 31], [2, 20], index).map((row) => Array.from(row))",
        [sent(matrix), block, index],
    )
    expected = pooled(matrix.numpy()[index][3:31, 2:20], block, block)
    np.testing.assert_array_equal(np.array(rows, np.float32), expected)


@pytest.mark.parametrize("mask", MASKS)
def test_a_mask_is_sent_as_the_rule_that_gives_it(mask: str) -> None:
    layer = made(40, mask, **MASKS[mask])
    rule = rule_of(layer.mask, 40, 40)
    assert rule["kind"] == ("none" if mask == "padding" else mask)
    assert (rule["bits"] is not None) == (mask == "custom")
    assert (rule["real"] is not None) == (mask == "padding")
