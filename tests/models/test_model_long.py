"""A long text in a real model: attention for some queries at a time, the maps of one head, and an estimate in advance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from margins import approx
from test_model import CAT, OWL, RECORDED, TWO_TEXTS
from tiny_models import TinyModels

from attention import ConfigError, Intervention, Model
from attention.formula.mask import detect_mask
from attention.models import attention_call, attention_sites, forward_pass
from attention.models.library import LIBRARY, Settings


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


@pytest.fixture
def every_text_is_long(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes attention process two queries at a time; the list records the numbers of queries."""
    query_counts: list[int] = []
    monkeypatch.setattr(attention_call, "_MAX_WEIGHT_BYTES", 0)
    monkeypatch.setattr(attention_call, "BLOCK_ROWS", 2)
    monkeypatch.setattr(forward_pass, "_COMPARED_QUERIES", 2)
    eager = attention_call._eager_attention

    def counted(module: Any) -> attention_call._EagerAttention:
        def attend(module: Any, query: torch.Tensor, *args: Any, **more: Any) -> Any:
            query_counts.append(query.shape[-2])
            return eager(module)(module, query, *args, **more)

        return attend

    monkeypatch.setattr(attention_call, "_eager_attention", counted)
    return query_counts


@pytest.mark.sample(3)
@pytest.mark.parametrize("family", RECORDED)
def test_attention_by_rows_equals_attention(tiny: TinyModels, family: str, request: pytest.FixtureRequest) -> None:
    source = Model(tiny(family).name, OWL, CAT if family in TWO_TEXTS else "")
    complete = source.trace()
    assert all(site.supports_row_blocks for site in source.load_inputs()[0].sites)
    query_counts = request.getfixturevalue("every_text_is_long")
    supports_row_blocks = source.trace()
    assert max(query_counts) == 2
    for layer, other in zip(complete.layers, supports_row_blocks.layers, strict=True):
        assert layer.formula == other.formula
        for (step, tensor), (same_step, expected) in zip(layer, other, strict=True):
            assert tensor == approx(expected, terms=1024), f"{family} {step.name} {same_step.name}"


def test_changed_model_by_rows_is_unchanged_before_the_intervention(
    tiny: TinyModels, request: pytest.FixtureRequest
) -> None:
    source = Model(tiny("Llama").name, OWL)
    source.load_inputs()  # a model is tried in one piece when it is loaded
    query_counts = request.getfixturevalue("every_text_is_long")
    base, changed = source.trace(), replace(source, interventions=(Intervention(1, 0, ablate="zero"),)).trace()
    for name in ("query", "key", "value", "head_output"):
        assert torch.equal(base.layers[1][name], changed.layers[1][name])
    assert not torch.equal(base.layers[1]["output"], changed.layers[1]["output"])
    assert max(query_counts) == 2


def test_family_that_counts_its_queries_is_never_split() -> None:
    output = torch.arange(24.0).reshape(2, 3, 4)

    def of(rows: slice, more: float) -> tuple[None, torch.Tensor]:
        return None, output[:, rows] + more

    def call(more: float) -> attention_call.Call:
        values = SimpleNamespace(query=output, head_output=output, attend_rows=lambda rows: of(rows, more))
        return cast(attention_call.Call, values)

    assert attention_sites._supports_row_blocks(call(0))
    assert not attention_sites._supports_row_blocks(call(1))


def test_memory_estimate_by_rows_bounds_the_recorded_bytes(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Model(tiny("GPT-2").name, " ".join([OWL] * 7))
    trace, needs = source.trace(), source.memory_bytes()
    monkeypatch.setattr(attention_call, "_MAX_WEIGHT_BYTES", 0)
    monkeypatch.setattr(attention_call, "BLOCK_ROWS", 2)
    n_heads, length = 4, len(trace.tokens)
    assert needs - source.memory_bytes() == 4 * n_heads * (length - 2) * length * 4
    assert trace.nbytes < source.memory_bytes()
    assert replace(source, interventions=(Intervention(0, 0, ablate="zero"),)).memory_bytes() == needs, (
        "changed heads are recorded completely"
    )
    with pytest.raises(ConfigError, match="or allow more"):
        replace(source, max_bytes=source.memory_bytes() - 1).trace()


@pytest.mark.parametrize(
    "visible", [[[0, 0], [0, 0]], [[1, 0, 0], [1, 1, 0], [1, 1, 1]], [[1, 1, 0], [1, 1, 1], [0, 1, 1]]]
)
def test_mask_rule_is_recognized(visible: list[list[int]]) -> None:
    cells = torch.tensor(visible, dtype=torch.bool)
    rule = detect_mask(cells)
    if isinstance(rule, torch.Tensor):
        assert not cells.any()
    else:
        assert torch.equal(rule.build(*cells.shape), cells)
        assert rule.kind != "none"
