"""The formula of the steps after Q and K, as a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attention.core.dropout import Dropout
from attention.core.head_edits import HeadEdits
from attention.core.mask import Mask
from attention.core.override import SOURCE_MASK, Override

if TYPE_CHECKING:
    from attention.core.config import AttentionConfig


@dataclass(frozen=True)
class Formula:
    """The steps from queries, keys and values to the output. A field that is None, 0 or empty removes its step.

    Attributes:
        score: the function that compares a query with a key, one of `attention.core.scores.SCORES`.
        rotary: the base of the angles by which queries and keys are rotated (RoPE).
        divisor: the divisor of the scores; None: the source does not divide them and has no such step.
        temperature: 0 to infinity, multiplies the divisor; 0 is argmax, infinity is uniform over the visible keys.
        cap: limit of the scores: cap · tanh(score / cap).
        bias: the bias added to the scores, one of `attention.core.biases.BIASES`.
        normalizer: the normalizer from scores to weights, one of `attention.core.normalizers.NORMALIZERS`; empty: the scores
            themselves multiply the values.
        mask: which keys a query may attend to; None: the source recorded its mask, or has none.
        dropping: dropout of the weights.
        own_divisor: the source's divisor of scaled scores, if it is not √d_k.
        head_edits: edits of heads inside their model.
        heads: (head, formula) of the heads with a formula of their own; `for_head` returns the formula of any head.
    """

    score: str = "dot"
    rotary: float | None = None
    divisor: float | None = 1.0
    temperature: float = 1.0
    cap: float | None = None
    bias: str = ""
    normalizer: str = "softmax"
    mask: Mask | None = None
    dropping: Dropout = Dropout()
    own_divisor: float | None = None
    head_edits: HeadEdits = HeadEdits()
    heads: tuple[tuple[int, Formula], ...] = ()

    def for_head(self, head: int) -> Formula:
        """The formula of one head."""
        return dict(self.heads).get(head) or (replace(self, heads=()) if self.heads else self)

    @property
    def is_edited(self) -> bool:
        """Whether some head is edited, or has a formula of its own."""
        return bool(self.heads) or self.head_edits != HeadEdits()

    @property
    def patches_output(self) -> bool:
        """Whether any head's output is replaced before W_O."""
        return any(formula.head_edits.patches_output for formula in (self, *dict(self.heads).values()))

    @property
    def settings(self) -> dict[str, float]:
        """The numbers of the formula, by their names in exported files."""
        return {"divisor": self.divisor or 1.0, "temperature": self.temperature, **self.dropping.settings}

    def with_config(self, config: AttentionConfig | Override, d_k: int) -> Formula:
        """The formula with the values of `config` for the knobs after the scores; padding stays hidden."""
        from attention.core.scores import SCORES

        if isinstance(config, Override):
            heads = tuple((head, formula.with_config(config, d_k)) for head, formula in self.heads)
            return replace(self, **self.overridden_fields(config), heads=heads)
        real = None if self.mask is None else self.mask.real
        divisor = self.own_divisor or SCORES[self.score].divisor(d_k)
        return replace(
            self,
            divisor=self.divisor and (divisor if config.scaled else 1.0),
            temperature=float(config.temperature),
            cap=config.cap,
            normalizer=self.normalizer and config.normalizer,
            mask=replace(config.mask_rule, real=real),
            dropping=self.dropping if self.dropping.is_provided else config.dropping,
        )

    def overridden_fields(self, config: Override) -> dict[str, Any]:
        """The fields that the overrides of `config` change, with their new values; padding stays hidden."""
        changed: dict[str, Any] = {}
        if config.mask != SOURCE_MASK:
            changed["mask"] = replace(config.mask_rule, real=None if self.mask is None else self.mask.real)
        if self.divisor is not None:
            changed["temperature"] = float(self.temperature * config.temperature)
            changed["divisor"] = self.divisor if config.scaled else 1.0
        elif config.temperature != 1:  # a source without divisor (T5, OPT) divides by the temperature only
            changed |= {"temperature": float(config.temperature), "divisor": 1.0}
        return changed
