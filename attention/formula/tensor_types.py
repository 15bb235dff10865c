"""Tensor types named after their axes, for signatures. Imported for type checking only, since it imports torch."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

Rows = Annotated[Tensor, "pos d_model"]
"""Rows of queries or of keys."""
HeadRows = Annotated[Tensor, "head pos d_k"]
"""Such rows in every head; keys and values may have fewer heads than queries."""
Query = Annotated[Tensor, "head query_pos d_k"]
Key = Annotated[Tensor, "kv_head key_pos d_k"]
Value = Annotated[Tensor, "kv_head key_pos d_v"]

Scores = Annotated[Tensor, "head query_pos key_pos"]
"""Scores before normalization: raw, scaled, capped, biased or masked."""
Weights = Annotated[Tensor, "head query_pos key_pos"]
Visible = Annotated[Tensor, "query_pos key_pos"]
"""A mask: boolean, True = may attend."""
Distances = Annotated[Tensor, "query_pos key_pos"]
"""key_pos − query_pos."""

HeadOutput = Annotated[Tensor, "head query_pos d_v"]
Output = Annotated[Tensor, "query_pos d_model"]

Projection = Annotated[Tensor, "head d_model d_k"]
HeadRow = Annotated[Tensor, "head d_k"]
"""One row for each head: the bias of a projection, or the weights of the columns in additive scores."""
OutputProjection = Annotated[Tensor, "head d_v d_model"]
OutputBias = Annotated[Tensor, "d_model"]
PerHead = Annotated[Tensor, "head"]
"""One number for each head, such as a slope or a sink."""
