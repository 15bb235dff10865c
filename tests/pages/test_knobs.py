"""The table of knobs: everything follows from a declaration, without a second list."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT
from test_link import of
from test_links import LINKS, follow
from test_pages import opened, said

from attention import File, Source
from attention.base.knobs import Text
from attention.sources.file import link_name
from attention.sources.reader import Uploads
from attention.sources.registry import has_knob, source_kinds, source_of
from pages.ui.server.limits import LIMITS
from pages.ui.state import control_row, knob_state, sidebar
from pages.ui.state.knob_table import COMPARE_KEYS, KNOBS
from pages.ui.state.session import Session


def recorded_sources(monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    """A list to which every source that a page makes is appended."""
    sources: list[Source] = []
    draw = sidebar.source
    monkeypatch.setattr(sidebar, "source", lambda *place: sources.append(draw(*place)) or sources[-1])
    return sources


@pytest.mark.parametrize("link", LINKS)
def test_link_gives_the_source_that_its_page_shows(link: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = recorded_sources(monkeypatch)
    assert not follow(link).exception
    assert (sources[-1], ()) == source_of(of(link), LIMITS)


ODD = {
    "numbers": {"temperature": "nan", "seed": "inf", "d_k": "5.5", "d_v": "99999", "d_model": "80", "heads": "40", "window": "1e9"},
    "words": {"mask": "sideways", "init": "", "positions": "x", "scaled": "perhaps", "lowercase": "no", "dropout": "5", "pad": "1"},
    "heads": {"d_model": "30", "kv_heads": "2"},
    "sequences": {"text": "a b\nc", "sequence": "7"},
    "one sequence": {"sequence": "1", "labels": "for another source"},
    "identity": {"init": "identity", "d_model": "7", "heads": "2", "d_k": "x"},
    "notebook": {"source": "notebook", "notebook": "x", "sequence": "2", "seed": "x"},
    "matrices": {"source": "matrices", "matrix_kind": "x", "mask": "x", "d_k": "x"},
}  # fmt: skip


@pytest.mark.parametrize("link", ODD.values(), ids=ODD)
def test_page_shows_the_notes_of_the_link_reader(link: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    sources = recorded_sources(monkeypatch)
    app = opened("app.py", **link)
    source, notes = source_of(link, LIMITS)
    assert not app.exception
    assert sources[-1] == source
    assert notes
    assert said(app).count("The link asks") + said(app).count("do not divide") == len(notes)
    plain = said(app).replace("\\", "")
    assert all(note in plain for note in notes)


@pytest.mark.parametrize("source", source_kinds())
def test_every_source_knob_reports_invalid_values(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = File.of("x.json", b'{"weights": [[1, 0], [0, 1]]}')
    monkeypatch.setattr(knob_state, "Uploads", lambda *_: Uploads(weights))
    expected = {
        key
        for key, knob in KNOBS.items()
        if has_knob(source, knob) and key not in COMPARE_KEYS and not isinstance(knob.range, Text)
    }
    app = opened("app.py", **{**dict.fromkeys(expected, "½"), "source": source, "file": link_name(weights)})
    assert not app.exception
    if app.error:  # without a model there is no layer, step or cell to choose
        expected = {key for key in expected if KNOBS[key].sources or key == "source"}
    assert set(re.findall(r"asks for (\w+)", said(app).replace("\\", ""))) == expected - {"source"}


@pytest.mark.quick
@pytest.mark.whole  # documents speak of every feature
def test_documented_link_keys_match_the_knob_table() -> None:
    text = (ROOT / "docs" / "formats-and-links.md").read_text(encoding="utf-8")
    match = re.search(r"their meaning: `([^`]+)`", text)
    assert match
    assert sorted(match[1].split()) == sorted(KNOBS)


@pytest.mark.quick
def test_controls_have_their_order() -> None:
    expected = (
        "temperature",
        "mask",
        "scaled",
        "layer",
        "head",
        "d_model",
        "seed",
        "colors",
        "over",
        "heat",
    )
    assert tuple(name for name in control_row.CONTROL_NAMES if name in expected) == expected


@pytest.mark.quick
def test_controls_accept_only_valid_values(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session()
    monkeypatch.setattr(knob_state.st, "session_state", {"session": session})
    knob_state.apply_controls(
        {"temperature": 2, "mask": "causal", "scaled": False, "seed": 7, "head": 3, "step": "query", "colors": "log"}
    )
    good = {
        "temperature": "2.0",
        "mask": "causal",
        "scaled": "false",
        "seed": "7",
        "head": "3",
        "step": "query",
        "colors": "log",
    }
    good["column"] = "0"  # the first of the features that are opened with the step
    assert session.state.texts == good
    knob_state.apply_controls({
        "temperature": "hot", "mask": "x", "scaled": 0, "seed": True, "head": -1, "step": "x", "q": 1.5, "k": None,
        "d_model": 10**9, "window": float("nan"), "text": "of the sidebar", "__class__": 1,
    })  # fmt: skip
    assert session.state.texts == good


DECLARED = """
    ceiling: float | None = knob(
        None, Real(1, 100, optional=True), "Ceiling", "Scores go no higher.", _COMPUTED, after_scores=True, section=_MORE_KNOBS)
    edge: float = knob(1.0, Real(0.5, 2), "Edge", "How sharp.", _COMPUTED, after_scores=True, inline=True)
    kin: int = knob(1, Integer(1, 9), "Kin", "How many.", _RANDOM_WEIGHTS, inline=True, key="relations")
    # fmt: on
"""
CHECKS = """
import json, struct
from pathlib import Path
from streamlit.testing.v1 import AppTest
from attention import AttentionConfig, ConfigError
from attention.base.knobs import Text
from attention.sources.file import link_name
from attention.sources.registry import has_knob, source_kinds, source_of
from attention.sources.reader import Uploads
from pages.ui.server.limits import LIMITS
from pages.ui.state.knob_table import COMPARE_KEYS, KNOBS
from pages.ui.page import share as state_file
from attention.sources.state import Set, apply

def opened(**link):
    app = AppTest.from_file(str(Path("app.py").resolve()), default_timeout=600)
    app.query_params.update(link)
    return app.run()

def row(app):
    headers = [json.loads(m[4:4 + struct.unpack_from("<I", m)[0]]) for m in (component.proto.bytes for component in app.get("bidi_component")) if m[4:5] == b"{"]
    return {control["name"]: control for header in headers for control in header.get("controls") or ()}

link = {"ceiling": "30", "edge": "1.5", "relations": "4", "init": "orthogonal"}
app, matrices, bad = opened(**link), opened(source="matrices", ceiling="30"), opened(ceiling="1000", edge="hot", relations="0")
saved = state_file._read_state(state_file._write_state("Explore", link).encode())[1]
config = source_of(link, LIMITS)[0].config
answers = {
    "failed": [str(page.exception) for page in (app, matrices, bad) if page.exception],
    "keys": [key for key in link if key in KNOBS],
    "widgets": [app.number_input(key="ceiling").value, app.selectbox(key="init").value, matrices.number_input(key="ceiling").value],
    "row": {name: row(app)[name] for name in ("edge", "relations")},
    "row of matrices": [name for name in row(matrices) if name in link],
    "presented": list(row(opened(present="edge"))),
    "notes": bad.session_state["session"].notes,
    "pure": [config.ceiling, config.edge, config.kin, config.init],
    "the same notes": list(source_of({"ceiling": "1000", "edge": "hot", "relations": "0"}, LIMITS)[1]),
    "saved": saved == link,
}
ours = app.session_state["session"]
ours.state = apply(ours.state, Set({"edge": "2.0"}))
app.run()
(state,) = [json.loads(component.proto.json)["state"] for component in app.get("bidi_component") if component.proto.component_name == "attention_address"]
answers["address"] = {key: state.get(key) for key in ("edge", "relations", "ceiling")}
try:
    AttentionConfig(ceiling=0)
except ConfigError as error:
    answers["error"] = str(error)
print(json.dumps(answers))
"""


def test_new_knob_is_one_declaration(tmp_path: Path) -> None:
    for room in ("attention", "pages"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "app.py", tmp_path)
    file = tmp_path / "attention" / "formula" / "config.py"
    original = file.read_text(encoding="utf-8")
    text = original.replace("\n    # fmt: on\n", DECLARED, 1).replace('"identity")', '"identity", "orthogonal")', 1)
    assert text.count("\n") == original.count("\n") + DECLARED.count("\n") - 2
    file.write_text(text, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", CHECKS], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True
    )
    answers = json.loads(run.stdout)
    notes = answers.pop("notes")
    assert sorted(notes) == sorted(answers.pop("the same notes"))
    assert sorted(notes) == [
        "The link asks for ceiling = “1000”, but ceiling is a number from 1 to 100: the default is used.",
        "The link asks for edge = “hot”, but edge is a number from 0.5 to 2: 1.0 is used.",
        "The link asks for relations = “0”, but relations is a whole number from 1 to 9: 1 is used.",
    ]
    assert answers == {
        "failed": [],
        "keys": ["ceiling", "edge", "relations", "init"],
        "widgets": [30, "orthogonal", 30],
        "row": {
            "edge": {"kind": "slider", "name": "edge", "label": "Edge", "help": "How sharp.", "value": "1.5", "low": 0.5, "high": 2},
            "relations": {"kind": "whole", "name": "relations", "label": "Kin", "help": "How many.", "value": "4", "low": 1, "high": 9},
        },
        "row of matrices": ["edge"],
        "presented": ["edge"],
        "pure": [30, 1.5, 4, "orthogonal"],
        "saved": True,
        "address": {"edge": "2.0", "relations": "4", "ceiling": "30.0"},
        "error": "ceiling is a number from 1 to 100; got 0: choose one.",
    }  # fmt: skip


def test_emptied_number_field_is_empty_and_typed_text_stays() -> None:
    app = opened("app.py", source="typed text")
    assert app.number_input(key="d_k").set_value(5).run().number_input(key="d_k").value == 5
    assert app.number_input(key="d_k").set_value(None).run().number_input(key="d_k").value is None
    assert app.text_area(key="text").set_value("one two").run().text_area(key="text").value == "one two"
