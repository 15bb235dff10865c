"""All limits that an operator sets by environment variables, and the memory of the process: available, allowed by the control group, and in use.

docs/limits-and-privacy.md documents the variables. `configure_allocator` concerns glibc on Linux; on other systems it does nothing.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from attention.base.knobs import Limits

_GROWTH = 2**26  # bytes
_released = [0]  # resident bytes after the last release
_SMALLEST_MB, _LARGEST_MB = 128, 4096  # bounds of the automatic trace budget

_C = ctypes.CDLL(None) if os.name == "posix" else None
# M_ARENA_MAX, M_MMAP_THRESHOLD and M_TRIM_THRESHOLD of malloc.h. One heap for all threads, since each heap retains its freed memory.
# Blocks larger than 1 MB are separate mappings, which the system gets back at once. With a threshold of 5 MB, freed matrices of 4 MB
# (1,024 × 1,024) stay in the heap until `trim` runs after a large run, and the peaks are 120 to 150 MB higher.
_ALLOCATOR = {-8: 1, -3: 2**20, -1: 2**25}


def trace_mb(available: int | None, cache_mb: int | None = None) -> int:
    """The budget of one trace in MB: a quarter of the available memory, since the cache is at least twice as large.

    Args:
        available: bytes; None if unknown.
        cache_mb: the size of the cache if the operator has set it.

    Returns:
        From `_SMALLEST_MB`, also the value for unknown memory, to `_LARGEST_MB`; at most half of `cache_mb`.
    """
    budget = _SMALLEST_MB if available is None else min(max(available // 4 // 2**20, _SMALLEST_MB), _LARGEST_MB)
    return budget if cache_mb is None else max(1, min(budget, cache_mb // 2))


def _available(root: Path = Path("/")) -> int | None:
    """The available bytes, at most the limit of the control group (v1 or v2); None if unknown.

    Args:
        root: the folder that contains proc/ and sys/.
    """
    sizes = [*_machine(root, "MemAvailable"), *_allowed(root)]
    return min(sizes, default=None)


def process_memory(mb: int, root: Path = Path("/")) -> tuple[int | None, str]:
    """The bytes that this process may take, and a sentence that says so: those of LAB_MEMORY_MB and of the control group (v1 or v2).

    Without either these are three quarters of the machine's memory, or None if that is unknown.

    Args:
        mb: LAB_MEMORY_MB; 0 if it is not set.
        root: the folder that contains proc/ and sys/.
    """
    installed = next(_machine(root, "MemTotal"), None)
    of_group = [(size, "of the control group") for size in _allowed(root) if installed is None or size < installed]
    if limits := [*of_group, *([(mb * 2**20, "LAB_MEMORY_MB")] if mb else [])]:
        size, whose = min(limits)
        return size, f"Memory limit: {size / 2**20:,.0f} MB ({whose})."
    what_to_do = "start the container with --memory 1g, or set LAB_MEMORY_MB."
    if installed is None:
        return None, f"No memory limit: {what_to_do}"
    most = installed // 4 * 3
    amount = f"{most / 2**20:,.0f} MB"
    return most, f"No memory limit: this server takes up to {amount}, three quarters of the machine's; {what_to_do}"


def resident_bytes(root: Path = Path("/"), process: str | int = "self") -> int | None:
    """The bytes that a process holds in memory; None if unknown. Pages of files do not count, since the system drops them when it needs room."""
    lines = (line.split() for line in _lines(root / "proc" / str(process) / "status"))
    sizes = [int(line[1]) * 2**10 for line in lines if line and line[0] in ("RssAnon:", "RssShmem:")]
    return sum(sizes) if sizes else None


def configure_allocator() -> None:
    """Sets the thresholds of glibc's allocator. Call it before any large allocation."""
    if configure := getattr(_C, "mallopt", None):
        for parameter, value in _ALLOCATOR.items():
            configure(parameter, value)


def trim() -> None:
    """Returns free heap pages to the system. Takes less than a millisecond."""
    if release := getattr(_C, "malloc_trim", None):
        release(0)


def release() -> None:
    """Collects garbage and trims the heap if the process has grown by `_GROWTH` since the last time.

    Finished runs are reference cycles that may contain large figures, and Streamlit disables its own collection. A collection
    takes 10 ms, as long as a trace of 512 tokens, so it does not run before every trace.
    """
    size = resident_bytes()
    if size is None or size > _released[0] + _GROWTH:
        gc.collect()
        trim()
        _released[0] = resident_bytes() or 0
    else:
        _released[0] = min(_released[0], size)


def _machine(root: Path, entry: str) -> Iterator[int]:
    """MemAvailable or MemTotal of the machine, if it is known."""
    for line in _lines(root / "proc" / "meminfo"):
        name, _, size = line.partition(":")
        if name == entry:
            yield int(size.split()[0]) * 2**10
            return
    try:  # macOS reports only the total memory: assume that other programs use half of it
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (1 if entry == "MemTotal" else 2)
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return


def _allowed(root: Path) -> Iterator[int]:
    """The limits of the control group and its parents."""
    groups = root / "sys" / "fs" / "cgroup"
    for line in _lines(root / "proc" / "self" / "cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0":
            folder, name = groups, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        place = Path(path.lstrip("/"))
        for group in (place, *place.parents):  # the last one is the root, where a container sees its own group
            for limit in _lines(folder / group / name):
                if limit.isdigit():  # and not "max"
                    yield int(limit)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


_READ = {
    "LAB_PORT",
    "LAB_MEMORY",
    "LAB_PROXIES",
}  # all known variables; these are read by compose.yaml and deploy/front.py
_BOOLEANS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def _variable(name: str, default: str) -> str:
    _READ.add(f"LAB_{name}")
    return os.environ.get(f"LAB_{name}", default)


def _warn_of_unknown() -> None:
    """Prints the unknown variables that begin with LAB_, each with the nearest known name."""
    unknown = []
    for name in sorted(name for name in os.environ if name.startswith("LAB_") and name not in _READ):
        near = get_close_matches(name, sorted(_READ), 1)
        unknown.append(f"{name} (did you mean {near[0]}?)" if near else name)
    if unknown:
        print(f"Ignored unknown environment variables: {', '.join(unknown)}", file=sys.stderr, flush=True)


def _limit(name: str, default: int, low: int, high: int, other: str = "") -> int:
    """The integer in the environment variable LAB_`name`. The server does not start with a misread limit."""
    text = _variable(name, str(default))
    number = int(text) if text.isascii() and text.strip().isdigit() else low - 1
    if not low <= number <= high:
        raise SystemExit(
            f"LAB_{name} must be {other}a whole number from {low:,} to {high:,}; got {text!r}: correct it, or unset it for {default:,}."
        )
    return number


MAX_TOKENS = _limit("MAX_TOKENS", 2048, 1, 8192)  # of a text; a longer one is cut, and the page says so
_MAX_CHARACTERS = _limit("MAX_CHARACTERS", 20_000, 10, 200_000)  # of a text
MAX_D_MODEL = _limit("MAX_D_MODEL", 1024, 1, 4096)  # and of d_k and d_v
MAX_HEADS = _limit("MAX_HEADS", 32, 1, 128)


def _trace_mb() -> int:
    """The integer in LAB_MAX_TRACE_MB, or, for "auto", the budget that the memory of this machine allows."""
    if _variable("MAX_TRACE_MB", "") != "auto":  # `make run` says auto
        return _limit("MAX_TRACE_MB", 128, 1, 65_536, "auto, or ")
    cache = _limit("TRACE_CACHE_MB", 2 * _SMALLEST_MB, 2, 131_072) if "LAB_TRACE_CACHE_MB" in os.environ else None
    return trace_mb(_available(), cache)


MAX_TRACE_MB = _trace_mb()  # all steps of one text; larger traces are refused with an error
LIMITS = Limits(MAX_TOKENS, _MAX_CHARACTERS, MAX_D_MODEL, MAX_HEADS, MAX_TRACE_MB)
TRACE_CACHE_MB = _limit("TRACE_CACHE_MB", 2 * MAX_TRACE_MB, 2, 131_072)  # of the traces cached for all sessions
if TRACE_CACHE_MB < 2 * MAX_TRACE_MB:
    raise SystemExit(
        f"LAB_TRACE_CACHE_MB must be at least twice LAB_MAX_TRACE_MB; got {TRACE_CACHE_MB} and {MAX_TRACE_MB}: raise the first or lower the second."
    )

MEMORY_MB = _limit("MEMORY_MB", 0, 0, 1_048_576)  # of this process; 0: see `process_memory`


def _origins(name: str) -> str:
    """The origins in LAB_`name`, in the syntax of a content security policy. Another part could inject another rule into the policy."""
    text = _variable(name, "")
    for origin in text.split():
        if not re.fullmatch(r"\*|https?://(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*(:(\d+|\*))?", origin):
            raise SystemExit(
                f"LAB_{name} must be origins separated by spaces, such as https://moodle.example.org, or * for "
                f"every site; got {origin!r}: write each as scheme and host, or unset it for no other site."
            )
    return " ".join(text.split())


FRAME_ANCESTORS = _origins("FRAME_ANCESTORS")  # other sites whose pages may show the Lab in a frame
# Names of this machine beside localhost, which a browser may ask for where any folder may be opened.
ALLOWED_HOSTS = frozenset(_variable("ALLOWED_HOSTS", "").lower().split())


def _folder(name: str, default: Path) -> Path:
    """The folder in LAB_`name`. The default folder need not exist."""
    text = _variable(name, "")
    if text and not Path(text).is_dir():
        raise SystemExit(
            f"LAB_{name} must be a folder that the server can read; got {text!r}: create it, or unset it for {default}."
        )
    return Path(text).resolve() if text else default


def _yes(name: str) -> bool:
    """The boolean in LAB_`name`, in upper or lower case; false where it is not set."""
    text = _variable(name, "no")
    if text.lower() not in _BOOLEANS:
        raise SystemExit(
            f"LAB_{name} must be one of {', '.join(_BOOLEANS)}; got {text!r}: correct it, or unset it for no."
        )
    return _BOOLEANS[text.lower()]


def _hub(name: str) -> bool | dict[str, str]:
    """The models of the Hugging Face hub that LAB_`name` allows: False for none, True for all, or revisions by id."""
    text = _variable(name, "no")
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    allowed: dict[str, str] = {}
    for entry in text.split():
        model, _, revision = entry.partition("@")
        if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", model, re.ASCII) or not re.fullmatch(r"\w[\w./-]*", revision):
            raise SystemExit(
                f"LAB_{name} must be yes, no, or models with revisions, separated by spaces, such as "
                f"openai-community/gpt2@607a30d783dfa663caf39e06633721c8d4cfcd7e; got {entry!r}: write id@revision, or unset it for no."
            )
        if allowed.setdefault(model, revision) != revision:
            raise SystemExit(f"LAB_{name} must have one revision for each model; got two for {model!r}: remove one.")
    if not allowed:
        raise SystemExit(f"LAB_{name} must be yes, no, or models as id@revision; got {text!r}: unset it for no.")
    return allowed


# Models. Paths and the hub are not allowed by default, because a public server has unknown users; `make run` allows paths.
MODELS = _folder("MODELS", Path(__file__).parents[3] / "models")  # each subfolder is a model, offered by its name
RESULTS = _folder("RESULTS", Path(__file__).parents[3] / "results")  # each entry is a result of attention.corpus
ALLOW_LOCAL_MODELS = _yes("ALLOW_LOCAL_MODELS")  # whether users may type any folder of this machine
HF_ALLOW = _hub("HF_ALLOW")  # False, True, or the allowed revision of each id
MAX_MODEL_MB = _limit("MAX_MODEL_MB", 4096, 1, 1_048_576)  # of weights in memory; larger models are refused
MODEL_CACHE_MB = _limit("MODEL_CACHE_MB", 4096, 1, 1_048_576)  # of all loaded models; the least recently used leaves
if MODEL_CACHE_MB < MAX_MODEL_MB:
    raise SystemExit(
        f"LAB_MODEL_CACHE_MB must be at least LAB_MAX_MODEL_MB; got {MODEL_CACHE_MB} and {MAX_MODEL_MB}: raise the first or lower the second."
    )

REPLICA = _variable("REPLICA", "")  # the name of this server among several behind a proxy
_warn_of_unknown()

# Fixed limits. MB are of memory.
STATE_FILE_MB = 8
PICTURE_MB = LIMITS.picture_mb  # of an uploaded picture, sound or other input of a medium, or of all of one text
GIVEN_MB = 16  # of such uploads of one session; the oldest that are not shown are dropped
UPLOADED_MB_OF_ONE = 32  # of all files of one session
UPLOADED_MB_OF_ADDRESS = 96  # of all files of one IP address, such as a school's
UPLOADED_MB = 128  # of all files of all sessions
JOBS_AT_ONCE = 2  # heavy computations and files in processes of their own; of one address, one
JOBS_WAITING = 2  # of one session in the line, or of the programs of one address without a session
JOBS_WAITING_OF_ADDRESS = 64  # of all sessions of one IP address, such as a school's
JOB_MB = 1024  # of memory of one job; less where the server has less
JOB_SECONDS = 600  # of one job
FILES_AT_ONCE = 4  # small files, which the server itself makes
EXPORT_MB = 64  # of all steps in one file; beyond that the file has one head
LARGEST_FILE_MB = 128  # of an export
UNREAD_MB = 32  # of one file that its browser has not read yet; beyond that its production waits for the browser
MOST_CELLS = 512 * 512  # of a table on a page
IN_FLIGHT_MB = 128  # of messages and bodies that have not arrived completely, and of messages that are not yet read
IN_FLIGHT_MB_OF_ADDRESS = 96  # the same for one IP address, such as a school's
METRIC_SECONDS = 2  # of computing the metrics of all heads; longer ones wait for the user's request
METRIC_SECONDS_OF_FILE = 60  # the same for an export
