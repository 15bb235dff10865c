"""The former keys of links with their present names: the only table of them, and the only function that reads it.

A link, a state file, the second state of a comparison and the state of a lesson pass through `with_current_keys` where they are read.
The rest of the code knows the present keys alone, so nothing writes a former one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl

from attention.core.name_aliases import current_name

LINK_ALIASES: Mapping[str, str] = {
    "do": "interventions",
    "own": "input",
    "given": "matrix_kind",
    "drop": "dropout_mask",
    "valid": "valid_keys",
    "back": "offset",
    "b": "compare",
    "fit": "autoscale",
    "turn": "editing",
    "share": "normalizer",
    "said": "prefix_len",
}
"""The former keys of links with their present names."""

_TRAINING = re.compile(r"(train_[a-z]+_)(own|back)")  # keys of the page Training: a task, and one of these keys
_QUOTED = {
    ord(character): f"%{ord(character):02X}" for character in "%&+"
}  # the address quotes the rest, and this again


class CurrentKeys(NamedTuple):
    """The texts of a link by their present keys, and a sentence for each key that stands there under both names."""

    texts: dict[str, str]
    notes: tuple[str, ...] = ()


def current_key(key: str) -> str:
    """The present name of a key."""
    if found := _TRAINING.fullmatch(key):
        return f"{found[1]}{LINK_ALIASES[found[2]]}"
    return LINK_ALIASES.get(key, key)


def with_current_keys(texts: Mapping[str, str]) -> CurrentKeys:
    """The texts of a link by their present keys, in their order; where a key stands there under both names, the present one counts.

    The texts that name keys, steps or matrices themselves have their present names too.
    """
    ignored = [key for key in texts if current_key(key) != key and current_key(key) in texts]
    notes = [
        f"The link has both “{key}” and “{current_key(key)}”, two names of one key: “{current_key(key)}” is used."
        for key in ignored
    ]
    current = {current_key(key): text for key, text in texts.items() if key not in ignored}
    for key in ("step", "figure"):
        if key in current:
            current[key] = current_name(current[key])
    for key, separator in (("uploaded", ","), ("present", ".")):
        if key in current:
            current[key] = separator.join(map(_with_current_beginning, current[key].split(separator)))
    if "compare" in current:
        current["compare"], more = _query_with_current_keys(current["compare"])
        notes += more
    return CurrentKeys(current, tuple(notes))


def query(texts: Mapping[str, str]) -> str:
    """A state as the text of one key of a link."""
    return "&".join(f"{key}={text.translate(_QUOTED)}" for key, text in texts.items())


def _with_current_beginning(text: str) -> str:
    """A key, or a key, a colon and more, such as x:512x64."""
    key, colon, more = text.partition(":")
    return f"{current_key(key)}{colon}{more}"


def _query_with_current_keys(text: str) -> tuple[str, tuple[str, ...]]:
    """A query with present keys; one that has no former key stays as it is, to the letter."""
    texts = dict(parse_qsl(text, keep_blank_values=True))
    texts = {key: value for key, value in texts.items() if current_key(key) != "compare"}  # there is no third state
    found = with_current_keys(texts)
    return (text, ()) if found.texts == texts else (query(found.texts), found.notes)
