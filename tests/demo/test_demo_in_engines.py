"""The demo without a server in Firefox and WebKitGTK: it opens as a file, follows a click, and plays its film."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from browsers import WATCH, Tab
from conftest import click_cell
from test_demo import BY_NAME, LAB, expected_line, line_of, painted, settled, shows

from attention.demo.site import write
from attention.export import packing

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo with two of its states; its page reports what goes wrong, by a script that its policy allows."""
    folder = tmp_path_factory.mktemp("demo")
    write(folder, LAB, states=(BY_NAME["plain"], BY_NAME["film"]))
    page = folder / "index.html"
    text = page.read_text(encoding="utf-8")
    digest = b64encode(sha256(WATCH.encode()).digest()).decode()
    for old, more in (
        ("'strict-dynamic'", f" 'sha256-{digest}'"),
        ("form-action 'none'\">", f"<script>{WATCH}</script>"),
    ):
        assert old in text
        text = text.replace(old, old + more, 1)
    page.write_text(text, encoding="utf-8")
    return page


def test_demo_paints_and_explains_backend_numbers_in_other_engines(tab: Tab, site: Path) -> None:
    state = BY_NAME["plain"]
    _, trace = packing.source_and_trace(state)
    tab.goto(site.as_uri())
    settled(tab)
    for index, step in enumerate(("scores", "weights", "output")):
        assert shows(painted(tab, index), trace.layers[0].matrix(step, 0))
    assert line_of(tab) == expected_line(trace, state, "weights", 0, state.q, state.k)
    click_cell(tab, 1, row=8, column=3)
    tab.wait_for_function("() => document.querySelector('.side.q input').value === '8'")
    assert line_of(tab) == expected_line(trace, state, "weights", 0, 8, 3)


def test_demo_film_plays_in_other_engines(tab: Tab, site: Path) -> None:
    source, trace = packing.source_and_trace(BY_NAME["film"])
    tab.goto(f"{site.as_uri()}#film&at=0")
    settled(tab)
    assert shows(painted(tab, 1), replace(source, at=0).trace().layers[1].matrix("weights", 0))
    tab.locator("#play").click()
    tab.wait_for_function("() => document.querySelector('#at').value === document.querySelector('#at').max")
    settled(tab)
    assert shows(painted(tab, 1), trace.layers[1].matrix("weights", 0))
