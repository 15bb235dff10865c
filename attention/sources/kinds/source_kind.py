"""The declaration of a source for links and pages: its name, and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attention.sources import Source
from attention.sources.reader import ParameterReader


@dataclass(frozen=True)
class SourceKind:
    """What links and pages know about a source.

    Attributes:
        name: its name in links; public, it never changes.
        read: a function that reads the values of its knobs and returns the source. The knobs are read in the order of their widgets. It
            raises AttentionError if the knobs contradict each other, or if a value that is not in the link is missing.
        noun: what texts call its model or layer, such as "trained model"; empty: the name.
    """

    name: str
    read: Callable[[ParameterReader], Source]
    noun: str = ""

    @property
    def label(self) -> str:
        """What texts call it."""
        return self.noun or self.name
