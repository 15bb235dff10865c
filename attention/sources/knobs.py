"""All knobs of the sources, in the order of their keys in links. Each source declares its knobs in `attention.sources.kinds`."""

from __future__ import annotations

from attention.core import config
from attention.params.knob import Knob
from attention.params.ranges import Choice
from attention.sources.kinds import SOURCE_KINDS
from attention.sources.kinds.file_source import FILE
from attention.sources.kinds.matrices_source import DIVISOR, LABELS, MATRICES, MATRIX_HEADS, MATRIX_KIND, VALID_KEYS
from attention.sources.kinds.model_source import (
    GENERATE,
    GENERATE_SEED,
    GENERATE_TEMPERATURE,
    IMAGE,
    MODEL,
    PREDICT,
    SPECIAL,
    WORDS,
)
from attention.sources.kinds.notebook_source import NOTEBOOK
from attention.sources.kinds.shared_knobs import FROZEN, INTERVENTIONS, OTHER, PREFIX_LEN, SEQUENCE, TEXT, TEXT2
from attention.sources.kinds.trained_source import AT_STEP, CONTROL, SLIDERS, TASK, TASK_INPUT, TRAINING_STEPS
from attention.sources.kinds.typed_text_source import LOWERCASE, PAD

SOURCES = tuple(SOURCE_KINDS)
"""The names of all sources, as in links."""
SOURCE = Knob("source", "typed text", Choice(SOURCES), "Source", "Where the numbers come from.", order=0)

# fmt: off
KNOBS = (
    SOURCE, MODEL, WORDS, SPECIAL, INTERVENTIONS, FROZEN, OTHER, NOTEBOOK, SEQUENCE, TEXT, TEXT2, GENERATE, GENERATE_TEMPERATURE, GENERATE_SEED, PREFIX_LEN,
    PREDICT, LOWERCASE, PAD, *config.KNOBS, MATRIX_KIND, *MATRICES, LABELS, MATRIX_HEADS, DIVISOR, VALID_KEYS, FILE, TASK, TASK_INPUT, AT_STEP, CONTROL,
    TRAINING_STEPS, *SLIDERS.values(), IMAGE,
)
# fmt: on
"""Every knob that selects or changes the source. The order is that of the keys in a link, so new knobs go to the end."""
