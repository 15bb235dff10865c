"""What every page offers to take away: the link, the state, the code, the numbers. Made when asked for."""

from __future__ import annotations

from functools import partial

import streamlit as st

from attention import Cell, File, Matrices, Source
from attention.export import arrays, program
from attention.sources.archive import quoted
from attention.sources.cutting import SYMBOLS
from pages.ui.exports.links import Link, links, offer_link
from pages.ui.exports.tokens import Offer
from pages.ui.knobs import controls, inputs
from pages.ui.knobs.table import KNOBS, OF_COMPARE
from pages.ui.knobs.texts import too_long
from pages.ui.server.limits import EXPORT_MB, FRAME_ANCESTORS
from pages.ui.server.traces import trace_of
from pages.ui.share import ask, link, state_file


def bar(title: str, source: Source, cell: Cell | None, asks: bool) -> None:
    """The buttons beside the title; without a chosen `cell` the page has no use for the source's numbers, and offers none.

    A page that shows the cell also `asks` about it.
    """
    link.buttons("link", missing=_missing(source), key="copy_link", page=title)
    with st.popover("Share", key="sharing", on_change="rerun") as opened:
        if opened.open:
            _offers(title, source, cell, asks)


def _missing(source: Source) -> str:
    """What the link does not hold, and what to do; empty where it holds all."""
    if isinstance(source, File):
        return f"{quoted(source.name)} is not in the link: who opens it is asked for that file, so send it too."
    left_out = [SYMBOLS[name] for name in SYMBOLS if isinstance(source, Matrices) and too_long(name)]
    verb = "is" if len(left_out) == 1 else "are"
    return f"{', '.join(left_out)} {verb} not in the link: send the state file instead (Share)." if left_out else ""


def _offers(title: str, source: Source, cell: Cell | None, asks: bool) -> None:
    st.markdown("**A link or a file that opens exactly this**")
    frames_allowed = ("iframe",) if FRAME_ANCESTORS else ()
    link.buttons("lock", *frames_allowed, missing=_missing(source), key="copy_more")
    if asks and cell is not None:
        with st.expander("Ask about this", key="asking", on_change="rerun") as opened:
            if opened.open:
                ask.form(trace_of(source), cell, _missing(source))
    only = "" if cell is None else ", and only the knobs that you leave open"
    st.markdown(f"**As projected**: large digits, no sidebar{only}")
    left: list[str] = []
    if cell is not None:
        offered = [name for name in controls.NAMES if name != "layer" or len(trace_of(source).layers) > 1]
        offered += [one for one in OF_COMPARE if title == "Compare" and KNOBS[one].label]
        usual = ["temperature", "mask", "head"]
        left = st.pills("Knobs left open", offered, selection_mode="multi", default=usual, key="share_open")
    link.buttons("present", missing=_missing(source), key="copy_projected", leave_open=".".join(left))
    state = {**inputs.of_pages(), **inputs.state(whole=True)}
    offer = Offer("application/json", "attention.json", partial(state_file.write, title, state))
    links("share_state", offer_link("Save the state (.json)", "state.json", offer))
    if cell is not None:
        _numbers(source, cell)


def _numbers(source: Source, cell: Cell) -> None:
    """The numbers of the source, and the program that makes them again."""
    st.markdown("**The numbers**")
    trace = trace_of(source)
    shown = len(trace.layers) > 1 and st.toggle(f"Only layer {cell.layer}", key="share_layer")
    head, layers = arrays.part_within(trace, cell.layer, cell.head, EXPORT_MB * 2**20, shown)
    megabytes = arrays.size(trace, layers=[cell.layer] if shown else None) / 2**20
    python = program.python(source, trace, cell)
    del trace  # nobody but `traces` keeps it
    part = {"part": "layer"} if shown else {}
    links(
        "share_numbers",
        Link(f"{cell.step} (.csv)", f"{cell.step}.csv"),
        Link("All steps (.npz)", "attention.npz", part),
        Link("All steps (.safetensors)", "attention.safetensors", part),
    )
    if head is not None or (layers and not shown):
        what = f"layer {cell.layer}" if head is None else f"head {head} of layer {cell.layer}"
        st.caption(f"All steps are {megabytes:,.0f} MB, and a file has up to {EXPORT_MB}: it has {what} only.")
    st.markdown("**The same in plain torch**")
    links(
        "share_program", Link("Python (.py)", "attention_steps.py"), Link("Notebook (.ipynb)", "attention_steps.ipynb")
    )
    st.code(python, height=260)
