"""The glossary of the project: every step of attention and every parameter, declared once.

Shape checks, titles, colours, tables, the explanation, the copied Python, the reference page and the tests
read `STEPS` and `PARAMETERS`. `AXES` says what the axes mean. The file is as long as these tables, which are read as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from attention.errors import MissingError

Kind = Literal["signed", "probability"]
How = Literal["given", "product", "sum", "rotation", "division", "elementwise", "hidden", "shared out", "drawn", "kept"]
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
    Axis("kv_head", "number of the head that keys and values have, from zero; several query heads may share one", (
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
    Axis("bucket", "how far apart query and key are, near ones each by itself and far ones together", (
        ("transformers", "num_buckets"),)),
)
# fmt: on
"""Every axis there is, in the order in which they stand in a shape."""


HEAD_AXES = ("head", "kv_head")
MAP_AXES = ("head", "query_pos", "key_pos")
"""The axes of the steps whose size grows with the square of the text."""


@dataclass(frozen=True)
class Factor:
    """One matrix that a step is made of, and how a cell of the step finds its place in it.

    Attributes:
        names: of the step or parameter; of several the first that a layer has.
        row: which side of the step's cell gives the row: "row", "column", or "" where all rows take part.
        column: the same for the column; "pair" where a rotation takes the other column of its pair too.
        side_by_side: whether the matrices of all heads take part, next to one another.
    """

    names: tuple[str, ...]
    row: Literal["row", "column", ""] = ""
    column: Literal["row", "column", "pair", ""] = ""
    side_by_side: bool = False


def _rows_of(*names: str) -> Factor:
    return Factor(names, row="row")


def _columns_of(*names: str) -> Factor:
    return Factor(names, column="column")


def _cells_of(*names: str) -> Factor:
    return Factor(names, row="row", column="column")


def _pairs_of(*names: str) -> Factor:
    return Factor(names, row="row", column="pair")


@dataclass(frozen=True)
class Step:
    """One step of the formula: what it is called, what its axes mean, and how it is made.

    Attributes:
        name: as in `layer.weights`, and in links.
        symbol: its letter in the formula, plain text; `tex` the same for LaTeX.
        axes: the names of its axes, in order.
        formula: how it is made, plain text.
        kind: "signed" numbers lie around zero; a "probability" lies in 0 … 1.
        equation: how it is made, LaTeX, with the symbol on the left.
        how: the kind of arithmetic that makes a cell; `words` says it of one cell, with {row} and {column}.
        unknown: what is said of a cell where the source does not have what made it.
        when: the field of a `Formula` that must be set for this step to be there; empty: it always is.
        knobs: the fields of a `Formula` that it depends on, beside those of the steps before it.
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
    how: How = "given"
    words: str = ""
    unknown: str = ""
    when: str = ""
    knobs: tuple[str, ...] = ()
    elsewhere: Names = ()
    of: tuple[Factor, ...] = ()

    @property
    def per_head(self) -> bool:
        """Whether every head has a matrix of its own."""
        return self.axes[0] in HEAD_AXES

    @property
    def after_projections(self) -> bool:
        """Whether a `Formula` makes it, and not a projection of the input."""
        return self.axes == MAP_AXES or self.how in ("rotation", "kept") or self.name == "head_output"

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
    name: str,
    symbol: str,
    axes: str,
    formula: str,
    kind: Kind = "signed",
    *,
    tex: str = "",
    unknown: str = "",
    **more: Any,
) -> Step:
    """A step; of what is said of it by name, what is no field is what others call it."""
    own = {field: more.pop(field) for field in Step.__dataclass_fields__ if field in more}
    unknown = unknown or f"The {name} as the source recorded it; what made it is not known."
    split, names = tuple(axes.split()), _names(more)
    return Step(name, symbol, tex or symbol, split, formula, kind, unknown=unknown, elsewhere=names, **own)


def _parameter(name: str, symbol: str, axes: str, meaning: str, **elsewhere: str) -> Parameter:
    return Parameter(name, symbol, tuple(axes.split()), meaning, _names(elsewhere))


def _names(elsewhere: dict[str, str]) -> Names:
    """Keyword arguments as (who, name): ``lens`` is TransformerLens, ``n4`` is notebook 4."""
    who = {"lens": "TransformerLens", "jax": "JAX", **{f"n{i}": f"notebook {i}" for i in range(1, 6)}}
    return tuple((who.get(key, key), name) for key, name in elsewhere.items())


# Names elsewhere were read in TransformerLens's abstract_attention.py and transformer_block.py, in
# transformers' modeling_llama.py and modeling_gpt2.py, in nn.MultiheadAttention, in jax.nn, and in bertviz.
# fmt: off
STEPS: tuple[Step, ...] = (
    _step("embedding",
        "E", "query_pos d_model", "one row per token", equation=r"E_i = \text{the row of token } i",
        lens="hook_embed", transformers="inputs_embeds", n1="embedded_sentence", n4="lut"),
    _step("position",
        "P", "query_pos d_model", "positional encoding", equation=r"P_i = \text{the row of position } i", how="elementwise",
        unknown="The row this position has in the table of positions: nothing is computed here.",
        lens="hook_pos_embed", transformers="position_embeds", n4="pe"),
    _step("input",
        "X", "query_pos d_model", "E + P", equation="X = E + P",
        how="sum", words="The token's embedding plus the encoding of its position.",
        unknown="The input as it was given: nothing is computed here.",
        of=(_cells_of("embedding"), _cells_of("position")),
        lens="hook_resid_pre", transformers="hidden_states", torch="query (argument)",
        n1="X", n2="x", n3="words", n4="X", n5="token_encodings"),
    _step("query",
        "Q", "head query_pos d_k", "X W_Q", equation="Q = X W_Q",
        how="product", words="Row {row} of {left} times column {column} of this head's W_Q.",
        unknown="The query as it was given: nothing is computed here.",
        of=(_rows_of("input"), _columns_of("w_q")),
        lens="hook_q", transformers="query_states", torch="q", bertviz="queries", n1="Q, M_Q", n2="q", n3="Q", n4="Q", n5="q"),
    _step("memory",
        "X₂", "key_pos d_model", "the second text's input", tex="{X_2}", equation=r"X_2 = \text{the second text's } X",
        transformers="encoder_hidden_states", torch="memory"),
    _step("key",
        "K", "kv_head key_pos d_k", "X W_K", equation="K = X W_K",
        how="product", words="Row {row} of {left} times column {column} of this head's W_K.",
        unknown="The key as it was given: nothing is computed here.",
        of=(_rows_of("memory", "input"), _columns_of("w_k")),
        lens="hook_k", transformers="key_states", torch="k", bertviz="keys", n1="K, M_K", n2="k", n3="K", n4="K", n5="k"),
    _step("value",
        "V", "kv_head key_pos d_v", "X W_V", equation="V = X W_V",
        how="product", words="Row {row} of {left} times column {column} of this head's W_V.",
        unknown="The value as it was given: nothing is computed here.",
        of=(_rows_of("memory", "input"), _columns_of("w_v")),
        lens="hook_v", transformers="value_states", torch="v", n1="V, M_V", n2="v", n3="V", n4="V", n5="v"),
    _step("rotated_query",
        "Q′", "head query_pos d_k", "Q, turned by its positions", tex="Q'",
        equation=r"Q'_{p,i} = Q_{p,i} \cos(p\,\theta_i) \mp Q_{p,i \pm d_k/2} \sin(p\,\theta_i)",
        how="rotation", when="rotary", knobs=("rotary",), of=(_pairs_of("query"),),
        lens="hook_rot_q", transformers="q_embed"),
    _step("rotated_key",
        "K′", "kv_head key_pos d_k", "K, turned by its positions", tex="K'",
        equation=r"K'_{p,i} = K_{p,i} \cos(p\,\theta_i) \mp K_{p,i \pm d_k/2} \sin(p\,\theta_i)",
        how="rotation", when="rotary", knobs=("rotary",), of=(_pairs_of("key"),),
        lens="hook_rot_k", transformers="k_embed"),
    _step("scores",
        "S", "head query_pos key_pos", "Q Kᵀ", equation=r"S = Q K^{\top}",
        how="product", knobs=("score",), unknown="The score as it was given: no query and key made it.",
        of=(_rows_of("rotated_query", "query"), Factor(("rotated_key", "key"), row="column")),
        transformers="attn_weights", jax="logits", n1="W", n2="weights", n3="scores", n5="sims"),
    _step("scaled_scores",
        "S′", "head query_pos key_pos", "S / (√d_k · temperature)", tex="S'",
        equation=r"S' = \frac{S}{\sqrt{d_k} \cdot \text{temperature}}",
        how="division", when="divisor", knobs=("divisor", "temperature"), of=(_cells_of("scores"),),
        transformers="attn_weights", jax="logits", n1="W, W2", n2="weights", n4="scaled_dot_prod", n5="scaled_sims"),
    _step("capped_scores",
        "C", "head query_pos key_pos", "cap · tanh(S′ / cap)", equation=r"C = \text{cap} \cdot \tanh(S' / \text{cap})",
        how="elementwise", when="cap", knobs=("cap",), of=(_cells_of("scaled_scores", "scores"),),
        transformers="attn_weights"),
    _step("biased_scores",
        "B", "head query_pos key_pos", "C + bias", equation=r"B = C + \text{bias}",
        how="sum", words="The score plus the bias of this pair of positions.", when="bias", knobs=("bias",),
        of=(_cells_of("capped_scores", "scaled_scores", "scores"), _cells_of("bias")),
        transformers="attn_weights"),
    _step("masked_scores",
        "M", "head query_pos key_pos", "B, and −∞ where the mask hides a key",
        equation=r"M_{ij} = \begin{cases} B_{ij} & \text{visible} \\ -\infty & \text{hidden} \end{cases}",
        how="hidden", when="share", knobs=("mask",),
        of=(_cells_of("biased_scores", "capped_scores", "scaled_scores", "scores"), _cells_of("mask")),
        lens="hook_attn_scores", transformers="attn_weights", jax="padded_logits", n2="weights", n4="scaled_dot_prod"),
    _step("weights",
        "A", "head query_pos key_pos", "softmax of M over key_pos", "probability",
        equation=r"A_{ij} = \frac{e^{M_{ij}}}{\sum_{l} e^{M_{il}}}",
        how="shared out", when="share", knobs=("share",), of=(_cells_of("masked_scores"),),
        lens="hook_pattern", transformers="attn_weights", jax="probs", torch="attn_output_weights", bertviz="attention",
        n1="W, W2", n2="weights", n3="weights", n4="attn_probs", n5="attention_percents"),
    _step("dropped_weights",
        "D", "head query_pos key_pos", "A, a share of it dropped, the rest divided by 1 − dropout", "probability",
        equation=r"D_{ij} = \begin{cases} 0 & \text{dropped} \\ A_{ij} / (1 - \text{dropout}) & \text{kept} \end{cases}",
        how="drawn", when="dropping", knobs=("dropping",), of=(_cells_of("weights"),),
        transformers="attn_weights", torch="attn_output_weights", n4="dropout(attn_probs)"),
    _step("head_output",
        "Z", "head query_pos d_v", "A V", equation="Z = A V",
        how="product", words="Query {row} takes from each key's value as much as its {share} says.",
        of=(_rows_of("dropped_weights", "weights", "scores"), _columns_of("value")),
        lens="hook_z", transformers="attn_output", jax="encoded", n1="Y, Y2", n2="out", n3="attention", n4="A",
        n5="res, attension_scores"),
    _step("kept_output",
        "Z′", "head query_pos d_v", "what is kept of Z", tex="Z'",
        equation=r"Z' = (1 - \text{strength})\, Z + \text{strength} \cdot \text{its mean, or } 0",
        how="kept", when="keeps", of=(_cells_of("head_output"),)),
    _step("output",
        "O", "query_pos d_model", "concat(Z) W_O", equation=r"O = \text{concat}(Z)\, W_O",
        how="product", words="The heads' outputs for query {row}, side by side, times column {column} of W_O.",
        unknown="The output as the source recorded it; its W_O is not known.",
        of=(Factor(("kept_output", "head_output"), row="row", side_by_side=True), Factor(("w_o",), column="column", side_by_side=True)),
        lens="hook_attn_out", transformers="attn_output", torch="attn_output", n4="output"),
)
"""Every step in the order of the formula: the only list of steps in the project."""

PARAMETERS: tuple[Parameter, ...] = (
    _parameter("mask",
        "mask", "query_pos key_pos", "which keys a query may attend to: True = may",
        lens="mask", transformers="attention_mask", torch="attn_mask", n2="tril", n4="mask"),
    _parameter("w_q",
        "W_Q", "head d_model d_k", "turns a token's row into its query",
        lens="W_Q", transformers="q_proj.weight", torch="in_proj_weight", n1="W_Q, MW_Q", n2="query", n3="W_Q", n4="Wq", n5="W_q"),
    _parameter("w_k",
        "W_K", "kv_head d_model d_k", "turns a token's row into its key",
        lens="W_K", transformers="k_proj.weight", torch="in_proj_weight", n1="W_K, MW_K", n2="key", n3="W_K", n4="Wk", n5="W_k"),
    _parameter("w_v",
        "W_V", "kv_head d_model d_v", "turns a token's row into its value",
        lens="W_V", transformers="v_proj.weight", torch="in_proj_weight", n1="W_V, MW_V", n2="value", n3="W_V", n4="Wv", n5="W_v"),
    _parameter("w_o",
        "W_O", "head d_v d_model", "mixes the heads' outputs, side by side, into one row",
        lens="W_O", transformers="o_proj.weight", torch="out_proj.weight", n4="Wo"),
    _parameter("b_q",
        "b_Q", "head d_k", "is added to every query", lens="b_Q", transformers="q_proj.bias", torch="in_proj_bias"),
    _parameter("b_k",
        "b_K", "kv_head d_k", "is added to every key", lens="b_K", transformers="k_proj.bias", torch="in_proj_bias"),
    _parameter("b_v",
        "b_V", "kv_head d_v", "is added to every value", lens="b_V", transformers="v_proj.bias", torch="in_proj_bias"),
    _parameter("b_o",
        "b_O", "d_model", "is added to every output", lens="b_O", transformers="o_proj.bias", torch="out_proj.bias"),
    _parameter("w_s",
        "w_S", "head d_k", "weighs the columns of tanh(q + k) where scores are additive"),
    _parameter("bias",
        "bias", "head query_pos key_pos", "what is added to the scores of each pair of positions",
        transformers="position_bias", torch="attn_mask"),
    _parameter("sinks",
        "sink", "head", "is one more score in every row of its head, of no key: what it takes of the weights goes nowhere",
        transformers="sinks"),
    _parameter("drop",
        "drop", "head query_pos key_pos", "what the weights are multiplied by: 0 drops one, 1 / (1 − dropout) keeps it"),
    _parameter("taken_weights",
        "A₂", "head query_pos key_pos", "weights of another run of the model, for the heads that take theirs from there"),
    _parameter("taken_output",
        "Z₂", "head query_pos d_v", "heads' outputs of another run of the model, for the heads that take theirs from there"),
    _parameter("bias_table",
        "R", "bucket head", "what is added to the scores of keys so far away", transformers="relative_attention_bias.weight"),
)
"""What a layer keeps beside its steps: the mask, the projections, their biases."""
# fmt: on

_STEPS = {step.name: step for step in STEPS}

DECLARED: dict[str, Step | Parameter] = _STEPS | {one.name: one for one in PARAMETERS}
"""Steps and parameters by their names."""


def find_step(name: str) -> Step:
    """The step called `name`.

    Raises:
        MissingError: there is none of that name.
    """
    if name in _STEPS:
        return _STEPS[name]
    raise MissingError(f"a step is one of {', '.join(_STEPS)}; got {name!r}: choose one of them.")


def is_step(name: str) -> bool:
    """Whether there is a step called `name`; otherwise it is a parameter's name."""
    return name in _STEPS


def declared(name: str) -> Step | Parameter:
    """The step or parameter called `name`.

    Raises:
        MissingError: there is none of that name.
    """
    return DECLARED.get(name) or find_step(name)
