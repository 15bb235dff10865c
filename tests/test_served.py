"""Scripts lie together under their content, and what nobody asks for any more goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pages.ui.server import served


@pytest.fixture
def static(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setattr(served, "_STATIC", tmp_path)
    served.publish.cache_clear()
    yield tmp_path
    served.publish.cache_clear()


def test_scripts_find_each_other_in_their_folder(static: Path) -> None:
    for name in served.publish():
        script = static.parent / static.name / served.script(name).removeprefix("/app/static/")
        imported = [] if name == "plotly" else re.findall(r'from "\./(\w+\.js)"', script.read_text())
        assert served.LASTING.match(served.script(name))
        assert all((script.parent / other).exists() for other in imported)
    assert len(list(static.iterdir())) == 2


def test_folders_of_other_contents_do_not_pile_up(static: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plotly = static / served.publish()["plotly"]
    for edit in range(9):
        monkeypatch.setattr(served, "_UI", edited := static.parent / "edited")
        for part in ("figure", "share/link"):
            (edited / part).mkdir(parents=True, exist_ok=True)
        (edited / "figure" / "lab_figure.js").write_text(f"// {edit}")
        served.publish.cache_clear()
        latest = static / served.publish()["lab_figure"]
    assert (latest / "lab_figure.js").read_text() == "// 8"
    assert plotly.exists()
    assert len(list(static.iterdir())) == 2 + served._KEPT
