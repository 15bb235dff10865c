"""A link is read into a source without a page, and its mistakes are reported."""

from contextlib import suppress
from urllib.parse import parse_qsl, urlsplit

import pytest
from test_links import LINKS, is_here

from attention import AttentionConfig, AttentionError, Matrices, TypedText
from attention.base.knobs import Limits, to_text
from attention.sources import registry
from attention.sources.layer_knobs import TEXT
from attention.sources.registry import source_of

pytestmark = pytest.mark.quick

OWL = TEXT.default
LIMITS = Limits(tokens=2048, characters=20_000, d_model=1024, heads=32, trace_mb=128)


def read(**link: str):
    return source_of(link, LIMITS)


def of(link: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(link).query, keep_blank_values=True))


def test_empty_link_is_the_default_text() -> None:
    assert read() == (TypedText(OWL, AttentionConfig(), max_tokens=2048, max_bytes=128 * 2**20), ())


def test_link_has_the_source_and_only_its_knobs() -> None:
    source, notes = read(source="matrices", mask="causal", temperature="2.0", labels="a b c d", d_model="x", w_o=" ")
    assert isinstance(source, Matrices)
    assert (source.config, source.tokens, notes) == (AttentionConfig(mask="causal", temperature=2.0), tuple("abcd"), ())
    source, _ = read(
        text="a\nb", text2="c d", sequence="1", pad="true", lowercase="false", heads="8", dropout="0.3", seed="7"
    )
    assert source == TypedText(
        "a\nb", AttentionConfig(n_heads=8, dropout=0.3, seed=7), "c d", False, 2048, 1, True, 128 * 2**20
    )


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ({"d_k": "99999"}, "“99999”, but d_k is a whole number from 1 to 1024: the default is used."),
        ({"d_k": "5.5"}, "a whole number from 1 to 1024: the default is used."),
        ({"seed": "inf"}, "a whole number from 0 to 4294967295: 0 is used."),
        ({"window": "1e9"}, "a whole number from 0 to 2048: 2 is used."),
        ({"temperature": "nan"}, "temperature is a number from 0.05 to 100: 1.0 is used."),
        ({"dropout": "0.91"}, "dropout is a number from 0 to 0.9: 0.0 is used."),
        ({"lowercase": "no"}, "lowercase is true or false: true is used."),
        ({"mask": ""}, "mask = “”, but mask is one of none, causal, window, causal window, prefix, padding, custom: none is used."),
        ({"text": "a" * 20_001}, f"“{'a' * 40}…”, but text is up to 20,000 characters: the first 20,000 are used."),
        ({"sequence": "7"}, "asks for sequence = “7”, but sequence is 0, the only value: 0 is used."),
        ({"sequence": "7", "text": "a\nb"}, "sequence is one of 0, 1: 0 is used."),
        ({"d_model": "7"}, "4 heads do not divide d_model 7: 1 head is used. Choose 1, 7."),
        ({"d_model": "30"}, "4 heads do not divide d_model 30: 3 heads are used."),
        ({"d_model": "80", "heads": "40"}, "heads is at most 32, one of 1, 2, 4, 5, 8, 10, 16, 20: 4 is used."),
        ({"d_model": "80", "heads": "3"}, "16, 20, which divide d_model 80: 4 is used."),
        ({"kv_heads": "3"}, "“3”, but kv_heads is one of 1, 2, 4, which divide 4 heads of queries: the default is used."),
    ],
)  # fmt: skip
def test_every_mistake_in_a_link_gets_one_sentence(link: dict[str, str], expected: str) -> None:
    _, notes = source_of(link, LIMITS)
    assert [expected in note for note in notes] == [True]


def test_unused_heads_and_widths_are_not_mentioned() -> None:
    source, notes = read(init="identity", d_model="7", d_k="5")
    assert source.config == AttentionConfig(d_model=7, n_heads=1, init="identity")
    assert not notes


def test_unknown_source_is_reported() -> None:
    with pytest.raises(AttentionError, match="heads · d_k is at most 4,096"):
        read(d_k="1024", heads="16")
    with pytest.raises(AttentionError, match=r"X \(512 × 64\) is too long for a link"):
        read(source="matrices", uploaded="x:512x64,?:9")
    with pytest.raises(AttentionError, match="'y' in row 0"):
        read(source="matrices", x="1,y")


def test_operator_may_lower_the_limits() -> None:
    small = Limits(tokens=1, characters=10, d_model=12, heads=2, trace_mb=1)
    source, notes = source_of({"d_model": "64"}, small)
    assert source == TypedText(
        OWL[:10], AttentionConfig(d_model=12, n_heads=2, window=1), max_tokens=1, max_bytes=2**20
    )
    assert notes[0].endswith("d_model is a whole number from 1 to 12: 12 is used.")


ODD = [
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-1",
    "0x10",
    "１",
    "5.0",
    "1_0",
    "9" * 5000,
    "True",
    "<b>$x$</b>",
    "\x00",
    "None",
    "🙂",
]


@pytest.mark.parametrize("knob", registry.all_knobs(), ids=[knob.key for knob in registry.all_knobs()])
def test_every_knob_takes_odd_texts(knob) -> None:
    for source in filter(lambda name: registry.has_knob(name, knob), registry.source_kinds()):
        for text in ODD:
            with suppress(AttentionError):  # an invalid matrix, an empty text
                parsed, notes = source_of({"source": source, knob.key: text}, LIMITS)
                assert hash(parsed) is not None
                assert all(note.startswith("The link asks for ") or " do not divide " in note for note in notes)


@pytest.mark.parametrize("knob", registry.all_knobs(), ids=[knob.key for knob in registry.all_knobs()])
def test_defaults_are_valid_and_roundtrip_as_text(knob) -> None:
    assert knob.range.accepts(knob.default)
    allowed = knob.page_range or knob.range
    assert allowed.accepts(knob.default)
    assert allowed.read(to_text(knob.default)) == knob.default
    assert knob.label or knob.inline


@pytest.mark.parametrize(
    "link",
    [pytest.param(link, marks=pytest.mark.slow if "source=model" in link else ()) for link in LINKS if is_here(link)],
)
def test_links_of_every_version_are_read_without_notes(link: str) -> None:
    source, notes = source_of(of(link), LIMITS)
    assert not notes
    assert source.trace().layers


def test_link_has_heads_biases_and_score_additions() -> None:
    link = {
        "source": "matrices",
        "x": "1,2;3,4",
        "w_q": "1,0;0,1",
        "w_k": "1,0;0,1",
        "w_v": "1,0;0,1",
        "w_o": "1,0,0;0,1,0",
    }
    link |= {
        "given_heads": "2",
        "b_q": "1,2",
        "b_o": "1,1,1",
        "memory": "5,6;7,8",
        "bias": "0,-inf;0,1",
        "divisor": "3",
        "valid_keys": "1",
    }
    source, notes = read(**link)
    assert isinstance(source, Matrices)
    assert (source.n_heads, source.divisor, source.valid, source.b_k, notes) == (2, 3.0, 1, (), ())
    assert (source.b_q, source.memory, source.bias) == (((1, 2),), ((5, 6), (7, 8)), ((0, float("-inf")), (0, 1)))
    assert source.trace().layers[0].shape("output") == (2, 3)
    alone, _ = read(source="matrices", matrix_kind="X alone", x="1,2")
    assert alone.trace().layers[0].n_heads == 1
    scored, _ = read(source="matrices", matrix_kind="scores and V", w_o=" ")
    assert isinstance(scored, Matrices)
    assert scored.scores[0] == (8, 2, 10, 2)
    with pytest.raises(AttentionError, match="X has -inf in row 0, column 1, where a finite number is expected"):
        read(source="matrices", matrix_kind="X alone", x="0,-inf;0,1", bias="0,-inf;0,1")
