"""A metric of your own, and a subset of heads, against hooks of plain torch on the same model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import formula_models as reference
import numpy as np
import pytest
import torch
from margins import approx
from torch import Tensor

from attention import ConfigError, Model, circuits
from attention.circuits.prompts import ABLATION, ESTIMATE, PATCH

IDS, OTHER = reference.BASE_IDS, reference.OTHER_IDS
N_HEADS, SIZE = 4, 6  # of the models of `reference`


def models(name: str) -> tuple[Any, Model, Model]:
    network, tokenizer = reference.model(name), reference.tokenizer()
    a, b = (Model.of(network, tokenizer, reference.text(ids)) for ids in (IDS, OTHER))
    return network, a, b


def projections(network: Any) -> list[Any]:
    """W_O of each layer, whose input is the output of the heads side by side."""
    blocks = network.transformer.h if hasattr(network, "transformer") else network.model.layers
    return [block.attn.c_proj if hasattr(block, "attn") else block.self_attn.o_proj for block in blocks]


def hooked(network: Any, ids: list[int], edit: Callable[[int, Tensor], Tensor]) -> Tensor:
    """The logits [query_pos vocabulary] while `edit` changes the input of each W_O."""
    handles = [
        module.register_forward_pre_hook(lambda _, args, layer=layer: (edit(layer, args[0].clone()),))
        for layer, module in enumerate(projections(network))
    ]
    with torch.no_grad():
        logits: Tensor = network(torch.tensor([ids])).logits[0]
    for handle in handles:
        handle.remove()
    return logits


def columns(head: int) -> slice:
    return slice(head * SIZE, head * SIZE + SIZE)


def ablated(network: Any, ids: list[int], at: int, head: int) -> Tensor:
    def edit(layer: int, z: Tensor) -> Tensor:
        if layer == at:
            z[..., columns(head)] = 0
        return z

    return hooked(network, ids, edit)


def patched(network: Any, ids: list[int], other: list[int], at: int, head: int) -> Tensor:
    seen: dict[int, Tensor] = {}
    hooked(network, other, seen.setdefault)

    def edit(layer: int, z: Tensor) -> Tensor:
        if layer == at:
            z[..., columns(head)] = seen[layer][..., columns(head)]
        return z

    return hooked(network, ids, edit)


def spread(logits: Tensor) -> Tensor:
    """Any function of all logits."""
    return logits.softmax(-1)[2:5, 7].sum() - logits[:, 3].square().mean()


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [*reference.MODELS])
def test_sweeps_measure_any_function_of_the_logits(name: str) -> None:
    network, a, b = models(name)
    before = spread(network(torch.tensor([IDS])).logits[0].detach())
    heads = [(2, 1), (0, 3), (1, 0)]
    alone = circuits.which(a, metric=spread, heads=heads)
    with_b = circuits.which(circuits.patch_aligned(a, b), metric=spread, patch="head_output", heads=heads)
    assert alone.heads == with_b.heads == ((0, 3), (1, 0), (2, 1))
    assert alone.quantity == "spread"
    assert alone.baseline == approx(float(before))
    for head in alone.heads:
        assert alone.change[head] == approx(float(spread(ablated(network, IDS, *head)) - before), scale=1)
        assert with_b.change[head] == approx(float(spread(patched(network, IDS, OTHER, *head)) - before), scale=1)
    for numbers in (alone.change, alone.estimate, with_b.change):
        assert {(int(y), int(x)) for y, x in np.argwhere(np.isfinite(numbers))} == {*alone.heads}
    assert len(alone.frame()) == 3
    everything = circuits.which(a, metric=spread)
    assert everything.change[2, 1] == approx(alone.change[2, 1])
    assert len(everything.frame()) == 12
    estimates = circuits.attribution(a, metric=spread, heads=heads)
    assert estimates.estimate == approx(alone.estimate, nan=True)
    assert "need not be a sum" in alone.no_direct_reason


def test_estimates_are_gradients_of_the_function() -> None:
    network, a, _ = models("GPT-2")
    values: list[Tensor] = []

    def keep(_: Any, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        values.append(args[0].detach().requires_grad_())
        return (values[-1],)

    # One layer at a time, so that the gradient is of that layer's output alone.
    found = circuits.attribution(a, metric=spread)
    for layer, module in enumerate(projections(network)):
        values.clear()
        handle = module.register_forward_pre_hook(keep)
        spread(network(torch.tensor([IDS])).logits[0]).backward()
        handle.remove()
        gradient = values[0].grad
        assert gradient is not None
        expected = -(values[0] * gradient)[0].unflatten(-1, (N_HEADS, SIZE)).sum((0, 2))
        assert found.estimate[layer] == approx(expected.detach().numpy())


def test_a_function_of_the_trace_sees_the_changed_run() -> None:
    network, a, _ = models("Llama")
    network.set_attn_implementation("eager")

    def looks(trace: Any) -> Tensor:
        weight: Tensor = trace.layers[2].weights[1, 6, 0]
        return weight

    def weight(edit: Callable[[int, Tensor], Tensor]) -> float:
        handles = [
            module.register_forward_pre_hook(lambda _, args, layer=layer: (edit(layer, args[0].clone()),))
            for layer, module in enumerate(projections(network))
        ]
        with torch.no_grad():
            attentions = network(torch.tensor([IDS]), output_attentions=True).attentions
        for handle in handles:
            handle.remove()
        return float(attentions[2][0, 1, 6, 0])

    def without(at: int, head: int) -> Callable[[int, Tensor], Tensor]:
        def edit(layer: int, z: Tensor) -> Tensor:
            if layer == at:
                z[..., columns(head)] = 0
            return z

        return edit

    sweep = circuits.which(a, metric=looks, heads=[(0, 1), (1, 2), (2, 1)])
    before = weight(lambda _, z: z)
    assert sweep.baseline == approx(before)
    for head in sweep.heads:
        assert sweep.change[head] == approx(weight(without(*head)) - before, scale=1)
    assert sweep.change[2, 1] == 0  # a head does not change where it looks itself
    assert "of a trace" in sweep.no_estimate_reason
    joint = circuits.together(a, [(0, 1), (1, 2)], metric=looks)
    table = joint.frame()
    assert [*table.columns] == ["what", "layer", "head", "change of looks, ablated"]
    assert [*table["what"][:3]] == ["together", "alone", "alone"]
    assert table.iloc[0, 3] == approx(joint.change)
    assert joint.individual_changes == approx([sweep.change[0, 1], sweep.change[1, 2]])


def test_numbers_without_a_gradient_have_no_estimate() -> None:
    _, a, _ = models("Llama")
    for metric in (
        lambda logits: float(logits.detach().max()),
        lambda logits: np.float32(logits.detach().numpy().max()),
        lambda logits: logits.numpy().max().item(),
    ):
        sweep = circuits.which(a, metric=metric, heads=[(1, 1)])
        assert sweep.quantity == "metric"
        assert np.isfinite(sweep.change[1, 1])
        assert sweep.no_estimate_reason.startswith("the metric gives no gradient")


def test_paths_measure_any_function_of_the_logits() -> None:
    network, a, b = models("Llama")
    traces = a.trace(), b.trace()
    heads = [(0, 2), (1, 1)]
    found = circuits.paths(*traces, mode="free", heads=heads, metric=spread)
    before, after = (spread(network(torch.tensor([ids])).logits[0].detach()) for ids in (IDS, OTHER))
    assert (found.baseline, found.other) == approx((float(before), float(after)))
    assert [end.name for end in found.sources] == ["L0 H2", "L1 H1"]
    expected = [float(spread(patched(network, IDS, OTHER, *head)) - before) for head in heads]
    assert found.values[:, 0].tolist() == approx(expected)
    assert [*found.frame()] == ["source", "target", "receiver", "change of spread, noising"]
    into = circuits.paths(*traces, "key", 2, heads=heads, metric=spread)
    assert into.values.shape == (2, 4)


def test_metric_of_a_prompt_set_receives_the_prompt() -> None:
    network, _, _ = models("GPT-2")
    tokenizer = reference.tokenizer()
    rows = [(IDS, OTHER, 11, 27), (OTHER, [3, 8, 15, 9, 2, 6], 5, 4)]
    words = [(reference.text(a), reference.text(b), reference.word(c), reference.word(d)) for a, b, c, d in rows]

    def difference(logits: Tensor, prompt: circuits.Prompt) -> Tensor:
        right, wrong = (tokenizer.convert_tokens_to_ids(token) for token in (prompt.target, prompt.distractor))
        return logits[-1, right] - logits[-1, wrong]

    prompts, model = circuits.PromptSet.from_rows(words), Model.of(network, tokenizer, "t03")
    ours = circuits.over_prompts(model, prompts, metric=difference, heads=[(0, 1), (2, 2)])
    theirs = circuits.over_prompts(model, prompts)
    assert ours.quantity == "difference"
    for name in (ABLATION, PATCH, ESTIMATE):
        for head in ours.heads:
            assert ours.means(name)[head] == approx(theirs.means(name)[head], scale=1, dtype="float32")
    assert len(ours.frame()) == 2
    assert ours.clean == approx(theirs.clean)


def test_both_directions_of_patching_are_named_and_equal_hooks() -> None:
    network, a, b = models("Llama")
    model, heads = circuits.patch_aligned(a, b), [(0, 2), (1, 1)]
    for direction, (into, source) in {"noising": (IDS, OTHER), "denoising": (OTHER, IDS)}.items():
        before = float(spread(network(torch.tensor([into])).logits[0].detach()))
        expected = [float(spread(patched(network, into, source, *head))) - before for head in heads]
        options: dict[str, Any] = {"metric": spread, "heads": heads, "direction": direction}
        sweep = circuits.which(model, patch="head_output", **options)
        assert sweep.baseline == approx(before)
        assert [sweep.change[head] for head in heads] == approx(expected)
        assert (
            sweep.columns[0]
            == f"change of spread, output (Z) from {'B' if direction == 'noising' else 'A'} ({direction})"
        )
        paths = circuits.paths(a.trace(), b.trace(), mode="free", **options)
        assert paths.values[:, 0].tolist() == approx(expected)
        assert paths.frame().columns[-1].endswith(direction)
        at = circuits.where(model, "head_output", "all", **options)
        assert at.values[:, 0].tolist() == approx(expected)
        estimates = circuits.attribution(model, patch="head_output", **options)
        assert estimates.estimate == approx(sweep.estimate, nan=True)
        prompts = circuits.PromptSet.from_rows([(reference.text(IDS), reference.text(OTHER), "t11", "t27")])
        result = circuits.over_prompts(a, prompts, **options)
        assert [result.means(PATCH)[head] for head in heads] == approx(expected)
        clean, corrupted = (float(spread(network(torch.tensor([ids])).logits[0].detach())) for ids in (IDS, OTHER))
        assert (result.clean[0], result.corrupted[0]) == approx((clean, corrupted))
        arrow = "corrupted → clean" if direction == "noising" else "clean → corrupted"
        assert f"{PATCH} ({direction}: {arrow}), mean" in result.frame().columns
    with pytest.raises(ConfigError, match=r"noising \(corrupted → clean\) or denoising .*; got 'back'"):
        circuits.which(model, patch="head_output", direction="back")


def test_errors_are_one_sentence() -> None:
    _, a, b = models("Llama")
    traces = a.trace(), b.trace()
    which: Callable[..., Any] = partial(circuits.which, a)
    cases: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
        (
            which,
            {"metric": lambda logits: logits[-1]},
            r"^A metric returns one number, .*; got a tensor \[40\]: index it",
        ),
        (which, {"metric": lambda logits: None}, "one number, .*; got None"),
        (which, {"metric": lambda trace: "high"}, "one number, .*; got 'high'"),
        (which, {"metric": "logit"}, "metric is a function of the logits .*; got 'logit'"),
        (which, {"metric": spread, "target": 5}, "instead of target, distractor and position; got both"),
        (which, {"heads": [(1, 4)]}, r"got \(1, 4\), and layer 1 has 4 heads"),
        (which, {"heads": [(3, 0)]}, r"got \(3, 0\), and this model has 3 layers"),
        (which, {"heads": [3]}, r"pairs \(layer, head\), .*; got \[3\]"),
        (which, {"heads": []}, "got none"),
        (
            partial(circuits.where, a, ablation="zero"),
            {"positions": "last"},
            "positions are whole numbers, .*; got 'last'",
        ),
        (partial(circuits.paths, *traces), {"metric": lambda trace: 0.0}, "metric of it reads the logits"),
    ]
    for call, options, message in cases:
        with pytest.raises(ConfigError, match=message):
            call(**options)
