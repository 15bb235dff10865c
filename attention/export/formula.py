"""The formula of a layer as lines of plain torch: from Q, K and V to the output, and nothing but what this layer needs.

Each step writes its own lines, which are the bodies of the functions that compute it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.export import heads
from attention.formula import patching
from attention.formula.biases import BIASES
from attention.formula.formula import Formula
from attention.formula.inline import defined
from attention.formula.names import KEY, MEMORY, QUERY, VALUE
from attention.formula.scores import dot
from attention.formula.steps import MAP_AXES, STEPS
from attention.formula.steps.raw_scores import SCORES
from attention.sources import literals

if TYPE_CHECKING:
    from attention.formula.layer import Layer

_POSITIONS = "query_pos, key_pos = torch.arange(len(tokens))[:, None], torch.arange(len({keys}))"


@dataclass(frozen=True)
class Writing:
    """What the steps of a layer are written with.

    Attributes:
        layer: whose steps they are; it has a formula.
        keys: the variable that has the tokens attended to.
        before: the variable of the map before the step that is written.
    """

    layer: Layer
    keys: str
    before: str = ""

    @property
    def formula(self) -> Formula:
        """What makes the steps."""
        assert self.layer.formula is not None
        return self.layer.formula

    def shared(self, name: str) -> str:
        """Keys or values as all heads of the queries see them."""
        group = self.layer.n_heads // len(self.layer[name]) if self.layer.has(name) else 1
        return name if group == 1 else f"{name}.repeat_interleave({group}, dim=0)"

    def product(self) -> str:
        """The function that multiplies as the trace has rounded; empty for the plain product."""
        return "dot" if rounds(self.layer) else ""

    def picture(self) -> list[str]:
        """Lines that make `mask` cell by cell."""
        return literals.mask(self.layer["mask"].numpy())

    def padding(self, real: tuple[bool, ...]) -> list[str]:
        """The line that makes `real`: by the empty tokens where these are the padding, otherwise by their number."""
        if real != tuple(token != "" for token in self.layer.key_tokens):
            return [f"real = torch.arange(len({self.keys})) < {sum(real)}  # the others are padding"]
        return [f'real = torch.tensor([token != "" for token in {self.keys}])  # an empty token is padding']


def projections(layer: Layer) -> list[str]:
    """Lines from x to Q, K and V; they round as the trace has rounded."""
    computed = layer.formula is not None and layer.has(KEY) and layer.has(QUERY)
    lines = defined(dot) if computed and rounds(layer) else []
    if layer.has("w_q"):
        x2 = "x2" if layer.has(MEMORY) else "x"
        q, k, v = (
            product(layer, x, w) + (f" + {b}[:, None]" if layer.has(b) else "")
            for x, w, b in (("x", "w_q", "b_q"), (x2, "w_k", "b_k"), (x2, "w_v", "b_v"))
        )
        lines += [f"query, key, value = {q}, {k}, {v}  # [head query_pos d_k] and so on"]
    return lines


def formula(layer: Layer, keys: str) -> list[str]:
    """Lines from Q, K and V to the output: those of each step that the layer has and that others make.

    `keys` is the variable that has the tokens attended to. A step that is recorded, or before which there is nothing to make it
    from, is the source's own.
    """
    if layer.formula is None:
        return []
    lines = positions(layer, keys)
    steps = [step for step in layer.steps if step.name not in layer.holds]
    first = [step for step in steps if step.axes != MAP_AXES and STEPS.index(step) < STEPS.index(SCORES)]
    more, last = maps(layer, keys)
    others = heads.others(layer, lambda one: [*positions(one, keys), *maps(one, keys, SCORES.name)[0]])
    later = [step for step in steps if step.axes != MAP_AXES and step not in first]
    writing = Writing(layer, keys, last)
    before, after = ([line for step in those for line in step.python(writing)] for those in (first, later))
    return [*lines, *before, *more, *others, *after]


def maps(layer: Layer, keys: str, known: str = "") -> tuple[list[str], str]:
    """The lines of every map but those that the source makes and the one that is `known`, and the name of the last."""
    assert layer.formula is not None
    lines, last = list[str](), ""
    for step in (one for one in layer.steps if one.axes == MAP_AXES):
        if step.name not in layer.holds and step.name != known:
            own = step.python(Writing(layer, keys, last))
            lines += patching.python(layer.formula.by_hand, step.name, own)
        last = step.name
    return lines, last


def product(layer: Layer, left: str, right: str) -> str:
    """A product as the trace has rounded it."""
    return f"dot({left}, {right})" if rounds(layer) else f"{left} @ {right}"


def positions(layer: Layer, keys: str) -> list[str]:
    """The line that numbers queries and keys, where one of the others needs it."""
    formula = layer.formula
    if formula is None:
        return []
    by_rule = layer.hides and formula.mask is not None and "_pos" in formula.mask.python()
    biased = bool(formula.bias) and BIASES[formula.bias].by_distance
    return [_POSITIONS.format(keys=keys)] if by_rule or biased else []


def rounds(layer: Layer) -> bool:
    """Whether the trace is in less than double precision, so that sums in double are rounded."""
    import torch

    return layer.has(VALUE) and layer[VALUE].dtype != torch.float64
