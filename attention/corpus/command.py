"""The command `python -m attention.corpus`: its arguments, its run, its progress on the standard error stream, and what it says of plan and result."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, TextIO

import numpy as np

from attention import __version__
from attention.base.errors import AttentionError, FileError
from attention.base.printed import plural
from attention.corpus import scan
from attention.corpus.cluster import hold_local_models, scan_on_cluster
from attention.corpus.run_plan import CONTROL_WORDS, CONTROLS
from attention.corpus.texts import LINE_FORMATS, LINES, TextFiles
from attention.metrics.metric import BY_DISTANCE, RANDOM, SHUFFLED, UNIFORM

if TYPE_CHECKING:
    from attention.corpus.result import HeadsResult
    from attention.corpus.run_plan import RunPlan
    from attention.models.loaded import LoadedModel

_PROGRAM = "python -m attention.corpus"
_MERGE = "merge"  # the first argument that merges parts instead; a model of this name is ./merge
_NO_CONTROL = "none"
_PACKAGES = ("fsspec", "pyarrow", "safetensors", "tqdm", "transformers")  # what the extra `corpus` installs
_INTERRUPTED, _TERMINATED = 130, 143  # the exit codes of a process that SIGINT or SIGTERM ends

_CONTROL_WORDS = {SHUFFLED: "the words of each text shuffled", RANDOM: "random tokens, twice, for one text in 16"}

_PROGRESS_SECONDS = 30  # between two lines, where there is no terminal
_ESTIMATE_TEXTS = 64  # the texts that are measured for an estimate, at most
_ENOUGH_SECONDS, _ENOUGH_TOKENS, _MAX_ESTIMATE_SECONDS = 1.0, 500, 20.0
_LONG_SECONDS = 120
_RUNNERS_UP = 2
_MIN_TEXTS = 0.1  # of all texts: a mean over fewer is not listed first


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a run as Ctrl-C does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; its exit code. Errors are a sentence on the standard error stream."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_merge = given[:1] == [_MERGE]
    parser = _merge_parser() if is_merge else _parser()
    options = parser.parse_args(given[1:] if is_merge else given)
    try:
        if missing := [name for name in _PACKAGES if find_spec(name) is None]:
            raise AttentionError(
                f"This command needs {', '.join(missing)}, which {'are' if len(missing) > 1 else 'is'} not installed: "
                f"install attention-lab with its extra “corpus”, for example pip install 'attention_lab-{__version__}-py3-none-any.whl[corpus]'."
            )
        with _sigterm_as_interrupt():
            _merge(options.folder) if is_merge else _run(options, options.output)
    except AttentionError as error:
        _say(error)
        return 1
    except BrokenPipeError:  # such as | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as interrupt:
        again = "" if is_merge else " Finished parts stay: run the same command again to go on."
        _say(f"\nStopped.{again}")
        return _TERMINATED if isinstance(interrupt, _Terminated) else _INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        _PROGRAM,
        description="Measures every head of a model over many texts, by chance and on controls, and writes one table of all heads: heads.parquet. "
        "Stopped at any moment, it goes on where it was when the same command runs again. It never uses the network.",
        epilog=f"“{_PROGRAM} {_MERGE} FOLDER” merges the parts of a folder that several runs with --shard have filled. "
        "The page Heads of the Lab opens heads.parquet.",
    )
    add = parser.add_argument
    add(
        "model",
        help="a folder of this machine, or the name of a model in LAB_MODELS, ./models, or the cache of the hub",
    )
    add(
        "texts",
        nargs="+",
        help="files (.txt .jsonl .csv .tsv, each also .gz; .parquet .arrow), folders of them, datasets that “datasets” saved, or - for standard input",
    )
    add("-o", "--output", type=_folder, default="heads", metavar="FOLDER", help="the folder of the parts and of the table, or a URL such as s3://bucket/heads (default: heads)")  # fmt: skip
    add("--column", default="", help="the column of the texts (default: “text”, or the only one with texts)")
    add("--paragraphs", action="store_true", help="in .txt, a text is a paragraph, and not a line")
    add(
        "--stdin-format",
        default=LINES,
        choices=LINE_FORMATS,
        help="the format of standard input (default: %(default)s)",
    )
    add("--max-texts", type=int, default=0, metavar="N", help="read the first N texts alone")
    add("--max-tokens", type=int, default=256, metavar="N", help="cut a text at N tokens (default: %(default)s)")
    add("--top", type=int, default=20, metavar="N", help="keep the N top texts of each head and metric (default: %(default)s)")  # fmt: skip
    add(
        "--control",
        action="append",
        choices=(*CONTROLS, _NO_CONTROL),
        help="a control: the words of each text shuffled (words are cut by the rule of the model's tokenizer, which the plan names; a text whose order cannot change is not counted), or random tokens that are repeated; may be given twice (default: both)",
    )
    add("--find", action="append", default=[], metavar="RULE", help='measure a rule too, such as \'from "it" to "animal"\'; may be given often')  # fmt: skip
    add("--device", default="", help="of torch, such as cuda (default: cpu)")
    add("--seed", type=int, default=0, help="of the controls (default: %(default)s)")
    add("--chunk-size", type=int, default=128, metavar="N", help="the number of texts in a part (default: %(default)s)")
    add(
        "--shard",
        type=_shard,
        default=(0, 1),
        metavar="i/n",
        help="compute the i-th of n shares of the parts, from 0, into the same folder: for several terminals or an array of jobs",
    )
    add("--workers", type=int, default=0, metavar="N", help="compute in N processes of this machine")
    add("--scheduler", default="", metavar="URL", help="compute on the workers of a Dask scheduler, such as tcp://host:8786")  # fmt: skip
    add("--dry-run", action="store_true", help="print the plan, and stop")
    add("--version", action="version", version=__version__)
    return parser


def _merge_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        f"{_PROGRAM} {_MERGE}", description="Merges the parts of a run into heads.parquet and corpus.json."
    )
    parser.add_argument("folder", type=_folder, help="the folder of the run, or its URL")
    return parser


def _shard(text: str) -> tuple[int, int]:
    """A share of the parts, such as 0/4: its index, and the number of shares."""
    index, _, count = text.partition("/")
    numbers = [int(part) for part in (index, count) if part.isascii() and part.isdigit() and len(part) < 10]
    if len(numbers) < 2 or not numbers[0] < numbers[1]:
        raise argparse.ArgumentTypeError(f"a shard is i/n with i from 0 to n − 1, such as 0/4; got {text[:40]!r}")
    return numbers[0], numbers[1]


def _folder(text: str) -> str:
    """The path or URL of a folder, without a slash at its end."""
    if not text.strip("/ "):
        raise argparse.ArgumentTypeError(f"a folder has a name, such as heads; got {text!r}")
    return text.rstrip("/")


def _run(options: argparse.Namespace, url: str) -> None:
    from attention.models.library import LIBRARY

    if any(os.path.realpath(text) == os.path.realpath(url) for text in options.texts):  # also of a loop of links
        raise FileError(f"{url} is a folder of texts; a run needs a folder of its own: choose another with -o.")
    hold_local_models()
    files, stdin = (options.texts, options.column, options.paragraphs), getattr(sys.stdin, "buffer", None)
    texts = TextFiles(*files, options.max_texts, stdin, options.stdin_format)
    folder = scan.PartsFolder(url)
    _say(f"Loading {options.model} …")
    loaded = LIBRARY.get(options.model, options.device)
    controls = set(options.control or CONTROLS) - {_NO_CONTROL}
    _say("Reading the texts and the files of the model …")
    plan, n_tokens = scan.make_plan(
        loaded,
        texts,
        max_tokens=options.max_tokens,
        top=options.top,
        controls=tuple(control for control in CONTROLS if control in controls),
        finds=tuple(options.find),
        seed=options.seed,
        chunk_size=options.chunk_size,
    )
    _ = plan.metrics  # a rule of --find that is none ends here, and leaves no plan
    if folder.exists(scan.PLAN) or not options.dry_run:
        scan.hold_plan(folder, plan)
    present = folder.present()
    print(_plan_words(loaded, plan, n_tokens, texts.words(), len(present), url))
    mine = range(options.shard[0], plan.n_chunks, options.shard[1])
    if missing := [index for index in mine if index not in present]:
        sample = list(islice(texts, _ESTIMATE_TEXTS))
        seconds, part_bytes = _estimate_run(loaded, plan, sample, n_tokens * len(missing) / plan.n_chunks)
        n_workers = 0 if options.scheduler else max(1, options.workers)
        print(_estimate_words(seconds, part_bytes * plan.n_chunks, n_workers), flush=True)
    if options.dry_run:
        return
    if missing:
        n_texts = sum(min(plan.chunk_size, plan.n_texts - index * plan.chunk_size) for index in mine)
        with _progress(n_texts, sys.stderr) as report:
            scan_on_cluster(
                plan,
                texts,
                url,
                workers=options.workers if options.workers > 1 or options.scheduler else 0,
                scheduler=options.scheduler,
                shard=options.shard,
                report=report,
                device=options.device,
            )
    present = folder.present()
    if not present.issuperset(range(plan.n_chunks)):
        print(_missing_words(plan, present, url))
        return
    _merge(url)


def _merge(url: str) -> None:
    from attention.corpus.result import HeadsResult

    _say("Merging the parts …")
    scan.merge(url)
    content = scan.PartsFolder(url).read(scan.TABLE)
    result = HeadsResult.of(scan.TABLE, content, len(content))
    shuffling = f" {result.shuffling}" if result.shuffling else ""
    print(f"\nRead {result.words()}.{shuffling}\n\n{_strongest_words(result)}\n")
    print(f"Open the page Heads of the Lab, and choose {url}/{scan.TABLE}.")


def _say(words: object) -> None:
    print(words, file=sys.stderr, flush=True)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """A context in which SIGTERM ends a run as Ctrl-C does; signals belong to the main thread."""

    def interrupt(*_: object) -> None:
        raise _Terminated

    if current_thread() is not main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


@contextmanager
def _progress(n_texts: int, stream: TextIO) -> Iterator[Callable[[int], None]]:
    """A context with a function that receives the number of texts of each chunk that is done."""
    if stream.isatty():
        from tqdm import tqdm

        with tqdm(total=n_texts, unit=" texts", file=stream, dynamic_ncols=True) as bar:
            yield lambda n: bar.update(n) and None
        return
    yield _ProgressLines(n_texts, stream).add


class _ProgressLines:
    """Lines that say how many texts are done, at most one in `_PROGRESS_SECONDS` seconds, and one at the end."""

    def __init__(self, n_texts: int, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.n_texts, self.n_done = n_texts, 0
        self._stream, self._clock = stream, clock
        self._start = self._last = clock()
        self._last_done = 0

    def add(self, n_texts: int) -> None:
        self.n_done += n_texts
        now = self._clock()
        if now - self._last < _PROGRESS_SECONDS and self.n_done < self.n_texts:
            return
        left = (now - self._last) / (self.n_done - self._last_done) * (self.n_texts - self.n_done)
        self._last, self._last_done = now, self.n_done
        took = f" in {_duration(now - self._start)}"
        rest = f", about {_duration(left)} left" if self.n_done < self.n_texts else took
        print(f"{self.n_done:,} of {self.n_texts:,} texts{rest}", file=self._stream, flush=True)


def _duration(seconds: float) -> str:
    """A duration in words, with two digits at most."""
    for size, noun in ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        count = seconds / size
        if count >= 1 or noun == "second":
            rounded = max(1, round(count)) if count >= 3 or noun == "second" else round(count, 1)
            return f"{rounded:g} {noun}{'' if rounded == 1 else 's'}"
    raise AssertionError


def _estimate_run(loaded: LoadedModel, plan: RunPlan, texts: Sequence[str], n_tokens: float) -> tuple[float, int]:
    """The seconds of one worker for a number of tokens, and the bytes of a part, from computing a few of the texts, at most a tenth of all."""
    from attention.corpus.chunk import Chunk, compute_chunk

    n, texts = 1, texts[: plan.n_texts // 10 + 1]
    with scan.one_thread():
        while True:  # the first runs are slower, and so are small batches: four times as many texts follow
            start = time.perf_counter()
            digest = compute_chunk(loaded, plan, Chunk(0, 0, tuple(texts[:n])))
            seconds = time.perf_counter() - start
            is_enough = seconds > _ENOUGH_SECONDS and digest.read["tokens"] > _ENOUGH_TOKENS
            if is_enough or seconds > _MAX_ESTIMATE_SECONDS or n >= len(texts):
                break
            n *= 4
    examples = min(plan.top, plan.chunk_size, plan.n_texts) / min(plan.top, n, len(texts))
    return n_tokens * seconds / digest.read["tokens"], round(len(digest.to_bytes()) * examples)


def _plan_words(loaded: LoadedModel, plan: RunPlan, n_tokens: int, texts: str, n_present: int, url: str) -> str:
    """The plan of a run, a line for each subject."""
    from attention.corpus.chunk import reader_of, text_sites

    sites = text_sites(reader_of(loaded))
    n_layers = len({site.layer for site in sites})
    size = f"{loaded.nbytes / 2**20:,.0f} MB"
    finds = f", {', '.join(plan.finds)} among them" if plan.finds else ""
    controls = [_CONTROL_WORDS[control] for control in plan.controls]
    words = [("Words", plan.words)] * (SHUFFLED in plan.controls)
    present = f"; already there: {n_present:,}" if n_present else ""
    chunk = f"one for {plan.chunk_size} texts" if plan.n_chunks > 1 else "one"
    return _aligned(
        ("Model", f"{plan.model}: {sum(site.n_heads for site in sites)} heads in {plural(n_layers, 'layer')}, {size}"),
        ("Texts", f"{texts}; about {_rounded(n_tokens)} tokens, a text is cut at {plan.max_tokens}"),
        ("Metrics", f"{len(plan.metrics)} of each head{finds}; {plan.top} top texts of each"),
        ("By chance", f"{UNIFORM}; {BY_DISTANCE}, where a metric matches words"),
        ("Controls", "; ".join(controls) or "none"),
        *words,
        ("Parts", f"{plan.n_chunks:,} in {url}, {chunk}{present}"),
    )


def _estimate_words(seconds: float, n_bytes: int, n_workers: int) -> str:
    """What a run will take, in words; 0 workers: those of a scheduler, whose number is not known."""
    time_words = f"about {_duration(seconds / max(1, n_workers))}"
    n_cores = os.cpu_count() or 1
    if not n_workers:
        time_words += " for one worker of one thread, divided by the number of workers"
    else:
        time_words += f" on {plural(n_workers, 'worker')} of one thread"
        if n_workers == 1 < n_cores and seconds > _LONG_SECONDS:
            time_words += f"; this machine has {n_cores} cores: --workers {n_cores}, or --shard, would use them"
    return _aligned(("Estimate", time_words), ("", f"about {max(0.1, n_bytes / 1e6):,.1f} MB of parts, all together"))


def _strongest_words(result: HeadsResult) -> str:
    """A table with the strongest heads of each metric, by what ranks them, with what the first of them has by chance and on the controls."""
    from attention.corpus.distribution_mosaic import HeadDistributions

    controls = [CONTROL_WORDS[name] for name in CONTROLS if name in result.plan["controls"]]
    rows = [["metric", "head", "mean", "sd", "by chance", *(words.split()[0] for words in controls), "next heads"]]
    for metric in result.metrics:
        numbers = HeadDistributions(result, metric)
        is_usual = ~np.isnan(numbers.mean) & (numbers.count >= _MIN_TEXTS * result.info["read"]["texts"])
        usable = is_usual if is_usual.any() else ~np.isnan(numbers.mean)
        best = [head for head in numbers.order if usable[head]]
        if not best:
            rows.append([metric, "no text has a value"])
            continue
        by_chance = numbers.compared.get(numbers.null, np.full(len(usable), np.nan))
        columns = numbers.mean, numbers.sd, by_chance, *(numbers.compared[words] for words in controls)
        names = ["L{} H{}".format(*result.heads[head]) for head in best[: 1 + _RUNNERS_UP]]
        others = (f"{name} {numbers.ranked[head]:.2f}" for name, head in zip(names[1:], best[1:], strict=False))
        rows.append([metric, names[0], *(_number(float(column[best[0]])) for column in columns), ", ".join(others)])
    return _table(rows)


def _missing_words(plan: RunPlan, present: frozenset[int], url: str) -> str:
    missing = [index for index in range(plan.n_chunks) if index not in present]
    named = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"{plural(len(missing), 'part')} of {plan.n_chunks:,} {verb} missing in {url} ({named}): the shard that computes the last one "
        f"merges them all, or python -m attention.corpus merge {url}"
    )


def _number(number: float) -> str:
    return "–" if math.isnan(number) else f"{number:.3f}" if abs(number) < 10 else f"{number:.1f}"


def _rounded(number: int) -> str:
    """Two digits, for an estimate."""
    digits = max(0, len(str(number)) - 2)
    return f"{round(number, -digits):,}"


def _aligned(*lines: tuple[str, str]) -> str:
    return "\n".join(f"{name:<10} {words}" for name, words in lines)


def _table(rows: Sequence[Sequence[str]]) -> str:
    """The rows with columns of equal width; numbers are right-aligned."""
    last = max(map(len, rows)) - 1
    widths = [max((len(row[i]) for row in rows if i < len(row) and len(row) > 2), default=0) for i in range(last + 1)]
    lines = []
    for row in rows:
        cells = (
            cell.ljust(width) if i in (0, 1, last) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
