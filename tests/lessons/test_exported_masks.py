"""The file of the cells of a mask over HTTP equals the library's."""

from __future__ import annotations

from starlette.testclient import TestClient
from test_exports import check_files, trace  # noqa: F401  # fixtures

from attention import Trace
from attention.lessons import mask_examples
from pages.ui.lessons import PANELS


def test_file_of_mask_cells_equals_the_library(client: TestClient, trace: Trace) -> None:  # noqa: F811  # a fixture
    check_files(client, {"mask-cells.csv": mask_examples.table(trace, 0, 1).to_csv(index=False)}, PANELS.exports)
