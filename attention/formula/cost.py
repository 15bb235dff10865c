"""What a layer takes in memory while it is worked out, counted before one of its numbers is made."""

from __future__ import annotations

from dataclasses import dataclass

from attention.errors import SizeError
from attention.formula.config import HeadSizes
from attention.formula.scores import ROWS

MOST_TANHS = 2**28  # some seconds of a processor
ALLOW_MORE = "or allow more (in Python max_bytes; LAB_MAX_TRACE_MB for a server)"
_DOUBLE = 8  # bytes; products are summed in double precision


@dataclass(frozen=True)
class Cost:
    """The sizes that decide what a layer takes; `bytes` says how much.

    Attributes:
        sizes: heads, d_k and d_v.
        kv_heads: how many heads keys and values have.
        d_model: width of a row of X.
        n_queries: how many tokens attend, and to how many `n_keys`.
        kept: of how many heads the query × key matrices are kept.
        inputs: how many matrices [query_pos d_model] there are before Q, and how many more [key_pos d_model] in `memory`.
        projected: whether there are W_Q, W_K, W_V and W_O; otherwise Q, K and V are what is given.
        maps: how many query × key matrices are kept of each of these heads.
        drawn: whether a step is drawn, which takes a random number for each of its cells.
        rotary: whether queries and keys are turned, and kept before and after.
        additive: whether scores are additive, which takes a tanh for every column of every score.
        itemsize: bytes of a number.
    """

    sizes: HeadSizes
    kv_heads: int
    d_model: int
    n_queries: int
    n_keys: int
    kept: int
    inputs: int = 1
    memory: int = 0
    projected: bool = True
    maps: int = 4
    drawn: bool = False
    rotary: bool = False
    additive: bool = False
    itemsize: int = 4

    @property
    def bytes(self) -> int:
        """All that is kept of the layer, and the largest of what making it takes beside that."""
        n_heads, d_k, d_v = self.sizes
        queries, keys, cells = n_heads * self.n_queries, self.kv_heads * self.n_keys, self.n_queries * self.n_keys
        weights, shared = (heads * self.d_model * self.projected for heads in (n_heads, self.kv_heads))
        steps = (self.inputs + self.projected) * self.n_queries + self.memory * self.n_keys  # … and the output
        numbers = steps * self.d_model + (weights + shared) * (d_k + d_v)
        numbers += (queries * d_k + keys * (d_k + d_v)) * self.projected + queries * d_v
        numbers += (queries + keys) * d_k * self.rotary
        maps = self.maps * self.kept * cells
        wider = max(d_k, d_v)
        copies = (
            # W beside each other, then as doubles, and the product before it is cut into heads.
            weights * wider * (self.itemsize + _DOUBLE) + max(queries, keys) * wider * self.itemsize * self.projected,
            # K as doubles, and some rows of the scores.
            self.kept * self.n_keys * (d_k + min(ROWS, self.n_queries)) * _DOUBLE,
            # What is drawn; or which scores are hidden, for the ends of the colours.
            self.kept * cells * self.itemsize * (3 if self.drawn else 1),
            # The heads' outputs, side by side.
            2 * queries * d_v * self.itemsize,
        )
        return (numbers + maps) * self.itemsize + cells + max(copies)

    def within(self, most: int) -> int:
        """Its bytes, if they are no more than `most`.

        Raises:
            SizeError: they are more.
        """
        n_heads, d_k, d_v = self.sizes
        tanhs = n_heads * d_k * self.n_queries * self.n_keys
        if self.additive and tanhs > MOST_TANHS:
            raise SizeError(
                f"Additive scores take at most {MOST_TANHS:,} tanh here, one for each column of each pair in each head; got {tanhs:,}: "
                "choose a smaller d_model, or a shorter text."
            )
        if self.bytes > most:
            heads = f"{self.kept} {'head' if self.kept == 1 else 'heads'}"
            raise SizeError(
                f"All steps need at most {most / 2**20:,.0f} MB here; {heads} of {self.n_queries:,} × {self.n_keys:,} scores, "
                f"and {n_heads} · {max(d_k, d_v):,} columns of d_model {self.d_model:,}, need {self.bytes / 2**20:,.0f} MB: "
                f"choose fewer heads, a smaller d_model, a shorter text, {ALLOW_MORE}."
            )
        return self.bytes
