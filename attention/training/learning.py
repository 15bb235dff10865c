"""Learning: AdamW, and the snapshots that one watches. The copied Python has `learn` word for word, so it is ASCII."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from attention.formula.seeds import generator
from attention.training.network import Batch, forward, initial, loss_of, named
from attention.training.threads import in_turn

if TYPE_CHECKING:
    from attention.training.design import Design
    from attention.training.plan import Plan

PROBES = 128  # sequences that nothing is learned from
SECONDS = 60.0  # of one training at most


class Measured(NamedTuple):
    """How good a model is: mean loss in nats, right answers, whole sequences that are right, and the weight on gold cells; shares are 0 ... 1."""

    loss: float
    accuracy: float
    whole: float
    score: float


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A model while it learns.

    Attributes:
        step: how many batches it has learned from.
        seconds: that it has worked, by the wall clock.
        loss: on sequences that nothing is learned from, mean cross-entropy in nats.
        accuracy: the share of their answers that are right; `whole` of sequences with all answers right.
        score: the weight on the gold cells, mean over the rows that have any.
        row: all parameters in one row; `parameters` has them by name.
    """

    step: int
    seconds: float
    loss: float
    accuracy: float
    whole: float
    score: float
    row: Tensor = field(repr=False)
    design: Design = field(repr=False)

    @property
    def nbytes(self) -> int:
        """The memory of its parameters, in bytes."""
        return self.row.nbytes

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """The parameters by their names, as views of `row`."""
        return named(self.row, self.design)


def learn(
    row: Tensor,
    design: Design,
    draw: Callable[[int, torch.Generator], Batch],
    steps: int,
    rate: float,
    batch: int,
    seed: int,
) -> Iterator[int]:
    """Changes the parameters in `row` step by step; gives the number of each step before it is done, and the last.

    AdamW with betas 0.9 and 0.98 and weight decay 0.01; 20 steps of warm-up, then a linear decay to a tenth.
    Source: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2.
    """
    drawn, mean, square = generator(seed, "batches"), torch.zeros_like(row), torch.zeros_like(row)
    for step in range(steps):
        yield step
        leaf = row.clone().requires_grad_()
        now = draw(batch, drawn)
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(loss_of(forward(named(leaf, design), design, now)[0], now), leaf)
        mean.lerp_(gradient, 0.1)
        square.lerp_(gradient * gradient, 0.02)
        pace = rate * min(1.0, (step + 1) / 20, 1 - 0.9 * (step - 20) / max(1, steps - 20))
        change = (mean / (1 - 0.9 ** (step + 1))) / ((square / (1 - 0.98 ** (step + 1))).sqrt() + 1e-8)
        row.mul_(1 - pace * 0.01).sub_(pace * change)
    yield steps


def measured(row: Tensor, design: Design, probes: Batch, silent: Collection[tuple[str, int]] = ()) -> Measured:
    """How good a model is on these sequences; heads that are `silent`, as (layer's name, head), give zeros."""
    with torch.no_grad():
        logits, kept = forward(named(row, design), design, probes, silent)
        asked, right = probes.answers >= 0, logits.argmax(-1) == probes.answers
        whole = (right | ~asked).all(-1)
        return Measured(
            float(loss_of(logits, probes)),
            float(right[asked].float().mean()),
            float(whole.float().mean()),
            score(kept[design.names[-1]]["weights"], probes.gold),
        )


def score(weights: Tensor, gold: Tensor) -> float:
    """The weight on the cells that the rule says matter, mean over heads and over the rows that have any such cell.

    Args:
        weights: [sequence head query_pos key_pos].
        gold: [sequence query_pos key_pos].
    """
    found = (weights * gold[:, None]).sum(-1).mean(1)
    return float(found[gold.any(-1)].mean())


def snapshots(
    plan: Plan,
    every: int = 0,
    also: Collection[int] = (),
    seconds: float | None = None,
    run: Callable[[Callable[[], Any]], Any] = in_turn,
) -> Generator[Snapshot]:
    """Trains a tiny model and gives a snapshot of it again and again: closed, it stops.

    It uses one thread of torch, and only generators of its own: two at once get the very digits of one alone.

    Args:
        plan: what is trained.
        every: how many steps lie between two snapshots; 0: as the task says. The first and the last step always have one.
        also: more steps that have one.
        seconds: of the wall clock after which it stops, None: `SECONDS`; what a watcher takes between two snapshots, and waiting for other trainings, is left out.
        run: does a piece of the work; usually in the thread for that.
    """
    design, every, spent = plan.design, every or plan.every, 0.0
    most = SECONDS if seconds is None else seconds

    def begin() -> tuple[Tensor, Iterator[int], Batch]:
        row, probes = initial(design, plan.seed), plan.task.draw(PROBES, generator(plan.seed, "probes"), design)

        def draw(count: int, own: torch.Generator) -> Batch:
            return plan.task.draw(count, own, design)

        return row, learn(row, design, draw, plan.steps, plan.rate, plan.task.batch, plan.seed), probes

    def go_on() -> Snapshot | None:
        begun = time.monotonic()
        for step in steps:
            now = spent + time.monotonic() - begun
            if step % every == 0 or step == plan.steps or step in also:
                found = measured(row, design, probes)
                return Snapshot(step, spent + time.monotonic() - begun, *found, row=row.clone(), design=design)
            if now > most:
                break
        return None

    row, steps, probes = run(begin)
    while snapshot := run(go_on):
        spent = snapshot.seconds
        yield snapshot
        if snapshot.step == plan.steps or spent > most:
            return
