"""Which heads matter, for users of the package: targets as text, groups, estimates, and patches between texts of other lengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from margins import approx
from test_head_sweep import pair
from tiny_models import TinyModels

from attention import ConfigError, Intervention, Model, TextError, circuits, explain
from attention.circuits.sweep import sweep_heads
from attention.formula.names import HEAD_OUTPUT, KEY, PATCHED_OUTPUT, QUERY, VALUE
from attention.models.library import LIBRARY, Settings
from attention.sources import repeated_run

SHORT = "the owl asked the moon"
LONG = "the quiet owl asked the copper moon"


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def test_targets_are_ids_or_text(tiny: TinyModels) -> None:
    source = pair(tiny, "GPT-2")
    moon, owl = source.find_token(" moon")[0], source.find_token(" owl")[0]
    by_text = circuits.which(source, target=" moon", distractor=" owl", patch="head_output")
    by_id = circuits.which(source, target=moon, distractor=owl, patch="head_output")
    assert by_text is by_id
    assert by_text.quantity == "logit of ·moon minus logit of ·owl"
    *_, last = sweep_heads(source, None, moon, owl, "head_output")
    assert last.result is by_text
    mean = circuits.which(source, target=" moon", ablation="mean")
    assert mean.kind == "mean"
    joint = circuits.together(source, [(0, 1), (1, 3)], target=" moon", ablation="mean")
    assert joint.individual_changes == approx([mean.change[0, 1], mean.change[1, 3]])
    with pytest.raises(TextError, match="A target is one token of the model"):
        circuits.which(source, target="a quiet harbor")
    with pytest.raises(ConfigError, match="got none: give at least one"):
        circuits.together(source, [])
    with pytest.raises(ConfigError, match="Heads are ablated by zero or mean; got 'query'"):
        circuits.together(source, [(0, 1)], ablation="query")


def test_estimates_alone_equal_those_of_the_sweep(tiny: TinyModels) -> None:
    source = pair(tiny, "Llama")
    for patch in ("", "query", "weights"):
        sweep = circuits.which(source, target=" moon", patch=patch)
        estimates = circuits.attribution(source, target=" moon", patch=patch)
        assert estimates.baseline == approx(sweep.baseline)
        assert estimates.estimate == approx(sweep.estimate)
        assert estimates.direct == approx(sweep.direct)
        frame = estimates.frame()
        sizes = frame.iloc[:, 2].abs()
        assert [*sizes] == sorted(sizes, reverse=True)
        assert frame.columns[2] == ("estimate, noising" if patch else "estimate")
    with pytest.raises(
        ConfigError, match="gives no estimate: gradients are computed in the model without interventions"
    ):
        circuits.attribution(replace(source, interventions=(Intervention(0, 1, "zero"),)))


@pytest.mark.sample(5)
@pytest.mark.parametrize("step", [QUERY, KEY, VALUE, HEAD_OUTPUT])
@pytest.mark.parametrize("family", ["GPT-2", "Llama"])
def test_only_corresponding_tokens_are_patched(tiny: TinyModels, family: str, step: str) -> None:
    tiny(family)
    source = circuits.patch_aligned(Model(family, SHORT, interventions=(Intervention(1, 1, patch=step),)), LONG)
    trace, plain, other = (item.trace() for item in (source, Model(family, SHORT), Model(family, LONG)))
    pairs = repeated_run._aligned_positions(plain.tokens, other.tokens)
    assert 0 < len(pairs.here) <= len(plain.tokens) < len(other.tokens)
    name = PATCHED_OUTPUT if step == HEAD_OUTPUT else step
    kv_head = 0 if family == "Llama" and step in (KEY, VALUE) else 1
    parts = ((trace, name), (plain, step), (other, step))
    patched, own, theirs = (item.layers[1][part][kv_head] for item, part in parts)
    expected = own.clone()
    expected[list(pairs.here)] = theirs[list(pairs.there)]
    assert patched == approx(expected)
    assert not torch.equal(patched, own)
    assert f"Patches act at {len(pairs.here)} of {len(plain.tokens)} tokens" in trace.changes[-1]
    assert trace.predictions[0].logits[0] != plain.predictions[0].logits[0]
    if step == HEAD_OUTPUT:
        words = explain(trace, PATCHED_OUTPUT, 1, 1, 0, 0).words
        assert "the other state, where a token has a partner there" in words
    with pytest.raises(ConfigError, match="A program patches from a text of the same number of tokens"):
        source.snippet(trace)


def test_sweep_of_texts_of_other_lengths_equals_single_patches(tiny: TinyModels) -> None:
    tiny("Llama")
    source = circuits.patch_aligned(Model("Llama", SHORT), LONG)
    sweep = circuits.which(source, target=" moon", patch=HEAD_OUTPUT)
    assert "Patches act at" in sweep.alignment[0]
    single = replace(source, interventions=(Intervention(1, 2, patch=HEAD_OUTPUT),)).trace().predictions[-1]
    target = source.find_token(" moon")[0]
    assert sweep.change[1, 2] == approx(float(single.all_log_probabilities[target]) - sweep.baseline)
    assert sweep.rank_correlation > 0


def test_alignment_changes_nothing_where_lengths_are_equal(tiny: TinyModels) -> None:
    source = replace(pair(tiny, "GPT-2"), interventions=(Intervention(0, 1, patch=KEY),))
    (one,), (other,) = (item.trace().predictions for item in (source, replace(source, align=True)))
    assert torch.equal(one.all_logits, other.all_logits)
    assert replace(source, align=True).trace().changes == source.trace().changes


def test_weights_and_missing_texts_are_not_aligned(tiny: TinyModels) -> None:
    tiny("GPT-2")
    with pytest.raises(ConfigError, match="Weights have a row and a column for each token"):
        circuits.which(circuits.patch_aligned(Model("GPT-2", SHORT), LONG), patch="weights")
    here, there = ("[CLS]", "the", "cat"), ("[CLS]", "a", "dog", "[SEP]")
    assert repeated_run._aligned_positions(here, there) == ((0,), (0,))
    sentence = repeated_run._describe_alignment(here, there)
    assert sentence.endswith("(different texts, by the tokens they share); 1 the, 2 cat keep their own values.")
