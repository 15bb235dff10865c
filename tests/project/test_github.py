"""What GitHub, pre-commit and dev containers read names commands, files and versions that are here."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from conftest import ROOT

pytestmark = pytest.mark.quick

WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
FORMS = sorted(path for path in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml") if path.stem != "config")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
CONTAINER = ROOT / ".devcontainer" / "devcontainer.json"


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def steps() -> list[dict[str, Any]]:
    return [step for path in WORKFLOWS for job in read(str(path))["jobs"].values() for step in job["steps"]]


def test_jobs_of_the_workflow_are_the_parts_of_make_check() -> None:
    parts = re.search(r"^check: (.+)$", MAKEFILE, re.MULTILINE)
    assert parts
    assert read(".github/workflows/tests.yml")["jobs"]["check"]["strategy"]["matrix"]["part"] == parts[1].split()


def test_commands_are_targets_of_the_makefile() -> None:
    hooks = [hook["entry"] for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    container = json.loads(CONTAINER.read_text(encoding="utf-8"))
    lines = [*(step["run"] for step in steps() if "run" in step), *hooks, container["postCreateCommand"]]
    made = {word for line in lines if line.startswith("make ") for word in line.split()[1:] if "=" not in word}
    targets = set(re.findall(r"^([\w-]+|\$\(VENV\)/\.\w+)(?= ?[\w-]*:)", MAKEFILE, re.MULTILINE))
    variables = {"${{", "matrix.part", "}}"}
    assert made - variables <= {target.replace("$(VENV)", ".venv") for target in targets}
    assert {"demo", "quick", ".venv/.dev", "browser"} <= made
    assert {line.split()[0] for line in lines} == {"make", ".venv/bin/ruff"}


def test_actions_are_githubs_own_and_have_a_version() -> None:
    used = [step["uses"] for step in steps() if "uses" in step]
    assert [name for name in used if not re.fullmatch(r"actions/[\w-]+@v\d+", name)] == []


def test_everything_runs_python_3_11() -> None:
    versions = {step["with"]["python-version"] for step in steps() if "setup-python" in step.get("uses", "")}
    assert versions == {"3.11"}
    jobs = [job for path in WORKFLOWS for job in read(str(path))["jobs"].values()]
    images = {job["container"] for job in jobs if "container" in job}
    assert {json.loads(CONTAINER.read_text(encoding="utf-8"))["image"], *images} == {"python:3.11-bookworm"}
    assert 'python_version = "3.11"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_form_has_what_github_requires(path: Any) -> None:
    form = read(str(path))
    assert form["name"]
    assert form["description"]
    assert any(field.get("validations", {}).get("required") for field in form["body"])
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
    assert all(field["type"] in ("input", "textarea") and field["attributes"]["label"] for field in form["body"])


def test_dependabot_leaves_locked_packages_alone() -> None:
    assert [part["package-ecosystem"] for part in read(".github/dependabot.yml")["updates"]] == ["github-actions"]
