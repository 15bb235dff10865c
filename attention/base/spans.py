"""Spans: names for stretches of tokens, such as the messages of a chat or the documents of a prompt, and the text that asks for them.

What a source should name is one text (`spans=`, the key `spans` of a link): a way to find the stretches in the text, one of `WAYS`,
or a list of names, each with its place:

    question=What%20is%20it;document@120-480;system:0-11

`=` is followed by the words themselves, `@` by characters as in text[120:480], `:` by the first and the last token.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import regex

from attention.base.errors import TextError

ANSWER = "answer"
"""The name of the tokens that a model generates."""
MARKS, CHAT, SENTENCES, PARAGRAPHS = WAYS = ("marks", "chat", "sentences", "paragraphs")
"""How the stretches are found: at the marks of the text; at its marks, which are roles of a chat; at its sentences; at its paragraphs."""
Spans = str | Mapping[str, Any] | Iterable[Any]
"""What `spans=` may be: `spans_code` says which values."""


@dataclass(frozen=True, order=True)
class Span:
    """A named stretch of tokens, from the first to the last one.

    Attributes:
        name: what it is, such as "user" or "document 2".
        first: the position of its first token.
        last: that of its last one.
    """

    name: str
    first: int
    last: int

    def __len__(self) -> int:
        return self.last + 1 - self.first

    @property
    def positions(self) -> range:
        """The positions of its tokens."""
        return range(self.first, self.last + 1)


class Stretch(NamedTuple):
    """A named stretch of the characters of a text, as in text[start:stop]."""

    name: str
    start: int
    stop: int


def place(
    stretches: Sequence[Stretch], text: str, offsets: Sequence[tuple[int, int]], tokens: Sequence[Span] = ()
) -> tuple[Span, ...]:
    """The spans of some stretches of a text, in the order of the tokens; equal names are numbered from 1.

    A token belongs to the stretch that has most of its characters, without blanks; of two with as many, to the first. A later stretch takes
    the characters that an earlier one shares with it, and `tokens` take theirs from all: what is left of a stretch keeps its name.

    Args:
        stretches: the stretches.
        text: the text of the tokens.
        offsets: the start and stop of every token in the text; equal for a token of no text, such as [CLS].
        tokens: spans that are already given by their tokens.
    """
    owner = [-1] * len(text)
    for number, stretch in enumerate(stretches):
        owner[stretch.start : stretch.stop] = [number] * len(owner[stretch.start : stretch.stop])
    labels = [_label(owner, text, *offset) for offset in offsets]
    for number, span in enumerate(tokens, len(stretches)):
        if span.last >= len(labels):
            raise TextError(
                f"The span “{span.name}” ends at token {span.last}, and the text has {len(labels)} tokens, from 0: give tokens that it has."
            )
        labels[span.first : span.last + 1] = [number] * len(span)
    names, runs = [*(item.name for item in stretches), *(item.name for item in tokens)], list[Span]()
    before = -1
    for position, label in enumerate(labels):
        if label >= 0 and label == before:
            runs[-1] = Span(runs[-1].name, runs[-1].first, position)
        elif label >= 0:
            runs.append(Span(names[label], position, position))
        before = label
    return numbered(runs)


def _label(owner: Sequence[int], text: str, start: int, stop: int) -> int:
    """The number of the stretch to which a token belongs, −1 for none."""
    characters = range(start, min(stop, len(owner)))
    shown = [i for i in characters if not text[i].isspace()] or characters
    counts = Counter(owner[i] for i in shown)  # in the order of the text
    return max(counts, key=lambda number: (counts[number], number >= 0), default=-1)


def numbered(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The spans, in their order, where those of one name are numbered: “tool 1”, “tool 2”."""
    spans = tuple(spans)
    several = {name for name, count in Counter(span.name for span in spans).items() if count > 1}
    counts, taken, result = Counter[str](), {span.name for span in spans}, list[Span]()
    for span in spans:
        name = span.name
        while name in several or (name != span.name and name in taken):
            counts[span.name] += 1
            name = f"{span.name} {counts[span.name]}"
        result.append(Span(name, span.first, span.last))
    return tuple(result)


# -- marks in a text ---------------------------------------------------------------------------------------

_NAME = r"[^\W\d_][^\[\]\n;=@:]{0,39}"
_MARK = re.compile(rf"(\\?)\[\[({_NAME}|/)\]\]")
_BREAKS = {
    SENTENCES: regex.compile(r"(?<=[.!?…]['\"”’)\]]*)\s+(?=[^\s\p{Ll}])|(?<=[。！？][”’）]*)(?![”’）])|\n+"),
    PARAGRAPHS: regex.compile(r"\s*\n\s*\n\s*"),
}


def read_marks(text: str) -> tuple[str, tuple[Stretch, ...]]:
    r"""The text without its marks, and the stretch after each mark, up to the next one.

    A mark is a name in double brackets, `[[user]]`, at the beginning of a line or within one. The blank or the line break after it goes with it. `[[/]]` ends a stretch; `\[[user]]` is no mark, and stands for what follows the backslash. A name begins with a letter.
    """
    pieces, stretches, length, begun, end = list[str](), list[Stretch](), 0, None, 0
    for match in _MARK.finditer(text):
        if match[1]:
            pieces.append(text[end : match.start()] + match[0][1:])
            length, end = length + len(pieces[-1]), match.end()
            continue
        piece = text[end : match.start()]
        pieces.append(piece)
        length, end = length + len(piece), match.end()
        if begun is not None:
            stretches.append(Stretch(*begun, length))
        begun = None if match[2] == "/" else (match[2].strip(), length)
        end += text[end : end + 1] in (" ", "\n")
    pieces.append(text[end:])
    plain = "".join(pieces)
    if begun is not None:
        stretches.append(Stretch(*begun, len(plain)))
    return plain, tuple(
        _trimmed(stretch, plain) for stretch in stretches if plain[stretch.start : stretch.stop].strip()
    )


def write_marks(messages: Sequence[Mapping[str, Any]]) -> str:
    """A chat as a text with a mark before each message, which `read_chat` reads; empty if a text cannot say it, as with tool calls."""
    plain = [message for message in messages if message.keys() == {"role", "content"}]
    text = "\n".join(f"[[{message['role']}]]\n" + _MARK.sub(r"\\\g<0>", str(message["content"])) for message in plain)
    return text if read_chat(text) == [dict(message) for message in messages] else ""


def read_chat(text: str) -> list[dict[str, str]]:
    """The messages of a text with marks: each mark is a role, and what follows is the content, without blanks around it."""
    plain, stretches = read_marks(text)
    return [{"role": name, "content": plain[start:stop]} for name, start, stop in stretches]


def _trimmed(stretch: Stretch, text: str) -> Stretch:
    part = text[stretch.start : stretch.stop]
    start = stretch.start + len(part) - len(part.lstrip())
    return Stretch(stretch.name, start, start + len(part.strip()))


def _divided(text: str, way: str) -> tuple[Stretch, ...]:
    """The sentences or paragraphs of a text, without the blanks between them. A sentence ends at . ! ? or …, before a blank, or with its line."""
    edges = [(0, 0), *(match.span() for match in _BREAKS[way].finditer(text)), (len(text), len(text))]
    parts = [_trimmed(Stretch(way[:-1], start, stop), text) for (_, start), (stop, _) in itertools.pairwise(edges)]
    return tuple(part for part in parts if part.stop > part.start)


# -- what a source should name ---------------------------------------------------------------------------------


def spans_code(spans: Any) -> str:
    """What a source should name, as one text.

    Args:
        spans: a way of `WAYS`; or names with their places, as a dict or as pairs: the words themselves, a slice of the characters of the text,
            a range of tokens, or a list of these; or `Span` values.

    Raises:
        TextError: it is something else.
    """
    if isinstance(spans, str):
        _ = parse_spans(spans)
        return spans
    pairs = spans.items() if isinstance(spans, Mapping) else spans or ()
    entries = list[str]()
    for pair in pairs:
        name, places = (pair.name, pair.positions) if isinstance(pair, Span) else pair
        for found in places if isinstance(places, list | tuple) else (places,):
            if isinstance(found, range) and found.step == 1 and len(found) and found.start >= 0:
                entries.append(f"{name}:{found.start}-{found.stop - 1}")
            elif isinstance(found, slice) and found.step in (None, 1) and 0 <= (found.start or 0) < (found.stop or 0):
                entries.append(f"{name}@{found.start or 0}-{found.stop}")
            elif isinstance(found, str) and found.strip():
                entries.append(f"{name}={quote(found, safe=' ')}")
            else:
                raise TextError(
                    f"The place of the span “{name}” is its words, slice(first, stop) of the characters, or range(first, stop) of the tokens; "
                    f"got {found!r:.60}: give one of these, or a list."
                )
    return spans_code(";".join(entries))


_ENTRY = re.compile(rf"(?P<name>{_NAME})(?:=(?P<words>.+)|(?P<kind>[@:])(?P<first>\d{{1,7}})-(?P<last>\d{{1,7}}))")


class _Place(NamedTuple):
    name: str
    kind: str  # "=", "@" or ":"
    words: str
    first: int
    last: int


def parse_spans(code: str) -> tuple[_Place, ...]:
    """The names of a code and their places; none for a way of `WAYS`, or for an empty one.

    Raises:
        TextError: it cannot be read.
    """
    places = list[_Place]()
    for entry in code.split(";") if code and code not in WAYS else ():
        match = _ENTRY.fullmatch(entry.strip())
        first, last = (int(match[key] or 0) for key in ("first", "last")) if match else (0, -1)
        if not match or (match["kind"] and last - (match["kind"] == "@") < first):
            raise TextError(
                f"Spans are {', '.join(WAYS)}, or names with their places, such as question:3-9 for tokens or document@120-480 for characters; "
                f"got {entry[:60]!r}: write them so; a name begins with a letter, has at most 40 characters, and none of [ ] ; = @ :."
            )
        places.append(_Place(match["name"].strip(), match["kind"] or "=", unquote(match["words"] or ""), first, last))
    return tuple(places)


def find_stretches(code: str, text: str) -> tuple[Stretch, ...]:
    """The stretches of a text that a code names by words or characters, or finds by sentences or paragraphs; those of marks are found by `read_marks`.

    Words that a text has several times are looked for after the entry before them that has the same words.

    Raises:
        TextError: the text does not have them.
    """
    if code in _BREAKS:
        return _divided(text, code)
    result, after = list[Stretch](), dict[str, int]()
    for found in parse_spans(code):
        start, stop = found.first, found.last
        if found.kind == "=":
            start = text.find(found.words, after.get(found.words, 0))
            stop = start + len(found.words)
            after[found.words] = stop
        if found.kind != ":" and not 0 <= start < stop <= len(text):
            what = f"“{found.words[:60]}”" if found.kind == "=" else f"the characters {start} to {stop}"
            again = " once more" if found.kind == "=" and found.words in text else ""
            raise TextError(
                f"The span “{found.name}” is {what}, which the text of {len(text):,} characters does not have{again}: give words that it has, "
                "or the range of its tokens."
            )
        result += [Stretch(found.name, start, stop)] if found.kind != ":" else []
    return tuple(result)


def given_tokens(code: str) -> tuple[Span, ...]:
    """The spans that a code gives by their tokens."""
    return tuple(Span(found.name, found.first, found.last) for found in parse_spans(code) if found.kind == ":")
