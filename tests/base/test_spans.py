"""Spans: marks, sentences, and places in a text, and the tokens that they become."""

from __future__ import annotations

from typing import Any

import pytest

from attention import TextError
from attention.base.spans import (
    Span,
    Stretch,
    find_stretches,
    given_tokens,
    numbered,
    place,
    read_chat,
    read_marks,
    spans_code,
    write_marks,
)

pytestmark = pytest.mark.quick


def words(text: str, stretches: tuple[Stretch, ...]) -> list[tuple[str, str]]:
    return [(name, text[start:stop]) for name, start, stop in stretches]


def test_marks_are_read_and_removed() -> None:
    text, stretches = read_marks(
        "Read this.\n[[document]]\nThe owl\nsleeps. [[document]] It is day. [[/]] Then [[question]]Why?"
    )
    assert text == "Read this.\nThe owl\nsleeps. It is day. Then Why?"
    assert words(text, stretches) == [
        ("document", "The owl\nsleeps."),
        ("document", "It is day."),
        ("question", "Why?"),
    ]


# Lines of TOML, bash, NumPy, a wiki and Lua that have double brackets; what looks like a mark has a backslash.
@pytest.mark.parametrize(
    "text", ["[[ -f x ]] && echo", "[[1, 2], [3, 4]]", "a[[0]]", "s = [[\nlong]]", "[[]]", "[ [x] ]", "x[[-1]]"]
)
def test_other_brackets_are_no_marks(text: str) -> None:
    assert read_marks(text) == (text, ())


def test_a_backslash_keeps_a_mark_in_the_text() -> None:
    text, stretches = read_marks(r"[[user]] Link to \[[Main Page]] and \[[package]], please.")
    assert (text, words(text, stretches)[0][1]) == ("Link to [[Main Page]] and [[package]], please.",) * 2


@pytest.mark.parametrize(
    "content", ["Hi", "two\nlines", "[[user]] quoted", r"\[[x]] and \\", "a [[b]] c [[/]] d", "é 👍 [[1]]"]
)
def test_a_chat_survives_as_text(content: str) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    assert read_chat(write_marks(chat)) == chat


def test_a_chat_that_no_text_says_has_none() -> None:
    assert write_marks([{"role": "assistant", "content": "", "tool_calls": []}]) == ""
    assert write_marks([{"role": "user", "content": " blanks "}]) == ""


def test_sentences_and_paragraphs() -> None:
    text = "It is 3.5 m high. “Why?” he said. So? Yes!\nA line\n\nNext one."
    assert [part for _, part in words(text, find_stretches("sentences", text))] == [
        "It is 3.5 m high.", "“Why?” he said.", "So?", "Yes!", "A line", "Next one.",
    ]  # fmt: skip
    assert [part for _, part in words(text, find_stretches("paragraphs", text))] == [text[:-11], "Next one."]
    chinese = "猫睡了。狗叫了！"
    assert [part for _, part in words(chinese, find_stretches("sentences", chinese))] == ["猫睡了。", "狗叫了！"]


def test_every_form_is_one_text() -> None:
    code = spans_code({"question": "Who; or what?", "document": [slice(3, 9), range(2, 5)]})
    assert code == "question=Who%3B or what%3F;document@3-9;document:2-4"
    assert (
        spans_code(code)
        == code
        == spans_code([*{"question": "Who; or what?"}.items(), ("document", slice(3, 9)), ("document", range(2, 5))])
    )
    assert given_tokens(code) == (Span("document", 2, 4),)
    text = "So Mary asks: Who; or what?"
    assert words(text, find_stretches(code, text)) == [("question", "Who; or what?"), ("document", "Mary a")]
    assert spans_code([Span("a", 0, 1)]) == "a:0-1"


def test_words_that_stand_twice_are_found_twice() -> None:
    text = "a cat, a cat"
    assert find_stretches(spans_code({"cat": ["cat", "cat"]}), text) == (Stretch("cat", 2, 5), Stretch("cat", 9, 12))
    with pytest.raises(TextError, match=r"“cat”, which the text of 12 characters does not have once more: give words"):
        find_stretches(spans_code({"cat": ["cat"] * 3}), text)


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ("nonsense", r"^Spans are marks, chat, sentences, paragraphs, or names .* got 'nonsense': write them so"),
        ({"a:b": "x"}, "has at most 40 characters"),
        ({"a": 3}, r"is its words, slice\(first, stop\) of the characters, or range"),
        ({"a": range(3, 1)}, "the span “a”"),
        ("a:5-3", "got 'a:5-3'"),
        ({"a": ""}, "the span “a”"),
    ],
)
def test_other_spans_are_refused(spans: Any, message: str) -> None:
    with pytest.raises(TextError, match=message):
        spans_code(spans)


def test_tokens_belong_to_the_stretch_with_most_of_their_letters() -> None:
    #       0123456789012
    text = "ab. Cd\n\nEf gh"
    offsets = [(0, 0), (0, 2), (2, 3), (3, 6), (6, 8), (7, 10), (10, 13), (13, 13)]
    stretches = (Stretch("first", 0, 3), Stretch("second", 4, 6), Stretch("third", 8, 13))
    assert place(stretches, text, offsets) == (Span("first", 1, 2), Span("second", 3, 3), Span("third", 5, 6))
    # ".\n\n" as one token, as in the vocabularies of Llama 3 and GPT-4, belongs to the sentence, not to the blank lines.
    assert place((Stretch("a", 0, 2),), "x.\n\ny", [(0, 1), (1, 4), (4, 5)]) == (Span("a", 0, 1),)


def test_a_later_span_divides_an_earlier_one() -> None:
    text = "one two three four"
    offsets = [(0, 3), (3, 7), (7, 13), (13, 18)]
    inner = place((Stretch("user", 0, 18), Stretch("doc", 4, 7)), text, offsets)
    assert inner == (Span("user 1", 0, 0), Span("doc", 1, 1), Span("user 2", 2, 3))
    assert place((Stretch("user", 0, 18),), text, offsets, [Span("doc", 2, 3)]) == (
        Span("user", 0, 1),
        Span("doc", 2, 3),
    )
    with pytest.raises(TextError, match="ends at token 4, and the text has 4 tokens, from 0"):
        place((), text, offsets, [Span("doc", 2, 4)])


def test_equal_names_are_numbered() -> None:
    spans = (Span("tool", 0, 1), Span("user", 2, 2), Span("tool", 3, 4))
    assert [span.name for span in numbered(spans)] == ["tool 1", "user", "tool 2"]
    assert [span.name for span in numbered((Span("tool 1", 0, 0), *spans[1:], Span("tool", 5, 5)))] == [
        "tool 1",
        "user",
        "tool 2",
        "tool 3",
    ]
