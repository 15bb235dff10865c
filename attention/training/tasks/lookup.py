"""The task of a dictionary: each query is a key, and its value is asked."""

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
    """Keys, each another, then their values, then the keys in another order."""
    import torch

    keys = torch.rand(count, 26, generator=generator).argsort(dim=1)[:, : design.length]
    values = torch.randint(10, (count, design.length), generator=generator)
    order = torch.rand(count, design.length, generator=generator).argsort(dim=1)
    return torch.cat([keys, values, keys.gather(1, order)], dim=1)


def looked_up(ids: torch.Tensor, design: Design) -> Batch:
    """The value of each asked key: gold is where that key stands."""
    from attention.training.network import Batch

    n = design.length
    keys, values, asked = ids[:, :n], ids[:, n : 2 * n], ids[:, 2 * n :]
    gold = asked[:, :, None] == keys[:, None, :]
    return Batch(asked, values.gather(1, gold.int().argmax(-1)), gold, (keys, values))


def sample(design: Design) -> str:
    """As many entries as the model has."""
    keys, values = "kdqazmtewhbrxnfyjcuv", "71490382651420973856"
    return " ".join(f"{key}:{value}" for key, value in zip(keys[: design.length], values, strict=False))


def read_entries(text: str, design: Design) -> Example:
    """As many entries as the model has, such as `a:3 b:7`; all keys are asked, in the order of the alphabet.

    Raises:
        TextError: it is something else.
    """
    import torch

    n, parts = design.length, text.replace(",", " ").lower().split()
    found = [re.fullmatch(r"([a-z]):([0-9])", part) for part in parts]
    entered = {one[1]: one[2] for one in found if one}
    if len(parts) != n or len(entered) != n:
        raise TextError(
            f"This dictionary has {n} entries such as a:3, a letter and a digit, each letter once; got {len(parts)} entries "
            f"with {len(entered)} such letters: type {n}."
        )
    keys, asked = list(entered), sorted(entered)
    ids = [*map(LETTERS.index, keys), *map(int, entered.values()), *map(LETTERS.index, asked)]
    return Example(
        torch.tensor([ids]), tuple(asked), tuple(f"{key}:{entered[key]}" for key in keys), tuple("0123456789")
    )
