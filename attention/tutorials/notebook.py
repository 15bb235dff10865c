"""Source "notebook": five tutorial notebooks on attention, reproduced with every step recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.base.errors import ConfigError
from attention.base.knobs import Choice, Integer, Knob
from attention.formula.override import Override
from attention.sources import Source
from attention.sources.layer_knobs import read_override, read_sequence
from attention.sources.reader import Reader, SourceKind
from attention.trace.trace import Trace
from attention.tutorials import notebook_inputs
from attention.tutorials.notebook_inputs import SENTENCES

if TYPE_CHECKING:
    from attention.program.literals import Snippet


class _Entry(NamedTuple):
    """What is known of a notebook before anything is computed; `notes` describe our deviations from it."""

    title: str
    notes: tuple[str, ...]
    n_sequences: int = 1
    random: bool = True
    sentences: tuple[str, ...] = ()


def _entry(title: str, *notes: str, **options: Any) -> _Entry:
    return _Entry(title, notes, **options)


_LABELS = (
    "The notebook's labels follow the sorted vocabulary but its rows follow the sentence, so 21 of 22 labels are at the wrong row; "
    "here each row has its own word. Its ids number every word of the sorted list, so a repeated word would leave gaps; no word repeats in this sentence."
)
_TITLES = 'What the notebook titles "Attention Weights" is the output; the weights are in its "Similarity Heatmap".'

# The names are part of published links: add names, but never change one.
_ENTRIES = {
    "heatmaps-unscaled": _entry(
        "Heatmaps: X Xᵀ without softmax",
        _LABELS,
        "There is no scaling and no softmax: the scores are used as weights, so the output is as large as they are. "
        'The notebook titles that output "Attention Weights", but it computes no weights.',
    ),
    "heatmaps-scaled": _entry(
        "Heatmaps: X Xᵀ, scaled, softmax",
        _LABELS,
        _TITLES,
        "Its comment divides by √k, its code by √64: both are √d_k, because without projections a query is as wide as a row.",
    ),
    "heatmaps-self-attention": _entry("Heatmaps: self-attention", _LABELS, _TITLES),
    "heatmaps-multi-head": _entry(
        "Heatmaps: four heads, the exercise solved",
        _LABELS,
        "The notebook computes Q, K and V of four heads and leaves the rest as an exercise; this is the solution. "
        "It has no W_O, so each head has its own output.",
    ),
    "averaging-trick": _entry(
        "Averaging trick: a causal average as a softmax",
        "All scores are 0, so the output of each query is the plain average of its visible values.",
        'The notebook calls the width of a row "# of tokens in vocabulary"; it is d_model, and the rows are random numbers, not words.',
        n_sequences=4,
        random=False,  # the input is random, the weights are not
    ),
    "averaging-self-attention": _entry(
        "Averaging trick: self-attention",
        "Run once from top to bottom, the notebook gives these numbers. The weights that it prints differ: "
        "they come from later draws, and from scores that were not yet divided by √16.",
        "Its comments say that attention is divided by 1/√head_size; its code multiplies by 1/√head_size.",
        n_sequences=4,
    ),
    "numpy": _entry(
        "Attention in NumPy, in whole numbers",
        "The notebook's “attention” is the output, A V. "
        "Its projections are random integers from 0 to 2, so that a score can be checked by hand.",
    ),
    "multi-head": _entry(
        "Multi-head attention, three sentences",
        "The notebook sets no seed, so its digits cannot be reproduced: steps and shapes are those of the notebook, the numbers come from our seed 42.",
        "The zeros in its printed input come from dropout, which belongs to training: this trace has no dropout. "
        "W_O comes from the class at the end of the notebook, without that class's biases.",
        "That class would mask a score with −1e10, so a query without visible keys would attend to all keys equally; "
        "nothing is masked in this trace, and the Lab masks with −∞.",
        'The notebook\'s tokenizer removes only "!", "." and "?", so in the third sentence "hello," keeps its comma.',
        n_sequences=len(SENTENCES),
        sentences=SENTENCES,
    ),
    "self-attention-class": _entry(
        "A self-attention class, three tokens",
        "The class returns its output as attention scores; its sims are the scores, "
        "and its attention percents are the weights, from 0 to 1.",
    ),
}

NOTEBOOKS = tuple(_ENTRIES)
"""The names of all notebooks, as in links."""


@dataclass(frozen=True)
class Notebook(Source):
    """One part of a tutorial notebook, with the numbers of the notebook.

    We do not reproduce errors of a notebook; the trace notes each deviation.

    Attributes:
        name: one of `NOTEBOOKS`.
        sequence: the index of the sequence, if the notebook runs several at once.
        config: overrides of the formula; with the defaults the numbers are those of the notebook.

    Raises:
        ConfigError: the notebook or the sequence does not exist.
    """

    name: str
    sequence: int = 0
    config: Override = Override()

    def __post_init__(self) -> None:
        if self.name not in NOTEBOOKS:
            raise ConfigError(f"A notebook is one of {', '.join(NOTEBOOKS)}; got {self.name!r}: choose one of them.")
        if not Integer(0, self.n_sequences - 1).accepts(self.sequence):
            available = f"the sequences 0 to {self.n_sequences - 1}" if self.n_sequences > 1 else "only sequence 0"
            raise ConfigError(f"{self.name} has {available}; got {self.sequence!r}: choose one of these.")

    @property
    def title(self) -> str:
        """The title in menus."""
        return _ENTRIES[self.name].title

    @property
    def n_sequences(self) -> int:
        """The number of sequences that the notebook runs at once."""
        return _ENTRIES[self.name].n_sequences

    @property
    def sequences(self) -> tuple[str, ...]:
        """The labels of the sequences in menus: their sentences, or numbers."""
        entry = _ENTRIES[self.name]
        return entry.sentences or tuple(f"row {i} of the batch" for i in range(entry.n_sequences))

    def trace(self) -> Trace:
        """Every step of the notebook, in its own precision; a step that it does not have is None."""
        # Imported lazily: importing torch takes more than a second.
        from attention.tutorials.recipes import RECIPES

        entry = _ENTRIES[self.name]
        tokens, layer = RECIPES[self.name](self.sequence)
        return Trace(tokens, (layer,), random=entry.random, notes=entry.notes).with_config(self.config)

    def memory_bytes(self) -> int:
        """0: the sizes of a notebook are fixed and small."""
        return 0

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """The beginning of a Python program that computes the trace: the notebook's own draws, in its order."""
        return notebook_inputs.snippet(self.name, self.title, self.sequence)


_NAME = "notebook"
# fmt: off
_NOTEBOOK = Knob(
    "notebook", "self-attention-class", Choice(NOTEBOOKS, tuple(Notebook(name).title for name in NOTEBOOKS)),
    "Notebook", "One of five “attention from scratch” notebooks, reproduced to the last digit.", (_NAME,))
# fmt: on


def read(reader: Reader) -> Notebook:
    """One sequence of the notebook, with overrides of its formula."""
    name = reader.knob(_NOTEBOOK)
    return Notebook(name, read_sequence(reader, Notebook(name).sequences), read_override(reader, KIND))


KIND = SourceKind(_NAME, read, knobs=(_NOTEBOOK,), shared=("sequence",), has_formula=True)
