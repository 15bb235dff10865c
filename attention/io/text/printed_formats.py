"""The text around the numbers of a published matrix: prompts, comments, names, and the output of NumPy, torch, JAX and TensorFlow.

Nothing is evaluated. Known wrappers are stripped; arithmetic, such as `2 *` or `.T`, is refused.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

_MODULES = r"np|numpy|torch(?:\.nn)?|nn|jnp|jax\.numpy|tf|mx\.n[pd]|n[pd]|keras\.ops|ops|d2l|mlx\.core|paddle|cp|cupy"
_CONSTRUCTORS = (
    r"(?:as)?(?:nd)?array|(?:Device)?Array|[Mm]atrix|(?:to_|convert_to_|_)?tensor|"
    r"(?:Float|Double|Long|Int|Half)?Tensor|EagerTensor|constant|Variable|Parameter"
)
_CALL = rf"(?<![\w.])(?:(?:{_MODULES})\.)?(?:{_CONSTRUCTORS})\s?"
_CALLS = re.compile(rf"(?:{_CALL}\(\s*){{0,2}}{_CALL}$")
_OPENS = re.compile(r"\(\s*(?=\[)")
_SIZE = r"\(\d+,\s?(?:\d+(?:,\s?\d+)*,?)?\)"

# Stripped before the brackets are counted: (a substring that the text must contain, pattern, replacement).
_WRAPPERS: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (required, re.compile(pattern, re.MULTILINE), replacement)
    for required, pattern, replacement in (
        ("]:", r"^(?:In|Out) ?\[ ?\d* ?\]:", ""),  # Jupyter
        (">>>", r"^\.\.\. (?=.*\S)", ""),  # continuation line of a statement
        (
            ">>>",
            rf"^>>> ?(?:\w+ ?= ?)?(?!{_CALL}\()[\w.]+ ?\([^\n]*\[[^\n]*$",
            "",
        ),  # an expression whose output follows
        (">>>", r"^>>> ?([^\W\d]\w*)[ \t]*$", r"\1 ="),
        (">>>", r"^>>> ?", ""),
        ("#>", r"^#> ?", ""),  # the prefix of R output in knitr
        ("#", r"(?<![\w\"'#])#(?!#+\w)[^\n\r]*", ""),  # not ##ing, a subword
        ("←", r"←[^\n\r]*", ""),
        ("torch.Size", r"torch\.Size\(\[[\d, ]*\]\)", ""),
        ("[", r"(?<=\w)\[[\w:'\"+*-]{0,40}(?:, ?[\w:'\"+*-]{1,40}){0,5}\]", ""),  # K.shape[1], x[:, 0]
        (" of size ", r"\[torch\.\w+ of size [\dx]+(?: \(GPU \d+\))?\]", ""),  # torch before 0.4
        ("[,1]", r"^\s*(?:\[,\d+\][ \t]*)+$", ""),  # R
        ("[1,]", r"^\s*\[\d+,\](?=[ \t]+[-+.\d])", ""),
        (" rows x ", r"\[\d+ rows x \d+ columns\]", ""),  # pandas
        ("[", rf"{_SIZE}[\s,]{{0,40}}(?={_CALL}\(|\[\[)", ""),  # ((3, 3), array(…
    )
)
_UNCOMMENTED = re.compile(r"^[ \t]*[^\s#]", re.MULTILINE)
# Output of code in a comment below it.
_COMMENTED = re.compile(r"^[ \t]*#[>']?[ \t]?(?:#[ \t])?", re.MULTILINE)
_SUFFIX = re.compile(
    r"""(?: \s*,\s* (?: \w+\s*=\s* (?: <[^<>]*> | '[^']*' | "[^"]*" | \([^()]*\) | [\w.]+(?:\([^()]*\))? )   # grad_fn=<…>
                      | (?:(?:np|numpy|torch|jnp|tf)\.)? (?:float|double|half|int|long)\d* )
          | \s*\) \.(?:float|double|half|detach|clone|cpu|cuda|numpy|to|astype)\([\w.'"]*(?=\))      # keeps the numbers
          | \s*[,;)>}] )* [ \t]*""",
    re.VERBOSE,
)
_ASSIGNMENT = re.compile(r"(?P<name>.*?)(?<![-+*/@%&|^!<>=])\s*(?:[:=≈]|:=|→|->)\s*[(\s]*")
_WORDS = re.compile(r"[(\s]*(?P<name>(?:[^\W\d][\w.]*(?:\s+[\w.]+)*)?)\s*")
_OTHER_CALL = re.compile(r"(?!(?:dict|Matrices)\()\b\w+\([^()]*$")
_OPERATOR_AT_END = re.compile(r"[-+*/@%^|&~(.,]$")
_ONLY_NUMBERS = re.compile(r"[\d\s.,;eE+…-]*")
_NOT_NAMES = {"numpy", "Parameter containing", "return", "print"}
_MAX_CONTEXT = 500  # characters beside a bracket that patterns search
_MAX_BETWEEN = 20_000  # characters between two matrices


class Prefix(NamedTuple):
    """The text before a bracket: the name of the matrix, and the lines that are left out."""

    label: str
    ignored_lines: tuple[str, ...]


def strip_wrappers(text: str) -> str:
    """The text without the prompts, comments, sizes and calls that do not affect the numbers."""
    if "#" in text and not _UNCOMMENTED.search(text):
        text = _COMMENTED.sub("", text)
    for required, pattern, replacement in _WRAPPERS:
        if required[0] in text and required in text:  # the check of one character is ten times as fast
            text = pattern.sub(replacement, text)
    parts, position = [], 0
    for opening in islice(_OPENS.finditer(text), _MAX_BETWEEN):
        if calls := _CALLS.search(text[max(position, opening.start() - 100) : opening.start()]):
            parts.append(text[position : opening.start() - len(calls[0])])
            position = opening.end()
    return "".join((*parts, text[position:]))


def strip_suffix(between: str) -> str:
    """The rest of the text after a bracket, without dtype=…, grad_fn=… and closing parentheses."""
    match = _SUFFIX.match(between[:_MAX_CONTEXT])
    return between[match.end() :] if match else between


def parse_prefix(text: str) -> Prefix | None:
    """The name and the ignored lines in a text before a bracket; None if it has anything else, such as numbers or arithmetic."""
    if len(text) > _MAX_BETWEEN:
        return None
    *above, last_line = text.splitlines() or [""]
    if text.endswith(("\n", "\r")):
        above, last_line = [*above, last_line], ""
    above = [line.strip() for line in above if line.strip(" \t,;)>}")]
    if not all(map(_is_text, above)):
        return None
    if last_line.strip(" \t(,;"):
        label = label_in(last_line)
        return None if label is None else Prefix(label, tuple(above))
    if not above:
        return Prefix("", ())
    *other_lines, nearest_line = above
    label = label_in(nearest_line) if nearest_line.endswith((":", "=", "→", "≈")) else None
    if label is not None:
        return Prefix(label, tuple(other_lines))
    if nearest_line.endswith((":", "=")) or _OPERATOR_AT_END.search(nearest_line):
        return None
    name = re.fullmatch(r"[^\W\d][\w.]*", nearest_line)  # an expression whose output follows
    return Prefix(nearest_line if name else "", tuple(other_lines if name else above))


def label_in(line: str) -> str | None:
    """The name in `W_q =`, `Weight matrix W_q:` or `W_q`; None if the line is something else."""
    line = line.strip()[-_MAX_CONTEXT:]
    match = _ASSIGNMENT.fullmatch(line) or _WORDS.fullmatch(line.removeprefix(",").lstrip())
    if match is None or _OTHER_CALL.search(match["name"]):
        return None
    name = re.split(r"[({,=→]|:\s", match["name"])[-1].strip(" \t\"'$*`:[\\")
    return "" if name in _NOT_NAMES or name.endswith(("shape", "}")) else name[-40:]


def _is_text(line: str) -> bool:
    """Whether a line has no numbers of a matrix: a statement, a sentence, a printed shape."""
    numbers = _ONLY_NUMBERS.fullmatch(line) and re.search(r"\d|\.\.|…", line)
    return not numbers or re.fullmatch(_SIZE, line) is not None
