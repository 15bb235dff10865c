"""The tiny transformers as plain functions of their parameters. The copied Python contains them verbatim, so they are ASCII."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor

from attention.formula.functions import generator
from attention.training.task import Batch, Design

BIAS_SCALE = 10.0  # scales the biases: they change by about the learning rate per step, too little in 200 steps


def shapes(design: Design) -> dict[str, tuple[int, ...]]:
    """The shapes of all parameters by name, in the order in which they are drawn."""
    width = design.width
    result: dict[str, tuple[int, ...]] = {"token": (design.tokens, width)}
    if design.positions == "learned":
        result["position"] = (design.n_positions, width)
    if design.patch:
        result["patch"] = (design.patch, width)
    for i, kinds in enumerate(design.memory):
        result[f"memory {i}"] = (kinds, width)
    norms = [*design.attention_layers, *(["keys"] if design.encoder else []), *(["mlp"] if design.mlp else []), "end"]
    for name in norms:
        result |= {f"{name} scale": (width,), f"{name} shift": (width,)}
    for name in design.attention_layers:
        result |= {f"{name} {matrix}": (width, width) for matrix in ("w_q", "w_k", "w_v", "w_o")}
    for name in design.relative_layers:
        result[f"{name} distances"] = (design.heads_of(name), 2 * design.n_positions - 1)
    if design.mlp:
        result |= {"mlp in": (width, 4 * width), "mlp out": (4 * width, width)}
    return result | {"answer": (width, design.answers)}


def initial_parameters(design: Design, seed: int) -> Tensor:
    """All initial parameters in one row, as in torch: token rows normal, projections uniform in +-1/sqrt(rows). Each has its own generator."""
    drawn = []
    for name, shape in shapes(design).items():
        random = generator(seed, "initial", name)
        if name in ("token", "position") or name.startswith("memory"):
            drawn.append(torch.randn(shape, generator=random, dtype=torch.float64))
        elif name.endswith(("scale", "shift", "distances")):
            drawn.append(torch.full(shape, float(name.endswith("scale"))))
        else:
            drawn.append((torch.rand(shape, generator=random, dtype=torch.float64) * 2 - 1) / math.sqrt(shape[0]))
    row = torch.cat([parameter.flatten() for parameter in drawn])
    return ((row * 2**16).round() / 2**16).float()  # the last digits that are drawn depend on the processor


def named_parameters(row: Tensor, design: Design) -> dict[str, Tensor]:
    """The parameters by name, as views of the row."""
    shape_of = shapes(design)
    parts = torch.split(row, [math.prod(shape) for shape in shape_of.values()])
    return {name: part.view(shape) for (name, shape), part in zip(shape_of.items(), parts, strict=True)}


def norm(p: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Layer norm of the rows."""
    return torch.nn.functional.layer_norm(x, x.shape[-1:], p[f"{name} scale"], p[f"{name} shift"])


def position_bias(p: Mapping[str, Tensor], name: str, n_queries: int, n_keys: int) -> Tensor:
    """The relative position bias of a layer, [head query_pos key_pos]."""
    table = p[f"{name} distances"]
    distance = torch.arange(n_keys) - torch.arange(n_queries)[:, None]
    return BIAS_SCALE * table[:, distance + table.shape[1] // 2]


def split_heads(rows: Tensor, heads: int) -> Tensor:
    """Rows split into heads: [... pos d_model] as [... head pos d_k]."""
    return rows.view(*rows.shape[:-1], heads, -1).transpose(-3, -2)


def attend(
    name: str, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, visible: Tensor | None
) -> tuple[Tensor, dict[str, Tensor]]:
    """The head outputs of the layer with this name, from queries, keys and values [sequence head pos d_k]; and its activations by name."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if bias is not None:
        scores = scores + bias
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    weights = torch.softmax(scores, dim=-1)
    output = weights @ value
    return output, {"query": query, "key": key, "value": value, "weights": weights, "head_output": output}


def unchanged(name: str, x: Tensor) -> Tensor:
    """The tensor itself."""
    return x


def forward(
    p: Mapping[str, Tensor],
    design: Design,
    batch: Batch,
    ablated: Collection[tuple[str, int]] = (),
    attention: Callable[..., tuple[Tensor, dict[str, Tensor]]] = attend,
    part: Callable[[str, Tensor], Tensor] = unchanged,
) -> tuple[Tensor, dict[str, dict[str, Tensor]]]:
    """The logits [sequence query_pos answer], and the activations of each attention layer by name.

    Heads in `ablated`, as (layer name, head), are ablated to zero. `attention` replaces `attend`, with the same arguments. `part`
    receives the name and the output of each part of the model: "embedding", "memory", the heads of a layer by its name, "mlp" and
    "end"; the pass goes on with what it returns.
    """
    activations: dict[str, dict[str, Tensor]] = {}
    x, visible = p["token"][batch.tokens], None
    if batch.patches is not None:
        x = torch.cat([x, batch.patches.to(x.dtype) @ p["patch"]], dim=1)
    if design.positions == "learned":
        x = x + p["position"][: x.shape[1]]
    if design.causal:
        visible = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    bare = torch.stack([p[f"memory {i}"][ids] for i, ids in enumerate(batch.memory)]).sum(0) if batch.memory else x
    x, bare = part("embedding", x), part("memory", bare)
    keys = bare
    if batch.real is not None:
        visible = batch.real[:, None, None, :]

    def layer(name: str, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        heads, sides = design.heads_of(name), ((x, "w_q"), (keys, "w_k"), (values, "w_v"))
        bias = position_bias(p, name, x.shape[1], keys.shape[1]) if f"{name} distances" in p else None
        output, heads_activations = attention(
            name, *(split_heads(rows @ p[f"{name} {w}"], heads) for rows, w in sides), bias, visible
        )
        activations[name] = {"input": x, "keys": keys, "values": values, **heads_activations}
        if ablated:
            output = output * torch.tensor([(name, head) not in ablated for head in range(heads)])[:, None, None]
        return part(name, output.transpose(1, 2).flatten(2)) @ p[f"{name} w_o"]

    if design.encoder:
        normed = norm(p, design.attention_layers[0], bare)
        keys = norm(p, "keys", bare + layer(design.attention_layers[0], normed, normed, normed))
    for name in design.attention_layers[1 if design.encoder else 0 :]:
        normed = norm(p, name, x)
        sides = (normed, normed)
        if batch.memory:
            sides = (keys, keys if design.encoded_values else bare)
        x = x + layer(name, normed, *sides)
    if design.mlp:
        x = x + part("mlp", torch.relu(norm(p, "mlp", x) @ p["mlp in"]) @ p["mlp out"])
    return part("end", norm(p, "end", x)) @ p["answer"], activations


def cross_entropy_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Mean cross-entropy in nats of the positions with an answer."""
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch.answers.flatten(), ignore_index=-1)
