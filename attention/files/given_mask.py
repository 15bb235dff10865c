"""A mask that somebody else made: what its numbers mean and what its axes are, in one rule for files and typed matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from attention.base.errors import ConfigError, ShapeError
from attention.files.archives import format_shape
from attention.formula.names import KEY, QUERY

if TYPE_CHECKING:
    from torch import Tensor

MEANINGS = ("numbers", "keep", "hide", "add")
"""What 1 means in a mask: what its numbers say; a key that is kept; a key that is hidden; nothing, since the numbers are added to the scores."""
FAR = 5000
"""A number so far below the largest of its row leaves a weight of exactly 0, also in double precision."""
_AXES = ("layer", "head", QUERY, KEY)
# By the number of axes: which of `_AXES` these may be, the first that fits.
_READINGS = {1: ((3,),), 2: ((2, 3), (0, 3)), 3: ((0, 2, 3), (1, 2, 3)), 4: ((0, 1, 2, 3),)}


class MaskSizes(NamedTuple):
    """The lengths of the axes that a mask may have; `layers` is None if nothing else has an axis of layers."""

    layers: int | None
    heads: int
    queries: int
    keys: int

    @classmethod
    def of(cls, layers: int | None, lengths: Mapping[str, int]) -> MaskSizes:
        """The lengths of a layer, by axis."""
        heads = lengths.get("head", lengths.get("kv_head", 1))
        return cls(layers, heads, lengths.get("query_pos", 1), lengths.get("key_pos", 1))


class _LayerMask(NamedTuple):
    """The mask of one layer: `visible` [query_pos key_pos], or `bias` [head query_pos key_pos]; `python` computes the latter from the array {0}."""

    visible: Tensor | None
    bias: Tensor | None
    python: str


@dataclass(frozen=True, eq=False)
class GivenMask:
    """A mask of SDPA, `nn.MultiheadAttention`, a tokenizer or a model, as it is read.

    A mask of truth values, or of 0 and 1, keeps the keys with 1, as in `scaled_dot_product_attention` and a tokenizer's
    `attention_mask`. Other numbers are added to the scores; a number far below the others of its row hides the key.

    Attributes:
        cells: the mask as given, [layer head query_pos key_pos]; an axis of length 1 is shared.
        sizes: the lengths of these axes.
        axes: the axes as given, such as "head query key".
        meaning: "keep", "hide" or "add".
        note: what was decided, in a sentence; empty for truth values that let every query see a key.
    """

    cells: Tensor
    sizes: MaskSizes
    axes: str
    meaning: str
    note: str
    _layers: dict[int, _LayerMask] = field(default_factory=dict)

    @classmethod
    def of(cls, mask: Tensor, sizes: MaskSizes, meaning: str = "numbers", name: str = "mask") -> GivenMask:
        """The mask with these axes and this meaning, one of `MEANINGS`; a name of torch decides what "numbers" leaves open.

        In a key_padding_mask, as in any mask of `nn.MultiheadAttention`, 1 hides a key; in an attn_mask too, where keeping the keys with 1
        would let a query see none, and hiding them would not.

        Raises:
            ConfigError: another meaning.
            ShapeError: NaN or +∞; or the axes fit neither the scores nor one part of them.
        """
        if meaning not in MEANINGS:
            raise ConfigError(
                f"mask_means is one of {', '.join(MEANINGS)}; got {str(meaning)[:20]!r}: choose one of them."
            )
        invalid = mask.isnan() | (mask == math.inf)
        if bool(invalid.any()):
            place = ", ".join(map(str, invalid.nonzero()[0].tolist()))
            raise ShapeError(
                f"mask needs truth values, or numbers that can be added to scores; got {float(mask[invalid][0]):g} at [{place}]: "
                "write 0 where a key is seen and −∞ where it is hidden, or true and false."
            )
        cells, axes = _arranged(mask, sizes)
        is_truth = str(mask.dtype) == "torch.bool"
        is_binary = is_truth or bool(((mask == 0) | (mask == 1)).all() and (mask == 1).any())
        by_name = _hides_by_name(name, cells) and meaning == "numbers"
        found = meaning if meaning != "numbers" else "add" if not is_binary else "hide" if by_name else "keep"
        if found == "add":
            return cls(cells.double(), sizes, axes, found, _added_note(cells))
        keeps = found == "keep"
        unseen = int((((cells != 0) == keeps).sum(-1) == 0).sum())
        one = "True" if is_truth else "1"
        label = name if by_name else "mask"
        note = f"In {label}, {one} {'keeps' if keeps else 'hides'} a key{', as in nn.MultiheadAttention' * by_name}"
        if unseen:
            rows = "1 query sees no key" if unseen == 1 else f"{unseen:,} queries see no key"
            other, means = ("hide", "nn.MultiheadAttention") if keeps else ("keep", "scaled_dot_product_attention")
            note += f", and {rows} at all. {means} means the opposite: {_otherwise(f'1 {other}s the key', other)}."
        elif is_truth and keeps:
            note = ""
        else:
            otherwise = _otherwise("added to the scores", "add")
            note += f", as in a tokenizer's attention_mask; if it is to be added, {otherwise}." if keeps else "."
        return cls(cells, sizes, axes, found, note)

    def of_layer(self, layer: int) -> _LayerMask:
        """The mask of one layer: visible cells if all heads share them and nothing else is added, otherwise a bias."""
        index = layer if len(self.cells) > 1 else 0
        if index not in self._layers:
            of_layer = f"[{index}]" if self.axes.startswith("layer") else ""
            of_batch = f"[:{self.sizes.heads}]" if self.axes.startswith("batch ·") else "[0]"
            given = f"{{0}}{of_batch if 'batch' in self.axes else of_layer}"
            self._layers[index] = self._read(self.cells[index], given)
        return self._layers[index]

    def put_into(self, recorded: Mapping[str, Tensor], layer: int) -> dict[str, Tensor]:
        """The tensors of a layer with the mask as it is read: its cells, or a bias beside the one that is there."""
        visible, bias, _ = self.of_layer(layer)
        if visible is not None:
            return {**recorded, "mask": visible & recorded["mask"] if "mask" in recorded else visible}
        assert bias is not None
        return {**recorded, "bias": bias + recorded["bias"] if "bias" in recorded else bias}

    def as_bias(self, bias: Tensor | None = None) -> Tensor:
        """The mask of the first layer as a bias [head query_pos key_pos], −∞ where it hides, beside another one."""
        import torch

        visible, own, _ = self.of_layer(0)
        if own is None:
            assert visible is not None
            own = torch.zeros(visible.shape, dtype=torch.float64).masked_fill(~visible, -math.inf)
        return own.expand(self.sizes.heads, -1, -1) if bias is None else own + bias

    def _read(self, cells: Tensor, given: str) -> _LayerMask:
        import torch

        if self.meaning == "add":
            far = cells < cells.amax(-1, keepdim=True) - FAR
            hidden = far | (cells == -math.inf)
            bias, is_zero = cells.masked_fill(hidden, -math.inf), not cells.masked_fill(hidden, 0).any()
            python = given = f"{given}.double()"
            if bool((far & (cells > -math.inf)).any()):
                python = f"{given}.masked_fill({given} < {given}.amax(-1, keepdim=True) - {FAR}, -math.inf)"
        else:
            hidden = (cells == 0) == (self.meaning == "keep")
            bias, is_zero = torch.zeros(cells.shape, dtype=torch.float64).masked_fill(hidden, -math.inf), True
            python = f"torch.where({given} {'!=' if self.meaning == 'keep' else '=='} 0, 0.0, -math.inf)"
        if is_zero and bool((hidden == hidden[:1]).all()):
            return _LayerMask(~hidden[0].expand(self.sizes.queries, -1), None, python)
        return _LayerMask(None, bias.expand(self.sizes.heads, self.sizes.queries, -1), python)


def _hides_by_name(name: str, cells: Tensor) -> bool:
    """Whether 1 hides a key in a mask of truth values, or of 0 and 1, by its name in torch."""
    if name.endswith("key_padding_mask"):
        return True
    sees = cells != 0
    return name.endswith("attn_mask") and not bool(sees.any(-1).all()) and bool((~sees).any(-1).all())


def _otherwise(label: str, meaning: str) -> str:
    return f"choose “The mask means: {label}”, in Python mask_means=“{meaning}”"


def _added_note(cells: Tensor) -> str:
    if not bool(cells.any()):
        return "mask is 0 everywhere: added to the scores, it hides nothing."
    largest = cells.amax(-1)
    if bool(((largest < -FAR) & largest.isfinite()).any()):
        return "The numbers of mask are added to the scores; a row in which every number is far below 0 hides nothing, since all are shifted."
    if bool(((cells == 0) | (cells < -FAR)).all()):
        return "The numbers of mask are added to the scores: 0 keeps a key, and the others hide it."
    return "The numbers of mask are added to the scores, as a bias; −∞, and what is far below the rest of its row, hides a key."


def _arranged(mask: Tensor, sizes: MaskSizes) -> tuple[Tensor, str]:
    """The mask as [layer head query_pos key_pos], and the axes as which it was read."""
    shape, lengths = mask.shape, (sizes.layers or 1, *sizes[1:])
    for reading in _READINGS.get(mask.ndim, ()):
        fits = all(n == lengths[axis] or (n == 1 and axis != 3) for n, axis in zip(shape, reading, strict=True))
        # One axis before [query key] is that of heads, unless the file has as many layers.
        if fits and (reading != (0, 2, 3) or shape[0] == sizes.layers):
            whole = [1, 1, 1, 1]
            for length, axis in zip(shape, reading, strict=True):
                whole[axis] = length
            return mask.reshape(whole), " ".join(_AXES[axis] for axis in reading)
    # A batch: the sentences that the file does not have, or all heads of all of them, as nn.MultiheadAttention takes them.
    if mask.ndim > 1 and not sizes.layers and shape[-1] == sizes.keys:
        per_head = mask.ndim == 3 and sizes.heads > 1 and shape[0] % sizes.heads == 0
        sentence = mask.reshape(-1, sizes.heads, *shape[1:]) if per_head else mask
        if bool((sentence == sentence[:1]).all()) and len(sentence) > 1:
            cells, axes = _arranged(sentence[0], sizes)
            return cells, f"batch · {axes}" if per_head else f"batch {axes}"
        part = f"mask[:{sizes.heads}]" if per_head else "mask[0]"
        raise ShapeError(
            f"mask is {format_shape(tuple(shape))}, which would be that of {len(sentence):,} sentences; the scores are of one, "
            f"{sizes.heads} × {sizes.queries} × {sizes.keys}: save the mask of that sentence, such as {part}."
        )
    raise ShapeError(
        f"mask is {format_shape(tuple(shape)) or 'one number'}, but the scores are [head query key] = {sizes.heads} × {sizes.queries} × {sizes.keys}"
        f"{f' in {sizes.layers} layers' if sizes.layers else ''}: give it as [query key], [head query key], or [key] for padding."
    )
