import io
import json
import math
import zipfile

import numpy as np
import pytest
import torch
from conftest import examples_of
from margins import approx
from safetensors import safe_open
from safetensors.torch import load

from attention import PARAMETERS, STEPS, AttentionConfig, Layer, Matrices, Trace, TypedText
from attention.files.array_writer import npz, safetensors, size
from attention.formula.dropout import Dropout
from attention.formula.formula import Formula

pytestmark = pytest.mark.quick

CAT = "the cat sat on the mat"
SQUARE = ((0.5, 1.0), (-1.0, 2.0))
TRACES = {
    "plain": TypedText(CAT).trace(),
    "every step": TypedText(
        CAT, AttentionConfig(mask="causal", positions="sinusoidal", dropout=0.3, temperature=0.3), "a dog ran off to"
    ).trace(),
    "identity": TypedText(CAT, AttentionConfig(init="identity")).trace(),
    "matrices": Matrices(x=((1.0, 0.0), (0.1, -2.5)), w_q=SQUARE, w_k=SQUARE, w_v=SQUARE).trace(),
    **{name: source.trace() for name, source in [*examples_of("tutorials").items()][:1]},
    "two layers": Trace(
        ("a", "b"),
        (
            Layer(
                recorded={"weights": torch.rand(3, 2, 2, dtype=torch.float64)}, formula=Formula(temperature=math.inf)
            ),
            Layer(
                recorded={"scores": torch.rand(1, 2, 2).half()},
                formula=Formula(divisor=math.sqrt(7), normalizer="", dropping=Dropout(0.1)),
            ),
        ),
    ),
    "views": Trace(
        ("a", "b"),
        (
            Layer(
                recorded={
                    "scores": torch.arange(8.0).reshape(2, 2, 2).transpose(-2, -1),
                    "masked_scores": torch.tensor([[math.nan, -math.inf], [-0.0, 1e-45]]).expand(2, 2, 2),
                    "mask": torch.ones(3, 3, dtype=torch.bool)[:2, :2],
                }
            ),
        ),
    ),
    "no layer": Trace(("a",), ()),
}


ABOUT = {"random", "notes", "layers"}


def expected(trace):
    """Every tensor of a trace by its name in a file."""
    return {
        f"L{i}.{declared.name}": getattr(layer, declared.name)
        for i, layer in enumerate(trace.layers)
        for declared in (*STEPS, *PARAMETERS)
        if getattr(layer, declared.name) is not None
    }


def settings(trace):
    return {
        f"L{i}.{name}": value
        for i, layer in enumerate(trace.layers)
        for name, value in (
            ("divisor", layer.divisor),
            ("temperature", layer.temperature),
            ("dropout", layer.formula.dropping.share if layer.formula else 0.0),
        )
    }


def read_npz(file):
    with np.load(io.BytesIO(file), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays}


def read_metadata(file, tmp_path):
    path = tmp_path / "trace.safetensors"
    path.write_bytes(file)
    with safe_open(path, "pt") as opened:
        return json.loads(opened.metadata()["trace"])


def bits(array):
    return array.dtype, array.shape, np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES)
def test_npz_holds_every_tensor_exactly_in_formula_order(trace):
    read, wanted = read_npz(npz(trace)), expected(trace)
    assert list(read) == ["tokens", "key_tokens", *wanted, *settings(trace), "about"]
    for name, tensor in wanted.items():
        assert bits(read[name]) == bits(tensor.numpy())


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES)
def test_safetensors_holds_every_tensor_exactly(trace):
    read, wanted = load(safetensors(trace)), expected(trace)
    assert set(read) == set(wanted)
    for name, tensor in wanted.items():
        assert bits(read[name].numpy()) == bits(tensor.numpy())


@pytest.mark.parametrize("trace", TRACES.values(), ids=TRACES)
def test_npz_and_safetensors_hold_tokens_and_the_divisor(trace, tmp_path):
    arrays, metadata = read_npz(npz(trace)), read_metadata(safetensors(trace), tmp_path)
    assert tuple(arrays["tokens"].tolist()) == tuple(metadata["tokens"]) == trace.tokens
    assert tuple(arrays["key_tokens"].tolist()) == tuple(metadata["key_tokens"]) == trace.key_tokens
    assert set(metadata) == {"tokens", "key_tokens", *settings(trace), *ABOUT}
    assert json.loads(arrays["about"].item()).keys() == ABOUT
    for name, value in settings(trace).items():
        assert arrays[name].shape == ()
        assert float(arrays[name]) == float(metadata[name]) == value


def test_number_file_contains_the_inputs_of_every_step():
    trace = TRACES["every step"]
    read = read_npz(npz(trace))
    assert {name.removeprefix("L0.") for name in read} >= {step.name for step in trace.layers[0].steps} | {
        "mask",
        "w_q",
        "w_k",
        "w_v",
        "w_o",
    }
    assert float(read["L0.temperature"]) == 0.3
    assert float(read["L0.dropout"]) == 0.3
    assert read["L0.scores"] / (read["L0.divisor"] * read["L0.temperature"]) == approx(read["L0.scaled_scores"])


@pytest.mark.parametrize(
    "tokens",
    [
        ("", " ", "  ", "\n"),
        ("<b>", "&amp;", "$x$", "</script>"),
        ("日本", "🦉", "👨‍👩‍👧", "é"),
        ('"', "\\", "a,b", "x" * 5000),
        ("\ud800", "\x7f", "\u202e", "1"),
    ],
)
def test_odd_tokens_roundtrip(tokens, tmp_path):
    trace = Trace(tokens, ())
    assert tuple(read_npz(npz(trace))["tokens"].tolist()) == tokens
    assert tuple(read_metadata(safetensors(trace), tmp_path)["tokens"]) == tokens


def test_nul_characters_are_kept(tmp_path):
    trace = Trace(("\0", "a\0", "\0b"), ())
    assert read_npz(npz(trace))["tokens"].tolist() == ["U+0000", "aU+0000", "U+0000b"]
    assert read_metadata(safetensors(trace), tmp_path)["tokens"] == list(trace.tokens)


def test_bfloat16_is_kept_or_widened_exactly():
    weights = torch.rand(2, 3, 3).bfloat16()
    trace = Trace(("a", "b", "c"), (Layer(recorded={"weights": weights}),))
    widened = read_npz(npz(trace))["L0.weights"]
    assert widened.dtype == np.float32
    np.testing.assert_array_equal(widened, weights.float().numpy())
    stored = load(safetensors(trace))["L0.weights"]
    assert stored.dtype == torch.bfloat16
    assert torch.equal(stored, weights)


def test_metadata_are_standard_json(tmp_path):
    path = tmp_path / "trace.safetensors"
    path.write_bytes(safetensors(TRACES["two layers"]))
    with safe_open(path, "pt") as opened:
        json.loads(
            opened.metadata()["trace"], parse_constant=lambda word: pytest.fail(f"{word} is not a valid JSON file")
        )


@pytest.mark.parametrize("write", [npz, safetensors])
def test_equal_traces_give_equal_bytes(write):
    assert len({write(TypedText(CAT).trace()) for _ in range(5)}) == 1


def test_writing_leaves_the_trace_unchanged_and_stores_no_objects(tmp_path):
    trace = TypedText(CAT).trace()
    originals = {name: tensor.clone() for name, tensor in expected(trace).items()}
    archive = zipfile.ZipFile(io.BytesIO(npz(trace)))
    safetensors(trace)
    assert all(torch.equal(originals[name], tensor) for name, tensor in expected(trace).items())
    assert archive.testzip() is None
    assert not [name for name in archive.namelist() if b"|O" in archive.read(name)[:128]]


@pytest.mark.parametrize("head", [None, 0])
def test_partial_file_keeps_layer_numbers_and_predicts_its_size(head):
    trace = TRACES["two layers"]
    wanted = {name for name in read_npz(npz(trace, head)) if not name.startswith("L0")}
    assert set(read_npz(npz(trace, head, [1]))) == wanted
    for layers in (None, [1]):
        tensors = load(safetensors(trace, head, layers))
        assert sum(tensor.nbytes for tensor in tensors.values()) == size(trace, head, layers)


@pytest.mark.parametrize("name", ["every step", "matrices"])
def test_file_of_one_head_has_its_part_of_every_step(name):
    trace, head = TRACES[name], min(1, TRACES[name].layers[0].n_heads - 1)
    files = read_npz(npz(trace, head)), load(safetensors(trace, head))
    axes = {step.name: step.axes for step in STEPS}
    wanted = {}
    for full_name, tensor in expected(trace).items():
        layer, _, step = full_name.partition(".")
        per_head = axes.get(step, ("",))[0] in ("head", "kv_head")
        wanted[f"{layer}.H{head}.{step}" if per_head else full_name] = tensor[head] if per_head else tensor
    for read in files:
        assert set(read) - set(settings(trace)) - {"tokens", "key_tokens", "about"} == set(wanted)
        for key, tensor in wanted.items():
            np.testing.assert_array_equal(np.asarray(read[key]), tensor.numpy())
