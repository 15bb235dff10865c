"""The ablation sweep: batched ablations equal single ones, and the direct effect of each head on a logit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from test_model import CAT, OWL, TWO_TEXTS
from tiny_models import TinyModels

from attention import ConfigError, Intervention, Model
from attention.base.cache import CACHE
from attention.circuits import sweep
from attention.circuits.sweep import _N_RANDOM_GROUPS, HeadSweep, estimated_seconds, sweep_heads, together
from attention.models import forward_pass, linearize
from attention.models.library import LIBRARY, Settings
from attention.models.lm_head import Measurement
from attention.patching.intervention import parse_codes


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def model(tiny: TinyModels, family: str) -> Model:
    tiny(family)
    return Model(
        family, OWL.replace("moon", "<mask>", 1) if family == "BERT" else OWL, CAT if family in TWO_TEXTS else ""
    )


def ablation_sweep(source: Model, **more: Any) -> HeadSweep:
    *_, last = sweep_heads(source, **more)
    assert last.result is not None
    return last.result


@pytest.mark.parametrize("family", ["GPT-2", "Llama", "BERT", "T5", "gpt-oss"])
def test_batched_ablations_equal_single_ablations(
    tiny: TinyModels, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward_pass, "_BATCH_TOKENS", 9 * 4)  # three heads a batch: the last one is not full
    source = model(tiny, family)
    sweep = ablation_sweep(source, kind="mean")
    base = source.trace().predictions[-1]
    target = base.ids[0]
    assert sweep.quantity == f"log-probability of {base.tokens[0]}"
    assert sweep.baseline == approx(float(base.all_log_probabilities[target]))
    assert sweep.change.shape == (6 if family == "T5" else 2, 4)
    for layer, head in ((0, 1), (1, 3), (len(sweep.n_heads) - 1, 2)):
        changed = Model(source.name, source.text, source.text2, interventions=(Intervention(layer, head, "mean"),))
        expected = float(changed.trace().predictions[-1].all_log_probabilities[target]) - sweep.baseline
        assert sweep.change[layer, head] == approx(expected, terms=1024, scale=1)
        assert sweep.row(layer, head)[0] == sweep.change[layer, head]
    assert sweep.limit == np.abs(sweep.change).max() > 0
    assert abs(sweep.change[sweep.by_effect()[0]]) == sweep.limit
    assert [*sweep.frame()["layer"].head(1)] == [sweep.by_effect()[0][0]]
    contrast = ablation_sweep(source, target=int(base.ids[1]), distractor=int(base.ids[2]), position=base.position)
    assert contrast.baseline == approx(
        float(base.all_logits[base.ids[1]] - base.all_logits[base.ids[2]]), terms=1024, scale=1
    )
    assert "minus logit of" in contrast.quantity


FROZEN = r"norm|mlp$|self_attn$"
"""Modules that are frozen at the unchanged run, so that only the direct path of a head is left."""


@pytest.mark.parametrize("family", ["Llama", "Gemma 2", "Gemma 3", "Granite"])
def test_direct_effect_is_the_loss_when_all_else_is_frozen(tiny: TinyModels, family: str) -> None:
    """With all other parts and all norms frozen, ablating a head changes the logit by its direct effect, in each layer."""
    source = model(tiny, family)
    loaded, inputs = source.load_inputs()
    at, target, other = 8, 17, 42
    effects = linearize.direct_effects(loaded, inputs, Measurement(at, target, other))
    assert not isinstance(effects, str)
    parts, remainder = effects
    base = Model(source.name, source.text, predict=(at,)).trace().predictions[0]
    logit_difference = float(base.all_logits[target] - base.all_logits[other])
    assert sum(float(part.sum()) for part in parts.values()) + remainder == approx(logit_difference, terms=16384)
    cached: dict[str, torch.Tensor] = {}
    cap = getattr(loaded.model.config, "final_logit_softcapping", None)

    def freeze(path: str, args: tuple[torch.Tensor, ...], out: Any) -> Any:
        if "norm" in path:
            return args[0] * cached.setdefault(path, out / args[0])
        if path.endswith(f"layers.{free}.self_attn"):
            return out
        output, *others = out if isinstance(out, tuple) else (out,)
        frozen_output = cached.setdefault(path, output)
        return (frozen_output, *others) if isinstance(out, tuple) else frozen_output

    for free in range(2):
        cached.clear()
        hooks = [
            module.register_forward_hook(lambda _, args, out, path=path: freeze(path, args, out))
            for path, module in loaded.model.named_modules()
            if re.search(FROZEN, path) and "q_norm" not in path and "k_norm" not in path
        ]
        try:
            _ = source.trace()
            for head in range(4):
                silenced = Model(
                    source.name, source.text, predict=(at,), interventions=(Intervention(free, head, "zero"),)
                )
                row = silenced.trace().predictions[0].all_logits.double()
                if cap:  # undo the cap, with the proportion of the unchanged run
                    for token in (target, other):
                        original = float(base.all_logits[token])
                        row[token] = cap * torch.atanh(row[token] / cap) * original / (cap * math.atanh(original / cap))
                assert logit_difference - float(row[target] - row[other]) == approx(
                    float(parts[free][head]), terms=1024, scale=1
                )
                assert abs(float(parts[free][head])) > 1e-3
        finally:
            for hook in hooks:
                hook.remove()


@pytest.mark.parametrize(
    ("family", "reason"),
    {
        **dict.fromkeys(("GPT-2", "OPT", "T5", "Gemma 2", "Granite", "BART", "gpt-oss"), ""),
        "BERT": "fills masks", "RoBERTa": "predicts no tokens",
    }.items(),
)  # fmt: skip
def test_direct_effects_sum_to_the_logit_or_explain_why_not(tiny: TinyModels, family: str, reason: str) -> None:
    source = model(tiny, family)
    sweep = ablation_sweep(source)
    assert reason in sweep.no_direct_reason
    assert sweep.has_direct_effects == (not reason)
    assert len(sweep.columns) == 1 + sweep.has_estimates + sweep.has_direct_effects
    assert ("direct effect" in sweep.describe(0, 1)) == sweep.has_direct_effects
    if sweep.has_direct_effects:
        prediction = source.trace().predictions[-1]
        assert np.nansum(sweep.direct) + sweep.remainder == approx(prediction.logits[0])
    else:
        assert np.isnan(sweep.direct).all()


CHANGES = {
    "GPT-2": "0.1.zero;1.*.t0.2",
    "Llama": "0.2.takeV;*.3.first;1.1.w6,2=0.5r",
    "gpt-oss": "0.0.mean0.5;1.2.unscaled",
    "T5": "0.1.zero;4.*.t3",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", CHANGES)
@pytest.mark.parametrize("frozen", [False, True])
def test_ablation_sweep_keeps_existing_interventions(
    tiny: TinyModels, family: str, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward_pass, "_BATCH_TOKENS", 9 * 4)
    plain = model(tiny, family)
    other = replace(plain, text="the moon asked the owl and the owl blinked")
    source = replace(plain, interventions=parse_codes(CHANGES[family]), frozen=frozen, other=other)
    target = plain.trace().predictions[-1].ids[0]
    sweep = ablation_sweep(source)
    assert sweep.baseline == approx(float(source.trace().predictions[-1].all_log_probabilities[target]))
    assert sweep.interventions == tuple(intervention.label for intervention in source.interventions)
    assert sweep.interventions_words in sweep.columns[0]
    last = len(sweep.n_heads) - 1
    for layer, head in ((last, 2), (last, 1)):  # no frozen attention comes after these
        more = replace(source, interventions=(*source.interventions, Intervention(layer, head, "zero")))
        expected = float(more.trace().predictions[-1].all_log_probabilities[target]) - sweep.baseline
        assert sweep.change[layer, head] == approx(expected, terms=1024, scale=1)
    if sweep.has_direct_effects:
        prediction = source.trace().predictions[-1]
        assert np.nansum(sweep.direct) + sweep.remainder == approx(float(prediction.all_logits[target]))
    plain_sweep = ablation_sweep(source, unchanged=True)
    assert plain_sweep.change == approx(ablation_sweep(plain).change, scale=1, dtype="float32")
    assert not plain_sweep.interventions


def test_headless_model_reports_how_far_its_vectors_moved(tiny: TinyModels) -> None:
    tiny("RoBERTa")
    source = Model("RoBERTa", OWL)
    sweep = ablation_sweep(source)
    assert sweep.baseline == approx(1)
    assert (sweep.change <= 0).all()
    assert "cosine" in sweep.quantity
    vectors = source.trace().vectors
    changed = Model("RoBERTa", OWL, interventions=(Intervention(1, 2, "zero"),)).trace().vectors
    assert vectors is not None
    assert changed is not None
    cosine = torch.cosine_similarity(vectors.double(), changed.double(), dim=-1)
    assert 1 + sweep.change[1, 2] == approx(float(cosine.mean()))
    assert 1 + ablation_sweep(source, position=3).change[1, 2] == approx(float(cosine[3]))


def test_joint_ablation_is_compared_with_random_heads_in_every_run(tiny: TinyModels) -> None:
    source = model(tiny, "GPT-2")
    heads = ((0, 1), (1, 3))
    joint = together(source, heads)
    target = source.trace().predictions[-1].ids[0]
    ablations = tuple(Intervention(*head, "zero") for head in heads)
    ablated = Model(source.name, source.text, interventions=ablations).trace().predictions[-1]
    assert joint.ablated == approx(float(ablated.all_log_probabilities[target]))
    single = ablation_sweep(source)
    assert joint.individual_changes == approx([single.change[head] for head in heads])
    assert len(joint.random_changes) == _N_RANDOM_GROUPS
    assert min(joint.random_changes) <= joint.random_median <= max(joint.random_changes)
    assert "median of 16" in joint.description
    conditional = ablation_sweep(Model(source.name, source.text, interventions=ablations[:1]))
    assert conditional.baseline == approx(single.baseline + single.change[0, 1])
    assert conditional.change[0, 1] == 0
    assert conditional.baseline + conditional.change[1, 3] == approx(joint.ablated)
    assert math.isnan(together(source, tuple((0, head) for head in range(4))).random_median)
    # Interventions that ablate these heads already are not counted twice; others stay.
    hot = Intervention(0, 2, temperature=9.0)
    silent = together(Model(source.name, source.text, interventions=(*ablations, hot)), heads)
    assert silent.baseline == approx(ablation_sweep(Model(source.name, source.text, interventions=(hot,))).baseline)
    assert silent.change != 0


def test_ablation_sweep_is_budgeted_interruptible_and_cached(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    CACHE.reset(2**28)
    monkeypatch.setattr(forward_pass, "_BATCH_TOKENS", 9 * 3)
    source = model(tiny, "GPT-2")
    progress = sweep_heads(source)
    first, second = next(progress), next(progress)
    assert (first.done, first.total, second.done) == (0, 8, 2)
    assert first.seconds == approx(estimated_seconds(source))
    del progress  # a stopped sweep requests no further progress
    complete = ablation_sweep(source)
    assert [state.done for state in sweep_heads(source)] == [8]
    assert ablation_sweep(source) is complete
    monkeypatch.setattr(sweep, "_MAX_SECONDS", 0)
    with pytest.raises(ConfigError, match="choose a shorter text, or a smaller model"):
        estimated_seconds(source)


def test_missing_heads_tokens_and_positions_are_reported(tiny: TinyModels) -> None:
    source = model(tiny, "GPT-2")
    for more, sentence in (
        ({"position": 99}, "at a token from 0 to 8"),
        ({"target": 10**6}, "Token ids of GPT-2 range from 0 to 399; got 1000000"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            ablation_sweep(source, **more)
    with pytest.raises(ConfigError, match=r"got \(9, 0\), and this model has 2 layers"):
        together(source, ((9, 0),))
    tiny("Bloom")
    with pytest.raises(ConfigError, match="cannot be ablated"):
        ablation_sweep(Model("Bloom", OWL))
    tiny("BERT")
    with pytest.raises(ConfigError, match="fills masks"):
        ablation_sweep(Model("BERT", OWL))
