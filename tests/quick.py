"""Which tests are quick: those that use nothing of COSTLY and are not marked `slow`. And which cases `make test` leaves out.

There is no list of them: the modules that a test uses follow from its code, its fixtures, its parameters, and their helpers.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

COSTLY = (
    "streamlit",  # a page
    "playwright",  # a browser
    "starlette.testclient",  # a server
    "subprocess",
    "attention.base.jobs",
    "transformers",
    "tiny_models",
    "attention.models",
    "attention.sources.model",
    "attention.training.trained",
    "attention.training",
    "attention.demo",
    "attention.paper",  # pictures for print
)
"""Modules whose functions and classes take about a second or more, with all modules inside them."""

EVERY = 5  # about one case in so many is not left out
TESTS = {path.stem for path in Path(__file__).parent.rglob("*.py")}


def is_costly(value: Any) -> bool:
    """Whether a value is a module of COSTLY, or it or its class is defined in one."""
    module_name = (
        value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", type(value).__module__)
    )
    return any(f"{module_name}.".startswith(f"{module}.") for module in COSTLY)


def names_in(code: CodeType) -> Iterator[str]:
    """The names of globals, attributes and modules that a function uses, with those of the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def used_by(value: Any) -> Iterable[Any]:
    """The values that a value uses directly: the elements of a container, the names in a function or class of the tests."""
    is_ours = str(getattr(value, "__module__", "")).partition(".")[0] in (TESTS | {"benchmarks"})
    match value:
        case dict():
            return [*value.keys(), *value.values()]
        case list() | tuple() | set() | frozenset():
            return value
        case partial():
            return [value.func, value.args, value.keywords]
        case FunctionType() if is_ours:  # a name that is no global may be a module that the function imports
            globals_ = [value.__globals__.get(name, ModuleType(name)) for name in names_in(value.__code__)]
            return [*globals_, *vars(value).values()]  # with the attributes that decorators have added
        case type() if is_ours:
            return vars(value).values()
    return [value.__wrapped__] if hasattr(value, "__wrapped__") else []  # a fixture, a cached function


def uses_costly(*values: Any) -> bool:
    """Whether one of the values uses something of COSTLY, directly or through others."""
    waiting, visited = list(values), dict[int, Any]()
    while waiting:
        value = waiting.pop()
        if id(value) in visited or isinstance(value, str | int | float | None):
            continue
        if is_costly(value):
            return True
        visited[id(value)] = value  # keeps the object alive, so that its id is not reused
        waiting += used_by(value)
    return False


def mark_tests(items: list[pytest.Item], shared: dict[str, Any]) -> None:
    """Marks every quick test as `quick`, and about four fifths of the cases of a test as `long`: most faults show in any case.

    The first case stays, and of the others those that their names choose: every fifth would be the same value of a parameter
    with five values, in all combinations. `shared` has the fixtures of conftest.py.
    """
    costly, begun = dict[Any, bool](), set[Any]()
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        if item.function in begun and zlib.crc32(item.name.encode()) % EVERY:
            item.add_marker("long")
            continue
        begun.add(item.function)
        if item.function not in costly:
            fixtures = [vars(item.module).get(name, shared.get(name)) for name in item.fixturenames]
            costly[item.function] = uses_costly(item.function, fixtures)
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if (
            not costly[item.function]
            and not uses_costly(parameters)
            and not any(map(item.get_closest_marker, ("slow", "long")))
        ):
            item.add_marker("quick")


def imports_costly(file: Path) -> bool:
    """Whether a test file imports what alone takes seconds to import, so that `make quick` passes it by."""
    return (
        re.search(r"^(?:from|import) (?:playwright|tiny_models|transformers)\b", file.read_text("utf-8"), re.MULTILINE)
        is not None
    )
