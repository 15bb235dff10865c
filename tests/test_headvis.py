"""Oracle: the means over queries are those that the published HeadVis script gives, computed here from its formulas.

Source: Anthropic, headvis, its data pipeline (Apache-2.0, 2026), and Neuronpedia, its script of head metrics, which implements it. The formulas are
written anew: sums over all queries of all sequences of at least two tokens, divided by the number of queries that can have the value.
Their entropy −Σ a ln a is not divided by ln n_i, as ours is, so only the unnormalised sum over the queries of one text could be equal: not compared.
Their induction zeroes weights below a threshold first; ours has none, which is their threshold 0.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from tiny_models import TinyModels
from transformers import AutoModel

from attention.corpus import scan
from attention.models.library import LIBRARY

TEXTS = (
    "the owl asked the moon and the moon blinked",
    "she sells, sea shells. The sea",
    "the cat",
    "a quiet harbor watched the copper moon; the owl asked the moon and the moon blinked twice",
    "attention is a weighted sum of a weighted sum",
)


def headvis(model: Path) -> dict[str, torch.Tensor]:
    """Each score, [layer head], from the weights that transformers returns for single texts."""
    tokenizer = LIBRARY.get(str(model)).tokenizer
    plain = AutoModel.from_pretrained(model, attn_implementation="eager").eval()
    names = "self", "previous", "distance", "induction"
    sums, counts = dict.fromkeys(names, torch.zeros(())), dict.fromkeys(names, 0)
    for text in TEXTS:
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            attentions = torch.cat(plain(ids, output_attentions=True).attentions).double()  # [layer head q k]
        n, tokens = ids.shape[1], ids[0].tolist()
        if n < 2:
            continue
        earlier = [[p for p in range(q) if tokens[p] == tokens[q]] for q in range(n)]
        of_text = {
            "self": (attentions.diagonal(dim1=-2, dim2=-1).sum(-1), n),
            "previous": (attentions.diagonal(-1, dim1=-2, dim2=-1).sum(-1), n - 1),
            "distance": ((attentions * (torch.arange(n)[:, None] - torch.arange(n)).abs()).sum((-1, -2)), n),
            "induction": (
                sum((attentions[..., q, p + 1] for q in range(n) for p in earlier[q]), torch.zeros(())),
                sum(map(bool, earlier)),
            ),
        }
        for name, (total, count) in of_text.items():
            sums[name], counts[name] = sums[name] + total, counts[name] + count
    return {name: sums[name] / counts[name] for name in names}


@pytest.mark.parametrize("family", ["GPT-2", "BERT"])
def test_means_over_queries_are_those_of_headvis(family: str, tiny: TinyModels, tmp_path: Path) -> None:
    model = tiny(family)
    expected = headvis(model)
    plan, _ = scan.make_plan(LIBRARY.get(str(model)), TEXTS, chunk_size=3, controls=())
    scan.scan(plan, TEXTS, str(tmp_path))
    scan.merge(str(tmp_path))
    rows = [row for row in pq.read_table(tmp_path / "heads.parquet").to_pylist() if row["metric"] in expected]
    assert len(rows) == sum(scores.numel() for scores in expected.values())
    for row in rows:
        score = float(expected[row["metric"]][row["layer"], row["head"]])
        assert row["query_mean"] == pytest.approx(score, abs=1e-5), row["metric"]
        assert (
            row["query_mean"] != pytest.approx(row["mean"], abs=1e-6) or row["metric"] == "induction"
        )  # texts differ in length
