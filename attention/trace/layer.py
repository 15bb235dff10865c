"""One attention layer: the tensors that its source recorded, and the formula that computes the other steps lazily.

`Layer` is one long class because every question about a step has the same three answers: recorded, computed, or
absent. Its attributes are exactly the declared steps and parameters (`tests/project/test_contract.py` checks that), so that
editors and type checkers know `layer.weights`.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, TypeVar, overload

from attention.base import cache
from attention.base.errors import MissingError, ShapeError, check_index
from attention.base.printed import Displayed
from attention.base.tokens import patch_places
from attention.formula.formula import Formula
from attention.formula.mask import SIZES, Mask
from attention.formula.names import HEAD_OUTPUT, OUTPUT, PATCHED_OUTPUT, QUERY, SCORES, WEIGHTS
from attention.formula.override import Override
from attention.formula.scores import BLOCK_ROWS
from attention.formula.steps import (
    DECLARED,
    HEAD_AXES,
    MAP_AXES,
    NAMES_ELSEWHERE,
    STEPS,
    Factor,
    Step,
    field_values,
    find_step,
    meant_by,
    our_name,
)
from attention.trace.cost import MOST_KEPT_CELLS
from attention.trace.stats import HeadSurvey, StepStats, Top

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.config import AttentionConfig
    from attention.formula.step import LayerView
    from attention.trace.large_map import BlockMaxima


class _TensorOf:
    """A descriptor: the tensor of the step or parameter of this name, for all heads; None if the layer does not have it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, layer: None, owner: type) -> _TensorOf: ...

    @overload
    def __get__(self, layer: LayerView, owner: type) -> Tensor | None: ...

    def __get__(self, layer: LayerView | None, owner: type) -> _TensorOf | Tensor | None:
        if layer is None:
            return self
        return layer[self.name] if layer.has(self.name) else None


class _Attributes:
    """An attribute for each step, in the order of the formula, and for each parameter."""

    embedding = _TensorOf()
    position = _TensorOf()
    input = _TensorOf()
    query = _TensorOf()
    memory = _TensorOf()
    key = _TensorOf()
    value = _TensorOf()
    rotated_query = _TensorOf()
    rotated_key = _TensorOf()
    scores = _TensorOf()
    scaled_scores = _TensorOf()
    capped_scores = _TensorOf()
    biased_scores = _TensorOf()
    masked_scores = _TensorOf()
    weights = _TensorOf()
    dropped_weights = _TensorOf()
    head_output = _TensorOf()
    patched_output = _TensorOf()
    output = _TensorOf()

    mask = _TensorOf()
    w_q = _TensorOf()
    w_k = _TensorOf()
    w_v = _TensorOf()
    w_o = _TensorOf()
    b_q = _TensorOf()
    b_k = _TensorOf()
    b_v = _TensorOf()
    b_o = _TensorOf()
    w_s = _TensorOf()
    bias = _TensorOf()
    sinks = _TensorOf()
    lambdas = _TensorOf()
    dropout_mask = _TensorOf()
    patched_weights = _TensorOf()
    patched_head_output = _TensorOf()
    bias_table = _TensorOf()


_ATTENTION = "attention"
"""The `Layer.mixer` of a layer with attention."""

_FORMULA_TENSORS = ("mask", "bias")  # the formula computes these from no other step
_STEPS_AFTER_SCORES = tuple(step.name for step in STEPS if step.axes == MAP_AXES and step.name != SCORES)
T = TypeVar("T")


class Recorded(dict[str, "Tensor"]):
    """The tensors that a source recorded, with a unique id: the cache stores under it what is computed from them."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self.uid = cache.new_uid()
        weakref.finalize(self, cache.mark_released, self.uid)


@dataclass(frozen=True, eq=False, repr=False)
class Layer(_Attributes, Displayed):
    """One attention layer: the tensors that its source recorded, and the formula that computes the later steps.

    ``layer.weights`` is the tensor of a step or parameter for all heads, or None if the layer does not have it.
    ``layer["weights"]`` is the same, but raises MissingError. ``layer.matrix("weights", head)`` is the matrix of one head,
    computed on first access and cached. Other libraries' names are understood, as in ``layer.pattern``. Iterating yields (step, tensor)
    for the available steps, in the order of the formula.

    Attributes:
        name: the layer's name in a model with several kinds of layers, such as "decoder 2".
        tokens: the tokens that attend, by query_pos; `key_tokens` the tokens attended to, by key_pos.
        recorded: tensors by the name of their step or parameter.
        formula: computes the steps that are not recorded; None: there are no other steps.
        materialize_all_heads: whether the query × key matrices are computed and cached for all heads at once;
            for a long text they are computed head by head, and above 2,896 tokens row by row (`keeps_maps`).
        base_formula: the formula of the source, if a knob or an override changed it; None: `formula` is the source's.
        shared_with_model: names of recorded tensors that belong to a loaded model; `nbytes` does not count them.
        provenance: explanations of recorded steps that no formula computes, by step; the default is `Step.unknown`.
        parent: the layer of all heads, if this layer is that layer with the formula of one head: it has the numbers.
        mixer: what mixes the tokens: "attention", or what a layer of a hybrid model has instead, such as "mamba"; then it has no steps.

    Raises:
        ShapeError: a tensor has the wrong number of axes, or one axis has two sizes.
    """

    name: str = ""
    tokens: tuple[str, ...] = ()
    key_tokens: tuple[str, ...] = ()
    recorded: Mapping[str, Tensor] = field(default_factory=dict)
    formula: Formula | None = None
    materialize_all_heads: bool = True
    base_formula: Formula | None = None
    shared_with_model: frozenset[str] = frozenset()
    provenance: Mapping[str, str] = field(default_factory=dict)
    parent: Layer | None = None
    mixer: str = _ATTENTION

    def __post_init__(self) -> None:
        if not isinstance(self.recorded, Recorded):
            object.__setattr__(self, "recorded", Recorded(_by_our_names(self.recorded)))
        if not self.key_tokens:
            object.__setattr__(self, "key_tokens", self.tokens)
        _ = self.sizes  # raises ShapeError before torch raises something less readable

    if not TYPE_CHECKING:  # a type checker then reports a misspelled attribute

        def __getattr__(self, name: str) -> Tensor | None:
            meant = () if name.startswith("_") or hasattr(type(self), name) else meant_by(name)
            if len(meant) == 1:
                return getattr(self, meant[0])
            public = [attribute for attribute in dir(type(self)) if not attribute.startswith("_")]
            matches = meant or get_close_matches(name, [*public, *NAMES_ELSEWHERE], 1)
            hint = f": did you mean {' or '.join(map(repr, matches))}?" if matches else "."
            raise AttributeError(f"a layer has steps and parameters such as weights and w_q; it has no {name!r}{hint}")

    def __repr__(self) -> str:
        if not self.has_attention:
            return f"{type(self).__name__}({self.name!r}; no attention: {self.mixer})"
        computed = ", ".join(step.name for step in self.steps if step.name not in self.recorded)
        sizes = ", ".join(f"{axis} {size}" for axis, size in self.sizes.items())
        recorded = ", ".join(self.recorded)
        parts = [repr(self.name) if self.name else "", sizes]
        parts += [f"{origin}: {names}" for origin, names in (("recorded", recorded), ("by formula", computed)) if names]
        return f"{type(self).__name__}({'; '.join(part for part in parts if part)})"

    def __iter__(self) -> Iterator[tuple[Step, Tensor]]:
        for step in self.steps:
            yield step, self._tensor(step.name)

    def __getitem__(self, name: str) -> Tensor:
        """The tensor of the step or parameter `name`, for all heads.

        Raises:
            MissingError: there is no such step, or this source could not record it.
        """
        return self._tensor(self._check(name))

    # -- available steps ----------------------------------------------------------------------

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The steps that this layer has, in the order of the formula; computes nothing."""
        return tuple(step for step in STEPS if self.has(step.name))

    @property
    def has_attention(self) -> bool:
        """Whether this is a layer with attention; in a hybrid model, some layers have none."""
        return self.mixer == _ATTENTION

    def has(self, name: str) -> bool:
        """Whether the layer has a step or parameter; computes nothing.

        Raises:
            MissingError: there is no such step or parameter.
        """
        name, formula = our_name(name), self.formula
        if name in self.available:
            return True
        if formula is None:
            return False
        if name in _FORMULA_TENSORS:
            return bool(formula.bias) if name == "bias" else formula.mask is not None
        step = DECLARED[name]
        return isinstance(step, Step) and step.enabled(formula) and step.available(self)

    def without(self, *names: str) -> Layer:
        """The layer without some recorded tensors; itself if it has none of them."""
        if not self.recorded.keys() & set(names):
            return self
        return replace(self, recorded={name: tensor for name, tensor in self.recorded.items() if name not in names})

    def with_tensors(self, **tensors: Tensor | None) -> Layer:
        """The layer with more recorded tensors; None removes a tensor."""
        recorded = {**self.recorded, **{our_name(name): tensor for name, tensor in tensors.items()}}
        return replace(self, recorded={name: tensor for name, tensor in recorded.items() if tensor is not None})

    def with_formula(self, formula: Formula) -> Layer:
        """The layer with the same recorded tensors and another formula."""
        return replace(self, formula=formula)

    def with_config(self, config: AttentionConfig | Override) -> Layer:
        """The layer with the values of `config` for the knobs after the scores; itself if it has no formula."""
        source_formula = self.base_formula or self.formula
        if source_formula is None:
            return self
        if isinstance(config, Override):
            config = config.restricted_to(self.overridable_knobs)
        formula = source_formula.with_config(config, self.sizes.get("d_k", 1))
        base = source_formula if isinstance(config, Override) and formula != source_formula else None
        if (formula, base) == (self.formula, self.base_formula):
            return self
        return replace(self, formula=formula, base_formula=base)

    @property
    def overridable_knobs(self) -> tuple[str, ...]:
        """Names of the fields of an `Override` that change a number of this layer; none without computed maps."""
        layer = self.wrapped
        formula = layer.base_formula or layer.formula
        # Recorded steps after the scores would stay as they are, whatever a knob says.
        if formula is None or not layer.has(SCORES) or any(name in layer.recorded for name in _STEPS_AFTER_SCORES):
            return ()
        # Provided scores without a divisor are never divided.
        divides = formula.divisor or (formula.normalizer and layer.has(QUERY))
        scale_knobs = ("temperature", *(["scaled"] if formula.divisor not in (None, 1) else [])) if divides else ()
        mask_knobs = ("mask", *SIZES, "cells") if formula.normalizer else ()
        return tuple(knob.name for knob in fields(Override) if knob.name in (*scale_knobs, *mask_knobs))

    def for_head(self, head: int) -> Layer:
        """The layer with the formula of one head; itself unless that head has a formula of its own."""
        if self.formula is None or head not in dict(self.formula.heads):
            return self
        return replace(
            self, formula=self.formula.for_head(head), base_formula=self.base_formula or self.formula, parent=self
        )

    def visible_cells(self, head: int, rows: slice = slice(None)) -> Tensor:
        """The cells of a head that the mask does not hide, boolean [query_pos key_pos], for all queries or some; all of them if there is no mask."""
        return self.for_head(head).mask_rows(rows)

    def mask_rows(self, rows: slice) -> Tensor:
        """The rows of the mask for some queries, boolean [query_pos key_pos]; a rule is not written out for the others."""
        import torch

        if "mask" in self.available or self.keeps_maps:
            mask = self.mask
            n_queries = len(range(self.sizes["query_pos"])[rows])
            return torch.ones(n_queries, self.sizes["key_pos"], dtype=torch.bool) if mask is None else mask[rows]
        rule = (self.formula and self.formula.mask) or Mask()
        places = self.patch_places if rule.needs_patches else None
        return rule.build(self.sizes["query_pos"], self.sizes["key_pos"], places, rows)

    def toggle_cell(self, head: int, query_pos: int, key_pos: int) -> str:
        """The mask of a head with one cell hidden that was visible, or visible that was hidden, in the encoding of `attention.formula.mask_tensor.encode`."""
        from attention.formula import mask_tensor

        return mask_tensor.toggle(self.visible_cells(head), query_pos, key_pos)

    @cached_property
    def available(self) -> Mapping[str, Tensor]:
        """Recorded tensors that are still valid under the current formula: a changed formula invalidates outputs, and maybe the mask."""
        if self.base_formula is None or self.formula is None:
            return self.recorded
        # An override applies after the scores: what was recorded of later steps is of the other formula.
        stale = {HEAD_OUTPUT, PATCHED_OUTPUT, OUTPUT} | (
            {"mask"} if self.formula.mask != self.base_formula.mask else set()
        )
        return {name: tensor for name, tensor in self.recorded.items() if name not in stale}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The length of each axis of this layer, by its name.

        Raises:
            ShapeError: as for the layer.
        """
        sizes = _sizes_of(self.recorded, self.tokens, self.key_tokens)
        if self.formula is not None and "kv_head" in sizes:
            # Without queries nothing says that heads share keys.
            sizes.setdefault("head", sizes["kv_head"])
        return sizes

    @cached_property
    def patch_places(self) -> tuple[Tensor, Tensor]:
        """The picture, row and column of each query and of each key, each [pos 3]; −1 for a token that is no patch."""
        return patch_places(self.tokens), patch_places(self.key_tokens)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a step or parameter; computes nothing.

        Raises:
            MissingError: as for ``layer[name]``.
        """
        name = self._check(name)
        if name in self.available:
            return tuple(self.available[name].shape)
        return tuple(self.sizes[axis] for axis in _axes_of(name))

    @property
    def wrapped(self) -> Layer:
        """The recorded layer: this layer, unless it is a view of another layer (subwords merged into words)."""
        return self

    @property
    def n_heads(self) -> int:
        """The number of heads; 1 if no step has a head axis, 0 in a layer without attention."""
        return self.sizes.get("head", self.sizes.get("kv_head", int(self.has_attention)))

    @property
    def difference(self) -> Tensor:
        """What differential attention multiplies by its values, A₁ − λA₂ [pair query_pos key_pos]; the first half of the heads are A₁, the second A₂.

        Its rows sum to 1 − λ, and it has negative numbers. Source: Ye et al. 2024, "Differential Transformer", equation 1.

        Raises:
            MissingError: this layer has no differential attention, or not all of its heads.
        """
        weights, lambdas = self[WEIGHTS], self["lambdas"]
        if self.n_heads % 2:
            raise MissingError("A difference is of two heads; this layer has one of them: save all heads.")
        first, second = weights.chunk(2)
        return first - lambdas[: len(first), None, None] * second

    @property
    def nbytes(self) -> int:
        """Bytes of the recorded tensors; a storage that two tensors share counts once, and the model's tensors do not count."""
        storages = (
            tensor.untyped_storage() for name, tensor in self.recorded.items() if name not in self.shared_with_model
        )
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def labels_of(self, axis: str) -> tuple[str, ...] | None:
        """The tokens along an axis, or None for an axis without tokens (d_model, head, …)."""
        return {"query_pos": self.tokens, "key_pos": self.key_tokens}.get(axis) or None

    @property
    def keeps_maps(self) -> bool:
        """Whether a query × key matrix of one head is small enough to be kept; others are read by `row`, `top`, `blocks` and `block_maxima`."""
        return self.sizes.get("query_pos", 0) * self.sizes.get("key_pos", 0) <= MOST_KEPT_CELLS

    @property
    def _computes_all_heads(self) -> bool:
        return self.materialize_all_heads and self.keeps_maps

    # -- the numbers --------------------------------------------------------------------------

    def matrix(self, name: str, head: int = 0) -> Tensor:
        """One head's matrix of a step or parameter, [row_axis column_axis]; a step without heads ignores `head`.

        `head` counts query heads: for keys and values that several query heads share, each of these gives the same matrix.

        Raises:
            MissingError: there is no such step or head.
        """
        # The parent computes each head by its own formula, and caches it once.
        if self.parent is not None and name not in _FORMULA_TENSORS:
            return self.parent.matrix(name, head)
        name = self._check(name)
        axes = DECLARED[name].axes
        if axes[0] not in HEAD_AXES:
            return self._tensor(name)
        check_index("heads", head, self.n_heads)
        is_by_head = axes == MAP_AXES or name == HEAD_OUTPUT
        if name in self.available or self._computes_all_heads or not is_by_head:
            return self._tensor(name)[head // (self.n_heads // self.sizes[axes[0]])]
        return self._compute(name, head)

    def row(self, head: int, query: int, name: str = WEIGHTS) -> Tensor:
        """The numbers of one query in a step of one head, [column_axis]: of the weights, [key_pos]. No other row is computed.

        Raises:
            MissingError: there is no such step, head or query.
        """
        if self.parent is not None:
            return self.parent.row(head, query, name)
        name = self._check(name)
        check_index(f"rows of {name}", query, self.shape(name)[-2])
        if name in self.available or self._computes_all_heads or DECLARED[name].axes != MAP_AXES:
            return self.matrix(name, head)[query]
        check_index("heads", head, self.n_heads)
        return self.blocks(name, heads=slice(head, head + 1), rows=slice(query, query + 1))[0][0, 0]

    def top(self, head: int, query: int, k: int, name: str = WEIGHTS) -> Top:
        """The `k` keys with the largest weights of one query, or with the largest numbers of another step; all keys if there are fewer.

        Raises:
            MissingError: as for `row`.
        """
        numbers = self.row(head, query, name)
        keys = numbers.argsort(descending=True, stable=True)[:k]
        return Top(keys, numbers[keys])

    def block_maxima(self, head: int, name: str = WEIGHTS) -> BlockMaxima:
        """The largest number in each block of a query × key matrix, at most 256 blocks in each direction, and where it stands.

        A matrix that is not kept is computed row by row, once for all its steps.

        Raises:
            MissingError: there is no such step or head, or it has no axes [query_pos key_pos].
        """
        from attention.trace.large_map import MAX_SIDE, BlockMaxima

        name = self._check(name)
        if DECLARED[name].axes != MAP_AXES:
            raise MissingError(f"block maxima are of a query × key matrix; {name} is none: read it with matrix().")
        if name in self.available or self.keeps_maps:
            matrix = self.matrix(name, head).numpy()
            return BlockMaxima.of(matrix, *(-(-side // MAX_SIDE) for side in matrix.shape))
        check_index("heads", head, self.n_heads)
        return self._survey(head).maxima[name]

    def blocks(self, *names: str, heads: slice = slice(None), rows: slice = slice(None)) -> tuple[Tensor, ...]:
        """Blocks of query × key matrices, each [head query_pos key_pos], computed without the cache (streaming access).

        Raises:
            MissingError: there is no such step.
        """
        from attention.trace import compute

        return compute.compute_blocks(self, tuple(map(self._check, names)), heads, rows)

    def stats(self, name: str, head: int | None = None) -> StepStats:
        """Statistics of a step, over all heads or of one: its range, and the row sums of a probability.

        Raises:
            MissingError: as for ``layer[name]``.
        """
        name = self._check(name)
        step = find_step(name)
        if self._computes_all_heads or name in self.available or step.axes != MAP_AXES:
            if head is not None:
                return StepStats.of(step, self.matrix(name, head))
            return self._cached(("facts", name), step, lambda: StepStats.of(step, self._tensor(name)))
        heads = range(self.n_heads) if head is None else [head]
        return reduce(StepStats.merge, (self._survey(each).stats[name] for each in heads))

    def finite_range(self, name: str) -> tuple[float, float] | None:
        """The smallest and the largest finite number of a step over all heads; None if it has none.

        Raises:
            MissingError: as for ``layer[name]``.
        """
        return self.stats(name).finite_range

    @cached_property
    def temperature(self) -> float:
        """The formula's temperature; 0 if it is so small that dividing the scores by it overflows."""
        from attention.trace.compute import scaling_overflows

        if self.formula is None:
            return 1.0
        return 0.0 if scaling_overflows(self, self.formula) else self.formula.temperature

    @property
    def divisor(self) -> float:
        """The divisor of the scores, without the temperature; 1 if the formula has none."""
        return (self.formula and self.formula.divisor) or 1.0

    @property
    def settings(self) -> dict[str, float]:
        """The numbers of the formula by their names in exported files; neutral values if there is no formula."""
        return (self.formula or Formula()).settings | {"temperature": self.temperature}

    @cached_property
    def hides_keys(self) -> bool:
        """Whether the mask hides any key."""
        if not self.has("mask"):
            return False
        starts = range(0, self.sizes["query_pos"], BLOCK_ROWS)
        return any(not bool(self.mask_rows(slice(start, start + BLOCK_ROWS)).all()) for start in starts)

    @cached_property
    def n_blind_queries(self) -> int:
        """The number of queries that see no key."""
        starts = range(0, self.sizes["query_pos"], BLOCK_ROWS) if self.has("mask") else ()
        return sum(int((~self.mask_rows(slice(start, start + BLOCK_ROWS)).any(dim=1)).sum()) for start in starts)

    def _check(self, name: str) -> str:
        """Our name of a step or parameter that the layer has, from any of its names."""
        name = our_name(name)
        if not self.has(name):
            if not self.has_attention:
                raise MissingError(
                    f"{self.name} of the model has no attention from token to token ({self.mixer}), so it has no {name}: choose one of trace.attention_layers."
                )
            raise MissingError(
                f"this source has no {name}; it has {', '.join(step.name for step in self.steps)}: choose one of these."
            )
        return name

    def _tensor(self, name: str) -> Tensor:
        """The tensor of an available step or parameter, for all heads."""
        if self.parent is not None and name not in _FORMULA_TENSORS:
            return self.parent[name]
        if name in self.available:
            tensor = self.available[name]
            return self._read_shared(name, tensor) if name in self.shared_with_model else tensor
        return self._compute(name, None)

    def _read_shared(self, name: str, tensor: Tensor) -> Tensor:
        """A parameter of the model as float32 on the CPU; the layer has no copy of it."""
        import torch

        # Views of the model's own weights: an optimizer's step in between would show another model's numbers.
        if getattr(tensor, "recorded_version", None) not in (None, tensor.is_inference() or tensor._version):
            raise MissingError(
                f"{name} of {self.name} should be as it was recorded; the model was changed since then: record it again."
            )
        return tensor.to("cpu", torch.float32)

    def _compute(self, name: str, head: int | None) -> Tensor:
        """A step that is not recorded, computed from earlier steps: for one head [row column], or for all."""
        import torch

        from attention.trace import compute

        assert self.formula is not None  # `has` is true only with a formula
        if name == "mask":  # shared by all layers with this mask
            mask = self.formula.mask
            # With a window of patches, layers share it that have the same patches; a patch is only equal as a text.
            patches = self.patch_places if mask is not None and mask.needs_patches else ()
            shape = (self.sizes["query_pos"], self.sizes["key_pos"], *(each.numpy().tobytes() for each in patches))
            return cache.CACHE.get_or_compute(("mask", mask, shape), lambda: compute.compute_step(self, name, head))
        if name in _FORMULA_TENSORS:
            knobs = getattr(self.formula, name)
            return cache.memoize(self.uid, (name, head), knobs, lambda: compute.compute_step(self, name, head))
        step = find_step(name)
        if name == HEAD_OUTPUT and not self._computes_all_heads:
            outputs = [self._survey(each).head_output for each in (range(self.n_heads) if head is None else [head])]
            return torch.stack(outputs) if head is None else outputs[0]
        if step.axes == MAP_AXES and not self.keeps_maps:
            heads = slice(None) if head is None else slice(head, head + 1)
            bands = [slice(start, start + BLOCK_ROWS) for start in range(0, self.sizes["query_pos"], BLOCK_ROWS)]
            tensor = torch.cat([self.blocks(name, heads=heads, rows=rows)[0] for rows in bands], dim=1)
            return tensor if head is None else tensor[0]
        return self._cached((name, head), step, lambda: compute.compute_step(self, name, head))

    def _survey(self, head: int) -> HeadSurvey:
        from attention.trace import compute

        return self._cached(("survey", head), find_step(HEAD_OUTPUT), lambda: compute.survey(self, head))

    @property
    def uid(self) -> int:
        """Unique id of the recorded tensors (a cache key)."""
        assert isinstance(self.recorded, Recorded)  # by __post_init__
        return self.recorded.uid

    def _cached(self, place: Any, step: Step, make: Callable[[], T]) -> T:
        return cache.memoize(self.uid, place, self.formula and field_values(self.formula, step), make)

    # -- factors and formula of a step ----------------------------------------------------------

    def factors(self, step: Step) -> list[tuple[Factor, str]]:
        """The factors of a step in this layer, each with the name of its step or parameter."""
        pairs = ((factor, next((name for name in factor.names if self.has(name)), "")) for factor in step.of)
        return [(factor, name) for factor, name in pairs if name]

    def formula_of(self, step: Step) -> str:
        """The step's formula in this layer: D V with dropout, X₂ W_K in cross-attention, or the formula of another score."""
        not_computed = self.formula is None and step.by_formula and step.name in self.recorded
        if not_computed or (step.name in self.provenance and not self.factors(step)):
            return "as recorded"
        formula = step.formula_in(self.formula) if self.formula else step.formula
        for factor, present in self.factors(step):
            for name in {*factor.names} - {present}:
                symbol = rf"(?<!\w){re.escape(find_step(name).symbol)}(?![A-Za-z0-9_′₂])"
                formula = re.sub(symbol, find_step(present).symbol, formula)
        formula = f"{formula} + b_{step.symbol}" if step.bias and self.has(step.bias) else formula
        return f"{formula}, and more, as recorded" if step.name in self.provenance else formula


_OUT = ("w_o", "b_o", OUTPUT)  # their d_model may differ from that of the input


def _axes_of(name: str) -> tuple[str, ...]:
    """The axes of a step or parameter for comparing sizes: d_out is the d_model of the output."""
    axes = DECLARED[name].axes
    return tuple("d_out" if axis == "d_model" else axis for axis in axes) if name in _OUT else axes


def _by_our_names(tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """The tensors that are not None, by our names, in the order of the formula."""
    named: dict[str, Tensor] = {}
    for typed, tensor in tensors.items():
        name = our_name(typed)
        if tensor is not None and name in named:
            raise ShapeError(f"a layer has one {name}; got it twice, also as {typed}: give one of them.")
        named |= {} if tensor is None else {name: tensor}
    return {name: named[name] for name in DECLARED if name in named}


def _sizes_of(recorded: Mapping[str, Tensor], tokens: tuple[str, ...], key_tokens: tuple[str, ...]) -> dict[str, int]:
    """The length of each axis, by its name."""
    known: dict[str, tuple[int, str]] = {}  # the size and the tensor that has it
    for axis, labels in (("query_pos", tokens), ("key_pos", key_tokens)):
        if labels:
            known[axis] = len(labels), "tokens"
    for name, tensor in recorded.items():
        axes = DECLARED[name].axes
        if tensor.ndim != len(axes):
            raise ShapeError(
                f"{name} has the axes [{' '.join(axes)}]; got the shape {list(tensor.shape)}: give it {len(axes)} axes."
            )
        for axis, size in zip(_axes_of(name), tensor.shape, strict=True):
            first_size, first_name = known.setdefault(axis, (size, name))
            if size == first_size:
                continue
            if first_name == "tokens":
                raise ShapeError(
                    f"{axis} is {size} in {name} but there are {first_size} tokens: give one token per {axis}."
                )
            raise ShapeError(
                f"{axis} is {first_size} in {first_name} but {size} in {name}: one axis has one size in a layer."
            )
    sizes = {axis: size for axis, (size, _) in known.items()}
    if "d_out" in sizes:
        sizes.setdefault("d_model", sizes["d_out"])
    heads, kv_heads = sizes.get("head"), sizes.get("kv_head")
    if heads and kv_heads and heads % kv_heads:
        raise ShapeError(
            f"query heads share the heads of keys in equal groups; got {heads} of query and {kv_heads} of key: "
            f"{kv_heads} must divide {heads}."
        )
    return sizes
