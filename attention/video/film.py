"""A video file as frames: MP4, MOV or WebM by PyAV, an animated GIF or WebP by Pillow, checked before and while it is decoded; or frames in memory.

A `Video` keeps the file, and decodes it a frame at a time: the frames of a minute take a thousand times the memory of their file. Sound is not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from io import BytesIO
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError
from attention.files.archives import read_at_most
from attention.files.picture import Picture, webp_size

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

MAX_BYTES = 2**26  # of a file
MAX_FRAMES, MAX_SECONDS = 3600, 300
MAX_FRAME_PIXELS = 2**21  # of one frame, such as 1920 × 1080
MAX_PIXELS = 2**30
"""Of all frames together, each of which is decoded: half a minute of 1280 × 720, at 30 frames a second, takes a second or two."""
_MAX_RATIO = 16  # of the sides, as for a picture
_MAX_MEMORY_PIXELS = 2**26  # of frames that are given as pictures, at 3 bytes each
_MAX_RATE = 1000  # frames a second; a header may say anything

_DEMUXERS = {"MP4": "mov", "WebM": "matroska"}
"""The reader of each kind of file; others, such as playlists, could name further files and addresses."""
_CODECS = frozenset({"h264", "hevc", "mpeg4", "vp8", "vp9", "av1", "libdav1d", "libvpx-vp9", "mjpeg", "prores"})
_MKV, _GIF, _RIFF = b"\x1a\x45\xdf\xa3", b"GIF8", b"RIFF"


@dataclass(frozen=True)
class Video:
    """A video, compared by its digest.

    Attributes:
        digest: of the file, BLAKE2b in hexadecimal.
        width: number of pixels in a row of a frame.
        height: number of rows of a frame.
        n_frames: how many frames can be decoded.
        fps: frames a second, the mean of the file; None for pictures, which have no times.
        content: the file; or red, green and blue of each pixel of each frame, a byte each.
        kind: "MP4" (also MOV), "WebM", "GIF" or "WebP"; empty: `content` has the pixels.
        notes: what was left out or done to the frames, a sentence each.
        name: of the file; empty if it is not known.
    """

    digest: str
    width: int = field(compare=False)
    height: int = field(compare=False)
    n_frames: int = field(compare=False)
    fps: float | None = field(compare=False)
    content: bytes = field(compare=False, repr=False)
    kind: str = field(default="", compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    name: str = field(default="", compare=False)

    @classmethod
    def open(cls, value: Any, name: str = "") -> Video:
        """The video of a path, of the bytes of a file, of a list of pictures (paths, images of Pillow, arrays), or of an array [frame row column 3] from 0 to 255.

        Raises:
            FileError: it is none of these, it is broken, or it is too large.
        """
        if isinstance(value, Video):
            return value
        if isinstance(value, str | PathLike):
            content = read_at_most(value, MAX_BYTES, "A video is an MP4, MOV, WebM, GIF or WebP file")
            return cls.open(content, Path(value).name)
        if isinstance(value, bytes | bytearray | memoryview):
            return _of_file(bytes(value), name)
        return _of_pictures(value)

    @property
    def seconds(self) -> float | None:
        """How long it is; None if its frames have no times."""
        return None if self.fps is None else self.n_frames / self.fps

    def preview(self, side: int) -> bytes:
        """A PNG of its first, middle and last frame side by side, as small that its longer side has at most `side` pixels."""
        import numpy as np
        from PIL import Image

        chosen = sorted({0, self.n_frames // 2, self.n_frames - 1})
        strip = Image.fromarray(np.concatenate(list(self.frames(chosen)), axis=1))
        strip.thumbnail((side, side))
        stream = BytesIO()
        strip.save(stream, "PNG")
        return stream.getvalue()

    def frames(self, indices: Sequence[int]) -> Iterator[NDArray[uint8]]:
        """Red, green and blue of some frames [row column 3], in order; a frame may be asked for again.

        Args:
            indices: of frames, none smaller than the one before it.
        """
        import numpy as np

        if not self.kind:
            pixels = np.frombuffer(self.content, np.uint8).reshape(self.n_frames, self.height, self.width, 3)
            yield from (pixels[index] for index in indices)
            return
        waiting = list(indices)
        with _decoded(self.content, self.kind) as decoded:
            for index, frame in enumerate(decoded.frames):
                if not waiting:
                    return
                if waiting[0] != index:
                    continue
                rgb = decoded.rgb(frame)
                while waiting and waiting[0] == index:
                    yield rgb
                    del waiting[0]


@dataclass(frozen=True)
class _Decoded:
    """The frames of an open file, in the form of its library: sizes and numbers are checked as they come.

    Attributes:
        width: of the first frame, as all are.
        height: of the first frame.
        frames: in order.
        fps: frames a second by the header; 0: by the durations of the frames.
        notes: as in `Video`.
    """

    width: int
    height: int
    frames: Iterator[Any]
    fps: float = 0
    notes: tuple[str, ...] = ()

    def rgb(self, frame: Any) -> NDArray[uint8]:
        """Red, green and blue of a frame [row column 3]."""
        import numpy as np
        from PIL import Image

        if isinstance(frame, Image.Image):
            layer = frame.convert("RGBA")
            on_white = Image.new("RGB", layer.size, "white")
            on_white.paste(layer, mask=layer.getchannel("A"))
            return np.asarray(on_white)
        return np.asarray(frame.to_ndarray(format="rgb24"))


def _of_file(content: bytes, name: str) -> Video:
    kind = _kind(content)
    if len(content) > MAX_BYTES:
        raise FileError(
            f"A video file may take at most {MAX_BYTES / 2**20:.0f} MB; got more: cut out a part, or save it smaller."
        )
    with _decoded(content, kind) as decoded:
        count, milliseconds = 0, 0.0
        for frame in decoded.frames:
            count += 1
            milliseconds += float(getattr(frame, "info", {}).get("duration", 0) or 0)
    if not count:
        raise _broken(kind)
    fps = decoded.fps or (1000 * count / milliseconds if milliseconds else 0)
    is_known = isfinite(fps) and count / MAX_SECONDS <= fps <= _MAX_RATE
    notes = decoded.notes + ("The file does not say how long a frame is shown: its frames have no times.",) * (
        not is_known
    )
    digest = blake2b(content, digest_size=16).hexdigest()
    return Video(digest, decoded.width, decoded.height, count, fps if is_known else None, content, kind, notes, name)


def _of_pictures(value: Any) -> Video:
    import numpy as np

    if hasattr(value, "__array__") and not hasattr(value, "getbands"):
        array = np.asarray(value)
        if array.ndim != 4 or array.shape[-1] != 3 or array.dtype != np.uint8 or not array.size:
            raise FileError(
                f"A video as an array has the shape [frame row column 3] and whole numbers from 0 to 255 (uint8); got {array.dtype} of {list(array.shape)}: change its axes or its numbers."
            )
        given: Any = array
    elif isinstance(value, list | tuple) and value:
        given = value
    else:
        raise FileError(
            f"A video is the path or the bytes of a file, a list of pictures, or an array [frame row column 3]; got a {type(value).__name__}{' without any' if isinstance(value, list | tuple) else ''}: give one of these."
        )
    if len(given) > MAX_FRAMES:
        raise _too_large(f"{len(given):,} pictures")
    frames, sizes, total = list[bytes](), set[tuple[int, ...]](), 0
    for each in given:
        rgb = _rgb_of_picture(each)
        sizes.add(rgb.shape)
        total += rgb.shape[0] * rgb.shape[1]
        if len(sizes) > 1:
            (height, width, _), (other, another, _) = sizes
            raise FileError(
                f"The frames of a video have one size; got {width} × {height} and {another} × {other} (width × height): resize them."
            )
        _check_frame(rgb.shape[1], rgb.shape[0])
        if total > _MAX_MEMORY_PIXELS:
            raise FileError(
                f"Frames in memory may have at most {_MAX_MEMORY_PIXELS:,} pixels together; got more: give fewer or smaller ones, or the path of a file."
            )
        frames.append(rgb.tobytes())
    ((height, width, _),) = sizes
    pixels = b"".join(frames)
    digest = blake2b(repr((width, height)).encode() + pixels, digest_size=16).hexdigest()
    return Video(digest, width, height, len(frames), None, pixels)


def _rgb_of_picture(value: Any) -> NDArray[uint8]:
    import numpy as np
    from PIL import Image

    if isinstance(value, np.ndarray) or (hasattr(value, "__array__") and not isinstance(value, Image.Image)):
        array = np.asarray(value)
        if array.ndim != 3 or array.shape[-1] != 3 or array.dtype != np.uint8 or not array.size:
            raise FileError(
                f"A frame as an array has the shape [row column 3] and whole numbers from 0 to 255 (uint8); got {array.dtype} of {list(array.shape)}: change its axes or its numbers."
            )
        return array
    return (Picture.open(value) if isinstance(value, str | PathLike) else Picture.of(value)).pixels()


@contextmanager
def _decoded(content: bytes, kind: str) -> Iterator[_Decoded]:
    """The open frames of a file of this kind.

    Raises:
        FileError: also in the block: it is broken, or turns out to be too large.
    """
    try:
        if kind in _DEMUXERS:
            with _opened(content, kind) as decoded:
                yield decoded
        else:
            yield _animation(content, kind)
    except FileError:
        raise
    except Exception as error:  # a broken file can raise anything in PyAV and Pillow
        raise _broken(kind) from error


@contextmanager
def _opened(content: bytes, kind: str) -> Iterator[_Decoded]:
    import av

    av.logging.set_level(av.logging.PANIC)  # FFmpeg would write to the console of the server
    with av.open(BytesIO(content), "r", format=_DEMUXERS[kind]) as container:
        if not container.streams.video:
            raise FileError(f"This {kind} file has no pictures: give a video, or its sound as sound=.")
        stream = container.streams.video[0]
        context = stream.codec_context
        if context.name not in _CODECS:
            raise FileError(
                f"A video is coded as H.264, H.265, VP8, VP9, AV1, MPEG-4, ProRes or JPEG; got {context.name[:20]}: save it as H.264."
            )
        _check_frame(context.width, context.height)
        lasts = float((stream.duration or 0) * (stream.time_base or 0))
        if lasts > MAX_SECONDS or stream.frames * context.width * context.height > MAX_PIXELS:
            raise _too_large(f"{lasts:,.0f} s, {stream.frames:,} × {context.width:,} × {context.height:,}")
        context.options = {
            "max_pixels": str(MAX_FRAME_PIXELS)
        }  # the header of a frame may be larger than that of the file
        notes = ("The video says that it is shown turned, which is not done.",) if _is_turned(stream) else ()
        frames = _checked(container.decode(stream), context.width, context.height)
        yield _Decoded(context.width, context.height, frames, float(stream.average_rate or 0), notes)


def _is_turned(stream: Any) -> bool:
    data = getattr(stream, "side_data", None) or {}
    return any("DISPLAYMATRIX" in str(key).upper() for key in data)


def _animation(content: bytes, kind: str) -> _Decoded:
    from PIL import Image, ImageSequence
    from PIL.GifImagePlugin import GifImageFile
    from PIL.WebPImagePlugin import WebPImageFile

    # By their headers, before Pillow allocates the pixels.
    _check_frame(*(webp_size(content) if kind == "WebP" else struct.unpack("<HH", content[6:10].ljust(4, b"\0"))))
    image: Image.Image = (GifImageFile if kind == "GIF" else WebPImageFile)(BytesIO(content))
    return _Decoded(*image.size, _checked(_loaded(ImageSequence.Iterator(image)), *image.size))


def _loaded(images: Iterator[Any]) -> Iterator[Any]:
    for image in images:
        _check_frame(*image.size)  # a frame of a GIF may be larger than its header says
        image.load()
        yield image


def _checked(frames: Iterator[Any], width: int, height: int) -> Iterator[Any]:
    """The frames, of which each has the size of the first, and no more come than are read."""
    for count, frame in enumerate(frames, 1):
        if count > MAX_FRAMES or count * width * height > MAX_PIXELS:
            raise _too_large(f"more than {count - 1:,} × {width:,} × {height:,}")
        if (frame.width, frame.height) != (width, height):
            raise FileError(
                f"The frames of a video have one size; got {width} × {height} and {frame.width} × {frame.height} (width × height): save it again."
            )
        yield frame


def _check_frame(width: int, height: int) -> None:
    if not (0 < width * height <= MAX_FRAME_PIXELS and max(width, height) <= _MAX_RATIO * min(width, height)):
        raise FileError(
            f"A frame of a video may have at most {MAX_FRAME_PIXELS:,} pixels, and one side at most {_MAX_RATIO} times the other; got {width:,} × {height:,} (width × height): save it smaller."
        )


def _too_large(what: str) -> FileError:
    return FileError(
        f"A video may have at most {MAX_FRAMES:,} frames, {MAX_SECONDS} s, and {MAX_PIXELS:,} pixels in all frames together; got {what} (frames × width × height): cut out a part, or save it smaller."
    )


def _kind(content: bytes) -> str:
    if content[4:8] == b"ftyp":
        return "MP4"
    if content.startswith(_MKV):
        return "WebM"
    if content.startswith(_GIF):
        return "GIF"
    if content.startswith(_RIFF) and content[8:12] == b"WEBP":
        return "WebP"
    raise FileError(
        f"A video is an MP4, MOV, WebM, GIF or WebP file; got {'an empty file' if not content else 'a file of another kind'}: save it as one of these, or give its frames as a list of pictures."
    )


def _broken(kind: str) -> FileError:
    return FileError(f"This {kind} file is broken or cut off, so its frames cannot be read: save or download it again.")
