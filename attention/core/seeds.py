"""One random generator per matrix, so that changing a knob changes only the matrices that depend on it."""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, *names: object) -> torch.Generator:
    """A new torch generator that depends only on `seed` and `names`.

    The names are hashed with BLAKE2b, which is the same on every machine and in every process.
    Python's `hash` is not, nor is `repr`, which escapes letters that its version does not know yet.
    """
    digest = hashlib.blake2b(ascii((seed, *names)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
