"""How the Python of a real model begins: loaded with transformers, and asked for what enters the attention of one layer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.formula.by_hand import OTHER
from attention.sources import Snippet

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.trace import Trace
    from attention.sources.model import Model

_MADE = ("query", "key", "value", "bias", "sinks", "mask", "taken_weights", "taken_output")
_ENTER = ("query", "key", "value")
_TAKEN = {"weights": "taken_weights", "head_output": "taken_output"}


def model(source: Model, trace: Trace, index: int) -> Snippet:
    """The beginning for one layer of a model: its Q, K and V as they enter their product."""
    from attention.models import intervening

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
    changed = _Changed(source, trace, index, intervening.order(loaded))
    lines = [
        "from transformers import AttentionInterface, AttentionMaskInterface, " + kind.__name__,
        "from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS",
        f"from {kind.__module__} import eager_attention_forward",
        "",
        "calls = []",
        *changed.before(),
        "",
        "def record(module, query, key, value, *more, **named):",
        *changed.entering(),
        *changed.attending(),
        "",
        'AttentionInterface.register("recorded", record)',
        'AttentionMaskInterface.register("recorded", ALL_MASK_ATTENTION_FUNCTIONS["eager"])',
        f"folder = {about}  # where the model lies on your machine",
        f'model = {kind.__name__}.from_pretrained(folder, attn_implementation="recorded", dtype=torch.float32).eval()',
        "with torch.no_grad():",
        *changed.running(given),
        f"module, query, key, value, named = calls[{names.index(layer.name)}][:5]  # {layer.name}",
        *changed.taken(index, ""),
    ]
    lines += ['bias = named["position_bias"][0]  # [head query_pos key_pos]'] if layer.has("bias") else []
    lines += ["sinks = module.sinks.detach()  # [head]"] if layer.has("sinks") else []
    without = tuple(name for name in layer.recorded if name not in _MADE)
    return Snippet("a real model", tuple(lines), without, changed.inside)


def _ids(given: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name}=torch.tensor({one.tolist()})" for name, one in given.items())


@dataclass(frozen=True)
class _Changed:
    """The lines that change heads while the model runs; none where nothing is changed before the layer.

    Attributes:
        source: the model, with its interventions.
        trace: its trace.
        index: of the layer that is wanted.
        order: for each call its layer in the trace.
    """

    source: Model
    trace: Trace
    index: int
    order: tuple[int, ...]

    @property
    def inside(self) -> tuple[int, ...]:
        """The changed layers that are called before the wanted one."""
        called = self.order[: self.order.index(self.index)]
        formulas = {at: self.trace.layer(at).inner.formula for at in called}
        those = self.source.interventions
        return tuple(
            at
            for at, formula in formulas.items()
            if formula is not None and (formula.changed or any(one.layer in (None, at) for one in those))
        )

    def before(self) -> list[str]:
        """What there is beside the calls."""
        if not (self._needs("other") or self._needs("unchanged")) and not self.inside:
            return []
        made = ", ".join(f"{self.order.index(at)}: layer_{at}" for at in self.inside)
        return ["changing, other, unchanged = False, [], []", f"changed = {{{made}}}"]

    def entering(self) -> list[str]:
        """Queries, keys and values that are taken from the other state."""
        lines = []
        for at in self.order[: self.order.index(self.index) + 1]:
            for one in (
                part for whole in self.source.interventions if whole.layer in (None, at) for part in whole.parts
            ):
                if one.take in _ENTER:
                    layer, call = self.trace.layer(at).inner, self.order.index(at)
                    kv_heads = layer.sizes.get("kv_head", layer.n_heads) if one.take != "query" else layer.n_heads
                    heads = ":" if one.head is None else str([one.head * kv_heads // layer.n_heads])
                    lines += [
                        f"    if changing and len(calls) == {call}:",
                        f"        {one.take} = {one.take}.clone()",
                        f"        {one.take}[0, {heads}] = other[{call}][{1 + _ENTER.index(one.take)}][{heads}]",
                    ]
        return lines

    def attending(self) -> list[str]:
        """Eager attention, recorded, and what goes on instead where a layer is changed."""
        if not self.before():
            return [
                "    calls.append((module, query[0], key[0], value[0], named))",
                "    return eager_attention_forward(module, query, key, value, *more, **named)",
            ]
        taken = []
        for at in self.inside:
            if lines := self.taken(at, "        "):
                taken += [f"    if changing and len(calls) == {self.order.index(at)}:", *lines]
        return [
            "    output, weights = eager_attention_forward(module, query, key, value, *more, **named)  # [1 query_pos head d_v]",
            '    taken_weights, taken_output, bias = None, None, named.get("position_bias")',
            *taken,
            "    if changing and len(calls) in changed:",
            '        more = None if bias is None else bias[0], getattr(module, "sinks", None), taken_weights, taken_output',
            "        output = changed[len(calls)](query[0], key[0], value[0], *more).transpose(0, 1)[None].contiguous()",
            "    calls.append((module, query[0], key[0], value[0], named, weights, output))",
            "    return output, weights",
        ]

    def running(self, given: Mapping[str, Tensor]) -> list[str]:
        """The runs: of the unchanged model and of the other state where these are needed, and last this one."""
        lines = []
        if self._needs("unchanged"):
            lines += [f"    model({_ids(given)})", "    unchanged, calls = calls, []"]
        if self._needs("other"):
            assert self.source.other is not None  # otherwise there is no trace
            if self.source.other.interventions:
                lines += [
                    '    raise SystemExit("The other state is changed itself: copy its own Python, and put the two together.")'
                ]
            lines += [f"    model({_ids(self.source.other.loaded_and_given()[1])})", "    other, calls = calls, []"]
        lines += ["    changing = True"] if self.before() else []
        return [*lines, f"    model({_ids(given)})"]

    def taken(self, at: int, indent: str) -> list[str]:
        """Weights and outputs of other runs that a layer takes some of."""
        layer, call = self.trace.layer(at).inner, self.order.index(at)
        formula, lines = layer.formula, list[str]()
        if formula is None:
            return []
        for head in range(layer.n_heads):
            for step, whose in formula.of(head).by_hand.taken:
                if step in _ENTER:
                    continue
                run, name = ("other" if whose == OTHER else "unchanged"), _TAKEN[step]
                there = f"{run}[{call}][5][0]" if step == "weights" else f"{run}[{call}][6][0].transpose(0, 1)"
                if not any(name in line for line in lines):
                    lines += [f"{name} = {there}.clone()"]
                elif f"{there}.clone()" not in "".join(lines):
                    lines += [f"{name}[{head}] = {there}[{head}]"]
        return [indent + line for line in lines]

    def _needs(self, run: str) -> bool:
        """Whether something of another run is used before the wanted layer is done."""
        if run == "other":
            return any(one.take for one in self.source.interventions)
        return any("unchanged[" in line for at in (*self.inside, self.index) for line in self.taken(at, ""))


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
