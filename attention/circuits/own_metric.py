"""A metric of your own: a function of the logits of a run, or of its trace, measured in place of a target token.

    circuits.which(model, metric=lambda logits: logits[-1, 5] - logits[-1, 7])   # logits [query_pos vocabulary]
    circuits.which(model, metric=lambda trace: trace.layers[3].weights[1, -1, 4])  # by the name of the parameter

A function of logits is measured in batches, and has a gradient if it is computed with torch; one of a trace takes a recorded pass for each change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from attention.base.errors import ConfigError

Metric = Callable[..., Any]


def check_metric(metric: Metric | None, *others: object) -> None:
    """Checks a metric beside the arguments that it replaces: target, distractor and position.

    Raises:
        ConfigError: it is no function, or one of the others is given as well.
    """
    if metric is None:
        return
    if not callable(metric):
        raise ConfigError(
            f"metric is a function of the logits [query_pos vocabulary], or of a trace; got {str(metric)[:40]!r}: "
            "write metric=lambda logits: logits[-1, 5]."
        )
    if any(other is not None for other in others):
        raise ConfigError(
            "A metric measures a run instead of target, distractor and position; got both: give metric= alone, and index the logits in it."
        )


def parameters(metric: Metric) -> tuple[str, ...]:
    """The names of the parameters of a function; none where Python does not know them."""
    try:
        return tuple(inspect.signature(metric).parameters)
    except (TypeError, ValueError):  # of some functions written in C
        return ()


def reads_trace(metric: Metric | None) -> bool:
    """Whether a metric reads a trace: its first parameter is called so. Otherwise it reads logits."""
    return metric is not None and parameters(metric)[:1] == ("trace",)


def metric_name(metric: Metric) -> str:
    """What a metric measures, in tables and sentences: the name of its function."""
    name = str(getattr(metric, "__name__", "metric"))
    return "metric" if name == "<lambda>" else name
