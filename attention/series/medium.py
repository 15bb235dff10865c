"""Series as a medium: their names, their knob, and where the code is that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attention.base.errors import ConfigError
from attention.media import DeclaredInputs, Medium
from attention.series.drawing import NOUN, place_of
from attention.series.families import FAMILIES, VALUES
from attention.series.table import Series

if TYPE_CHECKING:
    from attention.base.tokens import Patch
    from attention.models.folder import Folder
    from attention.series.reader import SeriesReader
    from attention.sources.reader import Reader
    from attention.trace.trace import SeenPicture


class SeriesMedium(Medium):
    """Columns of numbers over time, of which a model reads patches."""

    name, noun, field, argument = "series", NOUN, "series", VALUES
    files, such_as = "a CSV file of columns of numbers, a DataFrame, or an array [step column]", "a PatchTST or TimesFM"
    families = FAMILIES
    classifier = "ForTimeSeriesClassification"
    vectors = "a forecast, or a vector for every patch of a series"

    def declared(self, model_type: str, class_name: str) -> DeclaredInputs | None:
        """What a model reads, by its config.json alone; None if its family is not one of this medium."""
        return DeclaredInputs(text=False, medium=self, continues=False) if model_type in FAMILIES else None

    def is_read_by(self, model: Any) -> bool:
        """Whether a model of transformers is of a family that is declared."""
        return model.config.model_type in FAMILIES

    def reader_of(self, model: Any, processor: Any) -> tuple[SeriesReader, Any]:
        """How a model in memory reads series: by its config alone, so that there is no processor."""
        from attention.series.reader import SeriesReader

        return SeriesReader(self, model, type(model).__name__), None

    def load_reader(self, folder: Folder, name: str, model: Any) -> SeriesReader:
        """How the model of a folder reads series, by its config alone."""
        from attention.series.reader import SeriesReader

        return SeriesReader(self, model, name)

    def given(self, value: Any) -> Series:
        """The series of a file, a DataFrame or an array."""
        return Series.open(value)

    def place(self, seen: SeenPicture, patch: Patch) -> Any:
        """As `attention.series.drawing.place_of`."""
        return place_of(seen, patch)

    def from_link(self, reader: Reader, several: bool) -> tuple[Series, ...]:
        """The series that a link names."""
        raise ConfigError("A link names no series yet.")

    def no_link_reason(self, inputs: Sequence[Series]) -> str:
        """Why no link names these series."""
        return "A link names no series yet."

    def program_imports(self, inputs: Sequence[Series]) -> tuple[list[str], list[str]]:
        """The lines that import what `program_lines` needs."""
        return [], []

    def program_lines(self, reader: Any, inputs: Sequence[Series], variable: str) -> list[str]:
        """Lines."""
        return []
