"""The lookup task: each query is a key of a dictionary, and the answer is its value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attention.errors import TextError
from attention.training.tasks.task import LETTERS, Example

if TYPE_CHECKING:
    import torch

    from attention.training.design import Design
    from attention.training.network import Batch


def entries(count: int, generator: torch.Generator, design: Design) -> torch.Tensor:
    """Rows of ids: distinct keys, their values, and the keys in another order as queries."""
    import torch

    keys = torch.rand(count, 26, generator=generator).argsort(dim=1, stable=True)[:, : design.length]
    values = torch.randint(10, (count, design.length), generator=generator)
    order = torch.rand(count, design.length, generator=generator).argsort(dim=1, stable=True)
    return torch.cat([keys, values, keys.gather(1, order)], dim=1)


def looked_up(ids: torch.Tensor, design: Design) -> Batch:
    """The batch that asks for the value of each query key; gold is the position of that key."""
    from attention.training.network import Batch

    n = design.length
    keys, values, queries = ids[:, :n], ids[:, n : 2 * n], ids[:, 2 * n :]
    gold = queries[:, :, None] == keys[:, None, :]
    return Batch(queries, values.gather(1, gold.int().argmax(-1)), gold, (keys, values))


def sample(design: Design) -> str:
    """A dictionary with as many entries as the model reads."""
    keys, values = "kdqazmtewhbrxnfyjcuv", "71490382651420973856"
    return " ".join(f"{key}:{value}" for key, value in zip(keys[: design.length], values, strict=False))


def read_entries(text: str, design: Design) -> Example:
    """As many entries as the model reads, such as `a:3 b:7`; the queries are all keys in alphabetical order.

    Raises:
        TextError: the text has another form.
    """
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
    return Example(
        torch.tensor([ids]), tuple(queries), tuple(f"{key}:{value_of[key]}" for key in keys), tuple("0123456789")
    )
