"""A model of proteins on pages: its field, what is not asked of it, the contacts below the maps, links and the file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from conftest import state_of_address, unpack_message
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest
from test_pages import drawn, opened, said

from attention import Model
from attention.models.library import LIBRARY, Settings
from attention.proteins import contact_table, contact_terms, contacts, example
from attention.proteins.sequences import UBIQUITIN
from attention.sources.layer_knobs import TEXT
from attention.sources.registry import source_of
from pages.ui.server import traces
from pages.ui.server.limits import LIMITS

LINK = {"source": "model", "model": example.NAME, "view": "contacts", "layer": "1", "head": "2", "q": "4", "k": "20"}


@pytest.fixture(autouse=True)
def library() -> Iterator[None]:
    assert traces.trace_of  # importing it gives the library the operator's settings, once
    LIBRARY.hold(Settings(paths=False))
    yield
    LIBRARY.hold(Settings())


def words(app: AppTest) -> str:
    return " ".join(item.value for item in (*app.markdown, *app.caption)).replace("\\", "")


def test_a_link_without_a_text_reads_a_known_protein() -> None:
    source, notes = source_of({"source": "model", "model": example.NAME}, LIMITS)
    assert notes == ()
    assert isinstance(source, Model)
    assert source.text == UBIQUITIN
    assert source.trace().tokens[1:-1] == tuple(UBIQUITIN)
    named, _ = source_of(
        {
            "source": "model",
            "model": example.NAME,
            "text": "MKT",
            "words": "true",
            "text2": "A",
            "spans": "sentences",
            "generate": "3",
        },
        LIMITS,
    )
    assert named == Model(example.NAME, "MKT", max_tokens=LIMITS.tokens, max_bytes=LIMITS.trace_bytes)


def test_the_sidebar_asks_for_a_sequence_and_not_for_words() -> None:
    app = opened("app.py", **LINK)
    assert not app.exception
    (field,) = app.sidebar.text_area
    assert (field.label, field.value) == ("Sequence", UBIQUITIN)
    assert not app.sidebar.toggle  # pieces as words
    assert [fold.label for fold in app.sidebar.expander] == ["Open a state or lessons"]
    screen = next(
        filter(
            None,
            (unpack_message(each.proto.bytes).get("screen") for each in app.get("bidi_component") if each.proto.bytes),
        )
    )
    assert screen["sentence"]["text"] == UBIQUITIN
    assert example.NAME in app.sidebar.selectbox(key="model").options
    assert "random weights" in words(app)
    field.set_value(">mine\nmktay").run()
    assert not app.exception
    assert "without its header line “>mine”, in capital letters: 5 residues." in said(app).replace("\\", "")
    assert state_of_address(app)["text"] == ">mine\nmktay"
    app.sidebar.selectbox(key="model").set_value(example.NAME).run()
    app.sidebar.text_area(key="text").set_value("MKTJ").run()
    assert "Residue 4 of the sequence is “J”" in said(app).replace("\\", "")


def test_the_map_is_drawn_and_the_contacts_are_listed() -> None:
    app = opened("app.py", **LINK)
    trace = Model(example.NAME, UBIQUITIN).trace()
    (shown,) = [figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == "contacts"]
    numbers = np.asarray(shown["data"][0]["z"])
    assert np.array_equal(numbers[1:-1, 1:-1], contacts(trace).numpy())
    assert "How likely these residues touch. Its logit" in words(app)
    assert "What each head adds to the logit of F4 and S20" in words(app)
    tables = [each.value for each in app.dataframe]
    likeliest = next(each for each in tables if "distance" in each.columns)
    assert likeliest["probability"].tolist() == contact_table(trace)["probability"].tolist()
    terms = next(each for each in tables if "APC" in each.columns)
    assert terms["term"].tolist() == contact_terms(trace, 4, 20)["term"].tolist()
    on_cls = opened("app.py", **LINK | {"q": "0"})
    assert not on_cls.exception
    assert "Choose two residues on the map" in words(on_cls)
    assert "<cls> is no residue" in words(on_cls)


@pytest.mark.sample(1)
@pytest.mark.parametrize("page", ["pages/heads.py", "pages/reference.py"])
def test_other_pages_show_a_protein(page: str) -> None:
    app = opened(page, **LINK)
    assert not app.exception
    if "heads" in page:
        assert app.button(key="heads_find_0").label.replace("\\", "") == "from [K, R] to [D, E]"
        app.button(key="heads_find_0").click().run()
        assert not app.exception
        assert "looks there most" in words(app)


def test_words_have_no_contacts() -> None:
    app = opened("app.py", source="typed text")
    assert "Which residues touch?" not in words(app)
    assert app.sidebar.text_area(key="text").label == TEXT.label


def test_the_file_is_the_whole_table(client: TestClient) -> None:
    answer = client.get("/export/contacts.csv", params=LINK)
    assert answer.status_code == 200
    trace = Model(example.NAME, UBIQUITIN).trace()
    assert answer.text == contact_table(trace, most=10**6).to_csv(index=False)
    assert answer.text.count("\n") == 1 + 70 * 71 // 2
    refused = client.get("/export/contacts.csv", params={"source": "typed text"})
    assert refused.status_code in (400, 404)
    assert "comes with a protein model" in refused.text


def test_a_copied_program_has_the_ids_of_the_residues() -> None:
    source = Model(example.NAME, ">mine\nmktay")
    program = "\n".join(source.snippet(source.trace()).lines)
    assert "model(input_ids=torch.tensor([[0, 20, 15, 11, 5, 19, 2]]))" in program
