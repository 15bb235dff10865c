"""What decides the numbers of a run over many texts: the model, the texts and the options. A run with the same plan gives the same bytes.

`read_info` reads the plan back from a table, which is an untrusted file.
"""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from attention.base.errors import ConfigError, FileError
from attention.corpus.digest import MAX_OFFSET
from attention.metrics.find_rule import FindRule
from attention.metrics.metric import RANDOM, SHUFFLED, Metric, all_metrics

CONTROL_WORDS = {SHUFFLED: "shuffled words", RANDOM: "random repeated tokens"}
"""The controls in words: the words of each text in random order, and random tokens that are repeated once."""
CONTROLS = tuple(CONTROL_WORDS)
METADATA = b"attention_lab"
"""The key of the Parquet metadata that has the content of corpus.json."""
_MAX_TOP, _MAX_CHUNK, _MAX_FINDS = 100, 4096, 16
_MAX_ROWS, _MAX_METRICS = 2**18, 64  # the rows of a table, a row for each head and metric; and its metrics
_MAX_BYTES, _MAX_INTEGER, _MAX_CHARACTERS, _MAX_ITEMS = 2**20, 2**31 - 1, 4096, 2**14
_MAX_MAP = 256  # tokens of the mean map
_INFO = {
    "plan": "dict[str, Any]", "layers": "list[int]", "heads": "list[int]", "metrics": "list[str]", "offsets": "int", "map_texts": "int",
    "read": "dict[str, Any]",
}  # fmt: skip
READ = ("texts", "tokens", "cut", "random")
"""What is counted of the texts that were read."""


@dataclass(frozen=True)
class RunPlan:
    """The plan of a run.

    Attributes:
        model: the name of the model, or its folder.
        model_digest: SHA-256 of its files.
        revision: the revision of the hub that the folder has; may be empty.
        texts_digest: SHA-256 of the texts.
        map_length: the number of tokens of the texts whose mean map is computed; 0: none.
        max_tokens: texts are cut to this number of tokens, with special tokens.
        top: the number of examples for each head and metric.
        controls: some of `CONTROLS`.
        finds: rules such as 'from "it" to "animal"', which become metrics; each in its one form, once.
        seed: of the controls.
        chunk_size: the number of texts in a part.
        versions: the packages that compute the numbers.
        words: what a word is that is shuffled, in words; empty in older runs.
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
    words: str = ""

    def __post_init__(self) -> None:
        """Check the options, and write the rules in their one form.

        Raises:
            ConfigError: one is out of its range, or a rule is none.
        """
        for name, value, low, high in (
            ("The number of tokens", self.max_tokens, 4, 10**6),
            ("The number of examples", self.top, 1, _MAX_TOP),
            ("The number of texts in a chunk", self.chunk_size, 1, _MAX_CHUNK),
        ):
            if not low <= value <= high:
                raise ConfigError(f"{name} is from {low} to {high:,}; got {value:,}: choose one of these.")
        if unknown := [control for control in self.controls if control not in CONTROLS]:
            raise ConfigError(f"A control is {' or '.join(CONTROLS)}; got {unknown[0][:40]!r}: choose one of them.")
        rules = dict.fromkeys(FindRule.parse(text).text for text in self.finds[: _MAX_FINDS + 1])
        if len(rules) > _MAX_FINDS:
            raise ConfigError(f"A run has at most {_MAX_FINDS} find rules; got {len(self.finds)}: ask for fewer.")
        object.__setattr__(self, "finds", tuple(rules))

    @property
    def n_chunks(self) -> int:
        """The number of chunks, and of parts."""
        return -(-self.n_texts // self.chunk_size)

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics of a text, in the order of the table: those that a text has, then the finds."""
        declared = all_metrics().values()
        of_text = tuple(metric for metric in declared if metric.compute is not None and not metric.of_pictures)
        return of_text + tuple(FindRule.parse(text).metric for text in self.finds)

    def limits(self, metric: Metric) -> tuple[float, float]:
        """The ends of the histogram of a metric: those that it declares as numbers; "keys − 1" and the like depend on the text."""
        try:
            return 0.0, float(metric.maximum)
        except ValueError:
            return 0.0, float(self.max_tokens - 1)

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


def read_info(name: str, content: bytes | None) -> dict[str, Any]:
    """The content of corpus.json, with the fields that are known and nothing else.

    Args:
        content: JSON; None if the file has none.

    Raises:
        FileError: it does not describe a run.
    """
    if content is None or len(content) > _MAX_BYTES:
        raise _error(name, f"it has no entry {METADATA.decode()} of at most {_MAX_BYTES:,} bytes")
    try:
        fields = _checked(json.loads(content.decode()), "dict[str, Any]", "the description", name)
    except (ValueError, RecursionError):
        raise _error(name, f"its entry {METADATA.decode()} is no JSON") from None
    info = {key: _field(fields, key, kind, name) for key, kind in _INFO.items()}
    info["plan"] = _plan(info["plan"], name)
    info["read"] = {key: _field(info["read"], key, "int", name, 2**53) for key in READ}
    if "shuffled_texts" in fields:  # not in older runs
        info["shuffled_texts"] = _field(fields, "shuffled_texts", "int", name)
    _check_heads(info, name)
    return info


def _plan(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    plan: dict[str, Any] = {}
    for entry in dataclasses.fields(RunPlan):
        kind = "list[str]" if str(entry.type).startswith("tuple") else str(entry.type)
        plan[entry.name] = _field({"words": "", **fields}, entry.name, kind, name)
    if unknown := [control for control in plan["controls"] if control not in CONTROLS]:
        raise _error(name, f"a control is {' or '.join(CONTROLS)}, not {unknown[0][:40]!r}")
    if not plan["model"] or plan["top"] < 1 or plan["max_tokens"] < 2 or plan["map_length"] > _MAX_MAP:
        raise _error(name, "its plan has no model, or a number out of range")
    return plan


def _check_heads(info: Mapping[str, Any], name: str) -> None:
    """Raises FileError unless the heads and metrics are those of a table."""
    layers, heads, metrics = info["layers"], info["heads"], info["metrics"]
    if not layers or len(layers) != len(heads) or layers != sorted(set(layers)) or min(heads) < 1:
        raise _error(name, "its layers need different numbers in their order, and a head each")
    if not 1 <= len(metrics) <= _MAX_METRICS or len(set(metrics)) != len(metrics) or not all(metrics):
        raise _error(name, f"it needs 1 to {_MAX_METRICS} metrics with different names")
    if sum(heads) * len(metrics) > _MAX_ROWS:
        raise FileError(
            f"{name} has {sum(heads):,} heads and {len(metrics)} metrics; at most {_MAX_ROWS:,} rows are read: run it with fewer metrics."
        )
    if info["offsets"] != MAX_OFFSET:
        raise _error(name, f"its offsets end at {info['offsets']}, not at {MAX_OFFSET}")
    read = info["read"]
    if not 1 <= read["texts"] == info["plan"]["n_texts"] or max(read["cut"], info["map_texts"]) > read["texts"]:
        raise _error(name, "its numbers of texts contradict each other")


def _field(fields: Mapping[str, Any], key: str, kind: str, name: str, most: int = _MAX_INTEGER) -> Any:
    if key not in fields:
        raise _error(name, f"{key} is missing")
    return _checked(fields[key], kind, key, name, most)


def _checked(value: Any, kind: str, key: str, name: str, most: int = _MAX_INTEGER) -> Any:
    """A value of JSON that has a type, given as in an annotation."""
    if kind == "int" and isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most:
        return value
    if kind == "str" and isinstance(value, str) and len(value) <= _MAX_CHARACTERS and _is_plain(value):
        return value
    if kind.startswith("list") and isinstance(value, list) and len(value) <= _MAX_ITEMS:
        return [_checked(item, kind[5:-1], key, name) for item in value]
    if kind == "dict[str, str]" and isinstance(value, dict) and len(value) <= _MAX_ITEMS:
        return {_checked(each, "str", key, name): _checked(item, "str", key, name) for each, item in value.items()}
    if kind == "dict[str, Any]" and isinstance(value, dict):
        return value
    raise _error(name, f"{key} is not what a run writes")


def _is_plain(text: str) -> bool:
    return not any(unicodedata.category(character) in ("Cc", "Cs") for character in text)  # control, surrogate


def _error(name: str, why: str) -> FileError:
    return FileError(f"{name} should describe the run that wrote it, but {why}: use the heads.parquet of a run.")
