"""A folder becomes a model that can be run and recorded."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.errors import ModelError
from attention.models import progress, recording
from attention.models.checking import Folder
from attention.models.parameters import made, makes_output, out_module, parameters

if TYPE_CHECKING:
    from torch.nn import Module

_PROBE = "a b c d"  # what every model is tried with once: some words, since a rotation leaves the first as it is
ATTENTIONS = {
    "layer": "attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "cross": "cross_attentions",
}
"""What transformers calls the weights of each kind of layer."""
_TIMES, _MORE = 2, 2**26  # how much more than its file a model may take, such as a head that is not saved; and bytes
_ABSURD = 10**9  # tokens: what tokenizers say that know no limit


@dataclass(frozen=True, eq=False)
class Site:
    """One place of a model where attention is called.

    Attributes:
        name: "layer 3"; with two texts "encoder 2", "decoder 2" or "cross 2".
        parameters: W_Q, W_K, … by the names of the glossary, as far as they can be named.
        made: which of query, key and value are their projection of the input, and nothing more.
        n_heads: of the queries.
        width: how many numbers are recorded of one token.
    """

    name: str
    parameters: dict[str, Tensor]
    made: frozenset[str]
    n_heads: int
    width: int


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model in memory, ready to be recorded.

    Attributes:
        name: as a person asked for it.
        model: of transformers, in single precision; `tokenizer` what cuts its texts.
        sites: in the order in which they are called; empty where the family does not say what it does.
        two_texts: whether it has an encoder and a decoder.
        limit: the most tokens of a text; None where it has none.
        maps: how many query × key matrices its heads have together, where there are no sites.
        nbytes: of its weights.
        about: a line that belongs beside it, such as that it is a 4-bit version; empty: nothing.
    """

    name: str
    model: Any
    tokenizer: Any
    sites: tuple[Site, ...]
    two_texts: bool
    limit: int | None
    nbytes: int
    maps: int = 0
    about: str = ""


def load(folder: Folder, name: str, about: str = "") -> Loaded:
    """The model of a folder, tried once.

    Raises:
        ModelError: it cannot be loaded, has no tokenizer, or no attention that could be shown.
    """
    recording.register()
    progress.follow()
    with quiet():
        _weigh(folder, name)
        tokenizer = _tokenizer(folder, name)
        model = _model(folder, name, recording.IMPLEMENTATION) or _model(folder, name, "eager")
        limit, two = _limit(model, tokenizer), bool(model.config.is_encoder_decoder)
        loaded = Loaded(name, model, tokenizer, (), two, limit, folder.nbytes, about=about)
        sites = _sites(loaded)
        if sites:
            return replace(loaded, sites=sites)
        # Its family goes past the recorder: it is left alone, and asked for its weights.
        loaded = replace(loaded, model=_model(folder, name, "eager"))
        probe, _ = inputs(loaded, _PROBE, _PROBE, 8)
        return replace(loaded, maps=sum(len(one) for _, one in weights(loaded, probe)))


def inputs(loaded: Loaded, text: str, text2: str, most: int) -> tuple[dict[str, Tensor], list[tuple[str, int]]]:
    """What a forward pass takes, the ids of the tokens, `most` of each text; and which texts were cut, with their lengths.

    With an encoder and a decoder the second text begins with the token that starts the decoder.
    """
    texts = {"input_ids": text} | ({"decoder_input_ids": text2} if loaded.two_texts else {})
    made: dict[str, Tensor] = {}
    cut: list[tuple[str, int]] = []
    for name, words in texts.items():
        ids = loaded.tokenizer(words or "a", return_tensors="pt", truncation=False, verbose=False)["input_ids"]
        first = torch.tensor([[_start(loaded.model)]]) if name == "decoder_input_ids" else ids[:, :0]
        if not words.strip():
            ids = ids[:, :0]
        elif ids.shape[1] + first.shape[1] > most:
            cut.append(("second text" if made else "text", ids.shape[1] + first.shape[1]))
            ids = loaded.tokenizer(words, return_tensors="pt", truncation=True, max_length=most - first.shape[1])[
                "input_ids"
            ]
        made[name] = torch.cat([first, ids], dim=1)
    return made, cut


def continued(loaded: Loaded, given: dict[str, Tensor], most: int) -> dict[str, Tensor]:
    """The ids with what the model itself says as the decoder's text, the likeliest token each time.

    Raises:
        ModelError: it has no head that says tokens.
    """
    if not loaded.model.can_generate():
        raise ModelError(f"{loaded.name} has a decoder that says no words: type a second text for it to read.")
    with torch.no_grad(), quiet():
        said = loaded.model.generate(given["input_ids"], max_new_tokens=max(1, most - 1), do_sample=False, num_beams=1)
    return given | {"decoder_input_ids": said[:, :most]}


def weights(loaded: Loaded, given: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
    """The attention weights that a model gives when it is asked, by the name of the layer: [head query_pos key_pos].

    Empty where it gives none, or of another shape, such as blocks.
    """
    found = run(loaded, given, output_attentions=True)
    there = []
    lengths = {ids.shape[1] for ids in given.values()}
    for kind, name in ATTENTIONS.items():
        for i, one in enumerate(found.get(name) or ()):
            if isinstance(one, Tensor) and one.ndim == 4 and {*one.shape[2:]} <= lengths:
                there.append((f"{kind} {i}", one[0].detach()))
    return there


def run(loaded: Loaded, given: dict[str, Tensor], **more: Any) -> Any:
    """One forward pass; nothing is learned, nothing is kept for the next token."""
    with torch.no_grad(), quiet():
        if hasattr(loaded.model.config, "use_cache"):
            more["use_cache"] = False
        try:
            return loaded.model(**given, **more)
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            said = " ".join(str(error).split())[:150]
            raise ModelError(
                f"{loaded.name} should read tokens and nothing else, and says “{said}”: choose a model of texts."
            ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without what transformers says to a terminal."""
    logger = logging.getLogger("transformers")
    before, logger.disabled = logger.level, False
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _start(model: Any) -> int:
    config = model.config
    found = (getattr(config, name, None) for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"))
    return next((one for one in found if one is not None), 0)


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


def _sites(loaded: Loaded) -> tuple[Site, ...]:
    """Where attention is called, found by running the model once on two words; the weights are named and tried on that."""
    calls: list[recording.Call] = []
    given, _ = inputs(loaded, _PROBE, _PROBE, 8)
    with recording.recording(calls.append):
        run(loaded, given)
    modules = {id(call.module): call.module for call in calls}
    for module in modules.values():
        recording.watch(module)
    calls.clear()
    parents = _parents(loaded.model)
    paths = {id(module): path for path, module in loaded.model.named_modules()}
    outputs: dict[int, Tensor] = {}
    outs = {key: out_module(module, parents.get(key)) for key, module in modules.items()}
    hooks = [
        out.register_forward_hook(lambda _, __, made, key=key: outputs.update({key: made[0]}))
        for key, out in outs.items()
        if out is not None
    ]
    with recording.recording(calls.append):
        run(loaded, given)
    for hook in hooks:
        hook.remove()
    width = 2 * int(getattr(loaded.model.config, "hidden_size", 0) or 0)  # of the input, and of another text's
    named: dict[int, dict[str, Tensor]] = {}
    for call in calls:
        key = id(call.module)
        if key not in named:
            there = parameters(call, parents.get(key))
            if "w_o" in there and not (key in outputs and makes_output(there, call, outputs[key])):
                there = {name: one for name, one in there.items() if name not in ("w_o", "b_o")}
            named[key] = there
    return tuple(
        Site(
            name,
            named[id(call.module)],
            made(named[id(call.module)], call),
            len(call.query),
            sum(one.shape[0] * one.shape[-1] for one in (call.query, call.key, call.value)) + width,
        )
        for name, call in zip(_names(loaded, calls, paths), calls, strict=True)
    )


def _names(loaded: Loaded, calls: list[recording.Call], paths: dict[int, str]) -> list[str]:
    """What each call is named by: its kind, and its number among those of its kind."""
    names: list[str] = []
    numbers: dict[str, dict[int, int]] = {}
    for call in calls:
        path = paths[id(call.module)]
        kind = "layer"
        if call.memory is not None or re.search(r"encoder_attn|EncDecAttention|crossattention", path):
            kind = "cross"
        elif loaded.two_texts:
            kind = "decoder" if re.search(r"\bdecoder\b", path) else "encoder"
        of_kind = numbers.setdefault(kind, {})
        name = f"{kind} {of_kind.setdefault(id(call.module), len(of_kind))}"
        names.append(f"{name} again" if name in names else name)
    return names


def _parents(model: Any) -> dict[int, Module]:
    return {id(child): module for module in model.modules() for child in module.children()}
