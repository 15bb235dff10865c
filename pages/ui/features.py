"""What each feature adds to the pages: `PANELS` in pages/ui/<feature>/__init__.py, read by the first run of a page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

from attention.features import NAMES


class Script(NamedTuple):
    """A page of the menu.

    Attributes:
        order: its place in the menu, which is sorted by this number.
        path: its script, such as "pages/circuits.py".
        title: its title in the menu.
    """

    order: int
    path: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Panels:
    """What one feature adds to the pages.

    Attributes:
        scripts: the scripts of its pages.
    """

    scripts: tuple[Script, ...] = ()


@cache
def panels() -> tuple[Panels, ...]:
    """What the features that are here add, in the order of `attention.features.NAMES`."""
    names = (name for name in NAMES if find_spec(f"pages.ui.{name}"))
    return tuple(import_module(f"pages.ui.{name}").PANELS for name in names)
