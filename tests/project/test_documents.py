"""Documents are correct: links and pictures resolve, links into the Lab are valid, examples run."""

import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from conftest import ROOT
from markdown_it import MarkdownIt

from attention.sources.registry import source_kinds
from pages.ui.address import menu, names
from pages.ui.state.knob_table import KNOBS

pytestmark = [pytest.mark.quick, pytest.mark.whole]  # documents speak of every feature

PAGES = sorted(ROOT.glob("docs/*.md"))
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *PAGES,
    *sorted(ROOT.glob("docs/decisions/*.md")),
    ROOT / "deploy" / "README.md",
    ROOT / "benchmarks" / "README.md",
]
PAGE_KEYS = {"lock", "present", "embed", "ask", "uploaded", "lesson", "heads_layers", "heads_drawn"}
"""Link keys that are not knobs, or those of one page."""


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def targets(path: Path) -> tuple[str, ...]:
    """The targets of all links and pictures of a document."""
    addresses = []
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text_of(path)):
        for child in (token, *(token.children or ())):
            addresses += [str(child.attrs[name]) for name in ("href", "src") if name in child.attrs]
            if child.type in ("html_inline", "html_block"):
                addresses += re.findall(r'(?:href|src)="([^"]+)"', child.content)
    return tuple(addresses)


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text_of(path), flags=re.DOTALL), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(path), re.DOTALL | re.MULTILINE)


def test_links_and_pictures_of_documents_resolve() -> None:
    broken = []
    for path in DOCUMENTS:
        for target in targets(path):
            place, _, anchor = target.partition("#")
            if not re.match(r"\w+:", target):
                file = (path.parent / place).resolve() if place else path
                if not file.exists() or (anchor and anchor not in anchors(file)):
                    broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []


def test_links_into_the_lab_name_existing_pages_and_knobs() -> None:
    links = {target for path in DOCUMENTS for target in targets(path) if target.startswith("http://localhost:8501/")}
    assert len(links) >= 5
    for parts in map(urlsplit, links):
        assert parts.path.removeprefix("/") in names().values()
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        assert set(query) <= set(KNOBS) | PAGE_KEYS | {f"train_{name}" for name in ("task", "at")}
        assert query.get("source", "model") in source_kinds()


def test_every_picture_is_used_by_a_document() -> None:
    used = {Path(target).name for path in DOCUMENTS for target in targets(path)}
    assert {path.name for path in (ROOT / "docs").iterdir() if path.suffix in (".png", ".gif", ".webp")} <= used


def test_readme_links_to_every_document() -> None:
    linked = set(targets(ROOT / "README.md"))
    assert [path.name for path in PAGES if f"docs/{path.name}" not in linked] == []


def test_documents_name_every_menu_page_in_order() -> None:
    rows = re.findall(r"^\| \*\*(\w+)\*\* \|", text_of(ROOT / "README.md"), re.MULTILINE)
    sections = re.findall(r"^## (\w+)\n\n\*.+\* ?\(`(.+)`\)$", text_of(ROOT / "docs" / "pages.md"), re.MULTILINE)
    gone = {title for title, path in sections if not (ROOT / path).exists()}  # where a feature was taken away
    assert [title for title in rows if title not in gone] == list(names())
    assert [(title, path) for title, path in sections if title not in gone] == [
        (title, path) for path, title in menu().items()
    ]


EXAMPLES = [
    pytest.param(block, id=f"{path.stem}-{number}")
    for path in (ROOT / "README.md", ROOT / "docs" / "library.md")
    for number, block in enumerate(blocks(path, "python"), 1)
]


def test_library_document_has_examples_to_run() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("code", EXAMPLES)
def test_python_examples_of_documents_run(code: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder in re.findall(r'"(models/[^"]+)"', code):
        if not (ROOT / folder).is_dir():
            pytest.skip(f"{folder} is missing: run make models ALL=1")
    (tmp_path / "models").symlink_to(ROOT / "models")
    monkeypatch.chdir(tmp_path)  # an example may write a file
    exec(code, {})


@pytest.mark.slow
def test_ablation_example_gives_the_numbers_of_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = [block for block in blocks(ROOT / "docs" / "library.md", "python") if "ablate=" in block]
    if not (ROOT / "models" / "SmolLM2-135M-Instruct").is_dir():
        pytest.skip("models/SmolLM2-135M-Instruct is missing: run make models ALL=1")
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    chances = []
    for heads in ("()", "heads"):
        exec(code.replace("interventions=heads", f"interventions={heads}"), names)
        prediction = names["trace"].predictions[-1]
        chances.append(dict(zip(prediction.tokens, prediction.probabilities, strict=True))["·copper"])
    assert "falls from {:.3f} to {:.3f}".format(*chances) in text_of(ROOT / "README.md")
