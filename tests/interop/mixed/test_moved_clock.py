"""A moved clock and errors on demand, with unmodified clients: RocketMQ's Java client and the plugin's fixture."""

from collections.abc import Callable
from typing import Any

import pytest

from lockstep.testing import LockstepBroker
from tests.interop.harness.drivers import Driver, Drivers
from tests.interop.harness.installed import version_of
from tests.interop.harness.table import Row, RowMaker
from tests.interop.stories.java_story import in_order

pytestmark = pytest.mark.timeout(540)
Start = Callable[..., Driver]


@pytest.fixture
def start(drivers: Drivers, lockstep_broker: LockstepBroker) -> Start:
    """Starts a Java driver on the fixture's broker."""

    def start(main_class: str, **arguments: Any) -> Driver:
        topic, name_server = lockstep_broker.topic, lockstep_broker.name_server
        return drivers.java(main_class, topic=topic, name_server=name_server, **arguments)

    return start


def row_of(interop_row: RowMaker, scenario: str) -> Row:
    return interop_row("Java", version_of("java", "rocketmq-client"), "Java -> Lockstep", scenario)


def queues_by_owner(broker: LockstepBroker) -> dict[str, int]:
    """Client id -> how many queues of the test's topic it holds a living lock of."""
    owners = [lock.client_id for lock in broker.locks() if lock.topic == broker.topic and not lock.expired]
    return {owner: owners.count(owner) for owner in owners}


async def test_a_killed_owners_locks_expire_when_the_clock_is_moved(
    start: Start, lockstep_broker: LockstepBroker, interop_row: RowMaker
) -> None:
    """With RocketMQ's 60 s: the survivor has all queues some seconds after the move, and all is in order."""
    broker, row = lockstep_broker, row_of(interop_row, "killed owner, the broker's clock moved by 61 s")
    victim, survivor = [start("OrderlyConsumer", group=broker.group) for _ in range(2)]
    await victim.until(lambda: sorted(queues_by_owner(broker).values()) == [2, 2], "two queues each")
    await victim.kill()
    producer = start("OrderedProducer", messages=400, keys=32)
    assert await producer.ended(60) == 0, producer.tail()
    assert sorted(queues_by_owner(broker).values()) == [2, 2], "a lock of 60 s outlives its owner"
    broker.advance(61)
    assert len(queues_by_owner(broker)) < 2, "none lives but what the survivor has renewed by now"
    await survivor.until(lambda: list(queues_by_owner(broker).values()) == [4], "all queues")
    await survivor.until(lambda: len(survivor.of("handled")) == 400, "everything handled")
    assert await survivor.close() == 0
    in_order(row, broker.topic, producer, survivor)


async def test_a_delayed_message_comes_when_the_clock_is_moved(
    start: Start, lockstep_broker: LockstepBroker, interop_row: RowMaker
) -> None:
    """Level 18, two hours: a consumer that waits has it at once, and keeps its connection."""
    broker, row = lockstep_broker, row_of(interop_row, "delay level 18, the broker's clock moved by two hours")
    consumer = start("ConcurrentConsumer", group=broker.group)
    await consumer.wait_for("ready")
    sender = start("OrderedProducer", messages=5, keys=1, delay_level=18)
    assert await sender.ended(60) == 0, sender.tail()
    broker.advance(7100, heartbeats=True)
    prompt = start("OrderedProducer", messages=1, keys=1, first=100)
    assert await prompt.ended(60) == 0, prompt.tail()
    await consumer.until(lambda: consumer.of("handled"), "the one that is not delayed")
    broker.advance(110, heartbeats=True)
    await consumer.until(lambda: len(consumer.of("handled")) == 6, "all six")
    assert consumer.of("handled")[0]["seq"] == 100
    row.messages = 6
