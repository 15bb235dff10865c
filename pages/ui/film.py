"""The film of a training: what plays it, stops it and scrubs through it, one picture after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import streamlit as st

from attention import AttentionError
from attention.formula.knobs import Knob
from attention.formula.ranges import Whole
from attention.lessons import training
from attention.sources.knobs import OWN_TEXT, SLIDERS, TASK
from attention.training import Plan
from attention.training.films import film_of, untrained
from attention.training.plan import MOST_STEPS
from attention.training.watching import watching
from pages.ui import address, show
from pages.ui.knobs.session import Watched, acted, session
from pages.ui.knobs.widgets import Knobs, locked
from pages.ui.notes import plain
from pages.ui.server import turns
from pages.ui.server.visitor import watcher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attention.training.learning import Snapshot
    from attention.training.tasks.task import Example

TICK = 0.08  # seconds; a picture is shown as long as this at least
TITLE = "Training"
LOOK = 0.5  # seconds between two looks at many seeds
AT = Knob("train_at", None, Whole(0, MOST_STEPS, optional=True), held=True)
_FILM = "training_film"
_SCRUB = "train_scrub"
_MOVES = "train_moves"


def link(state: Mapping[str, str]) -> str:
    """Where the model of a state, as a link has it, is watched while it learns; empty where it is none that learns here."""
    if state.get("source") != "trained":
        return ""
    task = state.get("task", TASK.default)
    turned = {f"train_{task}_{key}": state[key] for key in (OWN_TEXT.key, *SLIDERS) if key in state}
    return f"./training?{urlencode({'train_task': task, 'train_seed': state.get('seed', '0')} | turned)}"


def watched(plan: Plan, knobs: Knobs) -> Watched:
    """What this tab watches: what it did before, or what the link asks for, or a model that nobody has trained yet."""
    before = session().watched
    if before is not None and before.plan != plan:  # what was trained before is another model
        st.session_state[AT.key] = None
    by_address = AT.key in session().asked_for
    asked = knobs.value(AT, Whole(0, plan.steps, optional=True))
    if before is None or before.plan != plan:
        before = session().watched = Watched(plan, asked, opening=asked is not None)
    elif by_address and asked != before.step:  # by Back, say
        before.step, before.playing, before.opening = asked, False, asked is not None
    return before


@dataclass(frozen=True)
class Player:
    """Plays the film of one model, and of a control beside it.

    Attributes:
        watched: what the tab watches.
        name: what the model is called.
        plans: the plans that are shown, by name: the model's own first.
        example: what the models read.
    """

    watched: Watched
    name: str
    plans: Mapping[str, Plan]
    example: Example

    @property
    def moves(self) -> bool:
        """Whether the next picture comes by itself."""
        return self.watched.playing or self.watched.opening

    @cached_property
    def moved(self) -> bool:
        """Whether it moved when the page around the picture was drawn."""
        return self.moves

    def button(self) -> None:
        """What begins and ends it."""
        if self.moved:
            st.button("Stop", on_click=self._stop, type="primary", key="train_stop")
        else:
            words = "Train" if self.watched.step is None else "Play again"
            st.button(words, on_click=self._play, type="primary", key="train_play")

    def pictures(self) -> None:
        """The picture, and again and again the next one as long as it moves."""
        st.fragment(self._picture, run_every=TICK if self.moved else None)()

    def _play(self) -> None:
        acted()
        self.watched.step, self.watched.playing, self.watched.opening = 0, True, False

    def _stop(self) -> None:
        acted()
        self.watched.playing = self.watched.opening = False

    def _scrub(self) -> None:
        acted()
        self.watched.step = st.session_state[_SCRUB]

    def _picture(self) -> None:
        # A run that a browser's next one has stopped has ended the film, and could not draw the page anew.
        if self.moved != self.moves:
            st.rerun()
        try:
            with turns.aside(), watching(watcher()):
                films = self._films()
        except AttentionError as error:
            self._stop()
            show.problem(str(error))
            return
        now, at = self.watched, self.watched.step or 0
        there = min(film[-1].step for film in films.values())  # as far as all of them are
        steps = [one.step for one in films[self.name]]
        if now.playing:
            at = now.step = next((step for step in steps if at < step <= there), at)
        arrived = at <= there and at in steps
        if arrived and (now.opening or (now.playing and at == now.plan.steps)):
            self._stop()
            st.rerun()
        if now.step is not None and not arrived and not self.moves:  # nobody has kept it, or a control is new
            now.opening = True
            st.rerun()
        self._scrubber(at, steps)
        seen = {name: [one for one in film if one.step <= at] for name, film in films.items()}
        with turns.aside():
            drawn = []
            for name, film in seen.items():
                drawn += training.maps(
                    self.plans[name], film[-1], self.example, name if len(seen) > 1 else "", self.moves
                )
            drawn.append(training.curves(seen, now.plan.steps, at))
        for name, film in seen.items():
            self._said(name if len(seen) > 1 else "It answers", self.plans[name], film[-1])
        # What was sent before Streamlit sends as a hash, which a browser may have forgotten after so many runs: no two are equal.
        session().pictures[_FILM] += 1
        show.figures(drawn, _FILM)

    def _films(self) -> dict[str, Sequence[Snapshot]]:
        """The snapshots that there are by now, by name; the trainings go on as long as somebody looks."""
        if self.watched.step is None:
            return {name: (untrained(plan),) for name, plan in self.plans.items()}
        also = self.watched.step if self.watched.step % self.watched.plan.every else 0
        films = {name: film_of(plan, also) for name, plan in self.plans.items()}
        return {name: film.look() for name, film in films.items()}

    def _scrubber(self, at: int, steps: Sequence[int]) -> None:
        """Where the film stands; what was trained is shown again, and not trained again."""
        whole = range(0, self.watched.plan.steps + 1, self.watched.plan.every)
        options = sorted(
            {*whole, self.watched.plan.steps, at}
        )  # what is not there yet is trained when somebody goes there
        if self.watched.opening:
            st.progress(steps[-1] / self.watched.plan.steps, f"Training again, for step {at}: {steps[-1]} …")
            return
        if locked():
            st.caption(f"Step {at} of {self.watched.plan.steps}")
            return
        # What the browser sends of a slider that moves by itself may be older than what it shows: it says nothing here.
        fixed = self.moves or self.watched.step is None
        key = _MOVES if fixed else _SCRUB
        st.session_state[key] = at
        scrub = None if fixed else self._scrub
        st.select_slider("Step", options, key=key, on_change=scrub, disabled=fixed, label_visibility="collapsed")
        if not fixed:
            st.session_state[AT.key] = at
            address.answer(TITLE, _FILM)

    def _said(self, name: str, plan: Plan, snapshot: Snapshot) -> None:
        """What a model answers, wrong ones marked."""
        asked = [one for one in training.answers(plan, snapshot, self.example) if one.right is not None]
        words = " ".join(plain(one.said) if one.right else f":red-background[{plain(one.said)}]" for one in asked)
        st.markdown(
            f"**{plain(name)}:** {words} · {sum(map(bool, (one.right for one in asked)))} of {len(asked)} right"
        )


def seeds(plan: Plan, example: Example) -> None:
    """Twenty seeds, one trained after the other while somebody looks, and what each has reached."""
    plans = [replace(plan, seed=seed) for seed in range(training.SEEDS)]
    done: list[Snapshot] = []
    try:
        with turns.aside(), watching(watcher()):
            for one in plans:
                found = film_of(one, film=False)
                last = found.look()[-1]
                if not found.finished:
                    break
                done.append(last)
    except AttentionError as error:
        show.problem(str(error))
        return
    if len(done) < len(plans):
        st.progress(len(done) / len(plans), f"{len(done)} of {len(plans)} seeds")
    elif session().seeds_run == plan:
        session().seeds_run, session().seeds_shown = None, plan
        st.rerun()
    if done:
        with turns.aside():
            drawn = training.seeds(plans[: len(done)], done, example)
        show.figures([drawn], "training_seeds")
