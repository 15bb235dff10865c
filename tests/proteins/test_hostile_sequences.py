"""Hostile sequences in links to a server with little memory: each is shown, or refused by its sentence."""

from __future__ import annotations

import pytest
from test_harm import LIMIT, finished

from benchmarks.attack import suffer
from benchmarks.proteins_attacks import ATTACKS
from benchmarks.server import Server


@pytest.mark.long
def test_hostile_sequences_are_shown_or_refused_in_a_sentence() -> None:
    (attack,) = ATTACKS
    with Server(guard=True, limit=LIMIT) as server:
        cost = finished(suffer(server, attack))
        assert not cost.broken
        assert cost.peak < attack.mb
        assert not server.refused()
