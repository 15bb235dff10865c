"""The four matrices of each head with the norms around them folded in: what a head copies and what it matches, without a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class LayerMatrices:
    """The matrices of one layer in float32, with the linear part of the norms before and after it folded in.

    A norm is a linear map times a scale that depends on the text. The linear map is folded in: the weights of the norm, and the
    subtraction of the mean in a LayerNorm, which is also taken from what W_O writes. The scale is left out, as are all biases. The norm of
    each query and key, where a family has one, is folded into W_Q and W_K in the same way. These are
    the matrices that TransformerLens makes when it loads a model. A head that shares its key and value has its own copy.

    Attributes:
        name: the name of the layer, such as "layer 3".
        n_heads: the number of query heads.
        w_q: [head d_model d_k]; None if unknown.
        w_k: [head d_model d_k]; None if unknown.
        w_v: [head d_model d_v]; None if unknown.
        w_o: [head d_v d_model]; None if unknown.
        normalize: the input norm without its weights and biases, for rows [… d_model].
        rotations: rotation matrices [pos d_k d_k] of some positions, by which query and key rows are multiplied from the right; None
            without rotary embedding.
        no_ov_reason: why W_V or W_O is unknown, in a sentence; empty if both are known.
        no_qk_reason: why W_Q, W_K or the rotation is unknown, in a sentence; empty if all are known.
        no_logits_reason: why the output of this layer has no linear path to the logits, in a sentence; empty if it has one.
    """

    name: str
    n_heads: int
    w_q: Tensor | None = None
    w_k: Tensor | None = None
    w_v: Tensor | None = None
    w_o: Tensor | None = None
    normalize: Callable[[Tensor], Tensor] = field(default=lambda rows: rows)
    rotations: Callable[[Sequence[int]], Tensor] | None = None
    no_ov_reason: str = ""
    no_qk_reason: str = ""
    no_logits_reason: str = ""


class HeadMatrices(Protocol):
    """The matrices of all heads of a model, and its vocabulary."""

    @property
    def uid(self) -> int | None:
        """Identifies the model in cache keys; None if nothing is worth caching."""

    @property
    def n_heads(self) -> tuple[int, ...]:
        """The number of query heads in each layer."""

    @property
    def no_vocabulary_reason(self) -> str:
        """Why there is no linear map from a token through a head to the logits, in a sentence; empty if there is one."""

    def layer(self, index: int) -> LayerMatrices:
        """The matrices of one layer, computed when they are requested."""

    def token_product(self, center_unembed: bool) -> Tensor:
        """Final norm · W_U · W_E, [d_model d_model]: from the residual stream to the logits, and by the rows of W_E back.

        With `center_unembed` the mean over the vocabulary is subtracted from W_U.
        """

    def estimated_seconds(self) -> float:
        """The estimated seconds of `token_product`; 0 once it is cached."""

    def embedding(self, token: int, layer: int) -> Tensor:
        """The residual stream of a single token as a head of this layer reads it, [d_model]."""

    def logits(self, vector: Tensor) -> Tensor:
        """What a vector of the residual stream adds to each logit through final norm and W_U, without the scale of the norm: [token]."""

    def find_token(self, text: str) -> int:
        """The id of the one token that a text stands for.

        Raises:
            TextError: the text is no token, or several.
        """

    def token_names(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The tokens with these ids, in readable form."""
