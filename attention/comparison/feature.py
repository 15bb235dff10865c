"""What this feature adds to the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.comparison.comparison import Difference
from attention.features import Feature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attention.pictures.marks import Spec


def _figures(shown: object) -> Sequence[Spec]:
    if not isinstance(shown, Difference):
        return ()
    from attention.comparison.figures import difference_maps

    return difference_maps(shown)


FEATURE = Feature(name="comparison", figures=_figures)
