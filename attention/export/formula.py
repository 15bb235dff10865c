"""The formula of a layer as lines of plain torch: from Q, K and V to the output, and nothing but what this layer needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from attention.export import heads
from attention.formula.biases import BUCKETS, FARTHEST
from attention.formula.formula import Formula
from attention.formula.scores import SCORES
from attention.formula.shares import SHARES
from attention.formula.steps import MAP_AXES, Step
from attention.sources import literals

if TYPE_CHECKING:
    from attention.formula.layer import Layer

DOT = (
    "",
    "def dot(left, right):  # summed in double precision, so that equal words get equal scores",
    "    return (left.double() @ right.double()).to(left.dtype)",
    "",
)
_ROTATED = (
    "",
    "def rotated(rows):  # columns i and i + d_k / 2 are a pair, turned by an angle that grows with the position",
    "    half, count = rows.shape[-1] // 2, torch.arange(rows.shape[-2], dtype=torch.float64)",
    "    angle = count[:, None] * {base!r} ** (-torch.arange(0, 2 * half, 2, dtype=torch.float64) / (2 * half))",
    "    one, other = rows[..., :half].double(), rows[..., half:].double()",
    "    turned = (one * angle.cos() - other * angle.sin(), other * angle.cos() + one * angle.sin())",
    "    return torch.cat(turned, dim=-1).to(rows.dtype)",
    "",
    "rotated_query, rotated_key = rotated(query), rotated(key)",
)
_ALIBI = (
    "slopes = torch.tensor({slopes}, dtype=torch.float64)[:, None, None]",
    "bias = (-slopes * (key_pos - query_pos).abs()).to(query.dtype)  # [head query_pos key_pos]",
)
_RELATIVE = (
    "apart, half, near = key_pos - query_pos, {half}, {near}",
    "far = torch.log(apart.abs().clamp_min(1).float() / near) / math.log({farthest} / near) * (half - near)",
    "near_or_far = torch.where(apart.abs() < near, apart.abs(), (near + far.long()).clamp_max(half - 1))",
    "bias = bias_table[(apart > 0).long() * half + near_or_far].permute(2, 0, 1)  # [head query_pos key_pos]",
)
_POSITIONS = "query_pos, key_pos = torch.arange(len(tokens))[:, None], torch.arange(len({keys}))"


def projections(layer: Layer) -> list[str]:
    """Lines from x to Q, K and V; they round as the trace has rounded."""
    computed = layer.formula is not None and layer.has("key") and layer.has("query")
    lines = list(DOT) if computed and rounds(layer) else []
    if layer.has("w_q"):
        x2 = "x2" if layer.has("memory") else "x"
        q, k, v = (
            product(layer, x, w) + (f" + {b}[:, None]" if layer.has(b) else "")
            for x, w, b in (("x", "w_q", "b_q"), (x2, "w_k", "b_k"), (x2, "w_v", "b_v"))
        )
        lines += [f"query, key, value = {q}, {k}, {v}  # [head query_pos d_k] and so on"]
    return lines


def formula(layer: Layer, keys: str) -> list[str]:
    """Lines from Q, K and V to the output: one for each step that the layer has and that others make.

    `keys` is the variable that has the tokens attended to. A step that is recorded, or before which there is nothing to make it
    from, is the source's own.
    """
    lines = positions(layer, keys)
    if layer.formula is None:
        return []
    more, last = maps(layer, keys)
    lines += [*more, *heads.others(layer, lambda one: [*positions(one, keys), *maps(one, keys, "scores")[0]])]
    value = _shared(layer, "value")
    if last and layer.has("value") and "head_output" not in layer.holds:
        lines += [f"head_output = {last} @ {value}  # [head query_pos d_v]"]
    if layer.has("kept_output") and "kept_output" not in layer.holds:
        lines += heads.kept(layer)
    if layer.has("output") and "output" not in layer.holds:
        bias = " + b_o" if layer.has("b_o") else ""
        z = "kept_output" if layer.has("kept_output") else "head_output"
        lines += [
            "# [query_pos d_model], the heads side by side",
            f"output = {z}.transpose(0, 1).flatten(1) @ w_o.flatten(0, 1){bias}",
        ]
    return lines


def maps(layer: Layer, keys: str, known: str = "") -> tuple[list[str], str]:
    """The lines of every map from the first after the one that is `known` on, and the name of the last."""
    assert layer.formula is not None
    lines, last = list[str](), ""
    for step in (one for one in layer.steps if one.axes == MAP_AXES):
        if step.name not in layer.holds and step.name != known:
            taken = step.name == "weights" and layer.formula.by_hand.takes("weights")
            lines += ["weights = taken_weights"] if taken else _step(layer, layer.formula, step, last, keys)
            lines += heads.cells(layer.formula, step.name)
        last = step.name
    return lines, last


def product(layer: Layer, left: str, right: str) -> str:
    """A product as the trace has rounded it."""
    return f"dot({left}, {right})" if rounds(layer) else f"{left} @ {right}"


def positions(layer: Layer, keys: str) -> list[str]:
    """The line that numbers queries and keys, where one of the others needs it."""
    formula = layer.formula
    by_rule = formula is not None and layer.hides and formula.mask is not None and "_pos" in formula.mask.python()
    biased = formula is not None and formula.bias in ("alibi", "relative")
    return [_POSITIONS.format(keys=keys)] if by_rule or biased else []


def _step(layer: Layer, formula: Formula, step: Step, last: str, keys: str) -> list[str]:
    """The lines of one map, made from the one before it."""
    match step.name:
        case "scores":
            return _scores(layer, formula)
        case "scaled_scores":
            return _scaled(layer, formula)
        case "capped_scores":
            bent = f"torch.tanh(scaled_scores / {formula.cap!r})" if layer.temperature else f"{last}.sign()"
            return [f"capped_scores = {formula.cap!r} * {bent}"]
        case "biased_scores":
            return [*_bias(layer, formula), f"biased_scores = {last} + bias"]
        case "masked_scores" if layer.hides:
            return [*_mask(layer, formula, keys), f"masked_scores = {last}.masked_fill(~mask, -math.inf)"]
        case "masked_scores":
            return [f"masked_scores = {last}  # nothing is hidden"]
        case "weights":
            return _weights(layer, formula)
        case _:
            return formula.dropping.python(last)


def _scores(layer: Layer, formula: Formula) -> list[str]:
    lines = [line.format(base=formula.rotary) for line in _ROTATED] if formula.rotary else []
    query, key = ("rotated_query", "rotated_key") if formula.rotary else ("query", "key")
    key = _shared(layer, key)
    if formula.score == "dot":
        return [*lines, f"scores = {product(layer, query, f'{key}.mT')}  # [head query_pos key_pos]"]
    if (query, key) != ("query", "key"):
        lines += [f"compared_query, compared_key = {query}, {key}"]
        query, key = "compared_query", "compared_key"
    return [*lines, *SCORES[formula.score].python(query, key)]


def _shared(layer: Layer, name: str) -> str:
    """Keys or values as all heads of the queries see them."""
    group = layer.n_heads // len(layer[name]) if layer.has(name) else 1
    return name if group == 1 else f"{name}.repeat_interleave({group}, dim=0)"


def _scaled(layer: Layer, formula: Formula) -> list[str]:
    """Lines that divide the scores by root of d_k and temperature, as far as they change anything."""
    lines, factors, d_k = [], [], layer.sizes.get("d_k", 0)
    if layer.has("query") and formula.divisor == math.sqrt(d_k):
        factors += ["math.sqrt(query.shape[-1])"]  # root of d_k
    elif formula.divisor != 1:
        factors += [repr(formula.divisor)]
    if layer.temperature not in (0, 1):
        lines += ["temperature = math.inf" if math.isinf(layer.temperature) else f"temperature = {layer.temperature!r}"]
        factors += ["temperature"]
    if not factors:
        return ["scaled_scores = scores  # not scaled"]
    divided = factors[0] if len(factors) == 1 else f"({' * '.join(factors)})"
    return [*lines, f"scaled_scores = scores / {divided}"]


def _bias(layer: Layer, formula: Formula) -> list[str]:
    if formula.bias == "alibi":
        from attention.formula.biases import slopes

        return [line.format(slopes=slopes(layer.n_heads).tolist()) for line in _ALIBI]
    if formula.bias == "relative":
        sizes = {"half": BUCKETS // 2, "near": BUCKETS // 4, "farthest": FARTHEST}
        return [line.format(**sizes) for line in _RELATIVE]
    return []


def _weights(layer: Layer, formula: Formula) -> list[str]:
    """Lines from masked scores to weights: the way this layer shares out, or the softmax's limit where the temperature is 0."""
    lines = list(SHARES[formula.share].python("masked_scores"))
    if layer.temperature == 0 and not formula.cap:
        lines = [
            "# temperature 0: the highest score takes all, equal ones share it",
            "shares = (masked_scores == masked_scores.amax(dim=-1, keepdim=True)).to(masked_scores.dtype)",
            "weights = shares / shares.sum(dim=-1, keepdim=True)",
        ]
        if formula.bias or formula.share not in ("softmax", "sparsemax"):
            lines = _limit(layer, formula)
    if formula.bias == "given" and bool((layer["masked_scores"] == -math.inf).all(dim=-1).any()):
        lines += ["blind = (masked_scores == -math.inf).all(dim=-1, keepdim=True)"]
        lines += ["weights = weights.masked_fill(blind, 0)  # a query that sees no key takes nothing"]
    elif layer.has("mask") and not bool(layer["mask"].any(dim=-1).all()):
        lines += ["weights = weights.masked_fill(~mask, 0)  # a query that sees no key takes nothing"]
    return lines


def _limit(layer: Layer, formula: Formula) -> list[str]:
    """Lines of the limit at temperature 0 where a bias decides among the highest scores, or a row need not sum to 1."""
    lines = ["# temperature 0: the scores decide, and a bias only among the highest"]
    deciding, bias = "masked_scores", "torch.zeros_like(masked_scores)"
    if formula.bias:
        before = "scaled_scores" if layer.has("scaled_scores") else "scores"
        lines += [f"deciding = {before}.masked_fill(masked_scores == -math.inf, -math.inf)"]
        deciding, bias = "deciding", "bias"
    if formula.share == "sigmoid":
        lines += [] if formula.bias else [f"bias = {bias}"]
        lines += SHARES["sigmoid"].python("bias")
        return [*lines, f"weights = torch.where({deciding} == 0, weights, ({deciding} > 0).to(weights.dtype))"]
    lines += [
        f"most = {deciding}.amax(dim=-1, keepdim=True)",
        f"winners = {bias}.masked_fill(({deciding} != most) | ({deciding} == -math.inf), -math.inf)",
        *SHARES[formula.share].python("winners"),
    ]
    if formula.share in ("softmax1", "sinks"):
        lines += [
            "above = torch.softmax(winners, dim=-1).nan_to_num(0)",
            "weights = torch.where(most > 0, above, torch.where(most == 0, weights, 0))",
        ]
    return lines


def _mask(layer: Layer, formula: Formula, keys: str) -> list[str]:
    """Lines that make the mask: by its rule, or cell by cell."""
    rule = formula.mask.python() if formula.mask is not None else ""
    if not rule:
        return literals.mask(layer["mask"].numpy())
    lines = [f"mask = {rule}  # [query_pos key_pos], True = may attend"]
    if formula.mask is not None and formula.mask.real is not None:
        real = formula.mask.real
        if real != tuple(token != "" for token in layer.key_tokens):  # only the first so many are
            return [f"real = torch.arange(len({keys})) < {sum(real)}  # the others are padding", *lines]
        lines = [f'real = torch.tensor([token != "" for token in {keys}])  # an empty token is padding', *lines]
    return lines


def rounds(layer: Layer) -> bool:
    """Whether the trace is in less than double precision, so that sums in double are rounded."""
    import torch

    return layer.has("value") and layer["value"].dtype != torch.float64
