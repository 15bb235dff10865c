"""Video files: every kind as frames, sizes refused before anything is decoded, hostile files refused in a sentence."""

from __future__ import annotations

import struct
from fractions import Fraction
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from margins import approx
from PIL import Image
from tiny_videos import animated, encoded, moving_bar, noise

from attention.base.errors import FileError
from attention.video import film
from attention.video.examples import EXAMPLES, example_video
from attention.video.film import Video

pytestmark = pytest.mark.quick

FRAMES = moving_bar()


@pytest.mark.parametrize(
    ("codec", "kind"),
    [("libx264", "mp4"), ("libx264", "mov"), ("libvpx-vp9", "webm"), ("libvpx", "webm"), ("libsvtav1", "mp4"), ("mpeg4", "mp4")],
)  # fmt: skip
def test_frames_of_a_file_are_those_that_were_written(codec: str, kind: str) -> None:
    video = Video.open(encoded(FRAMES, codec=codec, kind=kind), "clip")
    assert (video.n_frames, video.fps, video.width, video.height, video.seconds) == (24, 12, 64, 48, 2)
    assert video.kind == ("WebM" if kind == "webm" else "MP4")
    chosen = [0, 7, 7, 23]
    read = list(video.frames(chosen))
    assert len(read) == 4
    for index, rgb in zip(chosen, read, strict=True):  # the codecs lose a little
        assert abs(rgb.astype(int) - FRAMES[index]).mean() < 12
        assert abs(rgb.astype(int) - FRAMES[(index + 12) % 24]).mean() > 15


@pytest.mark.parametrize(("kind", "options"), [("GIF", {}), ("WebP", {"lossless": True})])
def test_animations_are_read_with_their_times(kind: str, options: dict[str, Any]) -> None:
    grey = (
        np.repeat(np.arange(8, dtype=np.uint8)[:, None, None, None] * 30, 20, axis=1)
        .repeat(30, axis=2)
        .repeat(3, axis=3)
    )
    video = Video.open(animated(grey, kind, **options))
    assert (video.n_frames, video.kind) == (8, kind)
    assert video.fps == approx(
        8, within=0.4, why="a GIF has hundredths of a second"
    )  # a GIF has hundredths of a second
    assert [int(rgb.mean().round()) for rgb in video.frames(range(8))] == [30 * index for index in range(8)]


def test_pictures_of_every_form_are_frames(tmp_path: Path) -> None:
    frames = noise(3)
    images = [Image.fromarray(frame) for frame in frames]
    paths = [tmp_path / f"{index}.png" for index in range(3)]
    for image, path in zip(images, paths, strict=True):
        image.save(path)
    forms: list[Any] = [frames, [*frames], images, paths, [*map(str, paths)], [paths[0], images[1], frames[2]]]
    videos = [Video.open(form) for form in forms]
    assert len({video.digest for video in videos}) == 1
    assert all((np.stack(list(video.frames(range(3)))) == frames).all() for video in videos)
    assert videos[0].fps is None
    (tmp_path / "clip.mp4").write_bytes(encoded(FRAMES))
    assert Video.open(tmp_path / "clip.mp4").name == "clip.mp4"
    assert Video.open(videos[0]) is videos[0]


def test_transparent_parts_lie_on_white() -> None:
    clear = [Image.new("RGBA", (16, 16), (200, 0, 0, alpha)) for alpha in (0, 255)]
    stream = BytesIO()
    clear[0].save(stream, "WebP", save_all=True, append_images=clear[1:], duration=100, lossless=True)
    first, second = Video.open(stream.getvalue()).frames([0, 1])
    assert first[0, 0].tolist() == [255, 255, 255]
    assert second[0, 0].tolist() == [200, 0, 0]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "got an empty file"),
        (b"%PDF-1.7", "a file of another kind"),
        (b"#EXTM3U\nhttp://example.org/a.ts", "a file of another kind"),
        ("no such file.mp4", "cannot be: check its path"),
        ([], "got a list without any"),
        (7, "got a int"),
        (np.zeros((2, 4, 4)), r"got float64 of \[2, 4, 4\]"),
        ([np.zeros((4, 4), np.uint8)], r"A frame as an array has the shape"),
        ([noise(1)[0], noise(1, 5, 5)[0]], "one size"),
        (np.zeros((1, 1, 64, 3), np.uint8), "one side at most 16 times the other"),
        (np.zeros((1, 2000, 2000, 3), np.uint8), "2,097,152 pixels"),
    ],
)  # fmt: skip
def test_what_is_no_video_is_refused_in_a_sentence(value: Any, words: str) -> None:
    with pytest.raises(FileError, match=words):
        Video.open(value)


def test_files_that_are_cut_off_or_lie_are_refused_before_they_are_decoded() -> None:
    content = encoded(FRAMES)
    for length in (16, 100, len(content) // 2):
        with pytest.raises(FileError, match="broken or cut off"):
            Video.open(content[:length])
    for garbage in (
        b"\0\0\0\x18ftypmp42" + bytes(1000),
        b"\x1a\x45\xdf\xa3" + b"\xff" * 1000,
        b"GIF89a" + b"\x10" * 50,
    ):
        with pytest.raises(FileError):
            Video.open(garbage)
    with pytest.raises(FileError, match="got 600 s"):  # by its header
        Video.open(encoded(FRAMES[:3], fps=Fraction(1, 200)))
    # The size of a frame in the description of the codec: 40,000 × 40,000.
    avc1 = content.index(b"avc1", content.index(b"stsd"))
    large = content[: avc1 + 28] + struct.pack(">HH", 40_000, 40_000) + content[avc1 + 32 :]
    try:  # as far as FFmpeg believes it
        video = Video.open(large)
    except FileError:
        return
    assert (video.width, video.height) == (64, 48)  # the frames themselves say how large they are


def test_headers_of_animations_are_checked_before_pixels_are_allocated() -> None:
    gif = b"GIF89a" + struct.pack("<HHBBB", 65_535, 65_535, 0, 0, 0) + b";"
    webp = b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\xff" * 6
    for content, words in ((gif, "65,535 × 65,535"), (webp, "16,777,216")):
        with pytest.raises(FileError, match=words):
            Video.open(content)


def test_a_frame_larger_than_its_file_says_is_refused_by_the_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "MAX_FRAME_PIXELS", 64 * 48)
    content = encoded(moving_bar(3, 128, 96))
    avc1 = content.index(b"avc1", content.index(b"stsd"))
    smaller = content[: avc1 + 28] + struct.pack(">HH", 32, 32) + content[avc1 + 32 :]
    for each in (content, smaller):
        with pytest.raises(FileError):
            Video.open(each)


def test_numbers_of_frames_and_pixels_are_bounded_while_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(film, "MAX_FRAMES", 10)
    for content in (encoded(FRAMES), animated(FRAMES, "GIF")):
        with pytest.raises(FileError, match="at most 10 frames"):
            Video.open(content)
    monkeypatch.setattr(film, "MAX_FRAMES", 1000)
    monkeypatch.setattr(film, "MAX_PIXELS", 5 * 64 * 48)
    with pytest.raises(FileError, match="pixels in all frames together"):
        Video.open(animated(FRAMES, "WebP"))
    monkeypatch.setattr(film, "MAX_BYTES", 100)
    with pytest.raises(FileError, match="may take at most"):
        Video.open(encoded(FRAMES))


def test_other_streams_are_refused() -> None:
    import av

    stream = BytesIO()
    with av.open(stream, "w", format="mp4") as container:
        sound = container.add_stream("aac", rate=16_000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate = 16_000
        container.mux(sound.encode(frame))
        container.mux(sound.encode())
    with pytest.raises(FileError, match="has no pictures"):
        Video.open(stream.getvalue())
    with pytest.raises(FileError, match=r"coded as H.264.*; got ffv1"):
        Video.open(encoded(FRAMES, codec="ffv1", kind="matroska"))


def test_examples_are_drawn_with_times_and_their_middle_shows_what_happens() -> None:
    for name in EXAMPLES:
        video = example_video(name)
        assert (video.n_frames, video.fps, video.seconds) == (8, 8, 1)
    red = [((frame[..., 0] > 180) & (frame[..., 1] < 100)).nonzero()[1].mean() for frame in example_video("flying-ball").frames(range(8))]  # fmt: skip
    assert all(approx(later - earlier) == 22 for earlier, later in pairwise(red))
    still = list(example_video("odd-frame").frames(range(8)))
    assert [index for index in range(8) if (still[index] != still[0]).any()] == [4]
    with pytest.raises(FileError, match="An example video is one of"):
        example_video("cat")


def test_preview_is_a_small_strip() -> None:
    strip = Image.open(BytesIO(Video.open(encoded(FRAMES)).preview(96)))
    assert (strip.format, *strip.size) == ("PNG", 96, 24)
