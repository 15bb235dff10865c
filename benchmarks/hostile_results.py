"""Hostile results over many texts: Parquet files that are damaged, that claim more than they have, or that unpack to far more."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.session import Session
from benchmarks.uploads import TAKEN, unrefused

FIELD, OPENED = "heads_result_upload", "heads_over=many+texts"
ROWS = 2**24
"""Rows of a column that is the same number throughout: 128 MB when it is unpacked."""


def parquet(columns: dict[str, Any], metadata: bytes = b"{}") -> bytes:
    """A Parquet file with any columns, and an entry where a result has its description."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    table = pa.table(columns).replace_schema_metadata({b"attention_lab": metadata})
    pq.write_table(table, buffer, compression="zstd", row_group_size=len(table))
    return buffer.getvalue()


def hostile_results() -> Iterator[tuple[str, bytes]]:
    """Each hostile file with its name."""
    zeros = np.zeros(ROWS)
    bomb = parquet({"layer": zeros, "mean": zeros, "metric": ["x" * 2**20] * 64 + [""] * (ROWS - 64)})
    yield "bomb", bomb
    yield "truncated", bomb[: len(bomb) // 2]
    yield "footer-beyond-the-file", bomb[:-8] + struct.pack("<I", 2**31 - 1) + b"PAR1"
    yield "footer-of-zeros", bomb[:4] + bytes(2**20) + struct.pack("<I", 2**20) + b"PAR1"
    yield "deep-description", parquet({"layer": [0]}, b"[" * 2**20)
    yield "large-description", parquet({"layer": [0]}, b'"' + b"x" * 2**22 + b'"')
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


ATTACKS = (
    Attack("Parquet files that lie, are damaged or unpack to 128 MB a column, as a result", open_hostile, 550, {}),
)
