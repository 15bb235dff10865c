"""Source "model": a real model, with every step of every head of every layer; its knobs, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from attention.base.errors import ConfigError, TextError
from attention.base.knobs import Choice, Integer, Knob, NameOrText, PositionList, Real, Switch, Text
from attention.base.spans import ANSWER, CHAT, MARKS, WAYS, Span, Spans, find_stretches, numbered, parse_spans
from attention.base.tokens import Generated
from attention.explanation.subwords import SPECIAL_TOKEN_MODES, merge_tokens, merged_spans, words_rule
from attention.formula.names import QUERY
from attention.formula.override import Override
from attention.media import media
from attention.patching.intervention import Intervention, parse_codes
from attention.sources import Intervenable, model_input
from attention.sources.layer_knobs import FROZEN, INTERVENTIONS, OTHER, PREFIX_LEN, TEXT, TEXT2, read_override
from attention.sources.model_input import ModelInputs, ModelOptions
from attention.sources.reader import Reader, SourceKind
from attention.trace.layer import Layer
from attention.trace.trace import MAX_NEW_TOKENS, Trace

if TYPE_CHECKING:
    from torch import Tensor

    from attention.models.loaded import LoadedModel
    from attention.models.text_inputs import TextInputs
    from attention.patching.forward import Activations, AlignedPositions, PatchedForward
    from attention.program.literals import Snippet
    from attention.trace.model_run import HeadMatrices, ModelRun


F = TypeVar("F", bound=Callable[..., Any])


class _Options(TypedDict, total=False):
    """The options of `Model.of`, which are fields of `ModelOptions` and explained there."""

    image: Any
    sound: Any
    video: Any
    series: Any
    config: Override
    words: bool
    special: str
    max_tokens: int
    max_bytes: int
    generate: int
    generate_temperature: float
    generate_seed: int
    prefix_len: int | None
    predict: tuple[int, ...]
    interventions: tuple[Intervention, ...]
    frozen: bool
    other: Model | None
    align: bool
    spans: Spans


def _with_options(function: F) -> F:
    """The function with the options by name, with types and defaults, in the signature that Python and notebooks show."""
    shown, defaults = signature(function), {field.name: field.default for field in fields(ModelOptions)}
    named = [each for each in shown.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    for name, kind in _Options.__annotations__.items():
        named.append(Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kind.__forward_arg__))
    function.__signature__ = shown.replace(parameters=named)  # type: ignore[attr-defined]  # functions have it
    return function


class Models(tuple["Model", ...]):
    """Several texts for one model in memory, a `Model` each; `traces` has a trace each.

    Every text is a pass of its own: in a batch with padding, the last bits of a text would depend on the others.
    """

    __slots__ = ()

    def traces(self) -> tuple[Trace, ...]:
        """The trace of each text, in their order.

        Raises:
            AttentionError: as for `Model.trace`.
        """
        return tuple(model.trace() for model in self)


@dataclass(frozen=True)
class Model(ModelOptions, Intervenable):
    """A text or a picture run through a real model, with its attention recorded: `Model(folder, text)`, `Model(folder, image=path)`.

    A model in memory is `Model.of(model, tokenizer, text)`, or `Model.of(model, processor, image=path)`. A model that reads both gets both, `Model(folder, text, image=path)`;
    the tokens of a picture are `Patch` objects with their place, and `trace.pictures` has what the model saw.

    Queries and keys are recorded as they enter their product: after rotary embedding, normalization or scaling where the model
    has these. Nothing is renormalized.

    Attributes: those of `ModelOptions`.
    """

    other: Model | None = None

    @overload
    @classmethod
    def of(
        cls,
        model: Any,
        tokenizer: Any = None,
        text: str | None = None,
        text2: str = "",
        *,
        inputs: Mapping[str, Any] | None = None,
        messages: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None,
        **options: Unpack[_Options],
    ) -> Model: ...

    @overload
    @classmethod
    def of(cls, model: Any, tokenizer: Any, *, texts: Iterable[str], **options: Unpack[_Options]) -> Models: ...

    @classmethod
    @_with_options
    def of(
        cls,
        model: Any,
        tokenizer: Any = None,
        text: str | None = None,
        text2: str = "",
        *,
        texts: Iterable[str] | None = None,
        inputs: Mapping[str, Any] | None = None,
        messages: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None,
        **options: Unpack[_Options],
    ) -> Model | Models:
        """A text for a transformers model in memory, on any device and in any dtype; the model is read, and never changed.

        Its attention implementation, hooks, train or eval mode, and the random numbers are as before after every pass, also after
        an exception; no other code may run the model during a pass. The model lives as long as the source does.

        Args:
            model: of transformers, also inside of torch.compile, an adapter (peft), data parallelism, a pipeline, nnsight or TransformerLens.
            tokenizer: the tokenizer of the model; of a model that reads pictures, its processor; a model of series has none.
            text: the input.
            text2: the second text: of a pair, for an encoder that tells two texts apart, as in `tokenizer(text, text2)`; or of the decoder.
            texts: several inputs, each in a pass of its own; the result is then one `Model` for each.
            inputs: token ids instead of a text, as `tokenizer(text, return_tensors="pt")` gives them: one row, with its token_type_ids and
                position_ids where the model reads them.
            messages: a chat instead of a text, by the tokenizer's own template; each message is a span of its role, see `ModelOptions`.
            options: `image`; `interventions`, with `frozen`, `other` and `align`; `generate`, with `generate_temperature`, `generate_seed` and
                `prefix_len`; `predict`; `spans`; `words`, `special` and `config`; `max_tokens` and `max_bytes`: the fields of `ModelOptions`.

        Raises:
            ModelError: this is no transformers model, or no tokenizer or processor of transformers.
            ConfigError: there is no input, or more than one, or tensors that cannot be read.
            TextError: messages that the tokenizer cannot read.
        """
        from attention.models.in_memory import handle_of

        if "device" in options:
            raise ConfigError(
                "device is where the model of a folder runs; a model in memory stays where it is: move it with model.to(device)."
            )
        given = next((each.field for each in media() if options.get(each.field) is not None), "")
        if text is None and given:
            text = ""  # many models read a picture alone
        forms = {"text": text, "texts": texts, "inputs": inputs, "messages": messages}
        present = [name for name, value in forms.items() if value is not None]
        if len(present) != 1:
            raise ConfigError(
                f"Model.of reads one of text, texts, inputs and messages; got {' and '.join(present) or 'none'}: give one of them."
            )
        if text is None and text2:
            raise ConfigError(
                "text2 is the second text beside text=; got it without one: give both as text= and text2=."
            )
        handle = handle_of(model, tokenizer, given)
        if texts is not None:
            return Models(cls(handle.name, item, handle=handle, **options) for item in model_input.text_list(texts))
        read: dict[str, Any] = {"text": text or "", "text2": text2}
        if inputs is not None:
            read = model_input.tensor_options(handle, inputs)
        source = cls(handle.name, handle=handle, **{**options, **read, "messages": messages or ""})
        if source.messages:
            from attention.models import chat_template

            rendered, _, _ = chat_template.render(handle.tokenizer, handle.name, source.messages)
            source = replace(source, text=rendered)
        return source

    def trace(self, requires_grad: bool = False) -> Trace:
        """One layer for each attention module of the model: the encoder's, the decoder's, then cross-attention.

        Args:
            requires_grad: whether queries, keys, values and all steps after them can be differentiated with respect to `trace.embeddings`,
                which takes a second pass: `layer.weights[h, q, k].backward()`. The weights of the model get no gradient.

        Raises:
            ModelError: the model does not exist, or cannot be loaded or recorded.
            TextError: the text is empty.
            ConfigError: the steps would take more than `max_bytes`, or generation would take too long.
        """
        loaded, notes = self.load(), list[str]()
        texts = self._texts(loaded, notes)
        forward = self.patched_forward(loaded, texts.inputs)
        if requires_grad and (self.interventions or self.words or self.special != "show"):
            raise ConfigError(
                "requires_grad=True is for a run without interventions, by the model's own tokens: leave out interventions, words and special, "
                "or use run_with_hooks."
            )
        with loaded.lock.hold():  # one trace of a model at a time, since several may not fit into memory
            trace = self._trace(loaded, texts, forward, notes)
            if not requires_grad:
                return trace
            from attention.models.step_gradients import with_gradients

            return with_gradients(loaded, texts.inputs, trace)

    def run_with_hooks(self, hooks: Mapping[str, Callable[[Tensor], Tensor | None]]) -> Tensor:
        """The logits [query_pos vocabulary] of a run in which your functions read and replace steps by their names; nothing is recorded.

        Names are `layers.3.weights`, and `query`, `key` and `value` [head pos width] as they enter the product, `head_output`
        [head query_pos d_v], "mlp_output" and "resid_post" [query_pos d_model], the residual stream after the layer. `weights`
        [head query_pos key_pos] are those of the family's eager attention. Those of TransformerLens work as well, `blocks.3.attn.hook_pattern`, with
        our axes, and without the axis of the batch; `hook_q` and `hook_k` are after rotary embedding, as `hook_rot_q` and `hook_rot_k` are there.
        A function that returns None leaves its tensor as it is, or as it has edited it in place. The interventions of the model come before. The run
        is differentiable with respect to what a function returns, as in `pattern.requires_grad_()`; weights of the model get no gradient.

        Args:
            hooks: a function for each name.

        Raises:
            ConfigError: there is no such step, a function returns a tensor of another shape, or gradients would pass interventions on heads.
            SizeError: the logits would take more than `max_bytes`.
        """
        from attention.models.run_hooks import run_with_hooks

        loaded, inputs = self.load_inputs()
        return run_with_hooks(loaded, inputs, self.patched_forward(loaded, inputs), hooks, self.max_bytes)

    def prepare(self) -> None:
        """Loads the model and generates its tokens, and those of the unchanged model; other requests can run between two tokens."""
        self._texts(self.load(), [])
        if self.interventions:
            self.without_interventions.prepare()

    def _trace(self, loaded: LoadedModel, texts: ModelInputs, forward: PatchedForward, notes: list[str]) -> Trace:
        from attention.models import forward_pass, lm_head
        from attention.models.attention_sites import describe_layers
        from attention.models.medium_inputs import MediumInputs
        from attention.models.token_pieces import readable_tokens
        from attention.patching.forward import describe
        from attention.sources.repeated_run import TransformerRun

        inputs, prefix_len = texts.inputs, texts.prefix_len
        positions = lm_head.prediction_positions(loaded, inputs, self.predict, prefix_len if self.generate else 0)
        layers, outputs, error = forward_pass.run_recorded(loaded, inputs, forward, positions, prefix_len)
        if names := inputs.names_after(outputs):
            layers = [
                replace(layer, tokens=_renamed(layer.tokens, names), key_tokens=_renamed(layer.key_tokens, names))
                for layer in layers
            ]
        if any(layer.formula is None and layer.has(QUERY) for layer in layers):
            notes.append("The formula of some layers is unknown: their weights are shown as the model computed them.")
        alone = [layer.name for layer in layers if layer.has_attention and not layer.has(QUERY)]
        if alone:
            whose = (
                "This model computes its attention" if not loaded.sites else f"This model computes {', '.join(alone)}"
            )
            notes.append(
                f"{whose} without transformers' common function: only its weights are shown; Q, K, V and the scores are unknown."
            )
        if any(layer.has("lambdas") for layer in layers):
            half = next(layer.n_heads for layer in layers if layer.has("lambdas")) // 2
            notes.append(
                f"Heads from 0 are A₁ and heads from {half} are A₂ of differential attention, which uses A₁ − λA₂: in Python, layer.difference. "
                "A layer “again” has the same weights, and the other half of the values."
            )
        if left_out := {layer.name: layer.mixer for layer in layers if not layer.has_attention}:
            notes.append(describe_layers(left_out))
        accuracy = (
            ""
            if error is None
            else f" Its own weights differ from those computed here in float32 by at most {error:.1e}."
        )
        merged = self._merged_trace(loaded, layers, notes)
        return replace(
            merged,
            predictions=lm_head.read_predictions(loaded, inputs, outputs, positions),
            input_tokens=_renamed(forward_pass.ReadableTexts(loaded, inputs, prefix_len).texts[-1], names),
            continuation=tuple(map(Generated, readable_tokens(loaded.tokenizer, texts.continuation)))
            if texts.continuation
            else (),
            no_prediction_reason=lm_head.no_prediction_reason(loaded, positions),
            caption=loaded.about + accuracy,
            vectors=None if lm_head.vocabulary_size(loaded) else lm_head.last_vectors(outputs),
            changes=(
                *describe(self.interventions, layers, self.frozen),
                *(self.alignment_sentences(loaded, inputs) if any(item.patch for item in self.interventions) else ()),
            ),
            max_weight_error=error,
            model_run=TransformerRun.of(self, inputs),
            pictures=inputs.read.seen if isinstance(inputs, MediumInputs) else (),
            spans=self._spans(loaded, merged, texts),
        )

    def _spans(self, loaded: LoadedModel, trace: Trace, texts: ModelInputs) -> tuple[Span, ...]:
        """The spans of the tokens of the trace: those of the text, and the answer."""
        found, n_tokens = texts.inputs.spans, next(iter(texts.inputs.values())).shape[-1]
        if (self.spans or self.messages) and texts.prefix_len and not loaded.is_encoder_decoder:
            found = numbered((*found, Span(ANSWER, n_tokens - texts.prefix_len, n_tokens - 1)))
        return merged_spans(next(layer for layer in trace.layers if layer.has_attention), found)

    def patched_forward(self, loaded: LoadedModel, inputs: TextInputs) -> PatchedForward:
        """The patched forward pass, with the activations of the unchanged model and of the other run that it needs.

        Raises:
            ConfigError: the model, or the other run, does not have a head or layer that an intervention names.
        """
        from attention.models import forward_pass
        from attention.patching.forward import PatchedForward, prepare_pass

        forward_pass.check_interventions(loaded, self.interventions, inputs)

        def unchanged(wanted: Mapping[int, bool]) -> Mapping[int, Activations]:
            forward = PatchedForward(requested=wanted)
            forward_pass.run_recorded(loaded, inputs, forward)
            return forward.captured

        def patched_from_other(wanted: Mapping[int, bool]) -> Mapping[int, Activations]:
            return self.other_activations(loaded, inputs, wanted)

        forward = prepare_pass(
            self.interventions, loaded.layer_indices, unchanged if self.frozen else None, patched_from_other
        )
        if patches := [change for change in forward.sites if change.patch]:
            forward.other_sites, forward.site_positions = self.other_sites(loaded, inputs, patches)
        return forward

    def other_activations(
        self, loaded: LoadedModel, inputs: TextInputs, wanted: Mapping[int, bool]
    ) -> Mapping[int, Activations]:
        """The activations of the other run, by layer of the trace, to patch into a run of these inputs.

        Args:
            wanted: the layers, by index; True: with their weights.

        Raises:
            ConfigError: there is no other run, or its texts have another number of tokens and cannot be aligned.
        """
        from attention.models import forward_pass
        from attention.sources import repeated_run

        other, other_inputs, is_aligned = self._other_inputs(loaded, inputs, any(wanted.values()))
        forward = other.patched_forward(loaded, other_inputs)
        forward.requested = wanted
        forward_pass.run_recorded(loaded, other_inputs, forward)
        if not is_aligned:
            return forward.captured
        return repeated_run.at_aligned_positions(loaded, inputs, other_inputs, forward.captured)

    def other_sites(
        self, loaded: LoadedModel, inputs: TextInputs, patches: Sequence[Intervention]
    ) -> tuple[Mapping[tuple[str, int], Sequence[Tensor]], AlignedPositions | None]:
        """What the MLPs and the residual stream of the other run hold where these patches need it, [pos d_model] by site and layer, and the corresponding positions.

        Raises:
            ConfigError: as for `other_activations`, or the layers of the model do not follow each other in one list.
        """
        from attention.models import forward_pass
        from attention.sources import repeated_run

        other, other_inputs, is_aligned = self._other_inputs(loaded, inputs, False)
        forward = other.patched_forward(loaded, other_inputs)
        needed = {(patch.site, patch.layer) for patch in patches}
        captured: dict[tuple[str, int], list[Tensor]] = {
            (site, index): [] for site, layer in needed for index in range(loaded.n_layers) if layer in (None, index)
        }
        forward.captured_sites = captured
        forward_pass.run_patched(loaded, other_inputs, forward, ())
        return captured, repeated_run.text_positions(loaded, inputs, other_inputs) if is_aligned else None

    def _other_inputs(
        self, loaded: LoadedModel, inputs: TextInputs, with_weights: bool
    ) -> tuple[Model, TextInputs, bool]:
        """The other run, what it reads, and whether its texts have another number of tokens and are aligned."""
        from attention.models import forward_pass
        from attention.patching.forward import check_lengths
        from attention.sources import repeated_run

        other, lengths = self._other(), [ids.shape[-1] for ids in inputs.values()]
        other_inputs = other._texts(loaded, []).inputs
        other_lengths = [ids.shape[-1] for ids in other_inputs.values()]
        is_aligned = self.align and lengths != other_lengths

        def unmatched() -> str:
            return repeated_run.unmatched_words(loaded, inputs, other_inputs)

        if is_aligned:
            repeated_run.check_alignment(lengths, other_lengths, with_weights, unmatched)
        else:
            check_lengths(
                lengths,
                other_lengths,
                lambda: forward_pass.match_length(loaded, other.text, self.text, lengths[0]),
                unmatched,
            )
        return other, other_inputs, is_aligned

    def alignment_sentences(self, loaded: LoadedModel, inputs: TextInputs) -> tuple[str, ...]:
        """Which tokens a patch changes, for each text that has another number of tokens in the other run."""
        from attention.sources import repeated_run

        if not self.align or self.other is None:
            return ()
        return repeated_run.alignment_sentences(loaded, inputs, self._other()._texts(loaded, []).inputs)

    def _other(self) -> Model:
        from attention.patching.forward import check_other_state

        problem = ""
        if self.other is not None:
            same_model = (self.other.name, self.other.handle) == (self.name, self.handle)
            problem = "" if same_model else f"is of {self.other.name}"
            problem = "takes from a third" if self.other.other is not None else problem
        return check_other_state("Model", self.other, problem)

    def _merged_trace(self, loaded: LoadedModel, layers: list[Layer], notes: list[str]) -> Trace:
        """The trace of the layers, with subwords merged, special tokens hidden and the config applied as requested."""
        special = loaded.special_tokens
        last = [layer for layer in layers if layer.has_attention][-1]  # which reads text, also beside pictures
        notes += [f"Words: {words_rule(last.tokens)}."] if self.words else []
        merged_layers = tuple(
            merge_tokens(layer, special, self.words, self.special) if layer.has_attention else layer for layer in layers
        )
        first = next(layer for layer in merged_layers if layer.has_attention)
        trace = Trace(first.tokens, merged_layers, first.key_tokens, notes=tuple(notes))
        return trace.with_config(self.config)

    def find_token(self, text: str) -> tuple[int, str]:
        """The id of the one token that a text stands for, and its readable form; for a classifier, of a class.

        Raises:
            TextError: the text is no token, or several, or no class.
        """
        from attention.models import lm_head

        return lm_head.parse_token(self.load(), text)

    @property
    def no_link_reason(self) -> str:
        """Why no link opens this source, in a sentence; empty if one does."""
        if self.handle is None:
            if self.messages:
                return "A link has a chat as a text with marks: give text=“[[user]] …” and spans=“chat”."
            return "" if self.medium is None else self.medium.no_link_reason(self.given)
        return f"A link names a model that the Lab can load, and {self.name} is in memory: save the trace as a file, and open that."

    @property
    def input_text(self) -> str:
        """The input text."""
        return self.text

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """The beginning of a Python program that computes the trace: it loads the model with transformers and records the inputs of its attention.

        Raises:
            ConfigError: the model is in memory, where no program finds it.
        """
        if self.handle is not None:
            raise ConfigError(
                f"A program loads its model from a folder, and {self.name} is in memory: save it with "
                "model.save_pretrained(folder) and tokenizer.save_pretrained(folder), and use Model(folder, text)."
            )
        from attention.program import loaded_model

        if self.align and self.alignment_sentences(*self.load_inputs()):
            raise ConfigError(
                "A program patches from a text of the same number of tokens; these texts differ: choose another text for the other state."
            )
        return loaded_model.model(self, trace, layer)

    def memory_bytes(self) -> int:
        """The bytes that the steps take while they are computed, counted in advance; loads the model."""
        loaded = self.load()
        return model_input.count_bytes(self, loaded, model_input.tokenize_texts(self, loaded, []))

    def run(self) -> ModelRun:
        """The run of the model, without the trace, which may be large."""
        from attention.sources.repeated_run import TransformerRun

        return TransformerRun.of(self, self.load_inputs()[1])

    def head_matrices(self) -> HeadMatrices:
        """The matrices of every head of the model, whatever its input and interventions.

        Raises:
            MissingError: the attention of its family cannot be recorded.
        """
        from attention.models.model_matrices import ModelMatrices

        return ModelMatrices(self.load())

    def load_inputs(self) -> tuple[LoadedModel, TextInputs]:
        """The loaded model and its token ids."""
        loaded = self.load()
        return loaded, self._texts(loaded, []).inputs

    def _texts(self, loaded: LoadedModel, notes: list[str]) -> ModelInputs:
        return model_input.prepare_texts(self, loaded, notes, lambda inputs: self.patched_forward(loaded, inputs))

    def _no_word_error(self) -> TextError:
        got = "only blanks" if self.text else "nothing"
        return TextError(f"The text needs at least one word; got {got}: type a sentence.")

    def load(self) -> LoadedModel:
        """The loaded model.

        Raises:
            ModelError: as for `trace`.
            TextError: the text is empty.
        """
        from attention.models.library import LIBRARY

        is_empty = not (self.text.strip() or self.messages or self.input_ids) and self.medium is None
        if is_empty and self.handle is None and LIBRARY.inputs(self.name).medium is None:
            raise self._no_word_error()  # before the model is loaded
        loaded = LIBRARY.get(self.name, self.device) if self.handle is None else self.handle.load()
        if is_empty and loaded.reader is None:
            raise self._no_word_error()
        model_input.check_inputs(self, loaded)
        return loaded


def _renamed(tokens: tuple[str, ...], names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(names.get(token, token) for token in tokens) if names else tokens


@dataclass(frozen=True)
class _SpanCode(NameOrText):
    """What a source should name in its text, as `attention.base.spans.parse_spans` reads it."""

    @property
    def expected(self) -> str:
        return f"one of {', '.join(WAYS)}, or names with places such as question:3-9"

    def accepts(self, value: object) -> bool:
        try:
            return super().accepts(value) and parse_spans(str(value)) is not None
        except TextError:
            return False

    def replacement(self, text: str, default: Any) -> tuple[Any, str]:
        return default, f"{self.expected}: nothing is named"


NAME = "model"
_NAMES = NameOrText(300)
# fmt: off
MODEL = Knob(
    "model", "all-MiniLM-L6-v2", _NAMES, "Model",
    "A model on this server; or, if its operator allows it, a folder with config.json and *.safetensors.", (NAME,))
READS = Knob(
    "reads", "", Text(20), "It reads", "Some language models read pictures or a video beside their text: which of them.", (NAME,))
WORDS = Knob(
    "words", False, Switch(), "Pieces as words",
    "Merge the subword tokens of a word into one row and one column: weights are summed over keys and averaged over queries, so rows still sum to 1.",
    (NAME,))
SPECIAL = Knob(
    "special", "show", Choice(SPECIAL_TOKEN_MODES), "Special tokens",
    "Such as [CLS]. Hide: rows no longer sum to 1, and their sums are shown beside the map. Renormalise: each row is divided by its remaining sum.",
    (NAME,))
GENERATE = Knob(
    "generate", 0, Integer(0, MAX_NEW_TOKENS), "Tokens to generate",
    "The model continues the text, token by token; ▸ marks generated tokens. 0: no generation.", (NAME,), section="Let it write")
GENERATE_TEMPERATURE = Knob(
    "generate_temperature", 0.0, Real(0, 5, end_meanings=("always the most likely token", "nearly at random")), "Temperature of the draw",
    "0: always the most likely token (greedy). Otherwise tokens are sampled from the softmax of the logits divided by the temperature.", (NAME,), section="Let it write")
GENERATE_SEED = Knob(
    "generate_seed", 0, Integer(0, 2**31 - 1), "Seed of the draw", "The same seed generates the same text.", (NAME,), section="Let it write")
SPANS = Knob(
    "spans", "", _SpanCode(4000, options=WAYS), "Names for its parts (spans)",
    "marks: a text such as [[document]] … [[question]] … names its parts, and the marks are removed. chat: the marks are roles, [[system]] … [[user]] …, which become messages by "
    "the chat template of the model. Or its sentences, its paragraphs; or names with their tokens, such as question:3-9, or characters, document@120-480.",
    (NAME,), section="Names for parts of the text")
PREDICT = Knob(
    "predict", "", PositionList(200), help="The positions at which the model predicts a token.", sources=(NAME,), inline=True)
# fmt: on


def read(reader: Reader) -> Model:
    """The model with what it reads (texts, an input of another medium, or both), generation and interventions.

    Raises:
        AwaitedError: an input of another medium has not been uploaded.
        FileError: such inputs are together too large.
    """
    from attention.models.library import LIBRARY
    from attention.models.ours import our_models

    name = reader.knob(MODEL, replace(_NAMES, options=(*LIBRARY.names(), *our_models())))
    LIBRARY.allow(name)
    reads = LIBRARY.inputs(name)
    medium = reads.medium
    if medium is not None and reads.instead:
        among = {each.field: each for each in (medium, *reads.instead)}
        medium = among[reader.knob(READS, Choice((*among,), tuple(each.noun for each in among.values())))]
    several = reads.several and medium == reads.medium
    given: dict[str, Any] = {} if medium is None else {medium.field: medium.from_link(reader, several)}
    residues, text_knob = reads.residues, TEXT
    if residues is not None:
        text_knob = replace(TEXT, label=residues.label, help=residues.help, default=residues.example)
    reads_words = reads.text and residues is None
    text = reader.knob(text_knob) if reads.text else ""
    text2 = reader.knob(TEXT2) if reads.second_text and residues is None else ""
    words, special = reader.knob(WORDS) if reads_words else WORDS.default, reader.knob(SPECIAL)
    other_text = reader.knob(OTHER) if reads.text else ""
    generate, temperature, seed = (
        reader.knob(knob) if reads.continues else knob.default
        for knob in (GENERATE, GENERATE_TEMPERATURE, GENERATE_SEED)
    )
    spans = reader.knob(SPANS) if reads_words and reads.medium is None else SPANS.default
    try:
        find_stretches(spans, text)
    except TextError as error:  # a text that is being typed may lose such words, and the rest of the page stays
        if reader.strict:
            raise
        reader.notes[SPANS.key], spans = str(error), SPANS.default
    max_tokens, max_bytes = reader.limits.tokens, reader.limits.trace_bytes
    return Model(
        name,
        text,
        text2,
        read_override(reader, KIND),
        words,
        special,
        max_tokens,
        max_bytes,
        generate=generate,
        generate_temperature=temperature,
        generate_seed=seed,
        prefix_len=reader.knob(PREFIX_LEN),
        predict=PositionList.of(reader.knob(PREDICT)),
        interventions=parse_codes(reader.knob(INTERVENTIONS)),
        frozen=reader.knob(FROZEN),
        other=Model(
            name,
            other_text,
            text2,
            max_tokens=max_tokens,
            max_bytes=max_bytes,
            spans=spans if spans in (MARKS, CHAT) else "",
            **given,
        )
        if other_text.strip()
        else None,
        spans=spans,
        **given,
    )


KIND = SourceKind(
    NAME,
    read,
    has_formula=True,
    text=TEXT.key,
    model=lambda texts: {MODEL.key: texts.get(MODEL.key, MODEL.default)},
)
