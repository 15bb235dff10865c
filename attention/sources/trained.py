"""Source "trained": a tiny model that learned one task, at any step of its training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attention.errors import ConfigError, TextError
from attention.formula.intervention import Intervention
from attention.formula.trace import Trace
from attention.formula.what_if import WhatIf
from attention.sources import trained_trace
from attention.training.plan import Plan
from attention.training.tasks import SLIDER_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attention.formula.intervening import Given, Pass
    from attention.formula.patching import Extent
    from attention.sources import Snippet
    from attention.training.learning import Snapshot
    from attention.training.tasks.task import Example


@dataclass(frozen=True)
class Trained:
    """A tiny model that learned one task, as it was at any step.

    It is trained where it is first looked at, in a second or a few, once for all who ask. The same values give the same digits
    on machines of one type; on another the last digits may differ, and after some steps more of them.

    Attributes:
        task: one of `attention.training.TASKS`: reverse, copy, lookup, sort, induction, dates.
        seed: of the initial parameters and of all batches.
        steps: how many batches it learns from; None: as many as the task needs.
        at: the step at which it is shown; None: the last.
        text: what it reads, as its task takes it; empty: an example.
        config: what a hand has turned of its formula, in every layer that is looked at; nothing in the model itself changes.
        control: one of the task's controls, the same model but for one thing; empty: none.
        length: how many letters, entries or positions there are; None: as many as the task says.
        offset: how many places back a copied letter stands; None: as the task says.
        interventions: what is changed of heads inside the model, before all that follows is made.
        frozen: whether the layers after the first change attend as in the unchanged model: A as there, V of now.
        other: the state that an intervention takes something from: a model with the same layers that reads as many tokens, at another
            step, of another seed, or with another text.
    """

    task: str
    seed: int = 0
    steps: int | None = None
    at: int | None = None
    text: str = ""
    config: WhatIf = WhatIf()
    control: str = ""
    length: int | None = None
    offset: int | None = None
    interventions: tuple[Intervention, ...] = ()
    frozen: bool = False
    other: Trained | None = None

    @property
    def plan(self) -> Plan:
        """What is trained.

        Raises:
            ConfigError: there is no such task or control, or a number is out of range.
        """
        turned = tuple((key, value) for key in SLIDER_KEYS if (value := getattr(self, key)) is not None)
        return Plan(self.task, self.seed, self.steps or 0, self.control, turned)

    @property
    def example(self) -> Example:
        """What it reads.

        Raises:
            TextError: the task does not take this text.
        """
        return self.plan.example(self.text)

    @property
    def step(self) -> int:
        """The step at which it is shown."""
        return self.plan.steps if self.at is None else self.at

    def snapshot(self) -> Snapshot:
        """The model at the step `at`, trained here if nobody has done it yet.

        Raises:
            ConfigError: there is no such step, or the training was not finished.
        """
        from attention.training.films import film_of, untrained

        plan, at = self.plan, self.step
        if not 0 <= at <= plan.steps:
            raise ConfigError(f"at counts the steps from 0 to {plan.steps}; got {at!r}: choose one of these.")
        if at == 0:
            return untrained(plan)
        found = film_of(plan, at).wait()
        return next(one for one in found if one.step == at)

    def prepare(self) -> None:
        """Trains the model, unless that has been done.

        Raises:
            ConfigError: as for `snapshot`.
        """
        _ = self.snapshot()

    def trace(self) -> Trace:
        """One layer for each layer of attention, in the order in which they run.

        Raises:
            ConfigError: as for `plan` and `snapshot`.
            TextError: as for `example`.
        """
        changing = self._changing()
        return trained_trace.shown(self.plan, self.snapshot(), self.example, changing, self.frozen).turned(self.config)

    def _changing(self) -> Pass:
        """What is changed, with what of the unchanged model and of the other state is needed for it.

        Raises:
            ConfigError: the model, or the other state, does not have it.
        """
        from attention.formula import fitting
        from attention.formula.intervening import Pass

        fitting.check(self.interventions, self._layers)

        def unchanged(wanted: Mapping[int, bool]) -> Mapping[int, Given]:
            return self.unchanged._gives(Pass(wanted=wanted))

        def taken(wanted: Mapping[int, bool]) -> Mapping[int, Given]:
            other = self._other()
            there = other._changing()
            there.wanted = wanted
            return other._gives(there)

        order = range(len(self._layers))
        return fitting.prepared(self.interventions, order, unchanged if self.frozen else None, taken)

    def _gives(self, changing: Pass) -> Mapping[int, Given]:
        """What another run of it gives to this one."""
        trained_trace.run(self.plan, self.snapshot(), self.example, changing)
        return changing.gives

    @property
    def _layers(self) -> tuple[Extent, ...]:
        """Its layers, and how large each is."""
        from attention.formula.patching import Extent

        example, design = self.example, self.plan.design
        queries, memory = len(example.tokens), len(example.memory)
        return tuple(
            Extent(name, design.heads_of(name), memory if name.startswith("encoder") else queries, memory or queries)
            for name in design.names
        )

    def _other(self) -> Trained:
        from attention.formula.fitting import as_many, other_of

        came = ""
        if self.other is not None:
            names = [[one[:2] for one in state._layers] for state in (self, self.other)]
            came = "" if names[0] == names[1] else f"has other layers ({', '.join(self.other.plan.design.names)})"
            came = "takes from a third" if self.other.other is not None else came
        other = other_of("Trained", self.other, came)
        here, there = (
            [len(one) for one in (state.example.memory, state.example.tokens) if one] for state in (self, other)
        )
        as_many(here, there)
        return other

    @property
    def reads(self) -> str:
        """The text that it reads: the task's example where it has none of its own."""
        return self.text if self.text.strip() else self.plan.task.sample(self.plan.design)

    def beside(self, other: object) -> Trained:
        """Itself with `other` as the other state, where it takes something from one and has none; of two that are compared."""
        if self.other is not None or not isinstance(other, Trained) or not any(one.take for one in self.interventions):
            return self
        return replace(self, other=replace(other, config=WhatIf(), other=None))

    @property
    def unchanged(self) -> Trained:
        """The same model with nothing changed in it: what it says is what was said before."""
        return replace(self, interventions=(), frozen=False, other=None)

    def token(self, text: str) -> tuple[int, str]:
        """The answer that is meant by a text: its number, and how it is read.

        Raises:
            TextError: there is no such answer.
        """
        answers = self.example.answers
        if text not in answers:
            raise TextError(f"The model answers one of {', '.join(answers)}; got {text[:40]!r}: choose one.")
        return answers.index(text), text

    @property
    def base(self) -> Trained:
        """The model as it is: its trace, turned, is this one's."""
        return replace(self, config=WhatIf())

    @property
    def needs(self) -> int:
        """The bytes that its steps take while they are made, counted before."""
        return 2**20

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """How the Python begins that makes the trace again: it trains the model again."""
        from attention.sources import trained_snippet

        return trained_snippet.trained(self, trace, layer)
