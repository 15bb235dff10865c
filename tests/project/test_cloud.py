"""The main file and the requirements for Streamlit Community Cloud: the same app, the locked files, and no request from the browser to others."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, repeat_until, running_process
from playwright.sync_api import Browser, expect
from streamlit.web.server.app_discovery import discover_asgi_app

from pages.ui.address import menu

FOLDER = ROOT / "deploy" / "cloud"
MAIN = FOLDER / "streamlit_app.py"
TORCH = re.compile(
    r"torch @ https://download\.pytorch\.org/whl/cpu/torch-(\S+)-(cp3\d+)-\2-manylinux_2_28_x86_64\.whl"
    r" ; python_version == '(3\.\d+)' \\\n    --hash=(sha256:[0-9a-f]{64})\n"
)


def app_arguments(path: Path) -> dict[str | None, str]:
    """The keyword arguments of the only call of st.App in a file."""
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    (call,) = [call for call in calls if ast.unparse(call.func) == "st.App"]
    return {argument.arg: ast.unparse(argument.value) for argument in call.keywords}


def run_main(code: str, **environment: str) -> str:
    """The output of code after the import of the Cloud's main file, in a separate process."""
    code = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import streamlit_app; {code}"
    env = os.environ | environment
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_cloud_main_file_serves_app_py() -> None:
    assert discover_asgi_app(MAIN).import_string == "streamlit_app:app"
    assert run_main("print(streamlit_app.app.script_path)") == str(ROOT / "app.py")
    assert app_arguments(MAIN) == app_arguments(ROOT / "app.py")
    # no other file that the Cloud would take for dependencies
    assert {path.name for path in FOLDER.iterdir()} - {"__pycache__"} == {MAIN.name, "requirements.txt"}


def test_cloud_limits_come_from_its_secrets(tmp_path: Path) -> None:
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "secrets.toml").write_text('LAB_MAX_TOKENS = "7"\n')
    code = "from pages.ui.server.limits import MAX_TOKENS; print(MAX_TOKENS)"
    assert run_main(code, HOME=str(tmp_path)) == "7"


def test_cloud_requirements_are_the_locked_files() -> None:
    requirements = (FOLDER / "requirements.txt").read_text()
    assert TORCH.sub("", requirements) == (ROOT / "lock" / "run.txt").read_text()
    wheels = TORCH.findall(requirements)
    cpu = (ROOT / "lock" / "cpu.txt").read_text()
    assert {python for _, _, python, _ in wheels} >= {"3.11", "3.12", "3.13"}
    for version, tag, python, digest in wheels:
        assert f"torch=={version.replace('%2B', '+')} \\\n" in cpu
        assert tag == f"cp{python.replace('.', '')}"
        assert f"--hash={digest}" in cpu
    assert len({digest for *_, digest in wheels}) == len(wheels)
    assert not re.search(r"^(nvidia|cuda|triton)", requirements, re.MULTILINE)


def test_cloud_recipe_names_the_main_file_and_its_pythons() -> None:
    recipe = (ROOT / "deploy" / "README.md").read_text()
    assert f"**Main file path:** `{MAIN.relative_to(ROOT)}`" in recipe
    pythons = [python for _, _, python, _ in TORCH.findall((FOLDER / "requirements.txt").read_text())]
    assert f"Python {', '.join(pythons[:-1])} or {pythons[-1]} " in recipe


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        pass


@contextmanager
def torch_index(folder: Path, tags: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """A package index with a torch wheel for each tag: its address, and the digest of each wheel by name."""
    (folder / "torch").mkdir(parents=True)
    digests, page = {}, ""
    for tag in tags:
        name = f"torch-9.9.0+cpu-{tag}.whl"
        info = "torch-9.9.0+cpu.dist-info"
        with zipfile.ZipFile(folder / "torch" / name, "w") as wheel:
            wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 9.9.0+cpu\n")
            wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n")
            wheel.writestr(f"{info}/RECORD", "")
        digests[name] = sha256((folder / "torch" / name).read_bytes()).hexdigest()
        page += f"<a href='{name.replace('+', '%2B')}#sha256={digests[name]}'>{name}</a>"
    (folder / "torch" / "index.html").write_text(page)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", digests
        server.shutdown()


def test_make_lock_names_each_linux_wheel_of_torch(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("lock", ROOT / ".ci" / "lock.py")
    assert spec
    assert spec.loader
    lock: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lock)
    intel = [f"cp3{minor}-cp3{minor}-manylinux_2_28_x86_64" for minor in (12, 13)]
    other_tags = ["cp313-cp313t-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_28_aarch64", "cp312-cp312-win_amd64"]
    with torch_index(tmp_path, intel + other_tags) as (address, digests):
        lines = lock.torch_wheels(address, "torch==9.9.0+cpu")
    assert lines == "".join(
        f"torch @ {address}/torch-9.9.0%2Bcpu-{tag}.whl ; python_version == '3.{tag[3:5]}' \\\n"
        f"    --hash=sha256:{digests[f'torch-9.9.0+cpu-{tag}.whl']}\n"
        for tag in intel
    )


def test_server_start_asks_nobody_for_its_address() -> None:
    code = "from streamlit import net_util; net_util.get_external_ip = lambda: print('asked'); "
    code += "from streamlit.web import bootstrap; bootstrap._print_url(False)"
    env = os.environ | {"STREAMLIT_SERVER_HEADLESS": "true"}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert run.stdout == ""


@pytest.mark.browser
def test_cloud_usage_statistics_never_leave_the_browser(browser: Browser) -> None:
    on = {"STREAMLIT_BROWSER_GATHER_USAGE_STATS": "true"}
    with running_process(main_file=str(MAIN.relative_to(ROOT)), **on) as (address, _):
        page = browser.new_context().new_page()
        sent: list[str] = []
        errors: list[str] = []
        page.on("request", lambda request: sent.append(request.url))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(address)
        expect(page.locator(".figures .js-plotly-plot")).to_have_count(3)
        page.get_by_test_id("stPageLink").get_by_role("link", name=menu()["pages/heads.py"]).click()
        expect(page.locator("h1")).to_have_text("Heads")
        expect(page.locator(".figures .js-plotly-plot").first).to_be_visible()
        repeat_until(lambda: len(errors) >= 4, lambda: page.wait_for_timeout(100))  # each page load logs two
        page.context.close()
    assert [url for url in sent if not url.startswith((address, "blob:", "data:"))] == []
    # documented in deploy/README
    assert len(errors) == 4
    assert sum("violates" in error and "data.streamlit.io/metrics.json" in error for error in errors) == 2
    assert sum("metrics config" in error for error in errors) == 2
