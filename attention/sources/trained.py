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
        back: how many places back a copied letter stands; None: as the task says.
        interventions: what is changed of heads inside the model, before all that follows is made.
    """

    task: str
    seed: int = 0
    steps: int | None = None
    at: int | None = None
    text: str = ""
    config: WhatIf = WhatIf()
    control: str = ""
    length: int | None = None
    back: int | None = None
    interventions: tuple[Intervention, ...] = ()

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
    def snapshot(self) -> Snapshot:
        """The model at the step `at`, trained here if nobody has done it yet.

        Raises:
            ConfigError: there is no such step, or the training was not finished.
        """
        from attention.training.films import film_of, untrained

        plan = self.plan
        at = plan.steps if self.at is None else self.at
        if not 0 <= at <= plan.steps:
            raise ConfigError(f"at counts the steps from 0 to {plan.steps}; got {at!r}: choose one of these.")
        if at == 0:
            return untrained(plan)
        found = film_of(plan, at).wait()
        return next(one for one in found if one.step == at)

    def trace(self) -> Trace:
        """One layer for each layer of attention, in the order in which they run.

        Raises:
            ConfigError: as for `plan` and `snapshot`.
            TextError: as for `example`.
        """
        example = self.example
        return trained_trace.shown(self.plan, self.snapshot, example, self.interventions).turned(self.config)

    @property
    def unchanged(self) -> Trained:
        """The same model with nothing changed in it: what it says is what was said before."""
        return replace(self, interventions=())

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

        return trained_snippet.trained(self, trace.layer(layer))
