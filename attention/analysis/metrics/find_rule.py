"""Heads that look from some tokens to others: a rule such as ``from [he, she] to [anna, tom]`` as a metric, and the heads of a trace by it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from attention.analysis.metrics.metric import CellWeights, Metric
from attention.analysis.patterns import CELLS_PER_SECOND, Pattern, TokenTexts, iterate_patterns
from attention.core import cache
from attention.core.names import WEIGHTS
from attention.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from attention.core.layer import Layer
    from attention.core.trace import Trace

MAX_RULE, MAX_WORDS, MAX_OFFSET = 300, 100, 10_000
"""The most characters of a rule, words of a list, and positions of an offset."""
EXAMPLES = (
    "from any to offset -1",
    "from [he, she, it] to /^[a-z]{4,}$/",
    'from "the" to same word',
    "from any to [.]",
    "from any to previous sentence",
)
"""Rules that a page can suggest."""
_FORM = 'a rule is “from X to Y” with X and Y as any, "word", [some, words], /regular expression/, and for Y also same word, offset -1 or previous sentence'
_SPLIT = re.compile(r"\s*from\s+(?P<source>.+?)\s+to\s+(?P<target>(?:any|same word|previous sentence|offset\s.*|[\"\[/].*))\s*", re.IGNORECASE | re.DOTALL)  # fmt: skip
_OFFSET = re.compile(r"offset\s+([+\-−]?\d{1,5})", re.IGNORECASE)
_ENDS = frozenset(".!?。！？")
Words = Callable[[str], bool]
"""Whether a token, without the mark of its beginning and in lower case, is meant."""


@dataclass(frozen=True)
class FindRule:
    """A rule that was parsed.

    Attributes:
        text: the rule as it was written, with single blanks.
        source: which queries it is about; None for any.
        target: which keys; None for any, or where `relation` says which.
        relation: "same word", "offset", "previous sentence", or empty.
        offset: the position of the key minus that of the query.
    """

    text: str
    source: Words | None
    target: Words | None
    relation: str = ""
    offset: int = 0

    @property
    def metric(self) -> Metric:
        """The rule as a metric: the total weight of its keys, over the queries that see any."""
        return Metric(
            self.text,
            f"The total weight of the keys of the rule “{self.text}”.",
            "Σ a_ij over the keys j of the rule",
            "queries of the rule that see any of its keys",
            "as HeadVis (Anthropic 2026) finds heads",
            CellWeights(self.cells),
        )

    def cells(self, pattern: Pattern) -> Tensor:
        """The cells of the rule, as a mask that can be broadcast to the weights."""
        import torch

        cells = self._targets(pattern)
        if self.source is None:
            return cells
        of_keys = self._of_words(pattern, self.source, "source")  # one row for all queries, [text 1 1 key_pos]
        rows = of_keys[..., 0, :].index_select(-1, pattern.queries) if of_keys.shape[-2] == 1 else of_keys
        return cells & rows[..., :, None] if bool(torch.any(rows)) else torch.zeros_like(cells)

    def _targets(self, pattern: Pattern) -> Tensor:
        match self.relation:
            case "same word":
                rows, keys = pattern.token_ids
                return (rows[..., :, None] == keys[..., None, :]) & (pattern.offsets != 0)
            case "offset":
                return pattern.offsets == self.offset
            case "previous sentence":
                return pattern.mask_of_tokens("previous sentence", _previous_sentences)
        return self._of_words(pattern, self.target or (lambda _: True), "target")

    def _of_words(self, pattern: Pattern, words: Words, side: str) -> Tensor:
        import torch

        special = pattern.tokens.special
        return pattern.mask_of_tokens(
            (self.text, side),
            lambda tokens: torch.tensor([token not in special and words(bare(token)) for token in tokens]),
        )


def bare(token: str) -> str:
    """A token without the mark of a word's beginning or continuation, in lower case."""
    return re.sub(r"^(?:[·▁ ]|##)(?=.)", "", token).casefold()


@lru_cache(maxsize=64)
def parse_rule(text: str) -> FindRule:
    """The rule in a text.

    Raises:
        ConfigError: it is none.
    """
    if len(text) > MAX_RULE:
        raise ConfigError(f"A rule has at most {MAX_RULE} characters; got {len(text):,}: shorten it.")
    text = " ".join(text.split())
    match = _SPLIT.fullmatch(text)
    if match is None:
        raise ConfigError(f"{_FORM[0].upper()}{_FORM[1:]}; got “{text[:60]}”: write it so.")
    target = match["target"]
    relation = target.lower() if target.lower() in ("same word", "previous sentence") else ""
    offset = _OFFSET.fullmatch(target)
    source = _words(match["source"])
    if offset:
        return FindRule(text, source, None, "offset", int(offset[1].replace("−", "-")))
    return FindRule(text, source, None if relation else _words(target), relation)


def _words(text: str) -> Words | None:
    """Which tokens a part of a rule means; None for any.

    Raises:
        ConfigError: it cannot be read.
    """
    if text.lower() == "any":
        return None
    if len(text) > 2 and text[0] == text[-1] == '"':
        return _one_of([text[1:-1]])
    if text.startswith("[") and text.endswith("]"):
        return _one_of([word.strip().strip('"') for word in text[1:-1].split(",")])
    if len(text) > 2 and text[0] == text[-1] == "/":
        return _matching(text[1:-1])
    raise ConfigError(
        f'A part of a rule is any, "word", [some, words] or /regular expression/; got “{text[:60]}”: write it so.'
    )


def _one_of(words: Sequence[str]) -> Words:
    chosen = frozenset(word.casefold() for word in words if word)
    if not 0 < len(chosen) <= MAX_WORDS:
        raise ConfigError(f"A list of a rule has 1 to {MAX_WORDS} words; got {len(chosen)}: change it.")
    return chosen.__contains__


def _matching(expression: str) -> Words:
    import regex

    try:
        compiled = regex.compile(expression, regex.IGNORECASE)
    except regex.error as error:
        raise ConfigError(f"“{expression[:60]}” is no regular expression ({error}): correct it, or give a list.") from None  # fmt: skip

    def matches(token: str) -> bool:
        try:
            return compiled.search(token[:200], timeout=0.1) is not None
        except TimeoutError:
            raise ConfigError(f"“{expression[:60]}” takes too long on a token: give a simpler one.") from None

    return matches


def _previous_sentences(tokens: Sequence[str]) -> Tensor:
    """Whether each key is in the sentence before that of the query, [query_pos key_pos]."""
    import torch

    numbers, current = [], 0
    for token in tokens:
        numbers.append(current)
        current += bare(token) in _ENDS
    sentence = torch.tensor(numbers)
    return sentence[None, :] == sentence[:, None] - 1


@dataclass(frozen=True)
class FoundHead:
    """A head by a rule.

    Attributes:
        layer: its index.
        head: its index.
        value: the mean over the queries.
        by_chance: the same under uniform attention.
        n_queries: the number of queries.
        query: the position of the query with the largest value.
        key: its key with the largest weight among those of the rule.
        weight: this weight.
    """

    layer: int
    head: int
    value: float
    by_chance: float
    n_queries: int
    query: int
    key: int
    weight: float


def find_heads(trace: Trace, rule: FindRule, special: Iterable[str] = ()) -> tuple[FoundHead, ...]:
    """All heads of a trace for which the rule has a query, the largest value first.

    Args:
        trace: the trace.
        rule: the rule.
        special: the special tokens, which no word and no expression of a rule means.
    """
    found: list[FoundHead] = []
    for index, layer in enumerate(trace.layers):
        if layer.has(WEIGHTS):
            tokens = TokenTexts((tuple(layer.key_tokens),), frozenset(special))
            compute = partial(_of_layer, index, layer, rule, tokens)
            found += cache.memoize(layer.uid, _place(rule, index), layer.formula, compute)
    return tuple(sorted(found, key=lambda each: -each.value))


def estimated_seconds(trace: Trace, rule: FindRule) -> float:
    """The estimated seconds of `find_heads`; layers that are cached take none."""
    uncached = (
        layer
        for index, layer in enumerate(trace.layers)
        if layer.has(WEIGHTS) and cache.CACHE.get((layer.uid, _place(rule, index), layer.formula)) is None
    )
    return sum(math.prod(layer.shape(WEIGHTS)) for layer in uncached) / CELLS_PER_SECOND


def _place(rule: FindRule, index: int) -> tuple[str, str, int]:
    """The place of the found heads of a layer in the cache."""
    return "find", rule.text, index


def _of_layer(index: int, layer: Layer, rule: FindRule, tokens: TokenTexts) -> tuple[FoundHead, ...]:
    """The heads of a layer for which the rule has a query."""
    import torch

    of_heads: dict[int, list[Tensor]] = {}
    for heads, rows, pattern in iterate_patterns(layer):
        texts = replace(pattern, tokens=tokens)
        cells = rule.cells(texts)
        values, uniform = (each.weight_on(cells) for each in (texts, texts.under_uniform_attention))
        n_heads, _, n_keys = texts.weights.shape
        best = values.nan_to_num(-1).argmax(-1)
        picked = best[:, None, None].expand(-1, 1, n_keys)
        of_rule = cells.expand(texts.weights.shape).gather(1, picked)[:, 0]
        weights, keys = texts.weights.gather(1, picked)[:, 0].masked_fill(~of_rule, -1).max(-1)
        defined = ~values.isnan()
        columns = (
            values.nansum(-1), (uniform * torch.ones_like(values)).nansum(-1), defined.sum(-1),
            values.nan_to_num(-1).amax(-1), best + rows.start, keys, weights,
        )  # fmt: skip
        for i, head in enumerate(range(heads.start, heads.start + n_heads)):
            of_heads.setdefault(head, []).append(torch.stack([column[i].double() for column in columns]))
    found = (_of_head(index, head, torch.stack(blocks)) for head, blocks in of_heads.items())
    return tuple(each for each in found if each is not None)


def _of_head(layer: int, head: int, blocks: Tensor) -> FoundHead | None:
    """A head from its blocks of queries [block, sums, sums by chance, number of queries, and the best query: value, position, key, weight]; None without a query."""
    value, by_chance, n_queries = blocks[:, :3].sum(0).tolist()
    if not n_queries:
        return None
    _, query, key, weight = blocks[int(blocks[:, 3].argmax()), 3:].tolist()
    return FoundHead(
        layer, head, value / n_queries, by_chance / n_queries, int(n_queries), int(query), int(key), weight
    )
