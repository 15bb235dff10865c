"""The words and sentences of a text that is given as tokens: what a rule such as `from "it" to "animal"` is about."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from attention.analysis import token_kinds
from attention.analysis.subwords import TokenGroups
from attention.core.patch_places import patch_places

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MARKERS = "·▁ ⏎"  # a blank or a new line in readable tokens
_ENDS = frozenset(".!?…。！？")
_CLOSERS = frozenset("\"')]}”’»")


@dataclass(frozen=True, eq=False)
class TextWords:
    """The words of a text, for each of its tokens.

    Pieces of a word that a tokenizer has cut are joined if the tokens show it, as ##ing or ·the do; in a language without spaces, a BPE
    tokenizer does not show it, and all between two marks is one word.

    Attributes:
        names: the words, without the mark of a leading blank.
        word_of: the index of the word of each token, [token].
        is_special: whether each word is a special token, such as [CLS].
        kinds: what each word stands for, one of `token_kinds`.
        places: the picture, row and column of each word that is a patch, [word 3]; −1 for others.
    """

    names: tuple[str, ...]
    word_of: NDArray[np.int64]
    is_special: tuple[bool, ...]
    kinds: tuple[str, ...]
    places: NDArray[np.int64]

    @classmethod
    def of(cls, tokens: Sequence[str], special: Collection[str] = ()) -> TextWords:
        """The words of some tokens.

        Args:
            tokens: readable tokens.
            special: the special tokens of the tokenizer; if empty, a token such as [CLS] or </s> counts as special.
        """
        import numpy as np

        is_special = [token_kinds.is_special(token, special) for token in tokens]
        is_cut = any(token.startswith(("·", "##")) for token in tokens)
        if is_cut:
            groups = TokenGroups.of(tokens, is_special, words=True, hide=False)
            names, spans = groups.names, groups.spans
        else:  # tokens of a typed text, or of a tiny model, are whole words
            names, spans = tuple(tokens), tuple((i, i + 1) for i in range(len(tokens)))
        lengths = [stop - start for start, stop in spans]
        return cls(
            tuple(str(name).strip(_MARKERS) for name in names),
            np.repeat(np.arange(len(spans)), lengths),
            tuple(is_special[start] for start, _ in spans),
            tuple(token_kinds.kind_of(tokens[start], special) for start, _ in spans),
            patch_places([tokens[start] for start, _ in spans]).numpy(),
        )

    @cached_property
    def sentence_of(self) -> NDArray[np.int64]:
        """The index of the sentence of each word, [word]; −1 for a special token and for a patch.

        A sentence ends at a word that ends with . ! ? or …, with the marks that close it; abbreviations such as "Dr." end one, too.
        """
        import numpy as np

        result, sentence, has_ended = np.full(len(self.names), -1), 0, False
        for index, name in enumerate(self.names):
            if self.is_special[index] or self.kinds[index] == token_kinds.PATCH:
                continue
            closes = all(character in _ENDS or character in _CLOSERS for character in name)
            if has_ended and not closes:
                sentence, has_ended = sentence + 1, False
            result[index] = sentence
            has_ended = has_ended or name.rstrip("\"')]}”’»")[-1:] in _ENDS
        return result
