from dataclasses import FrozenInstanceError

import pytest
import torch

from attention import STEPS, AttentionConfig, Layer, MissingError, ShapeError, Trace, TypedText, find_step
from attention.pictures import heatmap

pytestmark = pytest.mark.quick

NAMES = [
    "embedding",
    "position",
    "input",
    "query",
    "memory",
    "key",
    "value",
    "rotated_query",
    "rotated_key",
    "scores",
    "scaled_scores",
    "capped_scores",
    "biased_scores",
    "masked_scores",
    "weights",
    "dropped_weights",
    "head_output",
    "patched_output",
    "output",
]


def weights(n_heads=2, n_queries=3, n_keys=4):
    return torch.full((n_heads, n_queries, n_keys), 1 / n_keys)


def test_steps_stand_in_the_order_of_the_formula():
    assert [step.name for step in STEPS] == NAMES


def test_every_step_is_declared_completely():
    for step in STEPS:
        assert all((step.symbol, step.tex, step.formula)), step
        assert set(step.axes) <= {"head", "kv_head", "query_pos", "key_pos", "d_model", "d_k", "d_v"}
        assert len(step.axes) == 2 + step.per_head
        assert (step.row_axis, step.column_axis) == step.axes[-2:]


def test_only_weights_are_probabilities():
    assert [step.name for step in STEPS if step.kind == "probability"] == ["weights", "dropped_weights"]


def test_unknown_step_error_lists_the_known_ones():
    with pytest.raises(
        MissingError, match=r"a step is one of embedding, position, .*, output; got 'sims': choose one of them\."
    ):
        find_step("sims")


def test_layer_gives_its_steps_in_order():
    layer = Layer(recorded={"weights": weights(), "query": torch.zeros(2, 3, 5)})
    assert [(step.name, tuple(tensor.shape)) for step, tensor in layer] == [
        ("query", (2, 3, 5)),
        ("weights", (2, 3, 4)),
    ]


def test_missing_step_is_none_and_its_error_lists_available_steps():
    layer = Layer(recorded={"weights": weights()})
    assert layer.scores is None
    with pytest.raises(MissingError, match=r"this source has no scores; it has weights: choose one of these\."):
        layer["scores"]


def test_parameter_is_no_step():
    layer = Layer(recorded={"weights": weights(), "w_q": torch.zeros(2, 6, 5)})
    assert [step.name for step in layer.steps] == ["weights"]
    assert layer["w_q"] is layer.w_q is layer.recorded["w_q"]
    with pytest.raises(AttributeError):
        _ = layer.sims


def test_one_axis_has_one_size():
    with pytest.raises(ShapeError, match=r"^key_pos is 5 in key but 4 in value: one axis has one size in a layer\.$"):
        Layer(recorded={"value": torch.zeros(2, 4, 3), "key": torch.zeros(2, 5, 3)})


@pytest.mark.parametrize(
    ("mismatched", "axis"),
    [
        ({"query": torch.zeros(2, 9, 5)}, "query_pos"),
        ({"scores": torch.zeros(9, 3, 4)}, "head"),
        ({"mask": torch.ones(3, 9, dtype=torch.bool)}, "key_pos"),
        ({"value": torch.zeros(2, 4, 6), "w_o": torch.zeros(2, 9, 8)}, "d_v"),
        ({"input": torch.zeros(3, 8), "w_q": torch.zeros(2, 9, 5)}, "d_model"),
        ({"query": torch.zeros(2, 3, 5), "w_k": torch.zeros(2, 8, 9)}, "d_k"),
    ],
)
def test_axes_of_steps_and_parameters_are_checked(mismatched, axis):
    with pytest.raises(ShapeError, match=f"^{axis} is "):
        Layer(recorded=dict(weights=weights(), **mismatched))


def test_missing_axis_error_has_expected_and_actual_axes():
    with pytest.raises(
        ShapeError, match=r"^weights has the axes \[head query_pos key_pos\]; got the shape \[3, 4\]: give it 3 axes\.$"
    ):
        Layer(recorded={"weights": torch.zeros(3, 4)})


def test_matrix_picks_one_head_and_never_the_average():
    tensor = torch.rand(2, 3, 4)
    layer = Layer(recorded={"weights": tensor, "input": torch.zeros(3, 8)})
    assert torch.equal(layer.matrix("weights", 1), tensor[1])
    assert layer.matrix("input", 1).shape == (3, 8)


@pytest.mark.parametrize("head", [-1, 2])
def test_head_out_of_range_error_explains_the_counting(head):
    with pytest.raises(MissingError, match=rf"^heads count from 0 to 1; got {head}: choose one of these\.$"):
        Layer(recorded={"weights": weights()}).matrix("weights", head)


def test_layer_counts_its_heads():
    assert Layer(recorded={"weights": weights(n_heads=5)}).n_heads == 5
    assert Layer(recorded={"input": torch.zeros(3, 8)}).n_heads == 1


def test_layers_and_traces_are_frozen_and_compare_by_identity():
    layer = Layer(recorded={"weights": weights()})
    trace = Trace(("a", "b", "c"), (layer,), ("w", "x", "y", "z"))
    with pytest.raises(FrozenInstanceError):
        layer.weights = None
    with pytest.raises(FrozenInstanceError):
        trace.tokens = ()
    assert layer != Layer(recorded={"weights": layer.weights})
    assert len({trace, trace}) == 1


def test_trace_has_one_token_per_row_and_column():
    with pytest.raises(
        ShapeError, match=r"^query_pos is 3 in weights but there are 2 tokens: give one token per query_pos\.$"
    ):
        Trace(("a", "b"), (Layer(recorded={"weights": weights()}),), ("w", "x", "y", "z"))
    with pytest.raises(ShapeError, match=r"^key_pos is 4 in weights but there are 3 tokens"):
        Trace(("a", "b", "c"), (Layer(recorded={"weights": weights()}),))


def test_key_tokens_are_the_tokens_without_a_second_text():
    assert Trace(("a", "b"), ()).key_tokens == ("a", "b")
    crossed = Trace(("a", "b", "c"), (Layer(recorded={"weights": weights()}),), ("w", "x", "y", "z"))
    assert crossed.labels_of("query_pos") == ("a", "b", "c")
    assert crossed.labels_of("key_pos") == ("w", "x", "y", "z")
    assert crossed.labels_of("d_model") is None


@pytest.mark.parametrize("index", [-1, 1])
def test_layer_out_of_range_error_explains_the_counting(index):
    with pytest.raises(MissingError, match=rf"^layers count from 0 to 0; got {index}: choose one of these\.$"):
        TypedText("a").trace().layer(index)


@pytest.mark.parametrize(
    "config",
    [AttentionConfig(), AttentionConfig(d_k=3, d_v=5, positions="sinusoidal"), AttentionConfig(init="identity")],
)
def test_tensors_of_every_source_have_the_declared_axes(config):
    trace = TypedText("the cat sat", config, text2="on the mat there").trace()
    n_heads, d_k, d_v = config.sizes
    sizes = {
        "head": n_heads,
        "kv_head": n_heads,
        "query_pos": 3,
        "key_pos": 4,
        "d_model": config.d_model,
        "d_k": d_k,
        "d_v": d_v,
    }
    for step, tensor in trace.layers[0]:
        assert tuple(tensor.shape) == tuple(sizes[axis] for axis in step.axes), step.name


def test_formula_names_the_available_factors():
    config = AttentionConfig(mask="causal", dropout=0.5)
    layers = {text: TypedText("a b c", config, text2=text).trace().layers[0] for text in ("", "d e")}
    assert layers[""].formula_of(find_step("head_output")) == "D V"
    assert layers[""].formula_of(find_step("key")) == "X W_K"
    assert layers["d e"].formula_of(find_step("value")) == "X₂ W_V"
    plain = TypedText("a b c").trace().layers[0]
    assert plain.formula_of(find_step("head_output")) == "A V"
    assert plain.formula_of(find_step("output")) == "concat(Z) W_O"
    trace = TypedText("a b c", config).trace()
    drawn = heatmap.heatmap(trace, "head_output")
    assert drawn.layout.title.subtitle.text.startswith("D V")
    assert "= D V" in drawn.layout.meta["alt"]
