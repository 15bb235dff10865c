"""Source "model": a real model, every step of every head of every layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attention.errors import TextError
from attention.formula.layer import Layer
from attention.formula.merging import merged
from attention.formula.trace import Trace
from attention.formula.what_if import WhatIf
from attention.sources.model_options import ModelOptions
from attention.tokens import Generated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from attention.formula.intervening import Given, Pass
    from attention.models.loaded import Loaded
    from attention.sources import Snippet
    from attention.sources.model_texts import Texts


@dataclass(frozen=True)
class Model(ModelOptions):
    """A text run through a real model, recorded from the inside.

    Queries and keys are recorded as they enter their product: after rotary position, normalisation or scaling where the model
    has these. Nothing is renormalised.

    Attributes: those of `ModelOptions`.
    """

    other: Model | None = None

    def trace(self) -> Trace:
        """One layer for each place of the model that attends: those of the encoder, of the decoder, then across.

        Raises:
            ModelError: there is no such model, or it cannot be loaded or recorded.
            TextError: the text is empty.
            ConfigError: the steps would take more than `max_bytes`, or a text of its own too long.
        """
        loaded, notes = self._loaded(), list[str]()
        texts = self._texts(loaded, notes)
        changing = self.changing(loaded, texts.given)
        with loaded.lock.hold():  # one trace of a model at a time: several may not fit into memory
            return self._trace(loaded, texts, changing, notes)

    def prepare(self) -> None:
        """Loads the model and generates its tokens, and those of the unchanged model beside; others have their turn between two of them.

        Raises:
            AttentionError: as for `trace`.
        """
        self._texts(self._loaded(), [])
        if self.interventions:
            self.unchanged.prepare()

    def _trace(self, loaded: Loaded, texts: Texts, changing: Pass, notes: list[str]) -> Trace:
        from attention.formula import fitting
        from attention.models import passing, predicting
        from attention.models.pieces import readable

        given, said = texts.given, texts.said
        at = predicting.positions(loaded, given, self.predict, said if self.generate else 0)
        if loaded.sites:
            layers, found = passing.layers(loaded, given, changing, at, said)
            if any(layer.formula is None for layer in layers):
                notes.append("Of some layers the formula is not known here: their weights are as the model made them.")
        else:
            layers, found = passing.weights_alone(loaded, given, at, said)
            notes.append(
                "This family does not let its attention be recorded: these are its weights; the scores before the softmax, Q, K and V are not known."
            )
        return replace(
            self._seen(loaded, layers, notes),
            predictions=predicting.predictions(loaded, given, found, at),
            read=passing.Tokens(loaded, given, said).read[-1],
            later=tuple(map(Generated, readable(loaded.tokenizer, texts.later))),
            unpredicted=predicting.why_not(loaded, at),
            vectors=None if predicting.vocabulary(loaded) else predicting.vectors(found),
            changes=fitting.words(self.interventions, layers, self.frozen),
        )

    def changing(self, loaded: Loaded, given: dict[str, Tensor]) -> Pass:
        """What is changed, with what of the unchanged model and of the other state is needed for it.

        Raises:
            ConfigError: the model, or the other state, does not have it.
        """
        from attention.formula import fitting
        from attention.formula.intervening import Pass
        from attention.models import intervening, passing

        lengths = [ids.shape[-1] for ids in given.values()]
        intervening.check(loaded, self.interventions, lengths)

        def unchanged(wanted: Mapping[int, bool]) -> Mapping[int, Given]:
            there = Pass(wanted=wanted)
            passing.layers(loaded, given, there)
            return there.gives

        def taken(wanted: Mapping[int, bool]) -> Mapping[int, Given]:
            other = self._other()
            theirs = other._texts(loaded, []).given
            fitting.as_many(
                lengths,
                [ids.shape[-1] for ids in theirs.values()],
                lambda: intervening.of_length(loaded, other.text, self.text, lengths[0]),
            )
            there = other.changing(loaded, theirs)
            there.wanted = wanted
            passing.layers(loaded, theirs, there)
            return there.gives

        return fitting.prepared(self.interventions, loaded.order, unchanged if self.frozen else None, taken)

    def _other(self) -> Model:
        from attention.formula.fitting import other_of

        came = ""
        if self.other is not None and (self.other.name != self.name or self.other.other is not None):
            came = "takes from a third" if self.other.other is not None else f"is of {self.other.name}"
        return other_of("Model", self.other, came)

    def _seen(self, loaded: Loaded, layers: list[Layer], notes: list[str]) -> Trace:
        """The layers as they are asked for: in pieces or words, with or without special tokens, turned by a hand or not."""
        special = loaded.tokenizer.all_special_tokens
        seen = tuple(merged(layer, special, self.words, self.special) for layer in layers)
        made = Trace(seen[0].tokens, seen, seen[0].key_tokens, notes=tuple(notes), about=loaded.about)
        return made.turned(self.config)

    @property
    def unchanged(self) -> Model:
        """The same model with nothing changed in it: what it says is what was said before."""
        return replace(self, interventions=(), frozen=False, other=None)

    def token(self, text: str) -> tuple[int, str]:
        """The one token of the model that is meant by a text: its id, and how it is read.

        Raises:
            TextError: it is none, or several.
        """
        from attention.models import predicting

        return predicting.token(self._loaded(), text)

    @property
    def reads(self) -> str:
        """The text that it reads."""
        return self.text

    def beside(self, other: object) -> Model:
        """Itself with `other` as the other state, where it takes something from one and has none; of two that are compared."""
        if self.other is not None or not isinstance(other, Model) or not any(one.take for one in self.interventions):
            return self
        return replace(self, other=replace(other, config=WhatIf(), other=None))

    @property
    def base(self) -> Model:
        """The model as it is: its trace, turned, is this one's."""
        return replace(self, config=WhatIf())

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """How the Python begins that makes the trace again: the model loaded with transformers, and asked for what enters its attention."""
        from attention.sources import model_snippet

        return model_snippet.model(self, trace, layer)

    @property
    def needs(self) -> int:
        """The bytes that its steps take while they are made, counted before; loads the model."""
        from attention.sources import model_texts

        loaded = self._loaded()
        return model_texts.cost(self, loaded, model_texts.inputs(self, loaded, []))

    def loaded_and_given(self) -> tuple[Loaded, dict[str, Tensor]]:
        """The model in memory, and the ids that it reads.

        Raises:
            ModelError: as for `trace`.
        """
        loaded = self._loaded()
        return loaded, self._texts(loaded, []).given

    def _texts(self, loaded: Loaded, notes: list[str]) -> Texts:
        from attention.sources import model_texts

        return model_texts.texts(self, loaded, notes, lambda given: self.changing(loaded, given))

    def _loaded(self) -> Loaded:
        from attention.models.library import LIBRARY

        if not self.text.strip():
            came = "only blanks" if self.text else "nothing"
            raise TextError(f"The text needs at least one word; got {came}: type a sentence.")
        return LIBRARY.get(self.name)
