"""The image's process in the memory of a replica: every kind of file of every model is made, first and after others."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from conftest import ROOT
from test_harm import finished

from attention.models.ours import our_models
from benchmarks.server import Server
from benchmarks.session import Session
from benchmarks.wire import Status, http
from pages.ui.exports import catalog
from pages.ui.exports.request import STEP

LIMIT = 1024  # MB
PATIENCE = 600  # seconds for one file, on a machine that does other work
MINILM = urlencode({"source": "model", "model": "all-MiniLM-L6-v2", "text": "the cat sat on the mat"})
FIRST = ("weights.csv", "attention.npz", "weights.png", "heads-metrics.csv")
REFUSALS = (400, 404, 413)  # what a state has not, and what is too large

pytestmark = pytest.mark.long  # several hundred files


def image(folder: str) -> dict[str, str]:
    """The variables of the image, whose folder for temporary files is this one."""
    lines = ROOT.joinpath("Dockerfile").read_text().rpartition("\nFROM")[2].replace("\\\n", " ").splitlines()
    (command,) = (line.removeprefix("CMD ") for line in lines if line.startswith("CMD "))
    assert json.loads(command) == ["streamlit", "run", "app.py"], "as `Server` starts it"
    words = [word for line in lines if line.startswith("ENV ") for word in shlex.split(line)[1:]]
    variables = dict(word.split("=", 1) for word in words)
    del variables["PATH"]
    return {name: value.replace("/tmp", folder) for name, value in variables.items()}


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in a control group of 1 GiB, where one can be made; elsewhere it is told that it has no more."""
    variables = image(str(tmp_path_factory.mktemp("image")))
    with Server(limit=LIMIT, LAB_MEMORY_MB=str(LIMIT), **variables) as server:
        yield server
        assert not server.kills()


def answer(server: Server, name: str, query: str) -> Status:
    return http("GET", f"{server.base}/export/{name}?{query}", timeout=PATIENCE)


def every_kind(server: Server, query: str) -> dict[str, Status]:
    """What the server answers for each kind of file."""
    names = [export.name.replace(STEP, "weights") for export in catalog._exports()]
    return {name: answer(server, name, query) for name in names}


def failures(answers: dict[str, Status]) -> dict[str, tuple[int, str]]:
    return {
        name: (status, status.words)
        for name, status in answers.items()
        if status != 200 and (name in FIRST or status not in REFUSALS)
    }


def test_files_of_a_model_arrive_on_a_fresh_replica(replica: Server) -> None:
    async def page() -> None:
        async with Session(replica.base, MINILM, timeout=PATIENCE) as session:
            assert not (await session.open()).sentences

    finished(page())
    assert {name: answer(replica, name, MINILM) for name in FIRST} == dict.fromkeys(FIRST, 200)
    assert not failures(every_kind(replica, MINILM))


@pytest.mark.parametrize("name", our_models())
def test_files_of_models_of_ours_arrive(replica: Server, name: str) -> None:
    assert not failures(every_kind(replica, urlencode({"source": "model", "model": name})))


def test_files_of_a_model_arrive_after_those_of_long_texts(replica: Server) -> None:
    for number in range(26):
        text = " ".join(f"w{number}x{i}" for i in range(400))
        name = FIRST[number % len(FIRST)]
        assert answer(replica, name, urlencode({"text": text})) == 200, name
    assert not failures(every_kind(replica, MINILM))
