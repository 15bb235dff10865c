"""A · B · difference above the first screen: what is painted is what the backend computed; the link, Back, the keyboard, other words."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import act_and_settle, painted_numbers
from margins import approx
from playwright.sync_api import Page, expect
from test_browser import Open
from test_browser_first_screen import headline, painted, percent, query

from attention import AttentionConfig, TypedText
from attention.comparison.comparison import compare

pytestmark = pytest.mark.browser
TEXT = "the owl asked the moon and the moon blinked"
LINK = "mask=causal&q=6&k=2&compare=temperature%3D0.5"
A, B = (TypedText(TEXT, AttentionConfig(mask="causal", temperature=temperature)).trace() for temperature in (1, 0.5))
DIFFERENCE = compare(A, B).matrix.numpy()
ROWS = [trace.layers[0]["weights"][0, 6].tolist() for trace in (A, B)]


def points(x: float) -> str:
    return "0" if abs(x) < 0.0005 else ("−" if x < 0 else "+") + percent(abs(x)).split("\u00a0")[0]


def side(page: Page, name: str) -> None:
    act_and_settle(page, page.get_by_role("radio", name=name, exact=True).click)


def digits(page: Page) -> list[str]:
    """The digits in the cells of the large map."""
    inside = page.locator(".screen .over .digits text")
    return [text for text in inside.all_text_contents() if text]


def test_difference_is_painted_linked_and_left_by_back(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}", sidebar=False)
    np.testing.assert_array_equal(painted(page), DIFFERENCE)
    row = DIFFERENCE[6]
    assert digits(page) == [points(x) for x in row if np.isfinite(x) and abs(x) >= 0.005]
    said = [percent(weights[2]) for weights in ROWS]
    assert headline(page) == f"The last “the” looks at “asked”: {said[0]} in A, {said[1]} in B"
    number = float(row[2])
    assert points(number) in page.locator(".screen .caption").inner_text()
    expect(page.locator(".screen .differs")).to_have_text("From A to B: Temperature 1.0 → 0.5")
    expect(page.locator(".screen .film")).to_be_hidden()
    expect(page.get_by_role("radio", checked=True)).to_have_text("difference")

    for name, trace in (("A", A), ("B", B)):
        page.wait_for_timeout(1000)  # changes of the same knob within a second are one entry
        side(page, name)
        layer = trace.layers[0]
        np.testing.assert_array_equal(
            painted(page), np.where(layer["mask"].numpy(), layer["weights"][0].numpy(), np.nan)
        )
        assert headline(page) == f"The last “the” looks at “asked”: {percent(float(layer['weights'][0, 6, 2]))}"
        assert query(page)["side"] == name
        assert (query(page)["q"], query(page)["k"]) == ("6", "2")
        expect(page.locator(f".controls button[value={name}]")).to_have_attribute("aria-pressed", "true")
        expect(page.locator(".screen .film")).to_be_visible()

    # The link opens on it in another browser.
    other = open_page(page.url, fresh=True, sidebar=False)
    np.testing.assert_array_equal(painted(other), painted(page))
    assert headline(other) == headline(page)
    expect(other.get_by_role("radio", checked=True)).to_have_text("B")

    # One choice is one entry.
    act_and_settle(page, page.go_back)
    expect(page.get_by_role("radio", checked=True)).to_have_text("A")
    act_and_settle(page, page.go_back)
    np.testing.assert_array_equal(painted(page), DIFFERENCE)

    # With the keys; a chosen pair stays, and the maps below choose it, too.
    page.get_by_role("radio", checked=True).focus()
    act_and_settle(page, lambda: page.keyboard.press("ArrowRight"))
    expect(page.get_by_role("radio", checked=True)).to_be_focused()
    assert query(page)["side"] == "A"
    act_and_settle(page, page.locator(".screen .word").nth(4).click)
    side(page, "difference")
    chosen = query(page)
    assert chosen["q"] == "4"
    pair = [percent(float(trace.layers[0]["weights"][0, 4, int(chosen["k"])])) for trace in (A, B)]
    assert headline(page).endswith(f"{pair[0]} in A, {pair[1]} in B")


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "step"), [("match", "scores"), ("scale", "scaled_scores"), ("hide", "masked_scores"), ("collect", "head_output")])  # fmt: skip
def test_each_term_shows_its_difference(open_page: Open, server: str, name: str, step: str) -> None:
    page = open_page(f"{server}/?{LINK}", sidebar=False)
    act_and_settle(page, page.locator(f".screen .term[data-name={name}]").click)
    np.testing.assert_array_equal(painted(page), compare(A, B, step).matrix.numpy())
    assert query(page)["step"] == step


def test_other_words_offer_a_and_b_and_say_why(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?q=1&k=2&compare=text%3Dan+owl+then+asked&text=the+owl+asked", sidebar=False)
    expect(page.get_by_role("radio")).to_have_text(["A", "B"])
    expect(page.locator(".screen .differs")).to_contain_text("No difference: A and B have other words.")
    expect(page.locator(".screen .asks .word")).to_have_text("owl")
    expect(page.locator(".screen .answers .word")).to_have_text("asked")
    act_and_settle(page, page.locator(".screen .word").nth(3).click)
    assert (query(page)["q"], query(page)["k"]) == ("2", "2"), (
        "asked is the third word of A; its strongest key has no partner"
    )
    # A word of B without a partner is chosen as well; the pair of A stays.
    act_and_settle(page, page.locator(".screen .word").nth(2).click)
    expect(page.locator(".screen .asks .word")).to_have_text("then")
    assert query(page)["q"] == "2"
    side(page, "A")
    expect(page.locator(".screen .asks .word")).to_have_text("asked")


def test_the_shown_state_follows_its_knob_while_it_moves(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}&side=B", sidebar=False)
    page.locator(".controls [name=temperature]").evaluate(
        "(slider) => { slider.value = slider.max; slider.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    page.wait_for_function("document.querySelector('#root .figures').figureState.frames > 0")
    warm = TypedText(TEXT, AttentionConfig(mask="causal", temperature=100)).trace().layers[0]
    expected = np.where(warm["mask"].numpy(), warm["weights"][0].numpy(), np.nan)
    assert painted(page) == approx(expected, nan=True)
    np.testing.assert_array_equal(painted_numbers(page, 0), A.layers[0]["weights"][0].numpy())  # the maps below wait


def test_what_is_typed_goes_to_what_is_shown(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}", sidebar=False)

    def type_text(text: str) -> None:
        page.locator(".screen .type").click()
        field = page.locator(".screen textarea")
        act_and_settle(page, lambda: [field.fill(text), field.press("Escape")])  # a pause would apply it, too

    type_text("a cat sat")  # both: their difference stays
    assert (query(page)["text"], query(page)["compare"]) == ("a cat sat", "temperature=0.5")
    expect(page.get_by_role("radio", checked=True)).to_have_text("difference")
    side(page, "B")
    type_text("a dog sat")
    assert query(page)["text"] == "a cat sat"
    assert "text=a dog sat" in query(page)["compare"]
    expect(page.get_by_role("radio")).to_have_text(["A", "B"])
