"""The glossary of the project: every step of attention, declared once.

A `Trace` is the tokens and the layers; a `Layer` holds the tensors of one attention layer, step by
step, as far as its source could record them. Axes:

    query_pos   position of the token that attends      d_model   width of a token's row
    key_pos     position of the token attended to       d_k       width of a query or key row
    head        number of the head, from zero           d_v       width of a value row

Shape checks, titles, colours, tables, the explanation and the tests read `STEPS`, which is made
from the declarations in `Layer`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from attention.errors import MissingError, ShapeError

if TYPE_CHECKING:  # torch takes more than a second to import; a page must open before that
    from torch import Tensor

Kind = Literal["signed", "probability"]


@dataclass(frozen=True)
class Step:
    """One step of the formula: what it is called, what its axes mean, and how it is made.

    Attributes:
        name: the name of the field in `Layer`, and in links.
        symbol: its letter in the formula, plain text; `tex` the same for LaTeX.
        axes: the names of its axes, in order.
        formula: how it is made, plain text.
        kind: "signed" numbers lie around zero; a "probability" lies in 0 … 1, rows sum to 1.
    """

    name: str
    symbol: str
    tex: str
    axes: tuple[str, ...]
    formula: str
    kind: Kind

    @property
    def per_head(self) -> bool:
        """Whether every head has a matrix of its own."""
        return self.axes[0] == "head"

    @property
    def row_axis(self) -> str:
        """The axis that runs down the picture."""
        return self.axes[-2]

    @property
    def column_axis(self) -> str:
        """The axis that runs across the picture."""
        return self.axes[-1]


def _step(symbol: str, axes: str, formula: str, kind: Kind = "signed", tex: str = "") -> Any:
    return field(
        default=None,
        metadata={
            "symbol": symbol,
            "tex": tex or symbol,
            "axes": tuple(axes.split()),
            "formula": formula,
            "kind": kind,
        },
    )


def _parameter(axes: str) -> Any:
    return field(default=None, metadata={"axes": tuple(axes.split())})


@dataclass(frozen=True, eq=False)
class Layer:
    """The tensors of one attention layer; a step its source cannot give is None.

    Iterating gives (step, tensor) for the steps there are, in the order of the formula;
    ``layer["weights"]`` gives one by name.

    Besides the steps: `mask` (boolean, True = may attend), the `divisor` of the scores (√d_k, or 1
    where scores are not scaled), the `temperature` (0 where the limit argmax was taken), the `dropout`, and
    the parameters that made the steps, where the source has them.

    Raises:
        ShapeError: a tensor has the wrong number of axes, or one axis has two sizes.
    """

    embedding: Tensor | None = _step("E", "query_pos d_model", "one row per token")
    position: Tensor | None = _step("P", "query_pos d_model", "positional encoding")
    input: Tensor | None = _step("X", "query_pos d_model", "E + P")
    query: Tensor | None = _step("Q", "head query_pos d_k", "X W_Q")
    memory: Tensor | None = _step("X₂", "key_pos d_model", "the second text's input", tex="{X_2}")
    key: Tensor | None = _step("K", "head key_pos d_k", "X W_K")
    value: Tensor | None = _step("V", "head key_pos d_v", "X W_V")
    scores: Tensor | None = _step("S", "head query_pos key_pos", "Q Kᵀ")
    scaled_scores: Tensor | None = _step("S′", "head query_pos key_pos", "S / (√d_k · temperature)", tex="S'")
    masked_scores: Tensor | None = _step("M", "head query_pos key_pos", "S′, and −∞ where the mask hides a key")
    weights: Tensor | None = _step("A", "head query_pos key_pos", "softmax of M over key_pos", "probability")
    dropped_weights: Tensor | None = _step(
        "D", "head query_pos key_pos", "A, a share of it dropped, the rest divided by 1 − dropout", "probability"
    )
    head_output: Tensor | None = _step("Z", "head query_pos d_v", "A V")
    output: Tensor | None = _step("O", "query_pos d_model", "concat(Z) W_O")

    mask: Tensor | None = _parameter("query_pos key_pos")
    w_q: Tensor | None = _parameter("head d_model d_k")
    w_k: Tensor | None = _parameter("head d_model d_k")
    w_v: Tensor | None = _parameter("head d_model d_v")
    w_o: Tensor | None = _parameter("head d_v d_model")
    divisor: float = 1.0
    temperature: float = 1.0
    dropout: float = 0.0

    def __post_init__(self) -> None:
        seen: dict[str, tuple[int, str]] = {}
        for declared in fields(self):
            axes, tensor = declared.metadata.get("axes"), getattr(self, declared.name)
            if axes is None or tensor is None:
                continue
            if tensor.ndim != len(axes):
                raise ShapeError(
                    f"{declared.name} has the axes [{' '.join(axes)}]; got the shape {list(tensor.shape)}: give it {len(axes)} axes."
                )
            for axis, size in zip(axes, tensor.shape, strict=True):
                first_size, first_name = seen.setdefault(axis, (size, declared.name))
                if size != first_size:
                    raise ShapeError(
                        f"{axis} is {first_size} in {first_name} but {size} in {declared.name}: one axis has one size in a layer."
                    )

    def __iter__(self) -> Iterator[tuple[Step, Tensor]]:
        for step in STEPS:
            tensor = getattr(self, step.name)
            if tensor is not None:
                yield step, tensor

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of the step called `name`.

        Raises:
            MissingError: there is no such step, or this source could not record it.
        """
        tensor: Tensor | None = getattr(self, find_step(name).name)
        if tensor is None:
            raise MissingError(
                f"this source has no {name}; it has {', '.join(s.name for s, _ in self)}: choose one of these."
            )
        return tensor

    def matrix(self, name: str, head: int = 0) -> Tensor:
        """One head's matrix of a step, [row_axis column_axis]; steps without heads ignore `head`.

        Raises:
            MissingError: there is no such step or head.
        """
        tensor = self[name]
        if tensor.ndim == 2:
            return tensor
        if not 0 <= head < len(tensor):
            raise MissingError(f"heads count from 0 to {len(tensor) - 1}; got {head}: choose one of these.")
        return tensor[head]

    @property
    def n_heads(self) -> int:
        """The number of heads, 1 where no step has any."""
        return next((len(tensor) for step, tensor in self if step.per_head), 1)


STEPS: tuple[Step, ...] = tuple(Step(name=f.name, **f.metadata) for f in fields(Layer) if "symbol" in f.metadata)
"""Every step in the order of the formula: the only list of steps in the project."""


def find_step(name: str) -> Step:
    """The step called `name`.

    Raises:
        MissingError: there is none of that name.
    """
    for step in STEPS:
        if step.name == name:
            return step
    raise MissingError(f"a step is one of {', '.join(s.name for s in STEPS)}; got {name!r}: choose one of them.")


@dataclass(frozen=True, eq=False)
class Trace:
    """Everything that happened on the way from tokens to output: one sequence, no batch axis.

    Attributes:
        tokens: the tokens that attend, by query_pos.
        layers: one `Layer` per attention layer, from zero.
        key_tokens: the tokens attended to, by key_pos; differ from `tokens` in cross-attention.
        random: whether the weights are random, so that a page must say so.
        notes: sentences a page must show with this trace, such as that a text was cut.

    Raises:
        ShapeError: there are not as many tokens as rows, or not as many key tokens as columns.
    """

    tokens: tuple[str, ...]
    layers: tuple[Layer, ...]
    key_tokens: tuple[str, ...] = ()
    random: bool = False
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.key_tokens:
            object.__setattr__(self, "key_tokens", self.tokens)
        for layer in self.layers:
            for step, tensor in layer:
                for axis, size in zip(step.axes, tensor.shape, strict=True):
                    names = self.labels_of(axis)
                    if names is not None and len(names) != size:
                        raise ShapeError(
                            f"{axis} is {size} in {step.name} but there are {len(names)} tokens: give one token per {axis}."
                        )

    def labels_of(self, axis: str) -> tuple[str, ...] | None:
        """The tokens along an axis, or None for an axis that is only numbered (d_model, head, …)."""
        return {"query_pos": self.tokens, "key_pos": self.key_tokens}.get(axis)

    def layer(self, index: int) -> Layer:
        """The layer with that number, from zero.

        Raises:
            MissingError: there is none.
        """
        if not 0 <= index < len(self.layers):
            raise MissingError(f"layers count from 0 to {len(self.layers) - 1}; got {index}: choose one of these.")
        return self.layers[index]
