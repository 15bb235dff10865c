"""What `attention.corpus.result` runs in a process of its own: pyarrow reads a heads.parquet of a stranger, and the numbers leave as plain bytes.

pyarrow allocates what headers claim, so the process has a limit of memory. Nothing here calls what imports pandas, such as `pyarrow.array`: it would take half a second each time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attention.base.errors import FileError
from attention.corpus.digest import MAX_OFFSET, N_BINS
from attention.corpus.run_plan import METADATA, read_info

_EXCESS = ("excess_mean", "excess_sd", "excess_count")
"""Files of the first version have none."""
COUNTS = ("count", "queries", "shuffled_count", "random_count", "difference_count", "excess_count")
NUMBERS = (
    "mean", "sd", "count", "queries", "uniform", "shuffled_mean", "shuffled_sd", "shuffled_count", "random_mean", "random_sd",
    "random_count", "difference_mean", "difference_sd", "difference_count", *_EXCESS, "query_mean",
    "peak_offset", "peak_weight", "shuffled_peak_weight",
)  # fmt: skip
"""The numbers of a head and a metric. "Difference" is the value of a text minus that of its shuffled words, "excess" the value minus what the null
of the metric gives; the peak is the offset with the largest mean weight, other than the query itself and the token before it."""
LIMITS = ("low", "high")
HISTOGRAM, OFFSETS, MAP, EXAMPLES = "histogram", "offset_weights", "mean_map", "top"
COLUMNS: Mapping[str, pa.DataType] = {
    "layer": pa.int32(),
    "head": pa.int32(),
    "metric": pa.string(),
    **{name: pa.int64() if name in COUNTS else pa.float64() for name in (*NUMBERS, *LIMITS)},
    HISTOGRAM: pa.list_(pa.int64()),
    OFFSETS: pa.list_(pa.float32()),
    MAP: pa.list_(pa.float32()),
    EXAMPLES: pa.list_(
        pa.struct(
            {
                "value": pa.float64(),
                "number": pa.int64(),
                "query": pa.int32(),
                "key": pa.int32(),
                "keys": pa.list_(pa.int32()),
                "weights": pa.list_(pa.float32()),
                "text": pa.string(),
                "tokens": pa.list_(pa.string()),
            }
        )
    ),
}
"""The columns of the table."""
_BATCH = 64  # rows of examples that are unpacked at once


def shapes(info: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The type and the shape of each array that `numbers_of` writes, in this order.

    They are `NUMBERS` and `LIMITS` [head metric], the histogram [head metric bin], the weights [head offset], and the map [head query_pos key_pos], if there is one.
    """
    table, length = (sum(info["heads"]), len(info["metrics"])), info["plan"]["map_length"]
    arrays: dict[str, tuple[str, tuple[int, ...]]] = dict.fromkeys((*NUMBERS, *LIMITS), ("<f8", table))
    arrays[HISTOGRAM] = "<i4", (*table, N_BINS)
    arrays[OFFSETS] = "<f8", (table[0], 2 * MAX_OFFSET + 1)
    if info["map_texts"] and length:
        arrays[MAP] = "<f8", (table[0], length, length)
    return arrays


def numbers_of(content: bytes, name: str) -> bytes:
    """All numbers of a file but its examples: the length of its description in eight bytes, this description, and the arrays of `shapes`. A missing number is NaN.

    Raises:
        FileError: it is no Parquet file, or not the table of a run.
    """
    with _damage(name):
        file, about, info = _opened(content, name)
        names = [name for name in COLUMNS if name in file.schema_arrow.names and name != EXAMPLES]
        table = file.read(names, use_threads=False)
        n_heads, n_metrics = sum(info["heads"]), len(info["metrics"])
        metrics = table["metric"].dictionary_encode().combine_chunks()
        places = (
            np.repeat(info["layers"], info["heads"]).repeat(n_metrics),
            np.concatenate([np.arange(n) for n in info["heads"]]).repeat(n_metrics),
            np.tile(np.arange(n_metrics), n_heads),
        )
        found = (_numbers(table["layer"]), _numbers(table["head"]), _numbers(metrics.indices))
        if metrics.dictionary.to_pylist() != info["metrics"] or not np.array_equal(places, found):
            raise FileError(
                f"{name} should have one row for each head and metric, in their order; it has others: use the file that the run wrote."
            )
        parts = [len(about).to_bytes(8, "little"), about]
        for key, (dtype, shape) in shapes(info).items():
            if key not in table.column_names:  # of the first version
                values = np.full(shape, 0.0 if key in COUNTS else np.nan)
            elif pa.types.is_list(table[key].type):
                every = n_metrics if key in (OFFSETS, MAP) else 1  # only the first row of a head has them
                values = _lists(table[key], slice(0, None, every), prod(shape) * every // len(table))
            else:
                values = _numbers(table[key])
            parts.append((values.clip(-1, 2**31 - 1) if dtype == "<i4" else values).astype(dtype).tobytes())
        return b"".join(parts)


def examples_of(content: bytes, name: str, row: int) -> bytes:
    """The examples of a row as JSON: a list of objects.

    Raises:
        FileError: as for `numbers_of`.
    """
    with _damage(name):
        file, _, _ = _opened(content, name)
        group = 0
        while row >= (n_rows := file.metadata.row_group(group).num_rows):
            group, row = group + 1, row - n_rows
        for batch in file.iter_batches(_BATCH, [group], [EXAMPLES], use_threads=False):
            if row < len(batch):
                return json.dumps(batch[EXAMPLES][row].as_py(), ensure_ascii=False).encode()
            row -= len(batch)
        raise ValueError


def damaged_error(name: str) -> FileError:
    """The error for a file that contradicts itself."""
    return FileError(
        f"{name} is damaged, or was not written by a run of attention.corpus: use the complete file that the run wrote."
    )


@contextmanager
def _damage(name: str) -> Iterator[None]:
    try:
        yield
    except (FileError, MemoryError):  # also pyarrow's
        raise
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        raise damaged_error(name) from error


def _opened(content: bytes, name: str) -> tuple[pq.ParquetFile, bytes, dict[str, Any]]:
    """A file with all columns of a run, its description, and this description as it is read."""
    file = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)
    about = (file.metadata.metadata or {}).get(METADATA)
    info = read_info(name, about)
    for column, kind in COLUMNS.items():
        place = file.schema_arrow.get_field_index(column)
        if place < 0 and column in _EXCESS:
            continue
        if place < 0 or file.schema_arrow.field(place).type != kind:
            what = "is missing" if place < 0 else "has another type"
            raise FileError(
                f"{name} should have the column {column} of the table of a run; it {what}: use the file that the run wrote."
            )
    n_rows = sum(info["heads"]) * len(info["metrics"])
    if file.metadata.num_rows != n_rows:
        raise FileError(
            f"{name} should have {n_rows:,} rows, one for each head and metric; it has {file.metadata.num_rows:,}: use the complete file that the run wrote."
        )
    return file, about or b"", info


def _numbers(column: Any) -> NDArray[np.float64]:
    """The numbers of a column without lists; NaN where there is none."""
    array = pc.cast(column, pa.float64(), safe=False)
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    return np.where(_is_there(array), np.frombuffer(array.buffers()[1], "<f8", len(array), array.offset * 8), np.nan)


def _lists(column: Any, rows: slice, length: int) -> NDArray[np.float64]:
    """The numbers of some rows of a column of lists of this length, [row element]."""
    array = column.combine_chunks()
    offsets = np.frombuffer(array.buffers()[1], "<i4", len(array) + 1, array.offset * 4)
    starts, stops = offsets[:-1][rows], offsets[1:][rows]
    if not (_is_there(array)[rows] & (stops - starts == length)).all():
        raise ValueError
    return _numbers(array.values)[starts[:, None] + np.arange(length)]


def _is_there(array: Any) -> NDArray[np.bool_]:
    """Which elements are there, [element]."""
    bits = array.buffers()[0]
    if bits is None:
        return np.ones(len(array), np.bool_)
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[array.offset :][: len(array)].astype(
        np.bool_
    )
