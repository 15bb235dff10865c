"""The weights of a model in memory that jobs share with this process, so that a model lives once.

After `share(model)`, no file is mapped any more: a file of weights that is overwritten changes nothing. Linux alone has such memory; elsewhere a job loads the model.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from attention.base import jobs

_ALIGNED = 64  # bytes, as the kernels of torch look at addresses
_STORAGES: dict[
    int, tuple[str, int, int, int]
] = {}  # address of a shared storage: path and number of its memory, offset, bytes


def share(model: Module) -> bool:
    """Moves the weights of a model into shared memory, for as long as the model lives; false if they cannot be moved."""
    tensors = [*model.parameters(), *model.buffers()]
    if sys.platform != "linux" or not all(_can_be_moved(tensor) for tensor in tensors):
        return False
    by_storage: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.untyped_storage().nbytes():
            by_storage.setdefault(tensor.untyped_storage().data_ptr(), []).append(tensor)
    places, end = [], 0
    for address, users in by_storage.items():
        # As aligned as it was: the last bits of a product depend on it.
        place, size = -(-end // _ALIGNED) * _ALIGNED + address % _ALIGNED, users[0].untyped_storage().nbytes()
        places.append((place, size))
        end = place + size
    file = os.memfd_create("model")
    os.ftruncate(file, max(end, 1))
    memory, path, number = mmap.mmap(file, max(end, 1)), f"/proc/{os.getpid()}/fd/{file}", os.fstat(file).st_ino
    addresses = []
    for users, (place, size) in zip(by_storage.values(), places, strict=True):
        whole = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=place)
        whole.copy_(torch.empty(0, dtype=torch.uint8).set_(users[0].untyped_storage()))
        for tensor in users:
            tensor.data = _view(whole, tensor.dtype, int(tensor.storage_offset()), tensor.shape, tensor.stride())
        addresses.append(whole.untyped_storage().data_ptr())
        _STORAGES[addresses[-1]] = path, number, place, size
    weakref.finalize(model, _end, file, addresses)
    return True


def _can_be_moved(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, Parameter) and tensor.device.type == "cpu" and tensor.layout == torch.strided


def _view(whole: Tensor, dtype: torch.dtype, offset: int, shape: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    return torch.empty(0, dtype=dtype).set_(whole.untyped_storage(), offset, shape, stride)


def _end(file: int, addresses: list[int]) -> None:
    os.close(file)
    for address in addresses:
        del _STORAGES[address]


def _reduce(value: Any) -> Any:
    """How a job finds a tensor of a shared model."""
    if not isinstance(value, Tensor) or not _can_be_moved(value):
        return NotImplemented
    if (place := _STORAGES.get(value.untyped_storage().data_ptr())) is None:
        # What a layer notes on a tensor, to see that it was changed, is true of this process only.
        return (Tensor.detach, (value.detach(),)) if "recorded_version" in vars(value) else NotImplemented
    is_parameter = isinstance(value, Parameter)
    form = value.dtype, value.storage_offset(), tuple(value.shape), value.stride(), value.requires_grad
    return _open, (*place, *form, is_parameter)


def _open(
    path: str,
    number: int,
    place: int,
    size: int,
    dtype: torch.dtype,
    offset: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    is_parameter: bool,
) -> Tensor:
    """A tensor of a model that another process shares."""
    tensor = _view(_whole(path, number, place, size), dtype, offset, shape, stride)
    return Parameter(tensor, requires_grad) if is_parameter else tensor.requires_grad_(requires_grad)


@cache
def _memory(path: str, number: int) -> mmap.mmap:
    with Path(path).open("rb") as file:
        if os.fstat(file.fileno()).st_ino != number:
            raise FileNotFoundError(f"the memory of a model has gone from {path}")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # what a job writes stays in the job


@cache
def _whole(path: str, number: int, place: int, size: int) -> Tensor:
    tensor = torch.frombuffer(_memory(path, number), dtype=torch.uint8, count=size, offset=place)
    _STORAGES[tensor.untyped_storage().data_ptr()] = path, number, place, size
    return tensor


jobs.REDUCERS.append(_reduce)
