"""One forward pass of a model as layers: each place that attends as it was recorded, with what is changed on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attention.errors import ModelError
from attention.formula.layer import Layer
from attention.formula.names import WEIGHTS
from attention.models import predicting, recording, running
from attention.models.layers import layer_of
from attention.models.pieces import readable
from attention.tokens import Generated

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.intervening import Pass
    from attention.models.loaded import Loaded, Site
    from attention.models.recording import Call


class Tokens:
    """The tokens of each text, as a person reads them; the last `said` of them by the model itself."""

    def __init__(self, loaded: Loaded, given: dict[str, Tensor], said: int) -> None:
        self.read = [readable(loaded.tokenizer, ids[0].tolist()) for ids in given.values()]
        theirs = len(self.read[-1]) - said
        self.read[-1] = (*self.read[-1][:theirs], *map(Generated, self.read[-1][theirs:]))

    def of(self, site: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Those that attend in a place of the model, and those attended to."""
        queries = -1 if site.startswith(("decoder", "cross")) else 0
        keys = -1 if site.startswith("decoder") else 0
        return self.read[queries], self.read[keys]


def layers(
    loaded: Loaded, given: dict[str, Tensor], changing: Pass, at: tuple[int, ...] = (), said: int = 0
) -> tuple[list[Layer], Any]:
    """One forward pass, asked at the positions `at`: its layers, in the order of the trace, and what the model gave."""
    tokens = Tokens(loaded, given, said)
    made: dict[int, Layer] = {}

    def take(call: Call) -> Tensor | None:
        site, index = loaded.sites[len(made)], loaded.order[len(made)]
        made[index], kept = changing.layer(index, call, lambda one: layer_of(one, site, *tokens.of(site.name)))
        return kept

    with recording.recording(take, weights=changing.with_weights), predicting.asked(at):
        found = running.run(loaded, given)
    assert len(made) == len(loaded.sites)
    return [made[index] for index in range(len(made))], found


def changed(loaded: Loaded, given: dict[str, Tensor], changing: Pass, at: tuple[int, ...]) -> Any:
    """What the changed model gives, asked at the positions `at`; no layer is recorded."""
    calls = 0

    def take(call: Call) -> Tensor | None:
        nonlocal calls
        calls += 1
        return goes_on(changing, loaded.order[calls - 1], call, loaded.sites[calls - 1])

    with recording.recording(take, weights=changing.with_weights), predicting.asked(at):
        return running.run(loaded, given)


def goes_on(changing: Pass, at: int, call: Call, site: Site) -> Tensor | None:
    """What goes on through W_O instead of the head output of the layer with index `at`, [head query_pos d_v]; None where nothing of it is changed."""
    if not changing.touches(at):
        return None
    tokens, keys = (("",) * one.shape[-2] for one in (call.query, call.key))
    return changing.layer(at, call, lambda one: layer_of(one, site, tokens, keys))[1]


def weights_alone(
    loaded: Loaded, given: dict[str, Tensor], at: tuple[int, ...] = (), said: int = 0
) -> tuple[list[Layer], Any]:
    """The same of a family whose attention cannot be recorded: its weights.

    Raises:
        ModelError: it gives none.
    """
    with predicting.asked(at):
        found = running.run(loaded, given, output_attentions=True)
    there = running.weights(found, given)
    if not there:
        raise ModelError(
            f"{loaded.name} gives no attention weights: it has none, or does not say them. Choose another model."
        )
    tokens = Tokens(loaded, given, said)
    return [Layer(name, *tokens.of(name), recorded={WEIGHTS: weights}) for name, weights in there], found
