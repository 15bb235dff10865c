"""Compare with a model whose heads are changed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_changed_on_pages import (
    LINK,
    SHOWN,
    SILENT,
    around,
    embedded,
    model,  # noqa: F401  # a fixture
)
from test_pages import drawn, opened

from attention import Model
from attention.base.printed import format_number
from attention.comparison.comparison import HeadIndex, compare
from attention.patching.intervention import parse_codes


@pytest.mark.sample(1)
@pytest.mark.parametrize("options", SHOWN)
def test_comparison_is_the_same_wherever_its_link_opens(options: dict[str, str], model: Model) -> None:  # noqa: F811  # a fixture
    app = embedded("app.py", **LINK, **options, step="output", compare="interventions=1.2.zero")
    assert not app.exception
    comparison = compare(model.trace(), replace(model, interventions=(SILENT,)).trace(), "output", HeadIndex(1, 2))
    np.testing.assert_array_equal(np.asarray(drawn(app)[2]["data"][0]["z"]), comparison.matrix.numpy())
    assert around(app)["override"]["text"] == "B: Changed: L1 H2 silenced."
    assert ("editing" in {control["name"] for control in around(app)["controls"] or ()}) == (
        options == {"embed": "true"}
    )


def test_largest_difference_between_two_states_is_one_click_away(model: Model) -> None:  # noqa: F811  # a fixture
    do = "0.1.zero"
    app = opened("app.py", **{**LINK, "layer": "0"}, compare=f"interventions={do}")
    a, b = model.trace(), replace(model, interventions=parse_codes(do)).trace()
    difference = (b.layers[1].weights - a.layers[1].weights).abs().amax(dim=(1, 2))
    layer, head = 1, int(difference.argmax())
    button = app.button(key="look_at_largest")
    assert button.label == f"Largest in L{layer} H{head} ({format_number(float(difference.max()))})"
    button.click().run()
    assert not app.exception
    comparison = compare(a, b, "weights", HeadIndex(layer, head))
    np.testing.assert_array_equal(np.asarray(drawn(app)[2]["data"][0]["z"]), comparison.matrix.numpy())
    assert app.session_state["session"].state.other.texts["layer"] == "1"
    assert "look_at_largest" not in {button.key for button in app.button}
