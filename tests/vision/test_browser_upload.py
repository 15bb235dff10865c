"""A picture in a real browser: requested by a link, uploaded, exchanged for one of ours, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlencode

import pytest
from conftest import act_and_settle, painted_numbers, running_process, wait_until_settled
from margins import approx
from PIL import Image
from playwright.sync_api import Page, expect
from test_browser import query
from tiny_pictures import TinyPictureModels, encoded, noise

from attention import Model
from attention.files.picture import Picture
from attention.vision.examples import example_picture

pytestmark = [pytest.mark.browser, pytest.mark.long]  # a server with models that read pictures

Open = Callable[..., Page]
PHOTO = encoded(Image.fromarray(noise(64, 48)), "PNG")
NAME = f"photo.png:{Picture.of(PHOTO).digest}"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyPictureModels:
    models = TinyPictureModels(tmp_path_factory.mktemp("picture models in a browser"))
    models("ViT")
    return models


@pytest.fixture(scope="module")
def lab(models: TinyPictureModels) -> Iterator[str]:
    """A server that offers the model."""
    with running_process(LAB_MODELS=str(models.folder)) as (address, _):
        yield address


def upload(page: Page, content: bytes, name: str = "photo.png") -> None:
    payload = {"name": name, "mimeType": "image/png", "buffer": content}
    act_and_settle(page, lambda: page.locator("[class*=st-key-image_upload] input[type=file]").set_input_files([payload]))  # fmt: skip


def expect_maps_of(page: Page, models: TinyPictureModels, image: object) -> None:
    weights = Model(models("ViT"), image=image).trace().layers[0].weights[0]
    page.wait_for_function("document.querySelectorAll('.figures .js-plotly-plot').length > 1")
    maps = page.evaluate(
        "[...document.querySelectorAll('.figures .js-plotly-plot')].flatMap((plot, i) => plot.layout.images?.length ? [] : [i])"
    )
    assert painted_numbers(page, maps[1]) == approx(weights.numpy())


def test_link_asks_for_its_picture_which_is_uploaded_and_exchanged(
    open_page: Open, lab: str, models: TinyPictureModels
) -> None:
    page = open_page(f"{lab}/?{urlencode({'source': 'model', 'model': 'ViT', 'image': NAME})}")
    expect(page.get_by_text("which is not on this server: upload it to open the link")).to_be_visible()
    upload(page, PHOTO[:200])
    expect(page.get_by_text("is broken or cut off")).to_be_visible()
    upload(page, PHOTO)
    expect(page.get_by_alt_text("photo.png")).to_be_visible()
    expect(page.get_by_text("is broken or cut off")).to_have_count(0)
    expect_maps_of(page, models, PHOTO)
    assert query(page)["image"] == NAME

    act_and_settle(page, lambda: page.get_by_role("radio", name="two cats").click())
    expect(page.get_by_alt_text("two cats, one awake and one asleep")).to_be_visible()
    expect_maps_of(page, models, example_picture("two-cats"))
    assert query(page)["image"] == "example:two-cats"
    page.go_back()
    expect(page.get_by_alt_text("photo.png")).to_be_visible()
    wait_until_settled(page)
    expect_maps_of(page, models, PHOTO)

    # Another page keeps the picture; another browser is asked for it.
    page.get_by_role("link", name="Heads", exact=True).click()
    expect(page.get_by_alt_text("photo.png")).to_be_visible()
    wait_until_settled(page)
    assert query(page)["image"] == NAME
    other = open_page(page.url, fresh=True)
    expect(other.get_by_text("The link shows the picture “photo.png”")).to_be_visible()


def test_picture_is_uploaded_on_a_phone(open_page: Open, lab: str, models: TinyPictureModels) -> None:
    page = open_page(f"{lab}/?source=model&model=ViT&image={NAME}", viewport={"width": 390, "height": 844})
    field = page.locator("[class*=st-key-image_upload]")
    expect(field).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    upload(page, PHOTO)
    expect_maps_of(page, models, PHOTO)
