"""Numbers of heads: those that divide what they must, and what becomes of one that does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attention.formula.config import divisors
from attention.formula.ranges import Choice, in_url


@dataclass(frozen=True)
class Divisors(Choice):
    """The numbers of heads that divide something.

    Attributes:
        whole: what they divide; `divided` the same in words, such as "d_model 64".
        most: how many an operator allows.
        kind: what there is that number of.
        optional: whether there may be none, which stands for the whole itself.
    """

    whole: int = 1
    most: int = 1
    kind: str = "heads"
    divided: str = ""
    optional: bool = False

    @classmethod
    def heads(cls, d_model: int, most: int) -> Divisors:
        """The numbers of heads that a d_model can be cut into."""
        fit = tuple(n for n in divisors(d_model) if n <= most)
        return cls(fit, whole=d_model, most=most, divided=f"d_model {d_model}")

    @classmethod
    def shared(cls, n_heads: int) -> Divisors:
        """The numbers of heads of keys that so many heads of queries can share in equal groups."""
        words = "1 head of queries" if n_heads == 1 else f"{n_heads} heads of queries"
        return cls(divisors(n_heads), whole=n_heads, most=n_heads, kind="heads of keys", divided=words, optional=True)

    def takes(self, value: object) -> bool:
        """Whether it divides."""
        return super().takes(value) or (self.optional and value is None)

    def read(self, text: str) -> Any:
        """The number that a link says."""
        return None if self.optional and not text else super().read(text)

    def nearest(self, value: int | None) -> int | None:
        """The number itself where it divides, otherwise the next smaller that does."""
        return None if value is None else max(int(n) for n in self.options if n <= value)

    def refused(self, text: str, default: Any) -> tuple[Any, str]:
        """The default, and what may be."""
        too_many = text in map(str, divisors(self.whole))
        expected = (
            f"at most {self.most}, {self.expected}" if too_many else f"{self.expected}, which divide {self.divided}"
        )
        return default, f"{expected}: {in_url(default) or 'the default'} is used"

    def settled(self, wish: int) -> str:
        """What became of a number that does not divide."""
        found = self.nearest(wish)
        now_there = (
            f"now there is 1 {self.kind.replace('heads', 'head')}"
            if found == 1
            else f"now there are {found} {self.kind}"
        )
        return (
            f"{wish} {self.kind} do not divide {self.divided}: {now_there}. Choose {', '.join(map(str, self.options))}."
        )
