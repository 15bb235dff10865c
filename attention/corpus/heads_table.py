"""heads.parquet: a row for each layer, head and metric."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.corpus.chunk import DIFFERENCE, EXCESS, TEXTS, UNIFORM, limits
from attention.corpus.digest import MAX_OFFSET
from attention.corpus.run_plan import CONTROLS, METADATA, READ
from attention.metrics.metric import SHUFFLED

if TYPE_CHECKING:
    from attention.corpus.digest import Digest
    from attention.corpus.run_plan import RunPlan

_GROUP_HEADS, _GROUP_TOKENS = 64, 64 * 20 * 256
_MAX_PEAK = 16
"""The largest distance of the strongest offset: farther ones exist in few texts."""


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
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns, n_metrics = _numbers(plan, digest), len(plan.metrics)
    n_rows = sum(digest.n_heads) * n_metrics
    fields: dict[str, Any] = {name: pa.array(column, from_pandas=True) for name, column in columns.items()}
    fields["histogram"] = _lists(pa, digest.histogram.reshape(n_rows, -1), pa.int64())
    fields["top"] = _examples(pa, digest, n_rows)
    fields["offset_weights"] = _first_rows(pa, _offset_weights(digest, TEXTS), n_metrics)
    maps = digest.map_sums / max(1, digest.n_maps) if digest.n_maps else np.zeros((sum(digest.n_heads), 0))
    fields["mean_map"] = _first_rows(pa, maps.reshape(len(maps), -1), n_metrics)
    table = pa.table(fields).replace_schema_metadata({METADATA: json.dumps(about, sort_keys=True)})
    buffer = io.BytesIO()
    # A reader unpacks the examples of one group to show those of one head.
    group_heads = max(1, min(_GROUP_HEADS, _GROUP_TOKENS // (plan.top * plan.max_tokens)))
    # All that could change with a release of pyarrow is set, so that equal digests give equal bytes.
    packed = {"compression": "zstd", "data_page_version": "1.0", "version": "2.6", "use_dictionary": True}
    pq.write_table(table, buffer, row_group_size=n_metrics * group_heads, **packed)
    return buffer.getvalue()


def _numbers(plan: RunPlan, digest: Digest) -> dict[str, Any]:
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
    bounds = np.array([limits(metric, plan) for metric in plan.metrics])
    columns["low"], columns["high"] = (np.tile(bounds[:, side], len(heads)) for side in (0, 1))
    return columns


def _defined(moments: Any) -> Any:
    """The means; NaN where no text has a value."""
    return np.where(moments.count > 0, moments.mean, np.nan)


def _query_means(digest: Digest) -> Any:
    """The means over all queries of all texts, whatever their lengths; NaN where there is no query."""
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


def _lists(pa: Any, rows: Any, kind: Any) -> Any:
    """A column of lists of equal length, from rows [row element]."""
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(rows.ravel(), kind))


def _first_rows(pa: Any, of_heads: Any, n_metrics: int) -> Any:
    """A column of lists that only the first row of each head has, from rows [head element]."""
    n_rows = len(of_heads) * n_metrics
    is_first = np.arange(n_rows) % n_metrics == 0
    offsets = np.concatenate([[0], np.cumsum(is_first)]) * of_heads.shape[1]
    values = pa.array(of_heads.ravel().astype(np.float32))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=pa.array(~is_first))


def _examples(pa: Any, digest: Digest, n_rows: int) -> Any:
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
