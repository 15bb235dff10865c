"""python -m attention.corpus MODEL TEXTS… -o heads/: every head over many texts."""

import sys

from attention.corpus.corpus_command import main

if __name__ == "__main__":
    sys.exit(main())
