"""Random runs of real brokers and clients in the simulator, as traces: kills, reboots, partitions, resets, power cuts.

Nothing wrong is done in them by anybody, so the judge may find nothing. Every host has a wall clock of its own, up to
250 ms off. In `Run.one_clock` all records have one monotonic clock, which the simulator has; `Run.own_clocks` is what
processes on several machines would write: each machine counts from its own boots.
"""

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from lockstep.client import ConsumeOrderlyContext, ConsumeOrderlyStatus, MessageExt, SerializeType
from lockstep.client.errors import ClientError
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.admin import ResetOffsetRequestHeader
from lockstep.remoting.errors import RemotingError
from lockstep.simulation import World, simulate
from lockstep.simulation.errors import LimitError
from lockstep.simulation.lab.cluster import TRACE
from tests.order.ways import Records, moved
from tests.scenarios.cluster import BROKER, GROUP, PRODUCER, TOPIC, Cluster

__all__ = ["Run", "run"]

NAMES = ("c1", "c2", "c3")
STEPS = ("join", "join", "leave", "kill", "reboot", "stall", "partition", "reset", "power cut", "restart")
FILES: dict[str, Any] = {"data_dir": "store", "flush_sync": True, "trace": "restarts.jsonl"}


class Run(NamedTuple):
    """The traces of one run, one for each host; `did` are the steps that it took."""

    one_clock: list[Records]
    own_clocks: list[Records]
    did: list[str]


class _Play:
    """Takes random steps, and sends messages all the while."""

    def __init__(self, world: World, ordering: str, steps: int) -> None:
        self.world, self.rng = world, world.rng
        self.cluster = Cluster(world, SerializeType.JSON)
        self.ordering = ordering
        self.steps = steps
        self.alive: set[str] = set()
        self.joined: set[str] = set()
        self.boots: dict[str, list[int]] = {}  # host -> when it booted, ns
        self.did: list[str] = []

    async def play(self) -> None:
        for name in (*NAMES, BROKER, PRODUCER):
            self.world.host(name, clock_offset_ms=self.rng.randint(-250, 250))
        await self.cluster.broker(queues=3, **FILES)
        await self.cluster.producer()
        await self.join("c1")
        for _ in range(self.steps):
            await self.carry_on(self.rng.choice((3_000, 10_000, 30_000)))
            await self.step()
        await self.carry_on(100_000)
        if not self.alive:
            await self.join("c1")
        with suppress(LimitError):  # a reset to the end leaves messages out
            await self.cluster.all_seen(timeout_ms=150_000)
        await self.world.sleep_ms(10_000)
        await self.cluster.shut_down()

    async def step(self) -> None:
        word = self.rng.choice(STEPS)
        name = self.rng.choice(NAMES if word == "join" else sorted(self.alive) or ("c1",))
        if word in ("power cut", "restart") and len(self.alive) > 1:
            return  # the broker forgets its locks then, and two members may both trust theirs: no good history
        if word in ("reset", "power cut", "restart"):
            await {"reset": self.reset, "power cut": self.power_cut, "restart": self.restart}[word]()
        elif (name in self.alive) is (word == "join"):
            return
        elif word == "join":
            await self.join(name)
        elif word == "leave":
            self.alive.discard(name)
            await self.cluster.leave(name)
        elif word in ("kill", "reboot"):
            self.alive.discard(name)
            self.cluster.crash(name, silently=word == "reboot")
            if word == "reboot":
                await self.world.sleep_ms(5_000)
                self.boots.setdefault(name, []).append(self.world.loop.now_ns)
        else:
            await self.away(name, word)
        self.did.append(word)

    async def join(self, name: str) -> None:
        await self.cluster.consumer(name, work_ms=30, answer=self.answer, ordering=self.ordering)  # type: ignore[arg-type]
        self.alive.add(name)
        self.joined.add(name)

    def answer(self, message: MessageExt, context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        """Some messages fail once."""
        failed = message.reconsume_times == 0 and int(message.body) % 23 == 7
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT if failed else None

    async def away(self, name: str, word: str) -> None:
        """Stopped, or cut off from the broker: shorter and longer than a lock lives."""
        duration_ms = self.rng.choice((5_000, 45_000, 90_000))
        if word == "stall":
            # between two calls, since a call that runs would go on when its lock is long over
            await self.world.until(lambda: not self.cluster.seen.running(str(self.world.host(name).host)), poll_ms=1)
            self.world.stall(name, duration_ms)
        else:
            self.world.partition(name, BROKER)
        await self.carry_on(duration_ms)
        if word == "partition":
            self.world.repair(name, BROKER)

    async def reset(self) -> None:
        """An administrator's, to the beginning or to the end, while consumers run."""
        header = ResetOffsetRequestHeader(TOPIC, GROUP, 0 if self.rng.random() < 0.7 else -1, True)
        with suppress(RemotingError):
            await self.cluster.call("admin", RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def power_cut(self) -> None:
        self.cluster.power_cut()
        await self.world.sleep_ms(self.rng.choice((50, 3_000)))
        await self.cluster.broker(queues=3, **FILES)

    async def restart(self) -> None:
        await self.cluster.stop_broker()
        await self.cluster.broker(queues=3, **FILES)

    async def carry_on(self, duration_ms: int) -> None:
        end_ms = self.world.elapsed_ms + duration_ms
        while self.world.elapsed_ms < end_ms:
            with suppress(ClientError, RemotingError):
                await self.cluster.send(self.rng.randint(1, 6), keys=7)
            await self.world.sleep_ms(min(2_000, max(1, end_ms - self.world.elapsed_ms)))


def run(seed: int, *, ordering: str = "queue", steps: int = 5) -> Run:
    """One random run."""

    async def main(world: World) -> Run:
        play = _Play(world, ordering, steps)
        await play.play()
        files = {name: world.disk(name).read(TRACE) for name in (*sorted(play.joined), PRODUCER)}
        files[BROKER] = world.disk(BROKER).read(FILES["trace"]) if "power cut" in play.did else b""
        traces = {name: [*_whole_lines(text)] for name, text in files.items()}
        traces = {name: trace for name, trace in traces.items() if trace}
        one = {"machine": "simulation", "boot": "1"}
        together = [[record | one for record in trace] for trace in traces.values()]
        apart = [_on_own_clock(name, trace, play.boots.get(name, []), seed) for name, trace in traces.items()]
        return Run(together, apart, play.did)

    return simulate(main, seed=seed).value


def _whole_lines(text: bytes) -> Iterator[dict[str, Any]]:
    """The records of a file; those that a kill tore are left out."""
    for line in text.splitlines():
        with suppress(ValueError):
            yield json.loads(line[line.rindex(b'{"event":') :])


def _on_own_clock(name: str, trace: Records, boots: list[int], seed: int) -> Records:
    """The monotonic clock of a machine, which begins anew with each boot."""
    rng = random.Random(f"{seed} {name}")
    starts = [(0, rng.randrange(10**12, 10**15)), *((at, -at) for at in boots)]
    found = []
    for record in trace:
        number = max(place for place, (at, _) in enumerate(starts) if at <= record["mono_ns"])
        found.append(moved(record, 0, starts[number][1], boot=f"{name}-{number}"))
    return found
