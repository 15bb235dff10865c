"""The declaration of a task: its sequences and answers, the gold cells, the model that learns it, and its controls. Does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.base.knobs import Knob

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from attention.trace.trace import SeenPicture

LETTERS = "abcdefghijklmnopqrstuvwxyz"


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


class Batch(NamedTuple):
    """Training sequences: ids [sequence token], answers [sequence query_pos] (-1: none), gold [sequence query_pos key_pos], and the ids of the memory.

    The positions are those of the tokens, then those of the patches of a picture.
    """

    tokens: Tensor
    answers: Tensor
    gold: Tensor
    memory: tuple[Tensor, ...] = ()
    real: Tensor | None = None  # [sequence key_pos], False for padding
    patches: Tensor | None = None  # [sequence patch number], the numbers of its pixels


class Control(NamedTuple):
    """A model that differs in one respect, and the effect of that in a sentence."""

    sentence: str
    changes: Mapping[str, Any]


class Example(NamedTuple):
    """A user's text as the task reads it.

    Attributes:
        ids: one sequence, as `Task.ids` draws them.
        tokens: the query tokens.
        memory: the key tokens; empty if they are the query tokens.
        answers: the name of each answer.
        notes: remarks for the user.
        pictures: what the model sees; the patches among the tokens belong to them.
    """

    ids: Tensor
    tokens: tuple[str, ...]
    memory: tuple[str, ...]
    answers: tuple[str, ...]
    notes: tuple[str, ...] = ()
    pictures: tuple[SeenPicture, ...] = ()


@dataclass(frozen=True)
class Task:
    """A task to learn.

    Attributes:
        name: its name in links.
        title: for pages.
        sentence: the task, and what to look for.
        ids: draws sequences, [count position].
        posed: a batch from these ids, with answers and gold cells.
        read: parses a user's text as one sequence.
        sample: the text that is shown by default.
        hint: the kind of text that can be typed.
        rate: the largest learning rate.
        batch: sequences in a batch.
        controls: by name, the models that must fail, or succeed in another way.
        sliders: the fields of `design` that users can change, as knobs with safe ranges.
        next: whether answers are the next token, rather than the token of their position.
        reaches: accuracy and score that at least 19 of 20 seeds reach.
    """

    name: str
    title: str
    sentence: str
    design: Design
    ids: Callable[[int, Generator, Design], Tensor]
    posed: Callable[[Tensor, Design], Batch]
    read: Callable[[str, Design], Example]
    sample: Callable[[Design], str]
    hint: str
    steps: int
    rate: float
    reaches: tuple[float, float]
    batch: int = 32
    controls: Mapping[str, Control] = field(default_factory=dict)
    sliders: tuple[Knob, ...] = ()
    next: bool = False

    def draw(self, count: int, generator: Generator, design: Design) -> Batch:
        """A batch of `count` random sequences."""
        return self.posed(self.ids(count, generator, design), design)
