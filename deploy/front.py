"""Runs nginx before the Lab, and ends when one of both ends: `front.py [options of streamlit run]`.

The image starts with it. LAB_REPLICAS names other servers, separated by spaces: then nginx stands before these, and no Lab runs
here. LAB_PROXIES names the networks of proxies of yours, whose X-Forwarded-For is believed. Python's own library is enough for it.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).parent
MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")
"""Where Debian has the part of nginx that counts connections."""
SECONDS_TO_END = 22
"""From SIGTERM until what visitors have not read is given up: a Lab takes 20 of them."""
_INSTALL = "install it (on Debian and Ubuntu nginx and libnginx-mod-stream), or name it in NGINX"
_MOST = 1000  # connections for each Lab: a hundred people, with six and a socket each while they load a page
_EACH = 4  # descriptors of a connection: nginx passes it from its counter to HTTP, and from there to a Lab
_OTHERS = 64  # descriptors for all else
_FORGIVES = "10s"  # until a replica that did not answer is asked again


def networks(text: str) -> list[str]:
    """The networks in LAB_PROXIES.

    Raises:
        SystemExit: one of them cannot be read.
    """
    for word in text.split():
        try:
            ip_network(word)
        except ValueError:
            raise SystemExit(
                f"LAB_PROXIES must be addresses or networks separated by spaces, such as 172.16.0.0/12; got {word!r}: "
                "correct it, or unset it if visitors reach this server directly."
            ) from None
    return text.split()


def configuration(
    folder: Path,
    address: str,
    labs: Sequence[str],
    proxies: Sequence[str] = (),
    descriptors: int = 16384,
    log: str = "off",
) -> str:
    """The text of nginx.conf for this place.

    Args:
        folder: where nginx may write.
        address: where visitors come, as host and port.
        labs: host and port of each server behind it.
        proxies: networks whose X-Forwarded-For is believed.
        descriptors: that a process may have.
        log: the file of accesses, or “off”.
    """
    most = min(_MOST * len(labs), (descriptors - _OTHERS) // _EACH)
    names = [f"lab-{number}" for number in range(1, len(labs) + 1)]
    servers = [f"server {lab} max_fails=1 fail_timeout={_FORGIVES};" for lab in labs]
    upstreams = []
    for number, name in enumerate(names):
        others = [*labs[number + 1 :], *labs[:number]]
        backups = [f"server {other} backup;" for other in others]
        upstreams.append(f"upstream {name} {{ {' '.join([servers[number], *backups])} }}")
    values = {
        "MODULE": f"load_module {MODULE};" if MODULE.exists() else "",
        "FOLDER": str(folder),
        "ADDRESS": address,
        "DESCRIPTORS": str(_EACH * most + _OTHERS),
        "CONNECTIONS": str(most),
        "CONNECTIONS_OF_ADDRESS": str(most * 6 // 10),
        "PROXIES": " ".join(f"{network} 1;" for network in proxies),
        "REPLICAS": " ".join(servers),
        "UPSTREAMS": "\n    ".join(upstreams),
        "NAMES": "|".join(names),
        "PATIENCE": "2s" if len(labs) > 1 else "60s",  # where no other replica could answer, a slow one is waited for
        "LOG": "off" if log == "off" else f"{log} lab",
    }
    text = (HERE / "nginx.conf").read_text(encoding="utf-8")
    return re.sub("@([A-Z_]+)@", lambda match: values[match[1]], text)


def _program() -> str | None:
    return shutil.which(os.environ.get("NGINX", "nginx"), path=f"{os.environ['PATH']}:/usr/sbin")


def nginx(folder: Path, text: str) -> subprocess.Popen[bytes]:
    """Starts nginx with this configuration.

    Raises:
        FileNotFoundError: there is no nginx here.
    """
    program = shutil.which(os.environ.get("NGINX", "nginx"), path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise FileNotFoundError(
            "nginx is needed here: install it (on Debian nginx and libnginx-mod-stream), or set NGINX"
        )
    for old in ("http.sock", "scripts.sock"):  # of one that was killed
        (folder / old).unlink(missing_ok=True)
    file = folder / "nginx.conf"
    file.write_text(text, encoding="utf-8")
    more = "daemon off;" + (" user root;" if os.geteuid() == 0 else "")
    return subprocess.Popen([program, "-e", "stderr", "-c", str(file), "-g", more])


def _lab(port: int, options: Sequence[str]) -> tuple[subprocess.Popen[bytes], str]:
    """Starts the Lab where only this machine reaches it; the process, and its host and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app.py", *options, f"--server.port={own}"]
    command += ["--server.address=127.0.0.1", f"--browser.serverPort={port}"]
    return subprocess.Popen(command, cwd=HERE.parent), f"127.0.0.1:{own}"


def _unread_bytes(port: int) -> int:
    """The bytes that the system holds for visitors of this port, by Linux's tables of sockets."""
    table = Path("/proc/net/tcp")
    lines = table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else []
    sockets = [line.split() for line in lines]
    return sum(
        int(queues.partition(":")[0], 16) for _, here, _, _, queues, *_ in sockets if here.endswith(f":{port:04X}")
    )


def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """The first of these that ends. What a container's first process inherits is collected too."""
    while True:
        number, status = os.wait()
        for process in processes:
            if process.pid == number:
                process.returncode = os.waitstatus_to_exitcode(status)
                return process


def _run_alone(options: Sequence[str]) -> NoReturn:
    """Becomes a Lab without nginx."""
    print(
        f"There is no nginx here: whoever reaches this server can make it unusable for others. To prevent it, {_INSTALL}.",
        flush=True,
    )
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.address=0.0.0.0", *options]
    os.chdir(HERE.parent)
    os.execv(sys.executable, command)


def main(options: Sequence[str], environment: Mapping[str, str]) -> int:
    """Runs until one of the processes ends or SIGTERM comes; returns the exit code."""
    proxies = networks(environment.get("LAB_PROXIES", ""))
    labs = environment.get("LAB_REPLICAS", "").split()
    if _program() is None and not labs:
        _run_alone(options)
    port = int(environment.get("STREAMLIT_SERVER_PORT", "8501"))
    _, descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    ways_to_end: dict[subprocess.Popen[bytes], signal.Signals] = {}
    stopped = 0.0  # when it was told to end

    def end(*_: object) -> None:
        nonlocal stopped
        stopped = stopped or time.monotonic()
        for process, way in ways_to_end.items():
            if process.returncode is None:
                os.kill(process.pid, way)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with tempfile.TemporaryDirectory(prefix="front-") as name:
        folder = Path(name)
        log = "/dev/stdout" if labs else "off"
        lab = None
        if not labs:
            lab, place = _lab(port, options)
            ways_to_end[lab] = signal.SIGTERM
            labs = [place]
        front = nginx(folder, configuration(folder, f"0.0.0.0:{port}", labs, proxies, descriptors, log))
        ways_to_end[front] = signal.SIGQUIT  # nginx sends what is under way
        if stopped:  # while they started
            end()
        first = _ended([*ways_to_end])
        code = first.returncode
        if not stopped:
            print(f"{'The Lab' if first is lab else 'nginx'} has ended with {code}.", file=sys.stderr, flush=True)
            code = code or 1
            end()
        codes = [code, *(process.wait() for process in ways_to_end)]
        # A container's network goes with its first process, and with it what visitors have not read.
        while time.monotonic() < stopped + SECONDS_TO_END and _unread_bytes(port):
            time.sleep(0.1)
    return next(filter(None, codes), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
