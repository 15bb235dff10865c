"""Training: how does attention come to mean something? A tiny model learns one task in front of you."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from attention import AttentionError
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice, Text, Whole, in_url
from attention.lessons.training import SEEDS as MANY
from attention.sources import knobs as declared
from attention.training import TASKS, Plan
from attention.training.plan import SEEDS
from attention.training.tasks import LONGEST_OWN
from pages.ui import film, show
from pages.ui.knobs import inputs
from pages.ui.knobs.session import acted, session
from pages.ui.knobs.widgets import Knobs, locked
from pages.ui.start import start

TASK = replace(declared.TASK, key="train_task", sources=())
SEED = Knob(
    "train_seed",
    0,
    Whole(0, SEEDS),
    "Seed",
    "Another seed draws another model and other sequences. The same gives the same digits on machines of one type.",
)

intro = "A tiny model learns in front of you, in a second or a few. Its attention begins as noise."
page = start(film.TITLE, intro, maps=False, own=True)
knobs = Knobs(page.notes)


def turned() -> dict[str, int]:
    """The sliders of the task; each task has its own."""
    found = {}
    for one in task.sliders:
        assert isinstance(one.range, Whole)
        options = tuple(range(int(one.range.low), int(one.range.high) + 1))
        slider = replace(one, key=f"train_{task.name}_{one.key}", range=Choice(options, scale=True))
        found[one.key] = knobs.value(slider, width=180)
    return found


def compare(name: str) -> None:
    acted()
    st.session_state[beside.key] = "" if control == name else name


def open_in_lab() -> None:
    """Goes on with the shown model as the source of all pages."""
    ours = session()
    at = None if player.watched.step == plan.steps else player.watched.step
    wanted: dict[str, Any] = {
        "source": "trained",
        "task": task.name,
        "seed": seed,
        "at": at,
        declared.OWN_TEXT.key: typed,
    }
    wanted |= {"control": "", "steps": None, "length": None, "offset": None, "layer": len(plan.design.names) - 1}
    inputs.ask({key: in_url(value) for key, value in (wanted | dict(plan.turned)).items()})
    ours.next_page = "Lab"


with st.container(horizontal=True, vertical_alignment="bottom", key="train_knobs"):
    task = TASKS[knobs.value(TASK, width=250)]
    seed = knobs.value(SEED, width=110)
    sliders = turned()
    own = Knob(f"train_{task.name}_input", "", Text(LONGEST_OWN), "Your own", f"It reads {task.hint}.", empty=task.hint)
    typed = knobs.value(own, width="stretch")
beside = Knob(f"train_{task.name}_control", "", Choice(("", *task.controls)), held=True)
control = knobs.value(beside)
plan = Plan(
    task.name, seed, turned=tuple((key, value) for key, value in sliders.items() if value != getattr(task.design, key))
)
try:
    example = plan.example(typed)
except AttentionError as error:
    st.markdown(task.sentence)
    show.problem(str(error))
    page.end()
    st.stop()

plans = {task.title: plan} | ({control: replace(plan, control=control)} if control else {})
player = film.Player(film.watched(plan, knobs), task.title, plans, example)
with st.container(horizontal=True, vertical_alignment="center", key="train_buttons"):
    player.button()
    for name, other in task.controls.items():
        kind = "primary" if control == name else "secondary"
        st.button(f"Beside it: {name}", on_click=compare, args=(name,), help=other.sentence, type=kind)  # type: ignore[arg-type]  # one of two
    st.markdown(task.controls[control].sentence if control else task.sentence, width="stretch")
player.pictures()
for note in example.notes:
    st.caption(note)
if player.watched.step is not None and not (locked() or player.moved):
    st.button(
        "Open this model in the Lab →", on_click=open_in_lab, help="Every step, every number, and every other page."
    )

with st.expander(f"Does it always? {MANY} seeds", key="train_seeds", on_change="rerun") as unfolded:
    if unfolded.open:
        running = session().seeds_run == plan
        if not running and session().seeds_shown != plan:
            if st.button(f"Train {MANY} seeds", key="train_many"):
                session().seeds_run = plan
                st.rerun()
            st.caption("One after the other, each a second or a few. Closing this stops them.")
        else:
            st.fragment(film.seeds, run_every=film.LOOK if running else None)(plan, example)
page.end()
