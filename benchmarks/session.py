"""A Streamlit session over its websocket, without a browser: it sends controls and receives what the run drew."""

from __future__ import annotations

import asyncio
import json
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode

from streamlit.proto.Alert_pb2 import Alert
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.runtime.state.session_state import STREAMLIT_INTERNAL_KEY_PREFIX
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.wire import cookies, http, multipart

# Which field of a widget's state holds its value, as Streamlit 1.67 reads it.
_FIELDS = {
    "slider": "double_array_value",
    "selectbox": "string_value",
    "number_input": "double_value",
    "text_area": "string_value",
    "text_input": "string_value",
    "checkbox": "bool_value",
    "button": "trigger_value",
    "popover": "bool_value",
    "expandable": "bool_value",
}
_REST = 0.12  # seconds that the page waits before it asks for the rest of itself, see figure.js


@dataclass(frozen=True)
class Figure:
    """A figure component with controls of its own: its widget, the fragment that it stands in, and what it was sent."""

    widget: str
    fragment: str
    message: bytes

    @cached_property
    def header(self) -> dict[str, Any]:
        """The message without its arrays."""
        (size,) = struct.unpack_from("<I", self.message)
        header: dict[str, Any] = json.loads(self.message[4 : 4 + size])
        return header

    @cached_property
    def knobs(self) -> dict[str, dict[str, Any]]:
        """Its controls by name, with their `options` or their `maximum` end."""
        knobs = {control["name"]: control for control in self.header["controls"]}
        if strip := self.header["strip"]:
            knobs["step"] = {"options": [option["name"] for option in strip if option["name"] != "overview"]}
        return knobs | {side["name"]: side for side in (self.header["line"] or {"sides": []})["sides"]}

    @property
    def key(self) -> str:
        """Its key in Python."""
        return self.widget.split("-", 2)[2]


@dataclass
class Run:
    """What one run of the script sent, and how long it took; the run of a fragment and that of the rest count as one.

    Attributes:
        drawn: the seconds until its picture had arrived.
        figures: how many messages to the figure component there were, and how many `tables`.
        sentences: the texts of errors, warnings and infos.
        exceptions: what a person would see as a traceback, or as "This app has encountered an error".
        widgets: every widget on the page, by its key.
        figure: the figure component with controls, if there is one.
        exports: what the links to files were told.
    """

    seconds: float = 0.0
    drawn: float = 0.0
    bytes: int = 0
    figures: int = 0
    tables: int = 0
    sentences: list[str] = field(default_factory=list)
    exceptions: list[str] = field(default_factory=list)
    widgets: dict[str, tuple[str, Any]] = field(default_factory=dict)
    figure: Figure | None = None
    exports: list[dict[str, Any]] = field(default_factory=list)

    def knobs(self) -> set[str]:
        """The keys of all controls of the page."""
        return {*self.widgets, *(self.figure.knobs if self.figure else ())}


class Session:
    """A session of the server at `base`, used with `async with`; `query` is the address's part after the `?`.

    With `address` it comes as through a proxy, which says for whom it asks.
    """

    def __init__(self, base: str, query: str = "", page: str = "", timeout: float = 60, address: str = "") -> None:
        self.base, self.query, self.page, self.timeout = base, query, page, timeout
        self.address = address
        self.last = Run()
        self.id = self._script = ""  # of the session and of its page, as the server calls them
        self._states: dict[str, WidgetState] = {}  # of every widget, as Streamlit's page sends them with each turn
        self._number = 0  # of the last act of the page, see pages/ui/address/entries.js
        self._acts: list[dict[str, Any]] = []  # those that the server has not answered
        self._answer: dict[str, Any] = {"session": "", "serial": 0}  # the last one

    async def __aenter__(self) -> Self:
        cookies_set = await asyncio.to_thread(cookies, self.base)
        self.xsrf = cookies_set.get("_streamlit_xsrf", "none")
        self._socket: ClientConnection = await connect(
            self.base.replace("http", "ws", 1) + "/_stcore/stream",
            subprotocols=["streamlit", self.xsrf],
            origin=self.base,
            additional_headers={
                "Cookie": "; ".join(map("=".join, cookies_set.items())),
                **({"X-Forwarded-For": self.address} if self.address else {}),
            },
            max_size=2**28,
            open_timeout=self.timeout,
            proxy=None,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()

    async def open(self) -> Run:
        """The first run, as the page's own first request makes it."""
        return await self._rerun([])

    async def turn(self, **knobs: Any) -> Run:
        """The run after these knobs, named by their keys, were given new values; when a figure's own were, then also the run that it asks for when it is painted."""
        triggers, figure = [], self.last.figure
        held = {key: knobs.pop(key) for key in [*knobs] if figure and key in figure.knobs}
        for key, value in knobs.items():
            kind, element = self.last.widgets[key]
            state = _state(kind, element.id, value)
            if kind == "button":
                triggers.append(state)
            else:
                self._states[element.id] = state
        if not (figure and held):
            return await self._rerun(triggers)
        return await self._act(figure, held, triggers, "" if knobs else figure.fragment)

    async def act(self, **knobs: Any) -> Run:
        """The run after the figure of the page has sent new values of these knobs, whether or not it has them.

        Raises:
            LookupError: the page has no figure that knobs stand around.
        """
        if self.last.figure is None:
            raise LookupError(f"/{self.page} has no figure with knobs")
        return await self._act(self.last.figure, knobs, [], self.last.figure.fragment)

    async def _act(self, figure: Figure, held: dict[str, Any], triggers: list[WidgetState], fragment: str) -> Run:
        for key, value in held.items():  # our page writes these
            self._write(key, value, figure.header["defaults"].get(key))
        self._number += 1
        self._acts.append({"key": figure.key, "knob": held, "number": self._number})
        message = {"session": self._answer["session"], "seen": self._answer["serial"], "acts": self._acts}
        self._states[figure.widget] = WidgetState(id=figure.widget, json_value=json.dumps({"acts": message}))
        run = await self._rerun(triggers, fragment)
        if not (run.figure and run.figure.header["defer_rest"]):
            return run
        await asyncio.sleep(_REST)
        _, outside = run.widgets["address"]
        rest_run = await self._rerun([_trigger(outside.id, "again", time.time_ns() // 10**6)])
        rest_run.drawn, rest_run.seconds = run.drawn, run.seconds + _REST + rest_run.seconds
        rest_run.bytes, rest_run.exceptions = run.bytes + rest_run.bytes, run.exceptions + rest_run.exceptions
        return rest_run

    def _write(self, key: str, value: Any, default: str | None = None) -> None:
        query = dict(parse_qsl(self.query))
        query[key] = str(value).lower() if isinstance(value, bool) else str(value)
        if query[key] == default:
            del query[key]
        self.query = urlencode(query)

    async def upload(self, key: str, name: str, data: bytes) -> tuple[int, Run | None]:
        """Puts a file into the uploader `key`; the server's HTTP status, and the run if it took the file."""
        urls = await self._urls(name)
        body, content_type = multipart(name, data)
        status = await asyncio.to_thread(
            http, "PUT", self.base + urls.upload_url, body, {"Content-Type": content_type}, self.xsrf
        )
        if status >= 300:
            return status, None
        state = type(WidgetState().file_uploader_state_value)()
        state.uploaded_file_info.add(name=name, size=len(data), file_id=urls.file_id, file_urls=urls)
        return status, await self.turn(**{key: state})

    async def place(self, name: str) -> str:
        """The address that the server gives for a file of this name."""
        return self.base + str((await self._urls(name)).upload_url)

    @property
    def token(self) -> str:
        """The parameters of the page's links to files."""
        (links,) = {export["token"] for export in self.last.exports}
        return str(links)

    def export(self, name: str, **more: str) -> str:
        """The address of a file of the state that the page shows, as a link of the page has it."""
        return f"{self.base}/export/{name}?{urlencode({**dict(parse_qsl(self.query)), **more, 'token': self.token})}"

    async def _urls(self, name: str) -> Any:
        ask = BackMsg()
        ask.file_urls_request.request_id = "1"
        ask.file_urls_request.file_names.append(name)
        ask.file_urls_request.session_id = self.id
        await self._socket.send(ask.SerializeToString())
        while (message := await self._receive(time.monotonic() + self.timeout)).WhichOneof("type") != (
            "file_urls_response"
        ):
            pass
        return message.file_urls_response.file_urls[0]

    async def ask_to_run(self, triggers: Sequence[WidgetState] = (), fragment: str = "") -> None:
        """Requests a run and does not read its messages."""
        ask = BackMsg()
        ask.rerun_script.fragment_id = fragment
        ask.rerun_script.query_string = self.query
        ask.rerun_script.page_script_hash = self._script
        ask.rerun_script.page_name = "" if self._script else self.page
        ask.rerun_script.widget_states.widgets.extend([*self._states.values(), *triggers])
        await self._socket.send(ask.SerializeToString())

    async def _rerun(self, triggers: list[WidgetState], fragment: str = "") -> Run:
        run, began = Run(), time.monotonic()
        await self.ask_to_run(triggers, fragment)
        while True:
            message = await self._receive(began + self.timeout)
            run.bytes += message.ByteSize()
            match message.WhichOneof("type"):
                case "new_session":
                    self.id = message.new_session.initialize.session_id
                    self._script = message.new_session.page_script_hash
                    run.figures, run.tables, run.sentences, run.widgets, run.figure, run.exports = (
                        0,
                        0,
                        [],
                        {},
                        None,
                        [],
                    )
                    if message.metadata.run.fragment_ids:  # what stands around it stays
                        run.widgets, run.figure = dict(self.last.widgets), self.last.figure
                        run.exports = [*self.last.exports]
                case "navigation":  # which page it is, the script itself has found out
                    self._script = message.navigation.page_script_hash
                case "delta" if message.delta.WhichOneof("type") == "new_element":
                    self._read(message.delta.new_element, run, message.delta.fragment_id)
                    if _is_picture(message.delta.new_element):
                        run.drawn = time.monotonic() - began
                case "delta" if message.delta.WhichOneof("type") == "add_block":
                    kind = message.delta.add_block.WhichOneof("type")
                    block = getattr(message.delta.add_block, kind) if kind in ("popover", "expandable") else None
                    if block and block.id:
                        run.widgets[block.id.split("-", 2)[2]] = (kind, block)
                case "script_finished" if message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                    if message.script_finished == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
                        run.exceptions.append("the script does not compile")
                    run.seconds = time.monotonic() - began
                    drawn = {element.id for _, element in run.widgets.values()}
                    self._states = {key: state for key, state in self._states.items() if key in drawn}
                    self.last = run
                    return run

    def _read(self, element: Any, run: Run, fragment: str) -> None:
        kind = element.WhichOneof("type")
        drawn = getattr(element, kind)
        if kind == "exception":
            run.exceptions.append(f"{drawn.type}: {drawn.message}")
        elif kind == "alert":
            run.sentences.append(f"{Alert.Format.Name(drawn.format).lower()}: {drawn.body}")
        elif _is_picture(element):
            run.figures += 1
        elif kind == "dataframe":
            run.tables += 1
        if kind == "bidi_component" and _has(drawn, "defaults", "{"):
            run.figure = Figure(drawn.id, fragment, drawn.bytes)
        if kind == "bidi_component" and drawn.component_name == "attention_address":
            self._take(json.loads(drawn.json))
        if kind == "bidi_component" and drawn.component_name == "attention_exports":
            run.exports.append(json.loads(drawn.json))
        if getattr(drawn, "id", "").startswith("$$"):
            key = drawn.id.split("-", 2)[2]
            run.widgets[key] = (kind, drawn)
            value = _value(kind, drawn)
            if value is not None and (drawn.id not in self._states or drawn.set_value):
                self._states[drawn.id] = _state(kind, drawn.id, value)

    def _take(self, answer: dict[str, Any]) -> None:
        """Takes over the state that the server tells the page, unless it answers an older act."""
        if answer["session"] == self._answer["session"] and answer["serial"] <= self._answer["serial"]:
            return
        self._answer = answer
        self._acts = [act for act in self._acts if act["number"] > answer["number"]]
        if answer["number"] >= self._number:
            embed = {key: value for key, value in parse_qsl(self.query) if key.startswith("embed")}
            self.query = urlencode({**answer["state"], **embed})

    async def _receive(self, until: float) -> ForwardMsg:
        async with asyncio.timeout(max(0.01, until - time.monotonic())):
            raw = await self._socket.recv()
        message = ForwardMsg()
        message.ParseFromString(raw)
        return message


def _is_picture(element: Any) -> bool:
    """Whether it is our figure component with something to draw, a lesson, or a chart of Streamlit's own."""
    if element.WhichOneof("type") != "bidi_component":
        return bool(element.WhichOneof("type") == "plotly_chart")
    drawn = element.bidi_component
    return drawn.component_name == "attention_lesson" or (
        drawn.component_name == "attention_figure" and not _has(drawn, "figures", "[]")
    )


def _has(drawn: Any, name: str, begins: str) -> bool:
    """Whether the message to a figure component has something called `name` that `begins` so."""
    return f'"{name}":{begins}'.encode() in drawn.bytes


def _value(kind: str, element: Any) -> Any:
    """What a widget holds when it is drawn: what the server set, or its default; None if nothing."""
    match kind:
        case "slider" if not element.options:  # a select_slider keeps its default
            return (element.value if element.set_value else element.default)[0]
        case "selectbox" if element.set_value:
            return element.raw_value
        case "selectbox":
            return element.options[element.default] if element.options and element.HasField("default") else None
        case "number_input" if not element.HasField("value" if element.set_value else "default"):
            return None
        case "number_input" | "text_area" | "text_input" | "checkbox":
            return element.value if element.set_value else element.default
        case _:
            return None


def _trigger(widget: str, name: str, value: Any) -> WidgetState:
    sent = json.dumps([{"event": name, "value": value}])
    return WidgetState(id=f"{STREAMLIT_INTERNAL_KEY_PREFIX}_{widget}__events", json_trigger_value=sent)


def _state(kind: str, widget_id: str, value: Any) -> WidgetState:
    state = WidgetState(id=widget_id)
    if kind == "file_uploader":
        state.file_uploader_state_value.CopyFrom(value)
    elif kind == "slider":
        state.double_array_value.data.append(value)
    elif value is not None:
        setattr(state, _FIELDS[kind], value)
    return state
