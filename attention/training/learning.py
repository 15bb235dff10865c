"""Training with AdamW, its snapshots, and the one thread in which models are trained, piece by piece in turn. The copied Python contains `learn` verbatim, so it is ASCII."""

from __future__ import annotations

import atexit
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from attention.base.errors import ConfigError
from attention.base.progress import current_watcher
from attention.formula.functions import generator
from attention.training.network import cross_entropy_loss, forward, initial_parameters, named_parameters

if TYPE_CHECKING:
    from attention.training.task import Batch, Design
    from attention.training.tasks import Plan


T = TypeVar("T")

_JOIN_SECONDS = 0.5  # how long a process that ends waits for the running piece


class _Job(Protocol):
    """Work that is done piece by piece: `step` does the next, returns whether there is more, and raises nothing; `fail` ends it with an error."""

    @property
    def group(self) -> Hashable: ...

    def step(self) -> bool: ...

    def fail(self, error: Exception) -> None: ...


class _Worker:
    """A thread that always serves the group with the least used time; the jobs of a group take turns.

    It is a daemon, so that a process that ends waits only for the running piece.
    """

    def __init__(self) -> None:
        self._changed, self._closed = Condition(), False
        self._jobs: dict[Hashable, deque[_Job]] = {}
        self._used: dict[Hashable, float] = {}  # seconds, for groups with jobs
        self._thread: Thread | None = None

    def add(self, job: _Job) -> None:
        with self._changed:
            if not self._closed:
                self._enqueue(job)
                if self._thread is None:
                    atexit.register(self.close)
                    self._thread = Thread(target=self._run, name="training", daemon=True)
                    self._thread.start()
                return
        job.fail(_closed_error())

    def close(self) -> None:
        """Stop the thread, and wait briefly for the running piece: a thread inside torch would abort the exit of Python."""
        with self._changed:
            self._closed = True
            remaining = [job for jobs in self._jobs.values() for job in jobs]
            self._jobs.clear()
            self._changed.notify_all()
        for job in remaining:
            job.fail(_closed_error())
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _enqueue(self, job: _Job) -> None:
        """Add a job at the end of its group; a new group starts with the smallest used time of all groups."""
        group = job.group
        self._used.setdefault(group, min(self._used.values(), default=0.0))
        self._jobs.setdefault(group, deque()).append(job)
        self._changed.notify_all()

    def _run(self) -> None:
        _use_one_thread()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._jobs))
                if self._closed:
                    return
                group = min(self._jobs, key=self._used.__getitem__)
                job = self._jobs[group].popleft()
                if not self._jobs[group]:
                    del self._jobs[group]
            start = time.monotonic()
            has_more = job.step()
            with self._changed:
                self._used[group] += time.monotonic() - start
                requeue, closed = has_more and not self._closed, has_more and self._closed
                if requeue:
                    self._enqueue(job)
                if group not in self._jobs:
                    self._used.pop(group, None)
            if closed:
                job.fail(_closed_error())
            del job  # free its memory while the thread waits


class _SinglePiece(Generic[T]):
    """A job of one piece, with a future for its result."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work, self.future, self.group = work, Future[T](), current_watcher().group

    def step(self) -> bool:
        try:
            self.future.set_result(self.work())
        except BaseException as error:  # raised again by `future.result`
            self.future.set_exception(error)
        return False

    def fail(self, error: Exception) -> None:
        self.future.set_exception(error)


def _closed_error() -> ConfigError:
    return ConfigError("This server is shutting down and trains no more models: try again in a moment.")


def _use_one_thread() -> None:
    """Give this thread one thread of torch.

    `torch.set_num_threads` applies to the calling thread and to all later threads; a helper thread restores it for the latter.
    """
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    restore = Thread(target=torch.set_num_threads, args=(n_threads,))
    restore.start()
    restore.join()


TRAINING_WORKER = _Worker()


def run_in_turn(work: Callable[[], T]) -> T:
    """The result of `work`, run in the training thread with one thread of torch, after the jobs that came before.

    Several threads of torch are slow on a busy machine and sum in another order. Other threads keep their number.
    """
    job = _SinglePiece(work)
    TRAINING_WORKER.add(job)
    return job.future.result()


PROBES = 128  # held-out sequences for the measurements
_SECONDS = 60.0  # of work: the limit of one training
GRADIENT_GRID = 2.0**20  # gradients are rounded to multiples of its inverse


class _Quality(NamedTuple):
    """The quality of a model: mean loss in nats; fractions from 0 to 1 of right answers, and of weight on gold cells."""

    loss: float
    accuracy: float
    score: float


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A model at one step of its training.

    Attributes:
        step: number of batches so far.
        seconds: processor time of the training so far.
        loss: mean cross-entropy in nats on held-out sequences.
        accuracy: fraction of right answers.
        score: weight on the gold cells, mean over the rows with gold cells.
        row: all parameters in one row; `parameters` has them by name.
        design: the model.
    """

    step: int
    seconds: float
    loss: float
    accuracy: float
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


def measure(row: Tensor, design: Design, probes: Batch, silent: Collection[tuple[str, int]] = ()) -> _Quality:
    """The quality of a model on these sequences; `silent` heads, as (layer name, head), are ablated to zero."""
    with torch.no_grad():
        logits, activations = forward(named_parameters(row.double(), design), design, probes, silent)
        has_answer, right = probes.answers >= 0, logits.argmax(-1) == probes.answers
        return _Quality(
            float(cross_entropy_loss(logits, probes)),
            float(right[has_answer].float().mean()),
            _measure_gold_weight(activations[design.attention_layers[-1]]["weights"], probes.gold),
        )


def _measure_gold_weight(weights: Tensor, gold: Tensor) -> float:
    """The weight on the gold cells, mean over heads and over the rows with gold cells."""
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

    Args:
        every: steps between two snapshots; 0: those of the plan. The first and the last step always have one.
        also: further steps with a snapshot.
        seconds: of work (processor time of its thread) after which it stops; None: `SECONDS`.
    """
    design, every, spent = plan.design, every or plan.every, 0.0
    limit = _SECONDS if seconds is None else seconds

    def begin() -> tuple[Tensor, Iterator[int], Batch]:
        row = initial_parameters(design, plan.seed)
        probes = plan.task.draw(PROBES, generator(plan.seed, "probes"), design)

        def draw(count: int, batch_generator: torch.Generator) -> Batch:
            return plan.task.draw(count, batch_generator, design)

        return row, learn(row, design, draw, plan.steps, plan.rate, plan.task.batch, plan.seed), probes

    def train_to_snapshot() -> Snapshot | None:
        start = time.thread_time()
        for step in steps:
            elapsed = spent + time.thread_time() - start
            if step % every == 0 or step == plan.steps or step in also:
                quality = measure(row, design, probes)
                return Snapshot(step, spent + time.thread_time() - start, *quality, row=row.clone(), design=design)
            if elapsed > limit:
                break
        return None

    row, steps, probes = run(begin)
    while snapshot := run(train_to_snapshot):
        spent = snapshot.seconds
        yield snapshot
        if snapshot.step == plan.steps or spent > limit:
            return
