"""Heads over many texts on the page: the numbers of its pictures, links in odd states, uploads and their bounds."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import state_of_address
from margins import approx
from streamlit.testing.v1 import AppTest
from test_pages import drawn, opened, said

from attention import FileError, TypedText, metrics
from attention.base.cache import CACHE
from attention.corpus import result as result_of_runs
from attention.corpus import scan
from attention.corpus.command import main
from attention.corpus.distribution_mosaic import HeadDistributions
from attention.corpus.result import HeadsResult
from attention.models.library import LIBRARY
from pages.ui.corpus import chosen_result
from pages.ui.corpus.chosen_result import _UploadedResult
from pages.ui.server import heavy, uploads
from pages.ui.state.session import session

PAGE = "pages/heads.py"
TEXTS = (
    "an owl asked the moon and the moon blinked",
    "she sells, sea shells. The sea",
    "a quiet harbor watched the copper moon; the owl asked the moon and the moon blinked twice",
    "keys and queries meet, and <b>values</b> wait",
    "attention is a weighted sum of the values of all tokens",
)
OTHER_TEXTS = ("one two three one two three", "the cat sat on the mat and the cat slept", "x")
MANY = {"heads_over": "many texts"}


@cache
def heads_parquet(texts: tuple[str, ...] = TEXTS) -> bytes:
    """The heads.parquet of MiniLM over a few texts."""
    with tempfile.TemporaryDirectory() as folder:
        plan, _ = scan.make_plan(LIBRARY.get("all-MiniLM-L6-v2"), texts, top=3)
        scan.scan(plan, texts, folder)
        scan.merge(folder)
        return Path(folder, "heads.parquet").read_bytes()


@pytest.fixture(autouse=True)
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results on offer: a folder and a file."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "heads.parquet").write_bytes(heads_parquet())
    (tmp_path / "second.parquet").write_bytes(heads_parquet(OTHER_TEXTS))
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(chosen_result, "RESULTS", tmp_path)
    return tmp_path


def result() -> HeadsResult:
    return HeadsResult.of("first", heads_parquet())


def other_result() -> HeadsResult:
    return HeadsResult.of("second", heads_parquet(OTHER_TEXTS))


def test_example_shows_what_an_upload_of_it_shows(offered: Path) -> None:
    app = opened(PAGE, **MANY)
    app.button(key="heads_example").click().run()
    assert not app.exception
    assert state_of_address(app)["heads_result"] == chosen_result._EXAMPLE
    (offered / "copy.parquet").write_bytes((result_of_runs.EXAMPLE / "heads.parquet").read_bytes())
    copy = opened(PAGE, **MANY, heads_result="copy")
    for shown, expected in zip(drawn(app), drawn(copy), strict=True):
        assert json.dumps(shown, default=np.ndarray.tolist) == json.dumps(expected, default=np.ndarray.tolist)
    assert app.dataframe[0].value.equals(copy.dataframe[0].value)
    captions = [caption.value.replace("copy", "example", 1) for caption in copy.caption]
    assert [caption.value for caption in app.caption] == captions


def test_example_is_what_its_command_makes(tmp_path: Path) -> None:
    made = tmp_path / "made"
    assert (
        main(
            [
                "all-MiniLM-L6-v2",
                str(result_of_runs.EXAMPLE / "texts.txt"),
                "-o",
                str(made),
                "--top",
                "1",
                "--control",
                "none",
            ]
        )
        == 0
    )
    found, again = HeadsResult.open(result_of_runs.EXAMPLE), HeadsResult.open(made)
    assert {**found.plan, "versions": {}} == {**again.plan, "versions": {}}
    assert (found.metrics, found.heads, found.info["read"]) == (again.metrics, again.heads, again.info["read"])
    first, second = found.frame(), again.frame()
    numbers = first.select_dtypes("number").columns
    assert first.drop(columns=numbers).equals(second.drop(columns=numbers))
    for column in numbers:
        assert first[column].to_numpy() == approx(
            second[column].to_numpy(), scale=1, terms=2**20, dtype="float32", nan=True
        ), column
    for layer, head in found.heads[::7]:
        assert found.mean_map(layer, head) == approx(again.mean_map(layer, head), dtype="float32")
        (example,), (other,) = found.examples(layer, head, "previous"), again.examples(layer, head, "previous")
        assert example.tokens == other.tokens
    assert (result_of_runs.EXAMPLE / "heads.parquet").stat().st_size < 160_000  # the wheel has at most 2 MB


def mosaic(app: AppTest) -> dict[str, Any]:
    return next(figure for figure in drawn(app) if figure["layout"]["meta"]["axes"] == ["layer", "head"])


def test_mosaic_has_the_means_and_histograms_of_the_result() -> None:
    app = opened(PAGE, **MANY, heads_result="first", heads_metric="induction")
    assert not app.exception
    assert not app.error
    heat, *bars = mosaic(app)["data"]
    expected = result().column("induction", "mean").reshape(6, 12)
    assert heat["z"] == approx(expected)
    assert (heat["zmin"], heat["zmax"]) == approx((0, float(expected.max())))
    numbers = HeadDistributions(result(), "induction")
    paths = [trace for trace in bars if trace.get("fill") == "toself"]
    pieces = [piece for trace in paths for piece in split(trace["x"], trace["y"])]
    counted = [(i, counts) for i, counts in enumerate(numbers.bars()[0]) if counts.any()]
    assert len(pieces) == len(counted)
    heights = {(round(float(y[0] - 0.44)), round(float(x.mean()))): y[0] - y[1:-1:2] for x, y in pieces}
    for i, counts in counted:
        drawn_heights = heights[numbers.heads[i]]
        assert drawn_heights / drawn_heights.max() == approx(counts / counts.max())


def split(x: Any, y: Any) -> list[tuple[Any, Any]]:
    """The pieces of a path between its gaps."""
    gaps = np.flatnonzero(np.isnan(x))
    return [(x[start:stop], y[start:stop]) for start, stop in zip([0, *gaps[:-1] + 1], gaps, strict=True)]


def test_histograms_add_up_to_the_number_of_texts() -> None:
    for metric in result().metrics:
        numbers = HeadDistributions(result(), metric)
        bars, (low, high) = numbers.bars()
        np.testing.assert_array_equal(bars.sum(1), numbers.count)
        assert bars.shape[1] <= 16
        assert (low, high) == (0, 1) or high <= result().limits(metric)[1]


def test_head_page_shows_its_numbers_examples_and_links() -> None:
    app = opened(PAGE, **MANY, heads_result="first", heads_show="one head", layer="0", head="2")
    assert not app.exception
    assert not app.error
    (best, *_), (html,) = result().examples(0, 2, "previous"), [element.proto.body for element in app.get("html") if element.proto.body.startswith("<ol")]  # fmt: skip
    assert f"layer=0&amp;head=2&amp;step=weights&amp;q={best.query}&amp;k={best.key}" in html
    assert f"(position {best.query}) looks at" in html
    assert "<b>values" not in html
    assert "L0 H2" in " ".join(markdown.value for markdown in app.markdown)
    figures = {figure["layout"]["title"]["text"]: figure for figure in drawn(app)}
    mean_map = result().mean_map(0, 2)
    assert mean_map is not None
    assert figures["<b>Mean map</b>"]["data"][0]["z"] == approx(mean_map)
    offsets = figures["<b>Mean weight by distance</b>"]["data"][0]
    weights = dict(zip(map(int, offsets["x"]), offsets["y"], strict=True))
    assert weights[-1] == approx(result().offset_weights(0, 2)[63])
    (histogram, *_) = figures["<b>previous</b>"]["data"]
    np.testing.assert_array_equal(histogram["y"], result().histogram("previous")[2])


def over(app: AppTest) -> Any:
    """The choice between one text and many."""
    return next(group for group in app.get("button_group") if group.key == "heads_over_field")


def test_many_texts_compute_no_trace_and_keep_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    traced, trace = [], TypedText.trace
    monkeypatch.setattr(TypedText, "trace", lambda self: traced.append(self.text) or trace(self))
    text = "nobody computes this sentence here"
    app = opened(PAGE, **MANY, heads_result="first", text=text, temperature="2.0")
    assert not app.exception
    assert not traced
    assert state_of_address(app)["text"] == text
    assert {"text": text, "temperature": "2.0"}.items() <= state_of_address(app).items()
    over(app).set_value("this text").run()
    assert not app.exception
    assert traced == [text]
    assert {"text": text, "temperature": "2.0"}.items() <= state_of_address(app).items()
    over(app).set_value("many texts").run()
    assert {"text": text, "temperature": "2.0", "heads_result": "first"}.items() <= state_of_address(app).items()


def test_changed_heads_are_ranked_by_the_difference_of_their_means() -> None:
    app = opened(PAGE, **MANY, heads_result="first", heads_result_b="second", heads_show="what changed")
    assert not app.exception
    assert not app.error
    first, second = (each.column("previous", "mean") for each in (result(), other_result()))
    change_map = mosaic(app)["data"][0]
    assert change_map["z"] == approx((second - first).reshape(6, 12))
    assert change_map["zmin"] == -change_map["zmax"]
    largest = int(np.abs(second - first).argmax())
    name = f"L{largest // 12} H{largest % 12}"
    assert f"Largest change\\: {name}" in " ".join(markdown.value for markdown in app.markdown)
    (table,) = app.dataframe
    assert table.value["head"][0] == name
    spreads = [each.column("previous", "sd") ** 2 / each.column("previous", "count") for each in (result(), other_result())]  # fmt: skip
    assert table.value["standard error"][0] == approx(np.sqrt(sum(spreads))[largest])
    app = opened(PAGE, **MANY, heads_result="first", heads_result_b="second", heads_show="one head", layer="1")
    assert not app.exception
    histogram = next(figure for figure in drawn(app) if figure["layout"]["title"]["text"] == "<b>previous</b>")["data"]
    np.testing.assert_array_equal(histogram[0]["y"], result().histogram("previous")[12] / len(TEXTS))
    assert histogram[1]["y"] == approx(other_result().histogram("previous")[12] / other_result().column("previous", "count")[12])  # fmt: skip


def test_stretched_colours_end_at_the_largest_mean() -> None:
    app = opened(PAGE, **MANY, heads_result="first", heads_metric="self", colors="stretched")
    heat = mosaic(app)["data"][0]
    assert heat["zmax"] == approx(result().column("self", "mean").max())
    assert "full colour = " in mosaic(app)["layout"]["title"]["subtitle"]["text"]


def test_find_ranks_the_heads_of_this_text() -> None:
    app = opened(PAGE, heads_find="from any to offset -1")
    assert not app.exception
    table = next(frame.value for frame in app.dataframe if "strongest cell" in frame.value)
    column = metrics.of(TypedText("the owl asked the moon and the moon blinked").trace()).column("previous")
    assert table["mean weight"].to_numpy() == approx(np.sort(column)[::-1])
    assert state_of_address(app)["heads_find"] == "from any to offset -1"
    app.button(key="heads_find_1").click().run()
    assert state_of_address(app)["heads_find"] == "from any to same word"
    app = opened(PAGE, heads_find="where is <b>it</b>")
    assert not app.exception
    assert any("A find rule needs from at character 1" in caption.value for caption in app.caption)
    assert said(opened(PAGE, heads_find='from "nobody" to any'))


ODD = {
    "nothing chosen": ({}, "python -m attention.corpus"),
    "an unknown name": ({"heads_result": "third"}, "A result has a name on offer here; got “third”"),
    "a path where none is allowed": ({"heads_result": "/etc/passwd"}, "A result has a name on offer here"),
    "a folder without a result": ({"heads_result": "empty"}, "A result has a name on offer here"),
    "an upload of another tab": ({"heads_result": f"heads.parquet:{'0' * 32}"}, "(digest 00000000…), which is not on this server: upload it"),
    "a head that is not there": ({"heads_result": "first", "heads_show": "one head", "layer": "40", "head": "3"}, "The result has no L40 H3"),
    "an unknown metric": ({"heads_result": "first", "heads_metric": "x<b>"}, "The link asks for heads_metric"),
    "a change of nothing": ({"heads_result": "first", "heads_show": "what changed"}, "The link asks for heads_show"),
}  # fmt: skip


@pytest.mark.parametrize(("link", "sentence"), ODD.values(), ids=ODD)
@pytest.mark.parametrize("locked", [{}, {"lock": "1"}], ids=["", "locked"])
def test_odd_links_are_answered_in_a_sentence(link: dict[str, str], sentence: str, locked: dict[str, str]) -> None:
    app = opened(PAGE, **MANY, **link, **locked)
    assert not app.exception
    words = " ".join([said(app), *(code.value for code in app.code)]).replace("\\", "")
    assert sentence in words or (locked and not link)


def test_paths_open_where_they_are_allowed(offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_result, "ALLOW_LOCAL_MODELS", True)
    app = opened(PAGE, **MANY, heads_result=str(offered / "first" / "heads.parquet"))
    assert not app.error
    assert mosaic(app)
    assert said(opened(PAGE, **MANY, heads_result="/no/such\0folder"))


def test_uploaded_result_is_shown_counted_and_named_in_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: dict[str, int] = {}
    monkeypatch.setattr(uploads, "count_file", lambda file, place: counted.update({place: len(file.content)}))
    app = opened(PAGE, **MANY)
    app.file_uploader(key="heads_result_upload").upload("heads.parquet", heads_parquet(), "x").run()
    assert not app.exception
    assert mosaic(app)
    assert state_of_address(app)["heads_result"] == f"heads.parquet:{result().digest}"
    app.file_uploader(key="heads_result_b_upload").upload("b.parquet", heads_parquet(OTHER_TEXTS), "x").run()
    assert state_of_address(app)["heads_result_b"].startswith("b.parquet:")
    assert counted == {"heads_result": len(heads_parquet()), "heads_result_b": len(heads_parquet(OTHER_TEXTS))}


def test_upload_that_is_no_result_keeps_the_page() -> None:
    app = opened(PAGE, **MANY, heads_result="first")
    app.file_uploader(key="heads_result_upload").upload("heads.parquet", heads_parquet()[:5000], "x").run()
    assert not app.exception
    assert app.error
    assert mosaic(app)
    assert state_of_address(app)["heads_result"] == "first"


def test_files_wait_in_the_line_once_for_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, turn = list[object](), heavy.LINE.turn
    monkeypatch.setattr(heavy.LINE, "turn", lambda *who: turns.append(who) or turn(*who))
    CACHE.discard_keys(lambda _: True)
    for _ in range(2):
        app = opened(PAGE, **MANY, heads_result="first", heads_show="one head", layer=1)
        assert not app.exception
        assert not app.error
    assert len(turns) == 2  # its numbers, and the examples of a head


def test_result_is_parsed_once(offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_result._of_name("first") is chosen_result._of_name("first")
    monkeypatch.setattr(chosen_result, "_MAX_BYTES", 1000)
    (offered / "first" / "heads.parquet").touch()
    with pytest.raises(FileError, match="at most"):
        chosen_result._of_name("first")


def test_offered_names_are_folders_and_files_with_a_result() -> None:
    assert chosen_result.result_names() == ("first", "second")


def test_uploads_of_one_session_add_up() -> None:
    class Context:
        session_id = "visitor"

    files = [_UploadedResult("a", "0", bytes(10)), _UploadedResult("b", "1", bytes(5))]
    uploads._session_files["visitor", "a"], uploads._session_files["visitor", "b"] = files
    assert uploads._session_file_sizes()["visitor"] == 15
    del files
    assert "visitor" not in uploads._session_file_sizes()
    assert session
    assert chosen_result.short_name(f"a:b:{'0' * 32}") == "a:b"
