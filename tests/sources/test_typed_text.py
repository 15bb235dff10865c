import hashlib
import math
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from margins import approx

from attention import STEPS, AttentionConfig, TextError, TypedText
from attention.formula.config import INITS
from attention.formula.functions import generator

pytestmark = pytest.mark.quick

CAT = "the cat sat on the mat"
PARAMETERS = ("w_q", "w_k", "w_v", "w_o")


def layer(text=CAT, text2="", **knobs):
    return TypedText(text, AttentionConfig(**knobs), text2).trace().layers[0]


def changed(first, second):
    """The names of the steps and parameters in which two layers differ."""
    names = [*(step.name for step in STEPS), *PARAMETERS, "mask"]
    pairs = {name: (getattr(first, name), getattr(second, name)) for name in names}
    return {
        name
        for name, (a, b) in pairs.items()
        if (a is None) != (b is None) or (a is not None and (a.shape != b.shape or not torch.equal(a, b)))
    }


def merged_projection(w):
    """The projections [head d_model size] joined to one matrix."""
    return w.transpose(0, 1).flatten(1)


# -- contents of a trace -----------------------------------------------------------------------


def test_every_word_is_a_row_even_repeated_ones():
    trace = TypedText(CAT).trace()
    assert trace.tokens == trace.key_tokens == ("the", "cat", "sat", "on", "the", "mat")
    assert trace.layers[0].weights.shape == (4, 6, 6)
    assert trace.random
    assert trace.notes == ()


def test_recorded_tensors_reproduce_the_output_through_torch():
    computed = layer(text2="a dog ran", mask="causal", positions="sinusoidal", d_v=5)
    query, key, value = computed.input @ computed.w_q, computed.memory @ computed.w_k, computed.memory @ computed.w_v
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=computed.mask)
    assert computed.head_output == approx(mixed)
    assert computed.output == approx(torch.cat(list(mixed), dim=1) @ torch.cat(list(computed.w_o)))


def test_second_text_provides_the_keys_and_values():
    trace = TypedText(CAT, text2="a dog ran").trace()
    cross_layer = trace.layers[0]
    assert trace.key_tokens == ("a", "dog", "ran")
    assert (cross_layer.query.shape[1], cross_layer.key.shape[1], cross_layer.value.shape[1]) == (6, 3, 3)
    assert changed(cross_layer, layer(text2=CAT)).isdisjoint({"embedding", "input", "query"})


def test_attending_to_an_equal_second_text_is_self_attention():
    assert changed(layer(), layer(text2=CAT)) == {"memory"}


def test_blank_second_text_is_none():
    assert layer(text2=" \n ").memory is None


@pytest.mark.parametrize(("text", "came"), [("", "got nothing"), (" \n\t", "got only blanks")])
def test_text_without_tokens_error_says_what_to_type(text, came):
    with pytest.raises(
        TextError, match=rf"^The text needs at least one word or punctuation mark; {came}: type a sentence\.$"
    ):
        TypedText(text).trace()


def test_long_text_is_cut_with_a_note():
    trace = TypedText("a b c d e", text2="x y z", max_tokens=4).trace()
    assert trace.tokens == ("a", "b", "c", "d")
    assert trace.notes == ("The text has 5 tokens; only the first 4 are shown: shorten it to see all of it.",)
    assert TypedText("a b", text2="a b c d e", max_tokens=4).trace().notes[0].startswith("The second text has 5 tokens")


@pytest.mark.parametrize(
    "text",
    ["a", "!", "👨\u200d👩\u200d👧\u200d👦 🇫🇷", "<b>bold</b> </s>", "$x$ 2024", "a\x00\u200b\ud800", "a" * 10_000],
)
def test_any_text_gives_finite_numbers(text):
    assert all(tensor.isfinite().all() for _, tensor in layer(text))


def test_text_source_is_hashable():
    assert {TypedText(CAT, AttentionConfig(seed=3)): 1}[TypedText(CAT, AttentionConfig(seed=3))] == 1


# -- one knob changes only what it must -------------------------------------------------------

BEFORE_HEADS = {"embedding", "position", "input"}
AFTER_WEIGHTS = {"weights", "head_output", "output"}


@pytest.mark.parametrize("init", ["scaled normal", "uniform", "normal", "linear"])
def test_more_heads_split_the_same_matrices(init):
    single, four = layer(n_heads=1, init=init), layer(n_heads=4, init=init)
    assert changed(single, four).isdisjoint(BEFORE_HEADS)
    for name in ("w_q", "w_k", "w_v"):
        assert torch.equal(merged_projection(getattr(single, name)), merged_projection(getattr(four, name)))
    assert torch.equal(single.w_o.flatten(0, 1), four.w_o.flatten(0, 1))
    assert torch.equal(four.w_q[2], merged_projection(single.w_q)[:, 32:48])


def test_temperature_does_not_change_the_scores():
    assert changed(layer(), layer(temperature=0.3)) == {"scaled_scores", "masked_scores"} | AFTER_WEIGHTS


def test_scaling_does_not_change_the_scores():
    assert changed(layer(), layer(scaled=False)) == {"scaled_scores", "masked_scores"} | AFTER_WEIGHTS


def test_mask_does_not_change_the_scaled_scores():
    assert changed(layer(), layer(mask="causal")) == {"mask", "masked_scores"} | AFTER_WEIGHTS


def test_window_size_matters_to_window_masks_only():
    assert changed(layer(window=1), layer(window=5)) == set()
    assert (
        changed(layer(mask="window", window=1), layer(mask="window", window=5))
        == {"mask", "masked_scores"} | AFTER_WEIGHTS
    )


def test_d_k_changes_neither_values_nor_w_o():
    assert (
        changed(layer(), layer(d_k=7))
        == {"w_q", "w_k", "query", "key", "scores", "scaled_scores", "masked_scores"} | AFTER_WEIGHTS
    )


def test_d_v_does_not_change_the_weights():
    assert changed(layer(), layer(d_v=7)) == {"w_v", "w_o", "value", "head_output", "output"}


def test_positions_change_neither_embedding_nor_parameters():
    plain, with_positions = layer(), layer(positions="sinusoidal")
    assert changed(plain, with_positions).isdisjoint({"embedding", *PARAMETERS})
    assert with_positions.input == approx(with_positions.embedding + with_positions.position)
    assert plain.position is None


@pytest.mark.parametrize("init", INITS)
def test_init_does_not_change_the_embedding(init):
    assert changed(layer(), layer(init=init)).isdisjoint(BEFORE_HEADS)


def test_seed_changes_every_tensor_but_the_mask():
    assert changed(layer(seed=0), layer(seed=1)) == {step.name for step, _ in layer()} | set(PARAMETERS)


def test_additional_word_changes_no_other_row_and_no_parameter():
    short, long = layer("the cat sat"), layer("the cat sat on the mat")
    assert changed(short, long).isdisjoint(PARAMETERS)
    for name in ("embedding", "input", "query", "key", "value"):
        assert torch.equal(short[name], long[name][..., :3, :])


def test_equal_words_have_equal_rows_in_every_text():
    first, second = layer(CAT), layer("dogs bark at the moon")
    assert torch.equal(first.embedding[0], first.embedding[4])
    assert torch.equal(first.embedding[0], second.embedding[3])
    assert torch.equal(first.weights[:, 0], first.weights[:, 4])
    assert not torch.equal(first.embedding[0], first.embedding[1])


def test_parameter_matrices_are_drawn_independently():
    attention_layer = layer(n_heads=1)
    drawn = [attention_layer.w_q[0], attention_layer.w_k[0], attention_layer.w_v[0], attention_layer.w_o[0]]
    assert all(not torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])


# -- order ------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(st.permutations(["a", "dog", "ran", "to", "a", "log"]))
def test_key_order_only_orders_columns_without_positions(words):
    order = sorted(range(6), key=lambda i: words[i])
    shuffled, alphabetical = layer(text2=" ".join(words)), layer(text2=" ".join(sorted(words)))
    for name in ("scores", "weights"):
        assert shuffled[name][..., order] == approx(alphabetical[name])
    assert shuffled.output == approx(alphabetical.output)


def test_key_order_matters_with_positions():
    first, second = layer(text2="a dog", positions="sinusoidal"), layer(text2="dog a", positions="sinusoidal")
    assert first.scores != approx(second.scores.flip(-1))


def test_causal_outputs_do_not_depend_on_later_words():
    first, second = layer("the cat sat on the mat", mask="causal"), layer("the cat sat in a hat", mask="causal")
    assert torch.equal(first.output[:3], second.output[:3])
    assert first.output[3:] != approx(second.output[3:])


@pytest.mark.parametrize("n_words", [5, 9, 11])
def test_equal_words_tie_at_temperature_zero(n_words):
    assert layer("the " * n_words, temperature=0).weights.eq(torch.tensor(1 / n_words)).all()


# -- inits ------------------------------------------------------------------------------------


def test_identity_has_no_projections():
    identity = layer(init="identity", n_heads=4, positions="sinusoidal")
    assert identity.query.shape == (1, 6, 64)
    assert all(torch.equal(tensor[0], identity.input) for tensor in (identity.query, identity.key, identity.value))
    assert all(getattr(identity, name) is None for name in (*PARAMETERS, "output"))
    assert identity.scores[0] == approx(identity.input @ identity.input.T)


def test_identity_takes_keys_and_values_from_the_second_text():
    identity = layer(init="identity", text2="a dog")
    assert torch.equal(identity.key[0], identity.memory)
    assert torch.equal(identity.value[0], identity.memory)


def drawn(init, **knobs):
    attention_layer = layer(d_model=128, n_heads=4, init=init, **knobs)
    return [
        merged_projection(attention_layer.w_q),
        merged_projection(attention_layer.w_k),
        merged_projection(attention_layer.w_v),
        attention_layer.w_o.flatten(0, 1),
    ]


def test_uniform_init_fills_zero_to_one():
    for w in drawn("uniform"):
        assert 0 <= w.min() < 0.01
        assert 0.99 < w.max() < 1
        assert w.mean() == approx(0.5, within=0.02, why="drawn at random")


def test_linear_init_fills_plus_minus_one_over_root_d_model():
    for w in drawn("linear"):
        assert -1 <= w.min() * 128**0.5 < -0.99
        assert 0.99 < w.max() * 128**0.5 <= 1


@pytest.mark.parametrize(("init", "std"), [("normal", 1), ("scaled normal", 128**-0.5)])
def test_normal_init_has_its_deviation(init, std):
    for w in drawn(init):
        assert w.mean() == approx(0, within=0.04 * std, why="drawn at random")
        assert w.std() == approx(std, within=0.04 * std, why="drawn at random")


@pytest.mark.parametrize(("d_model", "n_heads"), [(64, 4), (64, 1), (256, 8)])
def test_scaled_normal_init_gives_scaled_scores_of_unit_deviation(d_model, n_heads):
    text = " ".join(f"w{i}" for i in range(60))
    spread = [layer(text, d_model=d_model, n_heads=n_heads, seed=seed).scaled_scores.std().item() for seed in range(5)]
    assert 0.8 < sum(spread) / 5 < 1.2


def test_inits_fail_as_the_lessons_describe():
    def largest(init):
        return (
            layer(" ".join(f"w{i}" for i in range(20)), init=init, scaled=init != "normal")
            .weights.amax(dim=-1)
            .mean()
            .item()
        )

    assert largest("normal") > 0.99  # one-hot
    assert largest("linear") < 0.15  # almost flat, 1/20 is flat
    assert 0.15 < largest("scaled normal") < 0.6


# -- randomness -------------------------------------------------------------------------------

DIGEST = """
import hashlib
from attention import AttentionConfig, TypedText
layer = TypedText("the cat → 🇫🇷 \\ud800", AttentionConfig(positions="sinusoidal", seed=7), "naïve 世界").trace().layers[0]
digest = hashlib.sha256(b"".join(tensor.numpy().tobytes() for _, tensor in layer)).hexdigest()
"""


@pytest.mark.long  # two processes of their own
def test_other_hash_seed_gives_the_same_bytes():
    printed: dict[str, str] = {}
    exec(DIGEST, printed)
    assert os.environ.get("PYTHONHASHSEED") != "1"
    command = [sys.executable, "-c", f"{DIGEST}print(digest, hash('cat'))"]
    run = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "1"}, capture_output=True, text=True, timeout=600, check=True
    )
    other, seeded = run.stdout.split()
    assert seeded != str(hash("cat"))
    assert other == printed["digest"]


def test_equal_sources_give_equal_bytes():
    def digest():
        return hashlib.sha256(b"".join(tensor.numpy().tobytes() for _, tensor in layer(seed=7))).hexdigest()

    assert digest() == digest()


def test_matrix_seeds_are_pinned_on_every_machine():
    assert generator(0, "w_q").initial_seed() == 3584578404779748831
    assert generator(7, "embedding", "the", 64).initial_seed() == 8740809560996207652


def test_word_seed_does_not_depend_on_pythons_repr():
    assert generator(0, "embedding", "naïve", 64).initial_seed() == 6190237393949076808


def test_old_link_shows_its_original_digits():
    assert layer().weights[0, 2].tolist() == approx([0.2402, 0.0564, 0.0907, 0.1724, 0.2402, 0.2002], step=1e-4)


def test_tracing_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first = layer()
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(6)
    assert changed(first, layer()) == set()


def test_knobs_reach_the_layer():
    changed_layer = layer(temperature=2.5, d_k=9)
    assert (changed_layer.temperature, changed_layer.divisor) == (2.5, 3.0)
    assert layer(scaled=False).divisor == 1
    assert layer(temperature=math.inf).weights.eq(torch.tensor(1 / 6)).all()
