"""Where a model attends: found by running it once, with its weights named and tried on that."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.models import recording
from attention.models.loaded import Loaded, Site
from attention.models.parameters import made, makes_output, out_module, parameters
from attention.models.running import inputs, run

if TYPE_CHECKING:
    from torch.nn import Module

PROBE = "a b c d"  # what every model is tried with once: some words, since a rotation leaves the first as it is
_NEAR = 1e-4


def sites(loaded: Loaded) -> tuple[Site, ...]:
    """The places of a model that attend, in the order in which they are called; none where its family goes past the recorder."""
    calls: list[recording.Call] = []
    given, _ = inputs(loaded, PROBE, PROBE, 8)
    with recording.recording(calls.append):
        run(loaded, given)
    modules = {id(call.module): call.module for call in calls}
    for module in modules.values():
        recording.watch(module)
    calls.clear()
    around = parents(loaded.model)
    paths = {id(module): path for path, module in loaded.model.named_modules()}
    outputs: dict[int, Tensor] = {}
    outs = {key: out_module(module, around.get(key)) for key, module in modules.items()}
    hooks = [
        out.register_forward_hook(lambda _, __, made, key=key: outputs.update({key: made[0]}))
        for key, out in outs.items()
        if out is not None
    ]
    with recording.recording(calls.append):
        run(loaded, given)
    for hook in hooks:
        hook.remove()
    width = int(getattr(loaded.model.config, "hidden_size", 0) or 0)  # of the input, and of another text's
    cut = {key: all(_by_rows(call) for call in calls if id(call.module) == key) for key in modules}
    for key, module in modules.items():
        if cut[key]:
            recording.allow_rows(module)
    named: dict[int, dict[str, Tensor]] = {}
    for call in calls:
        key = id(call.module)
        if key not in named:
            there = parameters(call, around.get(key))
            if "w_o" in there and not (key in outputs and makes_output(there, call, outputs[key])):
                there = {name: one for name, one in there.items() if name not in ("w_o", "b_o")}
            named[key] = there
    return tuple(
        Site(
            name,
            named[id(call.module)],
            made(named[id(call.module)], call),
            len(call.query),
            sum(one.shape[0] * one.shape[-1] for one in (call.query, call.key, call.value))
            + width * (1 + (call.memory is not None)),
            cut[id(call.module)],
        )
        for name, call in zip(_names(loaded, calls, paths), calls, strict=True)
    )


def _by_rows(call: recording.Call) -> bool:
    """Whether the attention of each query by itself is that of all, as it is unless a family looks how many queries there are."""
    each = [call.rows(slice(at, at + 1))[1] for at in range(call.query.shape[1])]
    return torch.allclose(torch.cat(each, dim=1), call.head_output, rtol=_NEAR, atol=_NEAR)


def _names(loaded: Loaded, calls: list[recording.Call], paths: dict[int, str]) -> list[str]:
    """What each call is named by: its kind, and its number among those of its kind."""
    names: list[str] = []
    numbers: dict[str, dict[int, int]] = {}
    for call in calls:
        path = paths[id(call.module)]
        kind = "layer"
        if call.memory is not None or re.search(r"encoder_attn|EncDecAttention|crossattention", path):
            kind = "cross"
        elif loaded.two_texts:
            kind = "decoder" if re.search(r"\bdecoder\b", path) else "encoder"
        of_kind = numbers.setdefault(kind, {})
        name = f"{kind} {of_kind.setdefault(id(call.module), len(of_kind))}"
        names.append(f"{name} again" if name in names else name)
    return names


def parents(model: Any) -> dict[int, Module]:
    """The module around each, by the id of the one inside."""
    return {id(child): module for module in model.modules() for child in module.children()}
