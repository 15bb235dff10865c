"""What the command says about a run: its plan, what was read, and its strongest heads."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attention.corpus.run_plan import CONTROLS, RANDOM, SHUFFLED
from attention.corpus.run_progress import duration
from attention.printed import plural

if TYPE_CHECKING:
    from attention.corpus.heads_result import HeadsResult
    from attention.corpus.run_plan import RunPlan
    from attention.models.loaded import LoadedModel

CONTROL_WORDS = {SHUFFLED: "the words of each text shuffled", RANDOM: "random tokens, twice, for one text in 16"}
UNIFORM = "uniform"
ESTIMATE_TEXTS = 64
"""The texts that are measured for an estimate, at most."""
_ENOUGH_SECONDS, _ENOUGH_TOKENS, _MAX_SECONDS = 1.0, 500, 20.0
_LONG_SECONDS = 120
_RUNNERS_UP = 2
_MIN_TEXTS = 0.1  # of all texts: a mean over fewer is not listed first


@dataclass(frozen=True)
class Estimate:
    """What a run will take.

    Attributes:
        seconds: of one worker.
        part_bytes: of a part.
    """

    seconds: float
    part_bytes: int


def estimate(loaded: LoadedModel, plan: RunPlan, texts: Sequence[str], n_tokens: float) -> Estimate:
    """What a number of tokens will take, from computing a few of the texts, at most a tenth of all."""
    from attention.corpus.chunk import Chunk, compute_chunk
    from attention.corpus.scan import one_thread

    n, texts = 1, texts[: plan.n_texts // 10 + 1]
    with one_thread():
        while (
            True
        ):  # the first runs are slower than the others, and so are small batches: four times as many texts follow
            start = time.perf_counter()
            digest = compute_chunk(loaded, plan, Chunk(0, 0, tuple(texts[:n])))
            seconds = time.perf_counter() - start
            is_enough = seconds > _ENOUGH_SECONDS and digest.read["tokens"] > _ENOUGH_TOKENS
            if is_enough or seconds > _MAX_SECONDS or n >= len(texts):
                break
            n *= 4
    examples = min(plan.top, plan.chunk_size, plan.n_texts) / min(plan.top, n, len(texts))
    return Estimate(n_tokens * seconds / digest.read["tokens"], round(len(digest.to_bytes()) * examples))


def plan_words(loaded: LoadedModel, plan: RunPlan, n_tokens: int, texts: str, n_present: int, url: str) -> str:
    """The plan of a run, a line for each subject.

    Args:
        loaded: the model.
        plan: of the run.
        n_tokens: the estimated number of tokens.
        texts: what was read, in words.
        n_present: the number of parts that are there already.
        url: the folder.
    """
    from attention.corpus.chunk import reader_of, text_sites

    sites = text_sites(reader_of(loaded))
    n_layers = len({site.layer for site in sites})
    size = f"{loaded.nbytes / 2**20:,.0f} MB"
    finds = f", {', '.join(plan.finds)} among them" if plan.finds else ""
    controls = [CONTROL_WORDS[control] for control in plan.controls]
    present = f"; already there: {n_present:,}" if n_present else ""
    chunk = f"one for {plan.chunk_size} texts" if plan.n_chunks > 1 else "one"
    return _aligned(
        ("Model", f"{plan.model}: {sum(site.n_heads for site in sites)} heads in {plural(n_layers, 'layer')}, {size}"),
        ("Texts", f"{texts}; about {_rounded(n_tokens)} tokens, a text is cut at {plan.max_tokens}"),
        ("Metrics", f"{len(plan.metrics)} of each head{finds}; {plan.top} top texts of each"),
        ("By chance", f"uniform attention{''.join(f'; {words}' for words in controls)}"),
        ("Parts", f"{plan.n_chunks:,} in {url}, {chunk}{present}"),
    )


def estimate_words(found: Estimate, n_parts: int, n_workers: int) -> str:
    """What a run will take, in words.

    Args:
        found: the estimate.
        n_parts: of the whole run.
        n_workers: of this machine; 0: those of a scheduler, whose number is not known.
    """
    time_words = f"about {duration(found.seconds / max(1, n_workers))}"
    n_cores = os.cpu_count() or 1
    if not n_workers:
        time_words += " for one worker of one thread, divided by the number of workers"
    else:
        time_words += f" on {plural(n_workers, 'worker')} of one thread"
        if n_workers == 1 < n_cores and found.seconds > _LONG_SECONDS:
            time_words += f"; this machine has {n_cores} cores: --workers {n_cores}, or --shard, would use them"
    size = found.part_bytes * n_parts / 1e6
    return _aligned(("Estimate", time_words), ("", f"about {max(0.1, size):,.1f} MB of parts, all together"))


def strongest_words(result: HeadsResult) -> str:
    """A table with the strongest heads of each metric: the largest means, and what the first of them has by chance."""
    chance = [*(name for name in CONTROLS if name in result.plan["controls"]), UNIFORM]
    rows = [["metric", "head", "mean", "sd", *chance, "next heads"]]
    for metric in result.metrics:
        mean, count = result.column(metric, "mean"), result.column(metric, "count")
        is_usual = ~np.isnan(mean) & (count >= _MIN_TEXTS * result.info["read"]["texts"])
        usable = is_usual if is_usual.any() else ~np.isnan(mean)
        best = [head for head in np.argsort(-np.where(usable, mean, -np.inf), kind="stable") if usable[head]]
        if not best:
            rows.append([metric, "no text has a value"])
            continue
        columns = ["mean", "sd", *(name if name == UNIFORM else f"{name}_mean" for name in chance)]
        numbers = [_number(float(result.column(metric, name)[best[0]])) for name in columns]
        names = ["L{} H{}".format(*result.heads[head]) for head in best[: 1 + _RUNNERS_UP]]
        others = (f"{name} {mean[head]:.2f}" for name, head in zip(names[1:], best[1:], strict=False))
        rows.append([metric, names[0], *numbers, ", ".join(others)])
    return "\n".join(_table(rows))


def missing_words(plan: RunPlan, present: frozenset[int], url: str) -> str:
    """Which parts of other shards are missing."""
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


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    """The rows with columns of equal width; numbers are right-aligned."""
    rows = list(rows)
    n_columns = max(map(len, rows))
    widths = [max((len(row[i]) for row in rows if i < len(row) and len(row) > 2), default=0) for i in range(n_columns)]
    return ["  ".join(_cell(cell, i, widths[i], n_columns) for i, cell in enumerate(row)).rstrip() for row in rows]


def _cell(cell: str, column: int, width: int, n_columns: int) -> str:
    return cell.ljust(width) if column < 2 or column == n_columns - 1 else cell.rjust(width)
