"""Hostile sounds, uploaded to a server with little memory: each is shown, or refused by its sentence."""

from __future__ import annotations

import pytest
from test_harm import LIMIT, finished

from benchmarks.attack import suffer
from benchmarks.server import Server
from benchmarks.sound_attacks import ATTACKS


@pytest.mark.long
def test_hostile_sounds_are_shown_or_refused_in_a_sentence() -> None:
    (attack,) = ATTACKS
    with Server(guard=True, limit=LIMIT) as server:
        cost = finished(suffer(server, attack))
        assert not cost.broken
        assert cost.peak < attack.mb
        assert not server.refused()
