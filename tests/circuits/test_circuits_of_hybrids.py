"""Circuits of models with layers without attention name the model's own layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_hybrid import TEXT, WITH_ATTENTION, library  # noqa: F401  # a fixture
from tiny_models import HYBRID

from attention import ConfigError, MissingError, Model, circuits
from attention.circuits.sweep import sweep_heads


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", ["Jamba", "Granite hybrid", "LFM2"])
def test_circuits_name_layers_of_the_model(family: str) -> None:
    trace, (first, *_) = Model(family, TEXT).trace(), WITH_ATTENTION[family]
    scores = circuits.copying_score(trace)
    assert [bool(row.isnan().all()) for row in scores] == [
        i not in WITH_ATTENTION[family] for i in range(len(trace.layers))
    ]
    assert circuits.ov_spectrum(trace, first, 0).layer == first
    assert circuits.writes(trace, first, 0).shape == trace.layers[first].shape("weights")[1:]
    assert "L0 MLP" in circuits.score_terms(trace, first, 0, q=4, k=1).key_parts
    for refused in (circuits.ov_spectrum, circuits.writes):
        with pytest.raises(
            MissingError, match=r"^There are no heads here, as in a layer without attention; got 0: choose"
        ):
            refused(trace, 0, 0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", HYBRID)
def test_patches_and_paths_skip_layers_without_attention(family: str) -> None:
    model, other = Model(family, TEXT), Model(family, "the cat asked the moon")
    trace, layers = model.trace(), WITH_ATTENTION[family]
    sweep = circuits.which(replace(model, other=other), patch="query")
    assert [n_heads > 0 for n_heads in sweep.n_heads] == [i in layers for i in range(len(trace.layers))]
    paths = circuits.paths(trace, other.trace(), "query")
    assert {end.layer for end in paths.targets} == {*layers}
    with pytest.raises(ConfigError, match=r"^Layer 0 of .* has no attention, so no head: choose"):
        circuits.paths(trace, other.trace(), "key", 0)


def test_sweeps_name_layers_of_the_model() -> None:
    *_, progress = sweep_heads(Model("Jamba", TEXT))
    assert progress.result is not None
    assert progress.result.n_heads == (0, 4, 0, 4)
    assert np.isnan(progress.result.change[[0, 2]]).all()
    assert not np.isnan(progress.result.change[[1, 3]]).any()


def test_sweep_says_that_heads_stand_behind_another_matrix() -> None:
    *_, progress = sweep_heads(Model("Zamba 2", TEXT))
    assert progress.result is not None
    assert "another matrix" in progress.result.no_direct_reason
