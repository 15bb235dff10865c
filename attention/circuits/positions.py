"""Where in the text a prediction is made: heads, MLPs or the residual stream changed at one position after the other.

circuits.where(model)                                # patches the residual stream after each layer from `model.other`: change [layer position]
circuits.where(model, "mlp_output", ablation="zero")  # without each MLP at each position
circuits.where(model, "head_output", heads=[(9, 6)]).frame()
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from attention.base.errors import ConfigError
from attention.circuits import sweep
from attention.circuits.own_metric import Metric
from attention.circuits.sweep import DIRECTIONS, chosen_heads, directed, signed
from attention.formula.edit_kinds import ABLATIONS, SITES
from attention.formula.names import HEAD_OUTPUT

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from attention.sources.model import Model

ALL = "all"
"""Every position at once."""


@dataclass(frozen=True, eq=False)
class PositionSweep:
    """The effect of changing a site of each layer, or each head, at one position after the other.

    Attributes:
        quantity: the measured quantity, such as "log-probability of ·copper".
        site: "resid_post" (the residual stream after a layer), "mlp_output" or "head_output".
        kind: "zero" or "mean" ablation, or "patch" from the other run.
        baseline: the quantity without a change of the sweep.
        values: the quantity with the change, minus `baseline`: [place position].
        places: the rows of `values`: (layer, None) for a site, (layer, head) for a head.
        positions: the columns of `values`: positions of the text; empty: all at once, in one column.
        tokens: the token at each of the positions.
        alignment: which tokens were patched if the other text has another number of tokens, in sentences.
        direction: of a patch, "noising" or "denoising".
    """

    quantity: str
    site: str
    kind: str
    baseline: float
    values: NDArray[np.float64]
    places: tuple[tuple[int, int | None], ...]
    positions: tuple[int, ...]
    tokens: tuple[str, ...]
    alignment: tuple[str, ...] = ()
    direction: str = "noising"

    def frame(self) -> pd.DataFrame:
        """A row for each change, by decreasing size of its effect: layer, head (of heads), position, token, change."""
        import numpy as np
        import pandas as pd

        source, _ = DIRECTIONS[self.direction]
        how = {"zero": "ablated", "mean": "replaced by its mean"}.get(self.kind, f"from {source} ({self.direction})")
        rows, columns = np.unravel_index(np.argsort(-np.abs(self.values), axis=None, kind="stable"), self.values.shape)
        table = {"layer": [self.places[row][0] for row in rows]}
        if self.site == HEAD_OUTPUT:
            table["head"] = [self.places[row][1] or 0 for row in rows]
        data: dict[str, Sequence[object]] = dict(table)
        if self.positions:
            data |= {"position": [self.positions[i] for i in columns], "token": [self.tokens[i] for i in columns]}
        return pd.DataFrame(data | {f"change of {self.quantity}, {self.site} {how}": self.values[rows, columns]})

    def describe(self, place: int, column: int = 0) -> str:
        """The change at one place and position, in words."""
        layer, head = self.places[place]
        where = f" at {self.positions[column]} “{self.tokens[column]}”" if self.positions else ""
        name = f"L{layer} H{head}" if head is not None else f"L{layer} {self.site}"
        return f"{name}{where}: {self.quantity} changes by {signed(float(self.values[place, column]))}."


def where(
    model: Model,
    site: str = "resid_post",
    positions: Iterable[int] | str | None = None,
    *,
    ablation: str = "",
    layers: Iterable[int] | None = None,
    heads: Iterable[tuple[int, int]] | None = None,
    position: int | None = None,
    target: int | str | None = None,
    distractor: int | str | None = None,
    metric: Metric | None = None,
    direction: str = "noising",
) -> PositionSweep:
    """The effect of each layer's site, or of each head, at each position: patched from the model's other run, or ablated, one at a time.

    Args:
        model: as for `which`, with `other` unless something is ablated.
        site: "resid_post", the residual stream after a layer; "mlp_output"; or "head_output".
        positions: the positions of the text that are changed, each alone; None for every position; "all" for all at once.
        ablation: "zero" or "mean"; empty: patched from the other run.
        layers: the layers that are changed; None for all.
        heads: the heads that are changed, with the site "head_output", each as (layer, head); None for all of these layers.
        position: of the prediction; it, `target`, `distractor`, `metric` and `direction` are those of `which`.

    Raises:
        ConfigError: a layer, head or position does not exist, there is no other run, or it would take too long.
        TextError: a target is not one token of the model.

    Source: Meng et al. 2022, "Locating and Editing Factual Associations in GPT" (causal tracing); Heimersheim and Nanda 2024, "How to use
    and interpret activation patching".
    """
    import numpy as np

    from attention.models.forward_pass import ReadableTexts, check_interventions
    from attention.patching.intervention import Intervention

    sites = (*SITES, HEAD_OUTPUT)
    if site not in sites or ablation not in ("", *ABLATIONS):
        raise ConfigError(
            f"where changes one of {', '.join(sites)} by a patch or ablation={' or '.join(ABLATIONS)}; got {site[:40]!r} and {ablation[:40]!r}: choose of these."
        )
    if heads is not None and site != HEAD_OUTPUT:
        raise ConfigError(f"{site} belongs to no head; got heads: give layers, or the site {HEAD_OUTPUT}.")
    model = model if ablation else directed(model, direction)
    loaded, inputs = sweep.load(model)
    tokens = ReadableTexts(loaded, inputs, 0).texts[-1]
    chosen = range(loaded.n_layers) if layers is None else sorted({*layers})
    places: list[tuple[int, int | None]] = [(layer, None) for layer in chosen]
    if site == HEAD_OUTPUT:
        of_layers = [pair for pair in chosen_heads(loaded.heads_by_layer, heads) if pair[0] in chosen]
        places = [*of_layers]
    columns: list[tuple[int, ...]] = [()]
    if positions != ALL:
        if isinstance(positions, str):
            raise ConfigError(
                f"positions are whole numbers, such as [3, 4], or {ALL!r} for all at once; got {positions[:40]!r}: give numbers, or leave positions out for each alone."
            )
        columns = [(int(each),) for each in (range(len(tokens)) if positions is None else positions)]
    how = {"ablate": ablation} if ablation else {"patch": site}
    changes = [
        Intervention(layer, head, site="" if site == HEAD_OUTPUT else site, positions=column, **how)  # type: ignore[arg-type]
        for (layer, head), column in product(places, columns)
    ]
    check_interventions(loaded, tuple(changes), inputs)
    _ = sweep.estimate_runs(model, loaded, inputs, len(changes), ablation or HEAD_OUTPUT)
    measurement, quantity = sweep.resolve_metric(model, loaded, inputs, position, target, distractor, metric)
    forward, other = model.patched_forward(loaded, inputs), None
    if not ablation and site == HEAD_OUTPUT:
        other = sweep.other_run(model, loaded, inputs, HEAD_OUTPUT)
    elif not ablation:
        forward = replace(forward)
        forward.other_sites, forward.site_positions = model.other_sites(loaded, inputs, changes)
    runs = sweep.changed_runs(model, loaded, inputs, [(change,) for change in changes], measurement, forward, other)
    pairs = [pair for batch in runs for pair in batch]
    values = np.array([after - before for before, after in pairs]).reshape(len(places), len(columns))
    at = tuple(index for column in columns for index in column)
    alignment = () if ablation else model.alignment_sentences(loaded, inputs)
    return PositionSweep(
        quantity, site, ablation or "patch", pairs[0][0], values, tuple(places), at, tuple(tokens[i] for i in at), alignment,
        direction,
    )  # fmt: skip
