"""Installs torch before everything else, as small as it can be had: `get_torch.py WHERE CPU_INDEX SECONDS`.

pip's own index serves Linux a torch with gigabytes of CUDA, which nothing here uses. So WHERE "auto" asks the index of
torch's CPU builds, and where that does not answer in time, whatever else pip was told to look at. Another WHERE is the
index to take; none is pip's own. Builds differ in their hashes: lock/cpu.txt has the CPU builds for Linux, lock/torch.txt
what pip's own index has for everybody, and for Linux the CUDA that goes with it.
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


def install(lock: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Installs what this lock says."""
    pip = "pip install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all:"
    command = [sys.executable, "-m", *pip.split(), *options, "-r", f"lock/{lock}.txt"]
    return subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)


def main(where: str, cpu_index: str, seconds: float) -> int:
    """Says in a line where torch comes from, and installs it; 0 if all went well."""
    linux = platform.system() == "Linux"  # elsewhere pip's own has no CUDA
    if installed():
        return 0
    if where == "auto" and linux:
        print(f"Asking {cpu_index} for torch's CPU build ...", flush=True)
        where = cpu_index if has_it(cpu_index, seconds) else ""
        if not where:
            print(f"It does not answer within {seconds:g} seconds.")
    elif where == "auto":
        where = ""
    index = ["--index-url", where] if where else []
    print(f"Installing {PINNED} from {where or 'where pip looks'} ...", flush=True)
    done = install("cpu" if linux else "torch", *index)
    if linux and not where and "No matching distribution" in done.stderr:
        print("There is none for the CPU: taking the build with CUDA, several gigabytes.", flush=True)
        done = install("torch")
    sys.stderr.write(done.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
