"""Hooks by the names of steps, against hooks of plain torch on the same model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import formula_models as reference
import pytest
import torch
from margins import approx
from torch import Tensor

from attention import ConfigError, Intervention, Model
from attention.base.errors import SizeError
from attention.models.run_hooks import run_with_hooks
from attention.patching.forward import PatchedForward
from attention.patching.intervention import parse_codes

IDS = reference.BASE_IDS


def models(name: str, implementation: str = "eager") -> tuple[Any, Model]:
    network = reference.model(name)
    network.set_attn_implementation(implementation)
    return network, Model.of(network, reference.tokenizer(), reference.text(IDS))


@pytest.mark.sample(1)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", [*reference.MODELS])
def test_every_step_is_read_and_replaced_by_name(name: str, implementation: str) -> None:
    network, model = models(name, implementation)
    trace, seen = model.trace(), dict[str, Tensor]()

    def keep(step: str) -> Any:
        return lambda x: seen.__setitem__(step, x.detach().clone())

    steps = ("query", "key", "value", "weights", "head_output")
    hooks = {f"layers.1.{step}": keep(step) for step in (*steps, "mlp_output", "resid_post")}
    logits = model.run_with_hooks(hooks)
    with torch.no_grad():
        plain = network(torch.tensor([IDS]), output_hidden_states=True)
    assert logits == approx(plain.logits[0])
    assert not logits.requires_grad
    for step in steps:
        assert seen[step] == approx(trace.layers[1][step])
    assert seen["resid_post"] == approx(plain.hidden_states[2][0])
    # A replaced head output is that of an ablation, and the same by the weights that give it.
    ablated = replace(model, interventions=(Intervention(1, 2, "zero"),)).trace().logits
    for name_of_step in (
        "layers.1.weights",
        "blocks.1.attn.hook_pattern",
        "layers.1.head_output",
        "blocks.1.attn.hook_z",
    ):

        def zero(x: Tensor) -> Tensor:
            x = x.clone()
            x[2] = 0
            return x

        assert model.run_with_hooks({name_of_step: zero}) == approx(ablated)
    no_mlp = replace(model, interventions=parse_codes("1.mlp.zero"))
    assert model.run_with_hooks({"blocks.1.hook_mlp_out": torch.zeros_like}) == approx(no_mlp.trace().logits)
    both = no_mlp.run_with_hooks({"layers.1.head_output": lambda z: z * 0})
    expected = replace(model, interventions=parse_codes("1.mlp.zero;1.*.zero")).trace().logits
    assert both == approx(expected)


def test_gradients_reach_what_a_hook_returns() -> None:
    network, model = models("GPT-2")
    kept: list[Tensor] = []

    def keep(pattern: Tensor) -> Tensor:
        kept.append(pattern.detach().clone().requires_grad_())
        return kept[-1]

    logits = model.run_with_hooks({"layers.2.weights": keep})
    logits[-1, 11].backward()
    assert kept[0].grad is not None
    # ∂ logit / ∂ A by finite differences of the same model.
    step = 1e-2
    for head, query, key in ((0, 6, 2), (3, 6, 5)):

        def moved(sign: int, head: int = head, query: int = query, key: int = key) -> float:
            def change(pattern: Tensor) -> Tensor:
                pattern = pattern.clone()
                pattern[head, query, key] += sign * step
                return pattern

            with torch.no_grad():
                return float(model.run_with_hooks({"layers.2.weights": change})[-1, 11])

        assert float(kept[0].grad[head, query, key]) == approx(
            (moved(1) - moved(-1)) / (2 * step), within=0.002, why="a slope by differences"
        )
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.sample(2)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", [*reference.MODELS])
def test_steps_of_a_trace_have_the_gradients_of_the_models_own_weights(name: str, implementation: str) -> None:
    network, model = models(name, implementation)
    plain, trace = model.trace(), model.trace(requires_grad=True)
    assert trace.embeddings is not None
    for layer, expected in zip(trace.layers, plain.layers, strict=True):
        assert layer.weights.detach() == approx(expected.weights)
        assert layer.weights.requires_grad
        assert not expected.weights.requires_grad
    assert plain.embeddings is None
    trace.layers[2].weights[1, 6, 3].backward()
    # The same by the model itself, from its own embeddings.
    network.set_attn_implementation("eager")
    embeddings = network.get_input_embeddings()(torch.tensor([IDS])).detach().requires_grad_()
    network(inputs_embeds=embeddings, output_attentions=True).attentions[2][0, 1, 6, 3].backward()
    assert embeddings.grad is not None
    assert embeddings.grad.abs().max() > 1e-6
    assert trace.embeddings.grad == approx(embeddings.grad[0], terms=1024)
    scores = trace.layers[1]["scores"]
    (of_query,) = torch.autograd.grad(scores[0, 5, 2], trace.layers[1]["query"], retain_graph=True)
    keys = plain.layers[1]["key"]
    assert of_query[0, 5] == approx(keys[0, 2])
    with pytest.raises(ConfigError, match="run without interventions"):
        replace(model, interventions=(Intervention(0, 0, "zero"),)).trace(requires_grad=True)


@pytest.mark.sample(3)
@pytest.mark.parametrize("step", ["query", "weights", "head_output", "mlp_output", "resid_post"])
def test_what_a_hook_edits_in_place_counts(step: str) -> None:
    _, model = models("Llama", "sdpa")
    name = f"layers.1.{step}"

    def in_place(x: Tensor) -> None:
        x[..., 2, :] = 0

    def returned(x: Tensor) -> Tensor:
        x = x.clone()
        in_place(x)
        return x

    edited, plain = model.run_with_hooks({name: in_place}), model.run_with_hooks({})
    assert edited == approx(model.run_with_hooks({name: returned}))
    assert (edited - plain).abs().max() > 1e-3
    assert model.run_with_hooks({name: lambda x: None}) == approx(plain)


def test_gradients_do_not_pass_interventions_silently() -> None:
    _, model = models("Llama")
    changed = replace(model, interventions=(Intervention(1, 2, "zero"),))
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x.detach().requires_grad_())
        return kept[-1]

    with pytest.raises(
        ConfigError, match=r"Gradients do not pass the interventions on heads of layer 1.*make this change in a hook"
    ):
        changed.run_with_hooks({"layers.0.mlp_output": keep})
    changed.run_with_hooks({"layers.2.mlp_output": keep})[-1, 11].backward()  # after them
    assert kept[-1].grad is not None
    with torch.no_grad():
        assert changed.run_with_hooks({"layers.0.mlp_output": keep}) == approx(changed.trace().logits)


def test_the_logits_of_hooks_are_counted_before() -> None:
    _, model = models("Llama")
    loaded, inputs = model.load_inputs()
    hooks = {"layers.0.mlp_output": lambda x: pytest.fail("the model ran")}
    with pytest.raises(SizeError, match="The logits at all positions may take at most 0 MB here"):
        run_with_hooks(loaded, inputs, PatchedForward(), hooks, max_bytes=1000)  # 7 tokens × 40 numbers take 1,120


def test_bad_hooks_get_one_sentence() -> None:
    _, model = models("Llama")
    for name, hook, message in (
        ("layers.1.scores", torch.zeros_like, "got 'layers.1.scores': choose one of these"),
        ("weights", torch.zeros_like, "A hook is of layers.3.weights"),
        ("layers.7.weights", torch.zeros_like, "count from 0 to 2; got 7"),
        (
            "layers.1.weights",
            lambda x: x[0],
            r"returns a tensor \\[4, 7, 7\\], or None to leave it; got a tensor \\[7, 7\\]",
        ),
        ("layers.1.mlp_output", lambda x: 0, "got 0: return one"),
    ):
        with pytest.raises(ConfigError, match=message.replace("\\\\", "\\")):
            model.run_with_hooks({name: hook})
