import math
import random
import re
from functools import cache

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention import STEPS, AttentionConfig, Cell, Layer, MissingError, Trace, TypedText, explain, find_step
from attention.arithmetic import number

CAT = "the cat sat on the mat"
LONG = " ".join(f"w{i}" for i in range(40))

SOURCES = {
    "default": TypedText(CAT),
    "cross-attention": TypedText(CAT, AttentionConfig(mask="causal"), "a dog ran"),
    "causal": TypedText(CAT, AttentionConfig(mask="causal")),
    "blind rows": TypedText("a b c d e", AttentionConfig(mask="window", window=1), "x y"),
    "sinusoidal": TypedText(CAT, AttentionConfig(positions="sinusoidal")),
    "identity": TypedText(CAT, AttentionConfig(d_model=5, init="identity")),
    "identity across": TypedText(CAT, AttentionConfig(d_model=9, init="identity", positions="sinusoidal"), "a dog"),
    "unscaled": TypedText(CAT, AttentionConfig(scaled=False)),
    "one-hot": TypedText(CAT, AttentionConfig(init="normal", scaled=False)),
    "uniform": TypedText(CAT, AttentionConfig(init="uniform")),
    "temperature 0": TypedText("the " * 5 + "cat", AttentionConfig(temperature=0, mask="causal")),
    "temperature 1e-300": TypedText(CAT, AttentionConfig(temperature=1e-300)),
    "temperature 0.05": TypedText(CAT, AttentionConfig(temperature=0.05)),
    "temperature inf": TypedText(CAT, AttentionConfig(temperature=math.inf, mask="causal")),
    "odd sizes": TypedText(
        CAT, AttentionConfig(d_model=7, n_heads=2, d_k=1, d_v=3, positions="sinusoidal", temperature=2.5)
    ),
    "one token": TypedText("cat", AttentionConfig(d_model=1, n_heads=1)),
    "40 tokens": TypedText(LONG, AttentionConfig(mask="causal", positions="sinusoidal")),
}


@cache
def traced(name):
    return SOURCES[name].trace()


def some_cells(matrix, most=24):
    cells = [(q, k) for q in range(matrix.shape[0]) for k in range(matrix.shape[1])]
    corners = [cells[0], cells[matrix.shape[1] - 1], cells[-matrix.shape[1]], cells[-1]]
    return cells if len(cells) <= most else [*corners, *random.Random(0).sample(cells, most)]


@cache
def every_explanation(name):
    trace = traced(name)
    return [
        explain(trace, step.name, head=head, q=q, k=k)
        for step, _ in trace.layers[0]
        for head in {0, trace.layers[0].n_heads - 1}
        for q, k in some_cells(trace.layers[0].matrix(step.name, head))
    ]


@cache
def worked_out(tex):
    """What a reader with a pocket calculator makes of a term's LaTeX."""
    tex = re.sub(r"\\underbrace\{(.*)\}_\{\d+\\text\{ more\}\}", r"\1", tex)
    tex = re.sub(r" \\cdot 10\^\{(-?\d+)\}", r"e\1", tex)
    tex = tex.replace(r"\infty", "inf").replace(r"\cdot", "*").replace(r"\sin", "sin").replace(r"\cos", "cos")
    tex = re.sub(r"e\^\{([^{}]*)\}", r"exp(\1)", tex)
    return eval(tex, {"inf": math.inf, "exp": math.exp, "sin": math.sin, "cos": math.cos})


@cache
def slack(tex):
    """How far 4 significant digits may lead astray, relative to the result: more inside an exponent."""
    inside = re.search(r"e\^\{(.*)\}", tex)
    sizes = [abs(worked_out(n)) for n in re.findall(r"[\d.]+(?: \\cdot 10\^\{-?\d+\})?", inside[1])] if inside else []
    return 1.1e-3 + 6e-4 * sum(size for size in sizes if size < math.inf)


@pytest.mark.parametrize("name", SOURCES)
def test_the_terms_of_every_step_make_the_number_on_the_map(name):
    for explanation in every_explanation(name):
        if math.isinf(explanation.value):
            assert explanation.result == explanation.value == -math.inf
            continue
        quotient = explanation.operation == "quotient"
        size = (
            1
            if explanation.step.name == "weights"
            else abs(explanation.value)
            if quotient
            else sum(abs(term.value) for term in explanation.terms)
        )
        assert explanation.result == pytest.approx(explanation.value, rel=1e-6, abs=1e-6 * size), explanation


@pytest.mark.parametrize("name", SOURCES)
def test_value_and_cell_are_those_of_the_tensor(name):
    layer = traced(name).layers[0]
    for explanation in every_explanation(name):
        cell = explanation.cell
        assert cell.step == explanation.step.name
        assert explanation.value == float(layer.matrix(cell.step, cell.head)[cell.row, cell.column])


@pytest.mark.parametrize("name", SOURCES)
def test_at_most_eight_terms_and_one_for_the_rest(name):
    for explanation in every_explanation(name):
        for terms in (explanation.terms, explanation.parts):
            rest = [term for term in terms if "more}" in term.tex]
            assert len(terms) - len(rest) <= 8
            assert len(rest) <= 1
            assert terms[-len(rest) :] == tuple(rest) or not rest


@pytest.mark.parametrize("name", SOURCES)
def test_every_line_is_balanced(name):
    for explanation in every_explanation(name):
        for line in explanation.lines:
            bare = line.replace(r"\{", "").replace(r"\}", "")
            for opening, closing in ("{}", "()"):
                depths = [0]
                for character in bare:
                    depths.append(depths[-1] + (character == opening) - (character == closing))
                assert min(depths) == depths[-1] == 0, line
            assert line.count("&=") == 1


@pytest.mark.parametrize("name", SOURCES)
def test_a_negative_factor_or_summand_stands_in_brackets(name):
    for explanation in every_explanation(name):
        assert not [line for line in explanation.lines if re.search(r"(\\cdot|\+) -", line)]


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_printed_agrees_with_what_was_computed(name):
    for explanation in every_explanation(name):
        for term in (*explanation.terms, *explanation.parts):
            assert worked_out(term.tex) == pytest.approx(term.value, rel=slack(term.tex), abs=1e-300), explanation
        if not math.isinf(explanation.value):
            assert worked_out(explanation.lines[-1].split("&=")[1].strip()) == pytest.approx(
                explanation.value, rel=6e-4
            )


@pytest.mark.parametrize("name", SOURCES)
def test_every_term_stands_in_a_line(name):
    for explanation in every_explanation(name):
        text = " ".join(explanation.lines)
        shown = explanation.parts if explanation.step.name == "weights" and explanation.parts else explanation.terms
        assert all(term.tex in text for term in shown), explanation


@pytest.mark.parametrize("name", SOURCES)
def test_where_a_number_came_from_is_a_cell_one_can_open(name):
    trace = traced(name)
    order = [step.name for step in STEPS]
    for explanation in every_explanation(name):
        for cell in explanation.came_from:
            assert order.index(cell.step) < order.index(explanation.step.name)
            assert explain(trace, cell.step, head=cell.head, q=cell.row, k=cell.column).cell == cell


@given(st.floats(-1e300, 1e300))
def test_a_number_has_four_significant_digits(value):
    assert worked_out(number(value)) == pytest.approx(value, rel=5.1e-4, abs=5e-324)
    digits = re.sub(r" \\cdot.*", "", number(value)).lstrip("-").replace(".", "").lstrip("0")
    assert len(digits) == 4 or value == 0


@pytest.mark.parametrize(
    ("value", "tex"),
    [
        (0.35731, "0.3573"),
        (-0.5, "-0.5000"),
        (1234, "1234"),
        (0.0, "0"),
        (-math.inf, r"-\infty"),
        (1.2346e-7, r"1.235 \cdot 10^{-7}"),
        (9999.9, r"1.000 \cdot 10^{4}"),
    ],
)
def test_numbers_as_latex(value, tex):
    assert number(value) == tex


# -- the sentences ----------------------------------------------------------------------------


def test_a_score_shows_the_query_and_the_key():
    trace = TypedText(CAT, AttentionConfig(d_model=4, n_heads=2)).trace()
    query, key = trace.layers[0].query[1, 2].tolist(), trace.layers[0].key[1, 5].tolist()
    shown = explain(trace, "scores", head=1, q=2, k=5)
    assert [term.value for term in shown.terms] == [a * b for a, b in zip(query, key, strict=True)]
    assert shown.lines[0] == r"S^{(1)}_{2,5} &= \sum_i Q^{(1)}_{2,i}\, K^{(1)}_{5,i}"
    for a, b, term in zip(query, key, shown.terms, strict=True):
        assert term.tex.replace("(", "").replace(")", "") == rf"{number(a)} \cdot {number(b)}"


def test_many_terms_show_the_largest_and_sum_the_rest():
    trace = TypedText(CAT, AttentionConfig(n_heads=1)).trace()
    products = (trace.layers[0].query[0, 1].double() * trace.layers[0].key[0, 2].double()).tolist()
    *shown, rest = explain(trace, "scores", q=1, k=2).terms
    largest = sorted(sorted(range(64), key=lambda i: -abs(products[i]))[:8])
    assert [term.value for term in shown] == [products[i] for i in largest]
    assert rest.value == pytest.approx(sum(products) - sum(term.value for term in shown))
    assert r"56\text{ more}" in rest.tex


def test_the_most_important_cell_is_the_one_named_first():
    trace = traced("default")
    products = trace.layers[0].query[1, 2] * trace.layers[0].key[1, 5]
    i = int(products.abs().argmax())
    assert explain(trace, "scores", head=1, q=2, k=5).came_from == (Cell("query", 1, 2, i), Cell("key", 1, 5, i))


def test_an_output_names_the_head_it_came_from():
    layer = traced("default").layers[0]
    products = (layer.head_output[:, 3] * layer.w_o[:, :, 10]).flatten()
    head, column = divmod(int(products.abs().argmax()), 16)
    assert explain(traced("default"), "output", q=3, k=10).came_from == (Cell("head_output", head, 3, column),)


def test_a_weight_shows_numerator_and_denominator():
    trace = traced("causal")
    masked = trace.layers[0].masked_scores[0, 2, :3].double()
    shown = explain(trace, "weights", q=2, k=1)
    powers = (masked - masked.max()).exp()
    assert shown.terms[0].value == pytest.approx(float(powers[1]))
    assert [part.value for part in shown.parts] == pytest.approx(powers.tolist())
    assert shown.terms[1].value == pytest.approx(float(powers.sum()))
    assert shown.words == "The share of key 1 in everything query 2 can see (3 keys)."


def test_a_hidden_key_is_said_to_be_hidden_and_has_weight_zero():
    masked, weight = (explain(traced("causal"), step, q=1, k=4) for step in ("masked_scores", "weights"))
    assert "hides key 4 from query 1" in masked.words
    assert masked.lines == (r"M^{(0)}_{1,4} &= -\infty \quad \text{(hidden)}",)
    assert weight.result == weight.value == 0


def test_a_blind_row_is_said_to_have_nothing_to_share():
    shown = explain(traced("blind rows"), "weights", q=4, k=0)
    assert "hides every key from query 4" in shown.words
    assert (shown.result, shown.terms) == (0, ())
    assert explain(traced("blind rows"), "head_output", q=4, k=0).result == 0


def test_a_tie_at_temperature_zero_is_shared():
    shown = explain(traced("temperature 0"), "weights", q=3, k=1)
    assert [term.value for term in shown.terms] == [1, 4]
    assert "shared by 4 keys" in shown.words


def test_scaling_is_told_as_it_was_done():
    told = {name: explain(traced(name), "scaled_scores") for name in SOURCES}
    assert r"\sqrt{16}" in told["default"].lines[0]
    assert "√d_k" in told["default"].words
    assert "temperature" not in told["default"].words
    assert "scaling is off" in told["unscaled"].words
    assert "√d_k" in told["temperature 0.05"].words
    assert "by the temperature" in told["temperature 0.05"].words
    assert r"\cdot 0.05000" in told["temperature 0.05"].lines[0]
    assert "temperature 0" in told["temperature 0"].words
    assert "left out" in told["temperature 0"].words


def test_a_d_k_of_one_is_not_called_unscaled():
    assert "scaling is off" not in explain(traced("odd sizes"), "scaled_scores").words


def test_cross_attention_takes_keys_from_the_memory_and_queries_from_the_input():
    cells = {name: explain(traced("cross-attention"), name).came_from[0].step for name in ("query", "key", "value")}
    assert cells == {"query": "input", "key": "memory", "value": "memory"}


def test_identity_says_there_is_no_projection():
    assert explain(traced("identity"), "key", q=1, k=2).words == "No projection: K is X itself."
    assert explain(traced("identity across"), "key", q=1, k=2).words == "No projection: K is X₂ itself."


def test_positions_show_their_angle():
    shown = explain(traced("sinusoidal"), "position", q=3, k=5)
    assert shown.lines[:2] == (r"P_{3,5} &= \cos\left(3 \,/\, 10000^{4/64}\right)", r"&= \cos(1.687024)")


def test_learned_positions_are_not_called_a_sine():
    table = torch.full((2, 4), 0.25)
    trace = Trace(("a", "b"), (Layer(position=table, embedding=table, input=table * 2),))
    assert (
        explain(trace, "position", q=1, k=2).words
        == "The row this position has in the table of positions: nothing is computed here."
    )
    assert explain(trace, "input", q=1, k=2).result == 0.5


@pytest.mark.parametrize("step", [step.name for step in STEPS])
def test_a_step_recorded_alone_is_given_not_explained(step):
    tensor = torch.rand([2] * len(find_step(step).axes))
    shown = explain(Trace(("a", "b"), (Layer(**{step: tensor}),)), step, head=1, q=0, k=1)
    assert shown.result == shown.value == float(tensor[..., 0, 1].flatten()[-1])
    assert shown.came_from == ()


# -- what is not there ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"step": "weights", "q": 6}, "query_pos of weights counts from 0 to 5; got 6: choose one of these."),
        ({"step": "weights", "k": -1}, "key_pos of weights counts from 0 to 2; got -1: choose one of these."),
        ({"step": "value", "q": 3}, "key_pos of value counts from 0 to 2; got 3: choose one of these."),
        ({"step": "value", "k": 16}, "d_v of value counts from 0 to 15; got 16: choose one of these."),
        ({"step": "scores", "head": 4}, "heads count from 0 to 3; got 4: choose one of these."),
        ({"step": "scores", "layer": 1}, "layers count from 0 to 0; got 1: choose one of these."),
    ],
)
def test_a_cell_out_of_range_says_what_was_expected_and_what_came(asked, message):
    with pytest.raises(MissingError) as caught:
        explain(traced("cross-attention"), **asked)
    assert str(caught.value) == message


def test_a_step_that_is_not_there_says_which_are():
    with pytest.raises(MissingError, match="this source has no memory; it has embedding, input"):
        explain(traced("default"), "memory")
    with pytest.raises(MissingError, match="got 'sims'"):
        explain(traced("default"), "sims")
