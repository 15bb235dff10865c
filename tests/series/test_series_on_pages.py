"""Series as input on the pages: a link with the series of ours, an upload, a missing upload, and a series of another shape."""

from __future__ import annotations

import pytest
from test_pages import drawn, opened, said
from test_series_files import GERMAN

from attention.base.errors import AwaitedError
from attention.base.knobs import Limits
from attention.media import medium_of
from attention.series.examples import example_series
from attention.series.table import Series
from attention.sources.registry import source_of
from pages.ui.server.limits import LIMITS

LINK = {"source": "model", "model": "tiny-patchtst"}


@pytest.mark.quick
def test_a_link_names_the_series_of_ours_or_the_digest_of_a_file() -> None:
    source, notes = source_of({**LINK, "series": "example:rhythm-and-trend"}, LIMITS)
    assert not notes
    assert source.series == example_series("rhythm-and-trend")
    assert medium_of("series").link_name(source.series) == "example:rhythm-and-trend"
    series = Series.open(GERMAN.encode("cp1252"), "Last.csv")
    assert medium_of("series").link_name(series) == f"Last.csv:{series.digest}"
    with pytest.raises(AwaitedError, match="upload it to open the link"):
        source_of({**LINK, "series": f"Last.csv:{series.digest}"}, LIMITS)


@pytest.mark.quick
def test_upload_is_within_the_limits_of_an_operator() -> None:
    limits = Limits(tokens=2048, characters=2000, d_model=64, heads=8, trace_mb=2048)
    series, preview = medium_of("series").upload(GERMAN.encode("cp1252"), "Last.csv", 240, limits)
    assert (series.name, preview[:4]) == ("Last.csv", b"\x89PNG")
    assert medium_of("series").files_in_field(limits).startswith("CSV with a column of numbers")


def test_the_page_shows_the_series_of_ours_and_takes_an_upload() -> None:
    app = opened("app.py", **LINK)
    assert "time axis" in said(app)
    assert any(figure["layout"].get("images") for figure in drawn(app))
    key = next(field.key for field in app.file_uploader if field.key.startswith("series_upload"))
    rows = "\n".join(f"{hour};{hour % 24},5;{hour / 3:.2f}".replace(".", ",") for hour in range(120))
    app.file_uploader(key=key).upload("week.csv", f"step;a;b\n{rows}".encode(), "text/csv").run()
    assert not app.exception
    assert "the last of the 120, from step 24" in said(app)
    key = next(field.key for field in app.file_uploader if field.key.startswith("series_upload"))
    app.file_uploader(key=key).upload("short.csv", b"a,b\n1,2\n3,4\n", "text/csv").run()
    assert not app.exception
    assert "reads 96 steps; got 2" in said(app)
