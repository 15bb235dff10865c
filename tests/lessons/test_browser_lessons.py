"""Lessons in a browser: by keyboard alone, on a phone; announcements, and where progress is stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import act_and_settle, copied, wait_until_settled
from margins import approx
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

Open = Callable[..., Page]
PHONE = {"width": 390, "height": 844}


def progress(page: Page) -> dict[str, str]:
    entries: dict[str, str] = json.loads(page.evaluate("localStorage.getItem('attention-lab-lessons') ?? '{}'"))
    return entries


def test_newcomer_completes_lessons_on_a_phone_by_keyboard(open_page: Open, server: str) -> None:
    page = open_page(server, viewport=PHONE)
    page.get_by_role("link", name="New here? Start with lesson 1").press("Enter")
    wait_until_settled(page)
    status, reply = page.locator(".lesson [role=status]"), page.locator(".lesson .reply")
    expect(page.get_by_role("heading", name="1. One score")).to_be_visible()
    expect(status).to_contain_text("Lesson 1 of 20: One score. What is the score of query “sun” and key “owl”?")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    field = page.get_by_label("What is the score")
    expect(field).to_be_in_viewport()
    no_number = "That is no number: write one with digits, such as 2 or 0.5; got “ten”."
    for typed, reason in (("", "Answer first, or skip this lesson."), ("ten", no_number)):
        field.fill(typed)
        field.press("Enter")
        expect(status).to_have_text(reason)
    field.fill("18")
    field.press("Enter")
    expect(reply).to_contain_text("multiplies the middle 4 by 2")
    expect(status).to_contain_text("Not yet. This multiplies the middle 4 by 2")
    assert "2·4" not in reply.inner_text()
    assert not page.locator(".katex").count()
    expect(page.locator(".lesson td.withheld")).to_have_count(2)
    page.get_by_label("What is the score").fill("10")
    page.keyboard.press("Enter")
    expect(reply).to_contain_text("Yes: 10.")
    expect(reply).to_be_focused()
    expect(status).to_contain_text("Right. It is 10.")
    expect(status).to_contain_text("1 of 20 lessons done.")
    expect(page.locator(".lesson td.withheld")).to_have_count(0)
    expect(page.locator(".lesson td.truth")).to_have_text("10 (the answer)")
    expect(page.locator(".katex").first).to_be_visible()  # the arithmetic is open
    assert (page.get_by_role("link", name="Play with it").get_attribute("href") or "").startswith("./?source=matrices")

    # Skipped lessons do not count as done; the arrow keys move over the map.
    page.get_by_role("button", name="Next: From scores to shares").press("Enter")
    expect(page.get_by_role("heading", name="2. From scores to shares")).to_be_visible()
    expect(page.locator(".lesson legend")).to_be_focused()
    page.get_by_role("button", name="5, From a row to a map").press("Enter")
    expect(page.get_by_role("heading", name="5. From a row to a map")).to_be_visible()
    wait_until_settled(page)
    first = page.get_by_role("gridcell").first
    first.focus()
    for key in ("ArrowRight", *["ArrowDown"] * 4, "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_text("Your cell: moon → owl")).to_be_visible()
    page.get_by_role("button", name="Answer").press("Enter")
    expect(reply).to_contain_text("Yes: “moon” → “owl” (query 4, key 1).")
    wait_until_settled(page)
    assert progress(page) == {"score": "right", "map": "right"}
    assert page.url.endswith("lessons_open=map")

    # A returning visitor finds the progress; the answer is asked for again.
    page.reload()
    wait_until_settled(page)
    expect(page.get_by_role("button", name="1, One score, done")).to_be_visible()
    expect(page.locator(".lesson nav p")).to_have_text("2 of 20 lessons done")
    expect(page.get_by_role("button", name="Answer")).to_be_visible()


def test_patch_is_chosen_on_the_picture_by_keyboard(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/learn?lessons_open=picture", viewport=PHONE, color_scheme="dark")
    cells = page.get_by_role("gridcell")
    expect(cells).to_have_count(25)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator(".lesson table.picture").inner_text().split() == [*"01234", *"01234"], "no number is shown"
    cells.first.focus()
    for key in (*["ArrowDown"] * 3, *["ArrowRight"] * 9, "Enter"):
        page.keyboard.press(key)
    expect(page.get_by_text("Your patch: row 3, column 4")).to_be_visible()
    page.get_by_role("button", name="Answer").press("Enter")
    reply = page.locator(".lesson .reply")
    expect(reply).to_contain_text("Not yet. This patch is empty")
    cells.nth(3 * 5 + 3).click()
    page.get_by_role("button", name="Answer again").click()
    expect(reply).to_contain_text("Yes: “patch 3,3” (key 24).")
    truth = page.locator(".lesson td.truth")
    expect(truth).to_have_count(1)
    assert truth.evaluate("cell => [cell.parentElement.rowIndex - 1, cell.cellIndex - 1]") == [3, 3]
    # Each cell lies on its own part of the picture: a fifth of it, stretched over the cell.
    style = truth.evaluate("cell => [getComputedStyle(cell).backgroundPosition, getComputedStyle(cell).backgroundSize]")
    assert style == ["0px 0px, 75% 75%", "100% 100%, 500% 500%"]
    wait_until_settled(page)
    assert progress(page) == {"picture": "right"}


def test_sketched_row_and_tapped_order_are_compared_with_the_truth(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/learn?lessons_open=share", color_scheme="dark")
    reply = page.locator(".lesson .reply")
    for _ in range(2):
        bars = page.locator(".lesson input[type=range]")
        bars.nth(1).fill("0.6")
        page.get_by_role("button", name="Answer").click()
        expect(reply).to_contain_text("A row of weights sums to 1")
        wait_until_settled(page)
    expect(page.locator(".lesson .compared small")).to_have_text(
        ["it is 0.08", "you said 0.00", "it is 0.08", "you said 0.60", "it is 0.61", "you said 0.00", "it is 0.22", "you said 0.00"]
    )  # fmt: skip
    widths = page.evaluate(
        "[...document.querySelectorAll('.lesson .compared i')].map((bar) => bar.getBoundingClientRect().width)"
    )
    assert widths[3] / widths[4] == approx(0.6 / 0.6103, within=0.04, why="bars are drawn in whole pixels")
    page.get_by_role("button", name="Next: Below zero").click()
    for name in ("sea", "fog", "owl", "sun"):
        page.get_by_role("button", name=name, exact=True).click()
    page.get_by_role("button", name="Answer").click()
    expect(reply).to_contain_text("Yes: sea, fog, owl, sun.")
    wait_until_settled(page)
    assert progress(page) == {"share": "shown", "order": "right"}


def test_teachers_question_hides_its_answer_until_another_browser_answers(
    open_page: Open, server: str, tmp_path: Path
) -> None:
    page = open_page(f"{server}/?text=the+owl+asked+the+moon&heads=1&q=4&k=4", permissions=["clipboard-read", "clipboard-write"])  # fmt: skip
    act_and_settle(page, lambda: page.get_by_role("button", name="Share").click())
    act_and_settle(page, lambda: page.get_by_text("Ask about this").click())
    page.get_by_label("Kind of question").click()
    act_and_settle(page, lambda: page.get_by_role("option", name="What is the chosen number?").click())
    page.get_by_label("The question", exact=True).fill("How much of “moon” goes to “moon”?")
    page.get_by_text("Hide the numbers in question").click()
    act_and_settle(page, lambda: page.get_by_role("button", name="Create the question").click())
    link = copied(page, page.get_by_role("button", name="Copy the link"))
    expect(page.locator(".st-key-copy_ask [role=status]")).to_have_text("Link copied.")
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as a lesson (.md)").click()
    saved.value.save_as(tmp_path / "one.md")

    # Before the other browser answers, no message to it contains the number 0.6305 of the cell.
    other = open_page(f"{server}/learn", viewport=PHONE, color_scheme="dark", fresh=True)
    frames: list[str | bytes] = []

    def keep(frame: str | bytes) -> None:  # Playwright sets attributes on its handlers, which a list's method refuses
        frames.append(frame)

    other.on("websocket", lambda socket: socket.on("framereceived", keep))

    def has_arrived(text: str) -> bool:
        return any(text in (frame if isinstance(frame, str) else frame.decode("latin-1")) for frame in frames)

    other.goto(link)
    wait_until_settled(other)
    expect(other.get_by_role("heading", name="About the weights")).to_be_visible()
    expect(other.locator(".lesson [role=status]")).to_have_text("About the weights. How much of “moon” goes to “moon”?")
    expect(other.locator(".lesson nav")).to_be_hidden()
    expect(other.get_by_role("link", name="Skip, and look in Explore")).to_be_visible()
    assert other.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert has_arrived("goes to")
    assert not has_arrived("0.63")
    field = other.get_by_label("How much")
    field.fill("0.1")
    act_and_settle(other, lambda: field.press("Enter"))
    expect(other.locator(".lesson .reply")).to_contain_text("The right number is larger.")
    assert not has_arrived("0.63")
    other.get_by_label("How much").fill("0,65")
    act_and_settle(other, lambda: other.keyboard.press("Enter"))
    expect(other.locator(".lesson .reply")).to_contain_text("Yes: 0.63")
    expect(other.locator(".lesson td.truth")).to_have_text("0.63 (the answer)")
    assert has_arrived("0.63")

    # Two lessons in a file form a path, whose progress is separate from the Lab's.
    lesson = (tmp_path / "one.md").read_text(encoding="utf-8")
    (tmp_path / "two.md").write_text(lesson + lesson.replace("About the weights", "Once more"), encoding="utf-8")
    act_and_settle(page, lambda: page.goto(f"{server}/learn"))
    page.get_by_text("Open a state or lessons", exact=True).click()
    act_and_settle(
        page, lambda: page.locator("[data-testid=stFileUploader] input").set_input_files(tmp_path / "two.md")
    )
    expect(page.locator(".lesson nav p")).to_have_text("0 of 2 lessons done")
    page.get_by_role("button", name="Skip").click()
    expect(page.get_by_role("heading", name="2. Once more")).to_be_visible()
    wait_until_settled(page)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_student_reads_the_map_and_answers_beside_it_without_scrolling(
    open_page: Open, server: str, width: int, height: int
) -> None:
    state = "text=the+owl+asked+the+moon+and+the+moon+blinked&heads=1"
    page = open_page(f"{server}/?{state}&q=4&k=4", permissions=["clipboard-read", "clipboard-write"])
    act_and_settle(page, lambda: page.get_by_role("button", name="Share").click())
    act_and_settle(page, lambda: page.get_by_text("Ask about this").click())
    act_and_settle(page, lambda: page.get_by_role("button", name="Create the question").click())
    link = copied(page, page.get_by_role("button", name="Copy the link"))
    page.get_by_role("button", name="Preview: the link").click()
    preview = page.frame_locator(".links dialog iframe")
    expect(preview.get_by_text("Which key does “moon” (4) look at most?").first).to_be_visible()
    expect(page.get_by_role("link", name="Open in a tab")).to_have_attribute("href", link)
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.locator(".links iframe")).to_have_count(0)
    student = open_page(
        f"{link}&lock=1", viewport={"width": width, "height": height}, has_touch=width < 500, fresh=True
    )
    question, answer = student.locator(".lesson legend"), student.get_by_role("button", name="Answer")
    expect(question).to_have_text("Which key does “moon” (4) look at most?")
    large = student.locator(".screen .large")
    for part in (question, answer, large, student.locator(".screen .headline")):
        box = part.bounding_box()
        assert box
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= height
    asked, drawn = student.locator(".st-key-asked").bounding_box(), large.bounding_box()
    assert asked
    assert drawn
    if width > 1000:  # beside it
        assert asked["x"] >= drawn["x"] + drawn["width"]
        assert drawn["height"] >= 400
    else:
        assert asked["y"] + asked["height"] <= drawn["y"]
    assert student.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # The row of the query says it; what one looks at on the map does not touch an answer that is begun.
    student.locator(".lesson .chips label").first.click()
    act_and_settle(student, lambda: student.locator(".screen .word").nth(4).click())
    expect(student.locator(".lesson :checked")).to_have_count(1)
    digits = student.locator(".screen .over .digits text").all_text_contents()
    largest = max(range(9), key=lambda k: int(digits[k] or 0))
    student.locator(".lesson .chips label").nth(largest).click()
    act_and_settle(student, answer.click)
    expect(student.locator(".lesson .reply")).to_contain_text("Yes: ")
