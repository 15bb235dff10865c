import math
import random
import re
from decimal import Context, Decimal, localcontext
from functools import cache
from itertools import pairwise

import pytest
import torch
from conftest import examples_of
from hypothesis import given, settings
from hypothesis import strategies as st
from margins import approx

from attention import STEPS, AttentionConfig, Cell, Layer, Matrices, MissingError, Trace, TypedText, explain, find_step
from attention.base.printed import format_number, number
from attention.formula import mask_tensor
from attention.formula.formula import Formula

pytestmark = pytest.mark.quick

CAT = "the cat sat on the mat"
LONG = " ".join(f"w{i}" for i in range(40))

SOURCES = {
    "default": TypedText(CAT),
    "the owl": TypedText("the owl asked the moon and the moon blinked"),
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
    "d_k of 1, not scaled": TypedText(CAT, AttentionConfig(d_model=4, d_k=1, scaled=False, temperature=0.35)),
    "nine of everything": TypedText("a b c d e f g h i", AttentionConfig(d_model=9, n_heads=1)),
    "dropout": TypedText(CAT, AttentionConfig(mask="causal", dropout=0.3)),
    "dropout of one third": TypedText(CAT, AttentionConfig(dropout=1 / 3)),
    "window": TypedText(CAT, AttentionConfig(mask="window", window=1, temperature=1 / 3)),
    "prefix and padding": TypedText(f"{CAT}\na b", AttentionConfig(mask="prefix", prefix=2), sequence=1, pad=True),
    "custom": TypedText(CAT, AttentionConfig(mask="custom", cells=mask_tensor.encode(torch.rand(6, 6) < 0.5))),
    "seed 7": TypedText(CAT, AttentionConfig(seed=7, temperature=3.7)),
    "seed 8": TypedText(CAT, AttentionConfig(seed=8, d_model=128, n_heads=2, positions="sinusoidal")),
    "large scores": TypedText(CAT, AttentionConfig(d_model=512, init="uniform", scaled=False)),
    "matrices": Matrices(
        x=((1, 0, -2.5), (0.125, 3, 1e-7)),
        w_q=((1, 2), (0.3, -4), (5e4, 0)),
        w_k=((0, 1), (1, 0), (-1, 1)),
        w_v=((-1, 0), (0, -1), (0.5, 0.5)),
        w_o=((1, 2, 3), (4, 5, 6)),
    ),
    "queries and keys": Matrices(query=((0.5, 0.2469), (1, 2)), key=((1, 0.0), (0, -1)), value=((0.1,), (-0.1,))),
    **examples_of("tutorials"),
}

# Sources whose steps and arithmetic occur in another source with other numbers.
SIMILAR = {
    *("unscaled", "one-hot", "uniform", "temperature 0.05", "temperature inf", "40 tokens", "d_k of 1, not scaled"),
    *("dropout of one third", "window", "custom", "seed 7", "seed 8", "large scores", "causal"),
}
CASES = [pytest.param(name, marks=pytest.mark.slow if name in SIMILAR else ()) for name in SOURCES]


@cache
def traced(name):
    return SOURCES[name].trace()


def some_cells(matrix, count=10):
    cells = [(q, k) for q in range(matrix.shape[0]) for k in range(matrix.shape[1])]
    corners = [cells[0], cells[matrix.shape[1] - 1], cells[-matrix.shape[1]], cells[-1]]
    return cells if len(cells) <= count else [*corners, *random.Random(0).sample(cells, count)]


@cache
def every_explanation(name):
    trace = traced(name)
    return [
        explain(trace, step.name, head=head, q=q, k=k)
        for step, _ in trace.layers[0]
        for head in {0, trace.layers[0].n_heads - 1}
        for q, k in some_cells(trace.layers[0].matrix(step.name, head))
    ]


def calculated(arithmetic):
    """The value of an expression of numbers, brackets and e(…), in decimal arithmetic."""
    with localcontext(Context(prec=40, traps=[])):
        known = {"D": Decimal, "e": Decimal.exp, "root": Decimal.sqrt}
        known |= {wave: lambda x, turn=turn: Decimal(turn(float(x))) for wave, turn in waves.items()}
        return eval(re.sub(r"(?<![\w.])(\d+(?:\.\d+)?(?:E-?\d+)?|inf)", r"D('\1')", arithmetic), known)


waves = {"sin": math.sin, "cos": math.cos, "tanh": math.tanh}


@cache
def latex_value(tex):
    """The value of LaTeX: a number, a term, or a line of numbers."""
    tex = tex.replace(r"\\ &\quad", "")
    tex = re.sub(r"\\underbrace\{([^{}]*(?:\{[^{}]*\})?[^{}]*)\}_\{(\d+)\\text\{ more\}\}", r"\1", tex)
    tex = re.sub(r" \\cdot 10\^\{(-?\d+)\}", r"E\1", tex)
    tex = re.sub(r"e\^\{([^{}]*)\}", r"e(\1)", tex)
    tex = re.sub(r"\\frac\{([^{}]*)\}\{([^{}]*)\}", r"(\1) / (\2)", tex)
    tex = re.sub(
        r"\^\{(\d+)/(\d+)\}", r"**(\1/\2)", tex.replace(r"\left", "").replace(r"\right", "").replace(r"\,", "")
    )
    tex = tex.replace(r"\;\big/\;", "/").replace(r"\big", "").replace(r"\cdot", "*").replace(r"\infty", "inf")
    return calculated(re.sub(r"\\(sin|cos|tanh)", r"\1", tex))


def plain_value(short):
    """The value of a plain line, or of its number when words follow."""
    text = short.partition(":")[0] if re.match(r"[−\d.e∞]+: ", short) else short
    text = re.sub(r"… \((\d+) more: ([^)]*)\)", r"(\2)", text)
    text = (
        re.sub(r"(?<=\d)e(?=[−\d])", "E", text)
        .replace("E−", "E-")
        .replace("−", "-")
        .replace("·", "*")
        .replace("∞", "inf")
    )
    text = re.sub(r"√(\d+)", r"root(\1)", text.replace("^", "**").replace("e**", "e"))
    return calculated(text)


def rounds_to_shown(result, explanation):
    """Whether a result rounds to the number in the heading, within half a unit of the last digit."""
    near = (float(result), float(result) * (1 - 1e-12), float(result) * (1 + 1e-12))
    return explanation.displayed_value in map(format_number, near)


def numeric_lines(explanation):
    """The lines of numbers between the formula and the value: (relation before, LaTeX, relation after)."""
    sides = [re.search(r"&(=|\\approx) (.*)$", line, re.DOTALL).groups() for line in explanation.lines]
    for (relation, tex), (next_relation, _) in pairwise(sides):
        if not re.search(r"[A-Z]['_^{]|\\sum", tex):
            yield relation, tex, next_relation


@pytest.mark.sample(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_terms_of_every_step_give_the_number_on_the_map(name):
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
        assert explanation.result == approx(explanation.value, scale=size), explanation


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", CASES)
def test_value_and_cell_match_the_tensor(name):
    layer = traced(name).layers[0]
    for explanation in every_explanation(name):
        cell = explanation.cell
        assert cell.step == explanation.step.name
        assert explanation.value == float(layer.matrix(cell.step, cell.head)[cell.row, cell.column])


@pytest.mark.parametrize("name", CASES)
def test_terms_are_nine_or_eight_plus_the_rest(name):
    for explanation in every_explanation(name):
        for terms in (explanation.terms, explanation.parts):
            summed = [term for term in terms if "more}" in term.tex]
            assert len(terms) - len(summed) <= 9 - len(summed)
            assert len(summed) <= 1
            assert terms[-len(summed) :] == tuple(summed) or not summed
        text = " ".join((*explanation.lines, explanation.short))
        assert not re.search(r"(\{|\()1(\\text\{)? more", text), "a single summand is hidden"


@pytest.mark.parametrize("name", CASES)
def test_every_latex_line_is_balanced(name):
    for explanation in every_explanation(name):
        for line in explanation.lines:
            bare = line.replace(r"\{", "").replace(r"\}", "")
            for opening, closing in ("{}", "()"):
                depths = [0]
                for character in bare:
                    depths.append(depths[-1] + (character == opening) - (character == closing))
                assert min(depths) == depths[-1] == 0, line
            assert line.count("&=") + line.count(r"&\approx") == 1


@pytest.mark.parametrize("name", CASES)
def test_negative_factors_and_summands_are_in_brackets(name):
    for explanation in every_explanation(name):
        assert not [line for line in explanation.lines if re.search(r"(\\cdot|\+) -", line)]


def check_printed_lines(explanation):
    """Asserts that every printed line, also the plain one, evaluates to the shown number unless it has "≈"."""
    for relation, tex, next_relation in numeric_lines(explanation):
        result, approximate = latex_value(tex), r"\approx" in (relation, next_relation)
        assert approximate or rounds_to_shown(result, explanation), (tex, result, explanation)
        size = abs(explanation.value) + sum(abs(term.value) for term in explanation.terms)
        is_near = float(result) == approx(explanation.value, digits=3, scale=size)
        assert is_near or math.isinf(explanation.value), explanation
    if "hidden" not in explanation.lines[-1]:
        assert rounds_to_shown(latex_value(re.split(r"&=|\\approx", explanation.lines[-1])[-1].strip()), explanation)
    short = explanation.short
    assert len(short) <= 70
    assert bool(short) or explanation.came_from == ()
    assert not short or explanation.sign == "≈" or rounds_to_shown(plain_value(short), explanation), explanation
    assert not re.search(r"(·|\+|−) −|\\", short)


@pytest.mark.parametrize("name", CASES)
def test_every_printed_line_evaluates_to_the_value(name):
    for explanation in every_explanation(name):
        check_printed_lines(explanation)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.data(), st.sampled_from(("scaled normal", "normal", "linear", "uniform")), st.sampled_from((0.0, 0.1, 1 / 3)))
def test_printed_numbers_agree_with_the_value_for_any_input(data, init, dropout):
    config = AttentionConfig(
        d_model=data.draw(st.integers(1, 40)),
        n_heads=1,
        init=init,
        dropout=dropout,
        scaled=data.draw(st.booleans()),
        mask=data.draw(st.sampled_from(("none", "causal", "window", "prefix", "padding"))),
        temperature=data.draw(st.sampled_from((0.0, 0.05, 0.35, 1.0)) | st.floats(0.05, 10)),
        positions=data.draw(st.sampled_from(("none", "sinusoidal"))),
        seed=data.draw(st.integers(0, 10_000)),
    )
    trace = TypedText(data.draw(st.sampled_from((CAT, "a", "a b\na b c d", LONG))), config).trace()
    for step, tensor in trace.layers[0]:
        q, k = (data.draw(st.integers(0, size - 1)) for size in tensor.shape[-2:])
        check_printed_lines(explain(trace, step.name, q=q, k=k))


@pytest.mark.slow
def test_approximate_equalities_are_rare():
    """ "≈" appears where single precision has lost digits, or where a number lies between two roundings."""
    everything = [explanation for name in SOURCES for explanation in every_explanation(name)]
    approximate = [item for item in everything if item.sign == "≈" or any(r"\approx" in line for line in item.lines)]
    assert len(approximate) < 0.01 * len(everything)


@pytest.mark.parametrize(
    ("step", "q", "k", "short"),
    [
        ("masked_scores", 1, 4, "−∞: hidden by the mask"),
        ("weights", 1, 4, "0: hidden by the mask"),
        ("weights", 0, 0, "e^(−0.1864 − (−0.1864)) / 1"),
        ("head_output", 0, 0, "1·(−1.622) + … (5 more: 0)"),
        ("scaled_scores", 2, 1, "−5.45 / √16"),
        ("embedding", 0, 0, ""),
    ],
)
def test_plain_line_of_each_step(step, q, k, short):
    assert explain(traced("causal"), step, q=q, k=k).short == short


def test_cancelling_digits_are_printed():
    """Two summands that nearly cancel leave digits that rounding to four would remove."""
    trace = Matrices(query=((1.0001, 1.0),), key=((1.0, -1.00005),), value=((1.0,),)).trace()
    explanation = explain(trace, "scores")
    assert explanation.displayed_value == "5e−5"
    assert latex_value(explanation.lines[1].removeprefix("&= ")) == plain_value(explanation.short) == Decimal("0.00005")


@pytest.mark.parametrize("name", CASES)
def test_every_term_appears_in_a_line(name):
    for explanation in every_explanation(name):
        text = " ".join(explanation.lines)
        terms = explanation.parts if explanation.step.name == "weights" and explanation.parts else explanation.terms
        assert all(term.tex in text for term in terms), explanation


@pytest.mark.sample(12)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_sources_of_a_number_are_valid_cells(name):
    trace = traced(name)
    order = [step.name for step in STEPS]
    sources = [(explanation, cell) for explanation in every_explanation(name) for cell in explanation.came_from]
    for explanation, cell in sources:
        assert order.index(cell.step) < order.index(explanation.step.name)
    for cell in {cell for _, cell in sources}:
        assert explain(trace, cell.step, head=cell.head, q=cell.row, k=cell.column).cell == cell


@given(st.floats(-1e300, 1e300))
def test_numbers_have_four_significant_digits(value):
    assert float(latex_value(number(value).tex)) == approx(value, digits=4, scale=abs(value))
    assert float(plain_value(number(value).text)) == float(number(value).value) == float(latex_value(number(value).tex))
    digits = re.sub(r" \\cdot.*", "", number(value).tex).lstrip("-").replace(".", "").lstrip("0")
    assert len(digits) == 4 or value == 0


@pytest.mark.parametrize(
    ("value", "tex", "text"),
    [
        (0.35731, "0.3573", "0.3573"),
        (-0.5, "-0.5000", "−0.5"),
        (1234, "1234", "1234"),
        (0.0, "0", "0"),
        (-0.0, "0", "0"),
        (-math.inf, r"-\infty", "−∞"),
        (1.2346e-7, r"1.235 \cdot 10^{-7}", "1.235e−7"),
        (9999.9, r"1.000 \cdot 10^{4}", "1e4"),
    ],
)
def test_numbers_print_as_latex_and_as_text(value, tex, text):
    assert (number(value).tex, format_number(value)) == (tex, text)


# -- the sentences ----------------------------------------------------------------------------


def test_score_shows_the_query_and_the_key():
    trace = TypedText(CAT, AttentionConfig(d_model=4, n_heads=2)).trace()
    query, key = trace.layers[0].query[1, 2].tolist(), trace.layers[0].key[1, 5].tolist()
    explanation = explain(trace, "scores", head=1, q=2, k=5)
    assert [term.value for term in explanation.terms] == [a * b for a, b in zip(query, key, strict=True)]
    assert explanation.lines[0] == r"S^{(1)}_{2,5} &= \sum_i Q^{(1)}_{2,i}\, K^{(1)}_{5,i}"
    for a, b, term in zip(query, key, explanation.terms, strict=True):
        assert term.tex.replace("(", "").replace(")", "") == rf"{number(a).tex} \cdot {number(b).tex}".replace(
            "(", ""
        ).replace(")", "")


def test_many_terms_show_the_largest_and_sum_the_rest():
    trace = TypedText(CAT, AttentionConfig(n_heads=1)).trace()
    products = (trace.layers[0].query[0, 1].double() * trace.layers[0].key[0, 2].double()).tolist()
    *listed, summed = explain(trace, "scores", q=1, k=2).terms
    largest = sorted(sorted(range(64), key=lambda i: -abs(products[i]))[:8])
    assert [term.value for term in listed] == [products[i] for i in largest]
    assert summed.value == approx(sum(products) - sum(term.value for term in listed))
    assert r"56\text{ more}" in summed.tex


def test_most_important_cell_comes_first():
    trace = traced("default")
    products = trace.layers[0].query[1, 2] * trace.layers[0].key[1, 5]
    i = int(products.abs().argmax())
    assert explain(trace, "scores", head=1, q=2, k=5).came_from == (Cell(0, "query", 1, 2, i), Cell(0, "key", 1, 5, i))


def test_output_names_its_head():
    layer = traced("default").layers[0]
    products = (layer.head_output[:, 3] * layer.w_o[:, :, 10]).flatten()
    head, column = divmod(int(products.abs().argmax()), 16)
    assert explain(traced("default"), "output", q=3, k=10).came_from == (Cell(0, "head_output", head, 3, column),)


def test_weight_shows_numerator_and_denominator():
    trace = traced("causal")
    masked = trace.layers[0].masked_scores[0, 2, :3].double()
    explanation = explain(trace, "weights", q=2, k=1)
    powers = (masked - masked.max()).exp()
    assert explanation.terms[0].value == approx(float(powers[1]))
    assert [part.value for part in explanation.parts] == approx(powers.tolist())
    assert explanation.terms[1].value == approx(float(powers.sum()))
    assert explanation.words == "The share of key 1 in everything query 2 can see (3 keys)."


def test_hidden_key_is_explained_as_hidden_with_weight_zero():
    masked, weight = (explain(traced("causal"), step, q=1, k=4) for step in ("masked_scores", "weights"))
    assert "hides key 4 from query 1" in masked.words
    assert masked.lines == (r"M^{(0)}_{1,4} &= -\infty \quad \text{(hidden)}",)
    assert weight.result == weight.value == 0
    assert "hides key 4 from query 1" in weight.words


def test_blind_row_explains_that_nothing_is_visible():
    explanation = explain(traced("blind rows"), "weights", q=4, k=0)
    assert "hides every key from query 4" in explanation.words
    assert (explanation.result, explanation.terms, explanation.short) == (0, (), "0: the mask hides every key")
    assert explain(traced("blind rows"), "head_output", q=4, k=0).result == 0


def test_tie_at_temperature_zero_is_shared():
    explanation = explain(traced("temperature 0"), "weights", q=3, k=1)
    assert [term.value for term in explanation.terms] == [1, 4]
    assert "shared by 4 keys" in explanation.words


def test_scaling_is_explained_as_it_was_computed():
    explanations = {
        name: explain(traced(name), "scaled_scores") for name in SOURCES if name not in examples_of("tutorials")
    }
    assert r"\sqrt{16}" in explanations["default"].lines[0]
    assert "√d_k" in explanations["default"].words
    assert "temperature" not in explanations["default"].words
    assert "scaling is off" in explanations["unscaled"].words
    assert "√d_k" in explanations["temperature 0.05"].words
    assert "by the temperature" in explanations["temperature 0.05"].words
    assert r"\cdot 0.05000" in explanations["temperature 0.05"].lines[0]
    assert "temperature 0" in explanations["temperature 0"].words
    assert "left out" in explanations["temperature 0"].words


def test_d_k_of_one_is_divided_by_one():
    for name in ("odd sizes", "d_k of 1, not scaled"):
        explanation = explain(traced(name), "scaled_scores", q=1, k=2)
        assert "scaling is off" not in explanation.words  # scaling on and off look the same
        assert explanation.words.startswith("The score is not divided by √d_k: d_k is 1, and so is √d_k;")
        assert "sqrt" not in explanation.lines[0]
        assert "√" not in explanation.short
    explanation = explain(TypedText(CAT, AttentionConfig(d_model=4, d_k=1)).trace(), "scaled_scores", head=1, q=2, k=3)
    assert explanation.lines[0] == "S'^{(1)}_{2,3} &= S^{(1)}_{2,3}"
    assert explanation.short.endswith(": the score itself, d_k is 1, and so is √d_k")


def test_hidden_weight_is_not_explained_as_dropped_or_left():
    trace = traced("dropout")
    layer = trace.layers[0]
    hidden = explain(trace, "dropped_weights", q=1, k=4)
    assert "left" not in hidden.words
    assert "hides key 4 from query 1" in hidden.words
    assert hidden.short == "0: hidden by the mask"
    q, k = ((layer.weights[0] > 0) & (layer.dropped_weights[0] == 0)).nonzero()[0].tolist()
    assert explain(trace, "dropped_weights", q=q, k=k).short == "0: dropped"
    q, k = (layer.dropped_weights[0] > 0).nonzero()[-1].tolist()
    assert explain(trace, "dropped_weights", q=q, k=k).short.endswith(" / (1 − 0.3)")


def test_minus_zero_prints_as_zero():
    recorded = {name: torch.tensor([[[number]]]) for name, number in (("query", 0.0), ("key", -2.0), ("scores", -0.0))}
    layer = Layer(recorded=recorded, formula=Formula())
    explanation = explain(Trace(("a",), (layer,)), "scores")
    assert (repr(explanation.value), explanation.displayed_value, explanation.lines[-1]) == ("0.0", "0", "&= 0")


def test_cross_attention_takes_keys_from_memory_and_queries_from_input():
    cells = {name: explain(traced("cross-attention"), name).came_from[0].step for name in ("query", "key", "value")}
    assert cells == {"query": "input", "key": "memory", "value": "memory"}


def test_identity_explains_the_missing_projection():
    assert explain(traced("identity"), "key", q=1, k=2).words == "No projection: K is X itself."
    assert explain(traced("identity across"), "key", q=1, k=2).words == "No projection: K is X₂ itself."


def test_positions_show_their_angle():
    explanation = explain(traced("sinusoidal"), "position", q=3, k=5)
    assert explanation.lines[:2] == (r"P_{3,5} &= \cos\left(3 \,/\, 10000^{4/64}\right)", r"&= \cos(1.68702)")


def test_learned_positions_are_not_called_a_sine():
    table = torch.full((2, 4), 0.25)
    trace = Trace(("a", "b"), (Layer(recorded={"position": table, "embedding": table, "input": table * 2}),))
    assert (
        explain(trace, "position", q=1, k=2).words
        == "The row of this position in the table of positions: it is not computed."
    )
    assert explain(trace, "input", q=1, k=2).result == 0.5


@pytest.mark.parametrize("step", [step.name for step in STEPS])
def test_step_recorded_alone_is_shown_as_input_not_explained(step):
    tensor = torch.rand([2] * len(find_step(step).axes))
    explanation = explain(Trace(("a", "b"), (Layer(recorded={step: tensor}),)), step, head=1, q=0, k=1)
    assert explanation.result == explanation.value == float(tensor[..., 0, 1].flatten()[-1])
    assert explanation.came_from == ()


# -- missing steps and cells ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ({"step": "weights", "q": 6}, "query_pos of weights counts from 0 to 5; got 6: choose one of these."),
        ({"step": "weights", "k": -1}, "key_pos of weights counts from 0 to 2; got -1: choose one of these."),
        ({"step": "value", "q": 3}, "key_pos of value counts from 0 to 2; got 3: choose one of these."),
        ({"step": "value", "k": 16}, "d_v of value counts from 0 to 15; got 16: choose one of these."),
        ({"step": "scores", "head": 4}, "heads count from 0 to 3; got 4: choose one of these."),
        ({"step": "scores", "layer": 1}, "layers count from 0 to 0; got 1: choose one of these."),
    ],
)
def test_cell_out_of_range_names_the_expected_and_the_actual(place, message):
    with pytest.raises(MissingError) as caught:
        explain(traced("cross-attention"), **place)
    assert str(caught.value) == message


def test_missing_step_error_lists_the_available_steps():
    with pytest.raises(MissingError, match="this source has no memory; it has embedding, input"):
        explain(traced("default"), "memory")
    with pytest.raises(MissingError, match="got 'sims'"):
        explain(traced("default"), "sims")
