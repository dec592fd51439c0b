"""The demo from its first process to its last: the processes, and the order of events that the board shows."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self, TypeVar

from rich.console import Console

from lockstep.broker.config import BrokerConfig
from lockstep.client import AdminClient, ClientError
from lockstep.remoting.errors import RemotingError
from lockstep.testing.process import BrokerProcess, ChildProcess, ProcessFailed
from scripts.demo.board import Board
from scripts.demo.consumer import CONSUMER_CONFIG, LOCK_LIFE_MS, QUEUES, TOPIC
from scripts.demo.watch import Snapshot, TraceOwners, Watch

__all__ = ["NOTICES", "Children", "Plan", "Scenario", "run_until_signal"]

Child = TypeVar("Child", bound=ChildProcess)

ROOT = Path(__file__).parents[2]
LOOK_EVERY_S = 0.25
START_TIMEOUT_S = 30.0
PICTURE_LOCK_AGE_MS = LOCK_LIFE_MS * 8 // 10
STALL_TIMEOUT_S = 60.0  # longer than any handover here
CHECKS_FOR_DEAD, CHECK_PAUSE_S = 20, 0.05
LOCK_DELAY_MS, GRACE_MS = BrokerConfig().lock_delay_ms, BrokerConfig().pop_grace_ms
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BROKER_OPTIONS = ("--topic", f"{TOPIC}:{QUEUES}", "-D", f"rocketmq.broker.rebalance.lockMaxLiveTime={LOCK_LIFE_MS}")
_FAITHFUL = (
    f"A lock lives {LOCK_LIFE_MS // 1000} s here instead of RocketMQ's 60 s, and the clients' intervals match: "
    f"renewed every {CONSUMER_CONFIG.lock_interval_ms / 1000:g} s, no longer trusted by its holder after "
    f"{CONSUMER_CONFIG.lock_max_live_time_ms // 1000} s."
)
_FENCED = (
    "Next, the same flights under fenced locks: each period of ownership has an epoch, and the broker refuses an older "
    "one. "
    f"The queues of a killed consumer move after the lock delay, {LOCK_DELAY_MS // 1000} s."
)
_FIFO = (
    "Next, the same flights through a FIFO group of RocketMQ 5: no consumer owns a queue, and a message waits until "
    "the earlier ones of its aircraft are acknowledged. "
    f"What a killed consumer had not acknowledged is given to others {GRACE_MS // 1000} s after its connection ended."
)
# What is said before a run, by its lock mode.
NOTICES = {"faithful": _FAITHFUL, "fenced": _FENCED, "fifo": _FIFO}
# Of the queues of a killed consumer: until when they stay its own, and what has happened then.
_HELD = {
    "faithful": ("which stay locked until their locks expire", "the lock of {} expired, {} took over"),
    "fenced": ("which stay locked for the lock delay", "the lock of {} was released, {} took over"),
    "fifo": ("with messages that nobody else gets for a grace", "others have the messages of {}"),
}
SETTLE_S = 0.1  # until the broker has read what a stopped process sent


class Plan(NamedTuple):
    """What a run is to do. `name_server`: of brokers that run already; None starts one.

    `lock_mode` and `metrics_port` are of that one.
    """

    folder: Path
    data: Path
    flights: int | None
    seconds: float
    picture: Path | None
    name_server: str | None = None
    lock_mode: str = "faithful"
    metrics_port: int | None = None

    @property
    def fifo(self) -> bool:
        return self.lock_mode == "fifo"


class Children:
    """All processes of the demo. The end of the `with` block ends them: in order, or by SIGKILL after an exception."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[ChildProcess] = []

    def add(self, child: Child) -> Child:
        self._running.append(child)
        return child

    def start(self, name: str, module: str, *arguments: str) -> ChildProcess:
        """Start a module of this folder as a process."""
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", f"{__package__}.{module}", *arguments]
        return self.add(ChildProcess(name, command, self.folder, env={**os.environ, "PYTHONPATH": path}))

    def __iter__(self) -> Iterator[ChildProcess]:
        return iter(self._running)

    def check(self) -> None:
        """Raises ProcessFailed when one of them has ended with a status that is not 0."""
        for child in self._running:
            if child.status:
                raise ProcessFailed(child.tail())

    async def find_dead(self) -> None:
        """As `check`, for one second: a broken connection may be noticed before the end of its process."""
        for _ in range(CHECKS_FOR_DEAD):
            self.check()
            await asyncio.sleep(CHECK_PAUSE_S)

    def kill(self, child: ChildProcess) -> None:
        """SIGKILL, without warning."""
        self._running.remove(child)
        child.kill()

    def end(self, *children: ChildProcess) -> None:
        """SIGTERM to all of them at once, then SIGKILL to those that still run after 10 s."""
        for child in children:
            child.ask_to_end()
        for child in children:
            child.end()
            self._running.remove(child)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for child in self._running:
                child.send_signal(signal.SIGKILL)
        self.end(*self._running)


async def make_topic(admin: AdminClient, name_server: str) -> None:
    """Make the topic on brokers that the demo did not start. Raises ClientError when they have it already."""
    if TOPIC in await admin.topics():
        raise ClientError(f"the brokers of {name_server} have a topic {TOPIC!r} already; the demo needs to make it")
    await admin.create_topic(TOPIC, QUEUES)
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            if TOPIC in await admin.topics():
                return
            await asyncio.sleep(LOOK_EVERY_S)


class Scenario:
    """Runs once. After that its attributes are what the report needs."""

    def __init__(self, plan: Plan, console: Console, begin: float) -> None:
        self.traces: list[Path] = []
        self.read: dict[str, Any] = {}
        self.misplaced = 0
        self.names: dict[int, str] = {}
        self.moved_s: list[float] = []  # of each queue of the killed consumer: until another one owned it
        self._plan = plan
        self._picture = plan.picture
        self._begin = begin
        self._dead: dict[int, float] = {}
        self._board = Board(console, self.names, self._dead)
        self._name_server = ""
        self._watch: Watch

    async def run(self) -> None:
        """Run all steps. Every process has ended when this returns or raises.

        Raises:
            ProcessFailed: A process ended too early.
            RemotingError, ClientError: A broker did not answer, or refused.
            TimeoutError: Nothing moved for a minute.
        """
        with Children(self._plan.folder) as children:
            outside = self._plan.name_server
            self._name_server = outside or self._start_broker(children)
            async with AdminClient(name_server=self._name_server) as admin:
                if outside:
                    await make_topic(admin, outside)
                self._watch = Watch(admin, TraceOwners(self.traces) if outside else None, fifo=self._plan.fifo)
                try:
                    with self._board:
                        await self._run(children)
                except (ClientError, RemotingError):
                    await children.find_dead()
                    raise

    async def _run(self, children: Children) -> None:
        consumers = await self._start_consumers(children)
        done = "read the queues" if self._plan.fifo else "have shared out the queues"
        self._show(f"{self._share(consumers)} {done}; the producer reads the flights")
        producer = self._start_producer(children)
        self.read = (await self._row(children, producer, 1))["read"]
        total = self.read["events"]
        self._show(f"{total:,} events of {self.read['flights']:,} flights are sent, in order of time")
        await self._until(children, lambda seen: seen.handled >= total // 2, "half of the events handled")
        await self._replace(children, consumers)
        self.misplaced = (await self._row(children, producer, 2))["done"]["misplaced"]
        await self._until(children, lambda _: producer.status is not None, "the producer's end")
        self._show("everything is sent")
        await self._until(children, lambda seen: seen.handled >= total, "all events handled")
        self._show("everything is handled; consumers and broker are stopped in order")
        self._end_consumers(children)

    async def _replace(self, children: Children, consumers: list[ChildProcess]) -> None:
        """Kill the second consumer; when its queues are taken over, start another one and wait for its share."""
        await self._kill(children, consumers[1])
        replacement = self._start_consumer(children, "D")
        self._show(f"{self._name(replacement)} is started in its place")
        if self._plan.fifo:
            # There is no share to wait for: it gets what is free.
            return
        await self._until(children, lambda seen: bool(seen.queues_of(replacement.pid)), "the replacement has queues")
        self._show(f"{self._name(replacement)} has its share: {self._share([*consumers, replacement])}")

    async def _kill(self, children: Children, victim: ChildProcess) -> None:
        """SIGKILL, and every queue of the victim gets a new owner once its time is over."""
        orphans = await self._stopped_with(victim)
        name = self._name(victim)
        children.kill(victim)
        killed = self._now()
        self._dead[victim.pid] = killed
        queues = " ".join(map(str, sorted(orphans)))
        until, ended = _HELD[self._plan.lock_mode]
        self._show(f"{name} is killed by SIGKILL; it held {queues}, {until}")
        # Nobody may have the oldest message of a queue, so a FIFO group's new owner is anybody but the victim.
        own = {victim.pid} if self._plan.fifo else {0, victim.pid}

        def all_taken(seen: Snapshot) -> bool:
            for row in seen.rows:
                if row.queue_id in orphans and row.owner_pid not in own:
                    orphans.discard(row.queue_id)
                    owner = self._board.owner(row.owner_pid)
                    self.moved_s.append(self._now() - killed)
                    self._show(f"queue {row.queue_id}: {ended.format(name, owner)} after {self.moved_s[-1]:.1f} s")
            self._take_picture(seen)
            return not orphans

        await self._until(children, all_taken, "the queues taken over")

    async def _stopped_with(self, victim: ChildProcess) -> set[int]:
        """Stop the victim at a moment when it owns queues, and return these. One of a FIFO group often has none."""
        while True:
            victim.send_signal(signal.SIGSTOP)
            await asyncio.sleep(SETTLE_S)
            owned = (await self._look()).queues_of(victim.pid)
            if owned:
                return set(owned)
            victim.send_signal(signal.SIGCONT)
            await asyncio.sleep(LOOK_EVERY_S)

    def _take_picture(self, seen: Snapshot) -> None:
        """Once, shortly before the killed consumer's locks expire."""
        oldest_ms = max((row.lock_age_ms or 0 for row in seen.rows if row.owner_pid in self._dead), default=0)
        if self._picture and oldest_ms >= PICTURE_LOCK_AGE_MS:
            self._board.save(self._picture)
            self._picture = None

    # Watching ------------------------------------------------------------------------------------------------

    async def _until(self, children: Children, done: Callable[[Snapshot], bool], what: str) -> None:
        """Look and show until `done`. Raises TimeoutError when nothing moves, ProcessFailed."""
        last_moved, last = self._now(), object()
        while True:
            children.check()
            seen = await self._look()
            if done(seen):
                return
            moving = seen.stored, seen.handled, [row.owner_pid for row in seen.rows]
            if moving != last:
                last_moved, last = self._now(), moving
            elif self._now() - last_moved > self._stall_timeout_s():
                raise TimeoutError(
                    f"nothing moved for {self._stall_timeout_s():.0f} s; waited for: {what}. What its processes "
                    f"wrote is in {children.folder}"
                )
            await asyncio.sleep(LOOK_EVERY_S)

    def _stall_timeout_s(self) -> float:
        """Messages are stored and handled, or queues change hands, at least so often."""
        return STALL_TIMEOUT_S

    async def _row(self, children: Children, child: ChildProcess, number: int) -> Any:
        """The JSON line of this number, from 1, that a process prints; the board goes on meanwhile."""
        await self._until(children, lambda _: child.stdout().count("\n") >= number, f"line {number} of {child.name}")
        return json.loads(child.stdout().splitlines()[number - 1])

    async def _look(self) -> Snapshot:
        seen = await self._watch.look(self._now())
        self._board.show(seen, self.read.get("events", 0), self._now())
        return seen

    def _now(self) -> float:
        return time.monotonic() - self._begin

    def _show(self, text: str) -> None:
        self._board.happened(self._now(), text)

    def _name(self, child: ChildProcess) -> str:
        return self._board.owner(child.pid)

    def _share(self, consumers: list[ChildProcess]) -> str:
        return ", ".join(self._name(child) for child in consumers if child.pid not in self._dead)

    # Starting and ending -------------------------------------------------------------------------------------

    def _start_broker(self, children: Children) -> str:
        """Returns the address of its name server. Not in a thread: an interrupt must not leave the broker behind."""
        port = self._plan.metrics_port
        metrics = () if port is None else ("--metrics-port", str(port))
        options = (*BROKER_OPTIONS, "--lock-mode", "fenced" if self._plan.fifo else self._plan.lock_mode, *metrics)
        broker = children.add(BrokerProcess(*options, folder=children.folder))
        if port is not None:
            self._show(f"metrics are at {broker.addresses.metrics}, the name server is {broker.name_server}")
        return broker.name_server

    async def _start_consumers(self, children: Children) -> list[ChildProcess]:
        """Three, once each has queues."""
        consumers = [self._start_consumer(children, name) for name in "ABC"]
        await self._until(
            children,
            lambda seen: self._plan.fifo or all(seen.queues_of(child.pid) for child in consumers),
            "queues shared out",
        )
        return consumers

    def _start_consumer(self, children: Children, name: str) -> ChildProcess:
        arguments = ["--name-server", self._name_server, "--trace", str(self._trace(f"consumer-{name}"))]
        arguments += ["--lock-mode", self._plan.lock_mode]
        child = children.start(f"consumer {name}", "consumer", *arguments)
        self.names[child.pid] = name
        return child

    def _start_producer(self, children: Children) -> ChildProcess:
        plan = self._plan
        limit = ("--limit", str(plan.flights)) if plan.flights is not None else ()
        arguments = ("--name-server", self._name_server, "--trace", str(self._trace("producer")))
        return children.start(
            "producer", "producer", *arguments, "--data", str(plan.data), "--seconds", str(plan.seconds), *limit
        )

    def _trace(self, name: str) -> Path:
        path = self._plan.folder / f"{name}.jsonl"
        self.traces.append(path)
        return path

    def _end_consumers(self, children: Children) -> None:
        children.end(*(child for child in children if child.pid in self.names))


async def run_until_signal(scenario: Coroutine[Any, Any, None]) -> None:
    """Run the scenario. Raises KeyboardInterrupt after one of STOPPING, when all processes have ended.

    A terminal sends Ctrl-C to every process of the demo, so some may have ended before this one gets its signal. A
    signal that the caller ignores, as `nohup` does SIGHUP, stays ignored.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if not received:
            loop.call_soon_threadsafe(task.cancel)
        received.append(number)

    handled = [number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in handled}
    try:
        await scenario
    except (Exception, asyncio.CancelledError):
        if received:
            raise KeyboardInterrupt from None
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
