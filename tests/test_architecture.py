import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from attention import STEPS

ROOT = Path(__file__).parents[1]
BACKEND = sorted((ROOT / "attention").rglob("*.py"))
PAGES = [ROOT / "app.py", *sorted((ROOT / "pages").rglob("*.py"))]

NAMES = {step.name for step in STEPS}

# Texts that are a step's name by accident.
OTHER_WORDS = {
    "attention/formula/knobs.py": {"key"},  # of a knob
    "attention/formula/patching/take.py": {"weights"},  # a word of a sentence
    "attention/formula/shares/share.py": {"key"},  # a word of a sentence
    "attention/lessons/asking.py": {"key"},  # a kind of question
    "attention/lessons/drafts.py": {"key"},
    "attention/lessons/kinds.py": {"key"},
    "attention/lessons/small_maps.py": {"key", "query"},  # titles of axes
    "attention/models/parameters.py": {"query", "key", "value", "output"},  # attributes in transformers
    "attention/numbers/predictions.py": {"position"},  # a column
    "attention/pictures/controls.py": {"value"},  # keys of a message
    "attention/pictures/heatmap.py": {"key", "query"},  # titles of axes
    "attention/pictures/line.py": {"value"},
    "attention/pictures/message.py": {"key"},
    # Its functions are copied into programs that stand alone.
    "attention/training/learning.py": {"weights"},
    "attention/training/network.py": {"input", "query", "key", "value", "weights", "head_output", "memory", "position"},
    "pages/ui/knobs/acts.py": {"key"},  # of a message
    "pages/ui/knobs/widgets.py": {"key", "value"},  # arguments of Streamlit
    "pages/ui/server/memory.py": {"memory"},  # a controller of cgroups
}

# A room of attention/ may import from the floors below its own; rooms on one floor do not know each other.
FLOORS = (
    {"errors", "tokens", "printed", "progress"},
    {"formula"},  # what attention is
    {"numbers", "models", "training"},  # what one reads off a trace, real models, and tiny ones that learn
    {"sources", "pictures"},  # where a trace comes from, and what one sees of it
    {"lessons"},  # what single pages teach
    {"export"},  # what one takes along
    {"__init__"},
)


@cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path):
    """Every node of a file by its kind."""
    found = defaultdict(list)
    for node in ast.walk(parsed(path)):
        found[type(node)].append(node)
    return found


@cache
def imports(path):
    """The dotted names a file imports, wherever in it they stand; `from a import b` gives a and a.b."""
    names = {name.name for node in nodes(path)[ast.Import] for name in node.names}
    for node in nodes(path)[ast.ImportFrom]:
        assert not node.level, f"{path}: imports are absolute"
        names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return names


@cache
def tops(path):
    return {name.split(".")[0] for name in imports(path)}


def part(path):
    """The room of attention/ that a file belongs to, such as "formula"; a module outside of all is its own."""
    return path.relative_to(ROOT / "attention").with_suffix("").parts[0]


ROOMS = {part(file) for file in BACKEND}


def own_imports(path):
    pieces = (name.split(".") for name in imports(path))
    return {piece[1] for piece in pieces if piece[0] == "attention" and len(piece) > 1 and piece[1] in ROOMS}


def floor(name):
    found = [i for i, rooms in enumerate(FLOORS) if name in rooms]
    assert found, f"attention/{name} is new: say in FLOORS where it stands"
    return found[0]


def titles(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", BACKEND, ids=titles)
def test_the_backend_never_imports_streamlit_or_a_page(path):
    assert tops(path).isdisjoint({"streamlit", "pages", "app"})


@pytest.mark.parametrize("path", BACKEND, ids=titles)
def test_the_backend_imports_downwards_only(path):
    here = part(path)
    assert all(floor(room) < floor(here) for room in own_imports(path) - {here})


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def edges(sources):
    """Which modules each module imports, by their dotted names: at its top, inside functions and for types alone."""
    found = {}
    for name, names in sources.items():
        # A module inside a package imports the package with its neighbours, and nothing of it.
        found[name] = {one for one in names if one in sources and one != name and not name.startswith(f"{one}.")}
    return found


def circles(graph):
    """The modules that import each other, in one group for each circle."""
    graph = {name: needed & set(graph) for name, needed in graph.items()}

    def reached(name):
        seen, todo = set(), [name]
        while todo:
            new = graph[todo.pop()] - seen
            seen |= new
            todo += new
        return seen

    reach = {name: reached(name) for name in graph}
    return {
        frozenset(other for other in graph if other in reach[name] and name in reach[other])
        for name in graph
        if name in reach[name]
    }


def test_no_modules_import_each_other_in_a_circle():
    """An import inside a function or for types alone is one too: the two modules cannot be understood one after the other."""
    graph = edges({name_of(path): imports(path) for path in (*BACKEND, *PAGES)})
    assert sum(map(len, graph.values())) > len(graph), "the edges are there"
    assert not circles(graph)


def test_a_circle_is_found_between_names_that_begin_alike():
    sources = {
        "a": {"a.x"},
        "a.mask": {"a", "a.masks"},
        "a.masks": {"a.mask"},
        "a.x": {"a.mask"},
        "b": {"c"},
        "c": {"d"},
        "d": {"b", "a"},
    }
    assert circles(edges(sources)) == {frozenset({"a.mask", "a.masks"}), frozenset("bcd")}


@pytest.mark.parametrize("path", PAGES, ids=titles)
def test_a_page_does_no_maths(path):
    assert tops(path).isdisjoint({"torch", "numpy", "scipy", "math", "cmath", "statistics"})
    assert not [
        name for name in imports(path) if re.match(r"attention\.formula\.(attend|functions|making|masks|seeds)\b", name)
    ]
    calls = {node.func.attr for node in nodes(path)[ast.Call] if isinstance(node.func, ast.Attribute)}
    assert calls.isdisjoint(
        {
            "softmax",
            "exp",
            "log",
            "sqrt",
            "matmul",
            "einsum",
            "mean",
            "std",
            "var",
            "argmax",
            "masked_fill",
            "transpose",
        }
    )
    assert not nodes(path)[ast.MatMult]


@pytest.mark.parametrize("path", [path for path in PAGES if path.parent.name == "ui" or "ui" in path.parts], ids=titles)
def test_what_pages_share_knows_no_page(path):
    pages = {f"pages.{page.stem}" for page in PAGES if page.parent == ROOT / "pages" and page.stem != "__init__"}
    assert pages.isdisjoint(imports(path))
    assert "app" not in tops(path)


@cache
def step_strings(path):
    """The texts in a file that are a step's name; not those that say what others call a step."""
    calls = [node for node in nodes(path)[ast.Call] if isinstance(node.func, ast.Name)]
    elsewhere = {
        id(keyword.value)
        for call in calls
        if call.func.id in ("called", "_parameter") and "steps" in path.parts
        for keyword in call.keywords
    }
    return {node.value for node in nodes(path)[ast.Constant] if id(node) not in elsewhere and node.value in NAMES}


def test_no_step_name_is_a_text_outside_names():
    """`attention.formula.names` has each once; whoever reads a step by its name imports it from there."""
    found = {titles(path): step_strings(path) for path in (*BACKEND, *PAGES)}
    assert found.pop("attention/formula/names.py") == NAMES
    assert {path: texts for path, texts in found.items() if texts} == OTHER_WORDS


def test_lists_of_steps_are_read_off_steps():
    """Half of the names in one literal is a second list."""
    constants = {name.upper() for name in NAMES}
    for path in (*BACKEND, *PAGES):
        for node in (one for kind in (ast.List, ast.Tuple, ast.Set, ast.Dict) for one in nodes(path)[kind]):
            elements = [*node.keys, *node.values] if isinstance(node, ast.Dict) else node.elts
            named = {element.id for element in elements if isinstance(element, ast.Name)} & constants
            own = titles(path) == "attention/formula/steps/__init__.py"
            assert own or len(named) <= len(STEPS) // 2, (
                f"{path.name}:{node.lineno} is a second list of steps: read STEPS"
            )


def test_steps_is_assigned_once():
    def targets(path):
        assigned = [target for node in nodes(path)[ast.Assign] for target in node.targets]
        for target in (*assigned, *(node.target for node in nodes(path)[ast.AnnAssign])):
            if isinstance(target, ast.Name) and target.id == "STEPS":
                yield path.name

    assert [name for path in (*BACKEND, *PAGES) for name in targets(path)] == ["__init__.py"]


@pytest.mark.parametrize("path", BACKEND, ids=titles)
def test_the_global_generator_and_hash_are_never_used(path):
    calls = nodes(path)[ast.Call]
    assert not [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "hash"]
    assert "random" not in tops(path)
    drawn = [node for node in calls if isinstance(node.func, ast.Attribute) and node.func.attr in ("rand", "randn")]
    assert all("generator" in {keyword.arg for keyword in node.keywords} for node in drawn)


def test_importing_attention_imports_neither_torch_nor_streamlit():
    code = "import sys, attention; print([name for name in ('torch', 'streamlit') if name in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600, check=True
    )
    assert run.stdout.strip() == "[]"


def test_the_first_picture_waits_for_no_pandas_and_no_transformers():
    code = """
import sys
from streamlit.testing.v1 import AppTest
sys.modules["pandas"] = None  # importing it fails
app = AppTest.from_file(sys.argv[1], default_timeout=600).run()
assert not {"transformers", "huggingface_hub", "tokenizers"} & set(sys.modules)
from huggingface_hub import constants
assert constants.HF_HUB_OFFLINE and constants.HF_HUB_DISABLE_TELEMETRY  # nobody is called, unless an operator says so
print([element.proto.component_name for element in app.get("bidi_component")][-1], len(app.dataframe))
"""
    command = [sys.executable, "-c", code, str(ROOT / "app.py")]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    # Where rich is installed, Streamlit prints what failed after the picture above it.
    assert run.stdout.splitlines()[-1].split() == ["attention_figure", "0"]


def test_every_public_name_is_there():
    import attention

    assert all(hasattr(attention, name) for name in attention.__all__)
    assert attention.__all__ == sorted(
        attention.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )
