"""How long a queue rests when its owner changes: Apache's broker and Java's client, settings at their defaults.

`python -m tests.interop.handover` after `make interop` has set Apache's broker up; some ten minutes. It measures what
`python -m scripts.bench --only handover` measures with our broker and clients:

- planned: a member joins and leaves. From the end of the old owner's last call to the begin of the new owner's first.
- killed: from the SIGKILL of the owner of half of the queues to the first call of each of these by the other member.
- restart: from the time when a killed broker listens again to the first call of each queue.
"""

import argparse
import asyncio
import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import uvloop

from lockstep.remoting.percentiles import percentile
from scripts.bench.cases import preload
from tests.interop.harness.drivers import Driver, Drivers, Event
from tests.interop.harness.servers import Server, apache_server, free_ports

TOPIC, GROUP, QUEUES = "BenchHandover", "BenchMovers", 20
LISTENER_MS: Final = 50
MESSAGES: Final = 8000  # of each queue: more than are handled, so that messages always wait
LOCK_LIFE_MS: Final = 60_000
PATIENCE_S: Final = 300.0
_CLIENT: Final = {  # Java's defaults
    "rocketmq.client.rebalance.waitInterval": "20000",
    "rocketmq.client.rebalance.lockInterval": "20000",
    "rocketmq.client.rebalance.lockMaxLiveTime": "30000",
    "rocketmq.client.unlockDelayTimeMills": "20000",
}
_INTERVALS: Final = {"persist_ms": 5000, "poll_ms": 30_000, "heartbeat_ms": 30_000}


def now_s() -> float:
    """The clock of Java's System.nanoTime."""
    return time.monotonic()


class Member:
    """One Java consumer and the calls of its listener."""

    def __init__(self, drivers: Drivers, server: Server) -> None:
        self.driver: Driver = drivers.java(
            "OrderlyConsumer",
            properties=_CLIENT,
            name_server=server.name_server,
            topic=TOPIC,
            group=GROUP,
            work_ms=LISTENER_MS,
            **_INTERVALS,
        )
        self._read = 0
        self.calls: list[Event] = []

    def look(self) -> list[Event]:
        """The calls since the last look."""
        events = self.driver.look()
        fresh = [event for event in events[self._read :] if event["event"] == "handled"]
        self._read = len(events)
        self.calls += fresh
        return fresh

    def first_since(self, since_s: float) -> dict[int, float]:
        """For each queue the begin in s of its first call that began later than `since_s`."""
        self.look()
        found: dict[int, float] = {}
        for call in reversed(self.calls):
            if call["t_ns"] / 1e9 <= since_s:
                break  # a call ends before it is written
            if call["begin_ns"] / 1e9 > since_s:
                found[call["queueId"]] = call["begin_ns"] / 1e9
        return found

    def queues_lately(self) -> set[int]:
        """The queues that it handled in the last second."""
        return set(self.first_since(now_s() - 1))


async def until(condition: Callable[[], bool], what: str) -> None:
    end = now_s() + PATIENCE_S
    while not condition():
        if now_s() > end:
            raise RuntimeError(f"not within {PATIENCE_S:.0f} s: {what}")
        await asyncio.sleep(0.1)


# Cases -----------------------------------------------------------------------------------------------------------


async def planned(server: Server, drivers: Drivers, rounds: int) -> dict[str, float]:
    """Rests of the queues in s, and how many messages were handled twice."""
    stays, guests = Member(drivers, server), list[Member]()
    await until(lambda: len(stays.queues_lately()) == QUEUES, "all queues are at work")
    for _ in range(rounds):
        guest = Member(drivers, server)
        guests.append(guest)
        await until(lambda: len(guest.queues_lately()) == QUEUES // 2, "half of the queues moved")  # noqa: B023
        await asyncio.to_thread(guest.driver.end)
        await until(lambda: len(stays.queues_lately()) == QUEUES, "they came back")
    await asyncio.to_thread(stays.driver.end)
    calls = sorted(
        ((call["begin_ns"], call["t_ns"], name, call) for name, m in enumerate([stays, *guests]) for call in m.calls),
        key=lambda row: row[:3],
    )
    waits = sorted(rests(calls))
    handled = Counter((call["queueId"], call["queueOffset"]) for *_, call in calls)
    twice = sum(count - 1 for count in handled.values())
    return {
        "handovers": len(waits),
        "p50_s": round(percentile(waits, 50), 3),
        "p99_s": round(percentile(waits, 99), 3),
        "longest_s": round(waits[-1], 3),
        "duplicates": twice,
        "messages": len(handled),
    }


def rests(calls: list[tuple[int, int, int, Event]]) -> Iterator[float]:
    """For each change of a queue's owner the time between the calls in s; below 0 where they overlap."""
    last: dict[int, tuple[int, int]] = {}
    for begin_ns, end_ns, owner, call in calls:
        before = last.get(call["queueId"])
        if before is not None and before[0] != owner:
            yield (begin_ns - before[1]) / 1e9
        last[call["queueId"]] = owner, end_ns


async def killed(server: Server, drivers: Drivers, rounds: int) -> list[float]:
    """Seconds of each kill until the last queue is handled again."""
    heir, worst = Member(drivers, server), list[float]()
    await until(lambda: len(heir.queues_lately()) == QUEUES, "all queues are at work")
    for _ in range(rounds):
        victim = Member(drivers, server)
        await until(lambda: len(victim.queues_lately()) == QUEUES // 2, "half of the queues moved")  # noqa: B023
        lost = victim.queues_lately()
        killed_s = now_s()
        await victim.driver.kill()
        await until(lambda: lost <= heir.first_since(killed_s).keys(), "its queues are handled again")  # noqa: B023
        first = heir.first_since(killed_s)
        worst.append(max(first[queue_id] for queue_id in lost) - killed_s)
    await asyncio.to_thread(heir.driver.end)
    return worst


def kill_broker(folder: Path) -> None:
    found = subprocess.run(["pgrep", "-f", f"{folder}.*BrokerStartup"], capture_output=True, check=True, text=True)
    for pid in found.stdout.split():
        os.kill(int(pid), signal.SIGKILL)


async def restarted(folder: Path, rounds: int) -> list[float]:
    """Seconds of each restart until all queues are handled again."""
    ports, worst = free_ports(), list[float]()
    with ExitStack() as stack:
        drivers = Drivers(folder)
        stack.callback(end_quietly, drivers)
        served = stack.enter_context(ExitStack())
        server = served.enter_context(apache_server(folder, ports=ports, lock_life_ms=LOCK_LIFE_MS))
        await server.create_topic(TOPIC, QUEUES)
        await preload(server.name_server, TOPIC, QUEUES * MESSAGES, QUEUES)
        owner = Member(drivers, server)
        for _ in range(rounds):
            await until(lambda: len(owner.queues_lately()) == QUEUES, "all queues are at work")
            kill_broker(folder)
            served.close()
            again = apache_server(folder, ports=ports, lock_life_ms=LOCK_LIFE_MS)
            await asyncio.to_thread(served.enter_context, again)
            listens_s = now_s()
            await until(lambda: len(owner.first_since(listens_s)) == QUEUES, "all are at work again")  # noqa: B023
            worst.append(max(owner.first_since(listens_s).values()) - listens_s)
    return worst


def end_quietly(drivers: Drivers) -> None:
    """What drivers said last is for failed tests."""
    with contextlib.redirect_stdout(io.StringIO()):
        drivers.end()


async def measure(rounds: int, tell: Callable[[str, object], None] = lambda _name, _found: None) -> dict[str, Any]:
    """All three cases by name. `tell` gets the name and the figures of each when it is done."""
    found: dict[str, Any] = {}

    def add(name: str, figures: object) -> None:
        found[name] = figures
        tell(name, figures)

    with tempfile.TemporaryDirectory(prefix="lockstep-handover-") as place, ExitStack() as stack:
        folder = Path(place)
        (folder / "moves").mkdir()
        (folder / "restarts").mkdir()
        drivers = Drivers(folder)
        stack.callback(end_quietly, drivers)
        with apache_server(folder / "moves", lock_life_ms=LOCK_LIFE_MS) as server:
            await server.create_topic(TOPIC, QUEUES)
            await preload(server.name_server, TOPIC, QUEUES * MESSAGES, QUEUES)
            add("planned", await planned(server, drivers, rounds))
            await preload(server.name_server, TOPIC, QUEUES * MESSAGES, QUEUES)
            add("killed", await killed(server, drivers, rounds))
        add("restart", await restarted(folder / "restarts", rounds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="of each case (2)")
    with contextlib.redirect_stderr(sys.stdout):
        uvloop.run(measure(parser.parse_args().rounds, lambda name, figures: print(f"{name}: {figures}", flush=True)))


if __name__ == "__main__":
    main()
