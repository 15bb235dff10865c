"""Pictures for papers: the content of the PNG, SVG and PDF files of every figure of the pages."""

import io
import re
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from xml.etree import ElementTree as ET

import numpy as np
import plotly.colors
import plotly.graph_objects as go
import pytest
import torch
from conftest import ROOT
from margins import approx
from PIL import Image

from attention import AttentionConfig, AttentionError, Cell, Layer, PictureError, Trace, TypedText
from attention.lessons import mask_examples, softmax
from attention.lessons.softmax import measure, scaling_maps
from attention.paper import KINDS, picture
from attention.paper.marks import (
    _MAX_CELLS,
    _MAX_CELLS_PER_SIDE,
    _block_size,
    colors_of,
    visible_cells,
)
from attention.paper.markup import specs_of
from attention.pictures import heatmap
from attention.pictures.charts import POINT_COLOR
from attention.pictures.heatmap import _ALLOWED_COLOR as ALLOWED_COLOR
from attention.pictures.look import _contrast, text_color_on
from attention.pictures.marks import CHOSEN_COLOR as CROSS
from attention.pictures.marks import HIDDEN_COLOR, axis, draw, frame, joined
from attention.pictures.message import to_plotly as as_plotly
from attention.pictures.message import without_outlines
from attention.pictures.scales import PROBABILITY, SIGNED, _log_colorscale
from attention.trace.large_map import pool_blocks

CAT = "the cat sat on the mat"
ODD = ("<b>", "</b>", "&amp;", "$x$", "$\\frac{1}{2}$", "</text>", "]]>", "<svg onload=x>", '"', "日本", "🦉", "👩‍👩‍👧", "", " ", "\n", "é")  # fmt: skip
SVG = "{http://www.w3.org/2000/svg}"
CHOSEN = Cell(0, "weights", 1, 4, 2)


@cache
def trace(text=CAT, text2="", **knobs):
    return TypedText(text, AttentionConfig(**knobs), text2).trace()


def trace_of(tokens, key_tokens=(), **tensors):
    return Trace(tuple(tokens), (Layer(recorded=tensors),), tuple(key_tokens))


def words(n):
    return tuple(f"w{i}" for i in range(n))


def blind():
    """A trace whose queries 0 and 3 see no key."""
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[[0, 3]] = False
    weights = torch.softmax(torch.arange(36.0).reshape(1, 6, 6), -1) * mask
    scores = torch.arange(36.0).reshape(1, 6, 6).masked_fill(~mask, -torch.inf)
    return trace_of(CAT.split(), masked_scores=scores, weights=weights, mask=mask)


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@cache
def spread():
    return softmax.spread((0.1, -0.2, -0.3, 0.5))


FIGURES = {
    "weights": lambda: heatmap.heatmap(trace(mask="causal"), "weights", head=1, chosen=CHOSEN),
    "scores": lambda: heatmap.heatmap(trace(), "scores", chosen=CHOSEN),
    "masked_scores": lambda: heatmap.heatmap(trace(mask="causal"), "masked_scores"),
    "masked_scores, rows without a key": lambda: heatmap.heatmap(blind(), "masked_scores"),
    "weights, rows without a key": lambda: heatmap.heatmap(blind(), "weights"),
    "stretched": lambda: heatmap.heatmap(trace(), "weights", chosen=CHOSEN, colors="stretched"),
    "over powers of ten": lambda: heatmap.heatmap(trace(mask="causal"), "weights", chosen=CHOSEN, colors="log"),
    "4 heads over powers of ten": lambda: heatmap.heads(trace(temperature=0.05), "weights", colors="log"),
    "output": lambda: heatmap.heatmap(trace(), "output", chosen=CHOSEN),
    "cross": lambda: heatmap.heatmap(trace(text2="a dog ran off to sleep in self-contradictory ways"), "weights"),
    "one token": lambda: heatmap.heatmap(trace("cat"), "weights"),
    "odd tokens": lambda: heatmap.heatmap(trace_of(ODD, weights=torch.full((1, 16, 16), 1 / 16)), "weights"),
    "24 tokens": lambda: heatmap.heatmap(trace_of(words(24), weights=torch.full((1, 24, 24), 1 / 24)), "weights"),
    "300 tokens": lambda: heatmap.heatmap(trace_of(words(300), scores=noise(1, 300, 300)), "scores"),
    "4 heads": lambda: heatmap.heads(trace(mask="causal"), "weights", chosen=CHOSEN),
    "12 heads": lambda: heatmap.heads(trace(n_heads=12, d_model=96, mask="causal"), "masked_scores"),
    "mask": lambda: heatmap.mask_map(trace(mask="causal"), chosen=CHOSEN),
    "way": lambda: as_plotly(
        heatmap.averaging_json(mask_examples.averaging_traces(trace(mask="causal"), 0)[1]["loop"], "loop")
    ),
    "curve": lambda: as_plotly(softmax.softmax_curve(softmax.curve())),
    "shares": lambda: as_plotly(softmax.shares_by_temperature(spread())),
    "variance": lambda: as_plotly(softmax.variance_by_temperature(spread())),
    "entropy": lambda: as_plotly(softmax.entropy_by_temperature(spread())),
    "scaling": lambda: as_plotly(scaling_maps(measure(TypedText(CAT, AttentionConfig(mask="causal"))))),
}
MAKERS = {**FIGURES, "12 heads of odd tokens": lambda: heatmap.heads(trace_of(ODD, scores=noise(12, 16, 16)), "scores")}
# Figures with every sort of shape and text: a PNG or a PDF takes ten times as long as an SVG, so only these are printed.
PRINTED = (
    "weights", "over powers of ten", "odd tokens", "300 tokens", "12 heads", "mask", "way", "curve", "shares", "variance", "scaling"
)  # fmt: skip
MAPS = [name for name in FIGURES if name not in ("curve", "shares", "variance", "entropy")]


@cache
def figure_named(name):
    return MAKERS[name]()


@cache
def _drawn(name, kind, width, title):
    return picture(figure_named(name), kind, width, title)


def drawn(name, kind, width=16.0, title=True):
    return _drawn(name, kind, width, title)  # one cache entry for positional and keyword arguments


def svg(name, width=16.0, title=True):
    return ET.fromstring(drawn(name, "svg", width, title))


def texts(root):
    return [element.text for element in root.iter(f"{SVG}text")]


def groups(root, prefix):
    return [group for group in root.iter(f"{SVG}g") if re.fullmatch(rf"{prefix}-\d+", group.get("id", ""))]


def shapes(root, prefix):
    """The boxes of a group, [box 4] as x0 y0 x1 y1, and their colours."""
    boxes, colors = [], []
    for group in groups(root, prefix):
        path = group.find(f"{SVG}path")
        color = re.search(r"fill: (#\w+)", path.get("style"))[1]
        for piece in path.get("d").split("M")[1:]:
            corners = np.array(re.findall(r"[-\d.]+", piece), dtype=float).reshape(-1, 2)
            boxes.append([*corners.min(axis=0), *corners.max(axis=0)])
            colors.append(color)
    return np.array(boxes).reshape(-1, 4), colors


def cell_colors(root, rows, columns):
    """The colour of every cell by row and column, derived from its position."""
    parts = [shapes(root, name) for name in ("cells", "ground")]
    boxes, colors = np.concatenate([part[0] for part in parts]), [*parts[0][1], *parts[1][1]]
    left, top = boxes[:, 0].min(), boxes[:, 1].min()
    width, height = (boxes[:, 2].max() - left) / columns, (boxes[:, 3].max() - top) / rows
    places = {}
    for (x0, y0, x1, y1), color in zip(boxes, colors, strict=True):
        place = int(((y0 + y1) / 2 - top) / height), int(((x0 + x1) / 2 - left) / width)
        assert place not in places, "a cell is drawn twice"
        places[place] = color
    return places


def plotly_color(number, scale, low, high):
    stops = [[at, f"rgb{plotly.colors.hex_to_rgb(color)}"] for at, color in scale]
    [mixed] = plotly.colors.sample_colorscale(stops, [(number - low) / (high - low)])
    return np.array([float(part) for part in re.findall(r"[\d.]+", mixed)])


def rgb(color):
    return np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)])


def streams(pdf):
    """The uncompressed streams of a PDF: drawing commands, fonts, and maps from glyphs to letters."""
    for match in re.finditer(rb"(?<!end)stream\r?\n", pdf):
        try:
            yield zlib.decompress(pdf[match.end() : pdf.index(b"endstream", match.end())])
        except zlib.error:
            continue


# -- properties of every picture ------------------------------------------------------


@pytest.mark.sample(9)
@pytest.mark.parametrize(("width", "title"), [(16, True), (8, False)])
@pytest.mark.parametrize("name", FIGURES)
def test_svg_has_the_requested_width_and_only_shapes_and_text(name, width, title):
    root = svg(name, width, title)
    assert root.get("width").endswith("pt")
    assert float(root.get("width")[:-2]) == approx(width / 2.54 * 72)
    assert root.get("viewBox").split()[2] == root.get("width")[:-2]
    kinds = {element.tag.removeprefix(SVG) for element in root.iter() if element.tag.startswith(SVG)}
    assert kinds <= {"svg", "title", "metadata", "defs", "style", "g", "path", "text", "clipPath", "use"}
    assert b'href="http' not in drawn(name, "svg", width, title)
    assert b"base64" not in drawn(name, "svg", width, title)
    assert texts(root)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", PRINTED)
def test_pdf_has_the_requested_width_and_no_image_but_text(name):
    pdf = drawn(name, "pdf")
    [box] = re.findall(rb"/MediaBox \[([^\]]*)\]", pdf)
    assert [float(number) for number in box.split()][:3] == approx([0, 0, 16 / 2.54 * 72])
    page = max(streams(pdf), key=lambda stream: stream.count(b" Tf"))
    assert b"/Subtype /Image" not in pdf
    assert not re.search(rb"\sBI\s|\sDo\s", page)  # no image in the page and no external object
    assert page.count(b"\nBT\n") >= 6
    assert b"/Subtype /Type0" in pdf
    assert b"/Type3" not in pdf  # letters are outlines of a font that printers can embed


@pytest.mark.sample(1)
@pytest.mark.parametrize(("name", "width"), [*((name, 16) for name in PRINTED), ("weights", 8.5), ("weights", 2.01)])
def test_png_has_300_dpi_and_the_requested_width(name, width):
    image = Image.open(io.BytesIO(drawn(name, "png", width)))
    assert image.width == round(width / 2.54 * 300)
    assert image.info["dpi"] == approx((300, 300), within=0.01, why="a PNG counts dots in a metre")
    pixels = np.asarray(image.convert("RGB"))
    edges = [pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]
    assert all((edge == 255).all() for edge in edges), "no shape may be cut off at the edge"
    assert (pixels != 255).any()


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", PRINTED)
def test_height_is_equal_in_svg_pdf_and_png(name):
    image = Image.open(io.BytesIO(drawn(name, "png")))
    height = float(svg(name).get("height")[:-2])
    assert image.height / 300 * 72 == approx(height, within=1, why="a PNG has whole pixels, of 0.24 points")
    [box] = re.findall(rb"/MediaBox \[([^\]]*)\]", drawn(name, "pdf"))
    assert float(box.split()[3]) == approx(height)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["weights", "entropy"])
def test_equal_figures_give_equal_bytes_without_a_date(name, kind):
    assert picture(FIGURES[name](), kind) == drawn(name, kind)
    assert not re.search(rb"20\d\d-\d\d-\d\d|D:20\d\d", drawn(name, kind))


@pytest.mark.sample(4)
@pytest.mark.parametrize("width", [2, 3.3, 55.5, 100])
@pytest.mark.parametrize("name", ["weights", "12 heads", "shares"])
def test_very_small_and_very_large_pictures_have_the_requested_width(name, width):
    assert float(svg(name, width).get("width")[:-2]) == approx(width / 2.54 * 72)
    assert len(texts(svg(name, width))) >= 6


def test_png_of_one_metre_stays_small_enough_to_compute():
    image = Image.open(io.BytesIO(drawn("weights", "png", 100)))
    assert image.width * image.height <= 25_000_000
    assert image.width / image.info["dpi"][0] * 2.54 == approx(100)


# -- several figures in one picture -----------------------------------------------------------------------------

SIDE_BY_SIDE = ("scores", "weights", "output", "mask")


@pytest.mark.parametrize("width", [8, 16, 40])
def test_figures_stand_side_by_side_with_aligned_rows(width):
    root = ET.fromstring(picture([FIGURES[name]() for name in SIDE_BY_SIDE], "svg", width))
    assert float(root.get("width")[:-2]) == approx(width / 2.54 * 72)
    parts = [shapes(root, f"{prefix}cells")[0] for prefix in ("", "part-1-", "part-2-", "part-3-")]
    for i, boxes in enumerate(parts):
        assert i * width / 4 / 2.54 * 72 < boxes[:, 0].min() < boxes[:, 2].max() < (i + 1) * width / 4 / 2.54 * 72
    tops, bottoms = (
        [end(boxes) for boxes in parts] for end in (lambda box: box[:, 1].min(), lambda box: box[:, 3].max())
    )
    assert tops == approx(
        tops[0], within=2.0, why="the mask leaves a pixel between its cells"
    )  # the mask leaves a pixel between its cells
    assert bottoms == approx(bottoms[0], within=2.0, why="the mask leaves a pixel between its cells")
    names = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(names) == len(set(names))
    assert "".join(root.find(f"{SVG}title").itertext()).count(" · ") == 3
    all_texts = set().union(*({element.text for element in svg(name).iter(f"{SVG}text")} for name in SIDE_BY_SIDE))
    assert len(set(texts(root)) - all_texts) <= 8  # titles may wrap elsewhere


@pytest.mark.parametrize("kind", KINDS)
def test_list_of_one_figure_equals_the_figure(kind):
    assert picture([FIGURES["weights"]()], kind) == drawn("weights", kind)


def test_picture_without_a_chosen_cell_has_no_outline():
    figure = FIGURES["weights"]()
    assert figure.layout.meta["file"] == ["weights", "L0-H1", "q4-k2"]
    bare = without_outlines(figure)
    assert bare.layout.meta["file"] == ["weights", "L0-H1"]
    outline = f"stroke: {CROSS}".encode()
    assert outline in picture(figure, "svg")
    assert outline not in picture(bare, "svg")
    assert len(figure.layout.shapes) == 3
    assert picture(bare, "svg") == picture(heatmap.heatmap(trace(mask="causal"), "weights", head=1), "svg")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("scores", ["scores", "L0-H0", "q4-k2"]),
        ("output", ["output", "L0", "q4"]),
        ("mask", ["mask", "L0", "q4-k2"]),
        ("4 heads", ["weights", "L0-heads"]),
        ("way", ["output-by-loop", "L0", ""]),
    ],
)
def test_map_suggests_its_file_name(name, file):
    assert list(FIGURES[name]().layout.meta["file"]) == file


# -- text ---------------------------------------------------------------------------------------


def plain(text):
    """The text that Plotly would display."""
    return " ".join(ET.fromstring(f"<a>{text.replace('<br>', ' ')}</a>").itertext())


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", FIGURES)
def test_svg_contains_every_word_of_the_figure_as_text(name):
    figure = FIGURES[name]()
    root = svg(name)
    shown_texts = texts(root)
    joined = "".join(" ".join(shown_texts).split())
    title = figure.layout.title
    axes = [each for each in (figure.layout.xaxis, figure.layout.yaxis) if each.title.text]
    for text in [title.text, title.subtitle.text, *(each.title.text for each in axes)]:
        assert "".join(plain(text.replace("&", "&amp;")).split()) in joined.replace("&", "&amp;")
    for note in figure.layout.annotations:
        assert shown_texts.count(plain(note.text)) >= sum(
            plain(other.text) == plain(note.text) for other in figure.layout.annotations
        )
    bar = (
        (figure.data[-1].marker if name.endswith("powers of ten") else figure.data[0]).colorbar
        if figure.data[0].type == "heatmap" and name != "mask"
        else None
    )
    if bar:
        assert shown_texts.count(bar.ticktext[-1]) >= 1
    for each in axes:
        for text in each.ticktext or ():
            assert all(part in " ".join(shown_texts) for part in plain(text).split())


def test_repeated_words_appear_on_both_axes():
    shown_texts = texts(svg("weights"))
    assert [text for text in shown_texts if text in CAT.split()] == CAT.split() * 2
    assert shown_texts.count("the") == 4
    assert shown_texts.count("1.00") == 6 + 1  # the sum of each row, and the first weight
    shown_texts = texts(svg("12 heads"))
    assert shown_texts.count("cat") == 3 + 4  # beside three rows of heads, below four columns of them
    assert shown_texts.count("the") == 2 * (3 + 4)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", KINDS)
def test_no_character_raises_or_warns(kind):
    assert drawn("odd tokens", kind)


@pytest.mark.parametrize("kind", KINDS)
def test_no_character_raises_or_warns_with_one_installed_font(kind, monkeypatch):
    from attention.paper import page

    monkeypatch.setattr(page, "_fonts", lambda: ["DejaVu Sans"])
    content = picture(FIGURES["odd tokens"](), kind)
    if kind == "svg":
        assert texts(ET.fromstring(content)).count("日本") == 2


@pytest.mark.parametrize("name", ["odd tokens", "12 heads of odd tokens"])
def test_tokens_like_markup_or_maths_are_literal(name):
    shown_texts = texts(svg(name))
    for token in ODD:
        displayed_tokens = {
            "": "∅",
            " ": "·",
            "\n": "⏎",
            "$\\frac{1}{2}$": "$\\frac{1}{2…",
            "<svg onload=x>": "<svg·onload…",
        }
        assert shown_texts.count(displayed_tokens.get(token, token)) >= 2, token
    assert not [element for element in svg(name).iter() if element.tag == "svg"]


def test_only_the_symbol_in_a_title_is_bold():
    root = svg("weights")
    [bold] = [element for element in root.iter(f"{SVG}text") if "font-weight: 700" in element.get("style")]
    assert bold.text == "A"
    name = next(element for element in root.iter(f"{SVG}text") if element.text == "weights")
    assert name.get("y") == bold.get("y")
    assert float(name.get("x")) > float(bold.get("x"))


@pytest.mark.parametrize(
    ("title", "lines"), [("A<br>B", ["A", "B"]), ("A" * 70 + " " + "B" * 70, ["A" * 70, "B" * 70])]
)
def test_lines_that_cannot_be_broken_stay_as_they_are(title, lines):
    figure = draw(frame(title, "", "alt", axis("x", (0, 1)), axis("y", (0, 1))), joined([0, 1], [0, 1]))
    shown_texts = [text.strip() for text in texts(ET.fromstring(picture(figure, "svg", 8)))]
    assert [text for text in shown_texts if text in lines] == lines


def test_pdf_words_can_be_searched_and_copied():
    parts = list(streams(drawn("weights", "pdf")))
    page = max(parts, key=lambda stream: stream.count(b" Tf"))
    pieces = (
        b"".join(re.findall(rb"\(((?:[^()\\]|\\.)*)\)", text, re.DOTALL))
        for text in re.findall(rb"BT.*?ET", page, re.DOTALL)
    )
    shown_texts = [piece.replace(b"\\", b"").decode("utf-16-be") for piece in pieces]
    assert [text for text in shown_texts if text in CAT.split()] == CAT.split() * 2
    assert sum(b"begincmap" in part for part in parts) == 3  # a map from glyphs to letters for each font


def test_labels_are_vertical_where_they_do_not_fit_horizontally():
    def upright(width):
        transforms = {element.text: element.get("transform", "") for element in svg("cross", width).iter(f"{SVG}text")}
        return "rotate(-90" in transforms["self-contra…"]

    assert upright(8)
    assert not upright(50)


def boxes_of_texts(root):
    """A box for each text, by the widths of the font: x0 y0 x1 y1."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    for element in root.iter(f"{SVG}text"):
        style = element.get("style")
        size = float(re.search(r"font-size: ([\d.]+)px", style)[1])
        font = FontProperties(
            family="DejaVu Sans", size=size, weight="bold" if "font-weight: 700" in style else "normal"
        )
        text_width = TextToPath().get_text_width_height_descent(element.text, font, ismath=False)[0]
        x, y = float(element.get("x")), float(element.get("y"))
        start = x - text_width * {"start": 0, "middle": 0.5, "end": 1}[re.search(r"text-anchor: (\w+)", style)[1]]
        if "rotate(-90" in element.get("transform", ""):
            below = y + x - start  # the start of a rotated text lies below its anchor on the page
            yield element.text, (x - 0.7 * size, below - text_width, x, below)
        else:
            yield element.text, (start, y - 0.7 * size, start + text_width, y)


@pytest.mark.sample(23)
@pytest.mark.parametrize(("width", "title"), [(5, True), (8, False), (16, True)])
@pytest.mark.parametrize("name", [name for name in FIGURES if name != "odd tokens"])
def test_text_is_never_cut_off_and_never_overlaps(name, width, title):
    root = svg(name, width, title)
    high, wide = float(root.get("height")[:-2]), float(root.get("width")[:-2])
    placed_texts = list(boxes_of_texts(root))
    for text, (x0, y0, x1, y1) in placed_texts:
        assert min(x0, y0, wide - x1, high - y1) >= 0, f"{text} is cut off"
    boxes = np.array([box for _, box in placed_texts])
    for i, (text, (x0, y0, x1, y1)) in enumerate(placed_texts):
        overlapping = (
            (boxes[:, 0] < x1 - 0.01)
            & (x0 < boxes[:, 2] - 0.01)
            & (boxes[:, 1] < y1 - 0.01)
            & (y0 < boxes[:, 3] - 0.01)
        )
        overlapping[i] = False
        assert not overlapping.any(), f"{text} lies over {placed_texts[int(overlapping.argmax())][0]}"


@pytest.mark.sample(10)
@pytest.mark.parametrize("width", [5, 16])
@pytest.mark.parametrize("name", [name for name in MAPS if name != "odd tokens"])
def test_every_number_stands_inside_its_own_cell(name, width):
    root = svg(name, width)
    cells = np.concatenate([shapes(root, "cells")[0], shapes(root, "ground")[0]])
    for text, (x0, y0, x1, y1) in boxes_of_texts(root):
        covered = (cells[:, 0] < x1) & (x0 < cells[:, 2]) & (cells[:, 1] < y1) & (y0 < cells[:, 3])
        if covered.any():
            assert re.fullmatch(r"-?\d+\.\d\d", text), f"{text} lies over cells"
            assert covered.sum() == 1


# -- cells --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAPS)
def test_every_number_is_one_shape_and_gaps_have_none(name):
    figure, root = FIGURES[name](), svg(name)
    filled = np.logical_or.reduce(
        [np.isfinite(np.asarray(data.z, dtype=float)) for data in figure.data if data.type == "heatmap"]
    )
    if name == "300 tokens":
        filled = np.ones((150, 150))
    count = sum(len(shapes(root, group)[0]) for group in ("cells", "ground"))
    assert count == filled.sum()


@pytest.mark.parametrize(
    "name",
    ["weights", "over powers of ten", "stretched", "scores", "masked_scores", "output", "cross", "12 heads", "scaling"],
)
def test_paper_colours_equal_plotlys_colours(name):
    figure, root = FIGURES[name](), svg(name)
    main = figure.data[0]
    numbers = np.asarray(main.z, dtype=float)
    hidden = (
        np.isfinite(np.asarray(figure.data[1].z, dtype=float)) if len(figure.data) > 1 else np.zeros_like(numbers) > 0
    )
    places = cell_colors(root, *numbers.shape)
    assert {place for place in np.ndindex(numbers.shape) if hidden[place] or np.isfinite(numbers[place])} == set(places)
    for place, color in places.items():
        if hidden[place]:
            assert color == HIDDEN_COLOR
        else:
            expected = plotly_color(numbers[place], main.colorscale, main.zmin, main.zmax)
            assert np.abs(rgb(color) - expected).max() <= 1


def test_scale_ends_have_the_exact_end_colours():
    weights = torch.tensor([[[0.0, 1.0], [0.5, 0.5]]])
    root = ET.fromstring(picture(heatmap.heatmap(trace_of("ab", weights=weights), "weights"), "svg"))
    scale = PROBABILITY
    places = cell_colors(root, 2, 2)
    assert places[0, 0] == scale[0][1].lower()
    assert places[0, 1] == scale[-1][1].lower()


def test_rows_run_downwards_and_columns_to_the_right():
    numbers = torch.tensor([[[0.0, 0.25, 0.75], [1.0, 0, 0]]])
    root = ET.fromstring(picture(heatmap.heatmap(trace_of("ab", "xyz", weights=numbers), "weights"), "svg"))
    boxes = {text: box for text, box in boxes_of_texts(root) if text in "abxyz"}
    assert boxes["a"][1] < boxes["b"][1]
    assert boxes["x"][0] < boxes["y"][0] < boxes["z"][0]
    places = cell_colors(root, 2, 3)
    assert places[1, 0] == PROBABILITY[-1][1].lower()
    shown_texts = texts(root)
    assert [text for text in shown_texts if re.fullmatch(r"\d\.\d\d", text)][:6] == [
        "0.00",
        "0.25",
        "0.75",
        "1.00",
        "0.00",
        "0.00",
    ]


def test_hidden_weights_show_the_ground_without_a_number():
    shown_texts, root = texts(svg("weights")), svg("weights")
    weights = trace(mask="causal").layers[0].weights[1]
    numbers = [text for text in shown_texts if re.fullmatch(r"\d\.\d\d", text)]
    assert len(numbers) == 21 + 6
    assert numbers[:21] == [f"{weights[i, j]:.2f}" for i in range(6) for j in range(i + 1)]
    assert len(shapes(root, "ground")[0]) == 15
    assert set(shapes(root, "ground")[1]) == {HIDDEN_COLOR}


def test_rows_without_a_key_show_the_ground_and_a_label():
    for name in ("weights, rows without a key", "masked_scores, rows without a key"):
        places = cell_colors(svg(name), 6, 6)
        assert all((places[row, column] == HIDDEN_COLOR) == (row in (0, 3)) for row, column in places)
        assert len(places) == 36
    assert texts(svg("weights, rows without a key")).count("no key") == 2


def test_fully_hidden_matrix_is_drawn():
    mask = torch.zeros(2, 2, dtype=torch.bool)
    figure = heatmap.heatmap(
        trace_of("ab", masked_scores=torch.full((1, 2, 2), -torch.inf), mask=mask), "masked_scores"
    )
    root = ET.fromstring(picture(figure, "svg"))
    assert set(cell_colors(root, 2, 2).values()) == {HIDDEN_COLOR}


def test_mask_has_two_colours_and_gaps_between_its_cells():
    root = svg("mask")
    boxes, colors = shapes(root, "cells")
    assert sorted(set(colors)) == sorted({ALLOWED_COLOR, HIDDEN_COLOR})
    assert colors.count(ALLOWED_COLOR) == 21
    rights = np.unique(boxes[:, 2])[:-1]
    lefts = np.unique(boxes[:, 0])[1:]
    assert lefts - rights == approx(0.75)  # a pixel of the screen


def test_numbers_are_omitted_in_cells_too_small_for_them():
    def numbers(width):
        return [text for text in texts(svg("24 tokens", width)) if text == "0.04"]

    assert len(numbers(30)) == 24 * 24
    assert not numbers(8)


def test_small_negative_number_prints_without_a_sign():
    figure = heatmap.heatmap(trace_of("ab", scores=torch.tensor([[[-0.001, 1], [-1, 0.001]]])), "scores")
    assert [text for text in texts(ET.fromstring(picture(figure, "svg"))) if re.fullmatch(r"-?\d\.\d\d", text)] == [
        "0.00",
        "1.00",
        "-1.00",
        "0.00",
    ]


def test_chosen_cell_is_outlined_in_its_colour():
    root = svg("weights")
    frames = [path for path in root.iter(f"{SVG}path") if f"stroke: {CROSS}" in path.get("style", "")]
    assert len(frames) == 3  # its row, its column, itself

    def corners(path):
        numbers = np.array(re.findall(r"[-\d.]+", path.get("d")), dtype=float).reshape(-1, 2)
        return [*numbers.min(axis=0), *numbers.max(axis=0)]

    boxes = np.concatenate([shapes(root, "cells")[0], shapes(root, "ground")[0]])
    assert sum(box == approx(corners(frames[2]), step=0.01, scale=100) for box in boxes) == 1
    assert len([path for path in svg("output").iter(f"{SVG}path") if f"stroke: {CROSS}" in path.get("style", "")]) == 1


# -- large matrices -----------------------------------------------------------------------------


def test_300_tokens_draw_block_maxima_with_a_note():
    figure = FIGURES["300 tokens"]()
    numbers = np.asarray(figure.data[0].z, dtype=float)
    largest = np.zeros((150, 150))
    for i in range(150):
        for j in range(150):
            square = numbers[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].flatten()
            largest[i, j] = square[np.abs(square).argmax()]
    [cells], by = visible_cells(specs_of(figure)[0])
    assert by == (2, 2)
    np.testing.assert_array_equal(cells.numbers.reshape(150, 150), largest)
    assert "each cell the largest of 2 × 2" in " ".join(texts(svg("300 tokens")))
    assert "each cell the largest of 2 × 2" in " ".join(texts(svg("300 tokens", title=False)))
    assert "largest of" not in " ".join(texts(svg("24 tokens")))


def test_256_tokens_are_drawn_exactly_and_257_are_pooled():
    assert _block_size(256, 256, 1) == (1, 1)
    assert _block_size(257, 256, 1) == (2, 1)
    assert _block_size(6, 3000, 1) == (1, 12)


@pytest.mark.parametrize(
    ("rows", "columns", "heads"), [(256, 256, 12), (1000, 1000, 144), (4, 4000, 64), (5000, 2, 300)]
)
def test_picture_never_has_more_cells_than_readers_open(rows, columns, heads):
    down, across = _block_size(rows, columns, heads)
    assert -(-rows // down) <= _MAX_CELLS_PER_SIDE
    assert -(-columns // across) <= _MAX_CELLS_PER_SIDE
    assert heads * -(-rows // down) * -(-columns // across) <= _MAX_CELLS


def test_edge_blocks_are_smaller_and_only_full_gaps_are_gaps():
    numbers = torch.arange(301.0 * 301).reshape(1, 301, 301)
    mask = torch.ones(301, 301, dtype=torch.bool).tril()
    figure = heatmap.heatmap(
        trace_of(words(301), masked_scores=numbers.masked_fill(~mask, -torch.inf), mask=mask), "masked_scores"
    )
    [cells, ground], by = visible_cells(specs_of(figure)[0])
    assert by == (2, 2)
    assert len(cells.boxes) + len(ground.boxes) == 151 * 151
    assert len(ground.boxes) == 151 * 150 / 2  # the blocks on the diagonal have a number
    assert cells.boxes[:, 2:].max() == 300.5
    widths = np.unique(cells.boxes[:, 2] - cells.boxes[:, 0])
    assert widths.tolist() == [1, 2]


@pytest.mark.long  # draws eight heads of 700 tokens
def test_pooled_mosaic_states_how_many_numbers_a_cell_covers():
    figure = heatmap.heads(trace_of(words(700), scores=noise(8, 700, 700)), "scores")
    block_size = figure.layout.meta["panels"][0]["block"]
    _, (down, across) = visible_cells(specs_of(figure)[0])
    assert block_size > 1
    assert down == across > 1
    joined = " ".join(texts(ET.fromstring(picture(figure, "svg"))))
    assert f"each cell the largest of {block_size * down} × {block_size * across}" in joined
    assert joined.count("each cell the largest of") == 1


@pytest.mark.quick
def test_pooling_keeps_outliers_and_separates_rows_from_columns():
    matrix = np.array([[1, -5, 2], [3, 4, np.nan], [np.nan, np.nan, -1]])
    np.testing.assert_array_equal(pool_blocks(matrix, 2, 2)[:, 0][:1], [-5])
    assert not np.isfinite(pool_blocks(matrix, 2, 2)[1, 0])
    np.testing.assert_array_equal(pool_blocks(matrix, 1, 3)[:, 0], [-5, 4, -1])
    np.testing.assert_array_equal(pool_blocks(matrix, 3, 1)[0], [3, -5, 2])
    np.testing.assert_array_equal(pool_blocks(matrix > 3, 3, 3), [[True]])
    assert pool_blocks(matrix, 1, 1) is matrix


@pytest.mark.parametrize("scale", [PROBABILITY, SIGNED, _log_colorscale(1.0)], ids=["probability", "signed", "powers"])
def test_numbers_in_cells_are_readable_on_every_colour(scale):
    for ground in {*colors_of(np.linspace(0, 1, 4096), scale, 0, 1), *(color.lower() for _, color in scale)}:
        assert (
            _contrast(text_color_on(ground), ground)
            == max(_contrast(ink, ground) for ink in ("#ffffff", "#111111"))
            >= 4.3
        )


# -- the colour bar, charts ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weights", "scores", "12 heads", "scaling"])
def test_colour_bar_consists_of_shapes_across_the_whole_scale(name):
    figure, root = FIGURES[name](), svg(name)
    boxes, colors = shapes(root, "colorbar")
    order = np.argsort(boxes[:, 0])
    assert len(boxes) == 128
    assert boxes[order][1:, 0] == approx(boxes[order][:-1, 2])
    for at, color in ((order[0], figure.data[0].colorscale[0][1]), (order[-1], figure.data[0].colorscale[-1][1])):
        assert np.abs(rgb(colors[at]) - rgb(color)).max() <= 4
    assert not groups(svg("mask"), "colorbar")


def test_bars_are_as_high_as_their_numbers():
    figure, root = FIGURES["shares"](), svg("shares")
    heights, numbers = [], []
    for i, bar in enumerate(figure.data):
        boxes, colors = shapes(root, rf"bars-{i}")
        assert set(colors) == {bar.marker.color}
        order = np.argsort(boxes[:, 0])
        heights += (boxes[order, 3] - boxes[order, 1]).tolist()
        numbers += list(bar.y)
    scale = max(heights) / max(numbers)
    assert heights == approx(np.array(numbers) * scale, step=0.02, scale=1000)
    assert texts(root).count("8 (x / 8)") == 1


@pytest.mark.parametrize("name", ["variance", "entropy"])
def test_points_lie_on_the_curve_in_their_colours(name):
    figure, root = FIGURES[name](), svg(name)
    styles = [path.get("style", "") for path in root.iter(f"{SVG}path")]
    assert sum("fill: #" in style and f"stroke: {POINT_COLOR}" in style for style in styles) == 5
    for color in figure.data[1].marker.color:
        assert sum(f"fill: {color}" in style for style in styles) == 1
    assert any("stroke-dasharray" in style for style in styles)
    assert {"0.05", "1/8", "8"} <= set(texts(root))


# -- refusals and side effects ----------------------------------------------------


@pytest.mark.parametrize("width", [1.9, 0, -5, 100.1, float("nan"), float("inf")])
def test_width_out_of_range_is_refused_in_one_sentence(width):
    with pytest.raises(PictureError, match=r"2 to 100 cm wide; got .*: choose"):
        picture(FIGURES["weights"](), "svg", width)


@pytest.mark.parametrize("kind", ["jpg", "", "SVG", "eps"])
def test_unknown_file_kind_is_refused_in_one_sentence(kind):
    with pytest.raises(AttentionError, match=r"png, svg or pdf; got .*: choose"):
        picture(FIGURES["weights"](), kind)


def test_figure_of_plotly_alone_is_refused_in_one_sentence():
    with pytest.raises(PictureError, match=r"the figures of `attention`.*: save it by its own write_image"):
        picture([FIGURES["weights"](), go.Figure(go.Pie(values=[1]))], "svg")


@pytest.mark.parametrize("ends", [(0, np.inf), (np.nan, np.nan), (1, 1)])
def test_axis_that_cannot_be_drawn_is_refused_in_one_sentence(ends):
    figure = draw(frame("title", "facts", "alt", axis("x", (0, 1)), axis("y", ends)), joined([0, 1], [0, 1]))
    with pytest.raises(PictureError, match=f"two different finite numbers; got {ends[0]} to {ends[1]} for y: give"):
        picture(figure, "svg")


def test_figure_of_plotly_and_its_json_give_the_same_picture():
    spec = heatmap.heatmap_json(trace(mask="causal"), "weights", chosen=CHOSEN)
    assert picture(spec, "svg") == picture(as_plotly(spec), "svg") == picture([as_plotly(spec)], "svg")


def test_rendering_does_not_change_the_figure():
    figure = FIGURES["12 heads"]()
    original = figure.to_json()
    picture(figure, "svg")
    assert figure.to_json() == original


@pytest.mark.long  # draws in many threads
def test_threads_disturb_neither_each_other_nor_the_settings():
    import matplotlib as mpl

    settings = dict(mpl.rcParams)
    requests = [(name, kind) for name in ("weights", "entropy") for kind in KINDS] * 2
    expected = [drawn(*request) for request in requests]
    with ThreadPoolExecutor(8) as pool:
        pictures = list(pool.map(lambda request: picture(FIGURES[request[0]](), request[1]), requests))
    assert pictures == expected
    assert dict(mpl.rcParams) == settings


@pytest.mark.long  # imports matplotlib anew
def test_matplotlib_is_imported_by_the_first_picture_and_pyplot_never():
    code = """
        import sys
        from attention import paper
        from attention.pictures import heatmap
        print("matplotlib" in sys.modules)
        import torch
        from attention import Layer, Trace
        paper.picture(heatmap.heatmap(Trace(("a",), (Layer(recorded=dict(weights=torch.ones(1, 1, 1))),)), "weights"), "pdf")
        print("matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
    """
    command = [sys.executable, "-W", "error", "-c", "\n".join(line.strip() for line in code.splitlines())]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    assert run.stdout.split() == ["False", "True", "False"]
    assert not run.stderr
