"""The computations of each notebook: one function per name, from the index of a sequence to its tokens and layer.

The draws are the notebooks' own, in their order, so the digits agree. `Notebook.trace` imports this module lazily, since it
imports torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Generator, Tensor

from attention.formula.formula import Formula
from attention.formula.functions import project
from attention.formula.mask import Mask
from attention.formula.names import EMBEDDING, INPUT, KEY, QUERY, SCORES, VALUE
from attention.formula.positions import sinusoidal
from attention.trace.attend import attend
from attention.trace.layer import Layer
from attention.tutorials.notebook_inputs import SENTENCES

_Recipe = Callable[[int], tuple[tuple[str, ...], Layer]]

# Greg Egan, "Oceanic", as the first notebook edits it.
_OCEANIC = (
    "mathematics catalogues everything not self-contradictory within its vast inventory physics "
    "is an island of structures rich enough to contain their own beholders"
)

# -- 1: heatmaps, after https://sebastianraschka.com/blog/2023/self-attention-from-scratch.html ----


def _heatmaps_unscaled(_: int) -> tuple[tuple[str, ...], Layer]:
    words, x, _rest = _oceanic()
    single_head = x[None]  # without projections there is one head, and Q = K = V = X
    recorded = {EMBEDDING: x, INPUT: x, QUERY: single_head, KEY: single_head, VALUE: single_head}
    return words, Layer(recorded=recorded, formula=Formula(divisor=None, normalizer=""))


def _heatmaps_scaled(_: int) -> tuple[tuple[str, ...], Layer]:
    words, x, _rest = _oceanic()
    return words, attend(x[None], x[None], x[None]).with_tensors(embedding=x, input=x)


def _heatmaps_self_attention(_: int) -> tuple[tuple[str, ...], Layer]:
    words, x, generator = _oceanic()
    w_q, w_k, w_v = (torch.rand(64, size, generator=generator)[None] for size in (32, 32, 48))
    return words, _self_attention(x, w_q, w_k, w_v).with_tensors(embedding=x)


def _heatmaps_multi_head(_: int) -> tuple[tuple[str, ...], Layer]:
    words, x, generator = _oceanic()
    torch.rand(64, 32 + 32 + 48, generator=generator)  # the notebook draws its single head before these four
    w_q, w_k, w_v = (torch.rand(4, size, 64, generator=generator).transpose(1, 2) for size in (32, 32, 48))
    return words, _self_attention(x, w_q, w_k, w_v).with_tensors(embedding=x)


def _oceanic() -> tuple[tuple[str, ...], Tensor, Generator]:
    """The words, their embeddings [query_pos d_model], and the generator after these draws."""
    words, generator = tuple(_OCEANIC.split()), _generator(123)
    return words, _embed(words, words, 64, generator), generator


# -- 2: the averaging trick -----------------------------------------------------------------------


def _averaging_trick(sequence: int) -> tuple[tuple[str, ...], Layer]:
    x = torch.randn(4, 8, 2, generator=_generator(42))[sequence]
    recorded = {INPUT: x, VALUE: x[None], SCORES: torch.zeros(1, 8, 8)}
    return _row_labels(8), Layer(recorded=recorded, formula=Formula(divisor=None, mask=Mask("causal")))


def _averaging_self_attention(sequence: int) -> tuple[tuple[str, ...], Layer]:
    generator = _generator(42)
    torch.randn(4, 8, 2, generator=generator)  # the notebook draws the x of its averages before this one
    x = torch.randn(4, 8, 32, generator=generator)[sequence]
    w_k, w_q, w_v = (_linear(32, 16, generator)[None] for _ in range(3))  # the notebook draws key first
    return _row_labels(8), _self_attention(x, w_q, w_k, w_v, mask=Mask("causal"))


# -- 3: numpy, after https://machinelearningmastery.com/the-attention-mechanism-from-scratch/ ------


def _numpy(_: int) -> tuple[tuple[str, ...], Layer]:
    rng = np.random.RandomState(42)
    w_q, w_k, w_v = (torch.from_numpy(rng.randint(3, size=(1, 3, 3))).double() for _ in range(3))
    x = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=torch.float64)
    words = tuple(f"word {i}" for i in range(1, 5))
    return words, _self_attention(x, w_q, w_k, w_v).with_tensors(embedding=x)


# -- 4: multi-head, after https://medium.com/@hunter-j-phillips/multi-head-attention-7924371d477a --


def _multi_head(sequence: int) -> tuple[tuple[str, ...], Layer]:
    tokens_of_sentences = [tuple(sentence.lower().rstrip("!.?").split(" ")) for sentence in SENTENCES]
    tokens, generator = tokens_of_sentences[sequence], _generator(42)
    embedding = _embed(tokens, sum(tokens_of_sentences, ()), 8, generator)
    position = sinusoidal(len(tokens), 8)
    # Head h owns the columns 2h and 2h + 1 of a projection, and those rows of W_O.
    w_q, w_k, w_v = (_linear(8, 8, generator).reshape(8, 4, 2).transpose(0, 1) for _ in range(3))
    w_o = _linear(8, 8, generator).reshape(4, 2, 8)
    layer = _self_attention(embedding + position, w_q, w_k, w_v, w_o=w_o)
    return tokens, layer.with_tensors(embedding=embedding, position=position)


# -- 5: a self-attention class --------------------------------------------------------------------


def _self_attention_class(_: int) -> tuple[tuple[str, ...], Layer]:
    generator = _generator(42)
    w_q, w_k, w_v = (_linear(2, 2, generator)[None] for _ in range(3))
    x = torch.tensor([[1.16, 0.23], [0.57, 1.36], [4.41, -2.16]])
    return _row_labels(3), _self_attention(x, w_q, w_k, w_v)


# -- shared ---------------------------------------------------------------------------------------


def _generator(seed: int) -> Generator:
    """A generator with the draws of torch after `torch.manual_seed(seed)`.

    It leaves the global generator of torch alone, and no other thread can draw from it.
    """
    return torch.Generator().manual_seed(seed)


def _embed(tokens: tuple[str, ...], words: tuple[str, ...], d_model: int, generator: Generator) -> Tensor:
    """A row per token from a table drawn like `nn.Embedding`, with one row per word of the sorted vocabulary."""
    row_of_word = {word: i for i, word in enumerate(sorted(set(words)))}
    table = torch.nn.init.normal_(torch.empty(len(row_of_word), d_model), generator=generator)
    return table[[row_of_word[token] for token in tokens]]


def _linear(d_in: int, d_out: int, generator: Generator) -> Tensor:
    """A weight drawn like `nn.Linear`, transposed to [d_in d_out]."""
    return torch.nn.init.kaiming_uniform_(torch.empty(d_out, d_in), a=math.sqrt(5), generator=generator).T


def _self_attention(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, *, mask: Mask | None = None, w_o: Tensor | None = None
) -> Layer:
    """Attention over the rows of `x`, with its projections recorded."""
    formula = Formula(divisor=math.sqrt(w_q.shape[-1]), mask=mask)
    layer = attend(project(x, w_q), project(x, w_k), project(x, w_v), w_o=w_o, formula=formula)
    return layer.with_tensors(input=x, w_q=w_q, w_k=w_k, w_v=w_v)


def _row_labels(n: int) -> tuple[str, ...]:
    """Labels for rows without words: x0, x1 and so on."""
    return tuple(f"x{i}" for i in range(n))


RECIPES: dict[str, _Recipe] = {
    "heatmaps-unscaled": _heatmaps_unscaled,
    "heatmaps-scaled": _heatmaps_scaled,
    "heatmaps-self-attention": _heatmaps_self_attention,
    "heatmaps-multi-head": _heatmaps_multi_head,
    "averaging-trick": _averaging_trick,
    "averaging-self-attention": _averaging_self_attention,
    "numpy": _numpy,
    "multi-head": _multi_head,
    "self-attention-class": _self_attention_class,
}
"""The function of each name in `notebooks.NOTEBOOKS`."""
