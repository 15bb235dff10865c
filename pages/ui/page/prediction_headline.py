"""The effect of the interventions on the prediction in one line, and the choice of that prediction."""

from __future__ import annotations

from attention import Prediction, Source, Trace
from attention.analysis import predictions
from attention.sources.kinds.shared_knobs import PREFIX_LEN
from pages.ui.server.traces import unchanged_predictions
from pages.ui.state import knob_state, second_sidebar
from pages.ui.state.knob_table import QUERY


def headline(source: Source, trace: Trace) -> str:
    """The effect of the interventions in one line; empty if there are none, or the model predicts nothing."""
    before = unchanged_predictions(source)
    if before is None:
        return ""
    if not trace.predictions:
        moved = predictions.vector_shifts(before, trace)
        return predictions.summarize_shifts(moved) if moved else ""
    prediction = shown_prediction(trace)
    return next(iter(predictions.summarize(prediction, predictions.matching_prediction(prediction, trace, before))), "")


def shown_prediction(trace: Trace) -> Prediction:
    """The prediction to show: the last one if the model continues the text, otherwise the one that the user chose.

    Without a choice it is the prediction at the chosen query, or the first.
    """
    predicted, chosen, row = (
        trace.predictions,
        second_sidebar.current_value(PREFIX_LEN.key),
        knob_state.current_value(QUERY.key),
    )
    if continues_text(trace):
        return predicted[-1]
    if chosen is None:
        return next((prediction for prediction in predicted if prediction.position == row), predicted[0])
    return predicted[min(int(chosen), len(predicted) - 1)]


def continues_text(trace: Trace) -> bool:
    """Whether the model continues the text."""
    return bool(trace.generated or trace.continuation)
