"""Teachers' questions: as a link, as a file, in the form of Share; all input is bounded, and none of it is executed."""

from __future__ import annotations

import json
import re
import tracemalloc
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import torch
from conftest import ROOT, set_knobs, state_of_address
from margins import approx
from streamlit.testing.v1 import AppTest
from test_pages import opened, said
from test_path import sent

from attention import AttentionError, Cell, FileError, Trace
from attention.lessons import grading, markdown
from attention.lessons.answers import evaluate
from attention.lessons.lesson import Lesson
from attention.lessons.templates import templates, with_answer
from attention.sources.registry import source_of
from benchmarks.hostile import MARKUP, ODD
from pages.ui.lessons.lesson import LessonsOfTab, context_of
from pages.ui.server.limits import LIMITS
from pages.ui.server.traces import trace_of

PATH = markdown.builtin_lessons()
OWL = {"text": "the owl asked the moon", "heads": "1"}
INDUCTION = {"source": "trained", "task": "induction", "input": "an owl asked the moon", "layer": "1"}
LESSON = """---
title: Who takes?
state: text=the owl asked the moon&heads=1
show: weights
kind: choice
options: owl: a bird | the moon | nobody
question: Who takes most from “moon”?
answer: given("the moon")
---
Rows take.

- right: It takes from itself.
- owl: a bird: Look at its row.
- nobody: Each row sums to 1.
"""


def trace(state: dict[str, str]) -> Trace:
    return trace_of(source_of(state, LIMITS)[0])


def through_a_link(lesson: Lesson) -> Lesson:
    (result,) = markdown.from_link(markdown.to_link(markdown.to_markdown(lesson))).values()
    return result


@pytest.mark.quick
def test_lessons_survive_files_and_links() -> None:
    faults = []
    for lesson in PATH.values():
        linked = through_a_link(lesson)
        if markdown._from_markdown(lesson.name, markdown.to_markdown(lesson)) != lesson:
            faults.append(f"{lesson.name}: its file gives another lesson")
        if not markdown.is_uploaded(linked.name) or replace(linked, name=lesson.name) != lesson:
            faults.append(f"{lesson.name}: its link gives another lesson")
    assert PATH
    assert not faults, "\n".join(faults)


@pytest.mark.quick
def test_concatenated_lesson_files_form_a_path() -> None:
    files = sorted(Path(ROOT, "attention/lessons/path").glob("*.md"))
    # A lesson goes with the feature that brings its source or its answer.
    texts = [path.read_text(encoding="utf-8") for path in files if path.stem.partition("-")[2] in PATH]
    lessons = markdown.read_many("".join(texts).encode())
    assert [lesson.title for lesson in lessons.values()] == [lesson.title for lesson in PATH.values()]
    windows = markdown.read_many(LESSON.replace("\n", "\r\n").encode("utf-8-sig"))
    (lesson,) = windows.values()
    assert lesson.options == ("owl: a bird", "the moon", "nobody")
    assert dict(lesson.replies)["owl: a bird"] == "Look at its row."
    assert set(windows) != set(markdown.read_many(LESSON.encode())), "progress in one file does not count for another"


@pytest.mark.long  # every question of six states
@pytest.mark.parametrize(
    ("state", "cell"),
    [
        (OWL, Cell(0, "weights", 0, 3, 1)),
        (OWL, Cell(0, "scores", 0, 4, 2)),
        ({}, Cell(0, "value", 1, 4, 2)),
        ({**OWL, "mask": "causal", "text2": "a b c"}, Cell(0, "masked_scores", 0, 1, 0)),
        (INDUCTION, Cell(1, "head_output", 0, 7, 3)),
        ({"source": "matrices", "matrix_kind": "scores and V"}, Cell(0, "weights", 0, 3, 1)),
    ],
)  # fmt: skip
def test_every_offered_question_can_be_asked_and_keeps_its_answer(state: dict[str, str], cell: Cell) -> None:
    base = trace(state)
    for label, draft in templates(base, cell, state):
        lesson = replace(draft, question=draft.question or "Which?")
        if not lesson.answer:
            lesson = with_answer(replace(lesson, options=("a", "b"), replies=(("b", "No."),)), {"choice": "a", "number": 2.5}[lesson.kind])  # fmt: skip
        linked = through_a_link(lesson)
        context = context_of(linked)
        assert context.before.layer(cell.layer).matrix("weights", cell.head) == approx(base.layer(cell.layer).matrix("weights", cell.head))  # fmt: skip
        message, truth = grading.lesson_message(linked, context, ()), evaluate(linked.answer, context)
        assert (message["truth"], message["truth_text"], message["reply"], message["stage"]) == (None, "", "", "ask"), (
            label
        )
        assert grading.lesson_message(linked, context, [truth])["right"]
        cells = [value for figure in message["figures"] for row in figure["cells"] for value in row]
        assert (None in cells) == bool(linked.hide), label
        if linked.kind in ("key", "order", "row"):
            (figure,) = message["figures"]
            assert figure["cells"][cell.row - figure["first"]] == [None] * len(figure["columns"])
        # The state does not contain the chosen cell, and the file does not contain the number of a computed answer.
        assert not set(linked.query_before) & {"q", "k", "step", "view"}
        if linked.kind == "number" and "value(" in linked.answer:
            assert str(truth)[:5] not in markdown.to_markdown(linked)


def test_computed_answers_are_right() -> None:
    weights = trace(OWL).layers[0].weights[0]
    by_label = dict(templates(trace(OWL), Cell(0, "weights", 0, 3, 1), OWL))
    cold = trace({**OWL, "temperature": "0.3"}).layers[0].weights[0]
    masked = trace({**OWL, "mask": "causal"}).layers[0].weights[0]
    answers: dict[str, Any] = {
        "Which key has the largest number?": int(weights[3].argmax()),
        "What is the chosen number?": approx(float(weights[3, 1])),
        "More or less, if the temperature is 0.3?": "more" if cold[3, 1] > weights[3, 1] else "less",
        "More or less, if a causal mask hides later tokens?": "more" if masked[3, 1] > weights[3, 1] else "less",
        "Put the keys in order": tuple(weights[3].argsort(descending=True, stable=True).tolist()),
        "My own question: click the chosen cell": (3, 1),
    }
    for label, expected in answers.items():
        lesson = replace(by_label[label], question="Which?")
        assert evaluate(lesson.answer, context_of(through_a_link(lesson))) == expected
    silenced = next(draft for label, draft in templates(trace(INDUCTION), Cell(1, "weights", 0, 7, 3), INDUCTION) if "silenced" in label)  # fmt: skip
    assert evaluate(silenced.answer, context_of(silenced)) == "less"
    early = next(draft for label, draft in templates(trace(OWL), Cell(0, "scores", 0, 3, 1), OWL) if "temperature is 3" in label)  # fmt: skip
    assert evaluate(early.answer, context_of(early)) == "the same"
    assert dict(early.replies)["right"] == "The scores are computed before that."


@pytest.mark.quick
def test_link_obfuscates_its_answer() -> None:
    link = markdown.to_link(LESSON)
    assert "moon" not in link
    assert re.fullmatch(r"[\w-]+", link)
    (lesson,) = markdown.from_link(link).values()
    message = json.dumps(grading.lesson_message(lesson, context_of(lesson), ["nobody"]))
    assert "Each row sums to 1." in message
    assert "It takes from itself" not in message
    assert "given" not in message


BOMB = urlsafe_b64encode(zlib.compress(b"---\n" * 1_000_000, 9)).decode()


@pytest.mark.quick
@pytest.mark.parametrize(
    "link",
    ["x", "eNpNj7EK", markdown.to_link(LESSON)[:-9], "%%%", "ü", "A" * 9000, BOMB, "<script>alert(1)</script>", markdown.to_link("no lesson")],
    ids=str,
)  # fmt: skip
def test_bad_lesson_link_gets_one_sentence_and_loads_nothing(link: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(FileError, match=r"ask for the link again|A file of lessons is Markdown"):
            markdown.from_link(link)
        assert tracemalloc.get_traced_memory()[1] < 2 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.quick
def test_question_too_long_for_a_link_reports_it() -> None:
    noise = torch.randint(33, 126, (9000,), generator=torch.Generator().manual_seed(0)).tolist()
    with pytest.raises(FileError, match=r"at most 8,000 characters in a link; this one has .* save it as a file"):
        markdown.to_link("".join(map(chr, noise)))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "A file of lessons is Markdown"),
        (b"\xff\xfe\x00", "A file of lessons is Markdown"),
        (b"---\n" * 99, "A file of lessons is Markdown"),
        (b" " * 300_000, "at most 256 KB; got 300,000 bytes"),
        (LESSON.encode() * 61, "at most 60 lessons; got 61"),
        ((LESSON + LESSON.replace("title: Who takes?\n", "")).encode(), "The lesson '2' begins with lines .* it lacks title"),
        (LESSON.replace("Who takes?", "x" * 401).encode(), "title of the lesson '1' has at most 400 characters; got 401"),
        (LESSON.replace("heads=1", "x" * 24_001).encode(), "state of the lesson '1' has at most 24,000"),
        (LESSON.replace("show: weights", f"show: {'weights;' * 7}").encode(), "The lesson '1': There are at most 6 parts; got 7"),
        (LESSON.replace("show: weights", f"show: weights {'9' * 5000}").encode(), "at most 400 characters"),
        (LESSON.replace("show: weights", f"show: weights {'9' * 50}").encode(), "The lesson '1': A part is a step"),
        (LESSON.replace("show: weights", "show: eyes").encode(), "The lesson '1': .*eyes"),
        (LESSON.replace('given("the moon")', "__import__('os').system('x')").encode(), "The lesson '1': An answer calls one of argmax_key"),
        (LESSON.replace('given("the moon")', "(" * 200).encode(), "The lesson '1': An answer calls one of"),
        (LESSON.replace('given("the moon")', "given.__globals__").encode(), "The lesson '1': An answer calls one of"),
        (LESSON.replace('given("the moon")', "given([x for x in y])").encode(), "The lesson '1': An answer calls one of"),
        (LESSON.replace('given("the moon")', "value(weights, q=-1, k=0)").encode(), "The lesson '1': An answer calls one of"),
        (LESSON.replace(" | nobody", " | no one").encode(), "“the moon” and “no one” have none"),
        (LESSON.replace(" | nobody", " | the moon").encode(), "2 to 8 different options"),
        (LESSON.replace("nobody", "right").encode(), "No option of the lesson '1' is called “right”"),
        (LESSON.replace("Rows take.", "- nobody: x\n" * 40).encode(), "at most 30 replies; got 43"),
        (LESSON.replace("kind: choice", "kind: &a [*a, *a]").encode(), "is one of cell, key"),
    ],
    ids=str,
)  # fmt: skip
def test_faulty_lesson_file_names_the_lesson_and_the_reason(content: bytes, says: str) -> None:
    with pytest.raises(AttentionError, match=f"^[^\n]*{says}[^\n]*$") as error:
        markdown.read_many(content)
    assert len(str(error.value)) < 600


NUMBERS = ("0", "4", "-1", "99", "1e999", "999999999999999999999999", "1.5", "'x'", "True", "weights")
STATES = ("text=a b c", "layer=x", "layer=-1", "head=99", "layer=9", "seed=inf&mask=<b>", "source=file&file=a:b", "text=", "%00=%00&&&=",
          "source=model&model=/etc", "source=model&model=../../root", "source=matrices&x=1,nan", "source=trained&input=%F0%9F%99%82&task=none")  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("state", STATES)
def test_any_state_gives_a_question_or_a_sentence(state: str) -> None:
    (lesson,) = markdown.read_many(LESSON.replace("text=the owl asked the moon&heads=1", state).encode()).values()
    asks_or_says(lesson)


@pytest.mark.sample(1)
@pytest.mark.parametrize("function", ["argmax_key", "value", "row", "order", "compare", "compare_rows", "compare_said", "cell", "size", "visible", "given"])  # fmt: skip
def test_any_answer_gives_a_question_or_a_sentence(function: str) -> None:
    fits = 0
    for kind in ("cell", "key", "choice", "order", "number", "row"):
        for number in NUMBERS:
            for answer in (f"{function}({number})", f"{function}(weights, {number})", f"{function}(weights, {number}, 1)", f"{function}({number}, {number}, layer=0)"):  # fmt: skip
                text = LESSON.replace("kind: choice", f"kind: {kind}").replace('given("the moon")', answer)
                try:
                    (lesson,) = markdown.read_many(text.encode()).values()
                except FileError:
                    continue
                fits += asks_or_says(lesson)
    assert fits or function in ("compare", "compare_rows", "compare_said", "cell")


@pytest.mark.sample(10)
@pytest.mark.parametrize("piece", [*MARKUP, *ODD], ids=range(len(MARKUP) + len(ODD)))
def test_any_lesson_text_gives_a_question_or_a_sentence(piece: str) -> None:
    lines = LESSON.splitlines(keepends=True)
    for number, line in enumerate(lines):
        key, colon, _ = line.partition(": ")
        for other in (f"{key}{colon}{piece}\n", f"{line.rstrip()} {piece}\n", f"{piece}\n{line}"):
            text = "".join((*lines[:number], other, *lines[number + 1 :]))
            try:
                (lesson,) = markdown.read_many(text.encode()).values()
            except AttentionError as error:
                message = str(error)
                assert len(message) < 900
                continue
            assert not set("\0\x1b\u202e") & set("".join((lesson.title, lesson.text, lesson.question, lesson.state)))
            assert markdown._from_markdown(lesson.name, markdown.to_markdown(lesson)) == lesson
            asks_or_says(lesson)


def asks_or_says(lesson: Lesson) -> bool:
    """Whether a lesson can be asked and answered; otherwise it raises an error of ours."""
    try:
        context = context_of(lesson)
        message = grading.lesson_message(lesson, context, ())
        grading.lesson_message(lesson, context, [evaluate(lesson.answer, context)])
        grading.explained_cell(lesson, context)
    except AttentionError:
        return False
    return message["stage"] == "ask"


@pytest.mark.quick
def test_old_lesson_links_still_open() -> None:
    """The link is never edited: every later version opens it."""
    link = (
        "eNpNjj2OwkAMhXuf4okCLcUg0Y6EqLbgBNRDYphRkjHEhgGJgoPA5TjJJvuDtrTf8_fZOUeWrGWPTRRYaFhXpBZs2BhfbGmRIaVF0IZrjFMnkqeRQ63LBWmU4lE47aMpNSnXHlWUVDHJwZJk9e8j3JBlK_WVjifWMfxnH"
        "Rpq2PXS4XV_jPXX_bmikLVw77FPZ84fkz_UZEZueJ0c-tHssbZfzDchmXK7mw_xj9DjM1QRvRToqVOYYDGnLw_sV7k"
    )
    (lesson,) = markdown.from_link(link).values()
    assert lesson.options == ("the moon", "nobody")
    assert grading.lesson_message(lesson, context_of(lesson), ["the moon"])["reply"] == "It takes from itself."


# -- on pages -----------------------------------------------------------------------------------


def sharing(page: str = "app.py", **link: str) -> AppTest:
    """A page with the question form open."""
    app = opened(page, **link)
    app.session_state["sharing"] = app.session_state["asking"] = True
    return app.run()


def submitted(app: AppTest) -> AppTest:
    next(button for button in app.button if button.label == "Create the question").click()
    return app.run()


def query(app: AppTest) -> dict[str, str]:
    """The query of the link that the question's buttons copy."""
    (link,) = (json.loads(component.proto.json)["ask"] for component in app.get("bidi_component") if component.proto.component_name == "attention_share_buttons" and '"ask"' in component.proto.json and json.loads(component.proto.json)["ask"])  # fmt: skip
    return {key: value for key, (value,) in parse_qs(urlsplit(link).query).items()}


def field(app: AppTest, begins: str) -> Any:
    return next(text_input for text_input in app.text_input if (text_input.key or "").startswith(begins))


@pytest.mark.parametrize("link", [{}, {**OWL, "mask": "causal", "q": "4", "k": "1"}, {**INDUCTION, "q": "7", "k": "3"}], ids=str)  # fmt: skip
def test_teacher_asks_a_computed_question_without_writing_text(link: dict[str, str]) -> None:
    app = submitted(sharing(**link))
    assert not app.exception
    page = opened("pages/learn.py", **query(app))
    assert not page.exception
    assert page.markdown[0].value == "## About the weights"
    message = json.loads(sent(page))["message"]
    assert message["kind"] == "key"
    assert message["question"].startswith("Which key does “")
    assert message["truth"] is None
    assert not page.latex
    (name, _), *later = json.loads(sent(page))["path"]
    assert not later
    assert json.loads(sent(page))["lab"].startswith("./?source=")
    truth = int(trace(link).layer(int(link.get("layer", "0"))).matrix("weights", 0)[int(link.get("q", "0"))].argmax())
    page.session_state["session"].of(LessonsOfTab).guesses[name] = [truth]
    message = json.loads(sent(page.run()))["message"]
    assert (message["right"], message["truth"]) == (True, truth)
    assert page.latex


def test_teacher_asks_with_options_and_locks_the_link() -> None:
    app = sharing(**OWL)
    app.selectbox(key="ask_kind").select("My own question, with options").run()
    assert "A question needs the correct answer and at least one wrong answer" in said(submitted(app))
    fields = {"ask_question": "Who is \"it\"?  ", "ask_option_0": "the | owl", "ask_option_1": "moon: the bright", "ask_reply_0": "Yes, it is."}  # fmt: skip
    for begins, words in fields.items():
        field(app, begins).input(words)
    assert "“moon: the bright” has none" in said(submitted(app)).replace("\\", "")
    field(app, "ask_reply_1").input("No, it is not.")
    assert "An answer cannot contain |" in said(submitted(app)).replace("\\", "")
    field(app, "ask_option_0").input("the 'owl'")
    app.toggle(key="ask_locked").set_value(True)
    app.text_area(key="ask_text").set_value("Read <b>this</b>\nfirst.")
    link = query(submitted(app))
    assert link["lock"] == "1"
    page = opened("pages/learn.py", **link)
    assert not page.exception
    assert not page.selectbox
    assert page.markdown[1].value == r"Read \<b\>this\</b\> first."
    data = json.loads(sent(page))
    assert data["message"]["options"] == ["moon: the bright", "the 'owl'"], "in the order of the alphabet"
    assert data["message"]["question"] == 'Who is "it"?'
    assert data["lab"].endswith("&lock=1")
    page.session_state["session"].of(LessonsOfTab).guesses[data["name"]] = ["moon: the bright"]
    message = json.loads(sent(page.run()))["message"]
    assert (message["stage"], message["reply"], message["truth"]) == ("again", "No, it is not.", None)
    page.session_state["session"].of(LessonsOfTab).guesses[data["name"]] = ["moon: the bright", "the 'owl'"]
    assert json.loads(sent(page.run()))["message"]["reply"] == "Yes, it is."


def test_teacher_asks_for_a_number_or_the_chosen_cell() -> None:
    app = sharing(**OWL, q="4", k="1")
    app.selectbox(key="ask_kind").select("My own question, with a number").run()
    field(app, "ask_question").input("How many rows?")
    assert "A number question needs the correct number; got none" in said(submitted(app))
    app.number_input(key="ask_number").set_value(5)
    (lesson,) = markdown.from_link(query(submitted(app))["ask"]).values()
    assert (lesson.answer, lesson.tolerance) == ("given(5.0)", 0)
    app.selectbox(key="ask_kind").select("My own question: click the chosen cell").run()
    assert "A question needs a text; got none" in said(submitted(app))
    field(app, "ask_question My own question: click").input("Where does “moon” take from “owl”?")
    link = query(submitted(app))
    (lesson,) = markdown.from_link(link["ask"]).values()
    assert lesson.answer == "given(4, 1)"
    assert "'q'" not in str(lesson.query_before)


@pytest.mark.parametrize("page", ["pages/heads.py", "app.py?explore_mask=true"])
def test_other_pages_with_the_cell_can_ask_too(page: str) -> None:
    app = submitted(sharing(page, **OWL, mask="causal", q="1"))
    assert not app.exception
    (lesson,) = markdown.from_link(query(app)["ask"]).values()
    assert lesson.question == "Which key does “owl” look at most?"
    assert lesson.query_before["mask"] == "causal"


def test_question_stands_beside_the_maps_of_its_own_state() -> None:
    link = query(submitted(sharing(**OWL, mask="causal", q="4", k="1")))
    page = opened("app.py", **link)
    assert not page.exception
    data = json.loads(sent(page))
    message = data["message"]
    assert (message["question"], message["figures"], message["truth"]) == (
        "Which key does “moon” look at most?",
        [],
        None,
    )
    assert "chosen" not in message, "a click on the map would begin the answer anew"
    assert not [button for button in page.button if button.key == "asked_state"]
    set_knobs(page, temperature="0.3")
    assert json.loads(sent(page))["message"] == message, "the question keeps its state"
    page.button(key="asked_state").click().run()
    assert state_of_address(page) == {key: text for key, text in link.items() if key != "source"}
    page.session_state["session"].of(LessonsOfTab).guesses[data["name"]] = [4]
    message = json.loads(sent(page.run()))["message"]
    assert (message["right"], message["truth_text"]) == (True, "“moon” (key 4)")
    page.button(key="asked_close").click().run()
    assert "ask" not in state_of_address(page)
    assert not [one for one in page.get("bidi_component") if one.proto.component_name == "attention_lesson"]


def test_cell_in_question_is_the_chosen_one_of_the_large_map() -> None:
    lesson = replace(markdown._from_markdown("x", LESSON), kind="cell", options=(), replies=(), answer="given(4, 1)")
    page = opened(
        "app.py", **lesson.query_before, ask=markdown.to_link(markdown.to_markdown(lesson)), q="3", k="2", lock="1"
    )
    assert not page.exception
    assert json.loads(sent(page))["message"]["chosen"] == [3, 2]
    assert not page.button, "a locked page does not close the question"


@pytest.mark.parametrize("page", ["pages/learn.py", "app.py?compare=1", "pages/learn.py?chapter=softmax"])
def test_page_without_cells_asks_nothing(page: str) -> None:
    assert not [widget for widget in sharing(page).selectbox if widget.key == "ask_kind"]


def test_state_that_no_link_holds_cannot_be_asked() -> None:
    app = sharing(source="matrices", matrix_kind="Q, K and V", query=",".join(["0.123456789"] * 60), key=",".join(["1"] * 60), value="1,2")  # fmt: skip
    assert not app.exception
    assert "A question needs a state that fits into its link" in said(app).replace("\\", "")
    assert not [selectbox for selectbox in app.selectbox if selectbox.key == "ask_kind"]


def upload(app: AppTest, content: str, name: str = "mine.md") -> AppTest:
    number = app.session_state["session"].state_files
    app.file_uploader(key=f"open_state_{number}").upload(name, content.encode(), "text/markdown").run()
    return app


def test_lesson_file_becomes_a_path() -> None:
    app = upload(opened("pages/learn.py"), LESSON + markdown.to_markdown(PATH["mix"]))
    assert not app.exception
    assert app.markdown[0].value == "## 1. Who takes?"
    data = json.loads(sent(app))
    assert [title for _, title in data["path"]] == ["Who takes?", PATH["mix"].title]
    assert state_of_address(app)["lessons_open"] == data["name"]
    assert any("“mine.md”" in caption.value.replace("\\", "") for caption in app.caption)
    assert set_knobs(app, lessons_open=data["path"][1][0]).markdown[0].value.startswith("## 2. ")
    app.button(key="lessons_path").click().run()
    assert app.markdown[0].value == "## 1. One score"
    assert len(json.loads(sent(app))["path"]) == len(PATH)


def test_broken_lesson_file_gets_one_sentence_and_loses_nothing() -> None:
    app = upload(opened("pages/learn.py"), LESSON.replace("kind: choice", "kind: ![](http://x/y.png)"))
    assert not app.exception
    assert r"\!\[\]\(http" in app.error[0].value
    assert app.markdown[0].value == "## 1. One score"
    lost = opened("pages/learn.py", lessons_open="0123abcd-2")
    assert "a lesson from a file that is not here" in said(lost)
    bad = opened("pages/learn.py", ask="nonsense")
    assert "ask for the link again" in said(bad)
    assert bad.markdown[0].value == "## 1. One score"


@pytest.mark.parametrize("change", [
    lambda text: text.replace("text=the owl asked the moon", "source=model&model=/etc"),
    lambda text: text.replace("show: weights", "show: weights 77"),
    lambda text: text.replace("show: weights", "show: weights\nexplain: weights 88"),
    lambda text: text.replace("Who takes?", "<script>alert(1)</script> [a](javascript:b) $x$ :smile:"),
    lambda text: text.replace("heads=1", "heads=1&temperature=hot"),
])  # fmt: skip
def test_text_of_a_strangers_link_is_shown_as_plain_text(change: Callable[[str], str]) -> None:
    page = opened("pages/learn.py", ask=markdown.to_link(change(LESSON)))
    assert not page.exception
    (name, _), *_ = json.loads(sent(page))["path"]
    page.session_state["session"].of(LessonsOfTab).guesses[name] = ["the moon"]
    assert not page.run().exception
    for element in (*page.markdown, *page.error, *page.info):
        assert not re.search(r"(?<!\\)[<\[$]", element.value)
