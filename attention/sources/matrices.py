"""Source "matrices": the person's own numbers, every step of attention from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attention.errors import MatrixError, ShapeError
from attention.formula.config import AttentionConfig, HeadSizes
from attention.formula.cost import Cost
from attention.formula.dropping import Dropping, GivenDropping
from attention.formula.formula import Formula
from attention.formula.layer import Layer
from attention.formula.mask import Mask
from attention.formula.names import INPUT, KEY, MASKED_SCORES, MEMORY, QUERY, SCORES, VALUE
from attention.formula.trace import Trace
from attention.sources import cutting
from attention.sources.cutting import SYMBOLS, Given, Shape

if TYPE_CHECKING:
    from attention.sources import Snippet

_PROJECTED, _DIRECT, _SCORED = ("x", "w_q", "w_k", "w_v"), (QUERY, KEY, VALUE), (SCORES, VALUE)
_BESIDE = {"b_q": "w_q", "b_k": "w_k", "b_v": "w_v", "b_o": "w_o", MEMORY: "x"}  # what makes sense with another only
_LARGEST = 3.4e38  # pictures are drawn in single precision


@dataclass(frozen=True)
class Matrices:
    """Attention with the person's own numbers.

    X, W_Q, W_K and W_V; or X alone, which is Q, K and V itself; or Q, K and V; or scores and V. Each with W_O or without. An
    empty matrix is one that is not given. Several heads are cut from the columns of each matrix, and from the rows of W_O, as
    `nn.MultiheadAttention` does; or a matrix is a stack [head …], of which keys and values may have fewer.

    Attributes:
        x: the input [query_pos d_model].
        w_q: its projection to queries [d_model d_k]; so `w_k`, and `w_v` [d_model d_v].
        w_o: the output projection [d_v d_model], or of any other width; without it the trace has no `output`.
        query: the queries themselves [query_pos d_k].
        key: the keys themselves [key_pos d_k], and `value` [key_pos d_v]: as many or more or fewer
            than queries.
        tokens: a label for each query; by default x0, x1, …
        key_tokens: a label for each key; by default those of the queries, or k0, k1, … where there
            are not as many keys as queries.
        config: the knobs after the scores, but what is drawn; no other is used.
        max_bytes: of all steps together; more is refused before it is worked out.
        n_heads: into how many heads the columns are cut; a stack says it by itself.
        b_q: a row that is added to every query; so `b_k`, `b_v`, and `b_o` to every output.
        memory: X₂ [key_pos d_model], which keys and values are made of instead of X.
        scores: the scores themselves [query_pos key_pos], with `value` and without queries and keys.
        bias: what is added to the scores before the mask, for all heads or as a stack; −∞ hides a key, as a float mask does.
        dropout_mask: what the weights are multiplied by, for all heads or as a stack: a mask of zeros and ones, or scaled.
        divisor: of the scores, instead of √d_k.
        valid: how many first keys are real; what comes after them is padding.
    """

    x: Given = ()
    w_q: Given = ()
    w_k: Given = ()
    w_v: Given = ()
    w_o: Given = ()
    query: Given = ()
    key: Given = ()
    value: Given = ()
    tokens: tuple[str, ...] = ()
    key_tokens: tuple[str, ...] = ()
    config: AttentionConfig = field(default_factory=AttentionConfig)
    max_bytes: int = 2**33
    n_heads: int = 1
    b_q: Given = ()
    b_k: Given = ()
    b_v: Given = ()
    b_o: Given = ()
    memory: Given = ()
    scores: Given = ()
    bias: Given = ()
    divisor: float | None = None
    valid: int | None = None
    dropout_mask: Given = ()

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
        from attention.formula.functions import project

        given = self._given()
        _check_complete(set(given))
        self._check_numbers()
        recorded = cutting.tensors(given, self.n_heads)
        n_queries, n_keys = cutting.sizes(recorded)
        if self.valid is not None and not (isinstance(self.valid, int) and 1 <= self.valid <= n_keys):
            raise ShapeError(
                f"valid is how many first keys are real, 1 to {n_keys}; got {self.valid}: choose one of these."
            )
        _ = self.needs
        if "x" in recorded:
            keys = recorded.get(MEMORY, recorded["x"])
            for name, rows in ((QUERY, recorded["x"]), (KEY, keys), (VALUE, keys)):
                w, b = (recorded.get(f"{kind}_{name[0]}") for kind in "wb")
                recorded[name] = rows[None] if w is None else project(rows, w, b)
            recorded[INPUT] = recorded.pop("x")
        tokens = self._labels(self.tokens, "tokens", "queries", "x", n_queries)
        same = n_keys == n_queries and not self.key_tokens and not self.memory
        key_tokens = tokens if same else self._labels(self.key_tokens, "key_tokens", "keys", "k", n_keys)
        real = None if self.valid is None else tuple(at < self.valid for at in range(n_keys))
        formula = Formula(
            mask=Mask(real=real),
            bias="given" if self.bias else "",
            own_divisor=self.divisor,
            dropping=GivenDropping() if self.dropout_mask else Dropping(),
        )
        layer = Layer(tokens=tokens, key_tokens=key_tokens, recorded=recorded, formula=formula)
        trace = Trace(tokens, (layer,), key_tokens).turned(self.config)
        _check_drawable(trace.layers[0])
        return trace

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """How the Python begins that makes the trace again: with the matrices themselves."""
        from attention.sources import snippets

        return snippets.matrices(trace.layers[0], tuple(self._given()))

    def _given(self) -> dict[str, Given]:
        return {name: getattr(self, name) for name in SYMBOLS if getattr(self, name)}

    def _cost(self) -> Cost:
        shapes = {name: Shape.of(given) for name, given in self._given().items()}
        heads = cutting.heads(shapes, self.n_heads)

        def first(*names: str) -> Shape:
            return next((shapes[name] for name in names if name in shapes), Shape(0, 0, 0))

        def width(*names: str) -> int:
            shape = first(*names)
            return shape.columns if shape.stack else shape.columns // heads

        sizes = HeadSizes(heads, width("w_q", QUERY, "x"), width("w_v", VALUE, "x"))
        queries, keys = first("x", QUERY, SCORES).rows, first(MEMORY, "x", KEY, VALUE).rows
        maps = (
            3
            + (self.config.mask != "none")
            + (self.config.cap is not None)
            + 2 * (bool(self.bias) + bool(self.dropout_mask))
        )
        d_model = max(first("x").columns, first("w_o").columns)
        memory = int(bool(self.memory))
        return Cost(sizes, heads, d_model, queries, keys, heads, memory=memory, maps=maps, itemsize=8)

    def _check_numbers(self) -> None:
        if not isinstance(self.n_heads, int) or self.n_heads < 1:
            raise MatrixError(
                f"n_heads is a whole number from 1; got {self.n_heads}: choose one, 1 does not cut the matrices."
            )
        if self.divisor is not None and not (math.isfinite(self.divisor) and self.divisor > 0):
            raise MatrixError(f"divisor is a number above 0; got {self.divisor}: choose one, or None for √d_k.")

    @staticmethod
    def _labels(labels: tuple[str, ...], field_name: str, rows: str, letter: str, size: int) -> tuple[str, ...]:
        if labels and len(labels) != size:
            raise ShapeError(
                f"{field_name} has {len(labels)} labels but there are {size} {rows}: give one label for each, or none."
            )
        return labels or tuple(f"{letter}{i}" for i in range(size))


def _check_complete(given: set[str]) -> None:
    projected, direct, scored = ([name for name in names if name in given] for names in (_PROJECTED, _DIRECT, _SCORED))
    others = [*projected, *(name for name in direct if name != VALUE)]
    if SCORES in given and (others or VALUE not in given):
        what = f"leave out {_listed(others)}" if others else "give V too"
        raise MatrixError(f"Attention from given scores needs S and V; got {_listed([*others, *scored])}: {what}.")
    if projected and direct:
        raise MatrixError(
            f"Attention starts from X, W_Q, W_K and W_V, or from Q, K and V; got {_listed([*projected, *direct])}: leave out {_listed(direct)}, or {_listed(projected)}."
        )
    if not projected and not direct:
        raise MatrixError(
            f"Attention needs X, W_Q, W_K and W_V, or Q, K and V; got {_listed(sorted(given)) or 'none of them'}: give one set or the other."
        )
    needed = _SCORED if SCORES in given else ("x",) if projected == ["x"] else _PROJECTED if projected else _DIRECT
    missing = [name for name in needed if name not in given]
    if missing:
        raise MatrixError(
            f"Attention needs {_listed(needed)}; got only {_listed(projected or direct)}: give {_listed(missing)} too."
        )
    for name, other in _BESIDE.items():
        if name in given and other not in given:
            raise MatrixError(
                f"{SYMBOLS[name]} belongs to {SYMBOLS[other]}; got {SYMBOLS[name]} alone: give {SYMBOLS[other]} too, or leave out {SYMBOLS[name]}."
            )


def _check_drawable(layer: Layer) -> None:
    given = [(SYMBOLS[name], getattr(layer, INPUT if name == "x" else name)) for name in SYMBOLS]
    steps = [(step.symbol, tensor) for step, tensor in layer if step.name != MASKED_SCORES]  # its −∞ are meant
    for symbol, tensor in [*given, *steps]:
        if tensor is None:
            continue
        sizes = tensor.abs()
        if layer.has("bias") and symbol in ("bias", "B"):
            sizes = sizes[tensor != -math.inf]  # these too
        largest = float(sizes.max()) if sizes.numel() else 0.0
        if not largest <= _LARGEST:  # NaN too: the product of infinities
            raise MatrixError(
                f"{symbol} needs numbers of at most {_LARGEST:g} in size, to be drawn; got {largest:.3g}: use smaller numbers, or a higher temperature."
            )


def _listed(names: list[str] | tuple[str, ...]) -> str:
    *first, last = (SYMBOLS[name] for name in names) if names else ("",)
    return f"{', '.join(first)} and {last}" if first else last
