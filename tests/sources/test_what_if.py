"""Overrides change the formula of any source; everything they do not name stays as in the source."""

import pytest
import torch

from attention import ConfigError, Layer, Override, Trace, find_step
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.pictures import view

pytestmark = pytest.mark.quick

TURNED = Override(mask="window", window=1, temperature=0.5, scaled=False)


def layer(**recorded: torch.Tensor) -> Layer:
    q = torch.tensor([[[1.0, 2.0], [3.0, -1.0], [0.5, 1.0]]])
    return Layer(
        tokens=("a", "b", "c"),
        recorded={"query": q, "key": q, "value": q, **recorded},
        formula=Formula(
            divisor=3.0, mask=Mask("causal", real=(True, True, False)), cap=2.0, normalizer="softmax1", own_divisor=7.0
        ),
    )


def test_knobs_outside_the_override_stay_as_in_the_source() -> None:
    base = layer()
    overridden = base.with_config(Override(mask="none", temperature=2))
    assert overridden.formula == Formula(
        divisor=3.0,
        mask=Mask("none", real=(True, True, False)),
        cap=2.0,
        normalizer="softmax1",
        own_divisor=7.0,
        temperature=2.0,
    )
    assert not overridden["mask"][:, 2].any(), "padding stays padding"
    assert overridden.with_config(Override(scaled=False)).base_formula == base.formula, (
        "every turn begins at the source's own"
    )
    assert base.with_config(Override(mask="causal")).base_formula is None, (
        "the own mask asked for by its name is the own mask"
    )


def test_only_a_new_mask_discards_the_recorded_mask() -> None:
    mask = torch.tensor([[True, False, False], [True, True, False], [False, True, True]])
    base = layer(mask=mask, head_output=torch.zeros(1, 3, 2))
    base = Layer(tokens=base.tokens, recorded=base.recorded, formula=Formula(divisor=3.0))
    warm, unmasked = base.with_config(Override(temperature=2)), base.with_config(Override(mask="none"))
    assert torch.equal(warm["mask"], mask)
    assert bool(unmasked["mask"].all())
    assert not base["head_output"].any()
    assert bool(warm["head_output"].any()), "what was recorded of the own formula is no more"
    assert view._source_mask(unmasked) == "recorded"


def test_tensors_recorded_after_the_scores_stay_recorded() -> None:
    recorded = layer(weights=torch.full((1, 3, 3), 1 / 3))
    assert recorded.overridable_knobs == ()
    assert recorded.with_config(TURNED) is recorded
    alone = Layer(tokens=("a",), recorded={"weights": torch.ones(1, 1, 1)})
    assert alone.with_config(TURNED) is alone
    assert Trace(("a",), (alone,)).with_config(TURNED).notes == ()


def test_unscaled_scores_are_divided_by_temperature_only() -> None:
    base = Layer(tokens=("a", "b", "c"), recorded=layer().recorded, formula=Formula(divisor=None))
    assert base.overridable_knobs == (
        "mask",
        "window",
        "prefix",
        "cells",
        "temperature",
        "window_right",
        "query_offset",
    )
    hidden = base.with_config(Override(scaled=False, mask="causal"))
    assert hidden.formula == Formula(divisor=None, mask=Mask("causal"))
    assert not hidden.has("scaled_scores")
    warm = base.with_config(Override(temperature=0.5))
    assert torch.equal(warm["scaled_scores"], base["scores"] * 2)
    assert warm.formula_of(find_step("scaled_scores")) == "S / temperature"
    assert view.override_line(warm, "the model's", "this head only") == (
        "What if, this head only: temperature 0.5 instead of the model's own."
    )
    assert warm.with_config(Override()).formula == base.formula, "and leads back"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({}, "The notebook's own numbers."),
        ({"temperature": 0.2}, "What if: temperature 0.2 instead of the notebook's own."),
        ({"mask": "causal", "window": 9}, "The notebook's own numbers."),
        (
            {"mask": "window", "scaled": False, "temperature": 2},
            "What if: temperature 2, scores not divided by 3 and mask window ± 2 instead of the notebook's own.",
        ),
        ({"mask": "none"}, "What if: no mask instead of the notebook's own."),
    ],
)
def test_override_is_described_in_one_line(overrides: dict[str, object], words: str) -> None:
    assert view.override_line(layer().with_config(Override(**overrides)), "the notebook's") == words


def test_override_reports_invalid_values() -> None:
    with pytest.raises(ConfigError, match=r"mask is one of own, none, causal, .*; got 'padding': choose one of them"):
        Override(mask="padding")
