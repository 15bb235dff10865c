"""What a head copies: the tokens that it raises when it reads a token, and its copying score, from the parameters of the model alone.

    from attention import circuits
    circuits.copied_tokens(source, layer=18, head=6, token=" copper").raised
    circuits.copying_score(source)       # [layer head]

The matrices are those of `attention.trace.model_run`: the weights of the norms are folded in, their scales and all biases left out.

Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", sections "Copying / primitive in-context learning" and
"Summarizing OV/QK matrices"; Wang et al. 2022, "Interpretability in the Wild", appendix on name movers, for the embedding after the first layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from attention.base import cache
from attention.base.errors import ConfigError, MissingError, check_index
from attention.base.printed import format_number
from attention.sources import Intervenable
from attention.trace.model_run import HeadMatrices, LayerMatrices
from attention.trace.trace import Trace

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray
    from torch import Tensor

ModelSource: TypeAlias = Trace | Intervenable
"""What every function about a head's matrices accepts; a trace of a model in memory needs that model."""

SCORE_CAVEAT = "The score averages over the whole vocabulary and leaves out every other layer: a head that copies a few names, or through a later layer, can score low, and what matters when silenced and what writes the word need not be the same head."
TOKENS_CAVEAT = "This is the direct path of one token through this head alone, at weight 1: it is not what the model predicts, which later layers and the other heads also decide, and it does not say when the head looks at this token."

_EXTREME = 0.9
_FLOPS = 4e10  # per second, of products on one thread
_EIGENVALUE_SECONDS = 6e-4  # of a 64 × 64 matrix
_PLACE = "copying scores"


@dataclass(frozen=True)
class TokenEffect:
    """What a head adds to the logit of one token.

    Attributes:
        id: the id of the token.
        token: the token in readable form.
        effect: added to its logit, without the scale of the final norm.
    """

    id: int
    token: str
    effect: float


@dataclass(frozen=True, eq=False)
class CopiedTokens:
    """What a head adds to the logits when it reads one token with weight 1.

    Attributes:
        layer: the layer of the head.
        head: the head.
        own: the token that is read, and what the head adds to its own logit.
        rank: the rank of the own token among all tokens, from 1; 1 means that the head raises no token more.
        raised: the tokens with the largest effects, largest first.
        lowered: the tokens with the smallest effects, smallest first.
        effects: of every token, [token].
    """

    layer: int
    head: int
    own: TokenEffect
    rank: int
    raised: tuple[TokenEffect, ...]
    lowered: tuple[TokenEffect, ...]
    effects: Tensor

    @cached_property
    def mean(self) -> float:
        """The mean effect over the vocabulary; a shift of all logits changes no probability."""
        return float(self.effects.double().mean())

    @property
    def description(self) -> str:
        """The result in a sentence."""
        return (
            f"Reading “{self.own.token}” with weight 1, L{self.layer} H{self.head} adds {format_number(self.own.effect)} to its own logit: "
            f"rank {self.rank:,} of {len(self.effects):,} tokens, whose mean is {format_number(self.mean)}."
        )

    def frame(self) -> pd.DataFrame:
        """The raised and the lowered tokens as a table."""
        import pandas as pd

        listed = [("raised", item) for item in self.raised] + [("lowered", item) for item in self.lowered]
        return pd.DataFrame({
            "list": [name for name, _ in listed],
            "token": [item.token for _, item in listed],
            "id": [item.id for _, item in listed],
            "added to its logit": [item.effect for _, item in listed],
        })  # fmt: skip


@dataclass(frozen=True, eq=False)
class CopyingScores:
    """The copying scores of all heads, sorted and in words.

    Attributes:
        values: [layer head]; NaN where a layer has fewer heads, or no linear path to the logits.
    """

    values: NDArray[np.float64]

    @classmethod
    def of(cls, source: ModelSource) -> CopyingScores:
        """The scores of a source, as `copying_score` has them."""
        return cls(copying_score(source).double().numpy())

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """The heads with a score, as (layer, head), in order."""
        import numpy as np

        return tuple((int(layer), int(head)) for layer, head in np.argwhere(~np.isnan(self.values)))

    def rank(self, layer: int, head: int) -> int:
        """The rank of a head, from 1, which is the largest score."""
        return int((self.values > self.values[layer, head]).sum()) + 1

    def describe(self, layer: int, head: int, centered: float | None = None) -> str:
        """The score of a head and its rank in a sentence; `centered` is the score with a centered W_U."""
        extreme = sum(abs(float(self.values[each])) > _EXTREME for each in self.heads)
        sentence = (
            f"L{layer} H{head} has copying score {format_number(float(self.values[layer, head]))}: rank {self.rank(layer, head)} of "
            f"{len(self.heads)} heads, of which {extreme} are beyond ±{_EXTREME}."
        )
        if centered is None:
            return sentence
        return f"{sentence} With the mean over the vocabulary subtracted from W_U, as TransformerLens does by default, it is {format_number(centered)}."

    def frame(self) -> pd.DataFrame:
        """The scores as a table, largest first."""
        import pandas as pd

        order = sorted(self.heads, key=lambda each: -self.values[each])
        return pd.DataFrame({
            "layer": [layer for layer, _ in order],
            "head": [head for _, head in order],
            "copying score": [float(self.values[each]) for each in order],
        })  # fmt: skip


def copied_tokens(
    source: ModelSource, layer: int, head: int, token: int | str | None = None, key: int | None = None, count: int = 10
) -> CopiedTokens:
    """The tokens that a head raises and lowers most when it reads a token: embedding · W_V · W_O · W_U.

    The embedding is the residual stream of a text that is this token alone, after the first layer; for a head of the first layer, and in
    a tiny trained model, it is the row of W_E. The input norm is applied to it. The final norm is a matrix here, without its scale: a
    positive scale changes no rank. Biases are left out.

    Args:
        source: the model, or its trace.
        layer: the layer of the head.
        head: the head.
        token: the id of the token, or its text.
        key: instead of a token, the position of one in the text of a trace.
        count: the number of raised tokens, and of lowered ones.

    Raises:
        ConfigError: the source is no model, there is no such token, or not exactly one of token and key.
        MissingError: there is no such layer, head or key, or no linear path from the head to the logits.
        TextError: the text is not exactly one token.
    """
    matrices = matrices_of(source)
    target = layer_of(matrices, layer, head)
    refuse(
        f"What L{layer} H{head} copies", target.no_ov_reason or target.no_logits_reason or matrices.no_vocabulary_reason
    )
    token_id = _token_id(source, matrices, layer, token, key)
    assert target.w_v is not None  # `no_ov_reason` is empty
    assert target.w_o is not None
    row = target.normalize(matrices.embedding(token_id, layer))
    effects = matrices.logits(row @ target.w_v[head] @ target.w_o[head])
    highest, lowest = (effects.argsort(descending=largest, stable=True)[:count].tolist() for largest in (True, False))
    names = dict(zip(ids := [*dict.fromkeys((token_id, *highest, *lowest))], matrices.token_names(ids), strict=True))

    def effect_of(id_: int) -> TokenEffect:
        return TokenEffect(id_, names[id_], float(effects[id_]))

    return CopiedTokens(
        layer, head, effect_of(token_id), int((effects > effects[token_id]).sum()) + 1,
        tuple(map(effect_of, highest)), tuple(map(effect_of, lowest)), effects,
    )  # fmt: skip


def _token_id(source: ModelSource, matrices: HeadMatrices, layer: int, token: int | str | None, key: int | None) -> int:
    """The id of a token that is given as its id, its text, or its position.

    Raises:
        ConfigError: not exactly one of token and key is given, or the source has no text with such positions.
        MissingError: there is no such key.
        TextError: the text is not exactly one token.
    """
    if (token is None) == (key is None):
        raise ConfigError(
            "What a head copies is computed for one token, or for the key at one position; got "
            f"{'neither' if token is None else 'both'}: give one of token and key."
        )
    if key is None:
        assert token is not None
        return token if isinstance(token, int) else matrices.find_token(token)
    if not isinstance(source, Trace) or source.model_run is None:
        raise ConfigError(
            f"A key is a position in the text of a trace; got {type(source).__name__}: give its trace, or a token."
        )
    ids, tokens = source.model_run.token_ids, source.layer(layer).key_tokens
    check_index("keys", key, len(tokens))
    if len(ids) != len(tokens):
        raise ConfigError(
            f"A key is one token of the model; the text is shown as {len(tokens)} keys, and the model reads {len(ids)} tokens: "
            "show subwords and special tokens as they are, or give a token."
        )
    return ids[key]


def copying_score(source: ModelSource, center_unembed: bool = False) -> Tensor:
    """The copying score of every head, Σλ / Σ|λ| over the eigenvalues λ of W_E · W_V · W_O · W_U: [layer head], from −1 to 1.

    1: every direction of the vocabulary that the head moves is moved towards itself (copied); −1: away from itself. NaN where a layer
    has fewer heads, or no linear path to the logits.

    Args:
        source: the model, or its trace.
        center_unembed: subtract the mean over the vocabulary from W_U, as TransformerLens does by default when it loads a model. No
            probability changes by it, but this score does.

    Raises:
        ConfigError: the source is no model.
        MissingError: the model has no linear path from tokens to logits.

    Source: Elhage et al. 2021, section "Summarizing OV/QK matrices": Σλ / Σ|λ|; TransformerLens, `FactoredMatrix.eigenvalues`.
    """
    matrices = matrices_of(source)
    refuse("The copying score", matrices.no_vocabulary_reason)
    return copying_scores(matrices, center_unembed)


def copying_seconds(source: ModelSource) -> float:
    """The estimated seconds of `copying_score`; 0 if it is cached.

    Raises:
        ConfigError: the source is no model.
    """
    return estimated_seconds(matrices_of(source))


def copying_scores(matrices: HeadMatrices, center_unembed: bool = False) -> Tensor:
    """Σλ / Σ|λ| over the eigenvalues λ of W_E · W_V · W_O · W_U of every head, [layer head]; NaN without a linear path to the logits.

    The nonzero eigenvalues of that matrix [token token] are those of a matrix [d_v d_v], since those of A B are those of B A.
    """
    if matrices.uid is None:
        return _compute(matrices, center_unembed)
    return cache.memoize(matrices.uid, (_PLACE, center_unembed), None, lambda: _compute(matrices, center_unembed))


def _compute(matrices: HeadMatrices, center_unembed: bool) -> Tensor:
    import torch

    scores = torch.full((len(matrices.n_heads), max(matrices.n_heads, default=0)), math.nan)
    if matrices.no_vocabulary_reason:
        return scores
    product = matrices.token_product(center_unembed)
    for index, n_heads in enumerate(matrices.n_heads):
        if not n_heads:
            continue
        layer = matrices.layer(index)
        if not (layer.no_ov_reason or layer.no_logits_reason):
            scores[index, :n_heads] = score_of(token_eigenvalues(layer, product))
    return scores


def estimated_seconds(matrices: HeadMatrices) -> float:
    """The estimated seconds of `copying_scores` on one thread; 0 if they are cached."""
    if cache.CACHE.get((matrices.uid, (_PLACE, False), None)) is not None or matrices.no_vocabulary_reason:
        return 0.0
    layer = matrices.layer(next((index for index, n_heads in enumerate(matrices.n_heads) if n_heads), 0))
    d_v, d_model = (64, 512) if layer.w_o is None else layer.w_o.shape[1:]
    per_head = 2 * d_v * d_model**2 / _FLOPS + _EIGENVALUE_SECONDS * (d_v / 64) ** 3
    return matrices.estimated_seconds() + sum(matrices.n_heads) * per_head


def token_eigenvalues(layer: LayerMatrices, product: Tensor) -> Tensor:
    """The nonzero eigenvalues of W_E W_V W_O W_U of each head, [head d_v]; `product` is `HeadMatrices.token_product`."""
    import torch

    assert layer.w_v is not None  # the caller has checked `no_ov_reason`
    assert layer.w_o is not None
    # In double precision: in single, processors differ in digits that are shown, and in signs of those near 0.
    eigenvalues: Tensor = torch.linalg.eigvals(layer.w_o.double() @ product.double() @ layer.w_v.double())
    return eigenvalues


def count_positive(eigenvalues: Tensor) -> int:
    """How many eigenvalues have a positive real part, beyond a millionth of the largest: the sign of a smaller one is rounding."""
    return int((eigenvalues.real > 1e-6 * eigenvalues.abs().max()).sum())


def score_of(eigenvalues: Tensor) -> Tensor:
    """Σλ / Σ|λ| over the last axis; NaN where all are 0."""
    return eigenvalues.sum(-1).real / eigenvalues.abs().sum(-1)


def matrices_of(source: ModelSource) -> HeadMatrices:
    """The matrices of all heads.

    Raises:
        ConfigError: the source is no model.
        ModelError: the attention of its family cannot be recorded.
    """
    if isinstance(source, Trace) and source.model_run is not None:
        return source.model_run.head_matrices()
    if isinstance(source, Intervenable):
        return source.head_matrices()
    raise ConfigError(
        f"The matrices of a head belong to a model; got {_kind(source)}: give a Model, a Trained, or the trace of one."
    )


def layer_of(matrices: HeadMatrices, layer: int, head: int) -> LayerMatrices:
    """The matrices of the layer of a head.

    Raises:
        MissingError: there is no such layer or head.
    """
    check_index("layers", layer, len(matrices.n_heads))
    check_index("heads", head, matrices.n_heads[layer])
    return matrices.layer(layer)


def refuse(what: str, reason: str) -> None:
    """Raises MissingError with this reason, unless it is empty."""
    if reason:
        raise MissingError(
            f"{what} cannot be computed: {reason[:1].lower()}{reason[1:].rstrip('.')}; choose another head or model."
        )


def _kind(source: object) -> str:
    return "the trace of a source without a model" if isinstance(source, Trace) else type(source).__name__
