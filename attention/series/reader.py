"""From the columns of a series to the tokens of a model: which steps it reads, its patches with their places, and what it is told beside them.

Each column is a sequence that sees itself only, as rows of one batch; in a PatchTST with channel attention, every second attention is across them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.base.errors import ConfigError, ModelError
from attention.media import InputReader, Medium
from attention.models.medium_inputs import MediumInputs, ReadInput
from attention.series.drawing import Patches
from attention.series.families import CHANNELS, FREQUENCY, OBSERVED, PADDING, TIMESFM_2_5, VALUES, is_patchtst
from attention.series.table import MAX_COLUMNS, Series

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel

_MAX_NUMBERS = 2**20  # of all columns that a model reads
_CLS, _PAD = "[CLS]", "[padding]"
_WEEK, _QUARTER = 6.5, 80.0  # days
_FREQUENCIES = ("at most a day apart", "weeks or months apart", "quarters or years apart")
"""What TimesFM is told by `freq` 0, 1 and 2 (Das et al. 2024, A decoder-only foundation model for time-series forecasting)."""
_SEED = 0  # of the patches that a pretraining model hides


class SeriesReader(InputReader):
    """How a model of a declared family reads series, by its config.

    Attributes:
        config: of the model.
        n_columns: how many columns it reads; 0: any number.
        arguments: the names of the arguments of the model.
    """

    reads_text, token_id, types_argument, in_turn = False, None, "", False

    def __init__(self, medium: Medium, model: Any, name: str) -> None:
        self.medium, self.config = medium, model.config
        self.n_columns = int(self.config.num_input_channels) if is_patchtst(self.config) else 0
        self.across = CHANNELS if getattr(self.config, "channel_attention", False) else ""
        self.arguments = frozenset(signature(model.forward).parameters)
        numbers = self.config.context_length, self.config.patch_length, getattr(self.config, "patch_stride", 1)
        n_numbers = numbers[0] * max(1, self.n_columns)
        if min(numbers) < 1 or self.n_columns > MAX_COLUMNS or not numbers[1] <= n_numbers <= _MAX_NUMBERS:
            raise ModelError(
                f"A model reads at most {MAX_COLUMNS} columns and {_MAX_NUMBERS:,} numbers of a series; {name} is made for {self.n_columns or 'any'} "
                f"columns, {numbers[0]:,} steps and patches of {numbers[1]:,}: choose another model."
            )

        if not is_patchtst(self.config) and numbers[0] % numbers[1]:
            raise ModelError(
                f"A TimesFM cuts the {numbers[0]:,} steps that it reads into whole patches; {name} has patches of {numbers[1]:,}, which do not fill them: "
                "set context_length in its config.json to a multiple of patch_length."
            )

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """[CLS] of each column, and the patches before a series that is shorter than what the model reads."""
        return _CLS, _PAD

    def probe(self) -> Series:
        """A series of which every patch is another."""
        steps = torch.arange(self.config.context_length, dtype=torch.float64)[:, None]
        columns = torch.arange(1, (self.n_columns or 1) + 1)
        return Series.open(torch.sin(steps / (3 + columns)) + steps / 64)

    def inputs(
        self, loaded: LoadedModel, given: Sequence[Series], text: str, max_tokens: int
    ) -> tuple[MediumInputs, list[tuple[str, int]], list[str]]:
        """As `InputReader.inputs`."""
        if len(given) > 1:
            raise ConfigError(
                f"{loaded.name} reads one series at a time; got {len(given)}: give them as columns of one table, or make a Model for each."
            )
        notes: list[str] = []
        count = (
            _base(loaded.model).patchifier.num_patches
            if is_patchtst(self.config)
            else self.config.context_length // self.config.patch_length
        )
        n_tokens = given[0].values.shape[1] * (count + bool(getattr(self.config, "use_cls_token", False)))
        if n_tokens > max_tokens:
            raise ConfigError(
                f"At most {max_tokens:,} tokens are read here; {loaded.name} makes {n_tokens:,} of this series: "
                "give fewer columns, choose a model with longer patches, or raise max_tokens."
            )
        read = (_patchtst if is_patchtst(self.config) else _timesfm)(self, loaded, given[0], notes)
        return MediumInputs({VALUES: torch.arange(len(read.tokens))[None]}, read, self), [], notes

    def frequency(self, series: Series) -> int:
        """What a TimesFM is told about the distance of steps, by the time axis: 0, 1 or 2, as in `_FREQUENCIES`."""
        return 0 if series.days is None else (series.days > _WEEK) + (series.days > _QUARTER)

    @contextmanager
    def during(self, model: Any) -> Iterator[None]:
        """A context in which a model that hides some patches of its input hides the same in every pass, of every text of a batch."""
        mask = self.hidden_patches(model)
        if mask is None:
            yield
            return

        def hide(masking: Any, args: tuple[Tensor, ...], _: Any) -> tuple[Tensor, Tensor]:
            hidden = mask.to(args[0].device).expand(*args[0].shape[:-1])
            return args[0].masked_fill(hidden[..., None], masking.mask_value), hidden

        handle = _base(model).masking.register_forward_hook(hide)
        try:
            yield
        finally:
            handle.remove()

    def hidden_patches(self, model: Any) -> Tensor | None:
        """Which patches a model in pretraining hides, [1 column patch], as after torch.manual_seed(0); None for another model."""
        base = _base(model)
        if not getattr(base, "do_mask_input", False):
            return None
        with torch.random.fork_rng([]):
            torch.manual_seed(_SEED)
            shape = 1, self.n_columns, base.patchifier.num_patches, self.config.patch_length
            mask: Tensor = base.masking(torch.zeros(shape))[1]
        return mask


def _base(model: Any) -> Any:
    """The model without its head."""
    return getattr(model, "model", model)


def _patchtst(reader: SeriesReader, loaded: LoadedModel, series: Series, notes: list[str]) -> ReadInput:
    """The last steps of all columns (Nie et al. 2023, A Time Series is Worth 64 Words)."""
    config, base, (n_steps, n_columns) = reader.config, _base(loaded.model), series.values.shape
    if n_columns != reader.n_columns:
        named = ", ".join(series.columns[:8]) + ", …" * (n_columns > 8)
        raise ConfigError(
            f"{loaded.name} reads {reader.n_columns} {'column' if reader.n_columns == 1 else 'columns'}; got {n_columns} ({named}): "
            "give a table with the columns that it was trained on, in their order."
        )
    if n_steps < config.context_length:
        raise ConfigError(
            f"{loaded.name} reads {config.context_length:,} steps; got {n_steps:,}: give a longer series, or a model with a shorter context_length."
        )
    start = n_steps - config.context_length
    _note_last(notes, loaded, config.context_length, n_steps)
    past = torch.tensor(series.values[start:], dtype=torch.float32)[None]
    observed = ~past.isnan()
    arguments = {VALUES: past.nan_to_num()}
    if n_missing := int((~observed).sum()):
        arguments[OBSERVED] = observed
        notes.append(
            f"{n_missing:,} missing {'number is' if n_missing == 1 else 'numbers are'} read as 0, and left out of the mean and the scale "
            f"({OBSERVED}), as transformers does."
        )
    unread = base.patchifier.sequence_start
    if unread:
        notes.append(f"The first {unread} of these steps fill no whole patch, and are in none.")
    count, length, stride = base.patchifier.num_patches, config.patch_length, config.patch_stride
    patches = Patches(series.columns, start + unread, count, length, stride, n_steps)
    with torch.no_grad():
        scaled = base.scaler(arguments[VALUES], observed)[0].masked_fill(~observed, torch.nan)[0, unread:].double()
    scaling = {"std": "each column less its mean, over its standard deviation"}.get(
        config.scaling, "each column over its mean size" if config.scaling else ""
    )
    words = f"{scaling or 'each column between its smallest and largest number'}; {patches.words}"
    seen = patches.seen(scaled.numpy(), bool(scaling), words, series.digest)
    hidden = reader.hidden_patches(loaded.model)
    if hidden is not None:
        notes.append(
            f"The model hides {int(hidden.sum())} of {hidden.numel()} patches from itself, as in pretraining: those that torch.manual_seed({_SEED}) chooses."
        )
    if reader.across:
        notes.append(
            f"In the layers “{CHANNELS}”, each patch sees the same steps of all columns; in the others, all patches of its own column."
        )
    first = (_CLS,) if config.use_cls_token else ()
    sequences = [(*first, *patches.of_column(row)) for row in range(n_columns)]
    return ReadInput(arguments, (seen,), tuple(chain(*sequences)), (), tuple(map(len, sequences)), ())


def _timesfm(reader: SeriesReader, loaded: LoadedModel, series: Series, notes: list[str]) -> ReadInput:
    """The last steps of each column, with padding in front of a short series (Das et al. 2024)."""
    config, (n_steps, n_columns) = reader.config, series.values.shape
    context, length = config.context_length, config.patch_length
    _note_last(notes, loaded, context, n_steps)
    start = max(0, n_steps - context)
    past = torch.tensor(series.values[start:], dtype=torch.float32).T.contiguous()  # [column step]
    if bool(past.isnan().any()):
        raise ConfigError(
            f"{loaded.name} reads no missing numbers; got {int(past.isnan().sum()):,} in the last {past.shape[1]:,} steps: fill them in the table, "
            "such as frame.interpolate() of pandas."
        )
    n_padded = context - past.shape[1]
    arguments = {VALUES: past}
    if PADDING in reader.arguments:  # the model without its head
        arguments[VALUES] = torch.nn.functional.pad(past, (n_padded, 0))
        arguments[PADDING] = (torch.arange(context) < n_padded).float().expand(n_columns, -1).contiguous()
    if FREQUENCY in reader.arguments:
        frequency = reader.frequency(series)
        arguments[FREQUENCY] = torch.full((n_columns, 1) if PADDING in arguments else (n_columns,), frequency)
        because = "which is what models are told without a time axis" if series.days is None else "by the time axis"
        notes.append(f"The model is told that steps are {_FREQUENCIES[frequency]} (freq {frequency}), {because}.")
    n_before = n_padded // length  # patches of padding alone
    if n_padded:
        notes.append(
            f"{loaded.name} reads {context:,} steps: {n_padded:,} of padding stand in front of the series. A patch of padding alone is the token {_PAD}."
        )
    if (
        config.model_type == TIMESFM_2_5
        and getattr(config, "force_flip_invariance", False)
        and "forecast_context_len" in reader.arguments
    ):
        notes.append(
            f"The model reads the series twice: the second half of the layers, from layer {config.num_hidden_layers}, reads it upside down (force_flip_invariance)."
        )
    patches = Patches(
        series.columns, start + n_before * length - n_padded, context // length - n_before, length, length, n_steps
    )
    words = f"each column between its smallest and largest number, which the model scales by itself; {patches.words}"
    seen = patches.seen(series.values[start:], False, words, series.digest)
    sequences = [(*[_PAD] * n_before, *patches.of_column(row)) for row in range(n_columns)]
    return ReadInput(arguments, (seen,), tuple(chain(*sequences)), (), tuple(map(len, sequences)), ())


def _note_last(notes: list[str], loaded: LoadedModel, context: int, n_steps: int) -> None:
    if n_steps > context:
        notes.append(
            f"{loaded.name} reads {context:,} steps: the last of the {n_steps:,}, from step {n_steps - context:,}."
        )
