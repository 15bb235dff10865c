"""Lessons as Markdown: one file holds one of them, or several one below the other.

A lesson begins with lines of `key: value` between two lines of dashes; then come the text, and the replies as a list,
each after what it replies to, see `kinds`. Whoever writes such a file may be anybody, so everything in it is counted
before it is used, and nothing in it is run: an answer is an expression of `answers`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path

from attention.errors import AttentionError, FileError
from attention.lessons import answers
from attention.lessons.kinds import KINDS
from attention.lessons.lesson import MOST_WORDS, Lesson, Part

MOST_KB = 256
"""Of a file."""
MOST = 60
"""Lessons of a file."""
LONGEST = 400
"""Characters of a line, but of a state."""
OPTIONS = 8
"""Of a question; each has `LONGEST_OPTION` characters."""
LONGEST_OPTION = 100

_LONGEST_STATE = 24_000  # characters: a text as long as a page takes, and the knobs around it
_LONGEST_TEXT = 1_000
_REPLIES, _PARTS = 30, 6
_NEEDED = ("title", "state", "show", "kind", "question", "answer")
_KNOWN = (*_NEEDED, "turn", "turned", "hide", "options", "tolerance", "explain", "next")
_FOLDER = Path(__file__).parent / "path"
_DASHES = re.compile(r"(?m)^---[ \t]*\n")
_OWN_NAME = re.compile(r"[0-9a-f]{8}-\d{1,2}")
_UNSEEN = ("Cc", "Cs", "Co", "Cn")  # categories of characters; and two that turn the reading direction of what follows
_TURNING = "\u202d\u202e"


def read(name: str, text: str) -> Lesson:
    """The lesson of a Markdown file.

    Raises:
        AttentionError: something is missing in it, or is not what it must be.
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
    own = _listed(fields.get("options", ""), "|")
    lines = [line.strip() for line in body.splitlines()]
    replies = tuple(_reply(name, line, own) for line in lines if line.startswith("- "))
    words = " ".join(line for line in lines if line and not line.startswith("- "))
    if len(words.split()) > MOST_WORDS or len(words) > _LONGEST_TEXT:
        raise FileError(
            f"The text of the lesson {name!r} has at most {MOST_WORDS} words; got {len(words.split())}: say less."
        )
    if len(replies) > _REPLIES:
        raise FileError(f"The lesson {name!r} has at most {_REPLIES} replies; got {len(replies)}: say less.")
    try:
        answers.read(fields["answer"])
        show, hide, explain = (_parts(fields.get(key, "")) for key in ("show", "hide", "explain"))
    except AttentionError as error:
        raise type(error)(f"The lesson {name!r}: {error}") from None
    if own:
        _check_options(name, own, {to for to, _ in replies})
    plain = {key: fields.get(key, "") for key in ("title", "state", "turn", "turned", "question", "answer", "next")}
    return Lesson(
        name=name, text=words, kind=fields["kind"], show=show, hide=hide, explain=next(iter(explain), None),
        tolerance=_tolerance(name, fields.get("tolerance", "0")), replies=replies, options=own or kind.options, **plain,
    )  # fmt: skip


def written(lesson: Lesson) -> str:
    """The Markdown file of a lesson, which `read` reads."""
    own = lesson.options != KINDS[lesson.kind].options
    fields = {
        "title": lesson.title, "state": lesson.state, "turn": lesson.turn, "turned": lesson.turned,
        "show": "; ".join(part.written for part in lesson.show), "hide": "; ".join(part.written for part in lesson.hide),
        "kind": lesson.kind, "options": " | ".join(lesson.options) if own else "", "question": lesson.question,
        "answer": lesson.answer, "tolerance": repr(lesson.tolerance) if lesson.tolerance else "",
        "explain": lesson.explain.written if lesson.explain else "", "next": lesson.next,
    }  # fmt: skip
    front = "".join(f"{key}: {value}\n" for key, value in fields.items() if value)
    replies = "".join(f"- {to}: {words}\n" for to, words in lesson.replies)
    return f"---\n{front}---\n{lesson.text}\n\n{replies}"


def several(content: bytes) -> dict[str, Lesson]:
    """The lessons of a person's own file by name, one after the other as they stand there; `next` says nothing in it.

    Their names begin with a digest of the file, so that what was done of one file is nothing done of another.

    Raises:
        AttentionError: it is no such file, or one of them is no lesson.
    """
    if len(content) > MOST_KB * 2**10:
        raise FileError(f"A file of lessons has at most {MOST_KB} KB; got {len(content):,} bytes: make several of it.")
    try:
        text = _clean(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        text = ""
    before, *parts = _DASHES.split(text + "\n")
    if before.strip() or not parts or len(parts) % 2:
        raise FileError(
            "A file of lessons is Markdown, in which each lesson begins with lines such as “title: One score” between two lines of "
            "---; got something else: save one with “Ask about this” in Share, and see what it looks like."
        )
    if len(parts) > 2 * MOST:
        raise FileError(f"A file has at most {MOST} lessons; got {len(parts) // 2}: make several of it.")
    pairs = zip(parts[::2], parts[1::2], strict=True)
    found = [read(str(number), f"---\n{front}---\n{body}") for number, (front, body) in enumerate(pairs, 1)]
    digest = blake2b(content, digest_size=4).hexdigest()
    return {(name := f"{digest}-{one.name}"): replace(one, name=name, next="") for one in found}


def is_own(name: str) -> bool:
    """Whether a lesson of that name is of a person's own file."""
    return _OWN_NAME.fullmatch(name) is not None


def in_order(lessons: Iterable[Lesson]) -> tuple[Lesson, ...]:
    """Lessons one after the other: the first is nobody's next.

    Raises:
        FileError: they are no path.
    """
    by_name = {one.name: one for one in lessons}
    nexts = [one.next for one in by_name.values() if one.next]
    firsts = [name for name in by_name if name not in nexts]
    found: list[Lesson] = []
    name = firsts[0] if len(firsts) == 1 else ""
    while name in by_name and by_name[name] not in found:
        found.append(by_name[name])
        name = found[-1].next
    if not found or name or len(found) != len(by_name):
        raise FileError("Each lesson but the last names the next one, and one is the first: they make no path here.")
    return tuple(found)


@cache
def path() -> dict[str, Lesson]:
    """The lessons from one row of scores to a head of a real model, by name, in their order."""
    files = sorted(_FOLDER.glob("*.md"))
    lessons = in_order(read(file.stem.partition("-")[2], file.read_text(encoding="utf-8")) for file in files)
    return {one.name: one for one in lessons}


def _clean(text: str) -> str:
    """A text without what cannot be seen; its lines end in one way."""
    lines = text.replace("\r\n", "\n").replace("\t", " ")
    return "".join(one for one in lines if one == "\n" or not (unicodedata.category(one) in _UNSEEN or one in _TURNING))


def _field(name: str, line: str) -> tuple[str, str]:
    key, colon, value = line.partition(":")
    key, value = key.strip(), value.strip()
    if not colon or key not in _KNOWN:
        raise FileError(
            f"A line of the lesson {name!r} is one of {', '.join(_KNOWN)}, a colon and a value; got {line[:80]!r}."
        )
    _check_length(f"{key} of the lesson {name!r}", value, _LONGEST_STATE if key in ("state", "turn") else LONGEST)
    return key, value


def _reply(name: str, line: str, options: tuple[str, ...]) -> tuple[str, str]:
    said = line.removeprefix("- ").strip()
    with_colons = [one for one in options if said.startswith(f"{one}:")]
    to, colon, words = said.partition(":")
    if with_colons:
        to = max(with_colons, key=len)
        words = said[len(to) + 1 :]
    if not colon or not words.strip():
        raise FileError(
            f"A reply of the lesson {name!r} is what it replies to, a colon and a sentence; got {line[:80]!r}."
        )
    _check_length(f"a reply of the lesson {name!r}", said, LONGEST)
    return to.strip(), words.strip()


def _check_options(name: str, options: tuple[str, ...], answered: set[str]) -> None:
    """That there are a few different ones, with a reply to each that is wrong; which one is right is not known here."""
    if not 2 <= len(options) <= OPTIONS or len(set(options)) < len(options) or max(map(len, options)) > LONGEST_OPTION:
        raise FileError(
            f"The lesson {name!r} has 2 to {OPTIONS} different options of up to {LONGEST_OPTION} characters with | between them; got "
            f"{' | '.join(options)[:80]!r}: write such."
        )
    if "right" in options:
        raise FileError(
            f"No option of the lesson {name!r} is called “right”, which stands for the right one among the replies: say it in other words."
        )
    if len(mute := [one for one in options if one not in answered]) > 1:
        raise FileError(
            f"Each wrong option of the lesson {name!r} has a reply of its own; “{mute[0]}” and “{mute[1]}” have none: write what one "
            "learns who chose it."
        )


def _tolerance(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise FileError(f"The tolerance of the lesson {name!r} is a number; got {text!r}: write one.")
    return found


def _check_length(what: str, text: str, longest: int) -> None:
    if len(text) > longest:
        raise FileError(f"The {what} has at most {longest:,} characters; got {len(text):,}: say less.")


def _parts(text: str) -> tuple[Part, ...]:
    found = _listed(text, ";")
    if len(found) > _PARTS:
        raise FileError(f"There are at most {_PARTS} parts; got {len(found)}: show less.")
    return tuple(Part.read(one) for one in found)


def _listed(text: str, between: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(between) if one.strip())
