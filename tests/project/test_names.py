"""Every module and every file that a docstring, a comment or a document names exists.

A name of ours is found by its form: a dotted name that begins with one of our packages, a path that begins with one of our
folders, a bare file name, or a name in backticks. CHANGELOG is history, and may name what no longer exists.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import rules
from conftest import ROOT

pytestmark = pytest.mark.quick

PACKAGES = ("attention", "pages", "tests", "benchmarks")
SUFFIXES = "py|js|css|md|toml|yaml|yml|conf|json|txt|html|png|gif|svg"
FOREIGN = {
    "abstract_attention.py": "TransformerLens",
    "transformer_block.py": "TransformerLens",
    "modeling_gpt2.py": "transformers",
    "modeling_llama.py": "transformers",
    **dict.fromkeys(("run_with_cache", "hook_q", "hook_k", "hook_rot_q", "hook_rot_k"), "TransformerLens"),
    "calculate_sink_rate": "the paper of attention sinks",
    "config.json": "a model's folder",
    "plotly.js": "Plotly",
    "axe.min.js": "axe",
    "components.html": "Streamlit",
    "sbom.json": "made by make audit",
    "site/": "made by make demo",
    "index.html": "made by make demo",
    "environment.yml": "conda",
    "NNNN-short-title.md": "a decision record that is yet to be written",
    "docs/decisions/NNNN-short-title.md": "a decision record that is yet to be written",
    "data.streamlit.io/metrics.json": "Streamlit",
    "config.set_option": "Streamlit",
    "models/": "made by make models",
    "sweep.alignment": "a variable, of a HeadSweep",
    "layout.meta": "a figure of Plotly",
    "layout.uirevision": "a figure of Plotly",
    "layer.weights": "a variable, of a Layer",
    "attention_steps.py": "an export",
    "maps.png": "an export",
    "plan.json": "made by attention.corpus",
    "state.json": "datasets",
    "corpus.json": "made by attention.corpus",
    "heads/": "made by attention.corpus",
    "python.txt": "made by the example of docs/corpus.md",
    "photo.png": "a picture of a user",
    "heads.parquet": "made by attention.corpus",
    "results/": "made by an operator",
    "scaled_dot_product_attention": "torch",
    "xdist_group": "pytest-xdist",
    "bytes_to_unicode": "transformers",
    "add_shape": "Plotly",
    "Layer.index": "an idea that was refused",
    "ast": "Python",
    "W_q": "a line that users paste",
    "animal": "a token",
    "layer_5": "a function of the copied program",
}
"""Files and names that are not ours, or not in the repository, and their owners."""

_DOTTED = re.compile(rf"(?<![\w./-])(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+(?![\w/])")
_PATH = re.compile(rf"(?<![\w/@:.-])(?:\.{{0,2}}[\w-][\w.-]*/|\.{{1,2}}/)*[\w-][\w.-]*\.(?:{SUFFIXES})\b(?![(\w])")
_SHORT = re.compile(r"(?<=`)[a-zA-Z_]\w*\.[a-zA-Z_]\w*(?=(?:\([^`]*\))?`)")  # `module.name`, `Class.name`
_BARE = re.compile(r"(?<=(?<!`)`)[a-zA-Z_]\w*(?=(?:\([^`]*\))?`(?!`))")  # `name`
_MODULE = re.compile(
    r"(?<![\w./`-])[a-z_]\w*\.[a-z_]\w*(?![\w(/.])"
)  # module.name in a script, whose comments have few backticks
_DEFINED = re.compile(
    r"\b(?:def|class|function|const|let|get|set) +(\w+)|\b(?:self|this)\.(\w+)|^ {0,4}([\w, ]+?) *(?::[^=\n]+)?(?:=|:$|: )|^ +(\w+)\(",
    re.MULTILINE,
)
_FOLDER = re.compile(r"(?<=`)(?:[\w.-]+/)+(?=`)")
_DATA = re.compile(r"\.(?:npz|npy|ipynb|safetensors|svg|pdf|csv)$")  # attention.npz is a file that somebody saves


@cache
def files() -> tuple[Path, ...]:
    """All files of the repository, also those that are not committed yet."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return tuple(Path(line) for line in run.stdout.splitlines() if (ROOT / line).is_file())


@cache
def paths() -> frozenset[str]:
    """Every path from the root, with all its suffixes."""
    return frozenset("/".join(file.parts[at:]) for file in files() for at in range(len(file.parts)))


def readers() -> Iterator[Path]:
    for file in files():
        generated = "vendor" in file.parts or file.parts[0] == "lock"
        if (
            not generated
            and file.name not in ("CHANGELOG.md", "LICENSE")
            and file.suffix not in (".png", ".gif", ".webp", ".json", ".bin", ".npz", ".parquet", ".safetensors")
        ):
            yield file


def prose(file: Path, text: str) -> Iterator[tuple[int, str]]:
    """The prose of a file, with lines: docstrings and comments of code; all of a document."""
    if file.suffix == ".py":
        # Tokenizing is slow: only where something after a # looks like a name.
        comments = any(names_in(line.partition("#")[2]) for line in text.splitlines() if "#" in line)
        for token in tokenize.generate_tokens(io.StringIO(text).readline) if comments else ():
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
        statements = ast.parse(text).body
        for node in statements:  # grows by nested statements: expressions contain no docstring
            for part in ("body", "orelse", "handlers", "finalbody", "cases"):
                statements += getattr(node, part, [])
            match node:
                case ast.Expr(value=ast.Constant(value=str(docstring))):
                    yield node.lineno, docstring
    elif file.suffix in (".js", ".css"):
        for match in re.finditer(r"/\*.*?\*/|(?<![:'\"`])//[^\n]*", text, re.DOTALL):
            yield text.count("\n", 0, match.start()) + 1, match[0]
    elif file.suffix == ".md":
        yield 1, text
    else:
        for match in re.finditer(r"(?:^|\s)(?P<comment>#.*)", text):
            yield text.count("\n", 0, match.start("comment")) + 1, match["comment"]


def names_in(prose: str, suffix: str = ".py") -> dict[int, str]:
    """Everything with the form of one of our names, by its position. Documents also have names of others in backticks."""
    patterns = [_FOLDER, _SHORT, _DOTTED, _PATH]
    patterns += [_BARE] * (suffix in (".py", ".js", ".css")) + [_MODULE] * (suffix == ".js")
    return {match.start(): match[0] for pattern in patterns for match in pattern.finditer(prose)}


def missing(file: Path, text: str) -> list[str]:
    """The unknown names in a piece of prose, each with its position."""
    faults = []
    for line, passage in prose(file, text):
        for at, name in names_in(passage, file.suffix).items():
            if name not in FOREIGN and not _DATA.search(name) and not known(name, file, text):
                faults.append(f"{file}:{line + passage.count(chr(10), 0, at)}: {name}")
    return faults


def known(name: str, file: Path, text: str) -> bool:
    """Whether one of our names exists; names that cannot be ours count as known. A bare name may also be local to its file."""
    if name.endswith("/"):
        return any(f"{name}" in f"{file.as_posix()}" for file in files())
    if re.search(rf"\.(?:{SUFFIXES})$", name):
        return file_exists(name, file)
    if name.split(".", maxsplit=1)[0] in PACKAGES:
        return defined(name)
    if "." not in name:
        return (
            name in definitions()[""] or name in PACKAGES or name in re.findall(r"\w+", re.sub(r"`[^`\n]*`", "", text))
        )
    stem, attribute = name.split(".")
    if stem[0].isupper():
        return stem not in definitions() or attribute in definitions()[stem]
    return stem not in modules() or any(attribute in text for text in modules()[stem])


@cache
def definitions() -> dict[str, set[str]]:
    """The names that the modules with a class of this name define; under "" those of Python and of all our modules."""
    names: dict[str, set[str]] = {"": set(dir(builtins))}
    for file in files():
        if file.suffix in (".py", ".js") and "vendor" not in file.parts and file.parts[0] != "tests":
            text = (ROOT / file).read_text(encoding="utf-8")
            defined = set(re.findall(r"\w+", " ".join(map(" ".join, _DEFINED.findall(text)))))
            for name in ("", *re.findall(r"^(?:export )?class (\w+)", text, re.MULTILINE)):
                names.setdefault(name, set()).update(defined, file.with_suffix("").parts)
    return names


@cache
def modules() -> dict[str, list[frozenset[str]]]:
    """All names in every module, Python or JavaScript, by its stem; a package has the names of its modules too."""
    names: dict[str, list[frozenset[str]]] = {}
    for file in files():
        if file.suffix in (".py", ".js") and "vendor" not in file.parts and file.parts[0] != "tests":
            words = frozenset(re.findall(r"\w+", (ROOT / file).read_text(encoding="utf-8"))) | {file.stem}
            for stem in {file.stem, file.parent.name}:
                names.setdefault(stem, []).append(words)
    return names


def file_exists(name: str, file: Path) -> bool:
    """Whether a path leads from the naming file, from the root, or from any folder, to a file."""
    return (ROOT / file.parent / name).is_file() or name.removeprefix("./") in paths()


def defined(name: str) -> bool:
    """Whether a dotted name is a module, a folder of modules, or what a module or a class of it defines."""
    parts = name.split(".")
    for at in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:at])
        module = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if module.is_file():
            return _has(ast.parse(module.read_text(encoding="utf-8")), parts[at:])
        if place.is_dir():
            return at == len(parts)
    return False


def _has(scope: ast.AST, names: list[str]) -> bool:
    """Whether a module or a class defines the first of the names, and that the next, and so on."""
    if not names:
        return True
    for node in ast.walk(scope):
        match node:
            case ast.ClassDef() if node.name == names[0]:
                return _has(node, names[1:])
            case ast.FunctionDef() if node.name == names[0]:
                return len(names) == 1
            case ast.Name(ctx=ast.Store()) if node.id == names[0]:
                return True
            case ast.alias() if (node.asname or node.name) == names[0]:
                return True
    return False


@pytest.mark.slow
@pytest.mark.whole  # documents speak of every feature
def test_every_module_and_file_named_in_prose_exists() -> None:
    faults = [fault for file in readers() for fault in missing(file, (ROOT / file).read_text(encoding="utf-8"))]
    assert not faults, "\n".join(["these do not exist:", *faults])


@pytest.mark.parametrize(
    ("file", "text", "names"),
    [
        ("attention/x.py", '"""As `attention.gone` has it."""', ["attention.gone"]),
        ("attention/x.py", '"""As `attention.formula.mask.Mask.build` has it."""', []),
        ("attention/x.py", "# attention.formula.mask.Mask.gone", ["attention.formula.mask.Mask.gone"]),
        ("attention/x.py", "x = 'attention.gone'", []),  # code is mypy's to check
        ("attention/x.py", "# `cache.lost(x)`, `cache.memoize(x)` and `self.gone`", ["cache.lost"]),
        ("attention/x.py", '"""As `_lost(x)`, `memoize(x)` and `local` do, and `AttentionConfig.share`."""\nlocal = 1', ["AttentionConfig.share", "_lost"]),
        ("pages/ui/x.js", "// as attend.dot_scores, scores.times, `_lost` and layer.weights do", ["_lost", "attend.dot_scores"]),
        ("attention/x.py", "# in `attention/gone/` and `metrics/`", ["attention/gone/"]),
        ("attention/x.py", "# gone.py, test_names.py and modeling_gpt2.py", ["gone.py"]),
        ("attention/x.py", "# torch.nn.functional and attention.npz", []),
        ("pages/ui/x.js", "/* see ./gone.js */ a = 1; // not_there.css", ["./gone.js", "not_there.css"]),
        ("deploy/README.md", "[a](../Dockerfile), ../compose.yaml, ../gone.yaml", ["../gone.yaml"]),
        ("Makefile", "run: # attention/gone.py, .ci/get_torch.py", ["attention/gone.py"]),
        (".streamlit/config.toml", "# pages/ui/styles.css", ["pages/ui/styles.css"]),
    ],
)  # fmt: skip
def test_unknown_name_in_prose_is_found(file: str, text: str, names: list[str]) -> None:
    assert [fault.partition(": ")[2] for fault in missing(Path(file), text)] == names


def documented(docstring: str, section: str) -> list[str]:
    """The names that a section of a docstring lists, such as "Args"."""
    lines = re.search(rf"^{section}:\n((?:    .*\n?|\n)+)", docstring, re.MULTILINE)
    heads = re.findall(r"^    ([a-z_*][\w, *]*?):(?= |$)", lines[1], re.MULTILINE) if lines else []
    return [name.strip(" *") for head in heads for name in head.split(",")]


def attributes(node: ast.ClassDef) -> set[str]:
    """The names that a class defines, in its body and on `self`."""
    names = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
    return names


def undocumentable(text: str) -> list[str]:
    """The attributes and arguments that a docstring lists, and that its class or function does not have."""
    faults = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ClassDef():
                section, known = "Attributes", attributes(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                section, known = "Args", {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
            case _:
                continue
        faults += [
            f"{node.name}: {name}" for name in documented(ast.get_docstring(node) or "", section) if name not in known
        ]
    return faults


def test_docstrings_list_only_attributes_and_arguments_that_exist() -> None:
    faults = [
        f"{module.path}: {fault}" for module in rules.BACKEND + rules.PAGES for fault in undocumentable(module.text)
    ]
    assert not faults, "\n".join(["these do not exist:", *faults])


def test_unknown_attribute_or_argument_in_a_docstring_is_found() -> None:
    text = '''
class A:
    """A.

    Attributes:
        x, y: numbers.
        z: more.
    """

    x: int

    def f(self, *args: int, b: int = 0) -> None:
        """F.

        Args:
            *args: numbers.
            c: a name: with a colon.
        """
        self.z = b
'''
    assert undocumentable(text) == ["A: y", "f: c"]
