"""One script at a time, in the order in which they were asked for.

Python runs one thread at a time anyway. Twenty scripts that share it end late, all of them, and lose a
third of the processor by taking it from each other; one after the other, most are done at once. What works
without Python, torch on a large trace, steps aside meanwhile. What is large is worked on by one run at a time,
until that run ends, whatever it copies of it: several at once would not fit into a server's memory. Streamlit has no setting for this:
`pages/ui/patches/script_runner.py` makes its runs wait for their turns.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

from pages.ui.server import memory

LONGEST = 0.3  # seconds; a run of ours takes a sixth of it. What takes longer keeps nobody else waiting

_door = threading.Lock()  # newcomers wait here, one behind the other
_change = threading.Condition()
_whose: list[object] = []  # whose turn it is: nobody's or one's
_mine = threading.local()  # .turn: this thread's, also while another has it
_large = threading.Lock()
_ended = [monotonic()]  # when the last turn did


class _Turn(ExitStack):
    """The turn of one run, and what it has for itself until it ends."""

    def __init__(self) -> None:
        super().__init__()
        self.alone, self.kept = False, dict[Hashable, Any]()


def _take(me: object) -> None:
    with _change:
        _change.wait_for(lambda: not _whose, timeout=LONGEST)
        _whose[:] = [me]


def _give(me: object) -> None:
    with _change:
        if _whose == [me]:  # otherwise it took too long, and the turn is another's already
            _whose.clear()
            _ended[0] = monotonic()
            _change.notify_all()


@contextmanager
def turn() -> Iterator[None]:
    """Waits until it is this thread's turn, and keeps it; for `LONGEST`, if somebody waits."""
    me = _Turn()
    with _door:  # whoever comes back from aside does not queue up here, and waits for one other at most
        _take(me)
    _mine.turn = me
    try:
        yield
    finally:
        _mine.turn = None
        me.kept.clear()
        me.close()
        _give(me)


@contextmanager
def aside() -> Iterator[None]:
    """Lets others have the turn meanwhile; without a turn it does nothing."""
    me = getattr(_mine, "turn", None)
    if me is None:
        yield
        return
    _give(me)
    try:
        yield
    finally:
        _take(me)


@contextmanager
def alone() -> Iterator[None]:
    """Waits, aside, until no other run works on something large; nobody else does until this run ends.

    Without a turn it ends with the `with`.
    """
    me: _Turn | None = getattr(_mine, "turn", None)
    if me is None:
        with _large:
            yield
        return
    if not me.alone:
        with aside():
            me.enter_context(_large)
        me.callback(memory.trim)  # before the next large run begins
        me.alone = True
    yield


def give_back() -> None:
    """Lets others work on something large before this run ends; what it keeps is forgotten, and made or found again when it is needed."""
    me: _Turn | None = getattr(_mine, "turn", None)
    if me is not None:
        me.kept.clear()
        me.close()
        me.alone = False


def mine() -> dict[Hashable, Any]:
    """The place for what this run keeps until it ends; without a turn it keeps nothing."""
    me: _Turn | None = getattr(_mine, "turn", None)
    return {} if me is None else me.kept


def idle() -> float:
    """For how many seconds no script has run; 0 while one runs."""
    with _change:
        return 0.0 if _whose or _large.locked() else monotonic() - _ended[0]
