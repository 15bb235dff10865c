"""Several pictures, tiles and merged patches: bit for bit as the family computes, every token at its place, no picture sees another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from PIL import Image
from tiny_pictures import FAMILIES, IN_TEXT, MERGED, PLACES, TinyPictureModels, bright_patch, noise, processor_of

from attention import Model
from attention.base.errors import AttentionError, ConfigError, TextError
from attention.base.tokens import NEWLINE, Patch
from attention.circuits.sweep import sweep_heads
from attention.files.picture import Picture
from attention.media import _MOST_GIVEN
from attention.models.medium_inputs import MediumInputs
from attention.patching.intervention import Intervention
from attention.pictures.message_contract import NO_TOKEN
from attention.pictures.over_picture import MapLine, TokenGrid, over_picture_json
from attention.trace.trace import Trace
from attention.vision.examples import EXAMPLES, example_picture

TEXT = "the owl asked the moon"
TILED = ("LLaVA-NeXT", "InternVL")  # two pictures of a trace for one that is given
PHOTOS = (Image.fromarray(noise()), Image.fromarray(noise(15, 22, seed=1)), Image.fromarray(noise(18, 18, seed=2)))


def source(
    picture_models: TinyPictureModels, family: str, images: Any = PHOTOS, text: str = TEXT, **options: Any
) -> Model:
    return Model(picture_models(family), text, image=list(images), **options)


def network_of(picture_models: TinyPictureModels, family: str, implementation: str = "eager") -> Any:
    import transformers

    cls = getattr(transformers, FAMILIES[family][0])
    return cls.from_pretrained(picture_models(family), attn_implementation=implementation).eval()


def processed(picture_models: TinyPictureModels, family: str, images: Any = PHOTOS, text: str = TEXT) -> Any:
    """The input of a model from the processor of transformers alone."""
    places = f"{PLACES[family]}\n" * len(images) if PLACES[family] not in text else ""
    return processor_of(picture_models(family), family)(images=list(images), text=[places + text], return_tensors="pt")


def patches(tokens: tuple[str, ...]) -> list[Patch]:
    return [token for token in tokens if isinstance(token, Patch)]


def sequences(trace: Trace, inputs: MediumInputs) -> list[slice]:
    """The positions of each sequence of the vision transformer."""
    ends = np.cumsum(inputs.read.lengths).tolist()
    return [slice(end - length, end) for end, length in zip(ends, inputs.read.lengths, strict=True)]


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", IN_TEXT)
def test_several_pictures_are_equal_to_eager_bit_for_bit(picture_models: TinyPictureModels, family: str) -> None:
    from attention.models import running
    from attention.models.recorder import recording

    network, expected_inputs = network_of(picture_models, family), processed(picture_models, family)
    with torch.no_grad():
        expected = network(**expected_inputs, output_attentions=True)
    loaded, inputs = source(picture_models, family).load_inputs()
    assert torch.equal(inputs["input_ids"], expected_inputs["input_ids"])
    with recording(lambda call: None):
        assert torch.equal(running.run(loaded, inputs)["logits"], expected["logits"])
    trace = source(picture_models, family).trace()
    text_layers = [layer for layer in trace.layers if layer.name.startswith("text")]
    for layer, own in zip(text_layers, expected.attentions, strict=True):
        assert layer.weights == approx(own[0])
    for layer in trace.layers:
        steps = ("input", "query", "key", "value", "scores", "head_output", "w_q", "w_o")
        assert all(layer.has(step) for step in steps), layer.name
        assert layer.formula is not None


@pytest.mark.parametrize("family", IN_TEXT)
def test_no_picture_sees_another_in_vision_layers(picture_models: TinyPictureModels, family: str) -> None:
    trace, (_, inputs) = source(picture_models, family).trace(), source(picture_models, family).load_inputs()
    assert isinstance(inputs, MediumInputs)
    own = sequences(trace, inputs)
    alone = [Model(picture_models(family), TEXT, image=photo).trace() for photo in PHOTOS]
    for index, layer in enumerate(layer for layer in trace.layers if layer.name.startswith("vision")):
        weights = layer.weights.clone()
        blocks = [weights[:, at, at].clone() for at in own]
        for at in own:
            assert weights[:, at, at].sum(-1) == approx(torch.ones(4, at.stop - at.start))
            weights[:, at, at] = 0
        assert not weights.any()
        separate = [other.layers[index].weights for other in alone]
        if family not in TILED:  # there, a picture has several sequences
            assert [block.shape for block in blocks] == [other.shape for other in separate]
        joined = torch.block_diag(*(other[0] for other in separate))
        assert layer.weights[0] == approx(joined)
        expected = torch.cat([other.layers[index].head_output for other in alone], dim=1)
        assert layer.head_output == approx(expected)


@pytest.mark.parametrize("family", IN_TEXT)
def test_tokens_of_pictures_stand_where_text_has_them(picture_models: TinyPictureModels, family: str) -> None:
    place = PLACES[family]
    text = f"the {place} owl {place} asked"
    trace = source(picture_models, family, PHOTOS[:2], text).trace()
    assert not trace.notes
    tokens = trace.layers[-1].tokens
    image_id = processor_of(picture_models(family), family).image_token_id
    ids = processed(picture_models, family, PHOTOS[:2], text)["input_ids"][0].tolist()
    assert [isinstance(token, Patch) or token == NEWLINE for token in tokens] == [id_ == image_id for id_ in ids]
    order = [patch.picture for patch in patches(tokens)]
    assert order == sorted(order)
    assert set(order) == set(range(len(trace.pictures)))
    assert len(trace.pictures) == (4 if family in TILED else 2)
    owl = tokens.index("·owl")
    assert {patch.picture for patch in patches(tokens[:owl])} == set(range(len(trace.pictures) // 2))


@pytest.mark.parametrize("family", IN_TEXT)
def test_tokens_are_those_that_the_model_puts_there(picture_models: TinyPictureModels, family: str) -> None:
    """Each output of the vision tower is replaced by its number, which is then read where the language model gets it."""
    network, inputs = network_of(picture_models, family), processed(picture_models, family)
    projector = network.model.visual.merger if family in MERGED else network.model.multi_modal_projector
    numbers: list[torch.Tensor] = []

    def number(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        own = torch.arange(output.shape[:-1].numel()).view(output.shape[:-1])
        numbers.append(own)
        return (own[..., None] + 1).expand_as(output).to(output)

    def number_patches(_: Any, __: Any, output: Any) -> Any:
        features = output.last_hidden_state[:, 1:]
        own = torch.arange(features.shape[:-1].numel()).view(features.shape[:-1])
        output.last_hidden_state[:, 1:] = own[..., None].expand_as(features)
        return output

    def note(_: Any, __: Any, kwargs: Any) -> None:
        entered.append(kwargs["inputs_embeds"])

    entered: list[torch.Tensor] = []
    projector.register_forward_hook(number)
    merged_from: list[torch.Tensor] = []
    if family == "InternVL":  # the numbers of the patches, each in all its channels, and the channels of a token
        network.model.vision_tower.register_forward_hook(number_patches)
        projector.register_forward_pre_hook(lambda _, args: merged_from.append(args[0][..., ::32].flatten(0, 1)))
    network.model.language_model.register_forward_pre_hook(note, with_kwargs=True)
    with torch.no_grad():
        network(**inputs)
    trace, (_, read) = source(picture_models, family).trace(), source(picture_models, family).load_inputs()
    assert isinstance(read, MediumInputs)
    vision = [patches(trace.layers[0].tokens[at]) for at in sequences(trace, read)]
    flat = [patch for of_sequence in vision for patch in of_sequence]
    is_image = inputs["input_ids"][0] == processor_of(picture_models(family), family).image_token_id
    for row, token in zip(entered[0][0][is_image], read.read.in_text, strict=True):
        if token == NEWLINE:
            assert torch.equal(row, network.model.image_newline)
            continue
        at = round(float(row[0])) - 1
        assert isinstance(token, Patch)
        if family in (*MERGED, "InternVL"):
            inside = flat[4 * at : 4 * at + 4]
            if family == "InternVL":
                inside = [flat[int(place)] for place in merged_from[0][at].tolist()]
            assert {patch.picture for patch in inside} == {token.picture}
            corners = np.array([patch.box for patch in inside])
            assert (*corners[:, :2].min(0), *corners[:, 2:].max(0)) == token.box
        else:
            assert (flat[at].picture, flat[at].box) == (token.picture, token.box)


@pytest.mark.sample(18)
@pytest.mark.parametrize("place", [(0, 0), (0, 5), (1, 2), (2, 4)])
@pytest.mark.parametrize("turn", ["", "FLIP_LEFT_RIGHT", "FLIP_TOP_BOTTOM", "ROTATE_180", "ROTATE_90"])
@pytest.mark.parametrize("family", [*TILED, *MERGED])
def test_bright_patch_is_at_its_place_in_tiles_and_squares(
    picture_models: TinyPictureModels, family: str, turn: str, place: tuple[int, int]
) -> None:
    rows, columns = {"LLaVA-NeXT": (3, 6), "InternVL": (4, 8)}.get(family, (4, 6))
    image, (row, column) = bright_patch(*place, rows, columns), place
    if turn:
        image = image.transpose(Image.Transpose[turn])
        if turn in ("FLIP_TOP_BOTTOM", "ROTATE_180"):
            row = rows - 1 - row
        if turn in ("FLIP_LEFT_RIGHT", "ROTATE_180"):
            column = columns - 1 - column
        if turn == "ROTATE_90":  # against the clock
            row, column, rows, columns = columns - 1 - column, row, columns, rows
    trace, dark = (source(picture_models, family, [picture]).trace() for picture in (image, Image.new("RGB", image.size, (10, 10, 10))))  # fmt: skip
    which = int(family == "LLaVA-NeXT")  # the tiles
    seen = trace.pictures[which]
    assert (seen.rows, seen.columns) == (rows, columns)
    assert np.array_equal(seen.rgb, np.asarray(image))
    in_order = patches(trace.layers[0].tokens)
    own = [patch for patch in in_order if patch.picture == which]
    assert sorted((patch.row, patch.column) for patch in own) == [(r, c) for r in range(rows) for c in range(columns)]
    # The vision transformer itself says which of its tokens has another vector than in a dark picture.
    differs = (trace.layers[0].input != dark.layers[0].input).any(-1).tolist()
    changed = [token for token, is_other in zip(trace.layers[0].tokens, differs, strict=True) if is_other]
    bright = [patch for patch in patches(tuple(changed)) if patch.picture == which]
    assert [(patch.row, patch.column) for patch in bright] == [(row, column)]
    left, top, right, bottom = bright[0].box
    assert seen.rgb[top:bottom, left:right].min() == 255
    in_text = [patch for patch in patches(trace.layers[-1].tokens) if patch.picture == which]
    holders = [patch for patch in in_text if patch.box[0] <= left < patch.box[2] and patch.box[1] <= top < patch.box[3]]
    size = 4 if family == "LLaVA-NeXT" else 8
    assert [(patch.row, patch.column) for patch in holders] == [(top // size, left // size)]
    assert sorted((patch.row, patch.column) for patch in in_text) == [(r, c) for r in range(rows * 4 // size) for c in range(columns * 4 // size)]  # fmt: skip


def test_windows_hold_the_patches_of_their_place(picture_models: TinyPictureModels) -> None:
    trace = source(picture_models, "Qwen2.5-VL").trace()
    in_windows, in_full = trace.layers[:2]
    tokens = patches(in_windows.tokens)
    windows = [(patch.picture, patch.row // 4, patch.column // 4) for patch in tokens]
    assert len(set(windows)) > len(PHOTOS)
    same = torch.tensor([[a == b for b in windows] for a in windows])
    assert torch.equal(in_windows.weights[0] > 0, same)
    own = torch.tensor([[a.picture == b.picture for b in tokens] for a in tokens])
    assert torch.equal(in_full.weights[0] > 0, own)


def test_tiles_leave_out_what_lies_beside_the_picture(picture_models: TinyPictureModels) -> None:
    trace = source(picture_models, "LLaVA-NeXT", PHOTOS[:1]).trace()  # 20 × 13 pixels in 24 × 24
    whole, tiled = trace.pictures
    assert (whole.rows, whole.columns, tiled.rows, tiled.columns) == (3, 3, 6, 6)
    assert "cut into 2 × 2 tiles" in tiled.words
    text = trace.layers[-1].tokens
    of_tiles = [patch for patch in patches(text) if patch.picture == 1]
    assert {patch.row for patch in of_tiles} == {1, 2, 3, 4}
    assert text.count(NEWLINE) == 4
    assert not tiled.rgb[:2].any()  # black
    grid = TokenGrid.of(text)
    assert grid is not None
    base, tiles = grid.pictures
    assert tiles.x == base.columns + 1
    for position, token in enumerate(text):
        if isinstance(token, Patch):
            corner = grid.pictures[token.picture]
            assert grid.positions[corner.y + token.row, corner.x + token.column] == position
    assert (grid.positions[tiles.y, tiles.x : tiles.x + 6] == NO_TOKEN).all()
    figure = over_picture_json(MapLine.of(trace, "weights", layer=len(trace.layers) - 1, query=len(text) - 1))
    share = sum(float(trace.layers[-1].weights[0, -1, i]) for i, token in enumerate(text) if isinstance(token, Patch))
    assert f"{share:.2f} on the picture" in figure["layout"]["meta"]["alt"]
    assert len(figure["layout"]["images"]) == 2
    assert [text[token.position] for token in grid.others][-4:] == [NEWLINE] * 4  # after the words
    hidden = source(picture_models, "LLaVA-NeXT", PHOTOS[:1], special="hide").trace().layers[-1].tokens
    assert NEWLINE not in hidden


@pytest.mark.parametrize("family", IN_TEXT)
def test_heads_of_several_pictures_are_changed_in_batches(picture_models: TinyPictureModels, family: str) -> None:
    plain = source(picture_models, family)
    sweep = list(sweep_heads(plain))[-1].result
    assert sweep is not None
    target = plain.trace().predictions[-1].ids[0]
    before = float(plain.trace().predictions[-1].all_log_probabilities[target])
    for layer, head in ((0, 1), (1, 3), (2, 0)):
        trace = source(picture_models, family, interventions=(Intervention(layer, head, ablate="zero"),)).trace()
        change = float(trace.predictions[-1].all_log_probabilities[target]) - before
        assert sweep.change[layer, head] == approx(change, terms=1024, scale=1)
    assert np.abs(sweep.change[:2]).max() > 1e-3  # vision


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", IN_TEXT)
def test_own_values_patched_back_change_nothing(picture_models: TinyPictureModels, family: str) -> None:
    plain = source(picture_models, family)
    for step in ("query", "value", "weights", "head_output"):
        every = tuple(Intervention(0, head, patch=step) for head in range(4))
        patched = source(picture_models, family, interventions=every, other=plain).trace()
        assert patched.predictions[-1].all_logits == approx(plain.trace().predictions[-1].all_logits)
    other = source(picture_models, family, [image.transpose(Image.Transpose.ROTATE_180) for image in PHOTOS])
    changed = source(picture_models, family, interventions=(Intervention(0, patch="value"),), other=other).trace()
    assert changed.predictions[-1].all_logits != approx(plain.trace().predictions[-1].all_logits)


def test_sweep_of_another_picture_is_computed_anew(picture_models: TinyPictureModels) -> None:
    first, second = (
        list(sweep_heads(Model(picture_models("ViT-MSN"), image=bright_patch(0, c))))[-1].result for c in (0, 2)
    )
    assert first is not None
    assert second is not None
    assert not np.array_equal(first.change, second.change)


@pytest.mark.sample(1)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("family", IN_TEXT)
def test_model_in_memory_reads_several_pictures(
    picture_models: TinyPictureModels, family: str, implementation: str
) -> None:
    network = network_of(picture_models, family, implementation)
    trace = Model.of(network, processor_of(picture_models(family), family), TEXT, image=list(PHOTOS)).trace()
    expected = source(picture_models, family).trace()
    for layer, other in zip(trace.layers, expected.layers, strict=True):
        assert layer.tokens == other.tokens
        assert layer.weights == approx(other.weights, terms=1024)
    with torch.no_grad():
        logits = network(**processed(picture_models, family)).logits
    assert torch.equal(trace.predictions[-1].all_logits, logits[0, -1])


@pytest.mark.parametrize("family", IN_TEXT)
def test_text_after_pictures_is_generated_as_transformers_does(picture_models: TinyPictureModels, family: str) -> None:
    network, inputs = network_of(picture_models, family), processed(picture_models, family, PHOTOS[:2])
    with torch.no_grad():
        expected = network.generate(**inputs, max_new_tokens=5, do_sample=False)[0]
    model = source(picture_models, family, PHOTOS[:2], generate=5)
    _, read = model.load_inputs()
    assert torch.equal(read["input_ids"][0], expected)
    trace = model.trace()
    assert trace.generated == 5
    with torch.no_grad():
        types = {} if family not in MERGED else {"mm_token_type_ids": torch.nn.functional.pad(inputs["mm_token_type_ids"], (0, 5))}  # fmt: skip
        whole = network(**{**inputs, "input_ids": expected[None], "attention_mask": torch.ones_like(expected)[None], **types})  # fmt: skip
    assert trace.predictions[-1].all_logits == approx(whole.logits[0, -1], terms=1024)
    other = source(picture_models, family, PHOTOS[1:], generate=5).load_inputs()[1]
    assert not torch.equal(other["input_ids"], read["input_ids"])
    short = source(picture_models, family, PHOTOS[:2], generate=5, prefix_len=2).trace()
    assert len(short.continuation) == 3


def test_images_are_a_tuple_however_they_are_given(picture_models: TinyPictureModels) -> None:
    one, two = Picture.of(PHOTOS[0]), Picture.of(PHOTOS[1])
    assert Model("x").given == ()
    assert Model("x", image=PHOTOS[0]).given == (one,)
    assert Model("x", image=[PHOTOS[0]]).image == one
    assert Model("x", image=[PHOTOS[0], two]).given == (one, two)
    assert hash(Model("x", image=(one, two))) == hash(Model("x", image=[one, two]))
    assert Model("x", image=(one, two)) != Model("x", image=(two, one))
    for images in ([], [one] * (_MOST_GIVEN + 1), [[one, two]], [one, None]):
        with pytest.raises(ConfigError, match="picture"):
            Model("x", image=images)


def test_wrong_number_of_pictures_is_refused(picture_models: TinyPictureModels) -> None:
    for family, text, message in (
        ("LLaVA", "the <image> owl", "has 1 place for a picture"),
        ("Qwen2-VL", "<|image_pad|> <|image_pad|>", "has 2 places"),
    ):
        with pytest.raises(TextError, match=message):
            source(picture_models, family, PHOTOS, text).trace()
    for family in ("ViT", "CLIP"):
        with pytest.raises(ConfigError, match="reads one picture at a time; got 2"):
            source(picture_models, family, PHOTOS[:2], TEXT if family == "CLIP" else "").trace()
    with pytest.raises(ConfigError, match="a picture cannot be cut"):
        source(picture_models, "Qwen2-VL", PHOTOS, max_tokens=5).trace()
    notes = source(picture_models, "LLaVA").trace().notes
    assert "The pictures stand before the text" in notes[0]


@pytest.mark.parametrize("family", IN_TEXT)
def test_saved_trace_of_several_pictures_opens_again(
    picture_models: TinyPictureModels, family: str, tmp_path: Any
) -> None:
    from attention import File

    trace = source(picture_models, family, PHOTOS[:2]).trace()
    trace.save(tmp_path / "several.npz")
    opened = File.open(tmp_path / "several.npz").trace()
    for layer, other in zip(opened.layers, trace.layers, strict=True):
        assert layer.tokens == other.tokens
        assert [patch.__getnewargs__() for patch in patches(layer.tokens)] == [patch.__getnewargs__() for patch in patches(other.tokens)]  # fmt: skip
        assert layer.weights == approx(other.weights)
    for seen, other_seen in zip(opened.pictures, trace.pictures, strict=True):
        assert np.array_equal(seen.rgb, other_seen.rgb)
        assert (seen.rows, seen.columns, seen.words) == (other_seen.rows, other_seen.columns, other_seen.words)


@pytest.mark.quick
def test_names_of_patches_tell_pictures_apart() -> None:
    from attention.base.tokens import label

    first, second = (Patch(picture, 3, 7, (28, 12, 32, 16)) for picture in (0, 1))
    assert (first, second) == ("patch row 3, column 7", "patch row 3, column 7 of picture 1")
    assert label(second) == second
    assert [label(patch, 14) for patch in (first, second)] == ["patch 3,7", "patch1 3,7"]


def test_link_names_up_to_four_pictures_of_files(picture_models: TinyPictureModels) -> None:
    assert "save it as a PNG" in source(picture_models, "LLaVA").no_link_reason
    ours = [example_picture(name) for name in EXAMPLES]
    assert source(picture_models, "LLaVA", ours).no_link_reason == ""
    assert "at most 4 pictures, and this input has 6" in source(picture_models, "LLaVA", ours * 2).no_link_reason


@pytest.mark.parametrize(
    ("family", "values", "message"),
    [
        ("Qwen2-VL", {"patch_size": 5}, "The processor of|should read"),
        ("Qwen2-VL", {"merge_size": 1}, "should have|The processor of|should read"),
        ("Qwen2-VL", {"size": {"shortest_edge": 64, "longest_edge": 10**9}}, "resizes each picture"),
        ("InternVL", {"max_patches": 10**6}, "resizes each picture"),
        ("LLaVA-NeXT", {"image_grid_pinpoints": [[12]]}, "no processor of pictures"),
        ("LLaVA-NeXT", {"image_grid_pinpoints": [[12, 10**7]]}, "resizes each picture"),
        ("LLaVA-NeXT", {"image_grid_pinpoints": [[24, 36]]}, "should have|should read"),
    ],
)
def test_broken_processor_is_refused_in_a_sentence(
    picture_models: TinyPictureModels, tmp_path: Any, family: str, values: dict[str, Any], message: str
) -> None:
    import json
    import shutil

    path = tmp_path / "broken"
    shutil.copytree(picture_models(family), path)
    for name in ("preprocessor_config.json", "processor_config.json"):
        if (file := path / name).exists():
            config = json.loads(file.read_text())
            (config.get("image_processor") or config).update(values)
            file.write_text(json.dumps(config))
    with pytest.raises(AttentionError, match=message):
        Model(str(path), TEXT, image=PHOTOS[0]).trace()
