"""The result of reading a text or a file: one matrix, or a question with the matrices to choose from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod

from attention.errors import MatrixError
from attention.io.text.matrix import (
    MAX_SIDE,
    Matrix,
    Stack,
    allows_stack,
    as_stack,
    check_size,
    excerpt,
    too_large_error,
    validate_matrix,
)

_SAMPLE_SIZE = 2000  # numbers that are inspected for rounding


@dataclass(frozen=True)
class ParsedText:
    """The matrices that a text may mean.

    Attributes:
        choices: the possible matrices, or stacks of them, by a distinguishing label; a single one if nothing is ambiguous.
        question: the question that selects a choice; "" if nothing is ambiguous.
        notes: sentences on what was recognised, ignored or assumed.
        label: the name in the text, such as W_q; "" without a name.
        names: the names of the rows in a table.
        parts: the readings of the single matrices, if the text has several.
        shape: the sizes of all axes as written, rows and columns last; () if several matrices were written.
    """

    choices: Mapping[str, Matrix | Stack]
    question: str = ""
    notes: tuple[str, ...] = ()
    label: str = ""
    shape: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    parts: tuple[ParsedText, ...] = ()

    def with_notes(self, *notes: str) -> ParsedText:
        """The reading with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    def choose(self, pick: str | int | None, name: str) -> Matrix | Stack:
        """The only matrix, or the one that `pick` selects by label or index.

        Raises:
            MatrixError: there are several and none is picked, or the choice does not exist.
        """
        names = list(self.choices)
        if isinstance(pick, int) and 0 <= pick < len(names):
            pick = names[pick]
        if isinstance(pick, str) and pick in self.choices:
            return self.choices[pick]
        if pick is None and len(names) == 1:
            return self.choices[names[0]]
        got = "none was chosen" if pick is None else f"got {excerpt(str(pick))}"
        question = self.question or "Which matrix?"
        offered = ", ".join(map(excerpt, names[:4])) + (", …" if len(names) > 4 else "")
        raise MatrixError(f"{name} needs an answer to “{question}”; {got}: choose one of {offered}.")


def batch_reading(rows: Sequence[Sequence[float]], shape: tuple[int, ...], name: str, label: str) -> ParsedText:
    """The rows as one matrix, or as a batch with leading axes, with a question for the matrix that is meant.

    If a field may hold one matrix for each head, the batch itself is a choice, too.

    Raises:
        MatrixError: too many numbers, or a matrix that `validate_matrix` refuses.
    """
    *leading, height, width = shape
    shape_text = " × ".join(map(str, shape))
    if prod(leading) > MAX_SIDE:
        raise too_large_error(name, f"a batch of {prod(leading):,} matrices")
    check_size(height, width, name)
    if prod(leading) == 1:
        notes = (f"It was written as {shape_text}, a batch of one matrix; that matrix is used.",) if leading else ()
        return ParsedText({label: validate_matrix(rows, name)}, "", notes, label, shape)
    choices: dict[str, Matrix | Stack] = {}
    for i in range(prod(leading)):
        indices, remainder = [], i
        for size in reversed(leading):
            remainder, index = divmod(remainder, size)
            indices.append(index)
        key = label + "".join(f"[{index}]" for index in reversed(indices))
        choices[key] = validate_matrix(rows[i * height : (i + 1) * height], f"{name}{key.removeprefix(label)}")
    if allows_stack(name) and prod(leading[:-1]) == 1:
        heads = f"{label}, {len(choices)} heads" if label else f"{len(choices)} heads"
        matrices: Stack = tuple(as_stack(matrix)[0] for matrix in choices.values())
        question = f"Are these {len(choices)} matrices ({shape_text}) the heads, or is one of them meant?"
        return ParsedText({heads: matrices, **choices}, question, (), label, shape)
    return ParsedText(choices, f"Which of the {len(choices)} matrices in this batch ({shape_text})?", (), label, shape)


def combine(readings: Sequence[ParsedText], name: str) -> ParsedText:
    """One reading of all matrices in a text; with a question if there are several."""
    if len(readings) == 1:
        return readings[0]
    choices: dict[str, Matrix | Stack] = {}
    unambiguous = [next(iter(reading.choices.values())) for reading in readings if len(reading.choices) == 1]
    first_matrices = [as_stack(rows)[0] for rows in unambiguous]
    if len(unambiguous) == len(readings) and all(
        len(rows) == 1 and len(rows[0]) == len(first_matrices[0][0]) for rows in first_matrices
    ):
        check_size(len(first_matrices), len(first_matrices[0][0]), name)
        choices[f"all {len(first_matrices)} as rows"] = tuple(rows[0] for rows in first_matrices)
    for i, reading in enumerate(readings):
        for key, rows in reading.choices.items():
            if not key and rows in choices.values():
                continue
            label = key or f"matrix {i}"
            if choices.get(label, rows) != rows:  # a repeated print of the same matrix is no new choice
                label = f"{label}, matrix {i}"
            choices[label] = rows
    if len(choices) > MAX_SIDE:
        raise too_large_error(name, f"{len(choices):,} matrices")
    notes = dict.fromkeys(note for reading in readings for note in reading.notes)
    question = "Which of these matrices is it?" if len(choices) > 1 else ""
    return ParsedText(choices, question, tuple(notes), parts=tuple(readings))


def rounded_decimals(matrix: Matrix | Stack) -> int | None:
    """The number of decimals, 3 to 8, to which the numbers appear to be rounded; None if they do not."""
    counts = []
    for number in islice((number for rows in as_stack(matrix) for row in rows for number in row), _SAMPLE_SIZE):
        digits, _, power = repr(number).partition("e")
        fraction = digits.partition(".")[2].rstrip("0")
        counts.append(len(fraction) - int(power or 0) if fraction and not power else len(fraction))
        if counts[-1] > 8:
            return None
    nonzero_counts = [digits for digits in counts if digits]
    longest = max(nonzero_counts, default=0)
    # Nine of ten rounded numbers end in a digit other than 0.
    return (
        longest
        if longest >= 3 and len(nonzero_counts) >= 3 and 2 * nonzero_counts.count(longest) >= len(nonzero_counts)
        else None
    )


def rounding_note(matrix: Matrix | Stack) -> str:
    """A note on numbers that appear to be rounded; "" otherwise."""
    if (digits := rounded_decimals(matrix)) is None:
        return ""
    source = {4: ", as torch prints them", 8: ", as NumPy prints them"}.get(digits, "")
    return f"The numbers have {digits} digits after the point{source}: if they were rounded, the last digits of later steps may differ."
