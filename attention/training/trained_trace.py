"""The trace of a tiny model: its layers, patched or not, and its predictions; and the run behind it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attention.base.errors import ConfigError, MissingError
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.formula.names import EMBEDDING, INPUT, KEY, MEMORY, QUERY, VALUE, WEIGHTS
from attention.patching.intervention import Intervention
from attention.trace.layer import Layer
from attention.trace.model_run import FinalNorm, VocabularyWeights
from attention.trace.trace import TOP_K, Prediction, Trace

if TYPE_CHECKING:
    from torch import Tensor

    from attention.patching.forward import PatchedForward
    from attention.trace.linear_run import LinearRun
    from attention.trace.model_run import HeadMatrices
    from attention.trace.parts import RunParts
    from attention.training.learning import Snapshot
    from attention.training.network import Batch
    from attention.training.plan import Plan
    from attention.training.task import Example

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
    from attention.patching.forward import PatchedForward, describe

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
        """The same run with frozen norms, heads and MLPs."""
        from attention.training import parts

        parameters, attend = self.source.snapshot().parameters, self._attention()
        return parts.run_linear(parameters, self.source.plan.design, self._batch, lambda *args: attend(*args)[0])

    def memory_bytes(self) -> int:
        """The bytes that `linear_run` takes: none worth counting, since the model is tiny."""
        return 0

    def estimate_seconds(self) -> float:
        """The estimated seconds of `linear_run`: none, since the model is tiny."""
        return 0.0

    def parts(self) -> RunParts:
        """The same run, whose parts can be read and replaced."""
        from attention.trace.parts import RunParts
        from attention.training.parts import TinyParts

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

        def runner(position: int) -> TinyParts:
            return TinyParts(source.snapshot().parameters, design, self._batch, self._attention(), position)

        n_heads = tuple(map(design.heads_of, design.attention_layers))
        return RunParts(
            key=source,
            model=f"{source.task} (seed {source.seed}, step {source.step})",
            text=source.input_text,
            lengths=tuple(len(tokens) for tokens in (example.memory, example.tokens) if tokens),
            n_heads=n_heads,
            n_kv_heads=n_heads,
            seconds=_SECONDS,
            is_bounded=True,
            position=position,
            runner=runner,
        )

    def head_matrices(self) -> HeadMatrices:
        """The matrices of every head of the model, whatever its input and interventions."""
        from attention.training.parts import TrainedMatrices

        source = self.source
        return TrainedMatrices(source.plan.design, source.snapshot().parameters, source.example.answers)

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
        import torch

        from attention.training.network import forward

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
            forward(p, design, self._batch, attention=self._attention(), part=part)
        return tuple(stream[0] for stream in streams)

    def logits(self) -> Tensor:
        """The logits at all positions, [query_pos answer]."""
        source = self.source
        return forward_pass(source.plan, source.snapshot(), source.example, source.patched_forward())[1]

    def vocabulary_weights(self) -> VocabularyWeights:
        """The embedding of tokens, the matrix of answers, and the norm before it."""
        from attention.training.network import norm

        p = self.source.snapshot().parameters

        def apply(x: Tensor) -> Tensor:
            return norm(p, "end", x)

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
        """The attention with the interventions of the source."""
        return _patched_attention(self.source.plan, self.source.example, self.source.patched_forward(), [])


def forward_pass(
    plan: Plan, snapshot: Snapshot, example: Example, patched_forward: PatchedForward
) -> tuple[list[Layer], Tensor]:
    """One forward pass: its layers, and the logits [query_pos answer]."""
    import torch

    from attention.training.network import forward

    design, parameters = plan.design, snapshot.parameters
    layers: list[Layer] = []
    attend = _patched_attention(plan, example, patched_forward, layers)
    with torch.no_grad():
        logits, entered = forward(parameters, design, plan.task.posed(example.ids, design), attention=attend)
    return [
        _with_parameters(layer, parameters, entered[layer.name], design.heads_of(layer.name)) for layer in layers
    ], logits[0]


def _patched_attention(
    plan: Plan, example: Example, patched_forward: PatchedForward, layers: list[Layer]
) -> Callable[..., tuple[Tensor, dict[str, Tensor]]]:
    """Returns the attention of a forward pass, which patches the head outputs and adds each layer to `layers`."""
    from attention.patching.forward import AttentionCall
    from attention.training.network import attend

    design, names = plan.design, plan.design.attention_layers

    def attend_layer(
        name: str, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, visible: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        def attend_single(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            output, steps = attend(name, query[None], key[None], value[None], bias, visible)
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
    """A layer with its parameters and inputs."""
    from attention.training.network import split_heads

    name, provenance = layer.name, dict(_PROVENANCE)
    w_o = parameters[f"{name} w_o"]
    tensors = {w: split_heads(parameters[f"{name} {w}"], n_heads) for w in ("w_q", "w_k", "w_v")}
    tensors |= {INPUT: inputs[INPUT][0], "w_o": w_o.view(n_heads, -1, w_o.shape[-1])}
    if inputs["values"] is not inputs[INPUT]:
        tensors[MEMORY] = inputs["values"][0]
    if inputs["keys"] is not inputs["values"]:
        provenance[KEY] = _KEY_PROVENANCE
    return replace(layer.with_tensors(**tensors), provenance=provenance)


def ablated_heads(plan: Plan, interventions: Sequence[Intervention]) -> set[tuple[str, int]] | None:
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
    """The accuracy of the model, and its accuracy with the ablated heads."""
    from attention.formula.functions import generator
    from attention.training.learning import PROBES, measure

    sentence = f"After {snapshot.step} of {plan.steps} steps {snapshot.accuracy:.0%} of its answers are correct"
    if (heads := ablated_heads(plan, interventions)) and not frozen:
        probes = plan.task.draw(PROBES, generator(plan.seed, "probes"), plan.design)
        sentence += f", and {measure(snapshot.row, plan.design, probes, heads).accuracy:.0%} with the ablated heads"
    return f"{sentence} (on {PROBES} other sequences)."


def _prediction(plan: Plan, example: Example, position: int, row: Tensor) -> Prediction:
    ids = row.argsort(descending=True, stable=True)[:TOP_K].tolist()
    names = tuple(example.answers[id_] for id_ in ids)
    return Prediction(position, example.tokens[position], row, tuple(ids), names, fills_mask=not plan.task.next)
