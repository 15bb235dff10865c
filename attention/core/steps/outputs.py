"""The heads' outputs, the same after ablation or patching, and the output of the layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.core import edit_kinds, names
from attention.core.explainer import E_co
from attention.core.functions import join_heads, mix_values, project_output
from attention.core.head_edits import HeadEdits
from attention.core.inline import inlined
from attention.core.step import (
    Factor,
    LayerView,
    ProgramWriter,
    Step,
    StepContext,
    called,
    cells_of,
    columns_of,
    recorded,
    rows_of,
)
from attention.core.steps.maps import ALL, formula_of, maps_of, repeat_kv
from attention.core.steps.products import Product

if TYPE_CHECKING:
    from torch import Tensor

    from attention.core.formula import Formula

_AXES = ("head", "query_pos", "d_v")


@dataclass(frozen=True, repr=False)
class HeadOutput(Product):
    """Step Z: for each head and query, the values weighted by the weights."""

    @property
    def by_formula(self) -> bool:
        """True."""
        return True

    def available(self, layer: LayerView) -> bool:
        """Whether the layer has scores and values."""
        return names.VALUE in layer.available and layer.has(names.SCORES)

    def compute(self, layer: LayerView, head: int | None) -> Tensor:
        """The last map times the values."""
        z = mix_values(layer[maps_of(layer)[-1].name], repeat_kv(layer, layer[names.VALUE], ALL))
        return z if head is None else z[head]

    def describe(self, work: StepContext[E_co], left: str) -> str:
        """How the cell is computed, from weights or from the scores themselves."""
        share = "score" if left == names.SCORES else "weight"
        words = self.words.format(row=work.cell.row, share=share)
        return f"{words} There is no softmax." if left == names.SCORES else words

    def python(self, writer: ProgramWriter) -> list[str]:
        """The line that mixes the values."""
        (line,) = inlined(mix_values, self.name, weights=writer.previous, value=writer.repeated_for_groups(names.VALUE))
        return [f"{line}  # [head query_pos d_v]"]


@dataclass(frozen=True, repr=False)
class PatchedOutput(Step):
    """Step Z′: the heads' outputs after ablation and patching, as they enter W_O."""

    @property
    def by_formula(self) -> bool:
        """True."""
        return True

    def formula_in(self, formula: Formula) -> str:
        """The formula of the intervention, if all heads have the same."""
        return self.formula if formula.heads else formula.head_edits.output_formula

    def available(self, layer: LayerView) -> bool:
        """Whether the layer has head outputs."""
        return layer.has(names.HEAD_OUTPUT)

    def compute(self, layer: LayerView, head: int | None) -> Tensor:
        """The patched outputs, head by head, since heads have different interventions."""
        import torch

        formula = formula_of(layer)
        outputs, other = layer[names.HEAD_OUTPUT], layer.recorded.get("patched_head_output")
        patched = [
            edit_kinds.patched_output(formula.for_head(i).head_edits, z, None if other is None else other[i])
            for i, z in enumerate(outputs)
        ]
        return torch.stack(patched) if head is None else patched[head]

    def explain(self, work: StepContext[E_co]) -> E_co:
        """That the head is not changed; interventions explain the other heads."""
        words = "No intervention on this head: its output enters W_O unchanged."
        return work.from_copy(names.HEAD_OUTPUT, work.cell.row, work.cell.column, words, "unchanged, no intervention")

    def python(self, writer: ProgramWriter) -> list[str]:
        """A line for each head whose output is ablated or patched."""
        lines = [f"{self.name} = {names.HEAD_OUTPUT}.clone()  # [head query_pos d_v]"]
        for head in range(writer.layer.n_heads):
            edits, z = writer.formula.for_head(head).head_edits, f"{names.HEAD_OUTPUT}[{head}]"
            lines += [f"{self.name}[{head}] = {edit_kinds.output_python(edits, z)}"] if edits.patches_output else []
        return lines


@dataclass(frozen=True, repr=False)
class Output(Product):
    """Step O: the heads side by side, times W_O."""

    def available(self, layer: LayerView) -> bool:
        """Whether the layer has W_O and head outputs."""
        return "w_o" in layer.available and layer.has(names.HEAD_OUTPUT)

    def compute(self, layer: LayerView, head: int | None) -> Tensor:
        """The output [query_pos d_model], which has no head axis."""
        z = layer[names.PATCHED_OUTPUT if layer.has(names.PATCHED_OUTPUT) else names.HEAD_OUTPUT]
        return project_output(z, layer["w_o"], layer["b_o"] if layer.has("b_o") else None)

    def describe(self, work: StepContext[E_co], left: str) -> str:
        """How the cell is computed."""
        return self.words.format(row=work.cell.row, column=work.cell.column)

    def python(self, writer: ProgramWriter) -> list[str]:
        """The line that joins the heads."""
        z = names.PATCHED_OUTPUT if writer.layer.has(names.PATCHED_OUTPUT) else names.HEAD_OUTPUT
        (line,) = inlined(join_heads, self.name, head_output=z, w_o="w_o")
        return ["# [query_pos d_model], the heads side by side", f"{line}{' + b_o' if writer.layer.has('b_o') else ''}"]


# fmt: off
HEAD_OUTPUT = HeadOutput(
    names.HEAD_OUTPUT, "Z", "Z", _AXES, "A V", "signed", equation="Z = A V",
    words="The values of all keys, each times its {share} for query {row}, added up.", unknown=recorded(names.HEAD_OUTPUT),
    of=(rows_of(names.DROPPED_WEIGHTS, names.WEIGHTS, names.SCORES), columns_of(names.VALUE)), in_page="whole",
    elsewhere=called(
        lens="hook_z", transformers="attn_output", jax="encoded", n1="Y, Y2", n2="out", n3="attention", n4="A",
        n5="res, attension_scores"))
PATCHED_OUTPUT = PatchedOutput(
    names.PATCHED_OUTPUT, "Z′", "Z'", _AXES, "Z after ablation and patching", "signed",
    equation=r"Z' = (1 - \text{strength})\, Z + \text{strength} \cdot \text{its mean, or } 0",
    unknown=recorded(names.PATCHED_OUTPUT), when="patches_output", example=(("head_edits", HeadEdits(ablation="mean", strength=0.5)),), of=(cells_of(names.HEAD_OUTPUT),))
OUTPUT = Output(
    names.OUTPUT, "O", "O", ("query_pos", "d_model"), "concat(Z) W_O", "signed", equation=r"O = \text{concat}(Z)\, W_O",
    words="The heads' outputs for query {row}, side by side, times column {column} of W_O.",
    unknown="The output as the source recorded it; its W_O is not known.", bias="b_o", in_page="whole",
    of=(
        Factor((names.PATCHED_OUTPUT, names.HEAD_OUTPUT), row="row", concatenated=True),
        Factor(("w_o",), column="column", concatenated=True)),
    elsewhere=called(lens="hook_attn_out", transformers="attn_output", torch="attn_output", n4="output"))
# fmt: on
