"""Texts as batches of token ids: cut to a length, sorted by it, padded on the right; and the controls made of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from attention.explanation.subwords import TokenGroups
from attention.models.token_pieces import readable_tokens

if TYPE_CHECKING:
    from torch import Tensor

    from attention.models.loaded import LoadedModel

BATCH_TOKENS = 2048
"""The tokens of a batch, with padding."""
_REPEATED_TOKENS = 25
"""The random tokens of a control sequence, which are repeated once. Source: Olsson et al. 2022, "repeated random tokens"."""


@dataclass(frozen=True)
class TokenSequence:
    """The token ids of one text or control.

    Attributes:
        number: of the text, or of the control sequence.
        ids: the token ids.
        is_special: whether each is a special token that the tokenizer added.
        text: the text itself; empty for a control.
        tokens: the readable tokens, where they do not follow from the ids: a word that stands elsewhere is still one word.
    """

    number: int
    ids: tuple[int, ...]
    is_special: tuple[bool, ...]
    text: str = ""
    tokens: tuple[str, ...] = ()


class Tokenizer:
    """The tokenizer of a model, for many texts at once.

    Attributes:
        loaded: the model.
        max_tokens: texts are cut to this number of tokens, with special tokens.
    """

    def __init__(self, loaded: LoadedModel, max_tokens: int) -> None:
        self.loaded = loaded
        self.max_tokens = min(max_tokens, loaded.max_length or max_tokens)

    def sequences(self, first: int, texts: Sequence[str]) -> tuple[list[TokenSequence], int]:
        """The token ids of some texts, numbered from `first`; and the number of texts that are cut."""
        encode = self.loaded.tokenizer
        arguments = {"return_special_tokens_mask": True, "return_attention_mask": False, "verbose": False}
        encoded = encode(list(texts), truncation=True, max_length=self.max_tokens, **arguments)
        rows = zip(encoded["input_ids"], encoded["special_tokens_mask"], strict=True)
        result = [
            TokenSequence(first + i, tuple(ids), tuple(map(bool, special)), texts[i])
            for i, (ids, special) in enumerate(rows)
        ]
        full = [texts[i] for i, sequence in enumerate(result) if len(sequence.ids) >= self.max_tokens]
        lengths = [len(ids) for ids in encode(full, truncation=False, **arguments)["input_ids"]] if full else []
        return result, sum(length > self.max_tokens for length in lengths)

    def tokens(self, sequence: TokenSequence) -> tuple[str, ...]:
        """The readable tokens of a sequence."""
        texts = [sequence.text] if sequence.text else []
        return sequence.tokens or readable_tokens(self.loaded.tokenizer, sequence.ids, texts)

    def shuffled(self, sequence: TokenSequence, seed: int) -> TokenSequence:
        """The same text with its words in random order; special tokens stay, and the pieces of a word stay together.

        An order that gives the same ids is rotated, so that the ids are the same only where no order changes them: one word, or equal words.
        """
        tokens = self.tokens(sequence)
        words = TokenGroups.of(tokens, sequence.is_special, words=True, hide=False).spans
        movable = [span for span in words if not sequence.is_special[span[0]]]
        order = sorted(movable, key=lambda span: _hash(seed, sequence.number, span[0]))
        for _ in order[:4]:  # one rotation is enough, but for words such as "ab a b"
            following = iter(order)
            spans = [span if sequence.is_special[span[0]] else next(following) for span in words]
            places = [place for span in spans for place in range(*span)]
            ids = tuple(sequence.ids[place] for place in places)
            if ids != sequence.ids:
                return TokenSequence(sequence.number, ids, sequence.is_special, tokens=tuple(tokens[i] for i in places))
            order = [*order[1:], order[0]]
        return sequence

    def repeated(self, number: int, seed: int) -> TokenSequence:
        """Random tokens, twice, between the special tokens that the tokenizer adds.

        Source: Olsson et al. 2022, "In-context Learning and Induction Heads".
        """
        before, after, ordinary = self._frame
        length = min(_REPEATED_TOKENS, (self.max_tokens - len(before) - len(after)) // 2)
        length, chosen, draw = min(length, len(ordinary)), list[int](), 0
        while len(chosen) < length:
            token_id = ordinary[int.from_bytes(_hash(seed, number, draw)) % len(ordinary)]
            chosen += [token_id] * (token_id not in chosen)
            draw += 1
        ids = (*before, *chosen, *chosen, *after)
        special = [True] * len(before) + [False] * 2 * len(chosen) + [True] * len(after)
        return TokenSequence(number, ids, tuple(special))

    @cached_property
    def special_tokens(self) -> frozenset[str]:
        """The special tokens of the tokenizer."""
        return frozenset(self.loaded.tokenizer.all_special_tokens)

    @cached_property
    def _frame(self) -> tuple[list[int], list[int], Any]:
        """The special tokens before and after a text, and all ids that are not special."""
        encoded = self.loaded.tokenizer("a", return_special_tokens_mask=True)
        ids, special = encoded["input_ids"], encoded["special_tokens_mask"]
        first = special.index(0) if 0 in special else len(ids)
        last = len(special) - special[::-1].index(0) if 0 in special else len(ids)
        rows = len(self.loaded.model.get_input_embeddings().weight)
        excluded = set(self.loaded.tokenizer.all_special_ids)
        ordinary = [i for i in range(min(rows, len(self.loaded.tokenizer))) if i not in excluded]
        return ids[:first], ids[last:], ordinary


def batches(sequences: Sequence[TokenSequence]) -> Iterator[list[TokenSequence]]:
    """The sequences in batches of about equal lengths, the shortest first, with at most `BATCH_TOKENS` tokens unless one alone has more."""
    batch: list[TokenSequence] = []
    for sequence in sorted(sequences, key=lambda each: (len(each.ids), each.number)):
        if batch and len(sequence.ids) * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(sequence)
    if batch:
        yield batch


def padded(batch: Sequence[TokenSequence], pad_id: int) -> tuple[Tensor, Tensor]:
    """The ids of a batch [text pos], and whether each is a token and not padding."""
    import torch

    longest = max(len(sequence.ids) for sequence in batch)
    ids = torch.full((len(batch), longest), pad_id)
    for row, sequence in enumerate(batch):
        ids[row, : len(sequence.ids)] = torch.tensor(sequence.ids)
    lengths = torch.tensor([len(sequence.ids) for sequence in batch])
    return ids, torch.arange(longest) < lengths[:, None]


def _hash(*numbers: int) -> bytes:
    """Bytes that look random, and are the same everywhere."""
    return blake2b(repr(numbers).encode(), digest_size=8).digest()
