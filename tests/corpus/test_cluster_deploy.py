"""The files of deploy/corpus: they agree with the code and the image, and the compose file computes what one process does."""

from __future__ import annotations

import copy
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from compose_processes import ComposeProcesses, kill_container
from conftest import ROOT, free_port
from dask_processes import Journal, wait_until
from tiny_models import TinyModels

import attention
from attention.corpus import scan
from attention.corpus.scan import PartsFolder
from attention.models.library import LIBRARY

DEPLOY = ROOT / "deploy" / "corpus"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
MANIFESTS = {
    manifest["kind"]: manifest
    for name in ("kubernetes", "kubernetes-job")
    for manifest in yaml.safe_load_all((DEPLOY / f"{name}.yaml").read_text())
}
DASK = MANIFESTS["DaskJob"]["spec"]
PODS = {
    "run": DASK["job"]["spec"],
    "scheduler": DASK["cluster"]["spec"]["scheduler"]["spec"],
    "worker": DASK["cluster"]["spec"]["worker"]["spec"],
    "shard": MANIFESTS["Job"]["spec"]["template"]["spec"],
}
KUBERNETES = "1.37"
WAITING = 2  # the chunk at which a worker waits, until it is killed


@pytest.fixture(scope="module")
def kubernetes() -> Any:
    """The validator of Kubernetes manifests; imported only here because the import is slow."""
    import kubernetes_validate

    return kubernetes_validate


@pytest.mark.long  # a cluster
def test_compose_file_computes_the_same_with_a_killed_container(tiny: TinyModels, tmp_path: Path) -> None:
    model, texts, heads = str(tiny("GPT-2")), tmp_path / "texts", tmp_path / "heads"
    lines = [f"the owl asked the moon {i}" for i in range(128 * 6)]
    lines[128 * WAITING] = "wait for the moon"
    texts.mkdir()
    (texts / "lines.txt").write_text("\n".join(lines))
    plan, _ = scan.make_plan(LIBRARY.get(model), lines)
    assert plan.n_chunks == 6
    scan.scan(plan, lines, str(tmp_path / "one"))
    scan.merge(str(tmp_path / "one"))

    journal, port = Journal(tmp_path), str(free_port())
    replaced = {r"0\.0\.0\.0": "127.0.0.1", r"scheduler:8786": f"127.0.0.1:{port}", r"\b8786\b": port}
    replaced |= {r"^/heads$": str(heads), r"^/texts$": str(texts), r"^/tmp/dask$": str(tmp_path)}
    environment = {"DASK_DISTRIBUTED__WORKER__PRELOAD": str(journal.script)}
    with ComposeProcesses(DEPLOY / "compose.yaml", replaced, {"MODEL": model}, environment) as compose:
        compose.start("scheduler")
        ports = [str(free_port()) for _ in range(SERVICES["worker"]["scale"])]
        workers = [compose.start("worker", **{"9000": number}) for number in ports]
        for number in ports:
            compose.wait_for_health("worker", **{"9000": number})
        run = compose.start("run")
        others = set(range(plan.n_chunks)) - {WAITING}
        wait_until(lambda: run.poll() or PartsFolder(str(heads)).present() == others, "all other parts")
        assert run.poll() is None
        (pid,) = journal.of(WAITING)
        (place,) = [i for i, each in enumerate(workers) if pid in {p.pid for p in psutil.Process(each.pid).children(True)}]  # fmt: skip
        kill_container(workers[place])
        assert SERVICES["worker"]["restart"] == "unless-stopped"  # which is played here
        compose.start("worker", **{"9000": ports[place]})
        compose.wait_for_health("worker", **{"9000": ports[place]})
        assert run.wait(timeout=60) == 0
    assert len(journal.of(WAITING)) == 2
    assert journal.of(WAITING)[1] != pid
    one, many = (sha256((folder / scan.TABLE).read_bytes()).hexdigest() for folder in (tmp_path / "one", heads))
    assert many == one


@pytest.mark.parametrize("name", SERVICES)
def test_processes_of_the_run_have_minimal_privileges(name: str) -> None:
    service = SERVICES[name]
    assert service["user"] == "1000:1000"
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"] == service["memswap_limit"]
    assert service["pids_limit"] <= 256
    assert service["networks"] == ["inside"]
    assert "ports" not in service
    assert service["healthcheck"] == {"disable": True} if name == "run" else service["healthcheck"]["test"][0] == "CMD"
    assert ("build" in service) == (name == "run")
    assert service["restart"] == ("on-failure:5" if name == "run" else "unless-stopped")
    assert COMPOSE["networks"] == {"inside": {"internal": True}}


def test_volume_belongs_to_the_user_of_the_image() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "install --directory --owner=1000 --group=1000 /heads" in dockerfile
    assert re.findall(r"^USER (\d+)$", dockerfile, re.MULTILINE) == ["1000"]
    for name in ("worker", "run"):
        assert "heads:/heads" in SERVICES[name]["volumes"]
    assert SERVICES["run"]["build"]["args"]["EXTRAS"] == "cluster"
    assert (ROOT / "lock" / "cluster.txt").exists()
    assert "!lock/cluster.txt" in (ROOT / ".dockerignore").read_text().split()


@pytest.mark.parametrize("kind", [kind for kind in MANIFESTS if kind != "DaskJob"])
def test_manifests_of_a_run_are_strictly_valid(kubernetes: Any, kind: str) -> None:
    kubernetes.validate(MANIFESTS[kind], KUBERNETES, strict=True)


@pytest.mark.parametrize("name", PODS)
def test_pods_of_a_run_are_valid_and_unprivileged(kubernetes: Any, name: str) -> None:
    """A DaskJob is of the operator; its pods and its service are Kubernetes'."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": copy.deepcopy(PODS[name])}
    kubernetes.validate(pod, KUBERNETES, strict=True)
    (container,) = PODS[name]["containers"]
    expected = "attention-lab" if name == "shard" else "attention-lab-cluster"
    assert container["image"] == f"{expected}:{attention.__version__}"
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert PODS[name]["securityContext"]["runAsNonRoot"]
    assert PODS[name]["automountServiceAccountToken"] is False
    assert {"cpu", "memory", "ephemeral-storage"} == set(container["resources"]["limits"])


def test_dask_job_has_exactly_what_the_operator_reads(kubernetes: Any) -> None:
    """The required fields of kubernetes.dask.org/v1, by which dask-kubernetes 2026.3.0 was asked once."""
    assert MANIFESTS["DaskJob"]["apiVersion"] == "kubernetes.dask.org/v1"
    assert set(DASK) == {"job", "cluster"}
    assert set(DASK["job"]) == {"spec"}
    spec = DASK["cluster"]["spec"]
    assert {name: set(part) for name, part in spec.items()} == {
        "scheduler": {"spec", "service"},
        "worker": {"spec", "replicas"},
    }
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": spec["scheduler"]["service"]}
    kubernetes.validate(service, KUBERNETES, strict=True)
    (run,), (worker,) = PODS["run"]["containers"], PODS["worker"]["containers"]
    assert run["args"][-2:] == ["--scheduler", "$(DASK_SCHEDULER_ADDRESS)"]
    assert worker["args"][:6] == ["python", "-m", "dask", "worker", "--name", "$(DASK_WORKER_NAME)"]
    name = MANIFESTS["DaskJob"]["metadata"]["name"]
    (tls,) = [volume["secret"] for volume in PODS["worker"]["volumes"] if "secret" in volume]
    settings = {"DASK_CONFIG": "/tls/dask.yaml", "DASK_SCHEDULER_ADDRESS": f"tls://{name}-scheduler:8786"}
    for pod in (PODS["worker"], PODS["scheduler"], PODS["run"]):
        (container,) = pod["containers"]
        assert container["args"][:2] == ["python", "-m"]  # which have the package in their working directory
        assert {variable["name"]: variable["value"] for variable in container["env"]} == settings
        assert {"name": "tls", "mountPath": "/tls", "readOnly": True} in container["volumeMounts"]
        assert {"name": "tls", "secret": tls} in pod["volumes"]
    assert spec["scheduler"]["service"]["selector"]["dask.org/cluster-name"] == name


def test_indexed_job_covers_every_shard() -> None:
    job = MANIFESTS["Job"]["spec"]
    (container,) = PODS["shard"]["containers"]
    assert job["completionMode"] == "Indexed"
    assert container["args"][-2:] == ["--shard", f"$(JOB_COMPLETION_INDEX)/{job['completions']}"]
    assert job["parallelism"] <= job["completions"]
