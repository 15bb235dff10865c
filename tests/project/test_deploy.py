"""Agreement between the Dockerfile, compose.yaml, nginx.conf and the Kubernetes manifests."""

from __future__ import annotations

import base64
import copy
import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from plotly.offline import get_plotlyjs_version

import attention
from benchmarks import rounds
from deploy import front
from pages.ui.process import SECONDS_TO_END
from pages.ui.server import assets
from pages.ui.server.assets import _index_page
from pages.ui.server.guard import _HEADERS

DOCKERFILE = (ROOT / "Dockerfile").read_text()
NGINX = front.configuration(Path("/tmp/front"), "0.0.0.0:8501", ["lab-1:8501", "lab-2:8501", "lab-3:8501"])
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
MANIFESTS = {
    manifest["kind"]: manifest for manifest in yaml.safe_load_all((ROOT / "deploy" / "kubernetes.yaml").read_text())
}
CONFIG = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
LABS = {name: service for name, service in COMPOSE["services"].items() if name != "proxy"}
POD = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
KUBERNETES = "1.37"


def megabytes(size: str) -> int:
    size = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", size)  # the default value of a variable
    number, unit = re.fullmatch(r"(\d+)([a-zA-Z]+)", size).groups()
    return int(number) * {"m": 1, "mi": 1, "g": 1024, "gi": 1024}[unit.lower()]


def search_in(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    assert match, pattern
    return match[1]


@pytest.fixture(scope="module")
def kubernetes() -> Any:
    """The validator of Kubernetes manifests; imported only here because the import is slow."""
    import kubernetes_validate

    return kubernetes_validate


@pytest.mark.parametrize("kind", MANIFESTS)
def test_manifests_are_strictly_valid(kubernetes: Any, kind: str) -> None:
    kubernetes.validate(MANIFESTS[kind], KUBERNETES, strict=True)


def test_manifest_check_finds_a_misspelled_field(kubernetes: Any) -> None:
    misspelled = copy.deepcopy(MANIFESTS["Deployment"])
    misspelled["spec"]["template"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFileSystem"] = True
    with pytest.raises(kubernetes.ValidationError):
        kubernetes.validate(misspelled, KUBERNETES, strict=True)


def test_manifests_contain_everything_a_faculty_needs() -> None:
    wanted = "Deployment Service Ingress HorizontalPodAutoscaler PodDisruptionBudget NetworkPolicy"
    assert list(MANIFESTS) == wanted.split()
    labels = MANIFESTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert MANIFESTS["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    name = MANIFESTS["Deployment"]["metadata"]["name"]
    assert MANIFESTS["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == name
    (rule,) = MANIFESTS["Ingress"]["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"]["name"] == MANIFESTS["Service"]["metadata"]["name"]


def test_largest_allowed_file_passes_every_limit() -> None:
    upload = CONFIG["server"]["maxUploadSize"]
    ingress = MANIFESTS["Ingress"]["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-body-size"]
    # the form around a file adds a little; the proxy stops much larger requests
    assert upload < megabytes(search_in(r"client_max_body_size (\d\dm);", NGINX)) == megabytes(ingress) <= upload + 1
    for lab in [*LABS.values(), COMPOSE["services"]["proxy"]]:
        (tmp,) = lab["tmpfs"]
        assert megabytes(search_in(r"^/tmp:size=(\w+)", tmp)) > upload
    (volume,) = POD["volumes"]
    assert megabytes(volume["emptyDir"]["sizeLimit"]) > upload
    assert volume["emptyDir"]["medium"] == "Memory"


def test_limits_per_address_match_between_cluster_and_single_machine() -> None:
    ingress = {
        name.rpartition("/")[2]: value for name, value in MANIFESTS["Ingress"]["metadata"]["annotations"].items()
    }
    assert ingress["limit-rps"] == search_in(r"zone=requests_of_address:\w+ rate=(\d+)r/s", NGINX)
    burst = int(ingress["limit-rps"]) * int(ingress["limit-burst-multiplier"])
    assert str(burst) == search_in(r"zone=requests_of_address burst=(\d+)", NGINX)
    assert int(ingress["limit-connections"]) == 2 * int(search_in(r"limit_conn sockets_of_address (\d+)", NGINX))
    # the worker runs out of neither descriptors nor connections, and no single address uses up either
    files = int(search_in(r"worker_rlimit_nofile (\d+)", NGINX))
    most = int(search_in(r"limit_conn all (\d+)", NGINX))
    assert 4 * most < files == int(search_in(r"worker_connections (\d+)", NGINX))
    assert files <= COMPOSE["services"]["proxy"]["ulimits"]["nofile"]
    assert 4 * most // len(LABS) < LABS["lab-1"]["ulimits"]["nofile"]
    assert int(search_in(r"limit_conn of_address (\d+)", NGINX)) < most
    (rule,) = MANIFESTS["NetworkPolicy"]["spec"]["ingress"]
    assert rule["from"]
    assert {"ephemeral-storage"} <= set(CONTAINER["resources"]["requests"]) & set(CONTAINER["resources"]["limits"])


def test_port_is_the_same_everywhere() -> None:
    port = search_in(r"^EXPOSE (\d+)$", DOCKERFILE)
    assert f"http://127.0.0.1:{port}/_stcore/health" in DOCKERFILE
    assert set(re.findall(r"server lab-\d+:(\d+)", NGINX)) == {port}
    assert all(lab["expose"] == [port] for lab in LABS.values())
    assert CONTAINER["ports"] == [{"name": "http", "containerPort": int(port)}]
    assert MANIFESTS["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    assert COMPOSE["services"]["proxy"]["ports"] == [f"${{LAB_PORT:-{port}}}:{port}"]


def test_proxy_knows_every_replica() -> None:
    upstreams = {
        name: re.findall(r"server ([\w-]+):8501([^;]*);", block)
        for name, block in re.findall(r"upstream ([\w-]+) \{(.*?)\}", NGINX, re.DOTALL)
    }
    assert [name for name, _ in upstreams.pop("any")] == [*LABS]
    assert list(upstreams) == list(LABS)
    for name, servers in upstreams.items():
        assert servers[0][0] == name
        assert sorted(servers[1:]) == [(other, " backup") for other in LABS if other != name]
    assert {lab["environment"]["LAB_REPLICA"]: name for name, lab in LABS.items()} == {name: name for name in LABS}
    proxy = COMPOSE["services"]["proxy"]
    assert proxy["environment"]["LAB_REPLICAS"].split() == [f"{name}:8501" for name in LABS]
    assert list(proxy["depends_on"]) == list(LABS)
    assert len(LABS) == 3
    assert ["build" in lab for lab in LABS.values()] == [True, False, False]


def test_image_starts_nginx_and_what_it_needs() -> None:
    assert search_in(r"^CMD (.*)$", DOCKERFILE) == '["python", "deploy/front.py"]'
    assert " nginx libnginx-mod-stream " in DOCKERFILE
    assert {service["image"] for service in COMPOSE["services"].values()} == {"attention-lab"}
    assert "command" not in str(COMPOSE["services"])
    (whom,) = [variable["value"] for variable in CONTAINER["env"] if variable["name"] == "LAB_PROXIES"]
    assert front.networks(whom)
    assert front.networks(LABS["lab-1"]["environment"]["LAB_PROXIES"])[0] == "127.0.0.1"  # its health check
    states = megabytes(search_in(r"client_max_body_size (1m);", NGINX)) * int(
        search_in(r"limit_conn states (\d+)", NGINX)
    )
    cache = megabytes(search_in(r"max_size=(\w+)", NGINX))
    (tmp,) = LABS["lab-1"]["tmpfs"]
    assert states + cache < megabytes(search_in(r"size=(\w+)", tmp))


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_services_have_minimal_privileges(name: str) -> None:
    service = COMPOSE["services"][name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"] == service["memswap_limit"]
    assert megabytes(service["mem_limit"]) <= 1024
    assert service["stop_grace_period"] == "30s"
    assert name == "proxy" or service["networks"] == ["inside"]
    assert COMPOSE["networks"]["inside"]["internal"]


def test_servers_neither_watch_files_nor_take_all_memory() -> None:
    assert CONFIG["server"]["fileWatcherType"] == "none"
    assert "COPY .streamlit .streamlit" in DOCKERFILE
    for text in (DOCKERFILE, str(CONTAINER)):
        assert "FILE_WATCHER" not in text
        assert "LAB_MAX_TRACE_MB" not in text
    assert all(lab["environment"]["LAB_MAX_TRACE_MB"] is None for lab in LABS.values()), (
        "only an operator sets this limit"
    )


def test_pods_have_minimal_privileges() -> None:
    assert POD["securityContext"]["runAsNonRoot"]
    assert str(POD["securityContext"]["runAsUser"]) == search_in(r"^USER (\d+)$", DOCKERFILE)
    assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert MANIFESTS["NetworkPolicy"]["spec"]["egress"] == []


def test_pods_have_time_to_start_and_stop() -> None:
    wait = CONTAINER["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert wait == 5
    assert POD["terminationGracePeriodSeconds"] == 30
    assert wait + SECONDS_TO_END < 30 - 4
    assert SECONDS_TO_END < front.SECONDS_TO_END < int(search_in(r"worker_shutdown_timeout (\d+)s", NGINX)) < 30
    for text in ((ROOT / "compose.yaml").read_text(), (ROOT / "deploy" / "README.md").read_text()):
        assert f" {SECONDS_TO_END} s" in text
    # the startup probe runs the page once; the liveness probe never does
    assert CONTAINER["startupProbe"]["httpGet"]["path"] == "/_stcore/script-health-check"
    for probe in ("readinessProbe", "livenessProbe"):
        assert CONTAINER[probe]["httpGet"]["path"] == "/_stcore/health"
    assert {"name": "STREAMLIT_SERVER_SCRIPT_HEALTH_CHECK_ENABLED", "value": "true"} in CONTAINER["env"]
    for lab in LABS.values():
        assert lab["environment"]["STREAMLIT_SERVER_SCRIPT_HEALTH_CHECK_ENABLED"] == "true"


def test_image_is_pinned_and_runs_as_an_unprivileged_user() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", bases[0])
    assert bases == [bases[0]] * 2
    assert int(search_in(r"^USER (\d+)$", DOCKERFILE)) > 0
    assert re.search(r"HEALTHCHECK [^\n]*\\\n.*\.read\(\) == b'ok'", DOCKERFILE)
    assert "ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu\n" in DOCKERFILE
    assert CONTAINER["image"] == f"attention-lab:{attention.__version__}"


def test_policy_allows_the_inline_script_of_streamlits_page() -> None:
    scripts = re.findall(r"<script>(.*?)</script>", _index_page("/?embed=true"), re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert digests
    assert re.findall(r"'sha256-([^']+)'", _HEADERS["Content-Security-Policy"]) == digests
    assert "eval" not in _HEADERS["Content-Security-Policy"]
    assert not [name for name in _HEADERS if name in NGINX]  # only the Lab itself sends the policy


def test_operator_limits_reach_the_replicas() -> None:
    limits = set(
        re.findall(
            r'_(?:limit|origins|folder|yes|hub)\("(\w+)"', (ROOT / "pages" / "ui" / "server" / "limits.py").read_text()
        )
    )
    for lab in LABS.values():
        passed_on = {name.removeprefix("LAB_") for name, value in lab["environment"].items() if value is None}
        assert limits == passed_on - {"STREAMLIT_SERVER_COOKIE_SECRET"}
    assert CONTAINER["envFrom"] == [{"configMapRef": {"name": "attention-lab", "optional": True}}]


def test_no_file_contains_a_secret() -> None:
    assert "Secret" not in MANIFESTS
    (secret,) = [variable for variable in CONTAINER["env"] if variable["name"] == "STREAMLIT_SERVER_COOKIE_SECRET"]
    assert "value" not in secret
    for lab in LABS.values():
        assert lab["environment"]["STREAMLIT_SERVER_COOKIE_SECRET"] is None


def test_hugging_face_space_uses_the_documented_port() -> None:
    _, front, _ = (ROOT / "deploy" / "huggingface" / "README.md").read_text().split("---\n", 2)
    space = yaml.safe_load(front)
    assert (space["sdk"], space["app_port"]) == ("docker", int(search_in(r"^EXPOSE (\d+)$", DOCKERFILE)))
    assert len(space["short_description"]) <= 60
    archived = search_in(r"git archive HEAD (.*) \| tar", (ROOT / "deploy" / "README.md").read_text()).split()
    copied = [
        path for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for path in line.split()
    ]
    assert {"Dockerfile", ".dockerignore", *copied} <= set(archived)
    assert all((ROOT / path).exists() for path in archived)


def test_page_serves_plotly_js_in_the_version_of_its_package() -> None:
    beginning = assets._scripts()["plotly"][:200].decode()
    assert f"plotly.js (cartesian - minified) v{get_plotlyjs_version()}\n" in beginning, "make plotly"


def test_image_installs_everything_by_hash() -> None:
    for setting in ("PIP_REQUIRE_HASHES=1", "PIP_NO_DEPS=1", "PIP_ONLY_BINARY=:all:", "PIP_COMPILE=0"):
        assert setting in DOCKERFILE.split("RUN", 1)[0]
    installs = re.findall(r"pip install (.*?)(?: \\)?$", DOCKERFILE, re.MULTILINE)
    assert installs == [
        '--index-url "$TORCH_INDEX" -r lock/cpu.txt',
        "-r lock/run.txt",
        '-r "lock/$extra.txt" || exit 1; done',
    ]


def test_server_starts_without_what_the_image_removes() -> None:
    removed = search_in(r"&& pip uninstall --yes (.+)$", DOCKERFILE).split()
    assert removed == ["pydeck", "watchdog", "hf-xet"]
    modules = [name.replace("-", "_") for name in removed]
    code = f"import sys; sys.modules.update(dict.fromkeys({modules})); import streamlit.web.bootstrap, huggingface_hub.file_download, app"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=ROOT, check=True)
    imports = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(modules)})\b", re.MULTILINE)
    files = [ROOT / "app.py", *(file for folder in ("attention", "pages") for file in (ROOT / folder).rglob("*.py"))]
    assert [file for file in files if imports.search(file.read_text(encoding="utf-8"))] == []


def test_image_includes_the_model_that_its_builder_chooses() -> None:
    default = search_in(r"^ARG MODELS=(\w+)$", DOCKERFILE)
    assert [lab["build"]["args"]["MODELS"] for lab in LABS.values() if "build" in lab] == [f"${{MODELS:-{default}}}"]
    table = (ROOT / "deploy" / "README.md").read_text()
    script = (ROOT / ".ci" / "get_models.py").read_text()
    sets = re.findall(r'"(\w+)": \(', script)
    assert default in sets
    assert [name for name in sets if f"| `{name}` |" not in table] == []
    # the folder of the models, and the hub library's cache on a writable disk
    assert "COPY --from=build /models /lab/models\n" in DOCKERFILE
    assert "HF_HOME=/tmp/" in DOCKERFILE


def test_replica_has_the_memory_of_the_documented_table() -> None:
    readme = (ROOT / "deploy" / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d,]+) MB \| (\d+) GiB \|$", readme, re.MULTILINE)
    table = {name: (int(peak.replace(",", "")), int(gigabytes) * 1024) for name, peak, gigabytes in rows}
    assert list(table) == ["none", "minilm", "all"]
    assert all(peak < limit for peak, limit in table.values())
    _, default = table[search_in(r"^ARG MODELS=(\w+)$", DOCKERFILE)]
    assert {megabytes(lab["mem_limit"]) for lab in LABS.values()} == {default}
    assert {megabytes(CONTAINER["resources"][kind]["memory"]) for kind in ("requests", "limits")} == {default}
    assert megabytes(search_in(r"^`MODELS=all LAB_MEMORY=(\w+) docker", readme)) == table["all"][1]
    assert all(attack.mb <= table["minilm"][1] for attack in rounds.ATTACKS)


def test_bundled_software_is_listed_with_its_licence() -> None:
    notice = (ROOT / "NOTICE.md").read_text()
    for model in re.findall(r'Way\("([\w.-]+)"', (ROOT / ".ci" / "get_models.py").read_text()):
        assert f"| {model}" in notice
    assert f"plotly.js {get_plotlyjs_version()}," in notice
    assert all(f"`{package}`" in notice for package in re.findall(r"(fonts-[\w-]+)=", DOCKERFILE))
    assert "LICENSE NOTICE.md" in DOCKERFILE
