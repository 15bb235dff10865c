"""The output and installations of `make run` on a fresh machine, with a pip that only logs its arguments."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import subprocess
import sys
import tarfile
import threading
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import ROOT

PINNED = next(line for line in (ROOT / "requirements.txt").read_text().splitlines() if line.startswith("torch=="))
INSTALL = "install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all:"
OWN = f"{INSTALL} -r lock/run.txt"
CPU, OTHER = f"{INSTALL} -r lock/cpu.txt", f"{INSTALL} -r lock/torch.txt"
FIRST = [CPU, OTHER] if sys.platform == "linux" else [OTHER]
NONE = "There is none for the CPU: taking the build with CUDA, several gigabytes."

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere pip's own torch has no CUDA")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A virtual environment with a pip that logs its arguments, and finds no CPU build."""
    home = tmp_path / ".venv"
    venv.create(home, with_pip=False)
    (home / ".venv").touch()
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "pip").mkdir()
    (packages / "pip" / "__main__.py").write_text(
        "import sys, pathlib\n"
        "home = pathlib.Path(sys.prefix)\n"
        "with (home / 'asked').open('a') as file: print(*sys.argv[1:], file=file)\n"
        "if 'lock/cpu.txt' in sys.argv and '--index-url' not in sys.argv: sys.exit((home / 'answer').read_text() or 0)\n"
    )
    (home / "answer").write_text("ERROR: No matching distribution found for torch")
    return home


def make(machine: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", f"VENV={machine}", *arguments, f"{machine}/.run"]
    # without the variables of a make that may have started these tests
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "TORCH_INDEX")}
    return subprocess.run(
        command, cwd=ROOT, env=env | {"no_proxy": "127.0.0.1"}, capture_output=True, text=True, timeout=600, check=False
    )


def made_lines(machine: Path, *arguments: str) -> tuple[list[str], list[str]]:
    """The lines of make's output, and the logged calls of pip."""
    run = make(machine, *arguments)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout.splitlines(), (machine / "asked").read_text().splitlines()


class Index(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        pass


@contextmanager
def index(folder: Path, offers: str) -> Iterator[str]:
    """A package index with one torch."""
    (folder / "whl" / "torch").mkdir(parents=True)
    (folder / "whl" / "torch" / "index.html").write_text(f"<a href='x'>{offers}%2Bcpu-cp311-linux_x86_64.whl</a>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/whl"
        server.shutdown()


@linux
def test_torch_comes_from_the_cpu_index_when_it_answers(machine: Path, tmp_path: Path) -> None:
    with index(tmp_path, PINNED.replace("==", "-")) as address:
        output, calls = made_lines(machine, f"CPU_INDEX={address}", "PATIENCE=60")
    torch = CPU.replace(" -r", f" --index-url {address} -r")
    assert calls == [torch, OWN]
    assert output == [
        f"Asking {address} for torch's CPU build ...",
        f"Installing {PINNED} from {address} ...",
        "Installing what the Lab needs ...",
    ]


@linux
def test_index_with_another_version_is_ignored(machine: Path, tmp_path: Path) -> None:
    with index(tmp_path, "torch-1.0.0") as address:
        output, calls = made_lines(machine, f"CPU_INDEX={address}", "PATIENCE=60")
    assert calls == [CPU, OTHER, OWN]
    assert output[-2] == NONE


@linux
def test_torch_comes_from_pips_index_when_the_cpu_index_fails(machine: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never answers
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        output, calls = made_lines(machine, f"CPU_INDEX={address}", "PATIENCE=0.2")
    assert calls == [CPU, OTHER, OWN]
    assert output == [
        f"Asking {address} for torch's CPU build ...",
        "It does not answer within 0.2 seconds.",
        f"Installing {PINNED} from where pip looks ...",
        NONE,
        "Installing what the Lab needs ...",
    ]


@linux
def test_cpu_build_in_pips_index_is_taken(machine: Path) -> None:
    (machine / "answer").write_text("")
    _, calls = made_lines(machine, "TORCH_INDEX=")
    assert calls == [CPU, OWN]


@linux
def test_unlocked_build_does_not_change_the_index(machine: Path) -> None:
    (machine / "answer").write_text("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES")
    run = make(machine, "TORCH_INDEX=")
    assert run.returncode
    assert "DO NOT MATCH" in run.stderr
    assert (machine / "asked").read_text().splitlines() == [CPU]


@pytest.mark.sample(1)
@pytest.mark.parametrize("index_url", ["https://torch.invalid/whl", ""])
def test_explicit_torch_index_is_respected(machine: Path, index_url: str) -> None:
    output, calls = made_lines(machine, f"TORCH_INDEX={index_url}", "CPU_INDEX=http://127.0.0.1:9")
    assert not any("Asking" in line for line in output)
    assert calls == [*([FIRST[0].replace(" -r", f" --index-url {index_url} -r")] if index_url else FIRST), OWN]


def test_installed_torch_is_kept(machine: Path) -> None:
    (packages,) = machine.glob("lib/python*/site-packages")
    installed = packages / f"{PINNED.replace('==', '-')}+cpu.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: torch\nVersion: {PINNED.removeprefix('torch==')}+cpu\n"
    )
    output, calls = made_lines(machine, "CPU_INDEX=http://127.0.0.1:9")
    assert (output, calls) == (["Installing what the Lab needs ..."], [OWN])


@pytest.mark.sample(1)
@linux
@pytest.mark.parametrize(
    ("arguments", "requirement"),
    [([], "streamlit"), (["STREAMLIT=1.60.0", "ARGS=tests/pages/server/test_turns.py -x"], "streamlit==1.60.0")],
)
def test_make_newest_tests_another_streamlit_in_its_own_environment(
    machine: Path, tmp_path: Path, arguments: list[str], requirement: str
) -> None:
    (machine / "answer").write_text("")
    (packages,) = machine.glob("lib/python*/site-packages")
    for name in ("streamlit-1.99.0.dist-info", "pytest"):
        (packages / name).mkdir()
    (packages / "streamlit-1.99.0.dist-info" / "METADATA").write_text("Name: streamlit\nVersion: 1.99.0\n")
    (packages / "pytest" / "__main__.py").write_text("import sys; print('pytest', *sys.argv[1:])")
    command = [
        "make",
        "--silent",
        f"VENV={tmp_path}/none",
        f"NEWEST={machine}",
        "TORCH_INDEX=",
        "WORKERS=2",
        *arguments,
    ]
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    run = subprocess.run(
        [*command, f"MODELS={tmp_path}", "newest"], cwd=ROOT, env=env, capture_output=True, text=True, check=True
    )
    calls = (machine / "asked").read_text().splitlines()
    newest = f"install --quiet --disable-pip-version-check --upgrade {requirement}"
    assert calls[:3] == [CPU, f"{OWN} -r lock/dev.txt", newest]
    assert "Testing with Streamlit 1.99.0" in run.stdout
    assert run.stdout.splitlines()[-1] == " ".join(["pytest -n 2", *arguments[1:]]).replace("ARGS=", "")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("matches", [True, False])
def test_plotly_js_is_the_published_npm_file(machine: Path, tmp_path: Path, matches: bool) -> None:
    folder, vendor = tmp_path / "package", tmp_path / "vendor"
    vendor.mkdir()
    folder.mkdir()
    for name in ("plotly-cartesian.min.js", "LICENSE"):
        (folder / name).write_text(f"another {name}")
    with tarfile.open(tmp_path / "plotly.tgz", "w:gz") as tar:
        tar.add(folder, "package")
    digest = base64.b64encode(hashlib.sha512((tmp_path / "plotly.tgz").read_bytes()).digest()).decode()
    npm = tmp_path / "npm"  # npm pack --silent --pack-destination FOLDER NAME
    npm.write_text(f'#!/bin/sh\ncp "{tmp_path}/plotly.tgz" "$4"\n')
    npm.chmod(0o755)
    command = ["make", f"VENV={machine}", f"BIN={Path(sys.executable).parent}", f"VENDOR={vendor}", "plotly"]
    for name in (".run", ".dev"):
        (machine / name).touch()
    if matches:
        command.append(f"PLOTLY_INTEGRITY=sha512-{digest}")
    path = f"{tmp_path}:{os.environ['PATH']}"
    run = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert (run.returncode == 0) == matches
    assert sorted(path.name for path in vendor.iterdir()) == (["LICENSE", "plotly-cartesian.min.js"] if matches else [])
    assert matches or f"got sha512-{digest}" in run.stderr
