"""Tasks on rows of letters: reverse them, copy each from a few places back, sort them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.errors import TextError
from attention.training.design import Design
from attention.training.tasks.task import LETTERS, Example

if TYPE_CHECKING:
    import torch

    from attention.training.network import Batch

START = "▸"  # what is read before the first letter is written


def letters(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """Letters, each any of 26."""
    import torch

    return torch.randint(26, (count, design.length), generator=generator)


def reversed_letters(ids: torch.Tensor, design: Design) -> Batch:
    """The letter at the other end: gold is the anti-diagonal."""
    import torch

    from attention.training.network import Batch

    gold = torch.eye(ids.shape[1], dtype=torch.bool).flip(1).expand(len(ids), -1, -1)
    return Batch(ids, ids.flip(1), gold)


def copied_letters(ids: torch.Tensor, design: Design) -> Batch:
    """The letter so many places back: gold is a diagonal, and the first places are not asked."""
    import torch

    from attention.training.network import Batch

    n, offset = ids.shape[1], design.offset
    answers = torch.cat([torch.full((len(ids), offset), -1), ids[:, : n - offset]], dim=1)
    gold = torch.ones(n, n).tril(-offset).triu(-offset).bool().expand(len(ids), -1, -1)
    return Batch(ids, answers, gold)


def distinct_letters(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """Letters, each another."""
    import torch

    return torch.rand(count, 26, generator=generator).argsort(dim=1)[:, : design.length]


def sorted_letters(ids: torch.Tensor, design: Design) -> Batch:
    """The next letter of the alphabet that is there; each query is the letter before it. Gold is where the next one stands."""
    import torch

    from attention.training.network import Batch

    answers = ids.sort(dim=1).values
    before = torch.cat([torch.full((len(ids), 1), 26), answers[:, :-1]], dim=1)  # 26: nothing is written yet
    return Batch(before, answers, answers[:, :, None] == ids[:, None, :], (ids,))


def read_letters(text: str, design: Design) -> Example:
    """Exactly as many letters as the model has places.

    Raises:
        TextError: it is something else.
    """
    ids = _ids(text, design.length)
    typed = tuple(LETTERS[i] for i in ids[0].tolist())
    return Example(ids, typed, (), tuple(LETTERS))


def read_distinct(text: str, design: Design) -> Example:
    """As many letters as the model sorts, each another.

    Raises:
        TextError: it is something else.
    """
    ids = _ids(text, design.length)
    typed = [LETTERS[i] for i in ids[0].tolist()]
    if len(set(typed)) < len(typed):
        twice = next(letter for letter in typed if typed.count(letter) > 1)
        raise TextError(
            f"To sort, {design.length} letters are needed, each another; got {twice!r} twice: change one of them."
        )
    before = (START, *sorted(typed)[:-1])
    note = (
        "Each row is the letter that was written last; here it is the right one, whatever the model would have written."
    )
    return Example(ids, before, tuple(typed), tuple(LETTERS), (note,))


def sample(text: str, design: Design) -> str:
    """The first letters of a text, begun again where the model has more places."""
    return (text * design.length)[: design.length]


def _ids(text: str, many: int) -> torch.Tensor:
    import torch

    typed = "".join(text.split()).lower()
    if len(typed) != many or any(letter not in LETTERS for letter in typed):
        shown = typed if len(typed) <= 60 else f"{typed[:60]}…"
        raise TextError(
            f"This model reads exactly {many} letters from a to z; got {len(typed)} in {shown!r}: type {many}, or train one for another length."
        )
    return torch.tensor([[LETTERS.index(letter) for letter in typed]])
