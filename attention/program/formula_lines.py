"""The formula of a layer as lines of plain torch: from Q, K and V to the output, with only the steps that this layer needs.

Each step provides its own lines, taken from the source of the function that computes it. Inside a model, heads may
have a formula of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attention.formula import edit_kinds
from attention.formula.formula import Formula
from attention.formula.inline import defined
from attention.formula.names import MEMORY, QUERY, SCORES, VALUE
from attention.formula.scores import BIASES, dot
from attention.formula.steps import HEAD_AXES, MAP_AXES, STEPS, declared, find_step
from attention.program import literals

if TYPE_CHECKING:
    from attention.trace.layer import Layer


_INPUTS = (QUERY, SCORES, "bias", "sinks", "patched_weights")
_POSITIONS = "query_pos, key_pos = torch.arange(len(tokens))[:, None], torch.arange(len({keys}))"


@dataclass(frozen=True)
class _StepWriter:
    """The context in which the steps of a layer with a formula write their lines: the variable of the tokens attended to, and of the map before the step."""

    layer: Layer
    keys: str
    previous: str = ""

    @property
    def formula(self) -> Formula:
        assert self.layer.formula is not None
        return self.layer.formula

    def repeated_for_groups(self, name: str) -> str:
        group = self.layer.n_heads // len(self.layer[name]) if self.layer.has(name) else 1
        return name if group == 1 else f"{name}.repeat_interleave({group}, dim=0)"

    def product_function(self) -> str:
        return "dot" if _rounds_products(self.layer) else ""

    def mask_lines(self) -> list[str]:
        return literals.assign_mask(self.layer["mask"].numpy())

    def padding_lines(self, real: tuple[bool, ...]) -> list[str]:
        """The line that computes `real`: from the empty tokens if these are the padding, otherwise from the number of tokens."""
        if real != tuple(token != "" for token in self.layer.key_tokens):
            return [f"real = torch.arange(len({self.keys})) < {sum(real)}  # the rest is padding"]
        return [f'real = torch.tensor([token != "" for token in {self.keys}])  # an empty token is padding']


def projection_lines(layer: Layer) -> list[str]:
    """The lines from x to Q, K and V, with the rounding of the trace."""
    lines = defined(dot) if layer.formula is not None and _rounds_products(layer) else []
    if layer.has("w_q"):
        x2 = "x2" if layer.has(MEMORY) else "x"
        q, k, v = (
            _product(layer, x, weight) + (f" + {bias}[:, None]" if layer.has(bias) else "")
            for x, weight, bias in (("x", "w_q", "b_q"), (x2, "w_k", "b_k"), (x2, "w_v", "b_v"))
        )
        lines += [f"query, key, value = {q}, {k}, {v}  # [head query_pos d_k] and so on"]
    return lines


def formula_lines(layer: Layer, keys: str) -> list[str]:
    """The lines from Q, K and V to the output, for every step that the layer has and the formula computes.

    `keys` is the variable of the tokens attended to. A recorded step, or one without inputs in the layer, is written by the
    source instead.
    """
    if layer.formula is None:
        return []
    lines = _position_lines(layer, keys)
    steps = [step for step in layer.steps if step.name not in layer.available]
    first = [step for step in steps if step.axes != MAP_AXES and STEPS.index(step) < STEPS.index(find_step(SCORES))]
    of_maps, last_map = _map_lines(layer, keys)
    head_lines = _edited_head_lines(layer, keys)
    later = [step for step in steps if step.axes != MAP_AXES and step not in first]
    writing = _StepWriter(layer, keys, last_map)
    before, after = ([line for step in group for line in step.python(writing)] for group in (first, later))
    return [*lines, *before, *of_maps, *head_lines, *after]


def _map_lines(layer: Layer, keys: str, known: str = "") -> tuple[list[str], str]:
    """The lines of every map except those from the source and the step `known`, and the name of the last map."""
    assert layer.formula is not None
    lines, last = list[str](), ""
    for step in (candidate for candidate in layer.steps if candidate.axes == MAP_AXES):
        if step.name not in layer.available and step.name != known:
            step_lines = step.python(_StepWriter(layer, keys, last))
            lines += edit_kinds.python(layer.formula.head_edits, step.name, step_lines)
        last = step.name
    return lines, last


def _edited_head_lines(layer: Layer, keys: str) -> list[str]:
    """The lines that replace the maps of heads with a different formula, from their scores on."""
    assert layer.formula is not None
    names = [step.name for step in layer.steps if step.axes == MAP_AXES and step.name not in (*layer.available, SCORES)]
    if not layer.formula.heads or not names:
        return []
    all_names = ", ".join(names)
    comma = "," * (len(names) == 1)
    lines = [f"{all_names}{comma} = (step.clone() for step in ({all_names},))  # some heads have another formula"]
    inputs = [name for name in _INPUTS if layer.has(name)]
    for head, _ in layer.formula.heads:
        head_layer = _single(layer, head)
        index = f"[{head} : {head + 1}]"
        lines += [
            "",
            f"def head_{head}({', '.join(inputs)}):  # the formula of this head",
            *(f"    {line}" for line in _position_lines(head_layer, keys)),
            *(f"    {line}" for line in _map_lines(head_layer, keys, SCORES)[0]),
            f"    return {all_names}{comma}",
            "",
            f"{', '.join(name + index for name in names)}{comma} = head_{head}({', '.join(name + index for name in inputs)})",
        ]
    return lines


def _single(layer: Layer, head: int) -> Layer:
    """A layer of this head alone, with its formula; the bias is taken as computed for all heads."""
    assert layer.formula is not None
    tensors, formula = {}, layer.formula.for_head(head)
    if formula.bias:
        formula = replace(formula, bias="given")
    for name, tensor in layer.recorded.items():
        axes = declared(name).axes
        head_axis = next((i for i, axis in enumerate(axes) if axis in HEAD_AXES), None)
        index = 0 if head_axis is None else head // (layer.n_heads // tensor.shape[head_axis])
        tensors[name] = tensor if head_axis is None else tensor.narrow(head_axis, index, 1)
    if formula.bias:
        tensors["bias"] = layer["bias"][head : head + 1]
    if "mask" in tensors and formula.mask is not None and formula.mask != layer.formula.mask:
        del tensors["mask"]
    return replace(layer, recorded=tensors, formula=formula, base_formula=None)


def _product(layer: Layer, left: str, right: str) -> str:
    """A matrix product with the rounding of the trace."""
    return f"dot({left}, {right})" if _rounds_products(layer) else f"{left} @ {right}"


def _position_lines(layer: Layer, keys: str) -> list[str]:
    """The line that numbers queries and keys, if any other line needs it."""
    formula = layer.formula
    if formula is None:
        return []
    by_rule = layer.hides_keys and formula.mask is not None and "_pos" in formula.mask.python()
    biased = bool(formula.bias) and BIASES[formula.bias].by_distance
    return [_POSITIONS.format(keys=keys)] if by_rule or biased else []


def _rounds_products(layer: Layer) -> bool:
    """Whether the trace has less than double precision, so that sums computed in double are rounded."""
    import torch

    return layer.has(VALUE) and layer[VALUE].dtype != torch.float64
