"""Every figure is drawn as its stored drawing: a change of a picture is seen, and meant."""

import json

import pytest
from drawings import TESTS, builders, differences, drawings, rooms, stored, stored_file

from attention.features import NAMES

pytestmark = pytest.mark.quick

CASES = [(room, name) for room in rooms() for name in drawings(room)]


@pytest.mark.parametrize(("room", "name"), CASES, ids=[f"{room}: {name}" for room, name in CASES])
def test_figure_is_as_it_is_stored(room: str, name: str) -> None:
    expected = json.loads(stored_file(room).read_text(encoding="utf-8"))
    assert name in expected, "store the new drawing with `python -m tests.pictures.drawings`"
    # As JSON reads it: keys are texts, tuples are lists.
    actual = json.loads(json.dumps(stored(drawings(room)[name]())))
    found = [*differences(actual, expected[name])]
    assert not found, "if this change is meant, store it with `python -m tests.pictures.drawings`"


@pytest.mark.parametrize("room", [folder.name for folder in TESTS.iterdir() if folder.name in ("pictures", *NAMES)])
def test_every_figure_has_a_stored_drawing(room: str) -> None:
    drawn = {name.partition(",")[0] for name in drawings(room)} if room in rooms() else set()
    assert set(builders(room)) == drawn, f"add what is missing to tests/{room}/{room}_drawings.py"
    if drawn:
        assert list(json.loads(stored_file(room).read_text(encoding="utf-8"))) == [*drawings(room)]
