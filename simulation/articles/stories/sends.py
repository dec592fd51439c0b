"""Stories of producers: which queue a message goes to, and in which order it is handled."""

import asyncio
from collections.abc import Sequence

from lockstep.client import Message, MessageQueue, Producer
from lockstep.simulation.articles.narration import number
from lockstep.simulation.lab.cluster import PRODUCER
from lockstep.simulation.lab.recorded_cluster import RecordedCluster, take_all

__all__ = ["one_order_for_all", "one_queue", "orders_by_id", "queues_by_id"]

STEPS = ("created", "paid", "shipped")
ORDERS = (1000, 1001, 1002)


def _by_order_id(queues: Sequence[MessageQueue], _message: Message, order_id: int) -> MessageQueue:
    """The selector of the articles: the order's id modulo the number of queues."""
    return queues[order_id % len(queues)]


async def one_queue(cluster: RecordedCluster) -> None:
    """A topic has one queue, and two members want it. Messages of three keys are sent one after the other."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.consumer("A", work_ms=100, strategy=take_all)
    await cluster.consumer("B", work_ms=100, strategy=take_all)
    await cluster.at(2_000)
    for _ in range(6):
        await cluster.send(1, keys=3)
    await cluster.at(3_000)


def one_order_for_all(cluster: RecordedCluster) -> str:
    calls = cluster.seen.all
    owners = " and ".join(sorted({call.process for call in calls}))
    took_ms = calls[-1].end_ms - calls[0].begin_ms
    return (
        f"{owners} alone had q0, and handled {' '.join(call.text for call in calls)}, over all keys "
        f"({', '.join(str(call.key) for call in calls[:3])} ...). {len(calls)} calls of 100 ms took {number(took_ms)} "
        "ms: one queue is as fast as one listener."
    )


async def orders_by_id(cluster: RecordedCluster) -> None:
    """Three orders are created, paid and shipped. A selector sends each to the queue of its id modulo 2."""
    await cluster.broker(queues=2)
    producer = await cluster.producer()
    await cluster.consumer("A", work_ms=100)
    await cluster.at(2_000)
    await cluster.world.host(PRODUCER).run(_send_orders(cluster, producer))
    await cluster.at(3_500)


async def _send_orders(cluster: RecordedCluster, producer: Producer) -> None:
    for step in STEPS:
        for order in ORDERS:
            message = Message(cluster.topic, f"{order} {step}".encode(), tags=step, keys=str(order))
            result = await producer.send(message, selector=_by_order_id, arg=order)
            cluster.sent.append(message.body.decode())
            assert result.queue_id == order % 2
            await asyncio.sleep(0.01)


def queues_by_id(cluster: RecordedCluster) -> str:
    texts = []
    for queue_id in (0, 1):
        orders = sorted({call.text.partition(" ")[0] for call in cluster.seen.of(queue_id=queue_id)})
        texts.append(f"q{queue_id} had {' and '.join(orders)}")
    ways = {
        order: [call.text.partition(" ")[2] for call in cluster.seen.all if call.text.startswith(str(order))]
        for order in ORDERS
    }
    kept = all(tuple(way) == STEPS for way in ways.values())
    return f"{'; '.join(texts)}. Each order was {', '.join(STEPS)}, in this order: {'yes' if kept else 'no'}."
