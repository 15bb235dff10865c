import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention.explanation.alignment import Alignment, _Group, align

pytestmark = pytest.mark.quick

WORDS = st.lists(st.sampled_from(["the", "cat", "sat", "on", "[CLS]", "·owl", "##s", "Ü"]), min_size=1, max_size=8)


def partners(a, b):
    """The tokens of A and of B in each group."""
    return [(" ".join(a[slice(*group.a)]), " ".join(b[slice(*group.b)])) for group in align(tuple(a), tuple(b)).groups]


def test_equal_tokens_align_one_to_one():
    assert align(("a", "b", "a"), ("a", "b", "a")) == Alignment.identity(3)
    assert align(("a", "b", "a"), ("a", "b", "a")).is_identity


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # The same text is aligned by characters: pieces on one side, a whole word on the other.
        ("[CLS] un ##believ ##able café [SEP]", "Un believable ·cafe",
         [("[CLS]", ""), ("un", "Un"), ("##believ ##able", "believable"), ("café", "·cafe"), ("[SEP]", "")]),
        ("ab cd e", "a bc de", [("ab cd e", "a bc de")]),
        ("<s> it ' s", "<s> it's", [("<s>", "<s>"), ("it ' s", "it's")]),
        # Different texts are aligned by their common tokens; pieces between them with equal characters form a group.
        ("the cat sat on it", "the dog sat on it",
         [("the", "the"), ("cat", ""), ("", "dog"), ("sat", "sat"), ("on", "on"), ("it", "it")]),
        # A text that repeats itself keeps its positions, where difflib would find a longer run elsewhere.
        ("a b a b x b a b", "a b a b a b a b",
         [*[(token, token) for token in "abab"], ("", "a"), ("x", ""), ("b", "b"), ("a", "a"), ("b", "b")]),
        ("a walk ##ing man", "a walking old man", [("a", "a"), ("walk", ""), ("##ing", ""), ("", "walking"), ("", "old"), ("man", "man")]),
        ("so walk ##ing man", "and walking man", [("", "and"), ("", "walking"), ("so", ""), ("walk", ""), ("##ing", ""), ("man", "man")]),
    ],
)  # fmt: skip
def test_different_tokens_align_by_the_text_they_display(a, b, expected):
    assert partners(a.split(), b.split()) == expected


@given(WORDS, WORDS)
def test_alignment_contains_every_token_once_in_order_and_is_symmetric(a, b):
    alignment = align(tuple(a), tuple(b))
    for side, tokens in (("a", a), ("b", b)):
        assert [at for group in alignment.groups for at in range(*getattr(group, side))] == list(range(len(tokens)))
        assert all(alignment.group_index(side, at) < len(alignment.groups) for at in range(len(tokens)))
    assert align(tuple(b), tuple(a)).groups == tuple(_Group(group.b, group.a) for group in alignment.groups)
