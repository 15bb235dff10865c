"""Outputs in a notebook: they paint torch's numbers, explain cells like Python, and share one copy of their scripts."""

from __future__ import annotations

import itertools
import json
import random
import re
import struct
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import chosen_cell_line, repeat_until
from margins import approx
from PIL import Image
from playwright.sync_api import Error, Frame, Page, Position
from test_record_contract import BATCH, LENGTH, rows
from test_record_multihead import WIDTH, make
from tiny_models import FAMILIES, TinyModels

import attention
from attention import AttentionConfig, Cell, File, MissingError, Model, Trace, TypedText, explain, metrics
from attention.comparison import compare
from attention.demo.site import write
from attention.export.packing import pack_state, pack_trace
from attention.export.states import State
from attention.formula.config import TEMPERATURE
from attention.formula.override import Override
from attention.notebook import bring_scripts, open_in_lab, output, show
from attention.notebook.first_picture import first_picture
from attention.pictures.look import LIGHT
from attention.pictures.steps_view import lab_maps
from attention.tutorials import NOTEBOOKS, Notebook

OWL = "the owl asked the moon and the moon blinked"
VS_CODE_POLICY = (
    "default-src 'none'; script-src https://*.vscode-cdn.net 'unsafe-inline' 'unsafe-eval'; style-src https://*.vscode-cdn.net"
    " 'unsafe-inline'; img-src https: http: data:; font-src https:; connect-src https:; child-src https: data:"
)
"""As in VS Code's src/vs/workbench/contrib/notebook/browser/view/renderers/backLayerWebView.ts."""


def owl(**knobs: Any) -> Trace:
    return TypedText(OWL, AttentionConfig(**{"d_model": 32, "n_heads": 4, "mask": "causal"} | knobs)).trace()


@pytest.fixture
def causal() -> Trace:
    return owl()


@pytest.fixture(autouse=True)
def new_session() -> None:
    bring_scripts()


def unpacked(content: bytes) -> dict[str, Any]:
    (size,) = struct.unpack_from("<I", content)
    header: dict[str, Any] = json.loads(content[4 : 4 + size])
    return header


# -- what Python writes ------------------------------------------------------------------------------


def test_scripts_take_less_than_700_kb() -> None:
    assert len(output.packed_scripts()) < len(output._scripts_text()) < 700_000
    assert len(set(output._ALPHABET)) == 85
    assert not set(output._ALPHABET) & set("&<>\"'\\`~ ")


def test_first_output_of_a_session_alone_carries_the_scripts(causal: Trace) -> None:
    outputs = [shown._repr_html_() or "" for shown in (causal, causal.layers[0], causal.heads(), metrics.of(causal))]
    assert [output._scripts_text() in unescape(text) for text in outputs] == [True, False, False, False]
    assert max(map(len, outputs[1:])) < 200_000
    assert output._scripts_text() in unescape(show(causal, standalone=True)._repr_html_())
    assert output._scripts_text() not in unescape(show(causal, standalone=False)._repr_html_())


@pytest.mark.sample(1)
@pytest.mark.parametrize("length", [1, 7, 20])
@pytest.mark.parametrize("family", ["BERT", "Llama"])
def test_output_of_a_model_takes_about_a_tenth_of_a_megabyte(
    tiny: TinyModels, tmp_path: Path, family: str, length: int
) -> None:
    """With the sizes of all-MiniLM-L6-v2 and of SmolLM2; other layers and heads are named, none of the shown numbers changes."""
    sizes = {
        "BERT": {"hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 12},
        "Llama": {"hidden_size": 576, "num_hidden_layers": 2, "num_attention_heads": 9, "num_key_value_heads": 3},
    }[family]
    config, model, knobs = FAMILIES[family]
    tiny.save(tmp_path / "model", config, model, knobs | sizes)
    text = show(Model(str(tmp_path / "model"), " ".join([OWL] * length)).trace(), standalone=False)._repr_html_()
    assert len(text) < 125_000
    assert len(output._loader()) < 7_000


def test_arrays_of_an_output_are_the_numbers_of_torch(causal: Trace) -> None:
    content = pack_trace(causal)
    (size,) = struct.unpack_from("<I", content)
    raw = np.frombuffer(content[4 + size :], np.uint8).reshape(4, -1).T.tobytes()
    numbers = unpacked(content)["layers"]["0"]["numbers"]
    for step in ("query", "key", "scores", "weights"):
        for head, reference in enumerate(numbers[step]):
            at, shape = reference["array"]["at"], reference["array"]["shape"]
            read = np.frombuffer(raw, "<f4", int(np.prod(shape)), at).reshape(shape)
            matrix = causal.layers[0].matrix(step, head).numpy()
            assert np.array_equal(read, np.where(np.isfinite(matrix), matrix, np.nan), equal_nan=True)


def test_first_picture_has_the_weights_as_colours(causal: Trace) -> None:
    html = first_picture(causal, Cell(0, "weights", 2, 0, 0))
    picture = Image.open(BytesIO(b64decode(re.findall(r"base64,([^\"]+)", html)[0])))
    assert re.findall("<div>(.*?)</div>", html.split('px">')[1]) == OWL.split()
    shares = np.asarray(picture) / 255
    assert shares == approx(causal.layers[0].matrix("weights", 2).numpy(), step=1 / 255)
    zero, full = (np.array(picture.getpalette()[at : at + 3]) for at in (0, 765))
    assert ["#" + bytes(map(int, color)).hex() for color in (zero, full)] == [LIGHT["zero"], LIGHT["weight"]]
    assert len(html) < 3_000
    assert first_picture(causal, Cell(0, "weights", 2, 0, 0)) != first_picture(causal, Cell(0, "weights", 1, 0, 0))
    long = TypedText(" ".join(map(str, range(600)))).trace()
    assert len(first_picture(long, Cell(0, "weights", 0, 0, 0))) < 60_000


@pytest.mark.parametrize("has_ids", [True, False])
def test_repeated_or_deleted_cell_brings_the_scripts_again(monkeypatch: pytest.MonkeyPatch, has_ids: bool) -> None:
    shell = SimpleNamespace(execution_count=0, user_ns={"In": [""]}, metadata={})
    shell.get_parent = lambda: {"metadata": shell.metadata}
    monkeypatch.setitem(output.sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))

    def run(cell: str, deleted: tuple[str, ...] = ()) -> bool:
        shell.execution_count += 1
        shell.user_ns["In"].append(cell)
        shell.metadata = {"cellId": cell, "deletedCells": [*deleted]} if has_ids else {}
        return output._CARRIER.carries()

    assert [run("trace"), run("layer"), run("layer"), run("trace"), run("heads")] == [True, False, False, True, False]
    assert output._CARRIER.label == "In [4]"
    assert run("heads", deleted=("trace",)) == has_ids


def test_output_keeps_its_text_without_frames_and_styles(causal: Trace) -> None:
    text = causal._repr_html_() or ""
    plain = re.sub(r"<(style|iframe)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert unescape(plain).removesuffix("</pre></div>").endswith(repr(causal))
    assert "http" not in re.sub(r'srcdoc=".*?"', "", text, flags=re.DOTALL)


def test_every_plain_text_fits_on_a_screen(causal: Trace) -> None:
    a, b = causal, owl(mask="none")
    shown = [a, a.layers[0], a.heads(), metrics.of(a), compare(a, b), compare(a, a), explain(a, "weights"), show(a)]
    for value in shown:
        assert len(repr(value)) < 1500
        assert repr(value).count("\n") < 24
        assert "tensor(" not in repr(value)
    assert repr(a.heads()) == "AllHeads(weights of 4 heads in 1 layer:\n  L0: heads 0 to 3)"
    assert "largest changes [0, 0]" in repr(compare(a, b))


def test_explanation_shows_itself_as_markdown(causal: Trace) -> None:
    text = explain(causal, "weights", 0, 0, 4, 1)._repr_markdown_()
    assert text.startswith("**`weights`** L0 H0 [4, 1] = **")
    assert r"$$\begin{aligned}" in text


def test_heads_refuse_what_a_trace_does_not_have(causal: Trace) -> None:
    with pytest.raises(MissingError):
        causal.heads(layer=1)
    with pytest.raises(MissingError, match="a step is one of"):
        causal.heads("sims")
    with pytest.raises(MissingError):
        show(causal, head=9)


def test_long_trace_is_packed_within_its_limit() -> None:
    trace = TypedText(" ".join(map(str, range(300))), AttentionConfig(d_model=64, n_heads=8)).trace()
    content = pack_trace(trace, max_bytes=100_000)
    header = unpacked(content)
    (layer,) = header["layers"].values()
    assert len(layer["heads"]) < 8
    assert "heads 0 to" in header["left_out"]
    assert len(content) < 2_000_000


def test_trace_without_page_arithmetic_offers_no_knobs() -> None:
    (layer,) = unpacked(pack_trace(owl(positions="alibi")))["layers"].values()
    assert [control["name"] for control in layer["controls"]] == ["head"]
    assert "biased_scores" in layer["lines"]
    assert {"scaled_scores", "weights"} <= set(layer["explained"])


def test_output_offers_temperatures_of_the_pages() -> None:
    (layer,) = unpacked(pack_trace(owl(temperature=60.0)))["layers"].values()
    (control,) = [control for control in layer["controls"] if control["name"] == "temperature"]
    assert (control["low"], control["high"], control["value"]) == (TEMPERATURE.low, TEMPERATURE.high, "60.0")
    assert "weights" in layer["explained"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_trace_of_every_notebook_shows_itself(name: str) -> None:
    trace = Notebook(name).trace()
    shown = [trace, trace.layers[0], metrics.of(trace), *([trace.heads()] if trace.layers[0].has("weights") else [])]
    assert all(value._repr_html_() for value in shown)


def test_tokens_cannot_end_the_scripts_of_an_output() -> None:
    text = TypedText("</script> <script>alert(1)</script> </iframe> <!-- \u2028").trace()._repr_html_() or ""
    page = unescape(re.findall(r'srcdoc="([^"]*)"', text)[0])
    assert page.count("<script") == page.count("</script") == 4  # settings, data, scripts, loader
    assert "<script>alert" not in page


def test_open_in_lab_writes_a_file_with_the_same_digits(causal: Trace, tmp_path: Path) -> None:
    from attention import File, FileError

    written = open_in_lab(causal, tmp_path / "owl.npz", "https://lab.example.org/")
    assert written.address == "https://lab.example.org/?source=file"
    assert "owl.npz" in repr(written)
    again = File.open(tmp_path / "owl.npz").trace() if hasattr(File, "open") else None
    assert again is None or bool((again.layers[0]["weights"] == causal.layers[0]["weights"]).all())
    with pytest.raises(FileError, match=r"\.npz or \.safetensors"):
        open_in_lab(causal, tmp_path / "owl.csv")
    with pytest.raises(FileError, match="http"):
        open_in_lab(causal, tmp_path / "owl.npz", "lab.example.org")
    with pytest.raises(FileError, match="cannot be written"):
        open_in_lab(causal, tmp_path / "none" / "owl.npz")


# -- what the browser paints --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder, and its address on a plain web server that listens on every name of this machine."""
    folder = tmp_path_factory.mktemp("notebooks")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


_numbers = itertools.count()


@pytest.fixture
def open_outputs(open_page: Callable[..., Page], served: tuple[Path, str]) -> Callable[..., tuple[Page, list[Frame]]]:
    """Opens a page with outputs, and returns it with the frames of the outputs; `around` makes the page of their HTML."""

    def open_outputs(*outputs: str, around: Callable[..., str] = "\n".join, **options: Any) -> tuple[Page, list[Frame]]:
        name = f"{next(_numbers)}.html"
        (served[0] / name).write_text(
            f"<!doctype html><link rel=icon href=data:,><body>{around(outputs)}</body>", encoding="utf-8"
        )
        page = open_page(f"{served[1]}/{name}", figure=False, bypass_csp=False, **options)
        # A frame inside a frame begins late.
        repeat_until(lambda: len(output_frames(page)) >= len(outputs), lambda: page.wait_for_timeout(100))
        frames = output_frames(page)
        assert len(frames) == len(outputs)
        for frame in frames:
            settled(frame)
        return page, frames

    return open_outputs


def output_frames(page: Page) -> list[Frame]:
    """The frames of outputs that have begun to load."""
    return [*filter(has_settings, page.frames)]


def has_settings(frame: Frame) -> bool:
    try:
        return bool(frame.evaluate("Boolean(document.getElementById('settings'))"))
    except Error:  # it is replaced meanwhile
        return False


def settled(frame: Frame) -> None:
    frame.wait_for_function(
        """() => { const state = document.querySelector('.figures')?.figureState;
            return document.body.dataset.ready && state?.painted && state.painted === state.figures && !state.animating; }"""
    )


def painted(frame: Frame, index: int) -> np.ndarray:
    rows = frame.evaluate(
        "(i) => document.querySelectorAll('.js-plotly-plot')[i].data[0].z.map((row) => Array.from(row, (z) => Number.isFinite(z) ? z : null))",
        index,
    )
    return np.array(rows, dtype=float)


def is_close(actual: np.ndarray, matrix: Any) -> bool:
    expected = matrix.double().numpy()
    return bool(actual == approx(np.where(np.isfinite(expected), expected, np.nan), nan=True, dtype="float32"))


def click(frame: Frame, index: int, row: int, column: int) -> None:
    """Moves the pointer to the middle of a cell of a map and clicks, as a person does.

    Chromium sends events to where a frame of another origin was before it was scrolled, until the next picture of the page is
    composed: the click waits until the map has felt the pointer.
    """
    place = frame.evaluate(
        """([i, row, column]) => { const plot = document.querySelectorAll('.js-plotly-plot')[i]; plot.scrollIntoView({block: 'center'});
            window.isPointedAt = false;
            plot.addEventListener('mousemove', () => { window.isPointedAt = true; }, {once: true});
            const {xaxis, yaxis} = plot._fullLayout;
            return [xaxis._offset + xaxis.l2p(column), yaxis._offset + yaxis.l2p(row)].map(Math.round); }""",
        [index, row, column],
    )
    plot, position = frame.locator(".js-plotly-plot").nth(index), Position(x=place[0], y=place[1])
    repeat_until(lambda: frame.evaluate("window.isPointedAt"), lambda: plot.hover(position=position, force=True))
    plot.click(position=position, force=True)
    frame.wait_for_function(
        "([q, k]) => document.querySelector('.side.q input').value === q && document.querySelector('.side.k input').value === k",
        arg=[str(row), str(column)],
    )


def line_of(frame: Frame) -> str:
    text: str = frame.locator(".answer-line").evaluate(
        "(line) => `${line.querySelector('.number').textContent} ${line.querySelector('.arithmetic').textContent}`.trim()"
    )
    return text


def python_line(trace: Trace, step: str, layer: int, head: int, row: int, column: int) -> str:
    found = explain(trace, step, layer, head, row, column)
    return f"{found.displayed_value} {found.sign if found.short else ''} {found.short}".strip()


@pytest.mark.browser
def test_trace_output_paints_and_explains_numbers_of_torch(open_outputs: Any, causal: Trace) -> None:
    page, (frame,) = open_outputs(causal._repr_html_())
    layer = causal.layers[0]
    for index, step in enumerate(("scores", "weights", "output")):
        assert is_close(painted(frame, index), layer.matrix(step, 0))
    click(frame, 1, 4, 1)
    assert chosen_cell_line(frame).startswith("weights · query 4 moon → key 1 owl")
    assert line_of(frame) == python_line(causal, "weights", 0, 0, 4, 1)
    frame.locator(".controls [name=head]").select_option("2")
    settled(frame)
    for step in layer.steps:
        frame.locator(f".strip button[name={step.name}]").click()
        settled(frame)
        count = frame.locator(".js-plotly-plot").count()
        assert is_close(painted(frame, count - 1), layer.matrix(step.name, 2))
        row, column = (int(frame.locator(f".side.{side} input").input_value()) for side in "qk")
        assert line_of(frame) == python_line(causal, step.name, 0, 2, row, column)
    height = page.locator("iframe").evaluate("(element) => element.clientHeight")
    assert abs(height - frame.evaluate("document.getElementById('lab').getBoundingClientRect().bottom")) < 8


@pytest.mark.browser
def test_knobs_of_an_output_give_numbers_of_torch(open_outputs: Any, causal: Trace) -> None:
    _, (frame,) = open_outputs(causal._repr_html_())
    frame.locator(".controls input[name=temperature]").focus()
    for _ in range(25):
        frame.page.keyboard.press("ArrowLeft")
    frame.locator(".controls [name=mask]").select_option("window")
    settled(frame)
    temperature = float(frame.locator(".controls label[data-name=temperature] output").inner_text())
    assert temperature < 1
    turned = causal.with_config(Override(mask="window", window=3, temperature=temperature))
    size = frame.locator(".controls input[name=window]").input_value()
    turned = causal.with_config(Override(mask="window", window=int(size), temperature=temperature))
    for step in ("scaled_scores", "masked_scores", "weights", "head_output", "output"):
        frame.locator(f".strip button[name={step}]").click()
        settled(frame)
        assert is_close(painted(frame, frame.locator(".js-plotly-plot").count() - 1), turned.layers[0].matrix(step, 0))
        row, column = (int(frame.locator(f".side.{side} input").input_value()) for side in "qk")
        assert line_of(frame) == python_line(turned, step, 0, 0, row, column)
    frame.get_by_role("button", name="Reset overrides").click()
    settled(frame)
    frame.locator(".strip button[name=overview]").click()
    settled(frame)
    assert is_close(painted(frame, 1), causal.layers[0].matrix("weights", 0))


SOURCES = {
    "softmax1": partial(owl, normalizer="softmax1"), "sparsemax": partial(owl, normalizer="sparsemax", mask="none"),
    "rope": partial(owl, positions="rope"), "alibi": partial(owl, positions="alibi"), "capped": partial(owl, cap=2.0),
    "cross": lambda: TypedText(OWL, AttentionConfig(d_model=16, n_heads=2), text2="die Eule fragt").trace(),
    "cold": partial(owl, temperature=0.1), "grouped": partial(owl, n_kv_heads=2),
}  # fmt: skip


@pytest.mark.sample(2)
@pytest.mark.browser
@pytest.mark.parametrize("name", SOURCES)
def test_every_formula_is_explained_like_python(open_outputs: Any, name: str) -> None:
    trace, dice = SOURCES[name](), random.Random(name)
    _, (frame,) = open_outputs(trace._repr_html_())
    layer = trace.layers[0]
    steps = frame.evaluate("() => Object.keys(attentionOutput.current.state.steps)")
    assert set(steps) == {step.name for step in layer.steps}
    cells = []
    for step in layer.steps:
        rows, columns = layer.shape(step.name)[-2:]
        for _ in range(8):
            head = dice.randrange(layer.n_heads) if step.per_head else 0
            cells.append([step.name, head, dice.randrange(rows), dice.randrange(columns)])
    actual = frame.evaluate(
        """(cells) => { const lab = attentionOutput.current, numbers = lab.numbersOf(attentionOutput.knobs);
            return cells.map(([step, head, row, column]) => { const { shown, sign, short } = lab.explained({ step, head, row, column }, numbers);
              return `${shown} ${short ? sign : ''} ${short}`.trim(); }); }""",
        cells,
    )
    assert actual == [python_line(trace, step, 0, head, row, column) for step, head, row, column in cells]


@pytest.mark.browser
def test_every_head_has_the_figures_of_python(open_outputs: Any, causal: Trace) -> None:
    _, (frame,) = open_outputs(causal._repr_html_())
    factors = ("weights", "query", "scores", "output", "masked_scores")
    for view, step in (*(("factors", step) for step in factors), ("overview", "weights"), ("overview", "output")):
        head = len(step) % 4  # any of them
        frame.evaluate(
            "(knobs) => attentionOutput.set(knobs)", {"step": step, "head": head, "view": view, "q": 2, "k": 1}
        )
        settled(frame)
        expected = lab_maps(causal, Cell(0, step, head, 2, 1), view, "fixed")
        actual = frame.evaluate(
            "() => document.querySelector('.figures').figureState.figures.map(({ data: [{ zmin, zmax, colorbar }], layout }) => ({ ...layout, scale: [zmin, zmax], notes: colorbar?.ticktext }))"
        )
        for drawn, figure in zip(actual, expected, strict=True):
            heat, wanted = figure["data"][0], figure["layout"]
            assert drawn["scale"] == [heat["zmin"], heat["zmax"]]
            assert drawn.get("notes") == heat.get("colorbar", {}).get("ticktext")
            for key in ("title", "shapes", "annotations", "height"):
                assert drawn.get(key) == wanted.get(key)
            assert drawn["meta"]["alt"] == wanted["meta"]["alt"]
            assert drawn["meta"]["file"] == wanted["meta"]["file"]


SAME = State("same", "The same", "", {"text": OWL, "d_model": "32", "heads": "4", "mask": "causal"}, q=4, k=1)
DRAWN_AND_SAID = """() => { const { figures } = document.querySelector('.figures').figureState;
    const words = (name) => document.querySelector(name).innerText;
    const plain = (value) => JSON.parse(JSON.stringify(value, (_, each) => (ArrayBuffer.isView(each) ? Array.from(each, String) : each)));
    return { figures: plain(figures), line: words('.answer-line'), strip: words('.strip'),
             labels: [...document.querySelectorAll('.controls label')].map(({ dataset, title }) => [dataset.name, title]) }; }"""


def test_the_demo_packs_the_same(causal: Trace) -> None:
    state, output = (
        unpacked(content) for content in (pack_state(SAME), pack_trace(causal, Cell(0, "weights", 0, 4, 1)))
    )
    (of_state,), (of_output,) = state.pop("layers").values(), output.pop("layers").values()
    assert {key for key in of_state if of_state[key] != of_output[key]} == {"controls", "source_label"}
    assert {key for key in state if state[key] != output[key]} == {"link"}


@pytest.mark.browser
def test_the_demo_draws_and_says_the_same(
    open_outputs: Any, open_page: Callable[..., Page], causal: Trace, tmp_path: Path
) -> None:
    write(tmp_path, states=(SAME,))
    demo = open_page((tmp_path / "index.html").as_uri(), figure=False, bypass_csp=False).main_frame
    _, (output,) = open_outputs(show(causal, q=4, k=1)._repr_html_())
    knobs: dict[str, Any] = {}
    for more in ({}, {"head": 2}, {"step": "scores", "view": "factors"}, {"temperature": 0.5, "step": "weights"}, {"mask": "none"},
                 {"step": "head_output", "q": 7, "k": 3}, {"step": "output", "view": "overview"}, {"step": "value", "view": "factors"}):  # fmt: skip
        knobs |= more
        output.evaluate("(knobs) => attentionOutput.set(knobs)", knobs)
        address = "&".join(["same", *(f"{key}={knobs[key]}" for key in knobs)])
        demo.evaluate(
            "(hash) => new Promise((done) => { addEventListener('hashchange', () => setTimeout(done), { once: true }); location.hash = hash; })",
            address,
        )
        for frame in (demo, output):
            frame.wait_for_function(
                "() => { const state = document.querySelector('.figures')?.figureState; return state?.painted && state.painted === state.figures; }"
            )
        drawn, also_drawn = (frame.evaluate(DRAWN_AND_SAID) for frame in (demo, output))
        assert drawn == also_drawn, more


@pytest.mark.browser
def test_five_outputs_on_one_page_share_the_scripts(open_outputs: Any, causal: Trace) -> None:
    other = owl(mask="none")
    shown = (causal, causal.layers[0], causal.heads(), metrics.of(causal), compare(causal, other))
    outputs = [value._repr_html_() for value in shown]
    _, frames = open_outputs(*reversed(outputs))  # the one with the scripts is last
    assert [frame.locator(".js-plotly-plot").count() for frame in reversed(frames)] == [3, 3, 1, 3, 3]
    difference = compare(causal, other)
    assert is_close(painted(frames[0], 2), difference.matrix)
    click(frames[4], 1, 5, 2)
    assert line_of(frames[4]) == python_line(causal, "weights", 0, 0, 5, 2)
    assert line_of(frames[3]) == python_line(causal, "weights", 0, 0, 0, 0)


def in_frames(outputs: Any, sandbox: str, policy: str = "") -> str:
    """Each output in a frame of its own, as notebooks isolate them."""
    from html import escape

    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
    page = f'<!doctype html><html><head>{meta}</head><body style="background: #1f1f1f">%s</body></html>'
    return "".join(
        f'<iframe {sandbox} width="1000" height="700" srcdoc="{escape(page % text)}"></iframe>' for text in outputs
    )


@pytest.mark.sample(1)
@pytest.mark.browser
@pytest.mark.parametrize(
    "around",
    [
        pytest.param(lambda texts: in_frames(["".join(texts)], 'sandbox="allow-scripts allow-same-origin allow-forms"', VS_CODE_POLICY), id="VS Code"),
        pytest.param(lambda texts: in_frames(texts, 'sandbox="allow-scripts"'), id="an origin for each output, as in Colab"),
    ],
)  # fmt: skip
def test_isolated_outputs_paint_and_explain(open_outputs: Any, causal: Trace, around: Callable[..., str]) -> None:
    outputs = [causal._repr_html_(), causal.layers[0]._repr_html_(), causal.heads()._repr_html_()]
    _, frames = open_outputs(*outputs, around=around)
    for frame in frames[:2]:
        assert is_close(painted(frame, 1), causal.layers[0].matrix("weights", 0))
        click(frame, 1, 7, 3)
        assert line_of(frame) == python_line(causal, "weights", 0, 0, 7, 3)


@pytest.mark.browser
def test_output_without_the_scripts_says_where_they_are(
    open_page: Any, served: tuple[Path, str], causal: Trace
) -> None:
    _, later = causal._repr_html_(), causal._repr_html_()
    forged = "<script>onmessage = ({ data, source }) => source.postMessage({ attentionLab: 'scripts', hash: data.hash, packed: new Uint8Array(9) }, '*')</script>"
    (served[0] / "later.html").write_text(
        f"<!doctype html><link rel=icon href=data:,><body>{forged}{later}</body>", encoding="utf-8"
    )
    page = open_page(f"{served[1]}/later.html", figure=False, bypass_csp=False)
    waiting = page.frames[1].locator("#waiting")
    waiting.filter(has_text="bring_scripts").wait_for()
    assert waiting.locator("img").evaluate("(img) => img.naturalWidth") == 9, "the weights are seen all the same"
    assert not page.frames[1].evaluate("Boolean(window.attentionLab)")


@pytest.mark.browser
def test_output_takes_the_background_of_the_notebook(open_outputs: Any, causal: Trace) -> None:
    page, (frame,) = open_outputs(
        causal._repr_html_(),
        around=lambda texts: f"<div id='cell' style='background: rgb(17, 17, 17)'>{texts[0]}</div>",
    )
    assert frame.evaluate("document.documentElement.dataset.theme") == "dark"
    assert frame.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 17, 17)"
    page.evaluate("document.getElementById('cell').style.background = 'white'; document.body.className = 'light'")
    frame.wait_for_function("() => document.documentElement.dataset.theme === 'light'")
    settled(frame)
    assert frame.evaluate("document.querySelector('.js-plotly-plot')._fullLayout.font.color") == "rgb(29,27,36)", (
        "ink on a light page"
    )


HOST = """async ([module, values]) => {
    const { default: widget } = await import(module);
    const handlers = {}, sent = window.sent = [];
    const model = window.model = { ...values, get: (name) => values[name], set: (name, value) => { values[name] = value; handlers[`change:${name}`]?.(); },
        on: (name, handler) => { handlers[name] = handler; }, off() {}, save_changes() { sent.push({ ...values }); }, send: (content) => sent.push(content), handlers };
    window.leave = widget.render({ model, el: document.body }); }"""


@pytest.mark.browser
def test_live_view_exchanges_clicks_and_knobs_with_its_host(
    open_page: Any, served: tuple[Path, str], causal: Trace
) -> None:
    """The host is anywidget's: a model with values and messages, and an element to draw into."""
    folder, address = served
    (folder / "widget.js").write_bytes((output.PAGE_DIR / "widget.js").read_bytes())
    (folder / "scripts.gz").write_bytes(output.packed_scripts())
    (folder / "host.html").write_text("<!doctype html><link rel=icon href=data:,><body></body>")
    page = open_page(f"{address}/host.html", figure=False, bypass_csp=False)
    values = {
        "document": output.document("trace", pack_trace(causal), carries=False), "height": 600, "arithmetic": {},
        "layer": 0, "head": 1, "step": "weights", "q": 2, "k": 1, "view": "overview", "mask": "own", "window": 3, "prefix": 1, "temperature": 1.0,
    }  # fmt: skip
    page.evaluate(HOST, [f"{address}/widget.js", values])
    page.wait_for_function("() => sent.some(({ kind }) => kind === 'scripts')")
    page.evaluate(
        """async (hash) => { const bytes = await (await fetch('scripts.gz')).arrayBuffer();
            model.handlers['msg:custom']({ kind: 'scripts', hash }, [new DataView(bytes)]); }""",
        output.scripts_hash(),
    )
    frame = page.frames[1]
    settled(frame)
    frame.wait_for_function("() => attentionOutput.knobs.head === '1'")
    settled(frame)
    assert line_of(frame) == python_line(causal, "weights", 0, 1, 2, 1)
    click(frame, 1, 6, 4)
    page.wait_for_function("() => sent.at(-1).q === 6 && sent.at(-1).k === 4 && sent.at(-1).head === 1")
    frame.locator(".controls [name=mask]").select_option("none")
    page.wait_for_function("() => sent.at(-1).mask === 'none' && sent.at(-1).temperature === 1")
    page.evaluate("model.set('head', 3)")
    frame.wait_for_function("() => attentionOutput.knobs.head === '3'")
    settled(frame)
    turned = causal.with_config(Override(mask="none"))
    assert is_close(painted(frame, 1), turned.layers[0].matrix("weights", 3))
    assert line_of(frame) == python_line(turned, "weights", 0, 3, 6, 4)
    page.evaluate("leave()")


@pytest.mark.browser
def test_saved_live_view_shows_its_last_state_without_a_kernel(
    open_page: Any, served: tuple[Path, str], causal: Trace
) -> None:
    """What a notebook saves of a widget is its values; nobody answers its messages."""
    folder, address = served
    (folder / "widget.js").write_bytes((output.PAGE_DIR / "widget.js").read_bytes())
    (folder / "saved.html").write_text("<!doctype html><link rel=icon href=data:,><body></body>")
    page = open_page(f"{address}/saved.html", figure=False, bypass_csp=False)
    values = {
        "document": output.document("trace", pack_trace(causal)), "height": 600, "arithmetic": {},
        "layer": 0, "head": 3, "step": "weights", "q": 6, "k": 4, "view": "overview", "mask": "none", "window": 3, "prefix": 1, "temperature": 0.5,
    }  # fmt: skip
    page.evaluate(HOST, [f"{address}/widget.js", values])
    page.wait_for_function("() => document.querySelector('iframe').contentWindow.attentionOutput?.knobs.head === '3'")
    frame = page.frames[1]
    settled(frame)
    turned = causal.with_config(Override(mask="none", temperature=0.5 / causal.layers[0].temperature))
    assert is_close(painted(frame, 1), turned.layers[0].matrix("weights", 3))
    assert line_of(frame) == python_line(turned, "weights", 0, 3, 6, 4)
    causal._repr_html_()
    assert output._scripts_text() not in output.document("trace", b""), "an output has them now"


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_recorded_trace_shows_itself_and_opens_in_the_lab(tmp_path: Path) -> None:
    for variant in ("plain", "both"):  # with keys that belong to no token
        net, x = make(variant, torch.float32), rows(torch.float32, BATCH, LENGTH, WIDTH)
        trace = attention.record(net, x, x, x, tokens=tuple("abcde"))
        assert "<iframe" in (trace._repr_html_() or "")
        for step, tensor in trace.layers[0]:
            last = tuple(size - 1 for size in tensor.shape)
            explanation = attention.explain(trace, step.name, 0, *(last if len(last) == 3 else (0, *last)))
            assert explanation.lines
        open_in_lab(trace, tmp_path / "trace.npz")
        opened = File.open(tmp_path / "trace.npz").trace()
        assert opened.layers[0].name == trace.layers[0].name
        assert opened.layers[0].key_tokens == trace.layers[0].key_tokens
        for step, tensor in trace.layers[0]:
            assert torch.equal(opened.layers[0][step.name], tensor)
