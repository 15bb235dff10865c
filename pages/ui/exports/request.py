"""What an address asks for: the state in its query, read by the same reader as a page's, but strictly.

A page shows the default, and says so, where a link asks for what cannot be; a program that fetches a file would not notice, so it gets a
sentence instead. What a page cuts (a text with too many characters or tokens) is cut here too, to the same value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from attention import Cell, ConfigError, File, Source, Trace
from attention.formula.knobs import LONGEST_SHOWN, Knob
from attention.formula.ranges import Coded, Named, Range, Text
from attention.pictures import view
from attention.sources import link
from pages.ui.exports.tokens import Tab
from pages.ui.knobs.table import LIMITS, of
from pages.ui.server.traces import trace_of, work_out


class Strict(link.Link):
    """The knobs as a query says them; one that cannot be what it says is refused. The uploaded file is that of a tab."""

    def __init__(self, texts: Mapping[str, str], tab: Tab | None = None) -> None:
        super().__init__(texts, LIMITS)
        self._tab = tab

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """What the query says of a knob, or its default.

        Raises:
            ConfigError: the query says something else than may be.
        """
        within = within or link.on_pages(knob, self.limits)
        text = self._texts.get(knob.key)
        is_cut = isinstance(within, Text) and not isinstance(within, Coded | Named)
        if text is not None and not is_cut:
            try:
                within.read(text)
            except ValueError:
                shown = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"
                raise ConfigError(
                    f"{knob.key} is {within.expected}; got “{shown}”: change it in the address."
                ) from None
        return super().knob(knob, within, fixed)

    def sequence(self, names: Sequence[str]) -> int:
        """Which sequence the query asks for.

        Raises:
            ConfigError: there is no such sequence.
        """
        found = super().sequence(names)
        if len(names) < 2 and (asked := self._texts.get("sequence", "0")) != "0":
            raise ConfigError(
                f"sequence is 0, the only one there is; got “{asked[:LONGEST_SHOWN]}”: change it in the address."
            )
        return found

    def file(self, knob: Knob) -> File:
        """The uploaded file that the query names.

        Raises:
            AwaitedError: it is not here.
        """
        asked = self.knob(knob)
        file = self._tab.file if self._tab else None
        if file is None or asked != f"{file.name}:{file.digest}":
            raise link.not_here(asked)
        return file


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
        texts: the query, by key, with the matrices that are too long for a link.
        tab: the tab that asks, if one does.
        step: the step in the name of the file; empty where it has none.
        kind: the ending of that name.
    """

    texts: Mapping[str, str]
    tab: Tab | None = None
    step: str = ""
    kind: str = ""

    @cached_property
    def knobs(self) -> Strict:
        """The knobs of the state."""
        return Strict(self.texts, self.tab)

    @cached_property
    def source(self) -> Source:
        """The source that the state describes.

        Raises:
            AttentionError: it describes none.
        """
        return link.source(self.knobs)

    @property
    def trace(self) -> Trace:
        """The trace of that source. Nobody but `traces` keeps it."""
        return trace_of(self.source)

    def prepare(self) -> None:
        """Makes the trace, which is then kept for a while."""
        _ = self.trace

    def value(self, knob: Knob, within: Range | None = None) -> Any:
        """What the query says of a knob, as the source of the state has it."""
        known = of(self.texts.get("source", ""))
        return self.knobs.knob(known.get(knob.key, knob), within)

    def cell(self, trace: Trace) -> Cell:
        """The chosen cell of the trace; of the step in the file's name, where there is one.

        Raises:
            AttentionError: there is no such cell.
        """
        cell = view.read_cell(self.knobs.knob, trace)
        layer = trace.layers[cell.layer]
        if self.step:
            cell = view.clamped(replace(cell, step=self.step), layer)
        work_out(layer, cell.head)
        return cell
