"""How weights come from scores: one file for each way, one line of the table for each file."""

from __future__ import annotations

from attention.formula.shares.share import Share
from attention.formula.shares.sigmoid import Sigmoid
from attention.formula.shares.softmax import Softmax
from attention.formula.shares.softmax1 import Sinks, Softmax1
from attention.formula.shares.sparsemax import Sparsemax

SHARES: dict[str, Share] = {share.name: share for share in (Softmax(), Softmax1(), Sigmoid(), Sparsemax(), Sinks())}
"""Every way to share out, by its name in links."""

__all__ = ["SHARES", "Share"]
