"""Attention, step by step: texts in, every matrix of the attention formula out.

    from attention import AttentionConfig, TypedText
    trace = TypedText("the cat sat on the mat", AttentionConfig(mask="causal")).trace()
    trace.layers[0].weights      # tensor [head query_pos key_pos], rows sum to 1

This package never imports Streamlit. Importing it does not import torch; computing a trace does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from attention import metrics
from attention.base import printed
from attention.base.errors import (
    AttentionError,
    ConfigError,
    FileError,
    MatrixError,
    MissingError,
    ModelError,
    NumbersError,
    PictureError,
    ShapeError,
    TextError,
)
from attention.explanation.explain import explain
from attention.explanation.explanation import Explanation
from attention.files import array_writer
from attention.formula.config import AttentionConfig
from attention.formula.names import Cell
from attention.formula.override import Override
from attention.formula.steps import AXES, PARAMETERS, STEPS, Axis, Parameter, Step, find_step
from attention.patching.intervention import Intervention
from attention.sources import Source, user_trace
from attention.sources.file import File
from attention.sources.matrices import Matrices
from attention.sources.model import Model
from attention.sources.typed_text import TypedText
from attention.trace.layer import Layer
from attention.trace.trace import FILE_WRITERS, Prediction, Trace, register_tensor_reader

if TYPE_CHECKING:
    from attention.comparison.comparison import HeadIndex, compare
    from attention.recording.record import record
    from attention.training.trained import Trained
    from attention.tutorials.notebook import NOTEBOOKS, Notebook

__version__ = "0.1.0"

FILE_WRITERS |= {".npz": array_writer.npz, ".safetensors": array_writer.safetensors}

__all__ = [
    "AXES",
    "NOTEBOOKS",
    "PARAMETERS",
    "STEPS",
    "AttentionConfig",
    "AttentionError",
    "Axis",
    "Cell",
    "ConfigError",
    "Explanation",
    "File",
    "FileError",
    "HeadIndex",
    "Intervention",
    "Layer",
    "Matrices",
    "MatrixError",
    "MissingError",
    "Model",
    "ModelError",
    "Notebook",
    "NumbersError",
    "Override",
    "Parameter",
    "PictureError",
    "Prediction",
    "ShapeError",
    "Source",
    "Step",
    "TextError",
    "Trace",
    "Trained",
    "TypedText",
    "compare",
    "explain",
    "find_step",
    "metrics",
    "record",
]


_IMPORTED_AT_FIRST_USE = {
    "record": "recording.record",
    "HeadIndex": "comparison.comparison",
    "compare": "comparison.comparison",
    "Trained": "training.trained",
    "NOTEBOOKS": "tutorials.notebook",
    "Notebook": "tutorials.notebook",
}


def __getattr__(name: str) -> object:
    """A name of a feature, or one that needs torch, imported at first use: a user need not know where it lives."""
    if name not in _IMPORTED_AT_FIRST_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"attention.{_IMPORTED_AT_FIRST_USE[name]}"), name)


def _html(displayed: object) -> str | None:
    """The HTML of an object in a notebook. Most programs draw nothing, so what draws is imported here."""
    from attention.notebook.representations import html

    return html(displayed)


printed.register_html(_html)
register_tensor_reader(user_trace.trace_of)
