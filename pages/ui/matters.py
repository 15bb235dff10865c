"""Which heads matter for what the model says: each silenced in turn, on request, with a map, a stop button and what others do then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError, Model
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice
from attention.numbers.mattering import CAVEAT, Matters, Progress, Together
from attention.pictures import mattering as pictures
from attention.printed import shown
from attention.sources import mattering
from pages.ui import show
from pages.ui.headline import looked_at
from pages.ui.knobs.session import session
from pages.ui.knobs.widgets import Knobs
from pages.ui.notes import plain
from pages.ui.predictions import DISTRACTOR, TARGET, token_field
from pages.ui.server import turns
from pages.ui.start import Page

HOW = Knob("matters_silence", "zero", Choice(("zero", "mean"), ("0 (zero ablation)", "its mean (mean ablation)")), "Each output becomes", "What stands for the output of the head that is silenced.")  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What is asked: of which model, changed as it is, where, for which tokens, and silenced how."""

    model: Model
    position: int | None
    target: int | None
    distractor: int | None
    silence: str

    def run(self, unchanged: bool = False) -> Iterator[Progress]:
        """Each head in turn, in the model as it is changed now, or as it was."""
        return mattering.which(self.model, self.position, self.target, self.distractor, self.silence, unchanged)

    def together(self, heads: tuple[tuple[int, int], ...]) -> Together:
        """Some heads together."""
        return mattering.together(self.model, heads, self.position, self.target, self.distractor, self.silence)


def matters(page: Page, knobs: Knobs, open_head: Callable[[int, int], None]) -> Matters | None:
    """The map of heads that matter, once somebody has asked for it; nothing where the source is no model."""
    if not isinstance(page.source, Model):
        return None
    st.markdown("### Which heads matter for what the model says?")
    those = page.source.interventions
    now = f" All of it in the model as it is changed now ({plain(', '.join(one.named for one in those))}): each head is silenced on top of that." if those else ""  # fmt: skip
    st.caption(f"Each head is silenced in turn, and the prediction read again.{now} {CAVEAT}")
    try:
        with st.container(horizontal=True, width=840, vertical_alignment="bottom"):
            asked = _asked(page, knobs, knobs.value(HOW))
        needs = mattering.seconds(asked.model) + (mattering.seconds(asked.model.unchanged) if those else 0)
        place = st.empty()
        if session().matters != asked:
            heads = sum(layer.n_heads for layer in page.trace.layers)
            place.button(f"Silence each of {heads} heads in turn (about {needs:.0f} s)", key="matters_ask", on_click=_ask, args=(asked,))  # fmt: skip
            return None
        found = _found(place, asked.run(), "Silencing each head in turn")
        before = _found(place, asked.run(unchanged=True), "The same in the model as it was") if those else None
    except AttentionError as error:
        show.problem(str(error))
        return None
    if found is None or (those and before is None):
        return None
    _draw(page, asked, found, before, open_head)
    return found


def _asked(page: Page, knobs: Knobs, how: str) -> Asked:
    """What the page asks: the prediction that the Lab shows, its target, and the heads that are silenced."""
    source = page.source
    assert isinstance(source, Model)
    one = looked_at(page.trace) if page.trace.predictions else None
    target, against = (None if one is None else token_field(source, one, knobs, knob) for knob in (TARGET, DISTRACTOR))
    plainly = replace(source, config=type(source.config)(), words=False, special="show")
    return Asked(
        plainly,
        None if one is None else one.position,
        target and target[0],
        against[0] if target and against else None,
        how,
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
            turns.give_back()  # the trace, which this takes nothing from
            with place.container():
                drawn = st.progress(0.0, text)
                st.button("Stop", key=f"matters_stop_{said}", on_click=_stop)
        drawn.progress(progress.done / progress.total, text)


def _draw(
    page: Page, asked: Asked, found: Matters, before: Matters | None, open_head: Callable[[int, int], None]
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
        st.caption(f"Direct effect: what a head adds to the logit through W_O and the norms on the way, frozen at this run. All that is no head adds {shown(found.remainder)}.")  # fmt: skip
    else:
        st.caption(f"Direct effects are not known: {found.unknown}")
    silent = tuple(dict.fromkeys(one.silences for one in asked.model.interventions if one.silences))
    if silent:
        with turns.aside():
            together = asked.together(silent)
        st.markdown(f"**Silenced together.** {plain(together.said)}")
    if before is not None:
        show.figures([pictures.scatter_json(before, found, chosen)], "heads_step_in")
    show.twin(found.frame(), "heads-that-matter")
