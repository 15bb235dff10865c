"""What is asked of a real model: which it is, what it reads and says, what is changed in it, and how much memory that may take."""

from __future__ import annotations

from dataclasses import dataclass

from attention.formula.intervention import Intervention
from attention.formula.what_if import WhatIf


@dataclass(frozen=True)
class ModelOptions:
    """The fields of a `Model`.

    Attributes:
        name: a folder, a name from the operator's list, or a hub id.
        text: what it reads.
        text2: of a model with an encoder and a decoder, what the decoder reads; empty: what the model itself says, token by token
            the likeliest, at most `MOST_GENERATED`.
        config: what a hand has turned of its formula, in every layer that is looked at; nothing in the model itself changes.
        words: whether pieces of a word are one: weights summed over keys, averaged over queries.
        special: what becomes of special tokens such as [CLS], one of `attention.formula.merging.SPECIAL`.
        max_tokens: longer texts are cut there, or at the model's own limit, and the trace's notes say so.
        max_bytes: of all steps of all layers together; more is refused before it is worked out.
        generate: how many tokens it says itself after the text, at most `MOST_GENERATED`.
        generate_temperature: 0: the likeliest token each time; otherwise drawn, from the softmax of the logits divided by it.
        generate_seed: of what is drawn; of the same seed fewer tokens are the beginning of more.
        said: so many of these tokens are read: the text as it was then; None: all.
        predict: the positions at which it is asked what it says; none: at the end of the text, where each token was said, or at each
            mask.
        interventions: what is changed of heads inside the model, before all that follows is made.
        frozen: whether the layers after the first change attend as in the unchanged model: A as there, V of now.
        other: the state that an intervention takes something from: the same model with a text of as many tokens.
    """

    name: str
    text: str
    text2: str = ""
    config: WhatIf = WhatIf()
    words: bool = False
    special: str = "show"
    max_tokens: int = 2048
    max_bytes: int = 2**33
    generate: int = 0
    generate_temperature: float = 0.0
    generate_seed: int = 0
    said: int | None = None
    predict: tuple[int, ...] = ()
    interventions: tuple[Intervention, ...] = ()
    frozen: bool = False
    other: ModelOptions | None = None
