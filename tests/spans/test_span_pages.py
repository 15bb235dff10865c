"""Named parts of a text on pages: the link, the strip's message, the ranking with what is hidden, and the file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from conftest import unpack_message
from margins import approx
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest
from test_pages import drawn, opened
from tiny_models import TinyModels

from attention import Model, spans
from attention.models.library import LIBRARY, Settings
from attention.sources.registry import source_of
from attention.spans import figures
from pages.ui.server import traces
from pages.ui.server.limits import LIMITS

TEXT = "[[bird]] the owl asked [[moon]] the moon"
LINK = {
    "source": "model",
    "model": "GPT-2",
    "text": TEXT,
    "spans": "marks",
    "layer": "1",
    "head": "2",
    "q": "3",
    "k": "1",
}


@pytest.fixture(autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    assert traces.trace_of  # importing it gives the library the operator's settings, once
    tiny("GPT-2")
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def words(app: AppTest) -> str:
    return " ".join(item.value for item in (*app.markdown, *app.caption)).replace("\\", "")


@pytest.mark.parametrize("code", ["marks", "sentences", "bird=the owl", "bird@1-4;moon:2-3", ""])
def test_a_link_has_the_spans(code: str) -> None:
    source, notes = source_of({"source": "model", "model": "GPT-2", "text": TEXT, "spans": code}, LIMITS)
    assert notes == ()
    assert source == Model("GPT-2", TEXT, max_tokens=LIMITS.tokens, max_bytes=LIMITS.trace_bytes, spans=code)


def test_a_bad_code_is_replaced_with_a_note() -> None:
    source, (note,) = source_of({"source": "model", "model": "GPT-2", "text": TEXT, "spans": "a:9-3"}, LIMITS)
    assert isinstance(source, Model)
    assert source.spans == ""
    assert note.endswith(
        "spans is one of marks, chat, sentences, paragraphs, or names with places such as question:3-9: nothing is named."
    )


def test_words_that_the_text_does_not_have_are_left_out_with_a_note() -> None:
    app = opened("app.py", **LINK | {"text": "the owl asked", "spans": "bird=owl;moon=the%20moon"})
    assert not app.exception
    assert "which the text of 13 characters does not have" in " ".join(
        item.value for item in (*app.warning, *app.caption)
    )
    assert drawn(app)


def test_explore_ranks_hides_and_explains() -> None:
    app = opened("app.py", **LINK)
    assert not app.exception
    trace = Model("GPT-2", TEXT, spans="marks").trace()
    screens = [unpack_message(each.proto.bytes).get("screen") for each in app.get("bidi_component") if each.proto.bytes]
    assert next(filter(None, screens))["spans"] == [[span.name, span.first, span.last] for span in trace.spans]
    looked = spans.looked_at(trace)
    assert looked.sentence in words(app)
    (shown,) = [figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == "span weight"]
    assert np.asarray(shown["data"][0]["z"]) == approx(spans.table(trace, layer=1, head=2).values[0, 0])
    bird = next(i for i, span in enumerate(trace.spans) if 1 in span.positions)
    asks = next((i for i, span in enumerate(trace.spans) if 3 in span.positions), len(trace.spans))
    assert figures.explain(trace, 1, 2, asks, bird).words in words(app)
    app.button(key="spans_hidden_ask").click().run()
    assert not app.exception
    assert spans.looked_at(trace, hide=True).sentence in words(app)


def test_marks_that_are_not_read_are_offered() -> None:
    app = opened("app.py", **{key: value for key, value in LINK.items() if key != "spans"})
    assert not app.exception
    assert "The text has marks: [[bird]], [[moon]]." in words(app)
    app.button(key="spans_marks").click().run()
    assert not app.exception
    assert "Which part of the text does it look at?" in words(app)


def test_the_file_is_the_table(client: TestClient) -> None:
    answer = client.get("/export/spans.csv", params=LINK)
    assert answer.status_code == 200
    assert answer.text == spans.table(Model("GPT-2", TEXT, spans="marks").trace()).frame().to_csv(index=False)
    refused = client.get("/export/spans.csv", params=LINK | {"spans": ""})
    assert refused.status_code in (400, 404)
    assert "This trace has no spans" in refused.text


def test_the_arithmetic_gives_the_number() -> None:
    trace = Model("GPT-2", TEXT, spans="marks").trace()
    table = spans.table(trace)
    for layer, head, query, key in ((0, 1, 0, 0), (1, 2, 1, 0), (1, 3, 1, 1)):
        explained = figures.explain(trace, layer, head, query, key)
        assert explained.value == approx(float(table.values[layer, head, query, key]))
        assert explained.lines
