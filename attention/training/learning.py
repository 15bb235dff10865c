"""Training with AdamW, and its snapshots. The copied Python contains `learn` verbatim, so it is ASCII."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from attention.core.seeds import generator
from attention.training.network import Batch, cross_entropy_loss, forward, initial_parameters, named_parameters
from attention.training.threads import run_in_turn

if TYPE_CHECKING:
    from attention.training.design import Design
    from attention.training.plan import Plan

PROBES = 128  # held-out sequences for the measurements
SECONDS = 60.0  # limit of one training
GRADIENT_GRID = 2.0**20  # gradients are rounded to multiples of its inverse


class Quality(NamedTuple):
    """The quality of a model: mean loss in nats; fractions from 0 to 1 of right answers, of fully right sequences, and of weight on gold cells."""

    loss: float
    accuracy: float
    sequence_accuracy: float
    score: float


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A model at one step of its training.

    Attributes:
        step: number of batches so far.
        seconds: wall-clock time of the training so far.
        loss: mean cross-entropy in nats on held-out sequences.
        accuracy: fraction of right answers.
        sequence_accuracy: fraction of sequences with all answers right.
        score: weight on the gold cells, mean over the rows with gold cells.
        row: all parameters in one row; `parameters` has them by name.
        design: the model.
    """

    step: int
    seconds: float
    loss: float
    accuracy: float
    sequence_accuracy: float
    score: float
    row: Tensor = field(repr=False)
    design: Design = field(repr=False)

    @property
    def nbytes(self) -> int:
        """The size of its parameters in bytes."""
        return self.row.nbytes

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """The parameters by name, as views of `row`."""
        return named_parameters(self.row, self.design)


def learn(
    row: Tensor,
    design: Design,
    draw: Callable[[int, torch.Generator], Batch],
    steps: int,
    rate: float,
    batch: int,
    seed: int,
) -> Iterator[int]:
    """Update the parameters in `row` step by step; yields the number of each step before it is done, and the last.

    Equal arguments give equal bits on every processor. AdamW with betas 0.9 and 0.98 and weight decay 0.01; 20 steps of warm-up, then a linear decay to a tenth.
    Source: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2.
    """
    batch_generator, mean, square = generator(seed, "batches"), torch.zeros_like(row), torch.zeros_like(row)
    for step in range(steps):
        yield step
        leaf = row.double().requires_grad_()
        sequences = draw(batch, batch_generator)
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(
                cross_entropy_loss(forward(named_parameters(leaf, design), design, sequences)[0], sequences), leaf
            )
        # Processors sum in different orders, and training amplifies any difference: rounding removes it, and the
        # operations below round alike everywhere (a float32 root taken in float64 is exact; lerp and addcmul are not).
        gradient = ((gradient * GRADIENT_GRID).round() / GRADIENT_GRID).float()
        mean = mean * 0.9 + gradient * 0.1
        square = square * 0.98 + gradient * gradient * 0.02
        learning_rate = rate * min(1.0, (step + 1) / 20, 1 - 0.9 * (step - 20) / max(1, steps - 20))
        root = (square / (1 - 0.98 ** (step + 1))).double().sqrt().float()
        change = (mean / (1 - 0.9 ** (step + 1))) / (root + 1e-8)
        row.mul_(1 - learning_rate * 0.01).sub_(learning_rate * change)
    yield steps


def measure(row: Tensor, design: Design, probes: Batch, silent: Collection[tuple[str, int]] = ()) -> Quality:
    """The quality of a model on these sequences; `silent` heads, as (layer name, head), are ablated to zero."""
    with torch.no_grad():
        logits, activations = forward(named_parameters(row.double(), design), design, probes, silent)
        has_answer, right = probes.answers >= 0, logits.argmax(-1) == probes.answers
        whole = (right | ~has_answer).all(-1)
        return Quality(
            float(cross_entropy_loss(logits, probes)),
            float(right[has_answer].float().mean()),
            float(whole.float().mean()),
            measure_gold_weight(activations[design.attention_layers[-1]]["weights"], probes.gold),
        )


def measure_gold_weight(weights: Tensor, gold: Tensor) -> float:
    """The weight on the gold cells, mean over heads and over the rows with gold cells.

    Args:
        weights: [sequence head query_pos key_pos].
        gold: [sequence query_pos key_pos].
    """
    gold_weight = (weights * gold[:, None]).sum(-1).mean(1)
    return float(gold_weight[gold.any(-1)].mean())


def snapshots(
    plan: Plan,
    every: int = 0,
    also: Collection[int] = (),
    seconds: float | None = None,
    run: Callable[[Callable[[], Any]], Any] = run_in_turn,
) -> Generator[Snapshot]:
    """Snapshots of a model in training; closing the generator stops it.

    It uses one thread of torch and its own random generators, so two trainings at once give the same digits as one alone.

    Args:
        plan: the training.
        every: steps between two snapshots; 0: those of the plan. The first and the last step always have one.
        also: further steps with a snapshot.
        seconds: wall-clock seconds after which it stops, None: `SECONDS`; time between two snapshots, and waiting for other trainings, does not count.
        run: runs a piece of the work; by default in the training thread.
    """
    design, every, spent = plan.design, every or plan.every, 0.0
    limit = SECONDS if seconds is None else seconds

    def begin() -> tuple[Tensor, Iterator[int], Batch]:
        row, probes = (
            initial_parameters(design, plan.seed),
            plan.task.draw(PROBES, generator(plan.seed, "probes"), design),
        )

        def draw(count: int, batch_generator: torch.Generator) -> Batch:
            return plan.task.draw(count, batch_generator, design)

        return row, learn(row, design, draw, plan.steps, plan.rate, plan.task.batch, plan.seed), probes

    def train_to_snapshot() -> Snapshot | None:
        start = time.monotonic()
        for step in steps:
            elapsed = spent + time.monotonic() - start
            if step % every == 0 or step == plan.steps or step in also:
                quality = measure(row, design, probes)
                return Snapshot(step, spent + time.monotonic() - start, *quality, row=row.clone(), design=design)
            if elapsed > limit:
                break
        return None

    row, steps, probes = run(begin)
    while snapshot := run(train_to_snapshot):
        spent = snapshot.seconds
        yield snapshot
        if snapshot.step == plan.steps or spent > limit:
            return
