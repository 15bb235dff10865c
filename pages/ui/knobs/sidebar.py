"""The sidebar: which source the numbers come from, and its knobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import File, Notebook, Source
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice, Range
from attention.sources import link
from attention.sources.divisors import Divisors
from attention.sources.knobs import SEQUENCE, SOURCE
from attention.sources.reading.matrix import Matrix, Stack
from pages.ui.knobs import continued, files
from pages.ui.knobs.matrices import matrices
from pages.ui.knobs.table import KNOBS, LIMITS
from pages.ui.knobs.texts import forget_uploads
from pages.ui.knobs.widgets import Knobs, standing
from pages.ui.notes import Notes


class Sidebar:
    """Draws the widget of each knob that a source asks for, in the fold where it belongs; what needs more room stands in `wide`."""

    limits = LIMITS

    def __init__(self, notes: Notes, wide: DeltaGenerator) -> None:
        self.knobs = Knobs(notes)
        self._wide = wide
        self._folds: dict[str, DeltaGenerator] = {}

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """What the widget stands at, or what a hand has made of the knob where it has none."""
        if not knob.fold or self.knobs.locked:
            value = self.knobs.value(knob, within, fixed)
            if knob == SOURCE and value != "matrices":
                forget_uploads()
            return value
        self._folds = self._folds or _folds(st.session_state[SOURCE.key])
        with self._folds[knob.fold]:
            value = self.knobs.value(knob, within, fixed)
        if isinstance(knob.range, Choice) and knob.range.words and value != knob.default:
            # Not in the fold: who opens a link sees at once what is other than usual.
            st.caption(f"**{knob.label}: {value}.** {knob.range.words[knob.range.options.index(value)]}")
        return value

    def standing(self, knob: Knob) -> str:
        """What the knob will be, as in a link."""
        return standing(knob.key)

    def divisor(self, knob: Knob, within: Divisors, fixed: str) -> int | None:
        """A number of heads: what was wished where it divides what it must, otherwise the next smaller that does, and it is said."""
        key, ours = knob.key, self.knobs.session
        there, waits = key in st.session_state, key in ours.asked_for
        now = st.session_state.get(key)
        wish = now if there and not waits else knob.default
        if there and not waits and ours.wishes.get(key, (None, wish))[1] == now:
            wish = ours.wishes.get(key, (wish, now))[0]
        fits = within.nearest(wish)
        said = within.settled(wish) if wish is not None and wish != fits else ""
        if said and not there and not standing(key) and not fixed:
            self.knobs.notes.keep(said)
        elif there and now != fits and not waits:
            st.session_state[key] = fits
            if said:
                st.toast(said, duration="long")
        found: int | None = self.knob(knob, within, fixed)
        ours.wishes[key] = (wish if found == fits else found, found)
        return found

    def sequence(self, names: Sequence[str]) -> int:
        """Which of several sequences is shown; a widget only where there is more than one."""
        if len(names) > 1:
            read = tuple(f"{i}: {name}" if name else str(i) for i, name in enumerate(names))
            return int(self.knob(SEQUENCE, Choice(tuple(range(len(names))), read)))
        asked = self.knobs.session.asked_for.pop(SEQUENCE.key, None)
        if SEQUENCE.key not in st.session_state:
            for note in link.only_one(asked):
                self.knobs.notes.keep(note)
        st.session_state.pop(SEQUENCE.key, None)
        return 0

    def matrices(self, names: Sequence[str]) -> dict[str, Matrix | Stack]:
        """The person's own matrices, as their editor has them."""
        with self._wide:
            return matrices(self.knobs, names)

    def file(self, knob: Knob) -> File:
        """The file that was uploaded here, if it is the one that the address names."""
        return files.file(self.knobs, self.knobs.value(knob), self._wide)


def _folds(chosen: str) -> dict[str, DeltaGenerator]:
    """The parts of the sidebar that are folded away; one of a single knob is unfolded where that is turned."""
    folded = [one for one in KNOBS.values() if one.fold and chosen in one.sources]
    found = {
        fold: [one.key for one in folded if one.fold == fold] for fold in dict.fromkeys(one.fold for one in folded)
    }
    return {
        fold: st.expander(fold, expanded=len(keys) == 1 and bool(standing(keys[0]))) for fold, keys in found.items()
    }


def source(notes: Notes, wide: DeltaGenerator) -> Source:
    """The knobs of the sidebar, and the source they describe.

    Raises:
        AttentionError: the knobs contradict each other, or a matrix cannot be read.
    """
    sidebar = Sidebar(notes, wide)
    found = link.source(sidebar)
    if isinstance(found, Notebook) and not sidebar.knobs.locked:
        continued.offer(found)
    return found
