"""What every source gives and every page draws: the tokens, and the layers of attention between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from textwrap import shorten
from typing import TYPE_CHECKING

from attention.errors import check_index
from attention.formula.layer import Layer
from attention.tokens import Generated

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.config import AttentionConfig
    from attention.formula.prediction import Prediction
    from attention.formula.what_if import WhatIf

_SHOWN_TEXT = 80  # characters of the text in a repr
_SHOWN_LAYERS = 6


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """Everything that happened on the way from tokens to output: one sequence, no batch axis.

    Attributes:
        tokens: the tokens that attend in the first layer, by query_pos.
        layers: one `Layer` per attention layer, from zero; one without tokens of its own gets these.
        key_tokens: the tokens attended to, by key_pos; differ from `tokens` in cross-attention.
        random: whether the weights are random, so that a page must say so.
        notes: sentences a page must show with this trace, such as that a text was cut.
        predictions: what a model says at each position that was asked for.
        unpredicted: why there are none, in a sentence, where a model gives none.
        vectors: what such a model makes of each token in the end, [query_pos d_model].
        read: the tokens of the text that is predicted in, as a model reads them: pieces, special ones too.
        later: the tokens that the model goes on with, where the text is read as it was before.
        changes: what was changed of heads inside the model, in words; empty: nothing.
        about: a line that belongs beside its numbers, such as that a model is a 4-bit version.

    Raises:
        ShapeError: there are not as many tokens as rows, or not as many key tokens as columns.
    """

    tokens: tuple[str, ...]
    layers: tuple[Layer, ...]
    key_tokens: tuple[str, ...] = ()
    random: bool = False
    notes: tuple[str, ...] = ()
    predictions: tuple[Prediction, ...] = ()
    unpredicted: str = ""
    vectors: Tensor | None = None
    read: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    about: str = ""

    def __post_init__(self) -> None:
        if not self.key_tokens:
            object.__setattr__(self, "key_tokens", self.tokens)
        layers = tuple(
            layer if layer.tokens else replace(layer, tokens=self.tokens, key_tokens=self.key_tokens)
            for layer in self.layers
        )
        object.__setattr__(self, "layers", layers)

    def __repr__(self) -> str:
        text = shorten(" ".join(self.tokens), _SHOWN_TEXT, placeholder=" …")
        layers = [*map(repr, self.layers[:_SHOWN_LAYERS]), *(["…"] if len(self.layers) > _SHOWN_LAYERS else [])]
        heading = f"Trace({len(self.tokens)} tokens: {text!r}; {len(self.layers)} layers"
        return "\n  ".join([f"{heading}:" if layers else heading, *layers]) + ")"

    @property
    def generated(self) -> int:
        """How many of the last tokens of the text the model has said itself."""
        return sum(isinstance(token, Generated) for token in self.read)

    @property
    def nbytes(self) -> int:
        """The memory of what is recorded in all its layers, and of its predictions, in bytes."""
        said = sum(one.nbytes for one in self.predictions) + (0 if self.vectors is None else self.vectors.nbytes)
        return sum(layer.nbytes for layer in self.layers) + said

    def labels_of(self, axis: str) -> tuple[str, ...] | None:
        """The tokens along an axis in the first layer, or None for an axis that is only numbered (d_model, head, …)."""
        return {"query_pos": self.tokens, "key_pos": self.key_tokens}.get(axis)

    def layer(self, index: int) -> Layer:
        """The layer with that number, from zero.

        Raises:
            MissingError: there is none.
        """
        check_index("layers", index, len(self.layers))
        return self.layers[index]

    def turned(self, config: AttentionConfig | WhatIf) -> Trace:
        """The trace with the knobs after the scores as `config` has them; nothing is worked out again before it is looked at."""
        layers = tuple(layer.turned(config) for layer in self.layers)
        notes = config.hiding.notes(len(self.tokens), len(self.key_tokens))
        return replace(self, layers=layers, notes=(*self.notes, *notes))
