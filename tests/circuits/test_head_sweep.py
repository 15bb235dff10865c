"""Sweeps that patch each head from another run: equal to single patches, and estimated by attribution patching."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import formula_models as reference
import numpy as np
import pytest
import torch
from data import patches_transformer_lens
from margins import approx
from test_model import CAT, OWL, TWO_TEXTS
from tiny_models import TinyModels

from attention import ConfigError, Intervention, Model
from attention.base.printed import format_number
from attention.circuits import batched_heads
from attention.circuits.sweep import (
    SATURATION_CAVEAT,
    SWEEP_KINDS,
    HeadSweep,
    other_run,
    rank_correlation,
    sweep_heads,
)
from attention.formula.edit_kinds import PATCH_CODES
from attention.formula.names import HEAD_OUTPUT, KEY, QUERY, VALUE, WEIGHTS
from attention.models import forward_pass
from attention.models.library import LIBRARY, Settings
from attention.models.lm_head import Measurement
from attention.patching.forward import Activations

MOON = "the moon asked the owl and the owl blinked"
FAMILIES = ["GPT-2", "Llama", "BERT", "T5", "gpt-oss", "Gemma 2"]


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def pair(tiny: TinyModels, family: str) -> Model:
    """A model with two texts of the same length: the second is that of its other run."""
    tiny(family)
    text, other = (t.replace("owl", "<mask>", 1) if family == "BERT" else t for t in (OWL, MOON))
    text2 = CAT if family in TWO_TEXTS else ""
    return Model(family, text, text2, other=Model(family, other, text2))


def sweep_of(source: Model, **more: Any) -> HeadSweep:
    *_, last = sweep_heads(source, **more)
    assert last.result is not None
    return last.result


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_batched_patches_equal_single_interventions(
    tiny: TinyModels, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward_pass, "_BATCH_TOKENS", 9 * 4)
    source = pair(tiny, family)
    base = source.trace().predictions[-1]
    target, position = base.ids[0], base.position
    for step in PATCH_CODES:
        sweep = sweep_of(source, kind=step, target=target, position=position)
        assert not sweep.is_ablation
        assert "from B" in sweep.columns[0]
        for layer, head in ((0, 1), (1, 3), (len(sweep.n_heads) - 1, 2)):
            single = replace(source, interventions=(Intervention(layer, head, patch=step),), predict=(position,))
            expected = float(single.trace().predictions[0].all_log_probabilities[target]) - sweep.baseline
            assert sweep.change[layer, head] == approx(expected, scale=abs(sweep.baseline), terms=1024)
        assert sweep.limit > 1e-4
        if family in ("Llama", "Gemma 2") and step in (KEY, VALUE):  # two heads share keys and values
            assert sweep.change[:, ::2] == approx(sweep.change[:, 1::2], terms=1024, scale=1, dtype="float32")
            assert sweep.estimate[:, ::2] == approx(sweep.estimate[:, 1::2])


def test_patch_sweep_keeps_existing_interventions(tiny: TinyModels) -> None:
    source = replace(
        pair(tiny, "Llama"),
        interventions=(
            Intervention(0, 1, "zero"),
            Intervention(1, 2, patch=WEIGHTS),
            Intervention(1, 1, temperature=0.2),
        ),
        frozen=True,
    )
    for step in PATCH_CODES:
        sweep = sweep_of(source, kind=step, target=17)
        for layer, head in ((0, 1), (1, 1), (1, 2), (1, 3)):
            more = replace(source, interventions=(*source.interventions, Intervention(layer, head, patch=step)))
            expected = float(more.trace().predictions[-1].all_log_probabilities[17]) - sweep.baseline
            assert sweep.change[layer, head] == approx(expected, scale=abs(sweep.baseline), terms=1024)
        assert "without interventions" in sweep.no_estimate_reason
        assert np.isnan(sweep.estimate).all()
    unchanged = sweep_of(source, kind=QUERY, target=17, unchanged=True)
    assert unchanged.change == approx(sweep_of(pair(tiny, "Llama"), kind=QUERY, target=17).change)


def gradients_of(source: Model, measurement: Measurement) -> Mapping[int, batched_heads._HeadGradients]:
    loaded, inputs = source.load_inputs()
    return batched_heads.run_with_gradients(loaded, inputs, measurement)[1]


def part_of_the_way(
    own: Mapping[int, batched_heads._HeadGradients], other: Mapping[int, Activations], step: str, share: float
) -> dict[int, Activations]:
    """The other run's activations, moved to `share` of the way from this run's."""
    moved = {}
    for layer, activations in other.items():
        start, end = own[layer].values[step], getattr(activations.call, step)
        moved[layer] = replace(activations, call=replace(activations.call, **{step: start + share * (end - start)}))
    return moved


@pytest.mark.parametrize("family", FAMILIES)
def test_estimates_equal_finite_differences(tiny: TinyModels, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = pair(tiny, family)
    loaded, inputs = source.load_inputs()
    for module in loaded.model.modules():
        if isinstance(getattr(module, "act", None), torch.nn.ReLU):  # a step across its kink is no derivative
            monkeypatch.setattr(module, "act", torch.nn.GELU())
    at = source.trace().predictions[-1].position
    measurement, share = Measurement(at, 17, 42), 2e-3
    own = gradients_of(source, measurement)
    heads = tuple((layer, head) for layer, site in loaded.sites_by_layer.items() for head in range(site.n_heads))
    for step in (name for name in PATCH_CODES if name != WEIGHTS):
        other = other_run(source, loaded, inputs, step)
        estimates = batched_heads.estimated_changes(own, step, other)
        changes = []
        for sign in (1, -1):
            moved = part_of_the_way(own, other, step, sign * share)
            runs = batched_heads.changed_runs(
                loaded, inputs, [(Intervention(*head, patch=step),) for head in heads], measurement, None, moved
            )
            changes.append([after for batch in runs for _, after in batch])
        numeric = (np.array(changes[0]) - np.array(changes[1])) / (2 * share)
        exact = np.array([float(estimates[layer][head]) for layer, head in heads])
        assert exact == approx(numeric, within=4e-3 * max(1.0, np.abs(exact).max()), why="a slope by differences")
        assert np.abs(exact).max() > 1e-3


@pytest.mark.parametrize("kind", SWEEP_KINDS)
def test_patching_from_itself_changes_and_estimates_nothing(tiny: TinyModels, kind: str) -> None:
    source = pair(tiny, "Llama")
    itself = sweep_of(replace(source, other=Model(source.name, source.text)), kind=kind)
    if itself.is_ablation:
        assert itself.limit > 1e-3
    else:
        assert itself.limit == approx(0, scale=1)
        assert itself.estimate == approx(0, scale=1)


@pytest.mark.parametrize("kind", ["zero", "mean", "value", "weights", "head_output"])
def test_estimates_are_exact_where_the_read_out_is_linear(tiny: TinyModels, kind: str) -> None:
    """In the last layer, without its MLP and the final norm, the logits are linear in Z, and Z in the weights and in the values."""
    source = pair(tiny, "Llama")
    loaded, _ = source.load_inputs()
    last = loaded.model.model.layers[-1]
    with ExitStack() as hooks:
        hooks.callback(last.mlp.register_forward_hook(lambda _, __, out: out * 0).remove)
        hooks.callback(loaded.model.model.norm.register_forward_hook(lambda _, args, __: args[0] + 0).remove)
        sweep = sweep_of(source, kind=kind, target=17, distractor=42, position=8)
    assert sweep.estimate[-1] == approx(sweep.change[-1], terms=1024, dtype="float32")
    assert np.abs(sweep.change[-1]).max() > 1e-3
    assert np.abs(sweep.change[0] - sweep.estimate[0]).max() > 1e-3


def test_gradients_leave_the_model_as_it_was(tiny: TinyModels) -> None:
    source = pair(tiny, "GPT-2")
    loaded, _ = source.load_inputs()
    first = next(loaded.model.parameters())
    first.requires_grad_(False)
    before = [weight.requires_grad for weight in loaded.model.parameters()]
    assert before.count(True) == len(before) - 1
    gradients_of(source, Measurement(8, 17))
    assert [weight.requires_grad for weight in loaded.model.parameters()] == before
    assert all(weight.grad is None for weight in loaded.model.parameters())
    assert not source.trace().predictions[0].all_logits.requires_grad
    first.requires_grad_(True)


def test_rank_correlation_is_that_of_spearman(tiny: TinyModels) -> None:
    sweep = sweep_of(pair(tiny, "GPT-2"), kind=QUERY)
    ranks = [np.argsort(np.argsort(row.ravel())) for row in (sweep.change, sweep.estimate)]
    assert [len(set(row)) for row in ranks] == [8, 8]
    expected = 1 - 6 * int(((ranks[0] - ranks[1]) ** 2).sum()) / (8 * (8**2 - 1))  # without equal numbers
    assert sweep.rank_correlation == approx(expected)
    assert format_number(expected) in sweep.describe_estimate()
    assert SATURATION_CAVEAT in sweep.describe_estimate()
    with_ties = rank_correlation(np.array([1.0, 2, 2, 3, 5]), np.array([5.0, 1, 1, 1, 9]))
    assert with_ties == approx(np.corrcoef([1, 2.5, 2.5, 4, 5], [4, 2, 2, 2, 5])[0, 1])
    assert np.isnan(rank_correlation(np.ones(3), np.arange(3.0)))


def test_impossible_sweeps_are_refused_with_a_sentence(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    source = pair(tiny, "Llama")
    with pytest.raises(ConfigError, match=r"gets an ablation .* got 'noise': choose one"):
        sweep_of(source, kind="noise")
    with pytest.raises(ConfigError, match="needs another state to patch from; got none"):
        sweep_of(replace(source, other=None), kind="value")
    with pytest.raises(ConfigError, match="needs the same number of tokens in both states"):
        sweep_of(replace(source, other=Model("Llama", CAT)), kind="value")
    monkeypatch.setattr(batched_heads, "_ROWS_PER_LAYER", 10**8)
    with pytest.raises(ConfigError, match="Gradients may take at most 8,192 MB; these take about"):
        sweep_of(source, kind="zero", target=19)
    tiny("RoBERTa")
    vectors = sweep_of(Model("RoBERTa", OWL))
    assert "its gradient 0" in vectors.describe_estimate()
    assert np.isnan(vectors.rank_correlation)


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", patches_transformer_lens.FAMILIES)
@pytest.mark.parametrize("step", PATCH_CODES)
def test_sweeps_equal_those_of_transformer_lens(name: str, step: str) -> None:
    expected = json.loads(patches_transformer_lens.FILE.read_text())[name]
    network, tokenizer = reference.model(name), reference.tokenizer()
    clean, other = (
        Model.of(network, tokenizer, reference.text(ids)) for ids in (reference.BASE_IDS, reference.OTHER_IDS)
    )
    sweep = sweep_of(replace(clean, other=other), kind=step, target=reference.TARGET, distractor=reference.DISTRACTOR)
    assert sweep.baseline == approx(expected["baseline"])
    assert sweep.baseline + sweep.change == approx(expected[step], terms=1024, dtype="float32")
    if step == HEAD_OUTPUT:
        assert sweep.estimate == approx(expected["estimate"], terms=16384, dtype="float32")
