"""How the Python of a real model begins: loaded with transformers, and asked for what enters the attention of one layer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from attention.sources import Snippet

if TYPE_CHECKING:
    from attention.formula.layer import Layer
    from attention.sources.model import Model

_MADE = ("query", "key", "value", "bias", "sinks", "mask")


def model(source: Model, layer: Layer) -> Snippet:
    """The beginning for one layer of a model: its Q, K and V as they enter their product."""
    loaded, given = source.loaded_and_given()
    kind = type(loaded.model)
    names = [site.name for site in loaded.sites]
    about = json.dumps(source.name.replace("\\", "/").rstrip("/").rpartition("/")[2])
    ids = ", ".join(f"{name}=torch.tensor({one.tolist()})" for name, one in given.items())
    if layer.name not in names:
        return Snippet(
            "a real model, which gives its weights alone", tuple(_weights_alone(kind, about, ids, layer.name))
        )
    lines = [
        "from transformers import AttentionInterface, AttentionMaskInterface, " + kind.__name__,
        "from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS",
        f"from {kind.__module__} import eager_attention_forward",
        "",
        "calls = []",
        "",
        "def record(module, query, key, value, *more, **named):",
        "    calls.append((module, query[0], key[0], value[0], named))",
        "    return eager_attention_forward(module, query, key, value, *more, **named)",
        "",
        'AttentionInterface.register("recorded", record)',
        'AttentionMaskInterface.register("recorded", ALL_MASK_ATTENTION_FUNCTIONS["eager"])',
        f"folder = {about}  # where the model lies on your machine",
        f'model = {kind.__name__}.from_pretrained(folder, attn_implementation="recorded", dtype=torch.float32).eval()',
        "with torch.no_grad():",
        f"    model({ids})",
        f"module, query, key, value, named = calls[{names.index(layer.name)}]  # {layer.name}",
    ]
    lines += ['bias = named["position_bias"][0]  # [head query_pos key_pos]'] if layer.has("bias") else []
    lines += ["sinks = module.sinks.detach()  # [head]"] if layer.has("sinks") else []
    return Snippet("a real model", tuple(lines), tuple(name for name in layer.recorded if name not in _MADE))


def _weights_alone(kind: type, about: str, ids: str, name: str) -> list[str]:
    from attention.models.running import ATTENTIONS

    which, number = name.rsplit(" ", 1)
    return [
        f"from transformers import {kind.__name__}",
        "",
        f"folder = {about}  # where the model lies on your machine",
        f'model = {kind.__name__}.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()',
        "with torch.no_grad():",
        f"    found = model({ids}, output_attentions=True)",
        f"weights = found.{ATTENTIONS[which]}[{number}][0]  # [head query_pos key_pos]",
    ]
