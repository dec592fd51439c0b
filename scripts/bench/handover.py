"""How long a queue rests when its owner changes, fenced locks beside RocketMQ's.

`python -m scripts.bench --only handover`; some minutes.

- planned: a member joins and leaves. From the end of the old owner's last call to the begin of the new owner's first.
- killed: from the SIGKILL of an owner of 20 queues to the first call of each queue by the other member.
- restart: from the time when a killed broker listens again to the first call of each queue.

All settings of the clients are the defaults. With RocketMQ's locks a round takes minutes, so there are fewer rounds.
"""

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import uvloop
from rich.console import Console

from lockstep.client import (
    AdminClient,
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    ConsumerConfig,
    MessageExt,
    PushConsumer,
)
from lockstep.remoting.percentiles import percentile
from lockstep.testing.process import BrokerProcess
from scripts.bench.cases import preload

__all__ = ["FULL", "NAME", "SMALL", "Rounds", "run"]

ROOT: Final = Path(__file__).resolve().parents[2]
NAME: Final = "handover"
TOPIC, QUEUES, KILLED_QUEUES = "BenchHandover", 20, 20
LISTENER_SECONDS: Final = 0.005
SLOW_LISTENER_SECONDS: Final = 0.1  # where twice as many queues are at work for a minute
MESSAGES: Final = 12_000  # of each queue
PATIENCE_SECONDS: Final = 240.0
LOCK_DELAY_MS: Final = 3000  # the broker's default
P50_MS, P99_MS, KILLED_MS, RESTART_MS = 50.0, 250.0, LOCK_DELAY_MS + 300.0, 1000.0
_FENCED: Final = ("--lock-mode", "fenced")


class Rounds(NamedTuple):
    """`joins`: how often a member joins and leaves."""

    joins: int
    kills: int
    restarts: int


FULL, SMALL = Rounds(10, 10, 5), Rounds(2, 1, 1)


@dataclass
class Calls:
    """The listener calls of all members in this process. Times are in s."""

    seconds: float = LISTENER_SECONDS
    waits: list[float] = field(default_factory=list)  # of each change of owner
    first: dict[int, float] = field(default_factory=dict)  # begin of the first call of a queue since the last `clear`
    by_owner: Counter[str] = field(default_factory=Counter)  # handovers to an owner
    handled: Counter[tuple[int, int]] = field(default_factory=Counter)
    _last: dict[int, tuple[str, float]] = field(default_factory=dict)

    def listener(self, owner: str) -> Callable[[list[MessageExt], ConsumeOrderlyContext], Any]:
        async def listen(messages: list[MessageExt], _context: ConsumeOrderlyContext) -> None:
            now, queue_id = monotonic(), messages[0].queue_id
            self.first.setdefault(queue_id, now)
            before = self._last.get(queue_id)
            if before is not None and before[0] != owner:
                self.waits.append(now - before[1])
                self.by_owner[owner] += 1
            self.handled[queue_id, messages[0].queue_offset] += 1
            self._last[queue_id] = owner, now
            await asyncio.sleep(self.seconds)
            self._last[queue_id] = owner, monotonic()

        return listen

    def owners(self) -> Counter[str]:
        return Counter(owner for owner, _ in self._last.values())

    @property
    def duplicates(self) -> int:
        return sum(count - 1 for count in self.handled.values())


def member(name_server: str, calls: Calls, owner: str, *, fenced: bool) -> PushConsumer:
    config = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    listener = calls.listener(owner)
    consumer = PushConsumer("BenchMovers", name_server=name_server, config=config, listener=listener, fenced=fenced)
    consumer.subscribe(TOPIC)
    return consumer


async def until(condition: Callable[[], object], what: str) -> None:
    end = monotonic() + PATIENCE_SECONDS
    while not condition():
        if monotonic() > end:
            raise RuntimeError(f"not within {PATIENCE_SECONDS:.0f} s: {what}")
        await asyncio.sleep(0.005)


def broker(fenced: bool, queues: int, *options: str) -> BrokerProcess:
    mode = _FENCED if fenced else ()
    return BrokerProcess("--log-level=error", f"--topic={TOPIC}:{queues}", *mode, *options)


# Cases -----------------------------------------------------------------------------------------------------------


async def planned(fenced: bool, rounds: int) -> dict[str, float]:
    calls = Calls()
    with broker(fenced, QUEUES) as served:
        await preload(served.name_server, TOPIC, QUEUES * MESSAGES, QUEUES)
        async with member(served.name_server, calls, "stays", fenced=fenced):
            await until(lambda: calls.owners()["stays"] == QUEUES, "all queues are at work")
            for i in range(rounds):
                guest = f"guest-{i}"
                async with member(served.name_server, calls, guest, fenced=fenced):
                    await until(lambda: calls.owners()[guest] == QUEUES // 2, "half of the queues moved")  # noqa: B023
                await until(lambda: calls.owners()["stays"] == QUEUES, "they came back")
    waits = sorted(calls.waits)
    return {
        "handovers": len(waits),
        "p50_ms": round(percentile(waits, 50) * 1000, 1),
        "p99_ms": round(percentile(waits, 99) * 1000, 1),
        "max_ms": round(waits[-1] * 1000, 1),
        "duplicates": calls.duplicates,
        "messages": len(calls.handled),
    }


async def killed(fenced: bool, rounds: int) -> dict[str, float]:
    calls, worst = Calls(SLOW_LISTENER_SECONDS), []
    queues = 2 * KILLED_QUEUES
    with broker(fenced, queues) as served:
        await preload(served.name_server, TOPIC, queues * 2000, queues)
        async with (
            AdminClient(name_server=served.name_server) as admin,
            member(served.name_server, calls, "heir", fenced=fenced) as heir,
        ):
            await until(lambda: len(heir.assigned_queues) >= queues, "all queues are owned")
            for _ in range(rounds):
                worst.append(await _kill(served.name_server, admin, calls, fenced))
                await until(lambda: len(heir.assigned_queues) >= queues, "all queues are owned again")
    return {"kills": len(worst), "median_ms": round(statistics.median(worst)), "max_ms": round(max(worst))}


async def _kill(name_server: str, admin: AdminClient, calls: Calls, fenced: bool) -> float:
    """From the kill until the last of its queues is handled again, in ms."""
    spec = json.dumps({"name_server": name_server, "fenced": fenced})
    command = [sys.executable, "-m", "scripts.bench.handover", spec]
    victim = await asyncio.to_thread(subprocess.Popen, command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        mine = f"@{victim.pid}#"
        queue_ids: set[int] = set()
        end = monotonic() + PATIENCE_SECONDS
        while len(queue_ids) < KILLED_QUEUES:
            rows = await admin.list_locks("BenchMovers")
            queue_ids = {row.queue.queue_id for row in rows if mine in row.client_id and row.queue.topic == TOPIC}
            if monotonic() > end:
                raise RuntimeError(f"the member owns {len(queue_ids)} queues")
            await asyncio.sleep(0.05)
        await asyncio.sleep(1)  # it is at work
        killed_at = monotonic()
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    calls.first.clear()
    await until(lambda: queue_ids <= calls.first.keys(), "its queues are handled again")
    return (max(calls.first[queue_id] for queue_id in queue_ids) - killed_at) * 1000


async def restarted(fenced: bool, rounds: int) -> dict[str, float]:
    calls, worst = Calls(SLOW_LISTENER_SECONDS), []
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        served = broker(fenced, QUEUES, "--data-dir", folder)
        ports = (f"--port={served.port}", f"--name-server-port={served.name_server_port}")
        try:
            await preload(served.name_server, TOPIC, QUEUES * 2000, QUEUES)
            async with member(served.name_server, calls, "owner", fenced=fenced) as owner:
                await until(lambda: len(owner.assigned_queues) >= QUEUES, "all queues are owned")
                for _ in range(rounds):
                    calls.first.clear()
                    await until(lambda: len(calls.first) == QUEUES, "all queues are at work")
                    served.kill()
                    served = await asyncio.to_thread(broker, fenced, QUEUES, "--data-dir", folder, *ports)
                    listens_at = monotonic()
                    calls.first.clear()
                    await until(lambda: len(calls.first) == QUEUES, "all queues are at work again")
                    worst.append((max(calls.first.values()) - listens_at) * 1000)
        finally:
            served.end()
    return {"restarts": len(worst), "median_ms": round(statistics.median(worst)), "max_ms": round(max(worst))}


async def measure_handover(fenced: bool, rounds: Rounds) -> dict[str, dict[str, float]]:
    """All cases with one kind of locks. Raises RuntimeError when queues do not move."""
    return {
        "planned": await planned(fenced, rounds.joins),
        "restart": await restarted(fenced, rounds.restarts),
        "killed": await killed(fenced, rounds.kills),
    }


def missed(figures: dict[str, dict[str, float]]) -> list[str]:
    """Which figures of fenced locks miss their targets."""
    move = figures["planned"]
    met = {
        f"planned p50 of {P50_MS:.0f} ms": move["p50_ms"] <= P50_MS,
        f"planned p99 of {P99_MS:.0f} ms": move["p99_ms"] <= P99_MS,
        "no duplicate": not move["duplicates"],
        f"killed within {KILLED_MS:.0f} ms": figures["killed"]["max_ms"] <= KILLED_MS,
        f"restart within {RESTART_MS:.0f} ms": figures["restart"]["max_ms"] <= RESTART_MS,
    }
    return [name for name, is_met in met.items() if not is_met]


def show_handover(name: str, figures: dict[str, dict[str, float]], console: Console) -> None:
    for case, values in figures.items():
        console.print(f"{name} {case}: " + ", ".join(f"{key} {value:,}" for key, value in values.items()))


# Main ------------------------------------------------------------------------------------------------------------


async def _be_member(spec: dict[str, Any]) -> None:
    async with member(spec["name_server"], Calls(SLOW_LISTENER_SECONDS), "member", fenced=spec["fenced"]):
        await asyncio.Event().wait()


def run(rounds: Rounds, faithful_rounds: int, console: Console) -> int:
    """Measure and show both kinds of locks. Returns 1 when fenced locks miss a target."""
    fenced = uvloop.run(measure_handover(True, rounds))
    show_handover("fenced", fenced, console)
    if faithful_rounds:
        faithful = uvloop.run(measure_handover(False, Rounds(*[faithful_rounds] * 3)))
        show_handover("faithful", faithful, console)
    short = missed(fenced)
    if short:
        console.print(f"missed: {', '.join(short)}")
    return 1 if short else 0


if __name__ == "__main__":  # the member that `_kill` starts and kills
    uvloop.run(_be_member(json.loads(sys.argv[1])))
