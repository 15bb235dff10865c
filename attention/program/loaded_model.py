"""The beginning of the copied program for a real model: it loads the model with transformers and records the inputs of its attention."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from attention.core.names import HEAD_OUTPUT, KEY, QUERY, VALUE, WEIGHTS
from attention.models.vision_families import PICTURES
from attention.program import picture_lines
from attention.program.patched_run import OTHER_IS_PATCHED, PatchedSnippet
from attention.program.snippet import Snippet

if TYPE_CHECKING:
    from torch import Tensor

    from attention.core.trace import Trace
    from attention.io.picture import Picture
    from attention.models.loaded import LoadedModel
    from attention.patching.intervention import Intervention


class State(Protocol):
    """The properties of a `Model` that the program needs."""

    @property
    def name(self) -> str:
        """The folder of the model, or its name in a list."""

    @property
    def interventions(self) -> tuple[Intervention, ...]:
        """The interventions on heads inside the model."""

    @property
    def image(self) -> Picture | tuple[Picture, ...] | None:
        """The picture that the model reads, or several; None if it reads none."""

    @property
    def other(self) -> State | None:
        """The other run, from which interventions patch."""

    def load_inputs(self) -> tuple[LoadedModel, dict[str, Tensor]]:
        """The loaded model, and its token ids or what it reads of a picture."""


_BY_THE_LINES = (QUERY, KEY, VALUE, "bias", "sinks", "mask", "patched_weights", "patched_head_output")
_EAGER_OF_PART = "sys.modules[type(module).__module__].eager_attention_forward"
"""The attention of a part of a model, where its parts are of several families."""
_RECORDED = {
    QUERY: "[1]",
    KEY: "[2]",
    VALUE: "[3]",
    WEIGHTS: "[5][0]",
    HEAD_OUTPUT: "[6][0].transpose(0, 1)",
}
"""The position of a step in the tuple that the program records for each attention call."""


def model(source: State, trace: Trace, index: int) -> Snippet:
    """The beginning for one layer of a model: its Q, K and V as they enter their product."""
    layer = trace.layer(index).wrapped
    loaded, inputs = source.load_inputs()
    model_class = type(loaded.model)
    names = [site.name for site in loaded.sites]
    folder = json.dumps(source.name.replace("\\", "/").rstrip("/").rpartition("/")[2])
    if layer.name not in names:
        return Snippet(
            "a real model that returns only its weights",
            tuple(_weights_alone(source, model_class, folder, _arguments(loaded, inputs), layer.name)),
        )
    layer_order = loaded.layer_indices
    patches = PatchedSnippet(
        source.interventions,
        trace,
        index,
        layer_order,
        lambda position: f"patching and len(calls) == {layer_order.index(position)}",
        lambda run, position, step: f"{run}[{layer_order.index(position)}]{_RECORDED[step]}",
    )
    own_module = {model_class.__module__}
    modules = {type(loaded.model.get_submodule(site.path)).__module__ for site in loaded.sites}
    eager = "eager_attention_forward" if modules == own_module else _EAGER_OF_PART
    lines = [
        "from pathlib import Path",
        "",
        *_imports(source, "AttentionInterface", "AttentionMaskInterface", model_class.__name__),
        "from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS",
        *([f"from {model_class.__module__} import eager_attention_forward"] if modules == own_module else []),
        "",
        "calls = []",
        *_patched_header(patches),
        "",
        "def record(module, query, key, value, *args, **kwargs):",
        *patches.patch_inputs(),
        *_attention_lines(patches, eager),
        "",
        'AttentionInterface.register("recorded", record)',
        'AttentionMaskInterface.register("recorded", ALL_MASK_ATTENTION_FUNCTIONS["eager"])',
        f"folder = {folder}  # the folder of the model on your machine",
        *_load_lines(model_class, "recorded"),
        *_picture_lines(source, "image"),
        *_picture_lines(source.other if patches.needs_run("other") else None, "other_image"),
        "with torch.no_grad():",
        *_run_lines(patches, source, loaded, inputs),
        f"module, query, key, value, kwargs = calls[{names.index(layer.name)}][:5]  # {layer.name}",
        *patches.patch_layer(index),
    ]
    lines += ['bias = kwargs["position_bias"][0]  # [head query_pos key_pos]'] if layer.has("bias") else []
    lines += ["sinks = module.sinks.detach()  # [head]"] if layer.has("sinks") else []
    omitted = tuple(name for name in layer.recorded if name not in _BY_THE_LINES)
    return Snippet("a real model", tuple(lines), omitted, patches.patched_layers)


def _load_lines(model_class: type, implementation: str) -> list[str]:
    """The lines that load the model from its folder, without asking the hub."""
    arguments = f'folder, attn_implementation="{implementation}", dtype=torch.float32, local_files_only=True'
    return [
        "if not Path(folder).is_dir():",
        '    raise SystemExit(f"This program loads its model from a folder; got {folder!r}, which is none: write the path of the model there.")',
        f"model = {model_class.__name__}.from_pretrained({arguments}).eval()",
    ]


def _pictures(source: State | None) -> tuple[Picture, ...]:
    """The pictures that a model reads."""
    image = None if source is None else source.image
    return () if image is None else image if isinstance(image, tuple) else (image,)


def _imports(source: State, *names: str) -> list[str]:
    """The lines that import what reads the pictures, and these names of transformers."""
    pictures = _pictures(source)
    of_pictures = ["AutoImageProcessor"] if pictures else []
    return [
        *picture_lines.imports([*pictures, *_pictures(source.other)]),
        f"from transformers import {', '.join([*names[:-1], *of_pictures, names[-1]])}",
    ]


def _picture_lines(source: State | None, variable: str) -> list[str]:
    """The lines that make the input of a model from its pictures; none without a picture."""
    pictures = _pictures(source)
    if not pictures:
        return []
    names = [variable] if len(pictures) == 1 else [f"{variable}_{i}" for i in range(len(pictures))]
    given = names[0] if len(names) == 1 else f"[{', '.join(names)}]"
    lines = [
        line for picture, name in zip(pictures, names, strict=True) for line in picture_lines.read_lines(picture, name)
    ]
    return [
        *lines,
        'processor = AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)  # without torchvision',
        f'{variable}_inputs = processor(images={given}, return_tensors="pt")  # as the model sees it',
    ]


def _arguments(loaded: LoadedModel, inputs: Mapping[str, Tensor], variable: str = "image") -> str:
    """The arguments of the model: what the processor made of the pictures, and token ids."""
    of_processor = () if loaded.pictures is None else (PICTURES, *loaded.pictures.image_processor.model_input_names)
    everything = getattr(
        inputs, "arguments", inputs
    )  # of pictures: also the types of the tokens of a text, and the like
    ids = [f"{name}=torch.tensor({ids.tolist()})" for name, ids in everything.items() if name not in of_processor]
    return ", ".join([f"**{variable}_inputs"] * (PICTURES in inputs) + ids)


def _patched_header(patches: PatchedSnippet) -> list[str]:
    """The variables of the patched runs; empty if no head is patched."""
    if not patches:
        return []
    functions = ", ".join(f"{patches.order.index(layer)}: layer_{layer}" for layer in patches.patched_layers)
    return ["patching, other, unchanged = False, [], []", f"patched = {{{functions}}}"]


def _attention_lines(patches: PatchedSnippet, eager: str) -> list[str]:
    """Eager attention, recorded, with the patched output of patched layers."""
    if not patches:
        return [
            "    calls.append((module, query[0], key[0], value[0], kwargs))",
            f"    return {eager}(module, query, key, value, *args, **kwargs)",
        ]
    return [
        f"    output, weights = {eager}(module, query, key, value, *args, **kwargs)  # [1 query_pos head d_v]",
        '    patched_weights, patched_head_output, bias = None, None, kwargs.get("position_bias")',
        *patches.patch_running_layers(),
        "    if patching and len(calls) in patched:",
        '        extra = None if bias is None else bias[0], getattr(module, "sinks", None), patched_weights, patched_head_output',
        "        output = patched[len(calls)](query[0], key[0], value[0], *extra).transpose(0, 1)[None].contiguous()",
        "    calls.append((module, query[0], key[0], value[0], kwargs, weights, output))",
        "    return output, weights",
    ]


def _run_lines(patches: PatchedSnippet, source: State, loaded: LoadedModel, inputs: Mapping[str, Tensor]) -> list[str]:
    """The runs: those of the unchanged model and of the other state if they are needed, and finally this one."""
    lines = []
    if patches.needs_run("unchanged"):
        lines += [f"    model({_arguments(loaded, inputs)})", "    unchanged, calls = calls, []"]
    if patches.needs_run("other"):
        assert source.other is not None  # the trace of a patched state requires it
        if source.other.interventions:
            lines += [f"    {OTHER_IS_PATCHED}"]
        lines += [
            f"    model({_arguments(*source.other.load_inputs(), 'other_image')})",
            "    other, calls = calls, []",
        ]
    lines += ["    patching = True"] if patches else []
    return [*lines, f"    model({_arguments(loaded, inputs)})"]


def _weights_alone(source: State, model_class: type, folder: str, arguments: str, name: str) -> list[str]:
    from attention.models.running import ATTENTIONS

    module_kind, number = name.rsplit(" ", 1)
    return [
        "from pathlib import Path",
        "",
        *_imports(source, model_class.__name__),
        "",
        f"folder = {folder}  # the folder of the model on your machine",
        *_load_lines(model_class, "eager"),
        *_picture_lines(source, "image"),
        "with torch.no_grad():",
        f"    outputs = model({arguments}, output_attentions=True)",
        f"weights = outputs.{ATTENTIONS[module_kind]}[{number}][0]  # [head query_pos key_pos]",
    ]
