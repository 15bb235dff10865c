"""Which part of the context an answer looks at, and whether it needs it: shares of the weight, and what is lost while a span is hidden.

Looking is not using: a head may look where nothing is read that matters, such as at the first token. So beside the share of a span
stands an intervention: its keys are hidden from all queries outside of the span, in all heads of all layers (attention knockout).
Source: Geva et al. 2023, "Dissecting Recall of Factual Associations in Auto-Regressive Language Models", section 4.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attention.base import cache
from attention.base.errors import ConfigError, MissingError, SizeError, check_index
from attention.base.spans import ANSWER, Span
from attention.base.tokens import label
from attention.patching.intervention import Intervention
from attention.spans.span_table import REST, SINK, Groups, has_tokens

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from attention.sources.model import Model
    from attention.sources.repeated_run import TransformerRun
    from attention.trace.model_run import ModelRun
    from attention.trace.trace import Trace

_DIGITS = 4
"""Digits of a change after the point: about as many as single precision gives on every processor."""

_MAX_SECONDS = 110.0  # of all runs together, as of a sweep over heads


@dataclass(frozen=True)
class LookedAt:
    """The spans before an answer, by the share of the weight that the answer gives them.

    Attributes:
        answer: what looks: the name of a span, or a query in words, such as “token 12, ·the,”.
        names: the names of the spans; `REST`, the tokens without a name; and `SINK`, the first token of the text, which counts in no span:
            many heads look there when they look at nothing.
        sizes: the number of tokens of each.
        shares: the weight that each gets, as the mean over the queries that predict the answer and over the chosen heads; they sum to what rows sum to.
        by_chance: the same if all visible keys had the same weight.
        quantity: what is measured while a span is hidden, such as “log-probability of the answer (4 tokens)”; empty if nothing was hidden.
        baseline: this quantity with nothing hidden.
        changes: its change, to four digits after the point, while the keys of a span are hidden from all queries outside of the span; NaN for the answer itself, `REST` and `SINK`, and where nothing was hidden.
    """

    answer: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    by_chance: tuple[float, ...]
    quantity: str = ""
    baseline: float = math.nan
    changes: tuple[float, ...] = ()

    @property
    def order(self) -> list[int]:
        """The spans by decreasing share; after them the answer itself and what is no span."""
        return sorted(range(len(self.names)), key=lambda i: (self.names[i] in self._beside, -self.shares[i]))

    @property
    def _beside(self) -> tuple[str, ...]:
        return self.answer, REST, SINK

    @property
    def sentence(self) -> str:
        """What the answer looks at most, and what it needs most, in one sentence."""
        named = [i for i in self.order if self.names[i] not in self._beside]
        if not named:
            return f"No span is before {self.answer}."
        most = named[0]
        who = self.answer[0].upper() + self.answer[1:] if self.answer.startswith("token ") else f"The {self.answer}"
        looks = f"{who} looks most at “{self.names[most]}”: {_percent(self.shares[most])} of its weight, {_percent(self.by_chance[most])} by chance"
        measured = [i for i in named if not math.isnan(self.changes[i])] if self.changes else []
        if not measured:
            return f"{looks}."
        needed = min(measured, key=lambda i: self.changes[i])
        if self.changes[needed] >= 0:
            return f"{looks}; hiding a span never lowers the {self.quantity}, {self.baseline:.2f}."
        which = "it" if needed == most else f"“{self.names[needed]}”"
        more = (
            "" if needed == most else f"; with “{self.names[most]}” hidden it changes by {_signed(self.changes[most])}"
        )
        return f"{looks}; it needs {which} most: hidden, the {self.quantity} goes from {_signed(self.baseline)} to {_signed(self.baseline + self.changes[needed])}{more}."

    def with_hidden(self, hidden: Hidden) -> LookedAt:
        """The same with what is lost while each span is hidden."""
        changes = dict(hidden.changes)
        return replace(
            self, quantity=hidden.quantity, baseline=hidden.baseline,
            changes=tuple(changes.get(name, math.nan) for name in self.names),
        )  # fmt: skip

    def frame(self) -> pd.DataFrame:
        """A row for each span, in `order`: its tokens, its share, the share by chance, their ratio, and the change of `quantity` while it is hidden."""
        import pandas as pd

        rows = [
            (
                self.names[i], self.sizes[i], self.shares[i], self.by_chance[i],
                self.shares[i] / self.by_chance[i] if self.by_chance[i] else math.nan, *(self.changes[i : i + 1]),
            )
            for i in self.order
        ]  # fmt: skip
        columns = ["span", "tokens", "share", "by chance", "share / by chance"]
        columns += ["change when hidden"] if self.changes else []
        return pd.DataFrame(rows, columns=columns)


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _signed(change: float) -> str:
    return f"{round(change, 2) + 0.0:.2f}".replace("-", "−")


def looked_at(
    trace: Trace,
    query: int | str | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    hide: bool = False,
    target: int | str | None = None,
) -> LookedAt:
    """The spans by the share of the weight that an answer gives them; with `hide`, what is lost while each span is hidden.

    Args:
        trace: a trace with spans.
        query: the name of the span that is the answer, whose tokens are predicted at the queries before them; or the position of one query.
            None: the span "answer", the text that the model generated; without it the last query.
        layer: the only layer whose weights count; None: the mean over all layers.
        head: the only head; None: the mean over all heads.
        hide: whether to run the model once for each span before the answer, with its keys hidden from all queries outside of the span in all
            heads of all layers. Measured is the log-probability of the answer; of one query, that of the token that it predicts.
        target: of one query, the token whose log-probability is measured, as its id or as text; None: the likeliest.

    Raises:
        MissingError: the trace has no spans, or no such span, layer or head; with `hide`, it is not of a transformers model that predicts tokens.
        ConfigError: a target without a single query.
        SizeError: hiding so many spans of a model of a folder would take too long.
    """
    groups = Groups.of(trace).without_sink
    rows = _rows(trace.spans, len(trace.tokens), query)
    answer = _name_of(trace, query, rows)
    if target is not None and len(rows) > 1:
        raise ConfigError(
            "A target is a token at one query; got the answer of several tokens, which are measured themselves: leave target= out, or give query=."
        )
    shares, by_chance = _shares(trace, groups, rows, layer, head)
    before = [i for i, size in enumerate(groups.sizes) if by_chance[i] > 0 or shares[i] > 0]
    found = LookedAt(
        answer,
        tuple(groups.names[i] for i in before),
        tuple(groups.sizes[i] for i in before),
        tuple(float(shares[i]) for i in before),
        tuple(float(by_chance[i]) for i in before),
    )
    if not hide:
        return found
    *_, last = _hide(_run_of(trace), groups.spans, rows, target)
    assert last.result is not None  # the last report has it
    return found.with_hidden(last.result)


@dataclass(frozen=True)
class Hidden:
    """What an answer loses while the spans before it are hidden, one after the other.

    Attributes:
        quantity: what is measured.
        baseline: its value with nothing hidden.
        changes: its change by the name of the span.
    """

    quantity: str
    baseline: float
    changes: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Progress:
    """The progress of hiding: the finished runs of all, the estimated remaining seconds, and in the last report the result."""

    done: int
    total: int
    seconds: float
    result: Hidden | None = None


def hide_each(
    source: Model, spans: tuple[Span, ...], query: int | str | None = None, target: int | str | None = None
) -> Iterator[Progress]:
    """Runs a model once for each span before the answer, with the span hidden; the last report has the result. Stop iterating to cancel.

    The arguments are those of `looked_at`, with the source of the trace and its spans.
    """
    run = _checked(source.run())
    yield from _hide(run, spans, _rows(spans, len(run.token_ids), query), target)


def _hide(run: TransformerRun, spans: tuple[Span, ...], rows: range, target: int | str | None) -> Iterator[Progress]:
    source, other = run.source, run.source.other
    changed = source.interventions, source.frozen, other and other.key, source.align
    key = ("hidden spans", run.loaded.uid, run.inputs.key, changed, spans, rows, target)
    looks_back = all(site.is_causal for site in run.loaded.sites)
    seen = [span for span in spans if span.first <= rows[-1] or not looks_back]
    hidden = [span for span in seen if not _is_answer(span, rows)]
    found = cache.CACHE.get(key)
    seconds = (1 + len(hidden)) * _seconds(run)
    if (
        found is None and seconds > _MAX_SECONDS and not run.loaded.in_memory
    ):  # on the user's own machine, Ctrl-C is the limit
        raise SizeError(
            f"Hiding {len(hidden):,} spans in turn would take about {seconds:,.0f} s here; at most {_MAX_SECONDS:,.0f} s are allowed: "
            "name longer stretches, such as paragraphs, or choose a shorter text."
        )
    yield Progress(0, len(hidden), seconds, found)
    if found is not None:
        return
    start, changes = time.monotonic(), list[tuple[str, float]]()
    measured = _Measured.of(run, rows, target)
    for done, span in enumerate(hidden, 1):
        change = round(measured.with_hidden(span) - measured.baseline, _DIGITS)
        changes.append((span.name, change + 0.0))
        yield Progress(done, len(hidden), (time.monotonic() - start) * (len(hidden) - done) / (done + 1))
    result = Hidden(measured.quantity, measured.baseline, tuple(changes))
    yield Progress(len(hidden), len(hidden), 0.0, cache.CACHE.get_or_compute(key, lambda: result))


def _seconds(run: TransformerRun) -> float:
    from attention.models import forward_pass

    changed = forward_pass.PassInterventions((*run.source.interventions, Intervention(hide=(0, 0))))
    return forward_pass.estimate_seconds(run.loaded, sum(ids.shape[-1] for ids in run.inputs.values()), changed)


def _is_answer(span: Span, rows: range) -> bool:
    return span.first == rows[0] + 1 and len(span) == len(rows)


def _rows(spans: tuple[Span, ...], n_tokens: int, query: int | str | None) -> range:
    """The queries that predict the answer."""
    names = {span.name: span for span in spans}
    if query is None:
        query = ANSWER if ANSWER in names else n_tokens - 1
    if isinstance(query, str):
        if query not in names or not names[query].first:
            raise MissingError(
                f"The answer is one of the spans {', '.join(name for name, span in names.items() if span.first)}, which follow something; "
                f"got {query!r}: choose one, or the position of a query."
            )
        return range(names[query].first - 1, names[query].last)
    position = query + n_tokens if query < 0 else query
    check_index("queries", position, n_tokens)
    return range(position, position + 1)


def _name_of(trace: Trace, query: int | str | None, rows: range) -> str:
    if isinstance(query, str) or (query is None and any(span.name == ANSWER for span in trace.spans)):
        return str(query or ANSWER)
    return f"token {rows[0]}, {label(trace.tokens[rows[0]], 20, escape=False)},"


def _shares(trace: Trace, groups: Groups, rows: range, layer: int | None, head: int | None) -> tuple[Tensor, Tensor]:
    """The weight of each span and its share by chance, as means over some queries, [span]."""
    import torch

    from attention.metrics.patterns import iterate_patterns

    indices = range(len(trace.layers)) if layer is None else (layer,)
    layers = [each for index in indices if has_tokens(each := trace.layer(index), trace)]
    if not layers:
        raise MissingError("No chosen layer attends from the tokens of this trace to themselves: choose another layer.")
    wanted = torch.zeros(len(trace.tokens), dtype=torch.float64)
    wanted[list(rows)] = 1 / len(rows)
    shares, by_chance = (torch.zeros(len(groups.names), dtype=torch.float64) for _ in range(2))
    count = 0
    for each in layers:
        if head is not None:
            check_index("heads", head, each.n_heads)
        for heads, block, pattern in iterate_patterns(each):
            chosen = [i for i in range(*heads.indices(each.n_heads)) if head in (None, i)]
            inside = [i - heads.start for i in chosen]
            of_rows = wanted[block]
            if block.start == 0:
                count += len(chosen)
            if not chosen or not bool(of_rows.any()):
                continue
            weights = pattern.weights[inside].double() @ groups.members
            visible = pattern.visible.expand(pattern.weights.shape)[inside].double() @ groups.members
            uniform = visible / visible.sum(-1, keepdim=True).clamp_min(1)
            shares += torch.einsum("q,hqs->s", of_rows, weights)
            by_chance += torch.einsum("q,hqs->s", of_rows, uniform)
    return shares / count, by_chance / count


@dataclass(frozen=True, eq=False)
class _Measured:
    """The log-probability of an answer in a run of a model.

    Attributes:
        run: the run.
        positions: where its tokens are predicted.
        ids: the tokens.
        quantity: what it is, in words.
        baseline: its value with nothing hidden.
    """

    run: TransformerRun
    positions: tuple[int, ...]
    ids: tuple[int, ...]
    quantity: str
    baseline: float

    @classmethod
    def of(cls, run: TransformerRun, rows: range, target: int | str | None) -> _Measured:
        ids = run.token_ids
        positions = tuple(rows)
        if len(rows) > 1:
            ids = tuple(ids[position + 1] for position in rows)
            quantity = f"log-probability of the answer ({len(ids)} tokens)"
        else:
            token = _target(run, rows[0], target)
            ids = (token,)
            quantity = f"log-probability of {label(run.token_names([token])[0], 20, escape=False)}"
        bare = cls(run, positions, ids, quantity, math.nan)
        return replace(bare, baseline=bare._value(()))

    def with_hidden(self, span: Span) -> float:
        """The value while the keys of a span are hidden."""
        return self._value((Intervention(hide=(span.first, span.last)),))

    def _value(self, changes: tuple[Intervention, ...]) -> float:
        rows = _log_probabilities(self.run, changes, self.positions)
        return math.fsum(float(row[token]) for row, token in zip(rows, self.ids, strict=True))


def _target(run: TransformerRun, position: int, target: int | str | None) -> int:
    if isinstance(target, str):
        return run.find_token(target)[0]
    if target is not None:
        return target
    return int(next(iter(_log_probabilities(run, (), (position,)))).argmax())


def _log_probabilities(
    run: TransformerRun, changes: tuple[Intervention, ...], positions: tuple[int, ...]
) -> Iterator[Tensor]:
    """The log-probabilities of all tokens at each position, [vocabulary]."""
    from attention.models import forward_pass, lm_head

    source: Any = replace(run.source, interventions=(*run.source.interventions, *changes))
    loaded, inputs = run.loaded, run.inputs
    output = forward_pass.run_patched(loaded, inputs, source.patched_forward(loaded, inputs), positions)
    predictions = lm_head.read_predictions(loaded, inputs, output, positions)
    if len(predictions) != len(positions):
        raise MissingError(
            lm_head.no_prediction_reason(loaded, ()) or f"{loaded.name} predicts no tokens at these positions."
        )
    return (prediction.all_log_probabilities for prediction in predictions)


def _run_of(trace: Trace) -> TransformerRun:
    run = _checked(trace.model_run)
    if len(run.token_ids) != len(trace.tokens):
        raise MissingError(
            "A span is hidden from the tokens of the model, and this trace has others: show pieces, with special tokens."
        )
    return run


def _checked(run: ModelRun | None) -> TransformerRun:
    from attention.sources.repeated_run import TransformerRun  # imports torch

    if not isinstance(run, TransformerRun):
        raise MissingError(
            "Hiding a span runs the model again, and this trace has none of transformers behind it: trace a Model, or leave hide= out."
        )
    return run
