"""Attention, step by step: texts in, every matrix of the attention formula out.

    from attention import AttentionConfig, TypedText
    trace = TypedText("the cat sat on the mat", AttentionConfig(mask="causal")).trace()
    trace.layers[0].weights      # tensor [head query_pos key_pos], rows sum to 1

This package never imports Streamlit. Importing it does not import torch; computing a trace does.
"""

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
from attention.formula.cell import Cell
from attention.formula.config import AttentionConfig
from attention.formula.intervention import Intervention
from attention.formula.layer import Layer
from attention.formula.prediction import Prediction
from attention.formula.steps import AXES, PARAMETERS, STEPS, Axis, Parameter, Step, find_step
from attention.formula.trace import Trace
from attention.formula.what_if import Override
from attention.numbers import metrics
from attention.numbers.arithmetic import Explanation
from attention.numbers.explain import explain
from attention.sources import Source
from attention.sources.file import File
from attention.sources.matrices import Matrices
from attention.sources.model import Model
from attention.sources.notebooks import NOTEBOOKS, Notebook
from attention.sources.trained import Trained
from attention.sources.typed_text import TypedText

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
    "explain",
    "find_step",
    "metrics",
]
