"""Train: how attention learns. A tiny model learns one task while the page shows its attention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from attention import AttentionError
from attention.base.knobs import Choice, Integer, Knob, Text
from attention.training import TASKS, Plan, trained, training_views
from attention.training.tasks import MAX_TEXT_LENGTH, SEEDS
from attention.training.training_views import N_SEEDS
from pages.ui.page.start import start
from pages.ui.state import knob_state
from pages.ui.state.notices import show_error
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs
from pages.ui.training import film

TASK = replace(trained.TASK, key="train_task", sources=())
SEED = Knob(
    "train_seed",
    0,
    Integer(0, SEEDS),
    "Seed",
    "Each seed gives another initial model and other sequences. The same seed gives the same digits on machines of the same type.",
)

intro = "Watch a tiny model learn within a few seconds. Its attention begins as noise."
page = start(film.TITLE, intro, maps=False, own=True)
knobs = Knobs(page.notes)


def slider_values() -> dict[str, int]:
    """The values of the task's sliders by key. Draws them."""
    values = {}
    for knob in task.sliders:
        assert isinstance(knob.range, Integer)
        options = tuple(range(int(knob.range.low), int(knob.range.high) + 1))
        slider = replace(knob, key=f"train_{task.name}_{knob.key}", range=Choice(options, is_slider=True))
        values[knob.key] = knobs.value(slider, width=180)
    return values


def query_over_picture() -> int:
    """The query whose row is drawn over the picture. Draws its knob."""
    asked = training_views.asked_queries(plan, example)
    names = tuple(f"Over the picture: {example.tokens[position]}" for position in asked)
    knob = Knob(f"train_{task.name}_query", asked[0], Choice(asked, names), "Over the picture")
    return int(knobs.value(knob, width=240, label_visibility="collapsed"))


def compare(name: str) -> None:
    knob_state.hold({control_knob.key: "" if control == name else name})


def open_in_lab() -> None:
    """Opens the shown model in Explore, as the source of all pages."""
    ours = session()
    at = None if player.watched.step == plan.steps else player.watched.step
    state: dict[str, Any] = {
        "source": "trained",
        "task": task.name,
        "seed": seed,
        "at": at,
        trained.TASK_INPUT.key: typed,
    }
    state |= {
        "control": "",
        "steps": None,
        "length": None,
        "offset": None,
        "layer": len(plan.design.attention_layers) - 1,
    }
    if query is not None:
        state["q"] = query
    knob_state.hold(state | dict(plan.turned))
    ours.next_page = "Explore"


with st.container(horizontal=True, vertical_alignment="bottom", key="train_knobs"):
    task = TASKS[knobs.value(TASK, width=250)]
    seed = knobs.value(SEED, width=110)
    sliders = slider_values()
    input_knob = Knob(
        f"train_{task.name}_input",
        "",
        Text(MAX_TEXT_LENGTH),
        "Your own input",
        f"The model reads {task.hint}.",
        placeholder=task.hint,
    )
    typed = knobs.value(input_knob, width="stretch")
control_knob = Knob(f"train_{task.name}_control", "", Choice(("", *task.controls)), inline=True)
control = knobs.value(control_knob)
plan = Plan(
    task.name, seed, turned=tuple((key, value) for key, value in sliders.items() if value != getattr(task.design, key))
)
try:
    example = plan.example(typed)
except AttentionError as error:
    st.markdown(task.sentence)
    show_error(str(error))
    page.end()
    st.stop()

plans = {task.title: plan} | ({control: replace(plan, control=control)} if control else {})
examples = {name: shown.example(typed) for name, shown in plans.items()}
player = film.Player(film.watched(plan, knobs), task.title, plans, examples)
with st.container(horizontal=True, vertical_alignment="center", key="train_buttons"):
    player.button()
    for name, other in task.controls.items():
        kind = "primary" if control == name else "secondary"
        st.button(f"Compare with: {name}", on_click=compare, args=(name,), help=other.sentence, type=kind)  # type: ignore[arg-type]  # one of two
    query = query_over_picture() if example.pictures else None
    st.markdown(task.controls[control].sentence if control else task.sentence, width="stretch")
player.pictures(query)
for note in example.notes:
    st.caption(note)
if player.watched.step is not None and not (knob_state.is_locked() or player.was_running):
    st.button(
        "Open this model in Explore →",
        on_click=open_in_lab,
        help="Shows every step and number of this model, on all pages.",
    )

with st.expander(f"Does it always learn this? {N_SEEDS} seeds", key="train_seeds", on_change="rerun") as unfolded:
    if unfolded.open:
        watched = session().of(film.Watched)
        running = watched.seeds_in_training == plan
        if not running and watched.seeds_trained != plan:
            if st.button(f"Train {N_SEEDS} seeds", key="train_many"):
                watched.seeds_in_training = plan
                st.rerun()
            st.caption("One after the other, a few seconds each. Closing this section stops the training.")
        else:
            st.fragment(film.seeds, run_every=film.UPDATE_SECONDS if running else None)(plan, example)
page.end()
