"""The sums over some texts for every head and metric, which can be merged: moments, histograms, examples, maps."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attention.base.errors import FileError

N_BINS = 32
"""The bins of a histogram."""
MAX_OFFSET = 64
"""The largest distance, in positions, of the mean weight by offset."""
N_KEYS = 8
"""The largest weights of a row that an example keeps."""
TEXTS, UNIFORM, DIFFERENCE, EXCESS = "texts", "uniform", "difference", "excess"
"""The conditions of a run beside its controls. "Difference" is each text minus itself with its words in random order, "excess" each text minus
what the null of the metric gives for it."""

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Moments:
    """Count, mean and sum of squared differences from the mean, each [head metric].

    Source: Chan, Golub and LeVeque 1983, "Algorithms for Computing the Sample Variance", equations 2.1.
    """

    count: _Integers
    mean: _Floats
    squares: _Floats

    @classmethod
    def of(cls, values: _Floats) -> Moments:
        """The moments of values [text head metric], without those that are NaN."""
        defined = ~np.isnan(values)
        count = defined.sum(0)
        mean = np.where(defined, values, 0.0).sum(0) / np.maximum(count, 1)
        squares = (np.where(defined, values - mean, 0.0) ** 2).sum(0)
        return cls(count, mean, squares)

    def merge(self, other: Moments) -> Moments:
        """The moments of both together."""
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        difference = other.mean - self.mean
        mean = self.mean + difference * share
        return Moments(count, mean, self.squares + other.squares + difference**2 * self.count * share)

    @property
    def sd(self) -> _Floats:
        """The standard deviation of a sample; NaN for fewer than two."""
        with np.errstate(invalid="ignore"):
            return np.where(self.count > 1, np.sqrt(self.squares / np.maximum(self.count - 1, 1)), np.nan)


@dataclass(frozen=True, eq=False)
class Examples:
    """The texts with the largest values of each head and metric: the first ones of two equal values.

    Attributes:
        value: [head metric rank], NaN where there are fewer.
        number: of the text, [head metric rank].
        query: the position of the query with the largest value in this text, [head metric rank].
        key: its key with the largest weight among the cells of the metric, [head metric rank].
        keys: its keys with the largest weights, [head metric rank `N_KEYS`].
        weights: these weights, [head metric rank `N_KEYS`].
    """

    value: _Floats
    number: _Integers
    query: NDArray[np.int32]
    key: NDArray[np.int32]
    keys: NDArray[np.int32]
    weights: NDArray[np.float32]

    @classmethod
    def none(cls, n_heads: int, n_metrics: int) -> Examples:
        """No examples."""
        shape, row = (n_heads, n_metrics, 0), (n_heads, n_metrics, 0, N_KEYS)
        positions = np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(row, np.int32)
        return cls(np.zeros(shape), np.zeros(shape, np.int64), *positions, np.zeros(row, np.float32))

    def merge(self, other: Examples, top: int) -> Examples:
        """The `top` largest values of both together."""
        joined = {
            name: np.concatenate([getattr(self, name), getattr(other, name)], axis=2) for name in self.__annotations__
        }
        order = np.lexsort((joined["number"], -joined["value"]), axis=2)[..., :top]  # NaN is last
        picked = {
            name: np.take_along_axis(array, order if array.ndim == 3 else order[..., None], axis=2)
            for name, array in joined.items()
        }
        return Examples(**picked)


@dataclass(frozen=True, eq=False)
class Digest:
    """The sums over some texts. Heads are one axis: those of the first layer, then those of the next.

    Attributes:
        layers: the index in `trace.layers` of each layer.
        n_heads: the number of heads in each.
        moments: by condition: "texts", the controls, "difference" (texts minus their shuffled words) and "excess" (texts minus the null of
            the metric), [head metric]; "uniform" has one row for each layer.
        queries: the number of queries behind the moments of the texts, [head metric].
        query_sums: the sum over these queries, [head metric].
        histogram: the number of texts in each bin, [head metric bin].
        examples: the largest values.
        offset_sums: the sum of the weights at each offset, by condition, [head offset].
        offset_counts: the number of visible cells at each offset, by condition, [layer offset].
        map_sums: the sum of the maps of texts with the length of the plan, [head query_pos key_pos].
        n_maps: the number of these texts.
        read: what was read: the numbers of texts, tokens, cut texts, random sequences, and texts whose words have another order when they are shuffled.
        texts: (text, tokens) of every example, by number.
    """

    layers: tuple[int, ...]
    n_heads: tuple[int, ...]
    moments: Mapping[str, Moments]
    queries: _Integers
    query_sums: _Floats
    histogram: _Integers
    examples: Examples
    offset_sums: Mapping[str, _Floats]
    offset_counts: Mapping[str, _Integers]
    map_sums: _Floats
    n_maps: int
    read: Mapping[str, int]
    texts: Mapping[int, tuple[str, tuple[str, ...]]] = field(default_factory=dict)

    def merge(self, other: Digest, top: int) -> Digest:
        """Both together; chunks are merged in their order.

        Raises:
            FileError: they belong to different models, or to different versions.
        """
        if (self.layers, self.n_heads) != (other.layers, other.n_heads):
            raise FileError("Two parts have different heads: they belong to different models. Delete the folder.")
        if self.moments.keys() != other.moments.keys():
            raise FileError(
                "Two parts have different conditions: they were written by different versions. Delete the folder."
            )
        examples = self.examples.merge(other.examples, top)
        kept = {int(number) for number in np.unique(examples.number)}
        return replace(
            self,
            moments={name: moments.merge(other.moments[name]) for name, moments in self.moments.items()},
            queries=self.queries + other.queries,
            query_sums=self.query_sums + other.query_sums,
            histogram=self.histogram + other.histogram,
            examples=examples,
            offset_sums={name: sums + other.offset_sums[name] for name, sums in self.offset_sums.items()},
            offset_counts={name: counts + other.offset_counts[name] for name, counts in self.offset_counts.items()},
            map_sums=self.map_sums + other.map_sums,
            n_maps=self.n_maps + other.n_maps,
            read={name: count + other.read[name] for name, count in self.read.items()},
            texts={number: text for number, text in (*self.texts.items(), *other.texts.items()) if number in kept},
        )

    def to_bytes(self) -> bytes:
        """The digest as an .npz archive."""
        info = {
            "layers": self.layers,
            "n_heads": self.n_heads,
            "conditions": tuple(self.moments),
            "with_offsets": tuple(self.offset_sums),
            "n_maps": self.n_maps,
            "read": dict(self.read),
            "texts": [(number, text, tokens) for number, (text, tokens) in sorted(self.texts.items())],
        }
        arrays: dict[str, Any] = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"examples.{name}": getattr(self.examples, name) for name in Examples.__annotations__}
        for condition, moments in self.moments.items():
            arrays |= {f"{condition}.{name}": getattr(moments, name) for name in Moments.__annotations__}
        for condition in self.offset_sums:
            arrays[f"{condition}.offset_sums"] = self.offset_sums[condition]
            arrays[f"{condition}.offset_counts"] = self.offset_counts[condition]
        arrays["info"] = np.frombuffer(json.dumps(info).encode("utf-8", "surrogatepass"), np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes, name: str = "a part") -> Digest:
        """The digest that `to_bytes` wrote.

        Raises:
            FileError: it is none, or it is damaged.
        """
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                info = json.loads(archive["info"].tobytes().decode("utf-8", "surrogatepass"))
                return cls(
                    tuple(info["layers"]),
                    tuple(info["n_heads"]),
                    {
                        condition: Moments(*(archive[f"{condition}.{key}"] for key in Moments.__annotations__))
                        for condition in info["conditions"]
                    },
                    examples=Examples(*(archive[f"examples.{key}"] for key in Examples.__annotations__)),
                    offset_sums={name: archive[f"{name}.offset_sums"] for name in info["with_offsets"]},
                    offset_counts={name: archive[f"{name}.offset_counts"] for name in info["with_offsets"]},
                    n_maps=info["n_maps"],
                    read=info["read"],
                    texts={number: (text, tuple(tokens)) for number, text, tokens in info["texts"]},
                    **{key: archive[key] for key in _ARRAYS},
                )
        except Exception as error:  # a damaged archive makes NumPy and zipfile raise nearly anything
            raise FileError(f"{name} is damaged: delete it, and run the command again.") from error


_ARRAYS = ("queries", "query_sums", "histogram", "map_sums")
