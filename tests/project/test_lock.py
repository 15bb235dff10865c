"""Installed packages are locked: exact versions with hashes of their files, and no addresses of indexes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.quick

FILES = {path.stem: path.read_text() for path in (ROOT / "lock").iterdir()}
ENTRY = re.compile(r"([a-z0-9-]+)==([^\s;]+)( ; [^\\\n]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def locked(*names: str) -> dict[str, str]:
    return {name: version for file in names for name, version, *_ in ENTRY.findall(FILES[file])}


def required(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    pins = [line.split("==") for line in lines if not line.startswith("-r")]
    return {canonicalize_name(name.partition("[")[0]): version for name, version in pins}


def test_locks_have_exact_versions_with_hashes_only() -> None:
    faults = []
    for name, text in FILES.items():
        first, *lines = ENTRY.sub(lambda entry: "\n" * entry[0].count("\n"), text).splitlines()
        faults += [f"lock/{name}.txt:1: {first}"] * (first != "# Made by `make lock`.")
        faults += [f"lock/{name}.txt:{at}: {line}" for at, line in enumerate(lines, 2) if line]
        faults += [f"lock/{name}.txt:{at}: an address" for at, line in enumerate(text.splitlines(), 1) if "://" in line]
    assert not faults, "\n".join(["Run make lock:", *faults])


def test_locks_satisfy_the_requirements() -> None:
    assert set(FILES) == {"run", "torch", "cpu", "cluster", "dev", "models", "gguf", "audit"}
    assert required("requirements.txt").items() <= locked("run", "torch").items()
    assert required("requirements-dev.txt").items() <= locked("dev").items()
    assert required("requirements-cluster.txt").items() <= locked("cluster").items() <= locked("dev").items()
    assert required("requirements-models.txt") == locked("models")
    assert required("requirements-gguf.txt").items() <= locked("gguf").items()
    assert required("requirements-audit.txt").items() <= locked("audit").items()
    assert locked("cpu") == {"torch": locked("torch")["torch"] + "+cpu"}
    # a hosting service takes the first dependency file that it knows
    assert not [name for name in ("uv.lock", "Pipfile", "environment.yml", "poetry.lock") if (ROOT / name).exists()]


def test_each_package_is_locked_once() -> None:
    assert not set(locked("run")) & set(locked("torch"))
    assert not set(locked("run", "torch")) & set(locked("cluster", "dev", "gguf"))


@pytest.mark.parametrize(
    ("files", "first"),
    [
        (["run"], "requirements.txt"),
        (["run", "cluster"], "requirements-cluster.txt"),
        (["run", "dev"], "requirements-dev.txt"),
    ],
)
def test_requirements_of_locked_packages_are_locked(files: list[str], first: str) -> None:
    # pip installs with --no-deps, so that nothing without a hash is installed; torch's CPU build needs no CUDA
    available = set(locked(*files, "cpu"))
    waiting, visited = list(required(first)), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in visited:
            visited.add(name)
            needs = [Requirement(line) for line in metadata.requires(name) or []]
            waiting += [
                canonicalize_name(requirement.name)
                for requirement in needs
                if not requirement.marker or requirement.marker.evaluate({"extra": ""})
            ]
    assert len(visited) > 10  # the walk is not empty
    assert visited <= available


@pytest.mark.slow
def test_altered_file_under_a_locked_name_is_not_installed(tmp_path: Path) -> None:
    name, version = "cachetools", locked("run")["cachetools"]
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(tmp_path / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", "print('not the one')")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    (entry,) = [match for match in ENTRY.finditer(FILES["run"]) if match[1] == name]
    (tmp_path / "lock.txt").write_text(entry[0])
    install = re.search(r"^PIP = python (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert install
    options = ["--no-index", "--find-links", tmp_path, "--target", tmp_path / "there", "-r", tmp_path / "lock.txt"]
    env = {variable: value for variable, value in os.environ.items() if not variable.startswith("PIP_")}
    command = [sys.executable, *install[1].split(), *options]
    run = subprocess.run(
        command, env=env | {"PIP_CONFIG_FILE": os.devnull}, capture_output=True, text=True, check=False
    )
    assert "DO NOT MATCH THE HASHES" in run.stderr
    assert not (tmp_path / "there" / f"{name}.py").exists()
