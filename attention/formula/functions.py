"""The attention formula, one pure function per step.

    softmax(mask(Q Kᵀ / (√d_k · temperature))) V W_O

`scores` has the functions from Q and K to scores, `normalizers` the normalizers from scores to weights. No function
works in place, since every step must stay available. Copied programs contain the bodies of these functions
(`attention.formula.inline`).
Source: Vaswani et al. 2017, "Attention Is All You Need", equation 1 and section 3.2.2.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

from attention.formula.scores import times

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from attention.formula.tensor_types import (
        HeadOutput,
        HeadRow,
        HeadRows,
        Output,
        OutputBias,
        OutputProjection,
        Projection,
        Rows,
        Scores,
        Value,
        Visible,
        Weights,
    )


def project(x: Rows, w: Projection, b: HeadRow | None = None) -> HeadRows:
    """The rows of every head, X W + b: [head pos d_k]."""
    # One product for all heads: a product per head reads x once per head and takes twice as long.
    concatenated = times(x, w.transpose(0, 1).flatten(1), None if b is None else b.flatten())
    return concatenated.reshape(len(concatenated), len(w), -1).transpose(0, 1).contiguous()


def divide_scores(scores: Scores, divisor: float) -> Scores:
    """The scores divided by the divisor."""
    return scores / divisor


def scale_scores(scores: Scores, divisor: float, temperature: float) -> Scores:
    """Scores divided by divisor · temperature.

    At temperature 0 the quotient does not exist: the scores are divided by the divisor only, and the weights are
    computed as the limit.
    """
    return divide_scores(scores, divisor if temperature == 0 else divisor * temperature)


def cap_scores(scores: Scores, cap: float) -> Scores:
    """Scores between −cap and cap: cap · tanh(S′ / cap).

    Source: Gemma Team 2024, "Gemma 2", section 2 (logit soft-capping); Bello et al. 2016, section 3.
    """
    import torch

    return (cap * torch.tanh(scores.double() / cap)).to(scores.dtype)


def cap_signs(scores: Scores, cap: float) -> Scores:
    """Capped scores at temperature 0, the limit: −cap, 0 or cap."""
    return cap * scores.sign()


def add_bias(scores: Scores, bias: Scores) -> Scores:
    """Scores plus the bias of each pair of positions."""
    return scores + bias


def hide_scores(scores: Scores, mask: Visible) -> Scores:
    """The scores, with −∞ for keys that the mask (True = may attend) hides."""
    return scores.masked_fill(~mask, -math.inf)


def mix_values(weights: Weights, value: Value) -> HeadOutput:
    """The output of each head, A V, with values for every query head. A query that sees no key gets 0."""
    return times(weights, value)


def join_heads(head_output: HeadOutput, w_o: OutputProjection) -> Output:
    """The concatenated heads, times W_O."""
    return times(head_output.transpose(0, 1).flatten(1), w_o.flatten(0, 1))


def project_output(head_output: HeadOutput, w_o: OutputProjection, b_o: OutputBias | None = None) -> Output:
    """The concatenated heads, times W_O, plus b_O."""
    output = join_heads(head_output, w_o)
    return output if b_o is None else output + b_o


def generator(seed: int, *names: object) -> torch.Generator:
    """A new torch generator that depends only on `seed` and `names`: one per matrix, so that a knob changes only the matrices that depend on it.

    The names are hashed with BLAKE2b, which is the same on every machine and in every process.
    Python's `hash` is not, nor is `repr`, which escapes letters that its version does not know yet.
    """
    import torch

    digest = hashlib.blake2b(ascii((seed, *names)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)


def normal(shape: Sequence[int], random: torch.Generator) -> torch.Tensor:
    """Standard normal numbers in float32: those of `torch.randn`, whose last digits depend on the processor.

    Source: Box & Muller 1958, "A Note on the Generation of Random Normal Deviates", on blocks of 16 as torch does.
    """
    import torch

    n = math.prod(shape)
    if n < 16:
        return torch.randn(shape, generator=random, dtype=torch.float64).float()
    whole, rest = torch.rand(n, generator=random), torch.rand(n % 16 and 16, generator=random)
    u = torch.cat([whole[: n // 16 * 16], rest]).view(-1, 2, 8)
    radius = (-2 * (1 - u[:, 0].double()).log()).sqrt()
    angle = (2 * math.pi * u[:, 1]).double()
    z = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1).float().flatten()
    return torch.cat([z[: n - 16], z[-16:]]).view(shape)
