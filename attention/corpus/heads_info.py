"""The description of a run inside its table, which is also corpus.json: read from an untrusted file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from attention.corpus.digest import MAX_OFFSET
from attention.corpus.run_plan import CONTROLS, RunPlan
from attention.errors import FileError

METADATA = b"attention_lab"
"""The key of the Parquet metadata that has the content of corpus.json."""
MAX_ROWS, MAX_METRICS = 2**18, 64
"""The rows of a table, a row for each head and metric; and its metrics."""
_MAX_BYTES, _MAX_INTEGER, _MAX_CHARACTERS, _MAX_ITEMS = 2**20, 2**31 - 1, 4096, 2**14
_MAX_MAP = 256  # tokens of the mean map
_READ = ("texts", "tokens", "cut", "random")


def read_info(name: str, content: bytes | None) -> dict[str, Any]:
    """The content of corpus.json, with the fields that are known and nothing else.

    Args:
        name: of the file, quoted.
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
    info: dict[str, Any] = {
        "plan": _plan(_field(fields, "plan", "dict[str, Any]", name), name),
        "layers": _field(fields, "layers", "list[int]", name),
        "heads": _field(fields, "heads", "list[int]", name),
        "metrics": _field(fields, "metrics", "list[str]", name),
        "offsets": _field(fields, "offsets", "int", name),
        "map_texts": _field(fields, "map_texts", "int", name),
        "read": {key: _field(_field(fields, "read", "dict[str, Any]", name), key, "int", name, 2**53) for key in _READ},
    }
    _check_heads(info, name)
    return info


def _plan(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The plan of a run."""
    plan: dict[str, Any] = {}
    for entry in dataclasses.fields(RunPlan):
        kind = "list[str]" if str(entry.type).startswith("tuple") else str(entry.type)
        plan[entry.name] = _field(fields, entry.name, kind, name)
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
    if not 1 <= len(metrics) <= MAX_METRICS or len(set(metrics)) != len(metrics) or not all(metrics):
        raise _error(name, f"it needs 1 to {MAX_METRICS} metrics with different names")
    if sum(heads) * len(metrics) > MAX_ROWS:
        raise FileError(
            f"{name} has {sum(heads):,} heads and {len(metrics)} metrics; at most {MAX_ROWS:,} rows are read: run it with fewer metrics."
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
    """Whether a text has neither control characters nor half a surrogate pair."""
    return not any(
        ord(character) < 32 or 127 <= ord(character) < 160 or 0xD800 <= ord(character) < 0xE000 for character in text
    )


def _error(name: str, why: str) -> FileError:
    return FileError(f"{name} should describe the run that wrote it, but {why}: use the heads.parquet of a run.")
