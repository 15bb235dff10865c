"""What a link says, as a source: read by a pure function, or by a page that draws a widget for each knob it is asked for.

It is one long file because what is asked, in which order, and what a link answers to it are read together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from attention.errors import AwaitedError, MatrixError
from attention.formula.config import AttentionConfig
from attention.formula.intervention import read
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice, Places, Range, Whole
from attention.formula.what_if import WhatIf
from attention.sources import Source, knobs
from attention.sources.archive import ENDINGS, quoted
from attention.sources.cutting import SYMBOLS
from attention.sources.divisors import Divisors
from attention.sources.file import File
from attention.sources.link_aliases import with_current_keys
from attention.sources.matrices import Matrices
from attention.sources.model import Model
from attention.sources.notebooks import Notebook
from attention.sources.reading.matrix import Matrix, Stack, of_heads
from attention.sources.reading.text import parse
from attention.sources.trained import Trained
from attention.sources.typed_text import TypedText
from attention.training.plan import Plan
from attention.training.tasks import TASKS


@dataclass(frozen=True)
class Limits:
    """What an operator allows.

    Attributes:
        tokens: of a text; a longer one is cut, and its trace says so.
        characters: of a text.
        d_model: of a token's row, and of d_k and d_v.
        heads: of a layer.
        trace_mb: of all steps; more is refused before it is worked out.
    """

    tokens: int
    characters: int
    d_model: int
    heads: int
    trace_mb: int


class Asked(Protocol):
    """Who gives every knob its value: a link, or a page, whose widgets it draws."""

    limits: Limits

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The value of a knob; `within` where that is narrower than declared, and what it is `fixed` at where it does nothing."""
        ...

    def standing(self, knob: Knob) -> str:
        """What the knob is asked to be, as in a link; empty where nobody asks."""
        ...

    def divisor(self, knob: Knob, within: Divisors, fixed: str) -> int | None:
        """A number of heads, which divides what it must."""
        ...

    def sequence(self, names: Sequence[str]) -> int:
        """Which of several sequences is shown."""
        ...

    def matrices(self, names: Sequence[str]) -> Mapping[str, Any]:
        """The person's own matrices by name; one whose default is empty may be left so."""
        ...

    def file(self, knob: Knob) -> File:
        """The file that a knob names.

        Raises:
            AwaitedError: it is not here.
        """
        ...


def source(asked: Asked) -> Source:
    """The source that the knobs describe; only those that it has are asked for.

    Raises:
        AttentionError: they contradict each other, or a matrix cannot be read.
    """
    chosen = asked.knob(knobs.SOURCE)
    if chosen == "notebook":
        name = asked.knob(knobs.NOTEBOOK)
        return Notebook(name, asked.sequence(Notebook(name).sequences), _what_if(asked, chosen))
    max_bytes = asked.limits.trace_mb * 2**20
    if chosen == "model":
        from attention.models.library import LIBRARY

        name, text, text2 = asked.knob(knobs.MODEL, knobs.models()), asked.knob(knobs.TEXT), asked.knob(knobs.TEXT2)
        words, special = asked.knob(knobs.WORDS), asked.knob(knobs.SPECIAL)
        LIBRARY.allow(name)
        other = asked.knob(knobs.OTHER)
        return Model(
            name, text, text2, _what_if(asked, chosen), words, special, asked.limits.tokens, max_bytes,
            generate=asked.knob(knobs.GENERATE), generate_temperature=asked.knob(knobs.GENERATE_TEMPERATURE),
            generate_seed=asked.knob(knobs.GENERATE_SEED), said=asked.knob(knobs.SAID), predict=Places.of(asked.knob(knobs.PREDICT)),
            interventions=read(asked.knob(knobs.DO)), frozen=asked.knob(knobs.FROZEN),
            other=Model(name, other, text2, max_tokens=asked.limits.tokens, max_bytes=max_bytes) if other.strip() else None,
        )  # fmt: skip
    if chosen == "trained":
        return _trained(asked, chosen)
    if chosen == "file":
        return replace(asked.file(knobs.FILE), config=_what_if(asked, chosen))
    if chosen == "matrices":
        gives = asked.knob(knobs.GIVES)
        labels = asked.knob(knobs.LABELS)
        layer = _config(asked, chosen)
        heads, divisor, valid = (asked.knob(one) for one in (knobs.GIVEN_HEADS, knobs.DIVISOR, knobs.VALID))
        given = asked.matrices((*knobs.GIVEN[gives], *knobs.MORE[gives]))
        names = tuple(labels.split())
        many = max((len(of_heads(one)) for one in given.values() if one), default=1)
        if many > asked.limits.heads:
            raise MatrixError(
                f"There may be at most {asked.limits.heads} heads here; got a stack of {many}: give fewer of them."
            )
        return Matrices(
            **given, tokens=names, config=layer, max_bytes=max_bytes, n_heads=heads, divisor=divisor, valid=valid
        )
    text = asked.knob(knobs.TEXT)
    sequence = asked.sequence(TypedText(text).sequences)
    layer = _config(asked, chosen)
    text2, lowercase, pad = (asked.knob(one) for one in (knobs.TEXT2, knobs.LOWERCASE, knobs.PAD))
    return TypedText(text, layer, text2, lowercase, asked.limits.tokens, sequence, pad, max_bytes)


def _trained(asked: Asked, chosen: str) -> Trained:
    """A tiny model; which controls and sliders there are, and how far `at` may be, depends on its task and its steps."""
    task = TASKS[asked.knob(knobs.TASK)]
    text = asked.knob(replace(knobs.OWN_TEXT, help=f"It reads {task.hint}. Empty: an example.", empty=task.hint))
    seed = asked.knob(knobs.SEED)
    steps = asked.knob(replace(knobs.LEARNING_STEPS, empty=str(task.steps)))
    whole = Plan(task.name, steps=steps or 0)  # counted from picture to picture of its film
    at = asked.knob(knobs.AT, Whole(0, whole.steps, optional=True, step=whole.every))
    control = asked.knob(knobs.CONTROL, knobs.controls_of(task))
    turned = {key: asked.knob(*knobs.slider_of(task, key)) for key in knobs.SLIDERS}
    there = {key: value for key, value in turned.items() if key in {one.key for one in task.sliders}}
    found = Trained(task.name, seed, steps, at, text, control=control, **there)
    those, other, _ = read(asked.knob(knobs.DO)), asked.knob(knobs.OTHER), asked.knob(knobs.SAID)  # the page's alone
    return replace(
        found, config=_what_if(asked, chosen), interventions=those, frozen=asked.knob(knobs.FROZEN),
        other=replace(found, text=other) if other.strip() else None,
    )  # fmt: skip


def _config(asked: Asked, chosen: str) -> AttentionConfig:
    """The knobs of the layer that the `chosen` source has; those above the maps first, since heads must divide d_model."""
    found: dict[str, Any] = {}
    known = {one.name: one for one in knobs.layer_of(chosen)}
    identity = "init" in known and asked.standing(known["init"]) == "identity"
    fixed = {"n_heads": "1", "n_kv_heads": "1", "d_k": "d_model", "d_v": "d_model"} if identity else {}
    for one in sorted(known.values(), key=lambda one: (not one.held, one.place)):
        still = fixed.get(one.name, "")
        if one.name == "n_heads":
            found[one.name] = asked.divisor(one, Divisors.heads(found["d_model"], asked.limits.heads), still)
        elif one.name == "n_kv_heads":
            found[one.name] = asked.divisor(one, Divisors.shared(found["n_heads"]), still)
        else:
            found[one.name] = asked.knob(one, fixed=still)
    return AttentionConfig(**{**found, **({"d_k": None, "d_v": None} if identity else {})})


def _what_if(asked: Asked, chosen: str) -> WhatIf:
    """What is turned of the formula that the `chosen` source brings along."""
    return WhatIf(**{one.name: asked.knob(one) for one in knobs.layer_of(chosen)})


class Link:
    """The knobs as a link, or a state file, says them; `notes` are the sentences on what it got wrong."""

    def __init__(self, texts: Mapping[str, str], limits: Limits) -> None:
        self.limits = limits
        self._texts, notes = with_current_keys(texts)
        self.notes = list(notes)

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """What the link says; the default where it says nothing, or something else than may be."""
        within = within or on_pages(knob, self.limits)
        default = within.nearest(knob.default)
        if knob.key not in self._texts:
            return default
        value, note = knob.read(self._texts[knob.key], within, default)
        if note:
            self.notes.append(note)
        return value

    def standing(self, knob: Knob) -> str:
        """What the link says, as it stands there."""
        return self._texts.get(knob.key, "")

    def divisor(self, knob: Knob, within: Divisors, fixed: str) -> int | None:
        """A number of heads; a default that does not divide what it must becomes the next smaller that does."""
        if not self.standing(knob) and within.nearest(knob.default) != knob.default and not fixed:
            self.notes.append(within.settled(knob.default))
        found: int | None = self.knob(knob, within)
        return found

    def sequence(self, names: Sequence[str]) -> int:
        """Which sequence the link asks for."""
        if len(names) > 1:
            return int(self.knob(knobs.SEQUENCE, Choice(tuple(range(len(names))))))
        self.notes += only_one(self._texts.get(knobs.SEQUENCE.key))
        return 0

    def matrices(self, names: Sequence[str]) -> dict[str, Matrix | Stack]:
        """The matrices of the link.

        Raises:
            AttentionError: one cannot be read, or the link holds only its size.
        """
        defaults = {one.key: one.default for one in knobs.MATRICES}
        texts = {name: self._texts.get(name, defaults[name]) for name in names}
        missing = sizes(self._texts.get(knobs.UPLOADED, ""))
        for name in (name for name in names if name in missing and name not in self._texts):
            raise too_long(name, missing[name])
        return {name: parse(texts[name], SYMBOLS[name]) for name in names if texts[name].strip() or defaults[name]}

    def file(self, knob: Knob) -> File:
        """Nothing: a link has the name and the digest of a file, and never the file.

        Raises:
            AwaitedError: always.
        """
        raise not_here(self.knob(knob))


def source_of(texts: Mapping[str, str], limits: Limits) -> tuple[Source, tuple[str, ...]]:
    """The source that a link describes, and a sentence for each thing that it asks for and cannot have.

    Args:
        texts: what the link says, or a state file, by key.
        limits: what an operator allows.

    Raises:
        AttentionError: the knobs contradict each other, or a matrix cannot be read.
    """
    link = Link(texts, limits)
    return source(link), tuple(link.notes)


def on_pages(knob: Knob, limits: Limits) -> Range:
    """What a knob may be under these limits."""
    return knob.on_pages(asdict(limits))


def only_one(asked: str | None) -> tuple[str, ...]:
    """What is said where a link asks for another sequence than the only one."""
    if asked in (None, "0"):
        return ()
    return (f"The link asks for sequence “{asked}”; there is only sequence 0, which is shown.",)


def sizes(uploaded: str) -> dict[str, str]:
    """The matrices that a link holds only the size of, by name, from what it says of them."""
    found = (one.partition(":") for one in uploaded.split(","))
    return {name: size[:20] for name, _, size in found if name in SYMBOLS}


def too_long(name: str, size: str) -> MatrixError:
    """What is said where a link holds only the size of a matrix."""
    return MatrixError(
        f"{SYMBOLS[name]} ({size.replace('x', ' × ')}) is too long for a link, and this server does not have it: "
        "upload it again, or open a state file that holds it."
    )


def not_here(file: str) -> AwaitedError:
    """What is said where a link names a `file`, as name:digest, or none, and there is no such file."""
    name, _, digest = file.rpartition(":")
    if not name:
        return AwaitedError(
            f"A file with attention that somebody saved ({', '.join(ENDINGS)}): upload it, and every page shows it."
        )
    return AwaitedError(
        f"The link shows the file {quoted(name)} (digest {digest[:8]}…), which is not here: upload it, and it opens as the link says."
    )
