"""Sounds of ours, drawn by code: a link that names one opens without an upload, and nobody needs a licence."""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from typing import NamedTuple

from attention.base.errors import FileError
from attention.sound.sound_file import Sound

RATE = 16_000
"""Samples in a second of the sounds of ours."""
EXAMPLES = {
    "rising-tones": "eight tones that rise, each a third of a second, with silence between them",
    "call-and-answer": "three high tones and three low ones, twice",
    "odd-tone": "twelve equal tones, of which the eighth is higher",
}
"""What each sound has, by its name."""

_FADE = 0.01  # seconds, so that no tone begins with a click


class _Tone(NamedTuple):
    hertz: float
    seconds: float


def _rising() -> list[_Tone]:
    scale = (262, 294, 330, 349, 392, 440, 494, 523)  # from C4 to C5, in whole hertz
    return [each for hertz in scale for each in (_Tone(2 * hertz, 0.3), _Tone(0, 0.1))]


def _call_and_answer() -> list[_Tone]:
    call, answer = ([_Tone(hertz, 0.15), _Tone(0, 0.05)] * 3 + [_Tone(0, 0.2)] for hertz in (1760, 440))
    return (call + answer) * 2


def _odd_tone() -> list[_Tone]:
    return [each for index in range(12) for each in (_Tone(1320 if index == 7 else 880, 0.12), _Tone(0, 0.13))]


_MELODIES = {"rising-tones": _rising, "call-and-answer": _call_and_answer, "odd-tone": _odd_tone}


@cache
def example_sound(name: str) -> Sound:
    """The sound of this name, one of `EXAMPLES`: tones with one overtone, and silence.

    Raises:
        FileError: there is no such sound.
    """
    import numpy as np

    if name not in _MELODIES:
        raise FileError(f"An example sound is one of {', '.join(EXAMPLES)}; got {name[:40]!r}: choose one of them.")
    tones = _MELODIES[name]()
    ends = [round(end * RATE) for end in accumulate(tone.seconds for tone in tones)]
    samples = np.zeros(ends[-1])
    for tone, first, end in zip(tones, [0, *ends], ends, strict=False):
        if tone.hertz:
            time = np.arange(end - first) / RATE
            fade = np.clip(np.minimum(time, time[::-1]) / _FADE, 0, 1)
            wave = np.sin(2 * np.pi * tone.hertz * time) + np.sin(4 * np.pi * tone.hertz * time) / 4
            samples[first:end] = fade * wave / 2
    # Rounded as a file of 16 bit would be: the same on every machine.
    return Sound.of(((samples * 2**15).round() / 2**15, RATE))
