"""Sequences of proteins as texts: what is read and refused, by which tokenizers, and where each residue is."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import TinyModels

from attention import File, Model
from attention.base.errors import AttentionError, ConfigError, TextError
from attention.base.tokens import Letter, Residue, label
from attention.explanation import tables
from attention.files import array_writer
from attention.media import residues_among
from attention.models.folder import TEXT_ALONE
from attention.models.library import LIBRARY
from attention.models.ours import our_models
from attention.models.token_pieces import residues_of
from attention.proteins import example
from attention.proteins.sequences import AMINO_ACIDS, UBIQUITIN, read

_SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
PROT_BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"LAGVESIKRDTPNQFYMHCWXUBZO")
README = "MKTVRQERLKSIVRILERSKEPVSGAQLAEELSVSRQVIVQDIAYLRSLGYNIVATPRGYVLAGG"
"""The first sequence in the README of fair-esm."""


@pytest.fixture(scope="module")
def folder() -> Path:
    return LIBRARY.folder(example.NAME)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)


def test_tokens_are_those_of_transformers_own_test(folder: Path, tokenizer: Any) -> None:
    # as the test of the tokenizer in transformers has them
    assert tokenizer("LAGVS")["input_ids"] == [0, 4, 5, 6, 7, 8, 2]
    assert tokenizer("WCB")["input_ids"] == [0, 22, 23, 25, 2]
    trace = Model(folder, "LAGVS").trace()
    assert trace.tokens == ("<cls>", "L", "A", "G", "V", "S", "<eos>")
    assert [getattr(token, "place", None) for token in trace.tokens] == [
        None, *(Residue(number, letter) for number, letter in enumerate("LAGVS", 1)), None,
    ]  # fmt: skip
    assert [label(token) for token in trace.tokens] == ["&lt;cls&gt;", "L1", "A2", "G3", "V4", "S5", "&lt;eos&gt;"]
    assert trace.notes == ()


@pytest.mark.parametrize(
    ("text", "letters", "note"),
    [
        (README, README, ""),
        # the other examples of fair-esm's README
        ("KALTARQQEVFDLIRD<mask>ISQTG", [*"KALTARQQEVFDLIRD", "<mask>", *"ISQTG"], ""),
        ("K A <mask> I S Q", ["K", "A", "<mask>", "I", "S", "Q"], "The sequence is read without blanks: 6 residues."),
        (
            ">sp|P01308|INS_HUMAN Insulin\r\nfvnqhlcgsh lvealylvcg\nergffytpkt\n",
            "FVNQHLCGSHLVEALYLVCGERGFFYTPKT",
            "The sequence is read without its header line “>sp|P01308|INS_HUMAN Insulin”, line breaks and blanks, in capital letters: 30 residues.",
        ),
        ("1 mktay 6 iakqr", "MKTAYIAKQR", "The sequence is read without blanks and numbers, in capital letters: 10 residues."),
        ("; a comment\n>one\nMK*", "MK", "The sequence is read without its header line “>one”, comments and the * at its end: 2 residues."),
    ],
)  # fmt: skip
def test_reads_what_people_paste(tokenizer: Any, text: str, letters: str | list[str], note: str) -> None:
    assert read(text, tokenizer) == ([*letters], [note] if note else [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MKTJA", "Residue 4 of the sequence is “J”, which is no letter of the model (-.ABCDEFGHIKLMNOPQRSTUVWXYZ): correct it, or write X for an unknown residue, <mask> for one that the model shall predict."),
        ("M*K", "Residue 2 of the sequence is “*”"),
        ("<cls>MK", "Residue 1 of the sequence is “<”"),
        ("MKT\u0130", "Residue 4 of the sequence is “\u0130”"),
        (">a\nMK\n>b\nTA", "A model reads one sequence; got 2 sequences with the header lines “>a”, “>b”: give one of them."),
        ("MK\n>b\nTA", "got 2 sequences with the header lines “>b”"),
        (">only a header", "A sequence has at least one residue; got none: give its letters, such as MKTAYIAKQR."),
        ("*", "A sequence has at least one residue"),
        ("123", "A sequence has at least one residue"),
    ],
)  # fmt: skip
def test_refuses_what_is_no_sequence(folder: Path, text: str, message: str) -> None:
    with pytest.raises(TextError) as refused:
        Model(folder, text).trace()
    assert message in str(refused.value)


@pytest.mark.parametrize("more", [{"text2": "MKT"}, {"messages": [{"role": "user", "content": "MKT"}]}])
def test_a_second_text_or_a_chat_is_refused(folder: Path, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="reads one chain of residues; got"):
        Model(folder, "MKT", **more).trace()


def test_a_long_sequence_is_cut_with_words(folder: Path) -> None:
    trace = Model(folder, README, max_tokens=12).trace()
    assert trace.tokens == ("<cls>", *README[:10], "<eos>")
    assert trace.notes[-1].startswith("The text has 67 tokens; the first 12 are read")


def test_a_mask_is_a_residue_that_is_predicted(folder: Path) -> None:
    trace = Model(folder, "MK<mask>A").trace()
    assert trace.tokens[3].place == Residue(3, "<mask>")  # type: ignore[attr-defined]
    (prediction,) = trace.predictions
    assert prediction.position == 3
    hidden = Model(folder, "MK<mask>A", special="hide").trace()
    assert [label(token) for token in hidden.tokens] == ["M1", "K2", "A4"]


def test_which_vocabularies_are_letters_of_residues(tokenizer: Any, tmp_path: Path) -> None:
    assert residues_of(tokenizer) is residues_among(PROT_BERT) is AMINO_ACIDS
    assert residues_of(transformers.EsmcTokenizer()) is AMINO_ACIDS
    prot_t5 = ("<pad>", "</s>", "<unk>", *(f"▁{letter}" for letter in "ALGVSREDTIPKFQNYMHWCXBOUZ"), "<extra_id_0>")
    assert residues_among(prot_t5) is AMINO_ACIDS
    # DNA, its 6-mers (Nucleotide Transformer is an “esm” as well), letters of a text, of speech, and none
    for others in (
        "ACGTN",
        ["<cls>", "AAAAAA", *"ACGTN"],
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabc",
        "|'ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "",
    ):
        assert residues_among(others) is None


@pytest.mark.parametrize("family", ["ESM-C", "ProtBERT"])
def test_other_families_are_known_by_their_vocabulary(family: str, tmp_path: Path) -> None:
    if family == "ESM-C":
        tokenizer = transformers.EsmcTokenizer()
        config = transformers.EsmcConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
        model: Any = transformers.EsmcForMaskedLM(config)
    else:
        (tmp_path / "vocab.txt").write_text("\n".join(PROT_BERT))
        tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=False)
        model = transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=30, **_SIZES))
    mask = tokenizer.mask_token
    trace = Model.of(model.eval(), tokenizer, f"mkt{mask}Y").trace()
    places = [token.place for token in trace.tokens if isinstance(token, Letter)]
    assert places == [Residue(1, "M"), Residue(2, "K"), Residue(3, "T"), Residue(4, mask), Residue(5, "Y")]
    assert len(trace.predictions) == 1
    ids = tokenizer(" ".join(["M", "K", "T", mask, "Y"]) if family == "ProtBERT" else f"MKT{mask}Y")["input_ids"]
    assert len(ids) == len(trace.tokens)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert LIBRARY.inputs(str(tmp_path)).residues is AMINO_ACIDS


def test_what_a_folder_reads_is_known_before_it_is_loaded(folder: Path, tiny: TinyModels, tmp_path: Path) -> None:
    before = LIBRARY.inputs(str(folder))
    assert before.residues is AMINO_ACIDS
    assert before.text
    assert before.medium is None
    assert not before.continues
    LIBRARY.get(str(folder))
    assert LIBRARY.inputs(str(folder)) == before
    assert LIBRARY.inputs(str(tiny("BERT"))) == TEXT_ALONE
    for name, content in (
        ("vocab.txt", "A" * 2**21),
        ("tokenizer.json", "[1]"),
        ("tokenizer.json", '{"model": {"vocab": 3}}'),
    ):
        broken = tmp_path / name.partition(".")[0] / str(len(content))
        broken.mkdir(parents=True)
        (broken / "config.json").write_text(json.dumps({"model_type": "esm", "vocab_size": 33}))
        (broken / name).write_text(content)
        assert LIBRARY.inputs(str(broken)) == TEXT_ALONE


def test_places_survive_pickling_and_files(folder: Path, tmp_path: Path) -> None:
    trace = Model(folder, "MK<mask>A").trace()
    token = pickle.loads(pickle.dumps(trace.tokens[2]))
    assert (token, token.place) == ("K", Residue(2, "K"))
    for kind in ("npz", "safetensors"):
        path = tmp_path / f"trace.{kind}"
        path.write_bytes(getattr(array_writer, kind)(trace))
        reopened = File.open(path).trace()
        for layer in (reopened.layers[0], reopened):
            assert [getattr(each, "place", None) for each in layer.tokens] == [
                getattr(each, "place", None) for each in trace.tokens
            ]
        assert torch.equal(reopened.layers[1].weights, trace.layers[1].weights)
    frame = tables.frame(trace, "weights")
    assert frame["residue"].fillna(0).tolist() == [0, 1, 2, 3, 4, 0]
    assert frame.index[2] == "2 K2"
    assert "key_residue" in tables.long_frame(trace, ["weights"]).columns


def test_a_file_with_wrong_numbers_is_refused(folder: Path, tmp_path: Path) -> None:
    import numpy as np

    with np.load(_saved(folder, tmp_path)) as arrays:
        content = dict(arrays)
    about = json.loads(content["about"].item())
    for wrong in ([1, 2], [0, 1, 2, 3, -1, 0], "12"):
        about["residues"] = wrong
        np.savez(tmp_path / "wrong.npz", **content | {"about": np.array(json.dumps(about).encode())})
        with pytest.raises(
            AttentionError, match=r"residues in “wrong\.npz” needs a number from 0 for each of 6 tokens"
        ):
            File.open(tmp_path / "wrong.npz").trace()


def _saved(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "right.npz"
    path.write_bytes(array_writer.npz(Model(folder, "MKTA").trace()))
    return path


def test_the_example_is_offered_by_its_name() -> None:
    assert example.NAME in our_models()
    assert example.NAME not in LIBRARY.names()
    LIBRARY.allow(example.NAME)
    trace = Model(example.NAME, UBIQUITIN).trace()
    assert len(trace.tokens) == 78
    assert "random weights" in trace.caption
