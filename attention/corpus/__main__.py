"""python -m attention.corpus MODEL TEXTS… -o heads/: every head over many texts."""

import sys
from io import TextIOWrapper

from attention.corpus.command import main

if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # names of files may be no text, and terminals have other encodings
            stream.reconfigure(errors="backslashreplace")
    sys.exit(main())
