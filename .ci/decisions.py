"""Checks the decision records and writes their index: `decisions.py [FOLDER]`; the folder is docs/decisions by default.

A record is a Markdown file `NNNN-short-title.md`. The index is the table in README.md of the same folder, after the
marker; the text before the marker is written by people and says what a record looks like.
"""

import re
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

FOLDER = Path("docs/decisions")
MARKER = "<!-- make decisions writes what follows -->"
NAME = re.compile(r"(\d{4})-[a-z0-9]+(?:-[a-z0-9]+)*\.md")
HEAD = re.compile(r"# (\d{4}): (.+)\n\n- Date: (\S+)\n- State: (.+)\n\n")
SECTIONS = ("Context", "Decision", "Consequences")
STATE = re.compile(
    r"accepted|(?:accepted, amended|superseded) by (?P<links>\[\d{4}\]\(\S+\.md\)(?:, \[\d{4}\]\(\S+\.md\))*)"
)
LINK = re.compile(r"\[(\d{4})\]\((\S+?\.md)\)")


@dataclass(frozen=True)
class Record:
    """A decision record: its number, file name, title, date and state."""

    number: int
    name: str
    title: str
    date: str
    state: str

    @property
    def row(self) -> str:
        """Its row of the index."""
        return f"| [{self.number:04d}]({self.name}) | {self.title} | {self.date} | {self.state} |"


def read(folder: Path) -> tuple[list[Record], list[str]]:
    """All records of a folder in the order of their numbers, and one sentence for each fault."""
    records: list[Record] = []
    faults: list[str] = []
    for path in sorted(folder.glob("*.md")):
        if path.name == "README.md":
            continue
        text = path.read_text(encoding="utf-8")
        head = HEAD.match(text)
        if not NAME.fullmatch(path.name) or not head or head[1] != path.name[:4]:
            faults.append(
                f"{path.name}: expected NNNN-short-title.md that begins with “# NNNN: Title”, “- Date: ” and “- State: ”."
            )
            continue
        records.append(Record(int(head[1]), path.name, head[2], head[3], head[4]))
        faults += [f"{path.name}: {fault}" for fault in _faults(records[-1], text, folder)]
    numbers = [record.number for record in records]
    if not faults and numbers != list(range(1, len(numbers) + 1)):
        wrong = next(at for at, number in enumerate([*numbers, 0], 1) if at != number)
        faults.append(
            f"Numbers are expected to be 1, 2, 3, …; {wrong:04d} is missing or occurs twice: renumber the newest."
        )
    return records, faults


def _faults(record: Record, text: str, folder: Path) -> list[str]:
    """What is wrong in one record."""
    faults = []
    try:
        date.fromisoformat(record.date)
    except ValueError:
        faults.append(f"the date is expected as YYYY-MM-DD, got “{record.date}”.")
    state = STATE.fullmatch(record.state)
    if not state:
        faults.append(
            "the state is expected as “accepted”, “accepted, amended by [NNNN](file)” or “superseded by [NNNN](file)”, "
            f"got “{record.state}”."
        )
    elif any(int(number) <= record.number for number, _ in LINK.findall(record.state)):
        faults.append(f"the state names a record that is not later: “{record.state}”.")
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    if tuple(sections) not in (SECTIONS, SECTIONS[:2]):
        faults.append(
            f"the sections are expected to be Context, Decision and perhaps Consequences, got {', '.join(sections)}."
        )
    if re.search(r"^## .+\n+(?=## |\Z)", text, re.MULTILINE):
        faults.append("a section is empty.")
    for number, name in LINK.findall(text):
        if name[:4] != number or not (folder / name).is_file():
            faults.append(f"the link [{number}]({name}) leads to no record.")
    return faults


def index(folder: Path) -> str:
    """The text of README.md with a current index.

    Raises:
        SystemExit: a record is faulty, or README.md has no marker.
    """
    records, faults = read(folder)
    before, marker, _ = (folder / "README.md").read_text(encoding="utf-8").partition(MARKER)
    if not marker:
        faults.append(f"README.md: the line “{MARKER}” is missing: put it where the index begins.")
    if faults:
        raise SystemExit("\n".join(faults))
    head = ("| | Decision | Date | State |", "|---|---|---|---|")
    return "\n".join((before + MARKER, "", *head, *(record.row for record in records), ""))


if __name__ == "__main__":
    where = Path(sys.argv[1]) if sys.argv[1:] else FOLDER
    (where / "README.md").write_text(index(where), encoding="utf-8")
