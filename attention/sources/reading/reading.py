"""What a text or a file was read as: one matrix, or a question with the matrices to choose from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import prod

from attention.errors import MatrixError
from attention.sources.reading.matrix import (
    MAX_SIDE,
    Matrix,
    Stack,
    check_size,
    checked,
    of_heads,
    shown,
    stacks,
    too_large,
)

_SAMPLE = 2000  # numbers that are looked at to tell rounded ones


@dataclass(frozen=True)
class Reading:
    """What a text says, as far as the text says it.

    Attributes:
        choices: the matrices it may be, by what tells them apart, or a stack of them; a single one where nothing is open.
        question: what is open, in words; "" where nothing is.
        notes: what was recognised, left out or taken for granted, in sentences.
        label: what the text calls it, such as W_q; "" where it has no name.
        names: of the rows, where a table has them.
        parts: the readings of the single matrices, where the text holds several.
        shape: the sizes of all axes as they were written, rows and columns last; () where several were written.
    """

    choices: Mapping[str, Matrix | Stack]
    question: str = ""
    notes: tuple[str, ...] = ()
    label: str = ""
    shape: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    parts: tuple[Reading, ...] = ()

    def noting(self, *notes: str) -> Reading:
        """The same with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    def chosen(self, pick: str | int | None, name: str) -> Matrix | Stack:
        """The matrix: the only one, or the one that `pick` names or counts.

        Raises:
            MatrixError: there are several and none is picked, or there is no such choice.
        """
        names = list(self.choices)
        if isinstance(pick, int) and 0 <= pick < len(names):
            pick = names[pick]
        if isinstance(pick, str) and pick in self.choices:
            return self.choices[pick]
        if pick is None and len(names) == 1:
            return self.choices[names[0]]
        got = "it is open" if pick is None else f"got {shown(str(pick))}"
        asked = self.question or "Which matrix?"
        offered = ", ".join(map(shown, names[:4])) + (", …" if len(names) > 4 else "")
        raise MatrixError(f"{name} needs an answer to “{asked}”; {got}: choose one of {offered}.")


def stack(rows: Sequence[Sequence[float]], shape: tuple[int, ...], name: str, label: str) -> Reading:
    """The rows as one matrix, or as a batch of `shape`, axes before the rows, one of whose matrices is to be chosen.

    Where there may be one for each head, whether these are the heads is open too.

    Raises:
        MatrixError: too many numbers, or a matrix that `checked` refuses.
    """
    *leading, height, width = shape
    said = " × ".join(map(str, shape))
    if prod(leading) > MAX_SIDE:
        raise too_large(name, f"a batch of {prod(leading):,} matrices")
    check_size(height, width, name)
    if prod(leading) == 1:
        notes = (f"It was written as {said}, a batch of one matrix, which is taken as it is.",) if leading else ()
        return Reading({label: checked(rows, name)}, "", notes, label, shape)
    found: dict[str, Matrix | Stack] = {}
    for i in range(prod(leading)):
        place, rest = [], i
        for size in reversed(leading):
            rest, index = divmod(rest, size)
            place.append(index)
        key = label + "".join(f"[{index}]" for index in reversed(place))
        found[key] = checked(rows[i * height : (i + 1) * height], f"{name}{key.removeprefix(label)}")
    if stacks(name) and prod(leading[:-1]) == 1:
        heads = f"{label}, {len(found)} heads" if label else f"{len(found)} heads"
        matrices: Stack = tuple(of_heads(one)[0] for one in found.values())
        asked = f"Are these {len(found)} matrices, {said}, the heads, or a batch, of which one is meant?"
        return Reading({heads: matrices, **found}, asked, (), label, shape)
    return Reading(found, f"Which of the {len(found)} matrices of this batch of {said}?", (), label, shape)


def several(found: Sequence[Reading], name: str) -> Reading:
    """One reading of all that a text holds; which matrix is meant is open where there are several."""
    if len(found) == 1:
        return found[0]
    choices: dict[str, Matrix | Stack] = {}
    single = [next(iter(one.choices.values())) for one in found if len(one.choices) == 1]
    flat = [of_heads(rows)[0] for rows in single]
    if len(single) == len(found) and all(len(rows) == 1 and len(rows[0]) == len(flat[0][0]) for rows in flat):
        check_size(len(flat), len(flat[0][0]), name)
        choices[f"all {len(flat)} as rows"] = tuple(rows[0] for rows in flat)
    for i, one in enumerate(found):
        for key, rows in one.choices.items():
            if not key and rows in choices.values():
                continue
            called = key or f"matrix {i}"
            if choices.get(called, rows) != rows:  # printed a second time it is no other matrix
                called = f"{called}, matrix {i}"
            choices[called] = rows
    if len(choices) > MAX_SIDE:
        raise too_large(name, f"{len(choices):,} matrices")
    notes = dict.fromkeys(note for one in found for note in one.notes)
    asked = "Which of these matrices is it?" if len(choices) > 1 else ""
    return Reading(choices, asked, tuple(notes), parts=tuple(found))


def decimals(given: Matrix | Stack) -> int | None:
    """After how many digits behind the point the numbers look rounded, from 3 to 8; None where they do not."""
    behind = []
    for number in islice((number for rows in of_heads(given) for row in rows for number in row), _SAMPLE):
        digits, _, power = repr(number).partition("e")
        kept = digits.partition(".")[2].rstrip("0")
        behind.append(len(kept) - int(power or 0) if kept and not power else len(kept))
        if behind[-1] > 8:
            return None
    broken = [digits for digits in behind if digits]
    longest = max(broken, default=0)
    # Nine in ten numbers end in another digit than 0.
    return longest if longest >= 3 and len(broken) >= 3 and 2 * broken.count(longest) >= len(broken) else None


def rounding(given: Matrix | Stack) -> str:
    """A sentence on numbers that look rounded; "" where they do not."""
    if (digits := decimals(given)) is None:
        return ""
    printed = {4: ", as torch prints them", 8: ", as NumPy prints them"}.get(digits, "")
    return f"The numbers have {digits} digits after the point{printed}: where they were rounded, later digits of what follows may differ."
