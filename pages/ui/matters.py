"""Which heads matter for what the model says: each silenced in turn, on request, with a map, a stop button and what others do then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError, Model
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice
from attention.numbers.mattering import CAVEAT, Matters, Progress
from attention.pictures import mattering as pictures
from attention.sources import mattering
from pages.ui import show
from pages.ui.knobs.session import session
from pages.ui.knobs.widgets import Knobs
from pages.ui.notes import plain
from pages.ui.predictions import AT, DISTRACTOR, TARGET, token_field
from pages.ui.server import turns
from pages.ui.start import Page

HOW = Knob("matters_silence", "zero", Choice(("zero", "mean"), ("0 (zero ablation)", "its mean (mean ablation)")), "Each output becomes", "What stands for the output of the head that is silenced.")  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What is asked: of which model, where, for which tokens, silenced how, and which heads are silent all the while."""

    model: Model
    position: int | None
    target: int | None
    distractor: int | None
    silence: str
    also: tuple[tuple[int, int], ...]

    def run(self, also: tuple[tuple[int, int], ...] = ()) -> Iterator[Progress]:
        """Each head in turn."""
        return mattering.which(self.model, self.position, self.target, self.distractor, self.silence, also)


def matters(page: Page, knobs: Knobs, open_head: Callable[[int, int], None]) -> Matters | None:
    """The map of heads that matter, once somebody has asked for it; nothing where the source is no model."""
    if not isinstance(page.source, Model):
        return None
    st.markdown("### Which heads matter for what the model says?")
    st.caption(f"Each head is silenced in turn, and the prediction read again. {CAVEAT}")
    try:
        with st.container(horizontal=True, width=840, vertical_alignment="bottom"):
            asked = _asked(page, knobs, knobs.value(HOW))
        needs = mattering.seconds(asked.model) * (2 if asked.also else 1)
        place = st.empty()
        if session().matters != asked:
            heads = sum(layer.n_heads for layer in page.trace.layers)
            place.button(f"Silence each of {heads} heads in turn (about {needs:.0f} s)", key="matters_ask", on_click=_ask, args=(asked,))  # fmt: skip
            return None
        found = _found(place, asked.run(), "Silencing each head in turn")
        after = _found(place, asked.run(asked.also), "The same while the others are silent") if asked.also else None
    except AttentionError as error:
        show.problem(str(error))
        return None
    if found is None or (asked.also and after is None):
        return None
    _draw(page, asked, found, after, open_head)
    return found


def _asked(page: Page, knobs: Knobs, how: str) -> Asked:
    """What the page asks: the prediction that the Lab shows, its target, and the heads that are silenced."""
    source = page.source
    assert isinstance(source, Model)
    there = page.trace.predictions
    one = there[min(int(st.session_state.get(AT.key, 0)), len(there) - 1)] if there else None
    target, against = (None if one is None else token_field(source, one, knobs, knob) for knob in (TARGET, DISTRACTOR))
    silent = tuple(
        (change.layer, change.head) for change in source.interventions
        if change.silence and change.strength == 1 and change.layer is not None and change.head is not None
    )  # fmt: skip
    plainly = replace(source.unchanged, config=type(source.config)(), words=False, special="show")
    return Asked(
        plainly,
        None if one is None else one.position,
        target and target[0],
        against[0] if target and against else None,
        how,
        silent,
    )


def _ask(asked: Asked) -> None:
    session().matters = asked


def _stop() -> None:
    session().matters = None


def _found(place: DeltaGenerator, steps: Iterator[Progress], said: str) -> Matters | None:
    """What is found in the end; meanwhile a bar, a button that stops it, and others have their turn."""
    drawn = None
    while True:
        with turns.aside():
            progress = next(steps, None)
        if progress is None or progress.found is not None:
            place.empty()
            return None if progress is None else progress.found
        text = f"{said}: {progress.done} of {progress.total} heads, about {progress.seconds:.0f} s to go."
        if drawn is None:
            with place.container():
                drawn = st.progress(0.0, text)
                st.button("Stop", key=f"matters_stop_{said}", on_click=_stop)
        drawn.progress(progress.done / progress.total, text)


def _draw(
    page: Page, asked: Asked, found: Matters, after: Matters | None, open_head: Callable[[int, int], None]
) -> None:
    chosen = (page.cell.layer, page.cell.head)

    def click(_: str, x: int, y: int) -> None:
        if (y, x) in found.heads:
            open_head(y, x)

    for head in dict.fromkeys((found.sorted()[0], chosen)):
        st.markdown(plain(f"{found.said(*head)} {found.others(*head)}"))
    maps = [pictures.map_json(found, chosen)]
    if found.known:
        maps.append(pictures.map_json(found, chosen, direct=True))
    show.figures(maps, "heads_matter", click)
    if found.known:
        st.caption(f"Direct effect: what a head adds to the logit through W_O and the final norm, frozen at this run. All that is no head adds {found.remainder:.4g}.")  # fmt: skip
    if after is not None:
        with turns.aside():
            together = mattering.together(asked.model, asked.also, asked.position, asked.target, asked.distractor, asked.silence)  # fmt: skip
        st.markdown(f"**Silenced together.** {plain(together.said)}")
        show.figures([pictures.scatter_json(found, after, chosen)], "heads_step_in")
    show.twin(found.frame(), "heads-that-matter")
