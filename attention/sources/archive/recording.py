"""The layers of a file, as they were recorded: what a formula makes of Q and K is compared with what the file has, which always wins."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from attention.errors import AttentionError, FileError, ShapeError
from attention.formula.cost import MOST_TANHS
from attention.formula.formula import Formula
from attention.formula.functions import project
from attention.formula.layer import Layer
from attention.formula.names import (
    BIASED_SCORES,
    DROPPED_WEIGHTS,
    EMBEDDING,
    INPUT,
    KEY,
    MASKED_SCORES,
    MEMORY,
    OUTPUT,
    POSITION,
    QUERY,
    SCORES,
    VALUE,
    WEIGHTS,
)
from attention.formula.scores import SCORES as WAYS
from attention.formula.steps import MAP_AXES, STEPS, declared
from attention.tokens import label

if TYPE_CHECKING:
    from torch import Tensor

NEAR = 0.01  # of a step's largest number; what differs by more was made by another formula
_HIDING = (BIASED_SCORES, MASKED_SCORES, "bias")  # where −∞ hides a key
_SHARES = (WEIGHTS, DROPPED_WEIGHTS)
_LARGEST = sys.float_info.max
_PROJECTED = {QUERY: ("w_q", "b_q"), KEY: ("w_k", "b_k"), VALUE: ("w_v", "b_v")}


class Checked(NamedTuple):
    """A layer, and a sentence on what of the file is not what it should be; empty where all is."""

    layer: Layer
    note: str = ""


def check(name: str, where: str, tensor: Tensor, tokens: tuple[str, ...], key_tokens: tuple[str, ...]) -> None:
    """Nothing, where the numbers of a step can be drawn as what they are.

    Raises:
        FileError: NaN or infinite where nothing hides a key, or a weight below 0.
    """
    if tensor.dtype == torch.bool:
        return
    low, high = (float(end) for end in tensor.aminmax())  # NaN, where there is one; and no copy of a large tensor
    least = 0.0 if name in _SHARES else -math.inf if name in _HIDING else -_LARGEST
    if least <= low and high <= _LARGEST:
        return
    wrong, why = ~tensor.isfinite(), "finite numbers"
    if name in _HIDING:
        wrong &= tensor != -math.inf
    advice = "replace it with a number, or leave that token out"
    if name == SCORES and bool((tensor == -math.inf).any()):
        advice = "save what is hidden as mask, and the scores before it; or save these as masked_scores, with weights"
    if not bool(wrong.any()) and name in _SHARES:
        wrong, why = tensor < 0, "shares of at least 0"
        advice = "save numbers before the softmax as scores"
    if not bool(wrong.any()):
        return
    at = tuple(int(place) for place in wrong.nonzero()[0])
    axes = declared(name).axes
    labels = {"query_pos": tokens, "key_pos": key_tokens}
    said = ", ".join(
        f"{axis.removesuffix('_pos')} {place}" + (f" {label(labels[axis][place], 20, False)}" if axis in labels else "")
        for axis, place in zip(axes, at, strict=True)
    )
    raise FileError(f"{name}{where} needs {why}; got {float(tensor[at]):g} at {said}: {advice}.")


def layer_of(recorded: dict[str, Tensor], formula: Formula | None, most: int, told: bool, **about: Any) -> Checked:
    """A layer of what a file has. Where the formula makes the same of it, it is there; what the file has is shown in any case.

    Args:
        recorded: the tensors by step and parameter.
        formula: what may have made them.
        most: bytes that its maps may take; of more one head at a time is made.
        told: whether the file says the whole formula; otherwise it is the usual one.
        about: for the layer: its name and tokens.

    Raises:
        ShapeError: two of them do not fit together.
    """
    recorded = _projected(recorded)
    only = Layer(recorded=recorded, told=_more(recorded), **about)
    if formula is None:
        return Checked(only)
    bare = {name: one for name, one in recorded.items() if not _follows(name, formula)}
    if SCORES in recorded and not {QUERY, KEY} <= bare.keys():
        bare[SCORES] = recorded[SCORES]
    try:
        made = Layer(recorded=bare, formula=formula, told=only.told, **about)
        if not made.has(SCORES):
            return Checked(only)
        one = _bytes(made)
        made = replace(made, whole=one * made.n_heads <= most)
        if one > most:
            raise FileError(
                f"The maps of one head would take {one / 2**20:,.0f} MB; at most {most / 2**20:,.0f} MB are made: save fewer tokens."
            )
        for step in made.steps if told else ():
            made.matrix(step.name)  # or a page would find out that it cannot be made
        return _compared(made, {name: one for name, one in only.recorded.items() if name not in bare}, only)
    except (AttentionError, RuntimeError, IndexError) as error:
        return Checked(
            only, f"The formula of the file does not fit its numbers, which are shown as recorded: {str(error)[:200]}"
        )


def _follows(name: str, formula: Formula) -> bool:
    """Whether this formula makes a step or parameter."""
    if name == "mask":
        return formula.mask is not None
    if name == "bias":
        return formula.bias not in ("", "given")
    return any(step.name == name and (step.by_formula or name == OUTPUT) for step in STEPS)


def _bytes(layer: Layer) -> int:
    """What the maps of one head of a layer take.

    Raises:
        FileError: they would take too long.
    """
    size, formula = layer.sizes, layer.formula
    cells = size["query_pos"] * size["key_pos"]
    if formula is not None and WAYS[formula.score].how == "additive":
        tanhs = layer.n_heads * size.get("d_k", 1) * cells
        if tanhs > MOST_TANHS:
            raise FileError(f"additive scores take at most {MOST_TANHS:,} tanh here; got {tanhs:,}")
    maps = [step for step in layer.steps if step.axes == MAP_AXES]
    return len(maps) * cells * max(one.element_size() for one in layer.recorded.values())


def _compared(made: Layer, found: dict[str, Tensor], only: Layer) -> Checked:
    """The layer `made` by a formula with what the file has where that is not the same to the last bit; `only` that where it is something else."""
    for name, theirs in found.items():
        if not made.has(name):
            made = made.recording(**{name: theirs})
            continue
        same, apart, largest = True, 0.0, 0.0
        for made_one, found_one in _matrices(made, name, theirs):
            if made_one.dtype == found_one.dtype and torch.equal(made_one, found_one):
                continue
            same, ours, other = False, made_one.double(), found_one.double()
            # Where both are −∞ their difference is no number.
            apart = max(apart, float(torch.where(ours == other, 0, ours - other).abs().nan_to_num(math.inf).max()))
            largest = max(largest, float(other.abs().nan_to_num(0, posinf=0).max()))
        if apart > NEAR * largest:
            return Checked(
                only,
                f"{name} is not what the formula makes of query, key and mask: all is shown as recorded, and nothing is computed. "
                "A divisor, mask or bias in the file would tell how it was made.",
            )
        if not same:
            made = made.recording(**{name: theirs})
    return Checked(made)


def _matrices(made: Layer, name: str, theirs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Each matrix of a step as the formula makes it, and as the file has it."""
    if theirs.shape != made.shape(name):
        raise ShapeError(
            f"{name} is {list(theirs.shape)} in the file, where the formula makes {list(made.shape(name))}"
        )
    if theirs.ndim == 2:
        yield made.matrix(name), theirs
        return
    for at, one in enumerate(theirs):
        yield made.matrix(name, at * (made.n_heads // len(theirs))), one


def _projected(recorded: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same without projections that do not make Q, K and V: a model may normalise or turn them in between."""
    left = dict(recorded)
    for name, (w, b) in _PROJECTED.items():
        if w not in left:
            continue
        x = left.get(INPUT if name == QUERY or MEMORY not in left else MEMORY)
        if not _makes(x, left[w], left.get(b), left.get(name)):
            left = {key: one for key, one in left.items() if key not in (w, b)}
    return left


def _more(recorded: dict[str, Tensor]) -> dict[str, str]:
    """What is said of an input that is not the sum of the embedding and the positions beside it."""
    parts = [recorded[name].double() for name in (EMBEDDING, POSITION) if name in recorded]
    x = recorded.get(INPUT)
    if x is None or not parts or any(one.shape != x.shape for one in parts):
        return {}
    if torch.allclose(torch.stack(parts).sum(0), x.double(), rtol=0, atol=1e-3 * float(x.abs().max())):
        return {}
    return {INPUT: "The input as the file has it; it is not the sum of what the file has of embedding and position."}


def _makes(x: Tensor | None, w: Tensor, b: Tensor | None, theirs: Tensor | None) -> bool:
    """Whether X W + b is what a file has."""
    if x is None or theirs is None or x.shape[-1] != w.shape[-2]:
        return False
    ours = project(x, w.to(x), None if b is None else b.to(x)).double()
    theirs = theirs.double()
    return ours.shape == theirs.shape and torch.allclose(ours, theirs, rtol=0, atol=1e-3 * float(theirs.abs().max()))
