"""What a real model reads, as options of a `Model` and as token ids, cut to the limits.

Inputs are texts, chat messages, tensors, or of another medium such as pictures (`ModelOptions`). `count_bytes` counts what is recorded before
the model runs.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from os import PathLike, fspath
from threading import Lock
from typing import TYPE_CHECKING, Any

from attention.base import spans
from attention.base.cache import CACHE
from attention.base.errors import ConfigError, ModelError, TextError
from attention.formula.override import Override
from attention.media import Medium, has_decoder, media, medium_of
from attention.patching.intervention import Intervention, as_interventions
from attention.trace.cost import ALLOW_MORE, MOST_KEPT_CELLS
from attention.trace.trace import MAX_NEW_TOKENS

if TYPE_CHECKING:
    from torch import Tensor

    from attention.models.forward_pass import PassInterventions
    from attention.models.in_memory import ModelHandle
    from attention.models.loaded import LoadedModel
    from attention.models.medium_inputs import MediumInputs
    from attention.models.text_inputs import TextInputs
    from attention.patching.forward import PatchedForward


_DECODING = Lock()  # the pixels of several photos at once would take the memory of a server


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """The input of a model.

    Attributes:
        inputs: the token ids of each text, [1 pos], by the model's parameter name.
        prefix_len: how many of the last ids were generated.
        continuation: the generated ids that follow, where the model reads only a part of them.
    """

    inputs: TextInputs
    prefix_len: int
    continuation: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _ReadInput:
    """The input of a model that reads another medium than text."""

    inputs: MediumInputs
    truncated: list[tuple[str, int]]  # texts, each with its full length
    notes: tuple[str, ...]  # for the user
    model_uid: int  # the cache drops the input with the model

    @property
    def nbytes(self) -> int:
        """The bytes of the pixels, as numbers and as they are shown."""
        return 2 * sum(tensor.nbytes for tensor in self.inputs.arguments.values())


def prepare_texts(
    model: ModelOptions, loaded: LoadedModel, notes: list[str], build_forward: Callable[[TextInputs], PatchedForward]
) -> ModelInputs:
    """The texts of a model, with the tokens that it generates.

    Args:
        notes: receives a sentence for everything that the user must know.
        build_forward: returns the patched forward pass for some ids.

    Raises:
        ConfigError: as for `count_bytes`.
    """
    prompt = tokenize_texts(model, loaded, notes)
    _ = count_bytes(model, loaded, prompt)
    extended = _generate(model, loaded, prompt, notes, build_forward)
    name = [*extended][-1]
    prompt_len = prompt[name].shape[-1]
    n_generated = extended[name].shape[-1] - prompt_len
    if not n_generated:
        return ModelInputs(extended, 0, ())
    prefix_len = n_generated if model.prefix_len is None else max(0, min(model.prefix_len, n_generated))
    inputs = extended.with_ids(name, extended[name][:, : prompt_len + prefix_len])
    return ModelInputs(inputs, prefix_len, tuple(extended[name][0, prompt_len + prefix_len :].tolist()))


def tokenize_texts(model: ModelOptions, loaded: LoadedModel, notes: list[str]) -> TextInputs:
    """The token ids of the texts, cut to the limits of the model and of the operator; Python is warned where a text of a model in memory is cut."""
    from attention.models import running
    from attention.models.text_inputs import joins_pairs

    limit = min(model.max_tokens, loaded.max_length or model.max_tokens)
    if model.medium is not None:
        if model.spans or model.messages:
            raise ConfigError(
                f"spans= and messages= are of a text alone, and this input has {model.medium.one}: leave them out, or {model.medium.field}=."
            )
        inputs, truncated = _read_medium(model, loaded, limit, notes)
    elif model.input_ids:
        inputs, truncated = running.cut_ids(loaded, model.input_ids, limit)
        notes += [model.note] if model.note else []
        given = spans.given_tokens(model.spans)
        if model.spans and len(given) < max(1, len(spans.parse_spans(model.spans))):
            raise ConfigError(
                f"Spans of token ids are given by their tokens; got {model.spans[:60]!r}: write range(first, stop) for each name."
            )
        inputs.spans = spans.place((), "", ((0, 0),) * inputs["input_ids"].shape[1], given)
    else:
        inputs, truncated = _read_text(model, loaded, limit, notes)
    running.check_ids(loaded, inputs)
    whose = "the model's limit" if limit == loaded.max_length else "the largest number allowed here"
    for name, length in truncated:
        read = (
            f"{limit:,} are read, without the end of the longer text"
            if name == running.PAIR
            else f"the first {limit:,} are read"
        )
        notes.append(f"The {name} has {length:,} tokens; {read}, {whose}: shorten it to see all of it.")
    if truncated and model.handle is not None:
        more = (
            " (max_tokens= can only lower it)"
            if limit == loaded.max_length
            else f", or give max_tokens={max(length for _, length in truncated)}"
        )
        warnings.warn(f"{notes[-1][:-1]}{more}.", stacklevel=_outside())
    if model.text2.strip() and not (loaded.is_encoder_decoder or joins_pairs(loaded)):
        notes.append("This model reads one text: the second text has no effect.")
    return inputs


def _read_text(
    model: ModelOptions, loaded: LoadedModel, limit: int, notes: list[str]
) -> tuple[TextInputs, list[tuple[str, int]]]:
    """The token ids of a text or a chat, with the spans that are asked for."""
    from attention.models import chat_template, running
    from attention.models.token_pieces import residues_of, text_of_letters

    chat, text, stretches = model.messages, model.text, tuple[spans.Stretch, ...]()
    if residues := residues_of(loaded.tokenizer):
        if chat or model.text2.strip():
            raise ConfigError(
                f"{loaded.name} reads one chain of residues; got {'messages' if chat else 'a second text'}: give one sequence as text=."
            )
        letters, of_text = residues.read(text, loaded.tokenizer)
        notes += of_text
        text = text_of_letters(loaded.tokenizer, letters)
    if model.spans == spans.CHAT:
        messages = spans.read_chat(text)
        if not messages:
            raise TextError(
                "A chat has a mark such as [[user]] before each message; got none: write one, or leave out the spans “chat”."
            )
        chat = json.dumps(messages, ensure_ascii=False)
    elif model.spans == spans.MARKS:
        text, stretches = spans.read_marks(text)
    if chat:
        key = loaded.uid, "chat", chat
        text, stretches, more = CACHE.get_or_compute(
            key, lambda: chat_template.render(loaded.tokenizer, loaded.name, chat)
        )
        notes += more
    inputs, truncated = running.tokenize_inputs(loaded, text, model.text2, limit, special=not chat)
    if model.spans or chat:
        given = spans.given_tokens(model.spans)
        stretches = (*stretches, *spans.find_stretches(model.spans, text))
        if stretches and not inputs.offsets:
            raise TextError(
                f"The tokenizer of {loaded.name} does not say which characters a token has: give spans as ranges of tokens, "
                "or load its fast tokenizer."
            )
        offsets = inputs.offsets or ((0, 0),) * inputs["input_ids"].shape[1]
        inputs.spans = spans.place(stretches, text, offsets, given)
    return inputs, truncated


def _outside() -> int:
    """The level, for a warning of the caller, of the code that called the library."""
    frame, level = sys._getframe(1), 1
    while (
        frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]
    ):
        frame, level = frame.f_back, level + 1
    return level


def _read_medium(
    model: ModelOptions, loaded: LoadedModel, limit: int, notes: list[str]
) -> tuple[TextInputs, list[tuple[str, int]]]:
    assert model.medium is not None
    reader = loaded.reader_of(model.medium)
    assert reader is not None  # `check_inputs` has asked
    text = model.text2 if loaded.decodes_text else model.text
    limit = model.max_tokens if loaded.decodes_text else limit  # a decoder has another than the encoder

    def read() -> _ReadInput:
        with _DECODING:
            inputs, truncated, more = reader.inputs(loaded, model.given, text, limit)
        of_files = (note for each in model.given for note in each.notes)
        return _ReadInput(inputs, truncated, (*of_files, *more), loaded.uid)

    # A trace asks for its input several times, and a photo takes half a second to decode and to resize.
    digests = tuple(each.digest for each in model.given)
    found = CACHE.get_or_compute((loaded.uid, "given input", digests, text, limit), read)
    notes += found.notes
    return found.inputs, found.truncated


def count_bytes(model: ModelOptions, loaded: LoadedModel, inputs: TextInputs) -> int:
    """The bytes of everything that is recorded, and of the largest layer while it is computed.

    Raises:
        ConfigError: more than `max_bytes`, or the interventions and generated tokens would take too long.
    """
    from attention.models import attention_call, forward_pass, lm_head
    from attention.models.forward_pass import BYTES_PER_NUMBER, MAPS_PER_HEAD

    n_generated = _count_generated(model, loaded, inputs)
    forward_pass.check_time(
        loaded, sum(ids.shape[-1] for ids in inputs.values()), n_generated, _patches_of_passes(model)
    )
    of_layers = {site: inputs.lengths_of(site.name) for site in loaded.sites}
    longest = max(chain((ids.shape[-1] for ids in inputs.values()), *of_layers.values()))
    longest = max(longest, len(lm_head.predicted_text_ids(inputs)) + n_generated)
    recorded = sum(site.width for site in loaded.sites) * longest + loaded.n_maps * longest * longest
    # What is added to the scores of windows is another map in every layer.
    recorded += sum(
        site.n_heads * n_queries * n_keys
        for site, (n_queries, n_keys) in of_layers.items()
        if site.has_bias and inputs.own_sides(site.name)
    )
    recorded += forward_pass.count_numbers(loaded, model.interventions, model.frozen, longest)
    # The maps of one head, if they are kept, and the mask. A few rows of all heads are computed at a time, unless there are interventions.
    rows = {
        site.n_heads * attention_call.rows_at_once(site, longest, keep_weights=bool(model.interventions))
        for site in loaded.sites
    }
    temporary = MAPS_PER_HEAD * (
        max(rows, default=loaded.n_maps * longest) * longest + min(longest**2, MOST_KEPT_CELLS)
    )
    temporary += longest**2 if longest**2 > MOST_KEPT_CELLS else 0  # the mask as the model has it
    recorded += lm_head.count_numbers(loaded, inputs, model.predict, n_generated)
    nbytes = (recorded + temporary) * BYTES_PER_NUMBER
    if nbytes > model.max_bytes:
        raise ConfigError(
            f"All steps may take at most {model.max_bytes / 2**20:,.0f} MB; {longest:,} tokens in {len(loaded.sites)} layers "
            f"take {nbytes / 2**20:,.0f} MB: choose a shorter text, a smaller model, {ALLOW_MORE}."
        )
    return nbytes


def _patches_of_passes(model: ModelOptions) -> list[PassInterventions]:
    """The interventions of each forward pass that a text takes: its own, that of the unchanged model, and those of the other run."""
    from attention.models.forward_pass import PassInterventions

    passes = [PassInterventions(model.interventions, model.frozen)] + [PassInterventions()] * (
        model.frozen and bool(model.interventions)
    )
    if model.other is not None and any(intervention.patch for intervention in model.interventions):
        passes += _patches_of_passes(model.other)
    return passes


def _decodes_alone(model: ModelOptions, loaded: LoadedModel) -> bool:
    """Whether the decoder reads only what the model generates; that of a model without text reads its own queries."""
    return loaded.decodes_text and not model.text2.strip() and "decoder_input_ids" not in dict(model.input_ids)


def _count_generated(model: ModelOptions, loaded: LoadedModel, inputs: dict[str, Tensor]) -> int:
    """How many tokens the model generates: the requested number, as far as they fit."""
    from attention.models import lm_head

    decodes_alone = _decodes_alone(model, loaded)
    wanted = model.generate or (MAX_NEW_TOKENS - 1 if decodes_alone else 0)
    if not decodes_alone and (not lm_head.vocabulary_size(loaded) or lm_head.is_masked_lm(loaded)):
        return 0
    room = min(model.max_tokens, loaded.max_length or model.max_tokens) - len(lm_head.predicted_text_ids(inputs))
    return max(0, min(wanted, room, MAX_NEW_TOKENS))


def _generate(
    model: ModelOptions,
    loaded: LoadedModel,
    inputs: TextInputs,
    notes: list[str],
    build_forward: Callable[[TextInputs], PatchedForward],
) -> TextInputs:
    import torch

    from attention.models import forward_pass, lm_head, running

    n_generated = _count_generated(model, loaded, inputs)
    if model.generate > n_generated:
        notes.append(
            f"{n_generated} of {model.generate} requested tokens were generated: the model does not generate text, or the limit of tokens was reached."
        )
    if not n_generated:
        return inputs
    how = "always the most likely token"
    if model.generate_temperature:
        how = f"sampled with temperature {model.generate_temperature:g} and seed {model.generate_seed}"
    if _decodes_alone(model, loaded):
        notes.append(f"The decoder reads its own generated tokens ({how}): type a second text to replace them.")

    def patched_logits(ids: TextInputs) -> Tensor:
        last = len(lm_head.predicted_text_ids(ids)) - 1
        logits = lm_head.logits_of(forward_pass.run_patched(loaded, ids, build_forward(ids), (last,)))
        assert logits is not None
        return logits[-1].to("cpu", torch.float32)

    other = None if model.other is None else model.other.key
    key = (model.interventions, model.frozen, other, model.align)
    patched = (key, patched_logits) if model.interventions and loaded.sites else None
    return running.generate(loaded, inputs, n_generated, model.generate_temperature, model.generate_seed, patched)


_OF_MEDIA = ("image", "sound", "video", "series")
"""The fields of `ModelOptions` that have an input of a medium."""


@dataclass(frozen=True)
class ModelOptions:
    """The fields of a `Model`.

    Attributes:
        name: a folder, a name from the operator's list, or a hub id.
        text: the input.
        text2: the second text. An encoder that tells two texts apart reads both as the pair that its tokenizer makes of them, such as
            [CLS] text [SEP] text2 [SEP]. In an encoder-decoder model it is the input of the decoder, also where the encoder reads a sound; empty:
            the most likely tokens that the model generates, at most `MAX_NEW_TOKENS`.
        config: overrides of the formula of every layer in the trace; the model itself does not change.
        words: merge the subword tokens of a word: weights are summed over keys, averaged over queries.
        special: how special tokens such as [CLS] are shown, one of `attention.explanation.subwords.SPECIAL_TOKEN_MODES`.
        max_tokens: longer texts are cut there, or at the model's own limit, and the trace notes it.
        max_bytes: memory of all steps of all layers; more is refused before the model runs.
        generate: the number of tokens to generate after the text, at most `MAX_NEW_TOKENS`.
        generate_temperature: 0: greedy; otherwise tokens are sampled from the softmax of the logits divided by it.
        generate_seed: seed of the sampling; a shorter continuation is a prefix of a longer one with the same seed.
        prefix_len: how many of the generated tokens the model reads; None: all.
        predict: the positions of the predictions; empty: the end of the text, the position before each generated token, or each mask.
        interventions: the interventions on heads inside the model; later layers see their effect.
        frozen: frozen attention: the layers after the first intervention use the weights of the unchanged model and the values of the
            changed one.
        other: the other run of activation patching: the same model with a text of the same number of tokens.
        align: whether the text of `other` may have another number of tokens: corresponding tokens are then patched, and the others
            keep their values. Weights cannot be patched so.
        device: where torch runs a model of a folder, such as "cuda"; empty: the CPU. A model in memory stays where it is.
        handle: the model in memory that `Model.of` wraps, which has a name only for people; None: `name` is loaded.
        input_ids: the token ids of each argument of the model, if they are given instead of the texts, and the numbers beside them, such as token_type_ids.
        note: what happened to the ids before; shown with the trace.
        image: a picture for a model that reads one, also beside a text: the path or the bytes of a PNG, JPEG or WebP file, or an image
            of Pillow; kept as a `Picture`, which is compared by its digest. Several for a language model that reads pictures in its text:
            a list of these, kept as a tuple.
        sound: a sound for a model that reads one: the path or the bytes of a WAV, FLAC or MP3 file, or samples and how many of them a second has.
        video: a video for a model that reads one, also beside a text: the path or the bytes of an MP4, MOV, WebM, GIF or WebP file, a list of
            pictures, or an array [frame row column 3] from 0 to 255; kept as a `Video`, which is compared by its digest.
        series: a time series for a model that reads one: the path or the bytes of a CSV file, a data frame, or an array [step column].
        messages: a chat instead of a text, by the template of the tokenizer: messages such as {"role": "user", "content": "…"}, or a dict of "messages"
            and of "tools" that the model may call. Each message is a span of its role; what the template adds is in none. Kept as JSON.
        spans: names for stretches of the text, which are then `trace.spans`: a dict or pairs of names with their words, with slice(first, stop) of its
            characters, with range(first, stop) of its tokens, or with a list of these; or one of `attention.base.spans.WAYS`: "marks" such as
            [[document]] in the text, "chat" (marks that are roles), "sentences", "paragraphs". Generated tokens are the span "answer". Kept as text.
    """

    name: str
    text: str = ""
    text2: str = ""
    config: Override = Override()
    words: bool = False
    special: str = "show"
    max_tokens: int = 2048
    max_bytes: int = 2**33
    generate: int = 0
    generate_temperature: float = 0.0
    generate_seed: int = 0
    prefix_len: int | None = None
    predict: tuple[int, ...] = ()
    interventions: tuple[Intervention, ...] = ()
    frozen: bool = False
    other: ModelOptions | None = None
    device: str = ""
    handle: ModelHandle | None = None
    input_ids: tuple[tuple[str, tuple[int, ...]], ...] = ()
    note: str = ""
    align: bool = False
    image: Any = None
    messages: Any = ""
    spans: Any = ""
    sound: Any = None
    video: Any = None
    series: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.name, PathLike):
            object.__setattr__(self, "name", fspath(self.name))
        if not isinstance(self.name, str):
            raise ModelError(
                f"Model(folder, text) names the folder of a model; got a {type(self.name).__name__}: "
                "give a model that you have loaded as Model.of(model, tokenizer, text)."
            )
        for field in ("text", "text2"):
            if not isinstance(value := getattr(self, field), str):
                raise ConfigError(
                    f"{field} is one text; got a value of type {type(value).__name__}: give several as Model.of(model, tokenizer, texts=[…]), "
                    "or a pair as text= and text2=."
                )
        for field in _OF_MEDIA:
            if (value := getattr(self, field)) is not None:
                object.__setattr__(self, field, medium_of(field).given(value))
        object.__setattr__(self, "messages", _chat(self.messages))
        object.__setattr__(self, "spans", spans.spans_code(self.spans))
        object.__setattr__(self, "interventions", as_interventions(self.interventions))

    @property
    def key(self) -> tuple[object, ...]:
        """What stands for it in a key of the cache, which must hold neither a model in memory nor the files of pictures."""
        files = {} if self.medium is None else {self.medium.field: None}
        return replace(self, handle=None, **files), tuple(each.digest for each in self.given)  # type: ignore[arg-type]  # a field of this class

    @property
    def medium(self) -> Medium | None:
        """The medium of which there is an input, beside the text or instead of it; None without one."""
        return next((each for each in media() if getattr(self, each.field, None) is not None), None)

    @property
    def given(self) -> tuple[Any, ...]:
        """The inputs of the medium, in their order, such as a `Picture` each; empty without one."""
        value = None if self.medium is None else getattr(self, self.medium.field)
        return () if value is None else value if isinstance(value, tuple) else (value,)


def check_inputs(model: ModelOptions, loaded: LoadedModel) -> None:
    """Check that a model gets what it reads, as far as this is another medium than text.

    Raises:
        ConfigError: an input of a medium that it does not read, or none of the one that it reads.
        ModelError: the model reads that medium, and its family is not read.
        TextError: no text for a model that reads one.
    """
    from attention.models.medium_inputs import no_family_error, unread_medium

    given, text, name = model.medium, model.text, loaded.name
    reader = loaded.reader if given is None else loaded.reader_of(given)
    if given is not None and reader is None:
        if not loaded.readers and unread_medium(loaded.model, given.field):
            raise no_family_error(given, name, loaded.model)
        raise ConfigError(
            f"{name} reads no {given.name}: leave {given.field}= out, or choose a model that reads them, such as {given.such_as}."
        )
    if reader is None:
        return
    medium, decodes = reader.medium, loaded.decodes_text
    if given is None:
        both = f"{medium.one} and a text: give both, as text= and {medium.field}="
        what = both if reader.reads_text and not decodes else f"{medium.one}: give it as {medium.field}="
        raise ConfigError(f"{name} reads {what} ({medium.files}).")
    if decodes and text.strip():
        raise ConfigError(
            f"{name} reads {medium.one}, and its decoder a text; got text=, which an encoder reads: give the text of the decoder as text2=, "
            "or none, and the model generates it."
        )
    if model.input_ids or (model.text2.strip() and not decodes):
        raise ConfigError(
            f"The text of {name} is given as text=, since its processor places the {medium.noun} in it; got token ids or a second text: "
            f"give text= and {medium.field}= alone."
        )
    if not reader.reads_text and text.strip():
        raise ConfigError(f"{name} reads {medium.one} and no text; got both: leave text= out.")
    if reader.reads_text and not decodes and not text.strip():
        raise TextError(f"{name} reads {medium.one} and a text; got no text: type one, or give it as text=.")


_MASK_OF = {"input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask"}
_INSTEAD = {
    "inputs_embeds": "give the input_ids of these vectors, which name the tokens",
    "labels": "leave it out, since no weight depends on it",
}
"""What to do with an argument of a model that cannot be read here, by its name."""


def text_list(texts: object) -> tuple[str, ...]:
    """Several texts.

    Raises:
        ConfigError: they are no list of texts.
    """
    items = tuple(texts) if isinstance(texts, Iterable) and not isinstance(texts, str) else (None,)
    if not items or not all(isinstance(item, str) for item in items):
        raise ConfigError("texts is a list with one text for each trace; got something else: give [text, text, …].")
    return items


def _chat(messages: Any) -> str:
    """A chat as JSON; empty without one.

    Raises:
        TextError: it is none.
    """
    if isinstance(messages, str):
        return messages
    chat = messages if isinstance(messages, Mapping) else {"messages": messages}
    try:
        items = list(chat["messages"])
        if not items or not all(isinstance(item, Mapping) for item in items):
            raise TypeError("there are none, or no dicts")
        return json.dumps({**chat, "messages": [dict(item) for item in items]}, ensure_ascii=False)
    except (TypeError, ValueError, KeyError) as error:
        raise TextError(
            f'Messages are a list such as [{{"role": "user", "content": "…"}}], or a dict with "messages" and "tools"; '
            f"got {str(messages)[:60]!r} ({error}): give one of these."
        ) from error


def tensor_options(handle: ModelHandle, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The tokens of one row of tensors, as a tokenizer returns them, with token_type_ids and position_ids; padding is left out.

    Raises:
        ConfigError: there are several rows, or tensors that cannot be read here.
    """
    from inspect import signature

    from attention.models.text_inputs import BESIDE, MASK

    text = "text2=" if handle.readers and has_decoder(handle.model) else "text="
    of_media = {each.argument: f"give the {each.noun} as {each.field}=, and the text as {text}" for each in media()}
    if handle.readers:
        medium = handle.readers[0].medium
        raise ConfigError(
            f"inputs has token ids, and {handle.name} reads {medium.one}: {of_media[medium.argument]} if it reads one."
        )
    if not isinstance(inputs, Mapping) or "input_ids" not in inputs:
        raise ConfigError(
            "inputs is a dict of tensors with input_ids, as tokenizer(text, return_tensors='pt') gives it; got something else: "
            "give input_ids, and attention_mask if there is padding."
        )
    given = {name: value for name, value in inputs.items() if value is not None}
    arguments = signature(handle.model.forward).parameters
    known = {*_MASK_OF, *_MASK_OF.values(), *BESIDE}
    for name in given:
        if name in arguments and name not in known:
            advice = {**_INSTEAD, **of_media}.get(name, "give the weights of your own call as a file, with File.open")
            raise ConfigError(
                f"inputs may have {', '.join(_MASK_OF)}, their attention masks, token_type_ids and position_ids; got {name}: {advice}."
            )
    notes = list[str]()
    if ignored := [name for name in given if name not in known and name not in arguments]:
        notes.append(
            f"{handle.name} reads no {' and no '.join(ignored)}, which {'is' if len(ignored) == 1 else 'are'} left out."
        )
    rows, n_left_out = dict[str, tuple[int, ...]](), 0
    for name, mask_name in _MASK_OF.items():
        if name not in given:
            continue
        ids, mask = _row(name, given[name]), _row(mask_name, given[mask_name]) if mask_name in given else None
        part, hides_more = _shown_part(len(ids), mask_name, mask)
        rows[name] = tuple(ids[part].tolist())
        n_left_out += len(ids) - len(rows[name])
        known_beside = given.keys() & arguments.keys() - {MASK} if name == "input_ids" else set[str]()
        beside = {key: _row(key, given[key]) for key in BESIDE if key in known_beside}
        beside |= {MASK: mask} if hides_more and mask is not None and mask_name == MASK else {}
        for key, row in beside.items():
            if len(row) != len(ids):
                raise ConfigError(
                    f"{key} has a number for each token; got {len(row)} for {len(ids)} tokens: give the tensors of one text."
                )
            rows[key] = tuple(row[part].tolist())
    tokens = "padding token is" if n_left_out == 1 else "padding tokens are"
    notes += [f"{n_left_out} {tokens} left out: attention_mask hides them."] if n_left_out else []
    return _id_options(handle, rows, " ".join(notes))


def _id_options(handle: ModelHandle, ids: Mapping[str, tuple[int, ...]], note: str) -> dict[str, Any]:
    texts = [ids[name] for name in _MASK_OF if name in ids]
    first, last = texts[0], texts[-1]
    if not first or not last:
        raise TextError(
            "The input needs at least one token; got none: give a text with words, or a mask that shows some."
        )
    # Only for people; an id that the model does not have is refused before it runs.
    first_text, last_text = (handle.tokenizer.decode([i for i in row if i >= 0]) for row in (first, last))
    return {
        "text": first_text,
        "text2": last_text if len(texts) > 1 else "",
        "input_ids": tuple(ids.items()),
        "note": note,
    }


def _row(name: str, value: Any) -> Tensor:
    import torch

    try:
        tensor = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{name} is a tensor of whole numbers; got a {type(value).__name__}: give a tensor."
        ) from error
    if tensor.ndim == 2 and len(tensor) > 1:
        raise ConfigError(
            f"inputs has one row, [1 pos]; {name} has {len(tensor)}: give the texts as texts=[…], or the rows one after the other."
        )
    tensor = tensor if tensor.numel() else tensor.long()  # an empty list has no kind of number
    if tensor.is_floating_point() or tensor.is_complex() or tensor.ndim not in (1, 2):
        raise ConfigError(
            f"{name} is one row of whole numbers, [1 pos]; got {tensor.dtype} with the shape {list(tensor.shape)}: give token ids."
        )
    return tensor.flatten()


def _shown_part(n_tokens: int, mask_name: str, mask: Tensor | None) -> tuple[slice, bool]:
    """The part of a text without its padding, and whether the mask hides more than that."""
    if mask is None:
        return slice(0, n_tokens), False
    if len(mask) != n_tokens:
        raise ConfigError(
            f"{mask_name} has a 1 for each token and a 0 for padding; got {len(mask)} numbers for {n_tokens} tokens: give both of one text."
        )
    shown = (mask != 0).nonzero()[:, 0].tolist()
    part = slice(shown[0], shown[-1] + 1) if shown else slice(0, 0)
    hides_more = len(shown) < part.stop - part.start
    if hides_more and mask_name != _MASK_OF["input_ids"]:
        raise ConfigError(
            f"{mask_name} may hide padding at one end; got {part.stop - part.start - len(shown)} hidden tokens in the middle: "
            "give the weights of your own call as a file, with File.open."
        )
    return part, hides_more
