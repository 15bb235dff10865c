"""Attention, step by step: texts in, every matrix of the attention formula out.

    from attention import AttentionConfig, TypedText
    trace = TypedText("the cat sat on the mat", AttentionConfig(mask="causal")).trace()
    trace.layers[0].weights      # tensor [head query_pos key_pos], rows sum to 1

This package never imports Streamlit. Importing it does not import torch; computing a trace does.
"""

from __future__ import annotations

from attention.analysis import metrics
from attention.analysis.compare.comparison import HeadIndex, compare
from attention.analysis.explain.arithmetic import Explanation
from attention.analysis.explain.explain import explain
from attention.core import display
from attention.core.cell import Cell
from attention.core.config import AttentionConfig
from attention.core.layer import Layer
from attention.core.override import Override
from attention.core.prediction import Prediction
from attention.core.steps import AXES, PARAMETERS, STEPS, Axis, Parameter, Step, find_step
from attention.core.trace import FILE_WRITERS, Trace
from attention.errors import (
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
from attention.io.arrays import array_writer
from attention.patching.intervention import Intervention
from attention.sources import Source
from attention.sources.file import File
from attention.sources.matrices import Matrices
from attention.sources.model import Model
from attention.sources.notebooks import NOTEBOOKS, Notebook
from attention.sources.trained import Trained
from attention.sources.typed_text import TypedText

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
]


def _html(displayed: object) -> str | None:
    """The HTML of an object in a notebook. Most programs draw nothing, so what draws is imported here."""
    from attention.notebook.representations import html

    return html(displayed)


display.register(_html)
