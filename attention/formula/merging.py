"""A layer as words instead of pieces, or without its special tokens: the weights of another layer, put together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from attention.errors import TextError
from attention.formula import kept
from attention.formula.facts import Facts
from attention.formula.layer import Layer
from attention.formula.names import WEIGHTS
from attention.formula.steps import Step, find_step
from attention.tokens import Generated

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.config import AttentionConfig
    from attention.formula.what_if import WhatIf

_BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")
SPECIAL = ("show", "hide", "renormalise")
"""What becomes of special tokens: they are there; they are left out, and rows sum to less; or rows are divided by that sum."""


@dataclass(frozen=True, eq=False)
class Groups:
    """Which pieces stand together: of each group the first, and where the next begins.

    Attributes:
        names: what is read of each group.
        spans: (start, stop) of each, in order; what is in none is left out.
    """

    names: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, tokens: Sequence[str], special: Sequence[bool], words: bool, hide: bool) -> Groups:
        """Those of some tokens, with which of them are `special`.

        Raises:
            TextError: all are special, and hidden.
        """
        spans: list[list[int]] = []
        for at, token in enumerate(tokens):
            joins = words and spans and spans[-1][1] == at and not special[at] and not special[at - 1]
            if hide and special[at]:
                continue
            if joins and goes_on(tokens[at - 1], token, any(one.startswith("##") for one in tokens)):
                spans[-1][1] = at + 1
            else:
                spans.append([at, at + 1])
        if not spans:
            raise TextError("All tokens are special, and hidden: type a text, or show special tokens.")
        names = (_word(tokens[a:b]) for a, b in spans)
        return cls(tuple(names), tuple((a, b) for a, b in spans))


def goes_on(before: str, token: str, hashed: bool) -> bool:
    """Whether a piece belongs to the word of the one before it: it begins with ## where pieces are `hashed`, otherwise with no blank."""
    if hashed:
        return token.startswith("##")
    return not token.startswith(("·", "⏎")) and _letters(token) and _letters(before)


@dataclass(frozen=True, eq=False, repr=False)
class MergedLayer(Layer):
    """The weights of another layer, summed over the pieces of each key and averaged over those of each query.

    Rows still sum to 1 where no token is hidden. It has no other step. Source: Clark et al. 2019, "What Does BERT Look At?",
    section 3 (their word-level attention).

    Attributes:
        origin: whose weights they are.
        queries: the groups of its queries, `keys` those of its keys.
        renormalised: whether each row is divided by its sum.
    """

    origin: Layer = field(default_factory=Layer)
    queries: Groups = Groups((), ())
    keys: Groups = Groups((), ())
    renormalised: bool = False

    @property
    def inner(self) -> Layer:
        """The layer whose weights they are."""
        return self.origin

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How long each axis is."""
        return {"query_pos": len(self.queries.names), "key_pos": len(self.keys.names), "head": self.origin.n_heads}

    def has(self, name: str) -> bool:
        """Whether it is the weights, and there are any."""
        return name == WEIGHTS and self.origin.has(name)

    def turned(self, config: AttentionConfig | WhatIf) -> MergedLayer:
        """The same of the turned layer."""
        origin = self.origin.turned(config)
        return self if origin is self.origin else replace(self, origin=origin)

    def part(self, *names: str, heads: slice = slice(None), rows: slice = slice(None)) -> tuple[Tensor, ...]:
        """Some heads and queries of the weights, [head query_pos key_pos]; nothing of them is kept."""
        for name in names:
            self._check(name)
        spans = self.queries.spans[rows]
        whole = self.origin.part(WEIGHTS, heads=heads, rows=slice(spans[0][0], spans[-1][1]))[0] if spans else None
        assert whole is not None
        return (self._merged(whole, spans),) * len(names)

    def facts(self, name: str) -> Facts:
        """What is said of the weights in all heads."""
        self._check(name)
        step = find_step(name)

        def make() -> Facts:
            found = (Facts.of(step, self.part(name, heads=slice(at, at + 1))[0]) for at in range(self.n_heads))
            return reduce(Facts.and_, found)

        return kept.matrix(self.number, ("facts", name), self.origin.formula, make)

    def formula_of(self, step: Step) -> str:
        """What was done, for the figure."""
        return self.told[step.name]

    def _made(self, name: str, head: int | None) -> Tensor:
        def make() -> Tensor:
            whole = self.origin[name] if head is None else self.origin.matrix(name, head)
            return self._merged(whole[..., self.queries.spans[0][0] : self.queries.spans[-1][1], :], self.queries.spans)

        return kept.matrix(self.number, (name, head), self.origin.formula, make)

    def _merged(self, weights: Tensor, spans: Sequence[tuple[int, int]]) -> Tensor:
        """Rows of weights, [… query_pos key_pos], which begin at the first of the `spans`, put together."""
        import torch

        first = spans[0][0]
        keys = torch.stack([weights[..., a:b].sum(dim=-1) for a, b in self.keys.spans], dim=-1)
        found = torch.stack([keys[..., a - first : b - first, :].mean(dim=-2) for a, b in spans], dim=-2)
        if not self.renormalised:
            return found
        sums = found.sum(dim=-1, keepdim=True)
        return torch.where(sums > 0, found / sums.clamp_min(torch.finfo(found.dtype).tiny), found)


def merged(layer: Layer, special: Sequence[str], words: bool, what: str) -> Layer:
    """A layer with its pieces as words, and its special tokens shown, hidden, or hidden and rows divided by their sums.

    Args:
        layer: any that has weights.
        special: the tokens that are.
        words: whether pieces are put together.
        what: one of `SPECIAL`.

    Raises:
        TextError: nothing is left.
    """
    if not words and what == "show":
        return layer
    queries, keys = (
        Groups.of(tokens, [one in special for one in tokens], words, what != "show")
        for tokens in (layer.tokens, layer.key_tokens)
    )
    done = ["pieces as words: A summed over keys, averaged over queries"] if words else []
    done += ["special tokens hidden"] if what != "show" else []
    done += ["rows divided by what is left"] if what == "renormalise" else []
    said = ", ".join(done)
    return MergedLayer(
        layer.name, queries.names, keys.names, told={WEIGHTS: said[0].upper() + said[1:]}, whole=layer.whole,
        origin=layer, queries=queries, keys=keys, renormalised=what == "renormalise",
    )  # fmt: skip


def _word(pieces: Sequence[str]) -> str:
    """The pieces as one word, which a model has said where it has said one of them; bytes that are characters together become these."""
    word = "".join(piece.removeprefix("##") if i else piece for i, piece in enumerate(pieces))
    word = word if len(pieces) == 1 else _BYTES.sub(lambda found: _characters(found[0]), word)
    return Generated(word) if any(isinstance(one, Generated) for one in pieces) else word


def _characters(written: str) -> str:
    try:
        return bytes.fromhex(written.replace("<0x", "").replace(">", "")).decode("utf-8")
    except UnicodeDecodeError:
        return written


def _letters(piece: str) -> bool:
    bare = piece.lstrip("·")
    return bool(bare) and any(letter.isalnum() or letter in "<>" for letter in bare)
