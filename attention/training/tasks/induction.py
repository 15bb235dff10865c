"""The task of an induction head: what came after this token the last time?"""

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
    """A segment of tokens, each another, again and again. How long it is differs, so that no position can tell the answer."""
    import torch

    n = design.length
    segments = torch.rand(count, design.tokens, generator=generator).argsort(dim=1)
    period = torch.randint(n // 4, n // 2 + 1, (count, 1), generator=generator)
    return segments.gather(1, torch.arange(n + 1) % period)


def continued(ids: torch.Tensor, design: Design) -> Batch:
    """The next token, asked where its own has stood before. Gold are the keys after the same token: what came then."""
    import torch

    from attention.training.network import Batch

    tokens = ids[:, :-1]
    same = torch.nn.functional.pad(tokens, (1, 0), value=-1)[:, :-1]  # the token before each
    gold = (tokens[:, :, None] == same[:, None, :]).tril()
    return Batch(tokens, ids[:, 1:].masked_fill(~gold.any(-1), -1), gold)


SAMPLE = "an owl asked the moon why nights are so dark and it blinked"


def sample(design: Design) -> str:
    """As many words as the model can be shown twice."""
    return " ".join(tokenize(SAMPLE)[: design.length // 2])


def read_words(text: str, design: Design) -> Example:
    """A person's words, shown twice. Each distinct word is a token that the model has never seen as a word.

    Raises:
        TextError: there are too few or too many.
    """
    import torch

    words, most = tokenize(text), design.length // 2
    if not 2 <= len(words) <= most:
        raise TextError(
            f"The words are shown twice to a model of {design.length} positions, so 2 to {most} of them fit; got {len(words)}: "
            f"type {'more' if len(words) < 2 else 'fewer'}."
        )
    known = list(dict.fromkeys(words))
    ids = [known.index(word) for word in (*words, *words, words[0])]
    names = (*known, *(f"token {i}" for i in range(len(known), design.tokens)))
    notes = ["Your words are shown twice; it learned from random tokens alone, and has seen none of them."]
    if len(known) < len(words):
        notes.append("A word that you wrote more than once has several continuations: its row splits between them.")
    return Example(torch.tensor([ids]), (*words, *words), (), names, tuple(notes))
