"""Source "example": one layer of a trained model for one text, stored with the package.

`python -m attention.examples FOLDER` makes the stored layers from the models; a test compares them where the models are.
"""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from attention.base.errors import ConfigError
from attention.base.knobs import Choice, Knob
from attention.formula.override import Override
from attention.sources import Source
from attention.sources.file import File
from attention.sources.layer_knobs import read_override
from attention.sources.reader import Reader, SourceKind

if TYPE_CHECKING:
    from attention.program.literals import Snippet
    from attention.trace.trace import Trace

DATA = Path(__file__).parent / "data"
_TRAINED = "a tiny model, trained here"


class _Stored(NamedTuple):
    """What an example shows.

    Attributes:
        model: the name of its model; `_TRAINED` for one that the source "trained" trains.
        text: the input of the model.
        layer: the layer, counted from 0.
        head: the head, counted from 0.
        row: the position of the query.
        column: the position of the key that it looks at.
        why: a sentence that says why it may look there. What it says is in the text: a test checks it.
    """

    model: str
    text: str
    layer: int
    head: int
    row: int
    column: int
    why: str

    @property
    def title(self) -> str:
        """Its line in menus."""
        return f"{self.text} · {self.model}"


_SMOLLM2, _MINILM = "SmolLM2-135M-Instruct", "all-MiniLM-L6-v2"

# The names are part of links: add names, but never change one.
# fmt: off
EXAMPLES = {
    "names": _Stored(
        _SMOLLM2, "When Mary and John went to the store, John gave a drink to Mary.", 24, 4, 13, 1,
        "“John” came twice by then, “Mary” once."),
    "copper": _Stored(
        _SMOLLM2, "The quiet harbor watched the copper moon. The quiet harbor watched the copper moon.", 18, 6, 12, 5,
        "Earlier, “copper” followed “watched the”."),
    "capital": _Stored(
        _SMOLLM2, "Paris is the capital of France and Rome is the capital of Italy.", 23, 4, 11, 7,
        "“Paris” came first; “Rome” is the city that was named last."),
    "pronoun": _Stored(
        _MINILM, "the cat sat on the mat because it was tired", 5, 11, 8, 2,
        "“it” could be the “cat” or the “mat”: the “cat” gets more."),
    "owl": _Stored(
        _TRAINED, "an owl asked the moon why", 1, 0, 7, 2,
        "Earlier, “asked” followed “owl”."),
}
"""The examples by their names in links; the first one is the default."""
# fmt: on


@dataclass(frozen=True)
class Example(Source):
    """A layer of a trained model for one text, which needs no model: its queries, keys and values are stored.

    Attributes:
        name: one of `EXAMPLES`.
        config: overrides of the formula; with the defaults the numbers are those of the model.

    Raises:
        ConfigError: the example does not exist.
    """

    name: str
    config: Override = Override()

    def __post_init__(self) -> None:
        if self.name not in EXAMPLES:
            raise ConfigError(f"An example is one of {', '.join(EXAMPLES)}; got {self.name!r}: choose one of them.")

    @property
    def file(self) -> File:
        """The stored layer, as an export of the Lab."""
        return File.of(f"{self.name}.npz", (DATA / f"{self.name}.npz").read_bytes())

    def trace(self) -> Trace:
        """One layer with every head of it; the first steps of the model are not stored."""
        return self.file.trace().with_config(self.config)

    def memory_bytes(self) -> int:
        """The bytes of its steps; an example has at most a few dozen tokens."""
        return self.file.memory_bytes()

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """The beginning of a Python program that computes the layer; it has the stored numbers in it, so that it runs anywhere."""
        file = self.file
        of_file = file.snippet(trace, layer)
        opened = f'file = np.load(io.BytesIO(base64.b64decode("{b64encode(file.content).decode()}")))  # query, key and value'
        return of_file._replace(about=f"the example {self.name}", lines=(opened, *of_file.lines[1:]))


_NAME = "example"
_EXAMPLE = Knob(
    "example", next(iter(EXAMPLES)), Choice(tuple(EXAMPLES), tuple(stored.title for stored in EXAMPLES.values())),
    "Example", "A head of a trained model that shows something. Its queries, keys and values are stored: no model is loaded.", (_NAME,))  # fmt: skip


def read(reader: Reader) -> Example:
    """The example, with overrides of its formula."""
    return Example(reader.knob(_EXAMPLE), read_override(reader, KIND))


def _shown(texts: Mapping[str, str]) -> _Stored:
    return EXAMPLES.get(texts.get(_EXAMPLE.key, ""), EXAMPLES[_EXAMPLE.default])


def _opening(texts: Mapping[str, str]) -> dict[str, str]:
    shown = _shown(texts)
    return {"head": str(shown.head), "q": str(shown.row), "k": str(shown.column)}


def _model(texts: Mapping[str, str]) -> dict[str, str]:
    shown = _shown(texts)
    return {"model": shown.model, "layer": str(shown.layer), "head": str(shown.head)}


KIND = SourceKind(
    _NAME,
    read,
    noun="trained model",
    knobs=(_EXAMPLE,),
    has_formula=True,
    model=_model,
    why=lambda texts: _shown(texts).why,
    opening=_opening,
)


def run(example: _Stored, models: Path) -> Trace:
    """What the model of an example computes for its text.

    Args:
        example: the example.
        models: the folder in which the models lie, each under its name.

    Raises:
        ModelError: the model is not there.
    """
    if example.model == _TRAINED:
        from attention.export.states import LIMITS
        from attention.sources.registry import source_of

        return source_of({"source": "trained", "task": "induction", "input": example.text}, LIMITS)[0].trace()
    from attention.sources.model import Model

    return Model(str(models / example.model), example.text).trace()


def stored(trace: Trace, layer: int) -> bytes:
    """One layer of a trace as a file, from its queries, keys and values on: from these the formula computes all else to the same digits."""
    import numpy as np

    from attention.files import array_writer

    before = ("embedding", "input", "w_", "b_")  # what gives the queries, keys and values, and W_O
    kept = {f"L{layer}.{name}" for name in trace.layers[layer].recorded if not name.startswith(before)}
    arrays = np.load(io.BytesIO(array_writer.npz(replace(trace, notes=()), layers=(layer,))))
    file = io.BytesIO()
    np.savez_compressed(
        file,
        allow_pickle=False,
        **{name: arrays[name] for name in arrays.files if name in kept | {"about", "tokens", "key_tokens"}},
    )
    return file.getvalue()
