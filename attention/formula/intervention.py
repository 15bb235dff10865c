"""What is changed of a head inside its model: each kind once, with its short form in links and its plain words.

It is one long file because whoever adds a kind writes its field, its check, its short form and its words side by side.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from attention.errors import ConfigError
from attention.formula.ranges import Coded, Real, Whole

MOST = 100  # changes at once
SILENCES = ("zero", "mean")
TAKES = {"query": "Q", "key": "K", "value": "V", "weights": "A", "head_output": "Z"}
"""What may be taken from the other state, and its letter in links."""
MASKS = ("none", "causal", "window", "causal window", "prefix", "first", "custom")


class SetCell(NamedTuple):
    """One cell that is set by hand.

    Attributes:
        step: "scores": as they enter the softmax; "weights": after it.
        query: its row, `key` its column.
        value: what it becomes.
        rescaled: of a weight, whether the rest of its row is rescaled so that the row sums to what it did.
    """

    step: str
    query: int
    key: int
    value: float
    rescaled: bool = False


@dataclass(frozen=True)
class Intervention:
    """One or several changes of one head, one layer or all; what comes after them in the model is made anew.

    A head's output is taken at Z, before W_O; W_O's bias stays. Where heads share keys and values, these are taken for all that
    share them.

    Attributes:
        layer: its index in `trace.layers`; None: all layers.
        head: of the queries; None: all heads of the layer.
        silence: "zero": Z becomes 0 (zero ablation); "mean": its mean over positions (mean ablation).
        strength: of silencing, 0 (nothing changes) to 1.
        temperature: what the scores are divided by beside the model's own divisor; 0 is argmax, infinity uniform.
        scaled: False: scores are not divided by the model's own divisor.
        mask: one of `MASKS` instead of the model's own; "first": every query attends to the first token alone.
        window: for the window masks: how many positions away a key may be; `prefix` for the prefix mask: how many first keys
            every query sees; `hidden` for the custom mask: its cells, as `attention.formula.masks.encode` writes them.
        cells: single cells of scores or weights that are set.
        take: "query", "key", "value", "weights" or "head_output": from the other state (activation patching).

    Raises:
        ConfigError: a value is none of these, or nothing is changed.
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

    def __post_init__(self) -> None:
        for name, (fits, expected) in _MAY_BE.items():
            if not fits(getattr(self, name)):
                raise ConfigError(
                    f"{name} of an intervention is {expected}; got {str(getattr(self, name))[:40]!r}: choose such a one."
                )
        object.__setattr__(self, "cells", tuple(SetCell(*one) for one in self.cells))
        if not self.kinds:
            raise ConfigError(
                f"An intervention changes something ({', '.join(kind.fields[0] for kind in KINDS)}); got nothing: say what."
            )

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of its changes."""
        return tuple(kind for kind in KINDS if getattr(self, kind.fields[0]) not in ("", None, (), True))

    @property
    def parts(self) -> tuple[Intervention, ...]:
        """Its changes one by one."""
        found: list[dict[str, Any]] = []
        for kind in self.kinds:
            there = {name: getattr(self, name) for name in kind.fields}
            found += [{"cells": (cell,)} for cell in self.cells] if kind.fields == ("cells",) else [there]
        return tuple(Intervention(self.layer, self.head, **one) for one in found)

    @property
    def words(self) -> str:
        """What it changes, in plain words, with the field's term in brackets."""
        where = "Every layer" if self.layer is None else f"Layer {self.layer}"
        heads = "all heads" if self.head is None else f"head {self.head}"
        return f"{where}, {heads}: {'; '.join(one.kinds[0].words(one) for one in self.parts)}."

    @property
    def brief(self) -> str:
        """What it does, in two or three words: silenced, temperature 0.2."""
        return "; ".join(one.kinds[0].words(one).partition(" (")[0] for one in self.parts)

    @property
    def named(self) -> str:
        """What it does, and where: L17 H3 silenced."""
        heads = "" if self.head is None else f" H{self.head}"
        return f"{'All layers' if self.layer is None else f'L{self.layer}'}{heads} {self.brief}"

    @property
    def silences(self) -> tuple[int, int] | None:
        """The one head that it silences whole, as (layer, head)."""
        if not self.silence or self.strength != 1 or self.layer is None or self.head is None:
            return None
        return self.layer, self.head

    @property
    def short(self) -> str:
        """It as it stands in a link, such as 17.3.zero; several changes with ";" between."""
        where = ".".join("*" if one is None else str(one) for one in (self.layer, self.head))
        return ";".join(f"{where}.{one.kinds[0].write(one)}" for one in self.parts)


class Kind(NamedTuple):
    """One kind of change.

    Attributes:
        name: in plain words, for who chooses one from a list; `term` what the field calls it.
        fields: of an `Intervention`, first the one that says whether there is such a change.
        pattern: of its short form.
        read: its fields from what the pattern has found; `write` its short form.
        words: what it does.
    """

    name: str
    term: str
    fields: tuple[str, ...]
    pattern: str
    read: Callable[[re.Match[str]], dict[str, Any]]
    write: Callable[[Intervention], str]
    words: Callable[[Intervention], str]


_NUMBER = r"-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf)"
_SIZES = {"window": "window", "causal window": "window", "prefix": "prefix", "custom": "hidden"}
_SAID = {
    "query": "queries",
    "key": "keys",
    "value": "values",
    "weights": "weights",
    "head_output": "output, before W_O,",
}


def _number(value: float) -> str:
    return repr(float(value)).removesuffix(".0")


def _silenced(one: Intervention) -> str:
    much = "" if one.strength == 1 else f" by {one.strength * 100:g} %"
    if one.silence == "zero":
        return f"silenced{much} (zero ablation of Z; W_O's bias stays)"
    return f"its output replaced{much} by its mean over positions (mean ablation of Z; W_O's bias stays)"


def _mask_read(found: re.Match[str]) -> dict[str, Any]:
    kind, size = found[1].replace("-", " ").replace("nomask", "none"), found[2]
    name = _SIZES.get(kind)
    if (name is None) == bool(size):
        raise ValueError(size)
    return {"mask": kind} | ({name: size if name == "hidden" else int(size)} if name else {})


def _mask_written(one: Intervention) -> str:
    size = getattr(one, _SIZES[one.mask]) if one.mask in _SIZES else ""
    return f"{'nomask' if one.mask == 'none' else one.mask.replace(' ', '-')}{size}"


def _mask_words(one: Intervention) -> str:
    if one.mask in ("first", "none"):
        return "every query attends to the first token alone" if one.mask == "first" else "no mask"
    size = f" {getattr(one, _SIZES[one.mask])}" if one.mask in _SIZES and one.mask != "custom" else ""
    return f"another mask, {one.mask}{size}"


def _cell_read(found: re.Match[str]) -> dict[str, Any]:
    step = "scores" if found[1] == "s" else "weights"
    return {"cells": (SetCell(step, int(found[2]), int(found[3]), float(found[4]), bool(found[5])),)}


def _cell_written(one: Intervention) -> str:
    (cell,) = one.cells
    return f"{cell.step[0]}{cell.query},{cell.key}={_number(cell.value)}{'r' * cell.rescaled}"


def _cell_words(one: Intervention) -> str:
    (cell,) = one.cells
    where = f"of query {cell.query} for key {cell.key} set to {cell.value:g}"
    if cell.step == "scores":
        return f"the score {where}, before the softmax"
    return f"the weight {where}, after the softmax; {'the rest of its row is' if cell.rescaled else 'its row is not'} rescaled"


# fmt: off
KINDS: tuple[Kind, ...] = (
    Kind("Silence", "zero or mean ablation", ("silence", "strength"), rf"(zero|mean)({_NUMBER})?",
        lambda found: {"silence": found[1], "strength": float(found[2] or 1)},
        lambda one: one.silence + ("" if one.strength == 1 else _number(one.strength)), _silenced),
    Kind("Another temperature", "softmax temperature", ("temperature",), rf"t({_NUMBER})",
        lambda found: {"temperature": float(found[1])},
        lambda one: f"t{_number(one.temperature or 0)}", lambda one: f"temperature {one.temperature:g}"),
    Kind("No scaling", "without 1/√d_k", ("scaled",), "unscaled",
        lambda _: {"scaled": False}, lambda _: "unscaled", lambda _: "scores not divided (no scaling)"),
    Kind("Another mask", "attention mask", ("mask", "window", "prefix", "hidden"),
        r"(nomask|causal-window|causal|window|prefix|first|custom)([\w.-]*)", _mask_read, _mask_written, _mask_words),
    Kind("Set a cell", "attention knockout", ("cells",), rf"([sw])(\d{{1,6}}),(\d{{1,6}})=({_NUMBER})(r?)",
        _cell_read, _cell_written, _cell_words),
    Kind("Take from the other state", "activation patching", ("take",), "take([QKVAZ])",
        lambda found: {"take": next(name for name, letter in TAKES.items() if letter == found[1])},
        lambda one: f"take{TAKES[one.take]}",
        lambda one: f"its {_SAID[one.take]} taken from the other state (activation patching)"),
)
# fmt: on
"""Every kind of change: what there is to choose from."""


_INDEX = Whole(0, 10**6)  # of a layer, a head, a position


def _cells(value: object) -> bool:
    cells = value if isinstance(value, tuple | list) else (None,)
    return all(isinstance(one, tuple | list) and 4 <= len(one) <= 5 and _cell(*one) for one in cells)


def _cell(step: object, query: object, key: object, value: object, rescaled: object = False) -> bool:
    within = Real(0, 1) if step == "weights" else Real(-1e30, 1e30)
    fits = _INDEX.takes(query) and _INDEX.takes(key) and within.takes(value) and isinstance(rescaled, bool)
    return step in ("scores", "weights") and fits


_MAY_BE: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("layer", "head"), (replace(_INDEX, optional=True).takes, "a whole number from 0 on, or None for all")),
    "silence": (lambda one: one in ("", *SILENCES), "zero or mean, or empty"),
    "strength": (Real(0, 1).takes, "a number from 0 (nothing changes) to 1"),
    "temperature": (Real(0, optional=True).takes, "a number from 0 (argmax) to infinity (uniform), or None"),
    "scaled": (lambda one: one is None or isinstance(one, bool), "False, or None for the model's own"),
    "mask": (lambda one: one in ("", *MASKS), f"one of {', '.join(MASKS)}, or empty"),
    **dict.fromkeys(("window", "prefix"), (_INDEX.takes, "a whole number from 0 on")),
    "hidden": (lambda one: isinstance(one, str), "a text that holds a custom mask"),
    "cells": (_cells, "cells such as (step, query, key, value), of scores or weights, a weight from 0 to 1"),
    "take": (lambda one: one in ("", *TAKES), f"one of {', '.join(TAKES)}, or empty"),
}  # fmt: skip


def write(those: tuple[Intervention, ...]) -> str:
    """The changes as they stand in a link: 17.3.zero;5.*.t0.2."""
    return ";".join(one.short for one in those)


def read(text: str) -> tuple[Intervention, ...]:
    """The changes that a link says, each by itself.

    Raises:
        ConfigError: it says something else, or more than `MOST`.
    """
    found = tuple(_read(one.strip()) for one in text.split(";") if one.strip())
    if len(found) > MOST:
        raise ConfigError(f"At most {MOST} changes act at once; got {len(found):,}: take some away.")
    return found


def _read(text: str) -> Intervention:
    if where := re.match(r"(\*|\d{1,6})\.(\*|\d{1,6})\.", text):
        layer, head = (None if one == "*" else int(one) for one in where.groups())
        for kind in KINDS:
            if match := re.fullmatch(kind.pattern, text[where.end() :], re.ASCII):
                try:
                    return Intervention(layer, head, **kind.read(match))
                except ValueError:
                    break
    raise ConfigError(
        f"A change is layer.head.what, such as 17.3.zero or 5.*.t0.2; got {text[:40]!r}: say it like that."
    )


def mark(those: tuple[Intervention, ...], layer: int, head: int) -> str:
    """What of these changes a view of one head shows, in a sentence; empty where it is as in the unchanged model."""
    of_layer = [one for one in those if one.layer in (None, layer)]
    if here := [one.brief for one in of_layer if one.head in (None, head)]:
        return f"Changed: L{layer} H{head} {', '.join(dict.fromkeys(here))}."
    if of_layer:
        return f"Changed in this layer: {', '.join(dict.fromkeys(f'H{one.head} {one.brief}' for one in of_layer))}."
    before = sorted({one.layer for one in those if one.layer is not None and one.layer < layer})
    return (
        f"Made anew: L{', L'.join(map(str, before))} before it {'is' if len(before) == 1 else 'are'} changed."
        if before
        else ""
    )


@dataclass(frozen=True)
class Changes(Coded):
    """A text that `read` reads."""

    expected = f"changes such as 17.3.zero;5.*.t0.2, at most {MOST}"
    instead = "nothing is changed"

    def takes(self, value: object) -> bool:
        """Whether it can be read."""
        if not super().takes(value):
            return False
        try:
            return bool(read(str(value))) or not value
        except ConfigError:
            return False
