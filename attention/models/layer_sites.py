"""The MLP's output and the residual stream after each layer of a transformers model, read and replaced while it runs.

Of a layer without attention, its mixer belongs to the MLP, as in path patching. Where a model normalizes what an MLP adds, its output is what comes before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from attention.base.errors import ConfigError, MissingError
from attention.formula.edit_kinds import at_positions
from attention.models.attention_sites import output_module, parents
from attention.models.loaded import LoadedModel
from attention.patching.forward import AlignedPositions, PatchedForward
from attention.patching.intervention import Intervention

MLP_OUTPUT, RESID_POST = "mlp_output", "resid_post"
LAYER = re.compile(r"(.+?)\.(\d+)(?:\.|$)")
"""The path of a module in a list of layers: that of the outermost list, and the number of the layer in it."""


@dataclass(frozen=True)
class WritePlace:
    """Where a tensor is written.

    Attributes:
        site: "mlp_output" or "resid_post".
        layer: the index of the layer in the trace.
        part: which of the modules that write in the layer, such as experts beside an MLP; 0 for the residual stream.
    """

    site: str
    layer: int
    part: int = 0


_Handler = Callable[[WritePlace, Tensor], Tensor]
"""Receives what is written, [batch pos d_model], and returns that with which the model goes on."""


@contextmanager
def handled_sites(loaded: LoadedModel, handle: _Handler) -> Iterator[None]:
    """A context in which `handle` receives everything that MLPs and layers write; the caller holds the lock of the model.

    Raises:
        ConfigError: the layers do not follow each other in one list.
    """
    try:
        blocks = [*layer_list(loaded)[1].children()]
    except MissingError as error:
        raise ConfigError(str(error)) from error
    modules, parent_of = dict(loaded.model.named_modules()), parents(loaded.model)
    called = [modules[site.path] for site in loaded.sites]
    projections = [output_module(module, parent_of.get(id(module))) for module in called]
    attention = {id(module) for module in (*called, *projections) if module is not None}
    d_model = int(getattr(loaded.model.config.get_text_config(), "hidden_size", 0) or 0)
    layer, part, n_texts = -1, 0, 1

    def enter(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal layer, part, n_texts
        layer, part = layer + 1, 0
        n_texts = len(args[0] if args else kwargs["hidden_states"])

    def replaced(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
        if isinstance(output, tuple):
            return (change(output[0]), *output[1:])
        return change(output)

    def write(_: Module, __: Any, output: Any) -> Any:
        def change(x: Tensor) -> Tensor:
            nonlocal part
            if x.shape[-1] != d_model:  # the first half of an MLP, which writes nothing
                return x
            place, part = WritePlace(MLP_OUTPUT, layer, part), part + 1
            # Some families join batch and position.
            return handle(place, x.reshape(n_texts, -1, d_model)).view_as(x)

        return replaced(output, change)

    def leave(_: Module, __: Any, output: Any) -> Any:
        return replaced(output, lambda x: handle(WritePlace(RESID_POST, layer), x))

    with ExitStack() as hooks:
        for block in {id(block): block for block in blocks}.values():
            hooks.callback(block.register_forward_pre_hook(enter, with_kwargs=True).remove)
            for writer in find_writers(block, attention):
                hooks.callback(writer.register_forward_hook(write).remove)
            hooks.callback(block.register_forward_hook(leave).remove)
        yield


@contextmanager
def patched_sites(loaded: LoadedModel, forward: PatchedForward) -> Iterator[None]:
    """A context in which the MLPs and the residual stream of a run have the interventions of `forward`, and are captured if it asks for that."""
    if not forward.sites and forward.captured_sites is None:
        yield
        return

    def handle(place: WritePlace, x: Tensor) -> Tensor:
        x = changed_site(place, x, forward.sites, forward)
        if forward.captured_sites is not None and (place.site, place.layer) in forward.captured_sites:
            forward.captured_sites[place.site, place.layer].append(x[0].detach().clone())
        return x

    with loaded.lock.hold(), handled_sites(loaded, handle):
        yield


def changed_site(place: WritePlace, x: Tensor, changes: Sequence[Intervention], forward: PatchedForward) -> Tensor:
    """What is written at a place [batch pos d_model], with those of the changes that are of it; patches come first."""
    for change in sorted(changes, key=lambda change: not change.patch):
        if change.site != place.site or change.layer not in (None, place.layer):
            continue
        if change.patch:
            source = forward.other_sites[place.site, place.layer][place.part].to(x)
            x = at_positions(x, _other_rows(x, source, forward.site_positions), change.positions)
        if change.ablate:
            ablated = (1 - change.strength) * x if change.strength != 1 else torch.zeros_like(x)
            if change.ablate == "mean":
                ablated = ablated + change.strength * x.mean(dim=-2, keepdim=True)
            x = at_positions(x, ablated, change.positions)
    return x


def _other_rows(x: Tensor, source: Tensor, positions: AlignedPositions | None) -> Tensor:
    """What the other run wrote [pos d_model], for each text of a batch; where its tokens have no partner, what is written here."""
    if positions is None:
        return source.expand_as(x)
    result = x.clone()
    result[:, list(positions.here)] = source[list(positions.there)]
    return result


def layer_list(loaded: LoadedModel) -> tuple[str, Module]:
    """The list of layers, and its path in the model.

    Raises:
        MissingError: the layers do not follow each other in one list.
    """
    modules = dict(loaded.model.named_modules())
    paths = {match[1] if (match := LAYER.match(site.path)) else "" for site in loaded.sites}
    if not loaded.sites:
        n_layers = getattr(loaded.model.config.get_text_config(), "num_hidden_layers", 0)
        lists = (path for path, module in modules.items() if isinstance(module, torch.nn.ModuleList))
        paths = {next((path for path in lists if len([*modules[path].children()]) == n_layers), "")}
    if len(paths) != 1 or "" in paths or loaded.is_encoder_decoder:
        raise MissingError(no_stream(loaded))
    (path,) = paths
    return path, modules[path]


def no_stream(loaded: LoadedModel) -> str:
    """Why a model has no single residual stream, in a sentence."""
    return (
        f"A residual stream runs through one list of layers; {loaded.name} has none, or several, as an encoder and a decoder: "
        "choose a model with one."
    )


def find_writers(module: Module, attention: Collection[int]) -> Iterator[Module]:
    """The largest modules below a layer that have parameters, and contain neither attention, nor its W_O (whose ids are given), nor a norm.

    Some families add the residual and normalize inside of the module that has the MLP, so a module with a norm is entered.
    """
    for child in writing_children(module):
        if id(child) in attention:
            continue
        if any(id(below) in attention or is_norm(below) for below in child.modules()):
            yield from find_writers(child, attention)
        else:
            yield child


def writing_children(layer: Module) -> Iterator[Module]:
    """All that writes in a layer without attention, such as Mamba and an MLP: what has parameters and is no norm."""
    for child in layer.children():
        if not is_norm(child) and next(child.parameters(), None) is not None:
            yield child


def is_norm(module: Module) -> bool:
    """Whether a module is a norm, such as LayerNorm or RMSNorm."""
    return "norm" in type(module).__name__.lower() and not any(True for _ in module.children())
