"""rocketmq-exporter's requests, as its threads have them in flight on one connection: none is refused.

Every thread waits for its answer before it asks again.
Source: apache/rocketmq-exporter, `task/MetricsCollectTask` and the runnables beside it; for the requests behind each of
their calls, DefaultMQAdminExtImpl of RocketMQ 4.9.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar

from lockstep.client import ConsumeFromWhere, ConsumerConfig, Message, ProducerConfig, PushConsumer
from lockstep.protocol.bodies.admin import BrokerStatsData, ConsumeStats, GroupList, TopicStatsTable
from lockstep.protocol.bodies.broker import ClusterInfo, TopicList, TopicRouteData
from lockstep.protocol.bodies.client import ConsumerConnection, ConsumerRunningInfo
from lockstep.protocol.bodies.codec import WireBody, decode_body
from lockstep.protocol.codes import RequestCode as R
from lockstep.protocol.codes import ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.testing.peer import Peer, json_request
from tests.integration.harness.attacked import Attack, Attacked, producer_of
from tests.integration.harness.processes import PATIENT, until

B = TypeVar("B", bound=WireBody)

TOPICS, QUEUES, GROUPS, ROUNDS = 25, 4, 10, 3
# `task.count`, and the sizes of the two pools of threads.
SCHEDULER_THREADS, CLIENT_THREADS, TOPIC_THREADS = 5, 10, 20
# Apache's broker answers so too, and the exporter counts no sample then: statistics that nothing was counted for, no
# message at an offset, no member online.
NOTHING_TO_SAY: Final = {
    (R.VIEW_BROKER_STATS_DATA, ResponseCode.SYSTEM_ERROR),
    (R.PULL_MESSAGE, ResponseCode.PULL_NOT_FOUND),
    (R.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE),
}


class Connection:
    """Many requests in flight; answers come in any order, as Java's client takes them."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.answers: Counter[tuple[R, int]] = Counter()
        self.remarks: set[str] = set()
        self._waiting: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._count = 0
        self.in_flight_most = 0

    async def read(self) -> None:
        while True:
            reply = await self._peer.reply()
            self._waiting.pop(reply.opaque).set_result(reply)

    async def ask(self, code: R, **fields: object) -> RemotingCommand:
        self._count += 1
        opaque, texts = self._count, {name: _java_text(value) for name, value in fields.items()}
        answer: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = answer
        self.in_flight_most = max(self.in_flight_most, len(self._waiting))
        java: dict[str, Any] = {"language": "JAVA", "version": 399, "serializeTypeCurrentRPC": "JSON"}
        await self._peer.send(json_request(int(code), texts or None, opaque=opaque, **java))
        reply = await answer
        self.answers[code, reply.code] += 1
        if reply.code == ResponseCode.SYSTEM_ERROR:
            self.remarks.add(reply.remark or "")
        return reply

    async def body(self, body_class: type[B], code: R, **fields: object) -> B:
        reply = await self.ask(code, **fields)
        assert reply.code == ResponseCode.SUCCESS, (code, reply.remark)
        return decode_body(body_class, reply.body, SerializeType.JSON)


def _java_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Exporter:
    """One round asks all that the tasks of a turn of its schedule ask. `samples`: what it could count."""

    def __init__(self, broker: Connection, name_server: Connection) -> None:
        self._broker, self._name_server = broker, name_server
        self._topic_threads, self._client_threads = asyncio.Semaphore(TOPIC_THREADS), asyncio.Semaphore(CLIENT_THREADS)
        self._scheduler_threads = asyncio.Semaphore(SCHEDULER_THREADS)
        self._pooled: list[asyncio.Task[None]] = []
        self.samples: Counter[str] = Counter()

    async def round(self) -> None:
        tasks = (
            self._topic_offsets,
            self._consumer_offsets,
            self._topic_statistics,
            self._broker_statistics,
            self._broker_runtime,
            self._producers,
        )
        await asyncio.gather(*(self._on(self._scheduler_threads, task()) for task in tasks))
        await asyncio.gather(*self._pooled)
        self._pooled.clear()

    async def has_seen(self, groups: set[str]) -> bool:
        """Whether each group is of one of the topics by now."""
        return groups <= {group for topic in await self._topics() for group in await self._groups_of(topic)}

    async def _on(self, threads: asyncio.Semaphore, work: Coroutine[Any, Any, None]) -> None:
        async with threads:
            await work

    def _submit(self, threads: asyncio.Semaphore, work: Coroutine[Any, Any, None]) -> None:
        self._pooled.append(asyncio.create_task(self._on(threads, work)))

    async def _topics(self) -> tuple[str, ...]:
        return (await self._name_server.body(TopicList, R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)).topic_list

    async def _route(self, topic: str) -> None:
        await self._name_server.body(TopicRouteData, R.GET_ROUTEINFO_BY_TOPIC, topic=topic)

    async def _cluster(self) -> ClusterInfo:
        return await self._name_server.body(ClusterInfo, R.GET_BROKER_CLUSTER_INFO)

    async def _groups_of(self, topic: str) -> tuple[str, ...]:
        await self._route(topic)
        return (await self._broker.body(GroupList, R.QUERY_TOPIC_CONSUME_BY_WHO, topic=topic)).group_list

    async def _topic_offsets(self) -> None:
        for topic in await self._topics():
            self._submit(self._topic_threads, self._offsets_of(topic))

    async def _offsets_of(self, topic: str) -> None:
        await self._route(topic)
        table = (await self._broker.body(TopicStatsTable, R.GET_TOPIC_STATS_INFO, topic=topic)).offset_table
        self.samples[f"messages of {topic}"] += sum(offset.max_offset for offset in table.values())

    async def _consumer_offsets(self) -> None:
        collected = set()
        for topic in await self._topics():
            for group in await self._groups_of(topic):
                await self._route(f"%RETRY%{group}")
                online = await self._broker.ask(R.GET_CONSUMER_CONNECTION_LIST, consumerGroup=group)
                if online.code == ResponseCode.SUCCESS and group not in collected:
                    collected.add(group)
                    members = decode_body(ConsumerConnection, online.body, SerializeType.JSON)
                    self._submit(self._client_threads, self._clients_of(group, members))
                await self._route(f"%RETRY%{group}")
                await self._lag_of(topic, group)

    async def _lag_of(self, topic: str, group: str) -> None:
        stats = await self._broker.body(ConsumeStats, R.GET_CONSUME_STATS, consumerGroup=group, topic=topic)
        self.samples[f"queues of {group} in {topic}"] += len(stats.offset_table)
        for queue, offsets in stats.offset_table.items():
            # Without a wait, and with its subscription: `DefaultMQPullConsumer.pull`.
            pull = {"consumerGroup": "TOOLS_CONSUMER", "topic": topic, "queueId": queue.queue_id, "maxMsgNums": 1}
            about = {"queueOffset": max(offsets.consumer_offset, 0), "commitOffset": 0, "sysFlag": 4, "subVersion": 0}
            await self._broker.ask(
                R.PULL_MESSAGE, **pull, **about, suspendTimeoutMillis=20_000, subscription="*", expressionType="TAG"
            )

    async def _clients_of(self, group: str, members: ConsumerConnection) -> None:
        for member in members.connection_set:
            await self._route(f"%RETRY%{group}")
            asked = {"consumerGroup": group, "clientId": member.client_id, "jstackEnable": False}
            reply = await self._broker.ask(R.GET_CONSUMER_RUNNING_INFO, **asked)
            info = decode_body(ConsumerRunningInfo, reply.body, SerializeType.JSON)
            self.samples["clients"] += len(info.status_table) > 0

    async def _topic_statistics(self) -> None:
        topics = await self._topics()
        await self._cluster()
        for topic in topics:
            if not topic.startswith(("%RETRY%", "%DLQ%")):
                await self._route(topic)
                self._submit(self._topic_threads, self._statistics_of(topic))

    async def _statistics_of(self, topic: str) -> None:
        await self._statistic("TOPIC_PUT_NUMS", topic)
        await self._statistic("TOPIC_PUT_SIZE", topic)
        await self._groups_of(topic)
        for group in await self._groups_of(topic):
            for name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS"):
                await self._statistic(name, f"{topic}@{group}")

    async def _statistic(self, name: str, key: str) -> None:
        reply = await self._broker.ask(R.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
        if reply.code == ResponseCode.SUCCESS:
            decode_body(BrokerStatsData, reply.body, SerializeType.JSON)
            self.samples[name] += 1

    async def _broker_statistics(self) -> None:
        for name in (await self._cluster()).to_wire()["clusterAddrTable"]:
            await self._statistic("BROKER_PUT_NUMS", name)
            await self._statistic("BROKER_GET_NUMS", name)

    async def _broker_runtime(self) -> None:
        await self._cluster()
        reply = await self._broker.ask(R.GET_BROKER_RUNTIME_INFO)
        self.samples["runtime"] += len(json.loads(reply.body)["table"]) > 0

    async def _producers(self) -> None:
        await self._cluster()
        reply = await self._broker.ask(R.GET_ALL_PRODUCER_INFO)
        self.samples["producers"] += len(json.loads(reply.body)["data"])


def topics_of(group: int) -> range:
    return range(group, TOPICS, GROUPS)


@asynccontextmanager
async def consuming(target: Attacked) -> AsyncIterator[None]:
    """A message in each queue, and ten groups with a member each, of two or three topics, which commits soon."""
    settings: dict[str, Any] = {"persist_consumer_offset_first_ms": 10, "persist_consumer_offset_interval_ms": 10}
    config = ConsumerConfig(**PATIENT, **settings, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(producer_of(target, ProducerConfig(**PATIENT)))
        for number in range(TOPICS):
            for queue in await producer.queues(f"T{number}"):
                await producer.send(Message(f"T{number}", b"one"), queue=queue)
        for number in range(GROUPS):
            consumer = PushConsumer(
                f"G{number}",
                name_server=target.name_server,
                config=config,
                listener=lambda messages, _: None,
                ordering="queue",
                runtime=target.runtime,
            )
            for topic in topics_of(number):
                consumer.subscribe(f"T{topic}")
            await stack.enter_async_context(consumer)
        yield


@asynccontextmanager
async def connected(target: Attacked, port: str) -> AsyncIterator[Connection]:
    async with target.peer(port) as peer:
        connection = Connection(peer)
        reading = asyncio.create_task(connection.read())
        try:
            yield connection
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def scraped(target: Attacked) -> None:
    async with consuming(target), connected(target, "broker") as broker, connected(target, "name server") as names:
        exporter = Exporter(broker, names)
        everyone = {f"G{number}" for number in range(GROUPS)}
        await until(lambda: exporter.has_seen(everyone), "each group has committed in its topics")
        exporter.samples.clear()
        for _ in range(ROUNDS):
            await exporter.round()
    assert {answer for answer in broker.answers if answer[1] != ResponseCode.SUCCESS} <= NOTHING_TO_SAY
    assert {answer[1] for answer in names.answers} == {ResponseCode.SUCCESS}
    assert all("> not exist" in remark for remark in broker.remarks), broker.remarks
    found = exporter.samples
    assert {found[f"messages of T{number}"] for number in range(TOPICS)} == {QUEUES * ROUNDS}
    pairs = [(f"G{group}", f"T{topic}") for group in range(GROUPS) for topic in topics_of(group)]
    assert {found[f"queues of {group} in {topic}"] for group, topic in pairs} == {QUEUES * ROUNDS}
    assert (found["clients"], found["runtime"], found["producers"]) == (GROUPS * ROUNDS, ROUNDS, ROUNDS)
    assert (found["TOPIC_PUT_NUMS"], found["GROUP_GET_NUMS"]) == (TOPICS * ROUNDS, len(pairs) * ROUNDS)
    assert broker.in_flight_most > TOPIC_THREADS


def test_rocketmq_exporter_is_not_refused(attack: Attack) -> None:
    """25 topics, 10 groups, three rounds: each answer has what the exporter reads, and none is a refusal."""
    topics = [option for number in range(TOPICS) for option in ("--topic", f"T{number}:{QUEUES}")]
    attack(scraped, *topics)
