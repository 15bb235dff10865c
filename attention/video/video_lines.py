"""The lines of a copied program that read the frames of a video and give them to the processor of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attention.program import literals

if TYPE_CHECKING:
    from attention.video.film import Video
    from attention.video.reader import VideoReader

_UNNAMED = "frames"
"""The folder with the frames of a video that was given without a file."""


def imports(videos: Sequence[Video]) -> list[str]:
    """The lines that import what `input_lines` needs for some videos, beside transformers."""
    kinds = {_reader_of(video) for video in videos}
    return [*(["import av"] if "av" in kinds else []), "from PIL import Image" + ", ImageSequence" * ("gif" in kinds)]


def input_lines(reader: VideoReader, videos: Sequence[Video], variable: str) -> list[str]:
    """The lines that make the arguments of a model from its video."""
    (video,) = videos
    sample = reader.sample(video)
    chosen = literals.wrap_items("chosen = [", map(str, sample.indices), "]")
    lines = [*_frame_lines(video), *chosen, "frames = [frames[i] for i in chosen]"]
    if not reader.reads_text:
        return [
            *lines,
            'processor = AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)  # without torchvision',
            f'{variable}_inputs = processor(frames, return_tensors="pt")  # as the model sees it',
        ]
    height, width = reader.size(video, len(sample.indices))
    group, (_, side, _) = reader.tubelet[0], reader.tubelet
    options = {
        name: getattr(reader.processor, name)
        for name in ("patch_size", "temporal_patch_size", "merge_size", "image_mean", "image_std")
    }
    lines += [
        f"frames += [frames[-1]] * (-len(frames) % {group})  # {group} share each patch",
        f"frames = [frame.resize(({width}, {height}), Image.Resampling.BICUBIC) for frame in frames]",
        f'processor = AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True, **{options!r})',
        'patches = processor(images=frames, return_tensors="pt", do_resize=False)["pixel_values"]',
        "# [group frame patch colour frame height width]: alone, a frame stands for all frames of its group",
        f"patches = patches.view(-1, {group}, {height // side * (width // side)}, 3, {group}, {side}, {side})[:, :, :, :, 0]",
        f"{variable}_inputs = {{",
        '    "pixel_values_videos": patches.permute(0, 2, 3, 1, 4, 5).flatten(0, 1).flatten(1),',
        f'    "video_grid_thw": torch.tensor([[{-(-len(sample.indices) // group)}, {height // side}, {width // side}]]),',
    ]
    if reader.is_told_seconds:
        lines.append(f'    "second_per_grid_ts": torch.tensor([{reader.seconds_per_group(video, sample)!r}]),')
    return [*lines, "}"]


def _reader_of(video: Video) -> str:
    return {"MP4": "av", "WebM": "av", "GIF": "gif", "WebP": "gif"}.get(video.kind, "")


def _frame_lines(video: Video) -> list[str]:
    """The lines that assign all frames to a variable, as images of Pillow."""
    is_folder = "" if video.kind else "a folder with the frames as PNG files, in the order of their names,"
    lines = literals.file_lines("video", video.name, _UNNAMED, is_folder)
    match _reader_of(video):
        case "av":
            return [
                *lines,
                "with av.open(file) as container:",
                "    frames = [frame.to_image() for frame in container.decode(video=0)]",
            ]
        case "gif":
            return [
                *lines,
                'layers = [layer.convert("RGBA") for layer in ImageSequence.Iterator(Image.open(file))]',
                'frames = [Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB") for layer in layers]',
            ]
    return [*lines, 'frames = [Image.open(path).convert("RGB") for path in sorted(Path(file).glob("*.png"))]']
