"""Source "matrices": the person's own numbers, every step of attention from them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attention.errors import MatrixError, ShapeError
from attention.formula.config import AttentionConfig, HeadSizes
from attention.formula.cost import Cost
from attention.formula.formula import Formula
from attention.formula.layer import Layer
from attention.formula.mask import Mask
from attention.formula.trace import Trace
from attention.sources.reading.matrix import Matrix, checked

if TYPE_CHECKING:
    from torch import Tensor

    from attention.sources import Snippet

SYMBOLS = {
    "x": "X",
    "w_q": "W_Q",
    "w_k": "W_K",
    "w_v": "W_V",
    "w_o": "W_O",
    "query": "Q",
    "key": "K",
    "value": "V",
}
"""The fields of `Matrices` that hold a matrix, and their letters in the formula."""

_PROJECTED, _DIRECT = ("x", "w_q", "w_k", "w_v"), ("query", "key", "value")
_EQUAL = (
    ("x", "columns", "w_q", "rows"),
    ("x", "columns", "w_k", "rows"),
    ("x", "columns", "w_v", "rows"),
    ("w_q", "columns", "w_k", "columns"),
    ("query", "columns", "key", "columns"),
    ("key", "rows", "value", "rows"),
    ("w_v", "columns", "w_o", "rows"),
    ("value", "columns", "w_o", "rows"),
    ("x", "columns", "w_o", "columns"),  # d_model: the output is added to the input
)
_LARGEST = 3.4e38  # pictures are drawn in single precision


@dataclass(frozen=True)
class Matrices:
    """One head of attention with the person's own numbers.

    Either X, W_Q, W_K and W_V, or Q, K and V; each with W_O or without. An empty matrix is one that
    is not given.

    Attributes:
        x: the input [query_pos d_model].
        w_q: its projection to queries [d_model d_k]; so `w_k`, and `w_v` [d_model d_v].
        w_o: the output projection [d_v d_model]; without it the trace has no `output`.
        query: the queries themselves [query_pos d_k].
        key: the keys themselves [key_pos d_k], and `value` [key_pos d_v]: as many or more or fewer
            than queries.
        tokens: a label for each query; by default x0, x1, …
        key_tokens: a label for each key; by default those of the queries, or k0, k1, … where there
            are not as many keys as queries.
        config: the knobs, of which `mask`, `window`, `temperature` and `scaled` are used, no other.
        max_bytes: of all steps together; more is refused before it is worked out.
    """

    x: Matrix = ()
    w_q: Matrix = ()
    w_k: Matrix = ()
    w_v: Matrix = ()
    w_o: Matrix = ()
    query: Matrix = ()
    key: Matrix = ()
    value: Matrix = ()
    tokens: tuple[str, ...] = ()
    key_tokens: tuple[str, ...] = ()
    config: AttentionConfig = field(default_factory=AttentionConfig)
    max_bytes: int = 2**33

    @property
    def base(self) -> Matrices:
        """The source that records the same, with the knobs after the scores where they were: its trace, turned, is this one's."""
        return replace(self, config=self.config.base)

    @property
    def needs(self) -> int:
        """The bytes that its trace takes while it is made, counted before.

        Raises:
            ConfigError: they are more than `max_bytes`.
        """
        return self._cost().within(self.max_bytes)

    def trace(self) -> Trace:
        """Every step the matrices allow, in float64, so that typed numbers stay what they are.

        Raises:
            MatrixError: a matrix is missing, or holds something else than finite numbers, or numbers so large that no picture
                can hold a step.
            ShapeError: two matrices, or a matrix and its labels, do not fit together.
            ConfigError: the steps would take more than `max_bytes`.
        """
        # Imported at first use: torch takes more than a second, and a page opens before that.
        from attention.formula.attend import project

        given = self._tensors()
        n_queries, n_keys = (
            (len(given["x"]),) * 2 if "x" in given else (given[name].shape[1] for name in ("query", "key"))
        )
        _ = self.needs
        recorded = {"input" if name == "x" else name: tensor for name, tensor in given.items()}
        if "x" in given:
            made = zip(_DIRECT, ("w_q", "w_k", "w_v"), strict=True)
            recorded |= {name: project(given["x"], given[weight]) for name, weight in made}
        tokens = self._labels(self.tokens, "tokens", "queries", "x", n_queries)
        same = n_keys == n_queries and not self.key_tokens
        key_tokens = tokens if same else self._labels(self.key_tokens, "key_tokens", "keys", "k", n_keys)
        layer = Layer(tokens=tokens, key_tokens=key_tokens, recorded=recorded, formula=Formula(mask=Mask()))
        trace = Trace(tokens, (layer,), key_tokens).turned(self.config)
        _check_drawable(trace.layers[0])
        return trace

    def snippet(self, trace: Trace) -> Snippet:
        """How the Python begins that makes the trace again: with the matrices themselves."""
        from attention.sources import snippets

        return snippets.matrices({name: getattr(self, name) for name in SYMBOLS if getattr(self, name)})

    def _cost(self) -> Cost:
        d_k, d_v = _width(self.w_q or self.query), _width(self.w_v or self.value)
        queries, keys = (len(self.x or given) for given in (self.query, self.key))
        sizes, d_model = HeadSizes(1, d_k, d_v), _width(self.x or self.w_o)
        maps = 3 + (self.config.mask != "none") + (self.config.cap is not None)
        return Cost(sizes, 1, d_model, queries, keys, 1, maps=maps, itemsize=8)

    def _tensors(self) -> dict[str, Tensor]:
        """The given matrices as [head row column], X as [query_pos d_model], once they fit together."""
        import torch

        rows = {name: checked(getattr(self, name), symbol) for name, symbol in SYMBOLS.items() if getattr(self, name)}
        _check_complete(set(rows))
        shapes = {name: {"rows": len(matrix), "columns": len(matrix[0])} for name, matrix in rows.items()}
        for left, left_axis, right, right_axis in _EQUAL:
            if {left, right} <= shapes.keys() and shapes[left][left_axis] != shapes[right][right_axis]:
                sides = (
                    f"{SYMBOLS[name]} is {shapes[name]['rows']} × {shapes[name]['columns']}" for name in (left, right)
                )
                raise ShapeError(
                    f"{' but '.join(sides)}: {SYMBOLS[left]}'s {left_axis} must be as many as {SYMBOLS[right]}'s {right_axis}."
                )
        tensors = {name: torch.tensor(matrix, dtype=torch.float64) for name, matrix in rows.items()}
        return {name: tensor if name == "x" else tensor[None] for name, tensor in tensors.items()}

    @staticmethod
    def _labels(labels: tuple[str, ...], field_name: str, rows: str, letter: str, size: int) -> tuple[str, ...]:
        if labels and len(labels) != size:
            raise ShapeError(
                f"{field_name} has {len(labels)} labels but there are {size} {rows}: give one label for each, or none."
            )
        return labels or tuple(f"{letter}{i}" for i in range(size))


def _width(matrix: Matrix) -> int:
    return len(matrix[0]) if matrix else 0


def _check_complete(given: set[str]) -> None:
    projected, direct = ([name for name in names if name in given] for names in (_PROJECTED, _DIRECT))
    if projected and direct:
        raise MatrixError(
            f"Attention starts from X, W_Q, W_K and W_V, or from Q, K and V; got {_listed([*projected, *direct])}: leave out {_listed(direct)}, or {_listed(projected)}."
        )
    if not projected and not direct:
        raise MatrixError(
            f"Attention needs X, W_Q, W_K and W_V, or Q, K and V; got {_listed(sorted(given)) or 'none of them'}: give one set or the other."
        )
    needed = _PROJECTED if projected else _DIRECT
    missing = [name for name in needed if name not in given]
    if missing:
        raise MatrixError(
            f"Attention needs {_listed(needed)}; got only {_listed(projected or direct)}: give {_listed(missing)} too."
        )


def _check_drawable(layer: Layer) -> None:
    given = [(SYMBOLS[name], getattr(layer, "input" if name == "x" else name)) for name in SYMBOLS]
    steps = [(step.symbol, tensor) for step, tensor in layer if step.name != "masked_scores"]  # its −∞ are meant
    for symbol, tensor in [*given, *steps]:
        if tensor is None:
            continue
        largest = float(tensor.abs().max())
        if not largest <= _LARGEST:  # NaN too: the product of infinities
            raise MatrixError(
                f"{symbol} needs numbers of at most {_LARGEST:g} in size, to be drawn; got {largest:.3g}: use smaller numbers, or a higher temperature."
            )


def _listed(names: list[str] | tuple[str, ...]) -> str:
    *first, last = (SYMBOLS[name] for name in names) if names else ("",)
    return f"{', '.join(first)} and {last}" if first else last
