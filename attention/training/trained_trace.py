"""The trace of a tiny model: its layers, patched or not, and its predictions; and the run behind it, which can be repeated with every part replaced."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attention.base.errors import ConfigError, MissingError, TextError
from attention.formula.formula import Formula
from attention.formula.functions import generator
from attention.formula.mask import Mask
from attention.formula.names import EMBEDDING, INPUT, KEY, MEMORY, QUERY, VALUE, WEIGHTS
from attention.patching.forward import AttentionCall, PatchedForward, describe
from attention.patching.intervention import Intervention
from attention.trace.layer import Layer
from attention.trace.linear_run import LinearRun
from attention.trace.model_run import FinalNorm, LayerMatrices, VocabularyWeights
from attention.trace.parts import Handlers, Place, RunParts
from attention.trace.residual_parts import EMBEDDING_PART, LOGITS, mlp_part
from attention.trace.trace import TOP_K, Prediction, Trace
from attention.training import network
from attention.training.learning import PROBES, measure
from attention.training.task import Batch

if TYPE_CHECKING:
    from attention.trace.model_run import HeadMatrices
    from attention.training.learning import Snapshot
    from attention.training.task import Design, Example
    from attention.training.tasks import Plan

_MLP = (0, 0)  # the place of the one MLP, after the last attention layer
_ROWS = 64  # texts at once: they are short
_NO_LAYER_OF_SEQUENCE = (
    "this head reads the keys of a second sequence, so no matrix leads from its tokens to the answers."
)
_OTHER_ANSWERS = "the answers of this task are other symbols than its tokens, so no answer is a copy of a token."
_SECONDS = 1e-4  # of one sequence, in a batch
_PROVENANCE = {
    INPUT: "The token representations after the layer norm that precedes each attention.",
    MEMORY: "The embeddings that the model learned for the attended tokens.",
}
_KEY_PROVENANCE = (
    "The encoder's output for each character, after a layer norm, times W_K; "
    "the values come from the embeddings of the characters."
)


def build_trace(
    plan: Plan, snapshot: Snapshot, example: Example, forward: PatchedForward | None = None, frozen: bool = False
) -> Trace:
    """The trace of a model, at one training step, on one example, with interventions.

    Raises:
        ConfigError: the model does not have a layer or head that an intervention names.
    """
    forward = forward or PatchedForward()
    layers, logits = forward_pass(plan, snapshot, example, forward)
    predictions = tuple(_prediction(plan, example, position, logits_row) for position, logits_row in enumerate(logits))
    interventions, first_layer = forward.interventions, layers[0]
    about = " ".join((_describe_accuracy(plan, snapshot, interventions, frozen), *example.notes))
    return Trace(
        first_layer.tokens,
        tuple(layers),
        first_layer.key_tokens,
        predictions=predictions,
        changes=describe(interventions, layers, frozen),
        caption=about,
        pictures=example.pictures,
    )


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """The run of a tiny trained model, with the interventions of its source; a `ModelRun`.

    Attributes:
        source: a `Trained`, without overrides.
    """

    is_tiny = True
    source: Any  # its module imports this one

    def linear_run(self) -> LinearRun:
        """The same run with frozen norms, heads and MLPs. It records the queries, keys and values of each layer, such as "query 1"."""
        parameters, design, attention = self.source.snapshot().parameters, self.source.plan.design, self._attention()
        run, layers = LinearRun(), design.attention_layers

        def attend(name: str, *qkv_bias_visible: Any) -> tuple[Tensor, dict[str, Tensor]]:
            for step, tensor in zip((QUERY, KEY, VALUE), qkv_bias_visible, strict=False):
                run.read(f"{step} {layers.index(name)}", tensor)
            with torch.no_grad():
                return attention(name, *qkv_bias_visible)[0], {}

        def part(name: str, x: Tensor) -> Tensor:
            if name in (EMBEDDING, MEMORY):
                return run.source(EMBEDDING_PART, x)
            if name == "mlp":
                return run.source(mlp_part(len(layers) - 1), x)
            if name == "end":
                run.read(LOGITS, x)
                return x
            index = layers.index(name)
            return run.head_outputs(index, design.heads_of(name), x)

        with torch.enable_grad(), _FrozenNorms(run):
            network.forward(parameters, design, self._batch, attention=attend, part=part)
        run.w_u = parameters["answer"].T
        return run

    def memory_bytes(self) -> int:
        """The bytes that `linear_run` takes: none worth counting, since the model is tiny."""
        return 0

    def estimate_seconds(self) -> float:
        """The estimated seconds of `linear_run`: none, since the model is tiny."""
        return 0.0

    def parts(self) -> RunParts:
        """The same run, whose parts can be read and replaced."""
        source = self.source
        example, design = source.example, source.plan.design

        def position(position: int | None) -> int:
            last = len(example.tokens) - 1
            position = last if position is None else position
            if not 0 <= position <= last:
                raise ConfigError(
                    f"A prediction is read at a token from 0 to {last}; got {position}: choose one of these."
                )
            return position

        n_heads = tuple(map(design.heads_of, design.attention_layers))
        return RunParts(
            key=source,
            model=f"{source.task} (seed {source.seed}, step {source.step})",
            text=source.input_text,
            lengths=tuple(len(tokens) for tokens in (example.memory, example.tokens) if tokens),
            tokens=example.tokens,
            n_heads=n_heads,
            n_kv_heads=n_heads,
            seconds=_SECONDS,
            is_bounded=True,
            position=position,
            runner=partial(_TinyParts, self),
        )

    def head_matrices(self) -> HeadMatrices:
        """The matrices of every head of the model, whatever its input and interventions."""
        source = self.source
        return _TrainedMatrices(source.plan.design, source.snapshot().parameters, source.example.answers)

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids of the tokens that the model reads."""
        example = self.source.example
        return tuple(int(id_) for id_ in example.ids[0, : len(example.tokens)])

    def residual_stream(self) -> tuple[Tensor, ...]:
        """The residual stream that enters each layer, [query_pos d_model], and the one after the last layer.

        Raises:
            MissingError: the model has an encoder, so its layers do not follow each other.
        """
        design, p = self.source.plan.design, self.source.snapshot().parameters
        if design.encoder:
            raise MissingError(
                "A residual stream runs through one list of layers; this model has an encoder and a decoder: choose a task without."
            )
        streams: list[Tensor] = []

        def part(name: str, output: Tensor) -> Tensor:
            if name == EMBEDDING:
                streams.append(output)
            elif name in design.attention_layers:
                streams.append(streams[-1] + output @ p[f"{name} w_o"])
            elif name == "mlp":
                streams[-1] = streams[-1] + output
            return output

        with torch.no_grad():
            network.forward(p, design, self._batch, attention=self._attention(), part=part)
        return tuple(stream[0] for stream in streams)

    def logits(self) -> Tensor:
        """The logits at all positions, [query_pos answer]."""
        source = self.source
        return forward_pass(source.plan, source.snapshot(), source.example, source.patched_forward())[1]

    def vocabulary_weights(self) -> VocabularyWeights:
        """The embedding of tokens, the matrix of answers, and the norm before it."""
        p = self.source.snapshot().parameters

        def apply(x: Tensor) -> Tensor:
            return network.norm(p, "end", x)

        last = FinalNorm("LayerNorm", p["end scale"], p["end shift"], 1e-5, apply)
        return VocabularyWeights(p["token"], p["answer"], last)

    def find_token(self, text: str) -> tuple[int, str]:
        """The id of the answer that a text stands for, and its readable form.

        Raises:
            TextError: the answer does not exist.
        """
        found: tuple[int, str] = self.source.find_token(text)
        return found

    def token_names(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The answers with these ids."""
        answers = self.source.example.answers
        return tuple(answers[id_] for id_ in ids)

    @property
    def _batch(self) -> Batch:
        plan = self.source.plan
        batch: Batch = plan.task.posed(self.source.example.ids, plan.design)
        return batch

    def _attention(self) -> Callable[..., tuple[Tensor, dict[str, Tensor]]]:
        return _patched_attention(self.source.plan, self.source.example, self.source.patched_forward(), [])


def forward_pass(
    plan: Plan, snapshot: Snapshot, example: Example, patched_forward: PatchedForward
) -> tuple[list[Layer], Tensor]:
    """One forward pass: its layers, and the logits [query_pos answer]."""
    design, parameters = plan.design, snapshot.parameters
    layers: list[Layer] = []
    attend = _patched_attention(plan, example, patched_forward, layers)
    with torch.no_grad():
        logits, entered = network.forward(parameters, design, plan.task.posed(example.ids, design), attention=attend)
    n_heads = {layer.name: design.heads_of(layer.name) for layer in layers}
    return [_with_parameters(each, parameters, entered[each.name], n_heads[each.name]) for each in layers], logits[0]


def _patched_attention(
    plan: Plan, example: Example, patched_forward: PatchedForward, layers: list[Layer]
) -> Callable[..., tuple[Tensor, dict[str, Tensor]]]:
    """Returns the attention of a forward pass, which patches the head outputs and adds each layer to `layers`."""
    design, names = plan.design, plan.design.attention_layers

    def attend_layer(
        name: str, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, visible: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        def attend_single(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            output, steps = network.attend(name, query[None], key[None], value[None], bias, visible)
            return steps[WEIGHTS][0], output[0]

        def layer(call: AttentionCall) -> Layer:
            divisor = math.sqrt(call.query.shape[-1])
            mask = Mask("causal") if design.causal else Mask()
            formula = Formula(divisor=divisor, own_divisor=divisor, bias="" if bias is None else "given", mask=mask)
            queries = example.memory if name.startswith("encoder") else example.tokens
            recorded = {QUERY: call.query, KEY: call.key, VALUE: call.value}
            recorded |= {} if bias is None else {"bias": bias}
            return Layer(name, queries, example.memory or queries, recorded, formula)

        projections = query[0], key[0], value[0]
        weights, output = attend_single(*projections)
        recorded_layer, patched_output = patched_forward.run_layer(
            names.index(name), AttentionCall(*projections, weights, output, attend_single), layer
        )
        layers.append(recorded_layer)
        return (output if patched_output is None else patched_output)[None], {}

    return attend_layer


def _with_parameters(
    layer: Layer, parameters: Mapping[str, Tensor], inputs: Mapping[str, Tensor], n_heads: int
) -> Layer:
    name, provenance = layer.name, dict(_PROVENANCE)
    w_o = parameters[f"{name} w_o"]
    tensors = {w: network.split_heads(parameters[f"{name} {w}"], n_heads) for w in ("w_q", "w_k", "w_v")}
    tensors |= {INPUT: inputs[INPUT][0], "w_o": w_o.view(n_heads, -1, w_o.shape[-1])}
    if inputs["values"] is not inputs[INPUT]:
        tensors[MEMORY] = inputs["values"][0]
    if inputs["keys"] is not inputs["values"]:
        provenance[KEY] = _KEY_PROVENANCE
    return replace(layer.with_tensors(**tensors), provenance=provenance)


def _ablated_heads(plan: Plan, interventions: Sequence[Intervention]) -> set[tuple[str, int]] | None:
    """The heads that are ablated, as (layer's name, head); None if there are other interventions."""
    if any(
        intervention.ablate != "zero" or intervention.strength != 1 or len(intervention.parts) > 1
        for intervention in interventions
    ):
        return None
    design = plan.design
    return {
        (name, head)
        for intervention in interventions
        for name in (
            design.attention_layers if intervention.layer is None else [design.attention_layers[intervention.layer]]
        )
        for head in (range(design.heads_of(name)) if intervention.head is None else [intervention.head])
    }


def _describe_accuracy(plan: Plan, snapshot: Snapshot, interventions: Sequence[Intervention], frozen: bool) -> str:
    sentence = f"After {snapshot.step} of {plan.steps} steps {snapshot.accuracy:.0%} of its answers are correct"
    if (heads := _ablated_heads(plan, interventions)) and not frozen:
        probes = plan.task.draw(PROBES, generator(plan.seed, "probes"), plan.design)
        sentence += f", and {measure(snapshot.row, plan.design, probes, heads).accuracy:.0%} with the ablated heads"
    return f"{sentence} (on {PROBES} other sequences)."


def _prediction(plan: Plan, example: Example, position: int, row: Tensor) -> Prediction:
    ids = row.argsort(descending=True, stable=True)[:TOP_K].tolist()
    names = tuple(example.answers[id_] for id_ in ids)
    return Prediction(position, example.tokens[position], row, tuple(ids), names, fills_mask=not plan.task.next)


class _TinyParts:
    """Repeats one run of a tiny model on one sequence, with its interventions; a `PartRunner`."""

    def __init__(self, run: TrainedRun, positions: tuple[int, ...]) -> None:
        source = run.source
        self._parameters, self._design, self._batch = source.snapshot().parameters, source.plan.design, run._batch
        self._attention, self._positions = run._attention(), positions
        self.layers, self.batch_size = tuple(range(len(self._design.attention_layers))), _ROWS

    def run(self, n_rows: int, handlers: Handlers) -> Tensor:
        """The logits [batch position answer] in float64 of a batch of equal sequences."""
        names = self._design.attention_layers

        def attend(
            name: str, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, visible: Tensor | None
        ) -> tuple[Tensor, dict[str, Tensor]]:
            call = names.index(name)
            patched = handlers.inputs(call, {QUERY: query, KEY: key, VALUE: value})
            projections = patched[QUERY], patched[KEY], patched[VALUE]

            def intervened() -> Tensor:
                rows = (
                    self._attention(name, *(tensor[row : row + 1] for tensor in projections), bias, visible)[0]
                    for row in range(len(projections[0]))
                )
                return torch.cat([*rows]).transpose(1, 2)

            z, _ = network.attend(name, *projections, bias, visible)
            return handlers.head_outputs(call, z.transpose(1, 2), intervened).transpose(1, 2), {}

        def part(name: str, x: Tensor) -> Tensor:
            if name == EMBEDDING and not self._batch.memory:  # the memory is embedded on its own
                return handlers.embedding(x)
            return handlers.written(_MLP, lambda: x) if name == "mlp" else x

        batch = self._batch
        rows = Batch(
            batch.tokens.expand(n_rows, -1),
            batch.answers.expand(n_rows, -1),
            batch.gold.expand(n_rows, -1, -1),
            tuple(ids.expand(n_rows, -1) for ids in batch.memory),
            None if batch.real is None else batch.real.expand(n_rows, -1),
            None if batch.patches is None else batch.patches.expand(n_rows, -1, -1),
        )
        with torch.no_grad():
            logits, _ = network.forward(self._parameters, self._design, rows, attention=attend, part=part)
        return logits[:, list(self._positions)].double()

    def mlp_layer(self, place: Place, n_calls: int) -> int:
        return self.layers[-1]


class _FrozenNorms(TorchFunctionMode):
    """In it, every layer norm is linear: its scale is frozen at the value for its input."""

    def __init__(self, run: LinearRun) -> None:
        super().__init__()
        self.run = run

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        y = func(*args, **(kwargs or {}))
        if func is not torch.nn.functional.layer_norm:
            return y
        return self.run.norm(args[0], y, kwargs["bias"], centered=True)


class _TrainedMatrices:
    """The matrices of all heads of a tiny trained model; `attention.trace.model_run.HeadMatrices` says what each attribute is."""

    uid = None

    def __init__(self, design: Design, parameters: Mapping[str, Tensor], answers: tuple[str, ...]) -> None:
        self.design, self.parameters, self.answers = design, parameters, answers
        self.n_heads = tuple(design.heads_of(name) for name in design.attention_layers)
        self.no_vocabulary_reason = "" if design.tokens == design.answers and not design.memory else _OTHER_ANSWERS

    def layer(self, index: int) -> LayerMatrices:
        name = self.design.attention_layers[index]
        n_heads, p = self.n_heads[index], self.parameters
        w_q, w_k, w_v = (
            network.split_heads(self._fold(name, p[f"{name} {w}"]), n_heads) for w in ("w_q", "w_k", "w_v")
        )
        w_o = p[f"{name} w_o"].view(n_heads, -1, self.design.width)
        w_o = w_o - w_o.mean(-1, keepdim=True)  # every norm that reads it subtracts its mean
        reason = _NO_LAYER_OF_SEQUENCE if self.design.memory else ""
        return LayerMatrices(
            name, n_heads, w_q, w_k, w_v, w_o, _normalize, no_logits_reason=reason, no_ov_reason=reason, no_qk_reason=reason
        )  # fmt: skip

    def token_product(self, center_unembed: bool) -> Tensor:
        w_u = self.parameters["answer"]
        w_u = w_u - w_u.mean(-1, keepdim=True) if center_unembed else w_u
        return self._fold("end", w_u @ self.parameters["token"])

    def estimated_seconds(self) -> float:
        return 0.0

    def embedding(self, token: int, layer: int) -> Tensor:
        # W_U is another matrix, so no first layer has to move the row.
        if not 0 <= token < self.design.tokens:
            raise ConfigError(
                f"A token is an id from 0 to {self.design.tokens - 1:,}; got {token:,}: choose one of these."
            )
        return self.parameters["token"][token]

    def logits(self, vector: Tensor) -> Tensor:
        return vector @ self._fold("end", self.parameters["answer"])

    def find_token(self, text: str) -> int:
        if text not in self.answers:
            raise TextError(f"A token is one of {', '.join(self.answers)}; got {text[:40]!r}: choose one.")
        return self.answers.index(text)

    def token_names(self, ids: Sequence[int]) -> tuple[str, ...]:
        return tuple(self.answers[id_] for id_ in ids)

    def _fold(self, norm: str, matrix: Tensor) -> Tensor:
        """The linear part of a layer norm followed by a matrix."""
        folded = self.parameters[f"{norm} scale"][:, None] * matrix
        return folded - folded.mean(0)


def _normalize(rows: Tensor) -> Tensor:
    rows = rows - rows.mean(-1, keepdim=True)
    return rows / rows.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-12)
