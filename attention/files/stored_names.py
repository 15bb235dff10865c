"""What the name of an array in a file says: its step, and of which layer, head, sentence or step of generation it is."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import NamedTuple

from attention.formula.names import (
    HEAD_OUTPUT,
    KEY,
    MAP_AXES,
    MASKED_SCORES,
    QUERY,
    ROTATED_KEY,
    ROTATED_QUERY,
    SCORES,
    VALUE,
    WEIGHTS,
)
from attention.formula.steps import DECLARED, STEPS

LAYER, BATCH, HEAD, GENERATED, UNKNOWN = "layer", "batch", "head", "step", ""
_LONGEST = 300  # characters of a name that are looked at
_MOST_NUMBERS = 6
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def words_of(name: str) -> list[str]:
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
_FILLERS = frozenset(words_of("arr array tensor tensors self model module modules transformer layer layers hook s"))
_ATTENTION = frozenset(words_of("attn attention"))
# Words of parameters, and of what a module returns beside its weights.
_OTHERS = frozenset(
    words_of(
        "weight bias proj norm ln layernorm c fc dense mlp lora grad logits out output outputs hidden states state past special type"
    )
)
_OF_MASKS = frozenset(words_of("causal padding src tgt memory attn attention encoder decoder self cross"))
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
    for word in words_of(name):
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
            words = tuple(words_of(spelled))
            for each in {words, words[1:] if words[:1] == ("hook",) else words} - {()}:
                meanings.setdefault(each, set()).add(entry.name)
    aliases = {
        words: WEIGHTS if WEIGHTS in names else min(names) if len(names) == 1 else ""
        for words, names in meanings.items()
    }
    parameters = {tuple(words_of(name)): name for name in DECLARED if len(words_of(name)) > 1}  # W_Q
    aliases[tuple(words_of("attention_scores"))] = (
        MASKED_SCORES  # of BERT in transformers, and TransformerLens's attn_scores
    )
    return parameters | aliases | {tuple(words_of(name)): WEIGHTS for name in _WEIGHTS.split()}


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


REQUIRED = (WEIGHTS, SCORES, MASKED_SCORES, QUERY)
"""A layer has at least one of these."""
