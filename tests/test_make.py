"""What `make run` says and installs on a fresh machine, with a pip that only writes down what it is asked for."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
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
OWN = "--quiet --disable-pip-version-check -c constraints.txt -r requirements.txt"


linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere pip's own torch has no CUDA")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A virtual environment with a pip that writes down what it is asked for, and nothing else."""
    home = tmp_path / ".venv"
    venv.create(home, with_pip=False)
    (home / ".venv").touch()
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "pip").mkdir()
    (packages / "pip" / "__main__.py").write_text(
        "import sys, pathlib\n"
        "with (pathlib.Path(sys.prefix) / 'asked').open('a') as file: print(*sys.argv[1:], file=file)\n"
    )
    return home


def made(machine: Path, *given: str) -> tuple[list[str], list[str]]:
    """What make said, line by line, and what pip was asked for."""
    command = ["make", "--no-print-directory", f"VENV={machine}", *given, f"{machine}/.run"]
    # not what the make says that may have started these tests
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "TORCH_INDEX")}
    run = subprocess.run(
        command, cwd=ROOT, env=env | {"no_proxy": "127.0.0.1"}, capture_output=True, text=True, timeout=600, check=True
    )
    assert not run.stderr
    return run.stdout.splitlines(), (machine / "asked").read_text().splitlines()


class Index(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        pass


@contextmanager
def index(folder: Path, offers: str) -> Iterator[str]:
    """A package index that answers, with one torch."""
    (folder / "whl" / "torch").mkdir(parents=True)
    (folder / "whl" / "torch" / "index.html").write_text(f"<a href='x'>{offers}%2Bcpu-cp311-linux_x86_64.whl</a>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/whl"
        server.shutdown()


@linux
def test_torch_comes_from_the_index_of_cpu_builds_where_that_answers(machine: Path, tmp_path: Path) -> None:
    with index(tmp_path, PINNED.replace("==", "-")) as address:
        said, asked = made(machine, f"CPU_INDEX={address}", "PATIENCE=60")
    torch = f"install --quiet --disable-pip-version-check --no-deps --index-url {address} {PINNED}"
    assert asked == [torch, f"install {OWN}"]
    assert said == [
        f"Asking {address} for torch's CPU build ...",
        f"Installing {PINNED} from {address} ...",
        "Installing what the Lab needs ...",
    ]


@linux
def test_an_index_that_has_another_version_is_none(machine: Path, tmp_path: Path) -> None:
    with index(tmp_path, "torch-1.0.0") as address:
        said, asked = made(machine, f"CPU_INDEX={address}", "PATIENCE=60")
    assert asked == [f"install {OWN}"]
    assert "pip's own index" in said[-2]


@linux
def test_torch_comes_from_pip_s_own_index_where_the_other_does_not_answer(machine: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes calls and never says a word
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        said, asked = made(machine, f"CPU_INDEX={address}", "PATIENCE=0.2")
    assert asked == [f"install {OWN}"]
    assert said == [
        f"Asking {address} for torch's CPU build ...",
        "It does not answer within 0.2 seconds.",
        "Taking torch from pip's own index: on Linux that may be the build with CUDA, several gigabytes.",
        "Installing what the Lab needs ...",
    ]


@pytest.mark.parametrize("given", ["https://torch.invalid/whl", ""])
def test_who_says_where_torch_comes_from_is_not_second_guessed(machine: Path, given: str) -> None:
    said, asked = made(machine, f"TORCH_INDEX={given}", "CPU_INDEX=http://127.0.0.1:9")
    assert not any("Asking" in line for line in said)
    wanted = [f"install --quiet --disable-pip-version-check --no-deps --index-url {given} {PINNED}"] if given else []
    assert asked == [*wanted, f"install {OWN}"]


def test_a_torch_that_is_there_is_left_alone(machine: Path) -> None:
    (packages,) = machine.glob("lib/python*/site-packages")
    there = packages / f"{PINNED.replace('==', '-')}+cpu.dist-info"
    there.mkdir()
    (there / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: torch\nVersion: {PINNED.removeprefix('torch==')}+cpu\n"
    )
    said, asked = made(machine, "CPU_INDEX=http://127.0.0.1:9")
    assert (said, asked) == (["Installing what the Lab needs ..."], [f"install {OWN}"])
