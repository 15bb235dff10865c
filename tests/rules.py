"""The rules of the architecture: what each module may import, call and list. Each yields all offences in a module, with their lines."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from conftest import ROOT

from attention import STEPS
from attention.features import NAMES as FEATURES
from attention.features import is_here

# The rooms of the trunk, from the bottom: a room imports from the floors below its own; rooms on one floor do not import each other.
FLOORS = (
    {"base"},  # what everything needs
    {"formula"},  # what attention is
    {"trace"},  # what a source returns
    {"patching"},  # heads changed inside a model
    {"explanation", "files"},  # what one reads off a cell; what users bring
    {"recording"},  # the attention of any code
    {"models", "metrics"},  # transformers; numbers of heads
    {"program"},  # the Python of copied programs
    {"sources"},  # where a trace comes from
    {"pictures"},
    {"export"},  # files for users
)
ENTRANCES = {"__init__", "command", "features", "media"}  # what users import, the command, what features declare
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
SCRIPTS = {
    script.path: feature
    for feature in FEATURES
    if is_here(f"pages.ui.{feature}")
    for script in import_module(f"pages.ui.{feature}").PANELS.scripts
}
"""Pages that belong to a feature."""

MATHS = {"torch", "numpy", "scipy", "math", "cmath", "statistics"}
MATHS_OF_OURS = re.compile(r"attention\.(trace\.(attend|compute)|formula\.(functions|mask_tensor))\b")
MATHS_CALLS = {
    *("softmax", "exp", "log", "sqrt", "matmul", "einsum", "mean", "std", "var", "argmax", "masked_fill", "transpose")
}
NAMES = {step.name for step in STEPS}

QUESTIONS = {
    *("is_visible", "is_hidden", "is_enabled", "is_disabled", "is_checked", "is_editable", "count", "bounding_box"),
    *("evaluate", "evaluate_all", "inner_text", "all_inner_texts", "text_content", "all_text_contents"),
    *("input_value", "get_attribute", "query_selector", "query_selector_all"),
}
"""What Playwright answers at once about a page, which may be another one when the test acts on the answer."""


@dataclass(frozen=True)
class Module:
    """A Python file by its path from the root, and its content."""

    path: Path
    text: str

    @cached_property
    def name(self) -> str:
        """Its dotted name; that of a package has no `__init__`."""
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @cached_property
    def room(self) -> str:
        """Its package in attention/, such as "core"; a module outside of all packages counts as a package."""
        return self.path.with_suffix("").parts[1]

    @cached_property
    def nodes(self) -> dict[type[ast.AST], list[Any]]:
        nodes = defaultdict(list)
        for node in ast.walk(ast.parse(self.text)):
            nodes[type(node)].append(node)
        return nodes

    @cached_property
    def imports(self) -> list[tuple[str, int]]:
        """The dotted names that it imports anywhere, each with its line; `from a import b` gives a and a.b."""
        names = [(name.name, node.lineno) for node in self.nodes[ast.Import] for name in node.names]
        for node in self.nodes[ast.ImportFrom]:
            if not node.level:
                names.append((node.module, node.lineno))
                names += [(f"{node.module}.{name.name}", node.lineno) for name in node.names]
        return names

    @cached_property
    def packages(self) -> set[tuple[str, int]]:
        """The first part of every name that it imports, with its line."""
        return {(name.partition(".")[0], line) for name, line in self.imports}


def modules(*patterns: str) -> list[Module]:
    paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    return [Module(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in paths]


BACKEND = modules("attention/**/*.py")
PAGES = modules("app.py", "pages/**/*.py")
TESTS = modules("tests/**/*.py")
SHARED = [module for module in PAGES if "ui" in module.path.parts]
COMPARISONS = {
    *("allclose", "isclose", "assert_close", "assert_allclose", "assert_almost_equal", "assert_array_almost_equal"),
    "assert_frame_equal",  # close by default
}
TINY = 1e-4  # a bound below is a tolerance

Offences = Iterator[tuple[int, str]]
Rule = Callable[[Module], Offences]
"""A rule gives the line of each offence in a module, and what to do about it."""


def offences(rule: Rule, files: Iterable[Module]) -> list[str]:
    return [f"{module.path}:{line}: {advice}" for module in files for line, advice in rule(module)]


def relative_imports(module: Module) -> Offences:
    for node in module.nodes[ast.ImportFrom]:
        if node.level:
            yield node.lineno, "write the import with the full name of its module"


def imports_of_pages(module: Module) -> Offences:
    for name, line in module.packages:
        if name in ("streamlit", "pages", "app"):
            yield line, f"do not import {name} in attention/: code that needs it belongs into pages/"


def unplaced_rooms(module: Module) -> Offences:
    if module.room not in {*FLOOR, *FEATURES, *ENTRANCES}:
        yield 1, f"attention/{module.room} is new: add it to a floor in FLOORS, or to FEATURES"


def upward_imports(module: Module) -> Offences:
    for name, line in module.imports:
        package, _, subpath = name.partition(".")
        room = subpath.partition(".")[0]
        floor = FLOOR.get(module.room, len(FLOORS))
        if package == "attention" and room in FLOOR and room != module.room and FLOOR[room] >= floor:
            yield line, f"{module.room} must not import {name}: move what both need to a floor below"


def feature_of(name: str) -> str:
    """The feature to which a module belongs, by its dotted name; empty: the trunk."""
    parts = name.split(".")
    if (script := f"{'/'.join(parts)}.py") in SCRIPTS:
        return SCRIPTS[script]
    room = parts[2:3] if parts[:2] == ["pages", "ui"] else parts[1:2] if parts[0] == "attention" else []
    return room[0] if room and room[0] in FEATURES else ""


def feature_imports(module: Module) -> Offences:
    """Imports of a feature by the trunk or by another feature, one for each statement."""
    here = feature_of(module.name)
    for line, feature in sorted({(line, feature_of(name)) for name, line in module.imports}):
        if feature not in ("", here):
            yield line, f"{here or 'the trunk'} must not import {feature}: let the feature bring what is needed"


def maths(module: Module) -> Offences:
    for name, line in module.packages:
        if name in MATHS:
            yield line, f"do not import {name} in a page: compute in attention/"
    for name, line in module.imports:
        if MATHS_OF_OURS.match(name):
            yield line, f"do not import {name} in a page: ask the trace, or a function of attention/ that uses it"
    for node in module.nodes[ast.Call]:
        if isinstance(node.func, ast.Attribute) and node.func.attr in MATHS_CALLS:
            yield node.lineno, f"do not call {node.func.attr} in a page: compute in attention/"
    for node in (*module.nodes[ast.BinOp], *module.nodes[ast.AugAssign]):
        if isinstance(node.op, ast.MatMult):
            yield node.lineno, "do not multiply matrices (@) in a page: compute in attention/"


def imports_of_one_page(module: Module) -> Offences:
    single = {page.name for page in PAGES if page.path.parent == Path("pages") and page.path.stem != "__init__"}
    for name, line in module.imports:
        if name in single or name.partition(".")[0] == "app":
            yield line, f"do not import {name}, a single page, in what pages share: move what both need to pages/ui"


def lists_of_steps(module: Module) -> Offences:
    """More than half of the names in one literal form a second list."""
    constants = {name.upper() for name in NAMES}
    for kind in (ast.List, ast.Tuple, ast.Set, ast.Dict):
        for node in module.nodes[kind] if module.name != "attention.formula.steps" else []:
            elements = [*node.keys, *node.values] if kind is ast.Dict else node.elts
            names = {element.id for element in elements if isinstance(element, ast.Name)} & constants
            if len(names) > len(STEPS) // 2:
                yield node.lineno, "this is a second list of steps: read STEPS"


def global_randomness(module: Module) -> Offences:
    for name, line in module.packages:
        if name == "random":
            yield line, "do not import random: use a generator of attention.formula.functions"
    for node in module.nodes[ast.Call]:
        if isinstance(node.func, ast.Name) and node.func.id == "hash":
            yield node.lineno, "do not call hash, which differs between processes: use hashlib"
        drawn = isinstance(node.func, ast.Attribute) and node.func.attr in ("rand", "randn")
        if drawn and "generator" not in {keyword.arg for keyword in node.keywords}:
            yield node.lineno, f"give {node.func.attr} a generator, so that a seed gives the same numbers"


def own_tolerances(module: Module) -> Offences:
    """Comparisons of floats whose margin `make margins` does not see."""
    advice = "compare by approx of tests/margins.py, which measures how much of the tolerance is used"
    for node in module.nodes[ast.Call]:
        name = ast.unparse(node.func)
        if name.rpartition(".")[2] in COMPARISONS or name == "pytest.approx":
            yield node.lineno, advice
    for node in module.nodes[ast.Compare]:
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            smaller, larger = (left, right) if isinstance(operator, ast.Lt | ast.LtE) else (right, left)
            is_order = isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
            numbers = [part.value for part in ast.walk(larger) if isinstance(part, ast.Constant)]
            floats = [number for number in numbers if isinstance(number, float)]
            is_tolerance = any(0 < number < TINY for number in floats)
            if is_order and (is_tolerance or (floats and is_size_of_difference(smaller))):
                yield node.lineno, advice


def is_size_of_difference(node: ast.AST) -> bool:
    """Whether an expression is like `abs(a - b)` or `(a - b).abs().max()`."""
    names = {getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(node)}
    differences = (part for part in ast.walk(node) if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub))
    return "abs" in names and any(differences)


def decisions_of_a_moment(module: Module) -> Offences:
    """Conditions that ask a page, themselves or by a name that the same function gave the answer."""
    for scope in (*module.nodes[ast.Module], *module.nodes[ast.FunctionDef]):
        own = [*_of_scope(scope)]
        asking = [node for node in own if isinstance(node, ASSIGNMENTS) and _asks(node.value)]
        answers = {name for assignment in asking for name in _names(assignment, ast.Store)}
        for condition in _conditions(own):
            if _asks(condition) or answers & _names(condition, ast.Load):
                yield condition.lineno, "this may change before the act: let the act wait for its own condition"


ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.NamedExpr)


def _of_scope(scope: ast.AST) -> Iterator[Any]:
    """All nodes inside a module or a function, without those of the functions inside it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, ast.FunctionDef):
            yield from _of_scope(node)


def _conditions(nodes: Iterable[Any]) -> Iterator[Any]:
    """What decides whether something is done."""
    for node in nodes:
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs


def _names(tree: ast.AST, context: type) -> set[str]:
    """The names that are written or read in a tree."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}


def _asks(tree: ast.AST | None) -> bool:
    """Whether something in a tree asks a page. A text counts what it is given, and a dictionary is evaluated by no page."""
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in QUESTIONS:
            of_text = node.func.attr == "count" and node.args
            if not of_text and not any(isinstance(argument, ast.Dict) for argument in node.args):
                return True
    return False
