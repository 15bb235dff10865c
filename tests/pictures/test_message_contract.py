"""Figures and messages contain exactly the declared fields, in Python and in the script that reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, NotRequired, get_origin, get_type_hints

import pytest
from conftest import ROOT, unpack_message
from PIL import Image
from streamlit.testing.v1 import AppTest
from tiny_pictures import TinyPictureModels, boxes_on_a_picture, noise

from attention import AttentionConfig, Cell, Model, TypedText, metrics
from attention.pictures import charts, heatmap, message_contract, mosaic, steps_view
from attention.pictures.downsample import pool_for_screen
from attention.pictures.live_inputs import live_inputs
from attention.pictures.marks import Panel
from attention.pictures.message import Surroundings, pack
from attention.pictures.over_picture import MapLine, over_picture_json
from attention.sources.registry import source_kinds

SCRIPT = (ROOT / "attention" / "pictures" / "figure" / "message.js").read_text()
DECLARED = (
    *("Message", "Meta", "Blocks", "Grid", "PanelGrid", "Live", "Control", "OverrideNote", "StepTab", "Line"),
    *("Screen", "Sentence", "Term", "Change"),
)


def keys(declared: type) -> tuple[set[str], set[str]]:
    """The required and the optional keys."""
    hints = get_type_hints(declared, include_extras=True)
    optional = {key for key, hint in hints.items() if get_origin(hint) is NotRequired}
    return set(hints) - optional, optional


def keys_in_script(name: str) -> tuple[set[str], set[str]]:
    """The required and the optional keys in the script."""
    (block,) = re.findall(rf"@typedef {{object}} {name}\n(.*?)\*/", SCRIPT, re.DOTALL)
    names = re.findall(r"@property {.*} (\[?)(\w+)", block)
    return {key for bracket, key in names if not bracket}, {key for bracket, key in names if bracket}


def check_keys(sent: Iterable[Mapping[str, Any]], declared: type) -> None:
    """Asserts that every mapping has all required keys and no others, and that every declared key occurs."""
    required, optional = keys(declared)
    key_sets = [set(one) for one in sent]
    assert all(required <= keys <= required | optional for keys in key_sets)
    assert set().union(*key_sets) == required | optional


@pytest.mark.quick
@pytest.mark.parametrize("name", DECLARED)
def test_script_reads_exactly_what_python_declares(name: str) -> None:
    assert keys_in_script(name) == keys(getattr(message_contract, name))


@pytest.mark.quick
def test_panel_fields_match_the_script() -> None:
    assert keys_in_script("Panel") == ({field.name for field in fields(Panel)}, set())


def test_every_figure_has_the_declared_meta_data(picture_models: TinyPictureModels) -> None:
    from attention.pictures.heads_over_picture import heads_over_picture_json

    picture = Model(picture_models("ViT"), image=Image.fromarray(noise())).trace()
    short = TypedText("the cat sat on the mat", AttentionConfig(mask="causal")).trace()
    long = TypedText(" ".join(f"w{i}" for i in range(300))).trace()
    figures = [
        *(
            figure
            for step, _ in short.layers[0]
            for figure in steps_view.factor_maps(short, Cell(0, step.name, 0, 0, 0))
        ),
        heatmap.heads_json(short, "weights"),
        heatmap.heads_json(long, "weights", cells=10_000),
        mosaic.layers_json(short, "weights"),
        pool_for_screen(heatmap.heatmap_json(long, "weights")),
        pool_for_screen(heatmap.heatmap_json(long, "weights"), [0, 100, 0, 100]),
        charts.head_scatter_json(metrics.of(short), charts.LAYER, "entropy"),
        over_picture_json(MapLine.of(picture, "weights", query=0)),
        over_picture_json(MapLine.of(boxes_on_a_picture(), "weights", query=0)),
        heads_over_picture_json(MapLine.of(picture, "weights")),
    ]
    metas = [figure["layout"]["meta"] for figure in figures]
    check_keys(metas, message_contract.Meta)
    check_keys([meta["grid"] for meta in metas if "grid" in meta], message_contract.Grid)
    check_keys([meta["panel_grid"] for meta in metas if "panel_grid" in meta], message_contract.PanelGrid)
    check_keys([meta["blocks"] for meta in metas if "blocks" in meta], message_contract.Blocks)


def test_every_message_has_the_declared_fields() -> None:
    layer = TypedText("the cat sat on the mat").trace().layers[0]
    check_keys([made := live_inputs(layer, 0) or {}], message_contract.Live)
    sent = [unpack_message(pack([], Surroundings(made)))]
    for page, source in (("app.py", "typed text"), ("app.py", "notebook"), ("pages/heads.py", "model")):
        app = AppTest.from_file(str(ROOT / page), default_timeout=60)
        app.query_params["source"] = source  # without the notebooks, a note about it
        app.run()
        messages = [component.proto.bytes for component in app.get("bidi_component")]
        sent += [unpack_message(message) for message in messages if b'"controls":' in message]
    check_keys(sent, message_contract.Message)
    check_keys([control for message in sent for control in message["controls"]], message_contract.Control)
    check_keys([tab for message in sent for tab in message["strip"] or ()], message_contract.StepTab)
    if "notebook" in source_kinds():
        check_keys([message["override"] for message in sent if message["override"]], message_contract.OverrideNote)
    check_keys([message["line"] for message in sent if message["line"]], message_contract.Line)
