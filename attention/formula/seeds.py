"""One random generator per matrix, so that a turn of one knob changes only what it must."""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, *names: object) -> torch.Generator:
    """A fresh torch generator that depends on nothing but `seed` and `names`.

    The names are hashed with BLAKE2b, which is the same on every machine and in every process;
    Python's `hash` is not, nor is `repr`, which escapes the letters its version does not know yet.
    """
    digest = hashlib.blake2b(ascii((seed, *names)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
