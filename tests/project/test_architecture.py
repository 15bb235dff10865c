"""The architecture holds: layers of packages, no circles, no maths in pages. The test of a rule reports all offences at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from rules import (
    BACKEND,
    PAGES,
    SCRIPTS,
    SHARED,
    TESTS,
    Module,
    Rule,
    decisions_of_a_moment,
    feature_imports,
    global_randomness,
    imports_of_one_page,
    imports_of_pages,
    lists_of_steps,
    maths,
    offences,
    own_tolerances,
    relative_imports,
    unplaced_rooms,
    upward_imports,
)

import attention
from attention import STEPS

pytestmark = pytest.mark.quick

MODULES = {module.name for module in BACKEND + PAGES}


def check(rule: Rule, files: list[Module]) -> None:
    """Fails with a list of all offences against a rule in the files."""
    assert files
    offending = offences(rule, files)
    if offending:
        pytest.fail("\n".join([f"{len(offending)} offences:", *offending]))


@pytest.mark.slow
def test_imports_are_absolute() -> None:
    check(relative_imports, BACKEND + PAGES)


def test_backend_imports_neither_streamlit_nor_pages() -> None:
    check(imports_of_pages, BACKEND)


def test_every_package_of_attention_has_a_layer() -> None:
    check(unplaced_rooms, BACKEND)


def test_backend_imports_downwards_only() -> None:
    check(upward_imports, BACKEND)


def test_features_are_imported_by_themselves_only() -> None:
    """A feature may be taken away."""
    check(feature_imports, BACKEND + PAGES)


def test_pages_do_no_maths() -> None:
    check(maths, PAGES)


def test_shared_page_code_imports_no_page() -> None:
    check(imports_of_one_page, SHARED)


def test_tests_compare_floats_in_one_way() -> None:
    check(own_tolerances, TESTS)


@pytest.mark.parametrize(
    "line",
    [
        "assert torch.allclose(a, b)",
        "assert a == pytest.approx(b)",
        "np.testing.assert_allclose(a, b)",
        "assert (a - b).abs().max() < 0.01",
        "assert 0.5 > abs(a - b)",
        "assert error < 1e-6",
    ],
)
def test_another_comparison_of_floats_is_an_offence(line: str) -> None:
    assert list(own_tolerances(Module(Path("tests/test_x.py"), line)))


@pytest.mark.parametrize("line", ["assert a == approx(b)", "assert error > 1e-6", "assert abs(left - 100) <= 1"])
def test_exact_and_coarse_comparisons_are_none(line: str) -> None:
    """Whole numbers, such as pixels, have no rounding that another processor changes."""
    assert not list(own_tolerances(Module(Path("tests/test_x.py"), line)))


def test_steps_are_listed_once() -> None:
    check(lists_of_steps, BACKEND + PAGES)


def test_attention_uses_neither_global_generator_nor_hash() -> None:
    check(global_randomness, BACKEND)


def test_no_test_acts_on_what_a_page_was_a_moment_ago() -> None:
    driver = Path("tests/engines/browsers.py")  # whose waits are made of questions
    check(decisions_of_a_moment, [module for module in TESTS if module.path != driver])


@pytest.mark.parametrize(
    ("rule", "path", "text", "lines"),
    [
        (relative_imports, "pages/ui/x.py", "import os\nfrom . import y", [2]),
        (imports_of_pages, "attention/x.py", "def f():\n    import streamlit.runtime", [2]),
        (imports_of_pages, "attention/x.py", "from pages.ui import show\nimport app", [1, 2]),
        (imports_of_pages, "attention/x.py", "import application", []),
        (unplaced_rooms, "attention/unknown/x.py", "", [1]),
        (upward_imports, "attention/formula/x.py", "from attention.base import errors\nfrom attention import pictures", [2]),
        (upward_imports, "attention/formula/x.py", "import attention.export.packing", [1]),
        (upward_imports, "attention/models/x.py", "from attention.metrics.table import of", [1, 1]),
        (upward_imports, "attention/models/x.py", "from attention.models.loading import load", []),
        (feature_imports, "attention/models/x.py", "from attention.training.tasks import Plan\nimport os", [1]),
        (feature_imports, "attention/training/x.py", "from attention.training.tasks import Plan", []),
        (feature_imports, "attention/training/x.py", "def f():\n    from attention import circuits, corpus", [2, 2]),
        (feature_imports, "pages/ui/page/x.py", "from pages.ui.circuits import writes\nfrom pages.ui.page import y", [1]),
        *((feature_imports, path, f"from pages.ui.{name} import panels", []) for path, name in SCRIPTS.items()),
        (maths, "pages/x.py", "import math\nfrom torch import nn", [1, 2]),
        (maths, "pages/x.py", "from attention.formula import functions as seeds; from attention.trace import attend", [1, 1]),
        (maths, "pages/x.py", "\nx.softmax(-1)\ny = x @ x\ny @= x", [2, 3, 4]),
        (imports_of_one_page, "pages/ui/x.py", "from pages import heads\nimport app", [1, 2]),
        (imports_of_one_page, "pages/ui/x.py", "from pages.ui import show", []),
        (lists_of_steps, "pages/x.py", f"\nx = [{', '.join(step.name.upper() for step in STEPS)}]", [2]),
        (lists_of_steps, "attention/x.py", f"x = {{{', '.join(f'{step.name.upper()}: 0' for step in STEPS)}}}", [1]),
        (lists_of_steps, "attention/x.py", "x = [QUERY, KEY]", []),
        (global_randomness, "attention/x.py", "import random\nhash('a')\ntorch.randn(2)\nimport random", [1, 2, 3, 4]),
        (global_randomness, "attention/x.py", "torch.rand(2, generator=generator(0))", []),
        (decisions_of_a_moment, "tests/x.py", "if more.is_visible():\n    more.click()", [1]),
        (decisions_of_a_moment, "tests/x.py", "def f(page):\n    while not page.locator('a').count():\n        pass", [2]),
        (decisions_of_a_moment, "tests/x.py", "x = 1 if box.is_checked() else 2\ny = [b for b in c if b.is_enabled()]", [1, 2]),
        (decisions_of_a_moment, "tests/x.py", "if page.evaluate('x') > 20 or opener.is_hidden():\n    pass", [1]),
        (decisions_of_a_moment, "tests/x.py", "def f():\n    seen = a.count() > 0\n    if b and seen:\n        pass", [3]),
        (decisions_of_a_moment, "tests/x.py", "def f():\n    if box := a.bounding_box():\n        pass", [2]),
        (decisions_of_a_moment, "tests/x.py", "def f():\n    seen = a.count()\ndef g(seen):\n    if seen:\n        pass", []),
        (decisions_of_a_moment, "tests/x.py", "assert a.count() == 2\nif text.count('a') or marker.evaluate({'extra': ''}):\n    pass", []),
    ],
)  # fmt: skip
def test_rule_reports_every_offence_with_its_line(rule: Rule, path: str, text: str, lines: list[int]) -> None:
    module = Module(Path(path), text)
    assert sorted(line for line, _ in rule(module)) == lines
    assert all(offence.startswith(f"{path}:") for offence in offences(rule, [module]))
    if lines:
        with pytest.raises(pytest.fail.Exception, match=f"^{len(lines)} offences:"):
            check(rule, [module])


def edges(imports: dict[str, Iterable[str]]) -> dict[str, set[str]]:
    """The modules that each module imports, by dotted name: at its top, inside functions and only for types."""
    # `from package import neighbour` also names the package of the module itself: that is no import of it.
    return {
        module: {name for name in names if name in imports and name != module and not module.startswith(f"{name}.")}
        for module, names in imports.items()
    }


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The modules that import each other, in one group for each circle."""

    def reachable(name: str) -> set[str]:
        visited, waiting = set[str](), [name]
        while waiting:
            new = graph[waiting.pop()] - visited
            visited |= new
            waiting += new
        return visited

    reach = {name: reachable(name) for name in graph}
    return {
        frozenset(other for other in graph if other in reach[name] and name in reach[other])
        for name in graph
        if name in reach[name]
    }


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """An import inside a function or only for types counts too: such modules cannot be understood one after the other."""
    graph = edges({module.name: [name for name, _ in module.imports] for module in BACKEND + PAGES})
    for declared in ("attention.features", "attention.media"):  # what a feature declares names types only
        graph[declared].clear()
    assert sum(map(len, graph.values())) > len(graph), "the graph has edges"
    assert not circles(graph)


def test_import_circle_is_reported_for_names_with_a_common_prefix() -> None:
    imports = {
        "a": {"a.x"},
        "a.mask": {"a", "a.masks"},
        "a.masks": {"a.mask"},
        "a.x": {"a.mask"},
        "b": {"c"},
        "c": {"d"},
        "d": {"b", "a"},
    }
    assert circles(edges(imports)) == {frozenset({"a.mask", "a.masks"}), frozenset("bcd")}


def folder_edges(imports: dict[str, set[str]], packages: set[str]) -> dict[str, set[str]]:
    """The folders that the modules of each folder import from; a folder and the folders inside it count as one."""

    def folder(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    graph: dict[str, set[str]] = {folder(module): set() for module in imports}
    for module, names in imports.items():
        here = folder(module)
        graph[here] |= {
            there
            for there in map(folder, names)
            if not f"{there}.".startswith(f"{here}.") and not f"{here}.".startswith(f"{there}.")
        }
    return graph


def test_folders_do_not_import_each_other_in_a_circle() -> None:
    imports = edges({module.name: [name for name, _ in module.imports] for module in BACKEND + PAGES})
    packages = {module.name for module in BACKEND + PAGES if module.path.name == "__init__.py"}
    graph = folder_edges(imports, packages)
    assert {"attention.formula", "attention.files", "pages.ui.state", "pages.ui.server"} <= graph.keys()
    assert not circles(graph)


def test_circle_of_folders_is_reported_without_a_circle_of_modules() -> None:
    imports: dict[str, set[str]] = {
        "p.a": {"p.a.x"},
        "p.a.x": {"p.b.y"},
        "p.b.y": set(),
        "p.b.z": {"p.a.w"},
        "p.a.w": set(),
    }
    assert not circles(imports)
    assert circles(folder_edges(imports, {"p.a"})) == {frozenset({"p.a", "p.b"})}


def test_imports_see_no_two_modules_of_one_name() -> None:
    """A file that imports two modules of one name needs an alias, and whoever reads it has to look which is which."""
    faults = []
    for module in BACKEND + PAGES:
        homes: dict[str, set[str]] = {}
        for node in module.nodes[ast.ImportFrom]:
            for name in node.names:
                if f"{node.module}.{name.name}" in MODULES:
                    homes.setdefault(name.name, set()).add(str(node.module))
        faults += [f"{module.path}: {name} of {sorted(rooms)}" for name, rooms in homes.items() if len(rooms) > 1]
    assert not faults


def test_steps_is_assigned_once() -> None:
    def targets(module: Module) -> Iterator[str]:
        assigned = [target for node in module.nodes[ast.Assign] for target in node.targets]
        for target in (*assigned, *(node.target for node in module.nodes[ast.AnnAssign])):
            if isinstance(target, ast.Name) and target.id == "STEPS":
                yield module.path.name

    assert [name for module in BACKEND + PAGES for name in targets(module)] == ["steps.py"]


def printed(code: str) -> str:
    """The last line that Python prints which runs the code in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600, check=True
    )
    return run.stdout.splitlines()[-1]


@pytest.mark.slow
def test_packages_and_declarations_of_attention_import_nothing_slow() -> None:
    packages = [".".join(module.path.parent.parts) for module in BACKEND if module.path.name == "__init__.py"]
    assert {"attention", "attention.formula", "attention.metrics"} < set(packages)
    slow = ("torch", "streamlit", "pandas", "plotly")
    code = f"import sys, {', '.join(packages)}; from attention.features import features; features(); print([name for name in {slow} if name in sys.modules])"
    assert printed(code) == "[]", "import what is slow inside functions: users of a package wait for it"


@pytest.mark.slow
def test_healthy_server_has_imported_nothing_that_takes_long() -> None:
    code = """
import sys
from starlette.testclient import TestClient
import app  # by this name, as Streamlit does
with TestClient(app.app) as client:
    slow = {"torch", "transformers", "matplotlib", "pandas", "pandas.plotting"} & set(sys.modules)
    print(client.get("/_stcore/health").text, *slow)
"""
    assert printed(code) == "ok"


@pytest.mark.slow
def test_first_picture_waits_for_neither_pandas_nor_transformers() -> None:
    code = """
import sys
from streamlit.testing.v1 import AppTest
sys.modules["pandas"] = None  # importing it fails
app = AppTest.from_file(sys.argv[1], default_timeout=600).run()
assert not {"transformers", "huggingface_hub", "tokenizers"} & set(sys.modules)
from huggingface_hub import constants
assert constants.HF_HUB_OFFLINE and constants.HF_HUB_DISABLE_TELEMETRY  # no request leaves the machine unless an operator allows it
print([element.proto.component_name for element in app.get("bidi_component")][-1], len(app.dataframe))
"""
    command = [sys.executable, "-c", code, str(ROOT / "app.py")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    # Where rich is installed, Streamlit prints errors after the picture above this line.
    assert run.stdout.splitlines()[-1].split() == ["attention_figure", "0"]


def test_every_public_name_exists() -> None:
    assert all(hasattr(attention, name) for name in attention.__all__)
    assert attention.__all__ == sorted(
        attention.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )
