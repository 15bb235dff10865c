"""The messages of a full run for a fragment are sent even when the fragment runs again at once."""

from __future__ import annotations

import time
from pathlib import Path

from conftest import running_process
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue
from test_harm import finished

from benchmarks.session import Session
from pages.ui import process

assert process  # importing it applies the patch
SCRIPT = """
import time
import streamlit as st
from pages.ui import process

@st.fragment
def part():
    st.text("the part")

st.text("begins")
time.sleep(0.1)  # meanwhile the browser asks for the fragment alone
st.text("ends")
part()
"""
TRIES = 15
"""Without the patch two of three runs lose the part: Streamlit sends messages every 10 ms."""


async def until_finished(session: Session) -> list[ForwardMsg]:
    """All messages of a run."""
    messages: list[ForwardMsg] = []
    while not messages or messages[-1].WhichOneof("type") != "script_finished":
        messages.append(await session._receive(time.monotonic() + 60))
    return messages


def texts(messages: list[ForwardMsg]) -> list[str]:
    return list(filter(None, (message.delta.new_element.text.body for message in messages)))


def test_fragment_run_removes_nothing_from_the_full_run(tmp_path: Path) -> None:
    async def use(base: str) -> None:
        async with Session(base) as session:
            await session.ask_to_run()
            first = await until_finished(session)
            fragment = next(message.delta.fragment_id for message in first if message.delta.fragment_id)
            for _ in range(TRIES):
                await session.ask_to_run()
                messages = [await session._receive(time.monotonic() + 60)]
                while not texts(messages):
                    messages.append(await session._receive(time.monotonic() + 60))
                await session.ask_to_run(fragment=fragment)
                assert texts([*messages, *await until_finished(session)]) == ["begins", "ends", "the part"]
                assert texts(await until_finished(session)) == ["the part"]

    (tmp_path / "app.py").write_text(SCRIPT)
    with running_process(main_file=str(tmp_path / "app.py")) as (base, _):
        finished(use(base))


def test_full_run_still_replaces_messages_that_nobody_received() -> None:
    queue = ForwardMsgQueue()
    for words in ("the maps", "the next maps"):
        message = ForwardMsg()
        message.delta.new_element.markdown.body = words
        message.delta.fragment_id = "maps"
        message.metadata.delta_path[:] = [0, 6]
        queue.clear(retain_lifecycle_msgs=True)
        queue.enqueue(message)
    assert [message.delta.new_element.markdown.body for message in queue.flush()] == ["the next maps"]
