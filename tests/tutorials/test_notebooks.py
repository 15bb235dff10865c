from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT
from margins import approx
from torch import Tensor, nn
from torch.nn import functional as F

from attention import STEPS, ConfigError, Layer, Trace, explain
from attention.explanation import tables
from attention.pictures import heatmap
from attention.tutorials import NOTEBOOKS, Notebook
from attention.tutorials.recipes import _OCEANIC, RECIPES, SENTENCES

pytestmark = pytest.mark.quick

PINNED = Path(__file__).with_name("notebooks.json")
EVERY = [(name, sequence) for name in NOTEBOOKS for sequence in range(Notebook(name).n_sequences)]
PARAMETERS = ("w_q", "w_k", "w_v", "w_o")
ALL_ATTENTION = "query key value scores scaled_scores masked_scores weights head_output"
HAS = {
    "heatmaps-unscaled": "embedding input query key value scores head_output",
    "heatmaps-scaled": f"embedding input {ALL_ATTENTION}",
    "heatmaps-self-attention": f"embedding input {ALL_ATTENTION}",
    "heatmaps-multi-head": f"embedding input {ALL_ATTENTION}",
    "averaging-trick": "input value scores masked_scores weights head_output",
    "averaging-self-attention": f"input {ALL_ATTENTION}",
    "numpy": f"embedding input {ALL_ATTENTION}",
    "multi-head": f"embedding position input {ALL_ATTENTION} output",
    "self-attention-class": f"input {ALL_ATTENTION}",
}


def layer_of(name: str, sequence: int = 0) -> Layer:
    return Notebook(name, sequence).trace().layers[0]


def prints(value: Any, printed: str) -> bool:
    """Whether a value prints as in the notebook, apart from line breaks."""
    return " ".join(repr(value).split()) == " ".join(printed.split())


def same(actual: Tensor | None, expected: Tensor) -> bool:
    return actual is not None and actual.shape == expected.shape and actual == approx(expected, terms=1024)


# -- 1: heatmaps ------------------------------------------------------------------------------


def test_heatmaps_notebook_prints_its_embeddings() -> None:
    for name in NOTEBOOKS[:4]:
        x = layer_of(name)["input"]
        assert x.shape == (22, 64)
        assert prints(
            x,
            """tensor([[-1.1065,  1.2682,  0.3147,  ...,  0.4466, -0.8970,  0.1009],
            [-0.2582, -2.0407, -0.8016,  ...,  0.1132,  0.8365,  0.0285],
            [ 0.3277, -0.8331, -1.6179,  ..., -1.7984, -0.6822, -0.5191],
            ...,
            [-1.0693,  0.4660,  0.7012,  ...,  2.7196,  0.4816,  0.2409],
            [-1.4284,  0.5617,  0.7701,  ..., -1.3574, -1.1745, -0.5126],
            [ 0.5146,  0.9938, -0.2587,  ...,  1.2774, -1.4596, -2.1595]])""",
        )
        assert prints(
            x[1],
            """tensor([-0.2582, -2.0407, -0.8016, -0.8183, -1.1820, -0.2877, -0.6043,  0.6002,
            -1.4053, -0.5922, -0.2548,  1.1517, -0.0179,  0.4264, -0.7657, -0.0545,
            -1.2743,  0.4513, -0.2280,  0.9224,  0.2056, -0.4970,  0.5821,  0.2053,
            -0.3018, -0.6703, -0.6171, -0.8334,  0.4839, -0.1349,  0.2119, -0.8714,
             0.6851,  2.0024, -0.5469,  1.6014, -2.2577, -1.8009,  0.7015,  0.5703,
            -1.1766, -2.0524,  0.1132,  1.4353,  0.0883, -1.2037,  1.0964,  2.4210,
             0.1538, -0.4452,  0.5503,  0.0658,  0.6805,  1.2064,  1.6250,  0.3459,
             0.1343,  0.7662,  2.2760, -1.3255, -0.8970,  0.1132,  0.8365,  0.0285])""",
        )
        assert prints(
            x.T,
            """tensor([[-1.1065, -0.2582,  0.3277,  ..., -1.0693, -1.4284,  0.5146],
            [ 1.2682, -2.0407, -0.8331,  ...,  0.4660,  0.5617,  0.9938],
            [ 0.3147, -0.8016, -1.6179,  ...,  0.7012,  0.7701, -0.2587],
            ...,
            [ 0.4466,  0.1132, -1.7984,  ...,  2.7196, -1.3574,  1.2774],
            [-0.8970,  0.8365, -0.6822,  ...,  0.4816, -1.1745, -1.4596],
            [ 0.1009,  0.0285, -0.5191,  ...,  0.2409, -0.5126, -2.1595]])""",
        )


def test_heatmaps_notebook_prints_its_query_weights() -> None:
    assert prints(
        layer_of("heatmaps-self-attention").w_q[0],
        """tensor([[0.0605, 0.2699, 0.3683,  ..., 0.3112, 0.9992, 0.9132],
        [0.0440, 0.0074, 0.2083,  ..., 0.8483, 0.9896, 0.1457],
        [0.3154, 0.6381, 0.6555,  ..., 0.6815, 0.6295, 0.5264],
        ...,
        [0.7914, 0.1441, 0.5487,  ..., 0.1384, 0.0780, 0.5441],
        [0.0409, 0.8966, 0.1534,  ..., 0.7153, 0.6619, 0.6170],
        [0.7900, 0.6138, 0.2550,  ..., 0.8380, 0.2511, 0.0179]])""",
    )


def test_heatmaps_source_equals_the_notebook_code() -> None:
    words = _OCEANIC.split()
    vocabulary = {s: i for i, s in enumerate(sorted(words))}
    ids = [10, 2, 5, 11, 16, 21, 9, 20, 6, 14, 7, 0, 8, 12, 17, 15, 4, 19, 3, 18, 13, 1]  # as printed
    assert [vocabulary[s] for s in words] == ids
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        x = nn.Embedding(22, 64)(torch.tensor(ids)).detach()
        w_q, w_k, w_v = torch.rand(64, 32), torch.rand(64, 32), torch.rand(64, 48)
        mw_q, mw_k, mw_v = torch.rand(4, 32, 64), torch.rand(4, 32, 64), torch.rand(4, 48, 64)

    unscaled = layer_of("heatmaps-unscaled")
    w = x @ x.T
    assert torch.equal(unscaled["embedding"], x)
    assert torch.equal(unscaled["input"], x)
    assert same(unscaled["scores"][0], w)
    assert unscaled["head_output"][0] == approx(w @ x)  # numbers in the hundreds

    scaled = layer_of("heatmaps-scaled")
    w2 = F.softmax(w / torch.sqrt(torch.tensor(64).float()), dim=-1)
    assert scaled.divisor == 8
    assert same(scaled["weights"][0], w2)
    assert same(scaled["head_output"][0], w2 @ x)

    single = layer_of("heatmaps-self-attention")
    for actual, expected in ((single.w_q, w_q), (single.w_k, w_k), (single.w_v, w_v)):
        assert actual is not None
        assert torch.equal(actual[0], expected)
    weights = F.softmax((x @ w_q) @ (x @ w_k).T / math.sqrt(32), dim=-1)
    assert weights.shape == (22, 22)
    assert same(single["weights"][0], weights)
    assert same(single["head_output"][0], weights @ (x @ w_v))

    multi = layer_of("heatmaps-multi-head")
    for name, mw, rows in (("query", mw_q, 32), ("key", mw_k, 32), ("value", mw_v, 48)):
        stacked = torch.bmm(mw, x.T.repeat(4, 1, 1)).permute(0, 2, 1)
        assert stacked.shape == (4, 22, rows)
        assert same(multi[name], stacked)
    assert same(multi["query"][:, 1], mw_q @ x[1])
    exercise = F.scaled_dot_product_attention(multi["query"], multi["key"], multi["value"])
    assert same(multi["head_output"], exercise)


def test_heatmaps_labels_follow_the_sentence() -> None:
    words = _OCEANIC.split()
    assert len(words) == len(set(words)) == 22
    assert sum(word != label for word, label in zip(words, sorted(words), strict=True)) == 21  # as the note says
    for name in NOTEBOOKS[:4]:
        assert Notebook(name).trace().tokens == tuple(words)


# -- 2: the averaging trick -------------------------------------------------------------------


def test_averaging_notebook_prints_its_three_ways() -> None:
    layer = layer_of("averaging-trick")
    assert prints(
        layer["head_output"][0],
        """tensor([[ 1.9269,  1.4873],
        [ 1.4138, -0.3091],
        [ 1.1687, -0.6176],
        [ 0.8657, -0.8644],
        [ 0.5422, -0.3617],
        [ 0.3864, -0.5354],
        [ 0.2272, -0.5388],
        [ 0.1027, -0.3762]])""",
    )
    assert prints(
        layer["masked_scores"][0],
        """tensor([[0., -inf, -inf, -inf, -inf, -inf, -inf, -inf],
        [0., 0., -inf, -inf, -inf, -inf, -inf, -inf],
        [0., 0., 0., -inf, -inf, -inf, -inf, -inf],
        [0., 0., 0., 0., -inf, -inf, -inf, -inf],
        [0., 0., 0., 0., 0., -inf, -inf, -inf],
        [0., 0., 0., 0., 0., 0., -inf, -inf],
        [0., 0., 0., 0., 0., 0., 0., -inf],
        [0., 0., 0., 0., 0., 0., 0., 0.]])""",
    )
    assert prints(
        layer["weights"][0],
        """tensor([[1.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.5000, 0.5000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.3333, 0.3333, 0.3333, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.2500, 0.2500, 0.2500, 0.2500, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.2000, 0.2000, 0.2000, 0.2000, 0.2000, 0.0000, 0.0000, 0.0000],
        [0.1667, 0.1667, 0.1667, 0.1667, 0.1667, 0.1667, 0.0000, 0.0000],
        [0.1429, 0.1429, 0.1429, 0.1429, 0.1429, 0.1429, 0.1429, 0.0000],
        [0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250]])""",
    )
    assert prints(
        layer.mask.float(),
        """tensor([[1., 0., 0., 0., 0., 0., 0., 0.],
        [1., 1., 0., 0., 0., 0., 0., 0.],
        [1., 1., 1., 0., 0., 0., 0., 0.],
        [1., 1., 1., 1., 0., 0., 0., 0.],
        [1., 1., 1., 1., 1., 0., 0., 0.],
        [1., 1., 1., 1., 1., 1., 0., 0.],
        [1., 1., 1., 1., 1., 1., 1., 0.],
        [1., 1., 1., 1., 1., 1., 1., 1.]])""",
    )


@pytest.mark.parametrize("sequence", range(4))
def test_averaging_notebook_averages_every_sequence(sequence: int) -> None:
    layer = layer_of("averaging-trick", sequence)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        x = torch.randn(4, 8, 2)[sequence]
    assert torch.equal(layer["input"], x)
    loop = torch.stack([x[: time + 1].mean(dim=0) for time in range(8)])
    tril = torch.tril(torch.ones(8, 8))
    assert same(layer["head_output"][0], loop)
    assert same(layer["head_output"][0], tril / tril.sum(dim=1, keepdim=True) @ x)


def test_averaging_self_attention_equals_the_notebook_code() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)
        torch.randn(4, 8, 2)
        x = torch.randn(4, 8, 32)
        key, query, value = (nn.Linear(32, 16, bias=False) for _ in range(3))
    with torch.no_grad():
        scores = query(x) @ key(x).transpose(-2, -1) * 16**-0.5
        weights = scores.masked_fill(torch.tril(torch.ones(8, 8)) == 0, -math.inf).softmax(dim=-1)
        out = weights @ value(x)
    for sequence in range(4):
        layer = layer_of("averaging-self-attention", sequence)
        assert same(layer["weights"][0], weights[sequence])
        assert same(layer["head_output"][0], out[sequence])


def test_averaging_self_attention_prints_unscaled_weights_of_later_draws() -> None:
    # Proof of our note about the weights that the notebook prints: its own draws, 41,984
    # numbers later, give every printed digit if the scores are not divided by √16.
    generator = torch.Generator().manual_seed(42)
    torch.randn(4, 8, 2, generator=generator)
    torch.empty(41_984).uniform_(generator=generator)
    x = torch.randn(4, 8, 32, generator=generator)
    w_k, w_q = (nn.init.kaiming_uniform_(torch.empty(16, 32), a=math.sqrt(5), generator=generator).T for _ in range(2))
    mask = torch.ones(8, 8).tril().bool()
    scores = (x @ w_q) @ (x @ w_k).transpose(-2, -1)
    first, second = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)[:2]
    assert prints(
        first,
        """tensor([[1.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.8990, 0.1010, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.3339, 0.4727, 0.1934, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.4491, 0.0536, 0.3944, 0.1029, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.0218, 0.5909, 0.1793, 0.1461, 0.0619, 0.0000, 0.0000, 0.0000],
        [0.4292, 0.1283, 0.0066, 0.0170, 0.0012, 0.4177, 0.0000, 0.0000],
        [0.1479, 0.0274, 0.1908, 0.0884, 0.1558, 0.0718, 0.3179, 0.0000],
        [0.4090, 0.0620, 0.0469, 0.0045, 0.0068, 0.1389, 0.2396, 0.0923]])""",
    )
    assert prints(
        second[:5],
        """tensor([[1.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.2627, 0.7373, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.0712, 0.2229, 0.7059, 0.0000, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.4681, 0.1490, 0.3433, 0.0396, 0.0000, 0.0000, 0.0000, 0.0000],
        [0.0136, 0.1054, 0.0638, 0.4138, 0.4035, 0.0000, 0.0000, 0.0000]])""",
    )


# -- 3: numpy ---------------------------------------------------------------------------------


def test_numpy_notebook_prints_every_number() -> None:
    layer = layer_of("numpy")

    def integers(tensor: Tensor | None) -> Any:
        assert tensor is not None
        assert tensor.dtype == torch.float64
        matrix = tensor.numpy().reshape(tensor.shape[-2:])
        assert (matrix == matrix.astype(int)).all()
        return matrix.astype(int).tolist()

    assert integers(layer["input"]) == [[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert integers(layer.w_q) == [[2, 0, 2], [2, 0, 0], [2, 1, 2]]
    assert integers(layer.w_k) == [[2, 2, 2], [0, 2, 1], [0, 1, 1]]
    assert integers(layer.w_v) == [[1, 1, 0], [0, 1, 1], [0, 0, 0]]
    assert integers(layer["query"]) == [[2, 0, 2], [2, 0, 0], [4, 0, 2], [2, 1, 2]]
    assert integers(layer["key"]) == [[2, 2, 2], [0, 2, 1], [2, 4, 3], [0, 1, 1]]
    assert integers(layer["value"]) == [[1, 1, 0], [0, 1, 1], [1, 2, 1], [0, 0, 0]]
    assert integers(layer["scores"]) == [[8, 2, 10, 2], [4, 0, 4, 0], [12, 2, 14, 2], [10, 4, 14, 3]]
    weights, output = layer["weights"][0].numpy(), layer["head_output"][0].numpy()
    assert prints(weights[0], "array([0.23608986, 0.00738988, 0.74913039, 0.00738988])")
    assert prints(
        weights,
        """array([[2.36089863e-01, 7.38987555e-03, 7.49130386e-01, 7.38987555e-03],
        [4.54826323e-01, 4.51736775e-02, 4.54826323e-01, 4.51736775e-02],
        [2.39275049e-01, 7.43870015e-04, 7.59237211e-01, 7.43870015e-04],
        [8.99501754e-02, 2.81554063e-03, 9.05653685e-01, 1.58059922e-03]])""",
    )
    assert prints(output[0], "array([0.98522025, 1.74174051, 0.75652026])")
    assert prints(
        output,
        """array([[0.98522025, 1.74174051, 0.75652026],
        [0.90965265, 1.40965265, 0.5       ],
        [0.99851226, 1.75849334, 0.75998108],
        [0.99560386, 1.90407309, 0.90846923]])""",
    )


# -- 4: multi-head ----------------------------------------------------------------------------


def test_multi_head_source_equals_the_notebook_code() -> None:
    tokens = [[w.lower() for w in s.translate(str.maketrans("", "", "!.?")).split(" ")] for s in SENTENCES]
    stoi = {word: i for i, word in enumerate(sorted({w for words in tokens for w in words}))}
    assert len(stoi) == 14
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(42)  # our seed: the notebook sets none
        emb = nn.Embedding(14, 8)
        linear_q, linear_k, linear_v, linear_o = (nn.Linear(8, 8, bias=False) for _ in range(4))
    pe = torch.zeros(10, 8)
    angle = torch.arange(10).unsqueeze(1) * torch.exp(torch.arange(0, 8, 2) * -(math.log(10000.0) / 8))
    pe[:, 0::2], pe[:, 1::2] = torch.sin(angle), torch.cos(angle)
    with torch.no_grad():
        x = emb(torch.tensor([[stoi[w] for w in words] for words in tokens])) + pe[:6]
        q, k, v = (linear(x).view(3, -1, 4, 2).permute(0, 2, 1, 3) for linear in (linear_q, linear_k, linear_v))
        probs = torch.softmax(q @ k.permute(0, 1, 3, 2) / math.sqrt(2), dim=-1)
        heads = probs @ v
        output = linear_o(heads.permute(0, 2, 1, 3).contiguous().view(3, -1, 8))
    assert x.shape == (3, 6, 8)
    assert probs.shape == (3, 4, 6, 6)
    assert heads.shape == (3, 4, 6, 2)
    for sequence in range(3):
        trace = Notebook("multi-head", sequence).trace()
        layer = trace.layers[0]
        assert trace.tokens == tuple(tokens[sequence])
        assert same(layer["position"], pe[:6])
        for name, expected in (("input", x), ("query", q), ("key", k), ("value", v), ("weights", probs)):
            assert same(layer[name], expected[sequence]), name
        assert same(layer["head_output"], heads[sequence])
        assert same(layer["output"], output[sequence])
    assert trace.tokens[0] == "hello,"


# -- 5: a self-attention class ----------------------------------------------------------------


def test_self_attention_class_notebook_prints_every_number() -> None:
    layer = layer_of("self-attention-class")
    printed = {
        "input": "tensor([[ 1.1600, 0.2300], [ 0.5700, 1.3600], [ 4.4100, -2.1600]])",
        "query": "tensor([[ 0.7621, -0.0428], [ 1.1063, 0.7890], [ 1.1164, -2.1336]])",
        "key": "tensor([[-0.1469, -0.3038], [ 0.1057, 0.3685], [-0.9914, -2.4152]])",
        "value": "tensor([[ 0.6038, 0.7434], [-0.3502, 0.5303], [ 3.8695, 2.4246]])",
        "scores": "tensor([[-0.0990, 0.0648, -0.6523], [-0.4022, 0.4078, -3.0024], [ 0.4842, -0.6683, 4.0461]])",
        "scaled_scores": "tensor([[-0.0700, 0.0458, -0.4612], [-0.2844, 0.2883, -2.1230], [ 0.3424, -0.4725, 2.8610]])",
        "weights": "tensor([[0.3573, 0.4011, 0.2416], [0.3410, 0.6047, 0.0542], [0.0722, 0.0320, 0.8959]])",
        "head_output": "tensor([[1.0100, 1.0641], [0.2040, 0.7057], [3.4989, 2.2427]])",
    }
    for step, text in printed.items():
        assert prints(layer.matrix(step), text), step
    assert prints(layer.w_q[0], "tensor([[ 0.5406, -0.1657], [ 0.5869, 0.6496]])")
    assert prints(layer.w_k[0], "tensor([[-0.1549, -0.3443], [ 0.1427, 0.4153]])")
    assert prints(layer.w_v[0], "tensor([[ 0.6233, 0.6146], [-0.5188, 0.1323]])")


# -- all of them ------------------------------------------------------------------------------


def ends(tensor: Tensor) -> list[float]:
    """The first four and the last four numbers: the first and the last draws of each generator."""
    flat: list[float] = tensor.flatten().tolist()
    return [*flat[:4], *flat[-4:]]


def drawn() -> dict[str, dict[str, list[float]]]:
    """The content of `PINNED`. Rewrite the file (`json.dumps`) only if the numbers in existing links may change."""
    numbers: dict[str, dict[str, list[float]]] = {}
    for name, sequence in EVERY:
        layer = layer_of(name, sequence)
        tensors = {part: getattr(layer, part) for part in ("input", *PARAMETERS)}
        numbers[f"{name} {sequence}"] = {part: ends(tensor) for part, tensor in tensors.items() if tensor is not None}
    return numbers


def test_random_numbers_of_notebooks_are_pinned() -> None:
    pinned = json.loads(PINNED.read_text())
    current = drawn()
    assert list(current) == list(pinned)
    for name, parts in current.items():
        assert list(parts) == list(pinned[name]), name
        for part, numbers in parts.items():
            assert numbers == approx(pinned[name][part]), f"{name} {part}"


@pytest.mark.parametrize(("name", "sequence"), EVERY)
def test_notebooks_leave_global_generators_alone(name: str, sequence: int) -> None:
    def states() -> tuple[Any, ...]:
        _, keys, position, has_gauss, gauss = np.random.get_state()
        return torch.get_rng_state().tolist(), keys.tolist(), position, has_gauss, gauss, random.getstate()

    initial = states()
    trace = Notebook(name, sequence).trace()
    assert states() == initial
    torch.rand(3)  # the notebook does not depend on them either
    np.random.rand(3)
    repeated = Notebook(name, sequence).trace()
    for (step, tensor), (_, same_tensor) in zip(trace.layers[0], repeated.layers[0], strict=True):
        assert torch.equal(tensor, same_tensor), step.name


@pytest.mark.parametrize(("name", "sequence"), EVERY)
def test_notebook_steps_are_ordered_and_missing_ones_are_none(name: str, sequence: int) -> None:
    trace = Notebook(name, sequence).trace()
    assert len(trace.layers) == 1
    layer = trace.layers[0]
    assert [step.name for step, _ in layer] == HAS[name].split()
    for step in STEPS:
        assert (getattr(layer, step.name) is None) == (step.name not in HAS[name].split())
    if layer.weights is not None:
        assert layer.weights.sum(dim=-1) == approx(1)
    causal = name.startswith("averaging")
    assert (layer.mask is not None) == causal
    assert (layer.w_o is not None) == (layer.output is not None) == (name == "multi-head")
    assert not any(tensor.requires_grad for _, tensor in layer)
    assert trace.notes
    assert trace.random == (name != "averaging-trick")


def cells(layer: Layer, step: str) -> list[tuple[int, int, int]]:
    """Corners and middle of the first and the last head."""
    tensor = layer[step]
    heads = range(len(tensor)) if tensor.ndim == 3 else [0]
    rows, columns = tensor.shape[-2:]
    return [
        (head, row, column)
        for head in {heads[0], heads[-1]}
        for row in {0, 1, rows // 2, rows - 1}
        for column in {0, 1, columns // 2, columns - 1}
    ]


@pytest.mark.sample(3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "sequence"), EVERY)
def test_every_notebook_step_is_explained(name: str, sequence: int) -> None:
    trace = Notebook(name, sequence).trace()
    layer = trace.layers[0]
    for step, tensor in layer:
        largest = float(tensor[tensor.isfinite()].abs().max())
        for head, row, column in cells(layer, step.name):
            explained = explain(trace, step.name, 0, head, row, column)
            assert explained.value == float(layer.matrix(step.name, head)[row, column])
            assert explained.result == approx(explained.value, scale=max(1, largest))
            assert explained.words
            for origin in explained.came_from:
                assert origin.step in HAS[name].split()
                assert explain(trace, origin.step, 0, origin.head, origin.row, origin.column)


def test_explanation_names_the_weights_that_mix_the_values() -> None:
    unscaled = explain(Notebook("heatmaps-unscaled").trace(), "head_output")
    assert "no softmax" in unscaled.words
    assert "S^{(0)}" in unscaled.lines[0]
    assert [cell.step for cell in unscaled.came_from] == ["scores", "value"]
    softmaxed = explain(Notebook("heatmaps-scaled").trace(), "head_output")
    assert "each times its weight" in softmaxed.words
    assert "A^{(0)}" in softmaxed.lines[0]
    assert [cell.step for cell in softmaxed.came_from] == ["weights", "value"]
    projected = explain(Notebook("heatmaps-scaled").trace(), "query")
    assert "No projection" in projected.words


def test_explanation_of_scores_without_queries() -> None:
    trace = Notebook("averaging-trick").trace()
    assert "no query" in explain(trace, "scores", q=3, k=1).words
    explanation = explain(trace, "masked_scores", q=3, k=1)
    assert [cell.step for cell in explanation.came_from] == ["scores"]
    assert "S^{(0)}_{3,1}" in explanation.lines[0]
    assert explain(trace, "masked_scores", q=1, k=3).value == -math.inf
    assert explain(trace, "weights", q=3, k=1).result == 0.25


def axis_labels(trace: Trace, axis: str) -> tuple[str, ...] | None:
    names = trace.labels_of(axis)
    return names and tuple(name.replace(" ", "·") for name in names)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_step_is_drawn(name: str) -> None:
    trace = Notebook(name).trace()
    layer = trace.layers[0]
    for step, tensor in layer:
        last = layer.n_heads - 1
        figure = heatmap.heatmap(trace, step.name, head=last)
        drawn_z = np.asarray(figure.data[0].z)
        matrix = layer.matrix(step.name, last).numpy()
        assert drawn_z.shape == matrix.shape
        assert drawn_z == approx(np.where(np.isfinite(matrix), matrix, np.nan), nan=True, scale=1)
        labels = axis_labels(trace, step.row_axis)
        if labels is not None:
            ticks = tuple(figure.layout.yaxis.ticktext)
            assert all(
                full.startswith(text.rstrip("…")) for full, text in zip(labels, ticks, strict=True)
            )  # long words end in …
        assert len(heatmap.heads(trace, step.name).layout.meta["panels"]) == (len(tensor) if step.per_head else 1)
        table = tables.frame(trace, step.name, head=last)
        assert table.shape == (matrix.shape[0], matrix.shape[1] + (step.kind == "probability"))


def test_notebooks_have_names_titles_and_hashes() -> None:
    assert list(NOTEBOOKS) == list(HAS) == list(RECIPES)
    assert len({Notebook(name).title for name in NOTEBOOKS}) == len(NOTEBOOKS)
    assert len({Notebook(name, sequence) for name, sequence in EVERY}) == len(EVERY)
    counts = {name: Notebook(name).n_sequences for name in NOTEBOOKS if Notebook(name).n_sequences > 1}
    assert counts == {"averaging-trick": 4, "averaging-self-attention": 4, "multi-head": len(SENTENCES)}


def test_notebook_sequences_differ() -> None:
    for name in ("averaging-trick", "averaging-self-attention", "multi-head"):
        first, second = layer_of(name, 0), layer_of(name, 1)
        assert not torch.equal(first["input"], second["input"])
        assert not torch.equal(first["head_output"], second["head_output"])


@pytest.mark.parametrize("name", ["", "heatmaps", "Numpy", "numpy ", None, ["numpy"]])
def test_unknown_notebook_name_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError) as error:
        Notebook(name)
    assert f"got {name!r}: choose one of them" in str(error.value)
    assert all(known in str(error.value) for known in NOTEBOOKS)


@pytest.mark.parametrize(
    ("name", "sequence", "sequences"),
    [
        ("averaging-trick", 4, "the sequences 0 to 3"),
        ("averaging-trick", -1, "the sequences 0 to 3"),
        ("multi-head", 3, "the sequences 0 to 2"),
        ("numpy", 1, "only sequence 0"),
        ("averaging-trick", 1.0, "the sequences 0 to 3"),
        ("averaging-trick", True, "the sequences 0 to 3"),
        ("averaging-trick", "1", "the sequences 0 to 3"),
        ("averaging-trick", None, "the sequences 0 to 3"),
    ],
)
def test_missing_notebook_sequence_is_refused(name: str, sequence: Any, sequences: str) -> None:
    with pytest.raises(ConfigError) as error:
        Notebook(name, sequence)
    assert f"{name} has {sequences}; got {sequence!r}: choose" in str(error.value)


@pytest.mark.slow
def test_notebook_names_and_counts_need_no_torch() -> None:
    script = (
        "import sys; from attention.tutorials import NOTEBOOKS, Notebook; "
        "assert [Notebook(n).n_sequences for n in NOTEBOOKS] == [1, 1, 1, 1, 4, 4, 1, 3, 1]; "
        "assert Notebook('numpy').title; "
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
