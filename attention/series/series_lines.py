"""The lines of a copied program that read a series, and give a model the arguments that its reader gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.program import literals
from attention.series.families import FREQUENCY, OBSERVED, PADDING, VALUES, is_patchtst

if TYPE_CHECKING:
    from attention.series.reader import SeriesReader
    from attention.series.table import Series

_MAX_EMBEDDED = 2**13
"""The largest table in bytes that a program has in it; a larger one without a file is read from `_UNNAMED`."""
_UNNAMED = "series.csv"


def input_lines(reader: SeriesReader, series: Series, variable: str) -> list[str]:
    """The lines that make the arguments of a model from its series."""
    context, inputs = reader.config.context_length, f"{variable}_inputs"
    lines = [
        *_read_lines(series, variable),
        f"{variable} = torch.tensor({variable}.to_numpy(float)[-{context}:], dtype=torch.float32)  # [step column]",
    ]
    if is_patchtst(reader.config):
        lines.append(f'{inputs} = {{"{VALUES}": {variable}.nan_to_num()[None]}}')
        if bool(_isnan(series, context)):
            lines.append(f'{inputs}["{OBSERVED}"] = ~{variable}.isnan()[None]')
        return lines
    n_padded = context - min(context, len(series.values))
    lines.append(f'{inputs} = {{"{VALUES}": {variable}.T.contiguous()}}  # each column for itself')
    if PADDING in reader.arguments:
        lines += [
            f'{inputs}["{VALUES}"] = torch.nn.functional.pad({inputs}["{VALUES}"], ({n_padded}, 0))',
            f'{inputs}["{PADDING}"] = (torch.arange({context}) < {n_padded}).float().expand({series.values.shape[1]}, -1).contiguous()',
        ]
    if FREQUENCY in reader.arguments:
        frequency, n_columns = reader.frequency(series), series.values.shape[1]
        of_columns = (
            f"torch.full(({n_columns}, 1), {frequency})"
            if PADDING in reader.arguments
            else f"[{frequency}] * {n_columns}"
        )
        lines.append(f'{inputs}["{FREQUENCY}"] = {of_columns}')
    return lines


def _isnan(series: Series, context: int) -> bool:
    import numpy as np

    return bool(np.isnan(series.values[-context:]).any())


def _read_lines(series: Series, variable: str) -> list[str]:
    """The lines that read a table as the Lab does: from the file of its name, or from the program itself if it has none."""
    options = "".join(f", {name}={value!r}" for name, value in series.pandas_options.items())
    if not series.name and len(series.content) <= _MAX_EMBEDDED:
        text = series.content.decode("utf-8", "replace").splitlines()
        return [
            "table = (  # the series as CSV",
            *(f"    {literals.text(line + chr(10))}" for line in text),
            ")",
            f"{variable} = pd.read_csv(io.StringIO(table){options})",
        ]
    lines = literals.file_lines("series", series.name, _UNNAMED)
    if series.replaced:
        encoding = series.pandas_options.get("encoding", "utf-8-sig")
        signs = "".join(f".replace({literals.text(sign)}, {literals.text(other)})" for sign, other in series.replaced)
        lines.append(f'file = io.StringIO(Path(file).read_text(encoding="{encoding}"){signs})')
    return [*lines, f"{variable} = pd.read_csv(file{options})"]
