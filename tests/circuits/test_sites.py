"""MLPs, the residual stream and single positions ablated and patched, against hooks of plain torch on the same model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import formula_models as reference
import pytest
import torch
from conftest import ROOT
from margins import approx
from torch import Tensor

from attention import Cell, ConfigError, Intervention, Model, circuits, explain
from attention.patching.intervention import describe_head, format_codes, parse_codes

IDS, OTHER = reference.BASE_IDS, reference.OTHER_IDS
SIZE = 6  # of a head of the models of `reference`


def models(name: str, **more: Any) -> tuple[Any, Model]:
    network, tokenizer = reference.model(name), reference.tokenizer()
    other = Model.of(network, tokenizer, reference.text(OTHER))
    return network, Model.of(network, tokenizer, reference.text(IDS), other=other, **more)


def blocks(network: Any) -> Any:
    return network.transformer.h if hasattr(network, "transformer") else network.model.layers


def projection(block: Any) -> Any:
    return block.attn.c_proj if hasattr(block, "attn") else block.self_attn.o_proj


def hooked(network: Any, ids: list[int], edits: dict[tuple[str, int], Callable[[Tensor], Tensor]]) -> Tensor:
    """The logits [query_pos vocabulary] while each tensor [pos d] is what its edit returns."""
    handles = []
    for (site, layer), edit in edits.items():
        block = blocks(network)[layer]

        def after(_: Any, __: Any, output: Any, edit: Callable[[Tensor], Tensor] = edit) -> Any:
            if isinstance(output, tuple):
                return (edit(output[0][0].clone())[None], *output[1:])
            return edit(output[0].clone())[None]

        def before(_: Any, args: tuple[Tensor, ...], edit: Callable[[Tensor], Tensor] = edit) -> tuple[Tensor, ...]:
            return (edit(args[0][0].clone())[None],)

        if site == "z":
            handles.append(projection(block).register_forward_pre_hook(before))
        else:
            handles.append((block.mlp if site == "mlp_output" else block).register_forward_hook(after))
    with torch.no_grad():
        logits: Tensor = network(torch.tensor([ids])).logits[0]
    for handle in handles:
        handle.remove()
    return logits


def seen(network: Any, site: str, layer: int) -> Tensor:
    """What the other run has at a site, [pos d]."""
    found: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        found.append(x)
        return x

    hooked(network, OTHER, {(site, layer): keep})
    return found[0]


def rows(positions: tuple[int, ...], new: Callable[[Tensor], Tensor | float]) -> Callable[[Tensor], Tensor]:
    def edit(x: Tensor) -> Tensor:
        value = new(x.clone())
        at = list(positions) or list(range(len(x)))
        x[at] = value[at] if isinstance(value, Tensor) and len(value) == len(x) else value
        return x

    return edit


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", [*reference.MODELS])
@pytest.mark.parametrize("site", ["mlp_output", "resid_post"])
@pytest.mark.parametrize("positions", [(), (2, 5)])
def test_sites_are_ablated_and_patched_as_by_hooks(name: str, site: str, positions: tuple[int, ...]) -> None:
    network, model = models(name)
    source = seen(network, site, 1)
    cases: dict[Intervention, Callable[[Tensor], Tensor]] = {
        Intervention(1, ablate="zero", site=site, positions=positions): rows(positions, torch.zeros_like),
        Intervention(1, ablate="mean", site=site, positions=positions): rows(
            positions, lambda x: x.mean(0).expand_as(x)
        ),
        Intervention(1, ablate="mean", strength=0.25, site=site, positions=positions): rows(
            positions, lambda x: 0.75 * x + 0.25 * x.mean(0)
        ),
        Intervention(1, patch=site, positions=positions): rows(positions, lambda x: source),
    }
    plain = replace(model, other=None).trace()
    for change, edit in cases.items():
        trace = replace(model, interventions=(change,)).trace()
        expected = hooked(network, IDS, {(site, 1): edit})
        assert trace.logits == approx(expected, scale=1)
        assert trace.predictions[-1].all_logits == approx(expected[-1], scale=1)
        assert trace.layers[1].weights == approx(plain.layers[1].weights)  # only what follows changes
        assert not torch.equal(trace.layers[2].weights, plain.layers[2].weights)
        assert trace.changes[0].startswith(
            f"Layer 1, {'output of the MLP' if site == 'mlp_output' else 'residual stream after'}"
        )
        assert change == parse_codes(change.code)[0]


def test_several_changes_of_one_run_follow_each_other() -> None:
    network, model = models("Llama")
    source = seen(network, "resid_post", 0)
    changes = parse_codes("0.resid@3.take;1.mlp.zero;1.2@4.zero;1.2@6.mean;2.resid@6.mean0.5")

    def heads(z: Tensor) -> Tensor:
        z[4, 2 * SIZE : 3 * SIZE] = 0
        z[6, 2 * SIZE : 3 * SIZE] = z[:, 2 * SIZE : 3 * SIZE].mean(0)
        return z

    expected = hooked(
        network, IDS,
        {
            ("resid_post", 0): rows((3,), lambda x: source), ("mlp_output", 1): rows((), torch.zeros_like), ("z", 1): heads,
            ("resid_post", 2): rows((6,), lambda x: 0.5 * x + 0.5 * x.mean(0)),
        },
    )  # fmt: skip
    trace = replace(model, interventions=changes).trace()
    assert trace.logits == approx(expected)
    assert len(trace.changes) == 5
    stream = trace.residual[1]
    assert stream[3] == approx(source[3])


@pytest.mark.parametrize("name", ["GPT-2", "Llama with shared keys"])
def test_single_queries_of_a_head_are_changed_and_explained(name: str) -> None:
    network, model = models(name)
    source = seen(network, "z", 1)
    columns = slice(SIZE, 2 * SIZE)

    def edit(z: Tensor) -> Tensor:
        z[2, columns] = source[2, columns]
        z[5, columns] = 0.75 * z[5, columns]
        return z

    changes = parse_codes("1.1@2.takeZ;1.1@5.zero0.25")
    trace = replace(model, interventions=changes).trace()
    assert trace.logits == approx(hooked(network, IDS, {("z", 1): edit}))
    layer = trace.layers[1]
    changed = (layer["patched_output"] != layer["head_output"]).any(-1).nonzero().tolist()
    assert changed == [[1, 2], [1, 5]]
    for query, words in ((2, "Patched from the other state"), (5, "ablated"), (4, "No intervention here")):
        explanation = explain(trace, "patched_output", 1, 1, query, 3)
        assert words in explanation.words
        assert explanation.value == approx(float(layer["patched_output"][1, query, 3]))


def test_program_of_a_head_changed_at_positions_gives_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from attention.export.program import python
    from attention.models.library import LIBRARY, Settings

    reference.save_formula_model("Llama", tmp_path / "Llama")
    monkeypatch.chdir(tmp_path)
    LIBRARY.hold(Settings(tmp_path))
    try:
        text, other = "the owl asked the moon", "the moon asked the owl"
        changes = parse_codes("0.1@1.mean0.5;0.1@1,2.zero;0.2@3.takeZ;1.1@2.mean0.5;1.1@2.mean")
        source = Model("Llama", text, interventions=changes, other=Model("Llama", other))
        trace = source.trace()
        for cell in (
            Cell(0, "patched_output", 1, 1, 1),
            Cell(0, "patched_output", 2, 3, 1),
            Cell(1, "patched_output", 1, 2, 0),
        ):
            exec(compile(python(source, trace, cell), "<snippet>", "exec"), {})
            got, expected = capsys.readouterr().out.strip().splitlines()[-1].rpartition(": ")[2].split(" expected ")
            assert float(got) == approx(float(expected), scale=1)
            assert float(expected) == approx(
                float(trace.layers[cell.layer]["patched_output"][cell.head, cell.row, cell.column]), scale=1
            )
        sites = replace(source, interventions=parse_codes("0.mlp.zero"))
        trace = sites.trace()
        with pytest.raises(ConfigError, match="writes programs with interventions on heads; got L0 MLP"):
            python(sites, trace, Cell(1, "weights", 0, 1, 1))
    finally:
        LIBRARY.hold(Settings())


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_sweeps_over_layers_and_positions_equal_hooks(name: str) -> None:
    network, model = models(name)
    target, last = reference.TARGET, len(IDS) - 1

    def value(logits: Tensor) -> float:
        return float(logits[last].log_softmax(-1)[target])

    before = value(hooked(network, IDS, {}))
    for site in ("resid_post", "mlp_output"):
        patched = circuits.where(model, site, target=target)
        ablated = circuits.where(model, site, [1, 4], ablation="zero", target=target, layers=[2, 0])
        assert patched.values.shape == (3, len(IDS))
        assert (ablated.places, ablated.positions) == (((0, None), (2, None)), (1, 4))
        for layer in range(3):
            source = seen(network, site, layer)
            expected = [
                value(hooked(network, IDS, {(site, layer): rows((at,), lambda x, source=source: source)})) - before  # type: ignore[misc]
                for at in range(len(IDS))
            ]
            assert patched.values[layer] == approx(expected, terms=1024, scale=1, dtype="float32")
        for row, layer in enumerate((0, 2)):
            for column, at in enumerate((1, 4)):
                expected_one = value(hooked(network, IDS, {(site, layer): rows((at,), torch.zeros_like)})) - before
                assert ablated.values[row, column] == approx(expected_one, terms=1024, scale=1)
    # The whole stream of the last layer is the other run.
    whole = circuits.where(model, positions="all", target=target)
    assert whole.baseline + whole.values[2, 0] == approx(value(hooked(network, OTHER, {})))
    of_head = circuits.where(model, "head_output", heads=[(1, 2)], target=target)
    source = seen(network, "z", 1)
    for at in range(len(IDS)):

        def edit(z: Tensor, at: int = at, source: Tensor = source) -> Tensor:
            z[at, 2 * SIZE : 3 * SIZE] = source[at, 2 * SIZE : 3 * SIZE]
            return z

        assert of_head.values[0, at] == approx(
            value(hooked(network, IDS, {("z", 1): edit})) - before, terms=1024, scale=1
        )
    frame = of_head.frame()
    assert [*frame.columns[:4]] == ["layer", "head", "position", "token"]
    assert [*frame.iloc[:, -1].abs()] == sorted(of_head.values.ravel().__abs__(), reverse=True)
    assert of_head.describe(0, 3).startswith("L1 H2 at 3 “")


def test_aligned_runs_patch_tokens_with_a_partner() -> None:
    network, model = models("GPT-2")
    shorter = [3, 14, 9, 2, 6, 5]  # the third token of the text has no partner
    aligned = circuits.patch_aligned(model, reference.text(shorter))
    trace = replace(aligned, interventions=parse_codes("1.resid.take")).trace()
    found: list[Tensor] = []
    hooked(network, shorter, {("resid_post", 1): lambda x: found.append(x) or x})  # type: ignore[func-returns-value]

    def edit(x: Tensor) -> Tensor:
        x[[0, 1, 3, 4, 5, 6]] = found[0]
        return x

    assert trace.logits == approx(hooked(network, IDS, {("resid_post", 1): edit}))
    assert "2 t15 keeps its own values" in trace.changes[-1]


def test_tokens_without_a_partner_are_named() -> None:
    longer = [3, 14, 15, 9, 9, 2, 6, 5]
    network, tokenizer = reference.model("Llama"), reference.tokenizer()
    network.set_attn_implementation("eager")
    a, b = (Model.of(network, tokenizer, reference.text(ids)) for ids in (IDS, [*IDS[:2], 33, 34, *IDS[3:]]))
    words = "without a partner: 2 t15 in this one; 2 t33, 3 t34 in the other"
    with pytest.raises(ConfigError, match=words):
        circuits.paths(a.trace(), b.trace())
    with pytest.raises(ConfigError, match=words):
        circuits.which(circuits.patch_aligned(a, b), patch="weights")
    prompts = circuits.PromptSet.from_rows([(reference.text(IDS), reference.text(longer), "t11", "t27")])
    frame = circuits.over_prompts(a, prompts, exact=False).prompt_frame()
    assert frame["alignment"][0].startswith(
        "Patches act at 7 of 7 tokens, those with a partner in the other state's 8 tokens"
    )


def test_frozen_layers_are_those_after_the_site() -> None:
    _, model = models("Llama", interventions=parse_codes("0.mlp.zero"), frozen=True)
    plain = replace(model, interventions=(), frozen=False).trace()
    trace = model.trace()
    for layer in range(3):
        assert trace.layers[layer].weights == approx(plain.layers[layer].weights)
    assert not torch.equal(trace.layers[2]["value"], plain.layers[2]["value"])


def test_codes_of_sites_and_positions() -> None:
    text = "17.mlp.zero;*.mlp.mean0.5;17.resid@5,6.take;3.2@4.zero;3.*@0.takeZ;17.3.takeQ"
    changes = parse_codes(text)
    assert format_codes(changes) == text
    assert changes[2] == Intervention(17, patch="resid_post", positions=[6, 5])
    assert changes[0].label == "L17 MLP set to 0"
    assert (
        changes[2].words
        == "Layer 17, residual stream after the layer, positions 5, 6: patched from the other state (activation patching)."
    )
    assert describe_head(changes[:1], 18, 0) == "Recomputed: L17 before it is changed."
    assert describe_head(changes[:1], 17, 0) == ""  # an MLP comes after the heads of its layer
    for bad in (
        "3.2.take",
        "3.mlp.t2",
        "3.mlp.takeZ",
        "3.resid.w0,0=1",
        "3.2@1.t2",
        "3.2@.zero",
        "3.2@1.takeK",
        "3.mlp@x.zero",
    ):
        with pytest.raises(ConfigError):
            parse_codes(bad)
    for fields, message in (
        ({"layer": 1, "head": 2, "site": "mlp_output", "ablate": "zero"}, "belongs to no head, .*; got head 2"),
        ({"site": "attn", "ablate": "zero"}, "site of an intervention is one of mlp_output, resid_post"),
        ({"positions": (1,), "temperature": 2.0}, "positions are those of"),
        ({"positions": (-1,), "ablate": "zero"}, "positions of an intervention is a tuple of whole numbers"),
    ):
        with pytest.raises(ConfigError, match=message):
            Intervention(**fields)  # type: ignore[arg-type]
    _, model = models("Llama")
    for code, message in (
        ("9.mlp.zero", "layers count from 0 to 2; got 9"),
        ("0.resid@7.zero", "positions count from 0 to 6; got 7"),
        ("0.1@9.zero", "queries of layer 0 count from 0 to 6; got 9"),
    ):
        with pytest.raises(ConfigError, match=message):
            replace(model, interventions=parse_codes(code)).trace()
    with pytest.raises(ConfigError, match="got none: give its text"):
        replace(model, other=None, interventions=parse_codes("0.mlp.take")).trace()


SMOL = ROOT / "models" / "SmolLM2-135M-Instruct"


@pytest.mark.long
@pytest.mark.skipif(not (SMOL / "config.json").exists(), reason="needs SmolLM2")
def test_smollm2_is_changed_as_by_hooks() -> None:
    model = Model(str(SMOL), "The quiet harbor watched the copper moon. The quiet harbor watched the")
    loaded, inputs = model.load_inputs()
    change = Intervention(17, ablate="mean", site="mlp_output", positions=(3, 9))
    trace = replace(model, interventions=(change,)).trace()
    ids = inputs["input_ids"][0].tolist()
    block = loaded.model.model.layers[17]
    edit = rows((3, 9), lambda x: x.mean(0).expand_as(x))
    handle = block.mlp.register_forward_hook(lambda _, __, output: edit(output[0].clone())[None])
    with torch.no_grad():
        expected = loaded.model(torch.tensor([ids])).logits[0]
    handle.remove()
    assert trace.logits == approx(expected, terms=16384)
