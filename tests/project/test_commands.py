"""Every command that a document names is one that runs: each is parsed with its documented arguments, and none is carried out."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from markdown_it import MarkdownIt

pytestmark = pytest.mark.whole  # documents speak of every feature

BENCHMARKS = ROOT / "benchmarks" / "README.md"
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    BENCHMARKS,
    ROOT / "deploy" / "README.md",
]
DOCUMENTS += sorted(ROOT.glob("docs/*.md"))
OURS = ("attention", "benchmarks", "tests")
SHORT = {"pytest": "pytest", "attention-lab": "attention.command"}
"""Commands that stand for a module."""

BETWEEN = ("&&", "||", "|", ";")


class Parsed(Exception):  # noqa: N818 - the good end
    """A command has understood its arguments, and would now begin."""


def lines_of(document: Path) -> Iterator[str]:
    """The lines for a shell and the inline code of a document."""
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(document.read_text("utf-8")):
        if token.type == "fence" and token.info == "sh":
            yield from token.content.replace("\\\n", " ").splitlines()
        for child in token.children or ():
            if child.type == "code_inline":
                yield child.content


def commands_of(line: str) -> Iterator[list[str]]:
    """The words of each command of a line, without variables and what stands before it."""
    line = line.replace(".venv\\Scripts\\", ".venv/bin/").replace(
        "$SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT", "0/64"
    )
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a lone quote: code of another language
        return
    for is_between, group in groupby(words, BETWEEN.__contains__):
        command = [*group]
        while command and (command[0] == "nice" or re.match(r"[A-Z_]+=", command[0])):
            del command[0]
        if command and not is_between:
            yield command


@cache
def made(arguments: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The calls of Python of which make would run; raises where it has no such target."""
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    run = subprocess.run(["make", "-n", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr.strip()
    return tuple(tuple(shlex.split(call)) for call in re.findall(r"\bpython (?:-m \S|\S+\.py\b)[^;|&\n]*", run.stdout))


def parse(name: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls the main function of a module until it has parsed its arguments; raises where it does not know one."""
    is_package = (ROOT / name.replace(".", "/")).is_dir()
    module = import_module(f"{name}.__main__" if is_package else name)
    if not hasattr(module, "main"):
        assert not arguments, f"{name} takes no arguments"
        return
    parse_args = argparse.ArgumentParser.parse_args

    def parse_and_end(parser: argparse.ArgumentParser, given: list[str] | None = None) -> None:
        parse_args(parser, given)
        raise Parsed

    def refuse(parser: argparse.ArgumentParser, message: str) -> None:
        raise AssertionError(f"{parser.prog}: {message}")

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)
        patch.setattr(argparse.ArgumentParser, "error", refuse)
        patch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(Parsed):
            module.main()


def find_tests(arguments: list[str]) -> None:
    """Raises where a call of pytest names a file that is not there, or a word that no test has."""
    word = arguments[arguments.index("-k") + 1] if "-k" in arguments else ""
    for path in arguments:
        if path.startswith("tests/"):
            place = ROOT / path
            files = [*place.rglob("test_*.py")] if place.is_dir() else [place]
            found = [re.search(rf"^def test_\w*{word}", file.read_text("utf-8"), re.MULTILINE) for file in files]
            assert any(found), f"{path} has no test with {word!r} in its name"


def check(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Raises where a command is one of ours, and would not begin."""
    program, *arguments = command
    if program in SHORT:
        program, arguments = "python", ["-m", SHORT[program], *arguments]
    if program == "make" and arguments:
        for called in made(tuple(arguments)):
            check([*called], monkeypatch)
    elif program == "docker" and "-f" in arguments:
        assert yaml.safe_load((ROOT / arguments[arguments.index("-f") + 1]).read_text("utf-8"))["services"]
    elif not arguments or not re.fullmatch(r"(.*/)?python3?", program):
        return
    elif arguments[:2] == ["-m", "pytest"]:
        find_tests(arguments[2:])
    elif arguments[0] == "-m" and arguments[1].split(".")[0] in OURS:
        parse(arguments[1], arguments[2:], monkeypatch)
    elif arguments[0] == "-m":
        assert find_spec(arguments[1]), f"there is no module {arguments[1]}"
    elif arguments[0] != "-c":
        assert (ROOT / arguments[0]).is_file(), f"there is no file {arguments[0]}"


def check_all(named: set[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is wrong with each command that would not begin."""
    offences = []
    for command in sorted(named):
        try:
            check([*command], monkeypatch)
        except (AssertionError, ImportError, OSError, SystemExit) as error:
            offences.append(f"{shlex.join(command)}: {error}")
    return offences


def test_every_documented_command_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for document in DOCUMENTS for line in lines_of(document)]
    named = {tuple(command) for line in lines for command in commands_of(line)}
    assert {"make", "python", "pytest", "attention-lab"} <= {command[0] for command in named}
    assert check_all(named, monkeypatch) == []


def test_every_documented_option_of_a_benchmark_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table names a command in its first column, and options of it in the second."""
    rows = [
        re.findall(r"`([^`]+)`", row) for row in BENCHMARKS.read_text("utf-8").splitlines() if row.startswith("| `")
    ]
    named = set()
    for command, *codes in rows:
        for option in codes:
            if option.startswith("--"):
                named |= {(*words, *shlex.split(option)) for words in commands_of(command)}
    assert len(named) > 10
    # an option that is named without its value, such as --minutes, is known
    assert [offence for offence in check_all(named, monkeypatch) if ": expected " not in offence] == []


@pytest.mark.parametrize(
    "line",
    ["python -m benchmarks.since --quickly", "make bench ARGS=--quickly", "make nothing", "python -m benchmarks.none",
     "pytest tests/none.py", "pytest tests/formula -k nowhere", "python docs/none.py", "attention-lab --port x"],
)  # fmt: skip
def test_a_command_that_would_not_begin_is_found(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_all({tuple(command) for command in commands_of(line)}, monkeypatch)
