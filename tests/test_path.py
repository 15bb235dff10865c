"""The path of lessons: every answer is right by a few lines of its own, and is nowhere before somebody has answered."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache
from itertools import permutations
from typing import Any

import pytest
import torch
from conftest import ROOT
from streamlit.testing.v1 import AppTest
from test_pages import opened

from attention import FileError, Model, Trained, explain
from attention.lessons import asking, files
from attention.lessons.answers import FUNCTIONS, Seen, worked_out
from attention.lessons.kinds import KINDS, reply_to
from attention.lessons.lesson import MOST_WORDS, Lesson
from pages.ui.server.traces import context_of

PATH = files.path()
WORDS = "an owl asked the moon"
COPPER = "The quiet harbor watched the copper moon. The quiet harbor watched the"


@cache
def seen(name: str) -> Seen:
    found = PATH[name]
    for model in re.findall(r"&model=([\w.-]+)", found.state):
        if not (ROOT / "models" / model).is_dir():
            pytest.skip(f"models/{model} is not here: make models ALL=1")
    return context_of(found)


def softmax(*scores: float) -> list[float]:
    powers = [math.exp(one) for one in scores]
    return [one / sum(powers) for one in powers]


def rows(name: str) -> torch.Tensor:
    """The scaled scores of a lesson, worked out from its Q and K."""
    layer = seen(name).after.layers[0]
    query, key = layer["query"][0], layer["key"][0]
    return query @ key.T / math.sqrt(query.shape[1])


def says(*interventions: str) -> float:
    from attention.formula.intervention import read

    changes = read(";".join(interventions))
    (said,) = Model("SmolLM2-135M-Instruct", COPPER, predict=(12,), interventions=changes).trace().predictions
    return dict(zip(said.tokens, said.probabilities, strict=True))["·copper"]


def silenced() -> float:
    """The weight on what came after the same word, in a model whose first layer gives zeros."""
    from attention.training.network import forward

    trained = Trained("induction", text=WORDS)
    design = trained.plan.design
    batch = trained.plan.task.posed(trained.example.ids, design)
    _, kept = forward(trained.snapshot().parameters, design, batch, silent={("layer 0", 0)})
    return float(kept["layer 1"]["weights"][0, 0, 7, 3])


# By name of the lesson; nothing here asks the functions that answers are made of.
RIGHT: dict[str, Callable[[], Any]] = {
    "score": lambda: 2 * 2 + 0 * 4 + 2 * 3,
    "share": lambda: softmax(0, 0, 2, 1),
    "order": lambda: [1, 3, 2, 0],
    "mix": lambda: sum(weight * v for weight, v in zip(softmax(math.log(3), 0, 0, 0), (6, 2, 4, 0), strict=True)),
    "map": lambda: [4, 1],
    "temperature": lambda: ["less", "more"][softmax(*rows("temperature")[2] / 0.3)[2] > softmax(*rows("temperature")[2])[2]],
    "mask": lambda: ["less", "more"][softmax(*rows("mask")[1, :2])[0] > softmax(*rows("mask")[1])[0]],
    "positions": lambda: ["different", "the same"][torch.allclose(rows("positions")[0], rows("positions")[3])],
    "heads": lambda: 8 // 4,
    "reverse": lambda: 11 - 2,
    "lookup": lambda: [entry[0] for entry in Trained("lookup").example.memory].index("k"),
    "previous": lambda: 7 - 1,
    "stripe": lambda: WORDS.split().index("asked") + 1,
    "break": lambda: ["less", "more"][silenced() > 0.99],
    "previous-real": lambda: 3 - 1,
    "induction-real": lambda: COPPER.split().index("copper"),
    "silence": lambda: ["less", "more"][says("18.6.zero", "17.3.zero", "17.4.zero", "17.5.zero") > says()],
}  # fmt: skip


def wrong(found: Lesson, truth: Any) -> list[Any]:
    """Every wrong answer to a lesson, or one of each kind where there are endlessly many."""
    n = len(seen(found.name).after.layer(seen(found.name).layer).key_tokens)
    match found.kind:
        case "choice":
            every: list[Any] = list(found.options)
        case "key":
            every = list(range(n))
        case "cell":
            every = [(q, k) for q in range(n) for k in range(n)]
        case "order":
            every = list(permutations(range(n)))
        case "number":
            every = [
                truth - 1000,
                truth - 0.4,
                truth + 0.4,
                truth + 1000,
                *(float(to) for to, _ in found.replies if to.isdigit()),
            ]
        case _:
            every = [(0.25,) * 4, (0.7, 0.1, 0.1, 0.1), (0.0, 0.0, 1.0, 0.0), (1.0, 1.0, 1.0, 1.0)]
    return [one for one in every if not KINDS[found.kind].right(one, truth, found.tolerance)]


def test_the_path_has_every_kind_of_question_and_ends() -> None:
    assert {one.kind for one in PATH.values()} == set(KINDS)
    assert next(iter(PATH)) == "score"
    assert set(RIGHT) <= set(PATH), "whose truth was worked out by other means"
    assert [one.next for one in PATH.values()] == [*list(PATH)[1:], ""]


@pytest.mark.slow
@pytest.mark.parametrize("name", PATH)
def test_lesson_is_short_right_and_replies_to_everything(name: str) -> None:
    found, about = PATH[name], seen(name)
    assert len(found.text.split()) <= MOST_WORDS
    assert found.question.count("?") + found.question.count(".") + found.question.count(":") <= 3
    truth = worked_out(found.answer, about)
    if name in RIGHT:
        right = RIGHT[name]()
        assert truth == (pytest.approx(right, abs=1e-5) if not isinstance(truth, str) else right)
        assert found.kind not in ("cell", "order") or list(truth) == right
    options = wrong(found, truth)
    replies = [reply_to(found.kind, one, truth, False, found.replies) for one in options]
    assert all(replies)
    assert len(set(replies)) >= min(len(options), 2) or found.kind == "choice"
    assert {*replies, reply_to(found.kind, truth, truth, True, found.replies)} == {words for _, words in found.replies}
    if (cell := asking.cell_of(found, about)) is not None:
        assert explain(about.after, cell.step, cell.layer, cell.head, cell.row, cell.column).words


@pytest.mark.slow
@pytest.mark.parametrize("name", PATH)
def test_nothing_tells_the_answer_before_there_is_one(name: str) -> None:
    found, about = PATH[name], seen(name)
    truth = worked_out(found.answer, about)
    before = [asking.told(found, about, ()), asking.told(found, about, wrong(found, truth)[:1])]
    for message in before:
        assert message["truth"] is None
        assert not message["said"]
        assert message["stage"] in ("ask", "again")
        assert "marks" not in str(message["figures"])
        assert reply_to(found.kind, truth, truth, True, found.replies) not in message["reply"]
    assert before[0]["figures"] == before[1]["figures"]
    done = asking.told(found, about, [truth])
    assert done["stage"] == "done"
    assert done["right"]
    # What comes with the answer was neither shown nor hinted at: those cells were empty, or those maps not there.
    for figure, whole in zip(before[0]["figures"], done["figures"], strict=False):
        shown = [cell for row in figure["cells"] for cell in row if cell]
        kept_back = sum(cell is None for row in figure["cells"] for cell in row)
        assert kept_back or figure["cells"] == whole["cells"]
        assert len(shown) + kept_back == sum(map(len, whole["cells"]))
    assert found.hide or found.turn or found.kind == "cell"
    if isinstance(truth, tuple | int) and found.hide and found.kind != "number":
        (part, *_) = found.hide
        assert all(None in row for figure in before[0]["figures"] if figure["step"] == part.step for i, row in enumerate(figure["cells"]) if i + figure["first"] == part.row)  # fmt: skip
    if found.turn:
        assert about.after is not about.before
        assert len(done["figures"]) == 2 * len(before[0]["figures"])
    twice = asking.told(found, about, wrong(found, truth)[:1] * 2)
    assert (twice["stage"], twice["right"]) == ("done", False)
    assert twice["truth"] == done["truth"]


def sent(app: AppTest) -> str:
    return next(one.proto.json for one in app.get("bidi_component") if one.proto.component_name == "attention_lesson")


def test_the_page_sends_what_is_asked_then_what_is_true() -> None:
    app = opened("pages/lessons.py", lessons_open="mix")
    assert not app.exception
    assert app.markdown[0].value.endswith("What a weight brings")
    assert '"truth":null' in sent(app).replace(" ", "")
    assert "head_output" in sent(app)
    assert not app.latex
    app.session_state["session"].guesses["mix"] = [12.0]
    assert "adds the values as they are" in sent(app.run())
    assert not app.latex
    app.session_state["session"].guesses["mix"] = [12.0, 3.0]
    assert "It is not what" not in sent(app.run())
    assert '"right":false' in sent(app).replace(" ", "")
    assert "./?source=matrices" in sent(app)
    assert app.latex


def test_a_model_that_learns_here_is_watched_after_the_answer() -> None:
    app = opened("pages/lessons.py", lessons_open="stripe")
    assert "./training" not in sent(app)
    app.session_state["session"].guesses["stripe"] = [3]
    assert "./training?train_task=induction&train_seed=0&train_induction_own=an+owl+asked+the+moon" in sent(app.run())
    app = opened("pages/lessons.py", lessons_open="map")
    app.session_state["session"].guesses["map"] = [(4, 1)]
    message = sent(app.run())
    assert "./training" not in message
    assert "“moon” → “owl” (query 4, key 1)" in json.loads(message)["message"]["said"]


def test_answer_of_a_silenced_model_breaks_at_its_stripe() -> None:
    found, about = PATH["break"], seen("break")
    before, after = (one for one in asking.told(found, about, ["less"])["figures"] if one["step"] == "said")
    assert (before["rows"], before["columns"][0]) == (["asked"], "the")
    assert after["columns"][0] == "an" != WORDS.split()[3]
    app = opened("app.py", **found.link_turned, q="7", k="3")
    assert not app.exception
    assert any("“the” 0.99" in one.value for one in app.markdown)  # and not what is said at the first word, which stays


@pytest.mark.parametrize(
    "expression",
    ["__import__('os').getcwd()", "value(weights, q=0, k=0).__class__", "value(weights, q=99, k=0)", "row(weights)", "1 + 1",
     "argmax_key(nothing, q=0)", "value(weights, **{'q': 0})", "value(open('x'), 0, 0)", "(" * 5000, ""],
)  # fmt: skip
def test_answer_is_only_a_function_of_the_table(expression: str) -> None:
    with pytest.raises(FileError, match="An answer is one of argmax_key, "):
        worked_out(expression, seen("map"))
    assert all(one.__doc__ for one in FUNCTIONS.values())


GOOD = "---\ntitle: T\nstate: text=a b\nshow: weights\nkind: key\nquestion: Q?\nanswer: argmax_key(weights, q=0)\n---\nText.\n- right: Yes.\n"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("title: T\n", "", "it lacks title: add that"),
        ("kind: key", "kind: riddle", "is one of cell, key, choice, order, number, row; got 'riddle'"),
        ("show: weights", "show: weights three", "a step, and its row and column"),
        ("show: weights", "colour: red", "is one of title, state, "),
        ("Text.", "word " * 61, "at most 60 words; got 61"),
        ("- right: Yes.", "- right", "what it replies to, a colon and a sentence"),
        ("show: weights", "show: weights\ntolerance: some", "is a number; got 'some'"),
        ("---\n", "", "between two lines of ---"),
    ],
)
def test_a_file_that_is_no_lesson_says_what_it_lacks(old: str, new: str, says: str) -> None:
    assert files.read("one", GOOD).title == "T"
    with pytest.raises(FileError, match=re.escape(says)):
        files.read("one", GOOD.replace(old, new, 2))


def test_lessons_in_a_circle_are_no_path() -> None:
    one = files.read("one", GOOD.replace("title: T", "title: T\nnext: two"))
    two = files.read("two", GOOD.replace("title: T", "title: T\nnext: one"))
    with pytest.raises(FileError, match="they make no path"):
        files.in_order([one, two])
