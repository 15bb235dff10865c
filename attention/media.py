"""Media: what a model may read besides words, such as pictures. A feature declares each, and the trunk names none.

A token that stands for a part of such an input has a `place` in it, in the medium's own units (`attention.base.tokens.Placed`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from attention.base.errors import ConfigError
from attention.base.tokens import PatchPlace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attention.base.knobs import Knob
    from attention.base.tokens import Patch
    from attention.models.folder import Folder
    from attention.models.loaded import LoadedModel
    from attention.models.medium_inputs import MediumInputs, ReadInput
    from attention.sources.reader import Reader
    from attention.trace.trace import SeenPicture


DECODER_TEXT = "decoder_input_ids"
"""The argument of an encoder-decoder model for the text of its decoder."""


class DeclaredInputs(NamedTuple):
    """What a model reads."""

    text: bool  # whether it reads a text
    medium: Medium | None  # what else it reads
    continues: bool  # whether a text of it may have a continuation that it writes, or a second text
    several: bool = False  # whether it reads several pictures, sounds, …, each at a place in its text
    instead: tuple[Medium, ...] = ()  # what it reads instead of the medium, such as videos instead of pictures

    @property
    def second_text(self) -> bool:
        """Whether it reads a second text: of a pair, or that of a decoder, whose encoder may read another medium than text."""
        return self.medium is None or (self.continues and not self.text)


class Medium(ABC):
    """One kind of input; a feature has a class of it, and one object of that in its declaration.

    Attributes:
        name: what such inputs are called, such as "pictures".
        noun: one of them, such as "picture".
        field: the field of `Model` in which they are given, such as "image".
        files: what is given there, in words.
        such_as: some models that read it, in words.
        argument: of a transformers model, for the input.
        families: the `model_type` of all models that are read.
        classifier: in the names of the classes of transformers that predict a class of the whole input.
        vectors: what a model without a head computes for the input, in words.
        knob: of a link, with the names of inputs.
    """

    name: ClassVar[str]
    noun: ClassVar[str]
    field: ClassVar[str]
    files: ClassVar[str]
    such_as: ClassVar[str]
    argument: ClassVar[str]
    families: ClassVar[tuple[str, ...]]
    classifier: ClassVar[str]
    vectors: ClassVar[str]
    knob: ClassVar[Knob]

    def __reduce__(self) -> tuple[Any, ...]:
        return medium_of, (self.field,)  # in another process it is that of its feature

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
    def given(self, value: Any) -> Any:
        """What a user gives in the field of `Model`, as one input or a tuple of several; each has its `digest`, `content` and `notes`.

        Raises:
            AttentionError: it is none, cannot be read, or is too large.
        """

    def place(self, seen: SeenPicture, patch: Patch) -> Any:
        """Where a patch of what a model saw is, in the units of this medium."""
        return PatchPlace(patch.picture, patch.row, patch.column, patch.box)

    @abstractmethod
    def from_link(self, reader: Reader, several: bool) -> tuple[Any, ...]:
        """The inputs that a link names.

        Raises:
            AwaitedError: one has not been uploaded.
            FileError: they are together too large.
        """

    @abstractmethod
    def no_link_reason(self, inputs: Sequence[Any]) -> str:
        """Why no link names these inputs, in a sentence; empty if one does."""

    @abstractmethod
    def program_imports(self, inputs: Sequence[Any]) -> tuple[list[str], list[str]]:
        """The lines that import what `program_lines` needs, and the names of transformers among it."""

    @abstractmethod
    def program_lines(self, reader: InputReader, inputs: Sequence[Any], variable: str) -> list[str]:
        """The lines of a copied program that read the inputs, and assign the arguments of the model to the variable with "_inputs" after its name."""


class InputReader(ABC):
    """How one model reads inputs of a medium.

    Attributes:
        medium: the medium.
        reads_text: whether the model also reads a text: beside the input, or in its decoder.
        token_id: the id in the text that stands for a token of the input; None if the input does not stand in the text.
        types_argument: the argument of a model that must know which tokens of its text are those of the input; empty without one.
        token_type: the number of such a token there; that of a word is 0.
        in_turn: whether the model may call its attention for one sequence after the other.
    """

    medium: Medium
    reads_text: bool
    token_id: int | None
    types_argument: str
    token_type: int = 1
    in_turn: bool

    @property
    @abstractmethod
    def special_tokens(self) -> tuple[str, ...]:
        """The tokens of an input that have no place in it."""

    @abstractmethod
    def inputs(
        self, loaded: LoadedModel, given: Sequence[Any], text: str, max_tokens: int
    ) -> tuple[MediumInputs, list[tuple[str, int]], list[str]]:
        """The input of a pass; the truncated texts, as for a model of texts; and sentences for the user.

        The text of an encoder-decoder model is that of its decoder; empty: what it begins with when it generates.

        Raises:
            ConfigError: the inputs have more tokens than are read, which cannot be cut, or the model reads one at a time.
            TextError: the text is empty, or has another number of places for inputs.
            ModelError: the processor of the model does not read them.
        """

    def names_after(self, read: ReadInput, output: Any) -> Mapping[str, str]:
        """Other names for tokens, by those that they had before the model ran, from what it predicts at them; a model of boxes has some."""
        return {}

    @property
    def vectors(self) -> str:
        """What a model without a head computes, in words."""
        return self.medium.vectors

    @abstractmethod
    def probe(self) -> Any:
        """A small input, such as `Medium.given` returns, with which every model is tried."""


@cache
def media() -> tuple[Medium, ...]:
    """The media of the features that are here."""
    from attention.features import features

    return tuple(medium for feature in features() for medium in feature.media)


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
