"""Layers with subwords merged into words, or without special tokens: the aggregated weights of another layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from attention.base import cache
from attention.base.errors import TextError
from attention.base.pieces import join_pieces, pieces_of
from attention.base.spans import Span
from attention.base.tokens import Generated, PairToken, Piece
from attention.formula.names import WEIGHTS
from attention.formula.steps import Step, find_step
from attention.trace.layer import Layer
from attention.trace.stats import StepStats

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.config import AttentionConfig
    from attention.formula.override import Override

SPECIAL_TOKEN_MODES = ("show", "hide", "renormalise")
"""Special tokens are shown; or hidden, so that rows sum to less than 1; or hidden, and each row is divided by its sum."""


@dataclass(frozen=True, eq=False)
class TokenGroups:
    """Groups of adjacent pieces: words.

    Attributes:
        names: the text of each group.
        spans: (start, stop) of each group, in order; pieces outside all spans are left out.
    """

    names: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, tokens: Sequence[str], special: Sequence[bool], words: bool, hide: bool) -> TokenGroups:
        """The groups of some tokens; a patch of a picture is always alone.

        Args:
            tokens: the pieces, which know their words from their tokenizer; otherwise their marks show them, and without marks each is a word.
            special: for each piece, whether it is a special token.

        Raises:
            TextError: all tokens are special, and hidden.
        """
        spans: list[list[int]] = []
        pieces = pieces_of(tokens, special) if words else tokens
        for i, piece in enumerate(pieces):
            if hide and special[i]:
                continue
            may_join = words and spans and spans[-1][1] == i and not special[i] and not special[i - 1]
            is_of_same_text = getattr(piece, "of", "") == getattr(pieces[i - 1], "of", "")  # of a pair
            if may_join and is_of_same_text and isinstance(piece, Piece) and piece.joins:
                spans[-1][1] = i + 1
            else:
                spans.append([i, i + 1])
        if not spans:
            raise TextError("All tokens are special, and hidden: type a text, or show special tokens.")
        names = (_join(pieces[start:stop]) for start, stop in spans)
        return cls(tuple(names), tuple((start, stop) for start, stop in spans))


def words_rule(tokens: Sequence[str]) -> str:
    """What a word of some tokens is, in words, such as "a word ends at </w>"; not escaped for HTML."""
    pieces = pieces_of(tokens, [False] * len(tokens))
    return next((piece.rule for piece in pieces if isinstance(piece, Piece)), "")


@dataclass(frozen=True, eq=False, repr=False)
class MergedLayer(Layer):
    """The weights of another layer, summed over the pieces of each key and averaged over the pieces of each query.

    Rows still sum to 1 if no token is hidden. The layer has no other step. Source: Clark et al. 2019, "What Does BERT Look
    At?", section 3 (word-level attention).

    Attributes:
        original: the layer with the original weights.
        queries: the groups of its queries; `keys` the groups of its keys.
        renormalised: whether each row is divided by its sum.
    """

    original: Layer = field(default_factory=Layer)
    queries: TokenGroups = TokenGroups((), ())
    keys: TokenGroups = TokenGroups((), ())
    renormalised: bool = False

    @property
    def wrapped(self) -> Layer:
        """The layer with the original weights."""
        return self.original

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The length of each axis."""
        return {"query_pos": len(self.queries.names), "key_pos": len(self.keys.names), "head": self.original.n_heads}

    def has(self, name: str) -> bool:
        """Whether the layer has a step: only the weights, if the original layer has them."""
        return name == WEIGHTS and self.original.has(name)

    def with_config(self, config: AttentionConfig | Override) -> MergedLayer:
        """The merged weights of the original layer with `config`."""
        origin = self.original.with_config(config)
        return self if origin is self.original else replace(self, original=origin)

    def blocks(self, *names: str, heads: slice = slice(None), rows: slice = slice(None)) -> tuple[Tensor, ...]:
        """Blocks of the weights, each [head query_pos key_pos], computed without the cache."""
        for name in names:
            self._check(name)
        spans = self.queries.spans[rows]
        weights = (
            self.original.blocks(WEIGHTS, heads=heads, rows=slice(spans[0][0], spans[-1][1]))[0] if spans else None
        )
        assert weights is not None
        return (self._aggregate(weights, spans),) * len(names)

    @property
    def keeps_maps(self) -> bool:
        """A merged row is made of several, so that its matrix is kept, whatever its size."""
        return True

    def stats(self, name: str, head: int | None = None) -> StepStats:
        """Statistics of the weights, over all heads or of one."""
        self._check(name)
        step, heads = find_step(name), range(self.n_heads) if head is None else [head]

        def compute() -> StepStats:
            blocks = (self.blocks(name, heads=slice(each, each + 1))[0] for each in heads)
            return reduce(StepStats.merge, (StepStats.of(step, block) for block in blocks))

        return cache.memoize(self.uid, ("facts", name, head), self.original.formula, compute)

    def formula_of(self, step: Step) -> str:
        """A description of the merging, for the figure."""
        return self.provenance[step.name]

    def _compute(self, name: str, head: int | None) -> Tensor:
        def compute() -> Tensor:
            weights = self.original[name] if head is None else self.original.matrix(name, head)
            spans = self.queries.spans
            return self._aggregate(weights[..., spans[0][0] : spans[-1][1], :], spans)

        return cache.memoize(self.uid, (name, head), self.original.formula, compute)

    def _aggregate(self, weights: Tensor, spans: Sequence[tuple[int, int]]) -> Tensor:
        """Merged rows of weights [… query_pos key_pos]; the first row is the start of the first span."""
        import torch

        first = spans[0][0]
        keys = torch.stack([weights[..., start:stop].sum(dim=-1) for start, stop in self.keys.spans], dim=-1)
        merged_rows = [keys[..., start - first : stop - first, :].mean(dim=-2) for start, stop in spans]
        result = torch.stack(merged_rows, dim=-2)
        if not self.renormalised:
            return result
        sums = result.sum(dim=-1, keepdim=True)
        return torch.where(sums > 0, result / sums.clamp_min(torch.finfo(result.dtype).tiny), result)


def merge_tokens(layer: Layer, special: Sequence[str], words: bool, mode: str) -> Layer:
    """A layer with pieces merged into words, and special tokens shown, hidden, or hidden with renormalized rows.

    Args:
        layer: any layer with weights.
        mode: one of `SPECIAL_TOKEN_MODES`.

    Raises:
        TextError: no token is left.
    """
    if not words and mode == "show":
        return layer
    queries, keys = (
        TokenGroups.of(tokens, [token in special for token in tokens], words, mode != "show")
        for tokens in (layer.tokens, layer.key_tokens)
    )
    changes = ["pieces merged into words: A summed over keys, averaged over queries"] if words else []
    changes += ["special tokens hidden"] if mode != "show" else []
    changes += ["each row divided by its sum"] if mode == "renormalise" else []
    provenance = ", ".join(changes)
    return MergedLayer(
        layer.name, queries.names, keys.names, provenance={WEIGHTS: provenance[0].upper() + provenance[1:]}, materialize_all_heads=layer.materialize_all_heads,
        original=layer, queries=queries, keys=keys, renormalised=mode == "renormalise",
    )  # fmt: skip


def merged_spans(layer: Layer, spans: Sequence[Span]) -> tuple[Span, ...]:
    """The spans of a layer's tokens, from those of the pieces before they were merged: a word belongs to the span of its first piece."""
    if not isinstance(layer, MergedLayer):
        return tuple(spans)
    starts = [start for start, _ in layer.queries.spans]
    places = [(span, [i for i, start in enumerate(starts) if start in span.positions]) for span in spans]
    return tuple(Span(span.name, here[0], here[-1]) for span, here in places if here)


def _join(pieces: Sequence[str]) -> str:
    """The pieces as one word; generated if one of them is, and of the text of its first. One alone stays what it is, such as a patch with its place."""
    if len(pieces) == 1:
        return pieces[0]
    word = Piece(join_pieces(pieces), False, words_rule(pieces))
    if isinstance(pieces[0], PairToken):
        return PairToken(word, pieces[0].of)
    return Generated(word) if any(isinstance(piece, Generated) for piece in pieces) else word
