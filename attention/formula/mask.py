"""A mask as a value: the one place that says which keys a query may attend to, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attention.errors import ConfigError
from attention.formula.inline import expression
from attention.formula.mask_rules import RULES

if TYPE_CHECKING:  # torch takes more than a second to import; a page must open before that
    from attention.formula.axes import Visible


@dataclass(frozen=True)
class Mask:
    """Which keys a query may attend to, as a rule.

    Attributes:
        kind: one of `attention.formula.config.MASKS`; "padding" hides nothing but what is not `real`. Or "first": only the first
            key is visible.
        window: for the two window masks: how many positions away a key may be.
        prefix: for the prefix mask: how many first keys every query sees.
        cells: for the custom mask: which cells are hidden, as `attention.formula.masks.encode` writes it.
        real: for each key whether it is one, and not padding, which every mask hides; None where all are.
    """

    kind: str = "none"
    window: int = 0
    prefix: int = 0
    cells: str = ""
    real: tuple[bool, ...] | None = None

    def build(self, n_queries: int, n_keys: int) -> Visible:
        """The mask in numbers: True = may attend.

        Raises:
            ConfigError: `cells` is not what `encode` writes.
        """
        import torch

        from attention.formula import masks

        if rule := RULES.get(self.kind):
            visible = rule.visible(*masks.positions(n_queries, n_keys), self._size)
        elif self.kind == "custom":
            visible = masks.custom(n_queries, n_keys, self.cells)
        elif self.kind in ("none", "padding"):
            visible = masks.all_visible(n_queries, n_keys)
        else:
            raise ConfigError(
                f"a mask is one of none, {', '.join(RULES)}, padding, custom; got {self.kind[:20]!r}: choose one of them."
            )
        return visible if self.real is None else visible & masks.padding(n_queries, torch.tensor(self.real))

    def notes(self, n_queries: int, n_keys: int) -> tuple[str, ...]:
        """What a page must say about the mask: that a custom one was made for another size."""
        from attention.formula import masks

        if self.kind != "custom" or not self.cells or masks.size(self.cells) == (n_queries, n_keys):
            return ()
        rows, columns = masks.size(self.cells)
        return (
            f"The custom mask was made for {rows} × {columns} cells, the map is {n_queries} × {n_keys}: cells outside it are visible.",
        )

    @property
    def hides(self) -> bool:
        """Whether it may hide anything."""
        return self.kind not in ("none", "padding") or self.real is not None

    def in_page(self, n_queries: int, n_keys: int) -> dict[str, Any]:
        """The rule as the page's own arithmetic reads it: {kind, window, prefix, real, bits}.

        `real` [key_pos] is 0 for padding; `bits` [query_pos key_pos] is there where no rule says the cells.
        """
        import numpy as np

        real = None if self.real is None or all(self.real) else np.array(self.real, dtype=np.uint8)
        rule = {"kind": self.kind, "window": self.window, "prefix": self.prefix, "real": real, "bits": None}
        if self.kind == "custom" and self.cells:
            return rule | {"bits": self.build(n_queries, n_keys).numpy().astype(np.uint8)}
        return rule | ({} if self.kind in RULES else {"kind": "none"})

    def python(self, real: str = "real") -> str:
        """The rule as Python, in terms of `query_pos`, `key_pos` and, where there is padding, `real`; empty where none says it."""
        rule = expression(RULES[self.kind].visible, size=str(self._size)) if self.kind in RULES else ""
        if self.real is None or self.kind == "custom":
            return rule
        return f"({rule}) & {real}" if rule else f"{real}.expand(len(tokens), -1)"

    @property
    def _size(self) -> int:
        """The size of its rule, 0 where that has none."""
        name = RULES[self.kind].size
        return int(getattr(self, name)) if name else 0
