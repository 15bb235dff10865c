"""The mean pattern over prompts, against the model's own weights; and what is said of prompts whose tokens do not match."""

from __future__ import annotations

from dataclasses import replace

import formula_models as reference
import pytest
import torch
from margins import approx

from attention import ConfigError, Intervention, Model, Trace
from attention.comparison import compare, mean_weights

IDS = [[3, 14, 15, 9, 2, 6, 5], [3, 14, 21, 9, 7, 6, 5], [3, 14, 30, 9, 8, 6, 5]]


def models(*texts: list[int]) -> tuple[Model, ...]:
    network = reference.model("Llama")
    network.set_attn_implementation("eager")
    tokenizer = reference.tokenizer()
    return tuple(Model.of(network, tokenizer, reference.text(ids)) for ids in texts)


def test_mean_is_that_of_the_models_own_weights() -> None:
    network = reference.model("Llama")
    network.set_attn_implementation("eager")
    with torch.no_grad():
        own = [network(torch.tensor([ids]), output_attentions=True).attentions for ids in IDS]
    mean = mean_weights(model.trace() for model in models(*IDS))
    for layer in range(3):
        expected = torch.stack([each[layer][0] for each in own]).mean(0)
        assert mean.layers[layer].weights == approx(expected)
    assert mean.tokens == ("t03", "t14", "x2", "t09", "x4", "t06", "t05")
    assert mean.notes == (
        "The mean of the weights of 3 prompts, whose tokens differ at 2 (t15, t21, …), 4 (t02, t07, …).",
    )
    of_two = mean_weights(model.trace() for model in models(*IDS[:2]))
    expected = (
        torch.stack([each[0][0, 0] for each in own[:2]]) - torch.stack([each[0][0, 0] for each in own]).mean(0)
    ).mean(0)
    assert compare(mean, of_two).matrix.nan_to_num() == approx(expected)


def test_prompts_that_do_not_match_are_named() -> None:
    a, b = models(IDS[0], [*IDS[0][:2], 33, 34, *IDS[0][3:]])
    with pytest.raises(
        ConfigError,
        match=r"prompt 1 has 7 tokens and prompt 2 has 8 \(without a partner: 2 t15 in prompt 1; 2 t33, 3 t34 in prompt 2\)",
    ):
        mean_weights([a.trace(), b.trace()])
    with pytest.raises(ConfigError, match="at least one trace; got none"):
        mean_weights(iter(()))
    other = Model.of(reference.model("GPT-2"), reference.tokenizer(), reference.text(IDS[0])).trace()
    with pytest.raises(ConfigError, match="prompt 2 has other layers or heads"):
        mean_weights([a.trace(), Trace(other.tokens, other.layers[:1])])
    words = "without a partner: 2 t15 in this one; 2 t33, 3 t34 in the other"
    patch = Intervention(1, 0, patch="head_output")
    with pytest.raises(ConfigError, match=words):
        replace(a, interventions=(patch,), other=b).trace()
    difference = compare(a.trace(), b.trace())
    assert "Without a partner: 2 t15 in A; 2 t33, 3 t34 in B." in difference.notes[0]
    assert difference.notes[0] in repr(difference)
    assert "notes" not in repr(compare(a.trace(), a.trace()))
