"""Which layer of a model each of its attention calls belongs to: numbered by the layers that the model enters while it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from attention.models.loaded import LoadedModel, in_order

_CROSS = re.compile(r"encoder_attn|EncDecAttention|cross_?att(entio)?n")
_LONGEST_KIND = 30  # characters
_ATTENTION_KINDS = ("attention", "full", "sliding", "chunked", "hybrid")


class Place(NamedTuple):
    """Where attention is called.

    Attributes:
        path: of the module that runs.
        entry: the index in `Visits.entries` of the layer that runs; None outside of all layers.
        is_cross: whether its keys are known to come from another text.
    """

    path: str
    entry: int | None
    is_cross: bool = False


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
    kinds = [_kind(loaded, place) for place in places]
    names: list[str] = []
    numbers, without = dict[str, dict[int, int]](), dict[str, str]()
    for kind in dict.fromkeys(kinds if not loaded.is_encoder_decoder else ["encoder", "decoder", *kinds]):
        of_kind = [place for place, each in zip(places, kinds, strict=True) if each == kind]
        if loaded.is_encoder_decoder:
            part = "encoder" if kind == "encoder" else "decoder"
            used = {lists[path] for path in visits.entries if _part(path) == part}
        else:
            used = {lists[visits.entries[place.entry]] for place in of_kind if place.entry is not None}
        entered = [entry for entry, path in enumerate(visits.entries) if lists[path] in used]
        paths = [path for path, of_list in lists.items() if of_list in used]
        if len({visits.entries[entry] for entry in entered}) == len(entered):  # each once
            numbers[kind] = {entry: paths.index(visits.entries[entry]) for entry in entered}
        else:
            paths = [visits.entries[entry] for entry in entered]
            numbers[kind] = {entry: number for number, entry in enumerate(entered)}
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
    if loaded.pictures is not None and loaded.pictures.reads_text:
        return "vision" if re.search(r"\b(vision_(model|tower)|visual)\b", place.path) else "text"
    return "layer"


def _part(path: str) -> str:
    return "decoder" if re.search(r"\bdecoder\b", path) else "encoder"


def _has_two_modules(places: Sequence[Place]) -> bool:
    """Whether a layer calls two attention modules, which then have numbers of their own."""
    return len({place.entry for place in places}) < len({(place.entry, place.path) for place in places})


def _lists_of_layers(model: Any) -> dict[str, str]:
    """The outermost list of each layer, by the path of the layer; a list of lists is one list."""
    from torch.nn import ModuleList

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
