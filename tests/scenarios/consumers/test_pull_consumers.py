"""Consumers that pull by themselves (wire.md 12.10): when commits are stored, how queues change hands, what happens
while nobody polls."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

from lockstep.client import (
    AdminClient,
    ConsumeFromWhere,
    LitePullConsumer,
    LitePullConsumerConfig,
    MessageModel,
    MessageQueue,
    PullConsumer,
    PullConsumerConfig,
    PullStatus,
)
from lockstep.protocol.bodies.heartbeat import ConsumeType
from tests.scenarios.cluster import BROKER, TOPIC, Cluster
from tests.scenarios.scenario import INSTANT, scenario

GROUP = "pullers"
AUTO_COMMIT_MS, PERSIST_FIRST_MS, PERSIST_MS = 5000, 10_000, 5000
WATCH_FIRST_MS, WATCH_MS, ROUND_MS = 10_000, 30_000, 20_000
T = TypeVar("T")


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue(TOPIC, BROKER, queue_id)


class Puller:
    """A LitePullConsumer on a host of its own, and the texts it was handed."""

    config = LitePullConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

    def __init__(self, cluster: Cluster, name: str, model: MessageModel = MessageModel.CLUSTERING) -> None:
        self.cluster = cluster
        self.runtime = cluster.world.host(name)
        self.consumer = LitePullConsumer(
            GROUP,
            name_server=cluster.name_server,
            config=replace(self.config, serialize_type=cluster.serialize_type),
            message_model=model,
            runtime=self.runtime,
        )
        self.started_ms = 0
        self.texts: list[str] = []

    async def start(self, expression: str = "*") -> "Puller":
        """Subscribed, and its first round of the rebalance over."""
        self.consumer.subscribe(TOPIC, expression)
        await self.do(self.consumer.start())
        self.started_ms = self.cluster.world.elapsed_ms
        await self.cluster.world.until(self.consumer.assignment)
        return self

    async def do(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return await self.runtime.run(run())

    async def poll(self, timeout_ms: int = 100) -> list[str]:
        texts = [message.body.decode() for message in await self.do(self.consumer.poll(timeout_ms))]
        self.texts += texts
        return texts

    async def poll_all(self) -> list[str]:
        """Until there is nothing more."""
        while await self.poll():
            pass
        return self.texts

    async def end(self) -> None:
        await self.do(self.consumer.shutdown())


async def polled_after(cluster: Cluster, wait_ms: int) -> int:
    """What is stored at 10 s, when 10 of 20 messages were handed out and the next call came after `wait_ms`."""
    await cluster.broker_and_producer(queues=1)
    await cluster.send(20, queue_id=0)
    puller = await Puller(cluster, "p1").start()
    await cluster.at(puller.started_ms + PERSIST_FIRST_MS - AUTO_COMMIT_MS - 100)
    assert len(await puller.poll()) == 10
    await cluster.world.sleep_ms(wait_ms)
    assert len(await puller.poll()) == 10
    await cluster.at(puller.started_ms + PERSIST_FIRST_MS - 1)
    assert cluster.committed(group=GROUP) == -1, "nothing is sent before"
    await cluster.world.sleep_ms(2)
    stored = cluster.committed(group=GROUP)
    await puller.end()
    assert cluster.committed(group=GROUP) == 10, "what the last call handed out may not be handled"
    await cluster.end(judge=False)
    return stored


@scenario(INSTANT)
async def test_brokers_are_told_how_a_puller_consumes(cluster: Cluster) -> None:
    """The heartbeat of a broadcasting pull consumer says so (wire.md 12.1)."""
    await cluster.broker(queues=1)
    puller = await Puller(cluster, "p1", MessageModel.BROADCASTING).start()
    told = cluster.group(GROUP)
    assert (told.consume_type, told.message_model) == (ConsumeType.CONSUME_ACTIVELY, MessageModel.BROADCASTING)
    await puller.end()
    await cluster.end(judge=False)


@scenario(INSTANT)
async def test_the_commit_is_due_5_s_after_the_last(cluster: Cluster) -> None:
    """A poll 5000 ms after the first one commits the messages of earlier polls."""
    assert await polled_after(cluster, AUTO_COMMIT_MS) == 10


@scenario(INSTANT)
async def test_the_commit_is_not_due_before(cluster: Cluster) -> None:
    """At 4999 ms nothing is committed: the stored offset is where the queue began."""
    assert await polled_after(cluster, AUTO_COMMIT_MS - 1) == 0


@scenario(INSTANT)
async def test_a_commit_is_sent_with_the_next_5_s(cluster: Cluster) -> None:
    """Offsets are sent 10 s after the start and then every 5 s; commit_sync does not wait for that."""
    await cluster.broker_and_producer(queues=1)
    await cluster.send(30, queue_id=0)
    puller = await Puller(cluster, "p1").start()
    await cluster.at(puller.started_ms + PERSIST_FIRST_MS + 500)
    await puller.poll()
    puller.consumer.commit()
    await cluster.at(puller.started_ms + PERSIST_FIRST_MS + PERSIST_MS - 1)
    assert cluster.committed(group=GROUP) == 0
    await cluster.world.sleep_ms(2)
    assert cluster.committed(group=GROUP) == 10
    await puller.poll()
    await puller.do(puller.consumer.commit_sync())
    assert cluster.committed(group=GROUP) == 20
    assert await puller.do(puller.consumer.committed(queue(0))) == 20
    await puller.end()
    assert cluster.committed(group=GROUP) == 20, "the user said that all of it is handled"
    await cluster.end(judge=False)


@scenario()
async def test_queues_are_handed_over_with_their_offsets(cluster: Cluster) -> None:
    """A second member gets half of the queues at the first member's commit, and gives them back when it leaves: every
    message once, without a manual commit."""
    await cluster.broker_and_producer(queues=4)
    await cluster.send(80)
    first = await Puller(cluster, "p1").start()
    await first.poll_all()
    assert sorted(map(int, first.texts)) == list(range(80))
    await cluster.at(first.started_ms + AUTO_COMMIT_MS)
    assert await first.poll() == []
    await cluster.at(first.started_ms + PERSIST_FIRST_MS + 10)
    second = await Puller(cluster, "p2").start()
    await cluster.world.until(lambda: len(first.consumer.assignment()) == 2, timeout_ms=ROUND_MS)
    assert second.consumer.assignment() == [queue(2), queue(3)]
    await cluster.send(80)
    await first.poll_all()
    await second.poll_all()
    assert len(second.texts) == 40
    await second.end()
    await cluster.world.until(lambda: len(first.consumer.assignment()) == 4, timeout_ms=ROUND_MS)
    await cluster.send(80)
    await first.poll_all()
    assert sorted(map(int, first.texts + second.texts)) == list(range(240))
    await first.end()
    await cluster.end(judge=False)


@scenario()
async def test_a_crash_repeats_what_was_not_committed(cluster: Cluster) -> None:
    """The next member begins at the stored offset: delivery at least once."""
    await cluster.broker_and_producer(queues=1)
    await cluster.send(30, queue_id=0)
    first = await Puller(cluster, "p1").start()
    await first.poll()
    await first.do(first.consumer.commit_sync())
    await first.poll()
    cluster.crash("p1")
    second = await Puller(cluster, "p2").start()
    assert await second.poll_all() == [str(number) for number in range(10, 30)]
    await second.end()
    await cluster.end(judge=False)


@scenario()
async def test_an_iteration_commits_message_by_message(cluster: Cluster) -> None:
    """A consumer that leaves the loop in the middle of a message gets that message again, and none before it; a
    shutdown ends a waiting iteration."""
    await cluster.broker_and_producer(queues=1)
    await cluster.send(30, queue_id=0)
    first = await Puller(cluster, "p1").start()

    async def read(puller: Puller, stop_at: str | None = None) -> None:
        async for message in puller.consumer:
            puller.texts.append(message.body.decode())
            if message.body.decode() == stop_at:
                return

    await first.do(read(first, "12"))
    await first.end()
    assert cluster.committed(group=GROUP) == 12
    second = await Puller(cluster, "p2").start()
    reading = second.runtime.create_task(read(second), name="read")
    await cluster.world.until(lambda: len(second.texts) == 18)
    await second.end()
    await reading
    assert second.texts == [str(number) for number in range(12, 30)]
    await cluster.end(judge=False)


@scenario()
async def test_a_queue_without_messages_for_us_keeps_its_place(cluster: Cluster) -> None:
    """Messages that match no tag are passed: the group's offset moves over them, although none was returned."""
    await cluster.broker_and_producer(queues=1)
    await cluster.send(5, queue_id=0)
    puller = await Puller(cluster, "p1").start("somebody-elses")
    assert await puller.poll(1000) == []
    await puller.end()
    assert cluster.committed(group=GROUP) == 5
    await cluster.end(judge=False)


@scenario(INSTANT)
async def test_changes_of_a_topic_are_seen_within_30_s(cluster: Cluster) -> None:
    """The first check is 10 s after the start, the next ones 30 s apart; the listener gets all queues once."""
    await cluster.broker(queues=2)
    heard: list[tuple[int, str, list[MessageQueue]]] = []
    puller = Puller(cluster, "p1")
    await puller.do(
        puller.consumer.register_topic_message_queue_change_listener(
            TOPIC, lambda topic, queues: heard.append((cluster.world.elapsed_ms, topic, queues))
        )
    )
    puller.consumer.subscribe(TOPIC)
    await puller.do(puller.consumer.start())
    started_ms = cluster.world.elapsed_ms
    await cluster.at(started_ms + WATCH_FIRST_MS + 1)

    async def grow() -> None:
        async with AdminClient(name_server=cluster.name_server, runtime=cluster.world.host("admin")) as admin:
            await admin.create_topic(TOPIC, 3)

    await cluster.world.host("admin").run(grow())
    await cluster.at(started_ms + WATCH_FIRST_MS + WATCH_MS - 1)
    assert heard == []
    await cluster.at(started_ms + WATCH_FIRST_MS + 2 * WATCH_MS + 1)
    assert heard == [(started_ms + WATCH_FIRST_MS + WATCH_MS, TOPIC, [queue(0), queue(1), queue(2)])]
    await puller.end()
    await cluster.end(judge=False)


@scenario()
async def test_broadcasting_pollers_read_everything(cluster: Cluster) -> None:
    """Each has every queue, and goes on from its own file after a restart; the broker stores no offsets for them."""
    await cluster.broker_and_producer(queues=2)
    await cluster.send(20)
    pollers = [await Puller(cluster, name, MessageModel.BROADCASTING).start() for name in ("p1", "p2")]
    for poller in pollers:
        await poller.poll_all()
        assert sorted(map(int, poller.texts)) == list(range(20))
        await poller.end()
    await cluster.send(4)
    again = await Puller(cluster, "p1", MessageModel.BROADCASTING).start()
    assert sorted(map(int, await again.poll_all())) == [20, 21, 22, 23]
    await again.end()
    assert [cluster.committed(queue_id, group=GROUP) for queue_id in (0, 1)] == [-1, -1]
    await cluster.end(judge=False)


class ByHand:
    """A PullConsumer on a host of its own."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.runtime = cluster.world.host(name)
        self.consumer = PullConsumer(
            GROUP,
            name_server=cluster.name_server,
            config=PullConsumerConfig(serialize_type=cluster.serialize_type),
            runtime=self.runtime,
        )

    async def do(self, work: Awaitable[T]) -> T:
        async def run() -> T:
            return await work

        return await self.runtime.run(run())


@scenario()
async def test_pull_consumers_share_the_queues(cluster: Cluster) -> None:
    """Each is notified when its queues change; an offset is stored on the broker before its queue goes to another
    member."""
    await cluster.broker_and_producer(queues=4)
    await cluster.send(40)
    first, second = ByHand(cluster, "p1"), ByHand(cluster, "p2")
    told: list[tuple[int, int]] = []
    first.consumer.register_message_queue_listener(TOPIC, lambda _, every, own: told.append((len(every), len(own))))
    await first.do(first.consumer.start())
    assert await first.do(first.consumer.fetch_message_queues_in_balance(TOPIC)) == [queue(n) for n in range(4)]
    result = await first.do(first.consumer.pull(queue(3), "*", 0, 32))
    assert (result.status, len(result.messages), result.next_begin_offset) == (PullStatus.FOUND, 10, 10)
    first.consumer.update_consume_offset(queue(3), result.next_begin_offset)
    await second.do(second.consumer.start())
    assert await second.do(second.consumer.fetch_message_queues_in_balance(TOPIC)) == [queue(2), queue(3)]
    await cluster.world.until(lambda: len(told) == 2, timeout_ms=ROUND_MS)
    assert told == [(4, 4), (4, 2)]
    await cluster.world.sleep_ms(100)
    assert await second.do(second.consumer.fetch_consume_offset(queue(3))) == 10
    for by_hand in (first, second):
        await by_hand.do(by_hand.consumer.shutdown())
    await cluster.end(judge=False)


@scenario(INSTANT)
async def test_a_pull_waits_for_a_message_or_20_s(cluster: Cluster) -> None:
    """pull_block_if_not_found returns with a message that arrives meanwhile, else after 20 s at the broker's next 5 s
    sweep. pull does not wait."""
    await cluster.broker_and_producer(queues=1)
    by_hand = ByHand(cluster, "p1")
    await by_hand.do(by_hand.consumer.start())
    began_ms = cluster.world.elapsed_ms
    assert (await by_hand.do(by_hand.consumer.pull(queue(0), "*", 0, 1))).status is PullStatus.NO_NEW_MSG
    assert cluster.world.elapsed_ms - began_ms < 100
    waiting = asyncio.ensure_future(by_hand.do(by_hand.consumer.pull_block_if_not_found(queue(0), "*", 0, 1)))
    await cluster.world.sleep_ms(12_345)
    assert not waiting.done()
    await cluster.send(1, queue_id=0)
    await cluster.world.sleep_ms(10)
    assert waiting.done()
    assert [message.body for message in (await waiting).messages] == [b"0"]
    began_ms = cluster.world.elapsed_ms
    result = await by_hand.do(by_hand.consumer.pull_block_if_not_found(queue(0), "*", 1, 1))
    assert (result.status, result.next_begin_offset, result.max_offset) == (PullStatus.NO_NEW_MSG, 1, 1)
    assert 20_000 <= cluster.world.elapsed_ms - began_ms <= 25_000
    await by_hand.do(by_hand.consumer.shutdown())
    await cluster.end(judge=False)
