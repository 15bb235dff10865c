"""What a model says: the logits of its language-model head, at the positions that are asked for and no others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from torch import Tensor

from attention.errors import ConfigError, TextError
from attention.formula.prediction import LIKELIEST, Prediction
from attention.models.pieces import readable

if TYPE_CHECKING:
    from torch.nn import Module

    from attention.models.loaded import Loaded

MOST = 40
"""Positions that can be asked for at once: each has a logit for every token of the vocabulary."""

_ASKED: ContextVar[tuple[int, ...] | None] = ContextVar("asked", default=None)


def watch(model: Any) -> None:
    """From now on the head of a model is given the vectors at the positions that are `asked` alone: a text times a vocabulary is much."""
    head = _head(model)
    if head is not None:
        head.register_forward_pre_hook(_only_asked)


@contextmanager
def asked(positions: Sequence[int]) -> Iterator[None]:
    """While it lasts, forward passes in this thread give logits at these positions, in their order."""
    token = _ASKED.set(tuple(positions))
    try:
        yield
    finally:
        _ASKED.reset(token)


def fills(loaded: Loaded) -> bool:
    """Whether a model with a head fills masks, and does not say what comes next."""
    return not loaded.model.can_generate()


def vocabulary(loaded: Loaded) -> int:
    """How many tokens a model can say; 0 where it has no language-model head."""
    weight = getattr(_head(loaded.model), "weight", None)
    return 0 if weight is None else len(weight)


def read_text(given: Mapping[str, Tensor]) -> list[int]:
    """The ids of the text that is predicted in: the decoder's, where there are two."""
    return [int(one) for one in [*given.values()][-1][0]]


def positions(
    loaded: Loaded, given: Mapping[str, Tensor], wanted: Sequence[int], generated: int = 0
) -> tuple[int, ...]:
    """Where a model is asked what it says: where it is `wanted`; otherwise at each mask, or at the end of the text.

    With the last `generated` tokens said by the model itself, also where each of them was said.

    Raises:
        ConfigError: there is no such position, or there are too many.
    """
    if not vocabulary(loaded):
        return ()
    ids = read_text(given)
    if bad := [one for one in wanted if not 0 <= one < len(ids)]:
        raise ConfigError(
            f"A prediction is read at a token from 0 to {len(ids) - 1}, as the text has {len(ids)}; got {bad[0]}: choose one of these."
        )
    found = tuple(wanted)
    if not found and fills(loaded):
        found = tuple(at for at, one in enumerate(ids) if one == loaded.tokenizer.mask_token_id)
    elif not found:
        found = tuple(range(len(ids) - 1 - generated, len(ids)))
    if len(found) > MOST:
        raise ConfigError(f"Predictions are read at up to {MOST} positions at once; got {len(found)}: choose fewer.")
    return found


def numbers(loaded: Loaded, given: Mapping[str, Tensor], wanted: Sequence[int], more: int = 0) -> int:
    """How many numbers of four bytes the predictions take, or the vectors of a model that makes none; `more` tokens will follow.

    Raises:
        ConfigError: as for `positions`.
    """
    if not vocabulary(loaded):
        return len(read_text(given)) * int(getattr(loaded.model.config, "hidden_size", 0) or 0)
    many = len(wanted) or len(positions(loaded, given, ())) + more
    return many * vocabulary(loaded) * 3


def predictions(loaded: Loaded, given: Mapping[str, Tensor], found: Any, at: Sequence[int]) -> tuple[Prediction, ...]:
    """What a forward pass, made with `at` the positions `asked`, says at each of them, the likeliest tokens by name."""
    logits = logits_of(found)
    if not at or logits is None:
        return ()
    ids = read_text(given)
    rows = logits if logits.shape[0] == len(at) else logits[list(at)]  # a family whose head is none of its parts
    best = rows.topk(min(LIKELIEST, rows.shape[-1])).indices.tolist()
    wanted = sorted({*(ids[one] for one in at), *(one for top in best for one in top)})
    names = dict(zip(wanted, readable(loaded.tokenizer, wanted), strict=True))
    return tuple(
        Prediction(place, names[ids[place]], row.clone(), tuple(top), tuple(names[one] for one in top), fills(loaded))
        for place, row, top in zip(at, rows, best, strict=True)
    )


def logits_of(found: Any) -> Tensor | None:
    """The logits of a forward pass, [position vocabulary]; None where there are none."""
    logits = found.get("logits", found.get("prediction_logits"))
    return logits[0].detach() if isinstance(logits, Tensor) and logits.ndim == 3 else None


def vectors(found: Any) -> Tensor | None:
    """The last vector of every token, [pos d_model], of a model without a head; None where it gives none."""
    last = found.get("last_hidden_state")
    return last[0].detach() if isinstance(last, Tensor) and last.ndim == 3 else None


def why_not(loaded: Loaded, at: Sequence[int]) -> str:
    """Why there are no predictions, in a sentence; empty where there are some."""
    if at:
        return ""
    if not vocabulary(loaded):
        return f"{loaded.name} has no language-model head: it makes a vector of every token, and predicts none."
    mask = loaded.tokenizer.mask_token
    if mask is None:
        return f"{loaded.name} fills masks, and its tokenizer has no token for one: choose a position to read a prediction at."
    return f"{loaded.name} fills masks: write {mask} in the text where it is to say a word."


def token(loaded: Loaded, text: str) -> tuple[int, str]:
    """The one token that a person means: its id, and how it is read. A word is taken with the blank before it where that is a token.

    Raises:
        TextError: it is several tokens, or none.
    """
    written = text.replace("·", " ").replace("⏎", "\n")
    ways = [written] if written != text or written[:1].isspace() else [f" {written}", written]
    pieces: list[int] = []
    for one in ways if written else ():
        pieces = loaded.tokenizer(one, add_special_tokens=False)["input_ids"]
        if len(pieces) == 1:
            return pieces[0], readable(loaded.tokenizer, pieces)[0]
    if not pieces:
        raise TextError("A target is one token of the model; got nothing: type one, such as ·copper, or pick one.")
    cut = " ".join(readable(loaded.tokenizer, pieces[:5]))
    raise TextError(
        f"A target is one token of the model; {text[:40]!r} is {len(pieces)}, {cut}: type one of them, · for a blank before it."
    )


def _head(model: Any) -> Module | None:
    head: Module | None = model.get_output_embeddings()
    return head if getattr(head, "weight", None) is not None else None


def _only_asked(_: Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    where = _ASKED.get()
    if where is None or not args or args[0].ndim != 3:
        return None
    return args[0][:, list(where)], *args[1:]
