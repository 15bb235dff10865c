"""Series as a medium, and where the code is that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attention.media import DeclaredInputs, Medium
from attention.series import series_lines
from attention.series.drawing import NOUN, place_of, preview_of
from attention.series.examples import EXAMPLES, example_series
from attention.series.families import FAMILIES, VALUES
from attention.series.table import MAX_COLUMNS, Series, reading_cost

if TYPE_CHECKING:
    from attention.base.knobs import Limits
    from attention.base.tokens import Patch
    from attention.files.reading_cost import ReadingCost
    from attention.models.folder import Folder
    from attention.series.reader import SeriesReader
    from attention.trace.trace import SeenPicture


class SeriesMedium(Medium):
    """Columns of numbers over time, of which a model reads patches."""

    name, noun, field, argument = "series", NOUN, "series", VALUES
    files, such_as, endings = "a CSV file", "a PatchTST or TimesFM", ("csv", "tsv", "txt")
    examples = EXAMPLES
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

    def example(self, name: str) -> Series:
        """As `attention.series.examples.example_series`."""
        return example_series(name)

    def open(self, value: Any, name: str = "") -> Series:
        """As `Series.open`."""
        return Series.open(value, name)

    def upload(self, content: bytes, name: str, side: int, limits: Limits) -> tuple[Series, bytes]:
        """The series of a CSV file, and its lines as a PNG."""
        series = Series.open(content, name)
        return series, preview_of(series, side)

    def preview(self, given: Series, side: int) -> bytes:
        """As `attention.series.drawing.preview_of`."""
        return preview_of(given, side)

    def files_in_field(self, limits: Limits) -> str:
        """What a user may upload."""
        return (
            f"CSV with a column of numbers for each series, up to {limits.picture_mb} MB and {MAX_COLUMNS} columns. "
            "A first column of dates is the time axis."
        )

    def size_in_words(self, given: Series) -> str:
        """Its steps and columns."""
        steps, columns = given.values.shape
        return f"{steps:,} steps of {columns:,} {'column' if columns == 1 else 'columns'}"

    def reading_cost(self, content: bytes, limits: Limits) -> ReadingCost:
        """As `attention.series.table.reading_cost`."""
        return reading_cost(content)

    def place(self, seen: SeenPicture, patch: Patch) -> Any:
        """As `attention.series.drawing.place_of`."""
        return place_of(seen, patch)

    def program_imports(self, inputs: Sequence[Series]) -> tuple[list[str], list[str]]:
        """The lines that import what `program_lines` needs, and the names of transformers among it."""
        return ["import pandas as pd"], []

    def program_lines(self, reader: Any, inputs: Sequence[Series], variable: str, max_tokens: int) -> list[str]:
        """As `attention.series.series_lines.input_lines`."""
        return series_lines.input_lines(reader, inputs[0], variable)
