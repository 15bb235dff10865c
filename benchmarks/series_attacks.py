"""Hostile series: tables of too many rows, columns and cells, many at once, quotes without an end, bytes that are no text, numbers that no model reads."""

from __future__ import annotations

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.uploads import SHOWN, crowded, dense, each_ends

FIELD = "series_upload_0"
QUERY = "source=model&model=tiny-patchtst"


def files() -> tuple[tuple[str, bytes, str], ...]:
    """Each hostile file with its name, and words of the sentence that refuses it."""
    return (
        ("rows.csv", b"1\n" * 2**22, "262,144 rows"),
        ("blank rows.csv", b"\n" * 2**23, "262,144 rows"),
        ("columns.csv", b"1," * 8000 + b"1\n" + b"2," * 8000 + b"2", "8,001 columns"),
        ("one line.csv", b"1," * 2**21, "fewer than two rows"),
        ("long line.csv", b"a,b\n" + b"1" * 2**22 + b",2\n", "16,384 characters"),
        ("wide and long.csv", (b"1," * 200 + b"1\n") * 20_000, "201 columns"),
        ("quote.csv", b'a,b\n"' + b"1\n" * 50_000, "quotation mark"),
        ("quotes.csv", b'"' * 2**20, "fewer than two rows"),
        ("cells in quotes.csv", b'"\n","\n",' * 100_000, "quotation mark"),
        ("zeros.csv", bytes(2**20), "fewer than two rows"),
        ("zip.csv", b"PK\x03\x04" + bytes(range(256)) * 1000, "bytes that are no text"),
        ("half of UTF-16.csv", b"\xff\xfe" + b"1,2\n" * 1000 + b"3", "fewer than two rows"),
        ("digits.csv", b"a,b\n" + b"1" * 5000 + b",2\n", "ordinary size"),
        ("infinite.csv", b"a,b\n1e999,2\n", "1e999"),
        ("words.csv", b"a,b\n" + b"x,y\n" * 1000, "in “b”, row 1"),
        ("separators.csv", b";,|\t" * 1000 + b"\n" + b"1\n" * 10, "1,001 columns"),
        ("thousands of dots.csv", b"a;b\n" + b"1." * 4000 + b"1;2\n", "ordinary size"),
        ("nothing.csv", b"", "fewer than two rows"),
    )


def ordinary() -> bytes:
    """A table as long as ETTh1, of 17,420 hours and two of its columns."""
    rows = (
        f"2016-07-{1 + hour // 24 % 28:02d} {hour % 24:02d}:00:00" + ",5.827000141143799" * 2 for hour in range(17_420)
    )
    return "\n".join(("date,HUFL,OT", *rows)).encode()


async def show_hostile(server: Server) -> list[str]:
    """Uploads each hostile file; each must be shown, or refused by its sentence."""
    return await each_ends(server, QUERY, FIELD, [*files(), ("ordinary.csv", ordinary(), SHOWN)])


async def many_cells(server: Server, people: int = 12, rows: int = 4000) -> list[str]:
    """Tables of 1.95 MB with a million cells each, by many people of one address at once."""
    files = [("x.csv", dense(rows - 1, 244, number + 2)) for number in range(people)]
    return await crowded(server, QUERY, FIELD, files, "tokens are read here")


ATTACKS = (
    Attack("tables of too many rows, columns and cells, and other files", show_hostile, 900, guard=True),
    Attack(
        "12 CSV files with a million cells each, at once, of one address", many_cells, 700, {"people": 3, "rows": 2000}
    ),
)
