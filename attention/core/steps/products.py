"""Steps whose cells are a row times a column."""

from __future__ import annotations

from dataclasses import dataclass

from attention.core.cell import Cell
from attention.core.explainer import E_co
from attention.core.step import Factor, Step, StepContext
from attention.printed import product


@dataclass(frozen=True, repr=False)
class Product(Step):
    """A step that is the product of its two factors."""

    def explain(self, work: StepContext[E_co]) -> E_co:
        """A row times a column: every pair of numbers multiplied, and all products added."""
        factors = work.layer.factors(self)
        return (
            self.explain_product(work, factors)
            if len(factors) == len(self.of)
            else self.explain_incomplete(work, factors)
        )

    def explain_incomplete(self, work: StepContext[E_co], factors: list[tuple[Factor, str]]) -> E_co:
        """The explanation of a cell if the layer does not have all factors."""
        return work.as_recorded()

    def describe(self, work: StepContext[E_co], left: str) -> str:
        """How the cell is computed; `left` is the name of the left factor."""
        symbol = work.find_declared(left).symbol
        return self.words.format(row=work.cell.row, column=work.cell.column, left=symbol)

    def explain_product(self, work: StepContext[E_co], factors: list[tuple[Factor, str]]) -> E_co:
        """The sum of all products."""
        (left, left_name), (right, right_name) = factors
        row, column = work.cell.row, work.cell.column
        if left.concatenated:
            left_row = work.layer[left_name][:, row].flatten()
            right_column = work.layer[right_name][:, :, column].flatten()
            width = work.layer.shape(left_name)[-1]
            tex = rf"\sum_{{h,i}} Z^{{(h)}}_{{{row},i}}\, W^{{O(h)}}_{{i,{column}}}"
            cells = [work.cell_of(left_name, row, i % width, i // width) for i in range(len(left_row))]

            def cells_of_term(i: int) -> tuple[Cell, ...]:
                return (cells[i],)
        else:
            left_row = work.row_of(left_name, row)
            by_row = right.row == "column"  # Q Kᵀ: a row of K
            right_column = work.row_of(right_name, column) if by_row else work.column_of(right_name, column)
            letter = "j" if work.find_declared(left_name).axes[-1] == "key_pos" else "i"
            indices = (column, letter) if by_row else (letter, column)
            tex = (
                rf"\sum_{letter} {work.element_tex(left_name, row, letter)}\, {work.element_tex(right_name, *indices)}"
            )

            def cells_of_term(i: int) -> tuple[Cell, ...]:
                places = [(left_name, row, i), (right_name, column, i) if by_row else (right_name, i, column)]
                return tuple(work.cell_of(*place) for place in places if isinstance(work.find_declared(place[0]), Step))

        added_bias = None
        if self.bias and work.layer.has(self.bias):
            bias = work.layer[self.bias]
            added_bias = float(bias[column] if bias.ndim == 1 else work.layer.matrix(self.bias, work.cell.head)[column])
            tex += f" + {work.element_tex(self.bias, '', column)}"
        pairs = list(zip(left_row.double().tolist(), right_column.double().tolist(), strict=True))
        words = self.describe(work, left_name)
        return work.from_sum(
            [a * b for a, b in pairs],
            lambda i, digits: product(*pairs[i], digits),
            tex,
            words,
            cells_of_term,
            added_bias,
        )
