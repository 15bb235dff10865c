"""The registry of all steps and parameters of attention, one line of the table for each.

Shape checks, titles, colours, tables, the explanation, the copied Python, the reference page and the tests read
`STEPS` and `PARAMETERS`. The names in other libraries come from TransformerLens's abstract_attention.py and
transformer_block.py, in transformers' modeling_llama.py and modeling_gpt2.py, in nn.MultiheadAttention, in jax.nn,
and in bertviz.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.base.errors import MissingError
from attention.formula.names import AXES, HEAD_AXES, MAP_AXES, Axis, OtherNames
from attention.formula.score_steps import BIASED_SCORES, CAPPED_SCORES, MASKED_SCORES, SCALED_SCORES, SCORES
from attention.formula.step import Factor, Parameter, Step
from attention.formula.steps_before_scores import (
    EMBEDDING,
    INPUT,
    KEY,
    MEMORY,
    PARAMETERS,
    POSITION,
    QUERY,
    ROTATED_KEY,
    ROTATED_QUERY,
    VALUE,
)
from attention.formula.weight_steps import DROPPED_WEIGHTS, HEAD_OUTPUT, OUTPUT, PATCHED_OUTPUT, WEIGHTS

if TYPE_CHECKING:
    from attention.formula.formula import Formula

__all__ = [
    "AXES",
    "DECLARED",
    "HEAD_AXES",
    "MAP_AXES",
    "PARAMETERS",
    "STEPS",
    "Axis",
    "Factor",
    "OtherNames",
    "Parameter",
    "Step",
    "declared",
    "field_values",
    "find_step",
    "is_step",
]  # fmt: skip

STEPS: tuple[Step, ...] = (
    EMBEDDING, POSITION, INPUT, QUERY, MEMORY, KEY, VALUE, ROTATED_QUERY, ROTATED_KEY,
    SCORES, SCALED_SCORES, CAPPED_SCORES, BIASED_SCORES, MASKED_SCORES, WEIGHTS, DROPPED_WEIGHTS,
    HEAD_OUTPUT, PATCHED_OUTPUT, OUTPUT,
)  # fmt: skip
"""Every step in the order of the formula: the only list of steps in the project."""

_STEPS = {step.name: step for step in STEPS}

DECLARED: dict[str, Step | Parameter] = _STEPS | {parameter.name: parameter for parameter in PARAMETERS}
"""Steps and parameters by name."""


def find_step(name: str) -> Step:
    """The step with this name.

    Raises:
        MissingError: there is no such step.
    """
    if name in _STEPS:
        return _STEPS[name]
    raise MissingError(f"a step is one of {', '.join(_STEPS)}; got {name!r}: choose one of them.")


def is_step(name: str) -> bool:
    """Whether this is the name of a step, not of a parameter."""
    return name in _STEPS


def declared(name: str) -> Step | Parameter:
    """The step or parameter with this name.

    Raises:
        MissingError: there is no such step or parameter.
    """
    return DECLARED.get(name) or find_step(name)


def field_values(formula: Formula, step: Step) -> tuple[object, ...]:
    """The values of the fields of a formula on which a step depends, directly or through the steps before it."""
    steps = STEPS[: STEPS.index(step) + 1]
    values = tuple(getattr(formula, name) for earlier in steps for name in earlier.knobs)
    return (*values, formula.head_edits, formula.heads) if formula.is_edited else values
