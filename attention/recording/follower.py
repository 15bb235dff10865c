"""Follows the tensors of a pass from product to softmax to product: torch shows every call to a mode (`TorchFunctionMode`).

No library and no class is known here. A tensor is followed while it lives; nothing is kept of it but where it comes from.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from string import ascii_letters
from types import FrameType
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.modules import module as hooks
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from attention.formula.names import KEY, QUERY, VALUE
from attention.recording.trails import (
    HERE,
    PROJECTIONS,
    Event,
    Heads,
    Kind,
    Multiplication,
    Normalized,
    Product,
    Reduced,
    Ref,
    Spec,
    Trail,
    multiplication,
)

_TORCH, _HERE = str(Path(torch.__file__).parent), str(Path(__file__).parent)
_WRAPPERS = ("_orig_mod", "_original_component", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
_PARTS = (nn.Softmax, nn.Dropout, nn.Identity, nn.Linear)  # parts of a module that attends


def line_of_code() -> str:
    """The line of the user's code that runs now, such as "model.py:31"; never a path of the machine."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_TORCH, _HERE)):
            is_cell = name.startswith("<") or "ipykernel" in name
            return f"{'a cell' if is_cell else Path(name).name}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown"


class Modules:
    """The modules that run in this thread, with their paths.

    Attributes:
        running: the modules that have begun and not ended, the outermost first, each with its path and its first tensor.
        output: what the last module returned that ran in no other.
        on_enter: is called with each module that begins.
        on_leave: is called with each module that ends, with the arguments of a hook.
    """

    def __init__(self, root: nn.Module | None) -> None:
        self.output: Any = None
        self.on_enter: Callable[[nn.Module], object] = lambda _: None
        self.on_leave: Callable[..., object] = lambda *_: None
        self.running: list[tuple[str, Tensor | None]] = []
        self._thread = threading.get_ident()
        self._paths: dict[int, str] = {}
        self._modules: list[nn.Module] = []  # so that no other module gets the id of one
        if root is not None:
            self._name(root)

    @property
    def path(self) -> str:
        """The path of the innermost module that is more than a part of another."""
        return next((path for path, _ in reversed(self.running) if path), "")

    @contextmanager
    def following(self) -> Iterator[None]:
        """A context in which modules are followed."""
        after = hooks.register_module_forward_hook(self._leave, with_kwargs=True, always_call=True)
        with hooks.register_module_forward_pre_hook(self._enter), after:
            yield

    def _enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        # Hooks of modules are of the whole process, as with DataParallel.
        if threading.get_ident() != self._thread:
            return
        if id(module) not in self._paths:  # the first module of code in a context
            self._name(module)
        path = "" if isinstance(module, _PARTS) else self._paths[id(module)]
        self.running.append((path, next((each for each in args if isinstance(each, Tensor)), None)))
        self.on_enter(module)

    def _leave(self, module: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        if threading.get_ident() == self._thread and self.running:
            self.on_leave(module, args, *rest)
            self.running.pop()
            if not self.running and rest:
                self.output = rest[-1]

    def _name(self, root: nn.Module) -> None:
        kind = type(root).__name__
        for full_path, module in root.named_modules():
            path = ".".join(part for part in full_path.split(".") if part not in _WRAPPERS)
            self._paths.setdefault(id(module), path or kind)
            self._modules.append(module)


_VIEWS = re.compile(
    "view|view_as|reshape|reshape_as|flatten|unflatten|ravel|squeeze|unsqueeze|expand|expand_as|broadcast_to|transpose|swapaxes|swapdims|"
    "permute|movedim|moveaxis|chunk|split|split_with_sizes|tensor_split|unbind|__getitem__|select|narrow|index_select|repeat|"
    "repeat_interleave|tile|flip|roll|t|T|mT|adjoint|H|mH"
)
_KEEPS = re.compile(
    "contiguous|clone|to|type|type_as|float|double|half|bfloat16|detach|data|cpu|cuda|alias|nan_to_num|positive"
)
_EACH = re.compile(  # changes each number alone, or fills cells
    "relu|leaky_relu|gelu|silu|elu|sigmoid|clamp|clamp_min|clamp_max|clip|abs|square|pow|sqrt|rsqrt|log|log1p|tril|triu|hardtanh|softplus|erf|"
    "sign|round|mul|div|add|sub|exp|tanh|where|masked_fill|rsub|__rsub__|__rdiv__|__setitem__|alpha_dropout|feature_dropout|pad|softsign|threshold|exp2"
)
_RESHAPES: dict[str, Callable[..., Any]] = {"view": torch.Tensor.reshape, "view_as": torch.Tensor.reshape_as}
_SOFTMAX = ("softmax", "special_softmax", "_softmax", "_safe_softmax")
_AUTOCAST = ("cpu", "cuda")  # devices whose functions may compute in another dtype than that of their arguments
_FUSED = "scaled_dot_product_attention"
_MAX_EVENTS = 64  # of one trail
_MAX_ADDED = 8  # tensors that are added to one product; a residual stream adds more
_TINY = 1e-3  # is added to the sum of a softmax, against a division by zero


class Follower(TorchFunctionMode):
    """Notes where tensors come from, and calls its methods where weights multiply values.

    Attributes:
        modules: the modules that run.
        softmaxes: the number of softmaxes that ran.
        is_transformed: whether code ran in a transform of torch.func, such as vmap, where tensors have no numbers yet.
    """

    def __init__(self, modules: Modules) -> None:
        super().__init__()
        self.modules = modules
        self.softmaxes = 0
        self.is_transformed = False
        self._trails = WeakIdKeyDictionary()
        self._pairs = WeakIdKeyDictionary()  # tensors that are all products of the numbers of two
        self._refs: WeakSet[Ref] = WeakSet()

    # -- what a subclass does with what was found ---------------------------------------------------

    def attend(self, trail: Trail, product: Multiplication, side: int, result: Tensor) -> Trail | None:
        """Called after a product of weights, with their trail, and values; the weights are its first or second factor. Gives the trail of its result."""
        return None

    def attend_fused(
        self, inputs: Mapping[str, Any], trails: Mapping[str, Trail | None], result: Tensor
    ) -> Trail | None:
        """Called after scaled_dot_product_attention with its arguments by name, and the trails of query, key and value."""
        return None

    def project(self, heads: Trail, product: Multiplication, result: Tensor) -> None:
        """Called where outputs of heads are the first factor of a product, after the product."""

    def run_opaque(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any] | None:
        """The result of a function that attends inside of itself, in a tuple; None for any other function."""
        return None

    def fail(self, error: Exception) -> None:
        """Called where a call of the pass could not be followed."""

    # -- every call ---------------------------------------------------------------------------------

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name, named = getattr(func, "__name__", ""), kwargs or {}
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")  # of a property
        opaque = self.run_opaque(name, func, args, named)
        if opaque is not None:
            return opaque[0]
        # Under vmap and grad a tensor stands for many, and has no numbers to read.
        is_wrapped = _is_wrapped((*args, *named.values()))
        self.is_transformed |= is_wrapped
        note = None if is_wrapped else self._safely(self._note, name, func, args, named)
        result = func(*args, **named)
        if note is not None:
            self._safely(note, result)
        return result

    def _safely(self, step: Callable[..., Any], *args: Any) -> Any:
        """What a step of ours gives; whatever it meets in the code of others, that code goes on."""
        try:
            with torch.no_grad(), ExitStack() as stack:
                # What is read is on the CPU, wherever the code puts its tensors.
                if torch.get_default_device().type != "cpu":
                    stack.enter_context(torch.device("cpu"))
                for device in _AUTOCAST:
                    if torch.is_autocast_enabled(device):
                        stack.enter_context(torch.autocast(device, enabled=False))
                return step(*args)
        except (RuntimeError, TypeError, ValueError, IndexError, KeyError, NotImplementedError) as error:
            self.fail(error)
            return None

    def trail_of(self, value: Any) -> Trail | None:
        """Where a tensor comes from, if it is known."""
        return self._trails.get(value) if isinstance(value, Tensor) else None

    def ref(self, tensor: Tensor) -> Ref:
        """A tensor that stays as it is now when a later call changes it in place."""
        ref = Ref(tensor)
        self._refs.add(ref)
        return ref

    def _refs_in(self, argument: Any, followed: Tensor) -> Any:
        if argument is followed:
            return HERE
        if isinstance(argument, Tensor):
            return self.ref(argument)
        if type(argument) in (tuple, list):
            return type(argument)(self._refs_in(each, followed) for each in argument)
        return argument

    def _note(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[[Any], None] | None:
        """What to note of a call, before it may change its arguments: a function of its result."""
        # add_ is add, in place.
        plain = name if name.startswith("__") else name.rstrip("_")
        changed = _changed_in_place(name, args, kwargs)
        if name in _SOFTMAX or name == "log_softmax":
            note = self._softmax(name, args, kwargs)
        elif name == _FUSED:
            note = self._fused(args, kwargs)
        elif (product := multiplication(plain, args, kwargs)) is not None:
            note = self._product(func, product, plain in PROJECTIONS)
        elif plain in ("cat", "concat", "concatenate"):
            note = self._joined(args, kwargs)
        elif plain == "sum" and (pair := self._summed_pair(args, kwargs)) is not None:
            note = self._product(func, pair, is_linear=False)
        else:
            note = self._event(plain, func, args, kwargs)
            if plain == "mul" and _is_broadcast(args):
                note = self._with_pair(note, args)
        if changed is not None:
            self._copy_before_change(changed)
        return note

    def _copy_before_change(self, changed: Tensor) -> None:
        """Copies what is kept of a tensor that the next call changes, except its new value."""
        storage = changed.untyped_storage().data_ptr() if changed.layout == torch.strided else 0
        for ref in [*self._refs]:
            if ref.tensor.layout == torch.strided and ref.tensor.untyped_storage().data_ptr() == storage:
                ref.tensor = ref.tensor.clone()

    def _set(self, tensor: Any, trail: Trail | None) -> None:
        if not isinstance(tensor, Tensor) or _is_wrapped((tensor,)):
            return
        if trail is None or len(trail.events) > _MAX_EVENTS:
            self._trails.pop(tensor, None)
        else:
            self._trails[tensor] = trail

    # -- softmax and products -------------------------------------------------------------------------

    def _softmax(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[Any], None] | None:
        scores = args[0] if args else kwargs.get("input")
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        if not isinstance(scores, Tensor) or not scores.ndim:
            return None
        if not isinstance(axis, int):  # the implicit axis of F.softmax
            axis = 0 if scores.ndim in (1, 3) else 1
        axis %= scores.ndim
        # Scores that come from nowhere we know are still shown, as the first step.
        trail = self.trail_of(scores) or Trail(self.ref(scores))
        before = Reduced(trail, "log", axis, 0.0, self.ref(scores))

        def note(result: Any) -> None:
            self._set(result, Trail(before) if name == "log_softmax" else self._normalized(before, result))

        return note

    def _normalized(self, before: Reduced, result: Tensor) -> Trail:
        self.softmaxes += 1
        normalizer = "softmax1" if before.plus == 1 else "softmax"
        is_known = before.plus == 1 or abs(before.plus) < _TINY
        unknown = "" if is_known else f"it adds {before.plus:g} to the sum of its exponentials"
        where, path = line_of_code(), self.modules.path
        return Trail(
            Normalized(before.of, before.scores, self.ref(result), before.axis, normalizer, where, path, unknown)
        )

    def _fused(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[Any], None]:
        names = (QUERY, KEY, VALUE, "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
        inputs = dict(zip(names, args, strict=False)) | dict(kwargs)
        trails = {name: self.trail_of(inputs.get(name)) for name in names[:3]}

        def note(result: Any) -> None:
            self._set(result, self.attend_fused(inputs, trails, result))

        return note

    def _joined(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[Any], None]:
        """Notes that a tensor that is joined to empty ones, such as an empty cache, is still the same."""
        parts = args[0] if args else kwargs.get("tensors", ())
        filled = [each for each in parts if isinstance(each, Tensor) and each.numel()]
        trail = self.trail_of(filled[0]) if len(filled) == 1 else None
        return lambda result: self._set(result, trail and trail.then(Event(Kind.KEEP, torch.clone, (HERE,))))

    def _with_pair(self, note: Callable[[Any], None] | None, args: Sequence[Any]) -> Callable[[Any], None]:
        """Notes that a tensor is all products of the numbers of two, which may be summed later."""
        pair = [(self.ref(each), self.trail_of(each)) for each in args[:2]]

        def note_both(result: Any) -> None:
            if note is not None:
                note(result)
            self._pairs[result] = pair

        return note_both

    def _summed_pair(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Multiplication | None:
        """The product that a sum of products is: (q[:, :, None] * k[:, None]).sum(-1), or (weights[..., None] * value).sum(1)."""
        tensor: Any = args[0] if args else None
        pair = self._pairs.get(tensor) if isinstance(tensor, Tensor) else None
        axis = _axis(args, kwargs)
        trail = self.trail_of(tensor)
        if pair is None or axis is None or kwargs.get("keepdim") or (trail is not None and trail.has(Kind.EXP)):
            return None
        letters = ascii_letters[: tensor.ndim]
        parts, factors = list[str](), list[Tensor]()
        shapes = [ref.tensor.shape for ref, _ in pair]
        for (ref, of_factor), shape, other in zip(pair, shapes, reversed(shapes), strict=True):
            alone = tuple(each for each, size in enumerate(shape) if size == 1 and other[each] > 1)
            squeezes = Event(Kind.VIEW, torch.squeeze, (HERE, alone))
            parts.append("".join(letter for each, letter in enumerate(letters) if each not in alone))
            factors.append(squeezes.apply(ref.tensor))
            self._set(factors[-1], of_factor and of_factor.then(squeezes))
        summed = letters[axis]
        if not all(summed in part for part in parts):
            return None
        spec = Spec(parts[0], parts[1], letters.replace(summed, ""))
        return Multiplication(spec, factors[0], factors[1])

    def _product(self, func: Callable[..., Any], product: Multiplication, is_linear: bool) -> Callable[[Any], None]:
        factors = product.left, product.right
        trails = [self.trail_of(each) for each in factors]
        mixed: tuple[Trail, Tensor, int] | None = None
        for side, trail in enumerate(trails):
            if trail is None:
                continue
            other, is_weights = factors[1 - side], isinstance(trail.origin, Normalized)
            if isinstance(trail.origin, Heads) and side == 0:
                return partial(self.project, trail, product)
            # Weights times a parameter mix heads; times what the pass computed, they attend.
            if is_weights and not is_linear and not isinstance(other, Parameter):
                return partial(self._attend, trail, product, side)
            if is_weights or (_is_map(trail) and isinstance(other, Parameter)):
                mixed = trail, factors[side], side
            elif not is_linear and self._is_without_softmax(trail, other):
                return partial(self._attend, self._without_softmax(trail, product, side), product, side)
        origin, events = self._made(product, trails, is_linear)

        def note(result: Any) -> None:
            # Heads of one layer are mixed by a matrix ("talking heads"); what is no map has another shape then.
            if mixed is not None and result.shape == mixed[1].shape:
                self._set(result, mixed[0].then(Event(Kind.MIXED, func, where=origin.where)))
            elif mixed is not None and isinstance(mixed[0].origin, Normalized) and not is_linear:
                self._attend(mixed[0], product, mixed[2], result)
            else:
                self._set(result, Trail(replace(origin, dtype=result.dtype), events))

        return note

    def _made(
        self, product: Multiplication, trails: Sequence[Trail | None], is_linear: bool
    ) -> tuple[Product, tuple[Event, ...]]:
        """The origin of a product, and what its function does after it."""
        left, right = product.left, product.right
        added = None if product.added is None else self.ref(product.added)
        origin = Product(
            self.ref(left),
            self.ref(right),
            product.spec,
            trails[0],
            trails[1],
            bias=added if is_linear else None,
            is_projection=is_linear or isinstance(left, Parameter) or isinstance(right, Parameter),
            matrix=0 if isinstance(left, Parameter) and not isinstance(right, Parameter) else 1,
            where=line_of_code(),
        )
        events: list[Event] = []
        if not is_linear and product.alpha != 1:
            events.append(Event(Kind.SCALE, torch.mul, (HERE, product.alpha), factor=product.alpha, where=origin.where))
        if not is_linear and added is not None:
            args = {"alpha": product.beta}
            events.append(Event(Kind.ADD, torch.add, (HERE, added), args, None, origin.where, product.beta, added))
        return origin, tuple(events)

    def _attend(self, trail: Trail, product: Multiplication, side: int, result: Tensor) -> None:
        self._set(result, self.attend(trail, product, side, result))

    def _is_without_softmax(self, trail: Trail, values: Tensor) -> bool:
        """Whether a factor is scores of queries and keys that a function such as a sigmoid turned into weights, cell by cell."""
        origin = trail.origin
        return (
            _is_map(trail)
            and trail.has(Kind.OTHER)
            and not trail.has(Kind.MIXED)
            and isinstance(origin, Product)
            and origin.right_trail is not None  # the matrix of a layer that is written as a product comes from nowhere
            and not isinstance(values, Parameter)
        )

    def _without_softmax(self, trail: Trail, product: Multiplication, side: int) -> Trail:
        first = next(index for index, event in enumerate(trail.events) if event.kind == Kind.OTHER)
        event, after = trail.events[first], trail.events[first + 1 :]
        views = tuple(each for each in after if each.kind == Kind.VIEW)
        axis = product.spec[side].index(product.spec.summed[0])
        before = Trail(trail.origin, trail.events[:first] + views)
        weights = self.ref((product.left, product.right)[side])
        unknown = f"its weights come out of {event.name} ({event.where}), which is none of our normalizers"
        return Trail(Normalized(before, None, weights, axis, "", event.where, self.modules.path, unknown))

    # -- everything else --------------------------------------------------------------------------------

    def _event(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[[Any], None] | None:
        tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        ranked = [(trail, each) for each in tensors if (trail := self.trail_of(each)) is not None]
        if not ranked:
            return self._scale_of_leaf(name, func, args, kwargs)
        trail, followed = max(ranked, key=lambda pair: _rank(pair[0]))
        special = self._special(name, args, kwargs, trail, followed)
        if special is not None:
            return special
        # A sum or maximum that is computed with in any other way belongs to no softmax.
        if isinstance(trail.origin, Reduced) and not (_VIEWS.fullmatch(name) or _KEEPS.fullmatch(name)):
            return lambda result: self._set(result, None)
        event = self._classified(name, func, args, kwargs, trail, followed)

        def note(result: Any) -> None:
            target = followed if name == "__setitem__" else result
            if event is None:
                self._set(target, None)
                return
            if isinstance(target, tuple | list):
                for item, each in enumerate(target):
                    self._set(each, trail.then(event._replace(item=item)))
            elif isinstance(target, Tensor):
                # An operand with more axes broadcasts the tensor: it is expanded first, so that the event can be repeated alone.
                events: tuple[Event, ...] = (event,)
                if event.kind != Kind.VIEW and target.shape != shape:
                    expands = Event(Kind.VIEW, torch.Tensor.expand, (HERE, tuple(target.shape)))
                    events = (expands, event) if len(target.shape) >= len(shape) else ()
                self._set(target, trail.then(*events) if events else None)

        shape = followed.shape
        return note

    def _scale_of_leaf(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[[Any], None] | None:
        """A query or key that is scaled before the product, whose making is not followed."""
        if name not in ("mul", "div") or len(args) != 2 or kwargs:
            return None
        tensors = [each for each in args if isinstance(each, Tensor) and each.ndim > 1 and each.is_floating_point()]
        if len(tensors) != 1 or (name == "div" and tensors[0] is not args[0]):
            return None
        trail = Trail(self.ref(tensors[0]))
        event = self._classified(name, func, args, kwargs, trail, tensors[0])
        if event is None or event.kind != Kind.SCALE:
            return None
        return lambda result: self._set(result, trail.then(event))

    def _special(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], trail: Trail, followed: Tensor
    ) -> Callable[[Any], None] | None:
        """A softmax that is written by hand: exponentials over their sum, or what leads to it."""
        other = next((each for each in args if isinstance(each, Tensor) and each is not followed), None)
        of_other = self.trail_of(other)
        reduced = of_other.origin if of_other is not None and isinstance(of_other.origin, Reduced) else None
        if name in ("sum", "max", "amax", "logsumexp") and not isinstance(trail.origin, Normalized | Reduced):
            axis, how = _axis(args, kwargs), "max" if name == "amax" else name
            axis = followed.ndim - 1 if axis is None and how == "max" else axis
            if axis is None or (how == "sum" and not trail.has(Kind.EXP)):
                return None
            origin = Reduced(trail, how, axis)
            return lambda result: self._set(result[0] if isinstance(result, tuple) else result, Trail(origin))
        if isinstance(trail.origin, Reduced):
            number = _number(next((each for each in args if each is not followed), None))
            if name == "exp" and trail.origin.how == "log" and args[0] is followed:
                before = trail.origin
                return lambda result: self._set(result, self._normalized(before, result))
            if name == "add" and trail.origin.how == "sum" and number is not None:
                plus = replace(trail.origin, plus=trail.origin.plus + number)
                return lambda result: self._set(result, Trail(plus))
            # Against a division by zero: no row that sees a key changes.
            if name in ("clamp", "clamp_min") and trail.origin.how == "sum":
                return lambda result: self._set(result, trail)
            return None
        if reduced is None or args[0] is not followed:
            return None
        if name == "sub" and reduced.how == "max":  # the same softmax
            return lambda result: self._set(result, trail)
        if name == "sub" and reduced.how == "logsumexp" and reduced.of.is_same_as(trail):
            log = Reduced(trail, "log", reduced.axis, 0.0, self.ref(followed))
            return lambda result: self._set(result, Trail(log))
        if name == "div" and reduced.how == "sum" and reduced.of.is_same_as(trail):
            return lambda result: self._set(result, self._normalized(reduced, result))
        return None

    def _classified(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], trail: Trail, followed: Tensor
    ) -> Event | None:  # fmt: skip
        """What a call does to a tensor; None: it is not followed any further."""
        is_scores = _is_map(trail)
        where = line_of_code() if is_scores or isinstance(trail.origin, Normalized) else ""

        def event(kind: Kind, factor: float = 1.0, operand: Any = None) -> Event:
            wrapped = tuple(self._refs_in(each, followed) for each in args)
            named = {key: self._refs_in(each, followed) for key, each in kwargs.items()}
            # To repeat it, .to() needs its dtype; the arguments of the others change no number.
            if kind == Kind.KEEP:
                wrapped, named = (wrapped, named) if name in ("to", "type", "type_as") else ((HERE,), {})
            return Event(kind, func, wrapped, named, None, where, factor, operand)

        if _VIEWS.fullmatch(name):
            if (
                not args
                or args[0] is not followed
                or any(isinstance(each, torch.dtype) for each in (*args, *kwargs.values()))
            ):
                return None
            return event(Kind.VIEW)._replace(func=_RESHAPES[name]) if name in _RESHAPES else event(Kind.VIEW)
        if _KEEPS.fullmatch(name):
            return event(Kind.KEEP)
        if name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout"):
            rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
            training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else name != "dropout2d"))
            return event(Kind.DROPOUT, float(rate)) if rate and training else Event(Kind.KEEP, torch.clone, (HERE,))
        if not _EACH.fullmatch(name) and name not in ("neg", "negative"):
            return Event(Kind.MIXED, func, where=where) if isinstance(trail.origin, Normalized) else None
        if isinstance(trail.origin, Heads):
            return None
        others = [each for each in args if each is not followed]
        first = args[:1] and args[0] is followed
        number = _number(others[0]) if len(others) == 1 else None
        found: Event | None = None
        if name in ("neg", "negative"):
            found = event(Kind.SCALE, -1.0)
        elif number is not None and (name == "mul" or (name == "div" and first and number)) and not kwargs:
            found = event(Kind.SCALE, number if name == "mul" else 1 / number)
        elif name in ("add", "sub") and len(others) == 1 and (first or (name == "add" and not kwargs)):
            sign = (1 if name == "add" else -1) * float(kwargs.get("alpha", 1))
            found = event(Kind.ADD, sign, self.ref(others[0]) if isinstance(others[0], Tensor) else others[0])
        elif name == "mul" and len(others) == 1 and is_scores and _is_binary(others[0]):
            found = event(Kind.GATE, 1.0, self.ref(others[0]))
        elif name in ("tanh", "exp"):
            found = event(Kind.TANH if name == "tanh" else Kind.EXP)
        elif name in ("masked_fill", "where", "__setitem__"):
            found = self._fill(name, args, kwargs, followed, event)
        found = found or event(Kind.OTHER)
        if not is_scores and not isinstance(trail.origin, Normalized):
            if found.kind == Kind.SCALE:
                return found._replace(operand=self.ref(followed))
            operands = [each.tensor for each in (*found.args, found.operand) if isinstance(each, Ref)]
            if any(each.numel() >= followed.numel() > 1 for each in operands):
                return None  # a residual stream would hold all that was ever added to it
        elif sum(each.kind == Kind.ADD for each in trail.events) >= _MAX_ADDED:
            return None
        return found

    def _fill(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], followed: Tensor, event: Callable[..., Event]
    ) -> Event | None:
        """A call that writes into cells: its operand is the cells and what is written; the followed tensor must be what it writes into."""
        if name == "masked_fill":
            cells = args[1] if len(args) > 1 else kwargs.get("mask")
            value = args[2] if len(args) > 2 else kwargs.get("value")
            return event(Kind.MASK, 1.0, (self.ref(cells), _largest(value))) if isinstance(cells, Tensor) else None
        if name == "__setitem__":
            if args[0] is not followed or (isinstance(args[2], Tensor) and args[2].numel() > 1):
                return None
            # Whatever the index is, writing with it marks its cells.
            cells = torch.zeros(followed.shape, dtype=torch.bool, device=followed.device)
            cells[args[1]] = True
            return event(Kind.MASK, 1.0, (self.ref(cells), _largest(args[2])))
        arguments = [*args, *kwargs.values()]
        if len(arguments) != 3:
            return None
        is_method = not (isinstance(arguments[0], Tensor) and arguments[0].dtype == torch.bool)
        cells, one, other = (arguments[1], arguments[0], arguments[2]) if is_method else arguments
        if not isinstance(cells, Tensor):
            return None
        if one is followed:
            return event(Kind.MASK, 1.0, (self.ref(~cells.bool()), _largest(other)))
        return event(Kind.MASK, 1.0, (self.ref(cells.bool()), _largest(one))) if other is followed else None


def _is_map(trail: Trail) -> bool:
    """Whether a tensor may be scores: it comes from a product of two tensors, none of which is a parameter."""
    return isinstance(trail.origin, Product) and not trail.origin.is_projection


def _rank(trail: Trail) -> int:
    """Which of two followed tensors a call is about: weights, then scores, then others."""
    origin = trail.origin
    if isinstance(origin, Product):
        return 2 if origin.is_projection else 3
    return {Normalized: 4, Heads: 1, Ref: 0, Reduced: -1}[type(origin)]


def _changed_in_place(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    out = kwargs.get("out")
    if isinstance(out, Tensor):
        return out
    in_place = name == "__setitem__" or (name.endswith("_") and not name.startswith("__")) or kwargs.get("inplace")
    in_place = in_place or (name == "dropout" and len(args) > 3 and args[3])
    return args[0] if in_place and args and isinstance(args[0], Tensor) else None


def _number(value: Any) -> float | None:
    """A Python number, or the number of a tensor of one; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if (
        isinstance(value, Tensor)
        and value.numel() == 1
        and value.dtype.is_floating_point | (value.dtype == torch.int64)
    ):
        return float(value.detach())
    return None


def _axis(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
    axis = kwargs.get("dim", kwargs.get("axis", args[1] if len(args) > 1 else None))
    axis = axis[0] if isinstance(axis, tuple | list) and len(axis) == 1 else axis
    return axis % args[0].ndim if isinstance(axis, int) and not isinstance(axis, bool) and args else None


def _is_broadcast(args: Sequence[Any]) -> bool:
    """Whether two tensors are multiplied, each number of one by several of the other; a parameter, such as that of a norm, is none."""
    if len(args) != 2 or any(not isinstance(each, Tensor) or isinstance(each, Parameter) for each in args):
        return False
    return bool(args[0].ndim == args[1].ndim > 1 and args[0].shape != args[1].shape)


def _largest(value: Any) -> float:
    """What is written into cells; the largest of several numbers."""
    return float(value.detach().amax()) if isinstance(value, Tensor) else float(value)


def _is_binary(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.dtype == torch.bool or bool(((value == 0) | (value == 1)).all()))


def _is_wrapped(values: Sequence[Any]) -> bool:
    """Whether a tensor is one of torch.func, whose numbers are not there yet."""
    return any(isinstance(each, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(each) for each in values)
