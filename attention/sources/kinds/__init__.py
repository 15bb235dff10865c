"""How links and pages read each source: one file for each source, one line of the table for each."""

from __future__ import annotations

from attention.sources.kinds import (
    file_source,
    matrices_source,
    model_source,
    notebook_source,
    trained_source,
    typed_text_source,
)
from attention.sources.kinds.source_kind import SourceKind

__all__ = ["SOURCE_KINDS", "SourceKind"]

SOURCE_KINDS: dict[str, SourceKind] = {
    kind.name: kind
    for kind in (
        typed_text_source.KIND,
        model_source.KIND,
        notebook_source.KIND,
        matrices_source.KIND,
        file_source.KIND,
        trained_source.KIND,
    )
}
"""All sources by their names in links, in the order of the menu."""
