"""Records the attention of a pass: of a module, of a function, or of whatever runs in a context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor
from torch.nn import Module

from attention.base.errors import ConfigError, ModelError
from attention.recording.layers import trace_of
from attention.recording.places import Modules
from attention.recording.recorder import Recorder

if TYPE_CHECKING:
    from attention.trace.trace import Trace


class Recording:
    """A context in which the attention of everything that runs in this thread is recorded.

        with attention.record(tokens=words) as recording:
            output = net(x)
        recording.trace()

    A recording is of one pass.
    """

    def __init__(
        self,
        tokens: Sequence[str] | None = None,
        key_tokens: Sequence[str] | None = None,
        grid: tuple[int, int] | None = None,
        picture: Any = None,
        batch: int = 0,
        root: Module | None = None,
        batch_sizes: Sequence[int] = (),
    ) -> None:
        self._labels = (tokens, key_tokens, grid, picture)
        self._batch = batch
        self._root, self._batch_sizes = root, batch_sizes
        self._recorder: Recorder | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Recording:
        if self._recorder is not None:
            raise ConfigError("A recording is of one pass; this one has begun already: call attention.record() again.")
        modules = Modules(self._root)
        self._recorder = Recorder(modules, self._batch, self._batch_sizes)
        self._stack.enter_context(modules.following())
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
            ConfigError: tokens are no words, or the grid is none.
        """
        recorder = self._recorder
        if recorder is None:
            raise ModelError(
                "A recording has what ran in it; nothing has: run your code inside of “with attention.record() as recording:”."
            )
        if not recorder.calls:
            raise ModelError(_nothing(recorder))
        with torch.device("cpu"):
            return trace_of(recorder.calls, recorder.notes, *self._labels, self._batch)


@overload
def record(
    net: None = None,
    *,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    grid: tuple[int, int] | None = None,
    picture: Any = None,
    batch: int = 0,
) -> Recording: ...
@overload
def record(
    net: Callable[..., Any],
    *args: Any,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    grid: tuple[int, int] | None = None,
    picture: Any = None,
    batch: int = 0,
    **kwargs: Any,
) -> Trace: ...
def record(
    net: Callable[..., Any] | None = None,
    *args: Any,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    grid: tuple[int, int] | None = None,
    picture: Any = None,
    batch: int = 0,
    **kwargs: Any,
) -> Trace | Recording:
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
        grid: the rows and columns of the patches of a picture, instead of words, such as (14, 14).
        picture: what is beneath the patches: the path of a file, an image of Pillow, or an array [row column 3].
        batch: the element of the batch.

    Raises:
        ModelError: no attention ran; the sentence says what did.
        MissingError: the batch has no such element.
        ConfigError: nothing that runs was given, tokens are no words, or the grid is none.
    """
    if isinstance(net, type) or not (net is None or callable(net)):
        way = (
            f"make one, such as {net.__name__}(…)" if isinstance(net, type) else "give one, and what it is called with"
        )
        raise ConfigError(f"record runs a module or a function; got {net!r:.60}: {way}.")
    net = getattr(net, "_orig_mod", net)  # of torch.compile, which has no calls to follow
    sizes = [each.shape[0] for each in args if isinstance(each, Tensor) and each.ndim > 2]
    root = net if isinstance(net, Module) else None
    recording = Recording(tokens, key_tokens, grid, picture, batch, root, sizes)
    if net is None:
        return recording
    with recording:
        net(*args, **kwargs)
    return recording.trace()


def _nothing(recorder: Recorder) -> str:
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
