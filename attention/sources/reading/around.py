"""What stands around the numbers of a published matrix: prompts, comments, names, and what NumPy, torch, JAX and TensorFlow print.

Nothing of it is evaluated. What is known is peeled off; what computes, such as `2 *` or `.T`, is refused.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

_MODULES = r"np|numpy|torch(?:\.nn)?|nn|jnp|jax\.numpy|tf|mx\.n[pd]|n[pd]|keras\.ops|ops|d2l|mlx\.core|paddle|cp|cupy"
_MAKERS = (
    r"(?:as)?(?:nd)?array|(?:Device)?Array|[Mm]atrix|(?:to_|convert_to_|_)?tensor|"
    r"(?:Float|Double|Long|Int|Half)?Tensor|EagerTensor|constant|Variable|Parameter"
)
_CALL = rf"(?<![\w.])(?:(?:{_MODULES})\.)?(?:{_MAKERS})\s?"
_CALLS = re.compile(rf"(?:{_CALL}\(\s*){{0,2}}{_CALL}$")
_OPENS = re.compile(r"\(\s*(?=\[)")
_SIZE = r"\(\d+,\s?(?:\d+(?:,\s?\d+)*,?)?\)"

# What is peeled off a text before its brackets are counted: (only where the text has this, pattern, what is put there).
_WRAPPERS: tuple[tuple[str, re.Pattern[str], str], ...] = tuple(
    (needed, re.compile(pattern, re.MULTILINE), put)
    for needed, pattern, put in (
        ("]:", r"^(?:In|Out) ?\[ ?\d* ?\]:", ""),  # Jupyter
        (">>>", r"^\.\.\. (?=.*\S)", ""),  # Python's second line of a statement
        (">>>", rf"^>>> ?(?:\w+ ?= ?)?(?!{_CALL}\()[\w.]+ ?\([^\n]*\[[^\n]*$", ""),  # what it gives comes next
        (">>>", r"^>>> ?([^\W\d]\w*)[ \t]*$", r"\1 ="),
        (">>>", r"^>>> ?", ""),
        ("#>", r"^#> ?", ""),  # what knitr puts before R's output
        ("#", r"(?<![\w\"'#])#(?!#+\w)[^\n\r]*", ""),  # not ##ing, a piece of a word
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
# What code printed, written below it as a comment.
_COMMENTED = re.compile(r"^[ \t]*#[>']?[ \t]?(?:#[ \t])?", re.MULTILINE)
_AFTER = re.compile(
    r"""(?: \s*,\s* (?: \w+\s*=\s* (?: <[^<>]*> | '[^']*' | "[^"]*" | \([^()]*\) | [\w.]+(?:\([^()]*\))? )   # grad_fn=<…>
                      | (?:(?:np|numpy|torch|jnp|tf)\.)? (?:float|double|half|int|long)\d* )
          | \s*\) \.(?:float|double|half|detach|clone|cpu|cuda|numpy|to|astype)\([\w.'"]*(?=\))      # of the same numbers
          | \s*[,;)>}] )* [ \t]*""",
    re.VERBOSE,
)
_ASSIGNED = re.compile(r"(?P<name>.*?)(?<![-+*/@%&|^!<>=])\s*(?:[:=≈]|:=|→|->)\s*[(\s]*")
_WORDS = re.compile(r"[(\s]*(?P<name>(?:[^\W\d][\w.]*(?:\s+[\w.]+)*)?)\s*")
_CALLED = re.compile(r"(?!(?:dict|Matrices)\()\b\w+\([^()]*$")
_CALCULATES = re.compile(r"[-+*/@%^|&~(.,]$")
_ONLY_NUMBERS = re.compile(r"[\d\s.,;eE+…-]*")
_NO_NAMES = {"numpy", "Parameter containing", "return", "print"}
_LONGEST = 500  # characters beside a bracket that a pattern is tried on
_MOST = 20_000  # characters between two matrices


class Before(NamedTuple):
    """What stands before a bracket: what the matrix is called, and the lines that are left out."""

    label: str
    left_out: tuple[str, ...]


def peeled(text: str) -> str:
    """The text without the prompts, comments, sizes and calls that are known to say nothing about the numbers."""
    if "#" in text and not _UNCOMMENTED.search(text):
        text = _COMMENTED.sub("", text)
    for needed, pattern, put in _WRAPPERS:
        if needed[0] in text and needed in text:  # one character is found, or missed, ten times as fast
            text = pattern.sub(put, text)
    kept, at = [], 0
    for opens in islice(_OPENS.finditer(text), _MOST):
        if calls := _CALLS.search(text[max(at, opens.start() - 100) : opens.start()]):
            kept.append(text[at : opens.start() - len(calls[0])])
            at = opens.end()
    return "".join((*kept, text[at:]))


def after(between: str) -> str:
    """What is left of a text behind a bracket, once dtype=…, grad_fn=… and closing parentheses are taken away."""
    match = _AFTER.match(between[:_LONGEST])
    return between[match.end() :] if match else between


def before(text: str) -> Before | None:
    """What a text before a bracket says; None where it is something else than a name, words or lines of their own."""
    if len(text) > _MOST:
        return None
    *above, here = text.splitlines() or [""]
    if text.endswith(("\n", "\r")):
        above, here = [*above, here], ""
    above = [line.strip() for line in above if line.strip(" \t,;)>}")]
    if not all(map(_may_be_left_out, above)):
        return None
    if here.strip(" \t(,;"):
        label = called(here)
        return None if label is None else Before(label, tuple(above))
    if not above:
        return Before("", ())
    *rest, last = above
    label = called(last) if last.endswith((":", "=", "→", "≈")) else None
    if label is not None:
        return Before(label, tuple(rest))
    if last.endswith((":", "=")) or _CALCULATES.search(last):
        return None
    name = re.fullmatch(r"[^\W\d][\w.]*", last)  # an expression whose value follows
    return Before(last if name else "", tuple(rest if name else above))


def called(line: str) -> str | None:
    """The name in `W_q =`, `Weight matrix W_q:` or `W_q`; None where the line is something else."""
    line = line.strip()[-_LONGEST:]
    match = _ASSIGNED.fullmatch(line) or _WORDS.fullmatch(line.removeprefix(",").lstrip())
    if match is None or _CALLED.search(match["name"]):
        return None
    name = re.split(r"[({,=→]|:\s", match["name"])[-1].strip(" \t\"'$*`:[\\")
    return "" if name in _NO_NAMES or name.endswith(("shape", "}")) else name[-40:]


def _may_be_left_out(line: str) -> bool:
    """Whether a line holds no numbers of a matrix: a statement, a sentence, a printed shape."""
    numbers = _ONLY_NUMBERS.fullmatch(line) and re.search(r"\d|\.\.|…", line)
    return not numbers or re.fullmatch(_SIZE, line) is not None
