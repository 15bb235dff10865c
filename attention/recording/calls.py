"""What one attention of a recorded pass gave, whoever computed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.formula import Formula


@dataclass(frozen=True, eq=False)
class Call:
    """One attention of a recorded pass.

    Attributes:
        name: the path of the module that computed it, such as "blocks.2.attn"; empty outside of all modules.
        where: the line of code, such as "model.py:31".
        steps: tensors of one element of the batch by our names of steps and parameters; those of steps have an axis of length 1 for it first. Numbers are
            those of the module, in its dtype.
        formula: computes the maps from Q and K, if the code has the steps in the order of ours; None: the steps are shown as recorded.
        notes: sentences about what was not understood, without the name and the line, which are put before them.
        provenance: explanations of recorded steps, as in `Layer`.
        batch_size: the number of elements of the module's batch.
        max_weight_error: the largest difference between the weights of the formula and those of the module; None if there are none to compare.
        is_prefix: whether its positions are the first of the tokens, since padding is left out.
        extra_keys: the names of keys that the module adds after those of its input.
    """

    name: str
    where: str
    steps: Mapping[str, Tensor]
    formula: Formula | None = None
    notes: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    batch_size: int = 1
    max_weight_error: float | None = None
    is_prefix: bool = False
    extra_keys: tuple[str, ...] = ()
