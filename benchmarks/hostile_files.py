"""Hostile files: paths to other folders, false headers, compressed bombs, pickles with code, texts in no encoding."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
import zlib
from base64 import urlsafe_b64encode
from typing import Any

from hypothesis import strategies as st

_ENDINGS = (".csv", ".tsv", ".txt", ".npy")
_STEMS = (
    "x", "", "<img src=x onerror=window.pwned=1>", "<script>window.pwned=1</script>", "../../../../tmp/pwned", "..\\..\\pwned",
    "a" * 250, "x\r\nX-Pwned: 1", 'x"; filename="y', "\u202evsc.", "![x](http://attacker.invalid/p.png)", "$\\frac{1}{0}$",
    "x.npy", "%2e%2e%2fx", "CON", "💥", ":red[x]",
)  # fmt: skip
stems = st.sampled_from(_STEMS)
MARKUP = "<img src=x onerror=window.pwned=1>![x](http://attacker.invalid/p.png)"


class _Runs:
    """An object that creates a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.system, ("touch pwned",)


def npy(header: str, body: bytes = b"", version: int = 1) -> bytes:
    """A .npy file with any header."""
    text = header.encode("latin-1", "replace")
    return b"\x93NUMPY" + bytes((version, 0)) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + body


def _entry(name: str) -> zipfile.ZipInfo:
    """A compressed file of an archive without its time, so that the bytes are the same in every run."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def bomb(megabytes: int, name: str) -> bytes:
    """A small zip archive of many MB of zeros."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, archive.open(_entry(name), "w") as inside:
        for _ in range(megabytes):
            inside.write(b"0" * 2**20)
    return buffer.getvalue()


_BOMB = bomb(60, "arr_0.npy")
_PICKLE = pickle.dumps(_Runs())
_DTYPES = (
    "<f8",
    "<f4",
    ">f8",
    "<i8",
    "|O",
    "|V8",
    "<c16",
    "<U9",
    "|S4",
    "<f16",
    "<M8[ns]",
    "|b1",
    "<f2",
    "no",
    "<f99999999999",
    "<f8,<f8",
)
_SHAPES = (
    "(2, 2)", "()", "(0, 0)", "(-1, 4)", "(1000000000, 1000000000)", "(2, 2, 2)", "(1024, 1024)", "(4,)", "(1.5, 2)", "('a',)", "(True, 2)",
    "(10**9,)", "(" + "1," * 400 + ")", "(9223372036854775807, 2)", "(1, 2", "[2, 2]", "__import__('os').system('touch pwned')",
)  # fmt: skip
_npy = st.builds(
    lambda dtype, shape, order, body, version: npy(f"{{'descr': {dtype!r}, 'fortran_order': {order}, 'shape': {shape}, }}\n", body, version),
    st.sampled_from(_DTYPES),
    st.sampled_from(_SHAPES),
    st.sampled_from(("False", "True", "None", "1e9")),
    st.one_of(st.just(struct.pack("<4d", 1, 2, 3, 4)), st.just(struct.pack("<4d", *[float("nan")] * 4)), st.just(_PICKLE), st.binary(max_size=64)),
    st.sampled_from((1, 1, 2, 3, 9)),
)  # fmt: skip
_BYTES = (
    b"", b"\0" * 1000, _BOMB, _PICKLE, b"PK\x03\x04", b"\x93NUMPY", b"\x93NUMPY\x01\x00\xff\xff{", b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
    npy("{" * 5000), npy("(" * 60_000), npy("[" * 200 + "]" * 200), npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2, 2)}"),
    npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n", _PICKLE), b"GIF89a<script>window.pwned=1</script>",
    b"\x1f\x8b\x08" + b"\0" * 50, "1,2\n3,4".encode("utf-16"), "1,2\n3,4".encode("utf-32"), b"\xef\xbb\xbf1,2\n3,4", b"\xfe\xff1,2",
    b"1,2\n\xff\xfe3,4", "1,2\n3,−4 é".encode("latin-1", "replace"), b"\x1b[2J1,2",
)  # fmt: skip
_CELLS = (
    "1", "2", "-0.5", "1e308", "1e400", "nan", "inf", "", "x", "<script>window.pwned=1</script>", "=cmd|' /C calc'!A0", '"', "'1'", "1,5",
    "9" * 400, "0" * 4000, "[", "]", "tensor(1)", "np.float64(1)", "\0", "１", "1_0", "- 1", "#", "![x](http://attacker.invalid/p.png)",
)  # fmt: skip
_rows = st.lists(st.lists(st.sampled_from(_CELLS), min_size=1, max_size=6), min_size=1, max_size=6)
_csv = st.builds(
    lambda rows, cell, line, encoding: line.join(cell.join(row) for row in rows).encode(encoding, "replace"),
    _rows,
    st.sampled_from((",", ";", "\t", " ", "|")),
    st.sampled_from(("\n", "\r\n", "\r", ";", "\n\n")),
    st.sampled_from(("utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-7", "cp1252")),
)
# Long ones that a careless pattern or a recursive reader would chew on for minutes.
_LONG = tuple(
    (piece * (300_000 // len(piece))).encode()
    for piece in (
        "[",
        "1,",
        "1\n",
        " ",
        "((",
        "tensor(",
        "np.float64(",
        "x=",
        "1e",
        "-",
        ",'\"",
        "9",
        "array([[1],",
        "1,1\n" * 1100 + "\n",
    )
)
_valid = st.sampled_from(
    (
        b"1,2\n3,4\n",
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), }\n", struct.pack("<4d", 1, 2, 3, 4)),
    )
)
_cut = st.tuples(st.one_of(_npy, _csv), st.integers(0, 200)).map(lambda pair: pair[0][: pair[1]])
_other = st.one_of(_cut, st.sampled_from(_BYTES), st.sampled_from(_LONG), st.binary(max_size=300), _valid)


def _named(endings: tuple[str, ...], content: st.SearchStrategy[bytes]) -> st.SearchStrategy[tuple[str, bytes]]:
    return st.tuples(st.tuples(stems, st.sampled_from(endings)).map("".join), content)


# A name with its bytes, most of which are what the name says, or nearly.
files = st.one_of(
    _named((".npy",), _npy),
    _named(_ENDINGS[:3], _csv),
    _named(_ENDINGS, _other),
    _named(_ENDINGS, st.one_of(_npy, _csv)),
)


def _npz(names: tuple[str, ...], bodies: tuple[bytes, ...]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, body in zip(names, bodies, strict=False):
            archive.writestr(_entry(f"{name}.npy"), body)
    return buffer.getvalue()


def tensors(header: bytes, body: bytes = b"", length: int | None = None) -> bytes:
    """A .safetensors file with any header, whose length may be false."""
    return struct.pack("<Q", len(header) if length is None else length) + header + body


_NAMES = st.sampled_from(
    ("weights", "query", "key", "value", "scores", "mask", "bias", "tokens", "key_tokens", "divisor", "scaling", "about", "L0.weights", "L0.query", "L0.key",
     "arr_1", "layer_0", "layer_1", "attentions", "attentions.0.1", "layer0_head1", "step_1", "sentence_1_layer_2", "encoder_attentions", "Q", "blocks.0.hook_q", "attn_mask",
     "key_padding_mask", "attention_mask", "input_ids", "attention_scores", "tokens_1", "1." * 99, "L0.H1.weights", "L9999.scores", "L0.w_q", "L0.bias_table", "../../pwned", "arr_0", "", "__class__", "x" * 300, MARKUP)
)  # fmt: skip
_GOOD = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2, 2), }\n", struct.pack("<4d", 0.5, 0.5, 1, 0))
_SAID = (
    {"layers": [{"number": 0, "name": MARKUP, "formula": {"score": "additive", "rotary": 1e-9, "temperature": 0}}], "notes": [MARKUP] * 99, "random": True},
    {"layers": [{"number": 0, "formula": {"mask": {"kind": "custom", "cells": "4000x4000.eNpz"}, "normalizer": "sigmoid"}, "tokens": [MARKUP, "\0"]}], "tokens": "ab"},
    {"layers": {"0": 1}, "notes": {"a": 1}, "tokens": [1, None], "divisor": -1}, {"layers": [[], None, 3]}, {"tokens": ["a" * 10**5] * 2},
)  # fmt: skip
_about = st.sampled_from(_SAID).map(lambda said: json.dumps(said).encode())


def _text_npy(text: bytes) -> bytes:
    """A text as a .npy file."""
    return npy(f"{{'descr': '|S{len(text)}', 'fortran_order': False, 'shape': (), }}\n", text)


_said_npy = _about.map(_text_npy)
_bodies = st.lists(st.one_of(st.just(_GOOD), st.just(_GOOD), _npy, _said_npy), min_size=1, max_size=4).map(tuple)
_dtype = st.sampled_from(("F64", "F32", "BF16", "F16", "F8_E4M3", "BOOL", "I64", "U64", "X", 3, None))
_shape = st.sampled_from(([1, 2, 2], [2, 2], [], [0], [-1, 2], [10**9] * 3, [1.5], "x", [True, 2], [1] * 400))
_place = st.sampled_from(
    ([0, 32], [0, 16], [0, 8], [0, 4], [0, 0], [32, 0], [-8, 8], [0, 10**18], [0], "x", [2**70, 2**71])
)
_tensor = st.fixed_dictionaries({"dtype": _dtype, "shape": _shape, "data_offsets": _place})
_safetensors = st.builds(
    lambda header, said, length: tensors(json.dumps({**header, "__metadata__": {"trace": said.decode(), "tokens": "[[[["}}).encode(), b"\0" * 32, length),
    st.dictionaries(_NAMES, st.one_of(_tensor, _tensor, st.just(3)), max_size=4),
    _about,
    st.sampled_from((None, None, None, 10**11, 2**64 - 1, 5)),
)  # fmt: skip
_json = st.dictionaries(
    _NAMES,
    st.recursive(
        st.one_of(st.floats(), st.integers(), st.booleans(), st.none(), st.just(MARKUP)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=3)),
        max_leaves=12,
    ),
    max_size=5,
).map(lambda said: json.dumps(said).encode())
_HUGE = (
    b"PK\x01\x02" * 10**6, bomb(60, "weights.npy"), tensors(b"{" * 2**20), tensors(b'{"a":' * 2**17), b"[" * 10**6, b"[" * 2**17, b'{"weights":' * 2**16,
    b"[" + b"1," * 2**21 + b"1]", tensors(b"{}", length=10**11), npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000, 1000), }\n"),
)  # fmt: skip
# Traces of pictures whose places and pixels are nearly right.
_number = st.one_of(
    st.integers(0, 2), st.integers(0, 2), st.sampled_from((-1, 10**9, 2**70, 0.5, True, None, "0", MARKUP))
)
_places = st.one_of(
    st.just([[0, 0, 0, 0, 0, 0, 1, 1], [1, 0, 0, 1, 1, 0, 2, 1]]),
    st.lists(st.lists(_number, min_size=7, max_size=9), max_size=4),
    _number,
)
_picture_said = st.fixed_dictionaries({
    "rows": _number, "columns": _number, "patch_size": st.one_of(st.just([1, 1]), st.lists(_number, max_size=3), _number),
    "words": st.sampled_from((MARKUP, "not resized", 7)), "digest": st.sampled_from((MARKUP, "0f", None)),
})  # fmt: skip
_pictures_said = st.one_of(
    st.just([{"rows": 2, "columns": 2, "patch_size": [1, 1]}]),
    st.lists(_picture_said, max_size=2),
    st.just([{}] * 9999),
)
_pixels = st.sampled_from((
    npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2, 3), }\n", bytes(range(12))),
    npy("{'descr': '|u1', 'fortran_order': False, 'shape': (100000, 100000, 3), }\n", bytes(range(12))),
    npy("{'descr': '<f8', 'fortran_order': True, 'shape': (1, 1, 3), }\n", struct.pack("<3d", 0.5, float("nan"), 1e300)), _GOOD, bomb(60, "x"),
))  # fmt: skip
pictured = st.builds(
    lambda pixels, pictures, places, of_keys: _npz(
        ("L0.weights", "picture0", "about"),
        (_GOOD, pixels, _text_npy(json.dumps({"layers": [{"number": 0, "name": "layer 0"}], "pictures": pictures, "patches": places, "key_patches": of_keys}).encode())),
    ),
    _pixels, _pictures_said, _places, _places,
)  # fmt: skip
# Files of attention, most of which are what their names say, or nearly.
saved = st.one_of(
    _named((".npz",), st.builds(_npz, st.lists(_NAMES, min_size=4, max_size=4, unique=True).map(tuple), _bodies)),
    _named((".safetensors",), _safetensors),
    _named((".npz",), pictured),
    _named((".json",), _json),
    _named((".npy",), _npy),
    _named((".npz", ".npy", ".safetensors", ".json"), st.one_of(st.sampled_from(_HUGE), st.sampled_from(_BYTES), st.binary(max_size=300))),
)  # fmt: skip


def states(keys: tuple[str, ...], values: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """State files: invalid JSON, JSON of another shape, or known keys with values of any kind."""
    anything = st.recursive(
        st.one_of(values, st.none(), st.booleans(), st.floats(), st.integers()),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
        max_leaves=6,
    )
    known = st.sampled_from((*keys, *keys, "version", "state", "__proto__", "lab_" + "x" * 50))
    state = st.dictionaries(known, values, max_size=8)
    page = st.sampled_from(("Lab", "Explore", "Heads", "Masks", "Softmax", "Reference", "x", "../app.py", 7))
    valid = st.builds(lambda page, state: {"attention lab": 1, "page": page, "state": state}, page, state)
    nearly = st.builds(
        lambda one, more: {**one, **more},
        valid,
        st.dictionaries(st.sampled_from(("attention lab", "page", "state")), anything),
    )
    written = st.one_of(valid, valid, valid, nearly, st.dictionaries(known, anything, max_size=8), anything).map(
        json.dumps
    )
    broken = st.sampled_from(
        (
            "",
            "{",
            "[" * 100_000,
            '{"a":' * 20_000,
            "null",
            '"\\ud800"',
            '{"text": "\\ud800\\u0000"}',
            "NaN",
            "1e999",
            "9" * 10_000,
            "{}{}",
            "// x",
        )
    )
    return st.one_of(
        written.map(str.encode),
        broken.map(str.encode),
        st.sampled_from((_BOMB, _PICKLE, b"\xff\xfe{}")),
        st.binary(max_size=60),
    )


_LESSON = (
    "title: One score", "state: text=the+owl+asked&heads=1", "show: weights 2", "kind: choice", "options: yes | no",
    "question: Is it?", "answer: key(weights, q=2)", "tolerance: 0.1", "turn: temperature=0.3", "hide: weights 2",
)  # fmt: skip
_ANSWERS = (
    "given('yes')", "number(weights, q=2, k=1)", "().__class__", "__import__('os').system('touch pwned')", "(" * 5000, "1" * 9999, "compare(",
    "key(weights, q=999999)", "number(weights, q=-1, k=9e9)", "key(nothing)", "[x for x in y]", "lambda: 0", "9**9**9",
)  # fmt: skip


def mostly(frequent: st.SearchStrategy[str], rare: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """`frequent` three times as often as `rare`, however many kinds that has."""
    return st.sampled_from((frequent, frequent, frequent, rare)).flatmap(lambda chosen: chosen)


def lessons(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Files of lessons: a valid one with some lines replaced, once or a hundred times, or text that is no lesson."""
    keys = st.sampled_from([line.partition(":")[0] for line in _LESSON] + ["explain", "turned", "next", "__proto__"])
    spoilt = st.one_of(
        st.builds("answer: {}".format, st.sampled_from(_ANSWERS)),
        st.builds("{}: {}".format, keys, values),
        st.builds("- {}: {}".format, values, values),
    )

    def file(lines: list[str], body: str, times: int) -> str:
        lines_of_lesson = {line.partition(":")[0]: line for line in (*_LESSON, *lines)}
        return f"---\n{chr(10).join(lines_of_lesson.values())}\n---\n{body}\n- no: Look again.\n" * times

    written = st.builds(
        file, st.lists(spoilt, max_size=3), st.one_of(st.just("Look."), values), st.sampled_from((1, 1, 2, 100))
    )
    return mostly(written, values)


def in_link(content: str) -> str:
    """The file as a link carries it, also one that our pages would not write."""
    return urlsafe_b64encode(zlib.compress(content.encode(errors="replace"))).decode().rstrip("=")
