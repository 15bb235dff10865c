"""Sounds on the pages: links with one of ours, uploads, what is heard, and copied programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import state_of_address
from margins import approx
from streamlit.testing.v1 import AppTest
from test_pages import PAGES, drawn, opened, said
from tiny_sounds import TinySoundModels, encoded, noise

from attention import Cell, Model
from attention.base.errors import AwaitedError
from attention.export.program import python
from attention.models import running
from attention.sound.examples import EXAMPLES, example_sound
from attention.sound.sound_file import Sound
from attention.sources.registry import source_of
from pages.ui.server.limits import LIMITS

WAV2VEC2 = {"source": "model", "model": "tiny-wav2vec2"}
SPEECH = encoded(noise(0.5, 8_000), 8_000, "FLAC")


def uploaded(app: AppTest, name: str, content: bytes) -> AppTest:
    """The page after an upload of a sound."""
    key = next(field.key for field in app.file_uploader if str(field.key).startswith("sound_upload"))
    app.file_uploader(key=key).upload(name, content, "audio/wav").run()
    assert not app.exception
    return app


def captions(app: AppTest) -> str:
    return " ".join(caption.value for caption in app.caption).replace("\\", "")


def heard(app: AppTest) -> list[str]:
    """The captions of the players beside the maps."""
    words = [caption.value for caption in app.caption]
    return [each for each in words if each.startswith("Hear the") or "end of the sound" in each]


@pytest.mark.quick
def test_example_sounds_are_the_same_everywhere() -> None:
    digests = {name: example_sound(name).digest for name in EXAMPLES}
    assert digests == {
        "rising-tones": "d4a28499baa31fa846a319fb2be9ed6a",
        "call-and-answer": "a87adc0832794b65b58ce56bd37946cd",
        "odd-tone": "dbaf1c880421f5d4880f00b376ec6b52",
    }


@pytest.mark.parametrize("model", ["tiny-wav2vec2", "tiny-ast"])
def test_model_of_ours_reads_a_sound_of_ours(model: str) -> None:
    app = opened("app.py", source="model", model=model, sound="example:odd-tone", q="20", k="5")
    assert not app.error
    assert "random weights" in captions(app)
    assert "The sound as the model saw it: 3.00 s at 16,000 samples in a second" in captions(app)
    over = [figure for figure in drawn(app) if figure["layout"].get("images")]
    assert [figure["layout"]["title"]["text"].split("  ")[1] for figure in over] == ["weights over the sound"]
    assert over[0]["layout"]["xaxis"]["title"]["text"] == "s"
    assert len(app.get("audio")) == 3  # all of the sound, the query and the key
    assert [area.label for area in app.text_area] == []


def test_seconds_of_query_and_key_are_heard() -> None:
    link = WAV2VEC2 | {"sound": "example:rising-tones"}
    assert heard(opened("app.py", **link, q="40", k="3")) == [
        "Hear the query, 0.70–0.92 s",
        "Hear the key, 0.00–0.18 s",
    ]
    assert heard(opened("app.py", **link, q="40", k="40")) == ["Hear the query and the key, 0.70–0.92 s"]
    # Of an AST: [CLS] is nowhere.
    patches = {"source": "model", "model": "tiny-ast", "sound": "example:rising-tones"}
    assert heard(opened("app.py", **patches, q="0", k="10")) == ["Hear the key, 0.70–1.06 s"]


def test_upload_is_read_and_named_in_the_link() -> None:
    app = uploaded(opened("app.py", **WAV2VEC2), "owl.flac", SPEECH)
    digest = Sound.of(SPEECH).digest
    assert state_of_address(app)["sound"] == f"owl.flac:{digest}"
    assert "resampled from 8,000 to 16,000 samples in a second" in said(app)
    words = f"“owl.flac” (0.50 seconds, 8,000 samples in a second, {len(SPEECH):,} bytes) stays in this browser tab"
    assert words in captions(app)
    with pytest.raises(AwaitedError, match=r"shows the sound “owl\.flac” \(digest .*upload it to open"):
        source_of(WAV2VEC2 | {"sound": f"owl.flac:{digest}"}, LIMITS)


@pytest.mark.parametrize(
    ("content", "words"),
    [(SPEECH[:300], "FLAC file is broken or cut off"), (b"OggS" + bytes(99), "got an Ogg file"), (b"", "got an empty file"),
     (encoded(noise(0.01)), "lasts at least 0.025 seconds"), (b"RIFF" + bytes(9 * 2**20), "at most 8 MB")],
)  # fmt: skip
def test_hostile_uploads_end_in_a_sentence(content: bytes, words: str) -> None:
    app = uploaded(opened("app.py", **WAV2VEC2), "hostile.wav", content)
    assert words in said(app).replace("\\", "") + " ".join(error.value for error in app.error)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_shows_a_sound(page: str) -> None:
    app = opened(page, source="model", model="tiny-ast", sound="example:odd-tone")
    assert not app.exception
    assert not app.error


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinySoundModels:
    return TinySoundModels(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("family", ["wav2vec2", "HuBERT", "AST"])
@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_copied_program_reads_the_same_sound(
    models: TinySoundModels, family: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models.folder)
    running.silence_warnings()
    samples, rate = (
        (np.stack([noise(0.4, 22_050), noise(0.4, 22_050, 1)], axis=1), 22_050)
        if kind == "FLAC"
        else (noise(0.4), 16_000)
    )
    Path("a sound").write_bytes(encoded(samples, rate, kind))
    model = Model(models(family), sound="a sound")
    trace = model.trace()
    program = python(model, trace, Cell(1, "weights", 1, 2, 1))
    assert "import attention" not in program
    assert program.isascii()
    assert ("def resampled" in program) == (kind == "FLAC")
    found: dict[str, Any] = {}
    exec(compile(program, "<program>", "exec"), found)
    assert list(found["tokens"]) == list(trace.tokens)
    for step in ("query", "key", "value", "weights", "head_output"):
        assert found[step] == approx(trace[1][step])


def test_copied_program_cuts_a_sound_where_the_lab_does(
    models: TinySoundModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models.folder)
    running.silence_warnings()
    Path("a long sound").write_bytes(encoded(noise(1.0), 16_000, "WAV"))
    model = Model(models("wav2vec2"), sound="a long sound", max_tokens=20)
    trace = model.trace()
    assert len(trace.tokens) == 20
    found: dict[str, Any] = {}
    exec(compile(python(model, trace, Cell(1, "weights", 1, 2, 1)), "<program>", "exec"), found)
    assert found["weights"] == approx(trace[1]["weights"])


def test_program_of_a_sound_without_a_file_names_one(models: TinySoundModels) -> None:
    model = Model(models("wav2vec2"), sound=example_sound("odd-tone"))
    program = python(model, model.trace(), Cell(0, "weights", 0, 0, 0))
    assert 'file = "sound.wav"  # save the sound under this name, in the folder of this program' in program
    assert Sound.of(example_sound("odd-tone").wav()).samples().tolist() == example_sound("odd-tone").samples().tolist()
