"""The glossary of the project: every step of attention, declared once.

A `Trace` is the tokens and the layers; a `Layer` holds the tensors of one attention layer, step by
step, as far as its source could record them. `AXES` says what its axes mean.

Shape checks, titles, colours, tables, the explanation, the reference page and the tests read
`STEPS` and `PARAMETERS`, which are made from the declarations in `Layer`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from attention.errors import MissingError, ShapeError

if TYPE_CHECKING:  # torch takes more than a second to import; a page must open before that
    from torch import Tensor

Kind = Literal["signed", "probability"]
Names = tuple[tuple[str, str], ...]  # who calls it what, such as ("TransformerLens", "hook_z")


@dataclass(frozen=True)
class Axis:
    """One axis of the tensors: its name, what runs along it, and what others call it."""

    name: str
    meaning: str
    elsewhere: Names = ()


# fmt: off
AXES: tuple[Axis, ...] = (
    Axis("head", "number of the head, from zero", (
        ("TransformerLens", "head_index"), ("transformers", "num_heads"), ("torch", "num_heads"),
        ("notebook 1", "h"), ("notebook 4", "n_heads"))),
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
)
# fmt: on
"""Every axis there is, in the order in which they stand in a shape."""


MAP_AXES = ("head", "query_pos", "key_pos")
"""The axes of the steps whose size grows with the square of the text."""


@dataclass(frozen=True)
class Factor:
    """One matrix that a step is made of, and how a cell of the step finds its place in it.

    Attributes:
        names: of the step or parameter; of several the first that a layer has.
        row: which side of the step's cell gives the row: "row", "column", or "" where all rows take part.
        column: the same for the column.
        side_by_side: whether the matrices of all heads take part, next to one another.
    """

    names: tuple[str, ...]
    row: Literal["row", "column", ""] = ""
    column: Literal["row", "column", ""] = ""
    side_by_side: bool = False


def _rows_of(*names: str) -> Factor:
    return Factor(names, row="row")


def _columns_of(*names: str) -> Factor:
    return Factor(names, column="column")


def _cells_of(*names: str) -> Factor:
    return Factor(names, row="row", column="column")


@dataclass(frozen=True)
class Step:
    """One step of the formula: what it is called, what its axes mean, and how it is made.

    Attributes:
        name: the name of the field in `Layer`, and in links.
        symbol: its letter in the formula, plain text; `tex` the same for LaTeX.
        axes: the names of its axes, in order.
        formula: how it is made, plain text.
        kind: "signed" numbers lie around zero; a "probability" lies in 0 … 1, rows sum to 1.
        equation: how it is made, LaTeX, with the symbol on the left.
        elsewhere: what others call it, (who, name) pairs; whoever has no name for it is not listed. Their
            axes may stand in another order.
        of: the matrices it is made of, in the order of the formula.
    """

    name: str
    symbol: str
    tex: str
    axes: tuple[str, ...]
    formula: str
    kind: Kind
    equation: str = ""
    elsewhere: Names = ()
    of: tuple[Factor, ...] = ()

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


@dataclass(frozen=True)
class Parameter:
    """One matrix that a layer keeps beside its steps: what it is called, its axes, what it is for."""

    name: str
    symbol: str
    axes: tuple[str, ...]
    meaning: str
    elsewhere: Names = ()


def _step(
    symbol: str,
    axes: str,
    formula: str,
    kind: Kind = "signed",
    *,
    tex: str = "",
    equation: str,
    of: tuple[Factor, ...] = (),
    **elsewhere: str,
) -> Any:
    return field(
        default=None,
        metadata={
            "symbol": symbol,
            "tex": tex or symbol,
            "axes": tuple(axes.split()),
            "formula": formula,
            "kind": kind,
            "equation": equation,
            "elsewhere": _names(elsewhere),
            "of": of,
        },
    )


def _parameter(symbol: str, axes: str, meaning: str, **elsewhere: str) -> Any:
    declared = {"parameter": symbol, "axes": tuple(axes.split()), "meaning": meaning, "elsewhere": _names(elsewhere)}
    return field(default=None, metadata=declared)


def _names(elsewhere: dict[str, str]) -> Names:
    """Keyword arguments as (who, name): ``lens`` is TransformerLens, ``n4`` is notebook 4."""
    who = {"lens": "TransformerLens", "jax": "JAX", **{f"n{i}": f"notebook {i}" for i in range(1, 6)}}
    return tuple((who.get(key, key), name) for key, name in elsewhere.items())


@dataclass(frozen=True, eq=False)
class Layer:
    """The tensors of one attention layer; a step its source cannot give is None.

    Iterating gives (step, tensor) for the steps there are, in the order of the formula;
    ``layer["weights"]`` gives one by name.

    Besides the steps: `mask` (boolean, True = may attend), the `divisor` of the scores (√d_k, or 1
    where scores are not scaled), the `temperature` (0 where the limit argmax was taken), the `dropout`, and
    the parameters that made the steps, where the source has them. `real` (boolean [key_pos]) is False for keys that
    are padding; None where none is.

    Of a long text a source may keep the query × key matrices of one head only: then `only` is its number, and
    those steps are [1 query_pos key_pos]. `matrix` knows, and `spans` how far they reach in all heads, see `ends`.

    Raises:
        ShapeError: a tensor has the wrong number of axes, or one axis has two sizes.
    """

    # Names elsewhere were read in TransformerLens's abstract_attention.py and transformer_block.py, in
    # transformers' modeling_llama.py and modeling_gpt2.py, in nn.MultiheadAttention, in jax.nn, and in bertviz.
    # fmt: off
    embedding: Tensor | None = _step(
        "E", "query_pos d_model", "one row per token", equation=r"E_i = \text{the row of token } i",
        lens="hook_embed", transformers="inputs_embeds", n1="embedded_sentence", n4="lut")
    position: Tensor | None = _step(
        "P", "query_pos d_model", "positional encoding", equation=r"P_i = \text{the row of position } i",
        lens="hook_pos_embed", transformers="position_embeds", n4="pe")
    input: Tensor | None = _step(
        "X", "query_pos d_model", "E + P", equation="X = E + P",
        of=(_cells_of("embedding"), _cells_of("position")),
        lens="hook_resid_pre", transformers="hidden_states", torch="query (argument)",
        n1="X", n2="x", n3="words", n4="X", n5="token_encodings")
    query: Tensor | None = _step(
        "Q", "head query_pos d_k", "X W_Q", equation="Q = X W_Q",
        of=(_rows_of("input"), _columns_of("w_q")),
        lens="hook_q", transformers="query_states", torch="q", bertviz="queries", n1="Q, M_Q", n2="q", n3="Q", n4="Q", n5="q")
    memory: Tensor | None = _step(
        "X₂", "key_pos d_model", "the second text's input", tex="{X_2}", equation=r"X_2 = \text{the second text's } X",
        transformers="encoder_hidden_states", torch="memory")
    key: Tensor | None = _step(
        "K", "head key_pos d_k", "X W_K", equation="K = X W_K",
        of=(_rows_of("memory", "input"), _columns_of("w_k")),
        lens="hook_k", transformers="key_states", torch="k", bertviz="keys", n1="K, M_K", n2="k", n3="K", n4="K", n5="k")
    value: Tensor | None = _step(
        "V", "head key_pos d_v", "X W_V", equation="V = X W_V",
        of=(_rows_of("memory", "input"), _columns_of("w_v")),
        lens="hook_v", transformers="value_states", torch="v", n1="V, M_V", n2="v", n3="V", n4="V", n5="v")
    scores: Tensor | None = _step(
        "S", "head query_pos key_pos", "Q Kᵀ", equation=r"S = Q K^{\top}",
        of=(_rows_of("query"), Factor(("key",), row="column")),
        transformers="attn_weights", jax="logits", n1="W", n2="weights", n3="scores", n5="sims")
    scaled_scores: Tensor | None = _step(
        "S′", "head query_pos key_pos", "S / (√d_k · temperature)", tex="S'",
        equation=r"S' = \frac{S}{\sqrt{d_k} \cdot \text{temperature}}",
        of=(_cells_of("scores"),),
        transformers="attn_weights", jax="logits", n1="W, W2", n2="weights", n4="scaled_dot_prod", n5="scaled_sims")
    masked_scores: Tensor | None = _step(
        "M", "head query_pos key_pos", "S′, and −∞ where the mask hides a key",
        equation=r"M_{ij} = \begin{cases} S'_{ij} & \text{visible} \\ -\infty & \text{hidden} \end{cases}",
        of=(_cells_of("scaled_scores", "scores"), _cells_of("mask")),
        lens="hook_attn_scores", transformers="attn_weights", jax="padded_logits", n2="weights", n4="scaled_dot_prod")
    weights: Tensor | None = _step(
        "A", "head query_pos key_pos", "softmax of M over key_pos", "probability",
        equation=r"A_{ij} = \frac{e^{M_{ij}}}{\sum_{l} e^{M_{il}}}",
        of=(_cells_of("masked_scores", "scaled_scores", "scores"),),
        lens="hook_pattern", transformers="attn_weights", jax="probs", torch="attn_output_weights", bertviz="attention",
        n1="W, W2", n2="weights", n3="weights", n4="attn_probs", n5="attention_percents")
    dropped_weights: Tensor | None = _step(
        "D", "head query_pos key_pos", "A, a share of it dropped, the rest divided by 1 − dropout", "probability",
        equation=r"D_{ij} = \begin{cases} 0 & \text{dropped} \\ A_{ij} / (1 - \text{dropout}) & \text{kept} \end{cases}",
        of=(_cells_of("weights"),),
        transformers="attn_weights", torch="attn_output_weights", n4="dropout(attn_probs)")
    head_output: Tensor | None = _step(
        "Z", "head query_pos d_v", "A V", equation="Z = A V",
        of=(_rows_of("dropped_weights", "weights", "scores"), _columns_of("value")),
        lens="hook_z", transformers="attn_output", jax="encoded", n1="Y, Y2", n2="out", n3="attention", n4="A",
        n5="res, attension_scores")
    output: Tensor | None = _step(
        "O", "query_pos d_model", "concat(Z) W_O", equation=r"O = \text{concat}(Z)\, W_O",
        of=(Factor(("head_output",), row="row", side_by_side=True), Factor(("w_o",), column="column", side_by_side=True)),
        lens="hook_attn_out", transformers="attn_output", torch="attn_output", n4="output")

    mask: Tensor | None = _parameter(
        "mask", "query_pos key_pos", "which keys a query may attend to: True = may",
        lens="mask", transformers="attention_mask", torch="attn_mask", n2="tril", n4="mask")
    w_q: Tensor | None = _parameter(
        "W_Q", "head d_model d_k", "turns a token's row into its query",
        lens="W_Q", transformers="q_proj.weight", torch="in_proj_weight", n1="W_Q, MW_Q", n2="query", n3="W_Q", n4="Wq", n5="W_q")
    w_k: Tensor | None = _parameter(
        "W_K", "head d_model d_k", "turns a token's row into its key",
        lens="W_K", transformers="k_proj.weight", torch="in_proj_weight", n1="W_K, MW_K", n2="key", n3="W_K", n4="Wk", n5="W_k")
    w_v: Tensor | None = _parameter(
        "W_V", "head d_model d_v", "turns a token's row into its value",
        lens="W_V", transformers="v_proj.weight", torch="in_proj_weight", n1="W_V, MW_V", n2="value", n3="W_V", n4="Wv", n5="W_v")
    w_o: Tensor | None = _parameter(
        "W_O", "head d_v d_model", "mixes the heads' outputs, side by side, into one row",
        lens="W_O", transformers="o_proj.weight", torch="out_proj.weight", n4="Wo")
    # fmt: on
    divisor: float = 1.0
    temperature: float = 1.0
    dropout: float = 0.0
    only: int | None = None
    real: Tensor | None = field(default=None, metadata={"axes": ("key_pos",)})
    spans: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seen: dict[str, tuple[int, str]] = {}
        for declared in fields(self):
            axes, tensor = declared.metadata.get("axes"), getattr(self, declared.name)
            if axes is None or tensor is None:
                continue
            if self.only is not None and axes == MAP_AXES:
                axes = ("kept heads", *axes[1:])
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
            MissingError: there is no such step or head, or of a long text only another head is kept.
        """
        tensor = self[name]
        if tensor.ndim == 2:
            return tensor
        if self.only is not None and find_step(name).axes == MAP_AXES:
            if head != self.only:
                raise MissingError(
                    f"of so long a text only head {self.only} has its {name} in full; got head {head}: ask the source for that one."
                )
            return tensor[0]
        if not 0 <= head < len(tensor):
            raise MissingError(f"heads count from 0 to {len(tensor) - 1}; got {head}: choose one of these.")
        return tensor[head]

    def ends(self, name: str) -> tuple[float, float] | None:
        """The smallest and the largest finite number of a step in all heads, kept or not; None where it has none.

        Raises:
            MissingError: there is no such step, or this source could not record it.
        """
        tensor = self[name]
        return self.spans.get(name) or ends(tensor)

    def factors(self, step: Step) -> list[tuple[Factor, str]]:
        """The factors of a step that this layer has, each with the name of the step or parameter."""
        there = ((one, next((name for name in one.names if getattr(self, name) is not None), "")) for one in step.of)
        return [(factor, name) for factor, name in there if name]

    def formula(self, step: Step) -> str:
        """The step's formula with the factors that this layer has: D V where weights are dropped, X₂ W_K across two texts."""
        formula = step.formula
        for factor, there in self.factors(step):
            for name in {*factor.names} - {there}:
                symbol = rf"(?<!\w){re.escape(find_step(name).symbol)}(?![\w′₂])"
                formula = re.sub(symbol, find_step(there).symbol, formula)
        return formula

    @property
    def n_heads(self) -> int:
        """The number of heads, 1 where no step has any."""
        return next((len(tensor) for step, tensor in self if step.per_head), 1)

    @property
    def sizes(self) -> dict[str, int]:
        """How long each axis is, by its name; only the axes of what this layer has."""
        there = ((declared.metadata.get("axes", ()), getattr(self, declared.name)) for declared in fields(self))
        return {
            axis: size
            for axes, tensor in there
            if axes and tensor is not None
            for axis, size in zip(axes, tensor.shape, strict=True)
        }


def ends(tensor: Tensor) -> tuple[float, float] | None:
    """The smallest and the largest finite number of a tensor; None where it has none."""
    if not tensor.numel():
        return None
    low, high = (float(end) for end in tensor.aminmax())
    if math.isfinite(low) and math.isfinite(high):
        return low, high  # the common case: nothing hidden, and no copy of a large tensor
    # Filling in takes a fortieth of the time that picking the finite ones out would.
    above, below = math.inf, -math.inf
    low = float(tensor.nan_to_num(nan=above, posinf=above, neginf=above).amin())
    high = float(tensor.nan_to_num(nan=below, posinf=below, neginf=below).amax())
    return (low, high) if low <= high else None


STEPS: tuple[Step, ...] = tuple(Step(name=f.name, **f.metadata) for f in fields(Layer) if "symbol" in f.metadata)
"""Every step in the order of the formula: the only list of steps in the project."""

PARAMETERS: tuple[Parameter, ...] = tuple(
    Parameter(f.name, f.metadata["parameter"], f.metadata["axes"], f.metadata["meaning"], f.metadata["elsewhere"])
    for f in fields(Layer)
    if "parameter" in f.metadata
)
"""What a layer keeps beside its steps: the mask and the projections."""


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

    @property
    def nbytes(self) -> int:
        """The memory of all its tensors, in bytes; what two of them share counts once."""
        there = [getattr(layer, declared.name) for layer in self.layers for declared in fields(layer)]
        storages = {
            tensor.untyped_storage().data_ptr(): tensor for tensor in there if hasattr(tensor, "untyped_storage")
        }
        return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())

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
