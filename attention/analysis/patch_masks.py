"""Custom masks over patches: a rectangle of patches hidden from every query, or all patches but the neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.analysis.patch_box import PatchBox
from attention.core.mask import Mask

if TYPE_CHECKING:
    from attention.core.layer import Layer
    from attention.core.tensor_types import Visible


def hide_patches(layer: Layer, head: int, patches: str) -> str:
    """The mask of a head with some patches hidden from every query, in the encoding of `attention.core.mask_tensor.encode`.

    Args:
        layer: a layer whose keys are patches.
        head: the head.
        patches: a rectangle, as `PatchBox` reads it.

    Raises:
        ConfigError: it is none, or no key is one of these patches.
    """
    from attention.core import mask_tensor

    hidden = PatchBox.parse(patches).hide_from(visible_of(layer, head), layer.key_tokens)
    return mask_tensor.encode(hidden)


def near_patches(layer: Layer, head: int, size: int) -> str:
    """The mask of a head with all patches hidden but those at most `size` rows and columns away, in the same encoding.

    Raises:
        ConfigError: queries or keys have no patches.
    """
    from attention.core import mask_tensor

    window = Mask("patch window", size).build(len(layer.tokens), len(layer.key_tokens), layer.patch_places)
    return mask_tensor.encode(visible_of(layer, head) & window)


def visible_of(layer: Layer, head: int) -> Visible:
    """The visible cells of a head, boolean [query_pos key_pos]; all of them if there is no mask."""
    import torch

    source = layer.for_head(head)
    mask = source.mask
    return torch.ones(len(source.tokens), len(source.key_tokens), dtype=torch.bool) if mask is None else mask
