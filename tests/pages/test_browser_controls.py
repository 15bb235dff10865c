"""The controls of the figure: the picture follows a drag without the server, and the released value is sent to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from conftest import (
    act_and_settle,
    chosen_cell_line,
    click_cell,
    decode_numbers,
    painted_numbers,
    place_of_cell,
    repeat_until,
    set_control,
    still_box,
    turn,
    wait_until_settled,
)
from margins import approx
from playwright.sync_api import Page, expect
from test_browser import Open

from attention import AttentionConfig, TypedText, explain
from attention.pictures.heatmap import COLORS

pytestmark = pytest.mark.browser
TEXT = "the cat sat on the mat"


def layer(text: str = TEXT, **knobs: Any) -> Any:
    return TypedText(text, AttentionConfig(**knobs)).trace().layers[0]


def follow(page: Page, name: str, value: Any) -> None:
    """Moves a control without releasing it, and waits for the next frame."""
    page.evaluate(
        """async ([name, value]) => {
            const control = document.querySelector(`.controls [name=${name}]`), { figureState } = document.querySelector('.figures');
            document.querySelector('.figures').scrollIntoView();
            const before = figureState.frames;
            control.value = value;
            control.dispatchEvent(new Event(name === 'temperature' ? 'input' : 'follow'));
            while (figureState.frames === before) await new Promise(requestAnimationFrame); }""",
        [name, value],
    )


def temperature(page: Page) -> float:
    return float(page.locator(".controls [data-name=temperature] output").inner_text())


def drag(page: Page, index: int, start: tuple[int, int], end: tuple[int, int]) -> None:
    """Zooms in by dragging the mouse from the middle of one cell (column, row) to the middle of another."""
    places = [place_of_cell(page, index, row, column) for column, row in (start, end)]
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1], steps=4)
    page.mouse.up()


def click(cell: tuple[float, float]) -> list[tuple[str, tuple[float, float]]]:
    """The mouse events of a click on a cell (column, row)."""
    return [(event, cell) for event in ("mousemove", "mousedown", "mouseup", "click")]


def at_once(page: Page, index: int, events: list[tuple[str, tuple[float, float]]]) -> None:
    """Dispatches mouse events together, which a busy machine would separate: Plotly recognizes double clicks by time alone.

    Nothing happens where the page has no such map.
    """
    page.evaluate(
        """([i, events]) => { const plot = document.querySelectorAll('.figures .js-plotly-plot')[i], drag = plot?.querySelector('.nsewdrag');
            if (!drag) return;
            const box = plot.getBoundingClientRect(), {xaxis, yaxis} = plot._fullLayout;
            plot._mouseDownTime = 0;
            for (const [type, [x, y]] of events) {
                const to = type === 'mouseup' ? document.querySelector('.dragcover') ?? drag : drag;
                to.dispatchEvent(new MouseEvent(type, { bubbles: true, cancelable: true, view: window, button: 0, buttons: type === 'mousemove' ? 0 : 1,
                    clientX: box.x + xaxis._offset + xaxis.l2p(x), clientY: box.y + yaxis._offset + yaxis.l2p(y) }));
            }
            plot._mouseDownTime = 0; }""",
        [index, events],
    )


def silent(page: Page, act: Callable[[], None]) -> None:
    """Performs an action and asserts that nothing is sent to the server meanwhile."""
    page.evaluate(
        "() => { window.sends = 0; const send = WebSocket.prototype.send; WebSocket.prototype.send = function (...all) { window.sends += 1; return send.apply(this, all); }; }"
    )
    act()
    assert page.evaluate("window.sends") == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("text", "text2", "knobs"),
    [
        ("the owl asked the moon and the moon blinked", "", {"mask": "custom", "cells": "9x9.eNpjYACCBhDBAAADCwCB"}),
        ("the owl asked the moon", "a b c", {"mask": "window", "window": 3}),
    ],
)
def test_mask_looks_the_same_at_rest_and_while_dragging(
    open_page: Open, server: str, text: str, text2: str, knobs: dict[str, Any]
) -> None:
    page = open_page(f"{server}/?{urlencode({'text': text, 'text2': text2, **knobs})}")

    def expected(temperature: float) -> Any:
        return TypedText(text, AttentionConfig(temperature=temperature, **knobs), text2).trace().layers[0].weights[0]

    assert painted_numbers(page, 1) == approx(expected(1.0).numpy())
    silent(page, lambda: follow(page, "temperature", 60))
    assert painted_numbers(page, 1) == approx(expected(temperature(page)).numpy())


def test_cells_that_only_the_old_mask_hid_appear_at_once(open_page: Open, server: str) -> None:
    text, text2 = "alpha beta", "v w x y z"
    page = open_page(f"{server}/?{urlencode({'text': text, 'text2': text2, 'mask': 'causal', 'd_model': 16})}")
    page.evaluate(  # no answer comes: the page must compute the picture itself
        "() => { WebSocket.prototype.send = () => {}; document.querySelector('.figures').figureState.frames = 0; }"
    )
    page.evaluate("document.querySelector('.figures').scrollIntoView()")
    page.locator(".controls [name=mask]").evaluate(
        "(mask) => { mask.value = 'none'; mask.dispatchEvent(new Event('change')); }"
    )
    page.wait_for_function("document.querySelector('.figures').figureState.frames > 0")
    expected = TypedText(text, AttentionConfig(d_model=16), text2).trace().layers[0]
    assert painted_numbers(page, 1) == approx(expected.weights[0].numpy())


def test_300_tokens_draw_clickable_blocks_that_zoom_to_exact_cells(open_page: Open, server: str) -> None:
    text = " ".join(f"w{i % 90}" for i in range(300))
    expected = layer(text, mask="causal")
    page = open_page(f"{server}/?{urlencode({'text': text, 'mask': 'causal', 'q': 250, 'k': 100})}")
    number = explain(TypedText(text, AttentionConfig(mask="causal")).trace(), "weights", q=250, k=100)
    expect(page.locator(".answer-line .number")).to_have_text(number.displayed_value)
    assert painted_numbers(page, 1).shape == (150, 150)
    assert painted_numbers(page, 1) == approx(expected.weights[0].numpy().reshape(150, 2, 150, 2).max(axis=(1, 3)))
    expect(page.locator(".figures .js-plotly-plot").nth(1)).to_contain_text("each cell the largest of 2 × 2")
    # A click on a block selects its largest number.
    row, column = divmod(int(expected.weights[0, 40:42, 20:22].argmax()), 2)
    act_and_settle(page, lambda: click_cell(page, 1, row=40.5, column=20.5))
    assert f"query {40 + row} w{40 + row}" in chosen_cell_line(page)
    assert f"key {20 + column} w{20 + column}" in chosen_cell_line(page)
    drag(page, 1, (100, 150), (199, 249))
    page.wait_for_function("document.querySelectorAll('.figures .js-plotly-plot')[1].data[0].dx === 1")
    place = page.evaluate(
        "(({x0, y0, z}) => [x0, y0, z[0].length, z.length])(document.querySelectorAll('.figures .js-plotly-plot')[1].data[0])"
    )
    left, top, wide, high = map(int, place)
    assert abs(left - 100) <= 1  # the precision of the mouse
    assert abs(top - 150) <= 1
    window = np.s_[top : top + high, left : left + wide]
    assert painted_numbers(page, 1) == approx(expected.weights[0].numpy()[window])
    follow(page, "temperature", 180)
    hot = layer(text, mask="causal", temperature=temperature(page))
    assert painted_numbers(page, 1) == approx(hot.weights[0].numpy()[window])
    assert page.evaluate("document.querySelectorAll('.figures .js-plotly-plot')[1].data[0].dx") == 1


PIXELS = """async (i) => { const image = document.querySelectorAll('.figures .js-plotly-plot')[i].querySelector('.hm image'), made = new Image();
    made.src = image.getAttribute('href') ?? image.getAttributeNS('http://www.w3.org/1999/xlink', 'href');
    await made.decode();
    const canvas = Object.assign(document.createElement('canvas'), { width: made.width, height: made.height }), context = canvas.getContext('2d');
    context.drawImage(made, 0, 0);
    return sent(context.getImageData(0, 0, made.width, made.height).data, [made.height, made.width, 4]); }"""


def pixels(page: Page, index: int) -> np.ndarray:
    """The pixels of a painted map: [row column channel]."""
    return decode_numbers(page.evaluate(PIXELS, index), np.uint8).astype(int)


def test_weights_follow_temperature_without_messages_and_repaint_plotly_cells(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT, 'mask': 'causal', 'colors': COLORS[0]})}")
    for colors in COLORS:
        if colors != COLORS[0]:
            set_control(page, "colors", colors)
        for place in (0, 30, 170):
            silent(page, lambda place=place: follow(page, "temperature", place))
            expected = layer(mask="causal", temperature=temperature(page))
            assert painted_numbers(page, 1) == approx(expected.weights[0].numpy())
            assert painted_numbers(page, 2) == approx(expected.output.numpy())
            assert "temperature" not in page.url
            paintings = {}
            for redrawn in (False, True):
                if redrawn:
                    page.evaluate(
                        "Promise.all([...document.querySelectorAll('.figures .js-plotly-plot')].map((plot) => Plotly.redraw(plot)))"
                    )
                pictures = [pixels(page, i) for i in (1, 2)]
                texts = page.locator(".figures .js-plotly-plot").nth(1).locator(".heatmap-label text")
                bar = [
                    page.locator(".figures .js-plotly-plot").nth(i).locator(".cbaxis text").all_text_contents()
                    for i in (1, 2)
                ]
                inks = texts.evaluate_all("(all) => all.map((text) => getComputedStyle(text).fill)")
                paintings[redrawn] = (pictures, texts.all_text_contents(), inks, bar)
            for ours, plotlys in zip(paintings[False][0], paintings[True][0], strict=True):
                assert ours.shape == plotlys.shape
                assert np.abs(ours - plotlys).max() <= 2  # of 255: a thousand shades
            assert paintings[False][1:] == paintings[True][1:]
            assert len(paintings[True][1]) == 36
            [(*_, last), _] = paintings[True][3]
            largest = float(expected.weights[0].max())
            assert last == (f"{largest:.3g}" if colors == "stretched" else "1")
            if colors == "stretched":
                note = (
                    page.locator(".figures .js-plotly-plot").nth(1).locator(".annotation-text", has_text="full colour")
                )
                assert note.text_content() == f"full colour = {float(last):.3g}"


def test_values_rounding_to_zero_have_no_sign(open_page: Open, server: str) -> None:
    text = "the owl asked the moon and a cat sat on the mat"
    page = open_page(f"{server}/?{urlencode({'text': text, 'd_model': 8})}")
    labels = page.locator(".figures .js-plotly-plot").nth(2).locator(".heatmap-label text")
    for place in range(0, 200, 8):
        follow(page, "temperature", place)
        numbers = painted_numbers(page, 2).flatten()
        if ((numbers < 0) & (numbers > -0.005)).any():
            break
    for redrawn in (False, True):
        if redrawn:
            page.evaluate("Plotly.redraw(document.querySelectorAll('.figures .js-plotly-plot')[2])")
        texts = [text.replace("−", "-") for text in labels.all_text_contents()]
        assert texts == [f"{number:.2f}".replace("-0.00", "0.00") for number in numbers]


def output_has_columns(page: Page, facts: str, columns: int) -> None:
    """Asserts that another d_model gives the output other columns."""
    set_control(page, "d_model", "40")
    output = page.locator(".figures .js-plotly-plot").nth(2)
    assert facts in (output.locator(".gtitle-subtitle").text_content() or "")
    assert painted_numbers(page, 2).shape[1] == columns
    assert output.evaluate("({_fullLayout: {xaxis}}) => xaxis.range") == [-0.5, 39.5]


def test_blocks_keep_colours_while_dragging_and_d_model_columns(open_page: Open, server: str) -> None:
    text = " ".join(f"w{i % 90}" for i in range(300))
    page = open_page(f"{server}/?{urlencode({'text': text, 'heads': '1', 'colors': 'stretched'})}")
    ends = "(({zmin, zmax}) => [zmin, zmax])(document.querySelectorAll('.figures .js-plotly-plot')[1].data[0])"
    for colors, place in (("stretched", 20), ("log", 40)):
        if colors == "log":
            set_control(page, "colors", colors)
        follow(page, "temperature", place)
        dragging, picture = page.evaluate(ends), pixels(page, 1)
        act_and_settle(page, lambda: page.locator(".controls [name=temperature]").dispatch_event("change"))
        assert page.evaluate(ends) == approx(dragging)
        assert np.abs(pixels(page, 1) - picture).max() <= 2
        assert len(set(picture.flatten().tolist())) > 100  # the picture is not a uniform dark square
    output_has_columns(page, "each cell the largest of 2 × 2", 20)


def test_python_pooled_map_is_recut_with_exact_hover_and_click(open_page: Open, server: str) -> None:
    text = " ".join(f"w{i}" for i in range(400))
    base = layer(text)
    expected = base.output.numpy()
    page = open_page(f"{server}/?{urlencode({'text': text})}")
    assert painted_numbers(page, 2).shape[0] <= 256
    expect(page.locator(".figures .js-plotly-plot").nth(2)).to_contain_text("each cell the largest of")
    for index, matrix in ((1, base.weights[0].numpy()), (2, base.output.numpy())):
        plot = page.locator(".figures .js-plotly-plot").nth(index)
        x, y = place_of_cell(page, index, row=33, column=21)
        page.mouse.move(x - 3, y)
        page.mouse.move(x, y)
        expect(plot.locator(".tip")).to_be_visible()
        lines = plot.locator(".tip").inner_text().split("\n")
        row, column = (int(line.split()[1]) for line in lines[1:3])
        assert lines[1] == f"query {row} “w{row}”"
        assert float(lines[3].replace("−", "-")) == float(f"{matrix[row, column]:.4g}")
    block = -(-400 // painted_numbers(page, 2).shape[0])
    rows = expected[: block * 2, 10][block : 2 * block]
    # The click follows the move before Plotly checks the hovered cell again.
    act_and_settle(page, lambda: at_once(page, 2, [("mousemove", (20, 50)), *click((10, block + (block - 1) / 2))]))
    assert f"query {block + int(np.abs(rows).argmax())} " in chosen_cell_line(page)
    drag(page, 2, (8, 150), (40, 230))
    page.wait_for_function("document.querySelectorAll('.figures .js-plotly-plot')[2].data[0].dy === 1")
    wait_until_settled(page)
    left, top, wide, high = map(int, page.evaluate(
        "(({x0, y0, z}) => [x0, y0, z[0].length, z.length])(document.querySelectorAll('.figures .js-plotly-plot')[2].data[0])"
    ))  # fmt: skip
    # A pixel is one and a half rows.
    assert (abs(left - 8) <= 1, abs(top - 150) <= 2, 70 < high < 90) == (True, True, True)
    np.testing.assert_array_equal(painted_numbers(page, 2), expected[top : top + high, left : left + wide])


def test_2048_tokens_follow_the_drag_as_256_by_256_blocks(open_page: Open, server: str) -> None:
    text = " ".join(f"w{i % 500}" for i in range(2048))
    page = open_page(f"{server}/?{urlencode({'text': f'{text} more', 'head': '1'})}")
    expect(page.get_by_text("2,049 tokens")).to_be_visible()
    assert page.evaluate("document.querySelectorAll('.figures .js-plotly-plot')[1].data[0].dx") == 8
    source = TypedText(text, max_tokens=2048)
    blocks = source.trace().layers[0].matrix("weights", 1).numpy().reshape(256, 8, 256, 8).max(axis=(1, 3))
    assert painted_numbers(page, 1) == approx(blocks)
    silent(page, lambda: follow(page, "temperature", 20))
    overridden = replace(source, config=AttentionConfig(temperature=temperature(page)))
    cold = overridden.trace().layers[0].matrix("weights", 1).numpy()
    assert painted_numbers(page, 1) == approx(cold.reshape(256, 8, 256, 8).max(axis=(1, 3)))


WATCH = """() => { window.shift = 0; window.empty = 0; window.frames = 0;
    new PerformanceObserver((list) => list.getEntries().forEach((entry) => { window.shift += entry.value; })).observe({ type: 'layout-shift' });
    const look = () => { window.frames += 1;
      window.empty += [...document.querySelectorAll('.figures .js-plotly-plot')].filter((plot) => !plot.querySelector('.hm image')?.getAttribute('href')).length;
      requestAnimationFrame(look); };
    look(); }"""


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "viewport", [{"width": 1440, "height": 900}, {"width": 390, "height": 844}], ids=["wide", "phone"]
)
def test_knob_changes_cause_no_layout_shift_fade_or_empty_map(
    open_page: Open, server: str, viewport: dict[str, int]
) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT})}", viewport=viewport)
    box = still_box(page.locator(".controls [name=temperature]"))
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= viewport["width"]
    page.evaluate(WATCH)
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.55 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], middle, steps=25)
    act_and_settle(page, page.mouse.up)
    set_control(page, "mask", "causal")
    set_control(page, "seed", "5")
    np.testing.assert_array_equal(
        painted_numbers(page, 1), layer(mask="causal", temperature=temperature(page), seed=5).weights[0].numpy()
    )
    assert page.evaluate("[window.empty, window.frames > 1]") == [0, True]
    # On a phone the words of the chosen cell's line wrap again with its number; the line itself keeps its height.
    assert page.evaluate("window.shift") < (0.03 if viewport["width"] < 640 else 0.01)
    if viewport["width"] < 640:
        return
    # Even a delayed fade gives every element a layer, which costs a fifth of the time of a step.
    page.evaluate(
        """() => { window.stale = 0; window.fades = 0;
            new MutationObserver((changes) => {
                window.stale += changes.filter(({ target }) => target.dataset.stale === 'true').length;
                window.fades += document.getAnimations().filter((animation) => animation.transitionProperty === 'opacity').length;
            }).observe(document.body, { subtree: true, attributeFilter: ['data-stale'] }); }"""
    )
    seeds = count(1)  # a run that ends before the page has drawn a frame makes nothing stale
    repeat_until(
        lambda: page.evaluate("window.stale") > 20,
        lambda: set_control(page, "seed", str(next(seeds))),
    )
    assert page.evaluate("window.fades") == 0


def test_released_value_sets_the_knob_and_resolves_indivisible_d_model(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT})}")

    def press() -> None:
        page.locator(".controls [name=temperature]").focus()
        page.keyboard.press("End")

    act_and_settle(page, press)
    page.wait_for_function("location.search.includes('temperature=100')")
    np.testing.assert_array_equal(painted_numbers(page, 1), layer(temperature=100.0).weights[0].numpy())
    expect(page.locator(".controls output")).to_have_text("100.0")
    set_control(page, "mask", "window")
    set_control(page, "head", "3")
    page.wait_for_function("location.search.includes('mask=window') && location.search.includes('head=3')")
    hot = layer(mask="window", temperature=100.0).weights[3].numpy()
    np.testing.assert_array_equal(painted_numbers(page, 1), hot)
    np.testing.assert_array_equal(painted_numbers(page, 0), layer().scores[3].numpy())
    # A control released at its old value does not block anything.
    for _ in range(2):  # Python's answer contains no change
        act_and_settle(page, lambda: page.locator(".controls [name=temperature]").dispatch_event("change"))
    assert "temperature=100" in page.url
    for knob, value in (("mask", "none"), ("head", "0")):
        set_control(page, knob, value)

    # The sidebar resolves heads that do not divide d_model.
    turn(page, "d_model", "30")
    expect(page.get_by_text("4 heads do not divide d_model 30")).to_be_visible()  # it stays for some seconds
    page.wait_for_function("location.search.includes('d_model=30')")
    wait_until_settled(page)
    np.testing.assert_array_equal(painted_numbers(page, 0), layer(d_model=30, n_heads=3).scores[0].numpy())
    for bad in ("", "5000", "0"):  # the browser gives the reason; the old value returns
        page.locator(".controls [data-name=d_model] select").select_option("other …")
        page.locator(".controls [name=d_model]").fill(bad)
        page.keyboard.press("Enter")
        page.locator(".controls [name=seed]").focus()
        expect(page.locator(".controls [name=d_model]")).to_have_value("30")
    set_control(page, "d_model", "60")
    page.wait_for_function("location.search.includes('d_model=60')")  # four heads are possible again
    np.testing.assert_array_equal(painted_numbers(page, 0), layer(d_model=60).scores[0].numpy())


def test_link_shows_the_heads_that_its_sender_saw(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT, 'heads': 8})}")
    other = open_page(server, fresh=True)
    for d_model, heads in ((60, 6), (30, 6)):  # 60 and 30 have different default heads
        set_control(page, "d_model", str(d_model))
        page.wait_for_function(
            f"location.search.includes('d_model={d_model}') && location.search.includes('heads={heads}')"
        )
        other.evaluate("sessionStorage.clear()")
        other.goto(page.url)
        wait_until_settled(other)
        np.testing.assert_array_equal(
            painted_numbers(other, 0), layer(d_model=d_model, n_heads=heads).scores[0].numpy()
        )
    set_control(page, "d_model", "64")
    page.wait_for_function("location.search.includes('heads=8')")
    np.testing.assert_array_equal(painted_numbers(page, 0), layer(d_model=64, n_heads=8).scores[0].numpy())
