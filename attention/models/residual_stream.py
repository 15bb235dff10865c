"""The residual stream of a model and what writes to it, all logits, and the weights between vectors and vocabulary."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.base.errors import MissingError, SizeError
from attention.models import forward_pass, lm_head
from attention.trace.cost import ALLOW_MORE
from attention.trace.model_run import FinalNorm, VocabularyWeights
from attention.vision.families import check_text_only

if TYPE_CHECKING:
    from torch.nn import Module

    from attention.models.loaded import LoadedModel
    from attention.patching.forward import PatchedForward


_BYTES_PER_NUMBER = 4
_EPS_NAMES = ("eps", "variance_epsilon")


@dataclass(frozen=True, eq=False)
class Streams:
    """The stream that enters each layer, [query_pos d_model], and the one after the last layer: float32, on the CPU."""

    tensors: tuple[Tensor, ...]

    @property
    def nbytes(self) -> int:
        """The memory of all of them, in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors)


def residual_stream(
    loaded: LoadedModel, inputs: Mapping[str, Tensor], forward: PatchedForward, max_bytes: int
) -> Streams:
    """The residual stream of one pass with these patches.

    Raises:
        MissingError: the layers do not follow each other in one list.
        SizeError: the streams would take more than `max_bytes`.
    """
    check_text_only(loaded, "The residual stream")
    blocks = [*_layer_list(loaded)[1].children()]
    n_layers = loaded.n_layers or len(blocks)
    n_tokens, d_model = next(iter(inputs.values())).shape[-1], _d_model(loaded)
    _check_size("The residual stream", (n_layers + 1) * n_tokens * d_model, max_bytes)
    states: list[Tensor] = []
    last: list[Tensor] = []

    def enter(_: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states.append(_copied(args[0] if args else kwargs["hidden_states"]))

    def leave(_: Module, __: Any, output: Any) -> None:
        last[:] = [output[0] if isinstance(output, tuple) else output]

    # The hooks are part of the model, so no other thread may run it now.
    with loaded.lock.hold(), ExitStack() as hooks:
        for block in {id(block): block for block in blocks}.values():
            hooks.callback(block.register_forward_pre_hook(enter, with_kwargs=True).remove)
            hooks.callback(block.register_forward_hook(leave).remove)
        forward_pass.run_patched(loaded, inputs, forward, ())
    states += [_copied(output) for output in last]
    if len(states) != n_layers + 1 or any(state.shape != (n_tokens, d_model) for state in states):
        raise MissingError(_no_stream(loaded))
    return Streams(tuple(states))


def all_logits(loaded: LoadedModel, inputs: Mapping[str, Tensor], forward: PatchedForward, max_bytes: int) -> Tensor:
    """The logits at all positions of one pass with these patches, [query_pos vocabulary]: float32, on the CPU.

    Raises:
        MissingError: the model predicts no tokens.
        SizeError: they would take more than `max_bytes`.
    """
    size = lm_head.vocabulary_size(loaded)
    if not size:
        raise MissingError(lm_head.no_prediction_reason(loaded, ()))
    positions = tuple(range(len(lm_head.predicted_text_ids(inputs))))
    _check_size("The logits at all positions", len(positions) * size, max_bytes)
    logits = lm_head.logits_of(forward_pass.run_patched(loaded, inputs, forward, positions))
    if logits is None:
        raise MissingError(f"{loaded.name} returns no logits: choose a model with a language-model head.")
    return logits.to("cpu", torch.float32)


def vocabulary_weights(loaded: LoadedModel) -> VocabularyWeights:
    """The weights between vectors and vocabulary.

    Raises:
        MissingError: they are not stored as plain matrices, as in a quantized model, or the model reads pictures.
    """
    check_text_only(loaded, "What vectors mean in the vocabulary")
    head = loaded.model.get_output_embeddings()
    w_u = None if head is None else _matrix(loaded, head).T
    return VocabularyWeights(_matrix(loaded, loaded.model.get_input_embeddings()), w_u, _final_norm(loaded))


def _layer_list(loaded: LoadedModel) -> tuple[str, Module]:
    """The list of layers, and its path in the model.

    Raises:
        MissingError: the model has no such list, or several.
    """
    modules = dict(loaded.model.named_modules())
    paths = {_outermost_list(site.path) for site in loaded.sites}
    if not loaded.sites:
        n_layers = getattr(loaded.model.config.get_text_config(), "num_hidden_layers", 0)
        lists = (path for path, module in modules.items() if isinstance(module, torch.nn.ModuleList))
        paths = {next((path for path in lists if len([*modules[path].children()]) == n_layers), "")}
    if len(paths) != 1 or "" in paths or loaded.is_encoder_decoder:
        raise MissingError(_no_stream(loaded))
    (path,) = paths
    return path, modules[path]


def _outermost_list(path: str) -> str:
    """The path of the outermost list that holds the module at `path`; empty if there is none."""
    names = path.split(".")
    at = next((i for i, name in enumerate(names) if name.isdigit()), 0)
    return ".".join(names[:at])


def _final_norm(loaded: LoadedModel) -> FinalNorm | None:
    """The norm after the list of layers, in the same module; None if there is none, or no such list."""
    try:
        path, layers = _layer_list(loaded)
    except MissingError:
        return None
    siblings = [*loaded.model.get_submodule(path.rpartition(".")[0]).named_children()]
    at = next(i for i, (_, module) in enumerate(siblings) if module is layers)
    norms = [
        module
        for i, (name, module) in enumerate(siblings)
        if is_norm(module) and (i > at or "final" in name)  # OPT declares it before its layers
    ]
    if not norms:
        return None
    norm = norms[-1]

    def apply(x: Tensor) -> Tensor:
        with torch.no_grad(), loaded.session():
            weight = next(norm.parameters(), x)
            y: Tensor = norm(x.to(weight.device, loaded.model.dtype))
            return y.to("cpu", torch.float32)

    eps = next(
        (float(getattr(norm, name)) for name in _EPS_NAMES if isinstance(getattr(norm, name, None), float)), None
    )
    weight, bias = (getattr(norm, name, None) for name in ("weight", "bias"))
    return FinalNorm(
        type(norm).__name__,
        weight.detach() if isinstance(weight, Tensor) else None,
        bias.detach() if isinstance(bias, Tensor) else None,
        eps,
        apply,
    )


def _matrix(loaded: LoadedModel, module: Any) -> Tensor:
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or not weight.is_floating_point():
        raise MissingError(
            f"W_E and W_U are matrices of numbers; {loaded.name} stores them in another way, such as quantized: what needs them is not shown."
        )
    return weight.detach()


def _d_model(loaded: LoadedModel) -> int:
    return int(getattr(loaded.model.config.get_text_config(), "hidden_size", 0) or 0)


def _copied(state: Tensor) -> Tensor:
    return state[0].detach().to("cpu", torch.float32, copy=True)


def _no_stream(loaded: LoadedModel) -> str:
    return (
        f"A residual stream runs through one list of layers; {loaded.name} has none, or several, as an encoder and a decoder: "
        "choose a model with one."
    )


def _check_size(what: str, numbers: int, max_bytes: int) -> None:
    nbytes = numbers * _BYTES_PER_NUMBER
    if nbytes > max_bytes:
        raise SizeError(
            f"{what} may take at most {max_bytes / 2**20:,.0f} MB here, and would take {nbytes / 2**20:,.0f} MB: "
            f"choose a shorter text, a smaller model, {ALLOW_MORE}."
        )


def find_writers(module: Module, attention: Collection[int]) -> Iterator[Module]:
    """The largest modules below this one that have parameters, and contain neither attention, nor its W_O, nor a norm.

    Some families add the residual and normalize inside of the module that has the MLP, so a module with a norm is entered.

    Args:
        module: a layer of the model.
        attention: the ids of the attention modules and of their W_O.
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
