import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention import Model, TypedText
from attention.base.knobs import Limits, to_text
from attention.sources import Intervenable, registry
from attention.sources.registry import source_of
from attention.sources.state import (
    _MAX_CHARACTERS,
    OPENING,
    SECOND,
    differences,
    opening_differences,
    second_state,
    unknown_key_notes,
)

pytestmark = pytest.mark.quick

LIMITS = Limits(tokens=512, characters=5000, d_model=512, heads=16, trace_mb=64)
KEYS = [knob.key for knob in registry.all_knobs()] + ["layer", "head"]
STATES = st.dictionaries(st.sampled_from(KEYS), st.text(min_size=1, max_size=6), max_size=5)


@given(STATES, STATES)
def test_second_state_stores_exactly_the_differences_from_the_first(state, other):
    assert second_state(state, differences(state, other)) == other
    assert differences(state, state) == ""
    assert not unknown_key_notes(differences(state, other))


def test_second_state_is_an_ordinary_source_and_reports_bad_entries():
    state = {"text": "a b c", "temperature": "0.5", "step": "scores"}
    parsed, notes = source_of(second_state(state, "temperature=2.0&heads=2&text=x+%26+y"), LIMITS)
    assert isinstance(parsed, TypedText)
    assert (parsed.text, parsed.config.temperature, parsed.config.n_heads) == ("x & y", 2.0, 2)
    assert not notes
    reset, _ = source_of(second_state(state, "temperature="), LIMITS)
    assert reset.config.temperature == 1.0, "a key without a value means the default"
    _, notes = source_of(second_state(state, "temperature=hot"), LIMITS)
    assert "temperature = “hot”" in notes[0]
    assert second_state(state, "q=3&nothing=1&head=2")["step"] == "scores"
    assert [note.split("“")[1].split("”")[0] for note in unknown_key_notes("q=3&nothing=1&head=2")] == ["q", "nothing"]


def test_comparison_of_a_text_opens_on_a_mask_also_where_its_source_is_named():
    assert opening_differences({"source": "typed text"}) == "mask=causal"
    assert opening_differences({"source": "typed text", "mask": "causal"}) == "temperature=0.5"
    assert opening_differences({"source": "model"}) == "temperature=0.5"


def test_overlong_second_state_is_dropped_with_a_note():
    long = "text=" + "a" * _MAX_CHARACTERS
    assert second_state({"text": "b"}, long) == {"text": "b"}
    value, note = SECOND.read(long, SECOND.range, to_text(SECOND.default))
    assert value == OPENING
    assert "B is what a comparison opens with" in note


@pytest.mark.slow
def test_knobs_of_interventions_are_declared_not_guessed(tiny):
    model = Model(tiny("GPT-2"), "a b c")
    assert isinstance(model, Intervenable)
    assert not isinstance(TypedText("a b c"), Intervenable)
