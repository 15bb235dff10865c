"""What is changed inside the model: the list, always in sight, with a switch for each; and what can be changed of the shown head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from attention import AttentionError, Cell, Intervention, Source, Trace, find_step
from attention.formula import intervention
from attention.formula.intervention import KINDS, MASKS, MOST, Kind, SetCell
from attention.formula.names import HEAD_OUTPUT, KEY, QUERY, SCORES, VALUE, WEIGHTS
from attention.formula.steps import MAP_AXES
from attention.sources import Changeable, Patchable
from attention.sources.knobs import DO
from pages.ui.headline import headline
from pages.ui.knobs import second
from pages.ui.knobs.session import session
from pages.ui.knobs.widgets import locked
from pages.ui.notes import plain, say_later


def bar(source: Source | None, trace: Trace | None, cell: Cell | None) -> None:
    """The changes of a model with a switch each, what they do to what it says, and how to add one; nothing where the source is no model."""
    those = _those()
    shorts = [one.short for one in those]
    listed = list(dict.fromkeys([*shorts, *session().switched_off]))
    if not isinstance(source, Changeable) or (locked() and not those):
        return
    line: dict[str, Any] = {"horizontal": True, "vertical_alignment": "center", "gap": "small"}
    with st.container(key="changed", **line):
        with st.container(key="changed_row", width="content", **line):
            if cell is not None and trace is not None and not locked():
                _offer(cell, trace, shorts, source)
            for short in listed:
                _switch(short, short in shorts)
            if listed and not locked():
                if isinstance(source, Patchable):
                    _frozen()
                st.button("Reset", key="changed_reset", type="tertiary", on_click=_set, args=([],), help="The model as it is, with nothing changed.")  # fmt: skip
        if trace is not None and those and (said := headline(source, trace)):
            st.markdown(f"**{plain(said)}**", width="content")


def mark(cell: Cell) -> str:
    """What is changed in the view of one head, in a sentence; empty where nothing is."""
    return intervention.mark(_those(), cell.layer, cell.head)


def _those() -> tuple[Intervention, ...]:
    try:
        return intervention.read(second.now(DO.key) or "")
    except AttentionError:  # what a link got wrong is said by its knob
        return ()


def _switch(short: str, on: bool) -> None:
    """One change, with a switch that takes it out, and in again."""
    (one,) = intervention.read(short)
    key = f"do_{short}"
    st.session_state[key] = on
    st.checkbox(plain(one.named), key=key, on_change=_turn, args=(short,), help=plain(one.words), disabled=locked(), width="content")  # fmt: skip


def _offer(cell: Cell, trace: Trace, shorts: list[str], source: Source) -> None:
    """The change that is wanted most as a button, and all others where they are asked for."""
    zero = Intervention(layer=cell.layer, head=cell.head, silence="zero")
    st.button(
        f"Silence L{cell.layer} H{cell.head}", key="silence", on_click=_add, args=(zero,), disabled=zero.short in shorts,
        help="The output of this head becomes 0, before W_O, and all that follows in the model is made anew (zero ablation).",
    )  # fmt: skip
    layer = trace.layers[cell.layer]
    there = layer.inner is layer and find_step(cell.step).axes == MAP_AXES
    kinds = [kind for kind in KINDS if isinstance(source, Patchable) or "take" not in kind.fields]
    cells = [kind for kind in kinds if "cells" in kind.fields]
    _choose(
        f"Set cell [{cell.row}, {cell.column}]" if there else "Set a cell", "setting", cells, cell, source, disabled=not there,
        help="The chosen cell of S or A is set by hand: click another to choose it." if there
        else "Choose S or A above, in pieces and with special tokens, and click a cell: it can be set by hand then.",
    )  # fmt: skip
    _choose("Change it otherwise", "changing", [kind for kind in kinds if kind not in cells], cell, source)


def _choose(label: str, key: str, those: list[Kind], cell: Cell, source: Source, **more: Any) -> None:
    """What opens to choose one of some kinds of change, and where it acts."""
    with st.popover(label, key=key, on_change="rerun", **more) as opened:
        if not opened.open:
            return
        here = f"Head {cell.head} of layer {cell.layer}"
        places = {here: (cell.layer, cell.head), f"All heads of layer {cell.layer}": (cell.layer, None), "All heads of all layers": (None, None)}  # fmt: skip
        kinds = {f"{kind.name} ({kind.term})": kind for kind in those}
        kind: Kind = kinds[st.selectbox("What", tuple(kinds), key=f"{key}_what")] if len(those) > 1 else those[0]
        fields = _FIELDS[kind.fields[0]](cell)
        layer, head = places[st.radio("Where", tuple(places), key=f"{key}_where")]
        change = Intervention(layer=layer, head=head, **fields)
        st.caption(plain(change.words))
        taken = (_other(source),) if change.take and isinstance(source, Patchable) else ()
        st.button("Change it", key=f"{key}_do", type="primary", on_click=_add, args=(change, *taken))


def _silence(_: Cell) -> dict[str, Any]:
    ways = {"0 (zero ablation)": "zero", "its average over positions (mean ablation)": "mean"}
    way = st.radio("Its output becomes", tuple(ways), key="changing_silence")
    return {
        "silence": ways[way],
        "strength": st.slider("Strength, from 0 (nothing changes) to 1", 0.0, 1.0, 1.0, 0.05, key="changing_strength"),
    }


def _temperature(_: Cell) -> dict[str, Any]:
    return {"temperature": st.number_input("Temperature", 0.0, 1000.0, 0.2, 0.1, key="changing_temperature", help="Scores are divided by it too; below 1 rows become sharper, 0 is argmax.")}  # fmt: skip


def _unscaled(_: Cell) -> dict[str, Any]:
    return {"scaled": False}


def _mask(_: Cell) -> dict[str, Any]:
    named = {"first": "only the first token", "none": "all tokens (no mask)"}
    names = [name for name in MASKS if name != "custom"]
    mask = st.selectbox("Each query attends to", sorted(names, key=lambda name: name != "first"), format_func=lambda name: named.get(name, name), key="changing_mask")  # fmt: skip
    found: dict[str, Any] = {"mask": mask}
    if "window" in mask or mask == "prefix":
        name = "prefix" if mask == "prefix" else "window"
        found[name] = st.number_input("How many keys", 0, 4096, 2, key="changing_size")
    return found


def _cell(cell: Cell) -> dict[str, Any]:
    first = int(cell.step != WEIGHTS)
    step = st.radio("The cell", (WEIGHTS, SCORES), first, key=f"changing_step_{first}", format_func={WEIGHTS: "its weight, after the softmax", SCORES: "its score, before the softmax"}.__getitem__)  # fmt: skip
    st.caption(f"Query {cell.row}, key {cell.column}: click another cell of the map to choose it.")
    if step == SCORES:
        return {"cells": (SetCell(step, cell.row, cell.column, float(st.number_input("Becomes", value=0.0, key="changing_score"))),)}  # fmt: skip
    value = st.number_input("Becomes", 0.0, 1.0, 0.0, 0.1, key="changing_weight")
    rescaled = st.toggle("Rescale the rest of its row, so that it sums to what it did", key="changing_rescaled")
    return {"cells": (SetCell(step, cell.row, cell.column, float(value), rescaled),)}


def _take(_: Cell) -> dict[str, Any]:
    named = {HEAD_OUTPUT: "its output (Z)", WEIGHTS: "its weights (A)", QUERY: "its queries (Q)", KEY: "its keys (K)", VALUE: "its values (V)"}  # fmt: skip
    return {"take": st.selectbox("What is taken", tuple(named), format_func=named.__getitem__, key="changing_take")}


_FIELDS: dict[str, Callable[[Cell], dict[str, Any]]] = {
    "silence": _silence, "temperature": _temperature, "scaled": _unscaled, "mask": _mask, "cells": _cell, "take": _take,
}  # fmt: skip
"""What is asked of each kind of change, by its first field."""


def _other(source: Patchable) -> str:
    return st.text_area(
        "From the same model reading", str(second.now("other") or source.reads), key="changing_other",
        help="Another text of as many tokens. On the Compare page what is taken comes from the first state where this is empty.",
    )  # fmt: skip


def _frozen() -> None:
    st.session_state["frozen_switch"] = bool(second.now("frozen"))
    st.checkbox(
        "Later layers attend as before (frozen)", key="frozen_switch", width="content",
        on_change=lambda: second.turn({"frozen": bool(st.session_state["frozen_switch"])}),
        help="Off: they look anew at what the change has made. On: their weights stay those of the unchanged model, only what is brought differs.",
    )  # fmt: skip


def _add(one: Intervention, other: str = "") -> None:
    """Adds a change, with the text of the `other` state where it takes something; one of the same kind in its place makes room."""
    if other:
        second.turn({"other": other})
    same = (one.layer, one.head, one.kinds, [cell[:3] for cell in one.cells])
    those = [old for old in _those() if (old.layer, old.head, old.kinds, [cell[:3] for cell in old.cells]) != same]
    if len(those) >= MOST:
        say_later(f"At most {MOST} changes act at once: take some away.")
        return
    _set([*those, one])


def _turn(short: str) -> None:
    """Takes one change out, or in again."""
    shorts, off = [one.short for one in _those()], session().switched_off
    if short in shorts:
        off.append(short)
        shorts.remove(short)
    else:
        shorts.append(short)
    second.turn({DO.key: ";".join(shorts)})


def _set(those: list[Intervention]) -> None:
    session().switched_off = [] if not those else session().switched_off
    second.turn({DO.key: intervention.write(tuple(those))})
