"""Files of torch.save: read in a child process, by names, without their code; and what a child may take."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import child_functions
import numpy as np
import pytest
import safetensors.torch
import torch
from child_functions import aborts, computes, refused, repeated, reports, takes, waits
from margins import approx
from safetensors.torch import load
from test_code import run
from transformers import BatchEncoding, DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from attention import Cell, File, FileError
from attention.base.jobs import JobError, read_foreign
from attention.base.progress import report_progress_to
from attention.export.program import python
from attention.files import torch_file
from attention.files.archives import TORCH_ENDINGS, Archive, open_archive

MB = 2**20
RANDOM = torch.Generator().manual_seed(0)


def weights(*shape: int) -> torch.Tensor:
    return torch.softmax(torch.randn(*shape, generator=RANDOM), -1)


LAYERS = tuple(weights(1, 2, 4, 4) for _ in range(3))
TOKENS = ["the", "cat", "sat", "down"]
STACKED = {"weights": torch.cat(LAYERS), "tokens": TOKENS}


def saved(value: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def read(content: bytes, tmp_path: Path, max_bytes: int = 64 * MB) -> tuple[Archive, dict[str, torch.Tensor]]:
    """The archive and its tensors, in this process."""
    path = tmp_path / "x.pt"
    path.write_bytes(content)
    converted = torch_file._tensors_of(str(path), "“x.pt”", max_bytes)
    return open_archive("x.pt", converted), load(converted)


def output() -> BaseModelOutputWithPastAndCrossAttentions:
    cache = DynamicCache()
    cache.update(torch.zeros(1, 2, 4, 3), torch.ones(1, 2, 4, 3), 0)
    return BaseModelOutputWithPastAndCrossAttentions(torch.zeros(1, 4, 6), cache, attentions=LAYERS)


class Result:
    """A class of somebody's program."""

    def __init__(self) -> None:
        self.attn, self.words = LAYERS[0], TOKENS


def numbered(prefix: str, *more: int) -> set[str]:
    return {f"{prefix}{place}" for place in (*range(len(LAYERS)), *more)}


@pytest.mark.parametrize(
    ("value", "arrays", "metadata"),
    [
        (LAYERS[0], {""}, {}),
        (LAYERS, numbered(""), {}),
        (list(LAYERS), numbered(""), {}),
        ({"attentions": LAYERS, "tokens": TOKENS}, numbered("attentions."), {"tokens": TOKENS}),
        ({"a": {"b": LAYERS[0]}, "a.b": LAYERS[1]}, {"a.b", "a.b_"}, {}),
        ((LAYERS, LAYERS), {f"{step}.{layer}" for step in range(2) for layer in range(3)}, {}),
        (
            output(),
            {*numbered("attentions."), "last_hidden_state", "past_key_values.layers.0.keys", "past_key_values.layers.0.values"},
            {"past_key_values.layers.0.is_initialized": True, "past_key_values.offloading": False},
        ),
        ({"in": BatchEncoding({"input_ids": LAYERS[0]}), "text": "the cat", "n": 3, "none": None}, {"in.data.input_ids"}, {"text": "the cat", "n": 3}),
        (Result(), {"attn"}, {"words": TOKENS}),
        (Namespace(attn=LAYERS[0], lr=0.5), {"attn"}, {"lr": 0.5}),
        ({"tokens": np.array(TOKENS), "x": np.eye(2), "bytes": b"sat"}, {"x"}, {"tokens": TOKENS, "bytes": "sat"}),
        ({"ids": [[1, 2], [3]], "attn": LAYERS[0].tolist()}, {"attn"}, {"ids": [[1, 2], [3]]}),
        ({0: LAYERS[0], "it's": {1: LAYERS[1]}}, {"0", "it's.1"}, {}),
    ],
)  # fmt: skip
def test_nested_values_become_names(value: Any, arrays: set[str], metadata: dict[str, Any], tmp_path: Path) -> None:
    archive, _ = read(saved(value), tmp_path)
    assert set(archive.arrays) == arrays
    assert archive.metadata == metadata
    assert bool(archive.classes) == (not _is_safe(tmp_path / "x.pt")), "the copied program knows whether it needs them"
    for name, entry in archive.arrays.items():
        looked_up = eval(entry.python, {"file": value})
        assert entry.shape == tuple(torch.as_tensor(looked_up).shape), name


def _is_safe(path: Path) -> bool:
    with suppress(pickle.UnpicklingError):
        torch.load(path, weights_only=True)
        return True
    return False


def test_every_kind_of_number_is_read_as_it_is(tmp_path: Path) -> None:
    base = weights(2, 3, 4)
    shared = torch.ones(4, 4).tril()
    value = {
        "half": base.half(), "brain": base.bfloat16(), "double": base.double(), "byte": torch.arange(6, dtype=torch.uint8).reshape(2, 3),
        "word": torch.arange(6).to(torch.uint16).reshape(2, 3), "mask": base > 0.2, "turned": base.mT, "view": base[:, 1:2], "expanded": shared[None].expand(3, 4, 4),
        "shared": shared, "parameter": torch.nn.Parameter(base), "sparse": torch.eye(3).to_sparse(), "scalar": torch.tensor(2.5),
        "fortran": np.asfortranarray(base.numpy()), "big": base.numpy().astype(">f8"),
        "one": np.float64(0.1),
    }  # fmt: skip
    _, tensors = read(saved(value), tmp_path)
    assert tensors.keys() == value.keys()
    for name, entry in value.items():
        is_numpy = isinstance(entry, np.ndarray | np.generic)
        tensor = torch.from_numpy(np.array(entry, entry.dtype.newbyteorder("="))) if is_numpy else entry.detach()
        dense = tensor.to_dense() if tensor.is_sparse else tensor
        assert tensors[name] == approx(dense)


def test_old_files_without_zip_are_read(tmp_path: Path) -> None:
    archive, tensors = read(saved({"attentions": LAYERS}, _use_new_zipfile_serialization=False), tmp_path)
    assert set(archive.arrays) == numbered("attentions.")
    assert torch.equal(tensors["attentions.2"], LAYERS[2])
    with pytest.raises(
        FileError,
        match=r"objects of transformers.modeling_outputs.BaseModelOutputWithPastAndCrossAttentions, whose code",
    ):
        read(saved(output(), _use_new_zipfile_serialization=False), tmp_path)


class Attack:
    """A pickle that runs code."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


def attacks(path: Path) -> dict[str, Attack]:
    return {
        "system": Attack(os.system, f"touch {path}"),
        "eval": Attack(eval, f"open({str(path)!r}, 'w')"),
        "open": Attack(open, str(path), "w"),
        "a function of ours": Attack(child_functions.takes, 3),
    }


@pytest.mark.parametrize("name", attacks(Path()))
@pytest.mark.parametrize("zipped", [True, False])
def test_no_code_of_a_file_runs(name: str, zipped: bool, tmp_path: Path) -> None:
    made = tmp_path / "made"
    attack = attacks(made)[name]
    content = saved({"attack": attack, "attn": LAYERS[0]}, _use_new_zipfile_serialization=zipped)
    with suppress(FileError):
        archive, _ = read(content, tmp_path)
        assert set(archive.arrays) == {"attn"}, "the class is replaced"
        assert archive.classes
    assert not made.exists()


def zip_of(content: bytes, change: Callable[[str, bytes], bytes | None], method: int = zipfile.ZIP_STORED) -> bytes:
    """A file of torch.save with other entries."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w", method) as new:
        for name in old.namelist():
            if (changed := change(name, old.read(name))) is not None:
                new.writestr(name, changed)
    return file.getvalue()


def without(part: str) -> Callable[[str, bytes], bytes | None]:
    return lambda name, content: None if part in name else content


def with_pickle(pickled: bytes) -> bytes:
    return zip_of(saved(LAYERS[0]), lambda name, content: pickled if name.endswith("data.pkl") else content)


def script() -> bytes:
    file = io.BytesIO()
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), file)
    return file.getvalue()


def npz() -> bytes:
    file = io.BytesIO()
    np.savez(file, weights=np.eye(3))
    return file.getvalue()


LAUGHS = b"\x80\x02]q\0" + b"".join(b"(" + b"h%c" % n * 20 + b"tq%c" % (n + 1) for n in range(12)) + b"."
PARAMETERS = torch.nn.TransformerEncoderLayer(8, 2).state_dict()
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "it is empty"),
    "a text": (lambda: b"hello", "it begins with b'hell'"),
    "half a file": (lambda: saved(LAYERS)[:2000], "its end is missing"),
    "another zip": (npz, "a zip archive without data.pkl"),
    "missing numbers": (lambda: zip_of(saved(LAYERS[0]), without("data/0")), "torch cannot read it"),
    "compressed": (lambda: zip_of(saved(LAYERS), lambda _, content: content, zipfile.ZIP_DEFLATED), "compressed after torch.save"),
    "damaged pickle": (lambda: with_pickle(b"\x80\x02garbage"), "torch cannot read it"),
    "pickle of another library": (lambda: pickle.dumps({"a": 1}), "torch cannot read it"),
    "billion laughs": (lambda: with_pickle(LAUGHS), "more than 1,048,576 values"),
    "a list of itself": (lambda: with_pickle(b"\x80\x02]q\0h\0a."), "lists more than 16 deep"),
    "expanded to terabytes": (lambda: saved(torch.zeros(1).expand(MB, MB)), "4,194,304 MB of tensors, the largest 1,048,576 × 1,048,576; at most 64 MB"),
    "many tensors": (lambda: saved([LAYERS[0]] * 8193), "8,193 tensors; at most 8,192"),
    "a long text": (lambda: saved({"attn": LAYERS[0], "log": "x" * 2 * MB}), "bytes of names and texts; .* without log"),
    "no tensor": (lambda: saved({"tokens": TOKENS}), "has no tensor"),
    "TorchScript": (script, "a TorchScript model"),
    "state dict": (lambda: saved(PARAMETERS), r"parameters of a model \(12 tensors such as self_attn.in_proj_weight\), not attention"),
    "module": (lambda: saved(torch.nn.Linear(3, 3)), "parameters of a model"),
    "checkpoint": (lambda: saved({"model": PARAMETERS, "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}}, "epoch": 3}), "parameters of a model"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_files_get_one_sentence(name: str, tmp_path: Path) -> None:
    make, reason = REFUSED[name]
    with pytest.raises(FileError, match=reason) as error:
        read(make(), tmp_path)
    assert str(error.value).startswith("“x.pt” ")
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 400


def test_attention_beside_a_state_is_read(tmp_path: Path) -> None:
    archive, _ = read(saved({"state_dict": PARAMETERS, "attn": LAYERS[0]}), tmp_path)
    assert "attn" in archive.arrays
    archive, _ = read(saved({"layer.attn.weight": LAYERS[0]}), tmp_path)
    assert "layer.attn.weight" in archive.arrays


def test_file_of_torch_opens_on_the_machine_of_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "attn.pt"
    content = saved(STACKED)
    path.write_bytes(content)
    reports = list[tuple[str, float]]()
    with report_progress_to(lambda text, fraction: reports.append((text, fraction))):
        file = File.open(path)
    assert reports[0] == ("Opening “attn.pt” in a process of its own …", 0.1)
    trace = file.trace()
    assert trace.tokens == tuple(TOKENS)
    assert torch.equal(trace.layers[2]["weights"], LAYERS[2][0])
    assert file == File.of("attn.pt", content, opens_torch=True)
    monkeypatch.chdir(tmp_path)
    program = run(python(file, trace, Cell(2, "weights", 0, 0, 0)))
    assert torch.equal(program["weights"], LAYERS[2][0])


def test_server_says_the_lines_that_convert_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ending in TORCH_ENDINGS:
        with pytest.raises(FileError, match="can run code, so a server does not open it") as error:
            File.of(f"x{ending}", saved(STACKED)).trace()
    for name, value in {"a": STACKED, "b": LAYERS, "c": torch.cat(LAYERS), "d": BaseModelOutputWithPastAndCrossAttentions(attentions=LAYERS)}.items():  # fmt: skip
        (tmp_path / f"{name}.pt").write_bytes(saved(value))
        with pytest.raises(FileError) as error:
            File.of(f"{name}.pt", saved(value)).memory_bytes()
        lines = str(error.value).partition("on your machine, ")[2]
        monkeypatch.chdir(tmp_path)
        exec(
            lines.replace("torch.load(", "load("),
            {"torch": torch, "safetensors": SimpleNamespace(torch=safetensors.torch), "load": _unpickled},
        )
        arrays = load((tmp_path / f"{name}.safetensors").read_bytes())
        (array,) = arrays.values()
        assert torch.equal(array.reshape(3, 2, 4, 4), torch.cat(LAYERS))


def _unpickled(path: str, map_location: str) -> Any:
    return torch.load(path, map_location=map_location, weights_only=False)


@pytest.mark.parametrize(
    "about",
    [
        {"paths": {"weights": [["a", "b"]]}, "classes": []},
        {"paths": {"weights": 3}, "classes": []},
        {"paths": {}, "classes": []},
    ],
)
def test_paths_of_foreign_origin_are_validated(about: Any) -> None:
    with pytest.raises(FileError, match="its names cannot be read"):
        open_archive("x.pt", _disguised(about))


def test_foreign_paths_cannot_write_python() -> None:
    about = {"paths": {"weights": [["__class__); import os"], '"]; import os #']}, "classes": ["x\nimport os"]}
    file = File.of("x.pt", _disguised(about))
    program = python(file)
    assert "import os" not in [line.strip() for line in program.splitlines()]
    compile(program, "program", "exec")
    assert "file.__dict__['__class__); import os']" in program


def _disguised(about: Any) -> bytes:
    """A .safetensors file with the metadata of one that was made from a file of torch.save."""
    header = {"weights": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, "__metadata__": {"torch.save": json.dumps(about)}}  # fmt: skip
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + np.eye(2, dtype=np.float32).tobytes()


# -- the child ---------------------------------------------------------------------------


def test_child_returns_bytes_alone() -> None:
    assert read_foreign(repeated, "é", 3, n_bytes=MB, seconds=60) == "ééé".encode()
    with pytest.raises(FileError, match=r"^a sentence�, in one line$"):
        read_foreign(refused, "a sentence\n, in one line", n_bytes=MB, seconds=60)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("function", "args", "seconds", "why"),
    [
        (takes, (64 * MB,), 60, r"^needs more than 32 MB of memory$"),
        (repeated, ("x" * 2**10, 40 * 2**10), 60, r"^needs more than 32 MB of memory$"),
        (waits, (600,), 1, r"^takes more than 1 seconds$"),
        (computes, (), 1, r"^takes more than 1 seconds$"),
        (aborts, (), 60, r"^ended its process \(exit code -6\)$"),
    ],
)
def test_child_that_takes_too_much_is_ended(function: Any, args: tuple[Any, ...], seconds: float, why: str) -> None:
    with pytest.raises(JobError, match=why):
        read_foreign(function, *args, n_bytes=32 * MB, seconds=seconds)


def test_child_reports_progress_and_ends_with_its_callback() -> None:
    texts = list[tuple[str, float]]()
    with report_progress_to(lambda text, fraction: texts.append((text, fraction))):
        assert read_foreign(reports, 1, n_bytes=MB, seconds=60) == b"done"
        assert set(texts) == {("half", 0.5)}
        assert read_foreign(reports, 10_000, n_bytes=MB, seconds=60) == b"done", (
            "a flood of reports neither blocks nor grows"
        )

    def leaves(text: str, fraction: float) -> None:
        raise KeyError

    with report_progress_to(leaves), pytest.raises(KeyError):
        read_foreign(reports, 1, n_bytes=MB, seconds=60)


def test_file_that_takes_too_much_gets_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_file, "_OVERHEAD", 0)
    bytearrays = b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x00\x01\x85R."
    with pytest.raises(
        FileError, match=r"^“x.pt” is not read, since this needs more than 2 MB of memory: save only the attention"
    ):
        torch_file.as_safetensors(with_pickle(bytearrays), "x.pt", MB)
    assert load(torch_file.as_safetensors(saved(LAYERS[0]), "x.pt", 16 * MB))[""].shape == LAYERS[0].shape
