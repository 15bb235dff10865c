"""Numbers of heads that must divide another number, and the replacement of a number that does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attention.core.config import divisors
from attention.params.ranges import Choice, to_text


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
