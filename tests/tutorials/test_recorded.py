"""The code of the five notebooks, run under `attention.record` as they write it: the digits that they print come out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from margins import approx
from torch import Tensor, nn
from torch.nn import functional as F

import attention
from attention import AttentionError, Layer, Trace
from attention.tutorials import Notebook
from attention.tutorials.recipes import _OCEANIC, SENTENCES

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def _random_state() -> object:
    with torch.random.fork_rng(devices=[]):
        yield


def prints(actual: Tensor | None, rows: list[list[float]]) -> bool:
    """Whether a tensor rounds to printed digits, as far as all processors give the same."""
    return actual is not None and actual.float() == approx(torch.tensor(rows), step=1e-4)


def like(actual: Layer, name: str, sequence: int = 0) -> bool:
    """Whether a recorded layer has the steps of the notebook's own source."""
    expected = Notebook(name, sequence).trace().layers[0]
    steps = [step for step, _ in expected if step.name not in ("embedding", "position")]
    assert {"query", "key", "value", "scores", "weights", "head_output"} <= {step.name for step in steps}
    for step in steps:
        assert actual[step.name].double() == approx(expected[step.name].double(), terms=1024, dtype="float32")
    return all(actual[w].double() == approx(expected[w].double()) for w in ("w_q", "w_k", "w_v") if expected.has(w))


# -- 1: heatmaps, where most is written outside of any class ----------------------------------


def record_heatmaps() -> Trace:
    words = _OCEANIC.split()
    vocab = {s: i for i, s in enumerate(sorted(words))}
    with attention.record(tokens=words) as recording:
        torch.manual_seed(123)
        sentence_int = torch.tensor([vocab[s] for s in words])
        embed = torch.nn.Embedding(num_embeddings=22, embedding_dim=64)
        X = embed(sentence_int).detach()
        d = 64
        W = X @ X.T
        W2 = W / torch.sqrt(torch.tensor(d).float())
        W2 = F.softmax(W2, dim=-1)
        _ = W2 @ X
        d_q = d_k = 32
        d_v = 48
        W_Q = torch.nn.Parameter(torch.rand(d, d_q))
        W_K = torch.nn.Parameter(torch.rand(d, d_k))
        W_V = torch.nn.Parameter(torch.rand(d, d_v))
        Q, K, V = X @ W_Q, X @ W_K, X @ W_V
        W = Q @ K.T
        W = W / torch.sqrt(torch.tensor(d_q).float())
        W = F.softmax(W, dim=-1)
        _ = W @ V
        h = 4
        MW_Q = torch.nn.Parameter(torch.rand(h, d_q, d))
        MW_K = torch.nn.Parameter(torch.rand(h, d_k, d))
        MW_V = torch.nn.Parameter(torch.rand(h, d_v, d))
        stacked_inputs = X.T.repeat(h, 1, 1)
        M_Q = torch.bmm(MW_Q, stacked_inputs).permute(0, 2, 1)
        M_K = torch.bmm(MW_K, stacked_inputs).permute(0, 2, 1)
        M_V = torch.bmm(MW_V, stacked_inputs).permute(0, 2, 1)
        # The notebook ends with "your code here":
        torch.softmax(torch.bmm(M_Q, M_K.transpose(1, 2)) / math.sqrt(d_k), dim=-1) @ M_V
    return recording.trace()


def test_heatmaps_notebook_is_recorded_cell_by_cell() -> None:
    trace = record_heatmaps()
    scaled, single, heads = trace.layers
    assert trace.tokens == tuple(_OCEANIC.split())
    assert scaled.divisor == 8
    assert like(single, "heatmaps-self-attention")
    assert prints(single["w_q"][0, :2, :3], [[0.0605, 0.2699, 0.3683], [0.0440, 0.0074, 0.2083]])
    for ours, name in ((scaled, "heatmaps-scaled"), (heads, "heatmaps-multi-head")):
        theirs = Notebook(name).trace().layers[0]
        for step in ("query", "key", "value", "scores", "scaled_scores", "weights", "head_output"):
            assert ours[step] == approx(theirs[step], terms=1024)


# -- 2: the averaging trick -------------------------------------------------------------------


def test_averaging_notebook_is_recorded_with_its_printed_weights() -> None:
    torch.manual_seed(42)
    x = torch.randn(4, 8, 2)

    def average(x: Tensor) -> Tensor:
        T = 8
        tril = torch.tril(torch.ones((T, T)))
        weights = torch.zeros((T, T))
        weights = weights.masked_fill(tril == 0, float("-inf"))
        weights = torch.nn.functional.softmax(weights, dim=-1)
        return weights @ x

    (layer,) = attention.record(average, x).layers
    assert prints(layer["weights"][0, :3, :4], [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.3333, 0.3333, 0.3333, 0]])
    assert prints(layer["head_output"][0, :2], [[1.9269, 1.4873], [1.4138, -0.3091]])


@pytest.mark.parametrize("sequence", [0, 1])
def test_self_attention_of_the_averaging_notebook_is_recorded(sequence: int) -> None:
    torch.manual_seed(42)
    torch.randn(4, 8, 2)
    B, T, C = 4, 8, 32
    with attention.record(batch=sequence) as recording:
        x = torch.randn(B, T, C)
        head_size = 16
        key = nn.Linear(C, head_size, bias=False)
        query = nn.Linear(C, head_size, bias=False)
        value = nn.Linear(C, head_size, bias=False)
        k = key(x)
        q = query(x)
        weights = q @ k.transpose(-2, -1)
        weights *= head_size**-0.5
        tril = torch.tril(torch.ones((T, T)))
        weights = weights.masked_fill(tril == 0, float("-inf"))
        weights = torch.nn.functional.softmax(weights, dim=-1)
        v = value(x)
        out = weights @ v
    (layer,) = recording.trace().layers
    assert layer["head_output"][0] == approx(out[sequence].detach())
    assert layer["weights"][0] == approx(
        weights[sequence].detach()
    )  # printed are those of a later run: see test_notebooks
    assert like(layer, "averaging-self-attention", sequence)


# -- 3: numpy ---------------------------------------------------------------------------------


def test_numpy_notebook_is_recorded_once_its_arrays_are_tensors() -> None:
    rng = np.random.RandomState(42)
    words = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]])
    W_Q, W_K, W_V = (rng.randint(3, size=(3, 3)) for _ in range(3))

    def attend(words: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
        Q, K, V = words @ W_Q, words @ W_K, words @ W_V
        scores = Q @ K.T
        weights = torch.softmax(scores / K.shape[1] ** 0.5, dim=1)
        return weights @ V

    tensors = [torch.from_numpy(array).double() for array in (words, W_Q, W_K, W_V)]
    (layer,) = attention.record(attend, *tensors).layers
    assert like(layer, "numpy")
    assert layer["scores"][0].tolist() == [[8, 2, 10, 2], [4, 0, 4, 0], [12, 2, 14, 2], [10, 4, 14, 3]]
    assert prints(
        layer["head_output"][0],
        [[0.98522025, 1.74174051, 0.75652026], [0.90965265, 1.40965265, 0.5], [0.99851226, 1.75849334, 0.75998108], [0.99560386, 1.90407309, 0.90846923]],
    )  # fmt: skip

    def in_numpy() -> np.ndarray:
        Q, K, V = words @ W_Q, words @ W_K, words @ W_V
        scores = np.exp(Q @ K.transpose() / K.shape[1] ** 0.5)
        return scores / scores.sum(1, keepdims=True) @ V

    with pytest.raises(AttentionError, match="numpy"):
        attention.record(in_numpy)


# -- 4: multi-head ----------------------------------------------------------------------------


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_length: int = 5000) -> None:
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        pe = torch.zeros(max_length, d_model)
        k = torch.arange(0, max_length).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * -(math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(k * div_term)
        pe[:, 1::2] = torch.cos(k * div_term)
        self.register_buffer("pe", pe.unsqueeze(0))
        self.pe: Tensor

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.pe[:, : x.size(1)].requires_grad_(False)
        return self.dropout(x)


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model: int = 512, n_heads: int = 8, dropout: float = 0.1) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.d_key = d_model // n_heads
        self.Wq = nn.Linear(d_model, d_model)
        self.Wk = nn.Linear(d_model, d_model)
        self.Wv = nn.Linear(d_model, d_model)
        self.Wo = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        batch_size = key.size(0)
        Q, K, V = self.Wq(query), self.Wk(key), self.Wv(value)
        Q = Q.view(batch_size, -1, self.n_heads, self.d_key).permute(0, 2, 1, 3)
        K = K.view(batch_size, -1, self.n_heads, self.d_key).permute(0, 2, 1, 3)
        V = V.view(batch_size, -1, self.n_heads, self.d_key).permute(0, 2, 1, 3)
        scaled_dot_prod = torch.matmul(Q, K.permute(0, 1, 3, 2)) / math.sqrt(self.d_key)
        if mask is not None:
            scaled_dot_prod = scaled_dot_prod.masked_fill(mask == 0, -1e10)
        attn_probs = torch.softmax(scaled_dot_prod, dim=-1)
        A = torch.matmul(self.dropout(attn_probs), V)
        A = A.permute(0, 2, 1, 3).contiguous()
        A = A.view(batch_size, -1, self.n_heads * self.d_key)
        return self.Wo(A), attn_probs


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_notebook_is_recorded(training: bool, masked: bool) -> None:
    texts = [text.lower().rstrip("!.?").split(" ") for text in SENTENCES]
    stoi = {word: i for i, word in enumerate(sorted({word for text in texts for word in text}))}
    torch.manual_seed(42)
    x = nn.Embedding(len(stoi), 8)(torch.tensor([[stoi[word] for word in text] for text in texts])).detach()
    x = PositionalEncoding(d_model=8, dropout=0.1, max_length=10).eval()(x)
    net = MultiHeadAttention(8, 4).train(training)
    mask = torch.tril(torch.ones(6, 6)) if masked else None
    trace = attention.record(net, x, x, x, mask, tokens=texts[1], batch=1)
    (layer,) = trace.layers
    torch.manual_seed(1)
    output, weights = net(x, x, x, mask)
    assert trace.tokens == tuple(texts[1])
    assert layer.n_heads == 4
    assert layer["weights"] == approx(weights[1].detach())
    if not training:
        assert layer["output"] == approx(output[1].detach())
    for ours, linear in ((layer.w_q, net.Wq), (layer.w_k, net.Wk), (layer.w_v, net.Wv)):
        assert ours is not None
        assert ours.transpose(0, 1).flatten(1) == approx(linear.weight.T.detach())
    assert layer.w_o is not None
    assert layer.w_o.flatten(0, 1) == approx(net.Wo.weight.T.detach())


# -- 5: a self-attention class ----------------------------------------------------------------


class SelfAttention(nn.Module):
    def __init__(self, d_model: int = 2, row_dim: int = 0, col_dim: int = 1) -> None:
        super().__init__()
        self.W_q = nn.Linear(in_features=d_model, out_features=d_model, bias=False)
        self.W_k = nn.Linear(in_features=d_model, out_features=d_model, bias=False)
        self.W_v = nn.Linear(in_features=d_model, out_features=d_model, bias=False)
        self.row_dim = row_dim
        self.col_dim = col_dim

    def forward(self, token_encodings: Tensor) -> Tensor:
        q = self.W_q(token_encodings)
        k = self.W_k(token_encodings)
        v = self.W_v(token_encodings)
        sims = torch.matmul(q, k.transpose(self.row_dim, self.col_dim))
        scaled_sims = sims / torch.tensor(k.size(self.col_dim) ** 0.5)
        attention_percents = F.softmax(scaled_sims, dim=self.col_dim)
        return torch.matmul(attention_percents, v)


def test_the_class_of_the_last_notebook_prints_its_digits() -> None:
    encodings_matrix = torch.tensor([[1.16, 0.23], [0.57, 1.36], [4.41, -2.16]])
    torch.manual_seed(42)
    net = SelfAttention(d_model=2, row_dim=0, col_dim=1)
    trace = attention.record(net, encodings_matrix, tokens=["write", "a", "poem"])
    (layer,) = trace.layers
    assert layer.tokens == ("write", "a", "poem")
    printed = {
        "w_q": [[0.5406, -0.1657], [0.5869, 0.6496]],
        "w_k": [[-0.1549, -0.3443], [0.1427, 0.4153]],
        "w_v": [[0.6233, 0.6146], [-0.5188, 0.1323]],
        "query": [[0.7621, -0.0428], [1.1063, 0.7890], [1.1164, -2.1336]],
        "key": [[-0.1469, -0.3038], [0.1057, 0.3685], [-0.9914, -2.4152]],
        "value": [[0.6038, 0.7434], [-0.3502, 0.5303], [3.8695, 2.4246]],
        "scores": [[-0.0990, 0.0648, -0.6523], [-0.4022, 0.4078, -3.0024], [0.4842, -0.6683, 4.0461]],
        "scaled_scores": [[-0.0700, 0.0458, -0.4612], [-0.2844, 0.2883, -2.1230], [0.3424, -0.4725, 2.8610]],
        "weights": [[0.3573, 0.4011, 0.2416], [0.3410, 0.6047, 0.0542], [0.0722, 0.0320, 0.8959]],
        "head_output": [[1.0100, 1.0641], [0.2040, 0.7057], [3.4989, 2.2427]],
    }
    for name, rows in printed.items():
        assert prints(layer[name][0], rows), name
    assert like(layer, "self-attention-class")
    assert not trace.notes
    assert trace.max_weight_error is not None
    assert trace.max_weight_error == approx(0, scale=1)
    lines = " ".join(attention.explain(trace, "weights", 0, 0, 1, 2).lines)
    assert "0.0542" in lines or "0.05423" in lines
