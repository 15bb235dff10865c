"""Tasks on rows of letters: reverse them, copy each from a few places back, sort them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.errors import TextError
from attention.training.design import Design
from attention.training.tasks.task import LETTERS, Example

if TYPE_CHECKING:
    import torch

    from attention.training.network import Batch

START = "▸"  # the query of the first letter


def letters(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """Random letters, [count position]."""
    import torch

    return torch.randint(26, (count, design.length), generator=generator)


def reversed_letters(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for the letter at the other end; gold is the anti-diagonal."""
    import torch

    from attention.training.network import Batch

    gold = torch.eye(ids.shape[1], dtype=torch.bool).flip(1).expand(len(ids), -1, -1)
    return Batch(ids, ids.flip(1), gold)


def copied_letters(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for the letter `design.offset` positions earlier; gold is a diagonal, and the first positions have no answer."""
    import torch

    from attention.training.network import Batch

    n, offset = ids.shape[1], design.offset
    answers = torch.cat([torch.full((len(ids), offset), -1), ids[:, : n - offset]], dim=1)
    gold = torch.ones(n, n).tril(-offset).triu(-offset).bool().expand(len(ids), -1, -1)
    return Batch(ids, answers, gold)


def distinct_letters(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """Distinct random letters, [count position]."""
    import torch

    return torch.rand(count, 26, generator=generator).argsort(dim=1, stable=True)[:, : design.length]


def sorted_letters(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for the next letter in alphabetical order; each query is the previous one. Gold is the position of the next letter."""
    import torch

    from attention.training.network import Batch

    answers = ids.sort(dim=1).values
    previous = torch.cat([torch.full((len(ids), 1), 26), answers[:, :-1]], dim=1)  # 26: the start
    return Batch(previous, answers, answers[:, :, None] == ids[:, None, :], (ids,))


def read_letters(text: str, design: Design) -> Example:
    """Exactly as many letters as the model has positions.

    Raises:
        TextError: the text has another length, or other characters.
    """
    ids = _ids(text, design.length)
    typed = tuple(LETTERS[i] for i in ids[0].tolist())
    return Example(ids, typed, (), tuple(LETTERS))


def read_distinct(text: str, design: Design) -> Example:
    """As many distinct letters as the model sorts.

    Raises:
        TextError: the text has another length, other characters, or a repeated letter.
    """
    ids = _ids(text, design.length)
    typed = [LETTERS[i] for i in ids[0].tolist()]
    if len(set(typed)) < len(typed):
        repeated = next(letter for letter in typed if typed.count(letter) > 1)
        raise TextError(
            f"This model sorts {design.length} distinct letters; got {repeated!r} twice: change one of them."
        )
    previous = (START, *sorted(typed)[:-1])
    note = "The query of each row is the last letter written; here it is the right one, whatever the model would have written."
    return Example(ids, previous, tuple(typed), tuple(LETTERS), (note,))


def sample(text: str, design: Design) -> str:
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
