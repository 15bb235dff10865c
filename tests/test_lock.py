"""What is installed is locked: exact versions, with the hashes of their files, and no word of where they come from."""

from __future__ import annotations

import re
from importlib import metadata

import pytest
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FILES = {path.stem: path.read_text() for path in (ROOT / "lock").iterdir()}
ENTRY = re.compile(r"([a-z0-9-]+)==([^\s;]+)( ; [^\\\n]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def locked(*names: str) -> dict[str, str]:
    return {name: version for one in names for name, version, *_ in ENTRY.findall(FILES[one])}


def asked(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    return {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines if not line.startswith("-r")}


@pytest.mark.parametrize("name", FILES)
def test_a_lock_has_exact_versions_with_hashes_and_nothing_else(name: str) -> None:
    assert ENTRY.sub("", FILES[name]) == "# Made by `make lock`.\n"
    assert "://" not in FILES[name]


def test_the_locks_have_what_the_requirements_ask_for() -> None:
    assert set(FILES) == {"run", "torch", "cpu", "dev", "audit"}
    assert asked("requirements.txt").items() <= locked("run", "torch").items()
    assert asked("requirements-dev.txt").items() <= locked("dev").items()
    assert asked("requirements-audit.txt").items() <= locked("audit").items()
    assert locked("cpu") == {"torch": locked("torch")["torch"] + "+cpu"}
    # a hosted service takes the first dependency file it knows
    assert not [name for name in ("uv.lock", "Pipfile", "environment.yml", "poetry.lock") if (ROOT / name).exists()]


def test_a_package_is_locked_once() -> None:
    assert not set(locked("run")) & set(locked("torch"))
    assert not set(locked("run", "torch")) & set(locked("dev"))


@pytest.mark.parametrize(("files", "first"), [(["run"], "requirements.txt"), (["run", "dev"], "requirements-dev.txt")])
def test_what_the_locked_require_is_locked(files: list[str], first: str) -> None:
    # pip installs with --no-deps, so that nothing comes that has no hash; torch is the CPU's, which needs no CUDA
    there = set(locked(*files, "cpu"))
    waiting, seen = list(asked(first)), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            needs = [Requirement(line) for line in metadata.requires(name) or []]
            waiting += [
                canonicalize_name(one.name) for one in needs if not one.marker or one.marker.evaluate({"extra": ""})
            ]
    assert len(seen) > 10  # the walk went somewhere
    assert seen <= there
