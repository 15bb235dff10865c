"""Tables and alignments as files: of pandas, R, spreadsheets, translation programs, and every file that the Lab writes."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from margins import approx
from starlette.testclient import TestClient
from test_code import run
from tiny_models import TinyModels

from attention import AttentionError, Cell, ConfigError, File, FileError, Layer, Trace
from attention.base.tokens import label
from attention.explanation import tables
from attention.explanation.derived import NORMS
from attention.export.program import python
from attention.files import labelled
from attention.files.matrix_text import parse_text
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.formula.names import WEIGHTS
from attention.formula.steps import MAP_AXES, STEPS
from attention.metrics import aggregates
from attention.models.library import LIBRARY, Settings
from attention.sources import registry
from pages.ui import process
from pages.ui.exports.catalog import _exports
from pages.ui.exports.request import Export
from pages.ui.server import traces
from pages.ui.server.limits import LIMITS

assert process  # imported as in the server

HOSTILE = ["[CLS]", ",", 'a "quoted" one', "=1+1", "", "1", "2.5", "👩‍👩‍👧", "אבג", "the", "the", ";", "|", "#", "##ing", "a: 1", "'", "NA", "query", "Σ row", "\t"]  # fmt: skip
N = len(HOSTILE)
WEIGHTS_OF_TABLE = torch.softmax(3 * torch.randn(N, N, dtype=torch.float64, generator=torch.manual_seed(0)), -1)
SCORES_OF_TABLE = torch.randn(N, N, dtype=torch.float64, generator=torch.manual_seed(1))
FRAME = pd.DataFrame(WEIGHTS_OF_TABLE.numpy(), HOSTILE, HOSTILE)


def opened(text: str | bytes, name: str = "w.csv", **reading: Any) -> Trace:
    content = text if isinstance(text, bytes) else text.encode()
    return replace(File.of(name, content), **reading).trace()


def assert_map(trace: Trace, expected: torch.Tensor, step: str = WEIGHTS) -> None:
    np.testing.assert_array_equal(trace.layers[0][step][0].numpy(), expected.numpy())


# -- tables of other programs ---------------------------------------------------------------

ESCAPED = [token.replace("\\", "\\\\").replace('"', '\\"') for token in HOSTILE]
WRITE_TABLE = "\n".join(
    [
        " ".join(f'"{token}"' for token in ESCAPED),
        *(
            " ".join([f'"{token}"', *map(repr, row)])
            for token, row in zip(ESCAPED, WEIGHTS_OF_TABLE.tolist(), strict=True)
        ),
    ]
)  # R's write.table
LABELLED: dict[str, tuple[str, str | bytes]] = {
    "pandas": ("w.csv", FRAME.to_csv()),
    "pandas without an index": ("w.csv", FRAME.to_csv(index=False)),
    "pandas between tabs": ("w.tsv", FRAME.to_csv(sep="\t")),
    "a German spreadsheet": ("w.csv", FRAME.to_csv(sep=";", decimal=",")),
    "a spreadsheet that names its separator": ("w.csv", "sep=,\r\n" + FRAME.to_csv(lineterminator="\r\n")),
    "a byte order mark": ("w.csv", FRAME.to_csv().encode("utf-8-sig")),
    "Unicode text": ("w.txt", FRAME.to_csv(sep="\t").encode("utf-16")),
    "R's write.csv": ("w.csv", FRAME.to_csv(quoting=2)),
    "R's write.table": ("w.txt", WRITE_TABLE),
    "an index with a name": ("w.csv", FRAME.rename_axis("token").to_csv()),
    "JSON split": ("w.json", FRAME.to_json(orient="split", double_precision=15)),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content"), LABELLED.values(), ids=LABELLED)
def test_labels_of_a_table_become_its_tokens(name: str, content: str | bytes) -> None:
    trace = opened(content, name)
    assert trace.layers[0][WEIGHTS][0].numpy() == approx(WEIGHTS_OF_TABLE.numpy())
    expected = [token.strip() for token in HOSTILE]
    assert [token.strip() for token in trace.tokens] == expected
    assert [token.strip() for token in trace.layers[0].key_tokens] == expected
    assert "The table is read as weights, since its rows sum to 1" in trace.notes[0]


@pytest.mark.parametrize("orient", ["columns", "index", "split", "records", "table"])
def test_json_of_pandas_is_read_in_every_form(orient: Any) -> None:
    frame = pd.DataFrame([[0.75, 0.25, 0.0], [0.5, 0.25, 0.25]], ["[CLS]", "7"], ["a", "b", ","])
    trace = opened(frame.to_json(orient=orient), "w.json")
    assert trace.layers[0][WEIGHTS][0].tolist() == frame.to_numpy().tolist()
    assert trace.layers[0].key_tokens == ("a", "b", ",")
    assert trace.tokens == (("x0", "x1") if orient == "records" else ("[CLS]", "7"))


BARE = {
    "numbers": ("w.csv", "0.5,0.5\n0.25,0.75"),
    "numpy.savetxt": ("w.txt", "# the weights\n5.0e-01 5.0e-01\n2.5e-01 7.5e-01\n"),
    "pandas' own numbers": ("w.csv", pd.DataFrame([[0.5, 0.5], [0.25, 0.75]]).to_csv()),
    "pandas' numbers of the columns": ("w.csv", pd.DataFrame([[0.5, 0.5], [0.25, 0.75]]).to_csv(index=False)),
    "a print of NumPy": ("w.txt", "[[0.5  0.5 ]\n [0.25 0.75]]"),
    "a print of torch": ("w.txt", "tensor([[[0.5000, 0.5000],\n         [0.2500, 0.7500]]])"),
    "decimal commas": ("w.csv", "0,5;0,5\n0,25;0,75"),
    "the true minus": ("w.csv", "0.5,0.5\n0.25,0.75\r\n"),
}


@pytest.mark.parametrize(("name", "content"), BARE.values(), ids=BARE)
def test_bare_numbers_are_a_map_without_names(name: str, content: str) -> None:
    trace = opened(content, name)
    assert trace.layers[0][WEIGHTS][0].tolist() == [[0.5, 0.5], [0.25, 0.75]]
    assert trace.tokens == ("x0", "x1")


def test_printed_stack_is_one_map_for_each_head() -> None:
    heads = np.arange(1.0, 9).reshape(2, 2, 2)
    trace = opened(str(heads / heads.sum(-1, keepdims=True)), "w.txt")
    assert trace.layers[0][WEIGHTS].numpy() == approx(heads / heads.sum(-1, keepdims=True), dtype="float32")


@pytest.mark.parametrize(
    ("text", "step", "why"),
    [
        ("1,2\n3,4", "scores", "its rows sum to other values than 1, such as 3"),
        ("0.5,-0.5\n1,0", "scores", "it has negative numbers"),
        ("0.33,0.33,0.33\n0.5,0.25,0.25", "weights", "its rows sum to 1"),
        ("1,0\n0,0", "weights", "its rows sum to 1"),
        ("0.1,0.6\n0.9,0.4", "weights", "its columns sum to 1"),
        ("1,-inf\n1,2", "masked_scores", "it has −∞, which hides a key"),
    ],
)
def test_numbers_decide_what_a_table_means(text: str, step: str, why: str) -> None:
    trace = opened(text)
    assert next(iter(trace.layers[0].recorded)) == step
    softmax = ", of which the softmax makes weights" * (step == "scores")
    assert f"The table is read as {step.replace('_', ' ')}{softmax}, since {why}" in trace.notes[0]


def test_knob_says_what_a_table_means() -> None:
    text = "0.5,0.5\n0.25,0.75"
    scores = opened(text, table_means="scores").layers[0]
    assert scores[WEIGHTS][0] == approx(torch.softmax(torch.tensor([[0.5, 0.5], [0.25, 0.75]]).double(), -1))
    assert_map(opened("1,2\n3,4", table_means="weights"), torch.tensor([[1.0, 2], [3, 4]]))
    assert not any("table_means" in note for note in opened(text, table_means="weights").notes)
    with pytest.raises(ConfigError, match="table_means is one of numbers, weights, scores; got 'x'"):
        opened(text, table_means="x")


def test_name_of_the_file_says_what_a_table_means() -> None:
    assert list(opened("0.5,0.5\n0.25,0.75", "scores-L0-H1.csv").layers[0].recorded) == ["scores"]
    assert list(opened("0.4,0.5\n0.25,0.7", "weights (1).csv").layers[0].recorded) == ["weights"]


def test_axes_of_a_table_can_be_named() -> None:
    frame = pd.DataFrame([[0.5, 0.0], [0.5, 0.0], [0.0, 1.0]], ["a", "b", "c"], ["x", "y"])
    trace = opened(frame.to_csv(), axes="key query")
    assert trace.layers[0][WEIGHTS][0].tolist() == frame.to_numpy().T.tolist()
    assert (trace.tokens, trace.layers[0].key_tokens) == (("x", "y"), ("a", "b", "c"))


# -- alignments -------------------------------------------------------------------------

# As the printers of these programs write them: Marian's getAlignment, fairseq's --print-alignment, report_matrix of OpenNMT, GIZA++.
ALIGNMENTS: dict[str, tuple[str, list[list[float]], list[str], list[str]]] = {
    "Marian": ("das ist ||| 0.9,0.1 0.2,0.8\n", [[0.9, 0.1], [0.2, 0.8]], ["das", "ist"], ["k0", "k1"]),
    "Marian with the end": ("das ||| 0.9,0.1,0 0,0.2,0.8", [[0.9, 0.1, 0], [0, 0.2, 0.8]], ["das", "</s>"], ["k0", "k1", "k2"]),
    "Marian's n-best list": ("0 ||| das ist ||| 0.9,0.1 0.2,0.8 ||| F0= -1.5 ||| -0.7\n", [[0.9, 0.1], [0.2, 0.8]], ["das", "ist"], ["k0", "k1"]),
    "Marian, hard": ("das ist ||| 0-0 1-1\n", [[1, 0], [0, 1]], ["das", "ist"], ["k0", "k1"]),
    "two texts": ("this is ||| das ist ||| 0-1 1-0\n", [[0, 1], [1, 0]], ["das", "ist"], ["this", "is"]),
    "fast_align": ("0-0 1-2\n", [[1, 0], [0, 0], [0, 1]], ["x0", "x1", "x2"], ["k0", "k1"]),
    "gold, with possible links": ("0-0 1p1\n", [[1, 0], [0, 1]], ["x0", "x1"], ["k0", "k1"]),
    "fairseq, hard": ("S-7\tthis is\nT-7\tdas ist\nH-7\t-0.25\tdas war\nD-7\t-0.25\tdas war\nP-7\t-0.2 -0.3\nA-7\t0-0 1-1\n", [[1, 0], [0, 1]], ["das", "war"], ["this", "is"]),
    "fairseq, soft": ("S-7\tthis is\nH-7\t-0.25\tdas\nA-7\t0.750000,0.250000\n", [[0.75, 0.25]], ["das"], ["this", "is"]),
    "GIZA++": ("# Sentence pair (1) source length 2 target length 2 alignment score : 0.1\nthis is\nNULL ({ }) das ({ 1 2 }) ist ({ }) \n", [[1, 0], [1, 0]], ["this", "is"], ["das", "ist"]),
    "OpenNMT": (f"{'':>10} {'this':>10} {'is':>10} \n{'das':>10} {'*0.9000000'} {0.1:>10.7f} \n{'ist':>10} {0.2:>10.7f} {'*0.8000000'} \n", [[0.9, 0.1], [0.2, 0.8]], ["das", "ist"], ["this", "is"]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "rows", "target", "source"), ALIGNMENTS.values(), ids=ALIGNMENTS)
def test_alignment_is_a_map_of_weights(
    text: str, rows: list[list[float]], target: list[str], source: list[str]
) -> None:
    layer = opened(text, "a.txt").layers[0]
    assert layer[WEIGHTS][0].tolist() == rows
    assert (list(layer.tokens), list(layer.key_tokens)) == (target, source)
    assert list(layer.recorded) == [WEIGHTS]


def test_sentences_of_an_alignment_are_a_choice() -> None:
    text = "das ||| 0.9,0.1\nist gut ||| 0.2,0.8 0.5,0.5\nund ||| 0.3,0.7\n"
    file = File.of("a.txt", text.encode())
    assert file.sequences == ("das", "ist gut", "und")
    rows = [replace(file, sequence=number).trace().layers[0] for number in range(3)]
    assert [layer[WEIGHTS][0].tolist() for layer in rows] == [[[0.9, 0.1]], [[0.2, 0.8], [0.5, 0.5]], [[0.3, 0.7]]]
    assert [layer.tokens for layer in rows] == [("das",), ("ist", "gut"), ("und",)]


# -- every file that the Lab writes ---------------------------------------------------------------


def hostile_trace() -> Trace:
    """A trace with every kind of map, whose tokens break tables."""
    random = torch.Generator().manual_seed(2)
    query, key, value = (torch.randn(2, N, 3, generator=random) for _ in range(3))
    layer = Layer(
        tokens=tuple(HOSTILE),
        key_tokens=tuple(HOSTILE),
        recorded={"query": query, "key": key, "value": value},
        formula=Formula(mask=Mask("causal"), divisor=3**0.5),
    )
    return Trace(tuple(HOSTILE), (layer,))


MAPS = [step.name for step in STEPS if step.axes == MAP_AXES and hostile_trace().layers[0].has(step.name)]
assert len(MAPS) > 3


def read_as(step: str) -> str:
    """The step as which a table of another step opens: what enters the softmax are scores."""
    return step if step in (WEIGHTS, "scores", "masked_scores") else "scores"


@pytest.mark.parametrize("step", MAPS)
def test_table_of_every_map_opens_with_the_same_digits(step: str) -> None:
    trace = hostile_trace()
    again = opened("".join(tables.csv(trace, step, 0, 1)), f"{step}-L0-H1.csv")
    np.testing.assert_array_equal(again.layers[0][read_as(step)][0].float(), trace.layers[0].matrix(step, 1))
    assert [label(token) for token in again.tokens] == [label(token) for token in HOSTILE]
    assert again.layers[0].key_tokens == again.tokens
    long = tables.long_csv(lambda start, stop: tables.long_frame(trace, [step], 0, range(2), start, stop), 2 * N * N)
    heading, *rows = "".join(long).splitlines(keepends=True)
    for text in ("".join([heading, *rows]), "".join([heading, *reversed(rows)])):
        layer = opened(text, "x.csv").layers[0]
        np.testing.assert_array_equal(layer[read_as(step)].float(), trace.layers[0][step])
        assert layer.tokens == layer.key_tokens == again.tokens


TYPED = {"text": 'the [CLS] , "x" ; =1+1 2.5 👩‍👩‍👧 אבג the', "mask": "causal", "heads": "2", "head": "1", "compare": "temperature=0.5"}  # fmt: skip
NAMED = {"source": "model", "model": "GPT-2", "text": "[[bird]] the owl [[night]] the moon", "spans": "marks"}
CHAIN = {"source": "model", "model": "tiny-esm", "text": "MKTVRQERLKSIVRILERSKEPV"}
TRAINED = {"source": "trained", "task": "induction", "at": "0", "layer": "1", "q": "20", "k": "7"}
MAPS_OF_THE_LAB = ("{step}.csv", "{step}-heads.csv", "mask-cells.csv", "mean.csv", "max.csv", "rollout.csv", "norm-weighted.csv")  # fmt: skip
ALL_STEPS = ("attention.npz", "attention.safetensors")
NO_ATTENTION = {
    "{step}-B-minus-A.csv": "is the difference of two states",
    "heads-metrics.csv": "where a number is expected",
    "logit-effect.csv": "is what each cell adds to a logit",
    "logit-parts.csv": "where a number is expected",
    "score-terms.csv": "where a number is expected",
    "spans.csv": "where a number is expected",
}
OPENED_OTHERWISE = (
    ".py",
    ".tex",
    ".ipynb",
    ".png",
    ".svg",
    ".pdf",
    ".html",
)  # programs and pictures: their numbers are drawn, or computed again


@pytest.mark.parametrize("export", _exports(), ids=[export.name for export in _exports()])
def test_every_file_of_the_lab_opens_or_says_why(
    client: TestClient, export: Export, tiny: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny("GPT-2")
    assert traces.trace_of  # importing it gives the library the operator's settings, once
    monkeypatch.setattr(LIBRARY, "settings", Settings(tiny.folder))
    if export.name.endswith(OPENED_OTHERWISE):
        with pytest.raises(FileError, match=r"ends in .npz, .*; got “"):
            opened("x", export.name)
        return
    for state in (TYPED, TRAINED, NAMED, CHAIN):  # some files need a model, or names for parts of its text
        answer = client.get(f"/export/{export.name.format(step='weights')}", params=state)
        if answer.status_code == 200:
            break
    assert answer.status_code == 200, answer.text
    file_name = re.findall('filename="(.*?)"', answer.headers["content-disposition"])[0]
    if export.name not in (*MAPS_OF_THE_LAB, *ALL_STEPS):
        with pytest.raises(FileError, match=NO_ATTENTION.get(export.name)) as caught:
            opened(answer.content, file_name)
        assert str(caught.value).startswith(f"“{file_name}”")
        return
    trace, original = opened(answer.content, file_name), registry.source_of(state, LIMITS)[0].trace()
    assert list(map(label, trace.tokens)) == list(map(label, original.tokens))
    derived = {derived.name: derived for derived in (*aggregates.AGGREGATES, NORMS)}.get(
        export.name.removesuffix(".csv")
    )
    expected = derived.matrix(original, 0, 1)[None] if derived else original.layers[0][WEIGHTS]
    written = trace.layers[0][WEIGHTS].float()
    np.testing.assert_array_equal(written, expected if len(written) == len(expected) else expected[1:])


@pytest.mark.parametrize("step", ["query", "key", "value", "output"])
def test_features_are_refused_with_what_to_open(client: TestClient, step: str) -> None:
    for name in (f"{step}.csv", f"{step}-heads.csv"):
        answer = client.get(f"/export/{name}", params=TYPED)
        with pytest.raises(
            FileError, match="has the features of each token, not its attention to others: open weights"
        ):
            opened(answer.content, name)
    table = pd.read_csv(io.StringIO(answer.text))
    assert table.iloc[0, list(table.columns).index(step) - 2] == "0 the", "the labels are not lost"


@pytest.mark.parametrize("size", [3, 40])
def test_copied_program_has_the_numbers_of_a_table(size: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scores = np.random.default_rng(0).standard_normal((size, size))
    file = File.of("w.csv", pd.DataFrame(scores).to_csv().encode())
    trace = file.trace()
    trace.save("attention.npz")
    np.testing.assert_array_equal(
        run(python(file, trace, Cell(0, WEIGHTS, 0, 0, 0)))[WEIGHTS], trace.layers[0][WEIGHTS]
    )


# -- pasted tables ---------------------------------------------------------------------


def test_pasted_table_names_the_tokens() -> None:
    frame = pd.DataFrame(SCORES_OF_TABLE.numpy(), HOSTILE, HOSTILE)
    for text in (frame.to_csv(), frame.to_csv(sep="\t"), frame.to_csv(sep=";", decimal=",")):
        reading = parse_text(text, "S")
        assert reading.question == ""
        assert next(iter(reading.choices.values())) == tuple(map(tuple, SCORES_OF_TABLE.tolist()))
        assert reading.names == reading.columns == tuple(token.strip() for token in HOSTILE)
    table = "".join(tables.csv(hostile_trace(), WEIGHTS))
    reading = parse_text(table, "S")
    assert reading.shape == (N, N)
    assert reading.names[:3] == ("[CLS]", ",", 'a·"quoted"·one')
    printed = parse_text("       [CLS]  cat\n[CLS]    1.0  0.0\ncat      0.0  1.0", "S")
    assert printed.names == printed.columns == ("[CLS]", "cat")


# -- bad input -----------------------------------------------------------------------------

BAD = {
    "words": ("w.csv", "a,b\nc,d", "“w.csv” has 'd' in row 0, column 0, where a number is expected"),
    "a word in a labelled table": ("w.csv", ",a,b\na,1,x\nb,1,2", "has 'x' in row 0, column 1"),
    "a missing number": ("w.csv", ",a,b\na,1,\nb,1,2", "has nothing in row 0, column 1, where a number is expected: fill the cell"),
    "NaN": ("w.csv", "1,nan\n1,2", "scores needs finite numbers; got nan at head 0, query 0 x0, key 1 x1"),
    "a short row": ("w.csv", ",a,b\na,1,2\nb,1", "row 1 has 1 numbers, the first has 2: save the complete table"),
    "labels alone": ("w.csv", ",a,b", "“w.csv” "),
    "blanks": ("w.txt", " \n ", "needs at least one number; got none"),
    "negative weights": ("weights.csv", "1,-1\n1,0", "weights needs values of at least 0; got -1 at head 0, query 0"),
    "a long table with a gap": ("w.csv", "query,key,weights\na,a,1\na,b,0\nb,a,1", "has 3 rows for 2 × 2 labels"),
    "a long table with repeated tokens": ("w.csv", "query,key,weights\na,a,1\na,b,0\nb,a,1\nb,a,1", "two rows for one pair"),
    "a long table without numbers": ("w.csv", "query,key\na,a", "has the columns query, key, and none with numbers"),
    "ragged alignment": ("w.txt", "a b ||| 0.5,0.5 1\n", "needs a weight for each source word in every row; got rows of 1 and 2 weights"),
    "an alignment and a text": ("w.txt", "a ||| 0.5,0.5\nb\n", "line 1 has 'b'"),
    "MATLAB's format": ("w.mat", "x", "scipy.io.loadmat"),
    "HDF5": ("w.h5", "x", "h5py.File"),
    "quotation marks": ("w.csv", 'a,b\n"' + "a" * 200_000, "quotation marks that does not end"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "text", "sentence"), BAD.values(), ids=BAD)
def test_bad_table_gets_one_sentence(name: str, text: str, sentence: str) -> None:
    with pytest.raises(AttentionError) as caught:
        opened(text, name)
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message
    assert message.endswith(".")


MANY = 2**18
HOSTILE_TEXTS = {
    "commas": "," * MANY,
    "numbers": "12," * MANY,
    "rows": "1,2\n" * MANY,
    "labels": ",a\n" + "b,12\n" * MANY,
    "links": "0-0 " * MANY,
    "far links": "0-0 99999-99999",
    "weights": "a ||| " + "0.5,0.5 " * MANY,
    "pipes": "|||" * MANY,
    "long": "query,key,weights\n" + "a,b,1\n" * MANY,
    "brackets": "[" * MANY,
    "cells in a later line": "1,2\n" * 99 + "12," * MANY,
}


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS)
def test_nonsense_is_refused_within_bounded_memory(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelled, "_MAX_NUMBERS", 2**16)  # a quarter of the numbers, as in a file of the largest size
    content = text.encode()
    tracemalloc.start()
    try:
        with pytest.raises(FileError) as caught:
            File.of("w.txt", content).trace()
        assert tracemalloc.get_traced_memory()[1] < 12 * len(content) + 2**22
    finally:
        tracemalloc.stop()
    assert len(str(caught.value)) < 400


PIECES = st.sampled_from([",", ";", "\t", "|||", " ", "\n", '"', "0.5", "1", "-2", "0-0", "a", "[CLS]", "query_pos", "Σ row", "A-1\t", "({ 1 })", "NULL", "\\", "1,5", "head,query,key,weights\n", "#", "=", "[", "]", "nan"])  # fmt: skip


@given(st.lists(PIECES, max_size=20).map("".join))
@settings(max_examples=400, deadline=None)
def test_any_text_gives_a_trace_or_sentence(text: str) -> None:
    sentence = ""
    try:
        trace = opened(text + "\n", "x.txt")
    except AttentionError as error:
        sentence = str(error)
    if sentence:
        assert "\n" not in sentence
    else:
        assert len(trace.layers) == 1


def test_records_of_other_keys_are_no_table() -> None:
    # The cells of all keys in all records would be nine million.
    records = [{f"k{i}": 1 for i in range(3_000)}, *[{}] * 3_000]
    with pytest.raises(AttentionError):
        opened(json.dumps(records), "x.json")


DOCUMENTS = st.recursive(st.integers() | st.text(max_size=3) | st.none(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["columns", "index", "data", "schema", "primaryKey", "a", "b"]), inner, max_size=4))  # fmt: skip


@given(DOCUMENTS)
@settings(deadline=None)
def test_any_json_gives_a_trace_or_sentence(document: Any) -> None:
    try:
        trace = opened(json.dumps(document), "x.json")
    except AttentionError:
        return
    assert len(trace.layers) == 1
