"""The lines of a copied program that patch heads while a model runs, for real and trained models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.core.head_edits import OTHER_STATE
from attention.core.names import HEAD_OUTPUT, KEY, QUERY, VALUE, WEIGHTS

if TYPE_CHECKING:
    from attention.core.trace import Trace
    from attention.patching.intervention import Intervention

_INPUTS = (QUERY, KEY, VALUE)
_PATCHED = {WEIGHTS: "patched_weights", HEAD_OUTPUT: "patched_head_output"}
OTHER_IS_PATCHED = (
    'raise SystemExit("The other state has interventions, too: copy its own Python, and combine the two programs.")'
)


@dataclass(frozen=True)
class PatchedSnippet:
    """The lines that patch the layers up to the layer of the program.

    Attributes:
        interventions: the interventions.
        trace: the patched trace.
        index: the index of the layer of the program.
        order: the indices of the layers in the order in which they run.
        layer_condition: returns the condition that is true while the layer with an index runs.
        step_expression: returns the expression for a step of another run, from the run, the layer index and the step.
    """

    interventions: tuple[Intervention, ...]
    trace: Trace
    index: int
    order: Sequence[int]
    layer_condition: Callable[[int], str]
    step_expression: Callable[[str, int, str], str]

    @property
    def patched_layers(self) -> tuple[int, ...]:
        """The patched layers that run before the layer of the program."""
        before = self.order[: self.order.index(self.index)]
        formulas = {layer: self.trace.layer(layer).wrapped.formula for layer in before}
        return tuple(
            layer
            for layer, formula in formulas.items()
            if formula is not None and (formula.is_edited or self._interventions_in(layer))
        )

    def patch_inputs(self) -> list[str]:
        """Lines that patch queries, keys and values from the other run."""
        lines = []
        for layer_index in self.order[: self.order.index(self.index) + 1]:
            for part in (
                part
                for intervention in self._interventions_in(layer_index)
                for part in intervention.parts
                if part.patch in _INPUTS
            ):
                layer = self.trace.layer(layer_index).wrapped
                kv_heads = layer.sizes.get("kv_head", layer.n_heads) if part.patch != QUERY else layer.n_heads
                heads = ":" if part.head is None else str([part.head * kv_heads // layer.n_heads])
                lines += [
                    f"    if {self.layer_condition(layer_index)}:",
                    f"        {part.patch} = {part.patch}.clone()",
                    f"        {part.patch}[0, {heads}] = {self.step_expression('other', layer_index, part.patch)}[{heads}]",
                ]
        return lines

    def patch_running_layers(self) -> list[str]:
        """Lines that fetch weights and outputs of other runs for the layers that run before."""
        lines = []
        for layer in self.patched_layers:
            if layer_lines := self.patch_layer(layer, "        "):
                lines += [f"    if {self.layer_condition(layer)}:", *layer_lines]
        return lines

    def patch_layer(self, layer_index: int, indent: str = "") -> list[str]:
        """Lines that fetch the weights and outputs of other runs for one layer."""
        layer, lines = self.trace.layer(layer_index).wrapped, list[str]()
        formula = layer.formula
        if formula is None:
            return []
        for head in range(layer.n_heads):
            for step, run in formula.for_head(head).head_edits.patches:
                if step in _INPUTS:
                    continue
                expression = self.step_expression("other" if run == OTHER_STATE else "unchanged", layer_index, step)
                name = _PATCHED[step]
                if not any(name in line for line in lines):
                    lines += [f"{name} = {expression}.clone()"]
                elif f"{expression}.clone()" not in "".join(lines):
                    lines += [f"{name}[{head}] = {expression}[{head}]"]
        return [indent + line for line in lines]

    def needs_run(self, run: str) -> bool:
        """Whether a step of another run is used up to the layer of the program."""
        if run == "other":
            return any(intervention.patch for intervention in self.interventions)
        return any(
            "unchanged[" in line for layer in (*self.patched_layers, self.index) for line in self.patch_layer(layer)
        )

    def __bool__(self) -> bool:
        return self.needs_run("other") or self.needs_run("unchanged") or bool(self.patched_layers)

    def _interventions_in(self, layer: int) -> list[Intervention]:
        return [intervention for intervention in self.interventions if intervention.layer in (None, layer)]
