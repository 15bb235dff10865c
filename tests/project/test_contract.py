"""The contract of every registry: value = explanation = copied program = picture, and a row, a link, words and a paper for each entry.

`contract.py` has the checks, and derives the layers for them from each entry. A new step, normalizer, score, bias, mask,
intervention or derived map is checked as soon as it is in its table; every missing piece is named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import contract
import numpy as np
import pytest
import torch
from conftest import examples_of
from margins import approx
from torch import Tensor

from attention import (
    PARAMETERS,
    STEPS,
    AttentionConfig,
    Cell,
    File,
    Layer,
    Matrices,
    Override,
    Trace,
    TypedText,
    metrics,
)
from attention.base.knobs import Limits
from attention.base.printed import Arithmetic, Printed, number
from attention.base.tokens import Patch
from attention.explanation.derived import NORMS
from attention.export.program import ipynb
from attention.files import array_writer
from attention.formula import edit_kinds, names, steps
from attention.formula.config import MASKS
from attention.formula.edit_kinds import KINDS, InterventionKind
from attention.formula.explainer import E_co
from attention.formula.formula import _CHECKS, Ablation, Formula
from attention.formula.normalizers import NORMALIZERS, Normalizer, _Softmax
from attention.formula.positions import POSITIONS
from attention.formula.score_steps import CAPPED_SCORES, _MapStep
from attention.formula.scores import BIASES, SCORES, Score
from attention.formula.step import LayerView, ProgramWriter, StepContext, cells_of
from attention.media import DeclaredInputs, media
from attention.metrics.aggregates import AGGREGATES
from attention.metrics.metric import BY_DISTANCE, NULLS, RANDOM, SHUFFLED
from attention.models.folder import TEXT_ALONE
from attention.models.library import LIBRARY
from attention.patching import intervention
from attention.pictures import live_inputs, view
from attention.sources import registry
from attention.sources.file import link_name
from attention.sources.matrices import MATRIX_FIELDS
from attention.sources.reader import Reader, SourceKind, Uploads
from attention.sources.registry import read_source, source_kinds, source_of
from attention.trace import layer as layers
from attention.trace.layer import _Attributes, _TensorOf

pytestmark = pytest.mark.quick

TEXT = "the owl asked the moon and the owl asked the"
LIMITS = Limits(tokens=64, characters=2000, d_model=128, heads=16, trace_mb=256)


def trace_of(text: str = TEXT, **config: Any) -> Trace:
    """A trace with three layers of a small text, for maps that follow paths through layers."""
    traces = [TypedText(text, AttentionConfig(d_model=8, n_heads=2, seed=seed, **config)).trace() for seed in range(3)]
    return replace(traces[0], layers=tuple(trace.layers[0] for trace in traces))


# -- the entries --------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_step_keeps_the_contract(step: steps.Step) -> None:
    assert not list(contract.check_step(step))


def test_names_and_attributes_are_those_of_steps_and_parameters() -> None:
    declared = [step.name for step in (*STEPS, *PARAMETERS)]
    assert [name for name, value in vars(_Attributes).items() if isinstance(value, _TensorOf)] == declared
    assert [value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)] == [
        step.name for step in STEPS
    ]


def test_kernel_has_only_steps_normalizers_and_scores_known_to_python() -> None:
    assert contract.in_script("kernel.js", "NORMALIZERS") <= set(NORMALIZERS)
    assert contract.in_script("kernel.js", "SCORES") <= set(SCORES)
    scripts = contract.in_script("kernel.js", "CHAIN") | contract.in_script("live_steps.js", "STEPS")
    assert scripts <= {step.name for step in STEPS}


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizer_keeps_the_contract(name: str) -> None:
    assert not list(contract.check_normalizer(name, NORMALIZERS[name]))


@pytest.mark.parametrize("name", SCORES)
def test_score_keeps_the_contract(name: str) -> None:
    assert not list(contract.check_score(name, SCORES[name]))


@pytest.mark.parametrize("name", BIASES)
def test_bias_keeps_the_contract(name: str) -> None:
    assert not list(contract.check_bias(name, BIASES[name]))


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_keep_the_contract(name: str) -> None:
    assert not list(contract.check_positions(name, POSITIONS[name]))


@pytest.mark.parametrize("kind", [*dict.fromkeys([*MASKS, *edit_kinds.MASKS])])
def test_mask_keeps_the_contract(kind: str) -> None:
    assert not list(contract.check_mask(kind))


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_intervention_keeps_the_contract(kind: InterventionKind) -> None:
    assert not list(contract.check_intervention(kind))


def test_every_intervention_kind_is_available_on_a_page() -> None:
    from pages.ui.page.interventions import _FORMS

    assert set(_FORMS) == {kind.fields[0] for kind in KINDS}


@pytest.mark.parametrize("reading", [*AGGREGATES, NORMS], ids=lambda derived: derived.name)
def test_aggregate_keeps_the_contract(reading: Any) -> None:
    from pages.ui.page.heads_panels import _aggregate_knob

    assert not list(contract.check_derived_map(reading, trace_of()))
    if reading is not NORMS:
        assert not list(contract.check_link(_aggregate_knob(), reading.name))


@pytest.mark.parametrize("metric", metrics.all_metrics().values(), ids=lambda metric: metric.name)
def test_metric_keeps_the_contract(metric: metrics.Metric) -> None:
    assert not list(
        contract.missing_words(
            metric.name, words=metric.meaning, formula=metric.formula, over=metric.averaged_over, paper=metric.paper
        )
    )
    learned = [source.trace() for name, source in examples_of("training").items() if name == "trained induction"]
    models = [trace_of(f"{TEXT} .")] if metric.compute else learned
    if not models:
        pytest.skip("a metric of the parameters needs a model that training brings")
    (trace,) = models
    if metric.of_pictures:
        tokens = ("[CLS]", "[register 0]", *(Patch(0, 0, column, (0, 0, 1, 1)) for column in range(4)), "dog")
        trace = Trace(tokens, (Layer(tokens=tokens, recorded={"weights": torch.full((2, 7, 7), 1 / 7)}),))
    assert metric.null in (*NULLS, "")
    assert metric.control in (SHUFFLED, RANDOM, "")
    assert metric.null != BY_DISTANCE or metric.cells is not None, "this null places the cells of a metric"
    table = metrics.of(trace)
    column = table.column(metric.name)
    low, high = (0 if metric.minimum == "0" else -1), (len(trace.tokens) - 1 if metric.maximum != "1" else 1)
    assert np.isfinite(column).all(), (
        "every metric is defined on a text with repeated words and punctuation, or on the parameters of a model"
    )
    assert column.clip(low, high) == approx(column, scale=1)
    assert f"{metric.name} " in repr(table)
    assert (table.counts[..., [*metrics.all_metrics()].index(metric.name)] > 0).all()


# A link to each source, except those that need a model on disk or an uploaded file.
LINKS = {"typed text": {}, "matrices": {}, "notebook": {}, "trained": {"at": "0"}, "example": {}}


def test_every_source_is_read_from_a_link() -> None:
    here = registry.source_kinds().keys()
    assert here <= {*LINKS, "model", "file"}, "add a link to the new source"
    for name, more in ((name, more) for name, more in LINKS.items() if name in here):
        assert not list(contract.check_link(registry.SOURCE, name))
        source, notes = source_of({"source": name, **more}, LIMITS)
        assert notes == ()
        if name != "trained":
            assert not list(contract.check_source(source))


@pytest.mark.slow
@pytest.mark.parametrize("kind", source_kinds().values(), ids=list(source_kinds()))
def test_source_reads_exactly_the_knobs_that_name_it(kind: SourceKind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIBRARY, "allow", lambda name: None)  # no model is on disk
    read: set[str] = set()
    file = File.of("x.npz", b"")
    others = [
        DeclaredInputs(False, medium, False, instead=tuple(each for each in media() if each is not medium))
        for medium in media()
    ]
    inputs = iter((TEXT_ALONE, *others))
    monkeypatch.setattr(LIBRARY, "inputs", lambda name: next(inputs))
    for fields in {"matrices": MATRIX_FIELDS, "model": ("text", *others)}.get(kind.name, [""]):
        more = {"matrix_kind": fields} if kind.name == "matrices" else {}
        reader = Reader({"source": kind.name, "file": link_name(file), **more}, LIMITS, Uploads(file))
        config = getattr(read_source(reader), "config", None)
        assert isinstance(config, Override if kind.has_formula else AttentionConfig)
        read |= reader.fields.keys()
        read |= {"reads"} if kind.name == "model" and len(media()) == 1 else set()  # nothing to choose
    assert read == {knob.key for knob in registry.all_knobs() if kind.has(knob)}
    assert not list(contract.missing_words(kind.name, label=kind.label))


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_export_of_numbers_reads_back_to_the_same_digits(kind: str, tmp_path: Path) -> None:
    trace = trace_of(mask="causal", temperature=0.5, dropout=0.2)
    path = tmp_path / f"attention.{kind}"
    path.write_bytes(getattr(array_writer, kind)(trace))
    reopened = File.open(path).trace()
    assert reopened.tokens == trace.tokens
    for layer, other in zip(trace.layers, reopened.layers, strict=True):
        assert [step.name for step in layer.steps] == [step.name for step in other.steps]
        assert all(torch.equal(tensor, other[step.name]) for step, tensor in layer)
        assert not list(contract.check_layer(other))


def test_copied_notebook_contains_the_program() -> None:
    source = Matrices(x=((1.0, 0.0), (0.5, 2.0)))
    assert "weights = torch.softmax(masked_scores.double(), dim=-1).to(masked_scores.dtype)" in ipynb(source)


# -- one piece missing ---------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Doubled(_MapStep):
    """A complete step between the cap and the bias: twice the score."""

    def compute_block(self, layer: LayerView, before: Tensor | None, heads: slice, rows: slice) -> Tensor:
        assert before is not None
        return 2 * before

    def explain(self, work: StepContext[E_co]) -> E_co:
        row, column = work.cell.row, work.cell.column
        ((_, factor),) = work.layer.factors(self)
        score = work.number_at(factor, row, column)

        def line(digits: int) -> Printed:
            printed = number(score, digits)
            return Printed(rf"2 \cdot {printed.tex}", f"2·({printed.text})", 2 * printed.value)

        came_from = (work.cell_of(factor, row, column),)
        return work.from_arithmetic(Arithmetic("2 S", [line], [line], "Twice the score.", [2 * score]), came_from)

    def python(self, writer: ProgramWriter) -> list[str]:
        return [f"{self.name} = 2 * {writer.previous}"]


class Unexplained(Doubled):
    explain = steps.Step.explain


class Unwritten(Doubled):
    python = steps.Step.python


class Miswritten(Doubled):
    def python(self, writer: ProgramWriter) -> list[str]:
        return [f"{self.name} = 3 * {writer.previous}"]


class Uncomputed(Doubled):
    compute_block = _MapStep.compute_block


DOUBLED = {
    "name": "doubled_scores", "symbol": "S″", "tex": "S''", "axes": steps.MAP_AXES, "formula": "2 C", "kind": "signed",
    "equation": "S'' = 2 C", "unknown": "Not known.", "of": (cells_of(names.CAPPED_SCORES, names.SCALED_SCORES),),
}  # fmt: skip


def registered(patch: pytest.MonkeyPatch, step: steps.Step) -> None:
    """Registers a step in all tables, after the cap."""
    at = STEPS.index(CAPPED_SCORES) + 1
    table = (*STEPS[:at], step, *STEPS[at:])
    for room in (steps, layers, live_inputs, contract.glossary):
        patch.setattr(room, "STEPS", table)
    patch.setitem(steps._STEPS, step.name, step)
    patch.setitem(steps.DECLARED, step.name, step)
    knob = replace(view.STEP, range=replace(view.STEP.range, options=tuple(entry.name for entry in table)))
    patch.setattr(contract, "STEP", knob)
    patch.setattr(names, step.name.upper(), step.name, raising=False)
    tensor = _TensorOf()
    tensor.__set_name__(Layer, step.name)
    patch.setattr(Layer, step.name, tensor, raising=False)


def followers(patch: pytest.MonkeyPatch, name: str) -> None:
    """Makes the masked scores depend on the new step."""
    masked = steps.find_step(names.MASKED_SCORES)
    first, second = masked.of
    rewired = replace(masked, of=(replace(first, names=(name, *first.names)), second))
    table = tuple(rewired if step.name == rewired.name else step for step in steps.STEPS)
    for room in (steps, layers, live_inputs, contract.glossary):
        patch.setattr(room, "STEPS", table)
    patch.setitem(steps._STEPS, rewired.name, rewired)
    patch.setitem(steps.DECLARED, rewired.name, rewired)


def test_complete_new_step_passes_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Doubled(**DOUBLED)
    registered(monkeypatch, step)
    followers(monkeypatch, step.name)
    assert list(contract.check_step(step)) == []


@pytest.mark.parametrize(
    ("kind", "more", "sentence"),
    [
        (Unexplained, {}, "explanation: doubled_scores"),
        (Unwritten, {}, "program: NotImplementedError: doubled_scores"),
        (Miswritten, {}, "program: it computes another doubled_scores"),
        (Doubled, {"equation": ""}, "equation: doubled_scores has none"),
        (Doubled, {"unknown": ""}, "unknown: doubled_scores has none"),
        (Doubled, {"in_page": "head"}, "page: doubled_scores says in_page = True"),
        (Doubled, {"when": "cap"}, "example: a formula with () has no doubled_scores"),
        (Doubled, {"of": (cells_of("nothing"),)}, "factors: doubled_scores is made of nothing"),
    ],
)
def test_contract_names_a_missing_piece_of_a_new_step(
    monkeypatch: pytest.MonkeyPatch, kind: type[Doubled], more: dict[str, Any], sentence: str
) -> None:
    step = kind(**{**DOUBLED, **more})
    registered(monkeypatch, step)
    followers(monkeypatch, step.name)
    assert any(offence.startswith(sentence) for offence in contract.check_step(step)), list(contract.check_step(step))


def test_contract_names_a_new_step_that_nothing_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The masked scores are still explained by the scaled scores: too small by a factor of two."""
    step = Doubled(**DOUBLED)
    registered(monkeypatch, step)
    assert any(offence.startswith("explanation: masked_scores") for offence in contract.check_step(step))


@pytest.mark.parametrize(
    ("forget", "sentence"),
    [
        (lambda patch: patch.delattr(names, "DOUBLED_SCORES"), "name: attention.formula.names has no DOUBLED_SCORES"),
        (lambda patch: patch.delattr(Layer, "doubled_scores"), "attribute: Layer has no doubled_scores"),
        (lambda patch: patch.setattr(contract, "STEP", view.STEP), "link: step=doubled_scores"),
        (lambda patch: patch.setattr(contract.glossary, "STEPS", STEPS), "glossary: it has no row for doubled_scores"),
    ],
)
def test_contract_names_a_place_that_lacks_a_new_step(
    monkeypatch: pytest.MonkeyPatch, forget: Any, sentence: str
) -> None:
    step = Doubled(**DOUBLED)
    registered(monkeypatch, step)
    forget(monkeypatch)
    assert any(offence.startswith(sentence) for offence in contract.check_step(step))


def test_contract_names_a_field_that_no_file_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(_CHECKS, "cap")
    assert any(offence.startswith("file: a formula has the fields") for offence in contract.check_step(CAPPED_SCORES))


def test_contract_reports_a_new_step_that_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, step := Uncomputed(**DOUBLED))
    with pytest.raises(NotImplementedError, match="doubled_scores has no compute_block: define how it is computed"):
        list(contract.check_step(step))


class Halved(_Softmax):
    """Half of the softmax, with the program and the explanation of the softmax."""

    name = "halved"
    paper = ""

    def weights(self, scores: Tensor) -> Tensor:
        return super().weights(scores) / 2


def test_contract_lists_missing_pieces_of_a_new_normalizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NORMALIZERS, "halved", Halved())
    offences = "\n".join(contract.check_normalizer("halved", Halved()))
    assert "paper: halved has none" in offences
    assert "link: normalizer=halved is read as 'softmax'" in offences
    assert "page: halved says in_page = True" in offences
    assert "program: it computes another weights" in offences
    assert "explanation: weights" in offences


class Squared(Score):
    """A squared score, with the program and the explanation of the dot product."""

    name = "squared"

    def scores(self, query: Tensor, key: Tensor, weights: Tensor | None = None) -> Tensor:
        return super().scores(query, key, weights) ** 2


def test_contract_lists_missing_pieces_of_a_new_score(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORES, "squared", Squared())
    offences = "\n".join(contract.check_score("squared", Squared()))
    assert "link: score=squared" in offences
    assert "page: squared says in_page = True" in offences
    assert "program: it computes another scores" in offences
    assert "explanation: scores" in offences


class Doubling(InterventionKind):
    """Twice the output of a head: computed, without explanation and program."""

    name = "Double"
    fields = ("ablate", "strength")
    pattern = "(double)"
    examples = ("double",)
    checks: ClassVar[Any] = dict.fromkeys(fields, (lambda value: True, "anything"))

    def parse(self, match: Any) -> dict[str, Any]:
        return {"ablate": "double", "strength": 0.0}

    def format(self, intervention: Any) -> str:
        return "double"

    def words(self, intervention: Any) -> str:
        return "twice its output"

    def edit_formula(self, formula: Formula, intervention: Any) -> Formula:
        return replace(formula, head_edits=replace(formula.head_edits, ablations=(Ablation("double", 0.0),)))

    def output(self, hand: Any, z: Tensor, taken: Tensor | None) -> Tensor:
        return 2 * z if hand.ablations else z


class Written(Doubling):
    """The same, with its program."""

    def output_python(self, hand: Any, z: str) -> str:
        return f"2 * {z}" if hand.ablations else z


def with_kind(monkeypatch: pytest.MonkeyPatch, kind: InterventionKind) -> list[str]:
    """The contract's sentences about a kind of intervention that replaces ablation."""
    table = (kind, *KINDS[1:])
    monkeypatch.setattr(edit_kinds, "KINDS", table)
    monkeypatch.setattr(intervention, "KINDS", table)
    return list(contract.check_intervention(table[0]))


def test_contract_lists_missing_pieces_of_a_new_intervention(monkeypatch: pytest.MonkeyPatch) -> None:
    offences = "\n".join(with_kind(monkeypatch, Doubling()))
    assert "term: Double has none" in offences
    assert "double: program: it computes another patched_output" in offences
    assert "double: explanation: patched_output" in offences


def test_contract_lists_the_rest_for_an_intervention_with_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    offences = "\n".join(with_kind(monkeypatch, Written()))
    assert "program" not in offences
    assert "double: explanation: patched_output" in offences


def test_abstract_normalizer_cannot_be_instantiated() -> None:
    with pytest.raises(TypeError, match="arithmetic"):
        type("Bare", (Normalizer,), {"weights": lambda self, scores: scores})()


# -- attributes and reprs --------------------------------------------------------------------------


def test_misspelt_step_raises_an_error_with_a_suggestion() -> None:
    layer = trace_of().layers[0]
    with pytest.raises(AttributeError, match="it has no 'weigths': did you mean 'weights'"):
        _ = layer.weigths
    assert {"weights", "w_q", "patched_head_output"} <= set(dir(layer))
    assert layer.memory is None
    assert layer.weights is not None
    assert torch.equal(layer.weights, layer["weights"])


def test_reprs_are_one_screen_at_most() -> None:
    trace = trace_of("the owl asked the moon " * 30)
    deep = replace(trace, layers=trace.layers * 16)
    explanation = contract.explain(trace, names.WEIGHTS, q=5, k=3)
    for item in (trace, deep, trace.layers[0], explanation, explanation.step, metrics.of(trace)):
        text = repr(item)
        assert len(text.splitlines()) <= 10, text
        assert len(text) <= 3000, text
        assert "tensor(" not in text
        assert "array(" not in text
    assert repr(explanation).startswith("Explanation(weights L0 H0 [5, 3] = ")
    assert "by formula: scores, scaled_scores, masked_scores, weights, head_output, output" in repr(trace.layers[0])
    assert math.isfinite(explanation.value)
    assert Cell(0, "weights", 0, 5, 3) == explanation.cell
