"""The figures of circuits, each from small numbers."""

from __future__ import annotations

import numpy as np
import torch
from drawings import numbers, tensor

from attention.circuits import figures
from attention.circuits.copying import CopiedTokens, OVSpectrum, QKSpectrum, TokenEffect
from attention.circuits.direct_effects import ScoreTerms
from attention.circuits.path_patching import PathEnd, PathPatching
from attention.circuits.sweep import HeadSweep, heads_of
from attention.trace.residual_parts import EMBEDDING_PART, ROUNDING, head_part

EFFECTS = [TokenEffect(i, f"·<{i}>", float(effect)) for i, effect in enumerate(numbers(4))]
COPIED = CopiedTokens(1, 2, TokenEffect(7, "·moon", 0.5), 3, tuple(EFFECTS[:3]), tuple(EFFECTS[1:]), tensor(9))
EIGENVALUES = torch.complex(tensor(5), tensor(5, low=-0.3, high=0.3))
SPECTRUM = OVSpectrum(0, 1, EIGENVALUES, tensor(5, low=0), None, None, None)
TOKEN_SPECTRUM = OVSpectrum(0, 1, EIGENVALUES, tensor(5, low=0), 2 * EIGENVALUES, 0.25, 0.2)
BY_OFFSET = [
    QKSpectrum(0, 1, offset, True, EIGENVALUES + offset / 4, tensor(5, low=offset, high=4)) for offset in range(4)
]
HEADS = tuple(PathEnd(f"L{layer} H{head}", layer, (head,)) for layer in range(2) for head in range(2))
SOURCES = (PathEnd("embedding"), *HEADS[:2], PathEnd("L0 MLP", 0), *HEADS[2:])
PATHS = PathPatching(
    "logits", "direct", "logit of ·moon", 1.5, 0.5, numbers(6, 1), SOURCES, (PathEnd("logits"),), (2, 2)
)
INTO_QUERIES = PathPatching(
    "query",
    "direct",
    "logit of ·moon",
    1.5,
    0.5,
    np.where(numbers(6, 4) > 0.8, np.nan, numbers(6, 4)),
    SOURCES,
    HEADS,
    (2, 2),
)
PARTS = (EMBEDDING_PART, head_part(0, 0), head_part(0, 1), ROUNDING)
TERMS = ScoreTerms(tensor(4, 3).double(), PARTS, PARTS[:3], (), "·moon", "<b>")


def _sweep(high: float) -> HeadSweep:
    change, others = numbers(2, 3, high=high), numbers(2, 3, low=0)
    return HeadSweep(
        "logit of ·moon", "zero", 2.0, change, others, 0.1, ("L0 H0 = 0",), (3, 3), heads_of((3, 3)), "", -change
    )


DRAWINGS = {
    "token_bars_json": lambda: figures.token_bars_json(COPIED, True),
    "token_bars_json, lowered": lambda: figures.token_bars_json(COPIED, False),
    "eigenvalues_json": lambda: figures.eigenvalues_json(SPECTRUM),
    "eigenvalues_json, with a score": lambda: figures.eigenvalues_json(TOKEN_SPECTRUM),
    "qk_by_offset_json": lambda: figures.qk_by_offset_json(BY_OFFSET),
    "path_map_json": lambda: figures.path_map_json(PATHS, (1, 0)),
    "path_map_json, into queries": lambda: figures.path_map_json(INTO_QUERIES, None),
    "token_row_html": lambda: figures.token_row_html(["the", "<b>", "moon"], [0.5, -1.25, 0.0], 1),
    "head_relevance_json": lambda: figures.head_relevance_json([tensor(3), tensor(2)], "moon", (1, 0)),
    "score_terms_map_json": lambda: figures.score_terms_map_json(TERMS, "The score of L1 H0"),
    "head_effect_map_json": lambda: figures.head_effect_map_json(_sweep(1), (0, 2)),
    "head_effect_map_json, estimate": lambda: figures.head_effect_map_json(_sweep(1), (0, 2), "estimate"),
    "head_effect_scatter_json": lambda: figures.head_effect_scatter_json(_sweep(1), _sweep(0.5), (0, 2)),
}  # fmt: skip
