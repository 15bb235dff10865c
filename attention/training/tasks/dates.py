"""The task of a tiny translation: a date as people write it, into ISO 8601."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING

from attention.errors import TextError
from attention.training.tasks.task import Example

if TYPE_CHECKING:
    import torch

    from attention.training.design import Design
    from attention.training.network import Batch

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")  # fmt: skip
SYMBOLS = "\0 ,.0123456789ADFJMNOSabceghilmnoprstuvy"  # the first fills shorter dates up
ISO = "0123456789-"
LONGEST = 18  # characters: September 30, 2024
YEARS = (1000, 2999)
STYLES = ("{day} {month} {year}", "{month} {day}, {year}", "{day} {short} {year}", "{day:02}.{number:02}.{year}")


def written(style: int, year: int, month: int, day: int) -> str:
    """A date as people write it, in one of the `STYLES`."""
    name = MONTHS[month - 1]
    return STYLES[style].format(day=day, month=name, short=name[:3], number=month, year=year)


def dates(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """The characters of a date, filled up, then its ISO digits, then for each of these where it stands: gold, 0 for nowhere."""
    import torch

    year = torch.randint(YEARS[0], YEARS[1] + 1, (count,), generator=generator)
    month, day = (torch.randint(1, most, (count,), generator=generator) for most in (13, 29))
    style = torch.randint(len(STYLES), (count,), generator=generator)
    return torch.tensor(
        [spelled(*one) for one in zip(style.tolist(), year.tolist(), month.tolist(), day.tolist(), strict=True)]
    )


def spelled(style: int, year: int, month: int, day: int) -> list[int]:
    """One row of `dates`. Each place of the ISO date has a bit for each character that says it."""
    text = written(style, year, month, day)
    at_year = text.index(str(year))
    number, name = f"{day:02}", MONTHS[month - 1]
    spots = [{at_year + i} for i in range(4)]
    if style == 3:
        months, days = [{3}, {4}], [{0}, {1}]
    else:
        begins = text.index(name[:3])
        letters = set(range(begins, begins + (3 if style == 2 else len(name))))
        at_day = text.index(str(day), len(name) if style == 1 else 0)
        months = [letters, letters]
        days = [{at_day}, {at_day + 1}] if day > 9 else [set(), {at_day}]
    iso = f"{year:04}-{month:02}-{number}"
    gold = [*spots, set(), *months, set(), *days]
    ids = [SYMBOLS.index(one) for one in text.ljust(LONGEST, "\0")]
    return [*ids, *map(ISO.index, iso), *(sum(1 << i for i in one) for one in gold)]


def translated(ids: torch.Tensor, design: Design) -> Batch:
    """Every character of the ISO date, each asked by its place; gold is what says it."""
    import torch

    from attention.training.network import Batch

    longest = ids.shape[1] - 20
    text, answers, bits = ids[:, :longest], ids[:, longest:-10], ids[:, -10:]
    gold = (bits[:, :, None] >> torch.arange(longest)) % 2 == 1
    real = text > 0
    return Batch(torch.arange(10).expand(len(ids), -1), answers, gold, (text,), None if bool(real.all()) else real)


def read_date(text: str, design: Design) -> Example:
    """A date in one of the four styles that the model has learned.

    Raises:
        TextError: it is something else, or there is no such day.
    """
    import torch

    typed = " ".join(text.split())
    for style, (year, month, day) in _candidates(typed):
        try:
            date(year, month, day)
        except ValueError:
            break
        if YEARS[0] <= year <= YEARS[1]:
            row = spelled(style, year, month, day)
            row = row[: len(typed)] + row[LONGEST:]
            return Example(torch.tensor([row]), _places(), tuple(typed), tuple(ISO))
    raise TextError(
        f"The model has learned dates from {YEARS[0]} to {YEARS[1]} written as 9 March 2024, March 9, 2024, 9 Mar 2024 or 09.03.2024; "
        f"got {typed[:40]!r}: write a day that there is in one of these ways."
    )


def _places() -> tuple[str, ...]:
    """What the queries are called: the ten places of an ISO date."""
    return tuple("YYYY-MM-DD")


def _candidates(typed: str) -> list[tuple[int, tuple[int, int, int]]]:
    """The style and the date that a text may be, if it is written just so."""
    found = re.fullmatch(r"(\d{2})\.(\d{2})\.(\d{4})", typed, re.ASCII)
    if found:
        return [(3, (int(found[3]), int(found[2]), int(found[1])))]
    found = re.fullmatch(r"(?:(\d{1,2}) ([A-Z][a-z]+)|([A-Z][a-z]+) (\d{1,2}),) (\d{4})", typed, re.ASCII)
    if not found:
        return []
    name, day = found[2] or found[3], int(found[1] or found[4])
    numbers = [i for i, one in enumerate(MONTHS, 1) if name in (one, one[:3])]
    styles = ([1] if found[3] else [0, 2]) if numbers else []
    return [
        (style, (int(found[5]), numbers[0], day))
        for style in styles
        if written(style, int(found[5]), numbers[0], day) == typed
    ]
