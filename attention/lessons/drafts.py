"""What can be asked about the chosen cell: lessons that are made of the live trace, with a question that a teacher may reword."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlencode

from attention.formula.cell import Cell
from attention.formula.layer import Layer
from attention.formula.names import INPUT, MASKED_SCORES, SCALED_SCORES, WEIGHTS
from attention.formula.ranges import in_url
from attention.formula.steps import STEPS, Step, find_step, is_step
from attention.formula.trace import Trace
from attention.lessons.kinds import KINDS
from attention.lessons.lesson import Lesson, Part
from attention.lessons.small_tables import MOST
from attention.printed import shown
from attention.sources import knobs
from attention.tokens import label

_MANY = 16  # rows of a map; of a larger one a lesson shows the row that it asks about
_FEW = 8  # keys that a person puts in order, or sketches
_NEAR = 0.05  # what an answer may miss of a share, or of a number as large as 1


class Turn(NamedTuple):
    """One knob that a lesson turns: its key, its value, the first step it changes, it in words after "if" and after "weights,", and why."""

    key: str
    value: str
    first: str
    if_it: str
    turned: str
    why: str


TURNS = (
    Turn("temperature", "0.3", SCALED_SCORES, "the temperature is 0.3", "at temperature 0.3",
         "Divided by 0.3, scores lie further apart, and what is furthest above the others takes more."),
    Turn("temperature", "3.0", SCALED_SCORES, "the temperature is 3", "at temperature 3",
         "Divided by 3, scores lie closer together, and shares come closer to each other."),
    Turn("mask", "causal", MASKED_SCORES, "a causal mask hides what comes later", "with a causal mask",
         "The mask hides later keys, and 1 is shared out among those that are left."),
    Turn("mask", "none", MASKED_SCORES, "there is no mask", "without a mask",
         "Without a mask every key takes part, and 1 is shared out among all of them."),
    Turn("scaled", "false", SCALED_SCORES, "scores are not divided by √d_k", "without √d_k",
         "Without the division scores lie further apart, and what is furthest above the others takes more."),
    Turn("positions", "sinusoidal", INPUT, "positions are added", "with positions",
         "A pattern of its place is added to each row of the input, so queries and keys become others, and so do their products."),
)  # fmt: skip
"""Every "more, less or the same, if …" that a teacher finds; those of the source that is shown."""

_SILENT = Turn(
    knobs.DO.key, "{}.*.zero", INPUT, "layer {} is silenced", "layer {} silenced",
    "What this layer reads was written by the layers before it, so its queries and keys may become others.",
)  # fmt: skip


class Draft(NamedTuple):
    """A lesson to be: what a teacher picks it by, and the lesson; what is empty in it they write themselves."""

    label: str
    lesson: Lesson


def drafts(trace: Trace, cell: Cell, state: Mapping[str, str]) -> tuple[Draft, ...]:
    """Everything that can be asked about a cell.

    Args:
        trace: what is shown.
        cell: the chosen one.
        state: what makes the trace, by key as in a link; of the cell it has no more than the layer and the head.
    """
    state = {knobs.SOURCE.key: str(knobs.SOURCE.default), **state}  # never empty, and true whatever is the default
    layer = trace.layer(cell.layer)
    here = _About(layer, cell, state)
    in_row = here if here.step.column_axis == "key_pos" or not layer.has(WEIGHTS) else here.in_the_weights()
    in_words = in_row.step.column_axis == "key_pos"
    found = [in_row.key()] if in_words else []
    more: list[Draft] = []
    if layer.shape(cell.step)[-1] <= MOST:
        found.append(here.number())
        more = [here.click(), *here.turned()]
    else:
        here = in_row  # what is too wide for a small map is asked about by its weights
    if in_words and len(layer.key_tokens) <= _FEW:
        more += [in_row.order(), *([in_row.row()] if in_row.step.kind == "probability" else [])]
    return (*found, here.own("choice"), here.own("number"), *more)


class _About(NamedTuple):
    """What the lessons about one cell have in common."""

    layer: Layer
    cell: Cell
    state: Mapping[str, str]

    @property
    def step(self) -> Step:
        return find_step(self.cell.step)

    def in_the_weights(self) -> _About:
        """The same about the weights of the query that comes nearest."""
        row = min(self.cell.row, len(self.layer.tokens) - 1)
        return self._replace(cell=replace(self.cell, step=WEIGHTS, row=row, column=0))

    @property
    def noun(self) -> str:
        """One number of the step, such as "scaled score"; where its columns are no keys, the step."""
        name = self.step.name.replace("_", " ")
        return name.removesuffix("s") if self.step.column_axis == "key_pos" else name

    def name(self, axis: str, place: int) -> str:
        """A row or a column: its token, with its place where there are several of them; or its number."""
        tokens = self.layer.labels_of(axis)
        if tokens is None:
            return f"column {place}"
        token = f"“{label(tokens[place], 20, escape=False)}”"
        return f"{token} ({place})" if tokens.count(tokens[place]) > 1 else token

    @property
    def row_name(self) -> str:
        return self.name(self.step.row_axis, self.cell.row)

    @property
    def called(self) -> str:
        """The cell in words."""
        column = self.name(self.step.column_axis, self.cell.column)
        if self.step.column_axis != "key_pos":
            return f"{column} of the {self.noun} of {self.row_name}"
        return f"the {self.noun} of {self.row_name} {'on' if self.step.kind == 'probability' else 'and'} {column}"

    def whole(self) -> Part:
        """The step, or the row of it where it is large."""
        large = self.layer.shape(self.step.name)[-2] > _MANY
        return Part(self.step.name, self.cell.row if large else None)

    def lesson(self, kind: str, question: str, answer: str, **more: object) -> Lesson:
        title = f"About the {self.step.name.replace('_', ' ')}"
        made = Lesson(
            "", title, "", urlencode(self.state), (self.whole(),), kind, question, answer, (), options=KINDS[kind].options
        )  # fmt: skip
        return replace(made, **more)  # type: ignore[arg-type]

    def in_row(self, function: str) -> str:
        return f"{function}({self.step.name}, q={self.cell.row})"

    @property
    def here(self) -> Part:
        return Part(self.step.name, self.cell.row, self.cell.column)

    def of_row(self, kind: str, question: str, answer: str, **more: object) -> Lesson:
        row = Part(self.step.name, self.cell.row)
        return self.lesson(kind, question, answer, hide=(row,), **more)

    def key(self) -> Draft:
        weights = self.step.name == WEIGHTS
        what = f"look at most{'' if weights else f', by its {self.noun}s'}"
        asked = f"Which key does {self.row_name} {what}?"
        part = Part(self.step.name, self.cell.row)
        return Draft("Which key has the most?", self.of_row("key", asked, self.in_row("argmax_key"), explain=part))

    def order(self) -> Draft:
        asked = f"Put the keys in the order of the {self.noun}s of {self.row_name}."
        return Draft("Put the keys in order", self.of_row("order", asked, self.in_row("order")))

    def row(self) -> Draft:
        asked = f"Sketch the {self.noun}s of {self.row_name}."
        return Draft("Sketch the row", self.of_row("row", asked, self.in_row("row"), tolerance=0.1))

    def number(self) -> Draft:
        """The cell beside what makes it, as far as that are steps."""
        sides = {"row": self.cell.row, "column": self.cell.column}
        makers = tuple(
            Part(name, sides.get(factor.row))
            for factor, name in self.layer.factors(self.step)
            if is_step(name) and not factor.side_by_side and max(self.layer.shape(name)[-2:]) <= MOST
        )
        size = abs(float(self.layer.matrix(self.step.name, self.cell.head)[self.cell.row, self.cell.column]))
        near = float(f"{_NEAR * size:.1g}") if 1 < size < float("inf") else _NEAR
        lesson = self.lesson(
            "number", f"What is {self.called}?", f"value({self.step.name}, q={self.cell.row}, k={self.cell.column})",
            show=(*makers, self.whole()), hide=(self.here,), explain=self.here, tolerance=near,
        )  # fmt: skip
        return Draft("What is the chosen number?", lesson)

    def turned(self) -> Iterator[Draft]:
        """More, less or the same: one for each knob that this source has, and that stands elsewhere."""
        source = self.state[knobs.SOURCE.key]
        known = {one.key: one for one in knobs.layer_of(source)}
        standing = {key: self.state.get(key, in_url(one.default)) for key, one in known.items()}
        turns = [one for one in TURNS if standing.get(one.key, one.value) != one.value]
        if source in knobs.DO.sources and self.cell.layer and not self.state.get(knobs.DO.key):
            turns.append(Turn(*(words.format(self.cell.layer - 1) for words in _SILENT)))
        if self.layer.mask is not None and not self.layer.mask.triu(1).any():
            turns = [one for one in turns if one.value != "causal"]  # which it is already
        value = shown(float(self.layer.matrix(self.step.name, self.cell.head)[self.cell.row, self.cell.column]))
        order = [one.name for one in STEPS]
        for turn in turns:
            early = order.index(self.step.name) < order.index(turn.first)
            why = f"The {self.step.name.replace('_', ' ')} come before that." if early else turn.why
            lesson = self.lesson(
                "choice", f"If {turn.if_it}, what becomes of {self.called}, now {value}?",
                f"compare({self.step.name}, q={self.cell.row}, k={self.cell.column})",
                turn=urlencode({turn.key: turn.value}), turned=turn.turned, explain=self.here,
                replies=(("right", why),),
            )  # fmt: skip
            yield Draft(f"More or less, if {turn.if_it}?", lesson)

    def click(self) -> Draft:
        answer = f"given({self.cell.row}, {self.cell.column})"
        lesson = self.lesson("cell", "", answer, explain=Part(self.step.name))
        return Draft("My own question: click the chosen cell", lesson)

    def own(self, kind: str) -> Draft:
        answered = {"choice": "with options", "number": "with a number"}
        return Draft(f"My own question, {answered[kind]}", self.lesson(kind, "", "", options=()))


def decided(lesson: Lesson, right: str | float) -> Lesson:
    """A lesson whose answer is what somebody says it is."""
    return replace(lesson, answer=f"given({right!r})")
