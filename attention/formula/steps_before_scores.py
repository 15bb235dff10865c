"""The parameters of a layer, and the steps before the scores: inputs, Q, K and V, and their rotation (RoPE)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from attention.base import printed
from attention.base.printed import Arithmetic, Printed, bracketed, format_number, number, product
from attention.formula import names
from attention.formula.explainer import E_co
from attention.formula.inline import defined
from attention.formula.names import Cell
from attention.formula.positions import BASE, paired_column, rotate
from attention.formula.step import (
    Factor,
    LayerView,
    Parameter,
    ProgramWriter,
    Step,
    StepContext,
    called,
    cells_of,
    columns_of,
    pairs_of,
    recorded,
    rows_of,
)

if TYPE_CHECKING:
    from torch import Tensor


def _parameter(name: str, symbol: str, axes: str, meaning: str, **elsewhere: str) -> Parameter:
    return Parameter(name, symbol, tuple(axes.split()), meaning, called(**elsewhere))


# fmt: off
PARAMETERS: tuple[Parameter, ...] = (
    _parameter("mask",
        "mask", "query_pos key_pos", "which keys a query may attend to: True = may",
        lens="mask", transformers="attention_mask", torch="attn_mask, key_padding_mask", n2="tril", n4="mask"),
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
        "w_S", "head d_k", "weighs the columns of tanh(q + k) in additive scores"),
    _parameter("bias",
        "bias", "head query_pos key_pos", "what is added to the scores of each pair of positions",
        transformers="position_bias", torch="attn_mask"),
    _parameter("sinks",
        "sink", "head", "an extra score in every row of its head that belongs to no key: its weight is dropped",
        transformers="sinks"),
    _parameter("lambdas",
        "λ", "head", "of differential attention, whose heads are pairs: the second head's weights are subtracted λ times"),
    _parameter("dropout_mask",
        "dropout_mask", "head query_pos key_pos", "what the weights are multiplied by: 0 drops one, 1 / (1 − dropout) keeps it"),
    _parameter("patched_weights",
        "A₂", "head query_pos key_pos", "weights of another run of the model, for the heads that are patched with them"),
    _parameter("patched_head_output",
        "Z₂", "head query_pos d_v", "heads' outputs of another run of the model, for the heads that are patched with them"),
    _parameter("bias_table",
        "R", "bucket head", "what is added to the scores of keys at this distance", transformers="relative_attention_bias.weight"),
)
"""All parameters of a layer."""
# fmt: on


def added(
    step: Step, work: StepContext[E_co], words: str, single_term: Mapping[str, str], parameters: frozenset[str]
) -> E_co:
    """The sum of two cells; a copy if the layer has only one of them.

    Args:
        words: the explanation of the sum.
        single_term: the explanation if a term is the only one, by its name.
        parameters: the terms that are parameters, not steps.
    """
    row, column = work.cell.row, work.cell.column
    terms = [name for _, name in work.layer.factors(step)]
    if not terms:
        return work.as_recorded()
    values = [work.number_at(name, row, column) for name in terms]
    symbols = [work.element_tex(name, row, column) for name in terms]
    came_from = tuple(work.cell_of(name, row, column) for name in terms if name not in parameters)
    if len(terms) == 1:
        return work.from_copy(
            terms[0], row, column, single_term.get(terms[0], step.unknown), f"the token's {terms[0]} alone"
        )
    if -math.inf in values and terms[values.index(-math.inf)] in parameters:
        text = f"The bias of this pair is −∞: it hides key {column} from query {row} like a mask."
        return work.from_claim(-math.inf, text, "hidden by the bias", came_from, (" + ".join(symbols), r"-\infty"))

    def line(digits: int) -> Printed:
        return printed.sum_of([bracketed(value, digits) for value in values])

    return work.from_arithmetic(Arithmetic(" + ".join(symbols), [line], [line], words, values), came_from)


_TOKENS = ("query_pos", "d_model")
_SINGLE_TERM = {
    names.EMBEDDING: "The token's embedding; no position is added.",
    names.POSITION: "The encoding of the position; there is no embedding.",
}


@dataclass(frozen=True, repr=False)
class _Position(Step):
    """The positional encoding: recorded, and explained as a sine or cosine."""

    def explain(self, work: StepContext[E_co]) -> E_co:
        row, column = work.cell.row, work.cell.column
        d_model = work.layer[self.name].shape[1]
        rate, even = f"{column // 2 * 2}/{d_model}", column % 2 == 0
        angle = row / BASE ** (column // 2 * 2 / d_model)
        wave, function = ("sin", math.sin) if even else ("cos", math.cos)

        def line(digits: int) -> Printed:
            radians = number(angle, digits)
            value = Decimal(function(float(radians.value)))
            return Printed(rf"\{wave}({radians.tex})", f"{wave}({radians.text})", value)

        def short(_: int) -> Printed:
            return Printed("", f"{wave}({row} / 10000^({rate}))", Decimal(function(angle)))

        words = f"Position {row} in column {column}: {'a sine' if even else 'a cosine'} of the position, slower in later columns."
        formula = rf"\{wave}\left({row} \,/\, 10000^{{{rate}}}\right)"
        return work.from_arithmetic(Arithmetic(formula, [line], [short], words, [function(angle)]))


@dataclass(frozen=True, repr=False)
class _Input(Step):
    """The input rows of the tokens: recorded, and explained as a sum."""

    def explain(self, work: StepContext[E_co]) -> E_co:
        return added(self, work, self.words, _SINGLE_TERM, frozenset())


# fmt: off
EMBEDDING = Step(
    names.EMBEDDING, "E", "E", _TOKENS, "one row per token", "signed", equation=r"E_i = \text{the row of token } i",
    unknown=recorded(names.EMBEDDING),
    elsewhere=called(lens="hook_embed", transformers="inputs_embeds", n1="embedded_sentence", n4="lut"))
POSITION = _Position(
    names.POSITION, "P", "P", _TOKENS, "positional encoding", "signed", equation=r"P_i = \text{the row of position } i",
    unknown="The row of this position in the table of positions: it is not computed.",
    elsewhere=called(lens="hook_pos_embed", transformers="position_embeds", n4="pe"))
INPUT = _Input(
    names.INPUT, "X", "X", _TOKENS, "E + P", "signed", equation="X = E + P",
    words="The token's embedding plus the encoding of its position.",
    unknown="The input as provided: it is not computed.",
    of=(cells_of(names.EMBEDDING), cells_of(names.POSITION)),
    elsewhere=called(
        lens="hook_resid_pre", transformers="hidden_states", torch="query (argument)",
        n1="X", n2="x", n3="words", n4="X", n5="token_encodings"))
MEMORY = Step(
    names.MEMORY, "X₂", "{X_2}", ("key_pos", "d_model"), "the second text's input", "signed",
    equation=r"X_2 = \text{the second text's } X", unknown=recorded(names.MEMORY),
    elsewhere=called(transformers="encoder_hidden_states", torch="memory"))
# fmt: on


@dataclass(frozen=True, repr=False)
class Product(Step):
    """A step that is the product of its two factors."""

    def explain(self, work: StepContext[E_co]) -> E_co:
        """A row times a column: every pair of numbers multiplied, and all products added."""
        factors = work.layer.factors(self)
        if len(factors) < len(self.of):
            return self.explain_incomplete(work, factors)
        return self.explain_product(work, factors)

    def explain_incomplete(self, work: StepContext[E_co], factors: list[tuple[Factor, str]]) -> E_co:
        """The explanation of a cell if the layer does not have all factors."""
        return work.as_recorded()

    def describe(self, work: StepContext[E_co], left: str) -> str:
        """How the cell is computed; `left` is the name of the left factor."""
        symbol = work.find_declared(left).symbol
        return self.words.format(row=work.cell.row, column=work.cell.column, left=symbol)

    def explain_product(self, work: StepContext[E_co], factors: list[tuple[Factor, str]]) -> E_co:
        """The sum of all products."""
        (left, left_name), (right, right_name) = factors
        row, column = work.cell.row, work.cell.column
        if left.concatenated:
            left_row = work.layer[left_name][:, row].flatten()
            right_column = work.layer[right_name][:, :, column].flatten()
            width = work.layer.shape(left_name)[-1]
            tex = rf"\sum_{{h,i}} Z^{{(h)}}_{{{row},i}}\, W^{{O(h)}}_{{i,{column}}}"
            cells = [work.cell_of(left_name, row, i % width, i // width) for i in range(len(left_row))]

            def cells_of_term(i: int) -> tuple[Cell, ...]:
                return (cells[i],)
        else:
            left_row = work.row_of(left_name, row)
            by_row = right.row == "column"  # Q Kᵀ: a row of K
            right_column = work.row_of(right_name, column) if by_row else work.column_of(right_name, column)
            letter = "j" if work.find_declared(left_name).axes[-1] == "key_pos" else "i"
            indices = (column, letter) if by_row else (letter, column)
            tex = (
                rf"\sum_{letter} {work.element_tex(left_name, row, letter)}\, {work.element_tex(right_name, *indices)}"
            )

            def cells_of_term(i: int) -> tuple[Cell, ...]:
                places = [(left_name, row, i), (right_name, column, i) if by_row else (right_name, i, column)]
                return tuple(work.cell_of(*place) for place in places if isinstance(work.find_declared(place[0]), Step))

        added_bias = None
        if self.bias and work.layer.has(self.bias):
            bias = work.layer[self.bias]
            added_bias = float(bias[column] if bias.ndim == 1 else work.layer.matrix(self.bias, work.cell.head)[column])
            tex += f" + {work.element_tex(self.bias, '', column)}"
        pairs = list(zip(left_row.double().tolist(), right_column.double().tolist(), strict=True))
        words = self.describe(work, left_name)
        return work.from_sum(
            [a * b for a, b in pairs],
            lambda i, digits: product(*pairs[i], digits),
            tex,
            words,
            cells_of_term,
            added_bias,
        )


@dataclass(frozen=True, repr=False)
class _Projection(Product):
    """The input times a matrix of each head."""

    def explain_incomplete(self, work: StepContext[E_co], factors: list[tuple[Factor, str]]) -> E_co:
        row, column = work.cell.row, work.cell.column
        source = factors[0][1] if factors else ""
        if not source or not isinstance(declared := work.find_declared(source), Step):
            return work.as_recorded()
        x = work.layer[source]
        if row >= x.shape[0] or column >= x.shape[1] or float(x[row, column]) != work.value:
            return work.as_recorded(f"The {self.name} as the source recorded it; its projection is not known.")
        words = f"No projection: {self.symbol} is {declared.symbol} itself."
        return work.from_copy(source, row, column, words, f"{declared.symbol} itself, no projection")


# fmt: off
QUERY = _Projection(
    names.QUERY, "Q", "Q", ("head", "query_pos", "d_k"), "X W_Q", "signed", equation="Q = X W_Q",
    words="Row {row} of {left} times column {column} of this head's W_Q.",
    unknown="The query as provided: it is not computed.",
    of=(rows_of(names.INPUT), columns_of("w_q")), bias="b_q",
    elsewhere=called(lens="hook_q", transformers="query_states", torch="q", bertviz="queries", n1="Q, M_Q", n2="q", n3="Q", n4="Q", n5="q"))
KEY = _Projection(
    names.KEY, "K", "K", ("kv_head", "key_pos", "d_k"), "X W_K", "signed", equation="K = X W_K",
    words="Row {row} of {left} times column {column} of this head's W_K.",
    unknown="The key as provided: it is not computed.",
    of=(rows_of(names.MEMORY, names.INPUT), columns_of("w_k")), bias="b_k",
    elsewhere=called(lens="hook_k", transformers="key_states", torch="k", bertviz="keys", n1="K, M_K", n2="k", n3="K", n4="K", n5="k"))
VALUE = _Projection(
    names.VALUE, "V", "V", ("kv_head", "key_pos", "d_v"), "X W_V", "signed", equation="V = X W_V",
    words="Row {row} of {left} times column {column} of this head's W_V.",
    unknown="The value as provided: it is not computed.",
    of=(rows_of(names.MEMORY, names.INPUT), columns_of("w_v")), bias="b_v",
    elsewhere=called(lens="hook_v", transformers="value_states", torch="v", n1="V, M_V", n2="v", n3="V", n4="V", n5="v"))
# fmt: on


_ROTATION = r"{0}_{{p,i}} = {1}_{{p,i}} \cos(p\,\theta_i) \mp {1}_{{p,i \pm d_k/2}} \sin(p\,\theta_i)"


@dataclass(frozen=True, repr=False)
class _Rotation(Step):
    """Steps Q′ and K′: every pair of columns rotated by an angle that grows with the position."""

    @property
    def rotated_step(self) -> str:
        return self.of[0].names[0]

    @property
    def by_formula(self) -> bool:
        return True

    def available(self, layer: LayerView) -> bool:
        return self.rotated_step in layer.available

    def compute(self, layer: LayerView, head: int | None) -> Tensor:
        assert layer.formula is not None
        result = rotate(layer[self.rotated_step], layer.formula.rotary or BASE)
        return result if head is None else result[head]

    def explain(self, work: StepContext[E_co]) -> E_co:
        row, column = work.cell.row, work.cell.column
        vector = work.row_of(self.rotated_step, row).double().tolist()
        half, base = len(vector) // 2, work.formula.rotary or BASE
        pair, first = column % half, column < half
        angle = row * base ** (-2 * pair / len(vector))
        other_column = paired_column(column, len(vector))
        factors = [
            (vector[column], math.cos(angle)),
            (vector[other_column], -math.sin(angle) if first else math.sin(angle)),
        ]
        sign = "-" if first else "+"
        symbols = [work.element_tex(self.rotated_step, row, each) for each in (column, other_column)]
        formula = rf"{symbols[0]} \cos({row}\,\theta_{{{pair}}}) {sign} {symbols[1]} \sin({row}\,\theta_{{{pair}}})"
        return work.from_sum(
            [a * b for a, b in factors],
            lambda i, digits: product(*factors[i], digits),
            formula,
            f"Columns {pair} and {pair + half} are a pair, rotated by position {row} times θ = {format_number(base ** (-2 * pair / len(vector)))}: "
            f"by {format_number(angle)} radians. Scores then depend on the distance of two positions.",
            lambda i: (work.cell_of(self.rotated_step, row, (column, other_column)[i]),),
        )

    def python(self, writer: ProgramWriter) -> list[str]:
        lines = defined(rotate) if self.rotated_step == names.QUERY else []
        return [*lines, f"{self.name} = rotate({self.rotated_step}, {writer.formula.rotary!r})"]


# fmt: off
ROTATED_QUERY = _Rotation(
    names.ROTATED_QUERY, "Q′", "Q'", ("head", "query_pos", "d_k"), "Q, rotated by its positions", "signed",
    equation=_ROTATION.format("Q'", "Q"), unknown="The rotated_query as the source recorded it; what made it is not known.",
    when="rotary", knobs=("rotary",), example=(("rotary", BASE),), of=(pairs_of(names.QUERY),),
    elsewhere=called(lens="hook_rot_q", transformers="q_embed"))
ROTATED_KEY = _Rotation(
    names.ROTATED_KEY, "K′", "K'", ("kv_head", "key_pos", "d_k"), "K, rotated by its positions", "signed",
    equation=_ROTATION.format("K'", "K"), unknown="The rotated_key as the source recorded it; what made it is not known.",
    when="rotary", knobs=("rotary",), example=(("rotary", BASE),), of=(pairs_of(names.KEY),),
    elsewhere=called(lens="hook_rot_k", transformers="k_embed"))
# fmt: on
