"""Bursts of sends over sockets: they leave in few frames, and are stored in call order (docs/order.md 2)."""

import asyncio

import pytest

from lockstep.client import Message, MessageQueue, SendError, SendOutcome
from tests.integration.harness.processes import Processes
from tests.integration.harness.workload import producing

pytestmark = pytest.mark.long

TOPIC, MESSAGES, KEYS = "orders", 500, 7


@pytest.mark.parametrize("flush", ["memory", "async", "sync"])
async def test_a_burst_is_stored_in_call_order(processes: Processes, flush: str) -> None:
    """Each message has a result of its own, and a refused one among them refuses no other."""
    kept = [] if flush == "memory" else ["--data-dir", str(processes.folder / "store"), "--flush", flush]
    broker = await processes.broker("--topic", f"{TOPIC}:4", *kept)
    async with producing(broker, processes.folder / "producer.trace") as producer:
        (some, *_) = await producer.queues(TOPIC)
        wrong = MessageQueue(TOPIC, some.broker_name, 9)
        sends = [producer.send(Message(TOPIC, b"%d" % i), sharding_key=f"k{i % KEYS}") for i in range(MESSAGES)]
        refused = producer.send(Message(TOPIC, b"nowhere"), queue=wrong)
        *results, error = await asyncio.gather(*sends, refused, return_exceptions=True)
    assert isinstance(error, SendError)
    assert error.outcome is SendOutcome.REFUSED
    offsets: dict[int, list[int]] = {}
    for result in results:
        assert not isinstance(result, BaseException)
        offsets.setdefault(result.queue_id, []).append(result.queue_offset)
    assert all(found == list(range(len(found))) for found in offsets.values())
    assert sum(map(len, offsets.values())) == MESSAGES
