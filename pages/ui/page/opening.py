"""What the bare address shows before the page has begun: the first screen of the opening, packed in a file of the package.

`python -m pages.ui.page.opening` writes the file; a test compares it with what the page computes.
"""

from __future__ import annotations

from attention import Cell
from attention.pictures.message import Surroundings, pack
from attention.pictures.message_contract import Sentence
from attention.sources.link import source_of
from attention.sources.registry import SOURCE, opening_source, source_kinds
from pages.ui.page.explore import screen_of
from pages.ui.server.assets import OPENING
from pages.ui.server.limits import LIMITS


def _message() -> bytes:
    """The message of the first screen on which the bare address opens, computed."""
    texts = {SOURCE.key: opening_source()}
    kind = source_kinds()[texts[SOURCE.key]]
    texts |= dict(kind.opening(texts)) if kind.opening else {}
    trace = source_of(texts, LIMITS)[0].trace()
    sentence: Sentence = {"text": "", "goes_to": "", "slow": False}
    cell = Cell(0, "weights", *(int(texts[key]) for key in ("head", "q", "k")))
    return pack([], Surroundings(screen=screen_of(trace, cell, texts, (cell.row, cell.column), None, sentence)))


if __name__ == "__main__":
    OPENING.write_bytes(_message())
