"""What enters attention: embeddings, positions, their sum, and the second text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from attention.formula import names
from attention.formula.positions import BASE
from attention.formula.steps.step import Step, StepWork, called, cells_of, recorded
from attention.formula.steps.sums import added
from attention.formula.work import E_co
from attention.printed import Arithmetic, Printed, number

_TOKENS = ("query_pos", "d_model")
_ALONE = {
    names.EMBEDDING: "The token's embedding; no positions are added.",
    names.POSITION: "The encoding of the position; there is no embedding to add it to.",
}


@dataclass(frozen=True, repr=False)
class Position(Step):
    """The encoding of positions: recorded, and explained as the sine or cosine that it is."""

    def explain(self, work: StepWork[E_co]) -> E_co:
        """A sine or cosine of the position; a table that has something else is explained as one."""
        row, column = work.cell.row, work.cell.column
        d_model = work.layer[self.name].shape[1]
        rate, even = f"{column // 2 * 2}/{d_model}", column % 2 == 0
        angle = row / BASE ** (column // 2 * 2 / d_model)
        wave, turn = ("sin", math.sin) if even else ("cos", math.cos)

        def turned(digits: int) -> Printed:
            at = number(angle, digits)
            return Printed(rf"\{wave}({at.tex})", f"{wave}({at.text})", Decimal(turn(float(at.value))))

        def short(_: int) -> Printed:
            return Printed("", f"{wave}({row} / 10000^({rate}))", Decimal(turn(angle)))

        words = f"Position {row} in column {column}: {'a sine' if even else 'a cosine'} that turns more slowly in later columns."
        formula = rf"\{wave}\left({row} \,/\, 10000^{{{rate}}}\right)"
        return work.made(Arithmetic(formula, [turned], [short], words, [turn(angle)]))


@dataclass(frozen=True, repr=False)
class Input(Step):
    """The rows of the tokens: recorded, and explained as a sum."""

    def explain(self, work: StepWork[E_co]) -> E_co:
        """Embedding plus position."""
        return added(self, work, self.words, _ALONE, frozenset())


# fmt: off
EMBEDDING = Step(
    names.EMBEDDING, "E", "E", _TOKENS, "one row per token", "signed", equation=r"E_i = \text{the row of token } i",
    unknown=recorded(names.EMBEDDING),
    elsewhere=called(lens="hook_embed", transformers="inputs_embeds", n1="embedded_sentence", n4="lut"))
POSITION = Position(
    names.POSITION, "P", "P", _TOKENS, "positional encoding", "signed", equation=r"P_i = \text{the row of position } i",
    unknown="The row this position has in the table of positions: nothing is computed here.",
    elsewhere=called(lens="hook_pos_embed", transformers="position_embeds", n4="pe"))
INPUT = Input(
    names.INPUT, "X", "X", _TOKENS, "E + P", "signed", equation="X = E + P",
    words="The token's embedding plus the encoding of its position.",
    unknown="The input as it was given: nothing is computed here.",
    of=(cells_of(names.EMBEDDING), cells_of(names.POSITION)),
    elsewhere=called(
        lens="hook_resid_pre", transformers="hidden_states", torch="query (argument)",
        n1="X", n2="x", n3="words", n4="X", n5="token_encodings"))
MEMORY = Step(
    names.MEMORY, "X₂", "{X_2}", ("key_pos", "d_model"), "the second text's input", "signed",
    equation=r"X_2 = \text{the second text's } X", unknown=recorded(names.MEMORY),
    elsewhere=called(transformers="encoder_hidden_states", torch="memory"))
# fmt: on
