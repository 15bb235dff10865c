import math

import pytest

from attention.base.knobs import Choice, Integer, Range, Real, Switch, Text, to_text

pytestmark = pytest.mark.quick

LETTERS, HEADS, CAP = Choice(("a", "b", 3)), Integer(1, 8, limit="heads"), Real(0.5, 50, optional=True)


@pytest.mark.parametrize(
    ("within", "text", "value"),
    [
        (LETTERS, "a", "a"), (LETTERS, "3", 3), (Choice((True, False)), "false", False),
        (Switch(), "TRUE", True), (Switch(), "false", False),
        (HEADS, "8", 8), (HEADS, " 8", 8), (HEADS, "5.0", 5), (HEADS, "1e0", 1), (Integer(1, optional=True), "", None),
        (CAP, "0.5", 0.5), (CAP, "", None), (Real(0), "inf", math.inf),
        (Text(3), "abc", "abc"), (Text(3), "", ""), (Text(), "a" * 9999, "a" * 9999),
    ],
)  # fmt: skip
def test_text_is_parsed_as_the_value_it_names(within: Range, text: str, value: object) -> None:
    assert within.read(text) == value
    assert type(within.read(text)) is type(value)
    assert within.read(to_text(value)) == value


@pytest.mark.parametrize(
    ("within", "texts"),
    [
        (LETTERS, ("c", "", "A", "3.0")),
        (Switch(), ("", "1", "yes")),
        (HEADS, ("", "0", "9", "2.5", "inf", "nan", "1e400", "9" * 5000, "0x1", "true")),
        (CAP, ("0.4", "50.1", "nan", "hot")),
        (Text(3), ("abcd",)),
    ],
)
def test_invalid_text_is_refused(within: Range, texts: tuple[str, ...]) -> None:
    for text in texts:
        with pytest.raises(ValueError):  # noqa: PT011  # any message
            within.read(text)


@pytest.mark.parametrize(
    ("within", "accepted", "refused"),
    [
        (LETTERS, ("a", 3), ("c", None, "3")),
        (Switch(), (True, False), (1, "true", None)),
        (HEADS, (1, 8), (0, 9, 2.0, True, "2", None)),
        (Integer(1, optional=True), (None, 10**9), (0,)),
        (CAP, (0.5, 50, None), (0.4, math.nan, True, "1")),
        (Text(3), ("", "abc"), ("abcd", None, 3)),
    ],
)
def test_value_is_validated(within: Range, accepted: tuple[object, ...], refused: tuple[object, ...]) -> None:
    assert all(within.accepts(value) for value in accepted)
    assert not any(within.accepts(value) for value in refused)


@pytest.mark.parametrize(
    ("within", "expected"),
    [
        (LETTERS, "one of a, b, 3"),
        (Switch(), "true or false"),
        (HEADS, "a whole number from 1 to 8"),
        (Integer(1), "a whole number of at least 1"),
        (Integer(0, 0), "0, the only value"),
        (CAP, "a number from 0.5 to 50"),
        (Real(0, end_meanings=("argmax", "uniform")), "a number from 0 (argmax) to infinity (uniform)"),
        (Text(2000), "up to 2,000 characters"),
    ],
)
def test_expected_values_are_described_in_words(within: Range, expected: str) -> None:
    assert within.expected == expected


def test_value_outside_becomes_the_nearest_within_the_operators_limits() -> None:
    limits = {"heads": 4}
    assert [HEADS.nearest(value) for value in (0, 5, 99)] == [1, 5, 8]
    assert [HEADS.narrowed(limits).nearest(value) for value in (0, 5)] == [1, 4]
    assert CAP.narrowed(limits) is CAP
    assert CAP.nearest(None) is None
    assert [LETTERS.nearest(value) for value in ("b", "c")] == ["b", "a"]
    assert Text(limit="heads").narrowed(limits).nearest("abcdef") == "abcd"
