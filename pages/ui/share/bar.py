"""The Share menu of every page: links, the state file, the program and the numbers, built when it is opened."""

from __future__ import annotations

from functools import partial

import streamlit as st

from attention import AttentionError, Cell, File, Matrices, Source
from attention.export import program
from attention.io.arrays import array_writer, quote
from attention.sources.split_heads import SYMBOLS
from pages.ui.exports.export_tokens import Offer
from pages.ui.exports.links import Link, download_links, offer_link
from pages.ui.server.limits import EXPORT_MB, FRAME_ANCESTORS
from pages.ui.server.traces import trace_of
from pages.ui.share import ask, link, state_file
from pages.ui.state import chosen_result, control_row, knob_state
from pages.ui.state.kept_pictures import uploaded_names
from pages.ui.state.knob_table import COMPARE_KEYS, KNOBS
from pages.ui.state.matrix_drafts import too_long
from pages.ui.state.notices import plain


def share_bar(title: str, source: Source | None, cell: Cell | None, asks: bool) -> None:
    """Draws the buttons next to the title.

    Args:
        title: the title of the page.
        source: the source of the numbers; None on a page that shows numbers without one.
        cell: the chosen cell; None if the page does not use the source's numbers, which it then does not offer.
        asks: whether the menu offers to create a question about the cell.
    """
    link.copy_buttons("link", missing=_missing(source), key="copy_link", page=title)
    with st.popover("Share", key="sharing", on_change="rerun") as opened:
        if opened.open:
            _menu(title, source, cell, asks)


def _missing(source: Source | None) -> str:
    """A sentence about the part of the state that is not in the link, and what to do; empty if the link is complete."""
    if source is None:
        return chosen_result.missing_words()
    if isinstance(source, File):
        return f"{quote(source.name)} is not in the link: send the file too, because the page will ask for it."
    if pictures := uploaded_names():
        are, them = ("is", "it") if len(pictures) == 1 else ("are", "them")
        return f"{' and '.join(map(quote, pictures))} {are} not in the link: send {them} too, because the page will ask for {them}."
    left_out = [SYMBOLS[name] for name in SYMBOLS if isinstance(source, Matrices) and too_long(name)]
    verb = "is" if len(left_out) == 1 else "are"
    return f"{', '.join(left_out)} {verb} not in the link: send the state file instead (Share)." if left_out else ""


def _menu(title: str, source: Source | None, cell: Cell | None, asks: bool) -> None:
    st.markdown("**A link or a file that opens exactly this state**")
    frames_allowed = ("iframe",) if FRAME_ANCESTORS else ()
    link.copy_buttons("lock", *frames_allowed, missing=_missing(source), key="copy_more")
    if asks and source is not None and cell is not None:
        with st.expander("Ask about this", key="asking", on_change="rerun") as opened:
            if opened.open:
                ask.question_form(trace_of(source), cell, _missing(source))
    open_only = "" if cell is None else ", and only the knobs that you choose here"
    st.markdown(f"**For a projector**: large digits, no sidebar{open_only}")
    open_knobs: list[str] = []
    if source is not None and cell is not None:
        names = [name for name in control_row.CONTROL_NAMES if name != "layer" or len(trace_of(source).layers) > 1]
        names += [key for key in COMPARE_KEYS if title == "Compare" and KNOBS[key].label]
        default = ["temperature", "mask", "head"]
        open_knobs = st.pills("Usable knobs", names, selection_mode="multi", default=default, key="share_open")
    link.copy_buttons("present", missing=_missing(source), key="copy_projected", leave_open=".".join(open_knobs))
    state = {**knob_state.page_knobs(), **knob_state.state(whole=True)}
    offer = Offer("application/json", "attention.json", partial(state_file.write, title, state))
    download_links("share_state", offer_link("Save the state (.json)", "state.json", offer))
    if source is not None and cell is not None:
        _numbers(source, cell)


def _numbers(source: Source, cell: Cell) -> None:
    """Draws the links to the numbers of the source, and the program that computes them."""
    st.markdown("**The numbers**")
    trace = trace_of(source)
    one_layer = len(trace.layers) > 1 and st.toggle(f"Only layer {cell.layer}", key="share_layer")
    head, layers = array_writer.part_that_fits(trace, cell.layer, cell.head, EXPORT_MB * 2**20, one_layer)
    megabytes = array_writer.size(trace, layers=[cell.layer] if one_layer else None) / 2**20
    try:
        python, no_program = program.python(source, trace, cell), ""
    except AttentionError as error:  # such as several pictures in one input
        python, no_program = "", str(error)
    del trace  # only `traces` may hold it
    part = {"part": "layer"} if one_layer else {}
    download_links(
        "share_numbers",
        Link(f"{cell.step} (.csv)", f"{cell.step}.csv"),
        Link("All steps (.npz)", "attention.npz", part),
        Link("All steps (.safetensors)", "attention.safetensors", part),
    )
    if head is not None or (layers and not one_layer):
        content = f"layer {cell.layer}" if head is None else f"head {head} of layer {cell.layer}"
        st.caption(
            f"All steps would be {megabytes:,.0f} MB; a file has at most {EXPORT_MB} MB, so it contains only {content}."
        )
    st.markdown("**The same computation in plain PyTorch**")
    if no_program:
        st.caption(plain(no_program))
        return
    download_links(
        "share_program", Link("Python (.py)", "attention_steps.py"), Link("Notebook (.ipynb)", "attention_steps.ipynb")
    )
    st.code(python, height=260)
