"""Runs one script at a time, in the order of their requests, and says for whom: the session and the IP address for which the current thread works.

Python executes one thread at a time anyway. Twenty concurrent scripts all end late and lose a
third of the processor time to switching; one after the other, most end early. A run gives its turn away while it works
without Python, such as torch on a large trace. Only one run at a time works on large data, until it ends: the copies of
several runs would not fit into the server's memory. Streamlit has no setting for this:
`pages/ui/patches/script_runner.py` makes its runs wait for their turns.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address, ip_network
from time import monotonic
from typing import Any

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attention.base.progress import Watcher
from pages.ui.server import limits

_LONGEST = 0.3  # seconds; a typical run takes a sixth of it. A longer run does not block the next one
_NETWORK = 64  # bits of the IPv6 network of one customer

_queue = threading.Lock()  # new runs wait here in order
_change = threading.Condition()
_active: list[object] = []  # the turn that runs now, or nothing
_current = threading.local()  # .turn: the turn of this thread, also while another turn is active
_large = threading.Lock()
_ended = [monotonic()]  # the end of the last turn
_requester: ContextVar[Watcher | None] = ContextVar("requester", default=None)


class _Turn(ExitStack):
    """The turn of one run, and the traces that the run holds until it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.is_exclusive, self.cache = False, dict[Hashable, Any]()


def _begin(me: object) -> None:
    with _change:
        # Not for ever: one long run must not stop every page. Two then share the processor for a while.
        _change.wait_for(lambda: not _active, timeout=_LONGEST)
        _active[:] = [me]


def _end(me: object) -> None:
    with _change:
        if _active == [me]:  # otherwise it took too long, and another turn is active already
            _active.clear()
            _ended[0] = monotonic()
            _change.notify_all()


@contextmanager
def turn() -> Iterator[None]:
    """Waits for this thread's turn and holds it; the next run waits at most `_LONGEST` for it."""
    me = _Turn()
    with _queue:  # runs that return from `without_turn` skip the queue and wait for at most one other
        _begin(me)
    _current.turn = me
    try:
        yield
    finally:
        _current.turn = None
        me.cache.clear()
        me.close()
        _end(me)


@contextmanager
def without_turn() -> Iterator[None]:
    """Gives the turn to other runs during the block; does nothing without a turn."""
    me = getattr(_current, "turn", None)
    if me is None:
        yield
        return
    _end(me)
    try:
        yield
    finally:
        _begin(me)


@contextmanager
def exclusive() -> Iterator[None]:
    """Waits, without its turn, until no other run works on large data, and blocks such work until this run ends.

    Without a turn it blocks only until the end of the block.
    """
    me: _Turn | None = getattr(_current, "turn", None)
    if me is None:
        with _large:
            yield
        return
    if not me.is_exclusive:
        # Who waits with the turn would keep it from the run that holds the memory, and both would wait.
        with without_turn():
            me.enter_context(_large)
        me.callback(limits.trim)  # before the next large run begins
        me.is_exclusive = True
    yield


def release_exclusive() -> None:
    """Ends the exclusive use of large memory before the run ends. Drops the run's traces, which are computed or read from the cache again."""
    me: _Turn | None = getattr(_current, "turn", None)
    if me is not None:
        me.cache.clear()
        me.close()
        me.is_exclusive = False


def run_cache() -> dict[Hashable, Any]:
    """The traces that this run holds until it ends, by key; an unused dict without a turn."""
    me: _Turn | None = getattr(_current, "turn", None)
    return {} if me is None else me.cache


def idle_seconds() -> float:
    """The seconds since the last script run; 0 during a run."""
    with _change:
        return 0.0 if _active or _large.locked() else monotonic() - _ended[0]


@contextmanager
def requesting(requester: Watcher) -> Iterator[None]:
    """Marks this thread as working for an HTTP request, which has no Streamlit session, during the block."""
    token = _requester.set(requester)
    try:
        yield
    finally:
        _requester.reset(token)


def watcher() -> Watcher:
    """The session or request of this thread, as a watcher of trainings; an anonymous one outside of both."""
    if (requester := _requester.get()) is not None:
        return requester
    context = get_script_run_ctx(suppress_warning=True)  # a job has none
    if context is None or not runtime.exists():
        return Watcher()
    session = context.session_id

    def present() -> bool:
        return not runtime.exists() or runtime.get_instance().is_active_session(session)

    forwarded = ",".join(st.context.headers.get_all("X-Forwarded-For"))
    return Watcher(session, request_address(st.context.ip_address or "", forwarded), present)


def request_address(peer: str, forwarded: str) -> str:
    """The IP address of a visitor, for IPv6 their network; empty for this machine.

    Behind a proxy it is the last entry of X-Forwarded-For. The header is trusted only if the peer
    is in a private network, as proxies are; other clients can forge it.
    """
    peer = "" if peer in ("127.0.0.1", "::1") else peer
    last = forwarded.rpartition(",")[2].strip()
    try:
        # The proxy appends what it saw itself; entries before the last are the client's claim.
        if last and (not peer or ip_address(peer).is_private):
            return _network(last)
    except ValueError:  # not an address
        pass
    try:
        return _network(peer) if peer else ""
    except ValueError:
        return peer


def _network(text: str) -> str:
    parsed = ip_address(text)
    return str(ip_network((parsed, _NETWORK), strict=False)) if isinstance(parsed, IPv6Address) else str(parsed)
