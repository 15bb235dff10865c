"""Every stored example says what its numbers show, and has the numbers of its model."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from conftest import ROOT
from margins import approx

from attention import ConfigError, File, Trace, TypedText
from attention.examples import EXAMPLES, Example
from attention.examples.example import _TRAINED, DATA, KIND, run, stored
from attention.sources.state import Go, Set, State, apply, compared_state

pytestmark = pytest.mark.quick


def words(trace: Trace) -> list[str]:
    return [token.strip("·") for token in trace.tokens]


def weight(name: str, trace: Trace, word: str) -> float:
    row = trace.layers[0]["weights"][EXAMPLES[name].head, EXAMPLES[name].row]
    return float(row[words(trace).index(word)])


def follows(name: str, trace: Trace, n: int) -> bool:
    """Whether the n tokens before the key are the query and those before it, as for an induction head."""
    said, example = words(trace), EXAMPLES[name]
    return said[example.column - n : example.column] == said[example.row - n + 1 : example.row + 1]


# What each sentence claims beyond its words.
CLAIMS: dict[str, Callable[[Trace], bool]] = {
    "names": lambda trace: (
        words(trace)[: EXAMPLES["names"].row].count("John") == 2
        and words(trace)[: EXAMPLES["names"].row].count("Mary") == 1
    ),
    "copper": lambda trace: follows("copper", trace, 2),
    "capital": lambda trace: (
        words(trace).index("Paris") < words(trace).index("Rome")
        and weight("capital", trace, "Rome") > weight("capital", trace, "Paris")
    ),
    "pronoun": lambda trace: weight("pronoun", trace, "cat") > weight("pronoun", trace, "mat"),
    "owl": lambda trace: follows("owl", trace, 1),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_sentence_of_an_example_is_true(name: str) -> None:
    example, trace = EXAMPLES[name], Example(name).trace()
    row = trace.layers[0]["weights"][example.head, example.row]
    assert int(row.argmax()) == example.column
    assert float(row[example.column]) > 0.5
    text = " ".join(words(trace))
    for quoted in re.findall("“(.+?)”", example.why):
        assert quoted in text
    assert CLAIMS[name](trace)
    assert KIND.why
    assert KIND.why({"source": "example", "example": name}) == example.why


def test_first_example_has_hidden_keys_in_its_row() -> None:
    name, example = next(iter(EXAMPLES.items()))  # the default shows what a mask does
    assert Example(name).trace().layers[0]["masked_scores"][example.head, example.row].isinf().any()


def test_stored_layer_gives_the_same_numbers_without_its_matrices() -> None:
    layer = TypedText("the owl asked").trace().layers[0]
    content = stored(Trace(layer.tokens, (layer,), notes=("a note",)), 0)
    opened = File.of("a.npz", content).trace()
    assert opened.notes == ()
    assert opened.tokens == layer.tokens
    assert {"input", "w_q", "w_o"} <= layer.recorded.keys() - opened.layers[0].recorded.keys()
    assert opened.layers[0]["weights"] == approx(layer["weights"])


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_example_has_the_numbers_of_its_model(name: str) -> None:
    example = EXAMPLES[name]
    if example.model != _TRAINED and not (ROOT / "models" / example.model).is_dir():
        pytest.skip("run make models ALL=1")
    found, computed = Example(name).trace().layers[0], run(example, ROOT / "models")
    layer = computed.layers[example.layer]
    assert found.tokens == layer.tokens
    for step in found.steps:
        assert found[step.name] == approx(layer[step.name], terms=1024)
    kept = DATA / f"{name}.npz"
    assert len(stored(computed, example.layer)) == approx(
        kept.stat().st_size, within=0.02 * kept.stat().st_size, why="compressed by another version of zlib"
    )
    assert kept.stat().st_size < 2**16


def test_unknown_example_is_refused() -> None:
    with pytest.raises(ConfigError, match="An example is one of names, copper"):
        Example("moon")


def test_chosen_example_opens_on_its_pair_and_a_link_on_its_own_cell() -> None:
    opened = apply(State(), Set({"source": "example"}))
    assert opened.texts == {"source": "example", "head": "4", "q": "13", "k": "1"}
    other = apply(opened, Set({"example": "copper"}))
    assert other.texts == {"source": "example", "example": "copper", "head": "6", "q": "12", "k": "5"}
    assert apply(other, Set({"q": "3"})).texts == {**other.texts, "q": "3"}
    assert apply(other, Set({"example": "pronoun", "q": "3"})).texts["q"] == "3"
    assert State.of_link({"source": "example"}).texts == {"source": "example"}


def test_example_chosen_for_both_states_opens_both_on_its_pair() -> None:
    both = apply(apply(apply(State(), Go("Explore")), Set({"compare": "temperature=0.5"})), Set({"editing": "both"}))
    for changes in ({"source": "example"}, {"source": None}, {"source": "example", "example": "copper"}):
        both = apply(both, Set(changes))
        assert both.other.texts == {**compared_state(both.texts), "temperature": "0.5"}
    assert both.texts["head"] == both.other.texts["head"] == "6"


def test_example_that_returns_with_its_source_opens_on_its_own_pair() -> None:
    state = apply(State(), Set({"source": "example", "example": "copper"}))
    back = apply(apply(state, Set({"source": None, "head": "0"})), Set({"source": "example"}))
    assert back.texts == {"source": "example", "example": "copper", "head": "6", "q": "12", "k": "5"}
