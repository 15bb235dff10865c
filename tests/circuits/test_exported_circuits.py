"""Files about circuits over HTTP equal the library's."""

from __future__ import annotations

from starlette.testclient import TestClient

from attention import Cell, circuits
from attention.circuits import direct_effects
from attention.explanation import tables
from attention.training import Trained

OF_MODELS = ("logit-effect.csv", "logit-parts.csv", "score-terms.csv", "circuits.py")


def test_files_of_circuits_equal_the_library(client: TestClient) -> None:
    state = {"source": "trained", "task": "induction", "at": "0", "layer": "1", "q": "20", "k": "7"}
    trace = Trained("induction", at=0).trace()
    target = trace.predictions[-1].tokens[2]
    parts = circuits.logit_parts(trace, 20, target).frame()
    answers = {name: client.get(f"/export/{name}", params=state | {"target": target}) for name in OF_MODELS}
    assert [answer.status_code for answer in answers.values()] == [200] * len(OF_MODELS)
    assert answers["logit-parts.csv"].text == parts.to_csv(index=False)
    terms = circuits.score_terms(trace, 1, 0, 20, 7)
    assert answers["score-terms.csv"].text == terms.frame().to_csv(index=False)
    readout = direct_effects.find_readout(trace, target)
    assert answers["circuits.py"].text == direct_effects.python(trace, Cell(1, "weights", 0, 20, 7), readout)
    derived = tables.derived_csv(trace, direct_effects.writes_map(readout), 1, 0)
    assert answers["logit-effect.csv"].text == "".join(derived)
    refused = client.get("/export/logit-parts.csv", params={"text": "a b"})
    assert refused.status_code in (400, 404)
    assert "circuits need the model" in refused.text
