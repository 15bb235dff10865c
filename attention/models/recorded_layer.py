"""One recorded call of attention as a `Layer`: its recorded tensors, its projections, and the formula that computes the other steps.

Projections have the names of the glossary; fused matrices are split.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.formula.formula import Formula
from attention.formula.functions import project, project_output
from attention.formula.mask import Mask
from attention.formula.names import INPUT, KEY, MEMORY, QUERY, VALUE, WEIGHTS
from attention.formula.scores import BLOCK_ROWS
from attention.models.attention_call import in_float32
from attention.trace.layer import Layer

if TYPE_CHECKING:
    from torch.nn import Module

    from attention.models.attention_call import Call
    from attention.models.loaded import Site


_MAX_WHOLE_BYTES = 2**24  # of the maps of all heads of a layer; larger layers compute them head by head
_PROVENANCE = {
    INPUT: "The input of this layer's attention: the tokens after all layers before it and a normalization.",
    MEMORY: "The output of the encoder for the first text.",
    QUERY: "The query as it enters the product: what the model does to it before, such as rotary position, is not recorded.",
    KEY: "The key as it enters the product: what the model does to it before, such as rotary position, is not recorded.",
}
_WEIGHTS_TOLERANCE = 1e-4  # how far weights may be from those of eager attention and still count as equal
MAPS_PER_HEAD = 4  # scores, scaled, masked, weights: about as many are computed for every head
BYTES_PER_NUMBER = 4  # bytes


def build_layer(call: Call, site: Site, tokens: tuple[str, ...], keys: tuple[str, ...]) -> Layer:
    """The layer of one call: its recorded tensors, and the formula that computes the other steps.

    Without a formula, and with recorded weights and head outputs, where the formula does not give the model's weights.
    """
    tensors: dict[str, Any] = {
        INPUT: call.input,
        MEMORY: call.memory,
        QUERY: call.query,
        KEY: call.key,
        VALUE: call.value,
    }
    tensors |= site.parameters
    tensors |= {
        "bias": call.bias,
        "sinks": call.sinks,
        "lambdas": _lambdas(call),
        "mask": call.mask if not isinstance(call.mask, Mask | None) else None,
    }
    divisor, root = None if call.scaling == 1 else 1 / call.scaling, math.sqrt(call.query.shape[-1])
    is_root = divisor is not None and math.isclose(divisor, root)
    formula = Formula(
        divisor=root if is_root else divisor,
        own_divisor=None if is_root else divisor,
        cap=call.cap,
        bias="given" if call.bias is not None else "",
        normalizer="sinks" if call.sinks is not None else "softmax",
        mask=call.mask if isinstance(call.mask, Mask) else None if call.mask is not None else Mask(),
    )
    whole = MAPS_PER_HEAD * len(call.query) * len(tokens) * len(keys) * BYTES_PER_NUMBER <= _MAX_WHOLE_BYTES
    recorded = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    provenance = {step: text for step, text in _PROVENANCE.items() if step not in site.pure_projections}
    if call.dtype not in (torch.float32, torch.float64):
        dtype = str(call.dtype).removeprefix("torch.")
        rounded = f"The input times its projection, as the model rounded it to {dtype}: the exact sum differs in the last digits."
        provenance |= dict.fromkeys(site.pure_projections, rounded)
    layer = Layer(
        site.name,
        tokens,
        keys,
        recorded,
        formula,
        whole,
        shared_with_model=frozenset(site.parameters),
        provenance=provenance,
    )
    if _has_model_weights(layer, call):
        return layer
    # The family computes something that is not known here: its tensors are shown, and nothing is recomputed.
    weights = call.attend_rows(slice(None), call.dtype)[0] if call.weights is None else call.weights
    return replace(layer.with_tensors(weights=weights, head_output=call.head_output), formula=None)


def _lambdas(call: Call) -> Tensor | None:
    """λ of differential attention [head], from the parameters of its paper; None for other attention."""
    names = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2", "lambda_init")
    q1, k1, q2, k2, start = (getattr(call.module, name, None) for name in names)
    if q1 is None or k1 is None or q2 is None or k2 is None or start is None:
        return None
    q1, k1, q2, k2 = (in_float32(vector) for vector in (q1, k1, q2, k2))
    value: Tensor = torch.exp((q1 * k1).sum()) - torch.exp((q2 * k2).sum()) + start
    return value.expand(len(call.query)).clone()


def _has_model_weights(layer: Layer, call: Call) -> bool:
    """Whether the formula gives the model's weights in the first, middle and last row of every head.

    Where the model gives no weights (fused attention), whether it gives the model's head outputs. A model in half precision is
    computed again in float32 for this, since its own numbers are too coarse to tell one formula from another.
    """
    from attention.trace.compute import compute_blocks

    last, heads = call.query.shape[1] - 1, slice(0, len(call.query))
    is_exact, outputs, value = call.dtype == torch.float32, call.head_output, call.value
    if not call.has_own_weights:
        value = value.repeat_interleave(len(call.query) // len(value), dim=0)
        if not is_exact:
            outputs = call.rerun_in(torch.float32, call.query, call.key, call.value)[1]
    for query in {0, last // 2, last}:
        rows = slice(query, query + 1)
        actual = compute_blocks(layer, (WEIGHTS,), heads, rows)[0]
        expected, tolerance = None, _WEIGHTS_TOLERANCE
        if not call.has_own_weights:
            actual, expected = actual @ value, outputs[:, rows]
            tolerance *= max(1.0, float(value.abs().max()))
        elif is_exact and call.weights is not None:
            expected = call.weights[:, rows]
        else:
            expected = call.attend_rows(rows)[0]
        if expected is not None and bool((actual - expected).abs().max() > tolerance):
            return False
    return True


def max_weight_error(layer: Layer, call: Call) -> float | None:
    """The largest difference between the weights that the formula gives in float32 and those of the model, in its dtype.

    The weights of fused attention, which gives none, are those of its family's eager attention. None without a formula.
    """
    if layer.formula is None:
        return None
    errors, n_queries = [0.0], call.query.shape[1]
    for start in range(0, n_queries, BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, n_queries))
        weights = call.attend_rows(rows, call.dtype)[0] if call.weights is None else call.weights[:, rows]
        if weights is None:
            return None
        errors.append(float((layer.blocks(WEIGHTS, rows=rows)[0] - weights).abs().max()))
    return max(errors)


# Attribute names of the model families: Q, K and V as separate layers; fused side by side; fused head by head; and W_O.
_SEPARATE = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q", "k", "v"),
    ("q_lin", "k_lin", "v_lin"),
)
_FUSED_SIDE_BY_SIDE = ("c_attn", "qkv_proj", "Wqkv", "qkv")
_FUSED_BY_HEAD = ("query_key_value",)
_OUTPUT = ("o_proj", "out_proj", "o", "out_lin", "c_proj", "dense", "Wo", "proj", "projection_layer")
_PROJECTION_TOLERANCE = 1e-3  # relative to the largest number
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

Linear = tuple[Tensor, Tensor | None]
"""The matrix [d_in d_out] and the bias of a linear layer."""


def parameters(call: Call, parent: Module | None) -> dict[str, Tensor]:
    """W_Q, W_K, W_V, W_O and their biases, as views of the model's own; only those found under a known attribute name.

    Matrices that do not give the recorded value or output are left out: their family orders them in an unknown way, or computes
    something else in between.

    Args:
        call: recorded, with its input.
        parent: the parent of the module that called; some families keep W_O there.
    """
    named = _input_projections(call)
    x2 = call.memory if call.memory is not None else call.input
    if named and (x2 is None or not _is_projection(x2, named, "v", call.value, call.dtype)):
        named = {}
    linears = map(_linear, output_candidates(call.module, parent))
    output = next((linear for linear in linears if linear is not None), None)
    if output is None:
        return named
    weight, bias = output
    n_heads, _, d_v = call.head_output.shape
    if weight.shape[0] != n_heads * d_v:
        return named
    named["w_o"] = weight.reshape(n_heads, d_v, -1)
    if bias is not None:
        named["b_o"] = bias
    return named


def pure_projections(named: Mapping[str, Tensor], call: Call) -> frozenset[str]:
    """Which of the recorded query, key and value are exactly their projection of the input, given the `named` parameters."""
    x2 = call.memory if call.memory is not None else call.input
    candidates = ((QUERY, call.input, call.query), (KEY, x2, call.key), (VALUE, x2, call.value))
    return frozenset(
        name
        for name, x, recorded in candidates
        if x is not None and f"w_{name[0]}" in named and _is_projection(x, named, name[0], recorded, call.dtype)
    )


def makes_output(named: Mapping[str, Tensor], call: Call, output: Tensor) -> bool:
    """Whether W_O of the `named` parameters turns the head outputs into the model's `output` [query_pos d_model]."""
    if "w_o" not in named:
        return False
    w_o, b_o = in_float32(named["w_o"]), in_float32(named["b_o"]) if "b_o" in named else None
    return _is_close(project_output(call.head_output, w_o, b_o), output, call.dtype)


def output_module(module: Module, parent: Module | None) -> Module | None:
    """The linear layer W_O of an attention module; None if there is none."""
    candidates = output_candidates(module, parent)
    return next((candidate for candidate in candidates if _linear(candidate) is not None), None)


def output_candidates(module: Module, parent: Module | None) -> list[Module]:
    """The modules that may be W_O of an attention module, by their names."""
    children = [getattr(module, name) for name in _OUTPUT if hasattr(module, name)]
    sibling = getattr(getattr(parent, "output", None), "dense", None)  # BERT
    return [*children, *([sibling] if sibling is not None else [])]


def _input_projections(call: Call) -> dict[str, Tensor]:
    heads = {"q": call.query, "k": call.key, "v": call.value}
    sizes = {name: tuple(tensor.shape[::2]) for name, tensor in heads.items()}
    linears = _separate(call.module) or _fused(call.module, sizes)
    named: dict[str, Tensor] = {}
    for name, (weight, bias) in linears.items():
        n_heads, d_head = sizes[name]
        if weight.shape[1] != n_heads * d_head:
            return {}
        named[f"w_{name}"] = weight.reshape(-1, n_heads, d_head).transpose(0, 1)
        if bias is not None:
            named[f"b_{name}"] = bias.reshape(n_heads, d_head)
    return named


def _separate(module: Module) -> dict[str, Linear]:
    for names in _SEPARATE:
        candidates = [_linear(getattr(module, name, None)) for name in names]
        linears = [linear for linear in candidates if linear is not None]
        if len(linears) == 3:
            return dict(zip("qkv", linears, strict=True))
    return {}


def _fused(module: Module, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Linear]:
    """Q, K and V of one fused matrix, side by side or head by head; `sizes` are (n_heads, d_head) of each."""
    widths = [n_heads * d_head for n_heads, d_head in sizes.values()]
    for name in (*_FUSED_SIDE_BY_SIDE, *_FUSED_BY_HEAD):
        fused = _linear(getattr(module, name, None))
        if fused is None or fused[0].shape[1] != sum(widths):
            continue
        weight, bias = fused
        if name in _FUSED_BY_HEAD and len({size[0] for size in sizes.values()}) == 1:
            n_heads = sizes["q"][0]
            weight = _side_by_side(weight, n_heads, len(sizes))
            bias = None if bias is None else _side_by_side(bias, n_heads, len(sizes))
        weights = torch.split(weight, widths, dim=-1)
        biases = [None] * 3 if bias is None else torch.split(bias, widths, dim=-1)
        return dict(zip(sizes, zip(weights, biases, strict=True), strict=True))
    return {}


def _side_by_side(matrix: Tensor, n_heads: int, n_parts: int) -> Tensor:
    """Columns ordered head by head (q k v q k v …), reordered part by part (q q … k k … v v …)."""
    by_head = matrix.reshape(*matrix.shape[:-1], n_heads, n_parts, -1)
    return by_head.transpose(-3, -2).flatten(-3)


def _linear(module: Module | None) -> Linear | None:
    """The matrix [d_in d_out] and the bias of a linear layer; None for anything else."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or weight.dtype not in _DTYPES:
        return None  # quantized weights are packed: they are no matrix
    sizes = {getattr(module, name, None) for name in ("in_features", "out_features")} - {None}
    if hasattr(module, "base_layer") or (sizes and sizes != {*weight.shape}):  # an adapter adds to its base layer
        return None
    bias = getattr(module, "bias", None)
    # GPT-2's Conv1D stores [d_in d_out], nn.Linear [d_out d_in].
    matrix = weight if type(module).__name__ == "Conv1D" else weight.T
    return matrix.detach(), None if bias is None else bias.detach()


def _is_projection(x: Tensor, named: Mapping[str, Tensor], letter: str, recorded: Tensor, dtype: torch.dtype) -> bool:
    """Whether X W + b with these parameters gives a recorded tensor."""
    if x.shape[-1] != named[f"w_{letter}"].shape[1]:  # MobileBERT reads values elsewhere
        return False
    bias = in_float32(named[f"b_{letter}"]) if f"b_{letter}" in named else None
    return _is_close(project(x, in_float32(named[f"w_{letter}"]), bias), recorded, dtype)


def _is_close(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    """Whether two tensors are equal, as far as the model's dtype rounds."""
    if actual.shape != expected.shape:
        return False
    tolerance = max(_PROJECTION_TOLERANCE, 2 * torch.finfo(dtype).eps)
    return bool((actual - expected).abs().max() <= tolerance * expected.abs().max().clamp_min(1e-6))
