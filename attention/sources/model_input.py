"""The input of a model: its texts as token ids, cut to the limits, and the tokens that it generates; counted before the model runs."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from attention.core.cache import CACHE
from attention.core.cost import ALLOW_MORE
from attention.core.prediction import MAX_NEW_TOKENS
from attention.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attention.models.loaded import LoadedModel
    from attention.models.picture_inputs import PictureInputs
    from attention.models.time_cost import PassInterventions
    from attention.patching.forward import PatchedForward
    from attention.sources.model_options import ModelOptions

_DECODING = Lock()  # the pixels of several photos at once would take the memory of a server


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """The input of a model.

    Attributes:
        inputs: the token ids of each text, [1 pos], by the model's parameter name.
        prefix_len: how many of the last ids were generated.
        continuation: the generated ids that follow, where the model reads only a part of them.
    """

    inputs: dict[str, Tensor]
    prefix_len: int
    continuation: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _ReadInput:
    """The input of a model that reads a picture.

    Attributes:
        inputs: the positions and token ids, with the picture as the model reads it.
        truncated: the truncated texts, each with its full length.
        notes: sentences for the user.
        model_uid: of the model; the cache drops the input with it.
    """

    inputs: PictureInputs
    truncated: list[tuple[str, int]]
    notes: tuple[str, ...]
    model_uid: int

    @property
    def nbytes(self) -> int:
        """The bytes of the pixels, as numbers and as they are shown."""
        return 2 * sum(tensor.nbytes for tensor in self.inputs.arguments.values())


def prepare_texts(
    model: ModelOptions,
    loaded: LoadedModel,
    notes: list[str],
    build_forward: Callable[[dict[str, Tensor]], PatchedForward],
) -> ModelInputs:
    """The texts of a model, with the tokens that it generates.

    Args:
        model: the options.
        loaded: the loaded model.
        notes: receives a sentence for everything that the user must know.
        build_forward: returns the patched forward pass for some ids.

    Raises:
        ConfigError: as for `count_bytes`.
    """
    from attention.models.picture_inputs import with_ids

    prompt = tokenize_texts(model, loaded, notes)
    _ = count_bytes(model, loaded, prompt)
    extended = _generate(model, loaded, prompt, notes, build_forward)
    name = [*extended][-1]
    prompt_len, total_len = prompt[name].shape[-1], extended[name].shape[-1]
    prefix_len = (
        total_len - prompt_len if model.prefix_len is None else max(0, min(model.prefix_len, total_len - prompt_len))
    )
    if total_len == prompt_len:
        return ModelInputs(extended, 0, ())
    inputs = with_ids(extended, name, extended[name][:, : prompt_len + prefix_len])
    return ModelInputs(inputs, prefix_len, tuple(extended[name][0, prompt_len + prefix_len :].tolist()))


def tokenize_texts(model: ModelOptions, loaded: LoadedModel, notes: list[str]) -> dict[str, Tensor]:
    """The token ids of the texts, cut to the limits of the model and of the operator."""
    from attention.models import running

    limit = min(model.max_tokens, loaded.max_length or model.max_tokens)
    if model.images:
        inputs, truncated = _read_pictures(model, loaded, limit, notes)
    elif model.input_ids:
        inputs, truncated = running.cut_ids(loaded, model.input_ids, limit)
        notes += [model.note] if model.note else []
    else:
        inputs, truncated = running.tokenize_inputs(loaded, model.text, model.text2, limit)
    running.check_ids(loaded, inputs)
    whose = "the model's limit" if limit == loaded.max_length else "the limit of this server"
    notes += [
        f"The {name} has {length:,} tokens; the first {limit:,} are read, {whose}: shorten it to see all of it."
        for name, length in truncated
    ]
    if model.text2.strip() and not loaded.is_encoder_decoder:
        notes.append("This model reads one text: the second text has no effect.")
    return inputs


def _read_pictures(
    model: ModelOptions, loaded: LoadedModel, limit: int, notes: list[str]
) -> tuple[dict[str, Tensor], list[tuple[str, int]]]:
    """The input of a model that reads pictures, and its truncated texts."""
    from attention.models.picture_inputs import picture_inputs
    from attention.models.picture_reader import RawPicture

    def read() -> _ReadInput:
        with _DECODING:
            pictures = [RawPicture(picture.pixels(), picture.digest) for picture in model.images]
            inputs, truncated, more = picture_inputs(loaded, pictures, model.text, limit)
        of_files = (note for picture in model.images for note in picture.notes)
        return _ReadInput(inputs, truncated, (*of_files, *more), loaded.uid)

    # A trace asks for its input several times, and a photo takes half a second to decode and to resize.
    digests = tuple(picture.digest for picture in model.images)
    found = CACHE.get_or_compute((loaded.uid, "picture input", digests, model.text, limit), read)
    notes += found.notes
    return found.inputs, found.truncated


def count_bytes(model: ModelOptions, loaded: LoadedModel, inputs: dict[str, Tensor]) -> int:
    """The bytes of everything that is recorded, and of the largest layer while it is computed.

    Raises:
        ConfigError: more than `max_bytes`, or the interventions and generated tokens would take too long.
    """
    from attention.models import lm_head, own_attention, time_cost, validate_patches
    from attention.models.recorded_layer import BYTES_PER_NUMBER, MAPS_PER_HEAD

    n_generated = _count_generated(model, loaded, inputs)
    time_cost.check_time(loaded, sum(ids.shape[-1] for ids in inputs.values()), n_generated, _patches_of_passes(model))
    longest = max(*(ids.shape[-1] for ids in inputs.values()), len(lm_head.predicted_text_ids(inputs)) + n_generated)
    recorded = sum(site.width for site in loaded.sites) * longest
    recorded += validate_patches.count_numbers(loaded, model.interventions, model.frozen, longest)
    # The maps of one head and the mask. A few rows of all heads are computed at a time, unless there are interventions.
    rows = {
        site.n_heads * own_attention.rows_at_once(site, longest, keep_weights=bool(model.interventions))
        for site in loaded.sites
    }
    temporary = MAPS_PER_HEAD * (max(rows, default=loaded.n_maps * longest) + longest) * longest
    if not loaded.sites:
        recorded = loaded.n_maps * longest * longest
    recorded += lm_head.count_numbers(loaded, inputs, model.predict, n_generated)
    nbytes = (recorded + temporary) * BYTES_PER_NUMBER
    if nbytes > model.max_bytes:
        raise ConfigError(
            f"All steps may take at most {model.max_bytes / 2**20:,.0f} MB; {longest:,} tokens in {len(loaded.sites)} layers "
            f"take {nbytes / 2**20:,.0f} MB: choose a shorter text, a smaller model, {ALLOW_MORE}."
        )
    return nbytes


def _patches_of_passes(model: ModelOptions) -> list[PassInterventions]:
    """The interventions of each forward pass that a text takes: its own, that of the unchanged model, and those of the other run."""
    from attention.models.time_cost import PassInterventions

    passes = [PassInterventions(model.interventions, model.frozen)] + [PassInterventions()] * (
        model.frozen and bool(model.interventions)
    )
    if model.other is not None and any(intervention.patch for intervention in model.interventions):
        passes += _patches_of_passes(model.other)
    return passes


def _decodes_alone(model: ModelOptions, loaded: LoadedModel) -> bool:
    """Whether the decoder reads only what the model generates."""
    return loaded.is_encoder_decoder and not model.text2.strip() and len(model.input_ids) < 2


def _count_generated(model: ModelOptions, loaded: LoadedModel, inputs: dict[str, Tensor]) -> int:
    """How many tokens the model generates: the requested number, as far as they fit."""
    from attention.models import lm_head

    decodes_alone = _decodes_alone(model, loaded)
    wanted = model.generate or (MAX_NEW_TOKENS - 1 if decodes_alone else 0)
    if not decodes_alone and (not lm_head.vocabulary_size(loaded) or lm_head.is_masked_lm(loaded)):
        return 0
    room = min(model.max_tokens, loaded.max_length or model.max_tokens) - len(lm_head.predicted_text_ids(inputs))
    return max(0, min(wanted, room, MAX_NEW_TOKENS))


def _generate(
    model: ModelOptions,
    loaded: LoadedModel,
    inputs: dict[str, Tensor],
    notes: list[str],
    build_forward: Callable[[dict[str, Tensor]], PatchedForward],
) -> dict[str, Tensor]:
    """The ids with the generated ones appended."""
    import torch

    from attention.models import forward_pass, generation, lm_head

    n_generated = _count_generated(model, loaded, inputs)
    if model.generate > n_generated:
        notes.append(
            f"{n_generated} of {model.generate} requested tokens were generated: the model does not generate text, or the limit of tokens was reached."
        )
    if not n_generated:
        return inputs
    how = "always the most likely token"
    if model.generate_temperature:
        how = f"sampled with temperature {model.generate_temperature:g} and seed {model.generate_seed}"
    if _decodes_alone(model, loaded):
        notes.append(f"The decoder reads its own generated tokens ({how}): type a second text to replace them.")

    def patched_logits(ids: dict[str, Tensor]) -> Tensor:
        last = len(lm_head.predicted_text_ids(ids)) - 1
        logits = lm_head.logits_of(forward_pass.run_patched(loaded, ids, build_forward(ids), (last,)))
        assert logits is not None
        return logits[-1].to("cpu", torch.float32)

    other = None if model.other is None else model.other.key
    key = (model.interventions, model.frozen, other, model.align)
    patched = (key, patched_logits) if model.interventions and loaded.sites else None
    return generation.generate(loaded, inputs, n_generated, model.generate_temperature, model.generate_seed, patched)
