"""A difference in words: its largest cells, and which tokens have no partner."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from attention.formula.cell import Cell
from attention.formula.layer import Layer
from attention.numbers.alignment import Alignment, Group
from attention.numbers.arithmetic import Explanation, Term, near_of
from attention.numbers.compare import Change, Difference
from attention.printed import Printed, factor, fitting, number, shown
from attention.tokens import label

MOST_NAMED = 24  # tokens without a partner that are named one by one


def words(difference: Difference, a: Layer, b: Layer, change: Change) -> str:
    """A change as a person says it: "`it` → `animal` +0.21"; of a column without a token its number, and beside a token that is there twice its place."""
    sides = (
        _named(a, b, axis, alignment, at)
        for axis, alignment, at in zip(
            difference.step.axes[-2:], (difference.rows, difference.columns), (change.row, change.column), strict=True
        )
    )
    row, column = sides
    sign = "+" if change.value > 0 else ""
    return f"{row} → {column} {sign}{_short(change.value)}"


def alone(alignment: Alignment, a: tuple[str, ...], b: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The tokens of A and those of B that have no partner, with their places: "3 cat"."""
    lone = [one for one in alignment.groups if not one.partners]
    ours, theirs = (
        ([at for span in spans for at in range(*span)] for spans in zip(*lone, strict=True)) if lone else ((), ())
    )
    return _placed(ours, a), _placed(theirs, b)


def told(difference: Difference, cell: Cell) -> Explanation | None:
    """The difference at a cell of A, as the number of B less that of A; None where there is none."""
    row, column = difference.rows.place("a", cell.row), difference.columns.place("a", cell.column)
    value, theirs, ours = (float(one[row, column]) + 0.0 for one in (difference.matrix, difference.b, difference.a))
    if math.isnan(value):
        return None

    def less(digits: int) -> Printed:
        one, other = number(theirs, digits), factor(ours, digits)
        return Printed(f"{one.tex} - {other.tex}", f"{one.text} − {other.text}", one.value - other.value)

    fitted, name = fitting(less, value, 3), f"{difference.step.name}, B − A"
    several = [
        f"{word} of {', '.join(sizes)} pieces"
        for word, axis, at in (("mean", difference.rows, row), ("sum", difference.columns, column))
        if (sizes := _sizes(axis.groups[at]))
    ]
    words = f"What B has here, less what A has{': ' + ' and '.join(several) if several else ''}."
    lines = (rf"B - A &= {fitted.printed.tex}", rf"&{'=' if fitted.agrees else chr(92) + 'approx'} {number(value).tex}")
    step = replace(difference.step, kind="signed")
    return Explanation(
        step,
        replace(cell, step=name),
        value,
        "sum",
        (Term("B", theirs), Term("-A", -ours)),
        lines,
        words,
        short=fitted.printed.text,
        sign="=" if fitted.agrees else "≈",
        near=near_of(difference.matrix),
    )


def _sizes(group: Group) -> list[str]:
    """How many pieces a place has, where there are several: "2 in A"."""
    return [f"{stop - first} in {name}" for name, (first, stop) in zip("AB", group, strict=True) if stop - first > 1]


def places(alignment: Alignment, a: tuple[str, ...], b: tuple[str, ...], escape: bool = True) -> tuple[str, ...]:
    """Each place of an axis with its number and its name: "3 cat"; where A and B differ, with their own numbers: "3 cat · A 3 B 4"."""
    named = zip(alignment.groups, names(alignment, a, b), strict=True)
    return tuple(
        f"{i} {label(token, 40, escape)}{'' if alignment.plain else f' · {_at(one)}'}"
        for i, (one, token) in enumerate(named)
    )


def _at(group: Group) -> str:
    """Where some tokens stand: "A 3 B 4", "A 3–4 B 2", "A 3"."""
    sides = ((name, first, stop) for name, (first, stop) in zip("AB", group, strict=True) if first < stop)
    return " ".join(
        f"{name} {first}" if stop - first == 1 else f"{name} {first}–{stop - 1}" for name, first, stop in sides
    )


def without_partners(difference: Difference, a: Layer, b: Layer) -> list[str]:
    """Sentences on how the two axes were aligned, and which of their tokens have no partner."""
    said = []
    axes = zip(difference.step.axes[-2:], (difference.rows, difference.columns), strict=True)
    for name, (axis, alignment) in zip(("Rows", "Columns"), axes, strict=True):
        ours, theirs = a.labels_of(axis), b.labels_of(axis)
        if not alignment.how or ours is None or theirs is None:
            continue
        lone = zip("AB", alone(alignment, ours, theirs), strict=True)
        parts = [
            f"{', '.join(tokens[:MOST_NAMED])}{f' and {len(tokens) - MOST_NAMED} more' if len(tokens) > MOST_NAMED else ''} in {state}"
            for state, tokens in lone
            if tokens
        ]
        said.append(f"{name}: {alignment.how}." + (f" Without a partner: {'; '.join(parts)}." if parts else ""))
    same = len(said) == 2 and said[0].removeprefix("Rows") == said[1].removeprefix("Columns")
    return [f"Rows and columns{said[0].removeprefix('Rows')}"] if same else said


def names(alignment: Alignment, a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    """What each place of an axis is called: by its token in A, or where A has none, or the pieces are B's, by that in B."""
    return tuple(
        "".join(a[slice(*one.a)]) if one.a[1] - one.a[0] == 1 or one.b[0] == one.b[1] else "".join(b[slice(*one.b)])
        for one in alignment.groups
    )


def _named(a: Layer, b: Layer, axis: str, alignment: Alignment, at: int) -> str:
    ours, theirs = a.labels_of(axis), b.labels_of(axis)
    if ours is None or theirs is None:
        return f"{axis} {at}"
    every = names(alignment, ours, theirs)
    token = label(every[at], 40, escape=False)
    said = f"`{token}`" if "`" not in token else f"`` {token} ``"
    return (
        said
        if every.count(every[at]) == 1
        else f"{said} ({alignment.groups[at].a[0] if alignment.plain else _at(alignment.groups[at])})"
    )


def _short(value: float) -> str:
    """With two decimals, or where these would say 0, as many digits as it needs."""
    return f"{value:.2f}".replace("-", "−") if abs(value) >= 0.005 else shown(value)


def _placed(places: Iterable[int], tokens: tuple[str, ...]) -> list[str]:
    return [f"{at} {label(tokens[at], 40, escape=False)}" for at in places]
