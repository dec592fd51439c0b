"""One body among others cannot be unpacked: in every ordering the queue goes on."""

from typing import Any

import pytest

from lockstep.client import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumerConfig,
    LitePullConsumer,
    LitePullConsumerConfig,
    MessageExt,
    MessageModel,
    Producer,
    PushConsumer,
    SerializeType,
)
from lockstep.client.consumer.dispatch.table import OrderingName
from lockstep.remoting.logs import EventLog
from lockstep.simulation import SimRuntime
from tests.scenarios.cluster import TOPIC, Cluster
from tests.scenarios.scenario import INSTANT, Mode, Scenario, scenario

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
ZSTD = 0x201
GOT = [(b"0", False), (b"no zstd", True), (b"2", False)]


async def poisoned(cluster: Cluster, bad: bytes = b"1", count: int = 3) -> Producer:
    """A queue with messages "0", "1", and so on; the sysFlag of `bad` says zstd, and its body is none."""
    await cluster.broker(queues=1)
    producer = await cluster.producer(compress_msg_body_over_howmuch=1)
    assert producer._parts is not None

    def corrupt(body: bytes, flag: int) -> tuple[bytes, int]:
        return (b"no zstd", flag | ZSTD) if body == bad else (body, flag)

    producer._parts.requests._compress = corrupt  # type: ignore[method-assign, assignment]
    await cluster.send(count, keys=1)
    return producer


def got(messages: list[MessageExt]) -> list[tuple[bytes, bool]]:
    return [(message.body, message.body_error is not None) for message in messages]


@pytest.mark.parametrize("model", list(MessageModel), ids=lambda model: model.name)
@pytest.mark.parametrize("ordering", ["queue", "key", "none"])
def test_every_ordering_hands_it_out(ordering: OrderingName, model: MessageModel) -> None:
    """The listener gets the stored body with a flag. All three messages are handled and committed."""

    async def story(cluster: Cluster) -> None:
        await poisoned(cluster)
        seen: list[MessageExt] = []

        async def listen(messages: list[MessageExt], _: object) -> ConsumeConcurrentlyStatus | None:
            seen.extend(messages)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS if ordering == "none" else None

        await cluster.start_client("c9", lambda *parts: consumer(cluster, parts, listen, ordering, model))
        await cluster.world.until(lambda: len(seen) == 3)
        assert sorted(got(seen)) == sorted(GOT)
        await cluster.leave("c9")
        if model is MessageModel.CLUSTERING:
            assert cluster.committed(group="unread") == 3
        assert len(cluster.events("message_unreadable", offset=1)) == 1
        await cluster.end(judge=False)

    Scenario("unreadable", story, INSTANT).run(Mode(SerializeType.MSGPACK))


def consumer(
    cluster: Cluster,
    parts: tuple[SimRuntime, EventLog],
    listen: Any,
    ordering: OrderingName,
    model: MessageModel = MessageModel.CLUSTERING,
    *,
    unreadable_to_dead_letters: bool = False,
) -> PushConsumer:
    runtime, log = parts
    config = ConsumerConfig(consume_from_where=FIRST, unreadable_to_dead_letters=unreadable_to_dead_letters)
    made = PushConsumer(
        "unread", name_server=cluster.name_server, config=config,
        listener=listen, ordering=ordering, message_model=model, runtime=runtime, log=log,
    )  # fmt: skip
    made.subscribe(TOPIC)
    return made


@pytest.mark.parametrize("ordering", ["queue", "key", "none"])
def test_by_a_setting_it_becomes_a_dead_letter(ordering: OrderingName) -> None:
    """With the setting the listener never gets it. The dead letter has the bytes and the flag of the message, and the
    offset moves on."""

    async def story(cluster: Cluster) -> None:
        await poisoned(cluster)
        seen: list[MessageExt] = []

        async def listen(messages: list[MessageExt], _: object) -> ConsumeConcurrentlyStatus | None:
            seen.extend(messages)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS if ordering == "none" else None

        await cluster.start_client(
            "c9", lambda *parts: consumer(cluster, parts, listen, ordering, unreadable_to_dead_letters=True)
        )
        await cluster.world.until(lambda: bool(cluster.stored(topic="%DLQ%unread")), timeout_ms=300_000)
        await cluster.world.until(lambda: len(seen) == 2)
        assert sorted(got(seen)) == [GOT[0], GOT[2]]
        (letter,) = cluster.stored(topic="%DLQ%unread")
        assert (letter.body, letter.sys_flag, letter.sharding_key) == (b"no zstd", ZSTD, "key0")
        assert "not zstd" in (letter.body_error or "")
        await cluster.leave("c9")
        assert cluster.committed(group="unread") == 3
        await cluster.end(judge=False)

    Scenario("unreadable", story, INSTANT).run(Mode(SerializeType.MSGPACK))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("ordering", ["queue", "key", "none"])
def test_the_offset_moves_over_dead_letters_at_the_end(ordering: OrderingName, count: int) -> None:
    """Alone or behind others, no message moves it later: the next owner of the queue makes no second dead letter."""

    async def story(cluster: Cluster) -> None:
        await poisoned(cluster, bad=b"%d" % (count - 1), count=count)
        seen: list[MessageExt] = []

        async def listen(messages: list[MessageExt], _: object) -> ConsumeConcurrentlyStatus | None:
            seen.extend(messages)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS if ordering == "none" else None

        await cluster.start_client(
            "c9", lambda *parts: consumer(cluster, parts, listen, ordering, unreadable_to_dead_letters=True)
        )
        await cluster.world.until(lambda: bool(cluster.stored(topic="%DLQ%unread")), timeout_ms=300_000)
        await cluster.world.sleep_ms(1_000)  # a pull that ends in vain would move the offset too, later
        await cluster.leave("c9")
        assert cluster.committed(group="unread") == count
        assert len(cluster.stored(topic="%DLQ%unread")) == 1
        assert sorted(message.body for message in seen) == [b"%d" % number for number in range(count - 1)]
        await cluster.end(judge=False)

    Scenario("unreadable", story, INSTANT).run(Mode(SerializeType.MSGPACK))


def test_a_broadcasting_consumer_makes_no_dead_letter() -> None:
    """Each member would make one. The listener gets the message, whatever the setting says."""

    async def story(cluster: Cluster) -> None:
        await poisoned(cluster)
        seen: list[MessageExt] = []

        async def listen(messages: list[MessageExt], _: object) -> None:
            seen.extend(messages)

        def make(*parts: Any) -> PushConsumer:
            model = MessageModel.BROADCASTING
            return consumer(cluster, parts, listen, "queue", model, unreadable_to_dead_letters=True)

        await cluster.start_client("c9", make)
        await cluster.world.until(lambda: len(seen) == 3)
        assert got(seen) == GOT
        assert cluster.stored(topic="%DLQ%unread") == []
        await cluster.end(judge=False)

    Scenario("unreadable", story, INSTANT).run(Mode(SerializeType.MSGPACK))


@scenario(INSTANT)
async def test_a_failed_listener_keeps_its_bytes(cluster: Cluster) -> None:
    """After its attempts in order, or sent back by the broker without order, the message has the stored bytes."""
    await poisoned(cluster)
    again: list[MessageExt] = []

    async def listen(messages: list[MessageExt], _: object) -> ConsumeConcurrentlyStatus:
        (message,) = messages
        if message.body_error is not None:
            again.append(message)
        failed = message.body_error is not None and len(again) == 1
        return ConsumeConcurrentlyStatus.RECONSUME_LATER if failed else ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    await cluster.start_client("c9", lambda *parts: consumer(cluster, parts, listen, "none"))
    await cluster.world.until(lambda: len(again) == 2, timeout_ms=300_000)
    assert [(message.body, message.sys_flag, message.reconsume_times) for message in again] == [
        (b"no zstd", ZSTD, 0),
        (b"no zstd", ZSTD, 1),
    ]
    await cluster.end(judge=False)


@scenario(INSTANT)
async def test_those_who_ask_get_it_too(cluster: Cluster) -> None:
    """A LitePullConsumer polls all three messages and goes on."""
    await poisoned(cluster)

    def lite(runtime: SimRuntime, log: EventLog) -> LitePullConsumer:
        config = LitePullConsumerConfig(consume_from_where=FIRST)
        made = LitePullConsumer("lite", name_server=cluster.name_server, config=config, runtime=runtime, log=log)
        made.subscribe(TOPIC)
        return made

    client = await cluster.start_client("c9", lite)
    found: list[MessageExt] = []
    while len(found) < 3:
        found += await cluster.world.host("c9").run(client.poll(timeout_ms=1000))
    assert got(found) == GOT
    await cluster.end(judge=False)
