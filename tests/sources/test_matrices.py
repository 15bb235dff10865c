import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from margins import approx

from attention import AttentionConfig, Matrices, MatrixError, ShapeError, explain, find_step
from attention.explanation import tables
from attention.files.matrix import Matrix
from attention.files.matrix_text import parse_matrix
from attention.formula.config import MASKS
from attention.pictures import heatmap

pytestmark = pytest.mark.quick

# The NumPy notebook: four words, three projections drawn with np.random.seed(42).
X = parse_matrix("[[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 1]]")
W_Q = parse_matrix("[[2 0 2]\n [2 0 0]\n [2 1 2]]")
W_K = parse_matrix("[[2 2 2]\n [0 2 1]\n [0 1 1]]")
W_V = parse_matrix("[[1 1 0]\n [0 1 1]\n [0 0 0]]")
Q = parse_matrix("[[2 0 2]\n [2 0 0]\n [4 0 2]\n [2 1 2]]")
K = parse_matrix("[[2 2 2]\n [0 2 1]\n [2 4 3]\n [0 1 1]]")
V = parse_matrix("[[1 1 0]\n [0 1 1]\n [1 2 1]\n [0 0 0]]")
SCORES = parse_matrix("[[ 8,  2, 10,  2],\n [ 4,  0,  4,  0],\n [12,  2, 14,  2],\n [10,  4, 14,  3]]")
WEIGHTS = parse_matrix(
    """array([[2.36089863e-01, 7.38987555e-03, 7.49130386e-01, 7.38987555e-03],
        [4.54826323e-01, 4.51736775e-02, 4.54826323e-01, 4.51736775e-02],
        [2.39275049e-01, 7.43870015e-04, 7.59237211e-01, 7.43870015e-04],
        [8.99501754e-02, 2.81554063e-03, 9.05653685e-01, 1.58059922e-03]])"""
)
ATTENTION = parse_matrix(
    """[[0.98522025 1.74174051 0.75652026]
 [0.90965265 1.40965265 0.5       ]
 [0.99851226 1.75849334 0.75998108]
 [0.99560386 1.90407309 0.90846923]]"""
)
W_O = parse_matrix("1 0 2\n0 -1 0\n0.5 0 1")

PROJECTED = Matrices(X, W_Q, W_K, W_V, tokens=("the", "cat", "the", "mat"))
DIRECT = Matrices(query=Q, key=K, value=V)
CROSSED = Matrices(query=Q[:2], key=K[:3], value=tuple(row[:2] for row in V[:3]), w_o=parse_matrix("1 0 1;0 1 -1"))


def random_matrix(*shape: int) -> Matrix:
    return tuple(map(tuple, np.random.default_rng(sum(shape)).standard_normal(shape).tolist()))


@pytest.mark.parametrize("source", [PROJECTED, DIRECT], ids=["X and W", "Q, K and V"])
def test_numpy_notebook_matches_to_its_last_digit(source: Matrices) -> None:
    layer = source.trace().layers[0]
    for name, rows in (("query", Q), ("key", K), ("value", V), ("scores", SCORES)):
        np.testing.assert_array_equal(layer.matrix(name), rows)
    assert layer.matrix("weights") == approx(WEIGHTS, dtype="float32")
    assert layer.matrix("head_output") == approx(ATTENTION, dtype="float32")
    assert layer.output is None


def test_available_steps_follow_from_the_matrices() -> None:
    computed = ["query", "key", "value", "scores", "scaled_scores", "masked_scores", "weights", "head_output"]
    projected, direct = PROJECTED.trace().layers[0], DIRECT.trace().layers[0]
    assert [step.name for step, _ in projected] == ["input", *computed]
    assert [step.name for step, _ in direct] == computed
    assert projected.w_q.tolist() == [list(map(list, W_Q))]
    assert (direct.w_q, direct.w_k, direct.w_v, direct.w_o) == (None, None, None, None)
    with_output = Matrices(X, W_Q, W_K, W_V, W_O).trace().layers[0]
    np.testing.assert_array_equal(with_output.output, with_output.head_output[0] @ torch.tensor(W_O).double())


def test_typed_numbers_are_not_changed() -> None:
    rows = parse_matrix("0.1 16777217\n1e-300 -0.")
    trace = Matrices(query=rows, key=rows, value=rows).trace()
    assert all(tensor.dtype == torch.float64 for _, tensor in trace.layers[0])
    assert tuple(map(tuple, trace.layers[0].matrix("value").tolist())) == rows
    assert "0.1,16777217.0" in "".join(tables.csv(trace, "value"))


def test_matrices_source_is_hashable() -> None:
    assert hash(PROJECTED) == hash(Matrices(X, W_Q, W_K, W_V, tokens=("the", "cat", "the", "mat")))
    assert not PROJECTED.trace().random


@given(
    st.integers(1, 5), st.integers(1, 7), st.integers(1, 4), st.sampled_from(MASKS), st.sampled_from([0.05, 1.0, 3.0])
)
def test_queries_and_keys_of_unequal_length_equal_torch(
    n_queries: int, n_keys: int, d_k: int, mask: str, temperature: float
) -> None:
    query, key, value = random_matrix(n_queries, d_k), random_matrix(n_keys, d_k), random_matrix(n_keys, 3)
    config = AttentionConfig(mask=mask, window=1, temperature=temperature)
    layer = Matrices(query=query, key=key, value=value, config=config).trace().layers[0]
    tensors = [torch.tensor([rows], dtype=torch.float64) for rows in (query, key, value)]
    expected = F.scaled_dot_product_attention(*tensors, attn_mask=layer.mask, scale=1 / (d_k**0.5 * temperature))
    sees = layer.mask.any(dim=-1)
    assert layer.head_output[:, sees] == approx(expected[:, sees], terms=1024)
    assert not layer.head_output[:, ~sees].any()


def test_matrices_obey_the_config() -> None:
    config = AttentionConfig(mask="causal window", window=1, temperature=2.0, scaled=False)
    layer = Matrices(query=Q, key=K, value=V, config=config).trace().layers[0]
    np.testing.assert_array_equal(layer.matrix("scaled_scores"), np.array(SCORES) / 2)
    assert layer.mask.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    hot = Matrices(query=Q, key=K, value=V, config=AttentionConfig(temperature=0)).trace().layers[0]
    assert hot.matrix("weights")[1].tolist() == [0.5, 0, 0.5, 0]


def test_matrices_have_token_labels() -> None:
    assert PROJECTED.trace().key_tokens == ("the", "cat", "the", "mat")
    assert DIRECT.trace().tokens == DIRECT.trace().key_tokens == ("x0", "x1", "x2", "x3")
    crossed = CROSSED.trace()
    assert (crossed.tokens, crossed.key_tokens) == (("x0", "x1"), ("k0", "k1", "k2"))
    named = Matrices(query=Q, key=K[:3], value=V[:3], tokens=tuple("abcd"), key_tokens=tuple("xyz")).trace()
    assert (named.tokens, named.key_tokens) == (tuple("abcd"), tuple("xyz"))
    with pytest.raises(ShapeError, match=r"^tokens has 2 labels but there are 4 queries: provide one label for each"):
        Matrices(X, W_Q, W_K, W_V, tokens=("a", "b")).trace()
    with pytest.raises(ShapeError, match=r"^key_tokens has 4 labels but there are 3 keys"):
        Matrices(query=Q, key=K[:3], value=V[:3], key_tokens=tuple("wxyz")).trace()


SOURCES = {
    "X and W": PROJECTED,
    "with W_O": Matrices(X, W_Q, W_K, W_V, W_O, config=AttentionConfig(mask="causal", temperature=0.7)),
    "Q, K and V": DIRECT,
    "unequal lengths": CROSSED,
    "argmax": Matrices(query=Q, key=K, value=V, config=AttentionConfig(temperature=0, scaled=False)),
    "a query that sees no key": Matrices(
        query=Q, key=K[:1], value=V[:1], config=AttentionConfig(mask="window", window=1)
    ),
    "wide": Matrices(random_matrix(3, 20), random_matrix(20, 12), random_matrix(20, 12), random_matrix(20, 9)),
    "one number": Matrices(query=((0.0,),), key=((0.0,),), value=((0.0,),)),
    "tiny numbers": Matrices(query=((1e-300, 5e-324),), key=((1e-20, 1.0),), value=((1e-310,),)),
    "large numbers": Matrices(query=((1e19, 1.0),), key=((1e19, 1.0), (-1e19, 0.0)), value=((3e38,), (-3e38,))),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_every_number_is_explained_drawn_and_tabled(source: Matrices) -> None:
    trace = source.trace()
    for step, tensor in trace.layers[0]:
        matrix = trace.layers[0].matrix(step.name).numpy()
        for q, k in np.ndindex(*matrix.shape):
            explanation = explain(trace, step.name, q=q, k=k)
            assert explanation.value == float(matrix[q, k])
            size = (
                sum(abs(term.value) for term in explanation.terms)
                if explanation.operation == "sum"
                else abs(explanation.value)
            )
            assert explanation.result == approx(explanation.value, scale=size, dtype="float64")
        table = tables.frame(trace, step.name).to_numpy()[:, : matrix.shape[1]]
        np.testing.assert_array_equal(table, matrix)
        finite = np.where(np.isfinite(matrix), matrix, np.nan).astype(np.float32)
        for figure in (heatmap.heatmap(trace, step.name), heatmap.heads(trace, step.name, colors="log")):
            np.testing.assert_array_equal(figure.data[0].z.astype(np.float32), finite)
        assert tensor.dtype == torch.float64


def test_input_matrices_are_explained_as_inputs() -> None:
    assert "as provided" in explain(PROJECTED.trace(), "input").words
    assert "as provided" in explain(DIRECT.trace(), "query").words
    assert explain(PROJECTED.trace(), "query").words.startswith("Row 0 of X times column 0")


def cut(rows: Matrix, n_rows: int, n_columns: int) -> Matrix:
    return tuple(row[:n_columns] for row in rows[:n_rows])


DO_NOT_CHAIN = {
    "X, W_Q": (Matrices(X, W_Q[:2], W_K, W_V), "X is 4 × 3 but W_Q is 2 × 3: X's columns must equal W_Q's rows."),
    "X, W_K": (Matrices(X, W_Q, W_K[:2], W_V), "X is 4 × 3 but W_K is 2 × 3: X's columns must equal W_K's rows."),
    "X, W_V": (Matrices(X, W_Q, W_K, W_V[:1]), "X is 4 × 3 but W_V is 1 × 3: X's columns must equal W_V's rows."),
    "W_Q, W_K": (
        Matrices(X, W_Q, cut(W_K, 3, 2), W_V),
        "W_Q is 3 × 3 but W_K is 3 × 2: W_Q's columns must equal W_K's columns.",
    ),
    "W_V, W_O": (
        Matrices(X, W_Q, W_K, W_V, W_O[:2]),
        "W_V is 3 × 3 but W_O is 2 × 3: W_V's columns must equal W_O's rows.",
    ),
    "Q, K": (
        Matrices(query=Q, key=cut(K, 4, 2), value=V),
        "Q is 4 × 3 but K is 4 × 2: Q's columns must equal K's columns.",
    ),
    "K, V": (Matrices(query=Q, key=K, value=V[:3]), "K is 4 × 3 but V is 3 × 3: K's rows must equal V's rows."),
    "V, W_O": (
        Matrices(query=Q, key=K, value=V, w_o=W_O[:1]),
        "V is 4 × 3 but W_O is 1 × 3: V's columns must equal W_O's rows.",
    ),
}


@pytest.mark.parametrize(("source", "sentence"), DO_NOT_CHAIN.values(), ids=DO_NOT_CHAIN)
def test_incompatible_shapes_are_refused(source: Matrices, sentence: str) -> None:
    with pytest.raises(ShapeError) as caught:
        source.trace()
    assert str(caught.value) == sentence


INCOMPLETE = {
    "X, W_Q": (Matrices(X, W_Q), "Attention needs X, W_Q, W_K and W_V; got only X and W_Q: add W_K and W_V."),
    "W_V": (Matrices(w_v=W_V), "Attention needs X, W_Q, W_K and W_V; got only W_V: add X, W_Q and W_K."),
    "Q": (Matrices(query=Q), "Attention needs Q, K and V; got only Q: add K and V."),
    "nothing": (Matrices(), "needs X, W_Q, W_K and W_V, or Q, K and V; got neither: provide one set or the other."),
    "W_O": (Matrices(w_o=W_O), "Attention needs X, W_Q, W_K and W_V, or Q, K and V; got W_O: provide one set"),
    "both": (Matrices(X, W_Q, W_K, W_V, query=Q), "got X, W_Q, W_K, W_V and Q: leave out Q, or X, W_Q, W_K and W_V."),
    "ragged": (Matrices(((1.0, 2.0), (3.0,)), W_Q, W_K, W_V), "X needs rows of equal length; row 1 has 1 number"),
    "NaN": (Matrices(query=Q, key=K, value=((float("nan"),),) * 4), "V has nan in row 0, column 0"),
    "no columns": (Matrices(query=Q, key=((),), value=V), "K needs at least one row and one column; got 1 × 0"),
    "too large": (Matrices(query=((1e39,),), key=((1.0,),), value=((1.0,),)), "Q needs numbers of at most 3.4e+38"),
    "overflow": (Matrices(query=((1e20,),), key=((1e20,),), value=((1.0,),)), "S needs numbers of at most 3.4e+38"),
    "infinities": (
        Matrices(query=((1.0,),), key=((1.0,),), value=((1.0,),), config=AttentionConfig(temperature=1e-50)),
        "S′ needs numbers of at most 3.4e+38 in magnitude, so that they can be drawn; got 1e+50: use smaller numbers, or a higher temp",
    ),
}


@pytest.mark.parametrize(("source", "sentence"), INCOMPLETE.values(), ids=INCOMPLETE)
def test_missing_or_unusable_matrices_are_refused(source: Matrices, sentence: str) -> None:
    with pytest.raises(MatrixError) as caught:
        source.trace()
    assert sentence in str(caught.value)


def test_hidden_scores_are_minus_infinity_not_large_numbers() -> None:
    trace = Matrices(query=Q, key=K, value=V, config=AttentionConfig(mask="causal")).trace()
    assert explain(trace, "masked_scores", q=0, k=1).value == -float("inf")
    assert find_step("masked_scores").symbol == "M"
