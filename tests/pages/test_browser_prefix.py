"""The Lab behind prefixes and in frames: every page below /~/+/ in the page of a host or a Space, whose address follows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pytest
from conftest import (
    FRAMED_BY,
    HUB,
    act_and_settle,
    chosen_cell_line,
    click_cell,
    copied,
    free_port,
    instrument,
    painted_numbers,
    set_control,
    wait_until_settled,
)
from playwright.sync_api import Browser, Frame, Page, expect
from shell import Shell, frame_of, running_shell
from test_browser import CAUSAL, LINK, TEXT, Open

pytestmark = [pytest.mark.browser, pytest.mark.long]  # servers below a prefix and in frames of hosts
CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


@pytest.fixture
def shell(server: str, tmp_path: Path) -> Iterator[Shell]:
    with running_shell(tmp_path, free_port(), server) as shell:
        yield shell


def state(address: str) -> dict[str, list[str]]:
    return parse_qs(urlsplit(address).query)


def copied_link(tab: Page, lab: Frame) -> str:
    """The link that Copy link gives: the address of the host, with the page and the state of the Lab."""
    link = copied(lab, lab.get_by_role("button", name="Copy link", exact=True))
    assert "/~/+/" not in link
    assert "/~/+/" in lab.url
    assert state(link) == state(lab.url)
    tab.wait_for_url(lambda url: urlsplit(url).path == urlsplit(link).path)
    return link


def go(lab: Frame, title: str) -> None:
    """Opens a page by its link in the menu."""
    act_and_settle(lab, lab.locator(".st-key-menu").get_by_role("link", name=title, exact=True).click)
    expect(lab.get_by_role("heading", level=1, name=title)).to_be_visible()


def pictures(lab: Frame) -> list[np.ndarray]:
    """The numbers of all maps of a page."""
    kinds = lab.locator(".figures .js-plotly-plot").evaluate_all("(all) => all.map(({ data }) => data[0].type)")
    return [painted_numbers(lab, index) for index, kind in enumerate(kinds) if kind == "heatmap"]


def no_file_is_missing(shell: Shell) -> None:
    assert [request for request in shell.requests() if request[1] >= 400] == []


def opens_the_same(open_page: Open, link: str, lab: Frame) -> None:
    """Asserts that a copied link opens the state and the numbers of its page."""
    other = frame_of(open_page(link, figure=False))
    wait_until_settled(other)
    assert urlsplit(other.url).path == urlsplit(lab.url).path
    assert state(other.url) == state(lab.url)
    for expected, actual in zip(pictures(lab), pictures(other), strict=True):
        np.testing.assert_array_equal(expected, actual)


def test_lab_and_heads_update_the_address_of_their_host(open_page: Open, shell: Shell) -> None:
    tab = open_page(f"{shell.home}/?{LINK}", fresh=True, figure=False, **CLIPBOARD)
    lab = frame_of(tab)
    wait_until_settled(lab)
    assert lab.url == f"{shell.home}/~/+/?{LINK}"
    np.testing.assert_array_equal(painted_numbers(lab, 1), CAUSAL.weights[0].numpy())
    # A click explains, a knob changes; the host learns both from Streamlit's message, and Copy link gives its address.
    act_and_settle(lab, lambda: click_cell(lab, 1, row=4, column=1))
    assert chosen_cell_line(lab).startswith("weights · query 4 the → key 1 cat")
    set_control(lab, "seed", "7")
    shown = {"text": [TEXT], "mask": ["causal"], "q": ["4"], "k": ["1"], "seed": ["7"]}
    tab.wait_for_url(lambda url: state(url) == shown)
    queries = tab.evaluate(
        "messages.filter(({ type }) => type === 'SET_QUERY_PARAM').map((message) => message.queryParams)"
    )
    assert state(queries[-1]) == state(lab.url)
    assert copied_link(tab, lab) == tab.url
    opens_the_same(open_page, tab.url, lab)
    act_and_settle(lab, lambda: lab.evaluate("history.back()"))
    tab.wait_for_function("!location.search.includes('seed')")
    np.testing.assert_array_equal(painted_numbers(lab, 1), CAUSAL.weights[0].numpy())
    # A click on a head opens it in the Lab.
    go(lab, "Heads")
    set_control(lab, "seed", "6")
    opens_the_same(open_page, copied_link(tab, lab), lab)
    panel = lab.evaluate("document.querySelector('.figures .js-plotly-plot').layout.meta.panels[1]")
    act_and_settle(lab, lambda: click_cell(lab, 0, row=panel["y"] + 2, column=panel["x"] + 1))
    expect(lab.get_by_role("heading", level=1, name="Attention Lab")).to_be_visible()
    assert chosen_cell_line(lab).startswith("weights · query 4 the → key 1 cat")  # the chosen pair
    tab.wait_for_url(lambda url: (urlsplit(url).path, state(url).get("head")) == ("/", ["1"]))
    no_file_is_missing(shell)


def test_other_pages_update_the_address_of_their_host(open_page: Open, shell: Shell) -> None:
    tab = open_page(f"{shell.home}/?explore_mask=true&{LINK}", fresh=True, figure=False, **CLIPBOARD)
    lab = frame_of(tab)
    wait_until_settled(lab)
    for part, maps in (("the mask", 6), ("Compare with …", 3), ("Softmax", 1)):
        if part == "Softmax":
            go(lab, "Learn")
        if part != "the mask":
            act_and_settle(lab, lab.get_by_role("button", name=part).click)
        assert len(pictures(lab)) == maps, part
        if part != "Softmax":
            act_and_settle(lab, lambda: click_cell(lab, 1, row=5, column=2))
            expect(lab.locator(".answer-line [name=q]")).to_have_value("5")
            expect(lab.locator(".answer-line [name=k]")).to_have_value("2")
        set_control(lab, "seed", str(maps))
        # In the comparison, the seed of the second state.
        tab.wait_for_url(lambda url, maps=maps: f"seed={maps}" in unquote(url))
        opens_the_same(open_page, copied_link(tab, lab), lab)
    go(lab, "Train")
    seed = lab.locator(".st-key-train_knobs").get_by_label("Seed", exact=True)
    seed.fill("1")
    act_and_settle(lab, lambda: seed.press("Enter"))
    tab.wait_for_url(lambda url: state(url).get("train_seed") == ["1"])
    opens_the_same(open_page, copied_link(tab, lab), lab)
    go(lab, "Learn")
    act_and_settle(lab, lab.get_by_role("button", name="Lessons").click)
    act_and_settle(lab, lab.get_by_role("button", name="Skip", exact=True).click)
    opens_the_same(open_page, copied_link(tab, lab), lab)
    go(lab, "Reference")
    set_control(lab, "d_model", "128")
    opens_the_same(open_page, copied_link(tab, lab), lab)
    no_file_is_missing(shell)


def test_cold_page_below_a_prefix_loads_each_file_once(browser: Browser, shell: Shell) -> None:
    context = instrument(browser.new_context(viewport={"width": 390, "height": 844}))
    page, complaints = context.new_page(), list[str]()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda line: complaints.append(f"{line.text} {line.location}") if line.type == "error" else None)
    page.goto(f"{shell.home}/heads?{LINK}")
    lab = page.frame_locator("iframe")
    expect(lab.locator(".figures .js-plotly-plot .xtick text").first).to_be_visible()
    expect(lab.locator("[data-testid=stApp][data-painted]")).to_have_count(1)
    context.close()
    times = Counter(address for address, _ in shell.requests())
    no_file_is_missing(shell)
    assert not complaints
    assert sum("/app/static/" in address for address in times) > 20
    assert {address for address, count in times.items() if count > 1} <= {"/~/+/_stcore/health"}
    assert [address for address in times if not address.startswith("/~/+/")] == ["/heads"]


def test_hub_page_follows_its_space_and_informs_no_other_site(framing_page: Callable[..., Page]) -> None:
    page = framing_page(HUB, f"?{LINK}&__sign=secret", strict=False)
    lab = page.frames[1]
    wait_until_settled(lab)
    lab.locator(".tools .more").click()  # a newcomer's knobs are folded
    set_control(lab, "seed", "7")
    page.wait_for_function("heard.some((message) => message.queryString?.endsWith('&seed=7') && message.hash === '')")
    go(lab, "Heads")
    page.wait_for_function(
        "heard.some((message) => message.queryString?.includes('seed=7') && message.hash === '#/heads')"
    )
    assert "secret" not in str(page.evaluate("heard.filter((message) => message.queryString !== undefined)"))

    # The frame opens with the state of the hub's address, and shows the copied page.
    lab = framing_page(HUB, f"?{LINK}&seed=7#/heads", strict=False).frames[1]
    expect(lab.get_by_role("heading", level=1, name="Heads")).to_be_visible()
    expect(lab.locator(".controls [name=seed]")).to_have_value("7")

    page = framing_page(FRAMED_BY, f"?{LINK}#/heads", strict=False)
    wait_until_settled(page.frames[1])
    expect(page.frames[1].get_by_role("heading", level=1, name="Attention Lab")).to_be_visible()
    assert not page.evaluate("heard.some((message) => message.queryString !== undefined)")
