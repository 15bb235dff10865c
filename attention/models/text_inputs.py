"""The texts of a forward pass as token ids, with what a model reads beside each id, and the two texts of a pair."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from attention.base.spans import Span
from attention.base.tokens import PairToken
from attention.models.loaded import inputs_of_site
from attention.models.token_pieces import numbered, readable_tokens

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel

TYPES, POSITIONS, MASK = "token_type_ids", "position_ids", "attention_mask"
Sides = tuple[tuple[str, ...], tuple[str, ...]]
"""The queries and the keys of a layer."""
BESIDE = (TYPES, POSITIONS, MASK)
"""The arguments of a model with one whole number for each token of its first text."""


class TextInputs(dict[str, Tensor]):
    """The token ids of each text, [row pos], by argument of the model.

    Attributes:
        beside: other arguments with a number for each token of the first text, [1 pos]; see `BESIDE`.
        pair: for each token of the first text, "A" or "B" where it belongs to one of two texts, otherwise ""; empty: there is one text.
        texts: the texts of the ids; empty if they are not known.
        offsets: for each token of the first text, its first character in that text, and the one after its last; empty if they are not known.
        spans: names of stretches of the tokens of the first text.
    """

    def __init__(
        self,
        ids: Mapping[str, Tensor],
        beside: Mapping[str, Tensor] | None = None,
        pair: Sequence[str] = (),
        texts: Sequence[str] = (),
    ) -> None:
        super().__init__(ids)
        self.beside, self.pair, self.texts = dict(beside or {}), tuple(pair), tuple(texts)
        self.offsets: tuple[tuple[int, int], ...] = ()
        self.spans: tuple[Span, ...] = ()

    @property
    def arguments(self) -> dict[str, Tensor]:
        """The arguments of the model, for as many rows as the ids have."""
        n_rows = len(next(iter(self.values())))
        return {**self, **{name: tensor.expand(n_rows, -1) for name, tensor in self.beside.items()}}

    @property
    def token_ids(self) -> dict[str, Tensor]:
        """Those of the numbers that are ids of a vocabulary."""
        return self

    @property
    def key(self) -> Hashable:
        """What stands for the input in a key of the cache."""
        return tuple((name, tuple(tensor[0].tolist())) for name, tensor in (*self.items(), *self.beside.items()))

    def own_sides(self, layer: str) -> Sides | None:
        """The queries and keys of a layer that reads neither of the texts; None for every other layer."""
        return None

    def lengths_of(self, layer: str) -> tuple[int, int]:
        """The number of queries and of keys of a layer, by its name."""
        if sides := self.own_sides(layer):
            return len(sides[0]), len(sides[1])
        lengths = [ids.shape[-1] for ids in self.values()]
        queries, keys = inputs_of_site(layer)
        return lengths[queries], lengths[keys]

    def with_ids(self, name: str, ids: Tensor) -> Self:
        """The same input with other ids of one argument: its text, cut or continued; so is what stands beside the first text."""
        is_first = name == next(iter(self))
        beside = {
            key: _of_length(key, tensor, ids.shape[-1]) if is_first else tensor for key, tensor in self.beside.items()
        }
        result = self._like({**self, name: ids}, beside)
        result.spans = self.spans
        return result

    def repeated(self, n_rows: int) -> Self:
        """The same input for a batch of equal texts."""
        return self._like({name: ids.expand(n_rows, -1) for name, ids in self.items()}, self.beside)

    def tokens(self, tokenizer: Any) -> list[tuple[str, ...]]:
        """The readable tokens of each text."""
        first, *others = (readable_tokens(tokenizer, ids[0].tolist(), self.texts) for ids in self.values())
        of_pair = (*self.pair, *[""] * (len(first) - len(self.pair)))
        named = (PairToken(token, text) if text else token for token, text in zip(first, of_pair, strict=False))
        return [numbered(tokenizer, next(iter(self.values()))[0].tolist(), tuple(named)), *others]

    def names_after(self, output: Any) -> Mapping[str, str]:
        """Other names for tokens, by those of `tokens`, from what the model predicts at them."""
        return {}

    def _like(self, ids: Mapping[str, Tensor], beside: Mapping[str, Tensor]) -> Self:
        return type(self)(ids, beside, self.pair, self.texts)


def _of_length(name: str, numbers: Tensor, length: int) -> Tensor:
    """The numbers beside a text that was continued or cut: positions go on, and what else was last is repeated."""
    more = torch.arange(1, max(0, length - numbers.shape[-1]) + 1)
    last = numbers[:, -1:]
    return torch.cat([numbers, last + more if name == POSITIONS else last.expand(1, len(more))], -1)[:, :length]


def encode_pair(loaded: LoadedModel, a: str, b: str, max_tokens: int) -> tuple[TextInputs, int]:
    """Two texts as the tokenizer joins them for an encoder, such as [CLS] a [SEP] b [SEP]; and their number of tokens before they are cut.

    Where they have more than `max_tokens`, tokens of the longer text are left out at its end.
    """
    tokenizer = loaded.tokenizer
    options = {"return_tensors": "pt", "return_offsets_mapping": tokenizer.is_fast}
    encoded = tokenizer(a, b, verbose=False, **options)
    length = int(encoded["input_ids"].shape[1])
    if length > max_tokens:
        encoded = tokenizer(a, b, truncation="longest_first", max_length=max_tokens, **options)
    ids, types = encoded["input_ids"][:, :max_tokens], encoded.get(TYPES)  # a tokenizer keeps its special tokens
    reads_types = types is not None and count_types(loaded.model) > int(types.max())
    if tokenizer.is_fast:
        texts: Sequence[int | None] = encoded.sequence_ids(0)
    else:
        texts = types[0].tolist() if types is not None else []
    beside = {TYPES: types[:, :max_tokens]} if reads_types else {}
    inputs = TextInputs({"input_ids": ids}, beside, pair_of(tokenizer, ids[0].tolist(), texts), (a, b))
    if tokenizer.is_fast:
        offsets = encoded["offset_mapping"][0].tolist()[:max_tokens]
        inputs.offsets = tuple(
            (start, stop if text == 0 else start) for (start, stop), text in zip(offsets, texts, strict=False)
        )
    return inputs, length


def pair_of(tokenizer: Any, ids: Sequence[int], texts: Sequence[int | None]) -> tuple[str, ...]:
    """To which text of a pair each token belongs, "A" or "B"; special tokens at the edges of a text belong to none. Empty if there are not two texts.

    `texts` has 0 for each token of the first text and 1 for the second, such as token types; others belong to none.
    """
    special, result = set(tokenizer.all_special_ids), [""] * len(ids)
    for number, name in enumerate(("A", "B")):
        places = [i for i, text in enumerate(texts[: len(ids)]) if text == number]
        words = [i for i in places if ids[i] not in special]
        for i in places if words else ():
            if words[0] <= i <= words[-1]:
                result[i] = name
    return tuple(result) if {"A", "B"} <= {*result} else ()


def split_at_separators(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """The number of the text of each token, where a separator ends a text: for ids of a pair whose tokens have no types."""
    special, texts, number, has_words = set(tokenizer.all_special_ids), list[int](), 0, False
    for token_id in ids:
        texts.append(number)
        if token_id == tokenizer.sep_token_id and has_words:
            number, has_words = number + 1, False
        has_words |= token_id not in special
    return texts


def count_types(model: Any) -> int:
    """How many types of tokens a model tells apart; 0 if it reads none."""
    reads = TYPES in signature(model.forward).parameters
    return int(getattr(model.config, "type_vocab_size", 0) or 0) if reads else 0


def count_positions(model: Any) -> int:
    """How many positions the table of a model has; 0 where positions are rotations, or unknown."""
    rotates = any("rotary" in name for name, _ in model.named_modules())
    sizes = (getattr(model.config, name, None) for name in ("max_position_embeddings", "n_positions"))
    return 0 if rotates else next((size for size in sizes if isinstance(size, int)), 0)


def joins_pairs(loaded: LoadedModel) -> bool:
    """Whether a model is an encoder that tells two texts apart: by types of tokens, or by special tokens that close each of them."""
    tokenizer = loaded.tokenizer
    is_causal = any(site.is_causal for site in loaded.sites)
    if tokenizer is None or loaded.is_encoder_decoder or loaded.reader is not None or is_causal:
        return False
    special = set(tokenizer.all_special_ids)
    try:
        one, two = (tokenizer(*texts, verbose=False) for texts in (("a",), ("a", "a")))
    except Exception:  # a tokenizer of tables or pages can raise anything here
        return False
    if count_types(loaded.model) > 1 and len({*two.get(TYPES, ())}) > 1:
        return True
    n_special = [sum(token_id in special for token_id in encoded["input_ids"]) for encoded in (one, two)]
    return n_special[1] > n_special[0] and all(encoded["input_ids"][-1] in special for encoded in (one, two))
