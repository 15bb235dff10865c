"""What sweeps over heads share: the loaded model and its time, what is measured, the other run, and maps of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.analysis.head_importance import SWEEP_KINDS
from attention.core.edit_kinds import ABLATIONS, PATCH_CODES
from attention.core.names import WEIGHTS
from attention.errors import ConfigError
from attention.sources.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attention.models.loaded import LoadedModel
    from attention.models.measurement import Measurement
    from attention.patching.forward import Activations


def load(model: Model) -> tuple[LoadedModel, dict[str, Tensor]]:
    """The loaded model and its token ids.

    Raises:
        ConfigError: heads of this family cannot be changed.
    """
    loaded, inputs = model.load_inputs()
    if not loaded.sites:
        raise ConfigError(f"The heads of {loaded.name} cannot be ablated: choose a model of another family.")
    return loaded, inputs


def other_run(model: Model, loaded: LoadedModel, inputs: dict[str, Tensor], kind: str) -> Mapping[int, Activations]:
    """The activations of the model's other run, by layer, that a change of this kind needs; empty for an ablation.

    Raises:
        ConfigError: there is no other run, it has another length, or its activations take too much memory.
    """
    from attention.models import validate_patches
    from attention.patching.intervention import Intervention

    if kind in ABLATIONS:
        return {}
    longest = max(ids.shape[-1] for ids in inputs.values())
    nbytes = 4 * validate_patches.count_numbers(loaded, (Intervention(patch=kind),), False, longest)
    if nbytes > model.max_bytes:
        raise ConfigError(
            f"The {kind} of all heads of the other state may take {model.max_bytes / 2**20:,.0f} MB; they take "
            f"{nbytes / 2**20:,.0f} MB: choose a shorter text."
        )
    return model.other_activations(loaded, inputs, dict.fromkeys(loaded.sites_by_layer, kind == WEIGHTS))


def estimate_runs(
    model: Model, loaded: LoadedModel, inputs: dict[str, Tensor], n_runs: int, kind: str = "zero"
) -> float:
    """The estimated seconds of this number of runs.

    Raises:
        ConfigError: they take too long.
    """
    from attention.models import batched_heads
    from attention.patching.validate import count_layers

    n_patched = count_layers(loaded.layer_indices, model.interventions, model.frozen) + (kind not in ABLATIONS)
    return batched_heads.estimate_seconds(loaded, inputs, n_runs, n_patched)


def check_kind(kind: str) -> None:
    """Raise an error if a sweep does not do this with heads.

    Raises:
        ConfigError: the kind does not exist.
    """
    if kind not in SWEEP_KINDS:
        raise ConfigError(
            f"Each head gets an ablation ({', '.join(ABLATIONS)}) or a step of the other run ({', '.join(PATCH_CODES)}); "
            f"got {kind[:40]!r}: choose one of these."
        )


def cache_key(model: Model, loaded: LoadedModel, inputs: dict[str, Tensor]) -> tuple[object, ...]:
    """Everything that a sweep depends on: the model, its input, which may have pictures, and its interventions."""
    ids = tuple(tuple(tensor[0].tolist()) for tensor in inputs.values())
    digests = tuple(picture.digest for picture in model.images)
    other = None if model.other is None else model.other.key
    return loaded.uid, ids, digests, model.interventions, model.frozen, other, model.align


def resolve_metric(
    loaded: LoadedModel, inputs: dict[str, Tensor], position: int | None, target: int | None, distractor: int | None
) -> tuple[Measurement, str]:
    """The metric, and its description."""
    from attention.models import lm_head, running
    from attention.models.measurement import Measurement
    from attention.models.token_pieces import readable_tokens

    requested = () if position is None else (position,)
    if classes := lm_head.class_names(loaded):
        return _class_metric(loaded, inputs, classes, target, distractor)
    if not lm_head.vocabulary_size(loaded):
        length = next(iter(inputs.values())).shape[-1]
        if position is not None and not 0 <= position < length:
            raise ConfigError(f"Positions range from 0 to {length - 1}; got {position}: choose one of these.")
        subject = "tokens' vectors (mean)" if position is None else f"vector of token {position}"
        return Measurement(position), f"cosine of {subject} with no head changed"
    positions = lm_head.prediction_positions(loaded, inputs, requested)
    if not positions:
        raise ConfigError(lm_head.no_prediction_reason(loaded, positions))
    if target is None:
        with lm_head.logits_at(positions[-1:]):
            outputs = running.run(loaded, inputs)
        target = lm_head.read_predictions(loaded, inputs, outputs, positions[-1:])[0].ids[0]
    size = lm_head.vocabulary_size(loaded)
    _check_ids("Token ids", loaded, size, target, distractor)
    names = [readable_tokens(loaded.tokenizer, [token])[0] for token in (target, distractor) if token is not None]
    return Measurement(positions[-1], target, distractor), _metric_words(names)


def _class_metric(
    loaded: LoadedModel, inputs: dict[str, Tensor], classes: Sequence[str], target: int | None, distractor: int | None
) -> tuple[Measurement, str]:
    """The metric of a classifier: a class that is predicted for the whole input."""
    from attention.models import lm_head, running
    from attention.models.measurement import Measurement

    if target is None:
        target = lm_head.read_predictions(loaded, inputs, running.run(loaded, inputs), ())[0].ids[0]
    _check_ids("The numbers of the classes", loaded, len(classes), target, distractor)
    names = [classes[index] for index in (target, distractor) if index is not None]
    return Measurement(0, target, distractor), _metric_words(names)


def _check_ids(what: str, loaded: LoadedModel, size: int, *ids: int | None) -> None:
    for given in ids:
        if given is not None and not 0 <= given < size:
            raise ConfigError(
                f"{what} of {loaded.name} range from 0 to {size - 1:,}; got {given}: choose one of these."
            )


def _metric_words(names: Sequence[str]) -> str:
    return f"log-probability of {names[0]}" if len(names) == 1 else f"logit of {names[0]} minus logit of {names[1]}"


def empty_map(n_heads: tuple[int, ...]) -> NDArray[np.float64]:
    """A map [layer head] without numbers."""
    import numpy as np

    return np.full((len(n_heads), max(n_heads)), np.nan)


def as_map(n_heads: tuple[int, ...], by_layer: Mapping[int, Tensor]) -> NDArray[np.float64]:
    """A map [layer head] of numbers [head] by layer; NaN where there are none."""
    numbers = empty_map(n_heads)
    for layer, row in by_layer.items():
        numbers[layer, : len(row)] = row.numpy()
    return numbers
