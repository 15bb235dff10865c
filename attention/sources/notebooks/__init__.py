"""Source "notebook": five tutorial notebooks on attention, run again with every step kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.errors import ConfigError
from attention.formula.ranges import Whole
from attention.formula.trace import Trace
from attention.formula.what_if import WhatIf

if TYPE_CHECKING:
    from attention.sources import Snippet


class _Entry(NamedTuple):
    """What is known of a notebook before anything is computed; `notes` say where we do not follow it."""

    title: str
    notes: tuple[str, ...]
    n_sequences: int = 1
    random: bool = True
    sentences: tuple[str, ...] = ()


def _entry(title: str, *notes: str, **more: Any) -> _Entry:
    return _Entry(title, notes, **more)


# What the fourth notebook reads.
SENTENCES = ("I wonder what will come next!", "This is a basic example paragraph.", "Hello, what is a basic split?")

_LABELS = (
    "The notebook's labels follow the sorted vocabulary but its rows the sentence, so 21 of 22 labels stand at the wrong row; "
    "here each row has its own word. Its ids count every word of the sorted list, so a repeated word would leave gaps; no word repeats here."
)
_TITLES = 'What the notebook titles "Attention Weights" is the output; the weights are in its "Similarity Heatmap".'

# The names stand in people's links: there may be more of them, never others.
_ENTRIES = {
    "heatmaps-unscaled": _entry(
        "Heatmaps: X Xᵀ without softmax",
        _LABELS,
        "Nothing is scaled and there is no softmax: the scores themselves mix the rows, so the output is as large as they are. "
        'The notebook titles that output "Attention Weights", but no weights were made.',
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
        "The notebook makes Q, K and V of four heads and leaves the rest as an exercise; this is the exercise, solved. "
        "It has no W_O, so each head has an output and there is no joint one.",
    ),
    "averaging-trick": _entry(
        "Averaging trick: a causal average as a softmax",
        "All scores are 0, so each query takes the plain average of what the mask lets it see.",
        'The notebook calls the width of a row "# of tokens in vocabulary"; it is d_model, and the rows are random numbers, not words.',
        n_sequences=4,
        random=False,  # the input is, the weights are not
    ),
    "averaging-self-attention": _entry(
        "Averaging trick: self-attention",
        "Run once from top to bottom, the notebook gives these numbers. The weights it prints are others: "
        "they were made after many more draws, from scores that were not yet divided by √16.",
        "Its remarks say that attention is divided by 1/√head_size; its code multiplies by that, which divides by √head_size.",
        n_sequences=4,
    ),
    "numpy": _entry(
        "Attention in NumPy, in whole numbers",
        "What the notebook calls attention is the output, A V. "
        "Its projections are random whole numbers from 0 to 2, so that a score can be checked by hand.",
    ),
    "multi-head": _entry(
        "Multi-head attention, three sentences",
        "The notebook sets no seed, so its digits cannot be drawn again: steps and shapes are the notebook's, the numbers come from our seed 42.",
        "The zeros in its printed input were dropped at random, which belongs to training: here nothing is dropped. "
        "W_O comes from the class at its end, without the biases that only that class has.",
        "That class would hide a score with −1e10, and a query that sees no key would then attend to all keys alike; "
        "here nothing is hidden, and where the Lab hides a score it is −∞.",
        'The notebook\'s tokenizer removes only "!", "." and "?", so in the third sentence "hello," keeps its comma.',
        n_sequences=len(SENTENCES),
        sentences=SENTENCES,
    ),
    "self-attention-class": _entry(
        "A self-attention class, three tokens",
        "The class returns its output under the name of attention scores; the scores are what it calls sims, "
        "and its attention percents are the weights, shares from 0 to 1.",
    ),
}

NOTEBOOKS = tuple(_ENTRIES)
"""The names of all notebooks, as they stand in links."""


@dataclass(frozen=True)
class Notebook:
    """One piece of a tutorial notebook, with the numbers that the notebook gives.

    Where a notebook goes wrong we do not follow, and the trace's notes say so.

    Attributes:
        name: which one, of `NOTEBOOKS`.
        sequence: which of its sequences, from zero, where the notebook runs several at once.
        config: what a hand has turned of its formula; with the defaults the numbers are the notebook's.

    Raises:
        ConfigError: there is no notebook of that name, or it has no such sequence.
    """

    name: str
    sequence: int = 0
    config: WhatIf = WhatIf()

    def __post_init__(self) -> None:
        if self.name not in NOTEBOOKS:
            raise ConfigError(f"A notebook is one of {', '.join(NOTEBOOKS)}; got {self.name!r}: choose one of them.")
        if not Whole(0, self.n_sequences - 1).takes(self.sequence):
            there = f"the sequences 0 to {self.n_sequences - 1}" if self.n_sequences > 1 else "only sequence 0"
            raise ConfigError(f"{self.name} has {there}; got {self.sequence!r}: choose one that is there.")

    @property
    def title(self) -> str:
        """What a person reads in a menu."""
        return _ENTRIES[self.name].title

    @property
    def n_sequences(self) -> int:
        """How many sequences the notebook runs at once."""
        return _ENTRIES[self.name].n_sequences

    @property
    def sequences(self) -> tuple[str, ...]:
        """The sequences as a person reads them in a menu: their sentences, where they have some."""
        entry = _ENTRIES[self.name]
        return entry.sentences or tuple(f"row {i} of the batch" for i in range(entry.n_sequences))

    def trace(self) -> Trace:
        """Every step that the notebook makes, in its own precision; what it does not make is None."""
        # Imported at first use: torch takes more than a second, and a page opens before that.
        from attention.sources.notebooks.recipes import RECIPES

        entry = _ENTRIES[self.name]
        tokens, layer = RECIPES[self.name](self.sequence)
        return Trace(tokens, (layer,), random=entry.random, notes=entry.notes).turned(self.config)

    @property
    def base(self) -> Notebook:
        """The notebook as it was published: its trace, turned, is this one's."""
        return replace(self, config=WhatIf())

    @property
    def needs(self) -> int:
        """Nothing that would have to be counted: its sizes are the notebook's."""
        return 0

    def snippet(self, trace: Trace, layer: int = 0) -> Snippet:
        """How the Python begins that makes the trace again: the notebook's own draws, in its order."""
        from attention.sources.notebooks import snippets

        return snippets.snippet(self.name, self.sequence, trace)
