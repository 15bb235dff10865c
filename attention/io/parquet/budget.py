"""What one question to a file may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from attention.errors import FileError


@dataclass
class Budget:
    """What is left of memory and time for one question to a file.

    Attributes:
        name: of the file, quoted.
        n_bytes: of unpacked pages, and of texts.
        n_values: of columns, with those that are missing.
        n_runs: of equal or packed numbers, and of texts: steps in Python.
    """

    name: str
    n_bytes: int = 2**27
    n_values: int = 2**24
    n_runs: int = 2**21

    def spend(self, n_bytes: int = 0, n_values: int = 0, n_runs: int = 0) -> None:
        """Take some of it.

        Raises:
            FileError: there is not enough left.
        """
        self.n_bytes -= n_bytes
        self.n_values -= n_values
        self.n_runs -= n_runs
        if min(self.n_bytes, self.n_values, self.n_runs) < 0:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raises FileError."""
        raise FileError(
            f"{self.name} would unpack to more memory or work than is allowed here: use the file that the run wrote, with fewer examples (--top)."
        )
