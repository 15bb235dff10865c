"""Attention inside of torch: `nn.MultiheadAttention`, `F.multi_head_attention_forward`, and the fast paths of `nn.Transformer`.

torch computes each in one call, so that nothing between its input and its output can be followed. Q, K and V are therefore computed
anew, from the inputs and the parameters of the call; the weights are those that torch gives when it is asked for them.

A mode of torch functions switches the fast paths off, and so do hooks of a module of their own: the output then differs in its last
digits, and at padding altogether. So the mode pauses in the code of torch's own modules, and hooks must be global.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode

from attention.formula.dropout import ProvidedDropout
from attention.formula.formula import Formula
from attention.formula.names import INPUT, KEY, MEMORY, OUTPUT, QUERY, VALUE, WEIGHTS
from attention.recording.layers import Call

_TOLERANCE = 1e-3  # of the largest number of an output; in half precision, more
_TORCHS_OWN: tuple[tuple[type[nn.Module], tuple[str, ...]], ...] = (
    (nn.MultiheadAttention, ("forward",)),
    (nn.TransformerEncoderLayer, ("forward", "_sa_block")),
    (nn.TransformerEncoder, ("forward",)),
)
_OF_FUNCTION = inspect.signature(F.multi_head_attention_forward)
_OF_MODULE = inspect.signature(nn.MultiheadAttention.forward)
_OF_LAYER = inspect.signature(nn.TransformerEncoderLayer.forward)
_SAME_NAMES = (  # of arguments of the function and attributes of the module
    *("num_heads", "in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "add_zero_attn", "training"),
    *("q_proj_weight", "k_proj_weight", "v_proj_weight"),
)


@dataclass
class _Frame:
    """A module that runs; `was_paused` before it, `called_others` since."""

    module: nn.Module
    was_paused: bool
    called_others: bool = False


class TorchAttention:
    """The attention of torch's own modules in one pass of one thread, and where the mode, which sees the functions that the pass calls, pauses."""

    def __init__(self, mode: TorchFunctionMode, batch: int) -> None:
        self.paused = False
        self._mode = mode
        self._batch = batch
        self._frames: list[_Frame] = []

    def enter(self, module: nn.Module) -> None:
        """To be called when a module begins, by a global hook."""
        if self._frames:
            self._frames[-1].called_others = True
        self._frames.append(_Frame(module, self.paused))
        self._pause(_is_torchs_own(module))

    def leave(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Call | None:
        """To be called when a module ends, by a global hook that torch calls in any case: what the module computed, if it is one of torch's own.

        `rest` are its named arguments and its output; after an exception, torch leaves the former out.
        """
        while self._frames:
            frame = self._frames.pop()
            if frame.module is module:
                break
        else:
            return None
        try:
            if len(rest) != 2 or rest[1] is None or not _is_torchs_own(module):
                return None
            with torch._C.DisableTorchFunction(), torch.no_grad():
                if isinstance(module, nn.MultiheadAttention):
                    return _read_module(module, args, rest[0], rest[1], self._batch)
                if isinstance(module, nn.TransformerEncoderLayer) and not frame.called_others:
                    return _read_fast_layer(module, args, rest[0], rest[1], self._batch)
                return None
        finally:
            self._pause(frame.was_paused)

    def stop(self) -> None:
        """To be called before the mode ends: an interrupt calls no hook."""
        self._pause(False)

    def _pause(self, paused: bool) -> None:
        # A mode above this one switches the fast paths off in any case.
        if paused and not self.paused and _get_current_function_mode() is self._mode:
            self._mode.__exit__(None, None, None)
            self.paused = True
        elif self.paused and not paused:
            self._mode.__enter__()
            self.paused = False


def read_function(args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any, batch: int) -> Call:
    """What a call of `F.multi_head_attention_forward` with these arguments computed for one element of the batch."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return _read(_named(_OF_FUNCTION, *args, **kwargs), output, batch)


def _named(signature: inspect.Signature, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The arguments of a call by their names, with the defaults."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _is_torchs_own(module: nn.Module) -> bool:
    """Whether a module runs the code of torch, not that of a subclass."""
    return any(
        isinstance(module, cls)
        and all(getattr(type(module), name) is getattr(cls, name) and name not in vars(module) for name in names)
        for cls, names in _TORCHS_OWN
    )


def _read_module(
    module: nn.MultiheadAttention, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any, batch: int
) -> Call:
    arguments = _named(_OF_MODULE, module, *args, **kwargs)
    del arguments["self"]
    (result, weights), query = output, arguments[QUERY]
    if query.is_nested:
        arguments |= dict.fromkeys((QUERY, KEY, VALUE), _element(query, batch))
        result, weights = _element(result, batch), None
    if module.batch_first and arguments[QUERY].dim() == 3:
        # One tensor must stay one: by this, torch knows self-attention.
        swapped = {id(arguments[name]): arguments[name].transpose(0, 1) for name in (QUERY, KEY, VALUE)}
        arguments |= {name: swapped[id(arguments[name])] for name in (QUERY, KEY, VALUE)}
        result = result.transpose(0, 1)
    call = _read(_arguments(module, arguments), (result, weights), batch)
    return replace(call, batch_size=query.size(0), is_prefix=True) if query.is_nested else call


def _read_fast_layer(
    layer: nn.TransformerEncoderLayer, args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Tensor, batch: int
) -> Call:
    """The attention of an encoder layer that computed everything in one call; its input may be nested, without padding."""
    named = _named(_OF_LAYER, layer, *args, **kwargs)
    rows, output = (_element(tensor, batch) for tensor in (named["src"], output))
    x = (layer.norm1.forward(rows) if layer.norm_first else rows).transpose(0, 1)
    padding, mask = named["src_key_padding_mask"], named["src_mask"]
    arguments = {
        **dict.fromkeys((QUERY, KEY, VALUE), x),
        "key_padding_mask": None if padding is None else _element(padding, batch),
        "attn_mask": mask
        if mask is None or mask.dim() == 2
        else _element(mask.unflatten(0, (-1, layer.self_attn.num_heads)), batch)[0],
        "need_weights": True,
        "is_causal": False,  # this path does not use the hint
    }

    def rest_of_layer(attended: Tensor) -> Tensor:
        between = rows[0] + attended
        between = between if layer.norm_first else layer.norm1.forward(between)
        inner = layer.norm2.forward(between) if layer.norm_first else between
        after = between + layer.linear2.forward(layer.activation(layer.linear1.forward(inner)))
        return after if layer.norm_first else layer.norm2.forward(after)

    call = _read(_arguments(layer.self_attn, arguments), (output.transpose(0, 1), None), 0, rest_of_layer)
    return replace(call, batch_size=named["src"].size(0), is_prefix=named["src"].is_nested)


def _element(tensor: Tensor, batch: int) -> Tensor:
    """A batch of one element, of the last one where there are fewer; of a nested tensor without padding."""
    element: Tensor = tensor.unbind()[min(batch, tensor.size(0) - 1)]
    return element[None]


def _arguments(module: nn.MultiheadAttention, call: Mapping[str, Any]) -> dict[str, Any]:
    return _named(
        _OF_FUNCTION,
        **call,
        **{name: getattr(module, name) for name in _SAME_NAMES},
        embed_dim_to_check=module.embed_dim,
        dropout_p=module.dropout,
        out_proj_weight=module.out_proj.weight,
        out_proj_bias=module.out_proj.bias,
        use_separate_proj_weight=not module._qkv_same_embed_dim,
    )


def _read(
    call: Mapping[str, Any],
    output: tuple[Tensor, Tensor | None],
    batch: int,
    rest: Callable[[Tensor], Tensor] | None = None,
) -> Call:
    """One element of the batch of a call, computed anew.

    `output` is [query_pos batch d_model], and weights; `rest` turns the output of attention into it, if it is that of a whole layer.
    """
    is_batched = call[QUERY].dim() == 3
    batch_size = call[QUERY].shape[1] if is_batched else 1
    batch = min(batch, batch_size - 1)
    one = _one_element(call, batch)
    result, returned_weights = output
    if is_batched:
        result, returned_weights = result[:, batch], None if returned_weights is None else returned_weights[batch]
    drops = call["training"] and call["dropout_p"] > 0
    for mask, note in _masks(one, of_layer=rest is not None):
        attended, weights = _attend({**one, "attn_mask": mask})
        sees_keys = ~weights.isnan().any(-1).any(0)
        computed = attended if rest is None else rest(attended)
        difference = 0.0 if drops else _difference(computed[sees_keys], result[sees_keys])
        notes = [note] if note else []
        if difference <= max(_TOLERANCE, 8 * torch.finfo(computed.dtype).eps):
            break
    else:
        notes = [
            f"The module's output differs by {difference:.1g} of its largest number from what its parameters and these weights give: "
            "something else has changed it."
        ]
    if not bool(sees_keys.all()):
        notes.append(
            "The mask hides every key from some query: torch gives NaN or 0 there, and weights of 0 are shown."
        )
    steps = {**_vectors(one), **_score_mask(one, mask), WEIGHTS: weights.nan_to_num(0)}
    formula = Formula(divisor=math.sqrt(steps[QUERY].shape[-1]), bias="given" if "bias" in steps else "")
    if drops and returned_weights is not None and returned_weights.dim() == 3:
        steps["dropout_mask"] = (returned_weights != 0) / (1 - call["dropout_p"])
        formula = replace(formula, dropping=ProvidedDropout())
    elif drops:
        notes.append(
            f"Dropout sets {call['dropout_p']:.0%} of the weights to 0, at random inside of torch: weights and head outputs are shown without it. "
            "With need_weights=True and average_attn_weights=False, torch returns what it drops."
        )
    if rest is None and bool(result.isfinite().all()) and (not drops or "dropout_mask" in steps):
        steps[OUTPUT] = result
    extra_keys = {"bias_k": one["bias_k"] is not None, "zero": one["add_zero_attn"]}
    return Call(
        name="",
        where="",
        # Copied, since adapters merge into parameters for the time of one call, and an optimizer changes them in place.
        steps={name: tensor.detach().clone() for name, tensor in steps.items()},
        formula=formula,
        notes=tuple(notes),
        batch_size=batch_size,
        extra_keys=tuple(label for label, is_added in extra_keys.items() if is_added),
    )


def _one_element(call: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """The arguments of the call for one element of its batch, [query_pos 1 d_model] and so on; what was one tensor, still is."""
    one = dict(call)
    rows = {id(call[name]): call[name] for name in (QUERY, KEY, VALUE)}
    if call[QUERY].dim() == 3:
        rows = {key: tensor[:, batch] for key, tensor in rows.items()}
    rows = {key: tensor[:, None] for key, tensor in rows.items()}
    one |= {name: rows[id(call[name])] for name in (QUERY, KEY, VALUE)}
    padding, mask = call["key_padding_mask"], call["attn_mask"]
    if padding is not None:
        one["key_padding_mask"] = (padding if padding.dim() == 2 else padding[None])[batch : batch + 1]
    heads = slice(batch * call["num_heads"], (batch + 1) * call["num_heads"])
    if mask is not None and mask.dim() == 3 and len(mask) > 1:
        one["attn_mask"] = mask[heads]
    for name in ("static_k", "static_v"):
        one[name] = None if call[name] is None else call[name][heads]
    return one


def _attend(one: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """What torch gives without dropout: the output [query_pos d_model], and the weights [head query_pos key_pos]."""
    with_weights = {"need_weights": True, "average_attn_weights": False, "training": False, "is_causal": False}
    output, weights = F.multi_head_attention_forward(**{**one, **with_weights})
    assert weights is not None
    return output[:, 0], weights[0]


def _masks(one: Mapping[str, Any], of_layer: bool) -> list[tuple[Tensor | None, str]]:
    """The masks that the call may have used, the likeliest first, each with a note.

    Where no weights are wanted, the hint `is_causal` replaces the mask, except in the fast path of the module. The fast path of an encoder
    layer takes a mask of numbers for one of truth values.
    """
    mask = one["attn_mask"]
    if of_layer and mask is not None and mask.is_floating_point():
        note = (
            "The fast path of nn.TransformerEncoderLayer hid each key to whose score its mask would add a number other than 0: "
            "torch adds these numbers only where that path is off, as with torch.backends.mha.set_fastpath_enabled(False)."
        )
        return [(mask, ""), (mask != 0, note)]
    if one["is_causal"] and mask is not None and one["key_padding_mask"] is None and not one["need_weights"]:
        return [(mask.new_ones(mask.shape[-2:], dtype=torch.bool).triu(1), ""), (mask, "")]
    return [(mask, "")]


def _vectors(one: Mapping[str, Any]) -> dict[str, Tensor]:
    """Q, K and V with their heads, inputs, and the parameters that give the former from the latter."""
    n_heads = one["num_heads"]
    x, x_k, x_v = (one[name][:, 0] for name in (QUERY, KEY, VALUE))
    weights = (
        [one[f"{letter}_proj_weight"] for letter in "qkv"]
        if one["use_separate_proj_weight"]
        else one["in_proj_weight"].chunk(3)
    )
    biases = [None] * 3 if one["in_proj_bias"] is None else one["in_proj_bias"].chunk(3)
    query, key, value = (F.linear(*each) for each in zip((x, x_k, x_v), weights, biases, strict=True))
    if one["bias_k"] is not None:
        key, value = torch.cat([key, one["bias_k"][0]]), torch.cat([value, one["bias_v"][0]])
    query, key, value = (rows.reshape(len(rows), n_heads, -1).transpose(0, 1) for rows in (query, key, value))
    key = key if one["static_k"] is None else one["static_k"]
    value = value if one["static_v"] is None else one["static_v"]
    if one["add_zero_attn"]:
        key, value = (F.pad(rows, (0, 0, 0, 1)) for rows in (key, value))
    steps = {INPUT: x, QUERY: query, KEY: key, VALUE: value}
    is_self = x.shape == x_k.shape and torch.equal(x, x_k)
    projected = {"q": x}
    if x_k.shape[-1] == x.shape[-1] and key.shape[1] == len(x_k) and one["static_k"] is None:
        projected["k"] = x_k
        if not is_self:
            steps[MEMORY] = x_k
        if one["static_v"] is None and (x_v is x_k or (x_v.shape == x_k.shape and torch.equal(x_v, x_k))):
            projected["v"] = x_v
    for letter, weight, bias in zip("qkv", weights, biases, strict=True):
        if letter in projected:
            steps[f"w_{letter}"] = weight.T.unflatten(-1, (n_heads, -1)).transpose(0, 1)
            if bias is not None:
                steps[f"b_{letter}"] = bias.view(n_heads, -1)
    steps["w_o"] = one["out_proj_weight"].T.unflatten(0, (n_heads, -1))
    if one["out_proj_bias"] is not None:
        steps["b_o"] = one["out_proj_bias"]
    return steps


def _score_mask(one: Mapping[str, Any], mask: Tensor | None) -> dict[str, Tensor]:
    """The masks of the call together: as `mask` [query_pos key_pos], or where they add numbers or differ by head, as `bias` [head query_pos key_pos]."""
    padding = one["key_padding_mask"]
    parts = [part for part in (mask, None if padding is None else padding[:, None]) if part is not None]
    if not parts:
        return {}
    added = torch.zeros((), device=one[QUERY].device)
    for part in parts:
        added = added + (
            torch.zeros_like(part, dtype=torch.float32).masked_fill(part, -math.inf)
            if part.dtype == torch.bool
            else part
        )
    extra_keys = (one["bias_k"] is not None) + one["add_zero_attn"]
    added = F.pad(added, (0, extra_keys)).expand(one["num_heads"], len(one[QUERY]), -1)
    hidden = added == -math.inf
    if bool((added.masked_fill(hidden, 0) != 0).any()) or bool((hidden != hidden[:1]).any()):
        return {"bias": added}
    return {"mask": ~hidden[0]} if bool(hidden.any()) else {}


def _difference(computed: Tensor, output: Tensor) -> float:
    """The largest difference from an output, relative to its largest number; 0 without rows."""
    if not output.numel():
        return 0.0
    return float((computed.double() - output.double()).abs().max() / output.double().abs().max().clamp_min(1e-30))
