import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
from conftest import (
    ROOT,
    component_message,
    page_has_seen,
    set_knobs,
    state_of_address,
    texts_of,
    unpack_figures,
    unpack_message,
)
from margins import approx
from streamlit.testing.v1 import AppTest

from attention import STEPS, AttentionConfig, TypedText, find_step
from benchmarks import texts
from pages.ui.page import share, show

PAGES = [
    "app.py",
    *sorted(str(path.relative_to(ROOT)) for path in Path(ROOT, "pages").glob("*.py") if path.stem != "__init__"),
]
# Pages with pickers for step, head, query and key, which draw maps of steps; and pages with their own numbers.
PICKING = ["app.py", "pages/heads.py", *["app.py?explore_mask=true"] * ("pages/learn.py" in PAGES)]
OWN = [page for page in ("pages/learn.py", "pages/training.py") if page in PAGES]
DEFAULT_TEXT = "the owl asked the moon and the moon blinked"

ODD_TEXTS = {
    "one token": "word",
    "emojis": "🙂 👍🏽 👨‍👩‍👧 🇩🇪 🙂",
    "Chinese": "你好 世界 你好",
    "right to left": "שלום עולם مَرْحَبًا",
    "tags": "<b>bold</b> </s> <script>alert(1)</script>",
    "formula": "$x$ $$y$$ `code` *a* :smile: [link](x)",
    "numbers and dates": "2024 2024-01-15 3.14 1e5",
    "control characters": "a\x00b \u200b \u202e c",
    "one endless word": "a" * 10_000,
    "only marks": "?! ... --",
}


def here(*pages: str) -> list[str]:
    """Those of the pages, with or without a query, that were not taken away with their feature."""
    return [page for page in pages if page.partition("?")[0] in PAGES]


def opened(page: str, **params: str) -> AppTest:
    path, _, query = page.partition("?")
    app = AppTest.from_file(str(ROOT / path), default_timeout=60)
    # Only the bare address opens on an example.
    for key, value in ({**dict(parse_qsl(query)), **params} or {"source": "typed text"}).items():
        app.query_params[key] = value
    return app.run()


def drawn(app: AppTest) -> list[dict[str, Any]]:
    return [
        figure
        for element in app.get("bidi_component")
        if element.proto.bytes
        for figure in unpack_figures(element.proto.bytes)
    ]


def said(app: AppTest) -> str:
    return " ".join(element.value for kind in (app.warning, app.error, app.info) for element in kind)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_with_a_banner_and_alt_texts(page: str) -> None:
    app = opened(page)
    assert not app.exception
    assert app.title
    assert state_of_address(app) == {}, "every page ends by writing the address"
    screen = [
        unpack_message(element.proto.bytes).get("screen")
        for element in app.get("bidi_component")
        if element.proto.bytes
    ]
    is_said = any("Random weights" in caption.value for caption in app.caption) or any(
        each and each["random"] for each in screen
    )
    assert is_said == (page not in OWN)
    for figure in drawn(app):
        alt = figure["layout"]["meta"]["alt"]
        assert alt.startswith(("Heatmap of ", "By ", "Line chart of ", "Bar chart of "))
        assert "query (attends from)" in alt or not alt.startswith("Heatmap")
        assert alt.startswith(("Heatmap", "By ")) or page not in PICKING


@pytest.mark.parametrize("page", [*OWN, "app.py"])
def test_pages_with_their_own_numbers_compute_no_trace(page, monkeypatch):
    """The trace may belong to a large model; the link keeps the chosen cell, and Share stays quick."""
    texts_made, trace = [], TypedText.trace
    monkeypatch.setattr(TypedText, "trace", lambda self: texts_made.append(self.text) or trace(self))
    text = f"somebody came to {Path(page).stem} with this text"
    app = opened(page, text=text, q="2", k="1", step="scores")
    assert not app.exception
    assert (text in texts_made) == (page == "app.py")
    assert {"q", "k", "step"} <= set(state_of_address(app))
    app.session_state["sharing"] = True
    app.run()
    assert not app.exception
    components = [
        component.proto
        for component in app.get("bidi_component")
        if component.proto.component_name == "attention_exports"
    ]
    labels = [label for component in components for label, *_ in json.loads(component.json)["links"]]
    assert "Save the state (.json)" in labels
    assert ("All steps (.npz)" in labels) == (page == "app.py")
    assert (text in texts_made) == (page == "app.py")


# Every page gets all odd texts at once: markup, scripts, long words; and the smallest possible map.
ON_EVERY_PAGE = {"one token": ODD_TEXTS["one token"], "all of them": " ".join(ODD_TEXTS.values())}


@pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_lab_takes_odd_texts(text: str) -> None:
    weights = figures_of("app.py", text)[1]["data"][0]["z"]
    np.testing.assert_array_equal(weights, TypedText(text).trace().layers[0].weights[0].numpy())


@pytest.mark.parametrize("page", PAGES[1:])
@pytest.mark.parametrize("text", ON_EVERY_PAGE.values(), ids=ON_EVERY_PAGE)
def test_every_page_takes_an_odd_text(page: str, text: str) -> None:
    figures_of(page, text)


def figures_of(page: str, text: str) -> list[dict[str, Any]]:
    """The figures of a page that accepts this text without a message."""
    app = opened(page, text=text)
    assert not app.exception
    assert not app.error
    figures = drawn(app)
    assert all(len(figure["data"][0].get("z", figure["data"][0].get("y"))) for figure in figures)
    return figures


def test_lab_draws_scores_weights_and_output_of_the_default_text() -> None:
    app = opened("app.py")
    layer = TypedText(DEFAULT_TEXT, AttentionConfig()).trace().layers[0]
    steps = {figure["layout"]["meta"]["step"]: figure["data"][0]["z"] for figure in drawn(app)}
    assert list(steps) == ["scores", "weights", "output"]
    np.testing.assert_array_equal(steps["scores"], layer.scores[0].numpy())
    np.testing.assert_array_equal(steps["weights"], layer.weights[0].numpy())
    np.testing.assert_array_equal(steps["output"], layer.output.numpy())


def test_default_text_repeats_a_word_and_the_axis_shows_both() -> None:
    ticks = drawn(opened("app.py"))[1]["layout"]["xaxis"]
    assert list(ticks["ticktext"]) == DEFAULT_TEXT.split()
    assert list(ticks["tickvals"]) == list(range(9))


def test_every_step_of_the_strip_opens_and_is_explained() -> None:
    app = opened("app.py", positions="sinusoidal", text2="a second text")
    strip = component_message(app)["strip"]
    assert len(strip) == 15
    assert list(strip)[-1] == "norm-weighted"  # a derived map, not a step
    for name, step in list(strip.items())[1:-1]:
        set_knobs(app, step=name, view=step["view"])
        assert not app.exception
        assert [tab["name"] for tab in component_message(app)["strip"].values() if tab["chosen"]] == [name]
        assert [figure["layout"]["meta"]["step"] for figure in drawn(app)][-1] == name
        assert component_message(app)["line"]["step"] == name
        assert f"numbers of `{name}`" in " ".join(markdown.value for markdown in app.markdown)
        assert any(markdown.value.startswith("Exactly:") for markdown in app.caption)
    set_knobs(app, step="weights", view=strip["overview"]["view"])
    assert [figure["layout"]["meta"]["step"] for figure in drawn(app)] == ["scores", "weights", "output"]


def test_inspector_prints_the_number_that_the_map_paints() -> None:
    app = opened("app.py", mask="causal", q="4", k="2", head="1")
    weight = float(TypedText(DEFAULT_TEXT, AttentionConfig(mask="causal")).trace().layers[0].weights[1, 4, 2])
    assert app.latex[0].value.count(f"{weight:.4g}") == 1
    assert f"Exactly: {weight!r}" in [caption.value for caption in app.caption]


def test_table_twin_holds_the_numbers_and_their_row_sums() -> None:
    dataframe = opened("app.py", mask="causal").dataframe[0]
    table = dataframe.value
    weights = TypedText(DEFAULT_TEXT, AttentionConfig(mask="causal")).trace().layers[0].weights[0].numpy()
    np.testing.assert_array_equal(table.to_numpy()[:, :-1], weights)
    assert table["Σ row"].to_numpy() == approx(1)
    formats = {name: column["type_config"]["format"] for name, column in json.loads(dataframe.proto.columns).items()}
    assert formats == dict.fromkeys(table, "%.4g"), "as many digits as in the heading, even for small numbers"


def test_empty_text_asks_for_one_and_draws_nothing() -> None:
    app = opened("app.py")
    app.text_area(key="text").set_value("   ").run()
    assert not app.exception
    assert "needs at least one word" in app.error[0].value
    assert not drawn(app)
    app.text_area(key="text").set_value("back again").run()
    assert not app.error
    assert len(drawn(app)) == 3


def test_a_message_on_its_way_does_not_take_back_what_was_typed_elsewhere() -> None:
    """The page sends the values of all widgets with every message, also those that it has not seen replaced yet."""
    app = set_knobs(opened("app.py", text="the cat"), text="the owl asked")
    assert app.text_area(key="text").value == "the owl asked"
    app.text_area(key="text").set_value("the cat").run()
    assert texts_of(app)["text"] == "the owl asked"
    assert app.text_area(key="text").value == "the owl asked"
    page_has_seen(app)
    app.text_area(key="text").set_value("the cat").run()
    assert texts_of(app)["text"] == "the cat"


def test_long_text_is_cut_with_a_note() -> None:
    app = opened("app.py", text="word " * 2100)
    assert not app.exception
    assert "2,100 tokens" in said(app)
    assert "first 2048" in said(app)
    weights = drawn(app)[1]
    assert (weights["layout"]["meta"]["panels"][0]["rows"], weights["data"][0]["live"]) == (2048, "weights")


@pytest.mark.sample(6)
@pytest.mark.parametrize("d_model", ["64", "104"])
@pytest.mark.parametrize("length", [22, 256, 512, 1024, 2048])
def test_three_maps_and_the_first_screen_of_a_text_need_240_kb(length: int, d_model: str) -> None:
    app = opened("app.py", text=texts.natural(length), d_model=d_model)
    assert not app.exception
    assert [figure["layout"]["meta"]["step"] for figure in drawn(app)] == ["scores", "weights", "output"]
    assert sum(len(element.proto.bytes) for element in app.get("bidi_component")) < 240_000


@pytest.mark.sample(2)
@pytest.mark.parametrize("path", [*PICKING, *here("pages/learn.py?chapter=softmax", "pages/learn.py?chapter=masks")])
def test_every_page_opens_2048_tokens_in_at_most_65536_cells(path: str) -> None:
    app = opened(path, text=texts.natural(2048), mask="causal", head="2")
    assert not app.exception
    assert not app.error
    for figure in drawn(app):
        for trace in figure["data"]:
            assert trace["type"] != "heatmap" or np.size(trace.get("z", 0)) <= 2 * 256 * 256


BAD_LINKS = {
    "heads": ("3", "which divide d_model 64"),
    "kv_heads": ("3", "one of 1, 2, 4, which divide 4 heads of queries: the default is used"),
    "d_model": ("0", "from 1 to 1024"),
    "temperature": ("999", "from 0.05 to 100"),
    "seed": ("abc", "a whole number"),
    "mask": ("sideways", "one of none, causal, window, causal window"),
    "init": ("best", "one of scaled normal"),
    "step": ("nothing", "one of embedding"),
    "head": ("9", "from 0 to 3"),
    "q": ("-1", "from 0 to 8"),
    "k": ("1000", "from 0 to 8"),
    "scaled": ("perhaps", "true or false"),
    "layer": ("2", "layer is 0, the only value"),
    "window": ("1e9", "a whole number"),
}

OF_A_TRACE = {"step", "head", "q", "k", "layer"}  # reported where there is a trace


@pytest.mark.parametrize(
    ("page", "keys"),
    [
        *(("app.py", (key,)) for key in BAD_LINKS),
        *((page, tuple(BAD_LINKS)) for page in PAGES if page not in OWN),
        *((page, tuple(BAD_LINKS.keys() - OF_A_TRACE)) for page in OWN),
    ],
)
def test_bad_value_in_links_becomes_the_default_with_a_note(page: str, keys: tuple[str, ...]) -> None:
    app = opened(page, **{key: BAD_LINKS[key][0] for key in keys})
    assert not app.exception
    assert not app.error
    plain = said(app).replace("\\", "")
    for value, expected in (BAD_LINKS[key] for key in keys):
        assert value in plain
        assert expected in plain
    assert (
        drawn(app)
        or app.dataframe
        or "lesson"
        in {component.proto.component_name.removeprefix("attention_") for component in app.get("bidi_component")}
    )


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", "", "<b>x</b>", "$x$", "0x10", "１"])
def test_no_number_in_a_link_breaks_the_page(value: str) -> None:
    app = opened("app.py", temperature=value, seed=value, d_model=value, q=value, d_k=value)
    assert not app.exception
    assert drawn(app)


def test_valid_link_gets_no_note() -> None:
    app = opened(
        "app.py",
        mask="causal window",
        heads="8",
        temperature="0.5",
        scaled="false",
        seed="7",
        step="query",
        q="3",
        k="5",
    )
    assert not said(app)
    assert heads_menu(app)["value"] == "8"


def test_link_notes_stay_until_dismissed() -> None:
    app = opened("app.py", seed="abc")
    set_knobs(app, mask="causal")
    assert "seed" in said(app)
    app.button(key="link_notes_seen").click().run()
    assert not said(app)


def heads_menu(app: AppTest) -> dict[str, Any]:
    """The control of the number of heads."""
    control: dict[str, Any] = component_message(app)["controls"]["heads"]
    return control


def test_heads_menu_offers_divisors_and_reports_forced_changes() -> None:
    app = opened("app.py")
    set_knobs(app, d_model=50)
    assert not app.exception
    assert heads_menu(app)["options"] == ["1", "2", "5", "10", "25"]
    assert heads_menu(app)["value"] == "2"
    assert "4 heads do not divide d_model 50: 2 heads are used." in app.toast[0].value


def test_requested_heads_return_when_d_model_allows_them() -> None:
    app = opened("app.py")
    for d_model, heads in ((65, 1), (30, 3), (64, 4)):
        set_knobs(app, d_model=d_model)
        assert heads_menu(app)["value"] == str(heads)
    set_knobs(app, heads=8)
    for d_model, heads in ((60, 6), (7, 7), (13, 1), (16, 8)):
        set_knobs(app, d_model=d_model)
        assert heads_menu(app)["value"] == str(heads)
    set_knobs(app, heads=2)  # another request
    set_knobs(app, d_model=64)
    assert heads_menu(app)["value"] == "2"


def test_heads_in_a_link_count_as_requested() -> None:
    app = opened("app.py", heads="8", kv_heads="4")
    for d_model, heads, of_keys in ((65, 5, 1), (67, 1, 1), (64, 8, 4)):
        set_knobs(app, d_model=d_model)
        assert not app.exception
        assert heads_menu(app)["value"] == str(heads)
        assert app.selectbox(key="kv_heads").value == of_keys
        assert drawn(app)
        if heads == 5:
            assert (
                "4 heads of keys do not divide 5 heads of queries: 1 head of keys is used. Choose 1, 5."
                in app.toast[1].value
            )
    set_knobs(app, heads=2)
    assert app.selectbox(key="kv_heads").options == ["1", "2"]
    assert app.selectbox(key="kv_heads").value == 2
    assert not app.error
    app.selectbox(key="kv_heads").set_value(None).run()
    assert app.selectbox(key="kv_heads").value is None


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ({"d_model": "7"}, "4 heads do not divide d_model 7: 1 head is used. Choose 1, 7."),
        ({"d_model": "30"}, "4 heads do not divide d_model 30: 3 heads are used."),
        ({"d_model": "80", "heads": "40"}, "heads is at most 32, one of 1, 2, 4, 5, 8, 10, 16, 20: 4 is used."),
        ({"d_model": "80", "heads": "3"}, "16, 20, which divide d_model 80: 4 is used."),
        ({"d_model": "80", "heads": "9" * 5000}, "which divide d_model 80: 4 is used."),
    ],
)
def test_one_note_explains_changed_heads(link: dict[str, str], expected: str) -> None:
    app = opened("app.py", **link)
    assert [expected in note.value.replace("\\", "") for note in app.warning] == [True]
    assert not app.toast
    app.run()
    assert len(app.warning) == 1


@pytest.mark.parametrize("link", [{"d_model": "7", "init": "identity"}, {"d_model": "7", "heads": "1"}])
def test_unchanged_heads_get_no_note(link: dict[str, str]) -> None:
    assert not said(opened("app.py", **link))


@pytest.mark.parametrize("page", PICKING[1:])
def test_maps_have_a_long_table_computed_when_unfolded(page: str) -> None:
    app = opened(page, mask="causal", head="1")
    folded = len(app.dataframe)
    app.session_state["long_table"] = True
    app.run()
    assert not app.exception
    assert len(app.dataframe) == folded + 1
    weights = TypedText(DEFAULT_TEXT, AttentionConfig(mask="causal")).trace().layers[0].weights.numpy()
    [table] = [dataframe.value for dataframe in app.dataframe if "weights" in dataframe.value]
    expected = weights if page == "pages/heads.py" else weights[1]
    np.testing.assert_array_equal(table["weights"], expected.flatten())
    if "explore_mask" in page:
        assert list(table) == ["query", "key", "may attend", "masked_scores", "weights"]
        np.testing.assert_array_equal(table["may attend"], np.tril(np.ones((9, 9))).flatten())


def test_table_over_512_by_512_numbers_is_a_file_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "_TABLE_CELLS", 8)
    for max_cells, n_tables in ((9, 1), (8, 0)):
        monkeypatch.setattr(show, "MOST_CELLS", max_cells)
        app = opened("app.py", text="a b c", table="true")
        app.session_state["table"] = True
        app.run()
        assert len(app.dataframe) == n_tables
        assert any("the CSV file has all 9" in caption.value for caption in app.caption) is not bool(n_tables)
        assert not app.exception


def test_files_of_many_heads_state_that_they_hold_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in (1, 0):
        monkeypatch.setattr(share, "EXPORT_MB", limit)
        app = opened("app.py", head="2")
        app.session_state["sharing"] = True
        app.run()
        assert any("it contains only head 2 of layer 0" in caption.value for caption in app.caption) is (limit == 0)


def test_cell_outside_a_smaller_map_moves_inside() -> None:
    app = opened("app.py", q="8", k="8")
    app.text_area(key="text").set_value("only three words").run()
    assert not app.exception
    assert [side["value"] for side in component_message(app)["line"]["sides"]] == [2, 2]


def test_identity_shows_one_head_and_head_output_instead_of_output() -> None:
    app = opened("app.py", init="identity", heads="8", d_k="7")
    assert not app.exception
    assert [figure["layout"]["meta"]["step"] for figure in drawn(app)] == ["scores", "weights", "head_output"]
    assert "head" not in component_message(app)["controls"]


def test_row_that_sees_no_key_is_drawn_and_labelled() -> None:
    app = opened("app.py", text="one two three four five", text2="a b", mask="window", window="0")
    weights = drawn(app)[1]
    assert not weights["data"][0]["z"][2:].any()
    assert [note["text"] for note in weights["layout"]["annotations"]].count("no key") == 3
    assert "3 queries see no key" in weights["layout"]["title"]["subtitle"]["text"]


@pytest.mark.parametrize(("page", "map_of_weights"), [*zip(PICKING, (1, 0, 5), strict=False)])
@pytest.mark.parametrize(
    ("link", "words"),
    [
        ({}, "full colour = "),
        ({"colors": "log"}, "logarithmic"),
    ],
)
def test_colour_bar_names_the_colour_range_of_a_link(
    page: str, map_of_weights: int, link: dict[str, str], words: str
) -> None:
    app = opened(page, **link)
    weights = drawn(app)[map_of_weights]
    (note,) = (note["text"] for note in weights["layout"]["annotations"] if note.get("name") == "colors")
    assert note.startswith(words)
    assert (weights["data"][0]["zmax"] < 1) == (words == "full colour = ")
    assert component_message(app)["controls"]["colors"]["value"] == link.get("colors", "stretched")


def test_heads_page_draws_all_heads_in_one_figure_and_scale() -> None:
    figures = drawn(opened("pages/heads.py", heads="8", mask="causal"))
    assert len(figures) == 1
    weights = TypedText(DEFAULT_TEXT, AttentionConfig(n_heads=8, mask="causal")).trace().layers[0].weights.numpy()
    for panel in figures[0]["layout"]["meta"]["panels"]:
        x, y = panel["x"], panel["y"]
        np.testing.assert_array_equal(figures[0]["data"][0]["z"][y : y + 9, x : x + 9], weights[panel["head"]])


def test_reference_has_a_card_with_sizes_for_every_step() -> None:
    app = opened("pages/reference.py", heads="8", text="one two three")
    cards = " ".join(markdown.value for markdown in app.markdown)
    assert all(f"**`{step.name}`**" in cards for step in STEPS)
    assert [latex.value.strip("$\n") for latex in app.latex] == [step.equation for step in STEPS]
    shapes = " ".join(element.proto.body for element in app.get("html"))
    assert "head 8 · query_pos 3 · d_k 8" in shapes
    assert "hook_pattern" in shapes


def test_foreign_name_finds_its_step() -> None:
    app = opened("pages/reference.py", reference_find="hook_z")
    assert [latex.value.strip("$\n") for latex in app.latex] == [find_step("head_output").equation]
    app.text_input(key="reference_find").set_value("<b>$x$</b>").run()
    assert not app.exception
    assert "No name contains" in app.error[0].value
    assert "<b>" not in app.error[0].value
    assert not app.latex


def test_dropped_weights_of_all_heads_of_long_texts_are_drawn() -> None:
    app = opened("pages/heads.py", text=texts.natural(1100), dropout="0.5", step="dropped_weights", head="1")
    assert not app.exception
    assert [figure["layout"]["meta"]["step"] for figure in drawn(app)] == ["dropped_weights"]


@pytest.mark.parametrize(
    ("knobs", "caption_part", "step"),
    [
        ({"positions": "rope"}, "rotated by an angle", "rotated_query"),
        ({"positions": "alibi"}, "subtracted from the score", "biased_scores"),
        ({"score": "additive"}, "A small network", "scores"),
        ({"normalizer": "sparsemax"}, "exactly 0", "weights"),
        ({"cap": "2.5", "kv_heads": "2"}, "", "capped_scores"),
    ],
)
def test_variant_explains_its_change_and_shows_its_steps(knobs: dict[str, str], caption_part: str, step: str) -> None:
    app = opened("app.py", view="factors", step=step, **knobs)
    assert not app.exception
    assert not app.error
    assert drawn(app)[-1]["layout"]["meta"]["step"] == step
    assert any(caption_part in caption.value for caption in app.sidebar.caption) or not caption_part
    plain = opened("app.py")
    assert not any("Weights by" in caption.value for caption in plain.sidebar.caption)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        *(
            (page, ["temperature", "mask", "window", "prefix", "d_model", "seed"])
            for page in here("pages/learn.py?chapter=softmax")
        ),
        ("pages/reference.py", ["d_model"]),
    ],
)
def test_page_without_maps_shows_only_useful_controls(page: str, names: list[str]) -> None:
    app = opened(page)
    assert list(component_message(app)["controls"]) == names
    set_knobs(app, d_model=32)
    assert state_of_address(app)["d_model"] == "32"
    for source in ("notebook", "matrices"):  # sources with fixed shapes; Softmax then draws its default text
        assert not any(
            b'"controls":[{' in component.proto.bytes for component in opened(page, source=source).get("bidi_component")
        )


def test_walking_back_keeps_the_head_and_output_names_it() -> None:
    factors = {
        step: component_message(opened("app.py", step=step, head="2", q="3"))["line"]["from"][0]
        for step in ("query", "output")
    }
    assert "head" not in factors["query"]["knobs"]
    assert factors["query"]["label"].startswith("input [3, ")
    came_from = factors["output"]["knobs"]["head"]
    assert factors["output"]["label"].endswith(f" of head {came_from}")


def line(app: AppTest) -> dict[str, Any]:
    return component_message(app)["line"]


def place(app: AppTest) -> tuple[Any, ...]:
    """Step, row and column of the line of the chosen cell."""
    return line(app)["step"], *(side["value"] for side in line(app)["sides"])


def test_pair_survives_a_look_at_a_feature() -> None:
    app = set_knobs(opened("app.py", q="5", k="2"), step="scores", view="factors")
    link = next(source["knobs"] for source in line(app)["from"] if source["knobs"]["step"] == "query")
    assert link == {"view": "factors", "step": "query", "head": 0, "q": 5, "column": link["column"]}
    assert place(set_knobs(app, **link)) == ("query", 5, link["column"])
    assert place(set_knobs(app, step="key")) == ("key", 2, link["column"])
    assert place(set_knobs(app, step="weights")) == ("weights", 5, 2)


@pytest.mark.parametrize("step", ["query", "key", "weights"])
def test_links_from_before_columns_open_their_cell(step: str) -> None:
    assert place(opened("app.py", step=step, q="3", k="7")) == (step, 3, 7)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"mask": "causal", "q": "1", "k": "4"}, "the causal mask: key 4 comes after query 1"),
        ({"mask": "window", "window": "1", "q": "7", "k": "2"}, "the window mask: key 2 is 5 positions from query 7"),
        ({"mask": "causal window", "window": "1", "q": "7", "k": "2"}, "the causal window mask: key 2 is 5 positions from query 7"),
        ({"text": "a b c\nd", "pad": "true", "sequence": "1", "q": "0", "k": "2"}, "padding: key 2 is no token of the text"),
    ],
)  # fmt: skip
def test_chosen_hidden_cell_says_what_hides_it(knobs: dict[str, str], reason: str) -> None:
    shown = line(opened("app.py", **knobs))
    assert (shown["shown"], shown["sign"], shown["short"]) == ("0, hidden", "by", reason)
