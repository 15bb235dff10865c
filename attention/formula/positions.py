"""Positional encodings: one entry for each variant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.formula.inline import inlined
from attention.formula.names import POSITION

if TYPE_CHECKING:
    from attention.formula.tensor_types import HeadRows, Rows

BASE = 10_000.0  # of the angles, in sinusoidal encodings and in RoPE


@dataclass(frozen=True)
class Positions:
    """One positional encoding; this class adds none.

    Attributes:
        name: its name in `AttentionConfig.positions` and in links.
        words: its effect and the models that use it, in a sentence.
        paper: its source.
        rotary: the base of the angles by which queries and keys are rotated; None: they are not rotated.
        bias: the bias added to the scores, one of `attention.formula.scores.BIASES`; empty: none.
        is_added: whether it is added to the embeddings.
    """

    name: str = "none"
    words: str = "No positions: permuting the words only permutes the weights."
    paper: str = ""
    rotary: float | None = None
    bias: str = ""
    is_added: bool = False

    def encoding(self, n_positions: int, d_model: int, seed: int) -> Rows | None:
        """The rows added to the embeddings, [pos d_model]; None if nothing is added."""
        return None

    def python(self, count: str, target: str) -> list[str]:
        """Lines of Python that compute `encoding` for `count` positions into `target`; they need `d_model`, and for random rows `generator` and `normal`."""
        raise NotImplementedError(f"{self.name} has no python: write the lines that compute its rows.")


@dataclass(frozen=True)
class _Sinusoidal(Positions):
    """Sines and cosines of the position at decreasing frequencies."""

    def encoding(self, n_positions: int, d_model: int, seed: int) -> Rows:
        return sinusoidal(n_positions, d_model)

    def python(self, count: str, target: str) -> list[str]:
        return inlined(sinusoidal, target, n_positions=count, BASE=repr(BASE))


@dataclass(frozen=True)
class _Learned(Positions):
    """A row for each position, which models learn; here the rows are random, from the seed."""

    def encoding(self, n_positions: int, d_model: int, seed: int) -> Rows:
        import torch

        from attention.formula.functions import generator, normal

        # Each from its own generator, so that a longer text begins with the rows of a shorter one.
        rows = [normal((d_model,), generator(seed, POSITION, i, d_model)) for i in range(n_positions)]
        return torch.stack(rows)

    def python(self, count: str, target: str) -> list[str]:
        rows = f'[normal((d_model,), generator("{POSITION}", i, d_model)) for i in range({count})]'
        return [f"{target} = torch.stack({rows})"]


POSITIONS: dict[str, Positions] = {
    positions.name: positions
    for positions in (
        Positions(),
        _Sinusoidal(
            "sinusoidal",
            "Sines and cosines of the position are added to each embedding, so that order matters. Used in the first transformer.",
            "Vaswani et al. 2017, Attention Is All You Need, section 3.5",
            is_added=True,
        ),
        _Learned(
            "learned",
            "A row for each position is added to the embedding. Models learn it; here it is random, from the seed. Used in BERT and GPT-2.",
            "Gehring et al. 2017, Convolutional Sequence to Sequence Learning, section 3.1",
            is_added=True,
        ),
        Positions(
            "rope",
            "Each query and key is rotated by an angle that grows with its position, so that a score depends on their distance. "
            "Used in Llama, Mistral, Qwen, Gemma.",
            "Su et al. 2021, RoFormer, equation 34",
            rotary=BASE,
        ),
        Positions(
            "alibi",
            "A penalty that grows with the distance of query and key is subtracted from the score, with a slope per head. Used in BLOOM and MPT.",
            "Press et al. 2022, Train Short, Test Long, section 3",
            bias="alibi",
        ),
        Positions(
            "relative",
            "A number for each distance is added to the score (far distances share one). Each head learns its own; here they are random, from the seed. Used in T5.",
            "Raffel et al. 2020, Exploring the Limits of Transfer Learning (T5), section 2.1",
            bias="relative",
        ),
    )
}
"""Every positional encoding, by its name in links."""


def sinusoidal(n_positions: int, d_model: int) -> Rows:
    """The sine and cosine encoding of positions, [pos d_model], in float32.

    Column 2i holds sin(pos / 10000^(2i/d_model)), column 2i + 1 the cosine of the same angle; an
    odd d_model ends with a sine. Source: Vaswani et al. 2017, section 3.5.
    """
    import torch

    columns = torch.arange(d_model)
    rate = torch.exp((columns // 2 * 2).double() * (-math.log(BASE) / d_model))
    angle = torch.arange(n_positions)[:, None] * rate
    return torch.where(columns % 2 == 0, angle.sin(), angle.cos()).float()


def rotate(rows: HeadRows, base: float) -> HeadRows:
    """Queries or keys rotated by their positions: columns i and i + d_k/2 are a pair, rotated by pos / base^(2i/d_k).

    Source: Su et al. 2021, "RoFormer", equation 34, in the half-split layout of Llama.
    """
    import torch

    half, positions = rows.shape[-1] // 2, torch.arange(rows.shape[-2], dtype=torch.float64)
    angle = positions[:, None] * base ** (-torch.arange(0, 2 * half, 2, dtype=torch.float64) / (2 * half))
    first, second = rows[..., :half].double(), rows[..., half:].double()
    pair = (first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin())
    return torch.cat(pair, dim=-1).to(rows.dtype)


def paired_column(column: int, d_k: int) -> int:
    """The other column of a rotated pair."""
    return (column + d_k // 2) % d_k
