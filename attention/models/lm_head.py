"""A model's predictions: the logits of its language-model head, computed only at the requested positions, or those of its classes.

`Measurement` is what a run measures of them: a log-probability, a logit difference, or the cosine with other vectors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from attention.base.errors import ConfigError, TextError
from attention.base.tokens import ClassName
from attention.models.loaded import LoadedModel
from attention.models.medium_inputs import MediumInputs
from attention.models.token_pieces import readable_tokens, vocabulary_names
from attention.trace.trace import TOP_K, Prediction

_MOST_LOGITS = 2**27  # of a user's model: half a gigabyte; of SmolLM2 those of 2,730 tokens
_MAX_POSITIONS = 40  # with logits: each has one for every token of the vocabulary
_POSITIONS: ContextVar[tuple[int, ...] | None] = ContextVar("positions", default=None)


def limit_logits(model: Any) -> None:
    """From now on, compute logits only at the positions of the context `logits_at`: those of all positions take too much memory.

    A user's model keeps computing all of them, except of a long text (`with_few_logits`): fewer rows in a product can change the last bits of each.
    """
    head = _language_model_head(model)
    if head is not None:
        head.register_forward_pre_hook(_select_positions)


def computes_few(loaded: LoadedModel, n_tokens: int) -> bool:
    """Whether logits are computed only at the positions of `logits_at`: by a model that the Lab loaded, and of a long text by a user's, too."""
    return not loaded.in_memory or n_tokens * vocabulary_size(loaded) > _MOST_LOGITS


@contextmanager
def with_few_logits(loaded: LoadedModel, n_tokens: int) -> Iterator[None]:
    """A context in which a user's model computes few logits of a long text, which would take more memory than everything that is recorded."""
    head = _language_model_head(loaded.model) if loaded.in_memory and computes_few(loaded, n_tokens) else None
    hook = None if head is None else head.register_forward_pre_hook(_select_positions)
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


@contextmanager
def logits_at(positions: Sequence[int]) -> Iterator[None]:
    """A context in which the forward passes of this thread compute logits at these positions, in this order."""
    token = _POSITIONS.set(tuple(positions))
    try:
        yield
    finally:
        _POSITIONS.reset(token)


def is_masked_lm(loaded: LoadedModel) -> bool:
    """Whether a model with a language-model head fills masks, instead of predicting the next token."""
    return not loaded.model.can_generate()


def vocabulary_size(loaded: LoadedModel) -> int:
    """The number of tokens that a model can predict; 0 without a language-model head."""
    weight = getattr(_language_model_head(loaded.model), "weight", None)
    return 0 if weight is None else len(weight)


def class_names(loaded: LoadedModel) -> tuple[ClassName, ...]:
    """The classes of a classifier of another medium than text, in the order of its logits; empty for every other model."""
    if loaded.reader is None or not re.search(loaded.reader.medium.classifier, type(loaded.model).__name__):
        return ()
    config = loaded.model.config
    return tuple(ClassName(config.id2label.get(index) or f"class {index}") for index in range(config.num_labels))


def names_of(loaded: LoadedModel, ids: Sequence[int]) -> tuple[str, ...]:
    """The readable form of some tokens of the vocabulary, or of classes."""
    classes = class_names(loaded)
    return tuple(classes[index] for index in ids) if classes else vocabulary_names(loaded.tokenizer, ids)


def predicted_text_ids(model_inputs: Mapping[str, Tensor]) -> list[int]:
    """The ids of the text with the predictions: the decoder's in an encoder-decoder model."""
    return [int(token_id) for token_id in [*model_inputs.values()][-1][0]]


def prediction_positions(
    loaded: LoadedModel, model_inputs: Mapping[str, Tensor], wanted: Sequence[int], generated: int = 0
) -> tuple[int, ...]:
    """The positions of the predictions: those that are `wanted`, or else every mask, or the end of the text.

    If the model generated the last `generated` tokens, also the positions at which it predicted them.

    Raises:
        ConfigError: there is no such position, or there are too many.
    """
    if not vocabulary_size(loaded):
        return ()
    ids = predicted_text_ids(model_inputs)
    if invalid := [position for position in wanted if not 0 <= position < len(ids)]:
        raise ConfigError(
            f"A prediction is read at a token from 0 to {len(ids) - 1}, as the text has {len(ids)}; got {invalid[0]}: choose one of these."
        )
    result = tuple(wanted)
    if not result and is_masked_lm(loaded):
        result = tuple(i for i, token_id in enumerate(ids) if token_id == loaded.tokenizer.mask_token_id)
    elif not result:
        result = tuple(range(len(ids) - 1 - generated, len(ids)))
    if len(result) > _MAX_POSITIONS:
        raise ConfigError(
            f"Predictions are read at up to {_MAX_POSITIONS} positions at once; got {len(result)}: choose fewer."
        )
    return result


def count_numbers(
    loaded: LoadedModel, model_inputs: Mapping[str, Tensor], wanted: Sequence[int], max_new_tokens: int = 0
) -> int:
    """How many 4-byte numbers the predictions take; without a language-model head, the last vectors.

    Raises:
        ConfigError: as for `prediction_positions`.
    """
    if not vocabulary_size(loaded):
        return len(predicted_text_ids(model_inputs)) * int(getattr(loaded.model.config, "hidden_size", 0) or 0)
    n_positions = len(wanted) or len(prediction_positions(loaded, model_inputs, ())) + max_new_tokens
    n_all = len(predicted_text_ids(model_inputs)) + max_new_tokens
    n_all = 0 if computes_few(loaded, n_all) else n_all
    return (n_positions * 3 + n_all) * vocabulary_size(loaded)


def read_predictions(
    loaded: LoadedModel, model_inputs: Mapping[str, Tensor], model_output: Any, logit_positions: Sequence[int]
) -> tuple[Prediction, ...]:
    """The predictions of a forward pass that computed logits at these positions, with the names of the likeliest tokens.

    A classifier has one prediction, whose tokens are its classes.
    """
    if names := class_names(loaded):
        return _class_prediction(model_inputs, model_output, names)
    logits = logits_of(model_output)
    if not logit_positions or logits is None:
        return ()
    ids = predicted_text_ids(model_inputs)
    # A user's model computes all logits of a short text, as do families that do not call their head as a module.
    are_selected = computes_few(loaded, len(ids)) and logits.shape[0] == len(logit_positions)
    rows = (logits if are_selected else logits[list(logit_positions)]).to("cpu", torch.float32)
    likeliest = rows.topk(min(TOP_K, rows.shape[-1])).indices.tolist()
    token_ids = sorted({*(ids[i] for i in logit_positions), *(token_id for top in likeliest for token_id in top)})
    readable = dict(zip(token_ids, vocabulary_names(loaded.tokenizer, token_ids), strict=True))
    return tuple(
        Prediction(
            i,
            readable[ids[i]],
            row.clone(),
            tuple(top),
            tuple(readable[token_id] for token_id in top),
            is_masked_lm(loaded),
        )
        for i, row, top in zip(logit_positions, rows, likeliest, strict=True)
    )


def _class_prediction(
    model_inputs: Mapping[str, Tensor], model_output: Any, names: Sequence[ClassName]
) -> tuple[Prediction, ...]:
    logits = model_output.get("logits")
    if not isinstance(logits, Tensor) or logits.shape != (1, len(names)):
        return ()
    row = logits[0].detach().to("cpu", torch.float32)
    top = row.argsort(descending=True, stable=True)[:TOP_K].tolist()
    first = model_inputs.tokens(None)[0][0] if isinstance(model_inputs, MediumInputs) else ""
    likeliest = tuple(names[index] for index in top)
    return (Prediction(0, first, row.clone(), tuple(top), likeliest, fills_mask=True, classifies=True),)


def _all_logits(model_output: Any) -> Any:
    return model_output.get("logits", model_output.get("prediction_logits"))


def one_number(result: Any) -> Tensor:
    """What the user's own metric returned, as a tensor without axes in float64, with its gradient.

    Raises:
        ConfigError: it is not one number.
    """
    if isinstance(result, Real):
        return torch.tensor(float(result), dtype=torch.float64)
    if isinstance(result, Tensor) and result.ndim == 0 and not result.is_complex():
        return result.to("cpu", torch.float64)
    got = f"a tensor {[*result.shape]}" if isinstance(result, Tensor) else repr(result)[:40]
    raise ConfigError(
        f"A metric returns one number, as a float or a tensor without axes; got {got}: index it, or take its mean or sum."
    )


def logits_at_positions(model_output: Any, positions: Sequence[int]) -> Tensor:
    """The logits of every text of a batch at positions, which may be the only ones that have some, [text position token] in float64."""
    logits = _all_logits(model_output)
    rows: Tensor = logits if logits.shape[1] == len(positions) else logits[:, list(positions)]
    return rows.cpu().double()


def logits_of(model_output: Any) -> Tensor | None:
    """The logits [position vocabulary] of a forward pass; None if it has none."""
    logits = _all_logits(model_output)
    return logits[0].detach() if isinstance(logits, Tensor) and logits.ndim == 3 else None


def last_vectors(model_output: Any) -> Tensor | None:
    """The last vector of every token, [pos d_model], from a model without a head; None if it returns none."""
    last = model_output.get("last_hidden_state")
    return last[0].detach().to("cpu", torch.float32) if isinstance(last, Tensor) and last.ndim == 3 else None


def no_prediction_reason(loaded: LoadedModel, logit_positions: Sequence[int]) -> str:
    """Why there are no predictions, in a sentence; empty if there are some."""
    if logit_positions or class_names(loaded):
        return ""
    if not vocabulary_size(loaded):
        if loaded.reader is not None:
            return f"{loaded.name} predicts no tokens: it computes {loaded.reader.computes}."
        if "Classification" in type(loaded.model).__name__:
            return f"{loaded.name} predicts a class of the whole input, and no token."
        return f"{loaded.name} has no language-model head: it computes a vector for every token, and predicts none."
    mask = loaded.tokenizer.mask_token
    if mask is None:
        return f"{loaded.name} fills masks, but its tokenizer has no mask token: choose a position to read a prediction at."
    return f"{loaded.name} fills masks: write {mask} in the text where it should predict a token."


def logit_factor(config: Any) -> Callable[[Tensor], Tensor]:
    """Returns the factors from products of a vector and tokens' rows to the logits: multipliers, and a softcap frozen at its value."""
    cap, multiplier, divisor = (
        getattr(config, name, None) for name in ("final_logit_softcapping", "logit_scale", "logits_scaling")
    )
    factor = (multiplier or 1.0) / (divisor or 1.0)

    def factors(products: Tensor) -> Tensor:
        scaled = products * factor
        if not cap:
            return torch.full_like(products, factor)
        return factor * torch.where(
            scaled == 0, 1.0, cap * torch.tanh(scaled / cap) / torch.where(scaled == 0, 1.0, scaled)
        )

    return factors


def parse_token(loaded: LoadedModel, text: str) -> tuple[int, str]:
    """The id and the readable form of the token that a user typed, with the blank before it if that is a token; or of a class.

    Raises:
        TextError: the text is several tokens, or none, or no class.
    """
    if loaded.tokenizer is None:
        return _parse_class(loaded, text)
    raw = text.replace("·", " ").replace("⏎", "\n")
    candidates = [raw] if raw != text or raw[:1].isspace() else [f" {raw}", raw]
    ids: list[int] = []
    for candidate in candidates if raw else ():
        ids = loaded.tokenizer(candidate, add_special_tokens=False)["input_ids"]
        if len(ids) == 1:
            return ids[0], readable_tokens(loaded.tokenizer, ids)[0]
    if not ids:
        raise TextError("A target is one token of the model; got nothing: type one, such as ·copper, or pick one.")
    pieces = " ".join(readable_tokens(loaded.tokenizer, ids[:5]))
    raise TextError(
        f"A target is one token of the model; {text[:40]!r} is {len(ids)}, {pieces}: type one of them, · for a blank before it."
    )


def _parse_class(loaded: LoadedModel, text: str) -> tuple[int, str]:
    names = class_names(loaded)
    found = [index for index, name in enumerate(names) if text.strip().lower() in (name.lower(), f"{index}")]
    if not names:
        raise TextError(
            f"{loaded.name} reads no text and predicts no tokens; got {text[:40]!r}: choose a language model."
        )
    if not found:
        listed = ", ".join(names[:3]) + ", …" * (len(names) > 3)
        raise TextError(
            f"A target is one of the {len(names):,} classes of {loaded.name}, such as {listed}, or its number; got {text[:40]!r}: type one of them."
        )
    return found[0], names[found[0]]


def _language_model_head(model: Any) -> Module | None:
    head: Module | None = model.get_output_embeddings()
    return head if getattr(head, "weight", None) is not None else None


def _select_positions(_: Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    selected = _POSITIONS.get()
    if selected is None or not args or args[0].ndim != 3:
        return None
    return args[0][:, list(selected)], *args[1:]


@dataclass(frozen=True)
class Measurement:
    """What a run measures."""

    # Of the prediction. Without a language-model head, of the vector that is compared; None: all vectors.
    position: int | None = None
    # The token, or the class, whose log-probability is measured; None without a language-model head and classes.
    target: int | None = None
    distractor: int | None = None  # if set, the logit of the target minus the logit of this token is measured instead
    # The user's own function of the logits [query_pos vocabulary] at `positions`, which are all; of a classifier [class].
    function: Callable[..., Any] | None = None
    positions: tuple[int, ...] = ()

    @property
    def logit_positions(self) -> tuple[int, ...]:
        """The positions at which logits are computed."""
        return (
            self.positions
            if self.function
            else ()
            if self.target is None or self.position is None
            else (self.position,)
        )

    def read(self, model_output: Any) -> Tensor:
        """For every text of a batch the measured value, [text] in float64: for vectors, the cosine with those of the first text."""
        if self.function is not None:
            logits_of_texts = _all_logits(model_output).to("cpu", torch.float32)
            return torch.stack([one_number(self.function(logits)) for logits in logits_of_texts])
        if self.target is None:
            if "last_hidden_state" not in model_output:
                raise ConfigError(
                    "A change is measured at a logit of a token or at the last vectors, and this model gives neither: "
                    "choose the same model without its classifier, such as AutoModel gives it, with one tower."
                )
            last = model_output["last_hidden_state"].cpu().double()
            cosine = torch.cosine_similarity(last, last[:1], dim=-1)
            # Clamped, since rounding can give more than 1 for equal vectors.
            selected: Tensor = (cosine.mean(-1) if self.position is None else cosine[:, self.position]).clamp_max(1)
            return selected
        logits = _all_logits(model_output)
        of_classes = logits.ndim == 2
        row = logits.cpu().double() if of_classes else logits_at_positions(model_output, (self.position or 0,))[:, 0]
        if self.distractor is not None:
            difference: Tensor = row[:, self.target] - row[:, self.distractor]
            return difference
        log_probabilities: Tensor = row.log_softmax(-1)[:, self.target]
        return log_probabilities
