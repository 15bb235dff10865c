"""Sequences of amino acids: from what users paste, such as FASTA, to the letters that a model reads."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from attention.base.errors import TextError
from attention.base.printed import plural
from attention.files.archives import quote
from attention.media import Residues

_AMINO_ACIDS = frozenset("ACDEFGHIKLMNPQRSTVWY")
_OTHERS = frozenset("BJOUXZ.-*|")
"""Letters for several amino acids (B, J, Z), any (X) or rare ones (O, U), gaps of alignments, the end of a translated gene, and a break between chains."""
_END = "*"

UBIQUITIN = "MQIFVKTLTGKTITLEVEPSDTIENVKAKIQDKEGIPPDQQRLIFAGKQLEDGRTLSDYNIQKESTLHLVLRLRGG"
"""Human ubiquitin, UniProt P0CG48, residues 1 to 76; its first contacts in space are those of the hairpin from residue 1 to 17."""


def is_alphabet(letters: Collection[str]) -> bool:
    """Whether the pieces of a vocabulary are the letters of amino acids, and nothing else."""
    return _AMINO_ACIDS <= {*letters} <= _AMINO_ACIDS | _OTHERS


def read(text: str, tokenizer: Any) -> tuple[list[str], list[str]]:
    """The residues of a sequence as letters of a tokenizer, and a sentence if the text has more than these.

    A header line of FASTA, comments, line breaks, blanks, numbers and the * at the end of a translated gene are left out, and letters in
    lower case are capital ones. The tokenizer's mask, such as <mask>, stands for a residue.

    Source: NCBI, "BLAST topics: FASTA" (the format and its letters, which are those of IUPAC).

    Raises:
        TextError: there are several sequences, no residue, or a letter that the tokenizer does not have.
    """
    mask = str(tokenizer.mask_token or "")
    known = {letter for piece in tokenizer.get_vocab() if len(letter := piece.lstrip("▁Ġ")) == 1}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    headers, comments = ([line for line in lines if line[0] == sign] for sign in ">;")
    body = [line for line in lines if line[0] not in ">;"]
    if len(headers) > 1 or (headers and lines.index(headers[0]) > len(comments)):
        raise TextError(
            f"A model reads one sequence; got {plural(1 + len(headers[1:]) + (lines[0] != headers[0]), 'sequence')} with the header lines "
            f"{', '.join(quote(line[:40]) for line in headers[:3])}: give one of them."
        )
    parts = re.findall(f"{re.escape(mask)}|." if mask else ".", "".join(body))
    letters = [part if part == mask else part.upper() for part in parts if not (part.isspace() or part.isdigit())]
    has_end = bool(letters) and letters[-1] == _END and _END not in known
    if has_end:
        letters.pop()
    if not letters:
        raise TextError("A sequence has at least one residue; got none: give its letters, such as MKTAYIAKQR.")
    for number, letter in enumerate(letters, 1):
        if letter not in known and letter != mask:
            instead = f", {mask} for one that the model shall predict" if mask else ""
            raise TextError(
                f"Residue {number} of the sequence is {quote(letter)}, which is no letter of the model "
                f"({''.join(sorted(known))}): correct it, or write X for an unknown residue{instead}."
            )
    without = [f"its header line {quote(header[:80])}" for header in headers]
    without += ["comments"] * bool(comments) + ["line breaks"] * (len(body) > 1)
    without += ["blanks"] * any(part.isspace() for part in parts) + ["numbers"] * any(part.isdigit() for part in parts)
    without += ["the * at its end"] * has_end
    is_lower = any(part != part.upper() for part in parts if part != mask)
    if not (without or is_lower):
        return letters, []
    left_out = f" without {' and '.join(filter(None, (', '.join(without[:-1]), without[-1])))}" if without else ""
    capital = " in capital letters" if is_lower else ""
    return letters, [
        f"The sequence is read{left_out}{',' if without and is_lower else ''}{capital}: {plural(len(letters), 'residue')}."
    ]


AMINO_ACIDS = Residues(
    "Sequence",
    "The amino acids of a protein by their letters, such as MKTAYIAKQR; FASTA is read as well. A mask stands for a residue that the model shall predict.",
    UBIQUITIN, is_alphabet, read,
)  # fmt: skip
