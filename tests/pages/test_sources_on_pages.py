"""The sources other than one typed line, on the pages: notebooks, matrices, batches, masks, dropout."""

from typing import Any

import numpy as np
import pytest
from conftest import component_message, page_has_seen, state_of_address
from margins import approx
from streamlit.testing.v1 import AppTest
from test_pages import PAGES, drawn, opened, said

from attention import AttentionConfig, Matrices, TypedText
from attention.formula import mask_tensor

LINES = "the cat sat on the mat\na dog\nbirds sing at dawn"


def step(app: AppTest, name: str) -> np.ndarray:
    return next(figure["data"][0]["z"] for figure in drawn(app) if figure["layout"]["meta"]["step"] == name)


@pytest.mark.parametrize("page", PAGES)
def test_default_matrices_open_on_every_page(page: str) -> None:
    for form in ("X and weights", "Q, K and V"):
        app = opened(page, source="matrices", matrix_kind=form)
        assert not app.exception
        assert not app.error


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(
    "link",
    [
        {"matrix_kind": "scores and V", "bias": "0,-inf,0,0;0,0,0,0;0,0,0,0;0,0,0,0"},
        {"matrix_kind": "X alone", "w_o": "1,2;3,4;5,6", "memory": "1,0,0;0,1,0", "divisor": "2"},
        {"given_heads": "3", "b_q": "1,2,3", "b_k": "0,1,0", "w_o": "1;2;3", "b_o": "4", "valid_keys": "2"},
    ],
    ids=["scores and V", "X alone", "several heads"],
)
def test_biases_masks_and_other_additions_open_on_every_page(page: str, link: dict[str, str]) -> None:
    app = opened(page, source="matrices", **link)
    assert not app.exception
    assert not app.error


def test_default_matrices_are_the_numpy_notebook() -> None:
    app = opened("app.py", source="matrices")
    expected = [0.23608986, 0.00738988, 0.74913039, 0.00738988]
    assert step(app, "weights")[0] == approx(expected, dtype="float32")
    assert step(app, "head_output")[0] == approx([0.98522025, 1.74174051, 0.75652026], dtype="float32")


@pytest.mark.parametrize(
    "pasted", ["1\t0\n0\t1", "[[1, 0], [0, 1]]", "tensor([[1., 0.],\n        [0., 1.]])", "1,0\n0,1"]
)
def test_pasted_matrix_is_used_and_written_in_short_form(pasted: str) -> None:
    app = opened("app.py", source="matrices", matrix_kind="Q, K and V", key="1,0;0,1", value="1,2;3,4")
    app.text_area(key="query").set_value(pasted).run()
    assert not app.exception
    assert app.text_area(key="query").value == "1,0;0,1"
    identity = ((1.0, 0.0), (0.0, 1.0))
    expected = Matrices(query=identity, key=identity, value=((1.0, 2.0), (3.0, 4.0))).trace().layers[0]
    np.testing.assert_array_equal(step(app, "weights"), expected.weights[0].numpy())


@pytest.mark.parametrize(
    ("pasted", "complaint"), [("1,2;3", "W_Q"), ("1,two;3,4", "two"), ("nan,1;1,1", "W_Q"), ("1,2;3,4", "X is 4 × 3")]
)
def test_unreadable_matrix_is_reported_and_nothing_is_lost(pasted: str, complaint: str) -> None:
    app = opened("app.py", source="matrices")
    app.text_area(key="w_q").set_value(pasted).run()
    assert not app.exception
    assert complaint in said(app).replace("\\", "")
    assert not drawn(app)
    assert app.text_area(key="w_q").value == pasted
    app.text_area(key="w_q").set_value("2,0,2;2,0,0;2,1,2").run()
    assert not app.error
    assert drawn(app)


BATCH = "tensor([[[0.3367, 0.1288], [0.2345, 0.2303]],\n\n        [[1., 0.], [0., 1.]]])"


def choice(app: AppTest, name: str) -> Any:
    """The open question about a pasted matrix."""
    return next((box for box in app.selectbox if box.key == f"matrices_choice_{name}"), None)


def test_batch_asks_which_matrix_and_the_link_stores_the_answer() -> None:
    app = opened("app.py", source="matrices", matrix_kind="Q, K and V", key="1,0;0,1", value="1,2;3,4")
    app.text_area(key="query").set_value(BATCH).run()
    assert not app.exception
    assert "or is one of them meant" in said(app)
    assert not drawn(app), "an ambiguous matrix is not guessed"
    question = choice(app, "query")
    assert question.label == "Are these 2 matrices (2 × 2 × 2) the heads, or is one of them meant?"
    assert question.options[1:] == ["[0]: 2 × 2, begins with 0.3367, 0.1288", "[1]: 2 × 2, begins with 1, 0"]
    assert question.options[0] == "2 heads: 2 × 2 × 2, begins with 0.3367, 0.1288"
    question.set_value("[0]").run()
    assert not app.exception
    assert not app.error
    assert choice(app, "query") is None
    assert app.text_area(key="query").value == "0.3367,0.1288;0.2345,0.2303"
    assert state_of_address(app)["query"] == "0.3367,0.1288;0.2345,0.2303"
    assert any("4 digits after the point, as torch prints them" in caption.value for caption in app.caption)
    rows = ((0.3367, 0.1288), (0.2345, 0.2303))
    expected = Matrices(query=rows, key=((1.0, 0.0), (0.0, 1.0)), value=((1.0, 2.0), (3.0, 4.0))).trace().layers[0]
    np.testing.assert_array_equal(step(app, "weights"), expected.matrix("weights").numpy())


def test_one_paste_of_named_matrices_fills_their_fields() -> None:
    app = opened("app.py", source="matrices")
    original = app.text_area(key="w_v").value
    text = "Q = [[1, 0], [0, 1]]\nK = [[1, 1], [0, 2]]\nV = np.array([[1, 2], [3, 4]])"
    app.text_area(key="w_v").set_value(text).run()
    assert not app.exception
    link = {key: state_of_address(app)[key] for key in ("matrix_kind", "query", "key", "value")}
    assert link == {"matrix_kind": "Q, K and V", "query": "1,0;0,1", "key": "1,1;0,2", "value": "1,2;3,4"}
    assert any("Q, K and V come from one pasted text." in caption.value for caption in app.caption)
    reopened = opened("app.py", source="matrices", **link)
    np.testing.assert_array_equal(step(reopened, "weights"), step(app, "weights"))
    page_has_seen(app)
    app.selectbox(key="matrix_kind").set_value("X and weights").run()
    assert app.text_area(key="w_v").value == original, "the field of the paste keeps its old content"


def test_names_of_a_pasted_table_become_token_names() -> None:
    app = opened("app.py", source="matrices", matrix_kind="X alone")
    app.text_area(key="x").set_value("token,a,b\nthe,1,2\nbig cat,3,4").run()
    assert not app.exception
    assert (app.text_input(key="labels").value, state_of_address(app)["labels"]) == ("the big_cat", "the big_cat")
    assert drawn(app)[0]["layout"]["xaxis"]["ticktext"] == ["the", "big_cat"]
    app.text_input(key="labels").set_value("mine too").run()
    app.text_area(key="x").set_value("token,a,b\nthe,1,2\nbig cat,3,5").run()
    assert app.text_input(key="labels").value == "mine too", "labels typed by the user stay"


def test_uploaded_heading_is_asked_about_and_omissions_are_reported() -> None:
    app = opened("app.py", source="matrices", matrix_kind="Q, K and V", key="1,0;0,1", value="1,2;3,4")
    app.file_uploader(key="matrices_file_query").upload("q.csv", b"0,1\n0.5,0.25\n1.5,0.75\n", "text/csv").run()
    assert not app.exception
    assert choice(app, "query").label.startswith("Is the first row, 0, 1, a heading")
    choice(app, "query").set_value("the first row is a heading").run()
    assert not app.error
    assert app.text_area(key="query").value == "0.5,0.25;1.5,0.75"
    assert step(app, "weights").shape == (2, 2)
    app.text_area(key="query").set_value("the 1 0\ncat 0 1").run()
    assert app.text_area(key="query").value == "1,0;0,1"
    assert any(note.value == "The first column, the, cat, is read as names of the rows." for note in app.caption)


def test_matrix_too_large_for_links_is_used_with_a_note() -> None:
    app = opened("app.py", source="matrices", matrix_kind="Q, K and V")
    row = ",".join(["0.123456789"] * 30)
    for name in ("query", "key", "value"):
        app.text_area(key=name).set_value(";".join([row] * 3)).run()
    assert not app.exception
    assert any("too many for the link" in caption.value for caption in app.caption)
    assert step(app, "weights").shape == (3, 3)


def editor(app: AppTest) -> tuple[str, bool]:
    """The label of the matrix editor, and whether it is open."""
    label = next(expander.label for expander in app.expander if expander.label.startswith("Your matrices"))
    return label.replace("\xa0", " "), bool(app.session_state["matrices_editor"])


def test_editor_is_folded_under_the_sizes_for_a_valid_link() -> None:
    app = opened("app.py", source="matrices")
    assert editor(app) == ("Your matrices: X 4 × 3 · W_Q 3 × 3 · W_K 3 × 3 · W_V 3 × 3", False)
    app = opened("app.py")
    app.selectbox(key="source").set_value("matrices").run()
    assert editor(app)[1], "choosing this source opens the editor"


def test_editor_is_unfolded_while_something_is_wrong() -> None:
    app = opened("app.py", source="matrices")
    app.text_area(key="w_q").set_value("1,2;3").run()
    assert editor(app) == ("Your matrices: X 4 × 3 · W_K 3 × 3 · W_V 3 × 3", True)
    assert not [button for button in app.button if button.key == "matrices_fit"]
    app.text_area(key="w_q").set_value("2,0,2;2,0,0;2,1,2").run()
    assert not editor(app)[1]


def test_contradictory_sizes_are_resized_to_fit_x() -> None:
    app = opened("app.py", source="matrices", x="1,0,0,7;0,1,0,8", w_o="1,2;3,4")
    assert editor(app)[1]
    assert not drawn(app)
    app.button(key="matrices_fit").click().run()
    assert not app.error
    assert editor(app) == ("Your matrices: X 2 × 4 · W_Q 4 × 3 · W_K 4 × 3 · W_V 4 × 3 · W_O 3 × 2", False)
    assert app.text_area(key="w_q").value == "2,0,2;2,0,0;2,1,2;0,0,0"
    assert app.text_area(key="w_o").value == "1,2;3,4;0,0"
    assert not [button for button in app.button if button.key == "matrices_fit"]


def test_pasted_head_stack_is_asked_about() -> None:
    app = opened("app.py", source="matrices", matrix_kind="Q, K and V")
    for name in ("query", "key", "value"):
        app.text_area(key=name).set_value("[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]").run()
        assert "“Are these 2 matrices \\(2 × 2 × 2\\) the heads, or is one" in said(app)
        app.selectbox(key=f"matrices_choice_{name}").set_value("2 heads").run()
        assert state_of_address(app)[name] == "2 heads: 1,2;3,4 / 5,6;7,8"
    assert not app.exception
    assert [selectbox.key for selectbox in app.selectbox if str(selectbox.key).startswith("matrices_head")] == [
        "matrices_head_query",
        "matrices_head_key",
        "matrices_head_value",
    ]
    assert component_message(app)["controls"]["head"]["options"] == ["0", "1"]
    reopened = opened("app.py", **{key: state_of_address(app)[key] for key in state_of_address(app)})
    np.testing.assert_array_equal(step(reopened, "weights"), step(app, "weights"))
    refused = opened("app.py", source="matrices", matrix_kind="X alone", x="33 heads:" + "/".join(["1"] * 33))
    assert "at most 32 heads; got a stack of 33" in said(refused)


def test_uploaded_matrix_is_used_and_a_broken_file_reported() -> None:
    app = opened("app.py", source="matrices")
    app.file_uploader(key="matrices_file_w_o").upload("w.csv", b"1,0,0\n0,1,0\n0,0,2\n", "text/csv").run()
    assert not app.exception
    assert step(app, "output")[0] == approx([0.98522025, 1.74174051, 2 * 0.75652026], dtype="float32")
    app.file_uploader(key="matrices_file_x").upload(
        "x.npy", b"\x93NUMPY but not really", "application/octet-stream"
    ).run()
    assert not app.exception
    assert "X" in said(app)


def test_each_line_is_a_sequence_and_padding_keeps_real_weights() -> None:
    app = opened("app.py", text=LINES, sequence="1")
    unpadded = step(app, "weights")
    assert unpadded.shape == (2, 2)
    app.toggle(key="pad").set_value(True).run()
    padded = drawn(app)[1]
    assert padded["data"][0]["z"].shape == (6, 6)
    assert padded["layout"]["xaxis"]["ticktext"] == ["a", "dog", "∅", "∅", "∅", "∅"]
    assert padded["data"][0]["z"][:2, :2] == approx(unpadded)
    assert not padded["data"][0]["z"][:, 2:].any()


def test_dropout_shows_the_weights_before_and_after() -> None:
    app = opened("app.py", dropout="0.5", step="dropped_weights")
    layer = TypedText("the owl asked the moon and the moon blinked", AttentionConfig(dropout=0.5)).trace().layers[0]
    np.testing.assert_array_equal(step(app, "weights"), layer.weights[0].numpy())
    np.testing.assert_array_equal(step(app, "dropped_weights"), layer.dropped_weights[0].numpy())
    assert "…" in component_message(app)["strip"]["dropped_weights"]["sums"]
    assert component_message(app)["strip"]["weights"]["sums"] == "Σ = 1 ✓"


def test_custom_mask_travels_in_links_and_works_in_the_lab() -> None:
    visible = mask_tensor.causal(9, 9)
    visible[4] = False
    app = opened("app.py", mask="custom", cells=mask_tensor.encode(visible))
    weights = step(app, "weights")
    assert not weights[4].any()
    assert not np.triu(weights, 1).any()


def test_broken_custom_mask_gets_one_sentence() -> None:
    app = opened("app.py", mask="custom", cells="3x3.nonsense")
    assert not app.exception
    assert "custom mask" in said(app).replace("\\", "")


def test_batch_reduced_to_one_line_is_shown_without_complaint() -> None:
    app = opened("app.py", text="a b c\nd e", sequence="1")
    app.text_area(key="text").set_value("a b c").run()
    assert not app.exception
    assert not said(app)
    assert step(app, "weights").shape == (3, 3)


def test_pickers_adapt_to_a_source_with_fewer_steps_and_heads() -> None:
    app = opened("app.py", text="a b c d e f g h i", q="8", k="60", step="output", head="3")
    app.selectbox(key="source").set_value("notebook").run()
    assert not app.exception
    assert not said(app).startswith("The link")
    assert component_message(app)["line"]["step"] == "weights"


def test_unreadable_matrix_is_named_at_the_top_too() -> None:
    app = opened("app.py", source="matrices", x="nan;inf")
    assert not app.exception
    assert all("give X too" not in error.value for error in app.error)
    assert len({error.value for error in app.error}) == 1


def test_custom_mask_of_another_size_is_noted() -> None:
    app = opened("app.py", text="a b c d", mask="custom", cells=mask_tensor.encode(mask_tensor.causal(2, 2)))
    assert "made for 2 × 2" in said(app)


def test_file_error_is_kept_without_the_file() -> None:
    app = opened("app.py", source="matrices")
    app.file_uploader(key="matrices_file_x").upload("x.csv", b"1,x\n", "text/csv").run()
    problem = app.session_state["session"].upload_problems["x"]
    assert "'x' in row 0, column 1" in str(problem)
    assert problem.__traceback__ is None  # a traceback would keep the text and everything derived from it


def test_empty_key_of_a_link_does_not_break_a_refusal() -> None:
    app = opened("app.py", **{"": "x", "source": "matrices", "matrix_kind": "X and weights", "x": "1,2;3"})
    assert not app.exception
    assert "rows" in app.error[0].value
