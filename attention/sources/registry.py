"""All sources, one line of the table for each, and all their knobs, in the order of their keys in links.

Each source declares its own knobs.
"""

from __future__ import annotations

from attention.base.knobs import Choice, Knob
from attention.formula import config
from attention.sources import file_source, matrices, model, typed_text
from attention.sources.file_source import AXES, FILE, TABLE_MEANS
from attention.sources.layer_knobs import FROZEN, INTERVENTIONS, OTHER, PREFIX_LEN, SEQUENCE, TEXT, TEXT2
from attention.sources.matrices import DIVISOR, LABELS, MASK_MEANS, MATRICES, MATRIX_HEADS, MATRIX_KIND, VALID_KEYS
from attention.sources.model import GENERATE, GENERATE_SEED, GENERATE_TEMPERATURE, IMAGE, MODEL, PREDICT, SPECIAL, WORDS
from attention.sources.reader import SourceKind
from attention.sources.typed_text import LOWERCASE, PAD
from attention.training import trained
from attention.training.trained import AT_STEP, CONTROL, SLIDERS, TASK, TASK_INPUT, TRAINING_STEPS
from attention.tutorials import notebook
from attention.tutorials.notebook import NOTEBOOK

SOURCE_KINDS: dict[str, SourceKind] = {
    kind.name: kind
    for kind in (
        typed_text.KIND,
        model.KIND,
        notebook.KIND,
        matrices.KIND,
        file_source.KIND,
        trained.KIND,
    )
}
"""All sources by their names in links, in the order of the menu."""


SOURCES = tuple(SOURCE_KINDS)
"""The names of all sources, as in links."""
SOURCE = Knob("source", "typed text", Choice(SOURCES), "Source", "Where the numbers come from.", order=0)

# fmt: off
KNOBS = (
    SOURCE, MODEL, WORDS, SPECIAL, INTERVENTIONS, FROZEN, OTHER, NOTEBOOK, SEQUENCE, TEXT, TEXT2, GENERATE, GENERATE_TEMPERATURE, GENERATE_SEED, PREFIX_LEN,
    PREDICT, LOWERCASE, PAD, *config.KNOBS, MATRIX_KIND, *MATRICES[:-1], LABELS, MATRIX_HEADS, DIVISOR, VALID_KEYS, FILE, TASK, TASK_INPUT, AT_STEP, CONTROL,
    TRAINING_STEPS, *SLIDERS.values(), IMAGE, MATRICES[-1], MASK_MEANS, AXES, TABLE_MEANS,
)
# fmt: on
"""Every knob that selects or changes the source. The order is that of the keys in a link, so new knobs go to the end."""
