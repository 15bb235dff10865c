"""Several pictures on the pages: links with their names, uploads of several, and models that read one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pytest
from conftest import state_of_address
from margins import approx
from PIL import Image
from streamlit.testing.v1 import AppTest
from test_pages import PAGES, drawn, opened, said
from test_pictures_on_pages import PHOTO, NamedModels, knob_state_of, models, png, said_of_link, uploaded, weights
from tiny_pictures import IN_TEXT, PLACES, encoded

from attention import Model
from attention.base.errors import AwaitedError, FileError
from attention.base.progress import Watcher
from attention.explanation import tables
from attention.files.picture import Picture
from attention.media import medium_of
from attention.sources.registry import source_of
from attention.vision.examples import EXAMPLES, example_picture
from pages.ui.exports import links, route
from pages.ui.exports.links import Tab
from pages.ui.page import share
from pages.ui.server.limits import LIMITS
from pages.ui.state import input_field

__all__ = ["models"]  # a fixture
BOTH = "example:two-cats/example:odd-patch"
PICTURES = medium_of("image")
DEFAULT = PICTURES.knob.default
CATS, ODD = example_picture("two-cats"), example_picture("odd-patch")
TEXT = "the owl asked the moon"


def name(seed: int, file: str = "") -> str:
    """The name in a link of a picture of `png`."""
    return f"{file or f'{seed}.png'}:{Picture.of(png(seed)).digest}"


def uploaded_several(app: AppTest, *seeds: int, place: str = "image") -> AppTest:
    """The page after an upload of several pictures at once."""
    key = next(field.key for field in app.file_uploader if field.key.startswith(f"{place}_upload"))
    app.file_uploader(key=key).set_value([(f"{seed}.png", png(seed), "image/png") for seed in seeds]).run()
    assert not app.exception
    return app


def refused(app: AppTest) -> str:
    """The errors of the page."""
    return " ".join(error.value for error in app.error).replace("\\", "")


def several(models: NamedModels, page: str = "app.py", family: str = "LLaVA", **link: str) -> AppTest:
    """A page with a model that reads several pictures."""
    return opened(page, **{"source": "model", "model": models(family), "text": TEXT, **link})


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", IN_TEXT)
def test_link_with_two_names_opens_both_pictures(models: NamedModels, family: str) -> None:
    text = f"{PLACES[family]} the owl asked {PLACES[family]}"
    link = {"source": "model", "model": models(family), "image": BOTH, "text": text, "layer": "2"}
    app = opened("app.py", **link)
    assert not app.error
    assert state_of_address(app)["image"] == BOTH
    trace = Model(models(family), text, image=[CATS, ODD]).trace()
    np.testing.assert_array_equal(weights(app), trace.layers[2].weights[0])
    source, notes = source_of(link, LIMITS)
    assert (source.given, notes) == ((CATS, ODD), ())
    assert source.no_link_reason == ""


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_with_two_pictures(models: NamedModels, page: str) -> None:
    app = several(models, page, image=BOTH, layer="2")
    assert not app.error
    assert state_of_address(app)["image"] == BOTH


def test_uploads_are_added_and_each_is_removed(models: NamedModels) -> None:
    app = uploaded_several(several(models), 1, 2)
    assert state_of_address(app)["image"] == f"{name(1)}/{name(2)}", "the default is replaced"
    assert not app.error
    assert "are not in the link: send them too" in said_of_link(app)
    app.pills(key="image_example").set_value(["two-cats"]).run()
    assert state_of_address(app)["image"] == f"{name(1)}/{name(2)}/example:two-cats"
    app.button(key="image_remove_1").click().run()
    assert state_of_address(app)["image"] == f"{name(1)}/example:two-cats"
    app.pills(key="image_example").set_value([]).run()
    assert state_of_address(app)["image"] == name(1)
    assert not [button.key for button in app.button if str(button.key).startswith("image_remove")]
    expected = Model(models("LLaVA"), TEXT, image=Picture.of(png(1))).trace()
    np.testing.assert_array_equal(weights(app), expected.layers[0].weights[0])


def test_last_picture_of_ours_stays(models: NamedModels) -> None:
    app = several(models, image="example:two-cats")
    app.pills(key="image_example").set_value([]).run()
    assert state_of_address(app)["image"] == "example:two-cats"
    assert app.pills(key="image_example").value == ["two-cats"]


def test_fifth_picture_is_refused_and_changes_nothing(models: NamedModels) -> None:
    app = uploaded_several(several(models, image=BOTH), 1, 2, 3)
    assert "At most 4 pictures are read here; these would be 5: remove one" in refused(app)
    assert state_of_address(app)["image"] == BOTH
    app = uploaded_several(app, 1, 2)
    assert not app.error
    app.pills(key="image_example").set_value(list(EXAMPLES)).run()
    assert "these would be 5" in refused(app)
    assert "got 5 files" in refused(uploaded_several(several(models), 1, 2, 3, 4, 5))


def test_broken_file_among_several_is_named(models: NamedModels) -> None:
    app = several(models, image=BOTH)
    key = next(field.key for field in app.file_uploader)
    app.file_uploader(key=key).set_value(
        [("good.png", PHOTO, "image/png"), ("bad.png", PHOTO[:100], "image/png")]
    ).run()
    assert "“bad.png”: This PNG file is broken" in refused(app)
    assert state_of_address(app)["image"] == BOTH


def test_pictures_are_together_within_one_upload(models: NamedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    photo = encoded(Image.new("RGB", (3_000, 2_500), "white"), "PNG")  # 7.5 million pixels
    app = several(models)
    for file in ("a.png", "b.png"):
        key = next(field.key for field in app.file_uploader)
        app.file_uploader(key=key).set_value([(file, photo + file.encode(), "image/png")]).run()
    assert "at most 8 MB and 12,500,000 pixels here; got 0.1 MB and 15,000,000 pixels: remove one" in refused(app)
    assert state_of_address(app)["image"].startswith("a.png:")
    large = Picture.of(photo, "c.png")
    names = {PICTURES.link_name(picture): picture for picture in (large, Picture.of(photo + b"d", "d.png"))}
    monkeypatch.setattr("attention.media.Medium.example_of", lambda _, name: names.get(name))
    with pytest.raises(FileError, match="15,000,000 pixels"):
        source_of({"source": "model", "model": models("LLaVA"), "image": "/".join(names)}, LIMITS)


def test_text_with_another_number_of_places_says_what_to_write(models: NamedModels) -> None:
    app = several(models, image=BOTH, text="<image> asked the moon")
    assert "has 1 place for a picture (<image>), and 2 are given: write <image> once for each picture" in refused(app)
    app = several(models, image=BOTH)
    assert "write <image> where each of them should stand" in said(app).replace("\\", "")
    assert drawn(app)


def test_link_says_which_upload_it_misses(models: NamedModels) -> None:
    link = {"image": f"{name(1)}/example:two-cats/{name(2)}", "layer": "1"}
    app = several(models, **link)
    assert "The link shows the pictures “1.png” (digest" in said(app).replace("\\", "")
    uploaded_several(app, 2)
    assert "The link shows the picture “1.png” (digest" in said(app).replace("\\", "")
    assert not drawn(app)
    uploaded_several(app, 1)
    assert drawn(app)
    assert state_of_address(app)["image"] == link["image"]
    with pytest.raises(AwaitedError, match=r"“1\.png” .* and “2\.png” .*: upload them"):
        source_of({"source": "model", "model": models("LLaVA"), **link}, LIMITS)
    substitute = several(models, image=f"{name(1)}/{name(2, '3.png')}")
    uploaded_several(substitute, 3)
    assert state_of_address(substitute)["image"] == f"{name(1)}/{name(3)}"
    assert "The uploaded “3.png” is not the same picture" in said(substitute)
    substitute.button(key="image_remove_0").click().run()
    assert drawn(substitute)
    assert state_of_address(substitute)["image"] == name(3)


def test_model_that_reads_one_picture_takes_the_first(models: NamedModels) -> None:
    link = {"source": "model", "model": models("ViT"), "image": BOTH}
    app = opened("app.py", **link)
    assert "image is one picture for a model that reads one at a time: the first is used" in said(app).replace("\\", "")
    assert drawn(app)
    assert state_of_address(app)["image"] == "example:two-cats"
    source, notes = source_of(link, LIMITS)
    assert (source.given, len(notes)) == ((CATS,), 1)
    app = several(models, image=BOTH)
    app.selectbox(key="model").set_value(models("ViT")).run()
    assert state_of_address(app)["image"] == "example:two-cats"
    assert drawn(app)
    uploaded(app, "photo.png", PHOTO)
    assert state_of_address(app)["image"] == f"photo.png:{Picture.of(PHOTO).digest}"


def test_second_state_has_several_pictures_of_its_own(models: NamedModels) -> None:
    app = several(models, "app.py", image=BOTH, compare=f"image={BOTH}/example:two-cats", layer="2")
    assert not app.error
    app.button(key="second_image_remove_0").click().run()
    assert dict(parse_qsl(state_of_address(app)["compare"])) == {"image": "example:odd-patch/example:two-cats"}
    assert state_of_address(app)["image"] == BOTH
    first, second = (Model(models("LLaVA"), TEXT, image=images).trace() for images in ([CATS, ODD], [ODD, CATS]))
    difference = second.layers[2].weights[0] - first.layers[2].weights[0]
    painted = np.nan_to_num(np.array(drawn(app)[-1]["data"][0]["z"], float))  # a hidden cell has no number
    assert painted == approx(difference)
    uploaded_several(app, 1, place="second_image")
    assert not app.error
    assert dict(parse_qsl(state_of_address(app)["compare"]))["image"].endswith(f"/{name(1)}")
    app = several(models, "app.py", compare=urlencode({"image": f"{BOTH}/{name(1)}"}))
    assert "There is no B: The link shows the picture “1.png”" in said(app).replace("\\", "")
    assert drawn(uploaded_several(app, 1, place="second_image"))


def test_pictures_that_are_shown_are_never_dropped(models: NamedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_field, "GIVEN_MB", 2.5 * len(PHOTO) / 2**20)
    app = uploaded_several(several(models, "app.py", compare="1"), 1)
    for seed in (2, 3, 4):
        key = next(field.key for field in app.file_uploader if field.key.startswith("second_image_upload"))
        app.file_uploader(key=key).set_value([(f"{seed}.png", png(seed), "image/png")]).run()
        if seed > 2:  # the first replaces the default
            app.button(key="second_image_remove_0").click().run()
    kept = app.session_state["session"].uploaded_inputs
    assert list(kept) == [("image", name(seed)) for seed in (1, 3, 4)], "of those over the memory, 2 alone is not shown"
    assert not app.error


def test_export_has_both_pictures_of_its_tab(models: NamedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tab, "open", property(lambda _: True))
    pictures = {name(seed): Picture.of(png(seed), f"{seed}.png") for seed in (1, 2)}
    tab = links._TABS["pictures"] = Tab(
        "session", "pictures", given={("image", name): picture for name, picture in pictures.items()}
    )
    state = {"source": "model", "model": models("LLaVA"), "text": TEXT, "image": "/".join(pictures), "token": tab.token}
    _, *pieces = route._find("weights.csv", urlencode(state).encode()).pieces(Watcher("pictures", ""))  # made in a job
    trace = Model(models("LLaVA"), TEXT, image=[*pictures.values()]).trace()
    assert "".join(pieces) == "".join(tables.csv(trace, "weights"))


def test_state_file_names_all_pictures(models: NamedModels) -> None:
    app = several(models, image=BOTH)
    state = {**knob_state_of(app), "source": "model", "model": models("LLaVA")}
    assert share._read_state(share._write_state("Explore", state).encode())[1]["image"] == BOTH


@pytest.mark.quick
@pytest.mark.parametrize(
    ("value", "used", "words"),
    [
        (BOTH, BOTH, ""),
        ("example:dog/example:two-cats", DEFAULT, "with / between them"),
        ("/", DEFAULT, "the default is used"),
        ("/".join(["example:two-cats"] * 5), "/".join(["example:two-cats"] * 4), "at most 4 pictures: the first 4"),
        ("/".join(["x:" + "0" * 32] * 10**4), "/".join(["x:" + "0" * 32] * 4), "at most 4 pictures"),
        (f"{'x' * 2000}:{'0' * 32}", DEFAULT, "the default is used"),
        (f"a;b,c:d.png:{'0' * 32}", f"a;b,c:d.png:{'0' * 32}", ""),
    ],
)
def test_names_in_a_link_are_read_or_replaced(value: str, used: Any, words: str) -> None:
    read, note = PICTURES.knob.read(value, replace(PICTURES.knob.range, most=PICTURES.most), DEFAULT)
    assert read == used
    assert words in note
    assert bool(words) == bool(note)


@pytest.mark.quick
def test_no_name_of_a_file_has_the_separator() -> None:
    assert PICTURES.link_name(Picture.of(PHOTO, "folder/a.png")) == f"a.png:{Picture.of(PHOTO).digest}"
    assert PICTURES.link_name(Picture.of(PHOTO, "folder/")) == f"picture:{Picture.of(PHOTO).digest}"
