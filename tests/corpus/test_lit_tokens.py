"""Examples of a head as lines of text: what is lit, what is left out, and that nothing of a text is markup."""

from __future__ import annotations

import re

import pytest

from attention.corpus.chunk import Tokenizer
from attention.corpus.examples import (
    _describe_example,
    _ExampleLink,
    _lit_tokens_html,
    _read_text,
    _shown_positions,
    examples_html,
)
from attention.corpus.result import Example
from attention.models.library import LIBRARY
from attention.pictures.look import shade

pytestmark = pytest.mark.quick


def example(tokens: tuple[str, ...], query: int, key: int, **more: object) -> Example:
    values = {"value": 0.5, "number": 3, "keys": (key, 0), "weights": (0.9, 0.05), "text": " ".join(tokens)} | more
    return Example(query=query, key=key, tokens=tokens, **values)


def test_query_is_outlined_and_its_key_underlined_and_lit() -> None:
    html = _lit_tokens_html(example(("the", "animal", "slept", "it"), 3, 1))
    assert f'<span class="looked-at" style="{shade(0.9)}"' in html
    assert '<span class="at">it</span>' in html
    assert "<span>slept</span>" in html
    assert html.count("background") == 2


def test_long_texts_show_their_query_and_keys_only() -> None:
    tokens = tuple(f"t{i}" for i in range(200))
    long = example(tokens, 150, 20, keys=(20, 90, 190), weights=(0.6, 0.2, 0.01))
    assert _shown_positions(long) == [*range(13, 28), *range(89, 92), *range(143, 158)]
    assert _lit_tokens_html(long).count("…") == 4
    assert "t190" not in _lit_tokens_html(long)


def test_tokens_texts_and_addresses_are_escaped() -> None:
    evil = ('<script>alert("1")</script>', "a&b", '"><img src=x>')
    html = examples_html([example(evil, 1, 0)], [_ExampleLink({"text": '"><script>', "q": "1"})])
    assert "<script" not in html
    assert "<img" not in html
    assert 'href="./?text=%22%3E%3Cscript%3E&amp;q=1"' in html
    assert set(re.findall(r"<(\w+)", html)) == {"ol", "li", "a", "p", "span"}


def test_example_without_a_link_says_why() -> None:
    html = examples_html([example(("a", "b"), 1, 0)], [_ExampleLink(None, "This server has no <model>.")])
    assert "<a" not in html
    assert html.count("This server has no &lt;model&gt;.") == 2


def test_description_names_both_positions_and_the_weight() -> None:
    words = _describe_example(example(("the", "animal", "slept", "it"), 3, 1))
    assert words == "query “it” (position 3) looks at “animal” (position 1) with 0.9"


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("model", ["all-MiniLM-L6-v2", "SmolLM2-135M-Instruct"])
def test_cut_text_opens_with_the_tokens_that_were_read(model: str) -> None:
    text = "The Owl asked  the moon's friend, déjà vu (unbelievably!), and the moon blinked twice at 3.14 keys. " * 3
    if model not in LIBRARY.names():
        pytest.skip("this model is fetched by make models ALL=1")
    whole = Tokenizer(LIBRARY.get(model), 10**4)
    for max_tokens in range(9, 90):
        tokenizer = Tokenizer(LIBRARY.get(model), max_tokens)
        tokens = tokenizer.tokens(tokenizer.sequences(0, [text])[0][0])
        read = _read_text(example(tokens, 1, 0, text=text), max_tokens)
        assert whole.tokens(whole.sequences(0, [read])[0][0]) == tokens
