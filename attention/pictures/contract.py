"""What a figure says of itself, and what a page is told in one message: every key that travels, with its type.

The script of the page reads the same; it says so in attention/pictures/figure/message.js, and tests/test_message_contract.py compares the two
with each other and with what is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from numpy.typing import NDArray


class Names(TypedDict):
    """The names along an axis, by position as a text."""

    labelalias: dict[str, str]


class Blocks(TypedDict):
    """How a map was pooled: the rows and columns of a block, where the first lies, and the window [top, bottom, left, right)."""

    down: int
    across: int
    top: int
    left: int
    window: list[int]


class Meta(TypedDict):
    """``layout.meta`` of a figure.

    Attributes:
        alt: a sentence for who cannot see it.
        step: what is shown, a step, a parameter or "mask"; empty for a chart.
        layer: the number of the layer it belongs to.
        panels: where the matrix of each head lies, see `layout.Panel`; empty for a chart, which takes no clicks.
        axes: what its rows and columns are called.
        file: the parts of the name under which it is saved.
        chosen: the row and column where the keyboard begins.
        ground: the trace that a page lays over cells which a mask hides while it is turned.
        blocks: of a map that was pooled for a screen.
        at: where in its block each number stands, counted row by row.
        rows: the names of single rows, where a cell of several panels is a block.
        columns: the same for columns.
        wide: the pixels for which its height was chosen; where it has less it is lower, and the names of its panels shorter.
    """

    alt: str
    step: str
    layer: NotRequired[int]
    panels: list[dict[str, int]]
    axes: NotRequired[list[str]]
    file: NotRequired[list[str]]
    chosen: NotRequired[list[int] | None]
    ground: NotRequired[dict[str, Any]]
    blocks: NotRequired[Blocks]
    at: NotRequired[NDArray[Any]]
    rows: NotRequired[Names]
    columns: NotRequired[Names]
    wide: NotRequired[int]


class Live(TypedDict):
    """What a page makes steps from, see `live.live`."""

    head: int
    heads: dict[str, Any]
    inputs: dict[str, Any]
    w_o: NDArray[Any] | None
    score: str
    share: str
    cap: float | None
    divisor: float
    temperature: float
    mask: dict[str, Any]
    made: list[str]


class Control(TypedDict):
    """A knob above the maps; `only` names the values of others that it makes sense for, `names` what some options are called."""

    kind: str
    name: str
    label: str
    help: str
    value: str
    low: NotRequired[float]
    high: NotRequired[float]
    options: NotRequired[list[str]]
    buttons: NotRequired[list[str]]
    offered: NotRequired[tuple[int, ...]]
    names: NotRequired[dict[str, str]]
    only: NotRequired[dict[str, tuple[str, ...]]]


class Own(TypedDict):
    """What is said of a formula that the source brings along; `back` are the knobs that undo what was turned, none where nothing was.

    It is marked where something inside the model is `changed`.
    """

    said: str
    back: dict[str, Any]
    changed: bool


class Tab(TypedDict):
    """A step in the strip; a click also turns the `view`, and picks another `step` than it is called after."""

    name: str
    symbol: str
    shape: str
    help: str
    chosen: bool
    sums: NotRequired[str]
    view: NotRequired[str]
    step: NotRequired[str]


Line = TypedDict(
    "Line",
    {
        "step": str,
        "steps": list[str],
        "at": dict[str, Any],
        "sides": list[dict[str, Any]],
        "shown": str,
        "sign": str,
        "short": str,
        "from": list[dict[str, Any]],
    },
)
"""The chosen cell in one line: whose it is, its number, its arithmetic, and the cells it came from."""


class Message(TypedDict):
    """All that one component of a page draws.

    Attributes:
        figures: each {"data", "layout"}, whose ``layout.meta`` is a `Meta`.
        names: the names along axes, each once; a figure has their number.
        live: what the page makes steps from by itself.
        controls: the row above the maps.
        own: what stands under that row where the source brings its own formula.
        strip: the steps above that row.
        line: the chosen cell.
        defaults: what each knob of the address is where the address does not name it.
        rest: whether the rest of the page waits until the maps are painted.
        large: whether it is projected.
        act: how many pictures of a film there have been: each differs from the last.
        session: whose pictures are counted; the page takes no earlier picture of the same.
        key: of the component, for what is turned and clicked in it.
        number: of the last turn or click that this answers; None where nothing can be turned or clicked.
    """

    figures: list[dict[str, Any]]
    names: list[Any]
    live: Live | None
    controls: Sequence[Control]
    own: Own | None
    strip: Sequence[Tab] | None
    line: Line | None
    defaults: dict[str, str] | None
    rest: bool
    large: bool
    act: int
    session: str
    key: str
    number: int | None
