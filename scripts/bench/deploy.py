"""A rolling restart of real processes, and the simulator with the same members, times and messages.

`python -m scripts.bench.deploy [--ids new]`; two minutes a round. Consumers, each a process with a trace, are ended
cleanly and started again, one after the other, while messages come. How long each queue stood still is read from the
traces. Then the simulator plays the round: each of its members joins and leaves when a process did, and has that
process's place in the order of client ids, by which RocketMQ shares the queues out. All processes end with this one.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any, Final

from lockstep.client import ConsumerConfig, MessageExt, Producer, PushConsumer
from lockstep.order import Record
from lockstep.order.traces.reader import TraceFile
from lockstep.remoting.percentiles import percentile
from lockstep.simulation.lab.standstill import Flow, flow_of
from lockstep.testing.process import BrokerProcess, ChildProcess
from scripts.bench.command import keep, parser_of
from scripts.bench.load import Load, sending
from scripts.bench.replay import Life, replayed

TOPIC: Final = "BenchDeploy"
GROUP: Final = "BenchDeployers"
WORK_MS: Final = 5
JOINED_SECONDS: Final = 15
AFTER_SECONDS: Final = 15
DOWN_SECONDS: Final = 2.0
PATIENCE_SECONDS: Final = 120.0
_FIRST: Final = 10  # numbers of two digits, which sort as text
# A tenth of the defaults: a deploy costs rounds of these, so a run takes minutes and not half an hour.
SETTINGS: Final[dict[str, Any]] = {"lock_interval_ms": 2000, "rebalance_interval_ms": 2000, "lock_first_delay_ms": 100}


@dataclass
class Played:
    """What a round of processes did, from when to when its messages count."""

    flow: Flow
    lives: list[Life]
    since_ns: int
    until_ns: int
    load: float = field(default_factory=lambda: os.getloadavg()[0])


async def member(name_server: str, trace: str, instance: str) -> None:
    """The main function of a member's process; it ends with its stdin, and so with its parent."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)

    async def listen(_messages: list[MessageExt], _context: Any) -> None:
        await asyncio.sleep(WORK_MS / 1000)

    own: dict[str, Any] = {"instance_name": instance} if instance else {}
    config = ConsumerConfig(**SETTINGS, **own)
    consumer = PushConsumer(GROUP, name_server=name_server, config=config, listener=listen, trace=trace)
    consumer.subscribe(TOPIC)
    joins_ns = monotonic_ns()
    async with consumer:
        print(json.dumps([consumer.client_id, joins_ns]), flush=True)
        await ended.wait()


class Members:
    """The processes, and the traces and lives of all that there have been.

    Args:
        keeps_ids: a member that starts again has the client id of the one before, as on a machine of its own; if not,
            the new process has an id of its own, as RocketMQ's clients have by default.
    """

    def __init__(self, name_server: str, folder: Path, stack: ExitStack, *, keeps_ids: bool) -> None:
        self._name_server, self._folder, self._stack, self._keeps_ids = name_server, folder, stack, keeps_ids
        self.traces: list[Path] = []
        self.lives: dict[ChildProcess, Life] = {}

    async def start(self, number: int) -> ChildProcess:
        trace = self._folder / f"member{len(self.traces)}.jsonl"
        self.traces.append(trace)
        instance = f"member{_FIRST + number}" if self._keeps_ids else ""
        command = [sys.executable, "-m", "scripts.bench.deploy", "--member", self._name_server, str(trace), instance]
        process = ChildProcess(trace.stem, command, self._folder, stdin=subprocess.PIPE, start_new_session=True)
        self._stack.callback(process.end)
        end = monotonic() + PATIENCE_SECONDS
        while not (said := process.stdout()).endswith("\n"):
            if monotonic() > end or process.status is not None:
                raise RuntimeError(process.tail())
            await asyncio.sleep(0.02)
        self.lives[process] = Life(*json.loads(said))
        return process

    async def end(self, process: ChildProcess) -> None:
        self.lives[process].leaves_ns = monotonic_ns()
        await asyncio.to_thread(process.end)


async def measured(consumers: int, load: Load, *, keeps_ids: bool) -> Played:
    """Restart all processes in turn."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-bench-")))
        options = ("--log-level=error", f"--topic={TOPIC}:{load.queues}")
        served = stack.enter_context(BrokerProcess(*options, end_with_us=True))
        members = Members(served.name_server, folder, stack, keeps_ids=keeps_ids)
        running = await asyncio.gather(*map(members.start, range(consumers)))
        sent = folder / "sent.jsonl"
        async with Producer(GROUP, name_server=served.name_server, trace=str(sent)) as producer:
            async with sending(load, producer, TOPIC):
                await asyncio.sleep(JOINED_SECONDS)
                since_ns = monotonic_ns()
                for number, process in enumerate(running):
                    await members.end(process)
                    await asyncio.sleep(DOWN_SECONDS)
                    await members.start(number)
                await asyncio.sleep(AFTER_SECONDS)
            await asyncio.sleep(1)  # the last messages are handled and traced
        until_ns, records = monotonic_ns(), _records([sent, *members.traces])
        flow = flow_of(records, topic=TOPIC, group=GROUP, until_ns=until_ns, since_ns=since_ns)
    return Played(flow, [*members.lives.values()], since_ns, until_ns)


def _records(traces: list[Path]) -> Iterator[Record]:
    for trace in traces:
        yield from TraceFile(trace)


def figures_of(load: Load, round_: Played, seeds: int) -> dict[str, Any]:
    """Of the longest rests of the queues, and how long processes took to join again."""
    again = [life for life in round_.lives if life.joins_ns > round_.since_ns]
    left = [life for life in round_.lives if life.leaves_ns]
    since_ns, until_ns = round_.since_ns, round_.until_ns
    runs = (replayed(load, round_.lives, since_ns, until_ns, SETTINGS, seed) for seed in range(1, seeds + 1))
    ready_ms = [(one.joins_ns - other.leaves_ns) / 1e6 for other, one in zip(left, again, strict=True)]
    return {
        "load": round(round_.load, 1),
        "ready_ms": round(sum(ready_ms) / len(ready_ms)),
        "processes": _shown(round_.flow),
        "simulator": [_shown(run.flow()) for run in runs],
    }


def _shown(flow: Flow) -> dict[str, int]:
    """Half of the queues may rest for milliseconds, and half for seconds: p50 alone says little then."""
    rests_ms = sorted(rest.duration_ms for rest in flow.longest.values())
    percentiles = {f"p{percent}_ms": round(percentile(rests_ms, percent)) for percent in (50, 75, 100)}
    return {**percentiles, "queues_over_1s": sum(rest_ms > 1000 for rest_ms in rests_ms)}


def main() -> None:
    parser = parser_of(__doc__, rounds=2)
    parser.add_argument("--ids", choices=("kept", "new"), default="kept", help="client ids of processes that restart")
    parser.add_argument("--consumers", type=int, default=12)
    parser.add_argument("--queues", type=int, default=24)
    parser.add_argument("--rate", type=float, default=50, help="messages a second")
    parser.add_argument("--seeds", type=int, default=5, help="of the simulator, for each round")
    parser.add_argument("--member", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.member:
        asyncio.run(member(*args.member))
        return
    load = Load(args.queues, args.rate, keys=1000, work_ms=WORK_MS)
    rounds = []
    for _ in range(args.rounds):
        round_ = asyncio.run(measured(args.consumers, load, keeps_ids=args.ids == "kept"))
        rounds.append(figures_of(load, round_, args.seeds))
        print(json.dumps(rounds[-1]), flush=True)
    keep({f"deploy_{args.ids}_ids": rounds})


if __name__ == "__main__":
    main()
