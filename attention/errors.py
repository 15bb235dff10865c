"""What can go wrong, each with a sentence for the person who did it.

    AttentionError
    ├── ConfigError      a knob is out of range, or two knobs contradict each other
    │   ├── SizeError        what is asked for is larger than may be made
    │   └── BusyError        nothing is wrong, but others have the room: the same works later
    ├── TextError        a text that gives no tokens
    ├── MatrixError      a pasted or uploaded matrix that cannot be read, or one that is missing
    ├── NumbersError     a row of numbers that cannot be read
    ├── FileError        a file that cannot be read
    │   └── AwaitedError     a file that is not here yet, which is no mistake
    ├── ModelError       a model that is not there, or cannot be loaded or recorded
    ├── ShapeError       tensors whose axes do not fit together
    ├── PictureError     a picture that cannot be made as asked
    └── MissingError     a step, layer, head or cell that this trace does not have

Every message says what was expected, what came, and what to do.
"""

from __future__ import annotations


class AttentionError(ValueError):
    """Parent of every error this package raises on purpose; its text may be shown to a person."""


class ConfigError(AttentionError):
    """A hyperparameter is out of range, or two of them contradict each other."""


class SizeError(ConfigError):
    """What is asked for is larger than may be made here."""


class BusyError(ConfigError):
    """Others have the memory or the place that this needs: the same works later."""


class TextError(AttentionError):
    """The text gives no tokens."""


class MatrixError(AttentionError):
    """A pasted or uploaded matrix is not rows of finite numbers, or one that is needed is missing."""


class NumbersError(AttentionError):
    """What should be a row of numbers is none, or too short, or too long."""


class FileError(AttentionError):
    """A file is not what it should be."""


class ModelError(AttentionError):
    """A model is not there, is not allowed here, or cannot be loaded or recorded."""


class AwaitedError(FileError):
    """A file that somebody still has to give: nothing is wrong."""


class ShapeError(AttentionError):
    """Two tensors of one layer disagree about the size of an axis."""


class PictureError(AttentionError):
    """A picture for a paper cannot be made as asked: its kind, its width, or what it is a picture of."""


class MissingError(AttentionError):
    """The trace has no such step, layer, head or cell."""


def check_index(what: str, index: int, size: int, verb: str = "count") -> None:
    """Raises MissingError where `what` has no such index, which counts from zero."""
    if not 0 <= index < size:
        raise MissingError(f"{what} {verb} from 0 to {size - 1}; got {index}: choose one of these.")
