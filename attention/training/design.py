"""What a tiny model is made of, as a value; torch is not needed to say it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Design:
    """The sizes and parts of a tiny transformer. Layer norm stands before every attention and at the end.

    With `memory` it is one layer of cross-attention; otherwise `layers` of self-attention.

    Attributes:
        tokens: how many different tokens attend.
        answers: how many different answers there are.
        length: how many positions there are at most; relative ones are apart by less than that.
        offset: how far back a copied token stands, where the task has that.
        memory: how many different tokens are attended to; of several kinds their rows are added up.
        layers: of self-attention.
        heads: of each layer.
        width: of a token's row, d_model.
        positions: "learned" rows that are added, "relative" biases of the scores, or "none".
        causal: whether a query sees no later key.
        encoder: the heads of a layer of self-attention over the memory, from which the keys then come; 0: there is none.
        encoded_values: whether the values come from that encoder too, and not from the bare memory.
        mlp: whether a layer of ReLUs stands after the attention.
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

    @property
    def names(self) -> tuple[str, ...]:
        """What its layers of attention are called, in the order in which they run."""
        if not self.memory:
            return tuple(f"layer {i}" for i in range(self.layers))
        return ("encoder 0", "cross 0") if self.encoder else ("cross 0",)

    @property
    def relative(self) -> tuple[str, ...]:
        """The layers that add to their scores a number for each distance: the encoder always does."""
        return tuple(name for name in self.names if self.positions == "relative" or name.startswith("encoder"))

    def heads_of(self, name: str) -> int:
        """The heads of a layer."""
        return self.encoder if name.startswith("encoder") else self.heads
