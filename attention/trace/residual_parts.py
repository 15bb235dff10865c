"""The parts of a model that write into its residual stream."""

from __future__ import annotations

from dataclasses import dataclass

from attention.formula.names import EMBEDDING

KINDS = EMBEDDED, HEAD, MLP, _BIASES, _LEFT_OVER = EMBEDDING, "head", "mlp", "bias", "rounding"
"""What a part can be, in the order of a layer."""
LOGITS = "logits"
"""The name under which a run records the vectors that the unembedding turns into logits."""
NO_UNEMBEDDING = (
    "what a part adds to a logit is the product of its vector and a row of the unembedding; this model predicts no tokens, or has a "
    "non-linear layer before them: choose a model that predicts the next token."
)


@dataclass(frozen=True)
class Part:
    """One summand of the residual stream.

    Attributes:
        name: "embedding", "L0 H2", "L0 MLP", "bias" (all biases of the model together), or "rounding" (what single precision left over).
        kind: one of `KINDS`.
        layer: of a head or an MLP, as in interventions.
        head: of a head.
    """

    name: str
    kind: str
    layer: int | None = None
    head: int | None = None


EMBEDDING_PART, BIAS, ROUNDING = Part(EMBEDDED, EMBEDDED), Part(_BIASES, _BIASES), Part(_LEFT_OVER, _LEFT_OVER)


def head_part(layer: int, head: int) -> Part:
    """The part that a head writes."""
    return Part(f"L{layer} H{head}", HEAD, layer, head)


def mlp_part(layer: int, module: str = "MLP") -> Part:
    """The part that the MLP of a layer writes, or another module that a hybrid model has instead of attention, such as "mamba"."""
    return Part(f"L{layer} {module}", MLP, layer)


def order_of(part: Part) -> tuple[int, int, int]:
    """The place of a part in the order of the model: the embedding, then each layer's heads and MLP, then biases."""
    if part.layer is None:
        return (-1 if part.kind == EMBEDDED else 10**9), KINDS.index(part.kind), 0
    return part.layer, KINDS.index(part.kind), part.head or 0
