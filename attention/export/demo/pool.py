"""The arrays of a state, deduplicated; the state as bytes and as a script."""

from __future__ import annotations

import json
import struct
import zlib
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ArrayPool:
    """The arrays of a state, each stored once, however many messages refer to it."""

    def __init__(self) -> None:
        self.raw = bytearray()
        self._known: dict[tuple[str, tuple[int, ...], bytes], int] = {}

    def add(self, array: NDArray[Any]) -> dict[str, Any]:
        """Stores an array and returns its reference, in the form used by messages."""
        array = np.ascontiguousarray(array)
        return self._store(array.dtype.str.lstrip("<|"), array.shape, array.tobytes())

    def header(self, message: bytes) -> Any:
        """The header of a packed message, with its arrays moved into this pool."""
        (size,) = struct.unpack_from("<I", message)

        def move_array(value: dict[str, Any]) -> Any:
            if not isinstance(array := value.get("array"), dict):
                return value
            dtype, shape, start = array["dtype"], tuple(array["shape"]), 4 + size + array["at"]
            raw = message[start : start + int(np.prod(shape)) * np.dtype(dtype).itemsize]
            return self._store(dtype, shape, raw)

        return json.loads(message[4 : 4 + size], object_hook=move_array)

    def _store(self, dtype: str, shape: tuple[int, ...], raw: bytes) -> dict[str, Any]:
        key = (dtype, shape, raw)
        if key not in self._known:
            self._known[key] = len(self.raw)
            self.raw += raw + b"\0" * (-len(raw) % 8)
        return {"array": {"dtype": dtype, "at": self._known[key], "shape": list(shape)}}

    def pack(self, header: Any) -> bytes:
        """A header and the arrays, in the layout of `message.pack`."""
        text = json.dumps(header, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-(4 + len(text)) % 8)
        return struct.pack("<I", len(text)) + text + bytes(self.raw)


def as_script(name: str, content: bytes) -> bytes:
    """A state as a script that passes it to the page, compressed and base64-encoded: a page opened from a file may not fetch anything."""
    compressor = zlib.compressobj(9, wbits=31)  # gzip without a time stamp
    text = b64encode(compressor.compress(content) + compressor.flush()).decode()
    return f"attentionDemo({json.dumps(name)}, {json.dumps(text)});\n".encode()
