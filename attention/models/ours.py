"""Models of ours: tiny ones with random weights, made by code, so that each medium can be seen without a download.

Their weights are whole numbers over a power of two: the same on every processor.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from atexit import register
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from safetensors import SafetensorError

from attention.base.errors import ModelError

ABOUT_FILE = "lab.json"
"""A file in a model's folder, {"about": a note that is shown with the model}."""
_STEPS = 2**15  # into which the interval of a weight is divided
_ROOT: list[Path] = []  # once it is known
_STARTING, _MAKING = Lock(), Lock()


class OurModel(NamedTuple):
    """A model that is made by code.

    Attributes:
        about: what it is, and that its weights are random.
        make: returns the model and what reads its input, each with `save_pretrained`.
    """

    about: str
    make: Callable[[], Sequence[Any]]


@cache
def our_models() -> dict[str, OurModel]:
    """Those of the features that are here, by name."""
    from attention.features import features

    return {name: model for feature in features() for name, model in feature.models.items()}


def our_root() -> Path:
    """The folder of our models: one for a process and its jobs, which end without cleaning up."""
    with _STARTING:
        if not (_ROOT and _ROOT[0].is_dir()):  # systems clean their temporary folders
            _ROOT[:] = [Path(tempfile.mkdtemp(prefix="attention-lab-"))]
            register(shutil.rmtree, _ROOT[0], ignore_errors=True)
        return _ROOT[0]


def use_root(root: Path) -> None:
    """Uses the folder of the process that this one works for, unless that is on another machine."""
    if root.is_dir():
        _ROOT[:] = [root]


def our_folder(name: str) -> Path | None:
    """The folder of one of our models, written where it is not complete; None for another name.

    Raises:
        ModelError: it cannot be written.
    """
    if name not in our_models():
        return None
    try:
        folder = our_root() / name
        with _MAKING:
            if not _is_complete(folder):
                shutil.rmtree(folder, ignore_errors=True)
                _write(our_models()[name], folder)
    except (OSError, SafetensorError) as error:
        message = " ".join(str(error).split())[:150]
        raise ModelError(
            f"{name} is made here and kept in the folder for temporary files, which fails with “{message}”: make room there, or name another folder "
            "by TMPDIR where this server is started."
        ) from error
    return folder


def _is_complete(folder: Path) -> bool:
    try:
        names = json.loads((folder / ABOUT_FILE).read_text(encoding="utf-8"))["files"]
    except OSError:
        return False
    return all((folder / name).is_file() for name in names)


def _write(model: OurModel, folder: Path) -> None:
    from transformers.utils import logging

    unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
    shows_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        for part in model.make():
            part.save_pretrained(unfinished)
        about = {"about": model.about, "files": [file.name for file in unfinished.iterdir()]}
        (unfinished / ABOUT_FILE).write_text(json.dumps(about), encoding="utf-8")
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    finally:
        if shows_bar:
            logging.enable_progress_bar()
    try:
        unfinished.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(unfinished, ignore_errors=True)


def with_random_weights(model: Any, seed: int = 0) -> Any:
    """A model of transformers whose weights are drawn anew, uniformly and so that each output has about the size of its inputs.

    What transformers sets to one number, as in a normalization, stays.
    """
    import numpy as np
    import torch

    random = np.random.default_rng(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 or (parameter.numel() and parameter.min() < parameter.max()):
                numbers = random.integers(-_STEPS, _STEPS + 1, tuple(parameter.shape)) / _STEPS
                n_inputs = parameter[0].numel() if parameter.ndim > 1 else len(parameter)
                parameter.copy_(torch.from_numpy(numbers * (3 / n_inputs) ** 0.5))
    return model.eval()
