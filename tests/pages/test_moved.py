"""Addresses and state files of former pages open the place that has them now, with their whole state."""

from functools import partial

import pytest
from conftest import component_message, redirected, state_of_address
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest
from test_pages import here, opened

from pages.ui.page import share
from pages.ui.server.moved import former_pages

STATE = "text=a%20b+%C3%A9&temperature=0.5&lock=1&embed=true&embed_options=dark_theme&embed_options=show_padding"
FORMER = {
    "circuits": ("heads", "heads_inside=true"),
    "compare": ("", "compare=1"),
    "lessons": ("learn", ""),
    "masks": ("", "explore_mask=true"),
    "softmax": ("learn", "chapter=softmax"),
}


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("folder", ["/", "/teaching/lab/"])
@pytest.mark.parametrize("name", FORMER)
def test_former_address_leads_to_the_new_one_with_its_whole_query(name: str, folder: str, method: str) -> None:
    app = Starlette(routes=[], middleware=[Middleware(partial(partial, former_pages))])
    client = TestClient(app, root_path=folder.rstrip("/"), follow_redirects=False)
    page, opening = FORMER[name]
    for end, up in (("", "./"), ("/", "../")):
        answer = client.request(method, f"{folder}{name}{end}?{STATE}")
        assert (answer.status_code, answer.content) == (307, b"")
        assert answer.headers["Location"] == f"{up}{page}?{STATE}{'&' * bool(opening)}{opening}"
        bare = client.request(method, f"{folder}{name}{end}").headers["Location"]
        assert bare == f"{up}{page}{'?' * bool(opening)}{opening}"


def test_named_differences_stay_and_empty_ones_are_those_of_the_beginning() -> None:
    assert redirected("/compare?compare=temperature%3D0.3") == "/?compare=temperature%3D0.3"
    assert redirected("/compare?compare=&seed=1") == "/?compare=&seed=1&compare=1"


@pytest.mark.parametrize("address", ["/", "/heads", "/export/masks.csv", "/masks/x", "/app/static/1/compare.js"])
def test_other_addresses_are_passed_on(address: str) -> None:
    async def answer(_: object) -> PlainTextResponse:
        return PlainTextResponse("here")

    app = Starlette(
        routes=[Route("/{path:path}", answer, methods=["GET", "POST"])],
        middleware=[Middleware(partial(partial, former_pages))],
    )
    client = TestClient(app, follow_redirects=False)
    assert client.get(f"{address}?a=b").text == "here" == client.post("/masks").text


def from_file(page: str, **state: str) -> tuple[str, dict[str, str]]:
    return share._read_state(share._write_state(page, state).encode())


@pytest.mark.quick
def test_state_files_of_former_pages_and_titles() -> None:
    assert from_file("Lab", seed="3") == ("Explore", {"seed": "3"})
    assert from_file("Compare", seed="3") == ("Explore", {"seed": "3", "compare": "1"})
    assert from_file("Compare", compare="seed=4") == ("Explore", {"compare": "seed=4"})
    assert from_file("Masks", mask="causal") == ("Explore", {"mask": "causal", "explore_mask": "true"})
    assert from_file("Circuits", text="a") == ("Heads", {"text": "a", "heads_inside": "true"})
    if here("pages/learn.py"):
        assert from_file("Softmax", softmax_row="1, 2") == ("Learn", {"softmax_row": "1, 2", "chapter": "softmax"})
        assert from_file("Learn", chapter="masks") == ("Learn", {"chapter": "masks"})


def follow(address: str) -> AppTest:
    path, _, query = redirected(address).partition("?")
    return opened(f"{f'pages{path}.py' if path != '/' else 'app.py'}?{query}")


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FORMER)
def test_former_link_keeps_locks_and_the_open_knobs_of_a_projector(name: str) -> None:
    if not here(f"pages/{FORMER[name][0] or 'heads'}.py"):
        pytest.skip("the page was taken away with its feature")
    app = follow(f"/{name}?lock=1&mask=causal&seed=3")
    assert not app.exception
    assert all(button.disabled for button in app.button)
    assert not app.selectbox
    app = follow(f"/{name}?present=temperature.mask&mask=causal&seed=3")
    assert not app.exception
    assert all(button.disabled for button in app.button)
    if name != "lessons":
        assert state_of_address(app)["mask"] == "causal"
        controls = component_message(app)["controls"]
        assert {"temperature", "mask"} <= {*controls} <= {"temperature", "mask", "window", "prefix"}
    asked = follow(f"/{name}?ask=x&seed=3")
    assert state_of_address(asked)["ask"] == "x"
