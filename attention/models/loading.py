"""Loading a model folder as a model that can be run and recorded, with progress for the current callback."""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sized
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from attention.base import jobs
from attention.base.errors import ModelError
from attention.base.progress import ProgressCallback, current_callback
from attention.media import has_decoder, read_by, reads_text
from attention.models import lm_head, recorder
from attention.models.attention_call import IMPLEMENTATION
from attention.models.attention_sites import find_sites
from attention.models.folder import Folder
from attention.models.followed_pass import count_maps
from attention.models.loaded import LoadedModel
from attention.models.medium_inputs import no_text_error
from attention.models.running import silence_warnings

_SIZE_FACTOR, _EXTRA_BYTES = 2, 2**26  # a model may be larger than its file, such as by a head that is not saved
_NO_LIMIT = 10**9  # tokens; tokenizers without a limit report more


def load(folder: Folder, name: str, about: str = "", device: str = "", shared: bool = False) -> LoadedModel:
    """The model of a folder on a device of torch, the CPU if it is empty, after one trial run; `shared` puts its weights where jobs find them.

    Raises:
        ModelError: it cannot be loaded, has no tokenizer, or returns no attention.
    """
    recorder.register()
    _report_loading()
    silence_warnings()
    empty_model = _check_size(folder, name)
    found = read_by(empty_model)
    if not found and (no_text := no_text_error(name, empty_model)):
        raise no_text
    readers = tuple(medium.load_reader(folder, name, empty_model) for medium in found)
    tokenizer = None if found and not reads_text(empty_model) else _tokenizer(folder, name)
    model = _on_device(_model(folder, name, IMPLEMENTATION) or _model(folder, name, "eager"), device)
    if shared:
        _share(model)
    limit = None if tokenizer is None else max_length(model, tokenizer)
    loaded = LoadedModel(
        name, model, tokenizer, (), has_decoder(model), limit, folder.nbytes, about=about, readers=readers
    )
    sites, left_out = find_sites(loaded)
    if sites:
        lm_head.limit_logits(model)
        loaded = loaded.replace(sites=sites, left_out=left_out)
        return loaded.replace(n_maps=count_maps(loaded))
    # Its family does not call the recorder: use its own attention, and follow its weights.
    loaded = loaded.replace(model=_model(folder, name, "eager").to(model.device))
    if shared:
        _share(loaded.model)
    lm_head.limit_logits(loaded.model)
    return loaded.replace(n_maps=count_maps(loaded))


def _tokenizer(folder: Folder, name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder.path, local_files_only=True, trust_remote_code=False)
        if len(tokenizer) <= len(set(tokenizer.all_special_tokens)):  # made without any file, which some kinds allow
            raise ValueError
        return tokenizer
    except Exception as error:  # a missing or broken file can raise anything in transformers
        raise ModelError(
            f"{name} has no tokenizer that can be read, so no text can be cut into its tokens: add tokenizer.json to the folder."
        ) from error


def _model(folder: Folder, name: str, implementation: str) -> Any:
    """The model with this attention implementation; None if its family supports only its own."""
    cls = _model_class(folder.config)
    kwargs = {"trust_remote_code": False} if cls.__module__.startswith("transformers.models.auto") else {}
    try:
        model = cls.from_pretrained(
            folder.path,
            attn_implementation=implementation,
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            **kwargs,
        )
    except Exception as error:  # a broken file can raise anything in transformers
        if isinstance(error, KeyError | ValueError) and implementation != "eager" and f"{implementation}" in str(error):
            return None
        raise ModelError(_load_error(name, error)) from error
    return model.eval()


def _on_device(model: Any, device: str) -> Any:
    try:
        if torch.device(device or "cpu").type == "meta":
            raise ValueError("the meta device has no numbers")
        return model.to(device or "cpu")
    except (AssertionError, NotImplementedError, RuntimeError, ValueError) as error:
        message = " ".join(str(error).split())[:150]
        raise ModelError(
            f"A device is one that torch finds here, such as cpu or cuda; got {device[:40]!r}, and torch says “{message}”: choose another."
        ) from error


def _check_size(folder: Folder, name: str) -> Any:
    """The model on the meta device, built to check its size: parameters that are not in the file would be allocated at any size."""
    from transformers import AutoConfig

    cls = _model_class(folder.config)
    try:
        config = AutoConfig.from_pretrained(folder.path, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            model = cls(config) if hasattr(cls, "forward") else cls.from_config(config)
    except Exception as error:  # as in `_model`
        raise ModelError(_load_error(name, error)) from error
    size = sum(tensor.numel() * tensor.element_size() for tensor in (*model.parameters(), *model.buffers()))
    if size > _SIZE_FACTOR * folder.nbytes + _EXTRA_BYTES:
        raise ModelError(
            f"The config.json of {name} needs {size / 2**20:,.0f} MB, its weights are {folder.nbytes / 2**20:,.0f} MB: download it again."
        )
    return model


def _load_error(name: str, error: Exception) -> str:
    if isinstance(error, ImportError):  # such as timm, for the backbone of a detector
        message = " ".join(str(error).split()).partition(". ")[0]
        return f"{name} needs a library that is not installed here (“{message[:150]}”): install it, and open the model again."
    message = " ".join(str(error).split())[:150]
    return f"{name} should load with transformers, which fails with “{message}”: check that the folder is complete."


def _model_class(config: dict[str, Any]) -> Any:
    """The class that the config names, with its head; AutoModel if the config names none."""
    import transformers

    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    cls = getattr(transformers, name, None) if isinstance(name, str) else None
    is_model = isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)
    return cls if is_model else transformers.AutoModel


def max_length(model: Any, tokenizer: Any) -> int | None:
    """The largest number of tokens in a text: the rows of the position table, or the limit of the tokenizer."""
    config = model.config
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    sizes = (
        getattr(text_config, key, None) for key in ("max_position_embeddings", "n_positions", "max_target_positions")
    )
    rows = next((size for size in sizes if isinstance(size, int)), None)
    if rows is not None:
        table = next((module for name, module in model.named_modules() if name.endswith("position_embeddings")), None)
        offset = getattr(table, "padding_idx", None)
        rows -= 0 if offset is None else offset + 1  # RoBERTa's positions begin after that of the padding
    max_length = tokenizer.model_max_length
    candidates = (rows, max_length if max_length < _NO_LIMIT else None)
    limits = [limit for limit in candidates if limit is not None and limit > 0]
    return min(limits, default=None)


_REPORTS = 20  # about as many for each model


def _report_loading() -> None:
    """Forward the loading progress of transformers to the current callback, and disable its progress bars; idempotent."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_tqdm_hook(_replace_bar)


def _reporting(steps: Iterable[Any], report: ProgressCallback) -> Iterator[Any]:
    count = len(steps) if isinstance(steps, Sized) else 0
    for i, step in enumerate(steps):
        if count and i % max(1, count // _REPORTS) == 0:
            report("Loading the model …", i / count)
        yield step


def _replace_bar(make_bar: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    report = current_callback()
    if report and args and kwargs.get("desc") == "Loading weights":
        return _reporting(args[0], report)
    return make_bar(*args, **kwargs)


# -- memory that jobs share ----------------------------------------------------------------------------

_ALIGNED = 64  # bytes, as the kernels of torch look at addresses
# By the address of a shared storage: path and number of its memory, offset, bytes.
_STORAGES: dict[int, tuple[str, int, int, int]] = {}


def _share(model: Module) -> bool:
    """Moves the weights of a model into memory that jobs share, for as long as the model lives; false if they cannot be moved.

    Afterwards no file is mapped any more: a file of weights that is overwritten changes nothing. Linux alone has such memory; elsewhere a
    job loads the model.
    """
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
    tensor = _view(_whole(path, number, place, size), dtype, offset, shape, stride)
    return Parameter(tensor, requires_grad) if is_parameter else tensor.requires_grad_(requires_grad)


@cache
def _memory(path: str, number: int) -> mmap.mmap:
    with Path(path).open("rb") as file:
        if os.fstat(file.fileno()).st_ino != number:
            raise FileNotFoundError(f"the memory of a model has gone from {path}")
        with jobs.uncounted():  # it is lent: what a job writes stays in the job
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


@cache
def _whole(path: str, number: int, place: int, size: int) -> Tensor:
    tensor = torch.frombuffer(_memory(path, number), dtype=torch.uint8, count=size, offset=place)
    _STORAGES[tensor.untyped_storage().data_ptr()] = path, number, place, size
    return tensor


jobs.REDUCERS.append(_reduce)
