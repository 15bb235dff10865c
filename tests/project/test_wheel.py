"""The wheel: built from the folder, installed where nothing else is, and used, without a network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PathDistribution, distribution
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import torch
from conftest import PATIENCE, ROOT, free_port
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from playwright.sync_api import Browser, expect
from rules import BACKEND, PAGES, Module

import attention
from attention import AttentionConfig, TypedText
from attention.command import _APP_PACKAGES

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
BASE: list[str] = PROJECT["project"]["dependencies"]
BROUGHT_ALONG = {
    "google": ("protobuf", "streamlit"),
    "huggingface_hub": ("huggingface-hub", "transformers"),
    "starlette": ("starlette", "streamlit"),
    "uvicorn": ("uvicorn", "streamlit"),
    "dask": ("dask", "distributed"),
    "PIL": ("pillow", "pillow"),
    "tqdm": ("tqdm", "transformers"),
}
"""Modules that we import: their package, and the declared package that requires it."""

TEXT, CONFIG = "the cat sat on the mat", {"mask": "causal", "seed": 3}
USED = f"""
import importlib, json, pkgutil, sys
from importlib.util import find_spec

import attention
assert "torch" not in sys.modules
from attention import AttentionConfig, File, TypedText, metrics
from attention.demo import site as demo
from attention.export import bundling
from attention.paper import html
from attention.lessons import markdown
from attention.pictures.heatmap import heatmap

missing = set()
for module in pkgutil.walk_packages(attention.__path__, "attention."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            missing.add(error.name)
trace = TypedText({TEXT!r}, AttentionConfig(**{CONFIG!r})).trace()
figure = heatmap(trace, "weights", head=1)
trace.save("trace.npz")
print(json.dumps({{
    "version": attention.__version__,
    "file": attention.__file__,
    "weights": trace.layers[0].weights.tolist(),
    "opened": File.open("trace.npz").trace().layers[0].weights.tolist(),
    "drawn": figure.data[0].z.tolist(),
    "html": html(figure),
    "missing": sorted(missing),
    "metrics": metrics.of(trace).values.shape,
    "lessons": len(markdown.builtin_lessons()),
    "demo": len(bundling.bundle("demo", demo.PAGE_DIR)),
    "importable": [name for name in {[*_APP_PACKAGES, "pages", "app", "tests", "conftest", "attention._app.tests"]!r} if find_spec(name)],
}}))
"""


ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "LAB_", "STREAMLIT_"))
}
"""The environment variables without those that could name other packages or set up a server."""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=600, check=False)


def python(*arguments: str | Path, cwd: Path) -> None:
    done = run(sys.executable, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    python("-m", "hatchling", "build", "--target", "sdist", "--directory", folder, cwd=ROOT)
    (path,) = folder.iterdir()
    return path


def built_wheel(source: Path, folder: Path) -> Path:
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    python("-m", "pip", "wheel", *offline, "--wheel-dir", folder, source, cwd=folder)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def required(requirements: Iterable[str], extra: str = "") -> set[str]:
    """The names of all packages that these requirements need, also indirectly."""
    names: set[str] = set()
    waiting = [(Requirement(line), extra) for line in requirements]
    while waiting:
        requirement, wanted = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (requirement.marker and not requirement.marker.evaluate({"extra": wanted})) or name in names:
            continue
        names.add(name)
        waiting += [
            (Requirement(line), part)
            for line in distribution(name).requires or ()
            for part in (requirement.extras or {""})
        ]
    return names


def empty_environment(home: Path, wheel: Path, extra: str) -> Path:
    """The folder of the commands of a virtual environment that has the wheel, with an extra, and what its metadata require.

    The packages are links to those that run this test: nothing is downloaded, and pip checks their versions.
    """
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        requires = PathDistribution(zipfile.Path(archive, f"{info}/")).requires or []
    for name in required(requires, extra):
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    target = f"{wheel}[{extra}]" if extra else str(wheel)
    python("-m", "pip", "--python", home, "install", "--quiet", "--no-index", "--no-compile", target, cwd=home)
    return home / "bin"


@pytest.fixture(scope="module")
def library(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return empty_environment(tmp_path_factory.mktemp("library"), wheel, "")


@pytest.fixture(scope="module")
def lab(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Lab that the command of the wheel has started."""
    home = tmp_path_factory.mktemp("lab")
    command = empty_environment(home, wheel, "app") / "attention-lab"
    (home / "models").mkdir()
    with running_lab(command, home) as address:
        yield address


@contextmanager
def running_lab(command: Path, folder: Path) -> Iterator[str]:
    port = free_port()
    env = {**ENVIRONMENT, "STREAMLIT_SERVER_SCRIPT_HEALTH_CHECK_ENABLED": "true"}
    process = subprocess.Popen(
        [command, "--no-browser", f"--port={port}"], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    address = f"http://localhost:{port}"
    try:
        for _ in range(PATIENCE // 100):
            try:
                if answer(f"{address}/_stcore/health") == "ok":
                    break
            except OSError:
                assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        else:
            pytest.fail("attention-lab did not become healthy in a minute")
        yield address
    finally:
        process.terminate()
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"Traceback" not in errors, errors
    assert f"Attention Lab: {address}\n".encode() in output


def answer(address: str) -> str:
    content: bytes = urlopen(address, timeout=60).read()
    return content.decode()


def test_wheel_has_exactly_the_files_of_package_and_app(wheel: Path) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for folder in ("attention", "pages")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    expected = {name if name.startswith("attention/") else f"attention/_app/{name}" for name in files}
    expected |= {"attention/_app/app.py", "attention/_app/.streamlit/config.toml"}
    info = f"attention_lab-{attention.__version__}.dist-info"
    assert {name for name in names_in(wheel) if not name.startswith(info)} == expected
    assert {"attention/py.typed", "attention/pictures/figure/vendor/LICENSE"} <= expected
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/NOTICE.md"} <= names_in(wheel)
    assert wheel.stat().st_size < 2.25 * 2**20


def test_sdist_is_small_and_builds_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    sources = {"attention", "pages", "app.py", ".streamlit", "pyproject.toml"}
    assert tops == sources | {"README.md", "LICENSE", "NOTICE.md", "CHANGELOG.md", ".gitignore", "PKG-INFO"}
    assert sdist.stat().st_size < 2 * 2**20
    assert built_wheel(sdist, tmp_path).read_bytes() == wheel.read_bytes()


@pytest.mark.long  # installs the wheel where nothing else is
def test_library_works_with_its_declared_dependencies_alone(library: Path, tmp_path: Path) -> None:
    done = run(library / "python", "-c", USED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["version"] == attention.__version__
    assert Path(result["file"]).is_relative_to(library.parent)
    weights = TypedText(TEXT, AttentionConfig(**CONFIG)).trace().layers[0].weights
    assert result["weights"] == result["opened"] == weights.tolist()
    assert result["drawn"] == weights[1].tolist()
    assert re.match(r"<!doctype html>", result["html"], re.IGNORECASE)
    assert len(result["html"]) > 2**20, "with Plotly's script"
    assert result["metrics"][0] == 1
    assert min(result["lessons"], result["demo"]) > 0
    assert result["importable"] == []
    assert set(result["missing"]) <= {
        Requirement(line).name for extra in ("files", "corpus") for line in EXTRAS[extra]
    }, "what only extras bring"


@pytest.mark.long
def test_command_without_the_extra_says_what_to_install(library: Path, tmp_path: Path) -> None:
    done = run(library / "attention-lab", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"The Lab needs [\w, ]*streamlit[\w, ]*, which are not installed: install attention-lab with its extra “app”, .+\n",
        done.stderr,
    )
    done = run(library / "attention-lab", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert {"--port", "--no-browser", "--version"} <= set(re.findall(r"--[\w-]+", done.stdout))
    assert run(library / "attention-lab", "--version", cwd=tmp_path).stdout == f"{attention.__version__}\n"


@pytest.mark.long
def test_command_serves_the_lab(lab: str) -> None:
    assert "<title>" in answer(lab)
    assert answer(f"{lab}/_stcore/script-health-check") == "ok", "the page runs without an error"
    host = json.loads(answer(f"{lab}/_stcore/host-config"))
    assert host["allowedOrigins"] == [], "the Lab's .streamlit/config.toml is in force"
    weights = TypedText(TEXT, AttentionConfig()).trace().layers[0].weights
    rows = answer(f"{lab}/export/weights.csv?text={TEXT.replace(' ', '+')}").splitlines()
    numbers = rows[1].split(",")[-7:-1]  # the last column is the sum
    assert torch.tensor([float(number) for number in numbers]).equal(weights[0, 0])


@pytest.mark.long
@pytest.mark.browser
def test_command_shows_the_lab_in_a_browser(lab: str, browser: Browser) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(lab)
    expect(page.locator(".figures .js-plotly-plot")).to_have_count(3)
    context.close()


def declared() -> list[Requirement]:
    return [
        Requirement(line) for lines in (BASE, *EXTRAS.values(), PROJECT["build-system"]["requires"]) for line in lines
    ]


def test_every_declared_dependency_is_pinned_within_its_range() -> None:
    pins: dict[str, set[str]] = {}
    for path in (*ROOT.glob("requirements*.txt"), *(ROOT / "lock").glob("*.txt")):
        for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", path.read_text(), re.MULTILINE):
            pins.setdefault(canonicalize_name(name), set()).add(version)
    faults = []
    for requirement in declared():
        if requirement.name == PROJECT["project"]["name"]:
            assert requirement.extras <= EXTRAS.keys()
            continue
        versions = pins.get(canonicalize_name(requirement.name), set())
        outside = [version for version in versions if not requirement.specifier.contains(version)]
        faults += [f"pin {requirement.name} in requirements*.txt"] * (not versions)
        faults += [f"{requirement.name}=={version} is pinned, but {requirement} is declared" for version in outside]
    assert not faults, "\n".join(faults)


def third_party(modules: list[Module]) -> dict[str, str]:
    """The packages of others that the modules import anywhere, each with the module that does."""
    ours = {"attention", "pages", "app"}
    return {
        name: str(module.path)
        for module in modules
        for name, _ in module.packages
        if name not in sys.stdlib_module_names | ours
    }


def test_every_imported_package_is_declared() -> None:
    names = {canonicalize_name(requirement.name).replace("-", "_") for requirement in declared()}
    imported = third_party(BACKEND) | third_party(PAGES)
    undeclared = {name: where for name, where in imported.items() if name not in names | BROUGHT_ALONG.keys()}
    assert undeclared == {}
    for package, owner in BROUGHT_ALONG.values():
        assert owner in names
        assert package in required([owner])


def test_command_names_the_packages_of_its_extra() -> None:
    lines: Any = [line for line in EXTRAS["app"] if not line.startswith(PROJECT["project"]["name"])]
    for part in Requirement(EXTRAS["app"][0]).extras:
        lines += EXTRAS[part]
    assert {Requirement(line).name for line in lines} == set(_APP_PACKAGES)
