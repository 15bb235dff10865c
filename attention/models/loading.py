"""A folder becomes a model that can be run and recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from attention.errors import ModelError
from attention.models import predicting, progress, recording
from attention.models.checking import Folder
from attention.models.loaded import Loaded
from attention.models.running import hush, inputs, run, weights
from attention.models.sites import PROBE, sites

_TIMES, _MORE = 2, 2**26  # how much more than its file a model may take, such as a head that is not saved; and bytes
_ABSURD = 10**9  # tokens: what tokenizers say that know no limit


def load(folder: Folder, name: str, about: str = "") -> Loaded:
    """The model of a folder, tried once.

    Raises:
        ModelError: it cannot be loaded, has no tokenizer, or no attention that could be shown.
    """
    recording.register()
    progress.follow()
    hush()
    _weigh(folder, name)
    tokenizer = _tokenizer(folder, name)
    model = _model(folder, name, recording.IMPLEMENTATION) or _model(folder, name, "eager")
    limit, two = _limit(model, tokenizer), bool(model.config.is_encoder_decoder)
    loaded = Loaded(name, model, tokenizer, (), two, limit, folder.nbytes, about=about)
    found = sites(loaded)
    if found:
        predicting.watch(model)
        return replace(loaded, sites=found)
    # Its family goes past the recorder: it is left alone, and asked for its weights.
    loaded = replace(loaded, model=_model(folder, name, "eager"))
    predicting.watch(loaded.model)
    probe, _ = inputs(loaded, PROBE, PROBE, 8)
    asked = run(loaded, probe, output_attentions=True)
    return replace(loaded, maps=sum(len(one) for _, one in weights(asked, probe)))


def _tokenizer(folder: Folder, name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder.path, local_files_only=True, trust_remote_code=False)
        if len(tokenizer) <= len(set(tokenizer.all_special_tokens)):  # made without files, where its kind needs none
            raise ValueError
        return tokenizer
    except Exception as error:  # transformers raises whatever a missing or broken file leads to
        raise ModelError(
            f"{name} has no tokenizer that can be read, so no text can be cut into its tokens: add tokenizer.json to the folder."
        ) from error


def _model(folder: Folder, name: str, implementation: str) -> Any:
    """The model with this attention in it; None where its family knows no other than its own."""
    kind = _class(folder.config)
    auto = {"trust_remote_code": False} if kind.__module__.startswith("transformers.models.auto") else {}
    try:
        model = kind.from_pretrained(
            folder.path,
            attn_implementation=implementation,
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            **auto,
        )
    except Exception as error:  # transformers raises whatever a broken file leads to
        if isinstance(error, KeyError | ValueError) and implementation != "eager" and f"{implementation}" in str(error):
            return None
        raise ModelError(_unfit(name, error)) from error
    return model.eval()


def _weigh(folder: Folder, name: str) -> None:
    """Builds the model without its numbers, to see what it would take: what its file does not have would be made, whatever size.

    Raises:
        ModelError: much more than its weights, or it cannot be built.
    """
    from transformers import AutoConfig

    kind = _class(folder.config)
    try:
        config = AutoConfig.from_pretrained(folder.path, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            model = kind(config) if hasattr(kind, "forward") else kind.from_config(config)
    except Exception as error:  # as below
        raise ModelError(_unfit(name, error)) from error
    size = sum(one.numel() * one.element_size() for one in (*model.parameters(), *model.buffers()))
    if size > _TIMES * folder.nbytes + _MORE:
        raise ModelError(
            f"The config.json of {name} asks for {size / 2**20:,.0f} MB, its weights are {folder.nbytes / 2**20:,.0f} MB: download it again."
        )


def _unfit(name: str, error: Exception) -> str:
    said = " ".join(str(error).split())[:150]
    return f"{name} should load with transformers, which says “{said}”: check that the folder is complete."


def _class(config: dict[str, Any]) -> Any:
    """The class of the whole model, with its head, as its config names it; where it names none, of the model alone."""
    import transformers

    all_named = config.get("architectures")
    named = all_named[0] if isinstance(all_named, list) and all_named else None
    found = getattr(transformers, named, None) if isinstance(named, str) else None
    whole = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    return found if whole else transformers.AutoModel


def _limit(model: Any, tokenizer: Any) -> int | None:
    """The most tokens of a text: what the table of positions has rows for, or what the tokenizer says."""
    config = model.config
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    rows = next(
        (
            getattr(text, key)
            for key in ("max_position_embeddings", "n_positions")
            if isinstance(getattr(text, key, None), int)
        ),
        None,
    )
    if rows is not None:
        table = next((part for name, part in model.named_modules() if name.endswith("position_embeddings")), None)
        offset = getattr(table, "padding_idx", None)
        rows -= 0 if offset is None else offset + 1  # RoBERTa's positions begin behind that of the padding
    said = tokenizer.model_max_length
    limits = [one for one in (rows, said if said < _ABSURD else None) if one is not None and one > 0]
    return min(limits, default=None)
