"""The copied program of every published notebook."""

from __future__ import annotations

import contract
import pytest
from test_code import check, longest, n_lines

from attention import Cell
from attention.export.program import python
from attention.tutorials import NOTEBOOKS, Notebook, notebook

pytestmark = pytest.mark.quick

EVERY_NOTEBOOK = [(name, sequence) for name in NOTEBOOKS for sequence in range(Notebook(name).n_sequences)]


def test_program_does_not_print_a_cell_outside_the_trace() -> None:
    source = Notebook("averaging-trick")
    assert python(source, cell=Cell(0, "query", 0, 0, 0)) == python(source)


@pytest.mark.parametrize(("name", "sequence"), EVERY_NOTEBOOK)
def test_program_of_every_notebook_and_sequence(name: str, sequence: int) -> None:
    program = check(Notebook(name, sequence))
    assert n_lines(program) <= 28
    assert longest(program) <= 100
    assert f'the notebook "{Notebook(name).title.replace("ᵀ", "^T")}"' in program


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_keeps_the_contract(name: str) -> None:
    assert not list(contract.check_link(notebook._NOTEBOOK, name))
    assert not list(contract.check_source(Notebook(name)))
