"""The projections of a model's attention by the names of the glossary, fused ones taken apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attention.formula.functions import project, project_output
from attention.formula.names import KEY, QUERY, VALUE

if TYPE_CHECKING:
    from torch.nn import Module

    from attention.models.recording import Call

# What families call them: those of Q, K and V each by itself; all three in one matrix, side by side or head by head; and W_O.
_SEPARATE = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q", "k", "v"),
    ("q_lin", "k_lin", "v_lin"),
)
_SIDE_BY_SIDE = ("c_attn", "qkv_proj", "Wqkv")
_BY_HEAD = ("query_key_value",)
_OUT = ("o_proj", "out_proj", "o", "out_lin", "c_proj", "dense", "Wo")
_NEAR = 1e-3  # of the largest number


def parameters(call: Call, parent: Module | None) -> dict[str, Tensor]:
    """W_Q, W_K, W_V, W_O and their biases, as far as the module that called has them under a name that is known here.

    They are views of the model's own. What does not make the value or the output that was recorded is left out: then a family has
    them in an order, or with something between, that is not known here.

    Args:
        call: recorded, with its input.
        parent: the module around the one that called, where some families keep W_O.
    """
    there = _projections(call)
    x2 = call.memory if call.memory is not None else call.input
    if there and (x2 is None or not _near(project(x2, there["w_v"], there.get("b_v")), call.value)):
        there = {}
    out = next((made for made in map(_linear, _outs(call.module, parent)) if made is not None), None)
    if out is None:
        return there
    weight, bias = out
    n_heads, _, d_v = call.head_output.shape
    if weight.shape[0] != n_heads * d_v:
        return there
    there["w_o"] = weight.reshape(n_heads, d_v, -1)
    if bias is not None:
        there["b_o"] = bias
    return there


def made(there: Mapping[str, Tensor], call: Call) -> frozenset[str]:
    """Which of query, key and value are their projection of the input, with nothing done to it before they were recorded."""
    x2 = call.memory if call.memory is not None else call.input
    ways = ((QUERY, call.input, call.query), (KEY, x2, call.key), (VALUE, x2, call.value))
    return frozenset(
        name
        for name, x, found in ways
        if x is not None
        and f"w_{name[0]}" in there
        and _near(project(x, there[f"w_{name[0]}"], there.get(f"b_{name[0]}")), found)
    )


def makes_output(there: Mapping[str, Tensor], call: Call, output: Tensor) -> bool:
    """Whether W_O makes the `output` [query_pos d_model] that the model had of its heads' outputs."""
    return "w_o" in there and _near(project_output(call.head_output, there["w_o"], there.get("b_o")), output)


def out_module(module: Module, parent: Module | None) -> Module | None:
    """The module that is W_O."""
    return next((one for one in _outs(module, parent) if _linear(one) is not None), None)


def _outs(module: Module, parent: Module | None) -> list[Module]:
    inside = [getattr(module, name) for name in _OUT if hasattr(module, name)]
    around = getattr(getattr(parent, "output", None), "dense", None)  # as BERT has it
    return [*inside, *([around] if around is not None else [])]


def _projections(call: Call) -> dict[str, Tensor]:
    heads = {"q": call.query, "k": call.key, "v": call.value}
    sizes = {name: tuple(one.shape[::2]) for name, one in heads.items()}
    found = _separate(call.module) or _fused(call.module, sizes)
    there: dict[str, Tensor] = {}
    for name, (weight, bias) in found.items():
        n_heads, width = sizes[name]
        if weight.shape[1] != n_heads * width:
            return {}
        there[f"w_{name}"] = weight.reshape(-1, n_heads, width).transpose(0, 1)
        if bias is not None:
            there[f"b_{name}"] = bias.reshape(n_heads, width)
    return there


Linear = tuple[Tensor, Tensor | None]  # [d_in d_out], and what is added


def _separate(module: Module) -> dict[str, Linear]:
    for names in _SEPARATE:
        found = [_linear(getattr(module, name, None)) for name in names]
        there = [one for one in found if one is not None]
        if len(there) == 3:
            return dict(zip("qkv", there, strict=True))
    return {}


def _fused(module: Module, sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Linear]:
    """The parts of one matrix: Q, K and V beside each other, or those of the first head, and so on."""
    widths = [n_heads * width for n_heads, width in sizes.values()]
    for name in (*_SIDE_BY_SIDE, *_BY_HEAD):
        whole = _linear(getattr(module, name, None))
        if whole is None or whole[0].shape[1] != sum(widths):
            continue
        weight, bias = whole
        if name in _BY_HEAD and len({one[0] for one in sizes.values()}) == 1:
            n_heads = sizes["q"][0]
            weight = _grouped(weight, n_heads, len(sizes))
            bias = None if bias is None else _grouped(bias, n_heads, len(sizes))
        weights = torch.split(weight, widths, dim=-1)
        biases = [None] * 3 if bias is None else torch.split(bias, widths, dim=-1)
        return dict(zip(sizes, zip(weights, biases, strict=True), strict=True))
    return {}


def _grouped(matrix: Tensor, n_heads: int, parts: int) -> Tensor:
    """Columns that go head by head, each with its `parts`, as all heads of the first part, then and so on."""
    cut = matrix.reshape(*matrix.shape[:-1], n_heads, parts, -1)
    return cut.transpose(-3, -2).flatten(-3)


def _linear(module: Module | None) -> Linear | None:
    """The matrix [d_in d_out] of a linear layer, and its bias; None for anything else."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        return None
    bias = getattr(module, "bias", None)
    # GPT-2's Conv1D has it this way round, nn.Linear the other.
    matrix = weight if type(module).__name__ == "Conv1D" else weight.T
    return matrix.detach(), None if bias is None else bias.detach()


def _near(made: Tensor, there: Tensor) -> bool:
    return made.shape == there.shape and bool((made - there).abs().max() <= _NEAR * there.abs().max().clamp_min(1e-6))
