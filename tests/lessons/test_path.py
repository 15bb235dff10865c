"""The path of lessons: every answer is confirmed by independent code, and hidden until the reader has answered."""

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
from margins import approx
from streamlit.testing.v1 import AppTest
from test_pages import opened

from attention import FileError, Model, explain
from attention.lessons import grading
from attention.lessons.answers import QuestionContext, evaluate, functions
from attention.lessons.lesson import KINDS, MAX_WORDS, Lesson, select_reply
from attention.lessons.markdown import _from_markdown, builtin_lessons, read_many
from attention.training import Trained
from pages.ui.lessons.lesson import LessonsOfTab, context_of

PATH = builtin_lessons()
WORDS = "an owl asked the moon"
COPPER = "The quiet harbor watched the copper moon. The quiet harbor watched the"


@cache
def lesson_context(name: str) -> QuestionContext:
    lesson = PATH[name]
    for model in re.findall(r"&model=([\w.-]+)", lesson.state):
        if not (ROOT / "models" / model).is_dir():
            pytest.skip(f"models/{model} is missing: run make models ALL=1")
    return context_of(lesson)


def softmax(*scores: float) -> list[float]:
    powers = [math.exp(score) for score in scores]
    return [power / sum(powers) for power in powers]


def rows(name: str) -> torch.Tensor:
    """The scaled scores of a lesson, computed from its Q and K."""
    layer = lesson_context(name).after.layers[0]
    query, key = layer["query"][0], layer["key"][0]
    return query @ key.T / math.sqrt(query.shape[1])


def copper_probability(*interventions: str) -> float:
    from attention.patching.intervention import parse_codes

    changes = parse_codes(";".join(interventions))
    (prediction,) = Model("SmolLM2-135M-Instruct", COPPER, predict=(12,), interventions=changes).trace().predictions
    return dict(zip(prediction.tokens, prediction.probabilities, strict=True))["·copper"]


def ablated_weight() -> float:
    """The weight on the token after the same word, in a model whose first layer is ablated."""
    from attention.training.network import forward

    trained = Trained("induction", text=WORDS)
    design = trained.plan.design
    batch = trained.plan.task.posed(trained.example.ids, design)
    _, recorded = forward(trained.snapshot().parameters, design, batch, ablated={("layer 0", 0)})
    return float(recorded["layer 1"]["weights"][0, 0, 7, 3])


def largest_written() -> str:
    """The layer whose output, through W_O, the frozen final norm and the answer matrix, adds most to the right answer."""
    trained = Trained("induction", text=WORDS)
    trace, p = trained.trace(), trained.snapshot().parameters
    outputs = {layer.name: (layer.weights @ layer.value)[0, 7] @ p[f"{layer.name} w_o"] for layer in trace.layers}
    residual = p["token"][trained.example.ids[0, 7]] + sum(outputs.values())
    answer = p["end scale"] * p["answer"][:, trained.example.answers.index("the")]
    deviation = residual.var(unbiased=False).sqrt()
    effects = {name: float((output - output.mean()) @ answer / deviation) for name, output in outputs.items()}
    assert effects["layer 1"] == approx(11.35, step=0.01)
    assert effects["layer 0"] == approx(0.785, step=0.01)
    return max(effects, key=lambda name: effects[name])


def ring_weight(control: str) -> float:
    """The weight of the word "ring" on the patch with the ring, in a model of the task shapes, by its training functions alone."""
    from attention.training import train
    from attention.training.network import forward

    *_, last = train("shapes", control=control, every=1000)
    trained = Trained("shapes", text="red circle 0,1; red ring 3,3", control=control)
    batch = trained.plan.task.posed(trained.example.ids, trained.plan.design)
    return float(forward(last.parameters, last.design, batch)[1]["layer 0"]["weights"][0, 0, 5, 6 + 3 * 5 + 3])


# By name of the lesson; independent of the functions that answers use.
TRUTHS: dict[str, Callable[[], Any]] = {
    "score": lambda: 2 * 2 + 0 * 4 + 2 * 3,
    "share": lambda: softmax(0, 0, 2, 1),
    "order": lambda: [1, 3, 2, 0],
    "mix": lambda: sum(weight * v for weight, v in zip(softmax(math.log(3), 0, 0, 0), (6, 2, 4, 0), strict=True)),
    "map": lambda: [4, 1],
    "temperature": lambda: ["less", "more"][softmax(*rows("temperature")[2] / 0.3)[2] > softmax(*rows("temperature")[2])[2]],
    "mask": lambda: ["less", "more"][softmax(*rows("mask")[1, :2])[0] > softmax(*rows("mask")[1])[0]],
    "positions": lambda: ["different", "the same"][(rows("positions")[0] == approx(rows("positions")[3]))],
    "heads": lambda: 8 // 4,
    "reverse": lambda: 11 - 2,
    "lookup": lambda: [entry[0] for entry in Trained("lookup").example.memory].index("k"),
    "previous": lambda: 7 - 1,
    "stripe": lambda: WORDS.split().index("asked") + 1,
    "break": lambda: ["less", "more"][ablated_weight() > 0.99],
    "writes": largest_written,
    "previous-real": lambda: 3 - 1,
    "induction-real": lambda: COPPER.split().index("copper"),
    "picture": lambda: 6 + 3 * 5 + 3,  # after six words, row 3 and column 3 of five columns
    "grey": lambda: ["less", "more"][ring_weight("grey pictures") > ring_weight("")],
    "silence": lambda: ["less", "more"][copper_probability("18.6.zero", "17.3.zero", "17.4.zero", "17.5.zero") > copper_probability()],
}  # fmt: skip


def wrong_answers(lesson: Lesson, truth: Any) -> list[Any]:
    """Every wrong answer to a lesson, or one of each kind where they are infinitely many."""
    n = len(lesson_context(lesson.name).after.layer(lesson_context(lesson.name).layer).key_tokens)
    match lesson.kind:
        case "choice":
            answers: list[Any] = list(lesson.options)
        case "key":
            answers = list(range(n))
        case "cell":
            answers = [(q, k) for q in range(n) for k in range(n)]
        case "order":
            answers = list(permutations(range(n)))
        case "number":
            answers = [
                truth - 1000,
                truth - 0.4,
                truth + 0.4,
                truth + 1000,
                *(float(to) for to, _ in lesson.replies if to.isdigit()),
            ]
        case _:
            answers = [(0.25,) * 4, (0.7, 0.1, 0.1, 0.1), (0.0, 0.0, 1.0, 0.0), (1.0, 1.0, 1.0, 1.0)]
    return [answer for answer in answers if not KINDS[lesson.kind].is_right(answer, truth, lesson.tolerance)]


def test_path_has_every_kind_of_question_and_ends() -> None:
    assert {lesson.kind for lesson in PATH.values()} == set(KINDS)
    assert next(iter(PATH)) == "score"
    assert set(TRUTHS) <= set(PATH), "every independent answer belongs to a lesson"


@pytest.mark.parametrize("name", PATH)
def test_lesson_is_short_right_and_replies_to_everything(name: str) -> None:
    lesson, context = PATH[name], lesson_context(name)
    assert len(lesson.text.split()) <= MAX_WORDS
    assert lesson.question.count("?") + lesson.question.count(".") + lesson.question.count(":") <= 3
    truth = evaluate(lesson.answer, context)
    if name in TRUTHS:
        expected = TRUTHS[name]()
        assert truth == (approx(expected, scale=1) if not isinstance(truth, str) else expected)
        assert lesson.kind not in ("cell", "order") or list(truth) == expected
    options = wrong_answers(lesson, truth)
    replies = [select_reply(lesson.kind, option, truth, False, lesson.replies) for option in options]
    assert all(replies)
    assert len(set(replies)) >= min(len(options), 2) or lesson.kind == "choice"
    assert {*replies, select_reply(lesson.kind, truth, truth, True, lesson.replies)} == {
        words for _, words in lesson.replies
    }
    if (cell := grading.explained_cell(lesson, context)) is not None:
        assert explain(context.after, cell.step, cell.layer, cell.head, cell.row, cell.column).words


@pytest.mark.parametrize("name", PATH)
def test_lesson_hides_its_answer_until_the_reader_answers(name: str) -> None:
    lesson, context = PATH[name], lesson_context(name)
    truth = evaluate(lesson.answer, context)
    hidden = [
        grading.lesson_message(lesson, context, ()),
        grading.lesson_message(lesson, context, wrong_answers(lesson, truth)[:1]),
    ]
    for message in hidden:
        assert message["truth"] is None
        assert not message["truth_text"]
        assert message["stage"] in ("ask", "again")
        assert "marks" not in str(message["figures"])
        assert select_reply(lesson.kind, truth, truth, True, lesson.replies) not in message["reply"]
    assert hidden[0]["figures"] == hidden[1]["figures"]
    done = grading.lesson_message(lesson, context, [truth])
    assert done["stage"] == "done"
    assert done["right"]
    # The revealed values were neither shown nor hinted at before: their cells were empty, or their maps missing.
    for figure, revealed in zip(hidden[0]["figures"], done["figures"], strict=False):
        visible = [cell for row in figure["cells"] for cell in row if cell]
        empty = sum(cell is None for row in figure["cells"] for cell in row)
        assert empty or figure["cells"] == revealed["cells"]
        assert len(visible) + empty == sum(map(len, revealed["cells"]))
    assert lesson.hide or lesson.turn or lesson.kind == "cell"
    if isinstance(truth, tuple | int) and lesson.hide and lesson.kind != "number":
        (part, *_) = lesson.hide
        assert all(None in row for figure in hidden[0]["figures"] if figure["step"] == part.step for i, row in enumerate(figure["cells"]) if i + figure["first"] == part.row)  # fmt: skip
    if lesson.turn:
        assert context.after is not context.before
        assert len(done["figures"]) == 2 * len(hidden[0]["figures"])
    second_guess = grading.lesson_message(lesson, context, wrong_answers(lesson, truth)[:1] * 2)
    assert (second_guess["stage"], second_guess["right"]) == ("done", False)
    assert second_guess["truth"] == done["truth"]


def test_picture_of_a_lesson_has_each_patch_at_its_place() -> None:
    message = grading.lesson_message(PATH["picture"], lesson_context("picture"), ())
    (figure,) = message["figures"]
    assert figure["picture"]["columns"] == [[6 + 5 * row + column for column in range(5)] for row in range(5)]
    assert figure["picture"]["source"].startswith("data:image/png;base64,")
    assert figure["cells"] == [[None] * 31], "the picture is shown, and no number"
    before, after = grading.lesson_message(PATH["grey"], lesson_context("grey"), ["less"])["figures"]
    assert before["picture"]["source"] != after["picture"]["source"], "grey is what the model saw"
    assert all(
        figure["picture"] is None
        for figure in grading.lesson_message(PATH["map"], lesson_context("map"), ())["figures"]
    )


def sent(app: AppTest) -> str:
    return next(
        component.proto.json
        for component in app.get("bidi_component")
        if component.proto.component_name == "attention_lesson"
    )


def test_page_sends_the_question_first_and_the_truth_later() -> None:
    app = opened("pages/learn.py", lessons_open="mix")
    assert not app.exception
    assert app.markdown[0].value.endswith("What a weight does")
    assert '"truth":null' in sent(app).replace(" ", "")
    assert "head_output" in sent(app)
    assert not app.latex
    app.session_state["session"].of(LessonsOfTab).guesses["mix"] = [12.0]
    assert "adds the values without weights" in sent(app.run())
    assert not app.latex
    app.session_state["session"].of(LessonsOfTab).guesses["mix"] = [12.0, 3.0]
    assert "It is not what" not in sent(app.run())
    assert '"right":false' in sent(app).replace(" ", "")
    assert "./?source=matrices" in sent(app)
    assert app.latex


def test_lesson_training_is_watched_after_the_answer() -> None:
    app = opened("pages/learn.py", lessons_open="stripe")
    assert "./training" not in sent(app)
    app.session_state["session"].of(LessonsOfTab).guesses["stripe"] = [3]
    assert "./training?train_task=induction&train_seed=0&train_induction_input=an+owl+asked+the+moon" in sent(app.run())
    app = opened("pages/learn.py", lessons_open="map")
    app.session_state["session"].of(LessonsOfTab).guesses["map"] = [(4, 1)]
    message = sent(app.run())
    assert "./training" not in message
    assert "“moon” → “owl” (query 4, key 1)" in json.loads(message)["message"]["truth_text"]


def test_lesson_on_an_ablated_model_names_its_stripe() -> None:
    lesson, context = PATH["break"], lesson_context("break")
    first, second = (
        figure for figure in grading.lesson_message(lesson, context, ["less"])["figures"] if figure["step"] == "said"
    )
    assert (first["rows"], first["columns"][0]) == (["asked"], "the")
    assert second["columns"][0] == "an" != WORDS.split()[3]
    app = opened("app.py", **lesson.query_after, q="7", k="3")
    assert not app.exception
    assert any(
        "“the” 0.99" in markdown.value for markdown in app.markdown
    )  # not the prediction at the first word, which does not change


@pytest.mark.quick
@pytest.mark.parametrize(
    "expression",
    ["__import__('os').getcwd()", "value(weights, q=0, k=0).__class__", "value(weights, q=99, k=0)", "row(weights)", "1 + 1",
     "argmax_key(nothing, q=0)", "value(weights, **{'q': 0})", "value(open('x'), 0, 0)", "(" * 5000, ""],
)  # fmt: skip
def test_answer_calls_only_functions_of_its_table(expression: str) -> None:
    with pytest.raises(FileError, match="An answer calls one of argmax_key, "):
        evaluate(expression, lesson_context("map"))
    assert all(function.__doc__ for function in functions().values())


GOOD = "---\ntitle: T\nstate: text=a b\nshow: weights\nkind: key\nquestion: Q?\nanswer: argmax_key(weights, q=0)\n---\nText.\n- right: Yes.\n"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("title: T\n", "", "it lacks title: add that"),
        ("kind: key", "kind: riddle", "is one of cell, key, choice, order, number, row; got 'riddle'"),
        ("show: weights", "show: weights three", "a step, optionally followed by a row and a column"),
        ("show: weights", "colour: red", "is one of title, state, "),
        ("Text.", "word " * 61, "at most 60 words; got 61"),
        ("- right: Yes.", "- right", "a condition, a colon and a sentence"),
        ("show: weights", "show: weights\ntolerance: some", "is a number; got 'some'"),
        ("---\n", "", "between two lines of ---"),
    ],
)
def test_invalid_lesson_file_names_what_is_missing(old: str, new: str, says: str) -> None:
    assert _from_markdown("one", GOOD).title == "T"
    with pytest.raises(FileError, match=re.escape(says)):
        _from_markdown("one", GOOD.replace(old, new, 2))


@pytest.mark.quick
@pytest.mark.whole
def test_documents_count_lessons() -> None:
    for document, words in (
        ("README.md", "small questions"),
        ("docs/teaching.md", "small questions"),
        ("docs/pages.md", "questions"),
    ):
        assert f" {len(PATH)} {words}" in (ROOT / document).read_text(encoding="utf-8")


@pytest.mark.quick
def test_lesson_example_of_the_documents_can_be_read() -> None:
    (lesson,) = re.findall(
        r"^```markdown\n(.*?)^```", (ROOT / "docs/teaching.md").read_text(), re.DOTALL | re.MULTILINE
    )
    (parsed,) = read_many(lesson.encode()).values()
    assert parsed.title == "Cold and hot"
    with pytest.raises(FileError):
        read_many(lesson.replace("kind: choice", "kind: choose").encode())
