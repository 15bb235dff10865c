"""Pictures as input on the pages: links with a picture of ours, uploads, and models that read none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pytest
from conftest import component_message, state_of_address
from margins import approx
from PIL import Image
from streamlit.testing.v1 import AppTest
from test_pages import PAGES, drawn, opened, said
from tiny_models import TinyModels
from tiny_pictures import FAMILIES, IN_TEXT, WITH_TEXT, TinyPictureModels, encoded, noise, png_header

from attention import Model
from attention.base.cache import CACHE
from attention.base.errors import AttentionError, AwaitedError, FileError
from attention.base.progress import Watcher
from attention.circuits.sweep import sweep_heads
from attention.explanation import tables
from attention.files import reading_cost
from attention.files.picture import Picture
from attention.media import media, medium_of
from attention.models.folder import TEXT_ALONE
from attention.models.library import LIBRARY
from attention.sources.registry import all_knobs, source_of
from attention.vision.examples import EXAMPLES, example_picture
from pages.ui.exports import links, route
from pages.ui.exports.links import Tab
from pages.ui.page import share
from pages.ui.server import traces
from pages.ui.server.limits import LIMITS
from pages.ui.state import input_field


def png(seed: int = 0) -> bytes:
    """A small picture as a file."""
    return encoded(Image.fromarray(noise(seed=seed)), "PNG")


def many_scans(n_scans: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    content = encoded(Image.new("L", (64, 48), 128), "JPEG", progressive=True)
    last, end = content.rfind(b"\xff\xda"), content.rfind(b"\xff\xd9")
    return content[:end] + content[last:end] * n_scans + content[end:]


PHOTO = png()


def uploaded(app: AppTest, name: str, content: bytes, key: str = "") -> AppTest:
    """The page after an upload of a picture."""
    key = key or next(field.key for field in app.file_uploader if field.key.startswith("image_upload"))
    app.file_uploader(key=key).upload(name, content, "image/png").run()
    assert not app.exception
    return app


def weights(app: AppTest) -> Any:
    """The painted weights."""
    maps = (figure for figure in drawn(app) if not figure["layout"].get("images"))
    return next(figure for figure in maps if figure["layout"]["meta"]["step"] == "weights")["data"][0]["z"]


def knob_state_of(app: AppTest) -> dict[str, str]:
    """The values in the address of a page."""
    return {key: value for key, value in state_of_address(app).items() if isinstance(value, str)}


def said_of_link(app: AppTest) -> str:
    """What the buttons that copy a link are sent."""
    return " ".join(str(element.proto) for element in app.get("bidi_component"))


class NamedModels(TinyPictureModels):
    """The same models by the names of their folders, which the menu of the page offers."""

    def __call__(self, family: str) -> str:
        """The name of a family's model."""
        super().__call__(family)
        return family


@pytest.fixture
def models(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> NamedModels:
    folder = Path(tmp_path_factory.getbasetemp()) / "picture models on pages"
    monkeypatch.setattr(LIBRARY, "settings", replace(LIBRARY.settings, folder=folder))
    return NamedModels(folder)


@pytest.fixture
def of_texts(models: NamedModels, tiny: TinyModels) -> str:
    """The name of a model of texts beside them."""
    link = models.folder / "GPT-2"
    if not link.exists():
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(tiny("GPT-2"))
    return link.name


def test_example_pictures_are_the_same_everywhere() -> None:
    assert {name: example_picture(name).digest for name in EXAMPLES} == {
        "circle-and-square": "dec58ecb4d2abaad1108ff049614edc5",
        "two-cats": "d8a0290a867d2c89cfb61a8fae420085",
        "odd-patch": "9cc339cb5c657a00363c5d3203740026",
    }


def test_unknown_example_picture_is_refused_in_one_sentence() -> None:
    with pytest.raises(FileError, match="one of circle-and-square, two-cats, odd-patch; got 'cat': choose"):
        example_picture("cat")


@pytest.mark.parametrize("family", ["ViT", "CLIP", "LLaVA"])
def test_link_with_an_example_opens_a_picture_model(models: NamedModels, family: str) -> None:
    link = {"source": "model", "model": models(family), "image": "example:two-cats"}
    app = opened("app.py", **link)
    assert not app.error
    assert drawn(app)
    assert state_of_address(app)["image"] == "example:two-cats"
    assert [area.label for area in app.text_area] == ([] if family == "ViT" else ["Text"])
    source, notes = source_of(link, LIMITS)
    assert source.image == example_picture("two-cats")
    assert notes == ()


def test_picture_model_begins_with_an_example(models: NamedModels) -> None:
    app = opened("app.py", source="model", model=models("DINOv2"))
    assert drawn(app)
    assert "image" not in state_of_address(app)


def test_unknown_picture_in_a_link_is_replaced_and_said(models: NamedModels) -> None:
    app = opened("app.py", source="model", model=models("ViT"), image="example:dog")
    assert "image is one of example:circle-and-square" in said(app).replace("\\", "")
    assert drawn(app)


def test_newer_knobs_follow_that_of_the_picture_in_links() -> None:
    order = [
        "image",
        "attn_mask",
        "mask_means",
        "axes",
        "table_means",
    ]  # knobs of other media and features stand among them
    assert [knob.key for knob in all_knobs() if knob.key in order] == order


def test_uploaded_picture_is_shown_with_its_name_and_digest(models: NamedModels) -> None:
    app = uploaded(opened("app.py", source="model", model=models("ViT")), "photo.png", PHOTO)
    assert not app.error
    assert state_of_address(app)["image"] == f"photo.png:{Picture.of(PHOTO).digest}"
    np.testing.assert_array_equal(weights(app), Model(models("ViT"), image=PHOTO).trace().layers[0].weights[0])
    assert "12 × 8; 2 × 3 patches \\(rows × columns\\) of 4 × 4 pixels" in " ".join(
        caption.value for caption in app.caption
    )
    assert "“photo.png” (20 × 13 pixels" in " ".join(caption.value for caption in app.caption).replace("\\", "")
    assert app.file_uploader[0].value is None, "the field is empty again"
    assert "is not in the link: send it too" in said_of_link(app)
    assert "is not in the link" not in said_of_link(opened("app.py", source="model", model=models("ViT")))


@pytest.mark.sample(5)
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("family", ["ViT", "CLIP", "LLaVA"])
def test_every_page_opens_with_a_picture_model(models: NamedModels, page: str, family: str) -> None:
    app = opened(page, source="model", model=models(family), layer="1")
    assert not app.exception
    assert not app.error


@pytest.mark.parametrize("page", PAGES)
def test_uploaded_picture_is_shown_on_every_page(models: NamedModels, page: str) -> None:
    app = uploaded(opened(page, source="model", model=models("DINOv2")), "photo.png", PHOTO)
    assert not app.error
    assert state_of_address(app)["image"].startswith("photo.png:")


def test_link_asks_for_its_picture_and_labels_a_substitute(models: NamedModels) -> None:
    link = {"source": "model", "model": models("ViT"), "image": f"photo.png:{Picture.of(PHOTO).digest}", "layer": "1"}
    app = opened("app.py", **link)
    assert "The link shows the picture “photo.png”" in said(app)
    assert "which is not on this server: upload it to open the link" in said(app).replace("\\", "")
    assert not app.error
    assert not drawn(app)
    uploaded(app, "photo.png", PHOTO)
    assert drawn(app)
    assert state_of_address(app)["layer"] == "1"
    substitute = uploaded(opened("app.py", **link), "photo.png", png(1))
    assert "is not the same picture as in the link" in said(substitute)
    assert drawn(substitute)
    with pytest.raises(AwaitedError, match=r"The link shows the picture “photo\.png”"):
        source_of(link, LIMITS)


@pytest.mark.parametrize("family", ["ViT", "LLaVA"])
def test_upload_named_like_an_example_is_asked_for(models: NamedModels, family: str) -> None:
    app = opened("app.py", source="model", model=models(family), text="the owl", image=f"example:odd.png:{'0' * 32}")
    assert not app.exception
    assert "upload it to open the link" in " ".join(each.value for each in (*app.error, *app.info, *app.warning))


def test_locked_link_asks_for_its_picture_then_hides_the_field(models: NamedModels) -> None:
    app = opened("app.py", source="model", model=models("ViT"), image="photo.png:" + "0" * 32, lock="1")
    uploaded(app, "photo.png", PHOTO)
    assert drawn(app)
    assert not app.file_uploader


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"<svg/>", "got an SVG"),
        (PHOTO[:100], "broken or cut off"),
        (png_header(4_000, 4_000), "at most 12,500,000 pixels; got 4,000 × 4,000"),
        (b"\x89PNG\r\n\x1a\n" + bytes(8 * 2**20), "at most 8 MB"),
        (many_scans(60), "at most 50 scans"),
    ],
)
def test_refused_picture_gets_a_sentence_and_changes_nothing(models: NamedModels, content: bytes, sentence: str) -> None:  # fmt: skip
    app = uploaded(opened("app.py", source="model", model=models("ViT"), image="example:two-cats"), "x.png", content)
    assert sentence in " ".join(error.value for error in app.error).replace("\\", "")
    assert drawn(app)
    assert state_of_address(app)["image"] == "example:two-cats"
    uploaded(app, "photo.png", PHOTO)
    assert not app.error


def test_picture_without_room_in_memory_is_refused(models: NamedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    app = opened("app.py", source="model", model=models("ViT"))
    monkeypatch.setattr(reading_cost, "_LIGHT_BYTES", 0)
    monkeypatch.setattr(traces, "make_room", lambda needs: needs)
    monkeypatch.setattr(traces, "room", lambda: 0)
    uploaded(app, "photo.png", PHOTO)
    assert "and this server has 0 MB left" in app.error[0].value.replace("\\", "")


def test_second_state_has_a_picture_of_its_own(models: NamedModels) -> None:
    app = opened("app.py", source="model", model=models("ViT"), compare="image=example:two-cats")
    assert not app.error
    assert [uploader.key for uploader in app.file_uploader if "image" in uploader.key] == ["image_upload_0", "second_image_upload_0"]  # fmt: skip
    uploaded(app, "photo.png", PHOTO, "second_image_upload_0")
    name = f"photo.png:{Picture.of(PHOTO).digest}"
    assert dict(parse_qsl(state_of_address(app)["compare"])) == {"image": name}
    assert "image" not in state_of_address(app)
    assert not app.error
    first, second = (Model(models("ViT"), image=image) for image in (example_picture("circle-and-square"), PHOTO))
    difference = second.trace().layers[0].weights[0] - first.trace().layers[0].weights[0]
    assert drawn(app)[-1]["data"][0]["z"] == approx(difference)
    assert "is not in the link: send it too" in said_of_link(app)
    app = opened("app.py", source="model", model=models("ViT"), compare=urlencode({"image": name}))
    assert "There is no B: The link shows the picture “photo.png”" in said(app).replace("\\", "")


@pytest.mark.parametrize("more", [{"lock": "1"}, {"editing": "A"}])
def test_missing_picture_of_b_has_its_field(models: NamedModels, more: dict[str, str]) -> None:
    second = urlencode({"image": f"photo.png:{Picture.of(PHOTO).digest}"})
    app = opened("app.py", source="model", model=models("ViT"), compare=second, **more)
    assert "There is no B" in said(app)
    uploaded(app, "photo.png", PHOTO, "second_image_upload_0")
    assert not app.error
    assert "second_image" not in str([field.key for field in app.file_uploader])


def test_models_of_texts_have_no_field_for_a_picture(of_texts: str, models: NamedModels) -> None:
    app = opened("app.py", source="model", model=of_texts, image="example:two-cats")
    assert not app.error
    assert drawn(app)
    assert not [uploader.key for uploader in app.file_uploader if "image" in uploader.key]
    app.selectbox(key="model").set_value(models("ViT")).run()
    assert drawn(app)
    assert not app.text_area
    app.selectbox(key="model").set_value(of_texts).run()
    assert drawn(app)
    assert app.text_area(key="text").value


def test_state_file_names_its_picture_and_asks_for_it(models: NamedModels) -> None:
    app = uploaded(opened("app.py", source="model", model=models("ViT")), "photo.png", PHOTO)
    state = {**knob_state_of(app), "source": "model", "model": models("ViT")}
    page, texts = share._read_state(share._write_state("Explore", state).encode())
    assert (page, texts["image"]) == ("Explore", f"photo.png:{Picture.of(PHOTO).digest}")
    assert "The link shows the picture “photo.png”" in said(opened("app.py", **texts))


def test_tab_keeps_pictures_up_to_its_memory(models: NamedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_field, "GIVEN_MB", 2.5 * len(PHOTO) / 2**20)
    app = opened("app.py", source="model", model=models("ViT"))
    for seed in range(4):
        uploaded(app, f"{seed}.png", png(seed))
    kept = app.session_state["session"].uploaded_inputs
    assert [name.partition(":")[0] for _, name in kept] == ["2.png", "3.png"]


def test_names_of_pictures_in_links() -> None:
    assert medium_of("image").link_name(example_picture("two-cats")) == "example:two-cats"
    assert medium_of("image").link_name(Picture.of(PHOTO, "a:b.png")) == f"a:b.png:{Picture.of(PHOTO).digest}"
    assert medium_of("image").link_name(Picture.of(Image.fromarray(noise()))) == ""
    assert Model("x", image=example_picture("two-cats")).no_link_reason == ""
    assert Model("x", image=PHOTO).no_link_reason == ""
    assert "save it as a PNG" in Model("x", image=Image.fromarray(noise())).no_link_reason


def test_config_alone_says_what_a_model_reads(models: NamedModels, of_texts: str, tmp_path: Path) -> None:
    for family in FAMILIES:
        path, reads = models(family), LIBRARY.inputs(models(family))
        assert reads[:4] == (family in WITH_TEXT, media()[0], family in IN_TEXT, family in IN_TEXT), family
        LIBRARY.get(path)
        assert LIBRARY.inputs(path) == reads, family
    assert LIBRARY.inputs(of_texts) == TEXT_ALONE
    for number, text in enumerate(
        ("", "[]", '{"model_type": "vit", "architectures": 3}', '{"vision_config": 1}', "{" * 10**5)
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text(text)
        assert LIBRARY.inputs(str(folder)).text is ("vit" not in text)
    for architecture, reads_text in (("CLIPModel", True), ("CLIPForImageClassification", False)):
        (folder / "config.json").write_text(f'{{"model_type": "clip", "architectures": ["{architecture}"]}}')
        assert LIBRARY.inputs(str(folder))[:4] == (reads_text, media()[0], False, False)
    assert LIBRARY.inputs("nothing of this name") == LIBRARY.inputs("\0") == TEXT_ALONE


def test_model_without_any_input_names_what_it_reads(models: NamedModels, of_texts: str) -> None:
    for model, message in (
        (Model(models("ViT")), "reads a picture: give it as image="),
        (Model(models("CLIP")), "reads a picture and a text: give both"),
        (Model(of_texts), "The text needs at least one word; got nothing"),
    ):
        with pytest.raises(AttentionError, match=message):
            model.trace()


def test_cached_trace_counts_its_picture_file(models: NamedModels) -> None:
    small, large = png(3), png(3) + bytes(2**20)  # the same pixels
    traces = [Model(models("ViT"), image=content).trace() for content in (small, large)]
    assert traces[1].nbytes - traces[0].nbytes == 2**20


def test_cache_keys_hold_no_picture_files(models: NamedModels) -> None:
    other = Model(models("DINOv2"), image=png(1))
    results = [
        list(sweep_heads(Model(models("DINOv2"), image=png(seed), other=other), kind="head_output"))[-1].result
        for seed in (2, 3)
    ]
    assert results[0] is not None
    assert results[1] is not None
    assert not np.array_equal(results[0].change, results[1].change)
    assert "Picture(" in repr(other)
    assert "Picture(" not in " ".join(map(repr, CACHE.cache))


def test_photo_is_decoded_once_for_a_trace(models: NamedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    LIBRARY.get(models("CLIP vision"))  # tried with a picture of its own
    decoded: list[int] = []
    original = Picture.pixels
    monkeypatch.setattr(Picture, "pixels", lambda self: (decoded.append(1), original(self))[1])
    model = Model(models("CLIP vision"), image=png(7))
    model.memory_bytes()
    model.prepare()
    model.trace()
    assert len(decoded) == 1


def test_export_of_an_upload_needs_its_open_tab(models: NamedModels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tab, "open", property(lambda _: True))
    picture = Picture.of(PHOTO, "photo.png")
    name = medium_of("image").link_name(picture)
    tab = links._TABS["picture"] = Tab("session", "picture", given={("image", name): picture})
    state = {"source": "model", "model": models("ViT"), "image": name}

    def found(**more: str) -> Any:
        return route._find("weights.csv", urlencode({**state, **more}).encode())

    _, *pieces = found(token="picture").pieces(Watcher("picture", ""))  # made in a job
    assert "".join(pieces) == "".join(tables.csv(Model(models("ViT"), image=picture).trace(), "weights"))
    with pytest.raises(AwaitedError):
        found()
    del tab  # with its session
    with pytest.raises(links.GoneError):
        found(token="picture")
    assert found(token="picture", image="example:two-cats")


@pytest.mark.parametrize("page", ["app.py", "pages/heads.py?heads_inside=true", "app.py?compare=1"])
def test_pages_with_a_control_of_the_picture_draw_it(models: NamedModels, page: str) -> None:
    app = opened(page, source="model", model=models("ViT"), step="value", over="column", heat="0.3", q="2", k="7")
    assert not app.exception
    message = component_message(app, last=True)
    assert [message["controls"][name]["value"] for name in ("over", "heat")] == ["column", "0.3"]
    figure = next(figure for figure in drawn(app) if "reads" in figure["layout"]["meta"].get("grid", {}))
    assert figure["layout"]["meta"]["grid"]["reads"] == "key"
    assert figure["data"][0]["opacity"] == 0.3


def test_generated_text_has_one_word_for_a_picture(models: NamedModels) -> None:
    app = opened("app.py", source="model", model=models("LLaVA"), text="an <image> owl", generate="2")
    (line,) = (html.body for html in app.get("html") if "class='generated'" in html.body)
    assert line.count("[picture]") == 1
    assert "patch row" not in line
    assert line.count("▸") == 2


def test_model_of_pictures_alone_has_no_pieces_of_words(models: NamedModels) -> None:
    def has_field(family: str) -> bool:
        return "Pieces as words" in [
            field.label for field in opened("app.py", source="model", model=models(family)).toggle
        ]

    assert has_field("CLIP")
    assert not has_field("ViT")
