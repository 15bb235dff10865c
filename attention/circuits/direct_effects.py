"""What the cells of a head, and all parts of a model, add to a logit (direct effects); and why a query looks at a key: a score as a sum over parts.

Source: nostalgebraist 2020, "interpreting GPT: the logit lens"; Elhage et al. 2021, "A Mathematical Framework for Transformer
Circuits", also "Splitting attention head terms into circuits"; Wang et al. 2022, "Interpretability in the Wild", section 3.1 (direct logit
attribution).
"""

from __future__ import annotations

import math
from dataclasses import MISSING, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

from attention.base import cache
from attention.base.errors import AttentionError, ConfigError, MissingError, SizeError, check_index
from attention.base.printed import Arithmetic, Printed, format_number, product
from attention.explanation.derived import DerivedMap
from attention.explanation.explanation import Explanation, ExplanationBuilder
from attention.formula.names import (
    BIASED_SCORES,
    CAPPED_SCORES,
    KEY,
    QUERY,
    SCALED_SCORES,
    SCORES,
    VALUE,
    WEIGHTS,
    Cell,
)
from attention.formula.steps import Step, find_step
from attention.trace.readout import Readout
from attention.trace.residual_parts import EMBEDDED, HEAD, LOGITS, NO_UNEMBEDDING, Part
from attention.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from attention.trace.layer import Layer
    from attention.trace.linear_run import DirectEffects
    from attention.trace.model_run import ModelRun
    from attention.trace.trace import Prediction

_Token = str | int | None
"""A token as its text or its id; None: the likeliest."""

_NO_MODEL = "circuits need the model behind the numbers, and this trace has none: take a trace of `Model` or `Trained`."
CAVEAT = (
    "This is the direct path only: what later heads and MLPs make of it comes on top, and the norms are frozen at their scales in this run. "
    "A head that writes the word need not be the head without which the model fails."
)
"""What the numbers of the map do not say."""

NAME, OF_VECTOR, SYMBOL = "logit-effect", "vector-effect", "Δ"
"""The name of the map for logits, its name for the vector of the text, and its symbol."""

_MAX_SECONDS = 2.0  # of the view of the Lab; Heads computes longer ones on request
_PARTS = "parts"  # of a row, in the cache
GROUP = "layer"
"""The kind of a part that stands for all parts of a layer."""
SCORE_CAVEAT = (
    "The norms before the projections are frozen at their scales in this run, and rotary position turns the query and the key to their places. "
    "“bias” is what all biases of the model add, “rounding” what single precision leaves over."
)
"""What the terms depend on."""
_STEPS_AFTER_SCORES = (SCALED_SCORES, CAPPED_SCORES, BIASED_SCORES)
_WORDS_OF_OTHER_TOKENS = (
    "A sum over the parts of the model needs the model's own tokens, which this layer does not have: show word pieces instead of words, "
    "and special tokens too."
)
_NAMED = 5  # parts in a sentence
_TOLERANCE = 1e-4  # how far what a head adds may be from that of A V, relative to the lengths of the vectors


def writes(
    trace: Trace,
    layer: int | None = None,
    head: int | None = None,
    target: _Token = None,
    distractor: _Token = None,
    position: int | None = None,
) -> Tensor:
    """What each cell of a head adds to the logit of a token at its query, [query_pos key_pos]; of all heads at one query, [layer head key_pos].

    The cell of query q and key k is a[q,k] · (v[k] W_O) · (frozen norms) · W_U[target]. The sum over the keys is the direct effect of the
    head on the logit at that query, as in `logit_parts`. Of a model without a vocabulary, the cell is what it adds to the cosine of the
    text's vector with itself, which is 1.

    Args:
        trace: of a model, by its own tokens (not merged into words).
        layer: of the head; None, as `head`: all heads. Then a key that a layer lacks adds 0, and a head is NaN that the layer lacks, or that
            writes something else than A V.
        head: the head in its layer.
        target: the token, as text or id; None: the likeliest of the last prediction.
        distractor: a second token, whose logit is subtracted.
        position: the query, which leaves [key_pos] of a head; None: every query of a head, and of all heads that of the last prediction, or
            the last token.

    Raises:
        ConfigError: a layer without a head, or a head without a layer.
        MissingError: the trace has no model, no such head or query, or the head writes something else than A V.
        TextError: a text is no token of the model, or several.
    """
    import torch

    readout = find_readout(trace, target, distractor)
    if layer is not None and head is not None:
        check_index("heads", head, trace.layer(layer).n_heads)
        if position is None:
            return _writes(trace, layer, head, readout)
        check_index("queries", position, len(trace.layer(layer).tokens), "counts")
        return _writes(trace, layer, head, readout, _one(position))[0]
    if layer is not None or head is not None:
        raise ConfigError(
            f"A head is given by layer and head, and all heads by neither; got layer {layer} and head {head}: give both, or none."
        )
    position = _position(trace, position, _effects(trace, readout))
    shapes = [source.shape(WEIGHTS) if source.has(WEIGHTS) else (0, 0, 0) for source in trace.layers]
    n_heads, _, n_keys = map(max, zip(*shapes, strict=True))
    result = torch.full((len(shapes), n_heads, n_keys), math.nan, dtype=torch.float64)
    for index, (count, n_queries, keys) in enumerate(shapes):
        result[index, :count] = 0
        if position < n_queries:  # the texts of an encoder and a decoder may differ
            row, others = _checked_writes(trace, index, slice(None), readout, _one(position))
            result[index, :count, :keys] = row[:, 0]
            result[index, :count][others] = math.nan
    return result


def _writes(trace: Trace, layer: int, head: int, readout: Readout, rows: slice = slice(None)) -> Tensor:
    written, others = _checked_writes(trace, layer, slice(head, head + 1), readout, rows)
    if others.any():
        raise MissingError(
            f"The output of head {head} of {trace.layer(layer).name or 'this layer'} should be A V; it is replaced or multiplied by something else "
            "before W_O, so no cell writes it: choose another head, or remove the intervention."
        )
    return written[0]


def logit_parts(trace: Trace, position: int | None = None, target: _Token = None, distractor: _Token = None) -> PartSum:
    """The logit of a token at a position as a sum over the embedding, all heads, all MLPs and the biases.

    Norms and a softcap of the logits are frozen at their values in this run. Of a model without a vocabulary, what each part adds to
    the vector of the text there.

    Args:
        trace: of a model.
        position: of the prediction; None: that of the last prediction, or the last token.
        target: the token, as text or id; None: the likeliest of the last prediction.
        distractor: a second token, whose logit is subtracted.

    Raises:
        MissingError: the trace has no model, there is no such position, or the model is not linear in its parts.
        TextError: a text is no token of the model, or several.
    """
    readout = find_readout(trace, target, distractor)
    effects = _effects(trace, readout)
    position = _position(trace, position, effects)
    return PartSum(f"{readout.words} at token {position}", *effects.at(position))


def _position(trace: Trace, position: int | None, effects: DirectEffects) -> int:
    """The position of a prediction; None: of the last one, or the last token."""
    length = len(effects.whole)
    if position is None:
        position = trace.predictions[-1].position if trace.predictions else length - 1
    check_index("positions", position, length, "counts")
    return position


def largest_writer(trace: Trace, q: int, token: str) -> str:
    """The layer whose heads add most to the logit of a token at a query: "layer 1"."""
    parts = logit_parts(trace, q, token)
    sums: dict[int, float] = {}
    for part, number in zip(parts.parts, parts.values.tolist(), strict=True):
        if part.kind == HEAD and part.layer is not None:
            sums[part.layer] = sums.get(part.layer, 0.0) + number
    return f"layer {max(sums, key=lambda layer: sums[layer])}"


def direct_effects(trace: Trace) -> Tensor | None:
    """What each head adds to the logit of the likeliest token, through frozen norms, [layer head]; None if it has no such parts.

    Source: Wang et al. 2022, "Interpretability in the Wild", section 3.1.
    """
    import torch

    if not _predicts(trace) or trace.model_run is None:
        return None
    prediction = trace.predictions[-1]
    try:
        parts, values = _effects(trace, Readout("the logit", ((prediction.ids[0], 1),))).at(prediction.position)
    except AttentionError:
        return None
    n_heads = [layer.n_heads if layer.has(WEIGHTS) else 0 for layer in trace.layers]
    result = torch.full((len(n_heads), max(n_heads, default=0)), math.nan)
    for index, count in enumerate(n_heads):
        result[index, :count] = 0.0  # the heads of an encoder reach the logits through the decoder only
    for part, value in zip(parts, values.tolist(), strict=True):
        if part.kind == HEAD and part.layer is not None and part.head is not None:
            result[part.layer, part.head] = value
    return result


def direct_effects_seconds(trace: Trace) -> float:
    """The estimated seconds of `direct_effects`."""
    if not _predicts(trace) or trace.model_run is None:
        return 0.0
    try:
        return trace.model_run.estimate_seconds()
    except AttentionError:
        return 0.0


def _predicts(trace: Trace) -> bool:
    return bool(trace.predictions) and not trace.predictions[-1].fills_mask


def head_logits(trace: Trace, layer: int, head: int, position: int | None = None) -> Tensor:
    """What a head adds directly to the logit of every token at a position, [token], in double precision.

    Args:
        trace: of a model that predicts the next token.
        position: of the prediction; None: that of the last prediction.

    Raises:
        MissingError: the trace has no model, no such head or position, or the model predicts no tokens.
    """
    run = find_run(trace).linear_run()
    check_index("heads", head, trace.layer(layer).n_heads)
    vectors = run.value(LOGITS)[0].cpu().double()
    if position is None:
        position = trace.predictions[-1].position if trace.predictions else len(vectors) - 1
    check_index("positions", position, len(vectors), "counts")
    if run.w_u is None:
        raise MissingError(NO_UNEMBEDDING)
    w_u = run.w_u.detach().cpu().double()
    products = w_u @ vectors[position] + (0 if run.b_u is None else run.b_u.detach().cpu().double())
    return run.logit_factor(products) * (w_u @ run.written_by(layer, head, position))


def find_readout(trace: Trace, target: _Token = None, distractor: _Token = None) -> Readout:
    """What is read: the logit of the target, minus that of the distractor if there is one.

    Args:
        trace: of a model.
        target: the token; None: the likeliest of the last prediction, or the vector of the text if the model predicts nothing.
        distractor: a second token.

    Raises:
        MissingError: the trace has no model, or no prediction.
        TextError: a text is no token of the model, or several.
    """
    run = find_run(trace)
    if target is None and not trace.predictions:
        if trace.vectors is None and trace.no_prediction_reason:
            raise MissingError(trace.no_prediction_reason)
        return Readout("the vector of the text")
    wanted = trace.predictions[-1].ids[0] if target is None else target
    found = [
        (token, run.token_names([token])[0]) if isinstance(token, int) else run.find_token(token)
        for token in (wanted, distractor)
        if token is not None
    ]
    names = " minus the logit of ".join(name for _, name in found)
    return Readout(
        f"the logit of {names}", tuple((token, sign) for (token, _), sign in zip(found, (1, -1), strict=False))
    )


def find_run(trace: Trace) -> ModelRun:
    """The run of the model behind a trace.

    Raises:
        MissingError: the trace has no model.
    """
    if trace.model_run is None:
        raise MissingError(_NO_MODEL)
    return trace.model_run


@dataclass(frozen=True, eq=False)
class PartSum:
    """A number as the sum of what the parts of a model add to it.

    Attributes:
        words: what the number is, such as "the logit of ·copper at token 36".
        parts: the parts, in the order of the model; the last is what single precision left over.
        values: what each adds, [part], in double precision.
    """

    words: str
    parts: tuple[Part, ...]
    values: Tensor

    @property
    def total(self) -> float:
        """The number: the sum of all values."""
        return float(self.values.sum())

    @property
    def order(self) -> list[int]:
        """The parts by decreasing size of what they add."""
        return [int(i) for i in self.values.abs().argsort(descending=True, stable=True)]

    def describe(self) -> str:
        """The parts that add and take the most, in a sentence."""
        named = [f"{self.parts[i].name} {_signed(float(self.values[i]))}" for i in self.order[:_NAMED]]
        heads = [i for i in self.order if self.parts[i].kind == HEAD]
        first = f" Of the heads, {self.parts[heads[0]].name} adds or takes the most." if heads else ""
        return f"The largest parts: {', '.join(named)}.{first}"

    def sorted_frame(self) -> pd.DataFrame:
        """`frame`, the largest part first."""
        return self.frame().iloc[self.order]

    def frame(self) -> pd.DataFrame:
        """A row for each part: its name, kind, layer and head, and what it adds."""
        import pandas as pd

        rows = [(part.name, part.kind, part.layer, part.head) for part in self.parts]
        table = pd.DataFrame(rows, columns=["part", "kind", "layer", "head"]).astype(
            {"layer": "Int64", "head": "Int64"}
        )
        return table.assign(adds=self.values.tolist())


def writes_map(readout: Readout) -> DerivedMap:
    """The map of what each cell adds to a readout, with the arithmetic of each cell."""

    def compute(trace: Trace, layer: int, head: int) -> Tensor:
        return _writes(trace, layer, head, readout)

    def explain(work: ExplanationBuilder, trace: Trace) -> Explanation:
        cell = work.cell
        weight = work.number_at(WEIGHTS, cell.row, cell.column)
        units = _unit_writes(trace, cell.layer, _one(cell.head), readout, _one(cell.row))[0, 0]
        unit = float(units[cell.column])
        total = float(trace.layer(cell.layer).row(cell.head, cell.row).double() @ units)

        end = "the unembedding" if readout.tokens else "the direction of the text's vector"

        def line(digits: int) -> Printed:
            return product(weight, unit, digits)

        words = (
            f"This cell adds {_signed(work.value)} to {readout.words}: the weight of key {cell.column} times what that key adds at "
            f"weight 1, which is its value through W_O, the frozen norms and {end}. All keys of query {cell.row} together add "
            f"{_signed(total)}, the direct effect of the head there."
        )
        at = f"{cell.row},{cell.column}"
        tex = rf"A_{{{at}}} \cdot \big(v_{{{cell.column}}} W_O\big)\, N_{{{cell.row}}}\, {'w_U' if readout.tokens else 'u'}"
        cells = (
            Cell(cell.layer, WEIGHTS, cell.head, cell.row, cell.column),
            Cell(cell.layer, VALUE, cell.head, cell.column, 0),
        )
        return work.from_arithmetic(Arithmetic(tex, [line], [line], words, [weight * unit]), cells)

    step = Step(
        NAME if readout.tokens else OF_VECTOR, SYMBOL, r"\Delta", ("head", "query_pos", "key_pos"), f"what each cell adds to {readout.words}", "signed", masked=True
    )  # fmt: skip
    words = f"What each key adds to {readout.words} at its query, through this head and nothing after it but the frozen norms."
    if not readout.tokens:
        words += " The numbers are shares: those of all parts at all tokens add up to 1."
    paper = "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; Wang et al. 2022, Interpretability in the Wild"
    return DerivedMap(step, words, paper, compute, explain, per_head=True)


def has_view(trace: Trace, layer: Layer) -> bool:
    """Whether the Lab has a view of what each cell of a layer adds to a logit; computes nothing."""
    predicts = trace.vectors is not None or any(not prediction.fills_mask for prediction in trace.predictions)
    has_sum = trace.model_run is not None and not trace.pictures  # as `models.linearize`
    return has_sum and predicts and layer.has(VALUE) and layer.has(WEIGHTS)


def view_map(trace: Trace, cell: Cell) -> DerivedMap:
    """The map of that view.

    Raises:
        SizeError: it would take more than `_MAX_SECONDS`, or more memory than the source allows.
        AttentionError: this model has no such map, for the reason in the sentence.
    """
    if (seconds := find_run(trace).estimate_seconds()) > _MAX_SECONDS:
        raise SizeError(
            f"What each cell adds to a logit takes at most {_MAX_SECONDS:.0f} s here; for this text it would take about {seconds:.0f} s: "
            "open “Inside this head” on Heads, which asks before it begins."
        )
    derived = writes_map(find_readout(trace))
    _ = derived.matrix(trace, cell.layer, cell.head)  # raises
    return derived


def factor_frame(trace: Trace, cell: Cell, readout: Readout) -> pd.DataFrame:
    """The factor beside the weight as a sum over the columns of V: a row for each column, the largest product first."""
    import pandas as pd

    value = _values(trace.layer(cell.layer), _one(cell.head))[0, cell.column]
    direction = _gradients(trace, cell.layer, readout)[cell.head, cell.row].double()
    table = pd.DataFrame(
        {"column of V": range(len(value)), "of the key": value.tolist(), "read from it": direction.tolist()}
    )
    table["product"] = table["of the key"] * table["read from it"]
    return table.iloc[table["product"].abs().argsort(kind="stable")[::-1]]


def likeliest_frame(trace: Trace, cell: Cell, prediction: Prediction) -> pd.DataFrame:
    """What a cell adds to the logit of each of the likeliest tokens of a prediction: a row for each token, the likeliest first."""
    import pandas as pd

    readouts = [find_readout(trace, token) for token in prediction.ids]
    _effects(trace, *readouts)
    adds = [float(_writes(trace, cell.layer, cell.head, each, _one(cell.row))[0, cell.column]) for each in readouts]
    return pd.DataFrame({"token": prediction.tokens, "this cell adds": adds, "logit": prediction.logits})


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{format_number(value)}"


def _checked_writes(trace: Trace, layer: int, heads: slice, readout: Readout, rows: slice) -> tuple[Tensor, Tensor]:
    """`writes` of some heads of a layer at some queries, [head query_pos key_pos]; which of these heads write something else, [head].

    Their sums must be what the heads add in the run, as far as the model runs them: without an override.
    """
    import torch

    source = trace.layer(layer)
    units = _unit_writes(trace, layer, heads, readout, rows)
    weights = source.blocks(WEIGHTS, heads=heads, rows=rows)[0].double()
    ran = weights
    if source.base_formula is not None:
        ran = source.with_formula(source.base_formula).blocks(WEIGHTS, heads=heads, rows=rows)[0].double()
    added = _effects(trace, readout).of_heads(layer)[heads, rows]
    # By lengths instead of products: a product of large vectors can be near 0, and rounding is not.
    lengths = _gradients(trace, layer, readout)[heads, rows].double().norm(dim=-1)
    lengths = lengths * torch.einsum("hqk,hk->hq", ran.abs(), _values(source, heads).norm(dim=-1))
    others = ((ran * units).sum(-1) - added).abs() > _TOLERANCE * lengths
    return weights * units, others.any(-1)


def _unit_writes(trace: Trace, layer: int, heads: slice, readout: Readout, rows: slice) -> Tensor:
    """What each key of some heads would add at weight 1, [head query_pos key_pos]: the other factor of `writes`."""
    return _gradients(trace, layer, readout)[heads, rows].double() @ _values(trace.layer(layer), heads).transpose(1, 2)


def _values(layer: Layer, heads: slice) -> Tensor:
    """The values of some heads, [head key_pos d_v]; several heads may share them."""
    value = layer[VALUE]
    return value.repeat_interleave(layer.n_heads // len(value), 0)[heads].double()


def _one(place: int) -> slice:
    return slice(place, place + 1)


def _gradients(trace: Trace, layer: int, readout: Readout) -> Tensor:
    """What is read from each column of the head outputs of a layer, [head query_pos d_v]."""
    source, gradients = trace.layer(layer), _effects(trace, readout).gradients[layer]
    if not source.has(VALUE) or source.shape(WEIGHTS)[1:] != (gradients.shape[1], source.shape(VALUE)[1]):
        raise MissingError(
            "What a head writes needs the values of the model's own tokens, which this layer does not have: "
            "show word pieces instead of words, and special tokens too."
        )
    return gradients


def _effects(trace: Trace, *readouts: Readout) -> DirectEffects:
    """What all parts add to a readout at all positions; of several readouts, those of the first.

    One run gives all of it, and it stays in the cache where the run of a long text is too large for it.
    """
    uid, linear = trace.layers[0].uid, None

    def compute(readout: Readout) -> DirectEffects:
        nonlocal linear
        linear = linear or find_run(trace).linear_run()
        return readout.direct_effects(linear)

    found = [cache.memoize(uid, ("direct effects", each.tokens), None, partial(compute, each)) for each in readouts]
    return found[0]


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


def python(trace: Trace, cell: Cell, readout: Readout) -> str:
    """A short program with this package that prints what the cell adds to the readout, the sum over all parts, and the terms of the cell's score.

    Raises:
        MissingError: the trace has no model.
    """
    source = find_run(trace).source
    words = ("target", "distractor")
    tokens = "".join(f", {word}={token}" for word, (token, _) in zip(words, readout.tokens, strict=False))
    # A source of a feature is imported from it.
    home = type(source).__module__.rpartition(".")[0].removesuffix(".sources")
    imports = {"attention": ["circuits", *(["Intervention"] if getattr(source, "interventions", ()) else [])]}
    imports.setdefault(home, []).append(type(source).__name__)
    lines = [
        *(f"from {package} import {', '.join(sorted(names))}" for package, names in imports.items()),
        "",
        *([f"# {readout.words}: token ids"] if readout.tokens else []),
        f"trace = {_construct(source)}.trace()",
        f"writes = circuits.writes(trace, {cell.layer}, {cell.head}{tokens})  # [query_pos key_pos]",
        f"print(writes[{cell.row}, {cell.column}], writes[{cell.row}].sum())  # this cell, and the direct effect of the head there",
        f"print(circuits.logit_parts(trace, {cell.row}{tokens}).sorted_frame())  # every head, MLP, the embedding and the biases",
        f"terms = circuits.score_terms(trace, {cell.layer}, {cell.head}, q={cell.row}, k={cell.column})",
        'print(terms.score, *terms.describe(), terms.frame().head(10), sep="\\n")',
    ]
    return "\n".join(lines) + "\n"


def _construct(source: Any) -> str:
    """The call that makes a frozen dataclass, with the fields that differ from their defaults."""
    arguments = []
    for field in fields(source):
        value = getattr(source, field.name)
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if value != default and field.init:
            text = _construct(value) if type(value) is type(source) else repr(value)
            arguments.append(text if default is MISSING else f"{field.name}={text}")
    return f"{type(source).__name__}({', '.join(arguments)})"
