"""Two runs of one model on texts of different lengths: corresponding tokens are patched, the others keep their values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from attention.base.errors import ConfigError
from attention.base.tokens import label
from attention.explanation.alignment import align
from attention.patching.forward import Activations, AlignedPositions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attention.models.loaded import LoadedModel
    from attention.models.text_inputs import TextInputs

MAX_NAMED = 24
"""How many tokens without a partner are listed by name."""


def check(lengths: Sequence[int], other_lengths: Sequence[int], with_weights: bool) -> None:
    """Raise an error if runs of these lengths cannot be aligned.

    Raises:
        ConfigError: weights are patched, or one run has a second text and the other none.
    """
    if with_weights:
        raise ConfigError(
            "Weights have a row and a column for each token, and are patched only between texts of the same number of tokens; "
            f"the other has {' and '.join(map(str, other_lengths))}, this one {' and '.join(map(str, lengths))}: "
            "patch the query, key, value or head output instead."
        )
    if len(lengths) != len(other_lengths):
        raise ConfigError(
            f"Both states need the same number of texts; the other has {len(other_lengths)}, this one {len(lengths)}: "
            "give both a second text, or none."
        )


def at_aligned_positions(
    loaded: LoadedModel, inputs: TextInputs, other_inputs: TextInputs, activations: Mapping[int, Activations]
) -> Mapping[int, Activations]:
    """The activations of the other run, by layer, with their positions in this run."""
    from attention.models.forward_pass import ReadableTexts

    here, there = (ReadableTexts(loaded, ids, 0) for ids in (inputs, other_inputs))
    result = {}
    for layer, activation in activations.items():
        name = loaded.sites_by_layer[layer].name
        queries, keys = (
            _aligned_positions(*tokens) for tokens in zip(here.of_site(name), there.of_site(name), strict=True)
        )
        result[layer] = replace(activation, queries=queries, keys=keys)
    return result


def _aligned_positions(here: tuple[str, ...], there: tuple[str, ...]) -> AlignedPositions:
    """The positions of the tokens that have exactly one partner, as Compare aligns them; a word in other pieces has none."""
    pairs = [(group.a[0], group.b[0]) for group in align(here, there).groups if group.is_one_to_one]
    return AlignedPositions(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


def sentences(loaded: LoadedModel, inputs: TextInputs, other_inputs: TextInputs) -> tuple[str, ...]:
    """A sentence for each text that has another number of tokens in the other run: which of its tokens are patched."""
    from attention.models.forward_pass import ReadableTexts

    texts = (ReadableTexts(loaded, ids, 0).texts for ids in (inputs, other_inputs))
    return tuple(describe(*pair) for pair in zip(*texts, strict=False) if len(pair[0]) != len(pair[1]))


def describe(here: tuple[str, ...], there: tuple[str, ...]) -> str:
    """Which tokens of a text are patched from another text, in a sentence."""
    patched = set(_aligned_positions(here, there).here)
    rest = [f"{i} {label(token, 40, escape=False)}" for i, token in enumerate(here) if i not in patched]
    more = f" and {len(rest) - MAX_NAMED} more" if len(rest) > MAX_NAMED else ""
    verb = "keeps its" if len(rest) == 1 else "keep their"
    own = f"; {', '.join(rest[:MAX_NAMED])}{more} {verb} own values" if rest else ""
    how = align(here, there).description
    return f"Patches act at {len(patched)} of {len(here)} tokens, those with a partner in the other state's {len(there)} tokens ({how}){own}."
