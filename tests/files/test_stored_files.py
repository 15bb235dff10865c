"""Files as other people save them: one plan says what each array is, and the numbers are theirs."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from safetensors.torch import save
from test_code import run

from attention import AttentionError, Cell, File, MissingError, Trace
from attention.base.cache import CACHE
from attention.export.program import python
from attention.files import array_writer
from attention.formula.formula import Formula
from attention.trace.attend import attend

pytestmark = pytest.mark.quick

RANDOM = np.random.default_rng(3)


def drawn(*shape: int) -> np.ndarray[Any, Any]:
    weights = RANDOM.random(shape) + 0.01
    return weights / weights.sum(-1, keepdims=True)


def npz(*unnamed: Any, **named: Any) -> File:
    content = io.BytesIO()
    np.savez(content, *unnamed, **named)
    return File.of("x.npz", content.getvalue())


def in_json(document: Any, name: str = "x.json") -> File:
    return File.of(name, json.dumps(document, default=lambda array: array.tolist()).encode())


def lines(*documents: Any) -> File:
    text = "\n".join(json.dumps(each, default=lambda array: array.tolist()) for each in documents)
    return File.of("x.jsonl", text.encode())


A = drawn(3, 2, 4, 4)  # [layer head query key]
SHORT, LONG = drawn(2, 2, 3, 3), drawn(2, 2, 4, 4)
ABCD = ["a", "b", "c", "d"]
WORDS = {"left_text": ABCD, "right_text": ABCD}

# What people save, by what it is; the layers that it has.
LAYERS: dict[str, tuple[File, Any]] = {
    "all layers of one sentence": (npz(attentions=A[:, None]), A),
    "the sentence before the layers": (npz(attentions=A[None]), A),
    "layers without heads": (npz(layer_0=A[0, 0], layer_1=A[1, 0]), A[:2, :1]),
    "a tuple of layers": (npz(*A[:, None]), A),
    "numbers beside a name": (npz(**{f"attn_{i + 1}": each for i, each in enumerate(A)}), A),
    "layers that are out of order": (npz(**{f"layer_{i}": A[i] for i in (2, 0, 1)}), A),
    "ten layers and more": (npz(**{f"l{i}": A[i % 3] for i in range(11)}), A[[i % 3 for i in range(11)]]),
    "names of modules": (File.of("x.safetensors", save({f"bert.encoder.layer.{i}.attention.self": torch.tensor(A[i]) for i in range(3)})), A),
    "GPT-2": (npz(**{f"transformer.h.{i}.attn": each[None] for i, each in enumerate(A)}), A),
    "TransformerLens": (npz(**{f"blocks.{i}.attn.hook_pattern": each[None] for i, each in enumerate(A)}), A),
    "one array for each head": (npz(**{f"layer{i}_head{h}": A[i, h] for i in range(3) for h in range(2)}), A),
    "beside other arrays": (npz(attentions=A[:, None], input_ids=[[5, 6, 7, 8]], hidden_states=np.ones((4, 1, 4, 8)), logits=np.ones((1, 4, 9)), tokens=ABCD), A),
    "Keras": (npz(attention_scores=A[:1]), A[:1]),
    "a list of layers of lists": (in_json(A), A),
    "bertviz": (in_json({"attention": [{"name": None, "attn": A, **WORDS}], "default_filter": "0", "layer": None}), A),
    "bertviz of earlier versions": (in_json({"all": {"attn": A, **WORDS}}), A),
    "Tensor2Tensor": (in_json({"all": {"att": A, "top_text": ABCD, "bot_text": ABCD}}), A),
    "exBERT": (in_json({"aa": {"att": A, "left": [{"text": t, "embedding": [1.0]} for t in ABCD], "right": [{"text": t} for t in ABCD]}}), A),
    "records of layers": (in_json({"tokens": ABCD, "layers": [{"layer": i, "attn": each} for i, each in enumerate(A)]}), A),
    "dictionaries of heads": (in_json({i: {h: A[i, h] for h in range(2)} for i in range(3)}), A),
    "a list under the name of layers": (in_json({"tokens": ABCD, "layers": A}), A),
    "a generated token of all layers": (npz(A[:, None, :, -1:]), A[:, :, -1:]),
}  # fmt: skip


@pytest.mark.parametrize(("file", "expected"), LAYERS.values(), ids=LAYERS)
def test_layers_are_read_and_copied(file: File, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = file.trace()
    np.testing.assert_array_equal(np.stack([layer["weights"] for layer in trace.layers]), expected)
    assert not file.sequences
    assert file.memory_bytes() >= len(file.content) + trace.nbytes
    assert "The axes were read as weights [" in " ".join(trace.notes)
    monkeypatch.chdir(tmp_path)
    Path(file.name).write_bytes(file.content)
    last = len(expected) - 1
    if file.name != "x.safetensors":
        np.testing.assert_array_equal(
            run(python(file, trace, Cell(last, "weights", 0, 0, 0)))["weights"], expected[last]
        )


SENTENCES: dict[str, tuple[File, tuple[Any, ...], tuple[str, ...]]] = {
    "one array for each": (npz(SHORT, LONG), (SHORT, LONG), ("arr_0", "arr_1")),
    "an axis of the batch": (npz(attentions=A[:, None].repeat(2, 1)), (A, A), ("", "")),
    "the batch by its tokens": (in_json({"attention": A[:2], "tokens": [ABCD, ["e", "f", "g", "h"]]}), (A[:1], A[1:2]), ("a b c d", "e f g h")),
    "heads or sentences, by the tokens": (npz(attention=A[:2, 0], tokens=np.array([ABCD, ["e", "f", "g", "h"]])), (A[:1, :1], A[1:2, :1]), ("a b c d", "e f g h")),
    "names that are sentences": (npz(**{"the cat sat": SHORT, "a dog ran off": LONG}), (SHORT, LONG), ("the cat sat", "a dog ran off")),
    "lines": (lines({"attention": SHORT, "tokens": ABCD[:3]}, {"attention": LONG, "tokens": ABCD}), (SHORT, LONG), ("a b c", "a b c d")),
    "lines of one length": (lines({"attention": A[:1], "text": "a b c d"}, {"attention": A[1:2], "text": "e f g h"}), (A[:1], A[1:2]), ("a b c d", "e f g h")),
    "records": (in_json({"sentences": [{"tokens": ABCD[:3], "attn": SHORT}, {"tokens": ABCD, "attn": LONG}]}), (SHORT, LONG), ("a b c", "a b c d")),
    "views of bertviz": (in_json({"attention": [{"name": "Encoder", "attn": SHORT, "left_text": ABCD[:3]}, {"name": "Decoder", "attn": LONG, "left_text": ABCD}]}), (SHORT, LONG), ("Encoder: a b c", "Decoder: a b c d")),
    "batches of a loader": (npz(batch_0=A[:, None].repeat(2, 1), batch_1=A[:, None, :, ::-1]), (A, A, A[:, :, ::-1]), ("batch_0[0]", "batch_0[1]", "batch_1")),
    "sentences of models of other depths": (npz(sent_0=A, sent_1=A[:2]), (A, A[:2]), ("sent_0", "sent_1")),
    "steps of a training": (npz(step_100=A[0], step_200=A[1]), (A[:1], A[1:2]), ("step_100", "step_200")),
}  # fmt: skip


@pytest.mark.parametrize(("file", "expected", "labels"), SENTENCES.values(), ids=SENTENCES)
def test_sequences_are_chosen(file: File, expected: tuple[Any, ...], labels: tuple[str, ...]) -> None:
    assert file.sequences == labels
    for index, (weights, label) in enumerate(zip(expected, labels, strict=True)):
        trace = replace(file, sequence=index).trace()
        np.testing.assert_array_equal(np.stack([layer["weights"] for layer in trace.layers]), weights)
        assert f"has {len(labels)} sequences; this is {index}" in " ".join(trace.notes)
        if label and not label.startswith(("arr_0", "arr_1", "step", "the", "a dog", "sent", "batch")):
            assert trace.tokens == tuple(label.rpartition(": ")[2].split())
    with pytest.raises(AttentionError, match=f"has {len(labels)} sequences, counted from 0; got {len(labels)}"):
        replace(file, sequence=len(labels)).trace()


TOKENS: dict[str, tuple[dict[str, Any], int, int, str, str]] = {
    "of the keys": ({"tokens": ABCD}, 1, 4, "d", "abcd"),
    "of the last rows": ({"tokens": ABCD}, 2, 4, "cd", "abcd"),
    "of both by their lengths": ({"words": ABCD, "generated": ["x", "y"]}, 2, 4, "xy", "abcd"),
    "of a translation": ({"source": ["x", "y"], "target": ABCD}, 4, 2, "abcd", "xy"),
    "of an unusual name": ({"vocab": ABCD}, 4, 4, "abcd", "abcd"),
    "as bytes": ({"tokens": np.array([b"a", b"b"])}, 2, 2, "ab", "ab"),
    "in one text": ({"text": "a b c d"}, 4, 4, "abcd", "abcd"),
    "between tabs": ({"tokens": "a\tb\tc\td"}, 4, 4, "abcd", "abcd"),
    "as ids": ({"input_ids": [[5, 6, 7]]}, 3, 3, "567", "567"),
    "of two sides": ({"left_text": ["a", "b"], "right_text": ["c", "d"]}, 2, 2, "ab", "cd"),
    "that fit neither": ({"names_of_all": ABCD}, 2, 2, "x0x1", "x0x1"),
}  # fmt: skip


@pytest.mark.parametrize(("extra", "n", "m", "queries", "keys"), TOKENS.values(), ids=TOKENS)
def test_tokens_are_found(extra: dict[str, Any], n: int, m: int, queries: str, keys: str) -> None:
    trace = npz(weights=drawn(2, n, m), **extra).trace()
    assert ("".join(trace.tokens), "".join(trace.key_tokens)) == (queries, keys)


def test_blocks_of_an_encoder_decoder_are_layers_of_one_trace() -> None:
    encoder, decoder, cross = drawn(2, 1, 2, 3, 3), drawn(2, 1, 2, 2, 2), drawn(2, 1, 2, 2, 3)
    of_modules = {f"{side}.block.{i}.layer.{at}.{name}": array[i] for side, at, name, array in (("encoder", 0, "SelfAttention", encoder), ("decoder", 0, "SelfAttention", decoder), ("decoder", 1, "EncDecAttention", cross)) for i in range(2)}  # fmt: skip
    for arrays in (
        {"encoder_attentions": encoder, "decoder_attentions": decoder, "cross_attentions": cross},
        of_modules,
    ):
        layers = npz(**arrays, source=ABCD[:3], target=["x", "y"]).trace().layers
        assert [layer.name for layer in layers] == [f"{block} {i}" for block in ("encoder", "decoder", "cross") for i in (0, 1)]  # fmt: skip
        for layer, expected in zip(layers, [*encoder, *decoder, *cross], strict=True):
            np.testing.assert_array_equal(layer["weights"], expected[0])
        assert [(layer.tokens, layer.key_tokens) for layer in layers[::2]] == [
            (("a", "b", "c"), ("a", "b", "c")),
            (("x", "y"), ("x", "y")),
            (("x", "y"), ("a", "b", "c")),
        ]


@pytest.mark.slow
def test_steps_of_a_generation_are_joined() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=30, n_embd=8, n_layer=2, n_head=2, n_positions=16, attn_implementation="eager")
    ).eval()
    with torch.no_grad():
        ids = torch.tensor([[3, 1, 4]])
        output = model.generate(ids, max_new_tokens=4, do_sample=False, output_attentions=True, return_dict_in_generate=True, pad_token_id=0)  # fmt: skip
        whole = model(output.sequences[:, :-1], output_attentions=True).attentions
    document = {"attentions": [[layer.tolist() for layer in step] for step in output.attentions]}
    trace = in_json({**document, "tokens": [f"t{i}" for i in range(6)]}).trace()
    for layer, expected in zip(trace.layers, whole, strict=True):
        assert layer["weights"].float() == approx(expected[0])
    assert trace.tokens == ("t0", "t1", "t2", "t3", "t4", "t5")
    named = {f"attentions.{i}.{j}": layer for i, step in enumerate(output.attentions) for j, layer in enumerate(step)}
    opened = File.of("x.safetensors", save({key: each.contiguous() for key, each in named.items()})).trace()
    assert [layer["weights"].shape for layer in opened.layers] == [(2, 6, 6)] * 2
    last = in_json({"attentions": document["attentions"][1:], "tokens": [f"t{i}" for i in range(6)]}).trace()
    assert (last.tokens, len(last.key_tokens)) == (("t3", "t4", "t5"), 6)
    assert last.layers[1]["weights"].float() == approx(whole[1][0, :, 3:])


@pytest.mark.slow
def test_generation_of_an_encoder_decoder_has_its_blocks() -> None:
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 8))}  # fmt: skip
    model = BartForConditionalGeneration(BartConfig(vocab_size=30, d_model=8, max_position_embeddings=32, attn_implementation="eager", **sizes)).eval()  # fmt: skip
    ids = torch.tensor([[0, 5, 6, 7, 2]])
    with torch.no_grad():
        output = model.generate(ids, max_new_tokens=4, min_new_tokens=4, num_beams=1, do_sample=False, output_attentions=True, return_dict_in_generate=True)  # fmt: skip
        whole = model(ids, decoder_input_ids=output.sequences[:, :-1], output_attentions=True)
    document = {
        "encoder_attentions": [layer.tolist() for layer in output.encoder_attentions],
        **{name: [[layer.tolist() for layer in step] for step in output[name]] for name in ("decoder_attentions", "cross_attentions")},
    }  # fmt: skip
    layers = in_json(document).trace().layers
    expected = [*whole.encoder_attentions, *whole.decoder_attentions, *whole.cross_attentions]
    assert [layer.name for layer in layers][3:5] == ["decoder 1", "cross 0"]
    for layer, weights in zip(layers, expected, strict=True):
        assert layer["weights"].float() == approx(weights[0])


def test_masks_of_libraries_have_their_meaning() -> None:
    x = torch.randn(2, 4, 6)
    module = torch.nn.MultiheadAttention(6, 1, batch_first=True).eval()
    causal, padding = torch.ones(4, 4).triu(1).bool(), torch.tensor([[False] * 4, [False, False, True, True]])
    q, k, _ = (x @ module.in_proj_weight.T + module.in_proj_bias).chunk(3, dim=-1)
    _, weights = module(x, x, x, attn_mask=causal, key_padding_mask=padding)
    arrays = {"query": q[:, None], "key": k[:, None], "attn_mask": causal, "key_padding_mask": padding}
    file = npz(**{key: each.detach().numpy() for key, each in arrays.items()})
    for index in range(2):
        trace = replace(file, sequence=index).trace()
        assert trace.layers[0]["weights"][0] == approx(weights[index].detach())
        assert "In key_padding_mask, True hides a key, as in nn.MultiheadAttention" in " ".join(trace.notes)
    kept = npz(query=q[0].detach().numpy(), key=k[0].detach().numpy(), attn_mask=~causal.numpy()).trace()
    assert torch.equal(kept.layers[0]["weights"][0] > 0, ~causal)


@pytest.mark.parametrize("names", [("Q", "K", "V"), ("q", "k", "v"), ("query_states", "key_states", "value_states")])
def test_names_of_queries_and_keys_are_those_of_libraries(names: tuple[str, str, str]) -> None:
    q, k, v = (torch.randn(2, 3, 4) for _ in "qkv")
    layer = npz(**dict(zip(names, (q, k, v), strict=True))).trace().layers[0]
    assert layer["head_output"] == approx(torch.nn.functional.scaled_dot_product_attention(q, k, v))


def test_rows_before_heads_are_recognized() -> None:
    q, k = torch.randn(1, 5, 3, 4), torch.randn(1, 5, 3, 4)  # [batch pos head width], as TransformerLens has them
    pattern = torch.softmax(torch.einsum("bqhd,bkhd->bhqk", q, k) / 2, -1)
    for names in (("blocks.0.attn.hook_q", "blocks.0.attn.hook_k", "blocks.0.attn.hook_pattern"), ("q", "k", "pattern")):  # fmt: skip
        layer = npz(**dict(zip(names, (q, k, pattern), strict=True))).trace().layers[0]
        assert layer.formula is not None
        assert layer["query"] == approx(q[0].transpose(0, 1))


def test_plan_says_everything() -> None:
    plan = npz(attentions=A[:, None], hidden_states=np.ones((4, 1, 4, 8)), logits=np.ones((1, 4, 9))).plan()
    assert plan.text().split("\n") == [
        "“attentions”: weights [layer batch head query key] = 3 × 1 × 2 × 4 × 4",
        "“hidden_states”: 4 × 1 × 4 × 8, not used: its name is of no step",
        "“logits”: 1 × 4 × 9, not used: its name is of no step",
    ]
    assert plan.unused_note == "These arrays of “x.npz” are not used: “hidden_states”, “logits”."
    sentences = npz(**{f"layer_{i}": each for i, each in enumerate(A)}).plan()
    assert sentences.rows[0].label == "“layer_0” … “layer_2” (3 arrays)"


def test_records_have_masks_of_their_own() -> None:
    q, k = torch.randn(2, 3, 4), torch.randn(2, 3, 4)
    masks = [[1, 1, 0], [1, 0, 1]]
    file = lines(*({"query": a.tolist(), "key": b.tolist(), "attention_mask": mask} for a, b, mask in zip(q, k, masks, strict=True)))  # fmt: skip
    for index, mask in enumerate(masks):
        weights = replace(file, sequence=index).trace().layers[0]["weights"][0]
        expected = torch.nn.functional.softmax((q[index] @ k[index].T / 2).masked_fill(torch.tensor(mask) == 0, -torch.inf), -1)  # fmt: skip
        assert weights.float() == approx(expected)


REFUSED = {
    "a checkpoint": (npz(**{"h.0.attn.c_attn.weight": np.ones((4, 4)), "h.0.attn.c_proj.weight": np.ones((4, 4))}), "needs weights, or query, key and value, or scores; it has “h.0.attn.c_attn.weight” 4 × 4"),
    "rows without the zeros of a causal map": (in_json({"weights": [[1.0], [0.25, 0.75]]}), "in lists of equal length on each level"),
    "nulls": (in_json({"weights": [[None, 1], [0, 1]]}), "needs only numbers"),
    "sentences that differ in number": (npz(query=drawn(2, 3, 2, 4, 4), key=drawn(2, 2, 2, 4, 4)), "needs the same number of sentences in each array; got query 3, key 2"),
    "a missing layer of a sentence": (npz(sentence_0_layer_0=A[0], sentence_0_layer_1=A[1], sentence_1_layer_0=A[0]), "has no array of weights for layer 1 of sentence 1"),
    "arrays of objects": (npz(attentions=np.array([{"a": 1}])), "got an array of “object”: save its parts with numpy.savez(file, *parts)"),
}  # fmt: skip


@pytest.mark.parametrize(("file", "sentence"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_read_gets_one_sentence(file: File, sentence: str) -> None:
    sequence = 1 if "sentence" in sentence and "layer" in sentence else 0
    with pytest.raises(AttentionError) as caught:
        replace(file, sequence=sequence).trace()
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")


def test_many_sentences_and_arrays_stay_bounded() -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1000000000, 1, 2, 2), }"
    from benchmarks.hostile_files import npy

    with pytest.raises(AttentionError, match="would take"):
        File.of("x.npy", npy(header + "\n"), max_bytes=2**20).memory_bytes()
    assert len(File.of("x.npy", npy(header + "\n")).sequences) == 1024
    many = {f"a{i}": [[1.0]] for i in range(9000)}
    with pytest.raises(AttentionError, match="more than 8,192 arrays"):
        in_json(many).trace()


@pytest.mark.slow
def test_hostile_names_are_read_within_a_bound() -> None:
    sentences = lines(*({"attention": [[1.0]], "tokens": ["a"]} for _ in range(8000)))
    assert len(sentences.sequences) == 1024
    assert sentences.trace().tokens == ("a",)
    names = npz(**{f"word{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}x": np.ones((1, 1)) for i in range(676)})
    assert len(names.sequences) == 676
    deep = in_json({"a" * 100: {"b" * 150: {"c" * 100: {"weights": [[1.0]]}}}, "weights": [[1.0]]})
    assert "not used: An array in “x.json” has a name of more than 300 characters" in deep.plan().text()
    numbers = npz(**{"1." * 90 + str(i): np.ones((1, 1)) for i in range(40)})
    assert len(numbers.trace().layers) + len(numbers.sequences)


def test_same_length_keeps_both_lists() -> None:
    trace = npz(weights=drawn(1, 2, 2), tokens=["a", "b"], key_tokens=["c", "d"]).trace()
    assert (trace.tokens, trace.key_tokens) == (("a", "b"), ("c", "d"))


def test_formula_without_its_bias_shows_what_was_recorded() -> None:
    layer = attend(*torch.ones(3, 1, 3, 4), formula=Formula(divisor=2.0, bias="given")).with_tensors(
        bias=torch.eye(3)[None]
    )
    arrays = dict(np.load(io.BytesIO(array_writer.npz(Trace(tuple("abc"), (layer,))))))
    del arrays["L0.bias"]
    content = io.BytesIO()
    np.savez(content, **arrays)
    trace = File.of("a.npz", content.getvalue()).trace()
    assert trace.notes == (
        "The formula of the file does not match its numbers, which are shown as recorded: The formula adds a bias that is not here: give bias, too.",
    )
    assert trace.layers[0].formula is None
    assert trace.layers[0]["weights"].equal(torch.from_numpy(arrays["L0.weights"]))
    with pytest.raises(MissingError, match="adds a bias that is not here"):
        layer.without("bias")["weights"]


def test_value_computed_from_itself_is_an_error() -> None:
    with pytest.raises(RecursionError, match="from itself"):
        CACHE.get_or_compute("a", lambda: CACHE.get_or_compute("b", lambda: CACHE.get_or_compute("a", int)))
    assert CACHE.get_or_compute("a", int) == 0, "it can be computed later"


def test_value_that_a_job_stores_while_it_is_computed_can_be_read() -> None:
    def compute() -> int:
        CACHE.adopt({"stored": 3})
        return CACHE.get_or_compute("stored", int)

    assert CACHE.get_or_compute("stored", compute) == 3
