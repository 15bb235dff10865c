"""Rules, metrics and the residual stream of tiny models that have learned something known."""

from __future__ import annotations

import math

import pytest
from margins import approx

from attention import ConfigError, Intervention
from attention.metrics import FindRule, find_heads
from attention.sources import Intervenable
from attention.training import Trained


@pytest.mark.long  # trains a model
@pytest.mark.parametrize(
    ("task", "options", "rule", "layer", "least"),
    [
        ("copy", {}, "from any to offset -1", 0, 0.99),
        ("copy", {"offset": 3}, "from any to offset -3", 0, 0.97),
        ("reverse", {"text": "abcdefghijkl"}, 'from "b" to "k"', 0, 0.97),
        ("induction", {}, "from any to offset -1", 0, 0.6),
        ("induction", {}, 'from "owl" to "asked"', 1, 0.95),
        ("induction", {"seed": 1}, 'from "owl" to "asked"', 1, 0.95),
    ],
)
def test_planted_heads_are_found(task: str, options: dict[str, object], rule: str, layer: int, least: float) -> None:
    found = find_heads(Trained(task, **options).trace(), FindRule.parse(rule))
    assert found[0].layer == layer
    assert found[0].value > least > 2 * found[0].uniform
    assert all(other.value < 0.2 for other in found[1:])


@pytest.mark.parametrize("task", ["lookup", "sort"])
def test_rule_is_undefined_between_two_texts(task: str) -> None:
    (found,) = find_heads(Trained(task, at=0).trace(), FindRule.parse("from any to any"))
    assert math.isnan(found.value)
    assert (found.queries, found.query, found.key) == (0, -1, -1)


def test_stream_of_a_trained_model_ends_in_its_logits() -> None:
    trace = Trained("induction", steps=1, interventions=(Intervention(1, ablate="zero"),)).trace()
    assert len(trace.residual) == len(trace.layers) + 1
    assert trace.residual[1] == approx(trace.residual[2])
    assert trace.final_norm(trace.residual[len(trace.layers)]) @ trace.w_u == approx(trace.logits)
    assert trace.w_e.shape[1] == trace.residual[0].shape[1]
    assert trace.logits[-1] == approx(trace.predictions[-1].all_logits)


def test_trained_model_takes_interventions_like_any_other() -> None:
    assert isinstance(Trained("reverse", steps=1), Intervenable)
    with pytest.raises(ConfigError, match="got one Intervention: write"):
        Trained("induction", interventions=Intervention(0, 1, ablate="zero"))
