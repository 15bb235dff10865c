"""The follower that makes a `Call` of each attention of a pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from attention.base.errors import AttentionError
from attention.formula.names import KEY, QUERY, VALUE
from attention.recording.axes import UnclearError
from attention.recording.calls import Call
from attention.recording.follower import Follower
from attention.recording.layers import checked
from attention.recording.multihead import TorchAttention, attention_module, read_function
from attention.recording.places import Modules, line_of_code
from attention.recording.products import Multiplication, multiplication
from attention.recording.reading import Found, read, with_output
from attention.recording.trails import ADD, HERE, MASK, SCALE, VIEW, Event, Heads, Normalized, Product, Ref, Trail

_MAX_CELLS = 2**29  # of all maps of one product
_MAX_BYTES = 2**32  # of all calls
_DROPOUT = "dropout inside of scaled_dot_product_attention is not shown; the head outputs are as recorded"


class Recorder(Follower):
    """Notes the attention of everything that runs.

    Attributes:
        calls: what was found, in the order of the calls.
        notes: sentences about what was not understood.
    """

    def __init__(self, modules: Modules, batch: int, batch_sizes: Sequence[int] = ()) -> None:
        super().__init__(modules)
        self.calls: list[Call] = []
        self.notes: list[str] = []
        self._n_bytes = 0
        self._batch, self._batch_sizes = batch, batch_sizes
        self._torch = TorchAttention(self, batch)
        modules.on_enter, modules.on_leave = self._torch.enter, self._leave

    def __exit__(self, *exception: Any) -> None:
        self._torch.stop()
        super().__exit__(*exception)  # type: ignore[no-untyped-call]  # torch has no annotation

    def attend(self, trail: Trail, product: Multiplication, side: int, result: Tensor) -> Trail | None:
        """Notes the call whose weights multiply values."""
        origin = trail.origin
        assert isinstance(origin, Normalized)
        if origin.is_used:
            self._say(origin, "its weights multiply a second tensor, which is not shown")
            return None
        origin.is_used = True
        value = self.trail_of(product.right if side == 0 else product.left)
        return self._found(Found(origin, trail.events, product, side, value, result))

    def attend_fused(
        self, inputs: Mapping[str, Any], trails: Mapping[str, Trail | None], result: Tensor
    ) -> Trail | None:
        """Notes a call of scaled_dot_product_attention."""
        query, key, value = (inputs[name] for name in (QUERY, KEY, VALUE))
        where, name = line_of_code(), self.modules.path
        key_trail, value_trail = trails[KEY], trails[VALUE]
        if inputs.get("enable_gqa") and query.shape[-3] != key.shape[-3]:
            groups = Event(VIEW, torch.Tensor.repeat_interleave, (HERE, query.shape[-3] // key.shape[-3], -3))
            key, value = groups.apply(key), groups.apply(value)
            key_trail, value_trail = (each and each.then(groups) for each in (key_trail, value_trail))
        turned = Event(VIEW, torch.transpose, (HERE, -2, -1))
        scores = multiplication("matmul", (query, key.mT), {})
        if scores is None:
            return None
        sizes = scores.spec.sizes(query, key.mT)
        shape = tuple(sizes[letter] for letter in scores.spec.out)
        product = Product(
            self.ref(query),
            self.ref(key.mT),
            scores.spec,
            shape,
            trails[QUERY],
            key_trail and key_trail.then(turned),
            where=where,
        )
        scale = inputs.get("scale")
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
        events = [Event(SCALE, torch.mul, (HERE, scale), where=where, factor=scale)]
        mask = inputs.get("attn_mask")
        if inputs.get("is_causal"):
            mask = torch.ones(shape[-2:], dtype=torch.bool, device=query.device).tril()
        if mask is not None and mask.dtype == torch.bool:
            hidden = Ref(~mask)
            events.append(
                Event(MASK, torch.masked_fill, (HERE, hidden, -math.inf), where=where, operand=(hidden, -math.inf))
            )
        elif mask is not None:
            added = self.ref(mask)
            events.append(Event(ADD, torch.add, (HERE, added), where=where, operand=added))
        weights = torch.empty((), dtype=query.dtype, device=query.device).expand(shape)
        mixing = multiplication("matmul", (weights, value), {})
        if mixing is None:
            return None
        before = Trail(product, tuple(events))
        normalized = Normalized(before, None, Ref(weights), len(shape) - 1, "softmax", where, name)
        notes = [_DROPOUT] if inputs.get("dropout_p") else []
        return self._found(Found(normalized, (), mixing, 0, value_trail, result, has_weights=False), notes)

    def project(self, heads: Trail, product: Multiplication, result: Tensor) -> None:
        """Notes W_O and the output of a call."""
        origin = heads.origin
        assert isinstance(origin, Heads)
        index: int = origin.index
        self.calls[index] = with_output(self.calls[index], origin, heads, product, result)

    def run_opaque(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any] | None:
        """Runs F.multi_head_attention_forward, which attends inside of itself."""
        if name != "multi_head_attention_forward":
            return None
        result = func(*args, **kwargs)
        call = self._safely(read_function, tuple(args), kwargs, result, self._batch)
        if call is not None:
            self._add(call)
        return (result,)

    def fail(self, error: Exception) -> None:
        """Notes that a call could not be followed."""
        where = f"{self.modules.path or 'The code'} ({line_of_code()})"
        self.notes.append(f"{where}: a call could not be followed ({type(error).__name__}: {error!s:.80}).")

    def _leave(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        """Notes what torch's own modules computed."""
        call = self._safely(self._torch.leave, module, args, *rest)
        if call is not None:
            self._add(call, attention_module(module))

    def _add(self, call: Call, path: str = "") -> None:
        name = ".".join(part for part in (self.modules.path, path) if part)
        self.calls.append(checked(replace(call, name=name, where=line_of_code())))

    def _found(self, found: Found, notes: Sequence[str] = ()) -> Trail | None:
        shape, sizes = found.normalized.weights.tensor.shape, list[int]()
        for _, tensor in reversed(self.modules.running):
            if tensor is not None and tensor.ndim > 2:
                is_positions_first = tensor.ndim == 3 and tensor.shape[0] in shape and tensor.shape[1] not in shape
                sizes.append(tensor.shape[1 if is_positions_first else 0])
        sizes += self._batch_sizes
        if shape.numel() > _MAX_CELLS:
            self._say(
                found.normalized,
                f"it has {shape.numel():,} weights, and at most {_MAX_CELLS:,} are read: record fewer sequences at once",
            )
            return None
        if self._n_bytes > _MAX_BYTES:
            self._say(
                found.normalized,
                f"the attentions before it take {_MAX_BYTES >> 30} GB, and more is not recorded: record a part of the network",
            )
            return None
        try:
            call, places = read(found, self.modules.path or found.normalized.name, self._batch, sizes, notes)
        except UnclearError as error:
            self._say(found.normalized, str(error))
            return None
        except (RuntimeError, IndexError, AttentionError):  # such as windows that overlap
            self._say(found.normalized, "its tensors do not fit together as queries, keys and values")
            return None
        self.calls.append(call)
        self._n_bytes += sum(tensor.nbytes for tensor in call.steps.values())
        return Trail(Heads(len(self.calls) - 1, places, tuple(found.result.shape)))

    def _say(self, origin: Normalized, what: str) -> None:
        self.notes.append(f"{origin.name or 'The code'} ({origin.where}): {what}.")
