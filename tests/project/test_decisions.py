"""Decision records have one form, consecutive numbers, valid states and links, and a current index."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

pytestmark = pytest.mark.quick

FOLDER = ROOT / "docs" / "decisions"
RECORD = "# {number}: A title\n\n- Date: 2026-11-23\n- State: accepted\n- Room: base\n\n## Context\n\nWhy.\n\n## Decision\n\nWhat.\n"


@pytest.fixture(scope="module")
def decisions() -> Any:
    """The script of `make decisions`, as a module."""
    spec = importlib.util.spec_from_file_location("decisions", ROOT / ".ci" / "decisions.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "decisions", module)  # dataclasses look up the module of a class there
        spec.loader.exec_module(module)
    return module


def test_decision_records_have_no_faults(decisions: Any) -> None:
    records, faults = decisions.read(FOLDER)
    assert faults == []
    assert len(records) > 100


def test_decision_index_is_current(decisions: Any) -> None:
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == decisions.index(FOLDER), "run make decisions"


def test_decisions_md_only_points_to_the_records() -> None:
    text = (ROOT / "DECISIONS.md").read_text(encoding="utf-8")
    assert "docs/decisions/README.md" in text
    assert "\n## " not in text, "write the decision as a record in docs/decisions"


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("# 0002: A title", "# A title", "expected NNNN-short-title.md"),
        ("# 0002", "# 0003", "expected NNNN-short-title.md"),
        ("2026-11-23", "23.11.2026", "the date is expected as YYYY-MM-DD, got “23.11.2026”"),
        ("State: accepted", "State: done", "the state is expected as “accepted”"),
        ("State: accepted", "State: superseded by [0003](0003-c.md)", "the state is expected as “accepted”"),
        ("- Room: base\n", "", "expected NNNN-short-title.md"),
        ("base\n", "base\n- Replaces: 0004\n", "replaces a record that is not earlier"),
        ("State: accepted", "State: accepted, amended by [0003](0003-c.md)", ""),
        ("State: accepted", "State: accepted, amended by [0001](0001-a.md)", "names a record that is not later"),
        ("State: accepted", "State: accepted, amended by [0004](0004-d.md)", "leads to no record"),
        ("What.", "As [0003](0001-a.md).", "leads to no record"),
        ("## Context", "## Reasons", "the sections are expected"),
        ("Why.\n", "", "a section is empty"),
    ],
)
def test_faulty_decision_record_is_reported(decisions: Any, tmp_path: Path, old: str, new: str, fault: str) -> None:
    for number, letter in enumerate("abc", 1):
        text = RECORD.format(number=f"{number:04d}")
        (tmp_path / f"{number:04d}-{letter}.md").write_text(text.replace(old, new) if number == 2 else text)
    faults = decisions.read(tmp_path)[1]
    assert any(fault in reported for reported in faults) if fault else faults == []


@pytest.mark.parametrize(("numbers", "missing"), [((1, 3), "0002"), ((2,), "0001"), ((1, 2, 2), "0003")])
def test_gaps_and_repeated_decision_numbers_are_reported(
    decisions: Any, tmp_path: Path, numbers: tuple[int, ...], missing: str
) -> None:
    for letter, number in zip("abc", numbers, strict=False):
        (tmp_path / f"{number:04d}-{letter}.md").write_text(RECORD.format(number=f"{number:04d}"))
    (fault,) = decisions.read(tmp_path)[1]
    assert fault.startswith(f"Numbers are expected to be 1, 2, 3, …; {missing} is missing")


def test_folded_record_leaves_no_gap(decisions: Any, tmp_path: Path) -> None:
    (tmp_path / "0003-c.md").write_text(
        RECORD.format(number="0003").replace("base\n", "base\n- Replaces: 0001, 0002\n")
    )
    records, faults = decisions.read(tmp_path)
    assert faults == []
    assert records[0].replaced == (1, 2)


@pytest.mark.whole
def test_room_of_every_decision_is_a_folder(decisions: Any) -> None:
    records, _ = decisions.read(FOLDER)
    houses = [ROOT, *(ROOT / house for house in ("attention", "pages/ui", "tests"))]
    rooms = {record.room for record in records} - {decisions.FIRST}
    assert [room for room in sorted(rooms) if not any((house / room).is_dir() for house in houses)] == []


def test_decision_index_lists_every_record_after_the_marker(decisions: Any, tmp_path: Path) -> None:
    (tmp_path / "0001-a.md").write_text(RECORD.format(number="0001"))
    with pytest.raises(FileNotFoundError):
        decisions.index(tmp_path)
    (tmp_path / "README.md").write_text("Words.\n")
    with pytest.raises(SystemExit, match="is missing: put it where the index begins"):
        decisions.index(tmp_path)
    (tmp_path / "README.md").write_text(f"Words.\n{decisions.MARKER}\nold\n")
    text = decisions.index(tmp_path)
    assert text.startswith("Words.\n")
    assert text.endswith("\n\n### base\n\n- [0001](0001-a.md) A title\n")
    assert "old" not in text
