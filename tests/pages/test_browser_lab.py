"""The component of the Lab: the strip of steps, factors and result, the line of the chosen cell, the keyboard, the address."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from conftest import (
    act_and_settle,
    apply_text,
    boxes_of,
    chosen_cell_line,
    click_cell,
    painted_numbers,
    set_control,
    wait_until_settled,
)
from playwright.sync_api import Page, expect
from test_browser import CAUSAL, LINK, TEXT, Open, is_typeset, query

from attention import AttentionConfig, TypedText, explain

pytestmark = pytest.mark.browser
TRACE = TypedText(TEXT, AttentionConfig(mask="causal")).trace()


def steps_shown(page: Page) -> list[str]:
    figures: list[str] = page.evaluate(
        "document.querySelector('.figures').figureState.pictures.map(({ meta }) => meta.step)"
    )
    return figures


def pick_step(page: Page, name: str) -> None:
    act_and_settle(page, page.locator(f".strip button[name={name}]").click)


FACTORS = {
    "input": ["embedding", "input"],
    "query": ["input", "w_q", "query"],
    "key": ["input", "w_k", "key"],
    "value": ["input", "w_v", "value"],
    "scores": ["query", "key", "scores"],
    "scaled_scores": ["scores", "scaled_scores"],
    "masked_scores": ["scaled_scores", "mask", "masked_scores"],
    "weights": ["masked_scores", "weights"],
    "head_output": ["weights", "value", "head_output"],
    "output": ["head_output of all heads", "w_o of all heads", "output"],
}


def test_strip_shows_every_step_beside_its_factors_exact_and_typeset(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}&head=1")
    for step, expected_steps in FACTORS.items():
        pick_step(page, step)
        assert steps_shown(page) == expected_steps
        expect(page.locator(f".strip button[name={step}]")).to_have_attribute("aria-pressed", "true")
        expect(page.locator(".strip [aria-pressed=true]")).to_have_count(1)
        is_typeset(page, step)
        numbers = {name: getattr(CAUSAL, name) for name in expected_steps if hasattr(CAUSAL, name)}
        numbers["head_output of all heads"] = CAUSAL.head_output.transpose(0, 1).flatten(1)
        numbers["w_o of all heads"] = CAUSAL.w_o.flatten(0, 1)
        for i, name in enumerate(expected_steps):
            expected = numbers[name][1] if numbers[name].ndim == 3 else numbers[name]
            expected = expected.numpy().astype(np.float32)
            np.testing.assert_array_equal(painted_numbers(page, i), np.where(np.isfinite(expected), expected, np.nan))


def test_lab_walks_factors_back_restores_overview_and_finds_a_head(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}")
    pick_step(page, "scores")
    act_and_settle(page, lambda: click_cell(page, 1, row=2, column=5))  # K, row 2
    assert steps_shown(page) == ["input", "w_k", "key"]
    assert query(page) == {"text": TEXT, "mask": "causal", "step": "key", "k": "2", "column": "5", "view": "factors"}
    act_and_settle(
        page, lambda: click_cell(page, 1, row=40, column=7)
    )  # W_K has no explanation: the click chooses the column of K that it produces
    assert steps_shown(page) == ["input", "w_k", "key"]
    assert query(page)["column"] == "7"
    assert query(page)["k"] == "2"
    pick_step(page, "overview")
    assert steps_shown(page) == ["scores", "weights", "output"]
    assert "view" not in query(page)
    # The click on concatenated heads finds the head.
    pick_step(page, "output")
    act_and_settle(page, lambda: click_cell(page, 0, row=3, column=2 * 16 + 5))
    assert {key: query(page)[key] for key in ("step", "head", "q", "column")} == {
        "step": "head_output",
        "head": "2",
        "q": "3",
        "column": "5",
    }


def test_typing_or_arrows_choose_a_cell_and_explain_it(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}")

    def type_query() -> None:
        page.locator(".answer-line [name=q]").fill("5")
        page.keyboard.press("Enter")

    act_and_settle(page, type_query)
    expect(page.locator(".answer-line .number")).to_have_text(explain(TRACE, "weights", q=5).displayed_value)
    assert query(page)["q"] == "5"
    assert page.evaluate("document.activeElement.name") == "q"
    act_and_settle(page, lambda: click_cell(page, 1, row=4, column=2))
    explanation = explain(TRACE, "weights", q=4, k=2)
    line = page.locator(".answer-line")
    expect(line.locator(".number")).to_have_text(explanation.displayed_value)
    expect(line.locator(".arithmetic")).to_have_text(f"{explanation.sign} {explanation.short}")
    expect(line.locator(".side.q code")).to_have_text("the")
    expect(line.locator(".side.k code")).to_have_text("sat")
    expect(line.locator("[name=q]")).to_have_value("4")
    # A map is one tab stop.
    act_and_settle(page, lambda: click_cell(page, 1, row=4, column=1))
    weights = page.locator(".figures .js-plotly-plot").nth(1)
    weights.focus()
    page.keyboard.press("ArrowRight")
    expect(weights.locator("[aria-live]")).to_have_text(
        f"weights, on to sat, {float(f'{CAUSAL.weights[0, 4, 2]:.4g}')}".replace("on to", "the to")
    )
    expect(weights.locator(".cursor")).to_be_visible()
    page.keyboard.press("ArrowUp")
    act_and_settle(page, lambda: page.keyboard.press("Enter"))
    assert {key: query(page)[key] for key in ("q", "k")} == {"q": "3", "k": "2"}
    expect(page.locator(".answer-line .number")).to_have_text(explain(TRACE, "weights", q=3, k=2).displayed_value)
    assert page.evaluate("document.activeElement === document.querySelectorAll('.figures .js-plotly-plot')[1]")
    # Three maps are three tab stops, and Plotly's buttons are none.
    assert (
        page.evaluate(
            "[...document.querySelectorAll('.figures a, .figures button, .figures [tabindex]')].filter((element) => element.tabIndex >= 0).length"
        )
        == 3
    )
    scores = page.locator(".figures .js-plotly-plot").first
    scores.focus()
    for key in ["ArrowUp"] * 4 + ["ArrowLeft"] * 4:  # an arrow at the edge stays there
        page.keyboard.press(key)
    expect(scores.locator("[aria-live]")).to_contain_text("scores, the to the, ")
    act_and_settle(page, line.locator(".sources button").first.click)
    assert query(page)["step"] == "masked_scores"
    # The pressed button is gone; the focus is on its replacement, not on the body.
    assert page.evaluate("document.activeElement.closest('.answer-line') !== null")


def projected_page_is_larger_with_two_knobs(open_page: Open, server: str, plain: Page) -> None:
    """Asserts that the projected page is larger than the plain one."""
    page = open_page(f"{server}/?{LINK}&present=temperature.head", viewport={"width": 1280, "height": 720})
    expect(page.locator("[data-testid=stSidebar]")).to_be_hidden()
    names = page.locator(".controls [name]").evaluate_all("(controls) => controls.map(({ name }) => name)")
    assert names == ["temperature", "head"]
    size = "parseFloat(getComputedStyle(document.querySelector('.figures .js-plotly-plot .xtick text')).fontSize)"
    assert page.evaluate(size) > 1.25 * plain.evaluate(size)
    assert page.locator(".screen .over .digits text").count(), "the small maps have no room for digits of 24 px"
    set_control(page, "head", "2")
    np.testing.assert_array_equal(painted_numbers(page, 1), CAUSAL.weights[2].numpy())
    assert query(page) == {"text": TEXT, "mask": "causal", "present": "temperature.head", "head": "2"}


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_cell_line_is_visible_and_letters_are_large(open_page: Open, server: str, width: int, height: int) -> None:
    viewport: Any = {"width": width, "height": height}
    page = open_page(f"{server}/?{LINK}", viewport=viewport, has_touch=width < 500, sidebar=False)
    page.locator(".strip").evaluate("(strip) => strip.scrollIntoView()")
    (line,) = boxes_of(page.locator(".answer-line"))
    boxes = boxes_of(page.locator(".figures .js-plotly-plot"))
    first = boxes[0]
    assert line["y"] + line["height"] <= height + 1
    assert first["y"] < 430
    assert len(boxes) == 3
    if width == 390:  # stacked, without overflow
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
        assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"]
        assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= 390
    else:
        assert first["y"] + first["height"] < 640
        rows = [box["y"] + box["height"] / 2 for box in boxes_of(page.locator(".controls label:visible"))]
        assert max(rows) - min(rows) < 6, "the controls are in one line"
        projected_page_is_larger_with_two_knobs(open_page, server, page)


def test_back_undoes_one_action_before_and_after_answers(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}")
    page.locator(".controls [name=seed]").fill("7")
    page.keyboard.press("Enter")
    page.wait_for_function("location.search.includes('seed=7')")
    page.go_back()
    page.wait_for_function("!location.search.includes('seed')")
    page.wait_for_function("document.querySelector('.controls [name=seed]').value === '0'")
    wait_until_settled(page)
    np.testing.assert_array_equal(painted_numbers(page, 1), CAUSAL.weights[0].numpy())
    assert query(page) == {"text": TEXT, "mask": "causal"}
    page.go_forward()
    page.wait_for_function("document.querySelector('.controls [name=seed]').value === '7'")
    wait_until_settled(page)
    assert query(page)["seed"] == "7"
    act_and_settle(page, page.go_back)

    # Back at once also undoes a change that only the page has computed.
    weights = painted_numbers(page, 1)
    page.locator(".controls [name=temperature]").focus()
    page.keyboard.press("Home")
    page.evaluate("history.back()")
    page.wait_for_function("!location.search.includes('temperature')")
    page.wait_for_function("document.querySelector('.controls output').textContent === '1.00'")
    wait_until_settled(page)
    np.testing.assert_array_equal(painted_numbers(page, 1), weights)
    assert query(page) == {"text": TEXT, "mask": "causal"}
    # A held knob is one history entry: no answer arrives between its events, however slow the machine is.
    page.locator(".controls [name=temperature]").evaluate(
        """(knob) => { for (let i = 0; i < 5; i += 1) {
            knob.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
            knob.stepUp();
            for (const event of ['input', 'change']) knob.dispatchEvent(new Event(event, { bubbles: true })); } }"""
    )
    page.wait_for_function("location.search.includes('temperature')")
    wait_until_settled(page)
    act_and_settle(page, page.go_back)
    assert query(page) == {"text": TEXT, "mask": "causal"}
    np.testing.assert_array_equal(painted_numbers(page, 1), CAUSAL.weights[0].numpy())

    # A change in the sidebar is a user action like any other.
    text = page.get_by_label("Text", exact=True)
    apply_text(page, text, "one two three")
    set_control(page, "heads", "2")
    assert query(page) == {"text": "one two three", "mask": "causal", "heads": "2"}
    act_and_settle(page, page.go_back)
    assert query(page) == {"text": "one two three", "mask": "causal"}
    act_and_settle(page, page.go_back)
    assert query(page) == {"text": TEXT, "mask": "causal"}
    expect(text).to_have_value(TEXT)
    np.testing.assert_array_equal(painted_numbers(page, 1), CAUSAL.weights[0].numpy())


def test_mask_size_shows_where_needed_and_d_model_is_editable(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT})}")
    expect(page.locator(".controls [name=window]")).to_be_hidden()
    set_control(page, "mask", "window")
    expect(page.locator(".controls [name=window]")).to_be_visible()
    set_control(page, "window", "1")
    window = TypedText(TEXT, AttentionConfig(mask="window", window=1)).trace().layers[0]
    np.testing.assert_array_equal(painted_numbers(page, 1), window.weights[0].numpy())
    assert query(page) == {"text": TEXT, "mask": "window", "window": "1"}
    # A d_model is picked or typed.
    choice = page.locator(".controls [data-name=d_model] select")
    act_and_settle(page, lambda: choice.select_option("32"))
    assert query(page)["d_model"] == "32"
    choice.select_option("other …")
    set_control(page, "d_model", "48")
    assert query(page)["d_model"] == "48"
    expect(choice).to_have_value("48")
    np.testing.assert_array_equal(
        painted_numbers(page, 1),
        TypedText(TEXT, AttentionConfig(d_model=48, mask="window", window=1)).trace().layers[0].weights[0].numpy(),
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("more", ["", "&embed=true"])
def test_locked_page_stays_locked_and_its_clicks_reach_the_address(open_page: Open, server: str, more: str) -> None:
    page = open_page(f"{server}/heads?{LINK}&lock=1{more}")
    panel = page.evaluate("document.querySelector('.figures .js-plotly-plot').layout.meta.panels[3]")
    click_cell(page, 0, row=panel["y"] + 4, column=panel["x"] + 2)
    expect(page.get_by_role("heading", name="Attention Lab")).to_be_visible()
    wait_until_settled(page)
    assert query(page)["lock"] == "1"
    assert query(page)["head"] == "3"
    expect(page.locator(".controls label")).to_have_count(0)
    expect(page.locator("[data-testid=stSidebar]")).to_be_hidden()
    expect(page.locator("[data-testid=stSlider]:visible, [data-testid=stSelectbox]:visible")).to_have_count(0)
    act_and_settle(page, lambda: click_cell(page, 1, row=4, column=1))
    assert query(page) | {"embed": "true"} == {
        "text": TEXT, "mask": "causal", "lock": "1", "head": "3", "q": "4", "k": "1", "embed": "true"
    }  # fmt: skip
    link = page.get_by_role("link", name="Open in Attention Lab")
    link.hover()
    expect(link).to_have_attribute("href", re.compile("k=1"))
    page.reload()
    wait_until_settled(page)
    explanation = explain(TRACE, "weights", head=3, q=4, k=1)
    assert chosen_cell_line(page) == f"weights · query 4 the → key 1 cat = {explanation.displayed_value}"
    np.testing.assert_array_equal(painted_numbers(page, 1), CAUSAL.weights[3].numpy())
    expect(page.locator("[data-testid=stSidebar]")).to_be_hidden()


def test_state_file_opened_on_another_page_writes_head_and_cell(open_page: Open, server: str, tmp_path: Path) -> None:
    page = open_page(f"{server}/learn?chapter=softmax")
    state = {"attention lab": 1, "page": "Learn", "state": {"text": TEXT, "head": "2", "q": "3", "k": "1"}}
    file = tmp_path / "state.json"
    file.write_text(json.dumps(state))
    page.get_by_text("Open a state or lessons", exact=True).click()
    act_and_settle(page, lambda: page.locator(".st-key-open_state_0 input[type=file]").set_input_files([file]))
    page.wait_for_function("location.search.includes('head=2')")
    assert query(page) == {"text": TEXT, "head": "2", "q": "3", "k": "1"}
