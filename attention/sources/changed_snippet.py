"""The lines of a copied program that change heads while a model runs, whichever model it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.formula.by_hand import OTHER
from attention.formula.names import HEAD_OUTPUT, KEY, QUERY, VALUE, WEIGHTS

if TYPE_CHECKING:
    from attention.formula.intervention import Intervention
    from attention.formula.trace import Trace

_ENTER = (QUERY, KEY, VALUE)
_TAKEN = {WEIGHTS: "patched_weights", HEAD_OUTPUT: "patched_head_output"}
CHANGED_ITSELF = 'raise SystemExit("The other state is changed itself: copy its own Python, and put the two together.")'


@dataclass(frozen=True)
class Changed:
    """What is changed before a layer is done, and in it.

    Attributes:
        those: what is changed.
        trace: its trace.
        index: of the layer that is wanted.
        order: the layers by their index, in the order in which they run.
        now: the condition under which a program is in the layer with an index.
        there: what a program calls the step of a layer in another run: the run, the index, the step.
    """

    those: tuple[Intervention, ...]
    trace: Trace
    index: int
    order: Sequence[int]
    now: Callable[[int], str]
    there: Callable[[str, int, str], str]

    @property
    def inside(self) -> tuple[int, ...]:
        """The changed layers that run before the wanted one."""
        before = self.order[: self.order.index(self.index)]
        formulas = {at: self.trace.layer(at).inner.formula for at in before}
        return tuple(
            at for at, formula in formulas.items() if formula is not None and (formula.changed or self._those(at))
        )

    def entering(self) -> list[str]:
        """Queries, keys and values that are taken from the other state."""
        lines = []
        for at in self.order[: self.order.index(self.index) + 1]:
            for one in (part for whole in self._those(at) for part in whole.parts if part.take in _ENTER):
                layer = self.trace.layer(at).inner
                kv_heads = layer.sizes.get("kv_head", layer.n_heads) if one.take != QUERY else layer.n_heads
                heads = ":" if one.head is None else str([one.head * kv_heads // layer.n_heads])
                lines += [
                    f"    if {self.now(at)}:",
                    f"        {one.take} = {one.take}.clone()",
                    f"        {one.take}[0, {heads}] = {self.there('other', at, one.take)}[{heads}]",
                ]
        return lines

    def taking(self) -> list[str]:
        """Weights and outputs of other runs that layers take before the wanted one."""
        lines = []
        for at in self.inside:
            if taken := self.taken(at, "        "):
                lines += [f"    if {self.now(at)}:", *taken]
        return lines

    def taken(self, at: int, indent: str = "") -> list[str]:
        """Weights and outputs of other runs that a layer takes some of."""
        layer, lines = self.trace.layer(at).inner, list[str]()
        formula = layer.formula
        if formula is None:
            return []
        for head in range(layer.n_heads):
            for step, whose in formula.of(head).by_hand.taken:
                if step in _ENTER:
                    continue
                there, name = self.there("other" if whose == OTHER else "unchanged", at, step), _TAKEN[step]
                if not any(name in line for line in lines):
                    lines += [f"{name} = {there}.clone()"]
                elif f"{there}.clone()" not in "".join(lines):
                    lines += [f"{name}[{head}] = {there}[{head}]"]
        return [indent + line for line in lines]

    def needs(self, run: str) -> bool:
        """Whether something of another run is used before the wanted layer is done."""
        if run == "other":
            return any(one.take for one in self.those)
        return any("unchanged[" in line for at in (*self.inside, self.index) for line in self.taken(at))

    def __bool__(self) -> bool:
        return self.needs("other") or self.needs("unchanged") or bool(self.inside)

    def _those(self, at: int) -> list[Intervention]:
        return [one for one in self.those if one.layer in (None, at)]
