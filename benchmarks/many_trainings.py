"""One address opens many trainings: others still train at once, and all of its trainings end when it has left."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from urllib.parse import urlencode

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.session import Session

MOST_SECONDS = 30  # for the training of another address, on a busy machine
AFTERWARDS = 3.0  # processor seconds after all have left
_LOOKED = 20.0  # seconds


def link(seed: int, task: str = "dates") -> str:
    """A link to a model that is trained when it is opened."""
    return urlencode({"source": "trained", "task": task, "seed": seed})


async def trained(server: Server, seed: int, address: str) -> tuple[float, list[str]]:
    """The seconds until a visitor of this address sees a trained model, and the messages of the page."""
    began = time.monotonic()
    async with Session(server.base, link(seed, "reverse"), timeout=120, address=address) as session:
        run = await session.open()
    return time.monotonic() - began, [*run.exceptions, *run.sentences]


async def crowd(server: Server, sockets: int = 60) -> list[str]:
    """Opens many sockets, each with another seed, and leaves; returns the failures meanwhile and afterwards."""
    broken = []
    await trained(server, 1, "192.0.2.7")  # imports torch
    async with AsyncExitStack() as stack:
        sessions = [
            Session(server.base, link(seed), timeout=60, address="192.0.2.66") for seed in range(100, 100 + sockets)
        ]
        await asyncio.gather(*[stack.enter_async_context(session) for session in sessions])
        await asyncio.gather(*[session.ask_to_run() for session in sessions])
        await asyncio.sleep(2)
        seconds, messages = await trained(server, 2, "192.0.2.7")
        if messages or seconds > MOST_SECONDS:
            broken.append(f"another address waited {seconds:.1f} s for its training, and read {messages}")
    await asyncio.sleep(1)  # running work ends
    start = server.processor()
    await asyncio.sleep(_LOOKED)
    used = server.processor() - start
    if used > AFTERWARDS:
        broken.append(f"{used:.1f} s of processor were used after all had left")
    print(f"{sockets} trainings of one address: another's took {seconds:.1f} s; {used:.1f} s of processor afterwards")
    return broken


ATTACKS = (Attack("sixty trainings of one address", crowd),)
