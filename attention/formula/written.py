"""A formula as JSON has it, in an exported file, and back: what another wrote is checked like any other knob."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from attention.errors import ConfigError
from attention.formula.biases import BIASES
from attention.formula.config import KNOBS, MASKS
from attention.formula.dropping import Dropping, GivenDropping
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.formula.name_aliases import current_name, with_current_names
from attention.formula.ranges import Choice, Switch, Whole
from attention.formula.scores import SCORES
from attention.formula.shares import SHARES

May = Callable[[Any], bool]
"""Whether something may be a value."""

_LARGEST = 1e300
_HIDDEN = {True: "1", False: "0"}


def written(formula: Formula) -> dict[str, Any]:
    """The formula as plain values; which keys are real is a text of ones and zeros, and what is infinite is the text "inf"."""
    found = asdict(replace(formula, heads=()))
    del found["heads"], found["by_hand"]  # what was done inside a model is in its numbers
    if formula.mask is not None and formula.mask.real is not None:
        found["mask"]["real"] = "".join(map(_HIDDEN.__getitem__, formula.mask.real))
    found["dropping"]["given"] = formula.dropping.given
    return {current_name(name): "inf" if one == math.inf else one for name, one in found.items()}


def read(said: object) -> Formula:
    """The formula that `written` wrote.

    Raises:
        ConfigError: it is none, or one that is not known here.
    """
    found: dict[str, Any] = dict(said) if isinstance(said, Mapping) else {"": said}
    found = with_current_names(found, _MAY_BE)
    values: dict[str, Any] = {name: math.inf if one == "inf" else one for name, one in found.items()}
    for name, value in values.items():
        if name not in _MAY_BE or not _MAY_BE[name](value):
            raise ConfigError(
                f"a formula says {', '.join(_MAY_BE)}; got {str(name)[:20]!r} = {str(value)[:40]!r}: export the numbers once more."
            )
    if mask := values.get("mask"):
        real = mask.get("real")
        values["mask"] = Mask(**{**mask, "real": None if real is None else tuple(one == "1" for one in real)})
    if dropping := values.pop("dropping", None):
        kind = GivenDropping if dropping.get("given") else Dropping
        values["dropping"] = kind(**{name: one for name, one in dropping.items() if name != "given"})
    of_python = {current_name(one.name): one.name for one in fields(Formula)}
    return Formula(**{of_python[name]: value for name, value in values.items()})


def _positive(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 < value < _LARGEST)


def _real(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not set(value) - set(_HIDDEN.values()))


def _knob(name: str) -> May:
    """What the knob of that name may be."""
    return next(one.range.takes for one in KNOBS if one.name == name)


def _each(**fields: May) -> May:
    """Of several values by name, each what it may be; or none at all."""

    def may_be(value: Any) -> bool:
        return value is None or (
            isinstance(value, dict) and all(name in fields and fields[name](one) for name, one in value.items())
        )

    return may_be


_MAY_BE: dict[str, May] = {
    "score": Choice(tuple(SCORES)).takes,
    "rotary": _positive,
    "divisor": _positive,
    "temperature": _knob("temperature"),
    "cap": _positive,
    "bias": Choice(("", *BIASES)).takes,
    "normalizer": Choice(("", *SHARES)).takes,
    "mask": _each(
        kind=Choice(MASKS).takes, window=Whole(0).takes, prefix=Whole(0).takes, cells=_knob("cells"), real=_real
    ),
    "dropping": _each(given=Switch().takes, **{field: _knob(name) for field, name in Dropping.knobs.items()}),
    "own_divisor": _positive,
}
"""What each field of a formula may be."""
