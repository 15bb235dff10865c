"""Models that read a series: their outputs and weights are those of transformers bit for bit, and each token is at its steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from tiny_series import SMALL, SMALL_TIMESFM, WALK, arguments_of, model_of, recorded

from attention import Model
from attention.base.errors import AttentionError, ConfigError, ModelError
from attention.base.tokens import Patch
from attention.series.drawing import SeriesPlace

PATCHTST = ("PatchTSTModel", "PatchTSTForPrediction", "PatchTSTForPretraining", "PatchTSTForClassification", "PatchTSTForRegression")  # fmt: skip
TIMESFM = ("TimesFmModel", "TimesFmModelForPrediction", "TimesFm2_5Model", "TimesFm2_5ModelForPrediction")
CASES: dict[str, tuple[str, dict[str, Any], Any]] = {
    **{name: (name, SMALL, WALK) for name in PATCHTST},
    "cls": ("PatchTSTForPrediction", SMALL | {"use_cls_token": True}, WALK),
    "layer norm, shared by none": ("PatchTSTForPrediction", SMALL | {"norm_type": "layernorm", "pre_norm": False, "share_embedding": False}, WALK),
    "mean scaling": ("PatchTSTForPrediction", SMALL | {"scaling": "mean"}, WALK + 20),
    "no scaling": ("PatchTSTModel", SMALL | {"scaling": None}, WALK),
    "one column": ("PatchTSTModel", SMALL | {"num_input_channels": 1}, WALK[:, 0]),
    "gaps between patches": ("PatchTSTModel", SMALL | {"patch_length": 4, "patch_stride": 7}, WALK),
    "channels": ("PatchTSTForPrediction", SMALL | {"channel_attention": True}, WALK),
    "as many channels as patches": ("PatchTSTModel", SMALL | {"channel_attention": True, "num_input_channels": 7}, np.tile(WALK, 4)[:, :7] * np.arange(1, 8)),
    **{name: (name, SMALL_TIMESFM | ({"num_key_value_heads": 1} if "2_5" in name else {}), WALK) for name in TIMESFM},
    **{f"padded {name}": (name, SMALL_TIMESFM | ({"num_key_value_heads": 2} if "2_5" in name else {}), WALK[:20]) for name in TIMESFM},
    # The sizes of transformers' own tests of the two.
    "transformers' test of PatchTST": ("PatchTSTForPrediction", {"context_length": 14, "patch_length": 5, "patch_stride": 5, "num_input_channels": 1, "d_model": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 4, "prediction_length": 7}, WALK[:14, 0]),
    **{f"transformers' test of TimesFM, {n} steps": ("TimesFmModelForPrediction", {"patch_length": 32, "context_length": 512, "horizon_length": 128, "num_hidden_layers": 1, "hidden_size": 16, "intermediate_size": 32, "head_dim": 2, "num_attention_heads": 2, "use_positional_embedding": True}, np.sin(np.linspace(0, 20, n))) for n in (100, 200, 400)},
}  # fmt: skip


@pytest.mark.sample(11)
@pytest.mark.parametrize("case", CASES)
def test_outputs_and_weights_are_those_of_transformers_bit_for_bit(case: str) -> None:
    name, values, series = CASES[case]
    model = model_of(name, **values)
    model.set_attn_implementation("eager")
    output, weights, inputs = recorded(Model.of(model, series=series))
    torch.manual_seed(0)  # chooses the patches that a model in pretraining hides
    channel_weights = list[torch.Tensor]()
    layers = getattr(getattr(getattr(model, "model", model), "encoder", None), "layers", ())
    for layer in layers if values.get("channel_attention") else ():
        layer.register_forward_hook(lambda _, __, outputs: channel_weights.append(outputs[2]))
    with torch.no_grad():
        expected = model(**arguments_of(inputs), output_attentions=True, output_hidden_states=True)
    tensors = [key for key, value in expected.items() if isinstance(value, torch.Tensor)]
    assert tensors
    for key in tensors:
        assert torch.equal(expected[key], output[key]), key
    n_columns, length = len(inputs.read.lengths), inputs.read.lengths[0]
    own = weights[:: 1 + bool(channel_weights)][: len(expected.attentions)]
    for each, theirs in zip(own, expected.attentions, strict=True):
        assert each is not None
        blocks = each.unflatten(2, (n_columns, length)).unflatten(1, (n_columns, length))
        for a in range(n_columns):
            for b in range(n_columns):
                block = blocks[:, a, :, b]
                assert torch.equal(block, theirs[a] if a == b else torch.zeros_like(block)), "no column sees another"
    for each, theirs in zip(weights[1::2], channel_weights, strict=False):
        assert each is not None
        blocks = each.unflatten(2, (n_columns, length)).unflatten(1, (n_columns, length))
        for step in range(length):
            assert torch.equal(blocks[:, :, step, :, step], theirs[step]), "at one patch, from column to column"
        assert each.sum(-1) == approx(torch.ones(()))


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", CASES)
def test_a_trace_has_the_weights_of_the_model_and_its_layers_by_kind(case: str) -> None:
    name, values, series = CASES[case]
    model = model_of(name, **values)
    trace = Model.of(model, series=series).trace()
    n_layers = values["num_hidden_layers"] * (1 + (name == "TimesFm2_5ModelForPrediction"))
    expected = [f"layer {index}" for index in range(n_layers)]
    expected += [f"channels {index}" for index in range(n_layers)] if values.get("channel_attention") else []
    assert [layer.name for layer in trace.layers] == expected
    model.set_attn_implementation("eager")
    _, weights, _ = recorded(Model.of(model, series=series))
    assert all(layer.formula is not None for layer in Model.of(model, series=series).trace().layers), "steps are known"
    order = [*range(0, len(weights), 2), *range(1, len(weights), 2)] if values.get("channel_attention") else range(len(weights))  # fmt: skip
    for layer, index in zip(trace.layers, order, strict=True):
        own = weights[index]
        assert own is not None
        places = [i for i, token in enumerate(layer.tokens) if token != "[padding]"]
        assert layer.weights[:, places] == approx(own[:, places], terms=1024)


@pytest.mark.parametrize("name", ["TimesFmModelForPrediction", "TimesFm2_5ModelForPrediction", "PatchTSTForPrediction"])
def test_fused_attention_of_a_users_model_is_recorded_as_it_is(name: str) -> None:
    """Its masks are a flag, of one batch row or of each column, and the forecast is the model's own, bit for bit."""
    values = SMALL | {"channel_attention": True} if name.startswith("PatchTST") else SMALL_TIMESFM
    values |= {"num_key_value_heads": 2} if "2_5" in name else {}
    for series in (WALK, WALK[:32] if name.startswith("PatchTST") else WALK[:20]):
        model = model_of(name, **values)
        assert model.config._attn_implementation == "sdpa"
        output, _, inputs = recorded(Model.of(model, series=series))
        with torch.no_grad():
            expected = model(**arguments_of(inputs))
        key = next(key for key in expected if "predictions" in key or "outputs" in key)
        assert torch.equal(expected[key], output[key])
        model.set_attn_implementation("eager")
        eager = Model.of(model, series=series).trace()
        model.set_attn_implementation("sdpa")
        for fused, own in zip(Model.of(model, series=series).trace().layers, eager.layers, strict=True):
            rows = [i for i, token in enumerate(own.tokens) if token != "[padding]"]
            assert fused.weights[:, rows] == approx(own.weights[:, rows])


@pytest.mark.parametrize(("length", "stride", "context"), [(8, 4, 32), (8, 8, 32), (5, 5, 14), (4, 7, 32), (1, 1, 6), (3, 2, 9)])  # fmt: skip
def test_each_token_is_at_the_steps_that_the_models_own_patchifier_gives_it(length: int, stride: int, context: int) -> None:  # fmt: skip
    model = model_of("PatchTSTModel", **SMALL | {"patch_length": length, "patch_stride": stride, "context_length": context})  # fmt: skip
    n_steps = context + 3
    counted = torch.arange(n_steps, dtype=torch.float32)[-context:, None].expand(-1, 2)[None]
    steps = model.patchifier(counted)[0]  # the number of each step instead of its value, [column patch step]
    trace = Model.of(model, series=WALK[:n_steps]).trace()
    tokens = iter(trace.layers[0].tokens)
    for column, of_column in enumerate(steps.int().tolist()):
        for index, own in enumerate(of_column):
            token = next(tokens)
            assert isinstance(token, Patch)
            assert token.place == SeriesPlace(f"column {column}", own[0], own[-1] + 1)
            assert (token.row, token.column) == (column, index)
            assert token == f"column {column} " + (f"{own[0]}–{own[-1]}" if length > 1 else f"{own[0]}")
    assert next(tokens, None) is None


def test_padding_of_timesfm_stands_in_front_and_is_told_from_the_series() -> None:
    trace = Model.of(model_of("TimesFmModelForPrediction", **SMALL_TIMESFM), series=WALK[:20]).trace()
    column = ["[padding]", "{} 0–3", "{} 4–11", "{} 12–19"]
    assert list(trace.layers[0].tokens) == [each.format(name) for name in ("column 0", "column 1") for each in column]
    assert trace.layers[0].tokens[1].place == SeriesPlace("column 0", 0, 4)
    weights = trace.layers[0].weights
    assert float(weights[:, [1, 2, 3]][:, :, 0].max()) == 0, "no patch of the series looks at padding"
    assert float(weights[:, 1, 2:].max()) == 0, "none looks ahead"
    assert any("12 of padding stand in front" in note for note in trace.notes)


@pytest.mark.parametrize(("dates", "frequency"), [
    (["2026-01-05 00:00", "2026-01-05 01:00", "2026-01-05 02:00"], 0), (["05.01.2026", "06.01.2026", "07.01.2026"], 0),
    (["2026-01-05", "2026-01-12", "2026-01-19"], 1), (["1949-01", "1949-02", "1949-03"], 1), (["2020-01-01", "2020-04-01", "2020-07-01"], 2),
    (["1949", "1950", "1951"], 2), (["first", "second", "third"], 0),
])  # fmt: skip
def test_timesfm_is_told_how_far_apart_steps_are(dates: list[str], frequency: int) -> None:
    """As its authors ask: 0 up to a day, 1 for weeks and months, 2 beyond."""
    lines = [f"{date},{index}.5" for index, date in enumerate(dates)]
    model = model_of("TimesFmModelForPrediction", **SMALL_TIMESFM)
    source = Model.of(model, series="\n".join(["date,load", *lines]).encode())
    _, inputs = source.load_inputs()
    assert inputs.read.arguments["freq"].tolist() == [frequency]
    assert any(f"(freq {frequency})" in note for note in source.trace().notes)


def test_missing_numbers_are_masked_as_transformers_masks_them() -> None:
    series = WALK.copy()
    series[20, 0] = series[39, 1] = np.nan
    model = model_of("PatchTSTForPrediction", **SMALL)
    output, _, _ = recorded(Model.of(model, series=series))
    past = torch.tensor(series[-32:], dtype=torch.float32)[None]
    with torch.no_grad():
        expected = model(past_values=past.nan_to_num(), past_observed_mask=~past.isnan())
    assert torch.equal(output.prediction_outputs, expected.prediction_outputs)
    assert torch.equal(output.loc, expected.loc)
    assert any(note.startswith("2 missing numbers are read as 0") for note in Model.of(model, series=series).trace().notes)  # fmt: skip
    with pytest.raises(ConfigError, match="reads no missing numbers; got 2"):
        Model.of(model_of("TimesFmModelForPrediction", **SMALL_TIMESFM), series=series).trace()


def test_patches_that_pretraining_hides_are_the_same_in_every_pass() -> None:
    model = model_of("PatchTSTForPretraining", **SMALL)
    state = torch.random.get_rng_state()
    first, second = (Model.of(model, series=WALK).trace() for _ in range(2))
    for a, b in zip(first.layers, second.layers, strict=True):
        assert torch.equal(a.weights, b.weights)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not model.model.masking._forward_hooks
    assert any("hides 8 of 14 patches" in note for note in first.notes)


@pytest.mark.parametrize(("name", "values", "series", "message"), [
    ("PatchTSTModel", {}, WALK[:, 0], r"reads 2 columns; got 1 \(column 0\)"),
    ("PatchTSTModel", {}, np.tile(WALK, 5), r"reads 2 columns; got 10 .*, …\)"),
    ("PatchTSTModel", {}, WALK[:31], "reads 32 steps; got 31: give a longer series"),
    ("PatchTSTModel", {}, [WALK, WALK], "array of 3 axes"),
    # google-research/timesfm, issue 175: a context of 14 days for patches of 32.
    ("TimesFmModel", {"context_length": 14}, WALK, "set context_length in its config.json to a multiple of patch_length"),
    ("PatchTSMixerModel", {"context_length": 32, "patch_length": 8, "num_input_channels": 2}, WALK, "families patchtst, timesfm, timesfm2_5; PatchTSMixerModel is a patchtsmixer"),
])  # fmt: skip
def test_what_a_model_does_not_read_is_said_in_a_sentence(name: str, values: dict[str, Any], series: Any, message: str) -> None:  # fmt: skip
    sizes = {} if "Mixer" in name else SMALL if "Patch" in name else SMALL_TIMESFM
    with pytest.raises(AttentionError, match=message):
        Model.of(model_of(name, **sizes | values), series=series).trace()


def test_too_many_tokens_and_a_huge_context_are_refused_before_anything_is_drawn() -> None:
    with pytest.raises(ConfigError, match="At most 8 tokens are read here; PatchTSTModel makes 14"):
        Model.of(model_of("PatchTSTModel", **SMALL), series=WALK, max_tokens=8).trace()
    values = SMALL | {"context_length": 2**21, "patch_stride": 2**21}
    with pytest.raises(ModelError, match=r"made for 2 columns, 2,097,152 steps"):
        Model.of(model_of("PatchTSTModel", **values), series=WALK)


def test_models_of_texts_and_pictures_read_no_series(tiny: Any) -> None:
    with pytest.raises(ConfigError, match="reads no series: leave series= out"):
        Model(tiny("GPT-2"), series=WALK).trace()
    with pytest.raises(ConfigError, match=r"reads a series: give it as series= \(a CSV file\)"):
        Model.of(model_of("PatchTSTModel", **SMALL), None, "words").trace()
