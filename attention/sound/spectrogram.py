"""A sound as a picture: the log-mel spectrogram of its samples, or that which a model reads; quiet is white, loud is dark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import float32, uint8
    from numpy.typing import NDArray

N_MELS = 80
_DECIBELS = 80  # below the loudest cell, which are white
_SILENT = -100  # decibels, the smallest energy
_WINDOW = 0.025  # seconds that a column is computed from, or as many as it stands for
_LONGEST = 2**12  # samples that a column is computed from
_COLUMNS = 2**9  # that are computed at a time


def of_samples(samples: NDArray[float32], rate: int, first: float, hop: int, n_columns: int) -> NDArray[uint8]:
    """Red, green and blue of the spectrogram of samples [time], [mel column 3]; the highest frequency is at the top.

    Args:
        samples: of the sound.
        rate: of the samples.
        first: the sample at the left end.
        hop: how many samples a column stands for; it is computed from 25 ms around them, with silence before and after the sound.
        n_columns: how many columns there are.
    """
    import numpy as np
    from transformers.audio_utils import mel_filter_bank, window_function

    length = max(round(_WINDOW * rate), min(hop, _LONGEST))
    n_fft = 1 << (length - 1).bit_length()
    window = window_function(length, "hann")
    filters = mel_filter_bank(
        n_fft // 2 + 1, N_MELS, 20, rate / 2, rate, mel_scale="kaldi", triangularize_in_mel_space=True
    )
    power = np.empty((N_MELS, n_columns))
    for begin in range(0, n_columns, _COLUMNS):
        columns = np.arange(begin, min(begin + _COLUMNS, n_columns))
        places = round(first + hop / 2 - length / 2) + hop * columns[:, None] + np.arange(length)
        is_in_sound = (places >= 0) & (places < len(samples))
        cut = np.where(is_in_sound, samples[places.clip(0, len(samples) - 1)], 0) * window
        power[:, columns] = filters.T @ (np.abs(np.fft.rfft(cut, n_fft)) ** 2).T
    return of_energies(10 * np.log10(np.maximum(power, 10 ** (_SILENT / 10))))


def of_energies(decibels: NDArray[Any]) -> NDArray[uint8]:
    """Red, green and blue of energies in decibels [mel time], [mel time 3]; the highest frequency is at the top."""
    import numpy as np

    loudest = max(float(decibels.max()), _SILENT + _DECIBELS)
    loud = 1 - np.clip((loudest - decibels) / _DECIBELS, 0, 1)
    grey = np.round(255 * (1 - loud)).astype(np.uint8)[::-1]
    return np.repeat(grey[:, :, None], 3, axis=2)


def png(samples: NDArray[float32], rate: int, width: int) -> bytes:
    """A PNG file of the spectrogram of all samples [time], `width` pixels wide; of a long sound, of some milliseconds in each column."""
    from io import BytesIO

    from PIL import Image

    hop = max(1, -(-len(samples) // width))
    file = BytesIO()
    Image.fromarray(of_samples(samples, rate, 0, hop, -(-len(samples) // hop))).resize((width, N_MELS)).save(
        file, "PNG"
    )
    return file.getvalue()
