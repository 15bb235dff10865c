"""The catalog of exports: every file that a URL can request. A new export is one more entry, here or in the `PANELS` of a feature."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial

from attention import MissingError, metrics
from attention.base.errors import SizeError
from attention.base.knobs import Choice, Knob
from attention.explanation import tables
from attention.explanation.derived import NORMS, DerivedMap
from attention.export import program
from attention.files import array_writer
from attention.formula.steps import STEPS, find_step
from attention.metrics import aggregates
from attention.metrics.table import frame
from attention.pictures import charts
from pages.ui.exports.links import Tab
from pages.ui.exports.request import STEP, Export, ExportFile, Request
from pages.ui.features import panels
from pages.ui.server.limits import EXPORT_MB, METRIC_SECONDS_OF_FILE

CSV = "text/csv; charset=utf-8"
PYTHON = "text/x-python; charset=utf-8"
_BINARY = "application/octet-stream"
_PART = Knob(
    "part",
    "trace",
    Choice(("trace", "layer")),
    help="The content of a file of all steps: the whole trace or one layer. If that is too large, the file has less.",
)


def _table(request: Request) -> ExportFile:
    trace = request.trace
    cell = request.cell(trace)
    pieces = tables.csv(trace, cell.step, cell.layer, cell.head)
    return ExportFile(f"{cell.step}-L{cell.layer}-H{cell.head}.csv", pieces)


def _table_of_heads(request: Request) -> ExportFile:
    trace = request.trace
    cell = request.cell(trace)
    layer = trace.layers[cell.layer]
    heads = range(layer.n_heads) if find_step(cell.step).per_head else range(1)
    rows, columns = layer.shape(cell.step)[-2:]
    pieces = tables.long_csv(
        lambda start, stop: tables.long_frame(trace, [cell.step], cell.layer, heads, start, stop),
        len(heads) * rows * columns,
    )
    return ExportFile(f"{cell.step}-L{cell.layer}-heads.csv", pieces)


def _metrics(request: Request) -> ExportFile:
    trace = request.trace
    if (seconds := metrics.estimated_seconds(trace)) > METRIC_SECONDS_OF_FILE:
        raise SizeError(
            f"A file may take at most {METRIC_SECONDS_OF_FILE} s; the metrics of all heads take about {seconds:.0f} s: choose a shorter text."
        )
    by = request.value(charts.SORT)
    by = "" if by == charts.UNSORTED else by
    table = metrics.of(trace)
    rows = frame(trace, table, table.sorted_by(by) if by else table.heads, by, counts=True)
    return ExportFile("heads-metrics.csv", [rows.to_csv(index=False)])


def derived_map_file(derived: DerivedMap, request: Request) -> ExportFile:
    """The file of a map that is derived from the weights, of the chosen head."""
    trace = request.trace
    cell = request.cell(trace)
    name = f"{derived.name}-L{cell.layer}" + f"-H{cell.head}" * derived.per_head
    return ExportFile(f"{name}.csv", tables.derived_csv(trace, derived, cell.layer, cell.head))


def _arrays(write: Callable[..., bytes], request: Request) -> ExportFile:
    trace = request.trace
    cell = request.cell(trace)
    only_layer = request.value(_PART) == "layer"
    head, layers = array_writer.part_that_fits(trace, cell.layer, cell.head, EXPORT_MB * 2**20, only_layer)
    return ExportFile(f"attention.{request.kind}", _once(partial(write, trace, head, layers)))


def _program(write: Callable[..., str], request: Request) -> ExportFile:
    trace = request.trace
    text = write(request.source, trace, request.cell(trace))
    return ExportFile(f"attention_steps.{request.kind}", [text])


def _once(make: Callable[[], bytes]) -> Iterable[bytes]:
    yield make()


@cache
def _exports() -> tuple[Export, ...]:
    """Every kind of file: those of the trunk, and those of the features."""
    maps = (*aggregates.AGGREGATES, NORMS)
    of_features = (export for feature in panels() for export in feature.exports)
    # fmt: off
    return (
        Export("{step}.csv", CSV, "a step of one head as a table, every float in full", _table),
        Export("{step}-heads.csv", CSV, "all heads of a layer, one row per number", _table_of_heads),
        Export("heads-metrics.csv", CSV, "the metrics of every head", _metrics),
        *(Export(f"{derived.name}.csv", CSV, f"the map “{derived.name}” of the weights", partial(derived_map_file, derived)) for derived in maps),
        Export("attention.npz", _BINARY, "all steps and parameters, for NumPy", partial(_arrays, array_writer.npz)),
        Export("attention.safetensors", _BINARY, "the same as safetensors", partial(_arrays, array_writer.safetensors)),
        Export("attention_steps.py", PYTHON, "the steps in plain torch", partial(_program, program.python)),
        Export("attention_steps.ipynb", "application/x-ipynb+json", "the same as a notebook", partial(_program, program.ipynb)),
        *of_features,
    )
    # fmt: on


def find(name: str) -> tuple[Export, str]:
    """The kind of file with this name, and the step in the name.

    Raises:
        MissingError: no kind of file has this name.
    """
    for export in _exports():
        if (step := export.step(name)) is not None:
            return export, step
    of_steps = (export for export in _exports() if export.name.startswith(STEP) and export.name.count("-") == 0)
    extensions = ", ".join(f".{export.ending}" for export in of_steps)
    others = ", ".join(export.name for export in _exports() if STEP not in export.name)
    raise MissingError(
        f"A file name is a step ({', '.join(step.name for step in STEPS)}) with {extensions}, or one of {others}; got “{name[:80]}”: choose one of these."
    )


def pieces(name: str, texts: Mapping[str, str], tab: Tab | None = None) -> Iterator[str | bytes]:
    """The name in the browser of a requested file, and then its pieces.

    Raises:
        AttentionError: the file cannot be made of this state.
    """
    export, step = find(name)
    made = export.make(Request(texts, tab, step, export.ending))
    yield made.file_name
    yield from made.pieces
