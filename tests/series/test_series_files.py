"""Tables as people and programs write them: the same numbers as pandas reads, with its options found; and hostile files, refused with a sentence."""

from __future__ import annotations

from io import BytesIO, StringIO
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from margins import approx

from attention.base.errors import FileError
from attention.series.examples import EXAMPLES, example_series
from attention.series.table import Series, reading_cost
from benchmarks.series_attacks import files, ordinary
from benchmarks.uploads import dense

pytestmark = pytest.mark.quick

ETTH1 = (
    b"date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\n"
    b"2016-07-01 00:00:00,5.827000141143799,2.009000062942505,1.5989999771118164,0.4620000123977661,4.203000068664552,1.3400000333786009,30.5310001373291\n"
    b"2016-07-01 01:00:00,5.692999839782715,2.075999975204468,1.4919999837875366,0.4259999990463257,4.142000198364259,1.371000051498413,27.787000656127933\n"
    b"2016-07-01 02:00:00,5.1570000648498535,1.741000056266785,1.2790000438690186,0.3549999892711639,3.776999950408936,1.218000054359436,27.787000656127933\n"
)
"""The first rows of the Electricity Transformer dataset (Zhou et al. 2021, Informer)."""
GERMAN = "Datum;Last (MW);Öl\r\n01.07.2016 00:00;1.234,5;-2,25\r\n01.07.2016 01:00;987,75;\r\n"
TABLES: dict[str, tuple[bytes, tuple[str, ...], list[list[float]], tuple[str, ...], dict[str, Any]]] = {
    "ETTh1": (ETTH1, ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"), [], ("2016-07-01 00:00:00", "2016-07-01 01:00:00", "2016-07-01 02:00:00"), {"index_col": 0}),
    "German Excel": (GERMAN.encode("cp1252"), ("Last (MW)", "Öl"), [[1234.5, -2.25], [987.75, np.nan]], ("01.07.2016 00:00", "01.07.2016 01:00"), {"sep": ";", "decimal": ",", "thousands": ".", "index_col": 0, "encoding": "cp1252"}),
    "Excel's BOM": (GERMAN.encode("utf-8-sig"), ("Last (MW)", "Öl"), [[1234.5, -2.25], [987.75, np.nan]], ("01.07.2016 00:00", "01.07.2016 01:00"), {"sep": ";", "decimal": ",", "thousands": ".", "index_col": 0}),
    "Excel's Unicode text": ("Jahr\tLast\n1949\t112\n1950\t118\n1951\t132\n".encode("utf-16"), ("Last",), [[112], [118], [132]], ("1949", "1950", "1951"), {"sep": "\t", "index_col": 0, "encoding": "utf-16"}),
    "Excel's sep=": (b"sep=;\na;b\n1;2,5\n3;4\n", ("a", "b"), [[1, 2.5], [3, 4]], (), {"sep": ";", "decimal": ",", "thousands": ".", "skiprows": 1}),
    "AirPassengers": (b'"Month","#Passengers"\n"1949-01",112\n"1949-02",118\n', ("#Passengers",), [[112], [118]], ("1949-01", "1949-02"), {"index_col": 0}),
    "Prophet": (b"ds,y\n2020-01-01,1.5\n2020-01-02,NA\n", ("y",), [[1.5], [np.nan]], ("2020-01-01", "2020-01-02"), {"index_col": 0}),
    "pandas with its index": (b",a\n0,1.5\n1,2.5\n2,-3e-2\n", ("a",), [[1.5], [2.5], [-0.03]], ("0", "1", "2"), {"index_col": 0}),
    "no header": (b"1,2\n3,\n5,6\n", ("column 0", "column 1"), [[1, 2], [3, np.nan], [5, 6]], (), {"header": None}),
    "one column of decimal commas": (b"x\n1,5\n2,5\n", ("x",), [[1.5], [2.5]], (), {"sep": ";", "decimal": ",", "thousands": "."}),
    "thousands": (b'a,b\n"1,234.5","2,000"\n"3,000","4"\n', ("a", "b"), [[1234.5, 2000], [3000, 4]], (), {"thousands": ","}),
    "dashes": (b"a,b\n1,-\n.,4\n", ("a", "b"), [[1, np.nan], [np.nan, 4]], (), {"na_values": ["-", "."]}),
    "dashes, and missing numbers in lower case": (b"a,b\n1,na\n-,none\n2,5\n", ("a", "b"), [[1, np.nan], [np.nan, np.nan], [2, 5]], (), {"na_values": ["-", "na", "none"]}),
    "blanks between thousands": (b"a;b\n1 234,5;2\n3;-4,25\n", ("a", "b"), [[1234.5, 2], [3, -4.25]], (), {"sep": ";", "decimal": ",", "thousands": " "}),
    "Swiss": (b"a;b\n1'234.5;2\n3;4\n", ("a", "b"), [[1234.5, 2], [3, 4]], (), {"sep": ";", "thousands": "'"}),
    "typeset": ("Jahr;x\n1949;−1\u202f234,5\n1950;2\xa0000\n1951;1\n".encode(), ("x",), [[-1234.5], [2000], [1]], ("1949", "1950", "1951"), {"sep": ";", "decimal": ",", "thousands": ".", "index_col": 0}),
    "dates with points beside decimal commas": (b"t;a\n01.07.2016;1,234\n02.07.2016;2,345\n", ("a",), [[1.234], [2.345]], ("01.07.2016", "02.07.2016"), {"sep": ";", "decimal": ",", "thousands": ".", "index_col": 0}),
    "blank lines, a pipe, old Macs": (b"a|b\r1|2\r\r3|4\r", ("a", "b"), [[1, 2], [3, 4]], (), {"sep": "|"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_a_file_is_read_as_pandas_reads_it_with_the_options_that_were_found(kind: str) -> None:
    content, columns, numbers, times, options = TABLES[kind]
    series = Series.open(content)
    assert (series.columns, series.times, series.pandas_options, series.kind) == (columns, times, options, "CSV")
    np.testing.assert_array_equal(series.values, numbers or series.values)
    file: Any = BytesIO(content)
    for sign, other in series.replaced:
        file = StringIO(
            (file.getvalue().decode() if isinstance(file, BytesIO) else file.getvalue()).replace(sign, other)
        )
    frame = pd.read_csv(file, **series.pandas_options)
    np.testing.assert_array_equal(series.values, frame.to_numpy(float))
    assert any("time axis" in note for note in series.notes) == bool(times)
    assert any("decimal comma" in note for note in series.notes) == ("decimal" in options)


def test_frames_arrays_and_tensors_are_the_tables_that_they_are() -> None:
    values = np.random.default_rng(0).normal(size=(5, 2))
    values[3, 1] = np.nan
    dated = pd.DataFrame(values, columns=["a", "b"], index=pd.date_range("2026-01-05", periods=5, freq="h"))
    first = Series.open(dated)
    np.testing.assert_array_equal(first.values, values)
    assert (first.columns, first.times[1], first.kind) == (("a", "b"), "2026-01-05 01:00:00", "")
    assert first.days == approx(1 / 24)
    counted = Series.open(pd.DataFrame({"ds": pd.date_range("2026-01-05", periods=5, freq="D"), "y": values[:, 0]}))
    assert (counted.columns, counted.days) == (("y",), 1)
    for given in (values, values.tolist(), torch.tensor(values), torch.tensor(values, requires_grad=True)):
        series = Series.open(given)
        np.testing.assert_array_equal(series.values, values)
        assert series == Series.open(Series.open(values).content), "compared by what is in it"
    ramp = Series.open(np.arange(6).reshape(3, 2))
    assert ramp.columns == ("column 0", "column 1"), "a column that counts is none of time, in an array"
    assert Series.open(np.arange(3, dtype=np.float32)).values.shape == (3, 1)


def test_files_are_opened_by_path(tmp_path: Any) -> None:
    path = tmp_path / "ETTh1.csv"
    path.write_bytes(ETTH1)
    assert (Series.open(path).name, Series.open(str(path))) == ("ETTh1.csv", Series.open(ETTH1))
    with pytest.raises(FileError, match="which cannot be: check its path"):
        Series.open(tmp_path / "other.csv")


@pytest.mark.parametrize(("given", "message"), [
    (None, "got a NoneType"), (np.zeros((2, 2, 2)), "an array of 3 axes"), (np.array(["a"]), "got a ndarray"), (object(), "got a object"),
    (np.zeros((0, 2)), "got 0 rows"), (np.array([[1.0, np.inf]]), "“inf” in an array"), (np.zeros((1, 257)), "257 columns"),
    (b"", "fewer than two rows"), (b"a,b", "fewer than two rows"), (b"a,b\n1,2,3\n", "row 1 has 3"), (b"a,b,c\n1,2,3\n4,5\n", "row 2 has 2"), (b"a,b\nTrue,2\n", "“True” in “a”, row 1"), (b"a,b\n1,5\n1_0,2\n", "“1_0” in “a”, row 2"), (b"a,b\n1,x\n", "“x” in “b”, row 1"),
    (b"date,kind,y\n2020-01-01,good,1\n2020-01-02,bad,2\n", "“good” in “kind”"), (b"a,b\n1,1e999\n", "“1e999”"), (b'a,b\n"1,2\n', "without an end"),
    (pd.DataFrame({"a": ["x", "y"], "b": ["z", "w"]}), "“z” in “b”"),
])  # fmt: skip
def test_what_is_no_series_is_said_in_a_sentence(given: Any, message: str) -> None:
    with pytest.raises(FileError, match=message):
        Series.open(given)


@pytest.mark.parametrize(("content", "words"), [file[1:] for file in files()], ids=[file[0] for file in files()])
def test_hostile_files_are_refused_with_a_sentence(content: bytes, words: str) -> None:
    with pytest.raises(FileError, match=words) as error:
        Series.open(content)
    assert len(str(error.value)) < 400
    assert str(error.value).endswith(".")


def test_what_reading_a_file_takes_is_counted_in_cells() -> None:
    assert reading_cost(ordinary()).is_light, "as long as ETTh1: a second process would take longer"
    assert not reading_cost(dense(4000, 244, 1)).is_light, "1.95 MB with a million cells"
    assert reading_cost(dense(2000, 244, 1)).seconds == approx(
        reading_cost(dense(4000, 244, 1)).seconds / 2, within=1e-3, why="the row of names"
    )


def test_an_ordinary_large_file_is_read() -> None:
    series = Series.open(ordinary())
    assert series.values.shape == (17_420, 2), "as long as ETTh1"


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_series_of_ours_is_the_same_on_every_machine(name: str) -> None:
    series = example_series(name)
    assert series.digest == "0d03ef409ffcba801c6bf5fd7076b2a7"
    assert series.values.shape == (96, 2)
    spectrum = np.abs(np.fft.rfft(series.values[:, 0] - series.values[:, 0].mean()))
    assert spectrum.argmax() == 4, "four days"
    slope, _ = np.polyfit(np.arange(96), series.values[:, 1], 1)
    assert slope == approx(0.3, within=0.01, why="the series has noise")
    with pytest.raises(FileError, match="An example series is one of"):
        example_series("other")
