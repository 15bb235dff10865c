"""Relevance of the input tokens for one logit, which the weights alone do not give: AttnLRP, and attention × gradient, also as a map of each layer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.base import cache
from attention.base.errors import ConfigError, MissingError, ShapeError
from attention.base.printed import Printed, bracketed, format_number, product
from attention.base.tokens import isolated, label
from attention.circuits.sweep import check_ids
from attention.explanation.derived import DerivedMap
from attention.explanation.explanation import Explanation, ExplanationBuilder
from attention.formula.names import MAP_AXES
from attention.formula.steps import Step
from attention.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from attention.models.loaded import LoadedModel


@dataclass(frozen=True)
class _Method:
    """A method of relevance.

    Attributes:
        name: as in calls and links.
        title: its name on pages.
        caveat: what it does not show, in a sentence.
        paper: its source.
    """

    name: str
    title: str
    caveat: str
    paper: str


ATTNLRP = _Method(
    "attnlrp",
    "AttnLRP",
    "AttnLRP depends on its rules: another rule for the softmax or the products gives other numbers, and a token with much relevance "
    "need not be a cause of the prediction.",
    "Achtibat et al. 2024, AttnLRP: Attention-Aware Layer-Wise Relevance Propagation for Transformers",
)
ATTENTION_GRADIENT = _Method(
    "attention-gradient",
    "attention × gradient",
    "Attention × gradient keeps positive parts only, so it hides what lowers the logit; it ignores values and MLPs, and a token with "
    "much relevance need not be a cause of the prediction.",
    "Chefer, Gur and Wolf 2021, Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers",
)
METHODS = (ATTNLRP, ATTENTION_GRADIENT)
"""Every method, in the order of the menu."""

_PART_WORDS = {
    "other embeddings": "of other embeddings such as positions",
    "biases": "of biases",
    "softmax": "that the rule for the softmax keeps, which reaches no token",
}

STEP = Step(
    ATTENTION_GRADIENT.name, "R", "R", MAP_AXES[1:], "R + Ā R over the layers, Ā = mean of (A ⊙ ∂logit/∂A)⁺ over the heads", "probability"
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Relevance:
    """The relevance of each input token for the logit of one token.

    Attributes:
        tokens: the tokens that the model reads: subword pieces, with special tokens.
        values: the relevance of each token, [query_pos]. By AttnLRP, signed parts of the logit; by attention × gradient, the row of
            the last of the `maps` at `position`, which contains 1 for the token at `position` itself.
        position: the position of the prediction.
        target: the id of the target.
        target_token: the target as text.
        other_parts: by AttnLRP, the name and relevance of everything that does not reach a token; with the `values` they add up to
            the logit. Empty for attention × gradient.
        heads: by AttnLRP, the relevance of each head's output, [head] for each layer.
        gradients: by attention × gradient, the mean over heads of the positive part of A ⊙ ∂logit/∂A, [query_pos key_pos] for each layer.
        maps: by attention × gradient, R = R + Ā R after each layer, beginning with the identity, [query_pos key_pos].
    """

    method: _Method
    tokens: tuple[str, ...]
    values: Tensor
    position: int
    target: int
    target_token: str
    logit: float
    other_parts: tuple[tuple[str, float], ...] = ()
    heads: tuple[Tensor, ...] = ()
    gradients: tuple[Tensor, ...] = ()
    maps: tuple[Tensor, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in (self.values, *self.heads, *self.gradients, *self.maps))

    @property
    def total(self) -> float:
        """The sum over the tokens and all other parts; by AttnLRP the logit."""
        return math.fsum([*self.values.tolist(), *(value for _, value in self.other_parts)])

    @property
    def most_relevant(self) -> int:
        """The position of the most relevant token, by absolute value; by attention × gradient, of another token than at `position`."""
        values = self.values.abs().tolist()
        others = [i for i in range(len(values)) if self.method is ATTNLRP or i != self.position]
        return max(others or [self.position], key=lambda i: values[i])

    @property
    def summary(self) -> str:
        """The result in two or three sentences."""
        quantity = f"logit {format_number(self.logit)} of {isolated(label(self.target_token, escape=False))}"
        index = self.most_relevant
        best = f"{isolated(label(self.tokens[index], escape=False))} (token {index}): {format_number(float(self.values[index]))}"
        text = f"Most relevant for the {quantity} at token {self.position} is {best}."
        if self.other_parts:
            parts = [f"{format_number(float(self.values.sum()))} of the tokens"]
            parts += [
                f"{format_number(value)} {_PART_WORDS[name]}" for name, value in self.other_parts if name in _PART_WORDS
            ]
            text += f" The logit is the sum of {', '.join(parts[:-1])} and {parts[-1]}."
        return text

    @property
    def summary_of_heads(self) -> str:
        """The head with the largest relevance, in a sentence; empty for attention × gradient."""
        pairs = [(layer, head) for layer, values in enumerate(self.heads) for head in range(len(values))]
        if not pairs:
            return ""
        best = max(pairs, key=lambda pair: abs(float(self.heads[pair[0]][pair[1]])))
        value = format_number(float(self.heads[best[0]][best[1]]))
        return (
            f"The output of L{best[0]} H{best[1]} has the largest relevance: {value}. Relevance passes through several layers, so those of "
            "heads do not add up."
        )

    def frame_of_heads(self) -> pd.DataFrame:
        """A row for each head with the relevance of its output; by attention × gradient none."""
        import pandas as pd

        rows = [
            (layer, head, value)
            for layer, values in enumerate(self.heads)
            for head, value in enumerate(values.tolist())
        ]
        return pd.DataFrame(rows, columns=["layer", "head", "relevance"])

    def frame(self) -> pd.DataFrame:
        """A row for each token, and one for each other part."""
        import pandas as pd

        rows: list[tuple[int | None, str, float]] = [
            (i, token, value) for i, (token, value) in enumerate(zip(self.tokens, self.values.tolist(), strict=True))
        ]
        rows += [(None, f"({name})", value) for name, value in self.other_parts]
        frame = pd.DataFrame(rows, columns=["position", "token", "relevance"])
        return frame.astype({"position": "Int64"})


def _find_method(name: str) -> _Method:
    for method in METHODS:
        if method.name == name:
            return method
    raise MissingError(
        f"a method of relevance is one of {', '.join(method.name for method in METHODS)}; got {name!r}: choose one of them."
    )


def relevance(
    trace: Trace, method: str = ATTNLRP.name, target: str | int | None = None, position: int | None = None
) -> Relevance:
    """The relevance of each token that the model of a trace reads, for the logit of one token at one position.

    The model runs once forward and once backward, in float32 and without the trace's changed knobs.

    Args:
        trace: of a `Model`, without interventions.
        method: "attnlrp" or "attention-gradient".
        target: a token, as text or id, or as the label of one of the ten likeliest; None: the likeliest.
        position: the position of the prediction; None: the last of the text, or the last mask.

    Raises:
        ConfigError: there is no such position or target, the trace has interventions, or the pass takes too much memory or time.
        MissingError: the trace is not of a model, or there is no such method.
        ModelError: the method does not apply to this model.
        TextError: the target is not one token.
    """
    chosen = _find_method(method)
    loaded, inputs, max_bytes = _model_of(trace, chosen)
    place, target_id = _resolve(trace, loaded, inputs, target, position)
    key = ("relevance", chosen.name)
    return cache.memoize(
        trace.layers[0].uid,
        key,
        (place, target_id),
        lambda: _compute(chosen, loaded, inputs, place, target_id, max_bytes),
    )


def estimate_seconds(trace: Trace, method: str = ATTNLRP.name) -> float:
    """The estimated seconds of `relevance`, without running it.

    Raises:
        AttentionError: as for `relevance`.
    """
    from attention.circuits import relevance_pass
    from attention.models import lm_head

    loaded, inputs, _ = _model_of(trace, _find_method(method))
    return relevance_pass.estimate_seconds(loaded, len(lm_head.predicted_text_ids(inputs)))


def _model_of(trace: Trace, method: _Method) -> tuple[LoadedModel, dict[str, Tensor], int]:
    from attention.sources.repeated_run import TransformerRun

    run = trace.model_run
    if not isinstance(run, TransformerRun):
        raise MissingError(
            f"{method.title} runs a transformers model backwards, and this trace has none: choose the source “model”."
        )
    if run.source.interventions:
        raise ConfigError(
            f"{method.title} is computed in the unchanged model, and this one has interventions: remove them."
        )
    return run.loaded, run.inputs, run.source.max_bytes


def _resolve(
    trace: Trace, loaded: LoadedModel, inputs: dict[str, Tensor], target: str | int | None, position: int | None
) -> tuple[int, int]:
    from attention.models import lm_head, running

    positions = lm_head.prediction_positions(loaded, inputs, () if position is None else (position,))
    if not positions:
        raise ConfigError(lm_head.no_prediction_reason(loaded, positions))
    place = positions[-1]
    known = next((prediction for prediction in trace.predictions if prediction.position == place), None)
    if isinstance(target, str):
        labels = [label(token, escape=False) for token in known.tokens] if known else []
        is_listed = known is not None and labels.count(target) == 1
        target = known.ids[labels.index(target)] if known and is_listed else lm_head.parse_token(loaded, target)[0]
    if target is None:
        if known is None:
            with lm_head.logits_at((place,)):
                output = running.run(loaded, inputs)
            (known,) = lm_head.read_predictions(loaded, inputs, output, (place,))
        target = known.ids[0]
    check_ids(loaded.name, lm_head.vocabulary_size(loaded), (target,))
    return place, target


def _compute(
    method: _Method, loaded: LoadedModel, inputs: dict[str, Tensor], position: int, target: int, max_bytes: int
) -> Relevance:
    import torch

    from attention.circuits import relevance_pass
    from attention.models import lm_head
    from attention.models.token_pieces import readable_tokens

    ids = lm_head.predicted_text_ids(inputs)
    tokens, target_token = tuple(readable_tokens(loaded.tokenizer, ids)), readable_tokens(loaded.tokenizer, [target])[0]
    if method is ATTNLRP:
        logit, values, other_parts, heads = relevance_pass.token_relevance(loaded, inputs, position, target, max_bytes)
        return Relevance(method, tokens, values, position, target, target_token, logit, other_parts, heads)
    logit, gradients = relevance_pass.gradient_maps(loaded, inputs, position, target, max_bytes)
    accumulated, maps = torch.eye(len(ids)), list[torch.Tensor]()
    for combined in gradients:
        accumulated = accumulated + combined @ accumulated
        maps.append(accumulated)
    values = maps[-1][position].double()
    return Relevance(
        method, tokens, values, position, target, target_token, logit, gradients=gradients, maps=tuple(maps)
    )


def gradient_map(result: Relevance) -> DerivedMap:
    """Attention × gradient, which `relevance(trace, "attention-gradient")` computed, as a map of each layer."""

    def compute(trace: Trace, layer: int, _: int) -> Tensor:
        if len(trace.layer(layer).tokens) != len(result.tokens):
            raise ShapeError(
                f"{ATTENTION_GRADIENT.title} is a map of the {len(result.tokens)} tokens that the model reads; this layer has "
                f"{len(trace.layer(layer).tokens)}: show subword tokens and special tokens."
            )
        return result.maps[layer]

    words = (
        f"How much each token contributes at each position, through this layer and all before it, to raising the logit of "
        f"{label(result.target_token, escape=False)} at token {result.position}; row {result.position} of the last layer is the relevance "
        f"of the tokens. {ATTENTION_GRADIENT.caveat}"
    )
    return DerivedMap(
        STEP, words, ATTENTION_GRADIENT.paper, compute, lambda work, _: _explain(work, result), lambda _, layer: tuple(range(layer + 1))
    )  # fmt: skip


def _explain(work: ExplanationBuilder, result: Relevance) -> Explanation:
    """The sum R[q, k] + Σ Ā[q, m] R[m, k] with R before this layer; before the first layer it is the identity."""
    layer, row, column = work.cell.layer, work.cell.row, work.cell.column
    combined: list[float] = result.gradients[layer][row].double().tolist()
    if layer == 0:
        before = [float(m == column) for m in range(len(combined))]
    else:
        before = result.maps[layer - 1][:, column].double().tolist()
    summands = [before[row], *(a * b for a, b in zip(combined, before, strict=True))]

    def piece(i: int, digits: int) -> Printed:
        return bracketed(before[row], digits) if i == 0 else product(combined[i - 1], before[i - 1], digits)

    earlier = f"R^{{({layer - 1})}}" if layer else "I"
    words = (
        f"What key {column} contributed to position {row} before layer {layer}, plus what it contributed to every position, times "
        f"the attention × gradient from query {row} to that position (positive parts, mean over the heads)."
    )
    tex = rf"{earlier}_{{{row},{column}}} + \sum_m \bar A_{{{row},m}} \, {earlier}_{{m,{column}}}"
    return work.from_sum(summands, piece, tex, words, lambda _: ())
