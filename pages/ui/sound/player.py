"""A player for the seconds of a sound that the chosen query stands for, and one for those of the chosen key; for a word, those in which it was said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from attention import Model
from attention.base.errors import ConfigError, MissingError
from attention.base.tokens import isolated
from attention.pictures.view import KEY, QUERY
from attention.sound import SoundPlace, alignment_heads, word_times
from attention.sound.sound_file import Sound
from pages.ui.state import knob_state

if TYPE_CHECKING:
    from pages.ui.page.start import Page

_WIDTH = 260  # pixels
_LONGEST = 40  # characters of a word


def players(page: Page) -> None:
    """Draws them, if the source has the sound: that of an uploaded trace has not."""
    given = page.source.given if isinstance(page.source, Model) else ()
    sound = next((each for each in given if isinstance(each, Sound)), None)
    if sound is None:
        return
    layer, chosen, times = page.layer, dict[SoundPlace, list[str]](), _word_times(page)
    for side, knob, tokens in (("query", QUERY, layer.tokens), ("key", KEY, layer.key_tokens)):
        at = int(knob_state.current_value(knob.key))
        place = getattr(tokens[at], "place", None) if at < len(tokens) else None
        if isinstance(place, SoundPlace):
            chosen.setdefault(place, []).append(f"the {side}")
        elif len(tokens) == len(times) and (time := times[at]) is not None:
            chosen.setdefault(time, []).append(f"“{isolated(str(tokens[at]).strip('·')[:_LONGEST])}”")
    with st.container(horizontal=True, vertical_alignment="center", key="sound_players"):
        for place, sides in chosen.items():
            _player(sound, place, " and ".join(dict.fromkeys(sides)))
    if any(time in chosen for time in times if time is not None):
        heads = ", ".join(f"{number}.{head}" for number, head in alignment_heads(page.trace))
        st.caption(
            f"When a word was said is read off the weights of cross-attention, in heads {heads} (layer.head), as Whisper's own alignment does."
        )


def _player(sound: Sound, place: SoundPlace, side: str) -> None:
    heard = sound.heard(place.start, place.stop)
    if heard is None:
        st.caption(
            f"{side[0].upper()}{side[1:]} is after the end of the sound, where the model reads zeros.", width="content"
        )
        return
    start, stop, wav = heard
    st.caption(f"Hear {side}, {start:.2f}–{stop:.2f} s", width="content", help="With 0.1 s of the sound before and after it.")  # fmt: skip
    st.audio(wav, format="audio/wav", width=_WIDTH)


def _word_times(page: Page) -> tuple[SoundPlace | None, ...]:
    """When each word of a decoder was said; empty for a model without one."""
    try:
        return word_times(page.trace)
    except MissingError:
        return ()
    except ConfigError as error:  # in a file of the model
        st.caption(str(error))
        return ()
