"""Path patching: identities, a slow implementation with plain hooks, TransformerLens, and Wang et al.'s name movers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import formula_models as reference
import numpy as np
import pytest
import torch
from data import paths_transformer_lens
from margins import approx
from test_model import CAT, OWL, TWO_TEXTS
from tiny_models import TinyModels

from attention import ConfigError, Intervention, Model, Trace, circuits
from attention.base.cache import CACHE
from attention.circuits import path_patching
from attention.circuits.path_patching import MODES, PathRequest, _both_parts, _LogitMeasurement, _PathRuns
from attention.models.library import LIBRARY, Settings
from attention.training import Trained

OTHER = "the cat asked the mat and the owl blinked"
RECEIVERS = ("query", "key", "value")
LAYERS, HEADS = 3, 4  # of the tiny Llama of the slow implementation
FAMILIES = ["GPT-2", "Llama", "BERT", "Gemma 2", "GPT-NeoX", "OPT", "gpt-oss", "T5", "BART", "Jamba", "Qwen3-Next"]


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def both(tiny: TinyModels, family: str, **more: Any) -> tuple[Model, Model]:
    tiny(family)
    a, b = OWL, OTHER
    if family == "BERT":
        a, b = a.replace("moon", "<mask>", 1), b.replace("mat", "<mask>", 1)
    second = CAT if family in TWO_TEXTS else ""
    return Model(family, a, second, **more), Model(family, b, second)


def in_memory(name: str, dtype: torch.dtype = torch.float64) -> tuple[Any, Model, Model]:
    network, tokenizer = reference.model(name).to(dtype), reference.tokenizer()
    texts = (reference.text(ids) for ids in (reference.BASE_IDS, reference.OTHER_IDS))
    a, b = (Model.of(network, tokenizer, text) for text in texts)
    return network, a, b


def named(result: circuits.PathPatching) -> dict[tuple[str, str], float]:
    return {
        (source.name, target.name): float(result.values[i, j])
        for (i, source), (j, target) in product(enumerate(result.sources), enumerate(result.targets))
        if not np.isnan(result.values[i, j])
    }


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_paths_from_the_run_itself_change_nothing(tiny: TinyModels, family: str) -> None:
    a, _ = both(tiny, family)
    trace = a.trace()
    for mode in MODES:
        for receiver in ("logits", *RECEIVERS):
            result = circuits.paths(trace, trace, receiver, mode=mode, target=17)
            assert result.limit == approx(0, scale=1)
            assert result.baseline == result.other == approx(float(trace.predictions[-1].all_logits[17]))


@pytest.mark.parametrize("family", FAMILIES)
def test_free_path_of_an_ablated_head_is_its_ablation(tiny: TinyModels, family: str) -> None:
    a, _ = both(tiny, family)
    layer = 3 if family in (*TWO_TEXTS, "Qwen3-Next") else 1 if family == "Jamba" else 0
    b = Model(a.name, a.text, a.text2, interventions=(Intervention(layer, 2, "zero"),))
    result = circuits.paths(a.trace(), b.trace(), mode="free", target=17)
    changes = named(result)
    assert changes[f"L{layer} H2", "logits"] == approx(result.other - result.baseline, terms=1024, scale=1)
    assert abs(changes[f"L{layer} H2", "logits"]) > 1e-3
    earlier = [change for (name, _), change in changes.items() if name.startswith(f"L{layer} H") and name[-1] != "2"]
    assert len(earlier) == 3
    assert earlier == approx([0, 0, 0], scale=1)


@pytest.mark.parametrize("family", ["GPT-2", "Llama", "Gemma 2", "BERT"])
def test_free_path_of_the_embedding_is_the_other_run(tiny: TinyModels, family: str) -> None:
    a, b = (model.trace() for model in both(tiny, family))
    result = circuits.paths(a, b, mode="free", target=17, distractor=42)
    expected = float(b.predictions[-1].all_logits[17] - b.predictions[-1].all_logits[42])
    assert result.other == approx(expected)
    assert named(result)["embedding", "logits"] == approx(result.other - result.baseline, terms=16384)


@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_direct_paths_into_linear_logits_sum_to_the_whole(name: str) -> None:
    """With the last norm frozen at run A the logits are linear in the parts, so their effects add up to that of B's last vector."""
    network, a, b = in_memory(name)
    norm = network.transformer.ln_f if name == "GPT-2" else network.model.norm
    last: list[torch.Tensor] = []
    hook = norm.register_forward_pre_hook(lambda _, args: last.append(args[0][0, -1].detach()))
    run_a, run_b = _both_parts(a.trace().model_run, b.trace().model_run)
    runs = _PathRuns(run_a.runner((6,)), run_b.runner((6,)))
    hook.remove()
    x_a, x_b = last[-2:]  # of the recorded runs
    factor = (
        norm.weight.detach()
        / ((x_a - x_a.mean()).pow(2).mean() if name == "GPT-2" else x_a.pow(2).mean())
        .add(norm.eps if name == "GPT-2" else norm.variance_epsilon)
        .sqrt()
    )

    def linear(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(-1, keepdim=True) if name == "GPT-2" else x) * factor

    hook = norm.register_forward_hook(lambda _, args, __: linear(args[0]))
    measurement = _LogitMeasurement(reference.TARGET, reference.DISTRACTOR)
    batches = runs.changes(runs.parts, (), "direct", measurement)
    changes = [change for _, batch in batches for _, _, change in batch]
    hook.remove()
    w_u = network.lm_head.weight.detach()
    whole = float((linear(x_b) - linear(x_a)) @ (w_u[reference.TARGET] - w_u[reference.DISTRACTOR]))
    assert len(changes) == 1 + 3 * (4 + 1)
    assert min(abs(whole), np.abs(changes).max()) > 1e-2
    assert sum(changes) == approx(whole)


def slow(network: Any, ids: tuple[list[int], list[int]], source: tuple[int, int], receiver: str, at: tuple[int, int], mode: str) -> float:  # fmt: skip
    """One path of the tiny Llama with plain hooks: the logit difference with the path patched."""
    layers, size = network.model.layers, 24 // HEADS
    caches: list[dict[str, torch.Tensor]] = []

    def run(tokens: list[int], hooks: list[tuple[Any, bool, Any]]) -> torch.Tensor:
        with ExitStack() as stack, torch.no_grad():
            for module, is_input, function in hooks:
                register = module.register_forward_pre_hook if is_input else module.register_forward_hook
                stack.callback(register(function).remove)
            logits: torch.Tensor = network(torch.tensor([tokens]), use_cache=False).logits[0, -1]
        return logits

    for tokens in ids:
        cache: dict[str, torch.Tensor] = {}

        def store_input(_: Any, args: Any, key: str, cache: dict[str, torch.Tensor] = cache) -> None:
            cache[key] = args[0].clone()

        def store_output(_: Any, __: Any, out: Any, key: str, cache: dict[str, torch.Tensor] = cache) -> None:
            cache[key] = out.clone()

        hooks: list[tuple[Any, bool, Any]] = []
        for i, layer in enumerate(layers):
            hooks.append((layer.self_attn.o_proj, True, lambda m, args, i=i, f=store_input: f(m, args, f"z{i}")))
            hooks.append((layer.mlp, False, lambda m, args, out, i=i, f=store_output: f(m, args, out, f"mlp{i}")))
        run(tokens, hooks)
        caches.append(cache)
    clean, other = caches
    received: dict[str, torch.Tensor] = {}

    def patched_z(_: Any, args: Any, i: int) -> tuple[torch.Tensor]:
        z = args[0].clone() if mode == "free" else clean[f"z{i}"].clone()
        if i == source[0]:
            columns = slice(source[1] * size, (source[1] + 1) * size)
            z[..., columns] = other[f"z{i}"][..., columns]
        return (z,)

    hooks = [
        (layer.self_attn.o_proj, True, lambda m, args, i=i: patched_z(m, args, i)) for i, layer in enumerate(layers)
    ]
    if mode == "direct":
        hooks += [(layer.mlp, False, lambda *_, i=i: clean[f"mlp{i}"].clone()) for i, layer in enumerate(layers)]
    if receiver != "logits":
        projection = getattr(layers[at[0]].self_attn, f"{receiver[0]}_proj")
        group = 1 if receiver == "query" else HEADS // network.config.num_key_value_heads
        columns = slice(at[1] // group * size, (at[1] // group + 1) * size)
        hooks.append((projection, False, lambda _, __, out: received.update(x=out.clone())))
    logits = run(ids[0], hooks)
    if receiver != "logits":

        def replace(_: Any, __: Any, out: torch.Tensor) -> torch.Tensor:
            result = out.clone()
            result[..., columns] = received["x"][..., columns]
            return result

        logits = run(ids[0], [(projection, False, replace)])
    return float(logits[reference.TARGET] - logits[reference.DISTRACTOR])


@pytest.mark.sample(5)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["Llama", "Llama with shared keys"])
def test_paths_equal_those_of_plain_hooks(name: str, mode: str) -> None:
    network, a, b = in_memory(name)
    ids = reference.BASE_IDS, reference.OTHER_IDS
    traces = a.trace(), b.trace()
    for receiver in ("logits", *RECEIVERS):
        result = circuits.paths(*traces, receiver, mode=mode, target=reference.TARGET, distractor=reference.DISTRACTOR)
        checked = 0
        for (i, source), (j, target) in product(enumerate(result.sources), enumerate(result.targets)):
            if not source.heads or np.isnan(result.values[i, j]):
                continue
            at = (target.layer or 0, target.heads[-1] if target.heads else 0)
            expected = slow(network, ids, (source.layer or 0, source.heads[0]), receiver, at, mode)
            assert result.baseline + result.values[i, j] == approx(expected)
            checked += 1
        n_targets = 2 if "shared" in name and receiver in ("key", "value") else 4
        assert checked == (12 if receiver == "logits" else (4 + 8) * n_targets)
        assert result.limit > 1e-3


def test_direct_paths_equal_those_of_transformer_lens() -> None:
    numbers = json.loads(paths_transformer_lens.FILE.read_text())
    for name, stored in numbers.items():
        _, a, b = in_memory(name, torch.float32)
        traces = a.trace(), b.trace()
        for receiver in stored.keys() - {"baseline"}:
            expected = np.array(stored[receiver]).reshape(LAYERS, HEADS, LAYERS, HEADS)
            result = circuits.paths(*traces, receiver, target=reference.TARGET, distractor=reference.DISTRACTOR)
            assert result.baseline == approx(stored["baseline"])
            heads = [(i, source) for i, source in enumerate(result.sources) if source.heads]
            for (i, source), (j, target) in product(heads, enumerate(result.targets)):
                if not np.isnan(result.values[i, j]):
                    cell = expected[source.layer, source.heads[0], target.layer, target.heads[0]]
                    assert result.baseline + result.values[i, j] == approx(cell, terms=1024, dtype="float32")
            assert result.limit > 1e-2  # far above the tolerance
    assert {receiver for stored in numbers.values() for receiver in stored} == {"baseline", *RECEIVERS}


def test_induction_head_reads_keys_that_the_first_layer_wrote() -> None:
    """K-composition in a tiny trained model: where the word before the answer is another, the key of layer 1 comes from layer 0."""
    a, b = (Trained("induction", text=text) for text in ("owl moon sea cat owl", "owl owl sea cat owl"))
    traces = a.trace(), b.trace()
    for receiver in RECEIVERS:
        assert circuits.paths(traces[0], traces[0], receiver).limit == approx(0, scale=1)
    keys = circuits.paths(*traces, "key")
    (source, target), *_ = keys.largest()
    assert keys.describe(source, target).startswith("L0 H0 → the key of L1 H0: −")
    assert keys.values[source, target] < -0.5 * keys.baseline < -5
    free = circuits.paths(*traces, mode="free", target="moon")
    moon = traces[0].predictions[-1].ids[0]
    expected = [float(trace.predictions[-1].all_logits[moon]) for trace in traces]
    assert [free.baseline, free.other] == approx(expected)
    assert named(free)["embedding", "logits"] == approx(expected[1] - expected[0])
    assert abs(expected[1] - expected[0]) > 0.1
    for receiver in RECEIVERS:
        into_head = circuits.paths(*traces, receiver, layer=1)
        assert {source.layer for source in into_head.sources} == {None, 0}
        assert np.isfinite(into_head.values).all()
    ablated = replace(a, interventions=(Intervention(0, 0, "zero"),)).trace()
    result = circuits.paths(traces[0], ablated, mode="free", target="moon")
    assert named(result)["L0 H0", "logits"] == approx(result.other - result.baseline)


def test_progress_counts_every_path_and_the_result_is_cached(tiny: TinyModels) -> None:
    CACHE.reset(2**28)
    a, b = (model.trace() for model in both(tiny, "Llama"))
    request = PathRequest("query", 1, mode="mlps", target=17)
    steps = [*path_patching.patch_paths(a.model_run, b.model_run, request)]
    done = [step.done for step in steps]
    assert done == sorted(done)
    assert done[0] == 0
    n_sources = 1 + 4 + 1
    assert done[-1] == steps[-1].total == n_sources * (1 + 4)
    assert [step.result is None for step in steps] == [True] * (len(steps) - 1) + [False]
    assert len([*path_patching.patch_paths(a.model_run, b.model_run, request)]) == 1
    result = steps[-1].result
    assert result is not None
    assert len(result.frame()) == n_sources * 4
    largest = result.frame().iloc[0]
    (source, target), *_ = result.largest()
    assert [largest["source"], largest["target"]] == [result.sources[source].name, result.targets[target].name]
    assert result.describe(source, target).startswith(f"{largest['source']} → the query of {largest['target']}: ")
    assert np.nanmax(np.abs(result.values)) == result.limit == abs(largest.iloc[-1])


def test_one_source_and_one_head_are_a_cell_of_all(tiny: TinyModels) -> None:
    a, b = (model.trace() for model in both(tiny, "Llama"))
    everything = named(circuits.paths(a, b, "value", target=17, quantity="log-probability"))
    one = circuits.paths(a, b, "value", 1, 3, heads=[(0, 2)], target=17, quantity="log-probability")
    assert [end.name for end in (*one.sources, *one.targets)] == ["L0 H2", "L1 H2–H3 (shared value)"]
    assert one.values.item() == approx(everything["L0 H2", "L1 H2–H3 (shared value)"])
    assert one.quantity.startswith("log-probability of ")
    logits = circuits.paths(a, b, target=17)
    assert logits.layer_map().shape == (2, 5)
    assert logits.layer_map()[1, 4] == named(logits)["L1 MLP", "logits"]


def test_model_is_as_before_also_after_an_error() -> None:
    network, a, b = in_memory("Llama")
    traces = a.trace(), b.trace()
    forwards = [vars(module).get("forward") for module in network.modules()]
    hooks = [len(module._forward_pre_hooks) + len(module._forward_hooks) for module in network.modules()]
    steps = path_patching.patch_paths(traces[0].model_run, traces[1].model_run, PathRequest("query"))
    next(steps)
    next(steps)
    steps.close()
    with pytest.raises(ConfigError, match=r"Token ids of .* range from 0 to 39; got 4000"):
        circuits.paths(*traces, target=4000)
    assert [vars(module).get("forward") for module in network.modules()] == forwards
    assert [len(module._forward_pre_hooks) + len(module._forward_hooks) for module in network.modules()] == hooks


def test_errors_say_what_to_do(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (model.trace() for model in both(tiny, "Llama"))
    tiny("Falcon")
    tiny("RoBERTa")
    cases: list[tuple[Trace, Trace, dict[str, Any], str]] = [
        (a, Model("Llama", OWL + " again").trace(), {}, "same number of tokens"),
        (a, Model("Falcon", OWL).trace(), {}, "only the weights are known"),
        (*[Model("RoBERTa", OWL).trace()] * 2, {}, "predicts no tokens"),
        (a, Trained("induction", steps=1).trace(), {}, "of one model; got"),
        (*(Trained("induction", seed=seed, steps=1).trace() for seed in (0, 1)), {}, "are of one model"),
        (a, b, {"receiver": "z"}, "receiver of path patching is one of logits, query, key, value; got 'z'"),
        (a, b, {"mode": "total"}, "mode of path patching is one of direct, mlps, free; got 'total'"),
        (a, b, {"layer": 1}, "The logits belong to no head"),
        (a, b, {"receiver": "key", "head": 1}, "A receiving head has a layer"),
        (a, b, {"receiver": "key", "layer": 2}, "Layers count from 0 to 1; got 2"),
        (a, b, {"receiver": "key", "layer": 1, "head": 4}, "Heads of layer 1 count from 0 to 3; got 4"),
        (a, b, {"heads": [(0, 9)]}, r"got \(0, 9\), and layer 0 has 4 heads"),
        (a, b, {"position": 99}, "A prediction is read at a token from 0 to"),
    ]
    for trace, other, options, message in cases:
        with pytest.raises(ConfigError, match=message):
            circuits.paths(trace, other, **options)
    monkeypatch.setattr(path_patching, "_MAX_SECONDS", 1e-9)
    with pytest.raises(ConfigError, match=r"paths in turn would take about .* choose one receiving head"):
        circuits.estimated_seconds_of_paths(a, b, PathRequest())


NAMES = ("Mary", "John"), ("Tom", "James"), ("Dan", "Martin"), ("Amy", "Paul")
TEMPLATES = (
    "When {} and {} went to the store, {} gave a drink to",
    "Then, {} and {} had a long argument. Afterwards {} said to",
    "When {} and {} got a snack at the house, {} decided to give it to",
)
GPT2 = Path(os.environ.get("LAB_TEST_GPT2", "models/gpt2"))


@pytest.mark.skipif(not (GPT2 / "config.json").exists(), reason="needs GPT-2 small in LAB_TEST_GPT2, or in models/gpt2")
def test_name_movers_of_gpt2_are_those_of_wang_et_al() -> None:
    """The three heads whose direct path to the logits lowers the logit difference most, from runs with other names (p_ABC)."""
    LIBRARY.hold(Settings(GPT2.parent))
    total = np.zeros((12, 13))
    for template, (io, s) in product(TEMPLATES, NAMES):
        for first, second in ((io, s), (s, io)):
            a = Model(GPT2.name, template.format(first, second, s))
            b = Model(GPT2.name, template.format("Bob", "George", "Anna"))
            result = circuits.paths(a.trace(), b.trace(), mode="mlps", target=f" {io}", distractor=f" {s}")
            total += result.layer_map()
    order = np.argsort(total[:, :12], axis=None)[:3]
    assert {divmod(int(index), 12) for index in order} == {(9, 9), (9, 6), (10, 0)}
