"""Alignments of words as translation programs print them: soft (a weight for each source word) or hard (links).

The formats are those of Marian (`das ist ||| 0.9,0.1 0.2,0.8`, also in n-best lists), fairseq's `--print-alignment` (lines S-, T-, H-, A-),
links as fast_align, awesome-align, SimAlign and OpenNMT print them (`0-0 1-2`), and GIZA++'s A3 files. Rows are the words of the target,
columns those of the source.

Source: Och & Ney 2003, "A systematic comparison of various statistical alignment models" (links); the programs' own printers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from attention.base.errors import FileError

# Possessive, so that a line of a million numbers takes no memory for ways to read it otherwise.
_NUMBER = r"(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+"
_ROW = rf"{_NUMBER}(?:,{_NUMBER})*+"
_SOFT = re.compile(rf"\s*+{_ROW}(?:\s++{_ROW})*+\s*+", re.ASCII)
_LINK = r"\d{1,5}[-p]\d{1,5}(?::[\d.]{1,20})?"  # p: possible, in gold alignments
_HARD = re.compile(rf"\s*+{_LINK}(?:\s++{_LINK})*+\s*+", re.ASCII)
_LINE = re.compile(r"([STHA])-(\d+)\t(.*)")  # of fairseq
_GIZA = re.compile(r"(\S+) \(\{((?: \d{1,5})*) \}\)", re.ASCII)
_END = "</s>"
_MAX_SENTENCES = 2**12
_MAX_LINE = 2**22  # characters
_MAX_CELLS = 2**14  # words of a sentence, and links
_LOOKED_AT = 20  # lines


class Alignment(NamedTuple):
    """The alignment of one sentence.

    Attributes:
        rows: [target source], a weight, or 1 for a link and 0 for none.
        target: the words of the rows; empty if they are not printed.
        source: the words of the columns; likewise.
        is_soft: whether the numbers are weights; otherwise they are links.
    """

    rows: list[list[float]]
    target: list[str]
    source: list[str]
    is_soft: bool


def read_alignments(text: str, name: str, most: int) -> list[Alignment] | None:
    """The alignments of all sentences of a text; None if it is in none of the formats, by its first lines.

    Args:
        text: the content of the file.
        name: of the file, for errors.
        most: the numbers that all sentences may have together.

    Raises:
        FileError: too many sentences or numbers, or a line that does not fit the others.
    """
    first = [line for line in text[:50_000].splitlines()[:_LOOKED_AT] if line.strip()]
    read: Callable[[list[str]], Iterator[_Part]] = partial(_of_lines, name=name)
    if any(line.startswith("A-") and _LINE.fullmatch(line) for line in first):
        read = _of_fairseq
    elif len(first) > 2 and _GIZA.match(first[2]):
        read = _of_giza
    elif not first or not (
        all(map(_HARD.fullmatch, first))
        or any(" ||| " in line and any(map(_is_cells, line.split("|||")[1:])) for line in first)
    ):
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    if max(map(len, lines)) > _MAX_LINE:
        raise _too_many(name, f"{_MAX_LINE:,} characters in a line")
    alignments = list[Alignment]()
    for cells, target, source in read(lines):
        rows, is_soft = _rows(cells, target, source, name, most)
        most -= sum(map(len, rows))
        alignments.append(Alignment(rows, _words(target, len(rows)), _words(source, len(rows[0])), is_soft))
        if len(alignments) > _MAX_SENTENCES:
            raise _too_many(name, f"{_MAX_SENTENCES:,} sentences")
    return alignments


def _is_cells(field: str) -> bool:
    return bool(_SOFT.fullmatch(field) and "," in field) or _HARD.fullmatch(field) is not None


_Part = tuple[str, list[str], list[str]]
"""The printed cells, the words of the target and those of the source."""


def _of_lines(lines: list[str], name: str) -> Iterator[_Part]:
    """Lines of links alone, or with texts before them: `target ||| cells`, `source ||| target ||| cells`, an n-best list."""
    for number, line in enumerate(lines):
        fields = line.split("|||")
        at = next((i for i, field in enumerate(fields) if _HARD.fullmatch(field) or (i and _is_cells(field))), None)
        if at is None:  # one word of the source: no comma
            at = next((i for i, field in enumerate(fields) if i and _SOFT.fullmatch(field)), None)
        if at is None:
            raise FileError(
                f"{name} has alignments such as “0.9,0.1 0.2,0.8” or “0-0 1-2” in its other lines; line {number} has {line[:40]!r}: save every line in the same form."
            )
        texts = [field for i, field in enumerate(fields[:at]) if i or not field.strip().isdecimal()]
        yield fields[at], texts[-1].split() if texts else [], texts[0].split() if len(texts) > 1 else []


def _of_fairseq(lines: list[str]) -> Iterator[_Part]:
    """The lines A-, each with the words of its S- and of the last H- (or T-) before it."""
    texts: dict[tuple[str, str], list[str]] = {}
    for match in filter(None, map(_LINE.fullmatch, lines)):
        kind, number, rest = match.groups()
        if kind == "A":
            target = texts.get(("H", number)) or texts.get(("T", number), [])
            yield rest, target, texts.get(("S", number), [])
        else:
            texts[kind, number] = rest.rpartition("\t")[2].split()


def _of_giza(lines: list[str]) -> Iterator[_Part]:
    """Three lines for each sentence: a comment, the target, and each word of the source with the positions of its targets, from 1."""
    for target, source in zip(lines[1::3], lines[2::3], strict=False):
        words = _GIZA.findall(source)
        first = int(bool(words) and words[0][0] == "NULL")
        links = (f"{i}-{int(at) - 1}" for i, (_, ats) in enumerate(words[first:]) for at in ats.split() if int(at))
        yield " ".join(links), target.split(), [word for word, _ in words[first:]]


def _rows(cells: str, target: list[str], source: list[str], name: str, most: int) -> tuple[list[list[float]], bool]:
    """The matrix of printed cells, and whether it is soft."""
    pieces = cells.split(None, _MAX_CELLS)
    if len(pieces) > _MAX_CELLS:
        raise _too_many(name, f"{_MAX_CELLS:,} words or links in a line")
    if pieces and not _HARD.fullmatch(cells):
        if not _SOFT.fullmatch(cells):
            raise FileError(
                f"{name} needs weights such as “0.9,0.1 0.2,0.8” or links such as “0-0 1-2”; got {cells.strip()[:40]!r}: save the file again."
            )
        if cells.count(",") + len(pieces) > most:
            raise _too_many(name, f"{most:,} numbers")
        rows = [list(map(float, piece.split(","))) for piece in pieces]
        widths = {len(row) for row in rows}
        if len(widths) > 1:
            raise FileError(
                f"{name} needs a weight for each source word in every row; got rows of {min(widths)} and {max(widths)} weights: save the complete lines."
            )
        return rows, True
    links = [re.split("[-p:]", piece) for piece in pieces]
    width, height = (
        max([len(words), *(int(link[side]) + 1 for link in links)]) for side, words in enumerate((source, target))
    )
    if width * height > most:
        raise _too_many(name, f"{most:,} numbers")
    if not width * height:
        raise FileError(f"{name} has a sentence without a link and without words: delete its line.")
    rows = [[0.0] * width for _ in range(height)]
    for link in links:
        rows[int(link[1])][int(link[0])] = float(link[2]) if len(link) > 2 else 1.0
    return rows, False


def _words(words: list[str], size: int) -> list[str]:
    """The words of an axis, with the end of the sentence, which is not printed, if there is one more; none if they do not fit."""
    return words if len(words) == size else [*words, _END] if words and len(words) + 1 == size else []


def _too_many(name: str, limit: str) -> FileError:
    return FileError(f"{name} has more than {limit}, which is the limit of a text: save fewer or shorter sentences.")
