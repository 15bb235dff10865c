"""Which keys a query may attend to, as a value; it gives the mask as a tensor, as Python and for the page.

The rules are functions of positions that copied programs contain too, one line of the table `RULES` for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attention.base.errors import ConfigError
from attention.formula.inline import expression

if TYPE_CHECKING:  # torch takes more than a second to import; a page must open before that
    from torch import Tensor

    from attention.formula.tensor_types import Visible


@dataclass(frozen=True)
class _Rule:
    """One mask rule.

    Attributes:
        visible: the visible cells, from `query_pos` as a column, `key_pos` as a row, and the sizes.
        size: the field of `Mask` that holds the size; empty for a rule without size.
        right: the field that holds the size after the query, if that may be another one.
        shifts: whether the queries may stand further back in the sequence than their numbers say (`query_offset`).
        in_knob: whether the Mask knob offers the rule; otherwise it is only for interventions.
        of_patches: the visible cells by the places of patches, which are hidden beside those of `visible`: from the places of the queries
            [query_pos 1 3], those of the keys [1 key_pos 3], and the size. None: the rule needs no patches.
    """

    visible: Callable[..., Visible]
    size: str = ""
    right: str = ""
    shifts: bool = True
    in_knob: bool = True
    of_patches: Callable[[Tensor, Tensor, int], Visible] | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of `Mask` on which the visible cells depend."""
        return tuple(name for name in (self.size, self.right, "query_offset" * self.shifts) if name)


def _causal(query_pos: Tensor, key_pos: Tensor, size: int = 0) -> Visible:
    return key_pos <= query_pos


def _window(query_pos: Tensor, key_pos: Tensor, size: int, right: int) -> Visible:
    """The keys at most `size` positions before the query, and at most `right` after it."""
    # The difference of the positions would take 8 bytes per cell.
    return (key_pos >= query_pos - size) & (key_pos <= query_pos + right)


def _causal_window(query_pos: Tensor, key_pos: Tensor, size: int) -> Visible:
    """The keys at most `size` positions before the query, and its own."""
    return (key_pos <= query_pos) & (key_pos >= query_pos - size)


def _prefix(query_pos: Tensor, key_pos: Tensor, size: int) -> Visible:
    """Causal, and the first `size` keys for every query."""
    return (key_pos <= query_pos) | (key_pos < size)


def _first(query_pos: Tensor, key_pos: Tensor, size: int = 0) -> Visible:
    return (key_pos < 1).expand(len(query_pos), -1)


def _every(query_pos: Tensor, key_pos: Tensor, size: int = 0) -> Visible:
    return (key_pos >= 0).expand(len(query_pos), -1)


def _patch_window(query_places: Tensor, key_places: Tensor, size: int) -> Visible:
    """The patches of the same picture at most `size` rows and `size` columns away; between other tokens, and between them and patches, every key.

    The places are picture, row and column, −1 for a token that is no patch.
    """
    is_pair = (query_places[..., 0] >= 0) & (key_places[..., 0] >= 0)
    is_near = ((query_places - key_places).abs()[..., 1:] <= size).all(-1)
    return ~is_pair | (is_near & (query_places[..., 0] == key_places[..., 0]))


RULES: dict[str, _Rule] = {
    "causal": _Rule(_causal),
    "window": _Rule(_window, "window", "window_right"),
    "causal window": _Rule(_causal_window, "window"),
    "prefix": _Rule(_prefix, "prefix"),
    "first": _Rule(_first, shifts=False, in_knob=False),
    "patch window": _Rule(_every, "window", shifts=False, in_knob=False, of_patches=_patch_window),
    "causal patch window": _Rule(_causal, "window", shifts=False, in_knob=False, of_patches=_patch_window),
}
"""Every rule, by the kind of mask."""

SIZES = tuple(dict.fromkeys(name for rule in RULES.values() for name in rule.fields))
"""The fields of a mask that are numbers, each of them a knob of its name."""

KNOB_RULES = tuple(kind for kind, rule in RULES.items() if rule.in_knob)


@dataclass(frozen=True)
class Mask:
    """Which keys a query may attend to, as a rule.

    Attributes:
        kind: one of `attention.formula.config.MASKS`; "padding" hides only padding. Or "first": only the first key is visible. Or "patch window" or "causal patch window",
            which need patches of a picture.
        window: for the two window masks: the largest distance of a visible key, in positions; for the two windows of patches, in rows and columns.
        window_right: for the window mask: the largest distance of a visible key after the query; None: as before it.
        query_offset: how many keys are before the first query, as in a cache of earlier keys: query i stands at position i + query_offset. Keys
            minus queries aligns the last of both (bottom right). Negative: the first queries are before the first key.
        prefix: for the prefix mask: the number of leading keys that every query sees.
        cells: for the custom mask: the hidden cells, in the format of `attention.formula.mask_tensor.encode`.
        real: for each key, False if it is padding, which every mask hides; None: there is no padding.
    """

    kind: str = "none"
    window: int = 0
    prefix: int = 0
    cells: str = ""
    real: tuple[bool, ...] | None = None
    window_right: int | None = None
    query_offset: int = 0

    @property
    def needs_patches(self) -> bool:
        """Whether the rule needs tokens that are patches of a picture."""
        return self.kind in RULES and RULES[self.kind].of_patches is not None

    def build(
        self,
        n_queries: int,
        n_keys: int,
        places: tuple[Tensor, Tensor] | None = None,
        rows: slice = slice(None),
    ) -> Visible:
        """The mask as a tensor, of all queries or of some `rows`: True = may attend.

        Args:
            places: the places of the queries and of the keys, each as `patch_places` returns them, for a rule that needs patches.

        Raises:
            ConfigError: there is no such kind of mask, it needs patches and there are none, or `cells` is not in the format of `encode`.
        """
        import torch

        from attention.formula import mask_tensor

        if rule := RULES.get(self.kind):
            query_pos, key_pos = mask_tensor.positions(n_queries, n_keys)
            query_pos = query_pos[rows]
            visible = rule.visible(query_pos + self._offset, key_pos, **self._sizes)
            if rule.of_patches is not None:
                if places is None or not all(bool((each >= 0).any()) for each in places):
                    raise ConfigError(
                        f"A {self.kind} needs queries and keys that are patches of a picture; this layer has none: choose another mask, or a layer that reads the picture."
                    )
                visible = visible & rule.of_patches(places[0][rows, None], places[1][None], self.window)
        elif self.kind == "custom":
            visible = mask_tensor.custom(n_queries, n_keys, self.cells)[rows]
        elif self.kind in ("none", "padding"):
            visible = torch.ones(n_queries, n_keys, dtype=torch.bool)[rows]
        else:
            raise ConfigError(
                f"a mask is one of none, {', '.join(RULES)}, padding, custom; got {self.kind[:20]!r}: choose one of them."
            )
        return visible if self.real is None else visible & torch.tensor(self.real)

    def notes(self, n_queries: int, n_keys: int) -> tuple[str, ...]:
        """Notes for pages: a sentence if a custom mask was made for another size."""
        from attention.formula import mask_tensor

        if self.kind != "custom" or not self.cells or mask_tensor.encoded_size(self.cells) == (n_queries, n_keys):
            return ()
        rows, columns = mask_tensor.encoded_size(self.cells)
        return (
            f"The custom mask was made for {rows} × {columns} cells, the map is {n_queries} × {n_keys}: cells outside it are visible.",
        )

    @property
    def may_hide(self) -> bool:
        """Whether the rule may hide a key."""
        return self.kind not in ("none", "padding") or self.real is not None

    def why_hidden(self, query: int, key: int) -> str:
        """What hides a key from a query, in words: padding, or the rule and how it tells them apart."""
        if self.real is not None and not self.real[key]:
            return f"padding: key {key} is no token of the text"
        why = ""
        if key > query and "causal" in self.kind:
            why = f": key {key} comes after query {query}"
        elif "window" in self.kind and not self.needs_patches:
            why = f": key {key} is {abs(key - query)} positions from query {query}"
        return f"the {self.kind} mask{why}" if self.kind in RULES or self.kind == "custom" else "the mask"

    def for_page(self, n_queries: int, n_keys: int, places: tuple[Tensor, Tensor] | None = None) -> dict[str, Any]:
        """The rule in the format of kernel.js: {kind, real, bits} and the numbers of `SIZES`.

        `real` [key_pos] is 0 for padding; `bits` [query_pos key_pos] has the cells of a custom mask, and of a window of patches,
        which is a custom mask to the page; `places` as for `build`.
        """
        import numpy as np

        real = None if self.real is None or all(self.real) else np.array(self.real, dtype=np.uint8)
        rule = {"kind": self.kind, **{size: getattr(self, size) for size in SIZES}, "real": real, "bits": None}
        if self.needs_patches or (self.kind == "custom" and self.cells):
            rule["kind"] = "custom"
            return rule | {"bits": self.build(n_queries, n_keys, places).numpy().astype(np.uint8)}
        return rule | ({} if self.kind in RULES else {"kind": "none"})

    def python(self, real: str = "real") -> str:
        """The rule as a Python expression of `query_pos`, `key_pos` and, with padding, `real`; empty if there is no rule, or none of positions."""
        if self.needs_patches:
            return ""  # written out, cell by cell
        sizes = {name: str(size) for name, size in self._sizes.items()}
        if self._offset:
            sizes["query_pos"] = f"query_pos {'-' if self._offset < 0 else '+'} {abs(self._offset)}"
        rule = expression(RULES[self.kind].visible, **sizes) if self.kind in RULES else ""
        if self.real is None or self.kind == "custom":
            return rule
        return f"({rule}) & {real}" if rule else f"{real}.expand(len(tokens), -1)"

    @property
    def _offset(self) -> int:
        """The position of the first query among the keys."""
        return self.query_offset if self.kind in RULES and RULES[self.kind].shifts else 0

    @property
    def _sizes(self) -> dict[str, int]:
        """The sizes of the rule, by the parameters of its function."""
        rule = RULES.get(self.kind)
        if rule is None or not rule.size:
            return {}
        size = int(getattr(self, rule.size))
        right = getattr(self, rule.right) if rule.right else None
        return {"size": size} | ({"right": size if right is None else right} if rule.right else {})


def detect_mask(visible: Visible) -> Mask | Visible:
    """The mask rule that gives these visible cells [query_pos key_pos], or the cells if no rule does.

    More keys than queries may be those of a cache, before the first query.
    """
    import torch

    farthest, n_queries, n_keys = 0, *visible.shape
    queries = visible.any(dim=1).nonzero()[:, 0]  # queries with at least one visible key
    if len(queries):
        rows = visible[queries].byte()  # as distances, every cell would take 8 bytes
        first, last = rows.argmax(dim=1), rows.shape[1] - 1 - rows.flip(1).argmax(dim=1)
        farthest = int(torch.maximum((queries - first).abs(), (queries - last).abs()).max())
    rules = [
        Mask(kind, window=farthest if "window" in kind else 0) for kind in ("none", "causal", "causal window", "window")
    ]
    rules += [Mask("causal", query_offset=n_keys - n_queries)] * (n_keys > n_queries)
    for mask in rules:
        if torch.equal(mask.build(n_queries, n_keys), visible):
            return mask
    return visible.clone()
