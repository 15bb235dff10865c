"""A file from an untrusted source is opened by its extension: arrays by `attention.files.archives`, texts here, as a table or as alignments.

A table is a map of weights or of scores, whose labels are its tokens: CSV, TSV and aligned columns of pandas, R, spreadsheets and the Lab, and pandas' JSON.
The text is converted row by row, so that it takes eight bytes a number.

Alignments of words are soft (a weight for each source word) or hard (links), as translation programs print them: those of Marian
(`das ist ||| 0.9,0.1 0.2,0.8`, also in n-best lists), of fairseq's `--print-alignment` (lines S-, T-, H-, A-), links of fast_align,
awesome-align, SimAlign and OpenNMT (`0-0 1-2`), and GIZA++'s A3 files. Rows are the words of the target, columns those of the source.
Source: Och & Ney 2003, "A systematic comparison of various statistical alignment models" (links); the programs' own printers.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from itertools import chain, islice
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.base.errors import ConfigError, FileError, MatrixError
from attention.files import archives
from attention.files.archives import DOUBLE, Archive, Entry, format_shape, json_archive, quote, read_json
from attention.files.cells import (
    AXES,
    Labels,
    as_tokens,
    counts_from_zero,
    decode,
    find_labels,
    is_number,
    parse_row,
    split,
)
from attention.files.matrix import as_stack
from attention.formula.names import KEY, MASKED_SCORES, QUERY, SCORES, WEIGHTS
from attention.formula.steps import MAP_AXES, find_step, is_step

if TYPE_CHECKING:
    from torch import Tensor

_TABLES = (".csv", ".tsv", ".txt")
EXTENSIONS = (*archives.EXTENSIONS, *_TABLES)
"""The extensions of files that are opened."""
TEXT_EXTENSIONS = (*_TABLES, ".json", ".jsonl")
"""Those of texts, which are parsed completely before one number is known."""
# Libraries that are not installed read these.
_CONVERSIONS = {
    ".mat": "numpy.savez('attention.npz', weights=scipy.io.loadmat(path)['weights'])",
    ".h5": "numpy.savez('attention.npz', weights=h5py.File(path)['weights'][()])",
}
_CONVERSIONS[".hdf5"] = _CONVERSIONS[".h5"]
MEANINGS = ("numbers", WEIGHTS, SCORES)
"""What the numbers of a table are: what they say (weights, if no number is negative and the rows sum to 1), weights, or scores."""
_MAX_NUMBERS = 2**22  # 2,048 × 2,048; a text of so many takes a second
_MAX_CELLS = 2**14  # in a line, and lines
_SAMPLE = 64  # rows that decide what is a heading
_STEP = re.compile(r"[a-z]+(?:_[a-z]+)*")
_PLACES = ("picture", "row", "column")  # of a patch, in a long table
_NO_MAPS = {
    "-B-minus-A": "is the difference of two states: open the state of each, or a table of each, and compare them on Explore",
    "logit-effect": "is what each cell adds to a logit, which is neither weights nor scores: open weights.csv, or attention.npz, which has every step",
}
"""Maps of the Lab that are no attention, by a part of their names, and what to open instead."""
_FEATURE_AXES = ("d_model", "d_k", "d_v")  # of a long table
_FEATURES = "{} has the features of each token, not its attention to others: open weights.csv or scores.csv, or attention.npz, which has every step."


def open_file(name: str, content: bytes) -> Archive:
    """The contents of a file.

    Raises:
        FileError: another extension, or a damaged file.
    """
    ending = PurePath(name).suffix.lower()
    if ending not in EXTENSIONS:
        advice = (
            f"in Python, {_CONVERSIONS[ending]} makes one of these, with the name of your array in place of the second “weights”"
            if ending in _CONVERSIONS
            else "save it as one of these"
        )
        raise FileError(
            f"A file with attention ends in {', '.join(EXTENSIONS[:-1])} or {EXTENSIONS[-1]}; got {quote(name)}: {advice}."
        )
    if ending not in archives.EXTENSIONS:
        return _read_table(quote(name), name, content)
    if ending == ".json":
        document, is_lines = read_json(quote(name), content)
        table = None if is_lines else _json_table(document)
        return table or json_archive(quote(name), document, is_lines)
    return archives.open_archive(name, content)


def as_meant(archive: Archive, means: str, axes: str) -> Archive:
    """The archive of a table, with its only map as weights or as scores, by one of `MEANINGS`, and its labels at the axes that the user names; others as they are.

    Raises:
        ConfigError: another meaning.
    """
    if means not in MEANINGS:
        raise ConfigError(f"table_means is one of {', '.join(MEANINGS)}; got {str(means)[:20]!r}: choose one of them.")
    arrays, metadata = dict(archive.arrays), dict(archive.metadata)
    if not archive.is_table:
        return archive
    if means != MEANINGS[0] and len(arrays) == 1:
        archive = replace(archive, notes=tuple(note for note in archive.notes if "table_means" not in note))
        arrays = {means: next(iter(arrays.values()))}
    if axes.split()[-2:] == [KEY, QUERY]:
        swapped = {"tokens": metadata.get("key_tokens"), "key_tokens": metadata.get("tokens")}
        metadata = {key: value for key, value in (metadata | swapped).items() if value}
    return replace(archive, arrays=arrays, metadata=metadata)


class _Table(NamedTuple):
    """The maps of a table by step ("": its numbers decide), each [head query key] or [query key], and the labels of its rows and columns."""

    maps: dict[str, tuple[array[float], tuple[int, ...]]]
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()
    notes: tuple[str, ...] = ()
    has_sums: bool = False


def _read_table(name: str, file_name: str, content: bytes) -> Archive:
    """The map of a table, or of each sentence of alignments; of prints of NumPy, torch and others as in a pasted matrix. The name is quoted."""
    text = decode(content)
    if (archive := _read_alignments(text, name)) is not None:
        return archive
    if reason := next((reason for part, reason in _NO_MAPS.items() if part in file_name), ""):
        raise FileError(f"{name} {reason}.")
    try:
        return _archive(_read(text, name), _step_of(file_name))
    except MatrixError as error:
        raise FileError(str(error)) from None


def _step_of(file_name: str) -> str:
    match = _STEP.match(PurePath(file_name).stem)
    return match[0] if match and is_step(match[0]) else ""


def _read(text: str, name: str) -> _Table:
    """The maps of a text: a table, whose rows are read one by one, or a print, which is read like a pasted matrix."""
    lines = (line for line in StringIO(text, newline="") if not line.isspace())
    sample = list(islice(lines, _SAMPLE))
    if sample and sample[0].startswith(("sep=", "# ")):  # of a spreadsheet; of `numpy.savetxt`
        sample.pop(0)
    rows, mark = split(chain(sample, lines), sample, name, _MAX_CELLS)
    head = list(islice(rows, _SAMPLE))
    labels = find_labels(head)
    # A print may have a name or a scale above it; a table with quotation marks is none.
    is_print = mark is None and not all(is_number(cell) for row in head for cell in row) and '"' not in sample[0]
    if not is_print:
        try:
            if labels.has_heading and any(column in _FEATURE_AXES for column in head[0]):
                raise FileError(_FEATURES.format(name))
            if labels.has_heading and {QUERY, KEY} <= set(head[0]):
                return _read_long(head[0], chain(head[1:], rows), name)
            return _read_wide(chain(head, rows), labels, name)
        except MatrixError as error:
            if labels.has_heading and labels.has_names:
                raise
            problem = error
    try:
        return _read_print(text, name)
    except MatrixError:
        if is_print or "[" in text or "\\begin" in text:
            raise
        raise problem from None


def _read_wide(rows: Iterator[list[str]], labels: Labels, name: str) -> _Table:
    if labels.corner in AXES and counts_from_zero(labels.columns):
        raise FileError(_FEATURES.format(name))
    names, numbers, height = list[str](), array("d"), 0
    width, comma = len(labels.columns), False
    for cells in islice(rows, int(labels.has_heading), None):
        names += cells[: int(labels.has_names)]
        values = cells[labels.numbers]
        comma = comma or any("," in cell for cell in values)
        width = width or len(values)
        if max(len(cells), height) > _MAX_CELLS or len(numbers) > _MAX_NUMBERS:
            raise FileError(
                f"{name} may have {_MAX_NUMBERS:,} numbers as text, and {_MAX_CELLS:,} rows or columns; got more: save it as .npz or .safetensors."
            )
        if len(values) != width:
            raise MatrixError(
                f"{name} needs rows of equal length; row {height} has {len(values):,} numbers, the first has {width:,}: "
                "save the complete table, with quotation marks around labels."
            )
        numbers.extend(parse_row(values, comma, name, height))
        height += 1
    if not numbers:
        raise MatrixError(
            f"{name} needs at least one number; got {'only labels' if labels.has_heading else 'none'}: save a table of numbers."
        )
    if not labels.has_heading and height == width + 1 and numbers[:width].tolist() == list(range(width)):
        numbers, height = numbers[width:], height - 1  # pandas' numbers of the columns
    return _Table({"": (numbers, (height, width))}, names, labels.columns, has_sums=labels.numbers.stop == -1)


def _read_long(columns: Sequence[str], rows: Iterable[list[str]], name: str) -> _Table:
    """A table with a row for each cell: query, key and one or several values, with or without head, in any order."""
    steps = [column for column in columns if is_step(column) and column not in (QUERY, KEY)]
    others = {"head", QUERY, KEY, *(f"{axis}_{place}" for axis in (QUERY, KEY) for place in _PLACES)}
    values = steps or [column for column in columns if column not in others][-1:]
    axes = [columns.index(axis) for axis in ("head", QUERY, KEY) if axis in columns]
    places = [columns.index(value) for value in values]
    if not values:
        raise MatrixError(
            f"{name} has the columns {', '.join(columns)[:60]}, and none with numbers: add one, such as weights."
        )
    labels: list[dict[str, int]] = [{} for _ in axes]
    cells, numbers = array("l"), [array("d") for _ in values]
    for number, row in enumerate(rows):
        if len(row) != len(columns):
            raise MatrixError(
                f"{name} needs {len(columns)} cells in each row; row {number} has {len(row)}: save the complete table."
            )
        for known, place in zip(labels, axes, strict=True):
            cells.append(known.setdefault(row[place], len(known)))
        for value, place in zip(numbers, places, strict=True):
            value.extend(parse_row((row[place],), "," in row[place], name, number))
        if number >= _MAX_NUMBERS:
            raise FileError(f"{name} may have {_MAX_NUMBERS:,} rows; got more: save it as .npz or .safetensors.")
    shape = tuple(map(len, labels))
    # Rows that a spreadsheet sorted: tables of the Lab begin labels with positions.
    for axis, known in enumerate(labels):
        positions = [label.partition(" ")[0] for label in known]
        if set(positions) == set(map(str, range(len(known)))):
            cells[axis :: len(axes)] = array("l", [int(positions[at]) for at in cells[axis :: len(axes)]])
            labels[axis] = dict.fromkeys(sorted(known, key=lambda label: int(label.partition(" ")[0])), 0)
    return _Table(
        {
            step if step in steps else "": (_placed(cells, value, shape, name), shape)
            for step, value in zip(values, numbers, strict=True)
        },
        list(labels[-2]),
        list(labels[-1]),
    )


def _placed(cells: array[int], values: array[float], shape: tuple[int, ...], name: str) -> array[float]:
    size = math.prod(shape)
    if size != len(values):
        raise MatrixError(
            f"{name} has {len(values):,} rows for {format_shape(shape)} labels: save a row for each pair of a query and a key, with labels that differ, such as “3 the”."
        )
    import numpy as np

    placed = np.full(shape, math.nan)
    placed[tuple(np.array(cells).reshape(-1, len(shape)).T)] = values
    if np.isnan(placed).any():
        raise MatrixError(
            f"{name} has two rows for one pair of a query and a key: give each token a label of its own, such as “3 the”."
        )
    return array("d", placed.tobytes())


def _read_print(text: str, name: str) -> _Table:
    """What NumPy, torch, pandas and others print, as in a pasted matrix; several heads are a stack."""
    from attention.files.matrix_text import parse_text

    reading = parse_text(text, name)
    choice = next(iter(reading.choices.values()))
    if reading.question and reading.shape[:-2] != () and math.prod(reading.shape[:-3]) == 1:
        choice = tuple(as_stack(matrix)[0] for matrix in reading.choices.values())
    elif reading.question:
        square = [matrix for matrix in reading.choices.values() if len(matrix) == len(matrix[0])]
        choice = square[0] if len(square) == 1 else reading.choose(None, name)
    stack = as_stack(choice)
    shape = (len(stack),) * (len(stack) > 1) + (len(stack[0]), len(stack[0][0]))
    numbers = array("d", (number for matrix in stack for row in matrix for number in row))
    return _Table({"": (numbers, shape)}, reading.names, reading.columns, reading.notes)


def _json_table(document: Any) -> Archive | None:
    """The map of a table that pandas' `to_json` wrote with labels, or of a list of records; None for any other document."""
    rows: Any = ()
    if isinstance(document, dict) and "schema" in document:  # orient="table"
        document = document.get("data")
    if isinstance(document, dict) and {"columns", "index", "data"} <= document.keys():
        columns, rows, cells = (document[key] for key in ("columns", "index", "data"))
    else:
        is_records = isinstance(document, list)
        parts: Any = document if is_records else list(document.values()) if isinstance(document, dict) else []
        if not parts or not all(isinstance(part, dict) and part.keys() == parts[0].keys() for part in parts):
            return None
        rows = [part["index"] for part in parts if "index" in part] if is_records else list(document)
        columns = [key for key in parts[0] if not is_records or key != "index"]
        cells = [[part[key] for key in columns] for part in parts]
        if not is_records and (not _are_weights(cells) or _are_weights(list(zip(*cells, strict=True)))):
            rows, columns, cells = columns, rows, list(map(list, zip(*cells, strict=True)))  # {column: {row: number}}
    lists = all(isinstance(axis, list) and axis for axis in (columns, cells)) and isinstance(rows, list | tuple)
    if not lists or not all(isinstance(row, list) and len(row) == len(columns) and {*map(type, row)} <= {int, float} for row in cells):  # fmt: skip
        return None
    row_labels, column_labels = (tuple(map(str, axis)) for axis in (rows, columns))
    numbers = array("d", chain.from_iterable(cells))
    table = _Table({"": (numbers, (len(cells), len(columns)))}, row_labels, column_labels)
    return _archive(table, "")


def _are_weights(rows: Sequence[Sequence[Any]]) -> bool:
    try:
        return all(min(row) >= 0 and abs(sum(row) - 1) < 1e-3 for row in rows)
    except (TypeError, ValueError):
        return False


def _archive(table: _Table, named: str) -> Archive:
    """The maps as arrays, with the labels as tokens; `named` is the step in the name of the file."""
    arrays, notes, known = dict[str, Entry](), list(table.notes), (WEIGHTS, SCORES, MASKED_SCORES)
    for step, (numbers, shape) in table.maps.items():
        meaning, why = step or named, "its name says so"
        if not meaning:
            meaning, why = (WEIGHTS, "it has the sums of its rows") if table.has_sums else _meaning(numbers, shape[-1])
        elif meaning not in known and is_step(meaning) and find_step(meaning).axes == MAP_AXES:
            meaning = WEIGHTS if find_step(meaning).kind == "probability" else SCORES
        if len(table.maps) == 1:
            softmax = ", of which the softmax makes weights" * (meaning == SCORES)
            notes.append(
                f"The table is read as {meaning.replace('_', ' ')}{softmax}, since {why}; if that is wrong, choose “The table means” (in Python table_means)."
            )
        arrays[meaning] = Entry(shape, DOUBLE, partial(_load, numbers, shape))
    *_, height, width = next(iter(table.maps.values()))[1]
    rows, columns = map(as_tokens, (table.rows, table.columns))
    numbered = tuple(f"x{i}" for i in range(height)) if columns else ()  # a heading names the columns alone
    texts = {"tokens": rows or (columns if height == width else numbered), "key_tokens": columns}
    metadata = {key: list(labels) for key, labels in texts.items() if labels}
    return Archive(arrays, metadata, notes=tuple(notes), is_table=True)


def _load(numbers: array[float], shape: tuple[int, ...]) -> Tensor:
    import torch

    return torch.frombuffer(bytearray(numbers), dtype=torch.float64).reshape(shape)


def _meaning(numbers: array[float], width: int) -> tuple[str, str]:
    """The step of a map whose numbers decide, and why."""
    import numpy as np

    rows = np.frombuffer(numbers).reshape(-1, width)
    if bool((rows == -math.inf).any()):
        return MASKED_SCORES, "it has −∞, which hides a key"
    if rows.min() < 0:
        return SCORES, "it has negative numbers"
    # Weights that were rounded to some decimals sum to 1 within half a unit of the last one for each.
    decimals = next((digits for digits in range(1, 6) if np.array_equal(rows.round(digits), rows)), 6)
    tolerance = max(1e-3, 0.5 * 10.0**-decimals * width) if decimals > 1 else 1e-3
    sums = rows.sum(1)
    if bool((np.abs(sums[sums != 0] - 1) <= tolerance).all()) and sums.any():
        return WEIGHTS, "its rows sum to 1"
    if bool((np.abs(rows.sum(0) - 1) <= 1e-3).all()):
        return WEIGHTS, "its columns sum to 1"
    return SCORES, f"its rows sum to other values than 1, such as {sums[0]:.4g}"


# Alignments of words.

# Possessive, so that a line of a million numbers takes no memory for ways to read it otherwise.
_WEIGHT = r"(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+"
_ROW = rf"{_WEIGHT}(?:,{_WEIGHT})*+"
_SOFT = re.compile(rf"\s*+{_ROW}(?:\s++{_ROW})*+\s*+", re.ASCII)
_LINK = r"\d{1,5}[-p]\d{1,5}(?::[\d.]{1,20})?"  # p: possible, in gold alignments
_HARD = re.compile(rf"\s*+{_LINK}(?:\s++{_LINK})*+\s*+", re.ASCII)
_LINE = re.compile(r"([STHA])-(\d+)\t(.*)")  # of fairseq
_GIZA = re.compile(r"(\S+) \(\{((?: \d{1,5})*) \}\)", re.ASCII)
_END = "</s>"
_MAX_SENTENCES = 2**12
_MAX_LINE = 2**22  # characters


def _read_alignments(text: str, name: str) -> Archive | None:
    """Each sentence of a text of alignments as an array of its own, of which the user chooses one; None if it is in none of the formats, by its first lines."""
    first = [line for line in text[:50_000].splitlines()[:20] if line.strip()]
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
    entries, tokens, key_tokens = list[Entry](), list[list[str]](), list[list[str]]()
    most, cells_are = _MAX_NUMBERS, ""
    for cells, target, source in read(lines):
        rows, is_soft = _matrix(cells, target, source, name, most)
        cells_are = cells_are or ("their weights" if is_soft else "1 for a link and 0 for none")
        shape = len(rows), len(rows[0])
        most -= math.prod(shape)
        entries.append(Entry(shape, DOUBLE, partial(_load, array("d", chain.from_iterable(rows)), shape)))
        tokens.append(_fitting(target, shape[0], "x"))
        key_tokens.append(_fitting(source, shape[1], "k"))
        if len(entries) > _MAX_SENTENCES:
            raise _too_many(name, f"{_MAX_SENTENCES:,} sentences")
    if not entries:
        return None
    note = f"The text is read as an alignment: rows are the words of the target, columns those of the source, cells {cells_are}."
    if len(entries) == 1:
        metadata: dict[str, Any] = {"tokens": tokens[0], "key_tokens": key_tokens[0]}
        return Archive({WEIGHTS: entries[0]}, metadata, notes=(note,), is_table=True)
    arrays = {f"sentence_{number}.{WEIGHTS}": entry for number, entry in enumerate(entries)}
    return Archive(arrays, {"tokens": tokens, "key_tokens": key_tokens}, notes=(note,), is_table=True)


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


def _matrix(cells: str, target: list[str], source: list[str], name: str, most: int) -> tuple[list[list[float]], bool]:
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


def _fitting(words: list[str], size: int, letter: str) -> list[str]:
    """The words of an axis, with the end of the sentence, which is not printed, if there is one more; numbered labels if they do not fit."""
    if words and len(words) + 1 == size:
        return [*words, _END]
    return words if len(words) == size else [f"{letter}{i}" for i in range(size)]


def _too_many(name: str, limit: str) -> FileError:
    return FileError(f"{name} has more than {limit}, which is the limit of a text: save fewer or shorter sentences.")
