"""A server that receives SIGTERM while much work is running ends within seconds and without an error."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from urllib.parse import urlencode

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.session import Session

MOST_SECONDS = 5.0  # on a busy machine; an idle one takes one
_WIDE = {"d_model": 1024, "heads": 32, "dropout": 0.5, "mask": "causal window", "text": " ".join(f"w{i}" for i in range(1024))}  # fmt: skip


async def ends(server: Server, links: int = 30) -> list[str]:
    """Opens `links` wide links, and ends the server with SIGTERM while they are computed."""
    async with AsyncExitStack() as stack:
        sessions = [Session(server.base, urlencode(_WIDE | {"seed": seed}), page="heads") for seed in range(links)]
        await asyncio.gather(*[stack.enter_async_context(session) for session in sessions])
        await asyncio.gather(*[session.ask_to_run() for session in sessions])
        await asyncio.sleep(2)
        code, seconds = await asyncio.to_thread(server.terminate)
    print(f"SIGTERM with {links} wide links open: exit {code} after {seconds:.1f} s")
    broken = [f"it ended with {code}: {server.errors()[-500:]}"] if code else []
    return broken + [f"it ended after {seconds:.1f} s"] * (seconds > MOST_SECONDS)


ATTACKS = (Attack("SIGTERM while thirty wide links are worked out", ends),)
