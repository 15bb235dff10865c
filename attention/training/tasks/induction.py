"""The induction task: what came after this token last time?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.errors import TextError
from attention.tokens import tokenize
from attention.training.tasks.task import Example

if TYPE_CHECKING:
    import torch

    from attention.training.design import Design
    from attention.training.network import Batch


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

    from attention.training.network import Batch

    tokens = ids[:, :-1]
    previous = torch.nn.functional.pad(tokens, (1, 0), value=-1)[:, :-1]  # the token before each token
    gold = (tokens[:, :, None] == previous[:, None, :]).tril()
    return Batch(tokens, ids[:, 1:].masked_fill(~gold.any(-1), -1), gold)


SAMPLE = "an owl asked the moon why nights are so dark and it blinked"


def sample(design: Design) -> str:
    """As many words as fit twice into the model."""
    return " ".join(tokenize(SAMPLE)[: design.length // 2])


def read_words(text: str, design: Design) -> Example:
    """The user's words, repeated once. Each distinct word becomes one of the random tokens of the training.

    Raises:
        TextError: there are too few or too many.
    """
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
