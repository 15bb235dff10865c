"""Whose session a run of a script belongs to, and from which address its page has come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address, ip_network

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attention.training.watching import Watcher

_NETWORK = 64  # bits of an IPv6 address that one customer has
_requester: ContextVar[Watcher | None] = ContextVar("requester", default=None)


@contextmanager
def requesting(requester: Watcher) -> Iterator[None]:
    """While it lasts, this thread works for a request over HTTP, which has no session of Streamlit."""
    token = _requester.set(requester)
    try:
        yield
    finally:
        _requester.reset(token)


def watcher() -> Watcher:
    """The session, or the request, that runs in this thread, as somebody who looks at trainings; nobody in particular outside of both."""
    if (requester := _requester.get()) is not None:
        return requester
    context = get_script_run_ctx()
    if context is None or not runtime.exists():
        return Watcher()
    session = context.session_id

    def present() -> bool:
        return not runtime.exists() or runtime.get_instance().is_active_session(session)

    return Watcher(session, address(), present)


def address() -> str:
    """The address of a visitor, of IPv6 their network; "" for this machine.

    Behind a proxy it is the last that the proxy has added to X-Forwarded-For. The header counts only where the peer
    is in a private network, as proxies are: anybody else can write what they like into it.
    """
    peer = st.context.ip_address or ""  # empty for this machine
    forwarded = ",".join(st.context.headers.get_all("X-Forwarded-For"))
    return client(peer, forwarded)


def of_request(peer: str, forwarded: str) -> str:
    """The same for a request over HTTP, of the address of its socket and its X-Forwarded-For header."""
    return client("" if peer in ("127.0.0.1", "::1") else peer, forwarded)


def client(peer: str, forwarded: str) -> str:
    """The address that counts, of that of a socket and an X-Forwarded-For header, each of which may be empty."""
    last = forwarded.rpartition(",")[2].strip()
    try:
        if last and (not peer or ip_address(peer).is_private):
            return _network(last)
    except ValueError:  # no address
        pass
    try:
        return _network(peer) if peer else ""
    except ValueError:
        return peer


def _network(text: str) -> str:
    one = ip_address(text)
    return str(ip_network((one, _NETWORK), strict=False)) if isinstance(one, IPv6Address) else str(one)
