"""Records the attention of a pass: of a module, of a function, or of whatever runs in a context."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor, nn

from attention.base.errors import AttentionError, ConfigError, ModelError
from attention.formula.names import KEY, QUERY, VALUE
from attention.recording.axes import UnclearError
from attention.recording.follower import Follower, Modules, line_of_code
from attention.recording.layers import Call, Labels, checked, trace_of
from attention.recording.multihead import TorchAttention, read_function
from attention.recording.reading import Found, read, with_output
from attention.recording.trails import (
    HERE,
    Event,
    Heads,
    Kind,
    Multiplication,
    Normalized,
    Product,
    Ref,
    Trail,
    multiplication,
)

if TYPE_CHECKING:
    from attention.trace.trace import Trace

_MAX_CELLS = 2**29  # of all maps of one product
_MAX_BYTES = 2**32  # of all calls
_DROPOUT = "dropout inside of scaled_dot_product_attention is not shown; the head outputs are as recorded"


class _Recorder(Follower):
    def __init__(self, modules: Modules, batch: int, batch_sizes: Sequence[int]) -> None:
        super().__init__(modules)
        self.calls: list[Call] = []
        self.notes: list[str] = []  # what was not understood
        self._n_bytes = 0
        self._batch, self._batch_sizes = batch, batch_sizes
        self._torch = TorchAttention(self, batch)
        modules.on_enter, modules.on_leave = self._torch.enter, self._leave

    def __exit__(self, *exception: Any) -> None:
        self._torch.stop()
        super().__exit__(*exception)  # type: ignore[no-untyped-call]  # torch has no annotation

    def attend(self, trail: Trail, product: Multiplication, side: int, result: Tensor) -> Trail | None:
        origin = trail.origin
        assert isinstance(origin, Normalized)
        # As with relative positions, which have values of their own: a head has one Z here.
        if origin.is_used:
            self._say(origin, "its weights multiply a second tensor, which is not shown")
            return None
        origin.is_used = True
        value = self.trail_of(product.right if side == 0 else product.left)
        return self._found(Found(origin, trail.events, product, side, value, result))

    def attend_fused(
        self, inputs: Mapping[str, Any], trails: Mapping[str, Trail | None], result: Tensor
    ) -> Trail | None:
        query, key, value = (inputs[name] for name in (QUERY, KEY, VALUE))
        where, name = line_of_code(), self.modules.path
        key_trail, value_trail = trails[KEY], trails[VALUE]
        if inputs.get("enable_gqa") and query.shape[-3] != key.shape[-3]:
            groups = Event(Kind.VIEW, torch.Tensor.repeat_interleave, (HERE, query.shape[-3] // key.shape[-3], -3))
            key, value = groups.apply(key), groups.apply(value)
            key_trail, value_trail = (each and each.then(groups) for each in (key_trail, value_trail))
        # From here on as if the user had written the product, the scale and the mask: one reader reads both.
        turned = Event(Kind.VIEW, torch.transpose, (HERE, -2, -1))
        scores = multiplication("matmul", (query, key.mT), {})
        if scores is None:
            return None
        sizes = scores.spec.sizes(query, key.mT)
        shape = tuple(sizes[letter] for letter in scores.spec.out)
        product = Product(
            self.ref(query),
            self.ref(key.mT),
            scores.spec,
            trails[QUERY],
            key_trail and key_trail.then(turned),
            where=where,
        )
        scale = inputs.get("scale")
        scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
        events = [Event(Kind.SCALE, torch.mul, (HERE, scale), where=where, factor=scale)]
        mask = inputs.get("attn_mask")
        if inputs.get("is_causal"):
            mask = torch.ones(shape[-2:], dtype=torch.bool, device=query.device).tril()
        if mask is not None and mask.dtype == torch.bool:
            hidden = Ref(~mask)
            events.append(
                Event(Kind.MASK, torch.masked_fill, (HERE, hidden, -math.inf), where=where, operand=(hidden, -math.inf))
            )
        elif mask is not None:
            added = self.ref(mask)
            events.append(Event(Kind.ADD, torch.add, (HERE, added), where=where, operand=added))
        # Only the shape of what is never given; an expanded scalar takes no memory.
        weights = torch.empty((), dtype=query.dtype, device=query.device).expand(shape)
        mixing = multiplication("matmul", (weights, value), {})
        if mixing is None:
            return None
        before = Trail(product, tuple(events))
        normalized = Normalized(before, None, Ref(weights), len(shape) - 1, "softmax", where, name)
        notes = [_DROPOUT] if inputs.get("dropout_p") else []
        return self._found(Found(normalized, (), mixing, 0, value_trail, result, has_weights=False), notes)

    def project(self, heads: Trail, product: Multiplication, result: Tensor) -> None:
        origin = heads.origin
        assert isinstance(origin, Heads)
        index: int = origin.index
        self.calls[index] = with_output(self.calls[index], origin, heads, product, result)

    def run_opaque(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any] | None:
        if name != "multi_head_attention_forward":
            return None
        result = func(*args, **kwargs)
        call = self._safely(read_function, tuple(args), kwargs, result, self._batch)
        if call is not None:
            self._add(call)
        return (result,)

    def fail(self, error: Exception) -> None:
        where = f"{self.modules.path or 'The code'} ({line_of_code()})"
        self.notes.append(f"{where}: a call could not be followed ({type(error).__name__}: {error!s:.80}).")

    def _leave(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        call = self._safely(self._torch.leave, module, args, *rest)
        if call is not None:
            self._add(call, "self_attn" if isinstance(module, nn.TransformerEncoderLayer) else "")

    def _add(self, call: Call, path: str = "") -> None:
        name = ".".join(part for part in (self.modules.path, path) if part)
        self.calls.append(checked(replace(call, name=name, where=line_of_code())))

    def _found(self, found: Found, notes: Sequence[str] = ()) -> Trail | None:
        shape, sizes = found.normalized.weights.tensor.shape, list[int]()
        for _, tensor in reversed(self.modules.running):
            if tensor is not None and tensor.ndim > 2:
                # nn.MultiheadAttention has positions before the batch, unless it is told otherwise.
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


class _Recording:
    """A context in which the attention of everything that runs in this thread is recorded.

        with attention.record(tokens=words) as recording:
            output = net(x)
        recording.trace()

    A recording is of one pass.
    """

    def __init__(self, labels: Labels, batch: int, root: nn.Module | None, batch_sizes: Sequence[int]) -> None:
        self._labels, self._batch = labels, batch
        self._root, self._batch_sizes = root, batch_sizes
        self._recorder: _Recorder | None = None
        self._stack = ExitStack()

    def __enter__(self) -> _Recording:
        if self._recorder is not None:
            raise ConfigError("A recording is of one pass; this one has begun already: call attention.record() again.")
        modules = Modules(self._root)
        self._recorder = _Recorder(modules, self._batch, self._batch_sizes)
        self._stack.enter_context(modules.following())
        # Compiled code makes no calls that a mode could see.
        self._stack.enter_context(torch.compiler.set_stance("force_eager"))
        self._stack.enter_context(self._recorder)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def output(self) -> Any:
        """What the last module returned that ran in no other; None without one."""
        return None if self._recorder is None else self._recorder.modules.output

    def trace(self) -> Trace:
        """The trace of what was recorded: one layer for each attention, in the order of the calls.

        Raises:
            ModelError: nothing was recorded.
            MissingError: no batch has the element.
            ConfigError: tokens are no words, or places are none.
        """
        recorder = self._recorder
        if recorder is None:
            raise ModelError(
                "A recording has what ran in it; nothing has: run your code inside of “with attention.record() as recording:”."
            )
        if not recorder.calls:
            raise ModelError(_nothing(recorder))
        # The user's default device may be another one.
        with torch.device("cpu"):
            return trace_of(recorder.calls, recorder.notes, self._labels, self._batch)


@overload
def record(
    net: None = None,
    *,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    places: Any = None,
    picture: Any = None,
    batch: int = 0,
) -> _Recording: ...
@overload
def record(
    net: Callable[..., Any],
    *args: Any,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    places: Any = None,
    picture: Any = None,
    batch: int = 0,
    **kwargs: Any,
) -> Trace: ...
def record(
    net: Callable[..., Any] | None = None,
    *args: Any,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    places: Any = None,
    picture: Any = None,
    batch: int = 0,
    **kwargs: Any,
) -> Trace | _Recording:
    """The trace of one run of a module or a function; without one, a context that records what runs in it.

        trace = attention.record(net, x, tokens=words)
        with attention.record(tokens=words) as recording:
            net(x)
        recording.trace()

    Found are `scaled_dot_product_attention`, `nn.MultiheadAttention`, and attention written by hand: a product, what scales, caps, adds and masks it, a softmax, and a
    product with values. What the pass gives, its gradients and its random numbers are as without.

    Args:
        net: a module, a function or a method.
        args: its arguments, and `kwargs` its named ones. Where one of them is called as one of the following, the form with `with` is the way.
        tokens: the words at the positions that attend; None: x0, x1 and so on.
        key_tokens: the words that are attended to, if they are others, as in cross-attention.
        places: where tokens are: the rows and columns of the patches of a picture, such as (14, 14), which may have [CLS] and the like before them; or
            one place for each token: (row, column), seconds or any other value, which becomes `token.place`, a token with a place, or None.
        picture: what is beneath the patches: the path of a file, an image of Pillow, or an array [row column 3].
        batch: the element of the batch.

    Raises:
        ModelError: no attention ran; the sentence says what did.
        MissingError: the batch has no such element.
        ConfigError: nothing that runs was given, tokens are no words, or places are none.
    """
    if isinstance(net, type) or not (net is None or callable(net)):
        way = (
            f"make one, such as {net.__name__}(…)" if isinstance(net, type) else "give one, and what it is called with"
        )
        raise ConfigError(f"record runs a module or a function; got {net!r:.60}: {way}.")
    net = getattr(net, "_orig_mod", net)  # of torch.compile, which has no calls to follow
    sizes = [each.shape[0] for each in args if isinstance(each, Tensor) and each.ndim > 2]
    root = net if isinstance(net, nn.Module) else None
    recording = _Recording(Labels(tokens, key_tokens, places, picture), batch, root, sizes)
    if net is None:
        return recording
    with recording:
        net(*args, **kwargs)
    return recording.trace()


def _nothing(recorder: _Recorder) -> str:
    """Why there is no trace: what ran instead."""
    n_softmaxes = f"{recorder.softmaxes} softmax{'es' if recorder.softmaxes > 1 else ''} ran"
    seen = f"{n_softmaxes}, none of which was seen to multiply values" if recorder.softmaxes else "no softmax ran"
    seen = recorder.notes[0].removesuffix(".") if recorder.notes else seen
    if recorder.is_transformed:
        seen = "the code ran in a transform of torch.func, such as vmap, where tensors have no numbers yet (call the function itself)"
    return (
        f"Attention is a product of queries and keys, a softmax, and a product with values; {seen}: "
        "put “with attention.record() as recording:” around the code that attends, or give what it computes to Trace.of(weights=…). "
        "What runs outside of torch is not seen, such as flash_attn and numpy (torch.from_numpy makes tensors of arrays)."
    )
