import ast
import subprocess
import sys
from pathlib import Path

import pytest

from attention import STEPS

ROOT = Path(__file__).parents[1]
BACKEND = sorted((ROOT / "attention").rglob("*.py"))
PAGES = [ROOT / "app.py", *sorted((ROOT / "pages").rglob("*.py"))]

# A module of attention/ may import the modules of the groups before its own, and of its own.
ORDER = (
    ("errors", "seeds", "tokens", "literals", "matrix", "matrix_npy", "matrix_text"),
    ("config", "cost", "masks", "trace"),
    ("attend",),
    # What looks at a trace …
    (
        "printed",
        "arithmetic",
        "explain",
        "metrics",
        "frames",
        "numbers",
        "live",
        "pooling",
        "scales",
        "drawing",
        "screen",
        "mosaic",
        "plots",
        "factors",
        "paper",
        "glossary",
    ),
    ("sources",),  # … knows nothing of where traces come from, nor the other way round
    ("lessons", "mask_lessons", "charts"),  # what single pages teach
    ("code", "given"),  # what a source writes down of itself, and the formula after it; a source made from another
    ("__init__",),
)
NOT_OF_EACH_OTHER = ORDER[3], ORDER[4]


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path):
    """The dotted names a file imports, wherever in it they stand; `from a import b` gives a and a.b."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: imports are absolute"
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def tops(path):
    return {name.split(".")[0] for name in imports(path)}


def part(path):
    """The module of attention/ a file belongs to: "plots", or "sources" for all of them."""
    return path.relative_to(ROOT / "attention").with_suffix("").parts[0]


def own_imports(path):
    known = {part(file) for file in BACKEND}
    pieces = (name.split(".") for name in imports(path))
    return {piece[1] for piece in pieces if piece[0] == "attention" and len(piece) > 1 and piece[1] in known}


def rank(name):
    found = [i for i, group in enumerate(ORDER) if name in group]
    assert found, f"attention/{name}.py is new: say in ORDER where it stands"
    return found[0]


def titles(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", BACKEND, ids=titles)
def test_the_backend_never_imports_streamlit_or_a_page(path):
    assert tops(path).isdisjoint({"streamlit", "pages", "app"})


@pytest.mark.parametrize("path", BACKEND, ids=titles)
def test_the_backend_imports_downwards_only(path):
    above = {name for name in own_imports(path) if rank(name) > rank(part(path))}
    assert not above


@pytest.mark.parametrize("path", BACKEND, ids=titles)
def test_views_do_not_know_sources_and_sources_do_not_know_views(path):
    views, sources = NOT_OF_EACH_OTHER
    if part(path) in views:
        assert own_imports(path).isdisjoint(sources)
    if part(path) in sources:
        assert own_imports(path).isdisjoint(views)


def test_no_two_modules_import_each_other():
    graph = {}
    for path in BACKEND:
        graph.setdefault(part(path), set()).update(own_imports(path) - {part(path)})
    while leaves := [name for name, needed in graph.items() if not needed & set(graph)]:
        for name in leaves:
            del graph[name]
    assert not graph, "these import each other in a circle"


@pytest.mark.parametrize("path", PAGES, ids=titles)
def test_a_page_does_no_maths(path):
    assert tops(path).isdisjoint({"torch", "numpy", "scipy", "math", "cmath", "statistics"})
    assert own_imports(path).isdisjoint({"attend", "masks", "seeds"})
    calls = {
        node.func.attr
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert calls.isdisjoint(
        {
            "softmax",
            "exp",
            "log",
            "sqrt",
            "matmul",
            "einsum",
            "mean",
            "std",
            "var",
            "argmax",
            "masked_fill",
            "transpose",
        }
    )
    assert not [node for node in ast.walk(parsed(path)) if isinstance(node, ast.MatMult)]


@pytest.mark.parametrize("path", [path for path in PAGES if path.parent.name == "ui" or "ui" in path.parts], ids=titles)
def test_what_pages_share_knows_no_page(path):
    pages = {f"pages.{page.stem}" for page in PAGES if page.parent == ROOT / "pages" and page.stem != "__init__"}
    assert pages.isdisjoint(imports(path))
    assert "app" not in tops(path)


@pytest.mark.parametrize("path", [*BACKEND, *PAGES], ids=titles)
def test_the_steps_are_listed_once(path):
    lists = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.List | ast.Tuple | ast.Set | ast.Dict)]
    for node in lists:
        elements = [*node.keys, *node.values] if isinstance(node, ast.Dict) else node.elts
        named = {element.value for element in elements if isinstance(element, ast.Constant)} & {
            step.name for step in STEPS
        }
        assert len(named) <= len(STEPS) // 2, f"{path.name}:{node.lineno} is a second list of steps: read STEPS"


def test_steps_is_assigned_once():
    def targets(path):
        for node in ast.walk(parsed(path)):
            found = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            yield from (path.name for target in found if isinstance(target, ast.Name) and target.id == "STEPS")

    assert [name for path in (*BACKEND, *PAGES) for name in targets(path)] == ["trace.py"]


@pytest.mark.parametrize("path", BACKEND, ids=titles)
def test_the_global_generator_and_hash_are_never_used(path):
    calls = [node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
    assert not [name for name in calls if isinstance(name, ast.Name) and name.id == "hash"]
    assert "random" not in tops(path)
    drawn = [
        node
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("rand", "randn")
    ]
    assert all("generator" in {keyword.arg for keyword in node.keywords} for node in drawn)


def test_importing_attention_imports_neither_torch_nor_streamlit():
    code = "import sys, attention; print([name for name in ('torch', 'streamlit') if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600, check=True
    )
    assert run.stdout.strip() == "[]"


def test_the_first_picture_waits_for_no_pandas():
    code = """
import sys
from streamlit.testing.v1 import AppTest
sys.modules["pandas"] = None  # importing it fails
app = AppTest.from_file(sys.argv[1], default_timeout=600).run()
print([element.proto.component_name for element in app.get("bidi_component")][-1], len(app.dataframe))
"""
    command = [sys.executable, "-c", code, str(ROOT / "app.py")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    assert run.stdout.split() == ["attention_figure", "0"]


def test_every_public_name_is_there():
    import attention

    assert all(hasattr(attention, name) for name in attention.__all__)
    assert attention.__all__ == sorted(
        attention.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )
