"""What an operator allows, from environment variables: the one place, and the README's table says the same."""

from __future__ import annotations

import os
import re


def _limit(name: str, default: int, low: int, high: int) -> int:
    """The whole number in the environment variable LAB_`name`.

    Raises:
        SystemExit: it is no whole number from `low` to `high`; the server does not start with a limit it misreads.
    """
    text = os.environ.get(f"LAB_{name}", str(default))
    number = int(text) if text.isascii() and text.strip().isdigit() else low - 1
    if not low <= number <= high:
        raise SystemExit(
            f"LAB_{name} is a whole number from {low:,} to {high:,}; got {text!r}: set one, or leave it out for {default:,}."
        )
    return number


MAX_TOKENS = _limit("MAX_TOKENS", 2048, 1, 4096)  # of a text; a longer one is cut, and the page says so
MAX_CHARACTERS = _limit("MAX_CHARACTERS", 20_000, 10, 200_000)  # of a text
MAX_D_MODEL = _limit("MAX_D_MODEL", 1024, 1, 4096)  # and of d_k and d_v
MAX_HEADS = _limit("MAX_HEADS", 32, 1, 128)
MAX_TRACE_MB = _limit("MAX_TRACE_MB", 128, 1, 65_536)  # all steps of one text; larger ones are refused in words
CACHE_MB = _limit("CACHE_MB", 256, 1, 65_536)  # of the traces kept for everybody
if CACHE_MB < 2 * MAX_TRACE_MB:
    raise SystemExit(
        f"LAB_CACHE_MB is at least twice LAB_MAX_TRACE_MB; got {CACHE_MB} and {MAX_TRACE_MB}: raise the one or lower the other."
    )


def _origins(name: str) -> str:
    """The addresses of sites in the environment variable LAB_`name`, as a content security policy has them.

    Raises:
        SystemExit: there is something else in it, which could be another rule of the policy.
    """
    text = os.environ.get(f"LAB_{name}", "")
    for one in text.split():
        if not re.fullmatch(r"\*|https?://(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*(:(\d+|\*))?", one):
            raise SystemExit(
                f"LAB_{name} is addresses of sites with spaces between them, such as https://moodle.example.org, or * for "
                f"every site; got {one!r}: write each as scheme and host, or leave it out for no other site."
            )
    return " ".join(text.split())


FRAMED_BY = _origins("FRAMED_BY")  # sites whose pages may show the Lab in a frame, beside its own

# What nobody needs to change. MB are of memory.
STATE_FILE_MB = 8
UPLOADED_MB_OF_ONE = 32  # of all files that one session keeps here
UPLOADED_MB = 128  # of all files of all sessions, and those under way
UPLOADS_AT_ONCE = 4
EXPORTS_WAITING = 2  # of one session, beside the one that this process makes
EXPORT_MB = 64  # of all steps in one file; beyond, it has one head
LARGEST_FILE_MB = 128  # that is made at all
DOWNLOADS_MB = 64  # of files that wait for their browsers; while as many are on their way, the slowest give way
MOST_CELLS = 512 * 512  # of a table on a page
UNREAD_MB = 96  # of messages that the pages of all sessions have not yet read
