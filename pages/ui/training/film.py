"""The training film: plays, stops and scrubs through the snapshots of a training run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import streamlit as st

from attention import AttentionError
from attention.base.knobs import Integer, Knob
from attention.base.progress import watching
from attention.sources.state import Set
from attention.training import Plan, training_views
from attention.training.jobs import get_film, untrained
from attention.training.tasks import MOST_STEPS
from attention.training.trained import SLIDERS, TASK, TASK_INPUT
from pages.ui import address
from pages.ui.page import show
from pages.ui.server import scheduler
from pages.ui.server.scheduler import watcher
from pages.ui.state import knob_state
from pages.ui.state.knob_state import is_locked
from pages.ui.state.notices import plain, show_error
from pages.ui.state.session import count_action, session
from pages.ui.state.widgets import Knobs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attention.training.learning import Snapshot
    from attention.training.task import Example

_TICK = 0.08  # seconds; the minimum time of a picture
TITLE = "Train"
UPDATE_SECONDS = 0.5  # seconds between two updates while many seeds are trained
_AT = Knob("train_at", None, Integer(0, MOST_STEPS, optional=True), inline=True)
_FILM = "training_film"
_SCRUB = "train_scrub"
_MOVES = "train_moves"


@dataclass
class _FilmState:
    """The playback state of a film in one tab; the step is None before the first training, and `opening` while one catches up with a link."""

    plan: Plan
    step: int | None = None
    playing: bool = False
    opening: bool = False


@dataclass
class Watched:
    """What a tab watches: its last film, and the plans whose seeds are being trained, and were."""

    film: _FilmState | None = None
    seeds_in_training: Plan | None = None
    seeds_trained: Plan | None = None


def link(state: Mapping[str, str]) -> str:
    """The address of the page Train for the model of a link's state; empty if that is not a trained model."""
    if state.get("source") != "trained":
        return ""
    task = state.get("task", TASK.default)
    task_values = {f"train_{task}_{key}": state[key] for key in (TASK_INPUT.key, *SLIDERS) if key in state}
    return f"./training?{urlencode({'train_task': task, 'train_seed': state.get('seed', '0')} | task_values)}"


def watched(plan: Plan, knobs: Knobs) -> _FilmState:
    """The film of this tab: the previous one, the one that the link requests, or an untrained model."""
    ours = session().of(Watched)
    film = ours.film
    by_address = _AT.key in session().state.unread
    if film is not None and film.plan != plan and not by_address:  # the earlier film belongs to another model
        knob_state.act(Set({_AT.key: None}))
    step = knobs.value(_AT, Integer(0, plan.steps, optional=True))
    if film is None or film.plan != plan:
        film = ours.film = _FilmState(plan, step, opening=step is not None)
    elif by_address and step != film.step:  # for example by Back
        film.step, film.playing, film.opening = step, False, step is not None
    return film


@dataclass(frozen=True)
class Player:
    """Plays the film of one model, and that of a control next to it: the plans and inputs that are shown, by name."""

    watched: _FilmState
    name: str
    plans: Mapping[str, Plan]
    examples: Mapping[str, Example]

    @property
    def is_running(self) -> bool:
        """Whether the film advances on its own now."""
        return self.watched.playing or self.watched.opening

    @cached_property
    def was_running(self) -> bool:
        """Whether the film advanced on its own when the page around it was drawn."""
        return self.is_running

    def button(self) -> None:
        """Draws the button that starts or stops the film."""
        if self.was_running:
            st.button("Stop", on_click=self._stop, type="primary", key="train_stop")
        else:
            label = "Train" if self.watched.step is None else "Play again"
            st.button(label, on_click=self._play, type="primary", key="train_play")

    def pictures(self, query: int | None = None) -> None:
        """Draws the current picture, and the following ones while the film plays.

        Args:
            query: the query whose row is drawn over the picture that the model reads; None: it reads none.
        """
        st.fragment(self._picture, run_every=_TICK if self.was_running else None)(query)

    def _play(self) -> None:
        count_action()
        self.watched.step, self.watched.playing, self.watched.opening = 0, True, False

    def _stop(self) -> None:
        count_action()
        self.watched.playing = self.watched.opening = False

    def _scrub(self) -> None:
        count_action()
        self.watched.step = st.session_state[_SCRUB]

    def _picture(self, query: int | None) -> None:
        # An earlier run may have ended the film and been stopped before it could redraw the page.
        if self.was_running != self.is_running:
            st.rerun()
        try:
            with scheduler.without_turn(), watching(watcher()):
                films = self._films()
        except AttentionError as error:
            self._stop()
            show_error(str(error))
            return
        watched, at = self.watched, self.watched.step or 0
        last = min(film[-1].step for film in films.values())  # the last step that all films have
        steps = [snapshot.step for snapshot in films[self.name]]
        if watched.playing:
            at = watched.step = next((step for step in steps if at < step <= last), at)
        arrived = at <= last and at in steps
        if arrived and (watched.opening or (watched.playing and at == watched.plan.steps)):
            self._stop()
            st.rerun()
        if watched.step is not None and not arrived and not self.is_running:  # no longer cached, or a new control
            watched.opening = True
            st.rerun()
        self._scrubber(at, steps)
        played = {name: [snapshot for snapshot in film if snapshot.step <= at] for name, film in films.items()}
        with scheduler.without_turn():
            specs = []
            for name, film in played.items():
                shown, heading = (self.plans[name], film[-1], self.examples[name]), name if len(played) > 1 else ""
                specs += training_views.maps(*shown, heading, self.is_running, query)
            specs.sort(key=training_views.is_map)  # the pictures of all models first, side by side
            specs.append(training_views.curves(played, watched.plan.steps, at))
        for name, film in played.items():
            self._answers(name if len(played) > 1 else "Answers", self.plans[name], film[-1])
        # Streamlit sends repeated messages as hashes, which a browser may have forgotten after many runs: the count makes each unique.
        session().pictures[_FILM] += 1
        show.figures(specs, _FILM)

    def _films(self) -> dict[str, Sequence[Snapshot]]:
        """The snapshots so far, by name. Training continues as long as a tab watches it."""
        if self.watched.step is None:
            return {name: (untrained(plan),) for name, plan in self.plans.items()}
        extra_step = self.watched.step if self.watched.step % self.watched.plan.every else 0
        films = {name: get_film(plan, extra_step) for name, plan in self.plans.items()}
        return {name: film.snapshots_so_far() for name, film in films.items()}

    def _scrubber(self, at: int, steps: Sequence[int]) -> None:
        """Draws the slider over the training steps. Steps already trained are shown without new training."""
        regular = range(0, self.watched.plan.steps + 1, self.watched.plan.every)
        options = sorted({*regular, self.watched.plan.steps, at})  # a later step is trained when the user selects it
        if self.watched.opening:
            st.progress(steps[-1] / self.watched.plan.steps, f"Training again up to step {at}: now at {steps[-1]} …")
            return
        if is_locked():
            st.caption(f"Step {at} of {self.watched.plan.steps}")
            return
        # The browser may send an outdated value of a slider that moves on its own, so that slider has no callback.
        disabled = self.is_running or self.watched.step is None
        key = _MOVES if disabled else _SCRUB
        st.session_state[key] = at
        scrub = None if disabled else self._scrub
        st.select_slider("Step", options, key=key, on_change=scrub, disabled=disabled, label_visibility="collapsed")
        if not disabled:
            knob_state.act(Set({_AT.key: str(at)}))
            address.send_state(TITLE, _FILM)

    def _answers(self, name: str, plan: Plan, snapshot: Snapshot) -> None:
        """Draws the answers of a model; wrong ones are marked."""
        answers = training_views.answers(plan, snapshot, self.examples[self.name])
        words = " ".join(plain(answer) if right else f":red-background[{plain(answer)}]" for answer, right in answers)
        n_right = sum(right for _, right in answers)
        st.markdown(f"**{plain(name)}:** {words} · {n_right} of {len(answers)} correct")


def seeds(plan: Plan, example: Example) -> None:
    """Trains twenty seeds one after the other while the section is open, and draws the result of each."""
    plans, ours = [replace(plan, seed=seed) for seed in range(training_views.N_SEEDS)], session().of(Watched)
    done: list[Snapshot] = []
    try:
        with scheduler.without_turn(), watching(watcher()):
            for seed_plan in plans:
                training_run = get_film(seed_plan, film=False)
                last = training_run.snapshots_so_far()[-1]
                if not training_run.finished:
                    break
                done.append(last)
    except AttentionError as error:
        show_error(str(error))
        return
    if len(done) < len(plans):
        st.progress(len(done) / len(plans), f"{len(done)} of {len(plans)} seeds")
    elif ours.seeds_in_training == plan:
        ours.seeds_in_training, ours.seeds_trained = None, plan
        st.rerun()
    if done:
        with scheduler.without_turn():
            spec = training_views.seeds(plans[: len(done)], done, example)
        show.figures([spec], "training_seeds")
