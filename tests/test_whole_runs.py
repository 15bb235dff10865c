"""What a whole run has drawn of a fragment is sent, also when the fragment runs again at once."""

from __future__ import annotations

from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.forward_msg_queue import ForwardMsgQueue

from pages.ui.server import process


def drawn(words: str, fragment: str = "") -> ForwardMsg:
    message = ForwardMsg()
    message.delta.new_element.markdown.body = words
    message.delta.fragment_id = fragment
    message.metadata.delta_path[:] = [0, 6] if fragment else [0, 7]
    return message


def finished() -> ForwardMsg:
    return ForwardMsg(script_finished=ForwardMsg.FINISHED_SUCCESSFULLY)


def said(queue: ForwardMsgQueue) -> list[str]:
    return [one.delta.new_element.markdown.body or one.WhichOneof("type") or "" for one in queue.flush()]


def test_a_fragment_that_runs_again_takes_nothing_from_the_run_of_the_whole_page() -> None:
    assert process.imported  # which has wrapped the queue
    queue = ForwardMsgQueue()
    for message in (drawn("the maps", "maps"), drawn("the button"), finished()):
        queue.enqueue(message)
    queue.clear(retain_lifecycle_msgs=True, fragment_ids_this_run=["maps"])
    queue.enqueue(drawn("the next maps", "maps"))
    assert said(queue) == ["the maps", "the button", "script_finished", "the next maps"]


def test_a_whole_run_still_takes_the_place_of_what_nobody_has_been_sent() -> None:
    queue = ForwardMsgQueue()
    queue.enqueue(drawn("the maps", "maps"))
    queue.clear(retain_lifecycle_msgs=True)
    queue.enqueue(drawn("the next maps", "maps"))
    assert said(queue) == ["the next maps"]
