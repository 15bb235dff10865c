"""What a server process does once, on the import of this module."""

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

from streamlit import cli_util, config
from streamlit.starlette import App
from streamlit.web.server import server_util

from pages.ui import patches
from pages.ui.server import memory, turns
from pages.ui.server.garbage import bound_log
from pages.ui.server.limits import HF_ALLOW

# Read when torch is imported, which is at the first trace. Matrices are small here and people are many: a
# thread per request is faster for everybody, and up to 20 times where the processors are busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Read when the hub's library is imported, which is at the first model. It calls nobody but to load what the operator allows.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"
if not HF_ALLOW:
    os.environ["HF_HUB_OFFLINE"] = "1"

memory.configure_allocator()

_USUAL = gc.get_threshold()
gc.set_threshold(200_000)  # every full collection during the imports takes 0.1 s, and finds nothing; see `imported`

_PATIENCE = 0.5  # seconds; most runs of ours take less
_IMPORTING = "imports for models"
_THREADS = ("ScriptRunner.scriptThread", "training", "export", _IMPORTING)
_QUIET = 3.0  # seconds without a run, before an idle process imports another part of what models need
AT_END: list[Callable[[], None]] = []
"""What is called in the event loop when the server is asked to end, before it waits for its answers to be read."""
_pictured, _ending = threading.Event(), threading.Event()


@cache
def imported() -> None:
    """Takes what the imports have made, torch among them, out of every later collection, which otherwise walks through it."""
    gc.freeze()
    gc.set_threshold(*_USUAL)
    _pictured.set()


def _import_for_models() -> None:
    """Imports what models need after the first picture, part by part, each when no script has run for a while.

    Whoever comes meanwhile shares Python with one part, which takes at most a second.
    """
    _pictured.wait()
    if _ending.is_set():
        return
    from attention.models import imports  # here, since nobody needs these before the first picture
    from attention.models.library import LIBRARY
    from pages.ui.server.room import make_room

    if not LIBRARY.offers or make_room(imports.missing_bytes()):
        return
    for _ in imports.import_parts():
        while turns.idle() < _QUIET:
            if _ending.wait(_QUIET / 4):
                return
        gc.set_threshold(200_000)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_USUAL)


@asynccontextmanager
async def serving(_: App) -> AsyncIterator[None]:
    """The life of the server: what `streamlit run` does for a script, and leaves to an app of one's own."""
    address = server_util.get_url(config.get_option("browser.serverAddress"))
    print(f"Attention Lab: {address}", flush=True)
    if not config.get_option("server.headless"):
        cli_util.open_browser(address)
    # Uvicorn ends well at SIGTERM, and then sends it to itself once more, to die of it. An orchestrator expects 0.
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if hasattr(server, "should_exit"):
        loop = asyncio.get_running_loop()

        def end(*_: object) -> None:
            server.should_exit = True  # type: ignore[union-attr]  # it has one, see above
            for one in AT_END:
                loop.call_soon_threadsafe(one)

        signal.signal(signal.SIGTERM, end)
    threading.Thread(target=_import_for_models, name=_IMPORTING, daemon=True).start()
    yield


def _end_runs() -> None:
    """Waits a moment for what is in progress before Python goes, and ends the process without that where it is not enough.

    Streamlit runs scripts in daemon threads. One that comes back from torch or pyarrow while Python finalizes makes the whole
    process abort, and SIGTERM would end with an error; one that waits for its turn would keep the process until it has had it.
    """
    _ending.set()
    _pictured.set()
    until = time.monotonic() + _PATIENCE
    threads = [thread for thread in threading.enumerate() if thread.name in _THREADS]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


atexit.register(_end_runs)
patches.apply()
bound_log()
