"""How often a queue changes its owner when RocketMQ's Java clients join a group within a second.

`python -m scripts.bench.join`; two minutes a broker, of Apache's and ours. Needs `make interop`.
Ten ordered push consumers of one JVM join with RocketMQ's intervals while messages come, leave, and join again, now as
compiled code. The owners of this time are read from what they say. Then the simulator plays members that join at the
same times: with its own network, and with a slower one. All processes end with the run.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from lockstep.client import Producer
from lockstep.simulation.lab.report import owner_changes
from scripts.bench.apache.servers import APACHE, APACHE5, FENCED, MEMORY, TITLES, served
from scripts.bench.command import keep, parser_of
from scripts.bench.load import Load, sending
from scripts.bench.replay import Life, replayed
from tests.interop.harness.drivers import Driver, Drivers, Event

TOPIC: Final = "BenchJoin"
GROUP: Final = "BenchJoiners"
AFTER_SECONDS: Final = 65  # three rebalances
PATIENCE_SECONDS: Final = 60.0
SLOW_US: Final = (5_000, 30_000)  # one way, as between programs that share busy processors
# RocketMQ's own, which the drivers of tests shorten.
INTERVALS: Final = {
    "rocketmq.client.rebalance.waitInterval": "20000",
    "rocketmq.client.rebalance.lockInterval": "20000",
    "rocketmq.client.rebalance.lockMaxLiveTime": "30000",
    "rocketmq.client.unlockDelayTimeMills": "20000",
}
ARGUMENTS: Final = {"topic": TOPIC, "group": GROUP, "heartbeat_ms": 30_000, "poll_ms": 30_000, "persist_ms": 5000}
# By the client's version: 4.9.8 serves each notice at once, 5.5.0 one a second; it also waits so long for the first
# round, which ours does not.
SETTINGS: Final[dict[str, dict[str, Any]]] = {"java": {}, "java5": {"rebalance_min_interval_ms": 1000}}


async def joined(driver: Driver, name_server: str, load: Load) -> list[Event]:
    """What the clients said from their first join on, until they had rested for AFTER_SECONDS."""
    async with Producer(GROUP, name_server=name_server) as producer, sending(load, producer, TOPIC):
        await driver.wait_for("ready", PATIENCE_SECONDS)
        await asyncio.sleep(AFTER_SECONDS)
    said = driver.look()
    (first,) = (number for number, event in enumerate(said) if event["event"] == "joining")
    return said[first:]


def changes_of(events: Sequence[Event]) -> int:
    """How often a queue got another owner."""
    owners: dict[int, list[str]] = {}
    for event in sorted(events, key=lambda one: one["t_ns"]):
        if event["event"] == "acquired" and event["topic"] == TOPIC:
            owners.setdefault(event["queueId"], []).append(event["clientId"])
    return sum(one != other for some in owners.values() for one, other in pairwise(some))


def measured(key: str, part: str, clients: int, within_ms: int, load: Load, seeds: int) -> dict[str, Any]:
    """Changes of owner a queue: of the Java clients, and of members of the simulator."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-bench-")))
        contenders = stack.enter_context(served(folder, (key,), ((TOPIC, load.queues),)))
        name_server = contenders[key].server.name_server
        start: Callable[..., Driver] = getattr(Drivers(folder), part)
        arguments = ARGUMENTS | {"members": clients, "within_ms": within_ms, "work_ms": load.work_ms}
        driver = start("OrderlyMembers", properties=INTERVALS, name_server=name_server, **arguments)
        stack.callback(driver.end)
        events = asyncio.run(joined(driver, name_server, load))
        until_ns = monotonic_ns()
    lives = [Life(str(event["instance"]), event["t_ns"]) for event in events if event["event"] == "joined"]
    first_ns, last_ns = min(life.joins_ns for life in lives), max(life.joins_ns for life in lives)

    def simulated(latency_us: tuple[int, int] | None) -> list[float]:
        runs = (
            replayed(load, lives, first_ns, until_ns, SETTINGS[part], seed, latency_us) for seed in range(1, seeds + 1)
        )
        return [owner_changes(run, run.judge()) / load.queues for run in runs]

    return {
        "broker": TITLES[key],
        "client": part,
        "load": round(os.getloadavg()[0], 1),
        "joined_within_ms": (last_ns - first_ns) // 1_000_000,
        "changes_a_queue": changes_of(events) / load.queues,
        "simulator": simulated(None),
        "simulator_slow": simulated(SLOW_US),
    }


def main() -> None:
    parser = parser_of(__doc__, rounds=1)
    brokers = (APACHE, APACHE5, MEMORY, FENCED)
    parser.add_argument("--broker", action="append", choices=brokers, help="default: Apache's 4.9 and ours")
    parser.add_argument("--client", choices=tuple(SETTINGS), default="java", help="java: 4.9.8; java5: 5.5.0")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--queues", type=int, default=40)
    parser.add_argument("--within-ms", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=50, help="messages a second")
    parser.add_argument("--seeds", type=int, default=5, help="of the simulator, for each run")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Apache's servers end only when this program ends them
    load = Load(args.queues, args.rate, keys=1000, work_ms=5)
    runs = []
    for key in args.broker or (APACHE, MEMORY):
        for _ in range(args.rounds):
            runs.append(measured(key, args.client, args.clients, args.within_ms, load, args.seeds))
            print(json.dumps(runs[-1]), flush=True)
    keep({"join": runs})


if __name__ == "__main__":
    main()
