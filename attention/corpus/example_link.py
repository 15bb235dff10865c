"""The link that opens an example of a result in the Lab, at its cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from attention.base.errors import ModelError
from attention.formula.names import WEIGHTS

if TYPE_CHECKING:
    from attention.corpus.result import Example, HeadsResult

_MAX_LINK_BYTES = 2**14
"""Servers and proxies refuse longer addresses."""


class ExampleLink(NamedTuple):
    """A link to an example.

    Attributes:
        state: the values of the link by key; None if there is none.
        reason: why there is none, in a sentence; otherwise empty.
    """

    state: dict[str, str] | None
    reason: str = ""


def example_link(result: HeadsResult, example: Example, layer: int, head: int, text: str | None = None) -> ExampleLink:
    """The link to the cell of an example: its text, layer, head, query and key.

    Args:
        result: of the example.
        example: one of `result.examples(layer, head, …)`.
        layer: of the head.
        head: its index.
        text: the part of the text that was read, if the text was cut.
    """
    model = _lab_model(result)
    if not model:
        return ExampleLink(None, f"This server does not have the model {result.model}: open the text where it is.")
    state = {
        "source": "model",
        "model": model,
        "text": example.text if text is None else text,
        "layer": str(layer),
        "head": str(head),
        "step": WEIGHTS,
        "q": str(example.query),
        "k": str(example.key),
    }
    n_bytes = len(urlencode(state))
    if n_bytes > _MAX_LINK_BYTES:
        return ExampleLink(None, f"A link has at most {_MAX_LINK_BYTES:,} bytes; that of this text would have {n_bytes:,}: copy the text into the Lab.")  # fmt: skip
    return ExampleLink(state)


def _lab_model(result: HeadsResult) -> str:
    """The name under which the Lab opens the model of a result: that of its folder if it is on offer, or the path if paths are allowed; else empty."""
    from attention.models.library import LIBRARY

    for name in dict.fromkeys((result.plan["model"], result.model)):
        if name in LIBRARY.names():
            return str(name)
    path = str(result.plan["model"])
    try:
        LIBRARY.allow(path)
        LIBRARY.folder(path)
    except ModelError:
        return ""
    return path
