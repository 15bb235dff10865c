"""python -m attention.demo FOLDER [--lab URL] [--models FOLDER]: writes the demo."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from attention.base.errors import AttentionError
from attention.demo.site import write


def main(arguments: list[str] | None = None) -> int:
    """Writes the demo; returns 1 after printing a sentence to stderr if that fails."""
    parser = argparse.ArgumentParser(
        "python -m attention.demo", description="Writes a demo of the Lab that needs no server."
    )
    add = parser.add_argument
    add("folder", type=Path, help="the output folder")
    add("--lab", default="", metavar="URL", help="the address of a full Lab, to which the demo then links")
    add("--models", type=Path, metavar="FOLDER", help="the folder of the models (default: models)")
    options = parser.parse_args(arguments)
    try:
        lab = urlsplit(options.lab)
        if options.lab and (lab.scheme not in ("http", "https") or not lab.netloc):
            raise AttentionError(
                f"--lab is the address of a Lab, such as https://lab.example.org; got {options.lab!r}: correct it, or leave it out."
            )
        if options.models is not None:
            from attention.models.library import LIBRARY

            LIBRARY.hold(replace(LIBRARY.settings, folder=options.models))
        sizes = write(options.folder, options.lab, tell=lambda words: print(words, file=sys.stderr))
    except AttentionError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        words = f"The folder {options.folder} could not be written ({error.strerror}): choose a writable folder."
        print(words, file=sys.stderr)
        return 1
    print(
        f"{options.folder}: {len(sizes)} files, {sum(sizes.values()) / 1e6:.1f} MB. Open {options.folder / 'index.html'}, or serve the folder."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
