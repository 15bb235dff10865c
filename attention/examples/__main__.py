"""Makes the stored layers from their models: `python -m attention.examples FOLDER`, with the folder of the models (`make models ALL=1`)."""

from __future__ import annotations

import argparse
from pathlib import Path

from attention.examples.example import DATA, EXAMPLES, run, stored


def main() -> None:
    """Writes the file of each example."""
    parser = argparse.ArgumentParser("python -m attention.examples", description="Makes the stored layers.")
    parser.add_argument("folder", type=Path, help="the folder of the models")
    options = parser.parse_args()
    for name, example in EXAMPLES.items():
        content = stored(run(example, options.folder), example.layer)
        (DATA / f"{name}.npz").write_bytes(content)
        print(f"{name}: {len(content) / 2**10:.0f} kB")


if __name__ == "__main__":
    main()
