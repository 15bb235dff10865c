"""Links, files and lessons with former names open to the same source and the same digits, and nothing writes such a name.

The files in `data` were written before the names changed.
"""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import numpy as np
import pytest
import torch
from conftest import ROOT, state_of_address
from starlette.testclient import TestClient
from test_links import LINKS
from test_pages import opened, said

from attention import AttentionError, ConfigError, File, Layer, Matrices, Trace
from attention.core import formula_json
from attention.core.config import AttentionConfig
from attention.core.formula import Formula
from attention.core.name_aliases import NAME_ALIASES
from attention.core.steps import DECLARED
from attention.export.demo.states import STATES
from attention.io.arrays import array_writer
from attention.lessons import answers
from attention.lessons.lesson import Part
from attention.lessons.link_codec import decode, encode
from attention.lessons.markdown import builtin_lessons
from attention.params.input_limits import Limits
from attention.sources import knobs
from attention.sources.link import source_of
from attention.sources.link_aliases import LINK_ALIASES, current_key, with_current_keys
from attention.sources.second_state import differences, second_state, unknown_key_notes
from pages.ui.exports import catalog
from pages.ui.exports.export_address import find
from pages.ui.share import state_file
from pages.ui.state.knob_table import KNOBS

DATA = Path(__file__).parent / "data"
LIMITS = Limits(tokens=2048, characters=20_000, d_model=1024, heads=32, trace_mb=128)
FORMER = {
    "do": {"source": "trained", "do": "0.0.zero"},
    "own": {"source": "trained", "own": "b a c d e f g h i j k l"},
    "given": {"source": "matrices", "given": "X alone"},
    "drop": {"source": "matrices", "drop": "0,1,1,1;1,1,1,1;1,1,1,1;1,1,1,1"},
    "valid": {"source": "matrices", "valid": "2"},
    "back": {"source": "trained", "task": "copy", "back": "3"},
    "share": {"text": "a b", "share": "sparsemax"},
    "said": {"source": "model", "generate": "2", "said": "1"},
}
"""A link with each former key that makes a source another one."""
OF_COMPARE = {"b": "temperature=0.5", "fit": "true", "turn": "both"}


def texts_of(link: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(link).query, keep_blank_values=True))


def test_tables_lead_from_no_present_name_to_a_present_name() -> None:
    assert LINK_ALIASES.keys() == FORMER.keys() | OF_COMPARE.keys()
    assert set(LINK_ALIASES.values()) <= KNOBS.keys()
    assert not LINK_ALIASES.keys() & KNOBS.keys()
    assert set(NAME_ALIASES.values()) <= {*DECLARED, *formula_json.to_json(Formula())}
    assert not NAME_ALIASES.keys() & {*DECLARED, *formula_json.to_json(Formula())}


@pytest.mark.parametrize("key", FORMER)
def test_former_key_gives_the_source_of_the_present_key(key: str) -> None:
    former = FORMER[key]
    present = {LINK_ALIASES.get(one, one): text for one, text in former.items()}
    assert present != former
    assert source_of(former, LIMITS) == source_of(present, LIMITS)
    assert (
        source_of(former, LIMITS)[0] != source_of({one: text for one, text in former.items() if one != key}, LIMITS)[0]
    )


@pytest.mark.parametrize("link", LINKS)
def test_links_of_every_version_open_the_same_source(link: str) -> None:
    former = texts_of(link)
    present, notes = with_current_keys(former)
    assert not notes
    assert with_current_keys(present) == (present, ())
    assert source_of(former, LIMITS) == source_of(present, LIMITS)


def test_present_name_wins_and_a_note_says_so() -> None:
    both = {"share": "sigmoid", "normalizer": "sparsemax"}
    source, notes = source_of(both, LIMITS)
    assert source == source_of({"normalizer": "sparsemax"}, LIMITS)[0]
    assert notes == ("The link has both “share” and “normalizer”, two names of one key: “normalizer” is used.",)
    app = opened("app.py", **both)
    assert not app.exception
    assert "The link has both “share” and “normalizer”" in said(app)
    assert state_of_address(app) == {"normalizer": "sparsemax"}
    with pytest.raises(ConfigError, match="The link has both “share” and “normalizer”"):
        find("weights.csv", urlencode(both).encode())


def test_address_has_present_names_after_a_former_link() -> None:
    app = opened(
        "app.py", **FORMER["given"], valid="2", x="1,2;3,4;5,6", drop="1,1,1;0,1,1;1,1,1", share="sigmoid", unknown="1"
    )
    assert not app.exception
    expected = {"source": "matrices", "matrix_kind": "X alone", "valid_keys": "2", "x": "1,2;3,4;5,6"}
    expected |= {"dropout_mask": "1,1,1;0,1,1;1,1,1", "normalizer": "sigmoid", "unknown": "1"}
    assert state_of_address(app) == expected
    assert not said(app)


def test_compare_opens_a_former_link_with_present_names() -> None:
    former = {
        "b": "share=sigmoid&drop=&head=1",
        "fit": "true",
        "turn": "both",
        "source": "trained",
        "steps": "1",
        "own": "",
    }
    former |= {"b": "own=l k j i h g f e d c b a&do=0.0.zero", "step": "weights", "layer": "0"}
    app = opened("pages/compare.py", **former)
    assert not app.exception
    assert "The link asks for" not in said(app)
    found = state_of_address(app)
    assert found["compare"] == "input=l k j i h g f e d c b a&interventions=0.0.zero"
    assert (found["autoscale"], found["editing"]) == ("true", "both")
    assert not LINK_ALIASES.keys() & found.keys()


def test_second_state_reads_former_keys_and_keeps_the_rest() -> None:
    b = "share=sigmoid&text=50%25 %26 b&own=&b=mask%3Dcausal"
    assert second_state({"source": "trained", "do": ""}, b) == {
        "source": "trained",
        "normalizer": "sigmoid",
        "text": "50% & b",
    }
    assert with_current_keys({"b": b}).texts == {"compare": "normalizer=sigmoid&text=50%25 %26 b&input="}
    assert unknown_key_notes("do=0.0.zero&turn=both") == (
        "The link sets “editing” in the second state, where it cannot differ: it is ignored.",
    )
    assert differences({}, second_state({}, "do=0.0.zero")) == "interventions=0.0.zero"
    deep = "b=" * 10_000
    assert with_current_keys({"b": deep}).texts == {"compare": deep}
    unchanged = "text=a+b%2Bc&head=1"
    assert with_current_keys({"compare": unchanged}).texts == {"compare": unchanged}


def test_names_inside_texts_of_a_link_become_present() -> None:
    former = {
        "step": "kept_output",
        "figure": "kept_output",
        "uploaded": "x:5x5,drop:5x5",
        "present": "temperature.turn",
    }
    former |= {"train_copy_back": "3", "train_dates_own": "x", "text": "drop the share"}
    present = {"step": "patched_output", "figure": "patched_output", "uploaded": "x:5x5,dropout_mask:5x5"}
    present |= {
        "present": "temperature.editing",
        "train_copy_offset": "3",
        "train_dates_input": "x",
        "text": "drop the share",
    }
    assert with_current_keys(former).texts == present


def test_training_opens_a_former_link() -> None:
    app = opened("pages/training.py", train_task="copy", train_copy_back="3")
    assert not app.exception
    assert state_of_address(app) == {"train_task": "copy", "train_copy_offset": "3"}


def test_state_file_with_former_keys_is_read() -> None:
    state = {**FORMER["given"], "b": "do=0.0.zero", "train_copy_back": "3"}
    content = json.dumps({"attention lab": 1, "page": "Compare", "state": state}).encode()
    present = {
        "source": "matrices",
        "matrix_kind": "X alone",
        "compare": "interventions=0.0.zero",
        "train_copy_offset": "3",
    }
    assert state_file.read(content) == ("Compare", present)
    assert state_file.read(state_file.write("Compare", present).encode()) == ("Compare", present)


def test_lesson_in_a_link_reads_former_names() -> None:
    lesson = """---
title: Former
state: source=trained&own=a b c d e f g h i j k l&share=softmax
turn: do=0.0.zero
show: kept_output 1; weights
hide: kept_output 1
kind: number
question: How much?
answer: value(kept_output, 1, 2)
---
Words.

- right: Yes.
- wrong: No.
"""
    (found,) = decode(encode(lesson)).values()
    assert found.query_before == {"source": "trained", "input": "a b c d e f g h i j k l", "normalizer": "softmax"}
    assert found.query_after == found.query_before | {"interventions": "0.0.zero"}
    assert (found.show, found.hide) == ((Part("patched_output", 1), Part("weights")), (Part("patched_output", 1),))
    with pytest.raises(AttentionError):
        answers.parse("value(former_output, 1, 2)")


def test_exports_of_former_and_present_addresses_are_one_file() -> None:
    former = b"text=a+b+c&share=sparsemax&step=weights"
    present = b"text=a+b+c&normalizer=sparsemax&step=weights"
    one, other = find("weights.csv", former), find("weights.csv", present)
    assert one.tag == other.tag != find("weights.csv", b"text=a+b+c").tag
    assert catalog.find("kept_output.csv") == catalog.find("patched_output.csv")
    assert catalog.find("patched_output-heads.csv")[1] == "patched_output"


def test_export_route_reads_former_keys() -> None:
    from app import app

    with TestClient(app) as client:
        former, present = (
            client.get("/export/weights.csv", params={"text": "a b c", key: "sparsemax"})
            for key in ("share", "normalizer")
        )
        both = client.get("/export/weights.csv", params={"share": "sigmoid", "normalizer": "sparsemax"})
    assert (former.status_code, former.content) == (200, present.content)
    assert (both.status_code, both.text.startswith("The link has both")) == (400, True)


# -- files ----------------------------------------------------------------------------------------


def npz(trace: Trace) -> dict[str, np.ndarray]:
    return dict(np.load(io.BytesIO(array_writer.npz(trace))))


@pytest.mark.parametrize("file", ["former_names.npz", "former_names.safetensors"])
def test_file_with_former_names_gives_the_same_trace(file: str) -> None:
    trace = File.open(DATA / file).trace()
    source = Matrices(
        query=((2, 0), (1, 1), (0, 3)), key=((1, 0), (2, 1), (0, 1)), value=((1, 2), (3, 4), (5, 6)), w_o=((1, 1), (0, 2)),
        dropout_mask=((0, 2, 1), (2, 0, 1), (1, 1, 0)), config=AttentionConfig(mask="causal", **{NORMALIZER: "sparsemax"}),
    )  # fmt: skip
    made = source.trace().layers[0]
    assert trace.notes == ()
    assert trace.layers[0].formula == made.formula
    assert [step.name for step, _ in trace.layers[0]] == [step.name for step, _ in made]
    for step, tensor in made:
        torch.testing.assert_close(trace.layers[0][step.name], tensor, rtol=1e-6, atol=1e-6)
    assert torch.equal(trace.layers[0]["dropout_mask"], made["dropout_mask"])


def test_file_with_former_names_of_patches_keeps_every_number() -> None:
    stored = np.load(DATA / "former_patched.npz")
    (layer,) = File.open(DATA / "former_patched.npz").trace().layers
    for former, present in NAME_ALIASES.items():
        if f"L0.{former}" in stored:
            assert np.array_equal(stored[f"L0.{former}"], layer[present]), former
    assert {"patched_output", "patched_weights", "patched_head_output"} <= set(layer.recorded)


def test_export_has_present_names_and_opens_again() -> None:
    former = File.open(DATA / "former_patched.npz").trace()
    names = {name.rpartition(".")[2] for name in npz(former)}
    assert {"patched_output", "patched_weights", "patched_head_output"} <= names
    assert not NAME_ALIASES.keys() & names
    about = json.loads(npz(File.open(DATA / "former_names.npz").trace())["about"].tobytes())
    assert set(about["layers"][0]["formula"]) == {
        "score", "rotary", "divisor", "temperature", "cap", "bias", "normalizer", "mask", "dropping", "own_divisor",
    }  # fmt: skip


def test_formula_with_both_names_counts_the_present_one() -> None:
    said = formula_json.to_json(Formula())
    with pytest.raises(ConfigError, match="got 'share'"):
        formula_json.from_json({**said, "share": "sigmoid"})
    del said["normalizer"]
    assert formula_json.from_json({**said, "share": "softmax"}) == Formula()


def test_array_of_another_program_keeps_its_own_name() -> None:
    file = io.BytesIO()
    np.savez(file, weights=np.eye(2)[None], share=np.ones((1, 2)), drop=np.ones((1, 2, 2)))
    trace = File.of("x.npz", file.getvalue()).trace()
    assert isinstance(trace.layers[0], Layer)
    assert trace.layers[0].has("dropout_mask")
    assert any("“share”" in note for note in trace.notes)


# -- what we write --------------------------------------------------------------------------------


def written_links() -> Iterator[tuple[str, dict[str, str]]]:
    for lesson in builtin_lessons().values():
        yield lesson.name, dict(parse_qsl(lesson.state, keep_blank_values=True))
        yield lesson.name, dict(parse_qsl(lesson.turn, keep_blank_values=True))
    for state in STATES:
        yield state.name, dict(state.link)
    for document in (
        ROOT / "README.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("deploy/**/*.md"),
        ROOT / "docs" / "screenshots.py",
    ):
        for query in re.findall(r"\?([\w]+=[^\s)\"`]+)", document.read_text(encoding="utf-8")):
            yield document.name, dict(parse_qsl(query, keep_blank_values=True))


def test_lessons_demo_and_documents_write_present_names() -> None:
    found = list(written_links())
    assert len(found) > 40
    for place, texts in found:
        assert with_current_keys(texts).texts == texts, place
    assert all(current_key(one.key) == one.key for one in knobs.KNOBS)


NORMALIZER = next(
    one.name for one in AttentionConfig.__dataclass_fields__.values() if one.metadata["knob"].key == "normalizer"
)
