"""The state in the query of an export, parsed by the same reader as a page's state, but strictly.

For a bad value a page uses the default and shows a note. A program that downloads a file would miss the note, so it gets an
error. A text that a page truncates (too many characters or tokens) is truncated here in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from attention import Cell, ConfigError, File, Source, Trace
from attention.io.picture import Picture
from attention.params.knob import MAX_QUOTED, Knob
from attention.params.ranges import EncodedText, NameOrText, Range, Text
from attention.pictures import view
from attention.sources import link
from attention.sources.kinds.file_source import missing_file_error
from pages.ui.exports.export_tokens import Tab
from pages.ui.server.limits import LIMITS
from pages.ui.server.traces import compute_head, trace_of
from pages.ui.state.knob_table import knobs_of


class StrictReader(link.LinkReader):
    """A knob reader that raises an error for bad values of a query. The uploaded file is that of the requesting tab."""

    def __init__(self, texts: Mapping[str, str], tab: Tab | None = None) -> None:
        super().__init__(texts, LIMITS)
        self._tab = tab

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The value of a knob in the query, or its default.

        Raises:
            ConfigError: the value is not allowed.
        """
        within = within or link.page_range(knob, self.limits)
        text = self._texts.get(knob.key)
        is_truncated = isinstance(within, Text) and not isinstance(within, EncodedText | NameOrText)
        if text is not None and not is_truncated:
            try:
                within.read(text)
            except ValueError:
                shown = text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "…"
                raise ConfigError(
                    f"{knob.key} is {within.expected}; got “{shown}”: change it in the address."
                ) from None
        return super().knob(knob, within, fixed)

    def sequence(self, names: Sequence[str]) -> int:
        """The index of the requested sequence.

        Raises:
            ConfigError: the sequence does not exist.
        """
        index = super().sequence(names)
        if len(names) < 2 and (requested := self._texts.get("sequence", "0")) != "0":
            raise ConfigError(
                f"sequence must be 0, the only sequence; got “{requested[:MAX_QUOTED]}”: change it in the address."
            )
        return index

    def file(self, knob: Knob) -> File:
        """The uploaded file that the query names.

        Raises:
            AwaitedError: the tab does not have that file.
        """
        requested = self.knob(knob)
        file = self._tab.file if self._tab else None
        if file is None or requested != f"{file.name}:{file.digest}":
            raise missing_file_error(requested)
        return file

    def known_picture(self, name: str) -> Picture | None:
        """The picture of ours, or the tab's uploaded one, of this name."""
        uploaded = self._tab.pictures.get(name) if self._tab else None
        return uploaded or super().known_picture(name)


@dataclass(frozen=True)
class Request:
    """The state of a requested file.

    Attributes:
        texts: the query by key, including matrices that are too long for a link.
        tab: the requesting tab, if there is one.
        step: the step in the name of the file; empty without one.
        kind: the extension of the file.
    """

    texts: Mapping[str, str]
    tab: Tab | None = None
    step: str = ""
    kind: str = ""

    @cached_property
    def knobs(self) -> StrictReader:
        """The reader of the state's knobs."""
        return StrictReader(self.texts, self.tab)

    @cached_property
    def source(self) -> Source:
        """The source that the state describes.

        Raises:
            AttentionError: the state is invalid.
        """
        return link.read_source(self.knobs)

    @property
    def trace(self) -> Trace:
        """The trace of the source. Do not store it: only `traces` caches it."""
        return trace_of(self.source)

    def prepare(self) -> None:
        """Computes and caches the trace."""
        _ = self.trace

    def value(self, knob: Knob, within: Range | None = None) -> Any:
        """The value of a knob in the query, with the range and default of the state's source."""
        knobs = knobs_of(self.texts.get("source", ""))
        return self.knobs.knob(knobs.get(knob.key, knob), within)

    def cell(self, trace: Trace) -> Cell:
        """The chosen cell of the trace, in the step of the file's name if it has one.

        Raises:
            AttentionError: the trace does not have this cell.
        """
        cell = view.read_cell(self.knobs.knob, trace)
        layer = trace.layers[cell.layer]
        if self.step:
            cell = view.clamp_cell(replace(cell, step=self.step), layer)
        compute_head(layer, cell.head)
        return cell
