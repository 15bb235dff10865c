"""The trace of a tiny model: its layers as they run, changed by a hand or not, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attention.errors import ConfigError
from attention.formula.formula import Formula
from attention.formula.intervention import Intervention
from attention.formula.layer import Layer
from attention.formula.mask import Mask
from attention.formula.prediction import LIKELIEST, Prediction
from attention.formula.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from attention.training.learning import Snapshot
    from attention.training.plan import Plan
    from attention.training.tasks.task import Example

_TOLD = {
    "input": "The rows of the tokens after a layer norm, which stands before every attention and is no part of it.",
    "memory": "The rows that the model has learned for what is attended to.",
}
_KEYS = (
    "What the encoder made of each character, after a layer norm, times W_K; the values come from the bare characters."
)


def shown(plan: Plan, snapshot: Snapshot, example: Example, those: Sequence[Intervention] = ()) -> Trace:
    """The trace of a model, at one step, that reads an example, with what is changed of its heads.

    Raises:
        ConfigError: the model does not have what is changed.
    """
    import torch

    from attention.training.network import attend, forward

    design, p, names = plan.design, snapshot.parameters, plan.design.names
    _check(plan, those)
    layers: list[Layer] = []

    def how(p: Mapping[str, Tensor], name: str, heads: int, *sides: Any) -> tuple[Tensor, Tensor]:
        x, keys, values, seen, silent = sides
        queries = example.memory if name.startswith("encoder") else example.tokens
        own = _layer(p, name, heads, (x, keys, values), queries, example.memory or queries, design.causal)
        layers.append(own.intervened(those, names.index(name)))
        if layers[-1] is own:
            return attend(p, name, heads, x, keys, values, seen, silent)
        return layers[-1]["output"][None], layers[-1]["weights"][None]

    with torch.no_grad():
        logits, _ = forward(p, design, plan.task.posed(example.ids, design), how=how)
    said = tuple(_prediction(plan, example, at, row) for at, row in enumerate(logits[0]))
    first, changes = layers[0], tuple(one.words for one in those)
    about = " ".join((_reached(plan, snapshot, those), *example.notes))
    return Trace(first.tokens, tuple(layers), first.key_tokens, predictions=said, changes=changes, about=about)


def silent(plan: Plan, those: Sequence[Intervention]) -> set[tuple[str, int]] | None:
    """The heads that are silenced, as (layer's name, head); None where something else is changed."""
    if any(one.silence != "zero" or one.strength != 1 or len(one.parts) > 1 for one in those):
        return None
    design = plan.design
    return {
        (name, head)
        for one in those
        for name in (design.names if one.layer is None else [design.names[one.layer]])
        for head in (range(design.heads_of(name)) if one.head is None else [one.head])
    }


def _reached(plan: Plan, snapshot: Snapshot, those: Sequence[Intervention]) -> str:
    """How much of what it answers is right, and what silencing does to that."""
    from attention.formula.seeds import generator
    from attention.training.learning import PROBES, measured

    said = f"After {snapshot.step} of {plan.steps} steps {snapshot.accuracy:.0%} of its answers are right"
    if heads := silent(plan, those):
        probes = plan.task.draw(PROBES, generator(plan.seed, "probes"), plan.design)
        said += f", and {measured(snapshot.row, plan.design, probes, heads).accuracy:.0%} with what is silenced"
    return f"{said} (on {PROBES} other sequences)."


def _check(plan: Plan, those: Sequence[Intervention]) -> None:
    """Looks whether the model has what is changed."""
    names = plan.design.names
    for one in those:
        if one.layer is not None and one.layer >= len(names):
            raise ConfigError(f"layers count from 0 to {len(names) - 1}; got {one.layer}: choose one of these.")
        for name in names if one.layer is None else [names[one.layer]]:
            most = plan.design.heads_of(name) - 1
            if one.head is not None and one.head > most:
                raise ConfigError(f"heads of {name} count from 0 to {most}; got {one.head}: choose one of these.")
        if one.take:
            raise ConfigError("Nothing can be taken from another state in a trained model: choose another change.")


def _prediction(plan: Plan, example: Example, at: int, row: Tensor) -> Prediction:
    ids = row.topk(min(LIKELIEST, len(row))).indices.tolist()
    named = tuple(example.answers[one] for one in ids)
    return Prediction(at, example.tokens[at], row, tuple(ids), named, fills=not plan.task.next)


def _layer(
    p: Mapping[str, Tensor],
    name: str,
    heads: int,
    sides: tuple[Tensor, Tensor, Tensor],
    queries: tuple[str, ...],
    keys: tuple[str, ...],
    causal: bool,
) -> Layer:
    from attention.formula.attend import project
    from attention.training.network import bias_of, cut

    projections = {w: cut(p[f"{name} {w}"], heads) for w in ("w_q", "w_k", "w_v")}
    entered, from_keys, from_values = sides
    x = entered[0]
    recorded = {"input": x, **projections, "w_o": p[f"{name} w_o"].view(heads, -1, p[f"{name} w_o"].shape[-1])}
    recorded |= {"query": project(x, projections["w_q"]), "key": project(from_keys[0], projections["w_k"])}
    recorded["value"] = project(from_values[0], projections["w_v"])
    told = dict(_TOLD)
    if from_values is not entered:
        recorded["memory"] = from_values[0]
    if from_keys is not from_values:
        told["key"] = _KEYS
    if f"{name} distances" in p:
        recorded["bias"] = bias_of(p, name, len(queries), len(keys))
    divisor = math.sqrt(projections["w_q"].shape[-1])
    mask = Mask("causal") if causal else Mask()
    formula = Formula(divisor=divisor, own_divisor=divisor, bias="given" if "bias" in recorded else "", mask=mask)
    return Layer(name, queries, keys, recorded, formula, told=told)
