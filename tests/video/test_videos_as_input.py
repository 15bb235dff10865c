"""Videos as the input of a model: bit for bit as its family computes, with every patch at its frames and its place."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from PIL import Image
from tiny_pictures import FAMILIES, MERGED
from tiny_videos import PLACE, TUBELETS, TinyVideoModels, encoded, frame_processor, moving_bar, noise, shaken, tiny

from attention import Model
from attention.base.errors import AttentionError, ConfigError
from attention.base.tokens import Patch, label
from attention.models import running
from attention.models.medium_inputs import MediumInputs
from attention.models.recorder import recording
from attention.trace.trace import Trace
from attention.video.film import Video
from attention.video.reader import FramePlace, VideoReader

TEXT = "the owl asked the moon"
FRAMES = noise()
LONG = Video.open(encoded(moving_bar(48), fps=12))  # four seconds
SAMPLED = range(0, 48, 6)  # eight of 48


def patches(trace: Trace, layer: int = 0) -> list[Patch]:
    return [token for token in trace.layers[layer].tokens if isinstance(token, Patch)]


def eager_of(family: str, frames: Any, **values: Any) -> Any:
    """The output of the family's own attention for some frames, from transformers alone."""
    model = tiny(family, **values)
    model.set_attn_implementation("eager")
    pixels = frame_processor(family)([list(frames)], return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        return model(pixels, output_attentions=True)


def places(tokens: Sequence[str]) -> list[FramePlace]:
    return [token.place for token in tokens if isinstance(token, Patch)]


@pytest.mark.parametrize("family", TUBELETS)
def test_output_of_a_video_transformer_is_equal_to_eager_bit_for_bit(
    video_models: TinyVideoModels, family: str
) -> None:
    expected = eager_of(family, FRAMES)
    own = tiny(family)
    own.set_attn_implementation("eager")
    for source in (Model(video_models(family), video=FRAMES), Model.of(own, frame_processor(family), video=FRAMES)):
        loaded, inputs = source.load_inputs()
        with recording(lambda call: None):
            actual = running.run(loaded, inputs)
        for name in ("logits", "last_hidden_state"):
            if name in expected:
                assert torch.equal(actual[name], expected[name])
        trace = source.trace()
        assert len(trace.layers) == len(expected.attentions) == 2
        for layer, own in zip(trace.layers, expected.attentions, strict=True):
            assert layer.weights == approx(own[0], scale=1)
            scores = torch.matmul(layer["query"][None], layer["key"][None].transpose(2, 3)) * layer.sizes["d_k"] ** -0.5
            assert torch.equal(torch.softmax(scores, -1), own)  # as eager attention computes them from what is recorded


def test_weights_of_a_query_lie_at_the_frames_rows_and_columns_of_the_convolution(
    video_models: TinyVideoModels,
) -> None:
    """The order of pytorch-grad-cam#529 (frames first); that of facebookresearch/mae#187, `view(14, 14, 8, …)`, has frames last, which is wrong."""
    (own, _), trace = eager_of("VideoMAE", FRAMES).attentions, Model(video_models("VideoMAE"), video=FRAMES).trace()
    by_frame = own[0, 1, 5].reshape(4, 3, 3)
    for position, patch in enumerate(patches(trace)):
        assert patch.place == FramePlace(
            (2 * patch.picture, 2 * patch.picture + 1), patch.row, patch.column, patch.box, None
        )
        assert position == patch.picture * 9 + patch.row * 3 + patch.column
        assert trace[0]["weights"][1, 5, position] == approx(by_frame[patch.picture, patch.row, patch.column], scale=1)
    assert str(patches(trace)[13]) == "frames 2–3, row 1, column 1"


@pytest.mark.parametrize("family", ["VideoMAE", "ViViT"])
def test_only_the_patch_of_a_changed_pixel_changes(video_models: TinyVideoModels, family: str) -> None:
    changed = np.zeros((8, 16, 16, 3), np.uint8)  # of which the processor cuts two pixels at each edge
    black = Model(video_models(family), video=changed).trace()
    changed[5, 9, 11] = 255  # the third group, row 1, column 2 of patches of 4 pixels
    moved = Model(video_models(family), video=changed).trace()
    differs = (black[0]["input"] != moved[0]["input"]).any(-1).nonzero()[:, 0].tolist()
    assert places([moved.tokens[position] for position in differs]) == [FramePlace((4, 5), 1, 2, (8, 4, 12, 8), None)]
    assert moved.tokens[:1] == (("[CLS]",) if family == "ViViT" else ("frames 0–1, row 0, column 0",))


def test_config_of_the_tests_of_transformers_has_25_tokens() -> None:
    """The config in the tests of VideoMAE: frames of 10 × 10 pixels in patches of 2, and two frames in one tubelet."""
    model = tiny("VideoMAE", image_size=10, patch_size=2, tubelet_size=2, num_frames=2, intermediate_size=37)
    processor = frame_processor("VideoMAE", size={"shortest_edge": 10}, crop_size={"height": 10, "width": 10})
    trace = Model.of(model, processor, video=noise(2)).trace()
    assert trace[0]["weights"].shape == (4, 25, 25)
    assert [(each.rows, each.columns) for each in trace.pictures] == [(5, 5)]


def test_frames_are_sampled_as_transformers_does_and_notes_say_which(video_models: TinyVideoModels) -> None:
    from transformers.video_utils import VideoMetadata, default_sample_indices_fn

    indices = default_sample_indices_fn(VideoMetadata(total_num_frames=48, fps=12), num_frames=8)
    assert indices.tolist() == [*SAMPLED]
    trace = Model(video_models("VideoMAE"), video=LONG).trace()
    expected = eager_of("VideoMAE", list(LONG.frames(SAMPLED)))
    assert trace[1].weights == approx(expected.attentions[1][0])
    assert (
        "8 of 48 frames are read, about every 0.5 s: 0, 6, 12, … 42 of the video are the frames 0, 1, 2, … 7."
        in trace.notes
    )
    assert "2 frames share each patch, and so one map; the first of them is drawn." in trace.notes
    assert [patch.place.seconds for patch in patches(trace)[::9]] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_short_video_is_read_twice_and_says_so(video_models: TinyVideoModels) -> None:
    trace = Model(video_models("VideoMAE"), video=FRAMES[:3]).trace()
    expected = eager_of("VideoMAE", FRAMES[[0, 0, 0, 1, 1, 1, 2, 2]])
    assert trace[0]["weights"] == approx(expected.attentions[0][0])
    assert "The model reads 8 frames, and the video has 3: some are read twice." in trace.notes


@pytest.mark.parametrize("family", ["VideoMAE", "ViViT"])
def test_each_group_is_drawn_as_its_first_frame(video_models: TinyVideoModels, family: str) -> None:
    still = np.broadcast_to(np.arange(8, dtype=np.uint8)[:, None, None, None] * 30, (8, 12, 12, 3)).copy()
    trace = Model(video_models(family), video=still).trace()
    assert [int(each.rgb[0, 0, 0]) for each in trace.pictures] == [0, 60, 120, 180]
    assert all((each.rgb == each.rgb[0, 0]).all() for each in trace.pictures)
    assert {each.words for each in trace.pictures} == {
        "8 frames, resized to 16 × 16, cropped to 12 × 12 at the centre; 4 × 3 × 3 patches (groups of frames × rows × columns) of 2 × 4 × 4"
    }
    assert label(trace.tokens[-1], 8) == "f6–7 2,2"
    assert {each.noun for each in trace.pictures} == {"video"}


def test_classes_of_a_video_are_predicted(video_models: TinyVideoModels) -> None:
    for family in ("VideoMAE classes", "ViViT classes"):
        (prediction,) = Model(video_models(family), video=FRAMES).trace().predictions
        logits = eager_of(family, FRAMES).logits[0]
        assert prediction.tokens[0] == ("throws", "catches", "drops")[int(logits.argmax())]


def processed(family: str, frames: Any, seconds: float | None = None) -> dict[str, torch.Tensor]:
    """What transformers' processors make of frames that have their size already, and the text around them."""
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    mean, std = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))  # of the files of all three
    pixels = torch.tensor(np.asarray(frames)).permute(0, 3, 1, 2).double() / 255
    pixels = (pixels - torch.tensor(mean)[:, None, None].double()) / torch.tensor(std)[:, None, None].double()
    flat, *grid = Qwen3VLVideoProcessor().patchify(pixels[None], 4, 2, 2)
    result = {"pixel_values_videos": flat[0].float(), "video_grid_thw": torch.tensor([grid])}
    return result | ({"second_per_grid_ts": torch.tensor([seconds])} if family == "Qwen2.5-VL" else {})


def expanded_by_transformers(
    family: str, tokenizer: Any, text: str, grid: torch.Tensor, indices: list[int], fps: float | None
) -> str:
    """The text in which the processor of a family has repeated the video token, without the parts of it that need torchvision."""
    import transformers
    from transformers.video_utils import VideoMetadata

    name = {"Qwen2-VL": "Qwen2VLProcessor", "Qwen2.5-VL": "Qwen2_5_VLProcessor", "Qwen3-VL": "Qwen3VLProcessor"}[family]
    cls = getattr(transformers, name)
    processor = cls.__new__(cls)

    class Sizes:
        merge_size, temporal_patch_size = 2, 2

    vars(processor).update(
        tokenizer=tokenizer, video_processor=Sizes, image_token="<|image_pad|>", video_token="<|video_pad|>",
        vision_start_token="<|vision_start|>", vision_end_token="<|vision_end|>",
    )  # fmt: skip
    metadata = VideoMetadata(total_num_frames=len(indices), fps=fps, frames_indices=list(indices))
    replacement = processor.replace_video_token({"video_grid_thw": grid, "video_metadata": [metadata]}, 0)
    (expanded,), _ = processor.get_text_with_replacements([text], videos_replacements=[replacement])
    return str(expanded)


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", MERGED)
@pytest.mark.parametrize("n_frames", [4, 5])
def test_language_model_reads_a_video_as_transformers_does(
    video_models: TinyVideoModels, family: str, n_frames: int
) -> None:
    import transformers

    path, frames = video_models(family), noise(n_frames, 16, 24)
    source = Model(path, f"{PLACE}\n{TEXT}", video=frames)
    loaded, inputs = source.load_inputs()
    assert isinstance(inputs, MediumInputs)
    reader = inputs.reader
    assert isinstance(reader, VideoReader)
    size = reader.size(Video.open(frames), n_frames)
    resized = [np.asarray(Image.fromarray(each).resize(size[::-1], Image.Resampling.BICUBIC)) for each in frames]
    expected = processed(family, resized, 2 / 24)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    text = expanded_by_transformers(
        family, tokenizer, f"{PLACE}\n{TEXT}", expected["video_grid_thw"], [*range(n_frames)], None
    )
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    assert torch.equal(inputs["input_ids"], ids)
    expected |= {"input_ids": ids, "mm_token_type_ids": 2 * (ids == loaded.model.config.video_token_id).long()}
    actual = inputs.arguments
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected if name != "pixel_values_videos")
    assert actual["pixel_values_videos"] == approx(expected["pixel_values_videos"])

    model = getattr(transformers, FAMILIES[family][0]).from_pretrained(path, attn_implementation="eager").eval()
    with torch.no_grad():
        output = model(**actual, output_attentions=True)
        with recording(lambda call: None):
            assert torch.equal(running.run(loaded, inputs)["logits"], output.logits)
    trace = source.trace()
    texts = [layer for layer in trace.layers if layer.name.startswith("text")]
    for layer, own in zip(texts, output.attentions, strict=True):
        assert layer.weights == approx(own[0])
    groups = sorted({patch.place.frames for patch in patches(trace, -1)})
    assert groups == ([(0, 1), (2, 3)] if n_frames == 4 else [(0, 1), (2, 3), (4, 4)])


@pytest.mark.parametrize("family", MERGED)
def test_frames_as_a_video_have_the_numbers_that_they_have_as_pictures(
    video_models: TinyVideoModels, family: str
) -> None:
    pytest.importorskip("attention.vision", reason="no feature reads pictures")
    frames, path = noise(2, 16, 24)[[0, 0]], video_models(family)
    _, of_video = Model(path, TEXT, video=frames).load_inputs()
    _, of_picture = Model(path, TEXT, image=Image.fromarray(frames[0])).load_inputs()
    if (
        family == "Qwen3-VL"
    ):  # whose limit of pixels is of all frames together, and whose colours have another mean in a picture
        assert of_video.arguments["video_grid_thw"][0, 1:].prod() < of_picture.arguments["image_grid_thw"][0, 1:].prod()
        return
    assert torch.equal(of_video.arguments["video_grid_thw"], of_picture.arguments["image_grid_thw"])
    assert torch.equal(of_video.arguments["pixel_values_videos"], of_picture.arguments["pixel_values"])


def test_two_frames_share_a_map_as_in_the_issue_about_it() -> None:
    """QwenLM/Qwen3-VL#1097: of 8 frames with the grid [4, 24, 46], 1,104 tokens are in the text, and "138 for each frame" has no rows and columns."""
    import transformers

    from attention.models.seen_pixels import read_merged

    processor = transformers.models.qwen2_vl.image_processing_pil_qwen2_vl.Qwen2VLImageProcessorPil(patch_size=4)
    grid, n_patches = torch.tensor([[4, 24, 46]]), 4 * 24 * 46

    def see(_: int, at: int, frames: torch.Tensor) -> Any:
        assert frames.shape == (2, 3, 96, 184)
        return at

    read = read_merged(("pixels", "grid"), {"pixels": torch.zeros(n_patches, 96), "grid": grid}, processor, 0, see)
    assert (len(read.in_text), read.n_in_text, read.lengths) == (1104, (1104,), (1104,) * 4)
    of_first = [token for token in read.in_text if isinstance(token, Patch) and token.picture == 0]
    assert len(of_first) == 276 == 12 * 23
    assert [(token.row, token.column) for token in of_first[21:25]] == [(0, 21), (0, 22), (1, 0), (1, 1)]


def test_positions_in_time_are_those_that_transformers_documents(video_models: TinyVideoModels) -> None:
    """The example of `get_rope_index`, three groups of 2 × 2 tokens, and the case of transformers#48669: groups of half a second are told apart."""
    path = video_models("Qwen2.5-VL")
    loaded, inputs = Model(
        path, TEXT, video=Video.open(encoded(moving_bar(6, 16, 16), fps=1, codec="libvpx-vp9", kind="webm"))
    ).load_inputs()
    arguments = inputs.arguments
    assert arguments["second_per_grid_ts"].tolist() == [2.0]  # two frames of a video of one frame a second
    at = arguments["mm_token_type_ids"] == 2

    def temporal(tokens_per_second: int, seconds: float) -> list[int]:
        loaded.model.config.vision_config.tokens_per_second = tokens_per_second
        names = ("input_ids", "mm_token_type_ids", "video_grid_thw")
        own = {name: arguments[name] for name in names}
        positions, _ = loaded.model.model.get_rope_index(**own, second_per_grid_ts=torch.tensor([seconds]))
        of_video = positions[0][at]
        return [int(each) for each in of_video - of_video[0]]

    n_tokens = int(arguments["video_grid_thw"][0, 1:].prod()) // 4
    assert temporal(25, 2.0) == [number for number in (0, 50, 100) for _ in range(n_tokens)]
    assert temporal(2, 0.5) == [number for number in (0, 1, 2) for _ in range(n_tokens)]


@pytest.mark.parametrize("family", MERGED)
def test_groups_of_frames_see_themselves_only_in_the_vision_transformer(
    video_models: TinyVideoModels, family: str
) -> None:
    trace = Model(video_models(family), TEXT, video=noise(4, 16, 24)).trace()
    layer = trace.layers[1]  # the last of the vision transformer, without windows
    whose = torch.tensor([token.picture for token in patches(trace, 1)])
    assert len(whose) == len(layer.tokens)
    assert (layer["weights"][:, whose[:, None] != whose] == 0).all()
    assert (layer["weights"][:, whose[:, None] == whose] > 0).all()


def test_sampling_of_language_models_is_that_of_their_processors(video_models: TinyVideoModels) -> None:
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
    from transformers.video_utils import VideoMetadata

    def sampled(family: str, n_frames: int, fps: float | None) -> tuple[int, ...]:
        from dataclasses import replace

        loaded, _ = Model(video_models(family), TEXT, video=FRAMES).load_inputs()
        reader = next(each for each in loaded.readers if isinstance(each, VideoReader))
        return reader.sample(replace(Video.open(FRAMES), n_frames=n_frames, fps=fps)).indices

    for total, fps in ((48, 12.0), (300, 29.97), (9, 30.0), (5, 25.0)):
        metadata = VideoMetadata(total_num_frames=total, fps=fps)
        assert list(sampled("Qwen3-VL", total, fps)) == Qwen3VLVideoProcessor().sample_frames(metadata).tolist()
    # The lines of `Qwen2VLVideoProcessor.sample_frames`, whose module needs torchvision, by hand: 48 frames of 12 a second are 4 s, at 2 a second 8.
    assert sampled("Qwen2-VL", 48, 12.0) == (0, 6, 12, 18, 24, 30, 36, 42)
    assert sampled("Qwen2-VL", 7, 30.0) == (0, 1, 3, 5)  # at least four
    assert sampled("Qwen2-VL", 100, None) == tuple(range(100))  # pictures are read as they are given


def test_times_stand_in_the_text_of_qwen3(video_models: TinyVideoModels) -> None:
    source = Model(video_models("Qwen3-VL"), TEXT, video=LONG)
    trace = source.trace()
    written = "".join(token.replace("·", " ") for token in trace.layers[-1].tokens if not isinstance(token, Patch))
    # Two frames a second of 48 frames, evenly from the first to the last: 0, 7, 13, 20, 27, 34, 40, 47.
    for seconds in ("<0.3 seconds>", "<1.4 seconds>", "<2.5 seconds>", "<3.6 seconds>"):
        assert seconds in written
    assert (
        trace.layers[-1].tokens.count("<|vision_start|>") == 5
    )  # that of the user around those of the groups, as in its processor


def test_several_readers_of_one_model(video_models: TinyVideoModels) -> None:
    pytest.importorskip("attention.vision", reason="no feature reads pictures")
    path = video_models("Qwen2-VL")
    loaded, _ = Model(path, TEXT, video=FRAMES).load_inputs()
    assert [reader.medium.field for reader in loaded.readers] == ["image", "video"]
    with pytest.raises(ConfigError, match="reads a picture and a text"):
        Model(path, TEXT).load()


def test_refusals_say_what_to_do(video_models: TinyVideoModels) -> None:
    from transformers import TimesformerConfig, TimesformerModel, VideoMAEForPreTraining

    small: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "intermediate_size": 48,
    }
    timesformer = shaken(TimesformerModel, TimesformerConfig(**small, image_size=12, patch_size=4, num_frames=8))

    cases: list[tuple[Any, str]] = [
        (lambda: Model.of(timesformer, frame_processor(""), video=FRAMES), "reads videos with models of the families .*videomae.*; TimesformerModel is a timesformer"),
        (lambda: Model(video_models("VideoMAE"), "a text", video=FRAMES).load(), "reads a video and no text"),
        (lambda: Model(video_models("VideoMAE")).load(), "reads a video: give it as video="),
        (lambda: Model.of(tiny("VideoMAE"), None, video=FRAMES), "needs the processor of a model that reads videos"),
        (lambda: Model.of(shaken(VideoMAEForPreTraining, tiny("VideoMAE").config), frame_processor(""), video=FRAMES), "give the model inside of it"),
        (lambda: Model(video_models("Qwen3-VL"), TEXT, video=FRAMES[:1]).trace(), "reads 2 to 768 frames"),
        (lambda: Model(video_models("VideoMAE"), video=FRAMES, max_tokens=20).trace(), "makes 36 of this video, and a video cannot be cut"),
        (lambda: Model(video_models("Qwen2-VL"), TEXT, video=FRAMES, max_tokens=20).trace(), "of this video and its text"),
        (lambda: Model(video_models("Qwen2-VL"), f"{PLACE} {PLACE}", video=FRAMES).trace(), "has 2 places for a video"),
        (lambda: Model.of(tiny("VideoMAE"), frame_processor("VideoMAE", crop_size={"height": 9999, "width": 9999}), video=FRAMES), "at most 1024 pixels"),
    ]  # fmt: skip
    for make, words in cases:
        with pytest.raises(AttentionError, match=words):
            make()


def test_video_and_its_trace_pickle_and_save(video_models: TinyVideoModels, tmp_path: Any) -> None:
    from attention import File

    trace = Model(video_models("ViViT"), video=LONG).trace()
    copied = pickle.loads(pickle.dumps(trace.tokens))
    assert copied == trace.tokens
    assert places(copied) == places(trace.tokens)
    for ending in ("npz", "safetensors"):
        trace.save(tmp_path / f"video.{ending}")
        read = File.open(tmp_path / f"video.{ending}").trace()
        assert read.tokens == trace.tokens
        assert places(read.tokens) == places(trace.tokens)
        assert [(each.noun, each.time) for each in read.pictures] == [(each.noun, each.time) for each in trace.pictures]
