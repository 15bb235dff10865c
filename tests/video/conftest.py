"""Fixtures of the tests of videos."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tiny_videos import TinyVideoModels


@pytest.fixture(scope="session")
def video_models(tmp_path_factory: pytest.TempPathFactory) -> TinyVideoModels:
    """Tiny models that read videos, each made once for all tests."""
    from tiny_videos import TinyVideoModels  # imports torch, which the distributing process does not need

    return TinyVideoModels(tmp_path_factory.mktemp("video models"))
