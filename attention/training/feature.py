"""What this feature adds to the library."""

from __future__ import annotations

from attention.export.states import State
from attention.features import Feature
from attention.training import trained


def _pack_film(state: State) -> bytes:
    from attention.training.training_views import pack_film

    return pack_film(state)


_INDUCTION = {"source": "trained", "task": "induction", "input": "an owl asked the moon why"}
# fmt: off
_STATES = (
    State(
        "induction", "A trained induction head",
        "A tiny model trained to copy: the second “owl” looks at “asked”, the token after the first “owl”.",
        _INDUCTION, knobs=(), layer=1, view="factors", q=7, k=2),
    State(
        "picture", "A picture",
        "A tiny vision transformer, trained to say the colour of each shape: the word “circle” looks at the patch where the circle is. Click another word, or a patch.",
        {"source": "trained", "task": "shapes"}, knobs=(), q=0, k=7),
    State(
        "film", "How the induction head forms",
        "The same head during training: noise, then a stripe. The loss falls when the stripe appears.",
        _INDUCTION, pack=_pack_film, q=7, k=2),
)
# fmt: on

FEATURE = Feature(name="training", sources=(trained.KIND,), states=_STATES)
