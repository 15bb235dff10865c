"""The attention modules of a model, found by running it once; their weight matrices, named and checked against that run."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.formula.mask import Mask
from attention.models import recorder
from attention.models.attention_call import Call, allow_row_blocks, in_float32
from attention.models.layer_numbers import Place, Visits, layer_names
from attention.models.loaded import LoadedModel, Site
from attention.models.recorded_layer import makes_output, output_module, parameters, pure_projections
from attention.models.running import probe_inputs, run

if TYPE_CHECKING:
    from torch.nn import Module

_TOLERANCE = 1e-4
_TRIED_ROWS = 64


def find_sites(loaded: LoadedModel) -> tuple[tuple[Site, ...], dict[str, str]]:
    """The attention sites of a model, in call order; empty if its family does not call the recorder.

    Also the layers that do not, as in a hybrid model: what each has instead, by its name.
    """
    calls: list[Call] = []
    model_inputs = probe_inputs(loaded)

    def note(call: Call) -> None:
        calls.append(replace(call, weights=None))  # of a picture in tiles, those of all layers take gigabytes

    with recorder.recording(note):
        run(loaded, model_inputs)
    modules = {id(call.module): call.module for call in calls}
    for module in modules.values():
        if loaded.attachment is None:
            recorder.record_inputs(module)
        else:
            loaded.attachment.modules.append(module)
    calls.clear()
    parent_of = parents(loaded.model)
    paths = {id(module): path for path, module in loaded.model.named_modules()}
    outputs: dict[int, Tensor] = {}
    output_modules = {key: output_module(module, parent_of.get(key)) for key, module in modules.items()}
    visits, places = Visits(), list[Place]()

    def note_place(call: Call) -> None:
        note(call)
        places.append(visits.place(paths[id(call.module)], call.memory is not None))

    with loaded.lock.hold(), ExitStack() as hooks, visits.of(loaded.model), recorder.recording(note_place):
        for key, w_o in output_modules.items():
            if w_o is not None:
                hooks.callback(w_o.register_forward_hook(partial(_note_output, outputs, key)).remove)
        run(loaded, model_inputs)
    d_model = int(getattr(loaded.model.config, "hidden_size", 0) or 0)
    # A user's model computes all queries at once, as it does without us: in blocks, the last bits could differ.
    row_blocks = {
        key: not loaded.in_memory and all(_supports_row_blocks(call) for call in calls if id(call.module) == key)
        for key in modules
    }
    for key, module in modules.items():
        if row_blocks[key]:
            allow_row_blocks(module)
    parameters_of: dict[int, dict[str, Tensor]] = {}
    for call in calls:
        key = id(call.module)
        if key not in parameters_of:
            named = parameters(call, parent_of.get(key))
            if "w_o" in named and not (key in outputs and makes_output(named, call, outputs[key])):
                named = {name: tensor for name, tensor in named.items() if name not in ("w_o", "b_o")}
            for tensor in named.values():  # a layer notices by it that the model was changed since
                vars(tensor)["recorded_version"] = tensor.is_inference() or tensor._version
            parameters_of[key] = named
    names, left_out = layer_names(loaded, visits, places)
    sites = tuple(
        Site(
            name,
            parameters_of[id(call.module)],
            pure_projections(parameters_of[id(call.module)], call),
            len(call.query),
            sum(tensor.shape[0] * tensor.shape[-1] for tensor in (call.query, call.key, call.value))
            + (d_model or _width(call)) * (1 + (call.memory is not None)),
            row_blocks[id(call.module)] or not call.has_own_weights,
            paths[id(call.module)],
            _is_causal(call),
        )
        for name, call in zip(names, calls, strict=True)
    )
    return sites, left_out


def _width(call: Call) -> int:
    """The width of the input of a call, for a model whose towers have widths of their own."""
    return 0 if call.input is None else call.input.shape[-1]


def _is_causal(call: Call) -> bool:
    """Whether no query sees a later key."""
    n_queries, n_keys = call.query.shape[-2], call.key.shape[-2]
    mask = call.mask.build(n_queries, n_keys) if isinstance(call.mask, Mask) else call.mask
    return mask is not None and n_keys > 1 and not bool(mask.triu(1).any())


def _note_output(outputs: dict[int, Tensor], key: int, _: Any, __: Any, output: Tensor) -> None:
    outputs[key] = in_float32(output.reshape(-1, output.shape[-1]))  # of all pictures of the input


def _supports_row_blocks(call: Call) -> bool:
    """Whether attention computed query by query equals attention of all queries; false if a family depends on their number."""
    n_queries = call.query.shape[1]
    some = range(0, n_queries, -(-n_queries // _TRIED_ROWS))  # a picture in tiles has thousands
    rows = [call.attend_rows(slice(i, i + 1))[1] for i in some]
    return torch.allclose(torch.cat(rows, dim=1), call.head_output[:, list(some)], rtol=_TOLERANCE, atol=_TOLERANCE)


def parents(model: Any) -> dict[int, Module]:
    """The parent of each module, by the id of the child."""
    return {id(child): module for module in model.modules() for child in module.children()}
