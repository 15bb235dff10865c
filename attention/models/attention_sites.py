"""The attention modules of a model, found by running it once: numbered by the layers that it enters, with named weight matrices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Module, ModuleList

from attention.formula.functions import project, project_output
from attention.formula.mask import Mask
from attention.formula.names import KEY, QUERY, VALUE
from attention.models import recorder
from attention.models.attention_call import Call, allow_row_blocks, in_float32
from attention.models.loaded import LoadedModel, Site, in_order
from attention.models.running import probe_inputs, run

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

    # The first of two runs says which modules attend; only then can their inputs and outputs be noted.
    with recorder.recording(note):
        run(loaded, model_inputs)
    modules = {id(call.module): call.module for call in calls}
    for module in modules.values():
        if loaded.attachment is None:
            recorder.record_inputs(module)
        else:
            # A user's model carries no hooks but while it is recorded.
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

    # Hooks belong to the module: a run of another thread would call them, too.
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
            # Names of attributes are a guess, until they give the numbers that the model had.
            named = _parameters(call, parent_of.get(key))
            if "w_o" in named and not (key in outputs and _makes_output(named, call, outputs[key])):
                named = {name: tensor for name, tensor in named.items() if name not in ("w_o", "b_o")}
            parameters_of[key] = _with_versions(named)
    names, left_out = layer_names(loaded, visits, places)
    sites = tuple(
        Site(
            name,
            parameters_of[id(call.module)],
            _pure_projections(parameters_of[id(call.module)], call),
            _sizes(call),
            sum(tensor.shape[0] * tensor.shape[-1] for tensor in (call.query, call.key, call.value))
            + (d_model or _width(call)) * (1 + (call.memory is not None)),
            row_blocks[id(call.module)] or not call.has_own_weights,
            paths[id(call.module)],
            _is_causal(call),
            call.bias is not None,
        )
        for name, call in zip(names, calls, strict=True)
    )
    return sites, left_out


def with_parameters(sites: Sequence[Site], names: Sequence[Iterable[str]], model: Any) -> tuple[Site, ...]:
    """The sites of a model that was not changed since they were found, with the parameters of these names, which they had then."""
    parent_of, parameters_of = parents(model), dict[str, dict[str, Tensor]]()
    for site, own in zip(sites, names, strict=True):
        if site.path not in parameters_of:
            module = model.get_submodule(site.path)
            known = _matrices(module, parent_of.get(id(module)), site.sizes)
            parameters_of[site.path] = _with_versions({name: known[name] for name in own})
    return tuple(replace(site, parameters=parameters_of[site.path]) for site in sites)


def _with_versions(named: dict[str, Tensor]) -> dict[str, Tensor]:
    for tensor in named.values():  # a layer notices by it that the model was changed since
        vars(tensor)["recorded_version"] = tensor.is_inference() or tensor._version
    return named


def _sizes(call: Call) -> dict[str, tuple[int, int]]:
    heads = {"q": call.query, "k": call.key, "v": call.value}
    return {name: (tensor.shape[0], tensor.shape[-1]) for name, tensor in heads.items()}


def _width(call: Call) -> int:
    # For a model whose towers have widths of their own.
    return 0 if call.input is None else call.input.shape[-1]


def _is_causal(call: Call) -> bool:
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


# -- weight matrices -----------------------------------------------------------------------------------

# Attribute names of the model families: Q, K and V as separate layers; fused side by side; fused head by head; and W_O.
_SEPARATE = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q", "k", "v"),
    ("q_lin", "k_lin", "v_lin"),
    ("linear_q", "linear_k", "linear_v"),
)
_FUSED_SIDE_BY_SIDE = ("c_attn", "qkv_proj", "Wqkv", "qkv")
_FUSED_BY_HEAD = ("query_key_value",)
_OUTPUT = ("o_proj", "out_proj", "o", "out_lin", "c_proj", "dense", "Wo", "proj", "projection_layer", "linear_out")
_PROJECTION_TOLERANCE = 1e-3  # relative to the largest number
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

_Linear = tuple[Tensor, Tensor | None]
"""The matrix [d_in d_out] and the bias of a linear layer."""


def _parameters(call: Call, parent: Module | None) -> dict[str, Tensor]:
    """The parameters that `_matrices` finds; those of the input only if they give the recorded value.

    Otherwise their family orders them in an unknown way, or computes something else in between.
    """
    named = _matrices(call.module, parent, _sizes(call))
    x2 = call.memory if call.memory is not None else call.input
    if "w_v" in named and (x2 is None or not _is_projection(x2, named, "v", call.value, call.dtype)):
        named = {name: named[name] for name in ("w_o", "b_o") if name in named}
    return named


def _matrices(module: Module, parent: Module | None, sizes: Mapping[str, tuple[int, int]]) -> dict[str, Tensor]:
    """W_Q, W_K, W_V, W_O and their biases, as views of the model's own; only those found under a known attribute name."""
    named = _input_projections(module, sizes)
    linears = map(_linear, output_candidates(module, parent))
    output = next((linear for linear in linears if linear is not None), None)
    if output is None:
        return named
    (weight, bias), n_heads, d_v = output, sizes["q"][0], sizes["v"][1]
    if weight.shape[0] != n_heads * d_v:
        return named
    named["w_o"] = weight.reshape(n_heads, d_v, -1)
    if bias is not None:
        named["b_o"] = bias
    return named


def _pure_projections(named: Mapping[str, Tensor], call: Call) -> frozenset[str]:
    """Which of the recorded query, key and value are exactly their projection of the input, given the `named` parameters."""
    x2 = call.memory if call.memory is not None else call.input
    candidates = ((QUERY, call.input, call.query), (KEY, x2, call.key), (VALUE, x2, call.value))
    return frozenset(
        name
        for name, x, recorded in candidates
        if x is not None and f"w_{name[0]}" in named and _is_projection(x, named, name[0], recorded, call.dtype)
    )


def _makes_output(named: Mapping[str, Tensor], call: Call, output: Tensor) -> bool:
    """Whether W_O of the `named` parameters turns the head outputs into the model's `output` [query_pos d_model]."""
    if "w_o" not in named:
        return False
    w_o, b_o = in_float32(named["w_o"]), in_float32(named["b_o"]) if "b_o" in named else None
    return _is_close(project_output(call.head_output, w_o, b_o), output, call.dtype)


def output_module(module: Module, parent: Module | None) -> Module | None:
    """The linear layer W_O of an attention module; None if there is none. Some families keep it in the parent."""
    candidates = output_candidates(module, parent)
    return next((candidate for candidate in candidates if _linear(candidate) is not None), None)


def output_candidates(module: Module, parent: Module | None) -> list[Module]:
    """The modules that may be W_O of an attention module, by their names."""
    children = [getattr(module, name) for name in _OUTPUT if hasattr(module, name)]
    sibling = getattr(getattr(parent, "output", None), "dense", None)  # BERT
    return [*children, *([sibling] if sibling is not None else [])]


def _input_projections(module: Module, sizes: Mapping[str, tuple[int, int]]) -> dict[str, Tensor]:
    linears = _separate(module) or _fused(module, sizes)
    named: dict[str, Tensor] = {}
    for name, (weight, bias) in linears.items():
        n_heads, d_head = sizes[name]
        if weight.shape[1] != n_heads * d_head:
            return {}
        named[f"w_{name}"] = weight.reshape(-1, n_heads, d_head).transpose(0, 1)
        if bias is not None:
            named[f"b_{name}"] = bias.reshape(n_heads, d_head)
    return named


def _separate(module: Module) -> dict[str, _Linear]:
    for names in _SEPARATE:
        candidates = [_linear(getattr(module, name, None)) for name in names]
        linears = [linear for linear in candidates if linear is not None]
        if len(linears) == 3:
            return dict(zip("qkv", linears, strict=True))
    return {}


def _fused(module: Module, sizes: Mapping[str, tuple[int, int]]) -> dict[str, _Linear]:
    """Q, K and V of one fused matrix, side by side or head by head; `sizes` are (n_heads, d_head) of each."""
    widths = [n_heads * d_head for n_heads, d_head in sizes.values()]
    for name in (*_FUSED_SIDE_BY_SIDE, *_FUSED_BY_HEAD):
        fused = _linear(getattr(module, name, None))
        if fused is None or fused[0].shape[1] != sum(widths):
            continue
        weight, bias = fused
        if name in _FUSED_BY_HEAD and len({size[0] for size in sizes.values()}) == 1:
            n_heads = sizes["q"][0]
            weight = _side_by_side(weight, n_heads, len(sizes))
            bias = None if bias is None else _side_by_side(bias, n_heads, len(sizes))
        weights = torch.split(weight, widths, dim=-1)
        biases = [None] * 3 if bias is None else torch.split(bias, widths, dim=-1)
        return dict(zip(sizes, zip(weights, biases, strict=True), strict=True))
    return {}


def _side_by_side(matrix: Tensor, n_heads: int, n_parts: int) -> Tensor:
    """Columns ordered head by head (q k v q k v …), reordered part by part (q q … k k … v v …)."""
    by_head = matrix.reshape(*matrix.shape[:-1], n_heads, n_parts, -1)
    return by_head.transpose(-3, -2).flatten(-3)


def _linear(module: Module | None) -> _Linear | None:
    """The matrix [d_in d_out] and the bias of a linear layer; None for anything else."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor) or weight.ndim != 2 or weight.dtype not in _DTYPES:
        return None  # quantized weights are packed: they are no matrix
    sizes = {getattr(module, name, None) for name in ("in_features", "out_features")} - {None}
    if hasattr(module, "base_layer") or (sizes and sizes != {*weight.shape}):  # an adapter adds to its base layer
        return None
    bias = getattr(module, "bias", None)
    # GPT-2's Conv1D stores [d_in d_out], nn.Linear [d_out d_in].
    matrix = weight if type(module).__name__ == "Conv1D" else weight.T
    return matrix.detach(), None if bias is None else bias.detach()


def _is_projection(x: Tensor, named: Mapping[str, Tensor], letter: str, recorded: Tensor, dtype: torch.dtype) -> bool:
    if x.shape[-1] != named[f"w_{letter}"].shape[1]:  # MobileBERT reads values elsewhere
        return False
    bias = in_float32(named[f"b_{letter}"]) if f"b_{letter}" in named else None
    return _is_close(project(x, in_float32(named[f"w_{letter}"]), bias), recorded, dtype)


def _is_close(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    if actual.shape != expected.shape:
        return False
    tolerance = max(_PROJECTION_TOLERANCE, 2 * torch.finfo(dtype).eps)
    return bool((actual - expected).abs().max() <= tolerance * expected.abs().max().clamp_min(1e-6))


# -- names of layers -----------------------------------------------------------------------------------

_CROSS = re.compile(r"encoder_attn|EncDecAttention|cross_?att(entio)?n")
_LONGEST_KIND = 30  # characters
_ATTENTION_KINDS = ("attention", "full", "sliding", "chunked", "hybrid")


class Place(NamedTuple):
    """Where attention is called."""

    path: str  # of the module that runs
    entry: int | None  # the index in `Visits.entries` of the layer that runs; None outside of all layers
    is_cross: bool = False  # whether its keys are known to come from another text


class Visits:
    """The layers that a model enters while it runs. A layer is a member of an outermost list of modules.

    Attributes:
        entries: the path of each layer, in the order in which they are entered; some models enter a layer again and again.
        running: the paths of the modules that run, the innermost last.
    """

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.running: list[str] = []
        self._current: int | None = None

    def place(self, path: str, is_cross: bool = False) -> Place:
        """The place of a module with this path that runs now."""
        return Place(path, self._current, is_cross)

    @contextmanager
    def of(self, model: Any) -> Iterator[None]:
        """A context in which the runs of a model are noted."""
        layers = _lists_of_layers(model)
        with ExitStack() as hooks:
            for path, module in model.named_modules():
                hooks.callback(module.register_forward_pre_hook(partial(self._enter, path, path in layers)).remove)
                hooks.callback(module.register_forward_hook(partial(self._leave, path in layers)).remove)
            yield

    def _enter(self, path: str, is_layer: bool, *_: Any) -> None:
        self.running.append(path)
        if is_layer:
            self._current = len(self.entries)
            self.entries.append(path)

    def _leave(self, is_layer: bool, *_: Any) -> None:
        self.running.pop()
        if is_layer:
            self._current = None


def layer_names(loaded: LoadedModel, visits: Visits, places: Sequence[Place]) -> tuple[list[str], dict[str, str]]:
    """The name of each place: its kind, and the model's own number of its layer; and what each other layer has instead of attention.

    The number counts the layers that are entered, so that a layer that runs twice has two numbers. A second call within a layer is "again".
    """
    lists = _lists_of_layers(loaded.model)
    across = "" if loaded.reader is None else loaded.reader.across
    kinds = [(place in places[:at] and across) or _kind(loaded, place) for at, place in enumerate(places)]
    names: list[str] = []
    numbers, without = dict[str, dict[int, int]](), dict[str, str]()
    for kind in dict.fromkeys(kinds if not loaded.is_encoder_decoder else ["encoder", "decoder", *kinds]):
        of_kind = [place for place, each in zip(places, kinds, strict=True) if each == kind]
        used = {lists[visits.entries[place.entry]] for place in of_kind if place.entry is not None}
        if not of_kind:  # a part of an encoder-decoder without attention
            used = {lists[path] for path in visits.entries if re.match(rf"(\w+\.)?{kind}\b", path)}
        entered = [entry for entry, path in enumerate(visits.entries) if lists[path] in used]
        paths = [path for path, of_list in lists.items() if of_list in used]
        if len({visits.entries[entry] for entry in entered}) == len(entered):  # each once
            numbers[kind] = {entry: paths.index(visits.entries[entry]) for entry in entered}
        else:
            paths = [visits.entries[entry] for entry in entered]
            numbers[kind] = {entry: number for number, entry in enumerate(entered)}
        # Outside of all layers, or twice in one, a layer's number would not say which: modules are counted instead.
        if any(place.entry is None for place in of_kind) or _has_two_modules(of_kind):
            numbers[kind] = {}
        elif kind != "cross":
            there = {numbers[kind][place.entry] for place in of_kind if place.entry is not None}
            missing = (number for number in range(len(paths)) if number not in there)
            without |= {
                f"{kind} {number}": _mixer(loaded.model, paths[number], number, len(paths)) for number in missing
            }
    counted: dict[str, dict[str, int]] = {}
    for place, kind in zip(places, kinds, strict=True):
        of_modules = counted.setdefault(kind, {})
        number = of_modules.setdefault(place.path, len(of_modules))
        if place.entry is not None:
            number = numbers[kind].get(place.entry, number)
        name = f"{kind} {number}"
        while name in names:
            name += " again"
        names.append(name)
    return names, without


def describe_layers(mixers: Mapping[str, str]) -> str:
    """A sentence about the layers that are left out: what each has instead, by its name."""
    return f"This model has no attention weights from token to token in {listed_layers(mixers)}: layers are numbered as in the model."


def listed_layers(mixers: Mapping[str, str]) -> str:
    """Layers and what each has instead of attention, such as "layers 0, 2 (mamba)"."""
    by_mixer: dict[str, list[str]] = {}
    for name in in_order([*mixers]):
        by_mixer.setdefault(mixers[name], []).append(name)
    listed = []
    for mixer, names in by_mixer.items():
        of_kinds = groupby(names, key=lambda name: name.split()[0])
        ranges = (_ranges(kind, [int(name.split()[1]) for name in of_kind]) for kind, of_kind in of_kinds)
        listed.append(f"{', '.join(ranges)} ({mixer})")
    return f"{'layer' if len(mixers) == 1 else 'layers'} {'; '.join(listed)}"


def _kind(loaded: LoadedModel, place: Place) -> str:
    if place.is_cross or _CROSS.search(place.path):
        return "cross"
    if loaded.is_encoder_decoder:
        return _part(place.path)
    return "layer" if loaded.reader is None else loaded.reader.kind_of_layer(place.path)


def _part(path: str) -> str:
    return "decoder" if re.search(r"\bdecoder\b", path) else "encoder"


def _has_two_modules(places: Sequence[Place]) -> bool:
    """Whether a layer calls two attention modules, which then have numbers of their own."""
    return len({place.entry for place in places}) < len({(place.entry, place.path) for place in places})


def _lists_of_layers(model: Any) -> dict[str, str]:
    """The outermost list of each layer, by the path of the layer; a list of lists is one list."""
    found: dict[str, str] = {}
    lists = {path for path, module in model.named_modules() if isinstance(module, ModuleList)}
    layer = None
    for path, _ in model.named_modules():
        of_list = path.rpartition(".")[0]
        if path in lists or of_list not in lists or (layer is not None and path.startswith(f"{layer}.")):
            continue
        while of_list.rpartition(".")[0] in lists:
            of_list = of_list.rpartition(".")[0]
        layer = path
        found[path] = of_list
    return found


def _mixer(model: Any, path: str, number: int, n_layers: int) -> str:
    """What a layer without attention has instead: by the config, or the class of what is called attention in it."""
    text_config = model.config.get_text_config()
    for name in ("layers_block_type", "layer_types"):
        kinds = getattr(text_config, name, None)
        if isinstance(kinds, list | tuple) and len(kinds) == n_layers:
            kind = " ".join(re.findall("[a-z0-9]+", str(kinds[number]).lower()))[:_LONGEST_KIND]
            if kind and kind.split()[0] not in _ATTENTION_KINDS:
                return kind
    classes = (type(module).__name__ for module in model.get_submodule(path).modules())
    return next((name for name in classes if "attention" in name.lower()), "something else")


def _ranges(kind: str, numbers: Sequence[int]) -> str:
    """Runs of numbers, such as "0–2, 4", or "encoder 0–2, 4"."""
    runs = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        runs.append(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)))
    return ("" if kind == "layer" else f"{kind} ") + ", ".join(runs)
