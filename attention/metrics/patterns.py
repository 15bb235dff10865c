"""The weights of a layer, or of a batch of texts, in blocks: no array of size T² exists for all heads at once.

`kind_of` says what a token stands for where a model reads a picture: a patch, a register, [CLS], another special
token, or a word.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from attention.base.tokens import NEWLINE, NO_PATCH, BoxToken, Patch, any_patch, patch_places
from attention.formula.names import MASKED_SCORES, MEMORY, WEIGHTS
from attention.trace.layer import Layer

if TYPE_CHECKING:
    from torch import Tensor


PATCH, REGISTER, CLS, SPECIAL, OBJECT, WORD = "patch", "register", "cls", "special", "object", "word"
"""The kinds of tokens. An object is a token at which a model predicts a box. The end of a row of patches is special; the distillation token of DeiT counts as [CLS], since a classifier reads it as that one."""

_REGISTER = re.compile(r"\[register \d+\]")
_CLS = frozenset(("[CLS]", "[distillation]"))
_SPECIAL = re.compile(r"\[[A-Z]+\d*\]|<(?!0x)[|/A-Za-z][^<>\s]*>")


def kind_of(token: str, special: Collection[str] = ()) -> str:
    """The kind of a token.

    Args:
        token: a readable token.
        special: the special tokens of the tokenizer; if empty, a token such as [SEP] or </s> counts as special.
    """
    if isinstance(token, Patch):
        return PATCH
    if isinstance(token, BoxToken):
        return OBJECT
    if _REGISTER.fullmatch(token):
        return REGISTER
    if token in _CLS:
        return CLS
    if token == NEWLINE:
        return SPECIAL
    return SPECIAL if (token in special if special else _SPECIAL.fullmatch(token)) else WORD


def is_special(token: str, special: Collection[str] = ()) -> bool:
    """Whether a token is neither a patch nor a word; `special` as for `kind_of`."""
    kind = kind_of(token, special)
    # A tokenizer that names its special tokens decides what [CLS] is.
    return token in special if special and kind == CLS else kind in (REGISTER, CLS, SPECIAL)


def is_punctuation(token: str) -> bool:
    """Whether a token has punctuation marks and nothing else, apart from a leading blank."""
    text = token.lstrip("·▁ ")
    return bool(text) and all(unicodedata.category(character).startswith("P") for character in text)


BLOCK_CELLS = 2**20  # weights per block; temporary copies of this size stay in the processor's cache

CELLS_PER_SECOND = 20_000_000  # weights computed and measured per second; measured on one thread


@dataclass(frozen=True, eq=False)
class TokenTexts:
    """The tokens of one text, or of each text of a batch, with the masks that are derived from them; all layers share these.

    Attributes:
        texts: the tokens of each text.
        special: which tokens are special, such as [CLS].
        n_keys: the length of the key axis, to which the texts of a batch are padded; None: one text, and no batch axis.
    """

    texts: tuple[tuple[str, ...], ...]
    special: frozenset[str] = frozenset()
    n_keys: int | None = None
    _masks: dict[Hashable, Tensor] = field(default_factory=dict, repr=False)

    def mask(self, name: Hashable, of_text: Callable[[tuple[str, ...]], Tensor]) -> Tensor:
        """The mask `of_text` [key_pos] or [query_pos key_pos] of the text; of a batch, padded, [text 1 …]. Computed once for each name."""
        import torch
        from torch.nn.functional import pad

        if name not in self._masks:
            masks = [of_text(tokens) for tokens in self.texts]
            if self.n_keys is not None:
                masks = [pad(mask, (0, self.n_keys - len(mask)) * mask.ndim, value=False) for mask in masks]
            self._masks[name] = masks[0] if self.n_keys is None else torch.stack(masks)[:, None]
        return self._masks[name]


@dataclass(frozen=True, eq=False)
class Pattern:
    """The weights of some heads in some rows, with visibility and positions; of one text, or of a batch of padded texts.

    For one text, there is no text axis anywhere. For a batch, each axis query_pos or key_pos of a whole text comes after [text 1].

    Attributes:
        weights: [text head query_pos key_pos]; rows need not sum to 1.
        visible: the keys that each query may look at, [text head query_pos key_pos], where the head axis may have length 1.
        queries: the position of each row, [query_pos].
        token_ids: token ids within the text, equal for equal tokens: of these rows [text 1 query_pos], and of all keys [text 1 key_pos].
        is_token: whether each row belongs to a token and not to padding, [text 1 query_pos].
        is_cross_attention: whether queries and keys are two texts, whose positions cannot be compared.
        contribution_lengths: the length of the vector that each key contributes at weight 1, [text head key_pos]; None if unknown.
        tokens: the tokens of the keys.
    """

    weights: Tensor
    visible: Tensor
    queries: Tensor
    token_ids: tuple[Tensor, Tensor]
    is_token: Tensor
    is_cross_attention: bool
    contribution_lengths: Tensor | None = None
    tokens: TokenTexts = TokenTexts(((),))

    @cached_property
    def has_patches(self) -> bool:
        """Whether any key is a patch of a picture."""
        return any_patch(self.tokens.texts[0])

    @cached_property
    def has_distances(self) -> bool:
        """Whether the difference of two positions is a distance: not between two texts, and not where tokens are patches of a picture.

        Patches have a row and a column; the first patch of a row follows the last one of the row above, at the other side of the picture.
        """
        return not self.is_cross_attention and not self.has_patches

    @cached_property
    def patch_offsets(self) -> tuple[Tensor, Tensor, Tensor] | None:
        """The row of each key's patch minus that of the query's patch, the same of columns, and whether both are patches of one picture, [query_pos key_pos].

        Rows and columns are 0 where one of the tokens is no patch of the other's picture. None if there are no patches, or between two texts.
        """
        import torch

        if self.is_cross_attention or not self.has_patches:
            return None
        places = self.tokens.mask("places", patch_places).to(self.queries.device)
        queries = places[self.queries]
        same = (queries[:, None, 0] == places[None, :, 0]) & (places[None, :, 0] != NO_PATCH)
        rows, columns = ((places[None, :, side] - queries[:, None, side]) * same for side in (1, 2))
        return rows.to(torch.float32), columns.to(torch.float32), same

    @cached_property
    def row_sums(self) -> Tensor:
        """The sum of each row, [text head query_pos 1]."""
        import torch

        return self.weights.sum(dim=-1, keepdim=True, dtype=torch.float64)

    @cached_property
    def probabilities(self) -> Tensor:
        """The rows divided by their sums (usually 1): [text head query_pos key_pos]."""
        return self.weights / self.row_sums.to(self.weights.dtype)

    @cached_property
    def n_visible(self) -> Tensor:
        """The number of keys visible to each query, [text head query_pos]."""
        return self.visible.sum(dim=-1)

    def nan_unless(self, defined: Tensor | bool, numbers: Tensor) -> Tensor:
        """A number for each head and query, [text head query_pos]: NaN where it is undefined, or the row is padding or empty."""
        usable = self.is_token & (self.row_sums[..., 0] > 0) & defined
        return numbers.double().masked_fill(~usable, math.nan)

    def weight_at_offset(self, offset: int) -> Tensor:
        """The weight of the key at this offset from its query, defined where that key exists and is visible.

        Beside patches, only words follow each other: both tokens must be words, unless they are the same token.
        """
        if self.is_cross_attention:
            return self.nan_unless(False, self.row_sums[..., 0])
        position = self.queries + offset
        exists = (position >= 0) & (position < self.weights.shape[-1])
        if offset and self.has_patches:
            is_word = self.tokens.mask("words", _words).to(self.queries.device)
            exists &= is_word[self.queries] & is_word[position.clamp(0, len(is_word) - 1)]
        column = position.clamp(0, self.weights.shape[-1] - 1)[:, None]
        visible, weights = (
            cells.gather(-1, column.expand(*cells.shape[:-1], 1))[..., 0] for cells in (self.visible, self.weights)
        )
        return self.nan_unless(exists & visible, weights)

    def weight_on(self, keys: Tensor) -> Tensor:
        """The total weight of some `keys` [text 1 query_pos key_pos], defined where any of them is visible."""
        import torch

        if self.is_cross_attention or not bool(keys.any()):
            return self.nan_unless(False, self.row_sums[..., 0])
        any_visible = (keys & self.visible).any(dim=-1)
        return self.nan_unless(any_visible, torch.linalg.vecdot(self.weights, keys.to(self.weights.dtype)))

    def weight_by_distance(self, keys: Tensor) -> Tensor:
        """What `weight_on(keys)` would be if the head followed distances and not words (`DistanceProfile`), [text head query_pos]."""
        if not self.has_distances or not bool(keys.any()):
            return self.nan_unless(False, self.row_sums[..., 0])
        return self.nan_unless((keys & self.visible).any(dim=-1), self._distance_profile.weight_on(keys))

    @cached_property
    def _distance_profile(self) -> DistanceProfile:
        return DistanceProfile(self)

    @cached_property
    def is_earlier_occurrence(self) -> Tensor:
        """Whether each key is an earlier occurrence of the query's token: [text 1 query_pos key_pos]."""
        rows, keys = self.token_ids
        return (rows[..., :, None] == keys[..., None, :]) & (self.offsets < 0)

    @cached_property
    def follows_earlier_occurrence(self) -> Tensor:
        """Whether each key directly follows an earlier occurrence of the query's token: [text 1 query_pos key_pos]."""
        # The last key never precedes its query, so nothing wraps around.
        return self.is_earlier_occurrence.roll(1, dims=-1)

    @cached_property
    def offsets(self) -> Tensor:
        """The position of each key minus that of each query, [query_pos key_pos]."""
        import torch

        return torch.arange(self.weights.shape[-1], device=self.queries.device) - self.queries[:, None]

    @cached_property
    def distances(self) -> Tensor:
        """The distance between each query and each key in positions, [query_pos key_pos]."""
        return self.offsets.abs().to(self.weights.dtype)

    def mask_of_tokens(self, name: Hashable, of_text: Callable[[tuple[str, ...]], Tensor]) -> Tensor:
        """A mask that depends on the tokens, as cells of these rows that can be broadcast to [text 1 query_pos key_pos].

        Args:
            name: identifies the mask; it is computed once for each text.
            of_text: the keys [key_pos], or the cells [query_pos key_pos], of the tokens of a text.
        """
        mask = self.tokens.mask(name, of_text).to(self.weights.device)
        if mask.ndim == (1 if self.tokens.n_keys is None else 3):
            return mask[..., None, :]
        return mask[..., self.queries, :]

    @property
    def under_uniform_attention(self) -> Pattern:
        """The same rows of the first head under uniform attention: all visible keys have the same weight."""
        first = self.visible[..., :1, :, :]
        visible = first.to(self.weights.dtype)
        return replace(
            self, weights=visible / visible.sum(-1, keepdim=True).clamp_min(1), visible=first, contribution_lengths=None
        )


class DistanceProfile:
    """The weights of some heads as their distances alone would place them: query i gives a_i f(j − i) to key j.

    f is what the head gives to a word at this distance in the same text, a_i what the query gives to words at all, both fitted to the weights; an even
    head and one that follows distances fit exactly. Punctuation marks and special tokens are placed by the f of words and do not change it. The
    first token keeps its weight unless it is a special token: it is a sink, whatever its word.

    Sources: Bishop, Fienberg and Holland 1975, Discrete Multivariate Analysis, chapter 5 (quasi-independence: cells left out, fitted in turns);
    Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks.
    """

    _ROUNDS = 8

    def __init__(self, pattern: Pattern) -> None:
        import torch

        self._is_batch, special = pattern.weights.ndim == 4, pattern.tokens.special
        self._weights = pattern.weights if self._is_batch else pattern.weights[None]  # [text head query_pos key_pos]
        n_keys = self._weights.shape[-1]
        # Each pair of positions has a place by its distance.
        self._places = pattern.offsets - pattern.offsets.min()
        self._n_places = int(self._places.max()) + 1

        def mask(name: str, is_one: Callable[[str], bool]) -> Tensor:
            def of_text(tokens: tuple[str, ...]) -> Tensor:
                return torch.tensor([is_one(token) for token in tokens or ("",) * n_keys])

            return self._cells(pattern.mask_of_tokens(name, of_text))

        real = pattern.is_token.reshape(len(self._weights), -1, 1)
        is_named = mask("special tokens", lambda token: is_special(token, special))
        self._visible = self._cells(pattern.visible) & real
        self._is_sink = ~is_named & (torch.arange(n_keys, device=real.device) == 0)
        is_mark = mask("marks", is_punctuation)
        self._words = self._visible & ~(is_named | is_mark | self._is_sink)
        self._by_place, self._sums = self._incidence(self._words), self._sum(self._words)
        of_words = self._scale = self._weight_on(self._words)
        for _ in range(self._ROUNDS):
            at_distance = _ratio(self._sums, self._expected(self._by_place))
            self._scale = _ratio(of_words, torch.einsum("thn,tqn->thq", at_distance, self._by_place))

    def weight_on(self, keys: Tensor) -> Tensor:
        """The total weight of some `keys` [text 1 query_pos key_pos], whose own weights do not count for f: [text head query_pos].

        Where they are all words at a distance, as for "offset −1", there is nothing else: then their own f counts.
        """
        import torch

        cells = self._cells(keys) & self._visible
        placed, kept = cells & ~self._is_sink, cells & self._is_sink
        chosen, of_words = self._incidence(placed), placed & self._words
        others = self._expected(self._by_place - self._incidence(of_words))
        at_distance = torch.where(
            others > 0,
            _ratio((self._sums - self._sum(of_words)).clamp_min(0), others),
            _ratio(self._sum(placed), self._expected(chosen)),
        )
        weights = self._scale * torch.einsum("thn,tqn->thq", at_distance, chosen) + self._weight_on(kept)
        return weights if self._is_batch else weights[0]

    def _cells(self, mask: Tensor) -> Tensor:
        """A mask of the pattern as [text query_pos key_pos]; what one head sees counts for all, with weight 0."""
        mask = mask.any(-3) if mask.ndim > 2 else mask
        n_texts, _, *shape = self._weights.shape
        return mask.expand(n_texts, *shape)

    def _weight_on(self, cells: Tensor) -> Tensor:
        """The total weight of some cells, [text head query_pos]."""
        import torch

        total: Tensor = torch.linalg.vecdot(self._weights, cells[:, None].to(self._weights.dtype)).double()
        return total

    def _incidence(self, cells: Tensor) -> Tensor:
        """The cells [text query_pos key_pos] as 0 and 1 by distance, [text query_pos distance]."""
        import torch

        empty = torch.zeros(*cells.shape[:2], self._n_places, dtype=torch.float64, device=cells.device)
        return empty.scatter_(-1, self._places.expand(cells.shape), cells.double())

    def _sum(self, cells: Tensor) -> Tensor:
        """The weights of some cells added up by distance, [text head distance]."""
        import torch

        n_texts, n_heads = self._weights.shape[:2]
        of_texts = torch.arange(n_texts, device=cells.device)[:, None, None] * self._n_places + self._places
        picked = cells.flatten().nonzero()[:, 0]
        places, size = of_texts.flatten()[picked], n_texts * self._n_places
        of_heads = (self._weights[:, head].flatten()[picked].double() for head in range(n_heads))
        sums = [torch.bincount(places, weights, size) for weights in of_heads]
        return torch.stack(sums).view(n_heads, n_texts, self._n_places).transpose(0, 1)

    def _expected(self, incidence: Tensor) -> Tensor:
        """The scales of the queries added up over some cells by distance, [text head distance]."""
        import torch

        return torch.einsum("thq,tqn->thn", self._scale, incidence)


def _ratio(numbers: Tensor, divisors: Tensor) -> Tensor:
    """0 where nothing is divided by nothing."""
    return numbers / divisors.masked_fill(divisors <= 0, math.inf)


def iterate_patterns(layer: Layer) -> Iterator[tuple[slice, slice, Pattern]]:
    """The layer in blocks: the slice of heads, the slice of queries, and their pattern.

    A layer without weights yields nothing.
    """
    import torch

    from attention.explanation.derived import contribution_lengths

    if not layer.has(WEIGHTS):
        return
    n_heads, n_queries, n_keys = layer.shape(WEIGHTS)
    crossed, lengths = is_cross_attention(layer), contribution_lengths(layer)
    numbers: dict[Hashable, int] = {}
    rows_of, keys_of = (
        torch.tensor([numbers.setdefault(_identity(token), len(numbers)) for token in tokens] or range(size))
        for tokens, size in ((layer.tokens, n_queries), (layer.key_tokens, n_keys))
    )
    counted, texts = torch.tensor(_real(layer, crossed, n_queries)), TokenTexts((tuple(layer.key_tokens),))
    causal = not layer.has(MASKED_SCORES) and not layer.has("mask") and not crossed and _looks_back(layer)
    for heads, rows in iterate_blocks(n_heads, n_queries, n_keys):
        positions = torch.arange(n_queries)[rows]
        if layer.has(MASKED_SCORES):
            weights, masked = layer.blocks(WEIGHTS, MASKED_SCORES, heads=heads, rows=rows)
            visible = masked != -math.inf
        else:
            (weights,) = layer.blocks(WEIGHTS, heads=heads, rows=rows)
            visible = layer.mask_rows(rows)[None]
            if causal:
                visible = visible & (torch.arange(n_keys) <= positions[:, None])
        block_lengths = None if lengths is None else lengths[heads]
        ids = rows_of[rows], keys_of
        pattern = Pattern(weights, visible, positions, ids, counted[rows], crossed, block_lengths, texts)
        yield heads, rows, pattern


def _identity(token: str) -> Hashable:
    """What equal tokens share; patches of two pictures are never the same token, even at the same place."""
    return (token.picture, token.row, token.column) if isinstance(token, Patch) else token


def _words(tokens: tuple[str, ...]) -> Tensor:
    import torch

    return torch.tensor([kind_of(token) == WORD for token in tokens])


def iterate_blocks(n_heads: int, n_queries: int, n_keys: int) -> Iterator[tuple[slice, slice]]:
    """Slices of heads and rows with at most `BLOCK_CELLS` cells each: several heads of a short text, or some rows of a long one."""
    n_block_heads = max(1, BLOCK_CELLS // (n_queries * n_keys))
    n_block_rows = n_queries if n_queries * n_keys <= BLOCK_CELLS else max(1, BLOCK_CELLS // n_keys)
    for head in range(0, n_heads, n_block_heads):
        for row in range(0, n_queries, n_block_rows):
            yield slice(head, min(n_heads, head + n_block_heads)), slice(row, min(n_queries, row + n_block_rows))


def is_cross_attention(layer: Layer) -> bool:
    """Whether queries and keys belong to two texts."""
    _, n_queries, n_keys = layer.shape(WEIGHTS)
    return layer.has(MEMORY) or layer.tokens != layer.key_tokens or n_queries != n_keys


def _real(layer: Layer, crossed: bool, n_queries: int) -> list[bool]:
    """Whether each query is a token and not padding."""
    real = layer.formula and layer.formula.mask and layer.formula.mask.real
    if real and not crossed:
        return list(real)
    return [token != "" for token in layer.tokens] or [True] * n_queries


def _looks_back(layer: Layer) -> bool:
    """Whether no head gives any weight to a later key: a causal mask, inferred from weights alone."""
    n_heads, n_queries, n_keys = layer.shape(WEIGHTS)
    for heads, rows in iterate_blocks(n_heads, n_queries, n_keys):
        (weights,) = layer.blocks(WEIGHTS, heads=heads, rows=rows)
        if bool(weights.triu(rows.start + 1).any()):
            return False
    return True
