"""Installs torch before everything else, as small as it can be had: `get_torch.py WHERE CPU_INDEX SECONDS`.

pip's own index serves Linux a torch with gigabytes of CUDA, which nothing here uses. So WHERE "auto" asks the index of
torch's CPU builds, and leaves torch to pip and its own index where that does not answer in time. Another WHERE is the
index to take; none is pip's own.
"""

import platform
import subprocess
import sys
from contextlib import suppress
from http.client import HTTPException
from importlib import metadata
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

PINNED = next(line for line in Path("requirements.txt").read_text().split() if line.startswith("torch=="))


def installed() -> bool:
    """Whether the pinned version is there already, from wherever."""
    try:
        return metadata.version("torch").partition("+")[0] == PINNED.removeprefix("torch==")
    except metadata.PackageNotFoundError:
        return False


def has_it(index: str, seconds: float) -> bool:
    """Whether the index offers the pinned version within this time, in which also its name must be found."""
    pages: list[bytes] = []

    def ask() -> None:
        with suppress(OSError, HTTPException):  # no network, no such host, an error page: all the same here
            pages.append(urlopen(f"{index}/torch/", timeout=seconds).read())

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    return any(PINNED.replace("==", "-").encode() in page for page in pages)


def main(where: str, cpu_index: str, seconds: float) -> int:
    """Says in a line where torch comes from, and installs it if that is not pip's own index; 0 if all went well."""
    if installed() or (where == "auto" and platform.system() != "Linux"):  # elsewhere pip's own has no CUDA
        return 0
    if where == "auto":
        print(f"Asking {cpu_index} for torch's CPU build ...", flush=True)
        where = cpu_index if has_it(cpu_index, seconds) else ""
        if not where:
            print(f"It does not answer within {seconds:g} seconds.")
    if not where:
        print("Taking torch from pip's own index: on Linux that may be the build with CUDA, several gigabytes.")
        return 0
    print(f"Installing {PINNED} from {where} ...", flush=True)
    command = "pip install --quiet --disable-pip-version-check --no-deps --index-url"
    return subprocess.run([sys.executable, "-m", *command.split(), where, PINNED], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
