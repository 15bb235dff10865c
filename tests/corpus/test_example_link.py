"""The link of an example opens the cell with its weight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from margins import approx
from test_corpus import TEXTS, run
from tiny_models import TinyModels

from attention import ModelError
from attention.base.knobs import Limits
from attention.corpus.examples import _MAX_LINK_BYTES, example_link
from attention.corpus.result import HeadsResult
from attention.formula.names import WEIGHTS
from attention.models.library import LIBRARY
from attention.sources.registry import source_of

LIMITS = Limits(tokens=256, characters=10_000, d_model=512, heads=16, trace_mb=256)


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", ["GPT-2", "BERT", "T5", "BART", "Gemma 3"])
def test_link_opens_the_cell_with_the_weight_of_the_example(
    family: str, tiny: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tiny(family), tmp_path, top=2)
    monkeypatch.setattr(LIBRARY, "allow", lambda name: None)
    result = HeadsResult.open(tmp_path)
    n_checked = 0
    for layer, head in ((0, 1), (1, 3)):
        for metric in ("previous", "largest weight", "distant induction", "local"):
            for example in result.examples(layer, head, metric):
                link = example_link(result, example, layer, head)
                assert link.state is not None
                assert link.state["model"] == str(tiny(family))
                source, notes = source_of(link.state, LIMITS)
                opened = source.trace().layers[int(link.state["layer"])]
                assert opened.tokens == example.tokens
                row = opened.matrix(WEIGHTS, int(link.state["head"]))[int(link.state["q"])]
                weight = float(row[int(link.state["k"])])
                if example.key in example.keys:
                    assert weight == approx(example.weight, terms=16384)
                    n_checked += 1
                else:
                    assert min(weight, example.weights[-1]) == approx(weight, terms=16384)
                assert not notes
    assert n_checked >= 10


def test_link_names_the_model_on_offer_or_says_why_not(
    tiny: TinyModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tiny("GPT-2"), tmp_path, TEXTS[:2])
    result = HeadsResult.open(tmp_path)
    example = result.examples(0, 0, "local")[0]

    def state(**fields: Any) -> Any:
        return example_link(result, example._replace(**fields), 0, 0)

    monkeypatch.setattr(type(LIBRARY), "names", lambda _: ("GPT-2", "other"))
    assert state().state["model"] == "GPT-2"
    assert "A link has at most 16,384 bytes" in state(text="a" * _MAX_LINK_BYTES).reason
    cut = example._replace(text="the owl slept", tokens=("the", "owl", *["…"] * 1000))
    assert example_link(result, cut, 0, 0).state["text"] == "the owl"
    monkeypatch.setattr(type(LIBRARY), "names", lambda _: ("other",))

    def missing(*_: Any) -> Path:
        raise ModelError("There is no such model.")

    monkeypatch.setattr(type(LIBRARY), "folder", missing)
    assert state() == (None, "This server does not have the model GPT-2: open the text where it is.")
