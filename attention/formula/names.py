"""Names of the steps, as in `layer.weights`, in links and in files; the axes of tensors; the address of one number.

This module imports no other of `attention`, so that any module can import it. `attention.formula.steps` declares the
steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EMBEDDING: Final = "embedding"
POSITION: Final = "position"
INPUT: Final = "input"
QUERY: Final = "query"
MEMORY: Final = "memory"
KEY: Final = "key"
VALUE: Final = "value"
ROTATED_QUERY: Final = "rotated_query"
ROTATED_KEY: Final = "rotated_key"
SCORES: Final = "scores"
SCALED_SCORES: Final = "scaled_scores"
CAPPED_SCORES: Final = "capped_scores"
BIASED_SCORES: Final = "biased_scores"
MASKED_SCORES: Final = "masked_scores"
WEIGHTS: Final = "weights"
DROPPED_WEIGHTS: Final = "dropped_weights"
HEAD_OUTPUT: Final = "head_output"
PATCHED_OUTPUT: Final = "patched_output"
OUTPUT: Final = "output"


OtherNames = tuple[tuple[str, str], ...]  # (library, its name), such as ("TransformerLens", "hook_z")


@dataclass(frozen=True)
class Axis:
    """One axis of the tensors: its name, its meaning, and its names in other libraries."""

    name: str
    meaning: str
    elsewhere: OtherNames = ()


# fmt: off
AXES: tuple[Axis, ...] = (
    Axis("head", "number of the head, from zero", (
        ("TransformerLens", "head_index"), ("transformers", "num_heads"), ("torch", "num_heads"),
        ("notebook 1", "h"), ("notebook 4", "n_heads"))),
    Axis("kv_head", "number of the head of keys and values, from zero; several query heads may share one", (
        ("TransformerLens", "n_key_value_heads"), ("transformers", "num_key_value_heads"))),
    Axis("query_pos", "position of the token that attends", (
        ("TransformerLens", "query_pos"), ("transformers", "q_len"), ("torch", "L"),
        ("notebook 1", "n"), ("notebook 2", "T"), ("notebook 4", "q_length"))),
    Axis("key_pos", "position of the token attended to", (
        ("TransformerLens", "key_pos"), ("torch", "S"),
        ("notebook 1", "n"), ("notebook 2", "T"), ("notebook 4", "k_length"))),
    Axis("d_model", "width of a token's row", (
        ("TransformerLens", "d_model"), ("transformers", "hidden_size"), ("torch", "embed_dim"),
        ("notebook 1", "d"), ("notebook 2", "C"), ("notebook 4", "d_model"), ("notebook 5", "d_model"))),
    Axis("d_k", "width of a query or key row in each head", (
        ("TransformerLens", "d_head"), ("transformers", "head_dim"), ("torch", "head_dim"),
        ("notebook 1", "d_q, d_k"), ("notebook 2", "head_size"), ("notebook 4", "d_key"), ("notebook 5", "d_model"))),
    Axis("d_v", "width of a value row in each head", (
        ("TransformerLens", "d_head"), ("transformers", "head_dim"), ("torch", "head_dim"),
        ("notebook 1", "d_v"), ("notebook 2", "head_size"), ("notebook 4", "d_key"), ("notebook 5", "d_model"))),
    Axis("bucket", "distance between query and key: near distances have a bucket each, far ones share buckets", (
        ("transformers", "num_buckets"),)),
)
# fmt: on
"""All axes, in the order of a shape."""


HEAD_AXES = ("head", "kv_head")
MAP_AXES = ("head", "query_pos", "key_pos")
"""The axes of the steps whose size grows with the square of the text."""


@dataclass(frozen=True)
class Cell:
    """The address of one number: layer, step, head, row and column, from zero."""

    layer: int
    step: str
    head: int
    row: int
    column: int

    @property
    def address(self) -> tuple[str, int, int, int, int]:
        """The step, layer, head, row and column, as `explain` takes them."""
        return self.step, self.layer, self.head, self.row, self.column
