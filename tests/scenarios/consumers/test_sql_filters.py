"""Consumers filter by SQL92 on properties where brokers allow it (wire.md 6.5, 12.2)."""

import pytest

from lockstep.client import (
    ConsumerConfig,
    ConsumerError,
    LitePullConsumer,
    LitePullConsumerConfig,
    Message,
    MessageQueue,
    MessageSelector,
    Producer,
    ProducerConfig,
    PullConsumer,
    PullConsumerConfig,
    PullStatus,
    PushConsumer,
)
from tests.scenarios.cluster import BROKER, GROUP, TOPIC, Cluster
from tests.scenarios.scenario import scenario

BIG = MessageSelector.by_sql("size > 2 AND color IN ('red', 'blue')")
SIZES = {"1": "red", "3": "red", "4": "green", "5": "blue"}


async def _send_sizes(cluster: Cluster) -> None:
    """Without a trace: the judge would miss what nobody wants."""
    runtime = cluster.world.host("producer")
    config = ProducerConfig(serialize_type=cluster.serialize_type)
    producer = Producer("producers", name_server=cluster.name_server, config=config, runtime=runtime)
    await runtime.run(producer.start())
    for size, color in SIZES.items():
        message = Message(TOPIC, size.encode(), tags="t", properties={"size": size, "color": color})
        await runtime.run(producer.send(message, queue=MessageQueue(TOPIC, BROKER, 0)))
    await runtime.run(producer.shutdown())


def _consumer(cluster: Cluster, name: str, expression: str | MessageSelector) -> PushConsumer:
    runtime = cluster.world.host(name)
    consumer = PushConsumer(
        GROUP,
        name_server=cluster.name_server,
        config=ConsumerConfig(serialize_type=cluster.serialize_type),
        listener=cluster.seen.listener(runtime, 0, {}, None),
        runtime=runtime,
    )
    consumer.subscribe(TOPIC, expression)
    return consumer


@scenario()
async def test_only_what_matches_is_pushed(cluster: Cluster) -> None:
    """Of stored and of new messages. The offset moves over messages that do not match, so that a restart begins after
    them."""
    await cluster.broker(queues=1, property_filter=True)
    await _send_sizes(cluster)
    runtime = cluster.world.host("c1")
    consumer = _consumer(cluster, "c1", BIG)
    await runtime.run(consumer.start())
    await cluster.world.until(lambda: len(cluster.seen.all) == 2, timeout_ms=10_000, poll_ms=100)
    await _send_sizes(cluster)
    await cluster.world.until(lambda: len(cluster.seen.all) == 4, timeout_ms=1000, poll_ms=10)
    assert [call.text for call in cluster.seen.all] == ["3", "5"] * 2
    await cluster.world.sleep_ms(10_000)
    await runtime.run(consumer.shutdown())
    assert cluster.committed() == 8


@scenario()
async def test_a_broker_that_may_not_filter_so_refuses_the_start(cluster: Cluster) -> None:
    """CHECK_CLIENT_CONFIG is sent before the first heartbeat: the start fails at once with the broker's text."""
    await cluster.broker()
    consumer = _consumer(cluster, "c1", BIG)
    with pytest.raises(ConsumerError, match="cannot filter topic 'Aircraft' by SQL92: The broker does not support"):
        await cluster.world.host("c1").run(consumer.start())
    tags = _consumer(cluster, "c2", MessageSelector.by_tag("t"))
    await cluster.world.host("c2").run(tags.start())
    await cluster.world.host("c2").run(tags.shutdown())


@scenario()
async def test_an_expression_that_cannot_be_refuses_the_start(cluster: Cluster) -> None:
    """A wrong expression is refused with the reason and the place."""
    await cluster.broker(property_filter=True)
    consumer = _consumer(cluster, "c1", MessageSelector.by_sql("size LIKE '3'"))
    with pytest.raises(ConsumerError, match="at character 6: unexpected 'LIKE'"):
        await cluster.world.host("c1").run(consumer.start())


@scenario()
async def test_an_expression_is_changed_while_the_consumer_runs(cluster: Cluster) -> None:
    """The new subscription has a higher version, and the broker compiles its expression."""
    await cluster.broker(queues=1, property_filter=True)
    runtime = cluster.world.host("c1")
    consumer = _consumer(cluster, "c1", BIG)
    await runtime.run(consumer.start())
    await cluster.world.sleep_ms(5000)
    consumer.subscribe(TOPIC, MessageSelector.by_sql("color = 'green' OR size IS NULL"))
    await cluster.world.sleep_ms(40_000)  # a pull that was parked with the old one has ended
    await _send_sizes(cluster)
    await cluster.world.sleep_ms(1000)
    assert [call.text for call in cluster.seen.all] == ["4"]
    await runtime.run(consumer.shutdown())


@scenario()
async def test_who_pulls_may_filter_so_too(cluster: Cluster) -> None:
    """Pull consumers send the expression with each pull, whether offsets are the caller's or the group's."""
    await cluster.broker(queues=1, property_filter=True)
    await _send_sizes(cluster)
    runtime, names = cluster.world.host("c1"), cluster.name_server
    pulling = PullConsumer(
        GROUP, name_server=names, config=PullConsumerConfig(serialize_type=cluster.serialize_type), runtime=runtime
    )
    await runtime.run(pulling.start())
    result = await runtime.run(pulling.pull(MessageQueue(TOPIC, BROKER, 0), BIG, 0, 32))
    assert (result.status, [message.body for message in result.messages]) == (PullStatus.FOUND, [b"3", b"5"])
    await runtime.run(pulling.shutdown())

    lite_config = LitePullConsumerConfig(serialize_type=cluster.serialize_type)
    lite = LitePullConsumer(f"{GROUP}-lite", name_server=names, config=lite_config, runtime=runtime)
    lite.subscribe(TOPIC, BIG)
    await runtime.run(lite.start())
    assert [message.body for message in await runtime.run(lite.poll(10_000))] == [b"3", b"5"]
    await runtime.run(lite.shutdown())
