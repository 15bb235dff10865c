"""The result of a run over many texts, read from heads.parquet: the numbers of every head at once, its examples when asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from attention.corpus import heads_examples
from attention.corpus.heads_examples import Example
from attention.corpus.heads_info import METADATA, read_info
from attention.corpus.heads_numbers import LEAVES, NUMBERS, read_numbers
from attention.corpus.scan import TABLE
from attention.errors import FileError, MissingError
from attention.io.arrays import quote
from attention.io.parquet.table import ParquetTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from attention.io.parquet.column_chunk import Column

__all__ = ["MAX_BYTES", "NUMBERS", "Example", "HeadsResult"]

MAX_BYTES = 2**28
_CONTROLS = {"shuffled": "shuffled words", "random": "random repeated tokens"}


@dataclass(frozen=True)
class HeadsResult:
    """A heads.parquet: `HeadsResult.open(folder)`, or `HeadsResult.of(name, content)`. Two results are equal if their bytes are.

    The numbers are read and checked at once; examples and maps when they are asked for, which may raise FileError.

    Attributes:
        name: the name of the file, or of its folder.
        digest: hash of the bytes.
        info: the content of corpus.json: the plan, the heads, and what was read.
    """

    name: str = field(compare=False)
    digest: str
    info: Mapping[str, Any] = field(compare=False, repr=False)
    _table: ParquetTable = field(compare=False, repr=False)
    _numbers: Mapping[str, NDArray[Any]] = field(compare=False, repr=False)
    _unpacked: dict[int, dict[str, Column]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def open(cls, path: str | Path, max_bytes: int = MAX_BYTES) -> HeadsResult:
        """The result at a path: a heads.parquet, or a folder that has one.

        Raises:
            FileError: there is none, it is larger than `max_bytes`, or it is not the result of a run.
        """
        file = Path(path)
        name = file.name
        try:
            file = file / TABLE if file.is_dir() else file
            size = file.stat().st_size
            return cls.of(name, file.read_bytes() if size <= max_bytes else b"", max_bytes, size)
        except OSError as error:
            raise FileError(
                f"{quote(str(path))} cannot be opened ({error.strerror}): give the path of a {TABLE}, or of a folder that has one."
            ) from None

    @classmethod
    def of(cls, name: str, content: bytes, max_bytes: int = MAX_BYTES, size: int | None = None) -> HeadsResult:
        """The result from its bytes.

        Args:
            name: of the file.
            content: its bytes.
            max_bytes: the limit of its bytes.
            size: the number of its bytes, if `content` was not read.

        Raises:
            FileError: the bytes are more than `max_bytes`, or not the result of a run.
        """
        size = len(content) if size is None else size
        if size > max_bytes:
            raise FileError(
                f"{quote(name)} has {size:,} bytes; at most {max_bytes:,} are read: run it with fewer examples (--top)."
            )
        table = ParquetTable.open(quote(name), content, LEAVES)
        info = read_info(quote(name), table.metadata.get(METADATA.decode()))
        numbers = read_numbers(table, info)
        for array in numbers.values():
            array.flags.writeable = False  # pages share them
        return cls(name, blake2b(content, digest_size=16).hexdigest(), info, table, numbers)

    @property
    def plan(self) -> Mapping[str, Any]:
        """The fields of the `RunPlan`, as in JSON."""
        plan: Mapping[str, Any] = self.info["plan"]
        return plan

    @property
    def model(self) -> str:
        """The name of the model; of a folder, its last part."""
        name: str = self.plan["model"]
        return PurePath(name.replace("\\", "/")).name or name

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics in the order of the table, finds included."""
        return tuple(self.info["metrics"])

    @cached_property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) in the order of the table."""
        layers = zip(self.info["layers"], self.info["heads"], strict=True)
        return tuple((layer, head) for layer, n_heads in layers for head in range(n_heads))

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
        histogram: NDArray[np.int64] = self._numbers["histogram"][:, self._index(metric)].astype("int64")
        return histogram

    def limits(self, metric: str) -> tuple[float, float]:
        """The ends of the histogram of a metric."""
        index = self._index(metric)
        return float(self._numbers["low"][index]), float(self._numbers["high"][index])

    def examples(self, layer: int, head: int, metric: str) -> tuple[Example, ...]:
        """The texts with the largest values of a head, the largest first.

        Raises:
            MissingError: there is no such head or metric.
            FileError: they are damaged, or take too much memory.
        """
        row = self._first_row(layer, head) + self._index(metric)
        group = self._table.group_of(row)
        columns = self._unpacked.get(group)
        if columns is None:
            columns = heads_examples.read_example_columns(self._table, group)
            self._unpacked.clear()  # one group is kept: a page shows several metrics of a head
            self._unpacked[group] = columns
        return heads_examples.read_examples(self._table, columns, row - self._table.first_rows[group], self.info)

    def mean_map(self, layer: int, head: int) -> NDArray[np.float64] | None:
        """The mean weights of the texts of one length, [query_pos key_pos]; None if there was no such text.

        Raises:
            MissingError: there is no such head.
            FileError: the map is damaged.
        """
        row, length = self._first_row(layer, head), self.plan["map_length"]
        return heads_examples.read_map(self._table, row, length) if self.info["map_texts"] and length else None

    def offset_weights(self, layer: int, head: int) -> NDArray[np.float64]:
        """The mean weight at each offset (key_pos − query_pos) from −64 to 64, [offset]; NaN where there is no cell.

        Raises:
            MissingError: there is no such head.
            FileError: the weights are damaged.
        """
        return heads_examples.read_offsets(self._table, self._first_row(layer, head))

    def words(self) -> str:
        """What was read, such as "500 texts, 9,403 tokens, 3 cut at 256 tokens; controls: shuffled words"."""
        read, plan = self.info["read"], self.plan
        cut = f"{read['cut']:,} cut at {plan['max_tokens']:,} tokens" if read["cut"] else "none cut"
        counts = {"random": f" ({read['random']:,})"}
        controls = ", ".join(_CONTROLS[name] + counts.get(name, "") for name in plan["controls"]) or "none"
        return f"{read['texts']:,} text{'s' * (read['texts'] != 1)}, {read['tokens']:,} tokens, {cut}; controls: {controls}"

    def memory_bytes(self) -> int:
        """The bytes that it keeps now."""
        unpacked = sum(column.memory_bytes() for group in list(self._unpacked.values()) for column in group.values())
        return len(self._table.content) + sum(array.nbytes for array in self._numbers.values()) + unpacked

    @cached_property
    def _places(self) -> dict[tuple[int, int], int]:
        return {place: index for index, place in enumerate(self.heads)}

    def _index(self, metric: str) -> int:
        if metric not in self.metrics:
            raise MissingError(
                f"{quote(self.name)} has the metrics {', '.join(self.metrics)}; got {metric[:60]!r}: choose one of them."
            )
        return self.metrics.index(metric)

    def _first_row(self, layer: int, head: int) -> int:
        if (layer, head) not in self._places:
            raise MissingError(
                f"{quote(self.name)} has {len(self.heads):,} heads; got L{layer} H{head}, which is none of them: choose another."
            )
        return self._places[layer, head] * len(self.metrics)
