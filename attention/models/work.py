"""How long a model takes for what is asked of it, counted before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from attention.errors import ConfigError
from attention.formula import fitting
from attention.models import predicting

if TYPE_CHECKING:
    from attention.formula.intervention import Intervention
    from attention.models.loaded import Loaded

MOST_SECONDS = 15.0
"""What a link may ask for beside one plain pass: changes, and generated tokens."""
# Measured with SmolLM2 and MiniLM in one thread of a processor that others use, and rounded up.
A_SECOND = 2e10  # numbers of a model times tokens that go through it
A_LAYER = 0.004  # seconds of each layer of a pass, and once more where it is changed
A_CHANGE = 3e-5  # seconds of each change in each layer that it reaches
A_CELL = 1.5e-5  # seconds of each cell that is set, in each head that it reaches
_NUMBER = 4  # bytes


class Changed(NamedTuple):
    """What is changed during one pass."""

    interventions: Sequence[Intervention] = ()
    frozen: bool = False


def numbers(loaded: Loaded) -> float:
    """The numbers that every token is multiplied with; those of the vocabulary are looked up, and asked at one position."""
    vocabulary = predicting.vocabulary(loaded) * int(getattr(loaded.model.config, "hidden_size", 0) or 0)
    return max(1.0, loaded.nbytes / _NUMBER - vocabulary)


def seconds(loaded: Loaded, tokens: int, changed: Changed = Changed()) -> float:  # noqa: B008  # it is never written to
    """About how long one pass takes that is recorded, changed or not."""
    layers = loaded.layers
    those = [one for one in changed.interventions if one.layer is None or one.layer < len(layers)]  # others are refused
    found = numbers(loaded) * tokens / A_SECOND
    found += A_LAYER * (len(layers) + fitting.touched(loaded.order, those, changed.frozen))
    for one in those:
        sites = layers if one.layer is None else (layers[one.layer],)
        heads = len(sites) if one.head is not None else sum(site.n_heads for site in sites)
        found += A_CHANGE * len(sites) + A_CELL * len(one.cells) * heads
    return found


def check(loaded: Loaded, tokens: int, more: int, passes: Sequence[Changed]) -> None:
    """Refuses what would take too long.

    Args:
        loaded: the model.
        tokens: of all its texts.
        more: how many it generates after them.
        passes: what each of the passes changes that the text takes; in a changed model they are run anew for each token.

    Raises:
        ConfigError: changes and generated tokens take more than `MOST_SECONDS`.
    """
    count = max((len(one.interventions) for one in passes), default=0)
    if count:
        needed = (more + 1) * sum(seconds(loaded, tokens + more, one) for one in passes) - seconds(loaded, tokens)
    else:  # transformers keeps the keys and values of the tokens before
        needed = more * seconds(loaded, 1)
        if more:
            needed += seconds(loaded, tokens)
    if needed <= MOST_SECONDS:
        return
    changes = f"{count} {'change' if count == 1 else 'changes'}" if count else ""
    generated = f"{more} generated {'token' if more == 1 else 'tokens'}" if more else ""
    what = f"{generated}, each of which runs the model with {changes} anew," if count and more else changes or generated
    fewer = " or ".join(["generate fewer tokens"] * bool(more) + ["change fewer heads and layers"] * bool(count))
    raise ConfigError(
        f"Changes and generated tokens take at most {MOST_SECONDS:.0f} s here; {what} after {tokens:,} tokens would take some "
        f"{needed:,.0f} s: {fewer}, or choose a shorter text."
    )
