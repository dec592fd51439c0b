"""A broker as a process of its own, for benchmarks and demos: started on free ports, ended by its own handle."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

__all__ = ["BrokerProcess", "broker_process", "end_process"]

_LISTENING = re.compile(r"listening broker=(\S+) name-server=(\S+)")
_START_TIMEOUT_S = 20
_END_TIMEOUT_S = 10


class BrokerProcess(NamedTuple):
    process: asyncio.subprocess.Process
    broker: str  # host:port
    name_server: str


@asynccontextmanager
async def broker_process(*options: str, log_level: str = "warning") -> AsyncIterator[BrokerProcess]:
    """Raises RuntimeError with what the broker said when it does not come up."""
    ports = ("--port", "0", "--name-server-port", "0", "--log-level", log_level)
    process = await start_broker((*ports, *options))
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_START_TIMEOUT_S):
            line = (await process.stdout.readline()).decode()
        found = _LISTENING.search(line)
        if found is None:
            raise RuntimeError(f"the broker did not start; it said {line!r} and exited with {await process.wait()}")
        yield BrokerProcess(process, found[1], found[2])
    finally:
        await end_process(process)


async def start_broker(options: Sequence[str]) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "lockstep.broker", *options)
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)


async def end_process(process: asyncio.subprocess.Process) -> None:
    """SIGTERM, and SIGKILL where that does not help."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_END_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
