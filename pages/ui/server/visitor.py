"""The session and the IP address for which the current thread works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address, ip_network

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attention.training.watchers import Watcher

_NETWORK = 64  # bits of the IPv6 network of one customer
_requester: ContextVar[Watcher | None] = ContextVar("requester", default=None)


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
    context = get_script_run_ctx()
    if context is None or not runtime.exists():
        return Watcher()
    session = context.session_id

    def present() -> bool:
        return not runtime.exists() or runtime.get_instance().is_active_session(session)

    return Watcher(session, address(), present)


def address() -> str:
    """The IP address of the visitor, for IPv6 their network; empty for this machine.

    Behind a proxy it is the last entry of X-Forwarded-For. The header is trusted only if the peer
    is in a private network, as proxies are; other clients can forge it.
    """
    peer = st.context.ip_address or ""  # empty for this machine
    forwarded = ",".join(st.context.headers.get_all("X-Forwarded-For"))
    return client_address(peer, forwarded)


def request_address(peer: str, forwarded: str) -> str:
    """The same for an HTTP request, from its peer address and its X-Forwarded-For header."""
    return client_address("" if peer in ("127.0.0.1", "::1") else peer, forwarded)


def client_address(peer: str, forwarded: str) -> str:
    """The visitor's address from a peer address and an X-Forwarded-For header, each possibly empty."""
    last = forwarded.rpartition(",")[2].strip()
    try:
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
