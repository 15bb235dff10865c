"""Where the small pictures of all heads lie: a row for each layer, or line by line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attention.pictures.all_layers import HeadOrder, places_of_heads
from attention.pictures.layout import Panel
from attention.pictures.mosaic import panels_across

USUAL_WIDTH = 900  # pixels of a map
_PANEL_HEIGHTS = (56, 240)  # pixels, the lowest and the highest picture
_MAX_HEIGHT = 1700


@dataclass(frozen=True)
class Tiles:
    """Where the pictures of all heads lie, in cells.

    Attributes:
        panels: the place of each head.
        rows: number of rows of a picture, with the lines of other tokens.
        columns: number of its columns.
        width: from a picture to the next one in a line.
        height: from a line to the next one.
        down: number of lines.
        across: number of pictures in the longest line.
        has_rows: whether each line is a layer, and each column a head.
    """

    panels: list[Panel]
    rows: int
    columns: int
    width: int
    height: int
    down: int
    across: int
    has_rows: bool

    @property
    def pixels(self) -> int:
        """The height of the figure in pixels."""
        lowest, highest = _PANEL_HEIGHTS
        picture = min(highest, max(lowest, USUAL_WIDTH / self.across * self.rows / self.columns))
        return round(110 + min(_MAX_HEIGHT, self.down * picture * self.height / self.rows))


def arrange(heads: Mapping[int, int], shape: tuple[int, ...], block: int, order: HeadOrder, has_rows: bool) -> Tiles:
    """Returns where the picture of each head lies: a row for each layer, or line by line, in an `order` or of one layer."""
    rows, columns = (-(-side // block) for side in shape)
    places = places_of_heads(heads, order)
    if not has_rows:
        across = panels_across(len(places), rows, columns)
        places = {layer_head: divmod(index, across) for index, layer_head in enumerate(places)}
    has_rows = has_rows and not order
    width = columns + max(1, columns // 10)
    height = rows + (max(1, rows // 10) if has_rows else max(2, rows // 5))
    panels = [
        Panel(head, column * width, row * height, rows, columns, block, layer)
        for (layer, head), (row, column) in sorted(places.items())
    ]
    down, across = (max(place) + 1 for place in zip(*places.values(), strict=True))
    return Tiles(panels, rows, columns, width, height, down, across, has_rows)
