"""Several servers behind nginx: upload, download, click, kill, recover."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
from io import BytesIO, StringIO
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from conftest import act_and_settle, chosen_cell_line, click_cell, painted_numbers, wait_until_settled, watch_runs
from margins import approx
from playwright.sync_api import Page, expect
from replicas import Replicas, Visitor
from test_browser import CAUSAL, LINK, TEXT, query

pytestmark = [pytest.mark.browser, pytest.mark.long]  # three servers behind nginx

Visit = Callable[..., Visitor]


def opened(visitor: Visitor, path: str, route: str = "") -> Page:
    page = visitor.open(path, route)
    wait_until_settled(page)
    return page


def upload(page: Page, numbers: np.ndarray) -> None:
    file = BytesIO()
    np.save(file, numbers)
    payload = {"name": "x.npy", "mimeType": "application/octet-stream", "buffer": file.getvalue()}
    act_and_settle(page, lambda: page.locator(".st-key-matrices_file_x input[type=file]").set_input_files([payload]))


def downloaded(page: Page) -> np.ndarray:
    """The weights in the downloaded CSV file."""
    with page.expect_download() as coming:
        page.get_by_role("link", name="Download CSV").click()
    head, *rows = csv.reader(StringIO(Path(coming.value.path()).read_text("utf-8-sig")))
    assert head[-1] == "Σ row"
    return np.array([[float(cell) for cell in row[1:-1]] for row in rows])


def lose_replica(replicas: Replicas, visitor: Visitor, page: Page) -> None:
    """Kills the visitor's server, and waits until the page has run again on another one."""
    address = replicas.of(visitor)
    watch_runs(page)
    visitor.killed = True
    replicas.servers[address].kill()
    page.wait_for_function(
        """window.script.runs !== window.before
            && document.querySelector('[data-testid=stApp]').dataset.testScriptState === 'notRunning'"""
    )
    assert replicas.of(visitor) != address


def test_upload_download_and_click_survive_a_killed_replica(replicas: Replicas, visit: Visit) -> None:
    visitor = visit()
    page = opened(visitor, "/?source=matrices")
    upload(page, np.array([[2.0, 0.0, 0.0], [0.0, 1.5, 0.5], [0.25, 0.0, 1.0]]))
    expect(page.get_by_label("Paste X", exact=True)).to_have_value("2,0,0;0,1.5,0.5;0.25,0,1")
    wait_until_settled(page)
    act_and_settle(page, lambda: click_cell(page, 1, row=2, column=1))
    weights = painted_numbers(page, 1)
    link = query(page)
    assert (link["q"], link["x"]) == ("2", "2,0,0;0,1.5,0.5;0.25,0,1")
    title = chosen_cell_line(page)
    assert downloaded(page) == approx(weights)
    home = replicas.of(visitor)
    assert replicas.served("PUT .*/upload_file/") == replicas.served(" /export/") == {home}

    # The link on another replica: the same digits.
    other = opened(visit(), f"/?{urlencode(link)}", replicas.route_to(lambda server: server != home))
    np.testing.assert_array_equal(painted_numbers(other, 1), weights)
    assert chosen_cell_line(other) == title

    # The replica is killed; the visitor does nothing.
    lose_replica(replicas, visitor, page)
    wait_until_settled(page)
    np.testing.assert_array_equal(painted_numbers(page, 1), weights)
    assert chosen_cell_line(page) == title
    assert query(page) == link
    assert downloaded(page) == approx(weights)
    act_and_settle(page, lambda: click_cell(page, 1, row=0, column=2))
    assert query(page)["k"] == "2"
    np.testing.assert_array_equal(painted_numbers(page, 1), weights)

    # The replica returns and gets new visitors again; earlier visitors stay where they are.
    replicas.restart(proxy=False)
    while replicas.of_route(visitor.cookies["route"]) != home:
        time.sleep(0.1)
    assert replicas.of(visitor) != home
    upload(page, np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.5], [0.5, 0.0, 1.0]]))
    expect(page.get_by_label("Paste X", exact=True)).to_have_value("1,0,0;0,2,0.5;0.5,0,1")
    wait_until_settled(page)
    assert downloaded(page) == approx(painted_numbers(page, 1))


def test_lost_upload_is_asked_for_again(replicas: Replicas, visit: Visit) -> None:
    visitor = visit()
    page = opened(visitor, "/?source=matrices")
    matrix = np.random.default_rng(0).normal(size=(400, 3))  # about 24,000 characters: too long for a link and a field
    upload(page, matrix)
    expect(page.get_by_text("X was uploaded.")).to_have_count(1)  # in the editor, which is closed
    assert query(page)["uploaded"] == "x:400x3"
    expect(page.get_by_text("upload it again")).to_have_count(0)
    weights = painted_numbers(page, 1)
    lose_replica(replicas, visitor, page)
    expect(page.get_by_text("X (400 × 3) is too long for a link").first).to_contain_text("upload it again")
    expect(page.locator(".figures .js-plotly-plot")).to_have_count(0)
    upload(page, matrix)
    expect(page.locator(".figures .js-plotly-plot").first).to_be_visible()  # the old file is removed in a separate run
    wait_until_settled(page)
    np.testing.assert_array_equal(painted_numbers(page, 1), weights)
    expect(page.get_by_text("upload it again")).to_have_count(0)


def test_knobs_and_cell_survive_two_killed_replicas(replicas: Replicas, visit: Visit) -> None:
    visitor = visit()
    page = opened(visitor, f"/?{LINK}")
    act_and_settle(page, lambda: click_cell(page, 1, row=5, column=2))
    for _ in range(2):
        lose_replica(replicas, visitor, page)
        wait_until_settled(page)
        np.testing.assert_array_equal(painted_numbers(page, 1), CAUSAL.weights[0].numpy())
        assert (query(page)["q"], query(page)["k"]) == ("5", "2")
    expect(page.get_by_label("Text", exact=True).first).to_have_value(TEXT)
