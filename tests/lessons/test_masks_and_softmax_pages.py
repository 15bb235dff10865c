"""The mask that users click, and the chapters on softmax, scaling and masks: what they draw, what they explain, and the controls that they have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import component_message, state_of_address
from margins import approx
from test_pages import drawn, opened, said

from attention import AttentionConfig, TypedText
from pages.ui.page import share
from pages.ui.server.limits import LIMITS
from pages.ui.state import knob_state


def test_mask_has_buttons_for_mask_kinds() -> None:
    def buttons(**link: str) -> list[str]:
        return component_message(opened("app.py", explore_mask="true", **link), last=True)["controls"]["mask"][
            "buttons"
        ]

    assert buttons() == ["none", "causal", "window", "prefix"]
    cells = "9x9.eNpjYACCBhDBAAADCwCB"
    assert buttons(mask="custom", cells=cells)[-1] == "custom"
    assert buttons(cells=cells)[-1] == "custom", "a clicked mask stays available"
    assert buttons(mask="padding")[-1] == "padding"
    assert "buttons" not in component_message(opened("app.py"))["controls"]["mask"]


@pytest.mark.parametrize(
    "link", [{"lock": "1"}, {"source": "notebook", "notebook": "heatmaps-unscaled"}, {"lock": "1", "mask": "causal"}]
)
def test_mask_offers_no_useless_clicks(link: dict[str, str]) -> None:
    app = opened("app.py", explore_mask="true", **link)
    assert not app.exception
    assert not any(b'"buttons":["none"' in component.proto.bytes for component in app.get("bidi_component"))
    assert "Click a cell of the mask" not in " ".join(caption.value for caption in app.caption)
    assert "Click a cell of the mask" in " ".join(
        caption.value for caption in opened("app.py", explore_mask="true").caption
    )


def test_chapter_on_softmax_draws_the_rows_weights_and_reports_overflow() -> None:
    app = opened("pages/learn.py", chapter="softmax")
    assert not app.exception
    bars = next(figure for figure in drawn(app) if figure["data"][0]["type"] == "bar")
    assert bars["data"][0]["y"] == approx([0.0390, 0.0035, 0.0016, 0.9559], step=1e-4)
    assert bars["data"][2]["y"] == approx([0.2562, 0.1898, 0.1717, 0.3822], step=1e-4)
    assert "overflows" in app.warning[0].value
    app.select_slider(key="softmax_factor").set_value(1).run()
    assert not app.warning
    assert "Both ways agree" in app.success[0].value


def test_bad_row_of_numbers_is_explained_beside_a_working_page() -> None:
    bad = ("cat dog", "1", "", "nan, 1", "inf, 1", "1e999 1", "<b>x</b> $y$, 2", "1 " * 1000, "a" * 10_000, "\x00 1")
    app = opened("pages/learn.py", chapter="softmax")
    for row in bad:
        app.text_input(key="softmax_row").set_value(row).run()
        assert not app.exception
        assert len(app.error) == 1
        assert "2 to 32 numbers" in app.error[0].value
        assert len(app.error[0].value) < 400
        assert len(drawn(app)) == 2


@pytest.mark.parametrize("factor", ["3", "inf", "nan", "abc", "-1", "1e400", "10001"])
def test_unknown_factor_becomes_the_default_with_a_note(factor: str) -> None:
    app = opened("pages/learn.py", chapter="softmax", softmax_factor=factor)
    assert not app.exception
    assert app.select_slider(key="softmax_factor").value == 200
    assert "softmax_factor" in said(app).replace("\\", "")


def test_unknown_key_of_a_link_stays_in_the_address() -> None:
    app = opened("app.py", text="a b", share="sparsemax")
    assert not app.exception
    assert not said(app)
    assert state_of_address(app) == {"text": "a b", "share": "sparsemax"}
    assert app.selectbox(key="normalizer").value == "softmax"


def test_link_sets_the_row_and_the_factor() -> None:
    app = opened("pages/learn.py", chapter="softmax", softmax_row="1, 2, 3", softmax_factor="10000")
    assert app.text_input(key="softmax_row").value == "1, 2, 3"
    assert app.select_slider(key="softmax_factor").value == 10_000
    assert "link" not in said(app)


def test_scaling_maps_use_the_text_and_the_mask() -> None:
    app = opened("pages/learn.py", chapter="softmax", text="a b c d", mask="causal")
    maps = next(figure for figure in drawn(app) if figure["data"][0]["type"] == "heatmap")
    weights = TypedText("a b c d", AttentionConfig(mask="causal")).trace().layers[0].weights[0].numpy()
    np.testing.assert_array_equal(maps["data"][0]["z"][:4, :4], weights)
    assert len(maps["data"]) == 2


def test_hiding_every_key_of_one_query_gives_zeros_and_note() -> None:
    app = opened("app.py", explore_mask="true", q="3")
    next(button for button in app.button if button.label == "Mask all keys of query 3").click().run()
    assert not app.exception
    weights = next(figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == "weights")
    assert not weights["data"][0]["z"][3].any()
    assert "1 query sees no key" in weights["layout"]["title"]["subtitle"]["text"]
    assert component_message(app)["controls"]["mask"]["value"] == "custom"


def test_chapter_on_masks_has_the_hiding_table_and_averaging_trick() -> None:
    app = opened("pages/learn.py", chapter="masks")
    table = next(frame.value for frame in app.dataframe if "outcome" in frame.value)
    outcomes = dict(zip(table["hidden by"], table["outcome"], strict=True))
    assert outcomes["Attention Lab"].startswith("zeros")
    assert outcomes["−1e10 instead of −∞ (notebook 4)"].startswith("silently uniform")
    assert any("All three results are equal" in markdown.value for markdown in app.markdown)


def test_mask_that_allows_everything_is_no_mask() -> None:
    app = opened("app.py", explore_mask="true", mask="causal")
    next(button for button in app.button if button.label == "Allow everything").click().run()
    assert component_message(app)["controls"]["mask"]["value"] == "none"


def test_chapter_on_softmax_reports_other_inits_that_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knob_state, "LIMITS", replace(LIMITS, trace_mb=8))
    app = opened("pages/learn.py", chapter="softmax", init="identity", d_model="1024")
    assert not app.exception
    assert [error.value.startswith("All steps need at most 8 MB here") for error in app.error] == [True]
    assert len(drawn(app)) == 4, "the rest of the page stays"


def test_state_file_contains_the_numbers_of_the_page() -> None:
    fresh = opened("pages/learn.py", chapter="softmax")
    content = share._write_state("Softmax", {"softmax_row": "1, 2, 3"})
    fresh.file_uploader(key="open_state_0").upload("s.json", content.encode()).run()
    assert not fresh.exception
    assert fresh.text_input(key="softmax_row").value == "1, 2, 3"
