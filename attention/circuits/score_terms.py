"""Why a query looks at a key: a score as a sum over the parts of the model that wrote the query and those that wrote the key.

Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", "Splitting attention head terms into circuits".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.base import cache
from attention.base.errors import MissingError, check_index
from attention.base.printed import format_number
from attention.circuits.direct_effects import find_run
from attention.formula.names import BIASED_SCORES, CAPPED_SCORES, KEY, QUERY, SCALED_SCORES, SCORES
from attention.formula.steps import find_step
from attention.trace.residual_parts import EMBEDDED, Part

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from attention.trace.layer import Layer
    from attention.trace.trace import Trace

_PARTS = "parts"  # of a row, in the cache
GROUP = "layer"
"""The kind of a part that stands for all parts of a layer."""
CAVEAT = (
    "The norms before the projections are frozen at their scales in this run, and rotary position turns the query and the key to their places. "
    "“bias” is what all biases of the model add, “rounding” what single precision leaves over."
)
"""What the terms depend on."""
_STEPS_AFTER_SCORES = (SCALED_SCORES, CAPPED_SCORES, BIASED_SCORES)
_WORDS_OF_OTHER_TOKENS = (
    "A sum over the parts of the model needs the model's own tokens, which this layer does not have: show word pieces instead of words, "
    "and special tokens too."
)


@dataclass(frozen=True, eq=False)
class ScoreTerms:
    """One score as a sum of terms, one for each pair of a part that wrote the query and a part that wrote the key.

    Attributes:
        values: the terms, [query_part key_part], in double precision; their sum is the score q · k of the trace.
        query_sources: the parts of the query; `key_sources` those of the key. The last of each is what single precision left over.
        later: what the softmax gets, as a sum (step, what it adds): the score, scaled if it is, then what a cap and a position bias add.
        query_token: the token of the query; `key_token` that of the key.
    """

    values: Tensor
    query_sources: tuple[Part, ...]
    key_sources: tuple[Part, ...]
    later: tuple[tuple[str, float], ...]
    query_token: str
    key_token: str

    @property
    def query_parts(self) -> tuple[str, ...]:
        """The names of the parts of the query, such as "embedding", "L0 H2", "L0 MLP", "bias"."""
        return tuple(part.name for part in self.query_sources)

    @property
    def key_parts(self) -> tuple[str, ...]:
        """The names of the parts of the key."""
        return tuple(part.name for part in self.key_sources)

    @property
    def score(self) -> float:
        """The score q · k: the sum of all terms."""
        return float(self.values.sum())

    @property
    def nbytes(self) -> int:
        """The bytes of the terms."""
        return int(self.values.nbytes)

    def by_layer(self, opened_query: int | None = None, opened_key: int | None = None) -> ScoreTerms:
        """The terms with the parts of each layer added up, except those of the opened layers.

        Args:
            opened_query: the layer whose parts of the query stay single; None: no layer.
            opened_key: the same for the key.
        """
        import torch

        def group(parts: tuple[Part, ...], opened: int | None) -> tuple[tuple[Part, ...], Tensor]:
            groups: dict[Part, list[int]] = {}
            for i, part in enumerate(parts):
                whole = part if part.layer in (None, opened) else Part(f"L{part.layer}", GROUP, part.layer)
                groups.setdefault(whole, []).append(i)
            matrix = torch.zeros(len(groups), len(parts), dtype=torch.float64)
            for row, members in enumerate(groups.values()):
                matrix[row, members] = 1
            return tuple(groups), matrix

        query_sources, left = group(self.query_sources, opened_query)
        key_sources, right = group(self.key_sources, opened_key)
        values = left @ self.values @ right.T
        return ScoreTerms(values, query_sources, key_sources, self.later, self.query_token, self.key_token)

    def largest(self, count: int = 5) -> tuple[tuple[Part, Part, float], ...]:
        """The largest terms by size, as (part of the query, part of the key, term)."""
        columns = self.values.shape[1]
        order = self.values.abs().flatten().argsort(descending=True, stable=True)[:count].tolist()
        return tuple(
            (self.query_sources[i // columns], self.key_sources[i % columns], float(self.values.flatten()[i]))
            for i in order
        )

    def describe(self) -> tuple[str, ...]:
        """The largest parts of the key, of the query, and the largest term, in sentences."""
        lines = []
        for side, token, parts, sums in (
            (KEY, self.key_token, self.key_sources, self.values.sum(0)),
            (QUERY, self.query_token, self.query_sources, self.values.sum(1)),
        ):
            i = int(sums.abs().argmax())
            lines.append(
                f"Of the {side}, {_words(parts[i])} at “{token}” wrote the most: {format_number(float(sums[i]))} of the score "
                f"{format_number(self.score)}{_share(float(sums[i]), self.score)}."
            )
        query, key, term = self.largest(1)[0]
        lines.append(
            f"The largest single term is {format_number(term)}: the query as {_words(query)} wrote it, the key as {_words(key)} wrote it."
        )
        return tuple(lines)

    def frame(self, most: int | None = None) -> pd.DataFrame:
        """A row for each term, the largest first, at most `most`: part of the query, part of the key, and the term."""
        import pandas as pd

        rows = [(query.name, key.name, value) for query, key, value in self.largest(most or self.values.numel())]
        return pd.DataFrame(rows, columns=["query_part", "key_part", "term"])


def score_terms(trace: Trace, layer: int, head: int, q: int, k: int) -> ScoreTerms:
    """The score of query q and key k as a sum of terms: [query_part key_part].

    The residual streams at q and at k are sums of what the embedding and all earlier heads and MLPs wrote. With the norms before the
    projections (and those of Q and K) frozen, and rotary position at these two positions, q · k is a sum over all pairs of parts.

    Args:
        trace: of a model, by its own tokens (not merged into words).

    Raises:
        MissingError: the trace has no model, no such layer, head or position, or the model is not linear in its parts.
    """
    source, run = trace.layer(layer), find_run(trace)
    if not (source.has(QUERY) and source.has(KEY) and source.has(SCORES)):
        raise MissingError(_WORDS_OF_OTHER_TOKENS)
    check_index("heads", head, source.n_heads)
    n_heads, n_queries, n_keys = source.shape(SCORES)
    check_index("queries", q, n_queries, "counts")
    check_index("keys", k, n_keys, "counts")
    kv_head = head // (n_heads // source.shape(KEY)[0])

    def row_parts(step: str, index: int, position: int) -> tuple[tuple[Part, ...], Tensor]:
        return cache.memoize(
            source.uid,
            (_PARTS, step, index, position),
            None,
            lambda: run.linear_run().parts_of(f"{step} {layer}", position, index, source[step][index, position]),
        )

    query_sources, query_vectors = row_parts(QUERY, head, q)
    key_sources, key_vectors = row_parts(KEY, kv_head, k)
    values = query_vectors @ key_vectors.T
    values[-1, -1] += float(source.matrix(SCORES, head)[q, k]) - float(values.sum())  # the score itself is rounded
    return ScoreTerms(
        values, query_sources, key_sources, _later(source, head, q, k), source.tokens[q], source.key_tokens[k]
    )


def estimate_seconds(trace: Trace, layer: int, head: int, q: int, k: int) -> float:
    """The estimated seconds of `score_terms`, without computing it; what is cached takes none.

    Before the run that all cells share, only the seconds of that run are known.

    Raises:
        MissingError: as for `score_terms`.
        SizeError: it would take more memory than the source allows.
    """
    source, run = trace.layer(layer), find_run(trace)
    if (seconds := run.estimate_seconds()) or not source.has(KEY):
        return seconds
    kv_head = head // (source.n_heads // source.shape(KEY)[0])
    rows = [(QUERY, head, q), (KEY, kv_head, k)]
    missing = [step for step, *place in rows if cache.CACHE.get((source.uid, (_PARTS, step, *place), None)) is None]
    return sum(run.linear_run().estimate_seconds(f"{step} {layer}") for step in missing)


def _later(layer: Layer, head: int, q: int, k: int) -> tuple[tuple[str, float], ...]:
    """The number that the softmax gets, if no mask hides it, as a sum: the scaled score, and what a cap and a bias add to it."""
    terms: list[tuple[str, float]] = []
    before = 0.0
    for step in (SCORES, *_STEPS_AFTER_SCORES):
        if layer.has(step) and not (step == SCORES and layer.has(SCALED_SCORES)):
            value = float(layer.matrix(step, head)[q, k])
            terms.append((find_step(step).name, value - before))
            before = value
    return tuple(terms)


def _words(part: Part) -> str:
    return {EMBEDDED: "the embedding", "bias": "the biases", "rounding": "rounding"}.get(part.kind, part.name)


def _share(value: float, whole: float) -> str:
    return f" ({value / whole:.0%})" if whole and 0 < value / whole <= 1 else ""
