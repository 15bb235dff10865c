"""The sidebar: the source of the numbers and its knobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import File, Source
from attention.base.knobs import Choice, Knob, Range
from attention.files.matrix import Matrix, Stack
from attention.files.picture import Picture
from attention.sources import link
from attention.sources.layer_knobs import SEQUENCE, TEXT, single_sequence_notes
from attention.sources.reader import Divisors
from attention.sources.registry import SOURCE
from attention.vision.examples import PictureNames
from pages.ui.features import panels
from pages.ui.server.limits import LIMITS
from pages.ui.state import uploaded_file
from pages.ui.state.knob_table import KNOBS
from pages.ui.state.matrices import forget_uploads, matrices
from pages.ui.state.notices import Notes
from pages.ui.state.widgets import Knobs, standing
from pages.ui.vision.picture_field import picture_field


class Sidebar:
    """A knob reader that draws the widget of each knob a source reads, in its expander; large editors go to `wide`."""

    limits = LIMITS

    def __init__(self, notes: Notes, wide: DeltaGenerator) -> None:
        self.knobs = Knobs(notes)
        self._wide = wide
        self._folds: dict[str, DeltaGenerator] = {}

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The value of the knob. Draws its widget if it has one."""
        if not knob.section or self.knobs.locked:
            value = self.knobs.value(knob, within, fixed)
            if knob == TEXT and not self.knobs.locked and standing(SOURCE.key) != "model" and "\n" in value.strip():
                st.caption("Each line is a sequence of its own.")
            if knob == SOURCE and value != "matrices":
                forget_uploads()
            return value
        self._folds = self._folds or _folds(st.session_state[SOURCE.key])
        with self._folds[knob.section]:
            value = self.knobs.value(knob, within, fixed)
        if isinstance(knob.range, Choice) and knob.range.words and value != knob.default:
            # Outside the expander, so that users who open a link see at once what differs from the default.
            st.caption(f"**{knob.label}: {value}.** {knob.range.words[knob.range.options.index(value)]}")
        return value

    def raw_value(self, knob: Knob) -> str:
        """The URL value of the knob before it is read."""
        return standing(knob.key)

    def divisor(self, knob: Knob, within: Divisors, fixed: str) -> int | None:
        """A number of heads: the requested one, or the next smaller divisor, which a message then announces."""
        key, ours = knob.key, self.knobs.session
        has_widget, is_requested = key in st.session_state, key in ours.requested
        current = st.session_state.get(key)
        wish = current if has_widget and not is_requested else knob.default
        if has_widget and not is_requested and ours.requested_heads.get(key, (None, wish))[1] == current:
            wish = ours.requested_heads.get(key, (wish, current))[0]
        nearest = within.nearest(wish)
        message = within.adjusted_note(wish) if wish is not None and wish != nearest else ""
        if message and not has_widget and not standing(key) and not fixed:
            self.knobs.notes.warn(message)
        elif has_widget and current != nearest and not is_requested:
            st.session_state[key] = nearest
            if message:
                st.toast(message, duration="long")
        value: int | None = self.knob(knob, within, fixed)
        ours.requested_heads[key] = (wish if value == nearest else value, value)
        return value

    def sequence(self, names: Sequence[str]) -> int:
        """The index of the chosen sequence. Draws a widget if there is more than one."""
        if len(names) > 1:
            labels = tuple(f"{i}: {name}" if name else str(i) for i, name in enumerate(names))
            return int(self.knob(SEQUENCE, Choice(tuple(range(len(names))), labels)))
        requested = self.knobs.session.requested.pop(SEQUENCE.key, None)
        if SEQUENCE.key not in st.session_state:
            for note in single_sequence_notes(requested):
                self.knobs.notes.warn(note)
        st.session_state.pop(SEQUENCE.key, None)
        return 0

    def matrices(self, names: Sequence[str]) -> dict[str, Matrix | Stack]:
        """The user's own matrices. Draws their editor."""
        with self._wide:
            return matrices(self.knobs, names)

    def file(self, knob: Knob) -> File:
        """The uploaded file, if it is the one that the address names. Draws its upload field."""
        return uploaded_file.attention_file(self.knobs, self.knobs.value(knob), self._wide)

    def pictures(self, knob: Knob, within: PictureNames) -> tuple[Picture, ...]:
        """The pictures that the address names: of ours, or uploaded ones. Draws their fields."""
        names = self.knobs.value(knob, within)
        return picture_field(names, within, knob.key, wide=self._wide, locked=self.knobs.locked)


def _folds(chosen: str) -> dict[str, DeltaGenerator]:
    """The expanders of the sidebar. One with a single knob is open if that knob has a value."""
    folded = [knob for knob in KNOBS.values() if knob.section and chosen in knob.sources]
    titles = dict.fromkeys(knob.section for knob in folded)
    keys_by_title = {title: [knob.key for knob in folded if knob.section == title] for title in titles}
    return {
        title: st.expander(title, expanded=len(keys) == 1 and bool(standing(keys[0])))
        for title, keys in keys_by_title.items()
    }


def source(notes: Notes, wide: DeltaGenerator) -> Source:
    """The source that the knobs describe. Draws the sidebar's knobs.

    Raises:
        AttentionError: the knobs contradict each other, or a matrix cannot be read.
    """
    sidebar = Sidebar(notes, wide)
    chosen = link.read_source(sidebar)
    for feature in panels():
        feature.below_source(chosen)
    if isinstance(chosen, File) and not sidebar.knobs.locked:
        uploaded_file.show_plan(chosen)
    return chosen
