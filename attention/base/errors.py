"""The errors of this package. Every message is a sentence for the user: what was expected, what it got, and what to do."""

from __future__ import annotations


class AttentionError(ValueError):
    """The base class of all errors that this package raises; users may see the message."""


class ConfigError(AttentionError):
    """A hyperparameter is out of range, or two of them contradict each other."""


class SizeError(ConfigError):
    """The request exceeds the limit of memory or time."""


class BusyError(ConfigError):
    """The server has no free memory or place now; the same request works later."""


class TextError(AttentionError):
    """The text has no tokens."""


class MatrixError(AttentionError):
    """A pasted or uploaded matrix is not rows of finite numbers, or a required matrix is missing."""


class NumbersError(AttentionError):
    """A text is not a row of numbers, or the row has the wrong length."""


class FileError(AttentionError):
    """A file is invalid."""


class ModelError(AttentionError):
    """A model is missing, not allowed, or cannot be loaded or recorded."""


class AxesError(FileError):
    """The arrays of a file have other axes than ours; the user can name them."""


class AwaitedError(FileError):
    """The user has not provided a file yet; not a mistake."""


class ShapeError(AttentionError):
    """Two tensors of one layer have different sizes of an axis."""


class PictureError(AttentionError):
    """A picture for print cannot be made with the requested kind, width or content."""


class MissingError(AttentionError):
    """The trace does not have a step, layer, head or cell."""


def check_index(noun: str, index: int, size: int, verb: str = "count") -> None:
    """Raises MissingError unless 0 ≤ index < size; `noun` is what is indexed, such as "heads"."""
    if not size:
        raise MissingError(
            f"There are no {noun} here, as in a layer without attention; got {index}: choose another layer."
        )
    if not 0 <= index < size:
        raise MissingError(f"{noun} {verb} from 0 to {size - 1}; got {index}: choose one of these.")
