"""The registry of all steps and parameters of attention, one line of the table for each.

Shape checks, titles, colours, tables, the explanation, the copied Python, the reference page and the tests read
`STEPS` and `PARAMETERS`. The names in other libraries come from TransformerLens's abstract_attention.py and
transformer_block.py, in transformers' modeling_llama.py and modeling_gpt2.py, in nn.MultiheadAttention, in jax.nn,
and in bertviz.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from attention.base.errors import MissingError
from attention.formula.names import AXES, HEAD_AXES, MAP_AXES, Axis, OtherNames
from attention.formula.score_steps import (
    BIASED_SCORES,
    CAPPED_SCORES,
    DROPPED_WEIGHTS,
    HEAD_OUTPUT,
    MASKED_SCORES,
    OUTPUT,
    PATCHED_OUTPUT,
    SCALED_SCORES,
    SCORES,
    WEIGHTS,
)
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

if TYPE_CHECKING:
    from attention.formula.formula import Formula

__all__ = [
    "AXES", "DECLARED", "HEAD_AXES", "MAP_AXES", "NAMES_ELSEWHERE", "PARAMETERS", "STEPS", "Axis", "Factor", "OtherNames", "Parameter", "Step",
    "declared", "field_values", "find_step", "is_step", "meant_by", "our_name",
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


_HOOK = "hook_"  # of TransformerLens, whose users leave it out: "pattern"
NAMES_ELSEWHERE: dict[str, list[str]] = {}
for _entry in DECLARED.values():
    for _library, _names in (("", _entry.symbol), *_entry.elsewhere):
        # The five notebooks call several things A or W.
        for _name in () if _library.startswith("notebook") else _names.split(", "):
            for _typed in {_name, _name.removeprefix(_HOOK)} - DECLARED.keys():
                NAMES_ELSEWHERE.setdefault(_typed, []).append(_entry.name)
"""Our names of the steps and parameters that a library calls so, or whose symbol it is, by that name."""


def meant_by(name: str) -> tuple[str, ...]:
    """Our names of the steps and parameters that a name may mean: ours, one of TransformerLens, transformers or torch, or a symbol.

    A name that a library reuses from the scores to the weights, such as "attn_weights", is that of the weights, as which it is returned.
    """
    meant = tuple(dict.fromkeys(NAMES_ELSEWHERE.get(name, (name,) * (name in DECLARED))))
    return (WEIGHTS.name,) if WEIGHTS.name in meant else meant


def our_name(name: str) -> str:
    """Our name of the one step or parameter that a name means, as in `meant_by`: "pattern" is "weights".

    Raises:
        MissingError: it means none, or several.
    """
    meant = (name,) if name in DECLARED else meant_by(name)
    if len(meant) == 1:
        return meant[0]
    names = f"a step is one of {', '.join(_STEPS)}; got {name!r}"
    if meant:
        raise MissingError(f"{names}, which may be {' or '.join(meant)}: choose one of them.")
    near = get_close_matches(str(name), [*DECLARED, *NAMES_ELSEWHERE], 1, 0.75)
    raise MissingError(f"{names}: {f'did you mean {near[0]!r}?' if near else 'choose one of them.'}")


def find_step(name: str) -> Step:
    """The step with this name, which may be that of another library, as for `our_name`.

    Raises:
        MissingError: there is no such step.
    """
    if is_step(our_name(name)):
        return _STEPS[our_name(name)]
    raise MissingError(f"a step is one of {', '.join(_STEPS)}; got the parameter {name!r}: choose one of them.")


def is_step(name: str) -> bool:
    """Whether this is the name of a step, not of a parameter."""
    return name in _STEPS


def declared(name: str) -> Step | Parameter:
    """The step or parameter with this name, which may be that of another library, as for `our_name`.

    Raises:
        MissingError: there is no such step or parameter.
    """
    return DECLARED[our_name(name)]


def field_values(formula: Formula, step: Step) -> tuple[object, ...]:
    """The values of the fields of a formula on which a step depends, directly or through the steps before it."""
    steps = STEPS[: STEPS.index(step) + 1]
    values = tuple(getattr(formula, name) for earlier in steps for name in earlier.knobs)
    return (*values, formula.head_edits, formula.heads) if formula.is_edited else values
