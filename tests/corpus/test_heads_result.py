"""A result is read as pyarrow reads it; a hostile heads.parquet is a sentence, and costs neither memory nor time."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from margins import approx
from test_corpus import TEXTS, run
from tiny_models import TinyModels

from attention import FileError, MissingError
from attention.corpus import heads_table, labels, result
from attention.corpus.heads_table import COLUMNS, NUMBERS
from attention.corpus.result import HeadsResult, _Turn
from benchmarks.corpus_attacks import EXAMPLE, bombs, examples, heads_parquet

MB = 2**20


@pytest.fixture(scope="module")
def folder(tiny: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of a run."""
    path = tmp_path_factory.mktemp("result") / "heads"
    run(tiny("GPT-2"), path, top=4)
    return path


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in this process, which takes a tenth of the time."""
    monkeypatch.setattr(result, "read_foreign", lambda function, *args, **_: function(*args))


@pytest.fixture(scope="module")
def good(folder: Path) -> bytes:
    return (folder / "heads.parquet").read_bytes()


@pytest.fixture(scope="module")
def table(good: bytes) -> pa.Table:
    return pq.read_table(pa.BufferReader(good))


def written(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **{"compression": "zstd"} | options)
    return bytes(sink.getvalue().to_pybytes())


def described(table: pa.Table, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """The table with another description of its run."""
    info = json.loads(table.schema.metadata[b"attention_lab"])
    changed = change(info) or info
    text = changed if isinstance(changed, str | bytes) else json.dumps(changed)
    return written(table.replace_schema_metadata({b"attention_lab": text}))


def replaced(table: pa.Table, name: str, change: Callable[[list[Any]], Any], kind: Any = None) -> bytes:
    """The table with another column."""
    column = table[name].to_pylist()
    column = change(column) or column
    place = table.schema.get_field_index(name)
    return written(table.set_column(place, name, pa.array(column, kind or table.schema.field(name).type)))


def read_all(content: bytes) -> HeadsResult:
    """The result, with all that is read when it is asked for."""
    result = HeadsResult.of("heads.parquet", content)
    for layer, head in result.heads:
        for metric in result.metrics:
            result.examples(layer, head, metric)
        result.mean_map(layer, head)
        result.offset_weights(layer, head)
    return result


@pytest.mark.parametrize("rewritten", [{}, {"row_group_size": 13, "compression": "none"}, {"use_dictionary": False}])
@pytest.mark.usefixtures("here")
def test_result_has_every_number_of_its_table(folder: Path, table: pa.Table, rewritten: dict[str, Any]) -> None:
    result = read_all(written(table, **rewritten)) if rewritten else HeadsResult.open(folder)
    rows = table.to_pylist()
    assert set(table.column_names) == COLUMNS.keys()
    assert len(rows) == len(result.heads) * len(result.metrics)
    for index, row in enumerate(rows):
        place, metric = index // len(result.metrics), row["metric"]
        assert result.heads[place] == (row["layer"], row["head"])
        assert metric == result.metrics[index % len(result.metrics)]
        for name in NUMBERS:
            value = result.column(metric, name)[place]
            assert np.isnan(value) if row[name] is None else value == row[name]
        assert result.histogram(metric)[place].tolist() == row["histogram"]
        assert result.limits(metric) == (row["low"], row["high"])
        examples = result.examples(row["layer"], row["head"], metric)
        assert [each._asdict() for each in examples] == [
            each | {name: tuple(each[name]) for name in ("keys", "weights", "tokens")} for each in row["top"]
        ]
        if row["mean_map"] is not None:
            n = result.plan["map_length"]
            mean_map = result.mean_map(row["layer"], row["head"])
            assert mean_map is not None
            assert mean_map.shape == (n, n)
            assert mean_map.ravel().tolist() == row["mean_map"]
            offsets = [np.nan if value is None else value for value in row["offset_weights"]]
            assert result.offset_weights(row["layer"], row["head"]) == approx(np.array(offsets), nan=True)


def test_result_describes_its_run_and_is_equal_by_its_bytes(folder: Path, good: bytes) -> None:
    result = HeadsResult.open(folder)
    assert result == HeadsResult.of("another name", good) == HeadsResult.open(str(folder / "heads.parquet"))
    assert hash(result) == hash(HeadsResult.of("another name", good))
    assert result.info == json.loads((folder / "corpus.json").read_text())
    assert (result.name, result.model) == ("heads", "GPT-2")
    tokens = result.info["read"]["tokens"]
    assert result.words() == f"7 texts, {tokens} tokens, none cut; controls: shuffled words, random repeated tokens (1)"
    assert result.nbytes > len(good)
    with pytest.raises(MissingError, match="has 8 heads; got L9 H0"):
        result.examples(9, 0, "local")
    with pytest.raises(MissingError, match="has the metrics entropy, "):
        result.column("x", "mean")
    with pytest.raises(MissingError, match="a number of a head is one of mean"):
        result.column("local", "x")
    with pytest.raises(ValueError, match="read-only"):
        result.column("local", "mean")[0] = 0


@pytest.mark.usefixtures("here")
def test_layers_may_have_different_numbers_of_heads(table: pa.Table) -> None:
    n = len(json.loads(table.schema.metadata[b"attention_lab"])["metrics"])
    fewer = pa.concat_tables([table.slice(0, 4 * n), table.slice(4 * n, n)])
    result = read_all(described(fewer, lambda info: info | {"heads": [4, 1]}))
    assert result.heads == ((0, 0), (0, 1), (0, 2), (0, 3), (1, 0))


@pytest.mark.usefixtures("here")
def test_run_without_controls_and_maps_is_read(tiny: TinyModels, tmp_path: Path) -> None:
    run(tiny("GPT-2"), tmp_path, TEXTS[2:3], controls=())
    result = HeadsResult.open(tmp_path)
    read_all((tmp_path / "heads.parquet").read_bytes())
    assert result.words() == f"1 text, {result.info['read']['tokens']} tokens, none cut; controls: none"
    assert np.isnan(result.column("local", "shuffled_mean")).all()
    assert np.isnan(result.column("punctuation", "mean")).all()
    assert result.examples(0, 0, "punctuation") == ()
    assert result.mean_map(0, 0) is None


def test_files_that_are_no_table_are_refused(good: bytes, tmp_path: Path) -> None:
    for content in (b"", b"PAR1", b"x" * 1000, good[:-1], good[1:], good[: len(good) // 2], b"PAR1" + good[-8:]):
        with pytest.raises(FileError, match=r"PAR1|damaged"):
            HeadsResult.of("x", content)
    with pytest.raises(FileError, match="should have at most 1,000 bytes; it has more"):
        HeadsResult.of("x", good, max_bytes=1000)
    for device in ("/dev/zero", tmp_path / "pipe"):
        if device != "/dev/zero":
            os.mkfifo(device)
        with pytest.raises(FileError, match=r"cannot be opened \(it is no file\): give the path"):
            HeadsResult.open(device)
    (tmp_path / "heads.parquet").write_bytes(good)
    with pytest.raises(FileError, match="should have at most 1,000 bytes; it has more"):
        HeadsResult.open(tmp_path, max_bytes=1000)
    with pytest.raises(FileError, match="cannot be opened"):
        HeadsResult.open(tmp_path / "missing")


def _deep(info: dict[str, Any]) -> str:
    return "[" * 100_000


@pytest.mark.parametrize(
    "change",
    [
        _deep,
        lambda info: "no JSON",
        lambda info: b"\xff\xfe",
        lambda info: "[]",
        lambda info: " " * (MB + 1),
        lambda info: info | {"plan": 3},
        lambda info: info | {"plan": info["plan"] | {"model": 3}},
        lambda info: info | {"plan": info["plan"] | {"model": "x\ny"}},
        lambda info: info | {"plan": info["plan"] | {"controls": ["x"]}},
        lambda info: info | {"plan": {}},
        lambda info: info | {"heads": [10**9, 10**9]},
        lambda info: info | {"heads": [4, -4]},
        lambda info: info | {"heads": [4.5, 4]},
        lambda info: info | {"heads": [True, 4]},
        lambda info: info | {"heads": [4]},
        lambda info: info | {"heads": [4, 3]},
        lambda info: info | {"layers": [1, 0]},
        lambda info: info | {"metrics": info["metrics"][1:]},
        lambda info: info | {"metrics": [f"m{i}" for i in range(5000)]},
        lambda info: info | {"metrics": ["a\x1b[2J", *info["metrics"][1:]]},
        lambda info: info | {"metrics": ["\ud800", *info["metrics"][1:]]},
        lambda info: info | {"metrics": ["local", *info["metrics"][1:]]},
        lambda info: info | {"offsets": 10**9},
        lambda info: info | {"read": {"texts": 7}},
        lambda info: info | {"read": info["read"] | {"texts": 10**400}},
        lambda info: info | {"map_texts": 1000},
        lambda info: info | {"plan": info["plan"] | {"map_length": 10**6}},
    ],
)
@pytest.mark.usefixtures("here")
def test_descriptions_of_no_run_are_refused(table: pa.Table, change: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(FileError) as error:
        read_all(described(table, change))
    assert len(str(error.value)) < 400
    assert str(error.value).isprintable()


def _first(value: Any) -> Callable[[list[Any]], Any]:
    return lambda column: [value, *column[1:]]


def _example(**fields: Any) -> Callable[[list[Any]], Any]:
    return lambda column: [[column[0][0] | fields, *column[0][1:]], *column[1:]]


NESTED = pa.list_(pa.list_(pa.float32()))


@pytest.mark.parametrize(
    ("name", "change", "kind"),
    [
        ("mean", _first(None), None),
        ("mean", _first(float("inf")), None),
        ("mean", _first(17.0), None),
        ("mean", lambda column: ["1"] * len(column), pa.string()),
        ("mean", lambda column: [[1.0]] * len(column), pa.list_(pa.float64())),
        ("sd", _first(-1.0), None),
        ("uniform", _first(float("-inf")), None),
        ("count", _first(-1), None),
        ("count", _first(10**6), None),
        ("count", _first(None), None),
        ("count", lambda column: [float("nan")] * len(column), pa.float64()),
        ("metric", lambda column: ["<b>", *column[1:]], None),
        ("metric", lambda column: [b"\xff" * 9, *(b"x" for _ in column[1:])], pa.binary()),
        ("metric", _first("x" * 10**6), None),
        ("layer", _first(2**31 - 1), None),
        ("head", lambda column: [*column[:-1], column[0]], None),
        ("low", _first(float("nan")), None),
        ("high", _first(5.0), None),
        ("histogram", _first([0] * 31), None),
        ("histogram", _first([-1] * 32), None),
        ("histogram", _first([0] * 100_000), None),
        ("histogram", _first(None), None),
        ("mean_map", _first([0.5] * 7), None),
        ("mean_map", _first([0.5] * 10**6), None),
        ("mean_map", _first([float("inf")] * 529), None),
        ("mean_map", lambda column: [[[0.5]]] * len(column), NESTED),
        ("offset_weights", _first([0.5]), None),
        ("offset_weights", _first(None), None),
        ("top", _example(query=10**6), None),
        ("top", _example(key=-1), None),
        ("top", _example(keys=[999]), None),
        ("top", _example(weights=[]), None),
        ("top", _example(tokens=[]), None),
        ("top", _example(tokens=["x"] * 10**5), None),
        ("top", _example(tokens=None), None),
        ("top", _example(text=None), None),
        ("top", _example(value=float("nan")), None),
        ("top", _example(number=-5), None),
        ("top", lambda column: [column[0] * 50, *column[1:]], None),
        ("top", lambda column: [None] * len(column), pa.list_(pa.string())),
    ],
)
@pytest.mark.usefixtures("here")
def test_columns_of_no_run_are_refused(
    table: pa.Table, name: str, change: Callable[[list[Any]], Any], kind: Any
) -> None:
    with pytest.raises(FileError) as error:
        read_all(replaced(table, name, change, kind))
    assert str(error.value).startswith("“heads.parquet” ")
    assert len(str(error.value)) < 400


@pytest.mark.usefixtures("here")
def test_tables_with_missing_rows_columns_and_metadata_are_refused(table: pa.Table) -> None:
    for content, match in (
        (written(table.drop_columns(["sd"])), "should have the column sd"),
        (written(table.slice(1)), f"should have {table.num_rows} rows"),
        (written(pa.concat_tables([table, table])), f"should have {table.num_rows} rows"),
        (written(table.slice(0, 0)), f"should have {table.num_rows} rows"),
        (written(table.replace_schema_metadata({})), "has no entry attention_lab"),
    ):
        with pytest.raises(FileError, match=match):
            HeadsResult.of("x", content)


def test_file_of_an_earlier_version_opens_and_says_so(table: pa.Table) -> None:
    result = HeadsResult.of("x", written(table.drop_columns(["excess_mean", "excess_sd", "excess_count"])))
    assert result.words().endswith("; without differences from the null, since an earlier version wrote it")
    assert np.isnan(result.column("local", "excess_mean")).all()
    assert labels.Chance.of(result, "local", 0).sentence.startswith(
        "Unknown, the result has no differences from the null: run it"
    )
    assert labels.of(result) == ((),) * len(result.heads)


def test_any_changed_byte_gives_a_sentence_or_a_result(table: pa.Table, good: bytes) -> None:
    """Footer and pages: the uncompressed table shows the reader what its checksum would hide."""
    for seed in range(40):
        chance = random.Random(seed)
        content = bytearray(written(table, compression="none") if seed % 2 else good)
        for _ in range(chance.choice((1, 1, 4, 16))):
            place = chance.choice((chance.randrange(len(content)), len(content) - 1 - chance.randrange(9000)))
            content[place] = chance.randrange(256)
        said = ""
        try:
            result = HeadsResult.of("x", bytes(content))
            result.examples(*result.heads[0], "local")
        except FileError as error:
            said = str(error)
        assert "exit code 1)" not in said  # a traceback


def allowed(n_bytes: int) -> _Turn:
    return lambda: nullcontext(n_bytes)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["zeros", "zeros-in-a-map", "long-text", "many-tokens"])
def test_bombs_end_their_process_with_a_sentence(name: str) -> None:
    content = dict(bombs(64 * MB))[name]
    assert len(content) < MB / 8
    with pytest.raises(FileError, match="is not read, since this needs more than 32 MB of memory: use the file that"):
        HeadsResult.of("x", content, turn=allowed(32 * MB)).examples(0, 0, "x")


def test_examples_that_are_too_large_are_refused() -> None:
    result = HeadsResult.of("x", heads_parquet(top=examples(9, text="x" * MB)))
    with pytest.raises(FileError, match=r"9,438,\d+ bytes of examples for a head; at most 8,388,608 are read"):
        result.examples(0, 0, "x")


@pytest.mark.usefixtures("here")
def test_nothing_that_a_process_returns_is_trusted(good: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = heads_table.numbers_of(good, "x")
    start = 8 + int.from_bytes(packed[:8], "little")
    infinite = packed[:start] + np.float64(np.inf).tobytes() + packed[start + 8 :]
    for answer in (b"", bytes(8), b"\xff" * 99, packed[:-1], packed[: start + 80], packed[8:], infinite):
        monkeypatch.setattr(result, "read_foreign", lambda *_, answer=answer, **__: answer)
        with pytest.raises(FileError):
            HeadsResult.of("x", good)
    right = EXAMPLE
    for rows in (
        {}, [0], [[]], [right, 0], [right | {"more": 0}], [right] * 5, [right | {"value": "1"}], [right | {"number": True}],
        [right | {"keys": [0.0]}], [right | {"tokens": "x"}], [right | {"tokens": [["x"]]}], [right | {"weights": [float("nan")]}],
    ):  # fmt: skip
        with pytest.raises(FileError):
            result._read_examples("x", json.dumps(rows).encode(), {"top": 4, "max_tokens": 9, "n_texts": 7})
    for answer in (b"", b"[" * 10**6, b"\xff", b"9" * 5000):
        with pytest.raises(FileError):
            result._read_examples("x", answer, {"top": 4})


def test_pandas_is_not_imported_to_read_a_result(folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from attention.corpus import heads_table\n"
        "content = Path(sys.argv[1]).read_bytes(); heads_table.numbers_of(content, 'x'); heads_table.examples_of(content, 'x', 0)\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(folder / "heads.parquet")], check=True)
