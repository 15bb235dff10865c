import html
import sys
import time

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from attention.base.tokens import isolated, label, labels, tokenize

pytestmark = pytest.mark.quick

FAMILY = "👨\u200d👩\u200d👧\u200d👦"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("the cat sat on the mat", ["the", "cat", "sat", "on", "the", "mat"]),
        ("Don't stop, it’s self-contradictory!", ["don't", "stop", ",", "it’s", "self-contradictory", "!"]),
        ("", []),
        (" \n\t\u00a0 ", []),
        ("3.14 1,000 12:30 2024-01-15 2024", ["3.14", "1,000", "12:30", "2024-01-15", "2024"]),
        ("-5 3rd x2", ["-", "5", "3rd", "x2"]),
        ("你好，世界。", ["你", "好", "，", "世", "界", "。"]),
        ("日本のテスト", ["日", "本", "の", "テ", "ス", "ト"]),
        ("اَلسَّلَامُ عَلَيْكُمْ", ["اَلسَّلَامُ", "عَلَيْكُمْ"]),
        ("नमस्ते दुनिया", ["नमस्ते", "दुनिया"]),
        ("e\u0301tude", ["e\u0301tude"]),
        (f"{FAMILY}🇫🇷🇩🇪👍🏽", [FAMILY, "🇫🇷", "🇩🇪", "👍🏽"]),
        ("<b>bold</b>", ["<", "b", ">", "bold", "<", "/", "b", ">"]),
        ("</s>", ["<", "/", "s", ">"]),
        ("$x$", ["$", "x", "$"]),
        ("a\x00b\x07", ["a", "\x00", "b", "\x07"]),
        ("a\u200bb \u200d", ["a", "\u200b", "b", "\u200d"]),
        ("\ufeffhi", ["\ufeff", "hi"]),
    ],
)
def test_text_becomes_visible_words_and_marks(text, tokens):
    assert list(tokenize(text)) == tokens


def test_repeated_words_stay_repeated_in_sentence_order():
    assert tokenize("b a b a b") == ("b", "a", "b", "a", "b")


def test_lowercase_can_be_switched_off():
    assert tokenize("The the") == ("the", "the")
    assert tokenize("The the", lowercase=False) == ("The", "the")


@pytest.mark.parametrize(
    "piece", ["a", "1", "1.", "a-", "a\u0301", "\u0301", "👨\u200d", "🇫🇷", "क्", ".", "<", "你", "\x00", "\u200b"]
)
def test_ten_thousand_characters_without_a_space_tokenize_quickly(piece):
    text = (piece * 10_000)[:10_000]
    start = time.thread_time()  # processor time, which other processes do not affect
    tokens = tokenize(text)
    assert time.thread_time() - start < 10  # usually a quarter of a second; catastrophic backtracking never ends
    assert "".join(tokens) == text


@given(st.text(st.sampled_from("🇩🇪a \u200d\u0301\u0903👍🏽\u0600\u0300")))
def test_flags_are_split_as_unicode_specifies(text):
    graphemes = [grapheme for grapheme in regex.findall(r"\X", text) if not grapheme.isspace()]
    assert [token for token in tokenize(text) if "🇩" in token or "🇪" in token] == [
        grapheme for grapheme in graphemes if "🇩" in grapheme or "🇪" in grapheme
    ]


def test_flags_cost_no_more_than_other_marks():
    start = time.thread_time()
    assert len(tokenize("🇩" * 40_000)) == 20_000
    assert time.thread_time() - start < 3  # usually 0.03 s; 5 s if every flag counted those before it


def test_text_cache_is_bounded_by_bytes():
    for i in range(40):
        tokenize(f"{i} " + "界𝕏" * 10_000)
    cache = tokenize.cache
    assert 2**20 < cache.currsize <= cache.maxsize == 16 * 2**20
    assert sum(map(sys.getsizeof, max(cache.values(), key=len))) < cache.getsizeof(max(cache.values(), key=len))
    assert all(len(digest) == 16 for digest, _ in cache), "a text as a key would need more memory than its tokens"


def test_long_word_is_one_token():
    assert tokenize("a" * 10_000) == ("a" * 10_000,)


@given(st.text())
def test_only_blanks_are_dropped(text):
    assert "".join(tokenize(text, lowercase=False)) == "".join(
        character for character in text if not character.isspace() or character in "\x1c\x1d\x1e\x1f"
    )


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("cat", "cat"),
        (" ", "·"),
        (" the", "·the"),
        ("\n", "⏎"),
        ("\t", "⇥"),
        ("", "∅"),
        ("\r\n", "U+000D⏎"),
        ("\x00", "U+0000"),
        ("\u200b", "U+200B"),
        ("\ufeff", "U+FEFF"),
        ("\u00a0", "U+00A0"),
        ("\u3000", "U+3000"),
        ("\u2028", "U+2028"),
        ("\ud800", "U+D800"),
        ("\u0301", "◌\u0301"),
        (FAMILY, FAMILY),
        ("2024", "2024"),
        ("▁the", "▁the"),
    ],
)
def test_label_hides_no_character(token, shown):
    assert label(token) == shown


@pytest.mark.parametrize("token", ["<s>", "</s>", "<unk>", "<b>", "<b>bold</b>", "&amp;", "a<br>b"])
def test_label_is_never_html_and_reads_back_as_the_token(token):
    assert "<" not in label(token)
    assert html.unescape(label(token)) == token
    assert label(token, escape=False) == token


def test_long_label_is_cut_before_escaping_and_ends_in_ellipsis():
    assert label("a" * 13, longest=12) == "a" * 11 + "…"
    assert label("a" * 12, longest=12) == "a" * 12
    assert label("<" * 13, longest=12) == "&lt;" * 11 + "…"


@given(st.text(), st.integers(0, 40))
def test_label_is_never_empty_blank_or_markup(token, longest):
    shown = label(token, longest)
    assert shown.strip()
    assert "<" not in shown
    assert ">" not in shown
    assert not set(shown) & set("\n\r\t\x00\u00a0\u2028")


def test_labels_keep_order_and_repetitions():
    assert labels(("the", "<s>", "the")) == ("the", "&lt;s&gt;", "the")


def test_only_what_runs_from_right_to_left_is_isolated():
    assert [isolated(text) for text in ("cat", "3", "שלום", "a سلام")] == [
        "cat",
        "3",
        "\u2068שלום\u2069",
        "\u2068a سلام\u2069",
    ]
