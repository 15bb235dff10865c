"""Functions as lines of a program: bodies with other names, without docstrings, annotations and imports."""

from __future__ import annotations

from typing import Any

import pytest

from attention.formula.inline import defined, expression, inlined


def scaled(scores: Any, factor: float) -> Any:
    """The scores, times the factor.

    A docstring of several lines, with `scores` in it.
    """

    # A comment stays.
    rows = scores.sum(scores=1)  # so does this one
    return rows.scores * factor


def early(scores: Any) -> Any:
    if scores:
        return 1
    return 2


def nested(
    scores: Any,
    factor: float = 2.0,
) -> Any:
    def one(x: float) -> float:
        return x * factor

    return one(scores)


def folded(scores: Any, factor: float) -> Any:
    return max(
        scores,
        factor,
    )


def test_names_are_replaced_and_attributes_and_keywords_are_not() -> None:
    assert inlined(scaled, "made", scores="before", factor="a + b") == [
        "# A comment stays.",
        "rows = before.sum(scores=1)  # so does this one",
        "made = rows.scores * (a + b)",
    ]


@pytest.mark.parametrize(
    "text", ["2.0", "x", "x.y[0]", "math.sqrt(query.shape[-1])", "key.repeat_interleave(2, dim=0)"]
)
def test_an_operand_that_needs_no_brackets_gets_none(text: str) -> None:
    assert inlined(scaled, "made", factor=text)[-1] == f"made = rows.scores * {text}"


def test_a_function_that_returns_early_or_within_is_not_inlined() -> None:
    for function in (early, nested):
        with pytest.raises(ValueError, match=f"returns once, at its end; got {function.__name__}: use `defined`"):
            inlined(function, "made")


def test_a_definition_has_its_defaults_and_no_annotations() -> None:
    lines = defined(nested)
    assert lines[1] == "def nested(scores, factor=2.0):"
    space: dict[str, Any] = {}
    exec("\n".join(line.replace(": float", "").replace(" -> float", "") for line in lines), space)
    assert space["nested"](3.0) == 6.0


def test_an_expression_of_several_lines_stays_one() -> None:
    lines = inlined(folded, "made", scores="1", factor="2")
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    assert space["made"] == 2


def test_an_expression_is_what_a_function_of_one_line_returns() -> None:
    from attention.formula.mask_rules import window

    assert expression(window, size="3") == "(key_pos >= query_pos - 3) & (key_pos <= query_pos + 3)"
