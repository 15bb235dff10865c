"""The tasks, in the order in which learners should meet them, and the plan of a training as a value: a task, a seed, and changes of the defaults.

Before the table of tasks stands what each draws, asks and reads. The copied Python draws and asks, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from attention.base.errors import ConfigError, TextError
from attention.base.knobs import Integer, Knob
from attention.base.tokens import tokenize
from attention.training import drawn_shapes
from attention.training.task import LETTERS, Batch, Control, Design, Example, Task

if TYPE_CHECKING:
    import torch


MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")  # fmt: skip
SYMBOLS = "\0 ,.0123456789ADFJMNOSabceghilmnoprstuvy"  # the first is padding
ISO = "0123456789-"
LONGEST = 18  # characters: September 30, 2024
YEARS = (1000, 2999)
STYLES = ("{day} {month} {year}", "{month} {day}, {year}", "{day} {short} {year}", "{day:02}.{number:02}.{year}")
_FRAMES = 25  # between the first and the last step
MOST_STEPS = 1000
SEEDS = 2**32 - 1
MAX_TEXT_LENGTH = 300  # characters of a typed text
_START = "▸"  # the query of the first letter
_SAMPLE = "an owl asked the moon why nights are so dark and it blinked"
_NO_POSITIONS = {"positions": "none"}


def letters(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """Random letters, [count position]."""
    import torch

    return torch.randint(26, (count, design.length), generator=generator)


def reversed_letters(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for the letter at the other end; gold is the anti-diagonal."""
    import torch

    gold = torch.eye(ids.shape[1], dtype=torch.bool).flip(1).expand(len(ids), -1, -1)
    return Batch(ids, ids.flip(1), gold)


def copied_letters(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for the letter `design.offset` positions earlier; gold is a diagonal, and the first positions have no answer."""
    import torch

    n, offset = ids.shape[1], design.offset
    answers = torch.cat([torch.full((len(ids), offset), -1), ids[:, : n - offset]], dim=1)
    gold = torch.ones(n, n).tril(-offset).triu(-offset).bool().expand(len(ids), -1, -1)
    return Batch(ids, answers, gold)


def _read_letters(text: str, design: Design) -> Example:
    """Exactly as many letters as the model has positions."""
    ids = _ids(text, design.length)
    typed = tuple(LETTERS[i] for i in ids[0].tolist())
    return Example(ids, typed, (), tuple(LETTERS))


def _sample_letters(text: str, design: Design) -> str:
    """The first letters of a text, repeated if the model has more positions."""
    return (text * design.length)[: design.length]


def _ids(text: str, length: int) -> torch.Tensor:
    import torch

    typed = "".join(text.split()).lower()
    if len(typed) != length or any(letter not in LETTERS for letter in typed):
        preview = typed if len(typed) <= 60 else f"{typed[:60]}…"
        raise TextError(
            f"This model reads exactly {length} letters from a to z; got {len(typed)} in {preview!r}: type {length}, or train one for another length."
        )
    return torch.tensor([[LETTERS.index(letter) for letter in typed]])


def entries(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """Rows of ids: distinct keys, their values, and the keys in another order as queries."""
    import torch

    keys = torch.rand(count, 26, generator=generator).argsort(dim=1, stable=True)[:, : design.length]
    values = torch.randint(10, (count, design.length), generator=generator)
    order = torch.rand(count, design.length, generator=generator).argsort(dim=1, stable=True)
    return torch.cat([keys, values, keys.gather(1, order)], dim=1)


def looked_up(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for the value of each query key; gold is the position of that key."""
    n = design.length
    keys, values, queries = ids[:, :n], ids[:, n : 2 * n], ids[:, 2 * n :]
    gold = queries[:, :, None] == keys[:, None, :]
    return Batch(queries, values.gather(1, gold.int().argmax(-1)), gold, (keys, values))


def _sample_entries(design: Design) -> str:
    """A dictionary with as many entries as the model reads."""
    keys, values = "kdqazmtewhbrxnfyjcuv", "71490382651420973856"
    return " ".join(f"{key}:{value}" for key, value in zip(keys[: design.length], values, strict=False))


def _read_entries(text: str, design: Design) -> Example:
    """As many entries as the model reads, such as `a:3 b:7`; the queries are all keys in alphabetical order."""
    import torch

    n, parts = design.length, text.replace(",", " ").lower().split()
    matches = [re.fullmatch(r"([a-z]):([0-9])", part) for part in parts]
    value_of = {match[1]: match[2] for match in matches if match}
    if len(parts) != n or len(value_of) != n:
        raise TextError(
            f"This dictionary has {n} entries such as a:3, a letter and a digit, each letter once; got {len(parts)} entries "
            f"with {len(value_of)} such letters: type {n}."
        )
    keys, queries = list(value_of), sorted(value_of)
    ids = [*map(LETTERS.index, keys), *map(int, value_of.values()), *map(LETTERS.index, queries)]
    typed = tuple(f"{key}:{value_of[key]}" for key in keys)
    return Example(torch.tensor([ids]), tuple(queries), typed, tuple("0123456789"))


def distinct_letters(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """Distinct random letters, [count position]."""
    import torch

    return torch.rand(count, 26, generator=generator).argsort(dim=1, stable=True)[:, : design.length]


def sorted_letters(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for the next letter in alphabetical order; each query is the previous one. Gold is the position of the next letter."""
    import torch

    answers = ids.sort(dim=1).values
    previous = torch.cat([torch.full((len(ids), 1), 26), answers[:, :-1]], dim=1)  # 26: the start
    return Batch(previous, answers, answers[:, :, None] == ids[:, None, :], (ids,))


def _read_distinct(text: str, design: Design) -> Example:
    """As many distinct letters as the model sorts."""
    ids = _ids(text, design.length)
    typed = [LETTERS[i] for i in ids[0].tolist()]
    if len(set(typed)) < len(typed):
        repeated = next(letter for letter in typed if typed.count(letter) > 1)
        raise TextError(
            f"This model sorts {design.length} distinct letters; got {repeated!r} twice: change one of them."
        )
    previous = (_START, *sorted(typed)[:-1])
    note = "The query of each row is the last letter written; here it is the right one, whatever the model would have written."
    return Example(ids, previous, tuple(typed), tuple(LETTERS), (note,))


def repeated(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """Repetitions of a segment of distinct tokens; its length varies, so that no position reveals the answer."""
    import torch

    n = design.length
    segments = torch.rand(count, design.tokens, generator=generator).argsort(dim=1, stable=True)
    period = torch.randint(n // 4, n // 2 + 1, (count, 1), generator=generator)
    return segments.gather(1, torch.arange(n + 1) % period)


def continued(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for the next token, at tokens that occurred before. Gold keys: those after an earlier occurrence of the same token."""
    import torch

    tokens = ids[:, :-1]
    previous = torch.nn.functional.pad(tokens, (1, 0), value=-1)[:, :-1]  # the token before each token
    gold = (tokens[:, :, None] == previous[:, None, :]).tril()
    return Batch(tokens, ids[:, 1:].masked_fill(~gold.any(-1), -1), gold)


def _sample_words(design: Design) -> str:
    """As many words as fit twice into the model."""
    return " ".join(tokenize(_SAMPLE)[: design.length // 2])


def _read_words(text: str, design: Design) -> Example:
    """The user's words, repeated once. Each distinct word becomes one of the random tokens of the training."""
    import torch

    words, max_words = tokenize(text), design.length // 2
    if not 2 <= len(words) <= max_words:
        raise TextError(
            f"The words are shown twice to a model of {design.length} positions, so 2 to {max_words} of them fit; got {len(words)}: "
            f"type {'more' if len(words) < 2 else 'fewer'}."
        )
    distinct = list(dict.fromkeys(words))
    ids = [distinct.index(word) for word in (*words, *words, words[0])]
    names = (*distinct, *(f"token {i}" for i in range(len(distinct), design.tokens)))
    notes = ["Your words are shown twice; the model learned from random tokens only, and has seen none of them."]
    if len(distinct) < len(words):
        notes.append("A word that you wrote more than once has several continuations: its row splits between them.")
    return Example(torch.tensor([ids]), (*words, *words), (), names, tuple(notes))


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


def format_date(style: int, year: int, month: int, day: int) -> str:
    """A date as people write it, in one of the `STYLES`."""
    name = MONTHS[month - 1]
    return STYLES[style].format(day=day, month=name, short=name[:3], number=month, year=year)


def translated(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for every character of the ISO date; gold are the characters that it comes from."""
    import torch

    longest = ids.shape[1] - 20
    text, answers, bits = ids[:, :longest], ids[:, longest:-10], ids[:, -10:]
    gold = (bits[:, :, None] >> torch.arange(longest)) % 2 == 1
    real = text > 0
    return Batch(torch.arange(10).expand(len(ids), -1), answers, gold, (text,), None if bool(real.all()) else real)


def _read_date(text: str, design: Design) -> Example:
    """A date in one of the four styles that the model has learned."""
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
            return Example(torch.tensor([row]), tuple("YYYY-MM-DD"), tuple(typed), tuple(ISO))
    raise TextError(
        f"The model has learned dates from {YEARS[0]} to {YEARS[1]} written as 9 March 2024, March 9, 2024, 9 Mar 2024 or 09.03.2024; "
        f"got {typed[:40]!r}: write an existing day in one of these styles."
    )


def _candidates(typed: str) -> list[tuple[int, tuple[int, int, int]]]:
    """The possible styles and dates of a text that is written exactly in one of the styles."""
    match = re.fullmatch(r"(\d{2})\.(\d{2})\.(\d{4})", typed, re.ASCII)
    if match:
        return [(3, (int(match[3]), int(match[2]), int(match[1])))]
    match = re.fullmatch(r"(?:(\d{1,2}) ([A-Z][a-z]+)|([A-Z][a-z]+) (\d{1,2}),) (\d{4})", typed, re.ASCII)
    if not match:
        return []
    name, day, year = match[2] or match[3], int(match[1] or match[4]), int(match[5])
    numbers = [i for i, month in enumerate(MONTHS, 1) if name in (month, month[:3])]
    styles = ([1] if match[3] else [0, 2]) if numbers else []
    dates = ((style, (year, numbers[0], day)) for style in styles)
    return [(style, fields) for style, fields in dates if format_date(style, *fields) == typed]


# fmt: off
TASKS: dict[str, Task] = {task.name: task for task in (
    Task(
        "reverse", "Reverse 12 letters",
        "Write the letters backwards. Each position must look at the position at the other end: watch the anti-diagonal appear.",
        Design(26, 26, 12, positions="learned"), letters, reversed_letters, _read_letters,
        lambda design: _sample_letters("transformers", design), "12 letters", 100, 5e-3, (1.0, 0.998),
        controls={"no positions": Control("Without positions the model cannot know the position of a letter: it cannot learn to reverse.", _NO_POSITIONS)},
        sliders=(Knob("length", 12, Integer(4, 48), "Letters", "How many letters are reversed."),)),
    Task(
        "copy", "Copy from k places back",
        "Write the letter k positions earlier: a head that looks offset by position. Change k, and the diagonal moves.",
        Design(26, 26, 16, offset=1, positions="learned", causal=True), letters, copied_letters, _read_letters,
        lambda design: _sample_letters("attentionlooking", design), "16 letters", 100, 5e-3, (1.0, 0.997),
        controls={"no positions": Control("Without positions the model cannot know which letter is k positions offset.", _NO_POSITIONS)},
        sliders=(Knob("offset", 1, Integer(1, 8), "k", "The distance to the copied letter, in positions."),)),
    Task(
        "lookup", "Look up in a dictionary",
        "Each query asks for the value of a key, as in Python's {key: value}. Q and K learn to match, V brings the value.",
        Design(26, 10, 10, memory=(26, 10)), entries, looked_up, _read_entries,
        _sample_entries, "10 entries such as a:3", 100, 5e-3, (1.0, 0.987),
        sliders=(Knob("length", 10, Integer(5, 20), "Entries", "How many entries the dictionary has."),)),
    Task(
        "sort", "Sort 10 letters",
        "Write the letters in the order of the alphabet. Each query is the last letter written, and must find the next one.",
        Design(27, 26, 10, memory=(26,)), distinct_letters, sorted_letters, _read_distinct,
        lambda design: _sample_letters("qwertyuiopasdfghjklzxcvbnm", design), "10 distinct letters", 300, 5e-3, (0.974, 0.77),
        sliders=(Knob("length", 10, Integer(5, 12), "Letters", "How many letters are sorted."),), next=True),
    Task(
        "induction", "An induction head",
        "What came after this word last time? Two layers must work together: the first finds the previous word of each word, the second finds where the current word occurred before.",
        Design(64, 64, 32, layers=2, positions="relative", causal=True), repeated, continued, _read_words,
        _sample_words, "2 to 16 words", 200, 1e-2, (0.998, 0.992),
        controls={
            "one layer": Control("With one layer no key can know its previous word: the model cannot learn this.", {"layers": 1}),
            "no positions": Control("Without positions the first layer cannot find the previous word.", _NO_POSITIONS),
        },
        sliders=(Knob("length", 32, Integer(16, 64), "Positions", "How many tokens the model sees at once."),), next=True),
    Task(
        "dates", "Dates into ISO 8601",
        "Translate a date as people write it. Each character of the answer looks at the characters that it comes from.",
        Design(10, 11, LONGEST, memory=(len(SYMBOLS),), encoder=2, mlp=True), dates, translated, _read_date,
        lambda design: "March 9, 2024", "such as March 9, 2024 or 09.03.2024", 500, 5e-3, (0.977, 0.85), batch=48,
        controls={"values from the encoder": Control(
            "Values from the encoder too: the dates are just as right, but the weights say less. The model may read a neighbour that has taken up the digit: "
            "attention shows where a vector was read, not where the information came from.", {"encoded_values": True})}),
    Task(
        "shapes", "Find a shape in a picture",
        "A tiny vision transformer. Six words name shapes, and the patches of a picture follow. Each word must give the colour of its shape, so it must look at the patch with that shape.",
        Design(len(drawn_shapes.SHAPES), len(drawn_shapes.COLORS), 5, patch=3 * drawn_shapes.SIDE**2), drawn_shapes.pictures, drawn_shapes.named_shapes,
        drawn_shapes.read_picture, drawn_shapes.sample, "such as red circle 1,2; blue square 4,4", 200, 5e-3, (0.996, 0.97),
        controls={
            "grey pictures": Control("If all shapes have one grey, no patch has the answer: the model never learns where to look, although it could see the shapes.", {"grey": True}),
            "one word": Control("If all words are the same to the model, no query can know which shape it asks for: all of them look alike.", {"tokens": 1}),
        },
        sliders=(Knob("length", 5, Integer(3, 6), "Patches", "How many patches are in a row and in a column of the picture."),)),
)}
# fmt: on
"""All tasks by name."""

CONTROLS = tuple(dict.fromkeys(control for task in TASKS.values() for control in task.controls))
"""The names of all controls."""

SLIDER_KEYS = tuple(dict.fromkeys(knob.key for task in TASKS.values() for knob in task.sliders))
"""The fields of a design that the sliders of any task can change."""


@dataclass(frozen=True)
class Plan:
    """A training. Equal plans give equal digits.

    Attributes:
        name: name of the task.
        seed: of the initial parameters and of all batches.
        steps: number of batches; 0: the default of the task.
        control: the name of one of the task's controls; empty: the model that can learn the task.
        turned: changed fields of the task's design by name, within the ranges of the task's `sliders`.

    Raises:
        ConfigError: there is no such task or control, or a number is out of range.
    """

    name: str
    seed: int = 0
    steps: int = 0
    control: str = ""
    turned: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.name not in TASKS:
            raise ConfigError(f"task is one of {', '.join(TASKS)}; got {self.name!r}: choose one of them.")
        if self.control and self.control not in self.task.controls:
            controls = ", ".join(self.task.controls) or "none"
            raise ConfigError(
                f"The controls of {self.name} are: {controls}; got {self.control!r}: choose one, or leave it empty."
            )
        for name, value, low, high in (("seed", self.seed, 0, SEEDS), ("steps", self.steps, 0, MOST_STEPS)):
            if not low <= value <= high:
                raise ConfigError(f"{name} is a whole number from {low} to {high:,}; got {value!r}: choose one.")
        object.__setattr__(self, "steps", self.steps or self.task.steps)
        sliders = {slider.key: slider for slider in self.task.sliders}
        for key, value in self.turned:
            if key not in sliders or not sliders[key].range.accepts(value):
                expected = "; ".join(f"{slider.key} is {slider.range.expected}" for slider in sliders.values())
                expected = expected or "nothing can be changed"
                raise ConfigError(f"Of the task {self.name}, {expected}; got {key} {value!r}: choose one.")

    @property
    def task(self) -> Task:
        """The task of the plan."""
        return TASKS[self.name]

    @property
    def rate(self) -> float:
        """The largest learning rate."""
        return self.task.rate

    @property
    def design(self) -> Design:
        """The model that is trained."""
        changes: dict[str, Any] = dict(self.turned)
        if self.control:
            changes |= self.task.controls[self.control].changes
        return replace(self.task.design, **changes)

    def example(self, text: str) -> Example:
        """The input of the model: the user's `text`, or else a sample of the task with the right length.

        Raises:
            TextError: the text does not fit the task.
        """
        return self.task.read(text if text.strip() else self.task.sample(self.design), self.design)

    @property
    def every(self) -> int:
        """The number of steps between two frames of the film."""
        return max(1, self.steps // _FRAMES)
