"""Functions inlined as lines of a program: with other names, without docstrings, annotations and imports."""

from __future__ import annotations

from typing import Any

import pytest

from attention.formula.inline import defined, expression, inlined

pytestmark = pytest.mark.quick


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


def nested(scores: Any, factor: float = 2.0) -> Any:
    def one(x: float) -> float:
        return x * factor

    return one(scores)


def folded(scores: Any, factor: float) -> Any:
    return max(scores, factor)


def test_inlining_replaces_names_but_not_attributes_or_keywords() -> None:
    assert inlined(scaled, "made", scores="before", factor="a + b") == [
        "# A comment stays.",
        "rows = before.sum(scores=1)  # so does this one",
        "made = rows.scores * (a + b)",
    ]


@pytest.mark.parametrize(
    "text", ["2.0", "x", "x.y[0]", "math.sqrt(query.shape[-1])", "key.repeat_interleave(2, dim=0)"]
)
def test_inlining_adds_no_needless_brackets(text: str) -> None:
    assert inlined(scaled, "made", factor=text)[-1] == f"made = rows.scores * {text}"


def test_function_with_early_or_nested_return_is_not_inlined() -> None:
    for function in (early, nested):
        with pytest.raises(
            ValueError, match=f"has no blocks, and returns once, at its end; got {function.__name__}: use `defined`"
        ):
            inlined(function, "made")


def test_copied_definition_has_defaults_but_no_annotations() -> None:
    lines = defined(nested)
    assert lines[1] == "def nested(scores, factor=2.0):"
    space: dict[str, Any] = {}
    exec("\n".join(line.replace(": float", "").replace(" -> float", "") for line in lines), space)
    assert space["nested"](3.0) == 6.0


def test_multiline_expression_stays_one_expression() -> None:
    lines = inlined(folded, "made", scores="1", factor="2")
    space: dict[str, Any] = {}
    exec("\n".join(lines), space)
    assert space["made"] == 2


def test_expression_is_the_return_value_of_a_one_line_function() -> None:
    from attention.formula.mask import RULES

    assert (
        expression(RULES["window"].visible, size="3", right="3")
        == "(key_pos >= query_pos - 3) & (key_pos <= query_pos + 3)"
    )
