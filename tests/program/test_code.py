from __future__ import annotations

import ast
import io
import json
import math
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from conftest import examples_of
from hypothesis import given, settings
from hypothesis import strategies as st
from margins import approx

from attention import AttentionConfig, Cell, Layer, Matrices, Source, TextError, Trace, TypedText
from attention.base.tokens import labels
from attention.export.program import ipynb, python
from attention.formula import mask_tensor
from attention.formula.config import INITS, MASKS
from attention.formula.formula import Formula
from attention.program import literals, random_weights
from attention.program.literals import Snippet

pytestmark = pytest.mark.quick

CAT = "the cat sat on the mat"
ALLOWED = {"io", "base64", "hashlib", "json", "math", "numpy", "pathlib", "plotly", "safetensors", "torch", "zlib"}
PARAMETERS = ("w_q", "w_k", "w_v", "w_o", "mask")
CALLED = {"input": "x", "memory": "x2"}
NASTY = [
    '"',
    "'",
    "\\",
    '"""',
    "\n",
    "{x}",
    "%s",
    "\ud800",
    "👨\u200d👩\u200d👧",
    "\x00",
    "#",
    "<b>",
    "é",
    "$x$",
    "\u2028",
]


def hidden_cells(n_queries: int, n_keys: int, seed: int = 0) -> str:
    hidden = np.random.default_rng(seed).random((n_queries, n_keys)) < 0.5
    return mask_tensor.encode(torch.from_numpy(~hidden))


def run(program: str) -> dict[str, Any]:
    """The variables of a program that runs where `attention` cannot be imported."""
    imported = {
        name.name.split(".")[0]
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported <= ALLOWED
    assert not [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ImportFrom)]
    our_modules = {name: sys.modules[name] for name in sys.modules if name.split(".")[0] == "attention"}
    state = torch.random.get_rng_state()
    namespace: dict[str, Any] = {}
    try:
        sys.modules.update(dict.fromkeys(our_modules, None))
        exec(compile(program, "<snippet>", "exec"), namespace)
    finally:
        sys.modules.update(our_modules)
    assert torch.equal(torch.random.get_rng_state(), state), "the program must not use the global generator"
    return namespace


def assert_same(variables: dict[str, Any], trace: Trace) -> None:
    """Asserts that the variables equal every step and parameter of the trace's layer, to 1e-6, with the same type."""
    layer = trace.layers[0]
    assert list(variables["tokens"]) == list(trace.tokens)
    assert list(variables.get("key_tokens", variables["tokens"])) == list(trace.key_tokens)
    present = [step.name for step, _ in layer] + [name for name in PARAMETERS if getattr(layer, name) is not None]
    for name in present:
        expected = getattr(layer, name)
        if name == "mask" and expected.all():
            assert "mask" not in variables  # only needed code is written
            continue
        actual = variables[CALLED.get(name, name)]
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), name
        infinite = torch.isinf(expected)
        assert torch.equal(torch.isinf(actual), infinite), name
        assert torch.equal(actual[infinite], expected[infinite]), name
        assert actual[~infinite] == approx(expected[~infinite], scale=1), name


def check(source: Source) -> str:
    """The source's program, after asserting that it computes the source's trace."""
    trace = source.trace()
    program = python(source, trace)
    assert program == python(source)
    assert program.isascii()
    assert "\r" not in program
    assert_same(run(program), trace)
    return program


NORMAL = 10
"""Lines of `attention.formula.functions.normal`, which draws the same numbers on every processor."""


def n_lines(program: str) -> int:
    """The number of logical lines of code, without empty lines and comments."""
    return sum(token.type == tokenize.NEWLINE for token in tokenize.generate_tokens(io.StringIO(program).readline))


def longest(program: str) -> int:
    return max(map(len, program.splitlines()))


# -- the chosen cell --------------------------------------------------------------------------

COMPARED: list[Source] = [
    TypedText(CAT, AttentionConfig(mask="causal", dropout=0.3, positions="sinusoidal")),
    TypedText(CAT, AttentionConfig(init="identity", d_model=8), "a dog ran"),
    *(source for name, source in examples_of("tutorials").items() if name in ("multi-head", "numpy")),
    Matrices(x=((1, 0), (0, 2.5)), w_q=((1, 2), (3, 4)), w_k=((1, 0), (0, 1)), w_v=((1, 0), (0, 1))),
]


@pytest.mark.parametrize("source", COMPARED, ids=lambda source: type(source).__name__)
def test_program_prints_the_chosen_cell_beside_its_expected_value(
    source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    layer = source.trace().layers[0]
    for step, tensor in layer:
        head, row, column = (tensor.shape[0] - 1 if step.per_head else 0), tensor.shape[-2] - 1, tensor.shape[-1] - 1
        program = python(source, cell=Cell(0, step.name, head, row, column))
        run(program)
        [line] = capsys.readouterr().out.splitlines()
        title, _, values = line.partition(": ")
        actual, _, expected = values.partition(" expected ")
        assert title.startswith(f"{step.name}, head {head}, " if step.per_head else f"{step.name}, ")
        assert float(expected) == float(layer.matrix(step.name, head)[row, column])
        assert float(actual) == approx(float(expected), scale=1)
        assert program.isascii()


def test_program_expects_minus_infinity_for_a_hidden_cell(capsys: pytest.CaptureFixture[str]) -> None:
    run(python(TypedText(CAT, AttentionConfig(mask="causal")), cell=Cell(0, "masked_scores", 1, 0, 4)))
    assert capsys.readouterr().out == "masked_scores, head 1, query 0, key 4: -inf expected -inf\n"


def test_notebook_prints_the_chosen_cell_in_its_first_cell(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads(ipynb(TypedText(CAT), cell=Cell(0, "weights", 0, 3, 2)))
    run("".join(notebook["cells"][1]["source"]))
    assert capsys.readouterr().out.startswith("weights, head 0, query 3, key 2: 0.")


# -- typed text -------------------------------------------------------------------------------


@pytest.mark.sample(11)
@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("init", INITS)
def test_program_of_typed_text_with_every_knob_and_second_text(init: str, mask: str) -> None:
    for scaled, positions, text2 in product((True, False), ("none", "sinusoidal"), ("", "a dog ran", CAT)):
        cells = hidden_cells(6, 3 if text2 == "a dog ran" else 6)
        config = AttentionConfig(
            d_model=12, n_heads=3, init=init, mask=mask, scaled=scaled, positions=positions, cells=cells, seed=3
        )
        assert longest(check(TypedText(CAT, config, text2))) <= 100


@pytest.mark.sample(4)
@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS)
def test_program_of_padded_lines_under_every_mask(mask: str) -> None:
    text = "a longer line, the longest\nthe cat\nThe The the"
    for sequence, pad, text2 in product(range(3), (True, False), ("", "a dog\n?\na dog ran off", "a b")):
        config = AttentionConfig(d_model=8, n_heads=2, mask=mask, prefix=2, window=1, cells=hidden_cells(6, 6))
        program = check(TypedText(text, config, text2, sequence=sequence, pad=pad, lowercase=sequence == 1))
        assert ("real =" in program) == ("real" in program.split("mask = ")[-1])  # only used variables are written


@pytest.mark.parametrize("temperature", [0, 0.05, 0.3, 1, 1.0, 2, 10.0, 1e-42, math.inf])
def test_program_of_every_temperature_with_blind_queries(temperature: float) -> None:
    for mask, scaled in product(("none", "causal", "custom"), (True, False)):
        nothing = torch.ones(6, 6, dtype=torch.bool)
        nothing[[1, 4]] = False
        knobs = {"mask": mask, "scaled": scaled, "cells": mask_tensor.encode(nothing)}
        check(TypedText(CAT, AttentionConfig(temperature=temperature, **knobs)))


def test_program_of_a_blind_query_gives_zeros() -> None:
    program = check(TypedText(f"{CAT} {CAT}", AttentionConfig(mask="window", window=1), "a b"))
    assert "sees no key" in program
    assert run(program)["weights"][:, 5].eq(0).all()
    assert "sees no key" not in check(TypedText(CAT, AttentionConfig(mask="window", window=1)))


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("init", INITS)
def test_program_with_dropout_drops_the_same_cells(init: str, dropout: float) -> None:
    check(TypedText(CAT, AttentionConfig(dropout=dropout, init=init, mask="causal", seed=7), "a dog"))


@pytest.mark.sample(7)
@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(12, 3, 5, 7), (12, 5, 2, None), (7, 1, None, 3), (1, 1, None, None), (64, 8, 1, 1)])
@pytest.mark.parametrize("init", [init for init in INITS if init != "identity"])
def test_program_of_every_head_size(init: str, sizes: tuple[int, int, int | None, int | None]) -> None:
    d_model, n_heads, d_k, d_v = sizes
    for positions, seed in product(("none", "sinusoidal"), (0, 2**32 - 1)):
        config = AttentionConfig(d_model, n_heads, d_k, d_v, init=init, positions=positions, seed=seed)
        check(TypedText(CAT, config))


@pytest.mark.slow
def test_program_of_a_long_text_and_a_large_model() -> None:
    text = " ".join(f"word{i % 300}" for i in range(600))
    program = check(TypedText(text, AttentionConfig(d_model=128, n_heads=8, init="normal", mask="prefix", prefix=9)))
    assert longest(program) <= 100
    program = check(TypedText(text, AttentionConfig(mask="custom", cells=hidden_cells(512, 512)), max_tokens=100))
    assert "packed" in program
    assert longest(program) <= 100


@pytest.mark.parametrize(
    "text", [f"a {token} b {token}{token} c" for token in NASTY] + ["\x1f\x1c a", "\u3000 世界", "a" * 500]
)
def test_program_of_a_text_of_odd_tokens(text: str) -> None:
    check(TypedText(text.replace("\n", " \n"), AttentionConfig(d_model=4, n_heads=1), lowercase=False))


KNOBS = st.fixed_dictionaries(
    {
        "d_model": st.sampled_from([1, 2, 6, 12]),
        "d_k": st.sampled_from([None, 1, 5]),
        "d_v": st.sampled_from([None, 3]),
        "mask": st.sampled_from(MASKS),
        "window": st.integers(0, 4),
        "prefix": st.integers(0, 4),
        "temperature": st.sampled_from([0, 0.05, 0.7, 1, 10, math.inf]) | st.floats(0, 100),
        "scaled": st.booleans(),
        "positions": st.sampled_from(["none", "sinusoidal"]),
        "init": st.sampled_from(INITS),
        "seed": st.integers(0, 2**32 - 1),
        "dropout": st.just(0.0) | st.floats(0.01, 0.9),
        "cells": st.builds(hidden_cells, st.integers(1, 6), st.integers(1, 6), st.integers(0, 9)),
    }
)
TEXTS = st.lists(st.sampled_from(["the", "The", "cat", "\n", *NASTY]) | st.text(max_size=4), max_size=8).map(" ".join)


@pytest.mark.long  # dozens of random programs
@pytest.mark.slow
@settings(max_examples=80)
@given(KNOBS, TEXTS, TEXTS, st.booleans(), st.booleans())
def test_program_of_any_text_with_any_knobs(
    knobs: dict[str, Any], text: str, text2: str, lowercase: bool, pad: bool
) -> None:
    if knobs["init"] == "identity":
        knobs |= {"d_k": None, "d_v": None}
    config = AttentionConfig(n_heads=1 if knobs["d_k"] is None else 3, **knobs)
    source = TypedText(f"first {text}", config, text2.replace("\n", " "), lowercase=lowercase, pad=pad)
    try:
        source.trace()
    except TextError:
        source = TypedText(f"first {text}", config, lowercase=lowercase, pad=pad)
    check(source)


# -- matrices ---------------------------------------------------------------------------------


def numbers(rows: int, columns: int, integers: bool = False) -> tuple[tuple[float, ...], ...]:
    drawn = np.random.default_rng(rows * 100 + columns).standard_normal((rows, columns)) * 3
    return tuple(map(tuple, (drawn.round() if integers else drawn).tolist()))


def projected(n: int = 4, **fields: Any) -> Matrices:
    return Matrices(numbers(n, 3), numbers(3, 2), numbers(3, 2), numbers(3, 5), **fields)


def direct(n_queries: int = 4, n_keys: int = 6, **fields: Any) -> Matrices:
    keys = {"key": numbers(n_keys, 2, integers=True), "value": numbers(n_keys, 5)}
    return Matrices(query=numbers(n_queries, 2), **keys, **fields)


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS)
def test_program_of_matrices_with_and_without_w_o_under_masks(mask: str) -> None:
    for temperature, scaled, w_o in product((1, 0, 0.05, 2.5, math.inf), (True, False), ((), numbers(5, 3))):
        config = AttentionConfig(
            mask=mask, window=1, prefix=2, temperature=temperature, scaled=scaled, cells=hidden_cells(4, 5)
        )
        for source in (projected(w_o=w_o, config=config), direct(w_o=w_o, config=config), direct(9, 2, config=config)):
            assert longest(check(source)) <= 100


def test_program_writes_typed_numbers_to_their_last_digit() -> None:
    rows = ((0.1, 16777217.0, 1e-300), (-0.0, 1e17, 9007199254740993.0), (-1.5, 1 / 3, -2.0))
    source = Matrices(query=rows[::2], key=rows[::2], value=rows)
    source = Matrices(query=((1.0,),) * 3, key=((2.0,),) * 3, value=rows)
    program = check(source)
    assert "[0.1, 16777217, 1e-300]" in program
    value = run(program)["value"][0]
    assert value.dtype == torch.float64
    assert tuple(map(tuple, value.tolist())) == rows
    assert math.copysign(1, value[1, 0]) == -1


def test_program_writes_many_numbers_row_by_row() -> None:
    source = Matrices(query=numbers(40, 16), key=numbers(40, 16), value=numbers(40, 16))
    program = check(source)
    assert longest(program) <= 100
    assert n_lines(program) < 20


@pytest.mark.parametrize("w_o", [(), numbers(40, 30)], ids=["without W_O", "with W_O"])
def test_program_reads_many_numbers_from_the_exported_file(
    w_o: tuple[tuple[float, ...], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    large = numbers(100, 30), *(numbers(30, 20),) * 2, numbers(30, 40)
    for source in (Matrices(*large, w_o), direct(300, 310, w_o=() if not w_o else numbers(5, 3))):
        layer = source.trace().layers[0]
        arrays = {step.name: tensor for step, tensor in layer}
        arrays |= {name: getattr(layer, name) for name in PARAMETERS if getattr(layer, name) is not None}
        np.savez("attention.npz", **{f"L0.{name}": tensor.numpy() for name, tensor in arrays.items()})
        program = check(source)
        assert 'np.load("attention.npz")' in program
        assert len(program) < 6000
        (tmp_path / "attention.npz").unlink()
        with pytest.raises(FileNotFoundError, match=r"attention\.npz"):
            run(program)


def test_program_switches_to_the_file_at_the_documented_size() -> None:
    rows = numbers(25, 16)
    fits = Matrices(query=numbers(50, 16), key=rows, value=rows + rows[:0], w_o=())
    assert sum(len(m) * len(m[0]) for m in (fits.query, fits.key, fits.value)) <= random_weights._MAX_INLINE_NUMBERS
    assert "np.load" not in python(fits)
    assert "np.load" in python(Matrices(query=numbers(76, 16), key=rows, value=rows))


EVIL = (
    '"+open("pwned","w").write("")+"',
    "'+open('pwned','w').write('')+'",
    '"""\nopen("pwned","w")\n"""',
    "\\\nopen('pwned','w')",
    "\ropen('pwned','w')",
    "{open('pwned','w')}",
    "\u2028open('pwned','w')",
    '\\"+open("pwned","w").write("")#',
    "\ud83d\ude00",
    "😀",
    "",
    " ",
)


def test_program_never_runs_typed_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = direct(len(EVIL), len(EVIL), tokens=EVIL, key_tokens=EVIL[::-1])
    program = check(source)
    for cell in json.loads(ipynb(source))["cells"]:
        if cell["cell_type"] == "code":
            program += "".join(cell["source"]) + "\n"
    run(program)
    assert list(tmp_path.iterdir()) == []
    calls = [
        node.func.id
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert set(calls) <= {"list", "len", "range"}


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(st.text(st.characters(), max_size=6) | st.sampled_from(EVIL), min_size=1, max_size=30))
def test_program_keeps_any_labels(values: list[str]) -> None:
    tokens = tuple(values)
    check(direct(len(tokens), len(tokens), tokens=tokens, config=AttentionConfig(mask="causal")))


def test_program_never_wraps_a_word_longer_than_a_line() -> None:
    assert literals.assign_texts("tokens", ("a" * 200, "b")) == ["tokens = [", f'    "{"a" * 200}",', '    "b",', "]"]


# -- notebooks --------------------------------------------------------------------------------


# -- sources to come --------------------------------------------------------------------------


@dataclass(frozen=True)
class Recorded:
    """A source like a real model: it has Q, K and V, a mask without a rule, and its own divisor."""

    n: int

    def trace(self) -> Trace:
        query, key, value = (torch.tensor(numbers(self.n, size))[None].float() for size in (4, 4, 3))
        visible = torch.from_numpy(np.random.default_rng(self.n).random((self.n, self.n)) < 0.7)
        recorded = {"query": query, "key": key, "value": value, "mask": visible}
        layer = Layer(recorded=recorded, formula=Formula(divisor=3.0))
        return Trace(tuple(f"t{i}" for i in range(self.n)), (layer,))

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        lines = []
        for name, size in (("query", 4), ("key", 4), ("value", 3)):
            lines += literals.assign_matrix(name, numbers(self.n, size), ".float()[None]")
        return Snippet("a recording", tuple(lines))


@dataclass(frozen=True)
class OnlyWeights:
    """A source like a file of weights: one step, without its inputs."""

    def trace(self) -> Trace:
        return Trace(("a", "b"), (Layer(recorded={"weights": torch.tensor([[[1.0, 0.0], [0.25, 0.75]]])}),))

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        return Snippet("a file", ("weights = torch.tensor([[[1, 0], [0.25, 0.75]]])",))


@pytest.mark.parametrize("n", [5, 64, 65, 90])
def test_program_continues_the_snippet_of_any_source(n: int) -> None:
    program = check(Recorded(n))
    assert "scores / 3.0" in program
    assert ("picture" in program, "packed" in program) == (n <= 64, n > 64)


def test_program_of_a_source_that_has_weights_only() -> None:
    assert n_lines(check(OnlyWeights())) == 3


# -- how it reads -----------------------------------------------------------------------------


def test_default_program_fits_a_slide() -> None:
    program = check(TypedText(CAT))
    assert n_lines(program) <= 22 + NORMAL
    assert program.count("\n") <= 36 + NORMAL + 1  # and an empty one
    assert 'tokens = "the cat sat on the mat".split()' in program
    assert program.count("if ") == 1  # of `normal`
    for absent in ("mask =", "temperature", "dropout", "key_tokens", "numpy"):
        assert absent not in program


@pytest.mark.parametrize(
    "knobs",
    [
        {"mask": "causal window"},
        {"mask": "custom", "cells": hidden_cells(6, 6)},
        {"positions": "sinusoidal"},
        {"temperature": 0.3},
        {"temperature": 0},
        {"dropout": 0.5},
        {"d_v": 5},
        {"init": "identity"},
    ],
)
def test_program_grows_by_a_few_lines_per_knob(knobs: dict[str, Any]) -> None:
    assert n_lines(check(TypedText(CAT, AttentionConfig(**knobs)))) <= 27 + NORMAL


def test_program_with_all_knobs_fits_a_page() -> None:
    config = AttentionConfig(mask="causal window", positions="sinusoidal", temperature=0.3, dropout=0.5, d_v=5)
    assert n_lines(check(TypedText(f"{CAT}\na", config, "a dog\nx", sequence=1, pad=True))) <= 45 + NORMAL


# -- in a process of its own, and as a notebook ------------------------------------------------


@pytest.mark.slow
def test_program_runs_without_our_package(tmp_path: Path) -> None:
    source = TypedText("the “cat” → \ud800 世界", AttentionConfig(mask="causal", positions="sinusoidal", dropout=0.2))
    trace = source.trace()
    names = [step.name for step, _ in trace.layers[0]]
    program = python(source, trace) + "\n".join(
        [
            "import sys",
            "assert not [name for name in sys.modules if name.startswith('attention')]",
            "import numpy",
            f"numpy.savez('made.npz', **{{name: globals()[{CALLED!r}.get(name, name)].numpy() for name in {names!r}}})",
        ]
    )
    (tmp_path / "literals.py").write_text(program, encoding="ascii")
    command = [sys.executable, "-I", "-W", "error", "literals.py"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
    computed = {
        CALLED.get(name, name): torch.from_numpy(array) for name, array in np.load(tmp_path / "made.npz").items()
    }
    layer = trace.layers[0]
    parameters = {name: getattr(layer, name) for name in PARAMETERS}
    assert_same({"tokens": trace.tokens} | parameters | computed, trace)


NOTEBOOK_FILES = [
    TypedText(CAT),
    TypedText("a <b> &", AttentionConfig(mask="prefix", temperature=0)),
    TypedText("<b> \ud800 the &amp; 😀\na", AttentionConfig(mask="padding"), "\x00 dog\na b", pad=True),
    *(source for name, source in examples_of("tutorials").items() if name in ("heatmaps-unscaled", "averaging-trick")),
    direct(tokens=("a\nb", "", "<i>", "x"), config=AttentionConfig(mask="causal")),
    Recorded(70),
]


@pytest.mark.parametrize("source", NOTEBOOK_FILES, ids=lambda source: type(source).__name__)
def test_exported_notebook_is_valid_and_runs(source: Source) -> None:
    trace, text = source.trace(), ipynb(source)
    assert text.isascii()
    book = nbformat.reads(text, as_version=4)
    nbformat.validate(book, relax_add_props=False)
    assert nbformat.writes(book).strip() == nbformat.writes(nbformat.from_dict(json.loads(text))).strip()
    assert [cell.cell_type for cell in book.cells] == ["markdown", "code", "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in book.cells[1:])
    assert "made by Attention Lab" in book.cells[0].source
    assert book.cells[1].source in python(source)

    variables = run("\n".join(cell.source for cell in book.cells[1:]))
    assert_same(variables, trace)
    assert book.cells[2].source.endswith("\nfigure")
    figure, layer = variables["figure"], trace.layers[0]
    heatmap = layer.scores if layer.weights is None else layer.weights
    np.testing.assert_array_equal(np.array(figure.data[0].z, dtype=np.float32), heatmap[0].float())
    assert figure.layout.xaxis.ticktext == labels(trace.key_tokens)
    assert figure.layout.yaxis.ticktext == labels(trace.tokens)
    assert figure.layout.xaxis.tickvals == tuple(range(len(trace.key_tokens)))
    assert figure.layout.yaxis.autorange == "reversed"
    assert figure.to_json()


def test_exported_notebook_is_reproducible_to_the_byte() -> None:
    assert ipynb(TypedText(CAT)) == ipynb(TypedText(CAT))
