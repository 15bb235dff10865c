"""The results of runs over many texts that the page Heads shows: the knobs that name them, and where they are.

A result is in the operator's folder, at a path, or uploaded in this tab. Parsed ones share the cache of traces.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import streamlit as st

from attention.base.cache import CACHE
from attention.base.errors import AttentionError, AwaitedError, FileError
from attention.base.knobs import Choice, Knob, Text
from attention.files.archives import quote
from attention.sources import Source
from pages.ui.server import heavy, scheduler, uploads
from pages.ui.server.limits import ALLOW_LOCAL_MODELS, MAX_TRACE_MB, RESULTS
from pages.ui.state import knob_state
from pages.ui.state.knob_state import standing
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs

if TYPE_CHECKING:
    from attention.corpus.result import HeadsResult

_ONE, MANY = "this text", "many texts"
OVER = Knob("heads_over", _ONE, Choice((_ONE, MANY)), "Heads over", "This text: the source in the sidebar. Many texts: the result of a run of attention.corpus.", inline=True)  # fmt: skip
RESULT = Knob("heads_result", "", Text(300), "Result", "A result of attention.corpus: a name on offer here, a path where paths are allowed, or an uploaded file as name:digest.", inline=True)  # fmt: skip
OTHER = Knob("heads_result_b", "", Text(300), "Compared with", "A second result; changes are this one minus the first.", inline=True)  # fmt: skip

_EXAMPLE = "example"
"""The name of the result that comes with the package."""
_TABLE = "heads.parquet"
_MAX_BYTES = MAX_TRACE_MB * 2**20  # of one result: as many as a trace may have
_MOST_NAMES = 500
_LONGEST_NAME = 200  # characters in the address
_UPLOADED = re.compile(r"(.+):([0-9a-f]{32})", re.DOTALL)


def is_many() -> bool:
    """Whether the page Heads shows a result over many texts."""
    return standing(OVER.key) == MANY


@dataclass(frozen=True)
class _UploadedResult:
    """An uploaded heads.parquet: the name of the file, a hash of its bytes, and these."""

    name: str
    digest: str
    content: bytes = field(repr=False)

    @property
    def nbytes(self) -> int:
        """The bytes that it takes."""
        return len(self.content)

    @property
    def link_name(self) -> str:
        """Its name and digest, as in the address."""
        return f"{self.name}:{self.digest}"


@dataclass
class Uploads:
    """What a tab keeps of uploads: the results by the key of their knob, and the error of the last one."""

    results: dict[str, _UploadedResult] = field(default_factory=dict)
    problem: str = ""


class Opened(NamedTuple):
    """The results that the address names: None where it names none, or one that cannot be opened; and why, by the key of its knob."""

    result: HeadsResult | None
    other: HeadsResult | None
    problems: dict[str, AttentionError]


def open_both(knobs: Knobs) -> Opened:
    """Opens the results that the address names."""
    opened: list[HeadsResult | None] = []
    problems: dict[str, AttentionError] = {}
    for knob in (RESULT, OTHER):
        try:
            with scheduler.without_turn():
                opened.append(_result_of(str(knobs.value(knob)).strip()))
        except AttentionError as error:
            problems[knob.key] = error
            opened.append(None)
    return Opened(opened[0], opened[1], problems)


def _result_of(asked: str) -> HeadsResult | None:
    """The result that the value of a knob names; None if it names none."""
    if not asked:
        return None
    found = _UPLOADED.fullmatch(asked)
    if found is None:
        return _of_name(asked)
    for uploaded in session().of(Uploads).results.values():
        if uploaded.link_name == asked:
            return _of_bytes(uploaded.name, uploaded.digest, uploaded.content)
    raise AwaitedError(
        f"The link shows the result {quote(found[1])} (digest {found[2][:8]}…), which is not on this server: upload it to open the link."
    )


def upload_field(knob: Knob, label: str) -> None:
    """Draws a field that takes an upload as the result of a knob."""
    key = f"{knob.key}_upload"
    st.file_uploader(label, type=["parquet"], key=key, on_change=_uploaded, args=(knob, key), help=f"The {_TABLE} that a run writes. It stays in this browser tab; the link has only its name and digest.")  # fmt: skip


def _uploaded(knob: Knob, key: str) -> None:
    chosen, ours = st.session_state[key], session().of(Uploads)
    ours.problem = ""
    if chosen is None:
        return
    try:
        content = uploads.content(chosen)
        name = chosen.name if len(chosen.name) <= _LONGEST_NAME else f"…{chosen.name[-_LONGEST_NAME:]}"
        with scheduler.without_turn():
            digest = blake2b(content, digest_size=16).hexdigest()
            _of_bytes(name, digest, content)
        uploaded = _UploadedResult(name, digest, content)
        uploads.count_file(uploaded, knob.key)
    except AttentionError as error:
        ours.problem = str(error)
        return
    ours.results[knob.key] = uploaded
    knob_state.hold({knob.key: uploaded.link_name, OVER.key: MANY})


def open_example() -> None:
    """Opens the result that comes with the package."""
    knob_state.hold({RESULT.key: _EXAMPLE, OVER.key: MANY})


def missing_words(source: Source | None) -> str:
    """A sentence about uploaded results, which are not in the link; empty if the page shows a source, or there are none."""
    if source is not None:
        return ""
    matches = [_UPLOADED.fullmatch(standing(knob.key)) for knob in (RESULT, OTHER)]
    names = [quote(found[1]) for found in matches if found]
    if not names:
        return ""
    them, are, it = ("the file", "is", "it") if len(names) == 1 else ("the files", "are", "them")
    return f"{' and '.join(names)} {are} not in the link: send {them} too, because the page will ask for {it}."


def short_name(asked: str) -> str:
    """The value of a knob without a digest."""
    found = _UPLOADED.fullmatch(asked)
    return found[1] if found else asked


def result_names() -> tuple[str, ...]:
    """The names of the results that the operator offers."""
    if not RESULTS.is_dir():
        return ()
    entries = (entry for entry in RESULTS.iterdir() if not entry.name.startswith("."))
    found = {
        each.name.removesuffix(".parquet") for each in entries if each.suffix == ".parquet" or (each / _TABLE).is_file()
    }
    return tuple(sorted(found)[:_MOST_NAMES])


def _of_name(name: str) -> HeadsResult:
    """The result of a name on offer, or, where local paths are allowed, of a path."""
    if name in result_names():
        folder = RESULTS / name
        return _of_path(folder if folder.is_dir() else RESULTS / f"{name}.parquet", name)
    if name == _EXAMPLE:
        from attention.corpus.result import EXAMPLE as FOLDER

        return _of_path(FOLDER, name)
    if ALLOW_LOCAL_MODELS:
        return _of_path(Path(name), Path(name).name)
    offered = ", ".join(result_names()[:20])
    advice = f"choose one of {offered}, or upload it" if offered else f"upload its {_TABLE}"
    raise FileError(f"A result has a name on offer here; got {quote(name)}: {advice}.")


def _of_bytes(name: str, digest: str, content: bytes) -> HeadsResult:
    from attention.corpus.result import HeadsResult

    result: HeadsResult = CACHE.get_or_compute(
        ("result", digest), lambda: HeadsResult.of(name, content, _MAX_BYTES, _turn)
    )
    return result


def _of_path(path: Path, name: str) -> HeadsResult:
    from attention.corpus.result import HeadsResult

    try:
        status = (path / _TABLE if path.is_dir() else path).stat()
    except (OSError, ValueError) as error:  # a null character
        raise FileError(
            f"A result is a {_TABLE}, or a folder that has one; {quote(name)} cannot be opened: check its name."
        ) from error
    key = ("result", str(path.absolute()), status.st_size, status.st_mtime_ns)
    result: HeadsResult = CACHE.get_or_compute(key, lambda: HeadsResult.open(path, _MAX_BYTES, _turn))
    return result


def _turn() -> AbstractContextManager[int]:
    return heavy.turn("Reading the result")
