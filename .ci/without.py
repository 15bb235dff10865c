"""Takes features away and checks that everything else stands: `without.py [--all] [--each | FEATURE ...]`.

In a copy of the repository it deletes their folders and pages, then runs lint, types, every page that is left, and the quick tests that
are left (with --all every test). Without a name it takes those away, all at once, that the commits since main touched, on main the last
commit; a checkout without history cannot know these, and takes every feature away. --each takes one away after the other.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from attention.features import NAMES  # noqa: E402  # after its folder is in the path

# Prints what is imported though it need not be, each page that raises, and each entry of the menu whose page is gone.
LOOK = """
import sys
from pathlib import Path
import attention
from attention.features import features
listed = {feature.name for feature in features()} & set(sys.argv[1:])
if listed or {"torch", "streamlit"} & set(sys.modules):
    print(f"attention/features.py:1: list features without {sorted(listed)}, torch and streamlit")
from streamlit.testing.v1 import AppTest
for path in ["app.py", *sorted(map(str, Path("pages").glob("[!_]*.py")))]:
    app = AppTest.from_file(str(Path(path).resolve()), default_timeout=600).run()
    for error in app.exception:
        print(f"{path}:1: must run without the feature: {error.value}")
    for link in app.get("page_link") if path == "app.py" else ():
        if (name := link.proto.page) not in ("", "app") and not Path("pages", f"{name}.py").exists():
            print(f"{path}:1: the menu must not list {name!r}, which is gone")
"""


def git(*arguments: str, folder: Path = ROOT) -> list[str]:
    """The lines that git prints, or none if it fails."""
    run = subprocess.run(["git", *arguments], check=False, cwd=folder, capture_output=True, text=True)
    return run.stdout.splitlines() if run.returncode == 0 else []


def belongings(feature: str) -> tuple[str, ...]:
    """The beginnings of the paths of everything that a feature has."""
    folders = (
        *(f"attention/{feature}/", f"pages/ui/{feature}/", f"tests/{feature}/"),
        *(f"docs/{feature}", f"benchmarks/{feature}"),
    )
    panels = import_module(f"pages.ui.{feature}").PANELS if (ROOT / folders[1]).is_dir() else None
    return folders + tuple(script.path for script in (panels.scripts if panels else ()))


def touched() -> list[str]:
    """The features of which something has changed since main, or on main itself since the commit before."""
    base = git("merge-base", "HEAD", "origin/main") or git("merge-base", "HEAD", "main")
    if not base or base == git("rev-parse", "HEAD"):
        base = git("rev-parse", "--verify", "--quiet", "HEAD~1")
    if not base:
        return [*NAMES]
    changed = git("diff", "--name-only", base[0]) + git("ls-files", "--others", "--exclude-standard")
    return [name for name in NAMES if any(path.startswith(belongings(name)) for path in changed)]


def copy_without(features: list[str], folder: Path) -> None:
    """Copies what git knows or would add, without the features, as a repository of its own; models are shared."""
    gone = tuple(place for feature in features for place in belongings(feature))
    for path in git("ls-files", "--cached", "--others", "--exclude-standard"):
        if not path.startswith(gone) and (ROOT / path).is_file():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, folder / path)
    if (ROOT / "models").exists():
        (folder / "models").symlink_to((ROOT / "models").resolve())
    git("init", "--quiet", folder=folder)


def offences(features: list[str], folder: Path, everything: bool) -> Iterator[str]:
    """One line for each thing that does not stand without the features."""

    def lines(*command: str) -> list[str]:
        environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        whole = [sys.executable, *command]
        run = subprocess.run(whole, check=False, cwd=folder, env=environment, capture_output=True, text=True)
        told = [line.replace(f"{folder}/", "") for line in run.stdout.splitlines()]
        found = [line for line in told if re.match(r"\w[\w./-]*:\d+: (?!note)|E  +\w*Error", line)]
        return found or ([*told[-20:], *run.stderr.splitlines()[-20:]] if run.returncode else [])

    chosen = "not whole" if everything else "quick and not slow and not long and not whole"
    yield from lines("-m", "ruff", "check", "--output-format=concise", "--no-cache")
    yield from lines("-c", LOOK, *features)
    # With the cache of another tree, mypy reports lines of the features that are gone.
    yield from lines("-m", "mypy", "--cache-dir", f"{folder}/.mypy_cache")
    yield from lines("-m", "pytest", "-q", "-n", "2", "-m", chosen, "--tb=line", "-p", "no:cacheprovider")


def stands_without(features: list[str], everything: bool) -> bool:
    """Whether everything else stands; prints what does not."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="without-") as name:
        folder = Path(name).resolve()
        copy_without(features, folder)
        found = list(dict.fromkeys(offences(features, folder, everything)))
    print(*found, sep="\n", end="\n" * bool(found))
    outcome = f"{len(found)} offences" if found else "green"
    print(f"without {' '.join(features)}: {outcome} in {time.monotonic() - started:.0f} s", flush=True)
    return not found


def main() -> int:
    """Takes away what the command line says; 0 if everything else stands."""
    named = [word for word in sys.argv[1:] if not word.startswith("--")]
    if unknown := set(named) - set(NAMES):
        print(f"{' and '.join(sorted(unknown))} cannot be taken away: name some of {' '.join(NAMES)}")
        return 2
    together = [[name] for name in NAMES] if "--each" in sys.argv else [named or touched()]
    if not together[0]:
        print("no feature was touched")
    outcomes = [stands_without(features, "--all" in sys.argv) for features in together if features]
    return not all(outcomes)


if __name__ == "__main__":
    sys.exit(main())
