"""Start of a broker against the log that it must read: after an unclean end, and after a clean one.

CPU time of the process is compared, because the time on the clock depends on other work on the machine.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import Final

from lockstep.client import Message, Producer
from lockstep.testing.process import BrokerProcess
from scripts.bench.apache.servers import cpu_s

__all__ = ["SIZES", "start_seconds"]

TOPIC: Final = "Growth"
BODY_BYTES: Final = 1024
BATCH: Final = 100
SIZES: Final = (10_000, 1_000_000, 100_000_000, 1_000_000_000)
# Without a checkpoint the start after a kill reads the whole log; by default it is written every 10 s.
UNCHECKED: Final = ("-D", "checkpoint_interval_ms=86400000")


def start_seconds(size: int, folder: Path, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of the process until it listens.

    Args:
        size: Bytes of messages of 1 KB, all of them behind the checkpoint.
        rounds: Starts of each kind.

    Returns:
        By kind: `unclean`, the log is read; `after a checkpoint`, killed again after one; `clean`.
    """
    data = folder / "data"
    options = ("--log-level", "warning", "--data-dir", str(data), f"--topic={TOPIC}:1")
    with BrokerProcess(*options, *UNCHECKED, folder=folder) as broker:
        asyncio.run(_fill(broker, size))
        broker.kill()
    found: dict[str, list[float]] = {"unclean": [], "after a checkpoint": [], "clean": []}
    for _ in range(rounds):
        (data / "checkpoint").unlink(missing_ok=True)
        found["unclean"].append(_start(options, folder, data, kill=True))
        found["after a checkpoint"].append(_start(options, folder, data, kill=True))
        _start(options, folder, data, kill=False)
        found["clean"].append(_start(options, folder, data, kill=False))
        (data / "abort").touch()
    return found


def _start(options: tuple[str, ...], folder: Path, data: Path, *, kill: bool) -> float:
    with BrokerProcess(*options, folder=folder) as broker:
        took_s = cpu_s(broker.pid)
        if kill:
            while not (data / "checkpoint").exists():
                time.sleep(0.05)
            broker.kill()
    return took_s


async def _fill(broker: BrokerProcess, size: int) -> None:
    async with Producer("GrowthFill", name_server=broker.name_server) as producer:
        (queue,) = await producer.queues(TOPIC)
        batch = [Message(TOPIC, os.urandom(BODY_BYTES), sharding_key="k") for _ in range(BATCH)]
        left = max(1, size // BODY_BYTES)
        while left > 0:
            await asyncio.gather(*[producer.send_batch(batch[: min(left, BATCH)], queue=queue) for _ in range(4)])
            left -= 4 * BATCH
