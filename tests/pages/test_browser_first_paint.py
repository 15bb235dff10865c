"""Pages arrive with our styles, so that the layout does not shift while they load."""

from __future__ import annotations

from urllib.request import urlopen

import pytest

from pages.ui.server.assets import NO_SIDEBAR, STYLES, _index_page

WARM: set[str] = set()


@pytest.mark.quick
@pytest.mark.parametrize("query", ["lock=1", "text=a&present=temperature", "embed=true"])
def test_page_without_a_sidebar_reserves_no_room_for_it(query: str) -> None:
    assert STYLES in _index_page(f"/heads?{query}")
    assert NO_SIDEBAR in _index_page(f"/heads?{query}")
    assert "margin-left: 300px" not in _index_page(f"/heads?{query}")
    assert "margin-left: 300px" in _index_page("/heads")
    assert "html[data-sidebar=open] [data-testid=stSkipToContent]" in _index_page("/"), "its sidebar is folded"
    assert _index_page("/heads").count("</style></body>") == 1


@pytest.mark.sample(1)
@pytest.mark.browser
@pytest.mark.parametrize("path", ["", "heads", "?explore_mask=true", "?compare=1", "learn?chapter=softmax", "?lock=1"])
def test_layout_does_not_shift_while_phones_load_a_page(open_page, server: str, path: str) -> None:
    if server not in WARM:  # the server must have run a page before
        open_page(f"{server}/")
        WARM.add(server)
    if not path:  # the pages of the server have the styles; other files are unchanged
        assert STYLES in urlopen(f"{server}/heads").read().decode()
        assert urlopen(f"{server}/_stcore/health").read() == b"ok"
    page = open_page(f"{server}/{path}", cold=True, viewport={"width": 390, "height": 844})
    assert page.evaluate("window.shifted") < 0.1
