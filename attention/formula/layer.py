"""One attention layer: what its source recorded, and the formula that makes the rest when it is looked at.

It is one long class because every question about a step has the same three answers: recorded, made, or not there.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from attention.errors import MissingError, check_index
from attention.formula import kept
from attention.formula.attributes import Attributes
from attention.formula.facts import Facts, Survey
from attention.formula.formula import Formula
from attention.formula.names import (
    HEAD_OUTPUT,
    OUTPUT,
    PATCHED_OUTPUT,
    QUERY,
    SCORES,
)
from attention.formula.sizes import axes_of, sizes_of
from attention.formula.steps import DECLARED, HEAD_AXES, MAP_AXES, STEPS, Factor, Step, declared, find_step, knobs_of
from attention.formula.what_if import WhatIf

if TYPE_CHECKING:  # torch takes more than a second to import; a page must open before that
    from torch import Tensor

    from attention.formula.config import AttentionConfig

_BY_FORMULA = ("mask", "bias")  # what a formula makes of no other step
_AFTER = tuple(step.name for step in STEPS if step.axes == MAP_AXES and step.name != SCORES)
_numbers = count()
T = TypeVar("T")


class Recorded(dict[str, "Tensor"]):
    """The tensors that a source kept, with a number that nothing else ever has: what is made of them is kept under it."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self.number = next(_numbers)
        weakref.finalize(self, kept.gone, self.number)


@dataclass(frozen=True, eq=False, repr=False)
class Layer(Attributes):
    """One attention layer: the tensors its source recorded, and the formula that makes the steps after them.

    ``layer.weights`` is the whole tensor of a step or parameter, None where the layer does not have it; ``layer["weights"]``
    the same, in words where it is missing; ``layer.matrix("weights", head)`` one head's, made when it is looked at and kept
    in `attention.formula.kept`. Iterating gives (step, tensor) for the steps there are, in the order of the formula.

    Attributes:
        name: what it is called where there are several kinds, such as "decoder 2".
        tokens: those that attend, by query_pos; `key_tokens` those attended to, by key_pos.
        recorded: tensors by the name of their step or parameter.
        formula: what makes the steps that are not recorded; None: there are no others.
        whole: whether the query × key matrices are made for all heads at once, and kept so; of a long text one by one.
        own: the formula as the source has it, where a hand has turned it; None: it is as the source has it.
        lent: which of `recorded` belong to a loaded model, and are not counted here.
        told: what is said of a recorded step that nothing here makes, by its name; `Step.unknown` where it says nothing.
        head_of: the layer of all heads, where this is it with the formula of one: the numbers are that layer's.

    Raises:
        ShapeError: a tensor has the wrong number of axes, or one axis has two sizes.
    """

    name: str = ""
    tokens: tuple[str, ...] = ()
    key_tokens: tuple[str, ...] = ()
    recorded: Mapping[str, Tensor] = field(default_factory=dict)
    formula: Formula | None = None
    whole: bool = True
    own: Formula | None = None
    lent: frozenset[str] = frozenset()
    told: Mapping[str, str] = field(default_factory=dict)
    head_of: Layer | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.recorded, Recorded):
            there = {name: self.recorded[name] for name in DECLARED if self.recorded.get(name) is not None}
            object.__setattr__(self, "recorded", Recorded(there))
        if not self.key_tokens:
            object.__setattr__(self, "key_tokens", self.tokens)
        _ = self.sizes  # says what does not fit, before torch does

    if not TYPE_CHECKING:  # to a type checker a misspelling is an error

        def __getattr__(self, name: str) -> None:
            near = get_close_matches(name, [one for one in dir(type(self)) if not one.startswith("_")], 1)
            hint = f": did you mean {near[0]!r}?" if near else "."
            raise AttributeError(f"a layer has steps and parameters such as weights and w_q; it has no {name!r}{hint}")

    def __repr__(self) -> str:
        made = ", ".join(step.name for step in self.steps if step.name not in self.recorded)
        sizes = ", ".join(f"{axis} {size}" for axis, size in self.sizes.items())
        recorded = ", ".join(self.recorded)
        parts = [repr(self.name) if self.name else "", sizes]
        parts += [f"{what}: {names}" for what, names in (("recorded", recorded), ("by formula", made)) if names]
        return f"{type(self).__name__}({'; '.join(part for part in parts if part)})"

    def __iter__(self) -> Iterator[tuple[Step, Tensor]]:
        for step in self.steps:
            yield step, self._tensor(step.name)

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of the step or parameter called `name`, of all heads.

        Raises:
            MissingError: there is no such step, or this source could not record it.
        """
        self._check(name)
        return self._tensor(name)

    # -- what there is ------------------------------------------------------------------------

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps that this layer has, in the order of the formula; nothing is worked out."""
        return tuple(step for step in STEPS if self.has(step.name))

    def has(self, name: str) -> bool:
        """Whether the layer has a step or parameter; nothing is worked out."""
        formula, there = self.formula, self.holds
        if name in there:
            return True
        if formula is None:
            return False
        if name in _BY_FORMULA:
            return bool(formula.bias) if name == "bias" else formula.mask is not None
        step = DECLARED[name]
        return isinstance(step, Step) and step.enabled(formula) and step.available(self)

    def without(self, *names: str) -> Layer:
        """The layer without some of what is recorded; itself where it has none of that."""
        if not self.recorded.keys() & set(names):
            return self
        return replace(self, recorded={name: one for name, one in self.recorded.items() if name not in names})

    def recording(self, **tensors: Tensor | None) -> Layer:
        """The layer with more tensors recorded; None for one that it shall not have."""
        there = {**self.recorded, **tensors}
        return replace(self, recorded={name: tensor for name, tensor in there.items() if tensor is not None})

    def remade(self, formula: Formula) -> Layer:
        """The layer with another formula, of the same that is recorded."""
        return replace(self, formula=formula)

    def turned(self, config: AttentionConfig | WhatIf) -> Layer:
        """The layer with the knobs after the scores as `config` has them; itself where there is no formula to turn."""
        own = self.own or self.formula
        if own is None:
            return self
        if isinstance(config, WhatIf):
            config = config.only(self.turnable)
        formula = own.turned(config, self.sizes.get("d_k", 1))
        turned = own if isinstance(config, WhatIf) and formula != own else None
        return self if (formula, turned) == (self.formula, self.own) else replace(self, formula=formula, own=turned)

    @property
    def turnable(self) -> tuple[str, ...]:
        """The knobs of a `WhatIf`, by name, that change something here; none where maps were recorded, or nothing made them."""
        layer = self.inner
        formula = layer.own or layer.formula
        if formula is None or not layer.has(SCORES) or any(name in layer.recorded for name in _AFTER):
            return ()
        # Scores that were given, and that nothing is divided by, stay as they are.
        divides = formula.divisor or (formula.share and layer.has(QUERY))
        divided = ("temperature", *(["scaled"] if formula.divisor not in (None, 1) else [])) if divides else ()
        hides = ("mask", "window", "prefix", "cells") if formula.share else ()
        return tuple(one.name for one in fields(WhatIf) if one.name in (*divided, *hides))

    def of(self, head: int) -> Layer:
        """The layer as one head has it: itself, but where that head has another formula than the others."""
        if self.formula is None or head not in dict(self.formula.heads):
            return self
        return replace(self, formula=self.formula.of(head), own=self.own or self.formula, head_of=self)

    @cached_property
    def holds(self) -> Mapping[str, Tensor]:
        """What is recorded and still so: where a hand has turned the formula, outputs are made anew, and another mask is another."""
        if self.own is None or self.formula is None:
            return self.recorded
        aside = (HEAD_OUTPUT, PATCHED_OUTPUT, OUTPUT, *(["mask"] if self.formula.mask != self.own.mask else []))
        return {name: tensor for name, tensor in self.recorded.items() if name not in aside}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How long each axis is, by its name; only the axes of what this layer has.

        Raises:
            ShapeError: as for the layer.
        """
        sizes = sizes_of(self.recorded, self.tokens, self.key_tokens)
        if self.formula is not None and "kv_head" in sizes:
            sizes.setdefault("head", sizes["kv_head"])
        return sizes

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a step or parameter; nothing is worked out.

        Raises:
            MissingError: as for ``layer[name]``.
        """
        self._check(name)
        if name in self.holds:
            return tuple(self.holds[name].shape)
        return tuple(self.sizes[axis] for axis in axes_of(name))

    @property
    def inner(self) -> Layer:
        """The layer that was recorded: itself, unless it is another's weights put together."""
        return self

    @property
    def n_heads(self) -> int:
        """The number of heads, 1 where no step has any."""
        return self.sizes.get("head", self.sizes.get("kv_head", 1))

    @property
    def nbytes(self) -> int:
        """The memory of what is recorded, in bytes; what two tensors share counts once, what is lent not at all."""
        own = (tensor.untyped_storage() for name, tensor in self.recorded.items() if name not in self.lent)
        storages = {one.data_ptr(): one.nbytes() for one in own}
        return sum(storages.values())

    def labels_of(self, axis: str) -> tuple[str, ...] | None:
        """The tokens along an axis, or None for an axis that is only numbered (d_model, head, …)."""
        return {"query_pos": self.tokens, "key_pos": self.key_tokens}.get(axis) or None

    # -- the numbers --------------------------------------------------------------------------

    def matrix(self, name: str, head: int = 0) -> Tensor:
        """One head's matrix of a step or parameter, [row_axis column_axis]; what has no heads ignores `head`.

        Keys and values that several query heads share are found by the number of any of these.

        Raises:
            MissingError: there is no such step or head.
        """
        if self.head_of is not None and name not in _BY_FORMULA:
            return self.head_of.matrix(name, head)
        self._check(name)
        axes = DECLARED[name].axes
        if axes[0] not in HEAD_AXES:
            return self._tensor(name)
        check_index("heads", head, self.n_heads)
        if name in self.holds or self.whole or axes != MAP_AXES:
            return self._tensor(name)[head // (self.n_heads // self.sizes[axes[0]])]
        return self._made(name, head)

    def part(self, *names: str, heads: slice = slice(None), rows: slice = slice(None)) -> tuple[Tensor, ...]:
        """Some heads and queries of query × key matrices, each [head query_pos key_pos]: for who looks at all and keeps none.

        Raises:
            MissingError: there is no such step.
        """
        from attention.formula import making

        for name in names:
            self._check(name)
        return making.part(self, names, heads, rows)

    def facts(self, name: str) -> Facts:
        """What is said of a step in all heads, whichever of them are looked at.

        Raises:
            MissingError: as for ``layer[name]``.
        """
        self._check(name)
        step = find_step(name)
        if self.whole or name in self.holds or step.axes != MAP_AXES:
            return self._once(("facts", name), step, lambda: Facts.of(step, self._tensor(name)))
        return self._survey().facts[name]

    def ends(self, name: str) -> tuple[float, float] | None:
        """The smallest and the largest finite number of a step in all heads; None where it has none.

        Raises:
            MissingError: as for ``layer[name]``.
        """
        return self.facts(name).ends

    @cached_property
    def temperature(self) -> float:
        """The formula's temperature; 0 where it is so small that a quotient overflows: in these numbers it is 0."""
        from attention.formula.making import overflows

        if self.formula is None:
            return 1.0
        return 0.0 if overflows(self, self.formula) else self.formula.temperature

    @property
    def divisor(self) -> float:
        """What the scores are divided by, before the temperature; 1 where they are not."""
        return (self.formula and self.formula.divisor) or 1.0

    @property
    def settings(self) -> dict[str, float]:
        """The numbers of its formula by the names that exported files have for them; as if it did nothing where there is none."""
        return (self.formula or Formula()).settings | {"temperature": self.temperature}

    @property
    def hides(self) -> bool:
        """Whether the mask hides anything."""
        return self.has("mask") and not bool(self["mask"].all())

    def _check(self, name: str) -> None:
        if not self.has(declared(name).name):
            raise MissingError(
                f"this source has no {name}; it has {', '.join(s.name for s in self.steps)}: choose one of these."
            )

    def _tensor(self, name: str) -> Tensor:
        """The whole tensor of what the layer has."""
        if self.head_of is not None and name not in _BY_FORMULA:
            return self.head_of[name]
        if name in self.holds:
            return self.holds[name]
        return self._made(name, None)

    def _made(self, name: str, head: int | None) -> Tensor:
        """A step that is not recorded, made from those before it: of one head [row column], or of all."""
        from attention.formula import making

        assert self.formula is not None  # `has` has looked
        if name == "mask":  # the same of all layers that hide the same
            sizes = self.sizes["query_pos"], self.sizes["key_pos"]
            return kept.KEPT.once(("mask", self.formula.mask, sizes), lambda: making.made(self, name, head))
        if name in _BY_FORMULA:
            knobs = getattr(self.formula, name)
            return kept.matrix(self.number, (name, head), knobs, lambda: making.made(self, name, head))
        step = find_step(name)
        if name == HEAD_OUTPUT and not self.whole:
            return self._survey().head_output
        return self._once((name, head), step, lambda: making.made(self, name, head))

    def _survey(self) -> Survey:
        """The facts of all maps and the outputs of all heads, each head made some queries at a time and forgotten."""
        from attention.formula import making

        return self._once("survey", find_step(HEAD_OUTPUT), lambda: making.survey(self))

    @property
    def number(self) -> int:
        """That of its recorded tensors, which nothing else ever has."""
        assert isinstance(self.recorded, Recorded)  # __post_init__ has made it one
        return self.recorded.number

    def _once(self, place: Any, step: Step, make: Callable[[], T]) -> T:
        return kept.matrix(self.number, place, self.formula and knobs_of(self.formula, step), make)

    # -- what is said of a step ---------------------------------------------------------------

    def factors(self, step: Step) -> list[tuple[Factor, str]]:
        """The factors of a step that this layer has, each with the name of the step or parameter."""
        there = ((one, next((name for name in one.names if self.has(name)), "")) for one in step.of)
        return [(factor, name) for factor, name in there if name]

    def formula_of(self, step: Step) -> str:
        """The step's formula as this layer has it: D V where weights are dropped, X₂ W_K across two texts, another score."""
        unmade = self.formula is None and step.by_formula and step.name in self.recorded
        if unmade or (step.name in self.told and not self.factors(step)):
            return "as recorded"
        formula = step.formula_in(self.formula) if self.formula else step.formula
        for factor, there in self.factors(step):
            for name in {*factor.names} - {there}:
                symbol = rf"(?<!\w){re.escape(find_step(name).symbol)}(?![A-Za-z0-9_′₂])"
                formula = re.sub(symbol, find_step(there).symbol, formula)
        formula = f"{formula} + b_{step.symbol}" if step.bias and self.has(step.bias) else formula
        return f"{formula}, and more, as recorded" if step.name in self.told else formula
