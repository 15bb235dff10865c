"""Checks the decision records and writes their index: `decisions.py [FOLDER]`; the folder is docs/decisions by default.

A record is a Markdown file `NNNN-short-title.md`, which names its room. The index is the part of README.md of the same folder
after the marker, room by room; the text before the marker is written by people and says what a record looks like.
"""

import re
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

FOLDER = Path("docs/decisions")
MARKER = "<!-- make decisions writes what follows -->"
NAME = re.compile(r"(\d{4})-[a-z0-9]+(?:-[a-z0-9]+)*\.md")
HEAD = re.compile(
    r"# (\d{4}): (.+)\n\n- Date: (\S+)\n- State: (.+)\n- Room: ([a-z]+)\n(?:- Replaces: (\d{4}(?:, \d{4})*)\n)?\n"
)
FIRST = "architecture"
"""The room of what shapes the whole: its records begin the index."""
SECTIONS = ("Context", "Decision", "Consequences")
STATE = re.compile(r"accepted(?:, amended by \[\d{4}\]\(\S+\.md\)(?:, \[\d{4}\]\(\S+\.md\))*)?")
LINK = re.compile(r"\[(\d{4})\]\((\S+?\.md)\)")


@dataclass(frozen=True)
class Record:
    """A decision record: its head, and the numbers of the records that were folded into it."""

    number: int
    name: str
    title: str
    date: str
    state: str
    room: str
    replaced: tuple[int, ...]

    @property
    def line(self) -> str:
        """Its line of the index."""
        amended = self.state.removeprefix("accepted, ")
        return f"- [{self.number:04d}]({self.name}) {self.title}" + f" ({amended})" * (amended != self.state)


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
                f"{path.name}: expected NNNN-short-title.md that begins with “# NNNN: Title”, “- Date: ”, “- State: ” and “- Room: ”."
            )
            continue
        replaced = tuple(map(int, re.findall(r"\d+", head[6] or "")))
        records.append(Record(int(head[1]), path.name, head[2], head[3], head[4], head[5], replaced))
        faults += [f"{path.name}: {fault}" for fault in _faults(records[-1], text, folder)]
    numbers = sorted(number for record in records for number in (record.number, *record.replaced))
    if not faults and numbers != list(range(1, len(numbers) + 1)):
        wrong = next(at for at, number in enumerate([*numbers, 0], 1) if at != number)
        faults.append(
            f"Numbers are expected to be 1, 2, 3, …; {wrong:04d} is missing or occurs twice: renumber the newest, or name a "
            "record that was folded into another in its “- Replaces: ”."
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
            f"the state is expected as “accepted” or “accepted, amended by [NNNN](file)”, got “{record.state}”."
        )
    elif any(int(number) <= record.number for number, _ in LINK.findall(record.state)):
        faults.append(f"the state names a record that is not later: “{record.state}”.")
    if any(number >= record.number for number in record.replaced):
        faults.append("it replaces a record that is not earlier.")
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
    rooms = sorted({record.room for record in records}, key=lambda room: (room != FIRST, room))
    parts = [
        f"### {room}\n\n" + "\n".join(record.line for record in records if record.room == room) + "\n" for room in rooms
    ]
    return "\n".join((before + MARKER, "", *parts))


if __name__ == "__main__":
    where = Path(sys.argv[1]) if sys.argv[1:] else FOLDER
    (where / "README.md").write_text(index(where), encoding="utf-8")
