"""What the model says in one line, and which of its predictions that is."""

from __future__ import annotations

from attention import Prediction, Source, Trace
from attention.numbers import predictions
from attention.sources.knobs import SAID
from pages.ui.knobs import inputs, second
from pages.ui.knobs.table import QUERY
from pages.ui.server.traces import said_unchanged


def headline(source: Source, trace: Trace) -> str:
    """What is said in one line, wherever something is changed; empty where the model says nothing."""
    before = said_unchanged(source)
    if before is None:
        return ""
    if not trace.predictions:
        there = predictions.moved(before, trace)
        return predictions.moved_briefly(there) if there else ""
    one = looked_at(trace)
    return next(iter(predictions.summed_up(one, predictions.before_of(one, trace, before))), "")


def looked_at(trace: Trace) -> Prediction:
    """The prediction that is looked at: what comes after a text that the model writes on, otherwise the one that was chosen of several.

    Where none was chosen, it is the one that is read at the chosen query, or the first.
    """
    there, chosen, row = trace.predictions, second.now(SAID.key), inputs.now(QUERY.key)
    if writes_on(trace):
        return there[-1]
    if chosen is None:
        return next((one for one in there if one.position == row), there[0])
    return there[min(int(chosen), len(there) - 1)]


def writes_on(trace: Trace) -> bool:
    """Whether the model goes on with the text by itself."""
    return bool(trace.generated or trace.later)
