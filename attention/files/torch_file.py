"""A file of torch.save, which is a pickle, as a .safetensors file: read in a child process within limits, never in this one.

Only the person whose machine this is decides to open one: with `attention.File.open`, or in a Lab whose operator allows models of the machine.
"""

from __future__ import annotations

import tempfile
from pathlib import Path, PurePath

from attention.base.errors import FileError
from attention.base.jobs import JobError, read_foreign
from attention.base.progress import current_callback
from attention.files.archives import TORCH_ENDINGS, quote

_SECONDS = 60
_OVERHEAD = 2**28  # bytes of the names, lists and objects of a file, beside its tensors


def is_torch_file(name: str) -> bool:
    """Whether a file of this name is one of torch.save."""
    return PurePath(name).suffix.lower() in TORCH_ENDINGS


def as_safetensors(file: Path | bytes, name: str, max_bytes: int) -> bytes:
    """The tensors, texts and numbers of a file of torch.save, as a .safetensors file that `attention.files.archives` reads under the old name.

    A layer in a list in a dictionary is called "attentions.0". The file, which may be given by its path, is mapped into memory, so a large one costs only its tensors.

    Raises:
        FileError: it is damaged, takes too much memory or time, holds objects that need their code, or the parameters of a model.
        OSError: there is no such file.
    """
    from attention.files.torch_child import tensors_of  # imports torch

    if isinstance(file, bytes):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "file")
            path.write_bytes(file)
            return as_safetensors(path, name, max_bytes)
    if callback := current_callback():
        callback(f"Opening {quote(name)} in a process of its own …", 0.1)
    try:
        n_bytes = file.stat().st_size + 2 * max_bytes + _OVERHEAD  # the mapped file, its tensors, and the result
        return read_foreign(tensors_of, str(file.absolute()), quote(name), max_bytes, n_bytes=n_bytes, seconds=_SECONDS)
    except JobError as error:
        raise FileError(
            f"{quote(name)} is not read, since this {error}: save only the attention, for example with torch.save(outputs.attentions, …)."
        ) from None
