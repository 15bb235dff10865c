"""How a token's place in the text gets into attention: one entry for each way."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.formula.inline import inlined
from attention.formula.names import POSITION

if TYPE_CHECKING:
    from attention.formula.axes import HeadRows, Rows

BASE = 10_000.0  # of the angles, in sinusoidal encodings and in RoPE


@dataclass(frozen=True)
class Positions:
    """One way to say where a token stands; this one says nothing.

    Attributes:
        name: as in `AttentionConfig.positions` and in links.
        words: what it changes and who uses it, one sentence.
        paper: where it comes from.
        rotary: the base of the angles by which queries and keys are turned; None where they are not.
        bias: what is added to the scores, one of `attention.formula.biases.BIASES`; empty for nothing.
        adds: whether something is added to the embeddings.
    """

    name: str = "none"
    words: str = "Nothing is added: the same words in another order give the same weights, in another order."
    paper: str = ""
    rotary: float | None = None
    bias: str = ""
    adds: bool = False

    def added(self, n_positions: int, d_model: int, seed: int) -> Rows | None:
        """What is added to the embeddings; None where nothing is."""
        return None

    def python(self, count: str, target: str) -> list[str]:
        """Lines that make `added` of `count` positions into a variable; they need `d_model`, and `generator` where it is drawn."""
        raise NotImplementedError(f"{self.name} has no python: say how its rows are made.")


@dataclass(frozen=True)
class Sinusoidal(Positions):
    """Sines and cosines of more and more slowly turning angles."""

    def added(self, n_positions: int, d_model: int, seed: int) -> Rows:
        """The same for every seed: `sinusoidal`."""
        return sinusoidal(n_positions, d_model)

    def python(self, count: str, target: str) -> list[str]:
        """The body of `sinusoidal`."""
        return inlined(sinusoidal, target, n_positions=count, BASE=repr(BASE))


@dataclass(frozen=True)
class Learned(Positions):
    """A row for every position, as a model learns them; here drawn from the seed."""

    def added(self, n_positions: int, d_model: int, seed: int) -> Rows:
        """Random rows, each from its own generator: a longer text has the rows of the shorter and more."""
        import torch

        from attention.formula.seeds import generator

        rows = [torch.randn(d_model, generator=generator(seed, POSITION, at, d_model)) for at in range(n_positions)]
        return torch.stack(rows)

    def python(self, count: str, target: str) -> list[str]:
        """One line."""
        rows = f'[torch.randn(d_model, generator=generator("{POSITION}", at, d_model)) for at in range({count})]'
        return [f"{target} = torch.stack({rows})"]


POSITIONS: dict[str, Positions] = {
    positions.name: positions
    for positions in (
        Positions(),
        Sinusoidal(
            "sinusoidal",
            "Sines and cosines of the position are added to each embedding, so that order matters. The first transformer.",
            "Vaswani et al. 2017, Attention Is All You Need, section 3.5",
            adds=True,
        ),
        Learned(
            "learned",
            "A row for each position is added to the embedding, learned like the words; here it is drawn from the seed. BERT and GPT-2.",
            "Gehring et al. 2017, Convolutional Sequence to Sequence Learning, section 3.1",
            adds=True,
        ),
        Positions(
            "rope",
            "Each query and key is turned by an angle that grows with its position, so that a score depends on how far they are apart. "
            "Llama, Mistral, Qwen, Gemma.",
            "Su et al. 2021, RoFormer, equation 34",
            rotary=BASE,
        ),
        Positions(
            "alibi",
            "The farther a key is from the query, the more is taken off its score, in each head at another rate. BLOOM and MPT.",
            "Press et al. 2022, Train Short, Test Long, section 3",
            bias="alibi",
        ),
        Positions(
            "relative",
            "A number for each distance is added to the score, far ones in groups, learned in each head; here it is drawn from the seed. T5.",
            "Raffel et al. 2020, Exploring the Limits of Transfer Learning (T5), section 2.1",
            bias="relative",
        ),
    )
}
"""Every way to say where a token stands, by its name in links."""


def sinusoidal(n_positions: int, d_model: int) -> Rows:
    """The sine and cosine encoding of positions, in float32.

    Column 2i holds sin(pos / 10000^(2i/d_model)), column 2i + 1 the cosine of the same angle; an
    odd d_model ends on a sine. Source: Vaswani et al. 2017, section 3.5.
    """
    import torch

    columns = torch.arange(d_model)
    rate = torch.exp((columns // 2 * 2).double() * (-math.log(BASE) / d_model))
    angle = torch.arange(n_positions)[:, None] * rate
    return torch.where(columns % 2 == 0, angle.sin(), angle.cos()).float()


def rotated(rows: HeadRows, base: float) -> HeadRows:
    """Queries or keys, each turned by its position: columns i and i + d_k/2 are a pair, turned by pos / base^(2i/d_k).

    Source: Su et al. 2021, "RoFormer", equation 34, in the half-split layout of Llama.
    """
    import torch

    half, count = rows.shape[-1] // 2, torch.arange(rows.shape[-2], dtype=torch.float64)
    angle = count[:, None] * base ** (-torch.arange(0, 2 * half, 2, dtype=torch.float64) / (2 * half))
    first, second = rows[..., :half].double(), rows[..., half:].double()
    turned = (first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin())
    return torch.cat(turned, dim=-1).to(rows.dtype)


def partner(column: int, d_k: int) -> int:
    """The column that makes a pair with this one, with which it is turned."""
    return (column + d_k // 2) % d_k
