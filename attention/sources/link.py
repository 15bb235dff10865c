"""A link as a source: one function reads the knobs of a source, from a link or from a page that draws a widget for each knob.

The file is long because the knobs, the order in which they are read, and the answers of a link belong together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

from attention.core.config import AttentionConfig
from attention.core.override import Override
from attention.errors import AwaitedError, MatrixError
from attention.io.arrays import EXTENSIONS, quote
from attention.io.text.matrix import Matrix, Stack, as_stack
from attention.io.text.matrix_text import parse_matrix
from attention.params.input_limits import Limits
from attention.params.knob import Knob
from attention.params.ranges import Choice, Integer, PositionList, Range
from attention.patching.intervention import parse_codes
from attention.sources import Source, knobs
from attention.sources.divisors import Divisors
from attention.sources.file import File
from attention.sources.link_aliases import with_current_keys
from attention.sources.matrices import Matrices
from attention.sources.model import Model
from attention.sources.notebooks import Notebook
from attention.sources.split_heads import SYMBOLS
from attention.sources.trained import Trained
from attention.sources.typed_text import TypedText
from attention.training.plan import Plan
from attention.training.tasks import TASKS


class ParameterReader(Protocol):
    """Returns the value of every knob: from a link, or from the widgets of a page."""

    limits: Limits

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The value of a knob.

        Args:
            knob: the knob.
            within: a range narrower than the declared one.
            fixed: the value to display where the knob has no effect.
        """
        ...

    def raw_value(self, knob: Knob) -> str:
        """The raw text of the knob, as in a link; empty where it is not set."""
        ...

    def divisor(self, knob: Knob, within: Divisors, fixed: str) -> int | None:
        """A number of heads, limited to the divisors in `within`."""
        ...

    def sequence(self, names: Sequence[str]) -> int:
        """The index of the sequence to show."""
        ...

    def matrices(self, names: Sequence[str]) -> Mapping[str, Any]:
        """The user's matrices by name; a matrix whose default is empty may be absent."""
        ...

    def file(self, knob: Knob) -> File:
        """The file that a knob names.

        Raises:
            AwaitedError: the file has not been uploaded.
        """
        ...


def read_source(reader: ParameterReader) -> Source:
    """The source that the knobs describe. Only the knobs of that source are read.

    Raises:
        AttentionError: the knobs contradict each other, or a matrix cannot be read.
    """
    source_name = reader.knob(knobs.SOURCE)
    if source_name == "notebook":
        name = reader.knob(knobs.NOTEBOOK)
        return Notebook(name, reader.sequence(Notebook(name).sequences), _override(reader, source_name))
    max_bytes = reader.limits.trace_mb * 2**20
    if source_name == "model":
        from attention.models.library import LIBRARY

        name, text, text2 = (
            reader.knob(knobs.MODEL, knobs.model_range()),
            reader.knob(knobs.TEXT),
            reader.knob(knobs.TEXT2),
        )
        merge_words, special = reader.knob(knobs.WORDS), reader.knob(knobs.SPECIAL)
        LIBRARY.allow(name)
        other_text = reader.knob(knobs.OTHER)
        return Model(
            name, text, text2, _override(reader, source_name), merge_words, special, reader.limits.tokens, max_bytes,
            generate=reader.knob(knobs.GENERATE), generate_temperature=reader.knob(knobs.GENERATE_TEMPERATURE),
            generate_seed=reader.knob(knobs.GENERATE_SEED), prefix_len=reader.knob(knobs.PREFIX_LEN), predict=PositionList.of(reader.knob(knobs.PREDICT)),
            interventions=parse_codes(reader.knob(knobs.INTERVENTIONS)), frozen=reader.knob(knobs.FROZEN),
            other=Model(name, other_text, text2, max_tokens=reader.limits.tokens, max_bytes=max_bytes) if other_text.strip() else None,
        )  # fmt: skip
    if source_name == "trained":
        return _trained(reader, source_name)
    if source_name == "file":
        return replace(reader.file(knobs.FILE), config=_override(reader, source_name))
    if source_name == "matrices":
        kind = reader.knob(knobs.MATRIX_KIND)
        labels = reader.knob(knobs.LABELS)
        config = _config(reader, source_name)
        n_heads, divisor, valid = (reader.knob(knob) for knob in (knobs.MATRIX_HEADS, knobs.DIVISOR, knobs.VALID_KEYS))
        matrices = reader.matrices((*knobs.MATRIX_FIELDS[kind], *knobs.OPTIONAL_MATRIX_FIELDS[kind]))
        tokens = tuple(labels.split())
        stack_size = max((len(as_stack(matrix)) for matrix in matrices.values() if matrix), default=1)
        if stack_size > reader.limits.heads:
            raise MatrixError(
                f"This server allows at most {reader.limits.heads} heads; got a stack of {stack_size}: provide fewer matrices."
            )
        return Matrices(
            **matrices, tokens=tokens, config=config, max_bytes=max_bytes, n_heads=n_heads, divisor=divisor, valid=valid
        )
    text = reader.knob(knobs.TEXT)
    sequence = reader.sequence(TypedText(text).sequences)
    config = _config(reader, source_name)
    text2, lowercase, pad = (reader.knob(knob) for knob in (knobs.TEXT2, knobs.LOWERCASE, knobs.PAD))
    return TypedText(text, config, text2, lowercase, reader.limits.tokens, sequence, pad, max_bytes)


def _trained(reader: ParameterReader, source_name: str) -> Trained:
    """A tiny model. Its task and its number of steps decide which controls and sliders exist, and the range of `at`."""
    task = TASKS[reader.knob(knobs.TASK)]
    text = reader.knob(
        replace(knobs.TASK_INPUT, help=f"It reads {task.hint}. Empty: an example.", placeholder=task.hint)
    )
    seed = reader.knob(knobs.SEED)
    steps = reader.knob(replace(knobs.TRAINING_STEPS, placeholder=str(task.steps)))
    plan = Plan(task.name, steps=steps or 0)  # for the range and the increment of `at`
    at = reader.knob(knobs.AT_STEP, Integer(0, plan.steps, optional=True, step=plan.every))
    control = reader.knob(knobs.CONTROL, knobs.control_range(task))
    sliders = {key: reader.knob(*knobs.slider_for_task(task, key)) for key in knobs.SLIDERS}
    available = {key: value for key, value in sliders.items() if key in {slider.key for slider in task.sliders}}
    trained = Trained(task.name, seed, steps, at, text, control=control, **available)
    interventions, other = parse_codes(reader.knob(knobs.INTERVENTIONS)), reader.knob(knobs.OTHER)
    _ = reader.knob(knobs.PREFIX_LEN)  # only the page uses it
    return replace(
        trained, config=_override(reader, source_name), interventions=interventions, frozen=reader.knob(knobs.FROZEN),
        other=replace(trained, text=other) if other.strip() else None,
    )  # fmt: skip


def _config(reader: ParameterReader, source_name: str) -> AttentionConfig:
    """The config of the layer knobs of a source. Knobs on the page come before those in the sidebar, since heads must divide d_model."""
    values: dict[str, Any] = {}
    declared = {knob.name: knob for knob in knobs.layer_knobs(source_name)}
    identity = "init" in declared and reader.raw_value(declared["init"]) == "identity"
    fixed_values = {"n_heads": "1", "n_kv_heads": "1", "d_k": "d_model", "d_v": "d_model"} if identity else {}
    for knob in sorted(declared.values(), key=lambda knob: (not knob.inline, knob.order)):
        fixed_value = fixed_values.get(knob.name, "")
        if knob.name == "n_heads":
            values[knob.name] = reader.divisor(
                knob, Divisors.heads(values["d_model"], reader.limits.heads), fixed_value
            )
        elif knob.name == "n_kv_heads":
            values[knob.name] = reader.divisor(knob, Divisors.shared(values["n_heads"]), fixed_value)
        else:
            values[knob.name] = reader.knob(knob, fixed=fixed_value)
    return AttentionConfig(**{**values, **({"d_k": None, "d_v": None} if identity else {})})


def _override(reader: ParameterReader, source_name: str) -> Override:
    """The override of the formula that comes with the source."""
    return Override(**{knob.name: reader.knob(knob) for knob in knobs.layer_knobs(source_name)})


class LinkReader:
    """Reads the knobs from a link or a state file; `notes` collects a sentence for each value that was replaced."""

    def __init__(self, texts: Mapping[str, str], limits: Limits) -> None:
        self.limits = limits
        self._texts, notes = with_current_keys(texts)
        self.notes = list(notes)

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The value in the link; the default where the link has none, or one outside the range."""
        within = within or page_range(knob, self.limits)
        default = within.nearest(knob.default)
        if knob.key not in self._texts:
            return default
        value, note = knob.read(self._texts[knob.key], within, default)
        if note:
            self.notes.append(note)
        return value

    def raw_value(self, knob: Knob) -> str:
        """The raw text in the link."""
        return self._texts.get(knob.key, "")

    def divisor(self, knob: Knob, within: Divisors, fixed: str) -> int | None:
        """A number of heads; a default that does not divide is replaced by the next smaller divisor."""
        if not self.raw_value(knob) and within.nearest(knob.default) != knob.default and not fixed:
            self.notes.append(within.adjusted_note(knob.default))
        divisor: int | None = self.knob(knob, within)
        return divisor

    def sequence(self, names: Sequence[str]) -> int:
        """The index of the sequence in the link."""
        if len(names) > 1:
            return int(self.knob(knobs.SEQUENCE, Choice(tuple(range(len(names))))))
        self.notes += single_sequence_notes(self._texts.get(knobs.SEQUENCE.key))
        return 0

    def matrices(self, names: Sequence[str]) -> dict[str, Matrix | Stack]:
        """The matrices in the link.

        Raises:
            AttentionError: a matrix cannot be read, or the link has only its size.
        """
        defaults = {knob.key: knob.default for knob in knobs.MATRICES}
        texts = {name: self._texts.get(name, defaults[name]) for name in names}
        missing = uploaded_sizes(self._texts.get(knobs.UPLOADED, ""))
        for name in (name for name in names if name in missing and name not in self._texts):
            raise matrix_too_long_error(name, missing[name])
        return {
            name: parse_matrix(texts[name], SYMBOLS[name]) for name in names if texts[name].strip() or defaults[name]
        }

    def file(self, knob: Knob) -> File:
        """Always raises: a link has the name and the digest of a file, never its content.

        Raises:
            AwaitedError: always.
        """
        raise missing_file_error(self.knob(knob))


def source_of(texts: Mapping[str, str], limits: Limits) -> tuple[Source, tuple[str, ...]]:
    """The source that a link describes, and a sentence for each value that was replaced.

    Args:
        texts: the values of a link or a state file, by key.
        limits: the operator's limits.

    Raises:
        AttentionError: the knobs contradict each other, or a matrix cannot be read.
    """
    link = LinkReader(texts, limits)
    return read_source(link), tuple(link.notes)


def page_range(knob: Knob, limits: Limits) -> Range:
    """The range of a knob under these limits."""
    return knob.on_pages(asdict(limits))


def single_sequence_notes(index: str | None) -> tuple[str, ...]:
    """The note for a link that names another sequence where there is only one."""
    if index in (None, "0"):
        return ()
    return (f"The link asks for sequence “{index}”; there is only sequence 0, which is shown.",)


def uploaded_sizes(uploaded: str) -> dict[str, str]:
    """The sizes of the matrices that are too long for a link, by name, from the value of `uploaded`."""
    entries = (entry.partition(":") for entry in uploaded.split(","))
    return {name: size[:20] for name, _, size in entries if name in SYMBOLS}


def matrix_too_long_error(name: str, size: str) -> MatrixError:
    """The error for a matrix of which a link has only the size."""
    return MatrixError(
        f"{SYMBOLS[name]} ({size.replace('x', ' × ')}) is too long for a link, and this server does not have it: "
        "upload it again, or open a state file that holds it."
    )


def missing_file_error(file: str) -> AwaitedError:
    """The error for a `file` (name:digest, or empty) that has not been uploaded."""
    name, _, digest = file.rpartition(":")
    if not name:
        return AwaitedError(
            f"A file with saved attention ({', '.join(EXTENSIONS)}): upload it, and every page shows it."
        )
    return AwaitedError(
        f"The link shows the file {quote(name)} (digest {digest[:8]}…), which is not on this server: upload it to open the link."
    )
