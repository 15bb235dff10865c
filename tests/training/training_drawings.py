"""The figures of a training, each from small numbers."""

from __future__ import annotations

import torch
from drawings import tensor

from attention.training import training_views
from attention.training.learning import Snapshot
from attention.training.network import shapes
from attention.training.tasks import Plan

PLAN = Plan("reverse")
EXAMPLE = PLAN.example("")
PICTURE_PLAN = Plan("shapes")
SIZE = sum(torch.Size(shape).numel() for shape in shapes(PLAN.design).values())


def _snapshot(step: int, plan: Plan = PLAN) -> Snapshot:
    size = sum(torch.Size(shape).numel() for shape in shapes(plan.design).values())
    return Snapshot(step, 0.5, 2.5 / (step + 1), 0.1 * step, 0.02 * step, tensor(size) / (step + 1), plan.design)


DRAWINGS = {
    "maps": lambda: training_views.maps(PLAN, _snapshot(3), EXAMPLE, "one head"),
    "maps, of a film": lambda: training_views.maps(PICTURE_PLAN, _snapshot(0, PICTURE_PLAN), PICTURE_PLAN.example(""), moves=True, query=0),
    "curves": lambda: training_views.curves({"one": [_snapshot(0), _snapshot(2), _snapshot(5)], "other": [_snapshot(1)]}, 8, 4),
    "seeds": lambda: training_views.seeds([PLAN, Plan("reverse", 1)], [_snapshot(1), _snapshot(2)], EXAMPLE),
}  # fmt: skip
