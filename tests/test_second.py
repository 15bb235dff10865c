from hypothesis import given
from hypothesis import strategies as st

from attention import Model, Trained, TypedText
from attention.formula.ranges import in_url
from attention.sources import Changeable, Patchable, knobs
from attention.sources.link import Limits, source_of
from attention.sources.second import LONGEST, SECOND, differing, second, turned, wrong

LIMITS = Limits(tokens=512, characters=5000, d_model=512, heads=16, trace_mb=64)
KEYS = [knob.key for knob in knobs.KNOBS] + ["layer", "head"]
STATES = st.dictionaries(st.sampled_from(KEYS), st.text(min_size=1, max_size=6), max_size=5)


@given(STATES, STATES)
def test_second_state_stores_exactly_the_differences_from_the_first(one, other):
    assert second(one, differing(one, other)) == other
    assert differing(one, one) == ""
    assert not wrong(differing(one, other))


@given(STATES, STATES, STATES)
def test_changing_one_state_keeps_the_other_changing_both_changes_both(before, after, other):
    b = differing(before, other)
    assert second(after, turned(before, after, b)) == other
    both = second(after, turned(before, after, b, both=True))
    for key in KEYS:
        asked = after if before.get(key) != after.get(key) else other
        assert both.get(key) == asked.get(key)


def test_second_state_is_an_ordinary_source_and_reports_bad_entries():
    state = {"text": "a b c", "temperature": "0.5", "step": "scores"}
    found, notes = source_of(second(state, "temperature=2.0&heads=2&text=x+%26+y"), LIMITS)
    assert isinstance(found, TypedText)
    assert (found.text, found.config.temperature, found.config.n_heads) == ("x & y", 2.0, 2)
    assert not notes
    back, _ = source_of(second(state, "temperature="), LIMITS)
    assert back.config.temperature == 1.0, "a key without a value is that knob's default"
    _, notes = source_of(second(state, "temperature=hot"), LIMITS)
    assert "temperature = “hot”" in notes[0]
    assert second(state, "q=3&nothing=1&head=2")["step"] == "scores"
    assert [one.split("“")[1].split("”")[0] for one in wrong("q=3&nothing=1&head=2")] == ["q", "nothing"]


def test_overlong_second_state_is_dropped_with_a_note():
    long = "text=" + "a" * LONGEST
    assert second({"text": "b"}, long) == {"text": "b"}
    value, note = SECOND.read(long, SECOND.range, in_url(SECOND.default))
    assert value == ""
    assert "B is the same as A" in note


def test_knobs_of_interventions_are_declared_not_guessed(tiny):
    model, trained = Model(tiny("GPT-2"), "a b c"), Trained("reverse", steps=1)
    assert isinstance(model, Changeable)
    assert isinstance(model, Patchable)
    assert isinstance(trained, Patchable)
    assert not isinstance(TypedText("a b c"), Changeable)
