"""Whether a model has what is changed in it, what that needs of other runs, and how it is said."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from attention.errors import ConfigError
from attention.formula.by_hand import UNCHANGED
from attention.formula.intervening import Pass
from attention.formula.intervention import Intervention
from attention.formula.names import WEIGHTS
from attention.formula.patching import Extent, counts

if TYPE_CHECKING:
    from attention.formula.intervening import Run
    from attention.formula.layer import Layer

_LONGEST_OFFER = 300  # characters, in a sentence
T = TypeVar("T")


def prepared(those: tuple[Intervention, ...], order: Sequence[int], unchanged: Run | None, other: Run) -> Pass:
    """The pass that makes these changes, with what it needs of other runs.

    Args:
        those: what is changed.
        order: the layers by their index, in the order in which they run.
        unchanged: the unchanged model, where later attention is frozen.
        other: the other state.

    Raises:
        ConfigError: the other state does not have what is taken.
    """
    found = Pass(those)
    if unchanged is not None and (after := later(order, those)):
        found.unchanged = unchanged(dict.fromkeys(after, True))
    if wanted := takes(order, those):
        found.other = other(wanted)
    return found


def later(order: Sequence[int], those: Iterable[Intervention]) -> Sequence[int]:
    """The layers that run after the first that is changed, by their index."""
    first = min((0 if one.layer is None else order.index(one.layer) for one in those), default=len(order))
    return order[first + 1 :]


def touched(order: Sequence[int], those: Sequence[Intervention], frozen: bool) -> int:
    """In how many layers something is changed, or frozen."""
    found = {at for one in those for at in (order if one.layer is None else (one.layer,))}
    return len(found.union(later(order, those) if frozen else ()))


def takes(order: Sequence[int], those: Iterable[Intervention]) -> dict[int, bool]:
    """The layers that take something from the other state, and whether its weights."""
    found: dict[int, bool] = {}
    for one in (one for one in those if one.take):
        for at in order if one.layer is None else [one.layer]:
            found[at] = found.get(at, False) or one.take == WEIGHTS
    return found


def words(those: Iterable[Intervention], layers: Sequence[Layer], frozen: bool) -> tuple[str, ...]:
    """What is changed, in words: a sentence for each."""
    said = [one.words + _sharing(one, layers) for one in those]
    if said and frozen:
        said.append(f"Later layers attend as in {UNCHANGED} (frozen attention): A as there, V of now.")
    return tuple(said)


def _sharing(one: Intervention, layers: Sequence[Layer]) -> str:
    """Which heads share the keys or values that are taken, where a layer has fewer heads of these."""
    layer = layers[one.layer or 0]
    group = layer.n_heads // layer.sizes.get("kv_head", layer.n_heads)
    if one.head is None or not any(kind.reaches_group(one) for kind in one.kinds) or group == 1:
        return ""
    first = one.head // group * group
    heads = [str(head) for head in range(first, first + group)]
    return f" Heads {', '.join(heads[:-1])} and {heads[-1]} share key head {first // group}, and change together."


def check(those: Iterable[Intervention], layers: Sequence[Extent]) -> None:
    """Looks whether these layers have what is changed, before they run.

    Raises:
        ConfigError: there is no such layer, head or cell.
    """
    for one in those:
        counts("layers", one.layer, len(layers))
        for layer in layers if one.layer is None else [layers[one.layer]]:
            counts(f"heads of {layer.name}", one.head, layer.n_heads)
            for kind in one.kinds:
                kind.check(one, layer)


def other_of(kind: str, other: T | None, came: str) -> T:
    """The other state of a source of that kind; `came` says why it cannot be one, empty where it can.

    Raises:
        ConfigError: there is none, or it cannot be one.
    """
    if other is None:
        raise ConfigError(
            f"What is taken from the other state needs one: give its text (other= in a link, other={kind}(…) in Python), or compare two states."
        )
    if came:
        raise ConfigError(
            f"The other state is of the same model, and takes from no third; this one {came}: choose another."
        )
    return other


def as_many(lengths: Sequence[int], there: Sequence[int], offer: Callable[[], str] = str) -> None:
    """Looks whether the other state has as many tokens.

    Args:
        lengths: of this state's texts.
        there: of the other's.
        offer: a text that would fit; empty where none is known.

    Raises:
        ConfigError: it has not; its sentence offers a text that has.
    """
    if list(there) == list(lengths):
        return
    said = f"such as “{text}”" if 0 < len(text := offer()) <= _LONGEST_OFFER else "a text of as many tokens"
    raise ConfigError(
        f"What is taken from the other state needs as many tokens there; it has {' and '.join(map(str, there))}, "
        f"this one {' and '.join(map(str, lengths))}: give the other state {said}."
    )
