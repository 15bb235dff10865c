"""Families that do not call the recorder: what is drawn is what a softmax gave and a product used, at its tokens and in the model's own layer."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from torch import Tensor, nn

from attention import Cell, File, MissingError, Model, ModelError, Trace
from attention.export.program import python

TEXT, LONG = (
    "the owl asked the moon",
    "the owl asked the moon and the moon blinked a quiet harbor watched the copper moon",
)
_WIDE = {
    "vocab_size": 400,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
_BERT = _WIDE | {"max_position_embeddings": 80}
_BOTH = {
    "vocab_size": 400, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "pad_token_id": 0, "decoder_start_token_id": 2,
}  # fmt: skip
_WINDOW = {"attention_window": [4, 4]}
FAMILIES: dict[str, dict[str, Any]] = {
    "SqueezeBert": _BERT | {"embedding_size": 32}, "Deberta": _BERT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "DebertaV2": _BERT | {"relative_attention": True, "pos_att_type": ["c2p"]}, "XLNet": {"vocab_size": 400, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48},
    "Funnel": {"vocab_size": 400, "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48, "block_sizes": [1, 1], "num_decoder_layers": 1},
    "ConvBert": _BERT | {"embedding_size": 32}, "RoFormer": _BERT, "Bloom": {"vocab_size": 400, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "Falcon": _WIDE, "XLM": {"vocab_size": 400, "emb_dim": 32, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 80},
    "MobileBert": _BERT | {"embedding_size": 32, "intra_bottleneck_size": 16},
    "Albert": _BERT | {"embedding_size": 32}, "Mamba": {"vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
    "CpmAnt": {"vocab_size": 400, "hidden_size": 32, "num_attention_heads": 4, "dim_head": 8, "dim_ff": 48, "num_hidden_layers": 2},
    "DiffLlama": _WIDE | {"num_key_value_heads": 2, "pad_token_id": 0},
    "Longformer": _BERT | _WINDOW, "BigBird": _BERT | {"block_size": 2, "num_random_blocks": 1},
    "LED": _BOTH | _WINDOW, "BigBirdPegasus": _BOTH | {"block_size": 2, "num_random_blocks": 1},
    "LongT5": {"vocab_size": 400, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "local_radius": 3, "decoder_start_token_id": 0},
}  # fmt: skip


def make(family: str, head: str = "Model", **config: Any) -> Any:
    """A tiny model of a family, whose parameters are large enough that weights differ."""
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, family + head)(
            getattr(transformers, f"{family}Config")(**FAMILIES[family] | config, attn_implementation="eager")
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return model.eval()


def maps(trace: Trace) -> dict[str, Tensor]:
    return {layer.name: layer["weights"] for layer in trace.layers if layer.has_attention}


def softmax_maps(model: Any, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What every softmax of a pass gave, [head query_pos key_pos], by a function in its place."""
    given: list[Tensor] = []

    def noting(own: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def note(*args: Any, **kwargs: Any) -> Tensor:
            result = own(*args, **kwargs)
            given.append(result.detach().clone().float())
            return result

        return note

    with monkeypatch.context() as patch:
        patch.setattr(nn.functional, "softmax", noting(nn.functional.softmax))
        patch.setattr(torch, "softmax", noting(torch.softmax))
        with torch.no_grad():
            model(ids)
    square = (tensor for tensor in given if tensor.ndim > 2 and tensor.shape[-2] == tensor.shape[-1] == ids.shape[1])
    return [tensor.reshape(-1, *tensor.shape[-2:]) for tensor in square]


@pytest.mark.parametrize(
    "family", ["SqueezeBert", "Deberta", "DebertaV2", "ConvBert", "RoFormer", "Bloom", "Falcon", "XLM"]
)
def test_weights_are_those_of_the_softmax(family: str, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(family)
    ids = tokenizer(TEXT, return_tensors="pt")["input_ids"]
    expected = softmax_maps(model, ids, monkeypatch)
    trace = Model.of(model, tokenizer, TEXT).trace()
    assert [*maps(trace)] == ["layer 0", "layer 1"]
    for weights, of_softmax in zip(maps(trace).values(), expected, strict=True):
        assert weights == approx(of_softmax)
    assert "only its weights are shown; Q, K, V and the scores are unknown" in trace.notes[0]
    if family != "SqueezeBert":  # it returns its scores
        with torch.no_grad():
            returned = model(ids, output_attentions=True).attentions
        for weights, tensor in zip(maps(trace).values(), returned, strict=True):
            assert weights == approx(tensor[0])


def test_followed_pass_leaves_the_model_as_it_was(tokenizer: Any) -> None:
    model = make("Longformer")
    ids = tokenizer(LONG, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        before = model(ids).last_hidden_state
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].sum()
    Model.of(model.train(), tokenizer, LONG).trace()
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1:] == (random.getstate(), np.random.get_state()[1].sum())
    assert model.training
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with torch.no_grad():
        assert torch.equal(model.eval()(ids).last_hidden_state, before)


@pytest.mark.parametrize("text", [TEXT, TEXT + " and", LONG])
def test_windows_of_longformer_stand_at_their_keys(text: str, tokenizer: Any) -> None:
    model = make("Longformer")
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    n = ids.shape[1]
    attention, near = model.encoder.layer[0].attention.self, (torch.arange(n)[:, None] - torch.arange(n)).abs() <= 2
    with torch.no_grad():
        x = model.embeddings(ids)
        query, key = (linear(x).view(n, 4, 8).transpose(0, 1) for linear in (attention.query, attention.key))
    expected = (query / 8**0.5 @ key.mT).masked_fill(~near, -1e30).softmax(-1)
    weights = Model.of(model, tokenizer, text).trace().layers[0]["weights"]
    assert weights == approx(expected)


def test_global_tokens_of_longformer_stand_at_their_keys(tokenizer: Any) -> None:
    model = make("Longformer", "ForSequenceClassification")  # its first token is global
    ids = tokenizer(LONG, return_tensors="pt")["input_ids"]
    n = ids.shape[1]
    own, near = (
        model.longformer.encoder.layer[0].attention.self,
        (torch.arange(n)[:, None] - torch.arange(n)).abs() <= 2,
    )
    with torch.no_grad():
        x = model.longformer.embeddings(ids)
        query, key, global_query, global_key = (
            linear(x).view(n, 4, 8).transpose(0, 1) for linear in (own.query, own.key, own.query_global, own.key_global)
        )
    near[:, 0] = True
    expected = (query / 8**0.5 @ key.mT).masked_fill(~near, -1e30).softmax(-1)
    expected[:, 0] = (global_query / 8**0.5 @ global_key.mT).softmax(-1)[:, 0]
    weights = Model.of(model, tokenizer, LONG).trace().layers[0]["weights"]
    assert weights == approx(expected)


@pytest.mark.parametrize(
    ("family", "of_encoder", "radius"),
    [("BigBird", "layer", 0), ("LED", "encoder", 2), ("BigBirdPegasus", "encoder", 0), ("LongT5", "encoder", 3)],
)
def test_attention_in_blocks_stands_at_its_keys(family: str, of_encoder: str, radius: int, tokenizer: Any) -> None:
    model = make(family)
    trace = Model.of(model, tokenizer, LONG, text2="the cat sat" if of_encoder == "encoder" else "").trace()
    kinds = (of_encoder, "decoder", "cross") if of_encoder == "encoder" else ("layer",)
    assert [layer.name for layer in trace.layers] == [f"{kind} {number}" for kind in kinds for number in (0, 1)]
    for number in (0, 1):
        weights = trace.layers[number]["weights"]
        n = len(trace.layers[number].tokens)
        assert float(weights.min()) >= 0
        assert weights.sum(-1) == approx(torch.ones(4, n))
        far = (torch.arange(n)[:, None] - torch.arange(n)).abs() > radius
        assert bool((weights[:, far] == 0).all()) == bool(radius)
    assert any("only its weights are shown" in note for note in trace.notes)


def test_shortened_layer_is_named_and_the_others_keep_their_number(tokenizer: Any) -> None:
    model = make("Funnel")
    trace = Model.of(model, tokenizer, TEXT).trace()
    with torch.no_grad():
        returned = model(tokenizer(TEXT, return_tensors="pt")["input_ids"], output_attentions=True).attentions
    assert [layer.has_attention for layer in trace.layers] == [True, False, True]
    for number in (0, 2):
        assert trace.layers[number]["weights"] == approx(returned[number][0])
    assert "from token to token in layer 1 (maps of 3 × 5 positions instead of 5 × 5 tokens)" in trace.notes[-1]
    with pytest.raises(MissingError, match=r"^layer 1 of the model has no attention from token to token \(maps of 3"):
        _ = trace.layers[1]["weights"]


@pytest.mark.parametrize(
    ("family", "sentence"),
    [
        ("CpmAnt", r"in layers 0, 1 \(maps of 37 × 37 positions instead of 5 × 5 tokens\)\. Choose"),
        ("Mamba", r"none of its layers multiplies values by a softmax\. Choose another model\.$"),
    ],
)
def test_model_without_maps_of_its_tokens_is_refused(family: str, sentence: str, tokenizer: Any) -> None:
    with pytest.raises(
        ModelError, match=rf"^{family}Model gives no attention weights from token to token: .*{sentence}"
    ):
        Model.of(make(family), tokenizer, TEXT).trace()


def test_shared_layer_has_a_number_for_each_run(tokenizer: Any) -> None:
    model = make("Albert")
    trace = Model.of(model, tokenizer, TEXT).trace()
    with torch.no_grad():
        returned = model(tokenizer(TEXT, return_tensors="pt")["input_ids"], output_attentions=True).attentions
    assert [*maps(trace)] == ["layer 0", "layer 1"]
    for weights, tensor in zip(maps(trace).values(), returned, strict=True):
        assert weights == approx(tensor[0])


def test_values_read_from_elsewhere_are_no_projection(tokenizer: Any) -> None:
    layer = Model.of(make("MobileBert"), tokenizer, TEXT).trace().layers[1]
    assert (layer.name, layer.w_v, layer.formula is None) == ("layer 1", None, False)


def test_difference_of_differential_attention_is_what_the_model_uses(tokenizer: Any, tmp_path: Path) -> None:
    model, used = make("DiffLlama", "ForCausalLM"), list[Tensor]()
    trace = Model.of(model, tokenizer, TEXT).trace()
    for layer in model.model.layers:
        layer.self_attn.groupnorm.register_forward_pre_hook(lambda _, given: used.append(given[0][0].transpose(0, 1)))
    with torch.no_grad():
        model(tokenizer(TEXT, return_tensors="pt")["input_ids"])
    assert [layer.name for layer in trace.layers] == ["layer 0", "layer 1", "layer 0 again", "layer 1 again"]
    assert "heads from 2 are A₂ of differential attention, which uses A₁ − λA₂" in trace.notes[0]
    for number in (0, 1):
        layer, again = trace.layers[number], trace.layers[number + 2]
        value = torch.cat([each["value"].repeat_interleave(2, 0) for each in (layer, again)], -1)
        assert layer.difference @ value[:2] == approx(used[number])
        first, second = layer["weights"].chunk(2)
        assert layer.difference == approx(first - layer["lambdas"][0] * second)
    trace.save(tmp_path / "d.npz")
    assert File.open(tmp_path / "d.npz").trace().layers[1].difference == approx(trace.layers[1].difference)
    with pytest.raises(MissingError, match="this source has no lambdas"):
        _ = Model.of(make("Albert"), tokenizer, TEXT).trace().layers[0].difference


class Bridge(nn.Module):
    """Attention of another library in the place of the model's own, as TransformerLens' bridge has it."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.original_component = original

    def forward(self, hidden_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        own: Any = self.original_component
        query, key, value = (
            part.unflatten(-1, (4, 8)).transpose(1, 2) for part in own.c_attn(hidden_states).split(32, dim=-1)
        )
        scores = query @ key.transpose(-2, -1) / 8**0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        pattern = nn.functional.dropout(scores.masked_fill(hidden, -torch.inf).softmax(-1), 0.1, self.training)
        mixed: Tensor = own.c_proj(torch.einsum("bhij,bhjd->bihd", pattern, value).flatten(2))
        return mixed, pattern


class Envoy:
    """Holds a model as nnsight's LanguageModel does: it is no module."""

    def __init__(self, model: Any) -> None:
        self._module = model


def test_model_with_replaced_or_wrapped_modules_is_recorded(tokenizer: Any) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=400, n_embd=32, n_layer=2, n_head=4, n_positions=64))
    own = Model.of(Envoy(model), tokenizer, TEXT)
    expected = own.trace()
    assert expected.layers[1].has("query")
    assert own.handle is Model.of(model, tokenizer, TEXT).handle
    for block in model.transformer.h:
        block.attn = Bridge(block.attn)
    bridge = nn.Module()
    bridge.original_model = model
    for wrapped in (model, bridge):
        trace = Model.of(wrapped, tokenizer, TEXT).trace()
        for layer, before in zip(trace.layers, expected.layers, strict=True):
            assert layer["weights"] == approx(before["weights"])
        assert trace.notes[0].startswith("This model computes its attention without transformers' common function")


def test_model_folder_and_its_copied_program_have_the_same_weights(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for family in ("SqueezeBert", "Longformer"):
        model = make(family)
        model.save_pretrained(tmp_path / family)
        tokenizer.save_pretrained(tmp_path / family)
        source = Model(str(tmp_path / family), TEXT)
        trace = source.trace()
        expected = Model.of(model, tokenizer, TEXT).trace().layers[1]["weights"]
        assert trace.layers[1]["weights"] == approx(expected)
        if family == "Longformer":
            with pytest.raises(
                MissingError, match="does not return the weights of layer 1, so no short program has them"
            ):
                python(source, trace, Cell(1, "weights", 1, 2, 1))
            continue
        exec(compile(python(source, trace, Cell(1, "weights", 1, 2, 1)), "<snippet>", "exec"), {})
        match = re.search(r"(\S+) expected (\S+)$", capsys.readouterr().out.strip())
        assert match
        assert float(match[1]) == approx(float(match[2]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_half_precision_are_the_models_own(dtype: torch.dtype, tokenizer: Any) -> None:
    model = make("RoFormer").to(dtype)
    trace = Model.of(model, tokenizer, LONG).trace()
    with torch.no_grad():
        returned = model(tokenizer(LONG, return_tensors="pt")["input_ids"], output_attentions=True).attentions
    for weights, tensor in zip(maps(trace).values(), returned, strict=True):
        assert torch.equal(weights, tensor[0].float())
