"""What the names in a file say: of an array, its step, and of which layer, head, sentence or step of generation it is; of a list of texts, whose tokens they are.

The lists are those of a file that is no export of the Lab, in whatever form, found by their names and lengths.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

from attention.base.errors import FileError
from attention.files.archives import MAX_ARRAYS, TEXT_KEYS, Archive, quote
from attention.formula.names import (
    HEAD_OUTPUT,
    KEY,
    MAP_AXES,
    MASKED_SCORES,
    POSITION,
    QUERY,
    ROTATED_KEY,
    ROTATED_QUERY,
    SCORES,
    VALUE,
    WEIGHTS,
)
from attention.formula.steps import DECLARED, STEPS

REQUIRED = (WEIGHTS, SCORES, MASKED_SCORES, QUERY)
"""A layer has at least one of these."""
WORD_IDS = {"tokens": "word_ids", "key_tokens": "key_word_ids"}
"""The name of the words beside each list of tokens in an export: the number of the word of each token, as a tokenizer's `word_ids()`."""
PAIRS = {"tokens": "pair", "key_tokens": "key_pair"}
"""The name of the texts of a pair there, "A" or "B" for each token; "" stands for neither."""
RESIDUES = {"tokens": "residues", "key_tokens": "key_residues"}
"""The name of the numbers of residues there, where a text is a chain of them; 0 for a token that is none."""
LAYER, BATCH, HEAD, GENERATED, UNKNOWN = "layer", "batch", "head", "step", ""
_LONGEST = 300  # characters of a name that are looked at
_MOST_NUMBERS = 6
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _words_of(name: str) -> list[str]:
    """The words and numbers of a name, in small letters."""
    return [*_words(name[:_LONGEST])]


@lru_cache(2**13)
def _words(name: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in _WORD.findall(name))


# What a number counts, by the word before it.
_COUNTED = {
    LAYER: "layer layers l h block blocks resblocks lyr",
    HEAD: "head heads h",
    BATCH: "batch b sentence sentences sent seq sequence sample samples example examples ex text doc item record prompt",
    GENERATED: "step steps t time timestep",
}
_BLOCKS = {
    "encoder": "encoder", "enc": "encoder", "decoder": "decoder", "dec": "decoder", "cross": "cross", "crossattention": "cross",
}  # fmt: skip
_ROWS = (QUERY, KEY, VALUE, ROTATED_QUERY, ROTATED_KEY, HEAD_OUTPUT)  # read by their names in libraries
_FILLERS = frozenset(_words_of("arr array tensor tensors self model module modules transformer layer layers hook s"))
_ATTENTION = frozenset(_words_of("attn attention"))
# Words of parameters, and of what a module returns beside its weights.
_OTHERS = frozenset(
    _words_of(
        "weight bias proj norm ln layernorm c fc dense mlp lora grad logits out output outputs hidden states state past special type"
    )
)
_OF_MASKS = frozenset(_words_of("causal padding src tgt memory attn attention encoder decoder self cross"))
# What people call the weights, beside the names that libraries have for them.
_WEIGHTS = "attentions attn attns att atts attention_weights attention_weight attn_weight attention_matrix attention_map attention_maps attn_map attn_maps alpha alphas prob probs"


class StoredName(NamedTuple):
    """What a name says.

    Attributes:
        step: the step or parameter; empty where the name does not say it.
        block: "encoder", "decoder" or "cross", or another part of a model; often empty.
        stem: the words that say nothing of this.
        numbers: what each number counts, and the number.
        rows_first: whether the axis of positions comes before that of heads, as in TransformerLens's hook_q.
        is_other: whether a word says that it is a parameter, or something else that a model returns.
    """

    step: str
    block: str
    stem: tuple[str, ...]
    numbers: tuple[tuple[str, int], ...]
    rows_first: bool = False
    is_other: bool = False


def read_name(name: str) -> StoredName:
    """What the name of an array says."""
    if name in DECLARED:
        return StoredName(name, "", (), ())
    words = list[str]()
    numbers = list[tuple[str, int]]()
    for word in _words_of(name):
        if not word.isdigit():
            words.append(word)
            continue
        counted = UNKNOWN
        if words and words[-1] in _FILLERS - {"layer", "layers"}:
            words.pop()
        elif words:
            present = {axis for axis, _ in numbers}
            counted = next((axis for axis, known in _COUNTED.items() if words[-1] in known.split() and axis not in present), UNKNOWN)  # fmt: skip
            if counted:
                words.pop()
        numbers.append((counted, int(word[:9])))
    step, rest = _step(words)
    numbers = numbers[:_MOST_NUMBERS]
    blocks = [_BLOCKS[word] for word in rest if word in _BLOCKS]
    block = "cross" if "cross" in blocks or {"encoder", "decoder"} <= {*blocks} else "".join(blocks[-1:])
    stem = tuple(word for word in rest if word not in _BLOCKS and word not in _FILLERS | _ATTENTION)
    rows_first = "hook" in words and step in _ROWS
    return StoredName(step, block, stem, tuple(numbers), rows_first, not step and bool(_OTHERS & {*words}))


@cache
def _aliases() -> dict[tuple[str, ...], str]:
    """The step by the words of each of its names, here and in the libraries; empty where a name has several meanings."""
    meanings: dict[tuple[str, ...], set[str]] = {}
    read = (*(step for step in STEPS if step.axes == MAP_AXES), *map(DECLARED.__getitem__, (*_ROWS, "mask")))
    for entry in read:
        libraries = [(library, names) for library, names in entry.elsewhere if not library.startswith("notebook")]
        for spelled in (entry.name, *(part for _, names in libraries for part in names.split(", "))):
            words = tuple(_words_of(spelled))
            for each in {words, words[1:] if words[:1] == ("hook",) else words} - {()}:
                meanings.setdefault(each, set()).add(entry.name)
    aliases = {
        words: WEIGHTS if WEIGHTS in names else min(names) if len(names) == 1 else ""
        for words, names in meanings.items()
    }
    parameters = {tuple(_words_of(name)): name for name in DECLARED if len(_words_of(name)) > 1}  # W_Q
    # Of BERT in transformers, and TransformerLens's attn_scores.
    aliases[tuple(_words_of("attention_scores"))] = MASKED_SCORES
    return parameters | aliases | {tuple(_words_of(name)): WEIGHTS for name in _WEIGHTS.split()}


def _step(words: list[str]) -> tuple[str, list[str]]:
    """The step that some words name, the longest name and the last one first, and the other words."""
    aliases = _aliases()
    for size in range(min(len(words), 4), 0, -1):
        for start in range(len(words) - size, -1, -1):
            name, rest = tuple(words[start : start + size]), [*words[:start], *words[start + size :]]
            if name not in aliases or (len(name[0]) == size == 1 and start < len(words) - 1):
                continue
            step = aliases[name]
            if _OTHERS & set(rest) or (step == "mask" and not set(rest) <= _OF_MASKS):
                step = ""
            return step, rest if step else words
    return "", words


# The tokens of the axes.

AxisTokens = tuple[tuple[str, ...], tuple[str, ...]]
"""The tokens of the queries, and those of the keys."""

_MAX_CHARACTERS = 1000  # of a token
_MAX_IDS = 2**20
_LABEL_TOKENS = 6
_MOST_LISTS = 64  # that are tried for one sentence
_QUERIES = frozenset(
    _words_of("query left top target targets tgt trg decoder output generated hypothesis hyp translation")
)
_KEYS = frozenset(_words_of("key right bot bottom source sources src encoder memory context"))
_USUAL = frozenset(
    _words_of(
        "token tokens word words text texts piece pieces subwords sentence sentences sequence sequences prompt prompts labels"
    )
)
_SENTENCES = frozenset(_words_of("sequences sentences texts prompts"))
_MASKS = (_words_of("attention_mask"), _words_of("padding_mask"))
_NO_TOKENS = frozenset(_words_of("notes layers name names random version model config title"))


class _List(NamedTuple):
    """A list of texts, or of such lists: its name, its words, its sentence by its name, and its value."""

    key: str
    words: frozenset[str]
    number: int | None
    value: Any

    @property
    def side(self) -> str:
        """Whether the name says that these are the queries or the keys."""
        return QUERY if self.words & _QUERIES else KEY if self.words & _KEYS else ""


_NONE = _List("", frozenset(), None, [])


class Sentence(NamedTuple):
    """One of the sequences of a file.

    Attributes:
        stem: the words of its names; `stems` are those of all sequences.
        number: of its arrays; its index where they have none.
        place: in lists and arrays of all sentences.
        n_sequences: how many there are.
        key: the name of its first array, if its arrays have numbers.
    """

    stem: frozenset[str]
    stems: frozenset[str]
    number: int
    place: int
    n_sequences: int
    key: str = ""


@dataclass
class Lists:
    """All lists of texts of a file, and its token ids.

    Attributes:
        lists: those of texts.
        archive: the contents of the file.
        ids: the names of arrays of token ids.
        n_sentences: of which there are tokens, ids or a mask; 0 if unknown.
        names: what the file calls a sentence, such as "name" beside its arrays, by its number.
        used: the names of those that are shown.
        notes: sentences on tokens that were found otherwise than by name.
        has_key_tokens: whether the keys of a layer that are no queries have tokens.
    """

    lists: tuple[_List, ...]
    archive: Archive
    ids: tuple[str, ...]
    n_sentences: int
    names: Mapping[int, str]
    used: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    has_key_tokens: bool = False
    _loaded: dict[str, Any] = field(default_factory=dict)
    _known: dict[tuple[object, ...], AxisTokens] = field(default_factory=dict)

    @classmethod
    def of(cls, archive: Archive) -> Lists:
        """The lists of a file."""
        lists, names = list[_List](), dict[int, str]()
        for key, value in archive.metadata.items():
            words = _words_of(key)
            if words[-1:] == ["name"] and words[-2:-1] and words[-2].isdigit() and isinstance(value, str):
                names.setdefault(int(words[-2][:9]), value[:60])
            elif isinstance(value, str) and not (_USUAL | _QUERIES | _KEYS) & {*words}:
                continue  # a setting, such as "default_filter": "0"
            elif len(lists) < MAX_ARRAYS and not _NO_TOKENS & {*words[-1:]} and (texts := _texts(value)) is not None:
                numbers = [int(word[:9]) for word in words if word.isdigit()]
                lists.append(_List(key, frozenset(words), numbers[0] if numbers else None, texts))
        ids = list[str]()
        counts = [
            len(each.value)
            for each in lists
            if _is_nested(each.value) or (isinstance(each.value, list) and each.words & _SENTENCES)
        ]
        for key, entry in archive.arrays.items():
            words, shape = _words_of(key), entry.shape
            is_ids = "ids" in words or words[-1:] == ["tokens"]
            if is_ids and len(shape) <= 2 and not {"type", POSITION} & {*words}:
                ids.append(key)
            if (key in ids[-1:] or words[-2:] in _MASKS) and len(shape) == 2 and shape[0] != shape[1]:
                counts.append(shape[0])
        usual_first = tuple(sorted(lists, key=lambda each: not each.words & _USUAL))
        return cls(usual_first, archive, tuple(ids), max(counts, default=0), names)

    @cached_property
    def numbers(self) -> frozenset[int]:
        """The numbers in the names of the lists; those of several sentences have one each."""
        return frozenset(self._by_number) - {-1}

    @cached_property
    def _by_number(self) -> dict[int, list[_List]]:
        """The lists by their number; −1 for those without one."""
        by_number = dict[int, list[_List]]()
        for each in self.lists:
            by_number.setdefault(-1 if each.number is None else each.number, []).append(each)
        return by_number

    def label(self, sentence: Sentence) -> str:
        """The first tokens of a sentence; empty without tokens."""
        for each in self._of_sentence(sentence):
            if texts := _chosen(each, sentence, 0):
                return " ".join(texts[:_LABEL_TOKENS])[:60] + (" …" if len(texts) > _LABEL_TOKENS else "")
        return ""

    def tokens(self, name: str, block: str, sentence: Sentence, n_queries: int, n_keys: int) -> AxisTokens:
        """The tokens of the queries and keys of a layer: those that fit, otherwise numbered labels.

        Raises:
            FileError: the list "tokens" or "key_tokens" does not fit.
        """
        known = block, n_queries, n_keys
        if known not in self._known:
            self._known[known] = self._axis_tokens(name, block, sentence, n_queries, n_keys)
        return self._known[known]

    def _axis_tokens(self, name: str, block: str, sentence: Sentence, n_queries: int, n_keys: int) -> AxisTokens:
        query_side, key_side = {"encoder": (KEY, KEY), "decoder": (QUERY, QUERY)}.get(block, (QUERY, KEY))
        is_self = n_queries == n_keys and block != "cross"
        lists = self._of_sentence(sentence)
        query, by = self._fitting(lists, sentence, n_queries, query_side, is_self)
        key, key_by = self._fitting(lists, sentence, n_keys, key_side, is_self)
        if is_self and (query is None or key is None or by is key_by):
            query = key = key if query is None else query
        if query is None and key is not None and n_queries < n_keys:
            query = key[n_keys - n_queries :]
            which = "the only query is the last of them" if n_queries == 1 else f"the {n_queries:,} queries are the last of them"  # fmt: skip
            self.notes.append(f"{quote(key_by.key)} has a text for each of {n_keys:,} keys; {which}.")
        for texts, size, side in ((query, n_queries, "tokens"), (key, n_keys, "key_tokens")):
            if texts is None and side in self.archive.metadata:
                raise length_error(name, side, size, self.archive.metadata[side])
        self.has_key_tokens |= key is not None
        if query is None:
            query = tuple(f"x{position}" for position in range(n_queries))
        if key is None:
            key = query if n_keys == n_queries else tuple(f"k{position}" for position in range(n_keys))
        return clean(query), clean(key)

    def _fitting(
        self, lists: Sequence[_List], sentence: Sentence, size: int, side: str, is_self: bool
    ) -> tuple[tuple[str, ...] | None, _List]:
        """The best list of this length, and where it comes from: first the one whose name says the side, then one without a side."""
        for each in sorted(lists, key=lambda each: (each.side != side, bool(each.side))):
            texts = _chosen(each, sentence, size) if is_self or each.side in ("", side) else None
            is_batch = _is_nested(each.value) and len(each.value) > 1
            if texts is not None and is_batch and len(texts) < size == max(map(len, each.value)):
                self.notes.append(f"{quote(each.key)} has {len(texts):,} texts for {size:,} positions: the others are padding.")  # fmt: skip
                texts = [*texts, *["padding"] * (size - len(texts))]
            if texts is not None and len(texts) == size:
                return tuple(texts), each
        for key in self.ids[:_MOST_LISTS] if size else ():
            if self.archive.arrays[key].shape[-1:] != (size,):
                continue
            row = self._ids(key, sentence.place)
            if row is not None and len(row) == size:
                self.used.add(key)
                self.notes.append(f"{quote(key)} are shown as tokens, as numbers: the file has no texts.")
                return tuple(row), _List(key, frozenset(), None, [])
        return None, _NONE

    def _of_sentence(self, sentence: Sentence) -> list[_List]:
        """The lists whose names do not say that they are those of another sentence, the most exact name first."""
        lists = self.lists[:_MOST_LISTS]
        if sentence.n_sequences > 1:
            lists = tuple(each for at in (-1, sentence.number) for each in self._by_number.get(at, [])[:_MOST_LISTS])
        others = (each for each in lists if each.words & sentence.stems <= sentence.stem)
        return sorted(others, key=lambda each: -len(each.words & sentence.stem))

    def _ids(self, key: str, index: int) -> list[str] | None:
        entry = self.archive.arrays[key]
        if entry.nbytes > 8 * _MAX_IDS:
            return None
        if key not in self._loaded:
            self._loaded[key] = entry.load().long().tolist()
        row = self._loaded[key]
        if len(entry.shape) == 2:
            row = row[index] if index < len(row) else row[0] if len(row) == 1 else None
        return [str(number) for number in row] if isinstance(row, list) else None


def _chosen(each: _List, sentence: Sentence, size: int) -> list[str] | None:
    """The texts of a sentence, of a list of all or of its own; one text is split into `size` words, or returned as it is where that is 0."""
    value = each.value
    is_of_all = isinstance(value, list) and each.number is None and len(value) == sentence.n_sequences > 1
    if _is_nested(value) or is_of_all:
        if sentence.place >= len(value) > 1:
            return None
        value = value[sentence.place if len(value) > 1 else 0]
    if not isinstance(value, str):
        return list(value)
    return next((split for by in ("\t", None) if len(split := value.split(by)) == size), None) if size else [value]


def _is_nested(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


def _texts(value: Any) -> Any:
    """A text, a list of texts, or a list of such lists, of texts or of records with a text; None for anything else."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        return None
    if all(isinstance(item, list) for item in value):
        inner = [_texts(item) if item else [] for item in value]
        return inner if all(isinstance(item, list) and not _is_nested(item) for item in inner) else None
    texts = [
        next((item[key] for key in TEXT_KEYS if isinstance(item.get(key), str)), None)
        if isinstance(item, dict)
        else item
        for item in value
    ]
    return texts if are_tokens(texts) else None


def clean(texts: Sequence[str]) -> tuple[str, ...]:
    """The texts without lone surrogates, which cannot be sent to a browser."""
    return tuple(text.encode("utf-8", "replace").decode() for text in texts)


def are_tokens(saved: Any) -> bool:
    """Whether this is a list of texts that are short enough to be tokens."""
    return isinstance(saved, list) and all(isinstance(text, str) and len(text) <= _MAX_CHARACTERS for text in saved)


def length_error(name: str, key: str, size: int, saved: Any) -> FileError:
    """The error for tokens of an axis that are no texts, or of another number."""
    axis = QUERY if key == "tokens" else KEY
    got = f"{len(saved):,} texts" if are_tokens(saved) else f"{quote(str(saved))}"
    return FileError(
        f"{key} in {quote(name)} needs a list of {size:,} texts of at most {_MAX_CHARACTERS:,} characters, one for each {axis}; "
        f"got {got}: save a list of this length, or none."
    )
