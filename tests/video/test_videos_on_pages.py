"""Videos on pages, in links and in copied programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from margins import approx
from PIL import Image
from tiny_pictures import MERGED
from tiny_videos import TinyVideoModels, animated, encoded, moving_bar, noise

from attention import Model
from attention.base.errors import AwaitedError
from attention.base.knobs import Limits
from attention.export.program import python
from attention.formula.names import Cell
from attention.media import medium_of
from attention.models import running
from attention.models.library import LIBRARY, Settings
from attention.sources.reader import Reader, Uploads
from attention.sources.registry import read_source, source_of

LIMITS = Limits(tokens=2048, characters=2000, d_model=64, heads=8, trace_mb=2048)
CLIP = encoded(moving_bar(), fps=8)


def test_link_names_a_video_of_ours_or_an_uploaded_one() -> None:
    link = {"source": "model", "model": "tiny-videomae", "video": "example:odd-frame"}
    source, notes = source_of(link, LIMITS)
    assert not notes
    assert source.no_link_reason == ""
    medium = medium_of("video")
    assert isinstance(source, Model)
    assert source.given == (medium.example("odd-frame"),)
    clip = medium.open(CLIP, "clip.mp4")
    name = medium.link_name(clip)
    assert name == f"clip.mp4:{clip.digest}"
    with pytest.raises(AwaitedError, match="shows the video “clip"):
        source_of(link | {"video": name}, LIMITS)
    source = read_source(Reader(link | {"video": name}, LIMITS, Uploads(given={("video", name): clip})))
    assert isinstance(source, Model)
    assert source.given == (clip,)


def test_link_says_whether_a_language_model_reads_a_picture_or_a_video(
    video_models: TinyVideoModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("attention.vision", reason="no feature reads pictures")
    monkeypatch.setattr(LIBRARY, "settings", Settings())  # a page of another test leaves those of an operator
    link = {"source": "model", "model": video_models("Qwen2-VL"), "text": "what moves"}

    def field(reads: dict[str, str]) -> tuple[str, int]:
        source, notes = source_of(link | reads, LIMITS)
        assert isinstance(source, Model)
        assert source.medium is not None
        return source.medium.field, len(notes)

    assert field({}) == ("image", 0)
    assert field({"reads": "video"}) == ("video", 0)
    assert field({"reads": "sound"}) == ("image", 1)


@pytest.mark.sample(5)
@pytest.mark.parametrize("family", ["VideoMAE", "ViViT", *MERGED])
@pytest.mark.parametrize("kind", ["mp4", "webp", ""])
def test_copied_program_computes_the_same_weights(
    video_models: TinyVideoModels, family: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, folder = video_models(family), video_models.folder
    monkeypatch.chdir(folder)
    running.silence_warnings()
    frames = noise(9, 16, 24)
    given: Any = {"mp4": CLIP, "webp": animated(frames, "WebP", lossless=True)}.get(kind, frames[:5])
    if kind:
        Path(f"clip.{kind}").write_bytes(given)
        given = f"clip.{kind}"
    else:
        Path("frames").mkdir(exist_ok=True)
        for index, frame in enumerate(given):
            Image.fromarray(frame).save(f"frames/{index}.png")
    source = Model(model, "the owl asked" if family in MERGED else "", video=given)
    trace = source.trace()
    index = len(trace.layers) - 1
    program = python(source, trace, Cell(index, "weights", 1, 2, 1))
    assert program.isascii()
    assert "import attention" not in program
    found: dict[str, Any] = {}
    exec(compile(program, "<snippet>", "exec"), found)
    assert list(found["tokens"]) == list(trace.layers[index].tokens)
    for step in ("query", "weights", "head_output"):
        assert found[step] == approx(trace.layers[index][step])
