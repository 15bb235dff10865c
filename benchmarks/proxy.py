"""nginx before several servers, with the configuration that compose.yaml uses."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from benchmarks.server import ROOT


@contextmanager
def running_proxy(folder: Path, port: int, servers: list[str]) -> Iterator[tuple[str, Path]]:
    """A proxy with deploy/nginx.conf, only its ports and paths replaced: its address and its access log."""
    log = folder / "access.log"
    replaced = {"/tmp/": f"{folder}/", "/dev/stdout": str(log), "/dev/stderr": "stderr"}
    replaced |= {"fail_timeout=10s": "fail_timeout=1s"}  # so that no test waits for it
    replaced |= {f"lab-{n}:8501": server for n, server in enumerate(servers, start=1)}
    replaced |= {"listen 8080": f"listen 127.0.0.1:{port}"}
    text = (ROOT / "deploy" / "nginx.conf").read_text()
    for old, new in replaced.items():
        assert old in text  # otherwise the file has changed
        text = text.replace(old, new)
    with running_nginx(folder, text, f"http://127.0.0.1:{port}/_stcore/health"):
        yield f"http://127.0.0.1:{port}", log


@contextmanager
def running_nginx(folder: Path, text: str, health: str) -> Iterator[None]:
    """Runs nginx with the configuration `text`, whose files are in `folder`, once the address `health` answers through it."""
    nginx = shutil.which(os.environ.get("NGINX", "nginx"), path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        raise FileNotFoundError("nginx is needed here: `make test` installs it, or set NGINX to its path")
    (folder / "nginx.conf").write_text(text)
    more = "daemon off;" + (" user root;" if os.geteuid() == 0 else "")
    command = [nginx, "-e", "stderr", "-c", str(folder / "nginx.conf"), "-g", more]
    with (folder / "error.log").open("wb") as errors:
        proxy = subprocess.Popen(command, stderr=errors)
    try:
        for _ in range(600):
            try:
                if urlopen(health, timeout=60).read() == b"ok":
                    break
            except OSError:
                assert proxy.poll() is None, (folder / "error.log").read_text()
                time.sleep(0.1)
        yield
    finally:
        proxy.terminate()
        proxy.wait(timeout=60)
