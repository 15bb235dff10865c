"""Traces and matrices of tensors in memory, of what models of transformers return, and the tables of results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
import transformers
from margins import approx
from tiny_models import FAMILIES, NO_TEXT, TinyModels
from torch import nn

from attention import (
    AttentionError,
    File,
    Layer,
    Matrices,
    MatrixError,
    MissingError,
    Model,
    ModelError,
    ShapeError,
    Trace,
    TypedText,
    explain,
    metrics,
)
from attention.base.tokens import Generated, Patch
from attention.files.user_tensors import join_steps
from attention.models import running
from attention.sources.model_input import _OF_MEDIA, ModelOptions
from attention.trace.trace import Prediction

TEXT = "the owl asked the moon and the moon"
N = torch.Generator().manual_seed(0)
WEIGHTS = torch.softmax(torch.randn(2, 3, 3, generator=N), -1)
Q, K, V = torch.randn(3, 2, 5, 4, generator=N)
CAUSAL = torch.ones(5, 5).tril().bool()
ROWS = ((1.0, 0.5), (0.25, -2.0), (0.0, 1.5))


@pytest.fixture(scope="module")
def load(tiny: TinyModels) -> Iterator[Callable[..., Any]]:
    """A tiny model of a family, loaded once."""
    loaded: dict[tuple[str, str], Any] = {}

    def load_model(family: str, implementation: str = "eager") -> Any:
        if (family, implementation) not in loaded:
            running.silence_warnings()
            model_class = getattr(transformers, (FAMILIES | NO_TEXT)[family][1])
            model = model_class.from_pretrained(tiny(family), attn_implementation=implementation)
            loaded[family, implementation] = model.eval()
        return loaded[family, implementation]

    yield load_model
    loaded.clear()


# -- matrices ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "convert",
    [
        list,
        np.array,
        torch.tensor,
        lambda rows: torch.tensor(rows, requires_grad=True),
        lambda rows: torch.tensor(rows, dtype=torch.bfloat16),
        lambda rows: np.array(rows, np.float16),
        lambda rows: torch.tensor(rows)[None],
        lambda rows: [torch.tensor(row) for row in rows],
        lambda rows: torch.tensor(rows).to_sparse(),
        pd.DataFrame,
    ],
)
def test_matrices_of_any_kind_equal_tuples(convert: Callable[[Any], Any]) -> None:
    source, expected = (Matrices(query=rows, key=rows, value=rows) for rows in (convert(ROWS), ROWS))
    assert source == expected
    assert hash(source) == hash(expected)
    assert source.trace()[0].weights == approx(expected.trace()[0].weights)


def test_linear_layers_are_transposed_with_their_bias() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.randn(1, 5, 8, generator=N)
    layers = [nn.Linear(8, 8) for _ in "qkv"]
    for layer, weight, bias in zip(
        layers, attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3), strict=True
    ):
        layer.weight, layer.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
    output, weights = attention(x, x, x, average_attn_weights=False)
    layer = Matrices(x, *layers, attention.out_proj, n_heads=2).trace()[0]
    assert layer.weights == approx(weights[0].double(), dtype="float32")
    assert layer.output == approx(output[0].double(), dtype="float32")


def test_stack_of_one_beside_heads_is_shared() -> None:
    many, one = torch.randn(4, 5, 8, generator=N), torch.randn(1, 5, 8, generator=N)
    layer = Matrices(query=many[None], key=one[None], value=one).trace()[0]
    assert (layer.n_heads, len(layer.key)) == (4, 1)
    assert layer.z == approx(F.scaled_dot_product_attention(many, one, one).double(), dtype="float32")


def test_labels_of_a_table_are_tokens() -> None:
    table = pd.DataFrame(np.eye(3), list("abc"), list("xyz"))
    trace = Matrices(scores=table, value=np.eye(3)).trace()
    assert (trace.tokens, trace.key_tokens) == (("a", "b", "c"), ("x", "y", "z"))
    assert Trace.of(table).key_tokens == ("x", "y", "z")
    assert Matrices(query=ROWS, key=ROWS, value=ROWS, tokens=np.array(["a", "b", "c"])).trace().tokens == (
        "a",
        "b",
        "c",
    )


@pytest.mark.parametrize(
    ("matrix", "sentence"),
    [
        (torch.zeros(2, 2, 3, 4), "got 2 × 2 × 3 × 4, of which the first axis would be a batch"),
        (torch.zeros(3, 2, dtype=torch.complex64), "got complex numbers"),
        ("1 0; 0 1", "got a str"),
        ([[1, 2], [3]], "row 1 has 1 number, row 0 has 2"),
        (torch.zeros(10**4, 10**4), "at most 512 × 1024 numbers"),
        (torch.zeros(0, 4), "got [0, 4]"),
        (torch.tensor(1.0), "got one number"),
        (torch.zeros(3, 2, device="meta"), "no data"),
        (object(), "got an object"),
    ],
)
def test_what_is_no_matrix_gets_a_sentence(matrix: Any, sentence: str) -> None:
    with pytest.raises(MatrixError) as error:
        Matrices(query=matrix, key=ROWS, value=ROWS).trace()
    assert sentence in str(error.value)


# -- tensors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "n_layers"),
    [(WEIGHTS, 1), (WEIGHTS[None], 1), (WEIGHTS[None, None], 1), (WEIGHTS.expand(3, 2, 3, 3), 3), ([WEIGHTS, WEIGHTS[None].numpy()], 2), (WEIGHTS.expand(3, 4, 2, 3, 3), 3), (WEIGHTS.tolist(), 1)],
)  # fmt: skip
def test_weights_are_read_by_their_axes(tensor: Any, n_layers: int) -> None:
    trace = Trace.of(tensor, ["a", "b", "c"])
    assert (len(trace), trace.tokens) == (n_layers, ("a", "b", "c"))
    for layer in trace:
        assert layer.weights.float() == approx(WEIGHTS)
    assert any("axes were read as weights [" in note for note in trace.notes)


def test_batch_is_chosen_and_noted() -> None:
    pair = torch.stack([WEIGHTS, WEIGHTS.flip(0)])
    assert len(Trace.of(pair)) == 2
    chosen, first = Trace.of(pair, batch=1), Trace.of([pair])
    assert chosen[0].weights == approx(WEIGHTS.flip(0))
    assert first[0].weights == approx(WEIGHTS)
    assert "Sequence 0 of 2 is shown: batch= chooses another." in first.notes
    with pytest.raises(ShapeError, match="batch=2"):
        Trace.of(pair, batch=2)


def test_formula_computes_what_is_missing() -> None:
    expected = F.scaled_dot_product_attention(Q, K, V, is_causal=True)
    trace = Trace.of(query=Q, key=K, value=V, mask=CAUSAL, tokens="a b c d e")
    assert trace["z", 0] == approx(expected)
    assert explain(trace, "weights", q=3, k=1).short
    scaled = Trace.of(query=Q, key=K, value=V, scaling=0.25)
    assert scaled["z", 0] == approx(F.scaled_dot_product_attention(Q, K, V, scale=0.25))
    bias = torch.randn(5, 5, generator=N)
    biased = Trace.of(query=Q, key=K, value=V, bias=bias)
    assert biased["z", 0] == approx(F.scaled_dot_product_attention(Q, K, V, bias))


def test_numbers_that_no_formula_gives_are_shown() -> None:
    weights = torch.softmax((Q @ K.mT / 2).masked_fill(~CAUSAL, -torch.inf), -1)
    trace = Trace.of(query=Q, key=K, value=V, weights=weights)
    assert trace[0].formula is None
    assert trace[0].weights == approx(weights)
    assert "differs from the result of the formula" in trace.notes[0]
    assert Trace.of(query=Q, key=K, value=V, weights=weights, mask=CAUSAL)[0].formula is not None


def test_trace_does_not_follow_later_changes() -> None:
    weights = WEIGHTS.clone()
    trace = Trace.of(weights)
    weights.zero_()
    assert trace[0].weights == approx(WEIGHTS)


def test_cache_of_transformerlens_is_read() -> None:
    rows_first = [tensor.transpose(0, 1)[None] for tensor in (Q, K, V)]
    scores = (Q @ K.mT / 2).masked_fill(~CAUSAL, torch.finfo(torch.float32).min)
    cache = {
        f"blocks.{layer}.attn.hook_{name}": tensor
        for layer in range(2)
        for name, tensor in zip("qkv", rows_first, strict=True)
    }
    cache |= {f"blocks.{layer}.attn.hook_attn_scores": scores[None] for layer in range(2)}
    trace = Trace.of(cache | {"blocks.0.mlp.hook_pre": Q}, list("abcde"))
    assert len(trace) == 2
    assert replace(trace, layers=())  # it has predictions
    assert trace["z", 1] == approx(F.scaled_dot_product_attention(Q, K, V, is_causal=True))


def test_grid_makes_patches_that_a_file_keeps(tmp_path: Path) -> None:
    weights = torch.softmax(torch.randn(1, 2, 9, 9, generator=N), -1)
    trace = Trace.of([weights], places=(2, 4), picture=np.zeros((30, 60, 3), np.uint8))
    assert [type(token) for token in trace.tokens] == [str, *[Patch] * 8]
    trace.save(tmp_path / "grid.npz")
    saved = File.open(tmp_path / "grid.npz").trace()
    assert [(token.row, token.column) for token in saved.tokens[1:]] == [divmod(i, 4) for i in range(8)]
    with pytest.raises(ShapeError, match="a grid of 3 × 4, and the layers have 9 queries"):
        Trace.of(weights, places=(3, 4))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "got neither"),
        ({"query": Q}, "add key beside query"),
        ({"weights": Q @ K.mT}, "needs values of at least 0"),
        ({"weights": WEIGHTS * torch.nan}, "got nan at head 0"),
        ({"weights": WEIGHTS[0, 0]}, "got [3]"),
        ({"weights": WEIGHTS, "tokens": ["a"]}, "tokens are 1, and the layers have 3 queries and 3 keys"),
        ({"weights": WEIGHTS, "pattern": WEIGHTS}, "one weights; got it twice"),
        ({"weights": [WEIGHTS, WEIGHTS], "scores": WEIGHTS}, "got weights 2, scores 1"),
        ({"patern": WEIGHTS}, "did you mean 'pattern'"),
        ({"weights": WEIGHTS, "tokens": 3}, "got an int"),
        ({"weights": WEIGHTS, "places": 3}, "got 3"),
        ({"query": Q, "key": K, "divisor": 0}, "divisor is a number above 0"),
        ({"weights": WEIGHTS, "mask": torch.ones(4, 4)}, "mask is 4 × 4"),
        (
            {"weights": WEIGHTS, "mask": torch.ones(1, 1, 3, 3), "batch": 3},
            "mask is of 1 sequence, counted from 0; got batch=3",
        ),
    ],
)
def test_tensors_that_do_not_fit_get_a_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(AttentionError) as error:
        Trace.of(**arguments)
    assert sentence in str(error.value)


# -- what models return --------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["GPT-2", "Llama", "BERT", "BART"])
def test_output_gives_the_layers_of_model(load: Callable[..., Any], tokenizer: Any, family: str) -> None:
    model, inputs = load(family), tokenizer([TEXT], return_tensors="pt")
    arguments = {"decoder_input_ids": inputs["input_ids"][:, :4]} if family == "BART" else {}
    with torch.no_grad():
        output = model(inputs["input_ids"], output_attentions=True, **arguments)
    second = tokenizer.decode(inputs["input_ids"][0, :4]) if family == "BART" else ""
    expected = Model.of(model, tokenizer, TEXT, second).trace()
    trace = Trace.of(output, arguments.get("decoder_input_ids", inputs), key_tokens=inputs if arguments else None, tokenizer=tokenizer)  # fmt: skip
    assert len(trace) == len(expected)
    for layer, other in zip(trace, expected, strict=True):
        if other.name.startswith("encoder") or not arguments:
            assert layer.weights == approx(other.weights)
            assert layer.tokens == other.tokens
    assert [layer.name for layer in trace if arguments] == [layer.name for layer in expected if arguments]


_CACHES = (
    {},
    {"use_cache": False},
    {"cache_implementation": "static"},
    {"num_beams": 3},
    {"prompt_lookup_num_tokens": 2},
)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        *((family, options) for family in ("Llama", "Mistral") for options in _CACHES),
        *(("BART", _CACHES[i]) for i in (0, 1, 3)),
    ],
    ids=str,
)
def test_joined_generation_equals_one_pass(
    load: Callable[..., Any], tokenizer: Any, family: str, options: dict[str, Any]
) -> None:
    model, ids = load(family), tokenizer([TEXT], return_tensors="pt")["input_ids"]
    running.silence_warnings()
    generated = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=7, min_new_tokens=7, pad_token_id=0,
        return_dict_in_generate=True, output_attentions=True, **options,
    )  # fmt: skip
    trace = Trace.of(generated, tokenizer=tokenizer, **({"key_tokens": ids} if family == "BART" else {}))
    read = generated.sequences[:1, :-1]
    with torch.no_grad():
        whole = model(ids, decoder_input_ids=read, output_attentions=True) if family == "BART" else model(read, output_attentions=True)  # fmt: skip
    names = ("encoder_attentions", "decoder_attentions", "cross_attentions") if family == "BART" else ("attentions",)
    for layer, weights in zip(trace, [each for name in names for each in whole[name]], strict=True):
        assert layer.weights == approx(weights[0], terms=1024)
    assert isinstance(trace[-1].tokens[-1], Generated)
    assert len(trace.continuation) == 1


def test_steps_keep_the_keys_of_an_earlier_text() -> None:
    steps = [torch.full((1, 2, 5), 0.2), torch.full((1, 1, 6), 1 / 6)]
    assert join_steps(steps).shape == (1, 3, 6)
    with pytest.raises(ShapeError, match="give all steps"):
        join_steps([torch.full((1, 2, 2), 0.5), torch.full((1, 1, 9), 1 / 9)])


def test_padding_of_a_batch_is_left_out(load: Callable[..., Any], tokenizer: Any) -> None:
    model = load("GPT-2")
    batch = tokenizer(["the owl", TEXT], padding=True, return_tensors="pt")
    with torch.no_grad():
        output = model(batch["input_ids"], attention_mask=batch["attention_mask"], output_attentions=True)
        alone = model(tokenizer(["the owl"], return_tensors="pt")["input_ids"], output_attentions=True)
        parts = model(batch["input_ids"], output_attentions=True, return_dict=False)
    trace = Trace.of(output, batch, tokenizer=tokenizer)
    assert trace[1].weights == approx(alone.attentions[1][0])
    assert any("Padding is left out" in note for note in trace.notes)
    assert len(Trace.of(output, batch, batch=1).tokens) == batch["input_ids"].shape[1]
    assert len(Trace.of(parts, batch, batch=1)) == len(Trace.of(output.attentions, batch)) == 2


def test_output_without_weights_names_what_gives_them(load: Callable[..., Any], tokenizer: Any) -> None:
    with torch.no_grad():
        output = load("Llama", "sdpa")(tokenizer([TEXT], return_tensors="pt")["input_ids"])
    for value in (output, (None, None), {"logits": output.logits}):
        with pytest.raises(ModelError, match=r'attn_implementation="eager".*attention\.record'):
            Trace.of(value)
    nested = {"vision_model_output": type(output)(attentions=(WEIGHTS[None],))}
    with pytest.raises(ModelError, match=r"output\.vision_model_output"):
        Trace.of(nested)
    with pytest.raises(ModelError, match="windows"):
        Trace.of({"attentions": (WEIGHTS[None],), "global_attentions": (WEIGHTS[None],)})


# -- names, indices, tables ----------------------------------------------------------------------


def test_other_libraries_names_are_understood() -> None:
    trace = TypedText(TEXT).trace()
    layer = trace[0]
    for name in ("pattern", "hook_pattern", "attn_weights", "attn_probs", "A"):
        assert layer[name] is layer.weights
    assert layer.pattern is layer.weights
    assert layer.has("attn_scores")
    assert layer.matrix("z", 1).equal(layer.head_output[1])
    assert Layer(recorded={"pattern": WEIGHTS}).weights is WEIGHTS
    with pytest.raises(MissingError, match="may be scores or scaled_scores"):
        _ = layer["logits"]
    with pytest.raises(MissingError, match="did you mean 'pattern'"):
        Layer(recorded={"patern": WEIGHTS})
    with pytest.raises(ShapeError, match="got it twice"):
        Layer(recorded={"pattern": WEIGHTS, "weights": WEIGHTS})
    with pytest.raises(AttributeError, match="did you mean 'pattern'"):
        _ = layer.patern


def test_trace_is_a_sequence_of_its_layers() -> None:
    trace = Trace.of([WEIGHTS, WEIGHTS.flip(0)])
    assert (len(trace), list(trace), trace[-1], trace[:1]) == (2, [*trace.layers], trace.layers[1], trace.layers[:1])
    assert trace["pattern", 1].equal(WEIGHTS.flip(0))
    assert trace["weights"] == approx(torch.stack([WEIGHTS, WEIGHTS.flip(0)]))
    for place, sentence in (
        (2, "from 0 to 1; got 2"),
        ((0, "weights"), "write one of these"),
        (("weights", 5), "got 5"),
    ):
        with pytest.raises(MissingError, match=sentence):
            _ = trace[place]
    with pytest.raises(ShapeError, match="one shape"):
        _ = Trace.of([WEIGHTS, torch.eye(4)[None]])["weights"]


def test_results_are_tables_of_pandas() -> None:
    trace = TypedText("the cat sat on the mat").trace()
    table = metrics.of(trace).frame()
    assert [*table.columns] == ["layer", "head", *metrics.all_metrics()]
    assert table["entropy"].tolist() == metrics.of(trace).column("entropy").tolist()
    likeliest = Prediction(0, "a", torch.tensor([0.0, 2.0, 1.0]), (1, 2), ("x", "y")).frame()
    assert (likeliest.index.name, likeliest["logit"].tolist()) == ("rank", [2.0, 1.0])


def test_options_of_a_model_are_in_its_signature() -> None:
    options = {field.name for field in fields(ModelOptions)} - {"name", "device", "handle", "input_ids", "note"}
    parameters = inspect.signature(Model.of).parameters
    assert options <= parameters.keys()
    assert all(parameters[name].annotation != "Any" for name in options - {*_OF_MEDIA})
