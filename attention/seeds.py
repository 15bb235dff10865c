"""One random generator per matrix, so that a turn of one knob changes only what it must."""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, *names: object) -> torch.Generator:
    """A fresh torch generator that depends on nothing but `seed` and `names`.

    The names are hashed with BLAKE2b, which is the same on every machine and in every process;
    Python's `hash` is not.
    """
    digest = hashlib.blake2b(repr((seed, *names)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)
