"""Hostile inputs: texts, addresses and files sent in bad faith or by mistake.

Every list of literal pieces is a trick that has worked somewhere; hypothesis combines them, and the same
ones every time. Whatever would be executed sets `window.pwned`, whatever would be fetched is at `attacker.invalid`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, quote_plus

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from benchmarks.hostile_files import files, in_link, lessons, saved, states, stems
from pages.ui.address import names
from pages.ui.state.knob_table import DEFAULTS

MARKUP = (
    "<script>window.pwned=1</script>",
    '"><script src=//attacker.invalid/x.js></script>',
    "<img src=x onerror=window.pwned=1>",
    "<img src='http://attacker.invalid/p.png'>",
    "<svg/onload=window.pwned=1>",
    "<svg><a xlink:href='javascript:window.pwned=1'>x</a></svg>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "<a href='javascript:window.pwned=1'>x</a>",
    "<a href=\"http://attacker.invalid\">x</a>",
    "<details open ontoggle=window.pwned=1>x</details>",
    "<style>@import '//attacker.invalid/x.css'; body{background:url(//attacker.invalid/b.png)}</style>",
    "<link rel=stylesheet href=//attacker.invalid/x.css><meta http-equiv=refresh content='0;url=//attacker.invalid'>",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.pwned=1>",
    "</div></body></html><b>x",
    "<!-- x --> <![CDATA[ x ]]> &lt;script&gt; &#60;img src=x onerror=window.pwned=1&#62;",
    "[x](javascript:window.pwned=1) [y](http://attacker.invalid/y) <javascript:window.pwned=1>",
    "![x](http://attacker.invalid/p.png) ![y][z]\n\n[z]: http://attacker.invalid/z.png",
    "http://attacker.invalid/ www.attacker.invalid mail@attacker.invalid",
    "$\\href{javascript:window.pwned=1}{x}$ $$\\url{javascript:window.pwned=1}$$ \\includegraphics{//attacker.invalid/p}",
    "$\\def\\a{\\a\\a}\\a$ $\\htmlData{x=y}{z}$ \\begin{aligned} \\\\ & { } } $$",
    ":material/home: :red[x] :streamlit: <span style='color:red' onclick=window.pwned=1>x</span>",
    "%{x} %{customdata[0]} %{z:.9999f} %{meta.alt} <extra>x</extra> {{7*7}} ${window.pwned=1}",
    "javascript:window.pwned=1",
    "data:text/html,<script>window.pwned=1</script>",
    "| a | b |\n|---|---|\n| <b>x</b> | `y` |\n# h\n> q\n- l\n```\nc\n```",
)  # fmt: skip
ODD = (
    "\0", "\r\n\r\n", "\u202e evil \u202c", "\u2066\u2067\u2069", "\ufeff", "\u200b\u200d\u2060", "\ufffe\uffff", "\U0010ffff",
    "\ue000", "Z\u0335\u0341\u0310" + "\u0315\u0313\u0344" * 60, "👨‍👩‍👧‍👦🇩🇪👍🏽", "﷽" * 20, "\x1b[31m", "\x7f\x80\x9f", "ﬁ ǅ ß İ ı",
    "'; DROP TABLE x; --", "../../../../etc/passwd", "__class__.__init__.__globals__", "=cmd|' /C calc'!A0", "a" * 5000, "a " * 2500,
    "\n" * 300, "(" * 2000, "\\" * 500, "é" * 1000, "-'" * 500, "1." * 1500,
)  # fmt: skip
NUMBERS = (
    "", "-1", "0", "1", "2", "3.5", "-0", "1e9", "1e309", "-1e400", "inf", "-Infinity", "nan", "NaN", "9" * 400, "0." + "0" * 400 + "1",
    "0x10", "１", "٣", "1_000", "+1", "--1", "1,5", " 1 ", "1e-320", "true", "null", "[]", '{"a":1}', "4294967295", "4294967296",
    "18446744073709551616", "9007199254740993",
)  # fmt: skip
CHOICES = (
    "typed text", "notebook", "matrices", "Q, K and V", "X and weights", "causal", "causal window", "prefix", "padding", "custom",
    "identity", "uniform", "sinusoidal", "query", "masked_scores", "output", "transformer-decoder", "1024", "32", "512", "0.05", "10",
)  # fmt: skip
MATRIX = (
    "1,0;0,1", "1,2;3", ";;;", "1;" * 2000, "1e308,1e308;1e308,1e308", "nan", "[[1,2],[3,4]]", "[" * 400, "tensor(" * 300, "np.array([[1]])",
    "__import__('os').system('touch pwned')", "1 " * 3000, "inf,inf", "1e-400", ",,,,", "1\t2\n3\t4", "x=" * 500, "(1,) " * 300,
    "[[[1,2]],[[3,4]]]", "0,1\n0.5,0.25", "0,12\n0,5", "a = [[1]]\nb = [[2]]\n" * 40, "| a |\n|---|\n| 1 |", "\\begin{bmatrix} 1 & \\frac{1}{0} \\end{bmatrix}",
)  # fmt: skip
RAW = (
    "%",
    "%zz",
    "%ED%A0%80",
    "%00",
    "%FF%FE",
    "&&&===",
    "?",
    "#",
    ";",
    "a=b=c",
    "%u202e",
    "=x",
    "[]=1",
    "text[]=x",
    "__proto__=x",
)
PAGES = tuple(names().values())
WITH_MAPS = ("", "heads")  # of typed text, with its knobs around them
OF_PAGES = (
    "explore_mask",
    "heads_inside",
    "chapter",
    "softmax_row",
    "softmax_factor",
    "reference_find",
    "embed",
    "embed_options",
    "lock",
)
KEYS = (*DEFAULTS, *OF_PAGES)
STATE_FILE = "Open a state file"  # the label of its uploader in the sidebar
LESSONS = "Open a state file (.json) or lessons"  # since it takes these too
FIELDS = ("x", "w_q", "w_k", "w_v", "w_o")
FIGURES = (
    "temperature",
    "mask",
    "window",
    "prefix",
    "scaled",
    "d_model",
    "seed",
    "head",
    "step",
    "colors",
    "show",
    "typed",
)  # its knobs
# Everything at its largest: allowed, so it must be drawn or refused in words, and must not fill the memory.
GREEDY = tuple(
    f"text={quote_plus(' '.join(f'w{i}' for i in range(start, start + 600)))}&d_model=1024&heads=32&dropout=0.5&mask=causal&seed={seed}"
    for start, seed in ((0, 1), (600, 2))
)


@dataclass(frozen=True)
class Hostile:
    """One input: a page opened with a query, then controls set to any value, then files for uploaders named by key or label."""

    kind: str
    page: str = ""
    query: str = ""
    turn: tuple[tuple[str, Any], ...] = ()
    files: tuple[tuple[str, str, bytes], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        files = [f"{key} {name!r} {len(data):,} bytes, from {data[:80]!r}" for key, name, data in self.files]
        return f"{self.kind}: /{self.page}?{self.query} {self.turn or ''} {' '.join(files)}"


_pieces = st.one_of(st.sampled_from(MARKUP), st.sampled_from(ODD), st.text(max_size=40))
texts = st.one_of(
    st.sampled_from(MARKUP),
    st.lists(_pieces, min_size=1, max_size=5).flatmap(
        lambda parts: st.sampled_from(" \n").map(lambda by: by.join(parts))
    ),
    st.text(min_size=1, max_size=300),
    _pieces.map(lambda piece: (piece + " ") * (20_000 // (len(piece) + 1))),
)
_values = st.one_of(
    st.sampled_from(NUMBERS), st.sampled_from(CHOICES), st.sampled_from(MATRIX), texts, st.floats().map(str), st.integers().map(str)
)  # fmt: skip
_pairs = st.tuples(st.one_of(st.sampled_from(KEYS), st.sampled_from(KEYS), st.text(max_size=8)), _values)
_query = st.lists(_pairs, min_size=1, max_size=8).map(
    lambda pairs: "&".join(f"{quote(key, errors='replace')}={quote(value, errors='replace')}" for key, value in pairs)
)
_sent = st.one_of(  # not sent by our pages, but possible for anyone
    st.booleans(), st.none(), st.integers(), st.floats(), st.sampled_from((10**308, 10**4000, -1, 2**64, 0.5)), _values,
    st.lists(st.integers(), max_size=3).map(tuple),
)  # fmt: skip
_source = st.sampled_from(("", "source=matrices&", "source=notebook&", "source=matrices&matrix_kind=Q%2C+K+and+V&"))
_urls = st.one_of(
    st.tuples(_source, _query).map("".join),
    st.tuples(_query, st.sampled_from(RAW)).map("&".join),
)
_inputs = {
    "url": st.builds(Hostile, st.just("url"), st.sampled_from(PAGES), _urls),
    "text": st.builds(
        Hostile, st.just("text"), st.sampled_from(WITH_MAPS), st.just("source=typed+text"),
        st.tuples(st.tuples(st.sampled_from(("text", "text", "text2")), texts)),
    ),
    "knob": st.builds(
        Hostile, st.just("knob"), st.sampled_from(WITH_MAPS), st.just("source=typed+text"),
        st.tuples(st.tuples(st.sampled_from(FIGURES), _sent)),
    ),
    "upload": st.builds(
        lambda key, named: Hostile("upload", "", "source=matrices", (), ((f"matrices_file_{key}", *named),)),
        st.sampled_from(FIELDS), files,
    ),
    "file": st.builds(
        lambda page, named: Hostile("file", page, "source=file", (), (("file_upload", *named),)), st.sampled_from(WITH_MAPS), saved
    ),
    "state": st.builds(
        lambda page, stem, content: Hostile("state", page, "", (), ((STATE_FILE, f"{stem}.json", content),)),
        st.sampled_from(PAGES), stems, states(KEYS, _values),
    ),
    "lesson": st.builds(
        lambda stem, content: Hostile("lesson", "learn", "", (), ((STATE_FILE, f"{stem}.md", content.encode(errors="replace")),)),
        stems, lessons(_values),
    ),
    "ask": st.builds(lambda content: Hostile("ask", "learn", f"ask={in_link(content)}"), lessons(_values)),
}  # fmt: skip


def inputs(how_many: int, kinds: tuple[str, ...] = tuple(_inputs)) -> list[Hostile]:
    """`how_many` different inputs, equally many of each kind; the same in every run."""
    chosen: list[Hostile] = []
    for number, kind in enumerate(kinds):
        chosen += _of_kind(kind, (how_many - len(chosen)) // (len(kinds) - number))
    return chosen


def _of_kind(kind: str, wanted: int) -> list[Hostile]:
    greedy = [Hostile("url", "", query) for query in GREEDY] if kind == "url" and wanted > 100 else []
    simplest = dict.fromkeys(greedy)

    @settings(
        max_examples=3 * wanted,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(_inputs[kind])
    def collect(one: Hostile) -> None:
        if len(simplest) < wanted:
            simplest[one] = None

    collect()
    return list(simplest)
