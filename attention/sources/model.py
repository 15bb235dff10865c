"""Source "model": a real model, with every step of every head of every layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attention.analysis.subwords import merge_tokens
from attention.core.layer import Layer
from attention.core.override import Override
from attention.core.trace import Trace
from attention.errors import TextError
from attention.sources.model_options import ModelOptions
from attention.tokens import Generated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from attention.models.loaded import LoadedModel
    from attention.patching.forward import Activations, PatchedForward
    from attention.program.snippet import Snippet
    from attention.sources.model_input import ModelInputs


@dataclass(frozen=True)
class Model(ModelOptions):
    """A text run through a real model, with its attention recorded.

    Queries and keys are recorded as they enter their product: after rotary embedding, normalization or scaling where the model
    has these. Nothing is renormalized.

    Attributes: those of `ModelOptions`.
    """

    other: Model | None = None

    def trace(self) -> Trace:
        """One layer for each attention module of the model: the encoder's, the decoder's, then cross-attention.

        Raises:
            ModelError: the model does not exist, or cannot be loaded or recorded.
            TextError: the text is empty.
            ConfigError: the steps would take more than `max_bytes`, or generation would take too long.
        """
        loaded, notes = self._loaded(), list[str]()
        texts = self._texts(loaded, notes)
        forward = self.patched_forward(loaded, texts.inputs)
        with loaded.lock.hold():  # one trace of a model at a time, since several may not fit into memory
            return self._trace(loaded, texts, forward, notes)

    def prepare(self) -> None:
        """Loads the model and generates its tokens, and those of the unchanged model; other requests can run between two tokens.

        Raises:
            AttentionError: as for `trace`.
        """
        self._texts(self._loaded(), [])
        if self.interventions:
            self.without_interventions.prepare()

    def _trace(self, loaded: LoadedModel, texts: ModelInputs, forward: PatchedForward, notes: list[str]) -> Trace:
        from attention.models import forward_pass, lm_head
        from attention.models.token_pieces import readable_tokens
        from attention.patching import validate

        inputs, prefix_len = texts.inputs, texts.prefix_len
        positions = lm_head.prediction_positions(loaded, inputs, self.predict, prefix_len if self.generate else 0)
        if loaded.sites:
            layers, outputs = forward_pass.run_recorded(loaded, inputs, forward, positions, prefix_len)
            if any(layer.formula is None for layer in layers):
                notes.append(
                    "The formula of some layers is unknown: their weights are shown as the model computed them."
                )
        else:
            layers, outputs = forward_pass.run_weights_only(loaded, inputs, positions, prefix_len)
            notes.append(
                "The attention of this model family cannot be recorded: only its weights are shown; Q, K, V and the scores are unknown."
            )
        return replace(
            self._merged_trace(loaded, layers, notes),
            predictions=lm_head.read_predictions(loaded, inputs, outputs, positions),
            input_tokens=forward_pass.ReadableTexts(loaded, inputs, prefix_len).texts[-1],
            continuation=tuple(map(Generated, readable_tokens(loaded.tokenizer, texts.continuation))),
            no_prediction_reason=lm_head.no_prediction_reason(loaded, positions),
            vectors=None if lm_head.vocabulary_size(loaded) else lm_head.last_vectors(outputs),
            changes=validate.describe(self.interventions, layers, self.frozen),
        )

    def patched_forward(self, loaded: LoadedModel, inputs: dict[str, Tensor]) -> PatchedForward:
        """The patched forward pass, with the activations of the unchanged model and of the other run that it needs.

        Raises:
            ConfigError: the model, or the other run, does not have a head or layer that an intervention names.
        """
        from attention.models import forward_pass, validate_patches
        from attention.patching import validate
        from attention.patching.forward import PatchedForward

        lengths = [ids.shape[-1] for ids in inputs.values()]
        validate_patches.check_interventions(loaded, self.interventions, lengths)

        def unchanged(wanted: Mapping[int, bool]) -> Mapping[int, Activations]:
            forward = PatchedForward(requested=wanted)
            forward_pass.run_recorded(loaded, inputs, forward)
            return forward.captured

        def patched_from_other(wanted: Mapping[int, bool]) -> Mapping[int, Activations]:
            other = self._other()
            other_inputs = other._texts(loaded, []).inputs
            validate.check_lengths(
                lengths,
                [ids.shape[-1] for ids in other_inputs.values()],
                lambda: validate_patches.match_length(loaded, other.text, self.text, lengths[0]),
            )
            forward = other.patched_forward(loaded, other_inputs)
            forward.requested = wanted
            forward_pass.run_recorded(loaded, other_inputs, forward)
            return forward.captured

        return validate.prepare_pass(
            self.interventions, loaded.layer_indices, unchanged if self.frozen else None, patched_from_other
        )

    def _other(self) -> Model:
        from attention.patching.validate import check_other_state

        problem = ""
        if self.other is not None and (self.other.name != self.name or self.other.other is not None):
            problem = "takes from a third" if self.other.other is not None else f"is of {self.other.name}"
        return check_other_state("Model", self.other, problem)

    def _merged_trace(self, loaded: LoadedModel, layers: list[Layer], notes: list[str]) -> Trace:
        """The trace of the layers, with subwords merged, special tokens hidden and the config applied as requested."""
        special = loaded.tokenizer.all_special_tokens
        merged_layers = tuple(merge_tokens(layer, special, self.words, self.special) for layer in layers)
        trace = Trace(
            merged_layers[0].tokens,
            merged_layers,
            merged_layers[0].key_tokens,
            notes=tuple(notes),
            caption=loaded.about,
        )
        return trace.with_config(self.config)

    @property
    def without_interventions(self) -> Model:
        """The same source without interventions."""
        return replace(self, interventions=(), frozen=False, other=None)

    def find_token(self, text: str) -> tuple[int, str]:
        """The id of the one token that a text stands for, and its readable form.

        Raises:
            TextError: the text is no token, or several.
        """
        from attention.models import lm_head

        return lm_head.parse_token(self._loaded(), text)

    @property
    def input_text(self) -> str:
        """The input text."""
        return self.text

    def with_other_run(self, other: object) -> Model:
        """The source with `other` as its other run, where it patches from one and has none. The page Compare passes its second state."""
        if (
            self.other is not None
            or not isinstance(other, Model)
            or not any(intervention.patch for intervention in self.interventions)
        ):
            return self
        return replace(self, other=replace(other, config=Override(), other=None))

    @property
    def base(self) -> Model:
        """The model without overrides: this trace is the trace of the base, with `config` applied."""
        return replace(self, config=Override())

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """The beginning of a Python program that computes the trace: it loads the model with transformers and records the inputs of its attention."""
        from attention.program import loaded_model

        return loaded_model.model(self, trace, layer)

    def memory_bytes(self) -> int:
        """The bytes that the steps take while they are computed, counted in advance; loads the model."""
        from attention.sources import model_input

        loaded = self._loaded()
        return model_input.count_bytes(self, loaded, model_input.tokenize_texts(self, loaded, []))

    def load_inputs(self) -> tuple[LoadedModel, dict[str, Tensor]]:
        """The loaded model and its token ids.

        Raises:
            ModelError: as for `trace`.
        """
        loaded = self._loaded()
        return loaded, self._texts(loaded, []).inputs

    def _texts(self, loaded: LoadedModel, notes: list[str]) -> ModelInputs:
        from attention.sources import model_input

        return model_input.prepare_texts(self, loaded, notes, lambda inputs: self.patched_forward(loaded, inputs))

    def _loaded(self) -> LoadedModel:
        from attention.models.library import LIBRARY

        if not self.text.strip():
            got = "only blanks" if self.text else "nothing"
            raise TextError(f"The text needs at least one word; got {got}: type a sentence.")
        return LIBRARY.get(self.name)
