"""Which pieces are one word: asked of a tokenizer of every kind, in many scripts, and never lost on the way."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_pages import drawn, opened
from tiny_models import SENTENCES, TOKENIZERS, fast
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from attention import Layer, Model, Trace
from attention.base.errors import FileError
from attention.base.pieces import WordRule, join_pieces
from attention.base.tokens import Generated, Patch, Piece, tokenize
from attention.explanation.subwords import TokenGroups, words_rule
from attention.files.array_writer import npz, safetensors
from attention.metrics.find_rule import _TextWords
from attention.models.token_pieces import readable_tokens, vocabulary_names, word_rule
from attention.sources.file import File

WORDS = {
    "The owl's quiet moon": ("The", "owl", "'", "s", "quiet", "moon"),
    "Straße über Größe": ("Straße", "über", "Größe"),
    "नमस्ते दुनिया": ("नमस्ते", "दुनिया"),
    "مرحبا می\u200cخواهم": ("مرحبا", "می\u200cخواهم"),
    "สวัสดีครับ ไป": ("สวัสดีครับ", "ไป"),
    "한국어 말": ("한국어", "말"),
    "👨\u200d👩\u200d👧 ❤️\u200d🔥 🇩🇪": ("👨\u200d👩\u200d👧", "❤️\u200d🔥", "🇩🇪"),
    "# foo_bar(x1)": ("#", "foo", "_", "bar", "(", "x1", ")"),
    "<b>bold</b>": ("<", "b", ">", "bold", "<", "/", "b", ">"),
    "2024 3.14": ("2024", "3", ".", "14"),
}
"""The words that every tokenizer has which cuts at blanks and at punctuation."""
CHINESE, JAPANESE = {"今天 天气": ("今", "天", "天", "气")}, {"東京タワー": ("東", "京", "タ", "ワ", "ー")}
CHARACTERS = sorted({*"".join((*WORDS, *CHINESE, *JAPANESE, *SENTENCES))} - {" "})
SPECIAL = ("<unk>", "<s>", "[UNK]")
PRE = pre_tokenizers
_CUT = Regex(r"\s+|[\p{L}\p{M}\p{N}\x{200c}\x{200d}]+|[^\s\p{L}\p{M}\p{N}\x{200c}\x{200d}]")


def numbered(*pieces: str) -> dict[str, int]:
    return {piece: i for i, piece in enumerate(dict.fromkeys((*SPECIAL, *pieces)))}


def of(model: Any, pre: Any = None, normalizer: Any = None) -> Any:
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    return fast(tokenizer, unk_token="<unk>", bos_token="<s>")


def word_piece(prefix: str) -> Any:
    vocabulary = numbered("owl", "quiet", "the", *CHARACTERS, *(prefix + character for character in CHARACTERS))
    model = models.WordPiece(vocabulary, unk_token="<unk>", continuing_subword_prefix=prefix)
    return of(
        model,
        PRE.BertPreTokenizer(),
        normalizers.BertNormalizer(clean_text=False, lowercase=False, strip_accents=False),
    )


def bpe(blanks: str, *args: Any, letters: Sequence[str] = CHARACTERS, **options: Any) -> Any:
    prefix, suffix = (options.get(f"{name}", "") for name in ("continuing_subword_prefix", "end_of_word_suffix"))
    marked = (prefix + letter + end for letter in letters for end in ("", suffix))
    vocabulary = numbered(*letters, *marked, *(letter + suffix for letter in letters), *blanks)
    return of(models.BPE(vocabulary, [], unk_token="<unk>", **options), *args)


def unigram(blanks: str, *args: Any) -> Any:
    pieces = numbered(*CHARACTERS, "wl", "qui", *blanks)
    return of(models.Unigram([(piece, -5.0) for piece in pieces], 0, False), *args)


BYTES = sorted(PRE.ByteLevel.alphabet())
CHARS = normalizers.BertNormalizer(
    clean_text=False, lowercase=False, strip_accents=False
)  # blanks around Chinese characters
BY_TEXT: dict[str, Callable[[], Any]] = {
    "byte level": lambda: bpe("", PRE.ByteLevel(add_prefix_space=False), letters=BYTES),
    "byte level with a blank before": lambda: bpe("", PRE.ByteLevel(), letters=BYTES),
    "byte level, no regex": lambda: bpe("", PRE.ByteLevel(add_prefix_space=False, use_regex=False), letters=BYTES),
    "byte level, split": lambda: bpe("", PRE.Sequence([PRE.Split(Regex(r" ?\S+"), "isolated"), PRE.Digits(True), PRE.ByteLevel(add_prefix_space=False, use_regex=False)]), letters=BYTES),
    "trained byte level": lambda: TOKENIZERS["byte-level"](SENTENCES),
    "metaspace": lambda: bpe("▁", PRE.Metaspace()),
    "metaspace, first": lambda: bpe("▁", PRE.Metaspace(prepend_scheme="first")),
    "metaspace, never": lambda: bpe("▁", PRE.Metaspace(prepend_scheme="never")),
    "Llama": lambda: bpe("▁", None, normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])),
    "Gemma": lambda: bpe("▁", PRE.Split(" ", "merged_with_previous"), normalizers.Replace(" ", "▁")),
    "byte fallback": lambda: bpe("▁", PRE.Metaspace(), letters=[*"abcdefghijklmnopqrstuvwxyzT", *(f"<0x{byte:02X}>" for byte in range(256))], byte_fallback=True),
    "unigram": lambda: unigram("▁", PRE.Metaspace()),
    "another blank": lambda: unigram("~", PRE.Metaspace(replacement="~")),
    "trained unigram": lambda: TOKENIZERS["sentence-piece"](SENTENCES),
    "characters": lambda: of(models.WordLevel(numbered(*CHARACTERS, " "), "<unk>"), PRE.Split("", "isolated")),
    "CANINE": lambda: __import__("transformers").CanineTokenizer(),
    "ByT5": lambda: __import__("transformers").ByT5Tokenizer(),
    "Perceiver": lambda: __import__("transformers").PerceiverTokenizer(),
}  # fmt: skip
BY_MARK: dict[str, Callable[[], Any]] = {
    "WordPiece": lambda: word_piece("##"),
    "another prefix": lambda: word_piece("@@"),
    "GPT-1, HerBERT": lambda: bpe("", PRE.BertPreTokenizer(), CHARS, end_of_word_suffix="</w>"),
    "another suffix": lambda: bpe("", PRE.BertPreTokenizer(), CHARS, end_of_word_suffix="▁"),
    "CLIP": lambda: bpe("", PRE.Sequence([PRE.Split(_CUT, "isolated"), PRE.Split(Regex(r"\s+"), "removed"), PRE.ByteLevel(add_prefix_space=False, use_regex=False)]), CHARS, letters=BYTES, end_of_word_suffix="</w>"),
    "BPE with a prefix": lambda: bpe("", PRE.BertPreTokenizer(), CHARS, continuing_subword_prefix="##"),
}  # fmt: skip
BY_ENCODING: dict[str, Callable[[], Any]] = {
    "BPE without marks": lambda: bpe("", PRE.BertPreTokenizer(), CHARS),
    "unigram without marks": lambda: unigram("", PRE.BertPreTokenizer(), CHARS),
}
KINDS = BY_TEXT | BY_MARK | BY_ENCODING


@cache
def tokenizer(kind: str) -> Any:
    return KINDS[kind]()


def words_of(tokens: Sequence[str], special: Sequence[str]) -> tuple[str, ...]:
    """The words without the blank before them, and without special tokens."""
    groups = TokenGroups.of(tokens, [token in special for token in tokens], words=True, hide=True)
    return tuple(join_pieces([name]).strip("·") for name in groups.names)


@pytest.mark.parametrize("kind", KINDS)
def test_tokenizers_of_every_kind_have_the_same_words(kind: str) -> None:
    made = tokenizer(kind)
    for text, expected in (WORDS | CHINESE | (JAPANESE if kind in BY_TEXT else {})).items():
        tokens = readable_tokens(made, made(text)["input_ids"], (text,))
        assert words_of(tokens, made.all_special_tokens) == expected
        assert not any(mark in token for token in tokens for mark in ("</w>", "▁", "Ġ", "@@"))


def test_words_of_whole_tokens_are_the_tokens() -> None:
    whole = of(models.WordLevel(numbered("the", "owl's", "moon"), "<unk>"), PRE.WhitespaceSplit())
    text = "the owl's moon"
    assert readable_tokens(whole, whole(text)["input_ids"]) == ("the", "owl's", "moon")
    assert words_of(readable_tokens(whole, whole(text)["input_ids"]), ()) == ("the", "owl's", "moon")


def test_ids_without_their_text_may_be_a_word_each() -> None:
    made = tokenizer("BPE without marks")
    ids = made("an owl")["input_ids"]
    assert words_of(readable_tokens(made, ids, ("an owl",)), ()) == ("an", "owl")
    alone = readable_tokens(made, ids)
    assert words_of(alone, ()) == alone == tuple("anowl")
    assert words_rule(alone) == "each token is a word"
    # A text that is cut, one that stands after another, and generated tokens after both.
    both = readable_tokens(made, [1, *ids, 1, *ids, ids[0]], ("an owl", "an owl"))
    assert words_of(both, ["<s>"]) == ("an", "owl", "an", "owl", "a")
    assert words_of(readable_tokens(made, ids[:4], ("an owl",)), ()) == ("an", "ow")


class Marked:
    """A tokenizer written in Python, which joins its pieces as those of transformers do."""

    all_special_tokens = ("<s>",)

    def __init__(self, join: Callable[[list[str]], str], *pieces: str) -> None:
        self.convert_tokens_to_string, self.pieces = join, ("<s>", *pieces)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.pieces[token_id] for token_id in ids]


@pytest.mark.parametrize(
    ("made", "rule", "tokens", "words"),
    [
        (Marked(lambda pieces: " ".join(pieces).replace("@@ ", ""), "a", "re@@", "d", "@@"),  # CTRL, BERTweet, PhoBERT
         WordRule("goes on", "@@"), ("<s>", "a", "re", "##d", "@@"), ("a", "red", "@@")),
        (Marked(lambda pieces: "".join(pieces).replace("</w>", " ").strip(), "a</w>", "cir", "cle</w>", "a</w>"),  # XLM, FlauBERT
         WordRule("ends", "</w>"), ("<s>", "a", "cir", "##cle", "a"), ("a", "circle", "a")),
        (Marked(lambda pieces: " ".join(pieces).replace(" ##", ""), "##", "Ti", "##tle", "###"),  # BERT; "##" and "###" of a heading
         WordRule("continues", "##"), ("<s>", "##", "Ti", "##tle", "###"), ("##", "Title#")),
        (Marked(lambda pieces: "".join(pieces).replace("▁", " "), "▁re", "d", "▁", "owl"),  # Marian, M2M100
         WordRule("text", "▁"), ("<s>", "·re", "d", "·", "owl"), ("red", "owl")),
        (Marked(lambda pieces: "".join(pieces).replace("Ġ", " "), "re", "d", "Ġowl", "Ã©"),  # CLVP, older GPT-2
         WordRule("text", "Ġ", "letters"), ("<s>", "re", "d", "·owl", "é"), ("red", "owlé")),
        (Marked(" ".join, "M", "K", "T", "L"), WordRule("each"), ("<s>", "M", "K", "T", "L"), ("M", "K", "T", "L")),  # ESM
    ],
)  # fmt: skip
def test_tokenizers_in_python_are_asked_how_they_join(
    made: Any, rule: WordRule, tokens: tuple[str, ...], words: tuple[str, ...]
) -> None:
    assert word_rule(made) == rule
    read = readable_tokens(made, range(5))
    assert read == tokens
    assert words_of(read, made.all_special_tokens) == words


def test_added_tokens_and_patches_are_words_of_their_own() -> None:
    made = TOKENIZERS["byte-level"](SENTENCES)
    made.add_tokens(["brand"])
    tokens = readable_tokens(made, made("the owlbrands")["input_ids"])
    assert words_of(tokens, made.all_special_tokens) == ("the", "owl", "brand", "s")
    patch = Patch(0, 1, 2, (0, 0, 4, 4))
    groups = TokenGroups.of(("cir", patch, "cle</w>"), [False] * 3, words=True, hide=False)
    assert groups.spans == ((0, 1), (1, 2), (2, 3))
    assert groups.names[1] is patch


def test_bytes_of_a_cut_character_stay_together() -> None:
    made = tokenizer("byte level")
    ids = made("an 🦉 é")["input_ids"]
    assert words_of(readable_tokens(made, ids), ()) == ("an", "🦉", "é")
    assert words_of(readable_tokens(made, ids[:5]), ()) == ("an", "<0xF0><0x9F>")


@pytest.mark.parametrize(
    ("tokens", "words", "rule"),
    [
        (("un", "##do", "##", "it"), ("undo", "##", "it"), "a piece with ## before it continues a word"),
        (("##", "·Ti", "tle"), ("##", "Title"), "letters and numbers that touch are one word"),
        (("Ġthe", "Ġc", "afÃ©", "."), ("the", "café", "."), "letters and numbers that touch are one word"),
        (("▁the", "▁ow", "l"), ("the", "owl"), "letters and numbers that touch are one word"),
        (("cir", "cle</w>", "a</w>"), ("circle", "a"), "a word ends at </w>"),
        (("re@@", "d", "owl"), ("red", "owl"), "a word goes on after a piece with @@ at its end"),
        (tokenize("A · B ## don't 👍 🏽"), ("a", "", "b", "#", "#", "don't", "👍", "🏽"), "each token is a word"),
    ],
)  # fmt: skip
def test_tokens_without_a_tokenizer_say_their_rule(tokens: tuple[str, ...], words: tuple[str, ...], rule: str) -> None:
    assert _TextWords.of(tokens).names == words
    assert words_rule(tokens).startswith(rule)


def tiny_model() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    ids = {"bos_token_id": None, "eos_token_id": None}
    return GPT2LMHeadModel(GPT2Config(vocab_size=900, n_embd=8, n_layer=1, n_head=2, n_positions=64, **ids)).eval()


def test_trace_of_a_model_shows_no_marks_and_merges_words() -> None:
    made = tokenizer("CLIP")
    pieces = Model.of(tiny_model(), made, "a red circle").trace()
    assert pieces.tokens == ("a", "r", "##e", "##d", "c", "##i", "##r", "##c", "##l", "##e")
    merged = Model.of(tiny_model(), made, "a red circle", words=True).trace()
    assert merged.tokens == ("a", "red", "circle")
    assert merged.notes == ("Words: a word ends at </w>.",)
    text = "नमस्ते"
    assert Model.of(tiny_model(), tokenizer("byte level"), text, words=True).trace().tokens == (text,)
    assert Model.of(tiny_model(), tokenizer("BPE without marks"), "an owl", words=True).trace().tokens == ("an", "owl")


def test_predicted_tokens_are_no_text() -> None:
    made = tokenizer("CLIP")
    ids = made("red")["input_ids"]
    assert readable_tokens(made, ids) == ("r", "##e", "##d")
    assert vocabulary_names(made, ids) == ("r", "e", "d")


def test_generated_pieces_continue_the_words_of_the_text() -> None:
    piece = Generated(Piece("##l", True, "r"))
    (name,) = TokenGroups.of((Piece("ow"), piece), (False, False), words=True, hide=False).names
    assert (name, type(name), piece.joins) == ("owl", Generated, True)
    for copied in (pickle.loads(pickle.dumps(piece)), Generated(piece)):
        assert (copied, copied.joins, copied.rule, type(copied)) == (piece, True, "r", Generated)


@pytest.mark.parametrize("write", [npz, safetensors])
def test_saved_trace_keeps_its_words(write: Callable[[Trace], bytes], tmp_path: Path) -> None:
    trace = Model.of(tiny_model(), tokenizer("CLIP"), "a red circle").trace()
    path = tmp_path / f"trace.{write.__name__}"
    path.write_bytes(write(trace))
    opened_tokens = File.open(path).trace().layers[0].key_tokens
    assert opened_tokens == trace.tokens
    assert words_of(opened_tokens, ()) == ("a", "red", "circle")
    assert words_rule(opened_tokens) == "the word_ids of the file"


def test_bad_word_ids_of_a_file_are_refused(tmp_path: Path) -> None:
    trace = Trace(tuple(map(Piece, "ab")), (Layer(recorded={"weights": torch.full((1, 2, 2), 0.5)}),))
    content = npz(trace)
    for bad, got in (("[0]", r"\[0\]"), ('"xy"', "xy"), ('["a", 1]', "'a'")):
        file = io.BytesIO()
        arrays = dict(np.load(io.BytesIO(content)))
        about = arrays["about"].item().decode().replace('"word_ids": [0, 1]', f'"word_ids": {bad}')
        np.savez(file, **{**arrays, "about": np.array(about.encode())})
        (tmp_path / "bad.npz").write_bytes(file.getvalue())
        with pytest.raises(FileError, match=f"needs the number of a word for each of 2 tokens; got .*{got}"):
            File.open(tmp_path / "bad.npz").trace()


def test_words_switch_of_the_page_shows_every_word() -> None:
    app = opened("app.py", source="model", text="the cat sat on the mat", words="true", special="hide")
    weights = next(figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == "weights")
    assert np.asarray(weights["data"][0]["z"]).shape == (6, 6)
