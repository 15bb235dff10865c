"""Templates of lessons about the chosen cell, built from the live trace; a teacher may reword the question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias
from urllib.parse import urlencode

from attention.base.knobs import to_text
from attention.base.printed import format_number
from attention.base.tokens import isolated, label
from attention.formula.names import INPUT, MASKED_SCORES, SCALED_SCORES, WEIGHTS, Cell
from attention.formula.steps import STEPS, Step, find_step, is_step
from attention.lessons.grading import MAX_SIDE
from attention.lessons.lesson import KINDS, Lesson, Part
from attention.sources.layer_knobs import INTERVENTIONS, layer_knobs
from attention.sources.registry import SOURCE, has_knob, source_kinds
from attention.trace.layer import Layer
from attention.trace.trace import Trace

_MANY = 16  # rows of a map; of a larger one, a lesson shows only the row in question
_FEW = 8  # keys that a person can order or sketch
_NEAR = 0.05  # the tolerance of a share, and the relative tolerance of a larger number


class _Change(NamedTuple):
    """One setting that a lesson changes.

    Attributes:
        key: of the setting, as in a link; `value` its new value.
        first_step: the first step that it changes.
        condition: the change in words that follow "if".
        turned: the change in words that follow "weights,".
        why: the reason for its effect, in a sentence.
    """

    key: str
    value: str
    first_step: str
    condition: str
    turned: str
    why: str


_CHANGES = (
    _Change("temperature", "0.3", SCALED_SCORES, "the temperature is 0.3", "at temperature 0.3",
         "Divided by 0.3, scores lie further apart, and the highest takes a larger share."),
    _Change("temperature", "3.0", SCALED_SCORES, "the temperature is 3", "at temperature 3",
         "Divided by 3, scores lie closer together, and so do the shares."),
    _Change("mask", "causal", MASKED_SCORES, "a causal mask hides later tokens", "with a causal mask",
         "The mask hides later keys, and the remaining keys share the total of 1."),
    _Change("mask", "none", MASKED_SCORES, "there is no mask", "without a mask",
         "Without a mask every key takes part, and all of them share the total of 1."),
    _Change("scaled", "false", SCALED_SCORES, "scores are not divided by √d_k", "without √d_k",
         "Without the division, scores lie further apart, and the highest takes a larger share."),
    _Change("positions", "sinusoidal", INPUT, "positions are added", "with positions",
         "A position pattern is added to each row of the input, so queries, keys and their products change."),
)  # fmt: skip
"""Every change for a question "more, less or the same, if …"; those that the current source supports are offered."""

_ABLATION = _Change(
    INTERVENTIONS.key, "{}.*.zero", INPUT, "layer {} is ablated (silenced)", "layer {} ablated",
    "The input of this layer was written by the layers before it, so its queries and keys may change.",
)  # fmt: skip


_Template: TypeAlias = tuple[str, Lesson]
"""The label by which a teacher picks it, and the lesson, in which the teacher fills the empty fields."""


def templates(trace: Trace, cell: Cell, state: Mapping[str, str]) -> tuple[_Template, ...]:
    """Every template for a cell, with its label.

    Args:
        state: the state of the trace, by key as in a link; it has the layer and head of the cell, but not its step or position.
    """
    state = {SOURCE.key: str(SOURCE.default), **state}  # explicit, so that a changed default does not alter the lesson
    layer = trace.layer(cell.layer)
    about = _CellTopic(layer, cell, state)
    about_row = about if about.step.column_axis == "key_pos" or not layer.has(WEIGHTS) else about.in_the_weights()
    has_keys = about_row.step.column_axis == "key_pos"
    first = [about_row.key()] if has_keys else []
    more: list[_Template] = []
    if layer.shape(cell.step)[-1] <= MAX_SIDE:
        first.append(about.number())
        more = [about.click(), *about.change_questions()]
    else:
        about = about_row  # a step too wide for a small map is replaced by the weights
    if has_keys and len(layer.key_tokens) <= _FEW:
        more += [about_row.order(), *([about_row.row()] if about_row.step.kind == "probability" else [])]
    return (*first, about.blank("choice"), about.blank("number"), *more)


class _CellTopic(NamedTuple):
    layer: Layer
    cell: Cell
    state: Mapping[str, str]

    @property
    def step(self) -> Step:
        return find_step(self.cell.step)

    def in_the_weights(self) -> _CellTopic:
        """The same for the weights of the query with the nearest position."""
        row = min(self.cell.row, len(self.layer.tokens) - 1)
        return self._replace(cell=replace(self.cell, step=WEIGHTS, row=row, column=0))

    @property
    def noun(self) -> str:
        """One number of the step, such as "scaled score"; the step itself if its columns are no keys."""
        name = self.step.name.replace("_", " ")
        return name.removesuffix("s") if self.step.column_axis == "key_pos" else name

    def name(self, axis: str, index: int) -> str:
        """The name of a row or column: its token, with its position if the token is repeated; or its index."""
        tokens = self.layer.labels_of(axis)
        if tokens is None:
            return f"column {index}"
        token = f"“{isolated(label(tokens[index], 20, escape=False))}”"
        return f"{token} ({index})" if tokens.count(tokens[index]) > 1 else token

    @property
    def row_name(self) -> str:
        return self.name(self.step.row_axis, self.cell.row)

    @property
    def cell_name(self) -> str:
        column = self.name(self.step.column_axis, self.cell.column)
        if self.step.column_axis != "key_pos":
            return f"{column} of the {self.noun} of {self.row_name}"
        return f"the {self.noun} of {self.row_name} {'on' if self.step.kind == 'probability' else 'and'} {column}"

    def visible_part(self) -> Part:
        is_large = self.layer.shape(self.step.name)[-2] > _MANY
        return Part(self.step.name, self.cell.row if is_large else None)

    def lesson(self, kind: str, question: str, answer: str, **more: object) -> Lesson:
        title = f"About the {self.step.name.replace('_', ' ')}"
        base = Lesson(
            "", title, "", urlencode(self.state), (self.visible_part(),), kind, question, answer, (), options=KINDS[kind].options
        )  # fmt: skip
        return replace(base, **more)  # type: ignore[arg-type]  # fields of a Lesson by name

    def call(self, function: str) -> str:
        return f"{function}({self.step.name}, q={self.cell.row})"

    @property
    def cell_part(self) -> Part:
        return Part(self.step.name, self.cell.row, self.cell.column)

    def lesson_about_row(self, kind: str, question: str, answer: str, **more: object) -> Lesson:
        row = Part(self.step.name, self.cell.row)
        return self.lesson(kind, question, answer, hide=(row,), **more)

    def key(self) -> _Template:
        by = "" if self.step.name == WEIGHTS else f", by its {self.noun}s"
        question = f"Which key does {self.row_name} look at most{by}?"
        part = Part(self.step.name, self.cell.row)
        lesson = self.lesson_about_row("key", question, self.call("argmax_key"), explain=part)
        return "Which key has the largest number?", lesson

    def order(self) -> _Template:
        question = f"Put the keys in the order of the {self.noun}s of {self.row_name}."
        return "Put the keys in order", self.lesson_about_row("order", question, self.call("order"))

    def row(self) -> _Template:
        question = f"Sketch the {self.noun}s of {self.row_name}."
        return "Sketch the row", self.lesson_about_row("row", question, self.call("row"), tolerance=0.1)

    def number(self) -> _Template:
        indices = {"row": self.cell.row, "column": self.cell.column}
        inputs = tuple(
            Part(name, indices.get(factor.row))
            for factor, name in self.layer.factors(self.step)
            if is_step(name) and not factor.concatenated and max(self.layer.shape(name)[-2:]) <= MAX_SIDE
        )
        size = abs(float(self.layer.matrix(self.step.name, self.cell.head)[self.cell.row, self.cell.column]))
        near = float(f"{_NEAR * size:.1g}") if 1 < size < float("inf") else _NEAR
        lesson = self.lesson(
            "number", f"What is {self.cell_name}?", f"value({self.step.name}, q={self.cell.row}, k={self.cell.column})",
            show=(*inputs, self.visible_part()), hide=(self.cell_part,), explain=self.cell_part, tolerance=near,
        )  # fmt: skip
        return "What is the chosen number?", lesson

    def change_questions(self) -> Iterator[_Template]:
        """More, less or the same: a question for each setting that the source has and that would change."""
        source = self.state[SOURCE.key]
        settings = {knob.key: knob for knob in layer_knobs(source_kinds()[source])}
        current = {key: self.state.get(key, to_text(knob.default)) for key, knob in settings.items()}
        turns = [turn for turn in _CHANGES if current.get(turn.key, turn.value) != turn.value]
        if has_knob(source, INTERVENTIONS) and self.cell.layer and not self.state.get(INTERVENTIONS.key):
            turns.append(_Change(*(words.format(self.cell.layer - 1) for words in _ABLATION)))
        if self.layer.mask is not None and not self.layer.mask.triu(1).any():
            turns = [turn for turn in turns if turn.value != "causal"]  # the mask is causal already
        value = format_number(float(self.layer.matrix(self.step.name, self.cell.head)[self.cell.row, self.cell.column]))
        order = [step.name for step in STEPS]
        for turn in turns:
            early = order.index(self.step.name) < order.index(turn.first_step)
            why = f"The {self.step.name.replace('_', ' ')} are computed before that." if early else turn.why
            lesson = self.lesson(
                "choice", f"If {turn.condition}, what becomes of {self.cell_name}, now {value}?",
                f"compare({self.step.name}, q={self.cell.row}, k={self.cell.column})",
                turn=urlencode({turn.key: turn.value}), turned=turn.turned, explain=self.cell_part,
                replies=(("right", why),),
            )  # fmt: skip
            yield f"More or less, if {turn.condition}?", lesson

    def click(self) -> _Template:
        answer = f"given({self.cell.row}, {self.cell.column})"
        lesson = self.lesson("cell", "", answer, explain=Part(self.step.name))
        return "My own question: click the chosen cell", lesson

    def blank(self, kind: str) -> _Template:
        answer_form = {"choice": "with options", "number": "with a number"}
        return f"My own question, {answer_form[kind]}", self.lesson(kind, "", "", options=())


def with_answer(lesson: Lesson, right: str | float) -> Lesson:
    """The lesson with an answer fixed by its author."""
    return replace(lesson, answer=f"given({right!r})")
