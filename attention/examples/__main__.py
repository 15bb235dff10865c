"""Makes the stored layers from their models: `python -m attention.examples FOLDER`, with the folder of the models (`make models ALL=1`)."""

from __future__ import annotations

import sys
from pathlib import Path

from attention.examples.example import DATA, EXAMPLES, run, stored

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m attention.examples FOLDER")
    for name, example in EXAMPLES.items():
        content = stored(run(example, Path(sys.argv[1])), example.layer)
        (DATA / f"{name}.npz").write_bytes(content)
        print(f"{name}: {len(content) / 2**10:.0f} kB")
