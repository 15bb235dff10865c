"""A player for the seconds of a sound that the chosen query stands for, and one for those of the chosen key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from attention import Model
from attention.pictures.view import KEY, QUERY
from attention.sound.places import SoundPlace
from attention.sound.sound_file import Sound
from pages.ui.state import knob_state

if TYPE_CHECKING:
    from pages.ui.page.start import Page

_WIDTH = 260  # pixels


def players(page: Page) -> None:
    """Draws them, if the source has the sound: that of an uploaded trace has not."""
    given = page.source.given if isinstance(page.source, Model) else ()
    sound = next((each for each in given if isinstance(each, Sound)), None)
    if sound is None:
        return
    layer, chosen = page.layer, dict[SoundPlace, list[str]]()
    for side, knob, tokens in (("query", QUERY, layer.tokens), ("key", KEY, layer.key_tokens)):
        at = int(knob_state.current_value(knob.key))
        place = getattr(tokens[at], "place", None) if at < len(tokens) else None
        if isinstance(place, SoundPlace):
            chosen.setdefault(place, []).append(side)
    with st.container(horizontal=True, vertical_alignment="center", key="sound_players"):
        for place, sides in chosen.items():
            _player(sound, place, " and ".join(sides))


def _player(sound: Sound, place: SoundPlace, side: str) -> None:
    heard = sound.heard(place.start, place.stop)
    if heard is None:
        st.caption(f"The {side} is after the end of the sound, where the model reads zeros.", width="content")
        return
    start, stop, wav = heard
    st.caption(f"Hear the {side}, {start:.2f}–{stop:.2f} s", width="content", help="With 0.1 s of the sound before and after it.")  # fmt: skip
    st.audio(wav, format="audio/wav", width=_WIDTH)
