"""docs/notebook.ipynb runs from top to bottom, and every cell shows something; the live view follows clicks."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest
import traitlets
from conftest import ROOT
from tiny_models import FAMILIES, TinyModels

from attention import AttentionConfig, Cell, MissingError, TypedText, explain
from attention.notebook import bring_scripts, output, view, widget

DOCUMENT = ROOT / "docs" / "notebook.ipynb"


class Host(traitlets.HasTraits):
    """Stands for anywidget's base class, whose messages go to a browser."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.sent: list[tuple[Any, list[bytes]]] = []

    def on_msg(self, callback: Any) -> None:
        self.callback = callback

    def send(self, content: Any, buffers: list[bytes]) -> None:
        self.sent.append((content, buffers))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> None:
    anywidget = ModuleType("anywidget")
    anywidget.AnyWidget = Host
    monkeypatch.setitem(sys.modules, "anywidget", anywidget)
    widget._widget_class.cache_clear()
    bring_scripts()


def run(code: str, namespace: dict[str, Any]) -> Any:
    """Runs a cell, and returns the value of its last expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), namespace)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), namespace) if isinstance(last, ast.Expr) else None


@pytest.mark.long  # runs the whole notebook
@pytest.mark.usefixtures("host")
def test_notebook_of_the_documents_runs(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "SmolLM2-135M-Instruct"
    folder = ROOT / "models" / name
    if not folder.is_dir():  # without `make models ALL=1`: a tiny model with as many layers and heads
        folder = tmp_path / "tiny"
        config, model, knobs = FAMILIES["Llama"]
        sizes = {"hidden_size": 36, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3}
        tiny.save(folder, config, model, knobs | sizes)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / name).symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(DOCUMENT, 4)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) == 13
    namespace: dict[str, Any] = {}
    results = [run(cell, namespace) for cell in cells]
    shown = [result for result in results if hasattr(result, "_repr_html_")]
    outputs = [result._repr_html_() for result in shown]
    assert len(outputs) >= 5
    assert all(outputs)
    assert output._scripts_text()[:200] in outputs[0]
    assert max(map(len, outputs)) < 6e6
    (likely, before), (_, after) = results[9]
    assert before != after
    if folder.name == name:
        assert likely == "·copper"
        assert after < before


@pytest.mark.usefixtures("host")
def test_view_follows_what_is_clicked_and_set() -> None:
    trace = TypedText("the owl asked the moon", AttentionConfig(d_model=16, n_heads=2, mask="causal")).trace()
    live = view(trace, head=1)
    assert live.cell == Cell(0, "weights", 1, 0, 0)
    seen: list[int] = []
    live.observe(lambda change: seen.append(change["new"]), names="q")
    live.q, live.k = 3, 1
    assert seen == [3]
    assert repr(live.explanation) == repr(explain(trace, "weights", 0, 1, 3, 1))
    assert live.arithmetic["short"] == live.explanation.short
    live.temperature, live.mask = 0.5, "none"
    assert live.trace.layers[0].temperature == 0.5
    assert not live.trace.layers[0].hides_keys
    assert live.explanation.value == float(live.trace.layers[0].weights[1, 3, 1])
    live.step, live.k = "query", 99
    assert live.cell == Cell(0, "query", 1, 3, 7)
    with pytest.raises(traitlets.TraitError):
        live.head = -1
    live.callback(live, {"kind": "scripts"}, [])
    assert live.sent == [({"kind": "scripts", "hash": output.scripts_hash()}, [output.packed_scripts()])]
    assert "TraceView(query L0 H1" in repr(live)


def test_view_without_anywidget_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    widget._widget_class.cache_clear()
    with pytest.raises(MissingError, match=r"pip install 'attention-lab\[notebook\]', or show"):
        view(TypedText("a b").trace())
