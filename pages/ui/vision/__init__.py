"""Pictures as input: masks over patches."""

from __future__ import annotations

from pages.ui.features import Panels
from pages.ui.vision import patch_mask

PANELS = Panels(
    mask_fields=patch_mask.patch_mask_fields,
    patch_field=patch_mask.patch_field,
)
"""What this feature adds to the pages."""
