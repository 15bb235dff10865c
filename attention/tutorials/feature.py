"""What this feature adds to the library."""

from __future__ import annotations

from attention.export.states import State
from attention.features import Feature
from attention.formula.names import SCORES
from attention.tutorials import notebook

# fmt: off
_STATES = (
    State(
        "notebook", "A notebook, to the digit",
        "The integers of “The Attention Mechanism from Scratch”: every step can be checked by hand.",
        {"source": "notebook", "notebook": "numpy"}, knobs=("temperature",), view="factors", step=SCORES, q=0, k=2),
)
# fmt: on

FEATURE = Feature(name="tutorials", sources=(notebook.KIND,), states=_STATES)
