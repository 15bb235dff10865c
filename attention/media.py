"""Media: what a model may read besides words, such as pictures. A feature declares each, and the trunk names none.

A token that stands for a part of such an input has a `place` in it, in the medium's own units (`attention.base.tokens.Placed`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from attention.base.errors import AwaitedError, ConfigError
from attention.base.knobs import EncodedText, Knob
from attention.base.tokens import PatchPlace
from attention.features import features
from attention.files.archives import quote
from attention.files.reading_cost import UNKNOWN, ReadingCost

if TYPE_CHECKING:
    from attention.base.knobs import Limits
    from attention.base.tokens import Patch
    from attention.models.folder import Folder
    from attention.models.loaded import LoadedModel
    from attention.models.medium_inputs import MediumInputs, ReadInput
    from attention.sources.reader import Reader
    from attention.trace.trace import SeenPicture


DECODER_TEXT = "decoder_input_ids"
"""The argument of an encoder-decoder model for the text of its decoder."""
PREFIX = "example:"
"""How the name of an input of ours begins in a link."""
SEPARATOR = "/"
"""What stands between several names in a link: no name of a file has it."""
_MOST_GIVEN = 16  # of one input in Python
_UPLOADED = re.compile(rf"[^{SEPARATOR}]+:[0-9a-f]{{32}}")


class DeclaredInputs(NamedTuple):
    """What a model reads."""

    text: bool  # whether it reads a text
    medium: Medium | None  # what else it reads
    continues: bool  # whether a text of it may have a continuation that it writes, or a second text
    several: bool = False  # whether it reads several pictures, sounds, …, each at a place in its text
    instead: tuple[Medium, ...] = ()  # what it reads instead of the medium, such as videos instead of pictures
    residues: Residues | None = None  # of which its text is a chain, if it is one of letters and not of words

    @property
    def second_text(self) -> bool:
        """Whether it reads a second text: of a pair, or that of a decoder, whose encoder may read another medium than text."""
        return self.medium is None or (self.continues and not self.text)


@dataclass(frozen=True)
class Residues:
    """The residues of which some models read a chain, letter by letter, where others read words; a feature declares them.

    Attributes:
        label: of the field for the chain, as on pages.
        help: of that field.
        example: a chain for a page without one.
        is_alphabet: whether the pieces of a small vocabulary, without special tokens, are their letters.
        read: what a user gave as the letters of a chain, for a tokenizer, and sentences about what was left out; raises `TextError`.
    """

    label: str
    help: str
    example: str
    is_alphabet: Callable[[Collection[str]], bool]
    read: Callable[[str, Any], tuple[list[str], list[str]]]


@dataclass(frozen=True, kw_only=True)
class InputNames(EncodedText):
    """Up to `most` names in a link: of inputs of ours, or the name and the digest of uploaded ones."""

    noun: str
    name: str
    examples: tuple[str, ...]
    most: int = 1
    replacement_words = "the default is used"

    @property
    def expected(self) -> str:
        """The names, as words that follow "is"."""
        several = (
            f"; a model that reads several has up to {self.most}, with {SEPARATOR} between them"
            if self.most > 1
            else ""
        )
        return f"one of {', '.join(PREFIX + name for name in self.examples)}, or the name of an uploaded {self.noun} with its digest{several}"

    def accepts(self, value: object) -> bool:
        """Whether each is one of ours, or a name and 32 digits in hexadecimal, and they are not too many."""
        return super().accepts(value) and 0 < len(self._valid(str(value))) <= self.most

    def nearest(self, value: Any) -> Any:
        """The first of the names, as many as are read."""
        return SEPARATOR.join(self._valid(str(value))[: self.most])

    def replacement(self, text: str, default: Any) -> tuple[Any, str]:
        """The first of the names and words about their number; the default if one is no name."""
        first = self.nearest(text)
        if not super().accepts(first) or not first:
            return super().replacement(text, default)
        if self.most == 1:
            return first, f"one {self.noun} for a model that reads one at a time: the first is used"
        return first, f"at most {self.most} {self.name}: the first {self.most} are used"

    def _valid(self, value: str) -> tuple[str, ...]:
        """The names in a value; none if one of them is no name."""
        names = names_in(value)
        ours = {PREFIX + name for name in self.examples}
        return names if all(name in ours or _UPLOADED.fullmatch(name) for name in names) else ()


def names_in(value: str) -> tuple[str, ...]:
    """The names in the value of a link."""
    return tuple(value.split(SEPARATOR))


class Medium(ABC):
    """One kind of input; a feature has a class of it, and one object of that in its declaration.

    Its inputs are compared by their `digest`. Each has the `content` and the `kind` of its file ("" for one that was given in memory),
    its `name`, and `notes` about what was done to it, a sentence each.

    Attributes:
        name: what such inputs are called, such as "pictures".
        noun: one of them, such as "picture".
        field: the field of `Model` in which they are given, such as "image".
        files: what is given there, in words.
        endings: of such files.
        most: how many a link names, for a model that reads several.
        examples: what each input of ours shows, by its name: drawn by code, so that a link opens without an upload.
        such_as: some models that read it, in words.
        argument: of a transformers model, for the input.
        families: the `model_type` of all models that are read.
        classifier: a regular expression, found in the names of the classes of transformers that predict a class of the whole input.
        vectors: what a model without a head computes for the input, in words.
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    field: ClassVar[str]
    files: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    most: ClassVar[int] = 1
    examples: ClassVar[Mapping[str, str]]
    such_as: ClassVar[str]
    argument: ClassVar[str]
    families: ClassVar[tuple[str, ...]]
    classifier: ClassVar[str]
    vectors: ClassVar[str]

    def __reduce__(self) -> tuple[Any, ...]:
        return medium_of, (self.field,)  # in another process it is that of its feature

    @cached_property
    def knob(self) -> Knob:
        """Of a link, with the names of inputs."""
        names = InputNames(1000, noun=self.noun, name=self.name, examples=tuple(self.examples), most=self.most)
        words = (
            f"What a model of {self.name} reads: {PREFIX}NAME for one of ours, otherwise name:digest of an uploaded one"
        )
        several = f"; several have {SEPARATOR} between them." if self.most > 1 else "."
        return Knob(
            self.field,
            f"{PREFIX}{next(iter(self.examples))}",
            names,
            help=words + several,
            sources=("model",),
            inline=True,
        )

    def files_in_field(self, limits: Limits) -> str:
        """What a user may upload, and how large it may be, in a sentence or two."""
        return f"{self.files.removeprefix('a ')}, up to {limits.picture_mb} MB."

    @property
    def one(self) -> str:
        """One of its inputs, such as "a picture"."""
        return f"a {self.noun}"

    @abstractmethod
    def declared(self, model_type: str, class_name: str) -> DeclaredInputs | None:
        """What a model reads, by its config.json alone; None if its family is not one of this medium."""

    @abstractmethod
    def is_read_by(self, model: Any) -> bool:
        """Whether a model of transformers reads this medium, and is of one of its families."""

    @abstractmethod
    def reader_of(self, model: Any, processor: Any) -> tuple[InputReader, Any]:
        """How a model in memory reads its input, by the processor that its user gives; and the part of the processor that does.

        Raises:
            ModelError: there is no such part, or it asks for inputs that are too large.
        """

    @abstractmethod
    def load_reader(self, folder: Folder, name: str, model: Any) -> InputReader:
        """How the model of a folder reads its input; the model is on the meta device.

        Raises:
            ModelError: a file is missing or broken, or asks for inputs that are too large.
        """

    @abstractmethod
    def example(self, name: str) -> Any:
        """The input of ours of this name, one of `examples`."""

    @abstractmethod
    def open(self, value: Any, name: str = "") -> Any:
        """The input of the path or the bytes of a file, or of what Python has in memory.

        Args:
            value: one of these, or an input that was opened before.
            name: of the file, if these are its bytes.

        Raises:
            AttentionError: it is none, cannot be read, or is too large.
        """

    @abstractmethod
    def upload(self, content: bytes, name: str, side: int, limits: Limits) -> tuple[Any, bytes]:
        """The input of an uploaded file within the limits of an operator, and its `preview`.

        Raises:
            AttentionError: it cannot be read, or is too large.
        """

    @abstractmethod
    def preview(self, given: Any, side: int) -> bytes:
        """A PNG of an input whose longer side has at most `side` pixels."""

    @abstractmethod
    def size_in_words(self, given: Any) -> str:
        """How large an input is, such as "320 × 240 pixels"."""

    def sound(self, given: Any) -> tuple[bytes, str] | None:
        """A file by which an input is heard, and its media type; None if it is not heard."""
        return None

    def reading_cost(self, content: bytes, limits: Limits) -> ReadingCost:
        """What `upload` takes for a file, by its header or by counting what is in it, before it is read.

        Raises:
            AttentionError: it is no such file, or is too large.
        """
        return UNKNOWN

    def check_together(self, inputs: Sequence[Any], limits: Limits) -> None:  # noqa: B027  # most models read one
        """Check that several inputs are together within the limits of one.

        Raises:
            FileError: they are not.
        """

    def given(self, value: Any) -> Any:
        """What a user gives in the field of `Model`, as one input or a tuple of several.

        Raises:
            AttentionError: it is none, cannot be read, or is too large.
        """
        if self.most == 1 or not isinstance(value, list | tuple):
            return self.open(value)
        if not 0 < len(value) <= _MOST_GIVEN:
            raise ConfigError(
                f"A model reads from 1 to {_MOST_GIVEN} {self.name} at once; got {len(value)}: give fewer, or leave {self.field}= out for a model of texts."
            )
        if any(item is None or isinstance(item, list | tuple) for item in value):
            raise ConfigError(
                f"{self.field}= is {self.one} or a list of {self.name}; got a list in a list, or nothing in one: give each {self.noun} once."
            )
        first, *others = map(self.open, value)
        return (first, *others) if others else first

    def example_of(self, name: str) -> Any | None:
        """The input of ours of this name in a link; None if it names an upload."""
        return self.example(name.removeprefix(PREFIX)) if self.is_example(name) else None

    def is_example(self, name: str) -> bool:
        """Whether a name in a link is that of an input of ours; that of an uploaded file may begin like one."""
        return name.startswith(PREFIX) and name.removeprefix(PREFIX) in self.examples

    def link_name(self, given: Any) -> str:
        """The name of an input in a link: that of one of ours, otherwise name:digest of a file; empty if no file has this digest."""
        ours = next((name for name in self.examples if self.example(name) == given), "")
        if ours:
            return f"{PREFIX}{ours}"
        return f"{given.name.rpartition(SEPARATOR)[2] or self.noun}:{given.digest}" if given.kind else ""

    def place(self, seen: SeenPicture, patch: Patch) -> Any:
        """Where a patch of what a model saw is, in the units of this medium."""
        return PatchPlace(patch.picture, patch.row, patch.column, patch.box)

    def from_link(self, reader: Reader, several: bool) -> Any:
        """The input that a link names, or a tuple of those.

        Raises:
            AwaitedError: one has not been uploaded.
            FileError: they are together too large.
        """
        range_ = self.knob.range
        assert isinstance(range_, InputNames)
        names = names_in(reader.knob(self.knob, replace(range_, most=self.most if several else 1)))
        inputs = [reader.uploads.given.get((self.field, name)) or self.example_of(name) for name in names]
        if missing := [name for name, given in zip(names, inputs, strict=True) if given is None]:
            raise self._missing_error(missing)
        self.check_together(inputs, reader.limits)
        return tuple(inputs) if several else inputs[0]

    def _missing_error(self, names: Sequence[str]) -> AwaitedError:
        """The error for inputs (name:digest each) that have not been uploaded."""
        words = [
            f"{quote(name)} (digest {digest[:8]}…)" for name, _, digest in (name.rpartition(":") for name in names)
        ]
        noun, are, them = (self.noun, "is", "it") if len(words) == 1 else (self.name, "are", "them")
        return AwaitedError(
            f"The link shows the {noun} {' and '.join(words)}, which {are} not on this server: upload {them} to open the link."
        )

    def no_link_reason(self, inputs: Sequence[Any]) -> str:
        """Why no link names these inputs, in a sentence; empty if one does."""
        if len(inputs) > self.most:
            return f"A link names at most {self.most} {self.name}, and this input has {len(inputs)}: save the trace as a file, and open that."
        if all(map(self.link_name, inputs)):
            return ""
        return f"A link names {self.one} by the digest of its file, and this one is in memory: save it as {self.files}, and give its path."

    @abstractmethod
    def program_imports(self, inputs: Sequence[Any]) -> tuple[list[str], list[str]]:
        """The lines that import what `program_lines` needs, and the names of transformers among it."""

    @abstractmethod
    def program_lines(self, reader: InputReader, inputs: Sequence[Any], variable: str, max_tokens: int) -> list[str]:
        """The lines of a copied program that read the inputs, and assign the arguments of the model to the variable with "_inputs" after its name.

        What the Lab cuts, to `max_tokens` or for the model, they cut there as well.
        """


class InputReader(ABC):
    """How one model reads inputs of a medium.

    Attributes:
        medium: the medium.
        reads_text: whether the model also reads a text: beside the input, or in its decoder.
        token_id: the id in the text that stands for a token of the input; None if the input does not stand in the text.
        types_argument: the argument of a model that must know which tokens of its text are those of the input; empty without one.
        token_type: the number of such a token there; that of a word is 0.
        in_turn: whether the model may call its attention for one sequence after the other.
        across: what its layers are called in which the sequences of an input see each other, such as "channels", if every second attention of a
            layer is one; empty if none is.
    """

    medium: Medium
    reads_text: bool
    token_id: int | None
    types_argument: str
    token_type: int = 1
    in_turn: bool
    across: str = ""

    @property
    def computes(self) -> str:
        """What the model computes, in words, if it predicts no tokens and no class."""
        return self.medium.vectors

    @property
    @abstractmethod
    def special_tokens(self) -> tuple[str, ...]:
        """The tokens of an input that have no place in it."""

    @abstractmethod
    def inputs(
        self, loaded: LoadedModel, given: Sequence[Any], text: str, max_tokens: int
    ) -> tuple[MediumInputs, list[tuple[str, int]], list[str]]:
        """The input of a pass; the truncated texts, as for a model of texts; and sentences for the user.

        The text of an encoder-decoder model is that of its decoder, which may have a limit of its own, `loaded.max_length`; empty: what it begins
        with when it generates.

        Raises:
            ConfigError: the inputs have more tokens than are read, which cannot be cut, or the model reads one at a time.
            TextError: the text is empty, or has another number of places for inputs.
            ModelError: the processor of the model does not read them.
        """

    def names_after(self, read: ReadInput, output: Any) -> Mapping[str, str]:
        """Other names for tokens, by those that they had before the model ran, from what it predicts at them; a model of boxes has some."""
        return {}

    def during(self, model: Any) -> AbstractContextManager[None]:
        """A context for each pass of the model."""
        return nullcontext()

    def kind_of_layer(self, path: str) -> str:
        """The kind of the layer with the attention module of this path: "vision" or "text" in a model that reads both, otherwise "layer"."""
        is_vision = re.search(r"\b(vision_(model|tower)|visual)\b", path)
        return ("vision" if is_vision else "text") if self.reads_text else "layer"

    @abstractmethod
    def probe(self) -> Any:
        """A small input, such as `Medium.given` returns, with which every model is tried."""


@cache
def media() -> tuple[Medium, ...]:
    """The media of the features that are here."""
    return tuple(medium for feature in features() for medium in feature.media)


MOST_LETTERS = 256
"""The size of the largest vocabulary that is looked at for letters of residues."""


def residues_among(pieces: Iterable[str]) -> Residues | None:
    """The residues whose letters are the pieces of a vocabulary, apart from special tokens and the marks of words; None for words."""
    letters = {piece.lstrip("▁Ġ") for piece in pieces if not (piece[:1] in "<[" and piece[-1:] in ">]")} - {""}
    declared = (each for feature in features() for each in feature.residues)
    return next((each for each in declared if each.is_alphabet(letters)), None)


def medium_of(field: str) -> Medium:
    """The medium of a field of `Model`.

    Raises:
        ConfigError: its feature is not here.
    """
    for medium in media():
        if medium.field == field:
            return medium
    raise ConfigError(f"{field}= is of a feature that is not installed here: leave it out, or install all of the Lab.")


def read_by(model: Any) -> tuple[Medium, ...]:
    """The media that a model of transformers reads, one of them at a time; none for a model of texts, and of families that are not read."""
    return tuple(medium for medium in media() if medium.is_read_by(model))


def reads_text(model: Any) -> bool:
    """Whether a model of transformers reads a text."""
    return not {"input_ids", DECODER_TEXT}.isdisjoint(signature(model.forward).parameters)


def has_decoder(model: Any) -> bool:
    """Whether a model of transformers has an encoder and a decoder; a classifier may have the encoder alone."""
    has_module = any(path.rpartition(".")[2] == "decoder" for path, _ in model.named_modules())
    return bool(getattr(model.config, "is_encoder_decoder", False)) and has_module
