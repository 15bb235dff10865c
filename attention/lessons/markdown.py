"""Lessons as Markdown; a file contains one lesson or several.

A lesson begins with front matter, lines of `key: value` between two lines of dashes. The text follows, then the replies as a
list, each with its condition, see `KINDS`. Files come from anybody, so every size is checked before use, and nothing is
executed: an answer is an expression of `answers`.
"""

from __future__ import annotations

import binascii
import re
import unicodedata
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path

from attention.base.errors import AttentionError, FileError
from attention.lessons import answers
from attention.lessons.lesson import KINDS, MAX_WORDS, Lesson, Part
from attention.sources.registry import source_kinds

MAX_LINE, MAX_OPTION = 400, 100  # characters of a line, except for a state, and of an option
LINK_KEY = "ask"
_MAX_KB, _MAX_LESSONS = 256, 60  # of a file
_MAX_OPTIONS = 8  # of a question
_LONGEST_STATE = 24_000  # characters: the longest text of a page with all settings
_LONGEST_TEXT = 1_000
_LONGEST_LINK = 8_000  # characters of a value in a link
_MOST_UNPACKED = 64 * 2**10  # bytes of a file in a link
_REPLIES, _PARTS = 30, 6
_NEEDED = ("title", "state", "show", "kind", "question", "answer")
_KNOWN = (*_NEEDED, "turn", "turned", "hide", "options", "tolerance", "explain", "next")  # "next": in files from before
_FOLDER = Path(__file__).parent / "path"
_DASHES = re.compile(r"(?m)^---[ \t]*\n")
_OWN_NAME = re.compile(r"[0-9a-f]{8}-\d{1,2}")
_INVISIBLE = ("Cc", "Cs", "Co", "Cn")  # categories of removed characters
_OVERRIDES = "\u202d\u202e"  # they override the reading direction of the text after them


def _from_markdown(name: str, text: str) -> Lesson:
    """The lesson in a Markdown file.

    Raises:
        AttentionError: a field is missing or invalid.
    """
    dashes, front, body = (*_DASHES.split(_clean(text), 2), "", "")[:3]
    fields = dict(_field(name, line) for line in front.splitlines() if line.strip())
    if dashes.strip() or (missing := [key for key in _NEEDED if not fields.get(key)]):
        raise FileError(
            f"The lesson {name!r} begins with lines such as “title: One score” between two lines of ---; "
            f"it lacks {', '.join(missing if not dashes.strip() else ['these'])}: add that."
        )
    if (kind := KINDS.get(fields["kind"])) is None:
        raise FileError(
            f"The kind of the lesson {name!r} is one of {', '.join(KINDS)}; got {fields['kind']!r}: choose one."
        )
    options = _split(fields.get("options", ""), "|")
    lines = [line.strip() for line in body.splitlines()]
    replies = tuple(_reply(name, line, options) for line in lines if line.startswith("- "))
    words = " ".join(line for line in lines if line and not line.startswith("- "))
    if len(words.split()) > MAX_WORDS or len(words) > _LONGEST_TEXT:
        raise FileError(
            f"The text of the lesson {name!r} has at most {MAX_WORDS} words; got {len(words.split())}: shorten it."
        )
    if len(replies) > _REPLIES:
        raise FileError(f"The lesson {name!r} has at most {_REPLIES} replies; got {len(replies)}: remove some.")
    try:
        answers.parse(fields["answer"])
        show, hide, explain = (_parts(fields.get(key, "")) for key in ("show", "hide", "explain"))
    except AttentionError as error:
        raise type(error)(f"The lesson {name!r}: {error}") from None
    if options:
        _check_options(name, options, {to for to, _ in replies})
    plain = {key: fields.get(key, "") for key in ("title", "state", "turn", "turned", "question", "answer")}
    return Lesson(
        name=name, text=words, kind=fields["kind"], show=show, hide=hide, explain=next(iter(explain), None),
        tolerance=_tolerance(name, fields.get("tolerance", "0")), replies=replies, options=options or kind.options, **plain,
    )  # fmt: skip


def to_markdown(lesson: Lesson) -> str:
    """The Markdown file of a lesson, the inverse of `read`."""
    has_own_options = lesson.options != KINDS[lesson.kind].options
    fields = {
        "title": lesson.title, "state": lesson.state, "turn": lesson.turn, "turned": lesson.turned,
        "show": "; ".join(part.text for part in lesson.show), "hide": "; ".join(part.text for part in lesson.hide),
        "kind": lesson.kind, "options": " | ".join(lesson.options) if has_own_options else "", "question": lesson.question,
        "answer": lesson.answer, "tolerance": repr(lesson.tolerance) if lesson.tolerance else "",
        "explain": lesson.explain.text if lesson.explain else "",
    }  # fmt: skip
    front = "".join(f"{key}: {value}\n" for key, value in fields.items() if value)
    replies = "".join(f"- {to}: {words}\n" for to, words in lesson.replies)
    return f"---\n{front}---\n{lesson.text}\n\n{replies}"


def read_many(content: bytes) -> dict[str, Lesson]:
    """The lessons of an uploaded file, by name and in order.

    The names begin with a digest of the file, so that the progress in one file never counts for another.

    Raises:
        AttentionError: the file is malformed, or contains an invalid lesson.
    """
    if len(content) > _MAX_KB * 2**10:
        raise FileError(f"A file of lessons has at most {_MAX_KB} KB; got {len(content):,} bytes: split it.")
    try:
        text = _clean(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        text = ""
    before, *parts = _DASHES.split(text + "\n")
    if before.strip() or not parts or len(parts) % 2:
        raise FileError(
            "A file of lessons is Markdown, in which each lesson begins with lines such as “title: One score” between two lines of "
            "---; got something else: save one with “Ask about this” in Share and compare."
        )
    if len(parts) > 2 * _MAX_LESSONS:
        raise FileError(f"A file has at most {_MAX_LESSONS} lessons; got {len(parts) // 2}: split it.")
    pairs = zip(parts[::2], parts[1::2], strict=True)
    lessons = [_from_markdown(str(number), f"---\n{front}---\n{body}") for number, (front, body) in enumerate(pairs, 1)]
    digest = blake2b(content, digest_size=4).hexdigest()
    return {(name := f"{digest}-{lesson.name}"): replace(lesson, name=name) for lesson in lessons}


def is_uploaded(name: str) -> bool:
    """Whether the name belongs to a lesson of an uploaded file."""
    return _OWN_NAME.fullmatch(name) is not None


@cache
def builtin_lessons() -> dict[str, Lesson]:
    """The built-in lessons, from one row of scores to a head of a real model, by name and in the order of their files."""
    texts = {file.stem.partition("-")[2]: file.read_text(encoding="utf-8") for file in sorted(_FOLDER.glob("*.md"))}
    return {name: _from_markdown(name, text) for name, text in texts.items() if _can_be_asked(text)}


def _can_be_asked(text: str) -> bool:
    """Whether the source and the answer of a lesson exist, since features bring some of them."""
    source, answer = (
        re.search(pattern, text, re.M) for pattern in (r"^state: (?:.*&)?source=(\w+)", r"^answer: (\w+)")
    )
    return (source is None or source[1] in source_kinds()) and (answer is None or answer[1] in answers.functions())


def _clean(text: str) -> str:
    """The text without invisible characters, with uniform line ends."""
    lines = text.replace("\r\n", "\n").replace("\t", " ")
    return "".join(
        character
        for character in lines
        if character == "\n" or not (unicodedata.category(character) in _INVISIBLE or character in _OVERRIDES)
    )


def _field(name: str, line: str) -> tuple[str, str]:
    key, colon, value = line.partition(":")
    key, value = key.strip(), value.strip()
    if not colon or key not in _KNOWN:
        raise FileError(
            f"A line of the lesson {name!r} is one of {', '.join(_KNOWN)}, a colon and a value; got {line[:80]!r}."
        )
    _check_length(f"{key} of the lesson {name!r}", value, _LONGEST_STATE if key in ("state", "turn") else MAX_LINE)
    return key, value


def _reply(name: str, line: str, options: tuple[str, ...]) -> tuple[str, str]:
    reply = line.removeprefix("- ").strip()
    matching = [option for option in options if reply.startswith(f"{option}:")]
    to, colon, words = reply.partition(":")
    if matching:  # an option may contain a colon
        to = max(matching, key=len)
        words = reply[len(to) + 1 :]
    if not colon or not words.strip():
        raise FileError(f"A reply of the lesson {name!r} is a condition, a colon and a sentence; got {line[:80]!r}.")
    _check_length(f"a reply of the lesson {name!r}", reply, MAX_LINE)
    return to.strip(), words.strip()


def _check_options(name: str, options: tuple[str, ...], answered: set[str]) -> None:
    """Checks that there are a few distinct options, with a reply to each wrong one; which one is right is not yet known."""
    if not 2 <= len(options) <= _MAX_OPTIONS or len(set(options)) < len(options) or max(map(len, options)) > MAX_OPTION:
        raise FileError(
            f"The lesson {name!r} has 2 to {_MAX_OPTIONS} different options of up to {MAX_OPTION} characters, separated by |; got "
            f"{' | '.join(options)[:80]!r}: correct them."
        )
    if "right" in options:
        raise FileError(
            f"No option of the lesson {name!r} is called “right”, which marks the reply to the right answer: choose other words."
        )
    if len(unanswered := [option for option in options if option not in answered]) > 1:
        raise FileError(
            f"Each wrong option of the lesson {name!r} needs a reply; “{unanswered[0]}” and “{unanswered[1]}” have none: write what "
            "a student learns from choosing it."
        )


def _tolerance(name: str, text: str) -> float:
    try:
        tolerance = float(text)
    except ValueError:
        tolerance = -1.0
    if not 0 <= tolerance < float("inf"):
        raise FileError(f"The tolerance of the lesson {name!r} is a number; got {text!r}: write one.")
    return tolerance


def _check_length(part: str, text: str, longest: int) -> None:
    if len(text) > longest:
        raise FileError(f"The {part} has at most {longest:,} characters; got {len(text):,}: shorten it.")


def _parts(text: str) -> tuple[Part, ...]:
    items = _split(text, ";")
    if len(items) > _PARTS:
        raise FileError(f"There are at most {_PARTS} parts; got {len(items)}: show fewer.")
    return tuple(Part.parse(item) for item in items)


def _split(text: str, separator: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(separator) if item.strip())


def to_link(file: str) -> str:
    """The file of one or several lessons, compressed for a link. This obfuscates the answer; it does not encrypt it.

    Raises:
        FileError: the result is too long for a link.
    """
    text = urlsafe_b64encode(zlib.compress(file.encode(), 9)).decode().rstrip("=")
    if len(text) > _LONGEST_LINK:
        raise FileError(
            f"A question has at most {_LONGEST_LINK:,} characters in a link; this one has {len(text):,}: shorten its text, or save it as a file."
        )
    return text


def from_link(text: str) -> dict[str, Lesson]:
    """The lessons in a link, by name.

    Raises:
        AttentionError: the text encodes no lesson.
    """
    try:
        if len(text) > _LONGEST_LINK:
            raise ValueError(text)
        decompressor = zlib.decompressobj()
        file = decompressor.decompress(urlsafe_b64decode(text + "=" * (-len(text) % 4)), _MOST_UNPACKED)
        if not decompressor.eof:
            raise ValueError(text)
    except (ValueError, binascii.Error, zlib.error):
        raise FileError(
            f"A link with {LINK_KEY}= contains a question encoded by “Ask about this” in Share; got {text[:24]!r}, which is invalid or "
            "cut off: ask for the link again."
        ) from None
    return read_many(file)
