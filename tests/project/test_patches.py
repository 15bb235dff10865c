"""All patches of Streamlit are in one folder, each with a canary, a row of the table and an issue for Streamlit."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.quick

FOLDER = ROOT / "pages" / "ui" / "patches"
PATCHES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".py", ".js") and path.name != "__init__.py")
OURS = [ROOT / "app.py", *(path for name in ("attention", "pages", "deploy") for path in (ROOT / name).rglob("*.*"))]
PATCHED_PACKAGES = ("streamlit", "starlette", "uvicorn", "anyio")
STATE = ("st.session_state", "st.query_params")  # attributes meant for assignment


def replacements(path: Path, text: str) -> list[str]:
    """Everything that a file replaces in Streamlit, in its server or in the browser."""
    return list(_in_python(ast.parse(text)) if path.suffix == ".py" else _in_script(text))


def _in_python(tree: ast.AST) -> Iterator[str]:
    imported = {
        (name.asname or name.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
        if (getattr(node, "module", None) or name.name).split(".")[0] in PATCHED_PACKAGES
    }

    def root(node: ast.AST) -> str:
        while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
            node = node.func if isinstance(node, ast.Call) else node.value
        return node.id if isinstance(node, ast.Name) else ""

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            target = ast.unparse(node)
            if root(node) in imported and not target.startswith(STATE):
                yield target
        called = isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name) and node.func.id
        if called in ("setattr", "delattr") and isinstance(node, ast.Call) and root(node.args[0]) in imported:
            yield ast.unparse(node)


_BROWSER = r"(?:globalThis|window|history|document|navigator|[A-Z]\w+\.prototype)"
_SET = r"(?:(?:globalThis|window)\.[A-Z]|(?:history|navigator|[A-Z]\w+\.prototype)\.)\w+ = "
_SCRIPT = re.compile(rf"(?<![\w.]){_SET}|Object\.define\w+\({_BROWSER}")
"""Assignments that replace a class or a method of the browser."""


def _in_script(text: str) -> list[str]:
    return _SCRIPT.findall(text)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("x.py", "from streamlit.a import B\nB.c = 1", ["B.c"]),
        ("x.py", "from streamlit import a as b\nb.c.d = 1", ["b.c.d"]),
        ("x.py", "import streamlit as st\nst.x: int = 1\ndel st.y", ["st.x", "st.y"]),
        ("x.py", "def f():\n    from starlette.routing import Route\n    Route.handle += 1", ["Route.handle"]),
        ("x.py", "from streamlit import runtime\nruntime.get_instance().x = 1", ["runtime.get_instance().x"]),
        ("x.py", "import streamlit.a\nsetattr(streamlit.a, 'b', 1)", ["setattr(streamlit.a, 'b', 1)"]),
        ("x.py", "import streamlit as st\nst.session_state.x = 1\nst.session_state['x'] = st.x", []),
        ("x.py", "from attention import Route\nRoute.handle = 1", []),
        ("x.js", "window.WebSocket = class {};", ["window.WebSocket = "]),
        (
            "x.js",
            "  history.pushState = history.replaceState = f;",
            ["history.pushState = ", "history.replaceState = "],
        ),
        ("x.js", "Element.prototype.focus = f;", ["Element.prototype.focus = "]),
        ("x.js", "Object.defineProperty(document, 'title', {});", ["Object.defineProperty(document"]),
        (
            "x.js",
            "window.__streamlit = {}; document.title = x; this.history.x = 1; if (window.x === 1) history.back();",
            [],
        ),
    ],
)
def test_patch_check_finds_a_replacement(name: str, text: str, expected: list[str]) -> None:
    assert replacements(Path(name), text) == expected


@pytest.mark.slow
def test_streamlit_and_browser_are_replaced_only_in_the_patches_folder() -> None:
    files = [path for path in OURS if path.suffix in (".py", ".js") and "vendor" not in path.parts]
    assert len(files) > 200
    by_file = {path: replacements(path, path.read_text(encoding="utf-8")) for path in files if path.parent != FOLDER}
    assert not {path: names for path, names in by_file.items() if names}


@pytest.mark.parametrize("patch", PATCHES, ids=lambda path: path.name)
def test_patch_documents_target_reason_canary_and_replacement(patch: Path) -> None:
    text = patch.read_text(encoding="utf-8")
    assert replacements(patch, text)
    head = re.sub(r"\n(?://)?", " ", text[: 2**11])
    fields = re.findall(r"(Replaces|Why|Canary|Public replacement): +\S", head)
    assert fields == ["Replaces", "Why", "Canary", "Public replacement"]
    [(file, name)] = re.findall(r"Canary: `?(tests/[\w/]+\.py)`?, (test_\w+)", head)
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("patch", PATCHES, ids=lambda path: path.name)
def test_patch_has_an_issue_text_for_streamlit(patch: Path) -> None:
    title, empty, *body = patch.with_suffix(".md").read_text(encoding="utf-8").splitlines()
    assert 20 < len(title) < 100
    assert not empty
    assert re.findall(r"^\*\*(.+?)\.\*\*", "\n".join(body), re.MULTILINE)[-2:] == [
        "What we would like",
        "What we do today",
    ]


def test_patches_stay_few() -> None:
    assert len(PATCHES) <= 5
    assert {path.stem for path in FOLDER.glob("*.md")} == {path.stem for path in PATCHES}


def test_every_python_patch_is_applied() -> None:
    [apply] = [
        node for node in ast.parse((FOLDER / "__init__.py").read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    called = [ast.unparse(node.func) for node in ast.walk(apply) if isinstance(node, ast.Call)]
    assert sorted(called) == [f"{path.stem}.apply" for path in PATCHES if path.suffix == ".py"]
