"""Everything after Q and K as a value: what a knob turns, and what makes the steps from the scores on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attention.formula.by_hand import ByHand
from attention.formula.dropping import Dropping
from attention.formula.mask import Mask
from attention.formula.what_if import OWN, WhatIf

if TYPE_CHECKING:
    from attention.formula.config import AttentionConfig


@dataclass(frozen=True)
class Formula:
    """How weights come from queries and keys. A field that is None, 0 or empty takes its step out of the formula.

    Attributes:
        score: how a query is compared with a key, one of `attention.formula.scores.SCORES`.
        rotary: the base of the angles by which queries and keys are turned (RoPE).
        divisor: of the scores; None where a source divides by nothing and has no such step.
        temperature: 0 to infinity, times the divisor; 0 is argmax, infinity is uniform over the visible keys.
        cap: what no score goes beyond: cap · tanh(score / cap).
        bias: what is added to the scores, one of `attention.formula.biases.BIASES`.
        share: how weights come from scores, one of `attention.formula.shares.SHARES`; empty where the scores themselves mix
            the values.
        mask: which keys a query may attend to; None where the source has its mask recorded, or none.
        dropping: which weights are dropped.
        own_divisor: what a source divides by instead of √d_k, wherever the scores are scaled.
        by_hand: what was done to heads inside their model.
        heads: those that have another formula, each with it; whatever says one head's asks `of`.
    """

    score: str = "dot"
    rotary: float | None = None
    divisor: float | None = 1.0
    temperature: float = 1.0
    cap: float | None = None
    bias: str = ""
    share: str = "softmax"
    mask: Mask | None = None
    dropping: Dropping = Dropping()
    own_divisor: float | None = None
    by_hand: ByHand = ByHand()
    heads: tuple[tuple[int, Formula], ...] = ()

    def of(self, head: int) -> Formula:
        """The formula of one head."""
        return dict(self.heads).get(head) or (replace(self, heads=()) if self.heads else self)

    @property
    def changed(self) -> bool:
        """Whether some head has another formula than the others, or something was done to it by hand."""
        return bool(self.heads) or self.by_hand != ByHand()

    @property
    def keeps(self) -> bool:
        """Whether of some head's output another goes on than it made."""
        return any(one.by_hand.keeps for one in (self, *dict(self.heads).values()))

    @property
    def settings(self) -> dict[str, float]:
        """Its numbers by the names that exported files have for them."""
        return {"divisor": self.divisor or 1.0, "temperature": self.temperature, **self.dropping.settings}

    def turned(self, config: AttentionConfig | WhatIf, d_k: int) -> Formula:
        """The formula with the knobs after the scores as `config` has them; padding stays padding."""
        from attention.formula.scores import SCORES

        if isinstance(config, WhatIf):
            heads = tuple((head, one.turned(config, d_k)) for head, one in self.heads)
            return replace(self, **self.what_if(config), heads=heads)
        real = None if self.mask is None else self.mask.real
        divisor = self.own_divisor or SCORES[self.score].divisor(d_k)
        return replace(
            self,
            divisor=self.divisor and (divisor if config.scaled else 1.0),
            temperature=float(config.temperature),
            cap=config.cap,
            share=self.share and config.share,
            mask=replace(config.hiding, real=real),
            dropping=self.dropping if self.dropping.given else config.dropping,
        )

    def what_if(self, config: WhatIf) -> dict[str, Any]:
        """The fields that become others with the knobs of `config`; padding stays padding."""
        changed: dict[str, Any] = {}
        if config.mask != OWN:
            changed["mask"] = replace(config.hiding, real=None if self.mask is None else self.mask.real)
        if self.divisor is not None:
            changed["temperature"] = float(self.temperature * config.temperature)
            changed["divisor"] = self.divisor if config.scaled else 1.0
        elif config.temperature != 1:  # what divides by nothing (T5, OPT) divides by the temperature alone
            changed |= {"temperature": float(config.temperature), "divisor": 1.0}
        return changed
