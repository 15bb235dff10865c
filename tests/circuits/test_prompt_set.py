"""Prompt sets: read from CSV with a sentence for each bad row, and the mean and spread of every head's numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
from conftest import ROOT
from margins import approx
from tiny_models import TinyModels

from attention import ConfigError, FileError, Model, circuits
from attention.circuits import prompts
from attention.circuits.prompts import ABLATION, DIRECT, ESTIMATE, PATCH
from attention.models.library import LIBRARY, Settings
from attention.sources.registry import source_of
from attention.sources.state import second_state
from pages.ui.server.limits import LIMITS

ROWS = (
    ("the owl asked the moon", "the moon asked the owl", " moon", " owl"),
    ("a quiet harbor watched the", "a copper moon watched the", " moon", " harbor"),
    ("keys and queries", "the keys and the queries", " meet", " moon"),
)


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    tiny("Llama")
    yield
    LIBRARY.hold(Settings())


def test_csv_is_read_with_and_without_header(tmp_path: Path) -> None:
    plain = circuits.PromptSet.from_text('"the owl, asked",the moon, moon, owl\n\na,b, c\n')
    assert [prompt.clean for prompt in plain.prompts] == ["the owl, asked", "a"]
    assert (plain.prompts[0].target, plain.prompts[1].distractor) == (" moon", "")
    named = circuits.PromptSet.from_text("\ufeffTarget,corrupted,clean\r\n moon,the moon,the owl\r\n")
    assert named.prompts == (circuits.Prompt("the owl", "the moon", " moon"),)
    again = circuits.PromptSet.from_text(circuits.EXAMPLES.to_csv())
    assert again == circuits.EXAMPLES == circuits.PromptSet.from_rows(circuits.EXAMPLES.prompts)
    path = tmp_path / "prompts.csv"
    path.write_text(circuits.EXAMPLES.to_csv(), encoding="utf-8-sig")
    assert circuits.PromptSet.from_file(path) == circuits.EXAMPLES
    assert circuits.PromptSet.from_rows([{"clean": "a", "corrupted": "b", "target": "c"}]).prompts[0].target == "c"


def test_bad_rows_are_named_and_left_out() -> None:
    read = circuits.PromptSet.from_text(f"a,b\na,,c,d\nthe owl,the moon, x\na,b,c,d,e\n{'a' * 2001},b,c,d")
    assert [prompt.clean for prompt in read.prompts] == ["the owl"]
    assert [problem.partition(":")[0] for problem in read.problems] == ["Row 1", "Row 2", "Row 4", "Row 5"]
    assert read.problems[1] == "Row 2: corrupted is a text; got '': fill it in."
    assert all(problem.count(".") == 1 for problem in read.problems)


@pytest.mark.parametrize(
    ("text", "sentence"),
    {
        "": "got none: write one row for each pair of texts",
        "a,b": "Row 1: expected clean, corrupted, target, distractor",
        "a,b,c\n" * 101: "has at most 100 rows; got 101",
        "é" * 100_001: "has at most 200,000 bytes; got 200,002",
    }.items(),
)
def test_impossible_sets_are_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        circuits.PromptSet.from_text(text)


def test_unreadable_files_are_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "latin.csv").write_bytes(b"\xe9,b,c")
    for name in ("latin.csv", "missing.csv"):
        with pytest.raises(FileError, match="A prompt set is a CSV file in UTF-8"):
            circuits.PromptSet.from_file(tmp_path / name)


@pytest.mark.parametrize("patch", ["head_output", "query"])
def test_mean_and_spread_are_those_of_single_sweeps(patch: str) -> None:
    model = Model("Llama", "any text")
    result = circuits.over_prompts(model, circuits.PromptSet.from_rows(ROWS), patch, "mean")
    assert result.prompts == tuple(circuits.Prompt(*row) for row in ROWS)
    expected: dict[str, list[Any]] = {name: [] for name in (ABLATION, PATCH, ESTIMATE, DIRECT)}
    for i, (clean, corrupted, target, distractor) in enumerate(ROWS):
        source = circuits.patch_aligned(Model("Llama", clean), corrupted)
        ablated = circuits.which(source, None, target, distractor, "mean")
        patched = circuits.which(source, None, target, distractor, patch=patch)
        for name, numbers in zip(
            expected, (ablated.change, patched.change, patched.estimate, patched.direct), strict=True
        ):
            expected[name].append(numbers)
        assert result.clean[i] == approx(patched.baseline)
        other = circuits.which(Model("Llama", corrupted), None, target, distractor)
        assert result.corrupted[i] == approx(other.baseline, terms=1024)
    for name, maps in expected.items():
        assert result.means(name) == approx(np.mean(maps, axis=0))
        assert result.spreads(name) == approx(np.std(maps, axis=0, ddof=1))
        assert (result.counts(name) == 3).all()
    frame = result.frame(PATCH)
    assert [*frame.columns[:5]] == ["layer", "head", f"{ABLATION}, mean", f"{ABLATION}, sd", f"{ABLATION}, n"]
    of_patch = frame[f"{PATCH} (noising: corrupted → clean), mean"].abs()
    assert [*of_patch] == sorted(of_patch, reverse=True)
    assert len(frame) == 8
    assert -1 <= result.rank_correlation <= 1
    assert [bool(text) for text in result.alignments] == [False, False, True]
    assert result.quantity == "logit of the target minus logit of the distractor"


def test_estimates_alone_need_no_sweep() -> None:
    model, prompt_set = Model("Llama", "any text"), circuits.PromptSet.from_rows(ROWS[:2])
    fast = circuits.over_prompts(model, prompt_set, exact=False)
    exact = circuits.over_prompts(model, prompt_set)
    assert [*fast.numbers] == [ESTIMATE, DIRECT]
    for name in fast.numbers:
        assert fast.means(name) == approx(exact.means(name))
    assert np.isnan(fast.rank_correlation)
    *_, last = progress = [*circuits.sweep_prompts(model, circuits.PromptSet.from_rows(ROWS), "value", exact=False)]
    assert [item.done for item in progress] == sorted(item.done for item in progress)
    assert progress[0].result is None
    assert last.result is not None
    assert circuits.over_prompts(model, circuits.PromptSet.from_rows(ROWS), "value", exact=False) is last.result


def test_prompts_that_cannot_run_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model("Llama", "any text")
    rows = [ROWS[0], ("the owl", "the moon", "a quiet harbor"), ROWS[2]]
    result = circuits.over_prompts(model, circuits.PromptSet.from_rows(rows), "weights", exact=False)
    assert len(result.prompts) == 1
    assert "Prompt 2, “the owl”: A target is one token" in result.problems[0]
    assert "Prompt 3" in result.problems[1]
    assert "Weights have a row and a column for each token" in result.problems[1]
    assert np.isnan(result.spreads(ESTIMATE)).all()
    with pytest.raises(ConfigError, match=r"None of the 1 prompts can be run. Prompt 1"):
        circuits.over_prompts(model, circuits.PromptSet.from_rows(rows[1:2]))
    with pytest.raises(ConfigError, match="The patched step is one of"):
        circuits.over_prompts(model, circuits.PromptSet.from_rows(rows), "output")
    monkeypatch.setattr(prompts, "_MAX_SECONDS", 0)
    with pytest.raises(ConfigError, match="choose fewer or shorter prompts, or only the estimates"):
        circuits.over_prompts(model, circuits.PromptSet.from_rows(rows))


def test_link_of_a_prompt_opens_both_texts() -> None:
    prompt = circuits.Prompt(*ROWS[0])
    for lab, start in (("", "./?"), ("http://localhost:8501/", "http://localhost:8501/?")):
        address = prompt.address("Llama", lab)
        assert address.startswith(start)
        state = dict(parse_qsl(urlsplit(address).query))
        a, _ = source_of(state, LIMITS)
        b, _ = source_of(second_state(state, state["compare"]), LIMITS)
        assert isinstance(a, Model)
        assert isinstance(b, Model)
        assert (a.name, a.text, b.name, b.text) == ("Llama", prompt.clean, "Llama", prompt.corrupted)
        assert (state["target"], state["against"]) == ("·moon", "·owl")
        assert a.find_token(state["target"]) == a.find_token(" moon")


def test_limits_of_the_set_are_those_of_its_columns() -> None:
    assert prompts.COLUMNS == ("clean", "corrupted", "target", "distractor")
    assert 0 < len(circuits.EXAMPLES) <= prompts.MAX_ROWS


@pytest.mark.skipif(not (ROOT / "models" / "SmolLM2-135M-Instruct").is_dir(), reason="run make models ALL=1")
def test_examples_are_answered_by_the_small_model(tiny: TinyModels) -> None:
    LIBRARY.hold(Settings(ROOT / "models"))
    try:
        model = Model("SmolLM2-135M-Instruct", "any text")
        result = circuits.over_prompts(model, circuits.EXAMPLES, exact=False)
        assert not result.problems
        assert min(result.clean) > 3 > -3 > max(result.corrupted)
        assert not any(result.alignments)
    finally:
        LIBRARY.hold(Settings(tiny.folder))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a\ud800,b, c", "text in UTF-8"),
        ("caf\ufffd,b, c", "text in UTF-8"),
        ("clean,corrupted,target,weight\na,b, c,3", "each once"),
        ("clean,clean,corrupted,target\na,b,c, d", "each once"),
    ],
)
def test_other_encodings_and_columns_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        circuits.PromptSet.from_text(text)


def test_line_ends_of_any_system_are_read() -> None:
    assert len(circuits.PromptSet.from_text("a,b, c\rd,e, f\r\ng,h, i\n")) == 3
