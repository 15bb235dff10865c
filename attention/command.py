"""The command `attention-lab`: opens the Lab, where the extra `app` is installed."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

from attention import __version__

_APP_PACKAGES = (
    "av",
    "matplotlib",
    "pandas",
    "pillow",
    "safetensors",
    "sentencepiece",
    "soundfile",
    "streamlit",
    "transformers",
)
"""What the extra `app` installs."""
_MODULES = {"pillow": "PIL"}  # where the module has another name than its package

_HERE = Path(__file__).parent
_LOCATIONS = (_HERE / "_app" / "app.py", _HERE.parent / "app.py")  # of a wheel, and of the repository
_OWN_MACHINE = {"LAB_ALLOW_LOCAL_MODELS": "yes", "LAB_MAX_TRACE_MB": "auto"}
"""As in `make run`: only this machine reaches the Lab, so its limits and folders are those of the machine."""


def main(arguments: list[str] | None = None) -> str | int:
    """Runs the Lab until it is stopped; a sentence if it cannot run, which becomes exit code 1."""
    parser = argparse.ArgumentParser(
        "attention-lab",
        description="Opens Attention Lab in the browser, for this machine only. Ctrl-C ends it.",
        epilog="A folder “models” in the current folder, or the one in LAB_MODELS, offers its models in the Lab.",
    )
    parser.add_argument("--port", type=int, help="port of the server; 8501 if not given")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--version", action="version", version=__version__)
    options = parser.parse_args(arguments)

    missing = [name for name in _APP_PACKAGES if find_spec(_MODULES.get(name, name)) is None]
    if missing:
        return (
            f"The Lab needs {', '.join(missing)}, which {'are' if len(missing) > 1 else 'is'} not installed: "
            f"install attention-lab with its extra “app”, for example pip install 'attention_lab-{__version__}-py3-none-any.whl[app]'."
        )
    app = next((path for path in _LOCATIONS if path.is_file()), None)
    if app is None:
        return "The Lab's app.py is missing beside this package: install attention-lab again, from a wheel."

    for name, value in _OWN_MACHINE.items():
        os.environ.setdefault(name, value)
    if Path("models").is_dir():
        os.environ.setdefault("LAB_MODELS", str(Path("models").resolve()))
    port = [f"--server.port={options.port}"] if options.port is not None else []
    headless = ["--server.headless=true"] if options.no_browser else []
    sys.argv = ["streamlit", "run", str(app), "--server.address=localhost", *port, *headless]
    runpy.run_module("streamlit", run_name="__main__", alter_sys=True)
    return 0
