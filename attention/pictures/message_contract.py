"""The message from Python to the page and the metadata of a figure: every key that is sent, with its type.

`attention/pictures/figure/message.js` declares the same keys for the page's script; tests/pictures/test_message_contract.py compares both declarations
with each other and with what is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

from numpy.typing import NDArray

NO_TOKEN = -1
"""The position where a grid over a picture has no token."""


class _AxisNames(TypedDict):
    """The labels along an axis, by position as a string."""

    labelalias: dict[str, str]


class Blocks(TypedDict):
    """The pooling of a map: rows (`down`) and columns (`across`) of a block, the first block's position, and the window [top, bottom, left, right)."""

    down: int
    across: int
    top: int
    left: int
    window: list[int]


class Grid(TypedDict):
    """The tokens of an axis that are drawn as a picture, each at its place.

    Attributes:
        positions: the position of the token in each cell, [row column]; -1 where there is none.
        top: the first row of the pictures; above it are lines of other tokens.
        reads: "query" where the figure has the row of one query, "key" where it has the column of one key or feature.
        at: that query, key or feature.
        same: whether the tokens of both axes are the same, so that a token of the picture can be chosen on either.
        boxes: the boxes that tokens of the other axis predict: position, left, top, right, bottom, in cells, and 1 if it is an object.
    """

    positions: NDArray[Any]
    top: int
    reads: str
    at: int
    same: bool
    boxes: NotRequired[list[list[float]]]


class PanelGrid(TypedDict):
    """Where the tokens of one line of every head lie, in a figure that draws heads as small pictures.

    Its keys are those of `Grid`, with the positions of one panel.
    """

    positions: NDArray[Any]
    reads: str
    at: int


class Meta(TypedDict):
    """``layout.meta`` of a figure.

    Attributes:
        alt: the text for screen readers.
        step: the step, parameter or "mask" that is shown; empty for a chart.
        layer: the index of its layer.
        panels: where the matrix of each head lies, see `marks.Panel`; empty for a chart, which is not clickable.
        axes: the names of its rows and columns.
        file: the parts of the name of a saved file.
        chosen: the row and column where keyboard navigation starts.
        hidden_trace: the trace that the page draws for hidden cells while the mask changes.
        blocks: the pooling of a map that was reduced for the screen.
        offsets: the offset of each number in its block, counted row by row.
        overview: the block maxima of the whole map, where a part of it is sent.
        rows: the labels of single rows, where each cell of a mosaic is a block.
        columns: the same for columns.
        design_width: the width in pixels for which its height was chosen; a narrower figure is lower and shortens the panels' names.
        metrics: of each panel, the metric that sorts the heads, in words with its number.
        grid: where tokens lie, if one row or column is drawn over a picture; its cells can be chosen although it has no panels.
        panel_grid: where tokens lie in each panel, if the panels are heads over a picture.
    """

    alt: str
    step: str
    layer: NotRequired[int]
    panels: list[dict[str, int]]
    axes: NotRequired[list[str]]
    file: NotRequired[list[str]]
    chosen: NotRequired[list[int] | None]
    hidden_trace: NotRequired[dict[str, Any]]
    blocks: NotRequired[Blocks]
    offsets: NotRequired[NDArray[Any]]
    overview: NotRequired[NDArray[Any]]
    rows: NotRequired[_AxisNames]
    columns: NotRequired[_AxisNames]
    design_width: NotRequired[int]
    metrics: NotRequired[list[str]]
    grid: NotRequired[Grid]
    panel_grid: NotRequired[PanelGrid]


class Live(TypedDict):
    """The data from which the page computes steps, see `live_inputs.live_inputs`."""

    head: int
    heads: dict[str, Any]
    inputs: dict[str, Any]
    w_o: NDArray[Any] | None
    score: str
    normalizer: str
    cap: float | None
    divisor: float
    temperature: float
    mask: dict[str, Any]
    computable: list[str]


class Control(TypedDict):
    """A knob above the maps.

    `when` has the values of other knobs for which it applies, `option_names` the labels of options, `presets` the numbers in its list, and `more`
    the label of the menu of all options that have no button.
    """

    kind: str
    name: str
    label: str
    help: str
    value: str
    low: NotRequired[float]
    high: NotRequired[float]
    options: NotRequired[list[str]]
    buttons: NotRequired[list[str]]
    more: NotRequired[str]
    presets: NotRequired[tuple[int, ...]]
    option_names: NotRequired[dict[str, str]]
    when: NotRequired[dict[str, tuple[str, ...]]]


class OverrideNote(TypedDict):
    """A note about the base formula of a source: whether knobs override it (`reset` has the knobs that undo this, if any).

    `changed` marks interventions inside the model.
    """

    text: str
    reset: dict[str, Any]
    changed: bool


class StepTab(TypedDict):
    """A step in the strip; a click also sets `view`, and chooses `step` where that differs from `name`."""

    name: str
    symbol: str
    shape: str
    help: str
    chosen: bool
    sums: NotRequired[str]
    view: NotRequired[str]
    step: NotRequired[str]


Line = TypedDict("Line", {
    "step": str, "steps": list[str], "sides": list[dict[str, Any]], "shown": str, "sign": str, "short": str,
    "from": list[dict[str, Any]],
})  # fmt: skip
"""The chosen cell in one line: its position, its number, its arithmetic, and the cells that it was computed from."""


class Sentence(TypedDict):
    """The text above a first screen, and what typing into it changes.

    Attributes:
        text: the text as typed.
        goes_to: what reads it next, in words; empty where it stays with this source.
        slow: whether the answer takes longer than a second, so that the page waits for Ctrl+Enter.
    """

    text: str
    goes_to: str
    slow: bool


class Change(TypedDict):
    """A knob that is not as the source opened: its label, and both values."""

    label: str
    before: str
    after: str


class Term(TypedDict):
    """A term of the formula: match, scale, hide, share or collect, and the step that it shows.

    Attributes:
        shown: the number of the chosen pair, as `explain` says it, with its arithmetic in one line (`sign` and `short`).
        limit: where its colours end.
        z: its matrix [row column]; of many tokens in blocks of `block` rows and columns, with the offset of each number in its block.
            The page finds limit, blocks and row of many tokens itself where it computes the step.
        row: the row of the chosen query, where `z` has blocks.
    """

    name: str
    step: str
    shown: str
    sign: str
    short: str
    limit: NotRequired[float]
    z: NotRequired[NDArray[Any]]
    offsets: NotRequired[NDArray[Any]]
    block: NotRequired[list[int]]
    row: NotRequired[NDArray[Any]]


class Compared(TypedDict):
    """Two states, A and B, of which a first screen shows one, or their difference.

    Attributes:
        shown: "A", "B" or "difference": B − A in every term.
        sides: those of the three that can be shown.
        reason: why the difference cannot; empty if it can.
        a: the shares in A [query_pos key_pos], of many tokens those of the chosen query alone, where the screen shows B or the difference and both have the same tokens.
        b: those in B, where it shows the difference.
    """

    shown: str
    sides: list[str]
    reason: str
    a: NotRequired[NDArray[Any]]
    b: NotRequired[NDArray[Any]]


class Screen(TypedDict):
    """The numbers of one head for the first screen, see `first_screen.first_screen`.

    Attributes:
        queries: the words of the queries.
        keys: those of the keys, where they are others.
        where: the model and the layer, in words.
        why: why the chosen query may look at the chosen key, in a sentence; empty where nobody said it.
        random: whether the weights are random.
        q: the chosen query, and `k` its key, `column` the chosen number of the output.
        step: the chosen step, which may be none of the terms.
        show: the moment of the film, from 0 to 5; None for the chosen step at rest.
        vectors: query, key and value as the scores and the output use them: all `rows`; of many tokens a `strip` of blocks and the rows `at` some positions.
        hidden: the cells that the mask hides [query_pos key_pos], of few tokens.
        hides: what hides the chosen key, in words; empty if it is in sight.
        changes: the knobs that are not as the source opened; `reset` has the values that undo them. Of two states, those of B that are not as in A.
        fixed: sizes that the model fixes, by label.
        compared: the two states, if there are two.
        maskable: whether a click may hide a cell.
        spans: the named stretches of the queries, each with its first and last position, if there are any.
        sequences: of a source with several sequences, the beginning of each; `sequence` is the shown one.
        locked: whether nothing but the pair can be chosen.
    """

    queries: list[str]
    keys: list[str]
    where: str
    why: str
    random: bool
    sentence: Sentence | None
    layer: int
    head: int
    q: int
    k: int
    column: int
    step: str
    show: float | None
    terms: list[Term]
    vectors: dict[str, Any]
    hidden: NDArray[Any] | None
    hides: str
    score: str
    normalizer: str
    divisor: float
    temperature: float
    mask: str
    spans: NotRequired[list[list[Any]]]
    changes: NotRequired[list[Change]]
    reset: NotRequired[dict[str, Any]]
    fixed: NotRequired[dict[str, int]]
    compared: NotRequired[Compared]
    maskable: NotRequired[bool]
    sequences: NotRequired[list[str]]
    sequence: NotRequired[int]
    locked: NotRequired[bool]


class Message(TypedDict):
    """Everything that one component of a page draws; what is not said here is as in `message.Surroundings` and `message.pack`.

    Attributes:
        figures: each {"data", "layout"}, whose ``layout.meta`` is a `Meta`.
        names: the distinct labels of axes; a figure refers to them by index.
        sources: the distinct pictures below figures, as data URIs; an image of a layout refers to them by index.
        session: the session in which `film_frame` counts; the page ignores earlier pictures of the same session.
    """

    figures: list[dict[str, Any]]
    names: list[Any]
    sources: list[str]
    live: Live | None
    controls: Sequence[Control]
    override: OverrideNote | None
    strip: Sequence[StepTab] | None
    line: Line | None
    screen: Screen | None
    defaults: dict[str, str] | None
    defer_rest: bool
    large: bool
    film_frame: int
    session: str
    key: str
    act_number: int | None
