"""Running a loaded model: from text to token ids, from these to the output of one forward pass, or to text that it generates."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import count
from typing import Any

import torch
from torch import Tensor

from attention.base.cache import CACHE
from attention.base.errors import AttentionError, ModelError
from attention.base.progress import current_callback
from attention.models.lm_head import predicted_text_ids, with_few_logits
from attention.models.loaded import LoadedModel
from attention.models.medium_inputs import MediumInputs, no_family_error, no_text_error, unread_medium
from attention.models.packed_sequences import packed
from attention.models.text_inputs import (
    BESIDE,
    POSITIONS,
    TYPES,
    TextInputs,
    count_positions,
    count_types,
    encode_pair,
    joins_pairs,
    pair_of,
    split_at_separators,
)

_PROBE = "a b c d"  # every model is tried with it: several words, since a rotation does not change position 0
_PROBE_TOKENS = 8
PAIR = "pair of texts"
"""The name of two texts that a model reads together."""
ATTENTIONS = {"layer": "attentions"} | {kind: f"{kind}_attentions" for kind in ("encoder", "decoder", "cross")}
"""The output field of transformers with the weights of each kind of layer."""


def tokenize_inputs(
    loaded: LoadedModel, text: str, text2: str, max_tokens: int, special: bool = True
) -> tuple[TextInputs, list[tuple[str, int]]]:
    """The input ids [1 pos] of a forward pass by argument name, at most `max_tokens` of each text, or of a pair; and the truncated texts.

    A truncated text is its name ("text", "second text", `PAIR`) with its full length. In an encoder-decoder model the second text begins
    with the token that starts the decoder; an encoder that tells two texts apart reads both as a pair. `special` is whether the tokenizer adds its
    special tokens, which a rendered chat has already.
    """
    if text2.strip() and text.strip() and joins_pairs(loaded):
        pair, length = encode_pair(loaded, text, text2, max_tokens)
        return pair, [(PAIR, length)] if length > max_tokens else []
    texts = {"input_ids": text} | ({"decoder_input_ids": text2} if loaded.is_encoder_decoder else {})
    model_inputs: dict[str, Tensor] = {}
    truncated: list[tuple[str, int]] = []
    is_fast = bool(loaded.tokenizer.is_fast)
    options = {"return_tensors": "pt", "add_special_tokens": special, "return_offsets_mapping": is_fast}
    offsets = list[Any]()
    for name, content in texts.items():
        encoded = loaded.tokenizer(content or "a", truncation=False, verbose=False, **options)
        ids = encoded["input_ids"]
        start = torch.tensor([[start_id(loaded.model)]]) if name == "decoder_input_ids" else ids[:, :0]
        if not content.strip():
            ids = ids[:, :0]
        elif ids.shape[1] + start.shape[1] > max_tokens:
            truncated.append(("second text" if model_inputs else "text", ids.shape[1] + start.shape[1]))
            max_length = max_tokens - start.shape[1]
            encoded = loaded.tokenizer(content, truncation=True, max_length=max_length, **options)
            ids = encoded["input_ids"]
        model_inputs[name] = torch.cat([start, ids], dim=1)
        offsets.append(encoded["offset_mapping"][0].tolist() if is_fast else [])
    inputs = TextInputs(model_inputs, texts=(*texts.values(),))
    inputs.offsets = tuple((start, stop) for start, stop in offsets[0][: model_inputs["input_ids"].shape[1]])
    return inputs, truncated


def probe_inputs(loaded: LoadedModel) -> TextInputs:
    """The input that every model is tried with: a short text, or a small input of another medium, or both."""
    if loaded.reader is None:
        return tokenize_inputs(loaded, _PROBE, _PROBE, _PROBE_TOKENS)[0]
    text = _PROBE if loaded.reader.reads_text else ""
    limit = loaded.max_length if text and not loaded.is_encoder_decoder else None
    return loaded.reader.inputs(loaded, [loaded.reader.probe()], text, limit or 2**20)[0]


def cut_ids(
    loaded: LoadedModel, input_ids: tuple[tuple[str, tuple[int, ...]], ...], max_tokens: int
) -> tuple[TextInputs, list[tuple[str, int]]]:
    """The same as `tokenize_inputs` for token ids by argument name, and what stands beside them; a decoder without ids gets the token that starts it."""
    ids = {name: row for name, row in input_ids if name not in BESIDE}
    beside = {name: torch.tensor([row[:max_tokens]]) for name, row in input_ids if name in BESIDE}
    if loaded.is_encoder_decoder:
        ids.setdefault("decoder_input_ids", (start_id(loaded.model),))
    whose = dict(zip(ids, ("text", "second text"), strict=False))
    truncated = [(whose[name], len(row)) for name, row in ids.items() if len(row) > max_tokens]
    rows = {name: torch.tensor([row[:max_tokens]]) for name, row in ids.items()}
    first, texts = rows["input_ids"][0].tolist(), list[int]()
    if TYPES in beside:
        texts = beside[TYPES][0].tolist()
    elif joins_pairs(loaded):
        texts = split_at_separators(loaded.tokenizer, first)
    pair = pair_of(loaded.tokenizer, first, texts)
    return TextInputs(rows, beside, pair), truncated


def run(loaded: LoadedModel, model_inputs: Mapping[str, Tensor], *, gradients: bool = False, **kwargs: Any) -> Any:
    """The output of one forward pass, without key-value cache; a model runs one pass at a time.

    With `gradients`, the pass is differentiated with respect to activations (never to weights), and the caller holds the lock of the model
    until the backward pass has ended.

    Raises:
        ModelError: the model does not read such ids.
    """
    check_ids(loaded, model_inputs)
    sequences: AbstractContextManager[None] = nullcontext()
    during: AbstractContextManager[None] = nullcontext()
    if isinstance(model_inputs, MediumInputs):
        n_texts = len(next(iter(model_inputs.values())))
        sequences = packed(loaded.model, n_texts, bool(model_inputs.reader.across))
        during = model_inputs.reader.during(loaded.model)
    few_logits = with_few_logits(loaded, len(predicted_text_ids(model_inputs)))
    with (
        torch.set_grad_enabled(gradients),
        loaded.session(),
        _frozen_weights(loaded.model),
        sequences,
        during,
        few_logits,
    ):
        silence_warnings()
        if hasattr(loaded.model.config, "use_cache"):
            kwargs["use_cache"] = False
        try:
            return loaded.model(**on_device(loaded, model_inputs), **kwargs)
        except AttentionError:  # raised by our own patches
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            if loaded.reader is None and (no_text := no_text_error(loaded.name, loaded.model)):
                raise no_text from error
            message = " ".join(str(error).split())[:150]
            if isinstance(model_inputs, MediumInputs):
                raise ModelError(
                    f"{loaded.name} should read what its own processor makes of {model_inputs.reader.medium.one}, and fails with “{message}”: check its preprocessor_config.json."
                ) from error
            if medium := unread_medium(loaded.model):
                raise no_family_error(medium, loaded.name, loaded.model) from error
            raise ModelError(
                f"{loaded.name} should read tokens and nothing else, and fails with “{message}”: try it alone, as model(**tokenizer(text, return_tensors='pt')), "
                "or choose a model of texts."
            ) from error


@contextmanager
def _frozen_weights(model: Any) -> Iterator[None]:
    """A context in which no gradient of the weights is computed; afterwards each weight requires its gradient as before."""
    weights = [weight for weight in model.parameters() if weight.requires_grad] if torch.is_grad_enabled() else []
    try:
        for weight in weights:
            weight.requires_grad_(False)
        yield
    finally:
        for weight in weights:
            weight.requires_grad_(True)


def on_device(loaded: LoadedModel, model_inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The arguments of the model on its device: whole numbers such as token ids, and others in the dtype of the model."""
    arguments = model_inputs.arguments if isinstance(model_inputs, TextInputs) else model_inputs
    placed = {name: tensor.to(loaded.device) for name, tensor in arguments.items()}
    dtype = loaded.model.dtype
    return {name: each.to(dtype) if each.is_floating_point() else each for name, each in placed.items()}


def check_ids(loaded: LoadedModel, model_inputs: Mapping[str, Tensor]) -> None:
    """Check that the model has all token ids, before it runs: a GPU does not recover from one that it lacks.

    Raises:
        ModelError: it lacks one.
    """
    sizes = {TYPES: count_types(loaded.model), POSITIONS: count_positions(loaded.model)}
    for name, numbers in model_inputs.beside.items() if isinstance(model_inputs, TextInputs) else ():
        size = sizes.get(name, 0)
        wrong = numbers[(numbers < 0) | (numbers >= size)] if size else numbers[:0]
        if len(wrong):
            raise ModelError(
                f"The {name} of {loaded.name} are from 0 to {size - 1:,}; got {int(wrong[0]):,}: give those that the model's own tokenizer makes."
            )
    table = getattr(loaded.input_embeddings, "weight", None)
    n_rows = len(table) if isinstance(table, Tensor) and table.ndim == 2 and table.is_floating_point() else None
    for ids in (model_inputs.token_ids if isinstance(model_inputs, TextInputs) else model_inputs).values():
        wrong = ids[(ids < 0) | (ids >= n_rows)] if n_rows is not None else ids[ids < 0]
        if len(wrong):
            raise ModelError(
                f"The token ids of {loaded.name} are from 0 to {(n_rows or 1) - 1:,}; got {int(wrong[0]):,}: "
                "give the tokenizer that belongs to the model, and ids that it made."
            )


def silence_warnings() -> None:
    """Silence the warnings of transformers; permanently, since the warning filters are shared by all threads."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    warnings.filterwarnings("ignore", module=r"(transformers|torch|attention\.models)\b")  # idempotent


def start_id(model: Any) -> int:
    """The id of the token that starts a decoder."""
    config = model.config
    ids = (getattr(config, name, None) for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"))
    return next((token_id for token_id in ids if token_id is not None), 0)


def generate(
    loaded: LoadedModel,
    model_inputs: TextInputs,
    max_new_tokens: int,
    temperature: float = 0,
    seed: int = 0,
    patched: tuple[Hashable, Callable[[TextInputs], Tensor]] | None = None,
) -> TextInputs:
    """The input ids followed by up to `max_new_tokens` generated ones, each the likeliest or sampled with a seed; the model may end the text earlier.

    Other threads that run the same model get their turn between two tokens.

    Args:
        loaded: a model that can generate text.
        model_inputs: the ids that it reads.
        max_new_tokens: the largest number of generated tokens.
        temperature: 0: the likeliest token each time, as in the `generate` of transformers; otherwise sampled from the softmax of
            the logits divided by the temperature.
        seed: of the samples.
        patched: for a patched model, a cache key and a function from ids to the logits [vocabulary] of the next token. The whole
            text then runs again for each token, since a patch may affect earlier positions.

    Raises:
        ModelError: the model has no head that generates tokens.
    """
    if not loaded.model.can_generate():
        raise ModelError(f"The decoder of {loaded.name} generates no words: type a second text for it to read.")
    name = [*model_inputs][-1]
    of_run = max_new_tokens, temperature, seed, patched and patched[0]
    key = "generated", loaded.uid, model_inputs.key, *of_run
    sampler = _GumbelSampler(temperature, seed) if temperature else None

    def generate() -> Tensor:
        placed, counts = on_device(loaded, model_inputs), count(1)

        def pause(_: Tensor, scores: Tensor) -> Tensor:
            _report(next(counts), max_new_tokens)
            loaded.lock.pause()
            return scores

        from transformers import GenerationMixin

        processors = [pause, sampler] if sampler else [pause]
        with torch.no_grad(), loaded.session():
            silence_warnings()
            mask = {"attention_mask": torch.ones_like(placed["input_ids"])} if "input_ids" in placed else {}
            # Around it, a family may cut long sounds into parts, and the text from what the decoder begins with.
            generates: Any = GenerationMixin if loaded.reader and not mask else type(loaded.model)
            output_ids: Tensor = generates.generate(
                loaded.model, **mask | placed, max_new_tokens=max_new_tokens, do_sample=False, num_beams=1,
                logits_processor=processors,
            )  # fmt: skip
        return output_ids.cpu()

    def generate_patched() -> Tensor:
        assert patched is not None
        extended, end_ids = model_inputs, loaded.model.generation_config.eos_token_id
        suppressed = _suppressed(loaded.model.generation_config, model_inputs[name].shape[-1])
        for n_tokens in range(max_new_tokens):
            _report(n_tokens, max_new_tokens)
            logits = suppressed(extended[name], patched[1](extended)[None])
            token = (sampler(logits, logits) if sampler else logits).argmax(-1)
            extended = extended.with_ids(name, torch.cat([extended[name], token[None]], dim=-1))
            if int(token) in (end_ids if isinstance(end_ids, list) else [end_ids]):
                break
        return extended[name]

    return model_inputs.with_ids(name, CACHE.get_or_compute(key, generate_patched if patched else generate))


def _suppressed(config: Any, length: int) -> Any:
    """A function of ids and logits [1 vocabulary]: the logits without the tokens that a model never writes, or not first after this many tokens."""
    from transformers import LogitsProcessorList, SuppressTokensAtBeginLogitsProcessor, SuppressTokensLogitsProcessor

    never, not_first = config.suppress_tokens, config.begin_suppress_tokens
    processors: list[Any] = [SuppressTokensLogitsProcessor(never)] if never else []
    processors += [SuppressTokensAtBeginLogitsProcessor(not_first, length)] if not_first else []
    return LogitsProcessorList(processors)


def _report(n_tokens: int, max_new_tokens: int) -> None:
    if callback := current_callback():  # it raises if nobody waits any more, which stops the generation
        callback("Generating tokens …", n_tokens / max_new_tokens)


class _GumbelSampler:
    """A logits processor whose likeliest token is a sample from the softmax: it adds Gumbel noise to the logits.

    The noise has its own generator, so that no other random numbers change it. Noise is drawn token by token, so that the first
    tokens are the same however many are generated.

    Source: Gumbel 1954; Maddison et al. 2014, "A* Sampling", section 2.
    """

    def __init__(self, temperature: float, seed: int) -> None:
        self.temperature = temperature
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, _: Tensor, scores: Tensor) -> Tensor:
        uniform = torch.rand(scores.shape, generator=self.generator, dtype=torch.float64).clamp(1e-300, 1 - 2**-53)
        noisy = scores.cpu().double() / self.temperature - (-uniform.log()).log()
        return noisy.to(scores.device)
