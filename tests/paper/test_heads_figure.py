"""A figure for a paper: the files are opened, and their size, cells, colours, letters, labels and captions are compared with the trace."""

import re
from io import BytesIO
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import torch
from margins import approx
from PIL import Image
from test_paper import SVG, boxes_of_texts, rgb, shapes, streams, texts

from attention import Layer, MissingError, PictureError, Trace
from attention.base.errors import ConfigError
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.paper import KINDS, HeadsFigure, figure
from attention.pictures.look import LIGHT

GPT2 = ("The", "Ġquiet", "Ġharbor", "Ġwat", "ched", "Ġthe", "Ġcopper", "Ġmoon", ".", "Ċ", "The", "Ġ$", "x", "_1")
CHINESE, HEBREW = tuple("我们在北京的秋天看月亮"), ("הירח", "מאיר", "על", "הנמל", "the", "שלום")
LONG = ("The", "Donaudampfschifffahrtsgesellschaft", "ran", "off", "<|endoftext|>")
TOKENS = {
    **{f"{n} tokens": tuple(f"w{i}" for i in range(n)) for n in (1, 2, 8, 14, 30, 80)},
    "GPT-2": GPT2, "Chinese": CHINESE, "Hebrew": HEBREW, "a long token": LONG,
}  # fmt: skip
HEADS = [(0, 1), (1, 2)]
RED = LIGHT["weight"]


def trace_of(tokens: tuple[str, ...], **more: object) -> Trace:
    """Two layers of three causal heads with weights that differ in size."""
    n, layers = len(tokens), []
    for i in range(2):
        scores = 3 * torch.randn(3, n, n, generator=torch.Generator().manual_seed(i))
        weights = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf).softmax(-1)
        layers.append(Layer(recorded={"weights": weights}, formula=Formula(mask=Mask("causal"))))
    return Trace(tokens, tuple(layers), **more)  # type: ignore[arg-type]


TRACE = trace_of(TOKENS["14 tokens"])


def svg_of(made: HeadsFigure) -> ET.Element:
    return ET.fromstring(made.picture("svg"))


def points(root: ET.Element) -> list[float]:
    """The size of every text in points: the units of the file are points."""
    return [float(re.search(r"font-size: ([\d.]+)px", text.get("style", ""))[1]) for text in root.iter(f"{SVG}text")]  # type: ignore[index]


@pytest.mark.sample(1)
@pytest.mark.parametrize("width", [8.4, 17.4, 5.5])
def test_files_are_as_wide_as_asked_to_a_hundredth_of_a_millimetre(width: float, tmp_path: Path) -> None:
    for kind in KINDS:
        saved = figure(HEADS, TRACE).save(tmp_path / f"heads.{kind}", width=width)
        assert saved.width == width
        content = (tmp_path / f"heads.{kind}").read_bytes()
        assert content == saved.picture(kind) == figure(HEADS, TRACE, width=width).picture(kind)  # the same bytes
        if kind == "pdf":
            box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+)", content)
            assert float(box[1]) / 72 * 2.54 == approx(width)  # type: ignore[index]
        elif kind == "svg":
            assert float(ET.fromstring(content).get("width", "")[:-2]) / 72 * 2.54 == approx(width)
        else:
            png = Image.open(BytesIO(content))
            assert png.width == round(width / 2.54 * 300)
            assert png.info["dpi"][0] == approx(300, within=0.1, why="a PNG counts dots in a metre")


@pytest.mark.parametrize("width", [8.4, 17.4])
@pytest.mark.parametrize("name", TOKENS)
def test_labels_are_six_points_or_more_inside_the_page_and_apart(name: str, width: float) -> None:
    made = figure(HEADS, trace_of(TOKENS[name]), width=width)
    root = svg_of(made)
    assert min(points(root)) >= 6
    high, wide = (float(root.get(side, "")[:-2]) for side in ("height", "width"))
    boxes = [box for text, box in boxes_of_texts(root) if text.isascii() and text.strip()]
    for x0, y0, x1, y1 in boxes:
        assert x0 >= -0.1
        assert y0 >= -0.1
        assert x1 <= wide + 0.1
        assert y1 <= high + 0.1
    for i, (x0, y0, x1, y1) in enumerate(boxes):
        for a0, b0, a1, b1 in boxes[:i]:
            assert x1 <= a0 + 0.1 or a1 <= x0 + 0.1 or y1 <= b0 + 0.1 or b1 <= y0 + 0.1
    labelled = [text for text in texts(root) if text in TOKENS[name]]
    if name.endswith("tokens"):
        assert ("token is labelled" in made.caption) == (len(labelled) < 3 * len(TOKENS[name]))
        assert len(labelled) >= 3 * min(8, len(TOKENS[name]))


@pytest.mark.parametrize("n", [8, 14, 80])
def test_cells_are_squares_in_the_colours_of_the_weights(n: int) -> None:
    """Every cell's colour lies as far between the two ends of the scale as its weight between 0 and 1."""
    trace = trace_of(TOKENS[f"{n} tokens"])
    root = svg_of(figure(HEADS, trace, colors="fixed"))
    ends = rgb(LIGHT["zero"]), rgb(RED)
    for i, (layer, head) in enumerate(HEADS):
        boxes, colors = shapes(root, f"cells-{i}")
        sides = boxes[:, 2:] - boxes[:, :2]
        assert len(boxes) == n * (n + 1) / 2  # the others are hidden
        assert np.ptp(sides) <= 0.021  # each edge is rounded to a hundredth of a point
        left, top, side = boxes[:, 0].min(), boxes[:, 1].min(), (boxes[:, 2].max() - boxes[:, 0].min()) / n
        for (x0, y0, *_), color in zip(boxes, colors, strict=True):
            row, column = round((y0 - top) / side), round((x0 - left) / side)
            weight = float(trace.layers[layer].weights[head, row, column])
            assert rgb(color) == approx(ends[0] + weight * (ends[1] - ends[0]), step=1, scale=255)
        hidden, _ = shapes(root, f"ground-{i}")
        assert len(hidden) == n * (n - 1) / 2


def test_each_label_stands_at_the_middle_of_its_row_and_column() -> None:
    root = svg_of(figure(HEADS, TRACE))
    boxes, _ = shapes(root, "cells-0")
    left, top, side = boxes[:, 0].min(), boxes[:, 1].min(), (boxes[:, 2].max() - boxes[:, 0].min()) / 14
    placed = [(text, box) for text, box in boxes_of_texts(root) if text in TRACE.tokens]
    rows, first, second = placed[:14], placed[14:28], placed[28:]
    assert [text for text, _ in rows] == [text for text, _ in first] == [text for text, _ in second] == [*TRACE.tokens]
    for i in range(14):
        _, (_, y0, x1, y1) = rows[i]
        assert (y0 + y1) / 2 == approx(top + (i + 0.5) * side, within=0.5, why="letters have no symmetric boxes")
        assert left - 5 < x1 < left
        _, (x0, y0, x1, _) = first[i]
        assert (x0 + x1) / 2 == approx(left + (i + 0.5) * side, within=0.5, why="letters have no symmetric boxes")
        assert boxes[:, 3].max() < y0 < boxes[:, 3].max() + 30


def test_panels_share_one_colour_bar_and_one_range_and_have_letters() -> None:
    pale = trace_of(TOKENS["14 tokens"])
    small = torch.full((1, 14, 14), 0.05)
    both = Trace(pale.tokens, (Layer(recorded={"weights": small}), Layer(recorded={"weights": 6.2 * small})))
    made = figure([(0, 0), (1, 0)], both)
    root = svg_of(made)
    bar, _ = shapes(root, "colorbar")
    assert len(np.unique(bar[:, 1])) == len(np.unique(bar[:, 3])) == 1
    assert [text for text in texts(root) if text in ("0", "0.4")] == ["0.4", "0"]  # 0.31, rounded up
    assert "from 0 to 0.4" in made.caption
    shades = [rgb(shapes(root, f"cells-{i}")[1][0]) for i in range(2)]
    zero, full = rgb(LIGHT["zero"]), rgb(RED)
    for shade, weight in zip(shades, (0.05, 0.31), strict=True):
        assert shade == approx(zero + weight / 0.4 * (full - zero), step=1, scale=255)
    letters = [text.text for text in root.iter(f"{SVG}text") if "font-weight: 700" in text.get("style", "")]
    assert letters == ["a", "b"]
    assert "Attention weights" in texts(root)
    alone = svg_of(figure([(1, 0)], both))
    assert not [text for text in alone.iter(f"{SVG}text") if "font-weight: 700" in text.get("style", "")]
    assert "Layer 1, head 0: attention weights" in texts(alone)


@pytest.mark.parametrize(
    ("n", "width", "grid", "shape"),
    [(4, 8.4, {}, (2, 2)), (4, 17.4, {}, (1, 4)), (3, 17.4, {"columns": 1}, (3, 1)), (4, 17.4, {"rows": 2}, (2, 2))],
)
def test_grid_of_panels_has_row_labels_once_a_row_and_column_labels_below(
    n: int, width: float, grid: dict[str, int], shape: tuple[int, int]
) -> None:
    root = svg_of(figure([(i % 2, i % 3) for i in range(n)], TRACE, width=width, **grid))
    corners = [shapes(root, f"cells-{i}")[0][:, :2].min(axis=0) for i in range(n)]
    assert len({float(y) for _, y in corners}) == shape[0]
    assert len({float(x) for x, _ in corners}) == shape[1]
    assert texts(root).count("w3") == shape[0] + shape[1]
    assert texts(root).count("Query") == shape[0]
    assert texts(root).count("Key") == shape[1]


def test_no_cell_is_outlined_and_no_row_summed_unless_it_is_asked_for() -> None:
    def black(root: ET.Element) -> int:
        return len([path for path in root.iter(f"{SVG}path") if f"stroke: {LIGHT['ink']}" in path.get("style", "")])

    plain = svg_of(figure(HEADS, TRACE))
    assert black(plain) == 0
    assert not {"Σ", "1.00"} & {*texts(plain)}
    assert black(svg_of(figure(HEADS, TRACE, cross=(5, 2)))) == 6  # a row, a column and a cell in each


def test_caption_says_what_is_shown_and_is_escaped() -> None:
    made = figure(HEADS, trace_of(GPT2, changes=("Layer 0, head 0: 50% off.",)), model="my_model")
    assert made.caption == (
        r"Attention weights of my\_model on ``The quiet harbor watched the copper moon. The \$x\_1''. "
        r"(a) Layer 0, head 1; (b) Layer 1, head 2. Each row is a query, each column a key. "
        r"Grey cells are hidden by the causal mask. Layer 0, head 0: 50\% off. One colour scale for all panels, from 0 to 1."
    )
    environment = made.latex("figures/two heads.pdf")
    assert environment.startswith("\\begin{figure}\n")
    assert r"\includegraphics[width=8.4cm]{figures/two heads.pdf}" in environment
    assert r"\label{fig:two-heads}" in environment
    assert made.at(17.4).latex("a.pdf").startswith("\\begin{figure*}")
    odd = figure([(0, 0)], trace_of(tuple("\\{}$&#%_^~"))).caption
    assert not re.search(r"(?<!\\)[$&#%_](?!-\$)", odd)
    assert odd.count("{") == odd.count("}")


def test_caption_says_what_one_column_leaves_out() -> None:
    trace = trace_of(TOKENS["30 tokens"])
    narrow = figure(HEADS, trace)
    assert "Every second token is labelled." in narrow.caption
    assert texts(svg_of(narrow)).count("w2") == 3
    assert texts(svg_of(narrow)).count("w1") == 0
    assert "labelled" not in narrow.at(17.4).caption
    assert "Long tokens are cut." in figure(HEADS, trace_of(LONG)).caption
    many = Trace(TOKENS["1 tokens"] * 300, (Layer(recorded={"weights": torch.full((1, 300, 300), 1 / 300)}),))
    assert r"Each cell is the largest of 2 $\times$ 2 numbers." in figure([(0, 0)], many).caption


def test_labels_are_the_words_as_people_read_them() -> None:
    shown = texts(svg_of(figure(HEADS, trace_of(GPT2))))
    assert {"quiet", "ched", "⏎", "$"} <= {*shown}
    assert not [text for text in shown if "Ġ" in text or "Ċ" in text]
    for tokens in (CHINESE, HEBREW):
        assert {*tokens} <= {*texts(svg_of(figure(HEADS, trace_of(tokens))))}


def test_two_traces_of_one_head_stand_side_by_side() -> None:
    other = trace_of(TOKENS["14 tokens"], changes=("Head 1 is silent.",))
    made = figure([(1, 2), (1, 2)], [TRACE, other], titles=["before", "after & later"])
    assert "after & later" in texts(svg_of(made))
    assert r"(a) before: layer 1, head 2; (b) after \& later: layer 1, head 2." in made.caption
    assert "In (b): Head 1 is silent." in made.caption


def test_own_font_is_used_and_inside_the_pdf() -> None:
    made = figure(HEADS, TRACE, font="DejaVu Serif")
    assert all("DejaVu Serif" in text.get("style", "") for text in svg_of(made).iter(f"{SVG}text"))
    pdf = made.picture("pdf")
    assert b"DejaVuSerif" in pdf
    assert b"/Subtype /Image" not in pdf
    assert sum(b"begincmap" in part for part in streams(pdf)) == 2  # searchable: regular and bold
    with pytest.raises(PictureError, match=r"'Comic Papyrus' is not on this machine; it has .*DejaVu Sans.*: choose"):
        figure(HEADS, TRACE, font="Comic Papyrus")


@pytest.mark.parametrize(
    ("heads", "more", "words"),
    [
        ([], {}, r"pairs \(layer, head\).*got \[\]"),
        ([(0, 1, 2)], {}, r"got \[\(0, 1, 2\)\]"),
        (HEADS, {"titles": ["one"]}, "2 heads have 2 titles; got 1"),
        (HEADS, {"rows": 1, "columns": 1}, "1 × 1 places are too few for 2 heads"),
        (HEADS, {"width": 1}, "2 to 100 cm wide; got 1 cm"),
        (HEADS, {"cross": (14, 0)}, r"from 0; got \(14, 0\)"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    heads: list[tuple[int, int]], more: dict[str, object], words: str
) -> None:
    with pytest.raises(PictureError, match=words):
        figure(heads, TRACE, **more)  # type: ignore[arg-type]


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        figure([(0, 3)], TRACE)
    with pytest.raises(MissingError):
        figure([(2, 0)], TRACE)
    with pytest.raises(ConfigError):
        figure(HEADS, TRACE, colors="rainbow")
    with pytest.raises(PictureError, match="PGF needs LaTeX"):
        figure(HEADS, TRACE).save(tmp_path / "heads.pgf")
    with pytest.raises(PictureError, match="png, svg or pdf; got ''"):
        figure(HEADS, TRACE).save(tmp_path / "heads")
    with pytest.raises(PictureError, match="9 panels side by side need more than 5 cm"):
        figure([(0, 0)] * 9, TRACE, columns=9, width=5).picture("svg")


def test_one_pair_is_one_panel_and_other_steps_are_drawn() -> None:
    assert figure((1, 2), TRACE).picture("svg") == figure([(1, 2)], TRACE).picture("svg")  # type: ignore[arg-type]
    query = Trace(("a", "b"), (Layer(recorded={"query": torch.tensor([[[1.0, -2.0, 3.0], [0.0, 1.0, 2.0]]])}),))
    made = figure([(0, 0)], query, step="query")
    assert "Layer 0, head 0: query" in texts(svg_of(made))
    assert "from $-$3 to 3" in made.caption
    sides = shapes(svg_of(made), "cells-0")[0]
    assert np.ptp(sides[:, 2:] - sides[:, :2]) <= 0.021


def test_notebook_shows_the_figure() -> None:
    assert figure(HEADS, TRACE)._repr_png_().startswith(b"\x89PNG")
