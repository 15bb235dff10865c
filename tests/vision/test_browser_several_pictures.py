"""Several pictures in the sidebar of a phone: uploaded at once, each small with its own button, over the picture in one figure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from conftest import act_and_settle, boxes_of, painted_numbers, running_process, wait_until_settled
from playwright.sync_api import expect
from test_browser import Open, query
from test_pictures_on_pages import png
from tiny_pictures import TinyPictureModels

from attention import Model
from attention.files.picture import Picture
from attention.pictures.over_picture import TokenGrid

pytestmark = [pytest.mark.browser, pytest.mark.long]  # a server with models that read pictures
PHONE = {"width": 390, "height": 844}
TEXT = "<image> the owl asked <image> the moon"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return TinyPictureModels(tmp_path_factory.mktemp("several pictures"))("LLaVA")


@pytest.fixture(scope="module")
def lab(model: str) -> Iterator[str]:
    """A server that reads models of local folders."""
    with running_process(LAB_ALLOW_LOCAL_MODELS="yes") as (address, _):
        yield address


def test_phone_uploads_two_pictures_at_once_and_removes_one(
    model: str, lab: str, open_page: Open, tmp_path: Path
) -> None:
    files = [tmp_path / "first.png", tmp_path / f"{'a_very_long_name' * 9}.png"]
    for seed, file in enumerate(files):
        file.write_bytes(png(seed))
    link = {"source": "model", "model": model, "text": TEXT, "layer": "2", "q": "12", "image": "example:two-cats/example:odd-patch"}  # fmt: skip
    page = open_page(f"{lab}/?{urlencode(link)}", viewport=PHONE)
    page.get_by_test_id("stExpandSidebarButton").click()
    act_and_settle(page, page.locator(".st-key-image_remove_1 button:visible").click)
    assert query(page)["image"] == "example:two-cats"
    act_and_settle(page, lambda: page.locator(".st-key-image_box input[type=file]").set_input_files(files))
    expect(page.locator("[class*=st-key-image_row]")).to_have_count(3)
    wait_until_settled(page)
    rows = page.locator("[class*=st-key-image_row]")
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"] for box in boxes_of(rows))
    pictures, buttons = (boxes_of(rows.locator(part)) for part in ("img", "[class*=image_remove] button:visible"))
    for picture, button in zip(pictures, buttons, strict=True):
        assert button["y"] < picture["y"] + picture["height"], "the button stands beside its picture"
    act_and_settle(page, page.locator(".st-key-image_remove_0 button:visible").click)
    expect(page.locator("[class*=st-key-image_row]")).to_have_count(2)
    uploaded = [Picture.of(file.read_bytes(), file.name) for file in files]
    assert query(page)["image"] == "/".join(f"{picture.name}:{picture.digest}" for picture in uploaded)
    layer = Model(model, TEXT, image=tuple(uploaded)).trace().layers[2]
    grid = TokenGrid.of(layer.tokens)
    assert grid
    row = layer.weights[0, 12].numpy()
    visible = np.where(np.arange(len(row)) <= 12, row, np.float32(np.nan))  # the mask hides later words
    np.testing.assert_array_equal(painted_numbers(page, 0), grid.fill(visible))
    assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= PHONE["width"]
