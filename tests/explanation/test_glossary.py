from typing import Annotated, get_args, get_origin

import pytest

from attention import AXES, PARAMETERS, STEPS, TypedText, find_step
from attention.explanation import glossary
from attention.formula import tensor_types
from attention.trace.layer import Layer

pytestmark = pytest.mark.quick

LAYER = TypedText("one two three").trace().layers[0]


def test_every_equation_begins_with_its_symbol() -> None:
    for step in STEPS:
        assert step.equation.lstrip("{").startswith(step.tex.strip("{}")[0])
        assert " = " in step.equation


def test_every_axis_of_steps_and_parameters_is_explained_exactly_once() -> None:
    used = {axis for entry in (*STEPS, *PARAMETERS) for axis in entry.axes}
    assert used == {axis.name for axis in AXES}
    signatures = [get_args(alias)[1] for alias in vars(tensor_types).values() if get_origin(alias) is Annotated]
    assert len(signatures) > 10
    assert {axis for names in signatures for axis in names.split()} <= {*used, "pos"}


def test_shape_shows_the_sizes_of_the_layer() -> None:
    assert glossary.shape_text(find_step("query"), LAYER) == "head 4 · query_pos 3 · d_k 16"
    assert glossary.shape_text(find_step("query"), Layer()) == "head ? · query_pos ? · d_k ?"


@pytest.mark.parametrize(
    ("query", "steps"),
    [
        ("hook_pattern", ["weights"]),
        ("HOOK_Z", ["head_output"]),
        (
            "attn_weights",
            [
                "scores",
                "scaled_scores",
                "capped_scores",
                "biased_scores",
                "masked_scores",
                "weights",
                "dropped_weights",
            ],
        ),
        ("sims", ["scores", "scaled_scores"]),
        (" attn_probs ", ["weights", "dropped_weights"]),
        ("hook_attn_scores", ["masked_scores"]),
        ("z", ["head_output"]),
        ("A", ["weights", "head_output"]),  # notebook 4 calls the head's output A
        ("no such name", []),
        ("W_Q", ["query", "w_q"]),
        ("q_proj", ["w_q", "b_q"]),
        ("attn_mask", ["mask", "bias"]),
        ("logits", ["scores", "scaled_scores", "masked_scores"]),
        ("softmax", ["weights"]),
    ],
)
def test_search_by_name_finds_its_steps(query: str, steps: list[str]) -> None:
    assert [step.name for step in glossary.search(query)] == steps


def test_empty_search_finds_everything() -> None:
    assert glossary.search("  ") == STEPS


def test_glossary_tables_have_every_row_and_no_empty_column() -> None:
    assert glossary.frame(LAYER)["name"].tolist() == [entry.name for entry in (*STEPS, *PARAMETERS)]
    assert glossary.axes(LAYER)["size"].tolist() == ["4", "4", "3", "3", "64", "16", "16", "–"]
    assert glossary.parameters(LAYER).set_index("name").loc["w_o", "axes"] == "head 4 · d_v 16 · d_model 64"
    for table in (glossary.frame(LAYER), glossary.axes(LAYER), glossary.parameters(LAYER)):
        assert (table.astype(str) != "").any().all()


def test_glossary_origins_are_all_libraries_and_notebooks() -> None:
    for step in STEPS:
        assert len(glossary.library_names(step)) + len(glossary.notebook_names(step)) == len(step.elsewhere)
    assert ("4", "attn_probs") in glossary.notebook_names(find_step("weights"))
