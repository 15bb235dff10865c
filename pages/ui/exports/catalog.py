"""The catalog of exports: name, media type and maker of every file that a URL can request. A new export is one more entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from attention import MissingError, Model, Trace, circuits, metrics
from attention.base.errors import SizeError
from attention.base.knobs import Choice, Integer, Knob
from attention.circuits import circuits_program, direct_effects
from attention.comparison.comparison import HeadIndex, compare
from attention.explanation import tables
from attention.explanation.derived import NORMS, DerivedMap
from attention.export import program
from attention.files import array_writer
from attention.formula.steps import STEPS, find_step, is_step
from attention.metrics import aggregates
from attention.metrics.table import frame
from attention.pictures import charts, heatmap
from attention.pictures.layout import Spec
from attention.pictures.steps_view import OverPicture, lab_maps
from attention.pictures.view import DISTRACTOR, HEAD, LAYER, TARGET, layer_range
from attention.sources import Configurable, Patchable, Preparable, second_state
from attention.trace.readout import Readout
from pages.ui.exports.links import Tab
from pages.ui.exports.request import ExportFile, Request
from pages.ui.paper import takeaway
from pages.ui.server.limits import EXPORT_MB, METRIC_SECONDS_OF_FILE
from pages.ui.server.traces import traces_of_both
from pages.ui.state.knob_table import COLORS, HEAT, OVER, PAIR, VIEW

CSV = "text/csv; charset=utf-8"
BINARY = "application/octet-stream"
PART = Knob(
    "part",
    "trace",
    Choice(("trace", "layer")),
    help="The content of a file of all steps: the whole trace or one layer. If that is too large, the file has less.",
)
_STEP = "{step}"
_SMALL_BYTES = 2**21  # of all steps of a text whose files the server itself makes


@dataclass(frozen=True)
class Export:
    """A kind of file.

    Attributes:
        name: the name in the URL; `{step}` stands for the name of any step.
        media_type: the media type of the file.
        about: the content in a few words.
        make: returns the file of a request.
        is_picture: whether it is drawn, which takes a second of processor whatever the text.
    """

    name: str
    media_type: str
    about: str
    make: Callable[[Request], ExportFile]
    is_picture: bool = False

    def is_small(self, request: Request) -> bool:
        """Whether the server itself makes this file: a table or a program of a short text, or of a tiny model, whose training is here."""
        source = request.source
        if isinstance(source, Preparable):
            return not isinstance(source, Model)
        is_short = not isinstance(source, Configurable) or source.memory_bytes() <= _SMALL_BYTES
        return is_short and not self.is_picture

    def step(self, name: str) -> str | None:
        """The step in a file name of this kind, empty if the kind has no step; None if the name is of another kind."""
        if _STEP not in self.name:
            return "" if name == self.name else None
        before, after = self.name.split(_STEP)
        step = name.removeprefix(before).removesuffix(after)
        if name != f"{before}{step}{after}":
            return None
        return step if is_step(step) else None

    @property
    def ending(self) -> str:
        """The extension of the name, without a dot."""
        return self.name.rpartition(".")[2]


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


def _difference(request: Request) -> ExportFile:
    first = request.source
    state = second_state.compared_state(request.texts)
    texts = second_state.second_state(
        state, request.texts.get(second_state.KEY) or second_state.opening_differences(state)
    )
    other = Request(texts, request.tab)
    source = other.source.with_other_run(first) if isinstance(other.source, Patchable) else other.source
    a, b = traces_of_both(first, source)
    cell = request.cell(a)
    layer = other.value(LAYER, layer_range(b))
    at = HeadIndex(layer, other.value(HEAD, Integer(0, b.layers[layer].n_heads - 1)))
    difference = compare(a, b, cell.step, HeadIndex(cell.layer, cell.head), at)
    pieces = tables.csv_chunks(difference.frame())
    return ExportFile(f"{cell.step}-B-minus-A.csv", pieces)


def _mask_cells(request: Request) -> ExportFile:
    from attention.lessons import mask_examples  # with torch

    trace = request.trace
    cell = request.cell(trace)
    pieces = tables.long_csv(
        lambda start, stop: mask_examples.table(trace, cell.layer, cell.head, start, stop),
        mask_examples.visible_cells(trace, cell.layer, cell.head).numel(),
    )
    return ExportFile(f"mask-L{cell.layer}-H{cell.head}.csv", pieces)


def _metrics(request: Request) -> ExportFile:
    trace = request.trace
    if (seconds := metrics.estimated_seconds(trace)) > METRIC_SECONDS_OF_FILE:
        raise SizeError(
            f"A file may take at most {METRIC_SECONDS_OF_FILE} s; the metrics of all heads take about {seconds:.0f} s: choose a shorter text."
        )
    by = request.value(charts.SORT)
    table = metrics.of(trace)
    is_sorted = by != charts.UNSORTED
    order = table.sorted_by(by) if is_sorted else table.heads
    rows = frame(trace, table, order, by if is_sorted else "", counts=True)
    return ExportFile("heads-metrics.csv", [rows.to_csv(index=False)])


def _derived_map(derived: DerivedMap, request: Request) -> ExportFile:
    trace = request.trace
    cell = request.cell(trace)
    name = f"{derived.name}-L{cell.layer}" + f"-H{cell.head}" * derived.per_head
    return ExportFile(f"{name}.csv", tables.derived_csv(trace, derived, cell.layer, cell.head))


def _readout(request: Request, trace: Trace) -> Readout:
    target, distractor = (request.value(knob) or None for knob in (TARGET, DISTRACTOR))
    return direct_effects.find_readout(trace, target, distractor)


def _writes(request: Request) -> ExportFile:
    return _derived_map(direct_effects.writes_map(_readout(request, request.trace)), request)


def _logit_parts(request: Request) -> ExportFile:
    trace = request.trace
    tokens = [token for token, _ in _readout(request, trace).tokens]
    parts = circuits.logit_parts(trace, request.cell(trace).row, *tokens)
    return ExportFile("logit-parts.csv", [parts.frame().to_csv(index=False)])


def _score_terms(request: Request) -> ExportFile:
    trace = request.trace
    cell = request.cell(trace)
    terms = circuits.score_terms(trace, cell.layer, cell.head, cell.row, cell.column)
    name = f"score-terms-L{cell.layer}-H{cell.head}-q{cell.row}-k{cell.column}.csv"
    return ExportFile(name, [terms.frame().to_csv(index=False)])


def _circuits_program(request: Request) -> ExportFile:
    trace = request.trace
    return ExportFile("circuits.py", [circuits_program.python(trace, request.cell(trace), _readout(request, trace))])


def _arrays(write: Callable[..., bytes], request: Request) -> ExportFile:
    trace = request.trace
    cell = request.cell(trace)
    only_layer = request.value(PART) == "layer"
    head, layers = array_writer.part_that_fits(trace, cell.layer, cell.head, EXPORT_MB * 2**20, only_layer)
    name = f"attention.{request.kind}"
    return ExportFile(name, _once(partial(write, trace, head, layers)))


def _program(write: Callable[..., str], request: Request) -> ExportFile:
    trace = request.trace
    text = write(request.source, trace, request.cell(trace))
    return ExportFile(f"attention_steps.{request.kind}", [text])


def _picture_of_step(request: Request) -> ExportFile:
    trace = request.trace
    cell = request.cell(trace)
    colors = request.value(COLORS)
    return _picture(request, [heatmap.heatmap_json(trace, cell.step, cell.layer, cell.head, cell, colors)])


def _picture_of_lab(request: Request) -> ExportFile:
    trace = request.trace
    over = OverPicture(request.value(OVER), request.value(HEAT))
    maps = lab_maps(trace, request.cell(trace), request.value(VIEW), request.value(COLORS), over, request.value(PAIR))
    return _picture(request, maps, request.value(takeaway.FIGURE))


def _picture(request: Request, specs: list[Spec], figure: str = "") -> ExportFile:
    width, titles, cross = map(request.value, (takeaway.WIDTH, takeaway.TITLES, takeaway.CROSS))
    picture = takeaway.Picture.of(specs, width, titles, cross, figure)
    return ExportFile(f"{picture.file_name}.{request.kind}", [picture.content(request.kind)])


def _once(make: Callable[[], bytes]) -> Iterable[bytes]:
    yield make()


# fmt: off
EXPORTS: tuple[Export, ...] = (
    Export("{step}.csv", CSV, "a step of one head as a table, every float in full", _table),
    Export("{step}-heads.csv", CSV, "all heads of a layer, one row per number", _table_of_heads),
    Export("{step}-B-minus-A.csv", CSV, "B − A of a step of two states (`compare=`)", _difference),
    Export("mask-cells.csv", CSV, "each cell of the mask: whether it may attend, its score, its weight", _mask_cells),
    Export("heads-metrics.csv", CSV, "the metrics of every head", _metrics),
    *(Export(f"{derived.name}.csv", CSV, f"the map “{derived.name}” of the weights", partial(_derived_map, derived)) for derived in (*aggregates.AGGREGATES, NORMS)),
    Export(f"{direct_effects.NAME}.csv", CSV, "what each cell of a head adds to a logit (`target=`, `against=`)", _writes),
    Export("logit-parts.csv", CSV, "what every part of the model adds to a logit (`target=`, `against=`)", _logit_parts),
    Export("score-terms.csv", CSV, "a score as a sum over the parts that wrote its query and its key", _score_terms),
    Export("circuits.py", "text/x-python; charset=utf-8", "these three with this package", _circuits_program),
    Export("attention.npz", BINARY, "all steps and parameters, for NumPy", partial(_arrays, array_writer.npz)),
    Export("attention.safetensors", BINARY, "the same as safetensors", partial(_arrays, array_writer.safetensors)),
    Export("attention_steps.py", "text/x-python; charset=utf-8", "the steps in plain torch", partial(_program, program.python)),
    Export("attention_steps.ipynb", "application/x-ipynb+json", "the same as a notebook", partial(_program, program.ipynb)),
    *(Export(f"{{step}}.{kind}", media, "the map of a step", _picture_of_step, is_picture=True) for kind, media in takeaway.MEDIA.items()),
    *(Export(f"maps.{kind}", media, "the maps of the Lab, side by side", _picture_of_lab, is_picture=True) for kind, media in takeaway.MEDIA.items()),
)
# fmt: on
"""Every kind of file, in the order of the documentation."""


def find(name: str) -> tuple[Export, str]:
    """The kind of file with this name, and the step in the name.

    Raises:
        MissingError: no kind of file has this name.
    """
    for export in EXPORTS:
        if (step := export.step(name)) is not None:
            return export, step
    of_steps = (export for export in EXPORTS if export.name.startswith(_STEP) and export.name.count("-") == 0)
    extensions = ", ".join(f".{export.ending}" for export in of_steps)
    others = ", ".join(export.name for export in EXPORTS if _STEP not in export.name)
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
