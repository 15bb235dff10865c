"""All limits that an operator sets by environment variables. docs/limits-and-privacy.md documents them."""

from __future__ import annotations

import os
import re
import sys
from difflib import get_close_matches
from pathlib import Path

from attention.params.input_limits import Limits
from pages.ui.server import memory

_READ = {"LAB_PORT", "LAB_MEMORY"}  # all known variables; these two are read by compose.yaml
_BOOLEANS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def _variable(name: str, default: str) -> str:
    """The value of the environment variable LAB_`name`, or the default."""
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
    """The integer in the environment variable LAB_`name`.

    Raises:
        SystemExit: it is not an integer from `low` to `high`. The server does not start with a misread limit.
    """
    text = _variable(name, str(default))
    number = int(text) if text.isascii() and text.strip().isdigit() else low - 1
    if not low <= number <= high:
        raise SystemExit(
            f"LAB_{name} must be {other}a whole number from {low:,} to {high:,}; got {text!r}: correct it, or unset it for {default:,}."
        )
    return number


MAX_TOKENS = _limit("MAX_TOKENS", 2048, 1, 4096)  # of a text; a longer one is cut, and the page says so
MAX_CHARACTERS = _limit("MAX_CHARACTERS", 20_000, 10, 200_000)  # of a text
MAX_D_MODEL = _limit("MAX_D_MODEL", 1024, 1, 4096)  # and of d_k and d_v
MAX_HEADS = _limit("MAX_HEADS", 32, 1, 128)


def _trace_mb() -> int:
    """The integer in LAB_MAX_TRACE_MB, or, for "auto", the budget that the memory of this machine allows.

    Raises:
        SystemExit: it is neither.
    """
    if _variable("MAX_TRACE_MB", "") != "auto":  # `make run` says auto
        return _limit("MAX_TRACE_MB", 128, 1, 65_536, "auto, or ")
    cache = _limit("TRACE_CACHE_MB", 2 * memory.SMALLEST_MB, 2, 131_072) if "LAB_TRACE_CACHE_MB" in os.environ else None
    return memory.trace_mb(memory.available(), cache)


MAX_TRACE_MB = _trace_mb()  # all steps of one text; larger traces are refused with an error
LIMITS = Limits(MAX_TOKENS, MAX_CHARACTERS, MAX_D_MODEL, MAX_HEADS, MAX_TRACE_MB)
TRACE_CACHE_MB = _limit("TRACE_CACHE_MB", 2 * MAX_TRACE_MB, 2, 131_072)  # of the traces cached for all sessions
if TRACE_CACHE_MB < 2 * MAX_TRACE_MB:
    raise SystemExit(
        f"LAB_TRACE_CACHE_MB must be at least twice LAB_MAX_TRACE_MB; got {TRACE_CACHE_MB} and {MAX_TRACE_MB}: raise the first or lower the second."
    )

MEMORY_MB = _limit("MEMORY_MB", 0, 0, 1_048_576)  # of this process; 0: the limit of its control group


def _origins(name: str) -> str:
    """The origins in the environment variable LAB_`name`, in the syntax of a content security policy.

    Raises:
        SystemExit: a part is not an origin. It could otherwise inject another rule into the policy.
    """
    text = _variable(name, "")
    for origin in text.split():
        if not re.fullmatch(r"\*|https?://(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*(:(\d+|\*))?", origin):
            raise SystemExit(
                f"LAB_{name} must be origins separated by spaces, such as https://moodle.example.org, or * for "
                f"every site; got {origin!r}: write each as scheme and host, or unset it for no other site."
            )
    return " ".join(text.split())


FRAME_ANCESTORS = _origins("FRAME_ANCESTORS")  # other sites whose pages may show the Lab in a frame


def _folder(name: str, default: Path) -> Path:
    """The folder in the environment variable LAB_`name`. The default folder need not exist.

    Raises:
        SystemExit: the folder does not exist.
    """
    text = _variable(name, "")
    if text and not Path(text).is_dir():
        raise SystemExit(
            f"LAB_{name} must be a folder that the server can read; got {text!r}: create it, or unset it for {default}."
        )
    return Path(text).resolve() if text else default


def _yes(name: str) -> bool:
    """The boolean in the environment variable LAB_`name`, in upper or lower case; false where it is not set.

    Raises:
        SystemExit: it is no boolean.
    """
    text = _variable(name, "no")
    if text.lower() not in _BOOLEANS:
        raise SystemExit(
            f"LAB_{name} must be one of {', '.join(_BOOLEANS)}; got {text!r}: correct it, or unset it for no."
        )
    return _BOOLEANS[text.lower()]


def _hub(name: str) -> bool | dict[str, str]:
    """The models of the Hugging Face hub that LAB_`name` allows: False for none, True for all, or revisions by id.

    Raises:
        SystemExit: it is none of these, or has two revisions of one id.
    """
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
PICTURE_MB = LIMITS.picture_mb  # of an uploaded picture, or of all pictures of one text
PICTURE_PIXELS = LIMITS.picture_pixels  # of the same
PICTURES_MB = 16  # of the uploaded pictures of one session; the oldest that are not shown are dropped
UPLOADED_MB_OF_ONE = 32  # of all files of one session
UPLOADED_MB = 128  # of all files of all sessions, including those being uploaded
UPLOADS_AT_ONCE = 4
EXPORTS_WAITING = 2  # exports of one session in the queue, beside the one in progress
EXPORTS_OF_ADDRESS = 8  # the same for one IP address without a session, such as the programs of a class
EXPORTS_PREPARED = 2  # models that run or train at the same time for an export
EXPORT_MB = 64  # of all steps in one file; beyond that the file has one head
LARGEST_FILE_MB = 128  # of an export
DOWNLOADS_MB = 64  # of exports not yet read by their browsers; beyond that the slowest downloads are dropped
MOST_CELLS = 512 * 512  # of a table on a page
UNREAD_MB = 96  # of messages that the pages of all sessions have not yet read
METRIC_SECONDS = 2  # of computing the metrics of all heads; longer ones wait for the user's request
METRIC_SECONDS_OF_FILE = 60  # the same for an export
