"""The features: what can be taken away. Each has a folder here, one in pages/ui, one in tests, and, if it adds to the library, a declaration `FEATURE`.

The trunk never names a feature: it asks `features()` for what they add. A feature whose folder is gone is no longer there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from attention.explanation.derived import DerivedView
    from attention.export.states import State
    from attention.media import Medium, Residues
    from attention.metrics.metric import Metric
    from attention.models.ours import OurModel
    from attention.pictures.marks import Spec
    from attention.sources.reader import SourceKind

NAMES = (
    "comparison",
    "circuits",
    "vision",
    "video",
    "sound",
    "series",
    "proteins",
    "spans",
    "corpus",
    "training",
    "tutorials",
    "lessons",
    "paper",
    "demo",
    "notebook",
    "examples",
)
"""The names of all features, in the order in which what they add appears in menus, links and tables."""


@dataclass(frozen=True, kw_only=True)
class Feature:
    """What one feature adds to the library. What it adds to the pages is declared by `pages.ui.features.Panels`.

    Attributes:
        name: the name of its folder.
        metrics: numbers of heads, after those of `attention.metrics`.
        sources: where a trace comes from, after the trunk's in menus and links.
        views: maps beside the weights, as views of the Lab.
        answers: functions of a trace that the answer of a lesson may call.
        states: states of the demo, after the trunk's.
        media: what models read besides words.
        residues: of which models read chains in place of words.
        models: tiny models of ours, by name, so that each medium can be seen without a download.
        figures: the figures of an object of this feature; none for another object.
        html: what a notebook shows for an object; None for one that it shows as plain text.
    """

    name: str
    metrics: tuple[Metric, ...] = ()
    sources: tuple[SourceKind, ...] = ()
    views: tuple[DerivedView, ...] = ()
    answers: tuple[Callable[..., str], ...] = ()
    states: tuple[State, ...] = ()
    media: tuple[Medium, ...] = ()
    residues: tuple[Residues, ...] = ()
    models: Mapping[str, OurModel] = field(default_factory=dict)
    figures: Callable[[object], Sequence[Spec]] | None = None
    html: Callable[[object], str | None] | None = None


@cache
def features() -> tuple[Feature, ...]:
    """What the features that are here add. Registries ask at first use, never while modules are being imported.

    Raises:
        TypeError: the declaration of a folder is none.
    """
    here = (name for name in NAMES if is_here(f"attention.{name}"))
    return tuple(_declared(name) for name in here if is_here(f"attention.{name}.feature"))


def is_here(module: str) -> bool:
    """Whether a module or package is here. A folder without `__init__.py`, as `git rm` may leave one, is none."""
    spec = find_spec(module)
    return spec is not None and spec.has_location


def _declared(name: str) -> Feature:
    declared = import_module(f"attention.{name}.feature").FEATURE
    if not isinstance(declared, Feature) or declared.name != name:
        raise TypeError(
            f"attention/{name}/feature.py must declare FEATURE = Feature(name={name!r}, …); got {declared!r}"
        )
    return declared
