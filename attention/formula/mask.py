"""A mask as a value: the one place that says which keys a query may attend to, in numbers and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attention.errors import ConfigError

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

        match self.kind:
            case "causal":
                visible = masks.causal(n_queries, n_keys)
            case "window":
                visible = masks.window(n_queries, n_keys, self.window)
            case "causal window":
                visible = masks.causal(n_queries, n_keys) & masks.window(n_queries, n_keys, self.window)
            case "prefix":
                visible = masks.prefix(n_queries, n_keys, self.prefix)
            case "first":
                visible = masks.first(n_queries, n_keys)
            case "custom":
                visible = masks.custom(n_queries, n_keys, self.cells)
            case "none" | "padding":
                visible = masks.all_visible(n_queries, n_keys)
            case _:
                raise ConfigError(
                    f"a mask is one of those that `Mask` names; got {self.kind[:20]!r}: choose one of them."
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
        return rule | ({} if self.kind in _RULES else {"kind": "none"})

    def python(self, real: str = "real") -> str:
        """The rule as Python, in terms of `query_pos`, `key_pos` and, where there is padding, `real`; empty where none says it."""
        rule = _RULES.get(self.kind, "").format(window=self.window, prefix=self.prefix)
        if self.real is None or self.kind == "custom":
            return rule
        return f"({rule}) & {real}" if rule else f"{real}.expand(len(tokens), -1)"


_RULES = {
    "causal": "key_pos <= query_pos",
    "window": "(key_pos - query_pos).abs() <= {window}",
    "causal window": "(key_pos <= query_pos) & (key_pos >= query_pos - {window})",
    "prefix": "(key_pos <= query_pos) | (key_pos < {prefix})",
    "first": "(key_pos < 1).expand(len(query_pos), -1)",
}
