"""The spectra of a head's two circuits, from the parameters of the model alone: OV, what it moves, and QK, what it matches at which offset.

    from attention import circuits
    circuits.ov_spectrum(source, layer=18, head=6).eigenvalues
    circuits.qk_spectrum(source, layer=17, head=3, offset=1).singular_values

Both matrices are [d_model d_model] of rank d_head at most, so their spectra are computed from matrices [d_head d_head].

Source: Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Millidge and Black 2022, "The Singular Value Decompositions of
Transformer Weight Matrices are Highly Interpretable"; Su et al. 2021, "RoFormer", for the rotation by offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.base.errors import ConfigError
from attention.base.printed import format_number
from attention.circuits.copying import (
    ModelSource,
    count_positive,
    layer_of,
    matrices_of,
    refuse,
    score_of,
    token_eigenvalues,
)

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

_MAX_OFFSET = 2**20
_OFFSETS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""The offsets of a picture of the QK spectrum."""


@dataclass(frozen=True, eq=False)
class OVSpectrum:
    """The spectrum of W_V W_O of a head, with the weights of the norms folded in; without their scales and biases.

    Attributes:
        layer: the layer of the head.
        head: the head.
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
        share = self.largest_share
        decides = (
            ""
            if share is None
            else f" Of the eigenvalues behind the copying score, the largest alone is {share:.0%} of Σ|λ|."
        )
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
        layer: the layer of the head.
        head: the head.
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
        return float(score_of(self.eigenvalues))

    def frame(self) -> pd.DataFrame:
        """The singular values and the matching score in a row."""
        return qk_frame([self])


def ov_spectrum(source: ModelSource, layer: int, head: int) -> OVSpectrum:
    """Eigenvalues and singular values of a head's OV circuit, and its copying score.

    Raises:
        ConfigError: the source is no model.
        MissingError: there is no such layer or head, or W_V or W_O is not known.
    """
    import torch

    matrices = matrices_of(source)
    target = layer_of(matrices, layer, head)
    refuse(f"The OV spectrum of L{layer} H{head}", target.no_ov_reason)
    assert target.w_v is not None  # `no_ov_reason` is empty
    assert target.w_o is not None
    w_v, w_o = target.w_v[head], target.w_o[head]
    eigenvalues, reason = (
        torch.linalg.eigvals(w_o.double() @ w_v.double()),
        target.no_logits_reason or matrices.no_vocabulary_reason,
    )
    tokens = None
    scores: list[float | None] = [None, None]
    if not reason:
        spectra = [token_eigenvalues(target, matrices.token_product(centered))[head] for centered in (False, True)]
        tokens, scores = _sorted(spectra[0]), [float(score_of(values)) for values in spectra]
    return OVSpectrum(
        layer, head, _sorted(eigenvalues), _singular_values(w_v, w_o.T), tokens, scores[0], scores[1], reason
    )


def qk_spectrum(source: ModelSource, layer: int, head: int, offset: int = 0) -> QKSpectrum:
    """Eigenvalues and singular values of a head's QK circuit for a key `offset` positions before its query.

    Raises:
        ConfigError: the source is no model, or the offset is out of range.
        MissingError: there is no such layer or head, or its matrices or its rotation are not known.
    """
    return qk_spectra(source, layer, head, (offset,))[0]


def qk_spectra(source: ModelSource, layer: int, head: int, offsets: Sequence[int] = _OFFSETS) -> tuple[QKSpectrum, ...]:
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
    target = layer_of(matrices_of(source), layer, head)
    refuse(f"The QK spectrum of L{layer} H{head}", target.no_qk_reason)
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


def describe(spectra: Sequence[QKSpectrum]) -> str:
    """The QK spectrum by offset in a sentence, and what it is not."""
    first, caveat = (
        spectra[0],
        "It says what the parameters can match, averaged over all directions; which tokens match depends on the text.",
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


def _singular_values(left: Tensor, right: Tensor) -> Tensor:
    """The singular values of left · rightᵀ, [d_head], from the triangular factors of both [d_model d_head]."""
    import torch

    triangles = [torch.linalg.qr(side.double(), mode="r").R for side in (left, right)]
    values: Tensor = torch.linalg.svdvals(triangles[0] @ triangles[1].T).float()
    return values


def _sorted(eigenvalues: Tensor) -> Tensor:
    return eigenvalues[eigenvalues.abs().argsort(descending=True, stable=True)]
