"""Streamlit with every outside connection, every pickle and every new process refused and logged, but for the process of jobs and what it returns.

Jobs themselves run without this guard, within the limits of `attention.base.jobs`.

usage: python -m benchmarks.guard LOG run app.py …   (what follows LOG is Streamlit's)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from attention.base import jobs

LOOPBACK = ("127.", "::1", "localhost", "0.0.0.0")


def hook(log: TextIO) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that refuses these events and writes them to `log`."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        match event:
            case "socket.connect" | "socket.sendto":
                address = arguments[1]
                host = str(address[0]) if isinstance(address, tuple) else ""  # a path: a socket of this machine
                bad = bool(host) and not host.startswith(LOOPBACK)
            case "socket.getaddrinfo" | "socket.gethostbyname":
                bad = not str(arguments[0] or "localhost").startswith(LOOPBACK)
            case "pickle.find_class":
                bad = (
                    sys._getframe(1).f_globals["__name__"] != jobs.__name__
                )  # the results of jobs, which are our own code
            case "subprocess.Popen":
                bad = jobs._START not in arguments[1]
            case "os.system" | "os.posix_spawn" | "webbrowser.open":
                bad = True
            case _:
                return
        if bad:
            print(event, arguments, file=log)
            raise PermissionError(f"the guard refuses {event} {arguments}")

    return refuse


def main() -> None:
    """Runs Streamlit's own command line under the audit hook."""
    log = Path(sys.argv[1]).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115 - for the life of the process
    sys.argv = ["streamlit", *sys.argv[2:]]
    from streamlit.web import cli

    sys.addaudithook(hook(log))
    cli.main(prog_name="streamlit")


if __name__ == "__main__":
    main()
