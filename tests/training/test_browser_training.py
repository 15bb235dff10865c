"""A training in a browser: its film plays, stops, is scrubbed and played to its end, and a link shows the same digits."""

from __future__ import annotations

from base64 import b64encode

import numpy as np
import pytest
from conftest import act_and_settle, painted_numbers, script_address, wait_until_settled
from playwright.sync_api import Page, expect
from playwright.sync_api import TimeoutError as TooLong
from test_browser import Open, query

from attention.pictures.message import Reply, pack
from attention.training import Trained

pytestmark = pytest.mark.browser

STEP = """const step = () => { const { figureState } = document.querySelector('.figures');
    return figureState.painted === figureState.figures && Number(figureState.figures[0].layout.meta.file[1].match(/step(\\d+)/)[1]); };"""
STOP_WHEN_IT_MOVES = f"""() => {{ {STEP}
    const stop = () => [...document.querySelectorAll('button')].find(({{ innerText }}) => innerText === 'Stop');
    const look = () => {{ if (step() && stop()) stop().click(); else requestAnimationFrame(look); }};
    look(); }}"""

SEEN = """() => { const { figureState } = document.querySelector('.figures'), { state, runs } = window.script;
    return JSON.stringify({ painted: figureState.painted === figureState.figures, file: figureState.figures[0].layout.meta.file, state, runs,
        hidden: document.hidden, page: document.querySelector('[data-testid=stMain]').innerText }); }"""


def check(page: Page, seed: int, at: int) -> None:
    """Asserts that the page shows a step and paints the backend's numbers."""
    try:
        page.wait_for_function(f"(at) => {{ {STEP} return step() === at; }}", arg=at)
    except TooLong as error:
        pytest.fail(f"not at step {at}, but: {page.evaluate(SEEN)} ({error})")
    wait_until_settled(page)
    weights = Trained("reverse", seed, at=at).trace().layers[0].matrix("weights")
    np.testing.assert_array_equal(painted_numbers(page, 0), weights.numpy())


def test_film_plays_stops_scrubs_and_is_shared(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/training?train_seed=21")
    check(page, 21, 0)
    page.evaluate(STOP_WHEN_IT_MOVES)
    page.get_by_role("button", name="Train", exact=True).click()
    expect(page.get_by_role("button", name="Play again")).to_be_visible()
    wait_until_settled(page)
    at = int(query(page)["train_at"])
    assert (
        0 < at <= 100
    )  # a busy machine may stop after the end of the film; test_training_page.py tests that Stop works at once
    check(page, 21, at)

    slider = page.get_by_role("slider", name="Step")
    act_and_settle(page, lambda: slider.press("ArrowLeft"))
    assert query(page)["train_at"] == str(at - 4)
    check(page, 21, at - 4)
    expect(page.get_by_text("Training again")).to_have_count(0)

    page.get_by_role("button", name="Play again").click()
    check(page, 21, 100)
    expect(page.get_by_role("button", name="Play again")).to_be_visible()
    expect(page.get_by_text("12 of 12 correct")).to_be_visible()
    assert query(page)["train_at"] == "100"

    # This model is not trained yet: opening the link trains it, up to a step between two pictures of the film.
    other = open_page(f"{server}/training?train_seed=22&train_at=33", fresh=True)
    check(other, 22, 33)
    expect(other.get_by_role("button", name="Play again")).to_be_visible()
    act_and_settle(other, other.get_by_role("button", name="Open this model in Explore").click)
    expect(other.get_by_role("heading", name="Attention Lab")).to_be_visible()
    wait_until_settled(other)
    assert {"source": "trained", "seed": "22", "at": "33"}.items() <= query(other).items()
    weights = Trained("reverse", 22, at=33).trace().layers[0].matrix("weights")
    np.testing.assert_array_equal(painted_numbers(other, 1), weights.numpy())


def test_late_picture_is_dropped_unless_from_another_session(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/training")
    wanted = ((2, "one"), (1, "one"), (2, "one"), (0, "another"))
    states = page.evaluate(
        """async ([path, messages]) => {
            const { default: render } = await import(path), place = document.createElement('div');
            place.innerHTML = ['strip', 'controls', 'override', 'figures', 'answer-line'].map((name) => `<div class=${name}></div>`).join('');
            return messages.map((message) => {
                const data = Uint8Array.from(atob(message), (c) => c.charCodeAt(0));
                render({ data, parentElement: place, setTriggerValue() {} }, {});
                const { filmFrame: act, session } = place.querySelector('.figures').figureState;
                return [act, session]; }); }""",
        [
            script_address(server, "figure"),
            [b64encode(pack([], reply=Reply(session=name, film_frame=act))).decode() for act, name in wanted],
        ],
    )
    assert states == [[2, "one"], [2, "one"], [2, "one"], [0, "another"]]
