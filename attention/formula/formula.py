"""The formula of the steps after Q and K as a value, with the edits of heads; and as JSON in exported files.

`attention.formula.edit_kinds` computes the effect of the edits. Values from files are validated like knobs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from attention.base.errors import ConfigError
from attention.base.knobs import Choice, Switch
from attention.formula.config import KNOBS, MASKS, AttentionConfig
from attention.formula.dropout import Dropout, ProvidedDropout
from attention.formula.mask import SIZES, Mask
from attention.formula.names import HEAD_OUTPUT, WEIGHTS
from attention.formula.normalizers import NORMALIZERS
from attention.formula.override import SOURCE_MASK, Override
from attention.formula.scores import BIASES, SCORES

OTHER_STATE = "the other state"
_ALIGNED_STATE = "the other state, where a token has a partner there"
UNCHANGED_MODEL = "the unchanged model"


class SetCell(NamedTuple):
    """One cell that the user sets.

    Attributes:
        step: "scores" (the input of the softmax) or "weights" (its output).
        query: the row; `key` is the column.
        value: the new value.
        rescaled: for weights, whether the other weights of the row are rescaled so that the row keeps its sum.
    """

    step: str
    query: int
    key: int
    value: float
    rescaled: bool = False


class Ablation(NamedTuple):
    """A head's output that becomes 0 or its mean.

    Attributes:
        kind: "zero" or "mean".
        strength: from 0 (no effect) to 1.
        positions: the queries at which it acts; empty: all.
    """

    kind: str
    strength: float = 1.0
    positions: tuple[int, ...] = ()


@dataclass(frozen=True)
class HeadEdits:
    """Edits of a head that are not knobs of its formula; by default none.

    Attributes:
        cells: cells of scores (the input of the softmax) or weights that are set.
        patches: patched steps, each with the run that they come from, such as ("value", "the other state").
        ablations: those of the head's output, in their order.
        patched_positions: the queries at which a patched head output is that of the other run; empty: all.
        hidden: stretches of keys, from the first to the last, that are hidden from all queries outside of the stretch.
    """

    cells: tuple[SetCell, ...] = ()
    patches: tuple[tuple[str, str], ...] = ()
    ablations: tuple[Ablation, ...] = ()
    patched_positions: tuple[int, ...] = ()
    hidden: tuple[tuple[int, int], ...] = ()

    @property
    def of_weights(self) -> HeadEdits:
        """Those of the edits that change the weights."""
        return HeadEdits(self.cells, tuple(pair for pair in self.patches if pair[0] == WEIGHTS), hidden=self.hidden)

    @property
    def patches_output(self) -> bool:
        """Whether the head's output is replaced before W_O."""
        return bool(self.ablations) or self.is_patched(HEAD_OUTPUT)

    @property
    def output_formula(self) -> str:
        """The formula of the patched output, as plain text."""
        z = "Z"
        if self.is_patched(HEAD_OUTPUT):
            z = _at(f"Z of {dict(self.patches)[HEAD_OUTPUT]}", self.patched_positions)
        for kind, strength, positions in self.ablations:
            rest = "" if strength == 1 else f"{1 - strength:.4g} {z}"
            mean = f"{'' if strength == 1 else f'{strength:.4g} · '}mean of {z}"
            terms = [rest, mean] if kind == "mean" else [rest or "0, the head is silenced"]
            z = _at(" + ".join(filter(None, terms)), positions)
        return z

    def is_patched(self, step: str) -> bool:
        """Whether a step is patched from another run."""
        return step in dict(self.patches)

    @property
    def aligned(self) -> HeadEdits:
        """These edits, with the other state's name if only some of its tokens are patched."""
        names = {OTHER_STATE: _ALIGNED_STATE}
        return replace(self, patches=tuple((step, names.get(run, run)) for step, run in self.patches))

    def with_patch(self, step: str, run: str) -> HeadEdits:
        """These edits, with a step patched from another run."""
        return replace(self, patches=tuple({**dict(self.patches), step: run}.items()))


def _at(what: str, positions: tuple[int, ...]) -> str:
    """What a head's output is at some queries, in words."""
    return f"{what} at {', '.join(map(str, positions))}" if positions else what


@dataclass(frozen=True)
class Formula:
    """The steps from queries, keys and values to the output. A field that is None, 0 or empty removes its step.

    Attributes:
        score: the function that compares a query with a key, one of `attention.formula.scores.SCORES`.
        rotary: the base of the angles by which queries and keys are rotated (RoPE).
        divisor: the divisor of the scores; None: the source does not divide them and has no such step.
        temperature: 0 to infinity, multiplies the divisor; 0 is argmax, infinity is uniform over the visible keys.
        cap: limit of the scores: cap · tanh(score / cap).
        bias: the bias added to the scores, one of `attention.formula.scores.BIASES`.
        normalizer: the normalizer from scores to weights, one of `attention.formula.normalizers.NORMALIZERS`; empty: the scores
            themselves multiply the values.
        mask: which keys a query may attend to; None: the source recorded its mask, or has none.
        dropping: dropout of the weights.
        own_divisor: the source's divisor of scaled scores, if it is not √d_k.
        head_edits: edits of heads inside their model.
        heads: (head, formula) of the heads with a formula of their own; `for_head` returns the formula of any head.
    """

    score: str = "dot"
    rotary: float | None = None
    divisor: float | None = 1.0
    temperature: float = 1.0
    cap: float | None = None
    bias: str = ""
    normalizer: str = "softmax"
    mask: Mask | None = None
    dropping: Dropout = Dropout()
    own_divisor: float | None = None
    head_edits: HeadEdits = HeadEdits()
    heads: tuple[tuple[int, Formula], ...] = ()

    def for_head(self, head: int) -> Formula:
        """The formula of one head."""
        return dict(self.heads).get(head) or (replace(self, heads=()) if self.heads else self)

    @property
    def is_edited(self) -> bool:
        """Whether some head is edited, or has a formula of its own."""
        return bool(self.heads) or self.head_edits != HeadEdits()

    @property
    def patches_output(self) -> bool:
        """Whether any head's output is replaced before W_O."""
        return any(formula.head_edits.patches_output for formula in (self, *dict(self.heads).values()))

    @property
    def settings(self) -> dict[str, float]:
        """The numbers of the formula, by their names in exported files."""
        return {"divisor": self.divisor or 1.0, "temperature": self.temperature, "dropout": self.dropping.share}

    def with_config(self, config: AttentionConfig | Override, d_k: int) -> Formula:
        """The formula with the values of `config` for the knobs after the scores; padding stays hidden."""
        if isinstance(config, Override):
            # An override is of the map that is drawn, also of heads that an intervention gave another formula.
            heads = tuple((head, formula.with_config(config, d_k)) for head, formula in self.heads)
            return replace(self, **self.overridden_fields(config), heads=heads)
        real = None if self.mask is None else self.mask.real
        divisor = self.own_divisor or SCORES[self.score].divisor(d_k)
        return replace(
            self,
            divisor=self.divisor and (divisor if config.scaled else 1.0),
            temperature=float(config.temperature),
            cap=config.cap,
            normalizer=self.normalizer and config.normalizer,
            mask=replace(config.mask_rule, real=real),
            dropping=self.dropping if self.dropping.is_provided else config.dropping,
        )

    def overridden_fields(self, config: Override) -> dict[str, Any]:
        """The fields that the overrides of `config` change, with their new values; padding stays hidden."""
        changed: dict[str, Any] = {}
        if config.mask != SOURCE_MASK:
            changed["mask"] = replace(config.mask_rule, real=None if self.mask is None else self.mask.real)
        if self.divisor is not None:
            changed["temperature"] = float(self.temperature * config.temperature)
            changed["divisor"] = self.divisor if config.scaled else 1.0
        elif config.temperature != 1:  # a source without divisor (T5, OPT) divides by the temperature only
            changed |= {"temperature": float(config.temperature), "divisor": 1.0}
        return changed


_Check = Callable[[Any], bool]
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


def _knob(name: str) -> _Check:
    return next(knob.range.accepts for knob in KNOBS if knob.name == name)


def _fields(**checks: _Check) -> _Check:
    """The check of an object: None, or a dict whose fields pass their checks."""

    def check(value: Any) -> bool:
        return value is None or (
            isinstance(value, dict) and all(name in checks and checks[name](field) for name, field in value.items())
        )

    return check


_CHECKS: dict[str, _Check] = {
    "score": Choice(tuple(SCORES)).accepts,
    "rotary": _positive,
    "divisor": _positive,
    "temperature": _knob("temperature"),
    "cap": _positive,
    "bias": Choice(("", *BIASES)).accepts,
    "normalizer": Choice(("", *NORMALIZERS)).accepts,
    "mask": _fields(kind=Choice(MASKS).accepts, real=_bits, **{name: _knob(name) for name in (*SIZES, "cells")}),
    "dropping": _fields(given=Switch().accepts, **{field: _knob(name) for field, name in Dropout.knobs.items()}),
    "own_divisor": _positive,
}
"""The check of each field of a formula."""
