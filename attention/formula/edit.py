"""The interface of a kind of intervention on a head: its code in links, its words, what it computes, explains and writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.base.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.explainer import E_co
    from attention.formula.formula import Formula, HeadEdits, SetCell
    from attention.formula.step import LayerView, StepContext
    from attention.formula.tensor_types import Scores

NUMBER_PATTERN = r"-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf)"
Checks = Mapping[str, tuple[Callable[[Any], bool], str]]
"""For each field a function that checks a value, and the expected values in words."""


@dataclass(frozen=True)
class InterventionFields:
    """An intervention and the heads that it applies to: the fields of an `attention.patching.intervention.Intervention`.

    Attributes:
        layer: its index in `trace.layers`; None: all layers.
        head: the query head; None: all heads of the layer.
        ablate: "zero": Z becomes 0 (zero ablation); "mean": Z becomes its mean over positions (mean ablation).
        strength: of the ablation, from 0 (nothing changes) to 1.
        temperature: divides the scores in addition to the model's divisor; 0 is argmax, infinity uniform.
        scaled: False: scores are not divided by the model's divisor.
        mask: one of `attention.formula.edit_kinds.MASKS` instead of the model's; "first": every query attends to the first token alone.
        window: of the window masks: the largest distance of a visible key.
        prefix: of the prefix mask: how many first keys every query sees.
        hidden: of the custom mask: its cells, as `attention.formula.mask_tensor.encode` writes them.
        cells: single cells of scores or weights that are set.
        patch: "query", "key", "value", "weights" or "head_output", patched from the other state (activation patching).
    """

    layer: int | None = None
    head: int | None = None
    ablate: str = ""
    strength: float = 1.0
    temperature: float | None = None
    scaled: bool | None = None
    mask: str = ""
    window: int = 2
    prefix: int = 1
    hidden: str = ""
    cells: tuple[SetCell, ...] = ()
    patch: str = ""


class LayerSize(NamedTuple):
    """The name of a layer and its numbers of heads, queries and keys."""

    name: str
    n_heads: int
    n_queries: int
    n_keys: int


@dataclass(frozen=True)
class InterventionKind:
    """One kind of intervention.

    A kind that changes the formula (temperature, mask) defines only `edit_formula`: numbers, explanation and program follow from the formula.
    A kind that changes the numbers stores its state in `HeadEdits`, and defines `compute`, `explain` and `python` for maps, or
    `output`, `explain` and `output_python` for head outputs.

    Attributes:
        name: in plain words, for a menu.
        term: the term of the field.
        fields: its fields of an `Intervention`; the first is set if the intervention is of this kind.
        pattern: regular expression of its code in links.
        examples: codes that cover all its options.
        checks: the checks of its fields.
    """

    name: str = ""
    term: str = ""
    fields: tuple[str, ...] = ()
    pattern: str = ""
    examples: tuple[str, ...] = ()
    checks: Checks = field(default_factory=dict, compare=False)

    def parse(self, match: re.Match[str]) -> dict[str, Any]:
        """The fields from a match of the pattern; raises ValueError if they are not valid."""
        raise NotImplementedError(f"{self.name} has no read: define how its code is parsed.")

    def format(self, change: InterventionFields) -> str:
        """The code in links."""
        raise NotImplementedError(f"{self.name} has no write: define its code.")

    def words(self, change: InterventionFields) -> str:
        """The effect in plain words, with the term of the field in brackets."""
        raise NotImplementedError(f"{self.name} has no words: describe its effect.")

    def edit_formula(self, formula: Formula, change: InterventionFields) -> Formula:
        """The formula of a head with the intervention."""
        raise NotImplementedError(f"{self.name} has no turn: define how it changes the formula of a head.")

    def changes_weights(self, change: InterventionFields) -> bool:
        """Whether it changes the weights, which are then not frozen in a later layer."""
        return False

    def affects_kv_group(self, change: InterventionFields) -> bool:
        """Whether it affects all heads that share keys and values."""
        return False

    def only_output(self, change: InterventionFields) -> bool:
        """Whether it changes only head outputs, so that the layer needs no formula."""
        return False

    def check(self, change: InterventionFields, layer: LayerSize) -> None:
        """Raise ConfigError if the layer does not have the changed cells."""

    def compute(
        self, edits: HeadEdits, layer: LayerView, step: str, heads: slice, rows: slice, make: Callable[[], Scores]
    ) -> Scores:
        """A block of a map with the intervention; `make` computes the block without it."""
        return make()

    def output(self, edits: HeadEdits, z: Tensor, other: Tensor | None) -> Tensor:
        """The patched output [query_pos d_v] of a head; `other` is its output in another run."""
        return z

    def explain(self, work: StepContext[E_co]) -> E_co | None:
        """The explanation of a number that the intervention changed; None for other numbers."""
        return None

    def python(self, edits: HeadEdits, step: str, lines: list[str]) -> list[str]:
        """Lines that compute a map with the intervention; `lines` compute it without."""
        return lines

    def output_python(self, edits: HeadEdits, z: str) -> str:
        """An expression of plain torch for the patched output, from the expression `z` of the output."""
        return z


def format_number(value: float) -> str:
    """A number as in links, without a trailing .0."""
    return repr(float(value)).removesuffix(".0")


def check_index(noun: str, index: int | None, size: int) -> None:
    """Raise ConfigError if the index is not below the size; `noun` is the plural for the message."""
    if index is not None and index >= size:
        raise ConfigError(f"{noun} count from 0 to {size - 1}; got {index}: choose one of these.")
