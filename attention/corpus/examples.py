"""Examples of a head as lines of text: each token on a shade of its weight, the query outlined, its key underlined; and the link that opens it in the Lab."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from attention.base.errors import ModelError
from attention.base.printed import format_number
from attention.base.tokens import isolated, label
from attention.formula.names import WEIGHTS
from attention.pictures.look import shade

if TYPE_CHECKING:
    from attention.corpus.result import Example, HeadsResult

_MAX_WHOLE = 48  # texts of up to this number of tokens are shown as a whole
_AROUND = 7  # otherwise, this number of tokens on both sides of the query and of its key is shown
_NOTABLE = 0.1  # keys with at least this weight are always shown
_FAR = 40  # characters between a token and the next
_MAX_LINK_BYTES = 2**14  # servers and proxies refuse longer addresses


class _ExampleLink(NamedTuple):
    """The values of a link to an example, by key; or why there is none, in a sentence."""

    state: dict[str, str] | None
    reason: str = ""


def example_link(result: HeadsResult, example: Example, layer: int, head: int) -> _ExampleLink:
    """The link to the cell of one of `result.examples(layer, head, …)`: the text that was read of it, layer, head, query and key."""
    model = _lab_model(result)
    if not model:
        return _ExampleLink(None, f"This server does not have the model {result.model}: open the text where it is.")
    state = {
        "source": "model",
        "model": model,
        "text": _read_text(example, result.plan["max_tokens"]),
        "layer": str(layer),
        "head": str(head),
        "step": WEIGHTS,
        "q": str(example.query),
        "k": str(example.key),
    }
    n_bytes = len(urlencode(state))
    if n_bytes > _MAX_LINK_BYTES:
        return _ExampleLink(None, f"A link has at most {_MAX_LINK_BYTES:,} bytes; that of this text would have {n_bytes:,}: copy the text into the Lab.")  # fmt: skip
    return _ExampleLink(state)


def _lab_model(result: HeadsResult) -> str:
    """The name under which the Lab opens the model of a result: that of its folder if it is on offer, or the path if paths are allowed; else empty."""
    from attention.models.library import LIBRARY

    for name in dict.fromkeys((result.plan["model"], result.model)):
        if name in LIBRARY.names():
            return str(name)
    path = str(result.plan["model"])
    try:
        LIBRARY.allow(path)
        LIBRARY.folder(path)
    except ModelError:
        return ""
    return path


def examples_html(examples: Sequence[Example], links: Sequence[_ExampleLink]) -> str:
    """Returns a list of examples, each with its link to its cell, or with the reason why there is none."""
    rows = []
    for example, to_lab in zip(examples, links, strict=True):
        words = _describe_example(example)
        value = html.escape(format_number(round(example.value, 3)))
        href = html.escape(f"./?{urlencode(to_lab.state or {})}", quote=True)
        link = f'<a href="{href}" target="_blank" rel="noopener" aria-label="{html.escape(words, quote=True)}: open this cell in the Lab">{value}</a>'
        if to_lab.state is None:
            link = f'<b title="{html.escape(to_lab.reason, quote=True)}">{value}</b>'
            words = f"{words}. {to_lab.reason.rstrip('.')}"
        rows.append(
            f'<li>{link}<p class="shaded-tokens" aria-hidden="true">{_lit_tokens_html(example)}</p><span class="unseen">{html.escape(words)}. Text {example.number}: {html.escape(example.text)}</span></li>'
        )
    return f'<ol class="lit-examples">{"".join(rows)}</ol>'


def _lit_tokens_html(example: Example) -> str:
    weights = dict(zip(example.keys, example.weights, strict=True))
    parts, last = [], -1
    for position in _shown_positions(example):
        if position > last + 1:
            parts.append("<i>…</i>")
        parts.append(_token(example, position, weights.get(position, 0.0)))
        last = position
    if last < len(example.tokens) - 1:
        parts.append("<i>…</i>")
    return " ".join(parts)


def _shown_positions(example: Example) -> list[int]:
    count = len(example.tokens)
    if count <= _MAX_WHOLE:
        return list(range(count))
    shown = _around((example.query, example.key), _AROUND)
    shown |= _around((key for key, weight in zip(example.keys, example.weights, strict=True) if weight >= _NOTABLE), 1)
    return sorted(position for position in shown if 0 <= position < count)


def _describe_example(example: Example) -> str:
    """Where the query of an example looks, in words, such as: query “it” (position 5) looks at “animal” (position 2) with 0.83."""
    weight = dict(zip(example.keys, example.weights, strict=True)).get(example.key)
    names = (
        isolated(label(token, 40, escape=False))
        for token in (example.tokens[example.query], example.tokens[example.key])
    )
    query, key = (f"“{name}” (position {at})" for name, at in zip(names, (example.query, example.key), strict=True))
    strength = "" if weight is None else f" with {format_number(round(weight, 3))}"
    return f"query {query} looks at {key}{strength}"


def _read_text(example: Example, max_tokens: int) -> str:
    """The part of an example's text that was read: all of it, or its beginning if it was cut at `max_tokens` tokens.

    Each token is looked for after the one before, without accents and in small letters; one that is written otherwise is passed over.
    """
    if len(example.tokens) < max_tokens:
        return example.text
    text, end = _folded(example.text), 0
    for token in example.tokens:
        bare = re.sub(r"^(?:[·▁ ]|##)(?=.)", "", token)  # without the mark of a word's beginning or continuation
        part = _folded(bare if token.strip("·") else token.replace("·", " "))
        at = text.find(part, end, end + len(part) + _FAR)
        end = end if at < 0 or not part else at + len(part)
    return example.text[:end]


def _folded(text: str) -> str:
    """The text without accents and in small letters, with as many characters."""
    return "".join(unicodedata.normalize("NFD", character)[0].lower()[0] for character in text)


def _around(places: Iterable[int], reach: int) -> set[int]:
    return {position for place in places for position in range(place - reach, place + reach + 1)}


def _token(example: Example, position: int, weight: float) -> str:
    classes = ["at"] * (position == example.query) + ["looked-at"] * (position == example.key)
    attributes = f' class="{" ".join(classes)}"' if classes else ""
    if weight > 0:
        attributes += (
            f' style="{shade(min(1.0, weight))}" title="position {position}: {format_number(round(weight, 4))}"'
        )
    # The mark of a word's beginning or continuation is grey: marks of every token would be all that one sees.
    name = re.sub(r"^(·|##)(?=.)", r"<small>\1</small>", label(example.tokens[position], 30))
    return f"<span{attributes}>{name}</span>"
