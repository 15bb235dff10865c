"""What tiny models learn does not depend on the processor: other kernels, in processes of their own, give the same bits."""

import os
import subprocess
import sys
from pathlib import Path

KERNELS = ({}, {"ATEN_CPU_CAPABILITY": "default"}, {"ATEN_CPU_CAPABILITY": "avx2"}, {"MKL_CBWR": "COMPATIBLE"})
STEPS = 40  # bits are compared, and rounding errors do not add up: steps differ at any time or not at all
TRAIN = f"""
from hashlib import blake2b
from attention.training import TASKS, train
for task in TASKS:
    for snapshot in train(task, steps={STEPS}, every={STEPS}):
        digest = blake2b(snapshot.row.numpy().tobytes(), digest_size=8).hexdigest()
        print(task, snapshot.step, digest, f"{{snapshot.loss:.6g}} {{snapshot.accuracy:.6g}} {{snapshot.score:.6g}}")
"""


def learned(kernels: dict[str, str]) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if name not in {"ATEN_CPU_CAPABILITY", "MKL_CBWR"}}
    result = subprocess.run(
        [sys.executable, "-c", TRAIN],
        env=clean | kernels,
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.splitlines()


def test_tiny_models_learn_the_same_bits_on_other_kernels():
    own, *others = map(learned, KERNELS)
    assert len(own) == 14  # two snapshots of each task
    assert others == [own] * len(others)
