"""The length of each axis of a layer, from its recorded tensors; mismatches raise ShapeError before torch fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attention.core.names import OUTPUT
from attention.core.steps import DECLARED
from attention.errors import ShapeError

if TYPE_CHECKING:
    from torch import Tensor

_OUT = ("w_o", "b_o", OUTPUT)  # their d_model may differ from that of the input


def axes_of(name: str) -> tuple[str, ...]:
    """The axes of a step or parameter for comparing sizes: d_out is the d_model of the output."""
    axes = DECLARED[name].axes
    return tuple("d_out" if axis == "d_model" else axis for axis in axes) if name in _OUT else axes


def sizes_of(recorded: Mapping[str, Tensor], tokens: tuple[str, ...], key_tokens: tuple[str, ...]) -> dict[str, int]:
    """The length of each axis, by its name.

    Raises:
        ShapeError: a tensor has the wrong number of axes, or one axis has two sizes.
    """
    known: dict[str, tuple[int, str]] = {}  # the size and the tensor that has it
    for axis, labels in (("query_pos", tokens), ("key_pos", key_tokens)):
        if labels:
            known[axis] = len(labels), "tokens"
    for name, tensor in recorded.items():
        axes = DECLARED[name].axes
        if tensor.ndim != len(axes):
            raise ShapeError(
                f"{name} has the axes [{' '.join(axes)}]; got the shape {list(tensor.shape)}: give it {len(axes)} axes."
            )
        for axis, size in zip(axes_of(name), tensor.shape, strict=True):
            first_size, first_name = known.setdefault(axis, (size, name))
            if size == first_size:
                continue
            if first_name == "tokens":
                raise ShapeError(
                    f"{axis} is {size} in {name} but there are {first_size} tokens: give one token per {axis}."
                )
            raise ShapeError(
                f"{axis} is {first_size} in {first_name} but {size} in {name}: one axis has one size in a layer."
            )
    sizes = {axis: size for axis, (size, _) in known.items()}
    if "d_out" in sizes:
        sizes.setdefault("d_model", sizes["d_out"])
    heads, kv_heads = sizes.get("head"), sizes.get("kv_head")
    if heads and kv_heads and heads % kv_heads:
        raise ShapeError(
            f"query heads share the heads of keys in equal groups; got {heads} of query and {kv_heads} of key: "
            f"{kv_heads} must divide {heads}."
        )
    return sizes
