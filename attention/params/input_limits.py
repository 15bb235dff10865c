"""The limits of a server on what a user can set."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits that an operator sets.

    Attributes:
        tokens: tokens of a text; a longer text is cut, and the trace notes it.
        characters: characters of a text.
        d_model: width of the input, and of d_k and d_v.
        heads: heads of a layer.
        trace_mb: memory of all steps of a trace; a larger trace is refused before it is computed.
        picture_mb: files of all pictures of an input together.
        picture_pixels: pixels of all pictures of an input together, such as 4080 × 3060.
    """

    tokens: int
    characters: int
    d_model: int
    heads: int
    trace_mb: int
    picture_mb: int = 8
    picture_pixels: int = 12_500_000

    @property
    def trace_bytes(self) -> int:
        """`trace_mb` in bytes."""
        return self.trace_mb * 2**20
