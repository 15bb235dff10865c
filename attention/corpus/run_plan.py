"""What decides the numbers of a run over many texts: the model, the texts and the options; a run with the same plan gives the same bytes."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from attention.analysis.metrics.find_rule import FindRule
from attention.analysis.metrics.metric import METRICS, Metric
from attention.errors import ConfigError, FileError

SHUFFLED, RANDOM = "shuffled", "random"
CONTROLS = (SHUFFLED, RANDOM)
"""The controls: the words of each text in random order, and random tokens that are repeated once."""

MAX_TOP, MAX_CHUNK, MAX_FINDS = 100, 4096, 16


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run.

    Attributes:
        model: the name of the model, or its folder.
        model_digest: SHA-256 of its files.
        revision: the revision of the hub that the folder has; may be empty.
        dtype: the type of its numbers.
        n_texts: the number of texts.
        texts_digest: SHA-256 of the texts.
        map_length: the number of tokens of the texts whose mean map is computed; 0: none.
        max_tokens: texts are cut to this number of tokens, with special tokens.
        top: the number of examples for each head and metric.
        controls: some of `CONTROLS`.
        finds: rules such as 'from "it" to "animal"', which become metrics; each in its one form, once.
        seed: of the controls.
        chunk_size: the number of texts in a part.
        versions: the packages that compute the numbers.
    """

    model: str
    model_digest: str
    revision: str
    dtype: str
    n_texts: int
    texts_digest: str
    map_length: int
    max_tokens: int = 256
    top: int = 20
    controls: tuple[str, ...] = CONTROLS
    finds: tuple[str, ...] = ()
    seed: int = 0
    chunk_size: int = 128
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the options, and write the rules in their one form.

        Raises:
            ConfigError: one is out of its range, or a rule is none.
        """
        for name, value, low, high in (
            ("The number of tokens", self.max_tokens, 4, 10**6),
            ("The number of examples", self.top, 1, MAX_TOP),
            ("The number of texts in a chunk", self.chunk_size, 1, MAX_CHUNK),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{name} is from {low} to {high:,}; got {value:,}: choose one of these.")
        if unknown := [control for control in self.controls if control not in CONTROLS]:
            raise ConfigError(f"A control is {' or '.join(CONTROLS)}; got {unknown[0][:40]!r}: choose one of them.")
        rules = dict.fromkeys(FindRule.parse(text).text for text in self.finds[: MAX_FINDS + 1])
        if len(rules) > MAX_FINDS:
            raise ConfigError(f"A run has at most {MAX_FINDS} find rules; got {len(self.finds)}: ask for fewer.")
        object.__setattr__(self, "finds", tuple(rules))

    @property
    def n_chunks(self) -> int:
        """The number of chunks, and of parts."""
        return -(-self.n_texts // self.chunk_size)

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of a text, in the order of the table: those of `METRICS` that a text has, then the finds."""
        of_text = tuple(metric for metric in METRICS if metric.compute is not None and not metric.of_pictures)
        return of_text + tuple(FindRule.parse(text).metric for text in self.finds)

    def to_json(self) -> str:
        """The plan as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str, name: str = "plan.json") -> RunPlan:
        """The plan that `to_json` wrote.

        Raises:
            FileError: it is none.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            for key in ("controls", "finds"):
                fields[key] = tuple(fields[key])
            return cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise FileError(
                f"{name} should be the plan of a run of attention.corpus; it cannot be read: choose another folder."
            ) from error

    def difference(self, other: RunPlan) -> str:
        """The first field in which two plans differ, in words; empty if they are equal."""
        chosen_first = sorted(dataclasses.fields(self), key=lambda entry: entry.name == "map_length")
        for entry in chosen_first:  # the length of the map follows from other fields
            mine, theirs = getattr(self, entry.name), getattr(other, entry.name)
            if mine != theirs:
                return f"{entry.name.replace('_', ' ')} {str(theirs)[:60]} instead of {str(mine)[:60]}"
        return ""
