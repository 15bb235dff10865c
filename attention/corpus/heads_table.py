"""heads.parquet: a row for each layer, head and metric; how a run writes it, and how a process of its own reads that of a stranger.

pyarrow allocates what headers claim, so the process that reads has a limit of memory, and the numbers leave it as plain bytes. Nothing that
reads calls what imports pandas, such as `pyarrow.array`: it would take half a second each time.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attention.base.errors import FileError
from attention.corpus.digest import DIFFERENCE, EXCESS, MAX_OFFSET, N_BINS, TEXTS, UNIFORM
from attention.corpus.run_plan import CONTROLS, METADATA, READ, read_info
from attention.metrics.metric import SHUFFLED

if TYPE_CHECKING:
    from attention.corpus.digest import Digest
    from attention.corpus.run_plan import RunPlan

_EXCESS_NUMBERS = ("excess_mean", "excess_sd", "excess_count")  # files of the first version have none
COUNTS = ("count", "queries", "shuffled_count", "random_count", "difference_count", "excess_count")
NUMBERS = (
    "mean", "sd", "count", "queries", "uniform", "shuffled_mean", "shuffled_sd", "shuffled_count", "random_mean", "random_sd",
    "random_count", "difference_mean", "difference_sd", "difference_count", *_EXCESS_NUMBERS, "query_mean",
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
_GROUP_HEADS, _GROUP_TOKENS = 64, 64 * 20 * 256
_MAX_PEAK = 16  # the largest distance of the strongest offset: farther ones exist in few texts
_BATCH = 64  # rows of examples that are unpacked at once


def info(plan: RunPlan, digest: Digest) -> dict[str, Any]:
    """The content of corpus.json: the plan, the heads, and what was read."""
    return {
        "plan": json.loads(plan.to_json()),
        "layers": list(digest.layers),
        "heads": list(digest.n_heads),
        "metrics": [metric.name for metric in plan.metrics],
        "offsets": MAX_OFFSET,
        "map_texts": digest.n_maps,
        "read": {name: digest.read[name] for name in READ},
        "shuffled_texts": digest.read["shuffled"],
    }


def parquet(plan: RunPlan, digest: Digest, about: dict[str, Any]) -> bytes:
    """The table as a Parquet file; equal digests give equal bytes."""
    columns, n_metrics = _number_columns(plan, digest), len(plan.metrics)
    n_rows = sum(digest.n_heads) * n_metrics
    fields: dict[str, Any] = {name: pa.array(column, from_pandas=True) for name, column in columns.items()}
    fields["histogram"] = _lists_column(digest.histogram.reshape(n_rows, -1), pa.int64())
    fields["top"] = _examples(digest, n_rows)
    fields["offset_weights"] = _first_rows(_offset_weights(digest, TEXTS), n_metrics)
    maps = digest.map_sums / max(1, digest.n_maps) if digest.n_maps else np.zeros((sum(digest.n_heads), 0))
    fields["mean_map"] = _first_rows(maps.reshape(len(maps), -1), n_metrics)
    table = pa.table(fields).replace_schema_metadata({METADATA: json.dumps(about, sort_keys=True)})
    buffer = io.BytesIO()
    # A reader unpacks the examples of one group to show those of one head.
    group_heads = max(1, min(_GROUP_HEADS, _GROUP_TOKENS // (plan.top * plan.max_tokens)))
    # All that could change with a release of pyarrow is set, so that equal digests give equal bytes.
    packed = {"compression": "zstd", "data_page_version": "1.0", "version": "2.6", "use_dictionary": True}
    pq.write_table(table, buffer, row_group_size=n_metrics * group_heads, **packed)
    return buffer.getvalue()


def _number_columns(plan: RunPlan, digest: Digest) -> dict[str, Any]:
    """The columns of single numbers, each [row]; NaN where there is none."""
    names = [metric.name for metric in plan.metrics]
    layer_of_head = np.repeat(np.arange(len(digest.layers)), digest.n_heads)
    heads = np.concatenate([np.arange(n) for n in digest.n_heads])
    texts = digest.moments[TEXTS]
    empty = np.full(texts.mean.shape, np.nan)
    uniform = _defined(digest.moments[UNIFORM])[layer_of_head]
    columns: dict[str, Any] = {
        "layer": np.repeat(np.array(digest.layers, np.int32)[layer_of_head], len(names)),
        "head": np.repeat(heads.astype(np.int32), len(names)),
        "metric": names * len(heads),
        "mean": _defined(texts).ravel(),
        "sd": texts.sd.ravel(),
        "count": texts.count.ravel(),
        "queries": digest.queries.ravel(),
        "query_mean": _query_means(digest).ravel(),
        "uniform": uniform.ravel(),
    }
    for control in (*CONTROLS, DIFFERENCE, EXCESS):
        moments = digest.moments.get(control)
        columns[f"{control}_mean"] = (empty if moments is None else _defined(moments)).ravel()
        columns[f"{control}_sd"] = (empty if moments is None else moments.sd).ravel()
        columns[f"{control}_count"] = np.zeros(empty.size, np.int64) if moments is None else moments.count.ravel()
    columns |= {name: np.repeat(values, len(names)) for name, values in _strongest_offsets(digest).items()}
    bounds = np.array([plan.limits(metric) for metric in plan.metrics])
    columns["low"], columns["high"] = (np.tile(bounds[:, side], len(heads)) for side in (0, 1))
    return columns


def _defined(moments: Any) -> Any:
    return np.where(moments.count > 0, moments.mean, np.nan)


def _query_means(digest: Digest) -> Any:
    with np.errstate(invalid="ignore", divide="ignore"):
        return digest.query_sums / digest.queries


def _offset_weights(digest: Digest, condition: str) -> Any:
    """The mean weight at each offset, [head offset]; NaN where no cell has it."""
    counts = np.repeat(digest.offset_counts[condition], digest.n_heads, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return digest.offset_sums[condition] / counts


def _strongest_offsets(digest: Digest) -> dict[str, Any]:
    """The offset with the largest mean weight, other than the query itself and the token before it, this weight, and the same on shuffled words.

    Each is [head], NaN where there is none.
    """
    offsets = np.arange(-MAX_OFFSET, MAX_OFFSET + 1)
    near = (np.abs(offsets) <= _MAX_PEAK) & (offsets != 0) & (offsets != -1)
    weights = np.where(near, np.nan_to_num(_offset_weights(digest, TEXTS), nan=-1.0), -1.0)
    heads, best = np.arange(len(weights)), weights.argmax(1)
    is_known = weights[heads, best] >= 0
    shuffled = np.full(len(heads), np.nan)
    if SHUFFLED in digest.offset_sums:
        shuffled = _offset_weights(digest, SHUFFLED)[heads, best]
    values = {"peak_offset": best - MAX_OFFSET, "peak_weight": weights[heads, best], "shuffled_peak_weight": shuffled}
    return {name: np.where(is_known, numbers, np.nan) for name, numbers in values.items()}


def _lists_column(rows: Any, kind: Any) -> Any:
    """A column of lists of equal length, from rows [row element]."""
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.ravel(), kind))


def _first_rows(of_heads: Any, n_metrics: int) -> Any:
    """A column of lists that only the first row of each head has, from rows [head element]."""
    n_rows = len(of_heads) * n_metrics
    is_first = np.arange(n_rows) % n_metrics == 0
    offsets = np.concatenate([[0], np.cumsum(is_first)]) * of_heads.shape[1]
    values = pa.array(of_heads.ravel().astype(np.float32))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=pa.array(~is_first))


def _examples(digest: Digest, n_rows: int) -> Any:
    """The column of examples; a head has fewer where fewer texts have a value."""
    examples = digest.examples
    value = examples.value.reshape(n_rows, -1)
    used = ~np.isnan(value)
    picked = used.ravel()
    numbers = examples.number.ravel()[picked]
    keys, weights = (array.reshape(picked.size, -1)[picked] for array in (examples.keys, examples.weights))
    lengths = np.array([len(digest.texts[int(number)][1]) for number in numbers], np.int64)
    n_keys = np.minimum(lengths, keys.shape[1]) if len(lengths) else lengths
    is_key = np.arange(keys.shape[1]) < n_keys[:, None]
    key_offsets = pa.array(np.concatenate([[0], np.cumsum(n_keys)]), pa.int32())
    struct = pa.StructArray.from_arrays(
        [
            pa.array(value.ravel()[picked]),
            pa.array(numbers),
            pa.array(examples.query.ravel()[picked]),
            pa.array(examples.key.ravel()[picked]),
            pa.ListArray.from_arrays(key_offsets, pa.array(keys[is_key])),
            pa.ListArray.from_arrays(key_offsets, pa.array(weights[is_key])),
            pa.array([_utf8(digest.texts[int(number)][0]) for number in numbers], pa.string()),
            pa.array([[*map(_utf8, digest.texts[int(number)][1])] for number in numbers], pa.list_(pa.string())),
        ],
        names=["value", "number", "query", "key", "keys", "weights", "text", "tokens"],
    )
    offsets = np.concatenate([[0], np.cumsum(used.sum(1))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), struct)


def _utf8(text: str) -> str:
    """The text with ? for half a surrogate pair, which Parquet cannot store."""
    return text.encode("utf-8", "replace").decode("utf-8")


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
        if place < 0 and column in _EXCESS_NUMBERS:
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
    bits = array.buffers()[0]
    if bits is None:
        return np.ones(len(array), np.bool_)
    every = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return every[array.offset :][: len(array)].astype(np.bool_)
