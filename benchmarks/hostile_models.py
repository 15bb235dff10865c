"""Hostile model names and folders: each must end in a message before memory of their size is allocated."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch
from safetensors.torch import save_file

from benchmarks.attack import Attack
from benchmarks.hostile import MARKUP, ODD, Hostile
from benchmarks.server import Server
from benchmarks.visits import Verdict, judge

HUGE = 10**9
NAMES = ("../models/all-MiniLM-L6-v2", "/etc", "/dev", "/proc/self", "~root", "file:///etc", "https://attacker.invalid/m", "attacker/model",
         "\\\\attacker.invalid\\share", "..", "a/../..", "x" * 5000)  # fmt: skip
CLAIMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpt2", {"n_layer": HUGE}),
    ("gpt2", {"n_embd": HUGE, "n_head": 1}),
    ("gpt2", {"n_positions": HUGE}),
    ("gpt2", {"vocab_size": HUGE}),
    ("llama", {"num_hidden_layers": HUGE}),
    ("llama", {"hidden_size": HUGE}),
    ("llama", {"intermediate_size": HUGE}),
    ("bert", {"max_position_embeddings": HUGE}),
    ("bert", {"num_attention_heads": 0}),
    ("bert", {"hidden_size": -1}),
    ("bart", {"encoder_layers": HUGE, "decoder_layers": HUGE}),
    ("gpt_neo", {"attention_types": [[["global"], HUGE]]}),
    ("mixtral", {"num_local_experts": HUGE}),
    ("bert", {"architectures": ["os.system"], "num_hidden_layers": 1e400}),
    ("mine", {"auto_map": {"AutoModel": "mine.Mine"}}),
)


def folders(root: Path) -> Iterator[Path]:
    """Folders that imitate models."""
    for number, (kind, claims) in enumerate(CLAIMS):
        path = root / f"claims {number}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps({"model_type": kind, **claims}))
        (path / "mine.py").write_text(f"open({str(root / 'pwned')!r}, 'w')")
        save_file({"weight": torch.zeros(4, 4)}, path / "model.safetensors")
        yield path
    weights = {
        "a header of a terabyte": (2**40).to_bytes(8, "little"),
        "a shape of a terabyte": _header({"w": {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}}),
        "nothing": b"",
    }
    for name, data in weights.items():
        path = root / name
        path.mkdir()
        (path / "config.json").write_text('{"model_type": "gpt2"}')
        (path / "model.safetensors").write_bytes(data)
        yield path
    for name, text in (("deep", "[" * 10**6), ("long", " " * 2**24), ("markup", json.dumps({"model_type": MARKUP[0]}))):
        path = root / name
        path.mkdir()
        (path / "config.json").write_text(text)
        save_file({"weight": torch.zeros(4, 4)}, path / "model.safetensors")
        yield path
    pickle, pipe = root / "pickle", root / "pipe"
    for path in (pickle, pipe):
        path.mkdir()
        (path / "config.json").write_text('{"model_type": "gpt2"}')
        yield path
    (pickle / "pytorch_model.bin").write_bytes(f"cos\nsystem\n(S'touch {root / 'pwned'}'\ntR.".encode())
    os.mkfifo(pipe / "model.safetensors")


def _header(claimed: dict[str, Any]) -> bytes:
    text = json.dumps(claimed).encode()
    return len(text).to_bytes(8, "little") + text


async def models(server: Server) -> list[str]:
    """Opens every name and every folder; returns the failures, such as a drawn figure."""
    verdict = Verdict()
    with tempfile.TemporaryDirectory(prefix="attention-lab-") as folder:
        names = [*NAMES, *MARKUP[:6], *ODD[:12], *map(str, folders(Path(folder)))]
        queries = [
            Hostile("model", "", urlencode({"source": "model", "model": name}, errors="replace")) for name in names
        ]
        await judge(server, queries, verdict)
        verdict.broken += ["something of a folder was run"] * Path(folder, "pwned").exists()
    print(
        f"{len(names)} models: {verdict.pictures} pictures, {verdict.sentences} only a sentence, slowest {verdict.slowest:.1f} s"
    )
    return verdict.broken


ATTACKS = (
    Attack(
        "hostile names and folders of models",
        models,
        mb=900,
        slice={},
        guard=True,
        environment={"LAB_ALLOW_LOCAL_MODELS": "yes"},
    ),
)
