"""Numbers of heads that must divide another number, and the replacement of a number that does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attention.formula.config import divisors
from attention.formula.ranges import Choice, in_url


@dataclass(frozen=True)
class Divisors(Choice):
    """The numbers of heads that divide a total.

    Attributes:
        whole: the total; `divided` describes it, such as "d_model 64".
        most: the operator's limit.
        kind: what is counted.
        optional: whether None is allowed, which means the total.
    """

    whole: int = 1
    most: int = 1
    kind: str = "heads"
    divided: str = ""
    optional: bool = False

    @classmethod
    def heads(cls, d_model: int, most: int) -> Divisors:
        """The numbers of heads that d_model can be split into."""
        allowed = tuple(n for n in divisors(d_model) if n <= most)
        return cls(allowed, whole=d_model, most=most, divided=f"d_model {d_model}")

    @classmethod
    def shared(cls, n_heads: int) -> Divisors:
        """The numbers of key heads that the query heads can share in equal groups."""
        queries = "1 head of queries" if n_heads == 1 else f"{n_heads} heads of queries"
        return cls(divisors(n_heads), whole=n_heads, most=n_heads, kind="heads of keys", divided=queries, optional=True)

    def takes(self, value: object) -> bool:
        """Whether the value divides the total."""
        return super().takes(value) or (self.optional and value is None)

    def read(self, text: str) -> Any:
        """The number in a link."""
        return None if self.optional and not text else super().read(text)

    def nearest(self, value: int | None) -> int | None:
        """The number itself if it divides the total, otherwise the next smaller divisor."""
        return None if value is None else max(int(n) for n in self.options if n <= value)

    def refused(self, text: str, default: Any) -> tuple[Any, str]:
        """The default, and the allowed values."""
        too_many = text in map(str, divisors(self.whole))
        expected = (
            f"at most {self.most}, {self.expected}" if too_many else f"{self.expected}, which divide {self.divided}"
        )
        return default, f"{expected}: {in_url(default) or 'the default'} is used"

    def settled(self, requested: int) -> str:
        """The note on a number that was replaced since it does not divide the total."""
        adjusted = self.nearest(requested)
        result = (
            f"1 {self.kind.replace('heads', 'head')} is used" if adjusted == 1 else f"{adjusted} {self.kind} are used"
        )
        return f"{requested} {self.kind} do not divide {self.divided}: {result}. Choose {', '.join(map(str, self.options))}."
