"""Typed text and what tiny models learn do not depend on the processor: other kernels, in processes of their own, give the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNELS = ({}, {"ATEN_CPU_CAPABILITY": "default"}, {"ATEN_CPU_CAPABILITY": "avx2"}, {"MKL_CBWR": "COMPATIBLE"})
STEPS = 40  # bits are compared, and rounding errors do not add up: steps differ at any time or not at all
PROGRAM = f"""
from hashlib import blake2b
from attention import AttentionConfig, TypedText
from attention.training import TASKS, train
for config in (AttentionConfig(positions="learned", normalizer="sigmoid"), AttentionConfig(cap=3, mask="causal")):
    for step, tensor in TypedText("the cat sat on the mat because it was tired", config).trace().layer(0):
        print(step.name, blake2b(tensor.numpy().tobytes(), digest_size=8).hexdigest())
for task in TASKS:
    for snapshot in train(task, steps={STEPS}, every={STEPS}):
        digest = blake2b(snapshot.row.numpy().tobytes(), digest_size=8).hexdigest()
        print(task, snapshot.step, digest, f"{{snapshot.loss:.6g}} {{snapshot.accuracy:.6g}} {{snapshot.score:.6g}}")
"""


def printed(kernels: dict[str, str]) -> list[str]:
    clean = {name: value for name, value in os.environ.items() if name not in {"ATEN_CPU_CAPABILITY", "MKL_CBWR"}}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=clean | kernels,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout.splitlines()


@pytest.mark.long  # four processes train every task
def test_typed_text_and_trainings_are_equal_on_other_kernels():
    own, *others = map(printed, KERNELS)
    assert len(own) == 38  # the steps of two texts, and two snapshots of each task
    assert others == [own] * len(others)
