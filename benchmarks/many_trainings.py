"""One machine trains as many models as it has sockets: others train at once all the same, and nothing goes on when it has left."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from urllib.parse import urlencode

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.session import Session

MOST_SECONDS = 30  # for the training of another address, on a machine with other work to do
AFTERWARDS = 3.0  # seconds of processor, after all have left
_LOOKED = 20.0  # seconds


def link(seed: int, task: str = "dates") -> str:
    """A link to a model that is trained when somebody opens it."""
    return urlencode({"source": "trained", "task": task, "seed": seed})


async def trained(server: Server, seed: int, address: str) -> tuple[float, list[str]]:
    """The seconds until a visitor of this address sees a trained model, and what else is said."""
    began = time.monotonic()
    async with Session(server.base, link(seed, "reverse"), timeout=120, address=address) as session:
        run = await session.open()
    return time.monotonic() - began, [*run.exceptions, *run.sentences]


async def crowd(server: Server, sockets: int = 60) -> list[str]:
    """Opens so many sockets, each with another seed, and leaves; what must not have happened meanwhile and afterwards."""
    broken = []
    await trained(server, 1, "192.0.2.7")  # imports torch
    async with AsyncExitStack() as stack:
        sessions = [
            Session(server.base, link(seed), timeout=60, address="192.0.2.66") for seed in range(100, 100 + sockets)
        ]
        await asyncio.gather(*[stack.enter_async_context(session) for session in sessions])
        await asyncio.gather(*[session.ask_to_run() for session in sessions])
        await asyncio.sleep(2)
        seconds, said = await trained(server, 2, "192.0.2.7")
        if said or seconds > MOST_SECONDS:
            broken.append(f"another address waited {seconds:.1f} s for its training, and read {said}")
    await asyncio.sleep(1)  # what is under way ends
    before = server.processor()
    await asyncio.sleep(_LOOKED)
    after = server.processor() - before
    if after > AFTERWARDS:
        broken.append(f"{after:.1f} s of processor were used after all had left")
    print(f"{sockets} trainings of one address: another's took {seconds:.1f} s; {after:.1f} s of processor afterwards")
    return broken


ATTACKS = (Attack("sixty trainings of one address", crowd),)
