"""A formula as JSON in exported files, and back; values from files are validated like knobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

from attention.core.biases import BIASES
from attention.core.config import KNOBS, MASKS
from attention.core.dropout import Dropout, ProvidedDropout
from attention.core.formula import Formula
from attention.core.mask import Mask
from attention.core.normalizers import NORMALIZERS
from attention.core.scores import SCORES
from attention.errors import ConfigError
from attention.params.ranges import Choice, Integer, Switch

Check = Callable[[Any], bool]
"""Whether a value is accepted."""

_LARGEST = 1e300
_BITS = {True: "1", False: "0"}


def to_json(formula: Formula) -> dict[str, Any]:
    """The formula as JSON values; `mask.real` is a text of ones and zeros, and infinity is the text "inf"."""
    values = asdict(replace(formula, heads=()))
    del values["heads"], values["head_edits"]  # the recorded numbers already include the edits
    if formula.mask is not None and formula.mask.real is not None:
        values["mask"]["real"] = "".join(map(_BITS.__getitem__, formula.mask.real))
    values["dropping"]["given"] = formula.dropping.is_provided
    return {name: "inf" if value == math.inf else value for name, value in values.items()}


def from_json(exported: object) -> Formula:
    """The formula of the values that `to_json` returned.

    Raises:
        ConfigError: the values are not a formula of this version.
    """
    entries: dict[str, Any] = dict(exported) if isinstance(exported, Mapping) else {"": exported}
    values: dict[str, Any] = {name: math.inf if value == "inf" else value for name, value in entries.items()}
    for name, value in values.items():
        if name not in _CHECKS or not _CHECKS[name](value):
            raise ConfigError(
                f"a formula has the fields {', '.join(_CHECKS)}; got {str(name)[:20]!r} = {str(value)[:40]!r}: "
                "export the numbers again."
            )
    if mask := values.get("mask"):
        real = mask.get("real")
        values["mask"] = Mask(**{**mask, "real": None if real is None else tuple(bit == "1" for bit in real)})
    if dropping := values.pop("dropping", None):
        kind = ProvidedDropout if dropping.get("given") else Dropout
        values["dropping"] = kind(**{name: value for name, value in dropping.items() if name != "given"})
    return Formula(**values)


def _positive(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 < value < _LARGEST)


def _bits(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not set(value) - set(_BITS.values()))


def _knob(name: str) -> Check:
    """The check of a knob."""
    return next(knob.range.accepts for knob in KNOBS if knob.name == name)


def _fields(**checks: Check) -> Check:
    """The check of an object: None, or a dict whose fields pass their checks."""

    def check(value: Any) -> bool:
        return value is None or (
            isinstance(value, dict) and all(name in checks and checks[name](field) for name, field in value.items())
        )

    return check


_CHECKS: dict[str, Check] = {
    "score": Choice(tuple(SCORES)).accepts,
    "rotary": _positive,
    "divisor": _positive,
    "temperature": _knob("temperature"),
    "cap": _positive,
    "bias": Choice(("", *BIASES)).accepts,
    "normalizer": Choice(("", *NORMALIZERS)).accepts,
    "mask": _fields(
        kind=Choice(MASKS).accepts,
        window=Integer(0).accepts,
        prefix=Integer(0).accepts,
        cells=_knob("cells"),
        real=_bits,
    ),
    "dropping": _fields(given=Switch().accepts, **{field: _knob(name) for field, name in Dropout.knobs.items()}),
    "own_divisor": _positive,
}
"""The check of each field of a formula."""
