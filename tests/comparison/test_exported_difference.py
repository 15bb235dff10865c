"""The file of a difference over HTTP equals the library's."""

from __future__ import annotations

from starlette.testclient import TestClient
from test_exports import TEXT, check_files, trace  # noqa: F401  # fixtures

from attention import AttentionConfig, Trace, TypedText
from attention.comparison.comparison import HeadIndex, compare
from attention.explanation import tables
from pages.ui.comparison import PANELS


def test_file_of_a_difference_equals_the_library(client: TestClient, trace: Trace) -> None:  # noqa: F811  # a fixture
    second = TypedText(TEXT, AttentionConfig(mask="causal", n_heads=2, temperature=0.5)).trace()
    comparison = compare(trace, second, "weights", HeadIndex(0, 1), HeadIndex(0, 1))
    files = {"weights-B-minus-A.csv": "".join(tables.csv_chunks(comparison.frame()))}
    check_files(client, files, PANELS.exports)
