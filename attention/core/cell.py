"""The address of one number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """The address of one number: layer, step, head, row and column, from zero."""

    layer: int
    step: str
    head: int
    row: int
    column: int

    @property
    def address(self) -> tuple[str, int, int, int, int]:
        """The step, layer, head, row and column, as `explain` takes them."""
        return self.step, self.layer, self.head, self.row, self.column
