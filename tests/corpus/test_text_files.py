"""Texts from files: every format gives the same texts, as often as they are read, and everything odd is a sentence."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attention import ConfigError, FileError
from attention.corpus.texts import _FORMATS, TextFiles

pytestmark = pytest.mark.quick

TEXTS = ["the owl asked, “who?”", "  she sells\tsea shells ", "keys \"and\" queries; 'meet'", "Der Kübel, 北京 🦉", "x"]


def write_lines(path: Path) -> None:
    path.write_bytes("".join(f"{text}\r\n" for text in TEXTS).encode())


def write_json(path: Path) -> None:
    path.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(TEXTS)))


def write_csv(path: Path, delimiter: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        rows = csv.writer(file, delimiter=delimiter)
        rows.writerow(["id", "text"])
        rows.writerows(enumerate(TEXTS))


def table(kind: Any = None, **columns: Any) -> pa.Table:
    return pa.table({"id": range(len(TEXTS)), "text": pa.array(TEXTS, kind or pa.string()), **columns})


def write_stream(path: Path, content: pa.Table | None = None) -> None:
    content = table() if content is None else content
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, content.schema) as writer:
        writer.write_table(content, max_chunksize=2)


def write_arrow_file(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table().schema) as writer:
        writer.write_table(table(), max_chunksize=2)


def compressed(write: Callable[[Path], None]) -> Callable[[Path], None]:
    def write_compressed(path: Path) -> None:
        write(path)
        path.write_bytes(gzip.compress(path.read_bytes()))

    return write_compressed


def save_dataset(folder: Path) -> None:
    """As `Dataset.save_to_disk` does: with files in another order than that of their names, and others beside them."""
    folder.mkdir(parents=True)
    names = ["data-00001-of-00002.arrow", "data-00000-of-00002.arrow"]
    write_stream(folder / names[0], table().slice(0, 3))
    write_stream(folder / names[1], table().slice(3))
    write_stream(folder / "cache-1f2e.arrow")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text("{}")


def save_split(folder: Path) -> None:
    save_dataset(folder / "train")
    (folder / "dataset_dict.json").write_text('{"splits": ["train"]}')


def save_folder(folder: Path) -> None:
    """Of files in several formats, with others beside them."""
    folder.mkdir()
    (folder / "b.jsonl").write_text("".join(json.dumps({"t": text}) + "\n" for text in TEXTS[1:3]))
    (folder / "a.txt").write_text(TEXTS[0])
    pq.write_table(pa.table({"sentence": TEXTS[3:]}), folder / "c.parquet")
    (folder / "README.md").write_text("no text")
    (folder / ".hidden.txt").write_text("no text")


def write_cache(folder: Path) -> None:
    """As the cache of the hub has a dataset of one split."""
    folder.mkdir()
    write_stream(folder / "name-train.arrow")
    (folder / "dataset_info.json").write_text('{"splits": {"train": {}}}')


WRITERS: dict[str, Callable[[Path], None]] = {
    "a.txt": write_lines,
    "a.txt.gz": compressed(write_lines),
    "a.jsonl": write_json,
    "a.jsonl.gz": compressed(write_json),
    "a.csv": write_csv,
    "semicolons.csv": lambda path: write_csv(path, ";"),
    "a.csv.gz": compressed(write_csv),
    "a.tsv": lambda path: write_csv(path, "\t"),
    "A.TSV.GZ": compressed(lambda path: write_csv(path, "\t")),
    "a.parquet": lambda path: pq.write_table(table(), path),
    "large.parquet": lambda path: pq.write_table(table(pa.large_string()), path, row_group_size=2),
    "words.parquet": lambda path: pq.write_table(table(pa.dictionary(pa.int32(), pa.string())), path),
    "stream.arrow": write_stream,
    "view.arrow": lambda path: write_stream(path, table(pa.string_view())),
    "words.arrow": lambda path: write_stream(path, table(pa.dictionary(pa.int8(), pa.string()))),
    "file.arrow": write_arrow_file,
    "dataset": save_dataset,
    "splits": save_split,
    "folder": save_folder,
    "cache": write_cache,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_texts_twice(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    texts = TextFiles([tmp_path / name])
    assert list(texts) == TEXTS
    first = texts.counts
    assert list(texts) == TEXTS
    assert texts.counts == first
    assert (first.texts, first.empty, first.missing, first.broken) == (len(TEXTS), 0, 0, 0)
    assert first.files == {"dataset": 2, "splits": 2, "folder": 3}.get(name, 1)
    assert set(_FORMATS) <= {part for writer in WRITERS for part in writer.lower().split(".")}


def test_texts_of_several_files_follow_each_other(tmp_path: Path) -> None:
    for name in ("a.parquet", "a.txt"):
        WRITERS[name](tmp_path / name)
    texts = TextFiles([tmp_path / "a.txt", tmp_path / "a.parquet", tmp_path / "a.txt"])
    assert list(texts) == TEXTS * 3
    assert texts.words() == "15 texts from 3 files, column “text”"
    assert [*TextFiles([tmp_path], max_texts=7)] == (TEXTS * 2)[:7]
    two_readers = zip(texts, texts, strict=True)
    assert all(one == other for one, other in two_readers)


def test_standard_input_is_copied_as_far_as_needed() -> None:
    class Endless(io.RawIOBase):
        n_read = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            buffer[:] = (b"to be or not\n" * (len(buffer) // 13 + 1))[: len(buffer)]
            self.n_read += len(buffer)
            return len(buffer)

    source = Endless()
    endless = TextFiles(["-"], max_texts=3, stdin=io.BufferedReader(source))
    assert list(endless) == list(endless) == ["to be or not"] * 3
    assert source.n_read < 2**20
    content = "".join(f'{{"t": "{i}"}}\n' for i in range(50_000)).encode()
    whole = TextFiles(["-"], stdin=io.BytesIO(content), stdin_format="jsonl")
    assert list(whole) == list(whole) == [str(i) for i in range(50_000)]


def test_pipe_is_read_twice(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = Thread(target=pipe.write_text, args=("\n".join(TEXTS),))
    writer.start()
    texts = TextFiles([pipe])
    assert list(texts) == list(texts) == TEXTS
    writer.join()


def test_paragraphs_keep_their_lines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\none\n two\n  \n\nthree\r\n\r\nfour")
    assert [*TextFiles([tmp_path / "a.txt"], paragraphs=True)] == ["one\n two", "three", "four"]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    rows = ['{"text": "a"}', "", '{"text": null}', '{"id": 1}', '{"text": " "}', '{"text": "\\ud83d"}', '{"text": "b"}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    (tmp_path / "b.txt").write_bytes(b"\xef\xbb\xbfc\n\n \t\n" + b"d\n" * 9 + b"caf\xe9\n")
    (tmp_path / "c.csv").write_text('id,text\n1,e\n\n2\n3,\n4,"f\ng"\n5,h,more\n')
    pq.write_table(pa.table({"text": ["i", None, ""]}), tmp_path / "d.parquet")
    texts = TextFiles([tmp_path])
    assert list(texts) == ["a", "b", "c", *"ddddddddd", "e", "f\ng", "h", "i"]
    counts = texts.counts
    assert (counts.files, counts.texts, counts.empty, counts.missing, counts.broken) == (4, 16, 5, 4, 2)
    assert texts.words() == (
        "16 texts from 4 files, column “text”; left out: 5 of white space alone, 4 without a text in “text”, 2 not in UTF-8"
    )


def test_column_is_the_named_one_or_the_only_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,body\nt,b\n")
    pq.write_table(pa.table({"a.b": ["dotted"], "n": [1], "l": [["list"]], "s": [{"text": "nested"}]}), tmp_path / "b.parquet")  # fmt: skip
    (tmp_path / "c.jsonl").write_text('{"body": null, "text": null}\n{"body": "b", "text": "t"}')
    (tmp_path / "d.jsonl").write_text('{"n": 1}\n{"n": 2, "late": "there"}')
    assert [*TextFiles([tmp_path / "a.csv"], "body")] == ["b"]
    assert [*TextFiles([tmp_path / "b.parquet"])] == ["dotted"]
    assert [*TextFiles([tmp_path / "c.jsonl"])] == ["t"]
    assert [*TextFiles([tmp_path / "c.jsonl"], "body")] == ["b"]
    assert [*TextFiles([tmp_path / "d.jsonl"], "late")] == ["there"]


def parquet_bytes(**columns: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def stream_bytes(array: pa.Array) -> bytes:
    sink = io.BytesIO()
    batch = pa.record_batch({"text": array})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


PARQUET = parquet_bytes(text=TEXTS)
FAR_OFFSETS = pa.Array.from_buffers(
    pa.string(), 2, [None, pa.array([0, 2**30, 3], pa.int32()).buffers()[1], pa.py_buffer(b"abc")]
)

REFUSED = {
    "no column": ("a.csv", b"id,label\n1,2\n", r"should have a column “text”.*its columns are id, label: name one with --column"),
    "no column text": ("a.jsonl", b'{"a": "x", "b": "y"}\n', r"its columns are a, b: name one with --column"),
    "numbers": ("a.jsonl", b'{"text": "a"}\n{"text": 3}\n', r"a string; 'text' in line 2 of .* is something else"),
    "nested JSON": ("a.jsonl", b'{"text": {"body": "a"}}\n', r"its columns are text: name one"),
    "list of JSON": ("a.jsonl", b'["a", "b"]\n', r"Line 1 of .* should be an object"),
    "broken JSON": ("a.jsonl", b'{"text": "a"}\n\n{"text": "b"\n', r"Line 3 of .* should be JSON; it is not \(.*delimiter"),
    "deep JSON": ("a.jsonl", b"[" * 200_000, r"Line 1 of .* should be JSON; it is not \(too deep"),
    "large number": ("a.jsonl", b'{"text": "a", "n": ' + b"1" * 5000 + b"}", r"too large a number"),
    "other encoding": ("a.txt", "Übel\n".encode("latin1") * 20, r"20 of its 20 lines are not: convert it, for example with iconv"),
    "UTF-16": ("a.txt", "Übel".encode("utf-16"), r"it is UTF-16, not: convert it"),
    "encoding of CSV": ("a.csv", b"text\na\ncaf\xe9\n", r"should be a text in UTF-8; line 3 is not"),
    "open quote": ("a.csv", b'text\na\n"b\nc\n', r"should be CSV .* up to line 4 it is not \(unexpected end of data"),
    "stray quote": ("a.csv", b'text\n"a"b\n', r"up to line 2 it is not"),
    "no gzip": ("a.txt.gz", b"plain", r"cannot be read after line 0 .*Not a gzipped file"),
    "half gzip": ("a.txt.gz", gzip.compress(b"a line\n" * 10_000)[:40], r"cannot be read after line \d"),
    "wrong checksum": ("a.txt.gz", gzip.compress(b"a\n")[:-8] + bytes(8), r"cannot be read after line 1 .*CRC"),
    "broken deflate": ("a.jsonl.gz", gzip.compress(b"")[:10] + b"\xff" * 40, r"cannot be read after line 0"),
    "no Parquet": ("a.parquet", b"PAR1 nothing PAR1", r"a\.parquet cannot be read \(“"),
    "half Parquet": ("a.parquet", PARQUET[: len(PARQUET) // 2], r"a\.parquet cannot be read \(“"),
    "damaged Parquet": ("a.parquet", PARQUET[:4] + b"\xff" * 30 + PARQUET[34:], r"a\.parquet cannot be read \(“"),
    "lists": ("a.parquet", parquet_bytes(text=[["a"]], n=[1]), r"its columns are text, n: name one with --column"),
    "empty": ("a.arrow", b"", r"a\.arrow cannot be read \(“"),
    "no Arrow": ("a.arrow", b"ARROW1 nothing", r"a\.arrow cannot be read \(“"),
    "hostile offsets": ("a.arrow", stream_bytes(FAR_OFFSETS), r"a\.arrow cannot be read \(“.*out of bounds"),
    "unknown format": ("a.docx", b"", r"ends in \.txt, \.jsonl, .*a\.docx does not: rename it"),
    "compressed Parquet": ("a.parquet.gz", b"", r"does not: rename it"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_damaged_and_odd_files_are_one_sentence(case: str, tmp_path: Path) -> None:
    name, content, match = REFUSED[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FileError, match=match) as caught:
        list(TextFiles([tmp_path / name]))
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "column", "match"),
    [
        ("a.csv", "nothing", r"should have a column 'nothing'; it has id, text: choose one"),
        ("a.jsonl", "nothing", r"should have a column 'nothing'; it has id, text: choose one"),
        ("a.parquet", "nothing", r"should have a column 'nothing'; it has id, text: choose one"),
        ("a.parquet", "id", r"holds strings; 'id' of .* holds something else"),
        ("stream.arrow", "id", r"holds strings; 'id' of .* holds something else"),
        ("a.jsonl", "id", r"'id' in line 1 of .* is something else"),
    ],
)
def test_wrong_column_is_refused_with_those_that_exist(name: str, column: str, match: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    with pytest.raises(FileError, match=match):
        list(TextFiles([tmp_path / name], column))


def test_folders_that_have_no_texts_say_what_to_name(tmp_path: Path) -> None:
    save_split(tmp_path / "splits")
    (tmp_path / "splits" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(FileError, match=r"has the splits train, test: name one, such as .*splits/train"):
        TextFiles([tmp_path / "splits"])
    assert [*TextFiles([tmp_path / "splits" / "train"])] == TEXTS
    write_cache(tmp_path / "cache")
    (tmp_path / "cache" / "dataset_info.json").write_text('{"splits": {"train": {}, "test": {}}}')
    with pytest.raises(FileError, match=r"splits train, test: name the files of one, such as .*/\*-train\*\.arrow"):
        TextFiles([tmp_path / "cache"])
    with pytest.raises(FileError, match=r"has none: name one of its folders \(cache, splits\)"):
        TextFiles([tmp_path])
    state = tmp_path / "splits" / "train" / "state.json"
    for content, match in (
        ("[]", "should describe a dataset"),
        ("{", "should describe a dataset"),
        ('{"_data_files": 3}', "should describe a dataset"),
        ('{"_data_files": [{"filename": "../../etc/passwd"}]}', r"should have the file passwd; there is none"),
        ('{"_data_files": ["x"]}', r"should have the file unnamed"),
        ('{"_data_files": [], "_indices_data_files": ["x"]}', "a selection of another dataset"),
    ):
        state.write_text(content)
        with pytest.raises(FileError, match=match):
            TextFiles([state.parent])


def test_missing_files_and_bad_options_are_refused(tmp_path: Path) -> None:
    for paths, match in (
        ([tmp_path / "none.txt"], r"it cannot be read \(No such file or directory\): check its name"),
        (["a\0b.txt"], r"cannot be read \("),
        (["x" * 5000], r"cannot be read \(File name too long\)"),
        (["-"], r"no standard input"),
        (["-", "-"], r"twice: name it once"),
    ):
        with pytest.raises(FileError, match=match):
            TextFiles(paths)
    with pytest.raises(ConfigError, match="0, for all, or more; got -1"):
        TextFiles([], max_texts=-1)
    with pytest.raises(ConfigError, match="Standard input is txt, jsonl, csv, tsv; got 'docx'"):
        TextFiles([], stdin_format="docx")
    (tmp_path / "a.txt").write_text("a")
    texts = TextFiles([tmp_path / "a.txt"])
    (tmp_path / "a.txt").unlink()
    with pytest.raises(FileError, match=r"a\.txt cannot be read \(No such file"):
        list(texts)


def test_files_without_texts_have_none(tmp_path: Path) -> None:
    for name in ("a.txt", "b.jsonl", "c.csv", "d.tsv"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "e.txt.gz").write_bytes(gzip.compress(b""))
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "f.parquet")
    texts = TextFiles([tmp_path])
    assert list(texts) == []
    assert texts.counts.files == 6


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """The largest number of bytes that Python had since the test began."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


@pytest.mark.slow
def test_bombs_stay_small_in_memory(tmp_path: Path, peak: Callable[[], int]) -> None:
    """A line of 128 MB in 600 kB, sixty rows of one long text, a field and a paragraph without end."""
    with gzip.open(tmp_path / "line.txt.gz", "wb", compresslevel=1) as file:
        for _ in range(128):
            file.write(b"x" * 2**20)
    for name, start in (("field.csv", 'text\n"'), ("paragraph.txt", "")):
        with (tmp_path / name).open("w") as file:
            file.write(start)
            for _ in range(2**8):
                file.write(f"{'many words ' * 2**9}\n" * 2**3)
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 60, pa.int32()), pa.array(["x" * 9_000_000]))
    pq.write_table(pa.table({"text": repeated}), tmp_path / "rows.parquet", store_schema=False)
    pq.write_table(pa.table({"text": ["x" * 11_000_000]}), tmp_path / "text.parquet")
    before = pa.total_allocated_bytes()
    for name, match in (
        ("line.txt.gz", r"at most 10,000,000 bytes; line 1 of"),
        ("field.csv", r"field larger than field limit"),
        ("text.parquet", r"at most 10,000,000 bytes; one of .* has 11,000,000"),
        ("paragraph.txt", r"A paragraph has at most"),
    ):
        with pytest.raises(FileError, match=match):
            list(TextFiles([tmp_path / name], paragraphs=True))
    assert sum(1 for _ in TextFiles([tmp_path / "rows.parquet"])) == 60
    assert peak() < 150 * 2**20
    assert pa.total_allocated_bytes() - before < 60 * 2**20


def test_texts_are_read_one_at_a_time(tmp_path: Path, peak: Callable[[], int]) -> None:
    (tmp_path / "a.txt").write_text("the owl asked the moon and the moon blinked\n" * 100_000)  # 4.4 MB
    before = peak()
    assert sum(1 for _ in TextFiles([tmp_path / "a.txt"])) == 100_000
    assert peak() - before < 2**20
