"""Scripts are served from memory in one folder named by their content, behind any prefix."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urljoin

import pytest
from conftest import ROOT
from starlette.applications import Starlette
from starlette.testclient import TestClient
from streamlit import config

from pages.ui.server import assets
from pages.ui.server.assets import _index_page

SERVER = "http://testserver"


@pytest.fixture
def base_path() -> Iterator[None]:
    """A server below a path, set by Streamlit's option."""
    original = config.get_option("server.baseUrlPath")
    config.set_option("server.baseUrlPath", "/teaching/lab/")
    yield
    config.set_option("server.baseUrlPath", original)


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Scripts with changed content and an empty cache of their version."""
    scripts = {**assets._scripts(), "figure": b"// edited"}
    monkeypatch.setattr(assets, "_scripts", lambda: scripts)
    assets._version.cache_clear()
    yield
    assets._version.cache_clear()


def client() -> TestClient:
    return TestClient(Starlette(routes=assets.routes()), headers={"Accept-Encoding": "identity"})


@pytest.mark.parametrize("page", ["/", "/heads", "/teaching/lab/", "/~/+/", "/~/+/heads"])
def test_page_finds_scripts_below_its_own_folder(page: str) -> None:
    address = urljoin(f"{SERVER}{page}?text=a/b", assets._script("figure"))
    assert address == f"{SERVER}{page.rpartition('/')[0]}/app/static/{assets._version()}/figure.js"


def test_every_script_is_served_and_cacheable_for_ever() -> None:
    server = client()
    for name, content in assets._scripts().items():
        answer = server.get(assets._script(name).removeprefix("."))
        assert answer.content == content
        assert answer.headers["cache-control"] == assets._CACHE_FOREVER["Cache-Control"]
        assert answer.headers["content-type"].startswith("text/javascript")
        imported = [] if name == "plotly" else re.findall(r'(?:from|import\(?|URL\() ?"\./(\w+)\.js"', content.decode())
        assert set(imported) <= set(assets._scripts()), name
    assert set(re.findall(r"\./(\w+)\.js", assets._scripts()["message"].decode())) >= {"plotly"}


def test_scripts_are_served_below_the_base_path_only(base_path: None) -> None:
    server, path = client(), assets._script("figure").removeprefix(".")
    assert server.get(f"/teaching/lab{path}").content == assets._scripts()["figure"]
    assert server.get(path).status_code == 404


def test_scripts_are_not_compressed_anew_for_each_browser() -> None:
    path = assets._script("plotly").removeprefix(".")
    with client().stream("GET", path, headers={"Accept-Encoding": "br, gzip"}) as answer:
        assert answer.headers["content-encoding"] == "identity"  # nginx compresses them once
        assert b"".join(answer.iter_raw()) == assets._scripts()["plotly"]


@pytest.mark.parametrize("path", ["other/figure.js", "{}/none.js", "{}/figure", "{}/", "{}/../figure.js", "figure.js"])
def test_wrong_folder_or_name_is_not_found(path: str) -> None:
    answer = client().get(f"/app/static/{path.format(assets._version())}")
    assert (answer.status_code, "cache-control" in answer.headers) == (404, False)


def test_changed_contents_get_another_address(edited: None) -> None:
    address = assets._script("figure")
    assets._version.cache_clear()
    assert client().get(address.removeprefix(".")).content == b"// edited"


def test_unknown_script_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="got 'none'"):
        assets._script("none")


def test_no_address_of_ours_begins_at_the_server_root() -> None:
    paths = [path for folder in ("attention", "pages") for path in (ROOT / folder).rglob("*.*")]
    texts = {path: path.read_text() for path in (*paths, ROOT / "app.py") if path.suffix in (".js", ".css", ".py")}
    assert len(texts) > 200
    rooted = r"""(?:src|href|url|action|import|from|fetch|Worker)\s*[=(:]?\s*\(?["'`]?/(?![/*])\w|URL\(.*location\.origin|location\.origin(?:\s*\+|\})"""
    for path, text in texts.items():
        if "vendor" not in path.parts:
            assert not re.search(rooted, text), path
    tags = re.findall(r"<(?:script|link|img)[^>]* (?:src|href)=\"([^\"]+)\"", _index_page("/heads"))
    assert len(tags) > 5
    assert all(tag.startswith("./") for tag in tags)
