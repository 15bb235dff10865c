"""How sources read their knobs, from a link or from widgets; and what links and pages know of a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from attention.base.knobs import Choice, Knob, Limits, Range, to_text
from attention.files.picture import Picture
from attention.formula.config import divisors
from attention.sources import Source
from attention.sources.file import File
from attention.vision.examples import PictureNames


class ParameterReader(Protocol):
    """Returns the value of every knob: from a link, or from the widgets of a page."""

    limits: Limits

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The value of a knob.

        Args:
            knob: the knob.
            within: a range narrower than the declared one.
            fixed: the value to display where the knob has no effect.
        """
        ...

    def raw_value(self, knob: Knob) -> str:
        """The raw text of the knob, as in a link; empty where it is not set."""
        ...

    def divisor(self, knob: Knob, within: Divisors, fixed: str) -> int | None:
        """A number of heads, limited to the divisors in `within`."""
        ...

    def sequence(self, names: Sequence[str]) -> int:
        """The index of the sequence to show."""
        ...

    def matrices(self, names: Sequence[str]) -> Mapping[str, Any]:
        """The user's matrices by name; a matrix whose default is empty may be absent."""
        ...

    def file(self, knob: Knob) -> File:
        """The file that a knob names.

        Raises:
            AwaitedError: the file has not been uploaded.
        """
        ...

    def pictures(self, knob: Knob, within: PictureNames) -> tuple[Picture, ...]:
        """The pictures that a knob names, as many as `within` has.

        Raises:
            AwaitedError: a picture has not been uploaded.
        """
        ...


@dataclass(frozen=True)
class SourceKind:
    """What links and pages know about a source.

    Attributes:
        name: its name in links; public, it never changes.
        read: a function that reads the values of its knobs and returns the source. The knobs are read in the order of their widgets. It
            raises AttentionError if the knobs contradict each other, or if a value that is not in the link is missing.
        noun: what texts call its model or layer, such as "trained model"; empty: the name.
        knobs: of a source that a feature brings, the knobs that no other source has.
    """

    name: str
    read: Callable[[ParameterReader], Source]
    noun: str = ""
    knobs: tuple[Knob, ...] = ()

    @property
    def label(self) -> str:
        """What texts call it."""
        return self.noun or self.name


@dataclass(frozen=True)
class Divisors(Choice):
    """The numbers of heads that divide a total.

    Attributes:
        total: the number to divide; `total_label` describes it, such as "d_model 64".
        largest: the operator's limit.
        kind: what is counted.
        optional: whether None is allowed, which means the total.
    """

    total: int = 1
    largest: int = 1
    kind: str = "heads"
    total_label: str = ""
    optional: bool = False

    @classmethod
    def heads(cls, d_model: int, largest: int) -> Divisors:
        """The numbers of heads that d_model can be split into."""
        allowed = tuple(n for n in divisors(d_model) if n <= largest)
        return cls(allowed, total=d_model, largest=largest, total_label=f"d_model {d_model}")

    @classmethod
    def shared(cls, n_heads: int) -> Divisors:
        """The numbers of key heads that the query heads can share in equal groups."""
        queries = "1 head of queries" if n_heads == 1 else f"{n_heads} heads of queries"
        return cls(
            divisors(n_heads), total=n_heads, largest=n_heads, kind="heads of keys", total_label=queries, optional=True
        )

    def accepts(self, value: object) -> bool:
        """Whether the value divides the total."""
        return super().accepts(value) or (self.optional and value is None)

    def read(self, text: str) -> Any:
        """The number in a link."""
        return None if self.optional and not text else super().read(text)

    def nearest(self, value: int | None) -> int | None:
        """The number itself if it divides the total, otherwise the next smaller divisor."""
        return None if value is None else max(int(n) for n in self.options if n <= value)

    def replacement(self, text: str, default: Any) -> tuple[Any, str]:
        """The default, and the allowed values."""
        too_many = text in map(str, divisors(self.total))
        expected = (
            f"at most {self.largest}, {self.expected}"
            if too_many
            else f"{self.expected}, which divide {self.total_label}"
        )
        return default, f"{expected}: {to_text(default) or 'the default'} is used"

    def adjusted_note(self, requested: int) -> str:
        """The note on a number that was replaced since it does not divide the total."""
        adjusted = self.nearest(requested)
        result = (
            f"1 {self.kind.replace('heads', 'head')} is used" if adjusted == 1 else f"{adjusted} {self.kind} are used"
        )
        return f"{requested} {self.kind} do not divide {self.total_label}: {result}. Choose {', '.join(map(str, self.options))}."
