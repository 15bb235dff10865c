"""What a head copies and matches, from the parameters of the model alone: tokens that it raises, copying scores, the spectra of OV and QK.

    from attention import circuits
    circuits.copied_tokens(source, layer=18, head=6, token=" copper").raised
    circuits.copying_score(source)       # [layer head]
    circuits.ov_spectrum(source, layer=18, head=6).eigenvalues
    circuits.qk_spectrum(source, layer=17, head=3, offset=1).singular_values

The matrices are those of `attention.trace.model_run`: the weights of the norms are folded in, their scales and all biases left out.
W_V W_O and W_Q R W_Kᵀ are [d_model d_model] of rank d_head at most, so their spectra are computed from matrices [d_head d_head].

Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits", sections "Copying / primitive in-context learning" and
"Summarizing OV/QK matrices"; Wang et al. 2022, "Interpretability in the Wild", appendix on name movers, for the embedding after the first layer;
Millidge and Black 2022, "The Singular Value Decompositions of Transformer Weight Matrices are Highly Interpretable"; Su et al. 2021,
"RoFormer", for the rotation by offset.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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

_ModelSource: TypeAlias = Trace | Intervenable
"""What every function about a head's matrices accepts; a trace of a model in memory needs that model."""

SCORE_CAVEAT = "The score averages over the whole vocabulary and leaves out every other layer: a head that copies a few names, or through a later layer, can score low, and what matters when silenced and what writes the word need not be the same head."
TOKENS_CAVEAT = "This is the direct path of one token through this head alone, at weight 1: it is not what the model predicts, which later layers and the other heads also decide, and it does not say when the head looks at this token."

_EXTREME = 0.9
_FLOPS = 4e10  # per second, of products on one thread
_EIGENVALUE_SECONDS = 6e-4  # of a 64 × 64 matrix
_PLACE = "copying scores"
_MAX_OFFSET = 2**20
_OFFSETS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # of a picture of the QK spectrum


@dataclass(frozen=True)
class TokenEffect:
    """What a head adds to the logit of one token.

    Attributes:
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
    def of(cls, source: _ModelSource) -> CopyingScores:
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


@dataclass(frozen=True, eq=False)
class OVSpectrum:
    """The spectrum of W_V W_O of a head, with the weights of the norms folded in; without their scales and biases.

    Attributes:
        eigenvalues: the nonzero eigenvalues of W_V W_O, complex, [d_v], by decreasing absolute value: which directions of the residual
            stream the head keeps (positive) or turns around (negative).
        singular_values: the nonzero singular values of W_V W_O, [d_v], decreasing: how strongly it writes what it reads.
        token_eigenvalues: the nonzero eigenvalues of W_E W_V W_O W_U, complex, [d_v], by decreasing absolute value; None if the head has no
            linear path to the logits.
        copying_score: Σλ / Σ|λ| of these; None with them.
        centered_copying_score: the same with the mean over the vocabulary subtracted from W_U; see `copying_score`.
        no_score_reason: why there is no score, in a sentence; empty if there is one.
    """

    layer: int
    head: int
    eigenvalues: Tensor
    singular_values: Tensor
    token_eigenvalues: Tensor | None
    copying_score: float | None
    centered_copying_score: float | None
    no_score_reason: str = ""

    @property
    def largest_share(self) -> float | None:
        """The largest |λ| of `token_eigenvalues` as a share of Σ|λ|: near 1, one direction decides the copying score; None without them."""
        if self.token_eigenvalues is None:
            return None
        sizes = self.token_eigenvalues.abs()
        return float(sizes.max() / sizes.sum())

    @property
    def description(self) -> str:
        """The spectrum in a sentence or two."""
        effective = float(self.singular_values.square().sum().square() / self.singular_values.pow(4).sum())
        positive = count_positive(self.eigenvalues)
        decides = ""
        if (share := self.largest_share) is not None:
            decides = f" Of the eigenvalues behind the copying score, the largest alone is {share:.0%} of Σ|λ|."
        return (
            f"{positive} of {len(self.eigenvalues)} eigenvalues of W_V W_O have a positive real part; the largest singular value is "
            f"{format_number(float(self.singular_values[0]))}, and as many directions as {format_number(effective)} equal ones carry its square sum.{decides}"
        )

    def frame(self) -> pd.DataFrame:
        """Eigenvalues and singular values as a table."""
        import pandas as pd

        rows = pd.DataFrame({
            "eigenvalue of W_V W_O, real": self.eigenvalues.real.tolist(),
            "imaginary": self.eigenvalues.imag.tolist(),
            "singular value": self.singular_values.tolist(),
        })  # fmt: skip
        if self.token_eigenvalues is not None:
            rows["eigenvalue of W_E W_V W_O W_U, real"] = self.token_eigenvalues.real.tolist()
            rows["imaginary part"] = self.token_eigenvalues.imag.tolist()
        return rows


@dataclass(frozen=True, eq=False)
class QKSpectrum:
    """The spectrum of W_Q R W_Kᵀ of a head, where R rotates by an offset; without the divisor of the scores, biases and the scales of norms.

    Attributes:
        offset: the query's position minus the key's.
        rotated: whether the model has rotary embedding; without, every offset has the same spectrum.
        eigenvalues: the nonzero eigenvalues, complex, [d_k], by decreasing absolute value: positive where a token looks at tokens like itself.
        singular_values: the nonzero singular values, [d_k], decreasing: how strongly the head can match at this offset.
    """

    layer: int
    head: int
    offset: int
    rotated: bool
    eigenvalues: Tensor
    singular_values: Tensor

    @property
    def matching_score(self) -> float:
        """Σλ / Σ|λ| of the eigenvalues, from −1 to 1: 1 if every direction attends to itself at this offset."""
        return float(_score_of(self.eigenvalues))

    def frame(self) -> pd.DataFrame:
        """The singular values and the matching score in a row."""
        return qk_frame([self])


def copied_tokens(
    source: _ModelSource, layer: int, head: int, token: int | str | None = None, key: int | None = None, count: int = 10
) -> CopiedTokens:
    """The tokens that a head raises and lowers most when it reads a token: embedding · W_V · W_O · W_U.

    The embedding is the residual stream of a text that is this token alone, after the first layer; for a head of the first layer, and in
    a tiny trained model, it is the row of W_E. The input norm is applied to it. The final norm is a matrix here, without its scale: a
    positive scale changes no rank. Biases are left out.

    Args:
        source: the model, or its trace.
        token: the id of the token, or its text.
        key: instead of a token, the position of one in the text of a trace.
        count: the number of raised tokens, and of lowered ones.

    Raises:
        ConfigError: the source is no model, there is no such token, or not exactly one of token and key.
        MissingError: there is no such layer, head or key, or no linear path from the head to the logits.
        TextError: the text is not exactly one token.
    """
    matrices = _matrices_of(source)
    target = _layer_of(matrices, layer, head)
    _refuse(
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


def _token_id(
    source: _ModelSource, matrices: HeadMatrices, layer: int, token: int | str | None, key: int | None
) -> int:
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


def copying_score(source: _ModelSource, center_unembed: bool = False) -> Tensor:
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
    matrices = _matrices_of(source)
    _refuse("The copying score", matrices.no_vocabulary_reason)
    if matrices.uid is None:
        return _scores(matrices, center_unembed)
    return cache.memoize(matrices.uid, (_PLACE, center_unembed), None, lambda: _scores(matrices, center_unembed))


def _scores(matrices: HeadMatrices, center_unembed: bool) -> Tensor:
    import torch

    # The nonzero eigenvalues of that matrix [token token] are those of a matrix [d_v d_v], since those of A B are those of B A.
    scores = torch.full((len(matrices.n_heads), max(matrices.n_heads, default=0)), math.nan)
    product = matrices.token_product(center_unembed)
    for index, n_heads in enumerate(matrices.n_heads):
        if n_heads:
            layer = matrices.layer(index)
            if not (layer.no_ov_reason or layer.no_logits_reason):
                scores[index, :n_heads] = _score_of(_token_eigenvalues(layer, product))
    return scores


def copying_seconds(source: _ModelSource) -> float:
    """The estimated seconds of `copying_score` on one thread; 0 if it is cached, or there is none.

    Raises:
        ConfigError: the source is no model.
    """
    matrices = _matrices_of(source)
    if cache.CACHE.get((matrices.uid, (_PLACE, False), None)) is not None or matrices.no_vocabulary_reason:
        return 0.0
    layer = matrices.layer(next((index for index, n_heads in enumerate(matrices.n_heads) if n_heads), 0))
    d_v, d_model = (64, 512) if layer.w_o is None else layer.w_o.shape[1:]
    per_head = 2 * d_v * d_model**2 / _FLOPS + _EIGENVALUE_SECONDS * (d_v / 64) ** 3
    return matrices.estimated_seconds() + sum(matrices.n_heads) * per_head


def ov_spectrum(source: _ModelSource, layer: int, head: int) -> OVSpectrum:
    """Eigenvalues and singular values of a head's OV circuit, and its copying score.

    Raises:
        ConfigError: the source is no model.
        MissingError: there is no such layer or head, or W_V or W_O is not known.
    """
    import torch

    matrices = _matrices_of(source)
    target = _layer_of(matrices, layer, head)
    _refuse(f"The OV spectrum of L{layer} H{head}", target.no_ov_reason)
    assert target.w_v is not None  # `no_ov_reason` is empty
    assert target.w_o is not None
    w_v, w_o = target.w_v[head], target.w_o[head]
    eigenvalues = torch.linalg.eigvals(w_o.double() @ w_v.double())
    reason, tokens = target.no_logits_reason or matrices.no_vocabulary_reason, None
    scores: list[float | None] = [None, None]
    if not reason:
        spectra = [_token_eigenvalues(target, matrices.token_product(centered))[head] for centered in (False, True)]
        tokens, scores = _sorted(spectra[0]), [float(_score_of(values)) for values in spectra]
    return OVSpectrum(
        layer, head, _sorted(eigenvalues), _singular_values(w_v, w_o.T), tokens, scores[0], scores[1], reason
    )


def qk_spectrum(source: _ModelSource, layer: int, head: int, offset: int = 0) -> QKSpectrum:
    """Eigenvalues and singular values of a head's QK circuit for a key `offset` positions before its query.

    Raises:
        ConfigError: the source is no model, or the offset is out of range.
        MissingError: there is no such layer or head, or its matrices or its rotation are not known.
    """
    return qk_spectra(source, layer, head, (offset,))[0]


def qk_spectra(
    source: _ModelSource, layer: int, head: int, offsets: Sequence[int] = _OFFSETS
) -> tuple[QKSpectrum, ...]:
    """The same as `qk_spectrum` for several offsets; without rotary embedding, one spectrum for the first offset, as all are equal.

    Raises:
        ConfigError: the source is no model, or an offset is out of range.
        MissingError: as for `qk_spectrum`.
    """
    import torch

    if invalid := [offset for offset in offsets if not -_MAX_OFFSET <= offset <= _MAX_OFFSET]:
        raise ConfigError(
            f"An offset is the query's position minus the key's, from −{_MAX_OFFSET:,} to {_MAX_OFFSET:,}; got {invalid[0]:,}: choose one of these."
        )
    target = _layer_of(_matrices_of(source), layer, head)
    _refuse(f"The QK spectrum of L{layer} H{head}", target.no_qk_reason)
    assert target.w_q is not None  # `no_qk_reason` is empty
    assert target.w_k is not None
    w_q, w_k = target.w_q[head], target.w_k[head]
    if target.rotations is None:
        rotations = torch.eye(w_q.shape[1])[None]
    else:
        turned = target.rotations([position for offset in offsets for position in (max(offset, 0), max(-offset, 0))])
        rotations = turned[::2] @ turned[1::2].mT
    return tuple(
        QKSpectrum(
            layer, head, offset, target.rotations is not None,
            _sorted(torch.linalg.eigvals(rotation.double() @ w_k.double().T @ w_q.double())), _singular_values(w_q @ rotation, w_k),
        )
        for offset, rotation in zip(offsets, rotations, strict=False)
    )  # fmt: skip


def qk_frame(spectra: Sequence[QKSpectrum]) -> pd.DataFrame:
    """The singular values of several offsets as a table: a row for each offset."""
    import pandas as pd

    values = {
        f"σ {i}": [float(each.singular_values[i]) for each in spectra] for i in range(len(spectra[0].singular_values))
    }
    return pd.DataFrame({
        "offset": [each.offset for each in spectra],
        "matching score": [each.matching_score for each in spectra], **values,
    })  # fmt: skip


def describe_qk(spectra: Sequence[QKSpectrum]) -> str:
    """The QK spectrum by offset in a sentence, and what it is not."""
    first = spectra[0]
    caveat = (
        "It says what the parameters can match, averaged over all directions; which tokens match depends on the text."
    )
    if not first.rotated:
        return (
            "This model rotates no queries and keys, so every offset has the same spectrum: Σλ/Σ|λ| of the QK eigenvalues is "
            f"{format_number(first.matching_score)}, where 1 means that tokens match themselves. {caveat}"
        )
    best = max(spectra, key=lambda each: each.matching_score)
    return (
        f"Σλ/Σ|λ| of the QK eigenvalues is {format_number(first.matching_score)} at offset {first.offset} and largest at offset {best.offset}, "
        f"{format_number(best.matching_score)}, where 1 means that tokens match tokens like themselves. {caveat}"
    )


def _token_eigenvalues(layer: LayerMatrices, product: Tensor) -> Tensor:
    """The nonzero eigenvalues of W_E W_V W_O W_U of each head, [head d_v]; `product` is that of the token matrices."""
    import torch

    assert layer.w_v is not None  # the caller has checked `no_ov_reason`
    assert layer.w_o is not None
    # In double precision: in single, processors differ in digits that are shown, and in signs of those near 0.
    eigenvalues: Tensor = torch.linalg.eigvals(layer.w_o.double() @ product.double() @ layer.w_v.double())
    return eigenvalues


def count_positive(eigenvalues: Tensor) -> int:
    """How many eigenvalues have a positive real part, beyond a millionth of the largest: the sign of a smaller one is rounding."""
    return int((eigenvalues.real > 1e-6 * eigenvalues.abs().max()).sum())


def _score_of(eigenvalues: Tensor) -> Tensor:
    """Σλ / Σ|λ| over the last axis; NaN where all are 0."""
    return eigenvalues.sum(-1).real / eigenvalues.abs().sum(-1)


def _matrices_of(source: _ModelSource) -> HeadMatrices:
    if isinstance(source, Trace) and source.model_run is not None:
        return source.model_run.head_matrices()
    if isinstance(source, Intervenable):
        return source.head_matrices()
    kind = "the trace of a source without a model" if isinstance(source, Trace) else type(source).__name__
    raise ConfigError(
        f"The matrices of a head belong to a model; got {kind}: give a Model, a Trained, or the trace of one."
    )


def _layer_of(matrices: HeadMatrices, layer: int, head: int) -> LayerMatrices:
    check_index("layers", layer, len(matrices.n_heads))
    check_index("heads", head, matrices.n_heads[layer])
    return matrices.layer(layer)


def _refuse(what: str, reason: str) -> None:
    if reason:
        raise MissingError(
            f"{what} cannot be computed: {reason[:1].lower()}{reason[1:].rstrip('.')}; choose another head or model."
        )


def _singular_values(left: Tensor, right: Tensor) -> Tensor:
    """The singular values of left · rightᵀ, [d_head], from the triangular factors of both [d_model d_head]."""
    import torch

    triangles = [torch.linalg.qr(side.double(), mode="r").R for side in (left, right)]
    values: Tensor = torch.linalg.svdvals(triangles[0] @ triangles[1].T).float()
    return values


def _sorted(eigenvalues: Tensor) -> Tensor:
    return eigenvalues[eigenvalues.abs().argsort(descending=True, stable=True)]
