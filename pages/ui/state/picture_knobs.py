"""The knobs of a picture beside maps: its direction, and the strength of its colours."""

from __future__ import annotations

from attention.pictures.lab_maps import OverPicture
from pages.ui.state import knob_state
from pages.ui.state.knob_table import HEAT, OVER


def over_picture() -> OverPicture:
    """How a row or a column is drawn over a picture now, pending changes included."""
    return OverPicture(knob_state.current_value(OVER.key), knob_state.current_value(HEAT.key))
