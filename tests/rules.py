"""The rules of the architecture: what each module may import, call and list. Each yields all offences in a module, with their lines."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from conftest import ROOT

from attention import STEPS

# A package of attention/ may import from the floors below its own; packages on one floor do not import each other.
FLOORS = (
    {"errors", "tokens", "printed", "progress"},
    {"params"},  # what can be set
    {"core"},  # what attention is
    {"patching"},  # heads changed inside a model
    {
        "analysis",
        "io",
        "models",
        "training",
    },  # what is read off a trace, files, real models, and tiny models that learn
    {"program"},  # the Python of copied programs
    {"sources"},  # where a trace comes from
    {
        "circuits",
        "corpus",
    },  # what heads write and read, as sums over the parts of a model; every head over many texts
    {"pictures"},
    {"lessons"},  # what single pages teach
    {"export"},  # files for users
    {"notebook"},  # what notebooks show
    {"__init__", "command"},  # what users import, and the command
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}

MATHS = {"torch", "numpy", "scipy", "math", "cmath", "statistics"}
MATHS_OF_OURS = re.compile(r"attention\.core\.(attend|functions|compute|mask_tensor|seeds)\b")
MATHS_CALLS = {
    *("softmax", "exp", "log", "sqrt", "matmul", "einsum", "mean", "std", "var", "argmax", "masked_fill", "transpose")
}
NAMES = {step.name for step in STEPS}
MAX_WORDS_OF_TEST = 10

# Strings that equal a step's name by accident.
OTHER_WORDS = {
    "attention/export/demo/states.py": {"input"},  # a key of a link
    "attention/params/knob.py": {"key"},  # of a knob
    "attention/core/edit_kinds/__init__.py": {"patched_output"},  # the function that makes it
    "attention/core/edit_kinds/patch.py": {"weights"},  # a word of a sentence
    "attention/core/normalizers/normalizer.py": {"key"},  # a word of a sentence
    "attention/corpus/labels.py": {"position"},  # the name of a label
    "attention/lessons/grading.py": {"key"},  # a kind of question
    "attention/lessons/templates.py": {"key"},
    "attention/lessons/question_kinds.py": {"key"},
    "attention/lessons/small_maps.py": {"key", "query"},  # titles of axes
    "attention/models/projection_weights.py": {"query", "key", "value", "output"},  # attributes in transformers
    "attention/analysis/predictions.py": {"position"},  # a column
    "attention/circuits/token_relevance.py": {"position"},  # a column
    "attention/corpus/digest.py": {"value"},  # of an example
    "attention/corpus/heads_examples.py": {"value"},  # a column
    "attention/corpus/heads_numbers.py": {"value", "query", "key", "weights"},  # columns
    "attention/corpus/heads_table.py": {"value", "query", "key", "weights"},  # columns
    "attention/pictures/controls.py": {"value"},  # keys of a message
    "attention/pictures/heatmap.py": {"key", "query"},  # titles of axes
    "attention/pictures/explanation_line.py": {"value"},
    "attention/pictures/message.py": {"key"},
    "attention/sources/kinds/trained_source.py": {"input"},  # a key of a link
    # Functions that are copied into standalone programs.
    "attention/training/learning.py": {"weights"},
    "attention/training/network.py": {
        "embedding",
        "input",
        "query",
        "key",
        "value",
        "weights",
        "head_output",
        "memory",
        "position",
    },
    "pages/ui/state/user_actions.py": {"key"},  # of a message
    "pages/ui/state/widgets.py": {"key", "value"},  # arguments of Streamlit
    "pages/ui/server/memory.py": {"memory"},  # a controller of cgroups
}


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
SHARED = [module for module in PAGES if "ui" in module.path.parts]

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
    if module.room not in FLOOR:
        yield 1, f"attention/{module.room} is new: add it to a floor in FLOORS"


def upward_imports(module: Module) -> Offences:
    for name, line in module.imports:
        package, _, subpath = name.partition(".")
        room = subpath.partition(".")[0]
        if (
            package == "attention"
            and room in FLOOR
            and room != module.room
            and FLOOR[room] >= FLOOR.get(module.room, len(FLOORS))
        ):
            yield line, f"{module.room} must not import {name}: move what both need to a floor below"


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


def step_texts(module: Module) -> list[ast.Constant]:
    """The strings that are a step's name, except declarations of other libraries' names for a step."""
    declared = {
        id(keyword.value)
        for call in module.nodes[ast.Call]
        if isinstance(call.func, ast.Name) and call.func.id in ("called", "_parameter") and "steps" in module.path.parts
        for keyword in call.keywords
    }
    return [node for node in module.nodes[ast.Constant] if id(node) not in declared and node.value in NAMES]


def step_names_as_texts(module: Module) -> Offences:
    """`attention.core.names` declares each once; other modules import it from there."""
    accidental = NAMES if module.name == "attention.core.names" else OTHER_WORDS.get(module.path.as_posix(), set())
    for node in step_texts(module):
        if node.value not in accidental:
            yield node.lineno, f"“{node.value}” is a step: import its name from attention.core.names"


def lists_of_steps(module: Module) -> Offences:
    """More than half of the names in one literal form a second list."""
    constants = {name.upper() for name in NAMES}
    for kind in (ast.List, ast.Tuple, ast.Set, ast.Dict):
        for node in module.nodes[kind] if module.name != "attention.core.steps" else []:
            elements = [*node.keys, *node.values] if kind is ast.Dict else node.elts
            names = {element.id for element in elements if isinstance(element, ast.Name)} & constants
            if len(names) > len(STEPS) // 2:
                yield node.lineno, "this is a second list of steps: read STEPS"


def global_randomness(module: Module) -> Offences:
    for name, line in module.packages:
        if name == "random":
            yield line, "do not import random: use a generator of attention.core.seeds"
    for node in module.nodes[ast.Call]:
        if isinstance(node.func, ast.Name) and node.func.id == "hash":
            yield node.lineno, "do not call hash, which differs between processes: use hashlib"
        drawn = isinstance(node.func, ast.Attribute) and node.func.attr in ("rand", "randn")
        if drawn and "generator" not in {keyword.arg for keyword in node.keywords}:
            yield node.lineno, f"give {node.func.attr} a generator, so that a seed gives the same numbers"


def long_test_names(module: Module) -> Offences:
    for node in (*module.nodes[ast.FunctionDef], *module.nodes[ast.AsyncFunctionDef]):
        words = node.name.split("_")[1:]
        if node.name.startswith("test_") and len(words) > MAX_WORDS_OF_TEST:
            yield node.lineno, f"{node.name} has {len(words)} words: name module and behaviour in {MAX_WORDS_OF_TEST}"
