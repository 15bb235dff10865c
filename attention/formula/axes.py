"""Tensors by the names of their axes, so that a signature says its shapes. For who reads and for type checkers: it imports torch."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

Rows = Annotated[Tensor, "pos d_model"]
"""Of queries or of keys."""
HeadRows = Annotated[Tensor, "head pos d_k"]
"""The same in every head: queries, or keys and values, of which there may be fewer heads."""
Query = Annotated[Tensor, "head query_pos d_k"]
Key = Annotated[Tensor, "kv_head key_pos d_k"]
Value = Annotated[Tensor, "kv_head key_pos d_v"]

Scores = Annotated[Tensor, "head query_pos key_pos"]
"""Before the softmax or what stands for it: scaled, capped, biased, masked."""
Weights = Annotated[Tensor, "head query_pos key_pos"]
Visible = Annotated[Tensor, "query_pos key_pos"]
"""A mask: boolean, True = may attend."""
Distances = Annotated[Tensor, "query_pos key_pos"]
"""key_pos − query_pos."""

HeadOutput = Annotated[Tensor, "head query_pos d_v"]
Output = Annotated[Tensor, "query_pos d_model"]

Projection = Annotated[Tensor, "head d_model d_k"]
HeadRow = Annotated[Tensor, "head d_k"]
"""One row for each head: the bias of a projection, what weighs the columns of additive scores."""
OutputProjection = Annotated[Tensor, "head d_v d_model"]
OutputBias = Annotated[Tensor, "d_model"]
PerHead = Annotated[Tensor, "head"]
"""One number for each head: a slope, a sink."""
