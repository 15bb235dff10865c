"""Which residues touch: the weights of all heads of a protein model, combined by the regression that comes with it.

The weights of a head are made symmetric and corrected for what two residues give and get everywhere (APC); a logistic regression,
whose numbers are part of the model, adds the heads up.
"""

from __future__ import annotations

import math
from contextlib import suppress
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.base import cache
from attention.base.errors import AttentionError, ConfigError, MissingError, ShapeError, SizeError
from attention.base.printed import Arithmetic, Printed, Summands, exponent, format_number, plural, quotient
from attention.base.tokens import Letter
from attention.explanation.derived import DerivedMap, DerivedView
from attention.explanation.explanation import Explanation, ExplanationBuilder
from attention.formula.names import MAP_AXES, WEIGHTS, Cell
from attention.formula.steps import Step
from attention.metrics.patterns import CELLS_PER_SECOND
from attention.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor
    from torch.nn import Linear

NAME = "contacts"
NEAREST = 6
"""The smallest distance along the chain of a pair that counts as a contact: nearer residues touch in every fold."""
_MAX_SECONDS = 10  # of the view, which is drawn without a request
_SOURCE = "Rao et al. 2021, Transformer protein language models are unsupervised structure learners, section 3; Lin et al. 2023, Evolutionary-scale prediction of atomic-level protein structure with a language model"  # fmt: skip


class _Contacts(NamedTuple):
    """All pairs of residues, and what one pair takes apart.

    Attributes:
        logits: [residue residue].
        sums: of each row of the symmetric weights, [head residue], the heads of all layers one after the other.
        totals: their sums, [head].
        coefficients: of the regression, [head]; `bias` is its constant.
        places: the positions of the residues in the text.
        heads: layer and head, in the order of the regression.
    """

    logits: Tensor
    sums: Tensor
    totals: Tensor
    coefficients: Tensor
    bias: float
    places: tuple[int, ...]
    heads: tuple[tuple[int, int], ...]


def contacts(trace: Trace) -> Tensor:
    """The probability that two residues touch, [residue residue], symmetric: their Cβ atoms are less than 8 Å apart.

    As `EsmModel.predict_contacts` of transformers, computed in double precision from the weights of the trace, and so of the changed
    model where there are interventions. Tokens such as <cls> and <eos> are no residues.

    Source: Rao et al. 2021, section 3 (regression) and Dunn et al. 2008 (APC).

    Raises:
        MissingError: the trace is not of a model with such a regression.
        ShapeError: special tokens are hidden in the trace, masks among them.
    """
    return _contacts(trace).logits.sigmoid().float()


def contact_table(trace: Trace, most: int | None = None, nearest: int = NEAREST) -> pd.DataFrame:
    """The likeliest contacts, a row each: the numbers of both residues from 1, their letters, the distance along the chain and the probability.

    Args:
        most: how many; None: as many as there are residues, the field's "top L".
        nearest: the smallest distance along the chain.

    Raises:
        ConfigError: a number is negative.
        AttentionError: as for `contacts`.
    """
    import pandas as pd
    import torch

    found = _contacts(trace)
    length = len(found.places)
    if nearest < 0 or (most is not None and most < 0):
        raise ConfigError(
            f"most= and nearest= are numbers from 0; got {most} and {nearest}: leave them out, or give others."
        )
    i, j = torch.triu_indices(length, length, max(nearest, 1))
    logits = found.logits[i, j]
    order = logits.argsort(descending=True, stable=True)[: length if most is None else most]
    letters = [str(trace.tokens[place]) for place in found.places]
    rows = [
        (a + 1, letters[a], b + 1, letters[b], b - a) for a, b in zip(i[order].tolist(), j[order].tolist(), strict=True)
    ]
    frame = pd.DataFrame(rows, columns=["i", "residue i", "j", "residue j", "distance"])
    return frame.assign(probability=logits[order].sigmoid().float().numpy())


def contact_terms(trace: Trace, i: int, j: int) -> pd.DataFrame:
    """What each head adds to the logit of the contact of two residues, the largest first; with the bias, the terms add up to it.

    Columns: layer and head; both directions of its weights, added; APC, what these are for two such residues anywhere; the coefficient; and the term,
    their difference times the coefficient. The last row, of no head, is the bias.

    Args:
        trace: as for `contacts`.
        i: the number of a residue, from 1.
        j: of the other one.

    Raises:
        ConfigError: there is no such residue.
        AttentionError: as for `contacts`.
    """
    import pandas as pd

    found = _contacts(trace)
    if not all(1 <= each <= len(found.places) for each in (i, j)):
        raise ConfigError(f"Residues are numbered from 1 to {len(found.places)}; got {i} and {j}: choose two of them.")
    terms = sorted(_terms(trace, found, i - 1, j - 1), key=lambda row: -abs(row[-1]))
    rows = [*terms, (None, None, None, None, None, found.bias)]
    frame = pd.DataFrame(rows, columns=["layer", "head", "weights", "APC", "coefficient", "term"])
    return frame.astype({"layer": "Int64", "head": "Int64"})


def estimate_seconds(trace: Trace) -> float:
    """The estimated seconds of `contacts`, without running it."""
    n_heads = sum(layer.n_heads for layer in trace.layers if layer.has(WEIGHTS))
    return n_heads * len(trace.tokens) ** 2 / CELLS_PER_SECOND


def has_contacts(trace: Trace) -> bool:
    """Whether a trace has a map of contacts; computes nothing."""
    with suppress(AttentionError):
        _ = _regression(trace)
        return True
    return False


def _regression(trace: Trace) -> Linear:
    """The regression of the model of a trace."""
    from attention.sources.repeated_run import TransformerRun

    run = trace.model_run
    model = run.loaded.model if isinstance(run, TransformerRun) else None
    head: Any = getattr(getattr(model, "base_model", None), "contact_head", None)
    regression: Linear | None = getattr(head, "regression", None)
    if regression is None:
        raise MissingError(
            "Contacts are predicted by a regression over all heads that comes with a protein model, such as ESM-2, and this trace has none: "
            "choose such a model."
        )
    n_heads = sum(layer.n_heads for layer in trace.layers if layer.has(WEIGHTS))
    if regression.in_features != n_heads or not any(isinstance(token, Letter) for token in trace.tokens):
        raise MissingError(
            f"The regression of contacts is of {regression.in_features} heads over residues; this trace has {n_heads} heads: give a sequence to the whole model."
        )
    return regression


def _contacts(trace: Trace) -> _Contacts:
    """All pairs; memory is that of one head at a time."""
    import torch

    regression = _regression(trace)
    if trace.layers[0].wrapped is not trace.layers[0]:
        raise ShapeError(
            "Contacts are computed from all tokens that the model reads, and some are hidden here: show special tokens."
        )
    places = tuple(i for i, token in enumerate(trace.tokens) if isinstance(token, Letter))
    heads = tuple((index, head) for index, layer in enumerate(trace.layers) if layer.has(WEIGHTS) for head in range(layer.n_heads))  # fmt: skip
    formulas = tuple(layer.formula for layer in trace.layers)

    def compute() -> _Contacts:
        coefficients = regression.weight.detach()[0].double().cpu()
        bias = 0.0 if regression.bias is None else float(regression.bias.detach().double())
        logits = torch.full((len(places), len(places)), bias, dtype=torch.float64)
        sums = torch.zeros(len(heads), len(places), dtype=torch.float64)
        for at, (layer, head) in enumerate(heads):
            (weights,) = trace.layers[layer].blocks(WEIGHTS, heads=slice(head, head + 1))
            among = weights[0].double()[torch.tensor(places)][:, torch.tensor(places)]
            symmetric = among + among.T
            sums[at] = symmetric.sum(-1)
            logits += coefficients[at] * (symmetric - sums[at] * sums[at][:, None] / _nonzero(sums[at].sum()))
        return _Contacts(logits, sums, sums.sum(-1), coefficients, bias, places, heads)

    return cache.memoize(trace.layers[0].uid, NAME, formulas, compute)


def _nonzero(total: Tensor) -> Tensor:
    """The total of a head; 1 for one without weights, such as a patched one, whose products are all 0."""
    return total + (total == 0)


def _terms(trace: Trace, found: _Contacts, i: int, j: int) -> list[tuple[int, int, float, float, float, float]]:
    """Of each head: layer, head, both weights of a pair of residues, their correction, the coefficient, and the term."""
    a, b = found.places[i], found.places[j]
    corrections = (found.sums[:, i] * found.sums[:, j] / _nonzero(found.totals)).tolist()
    rows = list[tuple[int, int, float, float, float, float]]()
    for (layer, head), correction, coefficient in zip(
        found.heads, corrections, found.coefficients.tolist(), strict=True
    ):
        source = trace.layers[layer]
        both = float(source.row(head, a)[b].double() + source.row(head, b)[a].double())
        rows.append((layer, head, both, correction, coefficient, coefficient * (both - correction)))
    return rows


def _matrix(trace: Trace, _: int, __: int) -> Tensor:
    """The probabilities at the positions of the text, [query_pos key_pos]; NaN where a token is no residue."""
    import torch

    found, size = _contacts(trace), len(trace.tokens)
    result = torch.full((size, size), math.nan)
    places = torch.tensor(found.places)
    result[places[:, None], places] = found.logits.sigmoid().float()
    return result


def _explain(work: ExplanationBuilder, trace: Trace) -> Explanation:
    found, cell = _contacts(trace), work.cell
    tokens = [trace.tokens[cell.row], trace.tokens[cell.column]]
    other = next((token for token in tokens if not isinstance(token, Letter)), None)
    if other is not None:
        return work.as_recorded(f"{other} is no residue, and has no contacts.")
    i, j = found.places.index(cell.row), found.places.index(cell.column)
    terms, logit = _terms(trace, found, i, j), float(found.logits[i, j])
    shown = Summands([term for *_, term in terms])
    pieces = [
        f"{_signed(shown_term)} of L{layer} H{head}"
        for layer, head, *_, shown_term in (terms[at] for at in shown.printed_indices)
    ]
    pieces += [f"{_signed(shown.others)} of {plural(shown.n_others, 'other head')}"] * bool(shown.n_others)

    def line(digits: int) -> Printed:
        z = exponent(-logit, digits)
        below = Printed(f"1 + e^{{{z.tex}}}", f"(1 + e^({z.text}))", Decimal(1) + z.value.exp())
        return quotient(Printed("1", "1", Decimal(1)), below)

    words = (
        f"How likely these residues touch. Its logit {format_number(logit)} is the bias {format_number(found.bias)} and {', '.join(pieces)}: "
        "the weights of each head in both directions, less what two such residues have anywhere (APC), times its coefficient."
    )
    tex = rf"\sigma\Big(b + \sum_h w_h \Big(S^{{(h)}}_{{{cell.row},{cell.column}}} - \frac{{S^{{(h)}}_{{{cell.row}\cdot}} S^{{(h)}}_{{\cdot{cell.column}}}}}{{S^{{(h)}}_{{\cdot\cdot}}}}\Big)\Big), \; S = A + A^\top"  # fmt: skip
    work_of = Arithmetic(tex, [line], [line], words, [1.0, 1.0 + math.exp(-logit)], "quotient")
    return work.from_arithmetic(work_of)


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else ''}{format_number(value)}"


def _view_map(trace: Trace, cell: Cell) -> DerivedMap:
    """The map of the view; raises `SizeError` if it would take more than `_MAX_SECONDS`, and as `contacts`."""
    if (seconds := estimate_seconds(trace)) > _MAX_SECONDS:
        raise SizeError(
            f"The map of contacts takes at most {_MAX_SECONDS} s here; of this sequence it would take about {seconds:.0f} s: "
            "choose a shorter one, or contacts(trace) in Python."
        )
    _ = CONTACTS.matrix(trace, cell.layer)  # raises
    return CONTACTS


CONTACTS = DerivedMap(
    Step(NAME, "P", "P", MAP_AXES[1:], "σ(b + Σ w (S − APC)) over all heads, S = A + Aᵀ", "probability"),
    "The probability that two residues touch in space (Cβ atoms less than 8 Å apart), from the weights of all heads of all layers by the regression of the model. "
    "It is the same for every layer and head; residues next to each other always touch.",
    _SOURCE, _matrix, _explain, lambda trace, _: tuple(range(len(trace.layers))),
    sides="residue",
)  # fmt: skip

VIEW = DerivedView(
    NAME, CONTACTS.step.symbol, "contacts", "which residues touch in space, by all heads of all layers together", (NAME,),
    "A prediction from attention alone, trained on few structures; that two residues look at each other does not mean that they touch.",
    lambda trace, _: has_contacts(trace), _view_map,
)  # fmt: skip
