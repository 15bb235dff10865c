"""The state of a page as a value: actions make states, and an address is a state."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention.base.knobs import Limits
from attention.sources.reader import Reader
from attention.sources.registry import has_formula, read_source, source_kinds
from attention.sources.state import COMPARE, OPENING, Go, Open, Restore, Set, Settle, State, apply, compared_state

pytestmark = pytest.mark.quick

LIMITS = Limits(tokens=512, characters=5000, d_model=512, heads=16, trace_mb=64)
SOURCES = tuple(source_kinds())
PAGES = ("Explore", "Heads")
KEYS = (
    "source",
    "text",
    "d_model",
    "heads",
    "mask",
    "temperature",
    "layer",
    "head",
    "q",
    "step",
    "colors",
    "heads_layers",
)
GOOD = {
    "source": SOURCES, "text": ("a b", "one\ntwo"), "d_model": ("30", "60", "64"), "heads": ("2", "3", "8"),
    "mask": ("none", "causal", "own"), "temperature": ("0.5", "2.0"), "layer": ("1",), "head": ("1", "2"),
}  # fmt: skip
TEXTS = st.dictionaries(st.sampled_from(KEYS), st.text(max_size=6), max_size=4)
VALUES = st.dictionaries(st.sampled_from(KEYS), st.text(max_size=4) | st.none(), max_size=3) | st.one_of(
    *(st.builds(lambda key, value: {key: value}, st.just(key), st.sampled_from(values)) for key, values in GOOD.items())
)
ACTIONS = st.one_of(
    st.builds(Set, VALUES, st.sampled_from(("", "A", "B", "both"))),
    st.builds(Set, st.fixed_dictionaries({"editing": st.sampled_from(("A", "B", "both"))})),
    st.builds(Settle, VALUES),
    st.builds(Go, st.sampled_from(PAGES), TEXTS),
    st.builds(Open, TEXTS),
    st.builds(Restore, TEXTS),
)
HISTORIES = st.lists(ACTIONS, max_size=6)


def after(actions, state=None):
    state = state or State()
    for action in actions:
        state = apply(state, action)
    return state


@given(HISTORIES, ACTIONS)
def test_same_action_twice_gives_the_same_state(history, action):
    once = apply(after(history), action)
    assert apply(once, action) == once


@given(HISTORIES)
def test_address_of_any_history_is_its_state(history):
    state = after(history)
    copy = apply(State(page=state.page), Restore(state.texts))
    assert copy.texts == state.texts
    assert copy.other.texts == state.other.texts
    assert copy.edits == state.edits


@given(HISTORIES, VALUES)
def test_changing_one_of_two_states_keeps_the_other(history, values):
    values.pop("source", None)
    before = after([*history, Go("Explore"), Settle({COMPARE: OPENING}), Set({"editing": "A"})])
    changed = apply(before, Set(values, "A"))
    assert changed.other.texts == before.other.texts
    of_b = apply(before, Set(values, "B"))
    assert compared_state(of_b.texts) == compared_state(before.texts)
    for key in compared_state(dict.fromkeys(values, "x")):
        assert of_b.other.texts.get(key) == (values[key] or None)
    of_both = apply(apply(before, Set({"editing": "both"})), Set(values))
    for key in compared_state(dict.fromkeys({**before.texts, **before.other.texts, **values}, "x")):
        new = key in values and (values[key] or None) != (before.texts.get(key) or None)
        expected = values[key] or None if new else before.other.texts.get(key)
        assert of_both.other.texts.get(key) == expected


@given(HISTORIES, st.sampled_from(SOURCES))
def test_way_to_a_source_and_back_restores_its_formula(history, other):
    before = after([*history, Go("Explore"), Set({"source": None, "mask": "causal", "text": "x", "d_model": "60"})])
    there = apply(before, Set({"source": other}))
    waiting = before.aside if has_formula(other) else before.texts
    assert there.texts.get("mask") == waiting.get("mask")
    assert not [
        key for key in ("d_model", "heads") if key in there.texts.keys() - there.unread and other != "typed text"
    ]
    back, cell = apply(there, Set({"source": None})).texts, {"head", "q", "k"}
    opened = cell if source_kinds()[other].opening else set()
    assert {key: text for key, text in back.items() if key not in opened} == {
        key: text for key, text in before.texts.items() if key not in opened
    }


def read(state):
    checked = state.texts.keys() - state.unread
    reader = Reader(state.texts, LIMITS, checked=checked, wished=state.wishes)
    config = read_source(reader).config
    texts = {key: str(field.value) for key, field in reader.fields.items() if key in ("d_model", "heads")}
    return config.n_heads, [*reader.notes.values()], apply(state, Settle(texts, reader.wishes))


def test_chosen_number_of_heads_returns_when_it_divides():
    heads, notes, state = read(State.of_link({"heads": "8"}))
    assert (heads, notes) == (8, [])
    for d_model, used in (("60", 6), ("30", 6), ("13", 1), ("64", 8)):
        heads, notes, state = read(apply(state, Set({"d_model": d_model})))
        assert heads == used
        assert len(notes) == (used != 8)
    heads, _, state = read(apply(state, Set({"heads": "2"})))
    assert read(apply(state, Set({"d_model": "60"})))[0] == 2 == heads
    heads, notes, _ = read(State.of_link({"heads": "8", "d_model": "60"}))
    assert (heads, len(notes)) == (4, 1), "a link that nobody can have seen"


def test_value_that_another_knob_excludes_gets_the_nearest_without_note():
    texts = {"text": "a\nb\nc", "sequence": "2"}
    reader = Reader(texts | {"text": "a\nb"}, LIMITS, checked=texts)
    read_source(reader)
    assert (reader.fields["sequence"].value, reader.notes) == (0, {})
    reader = Reader(texts | {"temperature": "1e9"}, LIMITS, checked=["temperature"])
    assert read_source(reader).config.temperature == 100


def test_display_of_a_page_stays_and_other_parameters_go():
    state = after([Go("Explore", {"lock": "1", "a": "b"}), Go("Heads", {"c": "d"})])
    assert state.parameters == {"lock": "1", "c": "d"}
    assert after([Open({"text": "x"})], state).parameters == {"lock": "1"}


def test_long_matrix_stays_where_its_address_has_only_the_size():
    long = ",".join(["1"] * 400)
    state = after([Go("Explore"), Set({"source": "matrices", "x": long})])
    restored = apply(state, Restore({"source": "matrices", "uploaded": "x:1x400"}))
    assert restored.texts["x"] == long
    other = apply(apply(state, Set({"x": "1,2"})), Restore({"uploaded": "x:1x400"}))
    assert "x" not in other.texts
    assert COMPARE not in other.texts
