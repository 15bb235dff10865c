"""A real model of pictures, where `make models ALL=1` brought it: its attention, and that it looks where the documents say."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
import torch
from conftest import ROOT
from margins import approx
from numpy.typing import NDArray
from PIL import Image

from attention import Model
from attention.formula.names import WEIGHTS
from attention.trace.trace import Trace
from attention.vision.examples import _ODD, example_picture

FOLDER = ROOT / "models" / "dinov2-small"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="models/dinov2-small is missing: run make models ALL=1"),
]


@cache
def trace_of(name: str) -> Trace:
    return Model(str(FOLDER), image=example_picture(name)).trace()


def shares(trace: Trace, layer: int, mostly: NDArray[np.bool_]) -> list[float]:
    """Of [CLS] in each head of a layer: the weight on the patches that are mostly of these pixels."""
    patches = mostly.reshape(16, 14, 16, 14).mean((1, 3)) > 0.5
    return [float(weights[1:][patches.ravel()].sum()) for weights in trace[WEIGHTS, layer][:, 0].numpy()]


def test_weights_are_those_of_eager_attention_of_transformers() -> None:
    import transformers

    model = transformers.AutoModel.from_pretrained(FOLDER, attn_implementation="eager").eval()
    picture = Image.fromarray(example_picture("two-cats").pixels())
    with torch.no_grad():
        outputs = model(
            **transformers.AutoImageProcessor.from_pretrained(FOLDER, backend="pil")(picture, return_tensors="pt"),
            output_attentions=True,
        )
    trace = trace_of("two-cats")
    assert len(trace.layers) == 12
    for layer, expected in zip(trace.layers, outputs.attentions, strict=True):
        assert layer.weights == approx(expected[0], terms=16384)


def test_heads_look_where_the_document_says() -> None:
    document = " ".join((ROOT / "docs" / "pictures.md").read_text(encoding="utf-8").split())
    trace = trace_of("two-cats")
    rgb = trace.pictures[0].rgb.astype(int)
    wall, table = rgb[2, 2], rgb[-3, 112]  # between the cats
    cats = np.minimum(abs(rgb - wall).sum(-1), abs(rgb - table).sum(-1)) >= 30
    on_cats = shares(trace, 11, cats)
    area = float((cats.reshape(16, 14, 16, 14).mean((1, 3)) > 0.5).mean())
    said = re.search(
        r"head 2 has (\S+) of its weight on patches that are mostly cat, which are (\S+) of the picture; head 3 has (\S+) on",
        document,
    )
    assert said
    on_the_rest = 1 - on_cats[3] - float(trace[WEIGHTS, 11][3, 0, 0])
    assert [float(each) for each in said.groups()] == approx([on_cats[2], area, on_the_rest], step=0.01)

    trace = trace_of("odd-patch")
    scale = 256 / example_picture("odd-patch").height  # the processor's resizing, then its crop at the centre
    left, top, right, bottom = np.array(_ODD) * scale - np.array([(341 - 224) / 2, 16, (341 - 224) / 2, 16])
    y, x = np.mgrid[:224, :224] + 0.5
    odd = (x > left) & (x < right) & (y > top) & (y < bottom)
    said = re.search(r"head 5 of layer 10, \[CLS\] finds it among stripes: (\S+) of its weight on", document)
    assert said
    assert shares(trace, 10, odd)[5] == approx(float(said[1]), step=0.01)
