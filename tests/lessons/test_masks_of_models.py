"""The mask examples of a model whose heads are changed."""

from __future__ import annotations

import torch
from conftest import component_message, set_knobs, state_of_address
from test_intervene import library, model  # noqa: F401  # a fixture
from test_pages import drawn, opened
from tiny_models import TinyModels

from attention import Cell
from attention.formula import mask_tensor
from attention.lessons import mask_examples
from attention.patching.intervention import parse_codes
from attention.pictures.heatmap import mask_map_json
from attention.pictures.steps_view import factor_maps


def test_mask_of_a_changed_head_applies_wherever_it_is_shown(tiny: TinyModels) -> None:
    trace = model(tiny, "BERT", *parse_codes("0.1.first")).trace()
    for head, first_alone in ((0, False), (1, True)):
        weights = trace.layers[0].matrix("weights", head)
        assert bool((weights[:, 1:] == 0).all()) == first_alone
        visible = weights != 0
        assert torch.equal(mask_examples.visible_cells(trace, 0, head), visible)
        assert torch.equal(
            torch.tensor(mask_examples.table(trace, 0, head)["may attend"].to_numpy()), visible.flatten()
        )
        assert (mask_examples.grid(trace, 0, head).to_numpy() == visible.numpy()).all()
        figure = mask_map_json(trace, 0, Cell(0, "weights", head, 0, 0))
        assert (figure["data"][0]["z"] == visible.numpy()).all()
        assert (f"L0 H{head} alone" in figure["layout"]["title"]["subtitle"]["text"]) == first_alone
        factor = next(
            factor_map
            for factor_map in factor_maps(trace, Cell(0, "masked_scores", head, 0, 0))
            if factor_map["layout"]["meta"]["step"] == "mask"
        )
        assert (factor["data"][0]["z"] == visible.numpy()).all()


def test_mask_starts_at_the_source_mask_and_clicks_customize() -> None:
    app = opened("app.py", explore_mask="true", source="notebook", notebook="averaging-trick")
    message = component_message(app, last=True)
    assert message["controls"]["mask"]["buttons"] == ["own", "none", "causal", "window", "prefix"]
    assert message["controls"]["mask"]["value"] == "own"
    assert "mask" not in state_of_address(app)
    cells = mask_tensor.toggle(mask_tensor.causal(8, 8), 0, 7)
    set_knobs(app, mask="custom", cells=cells)
    visible = mask_tensor.causal(8, 8)
    visible[0, 7] = True
    assert (drawn(app)[3]["data"][0]["z"] == visible.numpy()).all()
    assert state_of_address(app)["mask"] == "custom"
