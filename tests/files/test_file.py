"""The source "file": files of other programs, our own exports, and malformed files."""

from __future__ import annotations

import io
import json
import math
import re
import struct
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from contract import variants
from hypothesis import given, settings
from margins import approx
from safetensors.torch import save
from test_code import run

from attention import (
    AttentionConfig,
    AttentionError,
    Cell,
    ConfigError,
    File,
    FileError,
    Layer,
    Matrices,
    ShapeError,
    Trace,
    TypedText,
    explain,
)
from attention.export.program import python
from attention.files import archives, array_writer, labelled
from attention.files.archives import MAX_ARRAYS, MAX_TEXT_BYTES
from attention.formula.formula import _CHECKS, Formula, from_json, to_json
from attention.formula.mask import Mask
from benchmarks.hostile_files import bomb, npy
from benchmarks.hostile_files import saved as saved_files

pytestmark = pytest.mark.quick

RANDOM = np.random.default_rng(0)
QKV = {name: RANDOM.normal(size=(2, 3, 4, 5)) for name in ("query", "key", "value")}  # [layer head pos d]


def random_weights(*shape: int) -> np.ndarray:
    drawn = RANDOM.random(shape)
    return drawn / drawn.sum(-1, keepdims=True)


WEIGHTS = random_weights(2, 3, 4, 6)  # [layer head query_pos key_pos]


def npz(**entries: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **entries)
    return file.getvalue()


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def same(actual: Trace, expected: Trace) -> None:
    """Asserts that two traces have the same steps and parameters, to the last bit."""
    assert (actual.tokens, actual.key_tokens, actual.random) == (expected.tokens, expected.key_tokens, expected.random)
    assert len(actual.layers) == len(expected.layers)
    for layer, expected_layer in zip(actual.layers, expected.layers, strict=True):
        assert (layer.name, layer.tokens, layer.key_tokens) == (
            expected_layer.name,
            expected_layer.tokens,
            expected_layer.key_tokens,
        )
        assert [step.name for step in layer.steps] == [step.name for step in expected_layer.steps]
        for step, tensor in layer:
            assert tensor.dtype == expected_layer[step.name].dtype
            assert tensor == approx(expected_layer[step.name])


# -- our own exports ---------------------------------------------------------------------

VARIANTS: dict[str, dict[str, Any]] = variants() | {
    "plain": {},
    "cold": {"positions": "sinusoidal", "mask": "causal", "temperature": 0},
    "shared keys, a window": {"positions": "rope", "n_kv_heads": 2, "mask": "window"},
    "a prefix": {"positions": "alibi", "normalizer": "sigmoid", "mask": "prefix"},
    "uniform": {"temperature": math.inf},
    "dropout": {"dropout": 0.3, "d_v": 3},
    "identity": {"init": "identity", "mask": "custom", "cells": "2x2.eNpzAAAAQQBB"},
}


@pytest.mark.slow
@pytest.mark.parametrize("knobs", VARIANTS.values(), ids=VARIANTS)
def test_exported_text_opens_to_the_same_digits_and_formula(knobs: dict[str, Any]) -> None:
    trace = TypedText(
        "the cat sat on\nno\0 mat", AttentionConfig(**knobs), "a dog ran off to\nit", True, pad=True
    ).trace()
    opened = File.of("x.safetensors", array_writer.safetensors(trace)).trace()
    same(opened, trace)
    same(File.of("x.npz", array_writer.npz(trace)).trace(), trace)
    layer, original = opened.layers[0], trace.layers[0]
    assert layer.formula == original.formula
    assert set(layer.recorded) == set(original.recorded), "tensors that the formula computes are not stored"
    for step in layer.steps:
        assert explain(opened, step.name, 0, 0, 1, 1) == explain(trace, step.name, 0, 0, 1, 1)

    head = original.n_heads - 1
    alone = File.of("x.npz", array_writer.npz(trace, head)).trace().layers[0]
    assert alone.formula is not None
    for step in original.steps:
        if step.name != "output" or not alone.has("w_o"):
            assert alone.matrix(step.name) == approx(original.matrix(step.name, head))


@pytest.mark.slow
def test_exported_matrices_reopen_with_biases_mask_and_notes() -> None:
    rows = {"query": ((1.0, 2.0), (0.5, -1.0)), "key": ((1.0, 0.0), (2.0, 1.0)), "value": ((1.0,), (3.0,))}
    source = Matrices(
        **rows, bias=((0.0, -math.inf), (1.0, 0.0)), dropout_mask=((1.0, 0.0), (2.0, 2.0)), divisor=3.0, valid=2
    )
    trace = source.trace()
    for opened in (
        File.of("x.npz", array_writer.npz(trace)),
        File.of("x.safetensors", array_writer.safetensors(trace, 0)),
    ):
        same(opened.trace(), replace(trace, layers=(replace(trace.layers[0], name=opened.trace().layers[0].name),)))
        assert opened.trace().layers[0].formula == trace.layers[0].formula


def mixed_trace() -> Trace:
    """A trace with three layers of different kinds, each with its tokens and names."""
    text = TypedText("the cat sat", AttentionConfig(mask="causal")).trace().layers[0]
    crossed = TypedText("a dog", AttentionConfig(positions="alibi"), "b c d e").trace().layers[0]
    weights = Layer("", ("the", "cat", "sat"), recorded={"weights": torch.full((2, 3, 3), 1 / 3, dtype=torch.float64)})
    return Trace(
        text.tokens,
        (text, Layer("cross 2", crossed.tokens, crossed.key_tokens, crossed.recorded, crossed.formula), weights),
    )


def test_layers_keep_names_tokens_and_partial_numbers() -> None:
    trace = mixed_trace()
    same(File.of("x.npz", array_writer.npz(trace)).trace(), trace)
    same(File.of("x.safetensors", array_writer.safetensors(trace)).trace(), trace)
    partial = File.of("x.npz", array_writer.npz(trace, layers=[1, 2])).trace()
    assert [layer.name for layer in partial.layers] == ["cross 2", "layer 2"]
    assert partial.layers[0].key_tokens == ("b", "c", "d", "e")


def test_altered_number_of_an_export_is_shown_as_altered() -> None:
    trace = TypedText("the cat sat").trace()
    contents = dict(np.load(io.BytesIO(array_writer.npz(trace))))
    nearly, other = (
        {**contents, "L0.weights": changed}
        for changed in (contents["L0.weights"] * np.float32(1 + 2e-7), np.roll(contents["L0.weights"], 1, 2))
    )
    layer = File.of("x.npz", npz(**nearly)).trace().layers[0]
    np.testing.assert_array_equal(layer["weights"], nearly["L0.weights"])
    assert layer.formula is not None, "other rounding still counts as the formula"
    opened = File.of("x.npz", npz(**other)).trace()
    assert opened.layers[0].formula is None
    np.testing.assert_array_equal(opened.layers[0]["weights"], other["L0.weights"])
    assert "weights differs from the result of the formula" in opened.notes[0]
    altered = {
        **contents,
        "L0.query": contents["L0.query"] + 1,
        **{f"L0.{name}": contents[f"L0.{name}"] for name in ()},
    }
    bare = File.of(
        "x.npz",
        npz(
            **{
                key: array
                for key, array in altered.items()
                if "scores" not in key and key[3:] not in ("weights", "head_output", "output")
            }
        ),
    ).trace()
    assert not bare.layers[0].has("w_q"), "X W_Q is not this Q"
    assert bare.layers[0].has("w_k")


def test_export_of_an_earlier_version_has_the_standard_formula() -> None:
    trace = TypedText("the cat sat on", AttentionConfig(mask="causal", temperature=0.5)).trace()
    old = {key: array for key, array in np.load(io.BytesIO(array_writer.npz(trace))).items() if key != "about"}
    opened = File.of("x.npz", npz(**old)).trace()
    assert opened.layers[0].formula is not None
    for step, tensor in trace.layers[0]:
        assert opened.layers[0][step.name] == approx(tensor)


@pytest.mark.parametrize(
    "value",
    [None, [], "dot", {"score": "best"}, {"rotary": -1}, {"rotary": math.nan}, {"temperature": True}, {"mask": {"kind": "x"}}, {"mask": {"real": "2"}}, {"mask": 3},
     {"dropping": {"share": 1.5}}, {"sinks": 1}, {"cap": "x"}, {"divisor": 0}, {"bias": ["alibi"]}, {"own_divisor": 10**400}],
)  # fmt: skip
def test_formula_of_foreign_origin_is_validated(value: object) -> None:
    with pytest.raises(ConfigError, match="a formula has the fields score, "):
        from_json(value)


def test_formula_is_read_as_it_was_written() -> None:
    for formula in (
        Formula(),
        Formula(temperature=math.inf, mask=Mask("prefix", prefix=2, real=(True, False)), cap=2.0, bias="alibi"),
    ):
        assert from_json(json.loads(json.dumps(to_json(formula)))) == formula
    assert to_json(Formula()).keys() == _CHECKS.keys(), "every field of a formula needs its allowed values"


def test_export_with_an_unknown_name_opens_and_names_it() -> None:
    trace = Matrices(query=((1, 0), (0, 1)), key=((1, 0), (1, 1)), value=((1, 2), (3, 4))).trace()
    arrays = dict(np.load(io.BytesIO(array_writer.npz(trace)))) | {"L0.kept_output": np.eye(2)[None]}
    opened = File.of("x.npz", npz(**arrays)).trace()
    same(opened, trace)
    assert opened.notes == ("These arrays of “x.npz” are not used: “L0.kept_output”.",)


# -- files of other programs --------------------------------------------------------------------------

WAYS: dict[str, tuple[str, bytes]] = {
    "npz": ("x.npz", npz(weights=WEIGHTS)),
    "one array of any name": ("x.npz", npz(arr_0=WEIGHTS)),
    "npy, the other order and endian": ("x.NPY", saved(np.asfortranarray(WEIGHTS.astype(">f8")))),
    "safetensors": ("x.safetensors", save({"weights": torch.tensor(WEIGHTS)})),
    "json": ("x.json", json.dumps({"weights": WEIGHTS.tolist()}).encode()),
    "json without a name": ("x.json", json.dumps(WEIGHTS.tolist()).encode()),
}


@pytest.mark.parametrize(("name", "content"), WAYS.values(), ids=WAYS)
def test_recorded_weights_are_kept_and_nothing_is_derived_from_them(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    source = File.open(tmp_path / name)
    assert source == File.of(name, content)
    assert hash(source) == hash(File.of(name, content))
    trace = source.trace()
    assert source.memory_bytes() > 2 * trace.nbytes
    assert trace.nbytes == WEIGHTS.size * 8
    assert (trace.tokens[:2], trace.key_tokens[5], len(trace.layers)) == (("x0", "x1"), "k5", 2)
    for layer, weights in zip(trace.layers, WEIGHTS, strict=True):
        assert layer.formula is None
        assert [step.name for step in layer.steps] == ["weights"]
        np.testing.assert_array_equal(layer["weights"], weights)
    cell = Cell(1, "weights", 2, 3, 4)
    assert "as the source recorded it" in explain(trace, "weights", 1, 2, 3, 4).words
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        variables = run(
            python(source, trace, cell).replace(
                "import safetensors.torch", "import safetensors.torch as _, safetensors"
            )
        )
    np.testing.assert_array_equal(variables["weights"], WEIGHTS[1])


KINDS = {
    "float64": (torch.float64, torch.float64),
    "float32": (torch.float32, torch.float32),
    "float16": (torch.float16, torch.float32),
    "bfloat16": (torch.bfloat16, torch.float32),
    "float8": (torch.float8_e4m3fn, torch.float32),
    "int8": (torch.int8, torch.float64),
    "int64": (torch.int64, torch.float64),
    "bool": (torch.bool, torch.float64),
}


@pytest.mark.parametrize(("kind", "read_as"), KINDS.values(), ids=KINDS)
def test_every_kind_of_number_is_read_right(kind: torch.dtype, read_as: torch.dtype) -> None:
    weights = torch.eye(4)[None].to(kind)
    mask = torch.ones(4, 4).tril().to(kind)
    files = [("x.safetensors", save({"scores": weights, "mask": mask}))]
    if kind not in (torch.bfloat16, torch.float8_e4m3fn):
        files.append(("x.npz", npz(scores=weights.numpy(), mask=mask.numpy())))
    for name, content in files:
        layer = File.of(name, content).trace().layers[0]
        assert layer["scores"].dtype == read_as
        assert layer["mask"].dtype == torch.bool
        np.testing.assert_array_equal(layer["scores"][0], np.eye(4))
        assert layer["weights"][0, 1, :2] == approx(torch.softmax(torch.tensor([0.0, 1.0]), 0))
        assert not layer["weights"][0, 1, 2:].any()


def test_queries_and_keys_are_attended_like_torch() -> None:
    mask = np.tril(np.ones((4, 4), dtype=bool))
    trace = File.of("x.npz", npz(**QKV, mask=mask, tokens=np.array(["the", "cat", "", "the"]))).trace()
    assert trace.tokens == trace.key_tokens == ("the", "cat", "", "the")
    for number, layer in enumerate(trace.layers):
        expected = torch.nn.functional.scaled_dot_product_attention(
            *(torch.from_numpy(array[number]) for array in QKV.values()), attn_mask=torch.from_numpy(mask)
        )
        assert layer["head_output"] == approx(expected)
        assert (
            layer.formula_of(next(step for step in layer.steps if step.name == "scaled_scores"))
            == "S / (√d_k · temperature)"
        )
    assert len(trace.notes) == 1
    assert "mask [query key] = 4 × 4" in trace.notes[0]


@pytest.mark.parametrize("extra", [{"divisor": 2.0}, {"scaling": [0.5, 0.5]}, {"scaling": "0.5"}])
def test_file_defines_the_divisor_of_its_scores(extra: dict[str, Any]) -> None:
    texts = {key: text for key, text in extra.items() if isinstance(text, str)}
    content = (
        save({name: torch.tensor(array) for name, array in QKV.items()}, {**texts, "tokens": '["a", "b", "c", "d"]'})
        if texts
        else npz(**QKV, **extra, tokens=np.array(list("abcd")))
    )
    trace = File.of("x.safetensors" if texts else "x.npz", content).trace()
    assert trace.tokens == tuple("abcd")
    assert trace.layers[1]["scaled_scores"] == approx(trace.layers[1]["scores"] / 2)


def test_weights_beside_queries_and_keys_come_from_the_file() -> None:
    layer = TypedText("a b c d", AttentionConfig(d_model=8, n_heads=2)).trace().layers[0]
    recorded = {name: layer[name].numpy() for name in ("query", "key", "value", "weights")}
    assert File.of("x.npz", npz(**recorded)).trace().layers[0].formula is not None
    contradictory = File.of("x.npz", npz(**recorded, divisor=10.0)).trace()
    assert [step.name for step in contradictory.layers[0].steps] == ["query", "key", "value", "weights"]
    assert "weights differs from the result of the formula for query, key and mask" in contradictory.notes[0]


def test_file_notes_unused_arrays() -> None:
    low = WEIGHTS.copy()
    low[0, 1, 2] *= 0.5
    content = npz(weights=low.astype(np.float16), embeddings=np.ones(3), loss=np.array([{}]), names=np.array(["x"]))
    assert File.of("x.npz", content).trace().notes == (
        "These arrays of “x.npz” are not used: “embeddings”, “loss”.",
        "The axes were read as weights [layer head query key] = 2 × 3 × 4 × 6; if they are others, name them in Axes (axes= in Python), such as “layer batch head query key”.",
        "1 row of weights sums to a value other than 1, from 0.5 to 0.5: they are shown unchanged, not renormalised.",
    )


# -- unreadable files -----------------------------------------------------------------------


def header(descr: str, shape: str, body: bytes = b"") -> bytes:
    return npy(f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n", body)


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tensors(head: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


ONE = {"dtype": "F32", "shape": [1, 1, 1], "data_offsets": [0, 4]}
WRONG = WEIGHTS.copy()
WRONG[1, 2, 3, 4] = -0.25
NAN = WEIGHTS.copy()
NAN[0, 0, 1] = math.nan
CAUSAL = np.where(np.tril(np.ones((4, 4))) == 1, 1.0, -math.inf)

REFUSED: dict[str, tuple[str, bytes, str]] = {
    "texts that unpack to gigabytes": ("x.npz", zipped({f"{i}.npy": header("|S1048576", "(1,)", b"a" * 2**20) for i in range(5)}), "has more than 4,194,304 bytes of texts, the limit"),
    "texts of no byte": ("x.npy", header("|S0", "(5,)"), "needs numbers of at most 64 bits; got an array of"),
    "another ending": ("x.xyz", b"x", "A file with attention ends in .npz, .npy, "),
    "no name": ("", b"x", "got “”"),
    "a hidden name": ("a\u202e\n" + "b" * 99 + ".pkl", b"x", "got “a��bbb"),
    "no bytes": ("x.npz", b"", "“x.npz” is empty: save it again"),
    "no zip": ("x.npz", b"PK\3\4" * 9, "“x.npz” is not a valid .npz file as numpy.savez writes it"),
    "a cut zip": ("x.npz", npz(weights=WEIGHTS)[:-30], "its list of arrays cannot be read"),
    "a damaged array": ("x.npz", npz(weights=WEIGHTS)[:200] + b"!" * 40 + npz(weights=WEIGHTS)[240:], "an array in it cannot be unpacked"),
    "a cut array": ("x.npy", saved(WEIGHTS)[:-8], "“x.npy” is 2 × 3 × 4 × 6 by its header; got only 143 of 144 numbers: use the complete file."),
    "a bomb": ("x.npz", bomb(60, "weights.npy"), "its header cannot be read"),
    "10^12 numbers": ("x.npy", header("<f4", "(1000000, 1000, 1000)"), "would take 3,814,697 MB in memory; at most 100 MB are read"),
    "10^12 numbers, packed": ("x.npz", zipped({"weights.npy": header("<f4", "(1000000, 1000, 1000)", bytes(2**20))}), "would take 3,814,697 MB"),
    "a million entries": ("x.npz", b"PK\1\2" * 10**6, f"lists more than {MAX_ARRAYS:,} arrays"),
    "packed as nobody does": ("x.npz", zipped({"weights.npy": saved(WEIGHTS)}, zipfile.ZIP_LZMA), "is compressed in another way than by numpy.savez_compressed"),
    "a pickle": ("x.npz", npz(weights=np.array([{"a": 1}])), "needs numbers of at most 64 bits; got an array of “object”"),
    "a pickle alone": ("x.npy", header("|O", "(1,)", b"cos\nsystem\n(S'touch pwned'\ntR."), "got an array of “object”"),
    "complex numbers": ("x.npy", saved(WEIGHTS.astype(complex)), "got an array of “complex128”"),
    "no header": ("x.npy", b"\x93NUMPY" + b"{" * 99, "its header cannot be read"),
    "no numbers": ("x.npy", saved(np.ones((3, 0, 2))), "needs 2 to 6 axes and a number in each; got 3 × 0 × 2"),
    "too many axes": ("x.npy", saved(np.ones((1,) * 9)), "needs 2 to 6 axes"),
    "a header of 100 GB": ("x.safetensors", tensors({}, length=10**11), f"claims a header of 100,000,000,000 bytes; at most {MAX_TEXT_BYTES:,} are read"),
    "a header that is cut": ("x.safetensors", tensors({}, length=500), "its header of 500 bytes is incomplete"),
    "a short file": ("x.safetensors", b"\1", "is not a valid .safetensors file"),
    "a header of braces": ("x.safetensors", tensors(b'{"a":' * 10**5), "its header is not a list of tensors"),
    "a header of a list": ("x.safetensors", tensors([1]), "its header is not a list of tensors"),
    "tensors of nothing": ("x.safetensors", tensors({"weights": {}}), "its header has no valid shape and position"),
    "a place outside": ("x.safetensors", tensors({"weights": {**ONE, "data_offsets": [10**9, 10**9 + 4]}}, b"1234"), "some of its numbers are missing"),
    "a wrong size": ("x.safetensors", tensors({"weights": {**ONE, "shape": [10**6] * 4}}, b"1234"), "some of its numbers are missing"),
    "a negative size": ("x.safetensors", tensors({"weights": {**ONE, "shape": [-1, -1, 1]}}, b"1234"), "its header has no valid shape"),
    "a kind of its own": ("x.safetensors", tensors({"weights": {**ONE, "dtype": "F7"}}, b"1234"), "needs numbers of a type such as F32 or BF16; got “F7”"),
    "no JSON": ("x.json", b"{'weights': 1}", "“x.json” is not a valid JSON file"),
    "many names": ("x.json", b'{"a":1}' + b',{"a":1}' * 2**17, "131,073 names; a .json file may have 131,072"),
    "a million brackets": ("x.json", b"[" * 10**6, f"numbers and texts in 1,000,000 lists; a .json file may have {archives._MAX_JSON_NUMBERS:,}"),
    "many brackets": ("x.json", b"[" * 10**5, "is not a valid JSON file"),
    "many numbers": ("x.json", b"[" + b"1," * 2**21 + b"1]", "2,097,153 numbers and texts in 1 lists"),
    "ragged": ("x.json", b'{"weights": [[1, 0], [1]]}', "“weights” in “x.json” needs only numbers, in lists of equal length on each level"),
    "words for numbers": ("x.json", b'{"weights": [[1, "a"]]}', "needs only numbers"),
    "numbers beyond all": ("x.json", b'{"weights": [[1, 1' + b"0" * 400 + b"]]}", "needs only numbers"),
    "nothing of attention": ("x.json", b'{"loss": [1, 2], "steps": [3]}', "it has “loss”, “steps”: save one of these under this name."),
    "one axis": ("x.json", b"[1, 2]", "“x.json” needs the axes [head query_pos key_pos], optionally with axes of layers and of sentences first; got 2"),
    "two axes too many": ("x.npy", saved(WEIGHTS[:, None].repeat(2, 1)[None].repeat(2, 0)), "got 2 × 2 × 2 × 3 × 4 × 6: save the parts of the others as arrays of their own"),
    "layers that differ": ("x.npz", npz(**{**QKV, "value": QKV["value"][:1]}), "needs the same number of layers in each array; got query 2, key 2, value 1"),
    "layers in some": ("x.npz", npz(**{**QKV, "value": QKV["value"][0]}), "got query 2, key 2, value none"),
    "too many tokens": ("x.npy", saved(np.ones((5000, 2))), "weights in “x.npy” has 5,000 positions and 1 heads; at most 4,096 and 1,024 are shown"),
    "too many heads": ("x.npy", saved(np.ones((2000, 1, 1))), "has 1 positions and 2,000 heads"),
    "too few tokens": ("x.npz", npz(weights=WEIGHTS, tokens=np.array(["a"])), "tokens in “x.npz” needs a list of 4 texts of at most 1,000 characters, one for each query; got 1 texts"),
    "tokens that are none": ("x.npz", npz(weights=WEIGHTS, tokens=np.array(["a" * 2000] * 4)), "needs a list of 4 texts"),
    "tokens as objects": ("x.npz", npz(weights=WEIGHTS, tokens=np.array(["a", None], dtype=object)), "numpy.array(tokens, dtype=str)"),
    "a divisor of 0": ("x.npz", npz(**QKV, divisor=0.0), "divisor needs a positive number, or one for each layer; got “0.0”: save such a number"),
    "a scaling in words": ("x.json", json.dumps({"query": [[1]], "key": [[1]], "scaling": "much"}).encode(), "scaling needs a positive number"),
    "below 0": ("x.npy", saved(WRONG), "weights of layer 1 needs values of at least 0; got -0.25 at head 2, query 3 x3, key 4 k4: save numbers before the softmax as scores."),
    "NaN": ("x.npy", saved(NAN), "weights of layer 0 needs finite numbers; got nan at head 0, query 1 x1, key 0 k0: replace it"),
    "hidden scores": ("x.npz", npz(scores=CAUSAL), "got -inf at head 0, query 0 x0, key 1 x1: save the mask and the scores before masking"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content", "reason"), REFUSED.values(), ids=REFUSED)
def test_unreadable_file_gets_one_sentence(
    name: str, content: bytes, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileError) as refused:
        File.of(name, content, max_bytes=100 * 2**20).trace()
    message = str(refused.value)
    assert reason in message
    assert len(message) < 400
    assert not list(tmp_path.iterdir()), "no code ran"


@pytest.mark.slow
@settings(max_examples=150)
@given(saved_files)
def test_any_content_of_a_file_ends_in_numbers_or_sentence(named: tuple[str, bytes]) -> None:
    with suppress(AttentionError):
        for layer in File.of(*named, max_bytes=2**24).trace().layers:
            assert layer.steps
            for step in layer.steps:
                assert layer.matrix(step.name).numel()
                assert layer.stats(step.name)


def test_mismatched_sizes_get_one_sentence() -> None:
    with pytest.raises(ShapeError, match="d_k is 5 in query but 4 in key"):
        File.of("x.npz", npz(**{**QKV, "key": QKV["key"][..., :4]})).trace()


def test_path_without_a_file_gets_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"“none.npz” cannot be opened \(No such file or directory\)"):
        File.open(tmp_path / "none.npz")
    (tmp_path / "x.npy").write_bytes(saved(WEIGHTS))
    with pytest.raises(FileError, match=r"has 1,280 bytes; at most 100 are read"):
        File.open(tmp_path / "x.npy", max_bytes=100)


def test_file_memory_estimate_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    source = File.of("x.npz", npz(weights=np.zeros((8, 8, 256, 256), np.float16)))  # 8 MB, a few kB in the file
    assert len(source.content) < 2**15
    assert source.memory_bytes() == 2 * 8 * 8 * 256 * 256 * 4 + len(source.content)
    monkeypatch.setattr(np, "frombuffer", lambda *_: pytest.fail("the file must not be unpacked"))
    with pytest.raises(FileError, match="would take 32 MB in memory; at most 31 MB are read"):
        File.of("x.npz", source.content, max_bytes=31 * 2**20).trace()
    monkeypatch.setattr(labelled, "open_file", lambda *_: pytest.fail("a page asks in every run"))
    assert source.memory_bytes() > 2 * 8 * 8 * 256 * 256 * 4


def test_matrices_of_one_head_equal_the_matrices_source() -> None:
    query, key, value = (array[0, 0] for array in QKV.values())
    rows = {
        name: tuple(map(tuple, array.tolist())) for name, array in (("query", query), ("key", key), ("value", value))
    }
    opened = File.of("x.npz", npz(query=query, key=key, value=value)).trace()
    for step, tensor in Matrices(**rows).trace().layers[0]:
        assert opened.layers[0][step.name] == approx(tensor)


@pytest.mark.slow
def test_documented_lines_save_attention_that_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import BertConfig, BertModel, BertTokenizer

    document = (Path(__file__).parents[2] / "docs" / "formats-and-links.md").read_text(encoding="utf-8")
    (lines,) = [block for block in re.findall(r"```python\n(.*?)```", document, re.DOTALL) if "np.savez" in block]
    words = ["the", "owl", "asked", "the", "moon", "and", "the", "moon", "blinked"]
    assert " ".join(words) in lines
    vocabulary = {
        word: at for at, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(words)])
    }
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=len(vocabulary), **sizes)).save_pretrained(tmp_path / "model")
    BertTokenizer(vocab=vocabulary).save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {}
    exec(lines.replace("path/to/your/model", "model"), variables)
    trace = File.open("attention.npz").trace()
    assert trace.tokens == ("[CLS]", *words, "[SEP]")
    assert len(trace.layers) == 2
    for layer, weights in zip(trace.layers, variables["weights"], strict=True):
        np.testing.assert_array_equal(layer["weights"], weights)
        assert layer["weights"].sum(-1) == approx(torch.ones(2, len(words) + 2))
    assert "[layer head query key] = 2 × 2 × " in trace.notes[0]
