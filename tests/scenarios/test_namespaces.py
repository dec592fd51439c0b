"""Two tenants on one broker with the same topic and the same group see nothing of each other."""

from functools import partial
from typing import Any

from lockstep.client import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeMessageContext,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
    SendMessageContext,
)
from tests.scenarios.cluster import Cluster
from tests.scenarios.scenario import scenario

TOPIC = "Orders"
Seen = list[tuple[str, str, MessageQueue, int]]  # topic, body, the context's queue, reconsume times


async def _producer(cluster: Cluster, namespace: str | None) -> Producer:
    return await cluster.own_producer(f"{namespace}-producer", "clerks", namespace=namespace)


async def _consumer(
    cluster: Cluster, namespace: str, listener: Any, *, ordering: Any = "queue", **settings: Any
) -> PushConsumer:
    given = {"namespace": namespace, "ordering": ordering}
    return await cluster.own_consumer(
        f"{namespace}-consumer", "desk", listener, topics=[TOPIC], settings=settings, **given
    )


def _note(seen: Seen, messages: list[MessageExt], queue: MessageQueue) -> None:
    seen.extend((message.topic, message.body.decode(), queue, message.reconsume_times) for message in messages)


def _has_all(consumer: PushConsumer) -> bool:
    return len(consumer.positions) == 5


def _three_of(text: str, seen: Seen) -> bool:
    return [body for _, body, _, _ in seen].count(text) == 3


async def _send(cluster: Cluster, producer: Producer, namespace: str, body: bytes, **where: Any) -> MessageQueue:
    result = await cluster.world.host(f"{namespace}-producer").run(producer.send(Message(TOPIC, body), **where))
    return result.queue


class Hook:
    """Notes the context of each call."""

    def __init__(self, contexts: list[Any]) -> None:
        self._contexts = contexts

    def before(self, context: Any) -> None:
        self._contexts.append(context)

    def after(self, _context: Any) -> None:
        pass


@scenario()
async def test_tenants_do_not_meet(cluster: Cluster) -> None:
    """Listeners, contexts, results, selectors, hooks and assignments have bare names; brokers have wrapped names."""
    await cluster.broker()
    seen: dict[str, Seen] = {"red": [], "blue": []}
    hooked: list[SendMessageContext] = []
    calls: list[ConsumeMessageContext] = []
    for namespace, own in seen.items():

        async def listen(messages: list[MessageExt], context: ConsumeOrderlyContext, own: Seen = own) -> None:
            _note(own, messages, context.message_queue)

        producer = await _producer(cluster, namespace)
        producer.register_send_message_hook(Hook(hooked))
        await _send(cluster, producer, namespace, b"before")
        consumer = await _consumer(cluster, namespace, listen)
        consumer.register_consume_message_hook(Hook(calls))
        await cluster.world.until(partial(_has_all, consumer))
        topics = {queue.topic for queue in consumer.assigned_queues}
        assert topics == {TOPIC, "%RETRY%desk"}
        assert consumer.group == f"{namespace}%desk"
        chosen: list[list[MessageQueue]] = []
        queues = [
            await _send(cluster, producer, namespace, namespace.encode(), sharding_key="k"),
            await _send(cluster, producer, namespace, namespace.encode(), queue=MessageQueue(TOPIC, "broker", 3)),
            await _send(
                cluster,
                producer,
                namespace,
                namespace.encode(),
                selector=lambda queues, _message, _arg, chosen=chosen: chosen.append(list(queues)) or queues[1],
            ),
        ]
        assert {queue.topic for queue in queues} == {queue.topic for queue in chosen[0]} == {TOPIC}
        await cluster.world.until(partial(_three_of, namespace, own))
    for namespace, own in seen.items():
        assert {body for _, body, _, _ in own} <= {namespace, "before"}
        assert {topic for topic, _, _, _ in own} == {queue.topic for _, _, queue, _ in own} == {TOPIC}
        (stored, *_) = cluster.stored(3, topic=f"{namespace}%{TOPIC}")
        assert stored.properties["INSTANCE_ID"] == namespace
    assert {context.queue.topic for context in hooked} == {context.messages[0].topic for context in hooked} == {TOPIC}
    assert {(call.namespace, call.consumer_group, call.queue.topic) for call in calls} == {
        ("red", "red%desk", TOPIC),
        ("blue", "blue%desk", TOPIC),
    }
    assert {context.producer_group for context in hooked} == {"red%clerks", "blue%clerks"}


@scenario()
async def test_retries_and_dead_letters_stay_in_their_namespace(cluster: Cluster) -> None:
    """A failing message comes again under its bare name, and ends in the tenant's own dead letters."""
    await cluster.broker()
    seen: Seen = []

    async def fail(messages: list[MessageExt], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        _note(seen, messages, context.message_queue)
        return ConsumeConcurrentlyStatus.RECONSUME_LATER

    producer = await _producer(cluster, "red")
    await _send(cluster, producer, "red", b"bad")
    await _consumer(cluster, "red", fail, ordering="none", max_reconsume_times=1)
    await cluster.world.until(lambda: cluster.stored(topic="%DLQ%red%desk"), timeout_ms=60_000)
    assert [(topic, body, times) for topic, body, _, times in seen] == [(TOPIC, "bad", 0), (TOPIC, "bad", 1)]
    assert [queue.topic for _, _, queue, _ in seen] == [TOPIC, "%RETRY%desk"]
    (retried,) = cluster.stored(topic="%RETRY%red%desk")
    assert retried.properties["RETRY_TOPIC"] == f"red%{TOPIC}"
    (dead,) = cluster.stored(topic="%DLQ%red%desk")
    assert dead.properties["RETRY_TOPIC"] == f"red%{TOPIC}"


@scenario()
async def test_an_ordered_dead_letter_stays_in_its_namespace(cluster: Cluster) -> None:
    """In order the consumer sends the dead letter, with the topic's name as the broker knows it."""
    await cluster.broker()
    seen: Seen = []

    async def fail(messages: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        _note(seen, messages, context.message_queue)
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT

    producer = await _producer(cluster, "red")
    await _send(cluster, producer, "red", b"bad")
    await _consumer(cluster, "red", fail, max_reconsume_times=1)
    await cluster.world.until(lambda: cluster.stored(topic="%DLQ%red%desk"), timeout_ms=60_000)
    assert [(topic, body, times) for topic, body, _, times in seen] == [(TOPIC, "bad", 0), (TOPIC, "bad", 1)]
    (dead,) = cluster.stored(topic="%DLQ%red%desk")
    assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"bad", f"red%{TOPIC}")
    assert cluster.stored(topic="%DLQ%desk") == []
