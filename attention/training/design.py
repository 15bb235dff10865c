"""The design of a tiny transformer as a value; does not import torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Design:
    """The sizes and parts of a tiny transformer. It has a layer norm before every attention and at the end.

    With `memory` it is one layer of cross-attention; otherwise `layers` of self-attention. With `patch` it reads a square picture
    after its tokens, as a vision transformer does: each patch is one more token, whose row is its numbers times a learned matrix.

    Attributes:
        tokens: number of distinct query tokens.
        answers: number of distinct answers.
        length: the largest number of positions; with `patch`, the number of patches in a row and in a column of the picture.
        offset: the distance of the copied token, in the copy task.
        memory: number of distinct key tokens, for each kind of them; the rows of all kinds are added.
        layers: number of self-attention layers.
        heads: of each layer.
        width: d_model, the width of a token's row.
        positions: "learned" rows that are added, "relative" biases of the scores, or "none".
        causal: whether a query sees no later key.
        encoder: number of heads of a self-attention layer over the memory, whose output gives the keys; 0: no such layer.
        encoded_values: whether the values come from that encoder too, instead of the bare memory.
        mlp: whether an MLP with ReLU follows the attention.
        patch: the numbers of a patch, three for each pixel; 0: the model reads no picture.
        grey: whether all colours are one grey, in the shapes task.
    """

    tokens: int
    answers: int
    length: int
    offset: int = 0
    memory: tuple[int, ...] = ()
    layers: int = 1
    heads: int = 1
    width: int = 64
    positions: str = "none"
    causal: bool = False
    encoder: int = 0
    encoded_values: bool = False
    mlp: bool = False
    patch: int = 0
    grey: bool = False

    @property
    def n_positions(self) -> int:
        """The largest number of positions; relative distances are smaller than that."""
        return self.tokens + self.length**2 if self.patch else self.length

    @property
    def attention_layers(self) -> tuple[str, ...]:
        """The names of its attention layers, in the order in which they run."""
        if not self.memory:
            return tuple(f"layer {i}" for i in range(self.layers))
        return ("encoder 0", "cross 0") if self.encoder else ("cross 0",)

    @property
    def relative_layers(self) -> tuple[str, ...]:
        """The layers with relative position biases; the encoder always has them."""
        return tuple(
            name for name in self.attention_layers if self.positions == "relative" or name.startswith("encoder")
        )

    def heads_of(self, name: str) -> int:
        """The number of heads of a layer."""
        return self.encoder if name.startswith("encoder") else self.heads
