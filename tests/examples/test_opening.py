"""The packed numbers that the bare address draws first are those that the page computes."""

from __future__ import annotations

import numpy as np
from conftest import unpack_message

from pages.ui.page import opening
from pages.ui.server.assets import OPENING


def test_packed_opening_is_what_the_page_computes() -> None:
    packed, computed = (unpack_message(message)["screen"] for message in (OPENING.read_bytes(), opening.message()))
    assert packed.keys() == computed.keys()
    for before, now in zip(packed["terms"], computed["terms"], strict=True):
        assert {name: before[name] for name in ("name", "step", "shown", "short")} == {
            name: now[name] for name in ("name", "step", "shown", "short")
        }
        np.testing.assert_allclose(before["z"], now["z"], rtol=1e-6, atol=1e-6)
    assert (packed["queries"], packed["why"], packed["where"]) == (
        computed["queries"],
        computed["why"],
        computed["where"],
    )
