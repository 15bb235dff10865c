"""The first screen of two states has B − A in every term, as `compare` computes it, and says why where it has none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import component_message, set_knobs, state_of_address
from test_pages import opened

from attention import AttentionConfig, Cell, Trace, TypedText
from attention.comparison.compared_screen import difference_screen, partner, why_no_difference
from attention.comparison.comparison import HeadIndex, compare, explain_difference
from attention.pictures.first_screen import About, first_screen
from attention.pictures.message_contract import Screen

pytestmark = pytest.mark.quick

TEXT = "the owl asked the moon and the moon blinked"
LONG = " ".join(f"w{i}" for i in range(150))
A, B = HeadIndex(0, 1), HeadIndex(0, 2)


def states(other: dict[str, object], text: str = TEXT) -> tuple[Trace, Trace]:
    a = TypedText(text, AttentionConfig(mask="causal"))
    return a.trace(), replace(a, config=replace(a.config, **other)).trace()


def screen(a: Trace, b: Trace, query: int, key: int) -> Screen:
    of_a = first_screen(a, Cell(0, "weights", A.head, query, key), (query, key), About("here"))
    return difference_screen(of_a, a, b, A, B)


@pytest.mark.parametrize("other", [{"temperature": 0.5}, {"mask": "none"}, {"positions": "rope"}, {"seed": 3}])
def test_every_term_is_the_difference_that_python_computes(other: dict[str, object]) -> None:
    a, b = states(other)
    shown = screen(a, b, 6, 2)
    assert [term["name"] for term in shown["terms"]] == ["match", "scale", "hide", "share", "collect"]
    for term in shown["terms"]:
        difference = compare(a, b, term["step"], A, B)
        np.testing.assert_array_equal(term["z"], difference.matrix.numpy())
        column = shown["column"] if term["name"] == "collect" else 2
        explanation = explain_difference(difference, Cell(0, term["step"], A.head, 6, column))
        assert explanation
        assert (term["shown"], term["short"]) == (explanation.displayed_value, explanation.short)
        assert term["limit"] == (difference.largest if not difference.is_identical else 1)
    np.testing.assert_array_equal(shown["compared"]["a"], a.layers[0]["weights"][1].numpy())
    np.testing.assert_array_equal(shown["compared"]["b"], b.layers[0]["weights"][2].numpy())
    query = "rotated_query" if a.layers[0].has("rotated_query") else "query"
    np.testing.assert_array_equal(shown["vectors"]["query"]["rows"], compare(a, b, query, A, B).matrix.numpy())


def test_of_many_tokens_the_chosen_row_is_whole() -> None:
    a, b = states({"temperature": 0.5}, LONG)
    shown = screen(a, b, 140, 3)
    weights = compare(a, b, "weights", A, B).matrix.numpy()
    share = next(term for term in shown["terms"] if term["name"] == "share")
    np.testing.assert_array_equal(share["row"], weights[140])
    assert shown["compared"]["a"].shape == (1, 150)
    assert shown["hidden"] is None


def test_a_step_of_another_width_is_no_term() -> None:
    a, b = states({"d_v": 4})
    assert "collect" not in {term["name"] for term in screen(a, b, 6, 2)["terms"]}


def test_other_words_have_partners_and_no_difference() -> None:
    a, b = (TypedText(text).trace().layers[0] for text in ("the owl asked", "an owl then asked"))
    assert "other words" in why_no_difference(a, b)
    assert [partner(a.tokens, b.tokens, at) for at in (1, 2, 9)] == [1, 3, None]
    assert [partner(a.tokens, b.tokens, at, "b") for at in (3, 2, -1)] == [2, None, None], "then has no partner"
    assert not why_no_difference(a, a)


@pytest.mark.slow
def test_the_switch_is_a_key_of_the_link() -> None:
    app = opened("app.py", mask="causal", compare="temperature=0.5&head=2", q="6", k="2")
    a, b = TypedText(TEXT, AttentionConfig(mask="causal")).trace(), TypedText(TEXT, AttentionConfig(mask="causal", temperature=0.5)).trace()  # fmt: skip

    def shares() -> np.ndarray:
        terms = component_message(app)["screen"]["terms"]
        return np.asarray(next(term["z"] for term in terms if term["name"] == "share"))

    np.testing.assert_array_equal(shares(), compare(a, b, "weights", other=B).matrix.numpy())
    for side, trace, head in (("A", a, 0), ("B", b, 2)):
        set_knobs(app, side=side)
        assert not app.exception
        np.testing.assert_array_equal(shares(), trace.layers[0]["weights"][head].numpy())
        assert state_of_address(app)["side"] == side
        message = component_message(app)["screen"]
        assert (message["q"], message["k"], message["compared"]["shown"]) == (6, 2, side)
        assert message["changes"] == [
            {"label": "Temperature", "before": "1.0", "after": "0.5"},
            {"label": "Head", "before": "0", "after": "2"},
        ]
    app.button(key="compare_leave").click().run()
    assert "side" not in state_of_address(app)
    assert "compared" not in component_message(app)["screen"]
