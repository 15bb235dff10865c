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
        if not _ROOT:
            _ROOT.append(Path(tempfile.mkdtemp(prefix="attention-lab-")))
            register(shutil.rmtree, _ROOT[0], ignore_errors=True)
        return _ROOT[0]


def use_root(root: Path) -> None:
    """Uses the folder of the process that this one works for, unless that is on another machine."""
    if root.is_dir():
        _ROOT[:] = [root]


def our_folder(name: str) -> Path | None:
    """The folder of one of our models, written at its first use; None for another name."""
    if name not in our_models():
        return None
    folder = our_root() / name
    with _MAKING:
        if not folder.is_dir():
            _write(our_models()[name], folder)
    return folder


def _write(model: OurModel, folder: Path) -> None:
    from transformers.utils import logging

    unfinished = Path(tempfile.mkdtemp(dir=folder.parent))
    shows_bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        for part in model.make():
            part.save_pretrained(unfinished)
    finally:
        if shows_bar:
            logging.enable_progress_bar()
    (unfinished / ABOUT_FILE).write_text(json.dumps({"about": model.about}), encoding="utf-8")
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
