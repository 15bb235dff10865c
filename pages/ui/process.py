"""The configuration of a server process, applied when this module is imported, and its lifespan."""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from streamlit import cli_util, config
from streamlit.starlette import App
from streamlit.web.server import server_util

from pages.ui import patches
from pages.ui.server import limits, scheduler
from pages.ui.server.guard import bound_log
from pages.ui.server.limits import HF_ALLOW

# Read when torch is imported, at the first trace. With small matrices and many users, one
# thread per request is faster for everybody, up to 20 times on busy processors.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Read when the library of the hub is imported, at the first model. It connects only to load models that the operator allows.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"
if not HF_ALLOW:
    os.environ["HF_HUB_OFFLINE"] = "1"

limits.configure_allocator()

_DEFAULT_THRESHOLD = gc.get_threshold()
gc.set_threshold(200_000)  # a full collection during the imports takes 0.1 s and finds nothing; see `freeze_imports`

_PATIENCE = 0.5  # seconds; most runs are shorter
_IMPORTING = "imports for models"
_THREADS = ("ScriptRunner.scriptThread", "training", "export", _IMPORTING)
_QUIET = 3.0  # seconds without a run before an idle process imports another library for models
SECONDS_TO_END = 20
"""From SIGTERM until downloads under way are cut. Orchestrators wait 30, of which a pod's preStop takes 5 and the end of Python some."""
SHUTDOWN_CALLBACKS: list[Callable[[], None]] = []
"""Functions to call in the event loop at shutdown, before the server waits for pending answers."""
_first_picture_drawn, _ending = threading.Event(), threading.Event()


@cache
def freeze_imports() -> None:
    """Excludes all imported objects, such as those of torch, from later garbage collections."""
    gc.freeze()
    gc.set_threshold(*_DEFAULT_THRESHOLD)
    _first_picture_drawn.set()


def _import_for_models() -> None:
    """Imports the libraries for models after the first picture, one part at a time while no script runs.

    A user who arrives during a part waits at most a second for it.
    """
    _first_picture_drawn.wait()
    if _ending.is_set():
        return
    from attention.models import library  # late, since the first picture does not need them
    from attention.models.library import LIBRARY
    from pages.ui.server.traces import make_room

    if not LIBRARY.offers or make_room(library.missing_bytes()):
        return
    try:
        for _ in library.import_parts():
            while scheduler.idle_seconds() < _QUIET:
                if _ending.wait(_QUIET / 4):
                    return
            gc.set_threshold(200_000)
    except Exception:  # at the end of the process, finalizers of torch remove what an import still needs
        if _ending.is_set():
            return
        raise
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_DEFAULT_THRESHOLD)


@asynccontextmanager
async def lifespan(_: App) -> AsyncIterator[None]:
    """The lifespan of the server: does what `streamlit run` does for a script but not for an `st.App`."""
    address = server_util.get_url(config.get_option("browser.serverAddress"))
    print(f"Attention Lab: {address}", flush=True)
    if not limits.ALLOW_LOCAL_MODELS:  # on one's own machine it would be noise
        print(limits.process_memory(limits.MEMORY_MB)[1], flush=True)
    if not config.get_option("server.headless"):
        cli_util.open_browser(address)
    # After a clean shutdown, Uvicorn sends SIGTERM to itself and dies from it. Orchestrators expect exit code 0.
    server: Any = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if hasattr(server, "should_exit"):
        loop = asyncio.get_running_loop()

        def end(*_: object) -> None:
            server.should_exit, server.config.timeout_graceful_shutdown = True, SECONDS_TO_END + 1
            for callback in SHUTDOWN_CALLBACKS:
                loop.call_soon_threadsafe(callback)

        signal.signal(signal.SIGTERM, end)
    threading.Thread(target=_import_for_models, name=_IMPORTING, daemon=True).start()
    try:
        yield
    finally:
        _ending.set()


def _wait_for_runs() -> None:
    """Waits `_PATIENCE` for running threads at exit, then ends the process without Python's finalization.

    Streamlit runs scripts in daemon threads. A thread that returns from torch or pyarrow during finalization aborts the whole
    process, so that SIGTERM would end with an error. A thread that waits for its turn would block the exit.
    """
    _ending.set()
    _first_picture_drawn.set()
    deadline = time.monotonic() + _PATIENCE
    threads = [thread for thread in threading.enumerate() if thread.name in _THREADS]
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


atexit.register(_wait_for_runs)
patches.apply()
bound_log()
