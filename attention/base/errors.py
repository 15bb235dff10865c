"""The errors of this package, each with a sentence for the user.

    AttentionError
    ├── ConfigError      a knob is out of range, or two knobs contradict each other
    │   ├── SizeError        the request exceeds the limit of memory or time
    │   └── BusyError        the server has no free memory or place now; the same request works later
    ├── TextError        a text without tokens
    ├── MatrixError      a pasted or uploaded matrix that is invalid or missing
    ├── NumbersError     an invalid row of numbers
    ├── FileError        an invalid file
    │   └── AwaitedError     a file that the user has not provided yet; not a mistake
    ├── ModelError       a model that is missing, not allowed, or cannot be loaded or recorded
    ├── ShapeError       tensors whose shapes do not match
    ├── PictureError     a picture for print that cannot be made as requested
    └── MissingError     a step, layer, head or cell that the trace does not have

Every message says what was expected, what it got, and what to do.
"""

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


class AxesError(FileError):
    """The arrays of a file have other axes than ours; the user can name them."""


class ModelError(AttentionError):
    """A model is missing, not allowed, or cannot be loaded or recorded."""


class AwaitedError(FileError):
    """The user has not provided a file yet; not a mistake."""


class ShapeError(AttentionError):
    """Two tensors of one layer have different sizes of an axis."""


class PictureError(AttentionError):
    """A picture for print cannot be made with the requested kind, width or content."""


class MissingError(AttentionError):
    """The trace does not have a step, layer, head or cell."""


def check_index(noun: str, index: int, size: int, verb: str = "count") -> None:
    """Raises MissingError unless 0 ≤ index < size.

    Args:
        noun: the name of the indexed things, such as "heads".
        index: the index to check.
        size: the number of things.
        verb: the verb of the message.
    """
    if not size:
        raise MissingError(
            f"There are no {noun} here, as in a layer without attention; got {index}: choose another layer."
        )
    if not 0 <= index < size:
        raise MissingError(f"{noun} {verb} from 0 to {size - 1}; got {index}: choose one of these.")
