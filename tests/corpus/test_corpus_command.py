"""The command over many texts: its words and errors, and that any order, shard, kill and resume gives the same bytes."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from margins import approx
from tiny_models import TinyModels
from tiny_pictures import TinyPictureModels

from attention import FileError, metrics
from attention.corpus import command as corpus_command
from attention.corpus import scan
from attention.corpus.command import _duration, _estimate_words, _progress, _ProgressLines, main
from attention.corpus.result import HeadsResult
from attention.corpus.run_plan import RunPlan
from attention.corpus.scan import PartsFolder, part_name
from attention.models.library import LIBRARY, Settings

TEXTS = (
    "the owl asked the moon and the moon blinked",
    "she sells, sea shells. The sea",
    "the cat",
    "a quiet harbor watched the copper moon; the owl asked the moon",
    "keys and queries meet",
    "attention is a weighted sum",
    "x",
    "the cat sat on the mat and the cat slept",
    "sea shells meet the sea",
)
RESULTS = ("heads.parquet", "corpus.json")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Runs the command in this process: its exit code, what it prints, and its errors."""
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.setenv(name, "1")

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exited:  # argparse
            code = int(exited.code or 0)
        return code, *capsys.readouterr()

    yield run
    LIBRARY.hold(Settings())


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(TEXTS))
    return path


def digest(folder: Path) -> list[str]:
    """SHA-256 of the results of a folder."""
    return [sha256((folder / name).read_bytes()).hexdigest() for name in RESULTS]


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "parts").iterdir())


def test_command_plans_computes_and_names_the_strongest_heads(
    command: Command, tiny: TinyModels, texts: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "heads"
    code, output, errors = command(tiny("GPT-2"), texts, "-o", f"{folder}/", "--chunk-size", "4", "--top", "3")
    assert code == 0, errors
    result = HeadsResult.open(folder)
    n_metrics = len(result.metrics)
    for words in (
        r"Model {6}\S+GPT-2: 8 heads in 2 layers, \d+ MB",
        r"Texts {6}9 texts from 1 file; left out: 8 of white space alone; about \d+ tokens, a text is cut at 256",
        rf"Metrics {{4}}{n_metrics} of each head; 3 top texts of each",
        r"By chance {2}uniform attention; its own distances, where a metric matches words",
        r"Controls {3}the words of each text shuffled; random tokens, twice",
        rf"Parts {{6}}3 in {folder}, one for 4 texts\n",
        r"Estimate {3}about \d+ seconds? on 1 worker of one thread\n",
        r"about [\d.]+ MB of parts",
        rf"Read {re.escape(result.words())}\.",
        r"metric +head +mean +sd +by chance +shuffled +random +next heads",
        rf"Open the page Heads of the Lab, and choose {folder}/heads\.parquet",
    ):
        assert re.search(words, output), words
    for metric in result.metrics:
        mean = result.column(metric, "mean")
        enough = result.column(metric, "count") > 0.1 * len(TEXTS)
        by_control = metrics.find(metric).control == "random"
        ranked = result.column(metric, "random_mean") if by_control else mean
        best = max((head for head in range(len(mean)) if enough[head]), key=lambda head: ranked[head], default=None)
        row = re.search(rf"^{metric} +(?:L(\d) H(\d) +(\S+)|no text)", output, re.MULTILINE)
        assert row, metric
        if best is not None:
            assert (int(row[1]), int(row[2])) == result.heads[best], metric
            assert float(row[3]) == approx(mean[best], step=0.1, terms=1024)
    assert "9 of 9 texts in " in errors
    assert "Merging the parts" in errors
    plan, _ = scan.make_plan(LIBRARY.get(str(tiny("GPT-2"))), TEXTS, chunk_size=4, top=3)
    assert scan._read_plan(PartsFolder(str(folder))) == plan
    assert (LIBRARY.settings.hub, os.environ["HF_HUB_OFFLINE"]) == (False, "1")


@pytest.mark.parametrize("family", ["ViT", "DINOv2", "CLIP", "LLaVA"])
def test_models_that_read_pictures_are_refused_in_a_sentence(
    command: Command, texts: Path, tmp_path: Path, picture_models: TinyPictureModels, family: str
) -> None:
    folder = picture_models(family)
    code, _, errors = command(folder, texts, "-o", tmp_path / "result")
    assert code != 0
    assert f"A run measures heads over texts; {folder} reads pictures: choose a model of texts" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "result" / scan.PLAN).exists()


def test_options_reach_the_plan_and_a_dry_run_computes_nothing(
    command: Command, tiny: TinyModels, texts: Path, tmp_path: Path
) -> None:
    options = ["--max-tokens", "8", "--top", "2", "--seed", "7", "--chunk-size", "5", "--control", "random", "--max-texts", "6"]  # fmt: skip
    arguments = [tiny("BERT"), texts, "-o", tmp_path / "a", *options]
    code, output, errors = command(*arguments, "--dry-run")
    assert code == 0, errors
    assert "6 texts from 1 file" in output
    assert "a text is cut at 8" in output
    assert "shuffled" not in output
    assert not (tmp_path / "a").exists()
    assert command(*arguments)[0] == 0
    plan = scan._read_plan(PartsFolder(str(tmp_path / "a")))
    assert (plan.n_texts, plan.max_tokens, plan.top, plan.seed) == (6, 8, 2, 7)
    assert (plan.chunk_size, plan.controls, plan.finds) == (5, ("random",), ())
    code, output, _ = command(*arguments[:3], tmp_path / "b", "--control", "none", "--find", 'from "cat" to "the"')
    plan = scan._read_plan(PartsFolder(str(tmp_path / "b")))
    assert (code, plan.controls, plan.finds) == (0, (), ('from "cat" to "the"',))
    assert re.search(r'^from "cat" to "the" +L\d H\d', output, re.MULTILINE)


def test_shards_share_a_folder_and_the_last_one_merges(
    command: Command, tiny: TinyModels, texts: Path, tmp_path: Path
) -> None:
    common = [tiny("GPT-2"), texts, "--chunk-size", "2", "-o"]
    assert command(*common, tmp_path / "one")[0] == 0
    shared = [*common, tmp_path / "shared", "--shard"]
    code, output, _ = command(*shared, "2/3")
    assert code == 0
    assert parts(tmp_path / "shared") == ["000002.npz"]
    assert f"4 parts of 5 are missing in {tmp_path / 'shared'} (0, 1, 3, 4): the shard that computes the last" in output
    assert command("merge", tmp_path / "shared")[0] == 1
    _, output, _ = command(*shared, "0/3")
    assert parts(tmp_path / "shared") == ["000000.npz", "000002.npz", "000003.npz"]
    assert "one for 2 texts; already there: 1\n" in output
    assert not (tmp_path / "shared" / "heads.parquet").exists()
    assert command(*shared, "1/3")[0] == 0
    assert digest(tmp_path / "shared") == digest(tmp_path / "one")
    (tmp_path / "shared" / "heads.parquet").unlink()
    code, output, _ = command("merge", f"{tmp_path / 'shared'}/")
    assert code == 0
    assert "Read 9 texts" in output
    assert digest(tmp_path / "shared") == digest(tmp_path / "one")


def test_every_input_gives_the_same_result(
    command: Command, tiny: TinyModels, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.csv").write_text("id,text\n" + "".join(f'{i},"{text}"\n' for i, text in enumerate(TEXTS)))
    assert command(tiny("GPT-2"), texts, "-o", tmp_path / "a")[0] == 0
    assert command(tiny("GPT-2"), tmp_path / "rows.csv", "-o", tmp_path / "b")[0] == 0
    for index in range(2):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO((tmp_path / "rows.csv").read_bytes())))
        arguments = ["-", "--stdin-format", "csv", "--column", "text", "--chunk-size", "5", "--shard", f"{index}/2"]
        assert command(tiny("GPT-2"), *arguments, "-o", tmp_path / "c")[0] == 0
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    results = [HeadsResult.open(tmp_path / name) for name in "ac"]
    assert [result.column("local", "mean") == approx(results[0].column("local", "mean")) for result in results]


class Undisturbed:
    """A run over `TEXTS` that nobody disturbed: its model, its plan and its results."""

    def __init__(self, model: Path, folder: Path) -> None:
        self.folder, self.url = folder / "undisturbed", str(folder / "undisturbed")
        self.plan, _ = scan.make_plan(LIBRARY.get(str(model)), TEXTS, chunk_size=2, top=3)
        scan.scan(self.plan, TEXTS, self.url)
        scan.merge(self.url)
        self.digest = digest(self.folder)


@pytest.fixture(scope="module")
def undisturbed(tiny: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(tiny("GPT-2"), tmp_path_factory.mktemp("runs"))


@pytest.mark.long  # random runs of the command
@settings(max_examples=12)
@given(data=st.data())
def test_any_order_shards_and_interruptions_give_the_same_bytes(
    data: st.DataObject, undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Chunks in any order, any shards in any order that stop after any part, any parts deleted and computed again."""
    folder = tmp_path_factory.mktemp("disturbed")
    plan, url = undisturbed.plan, str(folder)
    chunks = list(scan._chunks(plan, TEXTS))
    scan.hold_plan(PartsFolder(url), plan)
    for chunk in data.draw(st.permutations(chunks), "first by hand")[: data.draw(st.integers(0, len(chunks)))]:
        scan.scan_part(url, plan, chunk)
    for index in data.draw(st.sets(st.integers(0, len(chunks) - 1)), "deleted"):
        (folder / part_name(index)).unlink(missing_ok=True)
    n_shards = data.draw(st.integers(1, 4), "shards")
    for index in data.draw(st.permutations(range(n_shards)), "order of shards"):
        left = data.draw(st.integers(1, len(chunks)), "parts until the shard is stopped")

        def stop(_: int) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise KeyboardInterrupt

        try:
            scan.scan(plan, TEXTS, url, (index, n_shards), stop)
        except KeyboardInterrupt:
            scan.scan(plan, TEXTS, url, (index, n_shards))
    scan.merge(url)
    assert digest(folder) == undisturbed.digest


KILL_IN_THE_MIDDLE = """
import json, os, signal, sys, time
from attention.corpus.command import main
from attention.models import loading, running  # imported once for all
import torch, transformers
model, texts, folder, *names = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what runs in its background with Ctrl-C ignored
results = {}
for name in names:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        sync, n_files = os.fsync, 0
        def fsync(file):  # the file is written, and does not have its name yet
            global n_files
            n_files += 1
            if n_files == 4:  # the plan, two parts, and this one
                os.write(writer, b"x")
                while True:  # signal.pause() would miss one that comes just before it
                    time.sleep(0.01)
            sync(file)
        os.fsync = fsync
        with open(f"{folder}/{name}.txt", "w") as output:
            sys.stdout = sys.stderr = output
            code = main([model, texts, "--chunk-size=2", "--top=3", "-o", f"{folder}/{name}"])
        os._exit(code)
    os.close(writer)
    assert os.read(reader, 1) == b"x", open(f"{folder}/{name}.txt").read()
    os.kill(child, getattr(signal, name))
    results[name] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(results))
"""


@pytest.mark.long  # processes are killed
def test_killed_runs_lose_one_chunk_and_go_on(undisturbed: Undisturbed, texts: Path, tmp_path: Path) -> None:
    """Three processes, each ended in the middle of writing its third part: by kill -9, by SIGTERM, by Ctrl-C."""
    ends = {"SIGKILL": -signal.SIGKILL, "SIGTERM": 143, "SIGINT": 130}
    run = subprocess.run(
        [sys.executable, "-c", KILL_IN_THE_MIDDLE, undisturbed.plan.model, texts, tmp_path, *ends],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == ends
    for name in ends:
        folder, output = tmp_path / name, (tmp_path / f"{name}.txt").read_text()
        assert "Traceback" not in output
        assert (name != "SIGKILL") == ("run the same command again to go on" in output)
        done = [part for part in parts(folder) if not part.startswith(".")]
        assert done == ["000000.npz", "000001.npz"]
        assert (len(parts(folder)) > len(done)) == (name == "SIGKILL")  # its file without a name stays
        before = [(folder / "parts" / part).stat().st_mtime_ns for part in done]
        assert not (folder / "heads.parquet").exists()
        scan.scan(undisturbed.plan, TEXTS, str(folder))
        scan.merge(str(folder))
        assert [(folder / "parts" / part).stat().st_mtime_ns for part in done] == before
        assert digest(folder) == undisturbed.digest


def test_second_plan_at_the_same_moment_is_refused(
    undisturbed: Undisturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both processes have found no plan: the first one that writes it keeps the folder."""
    plan, other = undisturbed.plan, replace(undisturbed.plan, seed=1)
    folder = PartsFolder(str(tmp_path))
    exists = iter([False, True] * 3)
    monkeypatch.setattr(PartsFolder, "exists", lambda *_: next(exists))
    scan.hold_plan(folder, plan)
    with pytest.raises(FileError, match="another run: seed 0 instead of 1"):
        scan.hold_plan(folder, other)
    scan.hold_plan(folder, plan)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@cache
def sentences() -> tuple[str, ...]:
    """200 sentences of the documents of this repository."""
    found: list[str] = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        prose = re.sub(r"```.*?```|`[^`]*`|\[|\]\([^)]*\)|[*_#>|]", " ", path.read_text(), flags=re.DOTALL)
        found += re.findall(r"(?<=\s)[A-Z][^.!?]{30,250}[.!?](?=\s)", " ".join(prose.split()))
    return tuple(found[:200])


@pytest.mark.long  # 200 sentences in a real model
def test_real_model_has_its_known_heads_over_200_sentences(tmp_path: Path) -> None:
    """All-MiniLM-L6-v2: L0 H2 looks at the previous token of every text, shuffled ones included; L1 H8 at the next one."""
    assert len(sentences()) == 200
    run = subprocess.run(
        [sys.executable, "-m", "attention.corpus", "all-MiniLM-L6-v2", "-", "-o", tmp_path / "heads"],
        cwd=ROOT,
        input="\n".join(sentences()),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    assert "72 heads in 6 layers" in run.stdout
    assert re.search(r"^previous +L0 H2 +(1\.000|0\.9[5-9])", run.stdout, re.MULTILINE)
    result = HeadsResult.open(tmp_path / "heads")
    assert result.info["read"]["texts"] == 200
    assert result.info["read"]["random"] == 13  # one in 16

    def strongest(metric: str) -> tuple[int, int]:
        return result.heads[int(result.column(metric, "mean").argmax())]

    def mean(metric: str, head: tuple[int, int], name: str = "mean") -> float:
        return float(result.column(metric, name)[result.heads.index(head)])

    assert strongest("previous") == strongest("local") == (0, 2)
    assert mean("previous", (0, 2)) > 0.95
    assert mean("previous", (0, 2), "shuffled_mean") > 0.95
    assert mean("previous", (0, 2), "uniform") < 0.2
    assert result.column("previous", "sd")[result.heads.index((0, 2))] < 0.02
    assert strongest("next") == (1, 8)
    assert mean("next", (1, 8)) > 0.5
    assert (4, 5) in [result.heads[i] for i in (-result.column("first token", "mean")).argsort()[:5]]
    assert strongest("distant induction") != (0, 2)
    assert mean("distant induction", (0, 2)) < mean("distant induction", (0, 2), "uniform")


def test_tiny_run_without_a_terminal_is_quiet_about_bars() -> None:
    clock = iter([0.0, 10.0, 40.0, 50.0, 60.0])
    stream = io.StringIO()
    lines = _ProgressLines(1000, stream, lambda: next(clock))
    for _ in range(4):
        lines.add(250)
    assert stream.getvalue() == "500 of 1,000 texts, about 40 seconds left\n1,000 of 1,000 texts in 1 minute\n"


def test_terminal_has_a_bar() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    with _progress(20, stream) as report:
        report(10)
        report(10)
    assert "20/20" in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 second"), (2.4, "2 seconds"), (59, "59 seconds"), (90, "1.5 minutes"), (60, "1 minute"), (600, "10 minutes"), (5400, "1.5 hours"), (90_000, "1 day"), (10**6, "12 days")],
)  # fmt: skip
def test_durations_have_two_digits(seconds: float, words: str) -> None:
    assert _duration(seconds) == words


def test_estimate_speaks_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert "about 2 hours on 1 worker of one thread; this machine has 8 cores" in _estimate_words(7200.0, 20_000_000, 1)
    words = _estimate_words(7200.0, 20_000_000, 8)
    assert "about 15 minutes on 8 workers of one thread\n" in words
    assert "about 20.0 MB of parts" in words
    assert "divided by the number of workers" in _estimate_words(7200.0, 20_000_000, 0)


def test_workers_are_those_of_the_cluster(
    command: Command, tiny: TinyModels, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def scan_on_cluster(plan: RunPlan, texts: Any, url: str, **arguments: Any) -> None:
        calls.append((arguments.pop("workers"), arguments.pop("scheduler"), arguments["shard"]))
        scan.scan(plan, texts, url, **arguments)

    monkeypatch.setattr(corpus_command, "scan_on_cluster", scan_on_cluster)
    common = [tiny("GPT-2"), texts, "-o"]
    assert command(*common, tmp_path / "a", "--workers", "2")[0] == 0
    assert command(*common, tmp_path / "b", "--scheduler", "tcp://127.0.0.1:8786", "--shard", "0/1")[0] == 0
    assert command(*common, tmp_path / "c", "--workers", "1")[0] == 0
    assert calls == [(2, "", (0, 1)), (0, "tcp://127.0.0.1:8786", (0, 1)), (0, "", (0, 1))]
    assert digest(tmp_path / "a") == digest(tmp_path / "b") == digest(tmp_path / "c")


def test_model_may_be_called_merge(command: Command, tiny: TinyModels, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    copytree(tiny("GPT-2"), tmp_path / "merge")
    monkeypatch.chdir(tmp_path)
    code, output, _ = command("./merge", texts, "--dry-run")
    assert (code, "./merge: 8 heads" in output) == (0, True)
    code, _, errors = command("merge", texts, "--dry-run")
    assert (code, "usage: python -m attention.corpus merge" in errors) == (2, True)


def test_models_are_named_in_the_folder_of_the_lab(
    command: Command, tiny: TinyModels, texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_MODELS", str(tiny("GPT-2").parent))
    code, output, errors = command("GPT-2", texts, "--dry-run")
    assert code == 0, errors
    assert "Model      GPT-2: 8 heads" in output


REFUSED: dict[str, tuple[list[str], int, str]] = {
    "no texts": (["MODEL"], 2, r"the following arguments are required: texts"),
    "shard": (["MODEL", "TEXTS", "--shard", "3/3"], 2, r"a shard is i/n with i from 0 to n − 1, such as 0/4; got '3/3'"),
    "no number": (["MODEL", "TEXTS", "--shard", "a/b"], 2, r"got 'a/b'"),
    "control": (["MODEL", "TEXTS", "--control", "odd"], 2, r"invalid choice: 'odd'"),
    "folder": (["MODEL", "TEXTS", "-o", "/"], 2, r"a folder has a name"),
    "model of the hub": (["org/name", "TEXTS"], 1, r"there is no org/name: choose another, or put it there"),
    "no file": (["MODEL", "none.txt"], 1, r"none\.txt should be a file or a folder of texts"),
    "column": (["MODEL", "TABLE", "--column", "x"], 1, r"should have a column 'x'; it has text, n: choose one with --column"),
    "empty": (["MODEL", "EMPTY"], 1, r"needs at least one text that is not empty; got none"),
    "top": (["MODEL", "TEXTS", "--top", "0"], 1, r"The number of examples is from 1 to 100; got 0"),
    "number of texts": (["MODEL", "TEXTS", "--max-texts", "-1"], 1, r"0, for all, or more; got -1"),
    "device": (["MODEL", "TEXTS", "--device", "abacus"], 1, r"A device is one that torch finds here"),
    "protocol": (["MODEL", "TEXTS", "-o", "nope://x"], 1, r"'nope://x' is neither here"),
    "file": (["MODEL", "TEXTS", "-o", "TABLE"], 1, r"plan\.json cannot be written"),
    "folder of texts": (["MODEL", "TEXTS", "-o", "TEXTS"], 1, r"a run needs a folder of its own: choose another with -o"),
    "another run": (["MODEL", "TEXTS", "-o", "RUN", "--top", "4"], 1, r"parts of another run: top 3 instead of 4\. Choose another folder with -o"),
    "other texts": (["MODEL", "TABLE", "-o", "RUN"], 1, r"parts of another run: n texts 9 instead of 1"),
    "rule": (["MODEL", "TEXTS", "--find", "it at the"], 1, r"A find rule needs from"),
    "merge": (["merge", "EMPTY"], 1, r"should be the folder of a run"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_errors_are_a_sentence_and_an_exit_code(
    case: str, command: Command, undisturbed: Undisturbed, texts: Path, tmp_path: Path
) -> None:
    (tmp_path / "table.csv").write_text("text,n\na,1\n")
    (tmp_path / "empty.txt").write_text("\n \n")
    places = {
        "MODEL": undisturbed.plan.model,
        "TEXTS": str(texts),
        "TABLE": str(tmp_path / "table.csv"),
        "EMPTY": str(tmp_path / "empty.txt"),
        "RUN": undisturbed.url,
    }
    arguments, code, match = REFUSED[case]
    named = [places.get(argument, argument) for argument in arguments]
    elsewhere = [] if "-o" in named or code == 2 or "merge" in named else ["-o", str(tmp_path / "heads")]
    got, output, errors = command(*named, *elsewhere)
    assert not (tmp_path / "heads").exists()
    assert (got, output) == (code, "")
    assert re.search(match, errors)
    assert digest(undisturbed.folder) == undisturbed.digest


def test_missing_packages_are_named(command: Command, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_command, "find_spec", lambda name: None if name == "pyarrow" else name)
    code, _, errors = command("model", texts)
    assert code == 1
    assert re.match(r"This command needs pyarrow, which is not installed: install attention-lab with its extra “corpus”", errors)  # fmt: skip
