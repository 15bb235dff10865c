"""Circuits: what the chosen head writes, why it looks where it does, and which paths through the model matter."""

from __future__ import annotations

from pages.ui.circuits.copying import copying_section, relevance_section
from pages.ui.circuits.path_patching import paths_section
from pages.ui.circuits.prompts import prompt_set_section
from pages.ui.circuits.writes import score_terms_section, writes_section
from pages.ui.page.start import start
from pages.ui.state.widgets import Knobs

page = start("Circuits", "What the chosen head writes, and why it looks there: click a cell of a map.")
knobs = Knobs(page.notes)
writes_section(page, knobs)
score_terms_section(page, knobs)
copying_section(page, knobs)
paths_section(page, knobs)
prompt_set_section(page, knobs)
relevance_section(page, knobs)
page.end()
