"""What pages compute in jobs about circuits equals what is computed here."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import child_functions
import numpy as np
import pytest
import torch
from test_jobs import (
    TEXT,
    folder,  # noqa: F401  # a fixture
    in_a_job,
    library,  # noqa: F401  # a fixture
)
from tiny_models import TinyModels

from attention import Model, circuits, metrics
from attention.base import jobs
from attention.circuits import PathRequest
from attention.circuits.path_patching import patch_paths
from attention.circuits.prompts import PromptSet
from attention.circuits.sweep import sweep_heads
from attention.circuits.token_relevance import METHODS, relevance
from attention.metrics.find_rule import FindRule, find_heads
from attention.models.library import LIBRARY, in_job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes fork on Linux alone")


@pytest.mark.long  # jobs of all panels
@pytest.mark.usefixtures("library")
def test_pages_read_the_results_of_jobs_without_the_model(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Model(str(tiny("GPT-2")), TEXT)
    trace, other = source.trace(), replace(source, text="the mat sat on the cat")
    prompts = PromptSet.from_text("the cat sat,the dog sat,mat,")
    heavy: list[
        tuple[Any, ...]
    ] = [  # what pages call by `heavy`; metrics and copying scores always run the model with a few tokens
        (child_functions.all_of, metrics.similar_heads, trace, 0, 1),
        (child_functions.all_of, find_heads, trace, FindRule.parse("from any to same word")),
        *((child_functions.all_of, relevance, trace, method.name, None, None) for method in METHODS),
        (sweep_heads, source, None, 3),
        (patch_paths, source.run(), other.run(), PathRequest()),
        (circuits.sweep_prompts, source, prompts, "head_output", "zero", False),
    ]
    for function, *args in heavy:
        models, alive = LIBRARY.for_jobs()
        there = list(jobs.stream(in_job, LIBRARY.settings.for_jobs(), models, function, *args, keep=True))[-1]
        with monkeypatch.context() as without_model:
            without_model.setattr(torch.nn.Module, "__call__", lambda *_, **__: pytest.fail("the model runs again"))
            here = next(function(*args))
        assert repr(getattr(here, "result", here)) == repr(getattr(there, "result", there)), function
        del alive


@pytest.mark.usefixtures("library")
def test_sweep_in_a_job_equals_the_sweep_here(folder: Path) -> None:  # noqa: F811  # a fixture
    source = Model(str(folder), TEXT)
    last = in_a_job(sweep_heads, source)
    (*_, here) = sweep_heads(source)
    np.testing.assert_array_equal(last.result.change, here.result.change)
