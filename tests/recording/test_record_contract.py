"""Every way of writing attention, with every mask, number of heads and dtype: what is recorded are the numbers of the module itself.

Each way is one function of the queries, keys and values [batch head pos d_k] that also puts its own numbers aside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from margins import approx
from torch import Tensor, nn

import attention
from attention import AttentionError, Layer, Trace
from attention.formula.functions import project

pytestmark = pytest.mark.quick

BATCH, LENGTH, WIDTH = 2, 5, 8
ELEMENT = 1
"""The element of the batch that is recorded."""


@dataclass
class Pass:
    """What a way has beside Q, K and V, and the numbers that it puts aside.

    Attributes:
        hidden: which keys are hidden, [batch 1 query_pos key_pos]; None: no key.
        bias: added to the scores, [head query_pos key_pos]; None: nothing.
        is_causal: whether `hidden` is the causal mask.
        group: how many heads of queries share one of keys.
        fused_scale: multiplies the scores of fused attention, which gives no weights to put aside.
        seen: by the names of steps, each [batch head …].
    """

    hidden: Tensor | None
    bias: Tensor | None
    is_causal: bool = False
    group: int = 1
    fused_scale: float = 0.0
    seen: dict[str, Tensor] = field(default_factory=dict)

    def keep(self, **tensors: Tensor) -> None:
        """Puts numbers aside, before anything changes them in place."""
        self.seen |= {name: tensor.detach().clone() for name, tensor in tensors.items()}

    def biased(self, scores: Tensor) -> Tensor:
        """The scores plus the bias, if there is one."""
        return scores if self.bias is None else scores + self.bias.to(scores.dtype)

    def masked(self, scores: Tensor, number: float = -math.inf) -> Tensor:
        """The scores, biased, with a number where a key is hidden."""
        scores = self.biased(scores)
        return scores if self.hidden is None else scores.masked_fill(self.hidden, number)

    def added(self, dtype: torch.dtype, number: float = -math.inf) -> Tensor | None:
        """Mask and bias as numbers that are added to the scores."""
        if self.hidden is None:
            return None if self.bias is None else self.bias.to(dtype)[None]
        return torch.zeros(self.hidden.shape, dtype=dtype).masked_fill(self.hidden, number)


Way = Callable[[Tensor, Tensor, Tensor, Pass], Tensor]
WAYS: dict[str, Way] = {}


def way(function: Way) -> Way:
    """Adds a way of writing attention."""
    WAYS[function.__name__] = function
    return function


def finish(run: Pass, logits: Tensor, v: Tensor, **seen: Tensor) -> Tensor:
    """Softmax and product as most write them."""
    weights = logits.softmax(-1)
    run.keep(weights=weights, **seen)
    return weights @ v


@way
def operators(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = q @ k.transpose(-2, -1)
    scaled = scores / math.sqrt(q.shape[-1])
    return finish(run, run.masked(scaled), v, scores=scores, scaled_scores=scaled)


@way
def torch_matmul_and_functional_softmax(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = torch.matmul(q, k.mT)
    weights = F.softmax(run.masked(scores * q.shape[-1] ** -0.5), dim=-1)
    run.keep(scores=scores, weights=weights)
    return torch.matmul(weights, v)


@way
def merged_heads_with_bmm(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)).view(*q.shape[:3], -1)
    weights = torch.softmax(run.masked(scores / q.shape[-1] ** 0.5), -1)
    run.keep(scores=scores, weights=weights)
    return torch.bmm(weights.flatten(0, 1), v.flatten(0, 1)).view(*q.shape[:3], -1)


@way
def einsum_of_heads(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = torch.einsum("bhid,bhjd->bhij", q, k)
    weights = run.masked(scores * q.shape[-1] ** -0.5).softmax(dim=-1)
    run.keep(scores=scores, weights=weights)
    return torch.einsum("bhij,bhjd->bhid", weights, v)


@way
def einsum_with_heads_after_positions(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    queries, keys, values = (rows.transpose(1, 2) for rows in (q, k, v))  # [batch pos head d_k]
    energy = torch.einsum("nqhd,nkhd->nhqk", [queries, keys])
    weights = torch.softmax(run.masked(energy / (q.shape[-1] ** 0.5)), dim=3)
    run.keep(scores=energy, weights=weights)
    return torch.einsum("nhql,nlhd->nqhd", [weights, values]).transpose(1, 2)


@way
def einsum_with_keys_before_queries(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = torch.einsum("bhjd,bhid->bhij", k, q)
    weights = run.masked(scores / q.shape[-1] ** 0.5).softmax(-1)
    run.keep(scores=scores, weights=weights)
    return torch.einsum("b h j d, b h i j -> b h i d", v, weights)


@way
def keys_times_queries(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = (k @ q.mT).mT
    return finish(run, run.masked(scores / math.sqrt(q.shape[-1])), v, scores=scores)


@way
def baddbmm_with_alpha(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    queries, keys = q.flatten(0, 1), k.flatten(0, 1)
    empty = torch.zeros(len(queries), q.shape[2], k.shape[2], dtype=q.dtype)
    scaled = torch.baddbmm(empty, queries, keys.mT, beta=1.0, alpha=q.shape[-1] ** -0.5).view(*q.shape[:3], -1)
    return finish(run, run.masked(scaled), v, scaled_scores=scaled)


@way
def baddbmm_of_the_bias(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    bias = torch.zeros(q.shape[1], q.shape[2], k.shape[2]) if run.bias is None else run.bias
    bias = bias.to(q.dtype).repeat(len(q), 1, 1)
    scores = bias.baddbmm(q.flatten(0, 1), k.flatten(0, 1).mT, beta=1.0, alpha=q.shape[-1] ** -0.5).view(
        *q.shape[:3], -1
    )
    scores = scores if run.hidden is None else scores.masked_fill(run.hidden, torch.finfo(q.dtype).min)
    return finish(run, scores, v)


@way
def in_place(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = q @ k.mT
    run.keep(scores=scores)
    scores.div_(math.sqrt(q.shape[-1]))
    run.keep(scaled_scores=scores)
    if run.bias is not None:
        scores += run.bias.to(q.dtype)
    if run.hidden is not None:
        scores.masked_fill_(run.hidden, -math.inf)
    weights = scores.softmax(-1)
    run.keep(weights=weights)
    return weights @ v


@way
def in_place_multiplied(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = torch.matmul(q, k.mT)
    run.keep(scores=scores)
    scores.mul_(q.shape[-1] ** -0.5)
    return finish(run, run.masked(scores), v)


@way
def assigned_where_hidden(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = run.biased(q @ k.mT / math.sqrt(q.shape[-1]))
    if run.hidden is not None:
        scores[run.hidden.expand_as(scores)] = -math.inf
    return finish(run, scores, v)


@way
def scaled_queries(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    q = q * q.shape[-1] ** -0.5
    return finish(run, run.masked(q @ k.mT), v)


@way
def scaled_keys(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    k = k / math.sqrt(k.shape[-1])
    return finish(run, run.masked(q @ k.mT), v)


@way
def fourth_root_on_both_sides(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scale = q.shape[-1] ** -0.25
    return finish(run, run.masked((q * scale) @ (k * scale).mT), v)


@way
def module_of_softmax(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    weights = nn.Softmax(dim=-1)(run.masked(q @ k.mT / math.sqrt(q.shape[-1])))
    run.keep(weights=weights)
    return nn.Dropout(0.0)(weights) @ v


@way
def softmax_in_float32(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = run.masked(q @ k.mT * q.shape[-1] ** -0.5)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    run.keep(weights=weights)
    return weights @ v


@way
def scores_in_float32(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = run.masked((q @ k.mT * q.shape[-1] ** -0.5).float())
    weights = scores.softmax(-1).type_as(v)
    run.keep(weights=weights)
    return weights @ v


@way
def nan_to_num_after_softmax(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    weights = torch.nan_to_num(run.masked(q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1))
    run.keep(weights=weights)
    return weights @ v


@way
def minus_a_billion(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    return finish(run, run.masked(scores, -1e9), v)


@way
def smallest_number_added(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = torch.matmul(q, k.transpose(2, 3)) * q.shape[-1] ** -0.5
    mask = run.added(q.dtype, torch.finfo(q.dtype).min)
    return finish(run, scores if mask is None else scores + mask, v)


@way
def where(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = run.biased(q @ k.mT / math.sqrt(q.shape[-1]))
    if run.hidden is not None:
        scores = torch.where(run.hidden, torch.full([], -math.inf, dtype=q.dtype), scores)
    return finish(run, scores, v)


@way
def mask_before_scale(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    return finish(run, run.masked(q @ k.mT) / math.sqrt(q.shape[-1]), v)


@way
def unscaled(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = q @ k.mT
    return finish(run, run.masked(scores), v, scores=scores)


@way
def capped(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = torch.tanh(scores / 2.0) * 2.0
    return finish(run, run.masked(scores), v, capped_scores=scores)


@way
def dropout_between(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    weights = run.masked(q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
    run.keep(weights=weights)
    return F.dropout(weights, 0.5) @ v


@way
def head_mask(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    weights = run.masked(q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
    run.keep(weights=weights)
    return (weights * torch.linspace(0.5, 1, q.shape[1], dtype=q.dtype).view(1, -1, 1, 1)) @ v


@way
def heads_before_the_batch(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = torch.einsum("hbqd,hbkd->hbqk", q.transpose(0, 1), k.transpose(0, 1)).transpose(0, 1)
    return finish(run, run.masked(scores / math.sqrt(q.shape[-1])), v, scores=scores)


@way
def exponentials_by_hand(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    scores = run.masked(q @ k.mT / math.sqrt(q.shape[-1]))
    exponentials = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    weights = exponentials / exponentials.sum(dim=-1, keepdim=True)
    run.keep(weights=weights)
    return weights @ v


@way
def channels_before_positions(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    queries, keys, values = (rows.mT.contiguous() for rows in (q, k, v))  # [batch head d_k pos]
    scores = torch.einsum("bhdi,bhdj->bhij", queries * q.shape[-1] ** -0.5, keys)
    weights = run.masked(scores).softmax(dim=-1)
    run.keep(weights=weights)
    return torch.einsum("bhij,bhdj->bhid", weights, values)


@way
def fused(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    run.fused_scale = q.shape[-1] ** -0.5
    return F.scaled_dot_product_attention(q, k, v, attn_mask=run.added(q.dtype))


@way
def fused_with_truth_values(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    run.fused_scale = q.shape[-1] ** -0.5
    return F.scaled_dot_product_attention(q, k, v, run.added(q.dtype) if run.hidden is None else ~run.hidden)


@way
def fused_with_a_scale(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    run.fused_scale = 0.25
    return F.scaled_dot_product_attention(q, k, v, attn_mask=run.added(q.dtype), scale=0.25)


@way
def fused_causal(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    run.fused_scale = q.shape[-1] ** -0.5
    if run.is_causal:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=run.added(q.dtype))


@way
def fused_in_groups(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    run.fused_scale = q.shape[-1] ** -0.5
    k, v = (rows[:, :: run.group] for rows in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=run.added(q.dtype), enable_gqa=run.group > 1)


@way
def groups_by_broadcasting(q: Tensor, k: Tensor, v: Tensor, run: Pass) -> Tensor:
    keys, values = (rows[:, :: run.group, None] for rows in (k, v))  # [batch kv_head 1 pos d_k]
    scores = (q.unflatten(1, (-1, run.group)) @ keys.mT / math.sqrt(q.shape[-1])).flatten(1, 2)
    weights = run.masked(scores).softmax(-1)
    run.keep(weights=weights)
    return (weights.unflatten(1, (-1, run.group)) @ values).flatten(1, 2)


PROJECTIONS = ("separate", "chunk", "split", "unbind", "view")
"""How a module makes Q, K and V of its input."""


class Attends(nn.Module):
    """A module whose heads attend in one way.

    Args:
        way: the name of the way.
        heads: the number of heads, and of heads of keys and values.
        dtype: of its parameters.
        projection: one of `PROJECTIONS`.
    """

    def __init__(self, way: str, heads: tuple[int, int], dtype: torch.dtype, projection: str = "separate") -> None:
        super().__init__()
        self.heads, self.way, self.projection = heads, way, projection
        d_head = WIDTH // heads[0]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            if projection == "separate":
                self.to_q = nn.Linear(WIDTH, WIDTH, dtype=dtype)
                self.to_k = nn.Linear(WIDTH, heads[1] * d_head, dtype=dtype)
                self.to_v = nn.Linear(WIDTH, heads[1] * d_head, bias=False, dtype=dtype)
            else:
                self.qkv = nn.Linear(WIDTH, 3 * WIDTH, dtype=dtype)
            self.to_out = nn.Linear(WIDTH, WIDTH, dtype=dtype)
            for parameter in self.parameters():
                parameter.data *= 2

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Q, K and V of all heads, [batch head pos d_k]."""
        n = self.heads[0]
        if self.projection == "separate":
            q, k, v = self.to_q(x), self.to_k(x), self.to_v(x)
        elif self.projection == "chunk":
            q, k, v = self.qkv(x).chunk(3, dim=-1)
        elif self.projection == "split":
            q, k, v = self.qkv(x).split(WIDTH, dim=2)
        elif self.projection == "unbind":
            q, k, v = self.qkv(x).reshape(*x.shape[:2], 3, n, -1).permute(2, 0, 3, 1, 4).unbind(0)
            return q, k, v
        else:
            heads = self.qkv(x).view(*x.shape[:2], n, -1).transpose(1, 2)  # head by head
            q, k, v = heads.chunk(3, dim=-1)
            return q, k, v
        q, k, v = (rows.view(*x.shape[:2], -1, WIDTH // n).transpose(1, 2) for rows in (q, k, v))
        return q, k, v

    def forward(self, x: Tensor, run: Pass) -> Tensor:
        q, k, v = self.project(x)
        run.keep(query=q, key=k, value=v)
        run.group = self.heads[0] // self.heads[1]
        k, v = (rows.repeat_interleave(run.group, 1) if run.group > 1 else rows for rows in (k, v))
        output = WAYS[self.way](q, k, v, run)
        run.keep(head_output=output)
        result = self.to_out(output.transpose(1, 2).reshape(x.shape))
        run.keep(output=result)
        return result


MASKS = ("none", "causal", "padding", "float")
HEADS = ((1, 1), (4, 4), (4, 2))
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


def make_pass(mask: str, n_heads: int) -> Pass:
    """A pass with one of `MASKS`."""
    hidden = bias = None
    if mask == "causal":
        hidden = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1).expand(BATCH, 1, LENGTH, LENGTH)
    if mask == "padding":
        hidden = torch.zeros(BATCH, 1, 1, LENGTH, dtype=torch.bool)
        hidden[ELEMENT, ..., -2:] = True
        hidden = hidden.expand(BATCH, 1, LENGTH, LENGTH)
    if mask == "float":
        distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
        bias = -distance.abs() * torch.linspace(0.25, 1, n_heads)[:, None, None]  # ALiBi
    return Pass(hidden, bias, is_causal=mask == "causal")


def rows(dtype: torch.dtype = torch.float32, *shape: int) -> Tensor:
    """Input of this shape."""
    drawn = torch.randn(shape or (BATCH, LENGTH, WIDTH), generator=torch.Generator().manual_seed(1), device="cpu")
    return drawn.to(torch.get_default_device(), dtype)


def record_unchanged(
    net: Callable[..., Any],
    *args: Any,
    batch: int = ELEMENT,
    first: Callable[[Any], Tensor] = lambda output: output,
    **kwargs: Any,
) -> Trace:
    """The trace of a pass, whose output, gradients and random state are those of a pass that is not recorded."""
    parameters = [*net.parameters()] if isinstance(net, nn.Module) else []

    def run(call: Callable[..., Any]) -> tuple[Any, list[Tensor]]:
        torch.manual_seed(5)
        result = call()
        output = first(result[0])
        with_gradients = output.requires_grad and parameters
        gradients = (
            torch.autograd.grad(output.float().square().sum(), parameters, allow_unused=True) if with_gradients else ()
        )
        return result, [output, torch.get_rng_state(), *(gradient for gradient in gradients if gradient is not None)]

    _, expected = run(lambda: (net(*args, **kwargs),))

    def recorded() -> tuple[Any, Trace]:
        with attention.record(batch=batch) as recording:
            output = net(*args, **kwargs)
        return output, recording.trace()

    (_, trace), actual = run(recorded)
    assert len(actual) == len(expected)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(actual, expected, strict=True))
    return trace


def assert_same_numbers(ours: Tensor, theirs: Tensor, name: str = "") -> None:
    """Asserts that numbers of a layer are those of a module, in whatever dtype and on whatever device that is."""
    numbers = theirs.detach().double().cpu()
    assert ours.double() == approx(
        numbers, dtype=max(theirs.dtype, torch.float32, key=lambda dtype: torch.finfo(dtype).eps)
    ), name


def assert_numbers(layer: Layer, seen: dict[str, Tensor]) -> None:
    """Asserts that a layer has the numbers that a module put aside."""
    for name, tensor in seen.items():
        ours, theirs = layer[name], tensor[ELEMENT]
        assert theirs.shape[0] % ours.shape[0] == 0 or ours.shape[0] % theirs.shape[0] == 0
        n = max(len(ours), len(theirs))  # heads of keys may be repeated for those of queries
        ours, theirs = (part.repeat_interleave(n // len(part), 0) for part in (ours, theirs))
        assert_same_numbers(ours, theirs, name)


def cases(dtype: torch.dtype) -> list[tuple[str, tuple[int, int]]]:
    """Every mask with every number of heads in float32; in other dtypes, every mask once."""
    if dtype == torch.float32:
        return [*product(MASKS, HEADS)]
    return [(mask, HEADS[index % len(HEADS)]) for index, mask in enumerate(MASKS)]


@pytest.mark.sample(23)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_a_way_gives_the_numbers_of_its_module(way: str, dtype: torch.dtype) -> None:
    for mask, heads in cases(dtype):
        net, run = Attends(way, heads, dtype), make_pass(mask, heads[0])
        trace = record_unchanged(net, rows(dtype), run)
        (layer,) = trace.layers
        if run.fused_scale:
            q, k = run.seen["query"], run.seen["key"].repeat_interleave(run.group, 1)
            run.keep(weights=run.masked(q @ k.mT * run.fused_scale).softmax(-1))
        assert not trace.notes or all("batch" in note for note in trace.notes)
        assert_numbers(layer, run.seen)


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_each_projection_is_found_with_its_heads(projection: str) -> None:
    net = Attends("operators", (4, 4), torch.float32, projection)
    run = make_pass("causal", 4)
    (layer,) = record_unchanged(net, rows(), run).layers
    assert_numbers(layer, run.seen)
    assert_same_numbers(layer["input"], rows()[ELEMENT])
    for name, made in (("q", layer["query"]), ("k", layer["key"]), ("v", layer["value"])):
        assert_same_numbers(
            project(layer["input"], layer[f"w_{name}"], layer[f"b_{name}"] if layer.has(f"b_{name}") else None), made
        )
    assert layer.w_o is not None
    assert_same_numbers(layer.w_o.flatten(0, 1), net.to_out.weight.T)


def test_values_of_another_input_than_the_keys_have_no_matrix() -> None:
    """As in DETR, where queries and keys have positions and values have not."""
    net = Attends("operators", (4, 4), torch.float32)
    x, positions = rows(), rows().flip(0)

    def forward(x: Tensor) -> Tensor:
        q, k = (linear(x + positions).view(BATCH, LENGTH, 4, -1).transpose(1, 2) for linear in (net.to_q, net.to_k))
        v = net.to_v(x).view(BATCH, LENGTH, 4, -1).transpose(1, 2)
        return (q @ k.mT / math.sqrt(2)).softmax(-1) @ v

    (layer,) = attention.record(forward, x, batch=ELEMENT).layers
    assert layer.memory is None
    assert layer.w_v is None
    assert_same_numbers(project(layer["input"], layer["w_k"], layer["b_k"]), layer["key"])


def test_a_step_with_a_cache_has_one_query() -> None:
    q, k, v = (rows(torch.float32, BATCH, 2, length, 4) for length in (1, LENGTH, LENGTH))

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT / 2).softmax(-1) @ v

    words = tuple("abcde")
    (layer,) = attention.record(attend, q, k, v, tokens=words[-1:], key_tokens=words, batch=ELEMENT).layers
    assert (layer.tokens, layer.key_tokens) == (words[-1:], words)
    assert_same_numbers(layer["weights"], (q @ k.mT / 2).softmax(-1)[ELEMENT])


@pytest.mark.parametrize("axes", ["pos d_k", "batch pos d_k", "batch pos head d_k"])
def test_tensors_without_a_batch_or_heads_are_understood(axes: str) -> None:
    shape = {"pos": LENGTH, "d_k": 4, "head": 3, "batch": BATCH}
    q, k, v = rows(torch.float32, 3, *(shape[axis] for axis in axes.split())).unbind()

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if "head" in axes:
            return torch.einsum("bhqk,bkhd->bqhd", (torch.einsum("bqhd,bkhd->bhqk", q, k) / 2).softmax(-1), v)
        return (q @ k.mT / 2).softmax(-1) @ v

    (layer,) = attention.record(attend, q, k, v, batch=ELEMENT if "batch" in axes else 0).layers
    if "batch" in axes:
        q, k, v = (part[ELEMENT] for part in (q, k, v))
    if "head" in axes:
        q, k, v = (part.transpose(0, 1) for part in (q, k, v))
    expected = (q @ k.mT / 2).softmax(-1)
    assert_same_numbers(layer["weights"], expected.view(-1, LENGTH, LENGTH))
    assert_same_numbers(layer["head_output"], (expected @ v).view(-1, LENGTH, 4))


def test_heads_that_attend_one_by_one_are_layers() -> None:
    """As in the multi-head class of many courses: a list of single heads, concatenated."""
    heads = nn.ModuleList(Attends("operators", (1, 1), torch.float32) for _ in range(3))
    runs = [make_pass("causal", 1) for _ in heads]

    def forward(x: Tensor) -> Tensor:
        return torch.cat([head(x, run) for head, run in zip(heads, runs, strict=True)], dim=-1)

    trace = record_unchanged(forward, rows())
    assert len(trace.layers) == 3
    for layer, run in zip(trace.layers, runs, strict=True):
        assert_numbers(layer, run.seen)


@pytest.mark.parametrize("wrong", ["axis", "none", "sum"])
def test_what_is_no_attention_is_said_and_not_drawn(wrong: str) -> None:
    def attend(x: Tensor) -> Tensor:
        scores = x @ x.mT
        if wrong == "axis":
            return scores.softmax(-2) @ x  # over the queries
        if wrong == "none":
            return scores @ x
        return scores.softmax(-1).sum(-1)

    with pytest.raises(AttentionError, match="softmax") as error:
        attention.record(attend, rows())
    assert "record" in str(error.value)
