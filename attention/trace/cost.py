"""The memory that a layer needs, estimated before anything is computed."""

from __future__ import annotations

from dataclasses import dataclass

from attention.base.errors import SizeError
from attention.formula.config import HeadSizes
from attention.formula.scores import BLOCK_ROWS

MAX_TANHS = 2**28  # a few seconds of one core
MOST_KEPT_CELLS = 2**23  # of one query × key matrix: 2,896 × 2,896 numbers take 32 MB; larger ones are read row by row
ALLOW_MORE = "or allow more (in Python max_bytes; LAB_MAX_TRACE_MB for a server)"
_DOUBLE = 8  # bytes; products are summed in double precision


@dataclass(frozen=True)
class Cost:
    """The sizes that determine the memory of a layer; `nbytes` estimates it.

    Attributes:
        sizes: the number of heads, d_k and d_v.
        kv_heads: the number of heads of keys and values.
        d_model: the width of a row of X.
        n_queries: the number of tokens that attend; `n_keys`: the number of tokens attended to.
        cached_heads: the number of heads whose query × key matrices are cached.
        inputs: the number of matrices [query_pos d_model] before Q; `memory`: the number of matrices [key_pos d_model].
        projected: whether the layer has W_Q, W_K, W_V and W_O; otherwise Q, K and V are provided.
        maps: the number of cached query × key matrices per head.
        has_dropout: whether the layer has dropout, which needs a random number per cell.
        rotary: whether queries and keys are rotated, and cached before and after.
        additive: whether scores are additive, which needs a tanh for every column of every score.
        itemsize: bytes per number.
    """

    sizes: HeadSizes
    kv_heads: int
    d_model: int
    n_queries: int
    n_keys: int
    cached_heads: int
    inputs: int = 1
    memory: int = 0
    projected: bool = True
    maps: int = 4
    has_dropout: bool = False
    rotary: bool = False
    additive: bool = False
    itemsize: int = 4

    @property
    def nbytes(self) -> int:
        """Bytes of all cached tensors of the layer, plus the largest temporary allocation."""
        n_heads, d_k, d_v = self.sizes
        queries, keys = n_heads * self.n_queries, self.kv_heads * self.n_keys
        cells = min(self.n_queries * self.n_keys, MOST_KEPT_CELLS)  # larger maps are not kept
        weights, shared_weights = (heads * self.d_model * self.projected for heads in (n_heads, self.kv_heads))
        steps = (self.inputs + self.projected) * self.n_queries + self.memory * self.n_keys  # with the output
        numbers = steps * self.d_model + (weights + shared_weights) * (d_k + d_v)
        numbers += (queries * d_k + keys * (d_k + d_v)) * self.projected + queries * d_v
        numbers += (queries + keys) * d_k * self.rotary
        maps = self.maps * self.cached_heads * cells
        widest = max(d_k, d_v)
        temporaries = (
            # The concatenated W, its copy in double precision, and the product before it is split into heads.
            weights * widest * (self.itemsize + _DOUBLE) + max(queries, keys) * widest * self.itemsize * self.projected,
            # K, and blocks of scores and of their weights, in double precision.
            self.cached_heads * self.n_keys * (d_k + 2 * min(BLOCK_ROWS, self.n_queries)) * _DOUBLE,
            # The random numbers of dropout, or the hidden scores (for the color range).
            self.cached_heads * cells * self.itemsize * (3 if self.has_dropout else 1),
            # The concatenated head outputs.
            2 * queries * d_v * self.itemsize,
        )
        return (numbers + maps) * self.itemsize + cells + max(temporaries)

    def check(self, max_bytes: int) -> int:
        """The estimated bytes, checked against `max_bytes`.

        Raises:
            SizeError: the layer needs more, or its additive scores need too much time.
        """
        n_heads, d_k, d_v = self.sizes
        tanhs = n_heads * d_k * self.n_queries * self.n_keys
        if self.additive and tanhs > MAX_TANHS:
            raise SizeError(
                f"Additive scores take at most {MAX_TANHS:,} tanh here, one for each column of each pair in each head; got {tanhs:,}: "
                "choose a smaller d_model, or a shorter text."
            )
        if self.nbytes > max_bytes:
            heads = f"{self.cached_heads} {'head' if self.cached_heads == 1 else 'heads'}"
            raise SizeError(
                f"All steps need at most {max_bytes / 2**20:,.0f} MB here; {heads} of {self.n_queries:,} × {self.n_keys:,} scores, "
                f"and {n_heads} · {max(d_k, d_v):,} columns of d_model {self.d_model:,}, need {self.nbytes / 2**20:,.0f} MB: "
                f"choose fewer heads, a smaller d_model, a shorter text, {ALLOW_MORE}."
            )
        return self.nbytes
