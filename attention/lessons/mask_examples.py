"""The mask that users click, and the demonstrations of the chapter on masks: a row without visible keys, and averaging as a masked softmax. All computed live."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention.base.tokens import label
from attention.explanation import tables
from attention.formula import mask_tensor
from attention.formula.names import INPUT, MASKED_SCORES, OUTPUT, SCALED_SCORES, SCORES, VALUE, WEIGHTS, Cell
from attention.formula.normalizers import NORMALIZERS
from attention.trace.layer import Layer

if TYPE_CHECKING:
    from attention.trace.trace import Trace


_SCORES = (SCALED_SCORES, SCORES, MASKED_SCORES)


def hide_query(visible: Tensor, query_pos: int) -> str:
    """The mask with every key hidden from one query, in the encoding of `attention.formula.mask_tensor.encode`."""
    changed = visible.clone()
    changed[query_pos] = False
    return mask_tensor.encode(changed)


def visible_cells(trace: Trace, layer: int = 0, head: int = 0) -> Tensor:
    """The visible cells of a head, boolean [query_pos key_pos]; all of them if there is no mask."""
    return trace.layer(layer).visible_cells(head)


def grid(trace: Trace, layer: int = 0, head: int = 0) -> pd.DataFrame:
    """The mask as a table of checkboxes, one row per query and one column per key, for editing by keyboard."""
    query_names, key_names = (
        [f"{position} {label(token, escape=False)}" for position, token in enumerate(tokens)]
        for tokens in (trace.layer(layer).tokens, trace.layer(layer).key_tokens)
    )
    return pd.DataFrame(visible_cells(trace, layer, head).numpy(), index=query_names, columns=key_names)


def table(trace: Trace, layer: int = 0, head: int = 0, start: int = 0, stop: int | None = None) -> pd.DataFrame:
    """The mask and its effect in one head, with a row for each cell: query, key, whether it may attend, score and weight.

    Returns the rows from `start` up to, not including, `stop`.
    """
    source = trace.layer(layer)
    steps = [step for step in (MASKED_SCORES, WEIGHTS) if source.has(step)]
    rows = tables.long_frame(trace, steps or [SCORES], layer, (head,), start, stop).drop(columns="head")
    n_names = rows.shape[1] - len(steps or [SCORES])  # the query, the key, and the places of patches
    rows.insert(n_names, "may attend", visible_cells(trace, layer, head).flatten().numpy()[start:][: len(rows)])
    return rows


def encode_table(ticks: pd.DataFrame) -> str:
    """The mask of a table of checkboxes, in the encoding of `attention.formula.mask_tensor.encode`."""
    return mask_tensor.encode(torch.tensor(ticks.to_numpy(dtype=bool)))


def hidden_row_table(scores: Tensor) -> pd.DataFrame:
    """The result of six ways of masking for a query without any visible key: its weights, their sum, the outcome.

    Args:
        scores: the scaled scores of that query [key_pos]; they should not all be equal.
    """
    n_keys = len(scores)
    scores = scores.float()
    no_visible = torch.zeros(n_keys, dtype=torch.bool)
    filled = {
        "softmax of −∞, directly": torch.softmax(torch.full_like(scores, -math.inf), dim=-1),
        "−1e10 instead of −∞ (notebook 4)": torch.softmax(scores.masked_fill(~no_visible, -1e10), dim=-1),
        "−10000 added (older BERT code)": torch.softmax(scores - 10_000, dim=-1),
        "torch scaled_dot_product_attention": _sdpa(scores, no_visible),
        "torch nn.MultiheadAttention": _multihead(scores, no_visible),
        "Attention Lab": NORMALIZERS["softmax"].weights(scores.masked_fill(~no_visible, -math.inf)),
    }
    unmasked = torch.softmax(scores, dim=-1)
    return pd.DataFrame(
        [
            {
                "hidden by": how,
                "outcome": _outcome(row, unmasked),
                "weights of the row": "  ".join(f"{weight:.4f}" for weight in row.tolist()[:6])
                + (" …" if n_keys > 6 else ""),
                "sum": f"{float(row.sum()):.4f}",
            }
            for how, row in filled.items()
        ]
    )


def _sdpa(scores: Tensor, visible: Tensor) -> Tensor:
    """The weights of torch's function: with the identity as values, its output equals the weights."""
    n_keys = len(scores)
    query = torch.ones(1, 1, 1)
    weights: Tensor = F.scaled_dot_product_attention(
        query, scores.view(1, n_keys, 1), torch.eye(n_keys)[None], attn_mask=visible.view(1, 1, n_keys), scale=1.0
    )
    return weights[0, 0]


def _multihead(scores: Tensor, visible: Tensor) -> Tensor:
    """The weights of torch's module; its mask means the opposite, True = hidden."""
    module = nn.MultiheadAttention(1, 1, bias=False)
    with torch.no_grad():
        module.in_proj_weight.fill_(1.0)
        _, weights = module(torch.ones(1, 1), scores[:, None], scores[:, None], attn_mask=~visible[None])
    row: Tensor = weights[0]
    return row


def _outcome(row: Tensor, unmasked: Tensor) -> str:
    if row.isnan().any():
        return "NaN, and so is everything computed from it"
    if not row.any():
        return "zeros: this query takes nothing, and its output is 0"
    if torch.allclose(row, torch.full_like(row, 1 / len(row)), atol=1e-6):
        return "silently uniform: it attends equally to every hidden key"
    if torch.allclose(row, unmasked, atol=1e-3):
        return "as if nothing were hidden: it attends to every hidden key"
    return "something else: it attends to hidden keys"


def has_scores(layer: Layer) -> bool:
    """Whether the layer has scores; a source may have recorded weights alone."""
    return any(layer.has(name) for name in _SCORES)


def scores_of(layer: Layer, cell: Cell) -> Tensor:
    """The scaled scores of the chosen cell's query [key_pos]: the input of a softmax without a mask."""
    name = next(name for name in _SCORES if layer.has(name))
    rows = layer.matrix(name, cell.head)
    row: Tensor = rows[min(cell.row, len(rows) - 1)]
    return row


class _Averages(NamedTuple):
    """The running average of the rows of X, computed in three ways [query_pos d_model], and the weights [query_pos key_pos]."""

    loop: Tensor
    triangle: Tensor
    softmax: Tensor
    weights: Tensor

    @property
    def difference(self) -> float:
        """The largest difference between any two of the three results."""
        pairs = ((self.loop, self.triangle), (self.loop, self.softmax), (self.triangle, self.softmax))
        return max(float((first - second).abs().max()) for first, second in pairs)


def averages(x: Tensor) -> _Averages:
    """Each row of X [query_pos d_model] averaged with all rows before it: a loop, a triangular matrix, a masked softmax.

    Source: A. Karpathy, "Let's build GPT: from scratch, in code, spelled out" (the averaging trick).
    """
    size = len(x)
    loop = torch.stack([x[: position + 1].mean(dim=0) for position in range(size)])
    ones = torch.ones(size, size, dtype=x.dtype).tril()
    triangle = (ones / ones.sum(dim=1, keepdim=True)) @ x
    zeros = torch.zeros(size, size, dtype=x.dtype)
    weights = NORMALIZERS["softmax"].weights(zeros.masked_fill(~mask_tensor.causal(size, size), -math.inf))
    return _Averages(loop, triangle, weights @ x, weights)


def has_rows(layer: Layer) -> bool:
    """Whether the layer has rows to average: inputs or values."""
    return layer.has(INPUT) or layer.has(VALUE)


def averaging_traces(trace: Trace, layer: int = 0) -> tuple[_Averages, dict[str, Trace]]:
    """The averaging trick on the rows of a trace: the numbers, and a trace to draw for each of the three computations."""
    source = trace.layer(layer)
    x, tokens = (source[INPUT], source.tokens) if source.has(INPUT) else (source.matrix(VALUE), source.key_tokens)
    result = averages(x)
    results = {"loop": result.loop, "triangular matrix": result.triangle, "masked softmax": result.softmax}
    return result, {
        name: replace(trace, tokens=tokens, key_tokens=tokens, layers=(Layer(recorded={OUTPUT: rows}),))
        for name, rows in results.items()
    }
