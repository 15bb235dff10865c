"""Examples of a head as lines of text: what is lit, what is left out, and that nothing of a text is markup."""

from __future__ import annotations

import re

from attention.corpus.heads_result import Example
from attention.pictures.lit_tokens import describe_example, examples_html, lit_tokens_html, shown_positions


def example(tokens: tuple[str, ...], query: int, key: int, **more: object) -> Example:
    values = {"value": 0.5, "number": 3, "keys": (key, 0), "weights": (0.9, 0.05), "text": " ".join(tokens)} | more
    return Example(query=query, key=key, tokens=tokens, **values)  # type: ignore[arg-type]


def test_query_is_outlined_and_its_key_underlined_and_lit() -> None:
    html = lit_tokens_html(example(("the", "animal", "slept", "it"), 3, 1))
    assert '<span class="looked-at" style="background:rgba(31,111,178,0.900);color:#ffffff"' in html
    assert '<span class="at">it</span>' in html
    assert "<span>slept</span>" in html
    assert html.count("background") == 2


def test_long_texts_show_their_query_and_keys_only() -> None:
    tokens = tuple(f"t{i}" for i in range(200))
    long = example(tokens, 150, 20, keys=(20, 90, 190), weights=(0.6, 0.2, 0.01))
    assert shown_positions(long) == [*range(13, 28), *range(89, 92), *range(143, 158)]
    assert lit_tokens_html(long).count("…") == 4
    assert "t190" not in lit_tokens_html(long)


def test_tokens_texts_and_addresses_are_escaped() -> None:
    evil = ('<script>alert("1")</script>', "a&b", '"><img src=x>')
    html = examples_html([example(evil, 1, 0)], lambda _: {"text": '"><script>', "q": "1"})
    assert "<script" not in html
    assert "<img" not in html
    assert 'href="./?text=%22%3E%3Cscript%3E&amp;q=1"' in html
    assert set(re.findall(r"<(\w+)", html)) == {"ol", "li", "a", "p", "span"}


def test_description_names_both_positions_and_the_weight() -> None:
    words = describe_example(example(("the", "animal", "slept", "it"), 3, 1))
    assert words == "query “it” (position 3) looks at “animal” (position 1) with 0.9"
