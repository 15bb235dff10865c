"""The beginning of the copied program for a real model: it loads and records the model, and patches its heads.

`PatchedSnippet` has the lines of the patches, also for trained models.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from attention.base.errors import ConfigError, MissingError
from attention.formula.formula import OTHER_STATE
from attention.formula.names import HEAD_OUTPUT, KEY, QUERY, VALUE, WEIGHTS
from attention.program.literals import Snippet

if TYPE_CHECKING:
    from torch import Tensor

    from attention.media import Medium
    from attention.models.loaded import LoadedModel
    from attention.models.text_inputs import TextInputs
    from attention.patching.intervention import Intervention
    from attention.trace.layer import Layer
    from attention.trace.trace import Trace


class _State(Protocol):
    """The properties of a `Model` that the program needs."""

    @property
    def name(self) -> str: ...
    @property
    def interventions(self) -> tuple[Intervention, ...]: ...
    @property
    def medium(self) -> Medium | None: ...
    @property
    def given(self) -> tuple[Any, ...]: ...
    @property
    def max_tokens(self) -> int: ...
    @property
    def other(self) -> _State | None: ...  # from which interventions patch
    def load_inputs(self) -> tuple[LoadedModel, TextInputs]: ...


_BY_THE_LINES = (QUERY, KEY, VALUE, "bias", "sinks", "mask", "patched_weights", "patched_head_output")
_EAGER_OF_PART = "sys.modules[type(module).__module__].eager_attention_forward"
"""The attention of a part of a model, where its parts are of several families."""
_RECORDED = {QUERY: "[1]", KEY: "[2]", VALUE: "[3]", WEIGHTS: "[5][0]", HEAD_OUTPUT: "[6][0].transpose(0, 1)"}
"""The position of a step in the tuple that the program records for each attention call."""


def model(source: _State, trace: Trace, index: int) -> Snippet:
    """The beginning for one layer of a model: its Q, K and V as they enter their product."""
    layer = trace.layer(index).wrapped
    if sites := [change.label for change in source.interventions if change.site]:
        raise ConfigError(
            f"The Lab writes programs with interventions on heads; got {sites[0]}: remove it, or save the trace as a file, and copy the program of that."
        )
    loaded, inputs = source.load_inputs()
    model_class = type(loaded.model)
    names = [site.name for site in loaded.sites]
    folder = json.dumps(source.name.replace("\\", "/").rstrip("/").rpartition("/")[2])
    if layer.name not in names:
        return Snippet("a real model that returns only its weights", tuple(_weights_alone(source, layer, folder)))
    layer_order = loaded.layer_indices
    patches = PatchedSnippet(
        source.interventions,
        trace,
        index,
        layer_order,
        lambda position: f"patching and len(calls) == {layer_order.index(position)}",
        lambda run, position, step: f"{run}[{layer_order.index(position)}]{_RECORDED[step]}",
    )
    read, reader = (getattr(inputs, name, None) for name in ("read", "reader"))  # of another medium than text
    is_joined = read is not None and (len(read.lengths) > 1 or bool(reader and reader.in_turn))
    if is_joined and patches:
        raise ConfigError(
            "The Lab writes programs with interventions for one picture in one grid of patches, and this input has several pictures, tiles or windows: "
            "remove the interventions, or save the trace as a file, and copy the program of that."
        )
    if loaded.reader is not None and loaded.reader.across:
        raise ConfigError(
            f"The Lab writes no programs of models that also attend across {loaded.reader.across}: save the trace as a file, and copy the program of that."
        )
    own_module = {model_class.__module__}
    modules = {type(loaded.model.get_submodule(site.path)).__module__ for site in loaded.sites}
    # T5 has an argument for its bias; other families add it to their mask.
    adds_mask = layer.has("bias") and read is not None
    from attention.models.attention_call import EAGER_NAMES

    own_eager = next((name for name in EAGER_NAMES if hasattr(sys.modules[model_class.__module__], name)), "")
    eager = own_eager if modules == own_module else _EAGER_OF_PART
    lines = [
        "from pathlib import Path",
        "",
        *_imports(source, "AttentionInterface", "AttentionMaskInterface", model_class.__name__),
        "from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS",
        *([f"from {model_class.__module__} import {own_eager}"] if modules == own_module else []),
        "",
        "calls = []",
        *_patched_header(patches),
        "",
        "def record(module, query, key, value, *args, **kwargs):",
        *patches.patch_inputs(),
        *_attention_lines(patches, eager, is_joined, adds_mask),
        "",
        'AttentionInterface.register("recorded", record)',
        'AttentionMaskInterface.register("recorded", ALL_MASK_ATTENTION_FUNCTIONS["eager"])',
        f"folder = {folder}  # the folder of the model on your machine",
        *_load_lines(model_class, "recorded"),
        *_medium_lines(source),
        *_medium_lines(source.other if patches.needs_run("other") else None, "other_"),
        "with torch.no_grad():",
        *_run_lines(patches, source, inputs),
        *_layer_lines(names.index(layer.name), layer.name, is_joined),
        *patches.patch_layer(index),
    ]
    if layer.has("bias"):
        lines += (
            _bias_lines(layer, is_joined)
            if adds_mask
            else ['bias = kwargs["position_bias"][0]  # [head query_pos key_pos]']
        )
    lines += ["sinks = module.sinks.detach()  # [head]"] if layer.has("sinks") else []
    omitted = tuple(name for name in layer.recorded if name not in _BY_THE_LINES)
    return Snippet("a real model", tuple(lines), omitted, patches.patched_layers)


def _load_lines(model_class: type, implementation: str) -> list[str]:
    arguments = f'folder, attn_implementation="{implementation}", dtype=torch.float32, local_files_only=True'
    return [
        "if not Path(folder).is_dir():",
        '    raise SystemExit(f"This program loads its model from a folder; got {folder!r}, which is none: write the path of the model there.")',
        f"model = {model_class.__name__}.from_pretrained({arguments}).eval()",
    ]


def _imports(source: _State, *names: str) -> list[str]:
    medium, others = source.medium, () if source.other is None else source.other.given
    lines, more = ([], []) if medium is None else medium.program_imports([*source.given, *others])
    return [*lines, f"from transformers import {', '.join([*names[:-1], *more, names[-1]])}"]


def _medium_lines(source: _State | None, before: str = "") -> list[str]:
    """The lines that make the input of a model of another medium than text; none for a model of texts."""
    if source is None or source.medium is None:
        return []
    loaded = source.load_inputs()[0]
    reader = loaded.reader_of(source.medium)
    assert reader is not None  # it reads the medium
    most = min(source.max_tokens, loaded.max_length or source.max_tokens)
    return source.medium.program_lines(reader, source.given, f"{before}{source.medium.field}", most)


def _arguments(inputs: TextInputs, before: str = "") -> str:
    """The arguments of the model: token ids, and what the processor makes of an input of another medium."""
    reader, read = getattr(inputs, "reader", None), getattr(inputs, "read", None)
    if reader is None or read is None:
        return _ids(inputs.arguments)
    # Beside the ids of a text, a model may read the types of its tokens.
    others = {name: tensor for name, tensor in inputs.arguments.items() if name not in read.arguments}
    return ", ".join(filter(None, [f"**{before}{reader.medium.field}_inputs", _ids(others)]))


def _ids(inputs: Mapping[str, Tensor]) -> str:
    return ", ".join(f"{name}=torch.tensor({ids.tolist()})" for name, ids in inputs.items())


def _patched_header(patches: PatchedSnippet) -> list[str]:
    if not patches:
        return []
    functions = ", ".join(f"{patches.order.index(layer)}: layer_{layer}" for layer in patches.patched_layers)
    return ["patching, other, unchanged = False, [], []", f"patched = {{{functions}}}"]


def _bias_lines(layer: Layer, is_joined: bool) -> list[str]:
    if not is_joined:
        return ['bias = kwargs["added"][0]  # [head query_pos key_pos]']
    return [  # the maps of all windows, along the diagonal
        'added = kwargs["added"]',
        f"windows = added.expand(query.shape[1] // added.shape[-1], {layer.n_heads}, -1, -1)",
        "bias = torch.stack([torch.block_diag(*head) for head in windows.unbind(1)])  # [head query_pos key_pos]",
    ]


def _attention_lines(patches: PatchedSnippet, eager: str, is_joined: bool, adds_mask: bool) -> list[str]:
    """Eager attention, recorded, with the patched output of patched layers; of pictures or tiles that the model reads side by side, joined."""
    kept = "kwargs | {'added': args[0]}" if adds_mask else "kwargs"
    if is_joined:
        return [
            f"    calls.append((module, *(tensor.transpose(0, 1).flatten(1, 2) for tensor in (query, key, value)), {kept}))",
            f"    return {eager}(module, query, key, value, *args, **kwargs)",
        ]
    if not patches:
        return [
            f"    calls.append((module, query[0], key[0], value[0], {kept}))",
            f"    return {eager}(module, query, key, value, *args, **kwargs)",
        ]
    return [
        f"    output, weights = {eager}(module, query, key, value, *args, **kwargs)  # [1 query_pos head d_v]",
        "    patched_weights, patched_head_output, bias = None, None, "
        + ("args[0]" if adds_mask else 'kwargs.get("position_bias")'),
        *patches.patch_running_layers(),
        "    if patching and len(calls) in patched:",
        '        extra = None if bias is None else bias[0], getattr(module, "sinks", None), patched_weights, patched_head_output',
        "        output = patched[len(calls)](query[0], key[0], value[0], *extra).transpose(0, 1)[None].contiguous()",
        f"    calls.append((module, query[0], key[0], value[0], {kept}, weights, output))",
        "    return output, weights",
    ]


def _layer_lines(number: int, name: str, is_joined: bool) -> list[str]:
    if not is_joined:
        return [f"module, query, key, value, kwargs = calls[{number}][:5]  # {name}"]
    return [  # some models make a call for each picture
        f"module = list(dict.fromkeys(call[0] for call in calls))[{number}]  # {name}",
        "kwargs = next(call[4] for call in calls if call[0] is module)",
        "query, key, value = (torch.cat([call[i] for call in calls if call[0] is module], dim=1) for i in (1, 2, 3))",
    ]


def _run_lines(patches: PatchedSnippet, source: _State, inputs: TextInputs) -> list[str]:
    lines = []
    if patches.needs_run("unchanged"):
        lines += [f"    model({_arguments(inputs)})", "    unchanged, calls = calls, []"]
    if patches.needs_run("other"):
        assert source.other is not None  # the trace of a patched state requires it
        if source.other.interventions:
            lines += [f"    {OTHER_IS_PATCHED}"]
        lines += [f"    model({_arguments(source.other.load_inputs()[1], 'other_')})"]
        lines += ["    other, calls = calls, []"]
    lines += ["    patching = True"] if patches else []
    return [*lines, f"    model({_arguments(inputs)})"]


def _weights_alone(source: _State, layer: Layer, folder: str) -> list[str]:
    import torch

    from attention.models import running

    loaded, inputs = source.load_inputs()
    kind, number = layer.name.split()[:2]
    field, model_class = running.ATTENTIONS[kind], type(loaded.model)
    all_returned = running.run(loaded, inputs, output_attentions=True).get(field) or ()
    returned = dict(enumerate(all_returned)).get(int(number))  # Swin returns those of some layers
    change = ""
    same = partial(torch.allclose, layer[WEIGHTS], atol=1e-6)
    own = None if returned is None or returned.shape[1:] != layer.shape(WEIGHTS) else returned[0].cpu().float()
    if own is None or not same(own):
        change = ".softmax(-1)"  # some families return their scores
        if own is None or not same(own.softmax(-1)):
            raise MissingError(
                f"{loaded.name} does not return the weights of {layer.name}, so no short program has them: save the trace as a file."
            )
    return [
        "from pathlib import Path",
        "",
        *_imports(source, model_class.__name__),
        "",
        f"folder = {folder}  # the folder of the model on your machine",
        *_load_lines(model_class, "eager"),
        *_medium_lines(source),
        "with torch.no_grad():",
        f"    outputs = model({_arguments(inputs)}, output_attentions=True)",
        f"weights = outputs.{field}[{number}][0]{change}  # [head query_pos key_pos]",
    ]


_INPUTS = (QUERY, KEY, VALUE)
_PATCHED = {WEIGHTS: "patched_weights", HEAD_OUTPUT: "patched_head_output"}
OTHER_IS_PATCHED = (
    'raise SystemExit("The other state has interventions, too: copy its own Python, and combine the two programs.")'
)


@dataclass(frozen=True)
class PatchedSnippet:
    """The lines that patch the layers up to the layer of the program.

    Attributes:
        interventions: the interventions.
        trace: the patched trace.
        index: the index of the layer of the program.
        order: the indices of the layers in the order in which they run.
        layer_condition: returns the condition that is true while the layer with an index runs.
        step_expression: returns the expression for a step of another run, from the run, the layer index and the step.
    """

    interventions: tuple[Intervention, ...]
    trace: Trace
    index: int
    order: Sequence[int]
    layer_condition: Callable[[int], str]
    step_expression: Callable[[str, int, str], str]

    @property
    def patched_layers(self) -> tuple[int, ...]:
        """The patched layers that run before the layer of the program."""
        before = self.order[: self.order.index(self.index)]
        formulas = {layer: self.trace.layer(layer).wrapped.formula for layer in before}
        return tuple(
            layer
            for layer, formula in formulas.items()
            if formula is not None and (formula.is_edited or self._interventions_in(layer))
        )

    def patch_inputs(self) -> list[str]:
        """Lines that patch queries, keys and values from the other run."""
        lines = []
        for layer_index in self.order[: self.order.index(self.index) + 1]:
            parts = [part for intervention in self._interventions_in(layer_index) for part in intervention.parts]
            for part in (part for part in parts if part.patch in _INPUTS):
                layer = self.trace.layer(layer_index).wrapped
                kv_heads = layer.sizes.get("kv_head", layer.n_heads) if part.patch != QUERY else layer.n_heads
                heads = ":" if part.head is None else str([part.head * kv_heads // layer.n_heads])
                lines += [
                    f"    if {self.layer_condition(layer_index)}:",
                    f"        {part.patch} = {part.patch}.clone()",
                    f"        {part.patch}[0, {heads}] = {self.step_expression('other', layer_index, part.patch)}[{heads}]",
                ]
        return lines

    def patch_running_layers(self) -> list[str]:
        """Lines that fetch weights and outputs of other runs for the layers that run before."""
        lines = []
        for layer in self.patched_layers:
            if layer_lines := self.patch_layer(layer, "        "):
                lines += [f"    if {self.layer_condition(layer)}:", *layer_lines]
        return lines

    def patch_layer(self, layer_index: int, indent: str = "") -> list[str]:
        """Lines that fetch the weights and outputs of other runs for one layer."""
        layer, lines = self.trace.layer(layer_index).wrapped, list[str]()
        formula = layer.formula
        if formula is None:
            return []
        for head in range(layer.n_heads):
            for step, run in formula.for_head(head).head_edits.patches:
                if step in _INPUTS:
                    continue
                expression = self.step_expression("other" if run == OTHER_STATE else "unchanged", layer_index, step)
                name = _PATCHED[step]
                if not any(name in line for line in lines):
                    lines += [f"{name} = {expression}.clone()"]
                elif f"{expression}.clone()" not in "".join(lines):
                    lines += [f"{name}[{head}] = {expression}[{head}]"]
        return [indent + line for line in lines]

    def needs_run(self, run: str) -> bool:
        """Whether a step of another run is used up to the layer of the program."""
        if run == "other":
            return any(intervention.patch for intervention in self.interventions)
        return any(
            "unchanged[" in line for layer in (*self.patched_layers, self.index) for line in self.patch_layer(layer)
        )

    def __bool__(self) -> bool:
        return self.needs_run("other") or self.needs_run("unchanged") or bool(self.patched_layers)

    def _interventions_in(self, layer: int) -> list[Intervention]:
        return [intervention for intervention in self.interventions if intervention.layer in (None, layer)]
