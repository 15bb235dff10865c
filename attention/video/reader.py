"""From a video to the tokens of a model: which frames are read, what its processor makes of them, and the tokens with their frames.

A patch is of a group of frames, of which each is drawn as a picture of its own. The processors of videos of transformers need torchvision; the
frames are resized by Pillow here, as those of pictures without torchvision are, and every other step is that of a processor of transformers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from attention.base.errors import AttentionError, ConfigError, ModelError
from attention.base.tokens import Patch
from attention.media import InputReader, Medium, reads_text
from attention.models.in_memory import kind_of
from attention.models.medium_inputs import MediumInputs, ReadInput
from attention.models.seen_pixels import (
    TOKEN_TYPES,
    RawPicture,
    area,
    read_input,
    read_merged,
    seen_picture,
    too_many_tokens,
    unknown_pixels,
    with_places,
    words_of,
)  # fmt: skip
from attention.trace.trace import Axis, SeenPicture
from attention.video.families import FIRST_TOKENS, FRAMES, GRIDS, IN_TEXT, SECONDS, TIMED, VIDEOS, tubelet
from attention.video.film import Video

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

    from attention.models.folder import Folder
    from attention.models.loaded import LoadedModel

_MAX_SIDE = 1024  # pixels that a processor may ask for
_MOST_FRAMES = 768  # that a model reads
_RATE = 2.0  # frames a second that a language model reads, unless its processor says otherwise, as in qwen-vl-utils
_RATE_OF_PICTURES = 24.0  # frames a second that the processors of language models assume of frames without times


class FramePlace(NamedTuple):
    """Where a patch of a video is.

    Attributes:
        frames: the first and the last of its frames, as the model counts those that it reads.
        row: of the grid of patches, from zero at the top.
        column: of the grid of patches, from zero at the left.
        box: left, top, right and bottom in the pixels that the model saw; right and bottom are outside.
        seconds: from the first of its frames until the first of the next patch in time; None where frames have no times.
    """

    frames: tuple[int, int]
    row: int
    column: int
    box: tuple[int, int, int, int]
    seconds: tuple[float, float] | None

    @property
    def short(self) -> str:
        """Frames, row and column, such as "f2–3 1,4"."""
        first, last = self.frames
        return f"f{first}{f'–{last}' * (last > first)} {self.row},{self.column}"


def place_of(seen: SeenPicture, patch: Patch) -> FramePlace:
    """The place of a patch of a group of frames that the model saw."""
    time = seen.time or Axis("frame", 0, 1, ("0",))
    numbers = [int(each) for each in time.names if each.isdigit()] or [0]
    seconds = (time.start, time.stop) if time.unit == "s" else None
    return FramePlace((numbers[0], numbers[-1]), patch.row, patch.column, patch.box, seconds)


class Sample(NamedTuple):
    """The frames of a video that a model reads.

    Attributes:
        indices: in the video, not descending; a short video has some twice.
        rate: frames a second of the video, as the model is told.
    """

    indices: tuple[int, ...]
    rate: float


class VideoReader(InputReader):
    """How a model of a declared family reads a video.

    Attributes:
        settings: of its processor of videos, by their names in its file; those of the family where there are none.
        processor: of transformers, which makes numbers of frames.
        first_tokens: the tokens of a video transformer before the patches.
        tubelet: frames, height and width in pixels of a patch.
        n_frames: how many frames a video transformer reads; 0 for a language model, which reads any number.
        is_timed: whether the time of each group of frames stands in the text.
        window_size: the side in pixels of the windows in which some layers attend; 0 without windows.
    """

    token_type = 2

    def __init__(self, medium: Medium, model: Any, settings: dict[str, Any]) -> None:
        config, arguments = model.config, signature(model.forward).parameters
        self.medium, self.reads_text, self.settings = medium, reads_text(model), settings
        self.types_argument = TOKEN_TYPES if TOKEN_TYPES in arguments else ""
        self.is_timed, self.is_told_seconds = config.model_type in TIMED, SECONDS in arguments
        self.token_id, self.window_size, self.in_turn = None, 0, False
        self.first_tokens: tuple[str, ...] = ()
        if config.model_type in IN_TEXT:
            self.processor = _merging_processor(settings)
            side = self.processor.patch_size
            self.tubelet = int(self.processor.temporal_patch_size), side, side
            self.n_frames = 0
            self.token_id = config.video_token_id
            self.window_size = getattr(config.vision_config, "window_size", 0)
            self.in_turn = self.window_size > 0
        else:
            self.processor = _processor(config.model_type, settings)
            self.tubelet, self.n_frames = tubelet(config), int(config.num_frames)
            side = config.image_size
            height, width = map(int, side if isinstance(side, list | tuple) else (side, side))
            self.image_size = height, width
            self.first_tokens = FIRST_TOKENS[config.model_type](config)

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The tokens of a video that are no patches."""
        return self.first_tokens

    def probe(self) -> Video:
        """A video of which every patch is another."""
        import numpy as np

        frames, rows, columns = np.indices((4, 32, 64), dtype=np.uint8)
        return Video.open(np.stack([rows * 8, columns * 4, rows * columns + 60 * frames], axis=-1))

    def inputs(
        self, loaded: LoadedModel, given: Sequence[Video], text: str, max_tokens: int
    ) -> tuple[MediumInputs, list[tuple[str, int]], list[str]]:
        """As `InputReader.inputs`."""
        if len(given) > 1:
            raise ConfigError(f"{loaded.name} reads one video at a time; got {len(given)}: make a Model for each.")
        (video,), notes = given, list[str]()
        sample = self.sample(video)
        size = self.size(video, len(sample.indices))
        n_groups = -(-len(sample.indices) // self.tubelet[0])
        n_patches = n_groups * math.prod(length // side for length, side in zip(size, self.tubelet[1:], strict=True))
        n_tokens = n_patches // self.processor.merge_size**2 if self.reads_text else n_patches + len(self.first_tokens)
        if n_tokens > max_tokens:  # before a frame is decoded
            raise too_many_tokens(loaded, self, n_tokens, max_tokens)
        ids = dict[str, Tensor]()
        try:
            read = self._read(video, sample, size)
        except AttentionError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            message = " ".join(str(error).split())[:150]
            raise ModelError(
                f"The processor of {loaded.name} should read these frames, and fails with “{message}”: check its video_preprocessor_config.json."
            ) from error
        ids[self.medium.argument] = torch.arange(len(read.tokens))[None]
        if self.token_id is not None:
            token = str(loaded.tokenizer.convert_ids_to_tokens(self.token_id))
            config = loaded.model.config
            ids_around = [config.vision_start_token_id, config.vision_end_token_id]
            before, after = map(str, loaded.tokenizer.convert_ids_to_tokens(ids_around))
            text, notes = with_places(loaded.name, self.medium, token, f"{before}{token}{after}", text, 1)
            expanded = text.replace(token, self._in_text(sample, read, token, before, after))
            ids["input_ids"] = loaded.tokenizer(expanded, return_tensors="pt", verbose=False)["input_ids"]
            if (length := ids["input_ids"].shape[1]) > max_tokens:
                raise too_many_tokens(loaded, self, length, max_tokens)
            if (count := ids["input_ids"].tolist()[0].count(self.token_id)) != len(read.in_text):
                raise ConfigError(
                    f"The text of {loaded.name} should have {len(read.in_text)} video tokens, and its tokenizer makes {count}: check its files."
                )
        return MediumInputs(ids, read, self), [], [*notes, *self._notes(video, sample)]

    def sample(self, video: Video) -> Sample:
        """The frames that the model reads: as many as a video transformer has been made for, or as many in a second as a processor says.

        Raises:
            ConfigError: a language model would read too few or too many.
        """
        import numpy as np

        total = video.n_frames
        if self.n_frames:  # as the default of transformers samples them, also of a video with fewer
            indices = [index * total // self.n_frames for index in range(self.n_frames)]
            return Sample(tuple(indices), video.fps or 0)
        group, told = self.tubelet[0], self.settings
        n_read = total
        if video.fps is not None:
            wanted = total / video.fps * float(told.get("fps") or _RATE)
            least, most = int(told.get("min_frames") or 4), min(int(told.get("max_frames") or _MOST_FRAMES), total)
            if self.is_timed:  # as `Qwen3VLVideoProcessor.sample_frames`
                n_read = min(max(int(wanted), least), most)
            else:  # as `Qwen2VLVideoProcessor.sample_frames`
                n_read = math.floor(min(max(wanted, least), most // group * group) / group) * group
        if not (group if self.is_timed else 1) <= n_read <= _MOST_FRAMES:
            raise ConfigError(
                f"The model reads {group} to {_MOST_FRAMES} frames; this video gives {n_read:,}: choose another part of it, or give fewer frames."
            )
        if self.is_timed and n_read < total:
            indices = np.linspace(0, total - 1, n_read).round().astype(int).tolist()
        else:
            indices = torch.arange(0, total, total / n_read).int().tolist()
        return Sample(tuple(indices), video.fps or _RATE_OF_PICTURES)

    def size(self, video: Video, n_frames: int) -> tuple[int, int]:
        """The height and width to which frames are brought, in pixels."""
        if self.n_frames:
            return self.image_size
        limits = {
            "min_pixels": self.settings["size"]["shortest_edge"],
            "max_pixels": self.settings["size"]["longest_edge"],
        }
        factor = self.processor.patch_size * self.processor.merge_size
        if self.is_timed:
            from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as resize_all

            height, width = resize_all(n_frames, video.height, video.width, self.tubelet[0], factor, **limits)
        else:
            from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

            height, width = smart_resize(video.height, video.width, factor, **limits)
        return int(height), int(width)

    def _read(self, video: Video, sample: Sample, size: tuple[int, int]) -> ReadInput:
        """The frames as the model reads them."""
        group, pixels, first = self.tubelet[0], list[Tensor](), None
        for rgb in video.frames(sample.indices):
            first = rgb if first is None else first
            pixels.append(self._pixels(rgb, size))
        if first is None or len(pixels) < len(sample.indices):
            raise ModelError("The video has fewer frames than it had when it was opened: open it again.")
        raw, words = RawPicture(first, video.digest), list[str]()
        n_groups = len(pixels) // group if self.n_frames else -(-len(pixels) // group)

        def see(_: int, at: int, frames: Tensor) -> SeenPicture:
            words[:] = words or [words_of(self.processor, raw.rgb, frames[0])]  # the same for all frames
            seen = seen_picture(self.processor, self.tubelet[1:], frames[0], raw, words[0])
            of_all = (
                f"{len(sample.indices)} frames, {words[0]}; {n_groups} × {seen.rows} × {seen.columns} patches "
                f"(groups of frames × rows × columns) of {group} × {seen.patch_size[0]} × {seen.patch_size[1]}"
            )
            return replace(seen, words=of_all, noun=self.medium.noun, time=self._time(video, sample, at))

        if self.n_frames:
            stacked = torch.stack(pixels)
            if tuple(stacked.shape[1:]) != (3, *size):
                raise unknown_pixels()
            seen = [see(0, at, frames) for at, frames in enumerate(stacked.split(group)) if len(frames) == group]
            grids = (area(at, 0, 0, one.rows, one.columns, one.patch_size) for at, one in enumerate(seen))
            patches = [_named(one, patch) for one, grid in zip(seen, grids, strict=True) for patch in grid]
            return read_input({FRAMES: stacked[None]}, seen, [(*self.first_tokens, *patches)], [()])
        pixels += [pixels[-1]] * (-len(pixels) % group)  # as the processors of transformers do
        side = self.processor.patch_size
        # [group frame patch colour frame height width]: alone, a frame stands for all frames of its group
        alone = torch.stack(pixels).unflatten(0, (-1, group)).unflatten(-1, (3, group, side, side))
        joined = alone[:, :, :, :, 0].permute(0, 2, 3, 1, 4, 5).flatten(0, 1).flatten(1)
        grid = torch.tensor([[len(alone), size[0] // side, size[1] // side]])
        read = read_merged(
            (VIDEOS, GRIDS), {VIDEOS: joined, GRIDS: grid}, self.processor, self.window_size, see, _named
        )
        if self.is_told_seconds:
            read.arguments[SECONDS] = torch.tensor([self.seconds_per_group(video, sample)])
        return read

    def seconds_per_group(self, video: Video, sample: Sample) -> float:
        """How many seconds a group of frames lasts, as the model is told."""
        return float(self.tubelet[0]) / (len(sample.indices) / video.n_frames * sample.rate)

    def _pixels(self, rgb: NDArray[uint8], size: tuple[int, int]) -> Tensor:
        """The numbers of a frame: [3 row column], or merged patches [patch colour × frame × height × width] with the same frame at all frames."""
        from PIL import Image

        image = Image.fromarray(rgb)
        if not self.reads_text:
            pixels: Tensor = self.processor([image], return_tensors="pt")[FRAMES]
            return pixels[0, 0]
        if image.size != size[::-1]:
            image = image.resize(size[::-1], self.settings.get("resample", Image.Resampling.BICUBIC))
        patches: Tensor = self.processor(image, return_tensors="pt")["pixel_values"]
        return patches

    def _time(self, video: Video, sample: Sample, group: int) -> Axis:
        """When a group of frames is seen."""
        length, indices = self.tubelet[0], sample.indices
        first, after = group * length, min((group + 1) * length, len(indices))
        names = tuple(map(str, range(first, after)))
        if video.fps is None:
            return Axis("frame", first, after, names)
        start = indices[first] / video.fps
        stop = (indices[after] if after < len(indices) else video.n_frames) / video.fps
        return Axis("s", start, max(stop, start + 1 / video.fps), names)

    def _in_text(self, sample: Sample, read: ReadInput, token: str, before: str, after: str) -> str:
        """What stands in a text for a video token: the tokens of the video; in some families those of each group of frames after its time."""
        if not self.is_timed:
            return token * len(read.in_text)
        group, times = self.tubelet[0], [index / sample.rate for index in sample.indices]
        times += [times[-1]] * (-len(times) % group)
        middles = [(times[i] + times[i + group - 1]) / 2 for i in range(0, len(times), group)]
        n_tokens = len(read.in_text) // len(middles)
        return "".join(f"<{middle:.1f} seconds>{before}{token * n_tokens}{after}" for middle in middles)

    def _notes(self, video: Video, sample: Sample) -> Iterator[str]:
        indices, total = sample.indices, video.n_frames
        if len({*indices}) < len(indices):
            yield f"The model reads {len(indices)} frames, and the video has {total}: some are read twice."
        elif len(indices) == total:
            yield f"All {total} frames are read."
        else:
            every = ", ".join(map(str, indices[:3]))
            apart = (
                ""
                if video.fps is None
                else f", about every {(indices[-1] - indices[0]) / max(1, len(indices) - 1) / video.fps:.3g} s"
            )
            yield f"{len(indices)} of {total:,} frames are read{apart}: {every}, … {indices[-1]} of the video are the frames 0, 1, 2, … {len(indices) - 1}."
        if self.tubelet[0] > 1:
            yield f"{self.tubelet[0]} frames share each patch, and so one map; the first of them is drawn."
        if video.fps is None and (self.is_timed or self.is_told_seconds):
            yield f"The frames have no times: as its processor does, the model is told {_RATE_OF_PICTURES:g} frames a second."


def _named(seen: SeenPicture, patch: Patch) -> Patch:
    """A patch with its frames, as its name and as its place."""
    names = () if seen.time is None else seen.time.names
    text = f"{_frames_words(names)}, row {patch.row}, column {patch.column}"
    return Patch(patch.picture, patch.row, patch.column, patch.box, text, place_of(seen, patch))


def _frames_words(names: Sequence[str]) -> str:
    return f"frame {names[0]}" if len(names) == 1 else f"frames {names[0]}–{names[-1]}"


_DEFAULTS: dict[str, dict[str, Any]] = {
    "videomae": {},
    "vivit": {},
    "qwen2_vl": {"size": {"shortest_edge": 128 * 28 * 28, "longest_edge": 28 * 28 * 768}},
    "qwen2_5_vl": {"size": {"shortest_edge": 128 * 28 * 28, "longest_edge": 28 * 28 * 768}},
    "qwen3_vl": {
        "size": {"shortest_edge": 128 * 32 * 32, "longest_edge": 32 * 32 * 768},
        "patch_size": 16, "image_mean": (0.5,) * 3, "image_std": (0.5,) * 3,
    },
}  # fmt: skip
"""What the processor of videos of a family does unless its file says otherwise, where it differs from its processor of pictures."""


def _merging_processor(settings: dict[str, Any]) -> Any:
    """The processor of merged patches, of frames that have their size already."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    names = ("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std", "patch_size", "temporal_patch_size", "merge_size")  # fmt: skip
    own = {name: settings[name] for name in names if settings.get(name) is not None}
    return Qwen2VLImageProcessorPil(do_resize=False, **own)


def _processor(model_type: str, settings: dict[str, Any]) -> Any:
    """The processor of frames for a video transformer."""
    from transformers.models.videomae.image_processing_pil_videomae import VideoMAEImageProcessorPil
    from transformers.models.vivit.image_processing_vivit import VivitImageProcessor

    own = {name: value for name, value in settings.items() if value is not None}
    return (VivitImageProcessor if model_type == "vivit" else VideoMAEImageProcessorPil)(**own)


def load_reader(medium: Medium, folder: Folder, name: str, model: Any) -> VideoReader:
    """The reader of a model of a declared family, from the files of its folder.

    Raises:
        ModelError: a file is missing or broken, or asks for frames that are too large.
    """
    from transformers.video_processing_utils import BaseVideoProcessor

    try:
        settings, _ = BaseVideoProcessor.get_video_processor_dict(folder.path, local_files_only=True)
        return _reader(medium, model, settings, name)
    except ModelError:
        raise
    except Exception as error:  # a missing or broken file can raise anything in transformers
        raise ModelError(
            f"{name} has no processor of videos that can be read: add its video_preprocessor_config.json or preprocessor_config.json to the folder."
        ) from error


def reader_of(medium: Medium, model: Any, processor: Any) -> tuple[VideoReader, Any]:
    """The reader of a model in memory, and the part of its user's processor that reads videos, or pictures where it has none of videos.

    Raises:
        ModelError: it has none, or asks for frames that are too large.
    """
    parts = (getattr(processor, "video_processor", None), processor, getattr(processor, "image_processor", None))
    for part in parts:
        if part is not None and hasattr(part, "image_mean") and hasattr(part, "to_dict"):
            return _reader(medium, model, part.to_dict(), type(model).__name__), part
    raise ModelError(
        f"Model.of needs the processor of a model that reads videos, such as {type(model).__name__}; got {kind_of(processor)}: "
        f"load it with {'AutoProcessor' if reads_text(model) else 'AutoImageProcessor'}.from_pretrained(…)."
    )


def _reader(medium: Medium, model: Any, settings: dict[str, Any], name: str) -> VideoReader:
    """The reader with these settings of a processor, checked before anything of their sizes is allocated."""
    if type(model).__name__.endswith("ForPreTraining"):
        raise ModelError(
            f"{name} is trained to fill in patches that are hidden from it, and reads no video without them: give the model inside of it, as "
            f"Model.of({type(model).__name__.removesuffix('ForPreTraining')}Model.from_pretrained(…), processor, video=…)."
        )
    model_type = model.config.model_type
    settings = _DEFAULTS[model_type] | {key: value for key, value in settings.items() if value is not None}
    if model_type in IN_TEXT:
        size = dict(settings["size"])
        for edge, older in (("shortest_edge", "min_pixels"), ("longest_edge", "max_pixels")):
            size[edge] = settings.get(older) or size[edge]
        settings["size"] = size
        if settings.get("cap_pixels_per_frame") or settings.get("num_frames") or settings.get("do_resize") is False:
            raise ModelError(
                f"The processor of {name} asks for cap_pixels_per_frame, for num_frames or for no resizing, which the Lab does not read for videos: change its video_preprocessor_config.json."
            )
        return VideoReader(medium, model, settings)
    reader = VideoReader(medium, model, settings)
    sides = [
        side for sizes in (reader.processor.size, reader.processor.crop_size) for side in dict(sizes).values() if side
    ]
    if (
        not reader.processor.do_resize
        or not all(0 < side <= _MAX_SIDE for side in sides)
        or not 0 < reader.n_frames <= _MOST_FRAMES
    ):
        raise ModelError(
            f"A processor resizes each of at most {_MOST_FRAMES} frames to at most {_MAX_SIDE} pixels; that of {name} does not: choose another model, or change its preprocessor_config.json."
        )
    return reader
