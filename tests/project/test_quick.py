"""The code that a test uses decides whether `make quick` runs it."""

from __future__ import annotations

import subprocess
from functools import cache, partial
from typing import Any

import pytest
from conftest import ROOT, component_message, open_page, server
from quick import uses_costly
from streamlit.testing.v1 import AppTest

from attention import Model, TypedText


def page() -> AppTest:
    return AppTest.from_file(str(ROOT / "app.py"))


def helper() -> Any:
    return [page().run() for _ in range(2)]


def importing() -> Any:
    from attention.training.network import forward

    return forward


def mutual_a() -> Any:
    return mutual_b


def mutual_b() -> Any:
    return mutual_a


class Opened:
    def run(self) -> Any:
        return subprocess.run(["true"], check=True)


@pytest.mark.parametrize(
    "value",
    [page, helper, cache(helper), partial(helper), importing, Opened, lambda: [Opened()], open_page, server,
     {"model": Model("name", "text")}, [(subprocess,)]],
)  # fmt: skip
def test_use_of_something_costly_is_found(value: Any) -> None:
    assert uses_costly(value)


@pytest.mark.parametrize(
    "value", [component_message, lambda: TypedText("a b").trace(), {"text": TypedText("a b")}, "subprocess", None]
)
def test_use_of_the_formula_alone_is_not_costly(value: Any) -> None:
    assert not uses_costly(value)


def test_mutually_recursive_functions_are_followed_once() -> None:
    assert not uses_costly(mutual_a)
