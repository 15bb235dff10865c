"""What every kind of change to a head has to say and do: its form in links, its words, what it computes, explains and writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.axes import Scores
    from attention.formula.by_hand import ByHand, SetCell
    from attention.formula.formula import Formula
    from attention.formula.steps.step import Steps, StepWork
    from attention.formula.work import E_co

NUMBER = r"-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf)"
Checks = Mapping[str, tuple[Callable[[Any], bool], str]]
"""For each field whether a value fits, and what is expected."""


@dataclass(frozen=True)
class Change:
    """What is changed, and of which heads: the fields of an `attention.formula.intervention.Intervention`.

    Attributes:
        layer: its index in `trace.layers`; None: all layers.
        head: of the queries; None: all heads of the layer.
        silence: "zero": Z becomes 0 (zero ablation); "mean": its mean over positions (mean ablation).
        strength: of silencing, 0 (nothing changes) to 1.
        temperature: what the scores are divided by beside the model's own divisor; 0 is argmax, infinity uniform.
        scaled: False: scores are not divided by the model's own divisor.
        mask: one of `attention.formula.patching.masking.MASKS` instead of the model's own; "first": every query attends to the first token alone.
        window: for the window masks: how many positions away a key may be; `prefix` for the prefix mask: how many first keys
            every query sees; `hidden` for the custom mask: its cells, as `attention.formula.masks.encode` writes them.
        cells: single cells of scores or weights that are set.
        take: "query", "key", "value", "weights" or "head_output": from the other state (activation patching).
    """

    layer: int | None = None
    head: int | None = None
    silence: str = ""
    strength: float = 1.0
    temperature: float | None = None
    scaled: bool | None = None
    mask: str = ""
    window: int = 2
    prefix: int = 1
    hidden: str = ""
    cells: tuple[SetCell, ...] = ()
    take: str = ""


class Extent(NamedTuple):
    """How large one layer is, by its name."""

    name: str
    n_heads: int
    queries: int
    keys: int


@dataclass(frozen=True)
class Kind:
    """One kind of change.

    A change of the formula (temperature, mask) needs no more than `turn`: numbers, explanation and program follow from the formula.
    One of the numbers themselves keeps in `ByHand` what it does, and says what becomes of a map in `compute`, `explain` and `python`,
    or of a head's output in `output`, `explain` and `output_python`.

    Attributes:
        name: in plain words, for a list to choose from; `term` what the field calls it.
        fields: of an `Intervention`, first the one that says whether there is such a change.
        pattern: of its short form.
        examples: short forms that show all it can do.
        checks: what its fields may be.
    """

    name: str = ""
    term: str = ""
    fields: tuple[str, ...] = ()
    pattern: str = ""
    examples: tuple[str, ...] = ()
    checks: Checks = field(default_factory=dict, compare=False)

    def read(self, found: re.Match[str]) -> dict[str, Any]:
        """Its fields from what the pattern has found; ValueError where they cannot be."""
        raise NotImplementedError(f"{self.name} has no read: say what its short form means.")

    def write(self, one: Change) -> str:
        """Its short form."""
        raise NotImplementedError(f"{self.name} has no write: say its short form.")

    def words(self, one: Change) -> str:
        """What it does, in plain words, with the field's term in brackets."""
        raise NotImplementedError(f"{self.name} has no words: say what it does.")

    def turn(self, formula: Formula, one: Change) -> Formula:
        """A head's formula with the change."""
        raise NotImplementedError(f"{self.name} has no turn: say what becomes of a head's formula.")

    def unfreezes(self, one: Change) -> bool:
        """Whether weights that are frozen in a later layer are no more: the change is one of the weights."""
        return False

    def reaches_group(self, one: Change) -> bool:
        """Whether it reaches all heads that share keys and values with the one."""
        return False

    def on_output(self, one: Change) -> bool:
        """Whether it needs no formula of the layer, since it changes the heads' outputs alone."""
        return False

    def check(self, one: Change, layer: Extent) -> None:
        """Raises ConfigError where a layer does not have what is changed."""

    def compute(
        self, hand: ByHand, layer: Steps, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
    ) -> Scores:
        """A block of a map with the change; `make` makes the block without."""
        return make()

    def output(self, hand: ByHand, z: Tensor, taken: Tensor | None) -> Tensor:
        """What goes on of a head's output [query_pos d_v]; `taken` is the output of another run."""
        return z

    def explain(self, work: StepWork[E_co]) -> E_co | None:
        """A number that the change has made; None where the step made it as always."""
        return None

    def python(self, hand: ByHand, step: str, lines: list[str]) -> list[str]:
        """The lines of a map with the change; `lines` make it without."""
        return lines

    def output_python(self, hand: ByHand, z: str) -> str:
        """What goes on of a head's output, an expression of plain torch made of another."""
        return z


def number(value: float) -> str:
    """A number in a short form."""
    return repr(float(value)).removesuffix(".0")


def counts(those: str, index: int | None, size: int) -> None:
    """Raises ConfigError where there are not so many."""
    if index is not None and index >= size:
        raise ConfigError(f"{those} count from 0 to {size - 1}; got {index}: choose one of these.")
