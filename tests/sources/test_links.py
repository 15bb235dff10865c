"""Links of version 0.1 open in every later version, and paint the same digits as then.

Entries of ``links.json`` are added but never edited: a new link gets the `digits` of its page, opened by `follow`.
"""

import json
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
from conftest import ROOT, redirected, state_of_address
from margins import approx
from streamlit.testing.v1 import AppTest
from test_pages import drawn, said

from attention.pictures.view import STEP
from attention.sources.registry import source_kinds

LINKS = json.loads((Path(__file__).parent / "links.json").read_text(encoding="utf-8"))


def is_here(link: str) -> bool:
    """Whether the page and the source of a link are here, and were not taken away with their feature."""
    parts = urlsplit(redirected(link))
    source = dict(parse_qsl(parts.query)).get("source", "typed text")
    return source in source_kinds() and (ROOT / f"pages{parts.path}.py").is_file() | (parts.path == "/")


def follow(link: str) -> AppTest:
    parts = urlsplit(redirected(link))
    page = f"pages{parts.path}.py" if parts.path != "/" else "app.py"
    app = AppTest.from_file(str(ROOT / page), default_timeout=60)
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        app.query_params[key] = value
    return app.run()


def digits(app: AppTest) -> list[list]:
    """For every map: its step, its size, its sum, and seven of its numbers, with gaps as None."""
    maps = [figure for figure in drawn(app) if figure["data"] and figure["data"][0]["type"] == "heatmap"]
    rows = []
    for figure in maps:
        z = np.asarray(figure["data"][0]["z"], dtype=np.float64)
        places = np.linspace(0, z.size - 1, 7).astype(int)
        numbers = [None if np.isnan(number) else float(f"{number:.7g}") for number in z.flatten()[places]]
        rows.append([figure["layout"]["meta"]["step"], *z.shape, float(f"{np.nansum(z):.7g}"), numbers])
    return rows


def plain(row: list) -> list[float]:
    return [np.nan if number is None else number for number in [*row[1:4], *row[4]]]


@pytest.mark.sample(1)
@pytest.mark.parametrize("link", [*filter(is_here, LINKS)])
def test_stored_link_paints_its_stored_numbers(link: str) -> None:
    app = follow(link)
    assert not app.exception
    assert "The link asks for" not in said(app)
    actual, expected = digits(app), LINKS[link]
    if urlsplit(link).path == "/masks":  # the mask is now below the maps, and what the page explained is a chapter
        actual = actual[3:] + digits(follow(link.replace("/masks?", "/learn?chapter=masks&")))
    names = [row[0] for row in actual]
    if chosen := state_of_address(app).get("step", STEP.default) if urlsplit(link).path == "/" else "":
        # A step outside the overview is shown beside its factors, without the maps that older versions showed above it.
        assert names[-1] == chosen or chosen in (row[0] for row in expected[:3])
        expected = [row for row in expected if row[0] in names]
    assert names == [row[0] for row in expected]
    for actual_row, expected_row in zip(actual, expected, strict=True):
        assert plain(actual_row) == approx(plain(expected_row), nan=True, terms=1024)


@pytest.mark.quick
@pytest.mark.whole  # of every feature
def test_stored_links_cover_every_page_and_source() -> None:
    assert len(LINKS) >= 12
    assert {urlsplit(link).path for link in LINKS} >= {"/", "/heads", "/masks", "/softmax", "/compare"}
    assert all(
        any(word in link for link in LINKS)
        for word in ("source=notebook", "source=matrices", "source=model", "text2=", "cells=", "interventions=")
    )
