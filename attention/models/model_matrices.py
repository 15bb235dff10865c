"""The matrices of the heads of a loaded model, with its norms folded in as `trace.model_run` says, found by running it once.

What norms do is read off that run: the linear part, weights and, in a LayerNorm, the subtraction of the mean; the
scale is left out. So is what happens between W_Q, W_K and their product: norms of each head, and rotary embedding as
matrices, from the model's own modules. Both are used only if they turn the projections of the run into the queries
and keys that were recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from attention.base import cache
from attention.base.errors import ConfigError, MissingError, ModelError
from attention.formula.functions import project
from attention.models import lm_head, recorder, running
from attention.models.attention_call import Call, in_float32
from attention.models.attention_sites import parents
from attention.models.loaded import LoadedModel
from attention.models.token_pieces import vocabulary_names
from attention.trace.model_run import LayerMatrices

_CHUNK = 8192  # tokens of the vocabulary in one product
_FLOPS = 4e10  # per second, of products on one thread
_NO_LOGITS = "this model predicts no tokens, so no token is raised or lowered."
_FILLS_MASKS = (
    "a model that fills masks has a non-linear layer before its logits, so no matrix leads from a head to them."
)
_UNKNOWN_END = "it is not known here what this model computes between its last layer and its logits."
_NO_OV = "W_V or W_O of this layer is not known: its family stores them in a way that is not known here, or computes something in between."
_NO_INPUT_NORM = "it is not known here what this layer computes between the residual stream and its attention."
_POST_NORM = "this layer normalizes the sum of the residual stream and its output (post-LN), so no matrix leads from a head to the logits."
_CROSS = "its keys and values come from the encoder, whose residual stream is another one."
_ENCODER = "the heads of an encoder affect the logits only through the decoder."


@dataclass(frozen=True, eq=False)
class _Surroundings:
    """What surrounds the attention of a site: the norm that it reads, and the one that its output passes."""

    before: _NormPart | None
    after: _NormPart | None
    rotary: _RotaryCall | None
    no_input_reason: str
    no_logits_reason: str


class ModelMatrices:
    """The matrices of all heads of a loaded model; `trace.model_run.HeadMatrices` says what each attribute is."""

    def __init__(self, loaded: LoadedModel) -> None:
        if not loaded.sites:
            raise MissingError(
                f"The matrices of a head are read where its attention is recorded, and that of {loaded.name} cannot be: "
                "choose a model of another family."
            )
        self.loaded, self.uid = loaded, loaded.uid
        self.n_heads = loaded.heads_by_layer

    @cached_property
    def run(self) -> _ProbeRun:
        """One run with a short text, made when it is needed."""
        return _ProbeRun(self.loaded)

    def layer(self, index: int) -> LayerMatrices:
        """The matrices of one layer, computed when they are requested."""
        if index in self.loaded.without_attention:
            name = self.loaded.layer_names[index]
            reason = f"{name} of the model has no attention from token to token ({self.loaded.left_out[name]})."
            return LayerMatrices(name, 0, no_ov_reason=reason, no_qk_reason=reason)
        site = self.loaded.sites_by_layer[index]
        call_index = self.loaded.layer_indices.index(index)
        call, around = self.run.calls[call_index], self.run.surroundings(call_index)
        named = {name: in_float32(tensor) for name, tensor in site.parameters.items()}
        change = _find_change(call, named, around.rotary)
        if not isinstance(change, str):
            named["w_q"], named["w_k"] = change.fold(named["w_q"], named["w_k"])
        crossed = _CROSS if call.memory is not None else around.no_input_reason
        no_ov_reason = crossed or ("" if {"w_v", "w_o"} <= named.keys() else _NO_OV)
        no_qk_reason = crossed or (change if isinstance(change, str) else "")
        if around.before is not None:
            named |= {name: around.before.before(named[name]) for name in ("w_q", "w_k", "w_v") if name in named}
        if around.after is not None and "w_o" in named:
            named["w_o"] = around.after.after(named["w_o"])
        # Every norm that reads it subtracts its mean.
        if around.before is not None and around.before.centers and "w_o" in named:
            named["w_o"] = named["w_o"] - named["w_o"].mean(-1, keepdim=True)
        for name in {"w_k", "w_v"} & named.keys():  # one copy for each query head
            named[name] = named[name].repeat_interleave(site.n_heads // len(named[name]), dim=0)
        return LayerMatrices(
            site.name,
            site.n_heads,
            named.get("w_q"),
            named.get("w_k"),
            named.get("w_v"),
            named.get("w_o"),
            _unchanged if around.before is None else around.before.normalize,
            None if isinstance(change, str) else change.rotations,
            no_ov_reason,
            no_qk_reason,
            around.no_logits_reason,
        )

    def token_product(self, center_unembed: bool) -> Tensor:
        """Final norm · W_U · W_E, [d_model d_model]; see `HeadMatrices`."""
        product, mean, total = cache.memoize(self.loaded.uid, self._PLACE, None, self._token_product).parts
        product = product - torch.outer(mean, total) if center_unembed else product
        return self._final_norm.before(product)

    _PLACE = "W_U · W_E of a model"

    def _token_product(self) -> _TokenProduct:
        w_u, w_e = self._head.weight, self.loaded.model.get_input_embeddings().weight
        n_tokens = min(len(w_u), len(w_e))  # some families pad one of them
        width = w_e.shape[1]
        product, sum_u, sum_e = torch.zeros(width, width), torch.zeros(width), torch.zeros(width)
        for start in range(0, n_tokens, _CHUNK):
            chunks = [in_float32(table[start : min(start + _CHUNK, n_tokens)]) for table in (w_u, w_e)]
            product += chunks[0].T @ chunks[1]
            sum_u, sum_e = sum_u + chunks[0].sum(0), sum_e + chunks[1].sum(0)
        return _TokenProduct((product, sum_u / n_tokens, sum_e))

    def estimated_seconds(self) -> float:
        """The estimated seconds of `token_product`; 0 once it is cached."""
        if self.no_vocabulary_reason or cache.CACHE.get((self.loaded.uid, self._PLACE, None)) is not None:
            return 0.0
        return 2 * float(self._head.weight.shape[0]) * float(self._head.weight.shape[1]) ** 2 / _FLOPS

    def embedding(self, token: int, layer: int) -> Tensor:
        """The residual stream of a single token as a head of this layer reads it, [d_model].

        For a head of the first layer, the embedding. For later layers, the residual stream after the first layer of a text that is this
        token alone: a first layer mostly moves a token from W_E, which is often W_U as well, to where later heads read it.

        Raises:
            ConfigError: the model has no such token.
            ModelError: the model cannot be run.
        """
        n_tokens = len(self.loaded.model.get_input_embeddings().weight)
        if not 0 <= token < n_tokens:
            raise ConfigError(f"A token is an id from 0 to {n_tokens - 1:,}; got {token:,}: choose one of these.")
        if self.loaded.is_encoder_decoder:
            raise ModelError(
                f"A token alone is read by a model that continues a text; {self.loaded.name} has an encoder and a decoder: choose another model."
            )
        block = self.run.blocks[0]
        layers = self.run.parents.get(id(block))
        first: Any = block if layers is None else next(layers.children())  # a hybrid model may begin without attention
        rows: list[Tensor] = []

        def record(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
            before = args[0] if args else kwargs["hidden_states"]
            after = output[0] if isinstance(output, tuple) else output
            rows.append(in_float32((after if layer else before).reshape(-1, after.shape[-1])[-1]))

        with self.loaded.lock.hold(), first.register_forward_hook(record, with_kwargs=True):
            running.run(self.loaded, {"input_ids": torch.tensor([[token]])})
        return rows[0]

    def logits(self, vector: Tensor) -> Tensor:
        """What a vector adds to each logit, without the scale of the final norm: [token]."""
        vector = self._final_norm.after(vector)
        w_u = self._head.weight
        return torch.cat([in_float32(w_u[start : start + _CHUNK]) @ vector for start in range(0, len(w_u), _CHUNK)])

    def find_token(self, text: str) -> int:
        """The id of the one token that a text stands for.

        Raises:
            TextError: the text is no token, or several.
        """
        return lm_head.parse_token(self.loaded, text)[0]

    def token_names(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The tokens with these ids, in readable form."""
        return vocabulary_names(self.loaded.tokenizer, ids)

    @property
    def _head(self) -> Any:
        return self.loaded.model.get_output_embeddings()

    @property
    def _final_norm(self) -> _NormPart:
        assert self.run.final_norm is not None  # `no_vocabulary_reason` is empty
        return self.run.final_norm

    @cached_property
    def no_vocabulary_reason(self) -> str:
        """Why there is no linear map from a token through a head to the logits; empty if there is one."""
        if not lm_head.vocabulary_size(self.loaded):
            return _NO_LOGITS
        if lm_head.is_masked_lm(self.loaded):
            return _FILLS_MASKS
        weights = (self._head.weight, getattr(self.loaded.model.get_input_embeddings(), "weight", None))
        readable = all(isinstance(weight, Tensor) and weight.ndim == 2 for weight in weights)
        same_width = readable and len({weight.shape[1] for weight in weights if weight is not None}) == 1
        if (
            self.run.final_norm is None
            or not same_width
            or not all(w.is_floating_point() for w in weights if w is not None)
        ):
            return _UNKNOWN_END
        return ""


@dataclass(frozen=True, eq=False)
class _TokenProduct:
    """W_U^T W_E [d_model d_model], the mean row of W_U, and the sum of the rows of W_E."""

    parts: tuple[Tensor, Tensor, Tensor]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


@dataclass(eq=False)
class _ProbeRun:
    """One run of a model with a short text: the calls of attention, and inputs and outputs of norms, blocks and rotary embeddings."""

    loaded: LoadedModel
    calls: list[Call] = field(default_factory=list)
    norms: list[tuple[Any, Tensor, Tensor]] = field(default_factory=list)
    rows: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)
    rotaries: list[_RotaryCall] = field(default_factory=list)
    received: list[Any] = field(default_factory=list)
    final_norm: _NormPart | None = None

    def __post_init__(self) -> None:
        loaded = self.loaded
        head, head_input = loaded.model.get_output_embeddings(), list[Tensor]()
        model_inputs = running.probe_inputs(loaded)
        with loaded.lock.hold(), ExitStack() as stack, recorder.recording(self.calls.append):
            for module in loaded.model.modules():
                stack.callback(module.register_forward_hook(self._record, with_kwargs=True).remove)
            if head is not None:
                stack.callback(head.register_forward_pre_hook(lambda _, args: head_input.append(args[0])).remove)
            running.run(loaded, model_inputs)
        self.parents = parents(loaded.model)
        self.blocks = _blocks(loaded.model, self.calls)
        if head_input:
            last = in_float32(head_input[0])[0, -1]
            norms = (norm for norm, _, y in reversed(self.norms) if _is_equal(y[-1], last))
            norm = next(norms, None)
            self.final_norm = None if norm is None else _norm_part(norm, last.shape[-1])

    def _record(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        kind = type(module).__name__
        x = args[0] if args else kwargs.get("hidden_states")
        y = output[0] if isinstance(output, tuple) else output
        if isinstance(x, Tensor) and isinstance(y, Tensor) and x.is_floating_point() and x.ndim == y.ndim == 3:
            rows = in_float32(x[0]), in_float32(y[0])
            self.rows.setdefault(id(module), rows)
            if "norm" in kind.lower():
                self.norms.append((module, *rows))
        pair = isinstance(output, tuple) and len(output) == 2 and all(isinstance(item, Tensor) for item in output)
        if pair and "rotary" in kind.lower():
            self.rotaries.append(_RotaryCall(module, args, kwargs, output))
        if len(self.received) < len(self.calls) and module is self.calls[-1].module:
            self.received.append(kwargs.get("position_embeddings"))

    def surroundings(self, index: int) -> _Surroundings:
        call, block = self.calls[index], self.blocks[index]
        site = self.loaded.sites[index]
        cos = self.received[index][0] if isinstance(self.received[index], tuple) else None
        rotary = next((each for each in self.rotaries if cos is not None and torch.equal(each.output[0], cos)), None)
        residual = self.rows.get(id(block), (None, None))
        if call.input is None or residual[0] is None or residual[1] is None:
            return _Surroundings(None, None, rotary, _NO_INPUT_NORM, _NO_INPUT_NORM)
        outputs = self.rows.get(id(call.module))
        inner = {id(module) for module in block.modules()} if block is not None else set()
        after = next(
            (norm for norm, x, _ in self.norms if outputs and id(norm) in inner and _is_equal(x, outputs[1])), None
        )
        no_logits = _ENCODER if site.name.startswith("encoder") else ""
        if any(_is_equal(y, residual[1]) for norm, _, y in self.norms if id(norm) in inner):
            no_logits = _POST_NORM
        after_part = None if after is None else _norm_part(after, call.input.shape[-1])
        if after is not None and after_part is None:
            no_logits = _NO_INPUT_NORM
        if _is_equal(residual[0], call.input):
            return _Surroundings(None, after_part, rotary, "", no_logits)
        before = next((norm for norm, _, y in self.norms if id(norm) in inner and _is_equal(y, call.input)), None)
        part = None if before is None else _norm_part(before, call.input.shape[-1])
        return _Surroundings(part, after_part, rotary, "" if part is not None else _NO_INPUT_NORM, no_logits)


def _blocks(model: Any, calls: Sequence[Call]) -> list[Module]:
    """For each call, the layer of the model that contains its attention module: the innermost item of a list of modules."""
    parent_of = parents(model)
    blocks: list[Module] = []
    for call in calls:
        module = call.module
        while not isinstance(parent_of.get(id(module)), ModuleList | None):
            module = parent_of[id(module)]
        blocks.append(module)
    return blocks


def _is_equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-6)


def _unchanged(rows: Tensor) -> Tensor:
    return rows


_PROBE_VALUE = 64.0  # the eps of a norm is nothing beside its square
_NORM_TOLERANCE = 1e-2


@dataclass(frozen=True, eq=False)
class _NormPart:
    """The linear part of a norm, x ↦ centred(x) · weight, in float32."""

    weight: Tensor  # [d_model], with an added 1 where the family has it
    centers: bool  # whether the mean of the row is subtracted first, as a LayerNorm does

    def normalize(self, rows: Tensor) -> Tensor:
        """The norm without its weights and biases: rows [… d_model] of mean square 1."""
        rows = rows - rows.mean(-1, keepdim=True) if self.centers else rows
        return rows / rows.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-12)

    def before(self, matrices: Tensor) -> Tensor:
        """The norm's linear part followed by matrices [… d_model d_out]."""
        folded = self.weight[:, None] * matrices
        return folded - folded.mean(-2, keepdim=True) if self.centers else folded

    def after(self, matrices: Tensor) -> Tensor:
        """Matrices [… d_in d_model] followed by the norm's linear part."""
        return (matrices - matrices.mean(-1, keepdim=True) if self.centers else matrices) * self.weight


def _norm_part(norm: Any, width: int) -> _NormPart | None:
    """The linear part of a norm module, read off its output for a few rows; None if it is no LayerNorm or RMS norm.

    No attribute of the module is read: some families add 1 to the weight, others name it differently.
    """
    parameter = next(norm.parameters(), None)
    place: dict[str, Any] = {} if parameter is None else {"dtype": parameter.dtype, "device": parameter.device}
    row = torch.ones(width)  # of mean 0, and nowhere 0
    row[1::2] = -1
    if width % 2:
        row[:3] = torch.tensor([2.0, -1.0, -1.0])[:width]
    random = torch.randn(2, width, generator=torch.Generator().manual_seed(0)) + 0.5
    rows = torch.cat([_PROBE_VALUE * torch.stack([row, -row]), _PROBE_VALUE * random])
    try:
        with torch.no_grad():
            up, down, *outputs = in_float32(norm(rows.to(**place)[None])[0])
    except (TypeError, ValueError, RuntimeError):  # a norm with further inputs
        return None
    weight = (up - down) / 2 / row * row.square().mean().sqrt()
    bias, recorded = (up + down) / 2, torch.stack(outputs)
    for centers in (False, True):
        part = _NormPart(weight, centers)
        difference = part.normalize(random) * weight + bias - recorded
        if float(difference.abs().max()) <= _NORM_TOLERANCE * float(recorded.abs().max()):
            return part
    return None


_Rotations = Callable[[Sequence[int]], Tensor]
"""Positions to rotation matrices [pos d_k d_k], by which rows are multiplied from the right."""

_NO_ROTATION_REASON = (
    "This family changes its queries or keys between W_Q, W_K and their product in a way that is not known here."
)
_HEAD_NORMS = {"q": ("q_norm", "q_layernorm", "query_layernorm"), "k": ("k_norm", "k_layernorm", "key_layernorm")}
_ROTATION_TOLERANCE = 1e-3  # relative to the largest number


@dataclass(frozen=True, eq=False)
class _RotaryCall:
    """One call of a model's rotary embedding module, which turns position ids into cosines and sines."""

    module: Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: tuple[Tensor, Tensor]  # cosines and sines, [1 pos rotary_dim] each

    def at(self, positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Cosines and sines at other positions, from the same module."""
        ids = torch.tensor([list(positions)])

        def moved(argument: Any) -> Any:
            is_ids = isinstance(argument, Tensor) and not argument.is_floating_point()
            return ids.to(argument.device) if is_ids else argument

        with torch.no_grad():
            cos, sin = self.module(*map(moved, self.args), **{name: moved(item) for name, item in self.kwargs.items()})
        return cos, sin


@dataclass(frozen=True, eq=False)
class _QueryKeyChange:
    """What happens to queries and keys between their projections and their product."""

    norms: tuple[_NormPart | None, ...]  # of each head's query, and of its key
    rotations: _Rotations | None  # None without rotary embedding

    def fold(self, w_q: Tensor, w_k: Tensor) -> tuple[Tensor, Tensor]:
        first, second = (w if norm is None else norm.after(w) for w, norm in zip((w_q, w_k), self.norms, strict=True))
        return first, second


def _find_change(call: Call, named: dict[str, Tensor], rotary: _RotaryCall | None) -> _QueryKeyChange | str:
    """What happens between the projections of a call, with the `named` parameters, and its product; a sentence if it is unknown."""
    if call.input is None or "w_q" not in named or "w_k" not in named:
        return "W_Q and W_K of this family are not known."
    x2, width = call.memory if call.memory is not None else call.input, call.query.shape[-1]
    named = {name: in_float32(tensor) for name, tensor in named.items()}
    rows = [project(x, named[f"w_{side}"], named.get(f"b_{side}")) for side, x in (("q", call.input), ("k", x2))]
    recorded = (call.query, call.key)
    head_norms = tuple(_head_norm(call.module, side, width) for side in "qk")
    for norms in dict.fromkeys((head_norms, (None, None))):
        normed = [
            each if norm is None else norm.normalize(each) * norm.weight for each, norm in zip(rows, norms, strict=True)
        ]
        for rotations in (None, *_candidates(call.module, rotary, width)):
            try:
                turned = normed
                if rotations is not None:
                    turned = [torch.einsum("hpd,pde->hpe", each, rotations(range(each.shape[1]))) for each in normed]
            except (RuntimeError, TypeError, ValueError, IndexError):  # only a part of the width is rotated
                continue
            if all(map(_is_multiple, turned, recorded)):
                return _QueryKeyChange(norms, rotations)
    return _NO_ROTATION_REASON


def _head_norm(module: Module, side: str, width: int) -> _NormPart | None:
    norms = (getattr(module, name, None) for name in _HEAD_NORMS[side])
    norm = next((norm for norm in norms if norm is not None), None)
    return None if norm is None else _norm_part(norm, width)


def _candidates(module: Module, rotary: _RotaryCall | None, width: int) -> list[_Rotations]:
    """The rotations that the family's own function may apply: of the whole width, or of its first numbers."""
    apply = getattr(sys.modules[type(module).__module__], "apply_rotary_pos_emb", None)
    if rotary is None or apply is None:
        return []
    widths = dict.fromkeys((width, rotary.output[0].shape[-1]))
    return [partial(_rotations_at, apply, rotary, width, rotated_width) for rotated_width in widths]


def _rotations_at(
    apply: Callable[..., Any], rotary: _RotaryCall, width: int, rotated_width: int, positions: Sequence[int]
) -> Tensor:
    """What the family's function does to each row of the identity, at every position: [pos d_k d_k]."""
    cos, sin = rotary.at(positions)
    n_positions = cos.shape[-2]
    basis = torch.eye(rotated_width, device=cos.device, dtype=cos.dtype)
    rows = basis[None, :, None].expand(1, rotated_width, n_positions, rotated_width)
    rotated = in_float32(apply(rows, rows, cos, sin)[0][0]).transpose(0, 1)
    result = torch.eye(width).repeat(n_positions, 1, 1)
    result[:, :rotated_width, :rotated_width] = rotated
    return result


def _is_multiple(rows: Tensor, recorded: Tensor) -> bool:
    """Whether two tensors are equal up to a positive factor, such as a scaling of the queries."""
    if rows.shape != recorded.shape:
        return False
    factor = float((rows * recorded).sum() / rows.square().sum().clamp_min(1e-12))
    return factor > 0 and bool(
        (factor * rows - recorded).abs().max() <= _ROTATION_TOLERANCE * recorded.abs().max().clamp_min(1e-6)
    )
