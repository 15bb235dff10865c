"""The first screen as a newcomer uses it: words, pairs, terms, the film, typing; what is painted is what the backend computed."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from conftest import act_and_settle, decode_numbers, place_of_cell, wait_until_settled
from margins import approx
from playwright.sync_api import Page, expect

from attention import AttentionConfig, TypedText, explain
from attention.base.printed import format_number
from attention.sources.registry import opening_source
from attention.trace.large_map import pool_blocks

pytestmark = pytest.mark.browser
Open = Callable[..., Page]

TEXT = "the owl asked the moon and the moon blinked"
CAUSAL = TypedText(TEXT, AttentionConfig(mask="causal", n_heads=4)).trace()
LINK = "text=the+owl+asked+the+moon+and+the+moon+blinked&mask=causal&head=1&q=6&k=2"
STEPS = ["scores", "scaled_scores", "masked_scores", "weights", "head_output"]


def query(page: Page) -> dict[str, str]:
    return {key: values[-1] for key, values in parse_qs(urlsplit(page.url).query).items()}


def headline(page: Page) -> str:
    return page.locator(".screen .headline").inner_text()


def cards(page: Page) -> list[str]:
    return page.locator(".screen .card .value").all_inner_texts()


def painted(page: Page) -> np.ndarray:
    """The numbers of the large map."""
    sent = page.evaluate(
        """() => { const { z } = document.querySelector('.screen .plot').data[0];
            return sent(Float32Array.from(z.flatMap((row) => Array.from(row))), [z.length, z[0].length]); }"""
    )
    return decode_numbers(sent, np.float32)


def percent(weight: float) -> str:
    return f"{round(100 * weight)}\u00a0%" if weight >= 0.0095 else f"{100 * weight:.1f}\u00a0%"


@pytest.mark.sample(1)
@pytest.mark.parametrize("t", [1, 2, 3, 4, 5])
def test_each_rest_of_the_film_has_the_numbers_of_its_step(open_page: Open, server: str, t: int) -> None:
    step = STEPS[t - 1]
    page = open_page(f"{server}/?{LINK}&step={step}", sidebar=False)
    layer = CAUSAL.layers[0]
    matrix = layer.matrix(step, 1).numpy()
    expected = np.where(np.isfinite(matrix), matrix, np.nan)
    if step == "weights":  # hidden cells are dots
        expected = np.where(layer["mask"].numpy(), expected, np.nan)
    np.testing.assert_array_equal(painted(page), expected)
    expect(page.locator(".screen .term[aria-pressed=true] .does")).to_have_text(
        f"{t} {['match', 'scale', 'hide', 'share', 'collect'][t - 1]}"
    )
    weights = layer["weights"][1, 6]
    said = [explain(CAUSAL, name, 0, 1, 6, 2).displayed_value for name in STEPS[:2]]
    assert cards(page) == [*said, percent(float(weights[2]))]
    assert headline(page) == f"The last “the” looks at “asked”: {percent(float(weights[2]))}"
    if t in (1, 2, 5):
        number = explain(CAUSAL, step, 0, 1, 6, 2).displayed_value
        assert number in page.locator(".screen .caption").inner_text()


def test_states_of_the_film_come_from_the_trace(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}", sidebar=False)
    layer = CAUSAL.layers[0]

    def at(t: float) -> list[str]:
        page.evaluate("(t) => document.querySelector('#root .screen').firstScreen.seek(t)", t)
        texts: list[str] = page.locator(".screen .stage text").all_text_contents()
        return texts

    products = (layer.matrix("query", 1)[6].double() * layer.matrix("key", 1)[2].double()).tolist()
    sums = np.cumsum(products)
    assert format_number(float(layer["scores"][1, 6, 2])) in at(1)
    halfway = set(at(0.55))
    assert halfway & {format_number(float(number)) for number in sums[:-1]}, "the sum so far"
    scaled = layer["scaled_scores"][1, 6]
    assert format_number(float(scaled[2])) in at(2)
    weights = layer["weights"][1, 6]
    shares = at(4)
    for key, weight in enumerate(weights.tolist()):
        if weight >= 0.03:
            assert percent(weight) in shares, key
    assert "Σ = 1" in shares
    column = int(layer.matrix("head_output", 1)[6].abs().argmax())
    line = explain(CAUSAL, "head_output", 0, 1, 6, column)
    assert any(text.endswith(line.displayed_value) and line.short in text for text in at(5))


def test_words_say_their_shares_and_the_tip_its_number(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}", sidebar=False)
    layer = CAUSAL.layers[0]
    weights = layer["weights"][1, 6].tolist()
    said = page.locator(".screen .token").evaluate_all(
        "(tokens) => tokens.map(({ children: [, share] }) => (share.hidden ? '' : share.textContent))"
    )
    assert said == [percent(weight) if weight >= 0.005 else "" for weight in weights]
    for term, step in zip((1, 2, 3, 0, 4), STEPS, strict=True):  # where they stand in the formula
        act_and_settle(page, page.locator(".screen .term").nth(term).click)
        page.mouse.move(*place_of_cell(page, 0, row=4, column=1, maps=".screen .plot"))
        number = float(layer.matrix(step, 1)[4, 1])
        expect(page.locator(".screen .tip b")).to_have_text(format_number(number))
        page.mouse.move(1, 1)


def test_a_word_a_share_and_a_cell_choose_the_pair_and_back_returns(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}", sidebar=False)
    before = headline(page)
    act_and_settle(page, page.locator(".screen .word").nth(8).click)
    strongest = int(CAUSAL.layers[0]["weights"][1, 8].argmax())
    assert (query(page).get("q"), query(page).get("k", "0")) == ("8", str(strongest))
    page.wait_for_timeout(1000)  # two choices within a second are one entry
    act_and_settle(page, page.locator(".screen .token:not(.answers) .share:visible").first.click)
    assert query(page).get("q") == "8"
    assert query(page).get("k", "0") != str(strongest)
    act_and_settle(page, page.go_back)
    act_and_settle(page, page.go_back)
    assert headline(page) == before
    place = place_of_cell(page, 0, row=5, column=3, maps=".screen .plot")
    act_and_settle(page, lambda: page.mouse.click(*place))
    assert (query(page)["q"], query(page)["k"]) == ("5", "3")
    page.locator(".screen .large").focus()
    act_and_settle(page, lambda: page.keyboard.press("ArrowLeft"))
    assert (query(page)["q"], query(page)["k"]) == ("5", "2")


def test_cards_open_to_their_arithmetic_and_terms_are_the_navigation(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}", sidebar=False)
    act_and_settle(page, page.locator(".screen .card").nth(0).click)
    assert page.locator(".screen .products span").count() == CAUSAL.layers[0].sizes["d_k"]
    act_and_settle(page, page.locator(".screen .card").nth(2).click)
    line = explain(CAUSAL, "weights", 0, 1, 6, 2)
    assert f"{line.displayed_value} {line.sign} {line.short}" in page.locator(".screen .arithmetic").inner_text()
    page.keyboard.press("Escape")
    expect(page.locator(".screen .arithmetic")).to_be_hidden()
    act_and_settle(page, page.locator(".screen .term").nth(4).click)
    assert query(page)["step"] == "head_output"


def test_film_plays_stops_at_a_click_and_its_moment_is_a_link(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}", sidebar=False)
    page.locator(".screen .play").click()
    # In one breath, since the film goes on between two.
    stop = """async () => { const screen = document.querySelector('#root .screen');
        while (screen.firstScreen.t <= 0.25) await new Promise(requestAnimationFrame);
        screen.querySelector('.play').click(); }"""
    act_and_settle(page, lambda: page.evaluate(stop))
    shown = float(query(page)["show"])
    assert 0.2 < shown < 5
    other = open_page(page.url, sidebar=False)
    assert other.evaluate("document.querySelector('#root .screen').firstScreen.t") == approx(shown)
    expect(other.locator(".screen .play")).to_have_text("▶ Go on")


def test_reduced_motion_shows_stills(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}&step=scores", sidebar=False, reduced_motion="reduce")
    play = page.locator(".screen .play")
    expect(play).to_have_text("Next →")
    act_and_settle(page, play.click)
    assert page.evaluate("document.querySelector('#root .screen').firstScreen.t") == 2
    assert query(page)["step"] == "scaled_scores"


def test_a_moving_knob_repaints_and_says_what_changed(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}", sidebar=False)
    slider = page.locator(".controls [name=temperature]")
    slider.focus()
    act_and_settle(page, lambda: slider.press("End"))
    warm = TypedText(TEXT, AttentionConfig(mask="causal", temperature=100)).trace().layers[0]
    assert painted(page) == approx(np.where(warm["mask"].numpy(), warm["weights"][1].numpy(), np.nan), nan=True)
    page.locator(".tools .changed").click()
    changes = page.locator(".tools .changes")
    assert "Temperature 1.0 → 100.0" in changes.inner_text()
    act_and_settle(page, changes.get_by_role("button").click)
    assert "temperature" not in query(page)


def test_typing_redraws_after_a_pause_and_keeps_the_caret(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}", sidebar=False)
    page.locator(".screen .type").click()
    field = page.locator(".screen textarea")
    # Where an answer has taken long, as on a busy machine, only Ctrl+Enter sends.
    field.evaluate(
        """(field) => { document.querySelector('#root .screen').firstScreen.sent.sentence.slow = false;
            field.value = 'a cat sat on a mat';
            field.dispatchEvent(new Event('input', { bubbles: true })); }"""
    )
    page.wait_for_url(lambda url: "text=a+cat+sat+on+a+mat" in url)
    wait_until_settled(page)
    field.press("Home")
    for _ in range(5):
        field.press("ArrowRight")
    act_and_settle(page, lambda: [field.press("s"), field.press("Control+Enter")])
    assert field.evaluate("(field) => [field.value, field.selectionStart]") == ["a cats sat on a mat", 6]
    expected = TypedText("a cats sat on a mat", AttentionConfig(mask="causal")).trace().layers[0]
    np.testing.assert_array_equal(
        painted(page), np.where(expected["mask"].numpy(), expected["weights"][1].numpy(), np.nan)
    )
    field.press("Enter")
    assert field.input_value().count("\n") == 1
    field.press("Escape")
    expect(page.locator(".screen .word").first).to_have_text("a")


@pytest.mark.sample(1)
@pytest.mark.parametrize("text", ["我喜欢你", "👩‍👩‍👧‍👦 a 👍🏽", "שלום עולם", "e\u0301te\u0301"])
def test_any_script_is_typed_and_said(open_page: Open, server: str, text: str) -> None:
    page = open_page(f"{server}/?{LINK}", sidebar=False)
    page.locator(".screen .type").click()
    page.locator(".screen textarea").fill(text)
    page.locator(".screen textarea").press("Escape")
    expect(page.locator(".screen .word")).to_have_text([*TypedText(text).trace().tokens])
    wait_until_settled(page)


def test_many_words_have_rows_of_their_largest(open_page: Open, server: str) -> None:
    text = " ".join(f"w{i}" for i in range(150))
    page = open_page(f"{server}/?text={text.replace(' ', '+')}&mask=causal&q=140&k=3", sidebar=False)
    matrix = TypedText(text, AttentionConfig(mask="causal")).trace().layers[0]["weights"][0]
    weights = matrix[140]
    # The page computes the map, and finds the cell of each block.
    assert painted(page) == approx(pool_blocks(matrix.numpy(), 4, 4), nan=True)
    found = page.evaluate("document.querySelector('.screen').firstScreen.numbers.cellOfBlock('share', 35, 2)")
    assert matrix[found[0], found[1]] == matrix[140:144, 8:12].max()
    bars = page.locator(".screen .stage rect.bar[data-k]").evaluate_all(
        "(bars) => [...new Set(bars.map(({ dataset }) => Number(dataset.k)))]"
    )
    assert len(bars) == 40
    assert set(bars) == {3, *weights.topk(39).indices.tolist()} or set(bars) == {3, *weights.topk(40).indices.tolist()}
    rest = 1 - float(weights[bars].sum())
    assert f"{150 - 40} more: {percent(rest)}" in (page.locator(".screen .stage").text_content() or "")
    slider = page.locator(".controls [name=temperature]")
    slider.focus()
    act_and_settle(page, lambda: slider.press("ArrowRight"))


def test_locked_page_shows_and_types_nothing(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}&lock=1", sidebar=False)
    expect(page.locator(".screen .headline")).to_contain_text("looks at")
    expect(page.locator(".screen .type")).to_have_count(0)
    expect(page.locator(".tools button")).to_have_count(0)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("width", "height"), [(1920, 1080), (1280, 720)])
@pytest.mark.parametrize(
    "link",
    ["text=the+owl+asked+the+moon+blinked&q=4&k=1", "text=the+owl+asked+the+moon+blinked&q=4&k=1&step=scores", ""],
)
def test_projected_map_has_large_digits_and_words(
    open_page: Open, server: str, width: int, height: int, link: str
) -> None:
    page = open_page(f"{server}/?{link}&present=temperature.mask", viewport={"width": width, "height": height})
    texts = page.locator(".screen .over text").evaluate_all(
        "(texts) => texts.map((text) => [text.textContent, parseFloat(getComputedStyle(text).fontSize), Boolean(text.closest('.digits'))])"
    )
    digits = [size for _, size, inside in texts if inside]
    # Where the last word above the map would leave it, it ends in an ellipsis.
    words = [
        size
        for text, size, inside in texts
        if not inside
        and any(map(str(text).rstrip("…").__eq__, (word[: len(str(text).rstrip("…"))] for word in TEXT.split())))
    ]
    n = 6 if link else 9
    assert len(digits) == n, "the chosen row, and no other"
    assert min(digits) >= 24
    assert len(words) == 2 * n
    assert set(words) == {24}
    if width == 1920 and n == 6:  # the map fills the height that the screen has
        tall, room = page.evaluate(
            "() => { const { geometry } = document.querySelector('#root .screen').firstScreen.map; return [geometry.y0 + geometry.tall, geometry.height]; }"
        )
        assert tall >= room - 12
    # All of it is in sight, and nothing is cut at the right.
    assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= width
    for part in (".screen .large", ".screen .cards", ".controls", ".screen .formula"):
        box = page.locator(part).first.bounding_box()
        assert box
        assert box["y"] + box["height"] <= height
        assert box["x"] + box["width"] <= width
    assert page.locator(".screen .formula").evaluate("(formula) => formula.scrollWidth <= formula.clientWidth")


@pytest.mark.skipif(opening_source() == "typed text", reason="there are no examples")
def test_projected_opening_has_the_digits_of_its_row(open_page: Open, server: str) -> None:
    link = "source=example&head=4&q=13&k=1&present=temperature"
    page = open_page(f"{server}/?{link}", viewport={"width": 1280, "height": 720})
    digits = page.locator(".screen .over .digits text")
    shares = page.locator(".screen .token .share").all_inner_texts()
    assert [text for text in digits.all_text_contents() if text] == [share[:-2] for share in shares if share]
    assert set(digits.evaluate_all("(all) => all.map((text) => getComputedStyle(text).fontSize)")) == {"24px"}


@pytest.mark.skipif(opening_source() == "typed text", reason="there are no examples")
def test_bare_address_opens_on_an_example_and_draws_it_before_the_page(open_page: Open, server: str) -> None:
    page = open_page(server, figure=False, sidebar=False)
    # Both at once, since the opening may leave at any time.
    find = "() => { const [at] = document.querySelectorAll('#opening .headline'); return at?.innerText.includes('looks at') && [at.innerText, at.getBoundingClientRect().toJSON()]; }"
    said, measured = page.wait_for_function(find).json_value()
    box = {side: measured[side] for side in ("x", "y", "width", "height")}
    wait_until_settled(page)
    expect(page.locator("#opening")).to_have_count(0)
    assert headline(page) == said
    assert page.locator(".screen .headline").bounding_box() == approx(box, within=3, why="pixels"), "it does not move"
    assert query(page)["source"] == opening_source()
    other = open_page(page.url, sidebar=False)
    assert headline(other) == said


def test_phone_shows_the_film_above_the_map_and_no_gap_below_it(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?text=one+two+three", sidebar=False, viewport={"width": 390, "height": 844})
    boxes = {name: page.locator(f".screen {name}").bounding_box() for name in (".film", ".large", ".cards")}
    bottoms = {name: box["y"] + box["height"] for name, box in boxes.items() if box}
    assert bottoms[".film"] < bottoms[".large"] < bottoms[".cards"] < 844
    map_end = page.evaluate(
        "(() => { const { y0, tall } = document.querySelector('#root .screen').firstScreen.map.geometry; return y0 + tall; })()"
    )
    assert boxes[".large"]
    assert boxes[".large"]["height"] - map_end < 16


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "words", ["the quick brown fox jumps over the lazy dog", "international misunderstanding of circumstances"]
)
def test_numbers_of_sixteen_words_are_readable_in_the_chosen_row(open_page: Open, server: str, words: str) -> None:
    text = " ".join((words.split() * 4)[:16])
    page = open_page(
        f"{server}/?text={text.replace(' ', '+')}&q=12&k=3", sidebar=False, viewport={"width": 1280, "height": 720}
    )
    layer = TypedText(text).trace().layers[0]
    for term, step in zip((1, 2, 3, 0), STEPS, strict=False):
        act_and_settle(page, page.locator(".screen .term").nth(term).click)
        digits, cell = page.evaluate(
            """() => { const { x, y } = document.querySelector('#root .screen').firstScreen.map.geometry.cell;
                const texts = [...document.querySelectorAll('.screen .over g[clip-path] text')];
                return [texts.map((text) => [text.textContent, text.getComputedTextLength(), parseFloat(getComputedStyle(text).fontSize)]), [x, y]]; }"""
        )
        row = layer.matrix(step, 0)[12].tolist()
        expected = [
            str(round(100 * x)) if step == "weights" else f"{x:.1f}" if abs(x) < 9.95 else f"{x:.0f}" for x in row
        ]
        assert [text for text, *_ in digits if text] == [
            text.replace("-", "−").replace("−0.0", "0") for text in expected if step != "weights" or text != "0"
        ]
        assert all(length < cell[0] and 11 <= size < cell[1] for _, length, size in digits)


def test_lines_are_sequences_and_the_others_are_chosen_beside_the_sentence(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?text=the+cat+sat%0Aa+dog+ran+home", sidebar=False)
    expect(page.locator(".screen .sequences")).to_contain_text("2 sequences, shown is")
    act_and_settle(page, lambda: page.get_by_label("Shown sequence").select_option("1"))
    expect(page.locator(".screen .word")).to_have_text(["a", "dog", "ran", "home"])
    assert query(page)["sequence"] == "1"
    page.locator(".screen .type").click()
    expect(page.locator(".screen .note")).to_contain_text("Each line is a sequence of its own: 2, shown is number 1.")
    field = page.locator(".screen textarea")
    act_and_settle(page, lambda: [field.fill("one line"), field.press("Control+Enter")])
    expect(page.locator(".screen .note")).not_to_contain_text("sequence")
    locked = open_page(f"{server}/?text=a+b%0Ac+d&lock=1", sidebar=False)
    expect(locked.get_by_label("Shown sequence")).to_be_disabled()
