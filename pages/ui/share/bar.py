"""What every page offers to take away: the link, the state, the code, the numbers. Made when asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from attention import Cell, File, Matrices, Source, Trace
from attention.export import arrays, program
from attention.numbers import tables
from attention.sources.archive import quoted
from attention.sources.cutting import SYMBOLS
from pages.ui.knobs import controls, inputs
from pages.ui.knobs.table import KNOBS, OF_COMPARE
from pages.ui.knobs.texts import too_long
from pages.ui.server.downloads import in_pieces
from pages.ui.server.limits import EXPORT_MB, FRAMED_BY
from pages.ui.server.traces import trace_of
from pages.ui.share import ask, link, state_file

BINARY = "application/octet-stream"


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
    frames_allowed = ("iframe",) if FRAMED_BY else ()
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
    _download("Save the state (.json)", partial(state_file.write, title, state), "attention.json", "application/json")
    if cell is not None:
        _numbers(source, cell)


def _numbers(source: Source, cell: Cell) -> None:
    """The numbers of the source, and the program that makes them again."""
    st.markdown("**The numbers**")
    trace = trace_of(source)
    shown = len(trace.layers) > 1 and st.toggle(f"Only layer {cell.layer}", key="share_layer")
    megabytes = arrays.size(trace, layers=[cell.layer] if shown else None) / 2**20
    head, layers = _part(trace, cell, shown)
    del trace  # nobody but `traces` keeps it
    with st.container(horizontal=True):
        _download(
            f"{cell.step} (.csv)",
            in_pieces(lambda: tables.csv(trace_of(source), cell.step, cell.layer, cell.head)),
            f"{cell.step}-L{cell.layer}-H{cell.head}.csv",
            "text/csv",
        )
        _download("All steps (.npz)", lambda: arrays.npz(trace_of(source), head, layers), "attention.npz", BINARY)
        _download(
            "All steps (.safetensors)",
            lambda: arrays.safetensors(trace_of(source), head, layers),
            "attention.safetensors",
            BINARY,
        )
    if head is not None or (layers and not shown):
        part = f"layer {cell.layer}" if head is None else f"head {head} of layer {cell.layer}"
        st.caption(f"All steps are {megabytes:,.0f} MB, and a file has up to {EXPORT_MB}: it has {part} only.")
    st.markdown("**The same in plain torch**")
    python = program.python(source, trace_of(source), cell)
    with st.container(horizontal=True):
        _download("Python (.py)", python, "attention_steps.py", "text/x-python")
        _download(
            "Notebook (.ipynb)",
            lambda: program.ipynb(source, trace_of(source), cell),
            "attention_steps.ipynb",
            "application/x-ipynb+json",
        )
    st.code(python, height=260)


def _part(trace: Trace, cell: Cell, shown: bool) -> tuple[int | None, tuple[int, ...] | None]:
    """Which head and which layers a file of all steps has: all, or the shown layer, or the shown head of it, as many as it may hold."""
    parts: list[tuple[int | None, tuple[int, ...] | None]] = [
        (None, None),
        (None, (cell.layer,)),
        (cell.head, (cell.layer,)),
    ]
    fitting = (part for part in parts[shown:] if arrays.size(trace, *part) <= EXPORT_MB * 2**20)
    return next(fitting, parts[-1])


def _download(label: str, data: str | Callable[[], str | bytes], name: str, mime: str) -> None:
    st.download_button(label, data, file_name=name, mime=mime, on_click="ignore", key=f"share_{name}")
