"""A picture as a model saw it: after the resizing and cropping of its processor, cut into patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class SeenPicture:
    """The picture that entered a model.

    Pixels at the right and at the bottom that fill no whole patch are in `rgb`, but in no patch.

    Attributes:
        rgb: red, green and blue as the model saw them, before they were normalized, [row column 3] from 0 to 255.
        rows: number of rows of the grid of patches.
        columns: number of its columns.
        patch_size: height and width of a patch in pixels.
        words: what the model's processor did, such as "resized to 341 × 256, cropped to 224 × 224 at the centre"; sizes are width × height.
        digest: of the picture file.
    """

    rgb: NDArray[uint8]
    rows: int
    columns: int
    patch_size: tuple[int, int]
    words: str
    digest: str

    @property
    def sentence(self) -> str:
        """What the model's processor did to the picture, and into which patches it was cut."""
        height, width = self.patch_size
        return f"The picture as the model saw it: {self.words}; {self.rows} × {self.columns} patches (rows × columns) of {width} × {height} pixels."

    def __repr__(self) -> str:
        height, width = self.rgb.shape[:2]
        return f"SeenPicture({width} × {height} pixels, {self.words}; {self.rows} rows and {self.columns} columns of patches)"
