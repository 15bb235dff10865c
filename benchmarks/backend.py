"""The backend alone: a full trace against `nn.MultiheadAttention`, its memory, and how both grow with the text.

usage: python -m benchmarks.backend [--steps 9] [--longest 4096] [--quick]

A full trace is what a typed text costs after its random numbers are drawn: three projections and
`attend`, all steps of all heads kept. Both sides see the same input and weights, take turns, and
run on one thread; processor time is compared, so that other work on the machine does not count. The memory
is measured in a separate process: its peak minus its memory before.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from attention import Layer
from attention.base.cache import CACHE
from attention.formula.functions import project
from attention.trace.attend import attend

D_MODEL, N_HEADS = 768, 12
MOST_TIMES, MOST_MEMORY = 3.0, 2.0  # issue 5
MOST_EXPONENT = 2.2  # T²; the rest is noise


class Job:
    """The same attention for both sides: the input [query_pos d_model] and the weights are drawn once."""

    def __init__(self, tokens: int, n_heads: int = N_HEADS, d_model: int = D_MODEL) -> None:
        draws = torch.Generator().manual_seed(0)
        self.x = torch.randn(tokens, d_model, generator=draws)
        projections = [torch.randn(d_model, d_model, generator=draws) / math.sqrt(d_model) for _ in range(4)]
        self.w_q, self.w_k, self.w_v = (w.reshape(d_model, n_heads, -1).transpose(0, 1) for w in projections[:3])
        self.w_o = projections[3].reshape(n_heads, -1, d_model)
        self.torchs = nn.MultiheadAttention(d_model, n_heads, bias=False).eval()
        weights = {"in_proj_weight": torch.cat([w.T for w in projections[:3]]), "out_proj.weight": projections[3].T}
        self.torchs.load_state_dict(weights)

    def trace(self, mask: Tensor | None = None) -> Layer:
        """Computes and reads every step, as for a typed text."""
        query, key, value = (project(self.x, w) for w in (self.w_q, self.w_k, self.w_v))
        layer = attend(query, key, value, mask, w_o=self.w_o)
        _ = list(layer)
        return layer

    def multihead(self, hidden: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The output and weights of every head; in this mask True hides."""
        return self.torchs(self.x, self.x, self.x, attn_mask=hidden, need_weights=True, average_attn_weights=False)


def in_turns(*sides: Callable[[], object], steps: int) -> list[float]:
    """The median milliseconds of each side, measured alternately, so that noise affects both."""
    times: list[list[float]] = [[] for _ in sides]
    for step in range(steps + 1):
        for side, side_times in zip(sides, times, strict=True):
            began = time.thread_time()
            side()
            if step:  # the first step warms up
                side_times.append(1000 * (time.thread_time() - began))
    return [statistics.median(side_times) for side_times in times]


def recorded_bytes(layer: Layer) -> int:
    """The bytes of all steps of a layer; a tensor shared by two steps counts once."""
    return sum({tensor.data_ptr(): tensor.nbytes for _, tensor in layer}.values())


def peak(tokens: int, n_heads: int) -> tuple[float, float]:
    """The MB of the steps of one trace, and the peak of computing it above the memory before."""
    job = Job(tokens, n_heads)
    job.trace()  # BLAS keeps its buffers
    CACHE.cache.clear()
    gc.collect()
    start = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    layer = job.trace()
    return recorded_bytes(layer) / 2**20, _status("VmHWM") - start


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


def _peak_in_a_process(tokens: int, n_heads: int) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.backend", "--peak", str(tokens), str(n_heads)]
    # Every tensor is a separate mapping, which returns to the system when it is freed.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    root = Path(__file__).parents[1]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root, env=environment).stdout
    steps, highest = map(float, printed.split())
    return steps, highest


def against_torch(steps: int) -> list[str]:
    """Prints the table of both sides at T = 256; returns the broken bounds."""
    broken = []
    job, causal = Job(256), torch.ones(256, 256, dtype=torch.bool).tril()
    difference = float((job.trace().output - job.multihead()[0]).abs().max())
    if difference > 1e-4:
        broken.append(f"both must compute the same; the outputs differ by {difference:.1g}")
    print(f"\n| T = 256, d_model = {D_MODEL}, {N_HEADS} heads | all steps, ours | nn.MultiheadAttention | times |")
    print("|---|---|---|---|")
    for name, mask in (("no mask", None), ("causal", causal)):
        hidden = None if mask is None else ~mask
        ours, theirs = in_turns(lambda m=mask: job.trace(m), lambda h=hidden: job.multihead(h), steps=steps)
        print(f"| {name} | {ours:.1f} ms | {theirs:.1f} ms | {ours / theirs:.2f} |")
        if ours > MOST_TIMES * theirs:
            broken.append(f"{name}: {ours / theirs:.2f} times nn.MultiheadAttention, more than {MOST_TIMES}")
    return broken


def growth(steps: int, longest: int) -> list[str]:
    """Prints the table of time and memory over T; returns the broken bounds."""
    broken: list[str] = []
    print(
        "\n| T, heads | all steps, ours | a head | nn.MultiheadAttention | steps returned | peak of making them | times |"
    )
    print("|---|---|---|---|---|---|---|")
    measured: list[tuple[int, float]] = []
    for tokens in (256, 512, 1024, 2048, 4096):
        if tokens > longest:
            break
        heads = N_HEADS if tokens <= 1024 else 2  # 12 heads of 4096 tokens are 3 GB
        job = Job(tokens, heads, 64 * heads)
        ours, theirs = in_turns(job.trace, job.multihead, steps=steps if tokens <= 1024 else min(steps, 5))
        returned, highest = _peak_in_a_process(tokens, heads)
        measured.append((tokens, ours / heads))
        print(
            f"| {tokens}, {heads} | {ours:.0f} ms | {ours / heads:.2f} ms | {theirs:.0f} ms "
            f"| {returned:.0f} MB | {highest:.0f} MB | {highest / returned:.2f} |"
        )
        if highest > MOST_MEMORY * returned:
            broken.append(
                f"T = {tokens}: the peak is {highest / returned:.2f} times the steps, more than {MOST_MEMORY}"
            )
    if len(measured) > 1:
        (t0, first), (t1, last) = measured[0], measured[-1]
        exponent = math.log(last / first) / math.log(t1 / t0)
        print(f"\nA head's time grows as T^{exponent:.2f} from {t0} to {t1}.")
        if exponent > MOST_EXPONENT:
            broken.append(f"time grows as T^{exponent:.2f}, worse than T²")
    return broken


def main() -> int:
    """Prints the tables; 1 if a bound is broken."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--steps", type=int, default=15)
    ask.add_argument("--longest", type=int, default=4096)
    ask.add_argument("--quick", action="store_true", help="nine steps, up to 1,024 tokens")
    ask.add_argument("--peak", type=int, nargs=2, metavar=("T", "HEADS"), help="only print the memory of one trace")
    args = ask.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    if args.peak:
        print(*peak(*args.peak))
        return 0
    steps, longest = (9, 1024) if args.quick else (args.steps, args.longest)
    broken = against_torch(steps) + growth(steps, longest)
    for text in broken:
        print(f"broken: {text}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
