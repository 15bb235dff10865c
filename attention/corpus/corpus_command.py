"""The command `python -m attention.corpus`: its arguments, its run, and what it says."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from attention import __version__
from attention.corpus import run_words, scan
from attention.corpus.local_models import hold_local_models
from attention.corpus.run_plan import CONTROLS
from attention.corpus.run_progress import progress
from attention.corpus.text_files import LINE_FORMATS, LINES, TextFiles
from attention.errors import AttentionError, FileError

if TYPE_CHECKING:
    from attention.corpus.run_plan import RunPlan

PROGRAM = "python -m attention.corpus"
MERGE = "merge"
"""The first argument that merges parts instead; a model of this name is ./merge."""
NO_CONTROL = "none"
PACKAGES = ("fsspec", "pyarrow", "safetensors", "tqdm", "transformers")
"""What the extra `corpus` installs."""

INTERRUPTED, TERMINATED = 130, 143
"""The exit codes of a process that SIGINT or SIGTERM ends."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a run as Ctrl-C does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; its exit code. Errors are a sentence on the standard error stream."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_merge = given[:1] == [MERGE]
    parser = _merge_parser() if is_merge else _parser()
    options = parser.parse_args(given[1:] if is_merge else given)
    try:
        if missing := [name for name in PACKAGES if find_spec(name) is None]:
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
        return TERMINATED if isinstance(interrupt, _Terminated) else INTERRUPTED
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        PROGRAM,
        description="Measures every head of a model over many texts, and by chance, and writes one table of all heads: heads.parquet. "
        "Stopped at any moment, it goes on where it was when the same command runs again. It never uses the network.",
        epilog=f"“{PROGRAM} {MERGE} FOLDER” merges the parts of a folder that several runs with --shard have filled. "
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
        choices=(*CONTROLS, NO_CONTROL),
        help="measure by chance: the words of each text shuffled, or random tokens that are repeated; may be given twice (default: both)",
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
    add("--workers", type=int, default=0, metavar="N", help="compute in N processes of this machine (needs dask)")
    add("--scheduler", default="", metavar="URL", help="compute on the workers of a Dask scheduler, such as tcp://host:8786")  # fmt: skip
    add("--dry-run", action="store_true", help="print the plan, and stop")
    add("--version", action="version", version=__version__)
    return parser


def _merge_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        f"{PROGRAM} {MERGE}", description="Merges the parts of a run into heads.parquet and corpus.json."
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
    """Plan a run, compute its parts, and merge them if all are there."""
    from attention.corpus.parts_folder import PartsFolder
    from attention.models.library import LIBRARY

    if any(Path(text).resolve() == Path(url).resolve() for text in options.texts):
        raise FileError(f"{url} is a folder of texts; a run needs a folder of its own: choose another with -o.")
    hold_local_models()
    texts = TextFiles(
        options.texts,
        options.column,
        options.paragraphs,
        options.max_texts,
        getattr(sys.stdin, "buffer", None),
        options.stdin_format,
    )
    folder = PartsFolder(url)
    _say(f"Loading {options.model} …")
    loaded = LIBRARY.get(options.model, options.device)
    _say("Reading the texts and the files of the model …")
    plan, n_tokens = scan.make_plan(loaded, texts, **_plan_options(options))
    _ = plan.metrics  # a rule of --find that is none ends here, and leaves no plan
    if folder.exists(scan.PLAN) or not options.dry_run:
        scan.hold_plan(folder, plan)
    present = folder.present()
    print(run_words.plan_words(loaded, plan, n_tokens, texts.words(), len(present), url))
    mine = range(options.shard[0], plan.n_chunks, options.shard[1])
    if missing := [index for index in mine if index not in present]:
        sample = list(islice(texts, run_words.ESTIMATE_TEXTS))
        estimate = run_words.estimate(loaded, plan, sample, n_tokens * len(missing) / plan.n_chunks)
        n_workers = 0 if options.scheduler else max(1, options.workers)
        print(run_words.estimate_words(estimate, plan.n_chunks, n_workers), flush=True)
    if options.dry_run:
        return
    if missing:
        with progress(sum(_chunk_texts(plan, index) for index in mine), sys.stderr) as report:
            _compute(options, plan, texts, url, report)
    present = folder.present()
    if not present.issuperset(range(plan.n_chunks)):
        print(run_words.missing_words(plan, present, url))
        return
    _merge(url)


def _compute(options: argparse.Namespace, plan: RunPlan, texts: TextFiles, url: str, report: Any) -> None:
    """Compute the missing parts: here, or on the workers of a cluster."""
    if options.workers <= 1 and not options.scheduler:
        scan.scan(plan, texts, url, options.shard, report, options.device)
        return
    from attention.corpus.cluster import scan_on_cluster

    scan_on_cluster(
        plan,
        texts,
        url,
        workers=options.workers,
        scheduler=options.scheduler,
        shard=options.shard,
        report=report,
        device=options.device,
    )


def _merge(url: str) -> None:
    """Merge the parts of a folder, and say what was found."""
    from attention.corpus.heads_result import HeadsResult
    from attention.corpus.parts_folder import PartsFolder

    _say("Merging the parts …")
    scan.merge(url)
    content = PartsFolder(url).read(scan.TABLE)
    result = HeadsResult.of(scan.TABLE, content, len(content))
    print(f"\nRead {result.words()}.\n\n{run_words.strongest_words(result)}\n")
    print(f"Open the page Heads of the Lab, and choose {url}/{scan.TABLE}.")


def _plan_options(options: argparse.Namespace) -> dict[str, Any]:
    controls = set(options.control or CONTROLS) - {NO_CONTROL}
    return {
        "max_tokens": options.max_tokens,
        "top": options.top,
        "controls": tuple(control for control in CONTROLS if control in controls),
        "finds": tuple(options.find),
        "seed": options.seed,
        "chunk_size": options.chunk_size,
    }


def _chunk_texts(plan: RunPlan, index: int) -> int:
    """The number of texts of a chunk."""
    return min(plan.chunk_size, plan.n_texts - index * plan.chunk_size)


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
