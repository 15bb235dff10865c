"""What `Model.of` reads: a text, several texts, chat messages or tensors, as options of a `Model`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attention.errors import ConfigError, TextError

if TYPE_CHECKING:
    from torch import Tensor

    from attention.models.in_memory import ModelHandle

_FORMS = "text, texts, inputs and messages"
_MASK_OF = {"input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask"}
_DEFAULTS = ("token_type_ids", "position_ids")  # of tokenizers: read where they say what the model assumes anyway


def check_one_form(**forms: object) -> None:
    """Check that the input comes in exactly one form.

    Raises:
        ConfigError: there is none, or several.
    """
    present = [name for name, value in forms.items() if value is not None]
    if len(present) != 1:
        got = " and ".join(present) or "none"
        raise ConfigError(f"Model.of reads one of {_FORMS}; got {got}: give one of them.")


def text_list(texts: object) -> tuple[str, ...]:
    """Several texts.

    Raises:
        ConfigError: they are no list of texts.
    """
    items = tuple(texts) if isinstance(texts, Iterable) and not isinstance(texts, str) else (None,)
    if not items or not all(isinstance(item, str) for item in items):
        raise ConfigError("texts is a list with one text for each trace; got something else: give [text, text, …].")
    return items


def message_options(handle: ModelHandle, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The tokens of chat messages, by the template of the tokenizer; after a user's message the assistant's turn begins.

    Raises:
        TextError: the tokenizer has no template, or the template refuses the messages.
    """
    tokenizer = handle.tokenizer
    if not getattr(tokenizer, "chat_template", None):
        raise TextError(
            f"Messages need the chat template of the tokenizer, and that of {handle.name} has none: give text= instead, or set "
            "tokenizer.chat_template."
        )
    try:
        begins_answer = messages[-1]["role"] != "assistant"
        ids = tokenizer.apply_chat_template(
            list(messages), tokenize=True, add_generation_prompt=begins_answer, return_dict=True
        )["input_ids"]
    except Exception as error:  # a template is a program, and can raise anything
        message = " ".join(str(error).split())[:150]
        raise TextError(
            f'Messages are a list such as [{{"role": "user", "content": "…"}}]; the chat template fails with “{message}”: '
            "give the roles and fields that it knows."
        ) from error
    return _id_options(handle, {"input_ids": tuple(ids)}, "")


def tensor_options(handle: ModelHandle, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens of one row of tensors, as a tokenizer returns them; padding is left out.

    Raises:
        ConfigError: there are several rows, or tensors that cannot be read here.
    """
    if not isinstance(inputs, Mapping) or "input_ids" not in inputs:
        raise ConfigError(
            "inputs is a dict of tensors with input_ids, as tokenizer(text, return_tensors='pt') gives it; got something else: "
            "give input_ids, and attention_mask if there is padding."
        )
    tensors = {name: _row(name, value) for name, value in inputs.items() if value is not None}
    n_left_out, ids = 0, {}
    for name, mask_name in _MASK_OF.items():
        if name in tensors:
            ids[name] = _without_padding(tensors.pop(name), mask_name, tensors.pop(mask_name, None))
            n_left_out += len(_row(name, inputs[name])) - len(ids[name])
    for name, row in tensors.items():
        expected = range(len(row)) if name == "position_ids" else [0] * len(row)
        if name not in _DEFAULTS or row.tolist() != list(expected):
            raise ConfigError(
                f"inputs may have {', '.join(_MASK_OF)}, their attention masks, token_type_ids of 0 and position_ids from 0; got "
                f"{name}{' with other numbers' if name in _DEFAULTS else ''}: leave it out."
            )
    tokens = "padding token is" if n_left_out == 1 else "padding tokens are"
    note = f"{n_left_out} {tokens} left out: attention_mask hides them." if n_left_out else ""
    return _id_options(handle, ids, note)


def _id_options(handle: ModelHandle, ids: Mapping[str, tuple[int, ...]], note: str) -> dict[str, Any]:
    first, *_, last = (*ids.values(), *ids.values())
    if not first or not last:
        raise TextError(
            "The input needs at least one token; got none: give a text with words, or a mask that shows some."
        )
    # Only for people; an id that the model does not have is refused before it runs.
    first_text, last_text = (handle.tokenizer.decode([i for i in row if i >= 0]) for row in (first, last))
    return {
        "text": first_text,
        "text2": last_text if len(ids) > 1 else "",
        "input_ids": tuple(ids.items()),
        "note": note,
    }


def _row(name: str, value: Any) -> Tensor:
    """One row of whole numbers."""
    import torch

    try:
        tensor = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{name} is a tensor of whole numbers; got a {type(value).__name__}: give a tensor."
        ) from error
    if tensor.ndim == 2 and len(tensor) > 1:
        raise ConfigError(
            f"inputs has one row, [1 pos]; {name} has {len(tensor)}: give the texts as texts=[…], or the rows one after the other."
        )
    tensor = tensor if tensor.numel() else tensor.long()  # an empty list has no kind of number
    if tensor.is_floating_point() or tensor.is_complex() or tensor.ndim not in (1, 2):
        raise ConfigError(
            f"{name} is one row of whole numbers, [1 pos]; got {tensor.dtype} with the shape {list(tensor.shape)}: give token ids."
        )
    return tensor.flatten()


def _without_padding(ids: Tensor, mask_name: str, mask: Tensor | None) -> tuple[int, ...]:
    """The ids that the mask shows, which stand side by side."""
    if mask is None:
        return tuple(ids.tolist())
    shown = (mask != 0).nonzero()[:, 0].tolist()
    if len(mask) != len(ids) or shown != list(range(shown[0], shown[-1] + 1) if shown else ()):
        raise ConfigError(
            f"{mask_name} has a 1 for each token and a 0 for padding at one end; got {len(mask)} numbers for {len(ids)} tokens, with "
            f"{len(mask) - len(shown)} hidden: give the tokens without those in the middle."
        )
    return tuple(ids[shown].tolist())
