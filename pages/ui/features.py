"""What each feature adds to the pages: `PANELS` in pages/ui/<feature>/__init__.py, read by the first run of a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.features import NAMES, is_here

if TYPE_CHECKING:
    from attention.explanation.derived import DerivedMap
    from pages.ui.exports.request import Export


class Script(NamedTuple):
    """A page of the menu.

    Attributes:
        order: its place in the menu, which is sorted by this number.
        path: its script, such as "pages/training.py".
        title: its title in the menu.
    """

    order: int
    path: str
    title: str


class Opener(NamedTuple):
    """A kind of file that users open beside state files.

    Attributes:
        words: what such files are.
        ending: their extension, without a dot.
        open: takes the name and the bytes of a file, in a callback; raises an `AttentionError` for one that it cannot open.
    """

    words: str
    ending: str
    open: Callable[[str, bytes], None]


class Sourceless(NamedTuple):
    """How a page shows other numbers than those of its source.

    Attributes:
        applies: whether it does now; called when links have been applied.
        intro: the sentence under the title then.
        choose: draws the choice, given the page's `Knobs`; returns the function that draws the page, given a `Page`; None if
            the page shows its source.
    """

    applies: Callable[[], bool]
    intro: str
    choose: Callable[..., Callable[..., None] | None]


class HeadMap(NamedTuple):
    """A map of several heads as one, on the page Heads.

    Attributes:
        name: its name in a link and in the menu.
        formula: its formula.
        make: returns the map for a `Page`; None while a button that it draws has not been clicked.
    """

    name: str
    formula: str
    make: Callable[..., DerivedMap | None]


def _nothing(*_: object) -> None:
    """Stands for what a feature does not add."""


@dataclass(frozen=True, kw_only=True)
class Panels:
    """What one feature adds to the pages. A function draws at the place that its attribute names.

    Attributes:
        scripts: the scripts of its pages.
        exports: its files over HTTP.
        about_explore: on Explore, in the line under the title.
        beside_maps: on Explore, given the `Page`: beside the large map.
        below_maps: on Explore, given the `Page`: below the maps.
        two_states: on Explore, given the `Page`: in place of the maps of one state, while its link has a second one; returns what draws the rest of the page.
        below_source: in the sidebar, given the source: below its knobs.
        below_figures: below all figures, given a function that returns those to save, their key, and the name of their export or "".
        missing: given the source, None on a page without one: returns a sentence about what is not in the link, and what to do.
        share: in the menu Share, given the source, the chosen cell, and the sentence about what is missing or "".
        opener: the kind of file that it opens.
        story: given a state by key: returns the address of the page that shows how its model has learned.
        sourceless: what the page Heads shows in place of the heads of its source.
        which_heads: on Heads below the picture, given the `Page`, its `Knobs` and a function that opens a head of a layer: returns
            further columns of the table of heads, as a function from the heads in order to a frame.
        head_maps: on Heads, in the menu of several heads as one map.
        inside_head: on Heads, below the picture, given the `Page` and its `Knobs`: what is inside the chosen head.
        mask_fields: below the mask that users click, given the `Page`: fields that change the mask.
        patch_field: given a key, a label, a layer and a head: a field for patches; returns the mask of the head that hides them too,
            as in a link; None, with a sentence, if it names none.
    """

    scripts: tuple[Script, ...] = ()
    exports: tuple[Export, ...] = ()
    about_explore: Callable[[], None] = _nothing
    beside_maps: Callable[..., None] = _nothing
    below_maps: Callable[..., None] = _nothing
    two_states: Callable[..., Callable[[], None]] | None = None
    below_source: Callable[..., None] = _nothing
    below_figures: Callable[..., None] = _nothing
    missing: Callable[..., str | None] = _nothing
    share: Callable[..., None] = _nothing
    opener: Opener | None = None
    story: Callable[..., str | None] = _nothing
    sourceless: Sourceless | None = None
    which_heads: Callable[..., Callable[..., Any] | None] = _nothing
    head_maps: tuple[HeadMap, ...] = ()
    inside_head: Callable[..., None] = _nothing
    mask_fields: Callable[..., None] = _nothing
    patch_field: Callable[..., str | None] = _nothing


@cache
def panels() -> tuple[Panels, ...]:
    """What the features that are here add, in the order of `attention.features.NAMES`."""
    names = (name for name in NAMES if is_here(f"pages.ui.{name}"))
    return tuple(import_module(f"pages.ui.{name}").PANELS for name in names)
