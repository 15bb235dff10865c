"""What happens in a model's attention: each call recorded, made as transformers' own eager attention makes it, bit for bit."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import torch
from torch import Tensor

from attention.formula.intervening import Attended
from attention.formula.mask import Mask
from attention.formula.scores import ROWS

if TYPE_CHECKING:
    from torch.nn import Module

    from attention.models.loaded import Site

Eager = Callable[..., tuple[Tensor, Tensor | None]]
Taker = Callable[["Call"], Tensor | None]
"""Takes a call, and may give another head output [head query_pos d_v] for the model to go on with."""
Changer = Callable[[Tensor, Callable[[int], "Call"]], Tensor]
"""Takes the head output of a batch, and what gives the call of one of its texts; gives what goes on instead."""

IMPLEMENTATION = "lab"
"""What models are loaded with: the name under which transformers knows `_attend`."""

_MEMORY = ("key_value_states", "encoder_hidden_states", "cross_attention_states")  # what a module calls the other text
_HIDDEN = -1e30  # an additive mask has less than this where a key is hidden
_WHOLE_BYTES = 2**22  # of the weights of all heads in one call; larger ones are made for `ROWS` queries at a time
_NUMBER = 4  # bytes
_BY_ROWS: WeakSet[Module] = WeakSet()  # the modules whose attention of some queries is that of all, cut


@dataclass(frozen=True, eq=False)
class Call(Attended):
    """One call of attention, without the batch axis.

    Attributes:
        module: the part of the model that called.
        mask: the rule of what is visible, or the cells, [query_pos key_pos]; None where nothing is hidden.
        bias: what is added to the scores, [head query_pos key_pos].
        scaling: what the scores are multiplied by.
        cap: what no score goes beyond.
        sinks: one more score in every row, [head].
        input: what the module was given, [query_pos d_model]; `memory` the other text, [key_pos d_model].
        rows: the model's own attention of some of the queries: weights [head query_pos key_pos], head output.
    """

    module: Module
    mask: Mask | Tensor | None
    bias: Tensor | None
    scaling: float
    cap: float | None
    sinks: Tensor | None
    input: Tensor | None
    memory: Tensor | None
    rows: Callable[[slice], tuple[Tensor | None, Tensor]]


@dataclass
class Recorder:
    """Takes the calls of one forward pass; every thread has its own. With `weights` each call has its weights, however large."""

    take: Taker
    weights: bool = True
    inputs: dict[int, tuple[Tensor | None, Tensor | None]] = field(default_factory=dict)
    masks: dict[int, tuple[Tensor, Mask | Tensor | None, Tensor | None]] = field(default_factory=dict)


_RECORDER: ContextVar[Recorder | None] = ContextVar("recorder", default=None)
_CHANGE: ContextVar[tuple[Changer, Recorder] | None] = ContextVar("change", default=None)


def register() -> None:
    """Makes transformers know `IMPLEMENTATION`; more than once does no harm."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    AttentionInterface.register(IMPLEMENTATION, _attend)
    AttentionMaskInterface.register(IMPLEMENTATION, ALL_MASK_ATTENTION_FUNCTIONS["eager"])


@contextmanager
def recording(take: Taker, weights: bool = True) -> Iterator[None]:
    """While it lasts, every call of attention in this thread goes to `take`; without `weights`, large ones are not kept."""
    token = _RECORDER.set(Recorder(take, weights))
    try:
        yield
    finally:
        _RECORDER.reset(token)


@contextmanager
def replacing(change: Changer) -> Iterator[None]:
    """While it lasts, the head output of every call in this thread, [batch query_pos head d_v], goes on as `change` gives it."""
    token = _CHANGE.set((change, Recorder(lambda _: None)))
    try:
        yield
    finally:
        _CHANGE.reset(token)


def rows_at_once(site: Site, longest: int, whole: bool) -> int:
    """Of how many queries a place of the model makes its weights at a time; `whole` where they are kept."""
    return min(ROWS, longest) if site.by_rows and not whole and _large(site.n_heads, longest, longest) else longest


def allow_rows(module: Module) -> None:
    """From now on large calls of this module are made for some queries at a time."""
    _BY_ROWS.add(module)


def watch(module: Module) -> None:
    """From now on what the module is given is recorded with its calls."""
    module.register_forward_pre_hook(_enter, with_kwargs=True)


def _enter(module: Module, args: tuple[Any, ...], more: dict[str, Any]) -> None:
    recorder = _RECORDER.get()
    if recorder is None:
        return
    given = inspect.signature(module.forward).bind_partial(*args, **more).arguments
    given |= given.pop("kwargs", {})
    memory = next((given[name] for name in _MEMORY if given.get(name) is not None), None)
    x = given.get("hidden_states", args[0] if args else None)
    recorder.inputs[id(module)] = (_rows(x), _rows(memory))


def _attend(module: Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **more: Any) -> Any:
    """What the model calls instead of its eager attention: that, and a record of it."""
    recorder, changing = _RECORDER.get(), _CHANGE.get()
    keep = recorder is not None and recorder.weights
    found = _made(module, (query, key, value), args, more, keep)
    if changing is not None:
        output, weights = found

        def of(row: int) -> Call:
            one = slice(row, row + 1)
            there = query[one], key[one], value[one]
            made = output[one], _made(module, there, args, more)[1] if weights is None else weights[one]
            return _call(changing[1], module, there, args, more, made)

        found = changing[0](output, of), weights
    other = None if recorder is None else recorder.take(_call(recorder, module, (query, key, value), args, more, found))
    return found if other is None else (other.transpose(0, 1).contiguous()[None], found[1])


def _made(
    module: Module,
    entered: tuple[Tensor, Tensor, Tensor],
    args: tuple[Any, ...],
    more: Mapping[str, Any],
    keep: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Eager attention: head output [batch query_pos head d_v] and weights [batch head query_pos key_pos].

    Of a large call some queries at a time; unless `keep`, its weights are then None.
    """
    n_heads, n_queries, n_keys = (*entered[0].shape[1:3], entered[1].shape[-2])
    if module not in _BY_ROWS or not _large(n_heads, n_queries, n_keys):
        return _eager(module)(module, *entered, *args, **more)
    outputs, maps = [], []
    for at in range(0, n_queries, ROWS):
        output, weights = _rows_of(module, entered, args, more, slice(at, at + ROWS))
        outputs.append(output)
        if keep and weights is not None:
            maps.append(weights)
    return torch.cat(outputs, dim=1), torch.cat(maps, dim=2) if maps else None


def _large(n_heads: int, n_queries: int, n_keys: int) -> bool:
    return n_heads * n_queries * n_keys * _NUMBER > _WHOLE_BYTES


def _rows_of(
    module: Module, entered: tuple[Tensor, Tensor, Tensor], args: tuple[Any, ...], more: Mapping[str, Any], some: slice
) -> tuple[Tensor, Tensor | None]:
    """Eager attention of some queries: these, and the rows of all masks and biases that belong to them."""
    query, key, value = entered
    shape = query.shape[-2], key.shape[-2]

    def of(one: Any) -> Any:
        is_map = isinstance(one, Tensor) and one.ndim == 4 and one.shape[-2] == shape[0] and one.shape[-1] >= shape[1]
        return one[..., some, :] if is_map else one

    args, more = tuple(of(one) for one in args), {name: of(one) for name, one in more.items()}
    return _eager(module)(module, query[:, :, some], key, value, *args, **more)


def _call(
    recorder: Recorder,
    module: Module,
    made: tuple[Tensor, Tensor, Tensor],
    args: tuple[Any, ...],
    more: Mapping[str, Any],
    found: tuple[Tensor, Tensor | None],
) -> Call:
    query, key, value = (one[0].detach() for one in made)
    output, weights = found
    hiding = args[0] if args else more.get("attention_mask")
    mask, added = _hiding(recorder, hiding, query.shape[-2], key.shape[-2])
    biases = [one[0] if one.ndim == 4 else one for one in (more.get("position_bias"), added) if one is not None]
    biases = [one for one in biases if bool(one.any())]
    bias = sum(biases[1:], biases[0]).expand(len(query), -1, -1) if biases else None
    scaling = more.get("scaling", args[1] if len(args) > 1 else None)
    sinks = more.get("s_aux", getattr(module, "sinks", None))
    x, memory = recorder.inputs.get(id(module), (None, None))

    def again(*those: Tensor) -> tuple[Tensor | None, Tensor]:
        query, key, value = (one[None] for one in those)
        output, weights = _made(module, (query, key, value), args, more)
        return None if weights is None else weights[0], output[0].transpose(0, 1)

    def rows(some: slice) -> tuple[Tensor | None, Tensor]:
        output, weights = _rows_of(module, (query[None], key[None], value[None]), args, more, some)
        return None if weights is None else weights[0], output[0].transpose(0, 1)

    return Call(
        query=query,
        key=key,
        value=value,
        weights=None if weights is None else weights[0].detach(),
        head_output=output[0].detach().transpose(0, 1),
        again=again,
        module=module,
        mask=mask,
        bias=bias,
        scaling=1 / math.sqrt(query.shape[-1]) if scaling is None else float(scaling),
        cap=more.get("softcap"),
        sinks=None if sinks is None else sinks.detach().flatten(),
        input=x,
        memory=memory,
        rows=rows,
    )


def _eager(module: Module) -> Eager:
    """The eager attention of the family that the module belongs to."""
    for one in type(module).__mro__:
        found = getattr(sys.modules.get(one.__module__), "eager_attention_forward", None)
        if found is not None:
            return cast(Eager, found)
    from transformers.models.llama.modeling_llama import eager_attention_forward

    return cast(Eager, eager_attention_forward)


def _hiding(
    recorder: Recorder, hiding: Tensor | None, n_queries: int, n_keys: int
) -> tuple[Mask | Tensor | None, Tensor | None]:
    """An additive mask as what it hides, and what it adds elsewhere; most layers are given the same one."""
    if hiding is None:
        return None, None
    if id(hiding) not in recorder.masks:
        whole = hiding[0, :, :n_queries, :n_keys]
        if whole.dtype == torch.bool:  # True = may attend
            visible, added = whole, None
        else:
            visible = whole > _HIDDEN
            added = torch.where(visible, whole, 0)
            added = added.expand(-1, n_queries, n_keys) if bool(added.any()) else None
        if bool((visible != visible[:1]).any()):  # another in each head: as a bias of −∞
            added = torch.where(visible, 0 if added is None else added, -math.inf)
            recorder.masks[id(hiding)] = hiding, None, added
        else:
            recorder.masks[id(hiding)] = hiding, rule(visible[0].expand(n_queries, n_keys)), added
    _, mask, added = recorder.masks[id(hiding)]
    return mask, added


def rule(visible: Tensor) -> Mask | Tensor:
    """The rule that hides these cells, or the cells [query_pos key_pos] where none does."""
    farthest = 0
    seeing = visible.any(dim=1).nonzero()[:, 0]  # the queries that see a key
    if len(seeing):
        there = visible[seeing].byte()  # as distances, every cell would take 8 bytes
        first, last = there.argmax(dim=1), there.shape[1] - 1 - there.flip(1).argmax(dim=1)
        farthest = int(torch.maximum((seeing - first).abs(), (seeing - last).abs()).max())
    for kind in ("none", "causal", "causal window", "window"):
        mask = Mask(kind, window=farthest if "window" in kind else 0)
        if torch.equal(mask.build(*visible.shape), visible):
            return mask
    return visible.clone()


def _rows(x: Any) -> Tensor | None:
    """The one sequence of a batch of one, [pos d_model]."""
    return x[0].detach() if isinstance(x, Tensor) and x.ndim == 3 and len(x) == 1 else None
