"""The result of a run over many texts, read from heads.parquet: the numbers of every head at once, its examples when asked."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attention.corpus.heads_table import METADATA
from attention.corpus.scan import TABLE
from attention.errors import FileError, MissingError
from attention.io.arrays import quote

MAX_BYTES = 2**28
NUMBERS = (
    "mean", "sd", "count", "queries", "uniform", "shuffled_mean", "shuffled_sd", "shuffled_count", "random_mean", "random_sd",
    "random_count",
)  # fmt: skip
"""The columns of single numbers, without the limits of the histogram."""


class Example(NamedTuple):
    """A text with one of the largest values of a metric and a head.

    Attributes:
        value: of the metric, on this text.
        number: of the text in the run.
        query: the position of the query with the largest value.
        key: its key with the largest weight among the cells of the metric.
        keys: its keys with the largest weights, the largest first.
        weights: these weights.
        text: the text.
        tokens: its readable tokens.
    """

    value: float
    number: int
    query: int
    key: int
    keys: tuple[int, ...]
    weights: tuple[float, ...]
    text: str
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class HeadsResult:
    """A heads.parquet. Two results are equal if their bytes are.

    Attributes:
        name: the name of the file, or of its folder.
        digest: hash of the bytes.
        content: the bytes.
    """

    name: str = field(compare=False)
    digest: str
    content: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def open(cls, path: str | Path, max_bytes: int = MAX_BYTES) -> HeadsResult:
        """The result at a path: a heads.parquet, or a folder that has one.

        Raises:
            FileError: there is none, it is larger than `max_bytes`, or it is not the result of a run.
        """
        file = Path(path)
        name = file.name
        if file.is_dir():
            file = file / TABLE
        try:
            size = file.stat().st_size
            if size > max_bytes:
                raise _too_large(name, size, max_bytes)
            return cls.of(name, file.read_bytes(), max_bytes)
        except OSError as error:
            raise FileError(
                f"{quote(str(path))} cannot be opened ({error.strerror}): give the path of a {TABLE}, or of a folder that has one."
            ) from None

    @classmethod
    def of(cls, name: str, content: bytes, max_bytes: int = MAX_BYTES) -> HeadsResult:
        """The result from its bytes; the numbers are read and checked now.

        Raises:
            FileError: the bytes are more than `max_bytes`, or not the result of a run.
        """
        if len(content) > max_bytes:
            raise _too_large(name, len(content), max_bytes)
        result = cls(name, blake2b(content, digest_size=16).hexdigest(), content)
        result._numbers  # noqa: B018  # reads it
        return result

    @cached_property
    def _file(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(io.BytesIO(self.content))
        except (pa.ArrowException, OSError) as error:
            raise FileError(f"{quote(self.name)} is no Parquet file.") from error

    @cached_property
    def info(self) -> dict[str, Any]:
        """The content of corpus.json: the plan, the heads, and what was read."""
        info: dict[str, Any] = json.loads(self._file.schema_arrow.metadata[METADATA])
        return info

    @property
    def plan(self) -> dict[str, Any]:
        """The plan of the run."""
        plan: dict[str, Any] = self.info["plan"]
        return plan

    @property
    def model(self) -> str:
        """The name of the model: the last part of a path."""
        return self.plan["model"].rstrip("/").rpartition("/")[2] or self.plan["model"]

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics in the order of the table, finds included."""
        return tuple(self.info["metrics"])

    @cached_property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) in the order of the table."""
        layers = zip(self.info["layers"], self.info["heads"], strict=True)
        return tuple((layer, head) for layer, n_heads in layers for head in range(n_heads))

    @cached_property
    def _numbers(self) -> dict[str, Any]:
        """The columns of single numbers and of histograms, [head metric …]."""
        shape = len(self.heads), len(self.metrics)
        table = self._file.read([*NUMBERS, "low", "high", "histogram"])
        columns = {name: table[name].to_numpy().astype(np.float64).reshape(shape) for name in (*NUMBERS, "low", "high")}
        columns["histogram"] = np.array(table["histogram"].combine_chunks().flatten()).reshape(*shape, -1)
        return columns

    def column(self, metric: str, name: str) -> NDArray[np.float64]:
        """One number of a metric for every head, [head]; NaN where it is undefined.

        Args:
            metric: one of `metrics`.
            name: one of `NUMBERS`.

        Raises:
            MissingError: there is no such metric or number.
        """
        if name not in NUMBERS:
            raise MissingError(f"a number of a head is one of {', '.join(NUMBERS)}; got {name!r}: choose one of them.")
        column: NDArray[np.float64] = self._numbers[name][:, self._index(metric)]
        return column

    def histogram(self, metric: str) -> NDArray[np.int64]:
        """The number of texts in each bin of a metric, [head bin]."""
        histogram: NDArray[np.int64] = self._numbers["histogram"][:, self._index(metric)]
        return histogram

    def limits(self, metric: str) -> tuple[float, float]:
        """The ends of the histogram of a metric."""
        index = self._index(metric)
        return float(self._numbers["low"][0, index]), float(self._numbers["high"][0, index])

    def examples(self, layer: int, head: int, metric: str) -> tuple[Example, ...]:
        """The texts with the largest values of a head, the largest first."""
        row = self._place(layer, head) * len(self.metrics) + self._index(metric)
        return tuple(
            Example(
                each["value"],
                each["number"],
                each["query"],
                each["key"],
                tuple(each["keys"]),
                tuple(each["weights"]),
                each["text"],
                tuple(each["tokens"]),
            )
            for each in self._cell(row, "top")
        )

    def mean_map(self, layer: int, head: int) -> NDArray[np.float64] | None:
        """The mean weights of the texts of one length, [query_pos key_pos]; None if there was no such text."""
        values = self._cell(self._place(layer, head) * len(self.metrics), "mean_map")
        n = round(len(values or ()) ** 0.5)
        return np.array(values, np.float64).reshape(n, n) if values else None

    def offset_weights(self, layer: int, head: int) -> NDArray[np.float64]:
        """The mean weight at each offset from −64 to 64, [offset]; NaN where there is no cell."""
        return np.array(self._cell(self._place(layer, head) * len(self.metrics), "offset_weights"), np.float64)

    def words(self) -> str:
        """What was read, such as "500 texts, 9,403 tokens, 3 cut at 256 tokens; controls: shuffled words"."""
        read, plan = self.info["read"], self.plan
        cut = f"{read['cut']:,} cut at {plan['max_tokens']:,} tokens" if read["cut"] else "none cut"
        controls = {"shuffled": "shuffled words", "random": f"random repeated tokens ({read['random']:,})"}
        named = ", ".join(controls[name] for name in plan["controls"]) or "none"
        plural = "s" * (read["texts"] != 1)
        return f"{read['texts']:,} text{plural}, {read['tokens']:,} tokens, {cut}; controls: {named}"

    def memory_bytes(self) -> int:
        """The bytes that it keeps."""
        return len(self.content) + sum(array.nbytes for array in self._numbers.values())

    def _index(self, metric: str) -> int:
        if metric not in self.metrics:
            raise MissingError(
                f"{quote(self.name)} has the metrics {', '.join(self.metrics)}; got {metric[:60]!r}: choose one of them."
            )
        return self.metrics.index(metric)

    def _place(self, layer: int, head: int) -> int:
        if (layer, head) not in self.heads:
            raise MissingError(
                f"{quote(self.name)} has no L{layer} H{head}: choose one of its {len(self.heads):,} heads."
            )
        return self.heads.index((layer, head))

    def _cell(self, row: int, column: str) -> Any:
        rows = self._file.metadata.row_group(0).num_rows
        group = self._file.read_row_group(row // rows, columns=[column])
        return group[column][row % rows].as_py()


def _too_large(name: str, size: int, max_bytes: int) -> FileError:
    return FileError(
        f"{quote(name)} has {size:,} bytes; at most {max_bytes:,} are read: run it with fewer examples (--top)."
    )
