"""A newcomer's first task: a new normalizer is one class, and its name in one table."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENTMAX = '''
@dataclass(frozen=True)
class EntmaxByBisection(Normalizer):
    """max(s / 2 − τ, 0)², with the τ that makes the row sum to 1."""

    name: str = "entmax by bisection"
    words: str = "Low scores get exactly 0, the others change smoothly. In translation."
    paper: str = "Peters et al. 2019, Sparse Sequence-to-Sequence Models, algorithm 2"
    formula: str = "entmax of M over key_pos"
    equation: str = r"A_{ij} = \\max(M_{ij} / 2 - \\tau_i, 0)^2"

    def weights(self, scores: Tensor) -> Tensor:
        """Rows sum to 1, with true zeros; a row with no visible key is 0 throughout."""
        import torch

        halves, low = scores.double() / 2, scores.double().amax(dim=-1, keepdim=True) / 2 - 1
        high = low + 1
        for _ in range(60):
            middle = (low + high) / 2
            more = (halves - middle).clamp_min(0).square().sum(dim=-1, keepdim=True) > 1
            low, high = torch.where(more, middle, low), torch.where(more, high, middle)
        return (halves - low).clamp_min(0).square().nan_to_num(0).to(scores.dtype)

    def python(self, scores: str) -> tuple[str, ...]:
        """Lines of plain torch."""
        return (
            f"halves, low = {scores}.double() / 2, {scores}.double().amax(dim=-1, keepdim=True) / 2 - 1",
            "high = low + 1",
            "for _ in range(60):",
            "    middle = (low + high) / 2",
            "    more = (halves - middle).clamp_min(0).square().sum(dim=-1, keepdim=True) > 1",
            "    low, high = torch.where(more, middle, low), torch.where(more, high, middle)",
            f"weights = (halves - low).clamp_min(0).square().nan_to_num(0).to({scores}.dtype)",
        )

    def arithmetic(self, row: Row) -> Arithmetic:
        """The square of what half the score has above the threshold."""
        import torch

        weight = float(self.weights(torch.tensor(row.scores, dtype=torch.float64))[row.column])
        root = weight**0.5

        def line(digits: int) -> Printed:
            one = number(root, digits)
            return Printed(f"{one.tex}^2", f"{one.text}²", one.value**2)

        return Arithmetic("", [line], [line], "What half of the score has above the threshold, squared.", [weight])
'''
CHECKS = """
import json
from streamlit.testing.v1 import AppTest
from attention import AttentionConfig, TypedText, explain, find_step
from attention.export.program import python
from attention.explanation import glossary
from attention.pictures.live_inputs import live_inputs
from attention.sources.link import source_of
from pages.ui.server.limits import LIMITS

source, notes = source_of({"normalizer": "entmax by bisection", "text": "a b c a"}, LIMITS)
trace = source.trace()
layer = trace.layers[0]
variables = {}
exec(python(source, trace), variables)
app = AppTest.from_file("app.py", default_timeout=600)
app.query_params.update({"normalizer": "entmax by bisection", "view": "factors"})
app.run()
explained = [explain(trace, "weights", q=q, k=k) for q in range(4) for k in range(4)]
print(json.dumps({
    "link": [source.config.normalizer, list(notes)],
    "sums": bool(((layer.weights.sum(dim=-1) - 1).abs() < 1e-6).all()),
    "formula": layer.formula_of(find_step("weights")),
    "explained": [all(abs(explanation.result - explanation.value) < 1e-6 for explanation in explained), "squared" in explained[0].words],
    "python": float((variables["weights"] - layer.weights).abs().max()),
    "page": [len(app.exception), [box.value for box in app.selectbox if box.label == "Weights by"]],
    "said": [caption.value for caption in app.sidebar.caption if "entmax by bisection" in caption.value],
    "in the page": live_inputs(layer, 0) is not None,
}))
"""


def test_new_normalizer_takes_one_class_and_one_line(tmp_path: Path) -> None:
    for room in ("attention", "pages"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "app.py", tmp_path)
    file = tmp_path / "attention" / "formula" / "normalizers.py"
    text = file.read_text(encoding="utf-8")
    table = text.index("NORMALIZERS: ")
    assert text.count("Softmax(), ") == 1
    text = f"{text[:table]}{ENTMAX}\n\n{text[table:]}".replace("Softmax(), ", "Softmax(), EntmaxByBisection(), ")
    file.write_text(text, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-c", CHECKS], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True
    )
    answers = json.loads(run.stdout)
    assert answers.pop("python") < 1e-6
    assert answers == {
        "link": ["entmax by bisection", []],
        "sums": True,
        "formula": "entmax of M over key_pos",
        "explained": [True, True],
        "page": [0, ["entmax by bisection"]],
        "said": [
            "**Weights by: entmax by bisection.** Low scores get exactly 0, the others change smoothly. In translation."
        ],
        "in the page": False,
    }
