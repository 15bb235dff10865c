"""The axes of the tensors: their names, meanings, and names in other libraries."""

from __future__ import annotations

from dataclasses import dataclass

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
