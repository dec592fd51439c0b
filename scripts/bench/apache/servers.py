"""The brokers that are measured side by side: Apache's with its name server, and ours with and without files.

All answer a send before it is on the disk (async flush), and log warnings only. Apache's broker has its own defaults
but for these: a heap of 1 GB instead of 8, because messages are outside of the heap, with the garbage collector that
its start script chooses; and sends may wait 10 s in its queue before it refuses them.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from time import clock_gettime_ns
from typing import Final, NamedTuple

from lockstep.testing.process import BrokerProcess
from tests.interop.harness.servers import Server, apache_server

__all__ = ["APACHE", "APACHE5", "APACHE_PROXY", "FENCED", "FILES", "MEMORY", "TITLES", "Contender", "cpu_s", "served"]

APACHE, FILES, MEMORY = "apache", "lockstep", "lockstep_memory"
APACHE5, APACHE_PROXY, FENCED = "apache5", "apache_proxy", "lockstep_fenced"
TITLES: Final = {
    APACHE: "Apache 4.9.7",
    APACHE5: "Apache 5.5.0",
    APACHE_PROXY: "Apache 5.5.0, proxy",
    FILES: "Lockstep",
    FENCED: "Lockstep, fenced",
    MEMORY: "Lockstep, in memory",
}
JVM: Final = (
    "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30", "-XX:-UseBiasedLocking", "-XX:MaxDirectMemorySize=2g",
)  # fmt: skip
# What the settings of the tests change, back at RocketMQ's defaults.
DEFAULTS: Final = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "enablePropertyFilter": "false",
    "transactionTimeOut": 6000,
    "transactionCheckInterval": 60_000,
}
LOCK_LIFE_MS: Final = 60_000
MEMORY_LIMIT: Final = "4GiB"  # more than a run sends


class Contender(NamedTuple):
    key: str
    server: Server

    @property
    def title(self) -> str:
        return TITLES[self.key]


@contextmanager
def served(
    folder: Path, keys: Iterable[str], topics: Iterable[tuple[str, int]], flush: str = "async"
) -> Iterator[dict[str, Contender]]:
    """Start each broker of `keys` in a folder of its own below `folder`, with the topics.

    Args:
        topics: Names and numbers of queues.
        flush: "async", or "sync": a send is answered when it is on the disk.
    """
    with ExitStack() as stack:
        contenders: dict[str, Contender] = {}
        for key in keys:
            home = folder / key
            home.mkdir()
            contenders[key] = Contender(key, stack.enter_context(_server(key, home, tuple(topics), flush)))
        yield contenders


@contextmanager
def _server(key: str, home: Path, topics: tuple[tuple[str, int], ...], flush: str) -> Iterator[Server]:
    if key in (APACHE, APACHE5, APACHE_PROXY):
        settings = DEFAULTS | {"flushDiskType": f"{flush.upper()}_FLUSH"}
        part, grpc = (APACHE5, True) if key == APACHE_PROXY else (key, False)
        with apache_server(home, settings, lock_life_ms=LOCK_LIFE_MS, jvm=JVM, part=part, grpc=grpc) as server:
            asyncio.run(_make(server, topics))
            yield server
        return
    files = ("--data-dir", str(home / "data"), "--flush", flush)
    kept: tuple[str, ...] = ("--memory-limit", MEMORY_LIMIT) if key == MEMORY else files
    kept += ("--lock-mode", "fenced") if key == FENCED else ()
    made = (f"--topic={topic}:{queues}" for topic, queues in topics)
    with BrokerProcess("--log-level", "warning", "--grpc-port", "0", *kept, *made, folder=home) as broker:
        server = Server(TITLES[key], "", broker.name_server, broker.address, broker.tail)
        yield replace(server, pids=(broker.pid,), grpc=broker.addresses.grpc)


async def _make(server: Server, topics: Iterable[tuple[str, int]]) -> None:
    for topic, queues in topics:
        await server.create_topic(topic, queues)


def cpu_s(pid: int) -> float:
    """CPU seconds of all threads of a process so far, in user mode and in the kernel."""
    return clock_gettime_ns(~pid << 3 | 2) / 1e9  # Linux's clock of a process: /proc counts in ticks of 10 ms
