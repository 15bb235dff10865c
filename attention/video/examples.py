"""Two videos and a tiny model of ours, made by code: a link that names them opens without an upload, and nobody needs a licence."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError
from attention.video.film import Video

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXAMPLES = {
    "flying-ball": "a red ball that flies over a wall, in eight frames",
    "odd-frame": "a blue square that stands still, and jumps for one of eight frames",
}
"""What each video shows, by its name."""
_N_FRAMES, _SIDE, _FINE = 8, 192, 4  # frames; pixels; samples of a pixel in each direction, so that edges are smooth
_FPS = 8.0
_SKY, _GROUND, _WALL, _BALL = (214, 228, 238), (132, 152, 96), (120, 112, 108), (206, 52, 44)
_PAPER, _INK = (244, 241, 234), (38, 84, 176)
_ODD = 4  # the frame in which the square jumps


@cache
def example_video(name: str) -> Video:
    """The video of this name, one of `EXAMPLES`: shapes over a background, each pixel the mean of its samples.

    Raises:
        FileError: there is no such video.
    """
    import numpy as np

    if name not in EXAMPLES:
        raise FileError(f"An example video is one of {', '.join(EXAMPLES)}; got {name[:40]!r}: choose one of them.")
    y, x = (np.mgrid[: _SIDE * _FINE, : _SIDE * _FINE] + 0.5) / _FINE
    draw = _flying_ball if name == "flying-ball" else _odd_frame
    frames = []
    for index in range(_N_FRAMES):
        samples = draw(x, y, index)
        of_pixel = samples.reshape(_SIDE, _FINE, _SIDE, _FINE, 3).sum(
            (1, 3)
        )  # whole numbers: the same on every machine
        frames.append(((of_pixel + _FINE**2 // 2) // _FINE**2).astype(np.uint8))
    return replace(Video.open(np.stack(frames)), fps=_FPS)


def _flying_ball(x: NDArray[np.float64], y: NDArray[np.float64], frame: int) -> NDArray[np.uint16]:
    samples = _filled(x, _SKY)
    samples[y > 160] = _GROUND
    samples[(abs(x - 96) < 10) & (y > 104)] = _WALL
    centre_x, at = 20 + frame * 22, (frame - 3.5) / 3.5
    samples[(x - centre_x) ** 2 + (y - (52 + 90 * at * at)) ** 2 < 17**2] = _BALL
    return samples


def _odd_frame(x: NDArray[np.float64], y: NDArray[np.float64], frame: int) -> NDArray[np.uint16]:
    samples = _filled(x, _PAPER)
    left, top = (128, 32) if frame == _ODD else (32, 112)
    samples[(left <= x) & (x < left + 48) & (top <= y) & (y < top + 48)] = _INK
    return samples


def _filled(x: NDArray[np.float64], colour: tuple[int, int, int]) -> NDArray[np.uint16]:
    import numpy as np

    samples = np.empty((*x.shape, 3), np.uint16)
    samples[:] = colour
    return samples


def tiny_videomae() -> tuple[Any, Any]:
    """A VideoMAE of 8 frames in 4 × 6 × 6 patches that has learned nothing, and its processor."""
    from transformers import VideoMAEConfig, VideoMAEModel
    from transformers.models.videomae.image_processing_pil_videomae import VideoMAEImageProcessorPil

    from attention.models.ours import with_random_weights

    side = 96  # pixels
    config = VideoMAEConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64, image_size=side, patch_size=16,
        num_frames=_N_FRAMES, tubelet_size=2,
    )  # fmt: skip
    size = {"height": side, "width": side}
    return with_random_weights(VideoMAEModel(config)), VideoMAEImageProcessorPil(
        size={"shortest_edge": side}, crop_size=size
    )
