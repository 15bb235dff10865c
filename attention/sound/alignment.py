"""When each word was said: the rows of cross-attention, aligned with the time of the sound.

The method is that of the code beside Radford et al. 2023, "Robust Speech Recognition via Large-Scale Weak Supervision": `timing.py` of
https://github.com/openai/whisper; the alignment itself is that of Sakoe and Chiba 1978, "Dynamic programming algorithm optimization for spoken word
recognition".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from attention.base.errors import ConfigError, MissingError
from attention.formula.names import WEIGHTS
from attention.metrics.patterns import is_special
from attention.sound.places import PADDING, SoundPlace

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attention.trace.layer import Layer
    from attention.trace.trace import Trace

_CROSS = re.compile(r"cross (\d{1,4})")  # the names of these layers
_MEDIAN = 7  # tokens of the sound, an odd number


def alignment_heads(trace: Trace) -> tuple[tuple[int, int], ...]:
    """The heads of cross-attention that follow the sound, as (layer, head): those that the model's generation config names.

    Without these, as in a trace from a file: all heads of the second half of the layers, as openai/whisper has it for a model of which none are known.

    Raises:
        MissingError: the trace has no cross-attention over a sound.
        ConfigError: the generation config names something else.
    """
    layers = _cross_layers(trace)
    if trace.model_run is not None:
        config = getattr(trace.model_run.source.load().model, "generation_config", None)
        if named := getattr(config, "alignment_heads", None):
            try:
                return tuple(dict.fromkeys((int(layer), int(head)) for layer, head in named))
            except (TypeError, ValueError) as error:
                raise ConfigError(
                    f"alignment_heads of a generation config are pairs of a layer and a head; got {str(named)[:60]!r}: give heads, such as [(0, 0)]."
                ) from error
    later = [layer for layer in layers if 2 * layer >= len(layers)]
    return tuple((layer, head) for layer in later for head in range(layers[layer].n_heads))


def word_times(trace: Trace, heads: Sequence[tuple[int, int]] | None = None) -> tuple[SoundPlace | None, ...]:
    """When each token of the decoder was said, by query_pos of cross-attention; None for special tokens before and after the words.

    A token is said in the frames of the row that predicts it, which is that of the token before. The weights of each head are made comparable
    between frames (minus their mean over the rows, divided by their standard deviation), smoothed by a median over time, and averaged; then each row
    gets the frames of the path through rows and frames, forward in both, with the largest sum. Padding after the sound is left out.

    Args:
        trace: of a model whose decoder attends to a sound, such as Whisper.
        heads: pairs of a layer of the decoder and a head; None: `alignment_heads`.

    Raises:
        MissingError: the trace has no cross-attention over a sound.
        ConfigError: there is no such head.
    """
    import torch

    layers = _cross_layers(trace)
    first = next(iter(layers.values()))
    chosen = alignment_heads(trace) if heads is None else tuple(heads)
    wrong = [(layer, head) for layer, head in chosen if layer not in layers or not 0 <= head < layers[layer].n_heads]
    if wrong or not chosen:
        raise ConfigError(
            f"Heads are pairs of a layer and a head of cross-attention, of {len(layers)} layers with {first.n_heads} heads; "
            f"got {wrong[0] if wrong else 'none'}: choose others, such as (0, 0)."
        )
    words = [position for position, token in enumerate(first.tokens) if not is_special(token)]
    n_frames = sum(not token.endswith(PADDING) for token in first.key_tokens)
    times: list[SoundPlace | None] = [None] * len(first.tokens)
    if not words or not words[0] or not n_frames:
        return tuple(times)
    rows = slice(words[0] - 1, words[-1] + 1)
    mean = sum(
        (smoothed(layers[layer].matrix(WEIGHTS, head)[rows, :n_frames]) for layer, head in chosen), torch.zeros(())
    ) / len(chosen)
    frames = [_place(token) for token in first.key_tokens[:n_frames]]
    starts = [frames[frame].start for frame in first_frames(mean.double().numpy())]
    for position, (start, stop) in zip(range(words[0], words[-1] + 1), pairwise(starts), strict=True):
        times[position] = SoundPlace(start, stop)
    return tuple(times)


def smoothed(weights: Tensor) -> Tensor:
    """Weights of one head [query_pos key_pos], comparable between keys and smoothed over them; 0 at a key that all queries see alike."""
    from torch.nn.functional import pad

    deviation = weights.std(dim=0, unbiased=False)
    normal = ((weights - weights.mean(dim=0)) / deviation).where(deviation > 0, 0)
    around = _MEDIAN // 2
    if normal.shape[1] <= around:
        return normal
    windows = pad(normal[None], (around, around), mode="reflect")[0].unfold(1, _MEDIAN, 1)
    return windows.median(dim=-1).values


def first_frames(gains: NDArray[np.float64]) -> list[int]:
    """The first column of each row on the path with the largest sum of gains [row column].

    A path goes from the first row and column to the last, and each of its steps to the next row, the next column, or both. Of equal sums, one that
    goes on in its row is taken.
    """
    import numpy as np

    n_rows, n_columns = gains.shape
    # With a row and a column before the first, from which no path comes but the beginning; in single precision, as where it comes from.
    cost = np.full((n_rows + 1, n_columns + 1), np.inf, np.float32)
    cost[0, 0] = 0
    came_from = np.empty((n_rows + 1, n_columns + 1), np.int8)
    steps = np.array([[0, 1], [1, 1], [1, 0]])  # the same row, both, the same column
    for diagonal in range(n_rows + n_columns - 1):  # its cells do not depend on each other
        rows = np.arange(max(0, diagonal - n_columns + 1), min(n_rows, diagonal + 1)) + 1
        columns = diagonal + 2 - rows
        before = np.stack([cost[rows - down, columns - right] for down, right in steps])
        came_from[rows, columns] = best = before.argmin(axis=0)
        cost[rows, columns] = before[best, np.arange(len(rows))] - gains[rows - 1, columns - 1]
    first, row, column = [0] * n_rows, n_rows, n_columns
    while row:
        first[row - 1] = int(column) - 1
        down, right = steps[came_from[row, column]]
        row, column = row - down, column - right
    return first


def _cross_layers(trace: Trace) -> dict[int, Layer]:
    """The layers in which a decoder attends to a sound, by the number of the layer."""
    found = {
        int(number[1]): layer
        for layer in trace.layers
        if (number := _CROSS.fullmatch(layer.name))
        and layer.has(WEIGHTS)
        and all(isinstance(_place(token), SoundPlace) for token in layer.key_tokens)
    }
    if not found:
        raise MissingError(
            "The time of a word is read off cross-attention from words to a sound, which this trace does not have: "
            "choose a model with an encoder of sound and a decoder of text, such as Whisper."
        )
    return found


def _place(token: str) -> Any:
    return getattr(token, "place", None)
