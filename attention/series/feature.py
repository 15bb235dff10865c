"""What this feature adds to the library."""

from __future__ import annotations

from attention.features import Feature
from attention.models.ours import OurModel
from attention.series.examples import ABOUT, tiny_patchtst
from attention.series.medium import SeriesMedium

FEATURE = Feature(name="series", media=(SeriesMedium(),), models={"tiny-patchtst": OurModel(ABOUT, tiny_patchtst)})
