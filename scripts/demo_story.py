"""The demo from its first process to its last: what happens when, told to a board."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from demo_processes import Child, Children
from demo_settings import BROKER_OPTIONS, LOCK_LIFE_MS, QUEUES, TOPIC
from demo_table import Board
from demo_watch import Snapshot, TraceOwners, Watch
from rich.console import Console

from lockstep.client import AdminClient, ClientError
from lockstep.remoting.errors import RemotingError

__all__ = ["Plan", "Story"]

LOOK_EVERY_S = 0.25
START_TIMEOUT_S = 30.0
PICTURE_LOCK_AGE_MS = LOCK_LIFE_MS * 8 // 10
STALL_TIMEOUT_S = 60.0  # longer than any handover here; a demo that stands still so long has failed


class Plan(NamedTuple):
    """What is asked of a run."""

    folder: Path
    data: Path
    flights: int | None
    seconds: float
    picture: Path | None
    name_server: str | None = None  # of a broker that is there already; None: the demo starts one of its own


async def make_topic(admin: AdminClient, name_server: str) -> None:
    """The topic on brokers that are not the demo's own. Raises ClientError when it is there: it has a history."""
    if TOPIC in await admin.topics():
        raise ClientError(f"the brokers of {name_server} have a topic {TOPIC!r} already; the demo needs to make it")
    await admin.create_topic(TOPIC, QUEUES)
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            if TOPIC in await admin.topics():
                return
            await asyncio.sleep(LOOK_EVERY_S)


class Story:
    """Tells itself once; afterwards it knows what the report needs."""

    def __init__(self, plan: Plan, console: Console, begin: float) -> None:
        self.traces: list[Path] = []
        self.read: dict[str, Any] = {}
        self.misplaced = 0
        self.names: dict[int, str] = {}
        self._plan = plan
        self._picture = plan.picture
        self._begin = begin
        self._dead: dict[int, float] = {}
        self._board = Board(console, self.names, self._dead)
        self._name_server = ""
        self._watch: Watch

    async def tell(self) -> None:
        """Everything in turn. Raises ProcessDied, RemotingError, TimeoutError; every process is ended in any case."""
        async with Children(self._plan.folder) as children:
            outside = self._plan.name_server
            self._name_server = outside or await self._start_broker(children)
            async with AdminClient(name_server=self._name_server) as admin:
                if outside:
                    await make_topic(admin, outside)
                self._watch = Watch(admin, TraceOwners(self.traces) if outside else None)
                try:
                    with self._board:
                        await self._run(children)
                except (ClientError, RemotingError):
                    await children.find_dead()
                    raise

    async def _run(self, children: Children) -> None:
        consumers = [await self._start_consumer(children, name) for name in "ABC"]
        await self._until(
            children, lambda seen: all(seen.queues_of(child.pid) for child in consumers), "queues shared out"
        )
        self._tell(f"{self._share(consumers)} have shared out the queues; the producer reads the flights")
        producer = await self._start_producer(children)
        self.read = json.loads(await self._line(children, producer))["read"]
        total = self.read["events"]
        self._tell(f"{total:,} events of {self.read['flights']:,} flights are sent, in order of time")
        await self._until(children, lambda seen: seen.handled >= total // 2, "half of the events handled")
        await self._kill(children, consumers[1])
        replacement = await self._start_consumer(children, "D")
        self._tell(f"{self._name(replacement)} is started in its place")
        await self._until(children, lambda seen: bool(seen.queues_of(replacement.pid)), "the replacement has queues")
        self._tell(f"{self._name(replacement)} has its share: {self._share([*consumers, replacement])}")
        self.misplaced = json.loads(await self._line(children, producer))["done"]["misplaced"]
        await producer.process.wait()
        self._tell("everything is sent")
        await self._until(children, lambda seen: seen.handled >= total, "all events handled")
        self._tell("everything is handled; consumers and broker are stopped in order")
        await children.end(*(child for child in children if child.pid in self.names))

    async def _kill(self, children: Children, victim: Child) -> None:
        """SIGKILL, and every queue of the victim gets a new owner once its lock has expired."""
        orphans = set((await self._look()).queues_of(victim.pid))
        name = self._name(victim)
        await children.kill(victim)
        killed = self._now()
        self._dead[victim.pid] = killed
        queues = " ".join(map(str, sorted(orphans)))
        self._tell(f"{name} is killed by SIGKILL; it held {queues}, which stay locked until their locks expire")

        def all_taken(seen: Snapshot) -> bool:
            for row in seen.rows:
                if row.queue_id in orphans and row.owner_pid not in (0, victim.pid):
                    orphans.discard(row.queue_id)
                    owner = self._board.owner(row.owner_pid)
                    self._tell(f"queue {row.queue_id}: the lock of {name} expired, {owner} took over "
                               f"after {self._now() - killed:.1f} s")  # fmt: skip
            self._take_picture(seen)
            return not orphans

        await self._until(children, all_taken, "the queues taken over")

    def _take_picture(self, seen: Snapshot) -> None:
        """Once, when the locks of the dead are about to expire."""
        oldest_ms = max((row.lock_age_ms or 0 for row in seen.rows if row.owner_pid in self._dead), default=0)
        if self._picture and oldest_ms >= PICTURE_LOCK_AGE_MS:
            self._board.save(self._picture)
            self._picture = None

    # Watching ------------------------------------------------------------------------------------------------

    async def _until(self, children: Children, done: Callable[[Snapshot], bool], what: str) -> None:
        """Look and show until `done`. Raises TimeoutError when nothing moves, ProcessDied."""
        last_moved, last_handled = self._now(), -1
        while True:
            children.check()
            seen = await self._look()
            if done(seen):
                return
            if seen.handled != last_handled:
                last_moved, last_handled = self._now(), seen.handled
            elif self._now() - last_moved > STALL_TIMEOUT_S:
                raise TimeoutError(f"nothing moved for {STALL_TIMEOUT_S:.0f} s; waited for: {what}")
            await asyncio.sleep(LOOK_EVERY_S)

    async def _line(self, children: Children, child: Child) -> str:
        """The next line that a process prints; the board goes on meanwhile."""
        line = asyncio.create_task(child.line())
        try:
            await self._until(children, lambda _: line.done(), f"{child.name} to speak")
        finally:
            line.cancel()
        return await line

    async def _look(self) -> Snapshot:
        seen = await self._watch.look(self._now())
        self._board.show(seen, self.read.get("events", 0), self._now())
        return seen

    def _now(self) -> float:
        return time.monotonic() - self._begin

    def _tell(self, text: str) -> None:
        self._board.happened(self._now(), text)

    def _name(self, child: Child) -> str:
        return self._board.owner(child.pid)

    def _share(self, consumers: list[Child]) -> str:
        return ", ".join(self._name(child) for child in consumers if child.pid not in self._dead)

    # Starting ------------------------------------------------------------------------------------------------

    async def _start_broker(self, children: Children) -> str:
        """The name server's address, once the broker listens."""
        broker = await children.start("broker", "-m", "lockstep.broker", *BROKER_OPTIONS)
        async with asyncio.timeout(START_TIMEOUT_S):
            line = await broker.line()
        return line.partition("name-server=")[2].strip()

    async def _start_consumer(self, children: Children, name: str) -> Child:
        trace = self._trace(f"consumer-{name}")
        child = await children.start_script(
            f"consumer {name}", "demo_consumer.py", "--name-server", self._name_server, "--trace", str(trace)
        )
        self.names[child.pid] = name
        return child

    async def _start_producer(self, children: Children) -> Child:
        plan = self._plan
        limit = ("--limit", str(plan.flights)) if plan.flights is not None else ()
        arguments = ("--name-server", self._name_server, "--trace", str(self._trace("producer")))
        return await children.start_script(
            "producer", "demo_producer.py", *arguments, "--data", str(plan.data), "--seconds", str(plan.seconds), *limit
        )

    def _trace(self, name: str) -> Path:
        path = self._plan.folder / f"{name}.jsonl"
        self.traces.append(path)
        return path
