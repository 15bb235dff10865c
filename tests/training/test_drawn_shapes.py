"""The task shapes: a tiny model reads a picture, its words look at the patches with their shapes, and a trace shows both."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from margins import approx

from attention import Cell, TextError
from attention.base.tokens import Patch
from attention.export import program
from attention.formula.functions import generator
from attention.patching.intervention import parse_codes
from attention.pictures.over_picture import MapLine, TokenGrid, over_picture_json
from attention.training import TASKS, Trained
from attention.training.drawn_shapes import COLORS, DRAWN, RGB, SHAPES, SIDE
from attention.training.network import forward, initial_parameters, named_parameters

TASK = TASKS["shapes"]
TEXT = "red circle 1,2; blue square 4,0; green triangle 0,4"
N = len(SHAPES)


def test_every_word_asks_for_the_patch_of_its_shape():
    batch = TASK.posed(TASK.read(TEXT, TASK.design).ids, TASK.design)
    assert batch.tokens.tolist() == [list(range(N))]
    assert [COLORS[i] if i >= 0 else "" for i in batch.answers[0].tolist()][: N + 1] == [
        "red",
        "blue",
        "green",
        "",
        "",
        "",
        "",
    ]
    assert batch.gold[0].nonzero().tolist() == [[0, N + 5 + 2], [1, N + 20], [2, N + 4]]
    assert not batch.answers[0, N:].add(1).any(), "the patches are asked nothing"
    drawn = TASK.draw(1000, generator(0, "test"), TASK.design)
    assert drawn.gold.sum((1, 2)).tolist() == [DRAWN] * 1000
    assert drawn.gold.any(-1).tolist() == (drawn.answers >= 0).tolist()
    inked = (drawn.patches != 0).any(-1)
    assert torch.equal(inked, drawn.gold[:, :, N:].any(1)), "gold patches, and no others, have a shape"
    places = drawn.gold[:, :N, N:].any(0)
    assert places.all(), "every shape occurs at every place"


@pytest.mark.parametrize("length", [3, 5, 6])
def test_picture_of_the_trace_is_what_the_model_reads(length):
    source = Trained("shapes", steps=1, length=length, text="red circle 1,2; blue square 2,0")
    trace = source.trace()
    (picture,) = trace.pictures
    assert (picture.rows, picture.columns, picture.patch_size) == (length, length, (SIDE, SIDE))
    assert picture.rgb.shape == (length * SIDE, length * SIDE, 3)
    patches = TASK.posed(source.example.ids, source.plan.design).patches
    for i, token in enumerate(trace.tokens[N:]):
        assert isinstance(token, Patch)
        left, top, right, bottom = token.box
        seen = picture.rgb[top:bottom, left:right]
        assert (token.row, token.column) == (top // SIDE, left // SIDE) == divmod(i, length)
        assert seen.reshape(-1) == approx(255 * (patches[0, i].numpy() + 1), step=1)
        color = {(1, 2): "red", (2, 0): "blue"}.get((token.row, token.column))
        expected = np.round(255 * np.array(RGB[COLORS.index(color)])) if color else [255] * 3
        assert np.abs(seen[SIDE // 2, SIDE // 2] - expected).max() <= 1
    assert source.trace().pictures[0].digest == picture.digest
    grid = TokenGrid.of(trace.tokens)
    assert grid.pictures[0].rows == grid.pictures[0].columns == length


def test_grey_control_sees_a_picture_without_colours():
    shown = Trained("shapes", steps=1, control="grey pictures").trace().pictures[0]
    assert (np.ptp(shown.rgb, axis=2) <= 1).all()
    assert len(np.unique(shown.rgb)) > 5
    assert "without colours" in shown.words


@pytest.mark.long  # trains the largest task
def test_words_look_where_their_shapes_are_moved():
    """Mirrored, rotated and shifted pictures, so that rows and columns are never swapped."""
    for places in (
        {"circle": (1, 2), "ring": (4, 0)},
        {"circle": (2, 1), "ring": (0, 4)},
        {"circle": (1, 0), "ring": (3, 3)},
    ):
        text = "; ".join(f"purple {shape} {row},{column}" for shape, (row, column) in places.items())
        trace = Trained("shapes", text=text).trace()
        for shape, place in places.items():
            key = int(trace.layers[0].weights[0, SHAPES.index(shape)].argmax())
            assert (trace.tokens[key].row, trace.tokens[key].column) == place
            assert trace.predictions[SHAPES.index(shape)].tokens[0] == "purple"
            drawn = over_picture_json(MapLine.of(trace, "weights", query=SHAPES.index(shape)))["data"][0]["z"]
            cells = TokenGrid.of(trace.tokens).positions >= N
            assert (
                np.argwhere(np.where(cells, drawn, 0) == drawn[cells].max())[0].tolist()
                == np.argwhere(TokenGrid.of(trace.tokens).positions == key)[0].tolist()
            )


def test_one_word_control_has_equal_rows():
    weights = Trained("shapes", steps=20, control="one word").trace().layers[0].weights[0, :N]
    assert weights == approx(weights[:1].expand_as(weights))


@pytest.mark.parametrize("positions", ["learned", "relative"])
def test_position_encodings_cover_words_and_patches(positions):
    design = replace(TASK.design, positions=positions, layers=2, heads=2)
    parameters = named_parameters(initial_parameters(design, 0), design)
    batch = TASK.draw(3, generator(0, "test"), design)
    logits, layers = forward(parameters, design, batch)
    assert logits.shape == (3, N + 25, len(COLORS))
    assert layers["layer 1"]["weights"].shape == (3, 2, N + 25, N + 25)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("red circle 5,0", "row and column from 0 to 4.*got 'red circle 5,0': write it like the example"),
        ("circle 1,1", "got 'circle 1,1'"),
        ("red circle 1,2 blue square 3,3", "with ; between shapes"),
        (";;", "got ''"),
        ("red circle 1,2; green circle 1,3", "got two of circle: change one"),
        ("red circle 1,2; green ring 1,2", "got two shapes at 1,2: change one"),
        ("red circle 001,2", "got 'red circle 001,2'"),
        ("red circle -1,2", "row and column from 0 to 4"),
        ("red circle ١,٢", "row and column from 0 to 4"),
    ],
)  # fmt: skip
def test_invalid_picture_is_refused_in_one_sentence(text, says):
    with pytest.raises(TextError, match=says) as refused:
        TASK.read(text, TASK.design)
    assert str(refused.value).count(". ") == 0


def test_loose_spelling_of_a_picture_is_read():
    expected = TASK.read(TEXT, TASK.design).ids
    for text in (TEXT.upper(), TEXT + ";", TEXT.replace(",", ", "), TEXT.replace("; ", ";"), f"  {TEXT}  "):
        assert torch.equal(TASK.read(text, TASK.design).ids, expected)


@pytest.mark.sample(1)
@pytest.mark.parametrize("code", ["", "0.0.zero0.5", "0.0.takeV"])
def test_copied_python_trains_on_pictures_to_the_same_digits(code):
    other = Trained("shapes", seed=3, steps=10, text="cyan ring 0,0; black cross 2,2")
    source = replace(other, text=TEXT, at=7, interventions=parse_codes(code), other=other if "take" in code else None)
    trace = source.trace()
    copied = program.python(source, trace, Cell(0, "weights", 0, 1, N + 20))
    assert copied.isascii()
    assert "import attention" not in copied
    variables, threads = {}, torch.get_num_threads()
    exec(compile(copied, "copied", "exec"), variables)
    torch.set_num_threads(threads)
    assert torch.equal(variables["weights"], trace.layers[0].weights)
    assert variables["tokens"] == [*map(str, trace.tokens)]


def test_parts_of_a_model_with_a_picture_add_up():
    from attention.circuits.direct_effects import logit_parts

    trace = Trained("shapes", steps=60, text=TEXT).trace()
    parts = logit_parts(trace, 0, "red")
    logits = trace.predictions[0].all_logits
    assert float(parts.values.sum()) == approx(float(logits[COLORS.index("red")]), terms=1024)


def test_patch_from_another_picture_brings_its_colour():
    base = Trained("shapes", text="red circle 1,2; blue square 4,0")
    other = replace(base, text="green circle 1,2; blue square 4,0")
    patched = replace(base, interventions=parse_codes("0.0.takeV"), other=other).trace()
    assert [base.trace().predictions[0].tokens[0], patched.predictions[0].tokens[0]] == ["red", "green"]
