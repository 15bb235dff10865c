"""Buttons that copy links, and the Share menu of every page, built when it is opened: links, the program, the numbers, and the state file, which holds what is too long for a link.

`upload_field` opens state files, and what features open beside them.
"""

from __future__ import annotations

import json
import re
from functools import partial

import streamlit as st

from attention.base.errors import AttentionError, FileError
from attention.export import program
from attention.files import array_writer
from attention.files.archives import quote
from attention.formula.names import Cell
from attention.sources import Source
from attention.sources.file import File
from attention.sources.matrices import SYMBOLS, UPLOADED, Matrices
from pages.ui import address
from pages.ui.exports.links import Link, Offer, download_links, offer_link
from pages.ui.features import Opener, panels
from pages.ui.server import assets, uploads
from pages.ui.server.limits import EXPORT_MB, FRAME_ANCESTORS, STATE_FILE_MB
from pages.ui.server.moved import MOVED
from pages.ui.server.traces import trace_of
from pages.ui.state import control_row, knob_state
from pages.ui.state.input_field import missing_words
from pages.ui.state.knob_table import COMPARE_KEYS, DEFAULTS, KNOBS
from pages.ui.state.notices import plain
from pages.ui.state.session import session

_HTML = "<div class='links'><span role='status'></span></div>"
_MARK = "attention lab"  # the first key of the file; its value is the version of the format
_OF_A_PAGE = re.compile(r"chapter|[a-z]{1,40}_[a-z0-9_]{1,40}")  # the keys of a page's own knobs begin with its name
_RENAMED = {"Lab": "Explore", "Training": "Train"}
_KEY = "open_state"
_STRING = re.compile(r'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)  # a JSON string, also an unterminated one
_MOST_STRINGS = 1000  # in a file, which has two for each knob
_MOST_STRUCTURE = 10_000  # characters outside of strings
_BUTTONS = {
    "link": ("Copy link", "Link"),
    "lock": ("Copy locked link", "Link without knobs"),
    "present": ("Copy link for a projector", "Link"),
    "iframe": ("Copy code for a web page", "Code"),
    "open": ("Open in Attention Lab ↗", ""),
    "ask": ("Copy the link", "Link"),
}
"""Every button by its kind: its label, and the noun in the message that confirms the copy."""


def copy_buttons(*kinds: str, missing: str = "", key: str, page: str = "", leave_open: str = "", ask: str = "") -> None:
    """Draws the buttons of these `kinds`.

    Args:
        kinds: keys of `_BUTTONS`.
        missing: the part of the state that is not in the link, and what to do, as the continuation of a sentence after "but";
            empty if the link is complete.
        page: the title of the page. One component on each page has it, and manages menu, focus and connection.
        leave_open: for "present": the names of the usable knobs, separated by dots.
        ask: for "ask": the page with the question and its query, as a relative address.
    """
    # A tuple, because Streamlit imports pandas to check whether a list is a table.
    drawn = tuple((kind, *_BUTTONS[kind]) for kind in kinds)
    data = {"buttons": drawn, "missing": missing, "page": page, "open": leave_open, "ask": ask}
    assets.component("share_buttons", "attention_share_buttons", _HTML)(key=key, data=data, height="content")


def share_bar(title: str, source: Source | None, cell: Cell | None, asks: bool) -> None:
    """Draws the buttons next to the title.

    Args:
        source: the source of the numbers; None on a page that shows numbers without one.
        cell: the chosen cell; None if the page does not use the source's numbers, which it then does not offer.
        asks: whether the menu offers to create a question about the cell.
    """
    missing = _missing(source)
    copy_buttons("link", missing=missing, key="copy_link", page=title)
    with st.popover("Share", key="sharing", on_change="rerun") as opened:
        if opened.open:
            _menu(title, source, cell, asks, missing)


def _missing(source: Source | None) -> str:
    """A sentence about the part of the state that is not in the link, and what to do; empty if the link is complete."""
    if isinstance(source, File):
        return f"{quote(source.name)} is not in the link: send the file too, because the page will ask for it."
    if words := missing_words(source) or next(filter(None, (feature.missing(source) for feature in panels())), ""):
        return words
    left_out = [SYMBOLS[name] for name in SYMBOLS if isinstance(source, Matrices) and knob_state.too_long(name)]
    verb = "is" if len(left_out) == 1 else "are"
    return f"{', '.join(left_out)} {verb} not in the link: send the state file instead (Share)." if left_out else ""


def _menu(title: str, source: Source | None, cell: Cell | None, asks: bool, missing: str) -> None:
    st.markdown("**A link or a file that opens exactly this state**")
    frames_allowed = ("iframe",) if FRAME_ANCESTORS else ()
    copy_buttons("lock", *frames_allowed, missing=missing, key="copy_more")
    if not FRAME_ANCESTORS:
        st.caption(
            "A web page may not show this Lab in a frame: its operator allows sites by their addresses in LAB_FRAME_ANCESTORS, and code for a web page is here then."
        )
    if asks and source is not None and cell is not None:
        for feature in panels():
            feature.share(source, cell, missing)
    open_only = "" if cell is None else ", and only the knobs that you choose here"
    st.markdown(f"**For a projector**: large digits, no sidebar{open_only}")
    open_knobs: list[str] = []
    if source is not None and cell is not None:
        names = [name for name in control_row.CONTROL_NAMES if name != "layer" or len(trace_of(source).layers) > 1]
        names += [key for key in COMPARE_KEYS if session().state.compares and KNOBS[key].label]
        default = ["temperature", "mask", "head"]
        open_knobs = st.pills("Usable knobs", names, selection_mode="multi", default=default, key="share_open")
    copy_buttons("present", missing=missing, key="copy_projected", leave_open=".".join(open_knobs))
    state = {key: text for key, text in knob_state.shown_texts(early=True).items() if key != UPLOADED}
    offer = Offer("application/json", "attention.json", partial(_write_state, title, state))
    download_links("share_state", offer_link("Save the state (.json)", "state.json", offer))
    if source is not None and cell is not None:
        _numbers(source, cell)


def _numbers(source: Source, cell: Cell) -> None:
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


def _write_state(page: str, state: dict[str, str]) -> str:
    """The text of a state file: the page's title, and the URL values of the knobs that differ from their defaults."""
    text = json.dumps({_MARK: 1, "page": page, "state": state}, ensure_ascii=False, indent=1)
    if len(text.encode(errors="replace")) > STATE_FILE_MB * 2**20:
        raise FileError(
            f"A state file has at most {STATE_FILE_MB} MB; this state has more: save the files of your matrices instead."
        )
    return text


def _read_state(content: bytes) -> tuple[str, dict[str, str]]:
    """The page's title and the knobs of a state file, of a former page too; unknown knobs are ignored."""
    if len(content) > STATE_FILE_MB * 2**20:
        raise FileError(
            f"A state file has at most {STATE_FILE_MB} MB; got {len(content):,} bytes: open a file that was saved with Share."
        )
    try:
        text = content.decode("utf-8-sig")
        # Parsed JSON with millions of braces would take a hundred times the memory of its text.
        file = json.loads(text) if len(_STRING.sub("", text, _MOST_STRINGS)) <= _MOST_STRUCTURE else {}
        page, state = file["page"], file["state"]
        is_valid = file[_MARK] == 1 and isinstance(page, str) and all(isinstance(text, str) for text in state.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise FileError("A state file is a .json file saved with Share; got something else: open one saved there.")
    # A lone surrogate cannot be sent to a browser.
    clean = {key: text.encode("utf-8", "replace").decode() for key, text in state.items()}
    known = {key: text for key, text in clean.items() if key in DEFAULTS or _OF_A_PAGE.fullmatch(key)}
    if page.lower() not in MOVED:
        return _RENAMED.get(page, page), known
    name, opening = MOVED[page.lower()]
    return next((title for title, path in address.names().items() if path == name), page), {**opening, **known}


def upload_field() -> None:
    """Draws the upload field for state files, which set every knob to its value in the file or to its default, and for other files."""
    openers = _openers().values()
    with st.expander(" or ".join(("Open a state", *(opener.words for opener in openers)))):
        st.file_uploader(
            " or ".join(("Open a state file (.json)", *(f"{opener.words} (.{opener.ending})" for opener in openers))),
            type=["json", *(opener.ending for opener in openers)],
            key=f"{_KEY}_{session().state_files}",  # a new field each time, so that a file can be opened twice
            on_change=_opened,
            max_upload_size=STATE_FILE_MB,
        )
        if problem := session().state_file_problem:
            st.error(plain(problem))


def _openers() -> dict[str, Opener]:
    return {feature.opener.ending: feature.opener for feature in panels() if feature.opener}


def _opened() -> None:
    ours = session()
    file = st.session_state[f"{_KEY}_{ours.state_files}"]
    ours.state_file_problem = ""
    if file is None:
        return
    try:
        content = uploads.content(file)
        if opener := _openers().get(file.name.lower().rpartition(".")[2]):
            opener.open(file.name, content)
            ours.state_files += 1
            return
        page, state = _read_state(content)  # in the turn of this run, since its strings alone may be many bytes
    except AttentionError as error:
        ours.state_file_problem = str(error)
        return
    ours.state_files += 1
    knob_state.open_page(state, page)
