"""Tensors, arrays, tables and nested lists in a user's memory, as our tensors or as the tuples of a frozen source; and their tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attention.base.errors import MatrixError, ShapeError, TextError
from attention.files.archives import format_shape
from attention.files.matrix import MAX_NUMBERS, too_large_error

if TYPE_CHECKING:
    from torch import Tensor


def as_tensor(value: Any, name: str) -> Tensor:
    """A copy of the numbers on the CPU, without a gradient: integers and doubles as float64, other numbers as float32, truth values as such.

    Args:
        value: a tensor on any device and in any dtype, an array of any library, a table of pandas, or nested lists of these or of numbers.
        name: of it, for errors.

    Raises:
        MatrixError: it is none of these, or has no real numbers.
    """
    import torch

    try:
        tensor = _dense(value, name)
        dtype = torch.float32 if tensor.is_floating_point() and tensor.dtype != torch.float64 else torch.float64
        # A copy, since a user's program goes on to change its tensors.
        return tensor.detach().to("cpu", torch.bool if tensor.dtype == torch.bool else dtype, copy=True)
    except MatrixError:
        raise
    except Exception as error:  # whatever another library raises for its arrays
        reason = str(error).partition("\n")[0][:200]
        raise MatrixError(
            f"{name} needs numbers, as a tensor, an array or nested lists of equal length; got {_kind(value)} ({reason}): give it as a NumPy array."
        ) from None


def _dense(value: Any, name: str) -> Tensor:
    import numpy as np
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_complex():
            raise _no_numbers(name, "complex numbers", "give the real part, or the magnitude")
        if value.is_quantized:
            return value.dequantize()
        return value if value.layout == torch.strided else value.to_dense()
    if isinstance(value, list | tuple) and _has_arrays(value):
        return torch.stack([as_tensor(each, name) for each in value])
    array = np.asarray(value)
    if array.dtype.kind == "V":  # bfloat16 of JAX
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        what = "complex numbers" if array.dtype.kind == "c" else _kind(value)
        raise _no_numbers(name, what, "give real numbers, in rows of equal length")
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=True))


def _has_arrays(value: Any) -> bool:
    """Whether the innermost first item of lists is no number but an array, or a tensor of one number."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return hasattr(value, "detach") or (hasattr(value, "__array__") and getattr(value, "shape", ()) != ())


def _no_numbers(name: str, what: str, advice: str) -> MatrixError:
    return MatrixError(f"{name} needs real numbers; got {what}: {advice}.")


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def as_tuples(value: Any, name: str) -> tuple[Any, ...]:
    """The numbers of what `as_tensor` takes as nested tuples, which are hashable; tuples and typed numbers stay as they are, and None is an empty tuple.

    Raises:
        MatrixError: as for `as_tensor`; or too many numbers.
    """
    if value is None:
        return ()
    if isinstance(value, tuple) and _is_plain(value):
        return value
    if isinstance(value, list | tuple):
        # Rows of unequal length are nobody's array: `validate_matrix` says which they are.
        return tuple(each if isinstance(each, int | float) else as_tuples(each, name) for each in value)
    tensor = as_tensor(value, name)
    if not tensor.numel():
        raise MatrixError(
            f"{name} needs a number in each axis; got {list(tensor.shape)}: leave it out, or give numbers."
        )
    if tensor.numel() > MAX_NUMBERS:
        raise too_large_error(name, format_shape(tuple(tensor.shape)))
    numbers: Any = tensor.tolist()
    return as_tuples(numbers, name) if tensor.ndim else numbers


def _is_plain(value: tuple[Any, ...]) -> bool:
    """Whether these are nested tuples of Python's numbers."""
    types = {*map(type, value)}
    return types <= {int, float, bool} or (types == {tuple} and all(map(_is_plain, value)))


def table_labels(value: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The labels of the rows and of the columns of a table of pandas; empty where they are numbers, and for everything else."""
    axes = (getattr(value, axis, ()) for axis in ("index", "columns"))
    rows, columns = (list(axis) if isinstance(axis, Iterable) and hasattr(axis, "dtype") else [] for axis in axes)
    rows, columns = (labels if any(isinstance(each, str) for each in labels) else [] for labels in (rows, columns))
    return tuple(map(str, rows)), tuple(map(str, columns))


def token_row(tokens: Any, batch: int = 0) -> list[Any]:
    """The tokens of one element of a batch, as texts or as ids.

    Args:
        tokens: a text, which is split at its blanks; texts or ids as a list, tensor or array, of one element or of a batch; or what a tokenizer of
            transformers returns.
        batch: the element.

    Raises:
        TextError: it is none of these.
        ShapeError: the batch has no such element.
    """
    if isinstance(tokens, str):
        return tokens.split()
    if isinstance(tokens, Mapping):
        texts = [encoding.tokens for encoding in getattr(tokens, "encodings", None) or ()]  # of a fast tokenizer
        tokens = texts or tokens.get("input_ids")
    if callable(getattr(tokens, "tolist", None)):
        tokens = tokens.tolist()
    if not isinstance(tokens, Iterable):
        raise TextError(
            f"tokens are texts or ids, one for each position; got {_kind(tokens)}: give a list, or what the tokenizer returned."
        )
    row = list(tokens)
    if row and all(isinstance(each, list | tuple) or getattr(each, "ndim", 0) == 1 for each in row):
        if not 0 <= batch < len(row):
            raise ShapeError(
                f"tokens are of {len(row)} sequences; got batch={batch}: choose one from 0 to {len(row) - 1}."
            )
        row = list(row[batch])
    return [each.item() if hasattr(each, "item") else each for each in row]


def token_texts(tokens: Any) -> tuple[str, ...]:
    """The tokens of one sequence, as for `token_row`; an id is shown as its number.

    Raises:
        TextError: as for `token_row`; or a token is neither a text nor a number.
    """
    return tuple(map(_text, token_row(tokens) if tokens is not None else ()))


def _text(token: Any) -> str:
    if isinstance(token, bytes):
        token = token.decode("utf-8", "replace")
    text = str(token) if isinstance(token, int | float) else token
    if not isinstance(text, str):
        raise TextError(f"a token is a text, or an id; got {_kind(text)}: give a list of texts.")
    # A lone surrogate cannot be sent to a browser; a token that knows its word or its place stays as it is.
    return text.encode("utf-8", "replace").decode() if type(text) is str else text


def is_low_precision(value: Any) -> bool:
    """Whether the numbers have 16 bits or fewer, by the type that they or the first of several have."""
    while isinstance(value, list | tuple) and value:
        value = next((each for each in value if each is not None), 0)
    return str(getattr(value, "dtype", "")).rpartition(".")[-1].startswith(("float16", "bfloat16", "float8"))


def is_list_of_arrays(value: Any) -> bool:
    """Whether this is a list of tensors or arrays, and not of numbers; some may be None."""
    present = [each for each in value if each is not None] if isinstance(value, list | tuple) else []
    return bool(present) and all(len(getattr(each, "shape", ())) > 1 for each in present)


def join_steps(steps: Sequence[Tensor], keys_grow: bool = True) -> Tensor:
    """The weights of all steps of a generation as one map, [head query_pos key_pos].

    With a cache, the first step has the rows of the prompt, and each other one the row of its last token, which has a key more; without one,
    each step has all rows again. A cache of fixed length has keys that no query sees yet, which are cut, and a cache with a window has the
    last keys only. Where the first step has more keys than queries, an earlier text was in the cache: its keys are kept, and it has no rows.

    Args:
        steps: of one layer, each [head query_pos key_pos], in their order.
        keys_grow: whether each new token is also a new key; in cross-attention it is not.

    Raises:
        ShapeError: a step fits none of this.
    """
    import torch

    first = steps[0]
    if not keys_grow:
        if len({step.shape[-1] for step in steps}) > 1:
            raise ShapeError(
                f"the steps of cross-attention have the same keys; got {[step.shape[-1] for step in steps[:8]]}: give the steps of one text."
            )
        parts: list[Tensor] = []
        for step in steps:
            has_all_rows = 1 < step.shape[-2] > sum(part.shape[-2] for part in parts)
            parts = [step] if has_all_rows else [*parts, step]
        return torch.cat(parts, dim=-2)
    n_more = first.shape[-1] - first.shape[-2]
    n_past = n_more if n_more > 0 and bool(first[..., -n_more:].any()) else 0
    placed: list[tuple[int, Tensor]] = []  # the first key of each part
    n_keys = n_past
    for step in steps:
        rows, width = step.shape[-2:]
        if rows == width > max(1, n_keys):
            placed, n_keys = [(0, step)], rows
            continue
        n_keys += rows
        if width > n_keys and bool(step[..., n_keys:].any()):
            raise ShapeError(
                f"step {len(placed)} of a generation has {n_keys:,} tokens so far; got weights of {width:,} keys: give all steps, in their order."
            )
        part = step[..., :n_keys] if width >= n_keys else _without_later_keys(step)
        placed.append((n_keys - part.shape[-1], part))
    return torch.cat(
        [torch.nn.functional.pad(part, (left, n_keys - left - part.shape[-1])) for left, part in placed], dim=-2
    )


def _without_later_keys(step: Tensor) -> Tensor:
    """The weights of a window without the keys of tokens that were guessed after the last query, which no head sees."""
    seen = step[..., -1, :].any(0).nonzero()
    return step[..., : int(seen[-1]) + 1] if len(seen) else step
