"""Hostile results over many texts: Parquet files that are damaged, that claim more than they have, or that unpack to far more."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attention.corpus.digest import MAX_OFFSET, N_BINS
from attention.corpus.heads_table import COLUMNS
from attention.corpus.run_plan import READ, RunPlan
from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.session import Session
from benchmarks.uploads import TAKEN, unrefused

FIELD, OPENED = "heads_result_upload", "heads_over=many+texts&heads_show=one+head"
ABOUT = {
    "plan": asdict(RunPlan("x", "", "", "float32", 1, "", 0)), "layers": [0], "heads": [1], "metrics": ["x"],
    "offsets": MAX_OFFSET, "map_texts": 0, "read": dict.fromkeys(READ, 1),
}  # fmt: skip
RIGHT: dict[str, Any] = dict.fromkeys(COLUMNS) | {
    **{name: 0 for name, kind in COLUMNS.items() if pa.types.is_integer(kind)},
    "metric": "x", "mean": 0.5, "count": 1, "low": 0.0, "high": 1.0, "top": [],
    "histogram": [1] + [0] * (N_BINS - 1), "offset_weights": [0.0] * (2 * MAX_OFFSET + 1),
}  # fmt: skip


def heads_parquet(about: bytes = json.dumps(ABOUT).encode(), **columns: Any) -> bytes:
    """A heads.parquet of one head and one metric, which is right but for the description and the columns that are given."""
    arrays = {name: columns.get(name, pa.array([RIGHT[name]], kind)) for name, kind in COLUMNS.items()}
    buffer = io.BytesIO()
    pq.write_table(pa.table(arrays).replace_schema_metadata({b"attention_lab": about}), buffer, compression="zstd")
    return buffer.getvalue()


EXAMPLE = {"value": 0.5, "number": 0, "query": 0, "key": 0, "keys": [0], "weights": [1.0], "text": "x", "tokens": ["x"]}
"""A right one of a head."""


def zeros(count: int, kind: Any) -> Any:
    """A column with one list of zeros."""
    values = np.zeros(count, kind.value_type.to_pandas_dtype())
    return pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), pa.array(values))


def examples(count: int, **fields: Any) -> Any:
    """A column with equal examples, of which all but one are one run of indices."""
    return pa.array([[EXAMPLE | fields] * count], COLUMNS["top"])


def bombs(n_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Each file that unpacks to more bytes than this, with its name."""
    yield "zeros", heads_parquet(histogram=zeros(n_bytes // 8, COLUMNS["histogram"]))
    yield "zeros-in-a-map", heads_parquet(mean_map=zeros(n_bytes // 4, COLUMNS["mean_map"]))
    yield "long-text", heads_parquet(top=examples(n_bytes // 2**20, text="x" * 2**20))
    yield "many-tokens", heads_parquet(top=examples(1, tokens=["x" * 2**10] * (n_bytes // 2**10)))


def hostile_results() -> Iterator[tuple[str, bytes]]:
    """Each hostile file with its name."""
    yield from bombs(2**29)
    right = heads_parquet()
    yield "truncated", right[: len(right) // 2]
    yield "footer-beyond-the-file", right[:-8] + struct.pack("<I", 2**31 - 1) + b"PAR1"
    yield "footer-of-zeros", right[:4] + bytes(2**20) + struct.pack("<I", 2**20) + b"PAR1"
    yield "deep-description", heads_parquet(b"[" * 2**20)
    yield "large-description", heads_parquet(b'"' + b"x" * 2**22 + b'"')
    yield "no-parquet", b"PAR1" * 2**20


async def open_hostile(server: Server) -> list[str]:
    """Uploads each hostile file as a result; each must be answered by a sentence."""
    broken = []
    for name, content in hostile_results():
        async with Session(server.base, OPENED, page="heads", timeout=300) as session:
            await session.open()
            status, run = await session.upload(FIELD, f"{name}.parquet", content)
            broken += unrefused([status], TAKEN)
            broken += run.exceptions or ([] if run.sentences else [f"{name}: no sentence"]) if run else []
    if "Traceback" in server.errors():
        broken.append(f"the server's log after hostile results: {server.errors()[-1500:]}")
    return broken


ATTACKS = (Attack("Parquet files that lie, are damaged or unpack to 512 MB, as a result", open_hostile, 550, {}),)
