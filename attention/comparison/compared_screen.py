"""The first screen of two states: of B beside A, or of B − A, in which every term of the formula is a difference."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.base.errors import AttentionError, MissingError
from attention.comparison.comparison import Difference, HeadIndex, compare, explain_difference
from attention.explanation.alignment import align
from attention.formula.names import WEIGHTS, Cell
from attention.pictures.first_screen import make_strip, make_term, used_vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attention.pictures.message_contract import Compared, Screen, Term
    from attention.trace.layer import Layer
    from attention.trace.trace import Trace

SIDES = ("A", "B", "difference")
"""What a first screen of two states shows."""


def why_no_difference(a: Layer, b: Layer) -> str:
    """Why a first screen has no difference of two layers; empty if it has one."""
    if a.tokens == b.tokens and a.key_tokens == b.key_tokens:
        return ""
    return "No difference: A and B have other words. The maps below compare those that correspond."


def partner(a: tuple[str, ...], b: tuple[str, ...], at: int, side: str = "a") -> int | None:
    """The position in the other tokens that corresponds to one of this `side`, "a" or "b"; None if it has no partner, or is no position."""
    if not 0 <= at < len(a if side == "a" else b):
        return None
    alignment = align(a, b)
    group = alignment.groups[alignment.group_index(side, at)]
    return (group.b if side == "a" else group.a)[0] if group.has_partners else None


def shares(screen: Screen, layer: Layer, head: int) -> NDArray[Any]:
    """The weights of a head, of many tokens those of the query that a screen has chosen."""
    weights = layer.matrix(WEIGHTS, head).numpy()
    return weights if _has_few(screen) else weights[screen["q"]][None]


def difference_screen(shown: Screen, a: Trace, b: Trace, at: HeadIndex, other: HeadIndex) -> Screen:
    """The first screen of B − A.

    Args:
        shown: the screen of A.
        a: the trace of A, and `b` that of B, with the same tokens.
        at: the layer and head of A, and `other` those of B.

    Raises:
        MissingError: no term of the formula is in both.
    """
    layer_a, layer_b = a.layer(at.layer), b.layer(other.layer)
    terms: list[Term] = []
    vectors: dict[str, Any] = {}
    compared: Compared = {"shown": "difference", "sides": list(SIDES), "reason": ""}
    hidden = None
    for term in shown["terms"]:
        column = shown["column"] if term["name"] == "collect" else shown["k"]
        cell = Cell(at.layer, term["step"], at.head, shown["q"], column)
        with suppress(AttentionError):  # B has no such step, or one of another width
            difference = compare(a, b, term["step"], at, other)
            explanation = explain_difference(difference, cell)
            terms.append(make_term(term["name"], cell, difference.matrix.numpy(), _limit(difference), explanation, _has_few(shown)))  # fmt: skip
            if term["step"] == WEIGHTS:
                compared["a"], compared["b"] = (
                    shares(shown, layer, place.head) for layer, place in ((layer_a, at), (layer_b, other))
                )
                hidden = difference.hidden if _has_few(shown) else None
    if not terms:
        raise MissingError("no difference: no step of the formula is in both A and B")
    for name, strip in shown["vectors"].items():
        with suppress(AttentionError):
            matrix = compare(a, b, used_vector(layer_a, name), at, other).matrix.numpy()
            vectors[name] = make_strip(matrix, strip.get("at"))
    formulas = [layer.for_head(place.head).formula for layer, place in ((layer_a, at), (layer_b, other))]
    normalizers = {formula.normalizer for formula in formulas if formula}
    return {
        **shown,
        "terms": terms,
        "vectors": vectors,
        "hidden": None if hidden is None else hidden.numpy().astype(np.uint8),
        "why": "",
        "show": None,
        "score": "",  # a difference of products is no product of differences
        "normalizer": normalizers.pop() if len(normalizers) == 1 else "share",
        "compared": compared,
    }


def _limit(difference: Difference) -> float:
    return difference.largest if difference.largest > difference.tolerance else 1.0


def _has_few(screen: Screen) -> bool:
    return not any("block" in term for term in screen["terms"])
