"""What an operator allows, from environment variables: the one place, and the README's table says the same."""

from __future__ import annotations

import os

from attention import ConfigError


def _limit(name: str, default: int, low: int, high: int) -> int:
    """The whole number in the environment variable LAB_`name`.

    Raises:
        ConfigError: it is no whole number from `low` to `high`; the server does not start with a limit it misreads.
    """
    text = os.environ.get(f"LAB_{name}", str(default))
    number = int(text) if text.isascii() and text.strip().isdigit() else low - 1
    if not low <= number <= high:
        raise ConfigError(
            f"LAB_{name} is a whole number from {low:,} to {high:,}; got {text!r}: set one, or leave it out for {default:,}."
        )
    return number


MAX_TOKENS = _limit("MAX_TOKENS", 512, 1, 4096)  # of a text; a longer one is cut, and the page says so
MAX_CHARACTERS = _limit("MAX_CHARACTERS", 20_000, 10, 200_000)  # of a text
MAX_D_MODEL = _limit("MAX_D_MODEL", 1024, 1, 4096)  # and of d_k and d_v
MAX_HEADS = _limit("MAX_HEADS", 32, 1, 128)
CACHED_TRACES = _limit("CACHED_TRACES", 8, 1, 1000)  # the largest takes about 170 MB with 32 heads of 512 tokens
