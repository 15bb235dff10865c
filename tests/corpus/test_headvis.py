"""The numbers of a run are those of HeadVis, on the metrics that both have.

HeadVis (Anthropic, its data pipeline, and Neuronpedia's script of head metrics, 2026) adds up over all positions of all texts and divides
by their number, so the means over queries are compared. Its entropy is in nats: a query that sees n keys adds its entropy here times log n.
Its threshold for induction is 0, which leaves no weight out. A sliding window differs: HeadVis counts queries whose key is hidden, with weight 0.
"""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from margins import approx
from tiny_models import TinyModels
from torch import Tensor

from attention import Model
from attention.corpus import scan
from attention.formula.names import MASKED_SCORES, WEIGHTS
from attention.models.library import LIBRARY

TEXTS = (
    "the owl asked the moon and the moon blinked",
    "the cat sat on the mat and the cat sat",
    "a quiet harbor watched the copper moon",
    "keys and queries meet",
    "the the the",
)


def headvis(maps: list[Tensor], ids: list[tuple[str, ...]]) -> dict[str, float]:
    """The scores of a head from its maps [query_pos key_pos] and the tokens of each text."""
    n_positions = sum(len(tokens) for tokens in ids)
    induction, n_repeated = 0.0, 0
    for weights, tokens in zip(maps, ids, strict=True):
        for query, token in enumerate(tokens):
            after = [key + 1 for key in range(query) if tokens[key] == token]
            induction += sum(float(weights[query, key]) for key in after)
            n_repeated += bool(after)
    distances = [(torch.arange(len(m))[:, None] - torch.arange(len(m))).abs() for m in maps]
    return {
        "self": sum(float(m.diagonal().sum()) for m in maps) / n_positions,
        "previous": sum(float(m.diagonal(-1).sum()) for m in maps) / (n_positions - len(maps)),
        "distance": sum(float((m * d).sum()) for m, d in zip(maps, distances, strict=True)) / n_positions,
        "induction": induction / n_repeated,
    }


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", ["GPT-2", "BERT", "Llama"])
def test_means_over_queries_are_those_of_headvis(family: str, tiny: TinyModels, tmp_path: Path) -> None:
    folder = tiny(family)
    plan, _ = scan.make_plan(LIBRARY.get(str(folder)), TEXTS, chunk_size=2, controls=())
    scan.scan(plan, TEXTS, str(tmp_path))
    scan.merge(str(tmp_path))
    traces = [Model(str(folder), text).trace() for text in TEXTS]
    rows = pq.read_table(tmp_path / "heads.parquet").to_pylist()
    compared = 0
    for row in rows:
        layers = [trace.layers[row["layer"]] for trace in traces]
        maps = [layer.matrix(WEIGHTS, row["head"]).double() for layer in layers]
        expected = headvis(maps, [layer.tokens for layer in layers])
        if row["metric"] in expected:
            assert row["query_mean"] == approx(expected[row["metric"]])
            compared += 1
        elif row["metric"] == "entropy":
            total = 0.0
            for layer, weights in zip(layers, maps, strict=True):
                visible = (
                    (layer.matrix(MASKED_SCORES, row["head"]) > -math.inf).sum(-1)
                    if layer.has(MASKED_SCORES)
                    else torch.full((len(weights),), len(weights))
                )
                total += float(
                    (torch.special.entr(weights).sum(-1)[visible > 1] / visible[visible > 1].double().log()).sum()
                )
            assert row["query_mean"] == approx(total / row["queries"])
    assert compared == 4 * len({(row["layer"], row["head"]) for row in rows})
