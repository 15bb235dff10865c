"""nginx before several servers, with the configuration that the image and compose.yaml use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from deploy import front


@contextmanager
def running_proxy(folder: Path, port: int, servers: list[str]) -> Iterator[tuple[str, Path]]:
    """A proxy with deploy/nginx.conf: its address and its access log."""
    log = folder / "access.log"
    text = front.configuration(folder, f"127.0.0.1:{port}", servers, log=str(log))
    assert "fail_timeout=10s" in text  # otherwise the file has changed
    text = text.replace("fail_timeout=10s", "fail_timeout=1s")  # so that no test waits for it
    with running_nginx(folder, text, f"http://127.0.0.1:{port}/_stcore/health"):
        yield f"http://127.0.0.1:{port}", log


@contextmanager
def running_nginx(folder: Path, text: str, health: str) -> Iterator[None]:
    """Runs nginx with the configuration `text`, whose files are in `folder`, once the address `health` answers through it."""
    proxy = front.nginx(folder, text)
    try:
        for _ in range(600):
            try:
                if urlopen(health, timeout=60).read() == b"ok":
                    break
            except OSError:
                assert proxy.poll() is None, "nginx has ended: what it wrote to the console says why"
                time.sleep(0.1)
        yield
    finally:
        proxy.terminate()
        proxy.wait(timeout=60)
