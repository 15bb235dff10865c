"""Attention, step by step: texts in, every matrix of the attention formula out.

    from attention import AttentionConfig, TypedText
    trace = TypedText("the cat sat on the mat", AttentionConfig(mask="causal")).trace()
    trace.layers[0].weights      # tensor [head query_pos key_pos], rows sum to 1

This package never imports Streamlit. Importing it does not import torch; computing a trace does. What a feature adds is imported from it:
`from attention.training import Trained`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention import metrics
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
from attention.explanation.explanation import Explanation, explain
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
    from attention.recording.record import record

__version__ = "0.1.0"

FILE_WRITERS |= {".npz": array_writer.npz, ".safetensors": array_writer.safetensors}

__all__ = [
    "AXES",
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
    "Intervention",
    "Layer",
    "Matrices",
    "MatrixError",
    "MissingError",
    "Model",
    "ModelError",
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
    "TypedText",
    "explain",
    "find_step",
    "metrics",
    "record",
]


def __getattr__(name: str) -> object:
    """`record` needs torch, which is imported at first use."""
    if name != "record":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from attention.recording.record import record

    return record


register_tensor_reader(user_trace.trace_of)
