"""Source "model": a real model, every step of every head of every layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attention.errors import ConfigError, ModelError, TextError
from attention.formula.intervention import Intervention
from attention.formula.layer import Layer
from attention.formula.merging import merged
from attention.formula.prediction import MOST_GENERATED
from attention.formula.trace import Trace
from attention.formula.what_if import WhatIf
from attention.tokens import Generated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from attention.formula.intervening import Given, Pass
    from attention.models.loaded import Loaded
    from attention.models.recording import Call
    from attention.sources import Snippet


@dataclass(frozen=True)
class Model:
    """A text run through a real model, recorded from the inside.

    Queries and keys are recorded as they enter their product: after rotary position, normalisation or scaling where the model
    has these. Nothing is renormalised.

    Attributes:
        name: a folder, a name from the operator's list, or a hub id.
        text: what it reads.
        text2: of a model with an encoder and a decoder, what the decoder reads; empty: what the model itself says, token by token
            the likeliest, at most `MOST_GENERATED`.
        config: what a hand has turned of its formula, in every layer that is looked at; nothing in the model itself changes.
        words: whether pieces of a word are one: weights summed over keys, averaged over queries.
        special: what becomes of special tokens such as [CLS], one of `attention.formula.merging.SPECIAL`.
        max_tokens: longer texts are cut there, or at the model's own limit, and the trace's notes say so.
        max_bytes: of all steps of all layers together; more is refused before it is worked out.
        generate: how many tokens it says itself after the text, at most `MOST_GENERATED`.
        generate_temperature: 0: the likeliest token each time; otherwise drawn, from the softmax of the logits divided by it.
        generate_seed: of what is drawn; of the same seed fewer tokens are the beginning of more.
        predict: the positions at which it is asked what it says; none: at the end of the text, where each token was said, or at each
            mask.
        interventions: what is changed of heads inside the model, before all that follows is made.
        frozen: whether the layers after the first change attend as in the unchanged model: A as there, V of now.
        other: the state that an intervention takes something from: the same model with a text of as many tokens.
    """

    name: str
    text: str
    text2: str = ""
    config: WhatIf = WhatIf()
    words: bool = False
    special: str = "show"
    max_tokens: int = 2048
    max_bytes: int = 2**33
    generate: int = 0
    generate_temperature: float = 0.0
    generate_seed: int = 0
    predict: tuple[int, ...] = ()
    interventions: tuple[Intervention, ...] = ()
    frozen: bool = False
    other: Model | None = None

    def trace(self) -> Trace:
        """One layer for each place of the model that attends: those of the encoder, of the decoder, then across.

        Raises:
            ModelError: there is no such model, or it cannot be loaded or recorded.
            TextError: the text is empty.
            ConfigError: the steps would take more than `max_bytes`, or a text of its own too long.
        """
        from attention.formula import intervening
        from attention.models import predicting

        loaded = self._loaded()
        notes: list[str] = []
        before = self._inputs(loaded, notes)
        _ = self._cost(loaded, before)
        given = self._grown(loaded, before, notes)
        said = len(predicting.read_text(given)) - len(predicting.read_text(before))
        at = predicting.positions(loaded, given, self.predict, said if self.generate else 0)
        changing = self._changing(loaded, given)
        if not loaded.sites:
            return self._weights_alone(loaded, given, at, said, notes)
        layers, found = self._run(loaded, given, changing, at, said)
        if any(layer.formula is None for layer in layers):
            notes.append("Of some layers the formula is not known here: their weights are as the model made them.")
        told = _said(loaded, given, found, at, said)
        changes = intervening.words(self.interventions, layers, self.frozen)
        return replace(self._seen(loaded, layers, notes), **told, changes=changes)

    def _run(
        self, loaded: Loaded, given: dict[str, Tensor], changing: Pass, at: tuple[int, ...] = (), said: int = 0
    ) -> tuple[list[Layer], Any]:
        """One forward pass, asked at the positions `at`: its layers, in the order of the trace, and what the model gave."""
        from attention.models import intervening, predicting, recording, running
        from attention.models.layers import layer_of

        tokens, order = _Tokens(loaded, given, said), intervening.order(loaded)
        layers: dict[int, Layer] = {}

        def take(call: Call) -> Tensor | None:
            site, index = loaded.sites[len(layers)], order[len(layers)]
            layers[index], kept = changing.layer(index, call, lambda one: layer_of(one, site, *tokens.of(site.name)))
            return kept

        with recording.recording(take), predicting.asked(at):
            found = running.run(loaded, given)
        assert len(layers) == len(loaded.sites)
        return [layers[index] for index in range(len(layers))], found

    def _changing(self, loaded: Loaded, given: dict[str, Tensor]) -> Pass:
        """What is changed, with what of the unchanged model and of the other state is needed for it.

        Raises:
            ConfigError: the model, or the other state, does not have it.
        """
        from attention.formula import intervening
        from attention.models import intervening as models

        lengths = [ids.shape[-1] for ids in given.values()]
        models.check(loaded, self.interventions, lengths)

        def unchanged(wanted: Mapping[int, bool]) -> Mapping[int, Given]:
            there = intervening.Pass(wanted=wanted)
            self.unchanged._run(loaded, given, there)
            return there.gives

        def taken(wanted: Mapping[int, bool]) -> Mapping[int, Given]:
            other = self._other()
            theirs = other._grown(loaded, other._inputs(loaded, []), [])
            intervening.as_many(
                lengths,
                [ids.shape[-1] for ids in theirs.values()],
                lambda: models.of_length(loaded, other.text, self.text, lengths[0]),
            )
            there = other._changing(loaded, theirs)
            there.wanted = wanted
            other._run(loaded, theirs, there)
            return there.gives

        return intervening.prepared(self.interventions, models.order(loaded), unchanged if self.frozen else None, taken)

    def _other(self) -> Model:
        from attention.formula.intervening import other_of

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
        loaded = self._loaded()
        return self._cost(loaded, self._inputs(loaded, []))

    def loaded_and_given(self) -> tuple[Loaded, dict[str, Tensor]]:
        """The model in memory, and the ids that it reads.

        Raises:
            ModelError: as for `trace`.
        """
        loaded = self._loaded()
        return loaded, self._grown(loaded, self._inputs(loaded, []), [])

    def _loaded(self) -> Loaded:
        from attention.models.library import LIBRARY

        if not self.text.strip():
            came = "only blanks" if self.text else "nothing"
            raise TextError(f"The text needs at least one word; got {came}: type a sentence.")
        return LIBRARY.get(self.name)

    def _inputs(self, loaded: Loaded, notes: list[str]) -> dict[str, Tensor]:
        """The ids of the tokens, cut where the model or the operator wants no more."""
        from attention.models import running

        most = min(self.max_tokens, loaded.limit or self.max_tokens)
        given, cut = running.inputs(loaded, self.text, self.text2, most)
        whose = "the model's limit" if most == loaded.limit else "as many as are shown here"
        notes += [
            f"The {name} has {length:,} tokens; read are the first {most:,}, {whose}: shorten it to see it whole."
            for name, length in cut
        ]
        if self.text2.strip() and not loaded.two_texts:
            notes.append("This model reads one text only: the second text does nothing.")
        return given

    def _to_say(self, loaded: Loaded, given: dict[str, Tensor]) -> int:
        """How many tokens the model says itself: as many as are asked for, and fit."""
        from attention.models import predicting

        by_itself = loaded.two_texts and not self.text2.strip()
        wanted = self.generate or (MOST_GENERATED - 1 if by_itself else 0)
        if not by_itself and (not predicting.vocabulary(loaded) or predicting.fills(loaded)):
            return 0
        room = min(self.max_tokens, loaded.limit or self.max_tokens) - len(predicting.read_text(given))
        return max(0, min(wanted, room, MOST_GENERATED))

    def _grown(self, loaded: Loaded, given: dict[str, Tensor], notes: list[str]) -> dict[str, Tensor]:
        """The ids with what the model says itself after them."""
        from attention.models import generating, predicting

        more = self._to_say(loaded, given)
        if self.generate > more:
            notes.append(
                f"{self.generate} tokens were to be generated; {more} are: the model says no more, or the text is long."
            )
        if not more:
            return given
        how = "the likeliest token each time"
        if self.generate_temperature:
            how = f"drawn with temperature {self.generate_temperature:g} and seed {self.generate_seed}"
        if loaded.two_texts and not self.text2.strip():
            notes.append(f"The decoder reads what the model itself says, {how}: type a second text for another.")

        def changed(there: dict[str, Tensor]) -> Tensor:
            last = len(predicting.read_text(there)) - 1
            _, found = self._run(loaded, there, self._changing(loaded, there), (last,))
            logits = predicting.logits_of(found)
            assert logits is not None
            return logits[-1]

        key = (self.interventions, self.frozen, self.other)
        anew = (key, changed) if self.interventions and loaded.sites else None
        return generating.continued(loaded, given, more, self.generate_temperature, self.generate_seed, anew)

    def _cost(self, loaded: Loaded, given: dict[str, Tensor]) -> int:
        """The bytes of all that is recorded, and of what the largest layer takes while it is made.

        Raises:
            ConfigError: they are more than `max_bytes`.
        """
        from attention.models import generating, intervening, predicting
        from attention.models.layers import MAPS, NUMBER

        more = self._to_say(loaded, given)
        generating.check(loaded, len(predicting.read_text(given)), more, anew=bool(self.interventions))
        longest = max(*(ids.shape[-1] for ids in given.values()), len(predicting.read_text(given)) + more)
        kept = sum(site.width for site in loaded.sites) * longest
        kept += intervening.numbers(loaded, self.interventions, self.frozen, longest)
        making = MAPS * max((site.n_heads for site in loaded.sites), default=loaded.maps) * longest * longest
        if not loaded.sites:
            kept = loaded.maps * longest * longest
        kept += predicting.numbers(loaded, given, self.predict, more)
        nbytes = (kept + making) * NUMBER
        if nbytes > self.max_bytes:
            raise ConfigError(
                f"All steps need at most {self.max_bytes / 2**20:,.0f} MB here; {longest:,} tokens in {len(loaded.sites)} layers "
                f"need {nbytes / 2**20:,.0f} MB: choose a shorter text, or a smaller model."
            )
        return nbytes

    def _weights_alone(
        self, loaded: Loaded, given: dict[str, Tensor], at: tuple[int, ...], generated: int, notes: list[str]
    ) -> Trace:
        """What a family gives whose attention cannot be recorded: its weights."""
        from attention.models import predicting, running

        with predicting.asked(at):
            found = running.run(loaded, given, output_attentions=True)
        there = running.weights(found, given)
        if not there:
            raise ModelError(
                f"{self.name} gives no attention weights: it has none, or does not say them. Choose another model."
            )
        notes.append(
            "This family does not let its attention be recorded: these are its weights; the scores before the softmax, Q, K and V are not known."
        )
        tokens = _Tokens(loaded, given, generated)
        layers = [Layer(name, *tokens.of(name), recorded={"weights": weights}) for name, weights in there]
        return replace(self._seen(loaded, layers, notes), **_said(loaded, given, found, at, generated))


def _said(loaded: Loaded, given: dict[str, Tensor], found: Any, at: tuple[int, ...], generated: int) -> dict[str, Any]:
    """What a model says at these positions, or why it says nothing, and its vectors then: fields of a trace."""
    from attention.models import predicting

    said = predicting.predictions(loaded, given, found, at)
    return {
        "predictions": said,
        "read": _Tokens(loaded, given, generated).read[-1],
        "unpredicted": predicting.why_not(loaded, at),
        "vectors": None if predicting.vocabulary(loaded) else predicting.vectors(found),
    }


class _Tokens:
    """The tokens of each text, as a person reads them."""

    def __init__(self, loaded: Loaded, given: dict[str, Tensor], generated: int) -> None:
        from attention.models.pieces import readable

        self.read = [readable(loaded.tokenizer, ids[0].tolist()) for ids in given.values()]
        theirs = len(self.read[-1]) - generated
        self.read[-1] = (*self.read[-1][:theirs], *map(Generated, self.read[-1][theirs:]))

    def of(self, site: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Those that attend in a place of the model, and those attended to."""
        queries = -1 if site.startswith(("decoder", "cross")) else 0
        keys = -1 if site.startswith("decoder") else 0
        return self.read[queries], self.read[keys]
