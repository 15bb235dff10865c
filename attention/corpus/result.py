"""The result of a run over many texts, read from heads.parquet, an untrusted file: the numbers of every head at once, its examples when asked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from math import prod
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from attention.base.cache import CACHE
from attention.base.errors import FileError, MissingError
from attention.base.jobs import N_BYTES, JobError, read_foreign
from attention.corpus.digest import MAX_OFFSET, N_KEYS
from attention.corpus.heads_table import (
    COLUMNS,
    COUNTS,
    EXAMPLES,
    HISTOGRAM,
    LIMITS,
    MAP,
    NUMBERS,
    OFFSETS,
    damaged_error,
    examples_of,
    numbers_of,
    shapes,
)
from attention.corpus.run_plan import CONTROL_WORDS, read_info
from attention.corpus.scan import TABLE
from attention.files.archives import quote

if TYPE_CHECKING:
    import pandas as pd

EXAMPLE = Path(__file__).parent / "example"
"""The folder of a result that comes with the package: `python -m attention.corpus all-MiniLM-L6-v2 attention/corpus/example/texts.txt --top 1 --control none` made it."""
_MAX_BYTES = 2**28
_MAX_EXAMPLE_BYTES = 2**23  # of the examples of a row, as JSON
_BYTES_OF_JSON = 8  # that Python's objects take for each of it
_SECONDS = 20.0
_MAGIC = b"PAR1"

_MEANS = ("mean", "shuffled_mean", "random_mean", "difference_mean", "excess_mean", "query_mean", "uniform")
_COUNTED = _MEANS[:5]  # those with a count of their own
_SPREADS = ("sd", "shuffled_sd", "random_sd", "difference_sd", "excess_sd")
_PEAKS = ("peak_offset", "peak_weight", "shuffled_peak_weight")

_Turn = Callable[[], AbstractContextManager[int]]
"""Waits until a file may be read in a process of its own, and gives the bytes of memory that it may take."""


def _at_once() -> AbstractContextManager[int]:
    return nullcontext(N_BYTES)


class Example(NamedTuple):
    """A text with one of the largest values of a metric and a head.

    Attributes:
        value: of the metric, on this text.
        number: of the text in the run.
        query: the position of the query with the largest value.
        key: its key with the largest weight among the cells of the metric.
        keys: its keys with the largest weights, the largest first.
        weights: these weights.
    """

    value: float
    number: int
    query: int
    key: int
    keys: tuple[int, ...]
    weights: tuple[float, ...]
    text: str
    tokens: tuple[str, ...]

    @property
    def weight(self) -> float:
        """The weight of `key`; NaN if it is not among the largest."""
        return self.weights[self.keys.index(self.key)] if self.key in self.keys else float("nan")


class _Examples(NamedTuple):
    examples: tuple[Example, ...]
    nbytes: int


@dataclass(frozen=True)
class HeadsResult:
    """A heads.parquet: `HeadsResult.open(folder)`, or `HeadsResult.of(name, content)`. Two results are equal if their bytes are.

    The numbers are read and checked at once; examples when they are asked for, which may raise FileError. Both happens in a process of its own.

    Attributes:
        name: the name of the file, or of its folder.
        digest: hash of the bytes.
        info: the content of corpus.json: the plan, the heads, and what was read.
    """

    name: str = field(compare=False)
    digest: str
    info: Mapping[str, Any] = field(compare=False, repr=False)
    _content: bytes = field(compare=False, repr=False)
    _numbers: Mapping[str, NDArray[Any]] = field(compare=False, repr=False)
    _turn: _Turn = field(compare=False, repr=False)

    @classmethod
    def open(cls, path: str | Path, max_bytes: int = _MAX_BYTES, turn: _Turn = _at_once) -> HeadsResult:
        """The result at a path: a heads.parquet, or a folder that has one.

        Raises:
            FileError: there is none, it is larger than `max_bytes`, or it is not the result of a run.
        """
        file = Path(path)
        name = file.name
        try:
            file = file / TABLE if file.is_dir() else file
            if file.exists() and not file.is_file():  # a pipe or a device may never end
                raise OSError(None, "it is no file")
            with file.open("rb") as opened:
                return cls.of(name, opened.read(max_bytes + 1), max_bytes, turn)
        except OSError as error:
            raise FileError(
                f"{quote(str(path))} cannot be opened ({error.strerror}): give the path of a {TABLE}, or of a folder that has one."
            ) from None

    @classmethod
    def of(cls, name: str, content: bytes, max_bytes: int = _MAX_BYTES, turn: _Turn = _at_once) -> HeadsResult:
        """The result from its bytes.

        Args:
            turn: waits for its turn each time that a process reads the file.

        Raises:
            FileError: the bytes are more than `max_bytes`, or not the result of a run.
        """
        if len(content) > max_bytes:
            raise FileError(
                f"{quote(name)} should have at most {max_bytes:,} bytes; it has more: run it with fewer examples (--top)."
            )
        if len(content) < 12 or content[:4] != _MAGIC or content[-4:] != _MAGIC:
            raise FileError(
                f"{quote(name)} should be a Parquet file, which begins and ends with PAR1; it does not: use the complete file that the run wrote."
            )
        info, numbers = _unpacked(quote(name), _read(numbers_of, content, name, turn=turn))
        return cls(name, blake2b(content, digest_size=16).hexdigest(), info, content, numbers, turn)

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

    def frame(self) -> pd.DataFrame:
        """A row for each head and metric: layer, head, metric, and `NUMBERS`."""
        import pandas as pd

        places = [(layer, head, metric) for layer, head in self.heads for metric in self.metrics]
        numbers = {name: self._numbers[name].ravel() for name in NUMBERS}
        return pd.DataFrame(places, columns=["layer", "head", "metric"]).assign(**numbers)

    def histogram(self, metric: str) -> NDArray[np.int64]:
        """The number of texts in each bin of a metric, [head bin]."""
        histogram: NDArray[np.int64] = self._numbers[HISTOGRAM][:, self._index(metric)].astype("int64")
        return histogram

    def limits(self, metric: str) -> tuple[float, float]:
        """The ends of the histogram of a metric."""
        index = self._index(metric)
        return float(self._numbers["low"][index]), float(self._numbers["high"][index])

    def examples(self, layer: int, head: int, metric: str) -> tuple[Example, ...]:
        """The texts with the largest values of a head, the largest first.

        Raises:
            MissingError: there is no such head or metric.
            FileError: they are damaged, or take too much memory or time.
        """
        row = self._place(layer, head) * len(self.metrics) + self._index(metric)

        def read() -> _Examples:
            packed = _read(examples_of, self._content, self.name, row, turn=self._turn)
            return _Examples(_read_examples(quote(self.name), packed, self.plan), len(packed) * _BYTES_OF_JSON)

        return CACHE.get_or_compute(("examples", self.digest, row), read).examples

    def mean_map(self, layer: int, head: int) -> NDArray[np.float64] | None:
        """The mean weights of the texts of one length, [query_pos key_pos]; None if there was no such text.

        Raises:
            MissingError: there is no such head.
        """
        place = self._place(layer, head)
        return self._numbers[MAP][place] if MAP in self._numbers else None

    def offset_weights(self, layer: int, head: int) -> NDArray[np.float64]:
        """The mean weight at each offset (key_pos − query_pos) from −64 to 64, [offset]; NaN where there is no cell.

        Raises:
            MissingError: there is no such head.
        """
        weights: NDArray[np.float64] = self._numbers[OFFSETS][self._place(layer, head)]
        return weights

    def words(self) -> str:
        """What was read, such as "500 texts, 9,403 tokens, 3 cut at 256 tokens; controls: shuffled words"."""
        read, plan = self.info["read"], self.plan
        cut = f"{read['cut']:,} cut at {plan['max_tokens']:,} tokens" if read["cut"] else "none cut"
        counts = {"random": f" ({read['random']:,})"}
        controls = ", ".join(CONTROL_WORDS[name] + counts.get(name, "") for name in plan["controls"]) or "none"
        is_old = not self._numbers["excess_count"].any()
        old = "; without differences from the null, since an earlier version wrote it" if is_old else ""
        return f"{read['texts']:,} text{'s' * (read['texts'] != 1)}, {read['tokens']:,} tokens, {cut}; controls: {controls}{old}"

    @property
    def shuffling(self) -> str:
        """What a shuffled word is, and how many texts have another order when they are shuffled, in sentences; empty without this control, and of an older run."""
        n_texts, n_shuffled = self.info["read"]["texts"], self.info.get("shuffled_texts")
        if "shuffled" not in self.plan["controls"] or n_shuffled is None:
            return ""
        left_out = n_texts - n_shuffled
        others = f"; {left_out:,} cannot change, and {'is' if left_out == 1 else 'are'} not counted" if left_out else ""
        return f"The order of the words changes in {n_shuffled:,} of {n_texts:,} texts{others}. Words: {self.plan['words']}."

    @property
    def nbytes(self) -> int:
        """The bytes that it keeps now."""
        return len(self._content) + sum(array.nbytes for array in self._numbers.values())

    @cached_property
    def _places(self) -> dict[tuple[int, int], int]:
        return {place: index for index, place in enumerate(self.heads)}

    def _index(self, metric: str) -> int:
        if metric not in self.metrics:
            raise MissingError(
                f"{quote(self.name)} has the metrics {', '.join(self.metrics)}; got {metric[:60]!r}: choose one of them."
            )
        return self.metrics.index(metric)

    def _place(self, layer: int, head: int) -> int:
        if (layer, head) not in self._places:
            raise MissingError(
                f"{quote(self.name)} has {len(self.heads):,} heads; got L{layer} H{head}, which is none of them: choose another."
            )
        return self._places[layer, head]


def _read(function: Callable[..., bytes], content: bytes, name: str, *args: int, turn: _Turn) -> bytes:
    """What a function of `attention.corpus.heads_table` makes of a file, in a process of its own."""
    with turn() as n_bytes:
        try:
            return read_foreign(function, content, quote(name), *args, n_bytes=n_bytes, seconds=_SECONDS)
        except JobError as error:
            raise FileError(
                f"{quote(name)} is not read, since this {error}: use the file that the run wrote, with fewer examples (--top)."
            ) from None


def _unpacked(name: str, packed: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The description of a run, and its arrays, which are views of the bytes of `numbers_of`; no size is trusted."""
    place = 8 + int.from_bytes(packed[:8], "little")
    info, numbers = read_info(name, packed[8:place]), dict[str, NDArray[Any]]()
    for key, (dtype, shape) in shapes(info).items():
        if len(packed) < place + prod(shape) * np.dtype(dtype).itemsize:
            raise damaged_error(name)
        numbers[key] = np.frombuffer(packed, dtype, prod(shape), place).reshape(shape)
        place += numbers[key].nbytes
    _check_numbers(name, numbers, info)
    return info, numbers | {key: numbers[key][0] for key in LIMITS}


def _check_numbers(name: str, numbers: Mapping[str, NDArray[Any]], info: Mapping[str, Any]) -> None:
    """Raises FileError unless counts are counts, and there are means exactly where they count something."""
    low, high = numbers["low"], numbers["high"]
    problem = ""
    if not (np.isfinite(low) & np.isfinite(high) & (low < high) & (low == low[0]) & (high == high[0])).all():
        problem = "low and high of a metric are not the same for all heads"
    for key in COUNTS:
        if not (numbers[key] >= 0).all():  # NaN is a missing one
            problem = f"{key} has a number below 0, or none"
    for key in (*_MEANS, *_SPREADS, *_PEAKS):
        if np.isinf(numbers[key]).any():
            problem = f"{key} has an infinite number"
    for key in _COUNTED:
        count = numbers[key.replace("mean", "count")]
        if not np.array_equal(np.isnan(numbers[key]), count == 0):
            problem = f"{key} is missing where texts were counted, or is there where none were"
    slack = 1e-3 * (high - low)
    for key in _MEANS:
        least = low - high if key in ("difference_mean", "excess_mean") else low
        if ((numbers[key] < least - slack) | (numbers[key] > high + slack)).any():
            problem = f"{key} has a number outside of the range of its metric"
    if (np.abs(numbers["peak_offset"]) > MAX_OFFSET).any():
        problem = f"an offset is beyond {MAX_OFFSET}"
    if any((numbers[key] < 0).any() for key in _SPREADS):
        problem = "a standard deviation is below 0"
    if (numbers["count"] > info["read"]["texts"]).any():
        problem = "count has more texts than the run"
    if (numbers[HISTOGRAM] < 0).any() or not np.array_equal(numbers[HISTOGRAM].sum(-1), numbers["count"]):
        problem = "histogram does not sum to count"
    if np.isinf(numbers[OFFSETS]).any() or (MAP in numbers and not np.isfinite(numbers[MAP]).all()):
        problem = "a mean weight is infinite, or missing in a map"
    if problem:
        raise FileError(f"{name} should have the numbers of a run, but {problem}: use the file that the run wrote.")


def _read_examples(name: str, packed: bytes, plan: Mapping[str, Any]) -> tuple[Example, ...]:
    """The examples in the bytes of `examples_of`, of which nothing is trusted."""
    if len(packed) > _MAX_EXAMPLE_BYTES:
        raise FileError(
            f"{name} has {len(packed):,} bytes of examples for a head; at most {_MAX_EXAMPLE_BYTES:,} are read: run it with fewer (--top), or shorter ones (--max-tokens)."
        )
    try:
        rows = json.loads(packed)
    except (ValueError, RecursionError):
        raise damaged_error(name) from None
    if not _is_a(rows, COLUMNS[EXAMPLES]) or len(rows) > plan["top"]:
        raise damaged_error(name)
    examples = tuple(Example(*(_frozen(row[key]) for key in Example._fields)) for row in rows)
    for example in examples:
        _check_example(name, example, plan)
    return examples


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_a(value: Any, kind: Any) -> bool:
    """Whether a value of JSON is what pyarrow makes of a type, without missing parts."""
    if pa.types.is_struct(kind):
        fields = {field.name: field.type for field in kind}
        has_them = isinstance(value, dict) and value.keys() == fields.keys()
        return has_them and all(_is_a(value[name], fields[name]) for name in fields)
    if not pa.types.is_list(kind):
        return type(value) is _python_type(kind)
    if pa.types.is_struct(kind.value_type):
        return isinstance(value, list) and all(_is_a(each, kind.value_type) for each in value)
    return isinstance(value, list) and set(map(type, value)) <= {_python_type(kind.value_type)}


def _python_type(kind: Any) -> type:
    return str if pa.types.is_string(kind) else int if pa.types.is_integer(kind) else float


def _check_example(name: str, example: Example, plan: Mapping[str, Any]) -> None:
    """Raises FileError unless an example is one of a run."""
    n = len(example.tokens)
    positions = (example.query, example.key, *example.keys)
    numbers = (example.value, *example.weights)
    if n > plan["max_tokens"] or not all(0 <= position < n for position in positions):
        problem = "a position beyond its tokens"
    elif not np.isfinite(numbers).all() or len(example.keys) != len(example.weights) or len(example.keys) > N_KEYS:
        problem = "no weight for each of its keys"
    elif not 0 <= example.number < plan["n_texts"]:
        problem = "a text that the run did not read"
    else:
        return
    raise FileError(
        f"{name} should have the examples of a run, but one has {problem}: use the file that the run wrote."
    )
