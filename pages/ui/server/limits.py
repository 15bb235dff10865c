"""Limits that an operator sets by environment variables: the only place. docs/limits-and-privacy.md has the same table."""

from __future__ import annotations

import os
import re
import sys
from difflib import get_close_matches
from pathlib import Path

from pages.ui.server import memory

VARIABLE_ALIASES = {
    "LAB_FRAMED_BY": "LAB_FRAME_ANCESTORS",
    "LAB_MODEL_PATHS": "LAB_ALLOW_LOCAL_MODELS",
    "LAB_HUB": "LAB_HF_ALLOW",
    "LAB_CACHE_MB": "LAB_TRACE_CACHE_MB",
    "LAB_MODELS_KEPT_MB": "LAB_MODEL_CACHE_MB",
}
"""The former names of environment variables with their present names. They are still read, and written nowhere."""

_READ = {"LAB_PORT", "LAB_MEMORY"}  # the variables that are read here, and those of compose.yaml
_BOOLEANS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def _resolve_aliases() -> None:
    """Gives each variable that is set under its former name its present name, and prints one line for each."""
    for former, present in VARIABLE_ALIASES.items():
        if former not in os.environ:
            continue
        ignored = present in os.environ
        os.environ.setdefault(present, os.environ.pop(former))
        use = f"only {present} is used" if ignored else "the former name still works"
        print(f"{former} is now called {present}; {use}: rename it.", file=sys.stderr, flush=True)


def _variable(name: str, default: str) -> str:
    """The value of the environment variable LAB_`name`."""
    _READ.add(f"LAB_{name}")
    return os.environ.get(f"LAB_{name}", default)


def _warn_of_unknown() -> None:
    """Prints a line that names the variables which look like ours and do nothing, each with the nearest that does something."""
    unknown = []
    for name in sorted(one for one in os.environ if one.startswith("LAB_") and one not in _READ):
        near = get_close_matches(name, sorted(_READ), 1)
        unknown.append(f"{name} (did you mean {near[0]}?)" if near else name)
    if unknown:
        print(f"Unknown variables of the environment do nothing: {', '.join(unknown)}", file=sys.stderr, flush=True)


def _limit(name: str, default: int, low: int, high: int, other: str = "") -> int:
    """The whole number in the environment variable LAB_`name`.

    Raises:
        SystemExit: it is no whole number from `low` to `high`; the server does not start with a limit it misreads.
    """
    text = _variable(name, str(default))
    number = int(text) if text.isascii() and text.strip().isdigit() else low - 1
    if not low <= number <= high:
        raise SystemExit(
            f"LAB_{name} is {other}a whole number from {low:,} to {high:,}; got {text!r}: set one, or leave it out for {default:,}."
        )
    return number


_resolve_aliases()
MAX_TOKENS = _limit("MAX_TOKENS", 2048, 1, 4096)  # of a text; a longer one is cut, and the page says so
MAX_CHARACTERS = _limit("MAX_CHARACTERS", 20_000, 10, 200_000)  # of a text
MAX_D_MODEL = _limit("MAX_D_MODEL", 1024, 1, 4096)  # and of d_k and d_v
MAX_HEADS = _limit("MAX_HEADS", 32, 1, 128)


def _trace_mb() -> int:
    """The whole number in LAB_MAX_TRACE_MB; where it is "auto", what the memory of this machine allows.

    Raises:
        SystemExit: it is neither.
    """
    if _variable("MAX_TRACE_MB", "") != "auto":  # `make run` says auto
        return _limit("MAX_TRACE_MB", 128, 1, 65_536, "auto, or ")
    cache = _limit("TRACE_CACHE_MB", 2 * memory.SMALLEST_MB, 2, 131_072) if "LAB_TRACE_CACHE_MB" in os.environ else None
    return memory.trace_mb(memory.available(), cache)


MAX_TRACE_MB = _trace_mb()  # all steps of one text; larger ones are refused in words
TRACE_CACHE_MB = _limit("TRACE_CACHE_MB", 2 * MAX_TRACE_MB, 2, 131_072)  # of the traces kept for everybody
if TRACE_CACHE_MB < 2 * MAX_TRACE_MB:
    raise SystemExit(
        f"LAB_TRACE_CACHE_MB is at least twice LAB_MAX_TRACE_MB; got {TRACE_CACHE_MB} and {MAX_TRACE_MB}: raise the one or lower the other."
    )

MEMORY_MB = _limit("MEMORY_MB", 0, 0, 1_048_576)  # of this process; 0: what its control group allows


def _origins(name: str) -> str:
    """The addresses of sites in the environment variable LAB_`name`, as a content security policy has them.

    Raises:
        SystemExit: there is something else in it, which could be another rule of the policy.
    """
    text = _variable(name, "")
    for one in text.split():
        if not re.fullmatch(r"\*|https?://(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*(:(\d+|\*))?", one):
            raise SystemExit(
                f"LAB_{name} is addresses of sites with spaces between them, such as https://moodle.example.org, or * for "
                f"every site; got {one!r}: write each as scheme and host, or leave it out for no other site."
            )
    return " ".join(text.split())


FRAME_ANCESTORS = _origins("FRAME_ANCESTORS")  # sites whose pages may show the Lab in a frame, beside its own


def _folder(name: str, default: Path) -> Path:
    """The folder in the environment variable LAB_`name`; the default need not be there.

    Raises:
        SystemExit: there is no such folder.
    """
    text = _variable(name, "")
    if text and not Path(text).is_dir():
        raise SystemExit(
            f"LAB_{name} is a folder that the server can read; got {text!r}: make it, or leave it out for {default}."
        )
    return Path(text).resolve() if text else default


def _yes(name: str) -> bool:
    """The boolean in the environment variable LAB_`name`, in upper or lower case; false where it is not set.

    Raises:
        SystemExit: it is no boolean.
    """
    text = _variable(name, "no")
    if text.lower() not in _BOOLEANS:
        raise SystemExit(f"LAB_{name} is one of {', '.join(_BOOLEANS)}; got {text!r}: set one, or leave it out for no.")
    return _BOOLEANS[text.lower()]


def _hub(name: str) -> bool | dict[str, str]:
    """What the environment variable LAB_`name` allows of the Hugging Face hub: nothing, everything, or a revision by id.

    Raises:
        SystemExit: it is none of these, or has an id twice.
    """
    text = _variable(name, "no")
    if text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    allowed: dict[str, str] = {}
    for one in text.split():
        model, _, revision = one.partition("@")
        if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", model, re.ASCII) or not re.fullmatch(r"\w[\w./-]*", revision):
            raise SystemExit(
                f"LAB_{name} is yes, no, or models with their revisions and spaces between them, such as "
                f"openai-community/gpt2@607a30d783dfa663caf39e06633721c8d4cfcd7e; got {one!r}: write id@revision, or leave it out for no."
            )
        if allowed.setdefault(model, revision) != revision:
            raise SystemExit(f"LAB_{name} has one revision for each model; got two for {model!r}: take one out.")
    if not allowed:
        raise SystemExit(f"LAB_{name} is yes, no, or models as id@revision; got {text!r}: leave it out for no.")
    return allowed


# Models. What is allowed of paths and of the hub is no by default, since a server is for people one does not know; `make run` says yes to paths.
MODELS = _folder("MODELS", Path(__file__).parents[3] / "models")  # each folder in it is a model, offered by its name
ALLOW_LOCAL_MODELS = _yes("ALLOW_LOCAL_MODELS")  # a person may type any folder of this machine
HF_ALLOW = _hub("HF_ALLOW")  # False, True, or a revision for each id that may be loaded
MAX_MODEL_MB = _limit("MAX_MODEL_MB", 4096, 1, 1_048_576)  # weights in memory; larger ones are refused in words
MODEL_CACHE_MB = _limit("MODEL_CACHE_MB", 4096, 1, 1_048_576)  # of all that are loaded; the least recently used goes
if MODEL_CACHE_MB < MAX_MODEL_MB:
    raise SystemExit(
        f"LAB_MODEL_CACHE_MB is at least LAB_MAX_MODEL_MB; got {MODEL_CACHE_MB} and {MAX_MODEL_MB}: raise the one or lower the other."
    )

REPLICA = _variable("REPLICA", "")  # what several servers behind a proxy call this one
_warn_of_unknown()

# What nobody needs to change. MB are of memory.
STATE_FILE_MB = 8
UPLOADED_MB_OF_ONE = 32  # of all files that one session keeps here
UPLOADED_MB = 128  # of all files of all sessions, and those under way
UPLOADS_AT_ONCE = 4
EXPORTS_WAITING = 2  # of one session, beside the one that this process makes
EXPORTS_OF_ADDRESS = 8  # the same of one address without a session, such as programs of a class
EXPORTS_PREPARED = 2  # models that run, or learn, for a file at once
EXPORT_MB = 64  # of all steps in one file; beyond, it has one head
LARGEST_FILE_MB = 128  # that is made at all
DOWNLOADS_MB = 64  # of files that wait for their browsers; while as many are on their way, the slowest give way
MOST_CELLS = 512 * 512  # of a table on a page
UNREAD_MB = 96  # of messages that the pages of all sessions have not yet read
METRIC_SECONDS = 2  # of working out what all heads do; what takes longer waits until somebody asks
METRIC_SECONDS_OF_FILE = 60  # of working it out for a file
