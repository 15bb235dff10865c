"""How the Python of a real model begins: loaded with transformers, and asked for what enters the attention of one layer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from attention.formula.names import HEAD_OUTPUT, KEY, QUERY, VALUE, WEIGHTS
from attention.sources import Snippet
from attention.sources.changed_snippet import CHANGED_ITSELF, Changed

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.intervention import Intervention
    from attention.formula.trace import Trace
    from attention.models.loaded import Loaded


class State(Protocol):
    """What the Python of a real model is written from: a `Model`."""

    @property
    def name(self) -> str:
        """Its folder, or its name in a list."""

    @property
    def interventions(self) -> tuple[Intervention, ...]:
        """What is changed of heads inside the model."""

    @property
    def other(self) -> State | None:
        """The state that an intervention takes something from."""

    def loaded_and_given(self) -> tuple[Loaded, dict[str, Tensor]]:
        """The model in memory, and the ids that it reads."""


_MADE = (QUERY, KEY, VALUE, "bias", "sinks", "mask", "patched_weights", "patched_head_output")
_THERE = {
    QUERY: "[1]",
    KEY: "[2]",
    VALUE: "[3]",
    WEIGHTS: "[5][0]",
    HEAD_OUTPUT: "[6][0].transpose(0, 1)",
}
"""Where a call of the copied program has what another run takes from it."""


def model(source: State, trace: Trace, index: int) -> Snippet:
    """The beginning for one layer of a model: its Q, K and V as they enter their product."""
    layer = trace.layer(index).inner
    loaded, given = source.loaded_and_given()
    kind = type(loaded.model)
    names = [site.name for site in loaded.sites]
    about = json.dumps(source.name.replace("\\", "/").rstrip("/").rpartition("/")[2])
    if layer.name not in names:
        return Snippet(
            "a real model, which gives its weights alone",
            tuple(_weights_alone(kind, about, _ids(given), layer.name)),
        )
    order = loaded.order
    changed = Changed(
        source.interventions,
        trace,
        index,
        order,
        lambda at: f"changing and len(calls) == {order.index(at)}",
        lambda run, at, step: f"{run}[{order.index(at)}]{_THERE[step]}",
    )
    lines = [
        "from transformers import AttentionInterface, AttentionMaskInterface, " + kind.__name__,
        "from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS",
        f"from {kind.__module__} import eager_attention_forward",
        "",
        "calls = []",
        *_before(changed),
        "",
        "def record(module, query, key, value, *more, **named):",
        *changed.entering(),
        *_attending(changed),
        "",
        'AttentionInterface.register("recorded", record)',
        'AttentionMaskInterface.register("recorded", ALL_MASK_ATTENTION_FUNCTIONS["eager"])',
        f"folder = {about}  # where the model lies on your machine",
        f'model = {kind.__name__}.from_pretrained(folder, attn_implementation="recorded", dtype=torch.float32).eval()',
        "with torch.no_grad():",
        *_running(changed, source, given),
        f"module, query, key, value, named = calls[{names.index(layer.name)}][:5]  # {layer.name}",
        *changed.taken(index),
    ]
    lines += ['bias = named["position_bias"][0]  # [head query_pos key_pos]'] if layer.has("bias") else []
    lines += ["sinks = module.sinks.detach()  # [head]"] if layer.has("sinks") else []
    without = tuple(name for name in layer.recorded if name not in _MADE)
    return Snippet("a real model", tuple(lines), without, changed.inside)


def _ids(given: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name}=torch.tensor({one.tolist()})" for name, one in given.items())


def _before(changed: Changed) -> list[str]:
    """What there is beside the calls."""
    if not changed:
        return []
    made = ", ".join(f"{changed.order.index(at)}: layer_{at}" for at in changed.inside)
    return ["changing, other, unchanged = False, [], []", f"changed = {{{made}}}"]


def _attending(changed: Changed) -> list[str]:
    """Eager attention, recorded, and what goes on instead where a layer is changed."""
    if not changed:
        return [
            "    calls.append((module, query[0], key[0], value[0], named))",
            "    return eager_attention_forward(module, query, key, value, *more, **named)",
        ]
    return [
        "    output, weights = eager_attention_forward(module, query, key, value, *more, **named)  # [1 query_pos head d_v]",
        '    patched_weights, patched_head_output, bias = None, None, named.get("position_bias")',
        *changed.taking(),
        "    if changing and len(calls) in changed:",
        '        more = None if bias is None else bias[0], getattr(module, "sinks", None), patched_weights, patched_head_output',
        "        output = changed[len(calls)](query[0], key[0], value[0], *more).transpose(0, 1)[None].contiguous()",
        "    calls.append((module, query[0], key[0], value[0], named, weights, output))",
        "    return output, weights",
    ]


def _running(changed: Changed, source: State, given: Mapping[str, Tensor]) -> list[str]:
    """The runs: of the unchanged model and of the other state where these are needed, and last this one."""
    lines = []
    if changed.needs("unchanged"):
        lines += [f"    model({_ids(given)})", "    unchanged, calls = calls, []"]
    if changed.needs("other"):
        assert source.other is not None  # otherwise there is no trace
        if source.other.interventions:
            lines += [f"    {CHANGED_ITSELF}"]
        lines += [f"    model({_ids(source.other.loaded_and_given()[1])})", "    other, calls = calls, []"]
    lines += ["    changing = True"] if changed else []
    return [*lines, f"    model({_ids(given)})"]


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
