"""The operator's limits: read from the environment, reported in words, and respected in memory."""

import gc
import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from conftest import ROOT, set_knobs
from test_pages import PAGES, drawn, here, opened, said

from attention import AttentionConfig, ConfigError, Matrices, Trace, TypedText
from attention.base.cache import CACHE
from benchmarks.attack import WAIT, WAIT_OF_MODELS
from benchmarks.harm import ATTACKS
from benchmarks.server import Server
from pages.ui.server import limits
from pages.ui.server.limits import LIMITS, process_memory
from pages.ui.state import knob_state


def starts(**environment: str) -> subprocess.CompletedProcess[str]:
    expression = "print(limits.MAX_TOKENS, limits.TRACE_CACHE_MB, limits.MODELS, limits.ALLOW_LOCAL_MODELS, limits.HF_ALLOW, sep='|')"
    command = [sys.executable, "-W", "ignore", "-c", f"from pages.ui.server import limits; {expression}"]
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, timeout=600, check=False
    )


def test_limits_come_from_the_environment() -> None:
    defaults = f"2048|256|{ROOT / 'models'}|False|False"
    assert starts().stdout.splitlines()[-1] == defaults
    assert starts(LAB_MAX_TOKENS="100", LAB_TRACE_CACHE_MB="300").stdout.startswith("100|300|")


def test_operator_chooses_the_available_models(tmp_path: Path) -> None:
    run = starts(LAB_MODELS=str(tmp_path), LAB_ALLOW_LOCAL_MODELS="yes", LAB_HF_ALLOW="gpt2@main  org/name.x@1f2e")
    assert run.stdout.endswith(f"|{tmp_path}|True|{{'gpt2': 'main', 'org/name.x': '1f2e'}}\n")
    assert starts(LAB_HF_ALLOW="yes").stdout.endswith("|True\n")


@pytest.mark.long  # a server each
@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        (
            "LAB_MODELS",
            "/no/such/folder",
            "LAB_MODELS must be a folder that the server can read; got '/no/such/folder'",
        ),
        ("LAB_ALLOW_LOCAL_MODELS", "on", "LAB_ALLOW_LOCAL_MODELS must be one of yes, true, 1, no, false, 0; got 'on'"),
        ("LAB_ALLOW_LOCAL_MODELS", "", "LAB_ALLOW_LOCAL_MODELS must be one of yes, true, 1, no, false, 0; got ''"),
        ("LAB_HF_ALLOW", "org/name", "LAB_HF_ALLOW must be yes, no, or models with revisions"),
        ("LAB_HF_ALLOW", "gpt2@main ../name@main", "got '../name@main': write id@revision"),
        ("LAB_HF_ALLOW", "gpt2@main gpt2@v1", "LAB_HF_ALLOW must have one revision for each model; got two for 'gpt2'"),
        ("LAB_HF_ALLOW", " ", "LAB_HF_ALLOW must be yes, no, or models as id@revision; got ' '"),
        (
            "LAB_REPLICA",
            "lab 1;",
            "LAB_REPLICA must be at most 64 letters, digits, points, hyphens and underscores, such as lab-1; got 'lab 1;'",
        ),
        ("LAB_MODEL_CACHE_MB", "1000", "LAB_MODEL_CACHE_MB must be at least LAB_MAX_MODEL_MB; got 1000 and 4096"),
    ],
)
def test_server_with_malformed_model_limits_does_not_start(name: str, value: str, sentence: str) -> None:
    run = starts(**{name: value})
    assert run.returncode
    assert sentence in run.stderr
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("texts", "expected"), [("yes true 1 YES True", "True"), ("no false 0 No FALSE", "False")], ids=["true", "false"]
)
def test_boolean_variables_read_every_usual_word(texts: str, expected: str) -> None:
    for text in texts.split():
        run = starts(LAB_ALLOW_LOCAL_MODELS=text, LAB_HF_ALLOW=text)
        assert run.stdout.endswith(f"|{expected}|{expected}\n"), text


@pytest.mark.long  # a server each
@pytest.mark.parametrize("text", ["many", "0", "-5", "1e9", "", "999999999", "٣"])
def test_server_with_a_malformed_limit_does_not_start(text: str) -> None:
    run = starts(LAB_MAX_TOKENS=text)
    assert run.returncode
    assert "LAB_MAX_TOKENS must be a whole number from 1 to 8,192" in run.stderr


def test_server_names_unknown_variables_once_at_startup() -> None:
    with Server(LAB_MAX_TOKEN="10", LAB_MODELCACHE_MB="1", LAB_XYZZY="", LAB_PORT="1", LAB_REPLICA="a") as server:
        log = server.errors()
    known = "LAB_MAX_TOKEN (did you mean LAB_MAX_TOKENS?), LAB_MODELCACHE_MB (did you mean LAB_MODEL_CACHE_MB?)"
    assert log.count(f"Ignored unknown environment variables: {known}, LAB_XYZZY\n") == 1
    assert "unknown" not in starts(LAB_MAX_TOKENS="10").stderr
    assert log.count(f"\n{process_memory(0)[1]}\n") == 1


def test_cache_that_cannot_hold_two_traces_is_refused() -> None:
    assert "LAB_TRACE_CACHE_MB must be at least twice" in starts(LAB_TRACE_CACHE_MB="64").stderr


@pytest.mark.quick
def test_documented_limits_are_complete_with_their_defaults() -> None:
    document = (ROOT / "docs" / "limits-and-privacy.md").read_text(encoding="utf-8")
    source = (ROOT / "pages" / "ui" / "server" / "limits.py").read_text(encoding="utf-8")
    numbers = re.findall(r'(?:=|return) _limit\("(\w+)", ([\d_]+),', source)
    numbers = [(name, default.replace("_", "")) for name, default in numbers]
    words = {
        "TRACE_CACHE_MB": "twice `LAB_MAX_TRACE_MB`",
        "FRAME_ANCESTORS": "",
        "REPLICA": "",
        "MODELS": "`models/`",
        "RESULTS": "`results/`",
        "ALLOW_LOCAL_MODELS": "no",
        "ALLOWED_HOSTS": "",
        "HF_ALLOW": "no",
    }
    defaults = [*numbers, *words.items()]
    assert set(re.findall(r"`LAB_(\w+)` \| ", document)) == {name for name, _ in defaults}
    for name, default in defaults:
        assert re.search(rf"^\| `LAB_{name}` \| {default} ?\|", document, re.MULTILINE), name


@pytest.mark.quick
def test_documented_waits_are_those_of_the_attacks() -> None:
    limits_text, benchmarks_text, table = (
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("docs/limits-and-privacy.md", "docs/benchmarks.md", "benchmarks/README.md")
    )
    texts, models = f"{WAIT:g}", f"{WAIT_OF_MODELS:g}"
    assert re.findall(
        r"waits for a turn at most (\d+) second, .* at most (\d+) seconds for the next head", limits_text
    ) == [(texts, models)]
    assert re.findall(r"turn during each attack .* at most (\d+) s, with a model (\d+) s for", benchmarks_text) == [
        (texts, models)
    ]
    assert {attack.wait for attack in ATTACKS} == {WAIT, WAIT_OF_MODELS}
    words = {1: "a second", 3: "three"}
    assert f"within {words[WAIT]}, or one who looks at the heads of a model within {words[WAIT_OF_MODELS]}" in table


def test_oversized_trace_gets_one_sentence_before_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knob_state, "LIMITS", replace(LIMITS, trace_mb=4))
    words = [f"w{i}" for i in range(512)]
    app = opened("app.py", text=" ".join(words), heads="32", dropout="0.5")
    assert not app.exception
    assert not drawn(app)
    assert "All steps need at most 4 MB here; 1 head of 512 × 512 scores, and 32 · 2 columns" in said(app).replace(
        "\\", ""
    )


def test_only_the_shown_head_is_kept_above_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knob_state, "LIMITS", replace(LIMITS, trace_mb=8))
    app = opened("app.py", text=" ".join(f"w{i}" for i in range(512)), heads="32", head="7")
    assert not app.exception
    assert [figure["layout"]["meta"]["step"] for figure in drawn(app)] == ["scores", "weights", "output"]
    assert "H7" in drawn(app)[1]["layout"]["title"]["subtitle"]["text"]


@pytest.mark.quick
def test_both_sources_respect_their_byte_limits() -> None:
    column = ((1.0,), (2.0,))
    text = TypedText("the owl asked the moon and the moon blinked")
    alone = replace(
        text, max_bytes=text.memory_bytes() - 1
    )  # all heads together exceed the limit: they are computed singly
    for source, words in (
        (alone, "1 head of 9 × 9 scores, and 4 · 16 columns of d_model 64"),
        (Matrices(query=column, key=column, value=column), "1 head of 2 × 2 scores"),
    ):
        with pytest.raises(ConfigError, match=words):
            replace(source, max_bytes=source.memory_bytes() - 1).trace()
        replace(source, max_bytes=source.memory_bytes()).trace()


@pytest.mark.quick
@pytest.mark.parametrize("knobs", [{"positions": "sinusoidal", "mask": "causal"}, {"dropout": 0.5, "d_k": 96, "d_v": 8}, {"init": "identity"}])  # fmt: skip
@pytest.mark.parametrize("text2", ["", "a second text"])
@pytest.mark.parametrize("all_heads", [True, False])
def test_trace_memory_is_counted_completely_in_advance(knobs: dict[str, Any], text2: str, all_heads: bool) -> None:
    source = TypedText(" ".join(f"w{i}" for i in range(90)), AttentionConfig(**knobs), text2)
    if not all_heads and source.config.sizes.n_heads > 1:
        source = replace(source, max_bytes=source.memory_bytes() - 1)
    layer = source.trace().layers[0]
    assert layer.materialize_all_heads == (all_heads or layer.n_heads == 1)
    sizes = {
        matrix.untyped_storage().data_ptr(): matrix.untyped_storage().nbytes()
        for step in layer.steps
        for matrix in [
            layer[step.name] if layer.materialize_all_heads or step.name in layer.recorded else layer.matrix(step.name)
        ]
    }
    sizes |= {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in layer.recorded.values()
    }
    assert sum(sizes.values()) <= source.memory_bytes() < 3 * sum(sizes.values())


@pytest.mark.parametrize("wide", [{"d_k": "1024"}, {"d_v": "129"}])
@pytest.mark.parametrize("page", here("app.py", "pages/learn.py?chapter=softmax"))
def test_heads_that_are_too_wide_together_get_one_sentence(page: str, wide: dict[str, str]) -> None:
    app = opened(page, d_model="1024", heads="32", **wide)
    assert not app.exception
    [(name, size)] = wide.items()
    assert f"heads · {name} is at most 4,096; got 32 · {int(size):,} =" in said(app).replace("\\", "")
    assert not drawn(app)


@pytest.mark.quick
def test_trace_bytes_are_those_of_the_recorded_tensors() -> None:
    trace = TypedText("a b c", AttentionConfig(d_model=8, n_heads=2, init="identity")).trace()
    assert trace.nbytes == 3 * 8 * 4  # X, which is also Q, K and V
    assert [step.name for step, _ in trace.layers[0]][-1] == "head_output"  # everything is computed …
    assert trace.nbytes == 3 * 8 * 4  # … and only recorded tensors count


@pytest.mark.parametrize("page", PAGES)
def test_open_session_does_not_keep_a_trace_from_eviction(page: str) -> None:
    app = opened(page, text="a session that stays open")
    cache = CACHE.cache
    assert cache.currsize >= sum(getattr(value, "nbytes", 0) + 20_000 for value in cache.values())
    traces = [trace for trace in cache.values() if isinstance(trace, Trace) and "session" in trace.tokens]
    references = [*map(ref, traces), *(ref(trace.layers[0]) for trace in traces)]
    assert references
    del traces
    cache.clear()
    gc.collect()
    assert [reference() for reference in references] == [None] * len(references)
    set_knobs(app, head=1)  # the page still works
    assert not app.exception


MAXIMA: dict[str, Any] = {
    "tokens": limits.MAX_TOKENS, "text2": limits.MAX_TOKENS, "d_model": limits.MAX_D_MODEL, "n_heads": limits.MAX_HEADS,
    "d_k": limits.MAX_D_MODEL, "d_v": limits.MAX_D_MODEL, "dropout": 0.9, "positions": "sinusoidal", "mask": "causal", "pad": True,
}  # fmt: skip


def counted(knobs: dict[str, Any]) -> str:
    """The reason why a source with these knobs is refused before it is computed, or empty."""
    texts = [
        " ".join(f"w{i % 500}" for i in range(knobs.get(name, default)))
        for name, default in (("tokens", 9), ("text2", 0))
    ]
    of_config = {name: value for name, value in knobs.items() if name not in ("tokens", "text2", "pad")}
    limit = limits.MAX_TRACE_MB * 2**20
    try:
        config = AttentionConfig(**of_config)
        source = TypedText(texts[0], config, texts[1], True, limits.MAX_TOKENS, 0, "pad" in knobs, limit)
        assert source.memory_bytes() <= limit
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.quick
def test_every_pair_of_maxima_is_counted_or_refused() -> None:
    """`benchmarks.maxima` opens all of them, in 1 GiB."""
    refused = {pair: counted({name: MAXIMA[name] for name in pair}) for pair in combinations(MAXIMA, 2)}
    for reason in filter(None, refused.values()):
        assert reason.count(": ") == 1
        assert reason.endswith(".")
    assert "heads · d_k is at most 4,096" in refused["n_heads", "d_k"]
    assert "All steps need at most 128 MB" in refused["tokens", "d_k"]
    assert not refused["d_model", "n_heads"]
