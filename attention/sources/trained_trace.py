"""The trace of a tiny model: its layers as they run, changed by a hand or not, and what it answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from attention.formula.formula import Formula
from attention.formula.intervention import Intervention
from attention.formula.layer import Layer
from attention.formula.mask import Mask
from attention.formula.names import INPUT, KEY, MEMORY, QUERY, VALUE, WEIGHTS
from attention.formula.prediction import LIKELIEST, Prediction
from attention.formula.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.intervening import Pass
    from attention.training.learning import Snapshot
    from attention.training.plan import Plan
    from attention.training.tasks.task import Example

_TOLD = {
    INPUT: "The rows of the tokens after a layer norm, which stands before every attention and is no part of it.",
    MEMORY: "The rows that the model has learned for what is attended to.",
}
_KEYS = (
    "What the encoder made of each character, after a layer norm, times W_K; the values come from the bare characters."
)


def shown(
    plan: Plan, snapshot: Snapshot, example: Example, changing: Pass | None = None, frozen: bool = False
) -> Trace:
    """The trace of a model, at one step, that reads an example, with what is changed of its heads.

    Raises:
        ConfigError: the model does not have what is changed.
    """
    from attention.formula.fitting import words
    from attention.formula.intervening import Pass

    changing = changing or Pass()
    layers, logits = run(plan, snapshot, example, changing)
    said = tuple(_prediction(plan, example, at, row) for at, row in enumerate(logits))
    those, first = changing.those, layers[0]
    about = " ".join((_reached(plan, snapshot, those, frozen), *example.notes))
    return Trace(
        first.tokens,
        tuple(layers),
        first.key_tokens,
        predictions=said,
        changes=words(those, layers, frozen),
        about=about,
    )


def run(plan: Plan, snapshot: Snapshot, example: Example, changing: Pass) -> tuple[list[Layer], Tensor]:
    """One forward pass: its layers, and the logits [query_pos answer]."""
    import torch

    from attention.formula.intervening import Attended
    from attention.training.network import attend, forward

    design, p, names = plan.design, snapshot.parameters, plan.design.names
    layers: list[Layer] = []

    def how(
        name: str, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, seen: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        def again(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            output, made = attend(name, query[None], key[None], value[None], bias, seen)
            return made[WEIGHTS][0], output[0]

        def layer(call: Attended) -> Layer:
            divisor = math.sqrt(call.query.shape[-1])
            mask = Mask("causal") if design.causal else Mask()
            formula = Formula(divisor=divisor, own_divisor=divisor, bias="" if bias is None else "given", mask=mask)
            queries = example.memory if name.startswith("encoder") else example.tokens
            recorded = {QUERY: call.query, KEY: call.key, VALUE: call.value}
            recorded |= {} if bias is None else {"bias": bias}
            return Layer(name, queries, example.memory or queries, recorded, formula)

        sides = query[0], key[0], value[0]
        weights, output = again(*sides)
        found, kept = changing.layer(names.index(name), Attended(*sides, weights, output, again), layer)
        layers.append(found)
        return (output if kept is None else kept)[None], {}

    with torch.no_grad():
        logits, entered = forward(p, design, plan.task.posed(example.ids, design), how=how)
    return [_whole(layer, p, entered[layer.name], design.heads_of(layer.name)) for layer in layers], logits[0]


def _whole(layer: Layer, p: Mapping[str, Tensor], entered: Mapping[str, Tensor], heads: int) -> Layer:
    """A layer with its parameters, and the rows that entered it."""
    from attention.training.network import cut

    name, told = layer.name, dict(_TOLD)
    w_o = p[f"{name} w_o"]
    there = {w: cut(p[f"{name} {w}"], heads) for w in ("w_q", "w_k", "w_v")}
    there |= {INPUT: entered[INPUT][0], "w_o": w_o.view(heads, -1, w_o.shape[-1])}
    if entered["values"] is not entered[INPUT]:
        there[MEMORY] = entered["values"][0]
    if entered["keys"] is not entered["values"]:
        told[KEY] = _KEYS
    return replace(layer.recording(**there), told=told)


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


def _reached(plan: Plan, snapshot: Snapshot, those: Sequence[Intervention], frozen: bool) -> str:
    """How much of what it answers is right, and what silencing does to that."""
    from attention.formula.seeds import generator
    from attention.training.learning import PROBES, measured

    said = f"After {snapshot.step} of {plan.steps} steps {snapshot.accuracy:.0%} of its answers are right"
    if (heads := silent(plan, those)) and not frozen:
        probes = plan.task.draw(PROBES, generator(plan.seed, "probes"), plan.design)
        said += f", and {measured(snapshot.row, plan.design, probes, heads).accuracy:.0%} with what is silenced"
    return f"{said} (on {PROBES} other sequences)."


def _prediction(plan: Plan, example: Example, at: int, row: Tensor) -> Prediction:
    ids = row.topk(min(LIKELIEST, len(row))).indices.tolist()
    named = tuple(example.answers[one] for one in ids)
    return Prediction(at, example.tokens[at], row, tuple(ids), named, fills=not plan.task.next)
