"""A picture file as rows of red, green and blue: PNG, JPEG or WebP, checked before it is decoded, without its metadata.

A `Picture` keeps the file and decodes it when its pixels are read: the pixels of a photo take ten times the memory of its file.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from hashlib import blake2b
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError
from attention.files.archives import read_at_most

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

_MAX_BYTES = 2**25  # the largest picture file
_MAX_PIXELS = 2**25  # the largest number of pixels of a picture; it is decoded to 3 bytes for each
_MAX_SCANS = 50
"""The largest number of scans of a JPEG, each of which goes over all pixels; a progressive one has about 10."""
_MAX_RATIO = 16
"""The largest ratio of the sides of a picture: a processor that gives the shorter side a fixed length makes the longer one this much longer."""

TURNED = "The picture is turned as its EXIF orientation says."
SIXTEEN_BIT = "The picture has numbers of 16 bit: the upper 8 are read."
ON_WHITE = "The transparent parts of the picture are laid on white."
"""The notes on a picture whose pixels are not those of its file."""

_KINDS = {"PNG": b"\x89PNG\r\n\x1a\n", "JPEG": b"\xff\xd8\xff", "WebP": b"RIFF"}  # how each kind of file begins
_WEBP_HEADER = 30  # bytes
# Of memory while it is decoded; transparency or many scans take most.
_BYTES_OF_PIXEL = {"PNG": 16, "JPEG": 12, "WebP": 16}
_ORIENTATION = 0x0112  # the tag of EXIF
_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")  # the next marker of a JPEG, behind the data of a scan
_SCAN, _END, _STANDALONE = 0xDA, 0xD9, frozenset((0x01, 0xD8))  # markers of a JPEG; the last ones have no length


@dataclass(frozen=True)
class Picture:
    """A picture, compared by its digest.

    Pixels alone are read, and of the metadata the orientation: not the place where a photo was taken, nor the colour profile (sRGB is assumed).

    Attributes:
        digest: of the file, BLAKE2b in hexadecimal.
        width: number of pixels in a row.
        height: number of rows.
        content: the file; or red, green and blue of each pixel, a byte each, row by row.
        kind: "PNG", "JPEG" or "WebP"; empty: `content` has the pixels.
        notes: what was done to the file's own pixels, a sentence each.
        name: of the file; empty if it is not known.
    """

    digest: str
    width: int = field(compare=False)
    height: int = field(compare=False)
    content: bytes = field(compare=False, repr=False)
    kind: str = field(default="", compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    name: str = field(default="", compare=False)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Picture:
        """The picture of a file.

        Raises:
            FileError: there is no such file, or as for `of`.
        """
        return cls.of(read_at_most(path, _MAX_BYTES, "A picture is a PNG, JPEG or WebP file"), Path(path).name)

    @classmethod
    def of(cls, content: Any, name: str = "", max_pixels: int = _MAX_PIXELS) -> Picture:
        """The picture of the bytes of a file, or of an image of Pillow.

        The first frame of an animation; turned as its EXIF orientation says. Of numbers of 16 bit, the upper 8 are read; CMYK and palettes
        become red, green and blue as Pillow converts them; transparent parts are laid on white.

        Raises:
            FileError: it is no PNG, JPEG or WebP, it is broken, or it is too large.
        """
        if isinstance(content, Picture):
            return content
        if isinstance(content, bytes | bytearray | memoryview):
            content = bytes(content)
            kind = _kind(content)
            rgb, notes = _decoded(content, kind, max_pixels)  # once, since a broken file shows only then
            digest = blake2b(content, digest_size=16).hexdigest()
            return cls(digest, rgb.width, rgb.height, content, kind, notes, name)
        from PIL.Image import Image

        if not isinstance(content, Image):
            raise FileError(
                f"A picture is the path or the bytes of a PNG, JPEG or WebP file, or an image of Pillow; got a {type(content).__name__}: give one of these, such as PIL.Image.fromarray(array) of [row column 3] from 0 to 255."
            )
        _check_size(*content.size, max_pixels)
        rgb, notes = _converted(content, "image of Pillow")
        pixels = rgb.tobytes()
        digest = blake2b(repr(rgb.size).encode() + pixels, digest_size=16).hexdigest()
        return cls(digest, rgb.width, rgb.height, pixels, notes=notes, name=name)

    def pixels(self) -> NDArray[uint8]:
        """Red, green and blue, [row column 3] from 0 to 255; of a file, decoded anew."""
        import numpy as np

        rgb = _decoded(self.content, self.kind, _MAX_PIXELS)[0].tobytes() if self.kind else self.content
        return np.frombuffer(rgb, np.uint8).reshape(self.height, self.width, 3)

    def preview(self, side: int) -> bytes:
        """A PNG file of the picture whose longer side has at most `side` pixels."""
        from PIL import Image

        image = _decoded(self.content, self.kind, _MAX_PIXELS, side)[0] if self.kind else Image.fromarray(self.pixels())
        image.thumbnail((side, side))
        stream = BytesIO()
        image.save(stream, "PNG")
        return stream.getvalue()


def bytes_to_decode(content: bytes, max_pixels: int = _MAX_PIXELS) -> int:
    """The bytes of memory that reading a picture file takes, from its header.

    Raises:
        FileError: it is no PNG, JPEG or WebP, or it is too large.
    """
    kind = _kind(content)
    width, height = _size(content, kind, max_pixels)
    return width * height * _BYTES_OF_PIXEL[kind]


def _decoded(content: bytes, kind: str, max_pixels: int, side: int = 0) -> tuple[Any, tuple[str, ...]]:
    """The image of Pillow, in RGB, of a file of this kind, checked before it is decoded; and what was done to it.

    Where only a `side` of so many pixels is needed, a JPEG is decoded to a smaller one, which is much faster.
    """
    _size(content, kind, max_pixels)
    if kind == "JPEG":
        _check_scans(content)
    try:
        image = _opener(kind)(BytesIO(content))
        if side:
            image.draft("RGB", (2 * side, 2 * side))
        return _converted(image, f"{kind} file")
    except FileError:
        raise
    except Exception as error:  # a broken file can raise anything in Pillow
        raise _broken(kind) from error


def _converted(image: Any, what: str) -> tuple[Any, tuple[str, ...]]:
    import numpy as np
    from PIL import Image, ImageOps

    notes = []
    if getattr(image, "n_frames", 1) > 1:
        notes.append(f"The picture is an animation of {image.n_frames:,} frames: the first is read.")
    image.load()
    turned = ImageOps.exif_transpose(image) if _is_turned(image) else image
    if turned is not image:
        notes.append(TURNED)
    if turned.mode.startswith("I;16"):
        turned = Image.fromarray((np.asarray(turned).astype(np.uint16) >> 8).astype(np.uint8))
        notes.append(SIXTEEN_BIT)
    if turned.has_transparency_data:
        layer = turned.convert("RGBA")
        alpha = layer.getchannel("A")
        turned = Image.new("RGB", layer.size, "white")
        turned.paste(layer, mask=alpha)
        if alpha.getextrema() != (255, 255):
            notes.append(ON_WHITE)
    if turned.mode in ("I", "F"):
        raise FileError(
            f"A picture has numbers of 8 or 16 bit; this {what} has others: save it with 8 bit for each colour."
        )
    return turned.convert("RGB"), tuple(notes)


def _kind(content: bytes) -> str:
    kind = next((kind for kind, start in _KINDS.items() if content.startswith(start)), "")
    if not kind or (kind == "WebP" and content[8:12] != b"WEBP"):
        raise FileError(
            f"A picture is a PNG, JPEG or WebP file; got {_other_kind(content)}: save it as one of these, and give that."
        )
    if len(content) > _MAX_BYTES:
        raise FileError(
            f"A picture file may take at most {_MAX_BYTES / 2**20:.0f} MB; got more: save it smaller, or as JPEG."
        )
    return kind


def _size(content: bytes, kind: str, max_pixels: int) -> tuple[int, int]:
    if kind == "WebP":  # Pillow allocates the pixels when it opens one
        width, height = webp_size(content)
    else:
        try:
            width, height = _opener(kind)(BytesIO(content)).size
        except Exception as error:  # a broken file can raise anything in Pillow
            raise _broken(kind) from error
    _check_size(width, height, max_pixels)
    return width, height


def _opener(kind: str) -> Any:
    """The class of Pillow that reads this kind of file, and no other; `Image.open` would try more, and warn of large files only."""
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile
    from PIL.WebPImagePlugin import WebPImageFile

    return {"PNG": PngImageFile, "JPEG": JpegImageFile, "WebP": WebPImageFile}[kind]


def _check_scans(content: bytes) -> None:
    """Raises FileError if a JPEG has too many scans: with a thousand of them, a file of 100 KB would take half a minute."""
    if content.count(bytes((0xFF, _SCAN))) <= _MAX_SCANS:  # a fast test: other data may have these bytes, too
        return
    n_scans = position = 0
    while n_scans <= _MAX_SCANS and (marker := _MARKER.search(content, position)):
        code, position = marker[1][0], marker.end()
        if code == _END:
            return
        n_scans += code == _SCAN
        position += 0 if code in _STANDALONE else int.from_bytes(content[position : position + 2], "big")
    if n_scans > _MAX_SCANS:
        raise FileError(
            f"A JPEG may have at most {_MAX_SCANS} scans, since each goes over all pixels; this one has more: save it again."
        )


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if not 0 < width * height <= max_pixels:
        raise FileError(
            f"A picture may have at most {max_pixels:,} pixels; got {width:,} × {height:,} (width × height): save it smaller."
        )
    if max(width, height) > _MAX_RATIO * min(width, height):
        raise FileError(
            f"One side of a picture may be at most {_MAX_RATIO} times as long as the other; got {width:,} × {height:,} (width × height): cut a part of it."
        )


def webp_size(content: bytes) -> tuple[int, int]:
    """The width and height of a WebP file, from its header.

    Raises:
        FileError: it has none.
    """
    header = content[:_WEBP_HEADER].ljust(_WEBP_HEADER, b"\0")
    match header[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", header[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack("<I", header[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(header[24:27], "little") + 1, int.from_bytes(header[27:30], "little") + 1
    raise _broken("WebP")


def _is_turned(image: Any) -> bool:
    """Whether the EXIF of an image has an orientation other than upright; broken EXIF has none."""
    try:
        return image.getexif().get(_ORIENTATION, 1) in range(2, 9)
    except Exception:  # broken EXIF can raise anything in Pillow
        return False


def _other_kind(content: bytes) -> str:
    """What a file is that is no picture we read, as far as its beginning shows it."""
    start = content[:300].lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    if not content:
        return "an empty file"
    if start.startswith((b"<svg", b"<?xml", b"<!doctype svg")):
        return "an SVG, a drawing without pixels"
    known = {b"gif8": "a GIF", b"bm": "a BMP", b"ii*\0": "a TIFF", b"mm\0*": "a TIFF", b"%pdf": "a PDF"}
    known_kind = next((name for prefix, name in known.items() if start.startswith(prefix)), "")
    return known_kind or ("a HEIC or AVIF" if start[4:8] == b"ftyp" else "a file of another kind")


def _broken(kind: str) -> FileError:
    return FileError(f"This {kind} file is broken or cut off, so its pixels cannot be read: save or download it again.")


def with_preview(content: bytes, name: str, max_pixels: int, side: int) -> tuple[Picture, bytes]:
    """A picture, and a small PNG of it whose longer side has at most `side` pixels.

    Raises:
        FileError: as for `Picture.of`.
    """
    picture = Picture.of(content, name, max_pixels)
    return picture, picture.preview(side)
