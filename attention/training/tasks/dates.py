"""The translation task: a date as people write it, into ISO 8601."""

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
SYMBOLS = "\0 ,.0123456789ADFJMNOSabceghilmnoprstuvy"  # the first is padding
ISO = "0123456789-"
LONGEST = 18  # characters: September 30, 2024
YEARS = (1000, 2999)
STYLES = ("{day} {month} {year}", "{month} {day}, {year}", "{day} {short} {year}", "{day:02}.{number:02}.{year}")


def format_date(style: int, year: int, month: int, day: int) -> str:
    """A date as people write it, in one of the `STYLES`."""
    name = MONTHS[month - 1]
    return STYLES[style].format(day=day, month=name, short=name[:3], number=month, year=year)


def dates(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """Rows of ids: the characters of a date with padding, its ISO characters, and the gold characters of each of these as bits."""
    import torch

    year = torch.randint(YEARS[0], YEARS[1] + 1, (count,), generator=generator)
    month, day = (torch.randint(1, end, (count,), generator=generator) for end in (13, 29))
    style = torch.randint(len(STYLES), (count,), generator=generator)
    return torch.tensor(
        [
            encode_date(*fields)
            for fields in zip(style.tolist(), year.tolist(), month.tolist(), day.tolist(), strict=True)
        ]
    )


def encode_date(style: int, year: int, month: int, day: int) -> list[int]:
    """One row of `dates`. Each ISO character has a bit for each character of the text that it comes from."""
    text = format_date(style, year, month, day)
    year_start = text.index(str(year))
    iso_day, name = f"{day:02}", MONTHS[month - 1]
    years = [{year_start + i} for i in range(4)]
    if style == 3:
        months, days = [{3}, {4}], [{0}, {1}]
    else:
        month_start = text.index(name[:3])
        letters = set(range(month_start, month_start + (3 if style == 2 else len(name))))
        day_start = text.index(str(day), len(name) if style == 1 else 0)
        months = [letters, letters]
        days = [{day_start}, {day_start + 1}] if day > 9 else [set(), {day_start}]
    iso = f"{year:04}-{month:02}-{iso_day}"
    gold = [*years, set(), *months, set(), *days]
    ids = [SYMBOLS.index(character) for character in text.ljust(LONGEST, "\0")]
    return [*ids, *map(ISO.index, iso), *(sum(1 << i for i in indices) for indices in gold)]


def translated(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for every character of the ISO date; gold are the characters that it comes from."""
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
        TextError: it has another form, or there is no such day.
    """
    import torch

    typed = " ".join(text.split())
    for style, (year, month, day) in _candidates(typed):
        try:
            date(year, month, day)
        except ValueError:
            break
        if YEARS[0] <= year <= YEARS[1]:
            row = encode_date(style, year, month, day)
            row = row[: len(typed)] + row[LONGEST:]
            return Example(torch.tensor([row]), _query_names(), tuple(typed), tuple(ISO))
    raise TextError(
        f"The model has learned dates from {YEARS[0]} to {YEARS[1]} written as 9 March 2024, March 9, 2024, 9 Mar 2024 or 09.03.2024; "
        f"got {typed[:40]!r}: write an existing day in one of these styles."
    )


def _query_names() -> tuple[str, ...]:
    """The names of the queries: the ten characters of an ISO date."""
    return tuple("YYYY-MM-DD")


def _candidates(typed: str) -> list[tuple[int, tuple[int, int, int]]]:
    """The possible styles and dates of a text that is written exactly in one of the styles."""
    match = re.fullmatch(r"(\d{2})\.(\d{2})\.(\d{4})", typed, re.ASCII)
    if match:
        return [(3, (int(match[3]), int(match[2]), int(match[1])))]
    match = re.fullmatch(r"(?:(\d{1,2}) ([A-Z][a-z]+)|([A-Z][a-z]+) (\d{1,2}),) (\d{4})", typed, re.ASCII)
    if not match:
        return []
    name, day = match[2] or match[3], int(match[1] or match[4])
    numbers = [i for i, month in enumerate(MONTHS, 1) if name in (month, month[:3])]
    styles = ([1] if match[3] else [0, 2]) if numbers else []
    return [
        (style, (int(match[5]), numbers[0], day))
        for style in styles
        if format_date(style, int(match[5]), numbers[0], day) == typed
    ]
