"""Pictures as input: the heads over a picture, and masks over its patches."""

from __future__ import annotations

from pages.ui.features import Panels
from pages.ui.vision import heads_picture, patch_mask

PANELS = Panels(
    heads_picture=heads_picture.heads_picture,
    mask_fields=patch_mask.patch_mask_fields,
    patch_field=patch_mask.patch_field,
)
"""What this feature adds to the pages."""
