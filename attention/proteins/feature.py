"""What this feature adds to the library."""

from __future__ import annotations

from attention.features import Feature
from attention.proteins import contact_map, example
from attention.proteins.sequences import AMINO_ACIDS

FEATURE = Feature(
    name="proteins", residues=(AMINO_ACIDS,), views=(contact_map.VIEW,), models={example.NAME: example.TINY_ESM}
)
