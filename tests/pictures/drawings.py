"""Drawings of every figure from small numbers by a formula, and how they are stored.

`pictures_drawings.py` beside the tests of a room has its figures by the name of the function that makes them, and `drawings.json` what they were.
`python -m tests.pictures.drawings` stores all anew; the difference in git shows what changed on the pages.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from margins import approx

from attention import Layer, Trace
from attention.base.tokens import Patch
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.trace.trace import SeenPicture

TESTS = Path(__file__).parents[1]
_ATTENTION = TESTS.parent / "attention"
_LARGEST = 60  # numbers of an array that are stored one by one

Drawing = Callable[[], Any]
"""Makes a figure, several, or HTML."""


def numbers(*shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    """Numbers that look random, equal on every machine, with two decimals."""
    shares = np.modf(np.arange(1, np.prod(shape) + 1) * 0.6180339887)[0]
    made: np.ndarray = np.round(low + (high - low) * shares, 2).reshape(shape)
    return made


def tensor(*shape: int, low: float = -1.0, high: float = 1.0) -> torch.Tensor:
    """The same as a tensor in single precision."""
    return torch.tensor(numbers(*shape, low=low, high=high), dtype=torch.float32)


def make_trace(
    tokens: tuple[str, ...] = ("the", "owl", "<b>", "moon"), layers: int = 2, heads: int = 3, **more: Any
) -> Trace:
    """A trace with a causal mask, whose weights are multiples of a hundredth that add up to 1."""
    n = len(tokens)
    visible = torch.ones(n, n).tril()
    made = []
    for i in range(layers):
        weights = tensor(heads, n, n, low=1, high=9 + i).round() * visible
        weights = weights / weights.sum(-1, keepdim=True)
        value, scores = tensor(heads, n, 2), tensor(heads, n, n, low=-2, high=2 + i)
        recorded = {
            "query": tensor(heads, n, 2), "key": tensor(heads, n, 2, high=2), "value": value, "scores": scores,
            "masked_scores": scores.masked_fill(visible == 0, -torch.inf), "weights": weights, "head_output": weights @ value,
            "w_o": tensor(heads, 2, 4), "output": tensor(n, 4),
        }  # fmt: skip
        made.append(Layer(recorded=recorded, formula=Formula(divisor=None, mask=Mask("causal"))))
    return Trace(tokens, tuple(made), **more)


def make_picture_trace() -> Trace:
    """A trace of a picture of 2 × 3 patches, with a token before them."""
    patches = [
        Patch(0, row, column, (8 * column, 8 * row, 8 * column + 8, 8 * row + 8))
        for row in range(2)
        for column in range(3)
    ]
    rgb = numbers(16, 24, 3, low=0, high=255).astype(np.uint8)
    return make_trace(("[CLS]", *patches), pictures=(SeenPicture(rgb, 2, 3, (8, 8), "as it was", "0"),))


def rooms() -> list[str]:
    """The rooms that make figures, and are here."""
    return sorted({file.parent.name for file in TESTS.glob("*/*_drawings.py")})


def drawings(room: str) -> Mapping[str, Drawing]:
    """The drawings of a room by the name of the function that makes each, and by what else distinguishes it after a comma."""
    found: Mapping[str, Drawing] = import_module(f"{room}_drawings").DRAWINGS
    return found


def stored_file(room: str) -> Path:
    """The stored drawings of a room."""
    return TESTS / room / "drawings.json"


def builders(room: str) -> Iterator[str]:
    """The public functions of a room that return figures, or shaded tokens as HTML."""
    for file in sorted((_ATTENTION / room).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        makes_figures = re.search(
            r"^from attention\.pictures\.\w+ import [^)\n]*(\([^)]*)?\bSpec\b|^Spec = ", text, re.MULTILINE
        )
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.returns:
                returns = ast.unparse(node.returns)
                reads_figures = "Figures" in ast.unparse(node.args)  # what a user brought, for a file
                if (makes_figures and not reads_figures and re.search(r"\bSpec\b", returns)) or node.name.endswith(
                    "_html"
                ):
                    yield node.name


def stored(value: Any) -> Any:
    """A figure as it is stored: plain JSON; of a large array its shape, its corners and a weighted sum; of a picture its size and mean colour."""
    if isinstance(value, np.ndarray | torch.Tensor):
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            return stored(array.tolist())
        kept = array
        if array.size > _LARGEST:
            plain = np.where(np.isfinite(array), array, 0).astype(float).ravel()
            ends = array.ravel()[[0, array.shape[-1] - 1, -array.shape[-1], -1]]
            kept = np.array([*ends, plain.sum(), plain @ np.linspace(0, 1, plain.size), np.isfinite(array).sum()])
        return {f"{array.dtype} {' '.join(map(str, array.shape))}": stored(kept.tolist())}
    if isinstance(value, Mapping):
        return {str(key): stored(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [stored(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else str(value)
    if isinstance(value, str) and value.startswith("data:image/"):
        return _stored_picture(value)
    return value


def _stored_picture(source: str) -> list[Any]:
    from PIL import Image

    kind, _, content = source.partition(";base64,")
    pixels = np.asarray(Image.open(BytesIO(b64decode(content))).convert("RGB"))
    return [kind, *pixels.shape, round(float(pixels.mean()), 1)]


def differences(actual: Any, expected: Any, place: str = "") -> Iterator[str]:
    """What differs between two drawings, as sentences; numbers may differ by rounding."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        for key in sorted(actual.keys() | expected.keys()):
            if key not in actual or key not in expected:
                yield f"{place}.{key} is {'new' if key in actual else 'gone'}"
            else:
                yield from differences(actual[key], expected[key], f"{place}.{key}")
    elif isinstance(actual, list) and isinstance(expected, list) and len(actual) == len(expected):
        for i, pair in enumerate(zip(actual, expected, strict=True)):
            yield from differences(*pair, f"{place}[{i}]")
    elif isinstance(actual, int | float) and isinstance(expected, int | float):
        is_near = actual == approx(expected, digits=6, terms=16384)
        if not is_near:
            yield f"{place} is {actual}; stored is {expected}"
    elif actual != expected:
        yield f"{place} is {str(actual)[:300]!r}; stored is {str(expected)[:300]!r}"


def _store() -> None:
    sys.path[:0] = [str(TESTS), *(str(TESTS / room) for room in rooms())]
    for room in rooms():
        lines = [
            f"{json.dumps(name)}: {json.dumps(stored(draw()), ensure_ascii=False, sort_keys=True)}"
            for name, draw in drawings(room).items()
        ]
        stored_file(room).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    _store()
