"""A world of producers: it plays a plan against two brokers, and checks what their queues have in the end."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from lockstep.client import Message, MessageExt, MessageQueue, Producer, SendError, SendOutcome
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.simulation.errors import HostCrashedError
from lockstep.simulation.lab.cluster import Cluster
from lockstep.simulation.lab.experiment import FaultEvent, LockMode, SeedResult
from lockstep.simulation.lab.faults.table import act
from lockstep.simulation.lab.findings import Wrong
from lockstep.simulation.lab.hosts import TOPIC
from lockstep.simulation.lab.setup import Setup
from lockstep.simulation.world import World
from lockstep.simulation.worlds.producing.producers import (
    BROKERS,
    BUSY,
    CLOSE,
    FULL,
    PRODUCERS,
    ProducersPlan,
    draw_plan,
)
from lockstep.simulation.worlds.producing.sent import KEYS, Places, Sent, text_of
from lockstep.store import StoreFull

__all__ = ["PRODUCERS_WORLDS", "ProducersWorld"]

_NAMES: Final = "names"
_PERCENT: Final = 100
_BODY_MAX: Final = 1000
_BATCH: Final = 3
_POLL_MS: Final = 200
_CALM_MS: Final = 5000
_FOLLOWING_MAX: Final = 3
_SENDS: Final = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_TOGETHER)


@dataclass
class _Broker:
    """What a broker refuses now, in percent, by chance. An interceptor of its requests."""

    rng: random.Random
    saw: Callable[[str], None]
    shares: dict[str, int] = field(default_factory=lambda: {BUSY: 0, FULL: 0})

    def refuses(self, what: str) -> bool:
        share = self.shares[what]
        return bool(share) and self.rng.randrange(_PERCENT) < share

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        def handle(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            if command.code in _SENDS and self.refuses(BUSY):
                return command.reply(ResponseCode.SYSTEM_BUSY, remark="[REJECTREQUEST]system busy")
            if command.code == RequestCode.SEND_TOGETHER:
                self.saw("sends together")
            reply = on_request(endpoint, command)
            if command.code == RequestCode.FIND_SENT and reply is not None and reply.code == ResponseCode.SUCCESS:
                self.saw("repeats of stored messages")
            return reply

        return handle

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Endpoint]:
        return factory


class ProducersWorld:
    """`run` plays the plan; then `findings` has what went wrong and what happened."""

    def __init__(self, world: World, plan: ProducersPlan) -> None:
        self.world = world
        self.plan = plan
        self._brokers = {name: _Broker(random.Random(f"{plan.seed}/{name}"), self._saw) for name in BROKERS}
        setup = Setup(lock_mode=plan.lock_mode, store=plan.store)
        self.cluster = Cluster(world, setup, tap=self._brokers.get)
        self.cluster.when_broker_started.append(self._refuse_records)
        self.findings = self.cluster.findings
        self._sent: list[Sent] = []
        self._called = 0  # how many calls have begun
        self._calls: list[asyncio.Task[None]] = []
        self._places = Places(self.findings, self._sent)

    def _saw(self, name: str) -> None:
        self.findings.saw(name)

    def _refuse_records(self, name: str) -> None:
        """The store of a broker may refuse messages."""
        state = self._brokers[name]

        def refuse_by_chance() -> None:
            if state.refuses(FULL):
                raise StoreFull("no space is left")

        self.cluster.core(name).messages.before_store.append(refuse_by_chance)

    async def run(self) -> None:
        cluster, plan, world = self.cluster, self.plan, self.world
        await cluster.start_name_server(_NAMES)
        for name in BROKERS:
            world.disk(name).sync_ms = plan.sync_ms
            of_broker = {**cluster.setup.broker_settings, "max_message_bytes": _BODY_MAX}
            await cluster.broker(name, queues=plan.queues, **of_broker)
        for name, settings in zip(PRODUCERS, plan.settings, strict=True):
            await cluster.producer(name, **settings)
        own = {BUSY: self._refuse, FULL: self._refuse, CLOSE: self._close}
        events = []
        for event in plan.events:
            if event.fault in own:
                events.append(world.start(own[event.fault](event), name=f"event {event.fault}"))
            else:
                cluster.play_fault(event)
        for burst in plan.bursts:
            if burst.at_ms > world.elapsed_ms:
                await world.sleep_ms(burst.at_ms - world.elapsed_ms)
            for _ in range(burst.messages):
                self._begin(burst.producer)
        for task in events:
            await task
        await cluster.heal()
        await self._settle()
        await self._send_calmly()
        for broker in BROKERS:
            for queue_id in range(plan.queues):
                queue = MessageQueue(TOPIC, broker, queue_id)
                self._places.add(queue, cluster.stored(queue_id, broker))
        self._places.check()
        await self._judge()

    async def _refuse(self, event: FaultEvent) -> None:
        await self.cluster.at(max(event.at_ms, self.world.elapsed_ms))
        self.findings.saw(event.fault)
        band, shares = self.findings.begin(event.fault, event.target), self._brokers[event.target].shares
        shares[event.fault] = event.amount
        await self.world.sleep_ms(event.duration_ms)
        shares[event.fault], band.end_ms = 0, self.world.elapsed_ms

    async def _close(self, event: FaultEvent) -> None:
        await self.cluster.at(max(event.at_ms, self.world.elapsed_ms))
        if self.cluster.is_up(event.target) and self.cluster.is_up(event.other):
            self.findings.saw(event.fault)
            self.findings.begin(event.fault, event.target, event.other)
            await act(self.cluster, event)

    # Sends ---------------------------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        sent, runtime = self._new(name), self.world.host(name)
        task = runtime.create_task(self._send_on(sent), name=f"send {sent.number}")
        self._calls.append(task)
        if _drawn(sent.number, 53) < self.plan.cancelled:
            self.findings.saw("sends cancelled")
            runtime.call_later_ms(_drawn(sent.number, 71) * 5, task.cancel)

    def _new(self, name: str) -> Sent:
        number = len(self._sent)
        count = _BATCH if _drawn(number, 41) < self.plan.batches else 1
        texts = tuple(f"{number}.{part}" for part in range(count))
        self._sent.append(Sent(number, name, texts, self.plan.settings_of(name)["retry_keyed"]))
        return self._sent[-1]

    async def _send_on(self, sent: Sent) -> None:
        """Send, and if that fails perhaps another one, before any other caller can know of the failure."""
        padding = b" " * _BODY_MAX if _drawn(sent.number, 29) < self.plan.large else b""
        for _ in range(_FOLLOWING_MAX):
            await self._send(sent, padding)
            if sent.outcome == "stored" or not self.plan.follows:
                return
            sent, padding = self._new(sent.producer), b""
            sent.follows = True

    async def _send_calmly(self) -> None:
        """Nothing goes wrong any more: each send is stored.

        But a connection to a broker that lost its power ends with the next send: without retries that one may fail.
        """
        await self.world.sleep_ms(_CALM_MS)
        for name in PRODUCERS:
            may_fail = len({event.target for event in self.plan.events if event.fault == "power-off"})
            for _ in range(KEYS):
                sent = self._new(name)
                await self.world.host(name).run(self._send(sent, b"", timeout_ms=_CALM_MS))
                if may_fail and not sent.retried and sent.outcome is SendOutcome.UNKNOWN:
                    may_fail -= 1
                elif sent.outcome != "stored":
                    told = f"message {sent.texts[0]} failed as {sent.outcome} after all was healed"
                    self.findings.add(Wrong.FAILED_WITHOUT_CAUSE, told)

    async def _send(self, sent: Sent, padding: bytes, timeout_ms: int | None = None) -> None:
        producer = self.cluster.client(sent.producer)
        assert isinstance(producer, Producer)
        messages = [Message(TOPIC, text.encode() + padding) for text in sent.texts]
        key = f"{sent.producer}-{sent.number % KEYS}"
        sent.called, self._called = self._called, self._called + 1
        try:
            if len(messages) > 1:
                self.findings.saw("batches")
                result = await producer.send_batch(messages, sharding_key=key)
            else:
                result = await producer.send(messages[0], sharding_key=key, timeout_ms=timeout_ms)
        except SendError as error:
            sent.outcome, sent.ended, sent.ends = error.outcome, self._called, self._ends()
            self.findings.saw("sends failed")
            if not self.plan.events and not self.plan.large:
                self.findings.add(Wrong.FAILED_WITHOUT_CAUSE, f"message {sent.texts[0]}: {error.reason}")
        else:
            queue = result.queue
            sent.outcome, sent.queue, sent.offset = "stored", queue, result.queue_offset
            if self.cluster.is_up(queue.broker_name):
                sent.behind = self.cluster.store(queue.broker_name).max_offset(TOPIC, queue.queue_id)

    def _ends(self) -> dict[MessageQueue, int]:
        queues = [MessageQueue(TOPIC, broker, queue_id) for broker in BROKERS for queue_id in range(self.plan.queues)]
        stores = {broker: self.cluster.store(broker) for broker in filter(self.cluster.is_up, BROKERS)}
        return {
            queue: stores[queue.broker_name].max_offset(TOPIC, queue.queue_id)
            for queue in queues
            if queue.broker_name in stores
        }

    async def _settle(self) -> None:
        """Every call ends."""
        end_ms = self.world.elapsed_ms + self.plan.settle_ms
        while (left := [task for task in self._calls if not task.done()]) and self.world.elapsed_ms < end_ms:
            await self.world.sleep_ms(_POLL_MS)
        if left:
            self.findings.add(Wrong.STUCK, f"{len(left)} calls of send have not ended")
        for task in self._calls:
            if task.done():
                with suppress(asyncio.CancelledError, HostCrashedError):
                    await task

    # The end -------------------------------------------------------------------------------------------------

    async def _judge(self) -> None:
        """A consumer handles all, and the judge of order reads the traces."""
        counts = Counter[str]()

        async def listen(messages: list[MessageExt], _: Any) -> None:
            counts.update(map(text_of, messages))

        await self.cluster.consumer("c1", listener=listen)
        await self.cluster.settle(self.plan.settle_ms)
        await self.cluster.shut_down()
        for kind, count in sorted(self.cluster.judge().violation_counts.items()):
            self.findings.add(f"judge: {kind}", f"{count} times")
        self.world.power_off()


def _drawn(number: int, factor: int) -> int:
    """From 0 to 99, for a number."""
    return number * factor % _PERCENT


class _Producers:
    """An Experiment."""

    name = "worlds/producers"
    summary = "Producers have many sends in flight to two brokers, which are late, busy or full."
    sometimes: Final = dict.fromkeys(
        LockMode,
        (
            *("sends together", "sends failed", "sends cancelled", "repeats of stored messages", "batches"),
            *("busy", "full", "late", "cut", "close"),
        ),
    )
    rocketmqs: Final = frozenset[str]()

    def draw(self, seed: int, mode: LockMode) -> ProducersPlan:
        return draw_plan(seed, mode)

    def build(self, world: World, plan: ProducersPlan) -> ProducersWorld:
        return ProducersWorld(world, plan)

    def fails(self, outcome: SeedResult) -> bool:
        return bool(outcome.error or outcome.wrong)


PRODUCERS_WORLDS: Final = _Producers()
