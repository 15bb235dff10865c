"""What a server process does once, on the import of this module."""

from __future__ import annotations

import atexit
import ctypes
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache

from streamlit import cli_util, config, net_util
from streamlit.starlette import App
from streamlit.web.server import server_util

from pages.ui.server.downloads import keep_downloads
from pages.ui.server.first_paint import take_styles_along
from pages.ui.server.garbage import bound_log
from pages.ui.server.limits import HUB
from pages.ui.server.own_key import look_up
from pages.ui.server.turns import take_turns
from pages.ui.server.unread import bound_unread
from pages.ui.server.uploads import bound_uploads
from pages.ui.server.whole_runs import keep_whole_runs

# Read when torch is imported, which is at the first trace. Matrices are small here and people are many: a
# thread per request is faster for everybody, and up to 20 times where the processors are busy.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Read when the hub's library is imported, which is at the first model. It calls nobody but to load what the operator allows.
os.environ["HF_HUB_DISABLE_TELEMETRY"] = os.environ["DISABLE_SAFETENSORS_CONVERSION"] = "1"
if not HUB:
    os.environ["HF_HUB_OFFLINE"] = "1"

_ALLOCATOR = {-8: 1, -3: 5 * 2**20, -1: 2**25}  # M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h
# glibc gives every thread a heap of its own, and keeps in each what was freed there: thirty people with long texts needed
# 1 GiB where 600 MB do. So there is one heap, what is larger than 5 MB stays out of it, and 32 MB that are free leave it.
if allocator := getattr(ctypes.CDLL(None), "mallopt", None):
    for parameter, value in _ALLOCATOR.items():
        allocator(parameter, value)

_USUAL = gc.get_threshold()
gc.set_threshold(200_000)  # every full collection during the imports takes 0.1 s, and finds nothing; see `imported`

_PATIENCE = 0.5  # seconds; most runs of ours take less
_THREADS = ("ScriptRunner.scriptThread", "training")


@cache
def imported() -> None:
    """Takes what the imports have made, torch among them, out of every later collection, which otherwise walks through it."""
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
        signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
    yield


def _end_runs() -> None:
    """Waits a moment for what is in progress before Python goes, and ends the process without that where it is not enough.

    Streamlit runs scripts in daemon threads. One that comes back from torch or pyarrow while Python finalizes makes the whole
    process abort, and SIGTERM would end with an error; one that waits for its turn would keep the process until it has had it.
    """
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
# For each socket from another site Streamlit compares that with this machine's address, and asks a service on the internet for it.
net_util.get_external_ip = lambda: None
take_turns()
look_up()
take_styles_along()
bound_uploads()
keep_downloads()
bound_unread()
bound_log()
keep_whole_runs()
