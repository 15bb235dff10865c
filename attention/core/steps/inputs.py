"""The inputs of attention: embeddings, positions, their sum, and the second text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from attention.core import names
from attention.core.explainer import E_co
from attention.core.positions import BASE
from attention.core.step import Step, StepContext, called, cells_of, recorded
from attention.core.steps.sums import added
from attention.printed import Arithmetic, Printed, number

_TOKENS = ("query_pos", "d_model")
_SINGLE_TERM = {
    names.EMBEDDING: "The token's embedding; no position is added.",
    names.POSITION: "The encoding of the position; there is no embedding.",
}


@dataclass(frozen=True, repr=False)
class Position(Step):
    """The positional encoding: recorded, and explained as a sine or cosine."""

    def explain(self, work: StepContext[E_co]) -> E_co:
        """A sine or cosine of the position; if the recorded number differs, that it comes from a table."""
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
class Input(Step):
    """The input rows of the tokens: recorded, and explained as a sum."""

    def explain(self, work: StepContext[E_co]) -> E_co:
        """The sum of embedding and position."""
        return added(self, work, self.words, _SINGLE_TERM, frozenset())


# fmt: off
EMBEDDING = Step(
    names.EMBEDDING, "E", "E", _TOKENS, "one row per token", "signed", equation=r"E_i = \text{the row of token } i",
    unknown=recorded(names.EMBEDDING),
    elsewhere=called(lens="hook_embed", transformers="inputs_embeds", n1="embedded_sentence", n4="lut"))
POSITION = Position(
    names.POSITION, "P", "P", _TOKENS, "positional encoding", "signed", equation=r"P_i = \text{the row of position } i",
    unknown="The row of this position in the table of positions: it is not computed.",
    elsewhere=called(lens="hook_pos_embed", transformers="position_embeds", n4="pe"))
INPUT = Input(
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
