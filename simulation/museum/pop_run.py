"""A run of an exhibit about groups that pop: members with a SimpleConsumer, and what waited too long in it."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from lockstep.client import (
    AdminClient,
    ClientError,
    ConsumeFromWhere,
    ConsumerError,
    Delivery,
    Message,
    Producer,
    PullConsumerConfig,
    SimpleConsumer,
    StaleDeliveryError,
)
from lockstep.client.lifecycle import ServiceState
from lockstep.order import Record
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError
from lockstep.simulation.lab.findings import Band, Finding, Wrong
from lockstep.simulation.lab.hosts import BROKER, GROUP, PRODUCER, TOPIC, TRACE
from lockstep.simulation.lab.user.app import UserApp, app_of, lab_listener
from lockstep.simulation.lab.user.story import PlayedStory, Story
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from lockstep.simulation.museum.plan import MuseumPlan
from lockstep.simulation.museum.waits import IDLE
from lockstep.simulation.virtual_time.loop import START_NS
from lockstep.simulation.world import World

__all__ = ["PopRun"]

_KEYS: Final = 5
_POLL_MS: Final = 4000
_ANSWER_MS: Final = 3000
_AGAIN_S: Final = 0.2
_TRIES: Final = 50
# From the end of a fault until its clients have noticed, and have asked again.
_RECOVERED_MS: Final = _POLL_MS + 2 * _ANSWER_MS
_IDLE_MS: Final = 10_000


class _PopCluster(StoryCluster):
    """Its members pop."""

    async def start_member(self, name: str) -> None:
        plan, runtime = self.setup, self.world.host(name)
        assert isinstance(plan, MuseumPlan)
        consumer = SimpleConsumer(
            GROUP,
            in_order=True,
            invisible_ms=plan.invisible_ms,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            name_server=self.name_server,
            config=PullConsumerConfig(
                serialize_type=self.serialize_type,
                pull_suspend_ms=_POLL_MS,
                consumer_pull_timeout_ms=_ANSWER_MS,
                heartbeat_broker_interval_ms=plan.lock_ms // 2,
                idle_close_ms=3 * plan.lock_ms,
            ),
            trace=TRACE,
            runtime=runtime,
            log=self.log_of(name),
        )
        consumer.subscribe(TOPIC)
        await self._start_traced(name, consumer, partial(self.start_member, name))
        runtime.create_task(_consume(consumer, plan), name="consume")


async def _consume(consumer: SimpleConsumer, plan: MuseumPlan) -> None:
    """One message after the other, until the shutdown."""
    while consumer.state is ServiceState.RUNNING:
        try:
            for delivery in await consumer.receive(plan.count_max):
                if not await _is_done(consumer, delivery, plan):
                    # The rest of the batch comes again, in order.
                    break
        except (ClientError, RemotingError):
            await asyncio.sleep(_AGAIN_S)


async def _is_done(consumer: SimpleConsumer, delivery: Delivery, plan: MuseumPlan) -> bool:
    """Handle and acknowledge a message; False: it is another client's, or may be."""
    handled = False
    for _ in range(_TRIES):
        try:
            if not handled:
                with consumer.handling(delivery):
                    await asyncio.sleep(plan.work_ms / 1000)
                handled = True
            await consumer.ack(delivery)
            return True
        except StaleDeliveryError:
            if handled or not await _is_taken_again(consumer, delivery, plan):
                return False
        except ConsumerError:
            return False
        except (ClientError, RemotingError):
            await asyncio.sleep(_AGAIN_S)
    return False


async def _is_taken_again(consumer: SimpleConsumer, delivery: Delivery, plan: MuseumPlan) -> bool:
    """A connection ended, and the broker may still keep the message for this client."""
    for _ in range(_TRIES):
        try:
            await consumer.change_invisible(delivery, plan.invisible_ms)
            return True
        except (StaleDeliveryError, ConsumerError):
            return False
        except (ClientError, RemotingError):
            await asyncio.sleep(_AGAIN_S)
    return False


class PopRun(PlayedStory):
    """A story of the lab with the messages of the exhibit; several that are sent at once are a batch of one key."""

    def __init__(self, world: World, plan: MuseumPlan) -> None:
        furnished = plan.furnished()
        super().__init__(world, furnished, Story("museum", "", self._story, furnished))
        app: UserApp = app_of(partial(lab_listener, plan.work_ms))
        self.cluster = _PopCluster(world, furnished, plan.events, app, None)
        self.findings = self.cluster.findings
        self._exhibited = plan
        self._count = 0
        self._until_ms = 0
        self._reset_ms = 0

    async def _story(self, cluster: StoryCluster) -> None:
        world, plan = cluster.world, self._exhibited
        await cluster.start()
        resets = [(plan.reset_at_ms, 0)] if plan.reset_at_ms else []
        sends = list[asyncio.Task[None]]()
        for at_ms, count in sorted([*plan.sends, *resets]):
            await cluster.at(max(at_ms, world.elapsed_ms))
            if count:
                sends.append(world.host(PRODUCER).create_task(self._send(count), name="send"))
            else:
                await self._reset()
        await asyncio.gather(*sends)
        await cluster.finish()
        self._until_ms = world.elapsed_ms

    async def _send(self, count: int) -> None:
        producer = self.cluster.client(PRODUCER)
        assert isinstance(producer, Producer)
        key, numbers = f"key{self._count % _KEYS}", range(self._count, self._count + count)
        self._count += count
        messages = [Message(TOPIC, str(number).encode(), sharding_key=key) for number in numbers]
        try:
            await (producer.send_batch(messages) if count > 1 else producer.send(messages[0]))
        except (ClientError, RemotingError):
            self.findings.saw("sends failed")

    async def _reset(self) -> None:
        """An administrator sets the group back to the first message of each queue."""
        world, cluster, plan = self.cluster.world, self.cluster, self._exhibited
        if not cluster.is_up(BROKER):
            return
        runtime = world.host(BROKER)
        admin = AdminClient(name_server=cluster.name_server, runtime=runtime, log=cluster.log_of(BROKER))

        async def reset() -> None:
            async with admin:
                for queue_id in range(plan.queues):
                    place = {"topic": TOPIC, "broker": BROKER, "queue_id": queue_id}
                    cluster.witness("reset", group=GROUP, offset=0, **place)
                    await admin.update_consumer_offset(GROUP, MessageQueue(TOPIC, BROKER, queue_id), 0)

        await runtime.run(reset())
        self._reset_ms = world.elapsed_ms

    def _judge(self) -> None:
        super()._judge()
        traces = {name: self.cluster.records(name) for name in self.cluster.traced_hosts}
        messages = list(_messages(traces))
        self.findings.wrong += _idle(messages, self.findings.bands, self._until_ms)
        if self._reset_ms:
            self.findings.wrong += _not_again(messages, self._reset_ms)


class _Message:
    """A message of the topic: when it was stored, and the begins and ends of its calls."""

    def __init__(self, sent: Record, calls: Sequence[Record]) -> None:
        self.queue_id, self.offset = sent["queue_id"], sent["offset"]
        self.stored_ms = _ms(sent["mono_ns"])
        self.calls = [(_ms(call["begin_mono_ns"]), _ms(call["mono_ns"])) for call in calls]


def _ms(mono_ns: int) -> int:
    return (mono_ns - START_NS) // 1_000_000


def _messages(traces: Mapping[str, Iterable[Record]]) -> Iterator[_Message]:
    """All messages of which a producer knows that they are stored, by queue and offset."""
    found = [
        record
        for records in traces.values()
        for record in records
        if record["event"] in ("sent", "handled") and record.get("topic") == TOPIC
    ]
    found.sort(key=lambda record: (record["queue_id"], record["offset"], record["mono_ns"]))
    for _, group in groupby(found, key=lambda record: (record["queue_id"], record["offset"])):
        records = list(group)
        sent = next((record for record in records if record["event"] == "sent"), None)
        if sent is not None:
            yield _Message(sent, [record for record in records if record["event"] == "handled"])


def _idle(messages: Sequence[_Message], bands: Sequence[Band], until_ms: int) -> Iterator[Finding]:
    """Messages that waited for too long while no call of their queue ran, and no fault disturbed the members."""
    for message in messages:
        begin_ms = message.calls[0][0] if message.calls else until_ms
        ends = [end for one in messages if one.queue_id == message.queue_id for _, end in one.calls if end <= begin_ms]
        faults = [band.end_ms or band.at_ms for band in bands if band.at_ms <= begin_ms]
        lasts = any(band.at_ms <= begin_ms and band.end_ms is None and band.fault in _LASTING for band in bands)
        free_ms = max(message.stored_ms, *ends, *(end + _RECOVERED_MS for end in faults), 0)
        if begin_ms - free_ms > _IDLE_MS and not lasts:
            text = (
                f"offset {message.offset} of queue {message.queue_id} waited {(begin_ms - free_ms) / 1000:.1f} s from "
                f"{free_ms / 1000:.1f} s on, while no call of its queue ran"
            )
            yield _finding(IDLE, begin_ms, text, message)


_LASTING: Final = ("hold", "partition", "slow")


def _not_again(messages: Sequence[_Message], reset_ms: int) -> Iterator[Finding]:
    """Messages that were not handled again after the group was set back to the first of them."""
    for message in messages:
        if message.stored_ms < reset_ms and not any(end > reset_ms for _, end in message.calls):
            text = (
                f"offset {message.offset} of queue {message.queue_id} was not handled again after the group was set "
                f"back at {reset_ms / 1000:.1f} s"
            )
            yield _finding(Wrong.RESET_UNDONE, reset_ms, text, message)


def _finding(kind: str, at_ms: int, text: str, message: _Message) -> Finding:
    return Finding(kind, at_ms, text, f"{TOPIC}/{BROKER}/{message.queue_id}", ())
