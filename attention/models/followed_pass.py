"""The attention weights of a family that does not call the recorder: the tensors of a pass are followed from softmax to product.

The attentions that a model returns may be scores, windows or maps of fewer tokens; what a softmax gave and a product with values
used is what the model computed, whatever its family.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from attention.base.errors import ModelError
from attention.formula.names import KEY, QUERY, WEIGHTS
from attention.models import running
from attention.models.attention_call import in_float32
from attention.models.attention_sites import Place, Visits, layer_names, listed_layers, output_module
from attention.models.loaded import LoadedModel, in_order
from attention.models.packed_sequences import along_diagonal, current_packing
from attention.models.text_inputs import TextInputs
from attention.recording.follower import Follower, Modules
from attention.recording.multihead import read_function
from attention.recording.trails import Multiplication, Trail

_TOLERANCE = 1e-3  # of the sum of a row
_VALUES = re.compile("v|value|value_global|v_proj")
_VALUE_TOLERANCE = 1e-4


class FollowedLayer(NamedTuple):
    """A layer of a followed pass."""

    name: str  # such as "layer 3"
    weights: Tensor | None  # [text head query_pos key_pos]; None if the layer has none from token to token
    instead: str = ""  # what it has instead, in words


def run_followed(
    loaded: LoadedModel, model_inputs: Mapping[str, Tensor], **kwargs: Any
) -> tuple[Any, list[FollowedLayer]]:
    """The output of one forward pass with eager attention, and its layers as `following` finds them.

    Raises:
        ModelError: the model does not read such ids.
    """
    with following(loaded, model_inputs) as follower:
        output = running.run(loaded, model_inputs, **kwargs)
    return output, follower.layers()


def count_maps(loaded: LoadedModel) -> int:
    """The number of query × key matrices of heads that are followed."""
    if loaded.sites and not has_followed_layers(loaded):
        return 0
    inputs = running.probe_inputs(loaded)
    followed = run_followed(loaded, inputs)[1]
    names = loaded.left_out if loaded.sites else [layer.name for layer in followed]
    counted = [layer for layer in followed if layer.weights is not None and layer.name in names]
    longest = max(max(inputs.lengths_of(layer.name)) for layer in counted) if counted else 1
    return math.ceil(sum(_n_whole_maps(layer, inputs, longest) for layer in counted))


def _n_whole_maps(layer: FollowedLayer, inputs: TextInputs, longest: int) -> float:
    """How many matrices of the longest layer those of a layer are, which may have fewer tokens."""
    assert layer.weights is not None
    share = math.prod(inputs.lengths_of(layer.name)) / longest**2 if inputs.own_sides(layer.name) else 1
    return layer.weights.shape[1] * share


def has_followed_layers(loaded: LoadedModel) -> bool:
    """Whether some layers of a recorded model do not call the recorder, and have a module that is called attention."""
    return any("Attention" in mixer for mixer in loaded.left_out.values())


@contextmanager
def following(loaded: LoadedModel, model_inputs: Mapping[str, Tensor]) -> Iterator[_LayerFollower]:
    """A context in which the pass of a model with these ids, in this thread, is followed."""
    follower = _LayerFollower(loaded, model_inputs)
    with follower.visits.of(loaded.model), ExitStack() as hooks:
        for path, module in loaded.model.named_modules():
            hook = module.register_forward_hook(partial(follower.leave, path), with_kwargs=True, prepend=True)
            hooks.callback(hook.remove)
        hooks.enter_context(follower)
        yield follower


def other_map(shape: Sequence[int], queries: int, keys: int) -> str:
    """What a layer has instead, if its maps [… query_pos key_pos] are not of the tokens."""
    return f"maps of {shape[-2]} × {shape[-1]} positions instead of {queries} × {keys} tokens"


def no_weights_error(loaded: LoadedModel, left_out: Mapping[str, str]) -> ModelError:
    """What to say where no layer of a pass has weights: what each has instead, or which library has replaced its attention."""
    why, advice = "none of its layers multiplies values by a softmax", "Choose another model."
    own = {"transformers", "torch", type(loaded.model).__module__.partition(".")[0]}
    for path, module in loaded.model.named_modules():
        library, kind = type(module).__module__.partition(".")[0], type(module).__name__
        # Linear layers are those that quantization replaces.
        if library not in own and re.search("attn|attention", path) and "Linear" not in kind:
            why = f"its module {path} is a {kind} of {library}, which replaced the one of transformers"
            advice = "Load the model anew with from_pretrained(…), and give it before another library changes it."
            break
    else:
        if left_out:
            why = f"it has other things in {listed_layers(left_out)}"
    return ModelError(f"{loaded.name} gives no attention weights from token to token: {why}. {advice}")


class _LayerFollower(Follower):
    """Notes what a model multiplies by its values."""

    def __init__(self, loaded: LoadedModel, model_inputs: Mapping[str, Tensor]) -> None:
        super().__init__(Modules(None))
        self.visits = Visits()
        self._loaded = loaded
        self._inputs = model_inputs if isinstance(model_inputs, TextInputs) else TextInputs(model_inputs)
        self._lengths = [ids.shape[-1] for ids in model_inputs.values()]
        self._n_texts = len(next(iter(model_inputs.values())))
        self._products: list[tuple[Place, Tensor]] = []  # the left factors […, query_pos, key_pos]

    def layers(self) -> list[FollowedLayer]:
        """The layers of the pass, in the order of a trace.

        Weights are drawn only if they lead from every token to every token, no weight is negative, and every row sums to 1, or to 0 where it sees nothing.
        """
        places = [*dict.fromkeys(place for place, _ in self._products)]
        names, without = layer_names(self._loaded, self.visits, places)
        layers = {name: FollowedLayer(name, None, mixer) for name, mixer in without.items()}
        for place, name in zip(places, names, strict=True):
            queries, keys = self._inputs.lengths_of(name)
            products = [self._of_windows(factor, queries, keys) for each, factor in self._products if each == place]
            maps = [
                factor
                for factor in products
                if factor.shape[-2:] == (queries, keys) and not factor.shape[:-2].numel() % self._n_texts
            ]
            usable = [factor for factor in maps if factor.ndim in (3, 4) and _are_shares(factor)]
            if not usable:
                instead = (
                    "weights that are negative, or whose rows do not sum to 1"
                    if maps
                    else other_map(products[0].shape, queries, keys)
                )
                layers[name] = FollowedLayer(name, None, instead)
            for number, factor in enumerate(usable):
                weights = in_float32(factor).reshape(self._n_texts, -1, queries, keys)
                layers[name + " again" * number] = FollowedLayer(name + " again" * number, weights)
        return [layers[name] for name in in_order([*layers])]

    def _of_windows(self, factor: Tensor, queries: int, keys: int) -> Tensor:
        """The weights of all windows of a picture, which run as a batch, in one map; other weights as they are."""
        n_sequences, rest = divmod(len(factor), self._n_texts)
        is_batch = factor.ndim == 4 and not rest and n_sequences > 1
        if is_batch and (queries, keys) == (n_sequences * factor.shape[-2], n_sequences * factor.shape[-1]):
            return along_diagonal(factor, self._n_texts)
        return factor

    def leave(self, path: str, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Looks for weights from token to token where a module has attended in windows or blocks."""
        place, whole = self.visits.place(path), {*self._lengths}
        products = [factor for each, factor in self._products if each == place]
        if current_packing() is None and products and not any({*factor.shape[-2:]} <= whole for factor in products):
            n_products = len(self._products)
            weights = _dense_weights(module, args, kwargs, self._n_texts, self._lengths[0])
            del self._products[n_products:]
            if weights is not None:
                self._products.append((place, weights))

    def attend(self, trail: Trail, product: Multiplication, side: int, result: Tensor) -> Trail | None:
        # Weights are the left factor of a product.
        factor, spec = product.left, product.spec
        if side == 0 and factor.ndim > 2 and self.visits.running:
            own = spec.only(0)
            order = [*spec.shared, *own, *spec.summed]
            if len(own) == len(spec.summed) == 1 and len(order) == factor.ndim:
                factor = factor.permute([spec.left.index(letter) for letter in order])
            self._products.append((self.visits.place(self.visits.running[-1]), factor.detach()))
        return None

    def attend_fused(
        self, inputs: Mapping[str, Any], trails: Mapping[str, Trail | None], result: Tensor
    ) -> Trail | None:
        # Of a family with a module for each implementation: fused attention gives no weights, and they are computed from what it was given.
        query, key, mask, scale = inputs[QUERY], inputs[KEY], inputs.get("attn_mask"), inputs.get("scale")
        if self.visits.running and not inputs.get("enable_gqa"):
            scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
            if inputs.get("is_causal"):
                mask = scores.new_ones(scores.shape[-2:], dtype=torch.bool).tril()
            if mask is not None:
                scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
            self._products.append((self.visits.place(self.visits.running[-1]), scores.softmax(-1).detach()))
        return None

    def run_opaque(
        self, name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any] | None:
        # WavLM attends inside of this function, which returns the mean of its heads.
        if name != "multi_head_attention_forward" or not self.visits.running:
            return None
        result = func(*args, **kwargs)
        calls = (read_function(tuple(args), kwargs, result, batch) for batch in range(self._n_texts))
        self._products.append(
            (self.visits.place(self.visits.running[-1]), torch.stack([call.steps[WEIGHTS] for call in calls]))
        )
        return (result,)


def _dense_weights(
    module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], n_texts: int, n_tokens: int
) -> Tensor | None:
    """The weights [text head query_pos key_pos] of attention in windows or blocks, which is linear in its values.

    The module runs again with values of 1 at one key for each column of a head, and 0 elsewhere: its output is a column of the weights.
    None if it has no module of values, or if these weights do not give its own output.
    """
    names = [name for name, _ in module.named_children() if _VALUES.fullmatch(name)]
    sizes = (vars(module).get(name) for name in ("n_heads", "num_heads", "num_attention_heads"))
    n_heads = next((size for size in sizes if isinstance(size, int)), 0)
    w_o = output_module(module, None)
    if not names or not n_heads:
        return None
    recorded: dict[str, Tensor] = {}

    def run(change: Callable[[str, Module, Any, Tensor], Tensor]) -> Tensor:
        """The heads' outputs, side by side [text query_pos d], with changed values."""
        outputs: list[Tensor] = []
        with ExitStack() as hooks:
            for name in names:
                hooks.callback(module.get_submodule(name).register_forward_hook(partial(change, name)).remove)
            if w_o is not None:
                hooks.callback(w_o.register_forward_pre_hook(lambda _, given: outputs.append(given[0])).remove)
            result = module.forward(*args, **kwargs)
            own: Tensor = outputs[0] if outputs else result[0] if isinstance(result, tuple) else result
            return own

    def record(name: str, _: Module, __: Any, made: Tensor) -> Tensor:
        recorded[name] = made if made.shape[0] == n_texts else made.transpose(0, 1)
        return made

    def at_keys(keys: Tensor, _: str, __: Module, ___: Any, made: Tensor) -> Tensor:
        return keys if made.shape[0] == n_texts else keys.transpose(0, 1)

    own = run(record)
    shapes = {made.shape for made in (own, *recorded.values())}
    if not recorded or len(shapes) > 1 or own.ndim != 3 or own.shape[1] < n_tokens or own.shape[2] % n_heads:
        return None
    _, n_keys, width = own.shape
    d_v = width // n_heads
    columns = []
    for first in range(0, n_keys, d_v):
        keys = torch.eye(n_keys, dtype=own.dtype, device=own.device)[:, first : first + d_v]
        keys = torch.nn.functional.pad(keys, (0, d_v - keys.shape[1])).repeat(1, n_heads).expand(n_texts, -1, -1)
        made = run(partial(at_keys, keys))
        columns.append(made.reshape(n_texts, n_keys, n_heads, d_v))
    weights = torch.cat(columns, -1)[..., :n_keys].transpose(1, 2)
    errors = [
        (weights @ made.reshape(n_texts, n_keys, n_heads, d_v).transpose(1, 2)).transpose(1, 2).flatten(2) - own
        for made in recorded.values()
    ]
    error = torch.stack(errors).abs().amax(-1).amin(0)[:, :n_tokens]  # a global token may have values of its own
    tolerance = max(_VALUE_TOLERANCE, 4 * torch.finfo(own.dtype).eps)
    if bool((error > tolerance * own.abs().max().clamp_min(1)).any()):
        return None
    return weights[..., :n_tokens, :n_tokens]


def _are_shares(weights: Tensor) -> bool:
    """Whether no weight is negative, and every row sums to 1, or to 0 where the query sees nothing."""
    sums = weights.sum(-1, dtype=torch.float32)
    tolerance = max(_TOLERANCE, 2 * torch.finfo(weights.dtype).eps)
    return bool(((sums - 1).abs() < tolerance).logical_or(sums == 0).all()) and not bool((weights < 0).any())
