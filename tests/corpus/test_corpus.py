"""Every head over many texts: the numbers are those of single texts, the controls are what they claim, and the table is complete."""

from __future__ import annotations

import io
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from conftest import ROOT
from margins import approx
from tiny_models import TinyModels

from attention import ConfigError, FileError, Model, ModelError, metrics
from attention.corpus import scan
from attention.corpus.chunk import _REPEATED_TOKENS, Tokenizer
from attention.corpus.digest import MAX_OFFSET, N_KEYS, Digest, Moments
from attention.corpus.result import HeadsResult
from attention.corpus.run_plan import CONTROLS, RunPlan
from attention.corpus.scan import PartsFolder, part_name
from attention.explanation.subwords import TokenGroups
from attention.formula.names import WEIGHTS
from attention.metrics.metric import all_metrics
from attention.metrics.patterns import iterate_patterns
from attention.models.library import LIBRARY

TEXTS = (
    "the owl asked the moon and the moon blinked",
    "she sells, sea shells. The sea",
    "the cat",
    "a quiet harbor watched the copper moon; the owl asked the moon and the moon blinked twice",
    "keys and queries meet",
    "attention is a weighted sum",
    "x",
)
FAMILIES = (
    "GPT-2",
    "BERT",
    "RoBERTa",
    "OPT",
    "Gemma 3",
    "gpt-oss",
    "ModernBERT",
    "T5",
    "BART",
    "Bloom",
    "MPNet",
    "Jamba",
)


def run(
    model: Path, folder: Path, texts: tuple[str, ...] = TEXTS, **options: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The content of corpus.json, and the rows of heads.parquet."""
    plan, _ = scan.make_plan(LIBRARY.get(str(model)), texts, **{"chunk_size": 3} | options)
    scan.scan(plan, texts, str(folder))
    info = scan.merge(str(folder))
    assert json.loads((folder / "corpus.json").read_text()) == info
    return info, pq.read_table(folder / "heads.parquet").to_pylist()


def test_histogram_ends_at_the_declared_maximum(tiny: TinyModels) -> None:
    plan, _ = scan.make_plan(LIBRARY.get(str(tiny("GPT-2"))), TEXTS)
    for maximum, high in (("1", 1), ("2.5", 2.5), ("keys − 1", plan.max_tokens - 1)):
        assert plan.limits(replace(all_metrics()["entropy"], maximum=maximum)) == (0, high)


@pytest.mark.sample(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_are_those_of_single_texts(family: str, tiny: TinyModels, tmp_path: Path) -> None:
    """Padding, batches, chunks and merging change nothing: mean, spread, count, histogram and uniform attention of each text alone."""
    info, rows = run(tiny(family), tmp_path, top=3)
    traces = [Model(str(tiny(family)), text, text2="a").trace() for text in TEXTS]
    tables = [metrics.of(trace) for trace in traces]
    names = [metric.name for metric in all_metrics().values() if metric.compute is not None and not metric.of_pictures]
    assert [row["metric"] for row in rows[: len(names)]] == names == info["metrics"]
    assert len(rows) == sum(info["heads"]) * len(names)
    for row in rows:
        place = row["layer"], row["head"], [*metrics.all_metrics()].index(row["metric"])
        of_texts = np.array([table.values[place] for table in tables])
        defined = of_texts[~np.isnan(of_texts)]
        assert row["count"] == len(defined)
        assert row["queries"] == sum(table.counts[place] for table in tables)
        if row["queries"]:
            total = sum(table.values[place] * table.counts[place] for table in tables if table.counts[place])
            assert row["query_mean"] == approx(total / row["queries"], terms=1024)
        if not len(defined):
            assert row["mean"] is None
            assert row["top"] == []
            continue
        assert row["mean"] == approx(defined.mean(), terms=16384)
        assert sum(row["histogram"]) == len(defined)
        uniform = np.array([table.uniform[place[0], place[2]] for table in tables])
        uniform = uniform[~np.isnan(uniform)]
        assert row["uniform"] is None if not len(uniform) else row["uniform"] == approx(uniform.mean())
        if len(defined) > 1:
            assert row["sd"] == approx(defined.std(ddof=1), terms=16384, scale=1)
        largest = sorted(defined, reverse=True)[:3]
        assert [example["value"] for example in row["top"]] == approx(largest, terms=16384, dtype="float32")
        for example in row["top"]:
            weights = traces[example["number"]].layers[row["layer"]].matrix(WEIGHTS, row["head"])[example["query"]]
            assert example["text"] == TEXTS[example["number"]]
            assert tuple(example["tokens"]) == traces[example["number"]].layers[row["layer"]].tokens
            assert example["weights"] == approx(weights.sort(descending=True).values[:N_KEYS].tolist(), terms=16384)
            assert weights[example["keys"]].tolist() == approx(example["weights"], terms=16384)


def test_key_of_an_example_is_a_cell_of_its_metric(tiny: TinyModels, tmp_path: Path) -> None:
    _, rows = run(tiny("BERT"), tmp_path)
    examples = {
        name: [e for row in rows if row["metric"] == name for e in row["top"]] for name in metrics.all_metrics()
    }
    assert all(e["key"] == e["query"] - 1 for e in examples["previous"])
    assert all(e["key"] == 0 for e in examples["first token"])
    assert all(
        e["tokens"][e["key"]] == e["tokens"][e["query"]] and e["key"] < e["query"] for e in examples["duplicate token"]
    )
    assert all(e["tokens"][e["key"] - 1] == e["tokens"][e["query"]] for e in examples["distant induction"])
    assert all(e["tokens"][e["key"]] in {",", ".", ";"} for e in examples["punctuation"])
    assert all(e["key"] == e["keys"][0] for e in examples["largest weight"])
    assert min(map(len, examples.values())) >= 0 < len(examples["distant induction"])


def test_maps_and_offsets_are_means_over_texts(tiny: TinyModels, tmp_path: Path) -> None:
    info, rows = run(tiny("GPT-2"), tmp_path)
    n = info["plan"]["map_length"]
    traces = [Model(str(tiny("GPT-2")), text).trace() for text in TEXTS]
    equal = [trace for trace in traces if len(trace.tokens) == n]
    assert info["map_texts"] == len(equal) > 0
    first_rows = [row for row in rows if row["mean_map"] is not None]
    assert len(first_rows) == sum(info["heads"])
    for row in first_rows:
        maps = [trace.layers[row["layer"]].matrix(WEIGHTS, row["head"]) for trace in traces]
        mean = torch.stack([m for m in maps if len(m) == n]).mean(0)
        assert row["mean_map"] == approx(mean.flatten().tolist())
        for offset in (-3, -1, 0):
            cells = torch.cat([m.diagonal(offset) for m in maps])
            assert row["offset_weights"][MAX_OFFSET + offset] == approx(float(cells.mean()))
        others = [(row["offset_weights"][MAX_OFFSET - back], -back) for back in range(2, 17)]
        others = [pair for pair in others if pair[0] is not None and not math.isnan(pair[0])]
        assert (row["peak_weight"], row["peak_offset"]) == (
            approx(max(others)[0]),
            max(others)[1],
        )
        assert row["offset_weights"][MAX_OFFSET + 1] is None or math.isnan(
            row["offset_weights"][MAX_OFFSET + 1]
        )  # causal


def test_shuffled_text_keeps_words_whole_and_special_tokens_in_place(tiny: TinyModels) -> None:
    tokenizer = Tokenizer(LIBRARY.get(str(tiny("BERT"))), 64)
    (sequence,), n_cut = tokenizer.sequences(5, [TEXTS[3]])
    shuffled = tokenizer.shuffled(sequence, 0)
    assert n_cut == 0
    assert sorted(shuffled.ids) == sorted(sequence.ids) != list(sequence.ids)
    assert shuffled == tokenizer.shuffled(sequence, 0)
    assert shuffled.ids not in (sequence.ids, tokenizer.shuffled(sequence, 1).ids)
    tokens = tokenizer.tokens(sequence)
    spans = TokenGroups.of(tokens, sequence.is_special, words=True, hide=False).spans
    assert max(stop - start for start, stop in spans) > 1
    text = " ".join(map(str, shuffled.ids))
    assert all(" ".join(map(str, sequence.ids[start:stop])) in text for start, stop in spans)


@pytest.mark.parametrize(
    ("text", "changes"),
    [("the cat", True), ("the the cat", True), ("the the the", False), ("unbelievable", False), ("the", False)],
)
def test_order_of_words_changes_wherever_it_can(text: str, changes: bool) -> None:
    tokenizer = Tokenizer(LIBRARY.get("all-MiniLM-L6-v2"), 64)
    (sequence,), _ = tokenizer.sequences(0, [text])
    for seed in range(8):
        shuffled = tokenizer.shuffled(sequence, seed)
        assert (shuffled.ids != sequence.ids) == changes
        assert sorted(tokenizer.tokens(shuffled)) == sorted(tokenizer.tokens(sequence))


def test_shuffled_words_of_a_wordpiece_tokenizer_are_shuffled(tmp_path: Path) -> None:
    """No piece of these texts begins with ##: they were one word each, and the control was the text itself."""
    texts = ("the cat sat on the mat", "a red bird ate the old bread", "cat")
    info, rows = run(ROOT / "models" / "all-MiniLM-L6-v2", tmp_path, texts, controls=("shuffled",))
    assert info["plan"]["words"] == "a piece with ## before it continues a word"
    assert info["shuffled_texts"] == 2
    of_first = [row for row in rows if row["metric"] == "first token"]
    assert {row["shuffled_count"] for row in of_first} == {2}
    assert max(abs(row["difference_mean"]) for row in of_first) > 0.001
    result = HeadsResult.of("r", (tmp_path / "heads.parquet").read_bytes())
    assert result.shuffling == (
        "The order of the words changes in 2 of 3 texts; 1 cannot change, and is not counted. Words: a piece with ## before it continues a word."
    )


def test_random_control_repeats_ordinary_tokens_once(tiny: TinyModels) -> None:
    loaded = LIBRARY.get(str(tiny("BERT")))
    tokenizer = Tokenizer(loaded, 64)
    control = tokenizer.repeated(16, 0)
    length = min(_REPEATED_TOKENS, len(control.ids) // 2)
    assert control.ids[:length] == control.ids[length:]  # this tokenizer adds no special tokens
    assert len(set(control.ids)) == length == _REPEATED_TOKENS
    assert not {*control.ids} & {*loaded.tokenizer.all_special_ids}
    assert tokenizer.repeated(32, 0).ids != control.ids == tokenizer.repeated(16, 0).ids
    assert len(Tokenizer(loaded, 11).repeated(0, 0).ids) == 10


def test_controls_of_the_plan_decide_the_columns(tiny: TinyModels, tmp_path: Path) -> None:
    info, both = run(tiny("GPT-2"), tmp_path / "both")
    assert info["read"]["random"] == 1  # one in sixteen texts
    assert all(row["random_count"] == 1 for row in both if row["metric"] == "distant induction")
    # "x" is one word, whose order cannot change.
    assert all(
        row["shuffled_count"] == len(TEXTS) - 1 == info["shuffled_texts"] for row in both if row["metric"] == "local"
    )
    _, none = run(tiny("GPT-2"), tmp_path / "none", controls=())
    assert all(row[f"{control}_mean"] is None for row in none for control in CONTROLS)
    assert [row["mean"] for row in none] == [row["mean"] for row in both]


def test_difference_is_paired_with_the_shuffled_text(tiny: TinyModels, tmp_path: Path) -> None:
    loaded = LIBRARY.get(str(tiny("BERT")))
    _, rows = run(tiny("BERT"), tmp_path)
    tokenizer = Tokenizer(loaded, 256)
    sequences, _ = tokenizer.sequences(0, TEXTS)
    values: dict[str, list[Any]] = {"text": [], "shuffled": []}
    pairs = [(sequence, tokenizer.shuffled(sequence, 0)) for sequence in sequences]
    for sequence, shuffled in (pair for pair in pairs if pair[0].ids != pair[1].ids):
        for name, ids in (("text", sequence.ids), ("shuffled", shuffled.ids)):
            inputs = {"input_ids": torch.tensor([ids])}
            trace = Model.of(loaded.model, loaded.tokenizer, inputs=inputs).trace()
            values[name].append(metrics.of(trace).values)
    for row in rows:
        place = row["layer"], row["head"], [*metrics.all_metrics()].index(row["metric"])
        pairs = np.array([text[place] - other[place] for text, other in zip(*values.values(), strict=True)])
        pairs = pairs[~np.isnan(pairs)]
        assert row["difference_count"] == len(pairs)
        if len(pairs) > 1:
            assert row["difference_mean"] == approx(pairs.mean(), scale=1)
            assert row["difference_sd"] == approx(pairs.std(ddof=1), scale=1)
    assert any(abs(row["difference_mean"] or 0) > 1e-3 for row in rows)


@pytest.mark.parametrize("family", ["GPT-2", "BERT", "T5"])
def test_excess_is_each_text_minus_its_null(family: str, tiny: TinyModels, tmp_path: Path) -> None:
    """Batches and padding change nothing: the null of each metric, and of a rule, is that of the text alone."""
    rule = 'from any to "the"'
    _, rows = run(tiny(family), tmp_path, finds=(rule,))
    of_texts = [Model(str(tiny(family)), text, text2="a").trace() for text in TEXTS]
    for row in rows:
        metric = metrics.FindRule.parse(rule).metric if row["metric"] == rule else metrics.find(row["metric"])
        differences = []
        for trace in of_texts:
            for heads, _, pattern in iterate_patterns(trace.layers[row["layer"]]):
                if heads.start <= row["head"] < heads.stop:
                    value = metric.compute(pattern).nanmean(-1)[row["head"] - heads.start]
                    null = metric.under_null(pattern).nanmean(-1)
                    differences.append(float(value - null[min(row["head"] - heads.start, len(null) - 1)]))
        defined = np.array([difference for difference in differences if not math.isnan(difference)])
        assert row["excess_count"] == len(defined)
        if len(defined) > 1:
            assert row["excess_mean"] == approx(defined.mean(), terms=1024, scale=1)
            assert row["excess_sd"] == approx(defined.std(ddof=1), terms=1024, scale=1)
    assert any(row["excess_count"] for row in rows if row["metric"] == "distant induction")
    assert all(row["excess_count"] == row["count"] for row in rows if row["metric"] != "norm-weighted first token")


def test_long_texts_are_cut_and_counted(tiny: TinyModels, tmp_path: Path) -> None:
    info, _ = run(tiny("GPT-2"), tmp_path, ("the cat sat " * 40, "the cat", "the cat sat on"), max_tokens=8)
    assert info["read"] == {"texts": 3, "tokens": 8 + len(Model(str(tiny("GPT-2")), "the cat").trace().tokens)
                            + len(Model(str(tiny("GPT-2")), "the cat sat on").trace().tokens), "cut": 1, "random": 1}  # fmt: skip


def test_moments_merge_to_those_of_all_values() -> None:
    values = np.random.default_rng(0).normal(5, 2, (40, 2, 3))
    values[values < 4] = np.nan
    values[:, 0, 0] = np.nan
    merged = Moments.of(values[:7])
    for start in range(7, 40, 11):
        merged = merged.merge(Moments.of(values[start : start + 11]))
    whole = Moments.of(values)
    assert np.array_equal(merged.count, whole.count)
    assert merged.mean == approx(whole.mean)
    assert merged.squares == approx(whole.squares)
    assert whole.mean[1, 1] == approx(np.nanmean(values[:, 1, 1]))
    assert whole.sd[1, 1] == approx(np.nanstd(values[:, 1, 1], ddof=1))


def test_folder_of_another_run_is_refused(tiny: TinyModels, tmp_path: Path) -> None:
    run(tiny("GPT-2"), tmp_path)
    with pytest.raises(FileError, match="parts of another run: max tokens 256 instead of 64"):
        run(tiny("GPT-2"), tmp_path, max_tokens=64)


def test_changed_texts_and_missing_or_damaged_parts_are_refused(tiny: TinyModels, tmp_path: Path) -> None:
    folder = PartsFolder(str(tmp_path))
    plan, _ = scan.make_plan(LIBRARY.get(str(tiny("GPT-2"))), TEXTS, chunk_size=3)
    with pytest.raises(FileError, match="The texts have changed"):
        scan.scan(plan, (*TEXTS[:-1], "y"), str(tmp_path))
    folder.write(part_name(1), b"nothing")
    with pytest.raises(FileError, match=r"parts/000001\.npz is damaged: delete it"):
        scan.merge(str(tmp_path))
    (tmp_path / part_name(1)).unlink()
    with pytest.raises(FileError, match="1 of 3 parts are missing"):
        scan.merge(str(tmp_path))
    with pytest.raises(FileError, match=r"with plan\.json; there is none"):
        scan.merge(str(tmp_path / "elsewhere"))


def test_bad_options_and_models_are_refused(tiny: TinyModels) -> None:
    loaded = LIBRARY.get(str(tiny("GPT-2")))
    for options, match in (
        ({"top": 0}, "from 1 to 100"),
        ({"max_tokens": 1}, "from 4"),
        ({"controls": ("x",)}, "shuffled or random"),
    ):
        with pytest.raises(ConfigError, match=match):
            scan.make_plan(loaded, TEXTS, **options)
    with pytest.raises(ConfigError, match="at least one text"):
        scan.make_plan(loaded, ())
    with pytest.raises(FileError, match="should be the plan"):
        RunPlan.from_json("{}")
    plan, _ = scan.make_plan(loaded, TEXTS)
    other = RunPlan(**{**plan.__dict__, "model_digest": "0" * 64})
    with pytest.raises(ModelError, match="not those of the plan"):
        scan.scan_part("memory://other", other, next(scan._chunks(plan, TEXTS)))


def test_digest_of_a_model_has_its_files_alone(tiny: TinyModels, tmp_path: Path) -> None:
    digest = scan._model_digest(tiny("GPT-2"))
    copy = tmp_path / "copy"
    shutil.copytree(tiny("GPT-2"), copy)
    (copy / "a.json").mkdir()
    (copy / "b.json").symlink_to("/dev/zero")
    (copy / "c.json").symlink_to("gone")
    assert scan._model_digest(copy) == digest
    (tmp_path / "d.json").symlink_to("/proc/self/mem")
    with pytest.raises(ModelError, match=r"d.json cannot be read \("):
        scan._model_digest(tmp_path)


def test_digest_survives_its_bytes_and_needs_the_same_heads(tiny: TinyModels, tmp_path: Path) -> None:
    run(tiny("GPT-2"), tmp_path / "a")
    run(tiny("Gemma 3"), tmp_path / "b")
    one, other = (Digest.from_bytes((tmp_path / name / part_name(0)).read_bytes()) for name in ("a", "b"))
    content = one.to_bytes()
    assert Digest.from_bytes(content).to_bytes() == content
    refused = 0
    for place in range(0, len(content), len(content) // 200):
        try:
            Digest.from_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        except FileError as error:
            refused += "is damaged" in str(error)
    assert refused > 100
    assert one.layers == other.layers  # and the same numbers of heads, so give one of them another
    with pytest.raises(FileError, match="different heads"):
        one.merge(Digest(**{**other.__dict__, "n_heads": (4, 5)}), 3)
    earlier = {name: moments for name, moments in other.moments.items() if name != "excess"}
    with pytest.raises(FileError, match="written by different versions"):
        one.merge(Digest(**{**other.__dict__, "moments": earlier}), 3)


def test_parquet_has_the_content_of_corpus_json(tiny: TinyModels, tmp_path: Path) -> None:
    info, _ = run(tiny("GPT-2"), tmp_path)
    metadata = pq.read_schema(io.BytesIO((tmp_path / "heads.parquet").read_bytes())).metadata
    assert json.loads(metadata[b"attention_lab"]) == info
    assert str(tmp_path) not in json.dumps(info)
