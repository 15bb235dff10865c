"""python -m attention.export.demo FOLDER [--lab URL] [--models FOLDER]: writes the demo."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from attention.errors import AttentionError
from attention.export.demo import write


def main(arguments: list[str] | None = None) -> int:
    """Writes the demo; 1 where it could not be, with a sentence on stderr."""
    parser = argparse.ArgumentParser(
        "python -m attention.export.demo", description="Writes a demo of the Lab that needs no server."
    )
    parser.add_argument("folder", type=Path, help="where its files go")
    parser.add_argument(
        "--lab", default="", metavar="URL", help="the address of a full Lab, which the demo then links to"
    )
    parser.add_argument("--models", type=Path, default=None, metavar="FOLDER", help="where the models lie (models)")
    asked = parser.parse_args(arguments)
    try:
        if asked.lab and (urlsplit(asked.lab).scheme not in ("http", "https") or not urlsplit(asked.lab).netloc):
            raise AttentionError(
                f"--lab is the address of a Lab, such as https://lab.example.org; got {asked.lab!r}: give one, or leave it out."
            )
        if asked.models is not None:
            from attention.models.library import LIBRARY

            LIBRARY.hold(replace(LIBRARY.settings, folder=asked.models))
        sizes = write(asked.folder, asked.lab, tell=lambda words: print(words, file=sys.stderr))
    except AttentionError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"The folder {asked.folder} could not be written ({error.strerror}): name one that can.", file=sys.stderr)
        return 1
    print(
        f"{asked.folder}: {len(sizes)} files, {sum(sizes.values()) / 1e6:.1f} MB. Open {asked.folder / 'index.html'}, or serve the folder."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
