"""A head of a real model is ablated in a browser: the predictions change, and a visitor with the link reads the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

import pytest
from conftest import act_and_settle, painted_numbers, running_process
from margins import approx
from playwright.sync_api import Page, expect
from test_browser import query
from tiny_models import TinyModels

from attention import Intervention, Model
from attention.base.printed import format_number
from attention.base.tokens import label
from attention.circuits import sweep
from attention.explanation import predictions

pytestmark = pytest.mark.browser

TEXT = "the owl asked the moon"
SILENT = Intervention(1, 2, ablate="zero")


def table(page: Page) -> list[list[str]]:
    """The rows of the table of predictions: rank, token and probability."""
    cells = "rows => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    rows: list[list[str]] = page.locator("table.predictions tbody tr").evaluate_all(cells)
    return rows


def test_ablated_head_changes_the_prediction_for_everybody_with_the_link(
    open_page: Callable[..., Page], tiny: TinyModels
) -> None:
    base = Model(str(tiny("GPT-2")), TEXT)
    predicted, ablated = base.trace(), Model(base.name, TEXT, interventions=(SILENT,)).trace()
    rows = predictions.top_tokens(ablated.predictions[0], predicted.predictions[0])
    with running_process(LAB_MODELS=str(tiny.folder)) as (server, _):
        page = open_page(f"{server}/?source=model&model=GPT-2&text={quote(TEXT)}&layer=1&head=2")
        first = table(page)
        assert [row[1] for row in first] == [label(token, escape=False) for token in predicted.predictions[0].tokens]
        act_and_settle(page, lambda: page.get_by_role("button", name="Ablate (silence) L1 H2").press("Enter"))
        expect(page.locator("table.predictions tbody tr")).to_have_count(len(rows))
        expect(page.locator("table.predictions tbody tr").first).to_contain_text("→")  # it may have as many rows before
        silenced = table(page)
        for row, prediction in zip(silenced, rows, strict=True):
            assert prediction.before is not None
            assert (row[0].split()[0], row[1]) == (str(prediction.rank), label(prediction.token, escape=False))
            assert row[3] == f"{format_number(prediction.before.probability)} → {format_number(prediction.probability)}"
        expect(page.locator(".override")).to_have_text("Changed: L1 H2 silenced.")
        assert query(page)["interventions"] == "1.2.zero"
        output = painted_numbers(page, 2)
        assert output == approx(ablated.layers[1].output.numpy())

        other = open_page(f"{page.url}&lock=1", fresh=True)
        assert (table(other), abs(painted_numbers(other, 2) - output).max()) == (silenced, 0)
        expect(other.get_by_role("checkbox", name="L1 H2 silenced")).to_be_disabled()
        expect(other.get_by_role("button", name="Ablate (silence) L1 H2")).to_have_count(0)

        # The ablation sweep in the model with this head ablated, beside the original model.
        heads = open_page(page.url.replace("/?", "/heads?"))
        before_asking = heads.locator(".figures .js-plotly-plot").count()
        act_and_settle(heads, lambda: heads.get_by_role("button", name="Ablate each of 8 heads in turn").click())
        expect(heads.locator(".figures .js-plotly-plot")).not_to_have_count(before_asking)
        expect(heads.get_by_text("Which heads step in")).to_be_visible()
        *_, last = sweep.sweep_heads(replace(base, interventions=(SILENT,)))
        assert last.result is not None
        maps = heads.evaluate(
            "[...document.querySelectorAll('.figures .js-plotly-plot')].map((plot) => plot.layout.meta.step)"
        )
        assert painted_numbers(heads, maps.index("matters")) == approx(last.result.change)
        expect(heads.get_by_text("Without L1 H2: log-probability")).not_to_have_count(0)
        expect(heads.get_by_role("button", name="Stop")).to_have_count(0)

        # The intervention is switched off, on again, and removed.
        switch = page.locator("label", has_text="L1 H2 silenced")
        for expected, interventions in ((first, None), (silenced, "1.2.zero")):
            act_and_settle(page, switch.click)
            assert (table(page), query(page).get("interventions")) == (expected, interventions)
        act_and_settle(page, lambda: page.get_by_role("button", name="Reset", exact=True).click())
        expect(switch).to_have_count(0)
        assert (table(page), "interventions" in query(page)) == (first, False)
