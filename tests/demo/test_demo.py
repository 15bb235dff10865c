"""The demo without a server: its pictures and explanations equal the backend's, for any setting of the knobs."""

from __future__ import annotations

import json
import random
import re
import shutil
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
from conftest import ROOT, chosen_cell_line, click_cell
from margins import approx
from playwright.sync_api import Page, expect

from attention import AttentionError, Trace, explain
from attention.base.printed import number
from attention.demo.__main__ import main
from attention.demo.site import write
from attention.export import bundling, packing, states
from attention.export.states import State, all_states
from attention.models.library import LIBRARY
from attention.pictures.message import SCRIPTS_DIR
from attention.sources.registry import source_of
from attention.training import training_views

LAB = "https://lab.example.org/demo"
BY_NAME = {state.name: state for state in all_states()}
QUICK = (BY_NAME["notebook"], BY_NAME["cross"])
SCRIPTS = (*(ROOT / "attention").glob("*/page/*.js"), *SCRIPTS_DIR.glob("*.js"))


pytestmark = pytest.mark.long  # packs the whole demo


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The complete demo as `make demo` writes it, and its source scripts as modules beside it."""
    folder = tmp_path_factory.mktemp("web") / "some" / "folder"
    complaints: list[str] = []
    write(folder, LAB, tell=complaints.append)
    assert not complaints
    modules = folder.parent / "modules"
    modules.mkdir()
    for script in SCRIPTS:
        shutil.copy(script, modules)
    return folder


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    """The address of the demo's parent folder on a plain web server."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site.parents[1])))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/some"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def traces() -> Callable[[str], Trace]:
    cache: dict[str, Trace] = {}
    return lambda name: cache.setdefault(name, packing.source_and_trace(BY_NAME[name])[1])


def trace_with(state: State, **knobs: str) -> Trace:
    source, notes = source_of({**state.link, **knobs}, states.LIMITS)
    assert not notes
    return source.trace()


# -- the files ---------------------------------------------------------------------------------------


def test_demo_is_small(site: Path) -> None:
    sizes = {path.relative_to(site).as_posix(): path.stat().st_size for path in site.rglob("*") if path.is_file()}
    assert set(sizes) == {
        "index.html",
        "plotly.js",
        "LICENSES.txt",
        *(f"states/{state.name}.js" for state in all_states()),
    }
    assert sum(sizes.values()) < 6e6
    assert sizes["plotly.js"] + sizes["index.html"] + sizes[f"states/{all_states()[0].name}.js"] < 2e6


def test_demo_names_no_address_but_the_lab(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    addresses = set(re.findall(r"(?:https?:)?//[\w-]+(?:\.[\w-]+)+", page))
    assert {address for address in addresses if address not in LAB} <= {"http://www.w3.org"}
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="/', page)


def test_demo_of_equal_states_is_equal_to_the_byte(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name, LAB, states=QUICK)
    files = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert len(files) == 3 + len(QUICK)
    assert all((tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes() for file in files)


def test_demo_leaves_out_a_state_without_its_model(tmp_path: Path) -> None:
    settings = LIBRARY.settings
    complaints: list[str] = []
    try:
        LIBRARY.hold(replace(settings, folder=tmp_path / "none", paths=False))
        sizes = write(tmp_path / "site", tell=complaints.append, states=(BY_NAME["previous"], BY_NAME["notebook"]))
        with pytest.raises(AttentionError, match="None of the demo"):
            write(tmp_path / "empty", tell=complaints.append, states=(BY_NAME["previous"],))
    finally:
        LIBRARY.hold(settings)
    assert [name for name in sizes if name.startswith("states/")] == ["states/notebook.js"]
    assert len(complaints) == 2
    assert "all-MiniLM-L6-v2" in complaints[0]
    assert not (tmp_path / "empty").exists()


@pytest.mark.parametrize("lab", ["lab.example.org", "javascript:alert(1)", "https://"])
def test_demo_command_refuses_a_bad_address(tmp_path: Path, capsys: pytest.CaptureFixture[str], lab: str) -> None:
    assert main([str(tmp_path / "site"), "--lab", lab]) == 1
    assert capsys.readouterr().err == (
        f"--lab is the address of a Lab, such as https://lab.example.org; got {lab!r}: correct it, or leave it out.\n"
    )
    assert not (tmp_path / "site").exists()


def test_demo_command_refuses_a_folder_that_is_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").write_text("a file")
    monkeypatch.setattr("attention.demo.__main__.write", partial(write, states=QUICK[:1]))
    assert main([str(tmp_path / "site")]) == 1
    assert capsys.readouterr().err.endswith("choose a writable folder.\n")


def test_demo_refuses_a_knob_that_the_page_cannot_follow() -> None:
    alibi = State("alibi", "ALiBi", "", {"positions": "alibi", "heads": "2"})
    with pytest.raises(AttentionError, match="cannot compute scaled_scores, biased_scores"):
        packing.pack_state(alibi)
    with pytest.raises(AttentionError, match="must be valid"):
        packing.pack_state(State("odd", "Odd", "", {"mask": "sideways"}))
    with pytest.raises(AttentionError, match="A film shows a trained model"):
        training_views.pack_film(State("odd", "Odd", ""))


def test_bundler_refuses_syntax_that_it_does_not_read(tmp_path: Path) -> None:
    texts = {"a": 'import { b } from "./b.js";\nb();\n', "b": 'import { a } from "./a.js";\nexport const b = a;\n'}
    for name, text in texts.items():
        (tmp_path / f"{name}.js").write_text(text)
    with pytest.raises(AttentionError, match="a → b → a"):
        bundling.bundle("a", tmp_path)
    (tmp_path / "b.js").write_text("const b = 1;\nexport { b };\n")
    with pytest.raises(AttentionError, match=r"b\.js has 'export \{ b \};'"):
        bundling.bundle("a", tmp_path)


def test_demo_link_names_available_states() -> None:
    for state in all_states():
        _, notes = source_of(state.link, states.LIMITS)
        assert not notes
    assert len(BY_NAME) == len(all_states()) >= 12


# -- the explanations, in the browser -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def modules(browser: Any, served: str) -> Iterator[Page]:
    """A page with the demo's modules in `window.demo`."""
    page = browser.new_page()
    page.goto(f"{served}/folder/LICENSES.txt")
    names = ("number_text", "explain", "lab", "film", "states")
    page.evaluate(
        "async (paths) => { window.demo = Object.assign({}, ...await Promise.all(paths.map((path) => import(path)))); }",
        [f"../modules/{name}.js" for name in names],
    )
    yield page
    page.close()


def python_explanation(trace: Trace, step: str, layer: int, head: int, row: int, column: int) -> list[Any]:
    """Python's explanation of a cell, in the form of the page's."""
    explanation = explain(trace, step, layer, head, row, column)
    steps = {step.name for step in trace.layers[layer].steps}
    return [
        explanation.displayed_value,
        explanation.sign,
        explanation.short,
        [
            [source.step, source.head, source.row, source.column]
            for source in explanation.came_from
            if source.step in steps
        ],
    ]


@pytest.mark.browser
def test_demo_prints_numbers_like_python(modules: Page) -> None:
    dice = random.Random(0)
    numbers = [dice.uniform(-1, 1) * 10 ** dice.randint(-12, 9) for _ in range(2000)]
    numbers += [dice.randint(-999_999, 999_999) / 2 ** dice.randint(0, 12) for _ in range(2000)]  # ties in rounding
    numbers += [0.0, -0.0, 1.0, 99999.5, 9999.5, 0.00099995, -1e-300, 12345678.0]
    digits = [dice.randint(3, 9) for _ in numbers]
    texts = modules.evaluate(
        "(pairs) => pairs.map(([value, digits]) => demo.number(value, digits).text)",
        [*zip(numbers, digits, strict=True)],
    )
    assert texts == [number(value, count).text for value, count in zip(numbers, digits, strict=True)]


@pytest.mark.browser
@pytest.mark.parametrize("state", [state for state in all_states() if state.pack is None], ids=lambda state: state.name)
def test_demo_explains_every_kind_of_cell_like_python(modules: Page, traces: Any, state: State) -> None:
    dice, trace = random.Random(state.name), traces(state.name)
    layer = trace.layers[state.layer]
    cells = []
    for step in layer.steps:
        if step.name in state.skip:
            continue
        rows, columns = layer.shape(step.name)[-2:]
        for _ in range(14):
            head = dice.choice(state.heads or range(layer.n_heads)) if step.per_head else (state.heads or (0,))[0]
            cells.append([step.name, head, dice.randrange(rows), dice.randrange(columns)])
    actual = modules.evaluate(
        """async ([name, cells]) => { const lab = new demo.Lab(await demo.load(name)), numbers = lab.numbersOf({});
            return cells.map(([step, head, row, column]) => { const { shown, sign, short, from } = lab.explained({ step, head, row, column }, numbers);
              return [shown, sign, short, from]; }); }""",
        [state.name, cells],
    )
    expected = [
        python_explanation(trace, step, state.layer, head if layer.shape(step)[0:-2] else 0, row, column)
        for step, head, row, column in cells
    ]
    assert actual == expected
    assert sum(bool(short) for _, _, short, _ in actual) > len(actual) / 2


EXPLAIN = """([layer, cells]) => {
    const numbers = Object.fromEntries(Object.entries(layer.numbers).map(([name, heads]) => [name, heads.map((text) =>
        new Float64Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer))]));
    const columns = (step) => layer.wide[step];
    const at = (step, head, row, column) => numbers[step][numbers[step].length > 1 ? head : 0][row * columns(step) + column];
    return cells.map(([step, head, row, column]) => {
        const { shown, sign, short, from } = demo.explain({ ...layer, at, columns }, { step, head, row, column });
        return [shown, sign, short, from]; }); }"""


@pytest.mark.browser
@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("plain", {"temperature": "0.05"}), ("plain", {"temperature": "7.5", "mask": "window", "window": "0"}),
        ("unscaled", {"temperature": "0.35", "mask": "prefix", "prefix": "3"}), ("sparsemax", {"temperature": "0.1"}),
        ("sparsemax", {"temperature": "3.3", "mask": "causal window", "window": "1"}), ("notebook", {"temperature": "61"}),
        ("cross", {"temperature": "0.6"}), ("previous", {"temperature": "2.15"}), ("rope", {"mask": "causal"}),
    ],
)  # fmt: skip
def test_demo_explains_cells_under_other_knobs_like_python(modules: Page, name: str, knobs: dict[str, str]) -> None:
    """Equal numbers give equal texts: the page gets torch's numbers."""
    state, dice = BY_NAME[name], random.Random(f"{name} {knobs}")
    trace = trace_with(state, **knobs)
    layer = trace.layers[state.layer]
    assert layer.formula is not None
    heads = range(layer.n_heads)
    later = (
        "scaled_scores",
        "masked_scores",
        "weights",
        *(step for step in ("head_output", "output") if step not in state.skip and layer.has(step)),
    )

    def numbers(step: str) -> list[str]:
        matrices = (
            [layer.w_o.flatten(0, 1)]
            if step == "w_o" and layer.w_o is not None
            else [layer.matrix(step, head) for head in heads]
        )
        return [b64encode(matrix.double().numpy().tobytes()).decode() for matrix in matrices]

    needed = ("scores", *later, *(["value"] if "head_output" in later else []), *(["w_o"] if "output" in later else []))
    message = {
        "numbers": {step: numbers(step) for step in needed}, "wide": {step: layer.shape(step)[-1] for step in needed},
        "factors": {"head_output": ["weights", "value"]}, "heads": [*heads], "d_k": layer.sizes["d_k"],
        "divisor": layer.divisor, "temperature": layer.temperature, "normalizer": layer.formula.normalizer, "before": "scaled_scores",
    }  # fmt: skip
    cells = []
    for step in later:
        rows, columns = layer.shape(step)[-2:]
        cells += [
            [step, dice.choice(heads) if step != "output" else 0, dice.randrange(rows), dice.randrange(columns)]
            for _ in range(40)
        ]
    actual = modules.evaluate(EXPLAIN, [message, cells])
    assert actual == [python_explanation(trace, step, state.layer, *place) for step, *place in cells]


# -- the page ----------------------------------------------------------------------------------------


def settled(page: Page, name: str = "") -> None:
    # The browser reports a changed hash in a task of its own, after the click that changed it.
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
    )
    page.wait_for_function(
        """(name) => { const { figureState } = document.querySelector('.figures');
            return figureState?.painted && figureState.painted === figureState.figures && !figureState.animating && (!name || document.title.startsWith(name)); }""",
        arg=name,
    )


def open_demo(open_page: Any, address: str, **options: Any) -> Page:
    page: Page = open_page(address, figure=False, bypass_csp=False, **options)
    page.on("requestfailed", lambda request: pytest.fail(f"{request.url} did not load"))
    settled(page)
    return page


def painted(page: Page, index: int) -> np.ndarray:
    """The numbers of a figure as Plotly holds them in the page, gaps as NaN."""
    rows = page.evaluate(
        "(i) => document.querySelectorAll('.js-plotly-plot')[i].data[0].z.map((row) => Array.from(row, (z) => Number.isFinite(z) ? z : null))",
        index,
    )
    return np.array(rows, dtype=float)


def shows(actual: np.ndarray, matrix: Any) -> bool:
    expected = matrix.double().numpy()
    return bool(actual == approx(np.where(np.isfinite(expected), expected, np.nan), nan=True, dtype="float32"))


def line_of(page: Page) -> str:
    text: str = page.locator(".answer-line").evaluate(
        "(answer) => `${answer.querySelector('.number').textContent} ${answer.querySelector('.arithmetic').textContent}`.trim()"
    )
    return text


def expected_line(trace: Trace, state: State, step: str, head: int, row: int, column: int) -> str:
    explanation = explain(trace, step, state.layer, head, row, column)
    if explanation.short.endswith(": hidden by the mask"):  # as the line of the Lab says it
        return f"{explanation.displayed_value}, hidden by the mask"
    return f"{explanation.displayed_value} {explanation.sign if explanation.short else ''} {explanation.short}".strip()


@pytest.mark.browser
@pytest.mark.parametrize("by", ["file", "http"])
def test_demo_paints_and_explains_backend_numbers(
    open_page: Any, site: Path, served: str, traces: Any, by: str
) -> None:
    address = (site / "index.html").as_uri() if by == "file" else f"{served}/folder/"
    page, trace, state = open_demo(open_page, address), traces("plain"), BY_NAME["plain"]
    for index, step in enumerate(("scores", "weights", "output")):
        assert shows(painted(page, index), trace.layers[0].matrix(step, 0))
    assert line_of(page) == expected_line(trace, state, "weights", 0, state.q, state.k)

    page.locator(".js-plotly-plot").nth(1).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    page.wait_for_function("() => document.querySelector('.side.q input').value === '3'")
    assert line_of(page) == expected_line(trace, state, "weights", 0, 3, 5)
    click_cell(page, 1, 8, 3)
    page.wait_for_function("() => document.querySelector('.side.q input').value === '8'")
    assert line_of(page) == expected_line(trace, state, "weights", 0, 8, 3)
    assert chosen_cell_line(page).startswith("weights · query 8 blinked → key 3 the")

    for step in trace.layers[0].steps:
        page.locator(f".strip button[name={step.name}]").click()
        settled(page)
        row, column = (int(page.locator(f".side.{side} input").input_value()) for side in "qk")
        assert shows(painted(page, page.locator(".js-plotly-plot").count() - 1), trace.layers[0].matrix(step.name, 0))
        assert line_of(page) == expected_line(trace, state, step.name, 0, row, column)


@pytest.mark.browser
def test_demo_temperature_drag_gives_the_numbers_of_torch(open_page: Any, served: str) -> None:
    page, state = open_demo(open_page, f"{served}/folder/#causal"), BY_NAME["causal"]
    page.emulate_media(color_scheme="dark")  # and follows the system
    expect(page.locator(".js-plotly-plot .shapelayer path").first).to_have_css("stroke", "rgb(242, 241, 245)")
    page.locator(".controls input[name=temperature]").focus()
    for _ in range(30):
        page.keyboard.press("ArrowLeft")
    settled(page)
    temperature = page.evaluate("() => new URLSearchParams(location.hash).get('temperature')")
    assert 0 < float(temperature) < 1
    trace = trace_with(state, temperature=temperature)
    for index, step in enumerate(("scores", "weights", "output")):
        assert shows(painted(page, index), trace.layers[0].matrix(step, 0))
    page.locator(".controls [name=head]").select_option("2")
    page.locator(".controls [name=mask]").select_option("window")
    settled(page)
    trace = trace_with(state, temperature=temperature, mask="window")
    for step in ("scaled_scores", "masked_scores", "weights", "head_output", "output"):
        page.locator(f".strip button[name={step}]").click()
        settled(page)
        matrix = trace.layers[0].matrix(step, 2)
        assert shows(painted(page, page.locator(".js-plotly-plot").count() - 1), matrix)
        row, column = (int(page.locator(f".side.{side} input").input_value()) for side in "qk")
        assert line_of(page) == expected_line(trace, state, step, 2, row, column)
    page.locator(".strip button[name=masked_scores]").click()
    settled(page)
    assert shows(painted(page, 1), trace.layers[0]["mask"])
    size = float(trace.layers[0]["masked_scores"][trace.layers[0]["masked_scores"].isfinite()].abs().max())
    assert page.evaluate("document.querySelectorAll('.js-plotly-plot')[2].data[0].zmax") == approx(size)
    alt = page.locator(".js-plotly-plot").last.get_attribute("aria-label")
    assert alt is not None
    assert number(size).text in alt

    link = dict(parse_qsl(urlsplit(page.locator("#lab").get_attribute("href") or "").query))
    assert (page.locator("#lab").get_attribute("href") or "").startswith(f"{LAB}/?")
    reopened, notes = source_of(link, states.LIMITS)
    assert not notes
    assert (reopened.trace().layers[0].matrix("weights", 2) == trace.layers[0].matrix("weights", 2)).all()
    assert (link["step"], link["head"]) == ("masked_scores", "2")


@pytest.mark.browser
def test_demo_heads_both_follow_the_controls(open_page: Any, served: str, traces: Any) -> None:
    page, state = open_demo(open_page, f"{served}/folder/#heads"), BY_NAME["heads"]
    assert all(shows(painted(page, head), traces("heads").layers[0].matrix("weights", head)) for head in (0, 1))
    page.evaluate("""() => { const slider = document.querySelector('.controls input[type=range]');
        slider.value = 20; slider.dispatchEvent(new Event('input')); }""")  # the slider is still being dragged
    page.wait_for_function(
        "() => { const { figureState } = document.querySelector('.figures'); return figureState.frames > 0 && !figureState.animating; }"
    )
    temperature = page.locator(".controls output").text_content() or ""
    assert "temperature" not in page.url
    trace = trace_with(state, temperature=temperature)
    assert all(shows(painted(page, head), trace.layers[0].matrix("weights", head)) for head in (0, 1))
    page.evaluate("document.querySelector('.controls input[type=range]').dispatchEvent(new Event('change'))")
    page.wait_for_url(f"**#heads&temperature={temperature.rstrip('0')}")
    settled(page)
    click_cell(page, 1, 7, 2)
    page.wait_for_function("() => document.querySelector('.side.q input').value === '7'")
    assert line_of(page) == expected_line(trace, state, "weights", 1, 7, 2)


@pytest.mark.browser
def test_demo_link_reopens_the_picture_and_back_undoes_one_action(open_page: Any, served: str) -> None:
    page = open_demo(open_page, f"{served}/folder/#plain&step=scores&view=factors&head=3&q=5&k=2&temperature=0.5")
    assert chosen_cell_line(page).startswith("scores · query 5 and → key 2 asked")
    assert page.locator(".controls output").text_content() == "0.50"
    click_cell(page, 2, 1, 1)
    page.wait_for_function("() => document.querySelector('.side.q input').value === '1'")
    page.locator("nav a", has_text="Sparsemax").click()
    settled(page, "Sparsemax")
    page.go_back()
    settled(page, "A sentence")
    page.go_back()
    page.wait_for_function("() => document.querySelector('.side.q input').value === '5'")
    assert page.locator(".controls output").text_content() == "0.50"

    page.goto(f"{served}/folder/#nothing&step=magic&q=-3&k=99&temperature=hot&head=77")
    settled(page, "A sentence")
    assert chosen_cell_line(page).startswith("weights · query 0 the → key 8 blinked")
    assert page.locator(".controls output").text_content() == "1.00"


@pytest.mark.browser
def test_demo_film_plays_and_explains_its_weights(open_page: Any, served: str, traces: Any) -> None:
    page, state = open_demo(open_page, f"{served}/folder/#film&at=0"), BY_NAME["film"]
    source, trace = packing.source_and_trace(state)
    first = replace(source, at=0).trace()
    assert shows(painted(page, 1), first.layers[1].matrix("weights", 0))
    assert line_of(page) == expected_line(first, replace(state, layer=1), "weights", 0, 7, 2)
    page.locator("#play").click()
    page.wait_for_function("() => document.querySelector('#play').textContent === 'Play'")
    settled(page)
    assert shows(painted(page, 1), trace.layers[1].matrix("weights", 0))
    click_cell(page, 0, 4, 3)
    page.wait_for_function("() => document.querySelector('.side.q input').value === '4'")
    assert line_of(page) == expected_line(trace, replace(state, layer=0), "weights", 0, 4, 3)
    assert "right" in (page.locator(".answers").text_content() or "")
    page.locator("#at").press("ArrowLeft")
    page.wait_for_url("**at=*")


@pytest.mark.browser
def test_demo_states_are_no_wider_than_a_phone(open_page: Any, served: str, traces: Any) -> None:
    page = open_demo(open_page, f"{served}/folder/", viewport={"width": 390, "height": 844}, has_touch=True)
    for state in all_states():
        page.evaluate("(name) => { location.hash = name; }", state.name)
        settled(page, state.title)
        assert page.evaluate("document.documentElement.scrollWidth") == 390, state.name
    page.evaluate("() => { location.hash = 'next'; }")
    settled(page, BY_NAME["next"].title)
    page.locator(".table summary").click()
    weights = traces("next").layers[1].matrix("weights", 8)
    rows = page.locator(".numbers tr").evaluate_all(
        "(rows) => rows.slice(1).map((row) => [...row.cells].slice(1).map((cell) => cell.textContent))"
    )
    assert rows == [[number(value).text for value in row] for row in weights.tolist()]
    assert json.loads(page.locator("#about").text_content() or "")["lab"] == LAB
