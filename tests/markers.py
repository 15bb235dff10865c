"""The markers `sample` and `quick`: which cases are left out, and which tests are not as quick as they are said to be."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

QUICK = 2.0
"""Seconds of processor time within which a test marked `quick` is done: a busy machine does not change them."""

BEGUN = pytest.StashKey[float]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`make quick` imports only files that mark tests as quick: some of the others alone take seconds to import."""
    is_quick = config.option.markexpr.startswith("quick")
    if not is_quick or collection_path.suffix != ".py" or "pytest.mark.quick" in collection_path.read_text("utf-8"):
        return None
    return True


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `sample(n)` some n cases stay, at equal distances and with the first; the others become `long`."""
    samples = defaultdict[Any, list[pytest.Item]](list)
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("sample"):
            samples[item.function].append(item)
    for cases in samples.values():
        (kept,) = next(cases[0].iter_markers("sample")).args
        for place, case in enumerate(cases):
            is_kept = place * kept // len(cases) > (place - 1) * kept // len(cases)
            if not is_kept:
                case.add_marker("long")


def processor_seconds() -> float:
    """The time that the processors have spent on this process and those of its processes that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[BEGUN] = processor_seconds()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    is_quick = item.get_closest_marker("quick") and not item.get_closest_marker("slow")
    if is_quick and call.when == "teardown":
        item.user_properties.append(("processor seconds", processor_seconds() - item.stash[BEGUN]))


def too_slow(reports: list[pytest.TestReport]) -> Iterator[str]:
    """One line for each test that is marked quick and takes longer than QUICK."""
    for report in reports:
        seconds = dict(report.user_properties).get("processor seconds", 0)
        if seconds > QUICK:
            yield f"{report.nodeid}: {seconds:.1f} s of processor time, of {QUICK:g}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = [*too_slow(terminalreporter.stats.get("", []))]
    if found:
        terminalreporter.section("marked quick, and not quick: make them quicker, or mark them slow")
        for line in found:
            terminalreporter.line(line)
